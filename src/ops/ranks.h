/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - a job whose processes mpirun or srun started together: rank 0 coordinates, every other
 * rank is a worker. */
#ifndef HS_OPS_RANKS_H
#define HS_OPS_RANKS_H

#include "config/config.h"
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
/* Whether another rank prints this error on the same terminal: wrong use, which all ranks notice,
 * or the coordinator's reason. */
bool ranks_echo(const struct err *e);
/* Before a process that printed an error ends: mpirun ends the job with it, and what it has not
 * read by then is lost. */
void ranks_linger(void);
/* Without mpirun or srun: ERR_USAGE where the shard plan names ranks. */
int ranks_absent(const struct config *c, struct err *e);
/* Begins MPI. The configuration's coordinator and workers are not used then; ERR_USAGE for keys
 * that contradict MPI. */
int ranks_begin(const struct config *c, struct ranks *r_p, struct err *e);
/* Whether a shard plan's ids are ranks that compute, of `size`. Rank 0 asks, all get the error. */
int ranks_check_plan(const struct config *c, int size, struct err *e);
/* The worker's id: "rank3". */
void rank_id(int rank, char out[RANK_ID]);

#endif
