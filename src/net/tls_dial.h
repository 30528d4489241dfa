/* SPDX-License-Identifier: Apache-2.0 */
/* tls_dial.h - the attempts of a dialled connection, for tls_hub.c: first at the rendezvous of this
 * machine (shm_meet.h), when the connection says so, then over TCP; and whether a failed one is
 * repeated. Nothing here waits. */
#ifndef HS_NET_TLS_DIAL_H
#define HS_NET_TLS_DIAL_H

#include "net/tls_conn.h"

/* Begins an attempt. */
void dial_begin(struct conn *c, int64_t now);
/* The kernel has an answer for a connection that is CONN_CONNECTING. */
void dial_answered(struct conn *c, int64_t now);
/* An attempt has failed, as c->end says: the connection waits for the next one, or is gone. */
void dial_failed(struct conn *c, int64_t now);

#endif
