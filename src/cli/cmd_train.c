/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - `heteroshard train CONFIG [key=value ...]`: the run, its lines, its folder. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/err.h"
#include "base/mem.h"
#include "cli/train_view.h"

int cmd_train(int argc, char **argv);

static const struct opt rows[] = { CLI_ROLE_ROWS(0) };

static const struct cli_usage usage = {
	.synopsis = "heteroshard train [--role ROLE] [--worker ID] CONFIG [key=value ...]",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.about = "Trains as CONFIG says (YAML or JSON; 'heteroshard help config' lists the keys). "
		 "key=value overrides a key of the "
		 "file.\n"
		 "With 'coordinator' and 'workers' in CONFIG it is run on every machine, which "
		 "finds its role by its addresses.\n"
		 "Ctrl-C finishes the step, saves and leaves; resume_from_checkpoint=latest goes "
		 "on from there.",
	.example = "  heteroshard train examples/smollm2.yaml\n"
		   "  heteroshard train examples/smollm2.yaml max_steps=100 output_dir=run2\n"
		   "  heteroshard train examples/smollm2.yaml resume_from_checkpoint=latest",
};

static int lead(void *ctx, const struct config *c, char *const *program, const struct ranks *ranks,
		struct err *e)
{
	(void)ctx;
	struct train_view *v;
	struct train_result r;
	const struct train_options o = {
		.stop = cli_stop(), .trace = c->trace, .program = program, .ranks = ranks
	};
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
	struct cli_role r = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &r, 1, -1, &npos, &a, &status))
		status = cli_everywhere(&r, npos, argv + 1, lead, NULL);
	arena_release(&a);
	return status;
}
