/* SPDX-License-Identifier: Apache-2.0 */
/* orders.c - see orders.h. */
#include "engine/orders.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/pairs_wire.h"

#include <string.h>

static const double look_every = 0.5; /* seconds */

int orders_init(struct orders *o, struct err *e)
{
	buf_init(&o->record);
	o->payload = mem_alloc(ORDERS_PAYLOAD);
	return o->payload ? 0 : err_nomem(e, ORDERS_PAYLOAD, "a worker");
}

void orders_release(struct orders *o)
{
	if (o->have_step)
		net_msg_release(&o->step_msg);
	for (size_t i = 0; i < o->batch_cap; i++)
		mem_free(o->batch[i].mem), mem_free(o->batch[i].pair);
	mem_free(o->batch);
	mem_free(o->have);
	mem_free(o->payload);
	buf_release(&o->record);
	*o = (struct orders){ 0 };
}

int64_t orders_patience(const struct orders *o)
{
	return o->timeout > 0 ? net_in(o->timeout) : NET_FOREVER;
}

int orders_say(struct orders *o, enum frame_kind kind, uint32_t microbatch, const void *payload,
	       size_t n, struct err *e)
{
	struct frame f = { .kind = kind,
			   .job = o->job,
			   .epoch = o->epoch,
			   .step = o->step,
			   .from = o->member,
			   .to = FRAME_COORDINATOR,
			   .microbatch = microbatch,
			   .size = n,
			   .payload = payload };
	return link_send_frame(o->link, &f, orders_patience(o), e);
}

int orders_state(const struct orders *o, struct net *net, const struct state_message *s,
		 struct err *e)
{
	size_t n, cap = s->bytes + 512;
	unsigned char *out = link_buffer(o->link, FRAME_HEADER + cap);
	if (!out)
		return err_nomem(e, cap, s->name);
	int rc = state_write(s, out + FRAME_HEADER, cap, &n, e);
	struct frame f = { .kind = FRAME_STATE,
			   .job = o->job,
			   .epoch = o->epoch,
			   .step = o->step,
			   .from = o->member,
			   .to = FRAME_COORDINATOR,
			   .size = n,
			   .payload = out + FRAME_HEADER };
	if (rc >= 0)
		rc = frame_encode(&f, out, FRAME_HEADER + cap, &n, e);
	if (rc >= 0)
		rc = link_send_wait(o->link, out, n, net_buffer_release, net, orders_patience(o),
				    e);
	if (rc != 0)
		net_buffer_release(net, out);
	return rc < 0 ? rc : 0;
}

int orders_ask_to_leave(struct orders *o, struct err *e)
{
	if (o->asked_to_leave || !o->stop || !*o->stop)
		return 0;
	o->asked_to_leave = true;
	return orders_say(o, FRAME_FINISH, 0, NULL, 0, e);
}

int orders_check_job(const struct orders *o, const struct frame *f, struct err *e)
{
	if (f->kind == FRAME_ABORT || f->kind == FRAME_FINISH)
		return 0;
	if (f->job == o->job &&
	    (f->kind == FRAME_FORGET ? f->epoch > o->epoch : f->epoch == o->epoch))
		return 0;
	if (f->job == o->job)
		return err_set(e, ERR_PROTOCOL,
			       "%s of epoch %llu from the coordinator; this is epoch %llu",
			       frame_name(f->kind), (unsigned long long)f->epoch,
			       (unsigned long long)o->epoch);
	return err_set(e, ERR_PROTOCOL,
		       "%s of job %016llx from the coordinator; this is job %016llx",
		       frame_name(f->kind), (unsigned long long)f->job, (unsigned long long)o->job);
}

int orders_aborted(const struct frame *f, struct err *e)
{
	struct err why = { 0 };
	abort_read(f->payload, f->size, &why);
	return err_set(e, ERR_CANCELLED, "the coordinator stopped the job: %.900s", why.msg);
}

int orders_forget(uint64_t *forget, const struct frame *f, struct err *e)
{
	if (forget)
		*forget = f->epoch;
	return err_set(e, ERR_CANCELLED, "the members of the job change");
}

void orders_reset(struct orders *o, uint64_t epoch)
{
	if (o->have_step)
		net_msg_release(&o->step_msg);
	o->have_step = false;
	for (size_t i = 0; i < o->have_cap; i++)
		o->have[i] = false;
	o->epoch = epoch;
	o->step = 0;
}

int orders_take_batch(struct orders *o, const struct frame *f, struct err *e)
{
	size_t m = f->microbatch;
	if (m >= 1u << 20 || f->step != o->step)
		return err_set(e, ERR_PROTOCOL, "BATCH: microbatch %zu of step %llu in step %llu",
			       m, (unsigned long long)f->step, (unsigned long long)o->step);
	size_t old = o->batch_cap;
	if (!mem_grow(&o->batch, &o->batch_cap, m + 1, sizeof *o->batch))
		return err_nomem(e, (m + 1) * sizeof *o->batch, "microbatches");
	if (o->batch_cap > old)
		memset(o->batch + old, 0, (o->batch_cap - old) * sizeof *o->batch);
	old = o->have_cap;
	if (!mem_grow(&o->have, &o->have_cap, o->batch_cap, sizeof *o->have))
		return err_nomem(e, o->batch_cap, "microbatches");
	if (o->have_cap > old)
		memset(o->have + old, 0, (o->have_cap - old) * sizeof *o->have);
	if (o->have[m])
		return err_set(e, ERR_PROTOCOL, "BATCH: microbatch %zu twice in one round", m);
	TRY(batch_read(f->payload, f->size, o->ids, o->labels, &o->batch[m], e));
	if (o->labels && o->prefer)
		TRY(pairs_expect(o->prefer, &o->batch[m].head, e));
	o->have[m] = true;
	return 0;
}

/* Until then nobody is looked for who may have connected. */
static int64_t next_look(const struct orders *o, int64_t deadline)
{
	const int64_t soon = net_in(look_every);
	return o->visitors && soon < deadline ? soon : deadline;
}

int orders_poll(struct orders *o, struct net *net, struct net_poll *p, size_t n, int64_t deadline)
{
	for (;;) {
		const int64_t look = next_look(o, deadline);
		const int rc = net_poll(net, p, n, look);
		if (rc || look == deadline || clock_now() < look) /* or woken */
			return rc;
		o->visitors(o->ctx, false);
	}
}

int orders_listen(struct orders *o, int64_t deadline, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	int64_t look = next_look(o, deadline);
	int rc;
	while (!(rc = link_recv_frame(o->link, look, &msg, &f, e)) && look < deadline) {
		o->visitors(o->ctx, false);
		look = next_look(o, deadline);
	}
	if (rc < 0)
		return err_prefix(e, "coordinator (%s)", link_address(o->link));
	if (rc == 0)
		return 0;
	rc = orders_check_job(o, &f, e);
	if (rc >= 0 && f.kind == FRAME_STEP && !o->have_step) {
		o->step_msg = msg;
		o->step_frame = f;
		o->have_step = true;
		return 1;
	}
	if (rc < 0)
		;
	else if (f.kind == FRAME_BATCH)
		rc = orders_take_batch(o, &f, e);
	else if (f.kind == FRAME_ABORT)
		rc = orders_aborted(&f, e);
	else if (f.kind == FRAME_FORGET)
		rc = orders_forget(o->forget, &f, e);
	else
		rc = err_set(e, ERR_PROTOCOL, "%s from the coordinator in the middle of a step",
			     frame_name(f.kind));
	net_msg_release(&msg);
	return rc < 0 ? rc : 0;
}

bool orders_has_batch(const struct orders *o, int m)
{
	return (size_t)m < o->have_cap && o->have[m];
}

int orders_wait_step(struct orders *o, struct step_message *m_p, int64_t *arrived_p, struct err *e)
{
	int64_t deadline = orders_patience(o);
	beat_state(o->beat, PROGRESS_IDLE);
	while (!o->have_step) {
		TRY(orders_listen(o, deadline, e));
		if (!o->have_step && clock_now() > deadline)
			return err_set(e, ERR_NET, "the coordinator sent no STEP within %g s",
				       o->timeout);
	}
	beat_state(o->beat, PROGRESS_WORKING);
	*arrived_p = o->step_msg.arrived;
	int rc = step_read(o->step_frame.payload, o->step_frame.size, m_p, e);
	if (rc >= 0) {
		buf_reset(&o->record);
		buf_add(&o->record, m_p->record, m_p->nrecord);
		m_p->record = o->record.p;
		rc = buf_ok(&o->record, e);
	}
	net_msg_release(&o->step_msg);
	o->have_step = false;
	return rc;
}

uint64_t orders_end_round(struct orders *o, uint32_t microbatches)
{
	uint64_t tokens = 0;
	for (uint32_t m = 0; m < microbatches && m < o->have_cap; m++) {
		tokens += o->batch[m].head.n;
		o->have[m] = false;
	}
	return tokens;
}
