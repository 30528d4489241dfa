/* SPDX-License-Identifier: Apache-2.0 */
/* kept_state.c - see kept_state.h. */
#include "train/kept_state.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "crew/resumed.h"
#include "job/checkpoint_check.h"
#include "train/folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking it ---- */

static int take_passes(struct job *j, const struct run_record *r, bool *same_p, struct err *e)
{
	bool same = r->npass == j->npass;
	for (uint32_t i = 0; i < r->npass && same; i++)
		same = record_pass(r, i) == j->pass[i];
	*same_p = same;
	if (same || j->pass || j->cfg->passes.n)
		return 0;
	int *v = mem_array(r->npass + 1, sizeof *v);
	if (!v)
		return err_nomem(e, r->npass * sizeof *v, "passes");
	for (uint32_t i = 0; i < r->npass; i++)
		v[i] = record_pass(r, i);
	*same_p = job_set_passes(j, v, r->npass, e) >= 0;
	mem_free(v);
	err_clear(e);
	return 0;
}

/* Whether the state is one of this job: nothing that changes the result has changed. */
static bool fits(const struct trainer *t, const struct run_record *r)
{
	const struct job *j = t->job;
	const int wanted = j->cfg->compute_dtype;
	return !strcmp(r->job, t->identity) &&
	       (wanted == COMPUTE_AUTO ||
		!strcmp(config_compute_name(wanted), dtype_name(r->act))) &&
	       r->st.batch < batches_per_epoch(j->batches, r->st.epoch) &&
	       r->st.step <= resumed_steps(j, &r->st);
}

static int take(struct trainer *t, const struct buf *record, bool *taken_p, struct err *e)
{
	struct run_record r;
	TRY(record_read(record->p, record->n, &r, e));
	if (!fits(t, &r)) {
		log_warn("the workers have kept the state after step %llu, but the configuration "
			 "has changed since: it is not used",
			 (unsigned long long)r.st.step);
		return 0;
	}
	TRY(take_passes(t->job, &r, taken_p, e));
	if (!*taken_p)
		return 0;
	t->st = r.st;
	resumed_state(t->job, true, &t->st);
	t->job->opt.act = r.act;
	t->job->resumed_act = true;
	t->owed = r.owed ? r.st.step : 0;
	t->line = r.line;
	return 0;
}

static uint64_t step_of(const char *checkpoint)
{
	const char *name = checkpoint ? strrchr(checkpoint, '/') : NULL;
	return name && !strncmp(name, "/step-", 6) ? strtoull(name + 6, NULL, 10) : 0;
}

static int pull_into(struct trainer *t, struct session *ses, bool memory, uint64_t least,
		     struct buf *record, struct err *e)
{
	struct snapshot set;
	snapshot_init(&set, t->job, t->cfg->output_dir, &t->st, true);
	set.over = memory;
	int rc = session_pull_kept(ses, least, &set, record, e);
	if (rc > 0 && snapshot_end(&set, &t->st, e) < 0)
		rc = e->code == ERR_NOMEM || e->code == ERR_IO ? e->code : 0;
	snapshot_release(&set);
	return rc;
}

/* Into the job's arrays: memory, or files where snapshots go into files and the disk takes them. */
static int pull(struct trainer *t, struct session *ses, uint64_t least, struct buf *record,
		struct err *e)
{
	const bool memory = snapshots_place(t->cfg, snapshot_bytes(t->job)) == SNAPSHOT_MEMORY;
	int rc = pull_into(t, ses, memory, least, record, e);
	if (rc != ERR_IO || memory)
		return rc;
	log_warn("%s; what the workers have kept is collected in memory", e->msg);
	err_clear(e);
	return pull_into(t, ses, true, least, record, e);
}

int kept_state_fits(struct trainer *t, const char *resume, struct err *e)
{
	const struct run_folder *f = &t->saver.folder;
	if (resume)
		return checkpoint_fits(t->job, resume, t->o->allow_changes, e);
	if (f->job[0] && strcmp(f->job, t->identity))
		return err_set(e, ERR_USAGE,
			       "output_dir %s holds a run of another configuration, model or data, "
			       "which was cut off before its first checkpoint: set it as it was to "
			       "go on, choose another folder, or replace the run "
			       "(overwrite_output_dir=true)",
			       t->cfg->output_dir);
	return 0;
}

int kept_state_begin(struct trainer *t, struct session *ses, const char *resume, struct err *e)
{
	struct run_folder *f = &t->saver.folder;
	struct buf record = BUF_INIT;
	struct err why = { 0 };
	bool taken = false;
	int rc = pull(t, ses, step_of(resume), &record, &why);
	if (rc > 0)
		rc = take(t, &record, &taken, &why);
	buf_release(&record);
	if (rc < 0) {
		*e = why;
		return rc;
	}
	if (taken) {
		log_info("the workers have kept the state after step %llu: going on from it, "
			 "without a checkpoint",
			 (unsigned long long)t->st.step);
		run_folder_goes_on(f);
		t->kept = true;
		return 0;
	}
	if (why.code)
		log_warn("what the workers have kept is not all of a state (%s): going on from %s",
			 why.msg, resume ? "the newest checkpoint" : "the beginning");
	TRY(kept_state_else(t, resume, e));
	t->st.origin = session_epoch(ses);
	return 0;
}

int kept_state_else(struct trainer *t, const char *resume, struct err *e)
{
	if (resume && t->saver.folder.cut_off)
		log_info("output_dir %s holds a run: going on from %s (auto_resume)",
			 t->cfg->output_dir, resume);
	else if (t->saver.folder.cut_off)
		log_info("output_dir %s holds a run that was cut off before its first checkpoint: "
			 "it begins again (auto_resume)",
			 t->cfg->output_dir);
	if (resume)
		return resumed_read(t->job, resume, t->o->allow_changes, &t->st, e);
	return job_begins_with(t->cfg) ? job_begin(t->job, e) : 0;
}

void kept_state_save(struct trainer *t)
{
	struct err e = { 0 };
	const bool begun = t->set.job != NULL;
	const struct train_state *st = begun ? &t->set.st : &t->st;
	if (!t->kept || (begun && (!t->set.whole || t->set.start)) ||
	    st->step == step_of(t->saver.newest))
		return;
	if ((!t->saver.folder.began && train_folder_begin(t, &e) < 0) ||
	    saver_save(&t->saver, st, SAVE_STEP, clock_now(), &e) < 0)
		log_warn("%s", e.msg);
}

/* ---- the record ---- */

struct record_line kept_state_line_of(const struct train_step *s)
{
	return (struct record_line){ .loss = s->loss,
				     .learning_rate = s->learning_rate,
				     .grad_norm = s->grad_norm,
				     .accuracy = s->accuracy,
				     .seconds = s->seconds,
				     .loss_scale = s->loss_scale,
				     .tokens = s->tokens,
				     .trained = s->trained,
				     .skipped = s->skipped,
				     .rewarded = s->rewards.given,
				     .chosen = s->rewards.chosen,
				     .rejected = s->rewards.rejected,
				     .margin = s->rewards.margin,
				     .right = s->rewards.accuracy };
}

int kept_state_record(struct trainer *t, const struct train_state *st,
		      const struct record_line *owed, struct err *e)
{
	const struct job *j = t->job;
	struct run_record r = { .run = t->saver.folder.run,
				.st = *st,
				.act = j->opt.act,
				.owed = owed != NULL,
				.pass = j->pass,
				.npass = (uint32_t)j->npass };
	memcpy(r.job, t->identity, sizeof r.job);
	if (owed)
		r.line = *owed;
	buf_reset(&t->record);
	if (!t->stays || !st->step)
		return 0;
	const size_t most = RECORD_FIELDS + j->npass * 4;
	buf_reserve(&t->record, most);
	TRY(buf_ok(&t->record, e));
	return record_write(&r, t->record.p, most, &t->record.n, e);
}

int kept_state_sent(struct trainer *t, struct err *e)
{
	const bool owed = t->owed && t->owed == t->st.step;
	TRY(kept_state_record(t, &t->st, owed ? &t->line : NULL, e));
	return t->record.n ? session_send_record(t->ses, t->record.p, t->record.n, e) : 0;
}

bool kept_state_unsaved(const struct trainer *t)
{
	const uint64_t every = t->job->save_every, step = t->st.step;
	return t->kept && t->saved == UINT64_MAX && step == t->set.st.step &&
	       step != step_of(t->saver.newest) &&
	       ((every && step % every == 0) ||
		(t->cfg->load_best_model_at_end && t->st.best_step == step));
}

int kept_state_line(struct trainer *t, struct err *e)
{
	const struct record_line *l = &t->line;
	if (!t->owed || t->owed != t->st.step || !t->sink->step)
		return 0;
	const struct train_step s = {
		.step = t->st.step,
		.total = t->job->total_steps,
		.epoch = (double)t->st.epoch +
			 (double)t->st.batch /
				 (double)batches_per_epoch(t->job->batches, t->st.epoch),
		.loss = l->loss,
		.learning_rate = l->learning_rate,
		.grad_norm = l->grad_norm,
		.tokens = l->tokens,
		.trained = l->trained,
		.accuracy = l->accuracy,
		.rewards = { l->rewarded, l->chosen, l->rejected, l->margin, l->right },
		.seconds = l->seconds,
		.predicted = NAN,
		.loss_scale = l->loss_scale,
		.skipped = l->skipped,
		.stage = t->rounds.stages,
		.stages = t->rounds.n,
	};
	t->r.last_loss = s.loss;
	return t->sink->step(t->sink->ctx, &s, e);
}
