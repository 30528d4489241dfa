/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - running microbatches through a stage. See stage.h for the order of the calls.
 *
 * Without recomputation a layer's tape and everything on it stay in the slot's memory until its
 * backward. With it, only each layer's input stays, and backward runs the layer once more on
 * scratch memory. Both run the same ops on the same numbers, so both give the same gradients bit
 * for bit. */
#include "model/halves.h"
#include "model/slot_data.h"
#include "model/stage_run.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <limits.h>

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

static bool is_noisy(const struct stage *s)
{
	return s->opt.lora.dropout > 0 || (s->front && s->opt.neftune > 0);
}

size_t stage_bytes(const struct stage *s, int64_t n, int64_t index)
{
	return (size_t)(n * model_width(&s->cfg, index)) * dtype_size(s->opt.act);
}

/* Bytes of the largest activation of a microbatch of n rows. */
static size_t widest(const struct stage *s, int64_t n)
{
	size_t most = 0;
	for (int64_t i = s->opt.first; i <= s->opt.last; i++)
		most = stage_bytes(s, n, i) > most ? stage_bytes(s, n, i) : most;
	return most;
}

int stage_begin(struct slot *sl, const struct stage_batch *b, struct err *e)
{
	struct stage *s = sl->stage;
	int64_t layers = s->opt.last - s->opt.first;
	stage_end(sl);
	sl->b = *b;
	if (b->train && s->kept_rows) { /* as much as the last one of this stage, by its size */
		const double bytes = (double)s->kept_bytes * (double)b->n / (double)s->kept_rows;
		/* and a little, because each tensor is rounded up: without it the last one would
		 * need a block of its own */
		dmem_expect(&sl->mem, (size_t)(bytes * (1 + 1.0 / 1024)) + 4096);
	}
	sl->h = arena_alloc(&sl->host, (size_t)(layers + 1) * sizeof *sl->h);
	sl->tape = arena_alloc(&sl->host, (size_t)layers * sizeof *sl->tape);
	sl->mark = arena_alloc(&sl->host, (size_t)layers * sizeof *sl->mark);
	if (!sl->h || !sl->tape || !sl->mark)
		return err_nomem(e, (unsigned long long)layers * 64, "a microbatch");
	TRY(s->blocks->begin(sl, e));
	if (!s->front)
		TRY(dmem_take(&sl->mem, stage_bytes(s, b->n, s->opt.first), &sl->in, e));
	if (b->train && (!s->opt.recompute || widest(s, b->n) > stage_bytes(s, b->n, s->opt.last)))
		TRY(dmem_take(&sl->mem, widest(s, b->n), &sl->grad, e));
	if (b->train && s->opt.by_row && is_noisy(s))
		TRY(slot_upload_places(sl, e));
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
	sl->sums = NULL;
	sl->halves = NULL;
	sl->trained = sl->hits = 0;
	sl->loss = 0;
	sl->score = (struct prefer_score){ 0 };
}

struct tape run_tape(struct slot *sl, bool record, struct dmem *mem)
{
	return (struct tape){ .dev = sl->stage->dev,
			      .act = sl->stage->opt.act,
			      .mem = mem,
			      .scratch = sl->stage->scratch,
			      .host = &sl->host,
			      .record = record };
}

int run_layer(struct slot *sl, struct tape *t, int64_t i, struct tensor *h, struct tensor **y_p,
	      struct err *e)
{
	const struct stage *s = sl->stage;
	const int64_t index = s->opt.first + i;
	int rc = s->blocks->layer.forward(sl, t, index, h, y_p, e);
	return rc < 0 ? err_prefix(e, "layer %lld", (long long)index) : 0;
}

/* The device work of a layer is the same for each microbatch of one size: names it. */
static int repeat(const struct slot *sl, int64_t i, bool back, struct err *e)
{
	const struct stage *s = sl->stage;
	uint64_t key = rng_fold((uint64_t)(uintptr_t)sl, (uint64_t)(s->opt.first + i));
	key = rng_fold(key, (uint64_t)sl->b.n);
	key = rng_fold(key, (uint64_t)sl->b.nseq);
	key = rng_fold(key, (uint64_t)(sl->b.train | sl->b.base << 1 | back << 2));
	return dev_repeat_begin(s->dev, key, e);
}

int run_queued(const struct stage *s, bool last, struct err *e)
{
	return s->between ? s->between(s->between_ctx, last, e) : 0;
}

int run_needed(const struct stage *s, int layer, struct err *e)
{
	return s->before ? s->before(s->between_ctx, layer, e) : 0;
}

int run_front(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	TRY(s->front ? run_needed(s, -1, e) : 0);
	const int64_t dim[2] = { sl->b.n, model_width(&s->cfg, s->opt.first) };
	struct tape t = run_tape(sl, sl->b.train, &sl->mem);
	if (s->front)
		TRY(s->blocks->front.forward(sl, &t, -1, NULL, &sl->h[0], e));
	else
		TRY(tape_tensor(&t, s->opt.act, 2, dim, sl->in, &sl->h[0], e));
	sl->h[0]->needs_grad = sl->b.train && s->needs[0];
	sl->front_tape = t.last;
	return 0;
}

static int run_loss(struct slot *sl, struct tensor *h, struct err *e)
{
	struct stage *s = sl->stage;
	struct tape t = run_tape(sl, sl->b.train, &sl->mem);
	struct tensor *loss = NULL;
	sl->loss = 0;
	sl->hits = 0;
	TRY(s->blocks->end.forward(sl, &t, INT_MAX, h, &loss, e));
	sl->end_tape = t.last;
	/* any seed will do: the end computes its gradient in its forward */
	return loss && loss->needs_grad ? tape_seed(&t, loss, loss->at, e) : 0;
}

int run_end(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t layers = s->opt.last - s->opt.first;
	sl->out = sl->h[layers]->at;
	if (sl->b.train && !sl->grad.buf) /* recomputed: backward needs the inputs alone */
		sl->grad = sl->out;
	if (s->end) {
		TRY(run_needed(s, INT_MAX, e));
		TRY(run_loss(sl, sl->h[layers], e));
	}
	if (sl->b.train) {
		s->kept_rows = sl->b.n;
		s->kept_bytes = sl->mem.bytes;
	}
	return 0;
}

int stage_forward(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	int64_t layers = s->opt.last - s->opt.first;
	if (stage_in_halves(s)) /* its layers have been run */
		return run_end(sl, e);
	TRY(run_front(sl, e));
	for (int64_t i = 0; i < layers; i++) {
		TRY(run_needed(s, (int)(s->opt.first + i), e));
		sl->mark[i] = dmem_mark(&sl->mem);
		if (i == 1 && sl->b.train && s->blocks->alike && !s->cfg.delta_layers &&
		    !s->cfg.full_head_dim) /* others keep as much as the first */
			dmem_expect(&sl->mem,
				    (size_t)(layers - 1) * (sl->mem.bytes - sl->mark[0].bytes));
		if (sl->b.train && !s->opt.recompute) {
			struct tape t = run_tape(sl, true, &sl->mem);
			TRY(repeat(sl, i, false, e));
			TRY(run_layer(sl, &t, i, sl->h[i], &sl->h[i + 1], e));
			TRY(dev_repeat_end(s->dev, e));
			sl->tape[i] = t.last;
			TRY(run_queued(s, i + 1 == layers, e));
			continue;
		}
		/* only the output stays; without training not even the input */
		const int64_t dim[2] = { sl->b.n, model_width(&s->cfg, s->opt.first + i + 1) };
		struct tape t = run_tape(sl, false, s->scratch);
		struct tensor *y;
		if (sl->b.train || i == 0 || tensor_cols(sl->h[i]) != dim[1])
			TRY(tape_new(&t, &sl->mem, s->opt.act, 2, dim, &sl->h[i + 1], e));
		else
			sl->h[i + 1] = sl->h[i];
		struct dmem_mark k = dmem_mark(s->scratch);
		TRY(repeat(sl, i, false, e));
		TRY(run_layer(sl, &t, i, sl->h[i], &y, e));
		TRY(dev_copy(sl->h[i + 1]->at, y->at, tensor_bytes(y), e));
		TRY(dev_repeat_end(s->dev, e));
		dmem_back(s->scratch, k);
		sl->h[i + 1]->needs_grad = sl->b.train && s->needs[i + 1];
		TRY(run_queued(s, i + 1 == layers, e));
	}
	return run_end(sl, e);
}

int run_back(struct slot *sl, struct tape_node *last, struct tensor *x, struct err *e)
{
	struct tape t = run_tape(sl, true, sl->stage->scratch);
	t.last = last;
	TRY(tape_backward(&t, e));
	if (x && x->grad && (x->grad->at.buf != sl->grad.buf || x->grad->at.off != sl->grad.off))
		TRY(dev_copy(sl->grad, x->grad->at, tensor_bytes(x), e));
	return 0;
}

static int run_recorded_back(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct tensor *x = sl->h[i], *y = sl->h[i + 1];
	struct tape t = run_tape(sl, true, s->scratch);
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

int run_layer_back(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct dmem_mark k = dmem_mark(s->scratch);
	TRY(repeat(sl, i, true, e));
	TRY(run_recorded_back(sl, i, e));
	TRY(dev_repeat_end(s->dev, e));
	dmem_back(s->scratch, k);
	dmem_back(&sl->mem, sl->mark[i]);
	return run_queued(s, i == 0, e);
}

int run_end_back(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	struct dmem_mark k = dmem_mark(s->scratch);
	if (!s->end)
		return 0;
	if (!sl->trained)
		return dev_zero(sl->grad, stage_bytes(s, sl->b.n, s->opt.last), e);
	TRY(run_back(sl, sl->end_tape, sl->h[s->opt.last - s->opt.first], e));
	dmem_back(s->scratch, k);
	return 0;
}

int run_front_back(struct slot *sl, struct err *e)
{
	struct stage *s = sl->stage;
	struct dmem_mark k = dmem_mark(s->scratch);
	if (!s->front || !sl->front_tape)
		return 0;
	struct tape t = run_tape(sl, true, s->scratch);
	TRY(tape_seed(&t, sl->h[0], sl->grad, e));
	TRY(run_back(sl, sl->front_tape, NULL, e));
	dmem_back(s->scratch, k);
	return 0;
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
	const int64_t hi = part_end(s, part, parts), lo = part_end(s, part + 1, parts);
	const bool whole = !stage_in_halves(s); /* else its layers have been run */
	if (part == 0 && whole)
		TRY(run_end_back(sl, e));
	for (int64_t i = hi - 1; i >= lo && s->needs[i + 1] && whole; i--)
		TRY(run_layer_back(sl, i, e));
	return part + 1 == parts ? run_front_back(sl, e) : 0;
}
