/* SPDX-License-Identifier: Apache-2.0 */
/* near.c - see near.h. */
#include "plan/near.h"

#include "base/err.h"
#include "sched/sched.h"

#include <math.h>
#include <string.h>

/* For plan_move_seconds(): seconds of any move, GB/s of building a stage, and of a link of which
 * nothing is known. */
static const double move_least = 1, build_rate = 0.5, link_rate = 0.1;
#define GB_OF_GIB 1.073741824

/* `now` with other shares or layers: `now` itself is changed in place and simulated. */
static int try_plan(const struct profile *p, const struct plan_options *o, const struct plan *now,
		    struct plan *out, struct err *e)
{
	struct plan_options x = *o;
	x.manual = now;
	x.order = now->order;
	x.order_auto = x.offload_auto = x.share_auto = false;
	return planner_run(&planner_manual, p, &x, out, e);
}

static double layer_ms(const struct profile *p, const struct plan_member *m)
{
	const struct profile_device *d = &p->device[m->device];
	return curve_at(&d->forward_ms, m->microbatch) + curve_at(&d->backward_ms, m->microbatch);
}

/* Shares by speed: 1000 for the fastest of a group. */
static void share_by_speed(const struct profile *p, struct plan *w, struct plan_stage *s)
{
	int share[SCHED_MAX_GROUP], count[SCHED_MAX_GROUP];
	double least = INFINITY;
	for (int i = 0; i < s->members; i++)
		least = fmin(least, layer_ms(p, &s->member[i]));
	if (!(least > 0))
		return;
	for (int i = 0; i < s->members; i++)
		share[i] = (int)fmax(1, round(1000 * least / layer_ms(p, &s->member[i])));
	sched_dealt(share, s->members, w->microbatches, count);
	for (int i = 0; i < s->members; i++) {
		s->member[i].share = share[i];
		s->member[i].microbatches = count[i];
	}
}

/* Milliseconds of one layer in a stage, whose members share the microbatches. */
static double stage_layer_ms(const struct profile *p, const struct plan_stage *s)
{
	double speed = 0;
	for (int i = 0; i < s->members; i++)
		speed += 1 / fmax(layer_ms(p, &s->member[i]), 1e-9);
	return 1 / speed;
}

/* Layers in proportion to speed, at least one each. */
static void layers_by_speed(const struct profile *p, struct plan *w)
{
	const int layers = w->first[w->stages];
	double sum = 0, until = 0;
	for (int k = 0; k < w->stages; k++)
		sum += 1 / stage_layer_ms(p, &w->stage[k]);
	for (int k = 0; k < w->stages - 1; k++) {
		until += 1 / stage_layer_ms(p, &w->stage[k]);
		int cut = (int)lround(layers * until / sum);
		cut = cut <= w->first[k] ? w->first[k] + 1 : cut;
		const int most = layers - (w->stages - 1 - k);
		w->first[k + 1] = cut < most ? cut : most;
	}
}

/* The step time of `w` when it is faster than `best` and fits: it replaces that. */
static int offer(const struct profile *p, const struct plan_options *o, const struct plan *w,
		 struct plan *best, bool *better_p, struct err *e)
{
	struct plan next;
	*better_p = false;
	int rc = try_plan(p, o, w, &next, e);
	if (rc < 0) {
		if (rc == ERR_NOMEM)
			return rc;
		err_clear(e);
		return 0;
	}
	if (!next.fits || !next.executable || next.simulated_ms >= best->simulated_ms) {
		plan_release(&next);
		return 0;
	}
	plan_release(best);
	*best = next;
	*better_p = true;
	return 0;
}

/* A border `k` (between stages k - 1 and k) moves by `by` layers. */
static bool can_shift(const struct plan *w, int k, int by)
{
	const int cut = w->first[k] + by;
	return cut > w->first[k - 1] && cut < w->first[k + 1];
}

/* One layer over one border or over two that follow each other, as long as that helps. */
static int climb(const struct profile *p, const struct plan_options *o, struct plan *w,
		 struct plan *best, struct err *e)
{
	bool better = true, now;
	while (better) {
		better = false;
		for (int k = 1; k < w->stages; k++)
			for (int two = 0; two < 2; two++)
				for (int by = -1; by <= 1; by += 2) {
					const int other = k + two;
					if (other >= w->stages)
						continue;
					memcpy(w->first, best->first,
					       ((size_t)w->stages + 1) * sizeof *w->first);
					w->first[k] += by;
					w->first[other] += two ? by : 0;
					if (!can_shift(w, k, 0) || !can_shift(w, other, 0))
						continue;
					TRY(offer(p, o, w, best, &now, e));
					better |= now;
				}
	}
	return 0;
}

static int nearer(const struct profile *p, const struct plan_options *o, struct plan *w,
		  enum plan_near what, struct plan *best, struct err *e)
{
	bool better;
	if (what == NEAR_NOTHING || w->pass)
		return 0;
	for (int k = 0; k < w->stages; k++)
		if (w->stage[k].members > 1)
			share_by_speed(p, w, &w->stage[k]);
	TRY(offer(p, o, w, best, &better, e));
	if (what == NEAR_SHARES || w->chunks > 1 || w->stages == 1)
		return 0;
	TRY(climb(p, o, w, best, e));
	layers_by_speed(p, w);
	TRY(offer(p, o, w, best, &better, e));
	return climb(p, o, w, best, e);
}

int plan_near(const struct profile *p, const struct plan_options *o, const struct plan *now,
	      enum plan_near what, struct plan *out, struct err *e)
{
	struct plan w, best;
	TRY(try_plan(p, o, now, &best, e));
	int rc = try_plan(p, o, now, &w, e);
	if (rc >= 0) {
		rc = nearer(p, o, &w, what, &best, e);
		plan_release(&w);
	}
	if (rc < 0)
		plan_release(&best);
	else
		*out = best;
	return rc;
}

/* ---- what it costs ---- */

static bool holds(const struct plan *plan, int device, int layer)
{
	for (int v = 0; v < plan->stages * plan->chunks; v++) {
		if (layer < plan->first[v] || layer >= plan->first[v + 1])
			continue;
		const struct plan_stage *s = &plan->stage[v % plan->stages];
		for (int i = 0; i < s->members; i++)
			if (s->member[i].device == device)
				return true;
	}
	return false;
}

static double slowest_link(const struct profile *p, int device)
{
	double least = INFINITY;
	for (int i = 0; i < p->devices; i++)
		if (p->device[i].host != p->device[device].host)
			least = fmin(least, profile_bandwidth(p, i, device));
	return isfinite(least) && least > 0 ? least : link_rate;
}

double plan_move_seconds(const struct profile *p, const struct plan *from, const struct plan *to)
{
	double travels = 0, builds = 0, state = 0;
	for (int i = 0; i < p->devices; i++) {
		int has = 0, gets = 0;
		for (int k = 0; k < p->layers; k++) {
			if (!holds(to, i, k))
				continue;
			has++;
			gets += !holds(from, i, k);
		}
		const double gb = p->layer_gib * GB_OF_GIB;
		travels += gets * gb / slowest_link(p, i);
		builds = fmax(builds, has * gb / build_rate);
		state += 2 * has * p->layer_state_gib * (1 - profile_gradients(p)) * GB_OF_GIB /
			 slowest_link(p, i);
	}
	return move_least + travels + builds + state;
}
