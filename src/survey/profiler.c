/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.c - see profiler.h. All workers measure at once: those that share a machine compete for
 * it, as they will in training. They begin together, and who has its result computes on until all
 * have theirs. So none of them may use a cached result while another one has to measure. */
#include "survey/profiler.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stat.h"
#include "base/version.h"
#include "survey/links_measure.h"
#include "coord/session.h"
#include "coord/weights_out.h"
#include "plan/plan.h"
#include "plan/unsure.h"
#include "proto/measure_wire.h"
#include "survey/routing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

enum { PINGS = 9, TABLE_MOST = 64 };

static const double budget = 20; /* seconds a device; twice where the planner chooses the sizes */
/* allowed difference between the length of rows and that of a profile */
static const double length_off = 0.1;
/* bytes per second between machines that cannot reach each other: no plan will use it */
static const double no_link = 1e3;
/* sizes that are measured before all others */
enum { PASSES_MEASURED = 6 };
/* sizes of which the longest rows are looked for; more have those of the last one */
enum { FULL_SIZES = 128 };

/* ---- the request ---- */

static void add_size(struct measure_request *q, int64_t m, int64_t tokens)
{
	for (int i = 0; i < q->sizes; i++)
		if (q->size[i] == m)
			return;
	if (q->sizes < MEASURE_POINTS && m <= PROFILE_MAX_BATCH && m * tokens <= 1 << 26)
		q->size[q->sizes++] = (int)m;
}

/* One row, then the sizes of the job, then others by doubling: its neighbours, or where the planner
 * chooses sizes itself all that a step has rows for. And the time for them. */
static void choose_sizes(struct measure_request *q, const struct config *c)
{
	const struct planner *planner = c->nshards || c->plan ? NULL : planner_find(c->planner);
	const bool chooses = planner && planner->chooses_sizes;
	int64_t all = c->micro_batch_size * c->gradient_accumulation_steps,
		most = 2 * c->micro_batch_size;
	add_size(q, 1, q->tokens);
	add_size(q, c->micro_batch_size, q->tokens);
	for (size_t i = 0; i < c->npass; i++) {
		most = c->pass[i] > most ? c->pass[i] : most;
		if (q->sizes < PASSES_MEASURED)
			add_size(q, c->pass[i], q->tokens);
	}
	q->needed = q->sizes;
	q->budget = chooses ? 2 * budget : budget;
	most = chooses ? all : most < 4 ? 4 : most;
	for (int64_t m = 2; m <= most && m <= all; m *= 2)
		add_size(q, m, q->tokens);
}

static void make_request(struct session *s, const struct profiler_options *o,
			 struct measure_request *q)
{
	static const enum dtype wire[] = {
		[WIRE_BFLOAT16] = DT_BF16, [WIRE_FLOAT32] = DT_F32, [WIRE_FLOAT16] = DT_F16
	};
	const struct job *j = session_job(s);
	struct batch_shape shape = batches_shape(j->batches);
	*q = (struct measure_request){ .cfg = j->model,
				       .opt = j->opt,
				       .optim = j->optim,
				       .wire = wire[j->cfg->wire_dtype],
				       .tokens = (int64_t)(shape.tokens + 0.5),
				       .sequences = (int64_t)(shape.sequences + 0.5),
				       .trained = shape.trained > 0 ? shape.trained : 1e-6,
				       .refresh = o->refresh };
	q->sequences = q->sequences < 1 ? 1 : q->sequences > q->tokens ? q->tokens : q->sequences;
	snprintf(q->optimizer, sizeof q->optimizer, "%s", j->optimizer->name);
	choose_sizes(q, j->cfg);
}

/* ---- asking ---- */

/* Those who come late, or are lost, are not measured. */
static bool there(const struct session *s, int worker) { return session_has(s, worker); }

/* The device of a worker in the profile. */
static int device_of(const struct session *s, int worker)
{
	int n = 0;
	for (int i = 0; i < worker; i++)
		n += there(s, i);
	return n;
}

/* Workers on the machine of this one, with it. */
static int workers_beside(const struct session *s, int worker)
{
	int n = 0;
	for (int i = 0; i < session_members(s); i++)
		n += there(s, i) && machine_same_kernel(session_caps(s)[i].machine,
							session_caps(s)[worker].machine);
	return n;
}

/* Takes PROFILED. 1: with a result; 0: empty. */
static int answer(struct session *s, int worker, struct measure_result *r, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	TRY(session_recv(s, worker, FRAME_PROFILED, 0, &msg, &f, e));
	int rc = f.size ? measure_result_read(f.payload, f.size, r, e) : 0;
	rc = rc < 0 ? rc : f.size > 0;
	net_msg_release(&msg);
	return rc < 0 ? err_prefix(e, "%s", session_name(s, worker)) : rc;
}

static int answer_without_result(struct session *s, int worker, struct err *e)
{
	struct measure_result unwanted;
	int rc = answer(s, worker, &unwanted, e);
	return rc <= 0 ? rc
		       : err_set(e, ERR_PROTOCOL,
				 "%s: PROFILED with a result that was not asked for",
				 session_name(s, worker));
}

/* The time of one message from every worker and one to every worker, as for the global norm of
 * a step. */
static int round_trip(struct session *s, double *ms_p, struct err *e)
{
	double ms[PINGS];
	for (int i = 0; i < PINGS; i++) {
		int64_t begin = clock_now();
		for (int w = 0; w < session_members(s); w++)
			if (there(s, w))
				TRY(session_send(s, w, FRAME_PROFILE, 0, 0, NULL, 0, e));
		for (int w = 0; w < session_members(s); w++)
			if (there(s, w))
				TRY(answer_without_result(s, w, e));
		ms[i] = 1e3 * clock_seconds(clock_now() - begin);
	}
	*ms_p = stat_median(ms, PINGS);
	return 0;
}

/* All devices are measured at once, so the bar follows the time. */
struct clock_bar {
	const struct profiler_options *o;
	int64_t began;
	double most; /* seconds to expect */
};

static void show_time(void *ctx)
{
	const struct clock_bar *b = ctx;
	double share = clock_seconds(clock_now() - b->began) / b->most;
	if (b->o->part)
		b->o->part(b->o->ctx, "measuring the devices",
			   (uint64_t)(1000 * (share < 0.98 ? share : 0.98)), 1000);
}

struct asking {
	struct session *s;
	const struct measure_request *q;
	char *config;
	struct measure_result *r; /* [members] */
	bool *waits;              /* [members]: is ready, and measures when it is called */
	struct buf out;
};

static int ask(struct asking *a, int w, bool refresh, struct err *e)
{
	struct measure_request mine = *a->q;
	mine.refresh |= refresh;
	mine.sharing = workers_beside(a->s, w);
	TRY(measure_request_write(&mine, a->config, &a->out, e));
	return session_send(a->s, w, FRAME_PROFILE, 0, 0, a->out.p, a->out.n, e);
}

/* Whether a worker on the same machine has no result yet. */
static bool has_to_join_in(const struct asking *a, int w)
{
	for (int i = 0; i < session_members(a->s); i++)
		if (a->waits[i] && machine_same_kernel(session_caps(a->s)[i].machine,
						       session_caps(a->s)[w].machine))
			return true;
	return false;
}

/* Has every worker that shares its machine either done, with a result from its cache, or ready. */
static int make_ready(struct asking *a, struct err *e)
{
	int n = session_members(a->s);
	for (int w = 0; w < n; w++)
		if (there(a->s, w) && workers_beside(a->s, w) > 1)
			TRY(ask(a, w, false, e));
	for (int w = 0; w < n; w++)
		if (there(a->s, w) && workers_beside(a->s, w) > 1) {
			int rc = answer(a->s, w, &a->r[w], e);
			TRY(rc);
			a->waits[w] = rc == 0;
		}
	bool *again = mem_array((size_t)n, sizeof *again);
	int rc = again ? 0 : err_nomem(e, (size_t)n, "measurements");
	for (int w = 0; w < n && rc >= 0; w++) {
		again[w] = there(a->s, w) && workers_beside(a->s, w) > 1 && !a->waits[w] &&
			   has_to_join_in(a, w);
		if (again[w])
			rc = ask(a, w, true, e);
	}
	for (int w = 0; w < n && rc >= 0; w++)
		if (again[w]) {
			rc = answer_without_result(a->s, w, e);
			a->waits[w] = true;
		}
	mem_free(again);
	return rc;
}

static int measure_together(struct asking *a, struct err *e)
{
	int n = session_members(a->s);
	TRY(make_ready(a, e));
	for (int w = 0; w < n; w++)
		if (a->waits[w])
			TRY(session_send(a->s, w, FRAME_PROFILE, 0, 0, NULL, 0, e));
		else if (there(a->s, w) && workers_beside(a->s, w) <= 1)
			TRY(ask(a, w, false, e));
	for (int w = 0; w < n; w++)
		if (a->waits[w] || (there(a->s, w) && workers_beside(a->s, w) <= 1)) {
			int rc = answer(a->s, w, &a->r[w], e);
			if (rc == 0)
				return err_set(e, ERR_PROTOCOL, "%s: PROFILED without a result",
					       session_name(a->s, w));
			TRY(rc);
		}
	return 0;
}

/* Afterwards some compute on: round_trip() ends that. */
static int ask_all(struct session *s, const struct profiler_options *o,
		   const struct measure_request *q, struct measure_result *r, struct err *e)
{
	struct asking a = { .s = s,
			    .q = q,
			    .config = json_dumps(model_file_config(session_job(s)->file),
						 JSON_COMPACT),
			    .r = r,
			    .waits = mem_zalloc((size_t)session_members(s) * sizeof *a.waits),
			    .out = BUF_INIT };
	struct clock_bar bar = { .o = o, .began = clock_now(), .most = 1.5 * q->budget };
	int rc = a.config && a.waits ? 0 : err_nomem(e, 0, "the model's configuration");
	log_info("measuring %d device%s: at most about %.0f s, remembered for the next time",
		 device_of(s, session_members(s)), device_of(s, session_members(s)) == 1 ? "" : "s",
		 bar.most);
	session_set_tick(s, show_time, &bar);
	if (rc >= 0)
		rc = measure_together(&a, e);
	session_set_tick(s, NULL, NULL);
	buf_release(&a.out);
	mem_free(a.waits);
	free(a.config);
	if (rc >= 0 && o->part)
		o->part(o->ctx, "measuring the devices", 1, 1);
	return rc;
}

/* ---- curves ---- */

/* The line with the smallest relative error at n points, and its largest relative error. Its slope
 * is never negative. */
static void fit(struct curve *c, const int *m, const double *y, int n)
{
	double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
	for (int i = 0; i < n; i++) {
		double k = 1 / ((double)m[i] * m[i]);
		w += k;
		wx += k * m[i];
		wy += k * y[i];
		wxx += k * m[i] * m[i];
		wxy += k * m[i] * y[i];
	}
	double det = w * wxx - wx * wx;
	c->slope = n > 1 && det > 0 ? (w * wxy - wx * wy) / det : y[0] / m[0];
	c->slope = c->slope > 0 ? c->slope : 0;
	c->intercept = n > 1 ? (wy - c->slope * wx) / w : 0;
	for (int i = 0; i < n; i++)
		if (y[i] > 0)
			c->residual = fmax(c->residual,
					   fabs((c->slope * m[i] + c->intercept) / y[i] - 1));
	c->line = c->given = true;
}

/* A table from 1 to the largest measured size, interpolated linearly; below the first point in
 * proportion to the size. */
static int make_curve(struct profile *p, struct curve *c, const int *m, const double *y, int n,
		      struct err *e)
{
	int most = m[n - 1] < TABLE_MOST ? m[n - 1] : TABLE_MOST, k = 0;
	double *t = arena_alloc(&p->mem, (size_t)most * sizeof *t);
	if (!t)
		return err_nomem(e, (size_t)most * sizeof *t, "a profile");
	for (int x = 1; x <= most; x++) {
		while (m[k] < x)
			k++;
		t[x - 1] = m[k] == x || k == 0 ? y[k] * x / m[k]
					       : y[k - 1] + (y[k] - y[k - 1]) * (x - m[k - 1]) /
								    (m[k] - m[k - 1]);
	}
	*c = (struct curve){ .table = t, .n = most };
	fit(c, m, y, n);
	return 0;
}

/* How much longer than the mean the rows of a microbatch of m rows can be, full[m - 1]. */
struct fullness {
	double *full;
	int n;
};

static int find_fullest(struct profile *p, struct batches *b, struct fullness *f, struct err *e)
{
	const double mean = batches_shape(b).tokens;
	f->n = p->global_batch < FULL_SIZES ? p->global_batch : FULL_SIZES;
	f->full = arena_alloc(&p->mem, (size_t)f->n * sizeof *f->full);
	if (!f->full)
		return err_nomem(e, (size_t)f->n * sizeof *f->full, "a profile");
	for (int m = 1; m <= f->n; m++)
		f->full[m - 1] = fmax(1, batches_fullest(b, (size_t)m) / mean);
	p->fullest = (struct curve){ .table = f->full,
				     .n = f->n,
				     .line = true,
				     .given = true,
				     .intercept = f->full[f->n - 1] };
	return 0;
}

/* Memory was counted for rows of mean length; it must do for the longest of each size. */
static int for_the_fullest(struct profile *p, struct curve *c, const struct fullness *f,
			   struct err *e)
{
	double *t = arena_alloc(&p->mem, (size_t)f->n * sizeof *t);
	if (!t)
		return err_nomem(e, (size_t)f->n * sizeof *t, "a profile");
	for (int m = 1; m <= f->n; m++)
		t[m - 1] = f->full[m - 1] * curve_at(c, m);
	c->table = t;
	c->n = f->n;
	c->slope *= f->full[f->n - 1];
	c->intercept *= f->full[f->n - 1];
	return 0;
}

static int fill_curves(struct profile *p, struct profile_device *d, const struct measure_result *r,
		       const struct fullness *full, struct err *e)
{
	struct curve *time[MEASURE_TIMES] = { [MEASURE_FORWARD] = &d->forward_ms,
					      [MEASURE_BACKWARD] = &d->backward_ms,
					      [MEASURE_FRONT_FORWARD] = &d->embedding_forward_ms,
					      [MEASURE_FRONT_BACKWARD] = &d->embedding_backward_ms,
					      [MEASURE_END_FORWARD] = &d->head_forward_ms,
					      [MEASURE_END_BACKWARD] = &d->head_backward_ms,
					      [MEASURE_UPLOAD] = &d->upload_ms,
					      [MEASURE_DOWNLOAD] = &d->download_ms,
					      [MEASURE_COPY] = &d->copy_ms,
					      [MEASURE_WARM_FORWARD] = &d->warm_forward_ms,
					      [MEASURE_WARM_BACKWARD] = &d->warm_backward_ms,
					      [MEASURE_EXPERTS_FORWARD] = &d->experts_forward_ms,
					      [MEASURE_EXPERTS_BACKWARD] =
						      &d->experts_backward_ms };
	int m[MEASURE_POINTS];
	double y[4][MEASURE_POINTS];
	for (int i = 0; i < r->points; i++)
		m[i] = r->point[i].m;
	for (int k = 0; k < MEASURE_TIMES; k++) {
		if (k >= MEASURE_EXPERTS_FORWARD && !(r->point[0].seconds[k] > 0))
			continue; /* not a mixture of experts */
		for (int i = 0; i < r->points; i++)
			y[0][i] = 1e3 * r->point[i].seconds[k];
		TRY(make_curve(p, time[k], m, y[0], r->points, e));
	}
	for (int i = 0; i < r->points; i++) {
		y[0][i] = (double)r->point[i].kept / GIB;
		y[1][i] = (double)r->point[i].work / GIB;
		y[2][i] = (double)r->point[i].head / GIB;
		y[3][i] = (double)r->point[i].end / GIB;
	}
	TRY(make_curve(p, &d->kept_gib, m, y[0], r->points, e));
	TRY(make_curve(p, &d->activation_gib, m, y[1], r->points, e));
	TRY(make_curve(p, &d->head_gib, m, y[2], r->points, e));
	TRY(make_curve(p, &d->head_kept_gib, m, y[3], r->points, e));
	TRY(for_the_fullest(p, &d->kept_gib, full, e));
	TRY(for_the_fullest(p, &d->activation_gib, full, e));
	TRY(for_the_fullest(p, &d->head_kept_gib, full, e));
	return for_the_fullest(p, &d->head_gib, full, e);
}

static void fill_measured(struct profile_measured *m, const struct measure_result *r,
			  const char *driver)
{
	_Static_assert((int)PROFILE_TIMES == (int)MEASURE_TIMES &&
			       (int)PROFILE_SAMPLES == (int)MEASURE_POINTS,
		       "the same times");
	*m = (struct profile_measured){ .driver = driver,
					.units = r->units,
					.threads = r->threads,
					.residual = r->residual,
					.samples = r->points };
	for (int i = 0; i < r->points; i++) {
		const struct measure_point *o = &r->point[i];
		m->sample[i] = (struct profile_sample){
			.m = o->m, .runs = o->runs, .spread = o->spread, .drift = o->drift
		};
		for (int k = 0; k < MEASURE_TIMES; k++)
			m->sample[i].ms[k] = 1e3 * o->seconds[k];
	}
}

/* ---- the profile ---- */

static const char *keep(struct profile *p, const char *s)
{
	const char *k = arena_strdup(&p->mem, s);
	return k ? k : "";
}

static int host_of(struct profile *p, const char *name)
{
	for (int h = 0; h < p->hosts; h++)
		if (!strcmp(p->host[h].name, name))
			return h;
	p->host[p->hosts] = (struct profile_host){ .name = keep(p, name) };
	return p->hosts++;
}

/* Devices that use the memory of their machine share it: each gets its part, but who has a limit of
 * its own gets that. */
static int sharing(const struct session *s, const struct measure_result *r, int worker)
{
	int n = 0;
	for (int i = 0; i < session_members(s); i++)
		n += r[i].unified && !r[i].limited &&
		     machine_same_kernel(session_caps(s)[i].machine,
					 session_caps(s)[worker].machine);
	return r[worker].unified && !r[worker].limited ? n : 1;
}

static int fill_device(struct session *s, struct profile *p, const struct measure_result *r, int i,
		       const struct fullness *full, struct err *e)
{
	const struct seat_spec *seat = session_spec(s, i);
	struct profile_device *d = &p->device[device_of(s, i)];
	double part = sharing(s, r, i) * GIB;
	*d = (struct profile_device){ .id = keep(p, seat->id),
				      .kind = keep(p, r[i].name[0] ? r[i].name : seat->device),
				      .host = host_of(p, seat->host),
				      .on_host = !strcmp(session_caps(s)[i].backend, "cpu"),
				      .memory_gib = (double)r[i].memory / part,
				      .used_gib = (double)r[i].used / part,
				      .fixed_gib = (double)r[i].fixed / GIB,
				      .rounding = r[i].rounding,
				      .cores = profile_cores(r[i].cores, NULL) ? keep(p, r[i].cores)
									       : NULL,
				      .processors = r[i].processors,
				      .host_memory_gib = (double)r[i].host_free / GIB,
				      .host_update_s = r[i].host_update,
				      .reserve_gib = -1,
				      .optimizer_ms = 1e3 * r[i].optimizer[MEASURE_LAYER],
				      .embedding_optimizer_ms = 1e3 * r[i].optimizer[MEASURE_FRONT],
				      .head_optimizer_ms = 1e3 * r[i].optimizer[MEASURE_END] };
	fill_measured(&d->measured, &r[i], keep(p, r[i].driver[0] ? r[i].driver : "unknown"));
	return fill_curves(p, d, &r[i], full, e);
}

static void training_text(const struct job *j, char *out, size_t cap)
{
	const struct stage_options *o = &j->opt;
	size_t n = 0;
	if (o->train_all) {
		snprintf(out, cap, "full, %s", j->optimizer->name);
		return;
	}
	n += (size_t)snprintf(out, cap, "lora r %lld on", (long long)o->lora.r);
	for (int l = 0; l < LIN_COUNT && n < cap; l++)
		if (o->lora.target[l])
			n += (size_t)snprintf(out + n, cap - n, " %s", linear_name(l));
	if (n < cap)
		snprintf(out + n, cap - n, "%s, %s", o->quantize ? ", 4-bit" : "",
			 j->optimizer->name);
}

static void fill_model(const struct session *s, const struct measure_request *q,
		       const struct measure_result *r, struct profile *p)
{
	const struct job *j = session_job(s);
	const struct model_config *c = &j->model;
	double table = (double)c->vocab * (double)c->hidden;
	char training[256];
	training_text(j, training, sizeof training);
	p->source = keep(p, "measured by heteroshard " HS_VERSION);
	p->program = keep(p, HS_VERSION);
	p->training = keep(p, training);
	p->model = keep(p, j->cfg->base_model);
	p->digest = keep(p, session_model(s));
	p->tied = c->tied;
	p->dtype = keep(p, dtype_name(j->opt.act));
	p->layers = (int)c->layers;
	p->hidden = (int)c->hidden;
	p->sequence_len = (int)q->tokens;
	p->global_batch = (int)(j->cfg->micro_batch_size * j->cfg->gradient_accumulation_steps);
	p->parameters = (double)model_parameters(c);
	p->parameters_per_layer = (double)model_layer_parameters(c);
	p->embedding_parameters = table;
	p->head_parameters = (double)c->hidden + (c->tied ? 0 : table);
	p->wire_bytes = dtype_size(q->wire);
	p->experts = (int)c->experts;
	p->top_k = (int)c->top_k;
	p->expert_parameters = 3.0 * (double)c->hidden * (double)c->intermediate;
	p->layer_gib = (double)r->weights[MEASURE_LAYER] / GIB;
	if (c->experts && !j->opt.train_all)
		p->expert_gib =
			model_expert_bytes(c, j->opt.quantize, j->opt.double_quant, j->opt.act) /
			GIB;
	p->embedding_gib = (double)r->weights[MEASURE_FRONT] / GIB;
	p->head_gib = (double)r->weights[MEASURE_END] / GIB;
	p->layer_state_gib = (double)r->state[MEASURE_LAYER] / GIB;
	p->embedding_state_gib = (double)r->state[MEASURE_FRONT] / GIB;
	p->head_state_gib = (double)r->state[MEASURE_END] / GIB;
	p->gradient_share = job_gradient_share(j);
}

/* ---- links ---- */

static struct profile_link *find_link(struct profile *p, int from, int to)
{
	for (int i = 0; i < p->links; i++)
		if (p->link[i].from == from && p->link[i].to == to)
			return &p->link[i];
	return NULL;
}

/* Stores every way that was tried between the machines of two workers, in the direction of
 * row `best`. */
static int keep_ways(const struct link_table *t, const struct link_row *best, struct profile *p,
		     struct profile_link *l, struct err *e)
{
	struct profile_way *v = arena_alloc(&p->mem, t->n * sizeof *v);
	if (!v)
		return err_nomem(e, t->n * sizeof *v, "links");
	for (size_t i = 0; i < t->n; i++) {
		const struct link_row *r = &t->row[i];
		if (r->from != best->from || r->to != best->to)
			continue;
		struct profile_way *w = &v[l->ways++];
		*w = (struct profile_way){ .from = keep(p, r->from_address),
					   .to = keep(p, r->to_address),
					   .used = r->best,
					   .unreachable =
						   r->way.reached ? NULL : keep(p, r->way.why),
					   .latency_ms = 1e3 * r->way.latency };
		for (int k = 0; k < PROBE_SIZES && (r->way.out[k].rounds || r->way.in[k].rounds);
		     k++)
			w->sample[w->samples++] = (struct profile_way_sample){
				.bytes = (double)probe_size[k],
				.rate = r->way.out[k].rate / 1e9,
				.reverse_rate = r->way.in[k].rate / 1e9,
				.spread = r->way.out[k].spread,
				.reverse_spread = r->way.in[k].spread
			};
	}
	l->way = v;
	return 0;
}

/* Not measured: Ethernet of 1 Gbit/s between all hosts. */
static int assume_links(struct profile *p, struct err *e)
{
	if (p->hosts < 2)
		return 0;
	p->link = arena_alloc(&p->mem, sizeof *p->link);
	if (!p->link)
		return err_nomem(e, sizeof *p->link, "a link");
	*p->link = (struct profile_link){ .from = -1,
					  .to = -1,
					  .bandwidth = 0.117,
					  .latency_ms = 0.2,
					  .reverse_bandwidth = 0.117,
					  .reverse_latency_ms = 0.2 };
	p->links = 1;
	p->source =
		keep(p, "measured by heteroshard " HS_VERSION ", links assumed to be of 1 Gbit/s");
	return 0;
}

/* Where what is relayed passes through. */
static const char *coordinator_host(const struct session *s)
{
	const char *ip = session_job(s)->cfg->coordinator.ip;
	return ip && ip[0] ? ip : "coordinator";
}

/* The best way between each two machines, as links between hosts: a rate for messages of the size
 * the job sends. */
static int fill_links(struct session *s, const struct profiler_options *o,
		      const struct measure_request *q, struct profile *p, struct err *e)
{
	const uint64_t message =
		(uint64_t)(session_job(s)->cfg->micro_batch_size * q->tokens * q->cfg.hidden) *
		dtype_size(q->wire);
	const struct links_options l = {
		.refresh = o->refresh, .message = message, .part = o->part, .ctx = o->ctx
	};
	const struct link_table *t;
	TRY(links_measure(s, &l, &t, e));
	p->link = arena_alloc(&p->mem,
			      (size_t)(session_members(s) * session_members(s)) * sizeof *p->link);
	if (!p->link)
		return err_nomem(
			e, (size_t)(session_members(s) * session_members(s)) * sizeof *p->link,
			"links");
	for (int a = 0; a < session_members(s); a++)
		for (int b = a + 1; b < session_members(s); b++) {
			bool turned = false;
			if (!there(s, a) || !there(s, b))
				continue;
			const struct link_row *r = link_best(t, a, b, &turned);
			int from = p->device[device_of(s, turned ? b : a)].host,
			    to = p->device[device_of(s, turned ? a : b)].host;
			if ((!r && from == to) || find_link(p, from, to) || find_link(p, to, from))
				continue;
			p->link[p->links++] = (struct profile_link){
				.from = from,
				.to = to,
				.bandwidth =
					fmax(r ? link_rate(r, false, message) : 0, no_link) / 1e9,
				.latency_ms = r ? 1e3 * r->way.latency : 0,
				.reverse_bandwidth =
					fmax(r ? link_rate(r, true, message) : 0, no_link) / 1e9,
				.reverse_latency_ms = r ? 1e3 * r->way.latency : 0
			};
			if (!r)
				continue;
			TRY(keep_ways(t, r, p, &p->link[p->links - 1], e));
			if (!strcmp(r->to_address, MEMBER_RELAY))
				p->link[p->links - 1].relay = 1 + host_of(p, coordinator_host(s));
		}
	return 0;
}

static int fill(struct session *s, const struct measure_request *q, const struct measure_result *r,
		struct profile *p, struct err *e)
{
	struct fullness full;
	int first = 0;
	while (!there(s, first))
		first++;
	fill_model(s, q, &r[first], p);
	TRY(find_fullest(p, session_job(s)->batches, &full, e));
	p->device = arena_alloc(&p->mem, (size_t)session_members(s) * sizeof *p->device);
	/* and the coordinator's, which may have no device */
	p->host = arena_alloc(&p->mem, (size_t)(session_members(s) + 1) * sizeof *p->host);
	if (!p->device || !p->host)
		return err_nomem(e, (size_t)session_members(s) * sizeof *p->device, "a profile");
	for (int i = 0; i < session_members(s); i++)
		if (there(s, i))
			TRY(fill_device(s, p, r, i, &full, e));
	p->devices = device_of(s, session_members(s));
	return 0;
}

/* A warning for each device whose speed is unsure. */
static int warn_unsure(struct session *s, const struct profile *p, struct err *e)
{
	int n = session_members(s), m = (int)session_job(s)->cfg->micro_batch_size;
	int *machine = mem_array((size_t)n, sizeof *machine);
	char why[512];
	if (!machine)
		return err_nomem(e, (size_t)n * sizeof *machine, "a profile");
	for (int i = 0; i < n; i++) {
		int first = 0;
		while (there(s, i) &&
		       (!there(s, first) || !machine_same_kernel(session_caps(s)[first].machine,
								 session_caps(s)[i].machine)))
			first++;
		if (there(s, i))
			machine[device_of(s, i)] = device_of(s, first);
	}
	for (int i = 0; i < p->devices; i++)
		if (profile_unsure(p, i, m, machine, why, sizeof why))
			log_warn("the speed of '%s' is unsure: %s; measure again with 'heteroshard "
				 "profile --refresh' when the machine has nothing else to do",
				 p->device[i].id, why);
	mem_free(machine);
	return 0;
}

int profiler_run(struct session *s, const struct profiler_options *o, struct profile *p_p,
		 struct err *e)
{
	struct measure_request q;
	struct profile p = { .mem = ARENA_INIT };
	struct measure_result *r = mem_array((size_t)session_members(s), sizeof *r);
	int rc = r ? 0 : err_nomem(e, (size_t)session_members(s) * sizeof *r, "measurements");
	make_request(s, o, &q);
	TRYOUT(rc);
	TRYOUT(ask_all(s, o, &q, r, e));
	TRYOUT(round_trip(s, &p.step_ms, e));
	TRYOUT(fill(s, &q, r, &p, e));
	routing_measure(session_job(s), &p);
	if (o->links && session_spec(s, 0)->kind != SEAT_THREAD)
		TRYOUT(fill_links(s, o, &q, &p, e));
	else
		TRYOUT(assume_links(&p, e));
	TRYOUT(profile_finish(&p, "the profile just measured", e));
	TRYOUT(warn_unsure(s, &p, e));
	*p_p = p;
out:
	mem_free(r);
	if (rc < 0)
		profile_release(&p);
	return rc;
}

int profiler_config(const struct config *c, const struct join_options *g,
		    const struct profiler_options *o, struct profile *p_p, struct err *e)
{
	struct job job = { 0 };
	struct arena a = ARENA_INIT;
	struct session *s = NULL;
	struct seat_spec *seat;
	bool cluster = g->ranks || join_is_cluster(c);
	char spec[DEV_SPEC] = "";
	enum dtype act = DT_F32;
	int rc = 0;
	if (!cluster)
		TRY(join_device(c, spec, &act, e));
	TRYOUT(job_open(c, act, NULL, &job, e));
	TRYOUT(cluster ? join_cluster(&job, g, &a, &seat, &s, e)
		       : join_threads(&job, &(const char *){ spec }, 1, 0, &a, &seat, &s, e));
	session_until(s, g->stop, "the devices were measured");
	TRYOUT(profiler_run(s, o, p_p, e));
out:
	session_close(s, rc < 0 ? e : NULL);
	job_close(&job);
	arena_release(&a);
	return rc;
}

/* ---- checking a profile ---- */

static int differ(const char *path, const char *what, const char *theirs, const char *ours,
		  struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "%s: the profile is of %s %s, the job has %s: measure it with 'heteroshard "
		       "profile'",
		       path, what, theirs, ours);
}

int profile_check_job(const struct profile *p, const char *path, const struct job *j, struct err *e)
{
	char training[256], digest[65], theirs[64], ours[64];
	training_text(j, training, sizeof training);
	weights_model_digest(j->file, digest);
	snprintf(theirs, sizeof theirs, "%d layers of width %d", p->layers, p->hidden);
	snprintf(ours, sizeof ours, "%lld layers of width %lld", (long long)j->model.layers,
		 (long long)j->model.hidden);
	if (p->layers != j->model.layers || p->hidden != j->model.hidden)
		return differ(path, "a model with", theirs, ours, e);
	if (p->digest && strcmp(p->digest, digest))
		return differ(path, "the model", p->model, j->cfg->base_model, e);
	if (strcmp(p->dtype, dtype_name(j->opt.act)))
		return differ(path, "dtype", p->dtype, dtype_name(j->opt.act), e);
	if (p->training && strcmp(p->training, training))
		return differ(path, "training", p->training, training, e);
	double tokens = batches_shape(j->batches).tokens;
	if (p->training && fabs(p->sequence_len / tokens - 1) > length_off) {
		snprintf(theirs, sizeof theirs, "%d tokens", p->sequence_len);
		snprintf(ours, sizeof ours, "%.0f", tokens);
		return differ(path, "rows of", theirs, ours, e);
	}
	if (p->program && strcmp(p->program, HS_VERSION))
		return differ(path, "program version", p->program, HS_VERSION, e);
	return 0;
}
