/* SPDX-License-Identifier: Apache-2.0 */
/* xent.c - cross-entropy over rows of logits: one pass for maximum and sum, one that writes the
 * gradient. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

/* numbers whose maximum is found before they are summed: they stay in the first-level
 * cache */
#define PIECE 2048

struct xent {
	float *loss, *hit;
	const float *weight;
	char *dlogits;
	const float *logits;
	const int32_t *labels;
	int64_t v, ldl, ldd;
	float scale, cap;
	bool bf;
};

/* n logits from l on, capped where asked for. */
INLINE vf some(const float *l, int64_t i, int64_t n, float cap, const bool capped)
{
	const vf v = ldm(l, i, n, false);
	return capped ? v_set(cap) * v_tanh(v * v_set(1 / cap)) : v;
}

INLINE float log_sum_exp(const float *x, int64_t n, float cap, float *max_p, const bool capped)
{
	float max = -INFINITY;
	double sum = 0;
	for (int64_t p = 0; p < n; p += PIECE) {
		const int64_t end = p + PIECE < n ? p + PIECE : n;
		vf m0 = v_set(-INFINITY), m1 = m0;
		int64_t i = p;
		for (; i + 2 * VW <= end; i += 2 * VW) {
			m0 = v_max(some(x, i, VW, cap, capped), m0);
			m1 = v_max(some(x, i + VW, VW, cap, capped), m1);
		}
		float m = v_hmax(v_max(m0, m1));
		for (; i < end; i += VW) {
			const vf t = some(x, i, end - i, cap, capped);
			for (int64_t j = 0; j < VW && i + j < end; j++)
				m = t[j] > m ? t[j] : m;
		}
		if (m > max) {
			sum *= exp((double)max - (double)m);
			max = m;
		}
		/* a row of -inf only: nothing to subtract */
		const vf k = v_set(max == -INFINITY ? 0 : max);
		vf s0 = { 0 }, s1 = { 0 };
		for (i = p; i + 2 * VW <= end; i += 2 * VW) {
			s0 += v_exp(some(x, i, VW, cap, capped) - k);
			s1 += v_exp(some(x, i + VW, VW, cap, capped) - k);
		}
		float rest = 0;
		for (; i < end; i += VW) {
			vf t = v_exp(some(x, i, end - i, cap, capped) - k);
			for (int64_t j = 0; j < VW && i + j < end; j++)
				rest += t[j];
		}
		sum += (double)v_sum(s0 + s1) + (double)rest;
	}
	*max_p = max;
	return (float)((double)max + log(sum));
}

/* In place a row of T lies at the front of the logits it comes from; numbers are read before the
 * place they lie in is written. */
INLINE void gradient(const struct xent *x, const float *l, void *d, float lse, float scale,
		     const bool capped, const bool bf)
{
	const vf k = v_set(lse), s = v_set(scale), part = v_set(capped ? 1 / x->cap : 0);
	for (int64_t i = 0; i < x->v; i += VW) {
		const vf c = some(l, i, x->v - i, x->cap, capped), t = c * part;
		vf p = s * v_exp(c - k);
		if (capped)
			p *= v_set(1) - t * t;
		stm(d, i, p, x->v - i, bf);
	}
}

static void xent_chunk(void *ctx, int64_t n, int thread)
{
	(void)thread;
	const struct xent *x = ctx;
	const size_t size = x->bf ? 2 : 4;
	const float *l = x->logits + n * x->ldl;
	char *d = x->dlogits ? x->dlogits + (size_t)(n * x->ldd) * size : NULL;
	const int32_t label = x->labels[n];
	if (label < 0 || label >= x->v) {
		x->loss[n] = label == -100 ? 0 : NAN;
		if (x->hit)
			x->hit[n] = 0;
		if (d)
			memset(d, 0, (size_t)x->v * size);
		return;
	}
	float max;
	const bool capped = x->cap > 0;
	const float lse = capped ? log_sum_exp(l, x->v, x->cap, &max, true)
				 : log_sum_exp(l, x->v, 0, &max, false),
		    ll = capped ? some(l, label, 1, x->cap, true)[0] : l[label];
	const float scale = x->weight ? x->scale * x->weight[n] : x->scale,
		    less = capped ? 1 - ll / x->cap * (ll / x->cap) : 1;
	x->loss[n] = lse - ll;
	if (x->hit)
		x->hit[n] = ll >= max ? 1 : 0;
	if (!d)
		return;
	if (x->bf && capped)
		gradient(x, l, d, lse, scale, true, true);
	else if (x->bf)
		gradient(x, l, d, lse, scale, false, true);
	else if (capped)
		gradient(x, l, d, lse, scale, true, false);
	else
		gradient(x, l, d, lse, scale, false, false);
	/* the label's own entry once more, rounded once */
	st1(d, label, (expf(ll - lse) - 1.0f) * scale * less, x->bf);
}

int CPU_SYM(cpu_xent)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct xent x = { .loss = cpu_ptr(a[0]),
			  .dlogits = cpu_ptr(a[1]),
			  .logits = cpu_ptr(a[2]),
			  .labels = cpu_ptr(a[3]),
			  .hit = cpu_ptr(a[4]),
			  .weight = cpu_ptr(a[5]),
			  .v = a[7].i,
			  .ldl = a[8].i,
			  .ldd = a[9].i,
			  .scale = a[10].f,
			  .cap = a[11].f,
			  .bf = t == DT_BF16 };
	cpu_par(c, a[6].i, xent_chunk, &x);
	return 0;
}
