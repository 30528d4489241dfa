/* SPDX-License-Identifier: Apache-2.0 */
/* tls_others.c - see tls_others.h. */
#include "net/tls_others.h"

#include <sodium.h>

#include "net/tls_life.h"

/* Whether this is the first connection of a link that may have others. */
static bool may_have_others(const struct conn *c)
{
	return !c->place && c->state == CONN_UP && !c->near && !c->agreed && !c->unproven &&
	       !c->waits;
}

/* false: memory is out. */
static bool make_parallel(struct conn *c, unsigned n, uint64_t id)
{
	struct parallel *p = parallel_new(n, id);
	if (p)
		p->conn[0] = c;
	/* users' threads look at it */
	__atomic_store_n(&c->parallel, p, __ATOMIC_RELEASE);
	return p != NULL;
}

void others_offer(struct conn *c)
{
	unsigned n = net_wanted_connections(c->net);
	uint64_t id = 0;
	n = c->asked > n ? c->asked : n;
	if (c->parallel || n < 2 || !may_have_others(c))
		return;
	c->asked = n;
	randombytes_buf(&id, sizeof id);
	c->offer_due = !c->accepted || (id && make_parallel(c, n, id));
}

const char *others_asked(struct conn *c, const struct head *h)
{
	if (h->a < 2 || h->a > PARALLEL_MOST || c->accepted == (h->b != 0) ||
	    (c->accepted ? c->was_asked : c->parallel != NULL) || c->near || c->agreed ||
	    c->unproven)
		return "several connections, where there are none or for a second time";
	if (c->net->o.adopt)
		net_want_connections(c->net, (unsigned)h->a);
	if (!c->accepted) {
		c->dial_others = make_parallel(c, (unsigned)h->a, h->b);
		return NULL;
	}
	c->was_asked = true;
	c->asked = (unsigned)h->a;
	others_offer(c);
	return NULL;
}

void others_joined(struct conn *c)
{
	c->io.known = true;
	if (!conn_large_stage(c) || !conn_buffers(c)) {
		conn_fails(c, END_MEMORY);
		return;
	}
	c->hello_due |= c->accepted;
	c->apart = false;
	c->state = CONN_UP;
}

void others_join(struct conn *c, const struct head *h)
{
	struct parallel *p = c->find && !c->unproven && !c->near ? c->find(c, h->a) : NULL;
	if (!p || h->b < 1 || h->b >= PARALLEL_MOST || !parallel_join(p, (unsigned)h->b, c)) {
		conn_fails(c, END_STRANGE);
		return;
	}
	c->parallel = p;
	c->place = (unsigned)h->b;
	c->apart = true;
	c->link = p->conn[0]->link;
	net_link_ref(c->link);
	others_joined(c);
}

/* Bytes [begin, end) of the message `node` follow. */
static void receive(struct conn *c, struct net_node *node, uint64_t begin, uint64_t end)
{
	c->in = end > begin ? node : NULL;
	c->in_n = begin;
	c->in_end = end;
}

void others_announce(struct conn *c, const struct head *h)
{
	const struct parallel_part part = parallel_part(c->parallel, h->a, h->b, 0);
	if (c->state == CONN_LEAVING) {
		c->skip = part.end - part.begin;
		return;
	}
	struct net_node *node = conn_room(c, h->a);
	if (!node)
		return;
	node->whole = node->missing = h->a;
	parallel_announce(c->parallel, node);
	c->announced = true;
	receive(c, node, part.begin, part.end);
}

/* PIECE on another one. NULL, or what is wrong with it. */
static const char *on_piece(struct conn *c, const struct head *h)
{
	struct net_node *node = NULL;
	if (!h->a || h->a > c->net->o.max_message || h->b < c->least)
		return "a piece that cannot be";
	const struct parallel_part part = parallel_part(c->parallel, h->a, h->b, c->place);
	int found = parallel_find(c->parallel, h->b, &node);
	if (part.begin == part.end || (found && (found < 0 || node->whole != h->a)))
		return "a piece of no message";
	c->held = !found && c->state != CONN_LEAVING;
	if (c->held)
		return NULL;
	c->least = h->b + 1;
	if (c->state == CONN_LEAVING)
		c->skip = part.end - part.begin;
	else
		receive(c, node, part.begin, part.end);
	return NULL;
}

void others_head(struct conn *c, const struct head *h, const char *bad)
{
	if (bad)
		;
	else if (h->type == HEAD_PIECE)
		bad = on_piece(c, h);
	else if (h->type == HEAD_PING)
		c->alive_due = true;
	else if (h->type == HEAD_BYE)
		c->apart = true;
	else if (h->type != HEAD_ALIVE)
		bad = "a head that belongs on the first connection";
	if (bad)
		conn_wrong(c, bad);
	else if (c->apart)
		conn_gone(c);
}

/* The peer's farewell has had its turn. */
static void is_over(struct conn *c)
{
	if (conn_is_up(c) && parallel_over(c->parallel))
		conn_break(c, ERR_NET, "closed by the peer");
}

void others_follow(struct conn *c, int64_t at, uint64_t size)
{
	struct net_node *node = net_node_new(c->net->pool);
	if (!node) {
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
		return;
	}
	node->at = at;
	node->size = size;
	parallel_follows(c->parallel, c->link, node);
	is_over(c);
}

void others_arrived(struct conn *c)
{
	struct net_node *node = c->in;
	c->in = NULL;
	if (c->parallel && node->whole) {
		struct parallel_part part =
			parallel_part(c->parallel, node->whole, node->number, c->place);
		parallel_filled(c->parallel, c->link, node, part.end - part.begin);
		is_over(c);
	} else if (c->parallel) {
		parallel_follows(c->parallel, c->link, node);
	} else if (!net_link_deliver(c->link, node)) {
		net_node_done(node);
	}
}
