/* SPDX-License-Identifier: Apache-2.0 */
/* rebalance.c - see rebalance.h. */
#include "plan/rebalance.h"

#include "base/err.h"

#include <math.h>

/* Instructions that a planner simulates at most while the job waits: about 0.1 s. */
enum { EFFORT = 2000000 };

static double horizon_of(uint64_t left)
{
	return left < REBALANCE_STEPS ? (double)left : REBALANCE_STEPS;
}

bool rebalance_may_pay(double step_s, double gain, uint64_t left, double moving_s)
{
	return step_s * (1 - gain) * horizon_of(left) > moving_s;
}

/* The time of the next steps with a plan, and with moving to it. */
static double total_of(const struct rebalance *r, const struct plan *plan, double *moving_p)
{
	*moving_p = r->moving * plan_move_seconds(r->p, r->now, plan);
	return plan->simulated_ms / 1e3 * horizon_of(r->left) + *moving_p;
}

/* Takes `next` (and releases it otherwise) where it pays, and beats what was found before. */
static void offer(const struct rebalance *r, struct plan *next, bool shares, double *best,
		  struct rebalance_answer *a)
{
	double moving;
	const double total = total_of(r, next, &moving), now = a->now_s * horizon_of(r->left);
	/* layers must gain that much beyond what shares alone do */
	const double limit = a->moves && a->shares ? *best - r->gain * now : *best;
	if (!next->fits || !next->executable || !(total < limit) ||
	    !(now - total > r->gain * now)) {
		plan_release(next);
		return;
	}
	if (a->moves)
		plan_release(&a->plan);
	a->moves = true;
	a->shares = shares;
	a->plan = *next;
	a->next_s = next->simulated_ms / 1e3;
	a->moving_s = moving;
	*best = total;
}

static int fresh(const struct rebalance *r, struct plan *out, struct err *e)
{
	struct plan_options x = *r->o;
	x.effort = EFFORT;
	x.manual = NULL;
	x.order = r->now->order;
	x.order_auto = false;
	if (!x.pass)
		x.microbatch = r->now->microbatch;
	return planner_run(r->planner, r->p, &x, out, e);
}

/* A candidate that cannot be made is none. */
static int passed(int rc, struct err *e)
{
	if (rc >= 0 || rc == ERR_NOMEM)
		return rc;
	err_clear(e);
	return 1;
}

int rebalance_choose(const struct rebalance *r, struct rebalance_answer *a, struct err *e)
{
	static const enum plan_near near[] = { NEAR_SHARES, NEAR_LAYERS };
	double best = INFINITY;
	struct plan next;
	*a = (struct rebalance_answer){ 0 };
	TRY(plan_near(r->p, r->o, r->now, NEAR_NOTHING, &next, e));
	a->now_s = next.simulated_ms / 1e3;
	plan_release(&next);
	int rc = 0;
	for (int k = 0; k < 2 && rc >= 0; k++) {
		rc = passed(plan_near(r->p, r->o, r->now, near[k], &next, e), e);
		if (rc == 0)
			offer(r, &next, near[k] == NEAR_SHARES, &best, a);
	}
	if (rc >= 0 && r->planner && !r->planner->needs_plan) {
		rc = passed(fresh(r, &next, e), e);
		if (rc == 0)
			offer(r, &next, false, &best, a);
	}
	if (rc < 0 && a->moves)
		plan_release(&a->plan);
	return rc < 0 ? rc : 0;
}
