/* SPDX-License-Identifier: Apache-2.0 */
/* alone.c - see alone.h. */
#include "plan/alone.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static int one_alone(const struct profile *p, const struct plan_options *o, int device,
		     struct plan_alone *out, struct err *e)
{
	struct profile one = *p;
	struct plan_options mine = *o;
	struct profile_device d = p->device[device];
	struct plan plan;

	one.device = &d;
	one.devices = 1;
	mine.manual = NULL;
	mine.must_use = -1;
	mine.groups = false;
	*out = (struct plan_alone){ .ms = NAN, .tokens_per_s = NAN };
	int rc = planner_run(planner_default(), &one, &mine, &plan, e);
	if (rc == ERR_NOMEM || rc == ERR_INTERNAL)
		return rc;
	if (rc < 0) {
		snprintf(out->why, sizeof out->why, "%.230s", e->msg);
		err_clear(e);
		return 0;
	}
	out->fits = plan.fits;
	if (plan.fits) {
		out->ms = plan.simulated_ms;
		out->tokens_per_s = plan.tokens_per_s;
	} else {
		snprintf(out->why, sizeof out->why, "it needs %.2f GiB more", plan.over_gib);
	}
	plan_release(&plan);
	return 0;
}

int plan_alone(const struct profile *p, const struct plan_options *o, struct plan_alone *out,
	       struct err *e)
{
	for (int i = 0; i < p->devices; i++)
		TRY(one_alone(p, o, i, &out[i], e));
	return 0;
}

struct plan_sum plan_sum(const struct plan_alone *a, int n)
{
	struct plan_sum s = { .fastest = -1 };

	for (int i = 0; i < n; i++) {
		if (!a[i].fits)
			continue;
		s.fit++;
		s.tokens_per_s += a[i].tokens_per_s;
		if (s.fastest < 0 || a[i].tokens_per_s > a[s.fastest].tokens_per_s)
			s.fastest = i;
	}
	return s;
}

struct plan_lost plan_lost(const struct plan *plan)
{
	struct plan_lost l = { 0 };
	int n = 0;

	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++, n++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			l.busy += m->busy;
			l.copy += m->copy;
			l.wait += m->wait;
			l.idle += m->bubble;
		}
	n = n ? n : 1;
	return (struct plan_lost){ l.busy / n, l.copy / n, l.wait / n, l.idle / n };
}

void plan_lost_text(const struct plan_lost *l, char *s, size_t cap)
{
	const double links = l->wait + l->copy;

	snprintf(s, cap,
		 "of a step the devices compute %.0f %%, pass messages on or wait for them %.0f %% "
		 "and have nothing to do %.0f %%: %s",
		 100 * l->busy, 100 * links, 100 * l->idle,
		 l->busy > 0.85    ? "they compute more slowly than alone (shared processors, or "
				     "work done twice)"
		 : links > l->idle ? "the links cost most"
				   : "waiting for each other costs most");
}
