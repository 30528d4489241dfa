/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_ops.c - every row of op.def: the gradients against finite differences, along random
 * directions, for inputs and parameters (support/op_bench.h). A row of op.def without a case here
 * fails. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/quant.h"
#include "tensor/op_host.h"
#include "tensor/op_text.h"
#include "tensor/ops.h"
#include "tensor/routing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_bench.h"

static const double tolerance = 4e-3;

/* ---- one case per op: what goes in, and how it is applied ---- */

static int build_embed(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_embed_apply(&b->tape, b->par[0], b->ids, N, y_p, e);
}

static void case_embed(struct bench *b)
{
	bench_param(b, 2, V, C);
	int32_t id[N];
	for (int i = 0; i < N; i++)
		id[i] = (i * 5) % 11; /* some rows twice, some never */
	b->ids = bench_ints(b, id, N);
	b->build = build_embed;
}

static int build_rmsnorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_rmsnorm_apply(&b->tape, b->used[0], b->par[0], C, 1e-5f, 1, b->used[1], y_p, e);
}

static void case_rmsnorm(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_param(b, 1, C, 1);
	b->build = build_rmsnorm;
}

static int build_rope(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct rope r = {
		.pos = b->pos, .freq = b->freq, .scale = 1.25f, .rot = D - 2, .near = true
	};
	return op_rope_apply(&b->tape, b->used[0], &r, y_p, e);
}

static void case_rope(struct bench *b)
{
	struct err err = { 0 };
	int32_t pos[N];
	float freq[D / 2] = { 1, 0.3f, 0.1f, 0.01f };
	bench_input(b, 3, (const int64_t[]){ N, H, D });
	for (int i = 0; i < N; i++)
		pos[i] = i % 7;
	b->pos = bench_ints(b, pos, N);
	OK(dmem_take(&b->mem, sizeof freq, &b->freq, &err));
	OK(dev_upload(b->freq, freq, sizeof freq, &err));
	b->build = build_rope;
}

static int build_linear(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct lora lora = {
		.a = b->par[2], .b = b->par[3], .scale = 1.5f, .dropout = 0.25f
	};
	return op_linear_apply(&b->tape, b->used[0], b->par[0], b->par[1], &lora, 77, b->used[1],
			       y_p, e);
}

static void case_linear(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_param(b, 2, OUT, C);
	bench_param(b, 1, OUT, 1);
	bench_param(b, 2, R, C);
	bench_param(b, 2, OUT, R);
	b->build = build_linear;
}

static int build_joined(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct joined_linear j = { .n = 3, .key = { 5, 6, 7 } };
	for (int i = 0; i < 3; i++)
		j.part[i] = (struct linear_part){ .w = &b->frozen[i] };
	for (int i = 0; i < 2; i++) /* the one in the middle has no adapter */
		j.part[2 * i].lora = (struct lora){ .a = b->par[2 * i],
						    .b = b->par[2 * i + 1],
						    .scale = i ? 0.5f : 1.5f };
	return op_joined_apply(&b->tape, b->used[0], &j, y_p, e);
}

static void case_joined(struct bench *b)
{
	struct err err = { 0 };
	struct param *w[3];
	bench_input(b, 2, (const int64_t[]){ N, C });
	w[0] = bench_frozen(b, OUT, C);
	w[1] = bench_frozen(b, 5, C);
	w[2] = bench_frozen(b, 9, C);
	OK(param_join(w, 3, &err));
	bench_param(b, 2, R, C);
	bench_param(b, 2, OUT, R);
	bench_param(b, 2, 2, C);
	bench_param(b, 2, 9, 2);
	b->build = build_joined;
}

static int build_attention(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_attention_apply(&b->tape, b->used[0], b->used[1], b->used[2], b->par[0],
				  b->starts, b->starts, 3, 4, 0.35f, 2, y_p, e);
}

static void case_attention(struct bench *b)
{
	bench_input(b, 3, (const int64_t[]){ N, H, D });
	bench_input(b, 3, (const int64_t[]){ N, G, D });
	bench_input(b, 3, (const int64_t[]){ N, G, D });
	bench_param(b, 1, H, 1);
	b->starts = bench_ints(b, (const int32_t[]){ 0, 1, 6, N }, 4);
	b->build = build_attention;
}

static int build_swiglu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_swiglu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_swiglu(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_swiglu;
}

static int build_swiglu_oss(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_swiglu_oss_apply(&b->tape, b->used[0], b->used[1], 1.7f, 2.2f, y_p, e);
}

static void case_swiglu_oss(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_swiglu_oss;
}

static int build_geglu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_geglu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_geglu(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_geglu;
}

static int build_add(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_add_apply(&b->tape, b->used[0], 0.75f, b->used[1], y_p, e);
}

static void case_add(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_add;
}

static int build_columns(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct tensor *part[2];
	TRY(op_columns_apply(&b->tape, b->used[0], 18, 0, 9, &part[0], e));
	TRY(op_columns_apply(&b->tape, b->used[0], 18, 9, 9, &part[1], e));
	return op_swiglu_apply(&b->tape, part[0], part[1], y_p, e);
}

static void case_columns(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, 36 }); /* of each 18 */
	b->build = build_columns;
}

/* The keys of latent attention, half of them rotated and the same for all heads, and values that
 * are narrower. */
static int build_widen(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct rope r = { .pos = b->pos, .freq = b->freq, .scale = 1, .rot = D },
			  q = { .pos = b->pos, .freq = b->freq, .scale = 1, .rot = D, .from = 3 };
	struct tensor *k, *v, *turned, *o;
	TRY(op_rope_apply(&b->tape, b->used[0], &q, &turned, e));
	TRY(op_rope_apply(&b->tape, b->used[1], &r, &k, e));
	TRY(op_widen_apply(&b->tape, b->used[2], 5, 0, 3, k, 3 + D, &k, e));
	TRY(op_widen_apply(&b->tape, b->used[2], 5, 3, 2, NULL, 3 + D, &v, e));
	TRY(op_attention_apply(&b->tape, turned, k, v, NULL, b->starts, b->starts, 3, 0, 0.35f, 0,
			       &o, e));
	return op_cut_apply(&b->tape, o, 3 + D, 2, y_p, e);
}

static void case_widen(struct bench *b)
{
	case_rope(b);
	b->nin = 0;
	bench_input(b, 3, (const int64_t[]){ N, H, 3 + D });
	bench_input(b, 3, (const int64_t[]){ N, 1, D });
	bench_input(b, 2, (const int64_t[]){ N, H * 5 });
	b->starts = bench_ints(b, (const int32_t[]){ 0, 1, 6, N }, 4);
	b->build = build_widen;
}

/* Attention reads q, k and v where they lie, q and k having been rotated as one. */
static int build_slice(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct rope r = { .pos = b->pos, .freq = b->freq, .scale = 1, .rot = D };
	struct tensor *qk, *part[3];
	TRY(op_slice_apply(&b->tape, b->used[0], 0, (H + G) * D, &qk, e));
	qk->ndim = 3;
	qk->dim[1] = H + G;
	qk->dim[2] = D;
	TRY(op_rope_apply(&b->tape, qk, &r, &qk, e));
	TRY(op_slice_apply(&b->tape, qk, 0, H * D, &part[0], e));
	TRY(op_slice_apply(&b->tape, qk, H * D, G * D, &part[1], e));
	TRY(op_slice_apply(&b->tape, b->used[0], (H + G) * D, G * D, &part[2], e));
	for (int i = 0; i < 3; i++) {
		part[i]->ndim = 3;
		part[i]->dim[1] = i ? G : H;
		part[i]->dim[2] = D;
	}
	return op_attention_apply(&b->tape, part[0], part[1], part[2], NULL, b->starts, b->starts,
				  3, 0, 0.35f, 0, y_p, e);
}

static void case_slice(struct bench *b)
{
	case_rope(b);
	b->nin = 0;
	bench_input(b, 2, (const int64_t[]){ N, (H + 2 * G) * D });
	b->starts = bench_ints(b, (const int32_t[]){ 0, 1, 6, N }, 4);
	b->build = build_slice;
}

static int build_slice_gated(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct tensor *part[2];
	TRY(op_slice_apply(&b->tape, b->used[0], 0, 9, &part[0], e));
	TRY(op_slice_apply(&b->tape, b->used[0], 9, 9, &part[1], e));
	return op_geglu_apply(&b->tape, part[0], part[1], y_p, e);
}

static void case_slice_gated(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, 18 });
	b->build = build_slice_gated;
}

static int build_loss(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_loss_apply(&b->tape, b->used[0], b->par[0], b->rows, b->labels, DEV_NONE,
			     DEV_NONE, TRAINED, 0.5f, 3, 1, y_p, e);
}

static void case_loss(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_param(b, 2, V, C);
	b->rows = bench_ints(b, (const int32_t[]){ 0, 2, 3, 5, 8, 11, 12 }, TRAINED);
	b->labels = bench_ints(b, (const int32_t[]){ 1, 0, 36, 7, 7, 20, 3 }, TRAINED);
	b->build = build_loss;
}

static int build_glu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_glu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_glu(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_glu;
}

static int build_head_glu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_head_glu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_head_glu(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, 3 });
	bench_input(b, 3, (const int64_t[]){ N, 3, 5 });
	b->build = build_head_glu;
}

/* As in a layer with a short convolution: slices, two of them apart, and what lies alone. */
static int build_mul(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct tensor *part[3], *y;
	for (int i = 0; i < 3; i++)
		TRY(op_slice_apply(&b->tape, b->used[0], 9 * i, 9, &part[i], e));
	TRY(op_mul_apply(&b->tape, part[0], part[2], &y, e));
	TRY(op_add_apply(&b->tape, y, 0.75f, NULL, &y, e));
	TRY(op_mul_apply(&b->tape, part[1], y, &y, e));
	return op_mul_apply(&b->tape, y, b->used[1], y_p, e);
}

static void case_mul(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, 27 });
	bench_input(b, 2, (const int64_t[]){ N, 9 });
	b->build = build_mul;
}

/* Three sequences of 6, 1 and 6 tokens. */
static void three(struct bench *b)
{
	static const int32_t starts[4] = { 0, 6, 7, N };
	int32_t pos[N];
	for (int s = 0; s < 3; s++)
		for (int32_t i = starts[s]; i < starts[s + 1]; i++)
			pos[i] = i - starts[s];
	b->starts = bench_ints(b, starts, 4);
	b->pos = bench_ints(b, pos, N);
}

static int build_conv1d(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_conv1d_apply(&b->tape, b->used[0], b->par[0], b->pos, DEV_NONE, y_p, e);
}

static void case_conv1d(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_param(b, 1, C * 4, 1);
	three(b);
	b->build = build_conv1d;
}

static int build_delta(struct bench *b, struct tensor **y_p, struct err *e)
{
	static const struct delta_heads h = { .keys = G, .values = H, .dk = D, .dv = 5 };
	return op_delta_apply(&b->tape, b->used[0], b->used[1], b->used[2], b->par[0], b->par[1],
			      &h, b->starts, 3, DEV_NONE, y_p, e);
}

static void case_delta(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, 2 * G * D + H * 5 });
	bench_input(b, 2, (const int64_t[]){ N, H });
	bench_input(b, 2, (const int64_t[]){ N, H });
	bench_param(b, 1, H, 1);
	bench_param(b, 1, H, 1);
	three(b);
	b->build = build_delta;
}

static int build_act(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_act_apply(&b->tape, b->used[0], ACT_GELU, y_p, e);
}

static void case_act(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_act;
}

static int build_layernorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_layernorm_apply(&b->tape, b->used[0], b->par[0], b->par[1], C, 1e-5f, y_p, e);
}

static void case_layernorm(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_param(b, 1, C, 1);
	bench_param(b, 1, C, 1);
	b->build = build_layernorm;
}

static int build_batchnorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_batchnorm_apply(&b->tape, b->used[0], b->par[0], b->par[1], 1e-2f, y_p, e);
}

static void case_batchnorm(struct bench *b)
{
	bench_input(b, 3, (const int64_t[]){ 5, 3, 4 });
	bench_param(b, 1, 3, 1);
	bench_param(b, 1, 3, 1);
	b->build = build_batchnorm;
}

/* Rows without places, which go another way; and x joined with what was made of it. */
static int build_concat(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct tensor *z;
	TRY(op_batchnorm_apply(&b->tape, b->used[0], b->par[0], b->par[1], 1e-2f, &z, e));
	return op_concat_apply(&b->tape, b->used[0], z, y_p, e);
}

static void case_concat(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_param(b, 1, OUT, 1);
	bench_param(b, 1, OUT, 1);
	b->build = build_concat;
}

static int build_dropout(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_dropout_apply(&b->tape, b->used[0], 0.25f, DEV_NONE, 99, y_p, e);
}

static void case_dropout(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_dropout;
}

static int build_mse(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_mse_apply(&b->tape, b->used[0], b->freq, 1, y_p, e);
}

static void case_mse(struct bench *b)
{
	struct err err = { 0 };
	float target[N * OUT];
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_fill(b, target, N * OUT, 1);
	OK(dmem_take(&b->mem, sizeof target, &b->freq, &err));
	OK(dev_upload(b->freq, target, sizeof target, &err));
	b->build = build_mse;
}

static int build_xent(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_xent_apply(&b->tape, b->used[0], b->labels, DEV_NONE, 1, y_p, e);
}

static void case_xent(struct bench *b)
{
	int32_t label[N];
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	for (int i = 0; i < N; i++)
		label[i] = i % 4 == 3 ? -100 : i;
	b->labels = bench_ints(b, label, N);
	b->build = build_xent;
}

static int build_conv2d(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct conv2d c = { 3, 2, 2, 1, 0 };
	return op_conv2d_apply(&b->tape, b->used[0], b->par[0], b->par[1], &c, y_p, e);
}

static void case_conv2d(struct bench *b)
{
	bench_input(b, 4, (const int64_t[]){ 3, 2, 5, 4 });
	bench_param(b, 2, 4, 2 * 3 * 2);
	bench_param(b, 1, 4, 1);
	b->build = build_conv2d;
}

static int build_pool(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_pool_apply(&b->tape, b->used[0], 2, 1, true, y_p, e);
}

static void case_pool(struct bench *b)
{
	bench_input(b, 4, (const int64_t[]){ 3, 2, 5, 4 });
	b->build = build_pool;
}

/* y[j] = w[j] x[j]^2 + x[j + 1] */
static int square(void *ctx, const struct host_pass *p)
{
	(void)ctx;
	for (int64_t i = 0; i < p->rows; i++)
		for (int64_t j = 0; j < p->out; j++) {
			const float *x = p->x + i * p->in + j;
			p->y[i * p->out + j] = p->param[0][j] * x[0] * x[0] + x[1];
		}
	return 0;
}

static int square_back(void *ctx, const struct host_pass *p)
{
	(void)ctx;
	memset(p->dx, 0, (size_t)(p->rows * p->in) * sizeof *p->dx);
	for (int64_t i = 0; i < p->rows; i++)
		for (int64_t j = 0; j < p->out; j++) {
			const int64_t at = i * p->in + j;
			const float dy = p->dy[i * p->out + j], x = p->x[at];
			p->dx[at] += 2 * p->param[0][j] * x * dy;
			p->dx[at + 1] += dy;
			p->dparam[0][j] += x * x * dy;
		}
	return 0;
}

static int build_host(struct bench *b, struct tensor **y_p, struct err *e)
{
	static const struct host_op op = { "square", square, square_back, NULL };
	return op_host_apply(&b->tape, &op, b->used[0], b->par, OUT - 1, y_p, e);
}

static void case_host(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, OUT });
	bench_param(b, 1, OUT - 1, 1);
	b->build = build_host;
}

/* The same as a text; test_tensor_devices.c has others, on every device. */
static int build_text(struct bench *b, struct tensor **y_p, struct err *e)
{
	static const char text[] =
		"FORWARD { AT(T, y); AT(T, x); AT(f32, p0); i64 i = ITEM, j = i % out, at = i / "
		"out * "
		"in + j; if (i < rows * out) st(y, i, p0[j] * ld(x, at) * ld(x, at) + ld(x, at + "
		"1)); }\n"
		"BACKWARD { AT(T, dx); AT(T, dy); AT(T, x); AT(f32, p0); i64 i = ITEM, j = i % in, "
		"at "
		"= i / in * out + j; if (i < rows * in) st(dx, i, (j < out ? 2.0f * p0[j] * ld(x, "
		"i) "
		"* ld(dy, at) : 0.0f) + (j > 0 ? ld(dy, at - 1) : 0.0f)); }\n"
		"PARAMS { AT(f32, d); AT(T, dy); AT(T, x); LOCAL f32 s[WG]; f32 sum = 0; for (i64 "
		"r = "
		"LID; r < rows; r += WG) sum += ld(x, r * in + GROUP) * ld(x, r * in + GROUP) * "
		"ld(dy, "
		"r * out + GROUP); sum = group_sum(s, sum); if (LID == 0) d[GROUP] += sum; }\n";
	static const struct dev_text square_text = { "square", text, true };
	static const double set[TEXT_OP_SETTINGS] = { 0 };
	static const struct text_op op = { &square_text, false, set };
	return op_text_apply(&b->tape, &op, b->used[0], b->par, OUT - 1, y_p, e);
}

static void case_text(struct bench *b)
{
	case_host(b);
	b->build = build_text;
}

enum { EXPERTS = 5, CHOSEN = 2 };

static int build_route(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	return op_route_apply(&b->tape, b->used[0], &(struct router){ .k = CHOSEN }, &r, y_p, e);
}

static int build_route_sigmoid(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	const struct router how = { .k = CHOSEN, .whole = true, .sigmoid = true, .scale = 2.5f };
	return op_route_apply(&b->tape, b->used[0], &how, &r, y_p, e);
}

static void case_route_sigmoid(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, EXPERTS });
	b->build = build_route_sigmoid;
}

static void case_route(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, EXPERTS });
	b->build = build_route;
}

/* A choice that does not depend on what is differentiated; expert 2 gets no token. */
static int choose(struct bench *b, int64_t experts, struct routing **r_p, struct err *e)
{
	struct tensor *logits, *weight;
	const int64_t dim[2] = { N, experts };
	TRY(tape_new(&b->tape, &b->mem, DT_F32, 2, dim, &logits, e));
	float *v = (float *)((char *)logits->at.buf->host + logits->at.off);
	for (int64_t i = 0; i < N * experts; i++)
		v[i] = i % experts == 2 ? -9 : (float)((i * 7 + i / experts) % 11);
	const struct router how = { .k = experts > CHOSEN ? CHOSEN : 1, .whole = true };
	return op_route_apply(&b->tape, logits, &how, r_p, &weight, e);
}

static int build_route_scale(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	TRY(choose(b, EXPERTS, &r, e));
	return op_route_scale_apply(&b->tape, b->used[0], b->par[0], r, y_p, e);
}

static void case_route_scale(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, CHOSEN });
	bench_param(b, 1, EXPERTS, 1);
	b->build = build_route_scale;
}

static int build_permute(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	TRY(choose(b, EXPERTS, &r, e));
	return op_permute_apply(&b->tape, b->used[0], r, y_p, e);
}

static void case_permute(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	b->build = build_permute;
}

static int build_grouped(struct bench *b, struct tensor **y_p, struct err *e)
{
	static struct linear_part expert[2];
	struct routing *r;
	expert[0] = (struct linear_part){ .w = b->par[0],
					  .lora = { .a = b->par[2], .b = b->par[3], .scale = 2 } };
	expert[1] = (struct linear_part){ .w = b->par[1] };
	const struct grouped g = { .expert = expert, .adapters = true, .dropout = 0.25f, .key = 9 };
	TRY(choose(b, 2, &r, e));
	return op_grouped_apply(&b->tape, b->used[0], r, &g, y_p, e);
}

static void case_grouped(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N, C });
	bench_param(b, 2, OUT, C);
	bench_param(b, 2, OUT, C);
	bench_param(b, 2, R, C);
	bench_param(b, 2, OUT, R);
	b->build = build_grouped;
}

static int build_unpermute(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	TRY(choose(b, EXPERTS, &r, e));
	return op_unpermute_apply(&b->tape, b->used[0], b->used[1], b->used[2], r, y_p, e);
}

static void case_unpermute(struct bench *b)
{
	bench_input(b, 2, (const int64_t[]){ N * CHOSEN, C });
	bench_input(b, 2, (const int64_t[]){ N, CHOSEN });
	bench_input(b, 2, (const int64_t[]){ N, C });
	b->build = build_unpermute;
}

static const struct {
	const char *op;
	void (*make)(struct bench *b);
	bool unit_seed; /* the op computes the gradient of the plain sum of its outputs */
} cases[] = {
	{ "embed", case_embed, false },
	{ "rmsnorm", case_rmsnorm, false },
	{ "rope", case_rope, false },
	{ "linear", case_linear, false },
	{ "joined", case_joined, false },
	{ "attention", case_attention, false },
	{ "swiglu", case_swiglu, false },
	{ "swiglu_oss", case_swiglu_oss, false },
	{ "geglu", case_geglu, false },
	{ "glu", case_glu, false },
	{ "head_glu", case_head_glu, false },
	{ "mul", case_mul, false },
	{ "conv1d", case_conv1d, false },
	{ "delta", case_delta, false },
	{ "add", case_add, false },
	{ "columns", case_columns, false },
	{ "slice", case_slice, false },
	{ "slice", case_slice_gated, false },
	{ "widen", case_widen, false },
	{ "loss", case_loss, true },
	{ "act", case_act, false },
	{ "layernorm", case_layernorm, false },
	{ "batchnorm", case_batchnorm, false },
	{ "concat", case_concat, false },
	{ "dropout", case_dropout, false },
	{ "mse", case_mse, true },
	{ "xent", case_xent, true },
	{ "conv2d", case_conv2d, false },
	{ "pool", case_pool, false },
	{ "host", case_host, false },
	{ "text", case_text, false },
	{ "route", case_route, false },
	{ "route", case_route_sigmoid, false },
	{ "route_scale", case_route_scale, false },
	{ "permute", case_permute, false },
	{ "grouped", case_grouped, false },
	{ "unpermute", case_unpermute, false },
};

static void one_case(size_t c)
{
	struct bench b;
	bench_open(&b);
	cases[c].make(&b);
	const double worst = bench_check(&b, cases[c].unit_seed);
	printf("%-10s largest relative error %.2e\n", cases[c].op, worst);
	if (!(worst <= tolerance))
		fail_msg("%s: gradient and finite difference disagree by %.3g", cases[c].op, worst);
	bench_close(&b);
}

static void every_op_against_finite_differences(void **state)
{
	(void)state;
	for (size_t o = 0; ops[o]; o++) {
		int found = 0;
		for (size_t c = 0; c < ARRAY_LEN(cases); c++)
			if (!strcmp(cases[c].op, ops[o]->name)) {
				one_case(c);
				found++;
			}
		if (!found)
			fail_msg("op.def has '%s', this test has no case for it", ops[o]->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_against_finite_differences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
