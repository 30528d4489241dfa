/* SPDX-License-Identifier: Apache-2.0 */
/* test_crew_membership.c - crew/membership.c is driven through every order of messages, losses and
 * returns of a small crew (links that keep their order, each with messages under way in both
 * directions), then along long random walks with more members.
 *
 * In every state: who gets a PLAN is in its epoch, and nobody who is there still has a plan of
 * another one; who has a plan after all messages have arrived is in the plan that runs; a plan runs
 * whenever somebody is left; and each change (lost, joined, left, moved) went the one way through
 * FORGET. */
#include "base/mem.h"
#include "base/rng.h"
#include "crew/membership.h"
#include "support/long.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 6, QUEUE = 12 };
enum kind { NOTHING, FORGET, PLAN, FORGOT, READY };

struct message {
	uint8_t kind, epoch;
};

struct queue {
	struct message m[QUEUE];
	uint8_t n;
};

/* A worker and its link. */
struct end {
	bool alive;   /* the process */
	bool noticed; /* the coordinator knows that it is not */
	bool has_plan;
	uint8_t epoch;
	struct queue down, up; /* to the worker, to the coordinator */
};

struct world {
	struct membership m;
	struct membership_seat seat[MOST];
	struct end w[MOST];
	int n;
	int losses, returns, moves; /* that may still happen */
	bool gathered;              /* since the last plan began to run */
};

static unsigned long states, steps;

static void push(struct queue *q, enum kind k, uint32_t epoch)
{
	assert_true(q->n < QUEUE);
	q->m[q->n++] = (struct message){ (uint8_t)k, (uint8_t)epoch };
}

static struct message pop(struct queue *q)
{
	struct message m = q->m[0];
	memmove(q->m, q->m + 1, sizeof *q->m * --q->n);
	q->m[q->n] = (struct message){ 0 };
	return m;
}

/* The coordinator sends what is due, and makes a plan when it can. */
static void act(struct world *x)
{
	struct membership *m = &x->m;
	for (;;) {
		struct membership_action a;
		while ((a = membership_next(m)).act != MEMBERSHIP_NOTHING) {
			struct end *w = &x->w[a.member];
			assert_int_not_equal(m->seat[a.member].state, MEMBER_GONE);
			if (a.act == MEMBERSHIP_PLAN)
				for (int i = 0; i < x->n; i++)
					/* whoever is known to be there has forgotten */
					assert_true(m->seat[i].state == MEMBER_GONE ||
						    !x->w[i].alive || !x->w[i].has_plan ||
						    x->w[i].epoch == m->epoch);
			if (w->alive)
				push(&w->down, a.act == MEMBERSHIP_PLAN ? PLAN : FORGET, m->epoch);
		}
		if (m->phase != CREW_PLANS || !membership_count(m))
			return;
		bool used[MOST] = { false };
		for (int i = 0; i < x->n; i++)
			used[i] = m->seat[i].state == MEMBER_FREE;
		assert_true(membership_plan(m, used));
	}
}

static void change(struct world *x)
{
	const uint32_t before = x->m.epoch;
	membership_change(&x->m);
	assert_int_equal(x->m.epoch, before + 1);
	act(x);
}

static void hear(struct world *x, int i)
{
	struct message msg = pop(&x->w[i].up);
	const enum crew_phase was = x->m.phase;
	if (msg.kind == FORGOT)
		membership_forgot(&x->m, i, msg.epoch);
	else
		membership_ready(&x->m, i, msg.epoch);
	if (x->m.phase == CREW_RUNS && was != CREW_RUNS)
		for (int k = 0; k < x->n; k++)
			if (x->m.seat[k].state == MEMBER_READY && x->w[k].alive) {
				assert_true(x->w[k].has_plan);
				assert_int_equal(x->w[k].epoch, x->m.epoch);
			}
	act(x);
}

static void obey(struct world *x, int i)
{
	struct end *w = &x->w[i];
	struct message msg = pop(&w->down);
	if (msg.kind == FORGET) {
		assert_true(msg.epoch > w->epoch);
		w->epoch = msg.epoch;
		w->has_plan = false;
		push(&w->up, FORGOT, msg.epoch);
	} else {
		assert_int_equal(msg.epoch, w->epoch);
		assert_false(w->has_plan);
		w->has_plan = true;
		push(&w->up, READY, msg.epoch);
	}
}

/* The worker is dead; what it sent before still arrives. */
static void lose(struct world *x, int i)
{
	x->w[i].alive = x->w[i].has_plan = false;
	x->w[i].down = (struct queue){ 0 };
	x->losses--;
}

static void notice(struct world *x, int i)
{
	x->w[i].noticed = true;
	if (membership_gone(&x->m, i))
		change(x);
	else
		act(x);
}

static void come_back(struct world *x, int i)
{
	x->w[i] = (struct end){ .alive = true };
	x->returns--;
	membership_here(&x->m, i);
	change(x);
}

/* Event number k of those that are possible now; false: there are fewer. */
static bool event(struct world *x, int k)
{
	for (int i = 0; i < x->n; i++) {
		struct end *w = &x->w[i];
		if (w->alive && w->down.n && !k--)
			return obey(x, i), true;
		if (w->up.n && !w->noticed && !k--)
			return hear(x, i), true;
		if (!w->alive && !w->up.n && !w->noticed && !k--)
			return notice(x, i), true;
		if (w->alive && x->losses && !k--)
			return lose(x, i), true;
		if (!w->alive && w->noticed && x->returns && !k--)
			return come_back(x, i), true;
	}
	if (x->moves && x->m.phase == CREW_RUNS && !k--)
		return x->moves--, change(x), true;
	return false;
}

static bool is_quiet(const struct world *x)
{
	for (int i = 0; i < x->n; i++)
		if (x->w[i].down.n || x->w[i].up.n || (!x->w[i].alive && !x->w[i].noticed))
			return false;
	return true;
}

static void check(const struct world *x)
{
	if (!is_quiet(x))
		return;
	int alive = 0;
	for (int i = 0; i < x->n; i++) {
		alive += x->w[i].alive;
		assert_int_equal(x->w[i].alive, x->m.seat[i].state == MEMBER_READY);
		if (x->w[i].alive) {
			assert_true(x->w[i].has_plan);
			assert_int_equal(x->w[i].epoch, x->m.epoch);
		}
	}
	assert_int_equal(x->m.phase, alive ? CREW_RUNS : CREW_PLANS);
}

static void begin(struct world *x, int n, int losses, int returns, int moves)
{
	memset(x, 0, sizeof *x);
	x->n = n;
	x->losses = losses;
	x->returns = returns;
	x->moves = moves;
	membership_init(&x->m, x->seat, n);
	for (int i = 0; i < n; i++) {
		x->w[i].alive = true;
		membership_here(&x->m, i);
	}
	act(x);
}

/* ---- every order ---- */

enum { TABLE = 1 << 22 };
static uint64_t *seen;

static bool is_new(const struct world *x)
{
	uint64_t h = 1469598103934665603u;
	struct world y;
	memcpy(&y, x, sizeof y);
	y.m.seat = NULL;
	for (size_t i = 0; i < sizeof y; i++)
		h = (h ^ ((const unsigned char *)&y)[i]) * 1099511628211u;
	h = h ? h : 1;
	size_t at = h % TABLE;
	for (; seen[at]; at = (at + 1) % TABLE)
		if (seen[at] == h)
			return false;
	seen[at] = h;
	assert_true(++states < TABLE / 2);
	return true;
}

static void explore(const struct world *x)
{
	check(x);
	for (int k = 0;; k++) {
		struct world y;
		memcpy(&y, x, sizeof y);
		y.m.seat = y.seat;
		if (!event(&y, k))
			return;
		steps++;
		if (is_new(&y))
			explore(&y);
	}
}

static void every_order(void **state)
{
	static const int n[][4] = { { 2, 2, 2, 1 }, { 3, 2, 1, 0 }, { 3, 1, 1, 1 } };
	(void)state;
	for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
		struct world x;
		states = steps = 0;
		seen = mem_array(TABLE, sizeof *seen);
		assert_non_null(seen);
		begin(&x, n[i][0], n[i][1], n[i][2], n[i][3]);
		explore(&x);
		mem_free(seen);
		printf("%d members, %d losses, %d returns, %d moves: %lu states, %lu events\n",
		       n[i][0], n[i][1], n[i][2], n[i][3], states, steps);
		assert_true(states > 100);
	}
}

static void long_walks(void **state)
{
	const int walks = test_is_long() ? 20000 : 500;
	unsigned long events = 0;
	(void)state;
	for (int k = 0; k < walks; k++) {
		struct rng_key key = rng_key((uint64_t)k);
		struct world x;
		uint64_t at = 0;
		begin(&x, 2 + (int)rng_below(key, at++, MOST - 1), 20, 20, 5);
		for (;;) {
			struct world y;
			int most = 0;
			do {
				memcpy(&y, &x, sizeof y);
				y.m.seat = y.seat;
			} while (event(&y, most) && ++most);
			if (!most)
				break;
			assert_true(event(&x, (int)rng_below(key, at++, (uint32_t)most)));
			check(&x);
			events++;
		}
		assert_true(is_quiet(&x));
	}
	printf("%d walks, %lu events\n", walks, events);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_order),
		cmocka_unit_test(long_walks),
	};
	return cmocka_run_group_tests_name("crew_membership", tests, NULL, NULL);
}
