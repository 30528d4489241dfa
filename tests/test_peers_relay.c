/* SPDX-License-Identifier: Apache-2.0 */
/* test_peers_relay.c - links that the coordinator relays between two workers that do not reach each
 * other, and what they cost it. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/frame.h"
#include "peers/peer_list.h"
#include "peers/reception.h"
#include "proto/hello.h"
#include "support/child.h"
#include "support/door.h"

#include <pthread.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0)                                                                       \
			fail_msg("%s: %s", #x, e.msg);                                             \
	} while (0)

static struct err e;

/* ---- relayed links --------------------------------------------------------------------------- */

static struct link *relay_front(struct net *n, const struct door *d, uint32_t self, const char *to,
				uint32_t front)
{
	struct link *l;
	struct hello h = { .protocol = HELLO_PROTOCOL,
			   .role = HELLO_RELAY,
			   .member = self,
			   .front = front,
			   .job = 7 };
	snprintf(h.to, sizeof h.to, "%s", to);
	OK(net_connect(n, d->at, d->key.pub, net_in(5), &l, &e));
	OK(hello_send(l, &h, net_in(5), &e));
	return l;
}

static struct link *relay_to(struct net *n, const struct door *d, uint32_t self, const char *to)
{
	return relay_front(n, d, self, to, 0);
}

static int welcomed(struct link *l)
{
	struct net_msg m;
	struct frame f;
	struct welcome w;
	int rc = link_recv_frame(l, net_in(5), &m, &f, &e);
	if (rc <= 0)
		return rc ? rc : ERR_NET;
	rc = welcome_read(&f, &w, &e);
	net_msg_release(&m);
	return rc;
}

/* A coordinator's port and three members of its job, a, b and c. */
struct three {
	struct door door;
	struct key_pair key[3];
	struct reception_member member[3];
	struct net *net[3];
};

static void three_open(struct three *t)
{
	static const char *const id[] = { "a", "b", "c" };
	for (int i = 0; i < 3; i++) {
		t->key[i] = door_key();
		t->member[i] = (struct reception_member){ id[i], t->key[i].pub };
		t->net[i] = door_client(&t->key[i]);
	}
	door_open(&t->door, t->key, 3);
}

static void three_close(struct three *t)
{
	for (int i = 0; i < 3; i++)
		net_close(t->net[i], 0);
	door_close(&t->door);
}

/* A frame from member `from` to member `to`. */
static struct frame frame_of(uint32_t from, uint32_t to, void *bytes, size_t n)
{
	return (struct frame){ .kind = FRAME_ACTIVATION,
			       .dtype = DT_F32,
			       .ndim = 1,
			       .dim = { (int64_t)(n / 4) },
			       .from = FRAME_MEMBER(from),
			       .to = FRAME_MEMBER(to),
			       .size = n,
			       .payload = bytes };
}

static void relayed(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	struct door *d = &t.door;
	struct net **n = t.net;
	/* before there is a job, and in another one's number */
	struct link *l = relay_to(n[0], d, 0, "b");
	assert_int_equal(welcomed(l), ERR_NET);
	link_close(l);
	reception_job(d->r, 7, t.member, 3);
	l = relay_to(n[2], d, 0, "b");
	assert_int_equal(welcomed(l), ERR_NET);
	assert_non_null(strstr(e.msg, "not that of member 0"));
	link_close(l);
	l = relay_to(n[0], d, 0, "nobody");
	assert_int_equal(welcomed(l), ERR_NET);
	link_close(l);

	struct link *a = relay_to(n[0], d, 0, "b"), *b = relay_to(n[1], d, 1, "a");
	OK(welcomed(a));
	OK(welcomed(b));
	/* both ways, many and large */
	static unsigned char bytes[1 << 20];
	randombytes_buf(bytes, sizeof bytes);
	struct frame f = frame_of(0, 1, bytes, sizeof bytes);
	for (uint32_t i = 0; i < 20; i++) {
		struct net_msg m;
		struct frame g;
		f.microbatch = i;
		OK(link_send_frame(i % 2 ? b : a, &f, net_in(5), &e));
		assert_int_equal(link_recv_frame(i % 2 ? a : b, net_in(10), &m, &g, &e), 1);
		assert_int_equal(g.microbatch, i);
		assert_memory_equal(g.payload, bytes, sizeof bytes);
		net_msg_release(&m);
		f.from = FRAME_MEMBER(i % 2 ? 0 : 1);
		f.to = FRAME_MEMBER(i % 2 ? 1 : 0);
	}
	assert_int_equal(reception_pairs(d->r), 1);
	/* in another member's name */
	f.from = FRAME_MEMBER(2);
	OK(link_send_frame(a, &f, net_in(5), &e));
	assert_true(door_ends(a, 5));
	assert_true(door_ends(b, 5));
	assert_int_equal(reception_pairs(d->r), 0);
	link_close(a);
	link_close(b);
	three_close(&t);
}

/* A side that takes nothing holds up its own pair only. */
static void a_full_pair(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	struct door *d = &t.door;
	struct net **n = t.net;
	reception_job(d->r, 7, t.member, 3);
	struct link *ab = relay_to(n[0], d, 0, "b"), *ba = relay_to(n[1], d, 1, "a");
	struct link *ac = relay_to(n[0], d, 0, "c"), *ca = relay_to(n[2], d, 2, "a");
	OK(welcomed(ab));
	OK(welcomed(ba));
	OK(welcomed(ac));
	OK(welcomed(ca));
	static unsigned char bytes[4 << 20];
	struct frame f = frame_of(0, 1, bytes, sizeof bytes);
	int sent = 0;
	while (sent < 100 && link_send_frame(ab, &f, net_in(0.5), &e) >= 0)
		sent++;
	assert_true(sent >= 16 && sent < 100); /* the windows of two hops, then no more */
	struct net_msg m;
	struct frame g;
	f.to = FRAME_MEMBER(2);
	OK(link_send_frame(ac, &f, net_in(5), &e));
	assert_int_equal(link_recv_frame(ca, net_in(10), &m, &g, &e), 1);
	net_msg_release(&m);
	for (int i = 0; i < sent; i++) {
		assert_int_equal(link_recv_frame(ba, net_in(10), &m, &g, &e), 1);
		net_msg_release(&m);
	}
	link_close(ab);
	link_close(ba);
	link_close(ac);
	link_close(ca);
	three_close(&t);
}

/* A member whose link broke connects again while the pair is whole: what was on its way to it, or
 * from it, is of the old link. Both sides begin anew. */
static void a_side_that_comes_again(void **state)
{
	(void)state;
	struct three t;
	three_open(&t);
	reception_job(t.door.r, 7, t.member, 3);
	static unsigned char bytes[4 << 20];
	struct frame f = frame_of(0, 1, bytes, sizeof bytes), g;
	struct net_msg m;
	for (uint32_t turn = 0; turn < 2; turn++) {
		struct link *a = relay_to(t.net[0], &t.door, 0, "b"),
			    *b = relay_to(t.net[1], &t.door, 1, "a");
		OK(welcomed(a));
		OK(welcomed(b));
		/* a message of a's waits in the coordinator for room at b's */
		f.microbatch = 0;
		while (link_send_frame(a, &f, net_in(0.5), &e) >= 0)
			;
		struct link *again = turn ? relay_to(t.net[1], &t.door, 1, "a")
					  : relay_to(t.net[0], &t.door, 0, "b");
		assert_true(door_ends(a, 5));
		while (link_recv_frame(b, net_in(5), &m, &g, &e) == 1) {
			assert_int_equal(g.kind, FRAME_ACTIVATION);
			net_msg_release(&m);
		}
		assert_int_equal(link_state(b), LINK_LOST);
		link_close(a);
		link_close(b);
		assert_int_equal(reception_pairs(t.door.r), 1);
		a = turn ? relay_to(t.net[0], &t.door, 0, "b") : again;
		b = turn ? again : relay_to(t.net[1], &t.door, 1, "a");
		OK(welcomed(a));
		OK(welcomed(b));
		f.microbatch = 9;
		OK(link_send_frame(a, &f, net_in(5), &e));
		assert_int_equal(link_recv_frame(b, net_in(10), &m, &g, &e), 1);
		assert_int_equal(g.microbatch, 9);
		net_msg_release(&m);
		link_close(a);
		link_close(b);
		for (int i = 0; i < 500 && reception_pairs(t.door.r); i++)
			usleep(10000);
		assert_int_equal(reception_pairs(t.door.r), 0);
	}
	three_close(&t);
}

/* Two members have at most three links through the coordinator: each in front of the other, and the
 * one that is measured. */
static void pairs_are_few(void **state)
{
	(void)state;
	static const uint32_t front[] = { 0, 2, UINT32_MAX };
	struct three t;
	struct link *l[ARRAY_LEN(front)];
	three_open(&t);
	reception_job(t.door.r, 7, t.member, 3);
	for (size_t i = 0; i < ARRAY_LEN(front); i++)
		l[i] = relay_front(t.net[0], &t.door, 0, "c", front[i]);
	for (uint32_t i = 0; i < 5; i++) {
		struct link *more = relay_front(t.net[0], &t.door, 0, "c", i ? i + 2 : 1);
		assert_int_equal(welcomed(more), ERR_NET);
		assert_non_null(strstr(e.msg, "neither of the two"));
		link_close(more);
	}
	assert_int_equal(reception_pairs(t.door.r), ARRAY_LEN(front));
	for (size_t i = 0; i < ARRAY_LEN(front); i++)
		link_close(l[i]);
	three_close(&t);
}

/* A worker that leaves the job and comes again, and again, takes no place from the others. */
static void one_that_comes_and_goes(void **state)
{
	(void)state;
	struct door d;
	const struct key_pair k[2] = { door_key(), door_key() };
	struct net *n[2] = { door_client(&k[0]), door_client(&k[1]) };
	const struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	char path[PATH_MAX];
	OK(peers_path("peers", path, &e));
	unlink(path);
	FILE *f = fopen(path, "w");
	fprintf(f, "a %s 1\nb %s 1\n", k[0].pub, k[1].pub);
	fclose(f);
	chmod(path, 0600);
	door_open(&d, k, 2);
	for (int i = 0; i < RECEPTION_WORKERS + 2; i++) {
		const int who = i > RECEPTION_WORKERS; /* the last one is another */
		struct link *l, *there = NULL;
		OK(net_connect(n[who], d.at, d.key.pub, net_in(5), &l, &e));
		OK(hello_send(l, &h, net_in(5), &e));
		for (int j = 0; j < 5000 && !there; j++, usleep(1000)) {
			there = reception_take(d.r, k[who].pub);
			assert_true(there || link_state(l) == LINK_UP);
		}
		assert_non_null(there);
		assert_true(reception_has(d.r, k[who].pub));
		link_close(there);
		link_close(l);
	}
	door_close(&d);
	net_close(n[0], 0);
	net_close(n[1], 0);
	unlink(path);
}

/* ---- what waits ------------------------------------------------------------------------------ */

enum { WINDOW = 4 << 20 };
static struct key_pair waits[3], keeper; /* a, b and c; the coordinator */

static void keeps_a_port(const char *told)
{
	struct door d = { .key = keeper };
	struct reception_member v[] = { { "a", waits[0].pub },
					{ "b", waits[1].pub },
					{ "c", waits[2].pub } };
	const struct net_options o = { .key = &d.key,
				       .window = WINDOW,
				       .before_take = NET_BEFORE_TAKE };
	struct link *l = NULL;
	struct net_msg m;
	OK(net_open("tls", &o, &d.net, &e));
	for (int i = 0; i < 3; i++)
		OK(net_allow(d.net, waits[i].pub, &e));
	OK(net_listen(d.net, "127.0.0.1:0", d.at, &e));
	OK(reception_open(d.net, d.key.pub, &d.r, &e));
	reception_job(d.r, 7, v, 3);
	if (write(atoi(told), d.at, sizeof d.at) < 0)
		_exit(1);
	/* takes b when it has come, and reads what it says */
	for (;; usleep(1000)) {
		if (!l)
			l = reception_take(d.r, waits[1].pub);
		else if (link_recv(l, NET_NOW, &m, &e) == 1)
			net_msg_release(&m);
	}
}

static void what_waits_takes_little(void **state)
{
	(void)state;
	static char piece[1 << 20];
	static const uint32_t front[] = { 0, 1, 2, UINT32_MAX };
	struct door d = { 0 };
	struct link *l[8];
	int told[2], n = 0;
	char text[16];
	long most = 0;
	keeper = door_key();
	d.key = keeper;
	for (int i = 0; i < 3; i++)
		waits[i] = door_key();
	assert_int_equal(pipe(told), 0);
	struct child k = child_new(keeps_a_port, 0);
	snprintf(text, sizeof text, "%d", told[1]);
	child_tell(&k, text);
	assert_int_equal(read(told[0], d.at, sizeof d.at), sizeof d.at);
	/* The highest mark of a child begins with the memory of its parent, of which it has given
	 * back what lay free. */
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)k.pid);
	FILE *mark = fopen(path, "w");
	assert_true(mark && fputs("5", mark) >= 0 && fclose(mark) == 0);
	long before = memory_kib(k.pid, "VmRSS");
	struct net *a = door_client(&waits[0]), *b = door_client(&waits[1]);
	struct hello h = { .protocol = HELLO_PROTOCOL, .role = HELLO_WORKER };
	/* a waits as a worker and for six other sides, and sends what the windows hold */
	OK(net_connect(a, d.at, d.key.pub, net_in(5), &l[n], &e));
	OK(hello_send(l[n++], &h, net_in(5), &e));
	for (int i = 0; i < 2; i++) {
		const char *to = i ? "c" : "b";
		for (size_t f = 0; f < ARRAY_LEN(front); f++)
			if (front[f] != (i ? 1u : 2u))
				l[n++] = relay_front(a, &d, 0, to, front[f]);
	}
	for (int i = 0; i < n; i++)
		while (link_send(l[i], piece, sizeof piece, NULL, NULL, &e) == 0)
			;
	/* b's link, which is used, goes at full size */
	OK(net_connect(b, d.at, d.key.pub, net_in(5), &l[n], &e));
	OK(hello_send(l[n], &h, net_in(5), &e));
	for (int i = 0; i < 16; i++)
		OK(link_send_wait(l[n], piece, sizeof piece, NULL, NULL, net_in(20), &e));
	for (int i = 0; i < 5; i++, usleep(100000))
		most = memory_kib(k.pid, "VmHWM") - before;
	printf("  %d links that wait, each with %d KiB to say, and one that is used: %ld KiB\n", n,
	       WINDOW >> 10, most);
	if (memory_counts())
		assert_true(most < n * 256 + 2 * (WINDOW >> 10));
	while (n >= 0)
		link_close(l[n--]);
	kill(k.pid, SIGKILL);
	child_end(&k);
	net_close(a, 0);
	net_close(b, 0);
	for (int i = 0; i < 2; i++)
		close(told[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(relayed),
		cmocka_unit_test(a_full_pair),
		cmocka_unit_test(a_side_that_comes_again),
		cmocka_unit_test(pairs_are_few),
		cmocka_unit_test(one_that_comes_and_goes),
		cmocka_unit_test(what_waits_takes_little),
	};
	return cmocka_run_group_tests(tests, door_setup, door_teardown);
}
