/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - see train.h. The semantics are those of docs/design.md, section 6. */
#include "train/trainer.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "coord/join.h"
#include "crew/run_passes.h"
#include "job/checkpoint_check.h"
#include "survey/reduction.h"
#include "train/beforehand.h"
#include "train/collect.h"
#include "train/evaluation.h"
#include "train/folder.h"
#include "train/kept_state.h"
#include "train/nonfinite.h"
#include "train/outcome.h"
#include "train/pissa.h"
#include "train/recover.h"
#include "train/refer.h"
#include "train/sample_now.h"
#include "train/speeds.h"
#include "train/start.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool stopping(struct trainer *t)
{
	const char *who = t->stays ? NULL : session_leaving(t->ses);
	if (who && !t->told_leaving) {
		log_warn("%s asked to stop: saving and finishing", who);
		t->told_leaving = true;
	}
	return who || (t->o->stop && *t->o->stop);
}

/* `max_minutes`: the run ends as if it had all its steps. */
static bool out_of_time(const struct trainer *t)
{
	const double most = t->cfg->max_minutes * 60;
	return most > 0 && clock_seconds(clock_now() - t->began) >= most;
}

static bool has_val(const struct trainer *t) { return batches_val_count(t->job->batches) > 0; }

/* ---- evaluation ---- */

static int evaluate(struct trainer *t, double *loss_p, struct err *e)
{
	const struct evaluation v = { .batches = t->job->batches,
				      .rounds = &t->rounds,
				      .sink = t->sink,
				      .source = t->cfg->datasets,
				      .sources = t->o->samples ? 0 : t->cfg->ndatasets };
	return evaluation_run(&v, t->st.step, loss_p, e);
}

/* ---- a step ---- */

static void estimate(struct trainer *t, struct train_step *s)
{
	double now = s->seconds / (double)(s->tokens ? s->tokens : 1);
	t->rate = t->rate > 0 ? 0.8 * t->rate + 0.2 * now : now;
	double per_step = (double)t->st.tokens / (double)t->st.step;
	s->eta = t->rate * per_step * (double)(s->total - s->step);
}

/* STEP, with the record of the state that it makes, until all have applied it. */
static int apply(struct trainer *t, struct train_step *s, struct step_message *m,
		 const struct outcome *o, int64_t begin, struct err *e)
{
	s->seconds = clock_seconds(clock_now() - begin);
	const struct record_line line = kept_state_line_of(s);
	TRY(kept_state_record(t, &o->st, &line, e));
	m->record = t->record.p;
	m->nrecord = t->record.n;
	TRY(round_step(&t->rounds, m, e));
	return round_end(&t->rounds, e);
}

/* Before the first step in float16. */
static void begin_scale(struct trainer *t, const struct microbatch *mb, size_t n)
{
	uint64_t tokens = 0;
	if (t->job->opt.act != DT_F16) {
		t->st.scale = (struct loss_scale){ 0 };
		return;
	}
	for (size_t i = 0; i < n; i++)
		tokens += mb[i].trained;
	if (!(t->st.scale.scale > 0))
		loss_scale_begin(&t->st.scale, tokens);
}

static int one_step(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	const struct microbatch *mb;
	size_t n;
	int64_t begin = clock_now();
	TRY(batches_get(t->job->batches, t->st.epoch, t->st.batch, &mb, &n, e));
	struct train_step s = { .step = t->st.step + 1, .total = t->job->total_steps };
	begin_scale(t, mb, n);
	const double scale = t->st.scale.scale > 0 ? t->st.scale.scale : 1;
	s.loss_scale = t->st.scale.scale;
	double sum, sqnorm;
	TRY(refer_all(&t->rounds, mb, n, s.step, e));
	round_begin(&t->rounds, ROUND_TRAIN, (uint32_t)n, s.step, (float)scale);
	for (size_t i = 0; i < n; i++) {
		TRY(round_send(&t->rounds, (uint32_t)i, &mb[i], e));
		s.tokens += mb[i].n;
	}
	TRY(round_losses(&t->rounds, &sum, &s.trained, e));
	TRY(round_norms(&t->rounds, &sqnorm, e));
	double count = s.trained ? (double)s.trained : 1;
	s.loss = sum / count;
	s.accuracy = (double)t->rounds.hits / count;
	s.rewards = evaluation_rewards(&t->rounds.score, s.accuracy);
	s.grad_norm = sqrt(sqnorm) / count / scale;
	s.skipped = !isfinite(s.loss) || !isfinite(s.grad_norm);
	s.learning_rate = lr_at(t->job->curve, t->st.rules.lr, c->learning_rate, s.step, s.total,
				t->job->warmup_steps, &t->job->lr_shape);
	if (t->sink->rate)
		s.learning_rate = t->sink->rate(t->sink->ctx, s.step, s.learning_rate);
	/* as torch.nn.utils.clip_grad_norm_ */
	double clip = c->max_grad_norm > 0 ? c->max_grad_norm / (s.grad_norm + 1e-6) : 1;
	struct step_message m = { .apply = !s.skipped,
				  .s = { .step = t->st.updates + 1,
					 .scale = (float)((clip < 1 ? clip : 1) / count / scale) },
				  .lr = s.learning_rate };
	const struct outcome o = outcome_of(t, &s);
	TRY(apply(t, &s, &m, &o, begin, e));
	sample_cut(t);
	if (s.skipped && !o.overflow)
		nonfinite_note(t, s.step);
	t->st = o.st;
	t->fruitless = 0;
	s.epoch = (double)t->st.epoch +
		  (double)t->st.batch / (double)batches_per_epoch(t->job->batches, t->st.epoch);
	s.seconds = clock_seconds(clock_now() - begin);
	recover_after_step(t, s.seconds);
	s.predicted = t->planned ? judge_predict(&t->judge, s.tokens) : NAN;
	speeds_step(t, s.tokens, s.seconds);
	if (t->planned)
		TRY(judge_step(&t->judge, s.tokens, s.seconds, t->rounds.stages, e));
	s.mem_peak = t->rounds.mem_peak;
	s.stage = t->rounds.stages;
	s.stages = t->rounds.n;
	s.busy = (double)t->rounds.busy / (double)(t->rounds.busy + t->rounds.wait + 1);
	estimate(t, &s);
	if (s.step == 1)
		t->r.first_loss = s.loss;
	t->r.last_loss = s.loss;
	if (t->sink->step)
		TRY(t->sink->step(t->sink->ctx, &s, e));
	if (t->st.nonfinite && (int64_t)t->st.nonfinite >= c->max_nonfinite_steps)
		return err_set(e, ERR_INPUT,
			       "%llu steps in a row were not finite, beginning with %s: lower "
			       "learning_rate, or look at the data "
			       "there (max_nonfinite_steps)",
			       (unsigned long long)t->st.nonfinite, t->nonfinite);
	return 0;
}

static int save(struct trainer *t, enum save_kind kind, struct err *e)
{
	int64_t began = clock_now();
	TRY(train_collect(t, e));
	t->saved = t->st.step;
	TRY(saver_save(&t->saver, &t->st, kind, began, e));
	train_saved(t, began);
	return 0;
}

/* ---- the run ---- */

/* What an evaluation says counts also where the run goes back to the state that was evaluated. */
static bool note(struct trainer *t)
{
	const bool better = evaluation_note(&t->st, t->r.val_after);
	if (t->set.st.step == t->st.step)
		t->set.st = t->st;
	return better;
}

static bool due(uint64_t every, uint64_t step) { return every > 0 && step % every == 0; }

/* What follows a step: evaluation, samples, saving. */
static int after_step(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	bool better = false, told = false, now;
	if (has_val(t) && due(t->job->eval_every, t->st.step)) {
		TRY(evaluate(t, &t->r.val_after, e));
		better = note(t);
		t->evaluated = t->st.step;
		told = true;
	}
	if (due((uint64_t)c->sample_steps, t->st.step) && t->st.step < t->job->total_steps) {
		TRY(sample_now(t, e));
		told = true;
	}
	t->owed = 0;
	if (told) /* it need not be done again */
		TRY(kept_state_sent(t, e));
	now = due(t->job->save_every, t->st.step) || (better && c->load_best_model_at_end);
	if (now || saver_due(&t->saver))
		return save(t, now ? SAVE_STEP : SAVE_TIMED, e);
	if (!t->stays || !snapshots_due(&t->snapshots, t->st.step))
		return 0;
	return t->snapshots.to == SNAPSHOT_DISK ? save(t, SAVE_TIMED, e) : train_collect(t, e);
}

static int loop(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	const int64_t patience = c->early_stopping_patience;
	if (t->owed && t->owed == t->st.step)
		TRY(after_step(t, e));
	else if (kept_state_unsaved(t))
		TRY(save(t, SAVE_STEP, e));
	while (t->st.step < t->job->total_steps && !evaluation_stops(&t->st, patience) &&
	       !out_of_time(t) && !stopping(t)) {
		TRY(recover_members(t, e));
		TRY(one_step(t, e));
		TRY(after_step(t, e));
	}
	t->r.stopped_early = t->st.step < t->job->total_steps && evaluation_stops(&t->st, patience);
	t->r.timed_out = t->st.step < t->job->total_steps && out_of_time(t);
	t->r.interrupted =
		t->st.step < t->job->total_steps && !t->r.stopped_early && !t->r.timed_out;
	TRY(train_collect(t, e));
	TRY(saver_finish(&t->saver, &t->st, t->saved != t->st.step, e));
	t->saved = t->st.step;
	if (has_val(t) && t->evaluated != t->st.step && !t->r.interrupted) {
		TRY(evaluate(t, &t->r.val_after, e));
		t->evaluated = t->st.step;
		if (t->job->eval_every)
			note(t);
	}
	t->r.best = t->st.best_step;
	t->set.whole &= !(c->load_best_model_at_end && t->st.best_step); /* its arrays are used */
	if (c->load_best_model_at_end && t->st.best_step && t->st.best_step != t->st.step &&
	    !t->r.interrupted)
		TRY(evaluation_take_best(&t->saver, &t->rounds, &t->st, &t->r.val_after, e));
	return t->r.interrupted ? 0 : sample_now(t, e);
}

/* ---- the job ---- */

/* Until the end, whoever is lost on the way. */
static int loop_on(struct trainer *t, struct err *e)
{
	if (t->sink->trains)
		t->sink->trains(t->sink->ctx);
	while (loop(t, e) < 0)
		TRY(recover(t, e));
	return 0;
}

/* Plans and layers out for the first time, and the evaluation before the first step. A worker that
 * is lost meanwhile is done without, as later. */
static int first_plan(struct trainer *t, bool resume, struct err *e)
{
	session_until(t->ses, t->o->stop, "the workers got their layers, before the first step");
	const bool state = resume || job_begins_with(t->cfg);
	int rc = session_begin(t->ses, t->place, t->o->trace, e);
	if (rc >= 0)
		rc = beforehand(t, e);
	if (rc >= 0 && state)
		rc = session_push_state(t->ses, 0, e);
	if (rc >= 0 && state)
		rc = kept_state_sent(t, e);
	for (;; rc = 0) {
		session_until(t->ses, t->o->stop, "the reference was computed");
		if (rc >= 0 && !state)
			rc = beforehand(t, e); /* a worker was lost meanwhile */
		session_until(t->ses, t->o->stop, "the model was evaluated, before the first step");
		if (rc >= 0 && has_val(t) && !resume)
			rc = evaluate(t, &t->r.val_before, e);
		session_until(t->ses, NULL, NULL);
		if (rc >= 0)
			return 0;
		if (state && config_refers_first(t->cfg) && !t->prior.whole)
			return err_prefix(e, "while the reference was computed");
		TRY(recover(t, e));
	}
}

static int run(struct trainer *t, const char *newest, struct err *e)
{
	const struct config *c = t->cfg;
	t->st.rules = RULES_NOW;
	t->stays = start_is_cluster(t) && !t->o->ranks;
	TRY(job_hash_base(t->job, e));
	TRY(checkpoint_identity(t->job, t->identity, e));
	const bool may_go_on = t->stays && t->saver.folder.continues;
	t->saver.folder.continues = may_go_on;
	TRY(may_go_on ? kept_state_fits(t, newest, e) : kept_state_else(t, newest, e));
	const struct save_sink saves = { .ctx = t->sink->ctx,
					 .saved = t->sink->saved,
					 .blocked = t->sink->blocked };
	TRY(saver_init(&t->saver, t->job, &saves, &t->arena, &t->st, newest, e));
	t->r.val_before = t->r.val_after = t->r.first_loss = t->r.last_loss = NAN;
	TRY(start_join(t, newest, e));
	const bool resume = newest || t->kept;
	start_noise(t);
	TRY(speeds_begin(t, e));
	session_until(t->ses, t->o->stop, "the devices were measured, before the first step");
	TRY(start_place(t, resume, e));
	TRY(run_passes_check(t->job, t->place, e));
	TRY(resume ? reduction_resumes(c, &t->st.rules, t->place, t->o->allow_changes, e) : 0);
	TRY(reduction_choose(t->job, t->planned ? t->job_plan.plan.order : reduction_order(c),
			     resume, t->o->ranks, &t->st.rules, t->place, e));
	TRY(start_rounds(t, e));
	train_begin_set(t, !resume && !job_begins_with(c));
	if (resume)
		sample_go_back(t);
	TRY(train_folder_begin(t, e));
	struct train_info info;
	TRY(start_info(t, t->kept ? "what the workers have kept" : newest, &info, e));
	TRY(t->sink->begin ? t->sink->begin(t->sink->ctx, &info, e) : 0);
	if (t->st.step >= t->job->total_steps)
		log_info("nothing to do: step %llu of %llu is done", (unsigned long long)t->st.step,
			 (unsigned long long)t->job->total_steps);
	const struct patience first = patience_of(
		c->stall_timeout, t->planned ? t->job_plan.plan.simulated_ms / 1e3 : 0, true);
	session_set_patience(t->ses, &first);
	t->fresh = true;
	TRY(kept_state_line(t, e));
	TRY(first_plan(t, resume, e));
	t->began = clock_now();
	TRY(loop_on(t, e));
	if (t->planned && judge_end(&t->judge) && t->sink->judge)
		t->sink->judge(t->sink->ctx, &t->judge);
	t->r.seconds = clock_seconds(clock_now() - t->began);
	return 0;
}

int train_run(const struct config *c, const struct train_options *o, const struct train_sink *sink,
	      struct train_result *r_p, struct err *e)
{
	struct job job = { 0 };
	struct trainer *t = mem_zalloc(sizeof *t);
	struct placement *place = mem_zalloc(sizeof *place);
	char spec[DEV_SPEC] = "cpu";
	const char *resume, *device = c->device && strcmp(c->device, "auto") ? c->device : spec;
	enum dtype act = o->act;
	int rc = 0;
	TRYOUT(t && place ? 0 : err_nomem(e, sizeof *t + sizeof *place, "a trainer"));
	*t = (struct trainer){ .cfg = c, .o = o, .sink = sink, .job = &job, .place = place };
	buf_init(&t->record);
	if (!o->place && !start_is_cluster(t))
		TRYOUT(join_device(c, spec, &act, e));
	TRYOUT(pissa_begin(&c, act, o->stop, &t->arena, e));
	t->cfg = c;
	TRYOUT(job_open(c, act, o->samples, &job, e));
	job.stop = o->stop;
	if (o->place)
		*place = *o->place;
	else
		placement_single(&job.model, &device, place);
	TRYOUT(train_folder_open(t, &resume, e));
	TRYOUT(run(t, resume, e));
	t->r.step = t->st.step;
	memcpy(t->r.dir, t->saver.dir, sizeof t->r.dir);
	t->r.total = job.total_steps;
	t->r.tokens = t->st.tokens;
	t->r.skipped = t->st.skipped;
	t->r.mem_peak = t->rounds.mem_peak;
	*r_p = t->r;
out:
	if (t) {
		if (rc < 0)
			kept_state_save(t);
		session_close(t->ses, rc < 0 ? e : NULL);
		sample_cut(t);
		if (rc < 0 && t->saver.folder.began && sink->lost)
			sink->lost(sink->ctx, t->saver.newest);
		run_folder_close(&t->saver.folder, rc < 0);
		rounds_release(&t->rounds);
		prior_release(&t->prior);
		snapshot_release(&t->set);
		speeds_end(t);
		buf_release(&t->profile);
		buf_release(&t->record);
		arena_release(&t->arena);
		judge_release(&t->judge);
		job_plan_release(&t->job_plan);
	}
	job_close(&job);
	mem_free(place);
	mem_free(t);
	return rc;
}
