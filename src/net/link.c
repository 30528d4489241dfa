/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - one link: its states, its queue of arrived messages, its window. What is the same for
 * every transport. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/frame.h"
#include "net/net_priv.h"
#include "net/wait.h"

/* ---- life ----------------------------------------------------------------------------------- */

struct link *net_link_new(struct net *n, const char *address, const char *peer_key)
{
	struct link *l = mem_zalloc(sizeof *l);
	if (!l)
		return NULL;
	l->net = n;
	l->net_t = n->t;
	l->trusted = n->t->trusted;
	l->way = n->t->way;
	l->refs = 2;
	const char *from = strchr(address, ';');
	snprintf(l->address, sizeof l->address, "%s", from ? from + 1 : address);
	snprintf(l->peer, sizeof l->peer, "%s", peer_key ? peer_key : "");
	l->in_end = &l->in;
	l->dial_deadline = NET_FOREVER;
	/* Until the peer has said how much it takes. */
	l->peer_window = 64 << 10;
	l->slack = net_slack(l->peer_window);
	l->peer_max = UINT64_MAX;
	l->connections = 1;
	pthread_mutex_lock(&n->lock);
	l->next = n->links;
	l->prev = &n->links;
	if (l->next)
		l->next->prev = &l->next;
	n->links = l;
	pthread_mutex_unlock(&n->lock);
	return l;
}

void net_link_ref(struct link *l) { __atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED); }

void net_link_unref(struct link *l)
{
	if (__atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (l->priv && l->net_t->freed)
		l->net_t->freed(l);
	mem_free(l);
}

/* Takes the link off the lists of its net. Returns the messages that it still holds: the caller
 * releases them without the lock. */
static struct net_node *unlink_locked(struct link *l)
{
	struct net *n = l->net;
	*l->prev = l->next;
	if (l->next)
		l->next->prev = l->prev;
	for (struct link **p = &n->accepted; *p; p = &(*p)->next_accepted)
		if (*p == l) {
			*p = l->next_accepted;
			if (!*p)
				n->accepted_end = p;
			break;
		}
	struct net_node *in = l->in;
	l->in = NULL;
	l->in_end = &l->in;
	l->closed = true;
	return in;
}

void link_close(struct link *l)
{
	if (!l)
		return;
	struct net *n = l->net;
	pthread_mutex_lock(&n->lock);
	struct net_node *in = unlink_locked(l);
	pthread_mutex_unlock(&n->lock);
	net_nodes_done(in);
	n->t->shut(l);
	net_link_unref(l);
}

/* ---- what the transport reports ------------------------------------------------------------- */

void net_link_up(struct link *l, uint64_t peer_window, uint64_t slack, uint64_t peer_max,
		 bool accept)
{
	struct net *n = l->net;
	pthread_mutex_lock(&n->lock);
	if (l->state == LINK_CONNECTING) {
		l->state = LINK_UP;
		l->peer_window = peer_window;
		l->slack = slack;
		l->peer_max = peer_max;
		if (accept && !l->closed) {
			*n->accepted_end = l;
			n->accepted_end = &l->next_accepted;
		}
		pthread_cond_broadcast(&n->cond);
	}
	pthread_mutex_unlock(&n->lock);
}

static void lost_locked(struct link *l, int code, const char *text)
{
	if (l->state == LINK_LOST)
		return;
	l->state = LINK_LOST;
	err_set(&l->why, code, "%s", text);
	pthread_cond_broadcast(&l->net->cond);
}

void net_link_lost(struct link *l, int code, const char *fmt, ...)
{
	struct err why;
	va_list ap;
	va_start(ap, fmt);
	err_vset(&why, code, fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&l->net->lock);
	lost_locked(l, code, why.msg);
	pthread_mutex_unlock(&l->net->lock);
}

bool net_link_deliver(struct link *l, struct net_node *node)
{
	struct net *n = l->net;
	int64_t now = clock_now();
	node->next = NULL;
	node->arrived = node->at > now ? node->at : now;
	pthread_mutex_lock(&n->lock);
	bool keep = !l->closed && l->state != LINK_LOST;
	if (keep) {
		*l->in_end = node;
		l->in_end = &node->next;
		l->stats.queued_in += node->size;
		pthread_cond_broadcast(&n->cond);
	}
	pthread_mutex_unlock(&n->lock);
	return keep;
}

void net_link_credit(struct link *l, uint64_t cost)
{
	pthread_mutex_lock(&l->net->lock);
	l->in_flight -= cost < l->in_flight ? cost : l->in_flight;
	pthread_cond_broadcast(&l->net->cond);
	pthread_mutex_unlock(&l->net->lock);
}

void net_link_connections(struct link *l, unsigned count)
{
	pthread_mutex_lock(&l->net->lock);
	l->connections = count;
	pthread_mutex_unlock(&l->net->lock);
}

/* ---- state ---------------------------------------------------------------------------------- */

/* A dial that ran out of time is lost as soon as anybody looks. */
static void look(struct link *l)
{
	if (l->state == LINK_CONNECTING && l->dial_deadline <= clock_now()) {
		struct err why;
		err_set(&why, ERR_NET,
			"%s: no answer in time; is heteroshard running there, and does a firewall "
			"let the port through?",
			l->address);
		lost_locked(l, ERR_NET, why.msg);
	}
}

static bool room(const struct link *l, uint64_t n)
{
	return l->in_flight + net_cost(n) <= l->peer_window || l->in_flight <= l->slack;
}

unsigned net_link_ready(struct link *l, int64_t *next_p)
{
	unsigned is = 0;
	look(l);
	if (l->state == LINK_CONNECTING && l->dial_deadline < *next_p)
		*next_p = l->dial_deadline;
	if (l->in && (!l->in->at || l->in->at <= clock_now()))
		is |= NET_RECV;
	else if (l->in && l->in->at < *next_p)
		*next_p = l->in->at;
	if (l->state != LINK_LOST && room(l, 0))
		is |= NET_SEND;
	if (l->state != LINK_CONNECTING)
		is |= NET_UP;
	if (l->state == LINK_LOST && !l->in)
		is |= NET_LOST;
	return is;
}

enum link_state link_state(const struct link *cl)
{
	struct link *l = (struct link *)cl;
	pthread_mutex_lock(&l->net->lock);
	look(l);
	enum link_state s = l->state;
	pthread_mutex_unlock(&l->net->lock);
	return s;
}

const char *link_address(const struct link *l) { return l->address; }
const char *link_way(const struct link *l)
{
	pthread_mutex_lock(&l->net->lock);
	const char *way = l->way;
	pthread_mutex_unlock(&l->net->lock);
	return way;
}

const char *link_peer_key(const struct link *l) { return l->peer; }
bool link_was_refused(const struct link *l)
{
	pthread_mutex_lock(&l->net->lock);
	bool is = l->refused && l->state == LINK_LOST;
	pthread_mutex_unlock(&l->net->lock);
	return is;
}

bool link_is_unproven(const struct link *l) { return l->unproven; }
void link_binding(const struct link *l, uint8_t out[LINK_BINDING])
{
	memcpy(out, l->binding, LINK_BINDING);
}
void *link_user(const struct link *l) { return l->user; }
void link_set_user(struct link *l, void *user) { l->user = user; }

void link_why(struct link *l, struct err *e_p)
{
	pthread_mutex_lock(&l->net->lock);
	look(l);
	*e_p = l->why;
	pthread_mutex_unlock(&l->net->lock);
}

void link_stats(struct link *l, struct link_stats *s_p)
{
	pthread_mutex_lock(&l->net->lock);
	*s_p = l->stats;
	s_p->in_flight = l->in_flight;
	s_p->connections = l->connections;
	pthread_mutex_unlock(&l->net->lock);
}

int net_dial(struct net *n, const char *address, const char *peer_key, int64_t deadline,
	     struct link **link_p, struct err *e)
{
	char key[KEY_TEXT] = "";
	if (peer_key)
		TRY(key_parse(peer_key, "key of the peer", key, e));
	if (n->o.key && !peer_key)
		return err_set(e, ERR_INTERNAL, "%s: no key of the peer was given", address);
	if (!n->o.key && peer_key)
		return err_set(e, ERR_USAGE,
			       "%s: the peer has a key, this machine none; make one with "
			       "`heteroshard keygen`",
			       address);
	if (strlen(address) >= NET_ADDRESS)
		return err_set(e, ERR_USAGE, "an address of %zu characters is too long: at most %d",
			       strlen(address), NET_ADDRESS - 1);
	struct link *l = net_link_new(n, address, key);
	if (!l)
		return err_nomem(e, sizeof *l, "a link");
	l->dial_deadline = deadline;
	int rc = n->t->dial(l, address, peer_key ? key : NULL, e);
	if (rc < 0) {
		pthread_mutex_lock(&n->lock);
		unlink_locked(l);
		pthread_mutex_unlock(&n->lock);
		net_link_unref(l);
		net_link_unref(l);
		return rc;
	}
	*link_p = l;
	return 0;
}

int link_wait_up(struct link *l, int64_t deadline, struct err *e)
{
	struct net *n = l->net;
	int rc;
	pthread_mutex_lock(&n->lock);
	for (;;) {
		look(l);
		if (l->state == LINK_LOST) {
			*e = l->why;
			rc = e->code;
			break;
		}
		if (l->state == LINK_UP) {
			rc = 0;
			break;
		}
		if (!net_wait(n, deadline, l->dial_deadline)) {
			rc = err_set(e, ERR_NET, "%s: not connected yet", l->address);
			break;
		}
	}
	pthread_mutex_unlock(&n->lock);
	return rc;
}

int net_connect(struct net *n, const char *address, const char *peer_key, int64_t deadline,
		struct link **link_p, struct err *e)
{
	struct link *l;
	TRY(net_dial(n, address, peer_key, deadline, &l, e));
	int rc = link_wait_up(l, NET_FOREVER, e);
	if (rc < 0) {
		link_close(l);
		return rc;
	}
	*link_p = l;
	return 0;
}

void link_take(struct link *l)
{
	if (l->net_t->take)
		l->net_t->take(l);
}

void link_fail(struct link *l, int code, const char *why)
{
	net_link_lost(l, code, "%s: %s", l->address, why);
	l->net->t->shut(l);
}

/* ---- sending -------------------------------------------------------------------------------- */

static int send_until(struct link *l, void *data, size_t n, net_release_fn release, void *ctx,
		      int64_t deadline, bool full_is_error, struct err *e)
{
	struct net *net = l->net;
	struct net_node *node = net_node_new(net->pool);
	if (!node)
		return err_nomem(e, sizeof *node, "a message");
	node->data = data;
	node->size = n;
	node->release = release;
	node->ctx = ctx;
	int rc = 0;
	int64_t began = 0;
	pthread_mutex_lock(&net->lock);
	for (;;) {
		look(l);
		if (l->state == LINK_LOST) {
			*e = l->why;
			rc = e->code;
			break;
		}
		if (n > l->peer_max) {
			rc = err_set(e, ERR_INPUT,
				     "%s: message of %zu bytes, the peer takes at most %llu",
				     l->address, n, (unsigned long long)l->peer_max);
			break;
		}
		if (room(l, n)) {
			l->in_flight += net_cost(n);
			l->stats.bytes_out += n;
			l->stats.messages_out++;
			break;
		}
		if (!began) {
			began = clock_now();
			if (net->t->waits) {
				pthread_mutex_unlock(&net->lock);
				net->t->waits(l);
				pthread_mutex_lock(&net->lock);
				continue;
			}
		}
		if (!net_wait(net, deadline, l->dial_deadline)) {
			rc = LINK_FULL;
			break;
		}
	}
	if (began)
		l->stats.full_ns += clock_now() - began;
	pthread_mutex_unlock(&net->lock);
	if (rc == 0) {
		net->t->send(l, node);
		return 0;
	}
	net_node_free(node);
	if (rc == LINK_FULL && full_is_error)
		return err_set(e, ERR_NET, "%s: the peer did not take what was sent in time",
			       l->address);
	return rc;
}

void *link_buffer(struct link *l, size_t bytes)
{
	void *p = l->net_t->buffer ? l->net_t->buffer(l, bytes) : NULL;
	return p ? p : net_pool_buffer(l->net->pool, bytes);
}

int link_send(struct link *l, void *data, size_t n, net_release_fn release, void *ctx,
	      struct err *e)
{
	return send_until(l, data, n, release, ctx, NET_NOW, false, e);
}

int link_send_wait(struct link *l, void *data, size_t n, net_release_fn release, void *ctx,
		   int64_t deadline, struct err *e)
{
	return send_until(l, data, n, release, ctx, deadline, true, e);
}

int link_send_copy(struct link *l, const void *data, size_t n, int64_t deadline, struct err *e)
{
	void *p = link_buffer(l, n);
	if (!p)
		return err_nomem(e, n, "a message");
	if (n)
		memcpy(p, data, n);
	int rc = send_until(l, p, n, net_buffer_release, NULL, deadline, true, e);
	if (rc < 0)
		net_buffer_release(NULL, p);
	return rc;
}

int link_send_frame(struct link *l, const struct frame *f, int64_t deadline, struct err *e)
{
	uint64_t room_for = f->size;
	if (!room_for && f->ndim && f->ndim <= FRAME_MAX_DIM) {
		room_for = dtype_size(f->dtype);
		for (unsigned i = 0; i < f->ndim; i++)
			if (!mul_ok(room_for, f->dim[i], &room_for))
				return err_set(e, ERR_INTERNAL, "%s frame: the shape overflows",
					       frame_name(f->kind));
	}
	if (!add_ok(room_for, FRAME_HEADER, &room_for) || room_for > SIZE_MAX / 2)
		return err_set(e, ERR_INTERNAL, "%s frame: too large", frame_name(f->kind));
	void *p = link_buffer(l, room_for);
	if (!p)
		return err_nomem(e, room_for, "a frame");
	size_t n;
	int rc = frame_encode(f, p, room_for, &n, e);
	if (rc == 0)
		rc = send_until(l, p, n, net_buffer_release, NULL, deadline, true, e);
	if (rc < 0)
		net_buffer_release(NULL, p);
	return rc;
}

/* ---- receiving ------------------------------------------------------------------------------ */

int link_recv(struct link *l, int64_t deadline, struct net_msg *m_p, struct err *e)
{
	struct net *n = l->net;
	struct net_node *node = NULL;
	int rc = 0;
	pthread_mutex_lock(&n->lock);
	for (;;) {
		int64_t next = NET_FOREVER;
		unsigned is = net_link_ready(l, &next);
		if (is & NET_RECV) {
			node = l->in;
			l->in = node->next;
			if (!l->in)
				l->in_end = &l->in;
			l->stats.queued_in -= node->size;
			l->stats.bytes_in += node->size;
			l->stats.messages_in++;
			rc = 1;
			break;
		}
		if (is & NET_LOST) {
			*e = l->why;
			rc = e->code;
			break;
		}
		if (!net_wait(n, deadline, next))
			break;
	}
	pthread_mutex_unlock(&n->lock);
	if (rc != 1)
		return rc;
	n->t->taken(l, net_cost(node->size));
	*m_p = (struct net_msg){
		.data = node->data, .size = node->size, .arrived = node->arrived, .handle = node
	};
	return 1;
}

/* A frame in memory that the peer can change while it is read. Its header is copied before it is
 * looked at; so is the whole frame, unless its payload is only numbers, which are never used as
 * sizes or positions. */
static int parse_shared(struct link *l, struct net_msg *m, struct frame *f_p, struct err *e)
{
	struct net_node *node = m->handle;
	unsigned char head[FRAME_HEADER] = { 0 };
	struct frame f = { 0 };
	memcpy(head, m->data, m->size < sizeof head ? m->size : sizeof head);
	TRY(frame_parse_trusted(head, m->size, &f, e));
	f.payload = (const char *)m->data + FRAME_HEADER;
	if (!frame_is_tensor(f.kind)) {
		char *copy = net_pool_buffer(l->net->pool, m->size);
		if (!copy)
			return err_nomem(e, m->size, "a frame");
		memcpy(copy, head, sizeof head);
		memcpy(copy + FRAME_HEADER, f.payload, f.size);
		f.payload = copy + FRAME_HEADER;
		node->release(node->ctx, node->data);
		node->data = m->data = copy;
		node->release = net_buffer_release;
		node->shared = false;
	}
	*f_p = f;
	return 0;
}

int link_recv_frame(struct link *l, int64_t deadline, struct net_msg *m_p, struct frame *f_p,
		    struct err *e)
{
	struct net_msg m;
	int rc = link_recv(l, deadline, &m, e);
	if (rc != 1)
		return rc;
	if (((struct net_node *)m.handle)->shared)
		rc = parse_shared(l, &m, f_p, e);
	else if (l->trusted)
		rc = frame_parse_trusted(m.data, m.size, f_p, e);
	else
		rc = frame_parse(m.data, m.size, f_p, e);
	if (rc < 0) {
		net_msg_release(&m);
		link_fail(l, rc, e->msg);
		return err_prefix(e, "%s", l->address);
	}
	*m_p = m;
	return 1;
}

void net_msg_release(struct net_msg *m)
{
	struct net_node *node = m->handle;
	*m = (struct net_msg){ 0 };
	if (node)
		net_node_done(node);
}
