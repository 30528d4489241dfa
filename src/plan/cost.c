/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - see cost.h for the formulas. */
#include "plan/cost.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define GIB 1073741824.0
#define COLLECTIVE_FACTOR 1.15

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
	/* forward, backward for every chunk; step, reduce, send, recv for every stage */
	c->scratch = arena_alloc(&c->mem, (2 * (size_t)p->layers + 4 * n + 8) * sizeof(double));
	c->route = arena_alloc(&c->mem, 2 * (n + 1) * sizeof *c->route);
	if (!c->player || !c->limit || !c->opt || !c->wire || !c->scratch || !c->route) {
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
	arena_release(&c->mem);
	*c = (struct cost){ .mem = ARENA_INIT };
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
	v = arena_alloc(&c->mem, 11 * n * sizeof *v);
	if (!v)
		return NULL;
	r = &c->row[c->rows++];
	*r = (struct cost_row){ m,         v,          v + n,     v + 2 * n, v + 3 * n,
				v + 4 * n, v + 5 * n,  v + 6 * n, v + 7 * n, v + 8 * n,
				v + 9 * n, v + 10 * n, 0,         0 };
	r->boundary_bytes = (double)m * p->sequence_len * p->hidden * p->wire_bytes;
	r->boundary_gib = (double)m * p->sequence_len * p->hidden * profile_dtype_bytes(p) / GIB;
	for (size_t i = 0; i < n; i++) {
		const struct profile_device *d = &p->device[i];
		r->f[i] = curve_at(&d->forward_ms, m) / 1e3;
		r->b[i] = curve_at(&d->backward_ms, m) / 1e3;
		r->ef[i] = curve_at(&d->embedding_forward_ms, m) / 1e3;
		r->eb[i] = curve_at(&d->embedding_backward_ms, m) / 1e3;
		r->hf[i] = curve_at(&d->head_forward_ms, m) / 1e3;
		r->hb[i] = curve_at(&d->head_backward_ms, m) / 1e3;
		r->up[i] = curve_at(&d->upload_ms, m) / 1e3;
		r->down[i] = curve_at(&d->download_ms, m) / 1e3;
		r->kept[i] = curve_at(&d->kept_gib, m);
		r->work[i] = curve_at(&d->activation_gib, m);
		r->head_work[i] = curve_at(&d->head_gib, m);
	}
	return r;
}

/* One device's time for one microbatch through one chunk. */
static double device_forward(const struct cost_row *r, const struct pipe *q, int device, int v,
			     int n)
{
	double s = n * r->f[device];

	if (v == 0)
		s += r->ef[device];
	if (v == q->stages * q->chunks - 1)
		s += r->hf[device];
	return s;
}

static double device_backward(const struct cost_row *r, const struct pipe *q, int device, int v,
			      int n, bool recompute)
{
	double s = n * (recompute ? r->b[device] + r->f[device] : r->b[device]);

	if (v == 0)
		s += r->eb[device];
	if (v == q->stages * q->chunks - 1)
		s += r->hb[device];
	return s;
}

/* ---- groups ---- */

/* A row for another microbatch size than the candidate's (Cephalo lets every device have
 * its own). */
static const struct cost_row *row_of(const struct cost *c, const struct cost_row *r, int m)
{
	for (size_t i = 0; i < c->rows; i++)
		if (c->row[i].m == m)
			return &c->row[i];
	return r;
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

/* fp32 gradients of the trained parameters: 4 of the 12 bytes of state. */
static double reduce_scatter(const struct cost *c, const struct plan_stage *g)
{
	if (c->p->collective && g->members == c->p->devices)
		return c->p->reduce_scatter_ms / 1e3;
	return ring_seconds(c, g, c->p->layer_state_gib * GIB / 3);
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
		const struct cost_row *mr = row_of(c, r, m->microbatch);
		double f = device_forward(mr, q, m->device, v, n);
		double b = device_backward(mr, q, m->device, v, n, q->stage[stage].recompute);
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
	return device_forward(r, q, q->stage[stage].device, v, q->first[v + 1] - q->first[v]);
}

double cost_backward(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		     int stage, int chunk)
{
	int v = chunk * q->stages + stage;

	if (q->stage[stage].group)
		return group_time(c, r, q, stage, chunk, false, NULL);
	return device_backward(r, q, q->stage[stage].device, v, q->first[v + 1] - q->first[v],
			       q->stage[stage].recompute);
}

static double table_bytes(const struct profile *p) { return p->embedding_parameters * 4; }

static int stage_layers(const struct pipe *q, int stage, int *largest_p)
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

static double stage_step(const struct cost *c, const struct pipe *q, int stage, int device,
			 double share)
{
	int largest, n = stage_layers(q, stage, &largest);
	double s = n * c->opt[device];

	if (stage == 0)
		s += c->p->device[device].embedding_optimizer_ms / 1e3;
	if (stage == q->stages - 1)
		s += c->p->device[device].head_optimizer_ms / 1e3;
	return s * share;
}

double cost_stage_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int i, bool recompute)
{
	const struct profile *p = c->p;
	const struct plan_stage *g = q->stage[stage].group;
	const struct plan_member *m = g ? &g->member[i] : NULL;
	const struct cost_row *mr = m ? row_of(c, r, m->microbatch) : r;
	int largest, n = stage_layers(q, stage, &largest),
		     device = m ? m->device : q->stage[stage].device;
	int in_flight =
		sched_in_flight_alone(q->sched, q->stages, q->chunks, q->microbatches, stage);
	double weights = n * p->layer_gib, state = n * p->layer_state_gib, work = mr->work[device],
	       kept, edge = mr->boundary_gib;

	if (!recompute) /* what it keeps is counted with the microbatches in flight */
		work = fmax(work - mr->kept[device], 0);
	if (stage == 0) {
		weights += p->embedding_gib;
		state += p->embedding_state_gib;
	}
	if (stage == q->stages - 1) {
		weights += p->head_gib;
		state += p->head_state_gib;
		if (p->tied && q->stages == 1) { /* the same table, its gradient twice */
			double master = profile_dtype_bytes(p) < 4 ? table_bytes(p) / GIB : 0;
			weights -= fmin(p->embedding_gib, p->head_gib);
			state -= profile_trains_tied(p) ? fmin(master, p->head_state_gib) : 0;
		}
		work = fmax(work, mr->head_work[device]);
	}
	if (g && g->sharded)
		return p->device[device].fixed_gib + 2 * p->layer_gib +
		       m->state_share * (weights + state) +
		       (m->microbatches > 0 ? work + 3 * edge : 0);
	if (g) {
		state *= m->state_share;
		in_flight = m->microbatches < in_flight ? m->microbatches : in_flight;
	}
	kept = recompute ? largest * edge : largest * mr->kept[device] + edge;
	return p->device[device].fixed_gib + weights + state + in_flight * kept + work +
	       (q->stages > 1 ? 2 * edge : 0);
}

static bool stage_fits(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		       int stage, bool recompute)
{
	const struct plan_stage *g = q->stage[stage].group;

	for (int i = 0; i < (g ? g->members : 1); i++) {
		int device = g ? g->member[i].device : q->stage[stage].device;
		if (!(cost_stage_gib(c, r, q, stage, i, recompute) <= c->limit[device]))
			return false;
	}
	return true;
}

bool cost_fit(const struct cost *c, const struct cost_row *r, struct pipe *q)
{
	bool all = true;

	for (int k = 0; k < q->stages; k++) {
		const struct plan_stage *g = q->stage[k].group;
		bool must = c->o->recompute == PLAN_RECOMPUTE_ALWAYS || (g && g->sharded);
		if (!must && stage_fits(c, r, q, k, false)) {
			q->stage[k].recompute = false;
			continue;
		}
		q->stage[k].recompute =
			c->o->recompute != PLAN_RECOMPUTE_NEVER || (g && g->sharded);
		if (!q->stage[k].recompute || !stage_fits(c, r, q, k, true))
			all = false;
	}
	return all;
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

/* The route from stage a to stage b: for groups the slowest pair, without network cards. */
static struct play_route route_between(const struct cost *c, const struct cost_row *r,
				       const struct pipe *q, int a, int b, bool forward)
{
	struct play_route out = { 0, INFINITY, -1, -1 };

	for (int i = 0; i < stage_members(q, a); i++)
		for (int k = 0; k < stage_members(q, b); k++) {
			int from = stage_device(q, a, i), to = stage_device(q, b, k);
			out.bytes_per_s =
				fmin(out.bytes_per_s, profile_bandwidth(c->p, from, to) * 1e9);
			out.latency_s =
				fmax(out.latency_s, profile_latency_ms(c->p, from, to) / 1e3);
		}
	if (!q->stage[a].group && !q->stage[b].group) {
		int from = c->p->device[q->stage[a].device].host,
		    to = c->p->device[q->stage[b].device].host;
		if (from != to) {
			out.wire_out = 2 * from;
			out.wire_in = 2 * to + 1;
		}
	}
	if (q->stage[a].group) {
		double own, t = group_time(c, r, q, a, 0, forward, &own);
		if (own > t)
			out.latency_s += own - t;
	}
	return out;
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
		for (int ch = 0; ch < q->chunks; ch++) {
			double s = cost_forward(c, r, q, k, ch) + cost_backward(c, r, q, k, ch);
			work += s;
			if (ch == 0)
				through = s;
		}
		work *= M;
		if (!q->stage[k].group)
			work += stage_step(c, q, k, q->stage[k].device, 1);
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
		struct play_route way = route_between(c, r, q, a, b, true);
		slower = fmax(slower, way.latency_s + table_bytes(c->p) / way.bytes_per_s);
	}
	return slower;
}

/* Removes the routes from their wires; the second call puts them back. */
static void toggle_wires(struct play_route *route, int stages)
{
	for (int k = 0; k < (stages == 2 ? 2 : 2 * stages); k++) {
		route[k].wire_out = -2 - route[k].wire_out;
		route[k].wire_in = -2 - route[k].wire_in;
	}
}

int cost_play(struct cost *c, const struct cost_row *r, const struct pipe *q, double cutoff,
	      bool spans, struct play_result *out, double *step_s_p, struct err *e)
{
	int S = q->stages, all = S * q->chunks;
	double *f = c->scratch, *b = f + all, *step = b + all, *send = step + S, *recv = send + S,
	       *reduce = recv + S;
	struct play in = { .stages = S, .chunks = q->chunks, .microbatches = q->microbatches };
	struct play_result res;
	bool wired = false;

	*step_s_p = INFINITY;
	if (cutoff < INFINITY && cost_bound(c, r, q) >= cutoff)
		return 0;
	for (int k = 0; k < S; k++) {
		const struct plan_stage *g = q->stage[k].group;
		for (int ch = 0; ch < q->chunks; ch++) {
			f[k * q->chunks + ch] = cost_forward(c, r, q, k, ch);
			b[k * q->chunks + ch] = cost_backward(c, r, q, k, ch);
		}
		step[k] = reduce[k] = 0;
		for (int i = 0; i < stage_members(q, k); i++)
			step[k] = fmax(step[k], stage_step(c, q, k, stage_device(q, k, i),
							   g ? g->member[i].state_share : 1));
		if (g && !g->sharded) {
			int largest, n = stage_layers(q, k, &largest);
			reduce[k] = 2 * ring_seconds(c, g, n * c->p->layer_state_gib * GIB / 3);
		}
		send[k] = r->down[stage_device(q, k, 0)];
		recv[k] = r->up[stage_device(q, k, 0)];
	}
	for (int k = 0; S > 1 && k < S; k++) {
		int next = (k + 1) % S;
		if (S == 2 && k == 1)
			break;
		c->route[2 * k] = route_between(c, r, q, k, next, true);
		c->route[2 * k + 1] = route_between(c, r, q, next, k, false);
		wired = wired || c->route[2 * k].wire_out >= 0;
	}
	in.forward_s = f;
	in.backward_s = b;
	in.step_s = step;
	in.reduce_s = reduce;
	in.send_s = send;
	in.recv_s = recv;
	in.barrier_s = c->p->step_ms / 1e3;
	in.act_bytes = in.grad_bytes = r->boundary_bytes;
	in.tied = S > 1 && profile_trains_tied(c->p);
	in.tied_s = in.tied ? tied_time(c, r, q) : 0;
	in.route = S > 1 ? c->route : NULL;
	in.wire = c->wire;
	in.wires = 2 * (size_t)c->p->hosts;
	c->plays++;
	c->instructions += (wired ? 18ll : 6ll) * all * q->microbatches;
	if (wired && cutoff < INFINITY) {
		/* Without the shared network cards no message is later: a lower bound for a tenth
		 * of the effort. */
		toggle_wires(c->route, S);
		TRY(sched_play(c->player, q->sched, &in, false, &res, e));
		toggle_wires(c->route, S);
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

void cost_cut(int stages, int chunks, const int *layers, int *first)
{
	int at = 0;

	for (int c = 0; c < chunks; c++)
		for (int k = 0; k < stages; k++) {
			first[c * stages + k] = at;
			at += layers[k] / chunks + (c < layers[k] % chunks);
		}
	first[stages * chunks] = at;
}

int cost_microbatches(const struct profile *p, const struct plan_options *o, int *out, int most)
{
	int n = 0;

	if (o->microbatch > 0) {
		out[0] = o->microbatch;
		return 1;
	}
	for (int m = 1; m <= p->global_batch && n < most; m++)
		if (p->global_batch % m == 0)
			out[n++] = m;
	return n;
}
