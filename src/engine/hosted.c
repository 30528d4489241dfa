/* SPDX-License-Identifier: Apache-2.0 */
/* hosted.c - see hosted.h. */
#include "engine/hosted.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

int hosted_begin(struct hosted *h, struct dev *dev, const struct worker_model *m,
		 struct worker_times *t, struct err *e)
{
	size_t n = 0;
	*h = (struct hosted){ .dev = dev, .times = t };
	for (int k = 0; k < m->chunks; k++)
		n += m->chunk[k].nparam;
	h->lazy = mem_array(n, sizeof(struct param *));
	if (!h->lazy)
		return err_nomem(e, n * sizeof(struct param *), "offloaded parameters");
	for (int k = 0; k < m->chunks; k++)
		for (size_t i = 0; i < m->chunk[k].nparam; i++)
			if (m->chunk[k].param[i].lazy)
				h->lazy[h->lazies++] = &m->chunk[k].param[i];
	return 0;
}

void hosted_end(struct hosted *h)
{
	mem_free(h->grad);
	mem_free(h->lazy);
	*h = (struct hosted){ 0 };
}

void hosted_round(struct hosted *h)
{
	h->n = h->sent = h->brought = 0;
	h->begun = false;
}

/* Of a transfer that has just ended. */
static void count(struct hosted *h, size_t bytes, bool busy, enum instr_kind kind, int64_t begin)
{
	const struct instr i = { .kind = kind, .microbatch = -1 };
	h->moved += bytes;
	h->beside += busy ? bytes : 0;
	if (busy)
		times_beside(h->times, &i, begin, clock_now());
}

/* ---- gradients ---- */

int hosted_add(struct hosted *h, void *to, struct dev_ref from, size_t bytes, struct err *e)
{
	if (!mem_grow(&h->grad, &h->cap, h->n + 1, sizeof *h->grad))
		return err_nomem(e, (h->n + 1) * sizeof *h->grad, "offloaded gradients");
	h->grad[h->n++] = (struct hosted_grad){ to, from, bytes };
	return 0;
}

static int begin_next(struct hosted *h, struct err *e)
{
	const struct hosted_grad *g = &h->grad[h->sent];
	return dev_download_begin(g->to, g->from, g->bytes, e);
}

int hosted_start(struct hosted *h, struct err *e)
{
	if (h->begun || h->sent == h->n || !dev_beside(h->dev))
		return 0;
	h->begun = true;
	return begin_next(h, e);
}

int hosted_send(struct hosted *h, struct err *e)
{
	for (; h->sent < h->n; h->sent++) {
		const int64_t begin = clock_now();
		const int busy = dev_busy(h->dev, e);
		if (busy < 0)
			return busy;
		if (!h->begun)
			TRY(begin_next(h, e));
		h->begun = false;
		TRY(dev_download_end(h->dev, e));
		count(h, h->grad[h->sent].bytes, busy, INSTR_REDUCE, begin);
	}
	h->n = h->sent = 0;
	return 0;
}

/* ---- values ---- */

static int bring(struct hosted *h, bool busy, struct err *e)
{
	struct param *p = h->lazy[h->brought++];
	const int64_t begin = clock_now();
	const size_t bytes = p->late ? (size_t)param_count(p) * dtype_size(p->w.dtype) : 0;
	TRY(param_bring(p, e));
	if (bytes)
		count(h, bytes, busy, INSTR_GATHER, begin);
	return 0;
}

int hosted_need(struct hosted *h, int layer, struct err *e)
{
	while (h->brought < h->lazies && h->lazy[h->brought]->layer <= layer)
		TRY(bring(h, false, e));
	return 0;
}

int hosted_advance(struct hosted *h, struct err *e)
{
	int busy = h->brought < h->lazies ? dev_busy(h->dev, e) : 0;
	while (busy > 0) {
		TRY(bring(h, true, e));
		busy = h->brought < h->lazies ? dev_busy(h->dev, e) : 0;
	}
	return busy;
}
