/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_shm.c - what only links through shared memory have: bytes that are not copied, memory
 * that is used again and freed with the link, and a peer that is killed at any moment. Where
 * processes meet is in test_net_meet.c, peers that lie are in test_net_shm_lies.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/frame.h"
#include "net/net.h"
#include "support/child.h"
#include "support/meet.h"
#include "support/ok.h"

static struct err err;
static struct key_pair key[2];
#define SOON net_in(20)

struct ends {
	struct net *a, *b;
	struct link *la, *lb;
	char at[NET_ADDRESS];
};

static void ends_up(struct ends *x, bool keys, struct net_options o)
{
	memset(x, 0, sizeof *x);
	o.key = keys ? &key[0] : NULL;
	OK(net_open("shm", &o, &x->a, &err));
	o.key = keys ? &key[1] : NULL;
	OK(net_open("shm", &o, &x->b, &err));
	if (keys)
		OK(net_allow(x->a, key[1].pub, &err));
	OK(net_listen(x->a, "127.0.0.1:0", x->at, &err));
	OK(net_connect(x->b, x->at, keys ? key[0].pub : NULL, SOON, &x->lb, &err));
	assert_int_equal(net_accept(x->a, SOON, &x->la, &err), 1);
}

static void ends_down(struct ends *x)
{
	net_close(x->b, 5);
	net_close(x->a, 5);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void nothing_is_copied(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	const size_t n = 1 << 20;
	meet_in("m");
	ends_up(&x, false, (struct net_options){ 0 });
	assert_string_equal(link_way(x.la), "shared memory");
	assert_string_equal(link_way(x.lb), "shared memory");
	char *p = link_buffer(x.lb, n);
	assert_non_null(p);
	memset(p, 1, n);
	assert_int_equal(link_send(x.lb, p, n, net_buffer_release, x.b, &err), 0);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	assert_int_equal(m.size, n);
	char *q = m.data;
	assert_true(q != p && q[0] == 1 && q[n - 1] == 1);
	q[5] = 77;
	assert_int_equal(p[5], 77); /* the same page under two addresses */
	assert_int_equal(mappings(), 2);
	/* While the receiver holds it, it is not used again; after the release, it is. */
	char *r = link_buffer(x.lb, n);
	assert_true(r != p);
	net_buffer_release(NULL, r);
	net_msg_release(&m);
	char *again[2] = { link_buffer(x.lb, n), link_buffer(x.lb, n) };
	assert_true((again[0] == p && again[1] == r) || (again[0] == r && again[1] == p));
	for (int i = 0; i < 2; i++)
		net_buffer_release(NULL, again[i]);
	/* A message that lies in other memory is copied once, and its owner has it back at once. */
	static char mine[100000];
	memset(mine, 3, sizeof mine);
	OK(link_send_wait(x.lb, mine, sizeof mine, NULL, NULL, SOON, &err));
	memset(mine, 4, sizeof mine);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	assert_int_equal(((char *)m.data)[99999], 3);
	net_msg_release(&m);
	ends_down(&x);
	assert_int_equal(mappings(), 0);
}

static void memory_is_used_again(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	meet_in("m");
	int files = open_files();
	ends_up(&x, false, (struct net_options){ .window = 4 << 20, .max_message = 1 << 20 });
	int used = open_files();
	for (int i = 0; i < 3000; i++) {
		size_t n = (size_t)(16 << 10) + (size_t)(i * 7919) % 900000;
		char *p = link_buffer(x.lb, n);
		memset(p, i, n);
		OK(link_send_wait(x.lb, p, n, net_buffer_release, NULL, SOON, &err));
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		assert_true(m.size == n && ((unsigned char *)m.data)[n - 1] == (unsigned char)i);
		net_msg_release(&m);
	}
	printf("3000 messages of 16 to 900 KiB: %d mappings of both ends\n", mappings());
	assert_true(mappings() <= 2 * 64);
	assert_int_equal(open_files(), used); /* descriptors are closed after they were passed on */
	/* Messages beyond what the receiver takes through shared memory go through the socket, and
	 * arrive too. */
	struct net_msg held[8];
	for (int i = 0; i < 8; i++) {
		OK(link_send_copy(x.lb, "x", 1, SOON, &err));
		char *p = calloc(1, 1 << 20);
		p[12345] = (char)(i + 1);
		OK(link_send_copy(x.lb, p, 1 << 20, SOON, &err));
		free(p);
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		net_msg_release(&m);
		assert_int_equal(link_recv(x.la, SOON, &held[i], &err), 1);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(((char *)held[i].data)[12345], i + 1);
		net_msg_release(&held[i]);
	}
	/* A held message outlives the link and the sender. */
	OK(link_send_copy(x.lb, key, sizeof key, SOON, &err));
	static char big[1 << 20];
	OK(link_send_copy(x.lb, big, sizeof big, SOON, &err));
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	net_msg_release(&m);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	void *unsent = link_buffer(x.lb, 50000);
	link_close(x.la);
	while (link_state(x.lb) != LINK_LOST)
		link_recv(x.lb, net_in(0.01), &held[0], &err);
	memset(unsent, 1, 50000);
	net_buffer_release(NULL, unsent);
	assert_int_equal(((char *)m.data)[99], 0);
	net_msg_release(&m);
	ends_down(&x);
	assert_int_equal(mappings(), 0);
	assert_int_equal(open_files(), files);
}

/* A frame's fields are copied to the receiver before they are checked; a tensor's numbers are not
 * copied. */
static void frames_are_copied_before_they_are_read(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	struct frame f;
	const size_t n = 40000;
	meet_in("m");
	ends_up(&x, false, (struct net_options){ 0 });
	for (int tensor = 0; tensor < 2; tensor++) {
		unsigned char *p = link_buffer(x.lb, FRAME_HEADER + n);
		struct frame out = { .kind = tensor ? FRAME_ACTIVATION : FRAME_BATCH,
				     .size = n,
				     .payload = p + FRAME_HEADER };
		if (tensor) {
			out.ndim = 1;
			out.dim[0] = n / 4;
		}
		memset(p + FRAME_HEADER, 5, n);
		size_t all;
		OK(frame_encode(&out, p, FRAME_HEADER + n, &all, &err));
		assert_int_equal(link_send(x.lb, p, all, net_buffer_release, NULL, &err), 0);
		assert_int_equal(link_recv_frame(x.la, SOON, &m, &f, &err), 1);
		memset(p, 9, all); /* the sender changes it afterwards */
		assert_true(f.size == n && f.kind == out.kind);
		assert_int_equal(((const unsigned char *)f.payload)[7], tensor ? 9 : 5);
		net_msg_release(&m);
	}
	ends_down(&x);
}

/* ---- a peer that is killed at any moment ---------------------------------------------------- */

static void talks_for_ever(const char *at)
{
	struct net *n;
	struct link *l;
	struct net_msg m, kept = { 0 };
	static char p[300000];
	if (net_open("shm", &(struct net_options){ .window = 1 << 20 }, &n, &err) < 0 ||
	    net_connect(n, at, NULL, SOON, &l, &err) < 0)
		_exit(1);
	for (unsigned i = 0;; i++) {
		if (link_send_copy(l, p, 1 + i * 977 % sizeof p, NET_FOREVER, &err) < 0)
			_exit(1);
		while (link_recv(l, NET_NOW, &m, &err) == 1) {
			net_msg_release(&kept);
			kept = m;
		}
	}
}

static void killed_at_any_moment(void **state)
{
	(void)state;
	enum { TIMES = 60 };
	const char *dir = meet_in("killed");
	char at[NET_ADDRESS], last[MEET_PATH];
	static char p[300000];
	uint64_t messages = 0;
	struct net *n;
	struct child k[TIMES];
	for (int i = 0; i < TIMES; i++)
		k[i] = child_new(talks_for_ever, 0);
	OK(net_open("shm", &(struct net_options){ .window = 1 << 20 }, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	int files = open_files() - TIMES; /* without the pipe to each child */
	for (int i = 0; i < TIMES; i++) {
		struct link *l = NULL;
		struct net_msg m;
		struct link_stats s;
		child_tell(&k[i], at);
		int64_t at_ns = clock_now() + 1000000 + (int64_t)i * i * 20000, late = SOON;
		while (clock_now() < at_ns || (!l && i % 4 && clock_now() < late)) {
			if (!l && net_accept(n, NET_NOW, &l, &err) != 1)
				continue;
			link_send(l, p, 1 + (size_t)i * 4999, NULL, NULL, &err);
			if (link_recv(l, NET_NOW, &m, &err) == 1)
				net_msg_release(&m);
		}
		assert_int_equal(kill(k[i].pid, SIGKILL), 0);
		child_end(&k[i]);
		if (!l && net_accept(n, net_in(0.05), &l, &err) != 1)
			continue;
		int rc;
		while ((rc = link_recv(l, SOON, &m, &err)) == 1)
			net_msg_release(&m);
		assert_int_equal(rc, ERR_NET);
		link_stats(l, &s);
		messages += s.messages_in;
		link_close(l);
	}
	printf("%d peers killed, %llu messages had come\n", TIMES, (unsigned long long)messages);
	assert_true(messages > TIMES);
	for (int64_t end = SOON; (mappings() || open_files() > files) && clock_now() < end;)
		usleep(1000);
	assert_int_equal(mappings(), 0);
	assert_int_equal(open_files(), files);
	net_close(n, 1);
	assert_int_equal(names(dir, last), 0);
}

/* ---- in the middle of a message ---- */

enum { LARGE = 24 << 20 };
static char large[LARGE];

static void sends_large_ones(const char *at)
{
	struct net *n;
	struct link *l;
	const struct net_options o = { .window = 1 << 20, .max_message = LARGE };
	memset(large, 7, sizeof large);
	if (net_open("shm", &o, &n, &err) < 0 || net_connect(n, at, NULL, SOON, &l, &err) < 0)
		_exit(1);
	while (link_send_copy(l, large, sizeof large, NET_FOREVER, &err) >= 0)
		;
}

static void is_whole(const struct net_msg *m)
{
	assert_int_equal(m->size, LARGE);
	assert_true(((char *)m->data)[0] == 7 && !memcmp(m->data, (char *)m->data + 1, LARGE - 1));
}

/* The first message lies in shared memory; while it is held, the next one goes through the socket,
 * in many pieces. What has come stays as it was. */
static void killed_in_a_large_message(void **state)
{
	(void)state;
	enum { TIMES = 10, HELD = 3 };
	char at[NET_ADDRESS];
	struct net *n;
	struct child k[TIMES];
	int all = 0;
	meet_in("large");
	for (int i = 0; i < TIMES; i++)
		k[i] = child_new(sends_large_ones, 0);
	OK(net_open("shm", &(struct net_options){ .window = 1 << 20, .max_message = LARGE }, &n,
		    &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	for (int i = 0; i < TIMES; i++) {
		struct link *l;
		struct net_msg held[HELD];
		int rc = 0, had = 0;
		child_tell(&k[i], at);
		assert_int_equal(net_accept(n, SOON, &l, &err), 1);
		const bool late = i % 2;
		if (late) {
			assert_int_equal(link_recv(l, SOON, &held[had++], &err), 1);
			usleep((unsigned)(i * i * 1000));
		} else {
			usleep((unsigned)(i * i * 400));
		}
		assert_int_equal(kill(k[i].pid, SIGKILL), 0);
		child_end(&k[i]);
		while (had < HELD && (rc = link_recv(l, SOON, &held[had], &err)) == 1)
			had++;
		if (had < HELD)
			assert_int_equal(rc, ERR_NET);
		all += had;
		while (had)
			is_whole(&held[--had]), net_msg_release(&held[had]);
		link_close(l);
	}
	printf("%d peers killed in a message of %d MiB, %d had come\n", TIMES, LARGE >> 20, all);
	for (int64_t end = SOON; mappings() && clock_now() < end;)
		usleep(1000);
	assert_int_equal(mappings(), 0);
	net_close(n, 1);
}

/* A process that is being started has every descriptor for a moment: epoll must not report links
 * that were closed meanwhile. */
static void a_process_is_started_meanwhile(void **state)
{
	(void)state;
	meet_in("started");
	for (int tls = 0; tls < 2; tls++) {
		struct net *a, *b;
		struct link *la, *lb;
		struct net_msg m;
		char at[NET_ADDRESS];
		OK(net_open(tls ? "tls" : "shm", NULL, &a, &err));
		OK(net_open(tls ? "tls" : "shm", NULL, &b, &err));
		OK(net_listen(a, "127.0.0.1:0", at, &err));
		OK(net_connect(b, at, NULL, SOON, &lb, &err));
		assert_int_equal(net_accept(a, SOON, &la, &err), 1);
		pid_t pid = fork();
		if (pid == 0)
			for (;;)
				pause();
		link_close(la);
		assert_int_equal(link_recv(lb, SOON, &m, &err), ERR_NET);
		link_close(lb);
		OK(net_connect(b, at, NULL, SOON, &lb, &err)); /* the threads still work */
		assert_int_equal(net_accept(a, SOON, &la, &err), 1);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		OK(link_send_copy(lb, "x", 1, SOON, &err));
		assert_int_equal(link_recv(la, SOON, &m, &err), 1);
		net_msg_release(&m);
		net_close(b, 1);
		net_close(a, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_copied),
		cmocka_unit_test(memory_is_used_again),
		cmocka_unit_test(frames_are_copied_before_they_are_read),
		cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(killed_in_a_large_message),
		cmocka_unit_test(a_process_is_started_meanwhile),
	};
	for (int i = 0; i < 2; i++)
		if (key_pair_generate(&key[i], &err) < 0)
			return 1;
	return cmocka_run_group_tests_name("net_shm", tests, NULL, NULL);
}
