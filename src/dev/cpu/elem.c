/* SPDX-License-Identifier: Apache-2.0 */
/* elem.c - elementwise kernels of the CPU: axpby, cast, dropout, noise, swiglu, sums of squares.
 * All but noise run at memory speed; each chunk of CHUNK elements stays in the first-level
 * cache. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>

#define CHUNK 8192

static int64_t chunks(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

struct elem {
	void *out, *out2;
	const void *in[3];
	int64_t n, cols;
	int64_t rows, width, ld, ld2, per, pieces; /* of gated activations; ld2: mul */
	float f[8];
	bool bf, acc;
	uint64_t thr;
	struct rng_key key;
	enum dtype dst, src;
};

/* [i0, i1): the elements of chunk i */
#define BORDERS(e, i) const int64_t i0 = (i)*CHUNK, i1 = i0 + CHUNK < (e)->n ? i0 + CHUNK : (e)->n;

/* Calls body(e, i0, i1, bf) with bf a constant. */
#define BY_DTYPE(body)                                                                             \
	static void body##_chunk(void *ctx, int64_t i, int thread)                                 \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct elem *x = ctx;                                                        \
		BORDERS(x, i)                                                                      \
		if (x->bf)                                                                         \
			body(x, i0, i1, true);                                                     \
		else                                                                               \
			body(x, i0, i1, false);                                                    \
	}

INLINE void axpby(const struct elem *x, int64_t i0, int64_t i1, const bool bf)
{
	vf a = v_set(x->f[0]), b = v_set(x->f[1]);
	if (x->f[1] == 0)
		for (int64_t i = i0; i < i1; i += VW)
			stm(x->out, i, a * ldm(x->in[0], i, i1 - i, bf), i1 - i, bf);
	else
		for (int64_t i = i0; i < i1; i += VW)
			stm(x->out, i,
			    a * ldm(x->in[0], i, i1 - i, bf) + b * ldm(x->out, i, i1 - i, bf),
			    i1 - i, bf);
}
BY_DTYPE(axpby)

int CPU_SYM(cpu_axpby)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct elem x = { .out = cpu_ptr(a[0]),
			  .in = { cpu_ptr(a[1]) },
			  .n = a[2].i,
			  .f = { a[3].f, a[4].f },
			  .bf = t == DT_BF16 };
	cpu_par(c, chunks(x.n), axpby_chunk, &x);
	return 0;
}

/* Of gated activations: body(x, i, o, n, bf) makes n numbers, [i, i+n) where gate and up lie and
 * [o, o+n) where y does. A chunk is some whole rows, or a piece of a long one. */
#define GATED_BY_DTYPE(body)                                                                       \
	static void body##_chunk(void *ctx, int64_t chunk, int thread)                             \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct elem *x = ctx;                                                        \
		const int64_t r0 = chunk / x->pieces * x->per, c0 = chunk % x->pieces * CHUNK,     \
			      n = x->width - c0 < CHUNK ? x->width - c0 : CHUNK;                   \
		for (int64_t r = r0; r < r0 + x->per && r < x->rows; r++)                          \
			if (x->bf)                                                                 \
				body(x, r * x->ld + c0, r * x->width + c0, n, true);               \
			else                                                                       \
				body(x, r * x->ld + c0, r * x->width + c0, n, false);              \
	}

/* y = f(gate) * up, or with `back` the gradients of both. `f`: two numbers more, or NULL; `ld2`: of
 * rows of `up`, or NULL. */
static int gated_with(struct cpu *c, enum dtype t, const union dev_arg *a, bool back,
		      const union dev_arg *f, const union dev_arg *ld2, cpu_chunk_fn chunk)
{
	const union dev_arg *in = a + 1 + back, *size = in + 2 + back;
	struct elem x = { .out = cpu_ptr(a[0]),
			  .in = { cpu_ptr(in[0]), cpu_ptr(in[1]) },
			  .n = size[0].i,
			  .width = size[1].i,
			  .ld = size[2].i,
			  .ld2 = ld2 ? ld2->i : size[2].i,
			  .bf = t == DT_BF16 };
	if (!x.n)
		return 0;
	x.rows = x.n / x.width;
	x.per = x.width < CHUNK ? CHUNK / x.width : 1;
	x.pieces = (x.width + CHUNK - 1) / CHUNK;
	if (f) {
		x.f[0] = f[0].f;
		x.f[1] = f[1].f;
	}
	if (back) {
		x.out2 = cpu_ptr(a[1]);
		x.in[2] = cpu_ptr(in[2]);
	}
	cpu_par(c, (x.rows + x.per - 1) / x.per * x.pieces, chunk, &x);
	return 0;
}

static int gated(struct cpu *c, enum dtype t, const union dev_arg *a, bool back, cpu_chunk_fn chunk)
{
	return gated_with(c, t, a, back, NULL, NULL, chunk);
}

INLINE void swiglu_fwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf g = ldm(x->in[0], i, n, bf), u = ldm(x->in[1], i, n, bf);
		stm(x->out, o, g / (one + v_exp(-g)) * u, n, bf);
	}
}
GATED_BY_DTYPE(swiglu_fwd)

int CPU_SYM(cpu_swiglu_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, false, swiglu_fwd_chunk);
}

INLINE void swiglu_bwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf dy = ldm(x->in[0], o, n, bf), g = ldm(x->in[1], i, n, bf),
		   u = ldm(x->in[2], i, n, bf);
		vf s = one / (one + v_exp(-g));
		stm(x->out, i, dy * u * s * (one + g * (one - s)), n, bf);
		stm(x->out2, i, dy * g * s, n, bf);
	}
}
GATED_BY_DTYPE(swiglu_bwd)

int CPU_SYM(cpu_swiglu_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, true, swiglu_bwd_chunk);
}

INLINE void swiglu_oss_fwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f), alpha = v_set(x->f[0]), most = v_set(x->f[1]);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf g = ldm(x->in[0], i, n, bf), u = ldm(x->in[1], i, n, bf);
		g = v_sel(g > most, most, g);
		u = v_sel(u > most, most, v_sel(u < -most, -most, u));
		stm(x->out, o, g / (one + v_exp(-alpha * g)) * (u + one), n, bf);
	}
}
GATED_BY_DTYPE(swiglu_oss_fwd)

int CPU_SYM(cpu_swiglu_oss_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated_with(c, t, a, false, a + 6, NULL, swiglu_oss_fwd_chunk);
}

INLINE void swiglu_oss_bwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f), alpha = v_set(x->f[0]), most = v_set(x->f[1]);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf dy = ldm(x->in[0], o, n, bf), g0 = ldm(x->in[1], i, n, bf),
		   u0 = ldm(x->in[2], i, n, bf);
		vf g = v_sel(g0 > most, most, g0);
		vf u = v_sel(u0 > most, most, v_sel(u0 < -most, -most, u0));
		vf s = one / (one + v_exp(-alpha * g));
		vf dg = dy * (u + one) * s * (one + alpha * g * (one - s));
		stm(x->out, i, v_keep(~(g0 > most), dg), n, bf);
		stm(x->out2, i, v_keep(~((u0 > most) | (u0 < -most)), dy * g * s), n, bf);
	}
}
GATED_BY_DTYPE(swiglu_oss_bwd)

int CPU_SYM(cpu_swiglu_oss_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated_with(c, t, a, true, a + 8, NULL, swiglu_oss_bwd_chunk);
}

/* 1/(1+e^-2u), u = sqrt(2/pi) (g + 0.044715 g^3): half of 1 + tanh u. */
INLINE vf gelu_gate(vf g)
{
	const vf one = v_set(1.0f), k = v_set(1.59576912f), cubic = v_set(0.044715f);
	return one / (one + v_exp(-(k * g * (one + cubic * g * g))));
}

INLINE void geglu_fwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf g = ldm(x->in[0], i, n, bf), u = ldm(x->in[1], i, n, bf);
		stm(x->out, o, g * gelu_gate(g) * u, n, bf);
	}
}
GATED_BY_DTYPE(geglu_fwd)

int CPU_SYM(cpu_geglu_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, false, geglu_fwd_chunk);
}

INLINE void geglu_bwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f), k = v_set(1.59576912f), cubic = v_set(3 * 0.044715f);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf dy = ldm(x->in[0], o, n, bf), g = ldm(x->in[1], i, n, bf),
		   u = ldm(x->in[2], i, n, bf);
		vf s = gelu_gate(g), inner = k * g * (one + cubic * g * g);
		stm(x->out, i, dy * u * s * (one + inner * (one - s)), n, bf);
		stm(x->out2, i, dy * g * s, n, bf);
	}
}
GATED_BY_DTYPE(geglu_bwd)

int CPU_SYM(cpu_geglu_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, true, geglu_bwd_chunk);
}

INLINE void glu_fwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf g = ldm(x->in[0], i, n, bf), u = ldm(x->in[1], i, n, bf);
		stm(x->out, o, u / (one + v_exp(-g)), n, bf);
	}
}
GATED_BY_DTYPE(glu_fwd)

int CPU_SYM(cpu_glu_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, false, glu_fwd_chunk);
}

INLINE void glu_bwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	const vf one = v_set(1.0f);
	for (; n > 0; i += VW, o += VW, n -= VW) {
		vf dy = ldm(x->in[0], o, n, bf), g = ldm(x->in[1], i, n, bf),
		   u = ldm(x->in[2], i, n, bf), s = one / (one + v_exp(-g));
		stm(x->out, i, dy * u * s * (one - s), n, bf);
		stm(x->out2, i, dy * s, n, bf);
	}
}
GATED_BY_DTYPE(glu_bwd)

int CPU_SYM(cpu_glu_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated(c, t, a, true, glu_bwd_chunk);
}

/* Where the number of b is that stands beside number `o` of y. */
INLINE int64_t mul_place(const struct elem *x, int64_t o)
{
	return o / x->width * x->ld2 + o % x->width;
}

INLINE void mul_fwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	for (int64_t j = mul_place(x, o); n > 0; i += VW, j += VW, o += VW, n -= VW)
		stm(x->out, o, ldm(x->in[0], i, n, bf) * ldm(x->in[1], j, n, bf), n, bf);
}
GATED_BY_DTYPE(mul_fwd)

int CPU_SYM(cpu_mul_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated_with(c, t, a, false, NULL, a + 6, mul_fwd_chunk);
}

INLINE void mul_bwd(const struct elem *x, int64_t i, int64_t o, int64_t n, const bool bf)
{
	for (int64_t j = mul_place(x, o); n > 0; i += VW, j += VW, o += VW, n -= VW) {
		const vf dy = ldm(x->in[0], o, n, bf), a = ldm(x->in[1], i, n, bf),
			 b = ldm(x->in[2], j, n, bf);
		stm(x->out, i, dy * b, n, bf);
		stm(x->out2, j, dy * a, n, bf);
	}
}
GATED_BY_DTYPE(mul_bwd)

int CPU_SYM(cpu_mul_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return gated_with(c, t, a, true, NULL, a + 8, mul_bwd_chunk);
}

/* Formats without vector code go through float32 in pieces. */
static void cast_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct elem *x = ctx;
	BORDERS(x, i)
	const unsigned ss = dtype_size(x->src), ds = dtype_size(x->dst);
	if (x->src == x->dst) {
		memcpy((char *)x->out + i0 * ds, (const char *)x->in[0] + i0 * ss,
		       (size_t)(i1 - i0) * ss);
	} else if (x->src == DT_BF16 && x->dst == DT_F32) {
		for (int64_t j = i0; j < i1; j += VW)
			stm(x->out, j, ldm(x->in[0], j, i1 - j, true), i1 - j, false);
	} else if (x->src == DT_F32 && x->dst == DT_BF16) {
		for (int64_t j = i0; j < i1; j += VW)
			stm(x->out, j, ldm(x->in[0], j, i1 - j, false), i1 - j, true);
	} else {
		float tmp[256];
		for (int64_t j = i0; j < i1; j += 256) {
			uint64_t m = i1 - j < 256 ? (uint64_t)(i1 - j) : 256;
			dtype_to_f32(x->src, (const char *)x->in[0] + j * ss, tmp, m);
			dtype_from_f32(x->dst, tmp, (char *)x->out + j * ds, m);
		}
	}
}

static bool is_float(int64_t t)
{
	return t == DT_F32 || t == DT_BF16 || t == DT_F16 || t == DT_F64;
}

int CPU_SYM(cpu_cast)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	if (!is_float(a[3].i) || !is_float(a[4].i))
		return err_set(e, ERR_INTERNAL, "cast between dtypes %lld and %lld",
			       (long long)a[4].i, (long long)a[3].i);
	struct elem x = { .out = cpu_ptr(a[0]),
			  .in = { cpu_ptr(a[1]) },
			  .n = a[2].i,
			  .dst = (enum dtype)a[3].i,
			  .src = (enum dtype)a[4].i };
	cpu_par(c, chunks(x.n), cast_chunk, &x);
	return 0;
}

/* The even lanes of a times m, as 64-bit products. */
INLINE vu mul_even(vu a, uint32_t m)
{
#if defined(__AVX512F__)
	return (vu)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi32((int)m));
#elif defined(__AVX2__)
	return (vu)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi32((int)m));
#else
	vu p;
	for (int i = 0; i < VW; i += 2) {
		uint64_t w = (uint64_t)a[i] * m;
		p[i] = (uint32_t)w;
		p[i + 1] = (uint32_t)(w >> 32);
	}
	return p;
#endif
}

typedef uint64_t vw __attribute__((vector_size(VW * 4)));

INLINE void mul_wide(vu a, uint32_t m, vu *high_p, vu *low_p)
{
	const vw even = (vw)mul_even(a, m), odd = (vw)mul_even((vu)((vw)a >> 32), m);
	*high_p = (vu)(even >> 32 | (odd & 0xffffffff00000000u));
	*low_p = (vu)((even & 0xffffffffu) | odd << 32);
}

/* rng_philox_at() for VW counters from ctr on, at a token's place (NULL: 0, 0): out[0..4*VW) are
 * their words in order. Counters are dealt to lanes so that interleaving the four words within
 * 128 bits puts everything in its place. Counters stay below 2^32 in their low half within a
 * call (`ctr` is a multiple of VW). */
INLINE void philox_block(struct rng_key key, uint64_t ctr, const int32_t *at, vu out[4])
{
	vu c0, c1 = (uint32_t)(ctr >> 32) - (vu){ 0 }, c2 = { 0 }, c3 = { 0 };
	if (at) {
		c2 = c2 + (uint32_t)at[1];
		c3 = c3 + (uint32_t)at[0];
	}
	uint32_t k0 = key.k[0], k1 = key.k[1];
	for (int i = 0; i < VW; i++)
		c0[i] = (uint32_t)ctr + (uint32_t)(i % 4 * (VW / 4) + i / 4);
	for (int r = 0; r < 10; r++) {
		vu h0, l0, h1, l1;
		mul_wide(c0, 0xD2511F53u, &h0, &l0);
		mul_wide(c2, 0xCD9E8D57u, &h1, &l1);
		c0 = h1 ^ c1 ^ k0;
		c2 = h0 ^ c3 ^ k1;
		c1 = l1;
		c3 = l0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
#if defined(__AVX512F__)
#define UNPACK(part, a, b) (vu) _mm512_unpack##part((__m512i)(a), (__m512i)(b))
#elif defined(__AVX2__)
#define UNPACK(part, a, b) (vu) _mm256_unpack##part((__m256i)(a), (__m256i)(b))
#endif
#if defined(UNPACK)
	const vu t0 = UNPACK(lo_epi32, c0, c1), t1 = UNPACK(hi_epi32, c0, c1),
		 t2 = UNPACK(lo_epi32, c2, c3), t3 = UNPACK(hi_epi32, c2, c3);
	out[0] = UNPACK(lo_epi64, t0, t2);
	out[1] = UNPACK(hi_epi64, t0, t2);
	out[2] = UNPACK(lo_epi64, t1, t3);
	out[3] = UNPACK(hi_epi64, t1, t3);
#else
	for (int w = 0; w < 4; w++)
		out[w] = (vu){ c0[w], c1[w], c2[w], c3[w] };
#endif
}

/* Numbers [i0, i1) of a row that begins at element `row`. */
INLINE void drop_part(const struct elem *x, int64_t row, int64_t i0, int64_t i1, const int32_t *at,
		      const bool bf)
{
	const vf s = v_set(x->f[0]);
	const uint32_t thr = (uint32_t)x->thr;
	for (int64_t i = i0; i < i1; i += 4 * VW) {
		vu u[4];
		philox_block(x->key, (uint64_t)i / 4, at, u);
		for (int w = 0; w < 4 && i + w * VW < i1; w++) {
			const int64_t m = i1 - i - w * VW, k = row + i + w * VW;
			vf y = v_keep((vi)(u[w] >= thr), ldm(x->in[0], k, m, bf) * s);
			if (x->acc)
				y += ldm(x->out, k, m, bf);
			stm(x->out, k, y, m, bf);
		}
	}
}

INLINE void dropout(const struct elem *x, int64_t i0, int64_t i1, const bool bf)
{
	drop_part(x, 0, i0, i1, NULL, bf);
}
BY_DTYPE(dropout)

/* Whole rows, about CHUNK numbers. */
static int64_t rows_of(const struct elem *x)
{
	return x->cols < CHUNK ? CHUNK / (x->cols > 0 ? x->cols : 1) : 1;
}

static void dropout_rows(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct elem *x = ctx;
	const int64_t rows = rows_of(x), all = x->n / x->cols;
	for (int64_t r = i * rows; r < (i + 1) * rows && r < all; r++) {
		const int32_t *at = (const int32_t *)x->in[1] + 2 * r;
		if (x->bf)
			drop_part(x, r * x->cols, 0, x->cols, at, true);
		else
			drop_part(x, r * x->cols, 0, x->cols, at, false);
	}
}

int CPU_SYM(cpu_dropout)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	float p = a[6].f;
	if (!(p >= 0 && p < 1))
		return err_set(e, ERR_INTERNAL, "dropout of %g is outside [0, 1)", (double)p);
	struct elem x = { .out = cpu_ptr(a[0]),
			  .in = { cpu_ptr(a[1]), cpu_ptr(a[2]) },
			  .n = a[3].i * a[4].i,
			  .cols = a[4].i,
			  .acc = a[5].i != 0,
			  .f = { 1.0f / (1.0f - p) },
			  .thr = (uint64_t)ceil((double)p * 0x1p32),
			  .key = rng_key(a[7].u),
			  .bf = t == DT_BF16 };
	if (x.in[1] && x.n)
		cpu_par(c, (a[3].i + rows_of(&x) - 1) / rows_of(&x), dropout_rows, &x);
	else
		cpu_par(c, chunks(x.n), dropout_chunk, &x);
	return 0;
}

/* One output is one sum over 4096 numbers; a chunk makes two of them. */
#define SQ 4096

static void sqnorm_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct elem *x = ctx;
	BORDERS(x, i)
	for (int64_t b = i0; b < i1; b += SQ) {
		int64_t end = b + SQ < i1 ? b + SQ : i1;
		vf s[4] = { { 0 } };
		for (int64_t j = b; j < end; j += 4 * VW)
			for (int k = 0; k < 4 && j + k * VW < end; k++) {
				vf v = ldm(x->in[0], j + k * VW, end - j - k * VW, false);
				s[k] += v * v;
			}
		((float *)x->out)[b / SQ] = v_sum((s[0] + s[1]) + (s[2] + s[3]));
	}
}

int CPU_SYM(cpu_sqnorm)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct elem x = { .out = cpu_ptr(a[0]), .in = { cpu_ptr(a[1]) }, .n = a[2].i };
	cpu_par(c, chunks(x.n), sqnorm_chunk, &x);
	return 0;
}

/* One row is a chunk. */
static void noise_chunk(void *ctx, int64_t row, int thread)
{
	(void)thread;
	const struct elem *x = ctx;
	const float a = ((const float *)x->in[0])[row];
	const int32_t *at = x->in[1] ? (const int32_t *)x->in[1] + 2 * row : NULL;
	for (int64_t j = 0; j < x->n; j++) {
		const int64_t i = row * x->n + j;
		const uint32_t u =
			at ? rng_u32_at(x->key, (uint64_t)j, (uint32_t)at[1], (uint32_t)at[0])
			   : rng_u32(x->key, (uint64_t)i);
		st1(x->out, i, ld1(x->out, i, x->bf) + a * (2 * rng_unit(u) - 1), x->bf);
	}
}

int CPU_SYM(cpu_noise)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct elem x = { .out = cpu_ptr(a[0]),
			  .in = { cpu_ptr(a[1]), cpu_ptr(a[2]) },
			  .n = a[4].i,
			  .key = rng_key(a[5].u),
			  .bf = t == DT_BF16 };
	cpu_par(c, a[3].i, noise_chunk, &x);
	return 0;
}
