/* SPDX-License-Identifier: Apache-2.0 */
/* profile_json.c - reading (with all checks) and writing profile.json. */
#include "plan/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "plan/profile_ways.h"

#define MAX_MS 1e9 /* eleven days for one layer: more is an error in the file */
#define MAX_GIB 1e6
#define MAX_GBYTES 1e6
#define MAX_FULLEST 1e6

static int nomem(struct err *e) { return err_set(e, ERR_NOMEM, "out of memory for a profile"); }

static int read_text(struct profile *p, const json_t *o, const char *where, const char *key,
		     const char *def, const char **v_p, struct err *e)
{
	const char *s = def;

	TRY(def ? json_opt_str(o, where, key, &s, e) : json_need_str(o, where, key, &s, e));
	if (!*s)
		return err_set(e, ERR_INPUT, "%s: '%s' is empty", where, key);
	*v_p = arena_strdup(&p->mem, s);
	return *v_p ? 0 : nomem(e);
}

static int optional_text(struct profile *p, const json_t *o, const char *where, const char *key,
			 const char **v_p, struct err *e)
{
	const json_t *v = json_object_get(o, key);

	*v_p = NULL;
	return v && !json_is_null(v) ? read_text(p, o, where, key, NULL, v_p, e) : 0;
}

static int list_number(const json_t *v, const char *where, const char *key, const char *what,
		       size_t i, double lo, double hi, double *v_p, struct err *e)
{
	double x;

	if (!json_is_number(v))
		return err_set(e, ERR_INPUT, "%s: '%s': number %zu of '%s' is not a number", where,
			       key, i + 1, what);
	x = json_number_value(v);
	if (!(x >= lo && x <= hi))
		return err_set(e, ERR_INPUT,
			       "%s: '%s': number %zu of '%s' is %g, allowed is %g to %g", where,
			       key, i + 1, what, x, lo, hi);
	*v_p = x;
	return 0;
}

static int read_curve(struct profile *p, const json_t *dev, const char *where, const char *key,
		      bool need, double hi, struct curve *c, struct err *e)
{
	const json_t *o = json_object_get(dev, key), *table, *line;
	double *v = NULL;
	char at[340];

	*c = (struct curve){ 0 };
	if (!o || json_is_null(o)) {
		if (need)
			return err_set(e, ERR_INPUT, "%s: the key '%s' is missing", where, key);
		return 0;
	}
	if (!json_is_object(o))
		return err_set(e, ERR_INPUT,
			       "%s: '%s' must be {\"table\": [..], \"linear\": [slope, intercept]}",
			       where, key);
	table = json_object_get(o, "table");
	line = json_object_get(o, "linear");
	if (table && !json_is_null(table)) {
		size_t n = json_array_size(table);
		if (!json_is_array(table) || n > PROFILE_MAX_TABLE)
			return err_set(e, ERR_INPUT,
				       "%s: '%s': 'table' must be a list of at most %d numbers",
				       where, key, PROFILE_MAX_TABLE);
		v = n > 0 ? arena_alloc(&p->mem, n * sizeof *v) : NULL;
		if (n > 0 && !v)
			return nomem(e);
		for (size_t i = 0; i < n; i++)
			TRY(list_number(json_array_get(table, i), where, key, "table", i, 0, hi,
					&v[i], e));
		c->table = v;
		c->n = (int)n;
	}
	if (line && !json_is_null(line)) {
		if (!json_is_array(line) || json_array_size(line) != 2)
			return err_set(e, ERR_INPUT,
				       "%s: '%s': 'linear' must be [slope, intercept]", where, key);
		TRY(list_number(json_array_get(line, 0), where, key, "linear", 0, 0, hi, &c->slope,
				e));
		TRY(list_number(json_array_get(line, 1), where, key, "linear", 1, -hi, hi,
				&c->intercept, e));
		c->line = true;
		snprintf(at, sizeof at, "%.300s: '%.30s'", where, key);
		TRY(json_opt_num(o, at, "residual", 0, hi, &c->residual, e));
	}
	if (c->n == 0 && !c->line)
		return err_set(e, ERR_INPUT, "%s: '%s' has neither a table nor a line", where, key);
	c->given = true;
	return 0;
}

const char *const profile_times[PROFILE_TIMES] = { "forward_ms",
						   "backward_ms",
						   "embedding_forward_ms",
						   "embedding_backward_ms",
						   "head_forward_ms",
						   "head_backward_ms",
						   "upload_ms",
						   "download_ms",
						   "copy_ms",
						   "warm_forward_ms",
						   "warm_backward_ms",
						   "experts_forward_ms",
						   "experts_backward_ms" };

static int read_sample(const json_t *o, const char *where, struct profile_sample *s, struct err *e)
{
	int64_t m, runs = 1;

	TRY(json_need_int(o, where, "m", 1, PROFILE_MAX_BATCH, &m, e));
	TRY(json_opt_int(o, where, "runs", 1, 1 << 20, &runs, e));
	*s = (struct profile_sample){ .m = (int)m, .runs = (int)runs };
	TRY(json_opt_num(o, where, "spread", 0, MAX_MS, &s->spread, e));
	TRY(json_opt_num(o, where, "drift", -1, MAX_MS, &s->drift, e));
	for (int i = 0; i < PROFILE_TIMES; i++)
		TRY(json_opt_num(o, where, profile_times[i], 0, MAX_MS, &s->ms[i], e));
	return 0;
}

static int read_measured(struct profile *p, const json_t *dev, const char *where,
			 struct profile_measured *m, struct err *e)
{
	const json_t *o = json_object_get(dev, "measured"), *list;
	int64_t units = 0, threads = 0;
	char at[340];

	*m = (struct profile_measured){ 0 };
	if (!o || json_is_null(o))
		return 0;
	snprintf(at, sizeof at, "%.300s: measured", where);
	TRY(read_text(p, o, at, "driver", "unknown", &m->driver, e));
	TRY(json_opt_int(o, at, "units", 0, 1 << 20, &units, e));
	TRY(json_opt_int(o, at, "threads", 0, 1 << 20, &threads, e));
	TRY(json_opt_num(o, at, "residual", -1, MAX_MS, &m->residual, e));
	m->units = (int)units;
	m->threads = (int)threads;
	list = json_object_get(o, "samples");
	if (json_array_size(list) > PROFILE_SAMPLES)
		return err_set(e, ERR_INPUT, "%s: more than %d samples", at, PROFILE_SAMPLES);
	for (size_t i = 0; i < json_array_size(list); i++)
		TRY(read_sample(json_array_get(list, i), at, &m->sample[m->samples++], e));
	return 0;
}

static int host_index(struct profile *p, size_t *cap, const char *name, int *i_p, struct err *e)
{
	for (int i = 0; i < p->hosts; i++)
		if (!strcmp(p->host[i].name, name)) {
			*i_p = i;
			return 0;
		}
	if ((size_t)p->hosts == *cap || p->hosts >= PROFILE_MAX_DEVICES)
		return err_set(e, ERR_INPUT, "more than %d hosts", PROFILE_MAX_DEVICES);
	p->host[p->hosts] = (struct profile_host){ arena_strdup(&p->mem, name), 0, false };
	if (!p->host[p->hosts].name)
		return nomem(e);
	*i_p = p->hosts++;
	return 0;
}

static int read_device(struct profile *p, size_t *hosts, const json_t *o, const char *where,
		       struct profile_device *d, struct err *e)
{
	const char *host = NULL, *id = NULL;
	char at[300];

	TRY(read_text(p, o, where, "id", NULL, &d->id, e));
	id = d->id;
	snprintf(at, sizeof at, "%.160s: device '%.80s'", where, id);
	TRY(read_text(p, o, at, "kind", "unknown", &d->kind, e));
	TRY(json_need_str(o, at, "host", &host, e));
	TRY(host_index(p, hosts, host, &d->host, e));
	d->fixed_gib = d->used_gib = d->host_memory_gib = d->host_update_s = d->rounding = 0;
	d->reserve_gib = -1;
	TRY(json_need_num(o, at, "memory_gib", 1e-6, MAX_GIB, &d->memory_gib, e));
	d->on_host = false;
	TRY(json_opt_bool(o, at, "on_host", &d->on_host, e));
	d->estimated = false;
	d->cores = NULL;
	d->processors = 0;
	TRY(json_opt_num(o, at, "processors", 0, 1e6, &d->processors, e));
	TRY(json_opt_str(o, at, "cores", &d->cores, e));
	d->cores = d->cores ? arena_strdup(&p->mem, d->cores) : NULL;
	if (d->cores && profile_cores(d->cores, NULL) < 1)
		return err_set(e, ERR_INPUT,
			       "%s: 'cores' is '%.40s': write numbers below %d and ranges, such as "
			       "'0-3,8'",
			       at, d->cores, PROFILE_MAX_CORES);
	d->watts = 0;
	TRY(json_opt_bool(o, at, "estimated", &d->estimated, e));
	TRY(json_opt_num(o, at, "watts", 0, 1e6, &d->watts, e));
	TRY(json_opt_num(o, at, "host_memory_gib", 0, MAX_GIB, &d->host_memory_gib, e));
	TRY(json_opt_num(o, at, "host_update_s", 0, 1e6, &d->host_update_s, e));
	TRY(json_opt_num(o, at, "rounding", 0, 1e3, &d->rounding, e));
	TRY(json_opt_num(o, at, "fixed_gib", 0, MAX_GIB, &d->fixed_gib, e));
	TRY(json_opt_num(o, at, "used_gib", 0, MAX_GIB, &d->used_gib, e));
	TRY(json_opt_num(o, at, "reserve_gib", 0, MAX_GIB, &d->reserve_gib, e));
	TRY(read_curve(p, o, at, "forward_ms", true, MAX_MS, &d->forward_ms, e));
	TRY(read_curve(p, o, at, "backward_ms", true, MAX_MS, &d->backward_ms, e));
	TRY(read_curve(p, o, at, "embedding_forward_ms", false, MAX_MS, &d->embedding_forward_ms,
		       e));
	TRY(read_curve(p, o, at, "embedding_backward_ms", false, MAX_MS, &d->embedding_backward_ms,
		       e));
	TRY(read_curve(p, o, at, "head_forward_ms", false, MAX_MS, &d->head_forward_ms, e));
	TRY(read_curve(p, o, at, "head_backward_ms", false, MAX_MS, &d->head_backward_ms, e));
	TRY(read_curve(p, o, at, "experts_forward_ms", false, MAX_MS, &d->experts_forward_ms, e));
	TRY(read_curve(p, o, at, "experts_backward_ms", false, MAX_MS, &d->experts_backward_ms, e));
	TRY(read_curve(p, o, at, "upload_ms", false, MAX_MS, &d->upload_ms, e));
	TRY(read_curve(p, o, at, "download_ms", false, MAX_MS, &d->download_ms, e));
	TRY(read_curve(p, o, at, "copy_ms", false, MAX_MS, &d->copy_ms, e));
	TRY(read_curve(p, o, at, "warm_forward_ms", false, MAX_MS, &d->warm_forward_ms, e));
	TRY(read_curve(p, o, at, "warm_backward_ms", false, MAX_MS, &d->warm_backward_ms, e));
	TRY(read_curve(p, o, at, "activation_gib", false, MAX_GIB, &d->activation_gib, e));
	TRY(read_curve(p, o, at, "kept_gib", false, MAX_GIB, &d->kept_gib, e));
	TRY(read_curve(p, o, at, "head_gib", false, MAX_GIB, &d->head_gib, e));
	TRY(read_curve(p, o, at, "head_kept_gib", false, MAX_GIB, &d->head_kept_gib, e));
	TRY(json_opt_num(o, at, "optimizer_ms", 0, MAX_MS, &d->optimizer_ms, e));
	TRY(json_opt_num(o, at, "embedding_optimizer_ms", 0, MAX_MS, &d->embedding_optimizer_ms,
			 e));
	TRY(json_opt_num(o, at, "head_optimizer_ms", 0, MAX_MS, &d->head_optimizer_ms, e));
	return read_measured(p, o, at, &d->measured, e);
}

static int read_link(struct profile *p, size_t *hosts, const json_t *o, const char *where,
		     struct profile_link *l, struct err *e)
{
	const json_t *pair = json_object_get(o, "hosts");
	const char *a, *b;

	if (!json_is_array(pair) || json_array_size(pair) != 2 ||
	    !json_is_string(json_array_get(pair, 0)) || !json_is_string(json_array_get(pair, 1)))
		return err_set(e, ERR_INPUT, "%s: 'hosts' must be two names", where);
	a = json_string_value(json_array_get(pair, 0));
	b = json_string_value(json_array_get(pair, 1));
	l->latency_ms = 0;
	TRY(json_need_num(o, where, "bandwidth_gbytes_per_s", 1e-9, MAX_GBYTES, &l->bandwidth, e));
	TRY(json_opt_num(o, where, "latency_ms", 0, MAX_MS, &l->latency_ms, e));
	l->reverse_bandwidth = l->bandwidth;
	l->reverse_latency_ms = l->latency_ms;
	TRY(json_opt_num(o, where, "reverse_bandwidth_gbytes_per_s", 1e-9, MAX_GBYTES,
			 &l->reverse_bandwidth, e));
	TRY(json_opt_num(o, where, "reverse_latency_ms", 0, MAX_MS, &l->reverse_latency_ms, e));
	TRY(profile_ways_read(p, o, where, l, e));
	const char *relay = NULL;
	int at = 0;
	TRY(json_opt_str(o, where, "relay", &relay, e));
	if (relay)
		TRY(host_index(p, hosts, relay, &at, e));
	l->relay = relay ? at + 1 : 0;
	if (!strcmp(a, "*") || !strcmp(b, "*")) {
		if (strcmp(a, b))
			return err_set(e, ERR_INPUT, "%s: '*' must stand for both hosts", where);
		l->from = l->to = -1;
		return 0;
	}
	TRY(host_index(p, hosts, a, &l->from, e));
	return host_index(p, hosts, b, &l->to, e);
}

static int list_of(const json_t *doc, const char *where, const char *key, bool need, size_t most,
		   const json_t **v_p, size_t *n_p, struct err *e)
{
	const json_t *v = json_object_get(doc, key);

	*v_p = NULL;
	*n_p = 0;
	if (!v || json_is_null(v))
		return need ? err_set(e, ERR_INPUT, "%s: the key '%s' is missing", where, key) : 0;
	if (!json_is_array(v))
		return err_set(e, ERR_INPUT, "%s: '%s' must be a list", where, key);
	*n_p = json_array_size(v);
	if (*n_p > most)
		return err_set(e, ERR_INPUT, "%s: '%s' has %zu entries, allowed are %zu", where,
			       key, *n_p, most);
	*v_p = v;
	return 0;
}

/* `routing`, for each layer. */
static int read_routing(struct profile *p, const json_t *o, const char *at, struct err *e)
{
	const json_t *list = json_object_get(o, "routing");
	const size_t n = (size_t)p->experts;
	double *picks = list ? mem_array((size_t)p->layers * n + 1, sizeof *picks) : NULL;
	int rc = 0;
	if (!list)
		return 0;
	if (!picks)
		return err_nomem(e, (size_t)p->layers * n * sizeof *picks, "a profile");
	if (!n || json_array_size(list) != (size_t)p->layers)
		rc = err_set(e, ERR_INPUT, "%s: 'routing' must have a list for each of %d layers",
			     at, p->layers);
	for (size_t l = 0; rc >= 0 && l < (size_t)p->layers; l++) {
		const json_t *of = json_array_get(list, l);
		const size_t given = json_array_size(of);
		bool good = json_is_array(of) && (!given || given == n);
		for (size_t x = 0; good && x < given; x++) {
			picks[l * n + x] = json_number_value(json_array_get(of, x));
			good = picks[l * n + x] >= 0 && picks[l * n + x] <= 1e15 &&
			       json_is_number(json_array_get(of, x));
		}
		if (!good)
			rc = err_set(e, ERR_INPUT,
				     "%s: 'routing' of layer %zu must be %zu numbers from 0 on, or "
				     "an empty list",
				     at, l, n);
	}
	if (rc >= 0)
		rc = profile_set_routing(p, picks, e);
	mem_free(picks);
	return rc;
}

static int read_model(struct profile *p, const json_t *doc, const char *where, struct err *e)
{
	const json_t *o = json_object_get(doc, "model");
	char at[200];
	int64_t layers, hidden, experts = 0, top_k = 0;

	snprintf(at, sizeof at, "%.160s: model", where);
	TRY(read_text(p, o, at, "name", "unnamed", &p->model, e));
	TRY(optional_text(p, o, at, "digest", &p->digest, e));
	TRY(json_opt_bool(o, at, "tied", &p->tied, e));
	TRY(json_need_int(o, at, "layers", 1, PROFILE_MAX_LAYERS, &layers, e));
	TRY(json_need_int(o, at, "hidden", 1, 1 << 24, &hidden, e));
	p->layers = (int)layers;
	p->hidden = (int)hidden;
	TRY(json_opt_int(o, at, "experts", 0, PROFILE_MAX_EXPERTS, &experts, e));
	TRY(json_opt_int(o, at, "top_k", 0, experts, &top_k, e));
	TRY(json_opt_num(o, at, "expert_parameters", 0, 1e15, &p->expert_parameters, e));
	p->experts = (int)experts;
	p->top_k = (int)top_k;
	TRY(read_routing(p, o, at, e));
	TRY(json_need_num(o, at, "parameters_per_layer", 0, 1e15, &p->parameters_per_layer, e));
	p->parameters = p->layers * p->parameters_per_layer;
	TRY(json_opt_num(o, at, "parameters", 0, 1e18, &p->parameters, e));
	TRY(json_opt_num(o, at, "embedding_parameters", 0, 1e15, &p->embedding_parameters, e));
	TRY(json_opt_num(o, at, "head_parameters", 0, 1e15, &p->head_parameters, e));
	TRY(json_opt_num(o, at, "layer_gib", 0, MAX_GIB, &p->layer_gib, e));
	TRY(json_opt_num(o, at, "expert_gib", 0, MAX_GIB, &p->expert_gib, e));
	TRY(json_opt_num(o, at, "embedding_gib", 0, MAX_GIB, &p->embedding_gib, e));
	TRY(json_opt_num(o, at, "head_gib", 0, MAX_GIB, &p->head_gib, e));
	TRY(json_opt_num(o, at, "gradient_share", 0, 1, &p->gradient_share, e));
	TRY(json_opt_num(o, at, "layer_state_gib", 0, MAX_GIB, &p->layer_state_gib, e));
	TRY(json_opt_num(o, at, "embedding_state_gib", 0, MAX_GIB, &p->embedding_state_gib, e));
	return json_opt_num(o, at, "head_state_gib", 0, MAX_GIB, &p->head_state_gib, e);
}

static int job(struct profile *p, const json_t *doc, const char *where, struct err *e)
{
	static const char *const known[] = { "float32", "float16", "bfloat16" };
	int64_t version, v;
	const json_t *o;
	bool ok = false;
	char at[200];

	if (!json_is_object(doc))
		return err_set(e, ERR_INPUT, "%s: a profile is a JSON object", where);
	if (!json_object_get(doc, "devices") &&
	    (json_object_get(doc, "stages") || !json_object_get(doc, "version")))
		return err_set(e, ERR_INPUT,
			       "%s: this is %s; a profile was expected, as 'heteroshard profile' "
			       "writes it (profile.json)",
			       where,
			       json_object_get(doc, "stages") ? "a plan or a prediction"
							      : "no profile, it has no 'devices'");
	TRY(json_need_int(doc, where, "version", 0, INT64_MAX, &version, e));
	if (version != PROFILE_VERSION)
		return err_set(e, ERR_INPUT,
			       "%s: profile version %lld, this program reads version %d; measure "
			       "again with 'heteroshard profile'",
			       where, (long long)version, PROFILE_VERSION);
	TRY(read_text(p, doc, where, "source", "unknown", &p->source, e));
	TRY(optional_text(p, doc, where, "program", &p->program, e));
	TRY(optional_text(p, doc, where, "training", &p->training, e));
	TRY(read_text(p, doc, where, "dtype", "float32", &p->dtype, e));
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		ok = ok || !strcmp(p->dtype, known[i]);
	if (!ok)
		return err_set(e, ERR_INPUT, "%s: dtype '%s' is none of float32, float16, bfloat16",
			       where, p->dtype);
	TRY(json_need_int(doc, where, "sequence_len", 1, 1 << 24, &v, e));
	p->sequence_len = (int)v;
	TRY(json_need_int(doc, where, "global_batch", 1, PROFILE_MAX_BATCH, &v, e));
	p->global_batch = (int)v;
	TRY(json_opt_num(doc, where, "wire_bytes", 0.125, 8, &p->wire_bytes, e));
	TRY(json_opt_num(doc, where, "step_ms", 0, MAX_MS, &p->step_ms, e));
	TRY(read_curve(p, doc, where, "fullest", false, MAX_FULLEST, &p->fullest, e));
	TRY(read_model(p, doc, where, e));
	o = json_object_get(doc, "collective");
	if (o && !json_is_null(o)) {
		snprintf(at, sizeof at, "%.160s: collective", where);
		TRY(json_opt_num(o, at, "all_gather_ms", 0, MAX_MS, &p->all_gather_ms, e));
		TRY(json_opt_num(o, at, "reduce_scatter_ms", 0, MAX_MS, &p->reduce_scatter_ms, e));
		p->collective = true;
	}
	return 0;
}

static int read_doc(struct profile *p, const json_t *doc, const char *where, struct err *e)
{
	const json_t *devices, *links, *hosts;
	size_t nd, nl, nh, cap, most = PROFILE_MAX_DEVICES;
	char at[220];

	TRY(job(p, doc, where, e));
	TRY(list_of(doc, where, "devices", true, most, &devices, &nd, e));
	TRY(list_of(doc, where, "links", false, 8 * most * most, &links, &nl, e));
	TRY(list_of(doc, where, "hosts", false, most, &hosts, &nh, e));
	if ((int64_t)nd * p->global_batch > PROFILE_MAX_WORK)
		return err_set(
			e, ERR_INPUT,
			"%s: %zu devices with a global_batch of %d are more than a plan is made "
			"for; at most %d together with so many devices",
			where, nd, p->global_batch, PROFILE_MAX_WORK / (int)nd);
	if ((int64_t)nd * p->layers > PROFILE_MAX_WORK)
		return err_set(
			e, ERR_INPUT,
			"%s: %zu devices for %d layers are more than a plan is made for; at most "
			"%d layers with so many devices",
			where, nd, p->layers, PROFILE_MAX_WORK / (int)nd);
	cap = nd + 2 * nl + nh < most ? nd + 2 * nl + nh : most;
	p->device = arena_alloc(&p->mem, (nd + 1) * sizeof *p->device);
	p->link = arena_alloc(&p->mem, (nl + 1) * sizeof *p->link);
	p->host = arena_alloc(&p->mem, (cap + 1) * sizeof *p->host);
	if (!p->device || !p->link || !p->host)
		return nomem(e);
	for (size_t i = 0; i < nd; i++) {
		snprintf(at, sizeof at, "%.160s: device %zu", where, i + 1);
		TRY(read_device(p, &cap, json_array_get(devices, i), at, &p->device[i], e));
		p->devices++;
	}
	for (size_t i = 0; i < nl; i++) {
		snprintf(at, sizeof at, "%.160s: link %zu", where, i + 1);
		TRY(read_link(p, &cap, json_array_get(links, i), at, &p->link[i], e));
		p->links++;
	}
	for (size_t i = 0; i < nh; i++) {
		const char *name = NULL;
		double card = NAN;
		int h;
		snprintf(at, sizeof at, "%.160s: host %zu", where, i + 1);
		TRY(json_need_str(json_array_get(hosts, i), at, "name", &name, e));
		TRY(json_opt_num(json_array_get(hosts, i), at, "card_gbytes_per_s", 1e-9,
				 MAX_GBYTES, &card, e));
		TRY(host_index(p, &cap, name, &h, e));
		if (!isnan(card)) {
			p->host[h].card = card;
			p->host[h].card_given = true;
		}
	}
	return profile_finish(p, where, e);
}

int profile_read_text(struct profile *p, const char *s, size_t n, const char *where, struct err *e)
{
	json_t *doc = NULL;
	int rc;

	TRY(json_parse_text_in(s, n, where, JSON_MEMORY_TABLE, &doc, e));
	*p = (struct profile){ .mem = ARENA_INIT };
	p->embedding_parameters = p->head_parameters = p->layer_gib = p->embedding_gib =
		p->head_gib = NAN;
	p->layer_state_gib = p->embedding_state_gib = p->head_state_gib = p->wire_bytes = NAN;
	rc = read_doc(p, doc, where, e);
	json_decref(doc);
	if (rc < 0)
		profile_release(p);
	return rc;
}

int profile_read_file(struct profile *p, const char *path, struct err *e)
{
	struct buf b = BUF_INIT;
	int rc;

	TRY(buf_read_file(&b, path, 256u << 20, e));
	rc = profile_read_text(p, b.p, b.n, path, e);
	buf_release(&b);
	return rc;
}

/* ---- writing ---- */

static void put_str(struct buf *b, const char *key, const char *s)
{
	buf_addf(b, "\"%s\": ", key);
	json_quote(b, s, strlen(s));
}

static void put_optional(struct buf *b, const char *before, const char *key, const char *s)
{
	if (!s)
		return;
	buf_adds(b, before);
	put_str(b, key, s);
}

static void put_num(struct buf *b, const char *key, double v)
{
	buf_addf(b, ", \"%s\": ", key);
	json_number(b, v);
}

static void put_curve(struct buf *b, const char *key, const struct curve *c)
{
	if (!c->given)
		return;
	buf_addf(b, ",\n   \"%s\": {", key);
	if (c->n > 0) {
		buf_adds(b, "\"table\": [");
		for (int i = 0; i < c->n; i++) {
			if (i)
				buf_adds(b, ", ");
			json_number(b, c->table[i]);
		}
		buf_adds(b, c->line ? "], " : "]");
	}
	if (c->line) {
		buf_adds(b, "\"linear\": [");
		json_number(b, c->slope);
		buf_adds(b, ", ");
		json_number(b, c->intercept);
		buf_addc(b, ']');
		if (c->residual > 0)
			put_num(b, "residual", c->residual);
	}
	buf_addc(b, '}');
}

static void put_measured(struct buf *b, const struct profile_measured *m)
{
	buf_adds(b, ",\n   \"measured\": {");
	put_str(b, "driver", m->driver);
	buf_addf(b, ", \"units\": %d, \"threads\": %d", m->units, m->threads);
	put_num(b, "residual", m->residual);
	buf_adds(b, ", \"samples\": [");
	for (int i = 0; i < m->samples; i++) {
		const struct profile_sample *s = &m->sample[i];
		buf_addf(b, "%s\n    {\"m\": %d, \"runs\": %d", i ? "," : "", s->m, s->runs);
		put_num(b, "spread", s->spread);
		put_num(b, "drift", s->drift);
		for (int k = 0; k < PROFILE_TIMES; k++)
			put_num(b, profile_times[k], s->ms[k]);
		buf_addc(b, '}');
	}
	buf_adds(b, "]}");
}

static void put_device(const struct profile *p, const struct profile_device *d, struct buf *b)
{
	buf_adds(b, "  {");
	put_str(b, "id", d->id);
	buf_adds(b, ", ");
	put_str(b, "kind", d->kind);
	buf_adds(b, ", ");
	put_str(b, "host", p->host[d->host].name);
	if (d->on_host)
		buf_adds(b, ", \"on_host\": true");
	if (d->estimated)
		buf_adds(b, ", \"estimated\": true");
	if (d->cores) {
		buf_adds(b, ", ");
		put_str(b, "cores", d->cores);
		put_num(b, "processors", d->processors);
	}
	if (d->watts > 0)
		put_num(b, "watts", d->watts);
	put_num(b, "memory_gib", d->memory_gib);
	if (d->host_memory_gib > 0)
		put_num(b, "host_memory_gib", d->host_memory_gib);
	if (d->host_update_s > 0)
		put_num(b, "host_update_s", d->host_update_s);
	if (d->rounding > 0)
		put_num(b, "rounding", d->rounding);
	put_num(b, "fixed_gib", d->fixed_gib);
	put_num(b, "used_gib", d->used_gib);
	if (d->reserve_gib >= 0)
		put_num(b, "reserve_gib", d->reserve_gib);
	put_num(b, "optimizer_ms", d->optimizer_ms);
	put_num(b, "embedding_optimizer_ms", d->embedding_optimizer_ms);
	put_num(b, "head_optimizer_ms", d->head_optimizer_ms);
	put_curve(b, "forward_ms", &d->forward_ms);
	put_curve(b, "backward_ms", &d->backward_ms);
	put_curve(b, "embedding_forward_ms", &d->embedding_forward_ms);
	put_curve(b, "embedding_backward_ms", &d->embedding_backward_ms);
	put_curve(b, "head_forward_ms", &d->head_forward_ms);
	put_curve(b, "head_backward_ms", &d->head_backward_ms);
	put_curve(b, "experts_forward_ms", &d->experts_forward_ms);
	put_curve(b, "experts_backward_ms", &d->experts_backward_ms);
	put_curve(b, "upload_ms", &d->upload_ms);
	put_curve(b, "download_ms", &d->download_ms);
	put_curve(b, "copy_ms", &d->copy_ms);
	put_curve(b, "warm_forward_ms", &d->warm_forward_ms);
	put_curve(b, "warm_backward_ms", &d->warm_backward_ms);
	put_curve(b, "activation_gib", &d->activation_gib);
	put_curve(b, "kept_gib", &d->kept_gib);
	put_curve(b, "head_gib", &d->head_gib);
	put_curve(b, "head_kept_gib", &d->head_kept_gib);
	if (d->measured.driver)
		put_measured(b, &d->measured);
	buf_addc(b, '}');
}

static void put_routing(const struct profile *p, struct buf *b)
{
	if (!p->routing)
		return;
	buf_adds(b, ", \"routing\": [");
	for (int l = 0; l < p->layers; l++) {
		buf_adds(b, l ? ",\n  [" : "\n  [");
		for (int x = 0; x < p->experts; x++)
			buf_addf(b, "%s%.6g", x ? ", " : "", profile_expert_load(p, l, x));
		buf_addc(b, ']');
	}
	buf_addc(b, ']');
}

void profile_write(const struct profile *p, struct buf *b)
{
	bool first = true;

	buf_addf(b, "{\n \"version\": %d,\n ", PROFILE_VERSION);
	put_str(b, "source", p->source);
	put_optional(b, ",\n ", "program", p->program);
	put_optional(b, ",\n ", "training", p->training);
	buf_adds(b, ",\n \"model\": {");
	put_str(b, "name", p->model);
	put_optional(b, ", ", "digest", p->digest);
	if (p->tied)
		buf_adds(b, ", \"tied\": true");
	buf_addf(b, ", \"layers\": %d, \"hidden\": %d", p->layers, p->hidden);
	if (p->experts) {
		buf_addf(b, ", \"experts\": %d, \"top_k\": %d", p->experts, p->top_k);
		put_num(b, "expert_parameters", p->expert_parameters);
		put_routing(p, b);
	}
	put_num(b, "parameters", p->parameters);
	put_num(b, "parameters_per_layer", p->parameters_per_layer);
	put_num(b, "embedding_parameters", p->embedding_parameters);
	put_num(b, "head_parameters", p->head_parameters);
	put_num(b, "layer_gib", p->layer_gib);
	if (p->expert_gib > 0)
		put_num(b, "expert_gib", p->expert_gib);
	put_num(b, "embedding_gib", p->embedding_gib);
	put_num(b, "head_gib", p->head_gib);
	put_num(b, "layer_state_gib", p->layer_state_gib);
	put_num(b, "embedding_state_gib", p->embedding_state_gib);
	put_num(b, "head_state_gib", p->head_state_gib);
	if (p->gradient_share > 0)
		put_num(b, "gradient_share", p->gradient_share);
	buf_addf(b, "},\n \"sequence_len\": %d,\n ", p->sequence_len);
	put_str(b, "dtype", p->dtype);
	buf_addf(b, ",\n \"global_batch\": %d", p->global_batch);
	put_num(b, "wire_bytes", p->wire_bytes);
	put_num(b, "step_ms", p->step_ms);
	put_curve(b, "fullest", &p->fullest);
	buf_adds(b, ",\n \"devices\": [\n");
	for (int i = 0; i < p->devices; i++) {
		if (i)
			buf_adds(b, ",\n");
		put_device(p, &p->device[i], b);
	}
	buf_adds(b, "\n ],\n \"links\": [");
	for (int i = 0; i < p->links; i++) {
		const struct profile_link *l = &p->link[i];
		const char *from = l->from < 0 ? "*" : p->host[l->from].name,
			   *to = l->from < 0 ? "*" : p->host[l->to].name;
		buf_adds(b, i ? ",\n  {\"hosts\": [" : "\n  {\"hosts\": [");
		json_quote(b, from, strlen(from));
		buf_adds(b, ", ");
		json_quote(b, to, strlen(to));
		buf_addc(b, ']');
		put_num(b, "bandwidth_gbytes_per_s", l->bandwidth);
		put_num(b, "latency_ms", l->latency_ms);
		put_num(b, "reverse_bandwidth_gbytes_per_s", l->reverse_bandwidth);
		put_num(b, "reverse_latency_ms", l->reverse_latency_ms);
		put_optional(b, ", ", "relay", l->relay ? p->host[l->relay - 1].name : NULL);
		profile_ways_write(l, b);
		buf_addc(b, '}');
	}
	buf_adds(b, "\n ],\n \"hosts\": [");
	for (int i = 0; i < p->hosts; i++) {
		if (!p->host[i].card_given)
			continue;
		buf_adds(b, first ? "{" : ", {");
		put_str(b, "name", p->host[i].name);
		put_num(b, "card_gbytes_per_s", p->host[i].card);
		buf_addc(b, '}');
		first = false;
	}
	buf_adds(b, "]");
	if (p->collective) {
		buf_adds(b, ",\n \"collective\": {\"all_gather_ms\": ");
		json_number(b, p->all_gather_ms);
		put_num(b, "reduce_scatter_ms", p->reduce_scatter_ms);
		buf_addc(b, '}');
	}
	buf_adds(b, "\n}\n");
}
