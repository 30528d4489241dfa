/* SPDX-License-Identifier: Apache-2.0 */
/* attn_bwd.c - attention, backward (Dao 2023, FlashAttention-2, algorithm 2).
 *
 * One task is a sequence, a key head and every parts-th block of its queries, for all query heads
 * that share the key head. It goes over the keys with dq of its block at hand and adds to dk and dv
 * of its part; parts are summed at the end, in order. `parts` follows from the shapes, so that
 * neither races nor the number of threads show in the result. */
#include "dev/cpu/attn.h"

#include "base/err.h"

#define TASKS 16 /* tasks to aim at by cutting queries into parts */
#define MOST_PARTS 8

struct work {
	char *qt, *dot;         /* queries and dout, turned */
	char *qpairs, *dopairs; /* and as pairs of rows */
	/* (LANES, LANES) scores and dprobabilities; later, in float32, what p, ds and dspairs
	 * are */
	float *s, *dp;
	char *p, *ds;  /* rows of probabilities and dscores */
	char *dspairs; /* dscores as pairs of keys */
	float *dq;     /* (w, LANES) */
	float *lse2, *delta, *mul;
};

static size_t work_bytes(int64_t w)
{
	return (size_t)(5 * w * LANES + 5 * LANES * LANES + 3 * LANES) * sizeof(float);
}

static struct work work_of(const struct attn *t, int thread)
{
	float *f = (float *)(t->thread + t->thread_bytes * (size_t)thread);
	const int64_t wide = t->w * LANES, square = LANES * LANES;
	struct work k = { .qt = (char *)f,
			  .dot = (char *)(f + wide),
			  .qpairs = (char *)(f + 2 * wide),
			  .dopairs = (char *)(f + 3 * wide),
			  .dq = f + 4 * wide };
	f += 5 * wide;
	k.s = f;
	k.dp = f + square;
	k.p = t->dp ? (char *)(f + 2 * square) : (char *)k.s;
	k.ds = t->dp ? (char *)(f + 3 * square) : (char *)k.dp;
	k.dspairs = t->dp ? (char *)(f + 4 * square) : (char *)k.dp;
	f += 5 * square;
	k.lse2 = f;
	k.delta = f + LANES;
	k.mul = f + 2 * LANES;
	return k;
}

/* Scores and dprobabilities of VW lanes to probabilities and dscores. A capped score is
 * c = cap tanh(s/cap), and its gradient is multiplied by 1 - (c/cap)^2. */
INLINE void dsoftmax(const struct attn *t, const struct attn_tile *x, const struct work *k,
		     int64_t lane, const bool masked, const bool capped, const bool dp)
{
	const vf one = v_set(1), in = v_set(capped ? attn_cap_in(t) : 0),
		 out = v_set(capped ? attn_cap_out(t) : 0);
	const int64_t rows = attn_rows(x, lane);
	const vi query = attn_lanes(x, lane);
	const vf s2 = v_set(t->s2), lse = ld(k->lse2, lane, false),
		 delta = ld(k->delta, lane, false);
	for (int64_t j = 0; j < rows; j += 2) {
		const int64_t a = j * LANES + lane, b = a + LANES;
		vf s0 = ld(k->s, a, false), s1 = ld(k->s, b, false), less0 = one, less1 = one;
		if (capped) {
			const vf h0 = v_tanh(s0 * in), h1 = v_tanh(s1 * in);
			s0 = h0 * out;
			s1 = h1 * out;
			less0 = one - h0 * h0;
			less1 = one - h1 * h1;
		}
		vf t0 = s0 * s2 - lse, t1 = s1 * s2 - lse;
		vf p0 = v_exp2(t0, dp), p1 = v_exp2(t1, dp);
		if (masked) {
			p0 = v_keep(attn_sees(t, query, x->j0 + j), p0);
			p1 = v_keep(attn_sees(t, query, x->j0 + j + 1), p1);
		}
		vf d0 = p0 * (ld(k->dp, a, false) - delta), d1 = p1 * (ld(k->dp, b, false) - delta);
		if (capped) {
			d0 *= less0;
			d1 *= less1;
		}
		st(k->p, a, p0, dp);
		st(k->p, b, p1, dp);
		st(k->ds, a, d0, dp);
		st(k->ds, b, d1, dp);
		if (dp)
			v_store_pairs((uint32_t *)k->dspairs + j / 2 * LANES + lane, d0, d1);
	}
}

/* c[keys][w] += rows of p (a key each, queries along it) times pairs of queries b */
INLINE void spread(const struct attn *t, const struct attn_tile *x, float *c, const char *p,
		   const char *b)
{
	const int64_t size = t->dp ? 2 : 4, step = t->dp ? 2 : 1;
	struct mm m = { .c = c,
			.ldc = t->w,
			.rows = x->chunks * CHUNK,
			.lanes = t->w,
			.a = p,
			.ars = LANES * size,
			.aps = 4,
			.b = b,
			.ldb = t->w * 4,
			.np = x->lanes / step };
	if (x->flat) {
		CPU_SYM(cpu_mm)(&m, MM_ADD, t->dp);
		return;
	}
	m.rows = CHUNK;
	for (int k = 0; k < x->chunks; k++) {
		const int64_t lane = x->from[k] * CHUNK;
		m.c = c + k * CHUNK * t->w;
		m.a = p + k * CHUNK * m.ars + lane / step * 4;
		m.b = b + lane / step * m.ldb;
		m.np = (x->lanes - lane) / step;
		CPU_SYM(cpu_mm)(&m, MM_ADD, t->dp);
	}
}

INLINE float dot(const void *a, const void *b, int64_t i, int64_t n, const bool bf)
{
	vf s = { 0 };
	for (int64_t x = 0; x < n; x += VW)
		s += ldm(a, i + x, n - x, bf) * ldm(b, i + x, n - x, bf);
	return v_sum(s);
}

INLINE void queries(const struct attn *t, const struct work *k, int64_t s, int64_t h, int64_t i0,
		    float *dk, float *dv, const bool dp)
{
	const int64_t len = t->qs[s + 1] - t->qs[s], nq = len - i0 < LANES ? len - i0 : LANES,
		      row = t->qs[s] + i0, size = t->bf ? 2 : 4;
	const int64_t g = h / (t->h / t->g),
		      keys = (g * t->kofs[t->s] + t->kofs[s]) * t->w * (dp ? 2 : 4);
	const char *q = (const char *)t->q + (row * t->ldq + h * t->d) * size,
		   *dout = (const char *)t->dout + (row * t->ldo + h * t->d) * size;
	const int64_t up = (nq + CHUNK - 1) / CHUNK * CHUNK;
	CPU_SYM(cpu_pack_turned)(k->qt, q, t->ldq, nq, t->d, t->bf, dp);
	CPU_SYM(cpu_pack_turned)(k->dot, dout, t->ldo, nq, t->d, t->bf, dp);
	CPU_SYM(cpu_pack_pairs)(k->qpairs, q, t->ldq, nq, up, t->d, t->bf, dp);
	CPU_SYM(cpu_pack_pairs)(k->dopairs, dout, t->ldo, nq, up, t->d, t->bf, dp);
	memset(k->dq, 0, (size_t)(t->w * LANES) * sizeof *k->dq);
	for (int64_t l = 0; l < LANES; l++) {
		const int64_t at = (row + l) * t->ldo + h * t->d;
		k->mul[l] = t->scale;
		k->lse2[l] = l < nq ? t->lse[h * t->nq + row + l] * 1.44269504f : 0;
		k->delta[l] = l >= nq ? 0
			      : t->bf ? dot(t->dout, t->o, at, t->d, true)
				      : dot(t->dout, t->o, at, t->d, false);
	}
	int64_t first, end = attn_key_blocks(t, i0, nq, 0, &first);
	for (int64_t j = first; j < end; j++) {
		const struct attn_tile x = attn_tile(t, i0, nq, j * LANES, 0);
		const int64_t at = keys + j * LANES * t->w * (dp ? 2 : 4);
		attn_scores(t, &x, k->s, t->krows + at, k->qt);
		attn_scores(t, &x, k->dp, t->vrows + at, k->dot);
		for (int64_t l = 0; l < x.lanes; l += VW)
			if (t->cap > 0)
				dsoftmax(t, &x, k, l, true, true, dp);
			else if (x.masked)
				dsoftmax(t, &x, k, l, true, false, dp);
			else
				dsoftmax(t, &x, k, l, false, false, dp);
		spread(t, &x, dv + j * LANES * t->w, k->p, k->dopairs);
		spread(t, &x, dk + j * LANES * t->w, k->ds, k->qpairs);
		attn_gather(t, &x, k->dq, t->kpairs + at, k->dspairs, NULL);
	}
	CPU_SYM(cpu_unturn)
	((char *)t->dq + (row * t->ldq + h * t->d) * size, t->ldq, k->dq, k->mul, nq, t->d, t->bf);
}

/* dk's (which 0) or dv's accumulator of a part, a key head and a sequence */
static float *part_of(const struct attn *t, int64_t part, int64_t g, int64_t s, int which)
{
	return (float *)t->rest +
	       (((part * t->g + g) * 2 + which) * t->kofs[t->s] + t->kofs[s]) * t->w;
}

static void fetch_ahead(const struct attn *t, int64_t s, int64_t i0, int64_t h)
{
	const int64_t left = t->qs[s + 1] - t->qs[s] - i0, row = t->qs[s] + i0,
		      size = t->bf ? 2 : 4, o = (row * t->ldo + h * t->d) * size;
	attn_fetch((const char *)t->q + (row * t->ldq + h * t->d) * size, t->ldq * size, left,
		   t->d * size);
	attn_fetch((const char *)t->dout + o, t->ldo * size, left, t->d * size);
	attn_fetch((const char *)t->o + o, t->ldo * size, left, t->d * size);
}

static void task_chunk(void *ctx, int64_t i, int thread)
{
	const struct attn *t = ctx;
	const int64_t part = i % t->parts, g = i / t->parts % t->g, s = i / t->parts / t->g,
		      per = t->h / t->g;
	const struct work k = work_of(t, thread);
	float *dk = part_of(t, part, g, s, 0), *dv = part_of(t, part, g, s, 1);
	const size_t bytes = (size_t)((t->kofs[s + 1] - t->kofs[s]) * t->w) * sizeof(float);
	memset(dk, 0, bytes);
	memset(dv, 0, bytes);
	for (int64_t i0 = part * LANES; i0 < t->qs[s + 1] - t->qs[s]; i0 += t->parts * LANES)
		for (int64_t h = g * per; h < (g + 1) * per; h++) {
			const bool last = h + 1 == (g + 1) * per;
			fetch_ahead(t, s, last ? i0 + t->parts * LANES : i0,
				    last ? g * per : h + 1);
			if (HAVE_DP && t->dp)
				queries(t, &k, s, h, i0, dk, dv, true);
			else
				queries(t, &k, s, h, i0, dk, dv, false);
		}
}

/* n rows of dk's or dv's accumulators, from `from` on in part 0, to rows of dst `ldd` apart */
INLINE void sum_parts(const struct attn *t, void *dst, int64_t at, int64_t ldd, const float *from,
		      int64_t n, float scale, const bool bf)
{
	const int64_t step = part_of(t, 1, 0, 0, 0) - part_of(t, 0, 0, 0, 0);
	const vf mul = v_set(scale);
	for (int64_t j = 0; j < n; j++, from += t->w, at += ldd)
		for (int64_t x = 0; x < t->d; x += VW) {
			vf sum = ld(from, x, false);
			for (int64_t p = 1; p < t->parts; p++)
				sum += ld(from, p * step + x, false);
			stm(dst, at + x, sum * mul, t->d - x, bf);
		}
}

static void sum_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct attn *t = ctx;
	const struct attn_block b = t->kb[i / t->g];
	const int64_t g = i % t->g, j = (int64_t)b.b * LANES,
		      left = t->ks[b.s + 1] - t->ks[b.s] - j, n = left < LANES ? left : LANES,
		      row = t->ks[b.s] + j, k = row * t->ldk + g * t->d,
		      v = row * t->ldv + g * t->d;
	const float *dk = part_of(t, 0, g, b.s, 0) + j * t->w,
		    *dv = part_of(t, 0, g, b.s, 1) + j * t->w;
	if (t->bf) {
		sum_parts(t, t->dk, k, t->ldk, dk, n, t->scale, true);
		sum_parts(t, t->dv, v, t->ldv, dv, n, 1, true);
	} else {
		sum_parts(t, t->dk, k, t->ldk, dk, n, t->scale, false);
		sum_parts(t, t->dv, v, t->ldv, dv, n, 1, false);
	}
}

int CPU_SYM(cpu_attn_bwd)(struct cpu *c, enum dtype type, const union dev_arg *a, struct err *e)
{
	struct attn t = { .dq = cpu_ptr(a[0]),
			  .dk = cpu_ptr(a[1]),
			  .dv = cpu_ptr(a[2]),
			  .dout = cpu_ptr(a[3]),
			  .q = cpu_ptr(a[4]),
			  .k = cpu_ptr(a[5]),
			  .v = cpu_ptr(a[6]),
			  .o = cpu_ptr(a[7]),
			  .lse = cpu_ptr(a[8]),
			  .qs = cpu_ptr(a[10]),
			  .ks = cpu_ptr(a[10]),
			  .nq = a[11].i,
			  .s = a[12].i,
			  .h = a[13].i,
			  .g = a[14].i,
			  .d = a[15].i,
			  .ldo = a[16].i,
			  .ldq = a[17].i,
			  .ldk = a[18].i,
			  .ldv = a[19].i,
			  .window = a[20].i,
			  .scale = a[21].f,
			  .cap = a[22].f,
			  .bf = type == DT_BF16 };
	if (!t.s || !t.g)
		return 0;
	t.parts = (TASKS + t.s * t.g - 1) / (t.s * t.g);
	t.parts = t.parts > MOST_PARTS ? MOST_PARTS : t.parts;
	t.thread_bytes = work_bytes(dpad(t.d));
	TRY(CPU_SYM(cpu_attn_prepare)(c, &t, true, e));
	cpu_par(c, t.s * t.g * t.parts, task_chunk, &t);
	cpu_par(c, t.nkb * t.g, sum_chunk, &t);
	return 0;
}
