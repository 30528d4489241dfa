/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - see worker.h. A round is one walk over the schedule's instruction list; messages that
 * come before they are needed wait in small inboxes, so nothing depends on who is fast. Once warm,
 * a round allocates nothing here. */
#include "worker/worker_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "runtime/generate.h"
#include "worker/memory_advice.h"
#include "worker/measure_serve.h"

#include <limits.h>
#include <string.h>

int64_t worker_patience(const struct worker *w)
{
	return w->env->timeout > 0 ? net_in(w->env->timeout) : NET_FOREVER;
}

uint32_t worker_member(const struct worker *w)
{
	return w->plan.stages ? FRAME_MEMBER(w->plan.stage) : FRAME_NOBODY;
}

static int say(struct worker *w, enum frame_kind kind, uint32_t microbatch, const void *payload,
	       size_t n, struct err *e)
{
	struct frame f = { .kind = kind,
			   .job = w->job,
			   .step = w->step,
			   .from = worker_member(w),
			   .to = FRAME_COORDINATOR,
			   .microbatch = microbatch,
			   .size = n,
			   .payload = payload };
	return link_send_frame(w->env->coordinator, &f, worker_patience(w), e);
}

/* ---- messages from the coordinator ---- */

static bool holds_front(const struct worker *w) { return w->plan.stage == 0; }
static bool holds_end(const struct worker *w) { return w->plan.stage == w->plan.stages - 1; }

/* Orders are for the job that HELLO named; a word of its end is for whoever hears it. */
static int check_job(const struct worker *w, const struct frame *f, struct err *e)
{
	if (f->job == w->env->job || f->kind == FRAME_ABORT || f->kind == FRAME_FINISH)
		return 0;
	return err_set(
		e, ERR_PROTOCOL, "%s of job %016llx from the coordinator; this is job %016llx",
		frame_name(f->kind), (unsigned long long)f->job, (unsigned long long)w->env->job);
}

static int take_batch(struct worker *w, const struct frame *f, struct err *e)
{
	size_t m = f->microbatch;
	if (m >= 1u << 20 || f->step != w->step)
		return err_set(e, ERR_PROTOCOL, "BATCH: microbatch %zu of step %llu in step %llu",
			       m, (unsigned long long)f->step, (unsigned long long)w->step);
	size_t old = w->batch_cap;
	if (!mem_grow(&w->batch, &w->batch_cap, m + 1, sizeof *w->batch))
		return err_nomem(e, (m + 1) * sizeof *w->batch, "microbatches");
	if (w->batch_cap > old)
		memset(w->batch + old, 0, (w->batch_cap - old) * sizeof *w->batch);
	old = w->have_cap;
	if (!mem_grow(&w->have, &w->have_cap, w->batch_cap, sizeof *w->have))
		return err_nomem(e, w->batch_cap, "microbatches");
	if (w->have_cap > old)
		memset(w->have + old, 0, (w->have_cap - old) * sizeof *w->have);
	if (w->have[m])
		return err_set(e, ERR_PROTOCOL, "BATCH: microbatch %zu twice in one round", m);
	TRY(batch_read(f->payload, f->size, holds_front(w), holds_end(w), &w->batch[m], e));
	w->have[m] = true;
	return 0;
}

static int aborted(const struct frame *f, struct err *e)
{
	struct err why = { 0 };
	abort_read(f->payload, f->size, &why);
	return err_set(e, ERR_CANCELLED, "the coordinator stopped the job: %.900s", why.msg);
}

/* Ctrl-C here: the coordinator is asked once to save and finish everywhere. */
static int ask_to_leave(struct worker *w, struct err *e)
{
	if (w->leaving || !w->env->stop || !*w->env->stop)
		return 0;
	w->leaving = true;
	return say(w, FRAME_FINISH, 0, NULL, 0, e);
}

/* Takes one message of the coordinator while a round runs. 1: it was a STEP. */
int worker_listen(struct worker *w, int64_t deadline, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	int rc = link_recv_frame(w->env->coordinator, deadline, &msg, &f, e);
	if (rc < 0)
		return err_prefix(e, "coordinator (%s)", link_address(w->env->coordinator));
	if (rc == 0)
		return 0;
	rc = check_job(w, &f, e);
	if (rc >= 0 && f.kind == FRAME_STEP && !w->have_step) {
		w->step_msg = msg;
		w->step_frame = f;
		w->have_step = true;
		return 1;
	}
	if (rc < 0)
		;
	else if (f.kind == FRAME_BATCH)
		rc = take_batch(w, &f, e);
	else if (f.kind == FRAME_ABORT)
		rc = aborted(&f, e);
	else
		rc = err_set(e, ERR_PROTOCOL, "%s from the coordinator in the middle of a step",
			     frame_name(f.kind));
	net_msg_release(&msg);
	return rc < 0 ? rc : 0;
}

bool worker_has_batch(const struct worker *w, int m)
{
	return (size_t)m < w->have_cap && w->have[m];
}

static int need_batch(struct worker *w, int m, struct err *e)
{
	int64_t deadline = worker_patience(w);
	for (bool first = true; !worker_has_batch(w, m); first = false) {
		TRY(worker_listen(w, first ? NET_NOW : deadline, e));
		if (first && !worker_has_batch(w, m))
			TRY(worker_send_end(w, e));
		if (!worker_has_batch(w, m) && clock_now() > deadline)
			return err_set(e, ERR_NET,
				       "the coordinator sent no microbatch %d within %g s", m,
				       w->env->timeout);
		times_waited(&w->times, clock_now());
	}
	return 0;
}

/* ---- a round ---- */

static int slot_for(struct worker *w, int chunk, int mb, struct slot **sl_p, struct err *e)
{
	for (size_t i = 0; i < w->nslot; i++)
		if (w->slot_chunk[i] == chunk && w->slot_mb[i] == mb) {
			*sl_p = &w->slot[i];
			return 0;
		}
	/* a free one that served this chunk, else any: there are as many as microbatches in flight,
	 * whatever the chunks */
	size_t k = w->nslot;
	for (size_t i = 0; i < w->nslot; i++)
		if (w->slot_mb[i] < 0 && (k == w->nslot || w->slot[i].stage == &w->chunk[chunk]))
			k = i;
	if (k < w->nslot) {
		w->slot[k].stage = &w->chunk[chunk];
		w->slot_chunk[k] = chunk;
		w->slot_mb[k] = mb;
		*sl_p = &w->slot[k];
		return 1;
	}
	if (!mem_grow(&w->slot, &w->slot_cap, w->nslot + 1, sizeof *w->slot) ||
	    !mem_grow(&w->slot_chunk, &w->chunk_cap, w->nslot + 1, sizeof(int)) ||
	    !mem_grow(&w->slot_mb, &w->mb_cap, w->nslot + 1, sizeof(int)))
		return err_nomem(e, (w->nslot + 1) * sizeof *w->slot, "microbatches in flight");
	slot_init(&w->slot[w->nslot], &w->chunk[chunk]);
	w->slot_chunk[w->nslot] = chunk;
	w->slot_mb[w->nslot] = mb;
	*sl_p = &w->slot[w->nslot++];
	return 1;
}

static void slot_free(struct worker *w, struct slot *sl)
{
	stage_end(sl);
	w->slot_mb[sl - w->slot] = -1;
}

/* The slot of (chunk, microbatch), begun when it is new. */
static int open_slot(struct worker *w, const struct instr *i, struct slot **sl_p, struct err *e)
{
	int fresh = slot_for(w, i->chunk, i->microbatch, sl_p, e);
	if (fresh <= 0)
		return fresh;
	TRY(need_batch(w, i->microbatch, e));
	const struct batch_store *b = &w->batch[i->microbatch];
	struct stage_batch sb = { .step = b->head.step,
				  .microbatch = (uint64_t)i->microbatch,
				  .n = b->head.n,
				  .nseq = b->head.nseq,
				  .id = b->id,
				  .pos = b->pos,
				  .label = b->label,
				  .start = b->start,
				  .train = w->train,
				  .scale = b->head.scale };
	return stage_begin(*sl_p, &sb, e);
}

/* The likeliest token after the last one. */
static int send_token(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	int64_t v = sl->stage->cfg.vocab;
	size_t n;
	if (!mem_grow(&w->logits, &w->logits_cap, (size_t)v, sizeof *w->logits))
		return err_nomem(e, (unsigned long long)v * 4, "logits");
	TRY(stage_logits(sl, w->logits, e));
	int32_t id = sample_token(w->logits, v, &(struct sampling){ .temperature = 0 }, 0, NULL);
	TRY(token_write(id, w->small, SMALL, &n, e));
	return say(w, FRAME_TOKEN, (uint32_t)i->microbatch, w->small, n, e);
}

static int send_loss(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	if (w->batch[i->microbatch].head.round == ROUND_SAMPLE)
		return send_token(w, i, sl, e);
	struct loss_message m = { sl->loss, (uint64_t)sl->trained };
	size_t n;
	TRY(loss_write(&m, w->small, SMALL, &n, e));
	return say(w, FRAME_LOSS, (uint32_t)i->microbatch, w->small, n, e);
}

static int send_norms(struct worker *w, struct err *e)
{
	w->nentry = 0;
	for (int c = 0; c < w->plan.chunks; c++) {
		struct stage *s = &w->chunk[c];
		for (size_t k = 0; k < s->nparam; k++) {
			struct param *p = &s->param[k];
			if (!p->trainable)
				continue;
			double sum;
			TRY(grad_sqnorm(p, &s->scratch, &w->norms, &sum, e));
			if (!w->nentry || w->entry[w->nentry - 1].layer != p->layer) {
				if (!mem_grow(&w->entry, &w->entry_cap, w->nentry + 1,
					      sizeof *w->entry))
					return err_nomem(e, (w->nentry + 1) * sizeof *w->entry,
							 "gradient norms");
				w->entry[w->nentry++] = (struct norm_entry){ p->layer, 0 };
			}
			w->entry[w->nentry - 1].sqnorm += sum;
		}
	}
	size_t n;
	TRY(norm_write(w->entry, w->nentry, w->small, SMALL, &n, e));
	return say(w, FRAME_NORM, 0, w->small, n, e);
}

static int apply_step(struct worker *w, struct err *e)
{
	struct step_message m;
	int64_t deadline = worker_patience(w);
	while (!w->have_step) {
		TRY(worker_listen(w, deadline, e));
		if (!w->have_step && clock_now() > deadline)
			return err_set(e, ERR_NET, "the coordinator sent no STEP within %g s",
				       w->env->timeout);
	}
	times_waited(&w->times, w->step_msg.arrived);
	w->times.m.heard = w->step_msg.arrived;
	int rc = step_read(w->step_frame.payload, w->step_frame.size, &m, e);
	net_msg_release(&w->step_msg);
	w->have_step = false;
	if (rc < 0)
		return rc;
	for (int c = 0; c < w->plan.chunks; c++)
		for (size_t k = 0; k < w->chunk[c].nparam; k++) {
			struct param *p = &w->chunk[c].param[k];
			if (p->trainable)
				TRY(m.apply ? optim_update(w->optim, p, &w->plan.optim, &m.s, e)
					    : optim_zero_grad(p, e));
		}
	return 0;
}

static int execute(struct worker *w, const struct instr *i, struct err *e)
{
	struct slot *sl;
	int stage, chunk;
	switch (i->kind) {
	case INSTR_RECV_ACT:
		TRY(open_slot(w, i, &sl, e));
		return worker_receive(w, w->prev, FRAME_ACTIVATION, i, sl, sl->in, e);
	case INSTR_RECV_GRAD:
		TRY(open_slot(w, i, &sl, e));
		return worker_receive(w, w->next, FRAME_GRADIENT, i, sl, sl->grad, e);
	case INSTR_FORWARD:
		TRY(open_slot(w, i, &sl, e));
		TRY(stage_forward(sl, e));
		/* what follows sends it, and would have to wait: that is computing, not sending */
		if (!sl->stage->end)
			TRY(worker_computed(w, e));
		if (sl->stage->end)
			TRY(send_loss(w, i, sl, e));
		if (!w->train && sl->stage->end)
			slot_free(w, sl);
		return 0;
	case INSTR_BACKWARD:
		TRY(open_slot(w, i, &sl, e));
		TRY(stage_backward(sl, e));
		if (!sl->stage->front)
			TRY(worker_computed(w, e));
		if (sl->stage->front)
			slot_free(w, sl);
		return 0;
	case INSTR_SEND_ACT:
		TRY(open_slot(w, i, &sl, e));
		sched_target(w->plan.stages, w->plan.chunks, w->plan.stage, i->chunk, true, &stage,
			     &chunk);
		TRY(worker_send_begin(w, w->next, FRAME_ACTIVATION, i, sl, sl->out, chunk, e));
		if (!w->train)
			slot_free(w, sl);
		return 0;
	case INSTR_SEND_GRAD:
		TRY(open_slot(w, i, &sl, e));
		sched_target(w->plan.stages, w->plan.chunks, w->plan.stage, i->chunk, false, &stage,
			     &chunk);
		TRY(worker_send_begin(w, w->prev, FRAME_GRADIENT, i, sl, sl->grad, chunk, e));
		slot_free(w, sl);
		return 0;
	case INSTR_REDUCE:
		TRY(worker_send_end(w, e));
		return send_norms(w, e);
	case INSTR_STEP:
		return apply_step(w, e);
	default:
		return err_set(e, ERR_INTERNAL, "instruction %d", i->kind);
	}
}

/* When two chunks that follow each other are on one worker, the result goes from slot to slot. */
static int hand_over(struct worker *w, const struct instr *i, bool forward, struct err *e)
{
	struct slot *from, *to;
	struct instr there = *i;
	there.chunk += forward ? 1 : -1;
	if (w->plan.stages > 1 || there.chunk < 0 || there.chunk >= w->plan.chunks)
		return 0;
	TRY(open_slot(w, i, &from, e));
	TRY(open_slot(w, &there, &to, e));
	TRY(open_slot(w, i, &from, e)); /* the pool may have moved */
	size_t bytes =
		(size_t)(from->b.n * from->stage->cfg.hidden) * dtype_size(from->stage->opt.act);
	TRY(dev_copy(forward ? to->in : to->grad, forward ? from->out : from->grad, bytes, e));
	if (!forward || !w->train)
		slot_free(w, from);
	return 0;
}

/* Evaluation: only the forward half, microbatch after microbatch through the chunks. */
static int build_forward_list(struct worker *w, int microbatches, struct err *e)
{
	struct instr_list *l = &w->list;
	l->n = 0;
	for (int m = 0; m < microbatches; m++)
		for (int c = 0; c < w->plan.chunks; c++) {
			int stage, chunk, v = c * w->plan.stages + w->plan.stage;
			if (!mem_grow(&l->item, &l->cap, l->n + 3, sizeof *l->item))
				return err_nomem(e, (l->n + 3) * sizeof *l->item, "instructions");
			if (v > 0 && w->plan.stages > 1)
				l->item[l->n++] = (struct instr){ INSTR_RECV_ACT, m, c,
								  (w->plan.stage + w->plan.stages -
								   1) % w->plan.stages };
			l->item[l->n++] = (struct instr){ INSTR_FORWARD, m, c, -1 };
			if (sched_target(w->plan.stages, w->plan.chunks, w->plan.stage, c, true,
					 &stage, &chunk))
				l->item[l->n++] = (struct instr){ INSTR_SEND_ACT, m, c, stage };
		}
	return 0;
}

static int run_list(struct worker *w, struct err *e)
{
	for (size_t k = 0; k < w->list.n; k++) {
		const struct instr *i = &w->list.item[k];
		w->at = k;
		times_begin(&w->times);
		const bool beside = worker_is_ahead(w, i) ||
				    (dev_beside(w->dev) &&
				     (i->kind == INSTR_SEND_ACT || i->kind == INSTR_SEND_GRAD));
		int rc = ask_to_leave(w, e);
		if (rc >= 0)
			rc = execute(w, i, e);
		if (rc >= 0 && i->kind == INSTR_FORWARD)
			rc = hand_over(w, i, true, e);
		if (rc >= 0 && i->kind == INSTR_BACKWARD)
			rc = hand_over(w, i, false, e);
		if (rc < 0)
			return e->code == ERR_CANCELLED
				       ? rc
				       : err_prefix(e, "stage %d, %s %llu, %s of microbatch %d",
						    w->plan.stage,
						    w->train ? "step" : "evaluation after step",
						    (unsigned long long)w->trained,
						    instr_name(i->kind), i->microbatch);
		times_end(&w->times, i, !beside);
	}
	return worker_send_end(w, e);
}

static int stepped(struct worker *w, struct err *e)
{
	struct worker_times *t = &w->times;
	unsigned char *out = w->small;
	size_t n, none = stepped_size(&t->m, 0),
		  room = (SMALL - none) / (stepped_size(&t->m, 1) - none);
	if (t->nspan > room) /* many microbatches and a trace: the first spans must do */
		t->nspan = room;
	t->m.mem_peak = w->dev->mem_peak;
	t->m.said = clock_now();
	TRY(stepped_write(&t->m, t->span, t->nspan, out, SMALL, &n, e));
	return say(w, FRAME_STEPPED, 0, out, n, e);
}

/* A round begins with its first BATCH, which says how many there are. */
static int run_pass(struct worker *w, const struct frame *f, struct err *e)
{
	w->job = f->job;
	w->step = f->step;
	TRY(take_batch(w, f, e));
	const struct batch_head *h = &w->batch[f->microbatch].head;
	const struct sched *s = sched_find(w->plan.schedule);
	uint32_t microbatches = h->microbatches;
	w->train = h->round == ROUND_TRAIN;
	if (w->train)
		w->trained = h->step;
	if (w->train && !w->optim)
		return err_set(e, ERR_PROTOCOL, "BATCH: training was not planned");
	times_round(&w->times);
	struct worker_step done = { .step = h->step, .begin = clock_now(), .times = &w->times.m };
	if (w->train)
		TRY(sched_build(s, w->plan.stages, w->plan.chunks, (int)microbatches, w->plan.stage,
				&w->list, e));
	else
		TRY(build_forward_list(w, (int)microbatches, e));
	TRY(run_list(w, e));
	for (uint32_t m = 0; m < microbatches && m < w->have_cap; m++) {
		done.tokens += w->batch[m].head.n;
		w->have[m] = false;
	}
	TRY(stepped(w, e));
	done.end = clock_now();
	if (w->train && w->env->stepped)
		w->env->stepped(w->env->ctx, &done);
	return 0;
}

static int save_state(struct worker *w, const struct frame *f, struct err *e)
{
	w->job = f->job;
	w->step = f->step;
	TRY(worker_state_send(&w->state, f->job, f->step, e));
	return say(w, FRAME_SAVED, 0, NULL, 0, e);
}

/* ---- the job ---- */

static int begin(struct worker *w, const struct frame *f, struct err *e)
{
	if (f->kind != FRAME_PLAN)
		return err_set(e, ERR_PROTOCOL, "%s from the coordinator before PLAN",
			       frame_name(f->kind));
	w->job = f->job;
	TRY(plan_message_read(f->payload, f->size, &w->plan, e));
	const struct sched *s = sched_find(w->plan.schedule);
	if (!s)
		return err_set(e, ERR_PROTOCOL, "PLAN: there is no schedule '%s'",
			       w->plan.schedule);
	if (w->plan.optimizer[0])
		w->optim = optimizer_find(w->plan.optimizer);
	TRY(runtime_device(w->env->device, &w->dev, e));
	w->chunk = mem_array((size_t)w->plan.chunks, sizeof *w->chunk);
	if (!w->chunk ||
	    (w->plan.trace && !(w->times.span = mem_array(TIMES_SPANS, sizeof *w->times.span))))
		return err_nomem(e, (size_t)w->plan.chunks * sizeof *w->chunk, "stages");
	struct weight_source src = { 0 };
	if (w->env->source)
		src = *w->env->source;
	else
		TRY(w->env->weights(w->env->ctx, &w->plan, &src, e));
	for (int c = 0; c < w->plan.chunks; c++) {
		struct stage_options o = w->plan.opt;
		int v = c * w->plan.stages + w->plan.stage;
		o.first = w->plan.first[v];
		o.last = w->plan.first[v + 1];
		TRY(stage_build(&w->chunk[c], w->dev, &w->plan.cfg, &o, &src, e));
		w->chunk[c].between = worker_between_layers;
		w->chunk[c].between_ctx = w;
		for (size_t k = 0; w->optim && k < w->chunk[c].nparam; k++)
			if (w->chunk[c].param[k].trainable)
				TRY(optim_init(w->optim, &w->chunk[c].param[k], &w->plan.optim, e));
	}
	w->state = (struct worker_state){ .chunk = w->chunk,
					  .chunks = w->plan.chunks,
					  .optim = w->optim,
					  .net = w->env->net,
					  .coordinator = w->env->coordinator,
					  .member = worker_member(w),
					  .timeout = w->env->timeout };
	w->parameters = w->dev->mem_used;
	if (w->plan.stages > 1)
		TRY(w->env->neighbours(w->env->ctx, &w->plan, &w->prev, &w->next, e));
	if (w->env->ready)
		w->env->ready(w->env->ctx, &w->plan);
	return say(w, FRAME_READY, 0, NULL, 0, e);
}

/* What this clock says, for the coordinator to put all times on one axis. */
static int tell_clock(struct worker *w, const struct net_msg *msg, const struct frame *f,
		      struct err *e)
{
	struct clock_message m = { .heard = msg->arrived, .said = clock_now() };
	size_t n;
	w->step = f->step;
	TRY(clock_write(&m, w->small, SMALL, &n, e));
	return say(w, FRAME_CLOCK, 0, w->small, n, e);
}

/* An empty request is answered at once: so the coordinator learns how long a message and its
 * answer take. */
static int profile(struct worker *w, const struct frame *f, struct err *e)
{
	size_t n = 0;
	w->job = f->job;
	if (f->size)
		TRY(measure_serve(w->env->device, w->env->cache_dir, f->payload, f->size, w->small,
				  SMALL, &n, e));
	return say(w, FRAME_PROFILED, 0, w->small, n, e);
}

static int serve_job(struct worker *w, struct err *e)
{
	bool planned = false;
	while (!w->finished) {
		struct net_msg msg;
		struct frame f;
		int rc = link_recv_frame(w->env->coordinator,
					 w->env->stop ? net_in(0.3) : NET_FOREVER, &msg, &f, e);
		if (rc < 0 && !planned)
			return err_prefix(e, "before the job began: coordinator (%s)",
					  link_address(w->env->coordinator));
		if (rc < 0)
			return err_prefix(e, "stage %d, after step %llu: coordinator (%s)",
					  w->plan.stage, (unsigned long long)w->trained,
					  link_address(w->env->coordinator));
		if (planned && w->env->visitors)
			w->env->visitors(w->env->ctx);
		if (rc == 0) {
			TRY(ask_to_leave(w, e));
			continue;
		}
		rc = check_job(w, &f, e);
		if (rc < 0)
			;
		else if (f.kind == FRAME_ABORT)
			rc = aborted(&f, e);
		else if (f.kind == FRAME_FINISH)
			w->finished = true;
		else if (!planned && f.kind == FRAME_PROBE && w->env->probe)
			rc = w->env->probe(w->env->ctx, &f, e);
		else if (!planned && f.kind == FRAME_PROFILE)
			rc = profile(w, &f, e);
		else if (!planned)
			rc = begin(w, &f, e);
		else if (f.kind == FRAME_BATCH)
			rc = run_pass(w, &f, e);
		else if (f.kind == FRAME_STATE)
			rc = worker_state_load(&w->state, &f, e);
		else if (f.kind == FRAME_SAVE)
			rc = save_state(w, &f, e);
		else if (f.kind == FRAME_CLOCK)
			rc = tell_clock(w, &msg, &f, e);
		else
			rc = err_set(e, ERR_PROTOCOL, "%s from the coordinator between steps",
				     frame_name(f.kind));
		planned |= f.kind == FRAME_PLAN;
		net_msg_release(&msg);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void worker_release(struct worker *w)
{
	for (int k = 0; k < INBOX; k++)
		if (w->early[k].used)
			net_msg_release(&w->early[k].msg);
	if (w->have_step)
		net_msg_release(&w->step_msg);
	if (w->out.used) { /* the device may still be writing there */
		struct err ignored = { 0 };
		dev_download_end(w->dev, &ignored);
		net_buffer_release(w->env->net, w->out.p);
	}
	dev_free(w->cast);
	dev_free(w->ahead.buf[0]);
	dev_free(w->ahead.buf[1]);
	for (size_t i = 0; i < w->nslot; i++)
		slot_release(&w->slot[i]);
	for (int c = 0; w->chunk && c < w->plan.chunks; c++)
		stage_release(&w->chunk[c]);
	for (size_t i = 0; i < w->batch_cap; i++)
		mem_free(w->batch[i].mem);
	instr_list_release(&w->list);
	mem_free(w->slot);
	mem_free(w->slot_chunk);
	mem_free(w->slot_mb);
	mem_free(w->chunk);
	mem_free(w->batch);
	mem_free(w->have);
	mem_free(w->norms.sum);
	mem_free(w->entry);
	mem_free(w->times.span);
	mem_free(w->small);
	mem_free(w->logits);
	mem_free(w->state.number);
	dev_close(w->dev);
	mem_free(w);
}

static void advise(struct worker *w, struct err *e)
{
	struct dev_caps caps;
	struct err ignored = { 0 };
	if (!w->dev || dev_caps(w->dev, &caps, &ignored) < 0)
		return;
	struct memory_ask a = { .cfg = &w->plan.cfg,
				.opt = &w->plan.opt,
				.end = holds_end(w),
				.parameters = w->parameters,
				.there = w->dev->mem_used + caps.mem_free };
	for (int c = 0; c < w->plan.chunks; c++)
		a.layers += w->plan.first[c * w->plan.stages + w->plan.stage + 1] -
			    w->plan.first[c * w->plan.stages + w->plan.stage];
	for (size_t m = 0; m < w->have_cap; m++)
		if (w->have[m] && w->batch[m].head.n > a.tokens) {
			a.tokens = w->batch[m].head.n;
			a.in_flight = sched_in_flight(
				sched_find(w->plan.schedule), w->plan.stages, w->plan.chunks,
				(int)w->batch[m].head.microbatches, w->plan.stage);
		}
	memory_advice(&a, e);
}

int worker_run(const struct worker_env *env, struct err *e)
{
	struct worker *w = mem_zalloc(sizeof *w);
	if (!w)
		return err_nomem(e, sizeof *w, "a worker");
	w->env = env;
	w->small = mem_alloc(SMALL);
	int rc = w->small ? serve_job(w, e) : err_nomem(e, SMALL, "a worker");
	if (rc == ERR_NOMEM)
		advise(w, e);
	if (rc < 0 && e->code != ERR_CANCELLED && w->small) {
		struct err ignored = { 0 };
		size_t n;
		if (abort_write(e, w->small, SMALL, &n) >= 0 &&
		    say(w, FRAME_ABORT, 0, w->small, n, &ignored) >= 0)
			rc = e->code = ERR_CANCELLED; /* it is the coordinator's to say */
	}
	worker_release(w);
	return rc;
}
