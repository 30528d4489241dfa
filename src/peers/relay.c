/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c - see relay.h. */
#include "peers/relay.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/frame.h"

#include <stdio.h>
#include <string.h>

enum { TURN = 16 }; /* messages of one side before the other ones have their turn */

static void end_pair(struct relays *r, size_t k)
{
	for (int s = 0; s < 2; s++) {
		if (r->pair[k].side[s].held)
			net_buffer_release(r->net, r->pair[k].side[s].held);
		if (r->pair[k].side[s].link)
			link_close(r->pair[k].side[s].link);
	}
	r->pair[k] = r->pair[--r->n];
}

static struct relay_pair *find(struct relays *r, uint32_t a, uint32_t b, uint32_t front)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct relay_side *s = r->pair[i].side;
		if (s[0].member == a && s[1].member == b && r->pair[i].front == front)
			return &r->pair[i];
	}
	return NULL;
}

int relays_add(struct relays *r, struct link *l, uint32_t member, const char *id, uint32_t other,
	       const char *other_id, uint32_t front, double patience, struct relay_pair **ready_p,
	       struct err *e)
{
	uint32_t low = member < other ? member : other, high = member < other ? other : member;
	struct relay_pair *p = find(r, low, high, front);
	*ready_p = NULL;
	if (p && p->side[0].link && p->side[1].link) {
		/* a worker begins anew: what is on its way is of the old link, also to the other */
		end_pair(r, (size_t)(p - r->pair));
		p = NULL;
	}
	if (!p) {
		if (r->n == r->most)
			return err_set(e, ERR_NET, "%zu pairs of workers are relayed already",
				       r->n);
		if (!mem_grow(&r->pair, &r->cap, r->n + 1, sizeof *r->pair))
			return err_nomem(e, sizeof *r->pair, "a relayed link");
		p = &r->pair[r->n++];
		*p = (struct relay_pair){ .front = front, .until = net_in(patience) };
		p->side[0].member = low;
		p->side[1].member = high;
		snprintf(p->side[0].id, sizeof p->side[0].id, "%s", low == member ? id : other_id);
		snprintf(p->side[1].id, sizeof p->side[1].id, "%s", low == member ? other_id : id);
	}
	struct relay_side *s = &p->side[member == high];
	if (s->link) /* a new try of the one that waits */
		link_close(s->link);
	s->link = l;
	if (p->side[0].link && p->side[1].link)
		*ready_p = p;
	return 0;
}

/* What a message says of itself must be its way. A number of 0 (before PLAN) is nobody's. */
static const char *checked(const struct net_msg *m, const struct relay_side *from,
			   const struct relay_side *to)
{
	struct frame f;
	struct err why = { 0 };
	if (frame_parse_trusted(m->data, m->size, &f, &why) < 0)
		return "what it sends is no frame";
	if (f.from != FRAME_NOBODY && f.from != from->member)
		return "it speaks for another member";
	if (f.to != FRAME_NOBODY && f.to != to->member)
		return "it speaks to another member";
	return NULL;
}

/* The next message of one side, copied for the other. 1, 0: there is none, or an error. */
static int take(struct relay_side *from, struct relay_side *to)
{
	struct net_msg m;
	struct err e = { 0 };
	int rc = link_recv(from->link, NET_NOW, &m, &e);
	if (rc <= 0)
		return rc;
	const char *wrong = checked(&m, from, to);
	if (wrong)
		log_warn("worker '%s', relayed to '%s': %s", from->id, to->id, wrong);
	else
		from->held = link_buffer(to->link, m.size);
	from->held_n = m.size;
	if (from->held)
		memcpy(from->held, m.data, m.size);
	net_msg_release(&m);
	return from->held ? 1 : ERR_PROTOCOL;
}

/* One direction. false: the pair is over. */
static bool pass(struct net *n, struct relay_side *from, struct relay_side *to, bool *moved)
{
	for (int i = 0; i < TURN; i++) {
		struct err e = { 0 };
		int rc = from->held ? 1 : take(from, to);
		if (rc <= 0)
			return rc == 0;
		rc = link_send(to->link, from->held, from->held_n, net_buffer_release, n, &e);
		if (rc == LINK_FULL)
			return true;
		if (rc < 0)
			return false;
		from->held = NULL;
		*moved = true;
	}
	return true;
}

bool relays_work(struct relays *r)
{
	bool moved = false;
	for (size_t k = 0; k < r->n;) {
		struct relay_side *s = r->pair[k].side;
		bool whole = s[0].link && s[1].link, on = whole || clock_now() < r->pair[k].until;
		for (int i = 0; i < 2 && on && !whole; i++)
			on = !s[i].link || link_state(s[i].link) != LINK_LOST;
		if (whole)
			on = pass(r->net, &s[0], &s[1], &moved) &&
			     pass(r->net, &s[1], &s[0], &moved);
		if (on)
			k++;
		else
			end_pair(r, k);
	}
	return moved;
}

size_t relays_poll(const struct relays *r, struct net_poll *p, bool *soon_p)
{
	size_t n = 0;
	*soon_p = false;
	for (size_t k = 0; k < r->n; k++)
		for (int i = 0; i < 2; i++) {
			const struct relay_side *from = &r->pair[k].side[i];
			if (!from->link || !r->pair[k].side[!i].link)
				continue;
			*soon_p |= from->held != NULL;
			if (!from->held)
				p[n++] = (struct net_poll){ from->link, NET_RECV, 0 };
		}
	return n;
}

void relays_close(struct relays *r)
{
	while (r->n)
		end_pair(r, r->n - 1);
	mem_free(r->pair);
	*r = (struct relays){ 0 };
}
