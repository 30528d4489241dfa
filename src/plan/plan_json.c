/* SPDX-License-Identifier: Apache-2.0 */
/* plan_json.c - writing plan.json, and reading it with all checks. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/deal.h"
#include "plan/cost.h"
#include "plan/worth.h"

#define PLAN_VERSION 1

enum { EXPERTS_LISTED = 1024 };

static void put_str(struct buf *b, const char *key, const char *s)
{
	buf_addf(b, "\"%s\": ", key);
	json_quote(b, s, strlen(s));
}

static void put_num(struct buf *b, const char *key, double v)
{
	buf_addf(b, "\"%s\": ", key);
	json_number(b, v);
}

static void put_member(const struct profile *p, const struct plan_member *m, struct buf *b)
{
	buf_adds(b, "    {");
	put_str(b, "id", p->device[m->device].id);
	buf_adds(b, ", ");
	put_str(b, "host", p->host[p->device[m->device].host].name);
	buf_addf(b, ", \"microbatch\": %d, \"microbatches\": %d, \"samples\": %d, ", m->microbatch,
		 m->microbatches, m->samples);
	if (m->share)
		buf_addf(b, "\"share\": %d, ", m->share);
	put_num(b, "state_share", m->state_share);
	buf_adds(b, ",\n     ");
	put_num(b, "memory_gib", m->memory_gib);
	buf_adds(b, ", ");
	put_num(b, "memory_limit_gib", m->limit_gib);
	if (m->host_gib > 0) {
		buf_adds(b, ", ");
		put_num(b, "host_gib", m->host_gib);
	}
	if (m->links_gib > 0) {
		buf_adds(b, ", ");
		put_num(b, "links_gib", m->links_gib);
	}
	buf_adds(b, ", ");
	put_num(b, "busy", m->busy);
	buf_adds(b, ", ");
	put_num(b, "copy", m->copy);
	buf_adds(b, ", ");
	put_num(b, "wait", m->wait);
	buf_adds(b, ", ");
	put_num(b, "bubble", m->bubble);
	buf_addc(b, '}');
}

static void put_experts(const struct plan_stage *s, int layers, struct buf *b)
{
	if (!s->deal)
		return;
	const size_t n = (size_t)s->experts;
	bool alike = true;
	for (int l = 1; l < layers; l++)
		alike &= !memcmp(s->deal, s->deal + (size_t)l * n, n);
	buf_addf(b, "\"homes\": %d, \"experts\": [", s->homes);
	for (int l = 0; l < (alike ? 1 : layers); l++) {
		buf_adds(b, alike ? "" : l ? ", [" : "[");
		for (size_t x = 0; x < n; x++)
			buf_addf(b, "%s%d", x ? ", " : "", s->deal[(size_t)l * n + x]);
		buf_adds(b, alike ? "" : "]");
	}
	buf_adds(b, "], ");
}

static void put_energy(const struct profile *p, const struct plan *plan, struct buf *b)
{
	const struct plan_energy e = plan_energy(p, plan);

	if (e.known) {
		buf_adds(b, ",\n ");
		put_num(b, "watts", e.watts);
		buf_adds(b, ",\n ");
		put_num(b, "tokens_per_watt_hour", e.tokens_per_wh);
		buf_addf(b, ",\n \"devices_without_watts\": %d", e.used - e.known);
	}
}

/* One stage whose chunks are as even as possible: then their number says all. */
static bool is_evenly_cut(const struct plan *plan)
{
	const int chunks = plan->chunks, n = plan->first[chunks];
	int first[SCHED_MAX_CHUNKS + 1];

	if (plan->stages > 1 || chunks > SCHED_MAX_CHUNKS)
		return false;
	cost_cut(1, chunks, &n, first);
	return !memcmp(first, plan->first, (size_t)(chunks + 1) * sizeof *first);
}

void plan_to_json(const struct profile *p, const struct plan *plan, struct buf *b)
{
	buf_addf(b, "{\n \"version\": %d,\n ", PLAN_VERSION);
	put_str(b, "planner", plan->planner);
	buf_adds(b, ",\n ");
	put_str(b, "model", p->model);
	buf_addf(b, ",\n \"layers\": %d,\n \"sequence_len\": %d,\n \"global_batch\": %d,\n ",
		 p->layers, p->sequence_len, p->global_batch);
	put_str(b, "dtype", p->dtype);
	buf_addf(b,
		 ",\n \"schedule\": \"%s\",\n \"chunks\": %d,\n \"microbatch\": %d,\n "
		 "\"microbatches\": %d,\n ",
		 plan->sched->name, plan->chunks, plan->microbatch, plan->microbatches);
	if (plan->reducer)
		buf_addf(b, "\"reduce\": \"%s\",\n ", plan->reducer->name);
	for (int i = 0; plan->pass && i < plan->microbatches; i++)
		buf_addf(b, "%s%d%s", i ? ", " : "\"passes\": [", plan->pass[i],
			 i + 1 == plan->microbatches ? "],\n " : "");
	if (plan->offload)
		buf_addf(b, "\"offload\": %u,\n ", plan->offload);
	put_num(b, "predicted_ms", plan->predicted_ms);
	buf_adds(b, ",\n ");
	put_num(b, "simulated_ms", plan->simulated_ms);
	if (!isnan(plan->objective_ms)) {
		buf_adds(b, ",\n ");
		put_num(b, "objective_ms", plan->objective_ms);
	}
	buf_adds(b, ",\n ");
	put_num(b, "tokens_per_second", plan->tokens_per_s);
	if (profile_estimated(p))
		buf_adds(b, ",\n \"estimated\": true");
	put_energy(p, plan, b);
	buf_addf(b, ",\n \"fits\": %s,\n \"executable\": %s,\n", plan->fits ? "true" : "false",
		 plan->executable ? "true" : "false");
	if (!plan->executable) {
		buf_addc(b, ' ');
		put_str(b, "why_not", plan->why_not);
		buf_adds(b, ",\n");
	}
	buf_adds(b, " \"stages\": [\n");
	const int entries = is_evenly_cut(plan) ? 1 : plan->stages * plan->chunks;
	for (int v = 0; v < entries; v++) {
		const struct plan_stage *s = &plan->stage[v % plan->stages];
		buf_addf(b, "%s  {\"layers\": [%d, %d], \"recompute\": %s, \"sharded\": %s, ",
			 v ? ",\n" : "", plan->first[v],
			 entries == 1 ? p->layers : plan->first[v + 1],
			 s->recompute ? "true" : "false", s->sharded ? "true" : "false");
		put_experts(s, plan_layers(plan, v % plan->stages), b);
		buf_adds(b, "\"devices\": [\n");
		for (int i = 0; i < s->members; i++) {
			if (i)
				buf_adds(b, ",\n");
			put_member(p, &s->member[i], b);
		}
		buf_adds(b, "]}");
	}
	buf_adds(b, "\n ],\n \"left_out\": [");
	for (int i = 0; i < plan->left_outs; i++) {
		const char *id = p->device[plan->left_out[i]].id;
		buf_adds(b, i ? ", " : "");
		json_quote(b, id, strlen(id));
	}
	buf_adds(b, "],\n ");
	put_num(b, "search_ms", plan->search_ms);
	buf_adds(b, "\n}\n");
}

/* ---- reading ---- */

static int read_member(const struct profile *p, const json_t *o, const char *at,
		       const struct plan *plan, bool alone, struct plan_member *m, struct err *e)
{
	const char *id = NULL;
	int64_t size = plan->microbatch, count = alone ? plan->microbatches : -1, share = 0;

	TRY(json_need_str(o, at, "id", &id, e));
	m->device = profile_find(p, id);
	if (m->device < 0)
		return err_set(e, ERR_INPUT, "%s: device '%s' is not in the profile", at, id);
	if (!alone) {
		TRY(json_opt_int(o, at, "microbatch", 1, p->global_batch, &size, e));
		TRY(json_opt_int(o, at, "microbatches", 0, p->global_batch, &count, e));
		TRY(json_opt_int(o, at, "share", 0, SCHED_MAX_SHARE, &share, e));
		TRY(json_opt_num(o, at, "state_share", 0, 1, &m->state_share, e));
	}
	m->microbatch = (int)size;
	m->microbatches = (int)count;
	m->share = (int)share;
	return 0;
}

/* Where only shares are given: deals the microbatches. */
static int deal(const char *at, const struct plan *plan, struct plan_stage *s, struct err *e)
{
	int64_t sum = 0;
	int counted = 0;
	for (int i = 0; i < s->members; i++) {
		sum += s->member[i].share;
		counted += s->member[i].microbatches >= 0;
	}
	if (counted == s->members)
		return 0;
	if (counted || !sum || s->members > SCHED_MAX_GROUP)
		return err_set(
			e, ERR_INPUT,
			"%s: each device of a group needs 'microbatches', or each a 'share', "
			"which are not all 0",
			at);
	int share[SCHED_MAX_GROUP], count[SCHED_MAX_GROUP];
	for (int i = 0; i < s->members; i++)
		share[i] = s->member[i].share;
	sched_dealt(share, s->members, plan->microbatches, count);
	for (int i = 0; i < s->members; i++)
		s->member[i].microbatches = count[i];
	return 0;
}

/* The places of a layer's experts. */
static int read_places(const struct profile *p, const json_t *list, const char *at, int members,
		       size_t n, uint8_t *place, struct err *e)
{
	if (!json_is_array(list) || !n || n > EXPERTS_LISTED || members > DEAL_HOME ||
	    json_array_size(list) != n)
		return err_set(e, ERR_INPUT,
			       "%s: 'experts' must list 1 to %d places, or as many for each layer",
			       at, EXPERTS_LISTED);
	if (p->experts && n != (size_t)p->experts)
		return err_set(
			e, ERR_INPUT,
			"%s: 'experts' lists %zu places; a layer of the model has %d experts", at,
			n, p->experts);
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(list, i);
		const json_int_t v = json_is_integer(x) ? json_integer_value(x) : -1;
		if (v < 0 || v >= members)
			return err_set(e, ERR_INPUT, "%s: expert %zu is on none of the %d devices",
				       at, i, members);
		place[i] = (uint8_t)v;
	}
	return 0;
}

/* `experts` and `homes` of a stage: a list of places, or one for each layer. */
static int read_experts(const struct profile *p, const json_t *o, const char *at, struct plan *plan,
			int stage, struct err *e)
{
	const json_t *list = json_object_get(o, "experts");
	struct plan_stage from = plan->stage[stage];
	int64_t homes = 1;
	if (!list)
		return 0;
	const bool each = json_is_array(json_array_get(list, 0));
	const size_t n = json_array_size(each ? json_array_get(list, 0) : list),
		     layers = (size_t)(plan->first[stage + 1] - plan->first[stage]);
	TRY(json_opt_int(o, at, "homes", 1, from.members, &homes, e));
	if (each && json_array_size(list) != layers)
		return err_set(e, ERR_INPUT, "%s: 'experts' has lists for %zu of %zu layers", at,
			       json_array_size(list), layers);
	uint8_t *place = arena_alloc(&plan->mem, layers * EXPERTS_LISTED);
	if (!place)
		return err_nomem(e, layers * EXPERTS_LISTED, "a plan");
	for (size_t l = 0; l < layers; l++)
		TRY(read_places(p, each ? json_array_get(list, l) : list, at, from.members, n,
				place + l * n, e));
	for (int i = (int)homes; i < from.members; i++)
		if (from.member[i].share || from.member[i].microbatches > 0)
			return err_set(e, ERR_INPUT,
				       "%s: device %d is behind the %lld homes and has "
				       "microbatches",
				       at, i, (long long)homes);
	from.deal = place;
	from.experts = (int)n;
	from.homes = (int)homes;
	return plan_deal_experts(plan, stage, &from, e);
}

static int read_stage(const struct profile *p, const json_t *list, int v, const char *where,
		      struct plan *plan, struct err *e)
{
	const json_t *o = json_array_get(list, (size_t)v), *layers = json_object_get(o, "layers"),
		     *devices = json_object_get(o, "devices");
	struct plan_stage *s = &plan->stage[v % plan->stages];
	json_int_t from, to;
	char at[200];

	snprintf(at, sizeof at, "%.160s: stage %d", where, v + 1);
	if (!json_is_array(layers) || json_array_size(layers) != 2 ||
	    !json_is_integer(json_array_get(layers, 0)) ||
	    !json_is_integer(json_array_get(layers, 1)))
		return err_set(e, ERR_INPUT, "%s: 'layers' must be [first, last)", at);
	from = json_integer_value(json_array_get(layers, 0));
	to = json_integer_value(json_array_get(layers, 1));
	if (to <= from || from < 0 || to > p->layers)
		return err_set(e, ERR_INPUT, "%s: layers [%lld, %lld) of a model with %d", at,
			       (long long)from, (long long)to, p->layers);
	if (from != plan->first[v])
		return err_set(e, ERR_INPUT,
			       "%s: begins at layer %lld, the previous stage ends at %d: layers "
			       "must be covered once, without gaps",
			       at, (long long)from, plan->first[v]);
	plan->first[v + 1] = (int)to;
	if (v >= plan->stages) {
		for (size_t i = 0; i < (size_t)s->members; i++) {
			const char *id = json_string_value(
				json_object_get(json_array_get(devices, i), "id"));
			if (json_array_size(devices) != (size_t)s->members || !id ||
			    profile_find(p, id) != s->member[i].device)
				return err_set(
					e, ERR_INPUT,
					"%s: with %d chunks it must name the devices of stage %d",
					at, plan->chunks, v % plan->stages + 1);
		}
		return 0;
	}
	TRY(json_opt_bool(o, at, "recompute", &s->recompute, e));
	TRY(json_opt_bool(o, at, "sharded", &s->sharded, e));
	if (!json_is_array(devices) || json_array_size(devices) < 1 ||
	    json_array_size(devices) > (size_t)p->devices)
		return err_set(e, ERR_INPUT, "%s: 'devices' must list 1 to %d devices", at,
			       p->devices);
	TRY(plan_stage_members(plan, v, (int)json_array_size(devices), e));
	for (int i = 0; !s->sharded && i < s->members; i++)
		s->member[i].state_share = 1; /* each has all of it */
	for (int i = 0; i < s->members; i++)
		TRY(read_member(p, json_array_get(devices, (size_t)i), at, plan,
				s->members == 1 && !s->sharded, &s->member[i], e));
	TRY(deal(at, plan, s, e));
	return read_experts(p, o, at, plan, v, e);
}

/* `passes`: at most the global batch, so the list is as long at most. *pass_p is the caller's. */
static int read_passes(const struct profile *p, const json_t *doc, const char *where, int **pass_p,
		       int *n_p, struct err *e)
{
	const json_t *list = json_object_get(doc, "passes");
	const size_t n = json_array_size(list);
	int64_t rows = 0;

	if (!list)
		return 0;
	if (!json_is_array(list) || n < 1 || n > (size_t)p->global_batch)
		return err_set(e, ERR_INPUT, "%s: 'passes' must list 1 to %d numbers of rows",
			       where, p->global_batch);
	int *v = mem_array(n, sizeof *v);
	if (!v)
		return err_nomem(e, n * sizeof *v, "a plan");
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(list, i);
		const json_int_t k = json_integer_value(x);
		v[i] = json_is_integer(x) && k >= 1 && k <= p->global_batch ? (int)k : 0;
		rows = v[i] && rows >= 0 ? rows + v[i] : -1;
	}
	if (rows != p->global_batch) {
		mem_free(v);
		return err_set(e, ERR_INPUT,
			       "%s: 'passes' must be whole numbers from 1 on whose sum is the "
			       "global batch of %d",
			       where, p->global_batch);
	}
	*pass_p = v;
	*n_p = (int)n;
	return 0;
}

/* In one stage whose members have microbatches of their own: the passes in the order in which they
 * are dealt. */
static int passes_of_members(struct plan *plan, int **pass_p, int *n_p, struct err *e)
{
	const struct plan_stage *s = &plan->stage[0];
	int share[SCHED_MAX_GROUP];
	int64_t n = 0;
	bool own = false;

	if (plan->stages > 1 || (s->sharded && !plan->sched->gathers) || s->members < 2 ||
	    s->members > SCHED_MAX_GROUP)
		return 0;
	for (int i = 0; i < s->members; i++) {
		n += s->member[i].microbatches;
		own = own || s->member[i].microbatch != plan->microbatch;
	}
	if (!own || n < 1 || n > SCHED_MAX_MICROBATCHES)
		return 0;
	int *v = mem_array((size_t)n, sizeof *v);
	if (!v)
		return err_nomem(e, (size_t)n * sizeof *v, "a plan");
	for (int i = 0; i < s->members; i++)
		share[i] = s->member[i].microbatches;
	sched_deal(share, s->members, (int)n, v);
	for (int64_t i = 0; i < n; i++)
		v[i] = s->member[v[i]].microbatch;
	*pass_p = v;
	*n_p = (int)n;
	return 0;
}

/* The passes of the file, of its members, or of the job; they must be the job's. */
static int set_passes(const struct plan_options *o, const char *where, int *pass, int n,
		      struct plan *plan, struct err *e)
{
	const int *v = pass ? pass : o->pass;
	if (!v)
		return 0;
	if (!pass)
		n = o->passes;
	if (o->pass && (n != o->passes || memcmp(v, o->pass, (size_t)n * sizeof *v) != 0)) {
		char mine[160], jobs[160];
		sched_passes_text(v, (size_t)n, mine, sizeof mine);
		sched_passes_text(o->pass, (size_t)o->passes, jobs, sizeof jobs);
		return err_set(e, ERR_USAGE,
			       "%s: the plan has passes of %s rows and the job of %s ('passes'): "
			       "give both the same",
			       where, mine, jobs);
	}
	return plan_set_passes(plan, v, n, e);
}

static int read_plan(const struct profile *p, const struct plan_options *o, const json_t *doc,
		     const char *where, struct plan *plan, int **pass_p, struct err *e)
{
	int passes = 0;
	const json_t *stages = json_object_get(doc, "stages");
	const char *sched = "1f1b", *name = "manual", *reduce = NULL;
	int64_t version = PLAN_VERSION, chunks = 1,
		microbatch = o->microbatch > 0 ? o->microbatch : 1, layers = p->layers;
	size_t n = json_array_size(stages);

	if (!json_is_object(doc))
		return err_set(e, ERR_INPUT, "%s: a plan is a JSON object", where);
	if (!stages || json_object_get(doc, "predicted_seconds"))
		return err_set(e, ERR_INPUT,
			       "%s: this is %s; a plan was expected, as 'heteroshard plan' writes "
			       "it (plan.json)",
			       where,
			       stages                            ? "the prediction of a run"
			       : json_object_get(doc, "devices") ? "a profile"
								 : "no plan, it has no 'stages'");
	TRY(json_opt_int(doc, where, "version", 0, INT64_MAX, &version, e));
	if (version != PLAN_VERSION)
		return err_set(e, ERR_INPUT, "%s: plan version %lld, this program reads version %d",
			       where, (long long)version, PLAN_VERSION);
	TRY(json_opt_int(doc, where, "layers", 1, INT32_MAX, &layers, e));
	if (layers != p->layers)
		return err_set(e, ERR_INPUT,
			       "%s: a plan for a model of %lld layers; this one has %d", where,
			       (long long)layers, p->layers);
	TRY(json_opt_str(doc, where, "planner", &name, e));
	TRY(json_opt_str(doc, where, "schedule", &sched, e));
	TRY(json_opt_int(doc, where, "chunks", 1, SCHED_MAX_CHUNKS, &chunks, e));
	TRY(json_opt_int(doc, where, "microbatch", 1, p->global_batch, &microbatch, e));
	plan->planner = arena_strdup(&plan->mem, name);
	if (!plan->planner)
		return err_set(e, ERR_NOMEM, "out of memory for a plan");
	plan->sched = sched_find(sched);
	if (!plan->sched)
		return err_set(e, ERR_INPUT, "%s: unknown schedule '%s'", where, sched);
	TRY(json_opt_str(doc, where, "reduce", &reduce, e));
	plan->reducer = reduce ? reducer_find(reduce) : NULL;
	if (reduce && !plan->reducer)
		return err_set(e, ERR_INPUT, "%s: unknown way of adding up '%s'", where, reduce);
	plan->microbatch = (int)microbatch;
	if (p->global_batch % plan->microbatch)
		return err_set(e, ERR_INPUT,
			       "%s: a microbatch of %d does not divide the global batch of %d",
			       where, plan->microbatch, p->global_batch);
	plan->microbatches = p->global_batch / plan->microbatch;
	TRY(read_passes(p, doc, where, pass_p, &passes, e));
	if (*pass_p || o->pass)
		plan->microbatches = *pass_p ? passes : o->passes;
	const bool whole = n == 1 && chunks > 1 && chunks <= p->layers;
	if (!json_is_array(stages) || n < 1 || n > (size_t)p->layers ||
	    (!whole && n % (size_t)chunks))
		return err_set(
			e, ERR_INPUT,
			"%s: 'stages' must list at most %d stages, a multiple of the %lld chunks, "
			"or one",
			where, p->layers, (long long)chunks);
	TRY(plan_alloc(plan, whole ? 1 : (int)n / (int)chunks, (int)chunks, e));
	for (int v = 0; v < (int)n; v++)
		TRY(read_stage(p, stages, v, where, plan, e));
	if (plan->first[n] != p->layers)
		return err_set(e, ERR_INPUT, "%s: layers %d to %d are in no stage", where,
			       plan->first[n], p->layers);
	if (whole)
		cost_cut(1, (int)chunks, &p->layers, plan->first);
	if (!*pass_p)
		TRY(passes_of_members(plan, pass_p, &passes, e));
	if (set_passes(o, where, *pass_p, passes, plan, e) < 0)
		return e->code;
	if (plan_check(p, plan, e) < 0)
		return err_prefix(e, "%s", where);
	TRY(plan_simulate(p, o, plan, e));
	plan->predicted_ms = plan->simulated_ms;
	return 0;
}

int plan_read_text(const struct profile *p, const struct plan_options *o, const char *text,
		   size_t n, const char *where, struct plan *out, struct err *e)
{
	json_t *doc = NULL;
	int rc;

	TRY(json_parse_text_in(text, n, where, JSON_MEMORY_TABLE, &doc, e));
	*out = (struct plan){ .mem = ARENA_INIT, .objective_ms = NAN, .over_device = -1 };
	int *pass = NULL;
	rc = read_plan(p, o, doc, where, out, &pass, e);
	mem_free(pass);
	json_decref(doc);
	if (rc < 0)
		plan_release(out);
	return rc;
}

int plan_read_file(const struct profile *p, const struct plan_options *o, const char *path,
		   struct plan *out, struct err *e)
{
	struct buf b = BUF_INIT;
	int rc;

	TRY(buf_read_file(&b, path, 64u << 20, e));
	rc = plan_read_text(p, o, b.p, b.n, path, out, e);
	buf_release(&b);
	return rc;
}
