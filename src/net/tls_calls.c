/* SPDX-License-Identifier: Apache-2.0 */
/* tls_calls.c - see tls_hub.h: what the calls of users' threads do. They leave orders for the hub's
 * thread (tls_hub.c), or write to a Unix socket themselves. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/address.h"
#include "net/shm_memory.h"
#include "net/tls_hub_priv.h"
#include "net/watch.h"

void hub_wake(struct hub *h)
{
	h->busy = true;
	if (!h->asleep)
		return;
	h->asleep = false;
	watch_wake(h->all);
}

void hub_tell(struct conn *c)
{
	if (!c->told) {
		c->told = true;
		c->next_told = c->hub->told;
		c->hub->told = c;
	}
	hub_wake(c->hub);
}

/* Under the lock: whether this thread may write to the connection, which it then holds. */
static bool claim(struct conn *c)
{
	return __atomic_load_n(&c->mem_out, __ATOMIC_RELAXED) && !c->closed && !c->shut &&
	       !c->fresh && !c->told && pthread_mutex_trylock(&c->own) == 0;
}

/* Under the lock, with the connection: writes the node, and gives both back. false: it was not
 * possible, the node is still the caller's. */
static bool write_now(struct conn *c, struct net_node *node)
{
	bool more = false;
	pthread_mutex_unlock(&c->hub->lock);
	bool taken = conn_push(c, node, &more);
	pthread_mutex_unlock(&c->own);
	if (more) {
		pthread_mutex_lock(&c->hub->lock);
		hub_tell(c);
		pthread_mutex_unlock(&c->hub->lock);
	}
	return taken;
}

void *hub_buffer(struct link *l, size_t bytes)
{
	struct conn *c = l->priv;
	struct shm_out *m = __atomic_load_n(&c->mem_out, __ATOMIC_ACQUIRE);
	return m && bytes >= SHM_LEAST ? shm_out_buffer(m, bytes) : NULL;
}

/* Leaves a node to the connection's thread. false: it is closed, the node still the caller's. */
static bool leave_to_hub(struct conn *c, struct net_node *node)
{
	node->next = NULL;
	pthread_mutex_lock(&c->hub->lock);
	bool open = !c->closed;
	if (open) {
		*c->fresh_end = node;
		c->fresh_end = &node->next;
		hub_tell(c);
	}
	pthread_mutex_unlock(&c->hub->lock);
	return open;
}

/* Over several connections, in pieces; false: this message goes over the first one alone. */
static bool send_cut(struct conn *c, struct net_node *node)
{
	struct parallel *p = __atomic_load_n(&c->parallel, __ATOMIC_ACQUIRE);
	struct net_node *piece[PARALLEL_MOST];
	if (!p || node->size < PARALLEL_LEAST || !parallel_ready(p))
		return false;
	pthread_mutex_lock(&p->sending);
	bool cut = parallel_cut(p, node, piece);
	for (unsigned i = 0; cut && i < p->n; i++)
		if (piece[i] && leave_to_hub(p->conn[i], piece[i]))
			piece[i] = NULL;
	pthread_mutex_unlock(&p->sending);
	for (unsigned i = 0; cut && i < p->n; i++)
		if (piece[i])
			net_node_done(piece[i]);
	return cut;
}

void hub_send(struct link *l, struct net_node *node)
{
	struct conn *c = l->priv;
	node->next = NULL;
	if (send_cut(c, node))
		return;
	conn_share(c, node);
	pthread_mutex_lock(&c->hub->lock);
	if (claim(c)) {
		if (write_now(c, node))
			return;
	} else {
		pthread_mutex_unlock(&c->hub->lock);
	}
	if (!leave_to_hub(c, node))
		net_node_done(node);
}

/* `all`: what a peer need not hear yet too. */
static void tell_taken(struct conn *c, uint64_t cost, bool all)
{
	pthread_mutex_lock(&c->hub->lock);
	c->untold += cost;
	c->tell_all |= all;
	if (c->closed || !c->untold || (!all && c->untold <= c->slack)) {
		pthread_mutex_unlock(&c->hub->lock);
		return;
	}
	struct net_node *credit = c->mem_out ? net_node_new(c->net->pool) : NULL;
	if (credit && claim(c)) {
		credit->at = CONN_CREDIT;
		credit->size = c->untold;
		c->untold = 0;
		if (write_now(c, credit))
			return;
		pthread_mutex_lock(&c->hub->lock);
		c->untold += credit->size;
	}
	hub_tell(c);
	pthread_mutex_unlock(&c->hub->lock);
	if (credit)
		net_node_free(credit);
}

void hub_taken(struct link *l, uint64_t cost) { tell_taken(l->priv, cost, false); }

void hub_waits(struct link *l) { tell_taken(l->priv, 0, true); }

void hub_shut(struct link *l)
{
	struct conn *c = l->priv;
	pthread_mutex_lock(&c->hub->lock);
	if (!c->closed && !c->shut) {
		c->shut = true;
		hub_tell(c);
	}
	pthread_mutex_unlock(&c->hub->lock);
}

void hub_take(struct link *l)
{
	struct conn *c = l->priv;
	pthread_mutex_lock(&c->hub->lock);
	if (!c->closed && !c->taken) {
		c->taken = true;
		hub_tell(c);
	}
	pthread_mutex_unlock(&c->hub->lock);
}

void hub_freed(struct link *l)
{
	struct conn *c = l->priv;
	struct parallel *p = c->parallel;
	for (unsigned i = 1; p && i < p->n; i++)
		if (p->conn[i])
			conn_free(p->conn[i]);
	conn_free(c);
	parallel_free(p);
}

void hub_listen(struct hub *h, int fd, int near_fd, const char *path)
{
	pthread_mutex_lock(&h->lock);
	h->fresh_listeners = (struct listeners){ .tcp = fd, .near = near_fd };
	snprintf(h->fresh_listeners.path, MEET_PATH, "%s", path);
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
}

int hub_dial(struct hub *h, struct link *l, const struct address *to, int n, const char *source,
	     const char *meet, struct err *e)
{
	struct conn *c = conn_new(h->net, h->keys, &h->log);
	if (!c)
		return err_nomem(e, sizeof *c, "a connection");
	c->hub = h;
	c->link = l;
	for (int i = 0; i < n && i < ADDRESS_MOST; i++)
		c->way_n[c->nway++] = address_socket(to[i].text, &c->way[i]);
	c->to = c->way[0];
	c->to_n = c->way_n[0];
	snprintf(c->meet, sizeof c->meet, "%s", meet);
	c->source_n = *source ? address_socket(source, &c->source) : 0;
	c->dial_deadline = l->dial_deadline;
	if (n > 1)
		c->attempt = (c->dial_deadline - clock_now()) / n;
	l->priv = c;
	pthread_mutex_lock(&h->lock);
	c->next = h->fresh;
	h->fresh = c;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
	return 0;
}
