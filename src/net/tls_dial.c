/* SPDX-License-Identifier: Apache-2.0 */
/* tls_dial.c - see tls_dial.h. */
#include "net/tls_dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/os_calls.h"
#include "net/inside.h"
#include "net/shm_meet.h"

#define RETRY ((int64_t)200000000) /* ns between two attempts to connect */
enum { FAILURES = 3, RESETS = 20 };

static void give_up(struct conn *c, int code, const char *what)
{
	c->end = END_NONE;
	conn_break(c, code, what);
}

/* The name has several addresses, and one of them may be of another family, or an old one. */
static void next_way(struct conn *c)
{
	if (c->nway < 2)
		return;
	c->at = (c->at + 1) % c->nway;
	c->to = c->way[c->at];
	c->to_n = c->way_n[c->at];
}

static void try_later(struct conn *c, int64_t now)
{
	next_way(c);
	conn_reset(c);
	c->end = END_NONE;
	c->state = CONN_WAITING;
	c->retry_at = now + RETRY;
}

void dial_options(int fd, double peer_timeout)
{
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
	const double ms = peer_timeout * 1000 / 8;
	int one = 1, most = ms < 1000 ? 1000 : ms > 120000 ? 120000 : (int)ms;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &most, sizeof most);
}

static void connected(struct conn *c, int64_t now)
{
	dial_options(c->io.fd, c->net->o.peer_timeout);
	conn_begin(c, c->io.fd, now);
	conn_work(c, false, now);
}

/* This connection uses TCP instead, which works too and is slower. Warns once for each net. */
static void not_near(struct conn *c, const char *why)
{
	c->meet[0] = 0;
	if (!c->net->near_said)
		log_warn("%s: %s; links within this machine go over TCP, which works "
			 "and is slower than shared memory",
			 c->link->address, why);
	c->net->near_said = true;
}

/* Tries the rendezvous of this machine and user. true: an attempt has begun, or the dial has
 * failed. */
static bool dial_near(struct conn *c, int64_t now)
{
	struct err e = { 0 };
	int fd, rc = meet_connect(c->meet, &fd, &e);
	pid_t peer;
	if (rc < 0 && c->to_n)
		not_near(c, e.msg);
	else if (rc < 0)
		give_up(c, rc, e.msg);
	else if (rc > 0 && meet_peer(fd, &peer)) {
		conn_begin_near(c, fd, peer, now);
		conn_work(c, false, now);
	} else if (rc > 0) {
		close(fd);
		rc = 0;
	}
	return rc > 0 || (rc < 0 && !c->to_n);
}

void dial_begin(struct conn *c, int64_t now)
{
	c->began = now;
	if (c->meet[0] && dial_near(c, now))
		return;
	if (!c->to_n) {
		try_later(c, now);
		return;
	}
	c->io.fd = os_socket(c->to.ss_family, SOCK_STREAM, OS_NEVER_WAITS);
	if (c->io.fd < 0) {
		try_later(c, now);
		return;
	}
	c->inside = c->keys && c->net->o.mesh && inside_bind(c->io.fd, &c->to);
	if (c->source_n) {
#ifdef IP_BIND_ADDRESS_NO_PORT
		setsockopt(c->io.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){ 1 }, sizeof(int));
#endif
		if (bind(c->io.fd, (struct sockaddr *)&c->source, c->source_n) < 0) {
			char text[160];
			snprintf(text, sizeof text, "cannot connect from that address: %s",
				 strerror(errno));
			give_up(c, ERR_NET, text);
			return;
		}
	}
	if (connect(c->io.fd, (struct sockaddr *)&c->to, c->to_n) == 0)
		connected(c, now);
	else if (errno == EINPROGRESS)
		c->state = CONN_CONNECTING;
	else
		try_later(c, now);
}

void dial_answered(struct conn *c, int64_t now)
{
	int errnum = 0;
	socklen_t n = sizeof errnum;
	if (getsockopt(c->io.fd, SOL_SOCKET, SO_ERROR, &errnum, &n) < 0 || errnum)
		try_later(c, now);
	else
		connected(c, now);
}

bool dial_late(struct conn *c, int64_t now)
{
	if (c->state == CONN_WAITING || now - c->began <= dial_attempt(c))
		return false;
	c->end = END_SILENT;
	dial_failed(c, now);
	return true;
}

void dial_failed(struct conn *c, int64_t now)
{
	char text[400];
	const char *what = NULL;
	bool keys = c->keys != NULL;
	const bool again = c->end == END_CLOSED || c->end == END_RESET || c->end == END_SILENT;
	if (c->near && c->to_n && (!again || c->failures + 1 >= FAILURES)) {
		/* the process that answers here is another one, or cannot prove its key: TCP */
		log_debug("%s: no link through shared memory (%d); TCP is tried", c->link->address,
			  (int)c->end);
		c->meet[0] = 0;
		c->failures = 0;
		try_later(c, now);
		c->retry_at = now;
		return;
	}
	if ((c->end == END_WRONG_KEY || c->end == END_KEYS) && ++c->strangers < c->nway) {
		try_later(c, now);
		return;
	}
	/* silence on this machine: TCP is tried in the end */
	c->failures += c->end == END_CLOSED || c->end == END_STRANGE ||
		       (c->end == END_SILENT && c->near && c->to_n);
	c->resets += c->end == END_RESET;
	if (c->end == END_REFUSED)
		snprintf(text, sizeof text,
			 "refused: this machine's public key %s is not on its list",
			 c->net->o.key->pub);
	else if (c->end == END_WRONG_KEY)
		snprintf(text, sizeof text, "its key is not the expected one, %s, but %s",
			 c->link->peer, c->peer);
	else if (c->end == END_KEYS)
		what = "one side has a key, the other none";
	else if (c->end == END_STRANGE && c->failures >= FAILURES)
		what = "what answers is no heteroshard, or another version of it";
	else if (c->end == END_MEMORY)
		what = "out of memory while connecting";
	else if (c->failures >= FAILURES || c->resets >= RESETS)
		what = keys ? "it broke off the handshake each time: it is no heteroshard, or has "
			      "too many strangers to answer"
			    : "it broke off each time: one side has a key, the other none, or it "
			      "is no heteroshard";
	else {
		try_later(c, now);
		return;
	}
	pthread_mutex_lock(&c->net->lock);
	c->link->refused = c->end == END_REFUSED;
	pthread_mutex_unlock(&c->net->lock);
	give_up(c, c->end == END_MEMORY ? ERR_NOMEM : ERR_NET, what ? what : text);
}
