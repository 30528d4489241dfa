/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_case.h - what the cases of tests/test_dev_kernels.c share: how far a result may be from
 * float64, room for references, lengths; and the cases of attention (kernel_attn.c), of linear
 * attention (kernel_delta.c), optimizers (kernel_optim.c), experts (kernel_experts.c) and own
 * models (kernel_nn.c). */
#ifndef HS_TESTS_SUPPORT_KERNEL_CASE_H
#define HS_TESTS_SUPPORT_KERNEL_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "support/tensors.h"

#include <math.h>
#include <string.h>

/* Room for one rounding to T on the way out, and (mid) for one on the way in between. */
static inline double rel_of(enum dtype t)
{
	return t == DT_F32 ? 2e-5 : t == DT_BF16 ? 0x1.1p-8 : 0x1.1p-11;
}
/* Half a step of the smallest numbers, which have no relative accuracy. */
static inline double small_of(enum dtype t) { return t == DT_F16 ? 0x1.1p-25 : 0; }
static inline double abs_of(enum dtype t)
{
	return t == DT_F32 ? 4e-6 : t == DT_BF16 ? 0x1p-9 : 0x1p-12;
}

static inline double *copy(const struct tensor64 *x)
{
	double *v = mem_array((size_t)x->n + 1, sizeof *v);
	assert_non_null(v);
	memcpy(v, x->v, (size_t)x->n * sizeof *v);
	return v;
}

static inline double *nans(int64_t n)
{
	double *v = mem_array((size_t)n + 1, sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < n; i++)
		v[i] = (double)NAN;
	return v;
}

/* Of arrays without a shape. */
static const int64_t case_lengths[] = { 1, 2, 31, 64, 1009, 8192, 20011 };

void case_sqnorm(struct tensors *ts, enum dtype t);
void case_adamw(struct tensors *ts, enum dtype t);
void case_sgd(struct tensors *ts, enum dtype t);
void case_adamw8(struct tensors *ts, enum dtype t);
void case_lion(struct tensors *ts, enum dtype t);
void case_factor_rows(struct tensors *ts, enum dtype t);
void case_factor_cols(struct tensors *ts, enum dtype t);
void case_factor_scale(struct tensors *ts, enum dtype t);
void case_act_fwd(struct tensors *ts, enum dtype t);
void case_act_bwd(struct tensors *ts, enum dtype t);
void case_layernorm_fwd(struct tensors *ts, enum dtype t);
void case_layernorm_bwd(struct tensors *ts, enum dtype t);
void case_mse(struct tensors *ts, enum dtype t);
void case_im2col(struct tensors *ts, enum dtype t);
void case_col2im(struct tensors *ts, enum dtype t);
void case_swap_axes(struct tensors *ts, enum dtype t);
void case_pool_fwd(struct tensors *ts, enum dtype t);
void case_pool_bwd(struct tensors *ts, enum dtype t);

void case_glu_fwd(struct tensors *ts, enum dtype t);
void case_glu_bwd(struct tensors *ts, enum dtype t);
void case_head_glu_fwd(struct tensors *ts, enum dtype t);
void case_head_glu_bwd(struct tensors *ts, enum dtype t);
void case_mul_fwd(struct tensors *ts, enum dtype t);
void case_mul_bwd(struct tensors *ts, enum dtype t);
void case_conv1d_fwd(struct tensors *ts, enum dtype t);
void case_conv1d_bwd(struct tensors *ts, enum dtype t);
void case_delta_fwd(struct tensors *ts, enum dtype t);
void case_delta_bwd(struct tensors *ts, enum dtype t);

void case_swiglu_oss_fwd(struct tensors *ts, enum dtype t);
void case_swiglu_oss_bwd(struct tensors *ts, enum dtype t);
void case_sink_fwd(struct tensors *ts, enum dtype t);
void case_sink_bwd(struct tensors *ts, enum dtype t);
void case_route_fwd(struct tensors *ts, enum dtype t);
void case_route_bwd(struct tensors *ts, enum dtype t);
void case_combine_fwd(struct tensors *ts, enum dtype t);
void case_combine_bwd(struct tensors *ts, enum dtype t);

struct attn_shape {
	int64_t h, g, d, window, pad;
	int32_t lq[4], lk[4]; /* 0 ends */
	double cap;
	double small; /* how large the gradient that comes in is; 0: 1 */
};

void case_attn_fwd(struct tensors *ts, enum dtype t);
void case_attn_bwd(struct tensors *ts, enum dtype t);
/* One shape; `s` is its number in messages. */
void attn_bwd_of(struct tensors *ts, enum dtype t, const struct attn_shape *shape, size_t s);

#endif
