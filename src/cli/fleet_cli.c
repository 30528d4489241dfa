/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_cli.c - see fleet_cli.h. */
#include "cli/fleet_cli.h"

#include "cli/cli.h"
#include "cli/run.h"

#include <string.h>
#include <unistd.h>

static bool is_file(const char *word)
{
	return access(word, F_OK) == 0 || strchr(word, '/') || strstr(word, ".yaml") ||
	       strstr(word, ".yml") || strstr(word, ".json");
}

int fleet_cli_config(const char *command, int npos, char **pos, struct config **c_p,
		     const char **id_p, struct err *e)
{
	char last[PATH_MAX], *path[1] = { last };
	const bool named = npos && is_file(pos[0]);
	if (npos > 1 + named)
		return err_set(e, ERR_USAGE, "%s: '%.60s' was not expected: [CONFIG] [ID]", command,
			       pos[npos - 1]);
	if (named)
		path[0] = pos[0];
	else
		TRY(fleet_remembered(last, e));
	*id_p = npos > named ? pos[named] : NULL;
	return cli_config(command, CONFIG_PART, 1, path, c_p, e);
}

int fleet_cli_open(const char *command, int npos, char **pos, struct config **c_p,
		   struct fleet *f_p, struct err *e)
{
	const char *id;
	TRY(fleet_cli_config(command, npos, pos, c_p, &id, e));
	int rc = fleet_open(*c_p, id, f_p, e);
	if (rc < 0) {
		config_free(*c_p);
		*c_p = NULL;
		return rc;
	}
	f_p->stop = cli_stop();
	cli_stop_says(false);
	return 0;
}

size_t fleet_cli_report(const struct fleet *f)
{
	size_t failed = 0;
	fflush(cli_out());
	for (size_t i = 0; i < f->n; i++) {
		const struct fleet_member *m = &f->member[i];
		failed += m->failed;
		cli_line(m->failed ? cli_err() : cli_out(), "%s%s: %s\n",
			 m->failed ? "error: " : "", m->w->id, m->text);
	}
	return failed;
}
