/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_sum.c - see exchange_sum.h. */
#include "engine/exchange_sum.h"
#include "engine/exchange_parts.h"

#include "base/err.h"

#include <string.h>

static void put_numbers(unsigned char *to, enum dtype t, const float *v, size_t count)
{
	if (t == DT_F32)
		memcpy(to, v, count * sizeof *v);
	for (size_t i = 0; t == DT_BF16 && i < count; i++) {
		const uint16_t h = f32_to_bf16(v[i]);
		memcpy(to + 2 * i, &h, sizeof h);
	}
}

static void get_numbers(float *v, const unsigned char *from, enum dtype t, size_t count)
{
	if (t == DT_F32)
		memcpy(v, from, count * sizeof *v);
	for (size_t i = 0; t == DT_BF16 && i < count; i++) {
		uint16_t h;
		memcpy(&h, from + 2 * i, sizeof h);
		v[i] = bf16_to_f32(h);
	}
}

/* Room for a message to a member of the group. */
static int sum_buffer(struct exchange *x, int place, size_t bytes, unsigned char **p_p,
		      struct err *e)
{
	TRY(exchange_flush(x, e));
	*p_p = link_buffer(x->beside.peer[place].link, FRAME_HEADER + bytes);
	return *p_p ? 0 : err_nomem(e, bytes, "a part of a gradient");
}

/* Sends it; the payload is in it. */
static int send_sum(struct exchange *x, int place, int array, uint32_t number, enum dtype t,
		    size_t count, unsigned char *p, struct err *e)
{
	const struct peer *to = &x->beside.peer[place];
	const size_t bytes = count * dtype_size(t);
	size_t n = 0;
	const struct frame f = { .kind = FRAME_SUM,
				 .epoch = x->orders->epoch,
				 .dtype = (uint8_t)t,
				 .job = x->orders->job,
				 .step = x->orders->step,
				 .from = x->orders->member,
				 .to = FRAME_MEMBER(to->member),
				 .microbatch = number,
				 .chunk = (uint16_t)array,
				 .ndim = 1,
				 .dim = { count },
				 .payload = p + FRAME_HEADER };
	int rc = frame_encode(&f, p, FRAME_HEADER + bytes, &n, e);
	if (rc < 0) {
		net_buffer_release(x->net, p);
		return rc;
	}
	return exchange_hand_over(x, to, p, n, FLOW_TO_GROUP, e);
}

int exchange_send_sum(struct exchange *x, int place, int array, uint32_t number, const float *v,
		      size_t count, struct err *e)
{
	const enum dtype t = x->plan->reduce_dtype;
	unsigned char *p;
	TRY(sum_buffer(x, place, count * dtype_size(t), &p, e));
	put_numbers(p + FRAME_HEADER, t, v, count);
	return send_sum(x, place, array, number, t, count, p, e);
}

int exchange_send_bytes(struct exchange *x, int place, int array, uint32_t number, const void *v,
			size_t bytes, struct err *e)
{
	unsigned char *p;
	TRY(sum_buffer(x, place, bytes, &p, e));
	memcpy(p + FRAME_HEADER, v, bytes);
	return send_sum(x, place, array, number, DT_U8, bytes, p, e);
}

int exchange_send_sum_from(struct exchange *x, int place, int array, uint32_t number,
			   struct dev_ref from, size_t count, struct err *e)
{
	const size_t bytes = count * sizeof(float);
	unsigned char *p;
	TRY(sum_buffer(x, place, bytes, &p, e));
	const int rc = dev_download(p + FRAME_HEADER, from, bytes, e);
	if (rc < 0) {
		net_buffer_release(x->net, p);
		return rc;
	}
	return send_sum(x, place, array, number, DT_F32, count, p, e);
}

int exchange_has_sum(struct exchange *x, int place, int array, uint32_t number, struct err *e)
{
	const struct exchange_want w = { FRAME_SUM, number, (uint16_t)array,
					 &x->beside.peer[place] };
	if (exchange_has_early(x, &w))
		return 1;
	TRY(exchange_take_in(x, w.from, e));
	return exchange_has_early(x, &w);
}

/* Waits for `count` numbers of dtype t. */
static int receive_sum(struct exchange *x, const struct exchange_want *w, enum dtype t,
		       size_t count, struct net_msg *msg_p, struct frame *f_p, struct err *e)
{
	TRY(exchange_wait_for(x, w, msg_p, f_p, e));
	if (f_p->dtype == t && f_p->ndim == 1 && f_p->dim[0] == count)
		return 0;
	err_set(e, ERR_PROTOCOL,
		"%s sent %llu numbers (%s) as part %u of sum %u of gradients; %zu numbers (%s) "
		"were expected",
		exchange_peer_name(x, w->from), (unsigned long long)f_p->dim[0],
		dtype_name(f_p->dtype), w->microbatch, w->chunk, count, dtype_name(t));
	net_msg_release(msg_p);
	return e->code;
}

int exchange_receive_sum(struct exchange *x, int place, int array, uint32_t number, float *v,
			 size_t count, struct err *e)
{
	struct net_msg msg = { 0 };
	struct frame f = { 0 };
	const struct exchange_want w = { FRAME_SUM, number, (uint16_t)array,
					 &x->beside.peer[place] };
	TRY(receive_sum(x, &w, x->plan->reduce_dtype, count, &msg, &f, e));
	get_numbers(v, f.payload, f.dtype, count);
	net_msg_release(&msg);
	return 0;
}

int exchange_receive_sum_to(struct exchange *x, int place, int array, uint32_t number,
			    struct dev_ref to, size_t count, struct err *e)
{
	struct net_msg msg = { 0 };
	struct frame f = { 0 };
	const struct exchange_want w = { FRAME_SUM, number, (uint16_t)array,
					 &x->beside.peer[place] };
	TRY(receive_sum(x, &w, DT_F32, count, &msg, &f, e));
	const int rc = dev_upload(to, f.payload, count * sizeof(float), e);
	net_msg_release(&msg);
	return rc;
}

int exchange_receive_bytes(struct exchange *x, int place, int array, uint32_t number, void *p,
			   size_t bytes, struct err *e)
{
	struct net_msg msg = { 0 };
	struct frame f = { 0 };
	const struct exchange_want w = { FRAME_SUM, number, (uint16_t)array,
					 &x->beside.peer[place] };
	TRY(receive_sum(x, &w, DT_U8, bytes, &msg, &f, e));
	memcpy(p, f.payload, bytes);
	net_msg_release(&msg);
	return 0;
}

int exchange_collective(struct exchange *x, struct err *e)
{
	const struct crew *c = &x->plan->crew;
	const int stage = plan_stage(x->plan), n = crew_homes(c, stage);
	const char *at[SCHED_MAX_GROUP];
	if (n < 2 || plan_place(x->plan) >= n || !reducer_find(x->plan->reducer)->collective)
		return 0;
	if (x->plan->reduce_dtype != DT_F32)
		return err_set(e, ERR_PROTOCOL, "PLAN: '%s' adds gradients in float32 only",
			       x->plan->reducer);
	for (int k = 0; k < n; k++)
		at[k] = c->member[crew_at(c, stage, k)].address;
	int rc = net_group_make(x->net, at, n, &x->group, e);
	return rc < 0 ? err_prefix(e, "sums by '%s' over the links of this job", x->plan->reducer)
		      : 0;
}

int exchange_send_all(struct exchange *x, const float *v, size_t count, struct err *e)
{
	TRY(exchange_flush(x, e));
	float *to = net_group_room(x->group, count);
	if (!to)
		return err_nomem(e, count * sizeof *v, "a part of a gradient");
	memcpy(to, v, count * sizeof *v);
	return net_group_sum(x->group, count, e);
}

int exchange_has_all(struct exchange *x, struct err *e) { return net_group_done(x->group, e); }

int exchange_receive_all(struct exchange *x, float *v, size_t count, struct err *e)
{
	const int64_t deadline = orders_patience(x->orders);
	int rc;
	TRY(exchange_flush(x, e));
	while (!(rc = net_group_done(x->group, e))) {
		beat_state(x->orders->beat, PROGRESS_WAITING);
		rc = exchange_listen(x, NULL, deadline, e);
		if (rc <= 0)
			return rc ? rc
				  : err_set(e, ERR_NET,
					    "the members of the group made no sum within %g s",
					    x->orders->timeout);
	}
	beat_state(x->orders->beat, PROGRESS_WORKING);
	if (rc < 0)
		return rc;
	beat_bytes(x->orders->beat, count * sizeof *v);
	memcpy(v, net_group_room(x->group, count), count * sizeof *v);
	return 0;
}
