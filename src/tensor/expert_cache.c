/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache.c - see expert_cache.h. A device orders an upload into a slot behind the products
 * that read it (dev.h), so a slot may be given up as soon as its product is queued. */
#include "tensor/expert_cache.h"

#include "base/err.h"
#include "base/mem.h"

enum { FORGET = 64 /* needs of a matrix, in the mean, after which counts are halved */ };

struct cached {
	struct expert_cache *cache;
	struct dev_buf *home; /* of the host: numbers, and behind them block scales */
	size_t data, scales;
	struct slot *slot; /* NULL: not on the device */
	uint64_t uses, last;
	bool wanted, ahead; /* marked; it came before it was needed */
};

struct slot {
	struct dev_buf *data, *scales;
	struct param *of;
};

struct expert_cache {
	struct dev *dev, *host;
	uint64_t bytes;
	size_t matrices;
	struct cached **entry;
	size_t n, entry_cap;
	struct slot **slot;
	size_t slots, slot_cap;
	uint64_t needs; /* since counts were halved */
	uint64_t clock;
	struct expert_counts counts, told; /* told: before the last expert_cache_since() */
};

int expert_cache_new(struct dev *dev, struct dev *host, uint64_t bytes, size_t matrices,
		     struct expert_cache **c_p, struct err *e)
{
	struct expert_cache *c = mem_zalloc(sizeof *c);
	if (!c)
		return err_nomem(e, sizeof *c, "a cache of experts");
	*c = (struct expert_cache){
		.dev = dev, .host = host, .bytes = bytes, .matrices = matrices
	};
	*c_p = c;
	return 0;
}

void expert_cache_free(struct expert_cache *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++) {
		dev_free(c->entry[i]->home);
		mem_free(c->entry[i]);
	}
	for (size_t i = 0; i < c->slots; i++) {
		dev_free(c->slot[i]->data);
		dev_free(c->slot[i]->scales);
		mem_free(c->slot[i]);
	}
	mem_free(c->entry);
	mem_free(c->slot);
	mem_free(c);
}

int expert_cache_take(struct expert_cache *c, struct param *p, struct err *e)
{
	struct cached *k = mem_zalloc(sizeof *k);
	if (!k || !mem_grow(&c->entry, &c->entry_cap, c->n + 1, sizeof *c->entry)) {
		mem_free(k);
		return err_nomem(e, sizeof *k, "a cache of experts");
	}
	*k = (struct cached){ .cache = c,
			      .data = p->store[0]->size,
			      .scales = p->store[2] ? p->store[2]->size : 0 };
	c->entry[c->n++] = k;
	if (k->data != c->entry[0]->data || k->scales != c->entry[0]->scales)
		return err_set(e, ERR_UNSUPPORTED,
			       "offload: experts: %s has another size than other experts", p->name);
	TRY(dev_alloc(c->host, k->data + k->scales, &k->home, e));
	TRY(dev_download(k->home->host, DEV_REF(p->store[0], 0), k->data, e));
	if (k->scales)
		TRY(dev_download((char *)k->home->host + k->data, DEV_REF(p->store[2], 0),
				 k->scales, e));
	dev_free(p->store[0]);
	dev_free(p->store[2]);
	p->store[0] = p->store[2] = NULL;
	p->w.data = p->w.absmax = DEV_NONE;
	p->cached = k;
	return 0;
}

/* One more slot, if there may be one. */
static int add_slot(struct expert_cache *c, const struct cached *k, struct slot **s_p,
		    struct err *e)
{
	struct slot *s;
	*s_p = NULL;
	const size_t most = c->bytes ? c->bytes / (k->data + k->scales) : c->matrices;
	if (c->slots && c->slots >= most)
		return 0;
	s = mem_zalloc(sizeof *s);
	if (!s || !mem_grow(&c->slot, &c->slot_cap, c->slots + 1, sizeof *c->slot)) {
		mem_free(s);
		return err_nomem(e, sizeof *s, "a cache of experts");
	}
	c->slot[c->slots++] = s;
	TRY(dev_alloc(c->dev, k->data, &s->data, e));
	if (k->scales)
		TRY(dev_alloc(c->dev, k->scales, &s->scales, e));
	*s_p = s;
	return 0;
}

static bool is_before(const struct cached *a, const struct cached *b)
{
	if (a->wanted != b->wanted)
		return b->wanted;
	return a->uses < b->uses || (a->uses == b->uses && a->last < b->last);
}

/* The slot of the matrix that was used least; NULL: `spared` ones alone are left, which are marked
 * or what the last product reads. */
static struct slot *give_up(struct expert_cache *c, bool spared)
{
	struct slot *least = NULL;
	for (size_t i = 0; i < c->slots; i++) {
		const struct cached *a = c->slot[i]->of->cached;
		if (spared && (a->wanted || a->last == c->clock))
			continue;
		if (!least || is_before(a, least->of->cached))
			least = c->slot[i];
	}
	if (!least)
		return NULL;
	struct param *was = least->of;
	was->cached->slot = NULL;
	was->w.data = was->w.absmax = DEV_NONE;
	return least;
}

static void forget(struct expert_cache *c)
{
	if (++c->needs < FORGET * (uint64_t)c->n)
		return;
	c->needs = 0;
	for (size_t i = 0; i < c->n; i++)
		c->entry[i]->uses /= 2;
}

/* Into a slot that is free. */
static int fill(struct expert_cache *c, struct slot *s, struct param *p, struct err *e)
{
	struct cached *k = p->cached;
	s->of = p;
	k->slot = s;
	p->w.data = DEV_REF(s->data, 0);
	p->w.absmax = k->scales ? DEV_REF(s->scales, 0) : DEV_NONE;
	c->counts.bytes += k->data + k->scales;
	TRY(dev_upload(p->w.data, k->home->host, k->data, e));
	return k->scales ? dev_upload(p->w.absmax, (const char *)k->home->host + k->data, k->scales,
				      e)
			 : 0;
}

int expert_cache_bring(struct param *p, struct err *e)
{
	struct cached *k = p->cached;
	struct expert_cache *c = k->cache;
	struct slot *s;
	forget(c);
	k->uses++;
	k->last = ++c->clock;
	k->wanted = false;
	if (k->slot && !k->ahead)
		c->counts.hits++;
	else
		c->counts.misses++;
	k->ahead = false;
	if (k->slot)
		return 0;
	TRY(add_slot(c, k, &s, e));
	return fill(c, s ? s : give_up(c, false), p, e);
}

bool expert_cache_has(const struct param *p) { return p->cached->slot != NULL; }
void expert_cache_want(struct param *p) { p->cached->wanted = true; }

int expert_cache_ahead(struct param *p, struct err *e)
{
	struct cached *k = p->cached;
	struct expert_cache *c = k->cache;
	struct slot *s;
	if (k->slot)
		return 0;
	TRY(add_slot(c, k, &s, e));
	s = s ? s : give_up(c, true);
	if (!s)
		return 0;
	const int busy = dev_busy(c->dev, e);
	if (busy < 0)
		return busy;
	k->ahead = true;
	c->counts.beside += busy ? k->data + k->scales : 0;
	return fill(c, s, p, e);
}

struct expert_counts expert_cache_counts(const struct expert_cache *c)
{
	return c ? c->counts : (struct expert_counts){ 0 };
}

void expert_cache_since(struct expert_cache *c, uint64_t *hits_p, uint64_t *misses_p)
{
	const struct expert_counts now = expert_cache_counts(c);
	*hits_p = c ? now.hits - c->told.hits : 0;
	*misses_p = c ? now.misses - c->told.misses : 0;
	if (c)
		c->told = now;
}
