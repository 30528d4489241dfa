/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_ref64.c - the float64 references themselves: each backward pass against finite
 * differences of its forward pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/ref64.h"

#include <math.h>
#include <string.h>

static uint64_t drawn;

static double *normal(int64_t n)
{
	double *v = mem_array((size_t)n, sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < n; i++)
		v[i] = (double)rng_normal(rng_key(7 + drawn), (uint64_t)i);
	drawn++;
	return v;
}

static double *zeros(int64_t n)
{
	double *v = mem_array((size_t)n, sizeof *v);
	assert_non_null(v);
	return v;
}

/* loss(ctx) is a function of x[0..n); grad its derivative. */
static void differences(const char *what, double (*loss)(void *), void *ctx, double *x,
			const double *grad, int64_t n)
{
	const double h = 1e-5;
	double worst = 0, max = 0;
	for (int64_t i = 0; i < n; i++)
		max = fabs(grad[i]) > max ? fabs(grad[i]) : max;
	for (int64_t i = 0; i < n; i++) {
		double old = x[i];
		x[i] = old + h;
		double up = loss(ctx);
		x[i] = old - h;
		double down = loss(ctx);
		x[i] = old;
		double diff = fabs((up - down) / (2 * h) - grad[i]);
		if (!(diff <= worst))
			worst = diff;
	}
	print_message("%-18s largest error %.2e of %.2e\n", what, worst, max);
	assert_true(worst <= 1e-7 * (max + 1));
}

static double dot(const double *a, const double *b, int64_t n)
{
	double s = 0;
	for (int64_t i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

struct norm {
	double *x, *w, *y, *rstd, *dy;
	int64_t n, c;
};

static double norm_loss(void *ctx)
{
	struct norm *t = ctx;
	ref_rmsnorm_fwd(t->y, t->rstd, t->x, t->w, t->n, t->c, 1e-3, 1);
	return dot(t->y, t->dy, t->n * t->c);
}

static void test_rmsnorm(void **state)
{
	(void)state;
	struct norm t = { normal(15), normal(5), zeros(15), zeros(3), normal(15), 3, 5 };
	double *dx = zeros(15), *dw = zeros(5);
	norm_loss(&t);
	ref_rmsnorm_bwd(dx, dw, t.dy, t.x, t.w, t.rstd, 3, 5, 1);
	differences("rmsnorm dx", norm_loss, &t, t.x, dx, 15);
	differences("rmsnorm dw", norm_loss, &t, t.w, dw, 5);
	double *all[] = { t.x, t.w, t.y, t.rstd, t.dy, dx, dw };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		mem_free(all[i]);
}

struct layer_norm {
	double *x, *w, *b, *y, *mean, *rstd, *dy;
};

static double layer_norm_loss(void *ctx)
{
	struct layer_norm *t = ctx;
	ref_layernorm_fwd(t->y, t->mean, t->rstd, t->x, t->w, t->b, 3, 5, 1e-3);
	return dot(t->y, t->dy, 15);
}

static void test_layernorm(void **state)
{
	(void)state;
	struct layer_norm t = { normal(15), normal(5), normal(5), zeros(15),
				zeros(3),   zeros(3),  normal(15) };
	double *dx = zeros(15), *dw = zeros(5), *db = zeros(5);
	layer_norm_loss(&t);
	ref_layernorm_bwd(dx, dw, db, t.dy, t.x, t.w, t.mean, t.rstd, 3, 5);
	differences("layernorm dx", layer_norm_loss, &t, t.x, dx, 15);
	differences("layernorm dw", layer_norm_loss, &t, t.w, dw, 5);
	differences("layernorm db", layer_norm_loss, &t, t.b, db, 5);
	double *all[] = { t.x, t.w, t.b, t.y, t.mean, t.rstd, t.dy, dx, dw, db };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		mem_free(all[i]);
}

struct act_case {
	double *x, *y, *dy;
	int64_t kind;
};

static double act_loss(void *ctx)
{
	struct act_case *t = ctx;
	ref_act_fwd(t->y, t->x, 16, t->kind);
	return dot(t->y, t->dy, 16);
}

static void test_act(void **state)
{
	(void)state;
	for (int64_t kind = 0; kind < 6; kind++) {
		struct act_case t = { normal(16), zeros(16), normal(16), kind };
		double *dx = zeros(16);
		ref_act_bwd(dx, t.dy, t.x, 16, kind);
		differences("act", act_loss, &t, t.x, dx, 16);
		mem_free(t.x);
		mem_free(t.y);
		mem_free(t.dy);
		mem_free(dx);
	}
}

struct error_case {
	double *x, *target, *loss;
};

static double error_loss(void *ctx)
{
	struct error_case *t = ctx;
	ref_mse(t->loss, NULL, t->x, t->target, 3, 5, 1);
	return t->loss[0] + t->loss[1] + t->loss[2];
}

static void test_mse(void **state)
{
	(void)state;
	struct error_case t = { normal(15), normal(15), zeros(3) };
	double *dx = zeros(15);
	ref_mse(t.loss, dx, t.x, t.target, 3, 5, 1);
	differences("mse", error_loss, &t, t.x, dx, 15);
	mem_free(t.x);
	mem_free(t.target);
	mem_free(t.loss);
	mem_free(dx);
}

struct lookup {
	double *table, *y, *dy;
	const int32_t *ids;
	int64_t n, c;
};

static double embed_loss(void *ctx)
{
	struct lookup *t = ctx;
	ref_embed_fwd(t->y, t->table, t->ids, t->n, t->c);
	return dot(t->y, t->dy, t->n * t->c);
}

static void test_embed(void **state)
{
	(void)state;
	static const int32_t ids[] = { 2, 0, 2, 3 };
	struct lookup t = { normal(5 * 3), zeros(4 * 3), normal(4 * 3), ids, 4, 3 };
	double *d = zeros(5 * 3);
	ref_embed_bwd(d, t.dy, ids, 4, 3);
	differences("embed", embed_loss, &t, t.table, d, 15);
	mem_free(t.table);
	mem_free(t.y);
	mem_free(t.dy);
	mem_free(d);
}

struct turn {
	double *x, *y, *dy, *freq;
	const int32_t *pos;
	bool near;
};

static double rope_loss(void *ctx)
{
	struct turn *t = ctx;
	memcpy(t->y, t->x, 3 * 16 * sizeof *t->y);
	ref_rope(t->y, t->pos, t->freq, 3, 2, 8, 16, 1, 1.5, 6, t->near, NULL);
	return dot(t->y, t->dy, 3 * 16);
}

static void test_rope(void **state)
{
	(void)state;
	static const int32_t pos[] = { 0, 3, 11 };
	for (int near = 0; near < 2; near++) {
		struct turn t = { normal(48), zeros(48), normal(48), normal(4), pos, near };
		double *dx = zeros(48);
		memcpy(dx, t.dy, 48 * sizeof *dx);
		ref_rope(dx, pos, t.freq, 3, 2, 8, 16, -1, 1.5, 6, near, NULL);
		differences("rope", rope_loss, &t, t.x, dx, 48);
		double *all[] = { t.x, t.y, t.dy, t.freq, dx };
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			mem_free(all[i]);
	}
}

struct attend {
	struct ref_attn a;
	double *q, *k, *v, *o, *dout;
};

static double attn_loss(void *ctx)
{
	struct attend *t = ctx;
	ref_attn_fwd(t->o, NULL, t->q, t->k, t->v, &t->a);
	return dot(t->o, t->dout, t->a.nq * t->a.ldo);
}

static void test_attn(void **state)
{
	(void)state;
	static const int32_t qs[] = { 0, 4, 5, 11 };
	for (int64_t window = 0; window < 4; window += 3) {
		struct attend t = { { qs, qs, 11, 11, 3, 4, 2, 3, 12, 12, 6, 6, window, 0.5,
				      window ? 0.7 : 0 },
				    normal(132),
				    normal(66),
				    normal(66),
				    zeros(132),
				    normal(132) };
		double *dq = zeros(132), *dk = zeros(66), *dv = zeros(66);
		ref_attn_bwd(dq, dk, dv, t.dout, t.q, t.k, t.v, NULL, &t.a);
		differences("attn dq", attn_loss, &t, t.q, dq, 132);
		differences("attn dk", attn_loss, &t, t.k, dk, 66);
		differences("attn dv", attn_loss, &t, t.v, dv, 66);
		double *all[] = { t.q, t.k, t.v, t.o, t.dout, dq, dk, dv };
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			mem_free(all[i]);
	}
}

struct gated {
	double *g, *u, *y, *dy;
};

static double swiglu_loss(void *ctx)
{
	struct gated *t = ctx;
	ref_swiglu_fwd(t->y, t->g, t->u, 20);
	return dot(t->y, t->dy, 20);
}

static void test_swiglu(void **state)
{
	(void)state;
	struct gated t = { normal(20), normal(20), zeros(20), normal(20) };
	double *dg = zeros(20), *du = zeros(20);
	ref_swiglu_bwd(dg, du, t.dy, t.g, t.u, 20);
	differences("swiglu dgate", swiglu_loss, &t, t.g, dg, 20);
	differences("swiglu dup", swiglu_loss, &t, t.u, du, 20);
	double *all[] = { t.g, t.u, t.y, t.dy, dg, du };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		mem_free(all[i]);
}

static double geglu_loss(void *ctx)
{
	struct gated *t = ctx;
	ref_geglu_fwd(t->y, t->g, t->u, 20);
	return dot(t->y, t->dy, 20);
}

static void test_geglu(void **state)
{
	(void)state;
	struct gated t = { normal(20), normal(20), zeros(20), normal(20) };
	double *dg = zeros(20), *du = zeros(20);
	ref_geglu_bwd(dg, du, t.dy, t.g, t.u, 20);
	differences("geglu dgate", geglu_loss, &t, t.g, dg, 20);
	differences("geglu dup", geglu_loss, &t, t.u, du, 20);
	double *all[] = { t.g, t.u, t.y, t.dy, dg, du };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		mem_free(all[i]);
}

struct entropy {
	double *l, *loss;
	const int32_t *labels;
	double cap;
};

static double xent_loss(void *ctx)
{
	struct entropy *t = ctx;
	ref_xent(t->loss, NULL, t->l, t->labels, 4, NULL, NULL, 7, 7, 7, 0.25, t->cap);
	return 0.25 * (t->loss[0] + t->loss[1] + t->loss[2] + t->loss[3]);
}

static void test_xent(void **state)
{
	(void)state;
	static const int32_t labels[] = { 3, -100, 0, 6 };
	for (int cap = 0; cap < 2; cap++) {
		struct entropy t = { normal(28), zeros(4), labels, cap };
		double *d = zeros(28);
		ref_xent(t.loss, d, t.l, labels, 4, NULL, NULL, 7, 7, 7, 0.25, cap);
		differences("xent", xent_loss, &t, t.l, d, 28);
		mem_free(t.l);
		mem_free(t.loss);
		mem_free(d);
	}
}

struct bias {
	double *b, *dy;
};

static double bias_loss(void *ctx)
{
	struct bias *t = ctx;
	double s = 0;
	for (int i = 0; i < 30; i++)
		s += t->b[i % 5] * t->dy[i];
	return s;
}

static void test_colsum(void **state)
{
	(void)state;
	struct bias t = { normal(5), normal(30) };
	double *db = zeros(5);
	ref_colsum(db, t.dy, 6, 5);
	differences("colsum", bias_loss, &t, t.b, db, 5);
	mem_free(t.b);
	mem_free(t.dy);
	mem_free(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_embed),  cmocka_unit_test(test_rmsnorm),
		cmocka_unit_test(test_rope),   cmocka_unit_test(test_attn),
		cmocka_unit_test(test_swiglu), cmocka_unit_test(test_geglu),
		cmocka_unit_test(test_xent),   cmocka_unit_test(test_colsum),
		cmocka_unit_test(test_act),    cmocka_unit_test(test_layernorm),
		cmocka_unit_test(test_mse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
