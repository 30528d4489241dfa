/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_check.c - mesh_run_check() of mesh_run.h: handshakes, round trips, the largest packet and
 * the rate of each pair, and the most likely cause of what does not work. */
#include "mesh/mesh_run.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "mesh/mesh_sh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *address(const struct mesh *m, size_t i)
{
	return m->m[i].ip[0][0] ? m->m[i].ip[0] : m->m[i].ip[1];
}

static size_t by_address(const struct mesh *m, const char *ip)
{
	size_t i = 0;
	while (i < m->n && strcmp(address(m, i), ip))
		i++;
	return i;
}

/* How WireGuard is made there, and which addresses the machine has now. */
static void describe(struct mesh_fact *f)
{
	static const char *const family[] = { "no address", "IPv4", "IPv6", "IPv4 and IPv6" };
	const bool kernel = !strcmp(f->way, "kernel");
	snprintf(f->text, sizeof f->text, "WireGuard of %s%s; %s", kernel ? "the " : "",
		 f->way[0] ? f->way : "an unknown program", family[f->family & 3]);
}

/* The answers of a machine. known_p[n]: it has this peer. */
static void read_answers(const struct mesh *m, char *text, struct mesh_fact *f,
			 struct mesh_way *way, bool *known_p, double *shake_p)
{
	double now = 0;
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		char word[64], more[32], size[32];
		double at;
		if (sscanf(line, "by %31s", word) == 1) {
			snprintf(f->way, sizeof f->way, "%.31s", word);
		} else if (!strncmp(line, "family ", 7)) {
			f->family |= line[7] == '6' ? MESH_IPV6 : MESH_IPV4;
		} else if (sscanf(line, "now %lf", &at) == 1) {
			now = at;
		} else if (sscanf(line, "peer %63s %lf", word, &at) == 2) {
			for (size_t k = 0; k < m->n; k++)
				if (!strcmp(m->m[k].key, word)) {
					known_p[k] = true;
					/* a handshake may be younger than `now` */
					shake_p[k] = at <= 0 ? -1 : now > at ? now - at : 0;
				}
		} else if (sscanf(line, "way %63s %31s %31s", word, more, size) == 3) {
			size_t b = by_address(m, word);
			if (b < m->n) {
				way[b].ms = strtod(more, NULL);
				way[b].mtu = strtol(size, NULL, 10);
			}
		}
	}
}

/* An endpoint that is a number of a family which the machine does not have. */
static bool wrong_family(const char *at, int family)
{
	const bool v6 = at[0] == '[', v4 = at[strspn(at, "0123456789.")] == ':';
	return family && ((v6 && !(family & MESH_IPV6)) || (v4 && !(family & MESH_IPV4)));
}

static void explain(const struct mesh *m, size_t a, size_t b, int family, bool known, double shake,
		    struct mesh_way *w)
{
	const int h = mesh_through(m, a, b);
	const char *at = h < 0 ? mesh_endpoint(m, a, b) : "", *interface = m->c->mesh.interface;
	w->works = w->ms > 0;
	if (w->works && w->mtu && w->mtu < m->c->mesh.mtu)
		snprintf(w->why, sizeof w->why,
			 "packets above %ld bytes do not get through: 'mesh: {mtu: %ld}'", w->mtu,
			 w->mtu);
	if (w->works)
		return;
	if (!known)
		snprintf(w->why, sizeof w->why,
			 "'%s' does not have '%s' in its file: 'heteroshard mesh --apply'",
			 m->m[a].id, m->m[h < 0 ? b : (size_t)h].id);
	else if (wrong_family(mesh_endpoint(m, a, h < 0 ? b : (size_t)h), family))
		snprintf(w->why, sizeof w->why,
			 "%.200s is an address of IPv%d, and '%s' has none of that family now: "
			 "'heteroshard mesh --apply' takes another endpoint",
			 mesh_endpoint(m, a, h < 0 ? b : (size_t)h), family == MESH_IPV4 ? 6 : 4,
			 m->m[a].id);
	else if (shake < 0 && h >= 0)
		snprintf(w->why, sizeof w->why, "no handshake with the hub '%s' yet", m->m[h].id);
	else if (shake < 0 && at[0])
		snprintf(w->why, sizeof w->why,
			 "no handshake: nothing answers at %.200s: is '%s' up there, and does its "
			 "firewall or router let UDP through?",
			 at, interface);
	else if (shake < 0)
		snprintf(
			w->why, sizeof w->why,
			"no handshake: '%s' has not called: is '%s' up there, and does its network "
			"let UDP out to %.200s?",
			m->m[b].id, interface, mesh_endpoint(m, b, a));
	else if (h >= 0)
		snprintf(w->why, sizeof w->why,
			 "the hub '%s' does not pass it on, or '%s' is not joined to it: look at "
			 "the "
			 "hub's line for '%s' and at its firewall (forward from and to %s)",
			 m->m[h].id, m->m[b].id, m->m[b].id, interface);
	else if (shake > 180)
		snprintf(
			w->why, sizeof w->why,
			"the last handshake was %.0f s ago: the machine is off, or its address has "
			"changed and '%s' cannot hear of it",
			shake, m->m[a].id);
	else
		snprintf(w->why, sizeof w->why,
			 "handshakes work and packets do not come back: does a firewall of '%s' "
			 "drop "
			 "what comes from %s?",
			 m->m[b].id, interface);
}

static int ask(struct mesh_run *r, struct mesh_way *way, struct err *e)
{
	const struct mesh *m = r->m;
	struct ssh_batch b;
	bool *known = mem_array(m->n + 1, sizeof *known);
	double *shake = mem_array(m->n + 1, sizeof *shake);
	int rc = known && shake ? ssh_batch_open(r->m->n, &b, e) : err_nomem(e, m->n, "mesh");
	if (rc < 0) {
		mem_free(known);
		mem_free(shake);
		return rc;
	}
	for (size_t i = 0; i < m->n; i++)
		if (!r->fact[i].left_out)
			mesh_sh_check(mesh_run_text(r, &b, i, mesh_sh_root, 120), m, i);
	rc = mesh_run_texts(r, &b, e);
	for (size_t k = 0; k < b.n && rc >= 0; k++) {
		const size_t a = b.of[k];
		struct mesh_fact *f = &r->fact[a];
		const char *said = b.call[k].out.p;
		if (f->failed)
			continue;
		f->failed = !strncmp(said, "none ", 5) || strstr(said, "\nnone ping");
		if (f->failed) {
			snprintf(f->text, sizeof f->text, "%s",
				 strstr(said, "none ping")
					 ? "ping is not there: install iputils-ping"
					 : "the mesh is not up there: 'heteroshard mesh --apply'");
			continue;
		}
		for (size_t i = 0; i < m->n; i++) {
			known[i] = false;
			shake[i] = -1;
		}
		read_answers(m, b.call[k].out.p, f, way + a * m->n, known, shake);
		describe(f);
		for (size_t i = 0; i < m->n; i++) {
			const int h = mesh_through(m, a, i);
			const size_t by = h < 0 ? i : (size_t)h;
			struct mesh_way *w = &way[a * m->n + i];
			if (i == a)
				continue;
			w->asked = true;
			w->handshake = shake[by];
			explain(m, a, i, f->family, known[by], shake[by], w);
		}
	}
	ssh_batch_close(&b);
	mem_free(known);
	mem_free(shake);
	return rc;
}

/* ---- the rate over a link of training ------------------------------------------------------- */

struct place {
	char dir[200], key[100];
};

static const char *program_of(const struct mesh *m, size_t i)
{
	return m->m[i].here ? os_self_exe() : NULL;
}

static int make_keys(struct mesh_run *r, struct place *p, struct err *e)
{
	struct ssh_batch b;
	TRY(ssh_batch_open(r->m->n, &b, e));
	for (size_t i = 0; i < r->m->n; i++)
		if (!r->fact[i].left_out && !r->fact[i].failed)
			mesh_sh_bench_key(mesh_run_text(r, &b, i, "exec sh", 30),
					  program_of(r->m, i));
	int rc = mesh_run_texts(r, &b, e);
	for (size_t k = 0; k < b.n && rc >= 0; k++)
		if (!r->fact[b.of[k]].failed && sscanf(b.call[k].out.p, "dir %199s key %99s",
						       p[b.of[k]].dir, p[b.of[k]].key) != 2)
			p[b.of[k]].key[0] = 0;
	ssh_batch_close(&b);
	return rc;
}

/* The largest rate of a link with keys. */
static double read_rate(char *text)
{
	double best = 0;
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		json_t *o = NULL;
		const char *link = "";
		double v = 0;
		struct err e = { 0 };
		if (json_parse_text_in(line, strlen(line), "bench", JSON_MEMORY_LINE, &o, &e) < 0)
			continue;
		if (json_opt_str(o, "bench", "link", &link, &e) >= 0 &&
		    (!strcmp(link, "tls") || !strcmp(link, "mesh")) &&
		    json_opt_num(o, "bench", "mbyte_per_s", 0, 1e9, &v, &e) >= 0 && v > best)
			best = v;
		json_decref(o);
	}
	return best;
}

static int measure(struct mesh_run *r, size_t a, size_t b, const struct place *p, unsigned port,
		   struct mesh_way *way, struct err *e)
{
	const struct mesh *m = r->m;
	struct ssh_batch t;
	TRY(ssh_batch_open(r->m->n, &t, e));
	mesh_sh_bench(mesh_run_text(r, &t, b, "exec sh", 60), program_of(m, b), p[b].dir, p[a].key,
		      address(m, b), port, true);
	mesh_sh_bench(mesh_run_text(r, &t, a, "exec sh", 60), program_of(m, a), p[a].dir, p[b].key,
		      address(m, b), port, false);
	int rc = mesh_run_texts(r, &t, e);
	struct mesh_way *w = &way[a * m->n + b];
	if (rc >= 0)
		w->rate = way[b * m->n + a].rate = read_rate(t.call[1].out.p);
	for (size_t k = 0; k < 2 && rc >= 0; k++)
		if (!w->rate && t.call[k].status && !w->why[0])
			snprintf(w->why, sizeof w->why, "the rate was not measured: %.400s",
				 t.call[k].why);
	r->fact[a].failed = r->fact[b].failed = false;
	ssh_batch_close(&t);
	return rc;
}

int mesh_run_check(struct mesh_run *r, bool rate, unsigned port, struct mesh_way *way_p,
		   struct err *e)
{
	const size_t n = r->m->n;
	struct ssh_batch b;
	memset(way_p, 0, n * n * sizeof *way_p);
	TRY(ask(r, way_p, e));
	struct place *p = rate ? mem_array(n + 1, sizeof *p) : NULL;
	if (!p)
		return rate ? err_nomem(e, n * sizeof *p, "mesh") : 0;
	int rc = make_keys(r, p, e);
	for (size_t i = 0; i < n && rc >= 0; i++)
		for (size_t k = i + 1; k < n && rc >= 0; k++)
			if (p[i].key[0] && p[k].key[0] && way_p[i * n + k].works &&
			    !(r->stop && *r->stop))
				rc = measure(r, i, k, p, port, way_p, e);
	if (rc >= 0)
		rc = ssh_batch_open(r->m->n, &b, e);
	if (rc >= 0) {
		for (size_t i = 0; i < n; i++)
			if (p[i].key[0])
				mesh_sh_bench_end(mesh_run_text(r, &b, i, "exec sh", 30), p[i].dir);
		rc = mesh_run_texts(r, &b, e);
		ssh_batch_close(&b);
	}
	mem_free(p);
	return rc;
}
