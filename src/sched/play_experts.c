/* SPDX-License-Identifier: Apache-2.0 */
/* play_experts.c - see play_experts.h. */
#include "sched/play_experts.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

struct actor {
	struct instr_list list;
	size_t pc;
	int stage, place;
	double now;
	bool counted; /* among those at the sum */
};

struct stage_state {
	int first, homes, places, layers; /* layers 0: its experts are not dealt */
	double *rows;                     /* arrivals; NaN: not yet */
	int *by;                          /* [microbatches] the home of each */
	int at_sum;
	double summed; /* the last home came to the sum */
};

struct run {
	const struct sched *s;
	const struct expert_play *p;
	struct actor *actor;
	struct stage_state *stage;
	int members, at_step, layers; /* the most of a stage whose experts are dealt */
	double *across; /* arrivals of activations and gradients: [2 * stages * microbatches] */
	double *free;   /* [members * members] a way is free from this time on */
	double normed;
	double *busy;
};

static int homes_of(const struct sched_shape *h, int stage)
{
	return h->members ? h->members[stage] : 1;
}

static int places_of(const struct sched_shape *h, int stage)
{
	return h->experts && h->experts[stage].layers ? h->experts[stage].places
						      : homes_of(h, stage);
}

int expert_play_members(const struct sched_shape *h)
{
	int n = 0;
	for (int s = 0; s < h->stages; s++)
		n += places_of(h, s);
	return n;
}

static void no_arrivals(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = NAN;
}

static int make_stage(struct run *r, int s, int first, struct err *e)
{
	const struct sched_shape *h = &r->p->shape;
	struct stage_state *v = &r->stage[s];
	*v = (struct stage_state){ .first = first,
				   .homes = homes_of(h, s),
				   .places = places_of(h, s) };
	v->layers = h->experts ? h->experts[s].layers : 0;
	r->layers = v->layers > r->layers ? v->layers : r->layers;
	const size_t n = 4 * (size_t)v->layers * (size_t)h->microbatches * (size_t)v->places;
	v->rows = mem_array(n + 1, sizeof *v->rows);
	if (!v->rows)
		return err_nomem(e, n * sizeof *v->rows, "the player");
	no_arrivals(v->rows, n);
	v->by = mem_array((size_t)h->microbatches, sizeof *v->by);
	if (!v->by)
		return err_nomem(e, (size_t)h->microbatches * sizeof *v->by, "the player");
	const int *share = h->members ? h->share : NULL;
	for (int k = 0; share && k < s; k++)
		share += homes_of(h, k);
	sched_deal(share, v->homes, h->microbatches, v->by);
	for (int k = 0; k < v->places; k++) {
		struct actor *a = &r->actor[first + k];
		a->stage = s;
		a->place = k;
		TRY(sched_build(r->s, h, s, k, &a->list, e));
	}
	return 0;
}

static int make(struct run *r, struct err *e)
{
	const struct sched_shape *h = &r->p->shape;
	const size_t n = (size_t)(r->members = expert_play_members(h)),
		     all = 2 * (size_t)h->stages * (size_t)h->microbatches;
	r->actor = mem_array(n, sizeof *r->actor);
	r->stage = mem_array((size_t)h->stages, sizeof *r->stage);
	r->across = mem_array(all, sizeof *r->across);
	r->free = mem_array(n * n, sizeof *r->free);
	if (!r->actor || !r->stage || !r->across || !r->free)
		return err_nomem(e, n * n * sizeof *r->free, "the player");
	no_arrivals(r->across, all);
	for (int s = 0, first = 0; s < h->stages; s++) {
		TRY(make_stage(r, s, first, e));
		first += r->stage[s].places;
	}
	return 0;
}

static void release(struct run *r)
{
	for (int i = 0; r->actor && i < r->members; i++)
		instr_list_release(&r->actor[i].list);
	for (int s = 0; r->stage && s < r->p->shape.stages; s++) {
		mem_free(r->stage[s].rows);
		mem_free(r->stage[s].by);
	}
	mem_free(r->actor);
	mem_free(r->stage);
	mem_free(r->across);
	mem_free(r->free);
}

static bool is_rows(enum instr_kind k)
{
	return k == INSTR_SEND_ROWS || k == INSTR_RECV_ROWS || k == INSTR_SEND_ROW_GRADS ||
	       k == INSTR_RECV_ROW_GRADS;
}

/* Where the arrival of a message is noted. Rows are named by the member with the experts. */
static double *arrival(struct run *r, const struct actor *a, const struct instr *i)
{
	const struct sched_shape *h = &r->p->shape;
	if (is_rows(i->kind)) {
		struct stage_state *v = &r->stage[a->stage];
		const bool back = i->kind == INSTR_SEND_ROW_GRADS ||
				  i->kind == INSTR_RECV_ROW_GRADS,
			   sends = instr_sends(i->kind), at_home = a->place == v->by[i->microbatch];
		const int place = at_home ? i->place : a->place, out = sends == at_home;
		return &v->rows[((size_t)(i->part * h->microbatches + i->microbatch) *
					 (size_t)v->places +
				 (size_t)place) *
					4 +
				(size_t)(2 * back + out)];
	}
	const bool act = i->kind == INSTR_SEND_ACT || i->kind == INSTR_RECV_ACT;
	const int to = instr_sends(i->kind) ? i->peer : a->stage;
	return &r->across[((size_t)!act * (size_t)h->stages + (size_t)to) *
				  (size_t)h->microbatches +
			  (size_t)i->microbatch];
}

static int other_end(const struct run *r, const struct actor *a, const struct instr *i)
{
	return r->stage[is_rows(i->kind) ? a->stage : i->peer].first + i->place;
}

/* Of rows, the member that has the experts. */
static const struct expert_member *expert_end(const struct run *r, const struct actor *a,
					      const struct instr *i)
{
	const bool at_home = a->place == r->stage[a->stage].by[i->microbatch];
	return &r->p->member[at_home ? other_end(r, a, i) : (int)(a - r->actor)];
}

/* The factor on what a member has of a layer's experts. */
static double share_of(const struct run *r, const struct expert_member *m, const struct instr *i)
{
	const struct expert_play *p = r->p;
	return p->share ? p->share[(m - p->member) * r->layers + i->part] : 1;
}

static void send(struct run *r, struct actor *a, const struct instr *i)
{
	const struct expert_play *p = r->p;
	const int to = other_end(r, a, i), from = (int)(a - r->actor);
	const size_t way = (size_t)from * (size_t)r->members + (size_t)to;
	double bytes = p->act_bytes, *at = arrival(r, a, i);
	if (is_rows(i->kind)) {
		const struct expert_member *m = expert_end(r, a, i);
		bytes = m->row_bytes * share_of(r, m, i);
		a->now += m->copy_s * share_of(r, m, i);
	}
	if (!p->bytes_per_s) {
		*at = a->now;
		return;
	}
	const double begin = fmax(a->now, r->free[way]);
	r->free[way] = begin + bytes / p->bytes_per_s[way];
	*at = r->free[way] + p->latency_s[way];
}

static double duration(const struct run *r, const struct actor *a, const struct instr *i)
{
	const struct expert_member *m = &r->p->member[a - r->actor];
	switch (i->kind) {
	case INSTR_FORWARD:
		return m->forward_s;
	case INSTR_BACKWARD: /* of a dealt stage it is the last part, which has all of it */
		return m->backward_s / (i->parts && !r->stage[a->stage].layers ? i->parts : 1);
	case INSTR_ROUTE:
		return m->route_s;
	case INSTR_BACK_ROUTE:
		return m->back_route_s;
	case INSTR_EXPERTS:
		return m->experts_s * share_of(r, m, i);
	case INSTR_BACK_EXPERTS:
		return m->back_experts_s * share_of(r, m, i);
	case INSTR_STEP:
		return m->step_s;
	default:
		return 0;
	}
}

/* The sum over homes: true when all are there. */
static bool reduced(struct run *r, struct actor *a)
{
	struct stage_state *v = &r->stage[a->stage];
	if (!a->counted) {
		a->counted = true;
		v->at_sum++;
		v->summed = fmax(v->summed, a->now);
	}
	if (v->at_sum < v->homes)
		return false;
	a->now = fmax(a->now, v->summed + (r->p->sum_s ? r->p->sum_s[a->stage] : 0));
	return true;
}

/* One instruction; false: it has to wait for another member. */
static bool advance(struct run *r, struct actor *a)
{
	const struct instr *i = &a->list.item[a->pc];
	if (instr_receives(i->kind)) {
		const double at = *arrival(r, a, i);
		if (isnan(at))
			return false;
		a->now = fmax(a->now, at);
		if (is_rows(i->kind))
			a->now += expert_end(r, a, i)->copy_s * share_of(r, expert_end(r, a, i), i);
	} else if (instr_sends(i->kind)) {
		send(r, a, i);
	} else if (i->kind == INSTR_REDUCE) {
		if (!reduced(r, a))
			return false;
	} else if (i->kind == INSTR_NORM) {
		r->normed = fmax(r->normed, a->now);
		r->at_step++;
	} else if (i->kind == INSTR_STEP && r->at_step < r->members) {
		return false;
	} else {
		if (i->kind == INSTR_STEP)
			a->now = fmax(a->now, r->normed + r->p->barrier_s);
		const double s = duration(r, a, i);
		if (r->p->span && s > 0)
			r->p->span(r->p->ctx, (int)(a - r->actor), i, a->now, a->now + s);
		a->now += s;
		r->busy[a - r->actor] += s;
	}
	a->pc++;
	return true;
}

static int play(struct run *r, struct err *e)
{
	for (bool moved = true; moved;) {
		moved = false;
		for (int k = 0; k < r->members; k++)
			while (r->actor[k].pc < r->actor[k].list.n && advance(r, &r->actor[k]))
				moved = true;
	}
	for (int k = 0; k < r->members; k++) {
		const struct actor *a = &r->actor[k];
		if (a->pc < a->list.n)
			return err_set(e, ERR_INTERNAL,
				       "schedule %s: stage %d, place %d, instruction %zu (%s, "
				       "microbatch %d): its input never arrives",
				       r->s->name, a->stage, a->place, a->pc,
				       instr_name(a->list.item[a->pc].kind),
				       a->list.item[a->pc].microbatch);
	}
	return 0;
}

int expert_play_run(const struct sched *s, const struct expert_play *p, struct expert_played *out,
		    struct err *e)
{
	struct run r = { .s = s, .p = p, .busy = out->busy_s };
	int rc = make(&r, e);
	for (int k = 0; k < r.members; k++)
		out->busy_s[k] = 0;
	if (rc >= 0)
		rc = play(&r, e);
	out->step_s = 0;
	for (int k = 0; rc >= 0 && k < r.members; k++)
		out->step_s = fmax(out->step_s, r.actor[k].now);
	release(&r);
	return rc;
}
