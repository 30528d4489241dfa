/* run.h - what the commands that run a job share: Ctrl-C, and being a worker. */
#ifndef HS_CLI_RUN_H
#define HS_CLI_RUN_H

#include "train/cluster.h"

#include <signal.h>

/* From now on SIGINT and SIGTERM set the flag that is returned; the second one ends the program. */
const volatile sig_atomic_t *cli_stop(void);
/* Whether the first signal says CLI_STOPPING by itself: false where a display is drawn that it would tear, which then says it. */
void cli_stop_says(bool yes);
#define CLI_STOPPING "stopping: the step is finished and saved first (once more to leave at once)"

/* Works for the coordinator of the configuration; the exit status, or an error. */
int cli_work(const struct config *c, const struct role *r, struct err *e);

/* argv that starts this program as a worker of the same configuration; `pos`: CONFIG and what follows. NULL when memory is out. */
char **cli_worker_program(int npos, char **pos, bool insecure, struct arena *a);

/* One of several processes that mpirun or srun started. 0: rank 0, which coordinates with *r_p; 1: another one, whose work is done. `role` and
 * `worker`: what --role and --worker say; they have no meaning then. */
int cli_rank(const struct config *c, const char *role, const char *worker, struct ranks *r_p, struct err *e);

#endif
