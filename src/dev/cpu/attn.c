/* SPDX-License-Identifier: Apache-2.0 */
/* attn.c - see attn.h: tables of blocks, and packing keys and values once for all heads and queries
 * that read them. */
#include "dev/cpu/attn.h"

#include "base/err.h"

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

static void pack_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct attn *t = ctx;
	const struct attn_block b = t->kb[i / t->g];
	const int64_t g = i % t->g, j = (int64_t)b.b * LANES, len = t->ks[b.s + 1] - t->ks[b.s],
		      n = len - j < LANES ? len - j : LANES;
	const int64_t esize = t->bf ? 2 : 4, psize = t->dp ? 2 : 4,
		      at = (g * t->kofs[t->s] + t->kofs[b.s] + j) * t->w * psize;
	const char *k = (const char *)t->k + ((t->ks[b.s] + j) * t->ldk + g * t->d) * esize;
	const char *v = (const char *)t->v + ((t->ks[b.s] + j) * t->ldv + g * t->d) * esize;
	if (t->krows)
		CPU_SYM(cpu_pack_rows)(t->krows + at, k, t->ldk, n, LANES, t->d, t->bf, t->dp);
	if (t->vrows)
		CPU_SYM(cpu_pack_rows)(t->vrows + at, v, t->ldv, n, LANES, t->d, t->bf, t->dp);
	if (t->kpairs && t->kpairs != t->krows)
		CPU_SYM(cpu_pack_pairs)(t->kpairs + at, k, t->ldk, n, LANES, t->d, t->bf, t->dp);
	if (t->vpairs)
		CPU_SYM(cpu_pack_pairs)(t->vpairs + at, v, t->ldv, n, LANES, t->d, t->bf, t->dp);
}

static int64_t blocks_of(const int32_t *start, int64_t s)
{
	return (start[s + 1] - start[s] + LANES - 1) / LANES;
}

int CPU_SYM(cpu_attn_prepare)(struct cpu *c, struct attn *t, bool back, struct err *e)
{
	if (t->d < 1 || t->g < 1 || t->h % t->g || !(t->scale > 0))
		return err_set(e, ERR_INTERNAL,
			       "attention over %lld heads of %lld, %lld key heads, scale %g",
			       (long long)t->h, (long long)t->d, (long long)t->g, (double)t->scale);
	t->s2 = t->scale * 1.44269504f;
	t->w = dpad(t->d);
	t->dp = HAVE_DP && t->bf;
	t->threads = c->threads;
	for (int64_t s = 0; s < t->s; s++) {
		t->nqb += blocks_of(t->qs, s);
		t->nkb += blocks_of(t->ks, s);
	}
	const size_t tables = aligned((size_t)(t->nqb + t->nkb) * sizeof *t->qb) +
			      aligned((size_t)(t->s + 1) * sizeof *t->kofs);
	const size_t rows = (size_t)(t->g * t->nkb * LANES * t->w),
		     pack = aligned(rows * (t->dp ? 2 : 4));
	const size_t parts = aligned(2 * rows * sizeof(float)) * (size_t)(back ? t->parts : 0);
	/* a float32 row serves as a pair of its own */
	const int packs = back ? (t->dp ? 3 : 2) : 2;
	const size_t total =
		tables + (size_t)packs * pack + parts + t->thread_bytes * (size_t)c->threads;
	char *p = cpu_scratch(c, total);
	if (!p)
		return err_nomem(e, total, "attention");
	t->kofs = (int64_t *)p;
	t->qb = (struct attn_block *)(p + aligned((size_t)(t->s + 1) * sizeof *t->kofs));
	t->kb = t->qb + t->nqb;
	p += tables;
	t->krows = p;
	p += pack;
	if (back) {
		t->vrows = p;
		p += pack;
		t->kpairs = t->dp ? p : t->krows;
		p += t->dp ? pack : 0;
	} else {
		t->vpairs = p;
		p += pack;
	}
	t->rest = p;
	t->thread = p + parts;
	int64_t nq = 0, nk = 0;
	for (int64_t s = 0; s < t->s; s++) {
		t->kofs[s] = nk * LANES;
		for (int64_t b = 0; b < blocks_of(t->qs, s); b++)
			t->qb[nq++] = (struct attn_block){ (int32_t)s, (int32_t)b };
		for (int64_t b = 0; b < blocks_of(t->ks, s); b++)
			t->kb[nk++] = (struct attn_block){ (int32_t)s, (int32_t)b };
	}
	t->kofs[t->s] = nk * LANES;
	cpu_par(c, t->nkb * t->g, pack_chunk, t);
	return 0;
}
