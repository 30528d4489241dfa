/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - a job whose processes mpirun or srun started: see cluster.h. */
#include "train/cluster.h"

#include "base/err.h"
#include "base/log.h"
#include "dev/dev.h"
#include "train/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool built_in(void) { return strstr(net_names(), "mpi") != NULL; }

static int number(const char *name)
{
	const char *text = getenv(name);
	return text ? (int)strtol(text, NULL, 10) : 0;
}

/* How many processes were started together. Only MPI itself knows for sure, and asking it is
 * starting it. */
static int launched(void)
{
	int n = number("OMPI_COMM_WORLD_SIZE"); /* Open MPI */
	if (n < 1)
		n = number("PMI_SIZE");                           /* MPICH, srun --mpi=pmi2 */
	if (n < 1 && (getenv("PMIX_RANK") || getenv("PMI_RANK"))) /* srun --mpi=pmix */
		n = number("SLURM_STEP_NUM_TASKS");
	return n;
}

bool cluster_launched(const struct config *c)
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

bool cluster_rank_echoes(const struct err *e)
{
	return launched() > 1 && (e->code == ERR_CANCELLED || e->code == ERR_USAGE) &&
	       number("OMPI_COMM_WORLD_RANK") + number("PMI_RANK") + number("PMIX_RANK") > 0;
}

int cluster_ranks(const struct config *c, struct ranks *r, struct err *e)
{
	const struct net_options o = { .peer_timeout = c->peer_timeout };
	if (c->nshards)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard_plan' names workers of the configuration; processes "
			       "that mpirun or srun started are "
			       "others: leave it out, or set 'transport: zmq'",
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
			 "zmq would use them)",
			 r->at.size, c->path);
	return rc;
}

static void name(int rank, char out[32]) { snprintf(out, 32, "rank%d", rank); }

int cluster_rank_work(const struct config *c, const struct ranks *r,
		      const volatile sig_atomic_t *stop, struct err *e)
{
	char id[32], device[DEV_SPEC], bound[NET_ADDRESS];
	name(r->at.rank, id);
	if (!strcmp(c->device, "auto"))
		dev_successive(r->at.local, device);
	const struct serve s = { .net = r->net,
				 .id = id,
				 .device = strcmp(c->device, "auto") ? c->device : device,
				 .join_timeout = c->join_timeout,
				 .model = c->base_model,
				 .cache_dir = c->cache_dir,
				 .cache_limit = c->cache_limit_gib,
				 .stop = stop };
	int rc = net_listen(r->net, "rank:*", bound, e);
	if (rc >= 0)
		rc = worker_serve(&s, e);
	net_close(r->net, 2);
	return rc < 0 ? err_prefix(e, "worker '%s'", id) : rc;
}

int cluster_rank_seats(const struct config *c, const struct ranks *r, struct arena *a,
		       struct seat_spec **v_p, int *n_p, struct err *e)
{
	int n = r->at.size - 1;
	struct seat_spec *v = arena_alloc(a, (size_t)n * sizeof *v);
	char(*id)[32] = arena_alloc(a, (size_t)n * sizeof *id);
	if (!v || !id)
		return err_nomem(e, (size_t)n * sizeof *v, "workers");
	for (int i = 0; i < n; i++) {
		name(i + 1, id[i]);
		v[i] = (struct seat_spec){
			.kind = SEAT_REMOTE, .id = id[i], .host = "mpi", .device = c->device
		};
		snprintf(v[i].address, sizeof v[i].address, "rank:%d", i + 1);
	}
	*v_p = v;
	*n_p = n;
	return 0;
}
