/* SPDX-License-Identifier: Apache-2.0 */
/* seats.h - the workers that take part in a job, from the configuration or from MPI's ranks. */
#ifndef HS_COORD_SEATS_H
#define HS_COORD_SEATS_H

#include "base/arena.h"
#include "coord/seat.h"
#include "job/network.h"
#include "ops/ranks.h"
#include "peers/reception.h"

#include <signal.h>

struct err;

/* Those of the configuration, in the order of the pipeline; allocated in `a`. */
int seats_of_config(const struct config *c, struct arena *a, struct seat_spec **v_p, int *n_p,
		    struct err *e);
/* The coordinator's end of the network. Where all workers are to be started by this process and the
 * configuration has no keys, it and they get one-time keys (network.h); the seats then have the
 * workers'. */
int seats_network(const struct config *c, struct seat_spec *v, int n, struct arena *a,
		  struct net **n_p, struct err *e);
/* The same, and with invited workers the coordinator's port, where they connect: *r_p, else NULL.
 * With `workers: all` those that do not come are taken out of the list. */
int seats_open(const struct config *c, struct seat_spec *v, int *n_p, struct arena *a,
	       const volatile sig_atomic_t *stop, struct net **net_p, struct reception **r_p,
	       struct err *e);
/* For rank 0: the other ranks, in their order; allocated in `a`. */
int seats_of_ranks(const struct config *c, const struct ranks *r, struct arena *a,
		   struct seat_spec **v_p, int *n_p, struct err *e);

#endif
