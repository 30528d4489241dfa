/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - see gather.h. */
#include "engine/gather.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "tensor/gathered.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static int larger_first(const void *a, const void *b)
{
	const struct param *p = *(struct param *const *)a, *q = *(struct param *const *)b;
	const size_t x = gathered_size(p).data, y = gathered_size(q).data;
	return x != y ? (x < y) - (x > y) : (p > q) - (p < q);
}

static int find_params(struct gather_chunk *c, struct stage *s, struct err *e)
{
	c->param = mem_array(s->nparam, sizeof *c->param);
	if (!c->param)
		return err_nomem(e, s->nparam * sizeof *c->param, "the gathered parameters");
	for (size_t i = 0; i < s->nparam; i++)
		if (s->param[i].gathered)
			c->param[c->n++] = &s->param[i];
	qsort(c->param, c->n, sizeof *c->param, larger_first);
	return 0;
}

static size_t gradient_bytes(const struct param *p)
{
	return p->trainable ? (size_t)param_count(p) * 4 : 0;
}

static int lend(struct dev *d, size_t bytes, struct dev_buf **b_p, struct err *e)
{
	return bytes ? dev_alloc(d, bytes, b_p, e) : 0;
}

/* Memory for the largest of the chunks that use it. */
static int make_memory(struct gather *g, int which, struct err *e)
{
	struct gather_memory *m = &g->memory[which];
	const int chunks = g->model->chunks;
	for (int c = which; c < chunks; c += 2)
		m->n = g->chunk[c].n > m->n ? g->chunk[c].n : m->n;
	if (!m->n)
		return 0;
	m->data = mem_array(m->n, sizeof *m->data);
	m->scales = mem_array(m->n, sizeof *m->scales);
	m->grad = mem_array(m->n, sizeof *m->grad);
	if (!m->data || !m->scales || !m->grad)
		return err_nomem(e, m->n * sizeof *m->data, "the gathered parameters");
	for (size_t j = 0; j < m->n; j++) {
		size_t data = 0, scales = 0, grad = 0;
		for (int c = which; c < chunks; c += 2) {
			if (j >= g->chunk[c].n)
				continue;
			const struct param *p = g->chunk[c].param[j];
			const struct gathered_size s = gathered_size(p);
			data = s.data > data ? s.data : data;
			scales = s.scales > scales ? s.scales : scales;
			grad = gradient_bytes(p) > grad ? gradient_bytes(p) : grad;
		}
		struct dev *d = g->exchange->dev;
		TRY(lend(d, data, &m->data[j], e));
		TRY(lend(d, scales, &m->scales[j], e));
		TRY(lend(d, grad, &m->grad[j], e));
	}
	return 0;
}

int gather_begin(struct gather *g, struct exchange *x, const struct worker_model *m,
		 int first_array, struct err *e)
{
	*g = (struct gather){ .exchange = x,
			      .model = m,
			      .me = m->cut.place,
			      .members = m->cut.n,
			      .first_array = first_array,
			      .coming = -1 };
	if (!m->cut.n || !m->cut.values)
		return 0;
	g->chunk = mem_array((size_t)m->chunks, sizeof *g->chunk);
	if (!g->chunk)
		return err_nomem(e, (size_t)m->chunks * sizeof *g->chunk,
				 "the gathered parameters");
	for (int c = 0; c < m->chunks; c++)
		TRY(find_params(&g->chunk[c], &m->chunk[c], e));
	TRY(make_memory(g, 0, e));
	return make_memory(g, 1, e);
}

static void free_all(struct dev_buf **b, size_t n)
{
	for (size_t j = 0; b && j < n; j++)
		dev_free(b[j]);
	mem_free(b);
}

void gather_end(struct gather *g)
{
	for (int c = 0; g->chunk && c < g->model->chunks; c++)
		mem_free(g->chunk[c].param);
	mem_free(g->chunk);
	for (int k = 0; k < 2; k++) {
		free_all(g->memory[k].data, g->memory[k].n);
		free_all(g->memory[k].scales, g->memory[k].n);
		free_all(g->memory[k].grad, g->memory[k].n);
	}
	mem_free(g->bytes);
	*g = (struct gather){ 0 };
}

/* ---- a round ---- */

void gather_round(struct gather *g, bool train, const int *place, int microbatches)
{
	g->train = train;
	g->coming = -1;
	for (int k = 0; k < g->members; k++)
		g->computes[k] = g->members == 1;
	for (int i = 0; i < microbatches && g->members > 1; i++)
		g->computes[place[i]] = true;
}

static size_t piece_bytes(const struct gather *g, int chunk, int k)
{
	size_t n = 0;
	for (size_t j = 0; j < g->chunk[chunk].n; j++)
		n += gathered_piece_size(g->chunk[chunk].param[j], k);
	return n;
}

/* What member `from` sends to member `to`; at least a byte. */
static size_t message_bytes(const struct gather *g, int chunk, int from, int to)
{
	const size_t n = g->computes[to] ? piece_bytes(g, chunk, from) : 0;
	return n ? n : 1;
}

size_t gather_bytes(const struct gather *g, int chunk, int k)
{
	return message_bytes(g, chunk, k, g->me);
}

uint32_t gather_messages(const struct gather *g, int chunk, int k)
{
	return (uint32_t)((gather_bytes(g, chunk, k) + SUM_PART - 1) / SUM_PART);
}

static int room_for(struct gather *g, size_t n, struct err *e)
{
	return mem_grow(&g->bytes, &g->cap, n, 1) ? 0 : err_nomem(e, n, "values of a chunk");
}

static int array_of(const struct gather *g, int chunk, int part)
{
	return g->first_array + 2 * chunk + part;
}

/* The own piece of a chunk, as it travels. */
static int own_bytes(struct gather *g, int chunk, struct err *e)
{
	const struct gather_chunk *c = &g->chunk[chunk];
	size_t own = piece_bytes(g, chunk, g->me), at = 0;
	TRY(room_for(g, own + 1, e));
	g->bytes[0] = 0;
	for (size_t j = 0; j < c->n; j++) {
		const struct param *p = c->param[j];
		const size_t n = gathered_piece_size(p, g->me);
		if (n && p->hosted)
			memcpy(g->bytes + at, param_hosted(p), n);
		else
			TRY(gathered_get(p, g->me, g->bytes + at, e));
		at += n;
	}
	return 0;
}

int gather_send(struct gather *g, int chunk, int part, struct err *e)
{
	const struct gather_chunk *c = &g->chunk[chunk];
	const struct gather_memory *m = &g->memory[chunk % 2];
	for (size_t j = 0; j < c->n; j++)
		TRY(gathered_open(c->param[j], m->data[j], m->scales[j], e));
	if (g->members > 1)
		TRY(own_bytes(g, chunk, e));
	for (int k = 1; k < g->members; k++) { /* each begins with another one */
		const int to = (g->me + k) % g->members;
		const size_t n = message_bytes(g, chunk, g->me, to);
		uint32_t number = 0;
		for (size_t done = 0; done < n; done += SUM_PART)
			TRY(exchange_send_bytes(g->exchange, to, array_of(g, chunk, part), number++,
						g->bytes + done,
						n - done < SUM_PART ? n - done : SUM_PART, e));
	}
	g->coming = chunk;
	g->part = part;
	g->own = 0;
	for (int k = 0; k < g->members; k++)
		g->came[k] = k == g->me;
	return gather_advance(g, e);
}

/* The piece of member k, to the device. `early`: it has not been waited for. */
static int take_piece(struct gather *g, int k, bool early, struct err *e)
{
	const struct gather_chunk *c = &g->chunk[g->coming];
	const size_t n = message_bytes(g, g->coming, k, g->me);
	uint32_t number = 0;
	size_t at = 0;
	TRY(room_for(g, n, e));
	for (size_t done = 0; done < n; done += SUM_PART)
		TRY(exchange_receive_bytes(g->exchange, k, array_of(g, g->coming, g->part),
					   number++, g->bytes + done,
					   n - done < SUM_PART ? n - done : SUM_PART, e));
	g->came[k] = true;
	g->received += n;
	g->early += early ? n : 0;
	if (!g->computes[g->me])
		return 0;
	for (size_t j = 0; j < c->n; j++) {
		TRY(gathered_put(c->param[j], k, g->bytes + at, e));
		at += gathered_piece_size(c->param[j], k);
	}
	return 0;
}

/* Its messages come in their order: with the last one all are here. */
static int is_here(const struct gather *g, int k, struct err *e)
{
	const uint32_t last = gather_messages(g, g->coming, k) - 1;
	return exchange_has_sum(g->exchange, k, array_of(g, g->coming, g->part), last, e);
}

/* The next own parameter that is in the memory of the host, to the device. 0: there is none. */
static int upload_own(struct gather *g, bool busy, struct err *e)
{
	const struct gather_chunk *c = &g->chunk[g->coming];
	while (g->own < c->n && (!c->param[g->own]->hosted || !g->computes[g->me]))
		g->own++;
	if (g->own == c->n)
		return 0;
	struct param *p = c->param[g->own++];
	const size_t n = gathered_piece_size(p, g->me);
	const int64_t begin = clock_now();
	TRY(gathered_put(p, g->me, param_hosted(p), e));
	g->moved += n;
	g->beside += busy ? n : 0;
	const struct instr i = { .kind = INSTR_GATHER, .microbatch = -1, .chunk = g->coming };
	if (busy)
		times_beside(g->exchange->times, &i, begin, clock_now());
	return 1;
}

int gather_advance(struct gather *g, struct err *e)
{
	int busy = g->coming >= 0 ? dev_busy(g->exchange->dev, e) : 0, more = 1;
	while (busy > 0 && more > 0) {
		more = upload_own(g, true, e);
		busy = more > 0 ? dev_busy(g->exchange->dev, e) : more;
	}
	if (busy < 0)
		return busy;
	for (int k = 0; g->coming >= 0 && k < g->members; k++) {
		int rc = g->came[k] ? 0 : is_here(g, k, e);
		if (rc > 0)
			rc = take_piece(g, k, true, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The gradients of a chunk begin at zero. */
static int lend_gradients(struct gather *g, int chunk, struct err *e)
{
	const struct gather_chunk *c = &g->chunk[chunk];
	for (size_t j = 0; j < c->n; j++) {
		struct param *p = c->param[j];
		if (!p->trainable)
			continue;
		p->grad = g->memory[chunk % 2].grad[j];
		TRY(dev_zero(DEV_REF(p->grad, 0), gradient_bytes(p), e));
	}
	return 0;
}

int gather_finish(struct gather *g, int chunk, int part, struct err *e)
{
	if (g->coming != chunk || g->part != part)
		return err_set(e, ERR_INTERNAL, "GATHER of chunk %d, but chunk %d was asked for",
			       chunk, g->coming);
	int rc = 1;
	for (int k = 0; k < g->members && rc >= 0; k++) {
		const int here = g->came[k] ? 0 : is_here(g, k, e);
		rc = here < 0 || g->came[k] ? here : take_piece(g, k, here, e);
	}
	for (rc = rc < 0 ? rc : 1; rc > 0;)
		rc = upload_own(g, false, e);
	if (rc < 0)
		return rc;
	g->coming = -1;
	/* the last chunk's backwards follow its forwards, which make the head's gradient */
	const bool backward = part == 1 || chunk == g->model->chunks - 1;
	return g->train && backward && g->computes[g->me] ? lend_gradients(g, chunk, e) : 0;
}

void gather_release(struct gather *g, int chunk)
{
	for (size_t j = 0; j < g->chunk[chunk].n; j++)
		gathered_close(g->chunk[chunk].param[j]);
	if (g->members == 1)
		gather_take_gradients(g, chunk);
}

void gather_take_gradients(struct gather *g, int chunk)
{
	for (size_t j = 0; g->chunk && j < g->chunk[chunk].n; j++)
		g->chunk[chunk].param[j]->grad = NULL;
}
