/* SPDX-License-Identifier: Apache-2.0 */
/* group_sum.c - see group_sum.h. */
#include "engine/group_sum.h"

#include "base/err.h"
#include "base/mem.h"

/* The reduction of an array of gradients, and what its functions need. */
struct array_sum {
	struct group_sum *of;
	int array; /* a chunk, or the number behind the last one: the head */
	struct reduction r;
};

static bool in_group(const struct group_sum *g) { return g->exchange->beside.n > 1; }

/* ---- for reductions ---- */

static int own_numbers(void *ctx, size_t k, size_t first, size_t count, float *v, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_download(&s->of->grads[s->array], k, first, count, v, e);
}

static int take_sum(void *ctx, size_t first, size_t count, const float *v, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_upload(&s->of->grads[s->array], first, count, v, e);
}

static int send_numbers(void *ctx, int place, uint32_t number, const float *v, size_t count,
			struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_send_sum(s->of->exchange, place, s->array, number, v, count, e);
}

static int receive_numbers(void *ctx, int place, uint32_t number, float *v, size_t count,
			   struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_receive_sum(s->of->exchange, place, s->array, number, v, count, e);
}

/* ---- a job ---- */

int group_sum_begin(struct group_sum *g, struct exchange *x, const struct worker_model *m,
		    struct err *e)
{
	const struct plan_message *p = x->plan;
	const size_t n = (size_t)m->chunks + 1;
	*g = (struct group_sum){ .exchange = x, .model = m, .chunks = m->chunks };
	g->grads = mem_array(n, sizeof *g->grads);
	g->sum = mem_array(n, sizeof *g->sum);
	g->numbers = mem_array(n, sizeof *g->numbers);
	if (!g->grads || !g->sum || !g->numbers)
		return err_nomem(e, n * sizeof *g->sum, "the sums of gradients");
	for (int c = 0; c <= g->chunks; c++) {
		struct array_sum *s = &g->sum[c];
		struct stage *of = &m->chunk[c < g->chunks ? c : g->chunks - 1];
		TRY(grads_init(&g->grads[c], of, c == g->chunks, p->reduce_order, e));
		*s = (struct array_sum){ .of = g, .array = c };
		s->r = (struct reduction){ .how = reducer_find(p->reducer),
					   .io = { own_numbers, take_sum, send_numbers,
						   receive_numbers, s },
					   .terms = &g->terms,
					   .me = plan_place(p),
					   .n = crew_group_size(&p->crew, plan_stage(p)),
					   .count = g->grads[c].count };
	}
	return 0;
}

int group_sum_round(struct group_sum *g, bool train, const int *place, int microbatches,
		    struct err *e)
{
	g->microbatches = train ? microbatches : 0;
	for (int c = 0; c <= g->chunks; c++)
		grads_reset(&g->grads[c]);
	if (!in_group(g) || !train)
		return 0;
	return sum_terms_find(&g->terms, g->exchange->plan->reduce_order, place, microbatches, e);
}

const struct sums_due *group_sum_due(struct group_sum *g)
{
	g->due = (struct sums_due){ .numbers = g->numbers };
	for (int c = 0; c <= g->chunks && in_group(g) && g->microbatches; c++) {
		const struct reduction *r = &g->sum[c].r;
		const uint64_t n = (uint64_t)reduce_segments(r) * r->how->numbers(r);
		g->numbers[c] = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
		g->due.messages += reduce_receives(r);
		g->due.arrays++;
	}
	return &g->due;
}

static int add(struct group_sum *g, int array, int m, struct err *e)
{
	TRY(grads_add(&g->grads[array], m, e));
	return in_group(g) || m + 1 < g->microbatches ? 0 : grads_finish(&g->grads[array], e);
}

int group_sum_backward(struct group_sum *g, int chunk, int m, struct err *e)
{
	return add(g, chunk, m, e);
}

int group_sum_head(struct group_sum *g, int m, struct err *e) { return add(g, g->chunks, m, e); }

/* The arrays of a chunk are its own and, at the end of the model, the head's. */
static int last_array(const struct group_sum *g, int chunk)
{
	return g->model->chunk[chunk].end ? g->chunks : chunk;
}

int group_sum_send(struct group_sum *g, int chunk, struct err *e)
{
	for (int c = chunk; c <= last_array(g, chunk); c++) {
		TRY(grads_close(&g->grads[c], &g->terms, g->sum[c].r.me, e));
		TRY(reduce_begin(&g->sum[c].r, e));
	}
	return 0;
}

int group_sum_finish(struct group_sum *g, int chunk, struct err *e)
{
	for (int c = chunk; c <= last_array(g, chunk); c++)
		TRY(reduce_finish(&g->sum[c].r, e));
	return 0;
}

void group_sum_release(struct group_sum *g)
{
	for (int c = 0; c <= g->chunks && g->grads && g->sum; c++) {
		grads_release(&g->grads[c]);
		reduce_release(&g->sum[c].r);
	}
	mem_free(g->grads);
	mem_free(g->sum);
	mem_free(g->numbers);
	sum_terms_release(&g->terms);
	*g = (struct group_sum){ 0 };
}
