/* SPDX-License-Identifier: Apache-2.0 */
/* loftq.c - see loftq.h. The largest singular values by subspace iteration (Halko, Martinsson and
 * Tropp 2011, algorithm 4.4): every sum has one order, whatever the number of threads. */
#include "runtime/loftq.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/param.h"

#include <math.h>
#include <string.h>

enum { MORE = 8, ROUNDS = 8, BLOCK = 64, SWEEPS = 40, SMALL = 1 << 20 };

/* y (out,k) = d v, v (in,k) */
static void forth(const float *d, int64_t out, int64_t in, int64_t k, const float *v, float *y)
{
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < out; i++) {
		float *row = y + i * k;
		memset(row, 0, (size_t)k * sizeof *row);
		for (int64_t c = 0; c < in; c++) {
			const float x = d[i * in + c], *w = v + c * k;
			for (int64_t j = 0; j < k; j++)
				row[j] += x * w[j];
		}
	}
}

/* v (in,k) = d^T y */
static void back(const float *d, int64_t out, int64_t in, int64_t k, const float *y, float *v)
{
#pragma omp parallel for schedule(static)
	for (int64_t first = 0; first < in; first += BLOCK) {
		const int64_t last = first + BLOCK < in ? first + BLOCK : in;
		memset(v + first * k, 0, (size_t)((last - first) * k) * sizeof *v);
		for (int64_t i = 0; i < out; i++) {
			const float *row = y + i * k;
			for (int64_t c = first; c < last; c++) {
				const float x = d[i * in + c];
				float *w = v + c * k;
				for (int64_t j = 0; j < k; j++)
					w[j] += x * row[j];
			}
		}
	}
}

/* The columns of v (n,k) become orthogonal and of length 1, twice over; one that has nothing left
 * becomes 0. */
static void orthonormal(float *v, int64_t n, int64_t k)
{
	for (int64_t j = 0; j < 2 * k; j++) {
		const int64_t c = j % k;
		double square = 0;
		for (int64_t b = 0; b < c; b++) {
			double dot = 0;
			for (int64_t i = 0; i < n; i++)
				dot += (double)v[i * k + b] * (double)v[i * k + c];
			for (int64_t i = 0; i < n; i++)
				v[i * k + c] -= (float)(dot * (double)v[i * k + b]);
		}
		for (int64_t i = 0; i < n; i++)
			square += (double)v[i * k + c] * (double)v[i * k + c];
		const float by = square > 0 ? (float)(1 / sqrt(square)) : 0;
		for (int64_t i = 0; i < n; i++)
			v[i * k + c] *= by;
	}
}

/* Eigenvectors q (k,k) in columns of the symmetric m (k,k), whose diagonal becomes the eigenvalues:
 * Jacobi's rotations. */
static void eigen(double *m, double *q, int64_t k)
{
	for (int64_t i = 0; i < k * k; i++)
		q[i] = i / k == i % k;
	for (int sweep = 0; sweep < SWEEPS; sweep++)
		for (int64_t a = 0; a < k; a++)
			for (int64_t b = a + 1; b < k; b++) {
				const double x = m[a * k + b];
				if (x == 0)
					continue;
				const double h = (m[b * k + b] - m[a * k + a]) / (2 * x);
				const double t = (h < 0 ? -1 : 1) / (fabs(h) + sqrt(h * h + 1));
				const double c = 1 / sqrt(t * t + 1), s = t * c;
				for (int64_t i = 0; i < k; i++) {
					const double u = m[i * k + a], w = m[i * k + b];
					m[i * k + a] = c * u - s * w;
					m[i * k + b] = s * u + c * w;
				}
				for (int64_t i = 0; i < k; i++) {
					const double u = m[a * k + i], w = m[b * k + i];
					m[a * k + i] = c * u - s * w;
					m[b * k + i] = s * u + c * w;
					const double y = q[i * k + a], z = q[i * k + b];
					q[i * k + a] = c * y - s * z;
					q[i * k + b] = s * y + c * z;
				}
			}
}

/* With y = d v of orthonormal v: the r largest singular values of y are those of d. */
static double divide(const float *y, const float *v, int64_t out, int64_t in, int64_t k, int64_t r,
		     double scale, double *m, double *q, float *a, float *b)
{
	double taken = 0;
	memset(m, 0, (size_t)(k * k) * sizeof *m);
	for (int64_t i = 0; i < out; i++)
		for (int64_t j = 0; j < k; j++)
			for (int64_t l = 0; l < k; l++)
				m[j * k + l] += (double)y[i * k + j] * (double)y[i * k + l];
	eigen(m, q, k);
	for (int64_t n = 0; n < r && n < k; n++) {
		int64_t best = 0;
		for (int64_t j = 1; j < k; j++)
			best = m[j * k + j] > m[best * k + best] ? j : best;
		const double value = m[best * k + best] > 0 ? m[best * k + best] : 0;
		m[best * k + best] = -1; /* used */
		taken += value;
		/* both get the root of the singular value */
		const double s = sqrt(value), for_a = sqrt(s / scale),
			     for_b = s > 0 ? for_a / s : 0;
		for (int64_t c = 0; c < in; c++) {
			double x = 0;
			for (int64_t j = 0; j < k; j++)
				x += (double)v[c * k + j] * q[j * k + best];
			a[n * in + c] = (float)(x * for_a);
		}
		for (int64_t i = 0; i < out; i++) {
			double x = 0;
			for (int64_t j = 0; j < k; j++)
				x += (double)y[i * k + j] * q[j * k + best];
			b[i * r + n] = (float)(x * for_b);
		}
	}
	return taken;
}

int loftq_divide(const float *d, int64_t out, int64_t in, int64_t r, double scale, float *a,
		 float *b, double *left_p, struct err *e)
{
	const int64_t least = out < in ? out : in, k = r + MORE < least ? r + MORE : least;
	float *v = mem_array((size_t)(in * k), sizeof *v), *y = mem_array((size_t)(out * k), 4);
	double *m = mem_array((size_t)(2 * k * k), sizeof *m), all = 0;
	int rc = v && y && m ? 0 : err_nomem(e, (uint64_t)((in + out) * k) * 4, "singular values");
	if (rc >= 0) {
		const struct rng_key key = rng_key(0x6c6f667471); /* "loftq" */
		for (int64_t i = 0; i < in * k; i++)
			v[i] = rng_uniform(key, (uint64_t)i, -1, 1);
		orthonormal(v, in, k);
		/* values that lie close together need more; there it costs nothing */
		const int rounds = out * in <= SMALL ? 4 * ROUNDS : ROUNDS;
		for (int round = 0; round < rounds; round++) {
			forth(d, out, in, k, v, y);
			back(d, out, in, k, y, v);
			orthonormal(v, in, k);
		}
		forth(d, out, in, k, v, y);
		memset(a, 0, (size_t)(r * in) * sizeof *a);
		memset(b, 0, (size_t)(out * r) * sizeof *b);
		const double taken = divide(y, v, out, in, k, r, scale, m, m + k * k, a, b);
		for (int64_t i = 0; i < out * in; i++)
			all += (double)d[i] * (double)d[i];
		if (left_p)
			*left_p = all > 0 ? 1 - taken / all : 0;
	}
	mem_free(v);
	mem_free(y);
	mem_free(m);
	return rc;
}

struct rows_ctx {
	struct model_file *file;
	const struct model_tensor *t;
};

static int file_rows(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	const struct rows_ctx *r = ctx;
	return model_file_read_f32(r->file, r->t, row0, rows, dst, e);
}

int loftq_begin(const struct loftq *l, const char *weight, int64_t r, double scale, float *a,
		float *b, double *left_p, struct err *e)
{
	struct rows_ctx ctx = { l->file, model_file_find(l->file, weight) };
	const struct model_tensor *t = ctx.t;
	struct param q = { 0 };
	int rc = 0;
	if (l->stop && *l->stop)
		return err_set(e, ERR_CANCELLED,
			       "interrupted before the adapters of peft_init_lora_weights: loftq "
			       "were made");
	if (!t || t->ndim != 2)
		return err_set(e, ERR_INTERNAL, "%s: there is no matrix %s",
			       model_file_path(l->file), weight);
	if (t->kind == STORE_NF4)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: %s is in 4 bits already, so nothing is known of what that took "
			       "from it: peft_init_lora_weights: loftq needs the model as it was",
			       model_file_path(l->file), weight);
	const int64_t out = t->shape[0], in = t->shape[1];
	float *d = mem_array((size_t)(out * in), sizeof *d), *w = mem_array((size_t)in, sizeof *w);
	if (!d || !w) {
		rc = err_nomem(e, t->count * 4, weight);
		goto out;
	}
	TRYOUT(param_quantize_nf4(&q, l->dev, weight, t->shape, l->double_quant, file_rows, &ctx,
				  e));
	TRYOUT(file_rows(&ctx, 0, out, d, e));
	for (int64_t i = 0; i < out; i++) {
		TRYOUT(nf4_expand_host(&q, i, 1, w, e));
		for (int64_t c = 0; c < in; c++)
			d[i * in + c] -= w[c];
	}
	rc = loftq_divide(d, out, in, r, scale, a, b, left_p, e);
out:
	param_release(&q);
	mem_free(d);
	mem_free(w);
	model_file_drop(l->file, t);
	return rc;
}
