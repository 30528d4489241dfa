/* SPDX-License-Identifier: Apache-2.0 */
/* worker_wire.c - see worker_priv.h: messages of the neighbours, and tensors between device
 * and wire. */
#include "base/clock.h"
#include "base/err.h"
#include "worker/worker_priv.h"

enum { LAYERS_BEFORE_SENDING = 4 };

static const double busy_look = 5e-4; /* seconds between two looks at a device that computes */

/* ---- messages of the neighbours ---- */

bool worker_is_ahead(const struct worker *w, const struct instr *i)
{
	const struct instr *a = &w->ahead.i;
	return w->ahead.used && a->kind == i->kind && a->microbatch == i->microbatch &&
	       a->chunk == i->chunk;
}

static const char *neighbour(const struct worker *w, const struct link *l)
{
	const char *name = l == w->next ? w->plan.next_name : w->plan.prev_name;
	return name[0] ? name : l == w->next ? "the stage behind" : "the stage before";
}

static bool fits(const struct frame *f, const struct worker *w, enum frame_kind kind,
		 const struct instr *i)
{
	return f->kind == kind && f->step == w->step && f->microbatch == (uint32_t)i->microbatch &&
	       f->chunk == (uint16_t)i->chunk;
}

/* For later. A neighbour has nothing else to say than what its side of the pipeline makes; in a
 * ring both sides are one machine's. */
static int keep_early(struct worker *w, const struct link *from, const struct net_msg *msg,
		      const struct frame *f, struct err *e)
{
	enum frame_kind due = from == w->next ? FRAME_GRADIENT : FRAME_ACTIVATION;
	if (f->kind != due || f->job != w->env->job)
		return err_set(e, ERR_PROTOCOL,
			       "%s sent %s of job %016llx; from it only %s of job %016llx is taken",
			       neighbour(w, from), frame_name(f->kind), (unsigned long long)f->job,
			       frame_name(due), (unsigned long long)w->env->job);
	for (int k = 0; k < INBOX; k++)
		if (!w->early[k].used) {
			w->early[k] = (struct early){ *msg, *f, true };
			return 0;
		}
	return err_set(e, ERR_PROTOCOL,
		       "more than %d messages of a neighbour ahead of the schedule", INBOX);
}

/* The message that instruction `i` needs. 1: it is there; 0: not yet. */
static int take_message(struct worker *w, struct link *from, enum frame_kind kind,
			const struct instr *i, struct net_msg *msg_p, struct frame *f_p,
			struct err *e)
{
	for (int k = 0; k < INBOX; k++)
		if (w->early[k].used && fits(&w->early[k].f, w, kind, i)) {
			*msg_p = w->early[k].msg;
			*f_p = w->early[k].f;
			w->early[k].used = false;
			return 1;
		}
	for (;;) {
		struct net_msg msg;
		struct frame f;
		int rc = link_recv_frame(from, NET_NOW, &msg, &f, e);
		if (rc <= 0)
			return rc < 0 ? err_prefix(e, "%s", neighbour(w, from)) : 0;
		times_flow(&w->times, from == w->next ? FLOW_FROM_NEXT : FLOW_FROM_PREV, msg.size,
			   msg.arrived);
		if (fits(&f, w, kind, i)) {
			*msg_p = msg;
			*f_p = f;
			return 1;
		}
		rc = keep_early(w, from, &msg, &f, e);
		if (rc < 0) {
			net_msg_release(&msg);
			return rc;
		}
	}
}

/* Waits for it; looks at the coordinator meanwhile, so that an ABORT is heard. */
static int receive(struct worker *w, struct link *from, enum frame_kind kind, const struct instr *i,
		   struct net_msg *msg_p, struct frame *f_p, struct err *e)
{
	int64_t deadline = worker_patience(w);
	for (;;) {
		int rc = take_message(w, from, kind, i, msg_p, f_p, e);
		if (rc > 0)
			times_waited(&w->times, msg_p->arrived);
		if (rc)
			return rc < 0 ? rc : 0;
		TRY(worker_send_end(w, e)); /* who is waited for may wait for it */
		struct net_poll p[2] = { { from, NET_RECV, 0 },
					 { w->env->coordinator, NET_RECV, 0 } };
		if (!net_poll(w->env->net, p, w->have_step ? 1 : 2, deadline) &&
		    clock_now() > deadline)
			return err_set(
				e, ERR_NET,
				"stage %d sent no %s of microbatch %d in step %llu within %g s",
				i->peer, frame_name(kind), i->microbatch,
				(unsigned long long)w->step, w->env->timeout);
		if (p[1].ready)
			TRY(worker_listen(w, NET_NOW, e));
	}
}

/* ---- tensors between device and wire ---- */

static int room(struct worker *w, struct dev_buf **b, size_t bytes, struct err *e)
{
	if (*b && (*b)->size >= bytes)
		return 0;
	dev_free(*b);
	*b = NULL;
	return dev_alloc(w->dev, bytes, b, e);
}

static int cast(struct worker *w, struct dev_ref to, enum dtype to_type, struct dev_ref from,
		enum dtype from_type, uint64_t count, struct err *e)
{
	const union dev_arg a[] = { { .b = to },
				    { .b = from },
				    { .i = (int64_t)count },
				    { .i = to_type },
				    { .i = from_type } };
	return dev_launch(w->dev, K_cast, DT_F32, a, e);
}

int worker_send_begin(struct worker *w, struct link *to, enum frame_kind kind,
		      const struct instr *i, struct slot *sl, struct dev_ref from, int target_chunk,
		      struct err *e)
{
	struct stage *s = sl->stage;
	struct outgoing *o = &w->out;
	uint64_t count = (uint64_t)(sl->b.n * s->cfg.hidden),
		 bytes = count * dtype_size(w->plan.wire);
	TRY(worker_send_end(w, e));
	*o = (struct outgoing){ .to = to, .bytes = bytes, .i = *i, .begin = clock_now() };
	if (w->plan.wire != s->opt.act) {
		TRY(room(w, &w->cast, bytes, e));
		TRY(cast(w, DEV_REF(w->cast, 0), w->plan.wire, from, s->opt.act, count, e));
		from = DEV_REF(w->cast, 0);
	}
	o->p = net_buffer(w->env->net, FRAME_HEADER + bytes);
	if (!o->p)
		return err_nomem(e, bytes, "an activation on its way");
	o->used = true;
	o->f = (struct frame){ .kind = kind,
			       .dtype = w->plan.wire,
			       .job = w->job,
			       .step = w->step,
			       .from = worker_member(w),
			       .to = FRAME_MEMBER(i->peer),
			       .microbatch = (uint32_t)i->microbatch,
			       .chunk = (uint16_t)target_chunk,
			       .ndim = 2,
			       .dim = { (uint64_t)sl->b.n, (uint64_t)s->cfg.hidden },
			       .payload = o->p + FRAME_HEADER };
	TRY(dev_download_begin(o->p + FRAME_HEADER, from, bytes, e));
	return dev_beside(w->dev) ? 0 : worker_send_end(w, e);
}

int worker_send_end(struct worker *w, struct err *e)
{
	struct outgoing *o = &w->out;
	size_t n = 0;
	if (!o->used)
		return 0;
	int rc = dev_download_end(w->dev, e);
	if (rc >= 0)
		rc = frame_encode(&o->f, o->p, FRAME_HEADER + o->bytes, &n, e);
	o->used = false;
	if (rc < 0) {
		net_buffer_release(w->env->net, o->p);
		return rc;
	}
	times_flow(&w->times, o->to == w->next ? FLOW_TO_NEXT : FLOW_TO_PREV, n, clock_now());
	rc = link_send_wait(o->to, o->p, n, net_buffer_release, w->env->net, worker_patience(w), e);
	if (rc != 0)
		net_buffer_release(w->env->net, o->p);
	if (dev_beside(w->dev))
		times_beside(&w->times, &o->i, o->begin, clock_now());
	return rc < 0 ? err_prefix(e, "%s", neighbour(w, o->to)) : 0;
}

/* A stage has given a layer to the device. A few of them keep it busy while the host sends what
 * came before; the driver would not take all of a long round without waiting. */
int worker_between_layers(void *ctx, bool last, struct err *e)
{
	struct worker *w = ctx;
	return w->out.used && (++w->out.layers >= LAYERS_BEFORE_SENDING || last)
		       ? worker_send_end(w, e)
		       : 0;
}

/* 1: the tensor that instruction `i` needs, of `n` tokens. */
static int check_tensor(const struct worker *w, const struct instr *i, enum frame_kind kind,
			const struct frame *f, int64_t n, struct err *e)
{
	if (f->dtype == w->plan.wire && f->ndim == 2 && f->dim[0] == (uint64_t)n &&
	    f->dim[1] == (uint64_t)w->plan.cfg.hidden)
		return 0;
	return err_set(e, ERR_PROTOCOL, "stage %d sent %s (%llu, %llu) %s; (%lld, %lld) %s was due",
		       i->peer, frame_name(kind), (unsigned long long)f->dim[0],
		       (unsigned long long)f->dim[1], dtype_name(f->dtype), (long long)n,
		       (long long)w->plan.cfg.hidden, dtype_name(w->plan.wire));
}

int worker_receive(struct worker *w, struct link *from, enum frame_kind kind, const struct instr *i,
		   struct slot *sl, struct dev_ref to, struct err *e)
{
	struct stage *s = sl->stage;
	struct net_msg msg = { 0 };
	struct frame f = { 0 };
	uint64_t count = (uint64_t)(sl->b.n * s->cfg.hidden),
		 bytes = count * dtype_size(s->opt.act);
	if (worker_is_ahead(w, i)) {
		const struct dev_ref there = DEV_REF(w->ahead.buf[w->ahead.turn], 0);
		w->ahead.used = false;
		w->ahead.turn = !w->ahead.turn;
		return w->plan.wire == s->opt.act
			       ? dev_copy(to, there, bytes, e)
			       : cast(w, to, s->opt.act, there, w->plan.wire, count, e);
	}
	TRY(receive(w, from, kind, i, &msg, &f, e));
	int rc = check_tensor(w, i, kind, &f, sl->b.n, e);
	if (rc >= 0 && f.dtype == s->opt.act) {
		rc = dev_upload(to, f.payload, f.size, e);
	} else if (rc >= 0) {
		struct dmem_mark k = dmem_mark(&s->scratch);
		struct dev_ref raw = DEV_NONE;
		rc = dmem_take(&s->scratch, f.size, &raw, e);
		if (rc >= 0)
			rc = dev_upload(raw, f.payload, f.size, e);
		if (rc >= 0)
			rc = cast(w, to, s->opt.act, raw, w->plan.wire, count, e);
		if (rc >= 0 && !dev_beside(w->dev))
			rc = dev_sync(w->dev, e);
		dmem_back(&s->scratch, k);
	}
	net_msg_release(&msg);
	return rc;
}

/* While the device computes: brings the next tensor that is due to it, if it is there or
 * comes soon. */
static int look_ahead(struct worker *w, struct err *e)
{
	struct ahead *a = &w->ahead;
	const int64_t soon = net_in(busy_look), begin = clock_now();
	size_t k = w->at + 1;
	struct net_msg msg;
	struct frame f;
	while (k < w->list.n && w->list.item[k].kind != INSTR_RECV_ACT &&
	       w->list.item[k].kind != INSTR_RECV_GRAD)
		k++;
	const struct instr *i = k < w->list.n && !a->used ? &w->list.item[k] : NULL;
	if (i && !worker_has_batch(w, i->microbatch))
		TRY(worker_listen(w, NET_NOW, e));
	if (!i || !worker_has_batch(w, i->microbatch)) {
		net_poll(w->env->net, NULL, 0, soon);
		return 0;
	}
	const enum frame_kind kind = i->kind == INSTR_RECV_ACT ? FRAME_ACTIVATION : FRAME_GRADIENT;
	struct link *from = i->kind == INSTR_RECV_ACT ? w->prev : w->next;
	int rc = take_message(w, from, kind, i, &msg, &f, e);
	if (rc == 0) {
		net_poll(w->env->net, &(struct net_poll){ from, NET_RECV, 0 }, 1, soon);
		return 0;
	}
	if (rc < 0)
		return rc;
	rc = check_tensor(w, i, kind, &f, w->batch[i->microbatch].head.n, e);
	if (rc >= 0)
		rc = room(w, &a->buf[a->turn], f.size, e);
	if (rc >= 0)
		rc = dev_upload(DEV_REF(a->buf[a->turn], 0), f.payload, f.size, e);
	net_msg_release(&msg);
	if (rc < 0)
		return rc;
	a->used = true;
	a->i = *i;
	times_beside(&w->times, i, begin, clock_now());
	return 0;
}

int worker_computed(struct worker *w, struct err *e)
{
	int rc;
	while ((rc = dev_busy(w->dev, e)) > 0)
		TRY(look_ahead(w, e));
	return rc < 0 ? rc : dev_sync(w->dev, e);
}
