/* SPDX-License-Identifier: Apache-2.0 */
/* tls_dial.h - the attempts of a dialled connection, for tls_hub.c: first at the rendezvous of this
 * machine (shm_meet.h), when the connection says so, then over TCP; and whether a failed one is
 * repeated. Nothing here waits. */
#ifndef HS_NET_TLS_DIAL_H
#define HS_NET_TLS_DIAL_H

#include "net/tls_conn.h"

/* Of every TCP socket. What is lost is sent again at least every eighth of peer_timeout (Linux 6.15
 * and later; others double the time from one attempt to the next), so that a link comes back soon
 * after the network below it does, before it counts as lost. */
void dial_options(int fd, double peer_timeout);
/* Begins an attempt. */
void dial_begin(struct conn *c, int64_t now);
/* The kernel has an answer for a connection that is CONN_CONNECTING. */
void dial_answered(struct conn *c, int64_t now);
/* The time for one attempt, handshake included, in ns: each of several addresses gets its part. */
#define DIAL_ATTEMPT ((int64_t)5000000000)
static inline int64_t dial_attempt(const struct conn *c)
{
	return c->attempt && c->attempt < DIAL_ATTEMPT ? c->attempt : DIAL_ATTEMPT;
}
/* Ends an attempt that has taken longer; false: it goes on. */
bool dial_late(struct conn *c, int64_t now);
/* An attempt has failed, as c->end says: the connection waits for the next one, or is gone. */
void dial_failed(struct conn *c, int64_t now);

#endif
