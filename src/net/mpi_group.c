/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_group.c - see mpi_group.h. */
#include "net/mpi_group.h"

#ifdef HAVE_MPI

#include "base/mem.h"

enum sum_state { SUM_NONE, SUM_ASKED, SUM_RUNNING, SUM_DONE, SUM_FAILED };

struct net_group {
	struct net *net; /* net_group_net() */
	struct mpi_groups *of;
	struct net_group *next;
	int *rank, members;
	/* the thread's own */
	MPI_Comm comm;
	MPI_Request sum;
	MPI_Request *told; /* [members] */
	bool *heard;       /* [members] */
	bool began, met;
	/* The room is the thread's while state is SUM_ASKED or SUM_RUNNING, else the user's. */
	float *room;
	size_t cap, count;
	enum sum_state state; /* under the lock */
};

void mpi_groups_init(struct mpi_groups *g, struct net *n)
{
	*g = (struct mpi_groups){ .net = n };
	g->end = &g->first;
	pthread_mutex_init(&g->lock, NULL);
}

bool mpi_groups_begin(struct mpi_groups *g, MPI_Comm all)
{
	if (MPI_Comm_dup(all, &g->comm) != MPI_SUCCESS)
		return false;
	MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
	return true;
}

static enum sum_state state_of(struct net_group *g)
{
	pthread_mutex_lock(&g->of->lock);
	enum sum_state s = g->state;
	pthread_mutex_unlock(&g->of->lock);
	return s;
}

static void set_state(struct net_group *g, enum sum_state s)
{
	pthread_mutex_lock(&g->of->lock);
	g->state = s;
	pthread_mutex_unlock(&g->of->lock);
}

static struct net_group *first_of(struct mpi_groups *gs)
{
	pthread_mutex_lock(&gs->lock);
	struct net_group *g = gs->first;
	pthread_mutex_unlock(&gs->lock);
	return g;
}

static struct net_group *next_of(struct net_group *g)
{
	pthread_mutex_lock(&g->of->lock);
	struct net_group *next = g->next;
	pthread_mutex_unlock(&g->of->lock);
	return next;
}

static bool end_sum(struct net_group *g, enum sum_state s)
{
	set_state(g, s);
	net_wake(g->net);
	return true;
}

/* Tells the others, once. */
static bool tell(struct net_group *g, int me)
{
	g->began = true;
	for (int i = 0; i < g->members; i++) {
		g->told[i] = MPI_REQUEST_NULL;
		if (g->rank[i] != me && MPI_Isend(NULL, 0, MPI_BYTE, g->rank[i], 0, g->of->comm,
						  &g->told[i]) != MPI_SUCCESS)
			return false;
	}
	return true;
}

/* 1: everybody wants the group, -1: MPI failed. */
static int hear(struct net_group *g, int me)
{
	int missing = 0;
	for (int i = 0; i < g->members; i++) {
		int there = 0;
		if (g->rank[i] == me || g->heard[i])
			continue;
		if (MPI_Iprobe(g->rank[i], 0, g->of->comm, &there, MPI_STATUS_IGNORE) !=
		    MPI_SUCCESS)
			return -1;
		if (there && MPI_Recv(NULL, 0, MPI_BYTE, g->rank[i], 0, g->of->comm,
				      MPI_STATUS_IGNORE) != MPI_SUCCESS)
			return -1;
		g->heard[i] = there;
		missing += !there;
	}
	return !missing;
}

static bool make_communicator(struct net_group *g)
{
	MPI_Group all, ours;
	bool ok = MPI_Comm_group(g->of->comm, &all) == MPI_SUCCESS;
	if (!ok)
		return false;
	ok = MPI_Group_incl(all, g->members, g->rank, &ours) == MPI_SUCCESS;
	if (ok) {
		ok = MPI_Comm_create_group(g->of->comm, ours, 1, &g->comm) == MPI_SUCCESS;
		MPI_Group_free(&ours);
	}
	MPI_Group_free(&all);
	if (ok)
		MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
	return ok;
}

/* True: something has changed. */
static bool meet(struct net_group *g)
{
	int me, rc;
	MPI_Comm_rank(g->of->comm, &me);
	if (!g->began && !tell(g, me)) {
		g->met = true;
		return end_sum(g, SUM_FAILED);
	}
	rc = hear(g, me);
	if (!rc)
		return false;
	g->met = true;
	if (rc < 0 || MPI_Waitall(g->members, g->told, MPI_STATUSES_IGNORE) != MPI_SUCCESS ||
	    !make_communicator(g))
		return end_sum(g, SUM_FAILED);
	return true;
}

static bool work_on(struct net_group *g)
{
	const enum sum_state s = state_of(g);
	if (s == SUM_ASKED) {
		if (MPI_Iallreduce(MPI_IN_PLACE, g->room, (int)g->count, MPI_FLOAT, MPI_SUM,
				   g->comm, &g->sum) != MPI_SUCCESS)
			return end_sum(g, SUM_FAILED);
		set_state(g, SUM_RUNNING);
		return true;
	}
	int done = 0;
	if (s != SUM_RUNNING)
		return false;
	if (MPI_Test(&g->sum, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
		return end_sum(g, SUM_FAILED);
	return done ? end_sum(g, SUM_DONE) : false;
}

/* Groups meet one after the other, in the order in which their members made them. */
bool mpi_groups_work(struct mpi_groups *gs)
{
	bool any = false;
	for (struct net_group *g = first_of(gs); g; g = next_of(g)) {
		if (!g->met)
			any |= meet(g);
		if (!g->met)
			break;
		any |= work_on(g);
	}
	return any;
}

bool mpi_groups_run(struct mpi_groups *gs)
{
	for (struct net_group *g = first_of(gs); g; g = next_of(g))
		if (state_of(g) == SUM_RUNNING)
			return true;
	return false;
}

bool mpi_groups_open(struct mpi_groups *gs)
{
	for (struct net_group *g = first_of(gs); g; g = next_of(g))
		if (!g->met || state_of(g) == SUM_ASKED || state_of(g) == SUM_RUNNING)
			return true;
	return false;
}

static void group_free(struct net_group *g)
{
	mem_free(g->rank);
	mem_free(g->told);
	mem_free(g->heard);
	mem_free(g->room);
	mem_free(g);
}

void mpi_groups_release(struct mpi_groups *gs)
{
	for (struct net_group *g = gs->first, *next; g; g = next) {
		next = g->next;
		group_free(g);
	}
	pthread_mutex_destroy(&gs->lock);
}

/* ---- what users call ---- */

int mpi_group_make(struct mpi_groups *of, int *rank, int members, struct net_group **g_p,
		   struct err *e)
{
	struct net_group *g = mem_zalloc(sizeof *g);
	if (g) {
		*g = (struct net_group){ .net = of->net, .of = of, .members = members };
		g->told = mem_array((size_t)members, sizeof(*g->told));
		g->heard = mem_zalloc((size_t)members * sizeof *g->heard);
	}
	if (!g || !g->told || !g->heard) {
		if (g)
			group_free(g);
		return err_nomem(e, sizeof *g, "a group");
	}
	g->rank = rank;
	pthread_mutex_lock(&of->lock);
	*of->end = g;
	of->end = &g->next;
	pthread_mutex_unlock(&of->lock);
	*g_p = g;
	return 0;
}

static bool is_at_work(struct net_group *g)
{
	const enum sum_state s = state_of(g);
	return s == SUM_ASKED || s == SUM_RUNNING;
}

float *mpi_group_room(struct net_group *g, size_t count)
{
	if (is_at_work(g) || !mem_grow(&g->room, &g->cap, count ? count : 1, sizeof *g->room))
		return NULL;
	return g->room;
}

int mpi_group_begin(struct net_group *g, size_t count, struct err *e)
{
	if (is_at_work(g) || count > g->cap || count > INT32_MAX)
		return err_set(e, ERR_INTERNAL, "mpi: a sum of %zu numbers over one of %zu", count,
			       g->count);
	pthread_mutex_lock(&g->of->lock);
	g->count = count;
	if (g->state != SUM_FAILED)
		g->state = SUM_ASKED;
	pthread_mutex_unlock(&g->of->lock);
	return 0;
}

int mpi_group_done(struct net_group *g, struct err *e)
{
	const enum sum_state s = state_of(g);
	if (s == SUM_FAILED)
		return err_set(e, ERR_NET, "mpi: a sum over %d ranks failed", g->members);
	return s == SUM_DONE;
}

#endif
