/* SPDX-License-Identifier: Apache-2.0 */
/* job_plan.c - see job_plan.h. */
#include "survey/job_plan.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "optim/optim.h"
#include "base/log.h"
#include "plan/cost.h"
#include "plan/fit.h"
#include "plan/offload.h"
#include "sched/sched.h"
#include "survey/reduction.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB 1073741824.0

/* The share of a worker by its measured speed, of experts alone where that is asked: 1000 for the
 * fastest of its group. */
static int share_by_speed(const struct job_plan *p, const struct config_shard *s, size_t k,
			  bool experts)
{
	double least = INFINITY, mine = NAN;
	const int m = p->options.microbatch > 0 ? p->options.microbatch : 1;
	for (size_t i = 0; i < s->id.n; i++) {
		int device = profile_find(&p->profile, s->id.item[i]);
		if (device < 0)
			return 1000;
		const struct profile_device *d = &p->profile.device[device];
		double ms = curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m);
		if (experts && d->experts_forward_ms.given)
			ms = curve_at(&d->experts_forward_ms, m) +
			     curve_at(&d->experts_backward_ms, m);
		if (experts ? !s->own[i] : i >= s->homes)
			continue;
		least = fmin(least, ms);
		mine = i == k ? ms : mine;
	}
	return mine > 0 && least > 0 ? (int)fmax(1, round(1000 * least / mine)) : 1000;
}

/* Who has which experts of an entry. */
static int put_experts(const struct job_plan *p, const struct config *c,
		       const struct config_shard *s, struct buf *b, struct err *e)
{
	uint8_t place[PROFILE_MAX_EXPERTS];
	double speed[SCHED_MAX_GROUP];
	const int n = p->profile.experts;
	const double *routing = p->profile.routing;
	if (!s->own)
		return 0;
	for (size_t k = 0; k < s->id.n; k++)
		speed[k] = s->own[k] ? share_by_speed(p, s, k, true) : 0;
	buf_addf(b, "\"homes\": %zu, \"experts\": [", s->homes);
	for (int64_t l = s->start; l < s->end && l < p->profile.layers; l++) {
		TRY(config_experts_deal(s, n, routing && l >= 0 ? routing + l * n : NULL, speed,
					place, c->path, e));
		buf_adds(b, l > s->start ? ", [" : "[");
		for (int x = 0; x < n; x++)
			buf_addf(b, "%s%d", x ? ", " : "", place[x]);
		buf_addc(b, ']');
	}
	buf_adds(b, "], ");
	return 0;
}

static const struct sched *schedule_of(const struct job_plan *p, const struct config *c)
{
	if (p->options.sched)
		return p->options.sched;
	for (size_t i = 0; i < c->nshards; i++)
		if (c->shard_plan[i].own)
			return &sched_zebra;
	return sched_default();
}

/* shard_plan of the configuration as a plan for the row `manual`. */
static int plan_of_shards(struct job_plan *p, const struct config *c, struct err *e)
{
	int rc = 0;
	struct buf b = BUF_INIT;
	buf_addf(&b, "{\"planner\": \"manual\", \"schedule\": \"%s\", \"stages\": [",
		 schedule_of(p, c)->name);
	for (size_t i = 0; i < c->nshards; i++) {
		const struct config_shard *s = &c->shard_plan[i];
		buf_addf(&b, "%s{\"layers\": [%lld, %lld], ", i ? ", " : "", (long long)s->start,
			 (long long)s->end);
		rc = rc < 0 ? rc : put_experts(p, c, s, &b, e);
		buf_adds(&b, "\"devices\": [");
		for (size_t k = 0; k < s->id.n; k++) {
			buf_adds(&b, k ? ", {\"id\": " : "{\"id\": ");
			json_quote(&b, s->id.item[k], strlen(s->id.item[k]));
			if (s->id.n > 1)
				buf_addf(&b, ", \"share\": %d, \"state_share\": %.9g",
					 k >= s->homes ? 0
					 : s->share    ? s->share[k]
						       : share_by_speed(p, s, k, false),
					 s->state ? s->state[k] : 1);
			buf_adds(&b, "}");
		}
		buf_adds(&b, "]}");
	}
	buf_adds(&b, "]}");
	rc = rc < 0 ? rc : buf_ok(&b, e);
	if (rc >= 0)
		rc = plan_read_text(&p->profile, &p->options, b.p, b.n, c->path, &p->manual, e);
	buf_release(&b);
	return rc;
}

/* `shard: parameters`: one stage is gathered layer by layer; several are cut into as many chunks as
 * `interleave` allows. A plan that has such chunks keeps them. */
static int shard_values(struct plan *plan, const struct config *c, struct err *e)
{
	int most = plan_most_chunks(plan), groups = 0;
	for (int k = 0; k < plan->stages; k++)
		groups += plan->stage[k].members > 1;
	if (!groups)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard: parameters' needs a group: a list of ids in an entry "
			       "of 'shard_plan'",
			       c->path);
	if (plan->stages > 1 && most > c->interleave)
		most = (int)c->interleave;
	if (plan->chunks > 1 && plan->sched->gathers)
		most = plan->chunks;
	return plan_shard_values(plan, most, e);
}

/* `shard` applies to a given plan too: where it says nothing of the state, members get parts of it
 * by their memory. */
static int apply_sharding(struct job_plan *p, const struct config *c, struct err *e)
{
	if (c->shard != SHARD_STATES && c->shard != SHARD_VALUES)
		return 0;
	if (plan_deals_experts(&p->manual))
		return err_set(e, ERR_USAGE,
			       "%s: 'shard' together with experts on other members is not "
			       "supported: leave it out",
			       c->path);
	for (int k = 0; k < p->manual.stages; k++) {
		struct plan_stage *s = &p->manual.stage[k];
		if (!s->sharded && !plan_shares_state(s))
			plan_share_state(&p->profile, &p->options, s);
	}
	return c->shard == SHARD_VALUES ? shard_values(&p->manual, c, e) : 0;
}

/* All workers as one group. */
static int plan_of_all(struct job_plan *p, const struct config *c, struct err *e)
{
	struct config one = *c;
	struct config_shard all = { .start = 0, .end = p->profile.layers };
	const char **id = mem_array((size_t)p->profile.devices, sizeof *id);
	if (!id)
		return err_nomem(e, (size_t)p->profile.devices * sizeof *id, "a plan");
	for (int i = 0; i < p->profile.devices; i++)
		id[i] = p->profile.device[i].id;
	all.id.item = id;
	all.id.n = all.homes = (size_t)p->profile.devices;
	one.shard_plan = &all;
	one.nshards = 1;
	int rc = plan_of_shards(p, &one, e);
	mem_free(id);
	return rc;
}

void job_plan_options(struct job_plan *p, const struct config *c, bool ranks)
{
	p->options = (struct plan_options)PLAN_OPTIONS_DEFAULT;
	p->planner = planner_default();
	if (!c)
		return;
	p->options.microbatch = (int)c->micro_batch_size;
	/* stage_pairs.c, refer.h: a forward pass of the head is half of it, the other half is the
	 * gradient that is computed with it */
	const struct prefer *rl = prefer_find(c->rl);
	const bool refers = rl && rl->reference && !config_refers_first(c);
	p->options.forwards = refers ? 2 : 1;
	p->options.head_forwards = rl ? refers ? 2 : 1.5 : 1;
	p->options.pass = c->pass;
	p->options.passes = (int)c->npass;
	p->options.reserve_gib = c->memory_reserve;
	p->options.max_chunks = (int)c->interleave;
	p->options.recompute =
		c->gradient_checkpointing ? PLAN_RECOMPUTE_ALWAYS : PLAN_RECOMPUTE_AUTO;
	p->options.sched = sched_find(c->schedule); /* auto: the planner chooses */
	p->options.order = reduction_order(c);
	p->options.order_auto = c->reduce_order == ORDER_AUTO;
	p->options.reduce_parts = (int)c->reduce_parts;
	p->options.reduce_half = c->reduce_dtype == REDUCE_BFLOAT16;
	p->options.reducer = reducer_find(c->reduce); /* auto: NULL */
	p->options.collective = ranks && !p->options.reduce_half;
	p->planner = planner_find(c->planner);
	const struct optimizer *optimizer = optimizer_find(c->optimizer);
	p->options.share_auto =
		c->shard == SHARD_AUTO && (!optimizer || optimizer->cut != CUT_NONE);
	p->options.groups = true;
	p->options.offload = c->offload_bits;
	p->options.offload_auto = c->offload_auto;
	p->options.expert_cache_gib = c->expert_cache;
}

int job_plan_given(struct job_plan *p, const struct config *c, const char *file, struct err *e)
{
	if (!file && c)
		file = c->plan;
	const bool values = c && c->shard == SHARD_VALUES && p->profile.devices > 1;
	if (!file && !(c && c->nshards) && !values)
		return 0;
	TRY(file         ? plan_read_file(&p->profile, &p->options, file, &p->manual, e)
	    : c->nshards ? plan_of_shards(p, c, e)
			 : plan_of_all(p, c, e));
	if (c)
		TRY(apply_sharding(p, c, e));
	p->options.manual = &p->manual;
	p->planner = &planner_manual;
	return 0;
}

int job_plan_assume(struct job_plan *p, const struct job *j, const struct seat_spec *seat, int n,
		    struct err *e)
{
	struct buf b = BUF_INIT;
	p->options.groups = false; /* of links nothing is known */
	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"assumed\", \"layers\": %lld, "
		 "\"hidden\": %lld, \"experts\": %lld, \"top_k\": %lld, "
		 "\"parameters\": 1e9, "
		 "\"parameters_per_layer\": 1}, \"sequence_len\": %lld, \"dtype\": \"float32\", "
		 "\"global_batch\": %lld, "
		 "\"devices\": [",
		 (long long)j->model.layers, (long long)j->model.hidden,
		 (long long)j->model.experts, (long long)j->model.top_k,
		 (long long)j->cfg->sequence_len,
		 (long long)(j->cfg->micro_batch_size * j->cfg->gradient_accumulation_steps));
	for (int i = 0; i < n; i++) {
		buf_adds(&b, i ? ", {\"id\": " : "{\"id\": ");
		json_quote(&b, seat[i].id, strlen(seat[i].id));
		if (seat[i].device && !strncmp(seat[i].device, "cpu", 3))
			buf_adds(&b, ", \"on_host\": true");
		buf_adds(&b, ", \"kind\": \"assumed\", \"host\": \"one\", \"memory_gib\": 100000, "
			     "\"kept_gib\": {\"linear\": [0, 0]}, "
			     "\"forward_ms\": {\"linear\": [1, 0]}, \"backward_ms\": {\"linear\": "
			     "[2, 0]}}");
	}
	buf_adds(&b, "], \"links\": []}");
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = profile_read_text(&p->profile, b.p, b.n, "the assumed profile", e);
	buf_release(&b);
	return rc;
}

static void say_offload(const struct job_plan *p)
{
	char text[64];
	plan_offload_text(p->plan.offload, text, sizeof text);
	if (p->plan.offload)
		log_info("%s of devices with a memory of their own are in that of their hosts "
			 "(offload)",
			 text);
	else if (p->options.offload)
		log_info("'offload' changes nothing: the devices are processors, which have no "
			 "memory of their own");
}

int job_plan_make(struct job_plan *p, bool execute, struct err *e)
{
	TRY(planner_run(p->planner, &p->profile, &p->options, &p->plan, e));
	p->options.order = p->plan.order;
	p->options.order_auto = false;
	if (execute)
		say_offload(p);
	if (!execute || p->plan.executable)
		return 0;
	if (!p->plan.fits)
		return plan_over_error(&p->profile, &p->options, &p->plan, e);
	return err_set(e, ERR_USAGE, "the plan of planner '%s' cannot be executed: %s",
		       p->planner->name, p->plan.why_not);
}

void job_plan_release(struct job_plan *p)
{
	plan_release(&p->plan);
	plan_release(&p->manual);
	profile_release(&p->profile);
	*p = (struct job_plan){ 0 };
}

/* The name of a stage's device: only its backend when there is only this process. */
static const char *device_text(const struct seat_spec *seat, const struct welcome *caps,
			       struct arena *a)
{
	if (seat->kind == SEAT_THREAD)
		return seat->device;
	char text[512];
	snprintf(text, sizeof text, "%s on %s (%s)", caps->backend, caps->host, seat->id);
	return arena_strdup(a, text);
}

static int worker_of(const struct job_plan *p, int device, const struct seat_spec *seat, int n,
		     struct err *e)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(seat[i].id, p->profile.device[device].id))
			return i;
	return err_set(
		e, ERR_USAGE,
		"the plan gives layers to device '%s', which belongs to no worker of this job",
		p->profile.device[device].id);
}

/* The places of the experts of a stage's layers. A layer without experts stays at home. */
static void fill_deal(const struct plan *plan, const struct model_config *model, int stage,
		      int experts, uint8_t *deal)
{
	const struct plan_stage *s = &plan->stage[stage];
	for (int l = plan->first[stage]; l < plan->first[stage + 1] && plan->chunks == 1; l++)
		for (int x = 0; x < experts; x++)
			deal[l * experts + x] =
				s->deal && x < s->experts && layer_is_mixture(model, l)
					? s->deal[(l - plan->first[stage]) * s->experts + x]
					: DEAL_HOME;
}

static int millionths(double x) { return (int)lround(x * STATE_WHOLE); }

int job_plan_place(const struct job_plan *p, const struct model_config *model,
		   const struct seat_spec *seat, const struct welcome *caps, int n, struct arena *a,
		   struct placement *place, int *worker, struct err *e)
{
	const struct plan *plan = &p->plan;
	int all = plan->stages * plan->chunks;
	if (all > CHUNKS_MOST)
		return err_set(e, ERR_USAGE, "%d stages with %d chunks each: at most %d in all",
			       plan->stages, plan->chunks, CHUNKS_MOST);
	bool *recompute = arena_alloc(a, (size_t)plan->stages * sizeof *recompute);
	int *members = arena_alloc(a, (size_t)plan->stages * sizeof *members),
	    *homes = arena_alloc(a, (size_t)plan->stages * sizeof *homes),
	    *share = arena_alloc(a, (size_t)n * sizeof *share),
	    *state = arena_alloc(a, (size_t)n * sizeof *state), row = 0;
	*place = (struct placement){ .stages = plan->stages,
				     .chunks = plan->chunks,
				     .schedule = plan->sched->name,
				     .offload = plan->offload,
				     .expert_cache = (uint64_t)(p->options.expert_cache_gib * GIB),
				     .reducer = plan->reducer ? plan->reducer->name : NULL,
				     .members = members,
				     .share = share,
				     .recompute = recompute };
	place->device = arena_alloc(a, (size_t)n * sizeof *place->device);
	place->id = arena_alloc(a, (size_t)n * sizeof *place->id);
	uint8_t *deal = arena_alloc(a, (size_t)p->profile.layers * (size_t)p->profile.experts + 1);
	if (!recompute || !members || !homes || !deal || !share || !state || !place->device ||
	    !place->id)
		return err_nomem(e, (size_t)n * sizeof *place->device, "devices");
	for (int v = 0; v <= all; v++)
		place->first[v] = plan->first[v];
	if (plan_deals_experts(plan)) {
		place->homes = homes;
		place->deal = (struct expert_deal){ p->profile.layers, p->profile.experts, deal };
	}
	for (int k = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		double states = 0;
		if (plan_shares_state(s) || s->sharded) {
			place->state_share = state;
			place->sharding = s->sharded ? SHARD_PARAMETERS : SHARD_OPTIMIZER;
		}
		members[k] = s->members;
		homes[k] = s->deal ? s->homes : s->members;
		fill_deal(plan, model, k, p->profile.experts, deal);
		recompute[k] = s->recompute;
		if (row + s->members > n)
			return err_set(e, ERR_INTERNAL, "the plan has more members than workers");
		cost_shares(s, share + row);
		for (int i = 0; i < s->members; i++, row++) {
			int w = worker_of(p, s->member[i].device, seat, n, e);
			if (w < 0)
				return w;
			worker[row] = w;
			const double before = states;
			states += s->member[i].state_share /
				  (plan_shares_state(s) || s->sharded ? 1 : s->members);
			state[row] = i + 1 == s->members ? STATE_WHOLE - millionths(before)
							 : millionths(states) - millionths(before);
			place->id[row] = seat[w].id;
			place->device[row] = device_text(&seat[w], &caps[w], a);
			if (!place->device[row])
				return err_nomem(e, 512, "devices");
		}
	}
	return 0;
}

static int write_file(const char *dir, const char *name, struct buf *b, struct err *e)
{
	int rc = buf_ok(b, e);
	if (rc >= 0)
		rc = atomic_write_in(dir, name, b->p, b->n, e);
	buf_release(b);
	return rc;
}

int job_plan_write(const struct job_plan *p, const char *dir, struct err *e)
{
	struct buf b = BUF_INIT;
	plan_to_json(&p->profile, &p->plan, &b);
	TRY(write_file(dir, "plan.json", &b, e));
	b = (struct buf)BUF_INIT;
	profile_write(&p->profile, &b);
	return write_file(dir, "profile.json", &b, e);
}
