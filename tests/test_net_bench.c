/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_bench.c - the bench of links runs, and its rows are complete. Figures are printed, not
 * judged. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/net.h"
#include "net/net_bench.h"
#include "net/tls_crypt.h"
#include "support/ports.h"
#include "support/scratch.h"

static void loopback(void **state)
{
	(void)state;
	static const uint64_t sizes[] = { 64 << 10, 1 << 20, 8 << 20 };
	enum { N = sizeof sizes / sizeof *sizes };
	struct net_bench_row rows[NET_BENCH_LINKS * N];
	struct err e;
	size_t count;
	const char *seconds = getenv("NET_BENCH_SECONDS");
	if (net_bench_loopback(sizes, N, seconds ? strtod(seconds, NULL) : 0.05, rows, &count, &e) <
	    0)
		fail_msg("%s", e.msg);
	assert_int_equal(count, NET_BENCH_LINKS * N);
	for (size_t i = 0; i < count; i++) {
		const struct net_bench_row *r = &rows[i];
		printf("%-10s %8llu B  %7.3f GB/s  %5.2f of tcp  %.3f CPU s/GB  round trip %8.1f "
		       "us  %6llu "
		       "messages\n",
		       r->link, (unsigned long long)r->message, r->bytes_per_second * 1e-9,
		       r->share_of_tcp, r->cpu_per_gb, r->round_trip_us,
		       (unsigned long long)r->messages);
		assert_int_equal(r->message, sizes[i % N]);
		assert_true(r->messages > 0 && r->bytes_per_second > 0 && r->round_trip_us > 0 &&
			    r->share_of_tcp > 0);
	}
	assert_string_equal(rows[0].link, "tcp");
	assert_string_equal(rows[count - 1].link, "loop");
	assert_int_equal(net_bench_loopback((const uint64_t[]){ 0 }, 1, 0.01, rows, &count, &e),
			 ERR_USAGE);
}

/* ---- shared memory against what the machine can do ------------------------------------------ */

enum { PINGS = 2001 };

static double median_us(int64_t *ns)
{
	for (int i = 1; i < PINGS; i++) /* nearly sorted: waiting times are alike */
		for (int k = i; k && ns[k - 1] > ns[k]; k--) {
			int64_t x = ns[k];
			ns[k] = ns[k - 1];
			ns[k - 1] = x;
		}
	return (double)ns[PINGS / 2] * 1e-3;
}

static void pin(int core)
{
	cpu_set_t s;
	CPU_ZERO(&s);
	CPU_SET((size_t)core, &s);
	sched_setaffinity(0, sizeof s, &s); /* with one core only, both processes run on it */
}

static void pong(int a, int b)
{
	uint64_t one = 1;
	for (int i = 0; i < PINGS; i++)
		if (read(a, &one, 8) < 0 || write(b, &one, 8) < 0)
			_exit(1);
}

/* `woke`: what the call that wakes the other process took. */
static void ping(int a, int b, int64_t took[PINGS], int64_t woke[PINGS])
{
	uint64_t one = 1;
	for (int i = 0; i < PINGS; i++) {
		int64_t began = clock_now();
		assert_true(write(a, &one, 8) == 8);
		woke[i] = clock_now() - began;
		assert_true(read(b, &one, 8) == 8);
		took[i] = clock_now() - began;
	}
}

/* Answers short messages, and only takes long ones. */
static void other_process(int at_fd)
{
	struct net *n;
	struct link *l;
	struct net_msg m;
	struct err e;
	char at[NET_ADDRESS];
	if (net_open("shm", NULL, &n, &e) < 0 || net_listen(n, "127.0.0.1:0", at, &e) < 0 ||
	    write(at_fd, at, sizeof at) < 0 || net_accept(n, NET_FOREVER, &l, &e) != 1)
		_exit(1);
	while (link_recv(l, NET_FOREVER, &m, &e) == 1) {
		bool answer = m.size == 8;
		net_msg_release(&m);
		if (answer && link_send_copy(l, "pingpong", 8, NET_FOREVER, &e) < 0)
			break;
	}
	net_close(n, 1);
	_exit(0);
}

static void round_trip(struct link *l)
{
	struct net_msg m;
	struct err e;
	assert_true(link_send_copy(l, "pingpong", 8, NET_FOREVER, &e) == 0 &&
		    link_recv(l, NET_FOREVER, &m, &e) == 1);
	net_msg_release(&m);
}

/* Two processes on a core each: the round trip against an eventfd's between the same two cores, the
 * rate against one core's memcpy. The memcpy alternates between two buffers, since a message cannot
 * be written over while it is read. The two measurements take turns. */
static void shared_memory(void **state)
{
	(void)state;
	static int64_t took[PINGS], woke[PINGS];
	const char *text = getenv("NET_BENCH_SECONDS");
	const double seconds = text ? strtod(text, NULL) : 0.05;
	int a = eventfd(0, 0), b = eventfd(0, 0), p[2];
	char at[NET_ADDRESS];
	struct net *n;
	struct link *l;
	struct err e;
	setenv("XDG_RUNTIME_DIR", scratch("."), 1);
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();
	if (pid == 0) {
		pin(1);
		pong(a, b);
		other_process(p[1]);
	}
	cpu_set_t before;
	sched_getaffinity(0, sizeof before, &before);
	pin(0);
	ping(a, b, took, woke);
	double eventfd_us = median_us(took), wake_us = median_us(woke);
	assert_int_equal(read(p[0], at, sizeof at), sizeof at);
	assert_int_equal(net_open("shm", NULL, &n, &e), 0);
	assert_int_equal(net_connect(n, at, NULL, net_in(20), &l, &e), 0);
	for (int i = 0; i < PINGS; i++) {
		int64_t began = clock_now();
		round_trip(l);
		took[i] = clock_now() - began;
	}
	double shm_us = median_us(took);
	printf("round trip: eventfd %.1f us, shm %.1f us, %.2f times; waking the other core %.1f "
	       "us\n",
	       eventfd_us, shm_us, shm_us / eventfd_us, wake_us);
	for (size_t size = 1 << 20; size <= 64 << 20; size *= 4) {
		unsigned char *from = malloc(size), *to[2] = { malloc(size), malloc(size) };
		double rate[2] = { 0 }, spent[2] = { 0 };
		memset(from, 1, size);
		memset(to[0], 1, size);
		memset(to[1], 1, size);
		for (int turn = 0; turn < 10; turn++) {
			uint64_t k = 0;
			int64_t began = clock_now(), end = began + (int64_t)(seconds * 5e7);
			for (; clock_now() < end || k < 2; k++)
				memcpy(to[k & 1], from, size);
			rate[0] += (double)(k * size);
			spent[0] += clock_seconds(clock_now() - began);
			k = 0;
			began = clock_now();
			end = began + (int64_t)(seconds * 5e7);
			for (; clock_now() < end || k < 2; k++)
				assert_int_equal(
					link_send_wait(l, from, size, NULL, NULL, net_in(20), &e),
					0);
			round_trip(l);
			if (!turn) /* the first turn allocates the memory and does not count */
				continue;
			rate[1] += (double)(k * size);
			spent[1] += clock_seconds(clock_now() - began);
		}
		double memcpy_us = (double)size * spent[0] / rate[0] * 1e6;
		printf("%2zu MiB: memcpy %.1f GB/s, shm %.1f GB/s, %.0f %%; memcpy and a wake-up "
		       "%.0f %%\n",
		       size >> 20, rate[0] / spent[0] * 1e-9, rate[1] / spent[1] * 1e-9,
		       100 * rate[1] / spent[1] / (rate[0] / spent[0]),
		       100 * memcpy_us / (memcpy_us + wake_us));
		free(from);
		free(to[0]);
		free(to[1]);
	}
	net_close(n, 1);
	waitpid(pid, NULL, 0);
	sched_setaffinity(0, sizeof before, &before);
	close(a);
	close(b);
	close(p[0]);
	close(p[1]);
}

/* ---- encryption ----------------------------------------------------------------------------- */

static bool anybody(void *ctx, const char *key)
{
	(void)ctx;
	return key[0] != 0;
}

static double cpu_seconds(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t n = sizeof a;
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 &&
		    getsockname(l, (struct sockaddr *)&a, &n) == 0);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&a, n), 0);
	fd[1] = accept(l, NULL, NULL);
	for (int i = 0; i < 2; i++) {
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
		setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	}
	close(l);
}

/* Processor time of TLS over TCP on loopback in one thread, the socket's part included: least of
 * some turns, each of 32 MiB. */
static void encryption_alone(void **state)
{
	(void)state;
	enum { SIZE = 1 << 20, TURN = 32 << 20 };
	static char from[SIZE], to[SIZE];
	const char *text = getenv("NET_BENCH_SECONDS");
	const int turns = 2 + (int)(text ? 50 * strtod(text, NULL) : 0);
	struct key_pair key[2];
	struct crypt_ctx *keys[2];
	struct crypt *c[2];
	struct err e;
	int fd[2];
	double least[2] = { 1e9, 1e9 };
	tcp_pair(fd);
	struct crypt_io io[2] = { { .fd = fd[0], .known = true }, { .fd = fd[1], .known = true } };
	for (int i = 0; i < 2; i++) {
		assert_true(key_pair_generate(&key[i], &e) == 0 &&
			    crypt_ctx_new(&key[i], &keys[i], &e) == 0);
		c[i] = crypt_new(keys[i], i, &io[i], anybody, NULL);
		assert_non_null(c[i]);
	}
	for (int done = 0; done != 3;)
		for (int i = 0; i < 2; i++)
			done |= (crypt_handshake(c[i]) == 1) << i;
	assert_true(crypt_known(c[0]) && crypt_known(c[1]));
	for (int k = 0; k < turns; k++) {
		double spent[2] = { 0 }, at = cpu_seconds(), now;
		for (size_t out = 0, in = 0; in < TURN;) {
			int64_t n;
			while (out < TURN && out - in < SIZE &&
			       (n = crypt_write(c[0], from + out % SIZE, SIZE - out % SIZE)) > 0)
				out += (size_t)n;
			crypt_flush(c[0]);
			now = cpu_seconds();
			spent[0] += now - at;
			at = now;
			while ((n = crypt_read(c[1], to + in % SIZE, SIZE - in % SIZE)) > 0)
				in += (size_t)n;
			assert_int_equal(n, IO_LATER);
			now = cpu_seconds();
			spent[1] += now - at;
			at = now;
		}
		for (int i = 0; i < 2; i++)
			least[i] = spent[i] < least[i] ? spent[i] : least[i];
	}
	printf("encryption alone: writing %.3f, reading %.3f CPU s/GB\n", least[0] * 1e9 / TURN,
	       least[1] * 1e9 / TURN);
	for (int i = 0; i < 2; i++) {
		crypt_free(c[i]);
		crypt_ctx_free(keys[i]);
		close(fd[i]);
	}
}

/* Links between two processes, by the program's command line. */
static void two_machines(void **state)
{
	(void)state;
	const char *bin = getenv("HS_BIN");
	char command[9000], line[512], port[16];
	int rows = 0, curve = 0, several = 0;
	if (!bin) {
		printf("HS_BIN does not name the program\n");
		skip();
	}
	for (int i = 1; i <= 2; i++) {
		snprintf(command, sizeof command, "'%s' keygen '%s' >'%s' 2>&1", bin,
			 scratch("key%d", i), scratch("said%d", i));
		assert_int_equal(system(command), 0);
	}
	snprintf(port, sizeof port, "%d", ports_claim());
	snprintf(command, sizeof command,
		 "'%s' bench --serve 127.0.0.4:%s --key-file '%s' \"--peer=$(cat '%s.pub')\" & "
		 "'%s' bench --to 127.0.0.4:%s --key-file '%s' \"--peer=$(cat '%s.pub')\" --json; "
		 "rc=$?; wait $! || rc=1; exit $rc",
		 bin, port, scratch("key1"), scratch("key2"), bin, port, scratch("key2"),
		 scratch("key1"));
	FILE *f = popen(command, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		rows += strstr(line, "\"row\": \"link\"") != NULL;
		curve += strstr(line, "\"link\": \"tls\"") != NULL;
		several += strstr(line, "\"link\": \"tls x2\"") != NULL;
	}
	assert_int_equal(pclose(f), 0);
	assert_int_equal(rows, 6);
	assert_int_equal(curve, 2);
	assert_int_equal(several, 2);
	snprintf(command, sizeof command, "'%s' bench --to 127.0.0.4 2>/dev/null", bin);
	assert_int_equal(WEXITSTATUS(system(command)), 2); /* no port */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(shared_memory),
					    cmocka_unit_test(encryption_alone),
					    cmocka_unit_test(loopback),
					    cmocka_unit_test(two_machines) };
	return cmocka_run_group_tests_name("net_bench", tests, NULL, NULL);
}
