/* SPDX-License-Identifier: Apache-2.0 */
/* op_bench.c - see op_bench.h. */
#include "support/op_bench.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const float step_size = 2e-2f;

void bench_fill(struct bench *b, float *v, int64_t n, float size)
{
	struct rng_key k = rng_key(b->key++);
	for (int64_t i = 0; i < n; i++)
		v[i] = size * rng_normal(k, (uint64_t)i);
}

struct tensor *bench_input(struct bench *b, int ndim, const int64_t *dim)
{
	struct err err = { 0 };
	struct tensor *t;
	OK(tape_new(&b->tape, &b->mem, DT_F32, ndim, dim, &t, &err));
	bench_fill(b, (float *)((char *)t->at.buf->host + t->at.off), tensor_count(t), 1);
	t->needs_grad = true;
	return b->in[b->nin++] = t;
}

struct param *bench_param(struct bench *b, int ndim, int64_t rows, int64_t cols)
{
	struct err err = { 0 };
	struct param *p = &b->store[b->npar];
	const int64_t dim[2] = { rows, cols };
	OK(param_init_plain(p, b->dev, "p", ndim, dim, DT_F32, true, &err));
	float v[OUT * C * 2];
	bench_fill(b, v, param_count(p), 0.4f);
	OK(param_upload_f32(p, 0, param_count(p), v, &err));
	return b->par[b->npar++] = p;
}

struct param *bench_frozen(struct bench *b, int64_t rows, int64_t cols)
{
	struct err err = { 0 };
	struct param *p = &b->frozen[b->nfrozen++];
	float v[OUT * C * 2];
	OK(param_init_plain(p, b->dev, "w", 2, (const int64_t[]){ rows, cols }, DT_F32, false,
			    &err));
	bench_fill(b, v, param_count(p), 0.4f);
	OK(param_upload_f32(p, 0, param_count(p), v, &err));
	return p;
}

struct dev_ref bench_ints(struct bench *b, const int32_t *v, int64_t n)
{
	struct err err = { 0 };
	struct dev_ref r;
	OK(dmem_take(&b->mem, (size_t)n * 4, &r, &err));
	OK(dev_upload(r, v, (size_t)n * 4, &err));
	return r;
}

float *bench_host(struct dev_ref r) { return (float *)((char *)r.buf->host + r.off); }

static int apply(struct bench *b, struct tensor **y_p, struct err *e)
{
	for (size_t i = 0; i < b->nin; i++) {
		TRY(tape_new(&b->tape, &b->mem, DT_F32, b->in[i]->ndim, b->in[i]->dim, &b->used[i],
			     e));
		TRY(dev_copy(b->used[i]->at, b->in[i]->at, tensor_bytes(b->in[i]), e));
		b->used[i]->needs_grad = true;
	}
	tape_reset(&b->tape);
	return b->build(b, y_p, e);
}

/* L = sum(g*y) with fixed random g; the forward's memory is given back. */
static double objective(struct bench *b, bool unit)
{
	struct err err = { 0 };
	struct dmem_mark k = dmem_mark(&b->mem); /* the gradients lie below it */
	struct tensor *y;
	OK(apply(b, &y, &err));
	double sum = 0;
	struct rng_key g = rng_key(4711);
	for (int64_t i = 0; i < tensor_count(y); i++)
		sum += (unit ? 1.0 : (double)rng_normal(g, (uint64_t)i)) *
		       (double)bench_host(y->at)[i];
	dmem_back(&b->mem, k);
	return sum;
}

static void gradients(struct bench *b, bool unit)
{
	struct err err = { 0 };
	struct tensor *y;
	struct dev_ref seed;
	struct rng_key g = rng_key(4711);
	OK(apply(b, &y, &err));
	OK(dmem_take(&b->scratch, tensor_bytes(y), &seed, &err));
	for (int64_t i = 0; i < tensor_count(y); i++)
		bench_host(seed)[i] = unit ? 1 : rng_normal(g, (uint64_t)i);
	OK(tape_seed(&b->tape, y, seed, &err));
	OK(tape_backward(&b->tape, &err));
}

/* values moves along d by h; returns the largest relative disagreement over a few directions. */
static double check(struct bench *b, float *value, const float *grad, int64_t n, bool unit)
{
	double worst = 0, norm = 0;
	float *keep = mem_array((size_t)n, 4), *copy = mem_array((size_t)n, 4);
	memcpy(keep, value, (size_t)n * 4);
	memcpy(copy, grad, (size_t)n * 4);
	for (int64_t i = 0; i < n; i++)
		norm += (double)copy[i] * (double)copy[i];
	for (int t = 0; t < 4; t++) {
		struct rng_key d = rng_key(99 + (uint64_t)t);
		double len = 0, dot = 0, l[2];
		for (int64_t i = 0; i < n; i++)
			len += pow((double)rng_normal(d, (uint64_t)i), 2);
		float h = step_size / (float)sqrt(len);
		for (int side = 0; side < 2; side++) {
			for (int64_t i = 0; i < n; i++)
				value[i] = keep[i] + (side ? -h : h) * rng_normal(d, (uint64_t)i);
			l[side] = objective(b, unit);
		}
		for (int64_t i = 0; i < n; i++)
			dot += (double)copy[i] * (double)rng_normal(d, (uint64_t)i);
		double numeric = (l[0] - l[1]) / (2 * (double)h),
		       err = fabs(numeric - dot) / (sqrt(norm) * sqrt(len / (double)n) + 1e-3);
		if (!(err <= worst))
			worst = err;
	}
	memcpy(value, keep, (size_t)n * 4);
	mem_free(keep);
	mem_free(copy);
	return worst;
}

void bench_close(struct bench *b)
{
	for (size_t i = 0; i < b->npar; i++)
		param_release(&b->store[i]);
	for (size_t i = 0; i < b->nfrozen; i++)
		param_release(&b->frozen[i]);
	dmem_release(&b->mem);
	dmem_release(&b->scratch);
	arena_release(&b->host);
	dev_close(b->dev);
}

void bench_open(struct bench *b)
{
	struct err err = { 0 };
	memset(b, 0, sizeof *b);
	b->key = 1000;
	OK(dev_open("cpu", &b->dev, &err));
	dmem_init(&b->mem, b->dev, 1 << 20);
	dmem_init(&b->scratch, b->dev, 1 << 20);
	b->tape = (struct tape){ .dev = b->dev,
				 .act = DT_F32,
				 .mem = &b->mem,
				 .scratch = &b->scratch,
				 .host = &b->host,
				 .record = true };
}

double bench_check(struct bench *b, bool unit)
{
	gradients(b, unit);
	struct tensor *grad[3] = { 0 };
	/* copies: the loss adds to its head's gradient in every forward */
	float *pgrad[4] = { 0 };
	for (size_t i = 0; i < b->nin; i++)
		grad[i] = b->used[i]->grad;
	for (size_t k = 0; k < b->npar; k++) {
		pgrad[k] = mem_array((size_t)param_count(b->par[k]), 4);
		memcpy(pgrad[k], b->par[k]->grad->host, (size_t)param_count(b->par[k]) * 4);
	}
	double worst = 0;
	for (size_t i = 0; i < b->nin; i++) {
		assert_non_null(grad[i]);
		double err = check(b, bench_host(b->in[i]->at), bench_host(grad[i]->at),
				   tensor_count(b->in[i]), unit);
		worst = err > worst || isnan(err) ? err : worst;
	}
	for (size_t i = 0; i < b->npar; i++) {
		double err =
			check(b, b->par[i]->value->host, pgrad[i], param_count(b->par[i]), unit);
		mem_free(pgrad[i]);
		worst = err > worst || isnan(err) ? err : worst;
	}
	return worst;
}
