/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - see mesh.h: machines, addresses, ways. The texts are in mesh_text.c. */
#include "mesh/mesh.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- ranges --------------------------------------------------------------------------------- */

static int read_ranges(struct mesh *m, struct err *e)
{
	const struct opt_list *l = &m->c->mesh.range;
	for (size_t i = 0; i < l->n; i++) {
		struct mesh_range x = { .given = true };
		unsigned char host[16];
		snprintf(x.text, sizeof x.text, "%s", l->item[i]);
		if (!strchr(l->item[i], '/') || !net_range_read(l->item[i], &x.r))
			return err_set(e, ERR_USAGE,
				       "%s: mesh: range '%.60s': an address and a length, as "
				       "10.77.0.0/24 or fd77::/64, was expected",
				       m->c->path, l->item[i]);
		memcpy(host, x.r.base, 16);
		for (int b = x.r.bits; b < (x.r.v6 ? 128 : 32); b++)
			host[b / 8] &= (unsigned char)~(0x80 >> b % 8);
		if (memcmp(host, x.r.base, 16) != 0) {
			char text[64];
			inet_ntop(x.r.v6 ? AF_INET6 : AF_INET, host, text, sizeof text);
			return err_set(e, ERR_USAGE,
				       "%s: mesh: range '%.60s' is an address within a range: "
				       "write %.60s/%d",
				       m->c->path, l->item[i], text, x.r.bits);
		}
		if (m->range[x.r.v6].given)
			return err_set(e, ERR_USAGE,
				       "%s: mesh: two IPv%d ranges: give one, and one of the other "
				       "family if you like",
				       m->c->path, x.r.v6 ? 6 : 4);
		m->range[x.r.v6] = x;
	}
	return l->n ? 0
		    : err_set(e, ERR_USAGE, "%s: mesh: 'range' is empty: 10.77.0.0/24, for example",
			      m->c->path);
}

/* Addresses of a range that machines may have. */
static unsigned long capacity(const struct mesh_range *r, int v6)
{
	int rest = (v6 ? 128 : 32) - r->r.bits;
	return rest > 20 ? 1ul << 20 : rest < 2 ? 0 : (1ul << rest) - 2;
}

/* Address k of the range, k from 1. */
static void address_at(const struct mesh_range *r, int v6, unsigned long k, char out[MESH_IP])
{
	unsigned char a[16];
	memcpy(a, r->r.base, 16);
	for (int i = v6 ? 15 : 3; k; i--, k >>= 8)
		a[i] |= (unsigned char)(k & 255);
	inet_ntop(v6 ? AF_INET6 : AF_INET, a, out, MESH_IP);
}

static bool in_range(const struct mesh_range *r, int v6, const char *ip)
{
	return r->given && r->r.v6 == (v6 != 0) && net_range_has(&r->r, 1, ip);
}

int mesh_check_route(const struct mesh *m, size_t i, const char *route, struct err *e)
{
	struct net_range r;
	if (!net_range_read(route, &r) || !r.bits)
		return 0; /* "default" and the like: everything else is more exact */
	const struct mesh_range *own = &m->range[r.v6];
	if (!own->given || !net_range_meets(&own->r, &r))
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: mesh: range %.60s collides with the route %.60s of '%s': choose "
		       "another range",
		       m->c->path, own->text, route, m->m[i].id);
}

/* ---- machines ------------------------------------------------------------------------------- */

static int name_machine(const struct mesh *m, struct mesh_machine *x, const char *id, size_t n,
			struct err *e)
{
	bool ok = n > 0 && n < MESH_ID && isalnum((unsigned char)id[0]);
	for (size_t k = 0; k < n && ok; k++)
		ok = isalnum((unsigned char)id[k]) || strchr("._-", id[k]);
	if (!ok)
		return err_set(e, ERR_USAGE,
			       "%s: mesh: '%.60s' cannot name a file of wg-quick: at most %d "
			       "letters, digits, '.', '-' and '_'",
			       m->c->path, id, MESH_ID - 1);
	snprintf(x->id, sizeof x->id, "%.*s", (int)n, id);
	for (const struct mesh_machine *o = m->m; o < x; o++)
		if (!strcasecmp(o->id, x->id))
			return err_set(e, ERR_USAGE,
				       "%s: mesh: two machines would be called '%s': give one of "
				       "them another id or hostname",
				       m->c->path, x->id);
	return 0;
}

static bool same(const char *a, const char *b) { return a && b && *a && !strcasecmp(a, b); }

/* Several workers of one machine are one machine here. */
static bool is_known(const struct config *c, size_t i)
{
	const struct config_worker *w = &c->workers[i];
	for (size_t k = 0; k < i; k++) {
		const struct config_worker *o = &c->workers[k];
		if (same(o->ssh, w->ssh) || same(o->ip, w->ip) ||
		    same(o->meshed.wg_public_key, w->meshed.wg_public_key) ||
		    (!w->invited && !w->ip && same(o->hostname, w->hostname)))
			return true;
	}
	return same(w->ip, c->coordinator.ip) ||
	       (!w->invited && !w->ip && same(w->hostname, c->coordinator.hostname));
}

static int take_config(struct mesh *m, struct mesh_machine *x, const struct config_meshed *c,
		       struct err *e)
{
	static const int family[] = { MESH_IPV4 | MESH_IPV6, MESH_IPV4, MESH_IPV6,
				      MESH_IPV4 | MESH_IPV6 };
	x->c = c;
	x->family = family[(unsigned)c->family < 4 ? c->family : 0];
	x->awaited = x->invited && c->wg_public_key && !c->wg_public_key[0];
	if (!x->awaited && c->wg_public_key && !wg_key_ok(c->wg_public_key))
		return err_set(e, ERR_USAGE,
			       "%s: mesh: wg_public_key of '%s' is not one: 44 characters, as "
			       "'heteroshard mesh key' prints them there",
			       m->c->path, x->id);
	snprintf(x->key, sizeof x->key, "%s", c->wg_public_key ? c->wg_public_key : "");
	for (size_t i = 0; i < c->mesh_ip.n; i++) {
		int v6 = strchr(c->mesh_ip.item[i], ':') != NULL;
		if (!in_range(&m->range[v6], v6, c->mesh_ip.item[i]))
			return err_set(e, ERR_USAGE,
				       "%s: mesh: mesh_ip '%.60s' of '%s' is not in the range",
				       m->c->path, c->mesh_ip.item[i], x->id);
		snprintf(x->ip[v6], MESH_IP, "%s", c->mesh_ip.item[i]);
	}
	return 0;
}

static int add_machines(struct mesh *m, struct err *e)
{
	const struct config *c = m->c;
	const char *host = c->coordinator.hostname && c->coordinator.hostname[0]
				   ? c->coordinator.hostname
				   : "coordinator";
	struct mesh_machine *x = &m->m[m->n++];
	x->here = true;
	TRY(name_machine(m, x, host, strcspn(host, "."), e));
	TRY(take_config(m, x, &c->coordinator.meshed, e));
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		size_t n = strlen(w->id);
		const bool invited = w->invited && !w->ssh;
		if (is_known(c, i) || (invited && !w->meshed.wg_public_key))
			continue; /* an invited one without a key is not in the mesh */
		if (m->n == MESH_MOST)
			return err_set(e, ERR_USAGE, "%s: mesh: more than %d machines", c->path,
				       MESH_MOST);
		/* the first of several cards stands for its machine */
		if (n > 2 && !strcmp(w->id + n - 2, ".0"))
			n -= 2;
		x = &m->m[m->n++];
		x->ssh = w->ssh && w->ssh[0] ? w->ssh : NULL;
		x->invited = invited;
		TRY(name_machine(m, x, w->id, n, e));
		TRY(take_config(m, x, &w->meshed, e));
	}
	return 0;
}

/* ---- what DIR remembers --------------------------------------------------------------------- */

typedef void (*pair_fn)(struct mesh *m, struct mesh_machine *x, const char *value,
			const char *more);

static void is_at(struct mesh *m, struct mesh_machine *x, const char *ip, const char *more)
{
	(void)more;
	int v6 = strchr(ip, ':') != NULL;
	if (!x->ip[v6][0] && in_range(&m->range[v6], v6, ip) && strlen(ip) < MESH_IP)
		snprintf(x->ip[v6], MESH_IP, "%s", ip);
}

static void has_key(struct mesh *m, struct mesh_machine *x, const char *key, const char *more)
{
	(void)m;
	if (x->c->family == FAMILY_ANY && !strcmp(more, "ipv4"))
		x->family = MESH_IPV4;
	if (x->c->family == FAMILY_ANY && !strcmp(more, "ipv6"))
		x->family = MESH_IPV6;
	if (!x->key[0] && wg_key_ok(key))
		snprintf(x->key, sizeof x->key, "%s", key);
}

/* Lines "VALUE NAME [MORE]" of a file in DIR; a missing file is an empty one. */
static int remember(struct mesh *m, const char *file, const char *suffix, pair_fn fn, struct err *e)
{
	char path[PATH_MAX], value[64], name[64], more[64];
	struct buf b = BUF_INIT;
	snprintf(path, sizeof path, "%.3900s/%s", m->c->mesh.dir, file);
	if (access(path, F_OK) < 0)
		return 0;
	TRY(buf_read_file(&b, path, 1 << 20, e));
	for (char *line, *rest = b.p; (line = buf_line(&rest));) {
		more[0] = 0;
		if (*line == '#' || sscanf(line, "%63s %63s %63s", value, name, more) < 2)
			continue;
		size_t n = strlen(name), k = strlen(suffix);
		if (n > k && !strcmp(name + n - k, suffix))
			name[n - k] = 0;
		for (size_t i = 0; i < m->n; i++)
			if (!strcmp(m->m[i].id, name))
				fn(m, &m->m[i], value, more);
	}
	buf_release(&b);
	return 0;
}

static bool interface_ok(const char *s)
{
	size_t n = strlen(s);
	bool ok = n > 0 && n < 16 && isalnum((unsigned char)s[0]);
	for (size_t i = 0; i < n && ok; i++)
		ok = isalnum((unsigned char)s[i]) || strchr("_.-", s[i]);
	return ok;
}

static int check_words(const struct config *c, struct err *e)
{
	if (!c->mesh.given)
		return err_set(e, ERR_USAGE,
			       "%s: there is no 'mesh': add 'mesh: {range: 10.77.0.0/24}'",
			       c->path);
	if (!interface_ok(c->mesh.interface))
		return err_set(e, ERR_USAGE,
			       "%s: mesh: interface '%.60s': at most 15 letters, digits, '.', '-' "
			       "and '_'",
			       c->path, c->mesh.interface);
	if (c->mesh.key_file[0] != '/' || strpbrk(c->mesh.key_file, " \t\n'\"\\$`;&|<>()#%"))
		return err_set(e, ERR_USAGE,
			       "%s: mesh: key_file '%.100s': a path from '/' on, without blanks or "
			       "signs of the shell",
			       c->path, c->mesh.key_file);
	if (!c->mesh.dir || !c->mesh.dir[0])
		return err_set(e, ERR_USAGE, "%s: mesh: 'dir' is empty", c->path);
	return 0;
}

int mesh_open(const struct config *c, struct mesh *m_p, struct err *e)
{
	struct mesh m = { .c = c, .way_in = -1 };
	TRY(check_words(c, e));
	size_t most = c->nworkers + 1 < MESH_MOST ? c->nworkers + 1 : MESH_MOST;
	m.m = mem_array(most, sizeof *m.m);
	m.endpoint = mem_array(most * most, sizeof *m.endpoint);
	m.through = mem_array(most * most, sizeof *m.through);
	/* at most a third of peer_timeout; 25 s keep the mappings of most routers */
	m.keepalive = c->peer_timeout / 3 < 1    ? 1
		      : c->peer_timeout / 3 > 25 ? 25
						 : (int)(c->peer_timeout / 3);
	int rc = m.m && m.endpoint && m.through ? 0 : err_nomem(e, most * most * MESH_END, "mesh");
	if (rc >= 0)
		rc = read_ranges(&m, e);
	if (rc >= 0)
		rc = add_machines(&m, e);
	if (rc >= 0)
		rc = remember(&m, "hosts", ".mesh", is_at, e);
	if (rc >= 0)
		rc = remember(&m, "keys", "", has_key, e);
	if (rc < 0)
		mesh_close(&m);
	else
		*m_p = m;
	return rc;
}

void mesh_close(struct mesh *m)
{
	mem_free(m->m);
	mem_free(m->endpoint);
	mem_free(m->through);
	*m = (struct mesh){ 0 };
}

int mesh_set_key(struct mesh *m, size_t i, const char *key, struct err *e)
{
	struct mesh_machine *x = &m->m[i];
	if (!wg_key_ok(key))
		return err_set(e, ERR_INPUT, "'%s' answered with no public key", x->id);
	if (x->c->wg_public_key && strcmp(x->c->wg_public_key, key))
		return err_set(e, ERR_USAGE,
			       "%s: mesh: wg_public_key of '%s' is not that machine's, which is "
			       "%.44s: correct it",
			       m->c->path, x->id, key);
	snprintf(x->key, sizeof x->key, "%s", key);
	return 0;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool is_taken(const struct mesh *m, int v6, const char *ip)
{
	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->m[i].ip[v6], ip))
			return true;
	return false;
}

static int give_addresses(struct mesh *m, int v6, struct err *e)
{
	const struct mesh_range *r = &m->range[v6];
	unsigned long next = 1, most = r->given ? capacity(r, v6) : 0;
	if (!r->given)
		return 0;
	if (most < m->n)
		return err_set(e, ERR_USAGE,
			       "%s: mesh: range %.60s is too small: %lu addresses for %zu machines",
			       m->c->path, r->text, most, m->n);
	for (size_t i = 0; i < m->n; i++)
		for (size_t k = 0; k < i; k++)
			if (m->m[i].ip[v6][0] && !strcmp(m->m[i].ip[v6], m->m[k].ip[v6]))
				return err_set(e, ERR_USAGE,
					       "%s: mesh: '%s' and '%s' have the same address %s "
					       "inside: correct mesh_ip, or remove %.200s/hosts",
					       m->c->path, m->m[k].id, m->m[i].id, m->m[i].ip[v6],
					       m->c->mesh.dir);
	for (size_t i = 0; i < m->n; i++)
		while (!m->m[i].ip[v6][0]) {
			char ip[MESH_IP];
			address_at(r, v6, next++, ip);
			if (!is_taken(m, v6, ip))
				snprintf(m->m[i].ip[v6], MESH_IP, "%s", ip);
		}
	return 0;
}

/* ---- ways ----------------------------------------------------------------------------------- */

/* An endpoint with its port, and the families by which it is reached. */
static int read_endpoint(const struct mesh *m, size_t i, const char *text, char out[MESH_END],
			 int *family_p, struct err *e)
{
	char host[NET_ADDRESS], full[NET_ADDRESS];
	unsigned port = 0;
	/* an IPv6 address without a port, in brackets or not */
	if (text[0] != '[' && strchr(text, ':') != strrchr(text, ':'))
		snprintf(full, sizeof full, "[%.100s]:0", text);
	else
		snprintf(full, sizeof full, "%.250s%s", text,
			 text[0] && text[strlen(text) - 1] == ']' ? ":0" : "");
	address_parts(full, host, &port);
	bool ok = host[0] && (address_is_number(host) || !strchr(host, ':'));
	for (const char *p = host; *p && ok; p++)
		ok = isalnum((unsigned char)*p) || strchr(".-:_", *p);
	if (!ok)
		return err_set(e, ERR_USAGE,
			       "%s: mesh: endpoint '%.100s' of '%s': HOST:PORT was expected",
			       m->c->path, text, m->m[i].id);
	for (int v6 = 0; v6 < 2; v6++)
		if (in_range(&m->range[v6], v6, host))
			return err_set(e, ERR_USAGE,
				       "%s: mesh: endpoint '%.100s' of '%s' is within the range "
				       "%.60s: choose another range",
				       m->c->path, text, m->m[i].id, m->range[v6].text);
	*family_p = !address_is_number(host) ? MESH_IPV4 | MESH_IPV6
		    : strchr(host, ':')      ? MESH_IPV6
					     : MESH_IPV4;
	snprintf(out, MESH_END, strchr(host, ':') ? "[%.200s]:%u" : "%.200s:%u", host,
		 port ? port : (unsigned)m->c->mesh.port);
	return 0;
}

static int find_endpoints(struct mesh *m, size_t to, struct err *e)
{
	const struct opt_list *l = &m->m[to].c->endpoint;
	for (size_t k = 0; k < l->n; k++) {
		char text[MESH_END];
		int family = 0;
		TRY(read_endpoint(m, to, l->item[k], text, &family, e));
		for (size_t from = 0; from < m->n; from++) {
			char *at = m->endpoint[from * m->n + to];
			if (from == to) { /* kept to be compared */
				if (!k)
					snprintf(at, MESH_END, "%s", text);
				continue;
			}
			if (!at[0] && (family & m->m[from].family))
				snprintf(at, MESH_END, "%s", text);
		}
	}
	for (size_t i = 0; i < to; i++)
		if (l->n && !strcmp(mesh_endpoint(m, i, i), mesh_endpoint(m, to, to)))
			return err_set(
				e, ERR_USAGE,
				"%s: mesh: '%s' and '%s' have the same endpoint %.200s: give "
				"each its own port",
				m->c->path, m->m[i].id, m->m[to].id, mesh_endpoint(m, to, to));
	return 0;
}

/* A machine that every other one is joined to, for the invited ones. */
static int find_way_in(struct mesh *m, int named, struct err *e)
{
	bool any = false;
	for (size_t i = 0; i < m->n; i++)
		any |= m->m[i].invited;
	m->way_in = -1;
	for (size_t h = 0; h < m->n && any && m->way_in < 0; h++) {
		bool all = (named < 0 || (size_t)named == h) && !m->m[h].invited;
		for (size_t k = 0; k < m->n && all; k++)
			all = k == h || mesh_direct(m, h, k);
		if (all)
			m->way_in = (int)h;
	}
	if (!any || m->way_in >= 0)
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: mesh: invited machines need one machine that all others reach: give "
		       "'%s' an 'endpoint' of every family",
		       m->c->path, m->m[named < 0 ? 0 : named].id);
}

static int find_hub(struct mesh *m, size_t a, size_t b, int named, struct err *e)
{
	if (m->m[a].invited || m->m[b].invited)
		named = m->way_in;
	for (size_t h = 0; h < m->n; h++) {
		if ((named >= 0 && (size_t)named != h) || h == a || h == b)
			continue;
		if (!mesh_direct(m, a, h) || !mesh_direct(m, b, h))
			continue;
		m->through[a * m->n + b] = m->through[b * m->n + a] = (int)h;
		return 0;
	}
	if (named >= 0)
		return err_set(e, ERR_USAGE,
			       "%s: mesh: neither of '%s' and '%s' has an endpoint that the other "
			       "reaches, and the hub '%s' is not joined to both: give one of the "
			       "three an 'endpoint' of the right family",
			       m->c->path, m->m[a].id, m->m[b].id, m->m[named].id);
	return err_set(e, ERR_USAGE,
		       "%s: mesh: neither of '%s' and '%s' has an endpoint that the other reaches, "
		       "and no machine is joined to both: give one of them 'endpoint', or add a "
		       "machine that has one as 'hub'",
		       m->c->path, m->m[a].id, m->m[b].id);
}

int mesh_settle(struct mesh *m, struct err *e)
{
	const char *hub = m->c->mesh.hub;
	int named = -1;
	for (size_t i = 0; i < m->n; i++) {
		if (hub && !strcmp(hub, m->m[i].id))
			named = (int)i;
		if (!m->m[i].key[0] && !m->m[i].awaited)
			return err_set(
				e, ERR_USAGE,
				"%s: mesh: '%s' has no wg_public_key: 'heteroshard mesh key' "
				"prints it there, or 'heteroshard mesh --apply' makes it by "
				"ssh",
				m->c->path, m->m[i].id);
		for (size_t k = 0; k < i; k++)
			if (m->m[i].key[0] && !strcmp(m->m[i].key, m->m[k].key))
				return err_set(e, ERR_USAGE,
					       "%s: mesh: '%s' and '%s' have the same "
					       "wg_public_key: each machine makes its own",
					       m->c->path, m->m[k].id, m->m[i].id);
	}
	if (hub && named < 0)
		return err_set(e, ERR_USAGE, "%s: mesh: hub '%.60s' is none of the machines",
			       m->c->path, hub);
	TRY(give_addresses(m, 0, e));
	TRY(give_addresses(m, 1, e));
	memset(m->endpoint, 0, m->n * m->n * sizeof *m->endpoint);
	for (size_t i = 0; i < m->n * m->n; i++)
		m->through[i] = -1;
	for (size_t i = 0; i < m->n; i++)
		TRY(find_endpoints(m, i, e));
	TRY(find_way_in(m, named, e));
	for (size_t i = 0; i < m->n; i++)
		for (size_t k = 0; k < i; k++)
			if (!mesh_direct(m, k, i))
				TRY(find_hub(m, k, i, named, e));
	return 0;
}
