/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - see worker.h. A round is one walk over the schedule's instruction list. Once warm, a
 * round allocates nothing here. */
#include "worker/worker.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "runtime/runtime.h"
#include "worker/pin_links.h"
#include "worker/measure_talk.h"
#include "worker/keep.h"
#include "worker/microbatch.h"
#include "worker/worker_advice.h"
#include "worker/worker_priv.h"

#include <string.h>

/* ---- a round ---- */

static int send_loss(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	if (w->orders.batch[i->microbatch].head.round == ROUND_SAMPLE)
		return worker_send_token(w, i, sl, e);
	if (sl->b.base)
		return worker_send_reference(w, i, sl, e);
	const int64_t units = sl->b.pairs ? sl->b.nrows : sl->trained;
	struct loss_message m = { sl->loss, (uint64_t)units, (uint64_t)sl->hits, sl->score };
	size_t n;
	TRY(loss_write(&m, w->orders.payload, ORDERS_PAYLOAD, &n, e));
	return orders_say(&w->orders, FRAME_LOSS, (uint32_t)i->microbatch, w->orders.payload, n, e);
}

/* Only the first of a group reports. */
static int send_norms(struct worker *w, struct err *e)
{
	size_t n;
	TRY(exchange_flush(&w->exchange, e));
	TRY(group_sum_complete(&w->sum, e));
	TRY(worker_model_tie(&w->model, e));
	struct param *head = worker_model_replica(&w->model);
	if (head && w->plan.crew.stages > 1) /* its gradient is on the front now */
		TRY(optim_zero_grad(head, e));
	TRY(group_sum_norms(&w->sum, &w->model, e));
	if (plan_place(&w->plan))
		return 0;
	TRY(norm_write(w->model.entry, w->model.nentry, w->orders.payload, ORDERS_PAYLOAD, &n, e));
	return orders_say(&w->orders, FRAME_NORM, 0, w->orders.payload, n, e);
}

static int apply_step(struct worker *w, struct err *e)
{
	struct step_message m;
	int64_t arrived;
	TRY(orders_wait_step(&w->orders, &m, &arrived, e));
	times_waited(&w->times, arrived);
	w->times.m.heard = arrived;
	buf_reset(&w->record);
	TRY(worker_model_step(&w->model, &m, e));
	TRY(worker_note_record(w, m.record, m.nrecord, e));
	if (m.apply)
		TRY(group_sum_values(&w->sum, e));
	return worker_model_tie_value(&w->model, e);
}

static int forward(struct worker *w, const struct instr *i, struct slot *sl, struct err *e)
{
	const bool end = sl->stage->end;
	worker_take_routers(w, i, sl, true);
	TRY(stage_forward(sl, e));
	if (end && w->train)
		TRY(group_sum_head(&w->sum, i->microbatch, e));
	if (end) {
		TRY(send_loss(w, i, sl, e));
		if (!w->train)
			slots_free(&w->slots, sl);
	} else {
		/* the next instruction sends the result and would wait: that time counts
		 * as computing */
		TRY(worker_fetch_next(w, e));
		TRY(exchange_computed(&w->exchange, e));
	}
	return worker_pass_on(w, i, true, e);
}

static int execute(struct worker *w, const struct instr *i, struct err *e)
{
	struct slot *sl;
	if (i->kind == INSTR_NORM)
		return send_norms(w, e);
	if (i->kind == INSTR_STEP)
		return apply_step(w, e);
	if (instr_is_of_group(i->kind))
		return group_sum_execute(&w->sum, i, e);
	if (i->microbatch < 0)
		return worker_exchange_tied(w, i, e);
	if (instr_is_of_experts(i->kind))
		return worker_experts(w, i, e);
	TRY(worker_open_slot(w, i, &sl, e));
	switch (i->kind) {
	case INSTR_RECV_ACT:
		return exchange_receive(&w->exchange, i, sl, sl->in, e);
	case INSTR_RECV_GRAD:
		TRY(worker_repeat_forward(w, i, sl, e));
		return exchange_receive(&w->exchange, i, sl, sl->grad, e);
	case INSTR_FORWARD:
		return forward(w, i, sl, e);
	case INSTR_BACKWARD:
		return worker_backward(w, i, sl, e);
	case INSTR_SEND_ACT:
		TRY(exchange_send(&w->exchange, i, sl, sl->out, e));
		return worker_keep_input(w, i, sl, e);
	case INSTR_SEND_GRAD:
		TRY(exchange_send(&w->exchange, i, sl, sl->grad, e));
		slots_free(&w->slots, sl);
		return 0;
	default:
		return err_set(e, ERR_INTERNAL, "instruction %d", i->kind);
	}
}

static int run_list(struct worker *w, struct err *e)
{
	for (size_t k = 0; k < w->list.n; k++) {
		const struct instr *i = &w->list.item[k];
		w->exchange.at = k;
		beat_instruction(&w->beat, (uint32_t)k);
		times_begin(&w->times);
		const bool beside = exchange_is_ahead(&w->exchange, i) ||
				    (dev_beside(w->dev) && instr_sends(i->kind));
		int rc = orders_ask_to_leave(&w->orders, e);
		if (rc >= 0)
			rc = execute(w, i, e);
		if (rc < 0)
			return e->code == ERR_CANCELLED
				       ? rc
				       : err_prefix(e, "stage %d, %s %llu, %s of microbatch %d",
						    plan_stage(&w->plan),
						    w->train ? "step" : "evaluation after step",
						    (unsigned long long)w->trained,
						    instr_name(i->kind), i->microbatch);
		times_end(&w->times, i, !beside);
	}
	return exchange_round_end(&w->exchange, e);
}

static int send_stepped(struct worker *w, struct err *e)
{
	struct worker_times *t = &w->times;
	unsigned char *out = w->orders.payload;
	size_t n, none = stepped_size(&t->m, 0),
		  most = (ORDERS_PAYLOAD - none) / (stepped_size(&t->m, 1) - none);
	if (t->nspan > most) /* many microbatches and a trace: only the first spans are sent */
		t->nspan = most;
	t->m.mem_peak = w->dev->mem_peak + worker_beyond_buffers(w);
	t->m.host_peak = (w->model.host ? w->model.host->mem_peak : 0) + park_bytes(&w->park);
	expert_cache_since(w->model.experts, &t->m.expert_hits, &t->m.expert_misses);
	t->m.said = clock_now();
	TRY(stepped_write(&t->m, t->span, t->nspan, out, ORDERS_PAYLOAD, &n, e));
	return orders_say(&w->orders, FRAME_STEPPED, 0, out, n, e);
}

/* A round begins with its first BATCH, which says how many there are. */
static int run_round(struct worker *w, const struct frame *f, struct err *e)
{
	const struct crew *c = &w->plan.crew;
	w->orders.step = f->step;
	beat_round(&w->beat, f->step);
	TRY(orders_take_batch(&w->orders, f, e));
	const struct batch_head *h = &w->orders.batch[f->microbatch].head;
	uint32_t microbatches = h->microbatches;
	w->train = h->round == ROUND_TRAIN;
	if (w->train)
		w->trained = h->step;
	if (w->train && !w->model.optim)
		return err_set(e, ERR_PROTOCOL, "BATCH: training was not planned");
	times_round(&w->times);
	struct worker_step done = { .step = h->step, .begin = clock_now(), .times = &w->times.m };
	w->shape = crew_sched_shape(c, (int)microbatches, w->shape_room);
	w->shape.alone = w->plan.offload & OFFLOAD_PARAMETERS;
	w->shape.gather = w->shape.alone || w->plan.sharding == SHARD_PARAMETERS;
	w->shape.experts = w->away.shape;
	const int stage = plan_stage(&w->plan), place = plan_place(&w->plan);
	if (w->train)
		TRY(sched_build(sched_find(w->plan.schedule), &w->shape, stage, place, &w->list,
				e));
	else
		TRY(sched_build_forward(&w->shape, stage, place, &w->list, e));
	if (w->train && c->tied)
		TRY(sched_add_tied(&w->shape, stage, place, &w->list, e));
	/* the list's own deal begins with this stage's */
	TRY(group_sum_round(&w->sum, w->train, w->list.deal, (int)microbatches, e));
	TRY(exchange_round(&w->exchange, &w->list, group_sum_due(&w->sum), e));
	park_reset(&w->park);
	away_round(&w->away);
	TRY(run_list(w, e));
	TRY(park_settle(&w->park, e));
	for (uint32_t m = 0; m < microbatches; m++) /* those that other members ran */
		TRY(worker_need_batch(w, (int)m, e));
	done.tokens = orders_end_round(&w->orders, microbatches);
	TRY(send_stepped(w, e));
	done.end = clock_now();
	if (w->train && w->env->stepped)
		w->env->stepped(w->env->ctx, &done);
	return 0;
}

/* ---- the job ---- */

/* For stage.h. While a part of the gradients is computed those before it are added up. */
static int between_layers(void *ctx, bool last, struct err *e)
{
	struct worker *w = ctx;
	TRY(exchange_between_layers(&w->exchange, last, e));
	return group_sum_advance(&w->sum, e);
}

static int before_layer(void *ctx, int layer, struct err *e)
{
	struct worker *w = ctx;
	return group_sum_before(&w->sum, layer, e);
}

static int begin(struct worker *w, const struct frame *f, struct err *e)
{
	struct weight_source src = { 0 };
	if (f->kind != FRAME_PLAN)
		return err_set(e, ERR_PROTOCOL, "%s from the coordinator before PLAN",
			       frame_name(f->kind));
	TRY(plan_message_read(f->payload, f->size, &w->plan, e));
	w->planned = true;
	w->orders.member = FRAME_MEMBER(w->plan.self);
	w->orders.ids = plan_is_front(&w->plan) ? model_input_words(&w->plan.cfg) : 0;
	w->orders.labels = plan_is_end(&w->plan) ? model_target_words(&w->plan.cfg) : 0;
	w->orders.prefer = &w->plan.opt.prefer;
	w->beat = (struct beat){ .link = w->env->coordinator,
				 .job = w->env->job,
				 .epoch = w->orders.epoch,
				 .member = w->orders.member,
				 .every = w->plan.progress };
	TRY(beat_start(&w->beat, e));
	TRY(runtime_device(w->env->device, &w->dev, e));
	struct dev_caps caps;
	TRY(dev_caps(w->dev, &caps, e));
	w->free_before = caps.unified ? 0 : caps.mem_free;
	pin_links(w->env->net, w->dev);
	if (w->plan.trace && !(w->times.span = mem_array(TIMES_SPANS, sizeof *w->times.span)))
		return err_nomem(e, TIMES_SPANS * sizeof *w->times.span, "the trace");
	w->exchange = (struct exchange){ .orders = &w->orders,
					 .net = w->env->net,
					 .dev = w->dev,
					 .plan = &w->plan,
					 .times = &w->times };
	if (w->env->source)
		src = *w->env->source;
	else
		TRY(w->env->weights(w->env->ctx, &w->plan, &src, e));
	TRY(worker_model_build(&w->model, w->dev, &w->plan, &src, e));
	park_begin(&w->park, w->model.host && (w->plan.offload & OFFLOAD_ACTIVATIONS), w->dev,
		   &w->slots);
	worker_model_between(&w->model, between_layers, before_layer, w);
	w->parameters = w->dev->mem_used;
	TRY(group_sum_begin(&w->sum, &w->exchange, &w->model, e));
	TRY(away_begin(&w->away, &w->exchange, &w->model, &w->sum, e));
	const struct crew *c = &w->plan.crew;
	w->shape_room = mem_array((size_t)(c->stages + c->n), sizeof *w->shape_room);
	if (!w->shape_room)
		return err_nomem(e, (size_t)c->n * sizeof *w->shape_room, "the shape of the job");
	if (c->stages > 1 || crew_group_size(c, plan_stage(&w->plan)) > 1)
		TRY(w->env->neighbours(w->env->ctx, &w->plan, &w->exchange.before,
				       &w->exchange.behind, &w->exchange.beside, e));
	TRY(exchange_collective(&w->exchange, e));
	if (w->env->ready)
		w->env->ready(w->env->ctx, &w->plan);
	return orders_say(&w->orders, FRAME_READY, 0, NULL, 0, e);
}

/* Sends the clock, so that the coordinator can put all times on one axis. */
static int send_clock(struct worker *w, const struct net_msg *msg, const struct frame *f,
		      struct err *e)
{
	struct clock_message m = { .heard = msg->arrived, .said = clock_now() };
	size_t n;
	w->orders.step = f->step;
	TRY(clock_write(&m, w->orders.payload, ORDERS_PAYLOAD, &n, e));
	return orders_say(&w->orders, FRAME_CLOCK, 0, w->orders.payload, n, e);
}

/* Gives back everything that belongs to the plan. */
static void drop_plan(struct worker *w)
{
	worker_say_moved(w);
	beat_stop(&w->beat);
	exchange_release(&w->exchange);
	park_release(&w->park);
	slots_release(&w->slots);
	group_sum_release(&w->sum);
	away_release(&w->away);
	mem_free(w->shape_room);
	w->shape_room = NULL;
	worker_model_release(&w->model);
	instr_list_release(&w->list);
	mem_free(w->times.span);
	w->times = (struct worker_times){ 0 };
	plan_message_release(&w->plan);
	pin_links(w->env->net, NULL);
	dev_close(w->dev);
	w->dev = NULL;
	w->planned = w->broken = false;
}

/* FORGET: a new epoch of the crew. What the files and the cache have of the layers stays. */
static int forget(struct worker *w, uint64_t epoch, struct err *e)
{
	worker_keep_state(w, false);
	drop_plan(w);
	if (w->env->forget)
		w->env->forget(w->env->ctx, epoch);
	*w->env->forgets = 0;
	orders_reset(&w->orders, epoch);
	return orders_say(&w->orders, FRAME_FORGOT, 0, NULL, 0, e);
}

/* Another worker is lost: the coordinator is told, and says how it goes on. */
static int report_broken(struct worker *w, struct err *e)
{
	struct err why = *e;
	size_t n;
	err_clear(e);
	w->broken = true;
	beat_stop(&w->beat);
	const int lost = w->env->lost ? w->env->lost(w->env->ctx) : -1;
	TRY(broken_write(&why, lost, w->orders.payload, ORDERS_PAYLOAD, &n));
	return orders_say(&w->orders, FRAME_BROKEN, 0, w->orders.payload, n, e);
}

/* After an order failed: 0 when this worker stays in the job. */
static int stay(struct worker *w, struct err *e)
{
	if (!w->env->forgets)
		return e->code;
	if (*w->env->forgets) {
		err_clear(e);
		return forget(w, *w->env->forgets, e);
	}
	/* the coordinator's link was closed: nobody is there to go on with */
	if (e->code != ERR_NET || !w->planned || link_state(w->env->coordinator) != LINK_UP)
		return e->code;
	return report_broken(w, e);
}

static int obey_before_plan(struct worker *w, const struct frame *f, struct err *e)
{
	if (f->kind == FRAME_PROBE && w->env->probe)
		return w->env->probe(w->env->ctx, f, e);
	if (f->kind == FRAME_SAVE)
		return worker_send_kept(w, f, e);
	if (f->kind == FRAME_PROFILE)
		return measure_answer(&w->orders, w->env->device, w->env->cache_dir, f, e);
	return begin(w, f, e);
}

static int obey(struct worker *w, const struct net_msg *msg, const struct frame *f, struct err *e)
{
	TRY(orders_check_job(&w->orders, f, e));
	if (f->kind == FRAME_ABORT)
		return orders_aborted(f, e);
	if (f->kind == FRAME_FINISH) {
		w->finished = true;
		return 0;
	}
	if (f->kind == FRAME_FORGET && w->env->forgets)
		return forget(w, f->epoch, e);
	if (w->broken)
		return 0;
	if (!w->planned)
		return obey_before_plan(w, f, e);
	switch (f->kind) {
	case FRAME_BATCH:
		return run_round(w, f, e);
	case FRAME_STATE:
		return worker_load_state(w, f, e);
	case FRAME_RECORD:
		return worker_take_record(w, f, e);
	case FRAME_SAVE:
		return worker_save_state(w, f, e);
	case FRAME_CLOCK:
		return send_clock(w, msg, f, e);
	default:
		return err_set(e, ERR_PROTOCOL, "%s from the coordinator between steps",
			       frame_name(f->kind));
	}
}

static int serve_job(struct worker *w, struct err *e)
{
	struct link *c = w->env->coordinator;
	while (!w->finished) {
		struct net_msg msg;
		struct frame f;
		int rc = link_recv_frame(c, w->env->stop ? net_in(0.3) : NET_FOREVER, &msg, &f, e);
		if (rc < 0 && !w->planned)
			return err_prefix(e, "before the job began: coordinator (%s)",
					  link_address(c));
		if (rc < 0)
			return err_prefix(e, "stage %d, after step %llu: coordinator (%s)",
					  plan_stage(&w->plan), (unsigned long long)w->trained,
					  link_address(c));
		if (w->env->visitors)
			w->env->visitors(w->env->ctx, w->planned);
		if (rc == 0) {
			TRY(orders_ask_to_leave(&w->orders, e));
			continue;
		}
		rc = obey(w, &msg, &f, e);
		beat_state(&w->beat, PROGRESS_IDLE);
		net_msg_release(&msg);
		if (rc < 0)
			TRY(stay(w, e));
		/* also where there is never a pause; the next message says whether it is gone */
		struct err ignored = { 0 };
		if (!w->finished)
			orders_ask_to_leave(&w->orders, &ignored);
	}
	return 0;
}

static void worker_release(struct worker *w)
{
	drop_plan(w);
	buf_release(&w->record);
	orders_release(&w->orders);
	mem_free(w->logits);
	mem_free(w->order);
	mem_free(w->routers);
	mem_free(w);
}

int worker_run(const struct worker_env *env, struct err *e)
{
	struct worker *w = mem_zalloc(sizeof *w);
	if (!w)
		return err_nomem(e, sizeof *w, "a worker");
	w->env = env;
	buf_init(&w->record);
	w->orders = (struct orders){ .link = env->coordinator,
				     .job = env->job,
				     .epoch = env->epoch,
				     .member = FRAME_NOBODY,
				     .timeout = env->timeout,
				     .forget = env->forgets,
				     .stop = env->stop,
				     .visitors = env->visitors,
				     .ctx = env->ctx,
				     .beat = &w->beat };
	w->beat = (struct beat){ .link = env->coordinator, .job = env->job, .epoch = env->epoch };
	int rc = orders_init(&w->orders, e);
	bool said = rc >= 0;
	if (rc >= 0)
		rc = serve_job(w, e);
	/* only when it is gone: whoever ends a job says so */
	if (rc == ERR_NET && link_state(env->coordinator) == LINK_LOST)
		worker_keep_state(w, true);
	if (rc == ERR_NOMEM)
		worker_advice(&w->plan, &w->orders, &w->shape, w->dev, w->parameters, e);
	if (rc < 0 && e->code != ERR_CANCELLED && said) {
		struct err ignored = { 0 };
		size_t n;
		if (abort_write(e, w->orders.payload, ORDERS_PAYLOAD, &n) >= 0 &&
		    orders_say(&w->orders, FRAME_ABORT, 0, w->orders.payload, n, &ignored) >= 0)
			rc = e->code = ERR_CANCELLED; /* the coordinator prints the reason */
	}
	worker_release(w);
	return rc;
}
