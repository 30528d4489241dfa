/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_due.c - see exchange_parts.h: which messages of other workers a round still needs;
 * anything else is refused before it is kept. */
#include "engine/exchange_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "proto/routers.h"

#include <stdio.h>

enum frame_kind exchange_frame(const struct instr *i)
{
	switch (i->kind) {
	case INSTR_SEND_ACT:
	case INSTR_RECV_ACT:
		return FRAME_ACTIVATION;
	case INSTR_SEND_TIED_GRAD:
	case INSTR_RECV_TIED_GRAD:
		return FRAME_TIED_GRADIENT;
	case INSTR_SEND_TIED_VALUE:
	case INSTR_RECV_TIED_VALUE:
		return FRAME_TIED_VALUE;
	case INSTR_RECV_ROWS:
		return FRAME_ROWS;
	case INSTR_RECV_ROW_GRADS:
		return FRAME_ROW_GRADS;
	default:
		return FRAME_GRADIENT;
	}
}

/* Activations come from the stage before and go to the one behind; gradients the other way. The
 * front is behind the end: a tied gradient takes the way of an activation, a tied value that of a
 * gradient. */
bool exchange_goes_behind(enum frame_kind k)
{
	return k == FRAME_ACTIVATION || k == FRAME_TIED_GRADIENT;
}

static bool is_rows(enum frame_kind k) { return k == FRAME_ROWS || k == FRAME_ROW_GRADS; }

struct peer *exchange_peer(const struct exchange *x, const struct instr *i)
{
	if (is_rows(exchange_frame(i)))
		return x->beside.peer + i->place;
	bool behind = exchange_goes_behind(exchange_frame(i)) == instr_sends(i->kind);
	return (behind ? x->behind.peer : x->before.peer) + i->place;
}

bool exchange_is_beside(const struct exchange *x, const struct peer *p)
{
	return x->beside.n && p >= x->beside.peer && p < x->beside.peer + x->beside.n;
}

bool exchange_is_behind(const struct exchange *x, const struct peer *p)
{
	return x->behind.n && p >= x->behind.peer && p < x->behind.peer + x->behind.n;
}

const char *exchange_peer_name(const struct exchange *x, const struct peer *p)
{
	return x->plan->crew.member[p->member].name;
}

struct exchange_want exchange_want_of(const struct exchange *x, const struct instr *i)
{
	const int chunk = is_rows(exchange_frame(i)) ? i->part : i->chunk;
	return (struct exchange_want){ exchange_frame(i), (uint32_t)i->microbatch, (uint16_t)chunk,
				       exchange_peer(x, i) };
}

bool exchange_fits(const struct frame *f, const struct exchange *x, const struct exchange_want *w)
{
	return f->kind == w->kind && f->step == x->orders->step && f->microbatch == w->microbatch &&
	       f->chunk == w->chunk && f->from == FRAME_MEMBER(w->from->member);
}

/* A part of a tied embedding: its rows are [k * rows, ...). */
int64_t exchange_part_rows(const struct exchange *x, uint32_t k)
{
	int64_t all = x->plan->cfg.vocab, rows = TIED_PART / (x->plan->cfg.hidden * 4), first;
	rows = rows > 0 ? rows : 1;
	first = (int64_t)k * rows;
	return all - first < rows ? all - first : rows;
}

uint32_t exchange_parts(const struct exchange *x)
{
	int64_t rows = exchange_part_rows(x, 0);
	return (uint32_t)((x->plan->cfg.vocab + rows - 1) / rows);
}

/* Of a tied embedding: its gradient is float32, its value what the products read. */
enum dtype exchange_tied_dtype(const struct exchange *x, enum frame_kind k)
{
	return k == FRAME_TIED_VALUE ? x->plan->opt.act : DT_F32;
}

/* Parts come in their order, each once, and only in rounds that have them. */
static int check_part(const struct exchange *x, const struct peer *from, const struct frame *f,
		      struct err *e)
{
	const uint64_t c = (uint64_t)x->plan->cfg.hidden;
	if (x->parts_came >= x->parts_due || from->member != x->parts_from->member)
		return err_set(e, ERR_PROTOCOL, "%s sent part %u of %s; none is due in step %llu",
			       exchange_peer_name(x, from), f->microbatch, frame_name(f->kind),
			       (unsigned long long)x->orders->step);
	const uint64_t rows = (uint64_t)exchange_part_rows(x, x->parts_came);
	if (f->step == x->orders->step && f->microbatch == x->parts_came && !f->chunk &&
	    f->dtype == exchange_tied_dtype(x, f->kind) && f->ndim == 2 && f->dim[0] == rows &&
	    f->dim[1] == c)
		return 0;
	return err_set(e, ERR_PROTOCOL,
		       "%s sent part %u of %s in step %llu, (%llu, %llu) %s; part %u of %u in "
		       "step %llu, (%llu, %llu) %s, was due",
		       exchange_peer_name(x, from), f->microbatch, frame_name(f->kind),
		       (unsigned long long)f->step, (unsigned long long)f->dim[0],
		       (unsigned long long)f->dim[1], dtype_name(f->dtype), x->parts_came,
		       x->parts_due, (unsigned long long)x->orders->step, (unsigned long long)rows,
		       (unsigned long long)c, dtype_name(exchange_tied_dtype(x, f->kind)));
}

/* A part of a sum is one of this round, and comes once. */
static int check_sum(const struct exchange *x, const struct peer *from, const struct frame *f,
		     struct err *e)
{
	const struct sums_due *s = &x->sums;
	if (f->step != x->orders->step || f->chunk >= s->arrays ||
	    f->microbatch >= s->numbers[f->chunk])
		return err_set(e, ERR_PROTOCOL,
			       "%s sent part %u of sum %u of gradients in step %llu; in step %llu "
			       "that sum has %u",
			       exchange_peer_name(x, from), f->microbatch, f->chunk,
			       (unsigned long long)f->step, (unsigned long long)x->orders->step,
			       f->chunk < s->arrays ? s->numbers[f->chunk] : 0);
	if (s->most && f->size > s->most[f->chunk])
		return err_set(e, ERR_PROTOCOL,
			       "%s sent %llu bytes as part %u of sum %u of gradients; at most %zu "
			       "are due",
			       exchange_peer_name(x, from), (unsigned long long)f->size,
			       f->microbatch, f->chunk, s->most[f->chunk]);
	for (size_t k = 0; k < x->early_n; k++)
		if (x->early[k].used && x->early[k].f.kind == FRAME_SUM &&
		    x->early[k].f.from == f->from && x->early[k].f.chunk == f->chunk &&
		    x->early[k].f.microbatch == f->microbatch)
			return err_set(e, ERR_PROTOCOL,
				       "%s sent part %u of sum %u of gradients twice",
				       exchange_peer_name(x, from), f->microbatch, f->chunk);
	return 0;
}

static const enum frame_kind neighbour_kinds[] = { FRAME_ACTIVATION,    FRAME_GRADIENT,
						   FRAME_TIED_GRADIENT, FRAME_TIED_VALUE,
						   FRAME_SUM,           FRAME_ROWS,
						   FRAME_ROW_GRADS };

/* What one side may send: only the link between end and front carries a tied embedding, and only
 * with chunks does it carry anything else. Members of one group send parts of sums, and rows where
 * experts are dealt. */
static bool may_send(const struct exchange *x, const struct peer *from, enum frame_kind k)
{
	const struct crew *c = &x->plan->crew;
	bool behind = exchange_is_behind(x, from);
	bool closes = behind ? plan_is_end(x->plan) : plan_is_front(x->plan);
	if (exchange_is_beside(x, from))
		return k == FRAME_SUM || (is_rows(k) && x->plan->deal.place);
	switch (k) {
	case FRAME_ACTIVATION:
	case FRAME_GRADIENT:
		return exchange_goes_behind(k) != behind && (!closes || c->chunks > 1);
	case FRAME_TIED_GRADIENT:
	case FRAME_TIED_VALUE:
		return exchange_goes_behind(k) != behind && closes && c->tied;
	default:
		return false;
	}
}

/* A neighbour may send only the kind of message that its side of the pipeline makes, with its own
 * number and to this worker. In a ring both sides can be one worker, over two links. */
static int check_sender(const struct exchange *x, const struct peer *from, const struct frame *f,
			struct err *e)
{
	if (f->epoch != x->orders->epoch)
		return err_set(e, ERR_PROTOCOL, "%s sent %s of epoch %llu in epoch %llu",
			       exchange_peer_name(x, from), frame_name(f->kind),
			       (unsigned long long)f->epoch, (unsigned long long)x->orders->epoch);
	if (!may_send(x, from, f->kind) || f->job != x->orders->job) {
		char due[128] = "";
		for (size_t k = 0, n = 0; k < ARRAY_LEN(neighbour_kinds); k++)
			if (may_send(x, from, neighbour_kinds[k]))
				n += (size_t)snprintf(due + n, sizeof due - n, "%s%s",
						      n ? " and " : "",
						      frame_name(neighbour_kinds[k]));
		return err_set(e, ERR_PROTOCOL,
			       "%s sent %s of job %016llx; from it only %s of job %016llx is taken",
			       exchange_peer_name(x, from), frame_name(f->kind),
			       (unsigned long long)f->job, due, (unsigned long long)x->orders->job);
	}
	if (f->from != FRAME_MEMBER(from->member) || f->to != x->orders->member)
		return err_set(e, ERR_PROTOCOL,
			       "%s (member %u) sent %s as member %u, to member %u; "
			       "this is member %u",
			       exchange_peer_name(x, from), FRAME_MEMBER(from->member),
			       frame_name(f->kind), f->from, f->to, x->orders->member);
	return 0;
}

/* Numbers in a row of what an instruction sends or receives. */
int64_t exchange_width(const struct exchange *x, const struct instr *i)
{
	const struct plan_message *p = x->plan;
	const int v = chunk_number(p->crew.stages, plan_stage(p), i->chunk);
	const bool behind = i->kind == INSTR_SEND_ACT || i->kind == INSTR_RECV_GRAD;
	return model_width(&p->cfg, p->first[v + behind]);
}

/* Rows that a tensor of the wire has behind those of its tokens (routers.h). */
int64_t exchange_rows_behind(const struct exchange *x, const struct instr *i, bool train)
{
	const uint64_t row = (uint64_t)x->plan->cfg.hidden * dtype_size(x->plan->wire);
	const size_t n = routers_bytes(&x->plan->cfg, &x->plan->opt, train,
				       exchange_frame(i) == FRAME_GRADIENT);
	return (int64_t)((n + row - 1) / row);
}

int exchange_check_tensor(const struct exchange *x, const struct instr *i, const struct frame *f,
			  int64_t n, bool train, struct err *e)
{
	const int64_t width = exchange_width(x, i);
	n += exchange_rows_behind(x, i, train);
	if (f->dtype == x->plan->wire && f->ndim == 2 && f->dim[0] == (uint64_t)n &&
	    f->dim[1] == (uint64_t)width)
		return 0;
	return err_set(e, ERR_PROTOCOL, "%s sent %s (%llu, %llu) %s; (%lld, %lld) %s was expected",
		       exchange_peer_name(x, exchange_peer(x, i)), frame_name(exchange_frame(i)),
		       (unsigned long long)f->dim[0], (unsigned long long)f->dim[1],
		       dtype_name(f->dtype), (long long)n, (long long)width,
		       dtype_name(x->plan->wire));
}

bool exchange_is_ahead(const struct exchange *x, const struct instr *i)
{
	const struct instr *a = &x->ahead.i;
	return x->ahead.used && a->kind == i->kind && a->microbatch == i->microbatch &&
	       a->chunk == i->chunk;
}

bool exchange_has_early(const struct exchange *x, const struct exchange_want *w)
{
	for (size_t k = 0; k < x->early_n; k++)
		if (x->early[k].used && exchange_fits(&x->early[k].f, x, w))
			return true;
	return false;
}

/* The instruction that still needs it. */
static const struct instr *needs(const struct exchange *x, const struct peer *from,
				 const struct frame *f)
{
	for (size_t k = x->at; k < x->list->n; k++) {
		const struct instr *i = &x->list->item[k];
		if (!instr_receives(i->kind) || i->microbatch != (int)f->microbatch)
			continue;
		const struct exchange_want w = exchange_want_of(x, i);
		if (w.kind == f->kind && w.chunk == f->chunk && w.from == from)
			return i;
	}
	return NULL;
}

/* Of rows only so much is known: each token goes to so many experts. */
static int check_most(const struct exchange *x, const struct peer *from, const struct frame *f,
		      uint64_t n, struct err *e)
{
	const struct model_config *c = &x->plan->cfg;
	const uint64_t row = (uint64_t)c->hidden * dtype_size(x->plan->wire) + 4,
		       most = (uint64_t)c->experts * 4 + n * (uint64_t)c->top_k * row;
	if (f->size <= most)
		return 0;
	return err_set(e, ERR_PROTOCOL,
		       "%s sent %llu bytes as %s of microbatch %u; at most %llu are due",
		       exchange_peer_name(x, from), (unsigned long long)f->size,
		       frame_name(f->kind), f->microbatch, (unsigned long long)most);
}

/* 1: it is due, once, and has its size; 0: that is not known yet. */
static int check_due(const struct exchange *x, struct peer *from, const struct frame *f,
		     struct err *e)
{
	if (f->step > x->orders->step)
		return 0;
	const struct exchange_want w = { f->kind, f->microbatch, f->chunk, from };
	const struct instr *i = f->step == x->orders->step ? needs(x, from, f) : NULL;
	if (!i || exchange_has_early(x, &w) || (!is_rows(f->kind) && exchange_is_ahead(x, i)))
		return err_set(
			e, ERR_PROTOCOL,
			"%s sent %s of microbatch %u, chunk %u, in step %llu; it is not due%s",
			exchange_peer_name(x, from), frame_name(f->kind), f->microbatch, f->chunk,
			(unsigned long long)f->step, i ? " twice" : "");
	if (!orders_has_batch(x->orders, i->microbatch))
		return 0;
	const struct batch_head *h = &x->orders->batch[i->microbatch].head;
	TRY(is_rows(f->kind) ? check_most(x, from, f, h->n, e)
			     : exchange_check_tensor(x, i, f, h->n, h->round == ROUND_TRAIN, e));
	return 1;
}

int exchange_check(const struct exchange *x, struct peer *from, const struct frame *f,
		   struct err *e)
{
	TRY(check_sender(x, from, f, e));
	if (f->kind == FRAME_SUM)
		TRY(check_sum(x, from, f, e));
	else if (f->kind == FRAME_TIED_GRADIENT || f->kind == FRAME_TIED_VALUE)
		TRY(check_part(x, from, f, e));
	else
		return check_due(x, from, f, e);
	return 1;
}
