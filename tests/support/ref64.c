/* SPDX-License-Identifier: Apache-2.0 */
/* ref64.c - see ref64.h. */
#include "support/ref64.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_embed_fwd(double *y, const double *table, const int32_t *ids, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < c; j++)
			y[i * c + j] = table[ids[i] * c + j];
}

void ref_embed_bwd(double *dtable, const double *dy, const int32_t *ids, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < c; j++)
			dtable[ids[i] * c + j] += dy[i * c + j];
}

void ref_rmsnorm_fwd(double *y, double *rstd, const double *x, const double *w, int64_t n,
		     int64_t c, double eps, double plus)
{
	for (int64_t i = 0; i < n; i++) {
		double s = 0;
		for (int64_t j = 0; j < c; j++)
			s += x[i * c + j] * x[i * c + j];
		rstd[i] = 1 / sqrt(s / (double)c + eps);
		for (int64_t j = 0; j < c; j++)
			y[i * c + j] = x[i * c + j] * rstd[i] * (w[j] + plus);
	}
}

void ref_rmsnorm_bwd(double *dx, double *dw, const double *dy, const double *x, const double *w,
		     const double *rstd, int64_t n, int64_t c, double plus)
{
	for (int64_t i = 0; i < n; i++) {
		double dot = 0;
		for (int64_t j = 0; j < c; j++)
			dot += dy[i * c + j] * (w[j] + plus) * x[i * c + j] * rstd[i];
		for (int64_t j = 0; j < c; j++) {
			double xh = x[i * c + j] * rstd[i];
			dx[i * c + j] +=
				rstd[i] * (dy[i * c + j] * (w[j] + plus) - xh * dot / (double)c);
			if (dw)
				dw[j] += dy[i * c + j] * xh;
		}
	}
}

void ref_rope(double *x, const int32_t *pos, const double *freq, int64_t n, int64_t h, int64_t d,
	      int64_t ldx, int64_t dir, double scale, int64_t rot, bool near, const int32_t *table)
{
	const int64_t half = (rot ? rot : d) / 2;
	for (int64_t i = 0; i < n; i++)
		for (int64_t head = 0; head < h; head++)
			for (int64_t j = 0; j < half; j++) {
				const double *f = freq + (table ? table[i] * half : 0);
				float angle = (float)pos[i] * (float)f[j];
				double c = cos((double)angle) * scale,
				       s = sin((double)angle) * scale * (double)dir;
				double *a = x + i * ldx + head * d + (near ? 2 * j : j),
				       *b = a + (near ? 1 : half), x0 = *a, x1 = *b;
				*a = x0 * c - x1 * s;
				*b = x1 * c + x0 * s;
			}
}

static double dot(const double *a, const double *b, int64_t n)
{
	double s = 0;
	for (int64_t i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* First and last+1 key that query i of lq sees of lk. */
static void seen(const struct ref_attn *a, int64_t i, int64_t lq, int64_t lk, int64_t *beg_p,
		 int64_t *end_p)
{
	*end_p = i + lk - lq + 1;
	*beg_p = a->window > 0 && *end_p > a->window ? *end_p - a->window : 0;
}

/* The probabilities of one row, in p[beg..end); returns its log-sum-exp. */
static double probabilities(double *p, const double *q, const double *k, int64_t ldk, int64_t beg,
			    int64_t end, int64_t d, double scale, double cap)
{
	double max = -INFINITY, sum = 0;
	for (int64_t j = beg; j < end; j++) {
		p[j] = scale * dot(q, k + j * ldk, d);
		p[j] = cap > 0 ? cap * tanh(p[j] / cap) : p[j];
		max = p[j] > max ? p[j] : max;
	}
	for (int64_t j = beg; j < end; j++)
		sum += p[j] = exp(p[j] - max);
	for (int64_t j = beg; j < end; j++)
		p[j] /= sum;
	return max + log(sum);
}

void ref_attn_fwd(double *o, double *lse, const double *q, const double *k, const double *v,
		  const struct ref_attn *a)
{
	double *p = calloc((size_t)a->nk + 1, sizeof *p);
	for (int64_t s = 0; s < a->s; s++)
		for (int64_t h = 0; h < a->h; h++) {
			const int64_t g = h / (a->h / a->g), lq = a->qs[s + 1] - a->qs[s],
				      lk = a->ks[s + 1] - a->ks[s];
			const double *ks = k + a->ks[s] * a->ldk + g * a->d,
				     *vs = v + a->ks[s] * a->ldv + g * a->d;
			for (int64_t i = 0; i < lq; i++) {
				int64_t beg, end, row = a->qs[s] + i;
				seen(a, i, lq, lk, &beg, &end);
				double l = probabilities(p, q + row * a->ldq + h * a->d, ks, a->ldk,
							 beg, end, a->d, a->scale, a->cap);
				if (lse)
					lse[h * a->nq + row] = l;
				for (int64_t x = 0; x < a->d; x++) {
					double sum = 0;
					for (int64_t j = beg; j < end; j++)
						sum += p[j] * vs[j * a->ldv + x];
					o[row * a->ldo + h * a->d + x] = sum;
				}
			}
		}
	free(p);
}

void ref_attn_bwd(double *dq, double *dk, double *dv, const double *dout, const double *q,
		  const double *k, const double *v, const double *o, const struct ref_attn *a)
{
	double *p = calloc((size_t)a->nk + 1, sizeof *p),
	       *dp = calloc((size_t)a->nk + 1, sizeof *dp);
	const int64_t n = a->nq, d = a->d;
	for (int64_t i = 0; i < n; i++) {
		for (int64_t x = 0; x < a->h * d; x++)
			dq[i * a->ldq + x] = 0;
		for (int64_t x = 0; x < a->g * d; x++)
			dk[i * a->ldk + x] = dv[i * a->ldv + x] = 0;
	}
	for (int64_t s = 0; s < a->s; s++)
		for (int64_t h = 0; h < a->h; h++) {
			const int64_t g = h / (a->h / a->g), len = a->qs[s + 1] - a->qs[s],
				      base = a->qs[s];
			const double *ks = k + base * a->ldk + g * d,
				     *vs = v + base * a->ldv + g * d;
			double *dks = dk + base * a->ldk + g * d, *dvs = dv + base * a->ldv + g * d;
			for (int64_t i = 0; i < len; i++) {
				int64_t beg, end, row = base + i;
				const double *qi = q + row * a->ldq + h * d,
					     *doi = dout + row * a->ldo + h * d;
				seen(a, i, len, len, &beg, &end);
				probabilities(p, qi, ks, a->ldk, beg, end, d, a->scale, a->cap);
				double mean = 0;
				for (int64_t j = beg; j < end; j++) {
					dp[j] = dot(doi, vs + j * a->ldv, d);
					mean += p[j] * dp[j];
				}
				if (o)
					mean = dot(doi, o + row * a->ldo + h * d, d);
				for (int64_t j = beg; j < end; j++) {
					double ds = p[j] * (dp[j] - mean) * a->scale;
					if (a->cap > 0)
						ds /= pow(cosh(a->scale *
							       dot(qi, ks + j * a->ldk, d) /
							       a->cap),
							  2);
					for (int64_t x = 0; x < d; x++) {
						dq[row * a->ldq + h * d + x] +=
							ds * ks[j * a->ldk + x];
						dks[j * a->ldk + x] += ds * qi[x];
						dvs[j * a->ldv + x] += p[j] * doi[x];
					}
				}
			}
		}
	free(p);
	free(dp);
}

void ref_swiglu_fwd(double *y, const double *gate, const double *up, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

void ref_swiglu_bwd(double *dgate, double *dup, const double *dy, const double *gate,
		    const double *up, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double s = 1 / (1 + exp(-gate[i]));
		dgate[i] = dy[i] * up[i] * (s + gate[i] * s * (1 - s));
		dup[i] = dy[i] * gate[i] * s;
	}
}

void ref_swiglu_oss_fwd(double *y, const double *gate, const double *up, int64_t n, double alpha,
			double limit)
{
	for (int64_t i = 0; i < n; i++) {
		const double g = fmin(gate[i], limit), u = fmax(-limit, fmin(up[i], limit));
		y[i] = g / (1 + exp(-alpha * g)) * (u + 1);
	}
}

void ref_swiglu_oss_bwd(double *dgate, double *dup, const double *dy, const double *gate,
			const double *up, int64_t n, double alpha, double limit)
{
	for (int64_t i = 0; i < n; i++) {
		const double g = fmin(gate[i], limit), u = fmax(-limit, fmin(up[i], limit)),
			     s = 1 / (1 + exp(-alpha * g));
		const bool over = gate[i] > limit, out = fabs(up[i]) > limit;
		dgate[i] = over ? 0 : dy[i] * (u + 1) * (s + alpha * g * s * (1 - s));
		dup[i] = out ? 0 : dy[i] * g * s;
	}
}

void ref_sink_fwd(double *o, double *lse, const double *sink, int64_t n, int64_t h, int64_t d)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < h; k++) {
			double *l = &lse[k * n + i];
			for (int64_t j = 0; j < d; j++)
				o[(i * h + k) * d + j] /= 1 + exp(sink[k] - *l);
			*l += log1p(exp(sink[k] - *l));
		}
}

void ref_sink_bwd(double *dsink, const double *dout, const double *o, const double *lse,
		  const double *sink, int64_t n, int64_t h, int64_t d)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < h; k++)
			for (int64_t j = 0; j < d; j++)
				dsink[k] -= exp(sink[k] - lse[k * n + i]) *
					    dout[(i * h + k) * d + j] * o[(i * h + k) * d + j];
}

static double gelu(double x)
{
	/* (1 + tanh u) / 2, without loss of digits */
	return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

void ref_geglu_fwd(double *y, const double *gate, const double *up, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = gelu(gate[i]) * up[i];
}

void ref_geglu_bwd(double *dgate, double *dup, const double *dy, const double *gate,
		   const double *up, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		const double x = gate[i], k = sqrt(2 / M_PI),
			     t = tanh(k * (x + 0.044715 * x * x * x));
		dgate[i] = dy[i] * up[i] *
			   (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x));
		dup[i] = dy[i] * gelu(x);
	}
}

/* The number of column j of token i. */
static uint32_t number(const int32_t *at, int64_t i, int64_t j, int64_t c, uint64_t key)
{
	return at ? rng_u32_at(rng_key(key), (uint64_t)j, (uint32_t)at[2 * i + 1],
			       (uint32_t)at[2 * i])
		  : rng_u32(rng_key(key), (uint64_t)(i * c + j));
}

void ref_dropout(double *y, const double *x, const int32_t *at, int64_t n, int64_t c, float p,
		 uint64_t key)
{
	for (int64_t i = 0; i < n * c; i++)
		if ((double)number(at, i / c, i % c, c, key) >= (double)p * 0x1p32)
			y[i] += x[i] / (1 - (double)p);
}

void ref_noise(double *y, const double *a, const int32_t *at, int64_t n, int64_t c, uint64_t key)
{
	for (int64_t i = 0; i < n * c; i++)
		y[i] += a[i / c] * (2 * (double)rng_unit(number(at, i / c, i % c, c, key)) - 1);
}

void ref_xent(double *loss, double *dlogits, const double *logits, const int32_t *labels, int64_t n,
	      const double *weight, double *hit, int64_t v, int64_t ldl, int64_t ldd, double scale,
	      double cap)
{
	for (int64_t i = 0; i < n; i++) {
		const double *l = logits + i * ldl, w = weight ? weight[i] : 1;
		double max = -INFINITY, sum = 0;
#define CAPPED(x) (cap > 0 ? cap * tanh((x) / cap) : (x))
		for (int64_t j = 0; j < v; j++)
			max = CAPPED(l[j]) > max ? CAPPED(l[j]) : max;
		for (int64_t j = 0; j < v; j++)
			sum += exp(CAPPED(l[j]) - max);
		double lse = max + log(sum);
		loss[i] = labels[i] == -100 ? 0 : lse - CAPPED(l[labels[i]]);
		if (hit)
			hit[i] = labels[i] != -100 && CAPPED(l[labels[i]]) >= max;
		for (int64_t j = 0; dlogits && j < v; j++)
			dlogits[i * ldd + j] =
				labels[i] == -100
					? 0
					: scale * w * (exp(CAPPED(l[j]) - lse) - (j == labels[i])) /
						  (cap > 0 ? pow(cosh(l[j] / cap), 2) : 1);
#undef CAPPED
	}
}

void ref_route_fwd(double *p, double *lse, double *w, double *chosen, const double *logits,
		   const double *bias, int64_t n, int64_t experts, int64_t k, int64_t whole,
		   int64_t sigmoid, double scale)
{
	for (int64_t i = 0; i < n; i++) {
		const double *l = logits + i * experts;
		double sum = 0, all = 0;
		for (int64_t j = 0; j < experts; j++)
			sum += exp(l[j]);
		lse[i] = log(sum);
		for (int64_t j = 0; j < experts; j++)
			p[i * experts + j] = sigmoid ? 1 / (1 + exp(-l[j])) : exp(l[j]) / sum;
		for (int64_t c = 0; c < k; c++) {
			int64_t best = -1;
			for (int64_t j = 0; j < experts; j++) {
				bool taken = false;
				for (int64_t b = 0; b < c; b++)
					taken |= (int64_t)chosen[i * k + b] == j;
				const double *q = p + i * experts;
				if (!taken &&
				    (best < 0 || (bias ? q[j] + bias[j] > q[best] + bias[best]
						       : l[j] > l[best])))
					best = j;
			}
			chosen[i * k + c] = (double)best;
			w[i * k + c] = p[i * experts + best];
			all += w[i * k + c];
		}
		for (int64_t c = 0; c < k; c++)
			w[i * k + c] = whole ? w[i * k + c] * scale / all : w[i * k + c] * scale;
	}
}

/* By the chain rule: weight <- probabilities of the chosen <- all logits. */
void ref_route_bwd(double *dlogits, const double *dw, const double *p, const double *lse,
		   const double *w, const int32_t *chosen, const double *balance,
		   const double *logits, int64_t n, int64_t experts, int64_t k, int64_t whole,
		   int64_t sigmoid, double scale, double z)
{
	double *d = mem_array((size_t)experts, sizeof *d);
	for (int64_t i = 0; i < n; i++) {
		const double *q = p + i * experts;
		double all = 0, dot = 0;
		for (int64_t c = 0; c < k; c++) {
			all += q[chosen[i * k + c]];
			dot += dw[i * k + c] * w[i * k + c] / scale;
		}
		for (int64_t m = 0; m < experts; m++)
			d[m] = balance ? balance[m] : 0;
		for (int64_t c = 0; c < k; c++)
			d[chosen[i * k + c]] +=
				scale * (whole ? (dw[i * k + c] - dot) / all : dw[i * k + c]);
		for (int64_t j = 0; j < experts; j++) {
			double sum = 2 * z * lse[i] * exp(logits[i * experts + j] - lse[i]);
			for (int64_t m = 0; m < experts; m++)
				sum += sigmoid ? (m == j) * d[m] * q[m] * (1 - q[m])
					       : d[m] * q[m] * ((m == j) - q[j]);
			dlogits[i * experts + j] = sum;
		}
	}
	mem_free(d);
}

void ref_combine_fwd(double *y, const double *x, const double *w, const int32_t *place, int64_t n,
		     int64_t k, int64_t c)
{
	for (int64_t i = 0; i < n * k; i++)
		for (int64_t j = 0; j < c; j++)
			y[i / k * c + j] += (w ? w[i] : 1) * x[place[i] * c + j];
}

void ref_combine_bwd(double *dx, double *dw, const double *dy, const double *x, const double *w,
		     const int32_t *place, int64_t n, int64_t k, int64_t c)
{
	for (int64_t i = 0; i < n * k; i++) {
		dw[i] = 0;
		for (int64_t j = 0; j < c; j++) {
			dx[place[i] * c + j] = w[i] * dy[i / k * c + j];
			dw[i] += dy[i / k * c + j] * x[place[i] * c + j];
		}
	}
}

void ref_colsum(double *db, const double *dy, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < c; j++)
			db[j] += dy[i * c + j];
}

void ref_nf4(double *dst, const uint8_t *packed, const double *absmax, const double *code,
	     int64_t in, int64_t row0, int64_t nr, int64_t col0, int64_t nc, int64_t ldd,
	     int64_t block)
{
	for (int64_t r = 0; r < nr; r++)
		for (int64_t c = 0; c < nc; c++) {
			int64_t e = (row0 + r) * in + col0 + c;
			int nibble = e % 2 ? packed[e / 2] & 15 : packed[e / 2] >> 4;
			dst[r * ldd + c] = code[nibble] * absmax[e / block];
		}
}

void ref_adamw(double *p, double *m, double *v, const double *g, int64_t n, double lr, double b1,
	       double b2, double eps, double wd, double bc1, double bc2, double gscale)
{
	for (int64_t i = 0; i < n; i++) {
		double gi = g[i] * gscale;
		m[i] = b1 * m[i] + (1 - b1) * gi;
		v[i] = b2 * v[i] + (1 - b2) * gi * gi;
		p[i] = p[i] - lr * wd * p[i] - lr * (m[i] / bc1) / (sqrt(v[i] / bc2) + eps);
	}
}

/* The k-th value above 0, from 1 on, of a map whose decade i has 2^i * `parts` parts. */
static double dynamic8_above(int k, int parts)
{
	int first = 1;
	for (int i = 0; i < 7; i++, parts *= 2) {
		if (k < first + parts)
			return pow(10, i - 6) * (0.1 + 0.9 * (k - first + 0.5) / parts);
		first += parts;
	}
	return 1;
}

double ref_dynamic8(bool with_sign, uint8_t code)
{
	if (!with_sign)
		return code ? dynamic8_above(code, 2) : 0;
	return code == 127  ? 0
	       : code > 127 ? dynamic8_above(code - 127, 1)
			    : -dynamic8_above(127 - code, 1);
}

void ref_lion(double *p, double *m, const double *g, int64_t n, double lr, double b1, double b2,
	      double wd, double gscale)
{
	for (int64_t i = 0; i < n; i++) {
		double gi = g[i] * gscale, c = b1 * m[i] + (1 - b1) * gi;
		p[i] -= lr * ((c > 0) - (c < 0) + wd * p[i]);
		m[i] = b2 * m[i] + (1 - b2) * gi;
	}
}

void ref_sgd(double *p, double *mom, const double *g, int64_t n, double lr, double mu, double wd,
	     double gscale)
{
	for (int64_t i = 0; i < n; i++) {
		double gi = g[i] * gscale + wd * p[i];
		if (mom)
			gi = mom[i] = mu * mom[i] + gi;
		p[i] -= lr * gi;
	}
}

static double *room(int64_t n)
{
	double *x = calloc((size_t)n + 1, sizeof *x);
	if (!x)
		abort();
	return x;
}

/* A row-major copy (rows, cols) of a matrix that is stored transposed. */
static double *turned(const double *x, int64_t rows, int64_t cols, int64_t ld)
{
	double *y = room(rows * cols);
	for (int64_t j = 0; j < cols; j++)
		for (int64_t i = 0; i < rows; i++)
			y[i * cols + j] = x[j * ld + i];
	return y;
}

/* Row by row of C, so that the innermost loop is one over neighbours. */
void ref_gemm(double *c, const double *a, const double *b, int64_t m, int64_t n, int64_t k, bool ta,
	      bool tb, int64_t lda, int64_t ldb, int64_t ldc, double alpha, double beta)
{
	double *s = room(n), *rows = tb ? turned(b, k, n, ldb) : NULL;
	for (int64_t i = 0; i < m; i++) {
		memset(s, 0, (size_t)n * sizeof *s);
		for (int64_t x = 0; x < k; x++) {
			const double f = ta ? a[x * lda + i] : a[i * lda + x];
			const double *r = tb ? rows + x * n : b + x * ldb;
#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				s[j] += f * r[j];
		}
		for (int64_t j = 0; j < n; j++)
			c[i * ldc + j] = alpha * s[j] + (beta != 0 ? beta * c[i * ldc + j] : 0);
	}
	free(s);
	free(rows);
}

static double act_value(double x, int64_t kind)
{
	const double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
	switch (kind) {
	case 0:
		return x <= 0 ? 0 : x;
	case 1:
		return x / 2 * (1 + erf(x / sqrt(2)));
	case 2:
		return x / 2 * (1 + tanh(inner));
	case 3:
		return x / (1 + exp(-x));
	case 4:
		return tanh(x);
	default:
		return 1 / (1 + exp(-x));
	}
}

static double act_slope(double x, int64_t kind)
{
	const double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = tanh(inner),
		     s = 1 / (1 + exp(-x));
	switch (kind) {
	case 0:
		return x <= 0 ? 0 : 1;
	case 1:
		return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
	case 2:
		return (1 + t) / 2 +
		       x / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
	case 3:
		return s * (1 + x * (1 - s));
	case 4:
		return 1 - tanh(x) * tanh(x);
	default:
		return s * (1 - s);
	}
}

void ref_act_fwd(double *y, const double *x, int64_t n, int64_t kind)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = act_value(x[i], kind);
}

void ref_act_bwd(double *dx, const double *dy, const double *x, int64_t n, int64_t kind)
{
	for (int64_t i = 0; i < n; i++)
		dx[i] += dy[i] * act_slope(x[i], kind);
}

void ref_layernorm_fwd(double *y, double *mean, double *rstd, const double *x, const double *w,
		       const double *b, int64_t n, int64_t c, double eps)
{
	for (int64_t i = 0; i < n; i++) {
		double sum = 0, square = 0;
		for (int64_t j = 0; j < c; j++)
			sum += x[i * c + j];
		mean[i] = sum / (double)c;
		for (int64_t j = 0; j < c; j++)
			square += pow(x[i * c + j] - mean[i], 2);
		rstd[i] = 1 / sqrt(square / (double)c + eps);
		for (int64_t j = 0; j < c; j++)
			y[i * c + j] = (x[i * c + j] - mean[i]) * rstd[i] * w[j] + b[j];
	}
}

void ref_layernorm_bwd(double *dx, double *dw, double *db, const double *dy, const double *x,
		       const double *w, const double *mean, const double *rstd, int64_t n,
		       int64_t c)
{
	for (int64_t i = 0; i < n; i++) {
		double plain = 0, along = 0;
		for (int64_t j = 0; j < c; j++) {
			const double xh = (x[i * c + j] - mean[i]) * rstd[i];
			plain += dy[i * c + j] * w[j] / (double)c;
			along += dy[i * c + j] * w[j] * xh / (double)c;
			dw[j] += dy[i * c + j] * xh;
			db[j] += dy[i * c + j];
		}
		for (int64_t j = 0; j < c; j++)
			dx[i * c + j] += rstd[i] * (dy[i * c + j] * w[j] - plain -
						    (x[i * c + j] - mean[i]) * rstd[i] * along);
	}
}

void ref_mse(double *loss, double *dx, const double *x, const double *target, int64_t n, int64_t w,
	     double scale)
{
	for (int64_t i = 0; i < n; i++) {
		loss[i] = 0;
		for (int64_t j = 0; j < w; j++) {
			const double d = x[i * w + j] - target[i * w + j];
			loss[i] += d * d / (double)w;
			if (dx)
				dx[i * w + j] = scale * 2 / (double)w * d;
		}
	}
}

/* The place in the image of number (a, b) of window (oy, ox) of a channel; -1: outside. */
static int64_t pixel_of(const struct ref_conv *k, int64_t plane, int64_t oy, int64_t ox, int64_t a,
			int64_t b)
{
	const int64_t y = oy * k->s + a - k->py, x = ox * k->s + b - k->px;
	return y < 0 || y >= k->y || x < 0 || x >= k->x ? -1 : (plane * k->y + y) * k->x + x;
}

static void windows(double *dx, double *cols, const double *x, const double *dcols,
		    const struct ref_conv *k)
{
	const int64_t oy = (k->y + 2 * k->py - k->ky) / k->s + 1,
		      ox = (k->x + 2 * k->px - k->kx) / k->s + 1;
	int64_t to = 0;
	for (int64_t n = 0; n < k->n; n++)
		for (int64_t w = 0; w < oy * ox; w++)
			for (int64_t c = 0; c < k->c; c++)
				for (int64_t i = 0; i < k->ky * k->kx; i++, to++) {
					const int64_t at = pixel_of(k, n * k->c + c, w / ox, w % ox,
								    i / k->kx, i % k->kx);
					if (cols)
						cols[to] = at < 0 ? 0 : x[at];
					else if (at >= 0)
						dx[at] += dcols[to];
				}
}

void ref_im2col(double *cols, const double *x, const struct ref_conv *k)
{
	windows(NULL, cols, x, NULL, k);
}

void ref_col2im(double *dx, const double *dcols, const struct ref_conv *k)
{
	windows(dx, NULL, NULL, dcols, k);
}

void ref_pool_fwd(double *y, int32_t *at, const double *x, const struct ref_conv *k, int64_t kind)
{
	const int64_t oy = (k->y - k->ky) / k->s + 1, ox = (k->x - k->kx) / k->s + 1,
		      all = k->ky * k->kx;
	for (int64_t w = 0; w < k->n * oy * ox; w++) {
		const int64_t n = w / (oy * ox);
		double sum = 0, best = -INFINITY;
		for (int64_t i = 0; i < all; i++) {
			const int64_t p = pixel_of(k, n, w / ox % oy, w % ox, i / k->kx, i % k->kx);
			sum += x[p];
			if (x[p] > best || isnan(x[p])) {
				best = x[p];
				if (at)
					at[w] = (int32_t)(p - n * k->y * k->x);
			}
		}
		y[w] = kind ? sum / (double)all : best;
	}
}

void ref_pool_bwd(double *dx, const double *dy, const int32_t *at, const struct ref_conv *k,
		  int64_t kind)
{
	const int64_t oy = (k->y - k->ky) / k->s + 1, ox = (k->x - k->kx) / k->s + 1,
		      all = k->ky * k->kx;
	for (int64_t w = 0; w < k->n * oy * ox; w++) {
		const int64_t n = w / (oy * ox);
		for (int64_t i = 0; kind && i < all; i++)
			dx[pixel_of(k, n, w / ox % oy, w % ox, i / k->kx, i % k->kx)] +=
				dy[w] / (double)all;
		if (!kind)
			dx[n * k->y * k->x + at[w]] += dy[w];
	}
}
