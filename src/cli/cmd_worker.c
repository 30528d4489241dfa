/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_worker.c - `heteroshard worker CONFIG`: one worker of a job over several machines; also what
 * `train` is on such a machine. */
#include "cli/cli.h"
#include "cli/run.h"
#include "ops/limits.h"
#include "job/network.h"
#include "mesh/mesh_part.h"
#include "peers/invited.h"
#include "peers/join.h"
#include "worker/dial_in.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/os.h"

#include <ctype.h>
#include <heteroshard.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int cmd_worker(int argc, char **argv);

struct args {
	char *worker, *join, *name, *device;
	int64_t port;
	struct config_limits limits;
	bool insecure, once, stay;
	char *plugin, *cache_dir;
};

static const struct opt rows[] = {
	{ .key = "worker",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, worker),
	  .arg = "ID",
	  .help = "which of the configuration's workers" },
	{ .key = "join",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, join),
	  .arg = "TOKEN",
	  .help = "join the machine that printed TOKEN ('heteroshard invite'), and end; '-': read "
		  "it "
		  "from standard input" },
	{ .key = "name",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, name),
	  .arg = "NAME",
	  .help = "with --join: the name to ask for; else the host name" },
	{ .key = "device",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, device),
	  .def = "auto",
	  .arg = "DEVICE",
	  .help = "without CONFIG: the device, as 'heteroshard devices' lists them" },
	{ .key = "port",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, port),
	  .lo = 0,
	  .hi = 65535,
	  .help = "without CONFIG: where other workers connect; else 9999, or any that is free" },
	{ .key = "threads",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, limits.threads),
	  .lo = 0,
	  .hi = 4096,
	  .help = "without CONFIG: threads of the processor, kept to processors of their own" },
	{ .key = "memory",
	  .kind = OPT_FLOAT,
	  .offset = offsetof(struct args, limits.memory),
	  .lo = 0,
	  .hi = 1e6,
	  .arg = "GIB",
	  .help = "without CONFIG: at most so much, where the device is the processor" },
	{ .key = "cache_dir",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, cache_dir),
	  .arg = "DIR",
	  .help = "without CONFIG: where layers are kept; else ~/.cache/heteroshard" },
	{ .key = "plugin",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, plugin),
	  .arg = "FILE",
	  .help = "a shared object with blocks and optimizers of one's own (heteroshard.h, "
		  "hs_plugin_fn)" },
	{ .key = "nice",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, limits.nice),
	  .lo = 0,
	  .hi = 19,
	  .help = "without CONFIG: the priority, as of the command nice" },
	{ .key = "once",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, once),
	  .help = "without CONFIG: end after one job" },
	{ .key = "stay",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, stay),
	  .help = "with CONFIG: one job after the other, until Ctrl-C" },
	{ .key = "insecure",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, insecure),
	  .help = "links without keys and encryption, on any address: anyone who reaches the port "
		  "can "
		  "join" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard worker [--join TOKEN] [--worker ID] [--plugin FILE] [CONFIG] "
		    "[key=value "
		    "...]",
	.about = "Without CONFIG: works for the machine that invited this one, whenever that is "
		 "there, "
		 "until Ctrl-C.\n"
		 "With it: works for the coordinator that CONFIG names: the same as 'train --role "
		 "worker'. "
		 "Of several\n"
		 "workers with this machine's address it is the first whose port is free, unless "
		 "--worker says.",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard worker --join TOKEN\n"
		   "  heteroshard worker\n"
		   "  heteroshard worker cluster.yaml\n"
		   "  heteroshard worker --worker b cluster.yaml",
};

/* What the machine is called, in letters that a name may have. */
static void own_name(char name[PEER_NAME])
{
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	host[strcspn(host, ".")] = 0;
	snprintf(name, PEER_NAME, "%.60s", host);
	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-_", *p))
			*p = '-';
	if (!peer_name_ok(name))
		snprintf(name, PEER_NAME, "worker");
}

/* The coordinator is found inside its mesh also when this machine moves. */
static void remember_inside(struct served *v, const struct mesh *m)
{
	for (int v6 = 0; v6 < 2; v6++)
		if (m->m[0].ip[v6][0] && v->naddress < TOKEN_ADDRESSES)
			snprintf(v->address[v->naddress++], TOKEN_ADDRESS, "%s", m->m[0].ip[v6]);
}

/* Takes the place in the mesh that came with the answer. */
static int take_place(const struct join_mesh *j, struct served *v, struct err *e)
{
	struct mesh_part p;
	if (!j->part.n)
		return err_set(e, ERR_PROTOCOL,
			       "joined as '%s', but the place in the mesh did not come: ask for "
			       "another invitation",
			       v->name);
	TRY(mesh_part_read(j->part.p, v->name, j->wg, &p, e));
	int rc = mesh_part_up(&p, cli_stop(), e);
	for (size_t i = 0; i < p.m.n && rc >= 0; i++)
		if (p.m.m[i].here)
			fprintf(cli_err(), "In the mesh this machine is %s.mesh, %s.\n", v->name,
				p.m.m[i].ip[0][0] ? p.m.m[i].ip[0] : p.m.m[i].ip[1]);
	if (rc >= 0)
		remember_inside(v, &p.m);
	mesh_part_close(&p);
	return rc;
}

static int join(const struct args *o, struct err *e)
{
	struct invite_token t;
	struct served v;
	struct key_pair k;
	struct buf line = BUF_INIT;
	char name[PEER_NAME];
	bool piped = !strcmp(o->join, "-");
	int rc = piped ? cli_read_stdin(&line, 1 << 20, e) : 0;
	if (rc >= 0)
		rc = invite_read(piped ? (line.n ? line.p : "") : o->join, &t, e);
	buf_release(&line);
	own_name(name);
	if (rc >= 0 && o->name && !peer_name_ok(o->name))
		rc = err_set(e, ERR_USAGE, "--name %.60s: letters, digits, '.', '-' and '_'",
			     o->name);
	if (rc < 0)
		return rc;
	if (o->name)
		snprintf(name, sizeof name, "%s", o->name);
	char wg[MESH_KEY] = "";
	struct join_mesh mesh = { .wg = wg, .part = BUF_INIT };
	if (t.mesh)
		TRY(mesh_part_key(cli_stop(), wg, &mesh.family, e));
	TRY(key_own(true, &k, e));
	rc = invitation_accept(&t, &k, name, t.mesh ? &mesh : NULL, cli_stop(), &v, e);
	key_pair_wipe(&k);
	if (rc >= 0)
		rc = served_write(&v, e);
	if (rc >= 0 && t.mesh) {
		rc = take_place(&mesh, &v, e);
		if (rc >= 0)
			rc = served_write(&v, e);
	}
	buf_release(&mesh.part);
	if (rc >= 0)
		fprintf(cli_err(),
			"joined as '%s' the machine at %s. 'heteroshard worker' works for it.\n",
			v.name, v.address[0]);
	return rc;
}

/* Without a configuration. */
static int serve_inviter(const struct args *o, struct err *e)
{
	const struct dial_in d = { .device = o->device,
				   .cache_dir = o->cache_dir,
				   .cache_limit = 100,
				   .port = (unsigned)o->port,
				   .once = o->once,
				   .stop = cli_stop() };
	if (o->join)
		return join(o, e);
	TRY(limits_take(&o->limits, (int)o->limits.threads, e));
	return dial_in_serve(&d, e);
}

int cmd_worker(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	struct err e = { 0 };
	struct role r;
	struct config *c = NULL;
	int npos, status;
	if (!cli_args(&usage, argc, argv, &o, 0, -1, &npos, &a, &status)) {
		arena_release(&a);
		return status;
	}
	hs_error refused;
	if (o.plugin && hs_plugin_load(o.plugin, &refused) < 0) {
		err_set(&e, refused.code, "%s", refused.text);
		arena_release(&a);
		return cli_fail(&e);
	}
	if (!npos || o.join) {
		status = npos ? cli_usage_error("--join takes no configuration")
			      : (serve_inviter(&o, &e) < 0 ? cli_fail(&e) : 0);
		arena_release(&a);
		return status;
	}
	int rc = cli_config("worker", CONFIG_PART, npos, argv + 1, &c, &e);
	if (rc >= 0) {
		cli_level_config(c);
		c->insecure |= o.insecure;
		rc = invited_resolve(c, &e);
	}
	if (rc >= 0) {
		rc = role_find(c, "worker", o.worker, &r, &e);
		r.stays = o.stay;
	}
	if (rc >= 0)
		rc = network_check(c, &e);
	if (rc >= 0)
		rc = cli_work(c, &r, &e);
	config_free(c);
	arena_release(&a);
	if (e.code == ERR_CANCELLED && !cli_is_inside() && os_die_with_parent())
		return 1; /* the coordinator says why, on the same terminal */
	return rc < 0 ? cli_fail(&e) : rc;
}
