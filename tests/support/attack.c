/* SPDX-License-Identifier: Apache-2.0 */
/* attack.c - see attack.h. */
#include "support/attack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "net/net.h"

const char *const attack_name[ATTACKS + 1] = { "silent strangers", "endless first message",
					       "connection flood", "garbage",
					       "slow drip",        "flood of hellos",
					       "handshakes",       "(spin loop)" };

enum { MANY = 200, TLS_HELLO = 4096 };

/* ---- what they share ---- */

static struct sockaddr_in target;
static struct attack_count *count;

static int knock(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval most = { .tv_sec = 1 };
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	if (connect(fd, (struct sockaddr *)&target, sizeof target) < 0) {
		close(fd);
		return -1;
	}
	count->connections++;
	return fd;
}

/* false: the other side takes no more. */
static bool say(int fd, const void *p, size_t n)
{
	ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
	count->bytes += k > 0 ? (uint64_t)k : 0;
	return k == (ssize_t)n;
}

static bool is_closed(int fd)
{
	char c[256];
	ssize_t k = recv(fd, c, sizeof c, MSG_DONTWAIT);
	return k == 0 || (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

static const unsigned char tls[] = { 0x16, 3, 1, 0x40, 0, 1, 1, 0xff, 0xff, 3, 3 };

/* ---- the attacks ---- */

static void keep_many(bool drip)
{
	static int fd[MANY];
	memset(fd, -1, sizeof fd);
	for (unsigned turn = 0;; turn++) {
		for (int i = 0; i < MANY; i++) {
			if (fd[i] >= 0 && is_closed(fd[i])) {
				close(fd[i]);
				fd[i] = -1;
			}
			if (fd[i] < 0)
				fd[i] = knock();
			if (fd[i] >= 0 && drip)
				say(fd[i], &tls[turn < sizeof tls ? turn : 10], 1);
		}
		usleep(20000);
	}
}

static void endless(void)
{
	static unsigned char p[1 << 16];
	memcpy(p, tls, sizeof tls);
	for (;;) {
		int fd = knock();
		while (fd >= 0 && say(fd, p, sizeof p))
			;
		if (fd >= 0)
			close(fd);
	}
}

static void flood(const void *first, size_t n)
{
	for (;;) {
		int fd = knock();
		if (fd >= 0) {
			say(fd, first, n);
			close(fd);
		}
	}
}

static void garbage(void)
{
	static unsigned char p[1 << 14];
	for (uint64_t turn = 0;; turn++) {
		for (uint64_t i = 0; i < sizeof p; i++)
			p[i] = (unsigned char)rng_u32(rng_key(7), turn * sizeof p + i);
		int fd = knock();
		if (fd < 0)
			continue;
		say(fd, p, 1 + rng_below(rng_key(8), turn, sizeof p));
		char back[256];
		while (recv(fd, back, sizeof back, 0) > 0)
			;
		close(fd);
	}
}

/* The first message of a handshake, as a program of ours says it: sent to a socket of this
 * process. */
static size_t first_message(const char *key, unsigned char out[TLS_HELLO])
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	struct key_pair own;
	struct err e = { 0 };
	struct net *n;
	struct link *l;
	char at[NET_ADDRESS];
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, 1) < 0 ||
	    getsockname(s, (struct sockaddr *)&a, &len) < 0)
		_exit(1);
	snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(a.sin_port));
	if (key_pair_generate(&own, &e) < 0 ||
	    net_open("tls", &(struct net_options){ .key = &own }, &n, &e) < 0 ||
	    net_dial(n, at, key, net_in(20), &l, &e) < 0)
		_exit(1);
	int fd = accept(s, NULL, NULL);
	ssize_t k = recv(fd, out, TLS_HELLO, 0);
	close(fd);
	close(s);
	link_close(l);
	net_close(n, 0);
	return k > 0 ? (size_t)k : 0;
}

static void handshakes(const char *key)
{
	char at[NET_ADDRESS], host[64];
	inet_ntop(AF_INET, &target.sin_addr, host, sizeof host);
	snprintf(at, sizeof at, "%s:%d", host, ntohs(target.sin_port));
	for (;;) {
		struct key_pair own;
		struct err e = { 0 };
		struct net *n;
		struct link *l;
		if (key_pair_generate(&own, &e) < 0 ||
		    net_open("tls", &(struct net_options){ .key = &own }, &n, &e) < 0)
			_exit(1);
		for (int i = 0; i < 100; i++) {
			if (net_connect(n, at, key, net_in(5), &l, &e) >= 0)
				_exit(1); /* the listener let it in: an error */
			count->connections++;
		}
		net_close(n, 0);
	}
}

static void run(enum attack what, const char *key)
{
	unsigned char hello[TLS_HELLO];
	switch (what) {
	case ATTACK_SILENT:
	case ATTACK_DRIP:
		keep_many(what == ATTACK_DRIP);
		return;
	case ATTACK_ENDLESS:
		endless();
		return;
	case ATTACK_FLOOD:
		flood(tls, sizeof tls);
		return;
	case ATTACK_GARBAGE:
		garbage();
		return;
	case ATTACK_HELLOS:
		flood(hello, first_message(key, hello));
		return;
	case ATTACK_HANDSHAKE:
		handshakes(key);
		return;
	case ATTACK_SPIN:
		for (volatile unsigned n = 0;; n++)
			;
	}
}

/* ---- the control group ---- */

static char group[128];
static pid_t running[64];

static bool write_to(const char *name, const char *text)
{
	char path[200];
	snprintf(path, sizeof path, "%s/%s", group, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool make_group(const char *folder, const char *name, const char *text)
{
	snprintf(group, sizeof group, "%s/hs-attack-%d", folder, (int)getpid());
	if (mkdir(group, 0755) == 0 && write_to(name, text))
		return true;
	rmdir(group);
	group[0] = 0;
	return false;
}

bool attack_limit(int percent)
{
	char quota[32], both[64];
	snprintf(quota, sizeof quota, "%d", percent * 200);
	snprintf(both, sizeof both, "%d 20000", percent * 200);
	attack_end();
	atexit(attack_end);
	return (make_group("/sys/fs/cgroup/cpu", "cpu.cfs_period_us", "20000") &&
		write_to("cpu.cfs_quota_us", quota)) ||
	       make_group("/sys/fs/cgroup", "cpu.max", both);
}

void attack_end(void)
{
	for (size_t i = 0; i < sizeof running / sizeof *running; i++)
		if (running[i]) {
			kill(running[i], SIGKILL);
			waitpid(running[i], NULL, 0);
			running[i] = 0;
		}
	if (group[0])
		rmdir(group);
	group[0] = 0;
}

struct attacker attack_start(enum attack what, int host, int port, const char *key)
{
	char pid[32];
	struct attacker a = { .count = mmap(NULL, sizeof *a.count, PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
	assert_true(a.count != MAP_FAILED);
	target = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	target.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)host - 1);
	count = a.count;
	a.pid = fork();
	assert_true(a.pid >= 0);
	if (a.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(pid, sizeof pid, "%d", (int)getpid());
		/* a quota works only with the usual scheduling policy */
		sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
		bool in = group[0] && write_to("cgroup.procs", pid);
		setpriority(PRIO_PROCESS, 0, in ? -20 : 19);
		run(what, key);
		_exit(0);
	}
	for (size_t i = 0; i < sizeof running / sizeof *running; i++)
		if (!running[i]) {
			running[i] = a.pid;
			break;
		}
	return a;
}

void attack_stop(struct attacker *a)
{
	int status;
	if (waitpid(a->pid, &status, WNOHANG) == a->pid)
		fail_msg("an attacker ended by itself (%d)", status);
	kill(a->pid, SIGKILL);
	waitpid(a->pid, NULL, 0);
	for (size_t i = 0; i < sizeof running / sizeof *running; i++)
		if (running[i] == a->pid)
			running[i] = 0;
	munmap(a->count, sizeof *a->count);
	*a = (struct attacker){ 0 };
}
