/* SPDX-License-Identifier: Apache-2.0 */
/* best_experts.c - plans in which devices have layers without their experts, and others have the
 * experts (experts.h): looked at beside what `best` has found.
 *
 * The candidates: every device as the home of all layers, the others by the speed of their experts,
 * as many of them as are of use; and stages, whose homes are the devices that are fastest at the
 * rest of a layer and have layers by this speed, while the others go one by one to the stage that
 * has the least of them. Of these every number of experts that stays at home, in steps, or all of
 * those of the first layers; the rest are dealt so that all others take equally long, by what was
 * measured of routing; two microbatches in turn, or all of them (gpipe), which waits less and keeps
 * more. Each that can be faster than the best is simulated. */
#include "plan/experts.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/deal.h"

#include <math.h>
#include <string.h>

enum { STEPS = 8, SIZES = 32, OTHERS = 8, SIDES = 4 };

/* A stage: its home, its layers, and who has their experts. */
struct side {
	int home, from, to;
	int others, other[OTHERS];
};

/* A candidate. */
struct deal {
	const struct sched *sched;
	int m, sides;
	struct side side[SIDES];
	int kept;       /* experts of a layer that stay at home */
	int whole;      /* layers, the first ones, that stay at home with all experts */
	uint8_t *place; /* [layers * experts] */
};

struct search {
	const struct profile *p;
	const struct plan_options *o;
	struct plan *best;
	int *order; /* [devices] */
};

static double expert_ms(const struct profile *p, int device, int m)
{
	const struct profile_device *d = &p->device[device];
	return curve_at(&d->experts_forward_ms, m) + curve_at(&d->experts_backward_ms, m);
}

/* Of a layer, what is not experts. */
static double rest_ms(const struct profile *p, int device, int m)
{
	const struct profile_device *d = &p->device[device];
	return fmax(0, curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m) -
			       expert_ms(p, device, m));
}

/* The first `kept` experts stay at home; the others go to the other devices by speed. */
static void fill_deal(const struct search *s, const struct deal *d)
{
	const struct profile *p = s->p;
	for (int i = 0; i < d->sides; i++) {
		const struct side *v = &d->side[i];
		double speed[OTHERS + 1] = { 0 };
		for (int k = 0; k < v->others; k++)
			speed[k + 1] = 1 / expert_ms(p, v->other[k], d->m);
		for (int l = v->from; l < v->to; l++) {
			uint8_t *place = d->place + (size_t)l * (size_t)p->experts;
			const int kept = l < d->whole ? p->experts : d->kept;
			memset(place, 0, (size_t)kept);
			if (kept < p->experts)
				deal_by_speed(kept, p->experts,
					      p->routing ? p->routing + l * p->experts : NULL,
					      speed, v->others + 1, place);
		}
	}
}

static int make_side(const struct search *s, const struct deal *d, int i, struct plan *out,
		     struct err *e)
{
	const struct side *v = &d->side[i];
	const struct plan_stage from = { .deal = d->place + v->from * s->p->experts,
					 .experts = s->p->experts,
					 .homes = 1 };
	TRY(plan_stage_members(out, i, v->others + 1, e));
	for (int k = 0; k <= v->others; k++)
		out->stage[i].member[k] = (struct plan_member){
			.device = k ? v->other[k - 1] : v->home,
			.microbatch = d->m,
			.microbatches = k ? 0 : out->microbatches,
			.share = k ? 0 : 1,
			.state_share = 1,
		};
	out->first[i + 1] = v->to;
	return plan_deal_experts(out, i, &from, e);
}

static int make(const struct search *s, const struct deal *d, struct plan *out, struct err *e)
{
	*out = (struct plan){ .mem = ARENA_INIT,
			      .planner = s->best->planner,
			      .sched = d->sched,
			      .order = s->best->order,
			      .microbatch = d->m,
			      .microbatches = s->p->global_batch / d->m,
			      .predicted_ms = NAN,
			      .objective_ms = NAN,
			      .over_device = -1 };
	TRY(plan_alloc(out, d->sides, 1, e));
	for (int i = 0; i < d->sides; i++)
		TRY(make_side(s, d, i, out, e));
	TRY(plan_check(s->p, out, e));
	return plan_simulate(s->p, s->o, out, e);
}

/* Milliseconds that a member of a stage computes at least, for one microbatch. Infinite where a
 * member has nothing. */
static double bound_of(const struct search *s, const struct deal *d, const struct side *v)
{
	const struct profile *p = s->p;
	double load[OTHERS + 1] = { 0 }, most;
	int has[OTHERS + 1] = { 0 };
	for (int i = v->from * p->experts; i < v->to * p->experts; i++) {
		has[d->place[i]]++;
		load[d->place[i]] += profile_expert_load(p, i / p->experts, i % p->experts);
	}
	most = (v->to - v->from) * rest_ms(p, v->home, d->m) +
	       load[0] * expert_ms(p, v->home, d->m);
	for (int k = 0; k < v->others; k++)
		most = !has[k + 1] ? INFINITY
				   : fmax(most, load[k + 1] * expert_ms(p, v->other[k], d->m));
	return most;
}

static double bound(const struct search *s, const struct deal *d)
{
	double most = 0;
	for (int i = 0; i < d->sides; i++)
		most = fmax(most, bound_of(s, d, &d->side[i]));
	return most * (s->p->global_batch / d->m);
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
	const double least = bound(s, d);
	if (isinf(least) || (s->best->fits && least >= s->best->simulated_ms))
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
	for (d->whole = stride; d->whole < layers && d->sides == 1; d->whole += stride)
		TRY(try_one(s, d, e));
	return 0;
}

/* Sorts s->order. */
static void sort(const struct search *s, int m,
		 double (*ms)(const struct profile *p, int device, int m))
{
	for (int i = 0; i < s->p->devices; i++) {
		int at = i;
		for (; at > 0 && ms(s->p, s->order[at - 1], m) > ms(s->p, i, m); at--)
			s->order[at] = s->order[at - 1];
		s->order[at] = i;
	}
}

/* One home. */
static int try_homes(struct search *s, struct deal *d, struct err *e)
{
	struct side *v = &d->side[0];
	d->sides = 1;
	sort(s, d->m, expert_ms);
	for (int home = 0; home < s->p->devices; home++) {
		const double least = s->p->layers * rest_ms(s->p, home, d->m);
		*v = (struct side){ .home = home, .to = s->p->layers };
		if (s->best->fits && least * (s->p->global_batch / d->m) >= s->best->simulated_ms)
			continue;
		for (int k = 0; k < s->p->devices && v->others < OTHERS; k++) {
			if (s->order[k] == home)
				continue;
			v->other[v->others++] = s->order[k];
			TRY(try_all(s, d, e));
		}
	}
	return 0;
}

static bool is_home(const struct deal *d, int device)
{
	for (int i = 0; i < d->sides; i++)
		if (d->side[i].home == device)
			return true;
	return false;
}

/* The homes, and their layers by speed: at least one each. */
static void cut(const struct search *s, struct deal *d)
{
	const int layers = s->p->layers;
	double sum = 0, before = 0;
	sort(s, d->m, rest_ms);
	for (int i = 0; i < d->sides; i++)
		sum += 1 / fmax(1e-9, rest_ms(s->p, s->order[i], d->m));
	for (int i = 0; i < d->sides; i++) {
		before += 1 / fmax(1e-9, rest_ms(s->p, s->order[i], d->m));
		const int from = i ? d->side[i - 1].to : 0, most = layers - (d->sides - 1 - i),
			  to = (int)lround(before / sum * layers);
		d->side[i] = (struct side){ .home = s->order[i],
					    .from = from,
					    .to = to <= from  ? from + 1
						  : to > most ? most
							      : to };
	}
}

/* Several homes: the others go one by one to the stage that has the least of them a layer. */
static int try_stages(struct search *s, struct deal *d, struct err *e)
{
	for (d->sides = 2; d->sides <= SIDES; d->sides++) {
		double speed[SIDES] = { 0 };
		if (2 * d->sides > s->p->devices || d->sides > s->p->layers)
			break;
		cut(s, d);
		sort(s, d->m, expert_ms);
		for (int k = 0; k < s->p->devices; k++) {
			int least = -1;
			for (int i = 0; i < d->sides && !is_home(d, s->order[k]); i++) {
				const struct side *v = &d->side[i];
				if (v->others < OTHERS &&
				    (least < 0 || speed[i] / (v->to - v->from) <
							  speed[least] / (d->side[least].to -
									  d->side[least].from)))
					least = i;
			}
			if (least < 0)
				continue;
			struct side *v = &d->side[least];
			v->other[v->others++] = s->order[k];
			speed[least] += 1 / expert_ms(s->p, s->order[k], d->m);
		}
		TRY(try_all(s, d, e));
	}
	return 0;
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
	d.place = mem_array((size_t)p->layers, (size_t)p->experts);
	if (!s.order || !d.place)
		rc = err_set(e, ERR_NOMEM, "out of memory for a plan");
	const int sizes = cost_microbatches(p, o, size, SIZES);
	for (int z = 0; z < sizes && rc >= 0; z++) {
		d.m = size[z];
		rc = try_homes(&s, &d, e);
		if (rc >= 0)
			rc = try_stages(&s, &d, e);
	}
	mem_free(d.place);
	mem_free(s.order);
	return rc;
}
