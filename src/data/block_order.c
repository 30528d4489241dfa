/* SPDX-License-Identifier: Apache-2.0 */
/* block_order.c - see block_order.h. */
#include "data/block_order.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

/* Purposes of keys. */
#define DRAW_BLOCKS 0x626c6f636b73ull
#define DRAW_EPOCH 0x65706f6368ull

struct block_order {
	struct block_shape s;
	uint64_t seed, blocks; /* blocks of training */
	uint32_t *split;       /* where a block lies in the data; of all of them */
	uint32_t *visit;       /* [blocks] of this epoch */
	uint32_t *window;      /* the samples of one window */
	bool planned;
	uint64_t epoch, at; /* of visit and window */
};

static uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

static void shuffle(uint32_t *v, uint64_t n, uint64_t key)
{
	const struct rng_key k = rng_key(key);
	for (uint64_t i = n; i > 1; i--) {
		const uint64_t j = rng_below(k, i - 1, i);
		const uint32_t t = v[i - 1];
		v[i - 1] = v[j];
		v[j] = t;
	}
}

static void count_up(uint32_t *v, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		v[i] = (uint32_t)i;
}

int block_order_new(const struct block_shape *s, uint64_t seed, struct block_order **o_p,
		    struct err *e)
{
	const uint64_t all = ceil_div(s->samples, s->block), train = ceil_div(s->train, s->block),
		       in_window = s->mixed < train ? s->mixed : train;
	uint64_t window;
	struct block_order *o = mem_zalloc(sizeof *o);
	if (!o || !mul_ok(in_window, s->block, &window)) {
		mem_free(o);
		return err_nomem(e, sizeof *o, "the order of the data");
	}
	*o = (struct block_order){ .s = *s,
				   .seed = seed,
				   .blocks = train,
				   .split = mem_array(all, sizeof *o->split),
				   .visit = mem_array(train, sizeof *o->visit),
				   .window = mem_array(window, sizeof *o->window) };
	if (!o->split || !o->visit || !o->window) {
		block_order_free(o);
		return err_nomem(e, (all + train + window) * 4, "the order of the data");
	}
	count_up(o->split, all);
	if (s->drawn)
		shuffle(o->split, s->samples / s->block, rng_fold(seed, DRAW_BLOCKS));
	*o_p = o;
	return 0;
}

void block_order_free(struct block_order *o)
{
	if (!o)
		return;
	mem_free(o->split);
	mem_free(o->visit);
	mem_free(o->window);
	mem_free(o);
}

/* The sample at place p before epochs. */
static uint32_t placed(const struct block_order *o, uint64_t p)
{
	return (uint32_t)(o->split[p / o->s.block] * o->s.block + p % o->s.block);
}

uint32_t block_order_train(struct block_order *o, uint64_t epoch, uint64_t k)
{
	const uint64_t block = o->s.block, window = o->s.mixed * block, at = k / window,
		       key = rng_fold(rng_fold(o->seed, DRAW_EPOCH), epoch);
	const bool same = o->planned && o->epoch == epoch;
	if (!same) {
		count_up(o->visit, o->blocks);
		shuffle(o->visit, o->s.train / block, key);
	}
	if (!same || o->at != at) {
		const uint64_t first = at * o->s.mixed;
		uint64_t n = 0;
		for (uint64_t i = first; i < o->blocks && i < first + o->s.mixed; i++)
			for (uint64_t p = o->visit[i] * block;
			     p < (o->visit[i] + 1) * block && p < o->s.train; p++)
				o->window[n++] = placed(o, p);
		shuffle(o->window, n, rng_fold(key, at + 1));
		o->planned = true;
		o->epoch = epoch;
		o->at = at;
	}
	return o->window[k - at * window];
}

uint32_t block_order_held(const struct block_order *o, uint64_t k)
{
	return placed(o, o->s.train + k);
}
