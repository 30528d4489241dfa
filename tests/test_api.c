/* SPDX-License-Identifier: Apache-2.0 */
/* test_api.c - the public interface: losses against PyTorch, the same bits over several workers and
 * after a stop, callbacks, more data than memory. test_api_mistakes.c has what is refused,
 * test_api_kinds.c blocks and optimizers of one's own. */
#include "support/api.h"

#include "base/mem.h"
#include "support/ports.h"
#include "support/scratch.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- against PyTorch: values and data by the formulas of scripts/golden/own.py ---- */

enum { SAMPLES = 48, STEPS = 20 };

/* Under the thread sanitizer these would compute for minutes, in one thread. */
static void not_for_threads(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

struct golden {
	const char *name, *text;
	uint64_t samples;
	uint32_t length;
	int in, classes, targets, ids; /* widths; classes 0: floats */
	const char *optimizer, *rate;
};

static const struct golden goldens[] = {
	{ "mlp", "input 64; linear 32; relu; linear 10; cross_entropy", SAMPLES, 1, 64, 10, 1, 0,
	  "optimizer=sgd", "learning_rate=0.05" },
	{ "regression",
	  "input 5; linear 24; tanh; layer_norm; linear 24; gelu; linear 24; silu; linear 24; "
	  "gelu_tanh; linear 24; sigmoid; linear 3; mse",
	  SAMPLES, 1, 5, 0, 3, 0, "optimizer=adamw", "learning_rate=0.01" },
	{ "charlm",
	  "tokens 17 32; residual { rms_norm; attention heads=4 kv_heads=2 }; residual { "
	  "layer_norm; linear 64; gelu; linear 32 }; rms_norm; linear 17; cross_entropy",
	  12, 16, 1, 17, 1, 17, "optimizer=adamw", "learning_rate=0.01" },
	{ "cnn",
	  "input 2 12 11; conv2d 6 3 pad=1; relu; max_pool2d 2; conv2d 8 3 stride=2; gelu; "
	  "avg_pool2d 2 1; flatten; linear 10; cross_entropy",
	  SAMPLES, 1, 264, 10, 1, 0, "optimizer=sgd", "learning_rate=0.05" },
	{ "line", "input 2 20; conv1d 6 5 stride=2 pad=2; tanh; flatten; linear 3; mse", SAMPLES, 1,
	  40, 0, 3, 0, "optimizer=adamw", "learning_rate=0.01" },
	{ "batch",
	  "input 2 12 11; conv2d 6 3 pad=1; batch_norm eps=0.1; gelu; concat { conv2d 4 3 pad=1; "
	  "tanh }; avg_pool2d 4; flatten; batch_norm 0.1; linear 10; cross_entropy",
	  SAMPLES, 1, 264, 10, 1, 0, "optimizer=sgd", "learning_rate=0.05" },
};

static int formula(void *ctx, uint64_t i, void *x, void *y)
{
	const struct golden *g = ctx;
	for (uint32_t j = 0; g->ids && j < g->length; j++) {
		const uint64_t k = j + 1;
		((int32_t *)x)[j] = (int32_t)((7 * i + 3 * j + j * j) % (uint64_t)g->ids);
		((int32_t *)y)[j] = (int32_t)((7 * i + 3 * k + k * k) % (uint64_t)g->ids);
	}
	for (int j = 0; !g->ids && j < g->in; j++)
		((float *)x)[j] = (float)sin(0.37 * (double)(i + 1) * (j + 1));
	if (!g->ids && g->classes)
		*(int32_t *)y = (int32_t)(i % (uint64_t)g->classes);
	for (int j = 0; !g->classes && j < g->targets; j++)
		((float *)y)[j] = (float)cos(0.5 * (double)i + j);
	return 0;
}

static void fill(hs_model *m)
{
	hs_error e;
	hs_param p;
	for (size_t k = 0; k < hs_model_params(m); k++) {
		MUST(hs_model_param(m, k, &p, &e));
		float *v = mem_array(p.count, sizeof *v), was;
		const double cols = p.ndim == 2 ? (double)p.dim[1] : 1;
		MUST(hs_model_get(m, p.name, v, p.count, &e));
		was = v[0];
		const bool norm = p.ndim == 1 && was == 1 && p.count > 1 && v[1] == 1;
		for (uint64_t i = 0; i < p.count; i++)
			v[i] = (float)(0.7 * sin(1.3 * (double)i + 0.7 * (double)k) / sqrt(cols) +
				       (norm ? 1 : 0));
		MUST(hs_model_set(m, p.name, v, p.count, &e));
		mem_free(v);
	}
}

static void losses_of_pytorch(void **state)
{
	FILE *f = fopen(repository("tests/golden/own/losses.txt"), "r");
	(void)state;
	not_for_threads();
	assert_non_null(f);
	for (size_t k = 0; k < COUNT(goldens); k++) {
		const struct golden *g = &goldens[k];
		const char *set[] = { "max_steps=20",       "lr_scheduler=constant",
				      "weight_decay=0",     "max_grad_norm=0",
				      "micro_batch_size=6", "gradient_accumulation_steps=2",
				      g->optimizer,         g->rate };
		char accumulation[64], name[32] = "";
		hs_error e;
		hs_model *m;
		hs_result r;
		hs_data d = hs_data_init();
		hs_options o = hs_options_init();
		const bool pass = strstr(g->text, "batch_norm"); /* one pass of all samples */
		snprintf(accumulation, sizeof accumulation, "gradient_accumulation_steps=%d",
			 pass ? 1 : (int)g->samples / 6);
		set[4] = pass ? "micro_batch_size=48" : set[4];
		set[5] = accumulation;
		d.count = g->samples;
		d.length = g->length;
		d.get = formula;
		d.ctx = (void *)(uintptr_t)g;
		o.set = set;
		o.sets = COUNT(set);
		MUST(hs_model_new(g->text, 1, &m, &e));
		fill(m);
		MUST(hs_train(m, &d, &o, &r, &e));
		assert_int_equal(r.steps, STEPS);
		assert_int_equal(fscanf(f, "%31s", name), 1);
		assert_string_equal(name, g->name);
		double worst = 0;
		for (int i = 0; i < STEPS; i++) {
			double want = 0;
			assert_int_equal(fscanf(f, "%lf", &want), 1);
			const double off = fabs(r.loss[i] - want);
			worst = off <= worst ? worst : off;
		}
		printf("%-10s largest difference from PyTorch in %d steps %.2e\n", g->name, STEPS,
		       worst);
		assert_true(worst <= 1e-4);
		hs_result_release(&r);
		MUST(hs_model_free(m, &e));
	}
	fclose(f);
}

/* ---- accuracy at the end ---- */

enum { DIGITS = 1797, SEEN = 1500, PIXELS = 64 };

static unsigned char digits[DIGITS][PIXELS + 1];

static int digit(void *ctx, uint64_t i, void *x, void *y)
{
	const unsigned char *r = digits[i + (ctx ? SEEN : 0)];
	for (int k = 0; k < PIXELS; k++)
		((float *)x)[k] = (float)r[k] / 16.0f;
	*(int32_t *)y = r[PIXELS];
	return 0;
}

static void accuracy_of_pytorch(void **state)
{
	static const char *const texts[][2] = {
		{ "mlp", "input 64; linear 32; relu; linear 10; cross_entropy" },
		{ "cnn",
		  "input 1 8 8; conv2d 8 3 pad=1; relu; max_pool2d 2; conv2d 16 3 pad=1; relu; "
		  "flatten; linear 10; cross_entropy" },
	};
	FILE *f = fopen(repository("examples/api/digits.u8"), "rb"),
	     *g = fopen(repository("tests/golden/own/accuracy.txt"), "r");
	(void)state;
	not_for_threads();
	assert_true(f && g && fread(digits, sizeof digits, 1, f) == 1);
	for (size_t k = 0; k < COUNT(texts); k++) {
		char name[32] = "", steps[64];
		int n = 0, right = 0;
		double loss = 0;
		assert_int_equal(fscanf(g, "%31s %d %lf %d", name, &n, &loss, &right), 4);
		assert_string_equal(name, texts[k][0]);
		snprintf(steps, sizeof steps, "max_steps=%d", n);
		const char *set[] = { steps,
				      "learning_rate=0.01",
				      "lr_scheduler=constant",
				      "weight_decay=0",
				      "max_grad_norm=0",
				      "micro_batch_size=250",
				      "gradient_accumulation_steps=6" };
		hs_error e;
		hs_model *m;
		hs_result r;
		hs_evaluation v;
		hs_data d = hs_data_init();
		hs_options o = hs_options_init();
		d.count = SEEN;
		d.get = digit;
		o.set = set;
		o.sets = COUNT(set);
		MUST(hs_model_new(texts[k][1], 1, &m, &e));
		fill(m);
		MUST(hs_train(m, &d, &o, &r, &e));
		d.count = DIGITS - SEEN;
		d.ctx = &d;
		MUST(hs_evaluate(m, &d, "cpu", 0, &v, &e));
		const double ours = 100 * v.accuracy, theirs = 100.0 * right / (DIGITS - SEEN);
		printf("%s: %.2f %% right after %d steps, PyTorch %.2f %%; last loss %.6f and "
		       "%.6f\n",
		       name, ours, n, theirs, r.last_loss, loss);
		assert_true(fabs(ours - theirs) <= 0.5 && fabs(r.last_loss - loss) < 0.01);
		hs_result_release(&r);
		MUST(hs_model_free(m, &e));
	}
	fclose(f);
	fclose(g);
}

/* ---- the same bits ---- */

struct kept {
	double loss[64];
	size_t n;
	float value[24 * 6];
	hs_evaluation v;
	uint64_t resumed; /* the first step */
};

static void train(const char *const *set, size_t sets, const char *const *device, size_t devices,
		  const hs_callbacks *on, struct kept *k)
{
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = 100;
	d.held = 20;
	d.get = small_sample;
	o.set = set;
	o.sets = sets;
	o.device = device;
	o.devices = devices;
	if (on)
		o.on = *on;
	MUST(hs_model_new(SMALL, 3, &m, &e));
	MUST(hs_train(m, &d, &o, &r, &e));
	k->n = r.steps;
	k->resumed = r.first_step;
	assert_true(r.steps <= COUNT(k->loss) && r.held_after > 0);
	memcpy(k->loss, r.loss, r.steps * sizeof *r.loss);
	MUST(hs_model_get(m, "0.weight", k->value, COUNT(k->value), &e));
	MUST(hs_evaluate(m, &d, "cpu", 7, &k->v, &e));
	hs_result_release(&r);
	MUST(hs_model_free(m, &e));
}

#define SET                                                                                        \
	"max_steps=12", "learning_rate=0.01", "micro_batch_size=4", "gradient_accumulation_steps=3"

static void bits_over_workers(void **state)
{
	static const char *const cpus[] = { "cpu", "cpu", "cpu" };
	static const char *const set[] = { SET };
	struct kept one = { 0 }, more = { 0 };
	(void)state;
	train(set, COUNT(set), NULL, 0, NULL, &one);
	assert_int_equal(one.n, 12);
	assert_true(one.loss[11] < one.loss[0]);
	for (size_t n = 1; n <= 3; n++) {
		train(set, COUNT(set), cpus, n, NULL, &more);
		assert_memory_equal(one.loss, more.loss, 12 * sizeof *one.loss);
		assert_memory_equal(one.value, more.value, sizeof one.value);
		assert_true(one.v.loss == more.v.loss && one.v.rows == more.v.rows);
		printf("%zu workers: losses, values and evaluation have the same bits\n", n);
	}
}

static const char *hs_bin(void)
{
	return getenv("HS_BIN") ? getenv("HS_BIN") : "build/heteroshard";
}

/* Processes, plain ones that know nothing of this program. */
static void in_processes(const char *const *set, size_t sets, const char *plan, const char *what)
{
	const char *file = scratch("cluster.yaml");
	const int port = ports_claim();
	struct kept one = { 0 }, more = { 0 };
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	char *worker[] = { (char *)(uintptr_t)hs_bin(), (char *)(uintptr_t) "-q",
			   (char *)(uintptr_t) "worker", (char *)(uintptr_t)file, NULL };
	train(set, sets, NULL, 0, NULL, &one);
	scratch_text(file,
		     "compute_dtype: float32\nwire_dtype: float32\nprofile: none\n"
		     "coordinator: {ip: 127.0.0.1, port: %d, device: none}\n"
		     "workers:\n- {id: a, ip: 127.0.0.1, port: %d, device: cpu}\n"
		     "- {id: b, ip: 127.0.0.1, port: %d, device: cpu}\n"
		     "- {id: c, ip: 127.0.0.1, port: %d, device: cpu}\n"
		     "shard: optimizer\n%s\n",
		     port, port + 1, port + 2, port + 3, plan);
	d.count = 100;
	d.held = 20;
	d.get = small_sample;
	o.config = file;
	o.set = set;
	o.sets = sets;
	o.worker = worker;
	MUST(hs_model_new(SMALL, 3, &m, &e));
	MUST(hs_train(m, &d, &o, &r, &e));
	MUST(hs_model_get(m, "0.weight", more.value, COUNT(more.value), &e));
	assert_int_equal(r.steps, 12);
	assert_memory_equal(one.loss, r.loss, 12 * sizeof *one.loss);
	assert_memory_equal(one.value, more.value, sizeof one.value);
	printf("%s: the same bits\n", what);
	hs_result_release(&r);
	MUST(hs_model_free(m, &e));
}

static void bits_over_processes(void **state)
{
	static const char *const adamw[] = { SET, "reduce_order=exact" }, *const sgd[] = {
		SET, "reduce_order=exact", "optimizer=sgd"
	};
	(void)state;
	in_processes(adamw, COUNT(adamw),
		     "shard_plan: [{id: [a, b], share: [2, 1], state_share: [0.3, 0.7], start: 0, "
		     "end: 4}, {id: c, start: 4, end: 6}]",
		     "three processes, two of them a group");
	in_processes(sgd, COUNT(sgd),
		     "shard_plan: [{id: [a, b, c], share: [1, 1, 1], state_share: [1, 0, 0], "
		     "start: 0, end: 6}]",
		     "a parameter server and two others");
}

/* ---- callbacks ---- */

struct told {
	uint64_t steps, stop_at, saved, evaluated;
	double second, third; /* rates of these steps */
	int fails;
};

static int on_step(void *ctx, const hs_step *s, double *rate)
{
	struct told *t = ctx;
	t->steps = s->step;
	if (s->step == 2)
		t->second = s->learning_rate;
	if (s->step == 3)
		t->third = s->learning_rate;
	if (s->step == 2)
		*rate = 0.125;
	return s->step == t->stop_at ? HS_STOP : t->fails;
}

static int on_saved(void *ctx, uint64_t step, const char *path)
{
	struct told *t = ctx;
	t->saved = step;
	assert_non_null(strstr(path, "step-"));
	return HS_GO_ON;
}

static int on_evaluated(void *ctx, const hs_evaluation *v)
{
	struct told *t = ctx;
	t->evaluated += v->rows > 0;
	return HS_GO_ON;
}

static void a_run_that_was_stopped_goes_on(void **state)
{
	const char *dir = scratch("run");
	char output[4200];
	snprintf(output, sizeof output, "output_dir=%s", dir);
	const char *set[] = { SET, output, "resume_from_checkpoint=latest", "eval_steps=4" };
	struct told t = { .stop_at = 5 };
	const hs_callbacks on = { &t, on_step, on_evaluated, on_saved, NULL };
	struct kept whole = { 0 }, part = { 0 };
	hs_error e;
	hs_model *m, *again;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	(void)state;
	const char *plain[] = { SET, "eval_steps=4" };
	t.stop_at = 0;
	train(plain, COUNT(plain), NULL, 0, &on, &whole);
	assert_int_equal(t.steps, 12);
	assert_true(t.evaluated >= 4 && t.third == 0.125 && t.second != 0.125);
	t = (struct told){ .stop_at = 5 };
	d.count = 100;
	d.held = 20;
	d.get = small_sample;
	o.set = set;
	o.sets = 5; /* not yet to be resumed */
	o.on = on;
	MUST(hs_model_new(SMALL, 3, &m, &e));
	MUST(hs_train(m, &d, &o, &r, &e));
	assert_true(r.stopped && r.step == 5 && r.total == 12 && t.saved == 5);
	hs_result_release(&r);
	/* in another process the model would be read from the run's folder */
	MUST(hs_model_load(dir, &again, &e));
	MUST(hs_model_free(again, &e));
	t.stop_at = 0;
	o.sets = COUNT(set);
	MUST(hs_train(m, &d, &o, &r, &e));
	assert_int_equal(r.first_step, 6);
	assert_memory_equal(whole.loss + 5, r.loss, 7 * sizeof *r.loss);
	MUST(hs_model_get(m, "0.weight", part.value, COUNT(part.value), &e));
	assert_memory_equal(whole.value, part.value, sizeof whole.value);
	printf("stopped after step 5 and resumed: the bits of the run that was not\n");
	hs_result_release(&r);
	MUST(hs_model_free(m, &e));
}

static void small_things(void **state)
{
	const float x[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
	const int32_t y[2] = { 1, 2 };
	const char *name, *help;
	char table[4000], tiny[10];
	hs_error e;
	hs_model *m, *copy;
	hs_data d;
	hs_evaluation v;
	float out[10], before[24], after[24];
	size_t kinds = 0;
	(void)state;
	assert_int_equal(hs_api_version(), HS_API_VERSION);
	assert_true(strlen(hs_version()) > 2);
	while (!hs_block_at(kinds, &name, &help))
		kinds++;
	assert_true(kinds >= 16);
	MUST(hs_model_new(SMALL, 1, &m, &e));
	assert_int_equal(hs_model_input(m), 6);
	assert_int_equal(hs_model_target(m), 1);
	assert_int_equal(hs_model_output(m), 5);
	assert_int_equal(hs_model_ids(m), HS_IDS_TARGET);
	assert_true(hs_model_ids(NULL) < 0);
	const int n = hs_model_summary(m, table, sizeof table);
	assert_int_equal(n, strlen(table));
	assert_int_equal(hs_model_summary(m, tiny, sizeof tiny), n);
	printf("%s", table);
	/* 2,717 parameters of 16 bytes; a row of 6 numbers and those of the blocks */
	assert_non_null(strstr(table, "memory in float32 with adamw: 0.04 MiB for parameters, "));
	MUST(hs_data_arrays(m, x, y, 2, 1, &d, &e));
	MUST(hs_evaluate(m, &d, "cpu", 0, &v, &e));
	assert_int_equal(v.rows, 2);
	MUST(hs_predict(m, "cpu", x, 2, 1, out, &e));
	double loss = 0;
	for (int i = 0; i < 2; i++) {
		double sum = 0;
		for (int k = 0; k < 5; k++)
			sum += exp((double)out[5 * i + k]);
		loss += log(sum) - (double)out[5 * i + y[i]];
	}
	assert_true(fabs(loss / 2 - v.loss) < 1e-5);
	hs_data_release(&d);
	MUST(hs_model_get(m, "0.bias", before, 24, &e));
	MUST(hs_model_save(m, scratch("saved"), &e));
	MUST(hs_model_load(scratch("saved"), &copy, &e));
	MUST(hs_model_get(copy, "0.bias", after, 24, &e));
	assert_memory_equal(before, after, sizeof before);
	MUST(hs_model_free(copy, &e));
	MUST(hs_model_free(m, &e));
}

/* ---- more data than memory ---- */

enum { RECORD = 4096 };

static int from_file(void *ctx, uint64_t i, void *x, void *y)
{
	const int fd = *(const int *)ctx;
	float v[RECORD / 4];
	if (pread(fd, v, sizeof v, (off_t)i * RECORD) != sizeof v)
		return -1;
	memcpy(x, v, 4 * (RECORD / 4 - 1));
	*(float *)y = v[RECORD / 4 - 1] + (float)(i % 2);
	return 0;
}

static double resident_mib(const char *what)
{
	char line[200];
	double kib = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, what, strlen(what)))
			kib = atof(line + strlen(what));
	if (f)
		fclose(f);
	return kib / 1024;
}

static void more_data_than_memory(void **state)
{
	static const char *const set[] = { "max_steps=20", "micro_batch_size=64" };
	const uint64_t bytes = 20000000000;
	const char *path = scratch("large");
	hs_error e;
	hs_model *m;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	(void)state;
	scratch_text(path, " ");
	int fd = open(path, O_RDWR);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0); /* sparse */
	const double before = resident_mib("VmRSS:");
	d.count = bytes / RECORD;
	d.get = from_file;
	d.ctx = &fd;
	o.set = set;
	o.sets = COUNT(set);
	MUST(hs_model_new("input 1023; linear 64; relu; linear 1; mse", 1, &m, &e));
	MUST(hs_train(m, &d, &o, NULL, &e));
	const double most = resident_mib("VmHWM:");
	printf("%.0f GB in %llu samples: resident %.0f MiB before, %.0f at most\n",
	       (double)bytes / 1e9, (unsigned long long)d.count, before, most);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which need memory too */
	assert_true(most < 500);
#endif
	MUST(hs_model_free(m, &e));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_things),
		cmocka_unit_test(losses_of_pytorch),
		cmocka_unit_test(accuracy_of_pytorch),
		cmocka_unit_test(bits_over_workers),
		cmocka_unit_test(bits_over_processes),
		cmocka_unit_test(a_run_that_was_stopped_goes_on),
		cmocka_unit_test(more_data_than_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
