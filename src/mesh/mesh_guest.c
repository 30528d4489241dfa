/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_guest.c - see mesh_guest.h. */
#include "mesh/mesh_guest.h"

#include "base/buf.h"
#include "base/err.h"
#include "peers/peer_list.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool is_listed(const struct config *c, const char *name)
{
	const char *host = c->coordinator.hostname ? c->coordinator.hostname : "coordinator";
	const size_t n = strcspn(host, ".");
	if (strlen(name) == n && !strncasecmp(host, name, n))
		return true;
	for (size_t i = 0; i < c->nworkers; i++)
		if (!strcasecmp(c->workers[i].id, name) && c->workers[i].meshed.wg_public_key)
			return true;
	return false;
}

/* `p` NULL: its invitation is open. One that the configuration names without a key gets this. */
static int add(struct config *c, const char *name, const struct peer *p, const char *endpoint,
	       struct err *e)
{
	struct config_worker *w = NULL, *all;
	for (size_t i = 0; i < c->nworkers; i++)
		if (!strcasecmp(c->workers[i].id, name))
			w = &c->workers[i];
	if (w && (w->ssh || !w->invited))
		return 0; /* a machine of the configuration */
	if (!w) {
		all = arena_alloc(&c->arena, (c->nworkers + 1) * sizeof *all);
		if (!all)
			return err_nomem(e, (c->nworkers + 1) * sizeof *all, "workers");
		if (c->nworkers)
			memcpy(all, c->workers, c->nworkers * sizeof *all);
		c->workers = all;
		w = &all[c->nworkers++];
		*w = (struct config_worker){ .invited = true, .device = "auto", .num_gpus = 1 };
		w->id = w->hostname = arena_strdup(&c->arena, name);
	}
	w->meshed.wg_public_key = arena_strdup(&c->arena, p ? p->wg : "");
	w->meshed.family = !p                       ? FAMILY_BOTH
			   : p->family == PEER_IPV4 ? FAMILY_IPV4
			   : p->family == PEER_IPV6 ? FAMILY_IPV6
						    : FAMILY_BOTH;
	if (endpoint && endpoint[0]) {
		w->meshed.endpoint.item = arena_alloc(&c->arena, sizeof *w->meshed.endpoint.item);
		if (w->meshed.endpoint.item)
			w->meshed.endpoint.item[w->meshed.endpoint.n++] =
				arena_strdup(&c->arena, endpoint);
	}
	return w->id && w->meshed.wg_public_key &&
			       (!endpoint || !endpoint[0] ||
				(w->meshed.endpoint.n && w->meshed.endpoint.item[0]))
		       ? 0
		       : err_nomem(e, sizeof *w, "workers");
}

static int read_hosts(struct config *c, const struct peer_list *l, char *text, struct err *e)
{
	for (char *line, *rest = text; (line = buf_line(&rest));) {
		char name[PEER_NAME + 8], endpoint[256] = "";
		if (sscanf(line, "%*s %70s # endpoint %255s", name, endpoint) < 1)
			continue;
		char *end = strstr(name, ".mesh");
		if (!end || end[5])
			continue;
		*end = 0;
		const struct peer *p = peer_list_find(l, name);
		if (is_listed(c, name) || (!(p && p->wg[0]) && !invitations_mesh(name)))
			continue;
		TRY(add(c, name, p, endpoint, e));
	}
	return 0;
}

int mesh_guests(struct config *c, struct err *e)
{
	char path[PATH_MAX];
	struct buf b = BUF_INIT;
	struct peer_list l = { 0 };
	if (!c->mesh.given || !c->mesh.dir)
		return 0;
	snprintf(path, sizeof path, "%.3900s/hosts", c->mesh.dir);
	if (access(path, F_OK) < 0)
		return 0;
	TRY(buf_read_file(&b, path, 1 << 20, e));
	int rc = peer_list_read(&l, e);
	if (rc >= 0)
		rc = read_hosts(c, &l, b.p, e);
	peer_list_release(&l);
	buf_release(&b);
	return rc;
}

int mesh_guest_add(struct config *c, const char *name, const char *endpoint, struct err *e)
{
	bool there = is_listed(c, name);
	for (size_t i = 0; i < c->nworkers && !there; i++)
		there = !strcasecmp(c->workers[i].id, name) &&
			(!c->workers[i].invited || c->workers[i].ssh);
	if (there)
		return err_set(e, ERR_USAGE,
			       "%s: mesh: '%.60s' is a machine of the mesh already: choose another "
			       "name, or remove it ('heteroshard peers remove')",
			       c->path, name);
	return add(c, name, NULL, endpoint, e);
}
