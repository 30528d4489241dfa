/* SPDX-License-Identifier: Apache-2.0 */
/* tls_life.h - beginning and end of a connection, and its buffers, for tls_conn.c and what is below
 * it: conn_new(), conn_free(), conn_reset() and conn_break() of tls_conn.h, and these. */
#ifndef HS_NET_TLS_LIFE_H
#define HS_NET_TLS_LIFE_H

#include "net/tls_conn.h"

enum { CONN_AHEAD = 64 << 10 }; /* plain reads of less than this are made at once */

/* Over, without a word to the user. */
void conn_gone(struct conn *c);
/* conn_break() for what the peer sent. */
void conn_wrong(struct conn *c, const char *what);
/* A connection that is not up ends. Dialled: the hub decides whether to try again. Accepted: the
 * peer may still read the reason. */
void conn_fails(struct conn *c, enum conn_end end);
/* Large buffers for what is read, and for what is written; the stage. false: memory is out. */
bool conn_buffers(struct conn *c);
bool conn_large_stage(struct conn *c);
/* A message with room for n bytes; NULL: memory is out, and the link lost. */
struct net_node *conn_room(struct conn *c, uint64_t n);

#endif
