/* SPDX-License-Identifier: Apache-2.0 */
/* test_coord_session.c - the coordinator's side of its workers: workers that say nothing, do not
 * advance, say a thing twice or cannot be sent to; Ctrl-C before the first step; real workers in a
 * ring whose links have room for almost nothing. Workers are threads of this process, over the loop
 * transport. Some run the real code, others are played by this test. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "coord/session.h"
#include "job/job.h"
#include "support/deadline.h"
#include "support/player.h"
#include "support/ports.h"
#include "support/tiny.h"
#include "train/round.h"
#include "proto/beat.h"
#include "worker/serve.h"
#include "worker/weights_in.h"
#include "proto/weights_blob.h"
#include "net/wire.h"

static struct err err;
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if ((what) < 0)                                                                    \
			fail_msg("line %d: %s: %s", __LINE__, #what, err.msg);                     \
	} while (0)

enum { MOST = PLAYERS_MOST, MICROBATCHES = 8 };

struct place {
	struct tiny t;
	struct config *c;
	struct job job;
};

static void place_make(struct place *p, int layers, const char *accumulation)
{
	static char cache[300];
	tiny_make(&p->t, layers, 24);
	snprintf(cache, sizeof cache, "cache_dir=%s/cache", p->t.dir);
	const char *const more[] = { cache, "compute_dtype=float32", "wire_dtype=float32",
				     accumulation, NULL };
	p->c = tiny_config(&p->t, "run", more);
	MUST(job_open(p->c, DT_F32, NULL, &p->job, &err));
}

static void place_remove(struct place *p)
{
	job_close(&p->job);
	config_free(p->c);
	tiny_remove(&p->t);
}

static void place_layers(struct placement *p, int stages, int chunks, int layers,
			 const char *schedule)
{
	static const char *device[MOST] = { "cpu", "cpu", "cpu", "cpu", "cpu", "cpu" };
	*p = (struct placement){ .stages = stages,
				 .chunks = chunks,
				 .device = device,
				 .schedule = schedule,
				 .reduce_order = SUM_EXACT,
				 .reducer = "direct" };
	for (int v = 0; v <= stages * chunks; v++)
		p->first[v] = (int64_t)v * layers / (stages * chunks);
}

/* ---- workers that are played ---- */

/* What a played worker does after READY, until told to end. */
enum act { SILENT, STUCK, ADVANCES, TWICE, LEAVES, NOT_READY, GIVES_UP, FOREIGN, OVERLAPS };

struct actor {
	struct player w;
	enum act act;
	atomic_bool end;
};

static void say(struct actor *w, enum frame_kind kind, uint64_t step, uint32_t m, const void *p,
		size_t n)
{
	player_say(&w->w, kind, step, m, p, n);
}

static void say_progress(struct actor *w, enum progress_state state, uint32_t at)
{
	unsigned char out[64];
	size_t n;
	struct err e = { 0 };
	const struct progress p = { .state = state, .instruction = at, .step = 1 };
	progress_write(&p, out, sizeof out, &n, &e);
	say(w, FRAME_PROGRESS, 1, 0, out, n);
}

static void say_loss(struct actor *w, uint32_t m)
{
	unsigned char out[64];
	size_t n;
	struct err e = { 0 };
	loss_write(&(struct loss_message){ .sum = 2, .trained = 1 }, out, sizeof out, &n, &e);
	say(w, FRAME_LOSS, 1, m, out, n);
}

/* Sends STATE of a parameter of the first stage, twice. FOREIGN: the second stage sends it, which
 * does not hold it. OVERLAPS: the first stage sends it, and the second time is one too many. */
static void say_state(struct actor *w)
{
	static const float v[4] = { 1, 2, 3, 4 };
	unsigned char out[600];
	size_t n;
	struct err e = { 0 };
	struct state_message m = { .bytes = 16, .data = v };
	snprintf(m.name, sizeof m.name, "model.layers.0.self_attn.q_proj.lora_A.weight");
	snprintf(m.what, sizeof m.what, "value");
	if (state_write(&m, out, sizeof out, &n, &e) < 0)
		return;
	for (int i = 0; i < 2; i++)
		say(w, FRAME_STATE, 1, 0, out, n);
}

static void act(struct actor *w)
{
	unsigned char out[200];
	size_t n;
	struct err why = { .code = ERR_INPUT, .msg = "the card fell off the bus" };
	for (uint32_t k = 0; !atomic_load(&w->end); k++) {
		switch (w->act) {
		case STUCK:
			say_progress(w, PROGRESS_WORKING, 3);
			break;
		case ADVANCES:
			say_progress(w, PROGRESS_WORKING, k);
			if (k == 40)
				for (uint32_t m = 0; m < 3; m++)
					say_loss(w, m);
			break;
		case TWICE:
			if (k < 2)
				say_loss(w, 0);
			break;
		case FOREIGN:
		case OVERLAPS:
			if (k == 5)
				say_state(w);
			break;
		case LEAVES:
			if (k == 5)
				say(w, FRAME_FINISH, 0, 0, NULL, 0);
			break;
		case GIVES_UP:
			if (k == 5 && abort_write(&why, out, sizeof out, &n) >= 0)
				say(w, FRAME_ABORT, 0, 0, out, n);
			break;
		default:
			say_progress(w, PROGRESS_WAITING, 2);
		}
		usleep(30000);
	}
}

static void *play(void *ctx)
{
	struct actor *w = ctx;
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	unsigned char out[64];
	size_t n;
	if (!player_meet(&w->w,
			 &(struct welcome){ .backend = "cpu", .device = "played", .formats = 1 }))
		return NULL;
	while (w->act != NOT_READY && link_recv_frame(w->w.link, net_in(20), &m, &f, &e) == 1) {
		uint64_t step = f.step;
		enum frame_kind kind = f.kind;
		net_msg_release(&m);
		if (kind == FRAME_WEIGHTS_OFFER)
			say(w, FRAME_READY, 0, 0, NULL, 0);
		if (kind == FRAME_CLOCK &&
		    clock_write(&(struct clock_message){ clock_now(), clock_now() }, out,
				sizeof out, &n, &e) >= 0)
			say(w, FRAME_CLOCK, step, 0, out, n);
		if (kind == FRAME_CLOCK && step == 7)
			break; /* the last question: now it is ready for steps */
		if (kind == FRAME_FINISH || kind == FRAME_ABORT)
			return NULL;
	}
	act(w);
	return NULL;
}

struct stage_play {
	struct place p;
	struct actor w[2];
	struct seat_spec seat[2];
	struct placement place;
	struct session *s;
	struct rounds r;
	struct arena a;
};

/* Two played workers that have joined; `begin`: they are ready too. */
static void stage_set(struct stage_play *x, enum act first, enum act second, bool begin)
{
	static int serial;
	char name[32];
	memset(x, 0, sizeof *x);
	snprintf(name, sizeof name, "%d", serial++);
	place_make(&x->p, 2, "gradient_accumulation_steps=3");
	players_seats(x->seat, 2, name);
	for (int i = 0; i < 2; i++) {
		struct actor *w = &x->w[i];
		w->act = i ? second : first;
		player_begin(&w->w, &x->seat[i], i, play, w);
	}
	const struct session_options o = { .seat = x->seat, .n = 2, .join_timeout = 20 };
	MUST(session_join(&x->p.job, &o, &x->s, &err));
	place_layers(&x->place, 2, 1, 2, "1f1b");
	MUST(session_assign(x->s, &x->place, (const int[]){ 0, 1 }, &err));
	MUST(rounds_init(&x->r, x->s, &(struct round_options){ 0 }, &x->a, &err));
	if (begin)
		MUST(session_begin(x->s, &x->place, false, &err));
}

static void stage_clear(struct stage_play *x)
{
	for (int i = 0; i < 2; i++)
		atomic_store(&x->w[i].end, true);
	session_close(x->s, NULL);
	for (int i = 0; i < 2; i++)
		player_end(&x->w[i].w);
	rounds_release(&x->r);
	arena_release(&x->a);
	place_remove(&x->p);
}

static int start_step(struct stage_play *x)
{
	const struct microbatch *mb;
	size_t n;
	MUST(batches_get(x->p.job.batches, 0, 0, &mb, &n, &err));
	assert_int_equal(n, 3);
	round_begin(&x->r, ROUND_TRAIN, (uint32_t)n, 1, 1);
	for (uint32_t m = 0; m < n; m++)
		TRY(round_send(&x->r, m, &mb[m], &err));
	return 0;
}

static void says(const char *word)
{
	if (!strstr(err.msg, word))
		fail_msg("'%s' says nothing of '%s'", err.msg, word);
	assert_null(strchr(err.msg, '\n'));
}

static const struct patience half_a_second = { .stall = 0.5, .silent = 0.5 };

/* A worker that has its inputs and does not advance is lost; one that waits for it is not. */
static void a_stuck_worker_is_lost(void **state)
{
	(void)state;
	struct stage_play x;
	double sum;
	uint64_t trained;
	for (int who = 0; who < 2; who++) {
		stage_set(&x, who ? SILENT : STUCK, who ? STUCK : SILENT, true);
		session_set_patience(x.s, &half_a_second);
		MUST(start_step(&x));
		assert_int_equal(round_losses(&x.r, &sum, &trained, &err), ERR_NET);
		printf("  %s\n", err.msg);
		says(who ? "worker 'b'" : "worker 'a'");
		says("step 1");
		says("stall_timeout");
		says("instruction 3");
		stage_clear(&x);
	}
	stage_set(&x, SILENT, SILENT, true); /* everybody waits: that must end too */
	session_set_patience(x.s, &half_a_second);
	MUST(start_step(&x));
	assert_int_equal(round_losses(&x.r, &sum, &trained, &err), ERR_NET);
	says("nothing new");
	stage_clear(&x);
}

static void who_advances_is_waited_for(void **state)
{
	(void)state;
	struct stage_play x;
	double sum;
	uint64_t trained;
	stage_set(&x, SILENT, ADVANCES, true);
	session_set_patience(x.s, &half_a_second);
	MUST(start_step(&x));
	MUST(round_losses(&x.r, &sum, &trained, &err)); /* after more than a second */
	assert_true(sum == 6 && trained == 3);
	stage_clear(&x);
}

static void a_loss_counts_once(void **state)
{
	(void)state;
	struct stage_play x;
	double sum;
	uint64_t trained;
	stage_set(&x, SILENT, TWICE, true);
	MUST(start_step(&x));
	assert_int_equal(round_losses(&x.r, &sum, &trained, &err), ERR_PROTOCOL);
	says("twice");
	says("worker 'b'");
	stage_clear(&x);
}

static void layers_that_never_arrive(void **state)
{
	(void)state;
	static volatile sig_atomic_t stop;
	struct stage_play x;
	stage_set(&x, SILENT, NOT_READY, false);
	session_set_patience(x.s, &half_a_second);
	assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_NET);
	says("stall_timeout");
	stage_clear(&x);
	/* Ctrl-C while the layers travel */
	stage_set(&x, SILENT, NOT_READY, false);
	stop = 1;
	session_until(x.s, &stop, "the layers travelled");
	assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_CANCELLED);
	says("interrupted while the layers travelled");
	stage_clear(&x);
}

/* A frame that this process cannot send is its own fault, and no worker's. */
static void what_cannot_be_sent_says_why(void **state)
{
	(void)state;
	static unsigned char much[129 << 10];
	struct stage_play x;
	stage_set(&x, SILENT, SILENT, true);
	int64_t began = clock_now();
	assert_true(session_send(x.s, 0, FRAME_STEP, 1, 0, much, sizeof much, &err) < 0);
	/* it does not search for a worker to blame */
	assert_true(clock_seconds(clock_now() - began) < 2.5);
	assert_null(strstr(err.msg, "lost"));
	says("STEP");
	says("worker 'a'");
	stage_clear(&x);
}

static struct session_event next(struct stage_play *x, enum session_event_kind kind)
{
	struct session_event ev;
	session_next(x->s, net_in(10), &ev);
	if (ev.kind != kind)
		fail_msg("event %d came, %d was due", ev.kind, kind);
	return ev;
}

static void losses_and_wishes_are_events(void **state)
{
	(void)state;
	struct stage_play x;
	stage_set(&x, LEAVES, GIVES_UP, true);
	bool left = false, lost = false;
	for (int i = 0; i < 2; i++) {
		struct session_event ev;
		session_next(x.s, net_in(10), &ev);
		left |= ev.kind == SESSION_LEAVING && ev.member == 0;
		lost |= ev.kind == SESSION_LOST && ev.member == 1 &&
			strstr(ev.why.msg, "fell off the bus");
	}
	assert_true(left && lost);
	assert_non_null(strstr(session_leaving(x.s), "'a'"));
	struct session_event ev;
	session_next(x.s, net_in(0.2), &ev); /* each of them is reported once */
	assert_int_equal(ev.kind, SESSION_NOTHING);
	stage_clear(&x);
	stage_set(&x, SILENT, TWICE, true);
	ev = next(&x, SESSION_MESSAGE);
	assert_int_equal(ev.member, 1);
	assert_int_equal(ev.f.kind, FRAME_LOSS);
	net_msg_release(&ev.msg);
	stage_clear(&x);
}

/* A worker sends the state that it holds, each number once. Anything else is refused. */
static void state_that_was_not_asked_for(void **state)
{
	(void)state;
	struct stage_play x;
	stage_set(&x, SILENT, FOREIGN, true);
	assert_int_equal(session_pull_state(x.s, 1, NULL, &err), ERR_PROTOCOL);
	says("is sent by the first worker of stage 0");
	stage_clear(&x);
	stage_set(&x, OVERLAPS, SILENT, true);
	assert_int_equal(session_pull_state(x.s, 1, NULL, &err), ERR_PROTOCOL);
	says("came twice");
	stage_clear(&x);
}

/* ---- joining ---- */

struct late {
	struct actor a;
	char address[NET_ADDRESS];
};

/* Starts to listen a moment after the coordinator has looked for a listener. */
static void *listen_late(void *ctx)
{
	struct late *l = ctx;
	struct err e = { 0 };
	usleep(300000);
	if (net_listen(l->a.w.net, l->address, NULL, &e) < 0)
		return NULL;
	usleep(900000); /* it answers only after the other process has ended */
	return play(&l->a);
}

/* Somebody starts a worker by hand while the coordinator starts it too: its own process finds the
 * port taken and ends; the one that listens is used. */
static void started_by_hand_at_the_same_moment(void **state)
{
	(void)state;
	static char *const program[] = { "/bin/sh", "-c", "sleep 0.8; exit 1", NULL };
	static char *const ends[] = { "/bin/sh", "-c", "exit 1", NULL };
	struct place p;
	struct late l = { .a = { .act = NOT_READY } };
	struct session *s;
	struct seat_spec seat = {
		.kind = SEAT_PROCESS, .id = "a", .host = "here", .device = "cpu", .by_port = true
	};
	struct session_options o = {
		.seat = &seat, .n = 1, .program = program, .join_timeout = 20
	};
	place_make(&p, 2, "gradient_accumulation_steps=3");
	snprintf(seat.address, sizeof seat.address, "127.0.0.7:%d", ports_claim());
	memcpy(l.address, seat.address, sizeof l.address);
	MUST(net_open(NET_DEFAULT, &(struct net_options){ 0 }, &l.a.w.net, &err));
	MUST(net_open(NET_DEFAULT, &(struct net_options){ 0 }, &o.net, &err));
	assert_int_equal(pthread_create(&l.a.w.thread, NULL, listen_late, &l), 0);
	MUST(session_join(&p.job, &o, &s, &err));
	assert_int_equal(session_members(s), 1);
	atomic_store(&l.a.end, true);
	session_close(s, NULL);
	player_end(&l.a.w);
	/* one that ends while nobody listens is an error at once */
	MUST(net_open(NET_DEFAULT, &(struct net_options){ 0 }, &o.net, &err));
	o.program = ends;
	assert_int_equal(session_join(&p.job, &o, &s, &err), ERR_NET);
	says("ended with status 1 before it joined");
	place_remove(&p);
}

/* A worker that goes between HELLO and WELCOME is not there yet: it is dialled again, and joins
 * when it answers. One that never does is missed like one that is not there. */
static void gone_before_it_answered(void **state)
{
	(void)state;
	struct place p;
	struct actor w = { .w.goes = 2, .act = NOT_READY };
	struct seat_spec seat;
	struct session *s;
	struct session_options o = { .seat = &seat, .n = 1, .join_timeout = 20 };
	struct net *net;
	struct link *l;
	place_make(&p, 2, "gradient_accumulation_steps=3");
	players_seats(&seat, 1, "gone");
	player_begin(&w.w, &seat, 0, play, &w);
	MUST(session_join(&p.job, &o, &s, &err));
	assert_int_equal(session_there(s), 1);
	atomic_store(&w.end, true);
	session_close(s, NULL);
	player_end(&w.w);
	w = (struct actor){ .w.goes = 100 };
	players_seats(&seat, 1, "goes");
	player_begin(&w.w, &seat, 0, play, &w);
	o.join_timeout = 1.5;
	assert_int_equal(session_join(&p.job, &o, &s, &err), ERR_NET);
	says("did not join within 1.5 s");
	says("worker 'a'");
	MUST(net_open("loop", &(struct net_options){ 0 }, &net, &err)); /* it need not wait */
	MUST(net_connect(net, seat.address, NULL, net_in(5), &l, &err));
	link_close(l);
	player_end(&w.w);
	net_close(net, 0);
	place_remove(&p);
}

/* ---- what a worker fetches ---- */

/* A coordinator offers `n` tensors. The worker must refuse them in one line that says `word`. */
static void offer(const struct place *p, const struct blob_head *h, uint32_t n, uint64_t limit,
		  const char *word)
{
	static struct plan_message plan;
	static unsigned char out[4096];
	struct net *here, *there;
	struct link *l, *m;
	struct weights_in *w = NULL;
	size_t size;
	plan = (struct plan_message){ .cfg = p->job.model, .opt = p->job.opt };
	MUST(crew_add(&plan.crew, &(struct member){ .id = "a" }, &err));
	crew_shape(&plan.crew, 1, 1, false);
	MUST(crew_move(&plan.crew, 0, 0, 1, &err));
	plan.first[1] = p->job.model.layers;
	MUST(net_open("loop", &(struct net_options){ 0 }, &here, &err));
	MUST(net_open("loop", &(struct net_options){ 0 }, &there, &err));
	MUST(net_listen(there, "session-offer", NULL, &err));
	MUST(net_connect(here, "session-offer", NULL, net_in(5), &l, &err));
	assert_int_equal(net_accept(there, net_in(5), &m, &err), 1);
	struct wire_writer ww = wire_write(out, sizeof out);
	wire_put_u32(&ww, n);
	for (uint32_t i = 0; i < n; i++)
		blob_head_put(&ww, &h[i]);
	MUST(wire_write_end(&ww, &size, &err));
	struct frame f = { .kind = FRAME_WEIGHTS_OFFER, .job = 1, .size = size, .payload = out };
	MUST(link_send_frame(l, &f, net_in(5), &err));
	const struct weights_in_options o = { .coordinator = m,
					      .plan = &plan,
					      .cache_dir = p->c->cache_dir,
					      .cache_limit = limit,
					      .job = 1 };
	assert_true(weights_in_open(&o, &w, &err) < 0);
	says(word);
	struct net_msg msg; /* it asked for nothing */
	assert_int_equal(link_recv(l, NET_NOW, &msg, &err), 0);
	plan_message_release(&plan);
	link_close(l);
	link_close(m);
	net_close(here, 0);
	net_close(there, 0);
}

static void offers_that_no_plan_needs(void **state)
{
	(void)state;
	struct place p;
	struct blob_head h[2];
	place_make(&p, 2, "gradient_accumulation_steps=3");
	int64_t c = p.job.model.hidden;
	h[0] = (struct blob_head){
		.dtype = DT_F32, .ndim = 1, .shape = { c, 1 }, .bytes = (uint64_t)c * 4
	};
	snprintf(h[0].name, sizeof h[0].name, "something.else");
	offer(&p, h, 1, 0, "not of this worker");
	snprintf(h[0].name, sizeof h[0].name, "model.layers.7.input_layernorm.weight");
	offer(&p, h, 1, 0, "not of this worker");
	snprintf(h[0].name, sizeof h[0].name, "model.layers.1.input_layernorm.weight");
	h[1] = h[0];
	offer(&p, h, 2, 0, "twice");
	offer(&p, h, 1, 16, "cache_limit_gib");
	h[0].shape[0] = (int64_t)1 << 40; /* 4 TiB */
	h[0].bytes = (uint64_t)4 << 40;
	offer(&p, h, 1, 0, "by the plan it is");
	const int64_t vocab = p.job.model.vocab;
	p.job.model.vocab = ((int64_t)1 << 43) / c; /* 32 TiB, and in the plan's shape */
	h[0].ndim = 2;
	h[0].shape[0] = p.job.model.vocab;
	h[0].shape[1] = c;
	h[0].bytes = (uint64_t)p.job.model.vocab * (uint64_t)c * 4;
	snprintf(h[0].name, sizeof h[0].name, "model.embed_tokens.weight");
	struct statvfs disk;
	assert_int_equal(statvfs(p.t.dir, &disk), 0);
	if (h[0].bytes > (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize)
		offer(&p, h, 1, 0, "are free there");
	p.job.model.vocab = vocab;
	place_remove(&p);
}

/* ---- what a worker says of itself ---- */

static void a_worker_says_what_it_is_at(void **state)
{
	(void)state;
	struct net *here, *there;
	struct link *l, *m;
	MUST(net_open("loop", &(struct net_options){ 0 }, &here, &err));
	MUST(net_open("loop", &(struct net_options){ 0 }, &there, &err));
	MUST(net_listen(there, "session-beat", NULL, &err));
	MUST(net_connect(here, "session-beat", NULL, net_in(5), &l, &err));
	assert_int_equal(net_accept(there, net_in(5), &m, &err), 1);
	struct beat b = { .link = l, .job = 7, .member = FRAME_MEMBER(2), .every = 0.01 };
	MUST(beat_start(&b, &err));
	beat_round(&b, 5);
	beat_instruction(&b, 9);
	beat_bytes(&b, 100);
	beat_state(&b, PROGRESS_WAITING);
	struct progress p = { 0 };
	for (int i = 0; i < 200 && !(p.state == PROGRESS_WAITING && p.bytes == 100); i++) {
		struct net_msg msg;
		struct frame f;
		assert_int_equal(link_recv_frame(m, net_in(5), &msg, &f, &err), 1);
		assert_int_equal(f.kind, FRAME_PROGRESS);
		assert_int_equal(f.from, FRAME_MEMBER(2));
		MUST(progress_read(f.payload, f.size, &p, &err));
		net_msg_release(&msg);
	}
	assert_true(p.step == 5 && p.instruction == 9 && p.bytes == 100);
	beat_stop(&b);
	link_close(l);
	link_close(m);
	net_close(here, 0);
	net_close(there, 0);
}

/* ---- workers that nobody reaches ---- */

/* A worker that was started waits for a coordinator. The coordinator's attempt to connect fails at
 * once: the session then ends and does not wait for the worker. */
static void a_dial_that_fails_at_once(void **state)
{
	(void)state;
	struct place p;
	struct seat_spec seat[2];
	struct session *s;
	place_make(&p, 4, "gradient_accumulation_steps=2");
	for (int kind = SEAT_THREAD; kind <= SEAT_PROCESS; kind++) {
		/* an address of the loop transport is no address for tls */
		static const char *const argv[] = { "/bin/sh", "-c", "exec sleep 1000", NULL };
		players_seats(seat, 1, kind == SEAT_THREAD ? "thread" : "process");
		seat[0].kind = (enum seat_kind)kind;
		struct session_options o = {
			.seat = seat, .n = 1, .join_timeout = 1, .program = (char *const *)argv
		};
		MUST(net_open("tls", NULL, &o.net, &err));
		int64_t began = clock_now();
		assert_int_equal(session_join(&p.job, &o, &s, &err), ERR_USAGE);
		printf("%s: %.1f s\n", err.msg, clock_seconds(clock_now() - began));
		/* the worker would have waited for a minute */
		assert_true(clock_seconds(clock_now() - began) < 40);
	}
	place_remove(&p);
}

/* ---- a ring of real workers ---- */

struct real {
	struct net *net;
	pthread_t thread;
	char id[8];
	int rc;
	struct err e;
};

static void *work(void *ctx)
{
	struct real *w = ctx;
	const struct serve o = { .net = w->net, .id = w->id, .device = "cpu", .join_timeout = 30 };
	w->rc = worker_serve(&o, &w->e);
	net_close(w->net, 2);
	return NULL;
}

/* The shape of the job: groups of these sizes, each member with this share. */
struct shape {
	const char *schedule, *reducer;
	enum sum_order order;
	int stages, chunks;
	int members[MOST], share[MOST];
};

struct figures {
	double loss[MICROBATCHES], sqnorm;
};

/* Losses and norm of one step over workers whose links hold `window` bytes. */
static void figures_of(struct place *p, const char *name, const struct shape *k, uint64_t window,
		       struct figures *f_p)
{
	struct real w[MOST] = { 0 };
	struct seat_spec seat[MOST];
	static struct placement place;
	static struct rounds r;
	struct arena a = ARENA_INIT;
	struct session *s;
	const struct microbatch *mb;
	int order[MOST], n = 0;
	double sum;
	uint64_t trained;
	size_t m;
	for (int i = 0; i < k->stages; i++)
		n += k->members[i];
	players_seats(seat, n, name);
	for (int i = 0; i < n; i++) {
		snprintf(w[i].id, sizeof w[i].id, "%s", seat[i].id);
		MUST(net_open("loop", &(struct net_options){ .window = window }, &w[i].net, &err));
		MUST(net_listen(w[i].net, seat[i].address, NULL, &err));
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
		order[i] = i;
	}
	const struct session_options o = { .seat = seat, .n = n, .join_timeout = 30 };
	MUST(session_join(&p->job, &o, &s, &err));
	place_layers(&place, k->stages, k->chunks, 8, k->schedule);
	place.members = k->members;
	place.share = k->share;
	place.reduce_order = k->order;
	place.reducer = k->reducer;
	MUST(session_assign(s, &place, order, &err));
	MUST(rounds_init(&r, s, &(struct round_options){ 0 }, &a, &err));
	MUST(session_begin(s, &place, false, &err));
	const struct patience patience = { .stall = 20, .silent = 60 };
	session_set_patience(s, &patience);
	MUST(batches_get(p->job.batches, 0, 0, &mb, &m, &err));
	round_begin(&r, ROUND_TRAIN, (uint32_t)m, 1, 1);
	for (uint32_t i = 0; i < m; i++)
		MUST(round_send(&r, i, &mb[i], &err));
	MUST(round_losses(&r, &sum, &trained, &err));
	MUST(round_norms(&r, &f_p->sqnorm, &err));
	assert_int_equal(m, MICROBATCHES);
	memcpy(f_p->loss, r.loss, sizeof f_p->loss);
	const struct step_message step = { .apply = true,
					   .s = { .step = 1, .lr = 0.01f, .scale = 1 },
					   .lr = 0.01 };
	MUST(round_step(&r, &step, &err));
	MUST(round_end(&r, &err));
	session_close(s, NULL);
	for (int i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc < 0)
			fail_msg("%s", w[i].e.msg);
	}
	rounds_release(&r);
	arena_release(&a);
}

#define EXACT "direct", SUM_EXACT
/* Every message is larger than the window, and all workers send to each other in a circle: each
 * receives while it waits for room to send. In groups these are activations, gradients and sums. */
static void large_messages_and_small_windows(void **state)
{
	(void)state;
	static const struct shape alone = { "1f1b", EXACT, 1, 1, { 1 }, { 1 } },
				  exact[] = {
		{ "eager", EXACT, 2, 1, { 1, 1 }, { 1, 1 } },
		{ "eager", EXACT, 4, 1, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } },
		{ "interleaved", EXACT, 2, 2, { 1, 1 }, { 1, 1 } },
		{ "interleaved", EXACT, 4, 2, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } },
		{ "gpipe", EXACT, 3, 1, { 1, 1, 1 }, { 1, 1, 1 } },
		{ "1f1b", EXACT, 3, 1, { 1, 1, 1 }, { 1, 1, 1 } },
		{ "1f1b", EXACT, 1, 1, { 4 }, { 1, 2, 1, 1 } },
		{ "1f1b", EXACT, 2, 1, { 2, 3 }, { 1, 2, 1, 1, 1 } },
		{ "gpipe", EXACT, 2, 1, { 3, 1 }, { 1, 0, 1, 1 } },
		{ "eager", EXACT, 3, 1, { 1, 3, 2 }, { 1, 1, 1, 2, 2, 1 } },
		{ "interleaved", EXACT, 2, 2, { 2, 3 }, { 1, 1, 2, 1, 1 } },
	}, fast[] = {
		{ "1f1b", "direct", SUM_FAST, 2, 1, { 2, 3 }, { 1, 2, 1, 1, 1 } },
		{ "1f1b", "ring", SUM_FAST, 2, 1, { 2, 3 }, { 1, 2, 1, 1, 1 } },
		{ "interleaved", "ring", SUM_FAST, 2, 2, { 3, 2 }, { 1, 1, 1, 2, 1 } },
		{ "gpipe", "tree", SUM_FAST, 1, 1, { 5 }, { 1, 1, 1, 0, 2 } },
	};
	struct place p;
	struct figures wide, narrow;
	char name[32];
	place_make(&p, 8, "gradient_accumulation_steps=8");
	figures_of(&p, "wide", &alone, 0, &wide);
	for (size_t i = 0; i < ARRAY_LEN(exact); i++) {
		snprintf(name, sizeof name, "narrow%zu", i);
		figures_of(&p, name, &exact[i], 64, &narrow);
		assert_memory_equal(&wide, &narrow, sizeof wide);
	}
	for (size_t i = 0; i < ARRAY_LEN(fast); i++) {
		snprintf(name, sizeof name, "fast-wide%zu", i);
		figures_of(&p, name, &fast[i], 0, &wide);
		snprintf(name, sizeof name, "fast-narrow%zu", i);
		figures_of(&p, name, &fast[i], 64, &narrow);
		assert_memory_equal(&wide, &narrow, sizeof wide);
	}
	place_remove(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		deadline_test(a_stuck_worker_is_lost),
		deadline_test(who_advances_is_waited_for),
		deadline_test(a_loss_counts_once),
		deadline_test(layers_that_never_arrive),
		deadline_test(what_cannot_be_sent_says_why),
		deadline_test(losses_and_wishes_are_events),
		deadline_test(started_by_hand_at_the_same_moment),
		deadline_test(gone_before_it_answered),
		deadline_test(state_that_was_not_asked_for),
		deadline_test(offers_that_no_plan_needs),
		deadline_test(a_worker_says_what_it_is_at),
		deadline_test(a_dial_that_fails_at_once),
		cmocka_unit_test(large_messages_and_small_windows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
