/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - this process's end of the network, by the configuration: transport, keys, permitted
 * peers, addresses. */
#ifndef HS_JOB_NETWORK_H
#define HS_JOB_NETWORK_H

#include "config/config.h"
#include "net/net.h"

struct err;

/* Without keys every address must be one of loopback, unless the user allows more (insecure), which
 * is said in a warning each time.
 * ERR_USAGE says which commands make keys. */
int network_check(const struct config *c, struct err *e);
/* This process's end of the network, with its key and the public keys of all machines. `listed`:
 * the public key that the configuration has for this machine (NULL: none); this machine's key must
 * match it. */
int network_open(const struct config *c, const char *listed, struct net **n_p, struct err *e);

/* "host:port" from the `ip` or, without one, the `hostname` of an entry. */
void network_address(const char *ip, const char *hostname, int64_t port, char out[NET_ADDRESS]);
/* The device of the worker 'local': coordinator.device, or where that is auto, `device`. */
const char *network_local_device(const struct config *c);

#endif
