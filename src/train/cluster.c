/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c - see cluster.h; which machine this is stands in role.c. */
#include "train/cluster.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "sched/sched.h"
#include "train/serve.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool given(const char *s) { return s && s[0]; }

static void address(const char *ip, const char *hostname, int64_t port, char out[NET_ADDRESS])
{
	const char *host = given(ip) ? ip : hostname;
	snprintf(out, NET_ADDRESS, strchr(host, ':') ? "[%.250s]:%lld" : "%.250s:%lld", host,
		 (long long)port);
}

int cluster_net(const struct config *c, const char *listed, struct net **n_p, struct err *e)
{
	struct key_pair k;
	bool keys = c->coordinator.public_key != NULL;
	struct net_options o = { .peer_timeout = c->peer_timeout, .insecure = c->insecure };
	if (keys) {
		char path[PATH_MAX];
		if (c->key_file)
			snprintf(path, sizeof path, "%s", c->key_file);
		else
			TRY(key_default_path(path, sizeof path, false, e));
		TRY(key_pair_load(path, &k, e));
		if (listed && !key_equal(k.pub, listed)) {
			int rc = err_set(
				e, ERR_USAGE,
				"%s: this machine's public key is '%s', but %s lists '%s' for it: "
				"put the right key into the "
				"configuration on all machines, or name the right file (key_file)",
				path, k.pub, c->path, listed);
			key_pair_wipe(&k);
			return rc;
		}
		o.key = &k;
	}
	struct net *n;
	int rc = net_open(!strcmp(c->transport, "auto") ? "zmq" : c->transport, &o, &n, e);
	if (keys)
		key_pair_wipe(&k);
	if (rc < 0)
		return rc;
	if (keys)
		rc = net_allow(n, c->coordinator.public_key, e);
	for (size_t i = 0; keys && i < c->nworkers && rc >= 0; i++)
		rc = net_allow(n, c->workers[i].public_key, e);
	if (rc < 0) {
		net_close(n, 0);
		return rc;
	}
	*n_p = n;
	return 0;
}

/* ---- a worker ---- */

/* Where worker `i` of the configuration (ROLE_LOCAL: the coordinator's own device) listens: at all
 * addresses of the machine where keys keep strangers out, so that the fastest way to it can be
 * found; only at its own on loopback, without keys, when the configuration says so, or when another
 * worker of this machine has the same port at another address. */
static void where_to_listen(const struct config *c, int i, char out[NET_ADDRESS])
{
	const struct config_coordinator *o = &c->coordinator;
	const struct config_worker *w = i == ROLE_LOCAL ? NULL : &c->workers[i];
	const char *ip = w ? w->ip : o->ip;
	int64_t port = w ? w->port : o->port;
	bool all = o->public_key && (w ? w->listen : o->listen) == LISTEN_ALL, loopback = false;
	char number[NET_ADDRESS];
	struct err ignored = { 0 };
	address(ip, w ? w->hostname : o->hostname, port, out);
	if (all && given(ip) && address_resolve(out, true, number, &loopback, &ignored) < 0)
		all = false;
	for (size_t k = 0; all && k < c->nworkers; k++)
		all = (int)k == i || c->workers[k].port != port ||
		      !cluster_is_here(c->workers[k].ip, c->workers[k].hostname);
	if (all && w && o->port == port && strcmp(o->device, "none"))
		all = !cluster_is_here(o->ip, o->hostname);
	if (all && !loopback)
		snprintf(out, NET_ADDRESS, "*:%lld", (long long)port);
}

static const char *local_device(const struct config *c)
{
	return c->coordinator.device && strcmp(c->coordinator.device, "auto")
		       ? c->coordinator.device
		       : c->device;
}

int cluster_work(const struct config *c, const struct role *r, const volatile sig_atomic_t *stop,
		 struct err *e)
{
	const struct config_coordinator *o = &c->coordinator;
	struct net *n = NULL;
	int rc = ERR_INTERNAL;
	for (int i = 0; i < r->ncandidate; i++) {
		const struct config_worker *w =
			r->candidate[i] == ROLE_LOCAL ? NULL : &c->workers[r->candidate[i]];
		const char *device = w ? w->device : local_device(c);
		struct serve s = { .id = w ? w->id : "local",
				   .device = strcmp(device, "auto") ? device : c->device,
				   .coordinator_key = o->public_key,
				   .log_every = c->logging_steps > 0 ? c->logging_steps : 1,
				   .join_timeout = c->join_timeout,
				   .model = c->base_model,
				   .cache_dir = c->cache_dir,
				   .cache_limit = c->cache_limit_gib,
				   .stop = stop };
		char at[NET_ADDRESS], bound[NET_ADDRESS];
		err_clear(e);
		TRY(cluster_net(c, w ? w->public_key : o->public_key, &n, e));
		where_to_listen(c, r->candidate[i], at);
		rc = net_listen(n, at, bound, e);
		if (rc < 0) {
			err_prefix(e, "worker '%s' cannot listen", s.id);
			net_close(n, 0);
			continue;
		}
		log_info("worker '%s' listens at %s and waits for the coordinator", s.id, at);
		s.net = n;
		s.listens = bound;
		rc = worker_serve(&s, e);
		net_close(n, 2);
		if (rc < 0)
			err_prefix(e, "worker '%s'", s.id);
		return rc;
	}
	return rc;
}

/* ---- who takes part ---- */

static void describe(const struct config *c, const char *id, struct seat_spec *s)
{
	const struct config_coordinator *o = &c->coordinator;
	const struct config_worker *w = NULL;
	for (size_t i = 0; i < c->nworkers; i++)
		if (!strcmp(c->workers[i].id, id))
			w = &c->workers[i];
	const char *ip = w ? w->ip : o->ip, *host = w ? w->hostname : o->hostname;
	*s = (struct seat_spec){ .kind = !w || cluster_is_here(ip, host) ? SEAT_PROCESS
									 : SEAT_REMOTE,
				 .id = id,
				 .host = given(host) ? host : ip,
				 .device = w ? w->device : local_device(c),
				 .key = w ? w->public_key : o->public_key };
	address(ip, host, w ? w->port : o->port, s->address);
}

int cluster_seats(const struct config *c, struct arena *a, struct seat_spec **v_p, int *n_p,
		  struct err *e)
{
	bool local = strcmp(c->coordinator.device, "none") != 0;
	size_t most = c->nshards ? c->nshards : c->nworkers + local, n = 0;
	if (!most)
		return err_set(e, ERR_USAGE,
			       "%s: nobody computes: 'workers' is empty and the coordinator's "
			       "device is none",
			       c->path);
	struct seat_spec *v = arena_alloc(a, most * sizeof *v);
	if (!v)
		return err_nomem(e, most * sizeof *v, "workers");
	for (size_t i = 0; i < c->nshards; i++) {
		if (!strcmp(c->shard_plan[i].id, "local") && !local)
			return err_set(e, ERR_USAGE,
				       "%s: 'shard_plan' gives layers to 'local', but the "
				       "coordinator's device is none",
				       c->path);
		describe(c, c->shard_plan[i].id, &v[n++]);
	}
	if (!c->nshards && local)
		describe(c, "local", &v[n++]);
	for (size_t i = 0; !c->nshards && i < c->nworkers; i++)
		describe(c, c->workers[i].id, &v[n++]);
	*v_p = v;
	*n_p = (int)n;
	return 0;
}
