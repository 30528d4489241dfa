/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - running microbatches through a stage. See stage.h for the order of the calls.
 *
 * Without recomputation a layer's tape and everything on it stay in the slot's memory until its
 * backward. With it, only each layer's input stays, and backward runs the layer once more on
 * scratch memory. Both run the same ops on the same numbers, so both give the same gradients bit
 * for bit. */
#include "model/decoder.h"
#include "model/stage_pairs.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <limits.h>
#include <math.h>
#include <string.h>

void slot_init(struct slot *sl, struct stage *s)
{
	*sl = (struct slot){ .stage = s };
	dmem_init(&sl->mem, s->dev, 64 << 10);
}

void slot_release(struct slot *sl)
{
	dmem_release(&sl->mem);
	arena_release(&sl->host);
	mem_free(sl->rows);
	mem_free(sl->losses);
	mem_free(sl->noise);
	mem_free(sl->place);
	mem_free(sl->pair);
	*sl = (struct slot){ 0 };
}

static int upload_ints(struct slot *sl, const int32_t *v, int64_t n, struct dev_ref *r_p,
		       struct err *e)
{
	TRY(dmem_take(&sl->mem, (size_t)n * 4, r_p, e));
	return dev_upload(*r_p, v, (size_t)n * 4, e);
}

/* Uploads the rows that are trained, and their labels. */
static int upload_labels(struct slot *sl, struct err *e)
{
	int64_t n = sl->b.n, k = 0;
	if (!mem_grow(&sl->rows, &sl->rows_cap, 2 * (size_t)n, sizeof *sl->rows) ||
	    !mem_grow(&sl->losses, &sl->losses_cap, 2 * (size_t)n, sizeof *sl->losses))
		return err_nomem(e, (unsigned long long)n * 8, "labels");
	for (int64_t i = 0; i < n; i++) {
		int32_t label = sl->b.label[i];
		if (label < 0)
			continue;
		if (label >= sl->stage->cfg.vocab)
			return err_set(e, ERR_INPUT,
				       "token id %d is outside the model's vocabulary of %lld",
				       label, (long long)sl->stage->cfg.vocab);
		sl->rows[k] = (int32_t)i;
		sl->rows[n + k] = label;
		k++;
	}
	sl->trained = k;
	TRY(dmem_take(&sl->mem, ((size_t)k + 1) * 4, &sl->thits, e));
	TRY(upload_ints(sl, sl->rows, k, &sl->trows, e));
	return upload_ints(sl, sl->rows + n, k, &sl->tlabels, e);
}

static bool is_noisy(const struct stage *s)
{
	return s->opt.lora.dropout > 0 || (s->front && s->opt.neftune > 0);
}

/* Uploads where each token stands: its row in the global batch, and its offset there. */
static int upload_places(struct slot *sl, struct err *e)
{
	const struct stage_batch *b = &sl->b;
	if (!mem_grow(&sl->place, &sl->place_cap, 2 * (size_t)b->n, sizeof *sl->place))
		return err_nomem(e, (unsigned long long)b->n * 8, "places");
	for (int64_t i = 0, r = 0; i < b->n; i++) {
		while (b->row && r + 1 < b->nrows && i >= b->row[r + 1])
			r++;
		sl->place[2 * i] = (int32_t)(b->first_row + r);
		sl->place[2 * i + 1] = (int32_t)(b->row ? i - b->row[r] : i);
	}
	return upload_ints(sl, sl->place, 2 * b->n, &sl->places, e);
}

int stage_begin(struct slot *sl, const struct stage_batch *b, struct err *e)
{
	struct stage *s = sl->stage;
	int64_t layers = s->opt.last - s->opt.first;
	stage_end(sl);
	sl->b = *b;
	if (b->train && s->kept_rows) /* as much as the last one of this stage, by its size */
		dmem_expect(&sl->mem,
			    (size_t)((double)s->kept_bytes * (double)b->n / (double)s->kept_rows));
	sl->h = arena_alloc(&sl->host, (size_t)(layers + 1) * sizeof *sl->h);
	sl->tape = arena_alloc(&sl->host, (size_t)layers * sizeof *sl->tape);
	sl->mark = arena_alloc(&sl->host, (size_t)layers * sizeof *sl->mark);
	if (!sl->h || !sl->tape || !sl->mark)
		return err_nomem(e, (unsigned long long)layers * 64, "a microbatch");
	if (s->front) {
		for (int64_t i = 0; i < b->n; i++)
			if (b->id[i] < 0 || b->id[i] >= s->cfg.vocab)
				return err_set(
					e, ERR_INPUT,
					"token id %d is outside the model's vocabulary of %lld",
					b->id[i], (long long)s->cfg.vocab);
		TRY(upload_ints(sl, b->id, b->n, &sl->ids, e));
	}
	TRY(upload_ints(sl, b->pos, b->n, &sl->pos, e));
	TRY(upload_ints(sl, b->start, b->nseq + 1, &sl->starts, e));
	TRY(rope_upload(&s->cfg, b->start, b->nseq, 0, &sl->mem, &sl->host, &sl->rope, e));
	if (s->end)
		TRY(upload_labels(sl, e));
	size_t bytes = (size_t)(b->n * s->cfg.hidden) * dtype_size(s->opt.act);
	if (!s->front)
		TRY(dmem_take(&sl->mem, bytes, &sl->in, e));
	if (b->train && !s->opt.recompute)
		TRY(dmem_take(&sl->mem, bytes, &sl->grad, e));
	if (b->train && s->opt.by_row && is_noisy(s))
		TRY(upload_places(sl, e));
	return 0;
}

void stage_end(struct slot *sl)
{
	dmem_reset(&sl->mem);
	arena_reset(&sl->host);
	sl->in = sl->out = sl->grad = sl->places = DEV_NONE;
	sl->h = NULL;
	sl->tape = NULL;
	sl->mark = NULL;
	sl->front_tape = sl->end_tape = NULL;
	sl->trained = sl->hits = 0;
	sl->loss = 0;
	sl->score = (struct prefer_score){ 0 };
}

static struct tape tape_for(struct slot *sl, bool record, struct dmem *mem)
{
	return (struct tape){ .dev = sl->stage->dev,
			      .act = sl->stage->opt.act,
			      .mem = mem,
			      .scratch = sl->stage->scratch,
			      .host = &sl->host,
			      .record = record };
}

/* y (N,C) = layer i of the stage on h (N,C). */
static int run_layer(struct slot *sl, struct tape *t, int64_t i, struct tensor *h,
		     struct tensor **y_p, struct err *e)
{
	struct stage *s = sl->stage;
	struct layer_context c = { .stage = s,
				   .index = s->opt.first + i,
				   .step = sl->b.step,
				   .microbatch = sl->b.microbatch,
				   .pos = sl->pos,
				   .starts = sl->starts,
				   .kstarts = sl->starts,
				   .places = sl->places,
				   .rope = sl->rope,
				   .nseq = sl->b.nseq,
				   .base = sl->b.base,
				   .train = sl->b.train };
	int rc = decoder_layer(t, &s->layer[i], &c, h, y_p, e);
	return rc < 0 ? err_prefix(e, "layer %lld", (long long)c.index) : 0;
}

int stage_embed(struct tape *t, const struct stage *s, struct dev_ref ids, int64_t n,
		struct tensor **y_p, struct err *e)
{
	const float exact = model_factor(s->cfg.embed_scale),
		    factor = s->cfg.embed_rounded ? dtype_round(s->opt.act, exact) : exact;
	TRY(op_embed_apply(t, s->embed, ids, n, y_p, e));
	return factor == 1 ? 0 : op_add_apply(t, *y_p, factor, NULL, y_p, e);
}

static int layer_queued(const struct stage *s, bool last, struct err *e)
{
	return s->between ? s->between(s->between_ctx, last, e) : 0;
}

static int layer_needed(const struct stage *s, int layer, struct err *e)
{
	return s->before ? s->before(s->between_ctx, layer, e) : 0;
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

/* Leaves the input of the first layer, (N,C), at h[0]. */
static int run_front(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t dim[2] = { sl->b.n, s->cfg.hidden };
	struct tape t = tape_for(sl, sl->b.train, &sl->mem);
	if (s->front)
		TRY(stage_embed(&t, s, sl->ids, sl->b.n, &sl->h[0], e));
	else
		TRY(tape_tensor(&t, s->opt.act, 2, dim, sl->in, &sl->h[0], e));
	if (s->front && sl->b.train && s->opt.neftune > 0)
		TRY(add_noise(sl, sl->h[0], e));
	sl->h[0]->needs_grad = sl->b.train && s->needs[0];
	sl->front_tape = t.last;
	return 0;
}

static int add_losses(struct slot *sl, const struct tensor *loss, struct err *e)
{
	TRY(dev_download(sl->losses, loss->at, (size_t)sl->trained * 4, e));
	TRY(dev_download(sl->losses + sl->trained, sl->thits, (size_t)sl->trained * 4, e));
	for (int64_t i = 0; i < sl->trained; i++) {
		sl->loss += (double)sl->losses[i];
		sl->hits += sl->losses[sl->trained + i] > 0;
	}
	return 0;
}

/* Losses and their sum from h (N,C), the output of the last layer. */
static int run_end(struct slot *sl, struct tensor *h, struct err *e)
{
	struct stage *s = sl->stage;
	struct tape t = tape_for(sl, sl->b.train, &sl->mem);
	struct tensor *x, *loss;
	struct dev_ref weight = DEV_NONE;
	sl->loss = 0;
	sl->hits = 0;
	if (!sl->trained)
		return 0;
	TRY(op_rmsnorm_apply(&t, h, s->norm, s->cfg.hidden, (float)s->cfg.norm_eps,
			     s->cfg.norm_plus, &x, e));
	if (sl->b.pairs)
		TRY(stage_pairs_weigh(sl, &t, x, &weight, e));
	if (sl->b.pairs && !sl->b.train)
		return 0;
	TRY(op_loss_apply(&t, x, s->head, sl->trows, sl->tlabels, sl->thits, weight, sl->trained,
			  model_factor(s->cfg.logit_scale), (float)s->cfg.logit_cap,
			  sl->b.scale > 0 ? sl->b.scale : 1, &loss, e));
	sl->end_tape = t.last;
	if (!sl->b.pairs)
		TRY(add_losses(sl, loss, e));
	if (loss->needs_grad)
		/* any seed will do: op_loss computed its gradient in its forward */
		TRY(tape_seed(&t, loss, loss->at, e));
	return 0;
}

int stage_forward(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	int64_t layers = s->opt.last - s->opt.first;
	TRY(s->front ? layer_needed(s, -1, e) : 0);
	TRY(run_front(sl, e));
	for (int64_t i = 0; i < layers; i++) {
		TRY(layer_needed(s, (int)(s->opt.first + i), e));
		sl->mark[i] = dmem_mark(&sl->mem);
		if (i == 1 && sl->b.train) /* the other layers keep as much as the first */
			dmem_expect(&sl->mem,
				    (size_t)(layers - 1) * (sl->mem.bytes - sl->mark[0].bytes));
		if (sl->b.train && !s->opt.recompute) {
			struct tape t = tape_for(sl, true, &sl->mem);
			TRY(run_layer(sl, &t, i, sl->h[i], &sl->h[i + 1], e));
			sl->tape[i] = t.last;
			TRY(layer_queued(s, i + 1 == layers, e));
			continue;
		}
		/* only the output stays; without training not even the input */
		const int64_t dim[2] = { sl->b.n, s->cfg.hidden };
		struct tape t = tape_for(sl, false, s->scratch);
		struct tensor *y;
		if (sl->b.train || i == 0)
			TRY(tape_new(&t, &sl->mem, s->opt.act, 2, dim, &sl->h[i + 1], e));
		else
			sl->h[i + 1] = sl->h[i];
		struct dmem_mark k = dmem_mark(s->scratch);
		TRY(run_layer(sl, &t, i, sl->h[i], &y, e));
		TRY(dev_copy(sl->h[i + 1]->at, y->at, tensor_bytes(y), e));
		dmem_back(s->scratch, k);
		sl->h[i + 1]->needs_grad = sl->b.train && s->needs[i + 1];
		TRY(layer_queued(s, i + 1 == layers, e));
	}
	sl->out = sl->h[layers]->at;
	if (sl->b.train && s->opt.recompute) /* backward needs the inputs alone */
		sl->grad = sl->out;
	if (s->end) {
		TRY(layer_needed(s, INT_MAX, e));
		TRY(run_end(sl, sl->h[layers], e));
	}
	if (sl->b.train) {
		s->kept_rows = sl->b.n;
		s->kept_bytes = sl->mem.bytes;
	}
	return 0;
}

/* Runs a recorded tape backwards and leaves the gradient of x (N,C) at slot->grad. */
static int run_back(struct slot *sl, struct tape_node *last, struct tensor *x, struct err *e)
{
	struct tape t = tape_for(sl, true, sl->stage->scratch);
	t.last = last;
	TRY(tape_backward(&t, e));
	if (x && x->grad && (x->grad->at.buf != sl->grad.buf || x->grad->at.off != sl->grad.off))
		TRY(dev_copy(sl->grad, x->grad->at, tensor_bytes(x), e));
	return 0;
}

/* Backward of layer i: from the gradient of its output at slot->grad to that of its input. */
static int run_layer_back(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct tensor *x = sl->h[i], *y = sl->h[i + 1];
	struct tape t = tape_for(sl, true, s->scratch);
	struct tape_node *last = sl->tape[i];
	x->grad = NULL;
	x->grad_written = false;
	if (s->opt.recompute) {
		TRY(run_layer(sl, &t, i, x, &y, e));
		last = t.last;
	}
	if (!y->needs_grad)
		return 0; /* nothing trained in this layer or below */
	TRY(tape_seed(&t, y, sl->grad, e));
	return run_back(sl, last, x, e);
}

/* The layers [lo, hi) here are those of a part. */
static int64_t part_end(const struct stage *s, int part, int parts)
{
	return (s->opt.last - s->opt.first) * (parts - part) / parts;
}

int stage_part_of(const struct stage *s, int layer, int parts)
{
	int part = 0;
	if (layer < s->opt.first) /* the front */
		return parts - 1;
	while (part + 1 < parts && layer - s->opt.first < part_end(s, part + 1, parts))
		part++;
	return part;
}

int stage_backward(struct slot *sl, struct err *e) { return stage_backward_part(sl, 0, 1, e); }

int stage_backward_part(struct slot *sl, int part, int parts, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t layers = s->opt.last - s->opt.first, hi = part_end(s, part, parts),
		      lo = part_end(s, part + 1, parts);
	struct dmem_mark k = dmem_mark(s->scratch);
	if (s->end && part == 0 && !sl->trained) {
		TRY(dev_zero(sl->grad, (size_t)(sl->b.n * s->cfg.hidden) * dtype_size(s->opt.act),
			     e));
	} else if (s->end && part == 0) {
		TRY(run_back(sl, sl->end_tape, sl->h[layers], e));
		dmem_back(s->scratch, k);
	}
	for (int64_t i = hi - 1; i >= lo && s->needs[i + 1]; i--) {
		TRY(run_layer_back(sl, i, e));
		dmem_back(s->scratch, k);
		dmem_back(&sl->mem, sl->mark[i]);
		TRY(layer_queued(s, i == 0, e));
	}
	if (s->front && sl->front_tape && part + 1 == parts) {
		struct tape t = tape_for(sl, true, s->scratch);
		TRY(tape_seed(&t, sl->h[0], sl->grad, e));
		TRY(run_back(sl, sl->front_tape, NULL, e));
		dmem_back(s->scratch, k);
	}
	return 0;
}
