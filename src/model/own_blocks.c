/* SPDX-License-Identifier: Apache-2.0 */
/* own_blocks.c - the blocks of a model of one's own, as a stage runs them: the input or the
 * embedding, each block that is inside of no other, and the loss. */
#include "model/model_block.h"
#include "model/own.h"
#include "model/slot_data.h"

#include "base/err.h"
#include "base/mem.h"

#include <limits.h>
#include <string.h>

static size_t params(const struct model_config *c, bool layer)
{
	size_t most = 1;
	for (int64_t i = 0; layer && i < c->layers; i++)
		most = own_params(&c->own, i) > most ? own_params(&c->own, i) : most;
	return most;
}

/* Those of one layer; -1: of the front. */
static int build(struct stage_builder *b, int64_t index, struct err *e)
{
	const struct own_model *m = &b->s->cfg.own;
	struct own_param p;
	struct param *made;
	char name[256];
	int layer;
	for (size_t i = 0; own_param_at(m, i, &p, name, &layer); i++)
		if (layer == index)
			TRY(stage_param_add(b, layer, name, p.ndim, p.dim,
					    p.ndim == 2 && layer >= 0, &made, e));
	return 0;
}

static int build_nothing(struct stage_builder *b, int64_t index, struct err *e)
{
	(void)b;
	(void)index;
	(void)e;
	return 0;
}

/* The first parameter of a layer. */
static struct param *find_first(const struct stage *s, int64_t layer)
{
	for (size_t i = 0; i < s->nparam; i++)
		if (s->param[i].layer == layer)
			return &s->param[i];
	return NULL;
}

static bool draws(const struct stage *s)
{
	const struct own_model *m = &s->cfg.own;
	for (int i = 0; i < m->n; i++)
		if (m->block[i].kind->noise)
			return true;
	return false;
}

static int begin(struct slot *sl, struct err *e)
{
	const struct stage *s = sl->stage;
	const struct stage_batch *b = &sl->b;
	const struct own_model *m = &s->cfg.own;
	if (s->front && m->tokens)
		TRY(slot_check_ids(sl, m->tokens, e));
	if (s->front)
		TRY(slot_upload_ints(sl, b->id, b->n * own_input_words(m), &sl->ids, e));
	TRY(slot_upload_ints(sl, b->pos, b->n, &sl->pos, e));
	TRY(slot_upload_ints(sl, b->start, b->nseq + 1, &sl->starts, e));
	if (b->train && draws(s))
		TRY(slot_upload_places(sl, e));
	return s->end ? slot_upload_targets(sl, own_target_words(m),
					    (int64_t)m->loss.v[OWN_NUMBERS - 1], e)
		      : 0;
}

static int run_front(struct slot *sl, struct tape *t, int64_t index, struct tensor *none,
		     struct tensor **y_p, struct err *e)
{
	const struct own_model *m = &sl->stage->cfg.own;
	const int64_t dim[2] = { sl->b.n, own_count(&m->input) };
	(void)none;
	if (m->tokens)
		return op_embed_apply(t, find_first(sl->stage, index), sl->ids, sl->b.n, y_p, e);
	if (t->act == DT_F32)
		return tape_tensor(t, DT_F32, 2, dim, sl->ids, y_p, e);
	TRY(tape_new(t, t->mem, t->act, 2, dim, y_p, e));
	const union dev_arg a[] = { { .b = (*y_p)->at },
				    { .b = sl->ids },
				    { .i = dim[0] * dim[1] },
				    { .i = t->act },
				    { .i = DT_F32 } };
	return dev_launch(t->dev, K_cast, DT_F32, a, e);
}

static int run_layer(struct slot *sl, struct tape *t, int64_t index, struct tensor *x,
		     struct tensor **y_p, struct err *e)
{
	const struct own_model *m = &sl->stage->cfg.own;
	struct own_run r = { .sl = sl, .t = t, .m = m, .next = find_first(sl->stage, index) };
	const int first = m->first[index];
	return own_run_blocks(&r, first, first + 1 + m->block[first].inside, x, y_p, e);
}

static int run_end(struct slot *sl, struct tape *t, int64_t index, struct tensor *x,
		   struct tensor **loss_p, struct err *e)
{
	const struct own_model *m = &sl->stage->cfg.own;
	struct own_run r = { .sl = sl, .t = t, .m = m };
	(void)index;
	if (!sl->trained)
		return 0;
	own_view(x, &m->loss.in);
	TRY(m->loss.kind->forward(&r, &m->loss, x, loss_p, e));
	return slot_add_row_losses(sl, *loss_p, e);
}

const struct model_blocks own_blocks = {
	.front = { .build = build, .forward = run_front },
	.layer = { .build = build, .forward = run_layer },
	.end = { .build = build_nothing, .forward = run_end },
	.params = params,
	.begin = begin,
};
