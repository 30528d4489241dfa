/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_link.c - a connection of the transports tls and shm against whatever its other end does:
 * the first bytes of a handshake, broken records, heads, messages and shared memory in any order,
 * over a socket pair.
 *
 * Byte 0 chooses: 1 with keys, 2 the connection dialled, 4 the other end shakes hands properly, 8
 * and says a proper hello, 16 it is a process of this machine (shm), 32 what comes before
 * link_take() is limited, 64 memory runs out while the two meet, 128 the other end has a key that
 * is not on the list. Then orders follow, one byte each with what it needs. Whatever comes, the
 * connection ends or goes on, takes no more than its limits, and gives everything back. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "fuzz/small.h"
#include "net/tls_conn.h"
#include "net/tls_others.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WINDOW = 1 << 16, LARGEST = 1 << 15, MOST_ORDERS = 64, BEFORE_TAKE = 2048 };

static struct key_pair key[3];
static struct net *nets[2];
static struct crypt_ctx *keys[3]; /* ours, theirs, a stranger's */
static struct log_limit no_log;

struct end {
	struct conn *c; /* ours */
	int fd;         /* theirs */
	struct crypt_io io;
	struct crypt *crypt;
	bool near;
	struct proof proof;
	const struct key_pair *key; /* theirs */
	uint64_t took;              /* by the user, and not credited yet */
	int64_t now;
};

static bool anybody(void *ctx, const char *shown)
{
	(void)ctx;
	return shown[0] != 0;
}

static void quiet(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static void begin_all(void)
{
	struct err e;
	log_set_sink(quiet, NULL, LOG_ERROR);
	crypt_rekey_after = 40;
	const struct net_options plain = { .window = WINDOW, .max_message = LARGEST };
	struct net_options keyed = plain;
	keyed.key = &key[0];
	for (int i = 0; i < 3; i++)
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

/* A head, with the descriptor of memory of `pages` pages, sealed or not. */
static void say_memory(struct end *x, const unsigned char head[HEAD_BYTES], unsigned pages,
		       unsigned seals)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { .iov_base = (void *)(uintptr_t)head, .iov_len = HEAD_BYTES };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)pages * 4096) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0)
		abort();
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	if (sendmsg(x->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		x->now++; /* it is closed */
	close(fd);
}

/* The user takes what has come, and reads all of it. */
static void user_takes(struct end *x)
{
	struct net_msg m;
	unsigned sum = 0;
	if (!x->c->link)
		return;
	/* not through the hub, which does not know this connection */
	while (x->c->link->in) {
		struct net_node *node = x->c->link->in;
		x->c->link->in = node->next;
		if (!node->next)
			x->c->link->in_end = &x->c->link->in;
		x->c->link->stats.queued_in -= node->size;
		x->took += net_cost(node->size);
		m = (struct net_msg){ .data = node->data, .size = node->size, .handle = node };
		for (size_t i = 0; i < m.size; i += 61)
			sum += ((unsigned char *)m.data)[i];
		net_msg_release(&m);
	}
	x->now += sum == 1;
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
	if (c->waits && c->link && c->link->stats.queued_in > BEFORE_TAKE)
		abort();
	if (c->link) {
		link_stats(c->link, &s);
		if (s.queued_in > WINDOW + LARGEST || s.in_flight > WINDOW + LARGEST)
			abort();
	}
	hear(x);
}

/* A message of the user's, or its credit, as the hub queues it, or as a user's thread sends it. */
static void user_sends(struct end *x, unsigned n, bool credit, bool pushes)
{
	struct conn *c = x->c;
	bool more;
	struct net_node *node = c->state == CONN_UP ? net_node_new(c->net->pool) : NULL;
	if (!node)
		return;
	node->size = n;
	if (credit) {
		node->at = CONN_CREDIT;
		node->size = x->took;
		x->took = 0;
	} else {
		node->data = net_pool_buffer(c->net->pool, n);
		node->release = net_buffer_release;
		if (!node->data) {
			net_node_free(node);
			return;
		}
		memset(node->data, 7, n);
		conn_share(c, node);
	}
	if (pushes) {
		pthread_mutex_lock(&c->own);
		if (!conn_push(c, node, &more))
			abort();
		pthread_mutex_unlock(&c->own);
		return;
	}
	*c->out_end = node;
	c->out_end = &node->next;
}

/* ---- several connections of one link ---- */

enum { PLACES = 3, SMALL = 200 };
static struct conn *first; /* of the link that ours may join; made when it asks */

/* It has announced one more message, which one of its connections carries whole. */
static void announced(void)
{
	const struct head h = { HEAD_PIECE, SMALL, first->parallel->announced };
	if (first->state == CONN_UP && h.b < 8)
		others_announce(first, &h);
	first->in = NULL; /* its own piece never comes */
}

static struct parallel *find(struct conn *c, uint64_t id)
{
	if (id != 1 || first)
		return first && id == 1 ? first->parallel : NULL;
	struct conn *f = conn_new(c->net, c->keys, &no_log);
	struct parallel *p = f ? parallel_new(PLACES, 1) : NULL;
	struct link *l = p ? net_link_new(c->net, "first", c->peer) : NULL;
	if (!l) {
		parallel_free(p);
		if (f)
			conn_free(f);
		return NULL;
	}
	f->accepted = f->closed = true;
	f->hub = c->hub;
	f->link = l;
	f->state = CONN_UP;
	f->parallel = p;
	p->conn[0] = f;
	l->priv = f;
	first = f;
	announced();
	announced();
	return p;
}

static void first_ends(void)
{
	struct link *l = first->link;
	conn_break(first, ERR_NET, "over");
	first = NULL;
	link_close(l);
	net_link_unref(l);
}

static void say_several(unsigned char head[HEAD_BYTES], unsigned n, struct feed *in)
{
	static const uint64_t sizes[] = { 0, 1, SMALL, LARGEST, LARGEST + 1, UINT64_MAX };
	unsigned a = feed_byte(in), b = feed_byte(in);
	enum head_type type = (enum head_type)(HEAD_PARALLEL + n % 3);
	head_write(head, type, type == HEAD_PIECE ? sizes[a % 6] : a % 16,
		   b == 255 ? UINT64_MAX : b % 16);
}

static void orders(struct end *x, struct feed *in)
{
	unsigned char head[HEAD_BYTES];
	static const unsigned char zeros[LARGEST];
	for (int i = 0; i < MOST_ORDERS && in->n; i++) {
		unsigned what = feed_byte(in), n = feed_byte(in);
		const uint8_t *p;
		if (!x->near && what % 16 >= 8 && what % 16 <= 10)
			what = 3;
		switch (what % 16) {
		case 0: /* any bytes */
			n = (unsigned)feed_bytes(in, n, &p);
			say(x, p, n);
			break;
		case 1: /* any bytes, past the encryption */
			n = (unsigned)feed_bytes(in, n, &p);
			if (n && send(x->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
				return;
			break;
		case 2: /* a head, or one about several connections */
			if (n < 192)
				head_write(head, (enum head_type)(n % 12), feed_byte(in), 0);
			else
				say_several(head, n, in);
			say(x, head, sizeof head);
			break;
		case 3: /* a message */
			n = n * 32 % LARGEST;
			head_write(head, HEAD_MESSAGE, n, 0);
			say(x, head, sizeof head);
			say(x, zeros, n);
			break;
		case 4:
			user_sends(x, n * 128, false, false);
			break;
		case 5:
			conn_leave(x->c, x->now);
			break;
		case 6: /* numbers at their ends */
			head_write(head, (enum head_type)(n % 12), UINT64_MAX - feed_byte(in),
				   n & 64 ? UINT64_MAX : 0);
			say(x, head, sizeof head);
			break;
		case 7:
			shutdown(x->fd, SHUT_WR);
			break;
		case 8: /* memory: of the size that is said, or not; sealed, or not */
			head_write(head, HEAD_MEMORY, (n % 8 + (n & 8 ? 1 : 0)) * 4096u, n >> 4);
			say_memory(x, head, n % 8, feed_byte(in) % 8 ? 6 : n % 8);
			break;
		case 9:
			head_write(head, HEAD_SHARED, feed_byte(in) * 128u, n % 17);
			say(x, head, sizeof head);
			break;
		case 10:
			head_write(head, HEAD_DROP, 0, n % 17);
			say(x, head, sizeof head);
			break;
		case 11:
			user_takes(x);
			break;
		case 12:
			conn_take(x->c, x->now);
			if (first && x->c->place)
				announced();
			conn_go_on(x->c, x->now);
			break;
		case 13:
			user_sends(x, n * 128, false, true);
			break;
		case 14:
			user_sends(x, 0, true, n & 1);
			break;
		default:
			mem_fail_after(1 + n % 4);
		}
		turn(x);
		if (what % 16 != 15)
			mem_fail_after(0);
	}
	mem_fail_after(0);
}

/* The other end's part of the first bytes over a Unix socket. */
static void shake_near(struct end *x, bool listens, bool keyed)
{
	proof_begin(&x->proof, listens, keyed ? x->key : NULL, getpid());
	for (int i = 0; i < 8 && x->c->state != CONN_GONE; i++) {
		int rc = proof_work(&x->proof, &x->io, anybody, NULL);
		conn_work(x->c, true, x->now++);
		if (rc != IO_LATER)
			break;
	}
}

static void shake(struct end *x, bool server, bool keyed)
{
	x->io = (struct crypt_io){ .fd = x->fd, .known = true };
	if (x->near) {
		shake_near(x, server, keyed);
		return;
	}
	x->crypt = crypt_new(keys[x->key - key], server, &x->io, anybody, NULL);
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
	mem_fail_after(0); /* of the last input */
	if (!nets[0])
		begin_all();
	struct net *n = nets[keyed];
	n->o.before_take = how & 32 ? BEFORE_TAKE : 0;
	no_log = (struct log_limit){ 0 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	const bool near = how & 16;
	struct end x = { .c = conn_new(n, keyed ? keys[0] : NULL, &no_log),
			 .fd = fd[1],
			 .now = 1,
			 .key = &key[how & 128 ? 2 : 1] };
	struct conn *c = x.c;
	if (!c)
		abort();
	c->accepted = !dials;
	c->closed = true; /* the net's own thread has nothing to do with it */
	c->find = find;
	c->hub = n->priv;
	if (dials) {
		c->link = net_link_new(n, "there", keyed ? key[1].pub : "");
		if (!c->link)
			abort();
		c->link->priv = c;
	}
	x.near = near;
	if (near)
		conn_begin_near(c, fd[0], getpid(), x.now);
	else
		conn_begin(c, fd[0], x.now);
	if (how & 64)
		mem_fail_after(1 + feed_byte(&in) % 8);
	if ((keyed || near) && how & 4)
		shake(&x, dials, keyed);
	if (how & 8) {
		unsigned char head[HEAD_BYTES];
		head_write(head, HEAD_HELLO, WINDOW, LARGEST);
		say(&x, head, sizeof head);
		turn(&x);
	}
	mem_fail_after(0);
	orders(&x, &in);
	conn_break(c, ERR_NET, "over");
	struct link *l = c->link;
	crypt_free(x.crypt);
	close(fd[1]);
	if (l && c->place) {
		net_link_unref(l); /* the one that it joined */
	} else if (l) {
		link_close(l);
		net_link_unref(l); /* the last one: it frees the connection */
	} else {
		conn_free(c);
	}
	if (first)
		first_ends();
	return 0;
}
