/* SPDX-License-Identifier: Apache-2.0 */
/* cost_talk.c - the time that the messages of a group take from the computing of a processor; see
 * cost_parts.h.
 *
 * With n members, B bytes of gradients and t_i terms of member i in the order of the sum: it sends
 * t_i (n - 1) B / n and receives B / n for each term of the others, which it adds (counted as once
 * more); and both without the terms and the adding where all of them need the whole sum. Of V
 * bytes of values that are gathered it sends its share to each other one and receives the rest.
 * Each byte takes what it was measured to take (profile: copy_ms) on one core; a device that
 * computes on N cores loses one N-th. */
#include "plan/cost_parts.h"

#include <math.h>

static int terms_of(const struct sum_group *g, int place)
{
	int n = 0;
	for (int i = 0; i < g->terms->n; i++)
		n += g->terms->term[i].place == place;
	return n;
}

struct cost_talk cost_talk(const struct sum_group *g, const struct plan_stage *s, int i, bool last,
			   double values)
{
	const struct profile_device *d = &g->p->device[g->device[i]];
	const double piece = g->bytes / g->n * (g->halved ? 0.5 : 1), down = g->down[g->device[i]],
		     up = g->up[g->device[i]];
	const double cores = fmax(1, d->processors);
	double out = 0, in = 0;
	if (!d->on_host)
		return (struct cost_talk){ 0, 0 };
	for (int k = 0; k < g->n; k++)
		if (k != i) {
			out += piece * (terms_of(g, i) + !g->shared);
			in += piece * (2 * terms_of(g, k) + !g->shared);
		}
	const double share = s->member[i].state_share,
		     gather = s->sharded ? values * (share * (g->n - 1) * down + (1 - share) * up)
					 : 0;
	return (struct cost_talk){ gather / cores,
				   ((last ? 0 : gather) + out * down + in * up) / cores };
}
