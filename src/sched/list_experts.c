/* SPDX-License-Identifier: Apache-2.0 */
/* list_experts.c - the list of a member of a stage whose experts are on several members.
 *
 * All members of the group have lists that are cut from one order: for each run, for each layer,
 * for each microbatch of the run: what is behind the layer before it, then the layer up to its
 * experts, then the experts on every member that has some. So nobody can wait for ever. */
#include "sched/list.h"

#include "base/err.h"
#include "base/mem.h"

struct turn {
	struct instr_list *l;
	const struct sched_shape *h;
	const struct sched_experts *x;
	const struct list_deal *d;
	int stage;
	bool sums;
	int last;
};

static bool has(const struct turn *t, int layer, int place)
{
	return t->x->has[layer * t->x->places + place];
}

static void put_layer(const struct turn *t, enum instr_kind kind, int m, int layer, int place)
{
	list_put(t->l, kind, m, 0, place < 0 ? -1 : t->stage, place);
	t->l->item[t->l->n - 1].part = (short)layer;
}

/* At home: a message to or from every other member that has experts of the layer. */
static void put_rows(const struct turn *t, enum instr_kind kind, int m, int layer)
{
	for (int p = 0; p < t->x->places; p++)
		if (p != t->d->place && has(t, layer, p))
			put_layer(t, kind, m, layer, p);
}

/* The experts that are here, of a microbatch whose home is somewhere. */
static void put_own(const struct turn *t, bool back, int m, int layer)
{
	const int home = t->d->here ? t->d->here[m] : 0;
	const bool away = home != t->d->place;
	if (!has(t, layer, t->d->place))
		return;
	if (away)
		put_layer(t, back ? INSTR_RECV_ROW_GRADS : INSTR_RECV_ROWS, m, layer, home);
	put_layer(t, back ? INSTR_BACK_EXPERTS : INSTR_EXPERTS, m, layer, -1);
	if (away)
		put_layer(t, back ? INSTR_SEND_ROW_GRADS : INSTR_SEND_ROWS, m, layer, home);
}

/* Between layers i - 1 and i of a microbatch. */
static void put_forward(const struct turn *t, const struct instr *in, int i)
{
	const int m = in->microbatch, layers = t->x->layers;
	const bool ours = list_is_ours(t->d, m);
	if (ours && i == 0)
		list_put_message(t->l, t->h, t->d, t->stage, in, false);
	if (ours && i > 0) {
		put_rows(t, INSTR_RECV_ROWS, m, i - 1);
		put_layer(t, INSTR_COMBINE, m, i - 1, -1);
	}
	if (ours && i < layers) {
		put_layer(t, INSTR_ROUTE, m, i, -1);
		put_rows(t, INSTR_SEND_ROWS, m, i);
	}
	if (i < layers)
		put_own(t, false, m, i);
	if (ours && i == layers) {
		list_put(t->l, INSTR_FORWARD, m, 0, -1, -1);
		list_put_message(t->l, t->h, t->d, t->stage, in, true);
	}
}

/* The gradients of a layer are complete: those of all before it are computed meanwhile. */
static void put_sums(const struct turn *t, int m, int part)
{
	if (t->sums && m == t->last)
		list_put_part(t->l, INSTR_SEND_SUMS, -1, 0, part, 0);
}

/* Between layers layers - i and layers - i - 1. */
static void put_backward(const struct turn *t, const struct instr *in, int i)
{
	const int m = in->microbatch, layers = t->x->layers, done = layers - i, next = done - 1;
	const bool ours = list_is_ours(t->d, m);
	if (ours && i == 0)
		list_put_message(t->l, t->h, t->d, t->stage, in, false);
	if (ours && i > 0) {
		put_rows(t, INSTR_RECV_ROW_GRADS, m, done);
		put_layer(t, INSTR_BACK_ROUTE, m, done, -1);
		if (i < layers)
			put_sums(t, m, i - 1);
	}
	if (ours && i < layers) {
		put_layer(t, INSTR_BACK_COMBINE, m, next, -1);
		put_rows(t, INSTR_SEND_ROW_GRADS, m, next);
	}
	if (i < layers)
		put_own(t, true, m, next);
	if (ours && i == layers) {
		list_put_part(t->l, INSTR_BACKWARD, m, 0, layers - 1, layers);
		list_put_message(t->l, t->h, t->d, t->stage, in, true);
		put_sums(t, m, layers - 1);
	}
}

int list_put_experts(struct instr_list *l, const struct sched_shape *h, const struct list_deal *d,
		     int stage, const struct instr *order, size_t n, int most, bool sums, int last,
		     struct err *e)
{
	const struct sched_experts *x = &h->experts[stage];
	const struct turn t = { l, h, x, d, stage, sums, last };
	/* of a microbatch, one way: the end and its messages; of a layer the two halves, its
	 * experts, rows and sums, there and back */
	const size_t each = 4 + (size_t)x->layers * (6 + 2 * (size_t)x->places),
		     room = l->n + n * each + 3 * (size_t)x->layers + 8;
	if (!mem_grow(&l->item, &l->cap, room, sizeof *l->item))
		return err_nomem(e, room * sizeof *l->item, "an instruction list");
	for (size_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && order[to].kind == order[from].kind; to++)
			if (most && to - from == (size_t)most)
				break;
		for (int i = 0; i <= x->layers; i++)
			for (size_t k = from; k < to; k++)
				order[k].kind == INSTR_FORWARD ? put_forward(&t, &order[k], i)
							       : put_backward(&t, &order[k], i);
	}
	return 0;
}
