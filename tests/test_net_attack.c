/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_attack.c - attacks on a listening net: how much memory and time strangers and hostile
 * peers can cost it.
 *
 * The victim is a process of its own that echoes what its first link says. The test attacks it with
 * raw sockets and reads its memory from /proc; the link has to answer all the while. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/net.h"
#include "net/tls_crypt.h"
#include "net/tls_head.h"
#include "net/tls_hub.h"
#include "support/child.h"
#include "support/ok.h"
#include "support/raw.h"

enum { STRANGERS = 64, WINDOW = 1 << 20 };

static struct err err;
static struct key_pair key[2];
#define SOON net_in(20)

/* ---- the victim ----------------------------------------------------------------------------- */

struct victim {
	pid_t pid;
	char at[NET_ADDRESS];
	struct net *n;
	struct link *l; /* the one that it answers */
	bool keys;
};

static void echo_for_ever(const struct victim *v, int told)
{
	struct net *n;
	struct link *l;
	struct net_msg m;
	char at[NET_ADDRESS];
	const struct net_options o = { .key = v->keys ? &key[0] : NULL, .window = WINDOW };
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_open("tls", &o, &n, &err) < 0 || (v->keys && net_allow(n, key[1].pub, &err) < 0) ||
	    net_listen(n, "127.0.0.1:0", at, &err) < 0 || write(told, at, sizeof at) < 0 ||
	    net_accept(n, NET_FOREVER, &l, &err) != 1)
		_exit(1);
	while (link_recv(l, NET_FOREVER, &m, &err) == 1) {
		if (link_send_copy(l, m.data, m.size, NET_FOREVER, &err) < 0)
			_exit(1);
		net_msg_release(&m);
	}
	_exit(0);
}

static void ask(struct victim *v, int times)
{
	struct net_msg m;
	for (int i = 0; i < times; i++) {
		OK(link_send_copy(v->l, &i, sizeof i, SOON, &err));
		if (link_recv(v->l, SOON, &m, &err) != 1)
			fail_msg("the link no longer answers: %s", err.msg);
		assert_int_equal(m.size, sizeof i);
		assert_memory_equal(m.data, &i, sizeof i);
		net_msg_release(&m);
	}
}

static void begin(struct victim *v, bool keys)
{
	int p[2];
	*v = (struct victim){ .keys = keys };
	OK(key_pair_generate(&key[0], &err));
	OK(key_pair_generate(&key[1], &err));
	assert_int_equal(pipe(p), 0);
	v->pid = fork();
	assert_true(v->pid >= 0);
	if (v->pid == 0)
		echo_for_ever(v, p[1]);
	assert_int_equal(read(p[0], v->at, sizeof v->at), sizeof v->at);
	close(p[0]);
	close(p[1]);
	const struct net_options o = { .key = keys ? &key[1] : NULL, .window = WINDOW };
	OK(net_open("tls", &o, &v->n, &err));
	OK(net_connect(v->n, v->at, keys ? key[0].pub : NULL, SOON, &v->l, &err));
	ask(v, 50);
}

static void end(struct victim *v)
{
	ask(v, 50);
	net_close(v->n, 1);
	kill(v->pid, SIGKILL);
	waitpid(v->pid, NULL, 0);
}

static void took(const struct victim *v, long before, long limit_kib, const char *what)
{
	long more = memory_kib(v->pid, "VmHWM") - before;
	printf("%s: %ld KiB, at most %ld\n", what, more, limit_kib);
	if (memory_counts() && more > limit_kib)
		fail_msg("%s took %ld KiB of the victim", what, more);
}

/* ---- the attacker --------------------------------------------------------------------------- */

static int knock(const struct victim *v)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atol(strrchr(v->at, ':') + 1)) };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

/* Whether the victim has closed the connection. */
static bool is_closed(int fd)
{
	char c[256];
	ssize_t k;
	while ((k = recv(fd, c, sizeof c, 0)) > 0)
		;
	return k == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static int open_ones(const int *fd, int n)
{
	int count = 0;
	for (int i = 0; i < n; i++)
		count += !is_closed(fd[i]);
	return count;
}

/* Writes to the connection until it takes nothing more for a while or is closed; returns the bytes
 * written. */
static size_t pour(int fd, const void *bytes, size_t n, size_t most)
{
	size_t all = 0;
	while (all < most) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		if (poll(&p, 1, 300) != 1 || p.revents & (POLLERR | POLLHUP))
			break;
		size_t at = all % n;
		ssize_t k = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
		if (k < 0 && errno != EAGAIN)
			break;
		all += k > 0 ? (size_t)k : 0;
	}
	return all;
}

static void all_go(const int *fd, int n)
{
	int64_t until = SOON;
	while (open_ones(fd, n) && clock_now() < until)
		usleep(20000);
	assert_int_equal(open_ones(fd, n), 0);
	for (int i = 0; i < n; i++)
		close(fd[i]);
}

/* ---- strangers ------------------------------------------------------------------------------ */

/* Connections that say nothing: their number and their time are limited. */
static void silent_strangers(void **state)
{
	(void)state;
	enum { N = 300 };
	static int fd[N];
	struct victim v;
	for (int keys = 0; keys < 2; keys++) {
		begin(&v, keys);
		long before = memory_kib(v.pid, "VmHWM");
		for (int i = 0; i < N; i++)
			fd[i] = knock(&v);
		ask(&v, 200);
		int64_t until = SOON;
		while (open_ones(fd, N) > STRANGERS && clock_now() < until)
			usleep(1000);
		assert_true(open_ones(fd, N) <= STRANGERS);
		/* a listed peer connects in the meantime */
		struct link *l;
		OK(net_connect(v.n, v.at, keys ? key[0].pub : NULL, SOON, &l, &err));
		link_close(l);
		took(&v, before, STRANGERS * 64, "silent strangers");
		all_go(fd, N);
		end(&v);
	}
}

/* Beyond STRANGERS it is the oldest that goes, and at once. On a machine that is too slow for that
 * all of them would go because their time is over: then it is tried again. */
static void the_oldest_stranger_goes(void **state)
{
	(void)state;
	enum { N = 2 * STRANGERS, TRIES = 10 };
	int fd[N], left = N, stay = 0;
	struct victim v;
	for (int keys = 0; keys < 2; keys++) {
		for (int i = 0; i < TRIES && (left || stay < STRANGERS); i++) {
			begin(&v, keys);
			const int64_t over = net_in(0.9 * HUB_PATIENCE);
			for (int k = 0; k < N; k++)
				fd[k] = knock(&v);
			while ((left = open_ones(fd, N - STRANGERS)) && clock_now() < over)
				usleep(1000);
			stay = open_ones(fd + N - STRANGERS, STRANGERS);
			if (clock_now() >= over)
				left = N;
			all_go(fd, N);
			end(&v);
		}
		assert_int_equal(left, 0);
		assert_int_equal(stay, STRANGERS);
		left = N;
	}
}

/* A first message that never ends: one of the TLS handshake, one of the link. */
static void long_first_words(void **state)
{
	(void)state;
	enum { N = 80 };
	static unsigned char tls[16384 + 5], plain[1 << 20];
	static int fd[N];
	struct victim v;
	/* a handshake record with a piece of a ClientHello of 128 KiB */
	memcpy(tls, "\x16\x03\x01\x40\x00\x01\x01\xff\xff\x03\x03", 11);
	/* an endless row of messages, before any hello */
	for (size_t i = 0; i + HEAD_BYTES <= sizeof plain; i += HEAD_BYTES)
		head_write(plain + i, HEAD_MESSAGE, 0, 0);
	for (int keys = 0; keys < 2; keys++) {
		begin(&v, keys);
		long before = memory_kib(v.pid, "VmHWM");
		size_t all = 0;
		for (int i = 0; i < N; i++) {
			fd[i] = knock(&v);
			fcntl(fd[i], F_SETFL, O_NONBLOCK);
			ssize_t k = send(fd[i], keys ? tls : plain,
					 keys ? sizeof tls : sizeof plain, MSG_NOSIGNAL);
			all += k > 0 ? (size_t)k : 0;
		}
		all += pour(fd[N - 1], keys ? tls : plain, keys ? sizeof tls : sizeof plain,
			    64 << 20);
		printf("%zu bytes were sent\n", all);
		ask(&v, 200);
		took(&v, before, STRANGERS * 64, "long first words");
		all_go(fd, N);
		end(&v);
	}
}

/* Another process opens as many connections as fit, each with the beginning of a handshake: the
 * link goes on and a listed peer can still connect. */
static void a_flood(void **state)
{
	(void)state;
	static const char hello[] = "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03";
	struct victim v;
	for (int keys = 0; keys < 2; keys++) {
		begin(&v, keys);
		long before = memory_kib(v.pid, "VmHWM");
		pid_t flood = fork();
		if (flood == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			setpriority(PRIO_PROCESS, 0, 10);
			for (;;) {
				int fd = knock(&v);
				if (send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL) < 0)
					usleep(100);
				close(fd);
			}
		}
		ask(&v, 1000);
		struct link *l;
		OK(net_connect(v.n, v.at, keys ? key[0].pub : NULL, SOON, &l, &err));
		link_close(l);
		kill(flood, SIGKILL);
		waitpid(flood, NULL, 0);
		took(&v, before, STRANGERS * 64, "flood");
		end(&v);
	}
}

static int refusals, left_out;
static void count_refusals(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	refusals += strstr(line, "refused a connection from 127.0.0.1") != NULL;
	sscanf(line, "%d more connections were refused", &left_out);
}

/* The log about a peer that is refused again and again: some lines, then the count of the rest. */
static void refusals_are_counted(void **state)
{
	(void)state;
	enum { N = 25 };
	struct net *n, *m;
	struct link *l;
	char at[NET_ADDRESS];
	for (int i = 0; i < 2; i++)
		OK(key_pair_generate(&key[i], &err));
	OK(net_open("tls", &(struct net_options){ .key = &key[0] }, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	OK(net_open("tls", &(struct net_options){ .key = &key[1] }, &m, &err));
	refusals = left_out = 0;
	log_set_sink(count_refusals, NULL, LOG_WARN);
	for (int i = 0; i < N; i++)
		assert_int_equal(net_connect(m, at, key[0].pub, SOON, &l, &err), ERR_NET);
	net_close(m, 0);
	net_close(n, 0);
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_int_equal(refusals, LOG_LIMIT);
	assert_int_equal(left_out, N - LOG_LIMIT);
}

/* ---- a hostile peer ------------------------------------------------------------------------- */

/* A listener and an accepted link; this test plays the peer over a plain socket. `window`: what the
 * peer announces. */
static int hostile(struct net **n_p, struct link **l_p, uint64_t window)
{
	const struct net_options o = { .window = WINDOW, .max_message = 4 << 20 };
	struct victim v = { 0 };
	OK(net_open("tls", &o, n_p, &err));
	OK(net_listen(*n_p, "127.0.0.1:0", v.at, &err));
	int fd = knock(&v);
	raw_head(fd, HEAD_HELLO, window, UINT64_MAX, -1);
	assert_int_equal(net_accept(*n_p, SOON, l_p, &err), 1);
	return fd;
}

static void is_cut_off(struct net *n, struct link *l, int fd, const char *why)
{
	struct net_msg m;
	int rc;
	while ((rc = link_recv(l, SOON, &m, &err)) == 1)
		net_msg_release(&m);
	assert_int_equal(rc, ERR_PROTOCOL);
	if (!strstr(err.msg, why))
		fail_msg("'%s' does not say '%s'", err.msg, why);
	int64_t until = SOON;
	while (!is_closed(fd) && clock_now() < until)
		usleep(1000);
	assert_true(is_closed(fd));
	close(fd);
	net_close(n, 0);
}

static void heads_that_lie(void **state)
{
	(void)state;
	static const struct {
		unsigned type;
		uint64_t a, b;
		const char *why;
	} lie[] = {
		{ 0, 0, 0, "unknown type" },
		{ 99, 0, 0, "unknown type" },
		{ HEAD_HELLO, 1 << 20, 1 << 20, "HELLO for a second time" },
		{ HEAD_MESSAGE, 4, 1, "must be zero" },
		{ HEAD_MESSAGE, (4 << 20) + 1, 0, "larger than this side accepts" },
		{ HEAD_MESSAGE, UINT64_MAX, 0, "larger than this side accepts" },
		{ HEAD_CREDIT, 1, 0, "more than it was sent" },
		{ HEAD_CREDIT, UINT64_MAX, 0, "more than it was sent" },
		{ HEAD_PING, 1, 0, "must be zero" },
		{ HEAD_ALIVE, 0, 1, "must be zero" },
		{ HEAD_BYE, 5, 0, "must be zero" },
		{ HEAD_REFUSE, 7, 0, "unknown reason" },
		{ HEAD_REFUSE, REFUSE_KEYS, 0, "REFUSE on a link" },
	};
	for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
		struct net *n;
		struct link *l;
		int fd = hostile(&n, &l, 1 << 20);
		raw_head(fd, lie[i].type, lie[i].a, lie[i].b, -1);
		is_cut_off(n, l, fd, lie[i].why);
	}
}

/* A peer sends more than the window, in large messages and in the smallest; what this side holds
 * stays within the window. */
static void more_than_the_window(void **state)
{
	(void)state;
	static unsigned char bytes[2 << 20];
	static const size_t sizes[] = { 0, 1, 60000 };
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct net *n;
		struct link *l;
		struct link_stats s;
		int fd = hostile(&n, &l, 1 << 20);
		size_t step = HEAD_BYTES + sizes[i], count = sizeof bytes / step;
		for (size_t k = 0; k < count; k++)
			head_write(bytes + k * step, HEAD_MESSAGE, sizes[i], 0);
		pour(fd, bytes, count * step, 64 << 20);
		link_stats(l, &s);
		printf("messages of %zu bytes: %llu bytes are queued\n", sizes[i],
		       (unsigned long long)s.queued_in);
		assert_true(s.queued_in <= WINDOW + 60000);
		is_cut_off(n, l, fd, "more than its window");
	}
}

/* A peer that claims an endless window and reads nothing: this side keeps no more than its own. */
static void endless_window(void **state)
{
	(void)state;
	struct net *n;
	struct link *l;
	struct link_stats s;
	static char some[10000];
	int fd = hostile(&n, &l, UINT64_MAX);
	int rc;
	while ((rc = link_send_copy(l, some, sizeof some, net_in(0.1), &err)) == 0)
		;
	assert_int_equal(rc, ERR_NET);
	link_stats(l, &s);
	printf("%llu bytes were sent to it\n", (unsigned long long)s.in_flight);
	assert_true(s.in_flight <= WINDOW);
	assert_int_equal(link_state(l), LINK_UP);
	/* credit for the bytes that were sent is accepted, credit for more is not */
	raw_head(fd, HEAD_CREDIT, 256 + sizeof some, 0, -1);
	OK(link_send_copy(l, some, sizeof some, SOON, &err));
	raw_head(fd, HEAD_CREDIT, 2 * WINDOW, 0, -1);
	is_cut_off(n, l, fd, "more than it was sent");
}

/* A listener that sends a dialler too much before its hello. */
static void hostile_listener(void **state)
{
	(void)state;
	static unsigned char junk[64 << 10];
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	char at[NET_ADDRESS];
	struct net *n;
	struct link *l;
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(s, 16), 0);
	getsockname(s, (struct sockaddr *)&a, &len);
	snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(a.sin_port));
	OK(key_pair_generate(&key[0], &err));
	for (int keys = 0; keys < 2; keys++) {
		const struct net_options o = { .key = keys ? &key[0] : NULL };
		OK(net_open("tls", &o, &n, &err));
		OK(net_dial(n, at, keys ? key[0].pub : NULL, SOON, &l, &err));
		for (int i = 0; i < 3; i++) { /* it tries three times */
			int fd = accept(s, NULL, NULL);
			pour(fd, junk, sizeof junk, sizeof junk);
			close(fd);
		}
		assert_int_equal(link_wait_up(l, SOON, &err), ERR_NET);
		printf("%s\n", err.msg);
		net_close(n, 0);
	}
	close(s);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void file_limit_is_raised(void **state)
{
	(void)state;
	struct rlimit r;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	r.rlim_cur = r.rlim_max < 256 ? r.rlim_max : 256;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
	struct net *n;
	OK(net_open("tls", NULL, &n, &err));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	assert_true(r.rlim_cur == r.rlim_max);
	net_close(n, 0);
}

/* A connection takes new keys while messages are under way, many times. */
static void new_keys(void **state)
{
	(void)state;
	static unsigned char p[100000];
	struct victim v;
	uint64_t usual = crypt_rekey_after;
	crypt_rekey_after = 5;
	begin(&v, true);
	for (unsigned i = 0; i < 100; i++) {
		struct net_msg m;
		memset(p, (int)i, sizeof p);
		OK(link_send_copy(v.l, p, sizeof p, SOON, &err));
		assert_int_equal(link_recv(v.l, SOON, &m, &err), 1);
		assert_int_equal(m.size, sizeof p);
		assert_memory_equal(m.data, p, sizeof p);
		net_msg_release(&m);
	}
	end(&v);
	crypt_rekey_after = usual;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_strangers),
		cmocka_unit_test(the_oldest_stranger_goes),
		cmocka_unit_test(long_first_words),
		cmocka_unit_test(a_flood),
		cmocka_unit_test(refusals_are_counted),
		cmocka_unit_test(heads_that_lie),
		cmocka_unit_test(more_than_the_window),
		cmocka_unit_test(endless_window),
		cmocka_unit_test(hostile_listener),
		cmocka_unit_test(file_limit_is_raised),
		cmocka_unit_test(new_keys),
	};
	return cmocka_run_group_tests_name("net_attack", tests, NULL, NULL);
}
