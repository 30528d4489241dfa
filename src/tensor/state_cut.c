/* SPDX-License-Identifier: Apache-2.0 */
/* state_cut.c - see state_cut.h. */
#include "tensor/state_cut.h"

/* Who has the least for its share when `count` more elements are dealt; of equal ones the lower. */
static int neediest(const struct state_cut *c, const struct state_dealt *d, int64_t count)
{
	int best = -1;
	double least = 0;
	for (int k = 0; k < c->n; k++) {
		if (!c->share[k])
			continue;
		const double full = (double)(d->at[k] + count) / c->share[k];
		if (best < 0 || full < least) {
			best = k;
			least = full;
		}
	}
	return best;
}

/* Whole parameters go to one member each. */
static void give_whole(const struct state_cut *c, struct state_dealt *d, int64_t count,
		       int64_t *cut)
{
	const int owner = neediest(c, d, count);
	d->at[owner] += count;
	for (int k = 0; k <= c->n; k++)
		cut[k] = k > owner ? count : 0;
}

void state_cut_find(const struct state_cut *c, struct state_dealt *d, int64_t count, int64_t *cut)
{
	const int64_t blocks = (count + STATE_BLOCK - 1) / STATE_BLOCK;
	int64_t all = count, before = 0, have = 0, at = 0;
	if (c->whole) {
		give_whole(c, d, count, cut);
		return;
	}
	for (int k = 0; k < c->n; k++)
		all += d->at[k];
	cut[0] = 0;
	for (int k = 0; k < c->n; k++) {
		before += c->share[k];
		have += d->at[k];
		/* so that the members up to this one have their share of all so far */
		const int64_t want = all * before / STATE_WHOLE - have,
			      b = want > 0 ? (want + STATE_BLOCK / 2) / STATE_BLOCK : 0;
		at = before == STATE_WHOLE || b > blocks ? blocks : b > at ? b : at;
		cut[k + 1] = at * STATE_BLOCK < count ? at * STATE_BLOCK : count;
	}
	for (int k = 0; k < c->n; k++)
		d->at[k] += cut[k + 1] - cut[k];
}
