/* SPDX-License-Identifier: Apache-2.0 */
/* measure_talk.c - see measure_talk.h. */
#include "worker/measure_talk.h"

#include "base/err.h"
#include "engine/orders.h"
#include "worker/measure_serve.h"

static int say_profiled(void *ctx, const void *payload, size_t n, struct err *e)
{
	return orders_say(ctx, FRAME_PROFILED, 0, payload, n, e);
}

static int next_profile(void *ctx, bool wait, struct err *e)
{
	struct orders *o = ctx;
	struct net_msg msg;
	struct frame f;
	int rc;
	do {
		TRY(orders_ask_to_leave(o, e));
		rc = link_recv_frame(o->link, wait ? net_in(0.3) : NET_NOW, &msg, &f, e);
	} while (wait && rc == 0);
	if (rc <= 0)
		return rc ? err_prefix(e, "coordinator (%s)", link_address(o->link)) : 0;
	rc = orders_check_job(o, &f, e);
	if (rc >= 0 && f.kind == FRAME_ABORT)
		rc = orders_aborted(&f, e);
	else if (rc >= 0 && f.kind == FRAME_FINISH)
		rc = err_set(e, ERR_CANCELLED,
			     "the coordinator ended the job while devices were measured");
	else if (rc >= 0 && f.kind == FRAME_FORGET) /* another one was lost */
		rc = orders_forget(o->forget, &f, e);
	else if (rc >= 0 && (f.kind != FRAME_PROFILE || f.size))
		rc = err_set(e, ERR_PROTOCOL,
			     "%s of %zu bytes from the coordinator while devices are measured",
			     frame_name(f.kind), (size_t)f.size);
	net_msg_release(&msg);
	return rc < 0 ? rc : 1;
}

static bool coordinator_gone(void *ctx)
{
	const struct orders *o = ctx;
	return link_state(o->link) == LINK_LOST;
}

int measure_answer(struct orders *o, const char *device, const char *cache_dir,
		   const struct frame *f, struct err *e)
{
	const struct measure_talk talk = { o, say_profiled, next_profile, coordinator_gone };
	if (!f->size)
		return say_profiled(o, NULL, 0, e);
	return measure_serve(device, cache_dir, f->payload, f->size, &talk, e);
}
