/* SPDX-License-Identifier: Apache-2.0 */
/* plan_draw.c - see plan_draw.h. */
#include "cli/plan_draw.h"

#include "base/arena.h"
#include "base/err.h"
#include "file/atomic.h"
#include "file/model_file.h"
#include "config/config.h"
#include "job/network.h"
#include "model/model.h"
#include "report/topology.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_given(const char *s) { return s && s[0]; }

/* What a machine is known by: its address, else its name. */
static const char *known_by(const char *ip, const char *hostname)
{
	return is_given(ip) ? ip : is_given(hostname) ? hostname : "this machine";
}

/* The machine of an entry, added when it is new. */
static size_t find_machine(struct topology *t, struct topology_machine *m, const char *ip,
			   const char *hostname)
{
	const char *key = known_by(ip, hostname);
	for (size_t i = 0; i < t->nmachine; i++)
		if (!strcmp(m[i].address ? m[i].address : m[i].name, key) ||
		    (is_given(hostname) && !strcmp(m[i].name, hostname)))
			return i;
	m[t->nmachine] =
		(struct topology_machine){ .name = is_given(hostname) ? hostname : key,
					   .address =
						   is_given(ip) && is_given(hostname) ? ip : NULL };
	return t->nmachine++;
}

static struct topology_device make_device(const char *id, size_t at, const char *backend)
{
	return (struct topology_device){
		.id = id, .machine = at, .backend = backend, .stage = -1, .share = NAN, .busy = NAN
	};
}

static int check_layers(const struct config *c, int64_t *layers_p, struct err *e)
{
	struct model_file *f;
	struct model_config m;
	*layers_p = c->shard_plan[c->nshards - 1].end;
	if (!is_given(c->base_model))
		return 0;
	TRY(model_file_open(c->base_model, &f, e));
	int rc = model_config_read(model_file_config(f), c->base_model, &m, e);
	model_file_close(f);
	if (rc >= 0 && m.layers != *layers_p)
		rc = err_set(e, ERR_USAGE,
			     "%s: 'shard_plan' ends with layer %lld, but %s has %lld layers",
			     c->path, (long long)*layers_p, c->base_model, (long long)m.layers);
	return rc;
}

static struct topology_device *find_device(const struct topology *t, struct topology_device *d,
					   const char *id)
{
	for (size_t i = 0; i < t->ndevice; i++)
		if (!strcmp(d[i].id, id))
			return &d[i];
	return NULL;
}

/* The members of entry k of shard_plan, each linked with each member of the entry before. */
static void place_shard(const struct config *c, size_t k, struct topology *t,
			struct topology_device *d, struct topology_link *l)
{
	const struct config_shard *s = &c->shard_plan[k], *before = k ? s - 1 : NULL;
	int64_t sum = 0;
	for (size_t i = 0; s->share && i < s->id.n; i++)
		sum += s->share[i];
	for (size_t i = 0; i < s->id.n; i++) {
		struct topology_device *x = find_device(t, d, s->id.item[i]);
		if (!x)
			continue;
		x->stage = (int)k;
		x->first = s->start;
		x->last = s->end;
		x->front = k == 0;
		x->end = k + 1 == c->nshards;
		x->share = s->id.n > 1 && sum ? (double)s->share[i] / (double)sum : NAN;
		for (size_t j = 0; before && j < before->id.n; j++) {
			const struct topology_device *y = find_device(t, d, before->id.item[j]);
			if (y)
				l[t->nlink++] = (struct topology_link){
					.from = (size_t)(y - d),
					.to = (size_t)(x - d),
					.bandwidth = NAN,
					.latency = NAN,
					.encrypted = c->coordinator.public_key != NULL
				};
		}
	}
}

/* At most: between the groups of shard_plan. */
static size_t count_links(const struct config *c)
{
	size_t n = 1;
	for (size_t k = 1; k < c->nshards; k++)
		n += c->shard_plan[k - 1].id.n * c->shard_plan[k].id.n;
	return n;
}

int plan_draw_shards(const struct config *c, const char *dir, struct err *e)
{
	struct arena a = ARENA_INIT;
	size_t n = c->nworkers + 1;
	struct topology_machine *m = arena_alloc(&a, n * sizeof *m);
	struct topology_device *d = arena_alloc(&a, n * sizeof *d);
	struct topology_link *l = arena_alloc(&a, count_links(c) * sizeof *l);
	struct topology t = { .machine = m, .device = d, .link = l };
	const struct config_coordinator *o = &c->coordinator;
	char title[300], subtitle[200];
	int64_t layers;
	size_t used = 0;
	int rc = 0;
	if (!m || !d || !l) {
		rc = err_nomem(e, n * sizeof *d, "a picture");
		goto out;
	}
	TRYOUT(check_layers(c, &layers, e));
	m[find_machine(&t, m, o->ip, o->hostname)].coordinator = true;
	if (strcmp(o->device, "none"))
		d[t.ndevice++] = make_device("local", 0, network_local_device(c));
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		d[t.ndevice++] =
			make_device(w->id, find_machine(&t, m, w->ip, w->hostname), w->device);
	}
	for (size_t k = 0; k < c->nshards; k++) {
		place_shard(c, k, &t, d, l);
		used += c->shard_plan[k].id.n;
	}
	const char *slash = is_given(c->base_model) ? strrchr(c->base_model, '/') : NULL;
	snprintf(title, sizeof title, "%.200s on %zu devices",
		 slash && slash[1]         ? slash + 1
		 : is_given(c->base_model) ? c->base_model
					   : "model",
		 used);
	snprintf(subtitle, sizeof subtitle, "%lld layers by shard_plan; nothing was measured",
		 (long long)layers);
	t.title = title;
	t.subtitle = subtitle;
	TRYOUT(dir_make_result(dir, e));
	rc = topology_write(&t, dir, NULL, e);
out:
	arena_release(&a);
	return rc;
}
