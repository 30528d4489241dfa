/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - a job whose processes mpirun or srun started: see ranks.h. */
#include "ops/ranks.h"

#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool built_in(void) { return strstr(net_names(), "mpi") != NULL; }

static int number(const char *name)
{
	const char *text = getenv(name);
	return text ? (int)strtol(text, NULL, 10) : 0;
}

/* How many processes were started together. Only MPI itself knows for certain, and asking it would
 * start it. */
static int launched(void)
{
	int n = number("OMPI_COMM_WORLD_SIZE"); /* Open MPI */
	if (n < 1)
		n = number("PMI_SIZE");                           /* MPICH, srun --mpi=pmi2 */
	if (n < 1 && (getenv("PMIX_RANK") || getenv("PMI_RANK"))) /* srun --mpi=pmix */
		n = number("SLURM_STEP_NUM_TASKS");
	return n;
}

bool ranks_launched(const struct config *c)
{
	if (!strcmp(c->transport, "mpi"))
		return true;
	if (strcmp(c->transport, "auto") || launched() < 2)
		return false;
	if (!built_in())
		log_warn("several processes of this program were started together, but it was "
			 "built without MPI");
	return built_in();
}

bool ranks_echo(const struct err *e)
{
	return launched() > 1 && (e->code == ERR_CANCELLED || e->code == ERR_USAGE) &&
	       number("OMPI_COMM_WORLD_RANK") + number("PMI_RANK") + number("PMIX_RANK") > 0;
}

void ranks_linger(void)
{
	if (launched() > 0)
		usleep(300000);
}

int ranks_absent(const struct config *c, struct err *e)
{
	return config_names_ranks(c)
		       ? err_set(e, ERR_USAGE,
				 "%s: 'shard_plan' names ranks, but this program was not started "
				 "by mpirun or srun: start it so, or name workers",
				 c->path)
		       : 0;
}

int ranks_check_plan(const struct config *c, int size, struct err *e)
{
	for (size_t i = 0; i < c->nshards; i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++) {
			const char *id = c->shard_plan[i].id.item[k];
			const int rank = config_rank(id);
			if (rank < 1 || rank >= size)
				return err_set(e, ERR_USAGE,
					       "%s: 'shard_plan' names '%.60s'%s: %d processes "
					       "were started, of which ranks 1 to %d compute",
					       c->path, id,
					       rank ? ""
						    : ", which coordinates and computes nothing",
					       size, size - 1);
		}
	return 0;
}

int ranks_begin(const struct config *c, struct ranks *r, struct err *e)
{
	const struct net_options o = { .peer_timeout = c->peer_timeout };
	if (c->nshards && !config_names_ranks(c))
		return err_set(e, ERR_USAGE,
			       "%s: 'shard_plan' names workers of the configuration; processes "
			       "that mpirun or srun started are "
			       "ranks: write 'id: 1' or 'id: [1, 2]', or set 'transport: tls'",
			       c->path);
	TRY(net_open("mpi", &o, &r->net, e));
	int rc = net_world(r->net, &r->at, e);
	if (rc >= 0 && r->at.size < 2)
		rc = err_set(e, ERR_USAGE,
			     "transport mpi: this is the only process; start at least two: mpirun "
			     "-n 3 heteroshard train ... (one "
			     "coordinates, the others compute)");
	if (rc < 0)
		net_close(r->net, 0);
	else if (!r->at.rank && c->coordinator.given)
		log_info("started as %d processes by mpirun or srun: 'coordinator' and 'workers' "
			 "of %s are not used (transport: "
			 "tls would use them)",
			 r->at.size, c->path);
	return rc;
}

void rank_id(int rank, char out[RANK_ID]) { snprintf(out, RANK_ID, CONFIG_RANK "%d", rank); }
