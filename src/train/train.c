/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - see train.h. The semantics are those of docs/design.md, section 6. */
#include "train/train.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "coord/join.h"
#include "coord/profiler.h"
#include "train/samples.h"
#include "train/save.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	EVAL_PASS = 16,
	NORMS_MOST = MODEL_LAYERS_MOST + 2,
	SPANS_MOST = 4096 /* of a worker and round */
};

struct trainer {
	const struct config *cfg;
	const struct train_options *o;
	const struct train_sink *sink;
	struct job *job;
	struct session *ses;
	struct placement *place;
	struct job_plan job_plan;
	bool planned;
	struct judge judge;     /* when planned */
	struct seat_spec *seat; /* [stages] */
	struct train_state st;
	struct saver saver;
	uint64_t round; /* counts rounds: the step number on the wire */
	double *loss;   /* of each microbatch of the round */
	size_t loss_cap;
	double norm[NORMS_MOST]; /* squared, by layer: 0 front, i+1 layer i, last the end */
	struct span *span;
	uint64_t nonfinite_run;          /* skipped steps in a row */
	char nonfinite[256];             /* where the run of them began */
	int64_t busy, wait;              /* summed over workers, of the round */
	struct stepped_message *stepped; /* [workers] of the round */
	int64_t *clock;                  /* [workers] */
	struct flow_rate *rates;         /* [workers] */
	struct train_stage *stages;      /* [workers] */
	uint64_t mem_peak;
	double rate; /* seconds per token, smoothed, for the ETA */
	int64_t began;
	bool told_leaving;
	struct arena arena;
	struct train_result r;
};

static bool stopping(struct trainer *t)
{
	const char *who = session_leaving(t->ses);
	if (who && !t->told_leaving) {
		log_warn("%s asked to stop: saving and finishing", who);
		t->told_leaving = true;
	}
	return who || (t->o->stop && *t->o->stop);
}

static bool is_cluster(const struct trainer *t)
{
	return !t->o->place && (t->o->ranks || join_is_cluster(t->cfg));
}

static bool has_val(const struct trainer *t) { return batches_val_count(t->job->batches) > 0; }

/* ---- a round ---- */

static int collect_losses(struct trainer *t, uint32_t n, double *sum_p, uint64_t *trained_p,
			  struct err *e)
{
	if (!mem_grow(&t->loss, &t->loss_cap, n, sizeof *t->loss))
		return err_nomem(e, n * sizeof *t->loss, "losses");
	uint64_t trained = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct net_msg msg;
		struct frame f;
		struct loss_message m;
		TRY(session_recv(t->ses, session_workers(t->ses) - 1, FRAME_LOSS, t->round, &msg,
				 &f, e));
		int rc = loss_read(f.payload, f.size, &m, e);
		if (rc >= 0 && f.microbatch >= n)
			rc = err_set(e, ERR_PROTOCOL, "LOSS of microbatch %u of %u", f.microbatch,
				     n);
		if (rc >= 0)
			t->loss[f.microbatch] = m.sum;
		net_msg_release(&msg);
		if (rc < 0)
			return rc;
		trained += m.trained;
	}
	double sum = 0;
	/* in the order of the microbatches, whatever the schedule was */
	for (uint32_t i = 0; i < n; i++)
		sum += t->loss[i];
	*sum_p = sum;
	*trained_p = trained;
	return 0;
}

/* The squared norm of the whole gradient, layer after layer, so that its bits do not depend on
 * the split. */
static int collect_norms(struct trainer *t, double *sqnorm_p, struct err *e)
{
	static const size_t most = NORMS_MOST;
	struct norm_entry v[NORMS_MOST];
	int64_t layers = t->job->model.layers;
	memset(t->norm, 0, sizeof t->norm);
	for (int w = 0; w < session_workers(t->ses); w++) {
		struct net_msg msg;
		struct frame f;
		size_t n = 0;
		TRY(session_recv(t->ses, w, FRAME_NORM, t->round, &msg, &f, e));
		int rc = norm_read(f.payload, f.size, v, most, &n, e);
		net_msg_release(&msg);
		if (rc < 0)
			return rc;
		for (size_t i = 0; i < n; i++) {
			int64_t at = v[i].layer < 0         ? 0
				     : v[i].layer >= layers ? layers + 1
							    : v[i].layer + 1;
			t->norm[at] += v[i].sqnorm;
		}
	}
	double sum = 0;
	for (int64_t i = 0; i < layers + 2; i++)
		sum += t->norm[i];
	*sqnorm_p = sum;
	return 0;
}

/* One worker's report; its spans come to our time axis. */
static int take_stepped(struct trainer *t, int w, struct stepped_message *m, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	size_t n = 0;
	TRY(session_recv(t->ses, w, FRAME_STEPPED, t->round, &msg, &f, e));
	int rc = stepped_read(f.payload, f.size, m, t->span, t->span ? SPANS_MOST : 0, &n, e);
	int64_t back = msg.arrived;
	net_msg_release(&msg);
	if (rc < 0)
		return rc;
	session_stepped(t->ses, w, m->heard, m->said, back);
	t->clock[w] = session_clock(t->ses, w);
	for (size_t i = 0; i < n; i++) {
		t->span[i].begin += t->clock[w];
		t->span[i].ready += t->clock[w];
		t->span[i].end += t->clock[w];
	}
	if (n && t->sink->spans)
		t->sink->spans(t->sink->ctx, w, t->st.step + 1, t->span, n,
			       session_clock_error(t->ses, w));
	return 0;
}

static int collect_stepped(struct trainer *t, struct err *e)
{
	int n = session_workers(t->ses);
	t->busy = t->wait = 0;
	for (int w = 0; w < n; w++) {
		struct stepped_message *m = &t->stepped[w];
		TRY(take_stepped(t, w, m, e));
		t->busy += m->busy;
		t->wait += m->wait;
		if (m->mem_peak > t->mem_peak)
			t->mem_peak = m->mem_peak;
	}
	flows_of_pass(t->stepped, t->clock, n, !is_cluster(t), t->rates, t->stages);
	return 0;
}

/* ---- evaluation ---- */

static int evaluate(struct trainer *t, double *loss_p, struct err *e)
{
	size_t all = batches_val_count(t->job->batches);
	double sum = 0;
	uint64_t trained = 0;
	for (size_t i = 0; i < all; i += EVAL_PASS) {
		uint32_t n = (uint32_t)(all - i < EVAL_PASS ? all - i : EVAL_PASS);
		t->round++;
		for (uint32_t m = 0; m < n; m++) {
			struct microbatch mb;
			TRY(batches_val(t->job->batches, i + m, &mb, e));
			TRY(session_send_batch(t->ses, &mb, ROUND_EVAL, t->round, 0, m, n, 1, e));
		}
		double part;
		uint64_t some;
		TRY(collect_losses(t, n, &part, &some, e));
		TRY(collect_stepped(t, e));
		sum += part;
		trained += some;
		if (t->sink->part)
			t->sink->part(t->sink->ctx, "evaluating", i + n, all);
	}
	*loss_p = trained ? sum / (double)trained : NAN;
	return t->sink->eval ? t->sink->eval(t->sink->ctx, t->st.step, *loss_p, trained, e) : 0;
}

/* ---- samples ---- */

/* The sequence so far through all stages; none of them keeps anything of it. */
static int next_token(void *ctx, const int32_t *id, size_t n, int32_t *next_p, struct err *e)
{
	struct trainer *t = ctx;
	int32_t start[2] = { 0, (int32_t)n }, *label = mem_array(n, sizeof *label);
	if (!label)
		return err_nomem(e, n * 4, "a sample");
	for (size_t i = 0; i < n; i++)
		label[i] = -1;
	const struct microbatch mb = {
		.n = (uint32_t)n, .nseq = 1, .id = id, .label = label, .start = start
	};
	struct net_msg msg;
	struct frame f;
	int rc = session_send_batch(t->ses, &mb, ROUND_SAMPLE, ++t->round, 0, 0, 1, 1, e);
	mem_free(label);
	if (rc >= 0)
		rc = session_recv(t->ses, session_workers(t->ses) - 1, FRAME_TOKEN, t->round, &msg,
				  &f, e);
	if (rc < 0)
		return rc;
	rc = token_read(f.payload, f.size, next_p, e);
	net_msg_release(&msg);
	if (rc >= 0 && *next_p >= t->job->model.vocab)
		rc = err_set(e, ERR_PROTOCOL, "TOKEN: %d of a vocabulary of %lld", *next_p,
			     (long long)t->job->model.vocab);
	return rc < 0 ? rc : collect_stepped(t, e);
}

static int sample(struct trainer *t, struct err *e)
{
	const struct samples s = { .job = t->job,
				   .step = t->st.step,
				   .next = next_token,
				   .stop = t->o->stop,
				   .ctx = t,
				   .told = t->sink->sample,
				   .sink = t->sink->ctx };
	return samples_make(&s, e);
}

/* ---- a step ---- */

/* Says where the first number that is not finite came from. */
static void locate_nonfinite(struct trainer *t, uint32_t microbatches)
{
	unsigned long long step = t->st.step + 1;
	for (uint32_t i = 0; i < microbatches; i++)
		if (!isfinite(t->loss[i])) {
			snprintf(t->nonfinite, sizeof t->nonfinite,
				 "the loss of microbatch %u in step %llu, at stage %d", i, step,
				 session_workers(t->ses) - 1);
			return;
		}
	const struct placement *p = t->place;
	/* backward runs from the end: the last bad layer is the first */
	for (int64_t i = t->job->model.layers + 1; i >= 0; i--)
		if (!isfinite(t->norm[i])) {
			int stage = i == 0 ? 0 : p->stages - 1;
			for (int v = 0; v < p->stages * p->chunks; v++)
				if (i - 1 >= p->first[v] && i - 1 < p->first[v + 1])
					stage = v % p->stages;
			snprintf(t->nonfinite, sizeof t->nonfinite,
				 "the gradient of layer %lld in step %llu, at stage %d",
				 (long long)i - 1, step, stage);
			return;
		}
	snprintf(t->nonfinite, sizeof t->nonfinite, "the gradient norm in step %llu", step);
}

static void estimate(struct trainer *t, struct train_step *s)
{
	double now = s->seconds / (double)(s->tokens ? s->tokens : 1);
	t->rate = t->rate > 0 ? 0.8 * t->rate + 0.2 * now : now;
	double per_step = (double)t->st.tokens / (double)t->st.step;
	s->eta = t->rate * per_step * (double)(s->total - s->step);
}

static void advance(struct trainer *t)
{
	t->st.step++;
	if (++t->st.batch >= batches_per_epoch(t->job->batches, t->st.epoch)) {
		t->st.batch = 0;
		t->st.epoch++;
	}
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
	t->round++;
	for (size_t i = 0; i < n; i++) {
		TRY(session_send_batch(t->ses, &mb[i], ROUND_TRAIN, t->round, s.step, (uint32_t)i,
				       (uint32_t)n, (float)scale, e));
		s.tokens += mb[i].n;
	}
	double sum, sqnorm;
	TRY(collect_losses(t, (uint32_t)n, &sum, &s.trained, e));
	TRY(collect_norms(t, &sqnorm, e));
	double count = s.trained ? (double)s.trained : 1;
	s.loss = sum / count;
	s.grad_norm = sqrt(sqnorm) / count / scale;
	s.skipped = !isfinite(s.loss) || !isfinite(s.grad_norm);
	s.learning_rate = lr_at(t->job->curve, t->st.rules.lr, c->learning_rate, s.step, s.total,
				t->job->warmup_steps, c->cosine_min_lr_ratio);
	/* as torch.nn.utils.clip_grad_norm_ */
	double clip = c->max_grad_norm > 0 ? c->max_grad_norm / (s.grad_norm + 1e-6) : 1;
	struct step_message m = { .apply = !s.skipped,
				  .s = { .step = t->st.updates + 1,
					 .scale = (float)((clip < 1 ? clip : 1) / count / scale) },
				  .lr = s.learning_rate };
	unsigned char out[64];
	size_t size;
	TRY(step_write(&m, out, sizeof out, &size, e));
	TRY(session_send_all(t->ses, FRAME_STEP, t->round, out, size, e));
	TRY(collect_stepped(t, e));
	/* a gradient that has left float16's range says nothing about data or learning rate */
	const bool overflow = t->st.scale.scale > 0 &&
			      loss_scale_update(&t->st.scale, !s.skipped) && isfinite(s.loss);
	if (s.skipped && !overflow && !t->nonfinite_run++)
		locate_nonfinite(t, (uint32_t)n);
	if (!s.skipped)
		t->nonfinite_run = 0;
	t->st.updates += m.apply;
	t->st.skipped += s.skipped;
	t->st.tokens += s.tokens;
	advance(t);
	s.epoch = (double)t->st.epoch +
		  (double)t->st.batch / (double)batches_per_epoch(t->job->batches, t->st.epoch);
	s.seconds = clock_seconds(clock_now() - begin);
	s.predicted = t->planned ? judge_predict(&t->judge, s.tokens) : NAN;
	if (t->planned)
		TRY(judge_step(&t->judge, s.tokens, s.seconds, t->stages, e));
	s.mem_peak = t->mem_peak;
	s.stage = t->stages;
	s.stages = session_workers(t->ses);
	s.busy = (double)t->busy / (double)(t->busy + t->wait + 1);
	estimate(t, &s);
	if (s.step == 1)
		t->r.first_loss = s.loss;
	t->r.last_loss = s.loss;
	if (t->sink->step)
		TRY(t->sink->step(t->sink->ctx, &s, e));
	if (t->nonfinite_run && (int64_t)t->nonfinite_run >= c->max_nonfinite_steps)
		return err_set(e, ERR_INPUT,
			       "%llu steps in a row were not finite, beginning with %s: lower "
			       "learning_rate, or look at the data "
			       "there (max_nonfinite_steps)",
			       (unsigned long long)t->nonfinite_run, t->nonfinite);
	return 0;
}

static int save(struct trainer *t, enum save_kind kind, struct err *e)
{
	int64_t began = clock_now();
	TRY(session_pull_state(t->ses, ++t->round, e));
	return saver_save(&t->saver, &t->st, kind, began, e);
}

/* ---- the run ---- */

static bool due(int64_t every, uint64_t step) { return every > 0 && step % (uint64_t)every == 0; }

static int loop(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	uint64_t saved = t->st.step, evaluated = UINT64_MAX;
	while (t->st.step < t->job->total_steps && !stopping(t)) {
		TRY(one_step(t, e));
		if (has_val(t) && due(c->eval_steps, t->st.step)) {
			TRY(evaluate(t, &t->r.val_after, e));
			evaluated = t->st.step;
		}
		if (due(c->sample_steps, t->st.step) && t->st.step < t->job->total_steps)
			TRY(sample(t, e));
		if (due(c->save_steps, t->st.step) || saver_due(&t->saver)) {
			TRY(save(t, due(c->save_steps, t->st.step) ? SAVE_STEP : SAVE_TIMED, e));
			saved = t->st.step;
		}
	}
	t->r.interrupted = t->st.step < t->job->total_steps;
	TRY(session_pull_state(t->ses, ++t->round, e));
	TRY(saver_finish(&t->saver, &t->st, saved != t->st.step, e));
	if (has_val(t) && evaluated != t->st.step && !t->r.interrupted)
		TRY(evaluate(t, &t->r.val_after, e));
	return t->r.interrupted ? 0 : sample(t, e);
}

/* ---- who computes ---- */

static int join(struct trainer *t, struct err *e)
{
	const struct join_options o = { .program = t->o->program,
					.stop = t->o->stop,
					.ranks = t->o->ranks };
	if (!is_cluster(t))
		return join_threads(t->job, t->place->device, t->place->stages, &t->arena, &t->seat,
				    &t->ses, e);
	return join_cluster(t->job, &o, &t->arena, &t->seat, &t->ses, e);
}

static int get_profile(struct trainer *t, struct err *e)
{
	const struct config *c = t->cfg;
	const struct profiler_options o = { .links = session_workers(t->ses) > 1,
					    .part = t->sink->part,
					    .ctx = t->sink->ctx };
	if (!strcmp(c->profile, "auto"))
		return profiler_run(t->ses, &o, &t->job_plan.profile, e);
	if (!strcmp(c->profile, "none"))
		return job_plan_assume(&t->job_plan, t->job, t->seat, session_workers(t->ses), e);
	TRY(profile_read_file(&t->job_plan.profile, c->profile, e));
	return profile_check_job(&t->job_plan.profile, c->profile, t->job, e);
}

/* The seats in the order of the stages, as the session has them now. */
static int arrange(struct trainer *t, const int *worker, struct err *e)
{
	int n = t->place->stages;
	struct seat_spec *seat = arena_alloc(&t->arena, (size_t)n * sizeof *seat);
	if (!seat)
		return err_nomem(e, (size_t)n * sizeof *seat, "workers");
	for (int i = 0; i < n; i++)
		seat[i] = t->seat[worker[i]];
	t->seat = seat;
	return is_cluster(t) ? session_arrange(t->ses, worker, n, e) : 0;
}

/* Which layers where: unless the caller said so, as the configuration or a planner does, with what
 * the devices were measured to do. */
static int choose(struct trainer *t, struct err *e)
{
	int n = session_workers(t->ses);
	if (t->o->place)
		return 0;
	int *worker = arena_alloc(&t->arena, (size_t)n * sizeof *worker);
	if (!worker)
		return err_nomem(e, (size_t)n * sizeof *worker, "workers");
	TRY(get_profile(t, e));
	bool measured = strcmp(t->cfg->profile, "none") != 0;
	job_plan_options(&t->job_plan, t->cfg);
	if (!measured)
		t->job_plan.planner = &planner_even;
	TRY(job_plan_given(&t->job_plan, t->cfg, NULL, e));
	TRY(job_plan_make(&t->job_plan, true, e));
	TRY(job_plan_place(&t->job_plan, t->seat, session_caps(t->ses), n, &t->arena, t->place,
			   worker, e));
	if (measured)
		TRY(judge_init(&t->judge, &t->job_plan, e));
	t->planned = measured;
	return arrange(t, worker, e);
}

static int make_room(struct trainer *t, struct err *e)
{
	size_t n = (size_t)session_workers(t->ses);
	t->stepped = arena_alloc(&t->arena, n * sizeof *t->stepped);
	t->clock = arena_alloc(&t->arena, n * sizeof *t->clock);
	t->rates = arena_alloc(&t->arena, n * sizeof *t->rates);
	t->stages = arena_alloc(&t->arena, n * sizeof *t->stages);
	return t->stepped && t->clock && t->rates && t->stages
		       ? 0
		       : err_nomem(e, n * sizeof *t->stepped, "workers");
}

static int run(struct trainer *t, const char *resume, struct err *e)
{
	t->st.rules = RULES_NOW;
	if (resume)
		TRY(checkpoint_read(t->job, resume, t->o->allow_changes, &t->st, e));
	TRY(saver_init(&t->saver, t->job, t->sink, &t->arena, &t->st, resume, e));
	t->r.val_before = t->r.val_after = t->r.first_loss = t->r.last_loss = NAN;
	TRY(join(t, e));
	TRY(choose(t, e));
	TRY(make_room(t, e));
	TRY(job_hash_base(t->job, e));
	TRY(run_folder_begin(&t->saver.folder, e));
	if (t->sink->begin) {
		struct train_info i = { t->job,
					t->place,
					t->st.step,
					resume,
					is_cluster(t) ? t->seat : NULL,
					session_caps(t->ses),
					t->planned ? &t->job_plan : NULL };
		TRY(t->sink->begin(t->sink->ctx, &i, e));
	}
	if (t->st.step >= t->job->total_steps)
		log_info("nothing to do: step %llu of %llu is done", (unsigned long long)t->st.step,
			 (unsigned long long)t->job->total_steps);
	TRY(session_begin(t->ses, t->place, t->o->trace, e));
	if (resume)
		TRY(session_push_state(t->ses, 0, e));
	if (has_val(t) && !resume)
		TRY(evaluate(t, &t->r.val_before, e));
	t->began = clock_now();
	TRY(loop(t, e));
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
	if (!t || !place) {
		rc = err_nomem(e, sizeof *t + sizeof *place, "a trainer");
		goto out;
	}
	*t = (struct trainer){ .cfg = c, .o = o, .sink = sink, .job = &job, .place = place };
	if (!o->place && !is_cluster(t))
		TRYOUT(join_device(c, spec, &act, e));
	TRYOUT(job_open(c, act, &job, e));
	if (o->place)
		*place = *o->place;
	else
		placement_single(&job.model, &device, place);
	if (o->trace && !(t->span = mem_array(SPANS_MOST, sizeof *t->span))) {
		rc = err_nomem(e, SPANS_MOST * sizeof *t->span, "the trace");
		goto out;
	}
	TRYOUT(run_folder_open(c, &t->arena, &t->saver.folder, &resume, e));
	TRYOUT(run(t, resume, e));
	t->r.step = t->st.step;
	t->r.total = job.total_steps;
	t->r.tokens = t->st.tokens;
	t->r.skipped = t->st.skipped;
	t->r.mem_peak = t->mem_peak;
	*r_p = t->r;
out:
	if (t) {
		session_close(t->ses, rc < 0 ? e : NULL);
		if (rc < 0 && t->saver.folder.began && sink->lost)
			sink->lost(sink->ctx, t->saver.newest);
		run_folder_close(&t->saver.folder, rc < 0);
		mem_free(t->loss);
		mem_free(t->span);
		arena_release(&t->arena);
		judge_release(&t->judge);
		job_plan_release(&t->job_plan);
	}
	job_close(&job);
	mem_free(place);
	mem_free(t);
	return rc;
}
