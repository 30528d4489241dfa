/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_ops.c - every row of op.def: the gradients against finite differences, along random
 * directions, for inputs and parameters.
 *
 * With L = sum(g * y), backward gives dL/dx; along a direction d, (L(x + h d) - L(x - h d)) / 2h
 * must be <dL/dx, d>. Forward runs in float32, so h is large and the comparison relative to the
 * size of what is compared. A row of op.def without a case here fails. */
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

enum { N = 13, C = 34, R = 3, OUT = 22, H = 6, G = 2, D = 8, V = 37, TRAINED = 7 };
static const float step_size = 2e-2f;
static const double tolerance = 4e-3;

struct bench {
	struct dev *dev;
	struct dmem mem, scratch;
	struct arena host;
	struct tape tape;
	uint64_t key;
	struct tensor *in[3]; /* differentiated inputs */
	/* what the op was applied to: copies, because some ops overwrite their inputs */
	struct tensor *used[3];
	struct param *par[4]; /* differentiated parameters */
	size_t nin, npar;
	struct param store[4], frozen[3];
	size_t nfrozen;
	struct dev_ref ids, pos, freq, starts, rows, labels;
	int (*build)(struct bench *b, struct tensor **y_p, struct err *e);
};

#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, e.msg);                                          \
	} while (0)

static void fill(struct bench *b, float *v, int64_t n, float size)
{
	struct rng_key k = rng_key(b->key++);
	for (int64_t i = 0; i < n; i++)
		v[i] = size * rng_normal(k, (uint64_t)i);
}

static struct tensor *new_input(struct bench *b, int ndim, const int64_t *dim)
{
	struct err e = { 0 };
	struct tensor *t;
	OK(tape_new(&b->tape, &b->mem, DT_F32, ndim, dim, &t, &e));
	fill(b, (float *)((char *)t->at.buf->host + t->at.off), tensor_count(t), 1);
	t->needs_grad = true;
	return b->in[b->nin++] = t;
}

static struct param *new_param(struct bench *b, int ndim, int64_t rows, int64_t cols)
{
	struct err e = { 0 };
	struct param *p = &b->store[b->npar];
	const int64_t dim[2] = { rows, cols };
	OK(param_init_plain(p, b->dev, "p", ndim, dim, DT_F32, true, &e));
	float v[OUT * C * 2];
	fill(b, v, param_count(p), 0.4f);
	OK(param_upload_f32(p, 0, param_count(p), v, &e));
	return b->par[b->npar++] = p;
}

static struct param *new_frozen(struct bench *b, int64_t rows, int64_t cols)
{
	struct err e = { 0 };
	struct param *p = &b->frozen[b->nfrozen++];
	float v[OUT * C * 2];
	OK(param_init_plain(p, b->dev, "w", 2, (const int64_t[]){ rows, cols }, DT_F32, false, &e));
	fill(b, v, param_count(p), 0.4f);
	OK(param_upload_f32(p, 0, param_count(p), v, &e));
	return p;
}

static struct dev_ref ints(struct bench *b, const int32_t *v, int64_t n)
{
	struct err e = { 0 };
	struct dev_ref r;
	OK(dmem_take(&b->mem, (size_t)n * 4, &r, &e));
	OK(dev_upload(r, v, (size_t)n * 4, &e));
	return r;
}

/* ---- one case per op: what goes in, and how it is applied ---- */

static int build_embed(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_embed_apply(&b->tape, b->par[0], b->ids, N, y_p, e);
}

static void case_embed(struct bench *b)
{
	new_param(b, 2, V, C);
	int32_t id[N];
	for (int i = 0; i < N; i++)
		id[i] = (i * 5) % 11; /* some rows twice, some never */
	b->ids = ints(b, id, N);
	b->build = build_embed;
}

static int build_rmsnorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_rmsnorm_apply(&b->tape, b->used[0], b->par[0], C, 1e-5f, 1, b->used[1], y_p, e);
}

static void case_rmsnorm(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, C });
	new_input(b, 2, (const int64_t[]){ N, C });
	new_param(b, 1, C, 1);
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
	struct err e = { 0 };
	int32_t pos[N];
	float freq[D / 2] = { 1, 0.3f, 0.1f, 0.01f };
	new_input(b, 3, (const int64_t[]){ N, H, D });
	for (int i = 0; i < N; i++)
		pos[i] = i % 7;
	b->pos = ints(b, pos, N);
	OK(dmem_take(&b->mem, sizeof freq, &b->freq, &e));
	OK(dev_upload(b->freq, freq, sizeof freq, &e));
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
	new_input(b, 2, (const int64_t[]){ N, C });
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_param(b, 2, OUT, C);
	new_param(b, 1, OUT, 1);
	new_param(b, 2, R, C);
	new_param(b, 2, OUT, R);
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
	struct err e = { 0 };
	struct param *w[3];
	new_input(b, 2, (const int64_t[]){ N, C });
	w[0] = new_frozen(b, OUT, C);
	w[1] = new_frozen(b, 5, C);
	w[2] = new_frozen(b, 9, C);
	OK(param_join(w, 3, &e));
	new_param(b, 2, R, C);
	new_param(b, 2, OUT, R);
	new_param(b, 2, 2, C);
	new_param(b, 2, 9, 2);
	b->build = build_joined;
}

static int build_attention(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_attention_apply(&b->tape, b->used[0], b->used[1], b->used[2], b->par[0],
				  b->starts, b->starts, 3, 4, 0.35f, 2, y_p, e);
}

static void case_attention(struct bench *b)
{
	new_input(b, 3, (const int64_t[]){ N, H, D });
	new_input(b, 3, (const int64_t[]){ N, G, D });
	new_input(b, 3, (const int64_t[]){ N, G, D });
	new_param(b, 1, H, 1);
	b->starts = ints(b, (const int32_t[]){ 0, 1, 6, N }, 4);
	b->build = build_attention;
}

static int build_swiglu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_swiglu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_swiglu(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_swiglu;
}

static int build_swiglu_oss(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_swiglu_oss_apply(&b->tape, b->used[0], b->used[1], 1.7f, 2.2f, y_p, e);
}

static void case_swiglu_oss(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_swiglu_oss;
}

static int build_geglu(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_geglu_apply(&b->tape, b->used[0], b->used[1], y_p, e);
}

static void case_geglu(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_geglu;
}

static int build_add(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_add_apply(&b->tape, b->used[0], 0.75f, b->used[1], y_p, e);
}

static void case_add(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_add;
}

static int build_columns(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct tensor *part[2];
	TRY(op_columns_apply(&b->tape, b->used[0], 0, 9, &part[0], e));
	TRY(op_columns_apply(&b->tape, b->used[0], 9, 9, &part[1], e));
	return op_swiglu_apply(&b->tape, part[0], part[1], y_p, e);
}

static void case_columns(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, 18 });
	b->build = build_columns;
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
	new_input(b, 2, (const int64_t[]){ N, (H + 2 * G) * D });
	b->starts = ints(b, (const int32_t[]){ 0, 1, 6, N }, 4);
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
	new_input(b, 2, (const int64_t[]){ N, 18 });
	b->build = build_slice_gated;
}

static int build_loss(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_loss_apply(&b->tape, b->used[0], b->par[0], b->rows, b->labels, DEV_NONE,
			     DEV_NONE, TRAINED, 0.5f, 3, 1, y_p, e);
}

static void case_loss(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, C });
	new_param(b, 2, V, C);
	b->rows = ints(b, (const int32_t[]){ 0, 2, 3, 5, 8, 11, 12 }, TRAINED);
	b->labels = ints(b, (const int32_t[]){ 1, 0, 36, 7, 7, 20, 3 }, TRAINED);
	b->build = build_loss;
}

static int build_act(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_act_apply(&b->tape, b->used[0], ACT_GELU, y_p, e);
}

static void case_act(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_act;
}

static int build_layernorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_layernorm_apply(&b->tape, b->used[0], b->par[0], b->par[1], C, 1e-5f, y_p, e);
}

static void case_layernorm(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, C });
	new_param(b, 1, C, 1);
	new_param(b, 1, C, 1);
	b->build = build_layernorm;
}

static int build_batchnorm(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_batchnorm_apply(&b->tape, b->used[0], b->par[0], b->par[1], 1e-2f, y_p, e);
}

static void case_batchnorm(struct bench *b)
{
	new_input(b, 3, (const int64_t[]){ 5, 3, 4 });
	new_param(b, 1, 3, 1);
	new_param(b, 1, 3, 1);
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
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_param(b, 1, OUT, 1);
	new_param(b, 1, OUT, 1);
	b->build = build_concat;
}

static int build_dropout(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_dropout_apply(&b->tape, b->used[0], 0.25f, DEV_NONE, 99, y_p, e);
}

static void case_dropout(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, OUT });
	b->build = build_dropout;
}

static int build_mse(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_mse_apply(&b->tape, b->used[0], b->freq, 1, y_p, e);
}

static void case_mse(struct bench *b)
{
	struct err e = { 0 };
	float target[N * OUT];
	new_input(b, 2, (const int64_t[]){ N, OUT });
	fill(b, target, N * OUT, 1);
	OK(dmem_take(&b->mem, sizeof target, &b->freq, &e));
	OK(dev_upload(b->freq, target, sizeof target, &e));
	b->build = build_mse;
}

static int build_xent(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_xent_apply(&b->tape, b->used[0], b->labels, DEV_NONE, 1, y_p, e);
}

static void case_xent(struct bench *b)
{
	int32_t label[N];
	new_input(b, 2, (const int64_t[]){ N, OUT });
	for (int i = 0; i < N; i++)
		label[i] = i % 4 == 3 ? -100 : i;
	b->labels = ints(b, label, N);
	b->build = build_xent;
}

static int build_conv2d(struct bench *b, struct tensor **y_p, struct err *e)
{
	const struct conv2d c = { 3, 2, 2, 1, 0 };
	return op_conv2d_apply(&b->tape, b->used[0], b->par[0], b->par[1], &c, y_p, e);
}

static void case_conv2d(struct bench *b)
{
	new_input(b, 4, (const int64_t[]){ 3, 2, 5, 4 });
	new_param(b, 2, 4, 2 * 3 * 2);
	new_param(b, 1, 4, 1);
	b->build = build_conv2d;
}

static int build_pool(struct bench *b, struct tensor **y_p, struct err *e)
{
	return op_pool_apply(&b->tape, b->used[0], 2, 1, true, y_p, e);
}

static void case_pool(struct bench *b)
{
	new_input(b, 4, (const int64_t[]){ 3, 2, 5, 4 });
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
	new_input(b, 2, (const int64_t[]){ N, OUT });
	new_param(b, 1, OUT - 1, 1);
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
	new_input(b, 2, (const int64_t[]){ N, EXPERTS });
	b->build = build_route_sigmoid;
}

static void case_route(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, EXPERTS });
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

static int build_permute(struct bench *b, struct tensor **y_p, struct err *e)
{
	struct routing *r;
	TRY(choose(b, EXPERTS, &r, e));
	return op_permute_apply(&b->tape, b->used[0], r, y_p, e);
}

static void case_permute(struct bench *b)
{
	new_input(b, 2, (const int64_t[]){ N, C });
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
	new_input(b, 2, (const int64_t[]){ N, C });
	new_param(b, 2, OUT, C);
	new_param(b, 2, OUT, C);
	new_param(b, 2, R, C);
	new_param(b, 2, OUT, R);
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
	new_input(b, 2, (const int64_t[]){ N * CHOSEN, C });
	new_input(b, 2, (const int64_t[]){ N, CHOSEN });
	new_input(b, 2, (const int64_t[]){ N, C });
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
	{ "add", case_add, false },
	{ "columns", case_columns, false },
	{ "slice", case_slice, false },
	{ "slice", case_slice_gated, false },
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
	{ "permute", case_permute, false },
	{ "grouped", case_grouped, false },
	{ "unpermute", case_unpermute, false },
};

/* ---- the check ---- */

static float *host(struct dev_ref r) { return (float *)((char *)r.buf->host + r.off); }

static int apply(struct bench *b, struct tensor **y_p, struct err *e)
{
	for (size_t i = 0; i < b->nin; i++) {
		TRY(tape_new(&b->tape, &b->mem, DT_F32, b->in[i]->ndim, b->in[i]->dim, &b->used[i],
			     e));
		TRY(dev_copy(b->used[i]->at, b->in[i]->at, tensor_bytes(b->in[i]), e));
		b->used[i]->needs_grad = true;
	}
	tape_reset(&b->tape);
	return b->build(b, y_p, e);
}

/* L = sum(g*y) with fixed random g; the forward's memory is given back. */
static double objective(struct bench *b, bool unit)
{
	struct err e = { 0 };
	struct dmem_mark k = dmem_mark(&b->mem); /* the gradients lie below it */
	struct tensor *y;
	OK(apply(b, &y, &e));
	double sum = 0;
	struct rng_key g = rng_key(4711);
	for (int64_t i = 0; i < tensor_count(y); i++)
		sum += (unit ? 1.0 : (double)rng_normal(g, (uint64_t)i)) * (double)host(y->at)[i];
	dmem_back(&b->mem, k);
	return sum;
}

static void gradients(struct bench *b, bool unit)
{
	struct err e = { 0 };
	struct tensor *y;
	struct dev_ref seed;
	struct rng_key g = rng_key(4711);
	OK(apply(b, &y, &e));
	OK(dmem_take(&b->scratch, tensor_bytes(y), &seed, &e));
	for (int64_t i = 0; i < tensor_count(y); i++)
		host(seed)[i] = unit ? 1 : rng_normal(g, (uint64_t)i);
	OK(tape_seed(&b->tape, y, seed, &e));
	OK(tape_backward(&b->tape, &e));
}

/* values moves along d by h; returns the largest relative disagreement over a few directions. */
static double check(struct bench *b, float *value, const float *grad, int64_t n, bool unit)
{
	double worst = 0, norm = 0;
	float *keep = mem_array((size_t)n, 4), *copy = mem_array((size_t)n, 4);
	memcpy(keep, value, (size_t)n * 4);
	memcpy(copy, grad, (size_t)n * 4);
	for (int64_t i = 0; i < n; i++)
		norm += (double)copy[i] * (double)copy[i];
	for (int t = 0; t < 4; t++) {
		struct rng_key d = rng_key(99 + (uint64_t)t);
		double len = 0, dot = 0, l[2];
		for (int64_t i = 0; i < n; i++)
			len += pow((double)rng_normal(d, (uint64_t)i), 2);
		float h = step_size / (float)sqrt(len);
		for (int side = 0; side < 2; side++) {
			for (int64_t i = 0; i < n; i++)
				value[i] = keep[i] + (side ? -h : h) * rng_normal(d, (uint64_t)i);
			l[side] = objective(b, unit);
		}
		for (int64_t i = 0; i < n; i++)
			dot += (double)copy[i] * (double)rng_normal(d, (uint64_t)i);
		double numeric = (l[0] - l[1]) / (2 * (double)h),
		       err = fabs(numeric - dot) / (sqrt(norm) * sqrt(len / (double)n) + 1e-3);
		if (!(err <= worst))
			worst = err;
	}
	memcpy(value, keep, (size_t)n * 4);
	mem_free(keep);
	mem_free(copy);
	return worst;
}

static void release(struct bench *b)
{
	for (size_t i = 0; i < b->npar; i++)
		param_release(&b->store[i]);
	for (size_t i = 0; i < b->nfrozen; i++)
		param_release(&b->frozen[i]);
	dmem_release(&b->mem);
	dmem_release(&b->scratch);
	arena_release(&b->host);
	dev_close(b->dev);
}

static void open_bench(struct bench *b)
{
	struct err e = { 0 };
	memset(b, 0, sizeof *b);
	b->key = 1000;
	OK(dev_open("cpu", &b->dev, &e));
	dmem_init(&b->mem, b->dev, 1 << 20);
	dmem_init(&b->scratch, b->dev, 1 << 20);
	b->tape = (struct tape){ .dev = b->dev,
				 .act = DT_F32,
				 .mem = &b->mem,
				 .scratch = &b->scratch,
				 .host = &b->host,
				 .record = true };
}

static void one_case(size_t c)
{
	struct bench b;
	open_bench(&b);
	cases[c].make(&b);
	gradients(&b, cases[c].unit_seed);
	struct tensor *grad[3] = { 0 };
	/* copies: the loss adds to its head's gradient in every forward */
	float *pgrad[4] = { 0 };
	for (size_t i = 0; i < b.nin; i++)
		grad[i] = b.used[i]->grad;
	for (size_t k = 0; k < b.npar; k++) {
		pgrad[k] = mem_array((size_t)param_count(b.par[k]), 4);
		memcpy(pgrad[k], b.par[k]->grad->host, (size_t)param_count(b.par[k]) * 4);
	}
	double worst = 0;
	for (size_t i = 0; i < b.nin; i++) {
		assert_non_null(grad[i]);
		double err = check(&b, host(b.in[i]->at), host(grad[i]->at), tensor_count(b.in[i]),
				   cases[c].unit_seed);
		worst = err > worst || isnan(err) ? err : worst;
	}
	for (size_t i = 0; i < b.npar; i++) {
		double err = check(&b, b.par[i]->value->host, pgrad[i], param_count(b.par[i]),
				   cases[c].unit_seed);
		mem_free(pgrad[i]);
		worst = err > worst || isnan(err) ? err : worst;
	}
	printf("%-10s largest relative error %.2e\n", cases[c].op, worst);
	if (!(worst <= tolerance))
		fail_msg("%s: gradient and finite difference disagree by %.3g", cases[c].op, worst);
	release(&b);
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

/* The parts of a joined op, as linear layers of their own, give the same numbers and gradients:
 * with dropout and without; plain, NF4, and plain weights that do not lie one behind the other. */
static void joined_layers_are_the_layers(void **state)
{
	enum { ROWS = 20, IN = 32 };
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct err e = { 0 };
		struct bench b;
		struct param q[2], *both[2] = { &q[0], &q[1] };
		struct joined_linear j = { .n = 2, .key = { 11, 12 } };
		struct tensor *x, *y, *z[2];
		struct dev_ref seed;
		float w[ROWS * IN], kept[4][ROWS * IN], dx[N * IN];
		open_bench(&b);
		x = new_input(&b, 2, (const int64_t[]){ N, IN });
		for (int i = 0; i < 2; i++) {
			const int64_t dim[2] = { ROWS, IN };
			uint8_t packed[ROWS * IN / 2];
			float absmax[ROWS * IN / 64];
			fill(&b, w, ROWS * IN, 1);
			nf4_quantize(w, ROWS * IN, packed, absmax);
			const struct nf4_parts parts = {
				.packed = packed, .absmax = absmax, .code = nf4_code, .block = 64
			};
			if (how / 2 == 1)
				OK(param_init_nf4(&q[i], b.dev, "q", dim, &parts, &e));
			else
				OK(param_init_plain(&q[i], b.dev, "q", 2, dim, DT_F32, false, &e));
			if (how / 2 != 1)
				OK(param_upload_f32(&q[i], 0, ROWS * IN, w, &e));
			new_param(&b, 2, R + i, IN);
			new_param(&b, 2, ROWS, R + i);
			j.part[i] =
				(struct linear_part){ .w = &q[i],
						      .lora = { .a = b.par[2 * i],
								.b = b.par[2 * i + 1],
								.scale = 1.5f,
								.dropout = how % 2 ? 0.25f : 0 } };
		}
		if (how / 2 == 2)
			OK(param_join(both, 2, &e));
		OK(dmem_take(&b.mem, N * 2 * ROWS * 4, &seed, &e));
		fill(&b, host(seed), N * 2 * ROWS, 1);
		OK(op_joined_apply(&b.tape, x, &j, &y, &e));
		OK(tape_seed(&b.tape, y, seed, &e));
		OK(tape_backward(&b.tape, &e));
		memcpy(dx, host(x->grad->at), sizeof dx);
		for (int k = 0; k < 4; k++) {
			const size_t bytes = (size_t)param_count(b.par[k]) * 4;
			memcpy(kept[k], b.par[k]->grad->host, bytes);
			OK(dev_zero(DEV_REF(b.par[k]->grad, 0), bytes, &e));
		}
		tape_reset(&b.tape);
		x->grad = NULL;
		x->grad_written = false;
		double worst = 0;
		for (int i = 0; i < 2; i++) {
			OK(op_linear_apply(&b.tape, x, &q[i], NULL, &j.part[i].lora, j.key[i], NULL,
					   &z[i], &e));
			struct dev_ref part;
			OK(dmem_take(&b.mem, N * ROWS * 4, &part, &e));
			for (int64_t r = 0; r < N; r++)
				for (int64_t c = 0; c < ROWS; c++) {
					const int64_t at = r * 2 * ROWS + i * ROWS + c;
					host(part)[r * ROWS + c] = host(seed)[at];
					worst = fmax(worst,
						     fabs((double)host(y->at)[at] -
							  (double)host(z[i]->at)[r * ROWS + c]));
				}
			OK(tape_seed(&b.tape, z[i], part, &e));
		}
		OK(tape_backward(&b.tape, &e));
		for (int i = 0; i < N * IN; i++)
			worst = fmax(worst, fabs((double)dx[i] - (double)host(x->grad->at)[i]));
		for (int k = 0; k < 4; k++)
			for (int64_t i = 0; i < param_count(b.par[k]); i++)
				worst = fmax(worst,
					     fabs((double)kept[k][i] -
						  (double)((float *)b.par[k]->grad->host)[i]));
		printf("joined %d: largest difference %.2e\n", how, worst);
		if (!(worst <= 1e-4))
			fail_msg("joined %d: differs by %.3g", how, worst);
		for (int i = 0; i < 2; i++)
			param_release(&q[i]);
		release(&b);
	}
}

/* A weight in NF4 gives the very product of its expanded numbers, both ways, whatever the panel
 * size. */
static void nf4_weight_is_its_expansion(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct bench b;
	open_bench(&b);
	for (int dq = 0; dq < 2; dq++) {
		enum { ROWS = 130, COLS = 96 };
		const int64_t dim[2] = { ROWS, COLS };
		static float w[ROWS * COLS], x[N * ROWS];
		uint8_t packed[ROWS * COLS / 2];
		float absmax[ROWS * COLS / 64], absmax2[1], offset;
		uint8_t absmax8[ROWS * COLS / 64];
		struct param q, plain;
		fill(&b, w, ROWS * COLS, 1);
		fill(&b, x, N * ROWS, 1);
		nf4_quantize(w, ROWS * COLS, packed, absmax);
		nf4_quantize_absmax(absmax, ARRAY_LEN(absmax), absmax8, absmax2, &offset);
		const struct nf4_parts parts = { .packed = packed,
						 .absmax = dq ? NULL : absmax,
						 .absmax8 = absmax8,
						 .code = nf4_code,
						 .code2 = nf4_code2(),
						 .absmax2 = absmax2,
						 .offset = offset,
						 .block = NF4_BLOCK };
		OK(param_init_nf4(&q, b.dev, "q", dim, &parts, &e));
		OK(nf4_expand_host(&q, 0, ROWS, w, &e));
		OK(param_init_plain(&plain, b.dev, "plain", 2, dim, DT_F32, false, &e));
		OK(param_upload_f32(&plain, 0, ROWS * COLS, w, &e));
		for (int back = 0; back < 2; back++) {
			int64_t in = back ? ROWS : COLS, out = back ? COLS : ROWS;
			struct dev_ref xr, y[2];
			OK(dmem_take(&b.mem, N * ROWS * 4, &xr, &e));
			OK(dev_upload(xr, x, (size_t)(N * in) * 4, &e));
			for (int k = 0; k < 2; k++) {
				OK(dmem_take(&b.mem, N * ROWS * 4, &y[k], &e));
				OK(weight_matmul(k ? &q.w : &plain.w, &b.scratch, DT_F32, back,
						 y[k], xr, N, 0, DEV_NONE, &e));
			}
			double worst = 0;
			for (int64_t i = 0; i < N * out; i++)
				worst = fmax(worst,
					     fabs((double)host(y[0])[i] - (double)host(y[1])[i]));
			printf("double_quant %d back %d: largest difference %.2e\n", dq, back,
			       worst);
			assert_true(worst <= 1e-4);
		}
		param_release(&q);
		param_release(&plain);
	}
	release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_against_finite_differences),
		cmocka_unit_test(joined_layers_are_the_layers),
		cmocka_unit_test(nf4_weight_is_its_expansion),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
