/* SPDX-License-Identifier: Apache-2.0 */
/* dev_attn.c - see dev_attn.h. */
#include "dev/dev_attn.h"

/* A multiprocessor holds two groups, as their lanes have all registers; a group works on 64 keys on
 * most cards with matrix units, at widths above 128 on 32 (attn_tile.k), above 256 on 4
 * (attn_wide.k). A part is worth its sums where it has 128 queries, on average over the heads. */
enum { HOLDS = 2, KEYS = 64, WIDE = 128, WIDEST = 256, WIDEST_KEYS = 4, WORTH = 128, MOST = 64 };
/* Operations of a launch: a second at 0.5 TFLOP/s, and enough groups for a large card. */
#define PIECE_FLOPS 5e11

static int64_t over(int64_t n, int64_t d) { return (n + d - 1) / d; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t dev_attn_parts(int units, const struct dev_attn *a)
{
	if (a->n < 1 || a->s < 1 || a->g < 1)
		return 1;
	const int64_t keys = a->d > WIDEST ? WIDEST_KEYS
			     : a->d > WIDE ? KEYS / 2
					   : KEYS,
		      mean = over(a->n, a->s), groups = over(mean, keys) * a->s * a->g,
		      sees = a->window > 0 ? least(mean, a->window + keys) : mean,
		      worth = sees * (a->h / a->g) / WORTH,
		      parts = least(least((int64_t)units * HOLDS / groups, worth), MOST);
	return parts > 1 ? parts : 1;
}

size_t dev_attn_bytes(const struct dev_attn *a, int64_t parts)
{
	const int64_t delta = over(a->h * a->n, 4) * 4;
	return 4 * (size_t)(delta + (parts > 1 ? 2 * parts * a->n * a->g * a->d : 0));
}

int64_t dev_attn_pieces(const struct dev_attn *a, bool back)
{
	if (a->n < 1 || a->s < 1 || a->g < 1 || a->h % a->g)
		return 1;
	/* a query sees half of its sequence on average, or its window; the largest kernel makes two
	 * products forward and four backward */
	const double mean = (double)over(a->n, a->s) / 2,
		     sees = a->window > 0 && (double)a->window < mean ? (double)a->window : mean,
		     flops = (back ? 8.0 : 4.0) * (double)a->n * sees * (double)(a->h * a->d);
	return flops < PIECE_FLOPS * (double)a->g ? least(1 + (int64_t)(flops / PIECE_FLOPS), a->g)
						  : a->g;
}
