/* SPDX-License-Identifier: Apache-2.0 */
/* tls_hub.h - the thread behind the transports tls and shm: one per net, it owns every socket and
 * does all reading, writing and encryption (tls_conn.c). Where links have several connections
 * (tls_parallel.h), the second of each belong to a second thread of the same kind, and so on. Over
 * a Unix socket a user's thread writes by itself while the hub has nothing to do with the
 * connection: that saves a thread switch for each message.
 *
 * Strangers come second. Connections that have not said hello, and the listener, are watched by a
 * set of their own, and what is done for them may take a tenth of the thread's time: links stay
 * fast, whoever connects. At most HUB_STRANGERS of them are open, each for HUB_PATIENCE; beyond
 * that the oldest one goes, of the address that has most. */
#ifndef HS_NET_TLS_HUB_H
#define HS_NET_TLS_HUB_H

#include "net/net_priv.h"

#define HUB_STRANGERS 64
#define HUB_PATIENCE 2.0 /* seconds */

struct hub;

/* Begins the thread; n->priv is the hub. */
int hub_open(struct net *n, struct err *e);

/* Sockets that listen, over TCP and on this machine (-1: none); the hub owns them. `path`: of the
 * second, removed in the end. */
void hub_listen(struct hub *h, int fd, int near_fd, const char *path);
/* Begins to dial: numbers as address_resolve makes them. `to`: over TCP, `n` of them, one after the
 * other; `source` may be ""; `meet`: the address at which to meet on this machine first, or "". 0
 * or ERR_NOMEM. */
struct address;
int hub_dial(struct hub *h, struct link *l, const struct address *to, int n, const char *source,
	     const char *meet, struct err *e);
/* The rest of struct net_transport; l->priv is the link's struct conn. */
/* Ends the thread, once all links are gone or after `linger` seconds. */
void hub_close(struct net *n, double linger);
void hub_send(struct link *l, struct net_node *node);
void hub_taken(struct link *l, uint64_t cost);
void hub_waits(struct link *l);
void hub_shut(struct link *l);
void hub_take(struct link *l);
void hub_freed(struct link *l);
/* A buffer that both ends see; NULL where there is none. */
void *hub_buffer(struct link *l, size_t bytes);

#endif
