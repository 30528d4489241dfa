/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_group.h - sums of numbers over some ranks by MPI's own collectives: what net_group_make() of
 * net.h is over MPI. The thread of net_mpi.c makes every MPI call, mpi_groups_work() in its loop.
 *
 * A group begins with a meeting: each member tells the others that it wants the group, and makes
 * the communicator, which waits for the others, only when all have told it. So that thread never
 * waits for what another process has not begun. */
#ifndef HS_NET_MPI_GROUP_H
#define HS_NET_MPI_GROUP_H

#include "net/net_priv.h"

#ifdef HAVE_MPI

#include <mpi.h>

struct mpi_groups {
	struct net *net;
	MPI_Comm comm; /* of all ranks, for meetings */
	pthread_mutex_t lock;
	struct net_group *first, **end; /* under the lock */
};

void mpi_groups_init(struct mpi_groups *g, struct net *n);
/* For the thread: takes a communicator of its own; does what there is to do, true: something was;
 * whether a sum is being made; whether anything is still under way. */
bool mpi_groups_begin(struct mpi_groups *g, MPI_Comm all);
bool mpi_groups_work(struct mpi_groups *g);
bool mpi_groups_run(struct mpi_groups *g);
bool mpi_groups_open(struct mpi_groups *g);
/* When nothing is under way. */
void mpi_groups_release(struct mpi_groups *g);

/* The slots of struct net_transport; `rank` is taken over. */
int mpi_group_make(struct mpi_groups *of, int *rank, int members, struct net_group **g_p,
		   struct err *e);
float *mpi_group_room(struct net_group *g, size_t count);
int mpi_group_begin(struct net_group *g, size_t count, struct err *e);
int mpi_group_done(struct net_group *g, struct err *e);

#endif
#endif
