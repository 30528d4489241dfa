/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_leave.c - `heteroshard leave ID`: a worker leaves a job that runs here. */
#include "cli/cli.h"

#include "ops/control.h"

#include <stdio.h>
#include <string.h>

int cmd_leave(int argc, char **argv);

static const struct cli_usage usage = {
	.synopsis = "heteroshard leave ID",
	.about = "The worker ID leaves the job that this machine coordinates: after the step that "
		 "runs, the others\n"
		 "get its layers and go on, and no step is computed again. Where they cannot hold "
		 "the model the job\n"
		 "says so, and the worker stays. Ctrl-C on the worker does the same; twice: at "
		 "once.",
	.example = "  heteroshard leave box3",
};

struct asked {
	const char *id;
	int jobs; /* that have such a worker */
};

static void each(void *ctx, const json_t *answer)
{
	struct asked *a = ctx;
	const char *dir = json_string_value(json_object_get(answer, "output_dir"));
	if (!json_object_get(answer, "leaves"))
		return;
	a->jobs++;
	fprintf(cli_out(), "'%s' leaves the job in %s after this step\n", a->id, dir ? dir : "?");
}

int cmd_leave(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	char none[1] = { 0 }, word[CONTROL_ID + 8];
	int npos, status;
	if (!cli_args(&usage, argc, argv, none, 1, 1, &npos, &a, &status)) {
		arena_release(&a);
		return status;
	}
	struct asked asked = { .id = argv[1] };
	int rc = 0;
	if (strlen(asked.id) >= CONTROL_ID || strpbrk(asked.id, "\r\n"))
		rc = err_set(&e, ERR_USAGE, "no worker has such a name");
	snprintf(word, sizeof word, "leave %.127s", asked.id);
	if (rc >= 0)
		rc = control_ask(word, each, &asked, &e);
	if (rc >= 0 && !asked.jobs)
		rc = err_set(&e, ERR_USAGE,
			     "no job that runs here has a worker '%.127s' ('heteroshard status' "
			     "lists them)",
			     asked.id);
	arena_release(&a);
	return rc < 0 ? cli_fail(&e) : 0;
}
