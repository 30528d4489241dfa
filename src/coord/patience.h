/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - how long the coordinator waits for workers that are connected but do not advance:
 * every such limit, in one place.
 *
 * A worker whose link is lost is noticed by the link (peer_timeout); these limits are for workers
 * that are alive and stuck: a driver that hangs, a process that swaps, a bug. Workers say every
 * tenth of the limit what they are at (PROGRESS); who has its inputs and does not advance is lost,
 * not who waits for it. */
#ifndef HS_COORD_PATIENCE_H
#define HS_COORD_PATIENCE_H

#include <stdbool.h>

struct patience {
	double stall;  /* seconds within a step */
	double silent; /* seconds in which nobody says anything outside of steps: layers are loaded,
			* kernels compiled, devices measured, state is sent */
};

/* `configured`: the key stall_timeout, 0: auto. `longest`: seconds of the longest of the last
 * steps, before the first one what is predicted, 0: not known. */
struct patience patience_of(double configured, double longest, bool first);
/* Seconds from one PROGRESS of a worker to the next. */
double patience_progress(double configured);

#endif
