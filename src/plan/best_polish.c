/* SPDX-License-Identifier: Apache-2.0 */
/* best_polish.c - what is left to choose when the stages of a plan and their groups are decided:
 * which member computes how much, and which part of the training state each stores.
 *
 * Microbatches were dealt by the speed of computing alone, and state by memory. Where a member also
 * waits for a slow link, or a slow processor would update the larger part of the state because it
 * has the larger memory, other shares are faster: one microbatch (where passes have several sizes,
 * one row), or a part of the state, goes from one member to another as long as that helps. */
#include "plan/search.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* a change must gain that much */
#define GAIN 0.9995
/* of the state, of every member */
#define LEAST_SHARE 0.005
/* of the members of a group, the busiest give to the least busy ones */
enum { GIVE = 4, ROUNDS = 64 };

struct polish {
	const struct profile *p;
	const struct plan_options *o;
	struct plan *plan;
	int64_t left; /* instructions that may still be simulated */
	bool changed; /* since the last simulation that was kept */
	double ms;    /* of the plan as it is kept */
};

static int64_t simulation(const struct plan *plan)
{
	int64_t members = 0;
	for (int k = 0; k < plan->stages; k++)
		members += plan->stage[k].members;
	return 200 + 6 * members * plan->microbatches * plan->chunks;
}

/* 1: what was changed is faster, and is kept. */
static int is_faster(struct polish *x, struct err *e)
{
	x->left -= simulation(x->plan);
	x->changed = true;
	TRY(plan_simulate(x->p, x->o, x->plan, e));
	if (!x->plan->fits || !x->plan->executable || !(x->plan->simulated_ms < x->ms * GAIN))
		return 0;
	x->ms = x->plan->simulated_ms;
	x->changed = false;
	return 1;
}

static bool shares(const struct plan_stage *s) { return s->sharded || plan_shares_state(s); }

/* The members of a stage, the busiest first. */
static int by_work(const struct plan_stage *s, int *order)
{
	const int n = s->members;
	for (int i = 0; i < n; i++) {
		int at = i;
		for (; at > 0 && s->member[order[at - 1]].busy < s->member[i].busy; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	return n;
}

/* Row by row from a pass of member i to one of member j. */
static int move_row(struct polish *x, int i, int j, struct err *e)
{
	struct plan *plan = x->plan;
	const struct plan_stage *s = &plan->stage[0];
	const int n = plan->microbatches, *was = plan->pass;
	int share[SCHED_MAX_GROUP], from = -1, to = -1, rc;
	int *place = mem_array((size_t)n, sizeof *place),
	    *pass = mem_array((size_t)n, sizeof *pass);
	if (!place || !pass) {
		rc = err_nomem(e, (size_t)n * sizeof *pass, "a plan's search");
		goto out;
	}
	cost_shares(s, share);
	sched_deal(share, s->members, n, place);
	memcpy(pass, was, (size_t)n * sizeof *pass);
	for (int k = 0; k < n; k++) { /* from its largest to the smallest of the other one */
		if (place[k] == i && (from < 0 || pass[k] > pass[from]))
			from = k;
		if (place[k] == j && (to < 0 || pass[k] < pass[to]))
			to = k;
	}
	rc = 0;
	if (from < 0 || to < 0 || pass[from] < 2)
		goto out;
	pass[from]--;
	pass[to]++;
	rc = plan_set_passes(plan, pass, n, e);
	if (rc >= 0)
		rc = is_faster(x, e);
	if (rc == 0)
		rc = plan_set_passes(plan, was, n, e);
out:
	mem_free(place);
	mem_free(pass);
	return rc;
}

static int move_microbatch(struct polish *x, struct plan_stage *s, int i, int j, struct err *e)
{
	int sum = 0;
	for (int k = 0; k < s->members; k++)
		sum += s->member[k].share;
	if (sum || s->member[i].microbatches < 2)
		return 0;
	s->member[i].microbatches--;
	s->member[j].microbatches++;
	const int rc = is_faster(x, e);
	if (rc == 0) {
		s->member[i].microbatches++;
		s->member[j].microbatches--;
	}
	return rc;
}

static int move_state(struct polish *x, struct plan_stage *s, int i, int j, double part,
		      struct err *e)
{
	const double a = s->member[i].state_share, b = s->member[j].state_share,
		     some = fmin(part, a - LEAST_SHARE);
	if (!(some > 1e-3))
		return 0;
	s->member[i].state_share = a - some;
	s->member[j].state_share = b + some;
	const int rc = is_faster(x, e);
	if (rc == 0) {
		s->member[i].state_share = a;
		s->member[j].state_share = b;
	}
	return rc;
}

/* One change of a stage that is faster; 0: none was found. */
static int change_work(struct polish *x, struct plan_stage *s, struct err *e)
{
	int order[SCHED_MAX_GROUP];
	const int n = by_work(s, order), most = n < GIVE ? n : GIVE;
	for (int a = 0; a < most; a++)
		for (int b = 0; b < most && x->left > 0; b++) {
			const int i = order[a], j = order[n - 1 - b];
			int rc = 0;
			if (i != j && !x->plan->pass)
				rc = move_microbatch(x, s, i, j, e);
			else if (i != j && !x->o->pass && !x->o->keep_passes)
				rc = move_row(x, i, j, e);
			if (rc)
				return rc;
		}
	return 0;
}

static int change_state(struct polish *x, struct plan_stage *s, struct err *e)
{
	for (double part = 0.32; part > 0.01; part /= 2)
		for (int i = 0; i < s->members; i++)
			for (int j = 0; j < s->members && x->left > 0; j++) {
				const int rc = i == j ? 0 : move_state(x, s, i, j, part, e);
				if (rc)
					return rc;
			}
	return 0;
}

int search_polish(const struct profile *p, const struct plan_options *o, int64_t effort,
		  struct plan *plan, struct err *e)
{
	struct polish x = { .p = p, .o = o, .plan = plan, .left = effort };
	TRY(plan_simulate(p, o, plan, e));
	x.ms = plan->simulated_ms;
	for (int k = 0; plan->fits && k < plan->stages; k++) {
		struct plan_stage *s = &plan->stage[k];
		int rc = s->members > 1 && s->members <= SCHED_MAX_GROUP;
		for (int i = 0; rc > 0 && i < ROUNDS; i++) {
			rc = change_work(&x, s, e);
			if (rc == 0 && shares(s))
				rc = change_state(&x, s, e);
		}
		if (rc < 0)
			return rc;
	}
	return x.changed ? plan_simulate(p, o, plan, e) : 0;
}

/* ---- state by speed, and by what is left ---- */

void search_share(const struct profile *p, const struct plan_options *o, struct plan_stage *s)
{
	double all = 0;
	for (int i = 0; i < s->members; i++) {
		const double ms = p->device[s->member[i].device].optimizer_ms;
		all += ms > 0 ? 1 / ms : INFINITY;
	}
	plan_share_state(p, o, s);
	for (int i = 0; s->members > 1 && all < INFINITY && i < s->members; i++)
		s->member[i].state_share = 1 / p->device[s->member[i].device].optimizer_ms / all;
}

/* A stage whose members need more memory than they may, though all together they do not. */
static bool could_fit(const struct plan_stage *s)
{
	double over = 0;
	bool any = false;
	for (int i = 0; i < s->members; i++) {
		over += s->member[i].memory_gib - s->member[i].limit_gib;
		any = any || s->member[i].memory_gib > s->member[i].limit_gib;
	}
	return shares(s) && any && over < 0;
}

/* Shares from a to b: what a member needs is a line. *all_p: the shares for which there is room. */
static void by_room(struct plan_stage *s, const struct plan_member *a, double *room, double *all_p)
{
	double gib = 0, share = 0;
	for (int i = 0; i < s->members; i++) {
		const double d = s->member[i].state_share - a[i].state_share;
		gib += fabs(s->member[i].memory_gib - a[i].memory_gib);
		share += fabs(d);
	}
	*all_p = 0;
	for (int i = 0; i < s->members; i++) {
		const double each = share > 0 ? gib / share : 0,
			     rest = a[i].limit_gib - a[i].memory_gib + each * a[i].state_share;
		room[i] = each > 0 && rest > 0 ? rest / each : 0;
		*all_p += room[i];
	}
}

int search_room(const struct profile *p, const struct plan_options *o, struct plan *plan,
		struct err *e)
{
	for (int k = 0; k < plan->stages; k++) {
		struct plan_stage *s = &plan->stage[k];
		double room[SCHED_MAX_GROUP], all;
		if (s->members > SCHED_MAX_GROUP || !could_fit(s))
			continue;
		struct plan_member *was = mem_array((size_t)s->members, sizeof *was);
		if (!was)
			return err_nomem(e, (size_t)s->members * sizeof *was, "a plan's search");
		memcpy(was, s->member, (size_t)s->members * sizeof *was);
		/* half of the first one's to the last one */
		const int last = s->members - 1;
		const double half = s->member[0].state_share / 2;
		s->member[0].state_share -= half;
		s->member[last].state_share += half;
		int rc = plan_simulate(p, o, plan, e);
		if (rc >= 0) {
			by_room(s, was, room, &all);
			for (int i = 0; i < s->members; i++)
				s->member[i].state_share =
					all >= 1 ? room[i] / all : was[i].state_share;
			rc = plan_simulate(p, o, plan, e);
		}
		mem_free(was);
		if (rc < 0)
			return rc;
	}
	return 0;
}
