/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - see fit.h. */
#include "plan/fit.h"

#include "base/buf.h"
#include "base/err.h"
#include "plan/cost_parts.h"
#include "plan/experts.h"
#include "plan/offload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double gib_bytes = 1073741824.0;
enum { RECOMPUTE = 1, BY_MEMORY = 2, EIGHT_BIT = 4, SHARE_STATE = 8, SHARE_ALL = 16, MOST = 4 };

/* A key, or several: the price in time rises from row to row. */
struct key {
	const char *text;
	unsigned what, offload;
};

static const struct key single[] = {
	{ "a smaller 'state_share' of this device", BY_MEMORY, 0 },
	{ "'gradient_checkpointing: true'", RECOMPUTE, 0 },
	{ "'optimizer: adamw_8bit'", EIGHT_BIT, 0 },
	{ "'shard: optimizer'", SHARE_STATE, 0 },
	{ "'offload: [optimizer]'", 0, OFFLOAD_OPTIMIZER },
	{ "'offload: [experts]'", 0, OFFLOAD_EXPERTS },
	{ "'offload: [activations]'", 0, OFFLOAD_ACTIVATIONS },
	{ "'shard: parameters'", SHARE_ALL, 0 },
	{ "'offload: [parameters]'", 0, OFFLOAD_PARAMETERS },
};

#define ALL_OFF (OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS)
#define ON_HOST "'offload: [activations, optimizer, parameters]'"

static const struct key together[] = {
	{ "'shard: optimizer' and 'optimizer: adamw_8bit' together", SHARE_STATE | EIGHT_BIT, 0 },
	{ "'shard: parameters' and 'optimizer: adamw_8bit' together", SHARE_ALL | EIGHT_BIT, 0 },
	{ "'offload: [activations, parameters]'", 0, OFFLOAD_ACTIVATIONS | OFFLOAD_PARAMETERS },
	{ "'offload: [optimizer, parameters]'", 0, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS },
	{ ON_HOST, 0, ALL_OFF },
	{ ON_HOST " and 'shard: parameters' together", SHARE_ALL, ALL_OFF },
	{ ON_HOST ", 'shard: parameters' and 'optimizer: adamw_8bit' together",
	  SHARE_ALL | EIGHT_BIT, ALL_OFF },
};

static int copy(const struct plan *from, struct plan *to, struct err *e)
{
	const size_t cuts = (size_t)from->stages * (size_t)from->chunks + 1;
	*to = (struct plan){ .mem = ARENA_INIT,
			     .planner = from->planner,
			     .sched = from->sched,
			     .order = from->order,
			     .offload = from->offload,
			     .microbatch = from->microbatch,
			     .microbatches = from->microbatches,
			     .over_device = -1 };
	TRY(plan_alloc(to, from->stages, from->chunks, e));
	memcpy(to->first, from->first, cuts * sizeof *to->first);
	for (int k = 0; k < from->stages; k++) {
		const struct plan_stage *s = &from->stage[k];
		TRY(plan_stage_members(to, k, s->members, e));
		memcpy(to->stage[k].member, s->member, (size_t)s->members * sizeof *s->member);
		to->stage[k].recompute = s->recompute;
		to->stage[k].sharded = s->sharded;
	}
	return from->pass ? plan_set_passes(to, from->pass, from->microbatches, e) : 0;
}

/* Of each trained number AdamW keeps a gradient and two moments in four bytes: 12 at least. */
static bool has_large_moments(const struct profile *p)
{
	return cost_trains_all(p) &&
	       p->layer_state_gib * gib_bytes > 11.5 * p->parameters_per_layer;
}

static double less_moments(double state_gib, double gradients)
{
	return state_gib - 1.5 * gradients * state_gib; /* a byte each instead of four */
}

static struct profile with_eight_bits(const struct profile *p)
{
	const double g = profile_gradients(p);
	struct profile q = *p;
	q.layer_state_gib = less_moments(p->layer_state_gib, g);
	q.embedding_state_gib = less_moments(p->embedding_state_gib, g);
	q.head_state_gib = less_moments(p->head_state_gib, g);
	q.gradient_share = g / (1 - 1.5 * g);
	return q;
}

static bool in_groups(const struct plan *plan, bool (*is)(const struct plan_stage *))
{
	for (int k = 0; k < plan->stages; k++)
		if (plan->stage[k].members > 1 && is(&plan->stage[k]))
			return true;
	return false;
}

static bool is_whole(const struct plan_stage *s) { return !s->sharded && !plan_shares_state(s); }
static bool is_half(const struct plan_stage *s) { return !s->sharded; }
static bool is_shared(const struct plan_stage *s) { return !is_whole(s); }

/* Whether the key would change this plan at all. */
static bool applies(const struct key *k, const struct profile *p, const struct plan_options *o,
		    const struct plan *plan)
{
	return (!(k->what & BY_MEMORY) || in_groups(plan, is_shared)) &&
	       (!(k->what & RECOMPUTE) || o->recompute == PLAN_RECOMPUTE_NEVER) &&
	       (!(k->what & EIGHT_BIT) || has_large_moments(p)) &&
	       (!(k->what & SHARE_STATE) || in_groups(plan, is_whole)) &&
	       (!(k->what & SHARE_ALL) || in_groups(plan, is_half)) &&
	       (!(k->offload & OFFLOAD_EXPERTS) || p->expert_gib > 0) &&
	       (!k->offload || (plan_can_offload(p) && (k->offload & ~plan->offload)));
}

static int change(const struct key *k, const struct profile *p, const struct plan_options *o,
		  struct plan *plan, struct err *e)
{
	for (int s = 0; s < plan->stages; s++) {
		const bool shares = k->what & (BY_MEMORY | SHARE_STATE | SHARE_ALL);
		if (shares && ((k->what & BY_MEMORY) || is_whole(&plan->stage[s])))
			plan_share_state(p, o, &plan->stage[s]);
		plan->stage[s].recompute |= (k->what & RECOMPUTE) != 0;
	}
	if (k->what & SHARE_ALL)
		TRY(plan_shard_values(plan, plan_most_chunks(plan), e));
	return k->offload ? plan_set_offload(p, plan, plan->offload | k->offload, o->max_chunks, e)
			  : 0;
}

/* Stages that may recompute do so when they do not fit otherwise. */
static int simulate(const struct profile *p, const struct plan_options *o, struct plan *plan,
		    struct err *e)
{
	TRY(plan_simulate(p, o, plan, e));
	if (plan->fits || o->recompute == PLAN_RECOMPUTE_NEVER)
		return 0;
	for (int k = 0; k < plan->stages; k++)
		plan->stage[k].recompute = true;
	return plan_simulate(p, o, plan, e);
}

/* 1: with this key it fits. */
static int fits_with(const struct key *k, const struct profile *p, const struct plan_options *o,
		     const struct plan *plan, struct err *e)
{
	const struct profile q = k->what & EIGHT_BIT ? with_eight_bits(p) : *p;
	struct plan_options own = *o;
	struct plan x;
	if (!applies(k, p, o, plan))
		return 0;
	own.offload = plan->offload | k->offload;
	int rc = copy(plan, &x, e);
	if (rc >= 0)
		rc = change(k, &q, &own, &x, e);
	if (rc >= 0)
		rc = simulate(&q, &own, &x, e);
	rc = rc < 0 ? rc : x.fits;
	plan_release(&x);
	return rc;
}

/* Adds what makes it fit, as words for "it would fit with ..."; adds nothing where these keys do
 * not suffice. */
static int add_keys(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		    struct buf *out, struct err *e)
{
	int found = 0, rc = 0;
	for (size_t i = 0; rc >= 0 && i < sizeof single / sizeof *single && found < MOST; i++) {
		rc = fits_with(&single[i], p, o, plan, e);
		if (rc > 0)
			buf_addf(out, "%s%s", found++ ? ", or " : "", single[i].text);
	}
	for (size_t i = 0; rc >= 0 && !found && i < sizeof together / sizeof *together; i++) {
		rc = fits_with(&together[i], p, o, plan, e);
		if (rc > 0)
			buf_addf(out, "%s%s", found++ ? ", or " : "", together[i].text);
	}
	return rc < 0 ? rc : 0;
}

/* What members of the plan lack; *n_p: how many of them; `whole`: in whole layers. */
static double lacking(const struct plan *plan, bool whole, int *n_p)
{
	double sum = 0;
	*n_p = 0;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_member *m = &plan->stage[k].member[i];
			const double layer = m->memory_gib / plan_layers(plan, k),
				     over = m->memory_gib - m->limit_gib;
			if (over <= 0)
				continue;
			sum += whole ? ceil(over / layer) * layer : over;
			++*n_p;
		}
	return sum;
}

/* A device like the one that lacks most, which takes the layers that do not fit; what it needs
 * itself, the default reserve and a little more are in it. */
static double other_device_gib(const struct profile *p, const struct plan *plan)
{
	const struct profile_device *d = &p->device[plan->over_device];
	int n;
	return (lacking(plan, true, &n) + d->fixed_gib +
		fmax(curve_at(&d->activation_gib, plan->microbatch),
		     curve_at(&d->head_gib, plan->microbatch))) /
		       0.95 +
	       1;
}

/* What would make room, most useful first; only what is not done already. Keys that the cost model
 * can try are named where they suffice, the rest where it helps. */
static int list_advice(const struct profile *p, const struct plan_options *o,
		       const struct plan *plan, double reserve, struct buf *b, struct err *e)
{
	/* 4.5 bits or fewer a number: the weights are quantised */
	bool small = p->parameters_per_layer > 0 &&
		     p->layer_gib * gib_bytes < 0.8 * p->parameters_per_layer;
	struct buf keys = BUF_INIT;
	int rc = add_keys(p, o, plan, &keys, e);
	if (rc >= 0 && keys.n)
		buf_addf(b, "it would fit with %.*s; what else helps: ", (int)keys.n, keys.p);
	else
		buf_adds(b, "sharing, offload and adamw_8bit do not suffice; what helps: ");
	buf_release(&keys);
	TRY(rc);
	if (reserve >= plan->over_gib)
		buf_addf(b, "memory_reserve of at most %.2f, ",
			 floor(100 * (reserve - plan->over_gib)) / 100);
	if (p->layer_state_gib > p->layer_gib)
		buf_adds(b, "LoRA instead of full training, ");
	else if (!small)
		buf_adds(b, "4-bit weights (load_in_4bit), ");
	buf_adds(b, "a shorter sequence_len, ");
	if (plan->microbatch > 1)
		buf_adds(b, "a smaller micro_batch_size, ");
	buf_addf(b, "or another device with %.1f GiB or more", other_device_gib(p, plan));
	return buf_ok(b, e);
}

static int host_over_error(const struct profile *p, const struct plan *plan, struct err *e)
{
	const struct profile_device *d = &p->device[plan->over_device];
	return err_set(
		e, ERR_USAGE,
		"no plan fits into memory: what 'offload' keeps on '%s' (for '%s' and other "
		"devices there) needs %.2f GiB more than the %.2f GiB that were free when it "
		"was measured; it would fit with fewer layers there, or without '%s' in "
		"'offload'",
		p->host[d->host].name, d->id, plan->over_gib, d->host_memory_gib,
		plan->offload & OFFLOAD_PARAMETERS  ? "parameters"
		: plan->offload & OFFLOAD_OPTIMIZER ? "optimizer"
		: plan->offload & OFFLOAD_EXPERTS   ? "experts"
						    : "activations");
}

int plan_over_error(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		    struct err *e)
{
	if (plan_deals_experts(plan))
		return plan_experts_over(p, plan, e);
	const struct profile_device *d = &p->device[plan->over_device];
	if (plan->over_host)
		return host_over_error(p, plan, e);
	struct buf advice = BUF_INIT;
	double limit = 0;

	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			if (plan->stage[k].member[i].device == plan->over_device)
				limit = plan->stage[k].member[i].limit_gib;
	double reserve = fmax(0, d->memory_gib - d->used_gib - limit);
	int n;
	char others[80] = "";
	const double rest = lacking(plan, false, &n) - plan->over_gib;
	if (n > 1)
		snprintf(others, sizeof others, "%.2f GiB are missing on %d other device%s; ", rest,
			 n - 1, n > 2 ? "s" : "");
	int rc = list_advice(p, o, plan, reserve, &advice, e);
	if (rc >= 0)
		rc = err_set(
			e, ERR_USAGE,
			"no plan fits into memory: the nearest one needs %.2f GiB more than the "
			"%.2f GiB that device '%s' may use (of %.2f GiB other programs use %.2f, "
			"and %.2f are kept free, memory_reserve); %s%s",
			plan->over_gib, limit, d->id, d->memory_gib, d->used_gib, reserve, others,
			advice.p);
	buf_release(&advice);
	return rc;
}
