/* SPDX-License-Identifier: Apache-2.0 */
/* test_coord_hostile.c - a listed worker that says what it may say, but without end or too often,
 * or takes nothing: to hold up its coordinator. Workers are played by threads of this test, over
 * the loop transport. Each goes on until the test has its answer. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "coord/session.h"
#include "job/job.h"
#include "net/wire.h"
#include "support/deadline.h"
#include "support/interrupt.h"
#include "support/ok.h"
#include "support/player.h"
#include "support/tiny.h"

static struct err err;

/* What the first worker does; the second one is honest. */
enum act {
	HONEST,
	PROGRESS,
	OLD,
	EMPTY_STATE,
	SAVED_TWICE,
	TAKES_NOTHING,
	NEEDS_TWICE,
	NEEDS_AGAIN,
	NO_CLOCK,
	COMES_AND_GOES,
	NOT_ASKED,       /* when it is ready: READY, without end */
	NEVER_FORGETS,   /* in place of FORGOT: READY, without end */
	NO_CLOCK_FLOODS, /* in place of CLOCK: PROGRESS, without end */
	NUMBER_BY_NUMBER /* its state */
};

enum { FLOODERS = 3 };
static const double at_most = 20; /* seconds that a worker goes on with it: the test has failed */

struct actor {
	struct player w;
	enum act act;
	atomic_bool end, over; /* over: it has gone on for at_most */
	atomic_bool go;        /* COMES_AND_GOES: away, and back */
	atomic_int meets;
};

struct scene {
	struct tiny t;
	struct config *c;
	struct job job;
	struct actor w[2];
	struct seat_spec seat[2];
	struct placement place;
	struct session *s;
};

static bool goes_on(struct actor *w, int64_t until)
{
	if (clock_now() > until)
		atomic_store(&w->over, true);
	return !atomic_load(&w->end) && !atomic_load(&w->over);
}

static size_t progress_of(uint32_t at, unsigned char *out, size_t cap)
{
	size_t n = 0;
	struct err e = { 0 };
	progress_write(&(struct progress){ .instruction = at }, out, cap, &n, &e);
	return n;
}

static size_t state_of(uint64_t first, uint64_t numbers, unsigned char *out, size_t cap)
{
	static const float v[4];
	size_t n = 0;
	struct err e = { 0 };
	struct state_message m = { .first = first, .bytes = numbers * sizeof *v, .data = v };
	snprintf(m.name, sizeof m.name, "model.layers.0.self_attn.q_proj.lora_A.weight");
	snprintf(m.what, sizeof m.what, "value");
	state_write(&m, out, cap, &n, &e);
	return n;
}

/* One message after the other, as fast as it goes. */
static void *flood(void *ctx)
{
	struct actor *w = ctx;
	unsigned char out[600];
	size_t n;
	const int64_t until = net_in(at_most);
	for (uint32_t k = 0; goes_on(w, until); k++) {
		if (w->act == EMPTY_STATE) {
			n = state_of(0, 0, out, sizeof out);
			player_say(&w->w, FRAME_STATE, 1, 0, out, n);
			continue;
		}
		n = progress_of(k, out, sizeof out);
		struct err e = { 0 };
		const bool ready = w->act != PROGRESS && w->act != NO_CLOCK_FLOODS;
		const struct frame f = { .kind = ready ? FRAME_READY : FRAME_PROGRESS,
					 .job = w->w.job,
					 .epoch = w->act == OLD ? 0 : w->w.epoch,
					 .from = FRAME_MEMBER(w->w.number),
					 .to = FRAME_COORDINATOR,
					 .size = ready ? 0 : n,
					 .payload = out };
		link_send_frame(w->w.link, &f, net_in(0.2), &e);
	}
	return NULL;
}

/* The numbers of the first parameter, one after the other, slowly: there is always one that comes
 * soon. */
static void say_numbers(struct actor *w)
{
	unsigned char out[600];
	const int64_t until = net_in(at_most);
	for (uint64_t k = 0; goes_on(w, until); k++, usleep(20000)) {
		const size_t n = state_of(k, 1, out, sizeof out);
		player_say(&w->w, FRAME_STATE, 1, 0, out, n);
	}
}

static void flood_by_many(struct actor *w)
{
	pthread_t t[FLOODERS];
	for (int i = 0; i < FLOODERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, flood, w), 0);
	for (int i = 0; i < FLOODERS; i++)
		pthread_join(t[i], NULL);
}

static void need(struct actor *w, uint32_t n)
{
	unsigned char out[256];
	struct wire_writer to = wire_write(out, sizeof out);
	size_t size = 0;
	struct err e = { 0 };
	wire_put_u32(&to, n);
	for (uint32_t i = 0; i < n; i++)
		wire_put_u32(&to, 0);
	if (wire_write_end(&to, &size, &e) >= 0)
		player_say(&w->w, FRAME_WEIGHTS_NEED, 0, 0, out, size);
}

/* True: the worker answers no more. */
static bool answer(struct actor *w, enum frame_kind kind, uint64_t step)
{
	unsigned char out[64];
	size_t n;
	struct err e = { 0 };
	if (kind == FRAME_WEIGHTS_OFFER && (w->act == NEEDS_TWICE || w->act == NEEDS_AGAIN)) {
		need(w, w->act == NEEDS_TWICE ? 2 : 1);
		if (w->act == NEEDS_AGAIN)
			need(w, 1);
	} else if (kind == FRAME_WEIGHTS_OFFER) {
		if (w->act == NO_CLOCK) /* the other one has said READY before */
			usleep(200000);
		player_say(&w->w, FRAME_READY, 0, 0, NULL, 0);
	} else if (kind == FRAME_CLOCK && w->act == NO_CLOCK_FLOODS) {
		flood(w);
		return true;
	} else if (kind == FRAME_CLOCK && w->act != NO_CLOCK &&
		   clock_write(&(struct clock_message){ clock_now(), clock_now() }, out, sizeof out,
			       &n, &e) >= 0) {
		player_say(&w->w, FRAME_CLOCK, step, 0, out, n);
	}
	if (kind == FRAME_FORGET && w->act != NEVER_FORGETS)
		player_say(&w->w, FRAME_FORGOT, 0, 0, NULL, 0);
	if (kind == FRAME_CLOCK && step == 7 && (w->act == PROGRESS || w->act == OLD)) {
		flood_by_many(w);
		return true;
	}
	if ((kind == FRAME_FORGET && w->act == NEVER_FORGETS) ||
	    (kind == FRAME_CLOCK && step == 7 && w->act == NOT_ASKED)) {
		flood(w);
		return true;
	}
	if (kind == FRAME_SAVE && w->act == NUMBER_BY_NUMBER) {
		say_numbers(w);
		return true;
	}
	if (kind == FRAME_SAVE && w->act == EMPTY_STATE) {
		flood_by_many(w);
		return true;
	}
	for (int k = 0; k < 2 && kind == FRAME_SAVE && w->act == SAVED_TWICE; k++)
		player_say(&w->w, FRAME_SAVED, step, 0, NULL, 0);
	return kind == FRAME_FINISH || kind == FRAME_ABORT;
}

static bool meet(struct actor *w)
{
	atomic_fetch_add(&w->meets, 1);
	return player_meet(&w->w,
			   &(struct welcome){ .backend = "cpu", .device = "played", .formats = 1 });
}

static bool come_back(struct actor *w)
{
	atomic_store(&w->go, false);
	link_close(w->w.link);
	w->w.link = NULL;
	w->w.epoch = 0; /* before FORGET */
	return meet(w);
}

static void *play(void *ctx)
{
	struct actor *w = ctx;
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	if (!meet(w))
		return NULL;
	const int64_t until = net_in(at_most);
	while (w->act == TAKES_NOTHING && goes_on(w, until))
		usleep(10000);
	while (!atomic_load(&w->end)) {
		const int rc = link_recv_frame(w->w.link, net_in(0.02), &m, &f, &e);
		if (atomic_load(&w->go)) {
			if (rc > 0)
				net_msg_release(&m);
			if (!come_back(w))
				return NULL;
			continue;
		}
		if (rc < 0 && w->act != COMES_AND_GOES)
			return NULL;
		if (rc <= 0)
			continue;
		const enum frame_kind kind = f.kind;
		const uint64_t step = f.step;
		w->w.epoch = kind == FRAME_FORGET ? f.epoch : w->w.epoch;
		net_msg_release(&m);
		if (answer(w, kind, step))
			return NULL;
	}
	return NULL;
}

/* Two stages on two workers that have joined; `begin`: they are ready too. */
static void scene_set(struct scene *x, enum act act, bool begin)
{
	static int serial;
	static const char *device[] = { "cpu", "cpu" };
	static char cache[300];
	char name[32];
	memset(x, 0, sizeof *x);
	tiny_make(&x->t, 2, 24);
	snprintf(cache, sizeof cache, "cache_dir=%s/cache", x->t.dir);
	const char *const more[] = { cache, "compute_dtype=float32", "wire_dtype=float32", NULL };
	x->c = tiny_config(&x->t, "run", more);
	OK(job_open(x->c, DT_F32, NULL, &x->job, &err));
	snprintf(name, sizeof name, "hostile%d", serial++);
	players_seats(x->seat, 2, name);
	for (int i = 0; i < 2; i++) {
		x->w[i].act = i ? HONEST : act;
		x->w[i].w.window = act == TAKES_NOTHING && !i ? 64 : 0;
		x->w[i].w.epoch = FRAME_EPOCH(1, 0);
		player_begin(&x->w[i].w, &x->seat[i], i, play, &x->w[i]);
	}
	const struct session_options o = { .seat = x->seat, .n = 2, .join_timeout = 20, .term = 1 };
	OK(session_join(&x->job, &o, &x->s, &err));
	x->place = (struct placement){ .stages = 2,
				       .chunks = 1,
				       .device = device,
				       .schedule = "1f1b",
				       .reduce_order = SUM_EXACT,
				       .reducer = "direct",
				       .first = { 0, 1, 2 } };
	OK(session_assign(x->s, &x->place, (const int[]){ 0, 1 }, &err));
	if (begin)
		OK(session_begin(x->s, &x->place, false, &err));
}

static void scene_clear(struct scene *x)
{
	for (int i = 0; i < 2; i++)
		atomic_store(&x->w[i].end, true);
	session_close(x->s, NULL);
	for (int i = 0; i < 2; i++)
		player_end(&x->w[i].w);
	job_close(&x->job);
	config_free(x->c);
	tiny_remove(&x->t);
}

static void says(const char *word)
{
	if (!strstr(err.msg, word))
		fail_msg("'%s' says nothing of '%s'", err.msg, word);
}

static pthread_t coordinator;

static void *interrupt(void *ctx)
{
	(void)ctx;
	usleep(500000);
	interrupt_thread(coordinator);
	return NULL;
}

static pthread_t interrupt_soon(struct scene *x)
{
	pthread_t t;
	interrupt_clear();
	coordinator = pthread_self();
	session_until(x->s, &interrupt_flag, "it was held up");
	assert_int_equal(pthread_create(&t, NULL, interrupt, NULL), 0);
	return t;
}

/* Frames that are nobody's business, without end: the coordinator's waits still end in time. */
static void what_is_passed_over_ends(void **state)
{
	(void)state;
	struct scene x;
	for (enum act act = PROGRESS; act <= OLD; act++) {
		scene_set(&x, act, true);
		pthread_t t = interrupt_soon(&x);
		struct session_event ev;
		assert_int_equal(session_hear(x.s, &ev, &err), ERR_CANCELLED);
		says("interrupted while it was held up");
		assert_false(atomic_load(&x.w[0].over));
		pthread_join(t, NULL);
		scene_clear(&x);
	}
}

/* What the coordinator does while a worker goes on. */
static int wait_for(struct scene *x, enum act act)
{
	switch (act) {
	case NOT_ASKED:
		return session_idle(x->s, at_most, &err);
	case NEVER_FORGETS:
		return session_regroup(x->s, &err);
	case NO_CLOCK_FLOODS:
		return session_begin(x->s, &x->place, false, &err);
	default:
		return session_pull_state(x->s, 1, NULL, &err);
	}
}

/* Every loop that hears messages looks at Ctrl-C: the first one ends it, whatever still comes. */
static void a_stop_ends_every_wait(void **state)
{
	(void)state;
	struct scene x;
	for (enum act act = NOT_ASKED; act <= NUMBER_BY_NUMBER; act++) {
		scene_set(&x, act, act != NO_CLOCK_FLOODS);
		pthread_t t = interrupt_soon(&x);
		const int rc = wait_for(&x, act);
		if (rc != ERR_CANCELLED)
			fail_msg("act %d: %d, %s", act, rc, err.msg);
		says("interrupted while it was held up");
		assert_false(atomic_load(&x.w[0].over));
		pthread_join(t, NULL);
		scene_clear(&x);
	}
}

/* A worker that says the same again and again while its state is collected is refused; also when
 * that says nothing, as no numbers do. */
static void state_comes_once(void **state)
{
	(void)state;
	struct scene x;
	scene_set(&x, EMPTY_STATE, true);
	assert_int_equal(session_pull_state(x.s, 1, NULL, &err), ERR_PROTOCOL);
	says("worker 'a'");
	says("not part of this job");
	assert_false(atomic_load(&x.w[0].over));
	scene_clear(&x);
	scene_set(&x, SAVED_TWICE, true);
	assert_int_equal(session_pull_state(x.s, 1, NULL, &err), ERR_PROTOCOL);
	says("worker 'a'");
	says("SAVED twice");
	scene_clear(&x);
}

static void layers_are_asked_for_once(void **state)
{
	(void)state;
	struct scene x;
	for (enum act act = NEEDS_TWICE; act <= NEEDS_AGAIN; act++) {
		scene_set(&x, act, false);
		assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_PROTOCOL);
		printf("  %s\n", err.msg);
		says(act == NEEDS_TWICE ? "not in their order" : "second time");
		scene_clear(&x);
	}
}

/* A worker that answers and takes nothing of what is sent to it is lost, and the others may go on;
 * and Ctrl-C does not wait for that. */
static void who_takes_nothing_is_lost(void **state)
{
	(void)state;
	static const struct patience half_a_second = { .stall = 0.5, .silent = 0.5 };
	struct scene x;
	scene_set(&x, TAKES_NOTHING, false);
	session_set_patience(x.s, &half_a_second);
	assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_NET);
	says("worker 'a'");
	says("taken nothing");
	assert_false(atomic_load(&x.w[0].over));
	assert_true(session_can_regroup(x.s, &err));
	scene_clear(&x);
	scene_set(&x, TAKES_NOTHING, false);
	pthread_t t = interrupt_soon(&x);
	assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_CANCELLED);
	says("interrupted while it was held up");
	assert_false(atomic_load(&x.w[0].over));
	pthread_join(t, NULL);
	/* the members change, and it does not take FORGET either */
	t = interrupt_soon(&x);
	assert_int_equal(session_regroup(x.s, &err), ERR_CANCELLED);
	says("interrupted while it was held up");
	assert_false(atomic_load(&x.w[0].over));
	pthread_join(t, NULL);
	scene_clear(&x);
}

/* Who is asked and does not answer is the one that is lost: not one that has nothing to do, and has
 * therefore said nothing for longer. */
static void who_is_asked_is_blamed(void **state)
{
	(void)state;
	static const struct patience half_a_second = { .stall = 0.5, .silent = 0.5 };
	struct scene x;
	scene_set(&x, NO_CLOCK, false);
	session_set_patience(x.s, &half_a_second);
	assert_int_equal(session_begin(x.s, &x.place, false, &err), ERR_NET);
	says("worker 'a'");
	says("has said nothing new");
	scene_clear(&x);
}

/* It goes; the members change. */
static void gone(struct scene *x)
{
	struct session_event ev;
	atomic_store(&x->w[0].go, true);
	do
		session_next(x->s, net_in(20), &ev);
	while (ev.kind == SESSION_MESSAGE);
	assert_int_equal(ev.kind, SESSION_LOST);
	assert_int_equal(ev.member, 0);
	OK(session_regroup(x->s, &err));
}

/* A worker that goes again before it has worked is not taken back at once, again and again: the
 * others work meanwhile. Where they cannot, it is welcome. */
static void one_that_comes_and_goes(void **state)
{
	(void)state;
	struct scene x;
	scene_set(&x, COMES_AND_GOES, true);
	gone(&x);
	for (int i = 0; i < 2000 && !session_somebody_back(x.s); i++, usleep(5000))
		session_look_for_lost(x.s);
	assert_int_equal(session_back(x.s), 0); /* the first time at once */
	const int meets = atomic_load(&x.w[0].meets);
	OK(session_regroup(x.s, &err)); /* for it */
	usleep(3000000);
	gone(&x);
	/* longer than between two dials, shorter than five times what it has cost */
	for (int64_t until = net_in(11); clock_now() < until; usleep(5000))
		session_look_for_lost(x.s);
	assert_int_equal(session_back(x.s), -1);
	assert_int_equal(session_there(x.s), 1);
	assert_true(atomic_load(&x.w[0].meets) <= meets + 1); /* it waits to be met */
	OK(session_idle(x.s, 20, &err));
	assert_int_equal(session_back(x.s), 0);
	scene_clear(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		deadline_test(what_is_passed_over_ends),  deadline_test(a_stop_ends_every_wait),
		deadline_test(state_comes_once),          deadline_test(layers_are_asked_for_once),
		deadline_test(who_takes_nothing_is_lost), deadline_test(who_is_asked_is_blamed),
		deadline_test(one_that_comes_and_goes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
