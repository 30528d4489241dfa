/* SPDX-License-Identifier: Apache-2.0 */
/* best_groups.c - plans whose stages several devices share, judged by the simulator as all are.
 *
 * A grouping says of each device which stage it belongs to, and how many layers each stage has. The
 * rest follows: the microbatches of a stage are dealt to its devices by their speed, and where it
 * would not fit the devices share the training state (what `shard: auto` allows).
 *
 * Starting points: the best pipeline, all devices in one group, a group of each host's, a group of
 * each kind, and some at random. Then, step by step: a device to another stage, to a stage of its
 * own, or out; layers from one stage to another; two devices, three of them, or two stages change
 * places; two stages become one; a stage is cut in two; another microbatch size,
 * schedule or number of chunks; groups that share the training state though it would fit, because
 * each then updates a part of it only; another way of adding up the gradients of large groups.
 * The first change that is faster is kept, until there is none; then two devices of the best one
 * are moved at random, and it begins again, until the effort is spent. A grouping that does not fit
 * is judged by how much memory is missing, so that the way to one that fits is found.
 *
 * Of a small cluster all groupings are judged instead, with all layers; so does `exhaustive`. */
#include "plan/search.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "plan/offload.h"

enum { DEVICES = SEARCH_GROUPED, STARTS = 12, KNOWN = 3, KICKS = 512 };
enum { OUT = -1, KINDS = 8, TURNED = 12, WAYS = 4 };

/* how groups add up; the first is what reducer_default() says */
static const struct reducer *const ways[WAYS] = { NULL, &reducer_direct, &reducer_ring,
						  &reducer_tree };

struct grouping {
	int stages, m;
	int kind;    /* of groups.kind */
	int way;     /* of `ways` */
	bool shares; /* groups share the training state, whether or not it would fit */
	int of[DEVICES], layers[DEVICES]; /* the stage of a device; layers of a stage */
	double cost;                      /* milliseconds; above TOO_BIG: it does not fit */
};

#define TOO_BIG 1e12
/* a change may be slower by this factor before its layers are moved */
#define NEAR 1.25
/* sharing state that need not be shared must be worth it */
#define SHARING 1.005
/* and so must another way of adding up */
#define ADDING 1.01
#define MOST_GROUPINGS 5e4

struct groups {
	const struct profile *p;
	const struct plan_options *o;
	struct search_kind kind[KINDS]; /* schedules; the default first */
	int kinds;
	struct plan plan; /* of the last grouping that was judged */
	int64_t left;     /* instructions that may still be simulated */
};

static double speed(const struct groups *g, int device, int m)
{
	const struct profile_device *d = &g->p->device[device];
	return 1 / (curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m));
}

static void add_kinds(struct groups *g)
{
	const struct sched *asked = g->o->sched && !g->o->sched->gathers ? g->o->sched : NULL;
	const struct sched *const row[] = { asked ? asked : sched_default(), &sched_eager,
					    &sched_interleaved };
	for (int i = 0; i < (asked ? 1 : 3); i++)
		for (int chunks = row[i]->chunked ? 2 : 1;
		     chunks <= (row[i]->chunked ? g->o->max_chunks : 1) && g->kinds < KINDS;
		     chunks++)
			g->kind[g->kinds++] = (struct search_kind){ row[i], chunks };
	if (!g->kinds)
		g->kind[g->kinds++] = (struct search_kind){ sched_default(), 1 };
}

/* Whether a schedule makes a difference, and can be. */
static bool suits(const struct groups *g, const struct grouping *x, int kind)
{
	for (int k = 0; k < x->stages; k++)
		if (x->layers[k] < g->kind[kind].chunks)
			return false;
	return kind == 0 ? g->kind[0].chunks == 1 || x->stages > 1 : x->stages > 1;
}

static int largest_group(const struct groups *g, const struct grouping *x)
{
	int n[DEVICES] = { 0 }, most = 0;
	for (int d = 0; d < g->p->devices; d++)
		if (x->of[d] != OUT)
			n[x->of[d]]++;
	for (int k = 0; k < x->stages; k++)
		most = n[k] > most ? n[k] : most;
	return most;
}

/* Whether groups that share their state could be faster: only what all train is shared. */
static bool may_share(const struct groups *g, const struct grouping *x)
{
	return g->o->share_auto && largest_group(g, x) > 1;
}

/* Whether it could be faster to add up in this way: between two members all are alike. */
static bool adds_up(const struct groups *g, const struct grouping *x, int way)
{
	const int most = largest_group(g, x);
	const bool free =
		!g->o->reducer && !g->o->collective && (!g->o->order || g->o->order == SUM_FAST);
	return !way || (free && most > 2 && ways[way] != reducer_default(SUM_FAST, most, false));
}

/* The microbatches of a stage, one after the other to the device that would end first with it. */
static void deal(const struct groups *g, struct plan_stage *s, int m, int microbatches)
{
	for (int left = microbatches; left > 0; left--) {
		double least = INFINITY;
		int pick = 0;
		for (int i = 0; i < s->members; i++) {
			const double t =
				(s->member[i].microbatches + 1) / speed(g, s->member[i].device, m);
			if (t < least) {
				least = t;
				pick = i;
			}
		}
		s->member[pick].microbatches++;
	}
}

static int make_plan(struct groups *g, const struct grouping *x, struct err *e)
{
	struct plan *plan = &g->plan;
	plan_release(plan);
	*plan = (struct plan){ .mem = ARENA_INIT, .over_device = -1 };
	TRY(plan_alloc(plan, x->stages, g->kind[x->kind].chunks, e));
	plan->sched = g->kind[x->kind].sched;
	plan->order = g->o->order ? g->o->order : SUM_FAST;
	plan->reducer = ways[x->way];
	plan->microbatch = x->m;
	plan->microbatches = g->p->global_batch / x->m;
	cost_cut(x->stages, plan->chunks, x->layers, plan->first);
	for (int k = 0; k < x->stages; k++) {
		struct plan_stage *s = &plan->stage[k];
		int n = 0;
		for (int d = 0; d < g->p->devices; d++)
			n += x->of[d] == k;
		TRY(plan_stage_members(plan, k, n, e));
		n = 0;
		for (int d = 0; d < g->p->devices; d++)
			if (x->of[d] == k)
				s->member[n++] = (struct plan_member){ .device = d,
								       .microbatch = x->m,
								       .state_share = 1 };
		deal(g, s, x->m, plan->microbatches);
		s->recompute = g->o->recompute == PLAN_RECOMPUTE_ALWAYS;
		if (x->shares)
			search_share(g->p, g->o, s);
		else if (g->o->offload & OFFLOAD_PARAMETERS)
			plan_share_state(g->p, g->o, s);
	}
	return plan_set_offload(g->p, plan, g->o->offload, g->o->max_chunks, e);
}

static int simulate(struct groups *g, struct err *e)
{
	int64_t members = 0;
	for (int k = 0; k < g->plan.stages; k++)
		members += g->plan.stage[k].members;
	/* about: forward, backward, a message each way */
	g->left -= 200 + 6 * members * g->plan.microbatches;
	return plan_simulate(g->p, g->o, &g->plan, e);
}

static int make_room(struct groups *g, struct err *e)
{
	if (g->plan.fits)
		return 0;
	g->left -= 400;
	return search_room(g->p, g->o, &g->plan, e);
}

/* The plan of a grouping with what makes it fit, the cheapest first. */
static int fit(struct groups *g, struct err *e)
{
	struct plan *plan = &g->plan;
	TRY(simulate(g, e));
	if (!plan->fits && g->o->share_auto && !plan->sched->gathers) {
		for (int k = 0; k < plan->stages; k++)
			plan_share_state(g->p, g->o, &plan->stage[k]);
		TRY(simulate(g, e));
		TRY(make_room(g, e));
	}
	if (!plan->fits && g->o->recompute == PLAN_RECOMPUTE_AUTO) {
		search_recompute_over(plan);
		TRY(simulate(g, e));
		TRY(make_room(g, e));
	}
	if (!plan->fits && g->o->share_auto && plan->stages == 1 && plan->stage[0].members > 1 &&
	    !g->o->sched && !plan->sched->gathers) {
		TRY(plan_shard_values(plan, plan_most_chunks(plan), e));
		TRY(simulate(g, e));
		TRY(make_room(g, e));
	}
	return 0;
}

/* The grouping's cost; `g->plan` is its plan. */
static int judge(struct groups *g, struct grouping *x, struct err *e)
{
	x->cost = INFINITY;
	if (x->stages < 1 || x->stages > g->p->layers || !suits(g, x, x->kind) ||
	    (g->o->must_use >= 0 && x->of[g->o->must_use] == OUT))
		return 0;
	x->way = adds_up(g, x, x->way) ? x->way : 0;
	TRY(make_plan(g, x, e));
	int rc = plan_check(g->p, &g->plan, e);
	if (rc >= 0)
		rc = fit(g, e);
	if (rc < 0) {
		if (rc == ERR_NOMEM || rc == ERR_INTERNAL)
			return rc;
		err_clear(e);
		return 0;
	}
	if (g->plan.fits && !g->plan.executable)
		return 0;
	x->cost = g->plan.fits
			  ? g->plan.simulated_ms * (x->shares ? SHARING : 1) * (x->way ? ADDING : 1)
			  : TOO_BIG * (1 + g->plan.over_gib);
	return 0;
}

/* ---- changes ---- */

/* Layers by the speeds of the stages. */
static void fill(const struct groups *g, struct grouping *x)
{
	double of[DEVICES] = { 0 }, all = 0, sum = 0;
	int at = 0;
	for (int d = 0; d < g->p->devices; d++)
		if (x->of[d] != OUT) {
			of[x->of[d]] += speed(g, d, x->m);
			all += speed(g, d, x->m);
		}
	for (int k = 0; k < x->stages; k++) {
		sum += of[k];
		int end = (int)lround(g->p->layers * sum / all);
		const int behind = x->stages - 1 - k;
		end = end > g->p->layers - behind ? g->p->layers - behind : end;
		end = end < at + 1 ? at + 1 : end;
		x->layers[k] = end - at;
		at = end;
	}
}

/* Stages without a device are taken out. */
static void close_gaps(const struct groups *g, struct grouping *x)
{
	for (int k = 0; k < x->stages;) {
		bool any = false;
		for (int d = 0; d < g->p->devices; d++)
			any |= x->of[d] == k;
		if (any) {
			k++;
			continue;
		}
		for (int d = 0; d < g->p->devices; d++)
			x->of[d] -= x->of[d] > k;
		x->stages--;
	}
}

/* 1: the change is better and has become *now. */
static int keep_if_better(struct groups *g, struct grouping *now, struct grouping *x, struct err *e)
{
	TRY(judge(g, x, e));
	if (!(x->cost < now->cost * (1 - 1e-9)))
		return 0;
	*now = *x;
	return 1;
}

static int move_layers(struct groups *g, struct grouping *now, struct err *e)
{
	for (int a = 0; a < now->stages; a++)
		for (int b = 0; b < now->stages; b++)
			for (int n = 1; n <= 4 && g->left > 0; n *= 2) {
				struct grouping x = *now;
				if (a == b || x.layers[a] <= n)
					continue;
				x.layers[a] -= n;
				x.layers[b] += n;
				const int rc = keep_if_better(g, now, &x, e);
				if (rc)
					return rc;
			}
	return 0;
}

/* A change whose layers are dealt by speed alone: where it is near, they are moved too. */
static int keep_if_near(struct groups *g, struct grouping *now, struct grouping *x, struct err *e)
{
	int rc = keep_if_better(g, now, x, e);
	if (rc || !(x->cost < now->cost * NEAR))
		return rc;
	for (rc = 1; rc > 0 && g->left > 0;)
		rc = move_layers(g, x, e);
	if (rc < 0 || !(x->cost < now->cost * (1 - 1e-9)))
		return rc;
	*now = *x;
	return 1;
}

/* The next smaller size of a microbatch than m, while members have few of them; else 0. */
static int smaller(const struct groups *g, const struct grouping *x, int m)
{
	int size[SEARCH_MAX_SIZES], n = cost_microbatches(g->p, g->o, size, SEARCH_MAX_SIZES),
				    s = 0;
	for (int i = 0; i < n && g->p->global_batch / m < 4 * largest_group(g, x); i++)
		s = size[i] < m ? size[i] : s;
	return s;
}

/* Device d to stage `to`; `own`: to a new one before it. */
static int move_device(struct groups *g, struct grouping *now, int d, int to, bool own,
		       struct err *e)
{
	struct grouping x = *now;
	if (own) {
		if (x.stages == DEVICES)
			return 0;
		for (int i = 0; i < g->p->devices; i++)
			x.of[i] += x.of[i] >= to;
		x.stages++;
	}
	x.of[d] = to;
	close_gaps(g, &x);
	if (!x.stages || x.stages > g->p->layers)
		return 0;
	fill(g, &x);
	/* a larger group may need more microbatches than those before had */
	const struct grouping moved = x;
	for (int m = x.m; m; m = own || to == OUT ? 0 : smaller(g, &moved, m)) {
		x = moved;
		x.m = m;
		const int rc = keep_if_near(g, now, &x, e);
		if (rc || g->left <= 0)
			return rc;
	}
	return 0;
}

static int move_devices(struct groups *g, struct grouping *now, struct err *e)
{
	for (int d = 0; d < g->p->devices; d++) {
		for (int to = OUT; to < now->stages && g->left > 0; to++) {
			const int rc = to == now->of[d] ? 0 : move_device(g, now, d, to, false, e);
			if (rc)
				return rc;
		}
		for (int to = 0; to <= now->stages && g->left > 0; to++) {
			const int rc = move_device(g, now, d, to, true, e);
			if (rc)
				return rc;
		}
	}
	return 0;
}

/* Two devices take each other's place. */
static int swap_devices(struct groups *g, struct grouping *now, struct err *e)
{
	for (int a = 0; a < g->p->devices; a++)
		for (int b = a + 1; b < g->p->devices && g->left > 0; b++) {
			struct grouping x = *now;
			if (now->of[a] == now->of[b])
				continue;
			x.of[a] = now->of[b];
			x.of[b] = now->of[a];
			const int rc = keep_if_near(g, now, &x, e);
			if (rc)
				return rc;
		}
	return 0;
}

/* Three devices of different stages go round. */
static int turn_devices(struct groups *g, struct grouping *now, struct err *e)
{
	const int n = g->p->devices;
	for (int a = 0; n <= TURNED && a < n; a++)
		for (int b = 0; b < n; b++)
			for (int c = 0; c < n && g->left > 0; c++) {
				struct grouping x = *now;
				/* each ring once: a is its lowest */
				if (b <= a || c <= a || b == c || now->of[a] == now->of[b] ||
				    now->of[b] == now->of[c] || now->of[a] == now->of[c])
					continue;
				x.of[a] = now->of[b];
				x.of[b] = now->of[c];
				x.of[c] = now->of[a];
				const int rc = keep_if_near(g, now, &x, e);
				if (rc)
					return rc;
			}
	return 0;
}

/* Two stages become one. */
static int join_stages(struct groups *g, struct grouping *now, struct err *e)
{
	for (int a = 0; a < now->stages; a++)
		for (int b = 0; b < now->stages && g->left > 0; b++) {
			struct grouping x = *now;
			if (a == b)
				continue;
			for (int d = 0; d < g->p->devices; d++)
				x.of[d] = now->of[d] == b ? a : now->of[d];
			close_gaps(g, &x);
			fill(g, &x);
			const int rc = keep_if_near(g, now, &x, e);
			if (rc)
				return rc;
		}
	return 0;
}

/* A stage becomes two: the host of one of its devices, and the rest. */
static int cut_stages(struct groups *g, struct grouping *now, struct err *e)
{
	const struct profile *p = g->p;
	for (int d = 0; d < p->devices; d++)
		for (int behind = 0; behind < 2 && g->left > 0; behind++) {
			struct grouping x = *now;
			const int k = now->of[d];
			int here = 0, rest = 0;
			if (k == OUT || now->stages == DEVICES || now->stages == p->layers)
				continue;
			for (int i = 0; i < p->devices; i++) {
				const bool near = p->device[i].host == p->device[d].host;
				here += now->of[i] == k && near;
				rest += now->of[i] == k && !near;
				x.of[i] +=
					now->of[i] > k || (now->of[i] == k && near == (behind > 0));
			}
			if (!here || !rest)
				continue;
			x.stages++;
			fill(g, &x);
			const int rc = keep_if_near(g, now, &x, e);
			if (rc)
				return rc;
		}
	return 0;
}

static int swap_stages(struct groups *g, struct grouping *now, struct err *e)
{
	for (int a = 0; a < now->stages; a++)
		for (int b = a + 1; b < now->stages && g->left > 0; b++) {
			struct grouping x = *now;
			for (int d = 0; d < g->p->devices; d++)
				x.of[d] = now->of[d] == a ? b : now->of[d] == b ? a : now->of[d];
			x.layers[a] = now->layers[b];
			x.layers[b] = now->layers[a];
			const int rc = keep_if_better(g, now, &x, e);
			if (rc)
				return rc;
		}
	return 0;
}

static int change_size(struct groups *g, struct grouping *now, struct err *e)
{
	int size[SEARCH_MAX_SIZES], sizes = cost_microbatches(g->p, g->o, size, SEARCH_MAX_SIZES);
	for (int z = 0; z < sizes && g->left > 0; z++) {
		struct grouping x = *now;
		x.m = size[z];
		const int rc = x.m == now->m ? 0 : keep_if_better(g, now, &x, e);
		if (rc)
			return rc;
	}
	return 0;
}

static int change_rest(struct groups *g, struct grouping *now, struct err *e)
{
	for (int k = 0; k < g->kinds && g->left > 0; k++) {
		struct grouping x = *now;
		x.kind = k;
		const int rc =
			k == now->kind || !suits(g, &x, k) ? 0 : keep_if_better(g, now, &x, e);
		if (rc)
			return rc;
	}
	for (int k = 0; k < WAYS && g->left > 0; k++) {
		struct grouping x = *now;
		x.way = k;
		const int rc =
			k == now->way || !adds_up(g, now, k) ? 0 : keep_if_better(g, now, &x, e);
		if (rc)
			return rc;
	}
	struct grouping x = *now;
	x.shares = !now->shares;
	return may_share(g, now) ? keep_if_better(g, now, &x, e) : 0;
}

static int improve(struct groups *g, struct grouping *now, struct err *e)
{
	int rc = 1;
	while (rc > 0 && g->left > 0) {
		rc = move_devices(g, now, e);
		if (rc == 0)
			rc = move_layers(g, now, e);
		if (rc == 0)
			rc = swap_devices(g, now, e);
		if (rc == 0)
			rc = swap_stages(g, now, e);
		if (rc == 0)
			rc = change_size(g, now, e);
		if (rc == 0)
			rc = change_rest(g, now, e);
		if (rc == 0)
			rc = join_stages(g, now, e);
		if (rc == 0)
			rc = cut_stages(g, now, e);
		if (rc == 0)
			rc = turn_devices(g, now, e);
	}
	return rc < 0 ? rc : 0;
}

/* Two devices of the best grouping to random stages, new ones among them, or, every third turn,
 * three times a device in another's place; improved again. */
static int kick(struct groups *g, struct grouping *best, uint64_t turn, struct err *e)
{
	const struct rng_key key = rng_key(rng_fold(0x6b69636b, turn));
	struct grouping x = *best;
	const bool swaps = turn % 3 == 2;
	for (uint64_t i = 0; swaps && i < 3; i++) {
		const uint64_t a = rng_below(key, 5 + 2 * i, (uint64_t)g->p->devices),
			       b = rng_below(key, 6 + 2 * i, (uint64_t)g->p->devices);
		const int of = x.of[a];
		x.of[a] = x.of[b];
		x.of[b] = of;
	}
	for (uint64_t i = 0; !swaps && i < 2; i++) {
		const uint64_t d = rng_below(key, 2 * i, (uint64_t)g->p->devices),
			       to = rng_below(key, 2 * i + 1, (uint64_t)x.stages + 1);
		x.of[d] = (int)to;
		x.stages += (int)to == x.stages;
		close_gaps(g, &x);
	}
	if (x.stages > g->p->layers)
		return 0;
	fill(g, &x);
	if (turn % 2)
		x.kind = (int)rng_below(key, 4, (uint64_t)g->kinds);
	TRY(judge(g, &x, e));
	TRY(x.cost < INFINITY ? improve(g, &x, e) : 0);
	if (x.cost < best->cost)
		*best = x;
	return 0;
}

/* ---- starting points ---- */

static bool same_kind(const struct profile *p, int a, int b)
{
	return !strcmp(p->device[a].kind, p->device[b].kind);
}

/* Every device to a random one of a random number of stages. */
static void scatter(const struct groups *g, int which, struct grouping *x)
{
	const struct rng_key key = rng_key(rng_fold(0x67726f75, (uint64_t)which));
	const int most = g->p->devices < g->p->layers ? g->p->devices : g->p->layers;
	x->stages = 1 + (int)rng_below(key, 0, (uint64_t)most);
	for (int d = 0; d < g->p->devices; d++)
		x->of[d] = (int)rng_below(key, 1 + (uint64_t)d, (uint64_t)x->stages);
	close_gaps(g, x);
	fill(g, x);
}

/* 0: all devices are one group; 1: those of each host are; 2: those of each kind; above KNOWN:
 * random ones. False: it is one of those before. */
static bool start(const struct groups *g, int which, struct grouping *x)
{
	const struct profile *p = g->p;
	x->stages = x->kind = x->way = 0;
	x->shares = false;
	if (which > KNOWN) {
		scatter(g, which, x);
		return true;
	}
	for (int d = 0; d < p->devices; d++) {
		int like = which == 0 ? 0 : d;
		for (int i = d - 1; i >= 0 && which > 0; i--)
			if (which == 1 ? p->device[i].host == p->device[d].host
				       : same_kind(p, i, d))
				like = i;
		x->of[d] = like == d ? x->stages : x->of[like];
		x->stages += like == d;
	}
	if (x->stages > p->layers || (which > 0 && x->stages == 1))
		return false;
	fill(g, x);
	return true;
}

/* A plan of single devices as a grouping. */
static bool of_plan(const struct groups *g, const struct plan *plan, struct grouping *x)
{
	if (plan->chunks != 1)
		return false;
	for (int d = 0; d < g->p->devices; d++)
		x->of[d] = OUT;
	x->kind = x->way = 0;
	x->shares = false;
	x->stages = plan->stages;
	x->m = plan->microbatch;
	for (int k = 0; k < plan->stages; k++) {
		x->layers[k] = plan_layers(plan, k);
		for (int i = 0; i < plan->stage[k].members; i++)
			x->of[plan->stage[k].member[i].device] = k;
	}
	return true;
}

/* ---- all of them ---- */

/* The time that the busiest device of the plan that was judged computes: no schedule is faster. */
static double busiest(const struct plan *plan)
{
	double most = 0;
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			most = fmax(most, plan->stage[k].member[i].busy);
	return most * plan->simulated_ms;
}

/* A grouping with every schedule and way of adding up, and with its state shared or not. */
static int judge_ways(struct groups *g, const struct grouping *given, struct grouping *best,
		      struct err *e)
{
	for (int shares = 0; shares <= may_share(g, given); shares++) {
		double least = 0;
		for (int k = 0; k < g->kinds * WAYS; k++) {
			struct grouping x = *given;
			x.kind = k % g->kinds;
			x.way = k / g->kinds;
			x.shares = shares;
			if (!suits(g, &x, x.kind) || !adds_up(g, given, x.way) ||
			    (k && least >= best->cost))
				continue;
			TRY(judge(g, &x, e));
			if (k == 0 && x.cost < TOO_BIG)
				least = busiest(&g->plan);
			if (x.cost < best->cost)
				*best = x;
		}
	}
	return 0;
}

static int all_layers(struct groups *g, struct grouping *x, int stage, int left,
		      struct grouping *best, struct err *e)
{
	if (stage + 1 < x->stages) {
		for (int n = 1; n <= left - (x->stages - 1 - stage); n++) {
			x->layers[stage] = n;
			TRY(all_layers(g, x, stage + 1, left - n, best, e));
		}
		return 0;
	}
	x->layers[stage] = left;
	return judge_ways(g, x, best, e);
}

static int all_stages(struct groups *g, struct grouping *x, int device, struct grouping *best,
		      struct err *e)
{
	if (device < g->p->devices) {
		for (int k = OUT; k < x->stages; k++) {
			x->of[device] = k;
			TRY(all_stages(g, x, device + 1, best, e));
		}
		return 0;
	}
	struct grouping closed = *x;
	close_gaps(g, &closed);
	return closed.stages == x->stages ? all_layers(g, x, 0, g->p->layers, best, e) : 0;
}

static int judge_all(struct groups *g, const int *size, int sizes, struct grouping *best,
		     struct err *e)
{
	struct grouping x = { 0 };
	for (int z = 0; z < sizes; z++)
		for (int k = 1; k <= g->p->devices && k <= g->p->layers; k++) {
			x.m = size[z];
			x.stages = k;
			TRY(all_stages(g, &x, 0, best, e));
		}
	return 0;
}

/* ---- */

/* Takes the plan of the best grouping; 0: none fits. */
static int finish(struct groups *g, struct grouping *best, struct plan *out, struct err *e)
{
	int rc = 0;
	if (best->cost < TOO_BIG) {
		TRYOUT(judge(g, best, e));
		*out = g->plan;
		return 1;
	}
out:
	plan_release(&g->plan);
	return rc;
}

int search_groups(const struct profile *p, const struct plan_options *o, const struct plan *known,
		  int64_t effort, struct plan *out, struct err *e)
{
	int size[SEARCH_MAX_SIZES], sizes = cost_microbatches(p, o, size, SEARCH_MAX_SIZES), n = 0,
				    rc = 0;
	struct groups g = { .p = p, .o = o, .plan = { .mem = ARENA_INIT }, .left = effort };
	struct grouping x = { 0 }, best = { .cost = INFINITY }, first[STARTS];
	add_kinds(&g);
	/* most other schedules need not be simulated: judge_ways() */
	if (search_groupings(p) * sizes * 2 * (200.0 + 6.0 * p->devices * p->global_batch) <
	    4 * (double)effort) {
		TRYOUT(judge_all(&g, size, sizes, &best, e));
		return finish(&g, &best, out, e);
	}
	for (int i = 0; i < STARTS; i++) {
		first[n].cost = INFINITY;
		for (int z = 0; z < sizes; z++) {
			x.m = size[z];
			if (i == KNOWN ? z > 0 || !known || !of_plan(&g, known, &x)
				       : !start(&g, i, &x))
				break;
			for (int k = 0; k < g.kinds * WAYS; k++) {
				x.kind = k % g.kinds;
				x.way = k / g.kinds;
				if (!adds_up(&g, &x, x.way))
					continue;
				TRYOUT(judge(&g, &x, e));
				if (x.cost < first[n].cost)
					first[n] = x;
			}
		}
		n += first[n].cost < INFINITY;
	}
	int64_t left = g.left;
	for (int i = 0; i < n; i++) {
		/* what the first leave is for the others */
		g.left = left / (n - i);
		left -= g.left;
		TRYOUT(improve(&g, &first[i], e));
		left += g.left > 0 ? g.left : 0;
		if (first[i].cost < best.cost)
			best = first[i];
	}
	g.left = left;
	for (uint64_t i = 0; i < KICKS && g.left > 0 && best.cost < INFINITY; i++)
		TRYOUT(kick(&g, &best, i, e));
	return finish(&g, &best, out, e);
out:
	plan_release(&g.plan);
	return rc;
}

int search_groups_all(const struct profile *p, const struct plan_options *o, struct plan *out,
		      struct err *e)
{
	int size[SEARCH_MAX_SIZES], sizes = cost_microbatches(p, o, size, SEARCH_MAX_SIZES), rc = 0;
	struct groups g = { .p = p, .o = o, .plan = { .mem = ARENA_INIT }, .left = INT64_MAX };
	struct grouping best = { .cost = INFINITY };
	add_kinds(&g);
	if (search_groupings(p) * sizes > MOST_GROUPINGS)
		return SEARCH_TOO_MANY;
	TRYOUT(judge_all(&g, size, sizes, &best, e));
	return finish(&g, &best, out, e);
out:
	plan_release(&g.plan);
	return rc;
}
