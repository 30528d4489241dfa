/* SPDX-License-Identifier: Apache-2.0 */
/* invited.c - see invited.h. */
#include "peers/invited.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/interfaces.h"
#include "peers/peer_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int own_key(const struct config *c, char pub[KEY_TEXT], struct err *e)
{
	char path[PATH_MAX];
	struct key_pair k;
	TRY(key_path(c->key_file, path, sizeof path, e));
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return err_set(e, ERR_USAGE,
			       "%s: this machine has no key, so nobody was invited: 'heteroshard "
			       "invite' makes one and an invitation",
			       path);
	TRY(key_pair_load(path, &k, e));
	memcpy(pub, k.pub, KEY_TEXT);
	key_pair_wipe(&k);
	return 0;
}

static int take_all(struct config *c, const struct peer_list *l, struct err *e)
{
	c->workers = arena_alloc(&c->arena, (l->n + 1) * sizeof *c->workers);
	if (!c->workers)
		return err_nomem(e, l->n * sizeof *c->workers, "workers");
	for (size_t i = 0; i < l->n; i++) {
		const char *id = arena_strdup(&c->arena, l->peer[i].name);
		if (!id)
			return err_nomem(e, PEER_NAME, "workers");
		c->workers[i] = (struct config_worker){ .id = id,
							.hostname = id,
							.port = 9999,
							.device = "auto",
							.num_gpus = 1,
							.invited = true };
	}
	c->nworkers = l->n;
	if (!l->n && !strcmp(c->coordinator.device, "none"))
		return err_set(
			e, ERR_USAGE,
			"%s: workers: all, but nobody was invited: 'heteroshard invite' here, "
			"'heteroshard worker --join TOKEN' there",
			c->path);
	return 0;
}

static int find_all(struct config *c, const struct peer_list *l, struct err *e)
{
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct peer *p = peer_list_find(l, c->workers[i].id);
		if (!p)
			return err_set(e, ERR_USAGE,
				       "%s: 'workers' names '%.60s', and no peer has this name: "
				       "'heteroshard peers' lists them, 'heteroshard invite' adds "
				       "one",
				       c->path, c->workers[i].id);
		c->workers[i].public_key = arena_strdup(&c->arena, p->key);
		if (!c->workers[i].public_key)
			return err_nomem(e, KEY_TEXT, "workers");
	}
	return 0;
}

/* The coordinator is this machine. */
static int describe_self(struct config *c, struct err *e)
{
	struct config_coordinator *o = &c->coordinator;
	struct interface here[INTERFACES_MOST];
	char pub[KEY_TEXT];
	o->given = true;
	TRY(own_key(c, pub, e));
	o->public_key = arena_strdup(&c->arena, pub);
	if (!o->ip || !o->ip[0])
		o->ip = interfaces_list(here, INTERFACES_MOST) > 0
				? arena_strdup(&c->arena, here[0].address)
				: "127.0.0.1";
	if (!o->public_key || !o->ip)
		return err_nomem(e, KEY_TEXT, "the configuration");
	c->invited_port = o->port;
	if (o->port == 65535)
		return err_set(e, ERR_USAGE,
			       "%s: 'port' of the coordinator is the last one, and its own device "
			       "needs the one after it",
			       c->path);
	o->port++;
	return 0;
}

int invited_resolve(struct config *c, struct err *e)
{
	struct peer_list l = { 0 };
	if (!c->workers_invited || c->invited_port)
		return 0;
	TRY(describe_self(c, e));
	TRY(peer_list_read(&l, e));
	int rc = c->workers_all ? take_all(c, &l, e) : 0;
	if (rc >= 0)
		rc = find_all(c, &l, e);
	peer_list_release(&l);
	return rc;
}

int invited_gather(struct reception *r, const char *const *key, int n, int least, double grace,
		   double most, const volatile sig_atomic_t *stop, bool *here_p, struct err *e)
{
	int64_t enough = net_in(grace), deadline = net_in(most), tell = net_in(10);
	for (;; usleep(50000)) {
		int here = 0;
		for (int i = 0; i < n; i++)
			here += here_p[i] = reception_has(r, key[i]);
		if (here == n || (here >= least && clock_now() > enough))
			return 0;
		if (stop && *stop)
			return err_set(e, ERR_CANCELLED,
				       "interrupted while waiting for invited workers");
		if (clock_now() > deadline)
			return err_set(
				e, ERR_NET,
				"%d of %d invited workers connected within %g s (join_timeout), "
				"and %d are needed: does 'heteroshard worker' run on the others, "
				"and does a firewall here let the port through?",
				here, n, most, least);
		if (clock_now() > tell) {
			log_info("waiting for an invited worker to connect");
			tell = net_in(10);
		}
	}
}
