/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_mesh.c - `heteroshard mesh`: a WireGuard mesh between the machines of a configuration. */
#include "cli/cli.h"
#include "cli/run.h"

#include "base/buf.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "mesh/mesh_guest.h"
#include "mesh/mesh_key.h"
#include "mesh/mesh_run.h"
#include "report/topology_render.h"

#include <limits.h>
#include <string.h>

int cmd_mesh(int argc, char **argv);

struct args {
	bool apply, down, check, dry_run, bandwidth;
	int64_t port;
};

static const struct opt rows[] = {
	{ .key = "apply",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, apply),
	  .help = "bring it up, or up to date, on the machines that have 'ssh' and on this one; "
		  "makes keys that are missing" },
	{ .key = "down",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, down),
	  .help = "take it down there; keys stay" },
	{ .key = "check",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, check),
	  .help = "ask every machine about every other: a table, and a picture in the folder" },
	{ .key = "dry_run",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, dry_run),
	  .help = "with apply and down: show the commands, change nothing" },
	{ .key = "bandwidth",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, bandwidth),
	  .def = "true",
	  .help = "with check: measure the rate of every pair over the links of training" },
	{ .key = "port",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, port),
	  .def = "9990",
	  .lo = 1,
	  .hi = 65533,
	  .help = "with check: the first of three TCP ports for that" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard mesh CONFIG [--apply|--down|--check] [--dry-run]\n"
		    "       heteroshard mesh key [FILE]",
	.about = "Writes a file of wg-quick for each machine of CONFIG (key 'mesh') into the "
		 "folder mesh: everybody is joined\n"
		 "to everybody, through a third machine where neither side can be reached. "
		 "'mesh key' makes this machine's\n"
		 "key for it (in FILE, else /etc/wireguard/heteroshard.key; mode 0600, never "
		 "overwritten) and prints the\n"
		 "public one. Needs root, or sudo that asks nothing, on each machine. "
		 "docs/mesh.md leads through it.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard mesh cluster.yaml --apply\n"
		   "  heteroshard mesh cluster.yaml --check",
};

/* ---- results -------------------------------------------------------------------------------- */

static void show(void *ctx, const char *id, const char *where, const char *text)
{
	(void)ctx;
	if (where)
		cli_line(cli_out(), "# on %s: ssh %s, as root or by 'sudo -n', sh reads\n%s\n", id,
			 where, text);
	else
		cli_line(cli_out(),
			 "# on %s, this machine: as root or by 'sudo -n', sh reads\n%s\n", id,
			 text);
}

/* Lines of machines; those that failed go to standard error. */
static size_t report(const struct mesh_run *r)
{
	size_t failed = 0;
	fflush(cli_out());
	for (size_t i = 0; i < r->m->n; i++) {
		const struct mesh_fact *f = &r->fact[i];
		failed += f->failed;
		if (f->failed)
			cli_line(cli_err(), "error: %s: %s\n", r->m->m[i].id, f->text);
		else if (f->text[0])
			cli_line(cli_out(), "%s: %s\n", r->m->m[i].id, f->text);
	}
	return failed;
}

static const char *span(double s, char *out, size_t cap)
{
	if (s < 0)
		return "never";
	snprintf(out, cap, s < 120 ? "%.0f s" : "%.0f min", s < 120 ? s : s / 60);
	return out;
}

static void add_row(struct cli_table *t, const struct mesh *m, size_t a, size_t b,
		    const struct mesh_way *w)
{
	char by[64], age[32], ms[32], mtu[32], rate[32];
	const int h = mesh_through(m, a, b);
	snprintf(by, sizeof by, h < 0 ? "direct" : "through %s", h < 0 ? "" : m->m[h].id);
	snprintf(ms, sizeof ms, w->ms > 0 ? "%.2f ms" : "-", w->ms);
	snprintf(mtu, sizeof mtu, w->mtu ? "%ld" : "-", w->mtu);
	snprintf(rate, sizeof rate, w->rate > 0 ? "%.1f MB/s" : "-", w->rate);
	cli_table_add(t, (const char *const[]){ m->m[a].id, m->m[b].id, by,
						w->asked ? span(w->handshake, age, sizeof age)
							 : "not asked",
						ms, mtu, rate });
}

/* mesh.dot and mesh.png in the folder. */
static int draw(const struct mesh *m, const struct mesh_way *way, struct err *e)
{
	struct buf dot = BUF_INIT, png = BUF_INIT;
	char(*text)[64] = mem_array(m->n * m->n + 1, sizeof *text);
	const char **label = mem_array(m->n * m->n + 1, sizeof *label);
	int rc = text && label ? 0 : err_nomem(e, m->n * m->n * sizeof *text, "the picture");
	for (size_t i = 0; i < m->n * m->n && rc >= 0; i++) {
		const struct mesh_way *w = &way[i];
		if (w->rate > 0)
			snprintf(text[i], sizeof *text, "%.1f ms, %.0f MB/s", w->ms, w->rate);
		else if (w->works)
			snprintf(text[i], sizeof *text, "%.1f ms", w->ms);
		else if (w->asked)
			snprintf(text[i], sizeof *text, "does not work");
		label[i] = text[i];
	}
	if (rc >= 0) {
		mesh_dot(m, label, &dot);
		rc = buf_ok(&dot, e);
	}
	if (rc >= 0)
		rc = atomic_write_in(m->c->mesh.dir, "mesh.dot", dot.p, dot.n, e);
	struct err none = { 0 };
	if (rc >= 0 && topology_render(dot.p, "png", &png, &none) >= 0)
		rc = atomic_write_in(m->c->mesh.dir, "mesh.png", png.p, png.n, e);
	buf_release(&dot);
	buf_release(&png);
	mem_free(text);
	mem_free(label);
	return rc;
}

static int check(const struct args *o, struct mesh_run *r, int *status_p, struct err *e)
{
	static const char *const heading[] = { "from", "to",  "way", "handshake",
					       "ping", "MTU", "rate" };
	const struct mesh *m = r->m;
	struct mesh_way *way = mem_array(m->n * m->n + 1, sizeof *way);
	struct cli_table *t = cli_table_new(heading, ARRAY_LEN(heading));
	int rc = way && t ? dir_make(m->c->mesh.dir, e)
			  : err_nomem(e, m->n * m->n * sizeof *way, "the table");
	if (rc >= 0)
		rc = mesh_run_check(r, o->bandwidth, (unsigned)o->port, way, e);
	for (size_t a = 0; a < m->n && rc >= 0; a++)
		for (size_t b = 0; b < m->n; b++)
			if (a != b)
				add_row(t, m, a, b, &way[a * m->n + b]);
	cli_table_print(rc >= 0 ? t : NULL, cli_out());
	if (rc >= 0)
		*status_p = report(r) > 0;
	for (size_t i = 0; i < m->n * m->n && rc >= 0; i++)
		if (way[i].why[0]) {
			cli_line(cli_out(), "%s to %s: %s\n", m->m[i / m->n].id, m->m[i % m->n].id,
				 way[i].why);
			*status_p |= !way[i].works;
		}
	if (rc >= 0)
		rc = draw(m, way, e);
	mem_free(way);
	return rc;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int make_key(int npos, char **pos, struct err *e)
{
	char pub[MESH_KEY], path[PATH_MAX];
	if (npos > 2)
		return err_set(e, ERR_USAGE, "mesh key: '%.60s' was not expected", pos[2]);
	snprintf(path, sizeof path, "%s", npos > 1 ? pos[1] : "/etc/wireguard/heteroshard.key");
	bool made = false;
	TRY(mesh_key(path, pub, &made, e));
	fprintf(cli_out(), "%s\n", pub);
	fprintf(cli_err(),
		"The private key is in %s%s. In the configuration, for this machine:\n"
		"  wg_public_key: '%s'\n",
		path, made ? "" : " (it was there already)", pub);
	return 0;
}

/* Writes the folder, and says what changed. */
static int write_files(const struct mesh *m, struct err *e)
{
	size_t removed = 0, changed = 0;
	bool *is_new = mem_array(m->n + 1, sizeof *is_new);
	if (!is_new)
		return err_nomem(e, m->n, "mesh");
	int rc = mesh_write(m, is_new, &removed, e);
	for (size_t i = 0; i < m->n && rc >= 0; i++) {
		const char *ip = m->m[i].ip[0][0] ? m->m[i].ip[0] : m->m[i].ip[1];
		changed += is_new[i];
		cli_line(cli_out(), "%s/%s.conf: %s%s\n", m->c->mesh.dir, m->m[i].id, ip,
			 is_new[i] ? "" : ", unchanged");
	}
	if (rc >= 0)
		cli_line(cli_out(), "%zu of %zu files written, %zu removed; names in %s/hosts\n",
			 changed, m->n, removed, m->c->mesh.dir);
	mem_free(is_new);
	return rc;
}

/* What the machines say is asked first, because keys may come from them. */
static int run_mesh(const struct args *o, struct mesh_run *r, int *status_p, struct err *e)
{
	struct mesh *m = r->m;
	if (o->down) {
		TRY(mesh_run_down(r, e));
		*status_p = report(r) > 0;
		return 0;
	}
	if (o->apply) {
		TRY(mesh_run_look(r, e));
		size_t failed = 0;
		for (size_t i = 0; i < m->n; i++)
			failed += r->fact[i].failed;
		if (failed) { /* but for keys, nothing is changed before all are ready */
			report(r);
			*status_p = 1;
			return 0;
		}
	}
	TRY(mesh_settle(m, e));
	if (o->check)
		return check(o, r, status_p, e);
	if (!o->dry_run)
		TRY(write_files(m, e));
	if (!o->apply)
		return 0;
	TRY(mesh_run_apply(r, e));
	*status_p = report(r) > 0;
	for (size_t i = 0; i < m->n; i++)
		if (r->fact[i].left_out && !m->m[i].invited)
			cli_line(cli_err(),
				 "%s has no 'ssh': copy %s/%s.conf to /etc/wireguard/%s.conf there "
				 "and run 'sudo wg-quick up %s'\n",
				 m->m[i].id, m->c->mesh.dir, m->m[i].id, m->c->mesh.interface,
				 m->c->mesh.interface);
	return 0;
}

static int mesh(const struct args *o, int npos, char **pos, int *status_p, struct err *e)
{
	struct config *c;
	struct mesh m = { 0 };
	struct mesh_run r = { 0 };
	if (!strcmp(pos[0], "key"))
		return make_key(npos, pos, e);
	if (o->apply + o->down + o->check > 1)
		return err_set(e, ERR_USAGE, "mesh: one of --apply, --down and --check");
	if (o->dry_run && !o->apply && !o->down)
		return err_set(e, ERR_USAGE, "mesh: --dry-run goes with --apply or --down");
	TRY(cli_config("mesh", CONFIG_PART, npos, pos, &c, e));
	int rc = mesh_guests(c, e);
	if (rc >= 0)
		rc = mesh_open(c, &m, e);
	cli_stop_says(false);
	if (rc >= 0)
		rc = mesh_run_open(&m, cli_stop(), &r, e);
	if (o->dry_run)
		r.show = show;
	if (rc >= 0)
		rc = run_mesh(o, &r, status_p, e);
	mesh_run_close(&r);
	mesh_close(&m);
	config_free(c);
	return rc;
}

int cmd_mesh(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 1, 64, &npos, &a, &status)) {
		status = 0;
		if (mesh(&o, npos, argv + 1, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
