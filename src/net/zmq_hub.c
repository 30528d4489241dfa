/* SPDX-License-Identifier: Apache-2.0 */
/* zmq_hub.c - the thread that owns a net's ZeroMQ sockets. See zmq_hub.h for the protocol. */
#include "net/zmq_hub.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/mem.h"

/* libzmq passes a message from our thread to its own, in code that the thread sanitizer does not
 * see: tell it. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HANDED_OVER(p) __tsan_release(p)
#define TAKEN_OVER(p) __tsan_acquire(p)
#else
#define HANDED_OVER(p) (void)(p)
#define TAKEN_OVER(p) (void)(p)
#endif

#define MS ((int64_t)1000000)
#define RETRY (200 * MS)
#define BATCH 64 /* messages of one socket before the others have their turn */

/* ---- small things --------------------------------------------------------------------------- */

static void put(unsigned char *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *p, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static uint64_t cookie_of(int fd)
{
	uint64_t c = 0;
	socklen_t n = sizeof c;
	return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_COOKIE, &c, &n) == 0 ? c : 0;
}

/* Milliseconds since the last data from the peer; 0 when the kernel cannot say or the connection is
 * gone. */
static uint64_t silent_ms(const struct zlink *zl)
{
	struct tcp_info t;
	socklen_t n = sizeof t;
	if (!zl->cookie || cookie_of(zl->fd) != zl->cookie ||
	    getsockopt(zl->fd, IPPROTO_TCP, TCP_INFO, &t, &n) != 0)
		return 0;
	return t.tcpi_last_data_recv;
}

static bool accepted(const struct zlink *zl) { return zl->id_n != 0; }
static void *sock_of(const struct zlink *zl) { return accepted(zl) ? zl->hub->router : zl->sock; }

/* The routing id in front, where the socket is shared. */
static bool send_head(struct zlink *zl)
{
	if (!accepted(zl))
		return zl->sock != NULL;
	return zmq_send(zl->hub->router, zl->id, zl->id_n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
}

static bool send_ctl(struct zlink *zl, unsigned type, uint64_t a, uint64_t b)
{
	unsigned char c[CTL_BYTES];
	put(c, CTL_MAGIC, 4);
	put(c + 4, type, 4);
	put(c + 8, a, 8);
	put(c + 16, b, 8);
	return send_head(zl) &&
	       zmq_send(sock_of(zl), c, sizeof c, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
	       zmq_send(sock_of(zl), "", 0, ZMQ_DONTWAIT) >= 0;
}

static bool send_hello(struct zlink *zl)
{
	return send_ctl(zl, CTL_HELLO, zl->hub->net->o.window, zl->hub->net->o.max_message);
}

static void hub_message_sent(void *data, void *node)
{
	(void)data;
	TAKEN_OVER(node);
	net_node_done(node);
}

/* Takes the node. A message that cannot be sent is done with: the connection is gone then, and its
 * monitor says so. */
static void send_node(struct zlink *zl, struct net_node *node)
{
	zmq_msg_t m;
	void *data = node->data;
	size_t size = node->size;
	if (zl->state != Z_UP || !send_head(zl)) {
		net_node_done(node);
		return;
	}
	HANDED_OVER(node);
	if (!size) {
		zmq_msg_init(&m);
		net_node_done(node);
	} else if (zmq_msg_init_data(&m, data, size, hub_message_sent, node) != 0) {
		/* The head is out and something must follow it: nothing that the peer will read as
		 * a message of ours. */
		net_link_lost(zl->link, ERR_NOMEM, "%s: out of memory while sending",
			      zl->link->address);
		net_node_done(node);
		zmq_msg_init(&m);
		zmq_msg_send(&m, sock_of(zl), ZMQ_SNDMORE | ZMQ_DONTWAIT);
		zmq_msg_init(&m);
	}
	if (zmq_msg_send(&m, sock_of(zl), ZMQ_DONTWAIT) < 0)
		zmq_msg_close(&m);
}

static void close_sockets(struct zlink *zl, int linger_ms)
{
	if (zl->mon) {
		zmq_socket_monitor(zl->sock, NULL, 0);
		zmq_close(zl->mon);
	}
	if (zl->sock) {
		zmq_setsockopt(zl->sock, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
		zmq_close(zl->sock);
	}
	zl->sock = zl->mon = NULL;
	zl->fd = -1;
	zl->cookie = 0;
}

/* The hub is done with a link; it leaves the list in sweep(). */
static void gone(struct zlink *zl, int linger_ms)
{
	if (zl->state == Z_GONE)
		return;
	zl->state = Z_GONE;
	close_sockets(zl, linger_ms);
	for (struct net_node *n = zl->pending, *next; n; n = next) {
		next = n->next;
		net_node_done(n);
	}
	zl->pending = NULL;
	zl->pending_end = &zl->pending;
}

/* Cuts the connection of an accepted link: libzmq has no call for it. The cookie makes sure that it
 * is this very socket. */
static void cut(struct zlink *zl)
{
	if (accepted(zl) && zl->cookie && cookie_of(zl->fd) == zl->cookie)
		shutdown(zl->fd, SHUT_RDWR);
	gone(zl, 0);
}

static void broken(struct zlink *zl, int code, const char *what)
{
	net_link_lost(zl->link, code, "%s: %s", zl->link->address, what);
	cut(zl);
}

/* ---- what arrives --------------------------------------------------------------------------- */

static void flush_pending(struct zlink *zl)
{
	struct net_node *n = zl->pending;
	zl->pending = NULL;
	zl->pending_end = &zl->pending;
	for (struct net_node *next; n; n = next) {
		next = n->next;
		send_node(zl, n);
	}
}

static bool parse_ctl(const void *data, size_t n, unsigned *type_p, uint64_t *a_p, uint64_t *b_p)
{
	const unsigned char *p = data;
	if (n != CTL_BYTES || get(p, 4) != CTL_MAGIC)
		return false;
	*type_p = (unsigned)get(p + 4, 4);
	*a_p = get(p + 8, 8);
	*b_p = get(p + 16, 8);
	return *type_p >= CTL_HELLO && *type_p <= CTL_BYE;
}

static void on_ctl(struct zlink *zl, const void *data, size_t n)
{
	unsigned type;
	uint64_t a, b;
	if (!parse_ctl(data, n, &type, &a, &b)) {
		broken(zl, ERR_PROTOCOL,
		       "the peer does not follow the protocol of links (unknown control message)");
	} else if (type == CTL_HELLO && zl->state == Z_DIALING) {
		zl->state = Z_UP;
		net_link_up(zl->link, a, b, false);
		flush_pending(zl);
	} else if (type == CTL_HELLO) {
		broken(zl, ERR_PROTOCOL,
		       "the peer does not follow the protocol of links (second hello)");
	} else if (type == CTL_CREDIT) {
		net_link_credit(zl->link, a);
	} else if (zl->state == Z_LEAVING) {
		gone(zl, 0);
	} else {
		net_link_lost(zl->link, ERR_NET, "%s: closed by the peer", zl->link->address);
		send_ctl(zl, CTL_BYE, 0, 0);
		gone(zl, 1000);
	}
}

static void on_data(struct zlink *zl, struct net_node *node)
{
	const struct net_options *o = &zl->hub->net->o;
	if (zl->state != Z_UP) {
		net_node_done(node); /* dialling: not said hello; leaving: nobody wants it */
		return;
	}
	zl->arrived += net_cost(node->size);
	uint64_t most = net_slack(o->window) + net_cost(o->max_message);
	if (zl->arrived - zl->told > (o->window > most ? o->window : most)) {
		net_node_done(node);
		broken(zl, ERR_PROTOCOL, "the peer sends more than its window");
	} else if (!net_link_deliver(zl->link, node)) {
		net_node_done(node);
	}
}

/* A connection that nobody knows yet begins with a hello; anything else of it is ignored. */
static void on_stranger(struct hub *h, const void *id, size_t id_n, zmq_msg_t *m)
{
	unsigned type;
	uint64_t window, most;
	if (!parse_ctl(zmq_msg_data(m), zmq_msg_size(m), &type, &window, &most) ||
	    type != CTL_HELLO || id_n > sizeof h->links->id)
		return;
	const char *key = h->net->o.key ? zmq_msg_gets(m, "User-Id") : "";
	const char *from = zmq_msg_gets(m, "Peer-Address");
	if (!key || (h->net->o.key && !key_public_bytes(key, (uint8_t[KEY_BYTES]){ 0 })))
		return;
	/* IPv4 that came in on a socket of both families */
	if (from && !strncmp(from, "::ffff:", 7))
		from += 7;
	struct zlink *zl = mem_zalloc(sizeof *zl);
	if (!zl)
		return;
	zl->link = net_link_new(h->net, from ? from : "?", key);
	if (!zl->link) {
		mem_free(zl);
		return;
	}
	zl->link->priv = zl;
	zl->hub = h;
	zl->state = Z_UP;
	zl->pending_end = &zl->pending;
	memcpy(zl->id, id, id_n);
	zl->id_n = id_n;
	zl->fd = zmq_msg_get(m, ZMQ_SRCFD);
	zl->cookie = cookie_of(zl->fd);
	zl->next = h->links;
	h->links = zl;
	if (h->quitting || !send_hello(zl)) {
		/* Nobody will take it: it was never given out, so the user's reference goes with
		 * ours. */
		zl->shut = true;
		gone(zl, 0);
		link_close(zl->link);
		return;
	}
	net_link_up(zl->link, window, most, true);
}

static void close_msg(void *msg, void *data)
{
	(void)data;
	zmq_msg_close(msg);
}

static struct zlink *by_id(struct hub *h, const void *id, size_t n)
{
	for (struct zlink *zl = h->links; zl; zl = zl->next)
		if (zl->id_n == n && zl->state != Z_GONE && memcmp(zl->id, id, n) == 0)
			return zl;
	return NULL;
}

/* One message of the router (dialled NULL) or of a dialled link; false when there is none. */
static bool receive(struct hub *h, struct zlink *dialled)
{
	void *s = dialled ? dialled->sock : h->router;
	struct zlink *zl = dialled;
	zmq_msg_t id, spare;
	if (!s)
		return false;
	zmq_msg_init(&id);
	if (!dialled && zmq_msg_recv(&id, s, ZMQ_DONTWAIT) < 0)
		return false;
	struct net_node *node = net_node_new(h->net->pool);
	zmq_msg_t *m = node ? (zmq_msg_t *)(void *)node->room : &spare;
	zmq_msg_init(m);
	bool got = zmq_msg_recv(m, s, ZMQ_DONTWAIT) >= 0, whole = true;
	for (int more = got && zmq_msg_more(m); more; whole = false) {
		zmq_msg_t rest;
		zmq_msg_init(&rest);
		more = zmq_msg_recv(&rest, s, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
		zmq_msg_close(&rest);
	}
	if (got && !dialled) {
		zl = by_id(h, zmq_msg_data(&id), zmq_msg_size(&id));
		/* A routing id can be claimed by a later connection of another listed peer. */
		const char *key = zl && h->net->o.key ? zmq_msg_gets(m, "User-Id") : NULL;
		if (zl && h->net->o.key && !(key && key_equal(key, zl->link->peer)))
			got = false;
		else if (!zl && !whole)
			on_stranger(h, zmq_msg_data(&id), zmq_msg_size(&id), m);
	}
	zmq_msg_close(&id);
	if (got && zl && whole && node) {
		node->data = zmq_msg_data(m);
		node->size = zmq_msg_size(m);
		node->ctx = m;
		node->release = close_msg;
		on_data(zl, node);
		return true;
	}
	if (got && zl && whole)
		broken(zl, ERR_NOMEM, "out of memory while receiving");
	else if (got && zl)
		on_ctl(zl, zmq_msg_data(m), zmq_msg_size(m));
	zmq_msg_close(m);
	if (node)
		net_node_free(node);
	return got || !dialled;
}

/* ---- connections ---------------------------------------------------------------------------- */

static void dial(struct zlink *zl)
{
	struct err e;
	int rc = hub_socket(zl->hub, ZMQ_DEALER, zl->endpoint, zl->link->peer, &zl->sock, &e);
	if (rc == 0) {
		zl->mon = hub_monitor(zl->hub, zl->sock);
		if (zl->mon && zmq_connect(zl->sock, zl->endpoint) == 0 && send_hello(zl))
			return;
		rc = err_set(&e, ERR_NET, "cannot connect: %s", zmq_strerror(zmq_errno()));
	}
	net_link_lost(zl->link, rc, "%s: %s", zl->link->address, e.msg);
	gone(zl, 0);
}

static bool next_event(void *mon, unsigned *event_p, unsigned *value_p)
{
	zmq_msg_t m;
	zmq_msg_init(&m);
	bool ok = zmq_msg_recv(&m, mon, ZMQ_DONTWAIT) == 6;
	if (ok) {
		uint16_t event;
		uint32_t value;
		memcpy(&event, zmq_msg_data(&m), 2);
		memcpy(&value, (const char *)zmq_msg_data(&m) + 2, 4);
		*event_p = event;
		*value_p = value;
		zmq_msg_close(&m);
		zmq_msg_init(&m);
		zmq_msg_recv(&m, mon, ZMQ_DONTWAIT); /* the address it is about */
	}
	zmq_msg_close(&m);
	return ok;
}

static void on_dialled_events(struct zlink *zl, int64_t now)
{
	unsigned event, value;
	bool refused = false, other_kind = false, broke = false, down = false;
	while (zl->mon && next_event(zl->mon, &event, &value)) {
		if (event == ZMQ_EVENT_CONNECTED) {
			zl->fd = (int)value;
			zl->cookie = cookie_of(zl->fd);
		}
		refused |= event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
		other_kind |= event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
			      value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
		broke |= event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
			 event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
		down |= event == ZMQ_EVENT_DISCONNECTED || event == ZMQ_EVENT_CLOSED ||
			event == ZMQ_EVENT_CONNECT_RETRIED;
	}
	const char *at = zl->link->address;
	if (zl->state != Z_DIALING) {
		if (down && !zl->suspect)
			zl->suspect = now;
		return;
	}
	zl->failures = broke ? zl->failures + 1 : zl->failures;
	if (refused)
		net_link_lost(zl->link, ERR_NET,
			      "%s: refused: this machine's public key %s is not on its list", at,
			      zl->has_key ? zl->hub->net->o.key->pub : "(none)");
	else if (other_kind)
		net_link_lost(zl->link, ERR_NET, "%s: one side has a key, the other none", at);
	else if (zl->failures >= 3 && zl->has_key)
		net_link_lost(zl->link, ERR_NET,
			      "%s: it broke off the handshake: its key is not the expected one, "
			      "%s, or it is no heteroshard",
			      at, zl->link->peer);
	else if (zl->failures >= 3)
		net_link_lost(zl->link, ERR_NET,
			      "%s: it broke off the handshake: one side has a key, the other none, "
			      "or it is no heteroshard",
			      at);
	if (refused || other_kind || zl->failures >= 3) {
		gone(zl, 0);
	} else if (broke || down) {
		close_sockets(zl, 0);
		zl->retry_at = now + RETRY;
	}
}

static void on_router_events(struct hub *h, int64_t now)
{
	unsigned event, value;
	while (h->router_mon && next_event(h->router_mon, &event, &value)) {
		if (event != ZMQ_EVENT_DISCONNECTED)
			continue;
		for (struct zlink *zl = h->links; zl; zl = zl->next)
			if (accepted(zl) && zl->fd == (int)value && !zl->suspect)
				zl->suspect = now;
	}
}

/* A connection is reported broken a moment before libzmq hands over the last of what came through
 * it, and what is reported is the number of an fd, which may belong to a newer connection by now.
 * So: find out whether it is really gone, then take what is there, then lose it. The router refuses
 * a routing id that is gone; a dialled socket cannot tell, but its events are about nobody else. */
static void check_suspect(struct zlink *zl, int64_t now)
{
	struct hub *h = zl->hub;
	bool is_gone;
	if (accepted(zl))
		is_gone = !send_ctl(zl, CTL_CREDIT, 0, 0);
	else
		is_gone = !zl->cookie || cookie_of(zl->fd) != zl->cookie ||
			  now - zl->suspect > 20 * MS;
	if (is_gone) {
		while (zl->state != Z_GONE && receive(h, accepted(zl) ? NULL : zl))
			;
		net_link_lost(zl->link, ERR_NET, "%s: the connection broke", zl->link->address);
		gone(zl, 0);
	} else if (now - zl->suspect > 500 * MS) {
		zl->suspect = 0;
	}
}

static void check_silence(struct zlink *zl)
{
	double limit = zl->hub->net->o.peer_timeout;
	uint64_t ms = silent_ms(zl);
	if (!((double)ms > limit * 1e3))
		return;
	net_link_lost(zl->link, ERR_NET, "%s: said nothing for %.1f s", zl->link->address,
		      (double)ms * 1e-3);
	cut(zl);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* What users asked for since the last time. */
static void take_orders(struct hub *h)
{
	pthread_mutex_lock(&h->lock);
	h->busy = false;
	h->quitting = h->quit;
	struct net_node *out = h->out;
	h->out = NULL;
	h->out_end = &h->out;
	while (h->fresh) {
		struct zlink *zl = h->fresh;
		h->fresh = zl->next;
		zl->next = h->links;
		h->links = zl;
	}
	if (h->new_router) {
		h->router = h->new_router;
		h->router_mon = h->new_router_mon;
		h->new_router = h->new_router_mon = NULL;
	}
	for (struct zlink *zl = h->links; zl; zl = zl->next) {
		zl->shut_now = zl->shut;
		zl->tell = zl->untold > net_slack(h->net->o.window) ? zl->untold : 0;
		zl->untold -= zl->tell;
	}
	pthread_mutex_unlock(&h->lock);
	for (struct net_node *next; out; out = next) {
		next = out->next;
		struct zlink *zl = ((struct zsend *)(void *)out->room)->zl;
		struct link *l = zl->link;
		if (zl->state == Z_DIALING) {
			out->next = NULL;
			*zl->pending_end = out;
			zl->pending_end = &out->next;
		} else {
			send_node(zl, out);
		}
		net_link_unref(l);
	}
	for (struct zlink *zl = h->links; zl; zl = zl->next) {
		if (zl->tell && zl->state == Z_UP) {
			zl->told += zl->tell;
			send_ctl(zl, CTL_CREDIT, zl->tell, 0);
		}
		if (zl->shut_now && zl->state == Z_DIALING)
			gone(zl, 0);
		if (zl->shut_now && zl->state == Z_UP) {
			zl->state = Z_LEAVING;
			if (!send_ctl(zl, CTL_BYE, 0, 0))
				gone(zl, 0);
		}
	}
}

/* Lets go of the links that are over. */
static void sweep(struct hub *h)
{
	for (struct zlink **p = &h->links; *p;) {
		struct zlink *zl = *p;
		if (zl->state != Z_GONE) {
			p = &zl->next;
			continue;
		}
		*p = zl->next;
		net_link_lost(zl->link, ERR_NET, "%s: closed", zl->link->address);
		net_link_unref(zl->link);
	}
}

/* What is due by the clock; the moment at which something will be due next. */
static int64_t timers(struct hub *h, int64_t now)
{
	int64_t next = h->quitting ? h->quit_by : NET_FOREVER;
	bool tick = now >= h->next_check;
	if (tick) {
		double every = h->net->o.peer_timeout / 8;
		h->next_check = now + (int64_t)((every < 0.01 ? 0.01
						 : every > 1  ? 1
							      : every) *
						1e9);
	}
	for (struct zlink *zl = h->links; zl; zl = zl->next) {
		if (zl->state == Z_DIALING && now >= zl->dial_deadline)
			gone(zl, 0); /* the core tells the user */
		if (zl->state == Z_DIALING && !zl->sock && now >= zl->retry_at)
			dial(zl);
		if (zl->state == Z_DIALING) {
			next = zl->dial_deadline < next ? zl->dial_deadline : next;
			if (!zl->sock)
				next = zl->retry_at < next ? zl->retry_at : next;
		}
		if (zl->suspect && (zl->state == Z_UP || zl->state == Z_LEAVING))
			check_suspect(zl, now);
		if (tick && (zl->state == Z_UP || zl->state == Z_LEAVING))
			check_silence(zl);
		if (zl->suspect && zl->state != Z_GONE)
			next = now + MS;
	}
	if (h->links && h->next_check < next)
		next = h->next_check;
	return next;
}

static int64_t poll_sockets(struct hub *h, int64_t next)
{
	size_t n = 0, need = 4;
	for (struct zlink *zl = h->links; zl; zl = zl->next)
		need += 2;
	if (!mem_grow(&h->items, &h->items_cap, need, sizeof(zmq_pollitem_t))) {
		/* Nothing to wait with: look at everything after a while. */
		usleep(1000);
		return clock_now();
	}
	zmq_pollitem_t *it = h->items;
	it[n++] = (zmq_pollitem_t){ .fd = h->wake_fd, .events = ZMQ_POLLIN };
	if (h->zap)
		it[n++] = (zmq_pollitem_t){ .socket = h->zap, .events = ZMQ_POLLIN };
	if (h->router)
		it[n++] = (zmq_pollitem_t){ .socket = h->router, .events = ZMQ_POLLIN };
	if (h->router_mon)
		it[n++] = (zmq_pollitem_t){ .socket = h->router_mon, .events = ZMQ_POLLIN };
	for (struct zlink *zl = h->links; zl; zl = zl->next) {
		if (zl->sock)
			it[n++] = (zmq_pollitem_t){ .socket = zl->sock, .events = ZMQ_POLLIN };
		if (zl->mon)
			it[n++] = (zmq_pollitem_t){ .socket = zl->mon, .events = ZMQ_POLLIN };
	}
	pthread_mutex_lock(&h->lock);
	h->asleep = !h->busy;
	bool sleep = h->asleep;
	pthread_mutex_unlock(&h->lock);
	int64_t ns = next == NET_FOREVER ? -1 : next - clock_now();
	long ms = !sleep                ? 0
		  : next == NET_FOREVER ? -1
		  : ns <= 0             ? 0
		  : ns > 3600000 * MS   ? 3600000
					: (long)((ns + MS - 1) / MS);
	zmq_poll(it, (int)n, ms);
	pthread_mutex_lock(&h->lock);
	h->asleep = false;
	pthread_mutex_unlock(&h->lock);
	uint64_t count;
	if (sleep && read(h->wake_fd, &count, sizeof count) < 0)
		count = 0; /* not woken: something else came */
	return clock_now();
}

void *hub_main(void *hub)
{
	struct hub *h = hub;
	pthread_setname_np(pthread_self(), "hs-net");
	int64_t now = clock_now();
	for (;;) {
		take_orders(h);
		int64_t next = timers(h, now);
		sweep(h);
		if (h->quitting && (!h->links || now >= h->quit_by))
			break;
		now = poll_sockets(h, next);
		if (h->zap)
			zmq_auth_answer(h);
		for (struct zlink *zl = h->links; zl; zl = zl->next) {
			for (int i = 0; i < BATCH && zl->sock && receive(h, zl); i++)
				;
			if (zl->mon)
				on_dialled_events(zl, now);
		}
		for (int i = 0; i < BATCH && receive(h, NULL); i++)
			;
		on_router_events(h, now);
	}
	/* What was said last, BYEs among it, is still to be written; past the deadline it no longer
	 * matters. */
	int linger = h->links ? 0 : 1000;
	while (h->links) {
		for (struct zlink *zl = h->links; zl; zl = zl->next)
			gone(zl, 0);
		sweep(h);
	}
	if (h->router_mon) {
		zmq_socket_monitor(h->router, NULL, 0);
		zmq_close(h->router_mon);
	}
	if (h->router) {
		zmq_setsockopt(h->router, ZMQ_LINGER, &linger, sizeof linger);
		zmq_close(h->router);
	}
	if (h->zap)
		zmq_close(h->zap);
	return NULL;
}
