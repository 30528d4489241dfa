/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - this process's end of the network, by the configuration: transport, keys, permitted
 * peers, addresses. */
#ifndef HS_JOB_NETWORK_H
#define HS_JOB_NETWORK_H

#include "config/config.h"
#include "net/net.h"

struct buf;
struct err;

/* Without keys every address must be one of loopback, unless the user allows more (insecure), which
 * is said in a warning each time.
 * ERR_USAGE says which commands make keys. */
int network_check(const struct config *c, struct err *e);

/* One-time keys, for a job on one machine whose configuration has none: the coordinator makes a key
 * for itself and one for each worker that it starts, and hands them over through the pipe that ties
 * the worker to it (os.h). So nobody else can take a worker's place or give it orders. */
struct network_keys {
	struct key_pair own;
	char coordinator[KEY_TEXT];
	struct network_peer {
		char key[KEY_TEXT], address[NET_ADDRESS];
	} * peer; /* the workers that have such keys */
	size_t n;
};
enum { NETWORK_KEYS_MOST = 400 };
/* The keys as text, for a worker. Contains its private key. */
int network_keys_write(const struct network_keys *k, struct buf *out, struct err *e);
/* What the coordinator handed to this process, which it forgets; 0: nothing, *k_p is empty. */
int network_keys_handed(struct network_keys *k_p, struct err *e);
void network_keys_release(struct network_keys *k);

/* This process's end of the network. With `k` (may be NULL, or without a key) its keys; else, where
 * the configuration has keys, this machine's key and the public keys of all machines. `listed`: the
 * public key that the configuration has for this machine (NULL: none); this machine's key must
 * match it. Transport auto: TLS, and within the machine shared memory; without any keys shared
 * memory alone, where the kernel says who the other side is. */
int network_open(const struct config *c, const char *listed, const struct network_keys *k,
		 struct net **n_p, struct err *e);

/* "host:port" from the `ip` or, without one, the `hostname` of an entry. */
void network_address(const char *ip, const char *hostname, int64_t port, char out[NET_ADDRESS]);
/* The device of the worker 'local': coordinator.device, or where that is auto, `device`. */
const char *network_local_device(const struct config *c);

#endif
