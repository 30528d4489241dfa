/* SPDX-License-Identifier: Apache-2.0 */
/* play_link.c - messages on their routes, and wires that routes share (play.h). */
#include "sched/player.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

static void add_send_span(struct player *pl, long id, double begin, double end)
{
	const struct play *p = pl->in;
	const struct play_map *m = &pl->map;
	if (!pl->want_spans)
		return;
	bool act = !message_is_grad(m, id);
	int to = map_stage(m, message_to(m, id)), mb = (int)(id % p->microbatches),
	    chunk = (int)(id / p->microbatches / p->stages % p->chunks), from, from_chunk;

	if (!sched_target(p->stages, p->chunks, to, chunk, !act, &from, &from_chunk))
		return;
	player_span(pl, map_by(m, from, mb),
		    &(struct instr){ act ? INSTR_SEND_ACT : INSTR_SEND_GRAD, mb, from_chunk, to,
				     map_place(m, message_to(m, id)), 0, 0 },
		    begin, end);
}

static double bytes_of(const struct player *pl, long id)
{
	return message_is_grad(&pl->map, id) ? pl->in->grad_bytes : pl->in->act_bytes;
}

/* The arrival of a message is known: in flow mode its receiver may continue now, in event mode at
 * that time. */
static void deliver(struct player *pl, long id, double at)
{
	int to = message_to(&pl->map, id);

	pl->arrive[id] = at;
	if (pl->events)
		events_push(&pl->queue, at, to, 0);
	else if (pl->worker[to].on == id)
		player_ready(pl, to);
}

/* ---- wires shared by routes (event mode) ---- */

enum { WIRES = 4 }; /* of a route */

/* The k-th wire of a route, or -1: none, or the same as one before. */
static int wire_of(const struct play_route *r, int k)
{
	const int all[WIRES] = { r->wire_out, r->wire_in, r->via[0] - 1, r->via[1] - 1 };
	for (int i = 0; i < k && all[k] >= 0; i++)
		if (all[i] == all[k])
			return -1;
	return all[k] < 0 ? -1 : all[k];
}

static double fair_rate(const struct player *pl, const struct play_route *r)
{
	double rate = r->bytes_per_s;

	for (int k = 0; k < WIRES; k++) {
		int w = wire_of(r, k);
		if (w < 0)
			continue;
		double part = pl->in->wire[w].bytes_per_s /
			      (pl->wire_active[w] > 1 ? pl->wire_active[w] : 1);
		if (part < rate)
			rate = part;
	}
	return rate;
}

static void set_rate(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];

	if (r->head == NOTHING)
		return;
	r->left -= r->rate * (now - r->stamp);
	if (!(r->left > 0))
		r->left = 0;
	r->stamp = now;
	r->rate = fair_rate(pl, &pl->in->route[route]);
	r->version++;
	events_push(&pl->queue, now + r->left / r->rate, pl->map.members + route, r->version);
}

/* A transmission begins (+1) or has ended (-1): all that share its wires get another rate. */
static void change_rates(struct player *pl, int route, int change, double now)
{
	const struct play_route *pr = &pl->in->route[route];
	bool seen = false;

	for (int k = 0; k < WIRES; k++)
		if (wire_of(pr, k) >= 0)
			pl->wire_active[wire_of(pr, k)] += change;
	for (int k = 0; k < WIRES; k++) {
		const int w = wire_of(pr, k);
		if (w < 0)
			continue;
		for (int i = pl->wire_first[w]; i < pl->wire_first[w + 1]; i++) {
			if (pl->wire_route[i] == route) {
				if (seen)
					continue;
				seen = true;
			}
			set_rate(pl, pl->wire_route[i], now);
		}
	}
	if (!seen)
		set_rate(pl, route, now);
}

static void begin_transmission(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];

	r->left = bytes_of(pl, r->head);
	r->stamp = now;
	r->rate = 0;
	change_rates(pl, route, 1, now);
}

void play_link_end(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];
	long id = r->head;
	double begin = r->free_s;

	r->head = pl->queue_next[id];
	r->version++;
	add_send_span(pl, id, begin, now);
	deliver(pl, id, now + pl->in->route[route].latency_s);
	{
		long next = r->head;
		r->head = NOTHING;
		change_rates(pl, route, -1, now);
		r->head = next;
	}
	if (r->head != NOTHING) {
		r->free_s = now;
		begin_transmission(pl, route, now);
	}
}

int play_link_transmit(struct player *pl, int who, const struct instr *in, struct err *e)
{
	double now = pl->worker[who].now, begin;
	long id = pl->worker[who].sends;
	int route;
	struct route *r;

	if (!isnan(pl->sent[id]))
		return player_refuse(pl, who, in, "sent twice", e);
	pl->sent[id] = now;
	pl->sent_n++;
	if (message_is_tied(in->kind)) {
		player_span(pl, who, in, now, now + pl->in->tied_s);
		deliver(pl, id, now + pl->in->tied_s);
		return 0;
	}
	if (!pl->in->route) {
		deliver(pl, id, now);
		return 0;
	}
	route = message_route(&pl->map, id);
	r = &pl->route[route];
	if (!pl->events) {
		begin = r->free_s > now ? r->free_s : now;
		r->free_s = begin + bytes_of(pl, id) / r->rate;
		add_send_span(pl, id, begin, r->free_s);
		deliver(pl, id, r->free_s + pl->in->route[route].latency_s);
		return 0;
	}
	pl->queue_next[id] = NOTHING;
	if (r->head != NOTHING) {
		pl->queue_next[r->tail] = id;
		r->tail = id;
		return 0;
	}
	r->head = r->tail = id;
	r->free_s = now;
	begin_transmission(pl, route, now);
	return 0;
}

/* Whether messages travel on a route: between the last stage and the first only with chunks. */
static bool route_is_used(const struct player *pl, int i)
{
	const struct play *p = pl->in;
	const struct play_map *m = &pl->map;
	return p->chunks > 1 || p->stages == 2 ||
	       i < (m->first ? m->route[p->stages - 1] : 2 * (p->stages - 1));
}

int play_link_lay(struct player *pl, const struct play *p, struct err *e)
{
	int routes = p->route ? pl->map.routes : 0;

	pl->events = false;
	for (int i = 0; i < routes; i++) {
		const struct play_route *r = &p->route[i];

		bool known = true;
		for (int k = 0; k < WIRES; k++)
			known = known && wire_of(r, k) < (int)p->wires;
		if (!(r->bytes_per_s > 0) || !(r->latency_s >= 0) || !known)
			return err_set(e, ERR_INTERNAL,
				       "player: route %d has no bandwidth, a negative latency or "
				       "an unknown wire",
				       i);
		pl->route[i] = (struct route){ .rate = fair_rate(pl, r),
					       .head = NOTHING,
					       .tail = NOTHING };
		if (!route_is_used(pl, i))
			continue;
		for (int k = 0; k < WIRES; k++)
			if (wire_of(r, k) >= 0)
				pl->wire_first[wire_of(r, k) + 1]++;
	}
	for (size_t w = 0; w < p->wires; w++) {
		if (pl->wire_first[w + 1] > 1)
			pl->events = true;
		pl->wire_first[w + 1] += pl->wire_first[w];
	}
	if (!pl->events)
		return 0;
	for (int i = 0; i < routes; i++) {
		const struct play_route *r = &p->route[i];

		if (!route_is_used(pl, i))
			continue;
		for (int k = 0; k < WIRES; k++) {
			const int w = wire_of(r, k);
			if (w >= 0)
				pl->wire_route[pl->wire_first[w] + pl->wire_active[w]++] = i;
		}
	}
	memset(pl->wire_active, 0, (p->wires + 1) * sizeof *pl->wire_active);
	return 0;
}
