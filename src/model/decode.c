/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - generation: the layers of a stage over one sequence, keys and values kept. */
#include "model/decoder.h"
#include "model/delta.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>

/* What a layer keeps of `cap` positions; 0: too much. */
static uint64_t layer_bytes(const struct stage *s, int64_t index, int64_t cap)
{
	const struct model_config *m = &s->cfg;
	uint64_t bytes = (uint64_t)(layer_kv_heads(m, index) * layer_head_dim(m, index)) *
			 dtype_size(s->opt.act) * 2;
	if (m->delta[index])
		return delta_kept_bytes(m, s->opt.act);
	return mul_ok(bytes, (uint64_t)cap, &bytes) && bytes < SIZE_MAX / 2 ? bytes : 0;
}

int kv_init(struct kv_cache *c, struct stage *s, int64_t cap, struct err *e)
{
	const int64_t layers = s->opt.last - s->opt.first;
	uint64_t bytes = 0;
	*c = (struct kv_cache){ .stage = s, .cap = cap };
	c->at = mem_array((size_t)layers + 1, sizeof *c->at);
	if (!c->at)
		return err_nomem(e, (size_t)layers * sizeof *c->at, "keys and values");
	for (int64_t i = 0; i < layers; i++) {
		const uint64_t each = cap < 1 ? 0 : layer_bytes(s, s->opt.first + i, cap);
		c->at[i] = bytes;
		bytes += (each + 63) / 64 * 64;
		if (!each || bytes > SIZE_MAX / 2) {
			kv_release(c);
			return err_nomem(e, each, "keys and values");
		}
	}
	dmem_init(&c->mem, s->dev, 4 << 20);
	if (s->end && !(c->logits = mem_array((size_t)s->cfg.vocab, sizeof *c->logits))) {
		kv_release(c);
		return err_nomem(e, (unsigned long long)s->cfg.vocab * 4, "logits");
	}
	int rc = dev_alloc(s->dev, bytes, &c->kv, e);
	if (rc >= 0 && s->cfg.delta_layers)
		rc = dev_zero(DEV_REF(c->kv, 0), bytes, e);
	if (rc < 0)
		kv_release(c);
	return rc;
}

void kv_release(struct kv_cache *c)
{
	dev_free(c->kv);
	dmem_release(&c->mem);
	arena_release(&c->host);
	mem_free(c->logits);
	mem_free(c->at);
	*c = (struct kv_cache){ 0 };
}

static int upload_ints(struct kv_cache *c, const int32_t *v, int64_t n, struct dev_ref *r_p,
		       struct err *e)
{
	TRY(dmem_take(&c->mem, (size_t)n * 4, r_p, e));
	return dev_upload(*r_p, v, (size_t)n * 4, e);
}

/* v (V): the logits after the last row of h (N,C). */
static int last_logits(struct stage *s, struct tape *t, struct tensor *h, float *v, struct err *e)
{
	const int64_t dim[2] = { 1, s->cfg.hidden };
	struct dev_ref at = h->at, logits;
	struct tensor *last, *x; /* (1,C) */
	at.off += (size_t)((h->dim[0] - 1) * s->cfg.hidden) * dtype_size(s->opt.act);
	TRY(tape_tensor(t, s->opt.act, 2, dim, at, &last, e));
	TRY(op_rmsnorm_apply(t, last, s->norm, s->cfg.hidden, (float)s->cfg.norm_eps,
			     s->cfg.norm_plus, NULL, &x, e));
	TRY(dmem_take(t->mem, (size_t)s->cfg.vocab * 4, &logits, e));
	TRY(dev_gemm(s->dev,
		     &(struct dev_gemm){ .m = 1,
					 .n = s->cfg.vocab,
					 .k = s->cfg.hidden,
					 .tb = true,
					 .a = x->at,
					 .b = s->head->w.data,
					 .c = logits,
					 .lda = s->cfg.hidden,
					 .ldb = s->cfg.hidden,
					 .ldc = s->cfg.vocab,
					 .ab_dtype = s->opt.act,
					 .c_dtype = DT_F32,
					 .alpha = model_factor(s->cfg.logit_scale) },
		     e));
	TRY(dev_download(v, logits, (size_t)s->cfg.vocab * 4, e));
	const float cap = (float)s->cfg.logit_cap;
	for (int64_t i = 0; cap > 0 && i < s->cfg.vocab; i++)
		v[i] = cap * tanhf(v[i] / cap);
	return 0;
}

int stage_logits(struct slot *sl, float *v, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t dim[2] = { sl->b.n, s->cfg.hidden };
	struct tape t = { .dev = s->dev,
			  .act = s->opt.act,
			  .mem = &sl->mem,
			  .scratch = s->scratch,
			  .host = &sl->host };
	struct tensor *h;
	TRY(tape_tensor(&t, s->opt.act, 2, dim, sl->out, &h, e));
	return last_logits(s, &t, h, v, e);
}

int kv_step(struct kv_cache *c, const int32_t *id, struct dev_ref in, int64_t n, struct err *e)
{
	struct stage *s = c->stage;
	if (n < 1 || n > c->cap - c->len)
		return err_set(e, ERR_INPUT,
			       "the text is longer than the %lld positions that were reserved",
			       (long long)c->cap);
	dmem_reset(&c->mem);
	arena_reset(&c->host);
	struct tape t = { .dev = s->dev,
			  .act = s->opt.act,
			  .mem = &c->mem,
			  .scratch = &c->mem,
			  .host = &c->host };
	int32_t *pos = arena_alloc(&c->host, (size_t)n * 4);
	if (!pos)
		return err_nomem(e, (unsigned long long)n * 4, "positions");
	for (int64_t i = 0; i < n; i++)
		pos[i] = (int32_t)(c->len + i);
	const int32_t starts[2] = { 0, (int32_t)n }, kstarts[2] = { 0, (int32_t)(c->len + n) };
	struct layer_context x = { .stage = s, .nseq = 1, .kv = c };
	TRY(upload_ints(c, pos, n, &x.pos, e));
	TRY(upload_ints(c, starts, 2, &x.starts, e));
	TRY(upload_ints(c, kstarts, 2, &x.kstarts, e));
	TRY(rope_upload(&s->cfg, starts, 1, c->cap, &c->mem, &c->host, &x.rope, e));
	const int64_t dim[2] = { n, s->cfg.hidden };
	struct tensor *h;
	if (s->front) {
		struct dev_ref ids;
		for (int64_t i = 0; i < n; i++)
			if (id[i] < 0 || id[i] >= s->cfg.vocab)
				return err_set(
					e, ERR_INPUT,
					"token id %d is outside the model's vocabulary of %lld",
					id[i], (long long)s->cfg.vocab);
		TRY(upload_ints(c, id, n, &ids, e));
		TRY(stage_embed(&t, s, ids, n, &h, e));
	} else {
		TRY(tape_tensor(&t, s->opt.act, 2, dim, in, &h, e));
	}
	struct tensor *keep; /* (N,C): the input of each layer after the first, and the result */
	TRY(tape_new(&t, &c->mem, s->opt.act, 2, dim, &keep, e));
	for (int64_t i = 0; i < s->opt.last - s->opt.first; i++) {
		struct dmem_mark k = dmem_mark(&c->mem);
		x.index = s->opt.first + i;
		TRY(decoder_layer(&t, &s->layer[i], &x, i ? keep : h, &h, e));
		TRY(dev_copy(keep->at, h->at, tensor_bytes(h), e));
		dmem_back(&c->mem, k);
	}
	c->len += n;
	c->out = keep->at;
	return s->end ? last_logits(s, &t, keep, c->logits, e) : 0;
}
