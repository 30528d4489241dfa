/* SPDX-License-Identifier: Apache-2.0 */
/* nn.c - what people's own models need beside a decoder's kernels: activations, layer norm, squared
 * error. */
#include "dev/act.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

#define CHUNK 4096
#define COLS 64   /* columns of a block in sums over rows */
#define BLOCK 128 /* rows of a partial sum */

struct nn {
	void *out;
	const void *x, *dy;
	float *dw, *db, *mean, *rstd;
	const float *w, *b, *target;
	int64_t n, c, per; /* elements, or rows and width; rows in a chunk */
	float eps, scale;
	int64_t kind;
	bool bf, acc;
};

static int64_t rows_per(int64_t c) { return c > 16384 ? 1 : 16384 / (c ? c : 1); }
static int64_t over(int64_t n, int64_t m) { return (n + m - 1) / m; }

#define BY_DTYPE(body)                                                                             \
	static void body##_chunk(void *ctx, int64_t i, int thread)                                 \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct nn *k = ctx;                                                          \
		if (k->bf)                                                                         \
			body(k, i, true);                                                          \
		else                                                                               \
			body(k, i, false);                                                         \
	}

/* ---- activations ---- */

static const float sqrt_half = 0.70710678f, root_2_over_pi = 0.79788456f;

INLINE vf act_value(vf x, int64_t kind)
{
	const vf one = v_set(1.0f), half = v_set(0.5f);
	switch (kind) {
	case ACT_RELU:
		return v_sel(x <= 0, v_set(0), x); /* NaN stays NaN */
	case ACT_GELU:
		return half * x * (one + v_erf(x * v_set(sqrt_half)));
	case ACT_GELU_TANH: {
		const vf inner = one + v_set(0.044715f) * x * x;
		return half * x * (one + v_tanh(v_set(root_2_over_pi) * x * inner));
	}
	case ACT_TANH:
		return v_tanh(x);
	default: {
		const vf s = one / (one + v_exp(-x));
		return kind == ACT_SILU ? x * s : s;
	}
	}
}

INLINE vf act_slope(vf x, int64_t kind)
{
	const vf one = v_set(1.0f), half = v_set(0.5f);
	switch (kind) {
	case ACT_RELU:
		return v_sel(x <= 0, v_set(0), one);
	case ACT_GELU: /* the density of the normal distribution is 1/sqrt(2 pi) e^(-x^2/2) */
		return half * (one + v_erf(x * v_set(sqrt_half))) +
		       x * v_set(0.39894228f) * v_exp(-half * x * x);
	case ACT_GELU_TANH: {
		const vf inner = one + v_set(0.044715f) * x * x,
			 t = v_tanh(v_set(root_2_over_pi) * x * inner);
		return half * (one + t) + half * x * (one - t * t) * v_set(root_2_over_pi) *
						  (one + v_set(0.134145f) * x * x);
	}
	case ACT_TANH: {
		const vf t = v_tanh(x);
		return one - t * t;
	}
	default: {
		const vf s = one / (one + v_exp(-x));
		return kind == ACT_SILU ? s * (one + x * (one - s)) : s * (one - s);
	}
	}
}

INLINE void act_fwd(const struct nn *k, int64_t i, const bool bf)
{
	const int64_t end = (i + 1) * CHUNK < k->n ? (i + 1) * CHUNK : k->n;
	for (int64_t j = i * CHUNK; j < end; j += VW)
		stm(k->out, j, act_value(ldm(k->x, j, end - j, bf), k->kind), end - j, bf);
}
BY_DTYPE(act_fwd)

INLINE void act_bwd(const struct nn *k, int64_t i, const bool bf)
{
	const int64_t end = (i + 1) * CHUNK < k->n ? (i + 1) * CHUNK : k->n;
	for (int64_t j = i * CHUNK; j < end; j += VW) {
		vf d = ldm(k->dy, j, end - j, bf) * act_slope(ldm(k->x, j, end - j, bf), k->kind);
		if (k->acc)
			d += ldm(k->out, j, end - j, bf);
		stm(k->out, j, d, end - j, bf);
	}
}
BY_DTYPE(act_bwd)

static int check_kind(int64_t kind, struct err *e)
{
	return kind >= ACT_RELU && kind <= ACT_SIGMOID
		       ? 0
		       : err_set(e, ERR_INTERNAL, "an activation of kind %lld", (long long)kind);
}

int CPU_SYM(cpu_act_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct nn k = { .out = cpu_ptr(a[0]),
			.x = cpu_ptr(a[1]),
			.n = a[2].i,
			.kind = a[3].i,
			.bf = t == DT_BF16 };
	TRY(check_kind(k.kind, e));
	cpu_par(c, over(k.n, CHUNK), act_fwd_chunk, &k);
	return 0;
}

int CPU_SYM(cpu_act_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct nn k = { .out = cpu_ptr(a[0]),
			.dy = cpu_ptr(a[1]),
			.x = cpu_ptr(a[2]),
			.n = a[3].i,
			.kind = a[4].i,
			.acc = a[5].i != 0,
			.bf = t == DT_BF16 };
	TRY(check_kind(k.kind, e));
	cpu_par(c, over(k.n, CHUNK), act_bwd_chunk, &k);
	return 0;
}

/* ---- layer norm ---- */

#define ROWS_OF(k, i)                                                                              \
	const int64_t r0 = (i) * (k)->per, r1 = r0 + (k)->per < (k)->n ? r0 + (k)->per : (k)->n;

INLINE void layernorm_fwd(const struct nn *k, int64_t i, const bool bf)
{
	ROWS_OF(k, i)
	const int64_t c = k->c;
	for (int64_t n = r0; n < r1; n++) {
		vf sum = { 0 }, square = { 0 };
		for (int64_t j = 0; j < c; j += VW)
			sum += ldm(k->x, n * c + j, c - j, bf);
		const float mean = v_sum(sum) / (float)c;
		const vf m = v_set(mean);
		for (int64_t j = 0; j < c; j += VW) {
			vf d = ldm(k->x, n * c + j, c - j, bf) - m;
			if (c - j < VW) /* lanes behind the row hold -mean */
				for (int64_t l = c - j; l < VW; l++)
					d[l] = 0;
			square += d * d;
		}
		const float rstd = 1.0f / sqrtf(v_sum(square) / (float)c + k->eps);
		k->mean[n] = mean;
		k->rstd[n] = rstd;
		const vf r = v_set(rstd);
		for (int64_t j = 0; j < c; j += VW)
			stm(k->out, n * c + j,
			    (ldm(k->x, n * c + j, c - j, bf) - m) * r * ldm(k->w, j, c - j, false) +
				    ldm(k->b, j, c - j, false),
			    c - j, bf);
	}
}
BY_DTYPE(layernorm_fwd)

int CPU_SYM(cpu_layernorm_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct nn k = { .out = cpu_ptr(a[0]),
			.mean = cpu_ptr(a[1]),
			.rstd = cpu_ptr(a[2]),
			.x = cpu_ptr(a[3]),
			.w = cpu_ptr(a[4]),
			.b = cpu_ptr(a[5]),
			.n = a[6].i,
			.c = a[7].i,
			.eps = a[8].f,
			.per = rows_per(a[7].i),
			.bf = t == DT_BF16 };
	cpu_par(c, over(k.n, k.per), layernorm_fwd_chunk, &k);
	return 0;
}

/* With xh = (x-mean)*rstd and g = dy*w: dx = rstd * (g - mean(g) - xh * mean(g*xh)). */
INLINE void layernorm_dx(const struct nn *k, int64_t i, const bool bf)
{
	ROWS_OF(k, i)
	const int64_t c = k->c;
	for (int64_t n = r0; n < r1; n++) {
		const vf m = v_set(k->mean[n]), r = v_set(k->rstd[n]);
		vf plain = { 0 }, along = { 0 };
		for (int64_t j = 0; j < c; j += VW) { /* behind the row g is 0 */
			vf g = ldm(k->dy, n * c + j, c - j, bf) * ldm(k->w, j, c - j, false);
			plain += g;
			along += g * (ldm(k->x, n * c + j, c - j, bf) - m) * r;
		}
		const vf p = v_set(v_sum(plain) / (float)c), q = v_set(v_sum(along) / (float)c);
		for (int64_t j = 0; j < c; j += VW) {
			vf g = ldm(k->dy, n * c + j, c - j, bf) * ldm(k->w, j, c - j, false),
			   d = r * (g - p - (ldm(k->x, n * c + j, c - j, bf) - m) * r * q);
			if (k->acc)
				d += ldm(k->out, n * c + j, c - j, bf);
			stm(k->out, n * c + j, d, c - j, bf);
		}
	}
}
BY_DTYPE(layernorm_dx)

INLINE void layernorm_dw(const struct nn *k, int64_t i, const bool bf)
{
	const int64_t c = k->c, c0 = i * COLS, c1 = c0 + COLS < c ? c0 + COLS : c;
	for (int64_t j = c0; j < c1; j += VW) {
		vf along = { 0 }, plain = { 0 };
		for (int64_t b = 0; b < k->n; b += BLOCK) {
			const int64_t end = b + BLOCK < k->n ? b + BLOCK : k->n;
			vf pa = { 0 }, pp = { 0 };
			for (int64_t n = b; n < end; n++) {
				const vf d = ldm(k->dy, n * c + j, c1 - j, bf);
				pa += d * ((ldm(k->x, n * c + j, c1 - j, bf) - v_set(k->mean[n])) *
					   v_set(k->rstd[n]));
				pp += d;
			}
			along += pa;
			plain += pp;
		}
		if (k->dw)
			stm(k->dw, j, ldm(k->dw, j, c1 - j, false) + along, c1 - j, false);
		if (k->db)
			stm(k->db, j, ldm(k->db, j, c1 - j, false) + plain, c1 - j, false);
	}
}
BY_DTYPE(layernorm_dw)

int CPU_SYM(cpu_layernorm_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct nn k = { .out = cpu_ptr(a[0]),
			.dw = cpu_ptr(a[1]),
			.db = cpu_ptr(a[2]),
			.dy = cpu_ptr(a[3]),
			.x = cpu_ptr(a[4]),
			.w = cpu_ptr(a[5]),
			.mean = cpu_ptr(a[6]),
			.rstd = cpu_ptr(a[7]),
			.n = a[8].i,
			.c = a[9].i,
			.acc = a[10].i != 0,
			.per = rows_per(a[9].i),
			.bf = t == DT_BF16 };
	/* dw before dx: dx may lie over dy */
	if (k.dw || k.db)
		cpu_par(c, over(k.c, COLS), layernorm_dw_chunk, &k);
	cpu_par(c, over(k.n, k.per), layernorm_dx_chunk, &k);
	return 0;
}

/* ---- squared error ---- */

INLINE void mse(const struct nn *k, int64_t i, const bool bf)
{
	ROWS_OF(k, i)
	const int64_t c = k->c;
	const vf f = v_set(k->scale * 2 / (float)c);
	for (int64_t n = r0; n < r1; n++) {
		vf sum = { 0 };
		for (int64_t j = 0; j < c; j += VW) {
			const vf d = ldm(k->x, n * c + j, c - j, bf) -
				     ldm(k->target, n * c + j, c - j, false);
			sum += d * d;
			if (k->out)
				stm(k->out, n * c + j, f * d, c - j, bf);
		}
		k->rstd[n] = v_sum(sum) / (float)c;
	}
}
BY_DTYPE(mse)

int CPU_SYM(cpu_mse)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct nn k = { .rstd = cpu_ptr(a[0]), /* the losses */
			.out = cpu_ptr(a[1]),
			.x = cpu_ptr(a[2]),
			.target = cpu_ptr(a[3]),
			.n = a[4].i,
			.c = a[5].i,
			.scale = a[6].f,
			.per = rows_per(a[5].i),
			.bf = t == DT_BF16 };
	cpu_par(c, over(k.n, k.per), mse_chunk, &k);
	return 0;
}
