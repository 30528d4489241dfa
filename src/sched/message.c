/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. */
#include "sched/message.h"

#include "base/err.h"
#include "base/mem.h"

/* ---- who does what ---- */

/* The messages between neighbours; behind them come those of a tied embedding. */
static long normal_messages(const struct play *p)
{
	return 2l * p->stages * p->chunks * p->microbatches;
}

/* Pairs of neighbouring stages; with two stages both ways round are one. */
static int links(const struct play *p)
{
	return p->stages == 1 ? 0 : p->stages == 2 ? 1 : p->stages;
}

/* Deals the microbatches of a stage; begin[] and next[] from the last one to the first. */
static void deal_stage(const struct play *p, int stage, int first, const int *share, int *by,
		       int *next, int *begin)
{
	const int M = p->microbatches, n = p->members[stage];
	sched_deal(share, n, M, by);
	for (int k = 0; k < n; k++)
		begin[k] = M;
	for (int i = M - 1; i >= 0; i--) {
		next[i] = begin[by[i]];
		begin[by[i]] = i;
		by[i] += first;
	}
}

static int map_groups(struct play_map *m, const struct play *p, struct play_room *room,
		      struct err *e)
{
	const size_t S = (size_t)p->stages, M = (size_t)p->microbatches;
	size_t members = 0, routes = 0;
	for (size_t s = 0; s < S; s++) {
		if (p->members[s] < 1 || p->members[s] > SCHED_MAX_GROUP)
			return err_set(e, ERR_INTERNAL, "player: stage %zu has %d members", s,
				       p->members[s]);
		members += (size_t)p->members[s];
		if (s < (size_t)links(p))
			routes += 2 * (size_t)p->members[s] * (size_t)p->members[(s + 1) % S];
	}
	if (members > SCHED_MAX_STAGES || routes > INT32_MAX)
		return err_set(e, ERR_INTERNAL, "player: %zu members", members);
	const size_t all = 2 * (S + 1) + 2 * members + 2 * S * M;
	if (!mem_grow(&room->v, &room->cap, all, sizeof *room->v))
		return err_nomem(e, all * sizeof *room->v, "the player");
	int *first = room->v, *route = first + S + 1, *stage = route + S + 1,
	    *begin = stage + members, *by = begin + members, *next = by + S * M;
	first[0] = route[0] = 0;
	for (size_t s = 0; s < S; s++) {
		const int n = p->members[s], k = p->members[(s + 1) % S];
		first[s + 1] = first[s] + n;
		route[s + 1] = route[s] + (s < (size_t)links(p) ? 2 * n * k : 0);
		for (int i = first[s]; i < first[s + 1]; i++)
			stage[i] = (int)s;
		deal_stage(p, (int)s, first[s], p->share ? p->share + first[s] : NULL, by + s * M,
			   next + s * M, begin + first[s]);
	}
	m->members = (int)members;
	m->routes = (int)routes;
	m->first = first;
	m->stage = stage;
	m->begin = begin;
	m->by = by;
	m->next = next;
	m->route = route;
	return 0;
}

int play_map_make(struct play_map *m, const struct play *p, struct play_room *room, struct err *e)
{
	*m = (struct play_map){ .p = p, .members = p->stages, .routes = 2 * links(p) };
	if (p->members)
		TRY(map_groups(m, p, room, e));
	m->messages = normal_messages(p) + map_size(m, 0) + map_size(m, p->stages - 1);
	return 0;
}

/* ---- messages ---- */

bool message_is_tied(enum instr_kind k) { return k >= INSTR_SEND_TIED_GRAD && k < INSTR_COUNT; }

static long tied_message_of(const struct play_map *m, int member, const struct instr *in)
{
	const struct play *p = m->p;
	const bool receives = instr_receives(in->kind);
	bool grad = in->kind == INSTR_SEND_TIED_GRAD || in->kind == INSTR_RECV_TIED_GRAD;
	/* the gradient goes to the front, the value comes from it */
	int to = grad ? 0 : p->stages - 1, from = p->stages - 1 - to, here = receives ? to : from;

	if (!p->tied || p->stages == 1 || in->microbatch != -1 || in->chunk != -1 ||
	    map_stage(m, member) != here || in->peer != p->stages - 1 - here)
		return NOTHING;
	int place = map_place(m, member), getter = receives ? place : in->place,
	    giver = receives ? in->place : place;
	if (getter < 0 || getter >= map_size(m, to) || giver != getter % map_size(m, from))
		return NOTHING;
	return normal_messages(p) + (grad ? 0 : map_size(m, 0)) + getter;
}

long message_of(const struct play_map *m, int member, const struct instr *in)
{
	const struct play *p = m->p;
	bool act = in->kind == INSTR_SEND_ACT || in->kind == INSTR_RECV_ACT;
	bool send = in->kind == INSTR_SEND_ACT || in->kind == INSTR_SEND_GRAD;
	int stage = map_stage(m, member), to = stage, chunk = in->chunk, peer, other;

	if (message_is_tied(in->kind))
		return tied_message_of(m, member, in);
	if (in->microbatch < 0 || in->microbatch >= p->microbatches || in->chunk < 0 ||
	    in->chunk >= p->chunks)
		return NOTHING;
	/* The sender of a RECV is the target in the opposite direction. */
	if (!sched_target(p->stages, p->chunks, stage, in->chunk, send == act, &peer, &other) ||
	    peer != in->peer)
		return NOTHING;
	if (m->first && (map_by(m, stage, in->microbatch) != member ||
			 map_by(m, peer, in->microbatch) != m->first[peer] + in->place))
		return NOTHING;
	if (send) {
		to = peer;
		chunk = other;
	}
	return ((long)!act * p->stages * p->chunks + (long)chunk * p->stages + to) *
		       p->microbatches +
	       in->microbatch;
}

bool message_is_grad(const struct play_map *m, long id)
{
	return id >= (long)m->p->stages * m->p->chunks * m->p->microbatches;
}

int message_to(const struct play_map *m, long id)
{
	const struct play *p = m->p;
	long tied = id - normal_messages(p);

	if (tied >= 0)
		return tied < map_size(m, 0)
			       ? (int)tied
			       : map_first(m, p->stages - 1) + (int)tied - map_size(m, 0);
	return map_by(m, (int)(id / p->microbatches % p->stages), (int)(id % p->microbatches));
}

int message_route(const struct play_map *m, long id)
{
	const struct play *p = m->p;
	const int stages = p->stages, to = (int)(id / p->microbatches % stages);
	const bool act = !message_is_grad(m, id);
	const int from = act ? (to + stages - 1) % stages : (to + 1) % stages;
	/* of two stages, both ways round are link 0 */
	const bool forward = stages == 2 ? from == 0 : act;
	const int link = forward ? from : to;

	if (!m->first)
		return 2 * link + !forward;
	const int mb = (int)(id % p->microbatches), a = map_by(m, link, mb) - m->first[link],
		  next = (link + 1) % stages, b = map_by(m, next, mb) - m->first[next],
		  n = map_size(m, next);
	return m->route[link] + (forward ? 0 : map_size(m, link) * n) + a * n + b;
}

long messages_due(const struct play_map *m)
{
	const struct play *p = m->p;
	long tied = p->tied ? map_size(m, 0) + map_size(m, p->stages - 1) : 0;
	return p->stages == 1 ? 0 : 2l * (p->stages * p->chunks - 1) * p->microbatches + tied;
}
