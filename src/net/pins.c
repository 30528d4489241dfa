/* SPDX-License-Identifier: Apache-2.0 */
/* pins.c - see pins.h. */
#include "net/pins.h"

#include <pthread.h>

#include "base/mem.h"

struct pins {
	pthread_mutex_t lock;
	int refs;
	struct net_pinner who; /* .pin NULL: nobody */
	void **at;             /* [n] what is pinned */
	size_t n, cap;
};

struct pins *pins_new(void)
{
	struct pins *p = mem_zalloc(sizeof *p);
	if (p) {
		pthread_mutex_init(&p->lock, NULL);
		p->refs = 1;
	}
	return p;
}

struct pins *pins_ref(struct pins *p)
{
	if (p)
		__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void pins_unref(struct pins *p)
{
	if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_destroy(&p->lock);
	mem_free(p->at);
	mem_free(p);
}

void pins_set(struct pins *p, const struct net_pinner *who)
{
	pthread_mutex_lock(&p->lock);
	/* nobody unpins it after this, and it may be unmapped before the pinner ends */
	while (p->n && p->who.unpin)
		p->who.unpin(p->who.ctx, p->at[--p->n]);
	p->n = 0;
	p->who = who ? *who : (struct net_pinner){ 0 };
	pthread_mutex_unlock(&p->lock);
}

bool pins_in(struct pins *p, void *at, size_t n)
{
	if (!p)
		return false;
	pthread_mutex_lock(&p->lock);
	const bool is = p->who.pin && mem_grow(&p->at, &p->cap, p->n + 1, sizeof *p->at) &&
			p->who.pin(p->who.ctx, at, n);
	if (is)
		p->at[p->n++] = at;
	pthread_mutex_unlock(&p->lock);
	return is;
}

void pins_out(struct pins *p, void *at)
{
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n; i++)
		if (p->at[i] == at) {
			p->at[i] = p->at[--p->n];
			p->who.unpin(p->who.ctx, at);
			break;
		}
	pthread_mutex_unlock(&p->lock);
}
