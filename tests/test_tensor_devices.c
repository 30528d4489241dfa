/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_devices.c - ops that are made of several kernels, and texts of kernels that somebody
 * adds, forward and backward on every device in every dtype, against float64. Beside it
 * test_dev_kernels.c has every kernel by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/cards.h"
#include "support/ok.h"
#include "support/texts.h"
#include "tensor/op_text.h"
#include "tensor/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 37, C = 6, P = 20, A = 11, B = 150, MOST = N * (A + B) };
static const float eps = 0.01f;

struct bench {
	struct dev *dev;
	struct dmem mem, scratch;
	struct arena host;
	struct tape tape;
	uint64_t drawn;
	double worst; /* share of the tolerance */
};

/* An array on the device and the same numbers in float64. */
struct array {
	double v[MOST];
	int64_t n;
	struct dev_ref at;
	enum dtype t;
};

static void open_bench(struct bench *b, const char *spec, enum dtype t)
{
	struct err err = { 0 };
	*b = (struct bench){ 0 };
	OK(dev_open(spec, &b->dev, &err));
	dmem_init(&b->mem, b->dev, 1 << 20);
	dmem_init(&b->scratch, b->dev, 1 << 20);
	b->tape = (struct tape){ .dev = b->dev,
				 .act = t,
				 .mem = &b->mem,
				 .scratch = &b->scratch,
				 .host = &b->host,
				 .record = true };
}

static void close_bench(struct bench *b)
{
	dmem_release(&b->mem);
	dmem_release(&b->scratch);
	arena_release(&b->host);
	dev_close(b->dev);
}

static void draw(struct bench *b, struct array *x, int64_t n, enum dtype t)
{
	struct err err = { 0 };
	float v[MOST] = { 0 };
	char raw[4 * MOST];
	const struct rng_key k = rng_key(++b->drawn);
	for (int64_t i = 0; i < n; i++)
		v[i] = rng_normal(k, (uint64_t)i);
	dtype_from_f32(t, v, raw, (size_t)n);
	dtype_to_f32(t, raw, v, (size_t)n);
	for (int64_t i = 0; i < n; i++)
		x->v[i] = (double)v[i];
	x->n = n;
	x->t = t;
	OK(dmem_take(&b->mem, (size_t)n * dtype_size(t), &x->at, &err));
	OK(dev_upload(x->at, raw, (size_t)n * dtype_size(t), &err));
}

static struct tensor *input(struct bench *b, struct array *x, int ndim, const int64_t *dim)
{
	struct err err = { 0 };
	struct tensor *y;
	int64_t n = 1;
	for (int i = 0; i < ndim; i++)
		n *= dim[i];
	draw(b, x, n, b->tape.act);
	OK(tape_tensor(&b->tape, b->tape.act, ndim, dim, x->at, &y, &err));
	y->needs_grad = true;
	return y;
}

static void parameter(struct bench *b, struct param *p, struct array *x, int64_t n)
{
	struct err err = { 0 };
	float v[MOST];
	draw(b, x, n, DT_F32);
	for (int64_t i = 0; i < n; i++)
		v[i] = (float)x->v[i];
	OK(param_init_plain(p, b->dev, "p", 1, (const int64_t[]){ n, 1 }, b->tape.act, true, &err));
	OK(param_upload_f32(p, 0, n, v, &err));
	OK(dev_zero(DEV_REF(p->grad, 0), (size_t)n * 4, &err));
	/* what kernels read is in the activations' dtype where the parameter is kept so */
	char raw[4 * MOST];
	dtype_from_f32(p->w.dtype, v, raw, (size_t)n);
	dtype_to_f32(p->w.dtype, raw, v, (size_t)n);
	for (int64_t i = 0; i < n; i++)
		x->v[i] = (double)v[i];
}

/* Runs backward with a drawn gradient of y. */
static void back(struct bench *b, struct tensor *y, struct array *dy)
{
	struct err err = { 0 };
	draw(b, dy, tensor_count(y), b->tape.act);
	OK(tape_seed(&b->tape, y, dy->at, &err));
	OK(tape_backward(&b->tape, &err));
}

/* The numbers at a place, against those in float64. `roundings`: in the dtype, on their way. */
static void check(struct bench *b, const char *what, struct dev_ref at, enum dtype t, int64_t n,
		  const double *want, double roundings)
{
	static const double unit[] = { 1.2e-7, 7.8e-3, 9.8e-4 };
	struct err err = { 0 };
	char raw[4 * MOST];
	float v[MOST];
	double most = 0;
	/* a sum of N products in float32 beside the roundings of the activations */
	const double tolerance = roundings * unit[b->tape.act] + 2e-5;
	OK(dev_download(raw, at, (size_t)n * dtype_size(t), &err));
	dtype_to_f32(t, raw, v, (size_t)n);
	for (int64_t i = 0; i < n; i++)
		most = fabs(want[i]) > most ? fabs(want[i]) : most;
	for (int64_t i = 0; i < n; i++) {
		const double off = fabs((double)v[i] - want[i]) / most / tolerance;
		if (!(off <= b->worst))
			b->worst = off;
		if (!(off <= 1))
			fail_msg("%s in %s: %s[%lld] is %g, not %g", b->dev->be->name,
				 dtype_name(b->tape.act), what, (long long)i, (double)v[i],
				 want[i]);
	}
}

/* ---- batch norm ---- */

/* Where number i of channel k is. */
static int64_t place(int64_t k, int64_t i, int64_t places)
{
	return (i / places * C + k) * places + i % places;
}

static void batchnorm(struct bench *b, int64_t places)
{
	static struct array x, w, c, dy;
	static double y[MOST], dx[MOST];
	struct err err = { 0 };
	struct param pw, pc;
	struct tensor *t, *out;
	double dw[C], dc[C];
	const double rows = (double)(N * places);
	t = input(b, &x, 3, (const int64_t[]){ N, C, places });
	parameter(b, &pw, &w, C);
	parameter(b, &pc, &c, C);
	OK(op_batchnorm_apply(&b->tape, t, &pw, &pc, eps, &out, &err));
	back(b, out, &dy);
	for (int k = 0; k < C; k++) {
		double mean = 0, var = 0;
		for (int64_t i = 0; i < N * places; i++)
			mean += x.v[place(k, i, places)] / rows;
		for (int64_t i = 0; i < N * places; i++)
			var += pow(x.v[place(k, i, places)] - mean, 2) / rows;
		const double r = 1 / sqrt(var + (double)eps);
		dw[k] = dc[k] = 0;
		for (int64_t i = 0; i < N * places; i++) {
			const int64_t j = place(k, i, places);
			const double h = (x.v[j] - mean) * r;
			y[j] = h * w.v[k] + c.v[k];
			dw[k] += dy.v[j] * h;
			dc[k] += dy.v[j];
		}
		for (int64_t i = 0; i < N * places; i++) {
			const int64_t j = place(k, i, places);
			const double h = (x.v[j] - mean) * r;
			dx[j] = r * w.v[k] * (dy.v[j] - dc[k] / rows - h * dw[k] / rows);
		}
	}
	check(b, "batchnorm y", out->at, out->dtype, N * C * places, y, 4);
	check(b, "batchnorm dx", t->grad->at, t->grad->dtype, N * C * places, dx, 6);
	check(b, "batchnorm dw", DEV_REF(pw.grad, 0), DT_F32, C, dw, 2);
	check(b, "batchnorm db", DEV_REF(pc.grad, 0), DT_F32, C, dc, 1);
	param_release(&pw);
	param_release(&pc);
}

static void batchnorm_of_vectors(struct bench *b) { batchnorm(b, 1); }
static void batchnorm_of_places(struct bench *b) { batchnorm(b, P); }

/* ---- concatenation ---- */

static void concat(struct bench *b)
{
	static struct array x, z, dy;
	static double y[MOST], dx[MOST], dz[MOST];
	struct err err = { 0 };
	struct tensor *out, *tx = input(b, &x, 2, (const int64_t[]){ N, A }),
			    *tz = input(b, &z, 2, (const int64_t[]){ N, B });
	OK(op_concat_apply(&b->tape, tx, tz, &out, &err));
	back(b, out, &dy);
	for (int i = 0; i < N; i++)
		for (int j = 0; j < A + B; j++) {
			const int at = i * (A + B) + j;
			if (j < A) {
				y[at] = x.v[i * A + j];
				dx[i * A + j] = dy.v[at];
			} else {
				y[at] = z.v[i * B + j - A];
				dz[i * B + j - A] = dy.v[at];
			}
		}
	check(b, "concat y", out->at, out->dtype, N * (A + B), y, 0);
	check(b, "concat dx", tx->grad->at, tx->grad->dtype, N * A, dx, 0);
	check(b, "concat dz", tz->grad->at, tz->grad->dtype, N * B, dz, 0);
}

/* ---- texts ---- */

static void bend(struct bench *b)
{
	static const struct dev_text text = { "the block 'bend'", text_bend, true };
	static const double set[TEXT_OP_SETTINGS] = { 1.5 };
	static const struct text_op op = { &text, false, set };
	static struct array x, w, dy;
	static double y[MOST], dx[MOST], dw[B];
	struct err err = { 0 };
	struct param p, *list[] = { &p, NULL };
	struct tensor *out, *t = input(b, &x, 2, (const int64_t[]){ N, B });
	parameter(b, &p, &w, B);
	OK(op_text_apply(&b->tape, &op, t, list, B, &out, &err));
	back(b, out, &dy);
	memset(dw, 0, sizeof dw);
	for (int i = 0; i < N * B; i++) {
		const int j = i % B;
		y[i] = x.v[i] + w.v[j] * sin(1.5 * x.v[i]);
		dx[i] = dy.v[i] * (1 + w.v[j] * 1.5 * cos(1.5 * x.v[i]));
		dw[j] += dy.v[i] * sin(1.5 * x.v[i]);
	}
	check(b, "bend y", out->at, out->dtype, N * B, y, 1);
	check(b, "bend dx", t->grad->at, t->grad->dtype, N * B, dx, 1);
	check(b, "bend dw", DEV_REF(p.grad, 0), DT_F32, B, dw, 0);
	param_release(&p);
}

static void unit(struct bench *b)
{
	enum { OUT = B - 7 };
	static const struct dev_text text = { "the block 'unit'", text_unit, false };
	static const double set[TEXT_OP_SETTINGS] = { 0.25 };
	static const struct text_op op = { &text, true, set };
	static struct array x, dy;
	static double y[MOST], dx[MOST];
	struct err err = { 0 };
	struct tensor *out, *t = input(b, &x, 2, (const int64_t[]){ N, B });
	OK(op_text_apply(&b->tape, &op, t, NULL, OUT, &out, &err));
	back(b, out, &dy);
	for (int i = 0; i < N; i++) {
		double sum = 0, along = 0;
		for (int j = 0; j < B; j++)
			sum += x.v[i * B + j] * x.v[i * B + j] / B;
		const double r = 1 / sqrt(sum + 0.25);
		for (int j = 0; j < OUT; j++) {
			y[i * OUT + j] = x.v[i * B + j] * r;
			along += dy.v[i * OUT + j] * x.v[i * B + j] * r * r / B;
		}
		for (int j = 0; j < B; j++)
			dx[i * B + j] =
				r * ((j < OUT ? dy.v[i * OUT + j] : 0) - along * x.v[i * B + j]);
	}
	check(b, "unit y", out->at, out->dtype, N * OUT, y, 1);
	check(b, "unit dx", t->grad->at, t->grad->dtype, N * B, dx, 1);
}

static const struct {
	const char *name;
	void (*run)(struct bench *b);
} cases[] = { { "batchnorm (N,C)", batchnorm_of_vectors },
	      { "batchnorm (N,C,P)", batchnorm_of_places },
	      { "concat", concat },
	      { "text, lanes", bend },
	      { "text, rows", unit } };

static void on_device(const char *spec)
{
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		printf("%-10s %-18s", spec, cases[k].name);
		for (enum dtype t = DT_F32; t <= DT_F16; t++) {
			struct bench b;
			open_bench(&b, spec, t);
			if (dev_has(b.dev, K_swap_axes, t)) {
				cases[k].run(&b);
				printf("  %s %.2f of the tolerance", dtype_name(t), b.worst);
			}
			close_bench(&b);
		}
		printf("\n");
	}
}

/* What `does` for each device that there is; how many. */
static int on_all(void (*does)(const char *spec))
{
	int all = 0;
	for (size_t i = 0; backends[i]; i++) {
		struct err err = { 0 };
		const int n = strcmp(backends[i]->name, "null") ? backends[i]->count(&err) : 0;
		for (int k = 0; k < n; k++, all++) {
			char spec[DEV_SPEC];
			snprintf(spec, sizeof spec, "%s:%d", backends[i]->name, k);
			does(spec);
		}
	}
	return all;
}

static void ops_on_every_device(void **state)
{
	(void)state;
	assert_true(on_all(on_device) >= 1);
}

/* One line names the text, the device, and what its compiler says. */
static void refuse(const char *spec)
{
	static const struct dev_text text = { "the block 'broken'",
					      "FORWARD { no_such_function(rows); }\nBACKWARD {}\n",
					      false };
	static const double set[TEXT_OP_SETTINGS] = { 0 };
	static const struct text_op op = { &text, false, set };
	static struct array x;
	struct err err = { 0 };
	struct bench b;
	struct tensor *out;
	open_bench(&b, spec, DT_F32);
	struct tensor *t = input(&b, &x, 2, (const int64_t[]){ N, A });
	assert_int_equal(op_text_apply(&b.tape, &op, t, NULL, A, &out, &err), ERR_DEVICE);
	printf("%s\n", err.msg);
	if (!strstr(err.msg, "the block 'broken': ") || strchr(err.msg, '\n') ||
	    !strstr(err.msg, b.dev->be->name) || !strstr(err.msg, "no_such_function"))
		fail_msg("%s", err.msg);
	close_bench(&b);
}

static void texts_that_do_not_compile(void **state)
{
	(void)state;
	on_all(refuse);
	/* no compiler at all */
	static const struct dev_text text = { "the block 'bend'", text_bend, true };
	static const struct dev_text_launch l = { .text = &text, .lanes = 1 };
	struct err err = { 0 };
	struct dev *d;
	OK(dev_open("cpu", &d, &err));
	setenv("HS_CC", "/nowhere/cc", 1);
	assert_int_equal(dev_launch_text(d, &l, &err), ERR_DEVICE);
	assert_non_null(strstr(err.msg, "no C compiler (/nowhere/cc) runs here"));
	unsetenv("HS_CC");
	dev_close(d);
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = { cmocka_unit_test(ops_on_every_device),
					    cmocka_unit_test(texts_that_do_not_compile) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
