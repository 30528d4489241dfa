/* SPDX-License-Identifier: Apache-2.0 */
/* work.c - see work.h. */
#include "worker/work.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "base/os.h"
#include "ops/limits.h"
#include "job/network.h"
#include "net/address.h"
#include "worker/kept.h"
#include "worker/serve.h"

#include <stdio.h>
#include <string.h>

/* Where worker `i` of the configuration (ROLE_LOCAL: the coordinator's own device) listens: with
 * keys at all addresses of the machine, so that the fastest one can be found; only at its own on
 * loopback, without keys, when the configuration says so, or when another worker of this machine
 * has the same port at another address. */
static void where_to_listen(const struct config *c, int i, char out[NET_ADDRESS])
{
	const struct config_coordinator *o = &c->coordinator;
	const struct config_worker *w = i == ROLE_LOCAL ? NULL : &c->workers[i];
	const char *ip = w ? w->ip : o->ip;
	int64_t port = w ? w->port : o->port;
	bool all = o->public_key && (w ? w->listen : o->listen) == LISTEN_ALL, loopback = false;
	char number[NET_ADDRESS];
	struct err ignored = { 0 };
	network_address(ip, w ? w->hostname : o->hostname, port, out);
	if (all && ip && ip[0] && address_resolve(out, true, number, &loopback, &ignored) < 0)
		all = false;
	for (size_t k = 0; all && k < c->nworkers; k++)
		all = (int)k == i || c->workers[k].port != port ||
		      !role_is_here(c->workers[k].ip, c->workers[k].hostname);
	if (all && w && o->port == port && strcmp(o->device, "none"))
		all = !role_is_here(o->ip, o->hostname);
	if (all && !loopback)
		snprintf(out, NET_ADDRESS, "*:%lld", (long long)port);
}

/* The machines of the configuration, where a worker may connect. */
static int list_ways(const struct config *c, struct ways *v_p, struct err *e)
{
	const struct config_coordinator *o = &c->coordinator;
	struct way *v = mem_array(c->nworkers + 1, sizeof *v);
	if (!v)
		return err_nomem(e, (c->nworkers + 1) * sizeof *v, "a worker");
	network_address(o->ip, o->hostname, o->port, v[0].address);
	v[0].key = o->public_key;
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		network_address(w->ip, w->hostname, w->port, v[i + 1].address);
		v[i + 1].key = w->public_key;
	}
	*v_p = (struct ways){ .way = v, .n = (int)c->nworkers + 1 };
	return 0;
}

/* The same of the workers that the coordinator has made keys for. */
static int list_handed(const struct network_keys *k, struct ways *v_p, struct err *e)
{
	struct way *v = mem_array(k->n + 1, sizeof *v);
	if (!v)
		return err_nomem(e, (k->n + 1) * sizeof *v, "a worker");
	for (size_t i = 0; i < k->n; i++) {
		memcpy(v[i].address, k->peer[i].address, NET_ADDRESS);
		v[i].key = k->peer[i].key;
	}
	*v_p = (struct ways){ .way = v, .n = (int)k->n };
	return 0;
}

/* Seconds to wait for the next job, and for a coordinator that makes adapters of the weights first
 * (peft_init_lora_weights). */
static const double ages = 864000;

/* Job after job, until it is stopped. */
static int serve_all(struct serve *s, struct err *e)
{
	struct kept kept = { 0 };
	bool joined;
	int rc;
	s->joined_p = &joined;
	s->kept = &kept;
	s->coordinator_timeout = ages;
	for (;;) {
		joined = false;
		rc = worker_serve(s, e);
		if ((s->stop && *s->stop) ||
		    (rc < 0 && !joined && rc != ERR_NET && rc != ERR_CANCELLED))
			break;
		if (rc < 0)
			log_warn("worker '%s': %s", s->id, e->msg);
		log_info("worker '%s' waits for the next job", s->id);
		err_clear(e);
	}
	kept_release(&kept);
	if (joined || !s->stop || !*s->stop)
		return rc;
	err_clear(e);
	return 0;
}

/* Jobs until one ends otherwise than by the loss of the coordinator: that one may dial again, also
 * when it was started anew. State that is kept here for it outlives other jobs, and a start that
 * fails before it is taken. A worker that was started by its coordinator ends with it, which is
 * ERR_CANCELLED: the coordinator says why, on the same terminal. */
static int serve_on(const struct config *c, struct serve *s, struct err *e)
{
	bool joined = false;
	struct kept kept = { 0 };
	s->joined_p = &joined;
	s->kept = &kept;
	int rc = worker_serve(s, e);
	if (rc == ERR_NET && !joined && c->peft_init_lora_weights && !os_die_with_parent()) {
		log_warn("worker '%s': %s It may still make the adapters that "
			 "peft_init_lora_weights asks for: waiting on",
			 s->id, e->msg);
		err_clear(e);
		s->coordinator_timeout = ages;
		rc = worker_serve(s, e);
	}
	while ((rc == ERR_NET || (kept.owed && (rc < 0 || kept.other))) && joined &&
	       c->coordinator_timeout > 0 && !(s->stop && *s->stop) && !os_die_with_parent()) {
		log_warn("worker '%s': %s; waiting up to %g s for the coordinator "
			 "(coordinator_timeout)",
			 s->id, rc < 0 ? e->msg : "it keeps the state of an earlier run",
			 c->coordinator_timeout);
		err_clear(e);
		joined = false;
		s->coordinator_timeout = c->coordinator_timeout;
		rc = worker_serve(s, e);
	}
	kept_release(&kept);
	if (rc == ERR_NET && joined && os_die_with_parent())
		rc = e->code = ERR_CANCELLED;
	return rc;
}

/* `k`: what the coordinator handed over, if it did. */
static int work_with(const struct config *c, const struct role *r, const struct network_keys *k,
		     const volatile sig_atomic_t *stop, struct err *e)
{
	const struct config_coordinator *o = &c->coordinator;
	const bool handed = k->own.sec[0];
	struct net *n = NULL;
	struct ways ways;
	int rc = ERR_INTERNAL;
	TRY(handed ? list_handed(k, &ways, e) : list_ways(c, &ways, e));
	for (int i = 0; i < r->ncandidate; i++) {
		const struct config_worker *w =
			r->candidate[i] == ROLE_LOCAL ? NULL : &c->workers[r->candidate[i]];
		const char *device = w ? w->device : network_local_device(c);
		char one_of[DEV_SPEC];
		int nth;
		if (sscanf(device, "auto:%d", &nth) == 1) { /* of several in one entry */
			dev_successive(nth, one_of);
			device = one_of;
		}
		struct serve s = { .id = w ? w->id : "local",
				   .device = strcmp(device, "auto") ? device : c->device,
				   .coordinator_key = handed ? k->coordinator : o->public_key,
				   .log_every = c->logging_steps > 0 ? c->logging_steps : 1,
				   .join_timeout = c->join_timeout,
				   .model = c->base_model,
				   .cache_dir = c->cache_dir,
				   .cache_limit = c->cache_limit_gib,
				   .ways = ways,
				   .stop = stop };
		char at[NET_ADDRESS], bound[NET_ADDRESS], relay[NET_ADDRESS];
		address_join("127.0.0.1", (unsigned)c->invited_port, relay);
		s.relay = c->invited_port ? relay : NULL;
		err_clear(e);
		rc = limits_take(w ? &w->limits : &o->limits,
				 limits_threads(c, r->candidate[i], os_cores("", os_affinity())),
				 e);
		if (rc < 0)
			break;
		rc = network_open(c, w ? w->public_key : o->public_key, k, &n, e);
		if (rc < 0)
			break;
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
		rc = r->stays ? serve_all(&s, e) : serve_on(c, &s, e);
		net_close(n, 2);
		if (rc < 0)
			err_prefix(e, "worker '%s'", s.id);
		break;
	}
	mem_free((void *)(uintptr_t)ways.way);
	return rc;
}

int work(const struct config *c, const struct role *r, const volatile sig_atomic_t *stop,
	 struct err *e)
{
	struct network_keys k;
	TRY(network_keys_handed(&k, e));
	int rc = work_with(c, r, &k, stop, e);
	network_keys_release(&k);
	return rc;
}

int work_rank(const struct config *c, const struct ranks *r, const volatile sig_atomic_t *stop,
	      struct err *e)
{
	char id[32], device[DEV_SPEC], bound[NET_ADDRESS];
	rank_id(r->at.rank, id);
	if (!strcmp(c->device, "auto"))
		dev_successive(r->at.local, device);
	const struct serve s = { .net = r->net,
				 .id = id,
				 .device = strcmp(c->device, "auto") ? c->device : device,
				 .join_timeout = c->join_timeout,
				 .model = c->base_model,
				 .cache_dir = c->cache_dir,
				 .cache_limit = c->cache_limit_gib,
				 .stop = stop };
	int rc = net_listen(r->net, "rank:*", bound, e);
	if (rc >= 0)
		rc = worker_serve(&s, e);
	net_close(r->net, 2);
	return rc < 0 ? err_prefix(e, "worker '%s'", id) : rc;
}
