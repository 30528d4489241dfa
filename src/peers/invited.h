/* SPDX-License-Identifier: Apache-2.0 */
/* invited.h - `workers: all` and `workers: [NAME, ...]` of a configuration, from the list of peers
 * of this machine. */
#ifndef HS_PEERS_INVITED_H
#define HS_PEERS_INVITED_H

#include "config/config.h"
#include "peers/reception.h"

#include <signal.h>

struct err;

/* Fills in the workers that are named, or all peers; the coordinator is this machine: its key, its
 * address, the port at which invited workers connect (coordinator.port; its own device then takes
 * the port after it). Does nothing for other configurations. ERR_USAGE for a name that is no
 * peer's, and where there is none. */
int invited_resolve(struct config *c, struct err *e);

/* Waits for the workers with these keys: until all are there, at most `grace` seconds; where fewer
 * than `least` are then, until so many are, at most `most` seconds. here_p[n]. Interrupted by
 * *stop. */
int invited_gather(struct reception *r, const char *const *key, int n, int least, double grace,
		   double most, const volatile sig_atomic_t *stop, bool *here_p, struct err *e);

#endif
