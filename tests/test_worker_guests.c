/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_guests.c - connections that reach a worker before its coordinator, beside it and
 * instead of it: a machine on the list (or, without keys, anybody on this machine) opens many and
 * says nothing, or the wrong thing, and the coordinator is still let in. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"
#include "support/child.h"
#include "support/interrupt.h"
#include "support/ok.h"
#include "support/serving.h"
#include "peers/guests.h"

enum { MANY = 3 * GUESTS_MOST };
enum who { WORKER, COORDINATOR, OTHER, WHO };

static struct err err;
static struct key_pair key[WHO];
#define SOON net_in(60)

/* A worker that waits for its coordinator, and what the test connects to it with. */
struct stand {
	bool keys;
	struct net *net, *coordinator, *other;
	char at[NET_ADDRESS];
	atomic_bool called_off;
	struct serving worker;
	struct link *guest[MANY];
};

static struct net *end_of(const struct stand *s, enum who w)
{
	return serving_net(s->keys ? &key[w] : NULL);
}

static void make_keys(void)
{
	for (int i = 0; i < WHO && !key[i].pub[0]; i++)
		OK(key_pair_generate(&key[i], &err));
}

static void begin(struct stand *s, bool keys)
{
	*s = (struct stand){ .keys = keys };
	make_keys();
	s->net = end_of(s, WORKER);
	s->coordinator = end_of(s, COORDINATOR);
	s->other = end_of(s, OTHER);
	for (int i = COORDINATOR; keys && i < WHO; i++)
		OK(net_allow(s->net, key[i].pub, &err));
	OK(net_listen(s->net, "127.0.0.1:0", s->at, &err));
}

static void start(struct stand *s)
{
	s->worker.o = (struct serve){ .net = s->net,
				      .listens = s->at,
				      .coordinator_key = s->keys ? key[COORDINATOR].pub : NULL,
				      .join_timeout = 45,
				      .stop = &interrupt_flag,
				      .called_off = &s->called_off };
	serving_start(&s->worker);
}

static struct link *knock(const struct stand *s, struct net *n)
{
	return serving_knock(n, s->at, s->keys ? key[WORKER].pub : NULL);
}

static void all_knock(struct stand *s)
{
	for (int i = 0; i < MANY; i++)
		s->guest[i] = knock(s, s->other);
}

static void say_hello(struct link *l, enum hello_role role) { serving_hello(l, role, 0); }

/* The coordinator is answered; then it leaves, and the worker with it. */
static void is_welcome(struct stand *s, struct link *l)
{
	struct welcome w;
	serving_welcome(l, &w);
	assert_string_equal(w.id, "a");
	link_close(l);
	assert_true(serving_end(&s->worker) < 0);
}

static void end(struct stand *s)
{
	net_close(s->other, 1);
	net_close(s->coordinator, 1);
	net_close(s->net, 1);
}

/* More connections than the worker keeps, all there before the coordinator's. */
static void many_that_say_nothing(void **state)
{
	(void)state;
	struct stand s;
	for (int keys = 0; keys < 2; keys++) {
		begin(&s, keys);
		all_knock(&s);
		struct link *l = knock(&s, s.coordinator);
		say_hello(l, HELLO_COORDINATOR);
		start(&s);
		is_welcome(&s, l);
		end(&s);
	}
}

/* The same, of guests that said HELLO and wait. */
static void many_that_wait(void **state)
{
	(void)state;
	struct stand s;
	for (int keys = 0; keys < 2; keys++) {
		begin(&s, keys);
		all_knock(&s);
		for (int i = 0; i < MANY; i++)
			say_hello(s.guest[i], i % 2 ? HELLO_STAGE : HELLO_PROBE);
		struct link *l = knock(&s, s.coordinator);
		say_hello(l, HELLO_COORDINATOR);
		start(&s);
		is_welcome(&s, l);
		end(&s);
	}
}

/* The coordinator connects first and says HELLO only when many others have connected: its key is
 * proven, so it keeps its place. */
static void the_coordinator_keeps_its_place(void **state)
{
	(void)state;
	struct stand s;
	begin(&s, true);
	struct link *l = knock(&s, s.coordinator);
	all_knock(&s);
	start(&s);
	int64_t until = SOON; /* the worker has been through its list when it closed the oldest */
	while (link_state(s.guest[0]) != LINK_LOST && clock_now() < until)
		usleep(1000);
	assert_int_equal(link_state(s.guest[0]), LINK_LOST);
	assert_int_equal(link_state(l), LINK_UP);
	say_hello(l, HELLO_COORDINATOR);
	is_welcome(&s, l);
	end(&s);
}

static int said;
static void count_lines(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	printf("  %s\n", line);
	said += strstr(line, "did not say HELLO within 5 s") != NULL;
}

/* One that says nothing is not kept for ever, and the log says so. */
static void silence_ends(void **state)
{
	(void)state;
	struct stand s[2];
	struct link *l[2];
	struct net_msg m;
	said = 0;
	log_set_sink(count_lines, NULL, LOG_WARN);
	for (int keys = 0; keys < 2; keys++) {
		begin(&s[keys], keys);
		start(&s[keys]);
		l[keys] = knock(&s[keys], s[keys].other);
	}
	for (int keys = 0; keys < 2; keys++) {
		assert_int_equal(link_recv(l[keys], SOON, &m, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "closed by the peer"));
		s[keys].called_off = true;
		assert_int_equal(serving_end(&s[keys].worker), ERR_CANCELLED);
	}
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_int_equal(said, 2);
	for (int keys = 0; keys < 2; keys++)
		end(&s[keys]);
}

/* ---- Ctrl-C ---- */

static atomic_bool over;

/* Connects, says what it may say, and goes; again and again. */
static void *comes_and_goes(void *ctx)
{
	const struct stand *s = ctx;
	bool told = false;
	struct err e = { 0 };
	const struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_STAGE, .to = "a" };
	const int64_t soon = net_in(0.5);
	while (!atomic_load(&over)) {
		struct link *l;
		if (!told && clock_now() > soon) {
			interrupt_thread(s->worker.thread);
			told = true;
		}
		if (net_connect(s->other, s->at, key[WORKER].pub, net_in(5), &l, &e) < 0)
			continue;
		hello_send(l, &h, net_in(1), &e);
		link_close(l);
	}
	return NULL;
}

/* The first one ends a worker that waits, whoever keeps it busy. */
static void a_stop_among_guests(void **state)
{
	(void)state;
	struct stand s;
	pthread_t t;
	begin(&s, true);
	interrupt_clear();
	atomic_store(&over, false);
	start(&s);
	assert_int_equal(pthread_create(&t, NULL, comes_and_goes, &s), 0);
	if (serving_end(&s.worker) != ERR_CANCELLED)
		fail_msg("%s", s.worker.e.msg);
	assert_non_null(strstr(s.worker.e.msg, "interrupted while waiting for the coordinator"));
	atomic_store(&over, true);
	pthread_join(t, NULL);
	end(&s);
}

/* The kind of the next message; 0: none is there. */
static int heard(struct link *l)
{
	struct net_msg m;
	struct frame f;
	const int rc = link_recv_frame(l, NET_NOW, &m, &f, &err);
	OK(rc);
	if (rc)
		net_msg_release(&m);
	return rc ? (int)f.kind : 0;
}

/* In a job the worker asks its coordinator to let it go, also where that gives it no rest. */
static void a_stop_among_orders(void **state)
{
	(void)state;
	const struct frame f = { .kind = FRAME_PROFILE, .from = FRAME_COORDINATOR };
	struct stand s;
	struct welcome w;
	begin(&s, true);
	interrupt_clear();
	start(&s);
	struct link *l = knock(&s, s.coordinator);
	say_hello(l, HELLO_COORDINATOR);
	serving_welcome(l, &w);
	const int64_t soon = net_in(0.5), until = net_in(20);
	bool told = false;
	int kind = 0;
	while (kind != FRAME_FINISH && clock_now() < until) {
		if (!told && clock_now() > soon) {
			interrupt_thread(s.worker.thread);
			told = true;
		}
		OK(link_send_frame(l, &f, SOON, &err));
		while ((kind = heard(l)) && kind != FRAME_FINISH)
			;
	}
	assert_int_equal(kind, FRAME_FINISH);
	link_close(l);
	assert_true(serving_end(&s.worker) < 0);
	interrupt_clear();
	end(&s);
}

/* ---- what they take ---- */

enum { WINDOW = 4 << 20, PIECE = 1 << 20 };

static void accept_all(const void *who, const struct guest *g, const void *ctx, char *why,
		       size_t cap)
{
	(void)who;
	(void)g;
	(void)ctx;
	(void)why;
	(void)cap;
}

/* A process that keeps guests, and takes the first one that says it is the coordinator. */
static void keeps_guests(const char *say)
{
	char at[NET_ADDRESS];
	const bool keys = say[0] == 'k';
	const int told = atoi(say + 1);
	struct guests g = { .coordinator_key = keys ? key[COORDINATOR].pub : NULL };
	const struct net_options o = { .key = keys ? &key[WORKER] : NULL,
				       .window = WINDOW,
				       .before_take = NET_BEFORE_TAKE };
	if (net_open("tls", &o, &g.net, &err) < 0 ||
	    (keys && (net_allow(g.net, key[COORDINATOR].pub, &err) < 0 ||
		      net_allow(g.net, key[OTHER].pub, &err) < 0)) ||
	    net_listen(g.net, "127.0.0.1:0", at, &err) < 0 || write(told, at, sizeof at) < 0)
		_exit(1);
	for (struct link *l = NULL;;) {
		struct net_poll p[GUESTS_POLLS + 1];
		struct net_msg m;
		struct hello h;
		size_t n = guests_poll(&g, p);
		if (l)
			p[n++] = (struct net_poll){ l, NET_RECV, 0 };
		net_poll(g.net, p, n, net_in(0.5));
		guests_let_in(&g);
		if (!l)
			l = guests_take(&g, HELLO_COORDINATOR, accept_all, NULL, NULL, &h);
		if (l && link_recv(l, NET_NOW, &m, &err) == 1) { /* says that it is here */
			net_msg_release(&m);
			if (link_send_copy(l, "x", 1, SOON, &err) < 0)
				_exit(1);
		}
	}
}

/* As many guests as are kept say HELLO and send what a window holds: little is taken in, and the
 * coordinator's link, which is used, goes at full size. */
static void what_waits_takes_little(void **state)
{
	(void)state;
	static char piece[PIECE];
	struct stand s;
	struct net_msg m;
	int told[2];
	for (int keys = 0; keys < 2; keys++) {
		char text[16];
		make_keys();
		assert_int_equal(pipe(told), 0);
		snprintf(text, sizeof text, "%c%d", keys ? 'k' : 'p', told[1]);
		struct child k = child_new(keeps_guests, 0);
		begin(&s, keys);
		child_tell(&k, text);
		assert_int_equal(read(told[0], s.at, sizeof s.at), sizeof s.at);
		long before = memory_kib(k.pid, "VmRSS");
		for (int i = 0; i < GUESTS_MOST; i++) {
			s.guest[i] = knock(&s, s.other);
			say_hello(s.guest[i], HELLO_STAGE);
			while (link_send(s.guest[i], piece, PIECE, NULL, NULL, &err) == 0)
				;
		}
		struct link *l = knock(&s, s.coordinator);
		say_hello(l, HELLO_COORDINATOR);
		for (int i = 0; i < 8; i++) {
			OK(link_send_wait(l, piece, PIECE, NULL, NULL, SOON, &err));
			assert_int_equal(link_recv(l, SOON, &m, &err), 1);
			net_msg_release(&m);
		}
		long now = memory_kib(k.pid, "VmRSS"), last = 0;
		for (int64_t until = SOON; now != last && clock_now() < until;) {
			last = now;
			usleep(200000); /* what the network thread still reads of the others */
			now = memory_kib(k.pid, "VmRSS");
		}
		printf("%d guests, each with %d KiB to say, take %ld KiB\n", GUESTS_MOST,
		       WINDOW >> 10, memory_kib(k.pid, "VmHWM") - before);
		if (memory_counts())
			assert_true(memory_kib(k.pid, "VmHWM") - before < GUESTS_MOST * 256);
		for (int i = 0; i < 2; i++)
			close(told[i]);
		kill(k.pid, SIGKILL);
		child_end(&k);
		end(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_that_say_nothing),
		cmocka_unit_test(many_that_wait),
		cmocka_unit_test(the_coordinator_keeps_its_place),
		cmocka_unit_test(silence_ends),
		cmocka_unit_test(a_stop_among_guests),
		cmocka_unit_test(a_stop_among_orders),
		cmocka_unit_test(what_waits_takes_little),
	};
	return cmocka_run_group_tests_name("worker_guests", tests, NULL, NULL);
}
