/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_start.c - fleet_start() of fleet.h: the program onto the machines, invitations, workers. */
#include "ops/fleet.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os.h"
#include "base/text.h"
#include "base/version.h"
#include "ops/fleet_sh.h"
#include "peers/inviter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(struct fleet_member *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void fail(struct fleet_member *m, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(m->text, sizeof m->text, fmt, ap);
	va_end(ap);
	m->failed = true;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Where a tarball is looked for: where the user says, beside the program, where it was built. */
static bool find_tarball(const char *machine, const char *from, char path[PATH_MAX],
			 char looked[PATH_MAX])
{
	char beside[PATH_MAX] = "";
	const char *self = os_self_exe(), *slash = self ? strrchr(self, '/') : NULL;
	if (slash)
		snprintf(beside, sizeof beside, "%.*s", (int)(slash - self), self);
	const char *const below[] = { "/package", "/../share/heteroshard" };
	for (size_t i = 0; i < (from ? 1 : ARRAY_LEN(below)); i++) {
		snprintf(looked, PATH_MAX, "%.3000s%s", from ? from : beside, from ? "" : below[i]);
		snprintf(path, PATH_MAX, "%.3900s/heteroshard-%s-linux-%.60s.tar.xz", looked,
			 HS_VERSION, machine);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static bool wants_program(struct fleet_member *m, const struct fleet_up *o)
{
	char question[SSH_WHY + 200];
	if (m->failed || m->version[0])
		return false;
	if (strcmp(m->machine, "x86_64") && strcmp(m->machine, "aarch64")) {
		fail(m,
		     "it is a machine of the kind %.60s, and there are programs for x86_64 and "
		     "aarch64: build it there from source",
		     m->machine[0] ? m->machine : "unknown");
		return false;
	}
	if (m->other[0])
		snprintf(question, sizeof question,
			 "%s: version %.100s is there, and %s here. Install %s beside it?",
			 m->w->id, m->other, HS_VERSION, HS_VERSION);
	else
		snprintf(question, sizeof question,
			 "%s: heteroshard is not there. Install %s in the user's home?", m->w->id,
			 HS_VERSION);
	if (o->install || (o->ask && o->ask(o->ctx, question)))
		return true;
	if (m->other[0])
		fail(m,
		     "version %.100s is there, and %s here: 'heteroshard up --install' copies "
		     "this one into the user's home",
		     m->other, HS_VERSION);
	else
		fail(m, "heteroshard is not there: 'heteroshard up --install' copies it into the "
			"user's home");
	return false;
}

/* Several workers of one account need it once. */
static bool same_before(const struct fleet *f, const bool *wanted, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (wanted[k] && !strcmp(f->member[k].w->ssh, f->member[i].w->ssh))
			return true;
	return false;
}

static bool open_tarball(struct fleet_member *m, const char *from, int *fd_p)
{
	char path[PATH_MAX], looked[PATH_MAX];
	uint64_t size;
	struct err e = { 0 };
	if (!find_tarball(m->machine, from, path, looked)) {
		fail(m,
		     "heteroshard-%s-linux-%.60s.tar.xz is not in %.200s: 'make dist ARCH=%.60s' "
		     "makes it, and --from says where it is",
		     HS_VERSION, m->machine, looked, m->machine);
		return false;
	}
	if (open_read(path, fd_p, &size, &e) < 0) {
		fail(m, "%.500s", e.msg);
		return false;
	}
	/* the tarball, and what comes out of it */
	if (m->space && m->space < 6 * size) {
		fail(m,
		     "%llu MiB are free in the home folder there, and the program needs %llu: "
		     "make room",
		     (unsigned long long)(m->space >> 20),
		     (unsigned long long)(6 * size >> 20) + 1);
		close(*fd_p);
		return false;
	}
	return true;
}

/* The bytes go to `cat` by the login shell alone: a shell that reads its commands from there could
 * read too far. */
static int send_tarballs(struct fleet *f, const bool *sent, const struct fleet_up *o, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(f->n, &b, e));
	char(*command)[300] = mem_array(f->n + 1, sizeof *command);
	int rc = command ? 0 : err_nomem(e, sizeof *command, "ssh");
	for (size_t i = 0; i < f->n && rc >= 0; i++) {
		int fd;
		if (!sent[i] || !open_tarball(&f->member[i], o->from, &fd))
			continue;
		fleet_add(f, &b, i, 1800);
		struct ssh_call *c = &b.call[b.n - 1];
		snprintf(command[b.n - 1], sizeof *command,
			 "cd && umask 077 && mkdir -p .local/share/heteroshard && cat "
			 ">.local/share/heteroshard/new-%.100s.tar.xz",
			 f->member[i].w->id);
		c->command = command[b.n - 1];
		c->file = fd;
	}
	if (rc >= 0)
		rc = fleet_run(f, &b, e);
	for (size_t k = 0; k < b.n; k++)
		if (b.call[k].file > 0)
			close(b.call[k].file);
	ssh_batch_close(&b);
	mem_free(command);
	return rc;
}

static int install(struct fleet *f, const struct fleet_up *o, struct err *e)
{
	bool *wanted = mem_array(f->n + 1, sizeof *wanted), *sent = mem_array(f->n + 1, 1),
	     any = false;
	struct ssh_batch b = { 0 };
	int rc = wanted && sent ? 0 : err_nomem(e, f->n, "workers");
	for (size_t i = 0; i < f->n && rc >= 0; i++) {
		const struct fleet_up again = { .install = true };
		bool twice = same_before(f, wanted, i) && !f->member[i].failed;
		wanted[i] = wants_program(&f->member[i], twice ? &again : o);
		sent[i] = wanted[i] && !twice;
		any |= sent[i];
	}
	if (rc >= 0 && any)
		rc = send_tarballs(f, sent, o, e);
	if (rc >= 0 && any)
		rc = ssh_batch_open(f->n, &b, e);
	for (size_t i = 0; i < f->n && rc >= 0 && any; i++)
		if (sent[i] && !f->member[i].failed) {
			struct buf *s = fleet_add(f, &b, i, 600);
			fleet_sh_head(s, &f->member[i]);
			fleet_sh_unpack(s);
		}
	if (rc >= 0 && any)
		rc = fleet_run(f, &b, e);
	/* who shares the account with one that failed has failed with it */
	for (size_t i = 0; i < f->n && rc >= 0; i++)
		for (size_t k = 0; k < i && wanted[i] && !sent[i]; k++)
			if (sent[k] && f->member[k].failed &&
			    !strcmp(f->member[k].w->ssh, f->member[i].w->ssh))
				fail(&f->member[i], "%s", f->member[k].text);
	ssh_batch_close(&b);
	mem_free(wanted);
	mem_free(sent);
	return rc;
}

/* ---- workers -------------------------------------------------------------------------------- */

/* Whether a machine must join first; false also where it cannot. */
static bool must_join(struct fleet_member *m, const struct peer_list *l)
{
	bool known = peer_list_find(l, m->w->id) != NULL;
	if ((m->joined || m->pid) && known)
		return false;
	if (known && !m->joined)
		fail(m,
		     "another machine has joined as '%s': 'heteroshard peers remove %s' first, "
		     "or give this worker another id",
		     m->w->id, m->w->id);
	m->joined = 1;
	return !known;
}

static int add_text(struct fleet *f, struct ssh_batch *b, size_t i, const char *config,
		    const char *token)
{
	struct fleet_member *m = &f->member[i];
	struct buf *s = fleet_add(f, b, i, 120);
	fleet_sh_head(s, m);
	if (m->w->invited)
		fleet_sh_serve(s, m->w, m->joined, token);
	else
		fleet_sh_work(s, m->w, config);
	return 0;
}

static void report(struct fleet_member *m, const char *said)
{
	const char *last = strstr(said, "\nlast ");
	long long pid = 0;
	if (!strncmp(said, "running ", 8)) {
		m->pid = strtoll(said + 8, NULL, 10);
		snprintf(m->text, sizeof m->text, "runs already%s",
			 strstr(said, " other\n") ? ", as it was started: configuration or version "
						    "have changed since; 'heteroshard down' first"
						  : "");
		return;
	}
	if (!strncmp(said, "pid ", 4))
		pid = strtoll(said + 4, NULL, 10);
	m->pid = pid;
	snprintf(m->text, sizeof m->text, "started%s%.*s", last ? ": " : "",
		 last ? (int)strcspn(last + 6, "\n") : 0, last ? last + 6 : "");
	text_safe_str(m->text, TEXT_LINE);
}

/* Tokens of the members that must join, in `token` by member; *i_p NULL: nobody must. */
static int make_tokens(struct fleet *f, const struct fleet_up *o, struct invitation *v,
		       char (*token)[TOKEN_TEXT], struct inviter **i_p, struct err *e)
{
	const struct config_coordinator *c = &f->c->coordinator;
	const char *address[] = { c->ip };
	struct peer_list l;
	char busy[256];
	int rc = 0;
	*i_p = NULL;
	TRY(peer_list_read(&l, e));
	for (size_t i = 0; i < f->n && rc >= 0; i++) {
		struct fleet_member *m = &f->member[i];
		token[i][0] = 0;
		if (m->failed || !m->w->invited || !must_join(m, &l) || m->failed)
			continue;
		if (!*i_p)
			rc = inviter_open((unsigned)c->port, address, c->ip && c->ip[0], i_p, e);
		if (rc >= 0)
			rc = inviter_token(*i_p, m->w->id, false, o->minutes, &v[i], token[i], e);
	}
	peer_list_release(&l);
	if (*i_p && rc >= 0)
		rc = inviter_listen(*i_p, busy, e);
	return rc;
}

static int start_all(struct fleet *f, const struct fleet_up *o, const char *config, struct err *e)
{
	struct ssh_batch b;
	struct inviter *inviter = NULL;
	struct err ignored = { 0 };
	char(*token)[TOKEN_TEXT] = mem_array(f->n + 1, sizeof *token);
	struct invitation *v = mem_array(f->n + 1, sizeof *v);
	int rc = token && v ? 0 : err_nomem(e, (f->n + 1) * sizeof *token, "invitations");
	if (rc >= 0)
		rc = make_tokens(f, o, v, token, &inviter, e);
	if (rc >= 0)
		rc = ssh_batch_open(f->n, &b, e);
	if (rc >= 0) {
		for (size_t i = 0; i < f->n; i++)
			if (!f->member[i].failed)
				add_text(f, &b, i, config, token[i][0] ? token[i] : NULL);
		rc = fleet_run(f, &b, e);
		for (size_t k = 0; k < b.n && rc >= 0; k++)
			if (!f->member[b.of[k]].failed)
				report(&f->member[b.of[k]], b.call[k].out.p);
		ssh_batch_close(&b);
	}
	for (size_t i = 0; token && v && i < f->n; i++)
		if (token[i][0])
			invitation_close(v[i].secret, &ignored);
	inviter_close(inviter);
	mem_free(token);
	mem_free(v);
	return rc;
}

int fleet_start(struct fleet *f, const struct fleet_up *o, struct err *e)
{
	struct buf config = BUF_INIT;
	int rc = buf_read_file(&config, f->c->path, 1 << 20, e);
	if (rc >= 0 && strstr(config.p, FLEET_END))
		rc = err_set(e, ERR_USAGE, "%s: the words '%s' cannot be sent", f->c->path,
			     FLEET_END);
	if (rc >= 0)
		rc = install(f, o, e);
	if (rc >= 0)
		rc = start_all(f, o, config.p, e);
	buf_release(&config);
	return rc;
}
