/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - see exchange.h: messages of the neighbours, and tensors between device and wire. */
#include "engine/exchange_parts.h"
#include "proto/routers.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS_BEFORE_SENDING = 4, POLL_MOST = 3 * SCHED_MAX_GROUP + 2 };

/* Seconds between two looks at a device that computes: a sixteenth of the time it has taken so far,
 * so that its end is noticed soon, and within these limits. */
static const double look_least = 2e-5, look_most = 5e-4;

/* ---- messages of the neighbours ---- */

static int keep_early(struct exchange *x, const struct net_msg *msg, const struct frame *f,
		      const struct peer *from, struct err *e)
{
	for (size_t k = 0; k < x->early_n; k++)
		if (!x->early[k].used) {
			x->early[k] = (struct early){ *msg, *f, true };
			return 0;
		}
	return err_set(e, ERR_PROTOCOL, "%s sent more messages than a step has (%zu)",
		       exchange_peer_name(x, from), x->early_n);
}

/* The next message of a neighbour: the one that is held, or a new one. 1, 0: there is none. */
static int next_message(struct exchange *x, const struct peer *from, struct net_msg *msg_p,
			struct frame *f_p, struct err *e)
{
	if (from->held.used) {
		*msg_p = from->held.msg;
		*f_p = from->held.f;
		return 1;
	}
	const int rc = link_recv_frame(from->link, NET_NOW, msg_p, f_p, e);
	if (rc <= 0)
		return rc < 0 ? err_prefix(e, "%s", exchange_peer_name(x, from)) : 0;
	times_flow(x->times,
		   exchange_is_beside(x, from)   ? FLOW_FROM_GROUP
		   : exchange_is_behind(x, from) ? FLOW_FROM_NEXT
						 : FLOW_FROM_PREV,
		   msg_p->size, msg_p->arrived);
	beat_bytes(x->orders->beat, msg_p->size);
	return 1;
}

/* Moves everything that one neighbour has sent, and that is due, to the inbox. */
int exchange_take_in(struct exchange *x, struct peer *from, struct err *e)
{
	for (;;) {
		struct net_msg msg;
		struct frame f;
		int rc = next_message(x, from, &msg, &f, e);
		if (rc <= 0)
			return rc;
		from->held.used = false;
		rc = exchange_check(x, from, &f, e);
		if (rc == 0) {
			from->held = (struct early){ msg, f, true };
			return 0;
		}
		if (rc > 0)
			rc = keep_early(x, &msg, &f, from, e);
		if (rc < 0) {
			net_msg_release(&msg);
			return rc;
		}
		x->parts_came += f.kind == FRAME_TIED_GRADIENT || f.kind == FRAME_TIED_VALUE;
	}
}

static bool find_early(struct exchange *x, const struct exchange_want *w, struct net_msg *msg_p,
		       struct frame *f_p)
{
	for (size_t k = 0; k < x->early_n; k++)
		if (x->early[k].used && exchange_fits(&x->early[k].f, x, w)) {
			*msg_p = x->early[k].msg;
			*f_p = x->early[k].f;
			x->early[k].used = false;
			return true;
		}
	return false;
}

/* 1: the message has arrived; 0: not yet. */
static int take_message(struct exchange *x, const struct exchange_want *w, struct net_msg *msg_p,
			struct frame *f_p, struct err *e)
{
	if (find_early(x, w, msg_p, f_p))
		return 1;
	TRY(exchange_take_in(x, w->from, e));
	return find_early(x, w, msg_p, f_p);
}

/* Waits for it. Meanwhile it reads what the others send: one of them may have to send to this
 * worker before it can do what the awaited one waits for. */
int exchange_wait_for(struct exchange *x, const struct exchange_want *w, struct net_msg *msg_p,
		      struct frame *f_p, struct err *e)
{
	int64_t deadline = orders_patience(x->orders);
	for (;;) {
		int rc = take_message(x, w, msg_p, f_p, e);
		if (rc > 0) {
			times_waited(x->times, msg_p->arrived);
			beat_state(x->orders->beat, PROGRESS_WORKING);
		}
		if (rc)
			return rc < 0 ? rc : 0;
		TRY(exchange_flush(x, e)); /* the neighbour may be waiting for this result */
		beat_state(x->orders->beat, PROGRESS_WAITING);
		rc = exchange_listen(x, NULL, deadline, e);
		if (rc <= 0)
			return rc ? rc
				  : err_set(e, ERR_NET, "%s sent no %s %u in step %llu within %g s",
					    exchange_peer_name(x, w->from), frame_name(w->kind),
					    w->microbatch, (unsigned long long)x->orders->step,
					    x->orders->timeout);
	}
}

/* Waits for `first`, or until net_wake(), and receives messages from all peers. 0: nothing came
 * until the deadline. */
int exchange_listen(struct exchange *x, const struct net_poll *first, int64_t deadline,
		    struct err *e)
{
	struct net_poll p[POLL_MOST];
	const struct peers *sides[3] = { &x->before, &x->behind, &x->beside };
	size_t n = 0;
	if (first)
		p[n++] = *first;
	p[n++] = (struct net_poll){ x->orders->link, NET_RECV, 0 };
	for (int s = 0; s < 3; s++)
		for (int k = 0; k < sides[s]->n && n < POLL_MOST; k++)
			if (sides[s]->peer[k].link && !sides[s]->peer[k].held.used)
				p[n++] = (struct net_poll){ sides[s]->peer[k].link, NET_RECV, 0 };
	if (!orders_poll(x->orders, x->net, p, n, deadline) && clock_now() > deadline)
		return 0;
	for (int s = 0; s < 3; s++)
		for (int k = 0; k < sides[s]->n; k++)
			if (sides[s]->peer[k].link)
				TRY(exchange_take_in(x, &sides[s]->peer[k], e));
	int rc = orders_listen(x->orders, NET_NOW, e);
	return rc < 0 ? rc : 1;
}

static int wait_for_room(struct exchange *x, const struct peer *to, int64_t deadline, struct err *e)
{
	const struct net_poll room = { to->link, NET_SEND, 0 };
	int rc = exchange_listen(x, &room, deadline, e);
	return rc ? (rc < 0 ? rc : 0)
		  : err_set(e, ERR_NET, "%s took nothing for %g s", exchange_peer_name(x, to),
			    x->orders->timeout);
}

/* ---- tensors between device and wire ---- */

static int room(struct exchange *x, struct dev_buf **b, size_t bytes, struct err *e)
{
	if (*b && (*b)->size >= bytes)
		return 0;
	dev_free(*b);
	*b = NULL;
	return dev_alloc(x->dev, bytes, b, e);
}

static int cast(struct exchange *x, struct dev_ref to, enum dtype to_type, struct dev_ref from,
		enum dtype from_type, uint64_t count, struct err *e)
{
	const union dev_arg a[] = { { .b = to },
				    { .b = from },
				    { .i = (int64_t)count },
				    { .i = to_type },
				    { .i = from_type } };
	return dev_launch(x->dev, K_cast, DT_F32, a, e);
}

/* Begins to move `from` (rows, C) in dtype t to the wire, and behind it `more` rows of what `sl`
 * has for routers; `chunk` is the receiver's. Nothing else may be on its way. */
static int set_out(struct exchange *x, const struct instr *i, int chunk, int64_t rows,
		   int64_t width, enum dtype t, struct dev_ref from, int64_t more,
		   const struct slot *sl, int64_t begin, struct err *e)
{
	struct outgoing *o = &x->out;
	const struct peer *to = exchange_peer(x, i);
	uint64_t c = (uint64_t)width, own = (uint64_t)rows * c * dtype_size(t),
		 rest = (uint64_t)more * c * dtype_size(t), bytes = own + rest;
	*o = (struct outgoing){ .to = to,
				.flow = exchange_goes_behind(exchange_frame(i)) ? FLOW_TO_NEXT
										: FLOW_TO_PREV,
				.bytes = bytes,
				.i = *i,
				.begin = begin };
	o->p = link_buffer(to->link, FRAME_HEADER + bytes);
	if (!o->p)
		return err_nomem(e, bytes, "a tensor to send");
	o->used = true;
	o->f = (struct frame){ .kind = exchange_frame(i),
			       .dtype = t,
			       .job = x->orders->job,
			       .epoch = x->orders->epoch,
			       .step = x->orders->step,
			       .from = x->orders->member,
			       .to = FRAME_MEMBER(to->member),
			       .microbatch = (uint32_t)i->microbatch,
			       .chunk = (uint16_t)chunk,
			       .ndim = 2,
			       .dim = { (uint64_t)(rows + more), c },
			       .payload = o->p + FRAME_HEADER };
	memset(o->p + FRAME_HEADER + own, 0, rest);
	if (more)
		routers_put(sl->sums, o->f.kind == FRAME_GRADIENT, o->p + FRAME_HEADER + own);
	TRY(dev_download_begin(o->p + FRAME_HEADER, from, own, e));
	return dev_beside(x->dev) ? 0 : exchange_flush(x, e);
}

int exchange_send(struct exchange *x, const struct instr *i, struct slot *sl, struct dev_ref from,
		  struct err *e)
{
	const struct crew *c = &x->plan->crew;
	const struct stage *s = sl->stage;
	int stage, chunk = 0;
	const int64_t width = exchange_width(x, i);
	uint64_t count = (uint64_t)(sl->b.n * width), bytes = count * dtype_size(x->plan->wire);
	sched_target(c->stages, c->chunks, plan_stage(x->plan), i->chunk, i->kind == INSTR_SEND_ACT,
		     &stage, &chunk);
	TRY(exchange_flush(x, e));
	const int64_t begin = clock_now();
	if (x->plan->wire != s->opt.act) {
		TRY(room(x, &x->cast, bytes, e));
		TRY(cast(x, DEV_REF(x->cast, 0), x->plan->wire, from, s->opt.act, count, e));
		from = DEV_REF(x->cast, 0);
	}
	return set_out(x, i, chunk, sl->b.n, width, x->plan->wire, from,
		       exchange_rows_behind(x, i, sl->b.train), sl, begin, e);
}

int exchange_send_tied(struct exchange *x, const struct instr *i, struct dev_ref from,
		       struct err *e)
{
	const enum dtype t = exchange_tied_dtype(x, exchange_frame(i));
	struct instr part = *i;
	part.chunk = 0;
	for (uint32_t k = 0; k < exchange_parts(x); k++) {
		int64_t rows = exchange_part_rows(x, k);
		part.microbatch = (int)k;
		TRY(exchange_flush(x, e));
		TRY(set_out(x, &part, 0, rows, x->plan->cfg.hidden, t, from, 0, NULL, clock_now(),
			    e));
		from.off += (size_t)(rows * x->plan->cfg.hidden) * dtype_size(t);
	}
	return exchange_flush(x, e);
}

/* Hands `n` bytes to a link, which releases them; meanwhile takes messages in. */
int exchange_hand_over(struct exchange *x, const struct peer *to, unsigned char *p, size_t n,
		       enum flow_kind flow, struct err *e)
{
	int rc;
	times_flow(x->times, flow, n, clock_now());
	beat_bytes(x->orders->beat, n);
	int64_t deadline = orders_patience(x->orders);
	while ((rc = link_send(to->link, p, n, net_buffer_release, x->net, e)) == LINK_FULL) {
		beat_state(x->orders->beat, PROGRESS_WAITING);
		int waited = wait_for_room(x, to, deadline, e);
		beat_state(x->orders->beat, PROGRESS_WORKING);
		if (waited < 0) {
			net_buffer_release(x->net, p);
			return waited;
		}
	}
	if (rc != 0)
		net_buffer_release(x->net, p);
	return rc < 0 ? err_prefix(e, "%s", exchange_peer_name(x, to)) : 0;
}

int exchange_flush(struct exchange *x, struct err *e)
{
	struct outgoing *o = &x->out;
	size_t n = 0;
	if (!o->used)
		return 0;
	int rc = dev_download_end(x->dev, e);
	if (rc >= 0)
		rc = frame_encode(&o->f, o->p, FRAME_HEADER + o->bytes, &n, e);
	o->used = false;
	if (rc < 0) {
		net_buffer_release(x->net, o->p);
		return rc;
	}
	rc = exchange_hand_over(x, o->to, o->p, n, o->flow, e);
	if (dev_beside(x->dev))
		times_beside(x->times, &o->i, o->begin, clock_now());
	return rc;
}

/* A stage has given a layer to the device. A few of them keep it busy while the host sends what
 * came before; the driver would not take all of a long round without waiting. */
int exchange_between_layers(void *ctx, bool last, struct err *e)
{
	struct exchange *x = ctx;
	return x->out.used && (++x->out.layers >= LAYERS_BEFORE_SENDING || last)
		       ? exchange_flush(x, e)
		       : 0;
}

int exchange_receive(struct exchange *x, const struct instr *i, struct slot *sl, struct dev_ref to,
		     struct err *e)
{
	struct stage *s = sl->stage;
	struct net_msg msg = { 0 };
	struct frame f = { 0 };
	const bool back = exchange_frame(i) == FRAME_GRADIENT;
	uint64_t count = (uint64_t)(sl->b.n * exchange_width(x, i)),
		 bytes = count * dtype_size(s->opt.act), wired = count * dtype_size(x->plan->wire);
	if (exchange_is_ahead(x, i)) {
		const struct dev_ref there = DEV_REF(x->ahead.buf[x->ahead.turn], 0);
		if (sl->sums)
			routers_take(sl->sums, back, x->ahead.routers);
		x->ahead.used = false;
		x->ahead.turn = !x->ahead.turn;
		return x->plan->wire == s->opt.act
			       ? dev_copy(to, there, bytes, e)
			       : cast(x, to, s->opt.act, there, x->plan->wire, count, e);
	}
	const struct exchange_want w = exchange_want_of(x, i);
	TRY(exchange_wait_for(x, &w, &msg, &f, e));
	int rc = exchange_check_tensor(x, i, &f, sl->b.n, sl->b.train, e);
	if (rc >= 0 && sl->sums)
		routers_take(sl->sums, back, (const unsigned char *)f.payload + wired);
	if (rc >= 0 && f.dtype == s->opt.act) {
		rc = dev_upload(to, f.payload, wired, e);
	} else if (rc >= 0) {
		struct dmem_mark k = dmem_mark(s->scratch);
		struct dev_ref raw = DEV_NONE;
		rc = dmem_take(s->scratch, wired, &raw, e);
		if (rc >= 0)
			rc = dev_upload(raw, f.payload, wired, e);
		if (rc >= 0)
			rc = cast(x, to, s->opt.act, raw, x->plan->wire, count, e);
		if (rc >= 0 && !dev_beside(x->dev))
			rc = dev_sync(x->dev, e);
		dmem_back(s->scratch, k);
	}
	net_msg_release(&msg);
	return rc;
}

int exchange_receive_tied(struct exchange *x, const struct instr *i, struct param *p,
			  struct dmem *scratch, struct err *e)
{
	const bool add = i->kind == INSTR_RECV_TIED_GRAD;
	struct instr part = *i;
	int64_t at = 0;
	part.chunk = 0;
	for (uint32_t k = 0; k < exchange_parts(x); k++) {
		struct net_msg msg;
		struct frame f;
		int64_t count = exchange_part_rows(x, k) * x->plan->cfg.hidden;
		struct dmem_mark mark = dmem_mark(scratch);
		struct dev_ref to = DEV_NONE;
		part.microbatch = (int)k;
		const struct exchange_want w = exchange_want_of(x, &part);
		TRY(exchange_wait_for(x, &w, &msg, &f, e));
		int rc = 0;
		if (add)
			rc = dmem_take(scratch, f.size, &to, e);
		else
			to = DEV_REF(p->w.data.buf,
				     p->w.data.off + (size_t)at * dtype_size(p->w.dtype));
		if (rc >= 0)
			rc = dev_upload(to, f.payload, f.size, e);
		if (rc >= 0 && add)
			rc = param_add_grad(p, at, count, to, e);
		dmem_back(scratch, mark);
		net_msg_release(&msg);
		if (rc < 0)
			return rc;
		at += count;
	}
	return 0;
}

/* What came for routers behind a tensor that waits on the device. */
static int keep_routers(struct exchange *x, const struct instr *i, const struct frame *f,
			const struct batch_head *h, struct err *e)
{
	const size_t n = routers_bytes(&x->plan->cfg, &x->plan->opt, h->round == ROUND_TRAIN,
				       exchange_frame(i) == FRAME_GRADIENT);
	const size_t at = (size_t)(h->n * exchange_width(x, i)) * dtype_size(x->plan->wire);
	if (!mem_grow(&x->ahead.routers, &x->ahead.routers_cap, n, 1))
		return err_nomem(e, n, "the sums of routers");
	if (n)
		memcpy(x->ahead.routers, (const unsigned char *)f->payload + at, n);
	return 0;
}

/* While the device computes: uploads the next tensor of the list, if it has arrived or
 * arrives until `soon`. */
static int look_ahead(struct exchange *x, int64_t soon, struct err *e)
{
	struct ahead *a = &x->ahead;
	const int64_t begin = clock_now();
	size_t k = x->at + 1;
	struct net_msg msg;
	struct frame f;
	while (k < x->list->n && x->list->item[k].kind != INSTR_RECV_ACT &&
	       x->list->item[k].kind != INSTR_RECV_GRAD)
		k++;
	const struct instr *i = k < x->list->n && !a->used ? &x->list->item[k] : NULL;
	if (i && !orders_has_batch(x->orders, i->microbatch))
		TRY(orders_listen(x->orders, NET_NOW, e));
	if (!i || !orders_has_batch(x->orders, i->microbatch)) {
		net_poll(x->net, NULL, 0, soon);
		return 0;
	}
	const struct exchange_want w = exchange_want_of(x, i);
	int rc = take_message(x, &w, &msg, &f, e);
	if (rc == 0) {
		net_poll(x->net, &(struct net_poll){ w.from->link, NET_RECV, 0 }, 1, soon);
		return 0;
	}
	if (rc < 0)
		return rc;
	const struct batch_head *h = &x->orders->batch[i->microbatch].head;
	rc = exchange_check_tensor(x, i, &f, h->n, h->round == ROUND_TRAIN, e);
	if (rc >= 0)
		rc = keep_routers(x, i, &f, h, e);
	if (rc >= 0)
		rc = room(x, &a->buf[a->turn], f.size, e);
	if (rc >= 0)
		rc = dev_upload(DEV_REF(a->buf[a->turn], 0), f.payload, f.size, e);
	net_msg_release(&msg);
	if (rc < 0)
		return rc;
	a->used = true;
	a->i = *i;
	times_beside(x->times, i, begin, clock_now());
	return 0;
}

int exchange_computed(struct exchange *x, struct err *e)
{
	const int64_t began = clock_now();
	int rc;
	while ((rc = dev_busy(x->dev, e)) > 0) {
		const double look = clock_seconds(clock_now() - began) / 16;
		TRY(look_ahead(x, net_in(fmin(fmax(look, look_least), look_most)), e));
	}
	return rc < 0 ? rc : dev_sync(x->dev, e);
}

/* ---- a round ---- */

int exchange_round(struct exchange *x, const struct instr_list *list, const struct sums_due *sums,
		   struct err *e)
{
	x->sums = sums ? *sums : (struct sums_due){ 0 };
	size_t due = x->sums.messages, old = x->early_n;
	x->parts_due = x->parts_came = 0;
	x->parts_from = NULL;
	for (size_t k = 0; k < list->n; k++)
		if (list->item[k].kind == INSTR_RECV_TIED_GRAD ||
		    list->item[k].kind == INSTR_RECV_TIED_VALUE) {
			x->parts_due = exchange_parts(x);
			x->parts_from = exchange_peer(x, &list->item[k]);
		} else {
			due += instr_receives(list->item[k].kind);
		}
	due += x->parts_due;
	x->list = list;
	x->at = 0;
	if (due <= old)
		return 0;
	if (!mem_grow(&x->early, &x->early_cap, due, sizeof *x->early))
		return err_nomem(e, due * sizeof *x->early, "messages that arrive early");
	memset(x->early + old, 0, (due - old) * sizeof *x->early);
	x->early_n = due;
	return 0;
}

int exchange_round_end(struct exchange *x, struct err *e)
{
	TRY(exchange_flush(x, e));
	for (size_t k = 0; k < x->early_n; k++) {
		const struct frame *f = &x->early[k].f;
		if (x->early[k].used)
			return err_set(e, ERR_PROTOCOL,
				       "member %u sent %s %u of number %u in step %llu, which "
				       "nobody needed",
				       f->from, frame_name(f->kind), f->microbatch, f->chunk,
				       (unsigned long long)x->orders->step);
	}
	return 0;
}

void exchange_release(struct exchange *x)
{
	const struct peers *sides[3] = { &x->before, &x->behind, &x->beside };
	for (int s = 0; s < 3; s++)
		for (int k = 0; k < sides[s]->n; k++) {
			if (sides[s]->peer[k].held.used)
				net_msg_release(&sides[s]->peer[k].held.msg);
			sides[s]->peer[k].held.used = false;
		}
	for (size_t k = 0; k < x->early_n; k++)
		if (x->early[k].used)
			net_msg_release(&x->early[k].msg);
	if (x->out.used) { /* the device may still be writing there */
		struct err ignored = { 0 };
		dev_download_end(x->dev, &ignored);
		net_buffer_release(x->net, x->out.p);
	}
	dev_free(x->cast);
	dev_free(x->ahead.buf[0]);
	dev_free(x->ahead.buf[1]);
	mem_free(x->ahead.routers);
	mem_free(x->early);
	*x = (struct exchange){ 0 };
}
