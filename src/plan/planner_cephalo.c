/* SPDX-License-Identifier: Apache-2.0 */
/* planner_cephalo.c - Cephalo (Guo et al., "Cephalo: Harnessing Heterogeneous GPU Clusters for
 * Training Transformer Models"; planner of the authors' repository benson-guo/cephalo, MIT, method
 * dp_ga with min_params): fully sharded data parallelism over all devices. The number of sequences
 * and microbatches that a device computes and the share of the training state that it stores are
 * chosen independently.
 *
 * Time of device i with l microbatches of m, one layer: F = l f(m), B = (l - 1) 10 ms + l b(m), T =
 * max(AG, F) + max(AG + RS, F + B); AG and RS grow by a quarter where m is larger than fits beside
 * an even share of the state. Search: dp[i][j][k], the smallest largest T of the first i devices
 * with j sequences and microbatch sizes that sum to k; then the best k whose memory fits in sum.
 *
 * Corrected: when the state is shared out, the authors' code mistakes the number of microbatches
 * for their size and so sees less memory in use than there is; its shares are kept (they are its
 * published answer) as long as they fit into the devices with the true size, else they are made
 * again with it. A first solution over the memory limit is not kept as the answer; large batches
 * are searched in units of several sequences (what the authors' extrapolate_bs_factor does by hand)
 * so that the search ends.
 *
 * Its plan is run as it is meant: the layers are chunks of breadth_first (layers outside,
 * microbatches inside), values and state are stored by the shares, and each device has microbatches
 * of a size of its own (plan.pass). Where a run has begun and the sizes are decided, they are dealt
 * to all devices by speed, and the state is divided by memory. */
#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "plan/plan.h"

#define GIB 1073741824.0
#define OVERHEAD_MS 10.0 /* of every microbatch after the first, in backward */
#define COMM_GIB 2.0     /* buffers of gathered layers */
#define USABLE 0.75      /* of a device's memory */
#define STATE_BYTES 16.0 /* fp32 weight, gradient, two moments */
#define UNEVEN 1.25      /* collectives of uneven shares */
#define MOST_WORK 4e8    /* inner loops of the search */

struct state {
	const struct profile *p;
	int n, batch, unit; /* batch in units of `unit` sequences */
	double *best;       /* [(n + 1) * (batch + 1) * (batch + 1)] */
	int *samples, *size;
	int *most, *most_even; /* [n] largest m in memory; beside an even share of the state */
};

static size_t index_of(const struct state *s, int i, int j, int k)
{
	size_t w = (size_t)s->batch + 1;
	return ((size_t)i * w + (size_t)j) * w + (size_t)k;
}

static double memory_of(const struct state *s, int device, int m)
{
	return curve_at(&s->p->device[device].activation_gib, m) + COMM_GIB;
}

static double layer_ms(const struct state *s, int device, int m, int l)
{
	const struct profile_device *d = &s->p->device[device];
	double stretch = m > s->most_even[device] ? UNEVEN : 1;
	double ag = s->p->all_gather_ms * stretch, rs = s->p->reduce_scatter_ms * stretch;
	double f = l * curve_at(&d->forward_ms, m),
	       b = (l - 1) * OVERHEAD_MS + l * curve_at(&d->backward_ms, m);

	return fmax(ag, f) + fmax(ag + rs, f + b);
}

/* The largest microbatch (in units) for which the device has `budget` GiB. */
static int largest_microbatch(const struct state *s, int device, double budget)
{
	int m = 0;

	while (m < s->batch && memory_of(s, device, (m + 1) * s->unit) <= budget)
		m++;
	return m * s->unit;
}

static void search_device(struct state *s, int i, const double *time)
{
	int dev = i - 1, B = s->batch;

	for (int j = 1; j <= B; j++)
		for (int k = 1; k <= j; k++) {
			size_t here = index_of(s, i, j, k);
			int most = s->most[dev] / s->unit < k ? s->most[dev] / s->unit : k;
			for (int m = 1; m <= most; m++)
				for (int l = 1; l * m <= j; l++) {
					double t =
						fmax(s->best[index_of(s, i - 1, j - l * m, k - m)],
						     time[m * (B + 1) + l]);
					if (t < s->best[here]) {
						s->best[here] = t;
						s->samples[here] = l * m;
						s->size[here] = m;
					}
				}
		}
}

/* Reads the choices back from k; false when there is no solution with that sum. */
static bool read_choices(const struct state *s, int k, int *samples, int *size)
{
	int j = s->batch;

	for (int i = s->n; i > 0; i--) {
		size_t here = index_of(s, i, j, k);
		if (s->size[here] <= 0)
			return false;
		samples[i - 1] = s->samples[here];
		size[i - 1] = s->size[here];
		j -= samples[i - 1];
		k -= size[i - 1];
	}
	return true;
}

static double memory_needed(const struct state *s, const int *size)
{
	double sum = s->p->parameters * STATE_BYTES / GIB;

	for (int i = 0; i < s->n; i++)
		sum += memory_of(s, i, size[i] * s->unit);
	return sum;
}

/* Shares of the state, in parameters: equal at first; devices without enough memory give part of
 * theirs to the others, in the order of free space. `published` uses the number of microbatches in
 * place of their size, as the authors' code does. */
static void share_state(const struct state *s, struct plan_member *m, bool published)
{
	double even = s->p->parameters / s->n, per = STATE_BYTES / GIB, move = 0, before = 0,
	       total = 0;
	int *order = s->most,
	    open = 0; /* the search is over: its array is used again for the order */
	double *space = s->best;

	for (int i = 0; i < s->n; i++) {
		double budget = s->p->device[i].memory_gib * (published ? USABLE : 1);
		double extra = floor(
			(budget - memory_of(s, i, published ? m[i].microbatches : m[i].microbatch) -
			 even * per) /
			per);
		m[i].state_share = extra > 0 ? even : fmax(0, even + extra);
		if (extra <= 0) {
			move += even - m[i].state_share; /* no more than it has */
			continue;
		}
		int at_i = open++;
		for (; at_i > 0 && space[at_i - 1] > extra; at_i--) {
			space[at_i] = space[at_i - 1];
			order[at_i] = order[at_i - 1];
		}
		space[at_i] = extra;
		order[at_i] = i;
	}
	for (int i = 0; i < open && move > 0; i++) {
		double add = fmin(space[i] - before, floor(move / (open - i)));
		for (int k = i; k < open; k++) {
			m[order[k]].state_share += add;
			move -= add;
		}
		before = space[i];
	}
	for (int i = 0; i < s->n; i++)
		total += m[i].state_share;
	for (int i = 0; i < s->n; i++)
		m[i].state_share = total > 0 ? m[i].state_share / total : 1.0 / s->n;
}

static bool shares_fit(const struct state *s, const struct plan_member *m)
{
	for (int i = 0; i < s->n; i++)
		if (memory_of(s, i, m[i].microbatch) +
			    m[i].state_share * s->p->parameters * STATE_BYTES / GIB >
		    s->p->device[i].memory_gib)
			return false;
	return true;
}

static int solve(struct state *s, double *time, int *samples, int *size, struct plan *out,
		 struct err *e)
{
	const struct profile *p = s->p;
	double cap = 0, found = INFINITY, even = p->parameters * STATE_BYTES / GIB / s->n,
	       least = INFINITY;
	int keep = 0, w = s->batch + 1;

	for (int i = 0; i < s->n; i++) {
		cap += USABLE * p->device[i].memory_gib;
		s->most[i] = largest_microbatch(s, i, USABLE * p->device[i].memory_gib);
		s->most_even[i] = largest_microbatch(s, i, USABLE * p->device[i].memory_gib - even);
	}
	for (size_t i = 0; i < (size_t)(s->n + 1) * (size_t)w * (size_t)w; i++)
		s->best[i] = INFINITY;
	s->best[0] = 0;
	for (int i = 1; i <= s->n; i++) {
		for (int m = 1; m < w; m++)
			for (int l = 1; l * m < w; l++)
				time[m * w + l] = layer_ms(s, i - 1, m * s->unit, l);
		search_device(s, i, time);
	}
	for (int k = 1; k <= s->batch; k++) {
		double t = s->best[index_of(s, s->n, s->batch, k)], gib;
		if (!read_choices(s, k, samples, size))
			continue;
		gib = memory_needed(s, size);
		least = fmin(least, gib);
		if (t < found && gib < cap) {
			found = t;
			keep = k;
		}
	}
	if (!keep && isinf(least))
		return err_set(e, ERR_USAGE,
			       "cephalo: some device cannot hold even one sequence beside %.0f GiB "
			       "of buffers; use 'best'",
			       COMM_GIB);
	if (!keep)
		return err_set(e, ERR_USAGE,
			       "cephalo: needs %.2f GiB over all devices, %.0f %% of their memory "
			       "is %.2f GiB; use 'best'",
			       least, 100 * USABLE, cap);
	read_choices(s, keep, samples, size);
	out->objective_ms = found;
	out->predicted_ms = found * p->layers;
	for (int i = 0; i < s->n; i++) {
		struct plan_member *m = &out->stage[0].member[i];
		m->device = i;
		m->microbatch = size[i] * s->unit;
		m->microbatches = samples[i] / size[i];
	}
	share_state(s, out->stage[0].member, true);
	if (!shares_fit(s, out->stage[0].member))
		share_state(s, out->stage[0].member, false);
	return 0;
}

/* All devices share one stage, layer by layer. */
static int shard_layers(struct plan *out, struct err *e)
{
	if (out->stage[0].members < 2 || out->stage[0].members > SCHED_MAX_GROUP)
		return 0;
	out->stage[0].recompute = true;
	return plan_cut_layers(out, plan_most_chunks(out), true, e);
}

/* The microbatches in the order in which they are dealt, where their sizes differ. */
static int list_passes(struct plan *out, struct err *e)
{
	struct plan_stage *s = &out->stage[0];
	int share[SCHED_MAX_GROUP], n = 0;
	bool same = true;

	if (s->members < 2 || s->members > SCHED_MAX_GROUP)
		return 0;
	for (int i = 0; i < s->members; i++) {
		n += share[i] = s->member[i].microbatches;
		same = same && s->member[i].microbatch == s->member[0].microbatch;
	}
	if (same) {
		out->microbatch = s->member[0].microbatch;
		out->microbatches = n;
		return 0;
	}
	int *pass = mem_array((size_t)n, sizeof *pass);
	if (!pass)
		return err_nomem(e, (size_t)n * sizeof *pass, "passes");
	sched_deal(share, s->members, n, pass);
	for (int i = 0; i < n; i++)
		pass[i] = s->member[pass[i]].microbatch;
	int rc = plan_set_passes(out, pass, n, e);
	mem_free(pass);
	return rc;
}

/* The sizes of the run, dealt by speed. */
static int keep_passes(const struct profile *p, const struct plan_options *o, struct plan *out,
		       struct err *e)
{
	const int m = o->pass             ? 1
		      : o->microbatch > 0 ? o->microbatch
					  : 1,
		  n = o->pass ? o->passes : p->global_batch / m;
	double least = INFINITY;

	TRY(plan_alloc(out, 1, 1, e));
	TRY(plan_stage_members(out, 0, p->devices, e));
	out->microbatch = m;
	out->microbatches = n;
	out->first[1] = p->layers;
	out->sched = sched_find("gpipe");
	for (int i = 0; i < p->devices; i++)
		least = fmin(least, curve_at(&p->device[i].forward_ms, m) +
					    curve_at(&p->device[i].backward_ms, m));
	for (int i = 0; i < p->devices; i++) {
		struct plan_member *v = &out->stage[0].member[i];
		const double ms = curve_at(&p->device[i].forward_ms, m) +
				  curve_at(&p->device[i].backward_ms, m);
		v->device = i;
		v->microbatch = m;
		v->share = ms > 0 ? (int)fmax(1, round(1000 * least / ms)) : 1;
	}
	if (p->devices < 2) {
		out->stage[0].member[0].microbatches = n;
		return o->pass ? plan_set_passes(out, o->pass, o->passes, e) : 0;
	}
	if (p->devices > SCHED_MAX_GROUP)
		return err_set(e, ERR_USAGE, "cephalo: %d devices, a group has at most %d",
			       p->devices, SCHED_MAX_GROUP);
	int share[SCHED_MAX_GROUP], count[SCHED_MAX_GROUP];
	for (int i = 0; i < p->devices; i++)
		share[i] = out->stage[0].member[i].share;
	sched_dealt(share, p->devices, n, count);
	for (int i = 0; i < p->devices; i++)
		out->stage[0].member[i].microbatches = count[i];
	plan_share_state(p, o, &out->stage[0]);
	TRY(shard_layers(out, e));
	return o->pass ? plan_set_passes(out, o->pass, o->passes, e) : 0;
}

static int plan_cephalo(const struct profile *p, const struct plan_options *o, struct plan *out,
			struct err *e)
{
	struct state s = { .p = p, .n = p->devices, .batch = p->global_batch, .unit = 1 };
	double *time = NULL;
	int *samples, *size, rc = 0;
	size_t cells, w;

	if (o->keep_passes || o->pass)
		return keep_passes(p, o, out, e);
	if (p->global_batch < p->devices)
		return err_set(e, ERR_USAGE,
			       "cephalo: every device computes at least one sequence: %d devices, "
			       "global batch %d; take a larger batch or use 'best'",
			       p->devices, p->global_batch);
	while (s.n * pow(s.batch, 3) * log(s.batch + 1) / 4 > MOST_WORK) {
		do
			s.unit++;
		while (s.unit < p->global_batch && p->global_batch % s.unit);
		s.batch = p->global_batch / s.unit;
	}
	if (s.batch < s.n)
		return err_set(e, ERR_USAGE,
			       "cephalo: %d devices and a global batch of %d are too many for its "
			       "search; use 'best'",
			       p->devices, p->global_batch);
	w = (size_t)s.batch + 1;
	cells = (size_t)(s.n + 1) * w * w;
	s.best = mem_array(cells, sizeof(double));
	s.samples = mem_array(cells, sizeof(int));
	s.size = mem_array(cells, sizeof(int));
	s.most = mem_array(4 * (size_t)s.n, sizeof(int));
	time = mem_array(w * w, sizeof(double));
	if (!s.best || !s.samples || !s.size || !s.most || !time) {
		rc = err_nomem(e, cells * 16, "cephalo's search");
		goto out;
	}
	s.most_even = s.most + s.n;
	samples = s.most_even + s.n;
	size = samples + s.n;
	TRYOUT(plan_alloc(out, 1, 1, e));
	TRYOUT(plan_stage_members(out, 0, s.n, e));
	out->sched = sched_find("gpipe");
	out->microbatch = 1; /* devices have sizes of their own */
	out->microbatches = p->global_batch;
	out->first[1] = p->layers;
	out->stage[0].recompute = out->stage[0].sharded = s.n > 1;
	rc = solve(&s, time, samples, size, out, e);
	if (rc == 0 && s.n == 1) {
		out->microbatch = out->stage[0].member[0].microbatch;
		out->microbatches = out->stage[0].member[0].microbatches;
	}
	if (rc == 0)
		rc = shard_layers(out, e);
	if (rc == 0)
		rc = list_passes(out, e);
out:
	mem_free(s.best);
	mem_free(s.samples);
	mem_free(s.size);
	mem_free(s.most);
	mem_free(time);
	return rc;
}

const struct planner planner_cephalo = {
	.name = "cephalo",
	.help = "sharded data parallelism over all devices (Cephalo)",
	.takes_passes = true,
	.chooses_sizes = true,
	.plan = plan_cephalo,
};
