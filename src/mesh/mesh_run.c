/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_run.c - see mesh_run.h: looking, --apply, --down. --check is in mesh_check.c. */
#include "mesh/mesh_run.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "mesh/mesh_sh.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int mesh_run_open(struct mesh *m, const volatile sig_atomic_t *stop, struct mesh_run *r_p,
		  struct err *e)
{
	struct mesh_fact *f = mem_array(m->n + 1, sizeof *f);
	if (!f)
		return err_nomem(e, (m->n + 1) * sizeof *f, "mesh");
	for (size_t i = 0; i < m->n; i++)
		f[i].left_out = !m->m[i].here && !m->m[i].ssh;
	*r_p = (struct mesh_run){ .m = m, .fact = f, .stop = stop };
	return 0;
}

void mesh_run_close(struct mesh_run *r)
{
	mem_free(r->fact);
	*r = (struct mesh_run){ 0 };
}

static void fail(struct mesh_fact *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct mesh_fact *f, const char *fmt, ...)
{
	va_list ap;
	if (f->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, ap);
	va_end(ap);
	text_safe_str(f->text, TEXT_LINE);
	f->failed = true;
}

/* ---- looking -------------------------------------------------------------------------------- */

static void read_fact(struct mesh_run *r, size_t i, const char *word, const char *value,
		      int *family)
{
	struct mesh *m = r->m;
	struct mesh_fact *f = &r->fact[i];
	char shown[300];
	struct err e = { 0 };
	if (!strcmp(word, "missing"))
		fail(f, "%.60s is not there: install %s", value,
		     strcmp(value, "ip") ? "wireguard-tools" : "iproute2");
	else if (!strcmp(word, "way") && !strcmp(value, "none"))
		fail(f,
		     "its kernel has no WireGuard: install wireguard-go (it needs /dev/net/tun)");
	else if (!strcmp(word, "way") && strcmp(value, "kernel"))
		snprintf(f->way, sizeof f->way, "%s", value);
	else if (!strcmp(word, "up"))
		f->up = true;
	else if (!strcmp(word, "foreign"))
		fail(f,
		     "there is %s '%.15s%s' that heteroshard did not make: choose another name, as "
		     "'mesh: {interface: hsmesh2}'",
		     value[0] == '1' ? "an interface" : "a file of WireGuard,",
		     m->c->mesh.interface, value[0] == '1' ? "" : ".conf");
	else if (!strcmp(word, "busy"))
		fail(f, "UDP port %.20s is in use there: choose another, as 'mesh: {port: 51821}'",
		     value);
	else if (!strcmp(word, "loose"))
		fail(f, "others can read %.200s: 'chmod 600 %s' there", value,
		     text_word(value, shown, sizeof shown));
	else if (!strcmp(word, "family"))
		*family |= value[0] == '6' ? MESH_IPV6 : MESH_IPV4;
	else if (!strcmp(word, "route") && mesh_check_route(m, i, value, &e) < 0)
		fail(f, "%s", e.msg);
	else if (!strcmp(word, "key") && mesh_set_key(m, i, value, &e) < 0)
		fail(f, "%s", e.msg);
	else if (!strcmp(word, "key"))
		snprintf(f->key, sizeof f->key, "%.44s", value);
}

static void read_facts(struct mesh_run *r, size_t i, char *text)
{
	int family = 0;
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		char *value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = 0;
		read_fact(r, i, line, value, &family);
	}
	if (family && r->m->m[i].c->family == FAMILY_ANY)
		r->m->m[i].family = family;
}

int mesh_run_look(struct mesh_run *r, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(r->m->n, &b, e));
	for (size_t i = 0; i < r->m->n; i++)
		if (!r->fact[i].left_out)
			mesh_sh_look(mesh_run_text(r, &b, i, mesh_sh_root, 60), r->m, !r->show);
	int rc = mesh_run_texts(r, &b, e);
	for (size_t k = 0; k < b.n && rc >= 0; k++)
		if (!r->fact[b.of[k]].failed)
			read_facts(r, b.of[k], b.call[k].out.p);
	ssh_batch_close(&b);
	return rc;
}

struct buf *mesh_run_text(struct mesh_run *r, struct ssh_batch *b, size_t i, const char *command,
			  double limit)
{
	const struct mesh_machine *x = &r->m->m[i];
	return ssh_batch_add(b, i, x->here ? NULL : x->ssh, command, limit);
}

int mesh_run_texts(struct mesh_run *r, struct ssh_batch *b, struct err *e)
{
	TRY(ssh_batch_run(b, r->stop, e));
	for (size_t k = 0; k < b->n; k++) {
		struct mesh_fact *f = &r->fact[b->of[k]];
		f->failed |= ssh_batch_failed(b, k, f->text);
	}
	return 0;
}

/* ---- --apply and --down --------------------------------------------------------------------- */

static void show(struct mesh_run *r, struct ssh_batch *b)
{
	for (size_t k = 0; k < b->n; k++) {
		const struct mesh_machine *x = &r->m->m[b->of[k]];
		r->show(r->ctx, x->id, x->ssh, b->text[k].p);
		b->call[k].status = 0;
	}
}

/* Runs or shows the texts; `say` turns the first word of an answer into a line. */
static int run_all(struct mesh_run *r, struct ssh_batch *b, const char *(*say)(const char *word),
		   struct err *e)
{
	if (r->show) {
		show(r, b);
		return 0;
	}
	TRY(mesh_run_texts(r, b, e));
	for (size_t k = 0; k < b->n; k++) {
		struct mesh_fact *f = &r->fact[b->of[k]];
		char word[16] = "";
		if (f->failed || sscanf(b->call[k].out.p, "%15s", word) != 1)
			continue;
		snprintf(f->text, sizeof f->text, "%s", say(word));
	}
	return 0;
}

static const char *applied(const char *word)
{
	return !strcmp(word, "same") ? "is up, nothing has changed"
	       : !strcmp(word, "changed")
		       ? "is up, other peers now (wg syncconf; its links went on)"
		       : "is up now (wg-quick up)";
}

static const char *ended(const char *word)
{
	return !strcmp(word, "none") ? "was not up" : "is down (wg-quick down); its key stays";
}

int mesh_run_apply(struct mesh_run *r, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(r->m->n, &b, e));
	for (size_t i = 0; i < r->m->n; i++)
		if (!r->fact[i].left_out && !r->fact[i].failed)
			mesh_sh_apply(mesh_run_text(r, &b, i, mesh_sh_root, 120), r->m, i,
				      r->fact[i].way);
	int rc = run_all(r, &b, applied, e);
	ssh_batch_close(&b);
	return rc;
}

int mesh_run_down(struct mesh_run *r, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(r->m->n, &b, e));
	for (size_t i = 0; i < r->m->n; i++)
		if (!r->fact[i].left_out)
			mesh_sh_down(mesh_run_text(r, &b, i, mesh_sh_root, 60), r->m);
	int rc = run_all(r, &b, ended, e);
	ssh_batch_close(&b);
	return rc;
}
