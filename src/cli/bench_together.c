/* SPDX-License-Identifier: Apache-2.0 */
/* bench_together.c - see bench_together.h. The runs are those of trial/together.h; here are the
 * table, the sentences and the JSON. */
#include "cli/bench_together.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "trial/together.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void tell_run(void *ctx, const char *what)
{
	(void)ctx;
	log_info(strcmp(what, "together") ? "now '%s' alone" : "now %s", what);
}

static bool is_slower(const struct together *t)
{
	return t->sum.fastest >= 0 && t->used > 1 &&
	       t->device[t->sum.fastest].tokens_per_s > t->tokens_per_s;
}

static void print_rows(const struct together *t)
{
	static const char *const heading[] = { "device",   "kind",   "alone tokens/s",
					       "alone ms", "layers", "of the rows",
					       "busy",     "links" };
	struct cli_table *table = cli_table_new(heading, 8);
	for (int i = 0; i < t->devices; i++) {
		const struct together_device *d = &t->device[i];
		char text[6][48];
		const char *cells[] = { d->id,   d->kind, text[0], text[1],
					text[2], text[3], text[4], text[5] };
		for (size_t k = 0; k < 6; k++)
			snprintf(text[k], sizeof text[k], "-");
		snprintf(text[0], sizeof text[0], d->fits ? "%.1f" : "does not fit",
			 d->tokens_per_s);
		if (d->fits)
			snprintf(text[1], sizeof text[1], "%.1f", 1e3 * d->step_s);
		if (d->row >= 0) {
			snprintf(text[2], sizeof text[2], "%d", d->last - d->first);
			snprintf(text[3], sizeof text[3], "%.0f %%", 100 * d->rows);
			snprintf(text[4], sizeof text[4], "%.0f %%", 100 * d->busy);
			snprintf(text[5], sizeof text[5], "%.0f %%", 100 * (d->copy + d->wait));
		}
		cli_table_add(table, cells);
	}
	cli_table_print(table, cli_out());
}

static void print_verdict(const struct together *t)
{
	const struct together_device *best =
		t->sum.fastest >= 0 ? &t->device[t->sum.fastest] : NULL;
	char why[240];
	plan_lost_text(&t->lost, why, sizeof why);
	for (int i = 0; i < t->devices; i++)
		if (!t->device[i].fits)
			cli_line(cli_out(), "%s alone: %s\n", t->device[i].id, t->device[i].why);
	if (t->used == 1) {
		for (int i = 0; i < t->devices; i++)
			if (t->device[i].row >= 0)
				cli_line(
					cli_out(),
					"Together is the same as %s alone: the plan uses no other "
					"device, because none makes the step shorter ('heteroshard "
					"plan' says by how much).\n",
					t->device[i].id);
		return;
	}
	if (!best) {
		cli_line(cli_out(), "No device can hold the job alone; together they can.\n");
		return;
	}
	if (is_slower(t)) {
		cli_line(cli_out(),
			 "%s alone is FASTER: %.1f tokens/s against %.1f of %d devices together; "
			 "%s.\n",
			 best->id, best->tokens_per_s, t->tokens_per_s, t->used, why);
		return;
	}
	cli_line(cli_out(), "Together is %.2f times as fast as %s alone, the fastest.%s%s%s\n",
		 t->tokens_per_s / best->tokens_per_s, best->id,
		 t->tokens_per_s < 0.9 * t->sum.tokens_per_s ? " What is missing: " : "",
		 t->tokens_per_s < 0.9 * t->sum.tokens_per_s ? why : "",
		 t->tokens_per_s < 0.9 * t->sum.tokens_per_s ? "." : "");
}

static void print_text(const struct together *t)
{
	cli_heading("The same job alone and together: %lld rows a step, %lld steps each (the first "
		    "is not counted)",
		    (long long)t->rows, (long long)t->steps);
	print_rows(t);
	fputc('\n', cli_out());
	cli_fact("together",
		 "%.1f tokens/s, %.1f ms a step (%.1f and %.1f tokens/s, before and "
		 "behind the others; predicted %.1f ms)",
		 t->tokens_per_s, 1e3 * t->step_s, t->first_run, t->second_run,
		 1e3 * t->predicted_s);
	if (t->sum.fit)
		cli_fact("sum of alone",
			 "%.1f tokens/s of %d devices; together reaches %.1f %% of "
			 "it",
			 t->sum.tokens_per_s, t->sum.fit,
			 100 * t->tokens_per_s / t->sum.tokens_per_s);
	fputc('\n', cli_out());
	print_verdict(t);
}

static void put_number(struct buf *b, const char *key, double v)
{
	if (isfinite(v))
		buf_addf(b, ", \"%s\": %.6g", key, v);
	else
		buf_addf(b, ", \"%s\": null", key);
}

static int print_json(const struct together *t, struct err *e)
{
	struct buf b = BUF_INIT;
	char why[240];
	buf_addf(&b, "{\"rows\": %lld, \"steps\": %lld, \"alone\": [", (long long)t->rows,
		 (long long)t->steps);
	for (int i = 0; i < t->devices; i++) {
		const struct together_device *d = &t->device[i];
		buf_adds(&b, i ? ",\n {\"id\": " : "\n {\"id\": ");
		json_quote(&b, d->id, strlen(d->id));
		buf_adds(&b, ", \"kind\": ");
		json_quote(&b, d->kind, strlen(d->kind));
		buf_addf(&b, ", \"fits\": %s", d->fits ? "true" : "false");
		put_number(&b, "tokens_per_second", d->tokens_per_s);
		put_number(&b, "step_ms", 1e3 * d->step_s);
		if (!d->fits) {
			buf_adds(&b, ", \"why\": ");
			json_quote(&b, d->why, strlen(d->why));
		}
		if (d->row >= 0)
			buf_addf(&b,
				 ", \"layers\": [%d, %d], \"rows\": %.6g, \"busy\": %.4g, "
				 "\"links\": %.4g",
				 d->first, d->last, d->rows, d->busy, d->copy + d->wait);
		buf_addc(&b, '}');
	}
	buf_adds(&b, "]");
	put_number(&b, "sum", t->sum.tokens_per_s);
	buf_addf(&b, ",\n \"together\": {\"devices\": %d, \"runs\": [%.6g, %.6g]", t->used,
		 t->first_run, t->second_run);
	put_number(&b, "tokens_per_second", t->tokens_per_s);
	put_number(&b, "step_ms", 1e3 * t->step_s);
	put_number(&b, "predicted_ms", 1e3 * t->predicted_s);
	buf_adds(&b, "}");
	put_number(&b, "share_of_sum", t->sum.fit ? t->tokens_per_s / t->sum.tokens_per_s : NAN);
	buf_adds(&b, ", \"fastest_alone\": ");
	if (t->sum.fastest >= 0)
		json_quote(&b, t->device[t->sum.fastest].id, strlen(t->device[t->sum.fastest].id));
	else
		buf_adds(&b, "null");
	plan_lost_text(&t->lost, why, sizeof why);
	buf_addf(&b, ", \"alone_is_faster\": %s, \"why\": \"%s\"}\n",
		 is_slower(t) ? "true" : "false", why);
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		fputs(b.p, cli_out());
	buf_release(&b);
	return rc;
}

static int lead(void *ctx, const struct config *c, char *const *program, const struct ranks *ranks,
		struct err *e)
{
	const struct bench_together *o = ctx;
	const struct together_options to = { .steps = o->steps,
					     .stop = cli_stop(),
					     .program = program,
					     .ranks = ranks,
					     .begins = tell_run };
	struct together t;
	TRY(together_run(c, &to, &t, e));
	int rc = 0;
	if (o->json)
		rc = print_json(&t, e);
	else
		print_text(&t);
	together_release(&t);
	return rc;
}

int bench_together(struct bench_together *o, int npos, char **pos)
{
	o->role.jobs = true;
	return cli_everywhere(&o->role, CONFIG_TRAIN, npos, pos, lead, o);
}
