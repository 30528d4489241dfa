/* cmd_train.c - `heteroshard train CONFIG [key=value ...]`: the run, its lines, its folder. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/metrics.h"
#include "report/plot.h"
#include "report/progress.h"
#include "report/tensorboard.h"
#include "report/topology.h"
#include "report/trace.h"
#include "sched/sched.h"
#include "train/cluster.h"
#include "train/train.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int cmd_train(int argc, char **argv);

enum { TRACE_EVENTS = 1 << 16, PLOT_EVERY = 20 /* seconds */ };

struct args {
	char *role, *worker;
	bool insecure;
};

static const struct opt rows[] = {
	{ .key = "role",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, role),
	  .arg = "coordinator|worker",
	  .help = "what this machine is, where its addresses do not say so" },
	{ .key = "worker",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, worker),
	  .arg = "ID",
	  .help = "be this worker of the configuration" },
	{ .key = "insecure",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, insecure),
	  .help = "links without keys and encryption, on any address: whoever reaches the port can join" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard train [--role ROLE] [--worker ID] CONFIG [key=value ...]",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.about = "Trains as CONFIG says (YAML or JSON; 'heteroshard help config' lists the keys). key=value overrides a key of the "
		 "file.\n"
		 "With 'coordinator' and 'workers' in CONFIG it is run on every machine, which finds its role by its addresses.\n"
		 "Ctrl-C finishes the step, saves and leaves; resume_from_checkpoint=latest goes on from there.",
	.example = "  heteroshard train examples/smollm2.yaml\n"
		   "  heteroshard train examples/smollm2.yaml max_steps=100 output_dir=run2\n"
		   "  heteroshard train examples/smollm2.yaml resume_from_checkpoint=latest",
};

struct view {
	const struct config *c;
	struct progress *progress;
	struct metrics *metrics;
	struct tensorboard *board;
	struct trace *trace;
	char title[256];
	int64_t plotted;
	bool began;
	char *const *program; /* argv of a worker process */
};

static const char *last_part(const char *path)
{
	const char *end = path + strlen(path), *p = end;
	while (p > path && p[-1] != '/')
		p--;
	return p;
}

static void draw(struct view *v)
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

static void draw_topology(const struct view *v, const struct train_info *i)
{
	const struct placement *p = i->place;
	char host[256] = "this machine";
	gethostname(host, sizeof host - 1);
	struct topology_machine machine = { .name = host, .coordinator = true };
	struct topology_device *d = mem_array((size_t)p->stages, sizeof *d);
	struct dev_caps *caps = mem_array((size_t)p->stages, sizeof *caps);
	struct topology_link *l = mem_array((size_t)p->stages, sizeof *l);
	char(*id)[16] = mem_array((size_t)p->stages, sizeof *id);
	struct err e = { 0 };
	if (!d || !l || !id || !caps)
		goto out;
	for (int s = 0; s < p->stages; s++) {
		snprintf(id[s], sizeof *id, "%d", s);
		d[s] = (struct topology_device){ .id = id[s],
						 .backend = p->device[s],
						 .stage = s,
						 .first = p->first[s],
						 .last = p->first[s + 1],
						 .front = s == 0,
						 .end = s == p->stages - 1,
						 .share = NAN,
						 .busy = NAN };
		struct dev *dev;
		if (dev_open(p->device[s], &dev, &e) >= 0) { /* its name and memory; without them the picture only says less */
			if (dev_caps(dev, &caps[s], &e) >= 0) {
				d[s].name = caps[s].name;
				d[s].mem_total = caps[s].mem_total;
			}
			dev_close(dev);
		}
		l[s] = (struct topology_link){
			.from = (size_t)s, .to = (size_t)s + 1, .bandwidth = NAN, .latency = NAN, .transport = "loop"
		};
	}
	struct topology t = { .title = v->title,
			      .machine = &machine,
			      .nmachine = 1,
			      .device = d,
			      .ndevice = (size_t)p->stages,
			      .link = l,
			      .nlink = (size_t)p->stages - 1 };
	if (topology_write(&t, v->c->output_dir, v->c->visualization_format, &e) < 0)
		log_warn("%s", e.msg);
out:
	mem_free(d);
	mem_free(l);
	mem_free(id);
	mem_free(caps);
}

static void say(struct view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct view *v, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	progress_line(v->progress, line);
}

static void introduce(struct view *v, const struct train_info *i)
{
	const struct job *j = i->job;
	const struct config *c = v->c;
	const struct dataset_stats *d = dataset_stats(j->data);
	char all[32], trained[32];
	cli_count((uint64_t)model_parameters(&j->model), all, sizeof all);
	cli_count(j->trained_numbers, trained, sizeof trained);
	say(v, "model   %s: %s, %lld layers, %s parameters", last_part(c->base_model), j->model.family, (long long)j->model.layers,
	    all);
	if (j->opt.train_all)
		say(v, "train   all parameters (%s), %s, %s", trained, j->optimizer->name, dtype_name(j->opt.act));
	else
		say(v, "train   LoRA r %lld, alpha %g%s: %s parameters; base weights in %s, computing in %s", (long long)c->lora_r,
		    c->lora_alpha, c->use_rslora ? " (rsLoRA)" : "", trained,
		    j->opt.quantize ? (j->opt.double_quant ? "NF4, double-quantised" : "NF4") : dtype_name(j->opt.act),
		    dtype_name(j->opt.act));
	say(v, "data    %llu examples, %llu tokens, %llu trained; %zu held out%s%s", (unsigned long long)dataset_count(j->data),
	    (unsigned long long)d->tokens, (unsigned long long)d->trained, (size_t)batches_val_count(j->batches),
	    j->chat ? "; chat template " : "", j->chat ? chat_name(j->chat) : "");
	if (d->skipped)
		say(v, "data    %llu bad records skipped; the first: %s", (unsigned long long)d->skipped, d->first_skipped);
	if (d->truncated)
		say(v, "data    %llu examples were longer than sequence_len %lld and cut", (unsigned long long)d->truncated,
		    (long long)c->sequence_len);
	say(v, "steps   %llu of %lld x %lld sequences, %s learning rate %g, %llu warm-up", (unsigned long long)j->total_steps,
	    (long long)c->gradient_accumulation_steps, (long long)c->micro_batch_size,
	    c->lr_scheduler == LR_COSINE   ? "cosine"
	    : c->lr_scheduler == LR_LINEAR ? "linear"
					   : "constant",
	    c->learning_rate, (unsigned long long)j->warmup_steps);
	if (i->resumed_from)
		say(v, "resume  %s", i->resumed_from);
}

static int on_begin(void *ctx, const struct train_info *i, struct err *e)
{
	struct view *v = ctx;
	const struct config *c = v->c;
	snprintf(v->title, sizeof v->title, "%s, %s", last_part(c->base_model),
		 i->job->opt.train_all         ? "all parameters"
		 : c->adapter == ADAPTER_QLORA ? "QLoRA"
					       : "LoRA");
	introduce(v, i);
	TRY(placement_write(i->job, i->place, c->output_dir, e));
	TRY(metrics_open(c->output_dir, i->resumed_from ? (int64_t)i->first_step : -1, &v->metrics, e));
	if (c->tensorboard) {
		char dir[4096];
		snprintf(dir, sizeof dir, "%s/tensorboard", c->output_dir);
		TRY(tensorboard_open(dir, &v->board, e));
	}
	if (v->trace)
		for (int s = 0; s < i->place->stages; s++) {
			char name[64];
			snprintf(name, sizeof name, "stage %d: %s", s, i->place->device[s]);
			trace_name_worker(v->trace, (uint32_t)s, name);
			trace_name_stream(v->trace, (uint32_t)s, 0, "compute");
			trace_name_stream(v->trace, (uint32_t)s, 1, "send");
			trace_name_stream(v->trace, (uint32_t)s, 2, "wait");
		}
	if (c->visualize)
		draw_topology(v, i);
	v->began = true;
	v->plotted = clock_now();
	return 0;
}

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct view *v = ctx;
	double rate = (double)s->tokens / (s->seconds > 0 ? s->seconds : 1);
	const struct metrics_step m = { .step = (int64_t)s->step,
					.epoch = s->epoch,
					.loss = s->loss,
					.learning_rate = s->learning_rate,
					.grad_norm = s->grad_norm,
					.tokens = (int64_t)s->tokens,
					.tokens_per_second = rate,
					.seconds = s->seconds,
					.predicted_seconds = NAN,
					.memory_peak = (double)s->mem_peak,
					.skipped = s->skipped };
	TRY(metrics_add(v->metrics, &m, e));
	if (v->board) {
		TRY(tensorboard_scalar(v->board, "train/loss", m.step, m.loss, e));
		TRY(tensorboard_scalar(v->board, "train/learning_rate", m.step, m.learning_rate, e));
		TRY(tensorboard_scalar(v->board, "train/grad_norm", m.step, m.grad_norm, e));
		TRY(tensorboard_scalar(v->board, "train/tokens_per_second", m.step, rate, e));
	}
	const struct progress_step p = { .step = m.step,
					 .steps = (int64_t)s->total,
					 .loss = s->loss,
					 .learning_rate = s->learning_rate,
					 .grad_norm = s->grad_norm,
					 .tokens_per_second = rate,
					 .eta = s->eta,
					 .val_loss = NAN,
					 .skipped = s->skipped };
	progress_step(v->progress, &p,
		      s->step == 1 || s->step == s->total ||
			      s->step % (uint64_t)(v->c->logging_steps > 0 ? v->c->logging_steps : 1) == 0);
	if (clock_seconds(clock_now() - v->plotted) > PLOT_EVERY)
		draw(v);
	return 0;
}

static int on_eval(void *ctx, uint64_t step, double loss, uint64_t tokens, struct err *e)
{
	struct view *v = ctx;
	TRY(metrics_eval(v->metrics, (int64_t)step, loss, e));
	if (v->board)
		TRY(tensorboard_scalar(v->board, "eval/loss", (int64_t)step, loss, e));
	say(v, "held-out loss %s step %llu: %.4f (perplexity %.2f, %llu tokens)", step ? "after" : "before",
	    (unsigned long long)(step ? step : 1), loss, exp(loss), (unsigned long long)tokens);
	return 0;
}

static void on_part(void *ctx, const char *what, uint64_t done, uint64_t all)
{
	struct view *v = ctx;
	progress_part(v->progress, what, (int64_t)done, (int64_t)all);
}

static int on_saved(void *ctx, uint64_t step, const char *path, struct err *e)
{
	(void)e;
	(void)step;
	say(ctx, "saved %s", path);
	return 0;
}

static void on_spans(void *ctx, int worker, uint64_t step, const struct span *s, size_t n)
{
	struct view *v = ctx;
	for (size_t i = 0; i < n; i++) {
		enum instr_kind k = s[i].kind < INSTR_COUNT ? s[i].kind : INSTR_STEP;
		uint32_t stream = k == INSTR_FORWARD || k == INSTR_BACKWARD || k == INSTR_REDUCE || k == INSTR_STEP ? 0
				  : k == INSTR_SEND_ACT || k == INSTR_SEND_GRAD                                     ? 1
														    : 2;
		trace_span(v->trace, (uint32_t)worker, stream, instr_name(k), s[i].begin, s[i].end, (int32_t)step,
			   (int32_t)s[i].microbatch);
	}
}

static void finish(struct view *v, const struct train_result *r)
{
	char time[64], peak[32], path[4096];
	struct err e = { 0 };
	draw(v);
	if (v->trace) {
		snprintf(path, sizeof path, "%s/trace.json", v->c->output_dir);
		if (trace_write(v->trace, path, &e) < 0)
			log_warn("%s", e.msg);
	}
	progress_duration(r->seconds, time, sizeof time);
	cli_bytes(r->mem_peak, peak, sizeof peak);
	if (r->skipped)
		say(v, "%llu steps were skipped because loss or gradient was not finite", (unsigned long long)r->skipped);
	if (r->interrupted)
		say(v, "interrupted after step %llu of %llu; go on with resume_from_checkpoint=latest", (unsigned long long)r->step,
		    (unsigned long long)r->total);
	else
		say(v, "done in %s: %llu steps, %llu tokens, device memory at most %s", time, (unsigned long long)r->step,
		    (unsigned long long)r->tokens, peak);
	if (!isnan(r->val_before) && !isnan(r->val_after))
		say(v, "held-out loss %.4f before, %.4f after", r->val_before, r->val_after);
	say(v, "%s in %s", v->c->adapter == ADAPTER_NONE ? "model" : "adapter", v->c->output_dir);
}

static int run(struct view *v, struct err *e)
{
	struct train_result r;
	const struct train_sink sink = {
		.ctx = v, .begin = on_begin, .step = on_step, .eval = on_eval, .part = on_part, .saved = on_saved, .spans = on_spans
	};
	const struct train_options o = { .stop = cli_stop(), .trace = v->c->trace, .program = v->program };
	struct progress_look look = { .columns = cli_columns(stderr), .colour = cli_colour(stderr) };
	TRY(progress_new(cli_write_stderr, NULL, look, &v->progress, e));
	cli_set_progress(v->progress);
	if (v->c->trace)
		TRY(trace_new(TRACE_EVENTS, &v->trace, e));
	TRY(train_run(v->c, &o, &sink, &r, e));
	finish(v, &r);
	return r.interrupted ? 1 : 0;
}

/* How this program is started as a worker with the same configuration. */
static char **worker_program(int npos, char **pos, bool insecure, struct arena *a)
{
	char **p = arena_alloc(a, (size_t)(npos + 5) * sizeof *p);
	size_t n = 0;
	if (!p)
		return NULL;
	p[n++] = (char *)"heteroshard";
	p[n++] = (char *)"-q";
	p[n++] = (char *)"worker";
	if (insecure)
		p[n++] = (char *)"--insecure";
	for (int i = 0; i < npos; i++)
		p[n++] = pos[i];
	p[n] = NULL;
	return p;
}

int cmd_train(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	struct err e = { 0 };
	struct role r = { 0 };
	int npos, status;
	if (!cli_args(&usage, argc, argv, &o, 1, -1, &npos, &a, &status)) {
		arena_release(&a);
		return status;
	}
	struct config *c = NULL;
	struct view v = { .program = worker_program(npos, argv + 1, o.insecure, &a) };
	int rc = config_load(argv[1], npos - 1, argv + 2, &c, &e);
	v.c = c;
	if (rc >= 0) {
		c->insecure |= o.insecure;
		rc = cluster_role(c, o.role, o.worker, &r, &e);
	}
	if (rc >= 0 && r.kind == ROLE_WORKER)
		rc = cli_work(c, &r, &e);
	else if (rc >= 0)
		rc = run(&v, &e);
	if (v.began && rc < 0 && v.metrics)
		draw(&v);
	cli_set_progress(NULL);
	progress_free(v.progress);
	metrics_close(v.metrics);
	tensorboard_close(v.board);
	trace_free(v.trace);
	config_free(c);
	arena_release(&a);
	return rc < 0 ? cli_fail(&e) : rc;
}
