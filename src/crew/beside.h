/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - plans in which workers that do not reach each other are not beside each other: neither
 * in neighbouring stages nor in one group. Pure. */
#ifndef HS_CREW_BESIDE_H
#define HS_CREW_BESIDE_H

#include "config/config.h"
#include "plan/plan.h"

struct beside {
	const char *const *id; /* [n] of the workers */
	const bool *apart;     /* [n * n] the pairs, at the lower number's row */
	int n;
};

/* `b` NULL: all reach each other. */

/* Whether a plan puts such a pair beside each other, and the first one. Stages with several chunks,
 * and those of a trained tied embedding (`tied`), form a ring. */
bool beside_is(const struct beside *b, const struct profile *of, const struct plan *p, bool tied,
	       int pair[2]);
/* As a planner sees it: their link takes for ever. */
void beside_cut(const struct beside *b, struct profile *p);
/* Entries of shard_plan change places, their layers do not: the least change after which no pair is
 * beside each other, or none where there is none (or it is not found soon). */
void beside_order(const struct beside *b, struct config_shard *v, size_t n);

#endif
