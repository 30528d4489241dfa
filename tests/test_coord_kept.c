/* SPDX-License-Identifier: Apache-2.0 */
/* test_coord_kept.c - what workers have kept of a run, collected by a coordinator that is started
 * anew: a state is taken only when every number of it is there, of one step and one origin, whoever
 * has which part; parts of different steps are never mixed. Workers are played by this test. */
#include <pthread.h>
#include <setjmp.h>
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
#include "base/mem.h"
#include "coord/session.h"
#include "crew/snapshot.h"
#include "worker/kept.h"
#include "job/job.h"
#include "proto/record.h"
#include "support/deadline.h"
#include "support/interrupt.h"
#include "support/ok.h"
#include "support/player.h"
#include "support/tiny.h"

static struct err err;

enum { PLAYERS = 3, RUN = 77 };
enum { OWED = 1, OTHER = 2, DIES = 4, ENDLESS = 8 /* of an offer */ };
/* says nothing when it is asked; says READY without end, and after a while Ctrl-C is pressed */
enum { MUTE = 16, FLOODS = 32 };

/* What a worker offers: numbers [from, to) in percent of every array, of a step. */
struct offer {
	uint64_t step, origin, plan;
	int stage, part, from, to;
	unsigned how;
};

static atomic_bool stop_all;
static pthread_t coordinator;

struct keeper {
	struct player w;
	struct offer o;
	struct job *job;
	uint64_t asked;
};

/* Number i of every array of a state is step + i. */
static void say_state(struct keeper *w)
{
	struct err e = { 0 };
	size_t n;
	for (size_t i = 0; i < w->job->nparam; i++)
		for (int k = 0; k <= w->job->param[i].states; k++) {
			const struct trained_param *p = &w->job->param[i];
			const uint64_t all = k ? p->kind[k - 1].count : p->count;
			const uint64_t a = all * (uint64_t)w->o.from / 100,
				       b = all * (uint64_t)w->o.to / 100;
			float *v = mem_array(b - a + 1, sizeof *v);
			unsigned char *out = mem_alloc((b - a) * 4 + 600);
			struct state_message m = { .first = a, .bytes = (b - a) * 4, .data = v };
			for (uint64_t j = a; j < b; j++)
				v[j - a] = (float)(w->o.step + j);
			snprintf(m.name, sizeof m.name, "%s", p->name);
			snprintf(m.what, sizeof m.what, "%s", k ? p->kind[k - 1].name : "value");
			if (state_write(&m, out, (b - a) * 4 + 600, &n, &e) >= 0 && b > a)
				player_say(&w->w, FRAME_STATE, 0, 0, out, n);
			mem_free(v);
			mem_free(out);
		}
}

static void say_kept(struct keeper *w)
{
	unsigned char out[RECORD_FIELDS];
	struct err e = { 0 };
	size_t n;
	struct run_record r = { .run = RUN,
				.owed = w->o.how & OWED,
				.st = { .step = w->o.step + (w->o.how & OTHER ? 1 : 0),
					.origin = w->o.origin,
					.rules = RULES_NOW } };
	w->asked++;
	if (w->o.how & DIES) {
		link_close(w->w.link);
		w->w.link = NULL;
		return;
	}
	if (w->o.how & MUTE || record_write(&r, out, sizeof out, &n, &e) < 0)
		return;
	player_say(&w->w, FRAME_RECORD, 0, 0, out, n);
	/* the same again and again, until the test is over */
	while (w->o.how & ENDLESS && link_state(w->w.link) == LINK_UP && !stop_all)
		say_state(w);
	say_state(w);
	player_say(&w->w, FRAME_SAVED, 0, 0, NULL, 0);
}

static void *play(void *ctx)
{
	struct keeper *w = ctx;
	struct net_msg m;
	struct frame f;
	struct err e = { 0 };
	struct welcome c = { .backend = "cpu",
			     .device = "played",
			     .formats = 1,
			     .keeps = w->o.step > 0,
			     .kept_part = (uint8_t)w->o.part,
			     .kept_stage = (uint32_t)w->o.stage,
			     .kept_step = w->o.step,
			     .kept_origin = w->o.origin,
			     .kept_plan = w->o.plan };
	if (!player_meet(&w->w, &c))
		return NULL;
	const int64_t soon = net_in(0.5);
	bool told = false;
	while (w->o.how & FLOODS && link_state(w->w.link) == LINK_UP && !stop_all) {
		player_say(&w->w, FRAME_READY, 0, 0, NULL, 0);
		if (!told && clock_now() > soon) {
			interrupt_thread(coordinator);
			told = true;
		}
	}
	while (w->w.link && link_recv_frame(w->w.link, net_in(20), &m, &f, &e) == 1) {
		const enum frame_kind kind = f.kind;
		net_msg_release(&m);
		if (kind == FRAME_SAVE)
			say_kept(w);
		if (kind == FRAME_FINISH || kind == FRAME_ABORT)
			break;
	}
	return NULL;
}

/* What the coordinator makes of these offers: the step, or 0. *asked: how many it asked. */
static uint64_t outcome(const struct offer *o, uint64_t least, bool *owed_p, uint64_t *asked)
{
	static int serial;
	char name[32];
	struct tiny t;
	struct keeper w[PLAYERS];
	struct seat_spec seat[PLAYERS];
	struct session *s;
	struct job job;
	struct buf record = BUF_INIT;
	struct run_record r = { .st = { .step = 0 } };
	tiny_make(&t, 2, 24);
	struct config *c =
		tiny_config(&t, "run", (const char *const[]){ "compute_dtype=float32", NULL });
	OK(job_open(c, DT_F32, NULL, &job, &err));
	snprintf(name, sizeof name, "kept-%d", serial++);
	players_seats(seat, PLAYERS, name);
	for (int i = 0; i < PLAYERS; i++) {
		w[i] = (struct keeper){ .o = o[i], .job = &job, .w.epoch = FRAME_EPOCH(4, 0) };
		player_begin(&w[i].w, &seat[i], i, play, &w[i]);
	}
	const struct session_options so = {
		.seat = seat, .n = PLAYERS, .join_timeout = 20, .run = RUN, .term = 4
	};
	OK(session_join(&job, &so, &s, &err));
	session_until(s, &interrupt_flag, "it was held up");
	struct err why = { 0 };
	struct snapshot set;
	snapshot_init(&set, &job, "", &r.st, true);
	set.over = true;
	int rc = session_pull_kept(s, least, &set, &record, &why);
	snapshot_release(&set);
	if (interrupt_flag)
		assert_int_equal(rc, ERR_CANCELLED);
	else
		assert_true(rc == 0 || rc == 1);
	if (rc > 0) {
		OK(record_read(record.p, record.n, &r, &err));
		*owed_p = r.owed;
	}
	for (size_t i = 0; i < job.nparam && rc > 0; i++)
		for (uint64_t j = 0; j < job.param[i].count; j++)
			assert_true(job.param[i].value[j] == (float)(r.st.step + j));
	*asked = 0;
	stop_all = true;
	session_close(s, NULL);
	stop_all = false;
	for (int i = 0; i < PLAYERS; i++) {
		player_end(&w[i].w);
		*asked += w[i].asked;
	}
	buf_release(&record);
	job_close(&job);
	config_free(c);
	tiny_remove(&t);
	return r.st.step;
}

static void whole_or_nothing(void **state)
{
	(void)state;
	static const struct {
		struct offer o[PLAYERS];
		uint64_t least, step, asked;
		bool owed;
	} row[] = {
		/* nobody has anything */
		{ { { 0 } }, 0, 0, 0, false },
		/* pieces of one step; overlapping ones, of another plan */
		{ { { 5, 1, 1, 0, 1, 0, 50, 0 }, { 5, 1, 1, 0, 1, 50, 100, 0 } }, 0, 5, 2, false },
		{ { { 5, 1, 1, 0, 1, 0, 70, 0 }, { 5, 1, 2, 0, 1, 30, 100, 0 } }, 0, 5, 2, false },
		/* members of a group have the same: one is asked */
		{ { { 5, 1, 1, 0, 0, 0, 100, 0 }, { 5, 1, 1, 0, 0, 0, 100, 0 } }, 0, 5, 1, false },
		/* STEP reached only one; parts of two steps, or two origins, are no state */
		{ { { 5, 1, 1, 0, 1, 0, 50, 0 }, { 4, 1, 1, 0, 1, 50, 100, 0 } }, 0, 0, 2, false },
		{ { { 5, 2, 1, 0, 1, 0, 50, 0 }, { 5, 1, 1, 0, 1, 50, 100, 0 } }, 0, 0, 2, false },
		{ { { 5, 1, 1, 0, 1, 0, 50, 0 }, { 5, 1, 1, 0, 1, 60, 100, 0 } }, 0, 0, 2, false },
		/* the one of which all is there is not the newest: computed again it was */
		{ { { 9, 1, 1, 0, 0, 0, 100, 0 }, { 5, 2, 1, 0, 0, 0, 100, 0 } }, 0, 5, 1, false },
		/* of what is said to be newer nobody has all: what all of is there is older */
		{ { { 5, 1, 1, 0, 1, 0, 50, 0 }, { 4, 1, 1, 0, 0, 0, 100, 0 } }, 0, 4, 2, false },
		{ { { 900, 7, 1, 0, 0, 0, 30, 0 }, { 5, 1, 1, 0, 0, 0, 100, 0 } }, 0, 5, 2, false },
		{ { { 6, 1, 1, 0, 0, 0, 100, OTHER }, { 5, 1, 1, 0, 0, 0, 100, 0 } },
		  0,
		  5,
		  2,
		  false },
		{ { { 6, 1, 1, 0, 0, 0, 100, ENDLESS }, { 5, 1, 1, 0, 0, 0, 100, 0 } },
		  0,
		  5,
		  2,
		  false },
		/* older than the checkpoint */
		{ { { 5, 1, 1, 0, 0, 0, 100, 0 } }, 6, 0, 0, false },
		{ { { 5, 1, 1, 0, 0, 0, 100, 0 } }, 5, 5, 1, false },
		/* somebody knows that what follows the step is done */
		{ { { 5, 1, 1, 0, 1, 0, 50, OWED }, { 5, 1, 1, 0, 1, 50, 100, 0 } },
		  0,
		  5,
		  2,
		  false },
		{ { { 5, 1, 1, 0, 1, 0, 50, 0 }, { 5, 1, 1, 0, 1, 50, 100, OWED } },
		  0,
		  5,
		  2,
		  false },
		{ { { 5, 1, 1, 0, 0, 0, 100, OWED } }, 0, 5, 1, true },
		/* a record of another step; one that dies: another member has the same */
		{ { { 5, 1, 1, 0, 0, 0, 100, OTHER } }, 0, 0, 1, false },
		{ { { 5, 1, 1, 0, 0, 0, 100, DIES }, { 5, 1, 1, 0, 0, 0, 100, 0 } },
		  0,
		  5,
		  2,
		  false },
		{ { { 5, 1, 1, 0, 1, 0, 50, DIES }, { 5, 1, 1, 0, 1, 50, 100, 0 } },
		  0,
		  0,
		  2,
		  false },
	};
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		bool owed = false;
		uint64_t asked, step = outcome(row[i].o, row[i].least, &owed, &asked);
		if (step != row[i].step || asked != row[i].asked || owed != row[i].owed)
			fail_msg("row %zu: step %llu, asked %llu, owed %d", i,
				 (unsigned long long)step, (unsigned long long)asked, owed);
	}
}

/* One that is asked says nothing, another one says much that nobody asked for: Ctrl-C ends it. */
static void a_stop_ends_it(void **state)
{
	(void)state;
	static const struct offer o[PLAYERS] = { { 5, 1, 1, 0, 0, 0, 100, MUTE },
						 { .how = FLOODS } };
	bool owed = false;
	uint64_t asked;
	coordinator = pthread_self();
	interrupt_clear();
	assert_int_equal(outcome(o, 0, &owed, &asked), 0);
	assert_true(interrupt_flag && asked == 1);
	interrupt_clear();
}

/* Whom a worker obeys. */
static void one_coordinator(void **state)
{
	struct kept k = { 0 };
	char why[300];
	(void)state;
	kept_obey(&k, RUN, FRAME_EPOCH(3, 0), 1);
	static const struct {
		uint64_t run, epoch, job;
		bool refused;
	} row[] = {
		{ RUN, FRAME_EPOCH(3, 0), 1, false },     { RUN, FRAME_EPOCH(3, 0), 2, true },
		{ RUN, FRAME_EPOCH(2, 9), 1, true },      { RUN, FRAME_EPOCH(4, 0), 2, false },
		{ RUN + 1, FRAME_EPOCH(1, 0), 2, false }, { 0, 0, 5, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		kept_refuse(&k, row[i].run, row[i].epoch, row[i].job, why, sizeof why);
		assert_int_equal(why[0] != 0, row[i].refused);
	}
	kept_obey(&k, 0, 0, 5); /* that of `profile`: nothing is forgotten */
	kept_refuse(&k, RUN, FRAME_EPOCH(2, 0), 1, why, sizeof why);
	assert_true(why[0]);
	kept_release(&k);
}

static void impossible_records(void **state)
{
	unsigned char out[RECORD_FIELDS + 8];
	size_t n;
	struct run_record r = { .run = RUN, .st = { .step = 3, .rules = RULES_NOW } }, back;
	const int pass[2] = { 3, 5 };
	(void)state;
	r.pass = pass;
	r.npass = 2;
	OK(record_write(&r, out, sizeof out, &n, &err));
	OK(record_read(out, n, &back, &err));
	assert_int_equal(back.npass, 2);
	assert_int_equal(record_pass(&back, 1), 5);
	for (size_t k = 0; k < n; k++)
		assert_int_equal(record_read(out, k, &back, &err), ERR_PROTOCOL);
	out[n - 1] = 0xff; /* rows of the last pass */
	assert_int_equal(record_read(out, n, &back, &err), ERR_PROTOCOL);
	r.npass = 0;
	for (int k = 0; k < 4; k++) {
		struct run_record bad = r;
		bad.st.rules.lr += k == 0 ? 5 : 0;
		bad.st.step = k == 1 ? 0 : bad.st.step;
		bad.st.updates = k == 2 ? 9 : 0;
		bad.st.scale.scale = k == 3 ? -1 : 0;
		OK(record_write(&bad, out, sizeof out, &n, &err));
		assert_int_equal(record_read(out, n, &back, &err), ERR_PROTOCOL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		deadline_test(whole_or_nothing),
		deadline_test(a_stop_ends_it),
		deadline_test(one_coordinator),
		deadline_test(impossible_records),
	};
	return cmocka_run_group_tests_name("coord_kept", tests, NULL, NULL);
}
