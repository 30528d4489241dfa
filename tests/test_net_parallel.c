/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_parallel.c - links of several connections (net/tls_parallel.h): order and bytes, the
 * farewell, which connections may join, and what a hostile peer can do with them. The contract of
 * every link over them is in test_net_links.c. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/net.h"
#include "net/tls_crypt.h"
#include "net/tls_head.h"
#include "support/child.h"
#include "support/ok.h"
#include "support/raw.h"

enum { LARGEST = 4 << 20, WINDOW = 8 << 20 };

static struct err err;
static struct key_pair key[3];
#define SOON net_in(20)

static void all_up(struct link *l, unsigned connections)
{
	struct link_stats s;
	int64_t until = SOON;
	do {
		link_stats(l, &s);
		if (s.connections == connections)
			return;
		usleep(1000);
	} while (clock_now() < until);
	fail_msg("%u connections are up, not %u", s.connections, connections);
}

struct pair {
	struct net *a, *b;
	struct link *la, *lb;
};

/* `listener`: that end wants them, else the dialling one. */
static void pair_up(struct pair *x, unsigned connections, bool keys, bool listener)
{
	char at[NET_ADDRESS];
	struct net_options o = { .window = WINDOW, .max_message = LARGEST };
	o.key = keys ? &key[0] : NULL;
	o.connections = listener ? connections : 0;
	OK(net_open("tls", &o, &x->a, &err));
	o.key = keys ? &key[1] : NULL;
	o.connections = listener ? 0 : connections;
	OK(net_open("tls", &o, &x->b, &err));
	if (keys)
		OK(net_allow(x->a, key[1].pub, &err));
	OK(net_listen(x->a, "127.0.0.1:0", at, &err));
	OK(net_connect(x->b, at, keys ? key[0].pub : NULL, SOON, &x->lb, &err));
	assert_int_equal(net_accept(x->a, SOON, &x->la, &err), 1);
	all_up(x->la, connections);
	all_up(x->lb, connections);
}

static void pair_down(struct pair *x)
{
	net_close(x->b, 5);
	net_close(x->a, 5);
}

/* ---- order and bytes ------------------------------------------------------------------------ */

enum { MANY = 120 };
static const size_t size_of[] = { 0,     1,      32767,  32768,   40000,   65536,
				  70001, 131072, 250007, 1 << 20, LARGEST, 17 };

static unsigned char byte_of(uint64_t number, size_t i)
{
	return (unsigned char)(number * 31 + i * 7 + (i >> 8) + (i >> 16));
}

static void *send_many(void *link)
{
	struct err e;
	for (uint64_t k = 0; k < MANY; k++) {
		size_t n = size_of[k % ARRAY_LEN(size_of)];
		unsigned char *p = link_buffer(link, n);
		for (size_t i = 0; i < n; i++)
			p[i] = byte_of(k, i);
		if (link_send_wait(link, p, n, net_buffer_release, NULL, SOON, &e) < 0)
			return "send";
	}
	return NULL;
}

static void receive_many(struct link *l)
{
	struct net_msg m;
	for (uint64_t k = 0; k < MANY; k++) {
		if (link_recv(l, SOON, &m, &err) != 1)
			fail_msg("message %llu: %s", (unsigned long long)k, err.msg);
		const unsigned char *p = m.data;
		assert_int_equal(m.size, size_of[k % ARRAY_LEN(size_of)]);
		for (size_t i = 0; i < m.size; i++)
			if (p[i] != byte_of(k, i))
				fail_msg("message %llu: byte %zu is wrong", (unsigned long long)k,
					 i);
		net_msg_release(&m);
	}
}

/* Both directions at once, so that credits go between messages in pieces. */
static void order_and_bytes(void **state)
{
	(void)state;
	static const unsigned counts[] = { 2, 3, NET_CONNECTIONS };
	for (size_t i = 0; i < 2 * ARRAY_LEN(counts); i++) {
		struct pair x;
		pthread_t t[2];
		void *bad;
		pair_up(&x, counts[i / 2], true, i % 2);
		assert_int_equal(pthread_create(&t[0], NULL, send_many, x.la), 0);
		assert_int_equal(pthread_create(&t[1], NULL, send_many, x.lb), 0);
		receive_many(x.lb);
		receive_many(x.la);
		for (int k = 0; k < 2; k++) {
			pthread_join(t[k], &bad);
			assert_null(bad);
		}
		pair_down(&x);
	}
}

/* What was sent arrives before the link is seen closed, and every buffer is released once. */
static int released;
static void count_release(void *ctx, void *data)
{
	(void)ctx;
	__atomic_add_fetch(&released, 1, __ATOMIC_RELAXED);
	mem_free(data);
}

static void farewell(void **state)
{
	(void)state;
	for (int keys = 0; keys < 2; keys++) {
		struct pair x;
		struct net_msg m;
		released = 0;
		pair_up(&x, 3, keys, true);
		for (int k = 0; k < 4; k++) {
			unsigned char *p = mem_alloc(1 << 20);
			memset(p, k, 1 << 20);
			OK(link_send_wait(x.lb, p, 1 << 20, count_release, NULL, SOON, &err));
		}
		link_close(x.lb);
		for (int k = 0; k < 4; k++) {
			if (link_recv(x.la, SOON, &m, &err) != 1)
				fail_msg("message %d: %s", k, err.msg);
			assert_int_equal(m.size, 1 << 20);
			for (size_t i = 0; i < m.size; i++)
				assert_int_equal(((unsigned char *)m.data)[i], k);
			net_msg_release(&m);
		}
		assert_int_equal(link_recv(x.la, SOON, &m, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "closed by the peer"));
		pair_down(&x);
		assert_int_equal(released, 4);
	}
}

/* ---- a peer played by hand ------------------------------------------------------------------ */

struct peer {
	int fd;
	struct crypt_io io;
	struct crypt *crypt;
};

static bool anybody(void *ctx, const char *shown)
{
	(void)ctx;
	return shown[0] != 0;
}

static void peer_connect(struct peer *p, const char *at, struct crypt_ctx *keys)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atol(strrchr(at, ':') + 1)) };
	const struct timeval wait = { .tv_sec = 20 };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*p = (struct peer){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	assert_int_equal(connect(p->fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait), 0);
	if (!keys)
		return;
	p->io = (struct crypt_io){ .fd = p->fd, .known = true };
	p->crypt = crypt_new(keys, false, &p->io, anybody, NULL);
	assert_int_equal(crypt_handshake(p->crypt), 1);
}

static void peer_say(struct peer *p, enum head_type type, uint64_t a, uint64_t b)
{
	unsigned char head[HEAD_BYTES];
	head_write(head, type, a, b);
	if (!p->crypt)
		raw_say(p->fd, head, sizeof head, NULL, 0);
	else
		assert_true(crypt_write(p->crypt, head, sizeof head) == (int64_t)sizeof head &&
			    crypt_flush(p->crypt) == 1);
}

/* The next head; false: the connection is closed. */
static bool peer_hear(struct peer *p, struct head *h)
{
	unsigned char head[HEAD_BYTES];
	for (size_t n = 0; n < sizeof head;) {
		int64_t k = p->crypt ? crypt_read(p->crypt, head + n, sizeof head - n)
				     : recv(p->fd, head + n, sizeof head - n, 0);
		if (k <= 0)
			return false;
		n += (size_t)k;
	}
	assert_null(head_read(head, h));
	return true;
}

static void peer_end(struct peer *p)
{
	crypt_free(p->crypt);
	close(p->fd);
}

/* A listener whose link this test plays the other end of: `n` connections, of which the first is
 * up. Its id in *id_p. */
struct site {
	char at[NET_ADDRESS];
	struct net *n;
	struct link *l;
	uint64_t id;
};

static void site_up(struct site *s, struct peer *first, unsigned n, struct crypt_ctx *keys)
{
	struct head h;
	const struct net_options o = { .key = keys ? &key[0] : NULL,
				       .window = WINDOW,
				       .max_message = LARGEST };
	OK(net_open("tls", &o, &s->n, &err));
	if (keys)
		OK(net_allow(s->n, key[1].pub, &err));
	if (keys)
		OK(net_allow(s->n, key[2].pub, &err));
	OK(net_listen(s->n, "127.0.0.1:0", s->at, &err));
	peer_connect(first, s->at, keys);
	peer_say(first, HEAD_HELLO, WINDOW, LARGEST);
	peer_say(first, HEAD_PARALLEL, n, 0);
	assert_true(peer_hear(first, &h));
	assert_int_equal(h.type, HEAD_HELLO);
	assert_true(peer_hear(first, &h));
	assert_int_equal(h.type, HEAD_PARALLEL);
	assert_int_equal(h.a, n);
	s->id = h.b;
	assert_int_equal(net_accept(s->n, SOON, &s->l, &err), 1);
}

static bool joins(struct site *s, struct peer *p, uint64_t id, uint64_t place,
		  struct crypt_ctx *keys)
{
	struct head h;
	peer_connect(p, s->at, keys);
	peer_say(p, HEAD_JOIN, id, place);
	if (!peer_hear(p, &h))
		return false;
	assert_int_equal(h.type, HEAD_HELLO);
	return true;
}

static void says(struct site *s, struct peer *first, const char *word)
{
	struct net_msg m;
	peer_say(first, HEAD_MESSAGE, strlen(word), 0);
	if (first->crypt)
		assert_true(crypt_write(first->crypt, word, strlen(word)) > 0 &&
			    crypt_flush(first->crypt) == 1);
	else
		raw_say(first->fd, word, strlen(word), NULL, 0);
	if (link_recv(s->l, SOON, &m, &err) != 1)
		fail_msg("the link does not go on: %s", err.msg);
	assert_int_equal(m.size, strlen(word));
	assert_memory_equal(m.data, word, m.size);
	net_msg_release(&m);
}

/* Only the key that the link belongs to, its id, and a place that is free. Who is refused does the
 * link no harm. */
static void who_may_join(void **state)
{
	(void)state;
	struct crypt_ctx *ctx[3] = { 0 };
	for (int i = 1; i < 3; i++)
		OK(crypt_ctx_new(&key[i], &ctx[i], &err));
	for (int keys = 0; keys < 2; keys++) {
		struct site s;
		struct peer first, other[3], no;
		struct crypt_ctx *own = keys ? ctx[1] : NULL;
		site_up(&s, &first, 4, own);
		assert_true(s.id != 0);
		const struct {
			uint64_t id, place;
			struct crypt_ctx *keys;
		} wrong[] = {
			{ s.id + 1, 1, own },
			{ s.id, 0, own },
			{ s.id, 4, own },
			{ s.id, 300, own },
			{ s.id, 1, keys ? ctx[2] : NULL },
		};
		for (size_t i = 0; i < ARRAY_LEN(wrong) - !keys; i++) {
			if (joins(&s, &no, wrong[i].id, wrong[i].place, wrong[i].keys))
				fail_msg("wrong one number %zu was let in", i);
			peer_end(&no);
		}
		for (unsigned i = 0; i < 3; i++)
			assert_true(joins(&s, &other[i], s.id, i + 1, own));
		all_up(s.l, 4);
		assert_false(joins(&s, &no, s.id, 2, own)); /* it is taken */
		peer_end(&no);
		says(&s, &first, "and on it goes");
		for (int i = 0; i < 3; i++)
			peer_end(&other[i]);
		peer_end(&first);
		net_close(s.n, 0);
	}
	for (int i = 1; i < 3; i++)
		crypt_ctx_free(ctx[i]);
}

static void is_lost(struct site *s, const char *why)
{
	struct net_msg m;
	int rc;
	while ((rc = link_recv(s->l, SOON, &m, &err)) == 1)
		net_msg_release(&m);
	assert_true(rc < 0);
	if (!strstr(err.msg, why))
		fail_msg("'%s' does not say '%s'", err.msg, why);
}

static void a_connection_breaks(void **state)
{
	(void)state;
	struct head h;
	for (int which = 0; which < 3; which++) {
		struct site s;
		struct peer p[3];
		site_up(&s, &p[0], 3, NULL);
		for (unsigned i = 1; i < 3; i++)
			assert_true(joins(&s, &p[i], s.id, i, NULL));
		all_up(s.l, 3);
		peer_end(&p[which]);
		is_lost(&s, "the connection broke");
		for (int i = 0; i < 3; i++) /* the others end too */
			while (i != which && peer_hear(&p[i], &h) && h.type != HEAD_BYE)
				;
		for (int i = 0; i < 3; i++)
			if (i != which)
				peer_end(&p[i]);
		net_close(s.n, 0);
	}
}

/* One that is ahead of the first connection is not read: what is kept stays within the window,
 * which only the first connection opens. */
static void nothing_before_it_is_announced(void **state)
{
	(void)state;
	enum { WHOLE = 1 << 20, RECORD = 16 << 10, MOST = 6 };
	enum { FIRST = (WHOLE / 2 + RECORD) / RECORD * RECORD, UNIT = HEAD_BYTES + WHOLE - FIRST };
	static unsigned char zeros[FIRST], unit[UNIT];
	struct site s;
	struct peer first, other;
	struct link_stats stats;
	struct net_msg m;
	uint64_t number = 0;
	size_t at = 0;
	site_up(&s, &first, 2, NULL);
	assert_true(joins(&s, &other, s.id, 1, NULL));
	all_up(s.l, 2);
	memset(zeros, 1, sizeof zeros);
	memset(unit, 2, sizeof unit);
	head_write(unit, HEAD_PIECE, WHOLE, number);
	const long before = memory_kib(getpid(), "VmHWM");
	for (struct pollfd p = { .fd = other.fd, .events = POLLOUT }; poll(&p, 1, 300) == 1;) {
		ssize_t k = send(other.fd, unit + at, UNIT - at, MSG_DONTWAIT);
		at += k > 0 ? (size_t)k : 0;
		if (at == UNIT && number + 1 == MOST)
			break;
		if (at == UNIT) {
			at = 0;
			head_write(unit, HEAD_PIECE, WHOLE, ++number);
		}
	}
	link_stats(s.l, &stats);
	assert_int_equal(stats.queued_in, 0);
	const long more = memory_kib(getpid(), "VmHWM") - before;
	printf("%llu pieces and %zu bytes ahead of the first connection: %ld KiB\n",
	       (unsigned long long)number, at, more);
	assert_true(!memory_counts() || more < 1024);
	/* the first one announces them, and they are there */
	for (uint64_t k = 0; k <= number; k++) {
		peer_say(&first, HEAD_PIECE, WHOLE, k);
		raw_say(first.fd, zeros, FIRST, NULL, 0);
	}
	if (at < UNIT)
		raw_say(other.fd, unit + at, UNIT - at, NULL, 0);
	for (uint64_t k = 0; k <= number; k++) {
		if (link_recv(s.l, SOON, &m, &err) != 1)
			fail_msg("message %llu: %s", (unsigned long long)k, err.msg);
		assert_int_equal(m.size, WHOLE);
		assert_memory_equal(m.data, zeros, FIRST);
		assert_memory_equal((char *)m.data + FIRST, unit + HEAD_BYTES, WHOLE - FIRST);
		net_msg_release(&m);
	}
	peer_end(&other);
	peer_end(&first);
	net_close(s.n, 0);
}

/* Heads in the wrong place, with the wrong number, beyond the window. */
static void heads_that_lie(void **state)
{
	(void)state;
	static const struct {
		bool on_other;
		unsigned type;
		uint64_t a, b;
		const char *why;
	} lie[] = {
		{ false, HEAD_PARALLEL, 2, 0, "for a second time" },
		{ false, HEAD_PARALLEL, 1, 0, "where there are none" },
		{ false, HEAD_PARALLEL, NET_CONNECTIONS + 1, 0, "where there are none" },
		{ false, HEAD_PARALLEL, 2, 7, "where there are none" },
		{ false, HEAD_JOIN, 1, 1, "for a second time" },
		{ false, HEAD_PIECE, 1 << 20, 1, "out of its turn" },
		{ false, HEAD_PIECE, 0, 0, "empty" },
		{ false, HEAD_PIECE, LARGEST + 1, 0, "larger than this side accepts" },
		{ false, HEAD_PIECE, UINT64_MAX, 0, "larger than this side accepts" },
		{ true, HEAD_PIECE, LARGEST + 1, 0, "cannot be" },
		{ true, HEAD_PIECE, UINT64_MAX, 0, "cannot be" },
		{ true, HEAD_PIECE, 0, 0, "cannot be" },
		{ true, HEAD_PIECE, 2 << 20, 0, "of no message" }, /* announced: 1 MiB */
		{ true, HEAD_PIECE, 40000, 0, "of no message" },   /* the first one's */
		{ true, HEAD_MESSAGE, 4, 0, "belongs on the first" },
		{ true, HEAD_CREDIT, 0, 0, "belongs on the first" },
		{ true, HEAD_HELLO, 1, 1, "belongs on the first" },
		{ true, HEAD_MEMORY, 4096, 0, "belongs on the first" },
		{ true, 99, 0, 0, "unknown type" },
	};
	for (size_t i = 0; i < ARRAY_LEN(lie); i++) {
		struct site s;
		struct peer first, other;
		site_up(&s, &first, 2, NULL);
		assert_true(joins(&s, &other, s.id, 1, NULL));
		all_up(s.l, 2);
		if (lie[i].on_other)
			peer_say(&first, HEAD_PIECE, 1 << 20, 0);
		peer_say(lie[i].on_other ? &other : &first, (enum head_type)lie[i].type, lie[i].a,
			 lie[i].b);
		is_lost(&s, lie[i].why);
		peer_end(&other);
		peer_end(&first);
		net_close(s.n, 0);
	}
	/* pieces are for links of several connections */
	struct net *n;
	struct link *l;
	struct peer p;
	struct site s;
	char at[NET_ADDRESS];
	OK(net_open("tls", &(struct net_options){ .max_message = LARGEST }, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	peer_connect(&p, at, NULL);
	peer_say(&p, HEAD_HELLO, WINDOW, LARGEST);
	assert_int_equal(net_accept(n, SOON, &l, &err), 1);
	peer_say(&p, HEAD_PIECE, 40000, 0);
	s.l = l;
	is_lost(&s, "on a single connection");
	peer_end(&p);
	net_close(n, 0);
}

/* A peer that announces and never sends the rest gets no more of the window for it. */
static void the_window_holds(void **state)
{
	(void)state;
	struct site s;
	struct peer first, other;
	site_up(&s, &first, 2, NULL);
	assert_true(joins(&s, &other, s.id, 1, NULL));
	all_up(s.l, 2);
	/* small enough to go over one connection whole: those with an odd number over the other */
	static unsigned char zeros[100000];
	for (uint64_t number = 0; number < WINDOW / sizeof zeros + 2; number++) {
		peer_say(&first, HEAD_PIECE, sizeof zeros, number);
		if (number % 2 == 0)
			raw_say(first.fd, zeros, sizeof zeros, NULL, 0);
	}
	is_lost(&s, "more than its window");
	peer_end(&other);
	peer_end(&first);
	net_close(s.n, 0);
}

/* A peer offers connections and takes none: the link goes on with its first one. */
static void others_that_do_not_come(void **state)
{
	(void)state;
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	char at[NET_ADDRESS];
	struct peer p = { 0 };
	struct site s;
	struct head h;
	struct link_stats stats;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(fd, 16), 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(a.sin_port));
	OK(net_open("tls", &(struct net_options){ .connections = 3 }, &s.n, &err));
	OK(net_dial(s.n, at, NULL, SOON, &s.l, &err));
	p.fd = accept(fd, NULL, NULL);
	assert_true(peer_hear(&p, &h));
	assert_int_equal(h.type, HEAD_HELLO);
	peer_say(&p, HEAD_HELLO, WINDOW, LARGEST);
	assert_true(peer_hear(&p, &h));
	assert_int_equal(h.type, HEAD_PARALLEL);
	assert_int_equal(h.a, 3);
	assert_int_equal(h.b, 0);
	peer_say(&p, HEAD_PARALLEL, 3, 7);
	for (int i = 0; i < 6; i++) { /* three times each, then they are given up */
		struct peer other = { .fd = accept(fd, NULL, NULL) };
		assert_true(peer_hear(&other, &h));
		assert_int_equal(h.type, HEAD_JOIN);
		assert_int_equal(h.a, 7);
		peer_end(&other);
	}
	says(&s, &p, "and on it goes");
	link_stats(s.l, &stats);
	assert_int_equal(stats.connections, 1);
	static char large[100000];
	OK(link_send_copy(s.l, large, sizeof large, SOON, &err));
	do
		assert_true(peer_hear(&p, &h));
	while (h.type == HEAD_CREDIT);
	assert_int_equal(h.type, HEAD_MESSAGE);
	assert_int_equal(h.a, sizeof large);
	close(fd);
	peer_end(&p);
	net_close(s.n, 0);
}

/* What the dialling end wants is wanted of others too (an invited worker). */
static void adopted(void **state)
{
	(void)state;
	struct net *a, *b;
	struct link *la, *lb;
	char at[NET_ADDRESS];
	struct net_options o = { .adopt = true };
	OK(net_open("tls", &o, &a, &err));
	OK(net_listen(a, "127.0.0.1:0", at, &err));
	for (int times = 0; times < 2; times++) { /* the second one wants nothing */
		o = (struct net_options){ .connections = times ? 0 : 3 };
		OK(net_open("tls", &o, &b, &err));
		OK(net_connect(b, at, NULL, SOON, &lb, &err));
		assert_int_equal(net_accept(a, SOON, &la, &err), 1);
		all_up(la, 3);
		all_up(lb, 3);
		net_close(b, 1);
	}
	net_close(a, 0);
}

static int set_up(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		if (key_pair_generate(&key[i], &err) < 0)
			return -1;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_and_bytes),
		cmocka_unit_test(farewell),
		cmocka_unit_test(who_may_join),
		cmocka_unit_test(a_connection_breaks),
		cmocka_unit_test(nothing_before_it_is_announced),
		cmocka_unit_test(heads_that_lie),
		cmocka_unit_test(the_window_holds),
		cmocka_unit_test(others_that_do_not_come),
		cmocka_unit_test(adopted),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
