/* SPDX-License-Identifier: Apache-2.0 */
/* halves.c - see halves.h. */
#include "model/halves.h"

#include "base/err.h"
#include "model/stage_run.h"

/* Where the output of layer i will be without training. */
static int room_for_output(struct slot *sl, struct tape *t, int64_t i, struct err *e)
{
	const int64_t dim[2] = { sl->b.n, sl->stage->cfg.hidden };
	if (sl->b.train)
		return 0;
	if (i > 0) {
		sl->h[i + 1] = sl->h[i];
		return 0;
	}
	return tape_new(t, &sl->mem, sl->stage->opt.act, 2, dim, &sl->h[i + 1], e);
}

/* y is the output of layer i. Without training nothing else of it stays. */
static int take_output(struct slot *sl, int64_t i, struct tensor *y, struct err *e)
{
	struct stage *s = sl->stage;
	if (sl->b.train) {
		sl->h[i + 1] = y;
	} else {
		TRY(dev_copy(sl->h[i + 1]->at, y->at, tensor_bytes(y), e));
		dmem_back(&sl->mem, sl->mark[i]);
	}
	return run_queued(s, s->opt.first + i + 1 == s->opt.last, e);
}

static int begin(struct slot *sl, struct err *e)
{
	const struct stage *s = sl->stage;
	const size_t n = (size_t)(s->opt.last - s->opt.first);
	TRY(run_front(sl, e));
	sl->halves = arena_alloc(&sl->host, n * sizeof *sl->halves);
	return sl->halves ? 0 : err_nomem(e, n * sizeof *sl->halves, "a microbatch");
}

int halves_route(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	const int64_t index = s->opt.first + i;
	const bool train = sl->b.train;
	if (i == 0)
		TRY(begin(sl, e));
	struct halves *v = &sl->halves[i];
	struct tape t = run_tape(sl, train, &sl->mem);
	TRY(run_needed(s, (int)index, e));
	TRY(room_for_output(sl, &t, i, e));
	sl->mark[i] = dmem_mark(&sl->mem);
	if (!halves_at(s, i)) {
		struct tensor *y;
		TRY(run_layer(sl, &t, i, sl->h[i], &y, e));
		sl->tape[i] = t.last;
		return take_output(sl, i, y, e);
	}
	int rc = s->blocks->route(sl, &t, index, sl->h[i], &v->w, e);
	if (rc < 0)
		return err_prefix(e, "layer %lld", (long long)index);
	v->route = t.last;
	v->rows = v->w.rows->at;
	TRY(tape_tensor(&t, s->opt.act, 2, v->w.rows->dim, v->rows, &v->back, e));
	v->back->needs_grad = train && halves_back(s, i);
	return run_queued(s, false, e);
}

int halves_combine(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct tape t = run_tape(sl, sl->b.train, &sl->mem);
	struct halves *v = &sl->halves[i];
	struct tensor *y;
	if (!halves_at(s, i))
		return 0;
	TRY(s->blocks->combine(sl, &t, s->opt.first + i, &v->w, v->back, &y, e));
	v->combine = t.last;
	return take_output(sl, i, y, e);
}

/* The norms that the second half has where an MLP is beside the experts, as far as they are
 * trained. */
static struct param *norm_behind(const struct slot *sl, int64_t i, int k)
{
	struct param *p = sl->stage->layer[i].norm[k ? NORM_MLP_OUT : NORM_SIDE_OUT];
	return sl->halves[i].w.mlp && p && p->trainable ? p : NULL;
}

static size_t grad_bytes(const struct param *p) { return (size_t)param_count(p) * 4; }

/* Between the halves of a microbatch another one's may be computed, and gradients are summed by
 * microbatch: that of these norms is kept apart until its layer is done. was[k] is what the sum
 * was. */
static int set_apart(struct slot *sl, int64_t i, struct dev_ref was[2], struct err *e)
{
	for (int k = 0; k < 2; k++) {
		struct param *p = norm_behind(sl, i, k);
		if (!p)
			continue;
		TRY(dmem_take(&sl->mem, grad_bytes(p), &was[k], e));
		TRY(dmem_take(&sl->mem, grad_bytes(p), &sl->halves[i].behind[k], e));
		TRY(dev_copy(was[k], DEV_REF(p->grad, 0), grad_bytes(p), e));
		TRY(dev_zero(DEV_REF(p->grad, 0), grad_bytes(p), e));
	}
	return 0;
}

static int keep_apart(struct slot *sl, int64_t i, const struct dev_ref was[2], struct err *e)
{
	for (int k = 0; k < 2; k++) {
		struct param *p = norm_behind(sl, i, k);
		if (!p)
			continue;
		TRY(dev_copy(sl->halves[i].behind[k], DEV_REF(p->grad, 0), grad_bytes(p), e));
		TRY(dev_copy(DEV_REF(p->grad, 0), was[k], grad_bytes(p), e));
	}
	return 0;
}

static int add_apart(struct slot *sl, int64_t i, struct err *e)
{
	for (int k = 0; k < 2; k++) {
		struct param *p = norm_behind(sl, i, k);
		if (!p)
			continue;
		const union dev_arg a[] = { { .b = DEV_REF(p->grad, 0) },
					    { .b = sl->halves[i].behind[k] },
					    { .i = param_count(p) },
					    { .f = 1 },
					    { .f = 1 } };
		TRY(dev_launch(sl->stage->dev, K_axpby, DT_F32, a, e));
	}
	return 0;
}

int halves_back_combine(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct halves *v = &sl->halves[i];
	struct tape t = run_tape(sl, true, s->scratch);
	struct tensor *weight = v->w.weight;
	if (s->opt.first + i + 1 == s->opt.last)
		TRY(run_end_back(sl, e));
	if (!halves_at(s, i) || !halves_back(s, i))
		return 0;
	/* what the other half needs is in the slot's memory; without an MLP beside the experts the
	 * residual's is where y's is */
	TRY(tape_new(&t, &sl->mem, s->opt.act, 2, v->back->dim, &v->back->grad, e));
	struct tensor *const side[] = { v->w.mlp, v->w.mlp ? v->w.h : NULL };
	for (int k = 0; k < 2; k++)
		if (side[k] && side[k]->needs_grad)
			TRY(tape_new(&t, &sl->mem, s->opt.act, 2, side[k]->dim, &side[k]->grad, e));
	if (weight->needs_grad)
		TRY(tape_new(&t, &sl->mem, DT_F32, 2, weight->dim, &weight->grad, e));
	v->grad = v->back->grad->at;
	struct dev_ref was[2];
	TRY(set_apart(sl, i, was, e));
	struct dmem_mark k = dmem_mark(s->scratch);
	TRY(tape_seed(&t, sl->h[i + 1], sl->grad, e));
	t.last = v->combine;
	TRY(tape_backward(&t, e));
	TRY(keep_apart(sl, i, was, e));
	dmem_back(s->scratch, k);
	return 0;
}

int halves_back_route(struct slot *sl, int64_t i, struct err *e)
{
	struct stage *s = sl->stage;
	struct halves *v = &sl->halves[i];
	struct tensor *x = sl->h[i], *rows = v->w.rows;
	if (!halves_back(s, i))
		return 0;
	if (!halves_at(s, i))
		return run_layer_back(sl, i, e);
	TRY(add_apart(sl, i, e));
	struct dmem_mark k = dmem_mark(s->scratch);
	struct tape t = run_tape(sl, true, s->scratch);
	x->grad = NULL;
	x->grad_written = false;
	if (rows->needs_grad)
		TRY(tape_seed(&t, rows, v->rows, e));
	TRY(run_back(sl, v->route, x, e));
	dmem_back(s->scratch, k);
	dmem_back(&sl->mem, sl->mark[i]);
	return run_queued(s, i == 0, e);
}
