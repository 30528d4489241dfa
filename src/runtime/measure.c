/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - see measure.h. */
#include "runtime/measure.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/stat.h"
#include "net/frame.h"
#include "runtime/measure_experts.h"
#include "runtime/measure_host.h"
#include "runtime/measure_kinds.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_LEAST = 5, RUNS_LONG = 3, RUNS_MOST = 64, OPTIM_RUNS = 5 };

/* The stages that are measured. MANY comes last so that a layer's weights are not still in a cache
 * when it runs alone. */
enum { WITH_FRONT, ONE, WITH_END, MANY, KINDS };

enum { LAYERS_LEAST = 3, LAYERS_MOST = 16 };

/* seconds of runs of a size the job needs, where there is time; of others a quarter */
static const double enough = 4;
/* A run that takes so many seconds varies little: RUNS_LONG of it are enough, so that a slow device
 * has time for more sizes. */
static const double long_run = 0.5;
/* bytes that a cache may hold from one pass to the next: 32 MiB of an EPYC, 72 of an RTX 4090 */
static const double cached = 96e6;
static const double drift_allowed = 0.1; /* above it a size is measured once more */
/* Allowed difference between a whole model and the sum of its parts; above it everything is
 * measured once more. */
static const double sum_allowed = 0.1;
static const double memory_share = 0.9; /* of the free memory */

struct measure_tokens {
	int32_t *id, *pos, *label, *start;
	int64_t n, nseq;
};

struct measuring {
	const struct measure_request *q;
	const struct measure_others *others; /* NULL: none */
	struct measure_result *r;
	struct dev *dev;
	struct stage whole; /* front, `layers` layers, end */
	int64_t layers;
	struct stage part[KINDS];
	struct slot slot[KINDS];
	bool built[KINDS];
	struct measure_tokens t;
	struct dmem aside;            /* `noise` and a message */
	struct dev_ref noise, packed; /* (N,C): the input; the same in the dtype of the wire */
	unsigned char *message;
	uint64_t microbatch;
	int64_t end;   /* clock_now() when the budget is used up */
	double room;   /* seconds for the runs of this size */
	double wanted; /* seconds after which it has enough */
	double byte;   /* of a large message: seconds; 0: not measured yet */
};

/* Seconds of the runs of one size. */
struct runs {
	int n;
	double begin[KINDS][RUNS_MOST], forward[KINDS][RUNS_MOST], backward[KINDS][RUNS_MOST];
	double warm[2][RUNS_MOST];                   /* of ONE behind itself: forward, backward */
	double up[RUNS_MOST], down[RUNS_MOST], copy; /* of a message */
};

/* ---- numbers ---- */

/* The quantile q of v. */
static double quantile(const double *v, int n, double q)
{
	double s[RUNS_MOST];
	memcpy(s, v, (size_t)n * sizeof *s);
	stat_sort(s, (size_t)n);
	return s[(int)(q * (n - 1) + 0.5)];
}

static double median(const double *v, int n)
{
	double s[RUNS_MOST];
	memcpy(s, v, (size_t)n * sizeof *s);
	return stat_median(s, (size_t)n);
}

static double mean(const double *v, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += v[i];
	return sum / n;
}

static double at_least(double x, double least) { return x > least ? x : least; }

/* ---- running the parts ---- */

static int make_tokens(struct measuring *p, int m, struct err *e)
{
	const struct measure_request *q = p->q;
	struct measure_tokens *t = &p->t;
	t->n = m * q->tokens;
	t->nseq = m * q->sequences;
	mem_free(t->id);
	t->id = mem_array((size_t)(3 * t->n + t->nseq + 1), sizeof *t->id);
	if (!t->id)
		return err_nomem(e, (unsigned long long)t->n * 12, "tokens");
	t->pos = t->id + t->n;
	t->label = t->pos + t->n;
	t->start = t->label + t->n;
	for (int64_t s = 0; s <= t->nseq; s++)
		t->start[s] = (int32_t)(s / q->sequences * q->tokens +
					s % q->sequences * q->tokens / q->sequences);
	double due = 0;
	for (int64_t s = 0; s < t->nseq; s++)
		for (int32_t i = t->start[s]; i < t->start[s + 1]; i++) {
			t->id[i] = (int32_t)(rng_mix64((uint64_t)i) % (uint64_t)q->cfg.vocab);
			t->pos[i] = i - t->start[s];
			due += q->trained;
			t->label[i] = due >= 1 ? (int32_t)(rng_mix64((uint64_t)i + 7) %
							   (uint64_t)q->cfg.vocab)
					       : -100;
			due -= due >= 1;
		}
	t->label[t->n - 1] = 0; /* at least one token is trained, so that there is a loss */
	return 0;
}

static void drop_part(struct measuring *p, int kind)
{
	if (!p->built[kind])
		return;
	slot_release(&p->slot[kind]);
	stage_part_release(&p->part[kind]);
	p->built[kind] = false;
}

static int make_part(struct measuring *p, int kind, int64_t first, int64_t last, bool front,
		     bool end, struct err *e)
{
	TRY(stage_part(&p->whole, first, last, front, end, &p->part[kind], e));
	slot_init(&p->slot[kind], &p->part[kind]);
	p->built[kind] = true;
	return 0;
}

static int make_parts(struct measuring *p, struct err *e)
{
	const int64_t n = p->layers, one = measure_kinds_one(&p->whole.cfg, n);
	TRY(make_part(p, WITH_FRONT, 0, 1, true, false, e));
	TRY(make_part(p, ONE, one, one + 1, false, false, e));
	TRY(make_part(p, WITH_END, n - 1, n, false, true, e));
	return n > 1 ? make_part(p, MANY, 0, n, false, false, e) : 0;
}

/* A forward and backward pass; seconds of stage_begin, forward, backward. */
static int run_pass(struct measuring *p, int kind, double t[3], struct err *e)
{
	struct slot *sl = &p->slot[kind];
	const struct stage_batch b = { .step = 1,
				       .microbatch = p->microbatch++,
				       .n = p->t.n,
				       .nseq = p->t.nseq,
				       .id = p->t.id,
				       .pos = p->t.pos,
				       .label = p->t.label,
				       .start = p->t.start,
				       .train = true };
	size_t bytes = (size_t)(b.n * p->q->cfg.hidden) * dtype_size(p->q->opt.act);
	int64_t t0 = clock_now();
	TRY(stage_begin(sl, &b, e));
	TRY(dev_sync(p->dev, e));
	int64_t t1 = clock_now();
	if (!sl->stage->front)
		TRY(dev_copy(sl->in, p->noise, bytes, e));
	if (!sl->stage->end)
		TRY(dev_copy(sl->grad, p->noise, bytes, e));
	TRY(dev_sync(p->dev, e));
	int64_t t2 = clock_now();
	TRY(stage_forward(sl, e));
	TRY(dev_sync(p->dev, e));
	int64_t t3 = clock_now();
	TRY(stage_backward(sl, e));
	TRY(dev_sync(p->dev, e));
	int64_t t4 = clock_now();
	stage_end(sl);
	t[0] = clock_seconds(t1 - t0);
	t[1] = clock_seconds(t3 - t2);
	t[2] = clock_seconds(t4 - t3);
	return 0;
}

/* ---- messages ---- */

/* The steps between a stage and the wire, as in the worker: a cast, the copy from or to the device,
 * the checksum. */
static int launch_cast(struct measuring *p, struct dev_ref to, enum dtype to_type,
		       struct dev_ref from, enum dtype from_type, size_t count, struct err *e)
{
	const union dev_arg a[] = { { .b = to },
				    { .b = from },
				    { .i = (int64_t)count },
				    { .i = to_type },
				    { .i = from_type } };
	return dev_launch(p->dev, K_cast, DT_F32, a, e);
}

static int time_transfer(struct measuring *p, double *down_p, double *up_p, struct err *e)
{
	enum dtype wire = p->q->wire, act = p->q->opt.act;
	size_t count = (size_t)(p->t.n * p->q->cfg.hidden), bytes = count * dtype_size(wire), n;
	struct dev_ref at = wire == act ? p->noise : p->packed;
	struct frame f = { .kind = FRAME_ACTIVATION,
			   .dtype = wire,
			   .ndim = 2,
			   .dim = { (uint64_t)p->t.n, (uint64_t)p->q->cfg.hidden },
			   .payload = p->message + FRAME_HEADER };
	int64_t t0 = clock_now();
	if (wire != act)
		TRY(launch_cast(p, p->packed, wire, p->noise, act, count, e));
	TRY(dev_download(p->message + FRAME_HEADER, at, bytes, e));
	TRY(frame_encode(&f, p->message, FRAME_HEADER + bytes, &n, e));
	int64_t t1 = clock_now();
	TRY(frame_parse(p->message, n, &f, e));
	TRY(dev_upload(at, f.payload, bytes, e));
	if (wire != act)
		TRY(launch_cast(p, p->noise, act, p->packed, wire, count, e));
	TRY(dev_sync(p->dev, e));
	*down_p = clock_seconds(t1 - t0);
	*up_p = clock_seconds(clock_now() - t1);
	return 0;
}

static int time_copies(struct measuring *p, struct runs *v, struct err *e)
{
	v->copy = median(v->up, v->n);
	if (strcmp(p->dev->be->name, "cpu"))
		return 0;
	if (!(p->byte > 0))
		TRY(measure_messages(p->dev, &p->byte, e));
	v->copy = p->byte * (double)(p->t.n * p->q->cfg.hidden) * (double)dtype_size(p->q->wire) /
		  (p->r->processors > 0 ? fmin(1, p->r->processors) : 1);
	return 0;
}

/* Numbers like activations: around one, of either sign. */
static int make_message(struct measuring *p, struct err *e)
{
	size_t count = (size_t)(p->t.n * p->q->cfg.hidden);
	size_t bytes = FRAME_HEADER + count * (p->q->wire == DT_F32            ? 4
					       : dtype_size(p->q->opt.act) > 2 ? 4
									       : 2);
	float *v = mem_array(count, sizeof *v);
	mem_free(p->message);
	p->message = mem_aligned(64, bytes);
	int rc = v && p->message ? 0 : err_nomem(e, count * 4 + bytes, "a message");
	dmem_release(&p->aside);
	if (rc >= 0) {
		for (size_t i = 0; i < count; i++)
			v[i] = (float)(int32_t)rng_mix64(i) * 0x1p-31f;
		dtype_from_f32(p->q->opt.act, v, p->message, count);
		rc = dmem_take(&p->aside, count * dtype_size(p->q->opt.act), &p->noise, e);
	}
	if (rc >= 0)
		rc = dev_upload(p->noise, p->message, count * dtype_size(p->q->opt.act), e);
	if (rc >= 0)
		rc = dmem_take(&p->aside, count * dtype_size(p->q->wire), &p->packed, e);
	mem_free(v);
	return rc;
}

/* ---- one size ---- */

static int run_all(struct measuring *p, struct runs *v, int i, struct err *e)
{
	const struct measure_others *o = p->others;
	if (o && o->gone && o->gone(o->ctx))
		return err_set(e, ERR_CANCELLED, "nobody waits for the measurements any more");
	for (int k = 0; k < KINDS; k++) {
		double t[3] = { 0 };
		if (p->built[k])
			TRY(run_pass(p, k, t, e));
		v->begin[k][i] = t[0];
		v->forward[k][i] = t[1];
		v->backward[k][i] = t[2];
		if (k != ONE)
			continue;
		TRY(run_pass(p, k, t, e));
		v->warm[0][i] = t[1];
		v->warm[1][i] = t[2];
	}
	return time_transfer(p, &v->down[i], &v->up[i], e);
}

static double seconds_left(const struct measuring *p)
{
	return clock_seconds(p->end - clock_now());
}

static double total_of(const struct runs *v, int kind, int i)
{
	return v->forward[kind][i] + v->backward[kind][i];
}

/* The least number of runs when each takes so many seconds. */
static int least_runs(double each) { return each > long_run ? RUNS_LONG : RUNS_LEAST; }

/* As many runs as the time allows, after one that warms up. When a single layer takes seconds on a
 * device, only this run is used. */
static int run_size(struct measuring *p, struct runs *v, struct err *e)
{
	double t[3];
	int64_t begin = clock_now();
	TRY(run_pass(p, ONE, t, e));
	if (clock_seconds(clock_now() - begin) * (double)(p->layers + 4) > seconds_left(p)) {
		drop_part(p, MANY);
		v->n = 1;
		return run_all(p, v, 0, e);
	}
	begin = clock_now();
	TRY(run_all(p, v, 0, e));
	double each = clock_seconds(clock_now() - begin);
	int runs = (int)(p->wanted / each), most = (int)((p->room - each) / each);
	runs = runs < least_runs(each) ? least_runs(each) : runs > RUNS_MOST ? RUNS_MOST : runs;
	runs = runs > most ? most : runs;
	v->n = runs > 0 ? runs : 1;
	for (int i = 0; i < runs; i++)
		TRY(run_all(p, v, i, e));
	return 0;
}

static double drift_of(const double *v, int n)
{
	int third = n / 3;
	return third ? mean(v + n - third, third) / mean(v, third) - 1 : 0;
}

/* The median of the differences between two stages, run by run, so that a slow drift cancels. */
static double median_difference(const struct runs *v, double (*const a)[RUNS_MOST], int more,
				int less)
{
	double d[RUNS_MOST];
	for (int i = 0; i < v->n; i++)
		d[i] = a[more][i] - a[less][i];
	return median(d, v->n);
}

/* The time of a layer: the difference between k layers and one, divided by k - 1. It is limited to
 * the neighbourhood of 1/k of the time of k layers, because of noise. */
static double layer_time(const struct measuring *p, const struct runs *v,
			 double (*const a)[RUNS_MOST])
{
	if (!p->built[MANY])
		return median(a[ONE], v->n);
	double each = median(a[MANY], v->n) / (double)p->layers,
	       d = median_difference(v, a, MANY, ONE) / (double)(p->layers - 1);
	return d < 0.85 * each ? 0.85 * each : d > 1.1 * each ? 1.1 * each : d;
}

/* The time of a pass besides its layers; at most a tenth of a layer. */
static double pass_time(const struct runs *v, double (*const a)[RUNS_MOST], double layer)
{
	double rest = median(a[ONE], v->n) - layer;
	return rest < 0 ? 0 : rest > 0.1 * layer ? 0.1 * layer : rest;
}

/* Of a layer behind itself: never longer than between others, and not by more than so much
 * shorter. */
static double warm_time(const struct runs *v, int which, double cold, double pass)
{
	const double t = median(v->warm[which], v->n) - pass;
	return t > cold ? cold : at_least(t, 0.3 * cold);
}

static void evaluate(const struct measuring *p, struct runs *v, struct measure_point *o)
{
	int many = p->built[MANY] ? MANY : ONE;
	double f = layer_time(p, v, v->forward), b = layer_time(p, v, v->backward), t[RUNS_MOST];
	double pass_f = pass_time(v, v->forward, f), pass_b = pass_time(v, v->backward, b);
	/* a middle stage receives twice */
	double rest = (median(v->begin[ONE], v->n) + pass_f + pass_b) / 2;
	double *s = o->seconds;
	s[MEASURE_FORWARD] = f;
	s[MEASURE_BACKWARD] = b;
	s[MEASURE_FRONT_FORWARD] = median(v->begin[WITH_FRONT], v->n) +
				   at_least(median_difference(v, v->forward, WITH_FRONT, ONE), 0) +
				   pass_f;
	s[MEASURE_FRONT_BACKWARD] =
		at_least(median_difference(v, v->backward, WITH_FRONT, ONE) + pass_b - rest, 0);
	s[MEASURE_END_FORWARD] =
		median(v->begin[WITH_END], v->n) +
		at_least(median_difference(v, v->forward, WITH_END, ONE) + pass_f - rest, 0);
	s[MEASURE_END_BACKWARD] =
		at_least(median_difference(v, v->backward, WITH_END, ONE) + pass_b, 0);
	s[MEASURE_UPLOAD] = median(v->up, v->n) + rest;
	s[MEASURE_DOWNLOAD] = median(v->down, v->n);
	s[MEASURE_COPY] = v->copy;
	s[MEASURE_WARM_FORWARD] = warm_time(v, 0, f, pass_f);
	s[MEASURE_WARM_BACKWARD] = warm_time(v, 1, b, pass_b);
	for (int i = 0; i < v->n; i++)
		t[i] = total_of(v, many, i);
	o->runs = v->n;
	o->spread = (quantile(t, v->n, 0.9) - quantile(t, v->n, 0.1)) / median(t, v->n);
	o->drift = drift_of(t, v->n);
}

static size_t scratch_peak(const struct measuring *p, int kind)
{
	return dmem_most(p->part[kind].scratch);
}

static void count_memory(const struct measuring *p, struct measure_point *o)
{
	size_t one = p->slot[ONE].mem.peak, kept, work = scratch_peak(p, ONE);
	if (p->built[MANY]) {
		kept = (p->slot[MANY].mem.peak - one) / (size_t)(p->layers - 1);
		work = scratch_peak(p, MANY) > work ? scratch_peak(p, MANY) : work;
	} else { /* less the time of a pass before its first layer */
		size_t edges = 2 * (size_t)(p->t.n * p->q->cfg.hidden) * dtype_size(p->q->opt.act);
		kept = one > edges ? one - edges : one;
	}
	work = scratch_peak(p, WITH_FRONT) > work ? scratch_peak(p, WITH_FRONT) : work;
	o->kept = kept;
	o->work = kept + work;
	/* the last layer may have no adapters and keep less than the one in the middle */
	const size_t with_end = p->slot[WITH_END].mem.peak;
	o->end = with_end > one ? with_end - one : 0;
	o->head = o->end + scratch_peak(p, WITH_END);
}

static int measure(struct measuring *p, struct measure_point *o, struct err *e)
{
	struct runs *v = mem_zalloc(sizeof *v);
	if (!v)
		return err_nomem(e, sizeof *v, "measurements");
	int rc = run_size(p, v, e);
	if (rc >= 0)
		rc = time_copies(p, v, e);
	if (rc >= 0) {
		evaluate(p, v, o);
		count_memory(p, o);
	}
	if (rc >= 0 && fabs(o->drift) > drift_allowed && seconds_left(p) > 0) {
		rc = run_size(p, v, e);
		if (rc >= 0)
			evaluate(p, v, o);
	}
	mem_free(v);
	if (rc >= 0 && p->q->cfg.experts)
		rc = measure_experts(&p->whole, p->layers / 2, p->t.n, p->noise,
				     &o->seconds[MEASURE_EXPERTS_FORWARD],
				     &o->seconds[MEASURE_EXPERTS_BACKWARD], e);
	return rc;
}

/* *grown_p: bytes that this size took on the device. */
static int one_size(struct measuring *p, int m, struct measure_point *o, uint64_t *grown_p,
		    struct err *e)
{
	uint64_t before = p->dev->mem_used;
	*o = (struct measure_point){ .m = m };
	int rc = make_tokens(p, m, e);
	if (rc >= 0)
		rc = make_message(p, e);
	if (rc >= 0)
		rc = make_parts(p, e);
	if (rc >= 0)
		rc = measure(p, o, e);
	*grown_p = p->dev->mem_used - before;
	for (int k = 0; k < KINDS; k++)
		drop_part(p, k);
	return rc;
}

static bool has_room(struct measuring *p, double bytes)
{
	struct dev_caps caps;
	struct err ignored = { 0 };
	return dev_caps(p->dev, &caps, &ignored) < 0 || !caps.mem_total ||
	       bytes < memory_share * (double)caps.mem_free;
}

static int all_sizes(struct measuring *p, struct err *e)
{
	const struct measure_request *q = p->q;
	struct measure_result *r = p->r;
	uint64_t grown = 0;
	double took = 0; /* the least number of runs of a size before, and how long */
	int m = 0;
	for (int i = 0; i < q->sizes; i++) {
		double factor = m ? (double)q->size[i] / m : 1;
		int64_t begin = clock_now();
		if (m && (took * factor > (i < q->needed ? q->budget : seconds_left(p)) ||
			  !has_room(p, (double)grown * factor)))
			continue;
		struct err why = { 0 };
		p->room = seconds_left(p) / (i < q->needed ? q->needed - i : 2);
		p->room = fmax(p->room, fmin(took * factor, seconds_left(p)));
		p->wanted = i < q->needed ? enough : enough / 4;
		int rc = one_size(p, q->size[i], &r->point[r->points], &grown, &why);
		if (rc == ERR_NOMEM && r->points > 0)
			break;
		if (rc < 0) {
			*e = why;
			return rc;
		}
		/* beside its runs it warms up, and measures messages */
		const double all = clock_seconds(clock_now() - begin),
			     each = all / (r->point[r->points].runs + 2);
		took = each * (least_runs(each) + 2);
		m = q->size[i];
		r->points++;
	}
	return 0;
}

/* ---- figures that do not depend on the size ---- */

static int part_of(const struct param *p)
{
	return p->layer < 0 ? MEASURE_FRONT : p->layer == INT_MAX ? MEASURE_END : MEASURE_LAYER;
}

static size_t bytes_of(const struct dev_buf *b) { return b ? b->size : 0; }

static void count_bytes(struct measuring *p)
{
	struct measure_result *r = p->r;
	for (size_t i = 0; i < p->whole.nparam; i++) {
		const struct param *w = &p->whole.param[i];
		int at = part_of(w);
		for (size_t k = 0; k < ARRAY_LEN(w->store); k++)
			r->weights[at] += bytes_of(w->store[k]);
		r->state[at] += bytes_of(w->grad);
		for (size_t k = 0; k < PARAM_STATES; k++)
			r->state[at] += bytes_of(w->state[k]);
		if (w->value != w->store[0])
			r->state[at] += bytes_of(w->value);
	}
	r->weights[MEASURE_LAYER] /= (uint64_t)p->layers;
	r->state[MEASURE_LAYER] /= (uint64_t)p->layers;
	/* A worker that has only the end of a tied model needs the table too. The gradient of the
	 * head is there in any case, and counted above. */
	if (p->whole.cfg.tied)
		r->weights[MEASURE_END] += r->weights[MEASURE_FRONT];
}

/* A step of the parameters of one part. */
static int step_part(struct measuring *p, const struct optimizer *o, int part,
		     struct norm_buffer *norms, double *t_p, struct err *e)
{
	const struct optim_step os = { .step = 1, .lr = 1e-6f, .scale = 1e-3f };
	const struct optim_work work = { p->whole.scratch, norms };
	int64_t begin = clock_now();
	if (part == MEASURE_FRONT)
		TRY(stage_tie(&p->whole, &p->whole, e));
	for (size_t i = 0; i < p->whole.nparam; i++) {
		struct param *w = &p->whole.param[i];
		double sum;
		if (!param_is_trained(w) || part_of(w) != part)
			continue;
		TRY(grad_sqnorm(w, p->whole.scratch, norms, &sum, e));
		TRY(optim_update(o, w, &p->q->optim, &os, &work, e));
	}
	TRY(dev_sync(p->dev, e));
	*t_p = clock_seconds(clock_now() - begin);
	return 0;
}

static int time_optimizer(struct measuring *p, const struct optimizer *o, struct err *e)
{
	struct norm_buffer norms = { 0 };
	int rc = 0;
	for (int part = 0; part < MEASURE_PARTS && rc >= 0; part++) {
		bool any = false;
		for (size_t i = 0; i < p->whole.nparam; i++)
			any |= param_is_trained(&p->whole.param[i]) &&
			       part_of(&p->whole.param[i]) == part;
		if (!any)
			continue;
		double t[OPTIM_RUNS + 1];
		for (int i = 0; i <= OPTIM_RUNS && rc >= 0; i++)
			rc = step_part(p, o, part, &norms, &t[i], e);
		p->r->optimizer[part] = rc < 0 ? 0 : median(t + 1, OPTIM_RUNS);
	}
	p->r->optimizer[MEASURE_LAYER] /= (double)p->layers;
	mem_free(norms.sum);
	return rc;
}

/* Compares a small model in one stage with the sum of its parts. Skipped where it would
 * take long. */
static int check_whole(struct measuring *p, struct err *e)
{
	enum { RUNS = 3 };
	const struct measure_point *o = &p->r->point[0];
	int64_t n = p->layers > 1 ? p->layers - 1 : 1;
	double expect = 0, got[RUNS];
	for (int i = MEASURE_FORWARD; i <= MEASURE_END_BACKWARD; i++)
		expect += o->seconds[i] * (double)(i <= MEASURE_BACKWARD ? n : 1);
	if (expect * (RUNS + 1) > p->q->budget)
		return 0;
	TRY(make_tokens(p, o->m, e));
	TRY(make_message(p, e));
	TRY(make_part(p, ONE, 0, n, true, true, e));
	for (int i = -1; i < RUNS; i++) {
		double t[3];
		TRY(run_pass(p, ONE, t, e));
		if (i >= 0)
			got[i] = t[0] + t[1] + t[2];
	}
	p->r->residual = median(got, RUNS) / expect - 1;
	return 0;
}

/* ---- all of it ---- */

int64_t measure_layers(const struct measure_request *q, uint64_t free)
{
	const double numbers = (double)model_layer_parameters(&q->cfg),
		     layer = numbers * (q->opt.quantize ? 0.5 : (double)dtype_size(q->opt.act)),
		     whole = q->opt.train_all ? numbers * 16 : layer;
	int64_t n = (int64_t)(cached / layer) + 1,
		most = q->cfg.layers < LAYERS_MOST ? q->cfg.layers : LAYERS_MOST;
	const double fit = free ? (double)free / 2 / whole : LAYERS_MOST;
	n = n > most ? most : n;
	if ((double)n > fit)
		n = (int64_t)fit;
	return measure_kinds_layers(&q->cfg, n > LAYERS_LEAST ? n : LAYERS_LEAST,
				    fit < LAYERS_MOST ? (int64_t)fit : LAYERS_MOST);
}

static int build(struct measuring *p, const struct optimizer *o, uint64_t free, struct err *e)
{
	struct model_config c = p->q->cfg;
	struct stage_options so = p->q->opt;
	const struct weight_source src = source_random(&c);
	int rc;
	model_drop_dense(&c); /* layers without experts are fewer and smaller */
	so.first = 0;
	so.recompute = false;
	so.router_loss = so.router_z = 0; /* they join layers that are measured alone */
	for (p->layers = measure_layers(p->q, free);; p->layers--) {
		c.layers = so.last = p->layers;
		measure_kinds_share(&p->q->cfg, c.layers, &c);
		err_clear(e);
		rc = stage_build(&p->whole, p->dev, &c, &so, &src, e);
		if (rc != ERR_NOMEM || p->layers == 1)
			break;
	}
	for (size_t i = 0; rc >= 0 && i < p->whole.nparam; i++)
		if (param_is_trained(&p->whole.param[i]))
			rc = optim_init(o, &p->whole.param[i], &p->q->optim, e);
	return rc;
}

/* Gives the result away and computes on, at the size of the job, while others measure. */
static int stay_busy(struct measuring *p, struct err *e)
{
	const struct measure_others *o = p->others;
	int m = p->r->point[0].m, rc;
	for (int i = 0; i < p->r->points; i++)
		m = p->q->needed > 0 && p->r->point[i].m == p->q->size[p->q->needed - 1]
			    ? p->r->point[i].m
			    : m;
	TRY(o->end(o->ctx, p->r, e));
	TRY(make_tokens(p, m, e));
	TRY(make_message(p, e));
	TRY(make_parts(p, e));
	for (int k = 0; (rc = o->busy(o->ctx, e)) > 0; k = (k + 1) % KINDS) {
		double t[3];
		if (p->built[k])
			TRY(run_pass(p, k, t, e));
	}
	return rc;
}

static int by_m(const void *a, const void *b)
{
	return ((const struct measure_point *)a)->m - ((const struct measure_point *)b)->m;
}

/* What the driver has taken beyond the bytes of buffers since `free` bytes were free; 0 where its
 * memory is the host's, which others use too. */
static int beyond_buffers(const struct measuring *p, uint64_t free, uint64_t *bytes_p,
			  struct err *e)
{
	struct dev_caps caps;
	TRY(dev_caps(p->dev, &caps, e));
	const uint64_t there = caps.mem_free + p->dev->mem_used;
	*bytes_p = !caps.unified && free > there ? free - there : 0;
	return 0;
}

static int run(struct measuring *p, struct err *e)
{
	struct measure_result *r = p->r;
	struct dev_caps caps;
	const struct optimizer *o = optimizer_find(p->q->optimizer);
	if (!o)
		return err_set(e, ERR_PROTOCOL, "there is no optimizer '%s'", p->q->optimizer);
	TRY(dev_caps(p->dev, &caps, e));
	memcpy(r->name, caps.name, sizeof r->name);
	snprintf(r->driver, sizeof r->driver, "%s", caps.driver);
	r->units = caps.units;
	r->threads = omp_get_max_threads();
	r->unified = caps.unified;
	r->limited = caps.unified && caps.mem_total < os_machine_memory("");
	/* OpenCL's processors are called so by PoCL */
	const bool cpu = !strcmp(p->dev->be->name, "cpu");
	if (cpu || (caps.unified &&
		    (!strncmp(caps.name, "cpu", 3) || !strncmp(caps.name, "pthread", 7)))) {
		measure_cores(r->cores, sizeof r->cores);
		r->processors = os_cores_share("", cpu ? r->threads : r->units);
	}
	r->memory = caps.mem_total;
	r->used = caps.mem_total - caps.mem_free;
	uint64_t host;
	os_memory("", &host, &r->host_free);
	uint64_t free_before = caps.mem_free;
	TRY(build(p, o, free_before, e));
	uint64_t rounded, beyond;
	TRY(beyond_buffers(p, free_before, &rounded, e));
	r->rounding = (double)rounded / (double)(p->dev->mem_used + 1);
	const bool together = p->others && p->others->begin;
	if (together)
		TRY(p->others->begin(p->others->ctx, e));
	for (int times = 0; times < 2 && (!times || fabs(r->residual) > sum_allowed); times++) {
		r->points = 0;
		r->residual = 0;
		p->end = clock_now() + (int64_t)(p->q->budget * 1e9);
		TRY(all_sizes(p, e));
		TRY(check_whole(p, e));
		drop_part(p, ONE);
	}
	TRY(beyond_buffers(p, free_before, &beyond, e));
	r->fixed = (beyond > rounded ? beyond - rounded : 0) + bytes_of(p->whole.inv_freq);
	qsort(r->point, (size_t)r->points, sizeof *r->point, by_m);
	count_bytes(p);
	TRY(time_optimizer(p, o, e));
	if (!cpu)
		TRY(measure_host_update(p->q, &r->host_update, e));
	return together ? stay_busy(p, e) : 0;
}

int measure_run(const char *device, const struct measure_request *q,
		const struct measure_others *others, struct measure_result *r_p, struct err *e)
{
	struct measuring *p = mem_zalloc(sizeof *p);
	if (!p)
		return err_nomem(e, sizeof *p, "measurements");
	*r_p = (struct measure_result){ 0 };
	p->q = q;
	p->others = others;
	p->r = r_p;
	int rc = runtime_device(device, &p->dev, e);
	if (rc >= 0) {
		dmem_init(&p->aside, p->dev, 0);
		rc = run(p, e);
		for (int k = 0; k < KINDS; k++)
			drop_part(p, k);
		dmem_release(&p->aside);
		stage_release(&p->whole);
	}
	dev_close(p->dev);
	mem_free(p->t.id);
	mem_free(p->message);
	mem_free(p);
	return rc;
}
