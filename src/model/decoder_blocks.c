/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_blocks.c - the blocks of the decoder families: the embedding, a decoder layer
 * (decoder.c), and final norm, head and loss. Their parameters are in decoder_build.c. */
#include "model/decoder_build.h"
#include "model/experts.h"
#include "model/slot_data.h"
#include "model/stage_pairs.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

static int begin(struct slot *sl, struct err *e)
{
	const struct stage *s = sl->stage;
	const struct stage_batch *b = &sl->b;
	if (s->front) {
		TRY(slot_check_ids(sl, s->cfg.vocab, e));
		TRY(slot_upload_ints(sl, b->id, b->n, &sl->ids, e));
	}
	TRY(slot_upload_ints(sl, b->pos, b->n, &sl->pos, e));
	TRY(slot_upload_ints(sl, b->start, b->nseq + 1, &sl->starts, e));
	TRY(rope_upload(&s->cfg, b->start, b->nseq, 0, &sl->mem, &sl->host, &sl->rope, e));
	TRY(experts_begin(sl, e));
	return s->end ? slot_upload_labels(sl, s->cfg.vocab, e) : 0;
}

static struct layer_context context_of(const struct slot *sl, int64_t index)
{
	return (struct layer_context){ .stage = sl->stage,
				       .index = index,
				       .step = sl->b.step,
				       .microbatch = sl->b.microbatch,
				       .pos = sl->pos,
				       .starts = sl->starts,
				       .kstarts = sl->starts,
				       .places = sl->places,
				       .rope = sl->rope,
				       .nseq = sl->b.nseq,
				       .base = sl->b.base,
				       .train = sl->b.train,
				       .sums = sl->sums,
				       .count = sl->sums && !sl->sums->known };
}

static const struct layer *layer_at(const struct slot *sl, int64_t index)
{
	return &sl->stage->layer[index - sl->stage->opt.first];
}

/* y (N,C) = the layer on h (N,C). */
static int run_layer(struct slot *sl, struct tape *t, int64_t index, struct tensor *h,
		     struct tensor **y_p, struct err *e)
{
	const struct layer_context c = context_of(sl, index);
	return decoder_layer(t, layer_at(sl, index), &c, h, y_p, e);
}

static int route(struct slot *sl, struct tape *t, int64_t index, struct tensor *h,
		 struct expert_rows *w, struct err *e)
{
	const struct layer_context c = context_of(sl, index);
	return decoder_route(t, layer_at(sl, index), &c, h, w, e);
}

static int compute(struct slot *sl, struct tape *t, int64_t index, struct tensor *rows,
		   const struct routing *r, struct tensor **y_p, struct err *e)
{
	const struct layer_context c = context_of(sl, index);
	return experts_compute(t, layer_at(sl, index), &c, rows, r, y_p, e);
}

static int combine(struct slot *sl, struct tape *t, int64_t index, const struct expert_rows *w,
		   struct tensor *rows, struct tensor **y_p, struct err *e)
{
	const struct layer_context c = context_of(sl, index);
	return experts_combine(t, layer_at(sl, index), &c, w, rows, y_p, e);
}

int stage_embed(struct tape *t, const struct stage *s, struct dev_ref ids, int64_t n,
		struct tensor **y_p, struct err *e)
{
	const float exact = model_factor(s->cfg.embed_scale),
		    factor = s->cfg.embed_rounded ? dtype_round(s->opt.act, exact) : exact;
	TRY(op_embed_apply(t, s->embed, ids, n, y_p, e));
	return factor == 1 ? 0 : op_add_apply(t, *y_p, factor, NULL, y_p, e);
}

/* NEFTune (Jain et al. 2023, arXiv 2310.05914): x (N,C) += a/sqrt(T C) * u, u uniform in [-1, 1), T
 * being the length of the sequence. */
static int add_noise(struct slot *sl, struct tensor *x, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t n = sl->b.n, c = s->cfg.hidden;
	struct dmem_mark k = dmem_mark(s->scratch);
	struct dev_ref a;
	if (!mem_grow(&sl->noise, &sl->noise_cap, (size_t)n, sizeof *sl->noise))
		return err_nomem(e, (size_t)n * sizeof *sl->noise, "noise");
	for (int64_t i = 0; i < sl->b.nseq; i++) {
		const int32_t from = sl->b.start[i], to = sl->b.start[i + 1];
		for (int32_t j = from; j < to; j++)
			sl->noise[j] = s->opt.neftune / sqrtf((float)(to - from) * (float)c);
	}
	uint64_t key = rng_fold(s->opt.seed, 0x6e656674); /* "neft" */
	key = rng_fold(key, sl->b.step);
	if (!s->opt.by_row)
		key = rng_fold(key, sl->b.microbatch);
	TRY(dmem_take(s->scratch, (size_t)n * 4, &a, e));
	TRY(dev_upload(a, sl->noise, (size_t)n * 4, e));
	const union dev_arg arg[] = { { .b = x->at }, { .b = a }, { .b = sl->places },
				      { .i = n },     { .i = c }, { .u = key } };
	TRY(dev_launch(s->dev, K_noise, s->opt.act, arg, e));
	dmem_back(s->scratch, k);
	return 0;
}

static int run_front(struct slot *sl, struct tape *t, int64_t index, struct tensor *none,
		     struct tensor **y_p, struct err *e)
{
	struct stage *s = sl->stage;
	(void)index;
	(void)none;
	TRY(stage_embed(t, s, sl->ids, sl->b.n, y_p, e));
	return sl->b.train && s->opt.neftune > 0 ? add_noise(sl, *y_p, e) : 0;
}

/* Losses and their sum from h (N,C), the output of the last layer. */
static int add_loss(struct slot *sl, struct tape *t, struct tensor *h, struct tensor **loss_p,
		    struct err *e)
{
	struct stage *s = sl->stage;
	struct tensor *x;
	struct dev_ref weight = DEV_NONE;
	if (!sl->trained)
		return 0;
	TRY(op_rmsnorm_apply(t, h, s->norm, s->cfg.hidden, (float)s->cfg.norm_eps, s->cfg.norm_plus,
			     NULL, &x, e));
	if (sl->b.pairs)
		TRY(stage_pairs_weigh(sl, t, x, &weight, e));
	if (sl->b.pairs && !sl->b.train)
		return 0;
	TRY(op_loss_apply(t, x, s->head, sl->trows, sl->tlabels, sl->thits, weight, sl->trained,
			  model_factor(s->cfg.logit_scale), (float)s->cfg.logit_cap,
			  sl->b.scale > 0 ? sl->b.scale : 1, loss_p, e));
	/* op_loss computed its gradient in its forward */
	return sl->b.pairs ? 0 : slot_add_losses(sl, *loss_p, e);
}

static int run_end(struct slot *sl, struct tape *t, int64_t index, struct tensor *h,
		   struct tensor **loss_p, struct err *e)
{
	(void)index;
	TRY(add_loss(sl, t, h, loss_p, e));
	experts_end(sl);
	return 0;
}

const struct model_blocks decoder_blocks = {
	.front = { .build = decoder_build_front, .forward = run_front },
	.layer = { .build = decoder_build_layer, .forward = run_layer },
	.end = { .build = decoder_build_end, .forward = run_end },
	.route = route,
	.experts = compute,
	.combine = combine,
	.alike = true,
	.params = decoder_params,
	.begin = begin,
};
