/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_part.c - see mesh_part.h. A text becomes a configuration, and that a mesh. */
#include "mesh/mesh_part.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "mesh/mesh_run.h"
#include "mesh/mesh_sh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char key_file[] = "/etc/wireguard/heteroshard.key";

void mesh_part_write(const struct mesh *m, struct buf *out)
{
	const struct config_mesh *c = &m->c->mesh;
	buf_addf(out, "interface %s\nport %lld\nmtu %lld\nkeepalive %d\n", c->interface,
		 (long long)c->port, (long long)c->mtu, m->keepalive);
	if (m->way_in >= 0)
		buf_addf(out, "hub %s\n", m->m[m->way_in].id);
	if (m->c->encrypt == ENCRYPT_MESH)
		buf_adds(out, "encrypt mesh\n");
	for (int v6 = 0; v6 < 2; v6++)
		if (m->range[v6].given)
			buf_addf(out, "range %s\n", m->range[v6].text);
	for (size_t i = 0; i < m->n; i++) {
		const struct mesh_machine *x = &m->m[i];
		static const char *const family[] = { "both", "ipv4", "ipv6", "both" };
		buf_addf(out, "machine %s %s %s %s %s %s", x->id, x->key[0] ? x->key : "-",
			 family[x->family & 3], x->invited ? "invited" : "listed",
			 x->ip[0][0] ? x->ip[0] : "-", x->ip[1][0] ? x->ip[1] : "-");
		for (size_t k = 0; k < x->c->endpoint.n; k++)
			buf_addf(out, " %s", x->c->endpoint.item[k]);
		buf_addc(out, '\n');
	}
}

/* ---- reading -------------------------------------------------------------------------------- */

enum { LISTS = 2 + 8, FIRST = 6 }; /* most items of a machine's lists; words before endpoints */

static int wrong(const char *line, struct err *e)
{
	return err_set(e, ERR_PROTOCOL, "its place in the mesh: '%.60s' is not understood", line);
}

/* The words behind "machine". */
static int read_machine(struct mesh_part *p, char **word, size_t n, const char *name,
			const char *wg, struct err *e)
{
	static const char *const family[] = { "both", "ipv4", "ipv6" };
	static const int value[] = { FAMILY_BOTH, FAMILY_IPV4, FAMILY_IPV6 };
	const size_t at = p->c.nworkers + (p->c.coordinator.hostname != NULL);
	struct config_meshed *d = &p->c.coordinator.meshed;
	const char **item = p->item + 2 + at * LISTS;
	size_t f = 0;
	if (n < FIRST || n > FIRST + 8 || at == MESH_MOST)
		return wrong(n ? word[0] : "machine", e);
	if (!p->c.coordinator.hostname) {
		p->c.coordinator.hostname = word[0];
	} else {
		struct config_worker *w = &p->worker[p->c.nworkers++];
		w->id = w->hostname = word[0];
		w->invited = !strcmp(word[3], "invited");
		d = &w->meshed;
	}
	d->wg_public_key = strcmp(word[0], name) ? word[1] : wg;
	while (f < ARRAY_LEN(family) && strcmp(family[f], word[2]))
		f++;
	if (f == ARRAY_LEN(family))
		return wrong(word[2], e);
	/* its own is what is found here */
	d->family = strcmp(word[0], name) ? value[f] : FAMILY_ANY;
	d->mesh_ip.item = item;
	for (size_t k = 4; k < FIRST; k++)
		if (strcmp(word[k], "-"))
			item[d->mesh_ip.n++] = word[k];
	d->endpoint.item = item + 2;
	for (size_t k = FIRST; k < n; k++)
		d->endpoint.item[d->endpoint.n++] = word[k];
	return 0;
}

static int read_line(struct mesh_part *p, char *line, const char *name, const char *wg,
		     struct err *e)
{
	char *word[1 + FIRST + 8], *save = NULL;
	size_t n = 0;
	struct config_mesh *c = &p->c.mesh;
	for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (n == ARRAY_LEN(word))
			return wrong(w, e);
		word[n++] = w;
	}
	if (n > 1 && !strcmp(word[0], "machine"))
		return read_machine(p, word + 1, n - 1, name, wg, e);
	if (n != 2)
		return wrong(n ? word[0] : "", e);
	const long v = strtol(word[1], NULL, 10);
	if (!strcmp(word[0], "interface"))
		c->interface = word[1];
	else if (!strcmp(word[0], "hub"))
		c->hub = word[1];
	else if (!strcmp(word[0], "encrypt"))
		p->c.encrypt = ENCRYPT_MESH;
	else if (!strcmp(word[0], "range") && c->range.n < 2)
		p->item[c->range.n++] = word[1];
	else if (!strcmp(word[0], "port") && v > 0 && v < 65536)
		c->port = v;
	else if (!strcmp(word[0], "mtu") && v >= 1280 && v <= 9000)
		c->mtu = v;
	else if (!strcmp(word[0], "keepalive") && v > 0 && v < 3600)
		p->c.peer_timeout = 3.0 * (double)v;
	else
		return wrong(word[0], e);
	return 0;
}

/* Opens it as seen from here. */
static int open_here(struct mesh_part *p, const char *name, struct err *e)
{
	bool found = false;
	p->c.workers = p->worker;
	TRY(mesh_open(&p->c, &p->m, e));
	for (size_t i = 0; i < p->m.n; i++) {
		struct mesh_machine *x = &p->m.m[i];
		x->here = x->invited && !strcmp(x->id, name);
		found |= x->here;
	}
	return found ? 0
		     : err_set(e, ERR_PROTOCOL, "its place in the mesh does not name '%.60s'",
			       name);
}

int mesh_part_read(const char *text, const char *name, const char *wg, struct mesh_part *p_p,
		   struct err *e)
{
	struct mesh_part *p = p_p;
	char *save = NULL;
	*p = (struct mesh_part){ .c = { .path = "the invitation" } };
	/* nothing is read from the folder, and nothing written into it */
	p->c.mesh = (struct config_mesh){ .given = true, .key_file = key_file, .dir = "/dev/null" };
	p->c.mesh.interface = "";
	p->worker = mem_array(MESH_MOST, sizeof *p->worker);
	p->item = mem_array(2 + (MESH_MOST + 1) * LISTS, sizeof *p->item);
	p->text = mem_strdup(text);
	p->c.mesh.range.item = p->item;
	int rc = p->worker && p->item && p->text ? 0
						 : err_nomem(e, strlen(text), "a place in a mesh");
	for (char *line = rc >= 0 ? strtok_r(p->text, "\n", &save) : NULL; line && rc >= 0;
	     line = strtok_r(NULL, "\n", &save))
		rc = read_line(p, line, name, wg, e);
	if (rc >= 0)
		rc = open_here(p, name, e);
	if (rc < 0)
		mesh_part_close(p);
	return rc;
}

void mesh_part_close(struct mesh_part *p)
{
	mesh_close(&p->m);
	mem_free(p->worker);
	mem_free(p->item);
	mem_free(p->text);
	*p = (struct mesh_part){ 0 };
}

/* ---- on the new machine --------------------------------------------------------------------- */

int mesh_part_key(const volatile sig_atomic_t *stop, char wg_p[MESH_KEY], unsigned *family_p,
		  struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(1, &b, e));
	struct buf *s = ssh_batch_add(&b, 0, NULL, mesh_sh_root, 60);
	buf_adds(s, "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"
		    "for p in ip wg wg-quick; do\n"
		    "	command -v $p >/dev/null || {\n"
		    "		echo \"$p is not there: install wireguard-tools\" >&2\n"
		    "		exit 1\n"
		    "	}\n"
		    "done\nfor f in 4 6; do\n"
		    "	[ -z \"$(ip -$f -o addr show scope global 2>/dev/null)\" ] ||\n"
		    "		echo \"ipv$f\"\n"
		    "done\nexec ");
	ssh_quote(s, os_self_exe());
	buf_addf(s, " mesh key %s\n", key_file);
	int rc = ssh_batch_run(&b, stop, e);
	if (rc >= 0 && b.call[0].status)
		rc = err_set(e, ERR_USAGE,
			     "this invitation carries a place in a mesh, which this machine cannot "
			     "take: %s (or ask for an invitation without --mesh)",
			     b.call[0].why);
	const char *said = rc >= 0 && b.call[0].out.n ? b.call[0].out.p : "";
	*family_p = 0;
	for (; !strncmp(said, "ipv", 3); said += 5)
		*family_p |= said[3] == '4' ? MESH_IPV4 : MESH_IPV6;
	if (rc >= 0 && !*family_p)
		rc = err_set(e, ERR_USAGE, "this machine has no address in any network");
	if (rc >= 0 && (sscanf(said, "%44s", wg_p) != 1 || !wg_key_ok(wg_p)))
		rc = err_set(e, ERR_INTERNAL, "'mesh key' printed no key");
	ssh_batch_close(&b);
	return rc;
}

int mesh_part_up(struct mesh_part *p, const volatile sig_atomic_t *stop, struct err *e)
{
	struct mesh_run r;
	size_t self = 0;
	TRY(mesh_run_open(&p->m, stop, &r, e));
	while (!p->m.m[self].here)
		self++;
	int rc = mesh_run_look(&r, e);
	if (rc >= 0 && !r.fact[self].failed)
		rc = mesh_settle(&p->m, e);
	if (rc >= 0 && !r.fact[self].failed)
		rc = mesh_run_apply(&r, e);
	if (rc >= 0 && r.fact[self].failed)
		rc = err_set(e, ERR_USAGE, "the mesh does not come up here: %s", r.fact[self].text);
	mesh_run_close(&r);
	return rc;
}
