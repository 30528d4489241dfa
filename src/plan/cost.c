/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - see cost.h for the formulas. */
#include "plan/cost.h"
#include "plan/cost_parts.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "plan/sum_time.h"

#define GIB 1073741824.0
#define COLLECTIVE_FACTOR 1.15
#define FROM_MEMORY 5e9 /* bytes per second and core, about */

static int nomem(struct err *e)
{
	return err_set(e, ERR_NOMEM, "out of memory for the cost model");
}

int cost_init(struct cost *c, const struct profile *p, const struct plan_options *o, struct err *e)
{
	size_t n = (size_t)p->devices;

	*c = (struct cost){ .p = p, .o = o, .mem = ARENA_INIT };
	c->player = player_new();
	c->limit = arena_alloc(&c->mem, n * sizeof(double));
	c->opt = arena_alloc(&c->mem, n * sizeof(double));
	c->wire = arena_alloc(&c->mem, 2 * (size_t)p->hosts * sizeof *c->wire);
	if (!c->player || !c->limit || !c->opt || !c->wire) {
		cost_release(c);
		return nomem(e);
	}
	for (int i = 0; i < p->devices; i++) {
		c->limit[i] = profile_limit_gib(p, i, o->reserve_gib);
		c->opt[i] = p->device[i].optimizer_ms / 1e3;
	}
	for (int h = 0; h < p->hosts; h++)
		c->wire[2 * h].bytes_per_s = c->wire[2 * h + 1].bytes_per_s =
			p->host[h].card > 0 ? p->host[h].card * 1e9 : INFINITY;
	return 0;
}

void cost_release(struct cost *c)
{
	player_free(c->player);
	mem_free(c->row);
	mem_free(c->scratch);
	mem_free(c->sums);
	mem_free(c->copy);
	mem_free(c->talk);
	mem_free(c->route);
	mem_free(c->place);
	sum_terms_release(&c->terms);
	arena_release(&c->mem);
	*c = (struct cost){ .mem = ARENA_INIT };
}

/* Seconds of a layer whose weights, and gradients so many times, are still in a cache. It saves no
 * more than a core needs to bring them from memory; other devices than processors are taken to save
 * nothing. */
static double warm(const struct cost *c, const struct profile_device *d, const struct curve *is,
		   const struct curve *cold, int m, int gradients)
{
	const struct profile *p = c->p;
	const double s = curve_at(cold, m) / 1e3,
		     share = d->processors > 0 ? fmin(1, d->processors) : 1,
		     gib = p->layer_gib + gradients * profile_gradients(p) * p->layer_state_gib,
		     most = d->on_host ? gib * GIB / (FROM_MEMORY * share) : 0;
	return fmax(curve_at(is, m) / 1e3, s - most);
}

const struct cost_row *cost_row(struct cost *c, int m)
{
	const struct profile *p = c->p;
	size_t n = (size_t)p->devices;
	struct cost_row *r;
	double *v;

	for (size_t i = 0; i < c->rows; i++)
		if (c->row[i].m == m)
			return &c->row[i];
	if (!mem_grow(&c->row, &c->rows_cap, c->rows + 1, sizeof *c->row))
		return NULL;
	v = arena_alloc(&c->mem, 14 * n * sizeof *v);
	if (!v)
		return NULL;
	r = &c->row[c->rows++];
	*r = (struct cost_row){ m,         v,          v + n,      v + 2 * n,  v + 3 * n,
				v + 4 * n, v + 5 * n,  v + 6 * n,  v + 7 * n,  v + 8 * n,
				v + 9 * n, v + 10 * n, v + 11 * n, v + 12 * n, v + 13 * n,
				0,         0,          0 };
	r->boundary_bytes = (double)m * p->sequence_len * p->hidden * p->wire_bytes;
	r->boundary_gib = profile_fullest(p, m) * (double)m * p->sequence_len * p->hidden *
			  profile_dtype_bytes(p) / GIB;
	const double times = c->o->forwards > 0 ? c->o->forwards : 1,
		     heads = c->o->head_forwards > 0 ? c->o->head_forwards : 1;
	r->forwards = times;
	for (size_t i = 0; i < n; i++) {
		const struct profile_device *d = &p->device[i];
		r->f[i] = times * curve_at(&d->forward_ms, m) / 1e3;
		r->b[i] = curve_at(&d->backward_ms, m) / 1e3;
		r->ef[i] = times * curve_at(&d->embedding_forward_ms, m) / 1e3;
		r->eb[i] = curve_at(&d->embedding_backward_ms, m) / 1e3;
		r->hf[i] = heads * curve_at(&d->head_forward_ms, m) / 1e3;
		r->hb[i] = curve_at(&d->head_backward_ms, m) / 1e3;
		r->up[i] = curve_at(&d->upload_ms, m) / 1e3;
		r->down[i] = curve_at(&d->download_ms, m) / 1e3;
		r->kept[i] = curve_at(&d->kept_gib, m);
		r->work[i] = curve_at(&d->activation_gib, m);
		r->head_work[i] = curve_at(&d->head_gib, m);
		r->head_kept[i] = curve_at(&d->head_kept_gib, m);
		r->warm_f[i] = times * warm(c, d, &d->warm_forward_ms, &d->forward_ms, m, 0);
		r->warm_b[i] = warm(c, d, &d->warm_backward_ms, &d->backward_ms, m, 2);
	}
	return r;
}

/* Where a chunk is one layer and its passes follow each other, all but the first find its weights
 * as the one before left them. */
static double layer_mean(const struct pipe *q, int n, int passes, double cold, double warm)
{
	return q->sched->gathers && n == 1 && passes > 1 ? (cold + (passes - 1) * warm) / passes
							 : cold;
}

/* One device's time for one microbatch of `passes` through one chunk, on average. */
static double device_forward(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			     int device, int v, int n, int passes)
{
	double s = n * layer_mean(q, n, passes, r->f[device], r->warm_f[device]) +
		   r->forwards * cost_fetch(c, r, q, device, n, false);

	if (v == 0)
		s += r->ef[device];
	if (v == q->stages * q->chunks - 1)
		s += r->hf[device];
	return s;
}

static double device_backward(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			      int device, int v, int n, int passes, bool recompute)
{
	const double f = layer_mean(q, n, passes, r->f[device], r->warm_f[device]),
		     b = layer_mean(q, n, passes, r->b[device], r->warm_b[device]);
	double s = n * (recompute ? b + f / r->forwards : b) +
		   cost_fetch(c, r, q, device, n, true) +
		   (recompute ? cost_fetch(c, r, q, device, n, false) : 0);

	if (v == 0)
		s += r->eb[device];
	if (v == q->stages * q->chunks - 1)
		s += r->hb[device];
	return s;
}

/* ---- groups ---- */

bool cost_can_play(const struct plan_stage *g, const struct sched *s, int m)
{
	if (!g || (g->sharded && !s->gathers) || g->members < 2 || g->members > SCHED_MAX_GROUP)
		return false;
	for (int i = 0; i < g->members; i++)
		if (m && g->member[i].microbatch != m)
			return false;
	return true;
}

void cost_shares(const struct plan_stage *g, int *share)
{
	int64_t sum = 0;
	for (int i = 0; i < g->members; i++)
		sum += g->member[i].share;
	for (int i = 0; i < g->members; i++)
		share[i] = sum ? g->member[i].share : g->member[i].microbatches;
}

/* As the coordinator does. */
static int parts_of(const struct cost *c, const struct pipe *q)
{
	int most = 0;
	for (int v = 0; v < q->stages * q->chunks; v++)
		if (cost_can_play(q->stage[v % q->stages].group, q->sched, q->m))
			most = (int)fmax(most, q->first[v + 1] - q->first[v]);
	return c->o->reduce_parts ? c->o->reduce_parts
				  : reduce_parts(c->p->layer_state_gib * GIB / 3, most);
}

int cost_groups(struct cost *c, struct pipe *q, struct err *e)
{
	const size_t S = (size_t)q->stages;
	struct sched_shape *h = arena_alloc(&c->mem, sizeof *h);
	int *members = arena_alloc(&c->mem, S * sizeof *members), rows = 0, at = 0;
	const bool streams = (c->o->offload & OFFLOAD_PARAMETERS) && q->sched->gathers;
	bool any = streams, gather = streams;

	q->shape = NULL;
	if (!h || !members)
		return nomem(e);
	for (int k = 0; k < q->stages; k++) {
		const struct plan_stage *g = q->stage[k].group;
		const bool plays = cost_can_play(g, q->sched, q->pass ? 0 : q->m);
		gather = gather || (plays && g->sharded);
		members[k] = plays ? g->members : 1;
		rows += members[k];
		any = any || plays;
	}
	if (!any)
		return 0;
	int *share = arena_alloc(&c->mem, (size_t)rows * sizeof *share);
	if (!share)
		return nomem(e);
	for (int k = 0; k < q->stages; k++) {
		share[at] = 1;
		if (members[k] > 1)
			cost_shares(q->stage[k].group, share + at);
		at += members[k];
	}
	*h = (struct sched_shape){ q->stages,      q->chunks, q->microbatches, members, share,
				   parts_of(c, q), gather,    streams,         NULL };
	q->shape = h;
	return 0;
}

static double group_slowest(const struct cost *c, const struct plan_stage *g, double *latency_p)
{
	double bw = INFINITY, lat = 0;

	for (int i = 0; i < g->members; i++) {
		int a = g->member[i].device, b = g->member[(i + 1) % g->members].device;
		bw = fmin(bw, profile_bandwidth(c->p, a, b));
		lat = fmax(lat, profile_latency_ms(c->p, a, b));
	}
	*latency_p = lat / 1e3;
	return bw * 1e9;
}

static double ring_seconds(const struct cost *c, const struct plan_stage *g, double bytes)
{
	double lat, bw = group_slowest(c, g, &lat);
	int k = g->members;

	return k < 2 ? 0 : COLLECTIVE_FACTOR * bytes * (k - 1) / k / bw + (k - 1) * lat;
}

static double all_gather(const struct cost *c, const struct plan_stage *g)
{
	if (c->p->collective && g->members == c->p->devices)
		return c->p->all_gather_ms / 1e3;
	return ring_seconds(c, g, c->p->layer_gib * GIB);
}

/* fp32 gradients of the trained parameters. */
static double reduce_scatter(const struct cost *c, const struct plan_stage *g)
{
	if (c->p->collective && g->members == c->p->devices)
		return c->p->reduce_scatter_ms / 1e3;
	return ring_seconds(c, g, c->p->layer_state_gib * GIB * profile_gradients(c->p));
}

/* Seconds per microbatch of the candidate; and in *own_p the time one microbatch takes on the
 * slowest device. */
static double group_time(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			 int stage, int chunk, bool forward, double *own_p)
{
	const struct plan_stage *g = q->stage[stage].group;
	int v = chunk * q->stages + stage, n = q->first[v + 1] - q->first[v];
	double worst = -1, mine = 0, own = 0;

	for (int i = 0; i < g->members; i++) {
		const struct plan_member *m = &g->member[i];
		const struct cost_row *mr = cost_row_of(c, r, m->microbatch);
		double f = device_forward(c, mr, q, m->device, v, n, m->microbatches);
		double b = device_backward(c, mr, q, m->device, v, n, m->microbatches,
					   q->stage[stage].recompute);
		if (m->microbatches == 0)
			continue;
		if (m->microbatches * (f + b) > worst) {
			worst = m->microbatches * (f + b);
			mine = m->microbatches * (forward ? f : b);
		}
		own = fmax(own, forward ? f : b);
	}
	if (g->sharded)
		mine = fmax(mine, n * (all_gather(c, g) + (forward ? 0 : reduce_scatter(c, g))));
	if (own_p)
		*own_p = own;
	return mine / q->microbatches;
}

/* ---- stages ---- */

double cost_forward(const struct cost *c, const struct cost_row *r, const struct pipe *q, int stage,
		    int chunk)
{
	int v = chunk * q->stages + stage;

	if (q->stage[stage].group)
		return group_time(c, r, q, stage, chunk, true, NULL);
	return device_forward(c, r, q, q->stage[stage].device, v, q->first[v + 1] - q->first[v],
			      q->microbatches);
}

double cost_backward(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		     int stage, int chunk)
{
	int v = chunk * q->stages + stage;

	if (q->stage[stage].group)
		return group_time(c, r, q, stage, chunk, false, NULL);
	return device_backward(c, r, q, q->stage[stage].device, v, q->first[v + 1] - q->first[v],
			       q->microbatches, q->stage[stage].recompute);
}

static double stage_step(const struct cost *c, const struct pipe *q, int stage, int device,
			 double share)
{
	int largest, n = cost_layers(q, stage, &largest);
	double s = n * c->opt[device];

	if (stage == 0)
		s += c->p->device[device].embedding_optimizer_ms / 1e3;
	if (stage == q->stages - 1)
		s += c->p->device[device].head_optimizer_ms / 1e3;
	if (cost_offloads(c, device, OFFLOAD_OPTIMIZER)) {
		const double measured = c->p->device[device].host_update_s;
		s = (measured > 0 ? measured : PROFILE_HOST_UPDATE_S) * cost_state_gib(c, q, stage);
	}
	return s * share;
}

/* ---- links ---- */

static int stage_device(const struct pipe *q, int k, int i)
{
	const struct plan_stage *g = q->stage[k].group;
	return g ? g->member[i].device : q->stage[k].device;
}

static int stage_members(const struct pipe *q, int k)
{
	return q->stage[k].group ? q->stage[k].group->members : 1;
}

/* Where a route begins or ends: at the members [first, last) of a stage. */
struct end {
	int stage, first, last;
};

/* Of the member `i` of a stage in the play. */
static struct end end_at(const struct pipe *q, int stage, int i)
{
	return cost_is_played(q, stage) ? (struct end){ stage, i, i + 1 }
					: (struct end){ stage, 0, stage_members(q, stage) };
}

/* The route between two members of the play: of a group that is one of them the slowest pair,
 * without network cards. */
static struct play_route route_between(const struct cost *c, const struct cost_row *r,
				       const struct pipe *q, struct end from_end, struct end to_end,
				       bool forward)
{
	struct play_route out = { 0, INFINITY, -1, -1, { 0, 0 } };
	const int a = from_end.stage, b = to_end.stage;

	for (int i = from_end.first; i < from_end.last; i++)
		for (int k = to_end.first; k < to_end.last; k++) {
			int from = stage_device(q, a, i), to = stage_device(q, b, k);
			out.bytes_per_s =
				fmin(out.bytes_per_s, profile_bandwidth(c->p, from, to) * 1e9);
			out.latency_s =
				fmax(out.latency_s, profile_latency_ms(c->p, from, to) / 1e3);
		}
	if (from_end.last - from_end.first == 1 && to_end.last - to_end.first == 1) {
		int from = c->p->device[stage_device(q, a, from_end.first)].host,
		    to = c->p->device[stage_device(q, b, to_end.first)].host;
		const int relay = c->p->relay[from * c->p->hosts + to] - 1;
		if (from != to) {
			out.wire_out = 2 * from;
			out.wire_in = 2 * to + 1;
		}
		if (from != to && relay >= 0) {
			out.via[0] = 1 + 2 * relay + 1;
			out.via[1] = 1 + 2 * relay;
		}
	}
	if (q->stage[a].group && !cost_is_played(q, a)) {
		double own, t = group_time(c, r, q, a, 0, forward, &own);
		if (own > t)
			out.latency_s += own - t;
	}
	return out;
}

/* The most work of a member of a played group; *through_p: the least time in which a microbatch
 * passes chunk 0 both ways. */
static double members_bound(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			    int k, double *through_p)
{
	const struct plan_stage *g = q->stage[k].group;
	double most = 0;

	*through_p = INFINITY;
	for (int i = 0; i < g->members; i++) {
		double all = 0;
		if (!g->member[i].microbatches)
			continue;
		for (int ch = 0; ch < q->chunks; ch++) {
			int v = ch * q->stages + k, n = q->first[v + 1] - q->first[v],
			    d = g->member[i].device;
			const int passes = g->member[i].microbatches;
			double s = device_forward(c, r, q, d, v, n, passes) +
				   device_backward(c, r, q, d, v, n, passes, q->stage[k].recompute);
			all += s;
			if (ch == 0)
				*through_p = fmin(*through_p, s);
		}
		most = fmax(most, all * g->member[i].microbatches);
	}
	return most;
}

double cost_bound(const struct cost *c, const struct cost_row *r, const struct pipe *q)
{
	double before = 0, best = 0;
	int M = q->microbatches;

	/* Before stage k can begin, a microbatch must have passed chunk 0 of the stages before it;
	 * after its last backward, a gradient must pass them again. Between the two it does all its
	 * own work. */
	for (int k = 0; k < q->stages; k++) {
		double work = 0, through = 0;
		if (cost_is_played(q, k)) {
			work = members_bound(c, r, q, k, &through);
		} else {
			for (int ch = 0; ch < q->chunks; ch++) {
				double s = cost_forward(c, r, q, k, ch) +
					   cost_backward(c, r, q, k, ch);
				work += s;
				if (ch == 0)
					through = s;
			}
			work *= M;
			if (!q->stage[k].group)
				work += stage_step(c, q, k, q->stage[k].device, 1);
		}
		best = fmax(best, before + work);
		before += through;
		if (k + 1 < q->stages && !q->stage[k].group && !q->stage[k + 1].group) {
			int a = q->stage[k].device, b = q->stage[k + 1].device;
			double there = r->boundary_bytes / (profile_bandwidth(c->p, a, b) * 1e9);
			double back = r->boundary_bytes / (profile_bandwidth(c->p, b, a) * 1e9);
			best = fmax(best, before + M * fmax(there, back));
			before +=
				there + back +
				(profile_latency_ms(c->p, a, b) + profile_latency_ms(c->p, b, a)) /
					1e3;
		}
	}
	return best + c->p->step_ms / 1e3;
}

static double tied_time(const struct cost *c, const struct cost_row *r, const struct pipe *q)
{
	double slower = 0;

	for (int k = 0; k < 2; k++) {
		int a = k ? 0 : q->stages - 1, b = q->stages - 1 - a;
		for (int i = 0; i < cost_members(q, a); i++)
			for (int j = 0; j < cost_members(q, b); j++) {
				struct play_route way = route_between(c, r, q, end_at(q, a, i),
								      end_at(q, b, j), true);
				slower = fmax(slower, way.latency_s + cost_table_bytes(c->p) /
									      way.bytes_per_s);
			}
	}
	return slower;
}

/* Removes the routes from their wires; the second call puts them back. */
static void toggle_wires(struct play_route *route, int n)
{
	for (int k = 0; k < n; k++) {
		route[k].wire_out = -2 - route[k].wire_out;
		route[k].wire_in = -2 - route[k].wire_in;
		route[k].via[0] = -route[k].via[0];
		route[k].via[1] = -route[k].via[1];
	}
}

/* The routes in the order of struct play; *n_p of them. */
static int fill_routes(struct cost *c, const struct cost_row *r, const struct pipe *q, int *n_p,
		       bool *wired_p, struct err *e)
{
	const int S = q->stages;
	int n = 0;

	*wired_p = false;
	for (int k = 0; S > 1 && k < (S == 2 ? 1 : S); k++) {
		const int next = (k + 1) % S, here = cost_members(q, k),
			  there = cost_members(q, next), pairs = here * there;
		if (!mem_grow(&c->route, &c->route_cap, (size_t)(n + 2 * pairs), sizeof *c->route))
			return nomem(e);
		for (int i = 0; i < here; i++)
			for (int j = 0; j < there; j++, n++) {
				const struct end a = end_at(q, k, i), b = end_at(q, next, j);
				c->route[n] = route_between(c, r, q, a, b, true);
				c->route[n + pairs] = route_between(c, r, q, b, a, false);
				*wired_p = *wired_p || c->route[n].wire_out >= 0;
			}
		n += pairs;
	}
	*n_p = n;
	return 0;
}

/* Whether the trained values of a stage are those that its group gathers: then only a tied
 * embedding is whole. Else (adapters) none of them is. */
static bool trains_gathered(const struct cost *c, const struct plan_stage *g)
{
	return g->sharded && cost_trains_all(c->p);
}

/* Of what is trained in a stage and whole on every member: the values that products read. */
static double trained_bytes(const struct cost *c, const struct pipe *q, int stage)
{
	int largest, n = cost_layers(q, stage, &largest);
	if (trains_gathered(c, q->stage[stage].group))
		return c->p->tied && stage == 0
			       ? cost_table_bytes(c->p) * profile_dtype_bytes(c->p) / 4
			       : 0;
	return cost_gradient_gib(c, q, stage, n) * GIB * profile_dtype_bytes(c->p) / 4;
}

/* The values of a stage's chunks, from the memory of its host. */
static void fill_uploads(const struct cost *c, const struct pipe *q, int stage, double *to)
{
	const int device = stage_device(q, stage, 0);
	for (int i = 0; cost_offloads(c, device, OFFLOAD_PARAMETERS) && i < q->chunks; i++)
		to[i] = cost_gathered_gib(c->p, q, i * q->stages + stage) * GIB * c->copy[device];
}

/* The sums of the gradients of played groups: scatter[stages * chunks], then reduce[..], then the
 * times in which the stages' groups gather values behind STEP [stages], and those of their chunks
 * [stages * chunks]. */
static int fill_sums(struct cost *c, const struct pipe *q, struct err *e)
{
	const size_t all = (size_t)q->stages * (size_t)q->chunks, n = (size_t)c->p->devices;
	int device[SCHED_MAX_GROUP], most = 1;

	if (!mem_grow(&c->sums, &c->sums_cap, 3 * all + (size_t)q->stages, sizeof *c->sums) ||
	    !mem_grow(&c->copy, &c->copy_cap, 2 * n, sizeof *c->copy) ||
	    !mem_grow(&c->talk, &c->talk_cap,
		      (size_t)cost_first_played(q, q->stages) * (size_t)q->chunks,
		      sizeof *c->talk) ||
	    !mem_grow(&c->place, &c->place_cap, (size_t)q->microbatches, sizeof *c->place))
		return nomem(e);
	memset(c->sums, 0, (3 * all + (size_t)q->stages) * sizeof *c->sums);
	for (size_t i = 0; i < n; i++) {
		const struct profile_device *d = &c->p->device[i];
		c->copy[i] = cost_copy_s(c, &d->copy_ms);
		c->copy[n + i] = cost_copy_s(c, d->on_host ? &d->copy_ms : &d->download_ms);
	}
	for (int k = 0; k < q->stages; k++)
		most = cost_members(q, k) > most ? cost_members(q, k) : most;
	struct sum_group g = { .p = c->p,
			       .device = device,
			       .terms = &c->terms,
			       .how = c->o->reducer,
			       .halved = c->o->reduce_half,
			       .up = c->copy,
			       .down = c->copy + n };
	if (!g.how)
		g.how = reducer_default(cost_order(c), most, c->o->collective);
	for (int k = 0; k < q->stages; k++) {
		g.n = cost_members(q, k);
		if (g.n < 2) {
			fill_uploads(c, q, k, c->sums + 2 * all + q->stages + k * q->chunks);
			continue;
		}
		sched_deal(q->shape->share + cost_first_played(q, k), g.n, q->microbatches,
			   c->place);
		TRY(sum_terms_find(&c->terms, cost_order(c), c->place, q->microbatches, e));
		for (int i = 0; i < g.n; i++)
			device[i] = stage_device(q, k, i);
		for (int ch = 0; ch < q->chunks; ch++) {
			const int v = ch * q->stages + k, last = q->stages * q->chunks - 1;
			double *to = &c->sums[k * q->chunks + ch];
			g.bytes = GIB * cost_trained_gib(c->p, q->first[v + 1] - q->first[v],
							 v == 0, v == last);
			g.shared = cost_shares_state(q->stage[k].group);
			sum_time(&g, to, to + all);
			for (int i = 0; i < g.n; i++)
				c->talk[(cost_first_played(q, k) + i) * q->chunks + ch] =
					cost_talk(&g, q->stage[k].group, i, ch + 1 == q->chunks,
						  cost_gathered_gib(c->p, q, v) * GIB);
			if (q->stage[k].group->sharded)
				c->sums[2 * all + (size_t)(q->stages + k * q->chunks + ch)] =
					gather_time(&g, q->stage[k].group->member,
						    cost_gathered_gib(c->p, q, v) * GIB, true);
		}
		if (g.shared)
			c->sums[2 * all + (size_t)k] = gather_time(&g, q->stage[k].group->member,
								   trained_bytes(c, q, k), false);
	}
	return 0;
}

/* Where passes differ: the mean times of those that member i runs, by c->place. */
static void pass_means(const struct cost *c, const struct cost_row *r, const struct pipe *q, int i,
		       double *f, double *b)
{
	for (int ch = 0; ch < q->chunks; ch++) {
		const int n = q->first[ch + 1] - q->first[ch], d = stage_device(q, 0, i);
		int count = 0;
		for (int k = 0; k < q->microbatches; k++)
			count += c->place[k] == i;
		f[ch] = b[ch] = 0;
		for (int k = 0; k < q->microbatches; k++) {
			const struct cost_row *mr = cost_row_of(c, r, q->pass[k]);
			if (c->place[k] != i)
				continue;
			f[ch] += device_forward(c, mr, q, d, ch, n, count) / count;
			b[ch] += device_backward(c, mr, q, d, ch, n, count, q->stage[0].recompute) /
				 count;
		}
	}
}

/* Who runs which pass, at c->place. */
static int deal_passes(struct cost *c, const struct pipe *q, struct err *e)
{
	if (!mem_grow(&c->place, &c->place_cap, (size_t)q->microbatches, sizeof *c->place))
		return nomem(e);
	memset(c->place, 0, (size_t)q->microbatches * sizeof *c->place);
	if (q->shape)
		sched_deal(q->shape->share, cost_members(q, 0), q->microbatches, c->place);
	return 0;
}

/* Times of member i of stage k in the play; at f, b [chunks], step, send, recv. */
static void fill_member(const struct cost *c, const struct cost_row *r, const struct pipe *q, int k,
			int i, double *f, double *b, double *step, double *send, double *recv)
{
	const struct plan_stage *g = q->stage[k].group;
	const int d = stage_device(q, k, i);

	for (int ch = 0; ch < q->chunks; ch++) {
		if (cost_is_played(q, k)) {
			int v = ch * q->stages + k, n = q->first[v + 1] - q->first[v];
			const int passes = g->member[i].microbatches;
			f[ch] = device_forward(c, r, q, d, v, n, passes);
			b[ch] = device_backward(c, r, q, d, v, n, passes, q->stage[k].recompute);
		} else {
			f[ch] = cost_forward(c, r, q, k, ch);
			b[ch] = cost_backward(c, r, q, k, ch);
		}
	}
	if (q->pass)
		pass_means(c, r, q, i, f, b);
	if (cost_is_played(q, k) && g->member[i].microbatches > 0) {
		const struct cost_talk *t = c->talk + (cost_first_played(q, k) + i) * q->chunks;
		for (int ch = 0; ch < q->chunks; ch++) {
			f[ch] += t[ch].forward_s / g->member[i].microbatches;
			b[ch] += t[ch].backward_s / g->member[i].microbatches;
		}
	}
	for (int ch = 0; c->pace && ch < q->chunks; ch++) {
		f[ch] *= c->pace[d];
		b[ch] *= c->pace[d];
	}
	*send = r->down[d];
	*recv = r->up[d];
	*step = 0;
	if (cost_is_played(q, k)) {
		*step = stage_step(c, q, k, d, g->member[i].state_share);
		for (int j = 0; cost_shares_state(g) && j < g->members; j++) /* the slowest owner */
			*step = fmax(*step, stage_step(c, q, k, stage_device(q, k, j),
						       g->member[j].state_share) +
						    c->sums[2 * q->stages * q->chunks + k]);
		return;
	}
	for (int j = 0; j < stage_members(q, k); j++)
		*step = fmax(*step, stage_step(c, q, k, stage_device(q, k, j),
					       g ? g->member[j].state_share : 1));
	if (g && !g->sharded) {
		int largest;
		const double gib = c->p->layer_state_gib * profile_gradients(c->p);
		*step += 2 * ring_seconds(c, g, cost_layers(q, k, &largest) * gib * GIB);
	}
}

int cost_play(struct cost *c, const struct cost_row *r, const struct pipe *q, double cutoff,
	      bool spans, struct play_result *out, double *step_s_p, struct err *e)
{
	const int S = q->stages, rows = q->shape ? cost_first_played(q, S) : S,
		  all = rows * q->chunks;
	struct play in = { .stages = S, .chunks = q->chunks, .microbatches = q->microbatches };
	struct play_result res;
	bool wired = false;
	int routes = 0;

	*step_s_p = INFINITY;
	if (cutoff < INFINITY && cost_bound(c, r, q) >= cutoff)
		return 0;
	if (!mem_grow(&c->scratch, &c->scratch_cap, 2 * (size_t)all + 3 * (size_t)rows,
		      sizeof *c->scratch))
		return nomem(e);
	if (q->pass)
		TRY(deal_passes(c, q, e));
	double *f = c->scratch, *b = f + all, *step = b + all, *send = step + rows,
	       *recv = send + rows;
	if (q->shape)
		TRY(fill_sums(c, q, e));
	for (int k = 0, row = 0; k < S; k++)
		for (int i = 0; i < cost_members(q, k); i++, row++)
			fill_member(c, r, q, k, i, f + row * q->chunks, b + row * q->chunks,
				    step + row, send + row, recv + row);
	TRY(fill_routes(c, r, q, &routes, &wired, e));
	if (q->shape) {
		in.members = q->shape->members;
		in.parts = q->shape->parts;
		in.share = q->shape->share;
		in.scatter_s = c->sums;
		in.reduce_s = c->sums + S * q->chunks;
		in.gather = q->shape->gather;
		in.alone = q->shape->alone;
		in.gather_s = c->sums + 2 * S * q->chunks + S;
	}
	in.forward_s = f;
	in.backward_s = b;
	in.step_s = step;
	in.send_s = send;
	in.recv_s = recv;
	in.barrier_s = c->p->step_ms / 1e3;
	in.act_bytes = r->forwards * r->boundary_bytes;
	in.grad_bytes = r->boundary_bytes;
	in.tied = S > 1 && profile_trains_tied(c->p);
	in.tied_s = in.tied ? tied_time(c, r, q) : 0;
	in.route = S > 1 ? c->route : NULL;
	in.wire = c->wire;
	in.wires = 2 * (size_t)c->p->hosts;
	c->plays++;
	c->instructions += (wired ? 18ll : 6ll) * S * q->chunks * q->microbatches;
	if (wired && cutoff < INFINITY) {
		/* Without the shared network cards no message is later: a lower bound for a tenth
		 * of the effort. */
		toggle_wires(c->route, routes);
		TRY(sched_play(c->player, q->sched, &in, false, &res, e));
		toggle_wires(c->route, routes);
		if (res.step_s >= cutoff)
			return 0;
	}
	TRY(sched_play(c->player, q->sched, &in, spans, &res, e));
	if (res.step_s >= cutoff)
		return 0;
	*step_s_p = res.step_s;
	if (out)
		*out = res;
	return 0;
}
