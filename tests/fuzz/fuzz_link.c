/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_link.c - a connection of the tls transport against whatever its other end does: the first
 * bytes of a handshake, broken records, heads and messages in any order, over a socket pair.
 *
 * Byte 0 chooses: 1 with keys, 2 the connection dialled, 4 the other end shakes hands properly, 8
 * and says a proper hello. Then orders follow, one byte each with what it needs. Whatever comes,
 * the connection ends or goes on, takes no more than its limits, and gives everything back. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "fuzz/small.h"
#include "net/tls_conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WINDOW = 1 << 14, LARGEST = 1 << 13, MOST_ORDERS = 64 };

static struct key_pair key[2];
static struct net *nets[2];
static struct crypt_ctx *keys[2]; /* ours, theirs */
static struct log_limit no_log = { .since = INT64_MAX / 2, .said = LOG_LIMIT };

struct end {
	struct conn *c; /* ours */
	int fd;         /* theirs */
	struct crypt_io io;
	struct crypt *crypt;
	int64_t now;
};

static bool anybody(void *ctx, const char *shown)
{
	(void)ctx;
	return shown[0] != 0;
}

static void begin_all(void)
{
	struct err e;
	const struct net_options plain = { .window = WINDOW, .max_message = LARGEST };
	struct net_options keyed = plain;
	keyed.key = &key[0];
	for (int i = 0; i < 2; i++)
		if (key_pair_generate(&key[i], &e) < 0 || crypt_ctx_new(&key[i], &keys[i], &e) < 0)
			abort();
	if (net_open("tls", &plain, &nets[0], &e) < 0 ||
	    net_open("tls", &keyed, &nets[1], &e) < 0 || net_allow(nets[1], key[1].pub, &e) < 0)
		abort();
}

/* The other end says bytes, through its encryption where it has one. */
static void say(struct end *x, const void *p, size_t n)
{
	if (x->crypt && n) {
		crypt_write(x->crypt, p, n);
		crypt_flush(x->crypt);
	} else if (n && send(x->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		return;
	}
}

static void hear(struct end *x)
{
	char dropped[8192];
	if (x->crypt)
		while (crypt_read(x->crypt, dropped, sizeof dropped) > 0)
			;
	else
		while (recv(x->fd, dropped, sizeof dropped, MSG_DONTWAIT) > 0)
			;
}

static void turn(struct end *x)
{
	struct conn *c = x->c;
	struct link_stats s;
	if (c->state == CONN_GONE)
		return;
	conn_work(c, true, x->now++);
	if (c->state > CONN_GONE || (!c->io.known && c->io.in > CONN_LIMIT))
		abort();
	if (c->link) {
		link_stats(c->link, &s);
		if (s.queued_in > WINDOW + LARGEST || s.in_flight > WINDOW + LARGEST)
			abort();
	}
	hear(x);
}

/* A message of the user's, as the hub queues it. */
static void user_sends(struct end *x, unsigned n)
{
	struct conn *c = x->c;
	struct net_node *node = c->state == CONN_UP ? net_node_new(c->net->pool) : NULL;
	if (!node)
		return;
	node->data = net_pool_buffer(c->net->pool, n);
	node->size = n;
	node->release = net_buffer_release;
	if (!node->data)
		abort();
	memset(node->data, 7, n);
	node->next = NULL;
	*c->out_end = node;
	c->out_end = &node->next;
}

static void orders(struct end *x, struct feed *in)
{
	unsigned char head[HEAD_BYTES];
	static const unsigned char zeros[LARGEST];
	for (int i = 0; i < MOST_ORDERS && in->n; i++) {
		unsigned what = feed_byte(in), n = feed_byte(in);
		const uint8_t *p;
		switch (what % 8) {
		case 0: /* any bytes */
			n = (unsigned)feed_bytes(in, n, &p);
			say(x, p, n);
			break;
		case 1: /* any bytes, past the encryption */
			n = (unsigned)feed_bytes(in, n, &p);
			if (n && send(x->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
				return;
			break;
		case 2: /* a head */
			head_write(head, (enum head_type)(n % 10), feed_byte(in), 0);
			say(x, head, sizeof head);
			break;
		case 3: /* a message */
			n = n * 32 % LARGEST;
			head_write(head, HEAD_MESSAGE, n, 0);
			say(x, head, sizeof head);
			say(x, zeros, n);
			break;
		case 4:
			user_sends(x, n * 32);
			break;
		case 5:
			conn_leave(x->c, x->now);
			break;
		case 6: /* numbers at their ends */
			head_write(head, (enum head_type)(n % 10), UINT64_MAX - feed_byte(in),
				   n & 64 ? UINT64_MAX : 0);
			say(x, head, sizeof head);
			break;
		default:
			shutdown(x->fd, SHUT_WR);
		}
		turn(x);
	}
}

static void shake(struct end *x, bool server)
{
	x->io = (struct crypt_io){ .fd = x->fd, .known = true };
	x->crypt = crypt_new(keys[1], server, &x->io, anybody, NULL);
	for (int i = 0; x->crypt && i < 8; i++) {
		int rc = crypt_handshake(x->crypt);
		if (x->c->state != CONN_GONE)
			conn_work(x->c, true, x->now++);
		if (rc < 0)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd[2];
	struct feed in = { data, size };
	unsigned how = feed_byte(&in);
	bool keyed = how & 1, dials = how & 2;
	if (!nets[0])
		begin_all();
	struct net *n = nets[keyed];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	struct end x = { .c = conn_new(n, keyed ? keys[0] : NULL, &no_log), .fd = fd[1], .now = 1 };
	struct conn *c = x.c;
	if (!c)
		abort();
	c->accepted = !dials;
	c->closed = true; /* the net's own thread has nothing to do with it */
	c->hub = n->priv;
	if (dials) {
		c->link = net_link_new(n, "there", keyed ? key[1].pub : "");
		if (!c->link)
			abort();
		c->link->priv = c;
	}
	conn_begin(c, fd[0], x.now);
	if (keyed && how & 4)
		shake(&x, dials);
	if (how & 8) {
		unsigned char head[HEAD_BYTES];
		head_write(head, HEAD_HELLO, WINDOW, LARGEST);
		say(&x, head, sizeof head);
		turn(&x);
	}
	orders(&x, &in);
	conn_break(c, ERR_NET, "over");
	struct link *l = c->link;
	crypt_free(x.crypt);
	close(fd[1]);
	if (l) {
		link_close(l);
		net_link_unref(l); /* the last one: it frees the connection */
	} else {
		conn_free(c);
	}
	return 0;
}
