/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - windows over images: what a convolution sees (im2col) and its transpose, two axes
 * swapped, pooling. Backward passes gather, so that sums have one order. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

#define PART 4096 /* numbers of a chunk, about */

struct conv {
	void *out;
	const void *in;
	int32_t *at;
	int64_t n, c, y, x, ky, kx, s, py, px, oy, ox; /* as in kernel.def */
	int64_t items, per;                            /* in all, in a chunk */
	int64_t kind;
	bool bf, acc;
};

#define BY_DTYPE(body)                                                                             \
	static void body##_chunk(void *ctx, int64_t i, int thread)                                 \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct conv *k = ctx;                                                        \
		const int64_t i0 = i * k->per,                                                     \
			      i1 = i0 + k->per < k->items ? i0 + k->per : k->items;                \
		for (int64_t j = i0; j < i1; j++)                                                  \
			if (k->bf)                                                                 \
				body(k, j, true);                                                  \
			else                                                                       \
				body(k, j, false);                                                 \
	}

/* `each`: numbers that an item touches. */
static int run(struct cpu *c, struct conv *k, int64_t items, int64_t each, cpu_chunk_fn fn)
{
	k->items = items;
	k->per = PART / (each > 0 ? each : 1) > 0 ? PART / (each > 0 ? each : 1) : 1;
	cpu_par(c, (items + k->per - 1) / k->per, fn, k);
	return 0;
}

static void set_windows(struct conv *k)
{
	k->oy = (k->y + 2 * k->py - k->ky) / k->s + 1;
	k->ox = (k->x + 2 * k->px - k->kx) / k->s + 1;
}

/* The arguments that im2col and col2im have in common. */
static struct conv conv_of(enum dtype t, const union dev_arg *a)
{
	struct conv k = { .out = cpu_ptr(a[0]),
			  .in = cpu_ptr(a[1]),
			  .n = a[2].i,
			  .c = a[3].i,
			  .y = a[4].i,
			  .x = a[5].i,
			  .ky = a[6].i,
			  .kx = a[7].i,
			  .s = a[8].i,
			  .py = a[9].i,
			  .px = a[10].i,
			  .bf = t == DT_BF16 };
	set_windows(&k);
	return k;
}

/* One window, all channels. */
INLINE void im2col(const struct conv *k, int64_t w, const bool bf)
{
	const int64_t x0 = w % k->ox * k->s - k->px, y0 = w / k->ox % k->oy * k->s - k->py,
		      image = w / (k->ox * k->oy);
	int64_t to = w * k->c * k->ky * k->kx;
	for (int64_t c = 0; c < k->c; c++) {
		const int64_t from = (image * k->c + c) * k->y * k->x;
		for (int64_t a = 0; a < k->ky; a++)
			for (int64_t b = 0; b < k->kx; b++, to++) {
				const int64_t yy = y0 + a, xx = x0 + b;
				const bool in = yy >= 0 && yy < k->y && xx >= 0 && xx < k->x;
				st1(k->out, to, in ? ld1(k->in, from + yy * k->x + xx, bf) : 0, bf);
			}
	}
}
BY_DTYPE(im2col)

int CPU_SYM(cpu_im2col)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv k = conv_of(t, a);
	return run(c, &k, k.n * k.oy * k.ox, k.c * k.ky * k.kx, im2col_chunk);
}

/* One line of pixels. */
INLINE void col2im(const struct conv *k, int64_t line, const bool bf)
{
	const int64_t yy = line % k->y + k->py, c = line / k->y % k->c,
		      image = line / (k->y * k->c), each = k->c * k->ky * k->kx;
	for (int64_t x = 0; x < k->x; x++) {
		float sum = 0;
		for (int64_t a = 0; a < k->ky; a++) {
			const int64_t wy = yy - a;
			if (wy < 0 || wy % k->s || wy / k->s >= k->oy)
				continue;
			for (int64_t b = 0; b < k->kx; b++) {
				const int64_t wx = x + k->px - b;
				if (wx < 0 || wx % k->s || wx / k->s >= k->ox)
					continue;
				const int64_t w = (image * k->oy + wy / k->s) * k->ox + wx / k->s;
				sum += ld1(k->in, w * each + (c * k->ky + a) * k->kx + b, bf);
			}
		}
		const int64_t to = line * k->x + x;
		st1(k->out, to, k->acc ? sum + ld1(k->out, to, bf) : sum, bf);
	}
}
BY_DTYPE(col2im)

int CPU_SYM(cpu_col2im)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv k = conv_of(t, a);
	k.acc = a[11].i != 0;
	return run(c, &k, k.n * k.c * k.y, k.x * k.ky * k.kx, col2im_chunk);
}

/* One line of the output: y = A, x = B. */
INLINE void swap_axes(const struct conv *k, int64_t line, const bool bf)
{
	const int64_t b = line % k->x, from = line / k->x * k->y * k->x;
	for (int64_t a = 0; a < k->y; a++) {
		const float v = ld1(k->in, from + a * k->x + b, bf);
		const int64_t to = line * k->y + a;
		st1(k->out, to, k->acc ? v + ld1(k->out, to, bf) : v, bf);
	}
}
BY_DTYPE(swap_axes)

int CPU_SYM(cpu_swap_axes)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv k = { .out = cpu_ptr(a[0]),
			  .in = cpu_ptr(a[1]),
			  .n = a[2].i,
			  .y = a[3].i,
			  .x = a[4].i,
			  .acc = a[5].i != 0,
			  .bf = t == DT_BF16 };
	return run(c, &k, k.n * k.x, k.y, swap_axes_chunk);
}

INLINE void pool_fwd(const struct conv *k, int64_t w, const bool bf)
{
	const int64_t x0 = w % k->ox * k->s, y0 = w / k->ox % k->oy * k->s,
		      from = w / (k->ox * k->oy) * k->y * k->x;
	float best = -INFINITY, sum = 0;
	int64_t place = y0 * k->x + x0;
	for (int64_t a = 0; a < k->ky; a++)
		for (int64_t b = 0; b < k->kx; b++) {
			const int64_t p = (y0 + a) * k->x + x0 + b;
			const float v = ld1(k->in, from + p, bf);
			sum += v;
			if (v > best || v != v) { /* NaN stays, as in PyTorch */
				best = v;
				place = p;
			}
		}
	st1(k->out, w, k->kind ? sum / (float)(k->ky * k->kx) : best, bf);
	if (k->at)
		k->at[w] = (int32_t)place;
}
BY_DTYPE(pool_fwd)

int CPU_SYM(cpu_pool_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv k = { .out = cpu_ptr(a[0]),
			  .at = cpu_ptr(a[1]),
			  .in = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .y = a[4].i,
			  .x = a[5].i,
			  .ky = a[6].i,
			  .kx = a[6].i,
			  .s = a[7].i,
			  .kind = a[8].i,
			  .bf = t == DT_BF16 };
	set_windows(&k);
	return run(c, &k, k.n * k.oy * k.ox, k.ky * k.kx, pool_fwd_chunk);
}

INLINE void pool_bwd(const struct conv *k, int64_t i, const bool bf)
{
	const int64_t xx = i % k->x, yy = i / k->x % k->y,
		      image = i / (k->x * k->y) * k->oy * k->ox,
		      y0 = yy < k->ky ? 0 : (yy - k->ky) / k->s + 1,
		      x0 = xx < k->kx ? 0 : (xx - k->kx) / k->s + 1;
	float sum = 0;
	for (int64_t a = y0; a < k->oy && a * k->s <= yy; a++)
		for (int64_t b = x0; b < k->ox && b * k->s <= xx; b++) {
			const int64_t w = image + a * k->ox + b;
			if (k->kind)
				sum += ld1(k->in, w, bf) / (float)(k->ky * k->kx);
			else if (k->at[w] == (int32_t)(yy * k->x + xx))
				sum += ld1(k->in, w, bf);
		}
	st1(k->out, i, k->acc ? sum + ld1(k->out, i, bf) : sum, bf);
}
BY_DTYPE(pool_bwd)

int CPU_SYM(cpu_pool_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv k = { .out = cpu_ptr(a[0]),
			  .in = cpu_ptr(a[1]),
			  .at = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .y = a[4].i,
			  .x = a[5].i,
			  .ky = a[6].i,
			  .kx = a[6].i,
			  .s = a[7].i,
			  .kind = a[8].i,
			  .acc = a[9].i != 0,
			  .bf = t == DT_BF16 };
	set_windows(&k);
	return run(c, &k, k.n * k.y * k.x, k.ky, pool_bwd_chunk);
}
