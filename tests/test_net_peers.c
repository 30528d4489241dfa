/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_peers.c - what only separate processes and foreign programs can show of the transports
 * between processes: a peer that is killed, one that is stopped, foreign programs, addresses that
 * are not loopback; and the knobs of the loop transport. */
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/address.h"
#include "net/net.h"
#include "net/tls_dial.h"
#include "support/scratch.h"

/* over TCP, then those that only separate processes have too */
static const char *const rows[] = { "tls", "shm" };
enum { TCP_ROWS = 1 };
#define EACH_OF(row, n)                                                                            \
	for (size_t row##_i = 0; row##_i < (n); row##_i++)                                         \
		for (const char *row = rows[row##_i]; row; row = NULL)
#define EACH(row) EACH_OF(row, TCP_ROWS)

static struct err err;
static unsigned char zeros[1 << 20];
#define SOON net_in(20)
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

struct child {
	pid_t pid;
	char at[NET_ADDRESS];
};

/* A process that listens, takes one connection, sends `greetings` messages and then never
 * receives. */
static void child_start(struct child *c, const char *row, const struct key_pair *key,
			const char *allow, int greetings)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		struct net *n;
		struct link *l;
		struct net_options o = { .key = key };
		close(p[0]);
		alarm(60);
		if (net_open(row, &o, &n, &err) < 0 || (key && net_allow(n, allow, &err) < 0) ||
		    net_listen(n, "127.0.0.1:0", c->at, &err) < 0 ||
		    write(p[1], c->at, sizeof c->at) != sizeof c->at)
			_exit(1);
		close(p[1]);
		if (net_accept(n, NET_FOREVER, &l, &err) != 1)
			_exit(1);
		for (int i = 0; i < greetings; i++)
			if (link_send_copy(l, zeros, 1000, NET_FOREVER, &err) < 0)
				_exit(1);
		for (;;)
			pause();
	}
	close(p[1]);
	assert_int_equal(read(p[0], c->at, sizeof c->at), sizeof c->at);
	close(p[0]);
}

static void child_end(struct child *c)
{
	kill(c->pid, SIGCONT);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
}

/* Loses a peer by `signal`; returns the seconds until the link knows. `busy`: large messages are
 * under way to it at that moment. */
static double lose(const char *row, int signal, bool keys, bool busy, double timeout)
{
	struct key_pair a, b;
	struct child c;
	struct net *n;
	struct link *l;
	struct net_msg m;
	OK(key_pair_generate(&a, &err));
	OK(key_pair_generate(&b, &err));
	child_start(&c, row, keys ? &a : NULL, b.pub, 5);
	struct net_options o = { .key = keys ? &b : NULL, .peer_timeout = timeout };
	OK(net_open(row, &o, &n, &err));
	OK(net_connect(n, c.at, keys ? a.pub : NULL, SOON, &l, &err));
	for (int i = 0; i < 5; i++) {
		assert_int_equal(link_recv(l, SOON, &m, &err), 1);
		net_msg_release(&m);
	}
	if (!busy) /* longer than the time-out: a living peer that sends no message is kept */
		assert_int_equal(link_recv(l, net_in(timeout * 1.5), &m, &err), 0);
	if (busy && signal == SIGKILL)
		for (int i = 0; i < 40; i++)
			OK(link_send_copy(l, zeros, sizeof zeros, SOON, &err));
	assert_int_equal(kill(c.pid, signal), 0);
	/* more than the kernel's buffers hold, so that our own output is blocked */
	if (busy && signal == SIGSTOP)
		for (int i = 0; i < 40; i++)
			OK(link_send_copy(l, zeros, sizeof zeros, SOON, &err));
	int64_t began = clock_now();
	assert_int_equal(link_recv(l, SOON, &m, &err), ERR_NET);
	double seconds = clock_seconds(clock_now() - began);
	printf("%s: signal %d, %s, %s: noticed after %.3f s: %s\n", row, signal,
	       keys ? "keys" : "plain", busy ? "busy" : "idle", seconds, err.msg);
	assert_non_null(
		strstr(err.msg, signal == SIGKILL ? "the connection broke" : "said nothing for"));
	net_close(n, 5);
	child_end(&c);
	return seconds;
}

static void killed_peer(void **state)
{
	(void)state;
	EACH_OF(row, sizeof rows / sizeof *rows)
	for (int keys = 0; keys < 2; keys++)
		for (int busy = 0; busy < 2; busy++)
			lose(row, SIGKILL, keys, busy, 0.5);
}

static void stopped_peer(void **state)
{
	(void)state;
	EACH_OF(row, sizeof rows / sizeof *rows)
	for (int keys = 0; keys < 2; keys++)
		for (int busy = 0; busy < 2; busy++)
			lose(row, SIGSTOP, keys, busy, 0.5);
}

/* The listening side loses a dialler that is killed. */
static void one_killed_dialler(const char *row)
{
	struct net *n;
	struct link *l;
	struct net_msg m;
	char at[NET_ADDRESS];
	int p[2];
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		if (read(p[0], at, sizeof at) != sizeof at || net_open(row, NULL, &n, &err) < 0 ||
		    net_connect(n, at, NULL, NET_FOREVER, &l, &err) < 0 ||
		    link_send_copy(l, "here", 4, NET_FOREVER, &err) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	OK(net_open(row, NULL, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	assert_int_equal(write(p[1], at, sizeof at), sizeof at);
	assert_int_equal(net_accept(n, SOON, &l, &err), 1);
	assert_int_equal(link_recv(l, SOON, &m, &err), 1);
	net_msg_release(&m);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(link_recv(l, SOON, &m, &err), ERR_NET);
	assert_non_null(strstr(err.msg, "the connection broke"));
	net_close(n, 5);
	close(p[0]);
	close(p[1]);
}

static void killed_dialler(void **state)
{
	(void)state;
	EACH_OF(row, sizeof rows / sizeof *rows)
	one_killed_dialler(row);
}

/* ---- foreigners ----------------------------------------------------------------------------- */

/* Says `text` to the address, and returns how many bytes come back until the other side closes or
 * `limit` bytes are there. */
static size_t knock(const char *at, const void *text, size_t n, unsigned char *back, size_t limit)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atol(strrchr(at, ':') + 1)) };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval wait = { .tv_sec = 1 };
	size_t got = 0;
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	if (send(fd, text, n, MSG_NOSIGNAL) < 0)
		got = 0;
	for (ssize_t r; got < limit && (r = recv(fd, back + got, limit - got, 0)) > 0;)
		got += (size_t)r;
	close(fd);
	return got;
}

static void one_plain_client_gets_nothing(const char *row)
{
	struct key_pair a;
	struct net *n;
	struct link *l;
	char at[NET_ADDRESS];
	unsigned char back[4096];
	OK(key_pair_generate(&a, &err));
	struct net_options o = { .key = &a };
	OK(net_open(row, &o, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	/* another protocol's greeting; a link's greeting without encryption, where encryption is
	 * needed */
	unsigned char other[128] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L' };
	unsigned char plain[48] = { 'H', 'S', 'L', '2', 1, 0, 0, 0, 0, 0, 1 };
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	unsigned char random[2000];
	for (size_t i = 0; i < sizeof random; i++)
		random[i] = (unsigned char)(i * i * 31 + 7);
	const struct {
		const void *p;
		size_t n;
	} say[] = { { "", 0 },
		    { http, sizeof http },
		    { other, sizeof other },
		    { plain, sizeof plain },
		    { random, sizeof random } };
	for (size_t i = 0; i < sizeof say / sizeof *say; i++) {
		size_t got = knock(at, say[i].p, say[i].n, back, sizeof back);
		printf("foreigner %zu got %zu bytes\n", i, got);
		/* at most a line that says that a key is needed */
		assert_true(got <= 64);
		assert_int_equal(net_accept(n, NET_NOW, &l, &err), 0);
	}
	net_close(n, 0);
}

static void plain_client_gets_nothing(void **state)
{
	(void)state;
	EACH(row)
	one_plain_client_gets_nothing(row);
}

static void one_addresses(const char *row)
{
	struct net *n;
	struct link *l;
	char at[NET_ADDRESS];
	static const char *const bad[] = { "",
					   "127.0.0.1",
					   "127.0.0.1:",
					   "127.0.0.1:x",
					   "127.0.0.1:70000",
					   "127.0.0.1:-1",
					   ":5000",
					   "::1:5000",
					   "[::1]5000",
					   "[::1",
					   "127.0.0.1:0",
					   "127.0.0.1:5 " };
	static const char *const open_ones[] = { "*:0", "0.0.0.0:0", "192.0.2.1:0", "[::]:0" };
	OK(net_open(row, NULL, &n, &err));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (net_dial(n, bad[i], NULL, SOON, &l, &err) != ERR_USAGE)
			fail_msg("'%s' was dialled", bad[i]);
	/* Without a key only loopback is bound or dialled. */
	for (size_t i = 0; i < sizeof open_ones / sizeof *open_ones; i++) {
		assert_int_equal(net_listen(n, open_ones[i], at, &err), ERR_USAGE);
		assert_non_null(strstr(err.msg, "--insecure"));
	}
	assert_int_equal(net_dial(n, "192.0.2.1:5000", NULL, SOON, &l, &err), ERR_USAGE);
	OK(net_listen(n, "localhost:0", at, &err));
	assert_memory_equal(at, "127.0.0.1:", 10);
	assert_int_equal(net_listen(n, "127.0.0.1:0", at, &err), ERR_INTERNAL);
	net_close(n, 0);
	assert_int_equal(net_open("pigeon", NULL, &n, &err), ERR_USAGE);
	assert_non_null(strstr(err.msg, row)); /* says which there are */
}

static void addresses(void **state)
{
	(void)state;
	EACH(row)
	one_addresses(row);
}

/* A dialler can choose the address it dials from, and the listener sees that one. An address that
 * is not this machine's does not work. */
static void one_from_an_address(const char *row)
{
	struct net *n, *m;
	struct link *l, *in;
	char at[NET_ADDRESS], from[NET_ADDRESS + 16];
	OK(net_open(row, NULL, &n, &err));
	OK(net_open(row, NULL, &m, &err));
	OK(net_listen(n, "127.0.0.3:0", at, &err));
	snprintf(from, sizeof from, "127.0.0.5;%s", at);
	OK(net_connect(m, from, NULL, SOON, &l, &err));
	assert_int_equal(net_accept(n, SOON, &in, &err), 1);
	assert_string_equal(link_address(in), "127.0.0.5");
	OK(link_send_copy(l, "x", 1, SOON, &err));
	struct net_msg msg;
	assert_int_equal(link_recv(in, SOON, &msg, &err), 1);
	net_msg_release(&msg);
	snprintf(from, sizeof from, "192.0.2.1;%s", at);
	assert_int_equal(net_connect(m, from, NULL, net_in(0.5), &l, &err), ERR_NET);
	snprintf(from, sizeof from, "127.0.0.5;192.0.2.1:5000");
	/* the destination decides whether a key is needed */
	assert_int_equal(net_dial(m, from, NULL, SOON, &l, &err), ERR_USAGE);
	net_close(m, 1);
	net_close(n, 1);
}

static void from_an_address(void **state)
{
	(void)state;
	EACH(row)
	one_from_an_address(row);
}

/* An address taken apart, and put together again. */
static void parts(void **state)
{
	(void)state;
	static const struct {
		const char *text, *host;
		unsigned port;
	} known[] = { { "10.0.0.1:99", "10.0.0.1", 99 },
		      { "[fd00::1]:7", "fd00::1", 7 },
		      { "worker-3", "worker-3", 0 },
		      { "*:9999", "*", 9999 } };
	char host[NET_ADDRESS], again[NET_ADDRESS];
	unsigned port;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		address_parts(known[i].text, host, &port);
		assert_string_equal(host, known[i].host);
		assert_int_equal(port, known[i].port);
		address_join(host, port, again);
		if (port)
			assert_string_equal(again, known[i].text);
	}
	assert_true(address_is_number("10.0.0.1") && address_is_number("fd00::1"));
	assert_false(address_is_number("box1") || address_is_number("") ||
		     address_is_number("10.0.0.1:9") || address_is_number("fe80::1%eth0"));
}

/* ---- knobs of loop -------------------------------------------------------------------------- */

static void loop_pair(struct net_knobs k, struct net **a, struct net **b, struct link **la,
		      struct link **lb)
{
	struct net_options o = { .knobs = k, .window = 1 << 20 };
	OK(net_open("loop", NULL, a, &err));
	OK(net_open("loop", &o, b, &err));
	OK(net_listen(*a, "knobs", NULL, &err));
	OK(net_connect(*b, "knobs", NULL, SOON, lb, &err));
	assert_int_equal(net_accept(*a, SOON, la, &err), 1);
}

static void knobs(void **state)
{
	(void)state;
	struct net *a, *b;
	struct link *la, *lb;
	struct net_msg m;
	/* 30 ms of delay, and 1 MB/s: 50 kB take 50 ms more, and the next message queues behind. */
	loop_pair((struct net_knobs){ .delay = 30000000, .rate = 1e6 }, &a, &b, &la, &lb);
	int64_t began = clock_now();
	OK(link_send_copy(lb, zeros, 50000, SOON, &err));
	OK(link_send_copy(lb, zeros, 10000, SOON, &err));
	assert_int_equal(link_recv(la, NET_NOW, &m, &err), 0);
	assert_int_equal(link_recv(la, SOON, &m, &err), 1);
	assert_true(clock_now() - began >= 80000000);
	net_msg_release(&m);
	struct net_poll p = { .link = la, .want = NET_RECV };
	assert_int_equal(net_poll(a, &p, 1, SOON), 1);
	assert_true(clock_now() - began >= 90000000);
	OK(link_send_copy(la, "x", 1, SOON, &err)); /* the other direction has no delay */
	assert_int_equal(link_recv(lb, NET_NOW, &m, &err), 1);
	net_msg_release(&m);
	net_close(b, 0);
	net_close(a, 0);
	/* Loss: the same messages are lost every time, and a lost message does not use up the
	 * window. */
	int came[2] = { 0 };
	for (int round = 0; round < 2; round++) {
		loop_pair((struct net_knobs){ .loss = 0.25, .seed = 3 }, &a, &b, &la, &lb);
		for (int i = 0; i < 200; i++) {
			OK(link_send_copy(lb, zeros, 50000, SOON, &err));
			while (link_recv(la, NET_NOW, &m, &err) == 1) {
				came[round]++;
				net_msg_release(&m);
			}
		}
		net_close(a, 0);
		net_close(b, 0);
	}
	printf("%d of 200 messages came through\n", came[0]);
	assert_int_equal(came[0], came[1]);
	assert_true(came[0] > 120 && came[0] < 180);
	/* A link that breaks at its third message. */
	loop_pair((struct net_knobs){ .cut_after = 3 }, &a, &b, &la, &lb);
	for (int i = 0; i < 3; i++)
		OK(link_send_copy(lb, "x", 1, SOON, &err));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(link_recv(la, SOON, &m, &err), 1);
		net_msg_release(&m);
	}
	assert_int_equal(link_recv(la, SOON, &m, &err), ERR_NET);
	assert_int_equal(link_recv(lb, SOON, &m, &err), ERR_NET);
	net_close(b, 0);
	net_close(a, 0);
}

/* A socket that listens, and whose connections nobody takes: a firewall that drops packets looks
 * like that, a machine that is off, a process that is stopped. */
static int silent_port(struct sockaddr_in *a)
{
	socklen_t n = sizeof *a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)a, n), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)a, &n), 0);
	return fd;
}

/* It is tried until the time that the caller gave is over. With a clock of the test's own. */
static void silence_is_tried_on(void **state)
{
	(void)state;
	struct net *n;
	struct log_limit log = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = silent_port(&a);
	OK(net_open("tls", NULL, &n, &err));
	struct link l = { .net = n };
	struct conn *c = conn_new(n, NULL, &log);
	c->link = &l;
	memcpy(&c->to, &a, sizeof a);
	c->to_n = sizeof a;
	int64_t now = clock_now();
	for (int i = 0; i < 8; i++) {
		dial_begin(c, now);
		assert_true(c->state == CONN_CONNECTING || c->state == CONN_GREETING);
		assert_false(dial_late(c, now + DIAL_ATTEMPT));
		assert_true(dial_late(c, now += DIAL_ATTEMPT + 1));
		assert_int_equal(c->state, CONN_WAITING);
	}
	conn_free(c);
	close(fd);
	net_close(n, 0);
}

/* The first address of a name is an old one, or of a family that does not reach the machine. */
static void a_name_with_two_addresses(void **state)
{
	(void)state;
	struct net *here, *n;
	struct link *l;
	char at[NET_ADDRESS], name[64];
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	scratch_text(scratch("hosts"), "%s",
		     "127.0.0.71 two.test\n127.0.0.72 two.test\n::1 three.test\n"
		     "127.0.0.71 three.test\nfe80::1 near.test\n");
	if (mount(scratch("hosts"), "/etc/hosts", NULL, MS_BIND, NULL) < 0)
		skip();
	for (int v6 = 0; v6 < 2; v6++) {
		OK(net_open("tls", NULL, &here, &err));
		OK(net_listen(here, v6 ? "[::1]:0" : "127.0.0.72:0", at, &err));
		OK(net_open("tls", NULL, &n, &err));
		snprintf(name, sizeof name, "%s%s", v6 ? "three.test" : "two.test",
			 strrchr(at, ':'));
		OK(net_connect(n, name, NULL, net_in(15), &l, &err));
		/* the other one says nothing, and the caller has less time than an attempt takes */
		struct sockaddr_in a = { .sin_family = AF_INET };
		a.sin_addr.s_addr = htonl(0x7f000047);
		a.sin_port = htons((uint16_t)atoi(strrchr(at, ':') + 1));
		int fd = silent_port(&a);
		OK(net_connect(n, name, NULL, net_in(4), &l, &err));
		close(fd);
		net_close(n, 0);
		net_close(here, 0);
	}
	OK(net_open("tls", NULL, &n, &err));
	assert_int_equal(net_connect(n, "near.test:5", NULL, net_in(15), &l, &err), ERR_NET);
	assert_non_null(strstr(err.msg, "link-local"));
	net_close(n, 0);
	umount("/etc/hosts");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_peer),
		cmocka_unit_test(stopped_peer),
		cmocka_unit_test(killed_dialler),
		cmocka_unit_test(plain_client_gets_nothing),
		cmocka_unit_test(addresses),
		cmocka_unit_test(from_an_address),
		cmocka_unit_test(parts),
		cmocka_unit_test(knobs),
		cmocka_unit_test(silence_is_tried_on),
		cmocka_unit_test(a_name_with_two_addresses),
	};
	setenv("XDG_RUNTIME_DIR", scratch("."), 1);
	return cmocka_run_group_tests_name("net_peers", tests, NULL, NULL);
}
