/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - see rows.h. The layer of the stage is the frame's `chunk`. */
#include "pass/rows.h"

#include "base/err.h"
#include "engine/exchange_parts.h"

static enum frame_kind kind_of(const struct instr *i)
{
	return i->kind == INSTR_SEND_ROWS || i->kind == INSTR_RECV_ROWS ? FRAME_ROWS
									: FRAME_ROW_GRADS;
}

int rows_room(struct exchange *x, const struct instr *i, size_t bytes, unsigned char **p_p,
	      struct err *e)
{
	TRY(exchange_flush(x, e));
	unsigned char *p = link_buffer(x->beside.peer[i->place].link, FRAME_HEADER + bytes);
	*p_p = p ? p + FRAME_HEADER : NULL;
	return p ? 0 : err_nomem(e, bytes, "rows to send");
}

int rows_send(struct exchange *x, const struct instr *i, unsigned char *payload, size_t bytes,
	      struct err *e)
{
	const struct peer *to = &x->beside.peer[i->place];
	unsigned char *p = payload - FRAME_HEADER;
	size_t n = 0;
	const struct frame f = { .kind = kind_of(i),
				 .job = x->orders->job,
				 .epoch = x->orders->epoch,
				 .step = x->orders->step,
				 .from = x->orders->member,
				 .to = FRAME_MEMBER(to->member),
				 .microbatch = (uint32_t)i->microbatch,
				 .chunk = (uint16_t)i->part,
				 .size = bytes,
				 .payload = payload };
	int rc = frame_encode(&f, p, FRAME_HEADER + bytes, &n, e);
	if (rc < 0) {
		net_buffer_release(x->net, p);
		return rc;
	}
	return exchange_hand_over(x, to, p, n, FLOW_TO_GROUP, e);
}

int rows_receive(struct exchange *x, const struct instr *i, struct net_msg *msg_p,
		 const unsigned char **p_p, size_t *bytes_p, struct err *e)
{
	struct frame f = { 0 };
	const struct exchange_want w = { kind_of(i), (uint32_t)i->microbatch, (uint16_t)i->part,
					 &x->beside.peer[i->place] };
	TRY(exchange_wait_for(x, &w, msg_p, &f, e));
	*p_p = f.payload;
	*bytes_p = f.size;
	return 0;
}
