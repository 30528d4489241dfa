/* SPDX-License-Identifier: Apache-2.0 */
/* test_coord_forget.c - the members of a job are to forget their plan: one that first has to send
 * the rest of its state is waited for, and one that loads its layers, but not one that only says
 * that it works. Workers are played by this test. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "coord/session.h"
#include "job/job.h"
#include "proto/beat.h"
#include "support/ok.h"
#include "support/player.h"
#include "support/tiny.h"

enum { PLAYERS = 2, PARTS = 15 };

static struct err err;
static atomic_bool over;

/* What a worker does that is asked to forget: it sends the rest of its state first; it only says
 * that it works; it loads its layers first, and never was READY; it ends before it was. */
enum how { SENDS, WORKS, LOADS, ENDS };

struct forgetful {
	struct player w;
	enum how how;
};

static void say_progress(struct forgetful *w, uint32_t at)
{
	unsigned char out[64];
	size_t n;
	struct err e = { 0 };
	const struct progress p = { .state = PROGRESS_WORKING, .instruction = at, .step = 1 };
	if (progress_write(&p, out, sizeof out, &n, &e) >= 0)
		player_say(&w->w, FRAME_PROGRESS, 1, 0, out, n);
}

/* All of it is of the epoch that is over. */
static void forget(struct forgetful *w, uint64_t epoch)
{
	for (uint32_t k = 0; w->how == WORKS ? !over : k < PARTS; k++) {
		if (w->how == SENDS)
			player_say(&w->w, FRAME_STATE, 1, 0, "part", 4);
		else
			say_progress(w, k);
		usleep(100000);
	}
	w->w.epoch = epoch;
	if (w->how != WORKS)
		player_say(&w->w, FRAME_FORGOT, 0, 0, NULL, 0);
}

static void *play(void *ctx)
{
	struct forgetful *w = ctx;
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	unsigned char out[64];
	size_t n;
	if (!player_meet(&w->w,
			 &(struct welcome){ .backend = "cpu", .device = "played", .formats = 1 }))
		return NULL;
	while (link_recv_frame(w->w.link, net_in(20), &m, &f, &e) == 1) {
		const struct frame g = f;
		const struct clock_message c = { clock_now(), clock_now() };
		net_msg_release(&m);
		if (g.kind == FRAME_WEIGHTS_OFFER && w->how == ENDS)
			break;
		if (g.kind == FRAME_WEIGHTS_OFFER && w->how != LOADS)
			player_say(&w->w, FRAME_READY, 0, 0, NULL, 0);
		if (g.kind == FRAME_CLOCK && clock_write(&c, out, sizeof out, &n, &e) >= 0)
			player_say(&w->w, FRAME_CLOCK, g.step, 0, out, n);
		if (g.kind == FRAME_FORGET)
			forget(w, g.epoch);
		if (g.kind == FRAME_FINISH || g.kind == FRAME_ABORT)
			break;
	}
	if (w->how == ENDS) {
		link_close(w->w.link);
		w->w.link = NULL;
	}
	return NULL;
}

/* 'a' is there afterwards, and 'b' is lost. */
static void the_first_one_stays(enum how first, enum how second, const char *said)
{
	static const char *device[] = { "cpu", "cpu" };
	const struct patience short_one = { .stall = 0.5, .silent = 20 };
	struct placement place = { .stages = 2,
				   .chunks = 1,
				   .device = device,
				   .schedule = "1f1b",
				   .reduce_order = SUM_EXACT,
				   .reducer = "direct",
				   .first = { 0, 1, 2 } };
	struct forgetful w[PLAYERS] = { { .how = first }, { .how = second } };
	static int serial;
	char name[32];
	struct seat_spec seat[PLAYERS];
	struct session *s;
	struct tiny t;
	struct job job;
	struct err why = { 0 };
	char cache[300];
	over = false;
	snprintf(name, sizeof name, "forget-%d", serial++);
	tiny_make(&t, 2, 24);
	snprintf(cache, sizeof cache, "cache_dir=%s/cache", t.dir);
	struct config *c = tiny_config(
		&t, "run", (const char *const[]){ "compute_dtype=float32", cache, NULL });
	OK(job_open(c, DT_F32, NULL, &job, &err));
	players_seats(seat, PLAYERS, name);
	for (int i = 0; i < PLAYERS; i++)
		player_begin(&w[i].w, &seat[i], i, play, &w[i]);
	const struct session_options o = { .seat = seat, .n = PLAYERS, .join_timeout = 20 };
	OK(session_join(&job, &o, &s, &err));
	OK(session_assign(s, &place, (const int[]){ 0, 1 }, &err));
	if (second == ENDS)
		assert_int_equal(session_begin(s, &place, false, &err), ERR_NET);
	else
		OK(session_begin(s, &place, false, &err));
	session_set_patience(s, &short_one);
	OK(session_regroup(s, &err));
	assert_true(session_has(s, 0));
	assert_false(session_has(s, 1));
	assert_int_equal(session_loss(s, &why), 1);
	if (!strstr(why.msg, said))
		fail_msg("%s", why.msg);
	assert_int_equal(session_loss(s, &why), -1);
	over = true;
	session_close(s, NULL);
	for (int i = 0; i < PLAYERS; i++)
		player_end(&w[i].w);
	job_close(&job);
	config_free(c);
	tiny_remove(&t);
}

static void who_still_sends_is_waited_for(void **state)
{
	(void)state;
	the_first_one_stays(SENDS, WORKS, "did not answer");
}

static void who_still_loads_is_waited_for(void **state)
{
	(void)state;
	the_first_one_stays(LOADS, ENDS, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_still_sends_is_waited_for),
		cmocka_unit_test(who_still_loads_is_waited_for),
	};
	return cmocka_run_group_tests_name("coord_forget", tests, NULL, NULL);
}
