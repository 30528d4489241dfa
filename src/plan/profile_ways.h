/* SPDX-License-Identifier: Apache-2.0 */
/* profile_ways.h - the measurements behind a link of a profile: every pair of addresses that was
 * tried. Used by profile_json.c. */
#ifndef HS_PLAN_PROFILE_WAYS_H
#define HS_PLAN_PROFILE_WAYS_H

#include <jansson.h>

#include "plan/profile.h"

struct buf;

/* The member "ways" of a link; none is fine. */
int profile_ways_read(struct profile *p, const json_t *link, const char *where,
		      struct profile_link *l, struct err *e);
void profile_ways_write(const struct profile_link *l, struct buf *b);

#endif
