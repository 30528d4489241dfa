/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.c - see fleet.h: who belongs to it, what is found there, ending, logs. Installing and
 * starting are in fleet_start.c, the texts of sh in fleet_sh.c. */
#include "ops/fleet.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "file/atomic.h"
#include "job/role.h"
#include "ops/fleet_sh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_ours(const struct config_worker *w) { return w->ssh && w->ssh[0]; }

int fleet_open(const struct config *c, const char *only, struct fleet *f_p, struct err *e)
{
	struct fleet f = { .c = c };
	bool known = !only;
	f.member = mem_array(c->nworkers + 1, sizeof *f.member);
	if (!f.member)
		return err_nomem(e, (c->nworkers + 1) * sizeof *f.member, "workers");
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		char host[SSH_WHERE];
		unsigned port;
		int rc = 0;
		known |= only && !strcmp(only, w->id);
		if (only && strcmp(only, w->id))
			continue;
		if (!is_ours(w)) {
			f.elsewhere += w->invited || !role_is_here(w->ip, w->hostname);
			continue;
		}
		f.member[f.n++].w = w;
		rc = ssh_where(w->ssh, host, &port, e);
		if (rc < 0)
			err_prefix(e, "worker '%.60s'", w->id);
		else if (!peer_name_ok(w->id))
			rc = err_set(e, ERR_USAGE,
				     "worker '%.60s': its id names a folder there: letters, "
				     "digits, '.', '-' and '_'",
				     w->id);
		if (rc < 0) {
			mem_free(f.member);
			return rc;
		}
	}
	if (!f.n) {
		mem_free(f.member);
		if (!known)
			return err_set(e, ERR_USAGE, "there is no worker '%.60s' in %.300s", only,
				       c->path);
		return err_set(e, ERR_USAGE,
			       "%.300s: no worker has 'ssh': write 'ssh: user@host' into the "
			       "entries of 'workers', or start 'heteroshard worker' there by hand",
			       c->path);
	}
	*f_p = f;
	return 0;
}

void fleet_close(struct fleet *f)
{
	for (size_t i = 0; i < f->n; i++)
		mem_free(f->member[i].devices);
	mem_free(f->member);
	*f = (struct fleet){ 0 };
}

/* ---- what is there -------------------------------------------------------------------------- */

static void put(char *to, size_t cap, const char *text)
{
	snprintf(to, cap, "%s", text);
	text_safe_str(to, TEXT_LINE);
}

/* "WORD text" lines, up to a line "devices", behind which everything is theirs. */
static void read_facts(struct fleet_member *m, char *text)
{
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		char *value = strchr(line, ' ');
		if (!strcmp(line, "devices")) {
			m->devices = rest ? mem_strdup(rest) : NULL;
			return;
		}
		if (!value)
			continue;
		*value++ = 0;
		if (!strcmp(line, "machine"))
			put(m->machine, sizeof m->machine, value);
		else if (!strcmp(line, "version"))
			put(m->version, sizeof m->version, value);
		else if (!strcmp(line, "other"))
			put(m->other, sizeof m->other, value);
		else if (!strcmp(line, "program"))
			put(m->program, sizeof m->program, value);
		else if (!strcmp(line, "pid"))
			m->pid = strtoll(value, NULL, 10);
		else if (!strcmp(line, "space"))
			m->space = strtoull(value, NULL, 10) << 10;
		else if (!strcmp(line, "joined"))
			m->joined = (int)strtol(value, NULL, 10);
		else if (!strcmp(line, "last"))
			put(m->last, sizeof m->last, value);
	}
}

int fleet_look(struct fleet *f, bool devices, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(f->n, &b, e));
	for (size_t i = 0; i < f->n; i++)
		if (!f->member[i].failed) {
			struct buf *s = fleet_add(f, &b, i, 60);
			fleet_sh_head(s, &f->member[i]);
			fleet_sh_look(s, devices);
		}
	int rc = fleet_run(f, &b, e);
	for (size_t k = 0; k < b.n && rc >= 0; k++) {
		struct fleet_member *m = &f->member[b.of[k]];
		if (!m->failed)
			read_facts(m, b.call[k].out.p);
	}
	ssh_batch_close(&b);
	return rc;
}

/* ---- ending --------------------------------------------------------------------------------- */

int fleet_stop(struct fleet *f, double wait, bool now, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(f->n, &b, e));
	for (size_t i = 0; i < f->n; i++) {
		struct buf *s = fleet_add(f, &b, i, wait + 30);
		fleet_sh_head(s, &f->member[i]);
		fleet_sh_stop(s, (int)wait, now);
	}
	int rc = fleet_run(f, &b, e);
	for (size_t k = 0; k < b.n && rc >= 0; k++) {
		struct fleet_member *m = &f->member[b.of[k]];
		const char *said = b.call[k].out.p;
		if (m->failed)
			continue;
		m->failed = !strncmp(said, "running", 7);
		put(m->text, sizeof m->text,
		    m->failed                   ? "it still runs: 'heteroshard down --now' ends it "
						  "without finishing the step"
		    : !strncmp(said, "none", 4) ? "did not run"
						: "stopped");
	}
	ssh_batch_close(&b);
	return rc;
}

/* ---- logs ----------------------------------------------------------------------------------- */

struct log_to {
	const char *id;
	fleet_line_fn line, failed;
	void *ctx;
};

static void give_line(void *ctx, const char *text)
{
	struct log_to *t = ctx;
	char line[4200];
	put(line, sizeof line, text);
	t->line(t->ctx, t->id, line);
}

static void give_failure(void *ctx, const char *why)
{
	struct log_to *t = ctx;
	t->failed(t->ctx, t->id, why);
}

int fleet_logs(struct fleet *f, int lines, bool follow, fleet_line_fn line, fleet_line_fn failed,
	       void *ctx, struct err *e)
{
	struct ssh_batch b;
	struct log_to *to = mem_array(f->n + 1, sizeof *to);
	if (!to)
		return err_nomem(e, (f->n + 1) * sizeof *to, "logs");
	int rc = ssh_batch_open(f->n, &b, e);
	if (rc < 0) {
		mem_free(to);
		return rc;
	}
	for (size_t i = 0; i < f->n; i++) {
		struct buf *s = fleet_add(f, &b, i, follow ? 0 : 60);
		fleet_sh_head(s, &f->member[i]);
		fleet_sh_log(s, lines, follow);
		to[i] = (struct log_to){ f->member[i].w->id, line, failed, ctx };
		b.call[b.n - 1].line = give_line;
		b.call[b.n - 1].failed = give_failure;
		b.call[b.n - 1].ctx = &to[i];
	}
	rc = fleet_run(f, &b, e);
	ssh_batch_close(&b);
	mem_free(to);
	return rc;
}

/* ---- the last configuration ----------------------------------------------------------------- */

int fleet_remember(const char *config, struct err *e)
{
	char path[PATH_MAX], full[PATH_MAX];
	TRY(peers_path("cluster", path, e));
	if (!realpath(config, full))
		return err_sys(e, errno, "%s", config);
	return atomic_write_file(path, full, strlen(full), e);
}

int fleet_remembered(char path_p[PATH_MAX], struct err *e)
{
	char path[PATH_MAX];
	struct buf b = BUF_INIT;
	TRY(peers_path("cluster", path, e));
	if (access(path, F_OK) < 0)
		return err_set(e, ERR_USAGE,
			       "no configuration was named, and 'heteroshard up' has started none");
	int rc = buf_read_file(&b, path, PATH_MAX - 1, e);
	if (rc >= 0)
		snprintf(path_p, PATH_MAX, "%.*s", (int)strcspn(b.p, "\n"), b.p);
	buf_release(&b);
	return rc;
}
