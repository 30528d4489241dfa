/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - see sum.h. */
#include "sched/sum.h"

#include "base/err.h"
#include "base/mem.h"

const char *sum_order_name(enum sum_order o) { return o == SUM_EXACT ? "exact" : "fast"; }

static int put(struct sum_terms *t, int place, int first, int last, struct err *e)
{
	if (!mem_grow(&t->term, &t->cap, (size_t)t->n + 1, sizeof *t->term))
		return err_nomem(e, ((size_t)t->n + 1) * sizeof *t->term, "the order of a sum");
	t->term[t->n++] = (struct sum_term){ place, first, last };
	return 0;
}

static bool one_place(const int *place, int first, int last)
{
	for (int i = first + 1; i < last; i++)
		if (place[i] != place[first])
			return false;
	return true;
}

/* The node of `size` microbatches from `first` on, or the terms below it. */
static int find_node(struct sum_terms *t, const int *place, int first, int size, struct err *e)
{
	const int last = first + size < t->microbatches ? first + size : t->microbatches;
	if (one_place(place, first, last))
		return put(t, place[first], first, last, e);
	TRY(find_node(t, place, first, size / 2, e));
	return first + size / 2 < last ? find_node(t, place, first + size / 2, size / 2, e) : 0;
}

static int root_size(int microbatches)
{
	int size = 1;
	while (size < microbatches)
		size *= 2;
	return size;
}

int sum_terms_find(struct sum_terms *t, enum sum_order o, const int *place, int microbatches,
		   struct err *e)
{
	int most = 0;
	t->order = o;
	t->microbatches = microbatches;
	t->n = 0;
	if (o == SUM_EXACT)
		return find_node(t, place, 0, root_size(microbatches), e);
	for (int i = 0; i < microbatches; i++)
		most = place[i] > most ? place[i] : most;
	for (int k = 0; k <= most; k++)
		for (int i = 0; i < microbatches; i++)
			if (place[i] == k) {
				TRY(put(t, k, i, microbatches, e));
				break;
			}
	return 0;
}

void sum_terms_release(struct sum_terms *t)
{
	mem_free(t->term);
	*t = (struct sum_terms){ 0 };
}

/* What a member holds behind a node, and at most until then. */
struct held {
	const int *place;
	int microbatches, me, now, most;
};

/* True when the node is complete and all the member's: then it holds its sum, one. */
static bool hold_node(struct held *h, int first, int size)
{
	if (first >= h->microbatches)
		return false;
	if (size == 1) {
		const bool own = h->place[first] == h->me;
		h->now += own;
		h->most = h->now > h->most ? h->now : h->most;
		return own;
	}
	bool left = hold_node(h, first, size / 2);
	h->now -= left && size == 2; /* the second of a pair is added to the first at once */
	bool right = hold_node(h, first + size / 2, size / 2);
	if (size == 2)
		h->now += left && !right;
	else
		h->now -= left && right;
	return left && right;
}

int sum_held(const int *place, int microbatches, int me)
{
	int ones = 0;
	while (!place && (2ll << ones) - 1 <= microbatches) /* as in a counter */
		ones++;
	if (!place)
		return ones;
	struct held h = { place, microbatches, me, 0, 0 };
	hold_node(&h, 0, root_size(microbatches));
	return h.most;
}

/* What adds two terms. */
struct adder {
	int (*add)(void *ctx, int to, int from, struct err *e);
	void *ctx;
};

/* Adds the node at term *at_p to that term's numbers; *at_p moves behind it. */
static int add_node(const struct sum_terms *t, const struct adder *a, int first, int size,
		    int *at_p, struct err *e)
{
	const int here = *at_p,
		  last = first + size < t->microbatches ? first + size : t->microbatches;
	if (t->term[here].first == first && t->term[here].last == last) {
		++*at_p;
		return 0;
	}
	TRY(add_node(t, a, first, size / 2, at_p, e));
	const int right = *at_p;
	if (first + size / 2 >= last)
		return 0;
	TRY(add_node(t, a, first + size / 2, size / 2, at_p, e));
	return a->add(a->ctx, here, right, e);
}

int sum_with(const struct sum_terms *t, int (*add)(void *ctx, int to, int from, struct err *e),
	     void *ctx, struct err *e)
{
	const struct adder a = { add, ctx };
	int at = 0;
	if (t->order == SUM_EXACT)
		return add_node(t, &a, 0, root_size(t->microbatches), &at, e);
	for (int i = 1; i < t->n; i++)
		TRY(add(ctx, 0, i, e));
	return 0;
}
