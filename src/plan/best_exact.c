/* SPDX-License-Identifier: Apache-2.0 */
/* best_exact.c - branch and bound over every pipeline: stages are added one after the other, from
 * the front. A branch is abandoned as soon as its bound is not below the best plan so far.
 *
 * The bound, for stages already placed (w = one microbatch through a stage, forward and backward):
 * a stage cannot begin before a microbatch has passed the stages before it, and its last gradient
 * must pass them again; between the two it does all its own work:
 *   T >= sum of w and link times before it + M w
 * and the remaining layers make at least one later stage take
 *   M left / (sum of the speeds of the unused devices).
 * With chunks only the first chunk of each earlier stage comes before, so the sum of w is divided
 * by the largest number of chunks. Of identical devices (same host, same measurements) only the
 * first unused one is tried. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "plan/search.h"

enum { PLAY = 200 }; /* effort of one simulation, in nodes */

struct branch {
	struct search *s;
	const struct cost_row *r;
	struct candidate k;
	int *alike; /* [devices] the first device that is identical to this one */
	bool *used;
	int M, chunks;
	int64_t nodes;
	double speed; /* of the unused devices: sum of 1 / (f + b) */
};

static double stage_work(const struct branch *b, int d, int n, bool front, bool end)
{
	const struct cost_row *r = b->r;

	return n * (r->f[d] + r->b[d]) + (front ? r->ef[d] + r->eb[d] : 0) +
	       (end ? r->hf[d] + r->hb[d] : 0);
}

static int evaluate_leaf(struct branch *b, int stages, struct err *e)
{
	int64_t plays = b->s->c.plays;

	b->k.stages = stages;
	for (int i = 0; i < b->s->kinds; i++) {
		b->k.sched = b->s->kind[i].sched;
		b->k.chunks = b->s->kind[i].chunks;
		TRY(search_offer(b->s, &b->k, e));
	}
	b->nodes -= (b->s->c.plays - plays) * PLAY;
	return 0;
}

static bool cannot_improve(const struct branch *b, double bound)
{
	return bound + b->s->p->step_ms / 1e3 >= b->s->best.step_s;
}

/* `through`: work of the stages so far for one microbatch; `links`: theirs and the one to
 * this stage. */
static int add_stage(struct branch *b, int stage, int left, double through, double links,
		     struct err *e)
{
	const struct profile *p = b->s->p;

	for (int d = 0; d < p->devices; d++) {
		double mine = 1 / (b->r->f[d] + b->r->b[d]), add = 0;
		bool twin = false;

		if (b->used[d])
			continue;
		for (int x = b->alike[d]; x < d && !twin; x++)
			twin = b->alike[x] == b->alike[d] && !b->used[x];
		if (twin)
			continue;
		if (stage > 0) {
			int a = b->k.device[stage - 1];
			double there = b->r->boundary_bytes / (profile_bandwidth(p, a, d) * 1e9);
			double back = b->r->boundary_bytes / (profile_bandwidth(p, d, a) * 1e9);
			if (cannot_improve(b,
					   through / b->chunks + links + b->M * fmax(there, back)))
				continue;
			add = there + back +
			      (profile_latency_ms(p, a, d) + profile_latency_ms(p, d, a)) / 1e3;
		}
		b->used[d] = true;
		b->k.device[stage] = d;
		b->speed -= mine;
		for (int n = 1; n <= left; n++) {
			double w = stage_work(b, d, n, stage == 0, n == left),
			       before = through / b->chunks + links + add;
			if (b->nodes-- <= 0)
				break;
			if (cannot_improve(b, before + b->M * w)) {
				if (n < left)
					n = left - 1; /* more layers only take longer */
				else
					break;
				continue;
			}
			b->k.layers[stage] = n;
			if (n == left) {
				TRY(evaluate_leaf(b, stage + 1, e));
				break;
			}
			if (b->speed > 0 &&
			    !cannot_improve(b, (through + w) / b->chunks + links + add +
						       b->M * (left - n) / b->speed) &&
			    stage + 1 < p->devices)
				TRY(add_stage(b, stage + 1, left - n, through + w, links + add, e));
		}
		b->speed += mine;
		b->used[d] = false;
		if (b->nodes <= 0)
			return 0;
	}
	return 0;
}

static bool are_identical(const struct search *s, int a, int b)
{
	const struct profile_device *x = &s->p->device[a], *y = &s->p->device[b];

	if (x->host != y->host || s->c.limit[a] != s->c.limit[b] ||
	    x->optimizer_ms != y->optimizer_ms ||
	    x->embedding_optimizer_ms != y->embedding_optimizer_ms ||
	    x->head_optimizer_ms != y->head_optimizer_ms || x->fixed_gib != y->fixed_gib ||
	    a == s->o->must_use || b == s->o->must_use)
		return false;
	for (size_t i = 0; i < s->c.rows; i++) {
		const struct cost_row *r = &s->c.row[i];
		if (r->f[a] != r->f[b] || r->b[a] != r->b[b] || r->ef[a] != r->ef[b] ||
		    r->eb[a] != r->eb[b] || r->hf[a] != r->hf[b] || r->hb[a] != r->hb[b] ||
		    r->up[a] != r->up[b] || r->down[a] != r->down[b] || r->kept[a] != r->kept[b] ||
		    r->work[a] != r->work[b] || r->head_work[a] != r->head_work[b])
			return false;
	}
	return true;
}

int search_exact(struct search *s, int64_t nodes, bool *complete_p, struct err *e)
{
	struct branch b = { .s = s, .chunks = 1, .nodes = nodes };
	size_t n = (size_t)s->p->devices;

	TRY(candidate_init(s, &b.k, e));
	b.alike = arena_alloc(&s->c.mem, n * sizeof(int));
	b.used = arena_alloc(&s->c.mem, n * sizeof(bool));
	if (!b.alike || !b.used)
		return err_set(e, ERR_NOMEM, "out of memory for a plan's search");
	for (int i = 0; i < s->p->devices; i++) {
		b.alike[i] = i;
		for (int k = 0; k < i && b.alike[i] == i; k++)
			if (are_identical(s, k, i))
				b.alike[i] = b.alike[k];
	}
	for (int i = 0; i < s->kinds; i++)
		b.chunks = s->kind[i].chunks > b.chunks ? s->kind[i].chunks : b.chunks;
	for (int i = 0; i < s->sizes && b.nodes > 0; i++) {
		b.r = cost_row(&s->c, s->size[i]);
		b.M = s->p->global_batch / s->size[i];
		b.k.m = s->size[i];
		b.speed = 0;
		for (int d = 0; d < s->p->devices; d++)
			b.speed += 1 / (b.r->f[d] + b.r->b[d]);
		TRY(add_stage(&b, 0, s->p->layers, 0, 0, e));
	}
	*complete_p = b.nodes > 0;
	return 0;
}
