/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - a mixture of experts: which experts a token has, and the sum of what they make of it.
 * A token is computed by one thread, its sums from the first term to the last. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

enum { EXPERTS = 1024 };

struct experts {
	float *p, *lse, *w, *dw;
	int32_t *chosen;
	void *y;
	const void *x, *dy;
	const float *balance, *bias;
	const int32_t *place;
	int64_t n, e, k, c, per;
	float z, scale;
	bool whole, sigmoid, acc, bf;
};

/* Tokens in a chunk: about 16 K numbers. */
static int64_t tokens_per(int64_t c) { return c > 16384 ? 1 : 16384 / (c ? c : 1); }
static int64_t chunks(const struct experts *r) { return (r->n + r->per - 1) / r->per; }

#define TOKENS_OF(r, i)                                                                            \
	const int64_t n0 = (i) * (r)->per, n1 = n0 + (r)->per < (r)->n ? n0 + (r)->per : (r)->n;

#define BY_DTYPE(body)                                                                             \
	static void body##_chunk(void *ctx, int64_t i, int thread)                                 \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct experts *r = ctx;                                                     \
		TOKENS_OF(r, i)                                                                    \
		for (int64_t n = n0; n < n1; n++) {                                                \
			if (r->bf)                                                                 \
				body(r, n, true);                                                  \
			else                                                                       \
				body(r, n, false);                                                 \
		}                                                                                  \
	}

/* The k likeliest of p (E), by p and bias; what is no number comes last. */
static void choose(const struct experts *r, const float *p, int32_t *chosen, float *w)
{
	bool taken[EXPERTS] = { false };
	float all = 0;
	for (int64_t k = 0; k < r->k; k++) {
		int64_t best = -1;
		float most = -INFINITY;
		for (int64_t j = 0; j < r->e; j++) {
			const float v = r->bias ? p[j] + r->bias[j] : p[j];
			if (!taken[j] && (best < 0 || v > most)) {
				most = v >= -INFINITY ? v : -INFINITY;
				best = j;
			}
		}
		taken[best] = true;
		chosen[k] = (int32_t)best;
		w[k] = p[best];
		all += p[best];
	}
	for (int64_t k = 0; k < r->k; k++)
		w[k] = r->whole ? r->scale * w[k] / all : r->scale * w[k];
}

INLINE void route_fwd(const struct experts *r, int64_t n, const bool bf)
{
	float v[EXPERTS + VW], *p = r->p + n * r->e;
	float top = -INFINITY, sum = 0;
	for (int64_t j = 0; j < r->e; j++) {
		v[j] = ld1(r->x, n * r->e + j, bf);
		top = v[j] > top ? v[j] : top;
	}
	for (int64_t j = 0; j < VW; j++)
		v[r->e + j] = top;
	for (int64_t j = 0; j < r->e; j += VW)
		st(v, j, v_exp(ld(v, j, false) - v_set(top)), false);
	for (int64_t j = 0; j < r->e; j++)
		sum += v[j];
	for (int64_t j = 0; j < r->e; j++)
		p[j] = r->sigmoid ? 1 / (1 + expf(-ld1(r->x, n * r->e + j, bf))) : v[j] / sum;
	r->lse[n] = top + logf(sum);
	choose(r, p, r->chosen + n * r->k, r->w + n * r->k);
}
BY_DTYPE(route_fwd)

static int check(const struct experts *r, struct err *e)
{
	return r->k >= 1 && r->k <= r->e && r->e <= EXPERTS
		       ? 0
		       : err_set(e, ERR_INTERNAL, "a choice of %lld among %lld experts",
				 (long long)r->k, (long long)r->e);
}

int CPU_SYM(cpu_route_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct experts r = { .p = cpu_ptr(a[0]),
			     .lse = cpu_ptr(a[1]),
			     .w = cpu_ptr(a[2]),
			     .chosen = cpu_ptr(a[3]),
			     .x = cpu_ptr(a[4]),
			     .bias = cpu_ptr(a[5]),
			     .n = a[6].i,
			     .e = a[7].i,
			     .k = a[8].i,
			     .whole = a[9].i != 0,
			     .sigmoid = a[10].i != 0,
			     .scale = a[11].f,
			     .per = tokens_per(8 * a[7].i),
			     .bf = t == DT_BF16 };
	TRY(check(&r, e));
	cpu_par(c, chunks(&r), route_fwd_chunk, &r);
	return 0;
}

/* d is the derivative by the probability; that of weights with `whole` is taken by the logit at
 * once: dl = w (dw - sum of dw w / scale), with sigmoid times 1 - p. */
INLINE void route_bwd(const struct experts *r, int64_t n, const bool bf)
{
	float d[EXPERTS], own[EXPERTS], mean = 0, sum = 0;
	const float *p = r->p + n * r->e, *w = r->w + n * r->k, *dw = r->dw + n * r->k;
	const int32_t *chosen = r->chosen + n * r->k;
	for (int64_t j = 0; j < r->e; j++) {
		d[j] = r->balance ? r->balance[j] : 0;
		own[j] = 0;
	}
	for (int64_t k = 0; k < r->k; k++)
		mean += dw[k] * w[k] / r->scale;
	for (int64_t k = 0; k < r->k; k++) {
		if (r->whole)
			own[chosen[k]] = w[k] * (dw[k] - mean);
		else
			d[chosen[k]] += r->scale * dw[k];
	}
	for (int64_t j = 0; j < r->e; j++)
		sum += d[j] * p[j];
	const float z = 2 * r->z * r->lse[n];
	for (int64_t j = 0; j < r->e; j++) {
		const float all =
			r->sigmoid ? (p[j] * d[j] + own[j]) * (1 - p[j]) +
					     z * expf(ld1(r->x, n * r->e + j, bf) - r->lse[n])
				   : p[j] * (d[j] - sum + z) + own[j];
		st1(r->y, n * r->e + j, all, bf);
	}
}
BY_DTYPE(route_bwd)

int CPU_SYM(cpu_route_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct experts r = { .y = cpu_ptr(a[0]),
			     .dw = cpu_ptr(a[1]),
			     .p = cpu_ptr(a[2]),
			     .lse = cpu_ptr(a[3]),
			     .w = cpu_ptr(a[4]),
			     .chosen = cpu_ptr(a[5]),
			     .balance = cpu_ptr(a[6]),
			     .x = cpu_ptr(a[7]),
			     .n = a[8].i,
			     .e = a[9].i,
			     .k = a[10].i,
			     .whole = a[11].i != 0,
			     .sigmoid = a[12].i != 0,
			     .scale = a[13].f,
			     .z = a[14].f,
			     .per = tokens_per(4 * a[9].i),
			     .bf = t == DT_BF16 };
	TRY(check(&r, e));
	cpu_par(c, chunks(&r), route_bwd_chunk, &r);
	return 0;
}

INLINE void combine_fwd(const struct experts *r, int64_t n, const bool bf)
{
	const int32_t *place = r->place + n * r->k;
	const float *w = r->w ? r->w + n * r->k : NULL;
	for (int64_t j = 0; j < r->c; j += VW) {
		vf sum = { 0 };
		for (int64_t k = 0; k < r->k; k++) {
			vf v = ldm(r->x, place[k] * r->c + j, r->c - j, bf);
			sum += w ? v_set(w[k]) * v : v;
		}
		if (r->acc)
			sum += ldm(r->y, n * r->c + j, r->c - j, bf);
		stm(r->y, n * r->c + j, sum, r->c - j, bf);
	}
}
BY_DTYPE(combine_fwd)

int CPU_SYM(cpu_combine_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct experts r = { .y = cpu_ptr(a[0]),
			     .x = cpu_ptr(a[1]),
			     .w = cpu_ptr(a[2]),
			     .place = cpu_ptr(a[3]),
			     .n = a[4].i,
			     .k = a[5].i,
			     .c = a[6].i,
			     .acc = a[7].i != 0,
			     .per = tokens_per(a[5].i * a[6].i),
			     .bf = t == DT_BF16 };
	cpu_par(c, chunks(&r), combine_fwd_chunk, &r);
	return 0;
}

INLINE void combine_bwd(const struct experts *r, int64_t n, const bool bf)
{
	for (int64_t k = 0; k < r->k; k++) {
		const int64_t there = r->place[n * r->k + k] * r->c;
		const vf w = v_set(r->w[n * r->k + k]);
		vf sum = { 0 };
		for (int64_t j = 0; j < r->c; j += VW) {
			vf d = ldm(r->dy, n * r->c + j, r->c - j, bf);
			sum += d * ldm(r->x, there + j, r->c - j, bf);
			stm(r->y, there + j, w * d, r->c - j, bf);
		}
		r->dw[n * r->k + k] = v_sum(sum);
	}
}
BY_DTYPE(combine_bwd)

int CPU_SYM(cpu_combine_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct experts r = { .y = cpu_ptr(a[0]),
			     .dw = cpu_ptr(a[1]),
			     .dy = cpu_ptr(a[2]),
			     .x = cpu_ptr(a[3]),
			     .w = cpu_ptr(a[4]),
			     .place = cpu_ptr(a[5]),
			     .n = a[6].i,
			     .k = a[7].i,
			     .c = a[8].i,
			     .per = tokens_per(a[7].i * a[8].i),
			     .bf = t == DT_BF16 };
	cpu_par(c, chunks(&r), combine_bwd_chunk, &r);
	return 0;
}
