/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_guests.c - connections that reach a worker before its coordinator, beside it and
 * instead of it: a machine on the list (or, without keys, anybody on this machine) opens many and
 * says nothing, or the wrong thing, and the coordinator is still let in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pthread.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"
#include "worker/guests.h"
#include "worker/serve.h"

enum { MANY = 3 * GUESTS_MOST };
enum who { WORKER, COORDINATOR, OTHER, WHO };

static struct err err;
static struct key_pair key[WHO];
#define SOON net_in(60)
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

/* A worker that waits for its coordinator, and what the test connects to it with. */
struct stand {
	bool keys;
	struct net *net, *coordinator, *other;
	char at[NET_ADDRESS];
	atomic_bool called_off;
	pthread_t thread;
	struct err e;
	int rc;
	struct link *guest[MANY];
};

static void *serve(void *ctx)
{
	struct stand *s = ctx;
	const struct serve o = { .net = s->net,
				 .listens = s->at,
				 .id = "a",
				 .device = "cpu",
				 .coordinator_key = s->keys ? key[COORDINATOR].pub : NULL,
				 .called_off = &s->called_off };
	s->rc = worker_serve(&o, &s->e);
	return NULL;
}

static struct net *end_of(const struct stand *s, enum who w)
{
	struct net *n;
	OK(net_open("tls", &(struct net_options){ .key = s->keys ? &key[w] : NULL }, &n, &err));
	return n;
}

static void begin(struct stand *s, bool keys)
{
	*s = (struct stand){ .keys = keys };
	for (int i = 0; i < WHO && !key[i].pub[0]; i++)
		OK(key_pair_generate(&key[i], &err));
	s->net = end_of(s, WORKER);
	s->coordinator = end_of(s, COORDINATOR);
	s->other = end_of(s, OTHER);
	for (int i = COORDINATOR; keys && i < WHO; i++)
		OK(net_allow(s->net, key[i].pub, &err));
	OK(net_listen(s->net, "127.0.0.1:0", s->at, &err));
}

static void start(struct stand *s) { pthread_create(&s->thread, NULL, serve, s); }

static struct link *knock(const struct stand *s, struct net *n)
{
	struct link *l;
	OK(net_connect(n, s->at, s->keys ? key[WORKER].pub : NULL, SOON, &l, &err));
	return l;
}

static void all_knock(struct stand *s)
{
	for (int i = 0; i < MANY; i++)
		s->guest[i] = knock(s, s->other);
}

static void say_hello(struct link *l, enum hello_role role)
{
	const struct hello h = {
		.protocol = HELLO_PROTOCOL, .role = (uint8_t)role, .to = "a", .host = "test"
	};
	OK(hello_send(l, &h, SOON, &err));
}

/* The coordinator is answered; then it leaves, and the worker with it. */
static void is_welcome(struct stand *s, struct link *l)
{
	struct net_msg m;
	struct frame f;
	struct welcome w;
	OK(link_recv_frame(l, SOON, &m, &f, &err));
	OK(welcome_read(&f, &w, &err));
	assert_string_equal(w.id, "a");
	net_msg_release(&m);
	link_close(l);
	pthread_join(s->thread, NULL);
	assert_true(s->rc < 0);
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
		pthread_join(s[keys].thread, NULL);
		assert_int_equal(s[keys].rc, ERR_CANCELLED);
	}
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_int_equal(said, 2);
	for (int keys = 0; keys < 2; keys++)
		end(&s[keys]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_that_say_nothing),
		cmocka_unit_test(many_that_wait),
		cmocka_unit_test(the_coordinator_keeps_its_place),
		cmocka_unit_test(silence_ends),
	};
	return cmocka_run_group_tests_name("worker_guests", tests, NULL, NULL);
}
