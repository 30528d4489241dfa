/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h - what the two passes of attention share: arguments, packed keys and values, and which
 * part of a tile is seen.
 *
 * Scores are held transposed: a tile has a key per row and a query per lane, so that maximum, sum
 * and mask work lane by lane, keys are read as they lie, and no sum runs across lanes. Queries and
 * keys are cut into blocks of LANES within their sequence. */
#ifndef HS_DEV_CPU_ATTN_H
#define HS_DEV_CPU_ATTN_H

#include "dev/cpu/tile.h"

#define CHUNK                                                                                      \
	16 /* rows and lanes of the smallest piece that is left out when nothing of it is seen */
#define CHUNKS (LANES / CHUNK)

struct attn_block {
	int32_t s, b; /* sequence, block in it */
};

struct attn {
	void *o, *dq, *dk, *dv; /* o is only read in the backward pass */
	const void *q, *k, *v, *dout;
	float *lse;
	const int32_t *qs, *ks;
	int64_t nq, s, h, g, d, ldo, ldq, ldk, ldv, window;
	float scale, cap; /* cap 0: none */
	bool bf, dp;      /* T is bfloat16; tiles hold pairs of bfloat16 */

	/* filled by attn_prepare() */
	float s2;  /* scale * log2(e) */
	int64_t w; /* dpad(d) */
	struct attn_block *qb, *kb;
	int64_t nqb, nkb;
	/* first row of each sequence in the packed keys; S+1 numbers, multiples of LANES */
	int64_t *kofs;
	/* packed (G, kofs[S], w); those the pass does not need are NULL */
	char *krows, *vrows, *kpairs, *vpairs;
	char *rest; /* `rest_bytes` for the pass itself */
	char *thread;
	size_t thread_bytes;
	int64_t parts; /* backward: accumulators of dk and dv */
	int threads;
};

/* Sizes, tables, and keys and values packed. `thread_bytes` and `parts` are set before. */
int CPU_SYM(cpu_attn_prepare)(struct cpu *c, struct attn *t, bool back, struct err *e);

/* What queries [i0, i0+nq) of a sequence see of keys [j0, j0+LANES). */
struct attn_tile {
	int64_t i0, nq, j0, off; /* off = lk - lq */
	int64_t lanes;           /* nq rounded up to CHUNK */
	int chunks;              /* rows of keys / CHUNK that some query sees */
	/* first lane / CHUNK that sees something of the chunk of keys; never falls */
	int from[CHUNKS];
	bool flat;   /* from[] is 0 everywhere */
	bool masked; /* some lane does not see some key below `chunks` */
};

INLINE struct attn_tile attn_tile(const struct attn *t, int64_t i0, int64_t nq, int64_t j0,
				  int64_t off)
{
	struct attn_tile x = { .i0 = i0,
			       .nq = nq,
			       .j0 = j0,
			       .off = off,
			       .lanes = (nq + CHUNK - 1) / CHUNK * CHUNK,
			       .flat = true };
	int64_t keys = i0 + nq + off - j0;
	x.chunks = keys >= LANES ? CHUNKS : keys <= 0 ? 0 : (int)((keys + CHUNK - 1) / CHUNK);
	for (int c = 0; c < x.chunks; c++) {
		int64_t first = j0 + c * CHUNK - off - i0;
		x.from[c] = first > 0 ? (int)(first / CHUNK) : 0;
		x.flat = x.flat && !x.from[c];
	}
	x.masked = j0 + x.chunks * CHUNK - 1 > i0 + off ||
		   (t->window > 0 && j0 <= i0 + nq - 1 + off - t->window);
	return x;
}

/* Rows of keys that lane `lane` may see anything of. */
INLINE int64_t attn_rows(const struct attn_tile *x, int64_t lane)
{
	int c = 0;
	while (c < x->chunks && x->from[c] <= lane / CHUNK)
		c++;
	return c * CHUNK;
}

/* Blocks of keys that queries [i0, i0+nq) see: [*first_p, end). */
INLINE int64_t attn_key_blocks(const struct attn *t, int64_t i0, int64_t nq, int64_t off,
			       int64_t *first_p)
{
	int64_t low = t->window > 0 ? i0 + off - t->window + 1 : 0, high = i0 + nq - 1 + off;
	*first_p = low > 0 ? low / LANES : 0;
	return high < 0 ? 0 : high / LANES + 1;
}

/* All ones in the lanes whose query sees key j; `query` is the query's number plus off. */
INLINE vi attn_sees(const struct attn *t, vi query, int64_t j)
{
	vi yes = query >= (int32_t)j;
	if (t->window > 0)
		yes &= (query - (int32_t)t->window) < (int32_t)j;
	return yes;
}

/* What a score times cap_in is to be multiplied with after its tanh, to be a score again that s2
 * still belongs to. */
INLINE float attn_cap_in(const struct attn *t) { return t->scale / t->cap; }
INLINE float attn_cap_out(const struct attn *t) { return t->cap / t->scale; }

/* Asks for at most LANES rows, `left` of them, that will be read next: they lie too far apart for a
 * processor to foresee them. */
INLINE void attn_fetch(const char *p, int64_t ld, int64_t left, int64_t bytes)
{
	for (int64_t l = 0; l < left && l < LANES; l++, p += ld)
		for (int64_t x = 0; x < bytes; x += 64)
			__builtin_prefetch(p + x, 0, 2);
}

INLINE vi attn_lanes(const struct attn_tile *x, int64_t lane)
{
	vi q;
	for (int i = 0; i < VW; i++)
		q[i] = (int32_t)(x->i0 + x->off + lane) + i;
	return q;
}

/* s[keys][LANES] = a's rows (one per key, w wide) times the turned block b, where anything is
 * seen */
INLINE void attn_scores(const struct attn *t, const struct attn_tile *x, float *s, const char *a,
			const char *b)
{
	const int64_t size = t->dp ? 2 : 4;
	struct mm m = { .c = s,
			.ldc = LANES,
			.rows = x->chunks * CHUNK,
			.lanes = x->lanes,
			.a = a,
			.ars = t->w * size,
			.aps = 4,
			.b = b,
			.ldb = LANES * 4,
			.np = t->w * size / 4 };
	if (x->flat) {
		CPU_SYM(cpu_mm)(&m, MM_SET, t->dp);
		return;
	}
	m.rows = CHUNK;
	for (int c = 0; c < x->chunks; c++) {
		const int64_t lane = x->from[c] * CHUNK;
		m.lanes = x->lanes - lane;
		m.c = s + c * CHUNK * LANES + lane;
		m.a = a + c * CHUNK * m.ars;
		m.b = b + lane * 4;
		CPU_SYM(cpu_mm)(&m, MM_SET, t->dp);
	}
}

/* c[w][LANES] (times alpha, unless NULL) += columns of the keys' pairs a times p, which holds a
 * pair of keys per row */
INLINE void attn_gather(const struct attn *t, const struct attn_tile *x, float *c, const char *a,
			const char *p, const float *alpha)
{
	const int64_t step = t->dp ? 2 : 1;
	struct mm m = { .c = c,
			.ldc = LANES,
			.rows = t->w,
			.lanes = x->lanes,
			.a = a,
			.ars = 4,
			.aps = t->w * 4,
			.b = p,
			.ldb = LANES * 4,
			.np = x->chunks * CHUNK / step,
			.alpha = alpha };
	if (x->flat) {
		CPU_SYM(cpu_mm)(&m, alpha ? MM_SCALE : MM_ADD, t->dp);
		return;
	}
	m.lanes = CHUNK;
	for (int64_t lane = 0; lane < x->lanes; lane += CHUNK) {
		m.np = attn_rows(x, lane) / step;
		m.c = c + lane;
		m.b = p + lane * 4;
		m.alpha = alpha ? alpha + lane : NULL;
		CPU_SYM(cpu_mm)(&m, alpha ? MM_SCALE : MM_ADD, t->dp);
	}
}

#endif
