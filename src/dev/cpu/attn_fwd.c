/* SPDX-License-Identifier: Apache-2.0 */
/* attn_fwd.c - attention, forward (Dao 2023, FlashAttention-2, algorithm 1): a block of queries of
 * one head goes over the blocks of keys it sees, with a running maximum and sum per lane. A few
 * queries (generation) are taken one by one instead. */
#include "dev/cpu/attn.h"

#include "base/err.h"

#include <math.h>

#define FEW 4          /* queries of a sequence up to which each goes over the keys by itself */
#define NOTHING -1e30f /* a maximum below all scores, finite so that differences are */

struct work {
	char *qt; /* the queries, turned */
	float *s; /* scores (LANES, LANES) */
	char *p;  /* probabilities, pairs of keys */
	float *o; /* (w, LANES) */
	float *max, *sum, *alpha;
};

static size_t work_bytes(int64_t w)
{
	return (size_t)(2 * w * LANES + 2 * LANES * LANES + 3 * LANES) * sizeof(float);
}

static struct work work_of(const struct attn *t, int thread)
{
	float *f = (float *)(t->thread + t->thread_bytes * (size_t)thread);
	struct work k = { .qt = (char *)f };
	k.o = f + t->w * LANES;
	k.s = k.o + t->w * LANES;
	k.p = t->dp ? (char *)(k.s + LANES * LANES) : (char *)k.s;
	k.max = k.s + 2 * LANES * LANES;
	k.sum = k.max + LANES;
	k.alpha = k.sum + LANES;
	return k;
}

/* Soft cap on the scores of VW lanes, in place. */
INLINE void cap_scores(const struct attn *t, const struct attn_tile *x, float *s, int64_t lane)
{
	const int64_t rows = attn_rows(x, lane);
	const vf in = v_set(attn_cap_in(t)), out = v_set(attn_cap_out(t));
	for (int64_t j = 0; j < rows; j++)
		st(s, j * LANES + lane, out * v_tanh(ld(s, j * LANES + lane, false) * in), false);
}

/* Scores of VW lanes to probabilities; keeps maximum, sum and the factor for what was summed
 * before. */
INLINE void softmax(const struct attn *t, const struct attn_tile *x, const struct work *k,
		    int64_t lane, const bool masked, const bool dp)
{
	const int64_t rows = attn_rows(x, lane);
	const vi query = attn_lanes(x, lane);
	const vf s2 = v_set(t->s2), old = ld(k->max, lane, false);
	float *s = k->s + lane;
	vf top0 = v_set(-INFINITY), top1 = top0, sum0 = { 0 }, sum1 = { 0 };
	for (int64_t j = 0; j < rows; j += 2) {
		vf a = ld(s, j * LANES, false), b = ld(s, (j + 1) * LANES, false);
		if (masked) {
			a = v_sel(attn_sees(t, query, x->j0 + j), a, v_set(-INFINITY));
			b = v_sel(attn_sees(t, query, x->j0 + j + 1), b, v_set(-INFINITY));
			st(s, j * LANES, a, false);
			st(s, (j + 1) * LANES, b, false);
		}
		top0 = v_max(a, top0);
		top1 = v_max(b, top1);
	}
	const vf max = v_max(v_max(top0, top1) * s2, old), alpha = v_exp2(old - max, false);
	for (int64_t j = 0; j < rows; j += 2) {
		vf a = v_exp2(ld(s, j * LANES, false) * s2 - max, dp),
		   b = v_exp2(ld(s, (j + 1) * LANES, false) * s2 - max, dp);
		if (masked) {
			a = v_keep(attn_sees(t, query, x->j0 + j), a);
			b = v_keep(attn_sees(t, query, x->j0 + j + 1), b);
		}
		sum0 += a;
		sum1 += b;
		if (dp) {
			v_store_pairs((uint32_t *)k->p + j / 2 * LANES + lane, a, b);
		} else {
			st(s, j * LANES, a, false);
			st(s, (j + 1) * LANES, b, false);
		}
	}
	st(k->max, lane, max, false);
	st(k->alpha, lane, alpha, false);
	st(k->sum, lane, ld(k->sum, lane, false) * alpha + (sum0 + sum1), false);
}

/* The queries of task i. */
INLINE void fetch_ahead(const struct attn *t, int64_t i)
{
	if (i >= t->nqb * t->h)
		return;
	const struct attn_block b = t->qb[t->nqb - 1 - i / t->h];
	const int64_t i0 = (int64_t)b.b * LANES, size = t->bf ? 2 : 4;
	attn_fetch((const char *)t->q + ((t->qs[b.s] + i0) * t->ldq + i % t->h * t->d) * size,
		   t->ldq * size, t->qs[b.s + 1] - t->qs[b.s] - i0, t->d * size);
}

INLINE void block(const struct attn *t, int64_t i, int thread, const bool dp)
{
	const struct attn_block b = t->qb[t->nqb - 1 - i / t->h];
	const int64_t h = i % t->h, g = h / (t->h / t->g), i0 = (int64_t)b.b * LANES,
		      size = t->bf ? 2 : 4;
	const int64_t lq = t->qs[b.s + 1] - t->qs[b.s], off = t->ks[b.s + 1] - t->ks[b.s] - lq,
		      nq = lq - i0 < LANES ? lq - i0 : LANES, row = t->qs[b.s] + i0;
	const int64_t keys = (g * t->kofs[t->s] + t->kofs[b.s]) * t->w * (dp ? 2 : 4);
	const struct work k = work_of(t, thread);
	CPU_SYM(cpu_pack_turned)
	(k.qt, (const char *)t->q + (row * t->ldq + h * t->d) * size, t->ldq, nq, t->d, t->bf, dp);
	fetch_ahead(t, i + t->threads);
	memset(k.o, 0, (size_t)(t->w * LANES) * sizeof *k.o);
	for (int64_t l = 0; l < LANES; l++) {
		k.max[l] = NOTHING;
		k.sum[l] = 0;
	}
	int64_t first, end = attn_key_blocks(t, i0, nq, off, &first);
	for (int64_t j = first; j < end; j++) {
		const struct attn_tile x = attn_tile(t, i0, nq, j * LANES, off);
		const int64_t at = keys + j * LANES * t->w * (dp ? 2 : 4);
		attn_scores(t, &x, k.s, t->krows + at, k.qt);
		for (int64_t l = 0; t->cap > 0 && l < x.lanes; l += VW)
			cap_scores(t, &x, k.s, l);
		for (int64_t l = 0; l < x.lanes; l += VW)
			if (x.masked)
				softmax(t, &x, &k, l, true, dp);
			else
				softmax(t, &x, &k, l, false, dp);
		attn_gather(t, &x, k.o, t->vpairs + at, k.p, k.alpha);
	}
	for (int64_t l = 0; l < nq; l += VW) {
		const vf sum = ld(k.sum, l, false);
		const vi seen = sum != v_set(0);
		st(k.alpha, l, v_keep(seen, v_set(1.0f) / sum), false);
		if (t->lse)
			stm(t->lse, h * t->nq + row + l,
			    v_sel(seen, (ld(k.max, l, false) + v_log2(sum)) * v_set(0.693147181f),
				  v_set(-INFINITY)),
			    nq - l, false);
	}
	CPU_SYM(cpu_unturn)
	((char *)t->o + (row * t->ldo + h * t->d) * size, t->ldo, k.o, k.alpha, nq, t->d, t->bf);
}

static void block_chunk(void *ctx, int64_t i, int thread)
{
	const struct attn *t = ctx;
	if (HAVE_DP && t->dp)
		block(t, i, thread, true);
	else
		block(t, i, thread, false);
}

/* One query: scores of all keys into `p`, then their softmax times the values, read in place. */
INLINE void single(const struct attn *t, int64_t s, int64_t h, int64_t i, float *p, float *acc,
		   const bool bf)
{
	const int64_t g = h / (t->h / t->g), d = t->d,
		      off = t->ks[s + 1] - t->ks[s] - (t->qs[s + 1] - t->qs[s]), row = t->qs[s] + i;
	const int64_t end = i + off + 1 > 0 ? i + off + 1 : 0,
		      beg = t->window > 0 && end > t->window ? end - t->window : 0, n = end - beg;
	const int64_t key = (t->ks[s] + beg) * t->ldk + g * d,
		      value = (t->ks[s] + beg) * t->ldv + g * d, query = row * t->ldq + h * d;
	float *q = acc + t->w;
	vf top = v_set(NOTHING), sum = { 0 };
	for (int64_t x = 0; x < t->w; x += VW)
		st(q, x, x < d ? ldm(t->q, query + x, d - x, bf) : v_set(0), false);
	for (int64_t j = 0; j < n; j++) {
		vf a = { 0 };
		for (int64_t x = 0; x < d; x += VW)
			a += ldm(t->k, key + j * t->ldk + x, d - x, bf) * ld(q, x, false);
		p[j] = v_sum(a) * t->s2;
		if (t->cap > 0)
			p[j] = tanhf(p[j] / (t->cap * 1.44269504f)) * (t->cap * 1.44269504f);
	}
	for (int64_t j = n; j % VW; j++)
		p[j] = -INFINITY;
	for (int64_t j = 0; j < n; j += VW)
		top = v_max(ld(p, j, false), top);
	const float max = v_hmax(top);
	for (int64_t j = 0; j < n; j += VW) {
		vf e = v_exp2(ld(p, j, false) - v_set(max), false);
		sum += e;
		st(p, j, e, false);
	}
	const float total = v_sum(sum);
	memset(acc, 0, (size_t)t->w * sizeof *acc);
	for (int64_t j = 0; j < n; j++) {
		const vf e = v_set(p[j]);
		for (int64_t x = 0; x < d; x += VW)
			st(acc, x,
			   ld(acc, x, false) + e * ldm(t->v, value + j * t->ldv + x, d - x, bf),
			   false);
	}
	const vf r = v_set(n ? 1.0f / total : 0);
	for (int64_t x = 0; x < d; x += VW)
		stm(t->o, row * t->ldo + h * d + x, ld(acc, x, false) * r, d - x, bf);
	if (t->lse)
		t->lse[h * t->nq + row] = n ? (max + log2f(total)) * 0.693147181f : -INFINITY;
}

static void few_chunk(void *ctx, int64_t i, int thread)
{
	const struct attn *t = ctx;
	const int64_t s = i / t->h, h = i % t->h;
	float *p = (float *)(t->thread + t->thread_bytes * (size_t)thread);
	for (int64_t q = 0; q < t->qs[s + 1] - t->qs[s]; q++)
		if (t->bf)
			single(t, s, h, q, p + 2 * t->w, p, true);
		else
			single(t, s, h, q, p + 2 * t->w, p, false);
}

static int few(struct cpu *c, struct attn *t, int64_t keys, struct err *e)
{
	t->s2 = t->scale * 1.44269504f;
	t->w = dpad(t->d);
	t->thread_bytes = ((size_t)(2 * t->w + keys + VW) * sizeof(float) + 63) & ~(size_t)63;
	t->thread = cpu_scratch(c, t->thread_bytes * (size_t)c->threads);
	if (!t->thread)
		return err_nomem(e, t->thread_bytes * (size_t)c->threads, "attention");
	cpu_par(c, t->s * t->h, few_chunk, t);
	return 0;
}

int CPU_SYM(cpu_attn_fwd)(struct cpu *c, enum dtype type, const union dev_arg *a, struct err *e)
{
	struct attn t = { .o = cpu_ptr(a[0]),
			  .lse = cpu_ptr(a[1]),
			  .q = cpu_ptr(a[2]),
			  .k = cpu_ptr(a[3]),
			  .v = cpu_ptr(a[4]),
			  .qs = cpu_ptr(a[5]),
			  .ks = cpu_ptr(a[6]),
			  .nq = a[7].i,
			  .s = a[8].i,
			  .h = a[9].i,
			  .g = a[10].i,
			  .d = a[11].i,
			  .ldo = a[12].i,
			  .ldq = a[13].i,
			  .ldk = a[14].i,
			  .ldv = a[15].i,
			  .window = a[16].i,
			  .scale = a[17].f,
			  .cap = a[18].f,
			  .bf = type == DT_BF16 };
	int64_t most = 0, keys = 0;
	for (int64_t s = 0; s < t.s; s++) {
		most = t.qs[s + 1] - t.qs[s] > most ? t.qs[s + 1] - t.qs[s] : most;
		keys = t.ks[s + 1] - t.ks[s] > keys ? t.ks[s + 1] - t.ks[s] : keys;
	}
	if (most <= FEW)
		return few(c, &t, keys, e);
	t.thread_bytes = work_bytes(dpad(t.d));
	TRY(CPU_SYM(cpu_attn_prepare)(c, &t, false, e));
	cpu_par(c, t.nqb * t.h, block_chunk, &t);
	return 0;
}
