/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - the time limits of the coordinator for workers that are connected but do
 * not advance.
 *
 * A worker whose link is lost is noticed by the link (peer_timeout); these limits are for workers
 * that are alive and stuck: a driver that hangs, a process that swaps, a bug. Every tenth of the
 * limit workers send their state (PROGRESS). A worker that has its inputs and does not advance
 * counts as lost; one that waits for it does not. */
#ifndef HS_CREW_PATIENCE_H
#define HS_CREW_PATIENCE_H

#include <stdbool.h>

struct patience {
	double stall; /* seconds within a step */
	/* seconds without a message from any worker outside of steps: layers are loaded, kernels
	 * compiled, devices measured, state is sent */
	double silent;
};

/* `configured`: the key stall_timeout, 0: auto. `longest`: seconds of the longest of the last
 * steps, before the first step the predicted time; 0: not known. */
struct patience patience_of(double configured, double longest, bool first);
/* For the first step after the members have changed. `longest`: as above, of the old plan and the
 * new one. `first`: seconds of the longest first step of a plan until now, in which kernels were
 * compiled; 0: there was none. `strange`: somebody takes part who has not done that step here. */
struct patience patience_changed(double configured, double longest, double first, bool strange);
/* Seconds from one PROGRESS of a worker to the next. */
double patience_progress(double configured);

#endif
