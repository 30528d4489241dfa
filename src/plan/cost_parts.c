/* SPDX-License-Identifier: Apache-2.0 */
/* cost_parts.c - see cost_parts.h. */
#include "plan/cost_parts.h"

#include <math.h>

#define GIB 1073741824.0

int cost_members(const struct pipe *q, int stage)
{
	return q->shape ? q->shape->members[stage] : 1;
}

bool cost_is_played(const struct pipe *q, int stage) { return cost_members(q, stage) > 1; }

int cost_first_played(const struct pipe *q, int stage)
{
	int n = 0;
	for (int k = 0; k < stage; k++)
		n += cost_members(q, k);
	return n;
}

const struct cost_row *cost_row_of(const struct cost *c, const struct cost_row *r, int m)
{
	for (size_t i = 0; i < c->rows; i++)
		if (c->row[i].m == m)
			return &c->row[i];
	return r;
}

double cost_table_bytes(const struct profile *p) { return p->embedding_parameters * 4; }

int cost_layers(const struct pipe *q, int stage, int *largest_p)
{
	int all = 0, largest = 0;

	for (int c = 0; c < q->chunks; c++) {
		int v = c * q->stages + stage, n = q->first[v + 1] - q->first[v];
		all += n;
		largest = n > largest ? n : largest;
	}
	*largest_p = largest;
	return all;
}

bool cost_shares_state(const struct plan_stage *g) { return g->sharded || plan_shares_state(g); }

bool cost_trains_all(const struct profile *p)
{
	return p->layer_state_gib * GIB * profile_gradients(p) / 4 > p->parameters_per_layer / 2;
}

double cost_gathered_gib(const struct profile *p, const struct pipe *q, int v)
{
	double gib = (q->first[v + 1] - q->first[v]) * p->layer_gib;
	if (v == 0 && !p->tied)
		gib += p->embedding_gib;
	if (v == q->stages * q->chunks - 1 && !p->tied)
		gib += p->head_gib;
	return gib;
}

enum sum_order cost_order(const struct cost *c) { return c->o->order ? c->o->order : SUM_FAST; }

bool cost_offloads(const struct cost *c, int device, unsigned what)
{
	return (c->o->offload & what) && !c->p->device[device].on_host;
}

double cost_offloaded_experts(const struct cost *c, int device, int n)
{
	const double all = n * c->p->expert_gib, slots = c->o->expert_cache_gib > 0
								 ? c->o->expert_cache_gib
								 : 2 * c->p->expert_gib;
	return cost_offloads(c, device, OFFLOAD_EXPERTS) ? fmax(all - slots, 0) : 0;
}

double cost_copy_s(const struct cost *c, const struct curve *k)
{
	const int m = k->n > 1 ? k->n : 1;
	return curve_at(k, m) / 1e3 /
	       ((double)m * c->p->sequence_len * c->p->hidden * c->p->wire_bytes);
}

/* What the products of a layer's experts take of a pass: as measured, else by their parameters. */
static double products_s(const struct profile *p, const struct cost_row *r, int device, bool back)
{
	const struct profile_device *d = &p->device[device];
	const struct curve *is = back ? &d->experts_backward_ms : &d->experts_forward_ms;
	const double own = p->top_k * p->expert_parameters,
		     rest = p->parameters_per_layer - p->experts * p->expert_parameters;
	if (is->given)
		return curve_at(is, r->m) / 1e3;
	return own > 0 ? (back ? r->b[device] : r->f[device] / r->forwards) * own / (own + rest)
		       : 0;
}

double cost_fetch(const struct cost *c, const struct cost_row *r, const struct pipe *q, int device,
		  int n, bool back)
{
	const struct profile *p = c->p;
	const int all = n * q->chunks;
	if (!cost_offloads(c, device, OFFLOAD_EXPERTS) || !(p->expert_gib > 0) || !n)
		return 0;
	const double tokens = (double)r->m * p->sequence_len,
		     chosen = p->experts ? 1 - pow(1 - (double)p->top_k / p->experts, tokens) : 1,
		     gone = cost_offloaded_experts(c, device, all) / all,
		     bring = chosen * gone * GIB * cost_copy_s(c, &p->device[device].copy_ms);
	return n * fmax(0, bring - products_s(p, r, device, back));
}

double cost_state_gib(const struct cost *c, const struct pipe *q, int stage)
{
	int largest, n = cost_layers(q, stage, &largest);
	return n * c->p->layer_state_gib + (stage == 0 ? c->p->embedding_state_gib : 0) +
	       (stage == q->stages - 1 ? c->p->head_state_gib : 0);
}
