/* SPDX-License-Identifier: Apache-2.0 */
/* best_many.c - groups for clusters that are too large for best_groups.c: a few hundred plans whose
 * stages are sets of neighbours, sorted by an estimate; the simulator judges the first of them.
 *
 * The hosts are put in a row in which each is followed by the one of the rest that it is best
 * connected to, so that a site stands together. The row is cut into as many stages as are tried,
 * with equal speeds; layers go to stages and microbatches to devices by speed. Tried are numbers of
 * stages, microbatch sizes, and leaving out the slower devices. Where a stage does not fit, its
 * devices share the training state, and what is still too large recomputes.
 *
 * The estimate: the slowest of the stages' speeds and of the hosts' network cards, each with the
 * work and the messages of a whole step; one microbatch through all stages; and the sum of the
 * gradients of the largest stage once around the slowest card. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct many {
	const struct profile *p;
	const struct plan_options *o;
	int *order;    /* [devices] in a row */
	double *speed; /* of a layer, per second */
	double *here;  /* [hosts] */
	int64_t left;  /* instructions that may still be simulated */
};

static void put_in_a_row(struct many *s, bool *used)
{
	const struct profile *p = s->p;
	int at = 0, n = 0;
	while (at >= 0) {
		double best = -1;
		int next = -1;
		used[at] = true;
		for (int i = 0; i < p->devices; i++)
			if (p->device[i].host == at)
				s->order[n++] = i;
		for (int h = 0; h < p->hosts; h++) {
			const double rate = p->bandwidth[(size_t)at * (size_t)p->hosts + (size_t)h];
			if (!used[h] && rate > best) {
				best = rate;
				next = h;
			}
		}
		at = next;
	}
}

/* The devices of stage k of n: those of the row, but the slower ones, between its shares of the sum
 * of speeds. */
static int take(const struct many *s, double slowest, double all, int k, int n, int *device)
{
	double sum = 0;
	int found = 0;
	for (int i = 0; i < s->p->devices; i++) {
		const int d = s->order[i];
		if (s->speed[d] < slowest)
			continue;
		const int stage = (int)fmin(n - 1, floor((sum + s->speed[d] / 2) * n / all));
		sum += s->speed[d];
		if (stage == k)
			device[found++] = d;
	}
	return found;
}

/* Each microbatch to the device that would end first with it. */
static void deal(const struct many *s, struct plan_stage *g, int microbatches)
{
	for (int left = microbatches; left > 0; left--) {
		int pick = 0;
		double least = INFINITY;
		for (int i = 0; i < g->members; i++) {
			const double t =
				(g->member[i].microbatches + 1) / s->speed[g->member[i].device];
			if (t < least) {
				least = t;
				pick = i;
			}
		}
		g->member[pick].microbatches++;
	}
}

/* 0: there is no such plan. */
static int make(const struct many *s, int stages, int m, double slowest, struct plan *plan,
		int *device, struct err *e)
{
	double all = 0, sum = 0;
	for (int d = 0; d < s->p->devices; d++)
		all += s->speed[d] >= slowest ? s->speed[d] : 0;
	TRY(plan_alloc(plan, stages, 1, e));
	plan->sched = s->o->sched && !s->o->sched->gathers ? s->o->sched : sched_default();
	plan->order = s->o->order ? s->o->order : SUM_FAST;
	plan->microbatch = m;
	plan->microbatches = s->p->global_batch / m;
	for (int k = 0; k < stages; k++) {
		const int n = take(s, slowest, all, k, stages, device);
		if (n < 1 || n > SCHED_MAX_GROUP)
			return 0;
		TRY(plan_stage_members(plan, k, n, e));
		for (int i = 0; i < n; i++) {
			plan->stage[k].member[i] = (struct plan_member){ .device = device[i],
									 .microbatch = m,
									 .state_share = 1 };
			sum += s->speed[device[i]];
		}
		deal(s, &plan->stage[k], plan->microbatches);
		plan->stage[k].recompute = s->o->recompute == PLAN_RECOMPUTE_ALWAYS;
		int end = (int)lround(s->p->layers * sum / all);
		end = end > s->p->layers - (stages - 1 - k) ? s->p->layers - (stages - 1 - k) : end;
		plan->first[k + 1] = end > plan->first[k] ? end : plan->first[k] + 1;
	}
	return 1;
}

static int simulate(struct many *s, struct plan *plan, struct err *e)
{
	int64_t pairs = 0; /* routes between members of neighbouring stages */
	for (int k = 0; k + 1 < plan->stages; k++)
		pairs += (int64_t)plan->stage[k].members * plan->stage[k + 1].members;
	s->left -= 200 + 6 * (int64_t)plan->stages * plan->microbatches + 20 * pairs;
	return plan_simulate(s->p, s->o, plan, e);
}

/* Between many members a ring has as many messages one after the other as there are members, and
 * each waits for the latency of the farthest: all directly to all is tried beside it. */
static int choose_reducer(struct many *s, struct plan *plan, struct err *e)
{
	const struct plan_options *o = s->o;
	const double ms = plan->simulated_ms;
	if (!plan->fits || o->reducer || o->collective || plan->order != SUM_FAST)
		return 0;
	plan->reducer = &reducer_direct;
	TRY(simulate(s, plan, e));
	if (plan->simulated_ms < ms)
		return 0;
	plan->reducer = NULL;
	return simulate(s, plan, e);
}

static int make_fit(struct many *s, struct plan *plan, struct err *e)
{
	TRY(plan_check(s->p, plan, e));
	TRY(simulate(s, plan, e));
	if (!plan->fits && s->o->share_auto) {
		for (int k = 0; k < plan->stages; k++)
			plan_share_state(s->p, s->o, &plan->stage[k]);
		TRY(simulate(s, plan, e));
	}
	if (plan->fits || s->o->recompute != PLAN_RECOMPUTE_AUTO)
		return 0;
	search_recompute_over(plan);
	return simulate(s, plan, e);
}

/* One plan; kept in `out` where it is the fastest so far, *ms_p. */
static int try_one(struct many *s, int stages, int m, double slowest, int *device, double *ms_p,
		   struct plan *out, struct err *e)
{
	struct plan plan = { .mem = ARENA_INIT, .over_device = -1 };
	int rc = make(s, stages, m, slowest, &plan, device, e);
	if (rc > 0)
		rc = make_fit(s, &plan, e);
	if (rc >= 0 && plan.stages > 0)
		rc = choose_reducer(s, &plan, e);
	if (rc >= 0 && plan.fits && plan.executable && plan.simulated_ms < *ms_p &&
	    (s->o->must_use < 0 || plan_uses(&plan, s->o->must_use))) {
		*ms_p = plan.simulated_ms;
		plan_release(out);
		*out = plan;
		return 1;
	}
	plan_release(&plan);
	if (rc == ERR_NOMEM || rc == ERR_INTERNAL)
		return rc;
	err_clear(e);
	return 0;
}

/* ---- which are tried first ---- */

/* The devices that are not left out, at one microbatch size: those at least so fast. */
struct kept {
	double slowest, all; /* speeds: the least, the sum */
	int devices;
};

struct trial {
	int m, stages;
	const struct kept *kept;
	double estimate_s;
};

static struct kept keep(const struct many *s, double slowest)
{
	struct kept k = { .slowest = slowest };
	for (int d = 0; d < s->p->devices; d++)
		if (s->speed[d] >= slowest) {
			k.all += s->speed[d];
			k.devices++;
		}
	return k;
}

/* Seconds of a step, roughly. */
static double estimate(const struct many *s, const struct kept *k, int stages, int m)
{
	const struct profile *p = s->p;
	const double rows = p->global_batch, passes = rows / m, layers = (double)p->layers,
		     message = (double)m * p->sequence_len * p->hidden * p->wire_bytes,
		     gradients = profile_gradients(p) * layers * p->layer_state_gib * 1073741824.0;
	double work = layers * passes / k->all, cards = 0, slow = INFINITY;
	for (int h = 0; h < p->hosts; h++)
		s->here[h] = 0;
	for (int i = 0; i < p->devices; i++)
		if (s->speed[i] >= k->slowest)
			s->here[p->device[i].host] += s->speed[i];
	for (int h = 0; h < p->hosts; h++) {
		/* its share of the microbatches of its stage, there and back */
		const double bytes = fmin(1, s->here[h] * stages / k->all) * passes * message * 2;
		if (!(s->here[h] > 0) || !(p->host[h].card > 0))
			continue;
		slow = fmin(slow, p->host[h].card * 1e9);
		if (stages > 1)
			cards = fmax(cards, bytes / (p->host[h].card * 1e9));
	}
	const double through = layers / (k->all / k->devices),
		     sums = k->devices > stages ? 2 * gradients / stages / slow : 0;
	return fmax(work, cards) + through + sums;
}

static int by_estimate(const void *a, const void *b)
{
	const double x = ((const struct trial *)a)->estimate_s,
		     y = ((const struct trial *)b)->estimate_s;
	return x < y ? -1 : x > y;
}

static int by_speed(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The speeds of one microbatch size. */
static void find_speeds(struct many *s, int m)
{
	for (int i = 0; i < s->p->devices; i++)
		s->speed[i] = 1e3 / (curve_at(&s->p->device[i].forward_ms, m) +
				     curve_at(&s->p->device[i].backward_ms, m));
}

static const int stage_count[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 };
static const double dropped[] = { 0, 0.25, 0.5, 0.75, 0.9 };
enum { COUNTS = ARRAY_LEN(stage_count), DROPS = ARRAY_LEN(dropped), LEAST_TRIALS = 4 };

/* All combinations for one size, into t and kept. */
static int list_trials(struct many *s, int m, double *sorted, struct kept *kept, struct trial *t)
{
	const int n = s->p->devices;
	int count = 0;
	find_speeds(s, m);
	for (int i = 0; i < n; i++)
		sorted[i] = s->speed[i];
	qsort(sorted, (size_t)n, sizeof *sorted, by_speed);
	for (int d = 0; d < DROPS; d++) {
		kept[d] = keep(s, sorted[(int)(dropped[d] * n)]);
		for (int i = 0; i < COUNTS && stage_count[i] <= s->p->layers; i++) {
			const int stages = stage_count[i];
			if (stages > kept[d].devices || kept[d].devices > stages * SCHED_MAX_GROUP)
				continue;
			t[count++] = (struct trial){ m, stages, &kept[d],
						     estimate(s, &kept[d], stages, m) };
		}
	}
	return count;
}

int search_many(const struct profile *p, const struct plan_options *o, int64_t effort,
		struct plan *out, struct err *e)
{
	const size_t n = (size_t)p->devices;
	int size[SEARCH_MAX_SIZES], sizes = cost_microbatches(p, o, size, SEARCH_MAX_SIZES), rc = 0,
				    trials = 0;
	struct many s = { .p = p, .o = o, .left = effort };
	bool *used = mem_array((size_t)p->hosts, sizeof *used);
	double *sorted = mem_array(n, sizeof *sorted), ms = INFINITY;
	int *device = mem_array(n, sizeof *device);
	struct kept *kept = mem_array((size_t)sizes * DROPS, sizeof *kept);
	struct trial *t = mem_array((size_t)sizes * DROPS * COUNTS, sizeof *t);
	s.order = mem_array(n, sizeof *s.order);
	s.speed = mem_array(n, sizeof *s.speed);
	s.here = mem_array((size_t)p->hosts, sizeof *s.here);
	if (!s.here || !used || !sorted || !device || !s.order || !s.speed || !kept || !t) {
		rc = err_nomem(e, n * 32, "a plan's search");
		goto out;
	}
	put_in_a_row(&s, used);
	for (int z = 0; z < sizes; z++)
		trials += list_trials(&s, size[z], sorted, kept + z * DROPS, t + trials);
	qsort(t, (size_t)trials, sizeof *t, by_estimate);
	for (int i = 0; i < trials && (s.left > 0 || i < LEAST_TRIALS) && rc >= 0; i++) {
		find_speeds(&s, t[i].m);
		rc = try_one(&s, t[i].stages, t[i].m, t[i].kept->slowest, device, &ms, out, e);
	}
	if (rc >= 0)
		rc = ms < INFINITY;
out:
	mem_free(used);
	mem_free(sorted);
	mem_free(device);
	mem_free(kept);
	mem_free(t);
	mem_free(s.order);
	mem_free(s.speed);
	mem_free(s.here);
	return rc;
}
