/* attn.c - causal attention, forward and backward, row by row. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

struct attn {
	void *o, *dq, *dk, *dv;
	const void *q, *k, *v, *dout;
	float *lse, *delta, *tmp;
	const int32_t *qs, *ks;
	int64_t n, s, h, g, d, ldo, ldq, ldk, ldv, window, most;
	float scale;
	bool bf;
};

INLINE float dot(const void *a, int64_t i, const void *b, int64_t j, int64_t d, const bool bf)
{
	vf s = { 0 };
	for (int64_t x = 0; x < d; x += VW)
		s += ldm(a, i + x, d - x, bf) * ldm(b, j + x, d - x, bf);
	return v_sum(s);
}

INLINE void fwd(const struct attn *t, int64_t at, int thread, const bool bf)
{
	const int64_t s = at / t->h, h = at % t->h, g = h / (t->h / t->g), d = t->d;
	const int64_t lq = t->qs[s + 1] - t->qs[s], lk = t->ks[s + 1] - t->ks[s];
	float *p = t->tmp + thread * (t->most + d + VW), *acc = p + t->most;
	for (int64_t i = 0; i < lq; i++) {
		const int64_t row = t->qs[s] + i, end = i + lk - lq + 1,
			      beg = t->window > 0 && end > t->window ? end - t->window : 0;
		float max = -INFINITY, sum = 0;
		for (int64_t j = beg; j < end; j++) {
			p[j] = t->scale * dot(t->q, row * t->ldq + h * d, t->k, (t->ks[s] + j) * t->ldk + g * d, d, bf);
			max = p[j] > max ? p[j] : max;
		}
		memset(acc, 0, (size_t)d * sizeof *acc);
		for (int64_t j = beg; j < end; j++) {
			float w = expf(p[j] - max);
			sum += w;
			for (int64_t x = 0; x < d; x++)
				acc[x] += w * ld1(t->v, (t->ks[s] + j) * t->ldv + g * d + x, bf);
		}
		for (int64_t x = 0; x < d; x++)
			st1(t->o, row * t->ldo + h * d + x, end > beg ? acc[x] / sum : 0, bf);
		if (t->lse)
			t->lse[h * t->n + row] = end > beg ? max + logf(sum) : -INFINITY;
	}
}

static void fwd_chunk(void *ctx, int64_t i, int thread)
{
	const struct attn *t = ctx;
	if (t->bf)
		fwd(t, i, thread, true);
	else
		fwd(t, i, thread, false);
}

INLINE void bwd(const struct attn *t, int64_t at, int thread, const bool bf)
{
	const int64_t s = at / t->g, g = at % t->g, d = t->d, len = t->qs[s + 1] - t->qs[s], base = t->qs[s], per = t->h / t->g;
	float *dk = t->tmp + thread * (2 * t->most * d + d), *dv = dk + t->most * d, *dq = dv + t->most * d;
	memset(dk, 0, (size_t)(2 * t->most * d) * sizeof *dk);
	for (int64_t h = g * per; h < (g + 1) * per; h++)
		for (int64_t i = 0; i < len; i++) {
			const int64_t row = base + i, end = i + 1, beg = t->window > 0 && end > t->window ? end - t->window : 0;
			const float delta = dot(t->dout, row * t->ldo + h * d, t->o, row * t->ldo + h * d, d, bf);
			t->delta[h * t->n + row] = delta;
			memset(dq, 0, (size_t)d * sizeof *dq);
			for (int64_t j = beg; j < end; j++) {
				const int64_t key = (base + j) * t->ldk + g * d, val = (base + j) * t->ldv + g * d;
				float p =
					expf(t->scale * dot(t->q, row * t->ldq + h * d, t->k, key, d, bf) - t->lse[h * t->n + row]);
				float ds = p * (dot(t->dout, row * t->ldo + h * d, t->v, val, d, bf) - delta) * t->scale;
				for (int64_t x = 0; x < d; x++) {
					dv[j * d + x] += p * ld1(t->dout, row * t->ldo + h * d + x, bf);
					dk[j * d + x] += ds * ld1(t->q, row * t->ldq + h * d + x, bf);
					dq[x] += ds * ld1(t->k, key + x, bf);
				}
			}
			for (int64_t x = 0; x < d; x++)
				st1(t->dq, row * t->ldq + h * d + x, dq[x], bf);
		}
	for (int64_t j = 0; j < len; j++)
		for (int64_t x = 0; x < d; x++) {
			st1(t->dk, (base + j) * t->ldk + g * d + x, dk[j * d + x], bf);
			st1(t->dv, (base + j) * t->ldv + g * d + x, dv[j * d + x], bf);
		}
}

static void bwd_chunk(void *ctx, int64_t i, int thread)
{
	const struct attn *t = ctx;
	if (t->bf)
		bwd(t, i, thread, true);
	else
		bwd(t, i, thread, false);
}

static int run(struct cpu *c, struct attn *t, bool back, struct err *e)
{
	for (int64_t s = 0; s < t->s; s++)
		if (t->ks[s + 1] - t->ks[s] > t->most)
			t->most = t->ks[s + 1] - t->ks[s];
	size_t bytes =
		(size_t)c->threads * sizeof(float) * (back ? (size_t)(2 * t->most * t->d + t->d) : (size_t)(t->most + t->d + VW));
	t->tmp = cpu_scratch(c, bytes);
	if (!t->tmp)
		return err_nomem(e, bytes, "attention");
	cpu_par(c, t->s * (back ? t->g : t->h), back ? bwd_chunk : fwd_chunk, t);
	return 0;
}

int CPU_SYM(cpu_attn_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct attn x = { .o = cpu_ptr(a[0]),
			  .lse = cpu_ptr(a[1]),
			  .q = cpu_ptr(a[2]),
			  .k = cpu_ptr(a[3]),
			  .v = cpu_ptr(a[4]),
			  .qs = cpu_ptr(a[5]),
			  .ks = cpu_ptr(a[6]),
			  .n = a[7].i,
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
			  .bf = t == DT_BF16 };
	return run(c, &x, false, e);
}

int CPU_SYM(cpu_attn_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct attn x = { .dq = cpu_ptr(a[0]),
			  .dk = cpu_ptr(a[1]),
			  .dv = cpu_ptr(a[2]),
			  .dout = cpu_ptr(a[3]),
			  .q = cpu_ptr(a[4]),
			  .k = cpu_ptr(a[5]),
			  .v = cpu_ptr(a[6]),
			  .o = cpu_ptr(a[7]),
			  .lse = cpu_ptr(a[8]),
			  .delta = cpu_ptr(a[9]),
			  .qs = cpu_ptr(a[10]),
			  .ks = cpu_ptr(a[10]),
			  .n = a[11].i,
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
			  .bf = t == DT_BF16 };
	return run(c, &x, true, e);
}
