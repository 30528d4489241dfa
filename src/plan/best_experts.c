/* SPDX-License-Identifier: Apache-2.0 */
/* best_experts.c - plans in which one device has all layers without their experts, and others have
 * the experts (experts.h): looked at beside what `best` has found.
 *
 * The candidates: every device as the home; the others by the speed of their experts, as many of
 * them as are of use; every number of experts that stays at home, in steps, or all of those of the
 * first layers; the rest are dealt so that all others take equally long, by what was measured of
 * routing; two microbatches in turn, or all of them (gpipe), which waits less and keeps more. Each
 * that can be faster than the best is simulated. */
#include "plan/experts.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/deal.h"

#include <math.h>
#include <string.h>

enum { STEPS = 8, SIZES = 32, OTHERS = 8 };

struct search {
	const struct profile *p;
	const struct plan_options *o;
	struct plan *best;
	int *order; /* the devices beside the home, fastest first */
	int others;
};

static double expert_ms(const struct profile *p, int device, int m)
{
	const struct profile_device *d = &p->device[device];
	return curve_at(&d->experts_forward_ms, m) + curve_at(&d->experts_backward_ms, m);
}

/* A candidate. */
struct deal {
	const struct sched *sched;
	int home, m, others;
	int kept;       /* experts of a layer that stay at home */
	int whole;      /* layers, the first ones, that stay at home with all experts */
	uint8_t *place; /* [layers * experts] */
};

/* The first `kept` experts stay at home; the others go to the other devices by speed. */
static void fill_deal(const struct search *s, const struct deal *d)
{
	double speed[OTHERS + 1] = { 0 };
	const struct profile *p = s->p;
	for (int k = 0; k < d->others; k++)
		speed[k + 1] = 1 / expert_ms(p, s->order[k], d->m);
	for (int l = 0; l < p->layers; l++) {
		uint8_t *place = d->place + (size_t)l * (size_t)p->experts;
		const int kept = l < d->whole ? p->experts : d->kept;
		memset(place, 0, (size_t)kept);
		if (kept < p->experts)
			deal_by_speed(kept, p->experts,
				      p->routing ? p->routing + l * p->experts : NULL, speed,
				      d->others + 1, place);
	}
}

static int make(const struct search *s, const struct deal *d, struct plan *out, struct err *e)
{
	const struct plan_stage from = { .deal = d->place, .experts = s->p->experts, .homes = 1 };
	*out = (struct plan){ .mem = ARENA_INIT,
			      .planner = s->best->planner,
			      .sched = d->sched,
			      .order = s->best->order,
			      .microbatch = d->m,
			      .microbatches = s->p->global_batch / d->m,
			      .predicted_ms = NAN,
			      .objective_ms = NAN,
			      .over_device = -1 };
	TRY(plan_alloc(out, 1, 1, e));
	TRY(plan_stage_members(out, 0, d->others + 1, e));
	out->first[1] = s->p->layers;
	for (int k = 0; k <= d->others; k++)
		out->stage[0].member[k] = (struct plan_member){
			.device = k ? s->order[k - 1] : d->home,
			.microbatch = d->m,
			.microbatches = k ? 0 : out->microbatches,
			.share = k ? 0 : 1,
			.state_share = 1,
		};
	TRY(plan_deal_experts(out, 0, &from, e));
	TRY(plan_check(s->p, out, e));
	return plan_simulate(s->p, s->o, out, e);
}

/* Milliseconds of the rest of the layers, of a whole batch. */
static double rest_ms(const struct search *s, const struct deal *d)
{
	const struct profile *p = s->p;
	const struct profile_device *h = &p->device[d->home];
	const double all = curve_at(&h->forward_ms, d->m) + curve_at(&h->backward_ms, d->m);
	return p->global_batch / d->m * p->layers * (all - expert_ms(p, d->home, d->m));
}

/* Milliseconds that one side computes at least. */
static double bound(const struct search *s, const struct deal *d)
{
	const struct profile *p = s->p;
	double load[OTHERS + 1] = { 0 }, most = 0;
	for (int i = 0; i < p->layers * p->experts; i++)
		load[d->place[i]] += profile_expert_load(p, i / p->experts, i % p->experts);
	for (int k = 0; k < d->others; k++)
		most = fmax(most, load[k + 1] * expert_ms(p, s->order[k], d->m));
	const int passes = p->global_batch / d->m;
	return fmax(passes * most, rest_ms(s, d) + passes * load[0] * expert_ms(p, d->home, d->m));
}

/* Keeps the faster one of two plans. */
static int try_order(struct search *s, const struct deal *d, struct err *e)
{
	struct plan v;
	int rc = make(s, d, &v, e);
	if (rc < 0 || !v.fits || (s->best->fits && !(v.simulated_ms < s->best->simulated_ms))) {
		plan_release(&v);
		return rc;
	}
	v.predicted_ms = v.simulated_ms;
	v.search_ms = s->best->search_ms;
	v.examined = s->best->examined;
	plan_release(s->best);
	*s->best = v;
	return 0;
}

static int try_one(struct search *s, struct deal *d, struct err *e)
{
	static const struct sched *const order[] = { &sched_zebra, &sched_gpipe };
	fill_deal(s, d);
	if (s->best->fits && bound(s, d) >= s->best->simulated_ms)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		d->sched = s->o->sched ? s->o->sched : order[i];
		if (!s->o->sched || i == 0)
			TRY(try_order(s, d, e));
	}
	return 0;
}

/* What stays at home. */
static int try_all(struct search *s, struct deal *d, struct err *e)
{
	const int experts = s->p->experts, layers = s->p->layers,
		  step = experts > 2 * STEPS ? experts / (2 * STEPS) : 1,
		  stride = layers > STEPS ? layers / STEPS : 1;
	d->whole = 0;
	for (d->kept = 0; d->kept < experts; d->kept += step)
		TRY(try_one(s, d, e));
	d->kept = 0;
	for (d->whole = stride; d->whole < layers; d->whole += stride)
		TRY(try_one(s, d, e));
	return 0;
}

static void sort_others(struct search *s, int home, int m)
{
	s->others = 0;
	for (int i = 0; i < s->p->devices; i++) {
		int at = s->others;
		if (i == home)
			continue;
		for (; at > 0 && expert_ms(s->p, s->order[at - 1], m) > expert_ms(s->p, i, m); at--)
			s->order[at] = s->order[at - 1];
		s->order[at] = i;
		s->others++;
	}
}

int plan_try_experts(const struct profile *p, const struct plan_options *o, struct plan *best,
		     struct err *e)
{
	int size[SIZES], rc = 0;
	struct search s = { .p = p, .o = o, .best = best };
	struct deal d = { 0 };
	if (!plan_knows_experts(p) || p->devices < 2 || o->pass || !o->groups || o->must_use >= 0 ||
	    o->recompute == PLAN_RECOMPUTE_ALWAYS || (o->sched && !o->sched->turns) ||
	    p->experts > PROFILE_MAX_EXPERTS)
		return 0;
	s.order = mem_array((size_t)p->devices, sizeof *s.order);
	if (!s.order)
		return err_set(e, ERR_NOMEM, "out of memory for a plan");
	d.place = mem_array((size_t)p->layers, (size_t)p->experts);
	if (!d.place)
		rc = err_set(e, ERR_NOMEM, "out of memory for a plan");
	const int sizes = cost_microbatches(p, o, size, SIZES);
	for (int z = 0; z < sizes; z++)
		for (d.home = 0; d.home < p->devices; d.home++) {
			d.m = size[z];
			if (best->fits && rest_ms(&s, &d) >= best->simulated_ms)
				continue;
			sort_others(&s, d.home, d.m);
			for (d.others = 1; d.others <= s.others && d.others <= OTHERS && rc >= 0;
			     d.others++)
				rc = try_all(&s, &d, e);
		}
	mem_free(d.place);
	mem_free(s.order);
	return rc;
}
