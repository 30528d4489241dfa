/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_build.c - see decoder_build.h. */
#include "model/decoder_build.h"
#include "model/block.h"

#include "base/err.h"
#include "base/mem.h"
#include "tensor/expert_cache.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static int add_lora(struct stage_builder *b, int layer, enum linear l, const char *module,
		    struct lora *out, struct err *e)
{
	struct stage *s = b->s;
	const struct lora_options *o = &s->opt.lora;
	int64_t dim[2], shape[2][2];
	linear_dims(&s->cfg, layer, l, dim);
	shape[0][0] = shape[1][1] = lora_rank(o, layer, l);
	shape[0][1] = dim[1];
	shape[1][0] = dim[0];
	struct param *p[2];
	for (int i = 0; i < 2; i++) {
		char name[128];
		snprintf(name, sizeof name, "%s.lora_%c.weight", module, "AB"[i]);
		const char *kept = arena_strdup(&s->names, name);
		int64_t n = shape[i][0] * shape[i][1];
		if (!kept || !mem_grow(&b->part, &b->cap, (size_t)n, sizeof *b->part))
			return err_nomem(e, (unsigned long long)n * 4, name);
		p[i] = &s->param[s->nparam];
		TRY(stage_param_plain(b, p[i], kept, 2, shape[i], true, e));
		s->nparam++;
		p[i]->layer = layer;
		if (p[i]->away)
			continue;
		if (i == 0)
			lora_init_a(o->seed, name, dim[1], b->part, n);
		else
			memset(b->part, 0, (size_t)n * 4);
		TRY(param_upload_f32(p[i], 0, n, b->part, e));
	}
	p[1]->rate = o->b_rate;
	*out = (struct lora){
		.a = p[0], .b = p[1], .scale = lora_factor(o, l), .dropout = o->dropout
	};
	return 0;
}

/* DoRA begins with the norms of the weight's rows. */
static int add_magnitudes(struct stage_builder *b, int layer, const char *module,
			  const struct param *w, struct lora *lora, struct err *e)
{
	struct stage *s = b->s;
	struct param *p = &s->param[s->nparam];
	char name[128];
	snprintf(name, sizeof name, "%s.lora_magnitude_vector", module);
	const char *kept = arena_strdup(&s->names, name);
	if (!kept || !mem_grow(&b->part, &b->cap, (size_t)w->dim[0], sizeof *b->part))
		return err_nomem(e, (unsigned long long)w->dim[0] * 4, name);
	if (w->gathered)
		return err_set(e, ERR_UNSUPPORTED,
			       "peft_use_dora with 'shard: parameters' is not supported");
	TRY(stage_param_plain(b, p, kept, 1, w->dim, true, e));
	s->nparam++;
	p->layer = layer;
	lora->m = p;
	if (p->away)
		return 0;
	struct dmem_mark k = dmem_mark(s->scratch);
	struct dev_ref norm;
	TRY(dmem_take(s->scratch, (size_t)w->dim[0] * 4, &norm, e));
	TRY(weight_row_norms(&w->w, NULL, NULL, 0, s->scratch, s->opt.act, norm, e));
	TRY(dev_download(b->part, norm, (size_t)w->dim[0] * 4, e));
	dmem_back(s->scratch, k);
	return param_upload_f32(p, 0, w->dim[0], b->part, e);
}

/* A linear module, or that of one expert, with its adapter. */
static int add_linear(struct stage_builder *b, int layer, enum linear l, int64_t expert,
		      struct linear_part *out, struct err *e)
{
	struct stage *s = b->s;
	const struct lora_options *o = &s->opt.lora;
	char module[LINEAR_MODULE], name[128];
	int64_t dim[2];
	linear_dims(&s->cfg, layer, l, dim);
	linear_module(module, layer, l, expert);
	snprintf(name, sizeof name, "%s.weight", module);
	TRY(stage_param_add(b, layer, name, 2, dim, linear_is_quantized(name), &out->w, e));
	snprintf(name, sizeof name, "%s.bias", module);
	if (linear_has_bias(&s->cfg, l))
		TRY(stage_param_add(b, layer, name, 1, dim, false, &out->bias, e));
	if (lora_rank(o, layer, l)) {
		TRY(add_lora(b, layer, l, module, &out->lora, e));
		if (o->dora)
			TRY(add_magnitudes(b, layer, module, out->w, &out->lora, e));
	}
	return s->opt.experts && linear_is_expert(l) && !out->w->trainable && !out->w->gathered
		       ? expert_cache_take(s->opt.experts, out->w, e)
		       : 0;
}

/* Brings matrices together whose products are made as one, and their adapters' A. */
static int join(struct layer *l, const enum linear *i, int n, struct err *e)
{
	struct param *w[JOINED_MOST], *a[JOINED_MOST];
	int adapters = 0;
	if (!block_joins(l, i, n))
		return 0;
	for (int k = 0; k < n; k++) {
		w[k] = l->lin[i[k]].w;
		if (l->lin[i[k]].lora.a)
			a[adapters++] = l->lin[i[k]].lora.a;
	}
	TRY(param_join(w, n, e));
	return adapters > 1 ? param_join(a, adapters, e) : 0;
}

static int join_all(const struct model_config *c, struct layer *l, struct err *e)
{
	static const enum linear qkv[] = { LIN_Q, LIN_K, LIN_V };
	const enum linear gate_up[] = { linear_as(c, LIN_GATE), linear_as(c, LIN_UP) };
	if (!c->qk_norm)
		TRY(join(l, qkv, 3, e));
	return join(l, gate_up, 2, e);
}

static int add_norm(struct stage_builder *b, int64_t index, enum layer_norm n, struct layer *l,
		    struct err *e)
{
	const struct model_config *c = &b->s->cfg;
	const char *which = layer_norm_name(c, n);
	char name[128];
	if (!which)
		return 0;
	snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)index, which);
	return stage_param_add(b, (int)index, name, 1, &c->hidden, false, &l->norm[n], e);
}

/* What linear attention, or a short convolution, has beside linear modules. */
static int add_delta(struct stage_builder *b, int64_t index, struct layer *l, struct err *e)
{
	const struct model_config *c = &b->s->cfg;
	for (enum delta_param p = 0; p < DELTA_PARAMS && delta_param_name(c, p); p++) {
		const int64_t count = delta_param_count(c, p);
		char name[128];
		snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)index,
			 delta_param_name(c, p));
		TRY(stage_param_add(b, (int)index, name, 1, &count, false, &l->delta[p], e));
		/* as transformers' Trainer has it: all but biases and norms */
		l->delta[p]->decay = p == DELTA_CONV || p == DELTA_DECAY;
	}
	return 0;
}

/* What a router has beside its matrix. transformers' Trainer takes it for no norm. */
static int add_router(struct stage_builder *b, int64_t index, struct layer *l, struct err *e)
{
	for (enum router_param p = 0; p < ROUTER_PARAMS; p++) {
		const int64_t count = router_param_count(&b->s->cfg, p);
		char name[128];
		snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)index,
			 router_param_name(p));
		TRY(stage_param_add(b, (int)index, name, 1, &count, false, &l->router[p], e));
		l->router[p]->decay = true;
	}
	return 0;
}

/* What the output is multiplied by. It is read here, so that it is at hand without a wait for the
 * device. */
static int add_scalar(struct stage_builder *b, int64_t index, struct layer *l, struct err *e)
{
	const int64_t one = 1;
	struct source_tensor t;
	char name[128];
	snprintf(name, sizeof name, "model.layers.%lld." MODEL_LAYER_SCALAR, (long long)index);
	const int found = b->src->find(b->src->ctx, name, &t, e);
	if (found < 0)
		return found;
	if (found && t.ndim == 1 && t.shape[0] == 1)
		TRY(b->src->read(b->src->ctx, name, 0, 1, &l->scale, e));
	return stage_param_add(b, (int)index, name, 1, &one, false, &l->scalar, e);
}

int decoder_build_layer(struct stage_builder *b, int64_t index, struct err *e)
{
	struct stage *s = b->s;
	struct layer *l = &s->layer[index - s->opt.first];
	const struct model_config *c = &s->cfg;
	char name[128];
	int at = snprintf(name, sizeof name, "model.layers.%lld.", (long long)index);
	char *rest = name + at;
	size_t room = sizeof name - (size_t)at;
	static const enum linear order[] = { LIN_CONV_IN,
					     LIN_CONV_OUT,
					     LIN_DELTA_QKV,
					     LIN_DELTA_Z,
					     LIN_DELTA_B,
					     LIN_DELTA_A,
					     LIN_DELTA_QKVZ,
					     LIN_DELTA_BA,
					     LIN_DELTA_OUT,
					     LIN_QKV,
					     LIN_Q_A,
					     LIN_Q_B,
					     LIN_Q,
					     LIN_KV_A,
					     LIN_KV_B,
					     LIN_K,
					     LIN_V,
					     LIN_O,
					     LIN_HEAD_GATE,
					     LIN_ATTN_OUT,
					     LIN_GATE_UP,
					     LIN_GATE,
					     LIN_UP,
					     LIN_DOWN,
					     LIN_ONE_IN,
					     LIN_ONE_OUT,
					     LIN_FF_GATE,
					     LIN_FF_UP,
					     LIN_FF_DOWN,
					     LIN_FF_ROUTER,
					     LIN_FF_EXPERT_GATE,
					     LIN_FF_EXPERT_UP,
					     LIN_FF_EXPERT_DOWN,
					     LIN_ROUTER,
					     LIN_EXPERT_GATE,
					     LIN_EXPERT_UP,
					     LIN_EXPERT_DOWN,
					     LIN_SPARSE_ROUTER,
					     LIN_SPARSE_W1,
					     LIN_SPARSE_W3,
					     LIN_SPARSE_W2,
					     LIN_OSS_ROUTER,
					     LIN_SIDE_ROUTER,
					     LIN_SIDE_GATE,
					     LIN_SIDE_UP,
					     LIN_SIDE_DOWN,
					     LIN_SHARED_GATE,
					     LIN_SHARED_UP,
					     LIN_SHARED_DOWN,
					     LIN_SHARED_SCORE,
					     LIN_SHARED_GATES,
					     LIN_SHARED_UPS,
					     LIN_SHARED_DOWNS };
	TRY(add_norm(b, index, NORM_ATTN_IN, l, e));
	for (size_t k = 0; k < ARRAY_LEN(order); k++) {
		const enum linear i = order[k];
		if (i == LIN_GATE_UP) {
			TRY(add_norm(b, index, NORM_ATTN_OUT, l, e));
			TRY(add_norm(b, index, NORM_MLP_IN, l, e));
		}
		if (!layer_has_linear(c, index, i))
			continue;
		if (i == LIN_SIDE_ROUTER) {
			TRY(add_norm(b, index, NORM_SIDE_MLP, l, e));
			TRY(add_router(b, index, l, e));
			TRY(add_norm(b, index, NORM_SIDE_IN, l, e));
		}
		if (linear_is_expert(i)) {
			l->experts[i] = mem_array((size_t)c->experts, sizeof *l->experts[i]);
			if (!l->experts[i])
				return err_nomem(e, (size_t)c->experts * sizeof *l->experts[i],
						 "experts");
		}
		for (int64_t x = 0; x < linear_copies(c, index, i); x++)
			TRY(add_linear(b, (int)index, i, x,
				       l->experts[i] ? &l->experts[i][x] : &l->lin[i], e));
		if (i == LIN_DELTA_A || i == LIN_DELTA_BA || i == LIN_CONV_IN)
			TRY(add_delta(b, index, l, e));
		/* no gradient ever reaches it, so that no optimizer moves it */
		if (correction_name(c) && (i == LIN_ROUTER || i == LIN_FF_ROUTER)) {
			snprintf(rest, room, "%s", correction_name(c));
			TRY(stage_param_add(b, (int)index, name, 1, &c->experts, false,
					    &l->correction, e));
		}
		if (c->sinks && i == LIN_O) {
			snprintf(rest, room, "self_attn.sinks");
			TRY(stage_param_add(b, (int)index, name, 1, &c->heads, false, &l->sinks,
					    e));
		}
		int64_t width;
		const char *norm = linear_norm(c, index, i, &width);
		if (norm) {
			snprintf(rest, room, "%s", norm);
			TRY(stage_param_add(b, (int)index, name, 1, &width, false,
					    i == LIN_Q || i == LIN_Q_A ? &l->qnorm : &l->knorm, e));
		}
	}
	TRY(join_all(c, l, e));
	TRY(add_norm(b, index, NORM_SIDE_OUT, l, e));
	TRY(add_norm(b, index, NORM_MLP_OUT, l, e));
	return c->layer_scalar ? add_scalar(b, index, l, e) : 0;
}

/* The head (V,C). */
static int add_head(struct stage_builder *b, struct err *e)
{
	struct stage *s = b->s;
	const struct model_config *c = &s->cfg;
	const int64_t table[2] = { c->vocab, c->hidden };
	if (!c->tied)
		return stage_param_add(b, INT_MAX, "lm_head.weight", 2, table, false, &s->head, e);
	struct param *embed = s->front ? s->embed : s->opt.embed;
	if (embed && !embed->trainable) {
		s->head = embed;
		return 0;
	}
	if (!embed) {
		TRY(stage_param_add(b, INT_MAX, "model.embed_tokens.weight", 2, table, false,
				    &s->head, e));
		if (s->head->trainable)
			param_to_replica(s->head);
		return 0;
	}
	s->head = &s->param[s->nparam];
	TRY(param_init_replica(s->head, embed, e));
	s->head->layer = INT_MAX;
	s->nparam++;
	return 0;
}

int decoder_build_front(struct stage_builder *b, int64_t index, struct err *e)
{
	const struct model_config *c = &b->s->cfg;
	const int64_t table[2] = { c->vocab, c->hidden };
	return stage_param_add(b, (int)index, "model.embed_tokens.weight", 2, table, false,
			       &b->s->embed, e);
}

int decoder_build_end(struct stage_builder *b, int64_t index, struct err *e)
{
	struct stage *s = b->s;
	TRY(stage_param_add(b, (int)index, final_norm_name(&s->cfg), 1, &s->cfg.hidden, false,
			    &s->norm, e));
	return add_head(b, e);
}

size_t decoder_params(const struct model_config *c, bool layer)
{
	size_t n = layer ? NORM_COUNT + 5 + DELTA_PARAMS + ROUTER_PARAMS : 3;
	for (enum linear l = 0; layer && l < LIN_COUNT; l++) /* weight, bias, adapter */
		if (model_has_linear(c, l))
			n += 5 * (size_t)(linear_is_expert(l) ? c->experts : 1);
	return n;
}
