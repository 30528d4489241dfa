/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - see session.h. The coordinator dials every worker and says HELLO; then each worker
 * dials the stage behind it. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/protocol.h"
#include "coord/session_links.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK_QUESTIONS = 8 };
static const double tell_every = 10;    /* seconds between lines about who is missing */
static const double clocks_apart = 120; /* seconds that deserve a warning */
/* seconds in which the cause of a lost neighbour may show itself */
static const double blame_wait = 3;

/* ---- what went wrong, and where ---- */

static void note_abort(struct worker_seat *w, const struct frame *f)
{
	w->aborted = true;
	abort_read(f->payload, f->size, &w->why);
}

/* Looks at every link without waiting: who has said ABORT, who is gone. */
static void look_at_all(struct session *s)
{
	for (int i = 0; i < s->n; i++) {
		struct worker_seat *w = &s->seat[i];
		struct net_msg msg;
		struct frame f;
		struct err why = { 0 };
		int rc = 0;
		while (w->link && !w->aborted && !w->lost &&
		       (rc = link_recv_frame(w->link, NET_NOW, &msg, &f, &why)) > 0) {
			if (f.kind == FRAME_ABORT)
				note_abort(w, &f);
			net_msg_release(&msg);
		}
		if (w->link && !w->aborted && !w->lost && rc < 0) {
			w->lost = true;
			w->why = why;
		}
	}
}

/* The most telling: a reason of one's own, then a worker that vanished, then one that lost
 * its neighbour. */
static struct worker_seat *culprit(struct session *s, bool *sure_p)
{
	struct worker_seat *vanished = NULL, *other = NULL;
	*sure_p = true;
	for (int i = 0; i < s->n; i++) {
		struct worker_seat *w = &s->seat[i];
		if (w->aborted && w->why.code != ERR_NET)
			return w;
		if (w->lost && !vanished)
			vanished = w;
		if (w->aborted && !other)
			other = w;
	}
	*sure_p = vanished != NULL;
	return vanished ? vanished : other;
}

/* Called when some worker has failed. */
static int blame(struct session *s, struct err *e)
{
	struct worker_seat *w;
	bool sure;
	for (int64_t end = net_in(blame_wait);;) {
		look_at_all(s);
		w = culprit(s, &sure);
		if ((w && sure) || clock_now() > end)
			break;
		usleep(20000);
	}
	if (!w)
		return err_set(e, ERR_NET, "a worker was lost");
	char how[64] = "";
	if (w->lost) {
		for (int64_t end = net_in(0.5); w->seat.pid > 0 && !how[0] && clock_now() < end;
		     usleep(10000))
			seat_ended(&w->seat, how, sizeof how);
	}
	if (!s->step)
		return err_set(e, w->why.code, "%s: %.800s%s%s", w->name, w->why.msg,
			       how[0] ? ": " : "", how);
	return err_set(e, w->why.code, "%s in step %llu: %.800s%s%s", w->name,
		       (unsigned long long)s->step, w->why.msg, how[0] ? ": " : "", how);
}

/* ---- joining ---- */

static void name_seat(struct session *s, int i)
{
	struct worker_seat *w = &s->seat[i];
	const struct seat_spec *p = w->seat.spec;
	if (p->kind == SEAT_THREAD)
		snprintf(w->name, sizeof w->name, "worker %d (%.200s)", i, p->device);
	else
		snprintf(w->name, sizeof w->name, "worker '%.120s' (%.120s, %.250s, stage %d)",
			 p->id, p->host, p->address, i);
}

static void who_is_missing(struct session *s, struct buf *out)
{
	for (int i = 0; i < s->n; i++)
		if (!s->seat[i].welcome)
			buf_addf(out, "%s%s", out->n ? "; " : "", s->seat[i].name);
}

static int greet(struct session *s, struct worker_seat *w, struct err *e)
{
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_COORDINATOR, .job = s->id };
	gethostname(h.host, sizeof h.host - 1);
	snprintf(h.to, sizeof h.to, "%s", w->seat.spec->id);
	memcpy(h.model, s->model, sizeof h.model);
	w->greeted = true;
	return hello_send(w->link, &h, net_in(10), e);
}

/* Training needs no time of day, but whoever compares the machines' logs does. */
static void compare_clocks(const struct worker_seat *w, uint64_t theirs)
{
	time_t at[2] = { time(NULL), (time_t)theirs };
	double apart = difftime(at[1], at[0]);
	char text[2][32] = { "?", "?" };
	struct tm tm;
	if (fabs(apart) <= clocks_apart)
		return;
	for (int i = 0; i < 2; i++)
		if (gmtime_r(&at[i], &tm))
			strftime(text[i], sizeof text[i], "%Y-%m-%d %H:%M:%S", &tm);
	log_warn("the clock of %s says %s UTC, this machine's says %s: %.0f s apart. Training does "
		 "not mind, but times in logs "
		 "will differ",
		 w->name, text[1], text[0], fabs(apart));
}

static int take_welcome(struct session *s, int i, struct err *e)
{
	struct worker_seat *w = &s->seat[i];
	struct net_msg msg;
	struct frame f;
	int rc = link_recv_frame(w->link, NET_NOW, &msg, &f, e);
	if (rc <= 0)
		return rc;
	rc = welcome_read(&f, &s->caps[i], e);
	net_msg_release(&msg);
	if (rc < 0)
		return rc;
	w->welcome = true;
	if (w->seat.spec->kind != SEAT_THREAD)
		compare_clocks(w, s->caps[i].wall);
	return 1;
}

/* One look at one worker; its error is the session's. */
static int bring_in(struct session *s, int i, struct err *e)
{
	struct worker_seat *w = &s->seat[i];
	char how[64];
	int rc = 0;
	if (w->welcome)
		return 0;
	if (link_state(w->link) == LINK_UP && !w->greeted)
		rc = greet(s, w, e);
	if (rc >= 0 && w->greeted)
		rc = take_welcome(s, i, e);
	else if (rc >= 0 && link_state(w->link) == LINK_LOST)
		rc = link_wait_up(w->link, NET_NOW, e);
	if (rc < 0 || w->welcome)
		return rc < 0 ? err_prefix(e, "%s", w->name) : 0;
	if (seat_ended(&w->seat, how, sizeof how))
		return err_set(e, ERR_NET, "%s %s before it joined", w->name, how);
	return 0;
}

static int wait_for_all(struct session *s, struct err *e)
{
	int64_t deadline = net_in(s->o->join_timeout), tell = net_in(tell_every);
	struct net_poll *p = mem_array((size_t)s->n, sizeof *p);
	int rc = p ? 0 : err_nomem(e, (size_t)s->n * sizeof *p, "workers");
	while (rc >= 0) {
		size_t n = 0;
		for (int i = 0; i < s->n && rc >= 0; i++) {
			rc = bring_in(s, i, e);
			if (!s->seat[i].welcome)
				p[n++] = (struct net_poll){ s->seat[i].link,
							    s->seat[i].greeted ? NET_RECV : NET_UP,
							    0 };
		}
		if (rc < 0 || !n)
			break;
		struct buf missing = BUF_INIT;
		who_is_missing(s, &missing);
		if (s->o->stop && *s->o->stop)
			rc = err_set(e, ERR_CANCELLED, "interrupted while waiting for %.800s",
				     missing.p);
		else if (clock_now() > deadline)
			rc = err_set(e, ERR_NET,
				     "did not join within %g s (join_timeout): %.700s. Is "
				     "'heteroshard train' running there with this "
				     "configuration, and does a firewall let the port through?",
				     s->o->join_timeout, missing.p);
		else if (clock_now() > tell) {
			log_info("waiting for %s", missing.p);
			tell = net_in(tell_every);
		}
		buf_release(&missing);
		if (rc >= 0)
			net_poll(s->net, p, n, net_in(0.2));
	}
	mem_free(p);
	return rc < 0 ? rc : 0;
}

int session_join(struct job *job, const struct session_options *o, struct session **s_p,
		 struct err *e)
{
	struct session *s = mem_zalloc(sizeof *s);
	if (!s) {
		if (o->net)
			net_close(o->net, 0);
		return err_nomem(e, sizeof *s, "a session");
	}
	*s = (struct session){
		.job = job, .o = o, .n = o->n, .net = o->net, .source = source_from_file(job->file)
	};
	buf_init(&s->out);
	randombytes_buf(&s->id, sizeof s->id);
	weights_model_digest(job->file, s->model);
	int rc = 0;
	s->seat = mem_array((size_t)s->n, sizeof *s->seat);
	s->caps = mem_array((size_t)s->n, sizeof *s->caps);
	if (!s->seat || !s->caps) {
		rc = err_nomem(e, (size_t)s->n * sizeof *s->seat, "workers");
		s->n = 0;
		goto out;
	}
	if (!s->net)
		TRYOUT(net_open("loop", &(struct net_options){ .peer_timeout = 0 }, &s->net, e));
	for (int i = 0; i < s->n; i++) {
		struct worker_seat *w = &s->seat[i];
		w->seat = (struct seat){ .spec = &o->seat[i], .source = &s->source };
		name_seat(s, i);
		TRYOUT(seat_start(&w->seat, o->program, e));
		TRYOUT(net_dial(s->net, o->seat[i].address, o->seat[i].key,
				net_in(o->join_timeout + 5), &w->link, e));
	}
	TRYOUT(wait_for_all(s, e));
	s->o = NULL;
	*s_p = s;
	return 0;
out:
	session_close(s, e);
	return rc;
}

const struct welcome *session_caps(const struct session *s) { return s->caps; }

/* A worker that the plan does not use ends its part, with success. */
static void send_home(struct session *s, struct worker_seat *w)
{
	struct err ignored = { 0 };
	struct frame f = { .kind = FRAME_FINISH, .job = s->id, .from = FRAME_COORDINATOR };
	link_send_frame(w->link, &f, net_in(2), &ignored);
	link_close(w->link);
	seat_stop(&w->seat, 10);
}

int session_arrange(struct session *s, const int *worker, int n, struct err *e)
{
	struct worker_seat *seat = mem_array((size_t)n, sizeof *seat);
	struct welcome *caps = mem_array((size_t)n, sizeof *caps);
	bool *used = mem_array((size_t)s->n, sizeof *used);
	const char *leaving = NULL;
	if (!seat || !caps || !used) {
		mem_free(seat);
		mem_free(caps);
		mem_free(used);
		return err_nomem(e, (size_t)s->n * sizeof *seat, "workers");
	}
	for (int i = 0; i < n; i++) {
		seat[i] = s->seat[worker[i]];
		caps[i] = s->caps[worker[i]];
		used[worker[i]] = true;
		if (s->leaving == s->seat[worker[i]].name) /* asked while it was measured */
			leaving = seat[i].name;
	}
	for (int i = 0; i < s->n; i++)
		if (!used[i])
			send_home(s, &s->seat[i]);
	mem_free(used);
	mem_free(s->seat);
	mem_free(s->caps);
	s->seat = seat;
	s->caps = caps;
	s->n = n;
	s->leaving = leaving;
	for (int i = 0; i < n; i++)
		name_seat(s, i);
	return 0;
}

/* ---- beginning ---- */

static void neighbour(const struct session *s, int i, char *address, char *id, char *key,
		      char *name)
{
	const struct seat_spec *p = s->seat[i].seat.spec;
	if (address)
		snprintf(address, NET_ADDRESS, "%s", p->address);
	if (id)
		snprintf(id, 128, "%s", p->id);
	snprintf(key, KEY_TEXT, "%s", p->key ? p->key : "");
	if (p->kind == SEAT_THREAD)
		snprintf(name, 256, "stage %d", i);
	else
		snprintf(name, 256, "worker '%.60s' (%.100s, stage %d)", p->id, p->host, i);
}

static int send_plan(struct session *s, int i, bool trace, struct err *e)
{
	struct plan_message *p = mem_zalloc(sizeof *p);
	char *config = json_dumps(model_file_config(s->job->file), JSON_COMPACT);
	int rc = 0;
	if (!p || !config) {
		rc = err_nomem(e, sizeof *p, "the plan");
		goto out;
	}
	const struct placement *pl = s->place;
	struct worker_seat *w = &s->seat[i];
	p->stages = pl->stages;
	p->chunks = pl->chunks;
	p->stage = i;
	memcpy(p->first, pl->first, sizeof p->first);
	snprintf(p->schedule, sizeof p->schedule, "%s", pl->schedule);
	static const enum dtype wire[] = {
		[WIRE_BFLOAT16] = DT_BF16, [WIRE_FLOAT32] = DT_F32, [WIRE_FLOAT16] = DT_F16
	};
	p->wire = wire[s->job->cfg->wire_dtype];
	p->cfg = s->job->model;
	p->opt = s->job->opt;
	p->opt.recompute |= pl->recompute && pl->recompute[i];
	snprintf(p->optimizer, sizeof p->optimizer, "%s", s->job->optimizer->name);
	p->optim = s->job->optim;
	p->trace = trace;
	p->offered = w->seat.spec->kind != SEAT_THREAD;
	memcpy(p->model, s->model, sizeof p->model);
	neighbour(s, (i + 1) % s->n, p->next_address, p->next_id, p->next_key, p->next_name);
	session_best_address(s, i, (i + 1) % s->n, p->next_best);
	neighbour(s, (i + s->n - 1) % s->n, NULL, NULL, p->prev_key, p->prev_name);
	if (p->offered)
		TRYOUT(weights_out_open(s->job->file, p, s->job->cfg->cache_dir, &w->weights, e));
	TRYOUT(plan_message_write(p, config, &s->out, e));
	TRYOUT(session_send(s, i, FRAME_PLAN, 0, 0, s->out.p, s->out.n, e));
	if (p->offered)
		TRYOUT(weights_out_offer(w->weights, w->link, s->id, e));
out:
	mem_free(p);
	free(config);
	return rc;
}

/* What a worker says until it is ready. */
static int prepare(struct session *s, int i, struct err *e)
{
	struct worker_seat *w = &s->seat[i];
	struct net_msg msg;
	struct frame f;
	int rc = link_recv_frame(w->link, NET_NOW, &msg, &f, e);
	if (rc < 0) {
		w->lost = true;
		w->why = *e;
		return blame(s, e);
	}
	if (rc == 0)
		return 0;
	uint64_t sent = 0;
	if (f.kind == FRAME_READY) {
		w->ready = true;
	} else if (f.kind == FRAME_WEIGHTS_NEED && w->weights) {
		rc = weights_out_serve(w->weights, w->link, s->id, &f, &sent, e);
		if (rc >= 0)
			log_info("%s: %.3f of %.3f MB of its layers sent", w->name,
				 (double)sent / 1e6, (double)weights_out_bytes(w->weights) / 1e6);
		if (rc == ERR_NET) {
			w->lost = true;
			w->why = *e;
			rc = blame(s, e);
		}
	} else if (f.kind == FRAME_ABORT) {
		note_abort(w, &f);
		rc = blame(s, e);
	} else if (f.kind == FRAME_FINISH) {
		s->leaving = w->name;
	} else {
		rc = err_set(e, ERR_PROTOCOL, "%s sent %s before READY", w->name,
			     frame_name(f.kind));
	}
	net_msg_release(&msg);
	return rc < 0 ? rc : 1;
}

static int wait_until_ready(struct session *s, struct err *e)
{
	struct net_poll *p = mem_array((size_t)s->n, sizeof *p);
	int rc = p ? 0 : err_nomem(e, (size_t)s->n * sizeof *p, "workers");
	for (int left = 1; left && rc >= 0;) {
		bool quiet = true;
		left = 0;
		for (int i = 0; i < s->n && rc >= 0; i++) {
			p[i] = (struct net_poll){ s->seat[i].link, s->seat[i].ready ? 0 : NET_RECV,
						  0 };
			if (s->seat[i].ready && link_state(s->seat[i].link) != LINK_LOST)
				continue;
			rc = prepare(s, i, e);
			quiet &= rc == 0;
			left += !s->seat[i].ready;
		}
		if (rc >= 0 && left && quiet)
			net_poll(s->net, p, (size_t)s->n, net_in(0.5));
	}
	mem_free(p);
	return rc < 0 ? rc : 0;
}

/* Whether a worker of that name (machine_name: what was booted, a blank, its network) runs on this
 * kernel, whose clock is one. */
static bool same_kernel(const char *machine)
{
	char here[MACHINE_TEXT];
	machine_name(here);
	return machine_same_kernel(here, machine);
}

/* The quickest of a few answers. */
static int ask_clock(struct session *s, int i, struct err *e)
{
	struct worker_seat *w = &s->seat[i];
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

int session_begin(struct session *s, const struct placement *place, bool trace, struct err *e)
{
	s->place = place;
	session_recall_links(s);
	for (int i = 0; i < s->n; i++)
		TRY(send_plan(s, i, trace, e));
	TRY(wait_until_ready(s, e));
	for (int i = 0; i < s->n; i++) {
		weights_out_close(s->seat[i].weights);
		s->seat[i].weights = NULL;
	}
	for (int i = 0; i < s->n; i++)
		TRY(ask_clock(s, i, e));
	return 0;
}

/* ---- ending ---- */

void session_close(struct session *s, const struct err *why)
{
	if (!s)
		return;
	char text[1200];
	size_t n = 0;
	struct err ignored;
	if (why)
		abort_write(why, text, sizeof text, &n);
	for (int i = 0; i < s->n; i++) {
		struct worker_seat *w = &s->seat[i];
		struct frame f = { .kind = why ? FRAME_ABORT : FRAME_FINISH,
				   .job = s->id,
				   .from = FRAME_COORDINATOR,
				   .to = FRAME_MEMBER(i),
				   .size = n,
				   .payload = text };
		if (w->link && link_state(w->link) == LINK_UP)
			link_send_frame(w->link, &f, net_in(2), &ignored);
		else if (w->link && link_state(w->link) == LINK_CONNECTING) {
			/* a thread that waits for its coordinator sees that none comes */
			link_close(w->link);
			w->link = NULL;
		}
	}
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].seat.spec && s->seat[i].seat.spec->kind == SEAT_THREAD)
			seat_stop(&s->seat[i].seat, 0);
	for (int i = 0; i < s->n; i++) {
		if (s->seat[i].link)
			link_close(s->seat[i].link);
		weights_out_close(s->seat[i].weights);
	}
	if (s->net)
		net_close(s->net, 3);
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].seat.spec && s->seat[i].seat.spec->kind != SEAT_THREAD)
			seat_stop(&s->seat[i].seat, why ? 3 : 10);
	buf_release(&s->out);
	link_table_free(s->links);
	mem_free(s->seat);
	mem_free(s->caps);
	mem_free(s);
}

int session_workers(const struct session *s) { return s->n; }

const char *session_leaving(const struct session *s) { return s->leaving; }

int64_t session_clock(const struct session *s, int worker) { return s->seat[worker].clock.offset; }

int64_t session_clock_error(const struct session *s, int worker)
{
	return clock_pair_error(&s->seat[worker].clock, clock_now());
}

void session_stepped(struct session *s, int worker, int64_t heard, int64_t said, int64_t back)
{
	struct worker_seat *w = &s->seat[worker];
	if (heard)
		clock_pair_add(&w->clock, w->asked, heard, said, back);
}

/* ---- talking ---- */

int session_send(struct session *s, int worker, enum frame_kind kind, uint64_t step,
		 uint32_t microbatch, const void *payload, size_t n, struct err *e)
{
	struct frame f = { .kind = kind,
			   .job = s->id,
			   .step = step,
			   .from = FRAME_COORDINATOR,
			   .to = FRAME_MEMBER(worker),
			   .microbatch = microbatch,
			   .size = n,
			   .payload = payload };
	s->seat[worker].asked = clock_now();
	return link_send_frame(s->seat[worker].link, &f, NET_FOREVER, e) < 0 ? blame(s, e) : 0;
}

int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload,
		     size_t n, struct err *e)
{
	for (int i = 0; i < s->n; i++)
		TRY(session_send(s, i, kind, step, 0, payload, n, e));
	return 0;
}

int session_send_batch(struct session *s, const struct microbatch *mb, enum round kind,
		       uint64_t round, uint64_t step, uint32_t m, uint32_t microbatches,
		       float scale, struct err *e)
{
	if (kind == ROUND_TRAIN)
		s->step = step;
	for (int i = 0; i < s->n; i++) {
		bool ids = i == 0, labels = i == s->n - 1;
		size_t n, cap = batch_size(mb, ids, labels);
		buf_reset(&s->out);
		buf_reserve(&s->out, cap);
		TRY(buf_ok(&s->out, e));
		TRY(batch_write(mb, kind, step, microbatches, scale, ids, labels, s->out.p, cap, &n,
				e));
		TRY(session_send(s, i, FRAME_BATCH, round, m, s->out.p, n, e));
	}
	return 0;
}

int session_next(struct session *s, int worker, struct net_msg *msg_p, struct frame *f_p,
		 struct err *e)
{
	struct worker_seat *w = &s->seat[worker];
	for (;;) {
		struct net_msg msg;
		struct frame f;
		int rc = link_recv_frame(w->link, net_in(0.5), &msg, &f, e);
		if (rc < 0) {
			w->lost = true;
			w->why = *e;
			return blame(s, e);
		}
		if (rc == 0) { /* another one may have failed and keep this one waiting */
			for (int i = 0; i < s->n; i++)
				if (link_state(s->seat[i].link) == LINK_LOST)
					return blame(s, e);
			continue;
		}
		if (f.kind == FRAME_ABORT) {
			note_abort(w, &f);
			net_msg_release(&msg);
			return blame(s, e);
		}
		if (f.kind != FRAME_FINISH) {
			*msg_p = msg;
			*f_p = f;
			return 0;
		}
		s->leaving = w->name;
		net_msg_release(&msg);
	}
}

int session_recv(struct session *s, int worker, enum frame_kind kind, uint64_t step,
		 struct net_msg *msg_p, struct frame *f_p, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	TRY(session_next(s, worker, &msg, &f, e));
	if (f.kind == kind && f.step == step && f.job == s->id) {
		*msg_p = msg;
		*f_p = f;
		return 0;
	}
	int rc = err_set(e, ERR_PROTOCOL, "%s sent %s of step %llu where %s of step %llu was due",
			 s->seat[worker].name, frame_name(f.kind), (unsigned long long)f.step,
			 frame_name(kind), (unsigned long long)step);
	net_msg_release(&msg);
	return rc;
}
