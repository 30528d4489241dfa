/* SPDX-License-Identifier: Apache-2.0 */
/* run_metrics.c - see run_metrics.h. */
#include "api/run_metrics.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <math.h>

int run_plan_write(const char *dir, const struct train_info *i, struct err *e)
{
	return i->job_plan ? job_plan_write(i->job_plan, dir, e)
			   : placement_write(i->job, i->place, dir, e);
}

int run_metrics_open(const char *dir, const struct train_info *i, struct metrics **m_p,
		     struct err *e)
{
	const int rc = run_plan_write(dir, i, e);
	if (rc == ERR_IO && i->resumed_from) /* a full disk: as later in the run */
		log_warn("%s", e->msg);
	else
		TRY(rc);
	err_clear(e);
	return metrics_open(dir, i->resumed_from ? (int64_t)i->first_step : -1, m_p, e);
}

struct metrics_rewards run_rewards(const struct train_rewards *r)
{
	return (struct metrics_rewards){ r->chosen, r->rejected, r->margin, r->accuracy };
}

struct metrics_step run_metrics_of(const struct train_step *s, struct metrics_rewards *w)
{
	const bool prefer = s->rewards.given;
	*w = run_rewards(&s->rewards);
	return (struct metrics_step){ .rewards = prefer ? w : NULL,
				      .step = (int64_t)s->step,
				      .epoch = s->epoch,
				      .loss = s->loss,
				      .learning_rate = s->learning_rate,
				      .grad_norm = s->grad_norm,
				      .token_accuracy = prefer ? NAN : s->accuracy,
				      .tokens = (int64_t)s->tokens,
				      .tokens_per_second =
					      (double)s->tokens / (s->seconds > 0 ? s->seconds : 1),
				      .seconds = s->seconds,
				      .predicted_seconds = s->predicted,
				      .memory_peak = (double)s->mem_peak,
				      .expert_hits = train_expert_hits(s->stage, s->stages),
				      .loss_scale = s->loss_scale,
				      .skipped = s->skipped };
}

int run_metrics_eval(struct metrics *m, const struct train_eval *v, struct err *e)
{
	const struct metrics_rewards w = run_rewards(&v->rewards);
	struct metrics_part *part = mem_array(v->parts + 1, sizeof *part);
	if (!part)
		return err_nomem(e, v->parts * sizeof *part, "an evaluation");
	for (size_t i = 0; i < v->parts; i++)
		part[i] = (struct metrics_part){ v->part[i].name, v->part[i].loss };
	const struct metrics_val line = { .loss = v->loss,
					  .token_accuracy = v->accuracy,
					  .rewards = v->rewards.given ? &w : NULL,
					  .part = part,
					  .parts = v->parts };
	const int rc = metrics_eval(m, (int64_t)v->step, &line, e);
	mem_free(part);
	return rc;
}

int run_metrics_change(struct metrics *m, const struct train_change *c, struct err *e)
{
	metrics_go_back(m, (int64_t)c->step);
	return metrics_event(m, (int64_t)c->step, c->event, c->text, e);
}
