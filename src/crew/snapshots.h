/* SPDX-License-Identifier: Apache-2.0 */
/* snapshots.h - when the training state of all workers is collected, so that a job can go on from
 * there when one of them is lost (crew/snapshot.h).
 *
 * Every checkpoint is such a state too. Between them it is collected every `snapshot_steps` steps,
 * or by default as often as takes at most 2 % of the time; before the first one its cost is guessed
 * from its size. */
#ifndef HS_CREW_SNAPSHOTS_H
#define HS_CREW_SNAPSHOTS_H

#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct snapshots {
	enum config_snapshot to; /* not SNAPSHOT_AUTO */
	uint64_t steps;          /* 0: by the clock */
	uint64_t bytes;          /* of a state */
	double cost;             /* seconds that the last one took, or a guess */
	int64_t last;            /* when the last one was collected */
	uint64_t at;             /* after which step */
	bool said;               /* how often there is one */
};

/* Where they go: with `auto` into the memory when two sets of `bytes` take at most half of what is
 * free, else to the disk. */
enum config_snapshot snapshots_place(const struct config *c, uint64_t bytes);
void snapshots_init(struct snapshots *s, const struct config *c, uint64_t bytes, uint64_t step);
/* After step `step`. */
bool snapshots_due(const struct snapshots *s, uint64_t step);
/* One was collected after this step, which began at clock `began`. */
void snapshots_taken(struct snapshots *s, uint64_t step, int64_t began);
/* Seconds from one to the next, where the clock decides. */
double snapshots_interval(const struct snapshots *s);

#endif
