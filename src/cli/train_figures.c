/* SPDX-License-Identifier: Apache-2.0 */
/* train_figures.c - see train_figures.h. */
#include "cli/train_figures.h"

#include "api/run_metrics.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void figures_scalars(const struct figures_out *o, const char *part, int64_t step,
		     const struct metrics_rewards *r)
{
	const struct {
		const char *name;
		double v;
	} row[] = { { "chosen", r->chosen },
		    { "rejected", r->rejected },
		    { "margins", r->margin },
		    { "accuracies", r->accuracy } };
	char name[48];
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		snprintf(name, sizeof name, "%s/rewards/%s", part, row[i].name);
		if (!isnan(row[i].v))
			o->put(o->ctx, name, step, row[i].v);
	}
}

int figures_wandb(const struct config *c, struct wandb **w_p, struct err *e)
{
	char dir[4096];
	struct buf b = BUF_INIT;
	json_t *doc = NULL;
	const char *slash = strrchr(c->output_dir, '/');
	*w_p = NULL;
	if (!c->wandb_project)
		return 0;
	snprintf(dir, sizeof dir, "%s/wandb", c->output_dir);
	config_to_json(c, &b);
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = json_parse_text(b.p, b.n, "the configuration", &doc, e);
	const struct wandb_run run = { .project = c->wandb_project,
				       .entity = c->wandb_entity,
				       .name = c->wandb_name       ? c->wandb_name
					       : slash && slash[1] ? slash + 1
								   : c->output_dir,
				       .config = doc };
	if (rc >= 0)
		rc = wandb_open(dir, &run, w_p, e);
	json_decref(doc);
	buf_release(&b);
	return rc;
}

/* A line for each dataset, where there are several. */
static void show_parts(const struct figures_out *o, const struct train_eval *r)
{
	for (size_t i = 0; i < r->parts; i++) {
		const struct train_part *p = &r->part[i];
		char text[320], perplexity[64] = "";
		snprintf(text, sizeof text, "eval/loss/%.200s", p->name);
		o->put(o->ctx, text, (int64_t)r->step, p->loss);
		if (!r->rewards.given)
			snprintf(perplexity, sizeof perplexity, " (perplexity %.2f)", exp(p->loss));
		snprintf(text, sizeof text, "  of %.200s: %.4f%s", p->name, p->loss, perplexity);
		o->say(o->ctx, text);
	}
}

static void show(const struct figures_out *o, const struct train_eval *r)
{
	char text[240], margin[64] = "";
	if (!isnan(r->rewards.margin))
		snprintf(margin, sizeof margin, "margin %.3f, ", r->rewards.margin);
	int n = snprintf(text, sizeof text, "held-out loss %s step %lld: %.4f ",
			 r->step ? "after" : "before", (long long)(r->step ? r->step : 1), r->loss);
	const unsigned long long tokens = r->tokens;
	if (r->rewards.given)
		snprintf(text + n, sizeof text - (size_t)n, "(rewards: %s%.1f %% of %llu right)",
			 margin, 100 * r->rewards.accuracy, tokens);
	else
		snprintf(text + n, sizeof text - (size_t)n,
			 "(perplexity %.2f, %.1f %% of %llu tokens right)", exp(r->loss),
			 100 * r->accuracy, tokens);
	o->say(o->ctx, text);
}

int figures_eval(const struct figures_out *o, const struct train_eval *r, struct err *e)
{
	const int64_t step = (int64_t)r->step;
	const struct metrics_rewards w = run_rewards(&r->rewards);
	TRY(run_metrics_eval(o->metrics, r, e));
	o->put(o->ctx, "eval/loss", step, r->loss);
	if (r->rewards.given)
		figures_scalars(o, "eval", step, &w);
	else
		o->put(o->ctx, "eval/token_accuracy", step, r->accuracy);
	show(o, r);
	show_parts(o, r);
	return 0;
}

bool figures_on_experts(const struct train_info *i)
{
	const struct stage_options *o = &i->job->opt;
	bool any = false;
	for (enum linear l = 0; l < LIN_COUNT; l++)
		any |= o->lora.r && !o->lora.dora && o->lora.target[l] &&
		       model_has_linear(&i->job->model, l) &&
		       (linear_is_expert(l) || linear_is_router(l));
	return any;
}
