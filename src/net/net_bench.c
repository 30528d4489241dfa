/* SPDX-License-Identifier: Apache-2.0 */
/* net_bench.c - see net_bench.h. A message whose first byte is ECHO comes back, an empty one is
 * answered with the CPU time that the serving process has used (8 bytes, nanoseconds), every other
 * is taken and dropped; raw TCP does the same with a header of 8 bytes for the length. */
#include "net/net_bench.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/net.h"

enum { ECHO = 'e', DROP = 'd', PINGS = 101, STEP = 256 << 10, WARM = 128 << 20 };
#define PATIENCE net_in(30)
#define MOST ((uint64_t)256 << 20) /* bytes of a message */

/* One kind of connection, seen from either end. */
struct way {
	int fd; /* raw TCP, or -1 */
	struct link *link;
	unsigned char *buf; /* raw TCP: for receiving, a whole message as links do it */
	size_t cap;
};

/* ---- raw TCP -------------------------------------------------------------------------------- */

static int tcp_all(int fd, void *p, size_t n, bool out, struct err *e)
{
	for (char *at = p; n;) {
		ssize_t k = out ? send(fd, at, n, MSG_NOSIGNAL) : recv(fd, at, n, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k == 0)
			return err_set(e, ERR_NET, "bench: the other side closed the connection");
		if (k < 0)
			return err_set(e, ERR_NET, "bench: %s", strerror(errno));
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

/* Length and message in one call, as a link does it: a packet of its own for the length would halve
 * the rate of small messages. */
static int tcp_message(int fd, void *p, uint64_t n, struct err *e)
{
	struct iovec part[2] = { { &n, sizeof n }, { p, n } };
	struct msghdr m = { .msg_iov = part, .msg_iovlen = 2 };
	ssize_t k;
	do
		k = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return err_set(e, ERR_NET, "bench: %s", strerror(errno));
	const size_t sent = (size_t)k, head = sent < sizeof n ? sent : sizeof n;
	TRY(tcp_all(fd, (char *)&n + head, sizeof n - head, true, e));
	return tcp_all(fd, (char *)p + (sent - head), n - (sent - head), true, e);
}

static int tcp_open(const char *host, unsigned port, bool serve, int64_t deadline, int *fd_p,
		    struct err *e)
{
	char service[16];
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	snprintf(service, sizeof service, "%u", port);
	int rc = getaddrinfo(host, service, &hints, &list), one = 1, fd = -1;
	if (rc != 0)
		return err_set(e, ERR_NET, "bench: %s: %s", host, gai_strerror(rc));
	rc = err_set(e, ERR_NET, "bench: %s:%u: nobody answered in time", host, port);
	do {
		fd = os_socket(list->ai_family, SOCK_STREAM, OS_WAITS);
		if (fd < 0) {
			rc = err_sys(e, errno, "bench: cannot make a socket");
			break;
		}
		if (serve) {
			struct pollfd p = { .fd = fd, .events = POLLIN };
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
			if (bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, 1) < 0) {
				rc = err_set(e, ERR_NET, "bench: %s:%u: %s", host, port,
					     strerror(errno));
				deadline = 0;
			} else {
				int64_t ms = (deadline - clock_now()) / 1000000;
				int got = poll(&p, 1,
					       ms < 0          ? 0
					       : ms > 86400000 ? 86400000
							       : (int)ms) == 1
						  ? accept(fd, NULL, NULL)
						  : -1;
				close(fd);
				fd = got;
				rc = fd >= 0 ? 0 : rc;
				break;
			}
		} else if (connect(fd, list->ai_addr, list->ai_addrlen) == 0) {
			rc = 0;
			break;
		}
		close(fd);
		fd = -1;
		usleep(20000);
	} while (clock_now() < deadline);
	freeaddrinfo(list);
	if (rc < 0)
		return rc;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*fd_p = fd;
	return 0;
}

/* ---- either --------------------------------------------------------------------------------- */

static int say(struct way *w, void *p, uint64_t n, struct err *e)
{
	if (w->link)
		return link_send_wait(w->link, p, n, NULL, NULL, PATIENCE, e);
	return tcp_message(w->fd, p, n, e);
}

static uint64_t cpu_ns(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000 +
	       (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000;
}

/* Takes one message; its length, and its first bytes where there is room. `echo`: answers it when
 * it asks for that. */
static int hear(struct way *w, uint64_t *n_p, uint64_t *first_p, bool echo, struct err *e)
{
	uint64_t cpu = echo ? cpu_ns() : 0;
	if (w->link) {
		struct net_msg m;
		int rc = link_recv(w->link, PATIENCE, &m, e);
		if (rc == 0)
			return err_set(e, ERR_NET, "bench: nothing came for 30 s");
		if (rc < 0)
			return rc;
		*n_p = m.size;
		rc = 0;
		if (first_p && m.size == sizeof *first_p)
			memcpy(first_p, m.data, sizeof *first_p);
		if (echo && !m.size)
			rc = link_send_copy(w->link, &cpu, sizeof cpu, PATIENCE, e);
		else if (echo && *(char *)m.data == ECHO)
			rc = link_send_copy(w->link, m.data, m.size, PATIENCE, e);
		net_msg_release(&m);
		return rc;
	}
	uint64_t n, left;
	bool back = false;
	TRY(tcp_all(w->fd, &n, sizeof n, false, e));
	*n_p = left = n;
	if (echo && !n) {
		n = sizeof cpu;
		TRY(tcp_all(w->fd, &n, sizeof n, true, e));
		return tcp_all(w->fd, &cpu, sizeof cpu, true, e);
	}
	if (n > MOST || !mem_grow(&w->buf, &w->cap, n, 1))
		return err_nomem(e, n, "the bench");
	while (left) {
		size_t k = left < STEP ? left : STEP;
		unsigned char *at = w->buf + (n - left);
		TRY(tcp_all(w->fd, at, k, false, e));
		if (first_p && n == sizeof *first_p)
			memcpy(first_p, at, sizeof *first_p);
		if (echo && left == n && *at == ECHO) {
			back = true;
			TRY(tcp_all(w->fd, &n, sizeof n, true, e));
		}
		if (back)
			TRY(tcp_all(w->fd, at, k, true, e));
		left -= k;
	}
	return 0;
}

/* Waits until the other side has taken everything, and adds its CPU time to ours. */
static int settle(struct way *w, unsigned char *data, bool one_process, uint64_t *cpu_p,
		  struct err *e)
{
	uint64_t back, theirs = 0;
	TRY(say(w, data, 0, e));
	TRY(hear(w, &back, &theirs, false, e));
	if (back != sizeof theirs)
		return err_set(e, ERR_PROTOCOL, "bench: the answer has another size");
	*cpu_p = cpu_ns() + (one_process ? 0 : theirs);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int measure_one(struct way *w, unsigned char *data, uint64_t size, double seconds,
		       bool one_process, struct net_bench_row *r, struct err *e)
{
	int64_t took[PINGS];
	uint64_t back, cpu = 0, cpu_end = 0;
	int pings = 0;
	r->message = size;
	data[0] = ECHO;
	int64_t began, end = net_in(seconds / 2 + 0.05);
	for (; pings < PINGS && (pings < 3 || clock_now() < end); pings++) {
		began = clock_now();
		TRY(say(w, data, size, e));
		TRY(hear(w, &back, NULL, false, e));
		took[pings] = clock_now() - began;
		if (back != size)
			return err_set(e, ERR_PROTOCOL, "bench: the echo has another size");
	}
	qsort(took, (size_t)pings, sizeof *took, by_size);
	r->round_trip_us = (double)took[pings / 2] * 1e-3;
	/* The data is not written to while a send may still read it: the answer to the empty
	 * message comes when all was taken. */
	data[0] = DROP;
	/* Not measured: buffers are allocated, windows open. */
	end = net_in(seconds / 2);
	for (uint64_t sent = 0; sent < WARM && clock_now() < end; sent += size)
		TRY(say(w, data, size, e));
	TRY(settle(w, data, one_process, &cpu, e));
	began = clock_now();
	end = net_in(seconds);
	do {
		TRY(say(w, data, size, e));
		r->messages++;
	} while (clock_now() < end);
	TRY(settle(w, data, one_process, &cpu_end, e));
	double bytes = (double)size * (double)r->messages;
	r->seconds = clock_seconds(clock_now() - began);
	r->bytes_per_second = bytes / r->seconds;
	r->cpu_per_gb = (double)(cpu_end - cpu) / bytes;
	return 0;
}

static int serve_way(struct way *w, struct err *e)
{
	uint64_t n;
	int rc;
	do
		rc = hear(w, &n, NULL, true, e);
	while (rc == 0);
	/* The other side hangs up when it has measured. */
	return rc == ERR_NET ? 0 : rc;
}

/* The kinds of link in the order of their ports; the last ones, between threads of one process in
 * this bench, have none. */
static const struct {
	const char *name, *transport; /* NULL: raw TCP */
	bool keys;
} kinds[NET_BENCH_LINKS] = { { "tcp", NULL, false },  { "plain", "tls", false },
			     { "tls", "tls", true },  { "tls x", "tls", true },
			     { "shm", "shm", false }, { "loop", "loop", false } };
enum { SEVERAL = NET_BENCH_LINKS - 3, HERE, LOOP };
static const char *const several[NET_CONNECTIONS + 1] = { "",       "",       "tls x2",
							  "tls x3", "tls x4", "tls x5",
							  "tls x6", "tls x7", "tls x8" };

/* Until all connections of the link are up, or for some seconds. */
static void wait_for_all(struct link *l, unsigned connections)
{
	struct link_stats s;
	for (int i = 0; i < 500; i++) {
		link_stats(l, &s);
		if (s.connections >= connections)
			return;
		usleep(10000);
	}
}

static int with_link(const struct net_bench_place *at, int kind, const char *address, bool serve,
		     int64_t deadline, struct net **n_p, struct link **l_p, struct err *e)
{
	const char *transport = kinds[kind].transport;
	const bool keys = kinds[kind].keys, more = kind == SEVERAL && !serve;
	struct net_options o = { .key = keys ? at->key : NULL,
				 .insecure = !keys,
				 .mesh = keys && kind != SEVERAL,
				 .connections = more ? at->connections : 1 };
	struct net *n;
	TRY(net_open(transport, &o, &n, e));
	int rc = 0;
	if (serve) {
		if (keys)
			rc = net_allow(n, at->peer, e);
		if (rc == 0)
			rc = net_listen(n, address, NULL, e);
		if (rc == 0 && (rc = net_accept(n, deadline, l_p, e)) == 0)
			rc = err_set(e, ERR_NET, "bench: %s: nobody connected in time", address);
	} else {
		rc = net_connect(n, address, keys ? at->peer : NULL, deadline, l_p, e);
		if (rc == 0 && more)
			wait_for_all(*l_p, at->connections);
	}
	if (rc < 0) {
		net_close(n, 0);
		return rc;
	}
	*n_p = n;
	return 0;
}

static bool wanted(const struct net_bench_place *at, int kind)
{
	return kind == 0 || (kinds[kind].keys ? at->key != NULL : at->plain);
}

static int open_way(const struct net_bench_place *at, int kind, bool serve, int64_t deadline,
		    struct way *w, struct net **n_p, struct err *e)
{
	char address[NET_ADDRESS];
	*w = (struct way){ .fd = -1 };
	if (kind == 0)
		return tcp_open(at->host, at->port, serve, deadline, &w->fd, e);
	if (kind == LOOP)
		snprintf(address, sizeof address, "bench-%p", (const void *)at);
	else
		snprintf(address, sizeof address, strchr(at->host, ':') ? "[%s]:%u" : "%s:%u",
			 at->host, at->port + (unsigned)kind);
	return with_link(at, kind, address, serve, deadline, n_p, &w->link, e);
}

static void close_way(struct way *w, struct net *n)
{
	net_close(n, 5);
	if (w->fd >= 0)
		close(w->fd);
	mem_free(w->buf);
}

int net_bench_serve(const struct net_bench_place *at, int64_t deadline, struct err *e)
{
	for (int kind = 0; kind < HERE; kind++) {
		struct way w;
		struct net *n = NULL;
		if (!wanted(at, kind))
			continue;
		TRY(open_way(at, kind, true, deadline, &w, &n, e));
		int rc = serve_way(&w, e);
		close_way(&w, n);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int measure_kind(const struct net_bench_place *at, int kind, const uint64_t *sizes, size_t n,
			double seconds, unsigned char *data, struct net_bench_row *rows,
			struct err *e)
{
	struct way w;
	struct net *net = NULL;
	int rc = 0;
	if (kind == SEVERAL && (at->connections < 2 || at->connections > NET_CONNECTIONS))
		return err_set(e, ERR_USAGE, "bench: a link has 2 to %d connections",
			       NET_CONNECTIONS);
	TRY(open_way(at, kind, false, PATIENCE, &w, &net, e));
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rows[i] = (struct net_bench_row){ .link = kinds[kind].name };
		if (w.link && !strcmp(link_way(w.link), "TCP in the mesh"))
			rows[i].link = "mesh";
		if (kind == SEVERAL)
			rows[i].link = several[at->connections];
		rc = measure_one(&w, data, sizes[i], seconds, at->one_process, &rows[i], e);
	}
	close_way(&w, net);
	return rc;
}

static int data_for(const uint64_t *sizes, size_t n, unsigned char **data_p, struct err *e)
{
	uint64_t most = 1;
	for (size_t i = 0; i < n; i++) {
		if (!sizes[i] || sizes[i] > MOST)
			return err_set(e, ERR_USAGE, "bench: a message has 1 byte to 256 MiB");
		most = sizes[i] > most ? sizes[i] : most;
	}
	*data_p = mem_zalloc(most);
	return *data_p ? 0 : err_nomem(e, most, "the bench");
}

static void shares(struct net_bench_row *rows, size_t n, size_t count)
{
	for (size_t i = 0; i < count; i++)
		rows[i].share_of_tcp = rows[i].bytes_per_second / rows[i % n].bytes_per_second;
}

int net_bench_measure(const struct net_bench_place *at, const uint64_t *sizes, size_t n,
		      double seconds, struct net_bench_row *rows_p, size_t *count_p, struct err *e)
{
	unsigned char *data;
	size_t count = 0;
	int rc = 0;
	TRY(data_for(sizes, n, &data, e));
	for (int kind = 0; rc == 0 && kind < HERE; kind++)
		if (wanted(at, kind)) {
			rc = measure_kind(at, kind, sizes, n, seconds, data, rows_p + count, e);
			count += n;
		}
	mem_free(data);
	if (rc < 0)
		return rc;
	shares(rows_p, n, count);
	*count_p = count;
	return 0;
}

struct server {
	const struct net_bench_place *at;
	int kind; /* -1: all of net_bench_serve */
	int rc;
	struct err e;
};

static void *serve_thread(void *arg)
{
	struct server *s = arg;
	struct way w;
	struct net *n = NULL;
	if (s->kind < 0) {
		s->rc = net_bench_serve(s->at, PATIENCE, &s->e);
		return NULL;
	}
	s->rc = open_way(s->at, s->kind, true, PATIENCE, &w, &n, &s->e);
	if (s->rc == 0) {
		s->rc = serve_way(&w, &s->e);
		close_way(&w, n);
	}
	return NULL;
}

/* Ports in a row that are free now. */
static int free_ports(unsigned *port_p, struct err *e)
{
	for (int tries = 0; tries < 50; tries++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t n = sizeof a;
		int fd[NET_BENCH_PORTS], free_ones = 0;
		memset(fd, -1, sizeof fd);
		for (int i = 0; i < NET_BENCH_PORTS; i++) {
			fd[i] = os_socket(AF_INET, SOCK_STREAM, OS_WAITS);
			if (fd[i] < 0 || bind(fd[i], (struct sockaddr *)&a, sizeof a) < 0 ||
			    getsockname(fd[i], (struct sockaddr *)&a, &n) < 0)
				break;
			if (i == 0)
				*port_p = ntohs(a.sin_port);
			a.sin_port = htons((uint16_t)(ntohs(a.sin_port) + 1));
			free_ones++;
		}
		for (int i = 0; i < NET_BENCH_PORTS; i++)
			if (fd[i] >= 0)
				close(fd[i]);
		if (free_ones == NET_BENCH_PORTS)
			return 0;
	}
	return err_set(e, ERR_NET, "bench: no %d free ports in a row on 127.0.0.1",
		       NET_BENCH_PORTS);
}

int net_bench_loopback(const uint64_t *sizes, size_t n, double seconds,
		       struct net_bench_row *rows_p, size_t *count_p, struct err *e)
{
	struct key_pair key[2];
	unsigned port = 0;
	unsigned char *data;
	TRY(key_pair_generate(&key[0], e));
	TRY(key_pair_generate(&key[1], e));
	TRY(data_for(sizes, n, &data, e));
	mem_free(data);
	TRY(free_ports(&port, e));
	struct net_bench_place serve = { "127.0.0.1", port, &key[0], key[1].pub, true, 2, true },
			       measure = { "127.0.0.1", port, &key[1], key[0].pub, true, 2, true };
	struct server s = { .at = &serve, .kind = -1 };
	pthread_t t;
	int errnum = pthread_create(&t, NULL, serve_thread, &s);
	if (errnum)
		return err_sys(e, errnum, "bench: cannot start a thread");
	int rc = net_bench_measure(&measure, sizes, n, seconds, rows_p, count_p, e);
	pthread_join(t, NULL);
	if (rc < 0 || s.rc < 0) {
		if (rc == 0)
			*e = s.e;
		return rc < 0 ? rc : s.rc;
	}
	TRY(data_for(sizes, n, &data, e));
	for (int kind = HERE; rc >= 0 && kind < NET_BENCH_LINKS; kind++) {
		s = (struct server){ .at = &serve, .kind = kind };
		errnum = pthread_create(&t, NULL, serve_thread, &s);
		if (errnum) {
			rc = err_sys(e, errnum, "bench: cannot start a thread");
			break;
		}
		/* serve_thread makes the same address, from the same place. */
		rc = measure_kind(&serve, kind, sizes, n, seconds, data, rows_p + *count_p, e);
		pthread_join(t, NULL);
		*count_p += rc < 0 ? 0 : n;
	}
	mem_free(data);
	if (rc < 0)
		return rc;
	shares(rows_p, n, *count_p);
	return 0;
}
