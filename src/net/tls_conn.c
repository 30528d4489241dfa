/* SPDX-License-Identifier: Apache-2.0 */
/* tls_conn.c - see tls_conn.h. */
#include "net/tls_conn.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/shm_memory.h"
#include "net/shm_pass.h"
#include "net/tls_life.h"
#include "net/tls_others.h"
#include "net/tls_out.h"

enum { ACCEPTS = 256 /* links that wait for net_accept */ };

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
	} else if (c->ahead && n < CONN_AHEAD) {
		k = read_plain(c, c->ahead, CONN_AHEAD);
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

/* Whether what follows this HELLO is not encrypted. */
static bool agrees(const struct conn *c, const struct head *h)
{
	return h->type == HEAD_HELLO_MESH && c->inside && c->crypt && !c->unproven;
}

/* ---- up ------------------------------------------------------------------------------------- */

/* The peer has said hello: from here on the connection is a link. */
static void comes_up(struct conn *c, const struct head *h)
{
	const struct net_options *o = &c->net->o;
	if (c->place) {
		others_joined(c);
		return;
	}
	if (c->accepted && net_waiting(c->net) < ACCEPTS) {
		c->link = net_link_new(c->net, c->from, c->keys ? c->peer : "");
		if (c->link)
			c->link->priv = c;
	}
	if (!c->link || !conn_large_stage(c)) {
		conn_fails(c, END_MEMORY);
		return;
	}
	c->io.known = !c->unproven;
	/* an unproven one says too little to need buffers */
	c->waits = c->accepted && o->before_take && !c->unproven;
	c->agreed = agrees(c, h);
	if ((c->crypt && !crypt_binding(c->crypt, c->link->binding)) ||
	    (!c->waits && !c->unproven && !conn_buffers(c)) || (c->near && !make_memory(c, h))) {
		conn_fails(c, END_MEMORY);
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
	others_offer(c);
}

static void on_message(struct conn *c, uint64_t n)
{
	if (c->state == CONN_LEAVING) {
		c->skip = n;
		return;
	}
	c->in = conn_room(c, n);
	c->in_n = 0;
	c->in_end = n;
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
			conn_fails(c, END_STRANGE);
		else if (h.type == HEAD_HELLO ||
			 (h.type == HEAD_HELLO_MESH && (c->accepted || c->inside)))
			comes_up(c, &h);
		else if (h.type == HEAD_JOIN && c->accepted)
			others_join(c, &h);
		else
			conn_fails(c,
				   h.type == HEAD_REFUSE && !c->accepted ? END_KEYS : END_STRANGE);
		return;
	}
	if (c->place) {
		others_head(c, bad ? NULL : &h, bad);
		return;
	}
	bad = bad ? bad : head_count(&c->count, &h);
	if (!bad && h.type == HEAD_PIECE && !c->parallel)
		bad = "a piece of a message on a single connection";
	if (!bad && c->unproven && h.type == HEAD_MESSAGE && c->said)
		bad = "a second message before it is proven";
	c->said |= h.type == HEAD_MESSAGE;
	if (!bad && h.type >= HEAD_MEMORY && h.type <= HEAD_DROP)
		bad = on_shared(c, &h);
	if (!bad && h.type == HEAD_PARALLEL)
		bad = others_asked(c, &h);
	if (bad)
		conn_wrong(c, bad);
	else if (h.type == HEAD_MESSAGE)
		on_message(c, h.a);
	else if (h.type == HEAD_PIECE)
		others_announce(c, &h);
	else if (h.type == HEAD_PING)
		c->alive_due = true;
	else if (h.type == HEAD_CREDIT && c->parallel)
		others_follow(c, PARALLEL_CREDIT, h.a);
	else if (h.type == HEAD_CREDIT)
		net_link_credit(c->link, h.a);
	else if (h.type == HEAD_BYE && c->parallel)
		others_follow(c, PARALLEL_BYE, 0);
	else if (h.type == HEAD_BYE)
		conn_break(c, ERR_NET, "closed by the peer");
}

/* The connection is over, before or after it was up. */
static void on_end(struct conn *c, int how)
{
	if (c->state == CONN_LEAVING)
		conn_gone(c);
	else if (c->state == CONN_UP)
		conn_break(c, ERR_NET, "the connection broke");
	else if (c->end == END_WRONG_KEY)
		c->state = CONN_GONE;
	else if (how == IO_LIMIT)
		conn_fails(c, c->accepted ? END_RESET : END_STRANGE);
	else if (c->near && c->proof.end)
		conn_fails(c, c->proof.end == PROOF_KEYS           ? END_KEYS
			      : c->proof.end == PROOF_REFUSED      ? END_REFUSED
			      : c->proof.end == PROOF_NO_SIGNATURE ? END_MEMORY
								   : END_STRANGE);
	else if (c->crypt && crypt_refused(c->crypt))
		conn_fails(c, END_REFUSED);
	else if (c->crypt && c->io.plain && !c->accepted)
		conn_fails(c, END_KEYS);
	else if (c->crypt && c->io.plain)
		c->refusal_due = true;
	else if (c->io.errnum == ECONNRESET || c->io.errnum == EPIPE)
		conn_fails(c, END_RESET);
	else
		conn_fails(c, how == IO_ENDED || c->io.errnum ? END_CLOSED : END_STRANGE);
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
			k = c->in_end ? get(c, (char *)c->in->data + c->in_n, c->in_end - c->in_n)
				      : 1;
			c->in_n += k > 0 ? (size_t)k : 0;
			if (k > 0 && c->in_n >= c->in_end)
				others_arrived(c);
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
	if (c->held) {
		c->last_in = c->now;
		on_head(c);
		c->more_in = conn_is_up(c) && !c->held; /* what was read ahead raises no event */
	}
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
		conn_fails(c, END_MEMORY);
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
	conn_fails(c, END_KEYS);
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
	if (!conn_buffers(c)) {
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
		return;
	}
	go_on(c);
	others_offer(c);
}

void conn_go_on(struct conn *c, int64_t now)
{
	c->now = now;
	if (c->place && conn_is_up(c))
		go_on(c);
}

void conn_leave(struct conn *c, int64_t now)
{
	c->now = now;
	if (c->state == CONN_UP) {
		c->state = CONN_LEAVING;
		c->bye_due = true;
		go_on(c);
	} else if (c->state != CONN_LEAVING) {
		conn_gone(c);
	}
}
