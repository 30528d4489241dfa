/* SPDX-License-Identifier: Apache-2.0 */
/* sum_time.h - how long the sum of gradients over a group takes, by the way of adding up
 * (sched/reduce.def) and the links between the members. Pure.
 *
 * Letters: n members, B bytes of gradients (float32), t_i terms of member i (sched/sum.h), s
 * segments of the array.
 *
 *   direct  first half: member i sends t_i B / n to each other one; second half: B / n to each.
 *           Each pair of members has a link of its own; what leaves or reaches a host shares its
 *           network card
 *   ring    2 (n - 1) steps of B / (s n) one after the other, for each segment; the slowest link of
 *           the ring sets the pace. A step's parts follow each other (reduce_ring.c), so it takes
 *           the time of its bytes, or where that is longer the latency and the time of one part.
 *           The first step of all segments is the first half
 *   tree    2 log2 n messages of B / s one after the other, for each segment, by the slowest link
 *
 * Where the group shares its training state only the first half happens, with ring n - 1 steps.
 * Both halves also take what copying needs between device and link: a member's terms down before
 * the first, the sum up in the second; but not of a processor that runs passes, whose copies are
 * part of the time of these (cost_talk.c). With tree nothing happens in the first half. */
#ifndef HS_PLAN_SUM_TIME_H
#define HS_PLAN_SUM_TIME_H

#include "plan/plan.h"
#include "sched/reduce.h"

#include <stdbool.h>

struct sum_group {
	const struct profile *p;
	const int *device; /* [n] */
	int n;
	const struct sum_terms *terms;
	const struct reducer *how;
	double bytes;            /* in float32, as the devices have them */
	bool halved;             /* on the links each takes half as many */
	bool shared;             /* each member gets the sum of what it owns only */
	const double *up, *down; /* [devices] seconds to copy a byte */
};

/* Seconds of the halves before and behind REDUCE (sched/play.h: scatter_s, reduce_s). */
void sum_time(const struct sum_group *g, double *scatter_s_p, double *reduce_s_p);
/* Seconds until all have the values of all: member i sends share(i) of `bytes` to each other one.
 * `in_passes`: before a pass (shared values), where copies of processors count as above; false:
 * behind STEP (shared state), where nothing is computed meanwhile. */
double gather_time(const struct sum_group *g, const struct plan_member *m, double bytes,
		   bool in_passes);

#endif
