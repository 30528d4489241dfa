/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - a job whose processes mpirun or srun started together: rank 0 coordinates, every other
 * rank is a worker. */
#ifndef HS_JOB_RANKS_H
#define HS_JOB_RANKS_H

#include "job/config.h"
#include "net/net.h"

struct err;

enum { RANK_ID = 32 };

struct ranks {
	struct net *net;
	struct net_ranks at;
};

/* Whether several processes of this program were started together and the configuration leaves the
 * links to MPI. */
bool ranks_launched(const struct config *c);
/* An error that another rank says already, on the same terminal: wrong use, which all of them
 * notice, or the coordinator's reason. */
bool ranks_echo(const struct err *e);
/* Begins MPI. What the configuration says about coordinator and workers has no meaning then;
 * ERR_USAGE for what contradicts it. */
int ranks_begin(const struct config *c, struct ranks *r_p, struct err *e);
/* The worker's id: "rank3". */
void rank_id(int rank, char out[RANK_ID]);

#endif
