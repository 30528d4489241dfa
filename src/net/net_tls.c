/* SPDX-License-Identifier: Apache-2.0 */
/* net_tls.c - links over TCP with TLS 1.3: the functions behind the calls of net.h. The thread is
 * in tls_hub.c, a connection in tls_conn.c, the encryption in tls_crypt.c, the protocol in
 * tls_head.h.
 *
 * With the option `near` it also listens and dials at the rendezvous of this machine and user
 * (shm_meet.h); links made there go through shared memory.
 *
 * With a key links are always encrypted and both sides prove their keys. Without a key they are
 * plain, and only loopback addresses are bound or dialled, unless the options say `insecure`. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/os_calls.h"
#include "net/address.h"
#include "net/shm_meet.h"
#include "net/tls_hub.h"

enum { BACKLOG = 256 };

/* Strangers must not use up what the program needs for its own files and links. */
static void raise_file_limit(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static int tls_row_open(struct net *n, struct err *e)
{
	raise_file_limit();
	return hub_open(n, e);
}

/* Off loopback nothing goes without keys, unless the user asked for it in so many words. */
static int may_use(struct net *n, const char *address, bool loopback, struct err *e)
{
	if (loopback || n->o.key || n->o.insecure)
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: not a loopback address, and this machine has no key: links would be "
		       "neither encrypted nor authenticated; make keys with `heteroshard keygen`, "
		       "or say --insecure",
		       address);
}

/* A socket that is bound to `a`; -1 with errno. */
static int bound_socket(const struct sockaddr_storage *a, socklen_t n, bool both)
{
	int one = 1, no = !both;
	int fd = os_socket(a->ss_family, SOCK_STREAM, OS_NEVER_WAITS);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (a->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
	if (bind(fd, (const struct sockaddr *)a, n) == 0)
		return fd;
	int errnum = errno;
	close(fd);
	errno = errnum;
	return -1;
}

static int in_use(const char *address, struct err *e)
{
	return err_set(e, ERR_NET, "%s: the port is in use; is heteroshard running already?",
		       address);
}

static int tls_row_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS],
			  struct err *e)
{
	char number[NET_ADDRESS];
	bool loopback;
	struct sockaddr_storage a;
	TRY(address_resolve(address, true, number, &loopback, e));
	TRY(may_use(n, address, loopback, e));
	bool all = number[0] == '*';
	socklen_t length = address_socket(number, &a);
	int fd = bound_socket(&a, length, all), near = -1;
	if (fd < 0 && all && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
		/* a kernel without IPv6 */
		unsigned port;
		char host[NET_ADDRESS];
		address_parts(number, host, &port);
		address_join("0.0.0.0", port, number);
		length = address_socket(number, &a);
		fd = bound_socket(&a, length, false);
	}
	if (fd < 0 && errno == EADDRINUSE)
		return in_use(address, e);
	if (fd < 0 && (errno == EADDRNOTAVAIL || errno == ENODEV))
		return err_set(e, ERR_NET, "%s: not an address of this machine", address);
	if (fd < 0)
		return err_set(e, ERR_NET, "%s: cannot listen: %s", address, strerror(errno));
	socklen_t len = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		close(fd);
		return err_sys(e, errno, "%s: cannot listen", address);
	}
	address_text(&a, true, bound_p);
	/* A dialler tries this rendezvous first, so it must be ready before the TCP port. */
	struct err why = { 0 };
	char path[MEET_PATH] = "", host[NET_ADDRESS], meet[NET_ADDRESS];
	unsigned port;
	address_parts(bound_p, host, &port);
	address_join(all ? "*" : host, port, meet);
	int met = n->o.near ? meet_listen(meet, &near, path, &why) : 0;
	if (met == ERR_IO)
		log_warn("%s; links within this machine go over TCP, which works "
			 "and is slower than shared memory",
			 why.msg);
	if (met == ERR_NET) {
		close(fd);
		*e = why;
		return met;
	}
	if (listen(fd, BACKLOG) < 0) {
		int rc = errno == EADDRINUSE ? in_use(address, e)
					     : err_sys(e, errno, "%s: cannot listen", address);
		meet_leave(near, path);
		close(fd);
		return rc;
	}
	hub_listen(n->priv, fd, near, path);
	return 0;
}

static int tls_row_dial(struct link *l, const char *address, const char *peer_key, struct err *e)
{
	const char *semicolon = strchr(address, ';'), *to = semicolon ? semicolon + 1 : address;
	char from[NET_ADDRESS] = "", source[NET_ADDRESS] = "";
	struct address at[ADDRESS_MOST];
	const char *meet = "";
	bool own;
	int all, n = 0;
	(void)peer_key; /* is l->peer */
	TRY(address_all(to, at, &all, e));
	for (int i = 0; i < all; i++)
		if (may_use(l->net, to, at[i].loopback, e) >= 0)
			at[n++] = at[i];
	if (!n)
		return e->code;
	err_clear(e);
	for (int i = n - 1; i >= 0 && l->net->o.near; i--)
		meet = meet_is_here(at[i].text) ? at[i].text : meet;
	if (semicolon) {
		int len = (int)(semicolon - address);
		snprintf(from, sizeof from,
			 memchr(address, ':', (size_t)len) ? "[%.*s]:0" : "%.*s:0", len, address);
		TRY(address_resolve(from, true, source, &own, e));
	}
	return hub_dial(l->net->priv, l, at, n, source, meet, e);
}

const struct net_transport net_tls = {
	.name = "tls",
	.way = "TCP",
	.open = tls_row_open,
	.close = hub_close,
	.listen = tls_row_listen,
	.dial = tls_row_dial,
	.send = hub_send,
	.taken = hub_taken,
	.waits = hub_waits,
	.shut = hub_shut,
	.take = hub_take,
	.freed = hub_freed,
	.buffer = hub_buffer,
};
