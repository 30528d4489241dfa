/* SPDX-License-Identifier: Apache-2.0 */
/* net_zmq.c - links over TCP with ZeroMQ and CURVE: what users' calls come to. The thread that does
 * it is in zmq_hub.c.
 *
 * Off loopback links are always encrypted and both sides prove their keys, unless the options say
 * `insecure`. Without a key only loopback addresses are bound or dialled. */
#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/zmq_hub.h"

static int zerr(struct err *e, const char *what, const char *on)
{
	return err_set(e, ERR_NET, "%s: %s: %s", on, what, zmq_strerror(errno));
}

static int set_int(void *s, int option, int v) { return zmq_setsockopt(s, option, &v, sizeof v); }

int hub_socket(struct hub *h, int type, const char *endpoint, const char *server_key, void **sock_p,
	       struct err *e)
{
	const struct net_options *o = &h->net->o;
	void *s = zmq_socket(h->ctx, type);
	if (!s)
		return zerr(e, "cannot make a socket", "zmq");
	/* Windows bound what is under way, so libzmq's own counters of messages stay out of it. */
	int ping = (int)(o->peer_timeout * 250);
	ping = ping < 20 ? 20 : ping > 5000 ? 5000 : ping;
	/* Listening on every address means both families; where the kernel has no IPv6, libzmq
	 * falls back. */
	int v6 = strstr(endpoint, "//[") != NULL || strstr(endpoint, ";[") != NULL ||
		 strstr(endpoint, "//*") != NULL;
	int64_t most =
		(int64_t)(o->max_message > INT64_MAX / 2 ? INT64_MAX / 2 : o->max_message) + 1024;
	int bad = set_int(s, ZMQ_SNDHWM, 0) | set_int(s, ZMQ_RCVHWM, 0) |
		  set_int(s, ZMQ_LINGER, 0) | set_int(s, ZMQ_IPV6, v6) |
		  set_int(s, ZMQ_HEARTBEAT_IVL, ping) | set_int(s, ZMQ_HEARTBEAT_TIMEOUT, 0) |
		  set_int(s, ZMQ_HANDSHAKE_IVL, 10000) |
		  zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &most, sizeof most);
	if (type == ZMQ_ROUTER)
		bad |= set_int(s, ZMQ_ROUTER_MANDATORY, 1) | set_int(s, ZMQ_BACKLOG, 256);
	else /* a lost connection is a lost link: ZeroMQ must not reconnect, the hub dials again */
		bad |= set_int(s, ZMQ_RECONNECT_IVL, 0x3fffffff) |
		       set_int(s, ZMQ_CONNECT_TIMEOUT, 3000);
	char pub[CURVE_TEXT] = "", sec[CURVE_TEXT] = "", server[CURVE_TEXT] = "";
	if (o->key)
		bad |= !hub_curve_public(o->key->pub, pub) | !hub_curve_secret(o->key->sec, sec) |
		       (server_key && !hub_curve_public(server_key, server));
	if (o->key && type == ZMQ_ROUTER)
		bad |= set_int(s, ZMQ_CURVE_SERVER, 1) |
		       zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, sec, CURVE_TEXT) |
		       zmq_setsockopt(s, ZMQ_ZAP_DOMAIN, "heteroshard", 11);
	else if (o->key)
		bad |= zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, server, CURVE_TEXT) |
		       zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, pub, CURVE_TEXT) |
		       zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, sec, CURVE_TEXT);
	OPENSSL_cleanse(sec, sizeof sec);
	if (bad) {
		int rc = zerr(e, "cannot set up a socket (was libzmq built with CURVE?)", "zmq");
		zmq_close(s);
		return rc;
	}
	*sock_p = s;
	return 0;
}

void *hub_monitor(struct hub *h, void *sock)
{
	char name[64];
	snprintf(name, sizeof name, "inproc://monitor-%p", sock);
	void *m = NULL;
	if (zmq_socket_monitor(sock, name, ZMQ_EVENT_ALL) == 0)
		m = zmq_socket(h->ctx, ZMQ_PAIR);
	if (m &&
	    (set_int(m, ZMQ_LINGER, 0) || set_int(m, ZMQ_RCVHWM, 0) || zmq_connect(m, name) != 0)) {
		zmq_close(m);
		m = NULL;
	}
	return m;
}

void hub_wake(struct hub *h)
{
	h->busy = true;
	if (!h->asleep)
		return;
	h->asleep = false;
	uint64_t one = 1;
	while (write(h->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

static int zmq_row_open(struct net *n, struct err *e)
{
	struct hub *h = mem_zalloc(sizeof *h);
	int rc = 0;
	if (!h)
		return err_nomem(e, sizeof *h, "a link end");
	h->net = n;
	h->out_end = &h->out;
	h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h->ctx = zmq_ctx_new();
	pthread_mutex_init(&h->lock, NULL);
	if (h->wake_fd < 0 || !h->ctx) {
		rc = err_sys(e, errno, "zmq: cannot begin");
		goto fail;
	}
	zmq_ctx_set(h->ctx, ZMQ_IO_THREADS, n->o.threads);
	zmq_ctx_set(h->ctx, ZMQ_MAX_SOCKETS, 8192);
	if (n->o.key) {
		h->zap = zmq_socket(h->ctx, ZMQ_REP);
		if (!h->zap || zmq_bind(h->zap, "inproc://zeromq.zap.01") != 0 ||
		    set_int(h->zap, ZMQ_LINGER, 0) != 0) {
			rc = zerr(e, "cannot begin authentication", "zmq");
			goto fail;
		}
	}
	/* Signals are for the program's own threads. */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int errnum = pthread_create(&h->thread, NULL, hub_main, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (errnum) {
		rc = err_sys(e, errnum, "zmq: cannot start a thread");
		goto fail;
	}
	n->priv = h;
	return 0;
fail:
	if (h->zap)
		zmq_close(h->zap);
	if (h->ctx)
		zmq_ctx_term(h->ctx);
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	pthread_mutex_destroy(&h->lock);
	mem_free(h);
	return rc;
}

static void zmq_row_close(struct net *n, double linger)
{
	struct hub *h = n->priv;
	pthread_mutex_lock(&h->lock);
	h->quit = true;
	h->quit_by = net_in(linger);
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	/* Returns when the sockets' linger is over and no thread of libzmq is left: every release
	 * has been called then. */
	while (zmq_ctx_term(h->ctx) != 0 && errno == EINTR)
		;
	close(h->wake_fd);
	pthread_mutex_destroy(&h->lock);
	mem_free(h->items);
	mem_free(h);
}

/* Off loopback nothing goes without keys, unless the user asked for it in so many words. */
static int may_use(struct net *n, const char *address, bool loopback, struct err *e)
{
	if (loopback || n->o.key || n->o.insecure)
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: not a loopback address, and no keys are in use: links would be "
		       "neither encrypted nor authenticated; "
		       "make keys with `heteroshard keygen`, or say --insecure",
		       address);
}

static int zmq_row_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS],
			  struct err *e)
{
	struct hub *h = n->priv;
	char number[NET_ADDRESS], endpoint[NET_ADDRESS + 8];
	bool loopback;
	void *s, *m;
	TRY(address_resolve(address, true, number, &loopback, e));
	TRY(may_use(n, address, loopback, e));
	snprintf(endpoint, sizeof endpoint, "tcp://%s", number);
	TRY(hub_socket(h, ZMQ_ROUTER, endpoint, NULL, &s, e));
	m = hub_monitor(h, s);
	if (!m || zmq_bind(s, endpoint) != 0) {
		int errnum = errno, rc;
		if (errnum == EADDRINUSE)
			rc = err_set(e, ERR_NET,
				     "%s: the port is in use; is heteroshard running already?",
				     address);
		else if (errnum == EADDRNOTAVAIL || errnum == ENODEV)
			rc = err_set(e, ERR_NET, "%s: not an address of this machine", address);
		else
			rc = zerr(e, "cannot listen", address);
		if (m)
			zmq_close(m);
		zmq_close(s);
		return rc;
	}
	size_t len = sizeof endpoint;
	zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, endpoint, &len);
	snprintf(bound_p, NET_ADDRESS, "%.*s", NET_ADDRESS - 1, endpoint + strlen("tcp://"));
	pthread_mutex_lock(&h->lock);
	h->new_router = s;
	h->new_router_mon = m;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

/* "source;host:port" as the endpoint that libzmq wants: "tcp://source:0;host:port", every name a
 * number. */
static int endpoint_to(struct net *n, const char *address, char *out, size_t cap, struct err *e)
{
	const char *semicolon = strchr(address, ';'), *to = semicolon ? semicolon + 1 : address;
	char number[NET_ADDRESS], from[NET_ADDRESS] = "", source[NET_ADDRESS] = "";
	bool loopback, own;
	TRY(address_resolve(to, false, number, &loopback, e));
	TRY(may_use(n, to, loopback, e));
	if (semicolon) {
		int len = (int)(semicolon - address);
		snprintf(from, sizeof from,
			 memchr(address, ':', (size_t)len) ? "[%.*s]:0" : "%.*s:0", len, address);
		TRY(address_resolve(from, true, source, &own, e));
	}
	snprintf(out, cap, "tcp://%s%s%s", source, semicolon ? ";" : "", number);
	return 0;
}

static int zmq_row_dial(struct link *l, const char *address, const char *peer_key, struct err *e)
{
	struct hub *h = l->net->priv;
	char endpoint[sizeof((struct zlink *)0)->endpoint];
	TRY(endpoint_to(l->net, address, endpoint, sizeof endpoint, e));
	struct zlink *zl = mem_zalloc(sizeof *zl);
	if (!zl)
		return err_nomem(e, sizeof *zl, "a link");
	zl->hub = h;
	zl->link = l;
	zl->fd = -1;
	zl->state = Z_DIALING;
	zl->has_key = peer_key != NULL;
	zl->dial_deadline = l->dial_deadline;
	zl->pending_end = &zl->pending;
	memcpy(zl->endpoint, endpoint, sizeof endpoint);
	l->priv = zl;
	pthread_mutex_lock(&h->lock);
	zl->next = h->fresh;
	h->fresh = zl;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

static void zmq_row_send(struct link *l, struct net_node *node)
{
	struct zlink *zl = l->priv;
	struct hub *h = zl->hub;
	struct zsend *s = (struct zsend *)(void *)node->room;
	s->zl = zl;
	node->next = NULL;
	net_link_ref(l);
	pthread_mutex_lock(&h->lock);
	*h->out_end = node;
	h->out_end = &node->next;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
}

static void zmq_row_taken(struct link *l, uint64_t cost)
{
	struct zlink *zl = l->priv;
	struct hub *h = zl->hub;
	pthread_mutex_lock(&h->lock);
	zl->untold += cost;
	if (zl->untold > net_slack(l->net->o.window))
		hub_wake(h);
	pthread_mutex_unlock(&h->lock);
}

static void zmq_row_shut(struct link *l)
{
	struct zlink *zl = l->priv;
	struct hub *h = zl->hub;
	pthread_mutex_lock(&h->lock);
	zl->shut = true;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
}

static void zmq_row_freed(struct link *l) { mem_free(l->priv); }

const struct net_transport net_zmq = {
	.name = "zmq",
	.open = zmq_row_open,
	.close = zmq_row_close,
	.listen = zmq_row_listen,
	.dial = zmq_row_dial,
	.send = zmq_row_send,
	.taken = zmq_row_taken,
	.shut = zmq_row_shut,
	.freed = zmq_row_freed,
};
