/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - see experts.h. */
#include "plan/experts.h"

#include "base/err.h"
#include "base/mem.h"
#include "sched/play_experts.h"

#include <math.h>
#include <string.h>

static int nomem(struct err *e) { return err_set(e, ERR_NOMEM, "out of memory for a plan"); }

double plan_expert_share(const struct plan *plan, int stage, int i)
{
	const struct plan_stage *s = &plan->stage[stage];
	const int all = s->deal ? plan_layers(plan, stage) * s->experts : 0;
	int n = 0;
	for (int k = 0; k < all; k++)
		n += s->deal[k] == i;
	return all ? (double)n / all : 0;
}

bool plan_experts_away(const struct plan *plan, int stage, int *from_p, int *to_p)
{
	const struct plan_stage *s = &plan->stage[stage];
	const int all = s->deal ? plan_layers(plan, stage) * s->experts : 0;
	bool found = false;
	for (int k = 0; k < all; k++) {
		const int layer = plan->first[stage] + k / s->experts;
		if (s->deal[k] < s->homes)
			continue;
		*from_p = found ? *from_p : layer;
		*to_p = layer;
		found = true;
	}
	return found;
}

double plan_expert_load(const struct profile *p, const struct plan *plan, int stage, int layer,
			int i)
{
	const struct plan_stage *s = &plan->stage[stage];
	const uint8_t *place = s->deal + (size_t)(layer - plan->first[stage]) * (size_t)s->experts;
	double sum = 0;
	for (int x = 0; x < s->experts; x++)
		if (place[x] == i)
			sum += profile_expert_load(p, layer, x);
	return sum;
}

bool plan_knows_experts(const struct profile *p)
{
	for (int i = 0; i < p->devices; i++)
		if (!p->device[i].experts_forward_ms.given ||
		    !p->device[i].experts_backward_ms.given)
			return false;
	return p->experts > 1 && p->expert_parameters > 0;
}

/* Of a layer's parameters, those of experts. */
static double expert_part(const struct profile *p)
{
	return p->experts && p->parameters_per_layer > 0
		       ? fmin(1, p->experts * p->expert_parameters / p->parameters_per_layer)
		       : 0;
}

double plan_expert_gib(const struct profile *p, int n)
{
	return p->experts ? n * expert_part(p) / p->experts * (p->layer_gib + p->layer_state_gib)
			  : 0;
}

static int homes_of(const struct plan_stage *s) { return s->deal ? s->homes : s->members; }

static bool has_some(const struct plan_stage *s, int layer, int i)
{
	return memchr(s->deal + (size_t)layer * (size_t)s->experts, i, (size_t)s->experts) != NULL;
}

/* What the lists need: who has experts of which layer. */
static int make_shape(const struct plan *plan, struct sched_shape *h, struct arena *a,
		      struct err *e)
{
	const size_t S = (size_t)plan->stages;
	struct sched_experts *x = arena_alloc(a, S * sizeof *x);
	int *members = arena_alloc(a, S * sizeof *members), rows = 0, at = 0;
	if (!x || !members)
		return nomem(e);
	for (size_t k = 0; k < S; k++)
		rows += members[k] = homes_of(&plan->stage[k]);
	int *share = arena_alloc(a, (size_t)rows * sizeof *share);
	if (!share)
		return nomem(e);
	for (int k = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		const int n = plan_layers(plan, k);
		for (int i = 0; i < members[k]; i++)
			share[at++] = members[k] == 1 ? 1 : s->member[i].microbatches;
		if (!s->deal)
			continue;
		unsigned char *has = arena_alloc(a, (size_t)n * (size_t)s->members);
		if (!has)
			return nomem(e);
		for (int l = 0; l < n; l++)
			for (int i = 0; i < s->members; i++)
				has[l * s->members + i] = has_some(s, l, i);
		x[k] = (struct sched_experts){ n, s->members, has };
	}
	*h = (struct sched_shape){ .stages = plan->stages,
				   .chunks = 1,
				   .microbatches = plan->microbatches,
				   .members = members,
				   .share = share,
				   .experts = x };
	return 0;
}

static void fill_member(const struct cost *c, const struct cost_row *r, const struct plan *plan,
			int k, int i, struct expert_member *m)
{
	const struct plan_stage *s = &plan->stage[k];
	const int d = s->member[i].device, n = plan_layers(plan, k);
	const struct profile_device *p = &c->p->device[d];
	const bool front = k == 0, end = k == plan->stages - 1, home = i < homes_of(s);
	const double xf = curve_at(&p->experts_forward_ms, r->m) / 1e3 * r->forwards,
		     xb = curve_at(&p->experts_backward_ms, r->m) / 1e3,
		     w = plan_expert_share(plan, k, i);
	*m = (struct expert_member){ 0 };
	if (home) {
		m->forward_s = (front ? r->ef[d] : 0) + (end ? r->hf[d] : 0);
		m->backward_s = (front ? r->eb[d] : 0) + (end ? r->hb[d] : 0);
	}
	if (!s->deal) {
		m->forward_s += n * r->f[d];
		m->backward_s += n * (r->b[d] + (s->recompute ? r->f[d] / r->forwards : 0));
	} else if (home) {
		m->route_s = fmax(0, r->f[d] - xf);
		m->back_route_s = fmax(0, r->b[d] - xb);
	}
	/* of all rows: those that a member has are in the shares */
	m->experts_s = xf;
	m->back_experts_s = xb;
	m->row_bytes = c->p->top_k * r->boundary_bytes;
	m->copy_s = r->boundary_bytes > 0
			    ? m->row_bytes / r->boundary_bytes * (r->up[d] + r->down[d]) / 2
			    : 0;
	m->step_s =
		n * p->optimizer_ms / 1e3 * (s->deal ? home + expert_part(c->p) * (w - home) : 1);
}

static double home_gib(const struct cost *c, const struct cost_row *r, const struct plan *plan,
		       int k, int i)
{
	const struct profile *p = c->p;
	const struct plan_stage *s = &plan->stage[k];
	const int d = s->member[i].device, n = plan_layers(plan, k),
		  held = sched_in_flight_alone(plan->sched, plan->stages, 1, plan->microbatches, k);
	const double here = s->deal ? 1 - expert_part(p) * (1 - plan_expert_share(plan, k, i)) : 1,
		     rows = s->deal ? (double)n * p->top_k * r->boundary_gib : 0;
	double gib = p->device[d].fixed_gib + n * here * (p->layer_gib + p->layer_state_gib);
	if (k == 0)
		gib += p->embedding_gib + p->embedding_state_gib;
	if (k == plan->stages - 1)
		gib += p->head_gib + p->head_state_gib;
	return gib * (1 + p->device[d].rounding) +
	       held * (n * (s->recompute ? r->boundary_gib : r->kept[d]) + rows + r->boundary_gib) +
	       fmax(r->work[d], k == plan->stages - 1 ? r->head_work[d] : 0) + 2 * r->boundary_gib;
}

/* Of a member that has experts alone. */
static double expert_gib(const struct cost *c, const struct cost_row *r, const struct plan *plan,
			 int k, int i)
{
	const struct profile *p = c->p;
	const struct plan_stage *s = &plan->stage[k];
	const int d = s->member[i].device, n = plan_layers(plan, k),
		  held = sched_in_flight_alone(plan->sched, plan->stages, 1, plan->microbatches, k);
	const double w = plan_expert_share(plan, k, i);
	double rows = 0, most = w; /* of all layers, at least as many as there are experts */
	for (int l = plan->first[k]; l < plan->first[k + 1]; l++) {
		const double load = plan_expert_load(p, plan, k, l, i);
		rows += fmax(load, w);
		most = fmax(most, load);
	}
	return (p->device[d].fixed_gib + plan_expert_gib(p, n) * w * s->experts) *
		       (1 + p->device[d].rounding) +
	       held * rows * (r->kept[d] + p->top_k * r->boundary_gib) + most * r->work[d];
}

static void fill_memory(const struct cost *c, const struct cost_row *r, struct plan *plan)
{
	plan->fits = true;
	plan->over_gib = 0;
	plan->over_device = -1;
	plan->over_host = false;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			struct plan_member *m = &plan->stage[k].member[i];
			m->memory_gib = i < homes_of(&plan->stage[k])
						? home_gib(c, r, plan, k, i)
						: expert_gib(c, r, plan, k, i);
			m->limit_gib = c->limit[m->device];
			if (m->memory_gib <= m->limit_gib)
				continue;
			plan->fits = false;
			if (m->memory_gib - m->limit_gib > plan->over_gib) {
				plan->over_gib = m->memory_gib - m->limit_gib;
				plan->over_device = m->device;
			}
		}
}

struct told {
	plan_span_fn fn;
	void *ctx;
};

static void tell(void *ctx, int member, const struct instr *i, double begin, double end)
{
	const struct told *t = ctx;
	const struct play_span s = { member, *i, begin, end };
	t->fn(t->ctx, &s);
}

/* [members * members] of the play. */
static void fill_ways(const struct cost *c, const struct plan *plan, int members, double *latency,
		      double *bytes)
{
	int at = 0;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++, at++)
			for (int l = 0, to = 0; l < plan->stages; l++)
				for (int j = 0; j < plan->stage[l].members; j++, to++) {
					const int a = plan->stage[k].member[i].device,
						  b = plan->stage[l].member[j].device;
					latency[at * members + to] =
						profile_latency_ms(c->p, a, b) / 1e3;
					bytes[at * members + to] =
						profile_bandwidth(c->p, a, b) * 1e9;
				}
}

/* Of each layer's rows those that members have. */
static int fill_shares(struct cost *c, const struct plan *plan, int members, struct expert_play *p,
		       struct err *e)
{
	int most = 0, at = 0;
	for (int k = 0; k < plan->stages; k++)
		if (plan->stage[k].deal && plan_layers(plan, k) > most)
			most = plan_layers(plan, k);
	double *share = arena_alloc(&c->mem, (size_t)members * (size_t)most * sizeof *share);
	if (!share)
		return nomem(e);
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++, at++)
			for (int l = 0; plan->stage[k].deal && l < plan_layers(plan, k); l++)
				share[at * most + l] =
					plan_expert_load(c->p, plan, k, plan->first[k] + l, i);
	p->share = share;
	return 0;
}

int plan_play_experts(struct cost *c, const struct cost_row *r, struct plan *plan, plan_span_fn fn,
		      void *ctx, struct err *e)
{
	struct told told = { fn, ctx };
	struct expert_play p = { .act_bytes = r->forwards * r->boundary_bytes,
				 .barrier_s = c->p->step_ms / 1e3,
				 .span = fn ? tell : NULL,
				 .ctx = &told };
	TRY(make_shape(plan, &p.shape, &c->mem, e));
	const int n = expert_play_members(&p.shape);
	const size_t all = (size_t)n;
	struct expert_member *m = arena_alloc(&c->mem, all * sizeof *m);
	double *latency = arena_alloc(&c->mem, all * all * sizeof *latency),
	       *bytes = arena_alloc(&c->mem, all * all * sizeof *bytes),
	       *busy = arena_alloc(&c->mem, all * sizeof *busy);
	if (!m || !latency || !bytes || !busy)
		return nomem(e);
	for (int k = 0, at = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++, at++)
			fill_member(c, r, plan, k, i, &m[at]);
	fill_ways(c, plan, n, latency, bytes);
	TRY(fill_shares(c, plan, n, &p, e));
	p.member = m;
	p.latency_s = latency;
	p.bytes_per_s = bytes;
	struct expert_played out = { .busy_s = busy };
	TRY(expert_play_run(plan->sched, &p, &out, e));
	fill_memory(c, r, plan);
	plan->simulated_ms = out.step_s * 1e3;
	plan->tokens_per_s = (double)c->p->global_batch * c->p->sequence_len / out.step_s;
	for (int k = 0, at = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++, at++) {
			struct plan_member *v = &plan->stage[k].member[i];
			v->busy = busy[at] / out.step_s;
			v->copy = v->wait = 0;
			v->bubble = fmax(0, 1 - v->busy);
			v->host_gib = v->links_gib = 0;
		}
	return 0;
}

int plan_experts_over(const struct profile *p, const struct plan *plan, struct err *e)
{
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++) {
			const struct plan_stage *s = &plan->stage[k];
			const struct plan_member *m = &s->member[i];
			const struct profile_device *d = &p->device[m->device];
			const int n = plan_layers(plan, k);
			if (m->device != plan->over_device)
				continue;
			if (plan_expert_share(plan, k, i) > 0 &&
			    d->fixed_gib + plan_expert_gib(p, n) > m->limit_gib)
				return err_set(e, ERR_USAGE,
					       "device '%s' is too small for one expert of each of "
					       "its %d layers: they take %.3f GiB, and %.3f may be "
					       "used: leave it out of 'experts', or give it fewer "
					       "layers",
					       d->id, n, plan_expert_gib(p, n), m->limit_gib);
			return err_set(
				e, ERR_USAGE,
				"the plan does not fit: device '%s' needs %.3f GiB, and %.3f "
				"may be used: give it fewer experts or layers",
				d->id, m->memory_gib, m->limit_gib);
		}
	return err_set(e, ERR_USAGE, "the plan does not fit into memory");
}
