/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. */
#include "sched/message.h"

/* The messages between neighbours; behind them come the two of a tied embedding, its gradient and
 * its value. */
static long normal_messages(const struct play *p)
{
	return 2l * p->stages * p->chunks * p->microbatches;
}

long message_count(const struct play *p) { return normal_messages(p) + 2; }

bool message_is_tied(enum instr_kind k) { return k >= INSTR_SEND_TIED_GRAD && k < INSTR_COUNT; }

static long tied_message_of(const struct play *p, int stage, const struct instr *in)
{
	bool grad = in->kind == INSTR_SEND_TIED_GRAD || in->kind == INSTR_RECV_TIED_GRAD;
	/* the gradient goes to the front, the value comes from it */
	int here = grad == instr_receives(in->kind) ? 0 : p->stages - 1;

	if (!p->tied || p->stages == 1 || in->microbatch != -1 || in->chunk != -1 ||
	    stage != here || in->peer != p->stages - 1 - here)
		return NOTHING;
	return normal_messages(p) + !grad;
}

long message_of(const struct play *p, int stage, const struct instr *in)
{
	bool act = in->kind == INSTR_SEND_ACT || in->kind == INSTR_RECV_ACT;
	bool send = in->kind == INSTR_SEND_ACT || in->kind == INSTR_SEND_GRAD;
	int to = stage, chunk = in->chunk, peer, other;

	if (message_is_tied(in->kind))
		return tied_message_of(p, stage, in);
	if (in->microbatch < 0 || in->microbatch >= p->microbatches || in->chunk < 0 ||
	    in->chunk >= p->chunks)
		return NOTHING;
	/* The sender of a RECV is the target in the opposite direction. */
	if (!sched_target(p->stages, p->chunks, stage, in->chunk, send == act, &peer, &other) ||
	    peer != in->peer)
		return NOTHING;
	if (send) {
		to = peer;
		chunk = other;
	}
	return ((long)!act * p->stages * p->chunks + (long)chunk * p->stages + to) *
		       p->microbatches +
	       in->microbatch;
}

bool message_is_grad(const struct play *p, long id)
{
	return id >= (long)p->stages * p->chunks * p->microbatches;
}

int message_to(const struct play *p, long id)
{
	if (id >= normal_messages(p))
		return id == normal_messages(p) ? 0 : p->stages - 1;
	return (int)(id / p->microbatches % p->stages);
}

static int route_of(const struct play *p, int from, bool act)
{
	int stages = p->stages;

	if (stages == 2)
		return from; /* 0: 0 -> 1, 1: 1 -> 0 */
	if (act)
		return 2 * from;
	return 2 * ((from + stages - 1) % stages) + 1;
}

int message_route(const struct play *p, long id)
{
	bool act = !message_is_grad(p, id);
	int to = message_to(p, id), stages = p->stages;

	return route_of(p, act ? (to + stages - 1) % stages : (to + 1) % stages, act);
}
