/* SPDX-License-Identifier: Apache-2.0 */
/* cost_memory.c - the memory of a member, and where recomputing makes a stage fit; see cost.h. */
#include "plan/cost_parts.h"

#include <math.h>

#include "base/mem.h"

#define GIB 1073741824.0

double cost_trained_gib(const struct profile *p, int n, bool front, bool end)
{
	/* of a head that is the embedding nothing else is kept */
	const double tied =
		profile_trains_tied(p) ? fmin(p->head_state_gib, cost_table_bytes(p) / GIB) : 0;
	double gib = n * p->layer_state_gib + (front ? p->embedding_state_gib : 0);
	if (end)
		gib += p->head_state_gib - tied;
	return profile_gradients(p) * gib + (end ? tied : 0);
}

/* fp32 gradients of what is trained in n layers of a stage. */
double cost_gradient_gib(const struct cost *c, const struct pipe *q, int stage, int n)
{
	return cost_trained_gib(c->p, n, stage == 0, stage == q->stages - 1);
}

/* Gradients of the stage that member i keeps beside those that it adds to, in the order exact. */
static int held_gradients(const struct pipe *q, int stage, int i)
{
	int *place;
	if (!cost_is_played(q, stage))
		return sum_held(NULL, q->microbatches, 0);
	place = mem_array((size_t)q->microbatches, sizeof *place);
	if (!place) /* at most */
		return q->microbatches;
	sched_deal(q->shape->share + cost_first_played(q, stage), cost_members(q, stage),
		   q->microbatches, place);
	int n = sum_held(place, q->microbatches, i);
	mem_free(place);
	return n;
}

static int largest_pass(const struct pipe *q)
{
	int most = 1;
	for (int i = 0; i < q->microbatches; i++)
		most = q->pass[i] > most ? q->pass[i] : most;
	return most;
}

/* Memory of a device whose values are gathered, without what its microbatches need: of a member of
 * a sharded group with this share of the state, or of one that has them in the memory of its host.
 * Two chunks have memory, of which one is computed: chunk c uses the part c % 2. */
static double gathered_gib(const struct cost *c, const struct pipe *q, int stage, int i, int device,
			   double share)
{
	const struct profile *p = c->p;
	const bool hosted = cost_offloads(c, device, OFFLOAD_PARAMETERS),
		   updates = cost_offloads(c, device, OFFLOAD_OPTIMIZER);
	double values[2] = { 0 }, whole = 0, gathered = 0, trained = 0, most = 0;
	int largest, n = cost_layers(q, stage, &largest);
	for (int k = 0; k < q->chunks; k++) {
		const double gib = cost_gathered_gib(p, q, k * q->stages + stage);
		values[k % 2] = fmax(values[k % 2], gib);
		gathered += gib;
	}
	const double lent = values[0] + values[1],
		     tables = stage == 0 || stage == q->stages - 1 ? p->embedding_gib : 0;
	const double gradients = cost_gradient_gib(c, q, stage, n);
	double state = n * p->layer_state_gib + (stage == 0 ? p->embedding_state_gib : 0) +
		       (stage == q->stages - 1 ? p->head_state_gib : 0);
	if (p->tied)
		whole = tables;
	if (cost_trains_all(p)) {
		/* in 16 bits the values are made from the master copies, which are state */
		const double bytes = profile_dtype_bytes(p);
		const double tied =
			p->tied ? (stage == 0) * cost_table_bytes(p) / GIB +
					  (stage == q->stages - 1) * cost_table_bytes(p) / GIB
				: 0;
		/* of a tied table the gradients are whole */
		trained =
			(hosted || updates ? 0
					   : share * (state - tied + (bytes == 4 ? gathered : 0))) +
			(updates ? tied * profile_gradients(p) : tied) + lent * 4 / bytes;
		most = fmax(values[0], values[1]) * 4 / bytes;
	} else {
		trained = (hosted ? 0 : share * gathered) +
			  (updates ? 0 : share * (state - gradients)) + gradients;
		most = gradients * largest / n;
	}
	if (cost_order(c) == SUM_EXACT)
		trained += 2 * held_gradients(q, stage, i) * most;
	return whole + lent + trained;
}

/* What `held` microbatches keep where all chunks are between their passes at once. */
static double chunked_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
			  int stage, int device, bool recompute, int held)
{
	int largest, n = cost_layers(q, stage, &largest);
	const double edge = r->boundary_gib, kept = r->kept[device];
	if (!held)
		return 0;
	if (cost_offloads(c, device, OFFLOAD_ACTIVATIONS)) {
		/* one that computes and one that comes or goes; of the model's end all inputs */
		const double end = stage == q->stages - 1 ? held * (largest + 2) * edge : 0;
		return 2 * (largest * kept + 3 * edge) + end;
	}
	return held * (recompute ? (n + q->chunks) * edge : n * kept + 2 * q->chunks * edge);
}

/* What the model's end keeps of the microbatches that wait for their backward, beside the one that
 * is computed. */
static double end_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int device, int microbatches)
{
	const int wait = sched_at_end(q->sched, q->stages, q->chunks, microbatches) - 1;
	const bool last = stage == q->stages - 1 && !cost_offloads(c, device, OFFLOAD_ACTIVATIONS);
	return last && wait > 0 ? wait * r->head_kept[device] : 0;
}

double cost_stage_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int i, bool recompute)
{
	const struct profile *p = c->p;
	const struct plan_stage *g = q->stage[stage].group;
	const struct plan_member *m = g ? &g->member[i] : NULL;
	const struct cost_row *mr = m         ? cost_row_of(c, r, m->microbatch)
				    : q->pass ? cost_row_of(c, r, largest_pass(q))
					      : r;
	int largest, n = cost_layers(q, stage, &largest),
		     device = m ? m->device : q->stage[stage].device;
	int in_flight = q->shape ? sched_in_flight(q->sched, q->shape, stage,
						   cost_is_played(q, stage) ? i : 0)
				 : sched_in_flight_alone(q->sched, q->stages, q->chunks,
							 q->microbatches, stage);
	const double pieces = 1 + p->device[device].rounding;
	double weights = n * p->layer_gib - cost_offloaded_experts(c, device, n),
	       state = n * p->layer_state_gib, work = mr->work[device], kept,
	       edge = mr->boundary_gib;

	/* what it keeps is counted with the microbatches in flight */
	if (!recompute || cost_offloads(c, device, OFFLOAD_ACTIVATIONS))
		work = fmax(work - mr->kept[device], 0);
	if (stage == 0) {
		weights += p->embedding_gib;
		state += p->embedding_state_gib;
	}
	if (stage == q->stages - 1) {
		weights += p->head_gib;
		state += p->head_state_gib;
		if (p->tied && q->stages == 1) /* the same table, its gradient twice */
			weights -= fmin(p->embedding_gib, p->head_gib);
		/* what the end keeps stays until the last layer's backward is done */
		if (!cost_offloads(c, device, OFFLOAD_ACTIVATIONS))
			work += mr->head_kept[device];
		work = fmax(work, mr->head_work[device]);
	}
	work += end_gib(c, mr, q, stage, device, m ? m->microbatches : q->microbatches);
	if (g && g->sharded && cost_is_played(q, stage)) {
		const int held = m->microbatches;
		return p->device[device].fixed_gib +
		       pieces * gathered_gib(c, q, stage, i, device, m->state_share) +
		       chunked_gib(c, mr, q, stage, device, recompute, held) +
		       (held > 0 ? work : 0) + (q->stages > 1 ? 2 * edge : 0);
	}
	if (!g && q->sched->gathers && cost_offloads(c, device, OFFLOAD_PARAMETERS))
		return p->device[device].fixed_gib +
		       pieces * gathered_gib(c, q, stage, i, device, 1) +
		       chunked_gib(c, mr, q, stage, device, recompute, q->microbatches) + work +
		       (q->stages > 1 ? 2 * edge : 0);
	if (g && g->sharded)
		return p->device[device].fixed_gib + 2 * p->layer_gib +
		       pieces * m->state_share * (weights + state) +
		       (m->microbatches > 0 ? work + 3 * edge : 0);
	const double gradients = cost_gradient_gib(c, q, stage, n);
	if (cost_offloads(c, device, OFFLOAD_OPTIMIZER))
		state = gradients;
	else if (g) /* gradients are whole */
		state = gradients + m->state_share * fmax(state - gradients, 0);
	if (cost_order(c) == SUM_EXACT)
		state += held_gradients(q, stage, i) * gradients;
	weights *= pieces;
	state *= pieces;
	if (g && !cost_is_played(q, stage))
		in_flight = m->microbatches < in_flight ? m->microbatches : in_flight;
	kept = recompute ? largest * edge : largest * mr->kept[device] + edge;
	if (cost_offloads(c, device, OFFLOAD_ACTIVATIONS))
		return p->device[device].fixed_gib + weights + state + work +
		       chunked_gib(c, mr, q, stage, device, recompute, q->microbatches) +
		       (q->stages > 1 ? 2 * edge : 0);
	return p->device[device].fixed_gib + weights + state + in_flight * kept + work +
	       (q->stages > 1 ? 2 * edge : 0);
}

bool cost_is_on_host(const struct cost *c, int device) { return c->p->device[device].on_host; }

/* Inputs of chunks, and gradients that wait for the chunk before, where activations are offloaded.
 * The front repeats its forward pass from tokens, the end of the model keeps its inputs. */
static double parked_gib(const struct pipe *q, int stage, int held, double edge)
{
	const int end = stage == q->stages - 1, chunks = q->chunks - end;
	const int inputs = chunks - (stage == 0), gradients = q->stages == 1 && chunks > 0;
	return held * edge * (inputs > 0 ? inputs + gradients : gradients);
}

double cost_host_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		     int stage, int i)
{
	const struct profile *p = c->p;
	const struct plan_stage *g = q->stage[stage].group;
	const struct plan_member *m = g ? &g->member[i] : NULL;
	const int device = m ? m->device : q->stage[stage].device;
	const bool hosted = cost_offloads(c, device, OFFLOAD_PARAMETERS),
		   updates = cost_offloads(c, device, OFFLOAD_OPTIMIZER);
	const double share = m ? m->state_share : 1;
	int largest, n = cost_layers(q, stage, &largest);
	double gib = 0, values = n * p->layer_gib,
	       state = n * p->layer_state_gib + (stage == 0 ? p->embedding_state_gib : 0) +
		       (stage == q->stages - 1 ? p->head_state_gib : 0);
	const double trained = profile_gradients(p) * state; /* float32 values of what is trained */
	if (hosted || (updates && g && g->sharded)) {
		values = 0;
		for (int k = 0; k < q->chunks; k++)
			values += cost_gathered_gib(p, q, k * q->stages + stage);
	} else if (updates && cost_trains_all(p)) {
		values += (stage == 0 ? p->embedding_gib : 0) +
			  (stage == q->stages - 1 ? p->head_gib : 0);
		if (p->tied && q->stages == 1)
			values -= fmin(p->embedding_gib, p->head_gib);
	}
	if (cost_trains_all(p) && (hosted || updates)) {
		/* a table that is also the head is not gathered */
		if (p->tied && !updates)
			state -= (stage == 0) * p->embedding_state_gib +
				 (stage == q->stages - 1) * p->head_state_gib;
		gib += share * (state + values);
	} else {
		gib += hosted ? share * values : 0;
		gib += updates ? share * (state + trained) : 0;
	}
	if (cost_offloads(c, device, OFFLOAD_EXPERTS))
		gib += n * p->expert_gib;
	if (updates || (hosted && cost_trains_all(p))) /* what updates need while they run */
		gib += 4.0 / 1024;
	if (cost_offloads(c, device, OFFLOAD_ACTIVATIONS))
		gib += parked_gib(q, stage, m ? m->microbatches : q->microbatches,
				  (m ? cost_row_of(c, r, m->microbatch) : r)->boundary_gib);
	return gib;
}

double cost_host_over(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int host)
{
	double need = 0, least = 0, offloaded = 0;
	for (int k = 0; c->o->offload && k < q->stages; k++) {
		const struct plan_stage *g = q->stage[k].group;
		for (int i = 0; i < (g ? g->members : 1); i++) {
			const int device = g ? g->member[i].device : q->stage[k].device;
			const struct profile_device *d = &c->p->device[device];
			if (d->host != host)
				continue;
			if (d->host_memory_gib > 0 && (!least || d->host_memory_gib < least))
				least = d->host_memory_gib;
			if (d->on_host)
				need += cost_stage_gib(c, r, q, k, i, q->stage[k].recompute);
			else
				offloaded += cost_host_gib(c, r, q, k, i);
		}
	}
	return least > 0 && offloaded > 0 ? fmax(0, need + offloaded - least) : 0;
}

/* One way of a link. */
static double in_window(double gib) { return fmin(gib, 64.0 / 1024); }

/* Sums of gradients, new values and pieces of the members of a group. */
static double group_links_gib(const struct cost *c, const struct pipe *q, int stage, int i)
{
	const struct plan_stage *g = q->stage[stage].group;
	int largest, n = cost_layers(q, stage, &largest);
	const double gradients = cost_gradient_gib(c, q, stage, n);
	double gib = 0, piece = 0;
	for (int k = 0; g->sharded && k < q->chunks; k++)
		piece = fmax(piece, cost_gathered_gib(c->p, q, k * q->stages + stage));
	for (int k = 0; k < g->members; k++) {
		if (k == i)
			continue;
		const bool shares = plan_shares_state(g);
		const double theirs = shares ? g->member[k].state_share : 1.0 / g->members,
			     own = shares ? g->member[i].state_share : 1.0 / g->members;
		gib += in_window(theirs * gradients + own * 2 * piece) +
		       in_window(own * gradients + theirs * 2 * piece);
	}
	return gib;
}

double cost_links_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int i)
{
	const struct plan_stage *g = q->stage[stage].group;
	const int own = g ? g->member[i].microbatches : q->microbatches;
	const double edge = (g ? cost_row_of(c, r, g->member[i].microbatch) : r)->boundary_gib;
	double gib = g && g->members > 1 ? group_links_gib(c, q, stage, i) : 0;
	for (int way = -1; way <= 1 && q->stages > 1; way += 2) {
		const int other = (stage + way + q->stages) % q->stages;
		if (q->chunks == 1 && (stage + way < 0 || stage + way >= q->stages))
			continue;
		const struct plan_stage *o = q->stage[other].group;
		for (int k = 0; k < (o ? o->members : 1); k++) {
			const int theirs = o ? o->member[k].microbatches : q->microbatches;
			gib += 2 * in_window(edge * q->chunks * (own < theirs ? own : theirs));
		}
	}
	return gib;
}

static bool hosts_fit(const struct cost *c, const struct cost_row *r, const struct pipe *q)
{
	for (int h = 0; c->o->offload && h < c->p->hosts; h++)
		if (cost_host_over(c, r, q, h) > 0)
			return false;
	return true;
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
		const bool waits = g && g->sharded && !cost_is_played(q, k);
		bool must = c->o->recompute == PLAN_RECOMPUTE_ALWAYS || waits;
		if (!must && stage_fits(c, r, q, k, false)) {
			q->stage[k].recompute = false;
			continue;
		}
		q->stage[k].recompute = c->o->recompute != PLAN_RECOMPUTE_NEVER || waits;
		if (!q->stage[k].recompute || !stage_fits(c, r, q, k, true))
			all = false;
	}
	return all && hosts_fit(c, r, q);
}
