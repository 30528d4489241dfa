/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - `heteroshard doctor`: findings, each with the command that mends it. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "net/address.h"
#include "ops/doctor.h"

#include <string.h>

int cmd_doctor(int argc, char **argv);

struct args {
	bool json, list;
	char *cluster, *root, *reach;
};

static const struct opt rows[] = {
	{ .key = "cluster",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, cluster),
	  .arg = "FILE",
	  .help = "look at the machines of this configuration too, over ssh" },
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
	{ .key = "list",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, list),
	  .help = "only list the checks" },
	{ .key = "reach",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, reach),
	  .arg = "ADDRESS:PORT",
	  .help = "whether packets from here reach it, too" },
	{ .key = "root",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, root),
	  .def = "",
	  .arg = "DIR",
	  .help = "the system whose /proc, /sys, /dev, /etc and /run are looked at lies in DIR" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard doctor [--cluster FILE] [--json] [--list]",
	.about =
		"Looks at drivers, permissions, ports, clock, disk, memory, firewall, processor "
		"and network of this\n"
		"machine, and with --cluster of all machines of FILE that have 'ssh'. It changes "
		"nothing: under each\n"
		"finding stands the command that mends it. Exit status 1 when something was found.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard doctor\n"
		   "  heteroshard doctor --cluster cluster.yaml",
};

static void print_json(const struct doctor *d)
{
	struct buf b = BUF_INIT;
	buf_addc(&b, '[');
	for (size_t i = 0; i < d->n; i++) {
		const struct finding *f = &d->v[i];
		const char *const key[] = { "check", "where", "text", "command" },
				  *const value[] = { f->check, f->where, f->text, f->mend };
		for (size_t k = 0; k < ARRAY_LEN(key); k++) {
			buf_addf(&b, "%s\"%s\": ", k ? ", " : i ? ",\n {" : "{", key[k]);
			json_quote(&b, value[k], strlen(value[k]));
		}
		buf_addc(&b, '}');
	}
	buf_adds(&b, "]\n");
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

static void print(const struct doctor *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct finding *f = &d->v[i];
		cli_line(cli_out(), "%s%s%s: %s\n", f->where, f->where[0] ? ": " : "", f->check,
			 f->text);
		if (f->mend[0])
			cli_line(cli_out(), "    %s\n", f->mend);
	}
	if (!d->n)
		fprintf(cli_out(), "%zu checks: nothing found\n", d->checks);
}

static int doctor(const struct args *o, int *status_p, struct err *e)
{
	struct config *c = NULL;
	char *path[] = { o->cluster }, host[NET_ADDRESS];
	unsigned port;
	if (o->reach)
		address_parts(o->reach, host, &port);
	if (o->reach && (!host[0] || !port))
		return err_set(e, ERR_USAGE, "--reach %.80s: write ADDRESS:PORT", o->reach);
	struct doctor *d = mem_zalloc(sizeof *d);
	if (!d)
		return err_nomem(e, sizeof *d, "findings");
	int rc = o->cluster ? cli_config("doctor --cluster", CONFIG_PART, 1, path, &c, e) : 0;
	if (rc >= 0) {
		d->root = o->root;
		d->c = c;
		d->reach = o->reach;
		d->stop = cli_stop();
		doctor_run(d);
		if (o->json)
			print_json(d);
		else
			print(d);
		*status_p = d->n > 0;
	}
	config_free(c);
	mem_free(d);
	return rc;
}

static void list(void)
{
	for (const struct check *k = doctor_checks; k->name; k++)
		fprintf(cli_out(), "%-10s %s\n", k->name, k->help);
}

int cmd_doctor(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 0, &npos, &a, &status)) {
		status = 0;
		if (o.list)
			list();
		else if (doctor(&o, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
