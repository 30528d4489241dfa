/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_links.c - the contract of net.h, over every transport, with and without keys. One
 * listener A, one dialler B. */
#include <pthread.h>
#include <setjmp.h>
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
#include "base/mem.h"
#include "net/frame.h"
#include "net/net.h"
#include "support/scratch.h"

struct way {
	const char *transport, *address;
	bool keys;
	unsigned connections;
};

static const struct way ways[] = {
	{ "loop", NULL, false, 0 },         { "loop", NULL, true, 0 },
	{ "tls", "127.0.0.1:0", false, 0 }, { "tls", "127.0.0.1:0", true, 0 },
	{ "shm", "127.0.0.1:0", false, 0 }, { "shm", "127.0.0.1:0", true, 0 },
	{ "tls", "127.0.0.1:0", false, 2 }, { "tls", "127.0.0.1:0", true, 3 },
};

struct ends {
	struct net *a, *b;
	struct link *la, *lb;
	struct key_pair ka, kb;
	char at[NET_ADDRESS];
	bool untaken; /* further connections come with link_take() */
};

static struct err err;
static unsigned char zeros[100000];
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)
#define SOON net_in(20)

static void open_ends(struct ends *x, const struct way *w, struct net_options o)
{
	memset(x, 0, sizeof *x);
	OK(key_pair_generate(&x->ka, &err));
	OK(key_pair_generate(&x->kb, &err));
	o.connections = w->connections;
	x->untaken = o.before_take > 0;
	o.key = w->keys ? &x->ka : NULL;
	OK(net_open(w->transport, &o, &x->a, &err));
	o.key = w->keys ? &x->kb : NULL;
	OK(net_open(w->transport, &o, &x->b, &err));
	if (w->keys)
		OK(net_allow(x->a, x->kb.pub, &err));
	/* An address of its own for each test, so that one failed test does not fail the others. */
	static int number;
	char word[16];
	snprintf(word, sizeof word, "a%d", number++);
	OK(net_listen(x->a, w->address ? w->address : word, x->at, &err));
}

static void join_ends(struct ends *x, const struct way *w)
{
	OK(net_connect(x->b, x->at, w->keys ? x->ka.pub : NULL, SOON, &x->lb, &err));
	assert_int_equal(net_accept(x->a, SOON, &x->la, &err), 1);
	for (int64_t until = SOON; w->connections && !x->untaken && clock_now() < until;
	     usleep(1000)) {
		struct link_stats a, b;
		link_stats(x->la, &a);
		link_stats(x->lb, &b);
		if (a.connections == w->connections && b.connections == w->connections)
			break;
	}
}

static void ends_up(struct ends *x, const struct way *w, struct net_options o)
{
	open_ends(x, w, o);
	join_ends(x, w);
}

static void ends_down(struct ends *x)
{
	net_close(x->b, 5);
	net_close(x->a, 5);
}

#define EACH(w) for (const struct way *w = ways; w < ways + ARRAY_LEN(ways); w++)

static unsigned char pattern(uint64_t number, size_t i)
{
	return (unsigned char)(number * 31 + i * 7 + (i >> 8));
}

static void fill(unsigned char *p, size_t n, uint64_t number)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(number, i);
}

static void check(const struct net_msg *m, size_t n, uint64_t number)
{
	const unsigned char *p = m->data;
	assert_int_equal(m->size, n);
	for (size_t i = 0; i < n; i++)
		if (p[i] != pattern(number, i))
			fail_msg("message %llu: byte %zu is wrong", (unsigned long long)number, i);
}

static size_t size_of(uint64_t number)
{
	static const size_t sizes[] = { 0, 1, 7, 100, 8191, 8192, 8193, 65536, 3, 250007 };
	return sizes[number % ARRAY_LEN(sizes)];
}

/* ---- order, identity, counters; both directions, a thread on each side ---------------------- */

enum { MANY = 300 };

static void *echo(void *link)
{
	struct link *l = link;
	struct err e;
	for (int i = 0; i < MANY; i++) {
		struct net_msg m;
		if (link_recv(l, SOON, &m, &e) != 1)
			return "recv";
		if (link_send_copy(l, m.data, m.size, SOON, &e) < 0)
			return "send";
		net_msg_release(&m);
	}
	return NULL;
}

static void order(void **state)
{
	(void)state;
	static unsigned char p[250007];
	EACH(w)
	{
		struct ends x;
		ends_up(&x, w, (struct net_options){ .window = 1 << 20 });
		assert_string_equal(link_peer_key(x.la), w->keys ? x.kb.pub : "");
		assert_string_equal(link_peer_key(x.lb), w->keys ? x.ka.pub : "");
		assert_int_equal(link_state(x.la), LINK_UP);
		pthread_t t;
		pthread_create(&t, NULL, echo, x.la);
		uint64_t got = 0, bytes = 0;
		struct net_msg m;
		for (uint64_t i = 0; i < MANY; i++) {
			fill(p, size_of(i), i);
			bytes += size_of(i);
			OK(link_send_copy(x.lb, p, size_of(i), SOON, &err));
			while (link_recv(x.lb, NET_NOW, &m, &err) == 1) {
				check(&m, size_of(got), got);
				got++;
				net_msg_release(&m);
				net_msg_release(&m); /* a second time does nothing */
			}
		}
		while (got < MANY) {
			assert_int_equal(link_recv(x.lb, SOON, &m, &err), 1);
			check(&m, size_of(got), got);
			got++;
			net_msg_release(&m);
		}
		void *bad;
		pthread_join(t, &bad);
		if (bad)
			fail_msg("%s: the echo failed to %s", w->transport, (char *)bad);
		struct link_stats s;
		link_stats(x.lb, &s);
		assert_true(s.messages_out == MANY && s.messages_in == MANY &&
			    s.bytes_out == bytes && s.bytes_in == bytes);
		assert_int_equal(s.queued_in, 0);
		ends_down(&x);
	}
}

/* ---- empty and large ------------------------------------------------------------------------ */

static void *take_one(void *arg)
{
	struct ends *x = arg;
	struct net_msg m;
	struct err e;
	const size_t n = 64 << 20;
	char *bad = NULL;
	if (link_recv(x->la, net_in(60), &m, &e) != 1)
		return "no message";
	if (m.size != n)
		bad = "wrong size";
	for (size_t i = 0; !bad && i < n; i += 4099)
		if (((unsigned char *)m.data)[i] != pattern(1, i))
			bad = "wrong byte";
	net_msg_release(&m);
	return bad;
}

static void large(void **state)
{
	(void)state;
	const size_t n = 64 << 20;
	unsigned char *p = malloc(n);
	assert_non_null(p);
	fill(p, n, 1);
	EACH(w)
	{
		struct ends x;
		/* A message larger than the window goes alone. */
		ends_up(&x, w, (struct net_options){ .window = 4 << 20 });
		pthread_t t;
		pthread_create(&t, NULL, take_one, &x);
		OK(link_send_copy(x.lb, p, n, net_in(60), &err));
		void *bad;
		pthread_join(t, &bad);
		if (bad)
			fail_msg("%s: %s", w->transport, (char *)bad);
		struct net_msg m;
		OK(link_send_copy(x.la, NULL, 0, SOON, &err));
		assert_int_equal(link_recv(x.lb, SOON, &m, &err), 1);
		assert_int_equal(m.size, 0);
		net_msg_release(&m);
		ends_down(&x);
		/* A message larger than the peer takes is refused by the sender. */
		ends_up(&x, w, (struct net_options){ .max_message = 1000 });
		assert_int_equal(link_send_copy(x.lb, p, 1001, SOON, &err), ERR_INPUT);
		OK(link_send_copy(x.lb, p, 1000, SOON, &err));
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		assert_int_equal(m.size, 1000);
		net_msg_release(&m);
		ends_down(&x);
	}
	free(p);
}

/* ---- ownership: released exactly once, whatever happens ------------------------------------- */

static atomic_int released[64];

static void release(void *ctx, void *data)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
	free(data);
}

static int send_owned(struct link *l, int i, size_t n)
{
	void *p = malloc(n ? n : 1);
	memset(p, i, n ? n : 1);
	int rc = link_send(l, p, n, release, &released[i], &err);
	if (rc != 0)
		free(p);
	return rc;
}

static void ownership(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		memset(released, 0, sizeof released);
		ends_up(&x, w, (struct net_options){ .window = 1 << 20 });
		int taken = 0;
		/* Received and released. */
		for (; taken < 10; taken++)
			assert_int_equal(send_owned(x.lb, taken, (size_t)taken * 9000), 0);
		for (int i = 0; i < 10; i++) {
			assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
			assert_int_equal(m.size, (size_t)i * 9000);
			net_msg_release(&m);
		}
		/* Some arrive and are never received; some are sent after the link is closed; some
		 * are refused. */
		for (; taken < 20; taken++)
			assert_int_equal(send_owned(x.lb, taken, 5000), 0);
		struct net_msg held;
		assert_int_equal(link_recv(x.la, SOON, &held, &err), 1);
		link_close(x.la);
		x.la = NULL;
		for (int64_t end = SOON; link_state(x.lb) != LINK_LOST && clock_now() < end;)
			link_recv(x.lb, net_in(0.01), &m, &err);
		assert_int_equal(link_state(x.lb), LINK_LOST);
		assert_int_equal(send_owned(x.lb, 63, 100), ERR_NET);
		/* held bytes outlive the link */
		assert_int_equal(((unsigned char *)held.data)[4999], 10);
		net_msg_release(&held);
		/* Sent while connecting to nobody. */
		struct link *l;
		OK(net_dial(x.b, w->transport[0] == 'l' ? "nobody" : "127.0.0.1:9",
			    w->keys ? x.ka.pub : NULL, SOON, &l, &err));
		for (; taken < 25; taken++)
			assert_int_equal(send_owned(l, taken, 100), 0);
		ends_down(&x);
		for (int i = 0; i < 64; i++)
			if (released[i] != (i < taken))
				fail_msg("%s: message %d of %d was released %d times", w->transport,
					 i, taken, released[i]);
	}
}

/* ---- back-pressure -------------------------------------------------------------------------- */

static void back_pressure(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		struct link_stats s;
		memset(released, 0, sizeof released);
		ends_up(&x, w, (struct net_options){ .window = 1 << 20 });
		int n = 0, rc;
		while ((rc = send_owned(x.lb, n, 100000)) == 0 && n < 60)
			n++;
		assert_int_equal(rc, LINK_FULL);
		assert_int_equal(n, 10);
		link_stats(x.lb, &s);
		assert_true(s.in_flight > 900000 && s.in_flight <= 1 << 20);
		struct net_poll p = { .link = x.lb, .want = NET_RECV };
		assert_int_equal(net_poll(x.b, &p, 1, NET_NOW), 0);
		/* small ones still fit */
		assert_int_equal(link_send_wait(x.lb, &n, sizeof n, NULL, NULL, NET_NOW, &err), 0);
		rc = link_send_copy(x.lb, zeros, 100000, net_in(0.01), &err);
		assert_int_equal(rc, ERR_NET);
		assert_int_equal(link_state(x.lb), LINK_UP);
		/* Taking makes room, and the sender hears of it. */
		for (int i = 0; i < 11; i++) {
			assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
			net_msg_release(&m);
		}
		p = (struct net_poll){ .link = x.lb, .want = NET_SEND };
		assert_int_equal(net_poll(x.b, &p, 1, SOON), 1);
		assert_int_equal(p.ready, NET_SEND);
		void *big = calloc(1, 3 << 20);
		OK(link_send_copy(x.lb, big, 3 << 20, SOON, &err));
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		assert_int_equal(m.size, 3 << 20);
		net_msg_release(&m);
		free(big);
		ends_down(&x);
	}
}

/* ---- deadlines ------------------------------------------------------------------------------ */

static void deadlines(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		struct link *l;
		open_ends(&x, w, (struct net_options){ 0 });
		assert_int_equal(net_accept(x.a, NET_NOW, &l, &err), 0);
		assert_int_equal(net_accept(x.a, net_in(0.01), &l, &err), 0);
		join_ends(&x, w);
		assert_int_equal(link_recv(x.lb, NET_NOW, &m, &err), 0);
		int64_t began = clock_now();
		assert_int_equal(link_recv(x.lb, net_in(0.03), &m, &err), 0);
		assert_true(clock_now() - began >= 30000000);
		assert_int_equal(net_connect(x.b, w->transport[0] == 'l' ? "nobody" : "127.0.0.1:9",
					     w->keys ? x.ka.pub : NULL, net_in(0.05), &l, &err),
				 ERR_NET);
		/* A wake-up ends a poll, also one that came first. */
		struct net_poll p = { .link = x.lb, .want = NET_RECV };
		net_wake(x.b);
		assert_int_equal(net_poll(x.b, &p, 1, NET_FOREVER), 0);
		assert_int_equal(net_poll(x.b, &p, 1, net_in(0.01)), 0);
		ends_down(&x);
	}
}

/* A dialler that comes first waits for the listener, and so do its messages. */
static void dial_before_listen(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		open_ends(&x, w, (struct net_options){ 0 });
		char at[NET_ADDRESS];
		memcpy(at, x.at, sizeof at);
		net_close(x.a, 0); /* the port is free again */
		OK(net_dial(x.b, at, w->keys ? x.ka.pub : NULL, SOON, &x.lb, &err));
		OK(link_send_copy(x.lb, "early", 5, SOON, &err));
		struct net_poll p = { .link = x.lb, .want = NET_UP };
		assert_int_equal(net_poll(x.b, &p, 1, net_in(0.05)), 0);
		assert_int_equal(link_state(x.lb), LINK_CONNECTING);
		struct net_options o = { .key = w->keys ? &x.ka : NULL };
		OK(net_open(w->transport, &o, &x.a, &err));
		if (w->keys)
			OK(net_allow(x.a, x.kb.pub, &err));
		OK(net_listen(x.a, at, NULL, &err));
		OK(link_wait_up(x.lb, SOON, &err));
		assert_int_equal(net_accept(x.a, SOON, &x.la, &err), 1);
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		assert_memory_equal(m.data, "early", 5);
		net_msg_release(&m);
		/* The address is taken now. */
		struct net *c;
		OK(net_open(w->transport, &o, &c, &err));
		assert_int_equal(net_listen(c, at, NULL, &err), ERR_NET);
		net_close(c, 0);
		ends_down(&x);
	}
}

/* ---- losing the peer ------------------------------------------------------------------------ */

static void closing(void **state)
{
	(void)state;
	EACH(w)
	for (int who = 0; who < 2; who++) {
		struct ends x;
		struct net_msg m;
		ends_up(&x, w, (struct net_options){ 0 });
		struct link *stays = who ? x.la : x.lb, *leaves = who ? x.lb : x.la;
		/* What was sent before closing arrives, then the link is lost. In the other
		 * direction nothing hangs. */
		OK(link_send_copy(stays, "unread", 6, SOON, &err));
		for (int i = 0; i < 50; i++)
			OK(link_send_copy(leaves, zeros, 20000, SOON, &err));
		net_close(who ? x.b : x.a, 5);
		for (int i = 0; i < 50; i++) {
			if (link_recv(stays, SOON, &m, &err) != 1)
				fail_msg("%s, %d: message %d is missing: %s", w->transport, who, i,
					 err.msg);
			net_msg_release(&m);
		}
		assert_int_equal(link_recv(stays, SOON, &m, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "closed by the peer"));
		struct net_poll p = { .link = stays, .want = NET_RECV };
		assert_int_equal(net_poll(who ? x.a : x.b, &p, 1, NET_FOREVER), 1);
		assert_int_equal(p.ready, NET_LOST);
		link_why(stays, &err);
		assert_int_equal(err.code, ERR_NET);
		assert_int_equal(link_send_copy(stays, "x", 1, NET_FOREVER, &err), ERR_NET);
		net_close(who ? x.a : x.b, 5);
	}
}

static void failing(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		struct frame f = { .kind = FRAME_ACTIVATION, .job = 5, .ndim = 2, .dim = { 3, 4 } },
			     g;
		float data[12] = { 1, 2, 3 };
		f.payload = data;
		ends_up(&x, w, (struct net_options){ 0 });
		OK(link_send_frame(x.lb, &f, SOON, &err));
		assert_int_equal(link_recv_frame(x.la, SOON, &m, &g, &err), 1);
		assert_true(g.job == 5 && g.size == sizeof data && g.dim[1] == 4);
		assert_memory_equal(g.payload, data, sizeof data);
		net_msg_release(&m);
		assert_int_equal(link_recv_frame(x.la, NET_NOW, &m, &g, &err), 0);
		/* A message that is no frame loses the link, on both sides. */
		OK(link_send_copy(x.lb, "no frame", 8, SOON, &err));
		assert_int_equal(link_recv_frame(x.la, SOON, &m, &g, &err), ERR_PROTOCOL);
		assert_int_equal(link_state(x.la), LINK_LOST);
		assert_true(link_recv(x.la, SOON, &m, &err) < 0);
		assert_int_equal(link_recv(x.lb, SOON, &m, &err), ERR_NET);
		ends_down(&x);
	}
}

/* ---- identity ------------------------------------------------------------------------------- */

static void identity(void **state)
{
	(void)state;
	EACH(w)
	{
		if (!w->keys)
			continue;
		struct ends x;
		struct link *l;
		struct key_pair other;
		OK(key_pair_generate(&other, &err));
		open_ends(&x, w, (struct net_options){ 0 });
		/* A key that is not on the list. */
		struct net_options o = { .key = &other };
		struct net *c;
		OK(net_open(w->transport, &o, &c, &err));
		assert_int_equal(net_connect(c, x.at, x.ka.pub, SOON, &l, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "not on its list"));
		assert_non_null(strstr(err.msg, other.pub));
		/* The listener that answers has another key than expected. */
		assert_int_equal(net_connect(x.b, x.at, other.pub, SOON, &l, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "key"));
		net_close(c, 0);
		/* Without a key. */
		o.key = NULL;
		OK(net_open(w->transport, &o, &c, &err));
		assert_int_equal(net_connect(c, x.at, NULL, SOON, &l, &err), ERR_NET);
		assert_non_null(strstr(err.msg, "the other none"));
		assert_int_equal(net_connect(c, x.at, x.ka.pub, SOON, &l, &err), ERR_USAGE);
		net_close(c, 0);
		/* None of them came in; the right one does. */
		assert_int_equal(net_accept(x.a, NET_NOW, &l, &err), 0);
		join_ends(&x, w);
		assert_string_equal(link_peer_key(x.la), x.kb.pub);
		ends_down(&x);
	}
}

/* ---- many links, several threads ------------------------------------------------------------ */

enum { LINKS = 12, EACH_SENDS = 40, SENDERS = 3 };

static void many_links(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		struct link *out[LINKS];
		struct net_poll p[LINKS];
		unsigned next[LINKS] = { 0 };
		open_ends(&x, w, (struct net_options){ .window = 1 << 16 });
		for (int i = 0; i < LINKS; i++)
			OK(net_dial(x.b, x.at, w->keys ? x.ka.pub : NULL, SOON, &out[i], &err));
		for (int i = 0; i < LINKS; i++) {
			p[i] = (struct net_poll){ .want = NET_RECV };
			assert_int_equal(net_accept(x.a, SOON, &p[i].link, &err), 1);
			OK(link_wait_up(out[i], SOON, &err));
		}
		for (unsigned k = 0; k < EACH_SENDS; k++)
			for (unsigned i = 0; i < LINKS; i++)
				OK(link_send_copy(out[i], (unsigned[]){ i, k }, 8, SOON, &err));
		int left = LINKS * EACH_SENDS;
		int of[LINKS];
		memset(of, -1, sizeof of);
		while (left) {
			assert_true(net_poll(x.a, p, LINKS, SOON) > 0);
			for (int i = 0; i < LINKS; i++)
				while (p[i].ready & NET_RECV &&
				       link_recv(p[i].link, NET_NOW, &m, &err) == 1) {
					unsigned got[2];
					assert_int_equal(m.size, 8);
					memcpy(got, m.data, 8);
					if (of[i] < 0)
						of[i] = (int)got[0];
					assert_int_equal(got[0], of[i]); /* links do not mix */
					assert_int_equal(got[1], next[i]++);
					net_msg_release(&m);
					left--;
				}
		}
		ends_down(&x);
	}
}

struct sender {
	struct link *l;
	unsigned number;
};

static void *sends(void *arg)
{
	struct sender *s = arg;
	struct err e;
	for (unsigned k = 0; k < 200; k++)
		if (link_send_copy(s->l, (unsigned[]){ s->number, k }, 8, SOON, &e) < 0)
			return "failed";
	return NULL;
}

static void hear(struct link *l, size_t n, unsigned char c)
{
	struct net_msg m;
	assert_int_equal(link_recv(l, SOON, &m, &err), 1);
	assert_int_equal(m.size, n);
	assert_true(((unsigned char *)m.data)[0] == c && ((unsigned char *)m.data)[n - 1] == c);
	net_msg_release(&m);
}

/* A link that its user has not taken receives small messages, up to a limit in all; the rest comes
 * when it is taken, and is lost when the peer is gone before. */
static void before_it_is_taken(void **state)
{
	(void)state;
	static unsigned char bytes[100000];
	EACH(w)
	for (int goes = 0; goes < 2 && strcmp(w->transport, "loop"); goes++) {
		/* that the peer has gone is seen behind what it sent, which the kernel must hold */
		const size_t size[] = { 3000, 3000, 3000, goes ? 10000 : sizeof bytes, 10 };
		struct ends x;
		struct net_msg m;
		struct link_stats s;
		ends_up(&x, w, (struct net_options){ .before_take = NET_BEFORE_TAKE });
		for (unsigned i = 0; i < ARRAY_LEN(size); i++) {
			memset(bytes, 'a' + (int)i, size[i]);
			OK(link_send_copy(x.lb, bytes, size[i], SOON, &err));
		}
		hear(x.la, 3000, 'a');
		hear(x.la, 3000, 'b');
		assert_int_equal(link_recv(x.la, net_in(0.3), &m, &err), 0);
		link_stats(x.la, &s);
		assert_int_equal(s.queued_in, 0);
		/* in the other direction, and of who dialled, nothing is held back */
		memset(bytes, 'x', sizeof bytes);
		OK(link_send_copy(x.la, bytes, sizeof bytes, SOON, &err));
		hear(x.lb, sizeof bytes, 'x');
		if (goes) {
			net_close(x.b, 0);
			for (int64_t end = SOON;
			     link_state(x.la) != LINK_LOST && clock_now() < end;)
				link_recv(x.la, net_in(0.01), &m, &err);
			assert_int_equal(link_recv(x.la, SOON, &m, &err), ERR_NET);
			link_take(x.la);
			net_close(x.a, 5);
			continue;
		}
		link_take(x.la);
		for (unsigned i = 2; i < ARRAY_LEN(size); i++)
			hear(x.la, size[i], (unsigned char)('a' + i));
		link_take(x.la); /* nothing more */
		OK(link_send_copy(x.lb, bytes, sizeof bytes, SOON, &err));
		hear(x.la, sizeof bytes, 'x');
		ends_down(&x);
	}
}

static void many_threads(void **state)
{
	(void)state;
	EACH(w)
	{
		struct ends x;
		struct net_msg m;
		struct sender s[SENDERS];
		pthread_t t[SENDERS];
		unsigned next[SENDERS] = { 0 };
		ends_up(&x, w, (struct net_options){ .window = 4096 });
		for (unsigned i = 0; i < SENDERS; i++) {
			s[i] = (struct sender){ x.lb, i };
			pthread_create(&t[i], NULL, sends, &s[i]);
		}
		for (int k = 0; k < SENDERS * 200; k++) {
			unsigned got[2];
			assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
			memcpy(got, m.data, 8);
			assert_true(got[0] < SENDERS);
			assert_int_equal(got[1], next[got[0]]++); /* in order per thread */
			net_msg_release(&m);
		}
		for (int i = 0; i < SENDERS; i++) {
			void *bad;
			pthread_join(t[i], &bad);
			assert_null(bad);
		}
		struct link_stats st;
		link_stats(x.lb, &st);
		assert_int_equal(st.messages_out, SENDERS * 200);
		ends_down(&x);
	}
}

/* ---- allocation ----------------------------------------------------------------------------- */

static void ping(struct ends *x, int times)
{
	for (int i = 0; i < times; i++) {
		struct net_msg m;
		struct link *from = i & 1 ? x->la : x->lb, *to = i & 1 ? x->lb : x->la;
		void *p = net_buffer(i & 1 ? x->a : x->b, 30000);
		assert_non_null(p);
		memset(p, i, 30000);
		assert_int_equal(link_send(from, p, 30000, net_buffer_release, x->a, &err), 0);
		OK(link_send_copy(from, "hello", 5, SOON, &err));
		assert_int_equal(link_recv(to, SOON, &m, &err), 1);
		net_msg_release(&m);
		assert_int_equal(link_recv(to, SOON, &m, &err), 1);
		net_msg_release(&m);
	}
}

static void warm_links_allocate_nothing(void **state)
{
	(void)state;
	struct ends x;
	ends_up(&x, &ways[0], (struct net_options){ 0 });
	ping(&x, 10);
	uint64_t before = mem_count();
	ping(&x, 1000);
	assert_true(mem_count() == before);
	ends_down(&x);
	/* With threads in between, a node may still be in use when the next one is asked for: a
	 * handful of allocations, not one for each message. */
	ends_up(&x, &ways[2], (struct net_options){ 0 });
	ping(&x, 10);
	before = mem_count();
	ping(&x, 1000);
	printf("tls: %llu allocations in 2000 messages\n",
	       (unsigned long long)(mem_count() - before));
	assert_true(mem_count() - before < 50);
	ends_down(&x);
}

/* A failing allocation is an error or a lost link, never a crash or a leak (the sanitizer build
 * looks). */
static void memory_runs_out(void **state)
{
	(void)state;
	EACH(w)
	for (uint64_t n = 1; n < 14; n++) {
		struct ends x;
		struct link *l = NULL;
		struct net_msg m;
		open_ends(&x, w, (struct net_options){ 0 });
		mem_fail_after(n);
		int rc = net_connect(x.b, x.at, w->keys ? x.ka.pub : NULL, net_in(0.3), &l, &err);
		if (rc == 0) {
			rc = link_send_copy(l, "hello", 5, net_in(0.3), &err);
			if (rc == 0 && net_accept(x.a, net_in(0.3), &x.la, &err) == 1)
				while (link_recv(x.la, net_in(0.01), &m, &err) == 1)
					net_msg_release(&m);
		}
		mem_fail_after(0);
		ends_down(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order),           cmocka_unit_test(large),
		cmocka_unit_test(ownership),       cmocka_unit_test(back_pressure),
		cmocka_unit_test(deadlines),       cmocka_unit_test(dial_before_listen),
		cmocka_unit_test(closing),         cmocka_unit_test(failing),
		cmocka_unit_test(identity),        cmocka_unit_test(many_links),
		cmocka_unit_test(many_threads),    cmocka_unit_test(warm_links_allocate_nothing),
		cmocka_unit_test(memory_runs_out), cmocka_unit_test(before_it_is_taken),
	};
	setenv("XDG_RUNTIME_DIR", scratch("."), 1);
	return cmocka_run_group_tests_name("net_links", tests, NULL, NULL);
}
