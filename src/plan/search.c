/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - see search.h. */
#include "plan/search.h"

#include "plan/fit.h"
#include "plan/offload.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* of the step time: groups must be that much faster than the best pipeline */
#define GROUPS_GAIN 0.99

static int nomem(struct err *e)
{
	return err_set(e, ERR_NOMEM, "out of memory for a plan's search");
}

int candidate_init(struct search *s, struct candidate *k, struct err *e)
{
	size_t n = (size_t)s->p->devices;

	*k = (struct candidate){ .step_s = INFINITY };
	k->device = arena_alloc(&s->c.mem, n * sizeof(int));
	k->layers = arena_alloc(&s->c.mem, n * sizeof(int));
	return k->device && k->layers ? 0 : nomem(e);
}

void candidate_copy(struct candidate *to, const struct candidate *from)
{
	int *device = to->device, *layers = to->layers;

	*to = *from;
	to->device = device;
	to->layers = layers;
	memcpy(device, from->device, (size_t)from->stages * sizeof(int));
	memcpy(layers, from->layers, (size_t)from->stages * sizeof(int));
}

static void add_kind(struct search *s, const struct sched *sched, int chunks)
{
	if (s->kinds < SEARCH_MAX_KINDS)
		s->kind[s->kinds++] = (struct search_kind){ sched, chunks };
}

int search_init(struct search *s, const struct profile *p, const struct plan_options *o,
		struct err *e)
{
	int rc = 0;

	*s = (struct search){ .p = p, .o = o };
	TRY(cost_init(&s->c, p, o, e));
	s->sizes = cost_microbatches(p, o, s->size, SEARCH_MAX_SIZES);
	const bool layerwise = plan_is_layerwise(p, o->offload);
	if (layerwise)
		add_kind(s, &sched_breadth_first, 1);
	/* The default first: of equals the first one found stays. */
	if (!layerwise && (!o->sched || o->sched == sched_default()))
		add_kind(s, sched_default(), 1);
	for (size_t i = 0; !layerwise && sched_at(i); i++) {
		const struct sched *row = sched_at(i);
		if (row == sched_default() ||
		    (o->sched ? o->sched != row : row->gathers || row->turns))
			continue;
		for (int chunks = row->chunked ? 2 : 1;
		     chunks <= (row->chunked ? o->max_chunks : 1); chunks++)
			add_kind(s, row, chunks);
	}
	s->stage = arena_alloc(&s->c.mem, (size_t)p->devices * sizeof *s->stage);
	s->first = arena_alloc(&s->c.mem, ((size_t)p->layers + 1) * sizeof *s->first);
	if (!s->stage || !s->first)
		TRYOUT(nomem(e));
	/* all rows are made now, so that pointers to them stay valid */
	for (int i = 0; i < s->sizes; i++)
		if (!cost_row(&s->c, s->size[i]))
			TRYOUT(nomem(e));
	TRYOUT(candidate_init(s, &s->best, e));
	return 0;
out:
	search_release(s);
	return rc;
}

void search_release(struct search *s) { cost_release(&s->c); }

static bool is_possible(const struct search *s, const struct candidate *k)
{
	bool used = s->o->must_use < 0;

	if (k->stages == 1 && k->chunks > 1)
		return false;
	for (int i = 0; i < k->stages; i++) {
		if (k->layers[i] < k->chunks)
			return false;
		used = used || k->device[i] == s->o->must_use;
	}
	return used;
}

static struct pipe pipe_of(struct search *s, const struct candidate *k)
{
	struct pipe q = { k->sched, k->stages, k->chunks, k->m, s->p->global_batch / k->m,
			  s->stage, s->first,  NULL,      NULL };

	if (k->sched->gathers && k->chunks == 1)
		q.chunks = plan_offload_chunks(k->stages, k->layers, s->o->max_chunks);
	cost_cut(k->stages, q.chunks, k->layers, s->first);
	for (int i = 0; i < k->stages; i++)
		s->stage[i] = (struct pipe_stage){ k->device[i], false, NULL };
	return q;
}

int search_eval(struct search *s, const struct candidate *k, double cutoff, double *step_s_p,
		struct err *e)
{
	const struct cost_row *r;
	struct pipe q;

	s->examined++;
	*step_s_p = INFINITY;
	if (!is_possible(s, k))
		return 0;
	q = pipe_of(s, k);
	r = cost_row(&s->c, k->m);
	/* the bound without recomputation first: it is cheaper than counting memory */
	if (cost_bound(&s->c, r, &q) >= cutoff || !cost_fit(&s->c, r, &q))
		return 0;
	return cost_play(&s->c, r, &q, cutoff, false, NULL, step_s_p, e);
}

int search_offer(struct search *s, struct candidate *k, struct err *e)
{
	double t;

	TRY(search_eval(s, k, s->best.step_s, &t, e));
	if (t < s->best.step_s) {
		k->step_s = t;
		candidate_copy(&s->best, k);
	}
	return 0;
}

int search_plan(struct search *s, const struct candidate *found, struct plan *out, struct err *e)
{
	struct candidate one = *found;
	const struct candidate *k = &one;
	struct pipe q;

	/* On one stage every order takes the same time, and the last bit of a sum must not decide
	 * what is kept in memory. */
	if (one.stages == 1 && one.chunks == 1)
		one.sched = s->kind[0].sched;
	q = pipe_of(s, k);

	cost_fit(&s->c, cost_row(&s->c, k->m), &q);
	TRY(plan_alloc(out, k->stages, k->chunks, e));
	out->sched = k->sched;
	out->microbatch = k->m;
	out->microbatches = q.microbatches;
	cost_cut(k->stages, k->chunks, k->layers, out->first);
	for (int i = 0; i < k->stages; i++) {
		out->stage[i].recompute = s->stage[i].recompute;
		out->stage[i].member[0].device = k->device[i];
		out->stage[i].member[0].microbatch = k->m;
		out->stage[i].member[0].microbatches = q.microbatches;
	}
	out->examined = s->examined;
	return 0;
}

/* How far the stage is above its limit when it may recompute. */
static double gib_above_limit(struct search *s, const struct cost_row *r, const struct pipe *q,
			      int i)
{
	double gib = cost_stage_gib(&s->c, r, q, i, 0, s->o->recompute == PLAN_RECOMPUTE_ALWAYS),
	       limit = s->c.limit[q->stage[i].device];

	if (s->o->recompute == PLAN_RECOMPUTE_AUTO)
		gib = fmin(gib, cost_stage_gib(&s->c, r, q, i, 0, true));
	return gib - limit;
}

/* A layer for each device of the candidate, and each further one to the device with most memory
 * left. Returns what all of them lack; over[]: each. */
static double fill_by_room(struct search *s, const struct cost_row *r, struct candidate *k,
			   double *over)
{
	struct pipe q;
	double sum = 0;

	for (int i = 0; i < k->stages; i++)
		k->layers[i] = 1;
	for (int left = s->p->layers - k->stages; left > 0; left--) {
		int pick = 0;
		double least = INFINITY;
		for (int i = 0; i < k->stages; i++) {
			double gib;
			k->layers[i]++;
			q = pipe_of(s, k);
			gib = gib_above_limit(s, r, &q, i);
			if (gib < least) {
				least = gib;
				pick = i;
			}
			k->layers[i]--;
		}
		k->layers[pick]++;
	}
	q = pipe_of(s, k);
	for (int i = 0; i < k->stages; i++) {
		over[i] = gib_above_limit(s, r, &q, i);
		sum += fmax(0, over[i]);
	}
	return sum;
}

/* The devices with most memory, the largest one at the end, where the head is. */
static void take_largest(const struct search *s, struct candidate *k, double *room)
{
	const struct profile *p = s->p;

	for (int d = 0; d < p->devices; d++) {
		const double gib = s->c.limit[d] - p->device[d].fixed_gib;
		int i = d;
		for (; i > 0 && room[i - 1] < gib; i--) {
			room[i] = room[i - 1];
			k->device[i] = k->device[i - 1];
		}
		room[i] = gib;
		k->device[i] = d;
	}
	k->stages = p->devices < p->layers ? p->devices : p->layers;
	const int largest = k->device[0];
	memmove(k->device, k->device + 1, (size_t)(k->stages - 1) * sizeof *k->device);
	k->device[k->stages - 1] = largest;
}

/* Leaves out the devices that lack memory for a single layer; false: there is none, or no other. */
static bool leave_smallest(struct candidate *k, const double *over)
{
	int n = 0;

	for (int i = 0; i < k->stages; i++)
		if (k->layers[i] > 1 || over[i] <= 0)
			k->device[n++] = k->device[i];
	const bool some = n > 0 && n < k->stages;
	k->stages = n;
	return some;
}

int search_nothing_fits(struct search *s, struct err *e)
{
	struct candidate k, less;
	struct plan plan = { .mem = ARENA_INIT };
	const struct cost_row *r = cost_row(&s->c, s->size[0]);
	double *over = arena_alloc(&s->c.mem, (size_t)s->p->devices * sizeof *over);
	int rc;

	TRY(candidate_init(s, &k, e));
	TRY(candidate_init(s, &less, e));
	if (!over)
		return nomem(e);
	k.sched = s->kind[0].sched;
	k.chunks = 1;
	k.m = s->size[0];
	take_largest(s, &k, over);
	double lack = fill_by_room(s, r, &k, over);
	candidate_copy(&less, &k);
	while (leave_smallest(&less, over)) {
		const double now = fill_by_room(s, r, &less, over);
		if (now >= lack)
			break;
		lack = now;
		candidate_copy(&k, &less);
	}
	rc = search_plan(s, &k, &plan, e);
	if (rc == 0)
		rc = plan_simulate(s->p, s->o, &plan, e);
	if (rc == 0 && plan.over_device >= 0)
		rc = plan_over_error(s->p, s->o, &plan, e);
	else if (rc == 0)
		rc = err_set(e, ERR_USAGE,
			     s->o->must_use >= 0
				     ? "no plan that uses the required device fits into memory"
				     : "no plan with these options fits into memory; give the "
				       "planner more freedom "
				       "(schedule, micro_batch_size)");
	plan_release(&plan);
	return rc;
}

/* How many groupings with their layers there are: maps of the devices onto the stages (and out), by
 * inclusion and exclusion, times the ways to cut the layers. */
double search_groupings(const struct profile *p)
{
	double all = 0, cuts = 1;
	for (int k = 1; k <= p->devices && k <= p->layers; k++) {
		double maps = 0, choose = 1;
		if (k > 1)
			cuts *= (double)(p->layers - k + 1) / (k - 1);
		for (int j = 0; j <= k; j++) {
			maps += (j % 2 ? -1 : 1) * choose * pow(k + 1 - j, p->devices);
			choose *= (double)(k - j) / (j + 1);
		}
		all += maps * cuts;
	}
	return all;
}

int search_faster(const struct profile *p, const struct plan_options *o, struct plan *other,
		  struct plan *out, bool *found, struct err *e)
{
	int rc = plan_check(p, other, e);

	if (rc < 0)
		return rc == ERR_NOMEM ? rc : 0;
	TRY(plan_simulate(p, o, other, e));
	if (!other->fits || !other->executable ||
	    (*found && other->simulated_ms >= out->simulated_ms * GROUPS_GAIN) ||
	    (o->must_use >= 0 && !plan_uses(other, o->must_use)))
		return 0;
	other->planner = out->planner;
	other->predicted_ms = other->objective_ms = NAN;
	other->examined = out->examined;
	other->proven = false;
	arena_release(&out->mem);
	*out = *other;
	*other = (struct plan){ .mem = ARENA_INIT };
	*found = true;
	return 0;
}

void search_recompute_over(struct plan *plan)
{
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			plan->stage[k].recompute |= plan->stage[k].member[i].memory_gib >
						    plan->stage[k].member[i].limit_gib;
}
