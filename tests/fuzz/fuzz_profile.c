/* SPDX-License-Identifier: Apache-2.0 */
/* A profile from anywhere: it is read or refused with one line; what was read survives the way
 * through JSON, and small ones go through every planner, whose plans are whole. */
#include "base/buf.h"
#include "base/err.h"
#include "plan/plan.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_planner(const struct planner *row, const struct profile *p)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct plan plan;
	struct err e = { 0 };
	o.effort = 20000;
	o.groups = true;
	int rc = planner_run(row, p, &o, &plan, &e);
	if (rc == ERR_INTERNAL || (rc < 0 && (!e.msg[0] || strchr(e.msg, '\n'))))
		abort();
	if (rc < 0)
		return;
	if (!(plan.simulated_ms >= 0) || plan_check(p, &plan, &e) < 0)
		abort();
	plan_release(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct err e = { 0 };
	struct profile p, q;
	int rc = profile_read_text(&p, (const char *)data, n, "fuzz.json", &e);
	if (rc < 0) {
		if (!e.msg[0] || strchr(e.msg, '\n'))
			abort();
		return 0;
	}
	struct buf text = BUF_INIT;
	profile_write(&p, &text);
	if (profile_read_text(&q, text.p, text.n, "again.json", &e) < 0)
		abort();
	buf_release(&text);
	profile_release(&q);
	if (p.devices <= 3 && p.layers <= 6 && p.global_batch <= 8)
		for (size_t i = 0; planner_at(i); i++)
			try_planner(planner_at(i), &p);
	profile_release(&p);
	return 0;
}
