/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_init.c - `heteroshard init`: asks a few questions and writes a configuration. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/text.h"
#include "dev/dev.h"
#include "ops/first.h"
#include "peers/peer_list.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_init(int argc, char **argv);

struct args {
	char *model, *data, *output;
	struct opt_list workers;
	double minutes;
};

static const struct opt rows[] = {
	{ .key = "model",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, model),
	  .arg = "PATH",
	  .help = "the model: a folder, a GGUF file, or OWNER/NAME on a hub" },
	{ .key = "data",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, data),
	  .arg = "PATH",
	  .help = "the data: JSONL, JSON, CSV, Parquet, or OWNER/NAME on a hub" },
	{ .key = "workers",
	  .kind = OPT_LIST,
	  .offset = offsetof(struct args, workers),
	  .arg = "A,B",
	  .help = "other machines: names of peers, user@host for ssh, 'all', or 'none'" },
	{ .key = "minutes",
	  .kind = OPT_FLOAT,
	  .offset = offsetof(struct args, minutes),
	  .def = "-1",
	  .lo = -1,
	  .hi = 1e6,
	  .help = "how long it may train; 0: no limit" },
	{ .key = "output_dir",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, output),
	  .arg = "DIR",
	  .help = "where the result goes; else runs/ and the name of the data" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard init [--model PATH] [--data PATH] [--workers A,B] [--minutes N] "
		    "[FILE]",
	.about = "Writes a configuration with comments into FILE (cluster.yaml), and never over "
		 "one that is there.\n"
		 "What no option says is asked on a terminal. It looks at the devices of this "
		 "machine and the\n"
		 "invited peers. Then: 'heteroshard train FILE'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard init\n"
		   "  heteroshard init --model OWNER/NAME --data my.jsonl --workers all job.yaml",
};

/* A line that is typed, in the arena; `def` where it is empty. NULL: nobody can be asked. */
static const char *ask(struct arena *a, const char *question, const char *def)
{
	char line[2048];
	if (!cli_asks())
		return NULL;
	fprintf(cli_err(), "%s%s%s%s: ", question, def[0] ? " [" : "", def, def[0] ? "]" : "");
	if (!fgets(line, sizeof line, cli_in()))
		return NULL;
	line[strcspn(line, "\r\n")] = 0;
	return arena_strdup(a, line[0] ? line : def);
}

static void list_devices(struct buf *b)
{
	for (size_t i = 0; backends[i]; i++) {
		struct err ignored = { 0 };
		int n = strcmp(backends[i]->name, "null") ? backends[i]->count(&ignored) : 0;
		for (int k = 0; k < n; k++) {
			char id[DEV_SPEC], size[32];
			struct dev_caps caps;
			struct dev *d;
			snprintf(id, sizeof id, "%s:%d", backends[i]->name, k);
			if (dev_open(id, &d, &ignored) < 0)
				continue;
			if (dev_caps(d, &caps, &ignored) >= 0)
				buf_addf(b, "%s: %s, %s\n", id, caps.name,
					 cli_bytes(caps.mem_total, size, sizeof size));
			dev_close(d);
		}
	}
}

/* "a, b" as a list in the arena. */
static int split(const char *text, struct arena *a, struct opt_list *l, struct err *e)
{
	char *copy = arena_strdup(a, text), *save = NULL;
	l->n = 0;
	l->item = arena_alloc(a, (strlen(text) + 1) * sizeof *l->item);
	if (!copy || !l->item)
		return err_nomem(e, strlen(text), "workers");
	for (char *w = strtok_r(copy, ", ", &save); w; w = strtok_r(NULL, ", ", &save))
		l->item[l->n++] = w;
	return 0;
}

/* What no option says. */
static int complete(struct args *o, struct arena *a, struct err *e)
{
	struct peer_list l = { 0 };
	const char *answer;
	char *end;
	if (!o->model)
		o->model = (char *)(uintptr_t)ask(a, "the model (path, or OWNER/NAME)", "");
	if (!o->data)
		o->data = (char *)(uintptr_t)ask(a, "the data (path, or OWNER/NAME)", "");
	if (!o->workers.n) {
		TRY(peer_list_read(&l, e));
		const bool peers = l.n > 0;
		peer_list_release(&l);
		answer = ask(a,
			     "other machines (names of 'heteroshard peers', user@host, all, none)",
			     peers ? "all" : "none");
		TRY(split(answer ? answer : peers ? "all" : "none", a, &o->workers, e));
	}
	if (o->workers.n == 1 && !strcmp(o->workers.item[0], "none"))
		o->workers.n = 0;
	if (o->minutes < 0) {
		answer = ask(a, "how many minutes it may train (0: no limit)", "0");
		o->minutes = answer ? strtod(answer, &end) : 0;
		if (answer && (*end || o->minutes < 0))
			return err_set(e, ERR_USAGE, "init: '%.40s' is no number of minutes",
				       answer);
	}
	return 0;
}

static int save(const char *path, const struct buf *b, struct err *e)
{
	int fd = open_write(path, OPEN_NEW, 0666);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_USAGE,
			       "%s is there already, and is not changed: name another file", path);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	const ssize_t n = write(fd, b->p, b->n);
	if (close(fd) < 0 || n != (ssize_t)b->n) {
		unlink(path);
		return err_set(e, ERR_IO, "%s: cannot be written: is the disk full?", path);
	}
	return 0;
}

static int init(struct args *o, const char *path, struct arena *a, struct err *e)
{
	struct buf devices = BUF_INIT, out = BUF_INIT;
	if (access(path, F_OK) == 0)
		return err_set(e, ERR_USAGE,
			       "%s is there already, and is not changed: name another file", path);
	TRY(complete(o, a, e));
	list_devices(&devices);
	const struct first f = { .model = o->model ? o->model : "",
				 .data = o->data ? o->data : "",
				 .output = o->output,
				 .worker = o->workers.item,
				 .nworkers = o->workers.n,
				 .minutes = o->minutes,
				 .devices = devices.p };
	int rc = first_write(&f, &out, e);
	if (rc >= 0)
		rc = save(path, &out, e);
	char word[PATH_MAX];
	if (rc >= 0)
		cli_line(cli_err(), "wrote %s; next: heteroshard train %s\n", path,
			 text_word(path, word, sizeof word));
	buf_release(&devices);
	buf_release(&out);
	return rc;
}

int cmd_init(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 1, &npos, &a, &status))
		status = init(&o, npos ? argv[1] : "cluster.yaml", &a, &e) < 0 ? cli_fail(&e) : 0;
	arena_release(&a);
	return status;
}
