/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h - from a configuration to who does what: which machine this is, where the others are,
 * which layers go where.
 *
 * The same configuration lies on every machine; each finds its role from its own addresses and host
 * name. Nothing here trains: the coordinator's part is train.h, the worker's part is serve.h. */
#ifndef HS_TRAIN_CLUSTER_H
#define HS_TRAIN_CLUSTER_H

#include "train/hello.h"
#include "train/job.h"
#include "train/seat.h"

#include <signal.h>

struct err;

enum role_kind { ROLE_SINGLE /* no cluster part */, ROLE_COORDINATOR, ROLE_WORKER };

enum { ROLE_CANDIDATES = 64, ROLE_LOCAL = -1 };

struct role {
	enum role_kind kind;
	/* ROLE_WORKER: entries of config.workers this process may be (the first whose port is
	 * free), or ROLE_LOCAL, the coordinator's own device. */
	int candidate[ROLE_CANDIDATES];
	int ncandidate;
};

/* `forced`: "coordinator", "worker" or NULL; `worker`: an id ("local" too) or NULL. ERR_USAGE when
 * this machine is none of them. */
int cluster_role(const struct config *c, const char *forced, const char *worker, struct role *r_p,
		 struct err *e);

/* Whether an entry is this machine, by its address, or by its name where it has none. */
bool cluster_is_here(const char *ip, const char *hostname);

/* This process's end of the network, with its key and everybody's public key. `listed`: the public
 * key that the configuration gives this machine (NULL: none): its own must be that one. */
int cluster_net(const struct config *c, const char *listed, struct net **n_p, struct err *e);

/* Listens, and serves one job. */
int cluster_work(const struct config *c, const struct role *r, const volatile sig_atomic_t *stop,
		 struct err *e);

/* ---- started by mpirun or srun (ranks.c): rank 0 coordinates, every other rank is a worker
 * ---- */

struct ranks {
	struct net *net;
	struct net_ranks at;
};

/* Whether several processes of this program were started together and the configuration leaves the
 * links to MPI. */
bool cluster_launched(const struct config *c);
/* An error that another rank says already, on the same terminal: wrong use, which all of them
 * notice, or the coordinator's reason. */
bool cluster_rank_echoes(const struct err *e);
/* Begins MPI. What the configuration says about coordinator and workers has no meaning then;
 * ERR_USAGE for what contradicts it. */
int cluster_ranks(const struct config *c, struct ranks *r_p, struct err *e);
/* A rank that is not 0: serves one job; closes the net. */
int cluster_rank_work(const struct config *c, const struct ranks *r,
		      const volatile sig_atomic_t *stop, struct err *e);
/* Rank 0: the others, in their order; allocated in `a`. */
int cluster_rank_seats(const struct config *c, const struct ranks *r, struct arena *a,
		       struct seat_spec **v_p, int *n_p, struct err *e);

/* ---- the configuration's machines ---- */

/* The workers that take part, in the order of the pipeline; allocated in `a`. */
int cluster_seats(const struct config *c, struct arena *a, struct seat_spec **v_p, int *n_p,
		  struct err *e);

#endif
