/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see run.h. */
#include "cli/run.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/os.h"
#include "cli/cli.h"
#include "job/network.h"

#include <unistd.h>

static volatile sig_atomic_t stop, mute;

/* The second signal ends the program without waiting for the step. A terminal that is closed may
 * send SIGHUP twice, so SIGHUP only requests the stop. */
static void on_signal(int sig)
{
	if (sig == SIGHUP && stop)
		return;
	static const char text[] = "\n" CLI_STOPPING "\n";
	ssize_t n = mute && !stop ? 0 : write(STDERR_FILENO, text, stop ? 1 : sizeof text - 1);
	(void)n;
	if (stop) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	stop = 1;
}

void cli_stop_says(bool yes) { mute = !yes; }

const volatile sig_atomic_t *cli_stop(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	struct sigaction was;
	if (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN) /* nohup */
		sigaction(SIGHUP, &sa, NULL);
	return &stop;
}

int cli_work(const struct config *c, const struct role *r, struct err *e)
{
	return work(c, r, cli_stop(), e);
}

/* argv that starts this program as a worker of the same configuration; NULL when memory is out. */
static char **worker_program(int npos, char **pos, bool insecure, struct arena *a)
{
	char **p = arena_alloc(a, (size_t)(npos + 5) * sizeof *p);
	size_t n = 0;
	if (!p)
		return NULL;
	p[n++] = (char *)(os_self_exe() ? os_self_exe() : "heteroshard");
	p[n++] = (char *)(log_least() == LOG_DEBUG ? "-v" : "-q");
	p[n++] = (char *)"worker";
	if (insecure)
		p[n++] = (char *)"--insecure";
	for (int i = 0; i < npos; i++)
		p[n++] = pos[i];
	p[n] = NULL;
	return p;
}

/* One of several processes that mpirun or srun started: rank 0 coordinates. */
static int one_of_ranks(const struct config *c, const struct cli_role *r, cli_lead_fn lead,
			void *ctx, struct err *e)
{
	struct ranks ranks;
	if (r->role || r->worker)
		return err_set(e, ERR_USAGE,
			       "--role and --worker: under mpirun or srun rank 0 coordinates and "
			       "the others are workers");
	TRY(ranks_begin(c, &ranks, e));
	return ranks.at.rank ? work_rank(c, &ranks, cli_stop(), e) : lead(ctx, c, NULL, &ranks, e);
}

int cli_everywhere(const struct cli_role *r, enum config_need need, int npos, char **pos,
		   cli_lead_fn lead, void *ctx)
{
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	struct role role = { 0 };
	struct config *c = NULL;
	int rc = config_load_as(CONFIG_PART, pos[0], npos - 1, pos + 1, &c, &e);
	bool launched = rc >= 0 && ranks_launched(c);
	if (rc >= 0)
		cli_level_config(c);
	if (rc >= 0 && !launched) {
		c->insecure |= r->insecure;
		rc = role_find(c, r->role, r->worker, &role, &e);
	}
	/* a worker gets what it trains from the coordinator */
	if (rc >= 0 && role.kind != ROLE_WORKER)
		rc = config_complete(c, need, &e);
	if (rc >= 0 && !launched && (role.kind == ROLE_WORKER || need != CONFIG_PART))
		rc = network_check(c, &e);
	if (rc >= 0 && launched)
		rc = one_of_ranks(c, r, lead, ctx, &e);
	else if (rc >= 0)
		rc = role.kind == ROLE_WORKER
			     ? cli_work(c, &role, &e)
			     : lead(ctx, c, worker_program(npos, pos, r->insecure, &a), NULL, &e);
	config_free(c);
	arena_release(&a);
	if (rc < 0 && ranks_echo(&e))
		return e.code == ERR_USAGE ? 2 : 1;
	return rc < 0 ? cli_fail(&e) : rc;
}
