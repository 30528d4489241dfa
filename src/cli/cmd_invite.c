/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_invite.c - `heteroshard invite`: a token with which one machine joins, once. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "peers/reception.h"
#include "peers/peer_list.h"

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

static int addresses(const struct args *o, struct invite_token *t, struct err *e)
{
	struct interface here[INTERFACES_MOST];
	for (size_t i = 0; i < o->address.n; i++) {
		if (t->naddress == TOKEN_ADDRESSES || strlen(o->address.item[i]) >= TOKEN_ADDRESS)
			return err_set(e, ERR_USAGE,
				       "--address: at most %d, of at most %d characters each",
				       TOKEN_ADDRESSES, TOKEN_ADDRESS - 1);
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "%s", o->address.item[i]);
	}
	int n = t->naddress ? 0 : interfaces_list(here, INTERFACES_MOST);
	for (int i = 0; i < n && t->naddress < TOKEN_ADDRESSES; i++)
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "%.63s", here[i].address);
	if (!t->naddress)
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "127.0.0.1");
	return 0;
}

/* Listens where nothing does yet; *r_p NULL: a coordinator that runs here takes the invitation. */
static int listen_here(const struct args *o, const struct key_pair *k, struct net **n_p,
		       struct reception **r_p, struct err *e)
{
	char at[NET_ADDRESS];
	struct err busy = { 0 };
	*r_p = NULL;
	TRY(net_open(NET_DEFAULT, &(struct net_options){ .key = k, .before_take = NET_BEFORE_TAKE },
		     n_p, e));
	address_join("*", (unsigned)o->port, at);
	if (net_listen(*n_p, at, NULL, &busy) < 0) {
		fprintf(stderr, "%s; if that is a job, it takes the invitation\n", busy.msg);
		return 0;
	}
	return reception_open(*n_p, k->pub, r_p, e);
}

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
	struct key_pair k;
	struct net *n = NULL;
	struct reception *r = NULL;
	struct invite_token t = { .port = (unsigned)o->port };
	struct invitation v = { .until = (int64_t)time(NULL) + o->minutes * 60 };
	char text[TOKEN_TEXT];
	const volatile sig_atomic_t *stop = cli_stop();
	cli_stop_says(false);
	TRY(key_own(true, &k, e));
	memcpy(t.key, k.pub, sizeof t.key);
	int rc = addresses(o, &t, e);
	if (rc >= 0)
		rc = invite_secret(t.secret, e);
	if (rc >= 0) {
		memcpy(v.secret, t.secret, sizeof v.secret);
		if (o->name && snprintf(v.name, sizeof v.name, "%s", o->name) >= PEER_NAME)
			rc = err_set(e, ERR_USAGE, "--name: at most %d characters", PEER_NAME - 1);
	}
	if (rc >= 0)
		rc = invite_write(&t, text, e);
	if (rc >= 0)
		rc = invitation_open(&v, e);
	if (rc >= 0) {
		rc = listen_here(o, &k, &n, &r, e);
		if (rc >= 0) {
			printf("%s\n", text);
			fflush(stdout);
			fprintf(stderr,
				"On the other machine, within %lld minutes:\n"
				"  heteroshard worker --join TOKEN\n",
				(long long)o->minutes);
			rc = wait_for_use(&v, stop, e);
		}
		struct err ignored = { 0 };
		invitation_close(v.secret, &ignored);
	}
	if (r && rc >= 0)
		usleep(700000); /* until the other machine has read its answer */
	reception_close(r);
	if (n)
		net_close(n, 1);
	key_pair_wipe(&k);
	OPENSSL_cleanse(&t, sizeof t);
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
