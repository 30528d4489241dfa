/* SPDX-License-Identifier: Apache-2.0 */
/* tls_conn.c - see tls_conn.h. */
#include "net/tls_conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/shm_memory.h"
#include "net/shm_pass.h"
#include "net/tls_out.h"

enum {
	AHEAD = 64 << 10, /* plain reads of less than this are made at once */
	ACCEPTS = 256,    /* links that wait for net_accept */
};

/* ---- life ----------------------------------------------------------------------------------- */

struct conn *conn_new(struct net *n, struct crypt_ctx *keys, struct log_limit *log)
{
	struct conn *c = mem_zalloc(sizeof *c);
	if (!c)
		return NULL;
	c->net = n;
	c->keys = keys;
	c->log = log;
	c->io.fd = -1;
	c->stage = c->first;
	c->stage_cap = sizeof c->first;
	c->out_end = &c->out;
	c->fresh_end = &c->fresh;
	c->stage_fd = -1;
	/* work on a connection can lead back to the same connection */
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&c->own, &a);
	pthread_mutexattr_destroy(&a);
	return c;
}

static void close_fds(struct conn *c)
{
	while (c->nfds)
		close(c->fd[--c->nfds]);
	if (c->stage_fd >= 0)
		close(c->stage_fd);
	c->stage_fd = -1;
}

void conn_reset(struct conn *c)
{
	crypt_free(c->crypt);
	c->crypt = NULL;
	/* A child process that is just being started has the socket too, so closing it is not
	 * enough. */
	if (c->watched)
		epoll_ctl(c->watcher, EPOLL_CTL_DEL, c->io.fd, NULL);
	c->watched = 0;
	if (c->io.fd >= 0)
		close(c->io.fd);
	c->io = (struct crypt_io){ .fd = -1 };
	close_fds(c);
	if (c->in)
		net_node_done(c->in);
	c->in = NULL;
	c->head_n = c->in_n = c->ahead_at = c->ahead_n = c->stage_at = c->stage_n = 0;
	c->skip = 0;
	c->hello_due = c->alive_due = c->ping_due = c->refusal_due = false;
	c->blocked = c->more_in = c->more_out = c->mute = false;
	c->near = c->waits = c->held = c->inside = c->agreed = false;
}

static void gone(struct conn *c)
{
	c->state = CONN_GONE;
	conn_reset(c);
	out_drop(c);
	if (c->mem_out)
		shm_out_end(c->mem_out);
	if (c->mem_in)
		shm_in_end(c->mem_in);
	c->mem_in = NULL;
}

void conn_free(struct conn *c)
{
	gone(c);
	if (c->stage != c->first)
		mem_free(c->stage);
	mem_free(c->ahead);
	if (c->mem_out)
		shm_out_free(c->mem_out);
	pthread_mutex_destroy(&c->own);
	mem_free(c);
}

void conn_break(struct conn *c, int code, const char *what)
{
	if (c->link)
		net_link_lost(c->link, code, "%s: %s", c->link->address, what);
	gone(c);
}

static void wrong(struct conn *c, const char *what)
{
	char text[240];
	snprintf(text, sizeof text, "the peer does not follow the protocol of links (%s)", what);
	conn_break(c, ERR_PROTOCOL, text);
}

/* A connection that is not up ends. Dialled: the hub decides whether to try again. Accepted: the
 * peer may still read the reason. */
static void fails(struct conn *c, enum conn_end end)
{
	c->end = end;
	if (!c->accepted || end == END_RESET || end == END_MEMORY) {
		c->state = CONN_GONE;
		return;
	}
	c->state = CONN_DRAINING;
	crypt_free(c->crypt);
	c->crypt = NULL;
	shutdown(c->io.fd, SHUT_WR);
}

/* ---- strangers ------------------------------------------------------------------------------ */

/* Whether the key that a peer shows is the right one. */
static bool accept_key(void *conn, const char *key)
{
	struct conn *c = conn;
	memcpy(c->peer, key, strlen(key) + 1);
	if (!c->accepted && key_equal(key, c->link->peer))
		return true;
	if (c->accepted && net_is_allowed(c->net, key))
		return true;
	if (c->accepted && !c->near && net_admits(c->net))
		return c->unproven = true;
	if (!c->accepted)
		c->end = END_WRONG_KEY;
	else if (log_limit_allows(c->log, c->now))
		log_warn("refused a connection from %s: its public key %s is not on this machine's "
			 "list",
			 c->from, key);
	return false;
}

/* ---- in ------------------------------------------------------------------------------------- */

/* Bytes from a Unix socket, with the descriptors that come along. */
static int64_t near_read(struct conn *c, void *p, size_t n)
{
	int fd = -1;
	int64_t k = pass_read(&c->io, p, n, &fd);
	if (fd >= 0 && c->nfds < CONN_FDS)
		c->fd[c->nfds++] = fd;
	else if (fd >= 0)
		close(fd); /* more descriptors than fit: the head that needs this one finds none */
	return k;
}

static int64_t read_plain(struct conn *c, void *p, size_t n)
{
	return c->near && conn_is_up(c) ? near_read(c, p, n) : crypt_plain_read(&c->io, p, n);
}

static int64_t get(struct conn *c, void *p, size_t n)
{
	int64_t k;
	if (c->crypt) {
		k = crypt_read(c->crypt, p, n);
	} else if (c->ahead_at < c->ahead_n) {
		k = (int64_t)(n < c->ahead_n - c->ahead_at ? n : c->ahead_n - c->ahead_at);
		memcpy(p, c->ahead + c->ahead_at, (size_t)k);
		c->ahead_at += (size_t)k;
		return k;
	} else if (c->ahead && n < AHEAD) {
		k = read_plain(c, c->ahead, AHEAD);
		if (k > 0) {
			c->ahead_at = 0;
			c->ahead_n = (size_t)k;
			c->last_in = c->now;
			return get(c, p, n);
		}
	} else {
		k = read_plain(c, p, n);
	}
	if (k > 0)
		c->last_in = c->now;
	return k;
}

/* The bytes of its peer's memory that a side with these options maps at most. */
static uint64_t most_shared(uint64_t window, uint64_t max_message)
{
	uint64_t most;
	return add_ok(window, max_message, &most) && most < UINT64_MAX / 4 ? most : UINT64_MAX / 4;
}

/* Memory for both directions; false: there is none. */
static bool make_memory(struct conn *c, const struct head *h)
{
	const struct net_options *o = &c->net->o;
	uint64_t window = h->a < o->window ? h->a : o->window;
	struct shm_out *out = shm_out_new(most_shared(h->a, h->b), window, c->net->pins);
	c->mem_in = shm_in_new(most_shared(o->window, o->max_message), c->net->pins);
	/* users' threads look at it */
	__atomic_store_n(&c->mem_out, out, __ATOMIC_RELEASE);
	return c->mem_in && out;
}

/* Large buffers for what is read and written. false: memory is out. */
static bool make_buffers(struct conn *c)
{
	if (c->crypt && !c->agreed)
		return crypt_known(c->crypt);
	c->ahead = mem_alloc(AHEAD);
	return c->ahead != NULL;
}

/* Whether what follows this HELLO is not encrypted. */
static bool agrees(const struct conn *c, const struct head *h)
{
	return h->type == HEAD_HELLO_MESH && c->inside && c->crypt && !c->unproven;
}

/* The peer has said hello: from here on the connection is a link. */
static void comes_up(struct conn *c, const struct head *h)
{
	const struct net_options *o = &c->net->o;
	unsigned char *stage = mem_alloc(OUT_STAGE);
	if (c->accepted && stage && net_waiting(c->net) < ACCEPTS) {
		c->link = net_link_new(c->net, c->from, c->keys ? c->peer : "");
		if (c->link)
			c->link->priv = c;
	}
	if (!stage || !c->link) {
		mem_free(stage);
		fails(c, END_MEMORY);
		return;
	}
	/* what is still in the small stage goes first */
	memcpy(stage, c->stage + c->stage_at, c->stage_n - c->stage_at);
	c->stage_n -= c->stage_at;
	c->stage_at = 0;
	c->stage = stage;
	c->stage_cap = OUT_STAGE;
	c->io.known = !c->unproven;
	/* an unproven one says too little to need buffers */
	c->waits = c->accepted && o->before_take && !c->unproven;
	c->agreed = agrees(c, h);
	if ((c->crypt && !crypt_binding(c->crypt, c->link->binding)) ||
	    (!c->waits && !c->unproven && !make_buffers(c)) || (c->near && !make_memory(c, h))) {
		fails(c, END_MEMORY);
		return;
	}
	pthread_mutex_lock(&c->net->lock);
	c->link->trusted = c->near;
	c->link->unproven = c->unproven;
	c->link->way = c->near     ? "shared memory"
		       : c->agreed ? "TCP in the mesh"
		       : c->crypt  ? "TLS"
				   : "TCP";
	pthread_mutex_unlock(&c->net->lock);
	if (c->agreed && !c->accepted)
		out_go_plain(c); /* the peer has all that was encrypted */
	const uint64_t smaller = h->a < o->window ? h->a : o->window;
	c->slack = c->near ? net_slack_near(smaller) : net_slack(o->window);
	c->count = (struct head_count){ .window = o->window,
					.max_message = o->max_message,
					.slack = c->slack };
	if (c->unproven)
		c->count.max_message = NET_UNPROVEN;
	c->hello_due |= c->accepted;
	c->state = CONN_UP;
	net_link_up(c->link, smaller, c->near ? c->slack : net_slack(smaller), h->b, c->accepted);
}

static void on_message(struct conn *c, uint64_t n)
{
	if (c->state == CONN_LEAVING) {
		c->skip = n;
		return;
	}
	c->in = net_node_new(c->net->pool);
	void *data = c->in ? net_pool_buffer(c->net->pool, n) : NULL;
	if (!data) {
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
		return;
	}
	c->in->data = data;
	c->in->size = n;
	c->in->release = net_buffer_release;
	c->in_n = 0;
}

/* A head about shared memory. NULL, or what is wrong with it. */
static const char *on_shared(struct conn *c, const struct head *h)
{
	if (!c->near)
		return "shared memory between machines";
	if (h->type == HEAD_DROP)
		return shm_in_drop(c->mem_in, h->b);
	if (h->type == HEAD_MEMORY) {
		int fd = c->nfds ? c->fd[0] : -1;
		c->nfds -= c->nfds > 0;
		memmove(c->fd, c->fd + 1, (size_t)c->nfds * sizeof *c->fd);
		return shm_in_add(c->mem_in, h->b, fd, h->a);
	}
	struct net_node *node = net_node_new(c->net->pool);
	if (!node) {
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
		return NULL;
	}
	const char *bad = shm_in_take(c->mem_in, h->b, h->a, node);
	if (bad)
		net_node_free(node);
	else if (c->state == CONN_LEAVING || !net_link_deliver(c->link, node))
		net_node_done(node);
	return bad;
}

/* Whether a link that waits for its user goes no further than this head. */
static bool holds(const struct conn *c, const struct head *h)
{
	const uint64_t most = c->net->o.before_take, used = c->count.arrived;
	return c->waits && (h->type == HEAD_SHARED || h->type == HEAD_MEMORY ||
			    (h->type == HEAD_MESSAGE &&
			     (h->a > most || net_cost(h->a) > most - (used < most ? used : most))));
}

static void on_head(struct conn *c)
{
	struct head h;
	const char *bad = head_read(c->head, &h);
	c->head_n = 0;
	c->held = !bad && conn_is_up(c) && holds(c, &h);
	if (c->held)
		return;
	if (!conn_is_up(c)) {
		if (bad)
			fails(c, END_STRANGE);
		else if (h.type == HEAD_HELLO ||
			 (h.type == HEAD_HELLO_MESH && (c->accepted || c->inside)))
			comes_up(c, &h);
		else
			fails(c, h.type == HEAD_REFUSE && !c->accepted ? END_KEYS : END_STRANGE);
		return;
	}
	bad = bad ? bad : head_count(&c->count, &h);
	if (!bad && c->unproven && h.type == HEAD_MESSAGE && c->said)
		bad = "a second message before it is proven";
	c->said |= h.type == HEAD_MESSAGE;
	if (!bad && h.type >= HEAD_MEMORY)
		bad = on_shared(c, &h);
	if (bad)
		wrong(c, bad);
	else if (h.type == HEAD_MESSAGE)
		on_message(c, h.a);
	else if (h.type == HEAD_CREDIT)
		net_link_credit(c->link, h.a);
	else if (h.type == HEAD_PING)
		c->alive_due = true;
	else if (h.type == HEAD_BYE)
		conn_break(c, ERR_NET, "closed by the peer");
}

/* The connection is over, before or after it was up. */
static void on_end(struct conn *c, int how)
{
	if (c->state == CONN_LEAVING)
		gone(c);
	else if (c->state == CONN_UP)
		conn_break(c, ERR_NET, "the connection broke");
	else if (c->end == END_WRONG_KEY)
		c->state = CONN_GONE;
	else if (how == IO_LIMIT)
		fails(c, c->accepted ? END_RESET : END_STRANGE);
	else if (c->near && c->proof.end)
		fails(c, c->proof.end == PROOF_KEYS           ? END_KEYS
			 : c->proof.end == PROOF_REFUSED      ? END_REFUSED
			 : c->proof.end == PROOF_NO_SIGNATURE ? END_MEMORY
							      : END_STRANGE);
	else if (c->crypt && crypt_refused(c->crypt))
		fails(c, END_REFUSED);
	else if (c->crypt && c->io.plain && !c->accepted)
		fails(c, END_KEYS);
	else if (c->crypt && c->io.plain)
		c->refusal_due = true;
	else if (c->io.errnum == ECONNRESET || c->io.errnum == EPIPE)
		fails(c, END_RESET);
	else
		fails(c, how == IO_ENDED || c->io.errnum ? END_CLOSED : END_STRANGE);
}

/* On a connection without a key: whether the peer, which then has one, begins with TLS. */
static bool looks_like_tls(const struct conn *c)
{
	return !c->crypt && !c->near && !conn_is_up(c) && c->head_n &&
	       (c->head[0] == 0x16 || c->head[0] == 0x15);
}

static void read_some(struct conn *c)
{
	unsigned char dropped[4096];
	size_t done = 0;
	c->more_in = false;
	while (done < OUT_TURN && !c->held && (c->state == CONN_GREETING || conn_is_up(c))) {
		int64_t k;
		if (c->skip) {
			k = get(c, dropped, c->skip < sizeof dropped ? c->skip : sizeof dropped);
			c->skip -= k > 0 ? (uint64_t)k : 0;
		} else if (c->in) {
			k = c->in->size
				    ? get(c, (char *)c->in->data + c->in_n, c->in->size - c->in_n)
				    : 1;
			c->in_n += k > 0 ? (size_t)k : 0;
			if (k > 0 && c->in_n >= c->in->size) {
				struct net_node *node = c->in;
				c->in = NULL;
				if (!net_link_deliver(c->link, node))
					net_node_done(node);
			}
		} else {
			k = get(c, c->head + c->head_n, HEAD_BYTES - c->head_n);
			c->head_n += k > 0 ? (size_t)k : 0;
			if (k > 0 && looks_like_tls(c)) {
				c->end = END_KEYS;
				c->refusal_due = c->accepted;
				c->state = c->accepted ? c->state : CONN_GONE;
				return;
			}
			if (c->head_n == HEAD_BYTES)
				on_head(c);
		}
		if (k == IO_LATER)
			return;
		if (k < 0) {
			on_end(c, (int)k);
			return;
		}
		done += (size_t)k;
	}
	c->more_in = conn_is_up(c) && !c->held;
}

/* The link waits no longer. */
static void go_on(struct conn *c)
{
	c->waits = false;
	if (!c->held)
		return;
	c->last_in = c->now;
	c->more_in = true; /* what was read ahead raises no event */
	on_head(c);
}

/* ---- turns ---------------------------------------------------------------------------------- */

void conn_begin(struct conn *c, int fd, int64_t now)
{
	c->io = (struct crypt_io){ .fd = fd, .limit = CONN_LIMIT };
	c->end = END_NONE;
	c->now = c->began = c->last_in = c->last_ping = now;
	c->state = c->keys ? CONN_SHAKING : CONN_GREETING;
	c->hello_due = !c->accepted;
}

void conn_begin_near(struct conn *c, int fd, pid_t peer, int64_t now)
{
	conn_begin(c, fd, now);
	c->near = true;
	c->state = CONN_SHAKING;
	proof_begin(&c->proof, c->accepted, c->keys ? c->net->o.key : NULL, peer);
}

static void shake_near(struct conn *c)
{
	int rc = proof_work(&c->proof, &c->io, accept_key, c);
	c->blocked = rc == IO_LATER && proof_wants_write(&c->proof);
	if (rc == 1)
		c->state = CONN_GREETING;
	else if (rc != IO_LATER)
		on_end(c, rc);
}

static void shake(struct conn *c)
{
	if (c->near) {
		shake_near(c);
		return;
	}
	if (!c->crypt)
		c->crypt = crypt_new(c->keys, c->accepted, &c->io, accept_key, c);
	if (!c->crypt) {
		fails(c, END_MEMORY);
		return;
	}
	int rc = crypt_handshake(c->crypt);
	c->blocked = rc == IO_LATER && crypt_wants_write(c->crypt);
	if (rc == 1 && crypt_peer(c->crypt, c->peer))
		c->state = CONN_GREETING;
	else if (rc != IO_LATER)
		on_end(c, rc == 1 ? IO_BROKEN : rc);
}

static void drain(struct conn *c)
{
	unsigned char dropped[4096];
	int64_t k;
	while ((k = crypt_plain_read(&c->io, dropped, sizeof dropped)) > 0)
		;
	if (k != IO_LATER)
		c->state = CONN_GONE;
}

/* Not encrypted: the answer to a peer that has a key where we have none, or the reverse. */
static void refuse(struct conn *c)
{
	unsigned char out[HEAD_BYTES];
	head_write(out, HEAD_REFUSE, REFUSE_KEYS, 0);
	crypt_plain_write(&c->io, out, sizeof out);
	c->refusal_due = false;
	fails(c, END_KEYS);
}

void conn_work(struct conn *c, bool readable, int64_t now)
{
	c->now = now;
	if (c->state == CONN_SHAKING)
		shake(c);
	if (readable && (c->state == CONN_GREETING || conn_is_up(c)))
		read_some(c);
	if (c->refusal_due)
		refuse(c);
	if (c->state == CONN_GREETING || conn_is_up(c))
		out_write(c);
	if (c->state == CONN_DRAINING)
		drain(c);
}

void conn_share(struct conn *c, struct net_node *node)
{
	struct shm_out *m = __atomic_load_n(&c->mem_out, __ATOMIC_ACQUIRE);
	struct shm_buffer *b = m ? shm_out_of(m, node) : NULL;
	void *p = m && !b && node->size >= SHM_LEAST ? shm_out_buffer(m, node->size) : NULL;
	if (p) {
		memcpy(p, node->data, node->size);
		if (node->release)
			node->release(node->ctx, node->data);
		node->data = p;
		node->release = net_buffer_release;
		b = shm_out_of(m, node);
	}
	node->room = b;
}

bool conn_push(struct conn *c, struct net_node *node, bool *more_p)
{
	if (c->state != CONN_UP)
		return false;
	*c->out_end = node;
	c->out_end = &node->next;
	if (!c->blocked && !c->mute)
		out_write(c);
	*more_p = !c->mute && (c->blocked || c->more_out);
	return true;
}

void conn_take(struct conn *c, int64_t now)
{
	c->now = now;
	if (!c->waits || !conn_is_up(c))
		return;
	if (make_buffers(c))
		go_on(c);
	else
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
}

void conn_leave(struct conn *c, int64_t now)
{
	c->now = now;
	if (c->state == CONN_UP) {
		c->state = CONN_LEAVING;
		c->bye_due = true;
		go_on(c);
	} else if (c->state != CONN_LEAVING) {
		gone(c);
	}
}
