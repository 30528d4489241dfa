/* SPDX-License-Identifier: Apache-2.0 */
/* group_sum.c - see group_sum.h. */
#include "engine/group_sum.h"
#include "engine/group_there.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

static bool in_group(const struct group_sum *g) { return g->sums; }

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

static void round_numbers(void *ctx, float *v, size_t count)
{
	const struct array_sum *s = ctx;
	if (s->of->exchange->plan->reduce_dtype == DT_BF16)
		for (size_t i = 0; i < count; i++)
			v[i] = bf16_to_f32(f32_to_bf16(v[i]));
}

static int has_numbers(void *ctx, int place, uint32_t number, struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_has_sum(s->of->exchange, place, s->array, number, e);
}

static int send_all(void *ctx, const float *v, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_send_all(s->of->exchange, v, count, e);
}

static int has_all(void *ctx, struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_has_all(s->of->exchange, e);
}

static int receive_all(void *ctx, float *v, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_receive_all(s->of->exchange, v, count, e);
}

/* ---- a job ---- */

/* The array of a part of a chunk; those of a chunk follow each other. */
static int array_of(const struct group_sum *g, int chunk, int part)
{
	return chunk * g->parts + part;
}

static int head_array(const struct group_sum *g) { return g->arrays - 1; }
static int end_array(const struct group_sum *g) { return g->arrays - 2; }

static int make_array(struct group_sum *g, int i, const struct plan_message *p, struct err *e)
{
	const bool head = i == head_array(g), end = g->model->deal && i == end_array(g);
	struct array_sum *s = &g->sum[i];
	TRY(grads_init(&g->grads[i],
		       &g->model->chunk[head || end ? g->model->chunks - 1 : i / g->parts],
		       head  ? GRADS_HEAD
		       : end ? GRADS_END
			     : i % g->parts,
		       g->parts, g->model->deal ? GRADS_REST : GRADS_ALL, p->reduce_order, e));
	*s = (struct array_sum){ .of = g, .array = i };
	s->r = (struct reduction){ .how = reducer_find(p->reducer),
				   .io = { own_numbers, take_sum, send_numbers, receive_numbers,
					   round_numbers, has_numbers, s, send_all, has_all,
					   receive_all, group_there(g->exchange->dev, p) },
				   .terms = &g->terms,
				   .me = plan_place(p),
				   .n = crew_homes(&p->crew, plan_stage(p)),
				   .cut = g->grads[i].cut,
				   .count = g->grads[i].count };
	g->shared = g->shared || g->grads[i].cut;
	return 0;
}

/* Where gradients go to the host while the rest of a chunk is computed, each layer is a part; and
 * where the passes of several microbatches take turns layer by layer. */
static int parts_of(const struct worker_model *m, const struct plan_message *p)
{
	int parts = p->crew.parts;
	if (m->deal)
		return (int)(m->chunk[0].opt.last - m->chunk[0].opt.first);
	if (!m->host || !(p->offload & OFFLOAD_OPTIMIZER) ||
	    crew_group_size(&p->crew, plan_stage(p)) > 1)
		return parts;
	for (int k = 0; k < m->chunks; k++) {
		const int layers = m->chunk[k].opt.last - m->chunk[k].opt.first;
		parts = layers > parts ? layers : parts;
	}
	return parts;
}

/* Of experts nothing is added up over members: each is in one place. */
static int make_experts(struct group_sum *g, const struct plan_message *p, struct err *e)
{
	if (!g->model->deal)
		return 0;
	g->experts = mem_array((size_t)g->parts, sizeof *g->experts);
	if (!g->experts)
		return err_nomem(e, (size_t)g->parts * sizeof *g->experts, "the sums of gradients");
	for (int k = 0; k < g->parts; k++)
		TRY(grads_init(&g->experts[k], &g->model->chunk[0], k, g->parts, GRADS_EXPERTS,
			       p->reduce_order, e));
	return 0;
}

int group_sum_begin(struct group_sum *g, struct exchange *x, const struct worker_model *m,
		    struct err *e)
{
	const struct plan_message *p = x->plan;
	const int parts = parts_of(m, p), homes = crew_homes(&p->crew, plan_stage(p));
	const size_t n = (size_t)m->chunks * (size_t)parts + (m->deal ? 2 : 1);
	*g = (struct group_sum){ .exchange = x, .model = m, .parts = parts, .arrays = (int)n };
	if (2 * n + 1 + 2 * (size_t)m->chunks > UINT16_MAX) /* their numbers in frames */
		return err_set(e, ERR_USAGE,
			       "%d chunks with gradients in %d parts each are too many: write a "
			       "smaller 'reduce_parts'",
			       m->chunks, parts);
	g->sums = homes > 1 && plan_place(p) < homes;
	g->grads = mem_array(n, sizeof *g->grads);
	g->sum = mem_array(n, sizeof *g->sum);
	g->numbers = mem_array(2 * n + 1 + 2 * (size_t)m->chunks, sizeof *g->numbers);
	g->most = mem_array(2 * n + 1 + 2 * (size_t)m->chunks, sizeof *g->most);
	g->turn = mem_array(n, sizeof *g->turn);
	if (!g->grads || !g->sum || !g->numbers || !g->most || !g->turn)
		return err_nomem(e, n * sizeof *g->sum, "the sums of gradients");
	for (int i = 0; i < g->arrays; i++)
		TRY(make_array(g, i, p, e));
	TRY(make_experts(g, p, e));
	TRY(gather_begin(&g->gather, x, m, 2 * g->arrays + 1, e));
	TRY(hosted_begin(&g->hosted, x->dev, m, x->times, e));
	for (int i = 0; gather_is_on(&g->gather) && i < g->arrays; i++)
		g->grads[i].pool = &g->pool;
	return 0;
}

int group_sum_round(struct group_sum *g, bool train, const int *place, int microbatches,
		    struct err *e)
{
	g->microbatches = train ? microbatches : 0;
	g->next = g->sent = 0;
	g->home = -1;
	for (int i = 0; i < g->arrays; i++) {
		grads_reset(&g->grads[i]);
		reduce_reset(&g->sum[i].r);
	}
	for (int i = 0; g->experts && i < g->parts; i++)
		grads_reset(&g->experts[i]);
	gather_round(&g->gather, train, place, microbatches);
	hosted_round(&g->hosted);
	if (!in_group(g) || !train)
		return 0;
	return sum_terms_find(&g->terms, g->exchange->plan->reduce_order, place, microbatches, e);
}

static uint32_t messages_of(size_t bytes) { return (uint32_t)((bytes + SUM_PART - 1) / SUM_PART); }

static void may_have(size_t *most, size_t bytes)
{
	bytes = bytes < SUM_PART ? bytes : SUM_PART;
	*most = bytes > *most ? bytes : *most;
}

/* Values and block sums of the others. */
static void due_of_shared(struct group_sum *g)
{
	const int n = g->exchange->beside.n, me = g->sum[0].r.me;
	for (int i = 0; i < g->arrays; i++) {
		uint32_t most = 0;
		for (int k = 0; k < n; k++) {
			const size_t bytes = grads_values_size(&g->grads[i], k);
			const uint32_t some = messages_of(bytes);
			most = some > most ? some : most;
			may_have(&g->most[g->arrays + i], bytes);
			g->due.messages += k == me ? 0 : some;
		}
		g->numbers[g->arrays + i] = most;
	}
	/* of each block of what the others own: a float */
	size_t blocks = 0;
	for (int i = 0; i < g->arrays; i++)
		for (size_t k = 0; k < g->grads[i].n; k++)
			blocks += g->grads[i].run[k].count / STATE_BLOCK + 1;
	g->numbers[2 * g->arrays] = messages_of(blocks * sizeof(float)) + 1;
	may_have(&g->most[2 * g->arrays], blocks * sizeof(float));
	g->due.messages += (size_t)g->numbers[2 * g->arrays] * (size_t)n;
	g->due.arrays = 2 * g->arrays + 1;
}

/* Block sums of what other members have. */
static void due_of_norms(struct group_sum *g)
{
	size_t count[STATE_MEMBERS], all = 0;
	worker_model_block_counts(g->model, count);
	for (int k = 0; k < g->model->group; k++) {
		all += messages_of(count[k] * sizeof(float));
		may_have(&g->most[2 * g->arrays], count[k] * sizeof(float));
	}
	for (int i = g->due.arrays; i < 2 * g->arrays; i++)
		g->numbers[i] = 0;
	g->numbers[2 * g->arrays] = (uint32_t)all + 1;
	g->due.messages += all;
	g->due.arrays = 2 * g->arrays + 1;
}

/* Pieces of values, in every round. */
static void due_of_gathered(struct group_sum *g)
{
	const struct gather *x = &g->gather;
	for (int i = g->due.arrays; i < x->first_array; i++)
		g->numbers[i] = 0;
	for (int c = 0; c < 2 * g->model->chunks; c++) {
		uint32_t most = 0;
		for (int k = 0; k < x->members; k++) {
			const uint32_t some = gather_messages(x, c / 2, k);
			most = some > most ? some : most;
			g->due.messages += some;
			may_have(&g->most[x->first_array + c], gather_bytes(x, c / 2, k));
		}
		g->numbers[x->first_array + c] = most;
	}
	g->due.arrays = x->first_array + 2 * g->model->chunks;
}

const struct sums_due *group_sum_due(struct group_sum *g)
{
	const size_t all = 2 * (size_t)g->arrays + 1 + 2 * (size_t)g->model->chunks;
	g->due = (struct sums_due){ .numbers = g->numbers, .most = g->most };
	memset(g->most, 0, all * sizeof *g->most);
	for (int i = 0; i < g->arrays && in_group(g) && g->microbatches; i++) {
		const struct reduction *r = &g->sum[i].r;
		const uint64_t n = (uint64_t)reduce_segments(r) * r->how->numbers(r);
		g->numbers[i] = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
		may_have(&g->most[i], r->count * sizeof(float));
		g->due.messages += reduce_receives(r);
		g->due.arrays++;
	}
	if (g->shared && g->due.arrays)
		due_of_shared(g);
	if (g->model->deal && g->microbatches)
		due_of_norms(g);
	if (gather_is_on(&g->gather) && in_group(g))
		due_of_gathered(g);
	return &g->due;
}

/* The gradients of the array that was complete last go to the memory of the host: while the device
 * computes what has been queued since. */
int group_sum_complete(struct group_sum *g, struct err *e)
{
	if (g->home < 0)
		return 0;
	TRY(hosted_send(&g->hosted, e));
	TRY(grads_give_back(&g->grads[g->home], e));
	g->home = -1;
	return 0;
}

static int add(struct group_sum *g, int array, int m, struct err *e)
{
	TRY(group_sum_complete(g, e));
	TRY(grads_add(&g->grads[array], m, e));
	if (in_group(g) || m + 1 < g->microbatches)
		return 0;
	TRY(grads_finish(&g->grads[array], &g->hosted, e));
	g->home = array;
	return g->hosted.n ? hosted_start(&g->hosted, e) : group_sum_complete(g, e);
}

int group_sum_backward(struct group_sum *g, int chunk, int m, int part, int parts, struct err *e)
{
	const int end = parts ? part + 1 : g->parts;
	for (int p = parts ? part : 0; p < end; p++)
		TRY(add(g, array_of(g, chunk, p), m, e));
	return 0;
}

int group_sum_head(struct group_sum *g, int m, struct err *e)
{
	return add(g, head_array(g), m, e);
}

int group_sum_experts(struct group_sum *g, int m, int part, struct err *e)
{
	TRY(grads_add(&g->experts[part], m, e));
	return m + 1 < g->microbatches ? 0 : grads_finish(&g->experts[part], &g->hosted, e);
}

int group_sum_end(struct group_sum *g, int m, struct err *e) { return add(g, end_array(g), m, e); }

/* At the end of the model the first part takes the head's array along, and the end's where it has
 * one: they were complete before. */
static bool with_head(const struct group_sum *g, int chunk, int part)
{
	return part == 0 && g->model->chunk[chunk].end;
}

static int send_array(struct group_sum *g, int array, struct err *e)
{
	size_t under_way = 0;
	for (int k = g->next; k < g->sent; k++)
		under_way += reduce_under_way(&g->sum[g->turn[k]].r);
	g->turn[g->sent++] = array;
	TRY(grads_close(&g->grads[array], &g->terms, g->sum[array].r.me, e));
	return under_way < REDUCE_MOST_UNDER_WAY ? reduce_begin(&g->sum[array].r, e) : 0;
}

static int send_sums(struct group_sum *g, int chunk, int part, struct err *e)
{
	if (with_head(g, chunk, part) && g->model->deal)
		TRY(send_array(g, end_array(g), e));
	if (with_head(g, chunk, part))
		TRY(send_array(g, head_array(g), e));
	TRY(send_array(g, array_of(g, chunk, part), e));
	return group_sum_advance(g, e);
}

int group_sum_advance(struct group_sum *g, struct err *e)
{
	int rc = 1;
	while (rc > 0 && g->next < g->sent) {
		rc = reduce_advance(&g->sum[g->turn[g->next]].r, e);
		g->next += rc > 0;
	}
	TRY(rc < 0 ? rc : gather_advance(&g->gather, e));
	return hosted_advance(&g->hosted, e);
}

int group_sum_before(struct group_sum *g, int layer, struct err *e)
{
	return hosted_need(&g->hosted, layer, e);
}

int group_sum_parts(const struct group_sum *g, int m)
{
	const bool split = g->parts > g->exchange->plan->crew.parts;
	return split && m + 1 == g->microbatches ? g->parts : 1;
}

/* Of a gathered chunk what the sum needed is free for another one. */
static int finish_array(struct group_sum *g, int array, struct err *e)
{
	TRY(reduce_finish(&g->sum[array].r, e));
	if (gather_is_on(&g->gather))
		reduce_release(&g->sum[array].r);
	return grads_give_back(&g->grads[array], e);
}

static int finish_sums(struct group_sum *g, int chunk, int part, struct err *e)
{
	if (with_head(g, chunk, part) && g->model->deal)
		TRY(finish_array(g, end_array(g), e));
	if (with_head(g, chunk, part))
		TRY(finish_array(g, head_array(g), e));
	TRY(finish_array(g, array_of(g, chunk, part), e));
	if (part + 1 == g->parts)
		gather_take_gradients(&g->gather, chunk);
	return 0;
}

int group_sum_execute(struct group_sum *g, const struct instr *i, struct err *e)
{
	const bool gathers = gather_is_on(&g->gather); /* or others do, and here all is resident */
	switch (i->kind) {
	case INSTR_SEND_SUMS:
		return send_sums(g, i->chunk, i->part, e);
	case INSTR_REDUCE:
		return finish_sums(g, i->chunk, i->part, e);
	case INSTR_SEND_VALUES:
		return gathers ? gather_send(&g->gather, i->chunk, i->part, e) : 0;
	case INSTR_GATHER:
		return gathers ? gather_finish(&g->gather, i->chunk, i->part, e) : 0;
	case INSTR_RELEASE:
		if (gathers)
			gather_release(&g->gather, i->chunk);
		return 0;
	default:
		return err_set(e, ERR_INTERNAL, "instruction %d of a group", i->kind);
	}
}

/* ---- shared state ---- */

static int send_bytes(struct group_sum *g, int place, int array, const void *p, size_t n,
		      struct err *e)
{
	for (size_t at = 0; at < n; at += SUM_PART) {
		const size_t some = n - at < SUM_PART ? n - at : SUM_PART;
		TRY(exchange_send_bytes(g->exchange, place, array, (uint32_t)(at / SUM_PART),
					(const unsigned char *)p + at, some, e));
	}
	return 0;
}

static int receive_bytes(struct group_sum *g, int place, int array, void *p, size_t n,
			 struct err *e)
{
	for (size_t at = 0; at < n; at += SUM_PART) {
		const size_t some = n - at < SUM_PART ? n - at : SUM_PART;
		TRY(exchange_receive_bytes(g->exchange, place, array, (uint32_t)(at / SUM_PART),
					   (unsigned char *)p + at, some, e));
	}
	return 0;
}

static int room_for(struct group_sum *g, size_t n, struct err *e)
{
	return mem_grow(&g->bytes, &g->cap, n ? n : 1, 1) ? 0
							  : err_nomem(e, n, "values of a stage");
}

static int send_values(struct group_sum *g, int array, struct err *e)
{
	const int n = g->exchange->beside.n, me = g->sum[array].r.me;
	const size_t bytes = grads_values_size(&g->grads[array], me);
	TRY(room_for(g, bytes, e));
	TRY(grads_values_get(&g->grads[array], me, g->bytes, e));
	for (int k = 1; k < n; k++) /* each begins with another one */
		TRY(send_bytes(g, (me + k) % n, g->arrays + array, g->bytes, bytes, e));
	return 0;
}

static int receive_values(struct group_sum *g, int array, struct err *e)
{
	const int n = g->exchange->beside.n, me = g->sum[array].r.me;
	for (int k = 0; k < n; k++) {
		const size_t bytes = grads_values_size(&g->grads[array], k);
		if (k == me || !bytes)
			continue;
		TRY(room_for(g, bytes, e));
		TRY(receive_bytes(g, k, g->arrays + array, g->bytes, bytes, e));
		TRY(grads_values_put(&g->grads[array], k, g->bytes, e));
	}
	return 0;
}

int group_sum_values(struct group_sum *g, struct err *e)
{
	for (int i = 0; g->shared && i < g->arrays; i++) {
		if (i == 0)
			TRY(send_values(g, 0, e));
		if (i + 1 < g->arrays) /* one ahead: the next is on its way while this is taken */
			TRY(send_values(g, i + 1, e));
		TRY(receive_values(g, i, e));
	}
	return 0;
}

/* `own` are this member's block sums, in the order of its parameters; member k has count[k]. The
 * first member gets those of the others, member after member, behind its own: *all_p. */
static int collect_blocks(struct group_sum *g, const float *own, const size_t *count, float **all_p,
			  struct err *e)
{
	const int n = g->exchange->beside.n, me = g->sum[0].r.me;
	size_t all = 0, at = count[0];
	*all_p = NULL;
	if (me)
		return send_bytes(g, 0, 2 * g->arrays, own, count[me] * sizeof *own, e);
	for (int k = 0; k < n; k++)
		all += count[k];
	TRY(room_for(g, all * sizeof *own, e));
	float *v = (float *)(void *)g->bytes;
	memcpy(v, own, count[0] * sizeof *own);
	for (int k = 1; k < n; at += count[k++])
		TRY(receive_bytes(g, k, 2 * g->arrays, v + at, count[k] * sizeof *own, e));
	*all_p = v;
	return 0;
}

int group_sum_norms(struct group_sum *g, struct worker_model *m, struct err *e)
{
	const int me = plan_place(g->exchange->plan);
	const bool apart = g->shared || (m->deal && m->group > 1);
	size_t count[STATE_MEMBERS];
	if (me && !apart)
		return 0;
	TRY(worker_model_blocks(m, e));
	float *all = m->blocks;
	if (apart) {
		worker_model_block_counts(m, count);
		TRY(collect_blocks(g, m->blocks, count, &all, e));
	}
	return me ? 0 : worker_model_norms(m, all, e);
}

void group_sum_release(struct group_sum *g)
{
	for (int i = 0; i < g->arrays && g->grads && g->sum; i++) {
		grads_release(&g->grads[i]);
		reduce_release(&g->sum[i].r);
	}
	for (int i = 0; g->experts && i < g->parts; i++)
		grads_release(&g->experts[i]);
	mem_free(g->experts);
	mem_free(g->grads);
	mem_free(g->sum);
	mem_free(g->numbers);
	mem_free(g->most);
	mem_free(g->turn);
	mem_free(g->bytes);
	group_there_release(g);
	gather_end(&g->gather);
	hosted_end(&g->hosted);
	grad_pool_release(&g->pool);
	sum_terms_release(&g->terms);
	*g = (struct group_sum){ 0 };
}
