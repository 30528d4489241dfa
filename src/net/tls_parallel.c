/* SPDX-License-Identifier: Apache-2.0 */
/* tls_parallel.c - see tls_parallel.h. */
#include "net/tls_parallel.h"

#include "base/mem.h"

enum { RECORD = 16 << 10, PART_LEAST = 64 << 10 };

struct parallel *parallel_new(unsigned n, uint64_t id)
{
	struct parallel *p = mem_zalloc(sizeof *p);
	if (!p)
		return NULL;
	p->n = n;
	p->id = id;
	p->in_end = &p->in;
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->sending, NULL);
	return p;
}

void parallel_free(struct parallel *p)
{
	if (!p)
		return;
	net_nodes_done(p->in);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->sending);
	mem_free(p);
}

/* ---- connections ---------------------------------------------------------------------------- */

bool parallel_join(struct parallel *p, unsigned place, struct conn *c)
{
	pthread_mutex_lock(&p->lock);
	bool ok = !p->shut && place < p->n && !p->conn[place];
	if (ok)
		p->conn[place] = c;
	pthread_mutex_unlock(&p->lock);
	return ok;
}

bool parallel_up(struct parallel *p)
{
	pthread_mutex_lock(&p->lock);
	bool all = ++p->up == p->n - 1;
	pthread_mutex_unlock(&p->lock);
	return all;
}

bool parallel_shut(struct parallel *p)
{
	pthread_mutex_lock(&p->lock);
	bool first = !p->shut;
	p->shut = true;
	pthread_mutex_unlock(&p->lock);
	return first;
}

bool parallel_ready(struct parallel *p)
{
	pthread_mutex_lock(&p->lock);
	bool ready = p->up == p->n - 1 && !p->shut;
	pthread_mutex_unlock(&p->lock);
	return ready;
}

/* ---- cutting -------------------------------------------------------------------------------- */

struct parallel_part parallel_part(const struct parallel *p, uint64_t whole, uint64_t number,
				   unsigned place)
{
	struct parallel_part r = { 0, 0 };
	if (whole < (uint64_t)p->n * PART_LEAST) { /* all of it goes over one of them, in turn */
		r.end = number % p->n == place ? whole : 0;
		return r;
	}
	uint64_t each = (whole / p->n + RECORD) / RECORD * RECORD;
	r.begin = each * place < whole ? each * place : whole;
	r.end = whole - r.begin < each ? whole : r.begin + each;
	return r;
}

/* A piece is done with; with the last one, so is the message. */
static void piece_done(void *message, void *data)
{
	struct net_node *whole = message;
	(void)data;
	if (__atomic_sub_fetch(&whole->missing, 1, __ATOMIC_ACQ_REL) == 0)
		net_node_done(whole);
}

bool parallel_cut(struct parallel *p, struct net_node *message,
		  struct net_node *piece[PARALLEL_MOST])
{
	unsigned count = 0;
	for (unsigned i = 0; i < p->n; i++) {
		struct parallel_part part = parallel_part(p, message->size, p->sent, i);
		piece[i] = i == 0 || part.end > part.begin ? net_node_new(message->pool) : NULL;
		if (!piece[i] && (i == 0 || part.end > part.begin)) {
			while (i--)
				if (piece[i])
					net_node_free(piece[i]);
			return false;
		}
		if (!piece[i])
			continue;
		piece[i]->data = (char *)message->data + part.begin;
		piece[i]->size = part.end - part.begin;
		piece[i]->release = piece_done;
		piece[i]->ctx = message;
		piece[i]->whole = message->size;
		piece[i]->number = p->sent;
		count++;
	}
	message->missing = count;
	p->sent++;
	return true;
}

/* ---- putting together ----------------------------------------------------------------------- */

static void append(struct parallel *p, struct net_node *node)
{
	node->next = NULL;
	*p->in_end = node;
	p->in_end = &node->next;
}

/* Under the lock: gives out what is complete, in order. What nobody wants is returned. */
static struct net_node *give_out(struct parallel *p, struct link *l)
{
	struct net_node *left = NULL, *node;
	while ((node = p->in) && !node->missing) {
		p->in = node->next;
		if (!p->in)
			p->in_end = &p->in;
		if (node->at == PARALLEL_CREDIT)
			net_link_credit(l, node->size);
		else if (node->at == PARALLEL_BYE)
			p->over = true;
		else if (net_link_deliver(l, node))
			continue;
		node->next = left;
		left = node;
	}
	return left;
}

void parallel_announce(struct parallel *p, struct net_node *node)
{
	pthread_mutex_lock(&p->lock);
	node->number = p->announced++;
	append(p, node);
	pthread_mutex_unlock(&p->lock);
}

int parallel_find(struct parallel *p, uint64_t number, struct net_node **node_p)
{
	int rc = -1;
	pthread_mutex_lock(&p->lock);
	if (number >= p->announced)
		rc = 0;
	for (struct net_node *node = p->in; rc < 0 && node; node = node->next)
		if (node->whole && node->number == number && node->missing) {
			*node_p = node;
			rc = 1;
		}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void parallel_filled(struct parallel *p, struct link *l, struct net_node *node, uint64_t bytes)
{
	struct net_node *left = NULL;
	pthread_mutex_lock(&p->lock);
	node->missing -= bytes;
	if (!node->missing)
		left = give_out(p, l);
	pthread_mutex_unlock(&p->lock);
	net_nodes_done(left);
}

void parallel_follows(struct parallel *p, struct link *l, struct net_node *node)
{
	pthread_mutex_lock(&p->lock);
	append(p, node);
	struct net_node *left = give_out(p, l);
	pthread_mutex_unlock(&p->lock);
	net_nodes_done(left);
}

bool parallel_over(struct parallel *p)
{
	pthread_mutex_lock(&p->lock);
	bool over = p->over;
	pthread_mutex_unlock(&p->lock);
	return over;
}
