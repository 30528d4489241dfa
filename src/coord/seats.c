/* SPDX-License-Identifier: Apache-2.0 */
/* seats.c - see seats.h. */
#include "coord/seats.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/network.h"
#include "job/role.h"
#include "net/address.h"
#include "peers/doors.h"
#include "peers/invited.h"

#include <stdio.h>
#include <string.h>

/* seconds: longer than a worker's pause between attempts */
#define GRACE 8.0

static bool given(const char *s) { return s && s[0]; }

static bool has_layers(const struct config *c, const char *id)
{
	for (size_t i = 0; i < c->nshards; i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++)
			if (!strcmp(c->shard_plan[i].id.item[k], id))
				return true;
	return false;
}

/* Beside the plan that the user wrote. */
static bool is_spare(const struct config *c, size_t i)
{
	return c->workers[i].spare && !has_layers(c, c->workers[i].id);
}

static void describe(const struct config *c, const char *id, struct seat_spec *s)
{
	const struct config_coordinator *o = &c->coordinator;
	const struct config_worker *w = NULL;
	for (size_t i = 0; i < c->nworkers; i++)
		if (!strcmp(c->workers[i].id, id))
			w = &c->workers[i];
	const char *ip = w ? w->ip : o->ip, *host = w ? w->hostname : o->hostname;
	*s = (struct seat_spec){ .kind = !w || role_is_here(ip, host) ? SEAT_PROCESS : SEAT_REMOTE,
				 .id = id,
				 .host = given(host) ? host : ip,
				 .device = w ? w->device : network_local_device(c),
				 .key = w ? w->public_key : o->public_key };
	s->by_port = s->key || c->insecure || !strcmp(c->transport, "tls");
	s->spare = w && w->spare && !has_layers(c, id);
	if (w && w->invited)
		s->kind = SEAT_INVITED;
	else
		network_address(ip, host, w ? w->port : o->port, s->address);
}

/* A list of workers may be longer than a plan: a job goes on without a lost machine by changing
 * shard_plan alone. But somebody may have forgotten one. */
static void name_the_unused(const struct config *c, const char *(*id_of)(const void *ctx, size_t i),
			    const void *ctx, size_t count)
{
	char names[400] = "";
	size_t n = 0, at = 0;
	for (size_t i = 0; c->nshards && i < count; i++)
		if (!has_layers(c, id_of(ctx, i)) && !(ctx == c && c->workers[i].spare)) {
			if (at < sizeof names)
				at += (size_t)snprintf(names + at, sizeof names - at, "%s'%.60s'",
						       n ? ", " : "", id_of(ctx, i));
			n++;
		}
	if (n)
		log_warn("%s: 'shard_plan' gives no layers to %s: %s not used", c->path, names,
			 n > 1 ? "they are" : "this worker is");
}

static const char *id_of_worker(const void *config, size_t i)
{
	return ((const struct config *)config)->workers[i].id;
}

static const char *id_of_seat(const void *seat, size_t i)
{
	return ((const struct seat_spec *)seat)[i].id;
}

int seats_of_config(const struct config *c, struct arena *a, struct seat_spec **v_p, int *n_p,
		    struct err *e)
{
	bool local = strcmp(c->coordinator.device, "none") != 0;
	size_t most = c->nshards ? 0 : c->nworkers + local, n = 0;
	for (size_t i = 0; i < c->nshards; i++)
		most += c->shard_plan[i].id.n;
	for (size_t i = 0; c->nshards && i < c->nworkers; i++)
		most += is_spare(c, i);
	if (!most)
		return err_set(e, ERR_USAGE,
			       "%s: no device computes: 'workers' is empty and the coordinator's "
			       "device is none",
			       c->path);
	struct seat_spec *v = arena_alloc(a, most * sizeof *v);
	if (!v)
		return err_nomem(e, most * sizeof *v, "workers");
	for (size_t i = 0; i < c->nshards; i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++) {
			const char *id = c->shard_plan[i].id.item[k];
			if (!strcmp(id, "local") && !local)
				return err_set(e, ERR_USAGE,
					       "%s: 'shard_plan' gives layers to 'local', but the "
					       "coordinator's device is none",
					       c->path);
			describe(c, id, &v[n++]);
		}
	if (!c->nshards && local)
		describe(c, "local", &v[n++]);
	for (size_t i = 0; i < c->nworkers; i++)
		if (!c->nshards || is_spare(c, i))
			describe(c, c->workers[i].id, &v[n++]);
	if ((int64_t)n < c->min_workers)
		return err_set(e, ERR_USAGE, "%s: min_workers is %lld, but %zu can take part",
			       c->path, (long long)c->min_workers, n);
	name_the_unused(c, id_of_worker, c, c->nworkers);
	*v_p = v;
	*n_p = (int)n;
	return 0;
}

static bool may_have_keys(const struct seat_spec *v, int n)
{
	for (int i = 0; i < n; i++)
		if (v[i].kind != SEAT_PROCESS || v[i].key || seat_is_taken(&v[i]))
			return false;
	return n <= NETWORK_KEYS_MOST;
}

static int give_keys(struct seat_spec *v, int n, struct arena *a, struct network_keys *k_p,
		     struct err *e)
{
	struct key_pair *pair = mem_array((size_t)n, sizeof *pair);
	struct network_peer *pub = mem_array((size_t)n, sizeof *pub);
	struct buf b = BUF_INIT;
	int rc = pair && pub ? 0 : err_nomem(e, (size_t)n * sizeof *pair, "keys");
	*k_p = (struct network_keys){ 0 };
	if (rc >= 0 && !may_have_keys(v, n))
		goto out;
	if (rc >= 0)
		rc = key_pair_generate(&k_p->own, e);
	for (int i = 0; i < n && rc >= 0; i++) {
		rc = key_pair_generate(&pair[i], e);
		memcpy(pub[i].key, pair[i].pub, KEY_TEXT);
		memcpy(pub[i].address, v[i].address, NET_ADDRESS);
	}
	for (int i = 0; i < n && rc >= 0; i++) {
		struct network_keys k = { .own = pair[i], .peer = pub, .n = (size_t)n };
		memcpy(k.coordinator, k_p->own.pub, KEY_TEXT);
		buf_reset(&b);
		rc = network_keys_write(&k, &b, e);
		v[i].key = rc < 0 ? NULL : arena_strdup(a, pub[i].key);
		v[i].handed = rc < 0 ? NULL : arena_strdup(a, b.p);
		key_pair_wipe(&k.own);
		if (rc >= 0 && (!v[i].key || !v[i].handed))
			rc = err_nomem(e, b.n, "keys");
	}
out:
	for (int i = 0; pair && i < n; i++)
		key_pair_wipe(&pair[i]);
	mem_free(pair);
	mem_free(pub);
	buf_release(&b);
	return rc < 0 ? rc : 0;
}

int seats_network(const struct config *c, struct seat_spec *v, int n, struct arena *a,
		  struct net **n_p, struct err *e)
{
	struct network_keys k = { 0 };
	if (!c->coordinator.public_key && !c->insecure)
		TRY(give_keys(v, n, a, &k, e));
	int rc = network_open(c, c->coordinator.public_key, &k, n_p, e);
	network_keys_release(&k);
	return rc;
}

/* Workers of the list that are there for sure: processes of this machine but its own device. */
static int certain(const struct seat_spec *v, int n)
{
	int count = 0;
	for (int i = 0; i < n; i++)
		count += v[i].kind == SEAT_PROCESS && strcmp(v[i].id, "local");
	return count;
}

/* Those with an address that do not answer come late, where so many do. */
static int leave_out(const struct config *c, struct net *net, struct seat_spec *v, int *n_p,
		     int least, const volatile sig_atomic_t *stop, struct err *e)
{
	struct door *p = mem_array((size_t)*n_p + 1, sizeof *p);
	int n = 0;
	if (!p)
		return err_nomem(e, (size_t)*n_p * sizeof *p, "workers");
	for (int i = 0; i < *n_p; i++)
		if (v[i].kind == SEAT_REMOTE)
			p[n++] = (struct door){ .id = v[i].id, v[i].address, v[i].key };
	int rc = doors_knock(net, p, n, least, GRACE, c->join_timeout, stop, e);
	for (int i = n = 0; i < *n_p && rc >= 0; i++)
		if (v[i].kind == SEAT_REMOTE)
			v[i].late = !p[n++].answered;
	mem_free(p);
	return rc;
}

/* Of workers with an address, with min_workers: those that are there. */
static int gather_addressed(const struct config *c, struct net *net, struct seat_spec *v, int *n_p,
			    const volatile sig_atomic_t *stop, struct err *e)
{
	int remote = 0, invited = 0;
	for (int i = 0; i < *n_p; i++) {
		remote += v[i].kind == SEAT_REMOTE;
		invited += v[i].kind == SEAT_INVITED;
	}
	int least = (int)c->min_workers - invited - certain(v, *n_p);
	if (!c->min_workers || c->nshards || !remote)
		return 0;
	return leave_out(c, net, v, n_p, least > 0 ? least : 0, stop, e);
}

static int gather(const struct config *c, struct reception *r, struct seat_spec *v, int *n_p,
		  const volatile sig_atomic_t *stop, struct err *e)
{
	const char **key = mem_array((size_t)*n_p, sizeof *key);
	bool *here = mem_array((size_t)*n_p, sizeof *here);
	int n = 0, rc = key && here ? 0 : err_nomem(e, sizeof *key, "workers");
	int least = (int)c->min_workers - certain(v, *n_p);
	for (int i = 0; i < *n_p && rc >= 0; i++) {
		least -= v[i].kind == SEAT_REMOTE;
		if (v[i].kind == SEAT_INVITED)
			key[n++] = v[i].key;
	}
	if (rc >= 0)
		rc = invited_gather(r, key, n, c->min_workers ? least : *n_p == n, GRACE,
				    c->join_timeout, stop, here, e);
	n = 0;
	for (int i = 0; i < *n_p && rc >= 0; i++) {
		v[i].late |= v[i].kind == SEAT_INVITED && !here[n++];
		if (v[i].late)
			log_info("worker '%s' is not there: the job begins without it", v[i].id);
	}
	mem_free(key);
	mem_free(here);
	return rc;
}

static int open_port(const struct config *c, struct net *net, struct seat_spec *v, int *n_p,
		     const volatile sig_atomic_t *stop, struct reception **r_p, struct err *e)
{
	char at[NET_ADDRESS];
	*r_p = NULL;
	if (!c->workers_invited)
		return 0;
	address_join("*", (unsigned)c->invited_port, at);
	TRY(net_listen(net, at, NULL, e));
	TRY(reception_open(net, c->coordinator.public_key, r_p, e));
	if (!c->nworkers || c->nshards || !(c->workers_all || c->min_workers))
		return 0;
	int rc = gather(c, *r_p, v, n_p, stop, e);
	if (rc < 0) {
		reception_close(*r_p);
		*r_p = NULL;
	}
	return rc;
}

int seats_open(const struct config *c, struct seat_spec *v, int *n_p, struct arena *a,
	       const volatile sig_atomic_t *stop, struct net **net_p, struct reception **r_p,
	       struct err *e)
{
	TRY(seats_network(c, v, *n_p, a, net_p, e));
	*r_p = NULL;
	int rc = gather_addressed(c, *net_p, v, n_p, stop, e);
	if (rc >= 0)
		rc = open_port(c, *net_p, v, n_p, stop, r_p, e);
	if (rc < 0)
		net_close(*net_p, 0);
	return rc;
}

int seats_of_ranks(const struct config *c, const struct ranks *r, struct arena *a,
		   struct seat_spec **v_p, int *n_p, struct err *e)
{
	int n = r->at.size - 1;
	struct seat_spec *v = arena_alloc(a, (size_t)n * sizeof *v);
	char(*id)[RANK_ID] = arena_alloc(a, (size_t)n * sizeof *id);
	if (!v || !id)
		return err_nomem(e, (size_t)n * sizeof *v, "workers");
	TRY(ranks_check_plan(c, r->at.size, e));
	for (int i = 0; i < n; i++) {
		rank_id(i + 1, id[i]);
		v[i] = (struct seat_spec){
			.kind = SEAT_REMOTE, .id = id[i], .host = "mpi", .device = c->device
		};
		snprintf(v[i].address, sizeof v[i].address, "rank:%d", i + 1);
	}
	name_the_unused(c, id_of_seat, v, (size_t)n);
	*v_p = v;
	*n_p = n;
	return 0;
}
