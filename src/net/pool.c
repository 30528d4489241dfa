/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - nodes and buffers that are used again, so that a warm link allocates nothing.
 *
 * A pool outlives its net as long as something of it is under way: a receiver may hold bytes of a
 * sender that has left. Buffers come in classes of four sizes per power of two (at most a quarter
 * is wasted). */
#include <string.h>

#include "base/mem.h"
#include "net/net_priv.h"

#define HEAD NET_BUFFER_HEAD /* which keeps the bytes aligned to 64 */
#define SMALLEST 6           /* log2 of the smallest class */
#define CLASSES (4 * 36)

struct buffer {
	struct net_buffer_head h;
	struct net_pool *pool;
	struct buffer *next;
	size_t bytes;
	unsigned class;
};
_Static_assert(sizeof(struct buffer) <= HEAD, "the head of a buffer fits in front of it");

struct net_pool {
	pthread_mutex_t lock;
	struct net_node *nodes;
	struct buffer *buffers[CLASSES];
	uint64_t kept, keep;
	uint64_t out; /* nodes and buffers under way */
	bool closed;
};

struct net_pool *net_pool_new(uint64_t keep)
{
	struct net_pool *p = mem_zalloc(sizeof *p);
	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->keep = keep;
	return p;
}

static void pool_free(struct net_pool *p)
{
	for (struct net_node *n = p->nodes, *next; n; n = next) {
		next = n->next;
		mem_free(n);
	}
	for (int i = 0; i < CLASSES; i++)
		for (struct buffer *b = p->buffers[i], *next; b; b = next) {
			next = b->next;
			mem_free(b);
		}
	pthread_mutex_destroy(&p->lock);
	mem_free(p);
}

/* Unlocks; frees a closed pool whose last piece came back. */
static void leave(struct net_pool *p)
{
	bool gone = p->closed && !p->out;
	pthread_mutex_unlock(&p->lock);
	if (gone)
		pool_free(p);
}

void net_pool_close(struct net_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	leave(p);
}

struct net_node *net_node_new(struct net_pool *p)
{
	pthread_mutex_lock(&p->lock);
	struct net_node *n = p->nodes;
	if (n)
		p->nodes = n->next;
	else
		n = mem_alloc(sizeof *n);
	if (n)
		p->out++;
	pthread_mutex_unlock(&p->lock);
	if (n)
		*n = (struct net_node){ .pool = p };
	return n;
}

void net_node_free(struct net_node *n)
{
	struct net_pool *p = n->pool;
	pthread_mutex_lock(&p->lock);
	n->next = p->nodes;
	p->nodes = n;
	p->out--;
	leave(p);
}

void net_node_done(struct net_node *n)
{
	if (n->release)
		n->release(n->ctx, n->data);
	net_node_free(n);
}

void net_nodes_done(struct net_node *list)
{
	for (struct net_node *next; list; list = next) {
		next = list->next;
		net_node_done(list);
	}
}

/* Class of a size: four steps between powers of two. *bytes_p: the size of the class. */
static unsigned class_of(size_t bytes, size_t *bytes_p)
{
	if (bytes <= (size_t)1 << SMALLEST) {
		*bytes_p = (size_t)1 << SMALLEST;
		return 0;
	}
	unsigned top = 63 - (unsigned)__builtin_clzll(bytes - 1);
	size_t step = (size_t)1 << (top - 2);
	size_t k = (bytes + step - 1) / step; /* 5 to 8 steps */
	*bytes_p = k * step;
	return (top - SMALLEST) * 4 + (unsigned)(k - 4);
}

static void back(struct net_buffer_head *h)
{
	struct buffer *b = (struct buffer *)(void *)h;
	struct net_pool *p = b->pool;
	bool keep;
	pthread_mutex_lock(&p->lock);
	keep = p->kept + b->bytes <= p->keep;
	if (keep) {
		b->next = p->buffers[b->class];
		p->buffers[b->class] = b;
		p->kept += b->bytes;
	}
	p->out--;
	leave(p);
	if (!keep)
		mem_free(b);
}

void *net_pool_buffer(struct net_pool *p, size_t bytes)
{
	if (bytes > (size_t)1 << 40)
		return NULL;
	size_t full;
	unsigned class = class_of(bytes, &full);
	pthread_mutex_lock(&p->lock);
	struct buffer *b = p->buffers[class];
	if (b) {
		p->buffers[class] = b->next;
		p->kept -= b->bytes;
	}
	p->out++;
	pthread_mutex_unlock(&p->lock);
	if (!b) {
		b = mem_aligned(64, HEAD + full);
		if (!b) {
			pthread_mutex_lock(&p->lock);
			p->out--;
			leave(p);
			return NULL;
		}
		*b = (struct buffer){ .h = { .back = back },
				      .pool = p,
				      .bytes = full,
				      .class = class };
	}
	return (char *)b + HEAD;
}

void net_buffer_release(void *net, void *data)
{
	(void)net;
	if (!data)
		return;
	struct net_buffer_head *h = (struct net_buffer_head *)(void *)((char *)data - HEAD);
	h->back(h);
}
