/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_invite.c - `heteroshard invite`: a token with which one machine joins, once. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "mesh/mesh_guest.h"
#include "mesh/mesh_part.h"
#include "mesh/mesh_run.h"
#include "peers/inviter.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cmd_invite(int argc, char **argv);

struct args {
	int64_t port, minutes;
	char *name, *mesh, *endpoint;
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
	  .hi = INVITATION_MINUTES,
	  .help = "how long it can be used" },
	{ .key = "mesh",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, mesh),
	  .arg = "CONFIG",
	  .help = "with --name: the machine gets a place in the mesh of CONFIG ('heteroshard "
		  "mesh'), "
		  "and the others learn it" },
	{ .key = "endpoint",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, endpoint),
	  .arg = "HOST:PORT",
	  .help = "with --mesh: where others reach its UDP port; else it counts as behind a "
		  "router" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard invite [--name NAME] [--address A,B] [--port N] [--minutes N]\n"
		    "       heteroshard invite --name NAME --mesh CONFIG [--endpoint HOST] [...]",
	.about = "Prints a token with which one other machine becomes a peer of this one: run\n"
		 "'heteroshard worker --join TOKEN' there. It can be used once. This command waits "
		 "until then;\n"
		 "Ctrl-C takes the invitation back. Who has the token can join: send it as you "
		 "would "
		 "a password.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard invite --name box2\n"
		   "  heteroshard invite --address home.example.org\n"
		   "  heteroshard invite --name laptop --mesh cluster.yaml",
};

/* The time of day may be set meanwhile: it is `minutes` at most. */
static int wait_for_use(struct inviter *i, const struct invitation *v, int64_t minutes,
			const volatile sig_atomic_t *stop, struct err *e)
{
	const int64_t end = net_in((double)minutes * 60);
	for (;; usleep(200000)) {
		struct invitation now = { 0 };
		int rc = invitation_find(v->secret, &now, e);
		if (rc < 0)
			return rc;
		if (now.used[0]) {
			fprintf(cli_out(), "%s has joined\n", now.used);
			return 0;
		}
		if (*stop)
			return err_set(e, ERR_CANCELLED, "the invitation is taken back");
		if (!rc || now.until <= (int64_t)time(NULL) || clock_now() >= end)
			return err_set(e, ERR_CANCELLED,
				       "nobody used the invitation in its time; it is closed");
		TRY(inviter_again(i, e));
	}
}

/* ---- with a mesh ---------------------------------------------------------------------------- */

/* The mesh of the configuration, with those that came by invitation. */
struct place {
	const struct args *o;
	struct config *c;
	struct mesh m;
	struct mesh_run r;
	const volatile sig_atomic_t *stop;
};

static void place_close(struct place *p)
{
	mesh_run_close(&p->r);
	mesh_close(&p->m);
	config_free(p->c);
	p->c = NULL;
}

/* Asks the machines, as `mesh --apply` does. `invite`: with the new one, which has no key yet. */
static int place_open(struct place *p, bool invite, struct err *e)
{
	char *pos[] = { p->o->mesh };
	TRY(cli_config("invite", CONFIG_PART, 1, pos, &p->c, e));
	int rc = mesh_guests(p->c, e);
	if (rc >= 0 && invite)
		rc = mesh_guest_add(p->c, p->o->name, p->o->endpoint, e);
	if (rc >= 0)
		rc = mesh_open(p->c, &p->m, e);
	if (rc >= 0)
		rc = mesh_run_open(&p->m, p->stop, &p->r, e);
	if (rc >= 0)
		rc = mesh_run_look(&p->r, e);
	for (size_t i = 0; i < p->m.n && rc >= 0; i++)
		if (p->r.fact[i].failed)
			rc = err_set(e, ERR_USAGE, "%s: %s", p->m.m[i].id, p->r.fact[i].text);
	if (rc >= 0)
		rc = mesh_settle(&p->m, e);
	if (rc < 0)
		place_close(p);
	return rc;
}

static int place_write(struct place *p, struct err *e)
{
	size_t removed;
	bool *changed = mem_array(p->m.n + 1, sizeof *changed);
	int rc = changed ? mesh_write(&p->m, changed, &removed, e) : err_nomem(e, p->m.n, "mesh");
	mem_free(changed);
	return rc;
}

/* The new machine's address is in DIR/hosts and its place beside the list of peers from here on. */
static int place_keep(struct place *p, struct err *e)
{
	struct buf part = BUF_INIT;
	if (!p->o->name)
		return err_set(e, ERR_USAGE,
			       "invite: --mesh needs --name: what the machine is "
			       "called in the mesh");
	TRY(place_open(p, true, e));
	mesh_part_write(&p->m, &part);
	int rc = buf_ok(&part, e);
	if (rc >= 0)
		rc = invitation_part_write(p->o->name, &part, e);
	if (rc >= 0)
		rc = place_write(p, e);
	buf_release(&part);
	place_close(p);
	return rc;
}

/* The others learn of the one that has joined. */
static int place_tell(struct place *p, struct err *e)
{
	TRY(place_open(p, false, e));
	int rc = place_write(p, e);
	if (rc >= 0)
		rc = mesh_run_apply(&p->r, e);
	for (size_t i = 0; i < p->m.n && rc >= 0; i++) {
		const struct mesh_fact *f = &p->r.fact[i];
		char word[PATH_MAX];
		if (f->failed)
			rc = err_set(e, ERR_USAGE, "%s: %s; 'heteroshard mesh %s --apply' goes on",
				     p->m.m[i].id, f->text,
				     text_word(p->o->mesh, word, sizeof word));
		else if (f->text[0])
			cli_line(cli_out(), "%s: %s\n", p->m.m[i].id, f->text);
	}
	place_close(p);
	return rc;
}

static int invite(const struct args *o, struct err *e)
{
	struct place place = { .o = o };
	struct inviter *i;
	struct invitation v;
	char text[TOKEN_TEXT], busy[256];
	const volatile sig_atomic_t *stop = cli_stop();
	cli_stop_says(false);
	place.stop = stop;
	if (o->endpoint && !o->mesh)
		return err_set(e, ERR_USAGE, "invite: --endpoint goes with --mesh");
	TRY(inviter_open((unsigned)o->port, o->address.item, o->address.n, &i, e));
	int rc = o->mesh ? place_keep(&place, e) : 0;
	const bool kept = o->mesh && rc >= 0;
	if (rc >= 0)
		rc = inviter_token(i, o->name ? o->name : "", o->mesh != NULL, o->minutes, &v, text,
				   e);
	if (rc >= 0)
		rc = inviter_listen(i, busy, e);
	if (rc >= 0) {
		if (busy[0])
			fprintf(cli_err(), "%s; if that is a job, it takes the invitation\n", busy);
		fprintf(cli_out(), "%s\n", text);
		fflush(cli_out());
		fprintf(cli_err(),
			"On the other machine, within %lld minutes:\n"
			"  heteroshard worker --join TOKEN\n",
			(long long)o->minutes);
		rc = wait_for_use(i, &v, o->minutes, stop, e);
		struct err ignored = { 0 };
		invitation_close(v.secret, &ignored);
	}
	if (rc >= 0)
		usleep(700000); /* until the other machine has read its answer */
	if (kept) {
		struct buf none = BUF_INIT;
		struct err ignored = { 0 };
		invitation_part_write(o->name, &none, &ignored);
		rc = rc < 0 ? rc : place_tell(&place, e);
	}
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
