/* SPDX-License-Identifier: Apache-2.0 */
/* net_loop.c - links inside one process, between threads: what a job on one machine uses, and the
 * test double.
 *
 * Nothing is copied: the receiver gets the very bytes that were sent, and their release is called
 * when it is done with them. Addresses are words, known to every net of the process. Keys are
 * compared, not proven: both ends are the same program. Lock order: registry, pair, net. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/net_priv.h"

struct loop_pair {
	pthread_mutex_t lock;
	int refs; /* links whose memory still points here */
	bool cut, joined;
	struct loop_end {
		struct loop_pair *pair;
		struct link *link;  /* NULL once this side has left */
		int64_t busy_until; /* when the bytes sent from this end have passed */
		uint64_t sent;
	} end[2];                            /* 0 dialled, 1 accepted */
	struct net_node *early, **early_end; /* sent before anybody listened */
	struct loop_pair *next_waiting;      /* dialled, and nobody listens yet */
};

struct loop_net {
	struct net *net;
	char address[NET_ADDRESS];
	struct loop_net *next;
};

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct loop_net *listeners;
static struct loop_pair *waiting;

static struct loop_end *other_of(struct loop_end *from)
{
	return &from->pair->end[from == &from->pair->end[0]];
}

static void pair_unref(struct loop_pair *p)
{
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_destroy(&p->lock);
	mem_free(p);
}

static int loop_open(struct net *n, struct err *e)
{
	struct loop_net *ln = mem_zalloc(sizeof *ln);
	if (!ln)
		return err_nomem(e, sizeof *ln, "a link end");
	ln->net = n;
	n->priv = ln;
	return 0;
}

static void loop_close(struct net *n, double linger)
{
	(void)linger; /* what was sent already lies in the peer's queue */
	struct loop_net *ln = n->priv;
	pthread_mutex_lock(&registry);
	for (struct loop_net **p = &listeners; *p; p = &(*p)->next)
		if (*p == ln) {
			*p = ln->next;
			break;
		}
	pthread_mutex_unlock(&registry);
	/* Connections that came in after the last link was closed. */
	while (n->links)
		link_close(n->links);
	mem_free(ln);
}

/* Joins a dialled link with a listener; under the registry's lock. */
static void join(struct loop_pair *p, struct net *to)
{
	struct link *from = p->end[0].link;
	const struct net_options *fo = &from->net->o;
	if (link_state(from) != LINK_CONNECTING)
		return;
	if (!to->o.key != !fo->key) {
		net_link_lost(from, ERR_NET, "%s: one side has a key, the other none",
			      from->address);
		return;
	}
	if (to->o.key && !key_equal(to->o.key->pub, from->peer)) {
		net_link_lost(from, ERR_NET, "%s: its key is not the expected one, %s",
			      from->address, from->peer);
		return;
	}
	if (to->o.key && !net_is_allowed(to, fo->key->pub)) {
		net_link_lost(from, ERR_NET,
			      "%s: refused: this machine's public key %s is not on its list",
			      from->address, fo->key->pub);
		return;
	}
	struct link *l = net_link_new(to, from->address, fo->key ? fo->key->pub : NULL);
	if (!l) {
		net_link_lost(from, ERR_NOMEM, "%s: the listener is out of memory", from->address);
		return;
	}
	l->priv = &p->end[1];
	pthread_mutex_lock(&p->lock);
	p->end[1].link = l;
	p->joined = true;
	p->refs++;
	for (struct net_node *n = p->early, *next; n; n = next) {
		next = n->next;
		net_link_deliver(l, n);
	}
	p->early = NULL;
	p->early_end = &p->early;
	pthread_mutex_unlock(&p->lock);
	net_link_up(from, to->o.window, net_slack(to->o.window), to->o.max_message, false);
	net_link_up(l, fo->window, net_slack(fo->window), fo->max_message, true);
}

static int loop_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e)
{
	struct loop_net *ln = n->priv;
	int rc = 0;
	if (strlen(address) >= NET_ADDRESS)
		return err_set(e, ERR_USAGE, "an address of %zu characters is too long: at most %d",
			       strlen(address), NET_ADDRESS - 1);
	pthread_mutex_lock(&registry);
	for (struct loop_net *q = listeners; q; q = q->next)
		if (strcmp(q->address, address) == 0)
			rc = err_set(e, ERR_NET,
				     "%s: somebody in this process listens there already", address);
	if (rc == 0) {
		snprintf(ln->address, sizeof ln->address, "%s", address);
		memcpy(bound_p, ln->address, NET_ADDRESS);
		ln->next = listeners;
		listeners = ln;
		for (struct loop_pair **p = &waiting; *p;) {
			struct loop_pair *w = *p;
			if (strcmp(w->end[0].link->address, address) == 0) {
				*p = w->next_waiting;
				join(w, n);
			} else {
				p = &w->next_waiting;
			}
		}
	}
	pthread_mutex_unlock(&registry);
	return rc;
}

static int loop_dial(struct link *l, const char *address, const char *peer_key, struct err *e)
{
	(void)peer_key;
	struct loop_pair *p = mem_zalloc(sizeof *p);
	if (!p)
		return err_nomem(e, sizeof *p, "a link");
	pthread_mutex_init(&p->lock, NULL);
	p->refs = 1;
	p->end[0].pair = p->end[1].pair = p;
	p->end[0].link = l;
	p->early_end = &p->early;
	l->priv = &p->end[0];
	pthread_mutex_lock(&registry);
	struct loop_net *q = listeners;
	while (q && strcmp(q->address, address) != 0)
		q = q->next;
	if (q) {
		join(p, q->net);
	} else {
		p->next_waiting = waiting;
		waiting = p;
	}
	pthread_mutex_unlock(&registry);
	return 0;
}

static void loop_send(struct link *l, struct net_node *node)
{
	struct loop_end *from = l->priv, *to = other_of(from);
	const struct net_knobs *k = &l->net->o.knobs;
	const uint64_t cost = net_cost(node->size);
	bool taken = false, vanished = false;
	pthread_mutex_lock(&from->pair->lock);
	uint64_t number = ++from->sent;
	if (k->cut_after && number >= k->cut_after && !from->pair->cut) {
		from->pair->cut = true;
		net_link_lost(l, ERR_NET, "%s: the connection broke", l->address);
		if (to->link)
			net_link_lost(to->link, ERR_NET, "%s: the connection broke",
				      to->link->address);
	}
	if (k->delay || k->rate > 0) {
		int64_t now = clock_now(), begin = now > from->busy_until ? now : from->busy_until;
		from->busy_until =
			begin + (k->rate > 0 ? (int64_t)((double)node->size / k->rate * 1e9) : 0);
		node->at = from->busy_until + k->delay;
	}
	if (k->loss > 0 && rng_uniform(rng_key(k->seed), number, 0, 1) < (float)k->loss)
		vanished = true;
	else if (to->link && !from->pair->cut)
		taken = net_link_deliver(to->link, node);
	else if (from == &from->pair->end[0] && from->link && !from->pair->joined &&
		 !from->pair->cut) {
		node->next = NULL;
		*from->pair->early_end = node;
		from->pair->early_end = &node->next;
		taken = true;
	}
	pthread_mutex_unlock(&from->pair->lock);
	if (taken)
		return;
	net_node_done(node);
	if (vanished)
		net_link_credit(l, cost);
}

static void loop_taken(struct link *l, uint64_t cost)
{
	struct loop_end *at = l->priv;
	pthread_mutex_lock(&at->pair->lock);
	struct link *from = other_of(at)->link;
	if (from)
		net_link_credit(from, cost);
	pthread_mutex_unlock(&at->pair->lock);
}

static void loop_shut(struct link *l)
{
	struct loop_end *at = l->priv;
	struct loop_pair *p = at->pair;
	pthread_mutex_lock(&registry);
	for (struct loop_pair **w = &waiting; *w; w = &(*w)->next_waiting)
		if (*w == p) {
			*w = p->next_waiting;
			break;
		}
	pthread_mutex_lock(&p->lock);
	bool first = at->link != NULL;
	at->link = NULL;
	struct net_node *early = p->early;
	p->early = NULL;
	p->early_end = &p->early;
	struct link *other = other_of(at)->link;
	if (first && other)
		net_link_lost(other, ERR_NET, "%s: closed by the peer", other->address);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&registry);
	for (struct net_node *next; early; early = next) {
		next = early->next;
		net_node_done(early);
	}
	if (first)
		net_link_unref(l);
}

static void loop_freed(struct link *l) { pair_unref(((struct loop_end *)l->priv)->pair); }

const struct net_transport net_loop = {
	.name = "loop",
	.way = "memory",
	.trusted = true,
	.open = loop_open,
	.close = loop_close,
	.listen = loop_listen,
	.dial = loop_dial,
	.send = loop_send,
	.taken = loop_taken,
	.shut = loop_shut,
	.freed = loop_freed,
};
