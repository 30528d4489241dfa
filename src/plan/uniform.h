/* SPDX-License-Identifier: Apache-2.0 */
/* uniform.h - the same job on a cluster of equal cards, to compare a mixed one with. */
#ifndef HS_PLAN_UNIFORM_H
#define HS_PLAN_UNIFORM_H

#include "plan/profile.h"

struct err;
struct buf;
struct prices;

/* `text`: "kind=3090,count=4,hosts=2,bandwidth=1.25[,latency=0.1][,memory=24]", or "3090".
 * `count` is for all hosts; without it, as many as `euro` buys by `prices` (NULL: an error). Cards
 * are dealt to `hosts` (default 1) in turn; bandwidth (GB/s, default gigabit) and latency are those
 * between hosts. `path`: the description that *p is of (describe.h), so that the cards compute in
 * the dtype that suits them; NULL: *p was measured, and its dtype stays. *out is a profile of its
 * own; *name_p ("4 x RTX 3090") is in its arena; lines about the cards' times go to `notes`. */
int profile_uniform(const struct profile *p, const char *text, struct prices *prices, double euro,
		    const char *path, struct profile *out, const char **name_p, struct buf *notes,
		    struct err *e);

#endif
