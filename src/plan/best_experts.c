/* SPDX-License-Identifier: Apache-2.0 */
/* best_experts.c - plans in which one device has all layers without their experts, and others have
 * the experts (experts.h): looked at beside what `best` has found.
 *
 * The candidates: every device as the home; the others by the speed of their experts, as many of
 * them as are of use; every number of experts that stays at home, in steps; the rest are dealt so
 * that all others take equally long. Each is simulated. */
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

/* The first `kept` experts stay at home; the others go to n members by speed. */
static void deal(const struct search *s, int m, int kept, int n, uint8_t *place)
{
	double speed[OTHERS + 1] = { 0 };
	memset(place, 0, (size_t)kept);
	for (int k = 0; k < n; k++)
		speed[k + 1] = 1 / expert_ms(s->p, s->order[k], m);
	deal_by_speed(kept, s->p->experts, speed, n + 1, place);
}

static int make(const struct search *s, int home, int m, int kept, int n, struct plan *out,
		struct err *e)
{
	uint8_t place[PROFILE_MAX_EXPERTS];
	const struct plan_stage from = { .deal = place, .experts = s->p->experts, .homes = 1 };
	*out = (struct plan){ .mem = ARENA_INIT,
			      .planner = s->best->planner,
			      .sched = &sched_zebra,
			      .order = s->best->order,
			      .microbatch = m,
			      .microbatches = s->p->global_batch / m,
			      .predicted_ms = NAN,
			      .objective_ms = NAN,
			      .over_device = -1 };
	deal(s, m, kept, n, place);
	TRY(plan_alloc(out, 1, 1, e));
	TRY(plan_stage_members(out, 0, n + 1, e));
	out->first[1] = s->p->layers;
	for (int k = 0; k <= n; k++)
		out->stage[0].member[k] = (struct plan_member){
			.device = k ? s->order[k - 1] : home,
			.microbatch = m,
			.microbatches = k ? 0 : out->microbatches,
			.share = k ? 0 : 1,
			.state_share = 1,
		};
	TRY(plan_deal_experts(out, 0, &from, e));
	TRY(plan_check(s->p, out, e));
	return plan_simulate(s->p, s->o, out, e);
}

/* Milliseconds that one side computes at least. */
static double bound(const struct search *s, int home, int m, int kept, int n)
{
	const struct profile_device *d = &s->p->device[home];
	const int experts = s->p->experts;
	const double own = expert_ms(s->p, home, m),
		     rest = curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m) - own;
	double speed = 0;
	for (int k = 0; k < n; k++)
		speed += 1 / expert_ms(s->p, s->order[k], m);
	/* whole experts: a little less than an even deal */
	const double there = fmax(0, (double)(experts - kept - n) / experts / speed);
	return (double)s->p->layers * (s->p->global_batch / m) *
	       fmax(rest + own * kept / experts, there);
}

/* Keeps the faster one of two plans. */
static int try_one(struct search *s, int home, int m, int kept, int n, struct err *e)
{
	struct plan v;
	if (s->best->fits && bound(s, home, m, kept, n) >= s->best->simulated_ms)
		return 0;
	int rc = make(s, home, m, kept, n, &v, e);
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
	if (!plan_knows_experts(p) || p->devices < 2 || o->pass || !o->groups || o->must_use >= 0 ||
	    o->recompute == PLAN_RECOMPUTE_ALWAYS || (o->sched && !o->sched->turns) ||
	    p->experts > PROFILE_MAX_EXPERTS)
		return 0;
	s.order = mem_array((size_t)p->devices, sizeof *s.order);
	if (!s.order)
		return err_set(e, ERR_NOMEM, "out of memory for a plan");
	const int sizes = cost_microbatches(p, o, size, SIZES);
	const int step = p->experts > 2 * STEPS ? p->experts / (2 * STEPS) : 1;
	for (int z = 0; z < sizes && rc >= 0; z++)
		for (int home = 0; home < p->devices && rc >= 0; home++) {
			sort_others(&s, home, size[z]);
			for (int n = 1; n <= s.others && n <= OTHERS && rc >= 0; n++)
				for (int kept = 0; kept < p->experts && rc >= 0; kept += step)
					rc = try_one(&s, home, size[z], kept, n, e);
		}
	mem_free(s.order);
	return rc;
}
