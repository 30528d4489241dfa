/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - making, checking and simulating a plan. Formulas are in cost.c, JSON in plan_json.c. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/cost.h"
#include "plan/crowd.h"
#include "plan/experts.h"
#include "plan/offload.h"

void plan_release(struct plan *plan)
{
	arena_release(&plan->mem);
	*plan = (struct plan){ .mem = ARENA_INIT };
}

static int nomem(struct err *e) { return err_set(e, ERR_NOMEM, "out of memory for a plan"); }

int plan_stage_members(struct plan *plan, int stage, int members, struct err *e)
{
	struct plan_member *m = arena_alloc(&plan->mem, (size_t)members * sizeof *m);

	if (!m)
		return nomem(e);
	for (int i = 0; i < members; i++)
		m[i].state_share = 1.0 / members;
	plan->stage[stage].member = m;
	plan->stage[stage].members = members;
	return 0;
}

int plan_deal_experts(struct plan *plan, int stage, const struct plan_stage *from, struct err *e)
{
	struct plan_stage *s = &plan->stage[stage];
	if (!from->deal)
		return 0;
	if (plan->chunks > 1)
		return err_set(e, ERR_INPUT,
			       "plan: 'experts' together with several chunks a stage is not "
			       "supported");
	const size_t n = (size_t)plan_layers(plan, stage) * (size_t)from->experts;
	uint8_t *v = arena_alloc(&plan->mem, n);
	if (!v)
		return nomem(e);
	memcpy(v, from->deal, n);
	s->deal = v;
	s->experts = from->experts;
	s->homes = from->homes;
	return 0;
}

int plan_alloc(struct plan *plan, int stages, int chunks, struct err *e)
{
	plan->stages = stages;
	plan->chunks = chunks;
	plan->stage = arena_alloc(&plan->mem, (size_t)stages * sizeof *plan->stage);
	plan->first = arena_alloc(&plan->mem,
				  ((size_t)stages * (size_t)chunks + 1) * sizeof *plan->first);
	if (!plan->stage || !plan->first)
		return nomem(e);
	for (int k = 0; k < stages; k++)
		TRY(plan_stage_members(plan, k, 1, e));
	return 0;
}

bool plan_plays_members(const struct plan *plan, int stage)
{
	return cost_can_play(&plan->stage[stage], plan->sched, plan->pass ? 0 : plan->microbatch);
}

/* The passes that each member of a stage gets: their number, the largest, all rows. */
static void deal_passes(struct plan_stage *s, const int *pass, const int *place, int n)
{
	for (int i = 0; i < s->members; i++)
		s->member[i].microbatch = s->member[i].microbatches = s->member[i].samples = 0;
	for (int i = 0; i < n; i++) {
		struct plan_member *m = &s->member[place[i]];
		m->microbatches++;
		m->samples += pass[i];
		m->microbatch = pass[i] > m->microbatch ? pass[i] : m->microbatch;
	}
	for (int i = 0; i < s->members; i++)
		if (!s->member[i].microbatch)
			s->member[i].microbatch = 1;
}

int plan_set_passes(struct plan *plan, const int *pass, int n, struct err *e)
{
	struct plan_stage *s = &plan->stage[0];
	int share[SCHED_MAX_GROUP];
	bool own = false;

	for (int i = 0; i < n; i++)
		own = own || pass[i] != plan->microbatch;
	if (!own)
		return 0;
	if (plan->stages > 1)
		return err_set(e, ERR_INPUT,
			       "plan: passes of several sizes need one stage, and this plan has %d",
			       plan->stages);
	if (s->members > SCHED_MAX_GROUP || (s->sharded && !plan->sched->gathers))
		return err_set(e, ERR_INPUT, "plan: passes of several sizes on %s",
			       s->sharded ? "a sharded stage whose schedule does not gather values"
					  : "a group that is too large");
	int *v = arena_alloc(&plan->mem, (size_t)n * sizeof *v),
	    *place = mem_array((size_t)n, sizeof *place);
	if (!v || !place) {
		mem_free(place);
		return nomem(e);
	}
	memcpy(v, pass, (size_t)n * sizeof *v);
	cost_shares(s, share);
	sched_deal(share, s->members, n, place);
	deal_passes(s, v, place, n);
	mem_free(place);
	plan->pass = v;
	plan->microbatches = n;
	return 0;
}

bool plan_uses(const struct plan *plan, int device)
{
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			if (plan->stage[k].member[i].device == device)
				return true;
	return false;
}

static int check_stage(const struct profile *p, const struct plan *plan, int k, int *seen,
		       struct err *e)
{
	const struct plan_stage *s = &plan->stage[k];
	long samples = 0, microbatches = 0;

	for (int i = 0; i < s->members; i++) {
		const struct plan_member *m = &s->member[i];
		if (m->device < 0 || m->device >= p->devices)
			return err_set(e, ERR_INPUT,
				       "plan: stage %d names a device that is not in the profile",
				       k);
		if (seen[m->device]++)
			return err_set(e, ERR_INPUT, "plan: device '%s' is used twice",
				       p->device[m->device].id);
		if (m->microbatch < 1 || m->microbatches < 0 ||
		    !(m->state_share >= 0 && m->state_share <= 1))
			return err_set(
				e, ERR_INPUT,
				"plan: device '%s': microbatch %d, %d microbatches, state share %g",
				p->device[m->device].id, m->microbatch, m->microbatches,
				m->state_share);
		if (plan->stages > 1 && m->microbatch != plan->microbatch)
			return err_set(e, ERR_INPUT,
				       "plan: device '%s' has microbatch %d, the pipeline %d",
				       p->device[m->device].id, m->microbatch, plan->microbatch);
		samples += plan->pass ? m->samples : (long)m->microbatch * m->microbatches;
		microbatches += m->microbatches;
	}
	double state = 0;
	for (int i = 0; i < s->members; i++)
		state += s->member[i].state_share;
	if (plan_shares_state(s) && fabs(state - 1) > 1e-5)
		return err_set(e, ERR_INPUT,
			       "plan: the state shares of stage %d have the sum %.6g: it must be 1",
			       k, state);
	if (samples != p->global_batch)
		return err_set(
			e, ERR_INPUT,
			"plan: stage %d computes %ld sequences a step, the global batch is %d", k,
			samples, p->global_batch);
	if (plan->stages > 1 && microbatches != plan->microbatches)
		return err_set(e, ERR_INPUT,
			       "plan: stage %d runs %ld microbatches, the pipeline %d", k,
			       microbatches, plan->microbatches);
	return 0;
}

int plan_check(const struct profile *p, const struct plan *plan, struct err *e)
{
	int all = plan->stages * plan->chunks, rc = 0;
	int *seen;

	if (plan->stages < 1 || plan->chunks < 1 || !plan->sched)
		return err_set(e, ERR_INPUT, "plan: no stages, no chunks or no schedule");
	if (plan->chunks > 1 && !plan->sched->chunked)
		return err_set(e, ERR_INPUT, "plan: %d chunks, but the schedule '%s' takes one",
			       plan->chunks, plan->sched->name);
	if (plan->first[0] != 0 || plan->first[all] != p->layers)
		return err_set(e, ERR_INPUT, "plan: layers %d to %d, the model has 0 to %d",
			       plan->first[0], plan->first[all], p->layers);
	for (int v = 0; v < all; v++)
		if (plan->first[v + 1] <= plan->first[v])
			return err_set(e, ERR_INPUT, "plan: chunk %d has the layers %d to %d: none",
				       v, plan->first[v], plan->first[v + 1]);
	seen = mem_array((size_t)p->devices, sizeof *seen);
	if (!seen)
		return nomem(e);
	for (int k = 0; k < plan->stages && rc == 0; k++)
		rc = check_stage(p, plan, k, seen, e);
	mem_free(seen);
	return rc;
}

/* ---- simulating ---- */

static bool is_single_device(const struct plan_stage *s) { return s->members == 1 && !s->sharded; }

/* Why a stage cannot be run today; NULL: it can. */
static const char *why_not(const struct plan *plan, const struct plan_stage *s)
{
	if (s->deal && (plan->chunks > 1 || plan->offload || s->sharded || s->recompute))
		return "one with its experts on other devices, in a plan with chunks, sharding, "
		       "offloading or recomputation";
	if (s->sharded && !plan->sched->gathers)
		return "sharded, and its schedule does not gather values (breadth_first does)";
	for (int i = 0; s->members > 1 && i < s->members; i++) {
		if (!plan->pass && s->member[i].microbatch != plan->microbatch)
			return "a group with microbatches of several sizes, which is planned but "
			       "not yet run";
	}
	return NULL;
}

static void judge_executable(struct plan *plan)
{
	plan->executable = true;
	plan->why_not[0] = 0;
	for (int k = 0; k < plan->stages && plan->executable; k++) {
		const char *why = why_not(plan, &plan->stage[k]);
		plan->executable = !why;
		if (why)
			snprintf(plan->why_not, sizeof plan->why_not, "stage %d is %s", k, why);
	}
	if (plan->executable && !plan->fits) {
		plan->executable = false;
		snprintf(plan->why_not, sizeof plan->why_not, "it does not fit into memory");
	}
}

static int leave_out(const struct profile *p, struct plan *plan, struct err *e)
{
	plan->left_outs = 0;
	plan->left_out = arena_alloc(&plan->mem, (size_t)p->devices * sizeof(int));
	if (!plan->left_out)
		return nomem(e);
	for (int i = 0; i < p->devices; i++)
		if (!plan_uses(plan, i))
			plan->left_out[plan->left_outs++] = i;
	return 0;
}

static void fill_memory(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			struct plan *plan)
{
	plan->fits = true;
	plan->over_gib = 0;
	plan->over_device = -1;
	plan->over_host = false;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			struct plan_member *m = &plan->stage[k].member[i];
			m->memory_gib = cost_stage_gib(c, r, q, k, i, plan->stage[k].recompute);
			m->limit_gib = c->limit[m->device];
			if (m->memory_gib <= m->limit_gib)
				continue;
			plan->fits = false;
			if (m->memory_gib - m->limit_gib > plan->over_gib) {
				plan->over_gib = m->memory_gib - m->limit_gib;
				plan->over_device = m->device;
			}
		}
	double most = plan->over_gib;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const int device = plan->stage[k].member[i].device;
			const double over = cost_host_over(c, r, q, c->p->device[device].host);
			plan->stage[k].member[i].host_gib = cost_host_gib(c, r, q, k, i);
			plan->stage[k].member[i].links_gib = cost_links_gib(c, r, q, k, i);
			if (over <= most || cost_is_on_host(c, device))
				continue;
			plan->fits = false;
			plan->over_host = true;
			plan->over_gib = most = over;
			plan->over_device = device;
		}
}

static double member_work(struct cost *c, const struct plan_member *m)
{
	const struct cost_row *r = cost_row(c, m->microbatch);
	return r ? m->microbatches * (r->f[m->device] + r->b[m->device]) : 0;
}

static void fill_share(struct plan_member *m, const struct play_worker *w, double step, double part)
{
	m->busy = w->busy_s / step * part;
	m->copy = w->copy_s / step;
	m->wait = w->wait_s / step;
	m->bubble = fmax(0, 1 - m->busy - m->copy - m->wait);
}

static void fill_shares(struct cost *c, const struct play_result *res, struct plan *plan)
{
	double step = res->step_s > 0 ? res->step_s : 1;

	for (int k = 0, row = 0; k < plan->stages; k++) {
		struct plan_stage *s = &plan->stage[k];
		const struct play_worker *w = &res->worker[row];
		double most = 0;

		if (plan_plays_members(plan, k)) {
			for (int i = 0; i < s->members; i++)
				fill_share(&s->member[i], &res->worker[row++], step, 1);
			continue;
		}
		row++;

		for (int i = 0; i < s->members; i++) {
			double work = member_work(c, &s->member[i]);
			most = work > most ? work : most;
		}
		for (int i = 0; i < s->members; i++) {
			struct plan_member *m = &s->member[i];
			double part = 1;
			/* In a group the device with most work is as busy as the stage, the others
			 * in proportion to their work. */
			if (s->members > 1 && most > 0)
				part = member_work(c, m) / most;
			fill_share(m, w, step, part);
		}
	}
}

/* Where devices share cores it is found by repetition how much they compute at the same time, and
 * how long it then takes (crowd.h). */
static int play(struct cost *c, const struct cost_row *r, const struct pipe *q, bool spans,
		const struct plan *plan, struct play_result *res, double *step_p, struct err *e)
{
	enum { TURNS = 12 };
	const size_t n = (size_t)c->p->devices;
	const bool crowded = crowd_any(c->p);
	double change = 1;
	int rows = 0;
	TRY(cost_play(c, r, q, INFINITY, spans || crowded, res, step_p, e));
	if (!crowded)
		return 0;
	double *now = arena_alloc(&c->mem, n * sizeof *now);
	int *device = arena_alloc(&c->mem, n * sizeof *device);
	c->pace = arena_alloc(&c->mem, n * sizeof *c->pace);
	if (!now || !device || !c->pace)
		return nomem(e);
	for (size_t i = 0; i < n; i++)
		c->pace[i] = 1;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < (plan_plays_members(plan, k) ? plan->stage[k].members : 1); i++)
			device[rows++] = plan->stage[k].member[i].device;
	for (int turn = 0; turn < TURNS && change > 1e-6; turn++) {
		TRY(crowd_pace(c->p, res, device, now, e));
		change = 0;
		for (size_t i = 0; i < n; i++) {
			change = fmax(change, fabs(now[i] - c->pace[i]));
			c->pace[i] = now[i];
		}
		TRY(cost_play(c, r, q, INFINITY, true, res, step_p, e));
	}
	return 0;
}

/* Calls `fn` (MAY be NULL) with every span. */
static int simulate(struct cost *c, const struct profile *p, struct plan *plan, plan_span_fn fn,
		    void *ctx, struct err *e)
{
	struct pipe q = { plan->sched,        plan->stages, plan->chunks, plan->microbatch,
			  plan->microbatches, NULL,         plan->first,  NULL,
			  plan->pass };
	struct play_result res;
	const struct cost_row *r;
	double step;

	q.stage = arena_alloc(&plan->mem, (size_t)plan->stages * sizeof *q.stage);
	if (!q.stage)
		return nomem(e);
	for (int k = 0; k < plan->stages; k++) {
		struct plan_stage *s = &plan->stage[k];
		for (int i = 0; i < s->members; i++) {
			if (!cost_row(c, s->member[i].microbatch))
				return nomem(e);
			if (!plan->pass)
				s->member[i].samples =
					s->member[i].microbatch * s->member[i].microbatches;
		}
		q.stage[k] = (struct pipe_stage){ s->member[0].device, s->recompute,
						  is_single_device(s) ? NULL : s };
	}
	for (int i = 0; plan->pass && i < plan->microbatches; i++)
		if (!cost_row(c, plan->pass[i]))
			return nomem(e);
	if (!cost_row(c, plan->microbatch))
		return nomem(e);
	r = cost_row(c, plan->microbatch);
	if (plan_deals_experts(plan)) {
		TRY(plan_play_experts(c, r, plan, fn, ctx, e));
		judge_executable(plan);
		return leave_out(p, plan, e);
	}
	TRY(cost_groups(c, &q, e));
	if (plan->stages == 1 && q.stage[0].group && !q.shape)
		/* Data parallelism: the group's whole step at once, each with its size. */
		q.microbatches = 1;
	fill_memory(c, r, &q, plan);
	TRY(play(c, r, &q, fn != NULL, plan, &res, &step, e));
	for (size_t i = 0; fn && i < res.spans; i++)
		fn(ctx, &res.span[i]);
	plan->simulated_ms = step * 1e3;
	plan->tokens_per_s = (double)p->global_batch * p->sequence_len / step;
	fill_shares(c, &res, plan);
	judge_executable(plan);
	return leave_out(p, plan, e);
}

int plan_timeline(const struct profile *p, const struct plan_options *o, struct plan *plan,
		  plan_span_fn fn, void *ctx, struct err *e)
{
	struct plan_options own = *o;
	struct cost c;
	int rc;

	own.offload = plan->offload;
	if (plan->reducer && (plan->reducer->exact || own.order != SUM_EXACT))
		own.reducer = plan->reducer;
	TRY(cost_init(&c, p, &own, e));
	rc = simulate(&c, p, plan, fn, ctx, e);
	cost_release(&c);
	return rc;
}

int plan_simulate(const struct profile *p, const struct plan_options *o, struct plan *plan,
		  struct err *e)
{
	return plan_timeline(p, o, plan, NULL, NULL, e);
}

/* Of the step in the order fast (docs/design.md). */
static const double MOST_OF_EXACT = 1.05;

static int refuse_passes(const struct planner *pl, const struct profile *p, struct err *e)
{
	struct buf ids = BUF_INIT;
	for (int i = 0; i < p->devices; i++)
		buf_addf(&ids, "%s%s", i ? ", " : "", p->device[i].id);
	int rc = buf_ok(&ids, e);
	if (rc >= 0)
		rc = err_set(
			e, ERR_USAGE,
			"passes of sizes of their own need a plan of one stage, which planner '%s' "
			"does not make: write 'shard_plan: [{id: [%.300s], start: 0, end: %d}]', "
			"or leave 'passes' out",
			pl->name, ids.p, p->layers);
	buf_release(&ids);
	return rc;
}

/* A plan that was made for microbatches of one size, with the job's passes. */
static int take_passes(const struct profile *p, const struct plan_options *o, struct plan *out,
		       struct err *e)
{
	TRY(plan_set_passes(out, o->pass, o->passes, e));
	TRY(plan_simulate(p, o, out, e));
	if (!out->fits && o->recompute == PLAN_RECOMPUTE_AUTO)
		out->stage[0].recompute = true;
	return 0;
}

/* What is not done together with experts on other members (docs/design.md). */
static int alone_with_experts(const struct plan_options *o, struct err *e)
{
	const char *key = o->recompute == PLAN_RECOMPUTE_ALWAYS ? "gradient_checkpointing"
			  : o->offload && !o->offload_auto      ? "offload"
								: NULL;
	return key ? err_set(e, ERR_USAGE,
			     "'%s' together with experts on other members is not supported: leave "
			     "it out",
			     key)
		   : 0;
}

/* The job may ask for recomputation everywhere. In a given plan that would not fit, groups share
 * their training state, and if that is not enough, stages recompute; other planners have
 * decided. */
static int make_room(const struct planner *pl, const struct profile *p,
		     const struct plan_options *o, struct plan *out, struct err *e)
{
	for (int k = 0; k < out->stages && o->recompute == PLAN_RECOMPUTE_ALWAYS; k++)
		out->stage[k].recompute = true;
	if (!pl->needs_plan)
		return plan_set_offload(p, out, o->offload, o->max_chunks, e);
	TRY(plan_check(p, out, e));
	TRY(plan_simulate(p, o, out, e));
	if (plan_deals_experts(out))
		return alone_with_experts(o, e);
	if (!out->fits && o->share_auto) {
		for (int k = 0; k < out->stages; k++)
			if (!out->stage[k].sharded && !plan_shares_state(&out->stage[k]))
				plan_share_state(p, o, &out->stage[k]);
		TRY(plan_simulate(p, o, out, e));
	}
	if (!out->fits && o->share_auto && out->stages == 1 && out->stage[0].members > 1 &&
	    !o->sched) {
		TRY(plan_shard_values(out, plan_most_chunks(out), e));
		TRY(plan_simulate(p, o, out, e));
	}
	if (o->offload & ~out->offload) {
		TRY(plan_set_offload(p, out, o->offload, o->max_chunks, e));
		TRY(plan_simulate(p, o, out, e));
	}
	if (o->recompute != PLAN_RECOMPUTE_AUTO)
		return 0;
	for (int k = 0; k < out->stages && !out->fits; k++)
		for (int i = 0; i < out->stage[k].members; i++) {
			const struct plan_member *m = &out->stage[k].member[i];
			out->stage[k].recompute |= m->memory_gib > m->limit_gib;
		}
	return 0;
}

static int run_planner(const struct planner *pl, const struct profile *p,
		       const struct plan_options *o, struct plan *out, struct err *e)
{
	int64_t began = clock_now();
	int rc;

	*out = (struct plan){ .mem = ARENA_INIT,
			      .planner = pl->name,
			      .order = o->order ? o->order : SUM_FAST,
			      .predicted_ms = NAN,
			      .objective_ms = NAN,
			      .over_device = -1 };
	if (o->microbatch < 0 || o->microbatch > p->global_batch ||
	    (o->microbatch > 0 && p->global_batch % o->microbatch))
		return err_set(e, ERR_USAGE,
			       "a microbatch of %d does not divide the global batch of %d",
			       o->microbatch, p->global_batch);
	if (o->pass && !pl->needs_plan && !pl->takes_passes && p->devices > 1)
		return refuse_passes(pl, p, e);
	TRYOUT(pl->plan(p, o, out, e));
	if (o->pass && !pl->needs_plan && !out->pass)
		TRYOUT(take_passes(p, o, out, e));
	TRYOUT(make_room(pl, p, o, out, e));
	out->search_ms = clock_seconds(clock_now() - began) * 1e3;
	rc = plan_check(p, out, e);
	if (rc < 0) {
		rc = rc == ERR_NOMEM ? rc : ERR_INTERNAL;
		err_prefix(e, "planner '%s'", pl->name);
		e->code = rc;
		goto out;
	}
	TRYOUT(plan_simulate(p, o, out, e));
	if (isnan(out->predicted_ms))
		out->predicted_ms = out->simulated_ms;
	return 0;
out:
	plan_release(out);
	return rc;
}

static bool has_groups(const struct plan *p)
{
	for (int k = 0; k < p->stages; k++)
		if (p->stage[k].members > 1)
			return true;
	return false;
}

/* Another way of adding up, and offloading where a plan fits without, must be that much faster.
 * What offloading costs is known less well. */
static const double REDUCER_GAIN = 0.99, OFFLOAD_GAIN = 0.95;
static const double TIGHT = 0.8; /* of the memory that a device may use */
enum { EFFORT = 20000000 };      /* planner_best.c */

static int choose_order(const struct planner *pl, const struct profile *p,
			const struct plan_options *o, struct plan *out, struct err *e)
{
	struct plan_options x = *o;
	if (!o->order_auto)
		return run_planner(pl, p, o, out, e);
	x.order_auto = false;
	x.order = SUM_EXACT;
	TRY(run_planner(pl, p, &x, out, e));
	if (out->fits && !has_groups(out))
		return 0;
	const double exact_ms = out->simulated_ms;
	const bool fits = out->fits;
	int rc = 0;
	x.order = SUM_FAST;
	TRYOUT(plan_simulate(p, &x, out, e));
	if (fits && exact_ms <= MOST_OF_EXACT * out->simulated_ms) {
		x.order = SUM_EXACT;
		TRYOUT(plan_simulate(p, &x, out, e));
		return 0;
	}
	plan_release(out);
	return run_planner(pl, p, &x, out, e);
out:
	plan_release(out);
	return rc;
}

/* The way of adding up that is fastest with the links of the groups. */
static int choose_reducer(const struct profile *p, const struct plan_options *o, struct plan *plan,
			  struct err *e)
{
	static const char *const way[] = { "direct", "ring", "tree" };
	const struct reducer *best = plan->reducer; /* a search may have taken one */
	double least = plan->simulated_ms * REDUCER_GAIN;
	if (o->reducer || plan->order != SUM_FAST || o->collective || !has_groups(plan))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(way); i++) {
		plan->reducer = reducer_find(way[i]);
		TRY(plan_simulate(p, o, plan, e));
		if (plan->simulated_ms < least) {
			least = plan->simulated_ms;
			best = plan->reducer;
		}
	}
	plan->reducer = best;
	return plan_simulate(p, o, plan, e);
}

static int with_reducer(const struct planner *pl, const struct profile *p,
			const struct plan_options *o, struct plan *out, struct err *e)
{
	TRY(choose_order(pl, p, o, out, e));
	const double said = out->predicted_ms, before = out->simulated_ms;
	int rc = pl->chooses_rest && out->fits ? choose_reducer(p, o, out, e) : 0;
	if (rc < 0)
		plan_release(out);
	else if (said == before)
		out->predicted_ms = out->simulated_ms;
	return rc;
}

/* Whether memory has cost time, or could: somebody is nearly full, or does something for it. */
static bool is_tight(const struct plan_options *o, const struct plan *plan)
{
	for (int k = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		if (s->recompute && o->recompute == PLAN_RECOMPUTE_AUTO)
			return true;
		for (int i = 0; i < s->members; i++)
			if (s->member[i].memory_gib > TIGHT * s->member[i].limit_gib)
				return true;
	}
	return false;
}

int planner_run(const struct planner *pl, const struct profile *p, const struct plan_options *o,
		struct plan *out, struct err *e)
{
	struct plan_options x = *o;
	int rc = with_reducer(pl, p, o, out, e);
	bool fits = rc >= 0 && out->fits;
	if (!o->offload_auto || (rc < 0 && rc != ERR_USAGE) || !plan_can_offload(p) ||
	    (fits && (!pl->chooses_rest || !is_tight(o, out))))
		return rc;
	if (fits) /* a look beside it, not a search of the same size */
		x.effort = (o->effort > 0 ? o->effort : EFFORT) / 10;
	for (int k = 0; (x.offload = plan_offload_at(p, k)); k++) {
		struct plan next;
		struct err ignored = { 0 };
		int done = with_reducer(pl, p, &x, &next, &ignored);
		if (done >= 0 && next.fits &&
		    (!fits || next.simulated_ms < OFFLOAD_GAIN * out->simulated_ms)) {
			const double search_ms = fits ? out->search_ms : 0;
			if (rc >= 0)
				plan_release(out);
			err_clear(e);
			*out = next;
			out->search_ms += search_ms;
			rc = 0;
			if (!fits)
				return 0;
			continue;
		}
		if (done >= 0)
			plan_release(&next);
		else if (done != ERR_USAGE)
			break;
	}
	return rc;
}
