/* SPDX-License-Identifier: Apache-2.0 */
/* start.c - see start.h. */
#include "train/start.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "coord/join.h"
#include "crew/run_passes.h"
#include "survey/profiler.h"
#include "survey/reduction.h"
#include "train/kept_state.h"
#include "train/remaining.h"
#include "train/speeds.h"

#include <math.h>
#include <string.h>

bool start_is_cluster(const struct trainer *t)
{
	return !t->o->place && (t->o->ranks || join_is_cluster(t->cfg));
}

struct meeting {
	struct trainer *t;
	const char *resume;
};

static int met(void *ctx, struct session *s, struct err *e)
{
	const struct meeting *m = ctx;
	return kept_state_begin(m->t, s, m->resume, e);
}

int start_join(struct trainer *t, const char *resume, struct err *e)
{
	struct meeting m = { t, resume };
	const struct join_options o = { .program = t->o->program,
					.stop = t->o->stop,
					.ranks = t->o->ranks,
					.met = t->saver.folder.continues ? met : NULL,
					.ctx = &m,
					.run = t->o->ranks ? 0 : t->saver.folder.run,
					.term = t->saver.folder.term };
	if (!start_is_cluster(t))
		return join_threads(t->job, t->place->device, placement_rows(t->place),
				    t->o->window, &t->arena, &t->seat, &t->ses, e);
	return join_cluster(t->job, &o, &t->arena, &t->seat, &t->ses, e);
}

/* Nothing is known of the workers. One that was lost since it joined is planned with: the first
 * plan is then made good as any other that has lost somebody. */
static int assume(struct trainer *t, struct err *e)
{
	const int most = session_members(t->ses);
	struct seat_spec *seat = arena_alloc(&t->arena, (size_t)most * sizeof *seat);
	int n = 0;
	if (!seat)
		return err_nomem(e, (size_t)most * sizeof *seat, "workers");
	for (int i = 0; i < most; i++)
		if (!t->seat[i].late || session_has(t->ses, i))
			seat[n++] = t->seat[i];
	return job_plan_assume(&t->job_plan, t->job, seat, n, e);
}

bool start_somebody_new(const struct trainer *t)
{
	struct profile p = { 0 };
	struct err ignored = { 0 };
	bool found = false;
	if (!t->planned || strcmp(config_profile(t->cfg), "auto") || !t->profile.n ||
	    profile_read_text(&p, t->profile.p, t->profile.n, "the profile", &ignored) < 0)
		return false;
	for (int i = 0; i < session_members(t->ses); i++)
		found |= session_has(t->ses, i) && profile_find(&p, t->seat[i].id) < 0;
	profile_release(&p);
	return found;
}

int start_measure_new(struct trainer *t, struct err *e)
{
	const struct profiler_options o = { .links = true,
					    .part = t->sink->part,
					    .ctx = t->sink->ctx };
	struct profile p;
	if (!start_somebody_new(t))
		return 0;
	TRY(profiler_run(t->ses, &o, &p, e));
	buf_reset(&t->profile);
	profile_write(&p, &t->profile);
	profile_release(&p);
	for (int i = 0; i < session_members(t->ses); i++)
		drift_forget(&t->drift, i);
	return buf_ok(&t->profile, e);
}

/* One that is lost meanwhile is done without where a planner makes the plan. */
static int measure(struct trainer *t, const struct profiler_options *o, struct err *e)
{
	const int64_t least = t->cfg->min_workers > 1 ? t->cfg->min_workers : 1;
	int rc;
	while ((rc = profiler_run(t->ses, o, &t->job_plan.profile, e)) < 0) {
		struct err why = { 0 };
		if (!t->stays || t->cfg->nshards || t->cfg->plan || !session_can_regroup(t->ses, e))
			return rc;
		TRY(session_regroup(t->ses, &why) < 0 ? (*e = why, why.code) : 0);
		if (session_there(t->ses) < least)
			return rc;
		log_warn("%s: the job begins without it", e->msg);
		while (session_loss(t->ses, &why) >= 0)
			continue;
		err_clear(e);
	}
	return 0;
}

static int get_profile(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	const struct profiler_options o = { .links = session_members(t->ses) > 1,
					    .part = t->sink->part,
					    .ctx = t->sink->ctx };
	const char *from = config_profile(c);
	if (!strcmp(from, "auto"))
		return measure(t, &o, e);
	if (!strcmp(from, "none"))
		return assume(t, e);
	TRY(profile_read_file(&t->job_plan.profile, from, e));
	/* it may have been measured for another one */
	t->job_plan.profile.global_batch =
		(int)(c->micro_batch_size * c->gradient_accumulation_steps);
	return profile_check_job(&t->job_plan.profile, from, t->job, e);
}

/* Chooses the layers of each stage, unless the caller did: by the configuration or by a planner
 * with the measured profile. */
int start_place(struct trainer *t, bool resume, struct err *e)
{
	int n = session_members(t->ses);
	int *worker = t->worker = arena_alloc(&t->arena, (size_t)n * sizeof *worker);
	if (!worker)
		return err_nomem(e, (size_t)n * sizeof *worker, "workers");
	for (int i = 0; t->o->place && i < n; i++)
		worker[i] = t->o->member ? t->o->member[i] : i;
	if (t->o->place)
		return session_assign(t->ses, t->place, worker, e);
	TRY(get_profile(t, e));
	bool measured = strcmp(config_profile(t->cfg), "none") != 0;
	if (measured)
		profile_write(&t->job_plan.profile, &t->profile);
	TRY(buf_ok(&t->profile, e));
	for (int i = 0; i < n; i++)
		if (t->seat[i].spare && profile_find(&t->job_plan.profile, t->seat[i].id) >= 0)
			TRY(profile_remove(&t->job_plan.profile, t->seat[i].id, e));
	job_plan_options(&t->job_plan, t->cfg, t->o->ranks);
	run_passes_options(t->job, resume, &t->job_plan.options);
	t->job_plan.options.order_auto &= measured && !resume;
	if (resume)
		t->job_plan.options.order = t->st.rules.reduce;
	if (!measured)
		t->job_plan.planner = &planner_even;
	TRY(job_plan_given(&t->job_plan, t->cfg, NULL, e));
	TRY(job_plan_make(&t->job_plan, true, e));
	TRY(run_passes_take(t->job, &t->job_plan.plan, t->st.step > 0, e));
	TRY(job_plan_place(&t->job_plan, &t->job->model, t->seat, session_caps(t->ses), n,
			   &t->arena, t->place, worker, e));
	if (measured)
		TRY(judge_init(&t->judge, &t->job_plan, e));
	t->planned = measured;
	return session_assign(t->ses, t->place, worker, e);
}

int start_would_do(struct trainer *t, double *seconds_p, struct err *e)
{
	struct job_plan next = { 0 };
	TRY(remaining_plan_now(t, &next, e));
	*seconds_p = t->planned ? next.plan.simulated_ms / 1e3 : 0;
	job_plan_release(&next);
	return 0;
}

int start_would_help(struct trainer *t, double *seconds_p, struct err *e)
{
	*seconds_p = 0;
	if (!t->planned)
		return 0;
	int rc = start_would_do(t, seconds_p, e);
	if (rc == ERR_NOMEM)
		return rc;
	if (rc < 0)
		*seconds_p = INFINITY;
	err_clear(e);
	return 0;
}

int start_place_again(struct trainer *t, struct job_plan *with, struct err *e)
{
	int n = session_members(t->ses);
	struct job_plan next = { 0 };
	if (with)
		next = *with, *with = (struct job_plan){ 0 };
	else
		TRY(remaining_plan_now(t, &next, e));
	judge_release(&t->judge);
	job_plan_release(&t->job_plan);
	t->judge = (struct judge){ 0 };
	t->job_plan = next;
	if (next.options.manual)
		t->job_plan.options.manual = &t->job_plan.manual;
	int *worker = t->worker = arena_alloc(&t->arena, (size_t)n * sizeof *worker);
	if (!worker)
		return err_nomem(e, (size_t)n * sizeof *worker, "workers");
	TRY(job_plan_place(&t->job_plan, &t->job->model, t->seat, session_caps(t->ses), n,
			   &t->arena, t->place, worker, e));
	TRY(run_passes_check(t->job, t->place, e));
	TRY(reduction_choose(t->job, t->st.rules.reduce, true, false, &t->st.rules, t->place, e));
	if (t->planned)
		TRY(judge_init(&t->judge, &t->job_plan, e));
	speeds_plan(t);
	TRY(session_assign(t->ses, t->place, worker, e));
	const uint64_t number = t->rounds.number;
	rounds_release(&t->rounds);
	TRY(start_rounds(t, e));
	t->rounds.number = number;
	return 0;
}

/* ---- rounds ---- */

static void give_spans(void *ctx, int row, const struct span *v, size_t n, int64_t error)
{
	struct trainer *t = ctx;
	t->sink->spans(t->sink->ctx, row, t->st.step + 1, v, n, error);
}

int start_rounds(struct trainer *t, struct err *e)
{
	const struct config *c = t->job->cfg;
	const struct draw d = { c->sample_temperature, c->sample_top_p, (uint64_t)c->seed };
	const struct round_options o = { .draw = d,
					 .prior = &t->prior,
					 .in_memory = !start_is_cluster(t),
					 .trace = t->o->trace,
					 .spans = t->sink->spans ? give_spans : NULL,
					 .ctx = t };
	return rounds_init(&t->rounds, t->ses, &o, &t->arena, e);
}

int start_info(struct trainer *t, const char *resume, struct train_info *i_p, struct err *e)
{
	int n = t->rounds.n;
	struct seat_spec *seat = arena_alloc(&t->arena, (size_t)n * sizeof *seat);
	struct welcome *caps = arena_alloc(&t->arena, (size_t)n * sizeof *caps);
	if (!seat || !caps)
		return err_nomem(e, (size_t)n * sizeof *caps, "workers");
	for (int k = 0; k < n; k++) {
		seat[k] = *session_spec(t->ses, t->rounds.member[k]);
		caps[k] = session_caps(t->ses)[t->rounds.member[k]];
	}
	*i_p = (struct train_info){ t->job,
				    t->place,
				    t->owed == t->st.step && t->owed ? t->st.step - 1 : t->st.step,
				    resume,
				    start_is_cluster(t) ? seat : NULL,
				    caps,
				    t->planned ? &t->job_plan : NULL };
	return 0;
}

void start_noise(struct trainer *t)
{
	struct stage_options *o = &t->job->opt;
	o->by_row = t->st.rules.dropout > 1;
	if (t->st.rules.dropout < 3 || !prefer_find(o->prefer.name) || !(o->lora.dropout > 0))
		return;
	o->lora.dropout = 0;
	log_info("lora_dropout has no effect with 'rl', as in TRL");
}
