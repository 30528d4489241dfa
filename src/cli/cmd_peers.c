/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_peers.c - `heteroshard peers`: the machines that were invited. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "peers/peer_list.h"

#include <string.h>
#include <time.h>

int cmd_peers(int argc, char **argv);

struct args {
	bool json;
};

static const struct opt rows[] = {
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard peers [--json] [rename NAME NEW | remove NAME]",
	.about = "Lists the machines that joined by invitation, renames one, or removes one: a "
		 "machine that was\n"
		 "removed is refused from then on, also by a job that runs. 'workers' of a "
		 "configuration names "
		 "them, or "
		 "says 'all'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard peers\n"
		   "  heteroshard peers rename box2 attic\n"
		   "  heteroshard peers remove attic",
};

static void day(int64_t at, char *s, size_t cap)
{
	struct tm tm;
	time_t t = (time_t)at;
	s[0] = 0;
	if (localtime_r(&t, &tm))
		strftime(s, cap, "%Y-%m-%d %H:%M", &tm);
}

static void print_json(const struct peer_list *l)
{
	struct buf b = BUF_INIT;
	buf_addc(&b, '[');
	for (size_t i = 0; i < l->n; i++) {
		const struct peer *p = &l->peer[i];
		buf_adds(&b, i ? ",\n {\"name\": " : "{\"name\": ");
		json_quote(&b, p->name, strlen(p->name));
		buf_adds(&b, ", \"public_key\": ");
		json_quote(&b, p->key, strlen(p->key));
		buf_addf(&b, ", \"since\": %lld}", (long long)p->since);
	}
	buf_adds(&b, "]\n");
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

static int list(const struct args *o, struct err *e)
{
	static const char *const heading[] = { "name", "joined", "public key" };
	struct peer_list l;
	TRY(peer_list_read(&l, e));
	if (o->json) {
		print_json(&l);
	} else if (!l.n) {
		fputs("nobody was invited yet: heteroshard invite\n", cli_err());
	} else {
		struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
		for (size_t i = 0; t && i < l.n; i++) {
			char since[32];
			day(l.peer[i].since, since, sizeof since);
			cli_table_add(t, (const char *[]){ l.peer[i].name, since, l.peer[i].key });
		}
		cli_table_print(t, cli_out());
	}
	peer_list_release(&l);
	return 0;
}

static int peers(const struct args *o, int npos, char **pos, struct err *e)
{
	if (!npos)
		return list(o, e);
	if (!strcmp(pos[0], "rename") && npos == 3)
		return peer_list_rename(pos[1], pos[2], e);
	if (!strcmp(pos[0], "remove") && npos == 2)
		return peer_list_remove(pos[1], e);
	return err_set(e, ERR_USAGE, "peers: 'rename NAME NEW' or 'remove NAME' was expected");
}

int cmd_peers(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 3, &npos, &a, &status))
		status = peers(&o, npos, argv + 1, &e) < 0 ? cli_fail(&e) : 0;
	arena_release(&a);
	return status;
}
