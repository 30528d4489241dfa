/* SPDX-License-Identifier: Apache-2.0 */
/* own_attention.c - causal attention over the rows of a sequence, with rotary positions: the linear
 * layers q_proj, k_proj, v_proj and o_proj around it. */
#include "model/own.h"

#include "base/err.h"

#include <math.h>

enum { HEADS, KV_HEADS, THETA, BIAS }; /* v[] */

static int64_t kv_heads(const struct own_block *b)
{
	return (int64_t)(b->v[KV_HEADS] > 0 ? b->v[KV_HEADS] : b->v[HEADS]);
}

static int64_t head_dim(const struct own_block *b) { return b->in.dim[0] / (int64_t)b->v[HEADS]; }

static const char *fit(struct own_block *b)
{
	const int64_t heads = (int64_t)b->v[HEADS];
	b->out = b->in;
	if (b->in.ndim != 1 || b->in.dim[0] % (2 * heads) || head_dim(b) > MODEL_HEAD_DIM_MOST)
		return "(width), with width / heads an even number up to 512";
	return heads % kv_heads(b) ? "(width), with heads a multiple of kv_heads" : NULL;
}

static size_t params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	static const char *const weight[] = { "q_proj.weight", "k_proj.weight", "v_proj.weight",
					      "o_proj.weight" };
	static const char *const bias[] = { "q_proj.bias", "k_proj.bias", "v_proj.bias",
					    "o_proj.bias" };
	const int64_t c = b->in.dim[0], kv = kv_heads(b) * head_dim(b);
	size_t n = 0;
	for (int i = 0; i < 4; i++) {
		const int64_t out = i == 1 || i == 2 ? kv : c;
		p[n++] = (struct own_param){ weight[i], 2, { out, c }, FIRST_UNIFORM, c };
		if (b->v[BIAS] > 0)
			p[n++] = (struct own_param){ bias[i], 1, { out, 1 }, FIRST_UNIFORM, c };
	}
	return n;
}

static int project(struct own_run *r, const struct own_block *b, struct tensor *x, int64_t heads,
		   struct tensor **y_p, struct err *e)
{
	static const struct lora none = { 0 };
	struct param *w = own_take(r), *bias = b->v[BIAS] > 0 ? own_take(r) : NULL;
	TRY(op_linear_apply(r->t, x, w, bias, &none, 0, NULL, y_p, e));
	if (heads) {
		(*y_p)->ndim = 3;
		(*y_p)->dim[1] = heads;
		(*y_p)->dim[2] = head_dim(b);
	}
	return 0;
}

/* Frequencies (D/2) of the rotation (Su et al. 2021). */
static int frequencies(struct own_run *r, const struct own_block *b, struct dev_ref *f_p,
		       struct err *e)
{
	const int64_t d = head_dim(b);
	float *f = arena_alloc(r->t->host, (size_t)d / 2 * sizeof *f);
	if (!f)
		return err_nomem(e, (size_t)d * 2, "rotary frequencies");
	for (int64_t i = 0; i < d / 2; i++)
		f[i] = (float)pow(b->v[THETA], -2.0 * (double)i / (double)d);
	TRY(dmem_take(r->t->mem, (size_t)d / 2 * sizeof *f, f_p, e));
	return dev_upload(*f_p, f, (size_t)d / 2 * sizeof *f, e);
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	const struct slot *sl = r->sl;
	struct tensor *q, *k, *v, *o;
	TRY(project(r, b, x, (int64_t)b->v[HEADS], &q, e));
	TRY(project(r, b, x, kv_heads(b), &k, e));
	TRY(project(r, b, x, kv_heads(b), &v, e));
	if (b->v[THETA] > 0) {
		struct rope rope = { .pos = sl->pos, .scale = 1 };
		TRY(frequencies(r, b, &rope.freq, e));
		TRY(op_rope_apply(r->t, q, &rope, &q, e));
		TRY(op_rope_apply(r->t, k, &rope, &k, e));
	}
	TRY(op_attention_apply(r->t, q, k, v, NULL, sl->starts, sl->starts, sl->b.nseq, 0,
			       1.0f / sqrtf((float)head_dim(b)), 0, &o, e));
	return project(r, b, o, 0, y_p, e);
}

static double flops(const struct own_block *b)
{
	const double c = b->in.dim[0], kv = (double)(kv_heads(b) * head_dim(b));
	return 4 * c * c + 4 * c * kv; /* without those of the scores, by the length */
}

const struct own_kind own_attention = { .name = "attention",
					.help = "causal attention with rotary positions",
					.key = { { "heads", 1, 4096, NAN, true },
						 { "kv_heads", 0, 4096, 0, true },
						 { "theta", 0, 1e9, 10000, false },
						 { "bias", 0, 1, 0, true } },
					.fit = fit,
					.params = params,
					.forward = forward,
					.flops = flops };
