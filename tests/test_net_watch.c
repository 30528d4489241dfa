/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_watch.c - sets of descriptors (net/watch.h): Linux's, and that of other systems, which
 * is compiled here a second time under other names. Both must say the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/watch.h"

#undef HS_OS_OTHER
#define HS_OS_OTHER
#define watch poll_watch
#define watch_new poll_watch_new
#define watch_free poll_watch_free
#define watch_set poll_watch_set
#define watch_drop poll_watch_drop
#define watch_inside poll_watch_inside
#define watch_wait poll_watch_wait
#define watch_wake poll_watch_wake
struct watch *watch_new(void);
void watch_free(struct watch *w);
void watch_set(struct watch *w, int fd, unsigned what, void *of);
void watch_drop(struct watch *w, int fd);
void watch_inside(struct watch *w, struct watch *inner, bool yes);
int watch_wait(struct watch *w, struct watch_event *event_p, int most, int ms);
void watch_wake(struct watch *w);
#include "../src/net/watch_poll.c"
#undef watch
#undef watch_new
#undef watch_free
#undef watch_set
#undef watch_drop
#undef watch_inside
#undef watch_wait
#undef watch_wake

struct kind {
	const char *name;
	void *(*make)(void);
	void (*free)(void *);
	void (*set)(void *, int, unsigned, void *);
	void (*drop)(void *, int);
	void (*inside)(void *, void *, bool);
	int (*wait)(void *, struct watch_event *, int, int);
	void (*wake)(void *);
};

#define KIND(prefix, type)                                                                         \
	static void *prefix##_make(void) { return prefix##_new(); }                                \
	static void prefix##_end(void *w) { prefix##_free(w); }                                    \
	static void prefix##_put(void *w, int fd, unsigned what, void *of)                         \
	{                                                                                          \
		prefix##_set(w, fd, what, of);                                                     \
	}                                                                                          \
	static void prefix##_out(void *w, int fd) { prefix##_drop(w, fd); }                        \
	static void prefix##_nest(void *w, void *in, bool yes) { prefix##_inside(w, in, yes); }    \
	static int prefix##_get(void *w, struct watch_event *e, int most, int ms)                  \
	{                                                                                          \
		return prefix##_wait(w, e, most, ms);                                              \
	}                                                                                          \
	static void prefix##_stir(void *w) { prefix##_wake(w); }                                   \
	static const struct kind type = {                                                          \
		#type,        prefix##_make, prefix##_end, prefix##_put,                           \
		prefix##_out, prefix##_nest, prefix##_get, prefix##_stir                           \
	}
KIND(watch, of_linux);
KIND(poll_watch, of_others);

static void pair(int end[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, end), 0); }

/* What a wait says of one owner; 0: nothing. */
static unsigned said(const struct kind *k, void *w, const void *of)
{
	struct watch_event e[8];
	unsigned what = 0;
	int n = k->wait(w, e, 8, 0);
	for (int i = 0; i < n; i++)
		if (e[i].of == of)
			what |= e[i].what;
	return what;
}

static void events(const struct kind *k)
{
	int a[2];
	void *w = k->make();
	assert_non_null(w);
	pair(a);
	k->set(w, a[0], WATCH_IN, a);
	assert_int_equal(said(k, w, a), 0);
	assert_int_equal(write(a[1], "x", 1), 1);
	assert_int_equal(said(k, w, a), WATCH_IN);
	assert_int_equal(said(k, w, a), WATCH_IN); /* until it was read */
	k->set(w, a[0], WATCH_OUT, a);
	assert_int_equal(said(k, w, a), WATCH_OUT);
	k->set(w, a[0], WATCH_IN | WATCH_OUT, &a[1]); /* another owner */
	assert_int_equal(said(k, w, &a[1]), WATCH_IN | WATCH_OUT);
	k->set(w, a[0], 0, a);
	assert_int_equal(said(k, w, a), 0);
	k->set(w, a[0], WATCH_END, a); /* nothing of what waits to be read */
	assert_int_equal(said(k, w, a), 0);
	shutdown(a[1], SHUT_WR);
	assert_int_equal(said(k, w, a), WATCH_END);
	k->drop(w, a[0]);
	assert_int_equal(said(k, w, a), 0);
	k->drop(w, a[0]); /* it is not there */
	k->set(w, a[0], WATCH_IN, a);
	close(a[1]);
	assert_int_equal(said(k, w, a) & (WATCH_IN | WATCH_OUT), WATCH_IN);
	k->drop(w, a[0]);
	close(a[0]);
	k->free(w);
}

/* Strangers' descriptors in a set of their own. */
static void one_inside_another(const struct kind *k)
{
	int a[2], b[2];
	void *w = k->make(), *in = k->make();
	pair(a);
	pair(b);
	k->set(w, a[0], WATCH_IN, a);
	k->set(in, b[0], WATCH_IN, b);
	k->inside(w, in, true);
	assert_int_equal(said(k, w, in), 0);
	assert_int_equal(write(b[1], "x", 1), 1);
	assert_int_equal(said(k, w, in), WATCH_IN);
	assert_int_equal(said(k, w, b), 0); /* its own events are the inner one's */
	assert_int_equal(said(k, in, b), WATCH_IN);
	k->inside(w, in, false);
	assert_int_equal(said(k, w, in), 0);
	assert_int_equal(write(a[1], "x", 1), 1);
	assert_int_equal(said(k, w, a), WATCH_IN);
	assert_int_equal(said(k, in, b), WATCH_IN);
	k->inside(w, in, true);
	assert_int_equal(said(k, w, in), WATCH_IN);
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
	k->free(w);
	k->free(in);
}

/* More descriptors than a wait returns: each has its turn. */
static void everybody_has_a_turn(const struct kind *k)
{
	enum { N = 24, TURN = 5 };
	int end[N][2], seen[N] = { 0 };
	void *w = k->make();
	struct watch_event e[TURN];
	for (int i = 0; i < N; i++) {
		pair(end[i]);
		k->set(w, end[i][0], WATCH_IN, &seen[i]);
		assert_int_equal(write(end[i][1], "x", 1), 1);
	}
	for (int turn = 0; turn < 2 * N / TURN + 2; turn++) {
		int n = k->wait(w, e, TURN, 0);
		assert_int_equal(n, TURN);
		for (int i = 0; i < n; i++)
			++*(int *)e[i].of;
	}
	for (int i = 0; i < N; i++) {
		if (!seen[i])
			fail_msg("%s: descriptor %d had no turn", k->name, i);
		close(end[i][0]);
		close(end[i][1]);
	}
	k->free(w);
}

struct waker {
	const struct kind *k;
	void *w;
};

static void *wakes(void *ctx)
{
	struct waker *a = ctx;
	usleep(20000);
	a->k->wake(a->w);
	return NULL;
}

static void woken(const struct kind *k)
{
	struct watch_event e;
	struct waker a = { k, k->make() };
	pthread_t t;
	k->wake(a.w);
	k->wake(a.w);
	assert_int_equal(k->wait(a.w, &e, 1, -1), 0); /* it was woken before it waited */
	assert_int_equal(k->wait(a.w, &e, 1, 1), 0);
	assert_int_equal(pthread_create(&t, NULL, wakes, &a), 0);
	assert_int_equal(k->wait(a.w, &e, 1, -1), 0); /* else it would wait for ever */
	pthread_join(t, NULL);
	k->free(a.w);
}

static void of_each(void (*test)(const struct kind *))
{
	test(&of_linux);
	test(&of_others);
}

static void test_events(void **state)
{
	(void)state;
	of_each(events);
}

static void test_inside(void **state)
{
	(void)state;
	of_each(one_inside_another);
}

static void test_turns(void **state)
{
	(void)state;
	of_each(everybody_has_a_turn);
}

static void test_woken(void **state)
{
	(void)state;
	of_each(woken);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_woken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
