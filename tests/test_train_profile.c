/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_profile.c - the profiler of devices: what it counts is what a stage takes, what it
 * sends is checked, the command end to end. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "plan/profile.h"
#include "support/child.h"
#include "support/cards.h"
#include "support/site.h"
#include "proto/measure_wire.h"
#include "plan/unsure.h"
#include "worker/measure_serve.h"
#include "survey/profiler.h"
#include "runtime/step_bench.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

static struct model_config small(void)
{
	struct model_config c = { .family = "llama",
				  .layers = 8,
				  .hidden = 32,
				  .intermediate = 96,
				  .heads = 4,
				  .kv_heads = 2,
				  .head_dim = 8,
				  .vocab = 300,
				  .tied = true,
				  .norm_eps = 1e-5,
				  .rot = 8,
				  .rope_scale = { 1 } };
	for (int i = 0; i < 4; i++)
		c.inv_freq[0][i] = (float)pow(10000, -i / 4.0);
	return c;
}

static struct measure_request request(bool full)
{
	struct measure_request q = { .cfg = small(),
				     .optimizer = "adamw",
				     .optim = { .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 },
				     .wire = DT_BF16,
				     .tokens = 24,
				     .sequences = 3,
				     .trained = 0.5,
				     .budget = 600,
				     .needed = 3,
				     .sizes = 3,
				     .size = { 1, 4, 2 } };
	q.opt.train_all = full;
	if (!full) {
		q.opt.lora = (struct lora_options){ .r = 4, .scale = 2 };
		q.opt.lora.target[LIN_Q] = q.opt.lora.target[LIN_V] = true;
	}
	return q;
}

/* Bytes of a stage's parameters. */
static uint64_t held(const struct stage *s)
{
	uint64_t n = 0;
	for (size_t i = 0; i < s->nparam; i++) {
		const struct param *p = &s->param[i];
		const struct dev_buf *b[9] = {
			p->store[0], p->store[1], p->store[2],
			p->store[3], p->store[4], p->grad,
			p->state[0], p->state[1], p->value == p->store[0] ? NULL : p->value
		};
		for (int k = 0; k < 9; k++)
			n += b[k] ? b[k]->size : 0;
	}
	return n;
}

/* Within a tenth. */
static void near(const char *what, double predicted, double real)
{
	if (!(fabs(predicted / real - 1) <= 0.1))
		fail_msg("%s: %.0f bytes are predicted, %.0f are there", what, predicted, real);
}

/* A stage of other layers than the probe had: parameters, memory of a microbatch in flight, memory
 * while running. */
static void one_stage(const struct measure_request *q, const struct measure_result *r,
		      int64_t first, int64_t last, int m)
{
	const struct measure_point *o = NULL;
	const struct weight_source src = source_random(&q->cfg);
	struct stage_options so = q->opt;
	struct err e = { 0 };
	struct dev *d;
	struct stage s;
	struct slot sl;
	int n = m * (int)q->tokens, layers = (int)(last - first);
	int32_t id[256], pos[256], label[256], start[64];
	assert_true(n <= 256);
	for (int i = 0; i < r->points; i++)
		if (r->point[i].m == m)
			o = &r->point[i];
	assert_non_null(o);
	for (int i = 0; i < n; i++) {
		id[i] = i % (int)q->cfg.vocab;
		pos[i] = i % 8;
		label[i] = i % 2 ? i : -100;
	}
	for (int i = 0; i <= m * 3; i++)
		start[i] = 8 * i;
	so.first = first;
	so.last = last;
	check(dev_open("cpu", &d, &e), &e);
	check(stage_build(&s, d, &q->cfg, &so, &src, &e), &e);
	for (size_t i = 0; i < s.nparam; i++)
		if (param_is_trained(&s.param[i]))
			check(optim_init(optimizer_find("adamw"), &s.param[i], &q->optim, &e), &e);
	double weights =
		(double)layers * (double)(r->weights[MEASURE_LAYER] + r->state[MEASURE_LAYER]);
	if (s.front)
		weights += (double)(r->weights[MEASURE_FRONT] + r->state[MEASURE_FRONT]);
	if (s.end)
		weights += (double)(r->weights[MEASURE_END] + r->state[MEASURE_END]);
	if (s.front && s.end) /* one table for both; it is float32, so its own master copy */
		weights -= (double)r->weights[MEASURE_FRONT];
	near("parameters", weights, (double)held(&s));
	slot_init(&sl, &s);
	const struct stage_batch b = { .step = 1,
				       .n = n,
				       .nseq = m * 3,
				       .id = id,
				       .pos = pos,
				       .label = label,
				       .start = start,
				       .train = true };
	check(stage_begin(&sl, &b, &e), &e);
	if (!s.front)
		check(dev_zero(sl.in, (size_t)(n * 32 * 4), &e), &e);
	check(stage_forward(&sl, &e), &e);
	if (!s.end)
		check(dev_zero(sl.grad, (size_t)(n * 32 * 4), &e), &e);
	check(stage_backward(&sl, &e), &e);
	double edge = (double)n * 32 * 4, work = (double)(o->work - o->kept);
	double end = s.end ? (double)o->head : 0;
	near("a microbatch in flight",
	     layers * (double)o->kept + 2 * edge + (end > work ? end : work),
	     (double)(sl.mem.peak + s.scratch->peak));
	stage_end(&sl);
	slot_release(&sl);
	stage_release(&s);
	dev_close(d);
}

static void what_is_counted_is_what_a_stage_takes(void **state)
{
	(void)state;
	for (int full = 0; full < 2; full++) {
		struct measure_request q = request(full);
		struct measure_result r;
		struct err e = { 0 };
		check(measure_run("cpu", &q, NULL, &r, &e), &e);
		assert_int_equal(r.points, 3);
		assert_true(r.memory > r.used && r.threads > 0 && r.unified && r.name[0]);
		for (int i = 0; i < r.points; i++) {
			const struct measure_point *p = &r.point[i];
			assert_int_equal(p->m, 1 << i);
			assert_true(p->runs >= 1 && p->spread >= 0 && isfinite(p->drift));
			for (int k = 0; k < MEASURE_TIMES; k++)
				assert_true(isfinite(p->seconds[k]) && p->seconds[k] >= 0);
			assert_true(p->seconds[MEASURE_FORWARD] > 0 &&
				    p->seconds[MEASURE_BACKWARD] > 0);
			assert_true(p->seconds[MEASURE_UPLOAD] > 0 &&
				    p->seconds[MEASURE_DOWNLOAD] > 0);
			assert_true(p->kept > 0 && p->work > p->kept && p->head > 0);
		}
		assert_true(r.optimizer[MEASURE_LAYER] > 0);
		assert_true(full ? r.optimizer[MEASURE_FRONT] > 0
				 : r.optimizer[MEASURE_FRONT] == 0);
		assert_true(full ? r.state[MEASURE_FRONT] > 0 : r.state[MEASURE_FRONT] == 0);
		one_stage(&q, &r, 1, 7, 1);
		one_stage(&q, &r, 0, 5, 2);
		one_stage(&q, &r, 2, 8, 4);
		one_stage(&q, &r, 0, 8, 1);
	}
}

/* The stand-in's driver gives memory in pieces of 2 MiB, as CUDA's: matrices of 1 MiB take twice
 * their bytes, small ones do not. */
static void what_a_driver_rounds_up(void **state)
{
	(void)state;
	struct measure_request q = request(true);
	struct measure_result r;
	struct err e = { 0 };
	if (!fake_cards("fake_rt.so", false))
		skip();
	q.sizes = q.needed = 1;
	q.budget = 0.01;
	q.cfg.layers = 3;
	check(measure_run("cuda:0", &q, NULL, &r, &e), &e);
	assert_true(r.rounding < 0.05);
	q.cfg.hidden = q.cfg.intermediate = 512;
	q.cfg.heads = q.cfg.kv_heads = 8;
	q.cfg.head_dim = q.cfg.rot = 64;
	for (int i = 0; i < 32; i++)
		q.cfg.inv_freq[0][i] = (float)pow(10000, -i / 32.0);
	check(measure_run("cuda:0", &q, NULL, &r, &e), &e);
	const double matrices = 4 * 7 * 512 * 512 * 4.0, /* of a layer, with gradient and moments */
		layer = (double)(r.weights[MEASURE_LAYER] + r.state[MEASURE_LAYER]),
		     all = 3 * layer + (double)(r.weights[MEASURE_FRONT] + r.state[MEASURE_FRONT] +
						r.state[MEASURE_END]);
	printf("beyond the bytes of parameters: %.3f, of matrices alone %.3f\n", r.rounding,
	       3 * matrices / all);
	assert_true(fabs(r.rounding - 3 * matrices / all) < 0.02);
	assert_true(r.fixed < 64 << 20);
}

static void what_does_not_fit_is_said(void **state)
{
	(void)state;
	struct measure_request q = request(false);
	struct measure_result r;
	struct err e = { 0 };
	q.cfg.vocab = 1ll << 38; /* 32 TiB of embedding */
	assert_int_equal(measure_run("cpu", &q, NULL, &r, &e), ERR_NOMEM);
	assert_non_null(strstr(e.msg, "fit"));
}

/* ---- the wire ---- */

static const char config_json[] =
	"{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": "
	"32, \"intermediate_size\": 96, "
	"\"num_hidden_layers\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	"\"vocab_size\": 300, "
	"\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\"}";

static struct measure_result result(void)
{
	struct measure_result r = { .name = "a device",
				    .driver = "1.0",
				    .units = 2,
				    .threads = 2,
				    .unified = true,
				    .memory = 1 << 30,
				    .used = 1 << 20,
				    .optimizer = { 1e-3, 0, 1e-4 },
				    .weights = { 100, 200, 300 },
				    .state = { 10, 0, 0 },
				    .residual = -0.02,
				    .host_update = 0.1,
				    .points = 2 };
	for (int i = 0; i < 2; i++) {
		r.point[i] = (struct measure_point){ .m = 1 + i,
						     .runs = 5,
						     .spread = 0.1,
						     .drift = -0.1,
						     .kept = 1000,
						     .work = 2000,
						     .head = 500,
						     .end = 400 };
		for (int k = 0; k < MEASURE_TIMES; k++)
			r.point[i].seconds[k] = 1e-3 * (k + 1) * (i + 1);
	}
	return r;
}

/* Layers of two kinds are measured in the shares of the model only where memory allows it. */
static void layers_that_are_measured(void **state)
{
	struct measure_request q = request(true);
	(void)state;
	q.cfg.delta_layers = 6;
	q.cfg.delta_heads = (struct delta_heads){ 2, 4, 8, 8 };
	q.cfg.delta_conv = 4;
	for (int i = 0; i < 8; i++)
		q.cfg.delta[i] = i % 4 != 3;
	const uint64_t bytes = (uint64_t)model_layer_parameters(&q.cfg) * 16;
	assert_int_equal(measure_layers(&q, 0), 9);
	assert_int_equal(measure_layers(&q, 100 * bytes), 9);
	assert_int_equal(measure_layers(&q, 2 * 5 * bytes), 5);
	assert_int_equal(measure_layers(&q, 2 * 4 * bytes), 4);
	assert_int_equal(measure_layers(&q, bytes), 3);
}

static void requests_and_results_travel(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	unsigned char out[8192];
	size_t size;
	struct measure_request q = request(false), back;
	struct measure_result r = result(), r2;
	check(measure_request_write(&q, config_json, &b, &e), &e);
	check(measure_request_read(b.p, b.n, &back, &e), &e);
	assert_int_equal(back.cfg.layers, 8);
	assert_int_equal(back.sizes, 3);
	assert_memory_equal(back.size, q.size, sizeof q.size);
	assert_int_equal(back.sequences, 3);
	assert_true(back.trained == q.trained && back.opt.lora.r == 4 &&
		    back.opt.lora.target[LIN_V]);
	for (size_t n = 0; n < b.n; n++) /* cut anywhere */
		assert_int_equal(measure_request_read(b.p, n, &back, &e) < 0, 1);
	check(measure_result_write(&r, out, sizeof out, &size, &e), &e);
	check(measure_result_read(out, size, &r2, &e), &e);
	assert_memory_equal(&r, &r2, sizeof r);
	for (size_t n = 0; n < size; n++)
		assert_int_equal(measure_result_read(out, n, &r2, &e), ERR_PROTOCOL);
	buf_release(&b);
}

static void must_refuse(const struct measure_result *r, const char *what)
{
	struct err e = { 0 };
	unsigned char b[8192];
	size_t n;
	struct measure_result out;
	check(measure_result_write(r, b, sizeof b, &n, &e), &e);
	if (measure_result_read(b, n, &out, &e) != ERR_PROTOCOL)
		fail_msg("%s was accepted", what);
}

static void absurd_results_are_refused(void **state)
{
	(void)state;
	struct measure_result r = result();
	r.point[0].seconds[MEASURE_FORWARD] = NAN;
	must_refuse(&r, "a time that is no number");
	r = result();
	r.point[1].seconds[MEASURE_UPLOAD] = -1;
	must_refuse(&r, "a negative time");
	r = result();
	r.point[1].seconds[MEASURE_BACKWARD] = 0;
	must_refuse(&r, "a layer that takes no time");
	r = result();
	r.point[0].seconds[MEASURE_END_FORWARD] = INFINITY;
	must_refuse(&r, "an endless time");
	r = result();
	r.point[1].m = 1;
	must_refuse(&r, "the same size twice");
	r = result();
	r.points = 0;
	must_refuse(&r, "no size");
	r = result();
	r.memory = 0;
	must_refuse(&r, "a device without memory");
	r = result();
	r.used = r.memory + 1;
	must_refuse(&r, "more in use than there is");
	r = result();
	r.point[0].kept = UINT64_MAX;
	must_refuse(&r, "absurd memory");
	r = result();
	r.residual = NAN;
	must_refuse(&r, "a residual that is no number");
	/* bytes changed at random: read or refused, never worse */
	struct err e = { 0 };
	unsigned char b[8192];
	size_t n;
	r = result();
	check(measure_result_write(&r, b, sizeof b, &n, &e), &e);
	for (uint64_t i = 0; i < 20000; i++) {
		struct measure_result out;
		size_t at = rng_mix64(i) % n;
		unsigned char old = b[at];
		b[at] = (unsigned char)rng_mix64(i ^ 0x55);
		if (measure_result_read(b, n, &out, &e) >= 0)
			assert_true(out.points <= MEASURE_POINTS && out.point[0].seconds[0] > 0);
		b[at] = old;
	}
}

/* ---- the cache ---- */

static unsigned char said[64 << 10];
static size_t said_n;

static int keep_answer(void *ctx, const void *payload, size_t n, struct err *e)
{
	(void)ctx, (void)e;
	assert_true(n <= sizeof said);
	memcpy(said, payload, n);
	said_n = n;
	return 0;
}

static struct measure_result serve(const struct site *s, const struct measure_request *q)
{
	const struct measure_talk talk = { .say = keep_answer };
	char dir[400];
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	struct measure_result r;
	snprintf(dir, sizeof dir, "%s/cache", s->t.dir);
	check(measure_request_write(q, config_json, &b, &e), &e);
	check(measure_serve("cpu", dir, b.p, b.n, &talk, &e), &e);
	check(measure_result_read(said, said_n, &r, &e), &e);
	buf_release(&b);
	return r;
}

/* The files in the cache; with `damage` one byte of the last is changed. */
static int cached(const struct site *s, bool damage)
{
	char dir[400], path[700] = "";
	struct dirent *d;
	int n = 0;
	snprintf(dir, sizeof dir, "%s/cache/profile", s->t.dir);
	DIR *at = opendir(dir);
	while (at && (d = readdir(at)))
		if (d->d_name[0] != '.') {
			snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
			n++;
		}
	if (at)
		closedir(at);
	if (damage) {
		FILE *f = fopen(path, "r+b");
		assert_non_null(f);
		fseek(f, 100, SEEK_SET);
		int c = fgetc(f);
		fseek(f, 100, SEEK_SET);
		fputc(c ^ 1, f);
		fclose(f);
	}
	return n;
}

static bool same_points(const struct measure_result *a, const struct measure_result *b)
{
	return a->points == b->points && !memcmp(a->point, b->point, sizeof a->point);
}

static void what_was_measured_is_remembered(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	struct measure_request q = request(false);
	q.sizes = 1;
	struct measure_result first = serve(&s, &q), again = serve(&s, &q);
	assert_int_equal(cached(&s, false), 1);
	assert_true(same_points(&first, &again));
	cached(&s, true);
	again = serve(&s, &q); /* measured anew */
	assert_false(same_points(&first, &again));
	first = again;
	again = serve(&s, &q);
	assert_true(same_points(&first, &again));
	q.refresh = true;
	again = serve(&s, &q);
	assert_false(same_points(&first, &again));
	assert_int_equal(cached(&s, false), 1);
	q.refresh = false;
	q.tokens = 30; /* another job */
	serve(&s, &q);
	assert_int_equal(cached(&s, false), 2);
	tiny_remove(&s.t);
}

/* ---- together with others ---- */

struct others {
	int begun, ended, asked;
};

static int all_are_ready(void *ctx, struct err *e)
{
	struct others *o = ctx;
	(void)e;
	assert_int_equal(o->ended + o->asked, 0);
	o->begun++;
	return 0;
}

static int has_result(void *ctx, const struct measure_result *r, struct err *e)
{
	struct others *o = ctx;
	(void)e;
	assert_int_equal(o->begun, 1);
	assert_true(r->points == 1 && r->point[0].seconds[MEASURE_FORWARD] > 0);
	assert_true(r->optimizer[MEASURE_LAYER] > 0);
	o->ended++;
	return 0;
}

static int some_still_measure(void *ctx, struct err *e)
{
	struct others *o = ctx;
	(void)e;
	assert_int_equal(o->ended, 1);
	return ++o->asked < 20;
}

/* It waits for the others, gives its result away once, and computes on as long as they measure. */
static void who_is_early_stays_busy(void **state)
{
	(void)state;
	struct measure_request q = request(false);
	struct measure_result r;
	struct others o = { 0 };
	struct err e = { 0 };
	q.sizes = 1;
	const struct measure_others others = { &o, all_are_ready, has_result, some_still_measure };
	check(measure_run("cpu", &q, &others, &r, &e), &e);
	assert_int_equal(o.begun, 1);
	assert_int_equal(o.ended, 1);
	assert_int_equal(o.asked, 20);
}

/* The answers of a worker that measures with others: ready, the result, and one to the call that
 * ends the wait. */
struct talk {
	int calls, said;
	size_t size[8];
};

static int keep_size(void *ctx, const void *payload, size_t n, struct err *e)
{
	struct talk *t = ctx;
	(void)payload, (void)e;
	assert_true(t->said < 8);
	t->size[t->said++] = n;
	return 0;
}

static int call(void *ctx, bool wait, struct err *e)
{
	struct talk *t = ctx;
	(void)e;
	assert_int_equal(wait, t->calls == 0);
	return wait || t->calls > 3 ? (t->calls++, 1) : (t->calls++, 0);
}

static void what_a_worker_says_while_it_measures(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	struct measure_request q = request(false);
	struct talk t = { 0 };
	const struct measure_talk talk = { &t, keep_size, call };
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	q.sizes = 1;
	q.sharing = 2;
	check(measure_request_write(&q, config_json, &b, &e), &e);
	check(measure_serve("cpu", s.t.dir, b.p, b.n, &talk, &e), &e);
	assert_int_equal(t.said, 3);
	assert_true(t.size[0] == 0 && t.size[1] > 0 && t.size[2] == 0);
	check(measure_serve("cpu", s.t.dir, b.p, b.n, &talk, &e), &e); /* from the cache */
	assert_int_equal(t.said, 4);
	assert_int_equal(t.size[3], t.size[1]);
	buf_release(&b);
	tiny_remove(&s.t);
}

/* Every device is named, with its reason; an equal one on another machine is no reason. */
static void each_unsure_device_is_named(void **state)
{
	(void)state;
	struct profile_device d[4];
	struct profile p = { .device = d, .devices = 4 };
	const int machine[] = { 0, 0, 0, 3 };
	const double ms[] = { 39, 38, 12, 12 };
	char why[512];
	for (int i = 0; i < 4; i++) {
		d[i] = (struct profile_device){ .id = (const char *[]){ "a", "b", "c", "d" }[i],
						.kind = "cpu",
						.forward_ms = { .line = true, .slope = ms[i] / 3 },
						.backward_ms = { .line = true,
								 .slope = ms[i] * 2 / 3 } };
		d[i].measured.samples = 1;
		d[i].measured.sample[0] = (struct profile_sample){ .m = 1, .runs = 9 };
	}
	for (int i = 0; i < 3; i++)
		assert_true(profile_unsure(&p, i, 1, machine, why, sizeof why));
	assert_non_null(strstr(why, "'a' is an equal device of this machine and was 3.2 times as"));
	assert_false(profile_unsure(&p, 3, 1, machine, why, sizeof why));
	d[3].measured.sample[0].drift = 0.5;
	d[3].measured.sample[0].spread = 0.3;
	assert_true(profile_unsure(&p, 3, 1, machine, why, sizeof why));
	assert_string_equal(why,
			    "it changed by -33 % during the measurement; the runs differ by 30 %");
	d[3].measured.sample[0] = (struct profile_sample){ .m = 1, .runs = 1 };
	d[3].measured.residual = 0.2;
	assert_true(profile_unsure(&p, 3, 1, machine, why, 60));
	assert_int_equal(strlen(why), 59);
}

/* ---- is it this job's? ---- */

static void refuses(const struct profile *p, const struct job *j, const char *what)
{
	struct err e = { 0 };
	assert_int_equal(profile_check_job(p, "p.json", j, &e), ERR_USAGE);
	if (!strstr(e.msg, what))
		fail_msg("'%s' does not say '%s'", e.msg, what);
}

static void a_profile_of_another_job_is_told(void **state)
{
	(void)state;
	struct site s;
	struct err e = { 0 };
	struct job j;
	struct profile p;
	site_make(&s);
	char cache[300];
	snprintf(cache, sizeof cache, "cache_dir=%s/cache", s.t.dir);
	struct config *c =
		tiny_config(&s.t, "run", (const char *const[]){ "lora_r=4", cache, NULL });
	struct arena a = ARENA_INIT;
	struct session *ses;
	struct seat_spec *seat;
	const char *device = "cpu";
	const struct profiler_options o = { 0 };
	check(job_open(c, DT_F32, NULL, &j, &e), &e);
	check(join_threads(&j, &device, 1, 0, &a, &seat, &ses, &e), &e);
	check(profiler_run(ses, &o, &p, &e), &e);
	session_close(ses, NULL);
	check(profile_check_job(&p, "p.json", &j, &e), &e);
	struct profile other = p;
	other.layers++;
	refuses(&other, &j, "layers");
	other = p;
	other.digest = "00";
	refuses(&other, &j, "model");
	other = p;
	other.dtype = "bfloat16";
	refuses(&other, &j, "dtype bfloat16");
	other = p;
	other.training = "full, adamw";
	refuses(&other, &j, "full, adamw");
	other = p;
	other.program = "0.0.9";
	refuses(&other, &j, "0.0.9");
	other = p;
	other.sequence_len *= 2;
	refuses(&other, &j, "tokens");
	other.program = other.training = other.digest = NULL; /* written by hand */
	check(profile_check_job(&other, "p.json", &j, &e), &e);
	profile_release(&p);
	arena_release(&a);
	job_close(&j);
	config_free(c);
	tiny_remove(&s.t);
}

/* ---- the command ---- */

static void read_profile(const struct site *s, const char *run, struct profile *p)
{
	char path[512];
	struct err e = { 0 };
	snprintf(path, sizeof path, "%s/%s/profile.json", s->t.dir, run);
	check(profile_read_file(p, path, &e), &e);
	/* written again it is the same text */
	struct buf b = BUF_INIT, text = BUF_INIT;
	profile_write(p, &b);
	check(buf_read_file(&text, path, 0, &e), &e);
	assert_string_equal(b.p, text.p);
	buf_release(&b);
	buf_release(&text);
}

static void the_command_measures_one_device_and_a_cluster(void **state)
{
	(void)state;
	struct site s;
	struct profile p;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2, "");
	char cache_one[512], cache_b[512];
	snprintf(cache_one, sizeof cache_one, "cache_dir=%s/cache-one", s.t.dir);
	snprintf(cache_b, sizeof cache_b, "cache_dir=%s/cache-b", s.t.dir);
	struct process w = site_start(&s, "profile", "one.yaml", cache_one, NULL);
	must_succeed(&w);
	assert_true(says(&w, "tokens/s"));
	read_profile(&s, "one", &p);
	assert_int_equal(p.devices, 1);
	assert_int_equal(p.layers, SITE_LAYERS);
	assert_true(p.device[0].measured.samples >= 1 && p.device[0].measured.sample[0].ms[0] > 0);
	assert_true(p.step_ms > 0 && p.digest && p.training && p.program);
	profile_release(&p);
	/* starts worker 'a' itself */
	struct process b = site_start(&s, "worker", "--worker", "b", "two.yaml", cache_b, NULL);
	until(&b, "listens");
	w = site_start(&s, "profile", "two.yaml", NULL);
	must_succeed(&w);
	must_succeed(&b);
	read_profile(&s, "two", &p);
	assert_int_equal(p.devices, 2);
	assert_string_equal(p.device[0].id, "a");
	assert_int_equal(p.hosts, 2);
	assert_true(profile_bandwidth(&p, 0, 1) > 0 && profile_bandwidth(&p, 0, 1) != 0.117);
	/* Both are on this machine. When one has to measure, the other one measures too. */
	double before[2], after[2];
	for (int i = 0; i < 2; i++)
		before[i] = p.device[i].measured.sample[0].ms[0];
	profile_release(&p);
	assert_int_equal(cached(&s, true), 1);
	b = site_start(&s, "worker", "--worker", "b", "two.yaml", cache_b, NULL);
	until(&b, "listens");
	w = site_start(&s, "profile", "two.yaml", NULL);
	must_succeed(&w);
	must_succeed(&b);
	read_profile(&s, "two", &p);
	for (int i = 0; i < 2; i++)
		after[i] = p.device[i].measured.sample[0].ms[0];
	assert_true(before[0] != after[0] && before[1] != after[1]);
	profile_release(&p);
	w = site_start(&s, "profile", "--no-links", "two.yaml", NULL);
	must_succeed(&w);
	read_profile(&s, "two", &p);
	assert_true(profile_bandwidth(&p, 0, 1) == 0.117);
	profile_release(&p);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_counted_is_what_a_stage_takes),
		cmocka_unit_test(what_does_not_fit_is_said),
		cmocka_unit_test(layers_that_are_measured),
		cmocka_unit_test(requests_and_results_travel),
		cmocka_unit_test(absurd_results_are_refused),
		cmocka_unit_test(what_was_measured_is_remembered),
		cmocka_unit_test(who_is_early_stays_busy),
		cmocka_unit_test(what_a_worker_says_while_it_measures),
		cmocka_unit_test(each_unsure_device_is_named),
		cmocka_unit_test(a_profile_of_another_job_is_told),
		cmocka_unit_test(the_command_measures_one_device_and_a_cluster),
		cmocka_unit_test(what_a_driver_rounds_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
