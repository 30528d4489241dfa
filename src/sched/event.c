/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - see event.h. */
#include "sched/event.h"

#include "base/mem.h"

static bool before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && a->who < b->who);
}

void events_push(struct events *q, double at, int who, unsigned version)
{
	const struct event ev = { at, who, version };
	size_t i = q->n;

	if (!mem_grow(&q->heap, &q->cap, q->n + 1, sizeof *q->heap)) {
		q->nomem = true;
		return;
	}
	q->n++;
	for (; i > 0 && before(&ev, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
		q->heap[i] = q->heap[(i - 1) / 2];
	q->heap[i] = ev;
}

struct event events_pop(struct events *q)
{
	const struct event top = q->heap[0], last = q->heap[--q->n];
	size_t i = 0;

	for (size_t c = 1; c < q->n; c = 2 * i + 1) {
		c += c + 1 < q->n && before(&q->heap[c + 1], &q->heap[c]);
		if (!before(&q->heap[c], &last))
			break;
		q->heap[i] = q->heap[c];
		i = c;
	}
	if (q->n > 0)
		q->heap[i] = last;
	return top;
}

void events_release(struct events *q)
{
	mem_free(q->heap);
	*q = (struct events){ 0 };
}
