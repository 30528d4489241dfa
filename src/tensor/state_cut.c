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

void state_cut_find(const struct state_cut *c, struct state_dealt *d, int64_t count, int64_t *cut)
{
	const int64_t blocks = (count + STATE_BLOCK - 1) / STATE_BLOCK;
	const int owner = c->whole ? neediest(c, d, count) : -1;
	int64_t before = 0;
	if (c->whole)
		d->at[owner] += count;
	for (int k = 0; k <= c->n; k++) {
		const int64_t b = (blocks * before * 2 + STATE_WHOLE) / (2 * STATE_WHOLE);
		if (c->whole)
			cut[k] = k > owner ? count : 0;
		else
			cut[k] = b * STATE_BLOCK < count ? b * STATE_BLOCK : count;
		before += k < c->n ? c->share[k] : 0;
	}
}
