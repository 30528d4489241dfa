/* SPDX-License-Identifier: Apache-2.0 */
/* play.c - the player. One set of rules for the effect of an instruction, and two ways of advancing
 * the workers:
 *
 * - No wire is shared by two routes: the arrival of a message depends only on its sender, so each
 *   worker runs until it needs a message whose arrival is not known yet (play_flow). Linear in
 *   the number of instructions; a planner's search uses this.
 * - Otherwise transmissions slow each other down: events in order of time from a heap
 *   (play_events). */
#include "sched/message.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct worker {
	size_t pc;
	double now;     /* free from this time on */
	double since;   /* blocked since this time (when `on` is set) */
	long on;        /* message it is blocked on, or NOTHING */
	bool at_step;   /* blocked at STEP */
	bool stepped;   /* STEP has ended */
	bool delivered; /* event mode: the instruction's time has passed, only its effect is left */
	int kept;
	double reduced; /* end of NORM; NaN before */
};

struct route {
	double free_s;      /* flow mode: the wire is free from this time on */
	double rate;        /* flow mode: constant; event mode: of the current transmission */
	long head, tail;    /* event mode: queue of messages; head is being transmitted */
	double left, stamp; /* event mode: bytes left at time `stamp` */
	unsigned version;
};

struct event {
	double at;
	int who; /* stage; or stages + route */
	unsigned version;
};

struct player {
	/* lists of the last sched_play(), built again only when the schedule or a count changes */
	struct instr_list *list;
	size_t list_cap;
	const struct sched *sched;
	int stages, chunks, microbatches;
	bool tied;

	struct worker *worker;
	struct play_worker *report;
	int *next_f, *next_b;  /* [stages * chunks]: computed so far */
	double *sent, *arrive; /* [normal messages + 2], NaN: not yet */
	bool *taken;
	long *queue_next;
	struct route *route;
	int *wire_active, *wire_first, *wire_route;
	struct event *heap;
	int *ready;
	struct play_span *span;
	size_t worker_cap, report_cap, f_cap, b_cap, sent_cap, arrive_cap, taken_cap, queue_cap,
		route_cap, active_cap, first_cap, wroute_cap, heap_cap, ready_cap, span_cap;
	size_t heap_n, ready_n, spans;

	/* the current play */
	const struct play *in;
	const struct instr_list *now_list;
	bool want_spans, events, nomem;
	long messages, taken_n, sent_n;
	int reduced_n;
	double reduced_s;
};

struct player *player_new(void) { return mem_zalloc(sizeof(struct player)); }

void player_free(struct player *pl)
{
	if (!pl)
		return;
	for (size_t i = 0; i < pl->list_cap; i++)
		instr_list_release(&pl->list[i]);
	mem_free(pl->list);
	mem_free(pl->worker);
	mem_free(pl->report);
	mem_free(pl->next_f);
	mem_free(pl->next_b);
	mem_free(pl->sent);
	mem_free(pl->arrive);
	mem_free(pl->taken);
	mem_free(pl->queue_next);
	mem_free(pl->route);
	mem_free(pl->wire_active);
	mem_free(pl->wire_first);
	mem_free(pl->wire_route);
	mem_free(pl->heap);
	mem_free(pl->ready);
	mem_free(pl->span);
	mem_free(pl);
}

static void add_span(struct player *pl, int stage, const struct instr *in, double begin, double end)
{
	if (!pl->want_spans || !(end > begin))
		return;
	if (!mem_grow(&pl->span, &pl->span_cap, pl->spans + 1, sizeof *pl->span)) {
		pl->nomem = true;
		return;
	}
	pl->span[pl->spans++] = (struct play_span){ stage, *in, begin, end };
}

static void add_send_span(struct player *pl, long id, double begin, double end)
{
	const struct play *p = pl->in;
	bool act = !message_is_grad(pl->in, id);
	int to = message_to(pl->in, id),
	    chunk = (int)(id / p->microbatches / p->stages % p->chunks), from, from_chunk;

	if (!pl->want_spans ||
	    !sched_target(p->stages, p->chunks, to, chunk, !act, &from, &from_chunk))
		return;
	add_span(pl, from,
		 &(struct instr){ act ? INSTR_SEND_ACT : INSTR_SEND_GRAD,
				  (int)(id % p->microbatches), from_chunk, to, 0 },
		 begin, end);
}

static int refuse_instruction(const struct player *pl, int stage, const struct instr *in,
			      const char *why, struct err *e)
{
	return err_set(e, ERR_INTERNAL,
		       "schedule: stage %d, instruction %zu (%s, microbatch %d, chunk %d): %s",
		       stage, pl->worker[stage].pc, instr_name(in->kind), in->microbatch, in->chunk,
		       why);
}

/* The rules of completeness for a computation; counts it. */
static int compute(struct player *pl, int stage, const struct instr *in, struct err *e)
{
	const struct play *p = pl->in;
	bool forward = in->kind == INSTR_FORWARD;
	int *done, step = forward ? -p->stages : p->stages, at, from, chunk;

	if (in->chunk < 0 || in->chunk >= p->chunks)
		return refuse_instruction(pl, stage, in, "no such chunk", e);
	at = in->chunk * p->stages + stage;
	done = forward ? pl->next_f : pl->next_b;
	if (in->microbatch != done[at] || in->microbatch >= p->microbatches)
		return refuse_instruction(pl, stage, in, "out of order", e);
	if (!forward && pl->next_f[at] <= in->microbatch)
		return refuse_instruction(pl, stage, in, "before its forward", e);
	if (sched_target(p->stages, p->chunks, stage, in->chunk, !forward, &from, &chunk)) {
		long id = message_of(pl->in, stage,
				     &(struct instr){ forward ? INSTR_RECV_ACT : INSTR_RECV_GRAD,
						      in->microbatch, in->chunk, from, 0 });
		if (id == NOTHING || !pl->taken[id])
			return refuse_instruction(pl, stage, in, "its input was not received", e);
	} else if (p->stages == 1 && at + step >= 0 && at + step < p->chunks &&
		   done[at + step] <= in->microbatch) {
		return refuse_instruction(pl, stage, in, "before the neighbouring chunk", e);
	}
	done[at]++;
	pl->worker[stage].kept += forward ? 1 : -1;
	if (pl->worker[stage].kept > pl->report[stage].in_flight)
		pl->report[stage].in_flight = pl->worker[stage].kept;
	return 0;
}

static bool all_computed(const struct player *pl, int stage)
{
	for (int c = 0; c < pl->in->chunks; c++)
		if (pl->next_b[c * pl->in->stages + stage] != pl->in->microbatches)
			return false;
	return true;
}

/* A tied gradient is complete, and not yet part of the norm; a tied value is new. */
static int check_tied(struct player *pl, int stage, const struct instr *in, struct err *e)
{
	if (message_of(pl->in, stage, in) == NOTHING)
		return refuse_instruction(pl, stage, in, "no such message", e);
	if (in->kind == INSTR_SEND_TIED_VALUE || in->kind == INSTR_RECV_TIED_VALUE)
		return pl->worker[stage].stepped
			       ? 0
			       : refuse_instruction(pl, stage, in, "before STEP", e);
	if (!all_computed(pl, stage))
		return refuse_instruction(pl, stage, in, "a backward is missing before it", e);
	return isnan(pl->worker[stage].reduced)
		       ? 0
		       : refuse_instruction(pl, stage, in, "after NORM", e);
}

static double value_or_0(const double *v, int i) { return v ? v[i] : 0; }

/* How long the instruction occupies its worker, once it can begin; checks it. */
static int duration(struct player *pl, int stage, const struct instr *in, double *s_p,
		    struct err *e)
{
	const struct play *p = pl->in;
	struct play_worker *r = &pl->report[stage];
	int at = stage * p->chunks + in->chunk;

	switch (in->kind) {
	case INSTR_FORWARD:
	case INSTR_BACKWARD:
		TRY(compute(pl, stage, in, e));
		*s_p = in->kind == INSTR_FORWARD ? p->forward_s[at] : p->backward_s[at];
		r->busy_s += *s_p;
		return 0;
	case INSTR_SEND_ACT:
	case INSTR_SEND_GRAD:
		if (message_of(pl->in, stage, in) == NOTHING)
			return refuse_instruction(pl, stage, in, "no such message", e);
		if ((in->kind == INSTR_SEND_ACT
			     ? pl->next_f
			     : pl->next_b)[in->chunk * p->stages + stage] <= in->microbatch)
			return refuse_instruction(pl, stage, in, "sent before it was computed", e);
		*s_p = value_or_0(p->send_s, stage);
		r->copy_s += *s_p;
		return 0;
	case INSTR_RECV_ACT:
	case INSTR_RECV_GRAD:
		*s_p = value_or_0(p->recv_s, stage);
		r->copy_s += *s_p;
		return 0;
	case INSTR_NORM:
		if (!all_computed(pl, stage))
			return refuse_instruction(pl, stage, in, "a backward is missing before it",
						  e);
		if (!isnan(pl->worker[stage].reduced))
			return refuse_instruction(pl, stage, in, "twice", e);
		*s_p = value_or_0(p->reduce_s, stage);
		r->busy_s += *s_p;
		return 0;
	case INSTR_SEND_TIED_GRAD:
	case INSTR_RECV_TIED_GRAD:
	case INSTR_SEND_TIED_VALUE:
	case INSTR_RECV_TIED_VALUE:
		*s_p = 0;
		return check_tied(pl, stage, in, e);
	case INSTR_STEP:
		*s_p = value_or_0(p->step_s, stage);
		r->busy_s += *s_p;
		return 0;
	default:
		return refuse_instruction(pl, stage, in, "unknown instruction", e);
	}
}

/* A RECV: true when the arrival of its message is known; then the worker has waited for it. */
static int receive(struct player *pl, int stage, const struct instr *in, bool *there_p,
		   struct err *e)
{
	struct worker *w = &pl->worker[stage];
	long id = message_of(pl->in, stage, in);
	double from;

	if (id == NOTHING)
		return refuse_instruction(pl, stage, in, "no such message", e);
	if (pl->taken[id])
		return refuse_instruction(pl, stage, in, "received twice", e);
	*there_p = !isnan(pl->arrive[id]) && !(pl->events && pl->arrive[id] > w->now);
	if (!*there_p) {
		w->on = id;
		return 0;
	}
	w->on = NOTHING;
	if (!pl->events && pl->arrive[id] > w->now)
		w->now = pl->arrive[id];
	/* since: when the worker came to this instruction */
	from = pl->sent[id] > w->since ? pl->sent[id] : w->since;
	if (w->now > from)
		pl->report[stage].wait_s += w->now - from;
	add_span(pl, stage, in, w->since, w->now);
	pl->taken[id] = true;
	pl->taken_n++;
	return 0;
}

static void push_ready(struct player *pl, int stage) { pl->ready[pl->ready_n++] = stage; }

static void push_event(struct player *pl, double at, int who, unsigned version)
{
	size_t i = pl->heap_n;
	struct event ev = { at, who, version };

	if (!mem_grow(&pl->heap, &pl->heap_cap, pl->heap_n + 1, sizeof *pl->heap)) {
		pl->nomem = true;
		return;
	}
	pl->heap_n++;
	while (i > 0) {
		struct event *up = &pl->heap[(i - 1) / 2];
		if (up->at < at || (up->at == at && up->who <= who))
			break;
		pl->heap[i] = *up;
		i = (i - 1) / 2;
	}
	pl->heap[i] = ev;
}

static struct event pop_event(struct player *pl)
{
	struct event top = pl->heap[0], last = pl->heap[--pl->heap_n];
	size_t i = 0, n = pl->heap_n;

	for (;;) {
		size_t c = 2 * i + 1;
		if (c >= n)
			break;
		if (c + 1 < n && (pl->heap[c + 1].at < pl->heap[c].at ||
				  (pl->heap[c + 1].at == pl->heap[c].at &&
				   pl->heap[c + 1].who < pl->heap[c].who)))
			c++;
		if (last.at < pl->heap[c].at ||
		    (last.at == pl->heap[c].at && last.who <= pl->heap[c].who))
			break;
		pl->heap[i] = pl->heap[c];
		i = c;
	}
	if (n > 0)
		pl->heap[i] = last;
	return top;
}

static double bytes_of(const struct player *pl, long id)
{
	return message_is_grad(pl->in, id) ? pl->in->grad_bytes : pl->in->act_bytes;
}

/* The arrival of a message is known: in flow mode its receiver may continue now, in event mode at
 * that time. */
static void deliver(struct player *pl, long id, double at)
{
	int to = message_to(pl->in, id);

	pl->arrive[id] = at;
	if (pl->events)
		push_event(pl, at, to, 0);
	else if (pl->worker[to].on == id)
		push_ready(pl, to);
}

/* ---- wires shared by routes (event mode) ---- */

static double fair_rate(const struct player *pl, const struct play_route *r)
{
	double rate = r->bytes_per_s;

	for (int k = 0; k < 2; k++) {
		int w = k ? r->wire_in : r->wire_out;
		if (w < 0)
			continue;
		double part = pl->in->wire[w].bytes_per_s /
			      (pl->wire_active[w] > 1 ? pl->wire_active[w] : 1);
		if (part < rate)
			rate = part;
	}
	return rate;
}

static void set_rate(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];

	if (r->head == NOTHING)
		return;
	r->left -= r->rate * (now - r->stamp);
	if (!(r->left > 0))
		r->left = 0;
	r->stamp = now;
	r->rate = fair_rate(pl, &pl->in->route[route]);
	r->version++;
	push_event(pl, now + r->left / r->rate, pl->in->stages + route, r->version);
}

/* A transmission begins (+1) or has ended (-1): all that share its wires get another rate. */
static void change_rates(struct player *pl, int route, int change, double now)
{
	const struct play_route *pr = &pl->in->route[route];
	bool seen = false;

	for (int k = 0; k < 2; k++) {
		int w = k ? pr->wire_in : pr->wire_out;
		if (w >= 0 && !(k && w == pr->wire_out))
			pl->wire_active[w] += change;
	}
	for (int k = 0; k < 2; k++) {
		int w = k ? pr->wire_in : pr->wire_out;
		if (w < 0 || (k && w == pr->wire_out))
			continue;
		for (int i = pl->wire_first[w]; i < pl->wire_first[w + 1]; i++) {
			if (pl->wire_route[i] == route) {
				if (seen)
					continue;
				seen = true;
			}
			set_rate(pl, pl->wire_route[i], now);
		}
	}
	if (!seen)
		set_rate(pl, route, now);
}

static void begin_transmission(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];

	r->left = bytes_of(pl, r->head);
	r->stamp = now;
	r->rate = 0;
	change_rates(pl, route, 1, now);
}

static void end_transmission(struct player *pl, int route, double now)
{
	struct route *r = &pl->route[route];
	long id = r->head;
	double begin = r->free_s;

	r->head = pl->queue_next[id];
	r->version++;
	add_send_span(pl, id, begin, now);
	deliver(pl, id, now + pl->in->route[route].latency_s);
	{
		long next = r->head;
		r->head = NOTHING;
		change_rates(pl, route, -1, now);
		r->head = next;
	}
	if (r->head != NOTHING) {
		r->free_s = now;
		begin_transmission(pl, route, now);
	}
}

static int transmit(struct player *pl, int stage, const struct instr *in, struct err *e)
{
	double now = pl->worker[stage].now, begin;
	long id = message_of(pl->in, stage, in);
	int route;
	struct route *r;

	if (!isnan(pl->sent[id]))
		return refuse_instruction(pl, stage, in, "sent twice", e);
	pl->sent[id] = now;
	pl->sent_n++;
	if (message_is_tied(in->kind)) {
		add_span(pl, stage, in, now, now + pl->in->tied_s);
		deliver(pl, id, now + pl->in->tied_s);
		return 0;
	}
	if (!pl->in->route) {
		deliver(pl, id, now);
		return 0;
	}
	route = message_route(pl->in, id);
	r = &pl->route[route];
	if (!pl->events) {
		begin = r->free_s > now ? r->free_s : now;
		r->free_s = begin + bytes_of(pl, id) / r->rate;
		add_send_span(pl, id, begin, r->free_s);
		deliver(pl, id, r->free_s + pl->in->route[route].latency_s);
		return 0;
	}
	pl->queue_next[id] = NOTHING;
	if (r->head != NOTHING) {
		pl->queue_next[r->tail] = id;
		r->tail = id;
		return 0;
	}
	r->head = r->tail = id;
	r->free_s = now;
	begin_transmission(pl, route, now);
	return 0;
}

/* The effect of an instruction, when its time has passed. */
static int effect(struct player *pl, int stage, const struct instr *in, struct err *e)
{
	struct worker *w = &pl->worker[stage];

	if (instr_sends(in->kind))
		return transmit(pl, stage, in, e);
	if (in->kind == INSTR_STEP)
		w->stepped = true;
	if (in->kind == INSTR_NORM) {
		w->reduced = w->now;
		if (w->now > pl->reduced_s)
			pl->reduced_s = w->now;
		if (++pl->reduced_n < pl->in->stages)
			return 0;
		for (int s = 0; s < pl->in->stages; s++) {
			if (!pl->worker[s].at_step)
				continue;
			if (pl->events)
				push_event(pl, pl->reduced_s + pl->in->barrier_s, s, 0);
			else
				push_ready(pl, s);
		}
	}
	return 0;
}

/* Advances one worker as far as possible: in flow mode until it is blocked, in event mode until its
 * instruction takes time. */
static int run(struct player *pl, int stage, struct err *e)
{
	struct worker *w = &pl->worker[stage];
	const struct instr_list *l = &pl->now_list[stage];

	while (w->pc < l->n) {
		const struct instr *in = &l->item[w->pc];
		double s = 0;

		if (w->delivered) {
			w->delivered = false;
			TRY(effect(pl, stage, in, e));
			w->pc++;
			w->since = w->now;
			continue;
		}
		if (w->stepped && !message_is_tied(in->kind))
			return refuse_instruction(pl, stage, in, "behind STEP", e);
		if (instr_receives(in->kind)) {
			bool there = false;
			TRY(receive(pl, stage, in, &there, e));
			if (!there)
				return 0;
		}
		if (in->kind == INSTR_STEP) {
			double at = pl->reduced_s + pl->in->barrier_s;
			if (isnan(w->reduced))
				return refuse_instruction(pl, stage, in, "before NORM", e);
			w->at_step = true;
			if (pl->reduced_n < pl->in->stages)
				return 0;
			if (pl->events && at > w->now) {
				push_event(pl, at, stage, 0);
				return 0;
			}
			if (at > w->now)
				w->now = at;
			w->at_step = false;
		}
		TRY(duration(pl, stage, in, &s, e));
		if (!instr_receives(in->kind) && !instr_sends(in->kind))
			add_span(pl, stage, in, w->now, w->now + s);
		w->delivered = true;
		if (pl->events && s > 0) {
			push_event(pl, w->now + s, stage, 0);
			w->now += s;
			return 0;
		}
		w->now += s;
	}
	return 0;
}

static int play_flow(struct player *pl, struct err *e)
{
	for (int s = pl->in->stages - 1; s >= 0; s--)
		push_ready(pl, s);
	while (pl->ready_n > 0) {
		int s = pl->ready[--pl->ready_n];
		pl->worker[s].on = NOTHING;
		TRY(run(pl, s, e));
	}
	return 0;
}

static int play_events(struct player *pl, struct err *e)
{
	for (int s = 0; s < pl->in->stages; s++)
		push_event(pl, 0, s, 0);
	while (pl->heap_n > 0) {
		struct event ev = pop_event(pl);
		struct worker *w;

		if (pl->nomem)
			return err_set(e, ERR_NOMEM, "out of memory for the player");
		if (ev.who >= pl->in->stages) {
			int route = ev.who - pl->in->stages;
			if (pl->route[route].version == ev.version &&
			    pl->route[route].head != NOTHING)
				end_transmission(pl, route, ev.at);
			continue;
		}
		w = &pl->worker[ev.who];
		if (w->pc == pl->now_list[ev.who].n)
			continue;
		/* a message arrived while the worker computes: it checks when it needs
		 * the message */
		if (ev.at < w->now)
			continue;
		/* Only the end of its instruction, at exactly `now`, wakes a worker that is
		 * inside one. */
		if (w->delivered && ev.at > w->now)
			continue;
		w->now = ev.at;
		TRY(run(pl, ev.who, e));
	}
	return 0;
}

/* ---- setting up, closing ---- */

static int reserve(struct player *pl, const struct play *p, struct err *e)
{
	size_t stages = (size_t)p->stages, all = stages * (size_t)p->chunks,
	       msgs = (size_t)message_count(p);

	if (!mem_grow(&pl->worker, &pl->worker_cap, stages, sizeof *pl->worker) ||
	    !mem_grow(&pl->report, &pl->report_cap, stages, sizeof *pl->report) ||
	    !mem_grow(&pl->next_f, &pl->f_cap, all, sizeof *pl->next_f) ||
	    !mem_grow(&pl->next_b, &pl->b_cap, all, sizeof *pl->next_b) ||
	    !mem_grow(&pl->sent, &pl->sent_cap, msgs, sizeof *pl->sent) ||
	    !mem_grow(&pl->arrive, &pl->arrive_cap, msgs, sizeof *pl->arrive) ||
	    !mem_grow(&pl->taken, &pl->taken_cap, msgs, sizeof *pl->taken) ||
	    !mem_grow(&pl->queue_next, &pl->queue_cap, msgs, sizeof *pl->queue_next) ||
	    !mem_grow(&pl->route, &pl->route_cap, 2 * stages, sizeof *pl->route) ||
	    !mem_grow(&pl->wire_active, &pl->active_cap, p->wires + 1, sizeof *pl->wire_active) ||
	    !mem_grow(&pl->wire_first, &pl->first_cap, p->wires + 2, sizeof *pl->wire_first) ||
	    !mem_grow(&pl->wire_route, &pl->wroute_cap, 4 * stages, sizeof *pl->wire_route) ||
	    !mem_grow(&pl->ready, &pl->ready_cap, 2 * stages + 1, sizeof *pl->ready))
		return err_nomem(e, msgs * sizeof(double), "the player");
	memset(pl->worker, 0, stages * sizeof *pl->worker);
	memset(pl->report, 0, stages * sizeof *pl->report);
	memset(pl->next_f, 0, all * sizeof *pl->next_f);
	memset(pl->next_b, 0, all * sizeof *pl->next_b);
	memset(pl->sent, 0xff, msgs * sizeof *pl->sent); /* NaN */
	memset(pl->arrive, 0xff, msgs * sizeof *pl->arrive);
	memset(pl->taken, 0, msgs * sizeof *pl->taken);
	memset(pl->wire_active, 0, (p->wires + 1) * sizeof *pl->wire_active);
	memset(pl->wire_first, 0, (p->wires + 2) * sizeof *pl->wire_first);
	for (size_t s = 0; s < stages; s++) {
		pl->worker[s].on = NOTHING;
		pl->worker[s].reduced = NAN;
	}
	return 0;
}

/* Assigns routes to wires; event mode when several routes share a wire. */
static int lay_wires(struct player *pl, const struct play *p, struct err *e)
{
	int routes = p->stages == 1 || !p->route ? 0 : p->stages == 2 ? 2 : 2 * p->stages;

	pl->events = false;
	for (int i = 0; i < routes; i++) {
		const struct play_route *r = &p->route[i];
		bool used = p->chunks > 1 || p->stages == 2 || i < 2 * (p->stages - 1);

		if (!(r->bytes_per_s > 0) || !(r->latency_s >= 0) || r->wire_out >= (int)p->wires ||
		    r->wire_in >= (int)p->wires)
			return err_set(e, ERR_INTERNAL,
				       "player: route %d has no bandwidth, a negative latency or "
				       "an unknown wire",
				       i);
		pl->route[i] = (struct route){ .rate = fair_rate(pl, r),
					       .head = NOTHING,
					       .tail = NOTHING };
		if (!used)
			continue;
		if (r->wire_out >= 0)
			pl->wire_first[r->wire_out + 1]++;
		if (r->wire_in >= 0 && r->wire_in != r->wire_out)
			pl->wire_first[r->wire_in + 1]++;
	}
	for (size_t w = 0; w < p->wires; w++) {
		if (pl->wire_first[w + 1] > 1)
			pl->events = true;
		pl->wire_first[w + 1] += pl->wire_first[w];
	}
	if (!pl->events)
		return 0;
	for (int i = 0; i < routes; i++) {
		const struct play_route *r = &p->route[i];

		if (!(p->chunks > 1 || p->stages == 2 || i < 2 * (p->stages - 1)))
			continue;
		if (r->wire_out >= 0)
			pl->wire_route[pl->wire_first[r->wire_out] +
				       pl->wire_active[r->wire_out]++] = i;
		if (r->wire_in >= 0 && r->wire_in != r->wire_out)
			pl->wire_route[pl->wire_first[r->wire_in] + pl->wire_active[r->wire_in]++] =
				i;
	}
	memset(pl->wire_active, 0, (p->wires + 1) * sizeof *pl->wire_active);
	return 0;
}

/* When nothing can advance any more: checks that every list has ended, and that everything was
 * computed and received. */
static int check_complete(struct player *pl, struct err *e)
{
	const struct play *p = pl->in;

	for (int s = 0; s < p->stages; s++) {
		const struct worker *w = &pl->worker[s];
		const struct instr_list *l = &pl->now_list[s];

		if (w->pc < l->n)
			return refuse_instruction(pl, s, &l->item[w->pc], "its input never arrives",
						  e);
		if (!w->stepped)
			return err_set(e, ERR_INTERNAL, "schedule: stage %d does not end with STEP",
				       s);
	}
	if (pl->sent_n != pl->taken_n)
		return err_set(e, ERR_INTERNAL, "schedule: %ld messages sent, %ld received",
			       pl->sent_n, pl->taken_n);
	long due = 2l * (p->stages * p->chunks - 1) * p->microbatches + (p->tied ? 2 : 0);
	if (p->stages > 1 && pl->taken_n != due)
		return err_set(e, ERR_INTERNAL, "schedule: %ld messages, should be %ld",
			       pl->taken_n, due);
	return 0;
}

int sched_play_lists(struct player *pl, const struct instr_list *list, const struct play *in,
		     bool spans, struct play_result *out, struct err *e)
{
	double step = 0;

	if (in->stages < 1 || in->stages > SCHED_MAX_STAGES || in->chunks < 1 ||
	    in->chunks > SCHED_MAX_CHUNKS || in->microbatches < 1 ||
	    in->microbatches > SCHED_MAX_MICROBATCHES / in->chunks)
		return err_set(e, ERR_INTERNAL, "player: %d stages, %d chunks, %d microbatches",
			       in->stages, in->chunks, in->microbatches);
	TRY(reserve(pl, in, e));
	pl->in = in;
	pl->now_list = list;
	pl->want_spans = spans;
	pl->nomem = false;
	pl->heap_n = pl->ready_n = pl->spans = 0;
	pl->taken_n = pl->sent_n = 0;
	pl->reduced_n = 0;
	pl->reduced_s = 0;
	TRY(lay_wires(pl, in, e));
	TRY(pl->events ? play_events(pl, e) : play_flow(pl, e));
	if (pl->nomem)
		return err_set(e, ERR_NOMEM, "out of memory for the player's timeline");
	TRY(check_complete(pl, e));
	for (int s = 0; s < in->stages; s++)
		if (pl->worker[s].now > step)
			step = pl->worker[s].now;
	for (int s = 0; s < in->stages; s++) {
		struct play_worker *r = &pl->report[s];
		r->end_s = pl->worker[s].now;
		r->bubble_s = step - r->busy_s - r->copy_s - r->wait_s;
		if (r->bubble_s < 0)
			r->bubble_s = 0;
	}
	*out = (struct play_result){ step, pl->report, pl->span, pl->spans };
	return 0;
}

int sched_play(struct player *pl, const struct sched *s, const struct play *in, bool spans,
	       struct play_result *out, struct err *e)
{
	if (pl->sched != s || pl->stages != in->stages || pl->chunks != in->chunks ||
	    pl->microbatches != in->microbatches || pl->tied != in->tied) {
		const struct sched_shape shape = { .stages = in->stages,
						   .chunks = in->chunks,
						   .microbatches = in->microbatches };
		size_t had = pl->list_cap;

		pl->sched = NULL;
		if (in->stages < 1 || in->stages > SCHED_MAX_STAGES)
			return err_set(e, ERR_INTERNAL, "player: %d stages", in->stages);
		if (!mem_grow(&pl->list, &pl->list_cap, (size_t)in->stages, sizeof *pl->list))
			return err_nomem(e, (size_t)in->stages * sizeof *pl->list, "the player");
		for (size_t i = had; i < pl->list_cap; i++)
			pl->list[i] = (struct instr_list){ 0 };
		for (int i = 0; i < in->stages; i++) {
			TRY(sched_build(s, &shape, i, 0, &pl->list[i], e));
			if (in->tied)
				TRY(sched_add_tied(&shape, i, 0, &pl->list[i], e));
		}
		pl->sched = s;
		pl->stages = in->stages;
		pl->chunks = in->chunks;
		pl->microbatches = in->microbatches;
		pl->tied = in->tied;
	}
	return sched_play_lists(pl, pl->list, in, spans, out, e);
}
