/* SPDX-License-Identifier: Apache-2.0 */
/* group_there.h - sums of gradients that are added on a card (sched/reduce.h, reduce_there): what
 * is sent and received is memory of a link that the card knows (dev/pin.h), so between cards of one
 * machine it goes from card to card (dev/rt_far.c).
 *
 * All members whose device does that must do it, for then a message may hold a mark in place of the
 * numbers. It depends on the device and on the plan alone: float32 on the wire. */
#ifndef HS_ENGINE_GROUP_THERE_H
#define HS_ENGINE_GROUP_THERE_H

#include "engine/group_sum.h"

/* The reduction of an array of gradients, and what its functions need. */
struct array_sum {
	struct group_sum *of;
	int array;
	struct reduction r;
};

/* For a reduction whose ctx is an array_sum; NULL: by the host. */
const struct reduce_there *group_there(struct dev *d, const struct plan_message *p);
void group_there_release(struct group_sum *g);

#endif
