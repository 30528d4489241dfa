/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - see explain.h. It decides which facts are worth a sentence; the command line prints
 * the tables of a plan. */
#include "plan/explain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/experts.h"

#define EFFORT 20000000
#define LEAST_EFFORT 200000

static struct plan_options lighter_options(const struct plan_options *o, int runs)
{
	struct plan_options mine = *o;
	int64_t effort = (o->effort > 0 ? o->effort : EFFORT) / (runs > 0 ? runs : 1);

	mine.effort = effort > LEAST_EFFORT ? effort : LEAST_EFFORT;
	return mine;
}

/* Milliseconds with about four digits. */
static int decimal_places(double ms) { return ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 10 ? 2 : 3; }

/* 0 with *ms_p, or 1 when there is no such plan. */
static int best_ms(const struct profile *p, const struct plan_options *o, double *ms_p,
		   struct err *e)
{
	struct plan plan;
	int rc = planner_run(planner_default(), p, o, &plan, e);

	if (rc == ERR_NOMEM || rc == ERR_INTERNAL)
		return rc;
	if (rc < 0) {
		err_clear(e);
		return 1;
	}
	*ms_p = plan.simulated_ms;
	plan_release(&plan);
	return 0;
}

int plan_whatifs(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		 struct plan_whatif *out, struct err *e)
{
	struct plan_options mine = lighter_options(o, p->devices);

	mine.manual = NULL;
	for (int i = 0; i < p->devices; i++) {
		int rc = 1;

		out[i] = (struct plan_whatif){ .device = i,
					       .used = plan_uses(plan, i),
					       .ms = INFINITY };
		mine.must_use = -1;
		if (!out[i].used) {
			mine.must_use = i;
			rc = best_ms(p, &mine, &out[i].ms, e);
		} else if (p->devices > 1) {
			/* the same profile with one device fewer; nothing else is copied */
			struct profile less = *p;
			less.device = mem_array((size_t)p->devices, sizeof *less.device);
			if (!less.device)
				return err_set(e, ERR_NOMEM, "out of memory for an explanation");
			memcpy(less.device, p->device, (size_t)i * sizeof *less.device);
			memcpy(less.device + i, p->device + i + 1,
			       (size_t)(p->devices - i - 1) * sizeof *less.device);
			less.devices--;
			rc = best_ms(&less, &mine, &out[i].ms, e);
			mem_free(less.device);
		}
		if (rc < 0)
			return rc;
		out[i].possible = rc == 0;
	}
	return 0;
}

/* ---- the second best ---- */

struct shares {
	double busy, copy, wait, bubble;
	int recompute, devices;
};

static struct shares average(const struct plan *plan)
{
	struct shares s = { 0 };

	for (int k = 0; k < plan->stages; k++) {
		s.recompute += plan->stage[k].recompute;
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			s.busy += m->busy * plan->simulated_ms;
			s.copy += m->copy * plan->simulated_ms;
			s.wait += m->wait * plan->simulated_ms;
			s.bubble += m->bubble * plan->simulated_ms;
			s.devices++;
		}
	}
	s.busy /= s.devices;
	s.copy /= s.devices;
	s.wait /= s.devices;
	s.bubble /= s.devices;
	return s;
}

/* The share of a step in which a device of the plan, on average, does not compute. */
static double waits(const struct plan *plan)
{
	return plan->simulated_ms > 0 ? 1 - average(plan).busy / plan->simulated_ms : 0;
}

/* Which part of the step grew most from `best` to `other`, per device on average. */
static void explain_slower(const struct plan *best, const struct plan *other, char *why, size_t cap)
{
	struct shares a = average(best), b = average(other);
	double busy = b.busy - a.busy, wait = b.wait - a.wait + b.copy - a.copy,
	       bubble = b.bubble - a.bubble;

	if (b.recompute > a.recompute && busy >= wait && busy >= bubble)
		snprintf(why, cap,
			 "%d stages instead of %d must compute their layers twice to fit into "
			 "memory",
			 b.recompute, a.recompute);
	else if (busy >= wait && busy >= bubble)
		snprintf(why, cap, "its devices compute %.*f ms a step on average instead of %.*f",
			 decimal_places(b.busy), b.busy, decimal_places(a.busy), a.busy);
	else if (wait >= bubble)
		snprintf(why, cap,
			 "its devices wait for messages %.*f ms a step on average instead of %.*f",
			 decimal_places(b.wait + b.copy), b.wait + b.copy,
			 decimal_places(a.wait + a.copy), a.wait + a.copy);
	else
		snprintf(why, cap,
			 "its devices are idle between microbatches %.*f ms a step on average "
			 "instead of %.*f",
			 decimal_places(b.bubble), b.bubble, decimal_places(a.bubble), a.bubble);
}

static int rival(const struct profile *p, const struct planner *row, const struct plan_options *o,
		 const struct plan *best, const char *what, struct plan_rival *out, struct err *e)
{
	struct plan other;
	int rc = planner_run(row, p, o, &other, e);

	if (rc == ERR_NOMEM || rc == ERR_INTERNAL)
		return rc;
	if (rc < 0) {
		err_clear(e);
		return 0;
	}
	if (other.fits && other.executable && (!out->any || other.simulated_ms < out->ms)) {
		out->any = true;
		out->ms = other.simulated_ms;
		out->devices = average(&other).devices;
		out->waits = waits(&other);
		snprintf(out->what, sizeof out->what, "%s", what);
		explain_slower(best, &other, out->why, sizeof out->why);
	}
	plan_release(&other);
	return 0;
}

static bool has_groups(const struct plan *plan)
{
	for (int k = 0; k < plan->stages; k++)
		if (plan->stage[k].members > 1)
			return true;
	return false;
}

static int without_groups(const struct profile *p, const struct plan_options *o,
			  const struct plan *plan, struct plan_rival *out, struct err *e)
{
	struct plan_options alone = *o;
	struct plan_rival r = { .ms = INFINITY };
	alone.groups = false;
	if (!has_groups(plan))
		return 0;
	TRY(rival(p, planner_default(), &alone, plan, "no groups", &r, e));
	if (r.any)
		out->pipeline_ms = r.ms;
	out->pipeline_waits = r.waits;
	out->pipeline_devices = r.devices;
	snprintf(out->pipeline_why, sizeof out->pipeline_why, "%s", r.why);
	return 0;
}

int plan_second_best(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		     struct plan_rival *out, struct err *e)
{
	struct plan_options mine = lighter_options(o, 8);
	char what[160];

	*out = (struct plan_rival){ .ms = INFINITY, .pipeline_ms = NAN };
	TRY(without_groups(p, &mine, plan, out, e));
	for (size_t i = 0; sched_at(i) && !o->sched && plan->stages > 1; i++) {
		if (sched_at(i) == plan->sched || sched_at(i)->gathers || sched_at(i)->turns)
			continue;
		mine.sched = sched_at(i);
		snprintf(what, sizeof what, "schedule %s", mine.sched->name);
		TRY(rival(p, planner_default(), &mine, plan, what, out, e));
	}
	mine.sched = o->sched;
	for (int m = 1; m <= p->global_batch && o->microbatch == 0; m++) {
		if (p->global_batch % m || m == plan->microbatch || m > 4 * plan->microbatch ||
		    4 * m < plan->microbatch)
			continue;
		mine.microbatch = m;
		snprintf(what, sizeof what, "microbatches of %d", m);
		TRY(rival(p, planner_default(), &mine, plan, what, out, e));
	}
	mine.microbatch = o->microbatch;
	if (plan->stages > 1) {
		TRY(rival(p, &planner_proportional, &mine, plan,
			  "layers in proportion to speed on all devices, in the order given", out,
			  e));
		TRY(rival(p, &planner_even, &mine, plan,
			  "the same number of layers on every device", out, e));
	}
	return 0;
}

/* ---- sentences ---- */

static const char *device_id(const struct profile *p, int device) { return p->device[device].id; }

/* Which figures are no measurements. */
static void put_estimated(const struct profile *p, struct buf *b)
{
	int n = 0;

	for (int i = 0; i < p->devices; i++)
		if (p->device[i].estimated)
			buf_addf(b, "%s%s", n++ ? ", " : "Estimated: the times of ",
				 p->device[i].id);
	if (n)
		buf_addf(b,
			 " come from data sheets and from what others measured, not from %s: "
			 "measure before you buy much.\n",
			 n == 1 ? "this device" : "these devices");
}

static void put_limits(const struct profile *p, const struct plan_options *o,
		       const struct plan *plan, struct buf *b)
{
	const struct plan_member *most = NULL, *full = NULL, *waits = NULL;

	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			if (!most || m->busy > most->busy)
				most = m;
			if (!full ||
			    m->memory_gib / m->limit_gib > full->memory_gib / full->limit_gib)
				full = m;
			if (!waits || m->wait > waits->wait)
				waits = m;
		}
	if (most)
		buf_addf(b, "%s limits the job: it computes %.0f %% of the step%s.\n",
			 device_id(p, most->device), 100 * most->busy,
			 waits && waits->wait > 0.15 ? ", but links cost more than they should"
						     : "");
	if (waits && waits->wait > 0.05)
		buf_addf(b, "%s waits for its link %.0f %% of the step.\n",
			 device_id(p, waits->device), 100 * waits->wait);
	if (full && full->memory_gib > 0.8 * full->limit_gib)
		buf_addf(b, "%s will be the fullest: %.2f of %.2f GiB.\n",
			 device_id(p, full->device), full->memory_gib, full->limit_gib);
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			if (plan->stage[k].member[i].host_gib > 0)
				buf_addf(b, "%s keeps %.2f GiB in the memory of its host.\n",
					 device_id(p, plan->stage[k].member[i].device),
					 plan->stage[k].member[i].host_gib);
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			if (p->device[m->device].on_host && m->memory_gib <= m->limit_gib &&
			    m->memory_gib + m->links_gib > m->limit_gib)
				buf_addf(
					b,
					"Messages on the links of %s take up to %.2f GiB more, and "
					"%.2f GiB are left (memory_reserve).\n",
					device_id(p, m->device), m->links_gib,
					m->limit_gib - m->memory_gib);
		}
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; plan_shares_state(&plan->stage[k]) && i < plan->stage[k].members;
		     i++)
			buf_addf(b, "%s stores %.0f %% of the training state of its group.\n",
				 device_id(p, plan->stage[k].member[i].device),
				 100 * plan->stage[k].member[i].state_share);
	for (int k = 0; k < plan->stages && o->recompute == PLAN_RECOMPUTE_AUTO; k++)
		for (int i = 0; plan->stage[k].recompute && !plan->stage[k].sharded &&
				i < plan->stage[k].members;
		     i++)
			buf_addf(b,
				 "%s computes its layers twice (recomputation), because it would "
				 "not fit otherwise.\n",
				 device_id(p, plan->stage[k].member[i].device));
}

/* "7.3 % slower", "12 times as long" */
static void put_change(struct buf *b, double ms, double than)
{
	double ratio = ms / than;

	if (ratio < 2)
		buf_addf(b, "%.1f %% %s", 100 * fabs(ratio - 1), ratio < 1 ? "faster" : "slower");
	else
		buf_addf(b, "%.*f times as long", ratio < 10 ? 1 : 0, ratio);
}

/* What was covered, and what was not. */
static void put_proof(const struct plan_options *o, struct buf *b)
{
	buf_adds(b, "No pipeline with one device a stage");
	if (o->sched || o->microbatch > 0)
		buf_adds(b, " (");
	if (o->sched)
		buf_addf(b, "schedule %s%s", o->sched->name, o->microbatch > 0 ? ", " : ")");
	if (o->microbatch > 0)
		buf_addf(b, "microbatches of %d)", o->microbatch);
	buf_adds(b, " is faster: all were tried.");
	buf_addf(b, " Stages that several devices share were %s.\n",
		 o->groups ? "tried too, but not all of them" : "not tried (--no-groups)");
}

/* "Experts of layers 8 to 31 on old1 (40 of 64), old2 (24 of 64); attention on new: 1.90 times the
 * speed of the fastest pipeline, which takes 4980 ms." */
static void put_experts(const struct profile *p, const struct plan *plan, int k,
			const struct plan_rival *r, struct buf *b)
{
	const struct plan_stage *s = &plan->stage[k];
	int n = 0, from = plan->first[k], to = plan->first[k + 1] - 1;
	plan_experts_away(plan, k, &from, &to);
	buf_addf(b, "Experts of layers %d to %d on ", from, to);
	for (int i = 0; i < s->members; i++) {
		int has = 0;
		for (int l = from; l <= to; l++)
			for (int x = 0; x < s->experts; x++)
				has += s->deal[(l - plan->first[k]) * s->experts + x] == i;
		if (has)
			buf_addf(b, "%s%s (%d of %d)", n++ ? ", " : "",
				 device_id(p, s->member[i].device),
				 (int)lround((double)has / (to - from + 1)), s->experts);
	}
	buf_adds(b, "; attention on ");
	for (int i = 0; i < s->homes; i++)
		buf_addf(b, "%s%s", i ? ", " : "", device_id(p, s->member[i].device));
	if (r && !isnan(r->pipeline_ms))
		buf_addf(b, ": %.2f times the speed of the fastest pipeline, which takes %.*f ms",
			 r->pipeline_ms / plan->simulated_ms, decimal_places(r->pipeline_ms),
			 r->pipeline_ms);
	buf_adds(b, ".\n");
}

/* "a, b and c form a group, because a pipeline of three would wait 31 % of its step: 4980 ms,
 * 4.7 % slower." */
static void put_groups(const struct profile *p, const struct plan *plan, const struct plan_rival *r,
		       struct buf *b)
{
	for (int k = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		if (s->deal) {
			put_experts(p, plan, k, r, b);
			continue;
		}
		for (int i = 0; s->members > 1 && i < s->members; i++)
			buf_addf(b, "%s%s", device_id(p, s->member[i].device),
				 i + 2 < s->members   ? ", "
				 : i + 1 < s->members ? " and "
						      : " form a group");
		if (s->members < 2)
			continue;
		if (!r || isnan(r->pipeline_ms)) {
			buf_adds(b, r ? ", because no pipeline fits into memory.\n" : ".\n");
			continue;
		}
		const bool waiting = r->pipeline_devices > 1 && r->pipeline_waits > waits(plan);
		buf_adds(b, ", because ");
		if (waiting)
			buf_addf(b, "a pipeline of %d would wait %.0f %% of its step: ",
				 r->pipeline_devices, 100 * r->pipeline_waits);
		else
			buf_addf(b, "the fastest plan without groups, of %d, takes ",
				 r->pipeline_devices);
		buf_addf(b, "%.*f ms, ", decimal_places(r->pipeline_ms), r->pipeline_ms);
		put_change(b, r->pipeline_ms, plan->simulated_ms);
		buf_addf(b, waiting ? ".\n" : ": %s.\n", r->pipeline_why);
	}
}

void plan_explain(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		  const struct plan_whatif *whatif, const struct plan_rival *second, struct buf *b)
{
	double ms = plan->simulated_ms;

	put_estimated(p, b);
	put_limits(p, o, plan, b);
	put_groups(p, plan, second, b);
	if (second && second->any) {
		if (second->ms / ms < 1.0005) {
			buf_addf(b, "As fast: %s.\n", second->what);
		} else {
			buf_addf(b, "Second best: %s, ", second->what);
			put_change(b, second->ms, ms);
			buf_addf(b, " (%.*f ms): %s.\n", decimal_places(second->ms), second->ms,
				 second->why);
		}
	}
	for (int i = 0; whatif && i < p->devices; i++) {
		const struct plan_whatif *w = &whatif[i];
		double change = 100 * (w->ms / ms - 1);
		if (w->used && !w->possible)
			buf_addf(b, "Without %s there is no plan%s.\n", device_id(p, i),
				 p->devices > 1 ? " that fits into memory" : "");
		else if (w->used) {
			buf_addf(b, "Without %s: %.*f ms, ", device_id(p, i), decimal_places(w->ms),
				 w->ms);
			put_change(b, w->ms, ms);
			if (change < -0.05)
				buf_addf(b, " (--without %s)", device_id(p, i));
			buf_adds(b, ".\n");
		} else if (!w->possible)
			buf_addf(b, "%s is left out: no plan that uses it fits.\n",
				 device_id(p, i));
		else if (change < 0.05)
			buf_addf(b, "%s is left out: it would change nothing.\n", device_id(p, i));
		else
			buf_addf(b,
				 "%s is left out: with it %.*f ms a step, without it %.*f ms "
				 "(%.1f %% less).\n",
				 device_id(p, i), decimal_places(w->ms), w->ms, decimal_places(ms),
				 ms, 100 * (1 - ms / w->ms));
	}
	if (!plan->executable)
		buf_addf(b, "This plan cannot be executed today: %s.\n", plan->why_not);
	if (plan->proven)
		put_proof(o, b);
}
