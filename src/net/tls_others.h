/* SPDX-License-Identifier: Apache-2.0 */
/* tls_others.h - what a connection does because its link consists of several (tls_parallel.h), for
 * tls_conn.c. */
#ifndef HS_NET_TLS_OTHERS_H
#define HS_NET_TLS_OTHERS_H

#include "net/tls_conn.h"

/* ---- the first connection of a link ---- */
/* Asks for others, or offers them, where this end or the peer wants them and nothing was said yet.
 * Without memory the link stays as it is. */
void others_offer(struct conn *c);
/* PARALLEL has come. NULL, or what is wrong with it. */
const char *others_asked(struct conn *c, const struct head *h);
/* PIECE, counted by the window. */
void others_announce(struct conn *c, const struct head *h);
/* Takes its turn behind messages of which pieces are missing: PARALLEL_CREDIT with its size, or
 * PARALLEL_BYE. */
void others_follow(struct conn *c, int64_t at, uint64_t size);

/* ---- the others ---- */
/* JOIN has come, from a peer that has proven its key. */
void others_join(struct conn *c, const struct head *h);
/* The peer has answered JOIN. */
void others_joined(struct conn *c);
/* A head on one that is up, or what is wrong with it. */
void others_head(struct conn *c, const struct head *h, const char *bad);

/* ---- both ---- */
/* The bytes that were expected have come. */
void others_arrived(struct conn *c);

#endif
