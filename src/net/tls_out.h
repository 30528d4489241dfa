/* SPDX-License-Identifier: Apache-2.0 */
/* tls_out.h - what a connection sends, for tls_conn.c: heads and messages into a stage of one
 * record, large messages past it. */
#ifndef HS_NET_TLS_OUT_H
#define HS_NET_TLS_OUT_H

#include "net/tls_conn.h"

enum {
	OUT_STAGE = 16 << 10, /* one TLS record */
	OUT_TURN = 1 << 20,   /* bytes before others have their turn */
};

/* Writes what is there, until the socket takes no more or the turn is over: blocked, more_out and
 * mute say how it went. */
void out_write(struct conn *c);
/* From here on the connection goes without encryption; the peer's key is proven. */
void out_go_plain(struct conn *c);
/* Gives up what was not sent. */
void out_drop(struct conn *c);

#endif
