/* SPDX-License-Identifier: Apache-2.0 */
/* plan_worth.c - see plan_worth.h. */
#include "cli/plan_worth.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "plan/cards.h"
#include "plan/describe.h"
#include "plan/uniform.h"

#include <math.h>
#include <string.h>

static void three_digits(double v, char s[24]) { snprintf(s, 24, v >= 100 ? "%.0f" : "%.3g", v); }

void plan_worth_text(double euro, double tokens_per_s, char rate[24], char price[24])
{
	three_digits(1000 * tokens_per_s / euro, rate);
	three_digits(euro / tokens_per_s, price);
}

void plan_worth_print(const struct profile *p, const struct plan *plan, double euro)
{
	const struct plan_energy e = plan_energy(p, plan);

	if (!e.known)
		cli_fact("tokens/Wh", "not known: no watts are known of %s", e.unknown);
	else if (e.known < e.used)
		cli_fact("tokens/Wh",
			 "%.0f (%.0f W while computing; not counted: %s, watts not known)",
			 e.tokens_per_wh, e.watts, e.unknown);
	else
		cli_fact("tokens/Wh", "%.0f (%.0f W while computing)", e.tokens_per_wh, e.watts);
	if (euro > 0) {
		char rate[24], price[24];
		plan_worth_text(euro, plan->tokens_per_s, rate, price);
		cli_fact("price", "%.0f euro: %s tokens/s for 1,000 euro, %s euro for a token/s",
			 euro, rate, price);
	} else if (euro == 0) {
		cli_fact("price", "0 euro");
	}
}

struct cluster {
	const char *name;
	const struct profile *p;
	double euro; /* NaN: no prices */
	struct plan plan;
	struct err why; /* code 0: there is a plan */
};

static void run(const struct job_plan *j, struct cluster *c)
{
	struct err e = { 0 };
	if (planner_run(j->planner, c->p, &j->options, &c->plan, &e) < 0) {
		c->why = e;
		c->plan = (struct plan){ 0 };
	}
}

static void add_row(struct cli_table *t, const struct cluster *c)
{
	char text[8][24];
	const char *cells[9] = { c->name };
	const bool ok = !c->why.code;
	const struct plan_energy e = ok ? plan_energy(c->p, &c->plan) : (struct plan_energy){ 0 };

	for (size_t i = 0; i < ARRAY_LEN(text); i++) {
		snprintf(text[i], sizeof text[i], "-");
		cells[i + 1] = text[i];
	}
	snprintf(text[7], sizeof text[7], "%s", c->p->dtype);
	if (!isnan(c->euro))
		snprintf(text[1], sizeof text[1], "%.0f", c->euro);
	snprintf(text[0], sizeof text[0], "%d", c->p->devices);
	if (ok) {
		snprintf(text[0], sizeof text[0], "%d of %d", c->p->devices - c->plan.left_outs,
			 c->p->devices);
		snprintf(text[2], sizeof text[2], "%.1f", c->plan.simulated_ms);
		snprintf(text[3], sizeof text[3], "%.0f", c->plan.tokens_per_s);
		if (e.known)
			snprintf(text[4], sizeof text[4], "%.0f%s", e.tokens_per_wh,
				 e.known < e.used ? " *" : "");
		if (c->euro > 0)
			plan_worth_text(c->euro, c->plan.tokens_per_s, text[5], text[6]);
	}
	cli_table_add(t, cells);
}

static void print_table(const struct cluster *c, size_t n)
{
	static const char *const heading[] = { "cluster",        "devices",          "euro",
					       "step ms",        "tokens/s",         "tokens/Wh",
					       "per 1,000 euro", "euro per token/s", "dtype" };
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
	bool partly = false, estimated = false;

	for (size_t i = 0; i < n; i++) {
		const struct plan_energy e =
			c[i].why.code ? (struct plan_energy){ 0 } : plan_energy(c[i].p, &c[i].plan);
		partly = partly || (e.known && e.known < e.used);
		estimated = estimated || profile_estimated(c[i].p);
		add_row(t, &c[i]);
	}
	cli_table_print(t, cli_out());
	for (size_t i = 0; i < n; i++)
		if (c[i].why.code)
			cli_line(cli_out(), "\n%s: %s\n", c[i].name, c[i].why.msg);
	if (n == 2 && !c[0].why.code && !c[1].why.code)
		fprintf(cli_out(), "\n%s gives %.2f times the tokens/s of %s.\n", c[0].name,
			c[0].plan.tokens_per_s / c[1].plan.tokens_per_s, c[1].name);
	if (partly)
		fprintf(cli_out(), "* without devices whose watts are not known.\n");
	if (estimated)
		fprintf(cli_out(),
			"Estimated: not all of these devices were measured (docs/planning.md).\n");
}

static void print_json(const struct cluster *c, size_t n)
{
	fputs("{\"clusters\": [", cli_out());
	for (size_t i = 0; i < n; i++) {
		struct buf b = BUF_INIT;
		buf_adds(&b, i ? ",\n{\"cluster\": " : "\n{\"cluster\": ");
		json_quote(&b, c[i].name, strlen(c[i].name));
		buf_adds(&b, ", \"euro\": ");
		json_number(&b, c[i].euro);
		if (c[i].why.code) {
			buf_adds(&b, ", \"error\": ");
			json_quote(&b, c[i].why.msg, strlen(c[i].why.msg));
		} else {
			buf_adds(&b, ", \"plan\": ");
			plan_to_json(c[i].p, &c[i].plan, &b);
		}
		fprintf(cli_out(), "%s}", b.p);
		buf_release(&b);
	}
	fputs("]}\n", cli_out());
}

int plan_worth_compare(const struct job_plan *j, const char *text, struct prices *prices,
		       const char *path, bool json, struct err *e)
{
	struct cluster c[2] = { { .name = "this cluster", .p = &j->profile, .euro = NAN },
				{ .euro = NAN } };
	struct profile other = { 0 };
	struct buf notes = BUF_INIT;
	if (j->options.manual)
		return err_set(e, ERR_USAGE,
			       "--compare-with: a given plan is for one cluster only; leave --plan "
			       "and 'shard_plan' out");
	int rc = prices ? prices_sum(prices, &j->profile, &c[0].euro, e) : 0;

	if (rc >= 0)
		rc = profile_uniform(&j->profile, text, prices, c[0].euro, path, &other, &c[1].name,
				     &notes, e);
	c[1].p = &other;
	if (rc >= 0 && prices)
		rc = prices_sum(prices, &other, &c[1].euro, e);
	if (rc >= 0 && prices)
		rc = prices_all_used(prices, &j->profile, e);
	if (rc >= 0) {
		if (notes.n && !notes.failed && !cli_quiet())
			cli_line(cli_err(), "%s", notes.p);
		run(j, &c[0]);
		run(j, &c[1]);
		if (json)
			print_json(c, ARRAY_LEN(c));
		else
			print_table(c, ARRAY_LEN(c));
		plan_release(&c[0].plan);
		plan_release(&c[1].plan);
	}
	profile_release(&other);
	buf_release(&notes);
	return rc;
}

/* The ids that keep the job from a 16-bit format, or from bfloat16, behind those of `without`;
 * returns how many are new. */
static size_t oldest(const struct profile *p, const struct opt_list *without, const char **id,
		     struct buf *names)
{
	const enum card_native most = strcmp(p->dtype, "float32") ? CARD_F16 : CARD_NO16;
	size_t n = 0;

	for (size_t i = 0; i < without->n; i++)
		id[i] = without->item[i];
	for (int i = 0; i < p->devices; i++) {
		const struct card *c = card_find(p->device[i].kind);
		if ((c ? c->native : CARD_NO16) > most)
			continue;
		buf_addf(names, "%s%s", n ? ", " : "", p->device[i].id);
		id[without->n + n++] = p->device[i].id;
	}
	return n;
}

static void say_faster(const struct plan *plan, const struct plan *other, const char *names,
		       const char *dtype)
{
	const double ms = other->simulated_ms, was = plan->simulated_ms;
	fprintf(cli_out(), "Without %s the job would compute in %s: %.0f ms, %.2g times as %s.\n",
		names, dtype, ms, ms < was ? was / ms : ms / was, ms < was ? "fast" : "long");
}

int plan_worth_dtype(const struct job_plan *j, const struct plan *plan, const char *path,
		     const struct opt_list *without, struct err *e)
{
	const struct profile *p = &j->profile;
	const char **id = mem_array(without->n + (size_t)p->devices, sizeof *id);
	struct profile less = { 0 };
	struct buf names = BUF_INIT;
	struct plan other;
	int rc = id ? 0 : err_set(e, ERR_NOMEM, "out of memory for an explanation");
	const bool none = rc < 0 || j->options.manual || !strcmp(p->dtype, "bfloat16");
	size_t n = none ? 0 : oldest(p, without, id, &names);

	if (rc >= 0 && n && n < (size_t)p->devices) {
		struct err why = { 0 };
		if (profile_describe(path, id, without->n + n, &less, NULL, &why) >= 0 &&
		    strcmp(less.dtype, p->dtype) != 0 &&
		    planner_run(j->planner, &less, &j->options, &other, &why) >= 0) {
			say_faster(plan, &other, names.p, less.dtype);
			plan_release(&other);
		}
	}
	profile_release(&less);
	buf_release(&names);
	mem_free(id);
	return rc;
}
