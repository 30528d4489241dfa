/* SPDX-License-Identifier: Apache-2.0 */
/* session_begin.c - see session.h: sends plans and layers to the workers, until all are ready, and
 * compares clocks. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "coord/links_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCK_QUESTIONS = 8 };

struct to_worker {
	struct session *s;
	int member;
};

static int send_to(void *ctx, const struct frame *f, struct err *e)
{
	const struct to_worker *to = ctx;
	return session_send_frame(to->s, to->member, f, e);
}

static int send_plan(struct session *s, int i, bool trace, struct err *e)
{
	const struct placement *pl = s->place;
	struct session_seat *w = &s->seat[i];
	struct plan_message *p = mem_zalloc(sizeof *p);
	char *config = json_dumps(model_file_config(s->job->file), JSON_COMPACT);
	int rc = 0, stage = crew_stage_of(&s->crew, i), behind = crew_stage_behind(&s->crew, stage),
	    before = crew_stage_before(&s->crew, stage);
	if (!p || !config) {
		rc = err_nomem(e, sizeof *p, "the plan");
		goto out;
	}
	TRYOUT(crew_copy(&s->crew, &p->crew, e));
	for (int k = 0, m; (m = crew_at(&s->crew, behind, k)) >= 0; k++)
		links_address(&s->ends, s->links, i, m, true, p->crew.member[m].best);
	for (int k = 0, m; (m = crew_at(&s->crew, before, k)) >= 0; k++)
		links_address(&s->ends, s->links, i, m, false, p->crew.member[m].best);
	for (int k = 0, m; (m = crew_at(&s->crew, stage, k)) >= 0; k++)
		if (m != i)
			links_address(&s->ends, s->links, i, m, k > s->crew.member[i].place,
				      p->crew.member[m].best);
	p->self = i;
	memcpy(p->first, pl->first, sizeof p->first);
	snprintf(p->schedule, sizeof p->schedule, "%s", pl->schedule);
	static const enum dtype wire[] = {
		[WIRE_BFLOAT16] = DT_BF16, [WIRE_FLOAT32] = DT_F32, [WIRE_FLOAT16] = DT_F16
	};
	p->wire = wire[s->job->cfg->wire_dtype];
	p->cfg = s->job->model;
	p->opt = s->job->opt;
	p->opt.recompute |= pl->recompute && pl->recompute[stage];
	snprintf(p->optimizer, sizeof p->optimizer, "%s", s->job->optimizer->name);
	p->optim = s->job->optim;
	p->reduce_order = pl->reduce_order;
	p->reduce_dtype = pl->reduce_dtype;
	snprintf(p->reducer, sizeof p->reducer, "%s", pl->reducer);
	p->sharding = pl->sharding;
	p->offload = pl->offload;
	p->deal = pl->deal;
	p->expert_cache = pl->expert_cache;
	p->trace = trace;
	p->offered = w->seat.spec->kind != SEAT_THREAD;
	p->progress = patience_progress(s->job->cfg->stall_timeout);
	memcpy(p->model, s->model, sizeof p->model);
	if (p->offered)
		TRYOUT(weights_out_open(s->job->file, p, s->job->cfg->cache_dir, &w->weights, e));
	TRYOUT(plan_message_write(p, config, &s->out, e));
	TRYOUT(session_send(s, i, FRAME_PLAN, 0, 0, s->out.p, s->out.n, e));
	struct to_worker to = { s, i };
	if (p->offered)
		rc = weights_out_offer(w->weights, &(struct weights_way){ send_to, &to }, e);
out:
	if (p)
		plan_message_release(p);
	mem_free(p);
	free(config);
	return rc;
}

/* Handles one message of a worker that is not ready yet. */
static int prepare(struct session *s, const struct session_event *ev, struct err *e)
{
	struct session_seat *w = &s->seat[ev->member];
	const struct frame *f = &ev->f;
	struct to_worker to = { s, ev->member };
	uint64_t sent = 0;
	if (f->kind == FRAME_READY && membership_ready(&s->members, ev->member, (uint32_t)f->epoch))
		return 0;
	if (f->kind != FRAME_WEIGHTS_NEED || !w->weights)
		return err_set(e, ERR_PROTOCOL, "%s sent %s before READY", w->name,
			       frame_name(f->kind));
	TRY(weights_out_serve(w->weights, &(struct weights_way){ send_to, &to }, f, &sent, e));
	w->advanced = clock_now();
	double all = (double)weights_out_bytes(w->weights) / 1e6;
	if (sent)
		log_info("%s: %.3f of %.3f MB of its layers sent", w->name, (double)sent / 1e6,
			 all);
	else
		log_info("%s already has its layers (%.3f MB)", w->name, all);
	return 0;
}

static int wait_until_ready(struct session *s, struct err *e)
{
	while (s->members.phase != CREW_RUNS) {
		struct session_event ev;
		TRY(session_hear(s, &ev, e));
		int rc = prepare(s, &ev, e);
		net_msg_release(&ev.msg);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Whether a worker of that name (machine_name: boot id, a blank, network namespace) runs on this
 * kernel, whose clock is one. */
static bool same_kernel(const char *machine)
{
	char here[MACHINE_TEXT];
	machine_name(here);
	return machine_same_kernel(here, machine);
}

/* Uses the quickest of several answers. */
static int ask_clock(struct session *s, int i, struct err *e)
{
	struct session_seat *w = &s->seat[i];
	if (w->seat.spec->kind == SEAT_THREAD) {
		clock_pair_same(&w->clock);
		return 0;
	}
	for (uint64_t turn = 0; turn < CLOCK_QUESTIONS; turn++) {
		struct net_msg msg;
		struct frame f;
		struct clock_message m = { 0, 0 };
		int64_t sent = clock_now();
		TRY(session_send(s, i, FRAME_CLOCK, turn, 0, NULL, 0, e));
		TRY(session_recv(s, i, FRAME_CLOCK, turn, &msg, &f, e));
		int rc = clock_read(f.payload, f.size, &m, e);
		if (rc >= 0)
			clock_pair_add(&w->clock, sent, m.heard, m.said, msg.arrived);
		net_msg_release(&msg);
		if (rc < 0)
			return err_prefix(e, "%s", w->name);
	}
	if (same_kernel(s->caps[i].machine))
		clock_pair_same(&w->clock);
	return 0;
}

/* Says when the result cannot have the bits of one machine. */
static void compare_arithmetic(const struct session *s)
{
	int first = -1;
	for (int i = 0; i < s->n; i++) {
		if (crew_stage_of(&s->crew, i) < 0)
			continue;
		if (first < 0)
			first = i;
		if (!strcmp(s->caps[i].arithmetic, s->caps[first].arithmetic))
			continue;
		log_info("'%s' computes with %s, '%s' with %s: the result is that of one machine "
			 "within rounding, not bit for bit",
			 s->crew.member[first].id, s->caps[first].arithmetic, s->crew.member[i].id,
			 s->caps[i].arithmetic);
		return;
	}
}

static int send_plans(struct session *s, bool trace, struct err *e)
{
	struct membership_action a;
	bool *used = mem_array((size_t)s->n, sizeof *used);
	if (!used)
		return err_nomem(e, (size_t)s->n, "workers");
	for (int i = 0; i < s->n; i++)
		used[i] = crew_stage_of(&s->crew, i) >= 0;
	bool may = membership_plan(&s->members, used);
	mem_free(used);
	if (!may) /* somebody was lost since the plan was made */
		return session_blame(s, NULL, e);
	while ((a = membership_next(&s->members)).act == MEMBERSHIP_PLAN)
		TRY(send_plan(s, a.member, trace, e));
	return 0;
}

int session_begin(struct session *s, const struct placement *place, bool trace, struct err *e)
{
	s->place = place;
	s->began = true;
	s->crew.parts = place->parts ? place->parts : 1;
	compare_arithmetic(s);
	if (!s->links)
		s->links = links_recall(&s->ends);
	for (int i = 0; i < s->n; i++)
		if (crew_stage_of(&s->crew, i) < 0) /* it costs nothing until a plan has it */
			s->seat[i].came = 0;
	TRY(send_plans(s, trace, e));
	TRY(wait_until_ready(s, e));
	for (int i = 0; i < s->n; i++) {
		weights_out_close(s->seat[i].weights);
		s->seat[i].weights = NULL;
	}
	for (int i = 0; i < s->n; i++)
		if (crew_stage_of(&s->crew, i) >= 0)
			TRY(ask_clock(s, i, e));
	return 0;
}
