/* cmd_train.c - `heteroshard train CONFIG [key=value ...]`: the run, its lines, its folder. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/err.h"
#include "base/mem.h"
#include "cli/train_view.h"
#include "train/cluster.h"

#include <stddef.h>

int cmd_train(int argc, char **argv);

struct args {
	char *role, *worker;
	bool insecure;
};

static const struct opt rows[] = {
	{ .key = "role",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, role),
	  .arg = "coordinator|worker",
	  .help = "what this machine is, where its addresses do not say so" },
	{ .key = "worker",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, worker),
	  .arg = "ID",
	  .help = "be this worker of the configuration" },
	{ .key = "insecure",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, insecure),
	  .help = "links without keys and encryption, on any address: whoever reaches the port can join" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard train [--role ROLE] [--worker ID] CONFIG [key=value ...]",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.about = "Trains as CONFIG says (YAML or JSON; 'heteroshard help config' lists the keys). key=value overrides a key of the "
		 "file.\n"
		 "With 'coordinator' and 'workers' in CONFIG it is run on every machine, which finds its role by its addresses.\n"
		 "Ctrl-C finishes the step, saves and leaves; resume_from_checkpoint=latest goes on from there.",
	.example = "  heteroshard train examples/smollm2.yaml\n"
		   "  heteroshard train examples/smollm2.yaml max_steps=100 output_dir=run2\n"
		   "  heteroshard train examples/smollm2.yaml resume_from_checkpoint=latest",
};

static int run(const struct config *c, char *const *program, const struct ranks *ranks, struct err *e)
{
	struct train_view *v;
	struct train_result r;
	const struct train_options o = { .stop = cli_stop(), .trace = c->trace, .program = program, .ranks = ranks };
	TRY(train_view_new(c, &v, e));
	const struct train_sink sink = train_view_sink(v);
	int rc = train_run(c, &o, &sink, &r, e);
	if (rc < 0)
		train_view_failed(v);
	else
		train_view_finish(v, &r);
	train_view_free(v);
	return rc < 0 ? rc : r.interrupted ? 1 : 0;
}

int cmd_train(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	struct err e = { 0 };
	struct role r = { 0 };
	int npos, status;
	if (!cli_args(&usage, argc, argv, &o, 1, -1, &npos, &a, &status)) {
		arena_release(&a);
		return status;
	}
	struct config *c = NULL;
	int rc = config_load(argv[1], npos - 1, argv + 2, &c, &e);
	struct ranks ranks;
	bool launched = rc >= 0 && cluster_launched(c);
	if (launched) {
		rc = cli_rank(c, o.role, o.worker, &ranks, &e);
		rc = rc > 0 ? 0 : rc < 0 ? rc : run(c, NULL, &ranks, &e);
	} else if (rc >= 0) {
		c->insecure |= o.insecure;
		rc = cluster_role(c, o.role, o.worker, &r, &e);
	}
	if (rc >= 0 && !launched && r.kind == ROLE_WORKER)
		rc = cli_work(c, &r, &e);
	else if (rc >= 0 && !launched)
		rc = run(c, cli_worker_program(npos, argv + 1, o.insecure, &a), NULL, &e);
	config_free(c);
	arena_release(&a);
	if (rc < 0 && cluster_rank_echoes(&e))
		return e.code == ERR_USAGE ? 2 : 1;
	return rc < 0 ? cli_fail(&e) : rc;
}
