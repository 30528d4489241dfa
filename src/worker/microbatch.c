/* SPDX-License-Identifier: Apache-2.0 */
/* microbatch.c - see microbatch.h. */
#include "worker/microbatch.h"

#include "base/clock.h"
#include "base/err.h"
#include "model/model_block.h"
#include "base/mem.h"
#include "proto/routers.h"
#include "proto/pairs_wire.h"
#include "runtime/generate.h"
#include "worker/worker_priv.h"

int worker_need_batch(struct worker *w, int m, struct err *e)
{
	struct orders *o = &w->orders;
	int64_t deadline = orders_patience(o);
	for (bool first = true; !orders_has_batch(o, m); first = false) {
		TRY(orders_listen(o, first ? NET_NOW : deadline, e));
		if (first && !orders_has_batch(o, m)) {
			TRY(exchange_flush(&w->exchange, e));
			beat_state(&w->beat, PROGRESS_IDLE);
		}
		if (!orders_has_batch(o, m) && clock_now() > deadline)
			return err_set(e, ERR_NET,
				       "the coordinator sent no microbatch %d within %g s", m,
				       o->timeout);
		times_waited(&w->times, clock_now());
	}
	beat_state(&w->beat, PROGRESS_WORKING);
	return 0;
}

/* Whether nothing of a chunk stays on the device between its forward and its backward pass. */
static bool is_parked(const struct worker *w, int chunk)
{
	return w->park.on && w->train && !w->model.chunk[chunk].end;
}

/* Of the output of the slot's stage, or of its input. */
static size_t activation_bytes(const struct slot *sl, bool out)
{
	const struct stage_options *o = &sl->stage->opt;
	return stage_bytes(sl->stage, sl->b.n, out ? o->last : o->first);
}

/* Microbatch m, whose BATCH is here. */
static struct stage_batch batch_of(const struct worker *w, int m)
{
	const struct batch_store *b = &w->orders.batch[m];
	return (struct stage_batch){ .step = b->head.step,
				     .microbatch = (uint64_t)m,
				     .n = b->head.n,
				     .nseq = b->head.nseq,
				     .first_row = b->head.first_row,
				     .nrows = b->head.nrows,
				     .row = b->row,
				     .id = b->id,
				     .pos = b->pos,
				     .label = b->label,
				     .start = b->start,
				     .pairs = b->head.pairs ? &b->pairs : NULL,
				     .base = b->head.round == ROUND_REFER,
				     .train = w->train,
				     .scale = b->head.scale };
}

int worker_experts(struct worker *w, const struct instr *i, struct err *e)
{
	const int *place = w->shape.members ? w->list.deal : NULL;
	struct slot *sl = NULL;
	if (away_is_home(&w->away, place, i->microbatch))
		TRY(worker_open_slot(w, i, &sl, e));
	else
		TRY(worker_need_batch(w, i->microbatch, e));
	const struct stage_batch b = batch_of(w, i->microbatch);
	return away_execute(&w->away, i, sl, &b, e);
}

int worker_open_slot(struct worker *w, const struct instr *i, struct slot **sl_p, struct err *e)
{
	int fresh =
		slots_open(&w->slots, &w->model.chunk[i->chunk], i->chunk, i->microbatch, sl_p, e);
	if (fresh <= 0)
		return fresh;
	TRY(worker_need_batch(w, i->microbatch, e));
	const struct stage_batch sb = batch_of(w, i->microbatch);
	TRY(stage_begin(*sl_p, &sb, e));
	if (!w->park.on || !w->train || (*sl_p)->stage->front)
		return 0;
	const bool last =
		i->kind == INSTR_BACKWARD || i->kind == INSTR_RECV_GRAD || !is_parked(w, i->chunk);
	return park_take(&w->park, PARK_IN, i->chunk, i->microbatch, (*sl_p)->in, last, e) < 0
		       ? e->code
		       : 0;
}

int worker_repeat_forward(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	if (!is_parked(w, i->chunk) || sl->out.buf)
		return 0;
	return stage_forward(sl, e);
}

int worker_fetch_next(struct worker *w, struct err *e)
{
	size_t k = w->exchange.at + 1;
	struct slot *sl;
	while (k < w->list.n && instr_is_of_group(w->list.item[k].kind))
		k++;
	if (!dev_beside(w->dev) || k == w->list.n)
		return 0;
	const struct instr *i = &w->list.item[k];
	if (i->kind != INSTR_FORWARD && i->kind != INSTR_BACKWARD)
		return 0;
	return park_has(&w->park, PARK_IN, i->chunk, i->microbatch) ? worker_open_slot(w, i, &sl, e)
								    : 0;
}

/* With several chunks on a single worker: what a microbatch takes with it for routers. Forward it
 * goes from chunk to chunk, then the derivatives come back, so one place is enough for both. */
static int keep_routers(struct worker *w, const struct instr *i, const struct slot *sl,
			bool forward, struct err *e)
{
	const size_t n = routers_bytes(&w->plan.cfg, &w->plan.opt, w->train, false),
		     m = (size_t)i->microbatch;
	if (!sl->sums)
		return 0;
	if (!mem_grow(&w->routers, &w->routers_cap, (m + 1) * n, 1))
		return err_nomem(e, (m + 1) * n, "the sums of routers");
	routers_put(sl->sums, !forward, w->routers + m * n);
	return 0;
}

void worker_take_routers(struct worker *w, const struct instr *i, struct slot *sl, bool forward)
{
	const size_t n = routers_bytes(&w->plan.cfg, &w->plan.opt, w->train, false);
	const bool first = forward ? i->chunk == 0 : i->chunk + 1 == w->plan.crew.chunks;
	if (w->plan.crew.stages == 1 && sl->sums && !first)
		routers_take(sl->sums, !forward, w->routers + (size_t)i->microbatch * n);
}

/* A chunk that has run no microbatch yet keeps as much as the one before it. But the end of the
 * model keeps more: one block of less would leave a gap. */
static void expect_alike(const struct stage *s, struct stage *next)
{
	if (next->kept_rows || next->end ||
	    next->opt.last - next->opt.first != s->opt.last - s->opt.first)
		return;
	next->kept_rows = s->kept_rows;
	next->kept_bytes = s->kept_bytes;
}

int worker_pass_on(struct worker *w, const struct instr *i, bool forward, struct err *e)
{
	struct slot *from, *to;
	struct instr there = *i;
	there.chunk += forward ? 1 : -1;
	if (w->plan.crew.stages > 1 || there.chunk < 0 || there.chunk >= w->plan.crew.chunks)
		return 0;
	TRY(worker_open_slot(w, i, &from, e));
	const size_t bytes = activation_bytes(from, forward);
	TRY(keep_routers(w, i, from, forward, e));
	if (is_parked(w, forward ? i->chunk : there.chunk))
		return park_put(&w->park, forward ? PARK_IN : PARK_GRAD, there.chunk, i->microbatch,
				from, forward ? from->out : from->grad, bytes, e);
	if (forward && w->train)
		expect_alike(&w->model.chunk[i->chunk], &w->model.chunk[there.chunk]);
	TRY(worker_open_slot(w, &there, &to, e));
	TRY(worker_open_slot(w, i, &from, e)); /* the pool may have moved */
	TRY(dev_copy(forward ? to->in : to->grad, forward ? from->out : from->grad, bytes, e));
	if (!forward || !w->train)
		slots_free(&w->slots, from);
	return 0;
}

int worker_keep_input(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	if (w->train && !is_parked(w, i->chunk))
		return 0;
	if (!w->train || sl->stage->front) {
		slots_free(&w->slots, sl);
		return 0;
	}
	TRY(exchange_flush(&w->exchange, e)); /* one download at a time */
	TRY(park_put(&w->park, PARK_IN, i->chunk, i->microbatch, sl, sl->in,
		     activation_bytes(sl, false), e));
	return park_settle(&w->park, e);
}

int worker_send_reference(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	size_t n;
	if (!sl->b.pairs)
		return err_set(e, ERR_PROTOCOL, "BATCH: a reference of no pairs");
	TRY(reference_write(sl->pair, (size_t)sl->b.nseq, w->orders.payload, ORDERS_PAYLOAD, &n,
			    e));
	return orders_say(&w->orders, FRAME_REFERENCE, (uint32_t)i->microbatch, w->orders.payload,
			  n, e);
}

int worker_backward(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	const bool front = sl->stage->front;
	if (i->part == 0) {
		TRY(worker_repeat_forward(w, i, sl, e));
		worker_take_routers(w, i, sl, false);
		if (park_take(&w->park, PARK_GRAD, i->chunk, i->microbatch, sl->grad, true, e) < 0)
			return e->code;
	}
	const int parts = i->parts ? i->parts : group_sum_parts(&w->sum, i->microbatch);
	const int last = i->parts ? i->part : parts - 1;
	for (int k = i->part; k <= last; k++) {
		TRY(stage_backward_part(sl, k, parts, e));
		TRY(group_sum_backward(&w->sum, i->chunk, i->microbatch, k,
				       parts > 1 ? parts : i->parts, e));
	}
	if (i->part + 1 < i->parts)
		return 0;
	if (front) {
		slots_free(&w->slots, sl);
	} else {
		TRY(worker_fetch_next(w, e));
		TRY(exchange_computed(&w->exchange, e));
	}
	return worker_pass_on(w, i, false, e);
}

int worker_send_token(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	size_t n, v = (size_t)sl->stage->cfg.vocab;
	const struct batch_head *h = &w->orders.batch[i->microbatch].head;
	const struct sampling s = { h->draw.temperature, h->draw.top_p, 0, h->draw.seed };
	if (!mem_grow(&w->logits, &w->logits_cap, v, sizeof *w->logits) ||
	    !mem_grow(&w->order, &w->order_cap, v, sizeof *w->order))
		return err_nomem(e, v * 8ull, "logits");
	TRY(stage_logits(sl, w->logits, e));
	int32_t id = sample_token(w->logits, (int64_t)v, &s, h->n, w->order);
	TRY(token_write(id < 0 ? TOKEN_NONE : id, w->orders.payload, ORDERS_PAYLOAD, &n, e));
	return orders_say(&w->orders, FRAME_TOKEN, (uint32_t)i->microbatch, w->orders.payload, n,
			  e);
}

int worker_exchange_tied(struct worker *w, const struct instr *i, struct err *e)
{
	const struct worker_model *m = &w->model;
	struct stage *front = &m->chunk[0], *end = &m->chunk[m->chunks - 1];
	TRY(group_sum_complete(&w->sum, e));
	switch (i->kind) {
	case INSTR_SEND_TIED_GRAD:
		return exchange_send_tied(&w->exchange, i,
					  DEV_REF(worker_model_replica(m)->grad, 0), e);
	case INSTR_RECV_TIED_GRAD:
		return exchange_receive_tied(&w->exchange, i, front->embed, front->scratch, e);
	case INSTR_SEND_TIED_VALUE:
		return exchange_send_tied(&w->exchange, i, front->embed->w.data, e);
	default:
		return exchange_receive_tied(&w->exchange, i, worker_model_replica(m), end->scratch,
					     e);
	}
}
