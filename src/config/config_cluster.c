/* SPDX-License-Identifier: Apache-2.0 */
/* config_cluster.c - the cluster part of a configuration, with the keys of
 * HeteroShard's hetero_config.json.
 *
 * Three small tables of rows, one for each kind of entry. Whether an address belongs to
 * this machine and whether the layers fit the model is checked later, where machine and
 * model are known. */
#include "config/config_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "dev/dev.h"
#include "net/keys.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_ENTRIES = 4096 };

#define FIELD(type, k) .key = #k, .offset = offsetof(struct type, k)

/* clang-format off: rows of two tables */
#define LIMITS(type)                                                                               \
	{ .key = "threads",                                                                        \
	  .offset = offsetof(struct type, limits.threads),                                         \
	  .kind = OPT_INT,                                                                         \
	  .lo = 0,                                                                                 \
	  .hi = 4096 },                                                                            \
		{ .key = "memory",                                                                 \
		  .offset = offsetof(struct type, limits.memory),                                  \
		  .kind = OPT_FLOAT,                                                               \
		  .lo = 0,                                                                         \
		  .hi = 1e6 },                                                                     \
	{                                                                                          \
		.key = "nice", .offset = offsetof(struct type, limits.nice), .kind = OPT_INT,      \
		.lo = 0, .hi = 19                                                                  \
	}
#define MESHED(type)                                                                               \
	{ .key = "wg_public_key",                                                                  \
	  .offset = offsetof(struct type, meshed.wg_public_key),                                   \
	  .kind = OPT_STR },                                                                       \
		{ .key = "endpoint",                                                               \
		  .offset = offsetof(struct type, meshed.endpoint),                                \
		  .kind = OPT_LIST },                                                              \
		{ .key = "mesh_ip",                                                                \
		  .offset = offsetof(struct type, meshed.mesh_ip),                                 \
		  .kind = OPT_LIST },                                                              \
	{                                                                                          \
		.key = "family", .offset = offsetof(struct type, meshed.family), .kind = OPT_ENUM, \
		.choices = "any|ipv4|ipv6|both"                                                    \
	}
/* clang-format on */

static const struct opt mesh_rows[] = {
	{ FIELD(config_mesh, range), .kind = OPT_LIST, .def = "10.77.0.0/24" },
	{ FIELD(config_mesh, port), .kind = OPT_INT, .def = "51820", .lo = 1, .hi = 65535 },
	{ FIELD(config_mesh, mtu), .kind = OPT_INT, .def = "1420", .lo = 1280, .hi = 9000 },
	{ FIELD(config_mesh, hub), .kind = OPT_STR },
	{ FIELD(config_mesh, interface), .kind = OPT_STR, .def = "hsmesh" },
	{ FIELD(config_mesh, key_file), .kind = OPT_STR, .def = "/etc/wireguard/heteroshard.key" },
	{ FIELD(config_mesh, dir), .kind = OPT_STR, .def = "mesh", .arg = "DIR" },
};

static const struct opt coordinator_rows[] = {
	{ FIELD(config_coordinator, hostname), .kind = OPT_STR },
	{ FIELD(config_coordinator, ip), .kind = OPT_STR },
	{ FIELD(config_coordinator, port), .kind = OPT_INT, .lo = 1, .hi = 65535 },
	{ FIELD(config_coordinator, device), .kind = OPT_STR },
	{ FIELD(config_coordinator, public_key), .kind = OPT_STR },
	{ FIELD(config_coordinator, listen), .kind = OPT_ENUM, .choices = "all|ip" },
	LIMITS(config_coordinator),
	MESHED(config_coordinator),
};

static const struct opt worker_rows[] = {
	{ FIELD(config_worker, id), .kind = OPT_STR },
	{ FIELD(config_worker, hostname), .kind = OPT_STR },
	{ FIELD(config_worker, ip), .kind = OPT_STR },
	{ FIELD(config_worker, port), .kind = OPT_INT, .def = "9999", .lo = 1, .hi = 65535 },
	{ FIELD(config_worker, device), .kind = OPT_STR, .def = "auto" },
	{ FIELD(config_worker, num_gpus), .kind = OPT_INT, .def = "1", .lo = 0, .hi = 1024 },
	{ FIELD(config_worker, public_key), .kind = OPT_STR },
	{ FIELD(config_worker, listen), .kind = OPT_ENUM, .def = "all", .choices = "all|ip" },
	{ FIELD(config_worker, spare), .kind = OPT_BOOL },
	{ FIELD(config_worker, ssh), .kind = OPT_STR },
	LIMITS(config_worker),
	MESHED(config_worker),
};

static const struct opt shard_rows[] = {
	{ FIELD(config_shard, id), .kind = OPT_LIST },
	{ .key = "share", .offset = offsetof(struct config_shard, shares), .kind = OPT_LIST },
	{ .key = "state_share", .offset = offsetof(struct config_shard, states), .kind = OPT_LIST },
	{ .key = "micro_batch_size",
	  .offset = offsetof(struct config_shard, sizes),
	  .kind = OPT_LIST },
	{ FIELD(config_shard, experts), .kind = OPT_LIST },
	{ FIELD(config_shard, start), .kind = OPT_INT, .def = "-1", .lo = -1, .hi = 100000 },
	{ FIELD(config_shard, end), .kind = OPT_INT, .def = "-1", .lo = -1, .hi = 100000 },
	{ FIELD(config_shard, is_last), .kind = OPT_BOOL },
};

/* A list of mappings, each read through `rows` into one of `size` bytes. */
static int read_list(struct config *c, const char *key, const struct yaml_node *n, const char *file,
		     const struct opt *rows, size_t nrows, size_t size, void **item_p, size_t *n_p,
		     struct err *e)
{
	if (n->kind != YAML_LIST)
		return err_set(e, ERR_USAGE, "%s:%d: '%s' must be a list", file, n->line, key);
	if (n->count > MAX_ENTRIES)
		return err_set(e, ERR_USAGE, "%s:%d: '%s' has %zu entries, %d are allowed", file,
			       n->line, key, n->count, MAX_ENTRIES);
	char *item = arena_alloc(&c->arena, (n->count ? n->count : 1) * size);
	if (!item)
		return err_nomem(e, n->count * size, key);
	for (size_t i = 0; i < n->count; i++) {
		if (n->child[i]->kind != YAML_MAP)
			return err_set(e, ERR_USAGE, "%s:%d: an entry of '%s' must be a mapping",
				       file, n->child[i]->line, key);
		TRY(opt_defaults(rows, nrows, item + i * size, &c->arena, e));
		TRY(opt_set_yaml(rows, nrows, item + i * size, n->child[i], file, NULL, NULL,
				 &c->arena, e));
	}
	*item_p = item;
	*n_p = n->count;
	return 0;
}

/* A number from `lo` to `hi` for each worker of a group; *v_p stays NULL where none is given. */
static int read_numbers(struct config *c, const struct config_shard *s, const char *key,
			const struct opt_list *l, int lo, int hi, const char *file, int line,
			const int **v_p, struct err *e)
{
	if (!l->n)
		return 0;
	if (l->n != s->homes)
		return err_set(e, ERR_USAGE,
			       "%s:%d: '%s' lists %zu and 'id' lists %zu: a number for each worker",
			       file, line, key, l->n, s->homes);
	int *v = arena_alloc(&c->arena, s->id.n * sizeof *v);
	if (!v)
		return err_nomem(e, s->id.n * sizeof *v, "the shard plan");
	for (size_t k = 0; k < s->homes; k++) { /* 0 for those that have experts alone */
		char *end;
		const char *text = l->item[k];
		long n = strtol(text, &end, 10);
		if (!text[0] || *end || n < lo || n > hi)
			return err_set(e, ERR_USAGE,
				       "%s:%d: '%s' of '%.60s' is '%.40s': a whole number from %d "
				       "to %d was expected",
				       file, line, key, s->id.item[k], text, lo, hi);
		v[k] = (int)n;
	}
	*v_p = v;
	return 0;
}

/* `state_share` of a group: fractions whose sum is 1. */
static int read_states(struct config *c, struct config_shard *s, const char *file, int line,
		       struct err *e)
{
	double sum = 0;
	if (!s->states.n)
		return 0;
	if (s->states.n != s->id.n)
		return err_set(
			e, ERR_USAGE,
			"%s:%d: 'state_share' lists %zu and 'id' lists %zu: a number for each "
			"worker",
			file, line, s->states.n, s->id.n);
	double *v = arena_alloc(&c->arena, s->id.n * sizeof *v);
	if (!v)
		return err_nomem(e, s->id.n * sizeof *v, "the shard plan");
	for (size_t k = 0; k < s->id.n; k++) {
		char *end;
		const char *text = s->states.item[k];
		v[k] = strtod(text, &end);
		if (!text[0] || *end || !(v[k] >= 0 && v[k] <= 1))
			return err_set(
				e, ERR_USAGE,
				"%s:%d: 'state_share' of '%.60s' is '%.40s': a number from 0 "
				"to 1 was expected",
				file, line, s->id.item[k], text);
		sum += v[k];
	}
	if (fabs(sum - 1) > 1e-6)
		return err_set(
			e, ERR_USAGE,
			"%s:%d: the numbers of 'state_share' have the sum %.6g: it must be 1", file,
			line, sum);
	s->state = v;
	return 0;
}

/* `share`, `state_share` and `micro_batch_size` of a group, as numbers. */
static int read_shares(struct config *c, struct config_shard *s, const char *file, int line,
		       struct err *e)
{
	int64_t sum = 0;
	TRY(config_experts_read(c, s, file, line, e));
	TRY(read_numbers(c, s, "share", &s->shares, 0, SCHED_MAX_SHARE, file, line, &s->share, e));
	TRY(read_states(c, s, file, line, e));
	TRY(read_numbers(c, s, "micro_batch_size", &s->sizes, 1, PASS_ROWS_MOST, file, line,
			 &s->size, e));
	for (size_t k = 0; s->share && k < s->id.n; k++)
		sum += s->share[k];
	if (s->share && !sum)
		return err_set(e, ERR_USAGE,
			       "%s:%d: the numbers of 'share' are all 0: no worker would compute "
			       "these layers",
			       file, line);
	return 0;
}

/* "all", or a list of names: workers that were invited. *names_p: it was one of these. */
static int read_names(struct config *c, const struct yaml_node *n, const char *file, bool *names_p,
		      struct err *e)
{
	const bool word = n->kind == YAML_SCALAR;
	size_t names = 0;
	c->workers_all = false;
	if (word && strcmp(n->text, "all"))
		return err_set(e, ERR_USAGE,
			       "%s:%d: 'workers' is '%.60s': 'all', a list of names, or a list of "
			       "mappings was expected",
			       file, n->line, n->text);
	for (size_t i = 0; n->kind == YAML_LIST && i < n->count; i++)
		names += n->child[i]->kind == YAML_SCALAR;
	if (!word && !names)
		return 0;
	if (!word && names < n->count)
		return err_set(e, ERR_USAGE,
			       "%s:%d: 'workers' has names and mappings: write names of invited "
			       "machines ('heteroshard peers'), or machines with their addresses",
			       file, n->line);
	if (names > MAX_ENTRIES)
		return err_set(e, ERR_USAGE, "%s:%d: 'workers' has %zu entries, %d are allowed",
			       file, n->line, names, MAX_ENTRIES);
	c->workers = arena_alloc(&c->arena, (names + 1) * sizeof *c->workers);
	if (!c->workers)
		return err_nomem(e, names * sizeof *c->workers, "workers");
	for (size_t i = 0; i < names; i++) {
		c->workers[i] =
			(struct config_worker){ .invited = true,
						.port = 9999,
						.device = "auto",
						.num_gpus = 1,
						.id = arena_strdup(&c->arena, n->child[i]->text) };
		if (!c->workers[i].id)
			return err_nomem(e, 64, "workers");
		c->workers[i].hostname = c->workers[i].id;
	}
	c->nworkers = names;
	c->workers_all = word;
	c->workers_invited = true;
	*names_p = true;
	return 0;
}

static bool empty(const char *s) { return !s || !s[0]; }

/* Workers without an address are invited ones, where `heteroshard up` reaches one of them by ssh or
 * more. */
static int find_invited(struct config *c, const char *file, int line, struct err *e)
{
	size_t n = 0;
	bool by_ssh = false;
	for (size_t i = 0; i < c->nworkers; i++)
		by_ssh |= !empty(c->workers[i].ssh);
	for (size_t i = 0; i < c->nworkers; i++) {
		struct config_worker *w = &c->workers[i];
		w->invited = by_ssh && !empty(w->id) && empty(w->ip) && empty(w->hostname);
		n += w->invited;
		if (w->invited)
			w->hostname = w->id;
		if (w->invited && (w->public_key || w->num_gpus > 1))
			return err_set(e, ERR_USAGE,
				       "%s:%d: worker '%.60s' has no 'ip': it is an invited "
				       "machine, which has one device and no 'public_key' here",
				       file, line, w->id);
	}
	if (n && n < c->nworkers)
		return err_set(e, ERR_USAGE,
			       "%s:%d: some workers have 'ip' or 'hostname', and others none: "
			       "give all of them an address, or none",
			       file, line);
	c->workers_invited = n > 0;
	c->workers_all = false;
	return 0;
}

int config_cluster_read(struct config *c, const char *key, const struct yaml_node *n,
			const char *file, struct err *e)
{
	void *item = NULL;
	if (!strcmp(key, "workers")) {
		bool names = false;
		TRY(read_names(c, n, file, &names, e));
		if (names)
			return 0;
		TRY(read_list(c, key, n, file, worker_rows, ARRAY_LEN(worker_rows),
			      sizeof *c->workers, &item, &c->nworkers, e));
		c->workers = item;
		return find_invited(c, file, n->line, e);
	}
	if (!strcmp(key, "shard_plan")) {
		TRY(read_list(c, key, n, file, shard_rows, ARRAY_LEN(shard_rows),
			      sizeof *c->shard_plan, &item, &c->nshards, e));
		c->shard_plan = item;
		for (size_t i = 0; i < c->nshards; i++)
			TRY(read_shares(c, &c->shard_plan[i], file, n->child[i]->line, e));
		return 0;
	}
	if (n->kind != YAML_MAP)
		return err_set(e, ERR_USAGE, "%s:%d: '%s' must be a mapping", file, n->line, key);
	if (!strcmp(key, "mesh")) {
		TRY(opt_defaults(mesh_rows, ARRAY_LEN(mesh_rows), &c->mesh, &c->arena, e));
		c->mesh.given = true;
		return opt_set_yaml(mesh_rows, ARRAY_LEN(mesh_rows), &c->mesh, n, file, NULL, NULL,
				    &c->arena, e);
	}
	c->coordinator.given = true;
	return opt_set_yaml(coordinator_rows, ARRAY_LEN(coordinator_rows), &c->coordinator, n, file,
			    NULL, NULL, &c->arena, e);
}

/* ---- several cards of one machine ---- */

/* Card k of the machine, where the entry says `device`: "cuda" and "cuda:0" count up from there. */
static const char *card_device(struct config *c, const char *device, int64_t k)
{
	size_t n = strcspn(device, ":");
	if (!strncmp(device, "cpu", n)) /* all processes use the same */
		return device;
	long first = device[n] ? strtol(device + n + 1, NULL, 10) : 0;
	char text[128];
	snprintf(text, sizeof text, "%.*s:%lld", (int)(n < 80 ? n : 80), device,
		 first + (long long)k);
	return arena_strdup(&c->arena, text);
}

static const char *numbered(struct config *c, const char *id, int64_t k)
{
	char text[300];
	snprintf(text, sizeof text, "%.250s.%lld", id, (long long)k);
	return arena_strdup(&c->arena, text);
}

/* Entry i of `workers` as workers ID.0, ID.1, ... */
static int expand_worker(struct config *c, const struct config_worker *w, struct config_worker *to,
			 const char *where, struct err *e)
{
	if (w->port + w->num_gpus - 1 > 65535)
		return err_set(
			e, ERR_USAGE,
			"%s: worker '%.60s' has %lld cards from port %lld on, but there is no "
			"port above 65535",
			where, w->id, (long long)w->num_gpus, (long long)w->port);
	for (int64_t k = 0; k < w->num_gpus; k++) {
		to[k] = *w;
		to[k].num_gpus = 1;
		to[k].port = w->port + k;
		to[k].id = numbered(c, w->id, k);
		to[k].device = card_device(c, w->device, k);
		if (!to[k].id || !to[k].device)
			return err_nomem(e, sizeof *to, "the list of workers");
	}
	return 0;
}

static int one_id(struct config *c, const char *id, struct opt_list *to, struct err *e)
{
	to->item = arena_alloc(&c->arena, sizeof *to->item);
	if (!to->item || !id)
		return err_nomem(e, sizeof *to->item, "the shard plan");
	to->item[0] = id;
	to->n = 1;
	return 0;
}

/* Divides the layers of a worker with n cards evenly over them, in order. */
static int expand_shard(struct config *c, const struct config_shard *s, int64_t n,
			struct config_shard *to, const char *where, struct err *e)
{
	int64_t layers = s->end - s->start, at = s->start;
	if (s->start >= 0 && layers > 0 && layers < n)
		return err_set(
			e, ERR_USAGE,
			"%s: 'shard_plan' gives %lld layers to '%.60s', which has %lld cards: "
			"at least one for each",
			where, (long long)layers, s->id.item[0], (long long)n);
	for (int64_t k = 0; k < n; k++) {
		to[k] = (struct config_shard){ .homes = 1,
					       .start = at,
					       .end = k + 1 == n
							      ? s->end
							      : at + layers / n + (k < layers % n),
					       .is_last = s->is_last && k + 1 == n };
		TRY(one_id(c, numbered(c, s->id.item[0], k), &to[k].id, e));
		at = to[k].end;
	}
	return 0;
}

/* In a group, a worker with several cards becomes as many members; each gets its share. */
static int expand_group(struct config *c, const struct config_shard *s, struct config_shard *to,
			const int64_t *cards, struct err *e)
{
	size_t n = 0, at = 0;
	for (size_t k = 0; k < s->id.n; k++)
		n += (size_t)cards[k];
	if (s->own && n > s->id.n)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard_plan' of '%.60s': a worker with several cards together "
			       "with 'experts' is not supported: make it a worker for each card",
			       c->path, s->id.item[0]);
	const char **item = arena_alloc(&c->arena, n * sizeof *item);
	int *share = arena_alloc(&c->arena, n * sizeof *share),
	    *size = arena_alloc(&c->arena, n * sizeof *size);
	double *state = arena_alloc(&c->arena, n * sizeof *state);
	if (!item || !share || !size || !state)
		return err_nomem(e, n * sizeof *item, "the shard plan");
	for (size_t k = 0; k < s->id.n; k++)
		for (int64_t i = 0; i < cards[k]; i++, at++) {
			item[at] = cards[k] > 1 ? numbered(c, s->id.item[k], i) : s->id.item[k];
			share[at] = s->share ? s->share[k] : 1;
			size[at] = s->size ? s->size[k] : 1;
			state[at] = s->state ? s->state[k] / (double)cards[k] : 0;
			if (!item[at])
				return err_nomem(e, 300, "the shard plan");
		}
	*to = *s;
	to->id = (struct opt_list){ item, n };
	to->share = s->share ? share : NULL;
	to->size = s->size ? size : NULL;
	to->state = s->state ? state : NULL;
	to->homes = s->own ? s->homes : n;
	return 0;
}

/* The number of cards in the entry of worker `id`; 1 when there is no such entry. */
static int64_t cards_of(const struct config *c, const char *id)
{
	for (size_t i = 0; i < c->nworkers; i++)
		if (!empty(id) && !empty(c->workers[i].id) && !strcmp(c->workers[i].id, id))
			return c->workers[i].num_gpus > 1 ? c->workers[i].num_gpus : 1;
	return 1;
}

static bool is_worker(const struct config *c, const char *id)
{
	for (size_t i = 0; i < c->nworkers; i++)
		if (!empty(c->workers[i].id) && !strcmp(c->workers[i].id, id))
			return true;
	return false;
}

int config_rank(const char *id)
{
	const char *number =
		strncmp(id, CONFIG_RANK, strlen(CONFIG_RANK)) ? id : id + strlen(CONFIG_RANK);
	char *end;
	long n = strtol(number, &end, 10);
	return number[0] < '0' || number[0] > '9' || *end || n > MAX_ENTRIES ? -1 : (int)n;
}

/* Beside workers a number is one of them that is missing, unless MPI is asked for. */
static bool may_name_ranks(const struct config *c)
{
	return (!c->nworkers && !c->workers_all) || !strcmp(c->transport, "mpi");
}

bool config_names_ranks(const struct config *c)
{
	for (size_t i = 0; i < c->nshards && may_name_ranks(c); i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++) {
			const char *id = c->shard_plan[i].id.item[k];
			if (!empty(id) && !is_worker(c, id) && config_rank(id) >= 0)
				return true;
		}
	return false;
}

/* `id: [1, 2]` names ranks, unless workers are called that. */
static int name_ranks(struct config *c, struct err *e)
{
	for (size_t i = 0; i < c->nshards && may_name_ranks(c); i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++) {
			const char **id = &c->shard_plan[i].id.item[k];
			char text[32];
			if (empty(*id) || is_worker(c, *id) || config_rank(*id) < 0)
				continue;
			snprintf(text, sizeof text, CONFIG_RANK "%d", config_rank(*id));
			*id = arena_strdup(&c->arena, text);
			if (!*id)
				return err_nomem(e, sizeof text, "the shard plan");
		}
	return 0;
}

int config_cluster_expand(struct config *c, const char *where, struct err *e)
{
	size_t nw = 0, ns = 0;
	TRY(name_ranks(c, e));
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *w = &c->workers[i];
		nw += w->num_gpus > 1 && !empty(w->id) && !empty(w->device) ? (size_t)w->num_gpus
									    : 1;
	}
	for (size_t i = 0; i < c->nshards; i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++)
			ns += (size_t)cards_of(c, c->shard_plan[i].id.item[k]);
	if (nw == c->nworkers)
		return 0;
	if (nw > MAX_ENTRIES || ns > MAX_ENTRIES)
		return err_set(e, ERR_USAGE, "%s: %zu workers, %d are allowed", where,
			       nw > ns ? nw : ns, MAX_ENTRIES);
	struct config_worker *w = arena_alloc(&c->arena, nw * sizeof *w);
	struct config_shard *s = arena_alloc(&c->arena, (ns + 1) * sizeof *s);
	if (!w || !s)
		return err_nomem(e, nw * sizeof *w, "the list of workers");
	nw = ns = 0;
	for (size_t i = 0; i < c->nshards; i++) {
		const struct config_shard *from = &c->shard_plan[i];
		if (from->id.n != 1) {
			int64_t *cards = arena_alloc(&c->arena, (from->id.n + 1) * sizeof *cards);
			if (!cards)
				return err_nomem(e, from->id.n * sizeof *cards, "the shard plan");
			for (size_t k = 0; k < from->id.n; k++)
				cards[k] = cards_of(c, from->id.item[k]);
			TRY(expand_group(c, from, &s[ns++], cards, e));
			continue;
		}
		int64_t n = cards_of(c, from->id.item[0]);
		if (n > 1)
			TRY(expand_shard(c, from, n, s + ns, where, e));
		else
			s[ns] = *from;
		ns += (size_t)n;
	}
	for (size_t i = 0; i < c->nworkers; i++) {
		const struct config_worker *from = &c->workers[i];
		bool several = from->num_gpus > 1 && !empty(from->id) && !empty(from->device);
		if (several)
			TRY(expand_worker(c, from, w + nw, where, e));
		else
			w[nw] = *from;
		nw += several ? (size_t)from->num_gpus : 1;
	}
	c->workers = w;
	c->nworkers = nw;
	c->shard_plan = s;
	c->nshards = ns;
	return 0;
}

/* ---- devices ---- */

/* The names that other programs use. */
static const struct {
	const char *word, *say;
} foreign[] = {
	{ "mps", "Apple's Metal is not supported; on a Mac write opencl or cpu" },
	{ "metal", "Apple's Metal is not supported; on a Mac write opencl or cpu" },
	{ "rocm", "AMD cards are written hip, or opencl" },
	{ "amd", "AMD cards are written hip, or opencl" },
	{ "nvidia", "NVIDIA cards are written cuda" },
	{ "xpu", "Intel cards are written opencl" },
	{ "gpu", "write auto, or the backend of the card" },
};

int config_device_check(const char *device, const char *where, const char *what, struct err *e)
{
	char name[40], names[128] = "auto";
	size_t n = strcspn(device, ":"), at = strlen(names);
	const char *say = NULL;
	snprintf(name, sizeof name, "%.*s", (int)(n < 39 ? n : 39), device);
	if (!strcmp(name, "auto") || backend_find(name))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		if (!strcasecmp(foreign[i].word, name))
			say = foreign[i].say;
	for (size_t i = 0; backends[i] && at < sizeof names; i++)
		if (backends[i]->rank)
			at += (size_t)snprintf(names + at, sizeof names - at, ", %s",
					       backends[i]->name);
	return err_set(e, ERR_USAGE,
		       "%s: %s is '%.60s', allowed are: %s%s%s; 'heteroshard devices' on that "
		       "machine lists what it has",
		       where, what, device, names, say ? "; " : "", say ? say : "");
}

static int check_key(const char *key, const char *where, const char *who, struct err *e)
{
	char at[512], checked[KEY_TEXT];
	snprintf(at, sizeof at, "%.300s: 'public_key' of %.120s", where, who);
	return key_parse(key, at, checked, e);
}

static const char *address(const struct config_worker *w)
{
	return !empty(w->ip) ? w->ip : w->hostname;
}

static int check_name(const struct config *c, size_t i, const char *where, struct err *e)
{
	for (size_t k = 0; k < i; k++)
		if (!strcmp(c->workers[k].id, c->workers[i].id))
			return err_set(e, ERR_USAGE, "%s: two workers have the id '%.60s'", where,
				       c->workers[i].id);
	return 0;
}

static int check_worker(const struct config *c, size_t i, const char *where, struct err *e)
{
	const struct config_worker *w = &c->workers[i];
	char who[96];
	if (empty(w->id))
		return err_set(e, ERR_USAGE, "%s: entry %zu of 'workers' has no 'id'", where,
			       i + 1);
	snprintf(who, sizeof who, "worker '%.60s'", w->id);
	if (!strcmp(w->id, "local"))
		return err_set(e, ERR_USAGE,
			       "%s: a worker cannot have the id 'local': it means the "
			       "coordinator's own device",
			       where);
	if (empty(w->device))
		return err_set(e, ERR_USAGE, "%s: 'device' of %s is empty", where, who);
	if (empty(address(w)))
		return err_set(e, ERR_USAGE, "%s: %s has neither 'ip' nor 'hostname'", where, who);
	char of[80];
	snprintf(of, sizeof of, "'device' of %.60s", who);
	TRY(config_device_check(w->device, where, of, e));
	if (w->invited)
		return check_name(c, i, where, e);
	for (size_t k = 0; k < i; k++) {
		const struct config_worker *o = &c->workers[k];
		if (!strcmp(o->id, w->id))
			return err_set(e, ERR_USAGE, "%s: two workers have the id '%.60s'", where,
				       w->id);
		if (o->port == w->port && !strcasecmp(address(o), address(w)))
			return err_set(e, ERR_USAGE,
				       "%s: workers '%.60s' and '%.60s' have the same address "
				       "%.100s:%lld; give each its own port",
				       where, o->id, w->id, address(w), (long long)w->port);
	}
	if (w->public_key)
		TRY(check_key(w->public_key, where, who, e));
	if (!w->public_key != !c->coordinator.public_key)
		return err_set(e, ERR_USAGE,
			       "%s: %s has %s public_key but the coordinator has %s: give all "
			       "machines one, or none",
			       where, who, w->public_key ? "a" : "no",
			       w->public_key ? "none" : "one");
	return 0;
}

/* state_share says how something is shared. */
static int check_states(const struct config *c, const char *where, struct err *e)
{
	for (size_t i = 0; c->shard == SHARD_NOTHING && i < c->nshards; i++)
		if (c->shard_plan[i].state)
			return err_set(
				e, ERR_USAGE,
				"%s: entry %zu of 'shard_plan' has 'state_share', but with "
				"'shard: none' every worker stores all: leave one of them out",
				where, i + 1);
	return 0;
}

/* A worker's id in shard_plan: known, and named once. */
static int check_shard_id(const struct config *c, const char *id, const char *where, struct err *e)
{
	bool known = !strcmp(id, "local") || is_worker(c, id) ||
		     (config_rank(id) >= 0 && may_name_ranks(c));
	if (!known && !c->workers_all)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard_plan' names '%.60s', which is no worker's id "
			       "(and not 'local')",
			       where, id);
	size_t times = 0;
	for (size_t i = 0; i < c->nshards; i++)
		for (size_t k = 0; k < c->shard_plan[i].id.n; k++)
			times += !strcmp(id, c->shard_plan[i].id.item[k]);
	return times < 2 ? 0
			 : err_set(e, ERR_USAGE,
				   "%s: 'shard_plan' names '%.60s' twice: a worker holds one stage",
				   where, id);
}

static int check_shards(const struct config *c, const char *where, struct err *e)
{
	int64_t next = 0;
	for (size_t i = 0; i < c->nshards; i++) {
		const struct config_shard *s = &c->shard_plan[i];
		for (size_t k = 0; k < s->id.n; k++)
			if (empty(s->id.item[k]))
				return err_set(e, ERR_USAGE,
					       "%s: entry %zu of 'shard_plan' has an empty 'id'",
					       where, i + 1);
		if (!s->id.n)
			return err_set(e, ERR_USAGE, "%s: entry %zu of 'shard_plan' has no 'id'",
				       where, i + 1);
		if (s->id.n > SCHED_MAX_GROUP)
			return err_set(e, ERR_USAGE,
				       "%s: entry %zu of 'shard_plan' is a group of %zu workers; "
				       "%d are allowed",
				       where, i + 1, s->id.n, SCHED_MAX_GROUP);
		for (size_t k = 0; k < s->id.n; k++)
			TRY(check_shard_id(c, s->id.item[k], where, e));
		const char *id = s->id.item[0];
		if (s->start < 0 || s->end < 0)
			return err_set(e, ERR_USAGE,
				       "%s: 'shard_plan' of '%.60s' needs 'start' and 'end'", where,
				       id);
		if (s->end <= s->start)
			return err_set(e, ERR_USAGE,
				       "%s: 'shard_plan' of '%.60s' is empty: start %lld, end %lld "
				       "(end is not included)",
				       where, id, (long long)s->start, (long long)s->end);
		if (s->start != next)
			return err_set(e, ERR_USAGE,
				       "%s: 'shard_plan' of '%.60s' starts at layer %lld, but "
				       "layer %lld comes next: %s",
				       where, id, (long long)s->start, (long long)next,
				       s->start > next ? "a gap" : "an overlap");
		bool last = i + 1 == c->nshards;
		if (s->is_last && !last)
			return err_set(e, ERR_USAGE,
				       "%s: 'shard_plan' of '%.60s' has 'is_last: true' but is not "
				       "the last",
				       where, id);
		next = s->end;
	}
	return 0;
}

int config_cluster_check(const struct config *c, const char *where, struct err *e)
{
	const struct config_coordinator *o = &c->coordinator;
	if (c->nworkers && !o->given && !c->workers_invited)
		return err_set(e, ERR_USAGE, "%s: 'workers' are given but no 'coordinator'", where);
	if (o->given && empty(o->ip) && empty(o->hostname) && !c->workers_invited)
		return err_set(e, ERR_USAGE, "%s: 'coordinator' has neither 'ip' nor 'hostname'",
			       where);
	if (empty(o->device))
		return err_set(e, ERR_USAGE, "%s: 'device' of the coordinator is empty", where);
	if (o->given && strcmp(o->device, "none"))
		TRY(config_device_check(o->device, where, "'device' of the coordinator", e));
	if (o->public_key)
		TRY(check_key(o->public_key, where, "the coordinator", e));
	for (size_t i = 0; i < c->nworkers; i++)
		TRY(check_worker(c, i, where, e));
	if (c->nshards && c->plan)
		return err_set(e, ERR_USAGE, "%s: give either 'plan' or 'shard_plan', not both",
			       where);
	TRY(check_states(c, where, e));
	return check_shards(c, where, e);
}
