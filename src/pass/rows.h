/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the messages of experts on other members (away.h). */
#ifndef HS_PASS_ROWS_H
#define HS_PASS_ROWS_H

#include "engine/exchange.h"

struct err;

/* Rows of tokens to and from a member of the same group (SEND_ROWS to RECV_ROW_GRADS): a buffer for
 * `bytes`, and sending it, which gives it away; and the bytes that an instruction waits for, until
 * net_msg_release(). `p` is behind a header. */
int rows_room(struct exchange *x, const struct instr *i, size_t bytes, unsigned char **p_p,
	      struct err *e);
int rows_send(struct exchange *x, const struct instr *i, unsigned char *p, size_t bytes,
	      struct err *e);
int rows_receive(struct exchange *x, const struct instr *i, struct net_msg *msg_p,
		 const unsigned char **p_p, size_t *bytes_p, struct err *e);

#endif
