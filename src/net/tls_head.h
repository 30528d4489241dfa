/* SPDX-License-Identifier: Apache-2.0 */
/* tls_head.h - what a link of the tls transport says to its other end: heads of 24 bytes, in the
 * stream of the connection, little-endian. Pure: no socket, no memory of its own.
 *
 *      0  4  "HSL2"
 *      4  4  type
 *      8  8  a
 *     16  8  b
 *
 *     HELLO    a: window in bytes, b: largest message that is accepted. First thing from either
 *              side, once
 *     MESSAGE  a: length; that many bytes of the user follow. b: 0
 *     CREDIT   a: bytes (net_cost) that the user took: the window opens again. b: 0
 *     PING     asks for an ALIVE. a, b: 0
 *     ALIVE    the answer. a, b: 0
 *     BYE      last thing: nothing follows it. a, b: 0
 *     REFUSE   a: enum head_refusal; only in place of HELLO, by who listens. b: 0
 *
 * Between processes of one machine (shm_memory.h) also
 *
 *     MEMORY   a: size of a buffer, b: its number; its descriptor comes along
 *     SHARED   a: length of a message, b: number of the buffer in which it lies
 *     DROP     b: number of a buffer that is not used any more. a: 0
 *
 * Between two machines of a mesh (inside.h)
 *
 *     HELLO_MESH  as HELLO. The dialling side: what follows may go without encryption; the
 *              listening side, only in answer to that: it does, in both directions
 *
 * Over several connections (tls_parallel.h)
 *
 *     PARALLEL a: how many. The dialling side: asks for them, b: 0; the listening side, asked or
 *              not, once: offers them, b: says which link it is
 *     JOIN     in place of the dialling side's HELLO: belongs to the link with this `a`, as its
 *              connection number b, from 1; answered with HELLO
 *     PIECE    a: length of a message, b: its number among those in pieces, from 0; the piece that
 *              belongs on this connection follows
 */
#ifndef HS_NET_TLS_HEAD_H
#define HS_NET_TLS_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#define HEAD_BYTES 24
#define HEAD_MAGIC 0x324c5348u /* "HSL2" */

enum head_type {
	HEAD_HELLO = 1,
	HEAD_MESSAGE,
	HEAD_CREDIT,
	HEAD_PING,
	HEAD_ALIVE,
	HEAD_BYE,
	HEAD_REFUSE,
	HEAD_MEMORY,
	HEAD_SHARED,
	HEAD_DROP,
	HEAD_HELLO_MESH,
	HEAD_PARALLEL,
	HEAD_JOIN,
	HEAD_PIECE
};
enum head_refusal { REFUSE_KEYS = 1 /* one side has a key, the other none */ };

struct head {
	enum head_type type;
	uint64_t a, b;
};

void head_write(unsigned char out[HEAD_BYTES], enum head_type type, uint64_t a, uint64_t b);
/* NULL, or what is wrong with it, for the message that ends the link. */
const char *head_read(const unsigned char in[HEAD_BYTES], struct head *h_p);
bool head_begins(const unsigned char *p); /* 4 bytes: of a head, not of TLS */

/* What one end has received and sent, to check the next head against. */
struct head_count {
	uint64_t window, max_message; /* of this end */
	uint64_t slack;               /* of the window: one message may exceed it above that */
	uint64_t arrived, told;       /* cost of messages that came; of it credited to the peer */
	uint64_t sent, credited;      /* the same of the other direction */
	uint64_t pieces;              /* messages that came in pieces */
};

/* Whether a head may come now on a link that has said hello, and counts it. NULL, or what is wrong
 * with it. */
const char *head_count(struct head_count *c, const struct head *h);

#endif
