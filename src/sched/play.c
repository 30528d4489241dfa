/* SPDX-License-Identifier: Apache-2.0 */
/* play.c - the player. One set of rules for the effect of an instruction, and two ways of advancing
 * the workers:
 *
 * - No wire is shared by two routes: the arrival of a message depends only on its sender, so each
 *   worker runs until it needs a message whose arrival is not known yet (play_flow). Linear in
 *   the number of instructions; a planner's search uses this.
 * - Otherwise transmissions slow each other down: events in order of time from a heap
 *   (play_events). */
#include "sched/player.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* The rules of completeness for a computation; counts it. */
static int compute(struct player *pl, int who, const struct instr *in, struct err *e)
{
	const struct play *p = pl->in;
	const struct play_map *m = &pl->map;
	bool forward = in->kind == INSTR_FORWARD;
	const bool whole = in->part + 1 >= in->parts;
	int *done, step = forward ? -m->members : m->members, at, from, chunk,
		   stage = map_stage(m, who);

	if (in->chunk < 0 || in->chunk >= p->chunks)
		return player_refuse(pl, who, in, "no such chunk", e);
	at = in->chunk * m->members + who;
	done = forward ? pl->next_f : pl->next_b;
	if (in->microbatch != done[at] || in->microbatch >= p->microbatches)
		return player_refuse(pl, who, in, "out of order", e);
	if (!forward && pl->next_f[at] <= in->microbatch)
		return player_refuse(pl, who, in, "before its forward", e);
	if (p->gather && (p->alone || map_size(m, stage) > 1) && pl->worker[who].here != in->chunk)
		return player_refuse(pl, who, in, "its values were not gathered", e);
	if (sched_target(p->stages, p->chunks, stage, in->chunk, !forward, &from, &chunk)) {
		int giver = map_by(m, from, in->microbatch);
		long id = message_of(m, who,
				     &(struct instr){ forward ? INSTR_RECV_ACT : INSTR_RECV_GRAD,
						      in->microbatch, in->chunk, from,
						      map_place(m, giver), 0, 0 });
		if (id == NOTHING || !pl->taken[id])
			return player_refuse(pl, who, in, "its input was not received", e);
	} else if (p->stages == 1 && at + step >= 0 && at + step < p->chunks * m->members &&
		   done[at + step] <= in->microbatch) {
		return player_refuse(pl, who, in, "before the neighbouring chunk", e);
	}
	if (pl->part[at] != in->part)
		return player_refuse(pl, who, in, "a part out of order", e);
	pl->part[at] = whole ? 0 : in->part + 1;
	if (!whole)
		return 0;
	done[at] = map_next(m, stage, in->microbatch);
	pl->worker[who].kept += forward ? 1 : -1;
	if (pl->worker[who].kept > pl->report[who].in_flight)
		pl->report[who].in_flight = pl->worker[who].kept;
	return 0;
}

/* How many sums a chunk of a group has. */
static int parts(const struct player *pl) { return pl->in->parts ? pl->in->parts : 1; }

/* Of SEND_SUMS or REDUCE: which of a member's (or a stage's) sums it is. */
static bool sum_exists(const struct player *pl, const struct instr *in)
{
	return in->chunk >= 0 && in->chunk < pl->in->chunks && in->microbatch == -1 &&
	       in->part >= 0 && in->part < parts(pl);
}

static unsigned char *sum_state(const struct player *pl, int who, const struct instr *in)
{
	return &pl->sums[(in->chunk * parts(pl) + in->part) * pl->map.members + who];
}

static struct sum *sum_of(const struct player *pl, int who, const struct instr *in)
{
	const int chunks = pl->in->chunks;
	return &pl->sum[(map_stage(&pl->map, who) * chunks + in->chunk) * parts(pl) + in->part];
}

static bool chunk_computed(const struct player *pl, int who, int chunk)
{
	return pl->next_b[chunk * pl->map.members + who] == pl->in->microbatches;
}

static bool in_group(const struct player *pl, int who)
{
	return map_size(&pl->map, map_stage(&pl->map, who)) > 1;
}

/* All gradients are there, in a group as sums. */
static bool all_computed(const struct player *pl, int who)
{
	for (int c = 0; c < pl->in->chunks; c++)
		if (!chunk_computed(pl, who, c))
			return false;
	return !in_group(pl, who) || pl->worker[who].sums == pl->in->chunks * parts(pl);
}

/* A tied gradient is complete, and not yet part of the norm; a tied value is new. */
static int check_tied(struct player *pl, int who, const struct instr *in, struct err *e)
{
	pl->worker[who].sends = message_of(&pl->map, who, in);
	if (pl->worker[who].sends == NOTHING)
		return player_refuse(pl, who, in, "no such message", e);
	if (in->kind == INSTR_SEND_TIED_VALUE || in->kind == INSTR_RECV_TIED_VALUE)
		return pl->worker[who].stepped ? 0 : player_refuse(pl, who, in, "before STEP", e);
	if (!all_computed(pl, who))
		return player_refuse(pl, who, in, "a backward is missing before it", e);
	return isnan(pl->worker[who].reduced) ? 0 : player_refuse(pl, who, in, "after NORM", e);
}

/* SEND_SUMS: behind its part of the last backward of a chunk, once; not without microbatches. */
static int check_sums(struct player *pl, int who, const struct instr *in, struct err *e)
{
	if (!in_group(pl, who) || !sum_exists(pl, in) || pl->map.begin[who] == pl->in->microbatches)
		return player_refuse(pl, who, in, "there is no such sum", e);
	if (!chunk_computed(pl, who, in->chunk) &&
	    pl->part[in->chunk * pl->map.members + who] <= in->part)
		return player_refuse(pl, who, in, "a backward is missing before it", e);
	unsigned char *state = sum_state(pl, who, in);
	if (*state != SUM_OPEN)
		return player_refuse(pl, who, in, "twice", e);
	*state = SUM_SENT;
	return 0;
}

/* Of SEND_VALUES, GATHER or RELEASE; NULL: there is no such gather. */
static struct gathering *gathering_of(const struct player *pl, int who, const struct instr *in)
{
	const int chunks = pl->in->chunks;
	if (!pl->in->gather || !(pl->in->alone || in_group(pl, who)) || in->chunk < 0 ||
	    in->chunk >= chunks || in->microbatch != -1 || in->part < 0 || in->part > 1)
		return NULL;
	return &pl->gather[(map_stage(&pl->map, who) * chunks + in->chunk) * 2 + in->part];
}

static int check_values(struct player *pl, int who, const struct instr *in, struct err *e)
{
	if (!gathering_of(pl, who, in))
		return player_refuse(pl, who, in, "there is no such gather", e);
	if (in->kind == INSTR_SEND_VALUES && pl->worker[who].asked == 2 * in->chunk + in->part)
		return player_refuse(pl, who, in, "twice", e);
	if (in->kind == INSTR_SEND_VALUES)
		pl->worker[who].asked = 2 * in->chunk + in->part;
	if (in->kind != INSTR_RELEASE)
		return 0;
	if (pl->worker[who].here != in->chunk)
		return player_refuse(pl, who, in, "its values are not here", e);
	pl->worker[who].here = NOTHING;
	return 0;
}

static double value_or_0(const double *v, int i) { return v ? v[i] : 0; }

/* How long the instruction occupies its worker, once it can begin; checks it. */
static int duration(struct player *pl, int who, const struct instr *in, double *s_p, struct err *e)
{
	const struct play *p = pl->in;
	struct play_worker *r = &pl->report[who];
	int at = who * p->chunks + in->chunk;

	switch (in->kind) {
	case INSTR_FORWARD:
	case INSTR_BACKWARD:
		TRY(compute(pl, who, in, e));
		*s_p = in->kind == INSTR_FORWARD ? p->forward_s[at] : p->backward_s[at];
		if (in->parts)
			*s_p /= in->parts;
		r->busy_s += *s_p;
		return 0;
	case INSTR_SEND_ACT:
	case INSTR_SEND_GRAD:
		pl->worker[who].sends = message_of(&pl->map, who, in);
		if (pl->worker[who].sends == NOTHING)
			return player_refuse(pl, who, in, "no such message", e);
		if ((in->kind == INSTR_SEND_ACT
			     ? pl->next_f
			     : pl->next_b)[in->chunk * pl->map.members + who] <= in->microbatch)
			return player_refuse(pl, who, in, "sent before it was computed", e);
		*s_p = value_or_0(p->send_s, who);
		r->copy_s += *s_p;
		return 0;
	case INSTR_RECV_ACT:
	case INSTR_RECV_GRAD:
		*s_p = value_or_0(p->recv_s, who);
		r->copy_s += *s_p;
		return 0;
	case INSTR_SEND_SUMS:
		*s_p = 0;
		return check_sums(pl, who, in, e);
	case INSTR_REDUCE:
	case INSTR_GATHER:
		*s_p = 0;
		return 0;
	case INSTR_SEND_VALUES:
	case INSTR_RELEASE:
		*s_p = 0;
		return check_values(pl, who, in, e);
	case INSTR_NORM:
		if (!all_computed(pl, who))
			return player_refuse(pl, who, in,
					     "a backward or a REDUCE is missing before it", e);
		if (!isnan(pl->worker[who].reduced))
			return player_refuse(pl, who, in, "twice", e);
		*s_p = value_or_0(p->norm_s, who);
		r->busy_s += *s_p;
		return 0;
	case INSTR_SEND_TIED_GRAD:
	case INSTR_RECV_TIED_GRAD:
	case INSTR_SEND_TIED_VALUE:
	case INSTR_RECV_TIED_VALUE:
		*s_p = 0;
		return check_tied(pl, who, in, e);
	case INSTR_STEP:
		*s_p = value_or_0(p->step_s, who);
		r->busy_s += *s_p;
		return 0;
	default:
		return player_refuse(pl, who, in, "unknown instruction", e);
	}
}

/* A RECV: true when the arrival of its message is known; then the worker has waited for it. */
static int receive(struct player *pl, int who, const struct instr *in, bool *there_p, struct err *e)
{
	struct worker *w = &pl->worker[who];
	long id = message_of(&pl->map, who, in);
	double from;

	if (id == NOTHING)
		return player_refuse(pl, who, in, "no such message", e);
	if (pl->taken[id])
		return player_refuse(pl, who, in, "received twice", e);
	*there_p = !isnan(pl->arrive[id]) && !(pl->events && pl->arrive[id] > w->now);
	if (!*there_p) {
		w->on = id;
		return 0;
	}
	w->on = NOTHING;
	if (!pl->events && pl->arrive[id] > w->now)
		w->now = pl->arrive[id];
	/* since: when the worker came to this instruction */
	from = pl->sent[id] > w->since ? pl->sent[id] : w->since;
	if (w->now > from)
		pl->report[who].wait_s += w->now - from;
	player_span(pl, who, in, w->since, w->now);
	pl->taken[id] = true;
	pl->taken_n++;
	return 0;
}

/* ---- sums over a group ---- */

/* When the sum ends: where there are several parts all that add something have sent it, else all
 * members are at REDUCE. */
static void end_sum(struct player *pl, int stage, struct sum *s)
{
	const struct play *p = pl->in;
	const int at = (int)(s - pl->sum) / parts(pl);
	double begin = s->handed > pl->sum_free[stage] ? s->handed : pl->sum_free[stage],
	       ahead = begin + value_or_0(p->scatter_s, at) / parts(pl);
	const bool late = parts(pl) == 1 && s->reached > ahead;
	s->from = late ? s->reached : begin;
	s->end = (late ? s->reached : ahead) + value_or_0(p->reduce_s, at) / parts(pl);
	pl->sum_free[stage] = s->end;
}

/* Members of a group that wait at REDUCE or GATHER for what ends at `end`. `who` is running. */
static void wake_group(struct player *pl, int stage, int who, double end)
{
	const int first = map_first(&pl->map, stage), n = map_size(&pl->map, stage);
	for (int k = first; k < first + n; k++) {
		if (!pl->worker[k].at_sum && !pl->worker[k].at_gather)
			continue;
		if (pl->events)
			events_push(&pl->queue, fmax(end, pl->worker[k].now), k, 0);
		else if (k != who)
			player_ready(pl, k);
	}
}

/* SEND_SUMS of one member. */
static void hand_sums(struct player *pl, int who, const struct instr *in)
{
	const int stage = map_stage(&pl->map, who), first = map_first(&pl->map, stage);
	struct sum *s = sum_of(pl, who, in);
	int senders = 0;
	s->handed = fmax(s->handed, pl->worker[who].now);
	s->sent++;
	for (int k = first; k < first + map_size(&pl->map, stage); k++)
		senders += pl->map.begin[k] != pl->in->microbatches;
	if (parts(pl) == 1 || s->sent < senders)
		return;
	end_sum(pl, stage, s);
	wake_group(pl, stage, who, s->end);
}

static int check_reduce(struct player *pl, int who, const struct instr *in, struct err *e)
{
	if (!in_group(pl, who) || !sum_exists(pl, in))
		return player_refuse(pl, who, in, "there is no such sum", e);
	const unsigned char state = *sum_state(pl, who, in);
	if (state == SUM_DONE)
		return player_refuse(pl, who, in, "twice", e);
	return state == SUM_SENT || pl->map.begin[who] == pl->in->microbatches
		       ? 0
		       : player_refuse(pl, who, in, "before SEND_SUMS", e);
}

/* A REDUCE: true when the sum is there; then the worker has waited for it. */
static int reduce(struct player *pl, int who, const struct instr *in, bool *there_p, struct err *e)
{
	const int stage = map_stage(&pl->map, who);
	struct worker *w = &pl->worker[who];

	*there_p = false;
	if (!w->at_sum)
		TRY(check_reduce(pl, who, in, e));
	struct sum *s = sum_of(pl, who, in);
	if (!w->at_sum) {
		w->at_sum = true;
		s->reached = w->now > s->reached ? w->now : s->reached;
		if (++s->there == map_size(&pl->map, stage) && parts(pl) == 1) {
			end_sum(pl, stage, s);
			wake_group(pl, stage, who, s->end);
		} else if (pl->events && s->end > w->now) {
			events_push(&pl->queue, s->end, who, 0);
		}
	}
	if (isnan(s->end) || (pl->events && s->end > w->now))
		return 0;
	if (s->end > w->now)
		w->now = s->end;
	double from = s->from > w->since ? s->from : w->since;
	if (w->now > from)
		pl->report[who].wait_s += w->now - from;
	player_span(pl, who, in, w->since, w->now);
	*sum_state(pl, who, in) = SUM_DONE;
	w->at_sum = false;
	w->sums++;
	*there_p = true;
	return 0;
}

/* ---- values of a group ---- */

/* SEND_VALUES of one member. With the last one the gather begins. */
static void hand_values(struct player *pl, int who, const struct instr *in)
{
	const int stage = map_stage(&pl->map, who), n = map_size(&pl->map, stage);
	struct gathering *g = gathering_of(pl, who, in);
	g->handed = fmax(g->handed, pl->worker[who].now);
	if (++g->there < n)
		return;
	g->from = fmax(g->handed, pl->sum_free[stage]);
	g->end = g->from + value_or_0(pl->in->gather_s, stage * pl->in->chunks + in->chunk);
	pl->sum_free[stage] = g->end;
	wake_group(pl, stage, who, g->end);
}

/* A GATHER: true when the values are there; then the worker has waited for them. */
static int gather(struct player *pl, int who, const struct instr *in, bool *there_p, struct err *e)
{
	struct worker *w = &pl->worker[who];
	struct gathering *g = gathering_of(pl, who, in);

	*there_p = false;
	if (!g)
		return player_refuse(pl, who, in, "there is no such gather", e);
	if (w->here != NOTHING)
		return player_refuse(pl, who, in, "the chunk before it was not released", e);
	w->at_gather = true;
	if (isnan(g->end))
		return 0;
	if (pl->events && g->end > w->now) {
		events_push(&pl->queue, g->end, who, 0);
		return 0;
	}
	if (g->end > w->now)
		w->now = g->end;
	double from = g->from > w->since ? g->from : w->since;
	if (w->now > from)
		pl->report[who].wait_s += w->now - from;
	player_span(pl, who, in, w->since, w->now);
	w->at_gather = false;
	w->here = in->chunk;
	*there_p = true;
	return 0;
}

/* The effect of an instruction, when its time has passed. */
static int effect(struct player *pl, int who, const struct instr *in, struct err *e)
{
	struct worker *w = &pl->worker[who];

	if (instr_sends(in->kind))
		return play_link_transmit(pl, who, in, e);
	if (in->kind == INSTR_STEP)
		w->stepped = true;
	if (in->kind == INSTR_SEND_VALUES)
		hand_values(pl, who, in);
	if (in->kind == INSTR_SEND_SUMS)
		hand_sums(pl, who, in);
	if (in->kind == INSTR_NORM) {
		w->reduced = w->now;
		if (w->now > pl->reduced_s)
			pl->reduced_s = w->now;
		if (++pl->reduced_n < pl->map.members)
			return 0;
		for (int k = 0; k < pl->map.members; k++) {
			if (!pl->worker[k].at_step)
				continue;
			if (pl->events)
				events_push(&pl->queue, pl->reduced_s + pl->in->barrier_s, k, 0);
			else
				player_ready(pl, k);
		}
	}
	return 0;
}

/* Advances one worker as far as possible: in flow mode until it is blocked, in event mode until its
 * instruction takes time. */
static int run(struct player *pl, int who, struct err *e)
{
	struct worker *w = &pl->worker[who];
	const struct instr_list *l = &pl->now_list[who];

	while (w->pc < l->n) {
		const struct instr *in = &l->item[w->pc];
		double s = 0;

		if (w->delivered) {
			w->delivered = false;
			TRY(effect(pl, who, in, e));
			w->pc++;
			w->since = w->now;
			continue;
		}
		if (w->stepped && !message_is_tied(in->kind))
			return player_refuse(pl, who, in, "behind STEP", e);
		if (instr_receives(in->kind)) {
			bool there = false;
			TRY(receive(pl, who, in, &there, e));
			if (!there)
				return 0;
		}
		if (in->kind == INSTR_REDUCE || in->kind == INSTR_GATHER) {
			bool there = false;
			TRY(in->kind == INSTR_REDUCE ? reduce(pl, who, in, &there, e)
						     : gather(pl, who, in, &there, e));
			if (!there)
				return 0;
		}
		if (in->kind == INSTR_STEP) {
			double at = pl->reduced_s + pl->in->barrier_s;
			if (isnan(w->reduced))
				return player_refuse(pl, who, in, "before NORM", e);
			w->at_step = true;
			if (pl->reduced_n < pl->map.members)
				return 0;
			if (pl->events && at > w->now) {
				events_push(&pl->queue, at, who, 0);
				return 0;
			}
			if (at > w->now)
				w->now = at;
			w->at_step = false;
		}
		TRY(duration(pl, who, in, &s, e));
		if (!instr_receives(in->kind) && !instr_sends(in->kind) &&
		    in->kind != INSTR_REDUCE && in->kind != INSTR_GATHER)
			player_span(pl, who, in, w->now, w->now + s);
		w->delivered = true;
		if (pl->events && s > 0) {
			events_push(&pl->queue, w->now + s, who, 0);
			w->now += s;
			return 0;
		}
		w->now += s;
	}
	return 0;
}

static int play_flow(struct player *pl, struct err *e)
{
	for (int s = pl->map.members - 1; s >= 0; s--)
		player_ready(pl, s);
	while (pl->ready_n > 0) {
		int s = pl->ready[--pl->ready_n];
		pl->worker[s].on = NOTHING;
		pl->worker[s].ready = false;
		TRY(run(pl, s, e));
	}
	return 0;
}

static int play_events(struct player *pl, struct err *e)
{
	for (int s = 0; s < pl->map.members; s++)
		events_push(&pl->queue, 0, s, 0);
	while (pl->queue.n > 0) {
		struct event ev = events_pop(&pl->queue);
		struct worker *w;

		if (pl->queue.nomem)
			return err_set(e, ERR_NOMEM, "out of memory for the player");
		if (ev.who >= pl->map.members) {
			int route = ev.who - pl->map.members;
			if (pl->route[route].version == ev.version &&
			    pl->route[route].head != NOTHING)
				play_link_end(pl, route, ev.at);
			continue;
		}
		w = &pl->worker[ev.who];
		if (w->pc == pl->now_list[ev.who].n)
			continue;
		/* a message arrived while the worker computes: it checks when it needs
		 * the message */
		if (ev.at < w->now)
			continue;
		/* Only the end of its instruction, at exactly `now`, wakes a worker that is
		 * inside one. */
		if (w->delivered && ev.at > w->now)
			continue;
		w->now = ev.at;
		TRY(run(pl, ev.who, e));
	}
	return 0;
}

/* When nothing can advance any more: checks that every list has ended, and that everything was
 * computed and received. */
static int check_complete(struct player *pl, struct err *e)
{
	for (int k = 0; k < pl->map.members; k++) {
		const struct worker *w = &pl->worker[k];
		const struct instr_list *l = &pl->now_list[k];

		if (w->pc < l->n)
			return player_refuse(pl, k, &l->item[w->pc], "its input never arrives", e);
		if (w->here != NOTHING)
			return err_set(e, ERR_INTERNAL,
				       "schedule: stage %d, place %d does not release chunk %d",
				       map_stage(&pl->map, k), map_place(&pl->map, k), w->here);
		if (!w->stepped)
			return err_set(e, ERR_INTERNAL,
				       "schedule: stage %d, place %d does not end with STEP",
				       map_stage(&pl->map, k), map_place(&pl->map, k));
	}
	if (pl->sent_n != pl->taken_n)
		return err_set(e, ERR_INTERNAL, "schedule: %ld messages sent, %ld received",
			       pl->sent_n, pl->taken_n);
	if (pl->taken_n != messages_due(&pl->map))
		return err_set(e, ERR_INTERNAL, "schedule: %ld messages, should be %ld",
			       pl->taken_n, messages_due(&pl->map));
	return 0;
}

int sched_play_lists(struct player *pl, const struct instr_list *list, const struct play *in,
		     bool spans, struct play_result *out, struct err *e)
{
	double step = 0;

	TRY(player_shape(pl, in, e));
	TRY(player_reserve(pl, in, e));
	pl->in = in;
	pl->now_list = list;
	pl->want_spans = spans;
	pl->nomem = pl->queue.nomem = false;
	pl->queue.n = pl->ready_n = pl->spans = 0;
	pl->taken_n = pl->sent_n = 0;
	pl->reduced_n = 0;
	pl->reduced_s = 0;
	TRY(play_link_lay(pl, in, e));
	TRY(pl->events ? play_events(pl, e) : play_flow(pl, e));
	if (pl->nomem)
		return err_set(e, ERR_NOMEM, "out of memory for the player's timeline");
	TRY(check_complete(pl, e));
	for (int k = 0; k < pl->map.members; k++)
		if (pl->worker[k].now > step)
			step = pl->worker[k].now;
	for (int k = 0; k < pl->map.members; k++) {
		struct play_worker *r = &pl->report[k];
		r->end_s = pl->worker[k].now;
		r->bubble_s = step - r->busy_s - r->copy_s - r->wait_s;
		if (r->bubble_s < 0)
			r->bubble_s = 0;
	}
	*out = (struct play_result){ step, pl->report, pl->map.members, pl->span, pl->spans };
	return 0;
}

int sched_play(struct player *pl, const struct sched *s, const struct play *in, bool spans,
	       struct play_result *out, struct err *e)
{
	TRY(player_shape(pl, in, e));
	TRY(player_lists(pl, s, in, e));
	return sched_play_lists(pl, pl->list, in, spans, out, e);
}
