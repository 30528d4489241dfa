/* SPDX-License-Identifier: Apache-2.0 */
/* plan_alone.c - see plan_alone.h. */
#include "cli/plan_alone.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "plan/alone.h"

#include <stdio.h>
#include <string.h>

/* Each device alone, predicted; NULL when memory is out. */
static struct plan_alone *alone_of(const struct job_plan *j, struct err *e)
{
	struct plan_alone *a = mem_array((size_t)j->profile.devices, sizeof *a);
	int rc = a ? plan_alone(&j->profile, &j->options, a, e)
		   : err_nomem(e, sizeof *a, "a comparison");
	if (rc >= 0)
		return a;
	mem_free(a);
	return NULL;
}

int plan_alone_json(const struct job_plan *j, struct err *e)
{
	const struct profile *p = &j->profile;
	struct plan_alone *a = alone_of(j, e);
	struct buf b = BUF_INIT;
	if (!a)
		return e->code;
	const struct plan_sum s = plan_sum(a, p->devices);
	for (int i = 0; i < p->devices; i++) {
		buf_adds(&b, i ? ",\n{\"id\": " : "{\"id\": ");
		json_quote(&b, p->device[i].id, strlen(p->device[i].id));
		buf_addf(&b, ", \"fits\": %s", a[i].fits ? "true" : "false");
		if (a[i].fits)
			buf_addf(&b, ", \"simulated_ms\": %.6g, \"tokens_per_second\": %.6g}",
				 a[i].ms, a[i].tokens_per_s);
		else
			buf_addc(&b, '}');
	}
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		fprintf(cli_out(), "],\n\"alone\": [%s],\n\"sum_tokens_per_second\": %.6g}\n", b.p,
			s.tokens_per_s);
	buf_release(&b);
	mem_free(a);
	return rc;
}

int plan_alone_print(const struct job_plan *j, const struct plan *best, struct err *e)
{
	const struct profile *p = &j->profile;
	struct plan_alone *a = alone_of(j, e);
	char why[240];
	if (!a)
		return e->code;
	const struct plan_sum s = plan_sum(a, p->devices);
	const double top = s.fastest < 0 ? 0 : a[s.fastest].tokens_per_s;
	struct plan_lost lost = plan_lost(best);
	plan_lost_text(&lost, why, sizeof why);
	cli_line(cli_out(), "\nAlone (predicted):");
	for (int i = 0; i < p->devices && i < 12; i++)
		if (a[i].fits)
			cli_line(cli_out(), "%s %s %.0f tokens/s", i ? "," : "", p->device[i].id,
				 a[i].tokens_per_s);
		else
			cli_line(cli_out(), "%s %s does not fit", i ? "," : "", p->device[i].id);
	cli_line(cli_out(), "%s.\n", p->devices > 12 ? ", ..." : "");
	if (!s.fit)
		cli_line(cli_out(), "No device can hold the job alone.\n");
	else if (best->left_outs + 1 == p->devices)
		cli_line(cli_out(),
			 "%s alone is the fastest: no plan of several devices is faster.\n",
			 p->device[best->stage[0].member[0].device].id);
	else
		cli_line(cli_out(),
			 "Together %.0f tokens/s: %.1f %% of the sum%s, %.0f; %.2f times the "
			 "fastest, %s.%s%s%s\n",
			 best->tokens_per_s, 100 * best->tokens_per_s / s.tokens_per_s,
			 s.fit < p->devices ? " of those that fit" : "", s.tokens_per_s,
			 best->tokens_per_s / top, p->device[s.fastest].id,
			 best->tokens_per_s < 0.9 * s.tokens_per_s ? " What is missing: " : "",
			 best->tokens_per_s < 0.9 * s.tokens_per_s ? why : "",
			 best->tokens_per_s < 0.9 * s.tokens_per_s ? "." : "");
	mem_free(a);
	return 0;
}
