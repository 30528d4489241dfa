/* SPDX-License-Identifier: Apache-2.0 */
/* train_view.c - see train_view.h. */
#include "cli/train_view.h"

#include "cli/cli.h"
#include "cli/run.h"
#include "cli/train_figures.h"
#include "cli/train_stages.h"

#include "api/run_metrics.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/run_folder.h"
#include "ops/control.h"
#include "report/live.h"
#include "report/metrics.h"
#include "report/plot.h"
#include "report/progress.h"
#include "report/mlflow.h"
#include "report/tensorboard.h"
#include "report/text.h"
#include "base/text.h"
#include "report/trace.h"
#include "sched/sched.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	TRACE_EVENTS = 1 << 16,
	PLOT_EVERY = 20,
	TELL_EVERY = 30 /* seconds */,
	SAVE_AGAIN = 5,
	SAVE_STOPPED = 3, /* attempts after a signal, where nobody can be asked */
	REFRESH = 5       /* times a second */
};

struct train_view {
	const struct config *c;
	const char *again; /* the command that continues the run */
	bool told_blocked;
	int blocked; /* attempts to save that failed since a signal to stop */
	struct progress *progress;
	struct metrics *metrics;
	struct tensorboard *board;
	struct mlflow *mlflow;
	struct wandb *wandb;
	bool done;       /* the run ended well */
	bool on_experts; /* they get adapters */
	struct trace *trace;
	char title[256];
	int64_t plotted, since; /* when the picture was drawn last; when all began */
	bool began;
	struct train_stages *stages;
	uint32_t track; /* of the trace, of the first worker of the present plan */
	struct progress_look look;
	pthread_t refresher;
	bool refreshing;
	const volatile sig_atomic_t *stop;
	atomic_bool enough;
	pthread_mutex_t lock;    /* over stages */
	struct control *control; /* NULL: it could not be opened */
	int64_t told;            /* time of the last line about the stages */
};

static const char *last_part(const char *path)
{
	const char *end = path + strlen(path), *p = end;
	while (p > path && p[-1] != '/')
		p--;
	return p;
}

static void draw(struct train_view *v)
{
	char path[4096];
	struct err e = { 0 };
	struct metrics_curve curve = metrics_curve(v->metrics);
	if (!v->c->visualize || !curve.nstep)
		return;
	snprintf(path, sizeof path, "%s/loss.png", v->c->output_dir);
	if (plot_loss(path, &(struct plot_loss){ .title = v->title, .curve = curve }, &e) < 0)
		log_warn("%s", e.msg);
	v->plotted = clock_now();
}

static void draw_topology(const struct train_view *v)
{
	struct err e = { 0 };
	if (v->c->visualize && v->stages && train_stages_draw(v->stages, v->title, &e) < 0)
		log_warn("%s", e.msg);
}

void train_view_say(struct train_view *v, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	text_safe_str(line, TEXT_LINE);
	progress_line(v->progress, line);
}

/* "13,631,488 of 8,043,892,736, 0.17 %": what is trained of all parameters, the
 * adapter's included. */
static void trained_text(const struct job *j, char *s, size_t cap)
{
	char part[32], all[32];
	uint64_t n = (uint64_t)model_parameters(&j->model);
	n += j->opt.train_all ? 0 : j->trained_numbers;
	double percent = 100 * (double)j->trained_numbers / (double)n;
	snprintf(s, cap, percent < 0.1 ? "%s of %s, %.2g %%" : "%s of %s, %.2f %%",
		 cli_digits(j->trained_numbers, part, sizeof part), cli_digits(n, all, sizeof all),
		 percent);
}

/* For what must be known: shown with -q too. */
static void warn(struct train_view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void warn(struct train_view *v, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	text_safe_str(line, TEXT_LINE);
	if (cli_quiet())
		log_warn("%s", line);
	else
		progress_line(v->progress, line);
}

/* A template that a key names, or the model's own. */
static const char *template_name(const struct job *j)
{
	const char *given = j->cfg->chat_template, *name = chat_name(j->chat);
	if (!given || strcmp(name, CHAT_JINJA) ||
	    !strncmp(given, CHAT_JINJA, sizeof CHAT_JINJA - 1))
		return name;
	return strchr(given, '{') ? "of chat_template_jinja" : given;
}

static void introduce(struct train_view *v, const struct train_info *i)
{
	const struct job *j = i->job;
	const struct config *c = v->c;
	const struct dataset_stats *d = dataset_stats(j->data);
	char all[32], trained[120];
	cli_count((uint64_t)model_parameters(&j->model), all, sizeof all);
	trained_text(j, trained, sizeof trained);
	train_view_say(v, "model   %s: %s, %lld layers, %s parameters", last_part(c->base_model),
		       j->model.family, (long long)j->model.layers, all);
	if (j->opt.train_all)
		train_view_say(v, "train   all parameters: %s; %s, %s", trained, j->optimizer->name,
			       dtype_name(j->opt.act));
	else
		train_view_say(v,
			       "train   LoRA r %lld, alpha %g%s: %s; base weights in "
			       "%s, computing in %s",
			       (long long)c->lora_r, c->lora_alpha,
			       c->use_rslora ? " (rsLoRA)" : "", trained,
			       j->opt.quantize
				       ? (j->opt.double_quant ? "NF4, double-quantised" : "NF4")
				       : dtype_name(j->opt.act),
			       dtype_name(j->opt.act));
	train_view_say(v, "data    %llu examples, %llu tokens, %llu trained; %zu held out%s%s",
		       (unsigned long long)dataset_count(j->data), (unsigned long long)d->tokens,
		       (unsigned long long)d->trained, batches_val_examples(j->batches),
		       j->chat ? "; chat template " : "", j->chat ? template_name(j) : "");
	if (d->skipped)
		train_view_say(v, "data    %llu bad records skipped; the first: %s",
			       (unsigned long long)d->skipped, d->first_skipped);
	if (d->truncated)
		train_view_say(v,
			       "data    %llu of %llu records %s longer than sequence_len %lld and "
			       "cut",
			       (unsigned long long)d->truncated, (unsigned long long)d->records,
			       d->truncated == 1 ? "was" : "were", (long long)c->sequence_len);
	if (d->untrained)
		train_view_say(
			v,
			"data    %llu of %llu examples %s not used: %sno token to learn is left "
			"within sequence_len %lld",
			(unsigned long long)d->untrained,
			(unsigned long long)(dataset_count(j->data) + d->untrained),
			d->untrained == 1 ? "is" : "are",
			c->excess_length_strategy == EXCESS_DROP || prefer_find(j->opt.prefer.name)
				? "too long, or "
				: "",
			(long long)c->sequence_len);
	long long rows = c->gradient_accumulation_steps * c->micro_batch_size;
	char passes[140] = "", list[100], warm[48] = "";
	job_passes_text(j, list, sizeof list);
	if (j->pass)
		snprintf(passes, sizeof passes, " (microbatches of %s)", list);
	else if (job_passes(j) > 1)
		snprintf(passes, sizeof passes, " (%d microbatches of %lld)", job_passes(j),
			 (long long)c->micro_batch_size);
	if (j->warmup_steps)
		snprintf(warm, sizeof warm, " after %llu step%s of warm-up",
			 (unsigned long long)j->warmup_steps, j->warmup_steps == 1 ? "" : "s");
	train_view_say(v, "steps   %llu, %s%lld sequence%s%s; learning rate %g, %s%s",
		       (unsigned long long)j->total_steps, j->total_steps == 1 ? "" : "each of ",
		       rows, rows == 1 ? "" : "s", passes, c->learning_rate, c->lr_scheduler, warm);
	if (i->resumed_from)
		train_view_say(v, "resume  %s", i->resumed_from);
}

static void introduce_plan(struct train_view *v, const struct job_plan *p)
{
	const struct plan *plan = &p->plan;
	struct buf out = BUF_INIT;
	int devices = 0;
	for (int k = 0; k < plan->stages; k++)
		devices += plan->stage[k].members;
	for (int i = 0; i < plan->left_outs; i++)
		buf_addf(&out, "%s'%s'",
			 i ? ", " : "; left out: ", p->profile.device[plan->left_out[i]].id);
	train_view_say(v,
		       "plan    %d stage%s, %s: %.0f ms a step and %.0f tokens/s predicted (%s)%s",
		       plan->stages, plan->stages == 1 ? "" : "s", plan->sched->name,
		       plan->simulated_ms, plan->tokens_per_s, plan->planner, out.n ? out.p : "");
	buf_release(&out);
	for (int i = 0; devices > 1 && i < plan->stages * plan->chunks; i++) {
		const struct plan_stage *s = &plan->stage[i % plan->stages];
		struct buf on = BUF_INIT;
		for (int k = 0; k < s->members; k++) {
			const struct plan_member *m = &s->member[k];
			buf_addf(&on, "%s'%s'", k ? ", " : "", p->profile.device[m->device].id);
			if (s->members > 1)
				buf_addf(&on, " (%d of %d microbatches", m->microbatches,
					 plan->microbatches);
			if (s->members > 1 && plan->pass)
				buf_addf(&on, ", %d rows", m->samples);
			buf_adds(&on, s->members > 1 ? ")" : "");
		}
		train_view_say(v, "        layers %d to %d on %s%s", plan->first[i],
			       plan->first[i + 1] - 1, on.n ? on.p : "",
			       s->recompute ? ", recomputed in backward" : "");
		buf_release(&on);
	}
}

static int open_mlflow(struct train_view *v, const struct train_info *i, struct err *e)
{
	static const char *const params[] = { "base_model",
					      "adapter",
					      "lora_r",
					      "lora_alpha",
					      "learning_rate",
					      "lr_scheduler",
					      "optimizer",
					      "micro_batch_size",
					      "gradient_accumulation_steps",
					      "sequence_len",
					      "seed" };
	const struct config *c = v->c;
	char dir[4096];
	struct buf b = BUF_INIT;
	json_t *doc = NULL;
	snprintf(dir, sizeof dir, "%s/mlruns", c->output_dir);
	TRY(mlflow_open(dir, c->mlflow_experiment_name,
			c->mlflow_run_name ? c->mlflow_run_name : last_part(c->output_dir),
			i->resumed_from ? (int64_t)i->first_step : -1, &v->mlflow, e));
	config_to_json(c, &b);
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = json_parse_text(b.p, b.n, "the configuration", &doc, e);
	for (size_t k = 0; rc >= 0 && k < sizeof params / sizeof *params; k++) {
		const json_t *p = json_object_get(doc, params[k]);
		char *s = p ? json_dumps(p, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
		const char *say = json_is_string(p) ? json_string_value(p) : s;
		if (say)
			rc = mlflow_param(v->mlflow, params[k], say, e);
		free(s);
	}
	json_decref(doc);
	buf_release(&b);
	return rc;
}

/* For `heteroshard status`. `s` NULL: before the first step. */
static void tell_control(struct train_view *v, const struct train_step *s)
{
	struct buf b = BUF_INIT;
	char dir[4096];
	if (!v->control)
		return;
	buf_addf(&b, "{\"pid\": %ld, \"config\": ", (long)getpid());
	json_quote(&b, v->c->path, strlen(v->c->path));
	buf_adds(&b, ", \"output_dir\": ");
	const char *full = realpath(v->c->output_dir, dir) ? dir : v->c->output_dir;
	json_quote(&b, full, strlen(full));
	if (s) {
		buf_addf(&b, ", \"step\": %llu, \"steps\": %llu, \"loss\": ",
			 (unsigned long long)s->step, (unsigned long long)s->total);
		json_number(&b, s->loss);
		buf_adds(&b, ", \"seconds\": ");
		json_number(&b, s->seconds);
		buf_adds(&b, ", \"eta\": ");
		json_number(&b, s->eta);
	}
	buf_adds(&b, ", \"workers\": [");
	if (v->stages)
		train_stages_json(v->stages, &b);
	buf_adds(&b, "]}\n");
	if (!b.failed)
		control_state(v->control, b.p);
	buf_release(&b);
}

static void name_tracks(struct train_view *v)
{
	for (int s = 0; v->trace && s < train_stages_count(v->stages); s++) {
		char name[64];
		train_stages_name(v->stages, s, name, sizeof name);
		trace_name_worker(v->trace, v->track + (uint32_t)s, name);
	}
}

static int on_begin(void *ctx, const struct train_info *i, struct err *e)
{
	struct train_view *v = ctx;
	const struct config *c = v->c;
	snprintf(v->title, sizeof v->title, "%s, %s", last_part(c->base_model),
		 i->job->opt.train_all         ? "all parameters"
		 : c->adapter == ADAPTER_QLORA ? "QLoRA"
					       : "LoRA");
	introduce(v, i);
	if (i->job_plan)
		introduce_plan(v, i->job_plan);
	TRY(run_metrics_open(c->output_dir, i, &v->metrics, e));
	if (c->tensorboard) {
		char dir[4096];
		snprintf(dir, sizeof dir, "%s/tensorboard", c->output_dir);
		TRY(tensorboard_open(dir, &v->board, e));
		if (i->resumed_from) /* an earlier file may have later steps */
			tensorboard_go_back(v->board, (int64_t)i->first_step + 1);
	}
	if (c->mlflow_experiment_name)
		TRY(open_mlflow(v, i, e));
	TRY(figures_wandb(c, &v->wandb, e));
	if (v->wandb)
		train_view_say(v, "W&B     offline; to send it: wandb sync %s",
			       wandb_folder(v->wandb));
	TRY(train_stages_new(c, i, &v->stages, e));
	name_tracks(v);
	draw_topology(v);
	tell_control(v, NULL);
	v->on_experts = figures_on_experts(i);
	v->began = true;
	v->plotted = v->told = clock_now();
	return 0;
}

static void make_table(void *ctx, int columns, int rows, struct buf *out)
{
	struct train_view *v = ctx;
	struct live_look look = {
		.columns = columns, .rows = rows - 2, .colour = v->look.colour, .utf8 = v->look.utf8
	};
	pthread_mutex_lock(&v->lock);
	train_stages_table(v->stages, &look, out);
	pthread_mutex_unlock(&v->lock);
}

/* A table on a terminal; without one a line every TELL_EVERY seconds, and at the end. */
static void show_stages(struct train_view *v, const struct train_step *s)
{
	bool last = s->step == s->total;
	pthread_mutex_lock(&v->lock);
	train_stages_step(v->stages, s);
	pthread_mutex_unlock(&v->lock);
	if (train_stages_count(v->stages) > 1 && v->look.columns)
		progress_table(v->progress, make_table, v);
	if (train_stages_count(v->stages) < 2 ||
	    (!last && (v->look.columns || clock_seconds(clock_now() - v->told) < TELL_EVERY)))
		return;
	struct buf line = BUF_INIT;
	train_stages_line(v->stages, &line);
	train_view_say(v, "stages  %s", line.p);
	buf_release(&line);
	v->told = clock_now();
}

/* A picture of the run is no reason to end it. */
static void scalar(struct train_view *v, const char *name, int64_t step, double value)
{
	struct err e = { 0 };
	const char *slash = strchr(name, '/');
	char key[64];
	snprintf(key, sizeof key, "%s%s", !strncmp(name, "eval/", 5) ? "eval_" : "", slash + 1);
	for (char *c = key; *c; c++) /* a name is a file */
		*c = strchr("/\\:", *c) ? '_' : *c;
	if (v->mlflow && mlflow_metric(v->mlflow, key, step, value, &e) < 0) {
		log_warn("%s: nothing more is written for MLflow", e.msg);
		mlflow_close(v->mlflow, true);
		v->mlflow = NULL;
		err_clear(&e);
	}
	if (v->wandb && wandb_metric(v->wandb, name, step, value, &e) < 0) {
		log_warn("%s: nothing more is written for Weights & Biases", e.msg);
		wandb_close(v->wandb, true);
		v->wandb = NULL;
		err_clear(&e);
	}
	if (!v->board || tensorboard_scalar(v->board, name, step, value, &e) >= 0)
		return;
	log_warn("%s: nothing more is written for TensorBoard", e.msg);
	tensorboard_close(v->board);
	v->board = NULL;
}

static void put_scalar(void *ctx, const char *name, int64_t step, double value)
{
	scalar(ctx, name, step, value);
}
static void say_line(void *ctx, const char *line) { train_view_say(ctx, "%s", line); }

static struct figures_out figures_to(struct train_view *v)
{
	return (struct figures_out){ v->metrics, v, put_scalar, say_line };
}

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct train_view *v = ctx;
	const bool prefer = s->rewards.given;
	const struct figures_out out = figures_to(v);
	struct metrics_rewards w;
	const struct metrics_step m = run_metrics_of(s, &w);
	TRY(metrics_add(v->metrics, &m, e));
	scalar(v, "train/loss", m.step, m.loss);
	scalar(v, "train/learning_rate", m.step, m.learning_rate);
	scalar(v, "train/grad_norm", m.step, m.grad_norm);
	if (!prefer)
		scalar(v, "train/token_accuracy", m.step, m.token_accuracy);
	else
		figures_scalars(&out, "train", m.step, &w);
	scalar(v, "train/tokens_per_second", m.step, m.tokens_per_second);
	const struct progress_step p = { .step = m.step,
					 .steps = (int64_t)s->total,
					 .loss = s->loss,
					 .learning_rate = s->learning_rate,
					 .grad_norm = s->grad_norm,
					 .tokens_per_second = m.tokens_per_second,
					 .eta = s->eta,
					 .val_loss = NAN,
					 .loss_scale = s->loss_scale,
					 .rewards = prefer,
					 .margin = s->rewards.margin,
					 .right = s->rewards.accuracy,
					 .experts = m.expert_hits,
					 .skipped = s->skipped };
	show_stages(v, s);
	tell_control(v, s);
	progress_step(
		v->progress, &p,
		s->step == 1 || s->step == s->total ||
			s->step % (uint64_t)(v->c->logging_steps > 0 ? v->c->logging_steps : 1) ==
				0);
	if (clock_seconds(clock_now() - v->plotted) > PLOT_EVERY)
		draw(v);
	return 0;
}

static int on_eval(void *ctx, const struct train_eval *r, struct err *e)
{
	const struct figures_out out = figures_to(ctx);
	return figures_eval(&out, r, e);
}

/* The members have changed: what was written of the steps that are computed again goes. */
static int on_change(void *ctx, const struct train_change *c, struct err *e)
{
	struct train_view *v = ctx;
	struct train_stages *now;
	warn(v, "%s", c->text);
	TRY(run_metrics_change(v->metrics, c, e));
	if (v->trace)
		trace_mark(v->trace, clock_now(), c->event, c->text, (int32_t)c->step);
	if (v->board)
		tensorboard_go_back(v->board, (int64_t)c->step + 1);
	if (run_plan_write(v->c->output_dir, c->info, e) < 0) {
		log_warn("%s; plan.json is that of the plan before", e->msg);
		err_clear(e);
	}
	TRY(train_stages_new(v->c, c->info, &now, e));
	v->track += (uint32_t)train_stages_count(v->stages);
	pthread_mutex_lock(&v->lock);
	train_stages_free(v->stages);
	v->stages = now;
	pthread_mutex_unlock(&v->lock);
	name_tracks(v);
	draw_topology(v);
	tell_control(v, NULL);
	return 0;
}

static bool on_leave(void *ctx, char *id, size_t cap)
{
	struct train_view *v = ctx;
	char name[CONTROL_ID];
	if (!v->control || !control_leave(v->control, name))
		return false;
	snprintf(id, cap, "%s", name);
	return true;
}

static void on_part(void *ctx, const char *what, uint64_t done, uint64_t all)
{
	struct train_view *v = ctx;
	progress_part(v->progress, what, (int64_t)done, (int64_t)all);
}

static int on_sample(void *ctx, uint64_t step, const char *prompt, const char *text, struct err *e)
{
	char line[2][4096];
	const char *const from[] = { prompt, text };
	(void)e;
	for (int i = 0; i < 2; i++) {
		char one[4096];
		snprintf(one, sizeof one, "%s", from[i]);
		for (char *p = one; *p; p++)
			*p = *p == '\n' || *p == '\t' ? ' ' : *p;
		text_clean(line[i], sizeof line[i], one, i ? 600 : 120);
	}
	train_view_say(ctx, "sample after step %llu: %s -> %s", (unsigned long long)step, line[0],
		       line[1]);
	return 0;
}

static int on_saved(void *ctx, uint64_t step, const char *path, struct err *e)
{
	(void)e;
	(void)step;
	train_view_say(ctx, "saved %s", path);
	return 0;
}

/* On a terminal the user can name another folder; elsewhere saving is tried again at intervals, so
 * that it is enough to free disk space; not for ever when a signal has stopped the run, as a
 * service is stopped. */
static int on_blocked(void *ctx, const char *why, char *other, size_t cap)
{
	struct train_view *v = ctx;
	const bool asks = cli_asks();
	if (!asks && *v->stop && v->blocked++ >= SAVE_STOPPED)
		return -1;
	if (asks || !v->told_blocked)
		warn(v,
		     "the run is over but cannot be saved: %s; saving is tried again "
		     "every %d s (%sCtrl-C: leave without it)",
		     why, SAVE_AGAIN, *v->stop ? "" : "twice ");
	v->told_blocked = true;
	if (!asks) {
		sleep(SAVE_AGAIN);
		return 0;
	}
	warn(v, "another folder to save to (empty: try the same again):");
	if (!fgets(other, (int)cap, cli_in())) {
		other[0] = 0;
		clearerr(cli_in());
		sleep(SAVE_AGAIN);
	}
	other[strcspn(other, "\r\n")] = 0;
	return 0;
}

static void on_trains(void *ctx)
{
	(void)ctx;
	cli_stop_trains(true);
}

/* Says from which checkpoint the run can continue. */
static void on_lost(void *ctx, const char *newest)
{
	struct train_view *v = ctx;
	if (newest)
		warn(v, "the newest checkpoint is %s; to go on from it: %s", newest, v->again);
	else if (v->metrics && metrics_curve(v->metrics).nstep)
		warn(v,
		     "there is no checkpoint yet to go on from: the run begins again from the "
		     "start%s",
		     run_folder_by_itself(v->c) ? "" : " (overwrite_output_dir=true)");
}

static void on_judge(void *ctx, const struct judge *j)
{
	struct train_view *v = ctx;
	struct buf b = BUF_INIT;
	judge_text(j, &b);
	for (char *line = b.p, *end; line && *line; line = end + 1) {
		end = strchr(line, '\n');
		*end = 0;
		train_view_say(v, "%s", line);
	}
	buf_release(&b);
	struct err e = { 0 };
	if (judge_write(j, v->c->output_dir, &e) < 0)
		log_warn("%s", e.msg);
}

/* The times in which it waited and computed, on separate streams. */
static void on_spans(void *ctx, int worker, uint64_t step, const struct span *s, size_t n,
		     int64_t error)
{
	struct train_view *v = ctx;
	trace_clock_error(
		v->trace,
		2 * error); /* between two workers, each with this error against our clock */
	const uint32_t track = v->track + (uint32_t)worker;
	for (size_t i = 0; i < n; i++) {
		enum instr_kind k = s[i].kind < INSTR_COUNT ? s[i].kind : INSTR_STEP;
		enum trace_stream stream = instr_sends(k)      ? TRACE_SEND
					   : instr_receives(k) ? TRACE_RECEIVE
							       : TRACE_COMPUTE;
		if (s[i].ready > s[i].begin)
			trace_span(v->trace, track, TRACE_WAIT, instr_name(k), s[i].begin,
				   s[i].ready, (int32_t)step, (int32_t)s[i].microbatch);
		trace_span(v->trace, track, stream, instr_name(k), s[i].ready, s[i].end,
			   (int32_t)step, (int32_t)s[i].microbatch);
	}
}

void train_view_finish(struct train_view *v, const struct train_result *r)
{
	char time[64], training[64], steps[80] = "", peak[32], path[4096];
	struct err e = { 0 };
	v->done = true;
	draw(v);
	draw_topology(v);
	if (v->trace) {
		snprintf(path, sizeof path, "%s/trace.json", v->c->output_dir);
		if (trace_write(v->trace, path, &e) < 0)
			log_warn("%s", e.msg);
	}
	/* the whole time; measuring and loading are in it, and not in r->seconds */
	double all = clock_seconds(clock_now() - v->since);
	progress_duration(all, time, sizeof time);
	progress_duration(r->seconds, training, sizeof training);
	if (all - r->seconds >= 1)
		snprintf(steps, sizeof steps, " in %s", training);
	cli_bytes(r->mem_peak, peak, sizeof peak);
	if (r->skipped)
		warn(v, "%llu steps were skipped because loss or gradient was not finite",
		     (unsigned long long)r->skipped);
	if (r->interrupted)
		warn(v, "interrupted after step %llu of %llu, saved; to go on from there: %s",
		     (unsigned long long)r->step, (unsigned long long)r->total, v->again);
	else
		train_view_say(v,
			       "done in %s: %llu step%s%s, %llu tokens, device memory at most %s",
			       time, (unsigned long long)r->step, r->step == 1 ? "" : "s", steps,
			       (unsigned long long)r->tokens, peak);
	if (r->timed_out)
		train_view_say(
			v, "its time is over (max_minutes) after step %llu of %llu; to go on: %s",
			(unsigned long long)r->step, (unsigned long long)r->total, v->again);
	if (r->stopped_early)
		train_view_say(
			v,
			"stopped after step %llu of %llu: no evaluation was better than that "
			"of step %llu (early_stopping_patience)",
			(unsigned long long)r->step, (unsigned long long)r->total,
			(unsigned long long)r->best);
	if (v->c->load_best_model_at_end && r->best && !r->interrupted)
		train_view_say(v, "the result is the model after step %llu",
			       (unsigned long long)r->best);
	if (!isnan(r->val_before) && !isnan(r->val_after))
		train_view_say(v, "held-out loss %.4f before, %.4f after", r->val_before,
			       r->val_after);
	train_view_say(v, "%s in %s", v->c->adapter == ADAPTER_NONE ? "model" : "adapter", r->dir);
	char word[2][PATH_MAX];
	if (v->on_experts)
		train_view_say(v, "for PEFT: heteroshard merge %s %s OUT --adapter-only",
			       text_word(v->c->base_model, word[0], PATH_MAX),
			       text_word(r->dir, word[1], PATH_MAX));
}

/* ---- a thread that redraws the display, and shows Ctrl-C before the step is over ---- */

static void *run_refresh(void *ctx)
{
	struct train_view *v = ctx;
	bool told = false;
	while (!atomic_load(&v->enough)) {
		usleep(1000000 / REFRESH);
		progress_refresh(v->progress);
		if (!told && *v->stop) {
			train_view_say(v, "%s", cli_stop_text());
			told = true;
		}
	}
	return NULL;
}

static void stop_refreshing(struct train_view *v)
{
	if (!v->refreshing)
		return;
	atomic_store(&v->enough, true);
	pthread_join(v->refresher, NULL);
	cli_stop_says(true);
}

static void write_nothing(void *ctx, const char *text, size_t n) { (void)ctx, (void)text, (void)n; }

int train_view_new(const struct config *c, const char *again, struct train_view **v_p,
		   struct err *e)
{
	struct train_view *v = mem_zalloc(sizeof *v);
	if (!v)
		return err_nomem(e, sizeof *v, "what is shown");
	v->c = c;
	v->again = again;
	v->since = clock_now();
	v->look = cli_look();
	v->stop = cli_stop();
	v->look.interval = 1000000000 / REFRESH;
	v->look.size = cli_size;
	pthread_mutex_init(&v->lock, NULL);
	if (cli_quiet()) /* warnings and errors then go past the display */
		v->look = (struct progress_look){ .interval = v->look.interval };
	int rc = progress_new(cli_quiet() ? write_nothing : cli_write_stderr, NULL, v->look,
			      &v->progress, e);
	if (rc >= 0 && c->trace)
		rc = trace_new(TRACE_EVENTS, &v->trace, e);
	cli_set_progress(cli_quiet() ? NULL : v->progress);
	if (rc >= 0 && v->look.columns &&
	    pthread_create(&v->refresher, NULL, run_refresh, v) == 0) {
		v->refreshing = true;
		cli_stop_says(false);
	}
	struct err closed = { 0 };
	if (rc >= 0 && control_open(c->output_dir, &v->control, &closed) < 0)
		log_debug("%s: 'heteroshard status' does not see this job", closed.msg);
	tell_control(v, NULL);
	if (rc < 0)
		train_view_free(v);
	else
		*v_p = v;
	return rc;
}

struct train_sink train_view_sink(struct train_view *v)
{
	return (struct train_sink){ .ctx = v,
				    .begin = on_begin,
				    .trains = on_trains,
				    .step = on_step,
				    .eval = on_eval,
				    .change = on_change,
				    .leave = on_leave,
				    .part = on_part,
				    .sample = on_sample,
				    .saved = on_saved,
				    .blocked = on_blocked,
				    .lost = on_lost,
				    .judge = on_judge,
				    .spans = on_spans };
}

void train_view_failed(struct train_view *v)
{
	if (v->began)
		draw(v);
}

void train_view_free(struct train_view *v)
{
	if (!v)
		return;
	stop_refreshing(v);
	cli_stop_trains(false);
	control_close(v->control);
	cli_set_progress(NULL);
	progress_free(v->progress);
	metrics_close(v->metrics);
	tensorboard_close(v->board);
	mlflow_close(v->mlflow, !v->done);
	wandb_close(v->wandb, !v->done);
	trace_free(v->trace);
	train_stages_free(v->stages);
	pthread_mutex_destroy(&v->lock);
	mem_free(v);
}
