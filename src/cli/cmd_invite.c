/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_invite.c - `heteroshard invite`: a token with which one machine joins, once. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/mem.h"
#include "peers/inviter.h"

#include <openssl/crypto.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cmd_invite(int argc, char **argv);

struct args {
	int64_t port, minutes;
	char *name;
	struct opt_list address;
};

static const struct opt rows[] = {
	{ .key = "name",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, name),
	  .arg = "NAME",
	  .help = "the name that the machine gets; else its host name" },
	{ .key = "address",
	  .kind = OPT_LIST,
	  .offset = offsetof(struct args, address),
	  .help = "where it finds this machine (a public name or address, behind a router that "
		  "forwards the port); else every address of this machine" },
	{ .key = "port",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, port),
	  .def = "9998",
	  .lo = 1,
	  .hi = 65534,
	  .help = "the port of this machine, as 'port' of the coordinator in a configuration" },
	{ .key = "minutes",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, minutes),
	  .def = "15",
	  .lo = 1,
	  .hi = 1440,
	  .help = "how long it can be used" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard invite [--name NAME] [--address A,B] [--port N] [--minutes N]",
	.about = "Prints a token with which one other machine becomes a peer of this one: run\n"
		 "'heteroshard worker --join TOKEN' there. It can be used once. This command waits "
		 "until then;\n"
		 "Ctrl-C takes the invitation back. Who has the token can join: send it as you "
		 "would "
		 "a password.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard invite --name box2\n"
		   "  heteroshard invite --address home.example.org",
};

static int wait_for_use(const struct invitation *v, const volatile sig_atomic_t *stop,
			struct err *e)
{
	for (;; usleep(200000)) {
		struct invitation now = { 0 };
		int rc = invitation_find(v->secret, &now, e);
		if (rc < 0)
			return rc;
		if (now.used[0]) {
			printf("%s has joined\n", now.used);
			return 0;
		}
		if (*stop)
			return err_set(e, ERR_CANCELLED, "the invitation is taken back");
		if (!rc || now.until <= (int64_t)time(NULL))
			return err_set(e, ERR_CANCELLED,
				       "nobody used the invitation in its time; it is closed");
	}
}

static int invite(const struct args *o, struct err *e)
{
	struct inviter *i;
	struct invitation v;
	char text[TOKEN_TEXT], busy[256];
	const volatile sig_atomic_t *stop = cli_stop();
	cli_stop_says(false);
	TRY(inviter_open((unsigned)o->port, o->address.item, o->address.n, &i, e));
	int rc = inviter_token(i, o->name ? o->name : "", o->minutes, &v, text, e);
	if (rc >= 0)
		rc = inviter_listen(i, busy, e);
	if (rc >= 0) {
		if (busy[0])
			fprintf(stderr, "%s; if that is a job, it takes the invitation\n", busy);
		printf("%s\n", text);
		fflush(stdout);
		fprintf(stderr,
			"On the other machine, within %lld minutes:\n"
			"  heteroshard worker --join TOKEN\n",
			(long long)o->minutes);
		rc = wait_for_use(&v, stop, e);
		struct err ignored = { 0 };
		invitation_close(v.secret, &ignored);
	}
	if (rc >= 0)
		usleep(700000); /* until the other machine has read its answer */
	inviter_close(i);
	OPENSSL_cleanse(text, sizeof text);
	return rc;
}

int cmd_invite(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 0, &npos, &a, &status))
		status = invite(&o, &e) < 0 ? cli_fail(&e) : 0;
	arena_release(&a);
	return status;
}
