/* SPDX-License-Identifier: Apache-2.0 */
/* best_local.c - good pipelines for any number of devices, without a guarantee: starting points by
 * filling, then improvement step by step, each judged by the simulator.
 *
 * Filling. With a limit W on the work of a stage (per microbatch), device d can take (W - embedding
 * or head) / (f + b) layers, and as many as its memory holds. The smallest W for which the devices
 * together can take all layers gives the shortest period of the pipeline. With a somewhat larger W
 * slow devices are not needed, and a microbatch passes fewer stages, which matters when there are
 * few microbatches. So for several W above the smallest one, the fastest devices are filled first;
 * devices without a layer are left out.
 *
 * Improving. Move a layer from one stage to another, swap two stages, remove a stage, add or
 * replace a device, change the schedule or the microbatch size. The first change that is faster is
 * kept, until there is none or the effort is spent. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/state_cut.h"
#include "plan/search.h"

static const double slack[] = { 1, 1.02, 1.06, 1.15, 1.3, 1.6, 2, 3, 1e9 };

enum { STARTS = 16, KEPT = 6 }; /* starting points that are remembered, and improved */
#define NEAR 1.25 /* a starting point may be slower than the best plan by this factor */

struct local {
	struct search *s;
	int *order, *hosts, *trial; /* [devices], [hosts], [devices] */
	double *speed;              /* [devices] */
	struct candidate k, now;
	struct candidate start[STARTS];
	int64_t effort;
};

/* ---- filling ---- */

struct room {
	double time, again;   /* of one layer, without and with recomputation */
	double extra;         /* embedding or head */
	int most, most_again; /* layers that fit */
};

static int layers_in(double gib, double each)
{
	return gib <= 0 ? 0 : each <= 0 || gib / each > 1e6 ? 1000000 : (int)(gib / each);
}

static void measure_room(const struct search *s, const struct cost_row *r,
			 const struct search_kind *kind, const int *order, int n, int i,
			 struct room *out)
{
	const struct profile *p = s->p;
	int d = order[i], M = p->global_batch / r->m;
	bool front = i == 0, end = i == n - 1, alone = n == 1;
	double in_flight = sched_in_flight_alone(kind->sched, n, alone ? 1 : kind->chunks, M, i),
	       edge = r->boundary_gib;
	const double held = s->o->order == SUM_EXACT ? sum_held(NULL, M, 0) : 0;
	const double state = 1 + held * profile_gradients(p);
	double fixed = p->device[d].fixed_gib +
		       (front ? p->embedding_gib + state * p->embedding_state_gib : 0) +
		       (end ? p->head_gib + state * p->head_state_gib : 0) + (alone ? 0 : 2 * edge);
	const int at_end = sched_at_end(kind->sched, n, alone ? 1 : kind->chunks, M);
	const double loss = end ? r->head_kept[d] : 0, ends = (at_end - 1) * loss;
	const bool away = (s->o->offload & OFFLOAD_EXPERTS) && !p->device[d].on_host;
	double left = s->c.limit[d] - fixed - ends,
	       each = p->layer_gib - (away ? p->expert_gib : 0) + state * p->layer_state_gib,
	       head = end ? r->head_work[d] : 0;
	int chunks = alone ? 1 : kind->chunks;

	out->time = r->f[d] + r->b[d];
	out->again = out->time + r->f[d];
	out->extra = (front ? r->ef[d] + r->eb[d] : 0) + (end ? r->hf[d] + r->hb[d] : 0);
	out->most = layers_in(left - fmax(r->work[d] - r->kept[d] + loss, head) - in_flight * edge,
			      each + in_flight * r->kept[d] / chunks);
	out->most_again =
		layers_in(left - fmax(r->work[d] + loss, head), each + in_flight * edge / chunks);
	if (s->o->recompute == PLAN_RECOMPUTE_NEVER)
		out->most_again = 0;
	if (s->o->recompute == PLAN_RECOMPUTE_ALWAYS)
		out->most = 0;
}

static int can_take(const struct room *m, double W)
{
	double t = W - m->extra;
	int a, b;

	if (!(t > 0))
		return 0;
	a = t / m->time > m->most ? m->most : (int)(t / m->time * (1 + 1e-12));
	b = t / m->again > m->most_again ? m->most_again : (int)(t / m->again * (1 + 1e-12));
	return a > b ? a : b;
}

static long take_all(const struct room *m, int n, double W)
{
	long sum = 0;

	for (int i = 0; i < n; i++)
		sum += can_take(&m[i], W);
	return sum;
}

/* Layers for the first `n` devices of `order` with limit loose * smallest W, into `k`; false when
 * that is impossible, or when W alone is `most` or more. */
static bool fill(struct local *l, const int *order, int n, const struct search_kind *kind,
		 const struct cost_row *r, double loose, double most, struct room *room,
		 struct candidate *k)
{
	struct search *s = l->s;
	int L = s->p->layers, *now = l->trial;
	double lo = 0, hi = 0, W;

	memcpy(now, order, (size_t)n * sizeof(int));
	/* the effort of filling, roughly, in instructions of the simulator */
	l->s->c.instructions += 20 * n;
	/* leaving a device out changes which device is first and last, and how many microbatches
	 * are in flight: repeated until all have layers */
	for (;;) {
		int left = L, kept = 0;

		lo = hi = 0;
		for (int i = 0; i < n; i++) {
			measure_room(s, r, kind, now, n, i, &room[i]);
			hi = fmax(hi, room[i].extra + room[i].again * L);
		}
		hi = fmin(hi, most);
		if (take_all(room, n, hi) < L)
			return false;
		for (int step = 0; step < 50; step++) {
			double mid = (lo + hi) / 2;
			*(take_all(room, n, mid) >= L ? &hi : &lo) = mid;
		}
		W = loose > 1e6 ? INFINITY : hi * loose;
		for (int i = 0; i < n; i++)
			k->layers[i] = 0;
		/* fastest first; n is small enough for a linear search */
		while (left > 0) {
			int pick = -1, take;
			for (int i = 0; i < n; i++)
				if (k->layers[i] == 0 &&
				    (pick < 0 || room[i].time < room[pick].time) &&
				    can_take(&room[i], fmin(W, 1e300)) > 0)
					pick = i;
			if (pick < 0)
				return false;
			take = can_take(&room[pick], fmin(W, 1e300));
			k->layers[pick] = take < left ? take : left;
			left -= k->layers[pick];
		}
		for (int i = 0; i < n; i++)
			if (k->layers[i] > 0) {
				now[kept] = now[i];
				k->layers[kept++] = k->layers[i];
			}
		if (kept == n)
			break;
		n = kept;
	}
	k->stages = n;
	memcpy(k->device, now, (size_t)n * sizeof(int));
	k->sched = kind->sched;
	k->chunks = n == 1 ? 1 : kind->chunks;
	k->m = r->m;
	return true;
}

static bool effort_spent(const struct local *l) { return l->s->c.instructions >= l->effort; }

/* Keeps a starting point: of each kind, size and number of stages the best one, and of these the
 * STARTS best. */
static void remember(struct local *l, const struct candidate *k)
{
	struct candidate *to = &l->start[0];

	for (int i = 0; i < STARTS; i++) {
		struct candidate *x = &l->start[i];
		if (x->step_s < INFINITY && x->sched == k->sched && x->chunks == k->chunks &&
		    x->m == k->m && x->stages == k->stages) {
			to = x;
			break;
		}
		if (x->step_s > to->step_s)
			to = x;
	}
	if (k->step_s < to->step_s)
		candidate_copy(to, k);
}

/* Tries one order with every microbatch size. For large clusters only the first schedule and few
 * values of slack are tried here: others follow when the best points are improved. */
static int try_order(struct local *l, const int *order, int n, struct room *room, struct err *e)
{
	struct search *s = l->s;
	bool few = s->p->devices > 16 && !isinf(s->best.step_s);

	for (int z = 0; z < s->sizes; z++)
		for (int i = 0; i < (few ? 1 : s->kinds); i++) {
			const struct cost_row *r = cost_row(&s->c, s->size[z]);
			for (size_t x = 0; x < ARRAY_LEN(slack); x += few ? 2 : 1) {
				/* a starting point may be somewhat slower than the best plan:
				 * improving may bring it below */
				double t, cutoff = s->best.step_s * NEAR;
				if (effort_spent(l))
					return 0;
				if (!fill(l, order, n, &s->kind[i], r, slack[x],
					  cutoff * s->size[z] / s->p->global_batch, room, &l->k))
					continue;
				TRY(search_eval(s, &l->k, cutoff, &t, e));
				if (t >= cutoff)
					continue;
				l->k.step_s = t;
				remember(l, &l->k);
				if (t < s->best.step_s)
					candidate_copy(&s->best, &l->k);
			}
		}
	return 0;
}

/* ---- starting points ---- */

static void sort_devices(int *v, int n, const double *key) /* descending, stable */
{
	for (int i = 1; i < n; i++) {
		int x = v[i], k = i;
		for (; k > 0 && key[v[k - 1]] < key[x]; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
}

/* Devices host by host: beginning with `first`, then always the host that is best connected to the
 * previous one. Returns how many devices the first `most` hosts have. */
static int chain_hosts(struct local *l, int first, int most, const double *key)
{
	const struct profile *p = l->s->p;
	int n = 0, at = first, hosts = 0;

	for (int h = 0; h < p->hosts; h++)
		l->hosts[h] = 0;
	while (at >= 0 && hosts < most) {
		int begin = n, next = -1;
		double best = -1;
		l->hosts[at] = 1;
		for (int i = 0; i < p->devices; i++)
			if (p->device[i].host == at)
				l->order[n++] = i;
		if (n > begin)
			hosts++;
		sort_devices(l->order + begin, n - begin, key);
		for (int h = 0; h < p->hosts; h++) {
			double bw = p->bandwidth[(size_t)at * (size_t)p->hosts + (size_t)h];
			if (!l->hosts[h] && bw > best) {
				best = bw;
				next = h;
			}
		}
		at = next;
	}
	return n;
}

static int starting_points(struct local *l, struct room *room, double *memory, struct err *e)
{
	struct search *s = l->s;
	const struct profile *p = s->p;
	int D = p->devices, H = p->hosts;

	for (int i = 0; i < D; i++) {
		l->order[i] = i;
		memory[i] = s->c.limit[i];
	}
	TRY(try_order(l, l->order, D, room, e));
	sort_devices(l->order, D, memory);
	TRY(try_order(l, l->order, D, room, e));
	sort_devices(l->order, D, l->speed);
	TRY(try_order(l, l->order, D, room, e));
	for (int i = 0; i < D / 2; i++) {
		int t = l->order[i];
		l->order[i] = l->order[D - 1 - i];
		l->order[D - 1 - i] = t;
	}
	TRY(try_order(l, l->order, D, room, e));
	/* every host alone, and chains of 2, 4, 8, .. hosts from there */
	for (int h = 0; h < H && !effort_spent(l); h += H > 32 ? H / 16 : 1)
		for (int most = 1; most < 2 * H; most *= 2) {
			int n = chain_hosts(l, h, most, memory);
			if (n > 0)
				TRY(try_order(l, l->order, n, room, e));
		}
	/* every device alone */
	for (int i = 0; i < D && D <= 128; i++)
		TRY(try_order(l, &i, 1, room, e));
	/* random orders: they help where memory is scarce */
	for (int x = 0; x < (D <= 24 ? 32 : 4) && D > 2; x++) {
		struct rng_key key = rng_key(rng_fold(0x706c616e, (uint64_t)x));
		for (int i = 0; i < D; i++)
			l->order[i] = i;
		for (int i = D - 1; i > 0; i--) {
			int k = (int)rng_below(key, (uint64_t)i, (uint64_t)i + 1), t = l->order[i];
			l->order[i] = l->order[k];
			l->order[k] = t;
		}
		TRY(try_order(l, l->order, D, room, e));
	}
	return 0;
}

/* ---- improving ---- */

/* The changed candidate l->k against l->now; 1 when it is faster and has become l->now. */
static int keep_if_faster(struct local *l, struct err *e)
{
	double t;

	TRY(search_eval(l->s, &l->k, l->now.step_s * (1 - 1e-12), &t, e));
	if (!(t < l->now.step_s))
		return 0;
	l->k.step_s = t;
	candidate_copy(&l->now, &l->k);
	if (t < l->s->best.step_s)
		candidate_copy(&l->s->best, &l->k);
	return 1;
}

static void remove_stage(struct candidate *k, int i)
{
	memmove(&k->device[i], &k->device[i + 1], (size_t)(k->stages - i - 1) * sizeof(int));
	memmove(&k->layers[i], &k->layers[i + 1], (size_t)(k->stages - i - 1) * sizeof(int));
	k->stages--;
}

static void insert_stage(struct candidate *k, int i, int device, int layers)
{
	memmove(&k->device[i + 1], &k->device[i], (size_t)(k->stages - i) * sizeof(int));
	memmove(&k->layers[i + 1], &k->layers[i], (size_t)(k->stages - i) * sizeof(int));
	k->device[i] = device;
	k->layers[i] = layers;
	k->stages++;
}

static double stage_work(const struct local *l, const struct candidate *k, int i)
{
	const struct cost_row *r = cost_row(&l->s->c, k->m);
	int d = k->device[i];

	return k->layers[i] * (r->f[d] + r->b[d]) + (i == 0 ? r->ef[d] + r->eb[d] : 0) +
	       (i == k->stages - 1 ? r->hf[d] + r->hb[d] : 0);
}

/* The stages with most work first: where a change helps most. */
static void sort_stages(const struct local *l, int *by)
{
	for (int i = 0; i < l->now.stages; i++) {
		int k = i;
		double w = stage_work(l, &l->now, i);
		for (; k > 0 && stage_work(l, &l->now, by[k - 1]) < w; k--)
			by[k] = by[k - 1];
		by[k] = i;
	}
}

#define STEP(call)                                                                                 \
	do {                                                                                       \
		int step_rc_ = (call);                                                             \
		if (step_rc_ != 0 || effort_spent(l))                                              \
			return step_rc_;                                                           \
	} while (0)

/* Each returns 1 after an improvement, 0 when there is none, or an error. */
static int move_layers(struct local *l, const int *by, struct err *e)
{
	int n = l->now.stages, most = n <= 16 ? n : 6;

	for (int a = 0; a < most; a++)
		for (int x = 0; x < n; x++)
			for (int many = 1; many <= 4; many *= 2) {
				int i = by[a];
				if (x == i || l->now.layers[i] <= many)
					continue;
				candidate_copy(&l->k, &l->now);
				l->k.layers[i] -= many;
				l->k.layers[x] += many;
				STEP(keep_if_faster(l, e));
			}
	return 0;
}

static int swap_stages(struct local *l, const int *by, struct err *e)
{
	int n = l->now.stages, most = n <= 16 ? n : 4;

	for (int a = 0; a < most; a++)
		for (int x = 0; x < n; x++)
			for (int whole = 0; whole < 2; whole++) {
				int i = by[a], t;
				if (x == i)
					continue;
				candidate_copy(&l->k, &l->now);
				t = l->k.device[i];
				l->k.device[i] = l->k.device[x];
				l->k.device[x] = t;
				if (whole) {
					t = l->k.layers[i];
					l->k.layers[i] = l->k.layers[x];
					l->k.layers[x] = t;
				} else if (l->k.layers[i] == l->k.layers[x]) {
					continue;
				}
				STEP(keep_if_faster(l, e));
			}
	return 0;
}

/* A stage to another place in the order. */
static int move_stages(struct local *l, const int *by, struct err *e)
{
	int n = l->now.stages, most = n <= 16 ? n : 3;

	for (int a = 0; a < most; a++)
		for (int x = 0; x < n; x++) {
			int i = by[a], d = l->now.device[i], layers = l->now.layers[i];
			if (x == i)
				continue;
			candidate_copy(&l->k, &l->now);
			remove_stage(&l->k, i);
			insert_stage(&l->k, x, d, layers);
			STEP(keep_if_faster(l, e));
		}
	return 0;
}

/* The order of `k` filled anew, for its schedule and size. */
static int refill(struct local *l, struct room *room, struct err *e)
{
	struct search_kind kind = { l->k.sched, l->k.chunks };
	const struct cost_row *r = cost_row(&l->s->c, l->k.m);
	int n = l->k.stages;

	memcpy(l->order, l->k.device, (size_t)n * sizeof(int));
	for (size_t x = 0; x < ARRAY_LEN(slack); x++) {
		if (!fill(l, l->order, n, &kind, r, slack[x], INFINITY, room, &l->k))
			continue;
		STEP(keep_if_faster(l, e));
	}
	return 0;
}

static int leave_out(struct local *l, const int *by, struct room *room, struct err *e)
{
	int n = l->now.stages, most = n <= 16 ? n : 6;

	for (int a = 0; a < most && n > 1; a++) {
		candidate_copy(&l->k, &l->now);
		remove_stage(&l->k, n <= 16 ? a : by[n - 1 - a]);
		STEP(refill(l, room, e));
	}
	return 0;
}

static int take_in(struct local *l, struct room *room, struct err *e)
{
	struct search *s = l->s;
	int tried = 0;
	bool used;

	for (int d = 0; d < s->p->devices && tried < 24; d++) {
		used = false;
		for (int i = 0; i < l->now.stages && !used; i++)
			used = l->now.device[i] == d;
		if (used)
			continue;
		tried++;
		for (int i = 0; i <= l->now.stages;
		     i += l->now.stages > 16 ? l->now.stages / 8 : 1) {
			candidate_copy(&l->k, &l->now);
			if (i < l->now.stages) {
				l->k.device[i] = d;
				STEP(keep_if_faster(l, e));
			}
			if (l->now.stages == s->p->layers)
				continue;
			candidate_copy(&l->k, &l->now);
			insert_stage(&l->k, i, d, 1);
			STEP(refill(l, room, e));
		}
	}
	return 0;
}

static int change_kind(struct local *l, struct err *e)
{
	struct search *s = l->s;

	for (int z = 0; z < s->sizes; z++)
		for (int i = 0; i < s->kinds; i++) {
			candidate_copy(&l->k, &l->now);
			l->k.m = s->size[z];
			l->k.sched = s->kind[i].sched;
			l->k.chunks = s->kind[i].chunks;
			STEP(keep_if_faster(l, e));
		}
	return 0;
}

static int improve(struct local *l, struct room *room, int *by, struct err *e)
{
	int rc = 1;

	while (rc > 0 && !effort_spent(l)) {
		sort_stages(l, by);
		rc = move_layers(l, by, e);
		if (rc == 0)
			rc = swap_stages(l, by, e);
		if (rc == 0)
			rc = move_stages(l, by, e);
		if (rc == 0)
			rc = leave_out(l, by, room, e);
		if (rc == 0)
			rc = change_kind(l, e);
		if (rc == 0)
			rc = take_in(l, room, e);
	}
	return rc < 0 ? rc : 0;
}

int search_heuristic(struct search *s, int64_t effort, struct err *e)
{
	struct local l = { .s = s };
	size_t n = (size_t)s->p->devices;
	struct room *room = arena_alloc(&s->c.mem, n * sizeof *room);
	double *memory = arena_alloc(&s->c.mem, n * sizeof *memory);
	int *by = arena_alloc(&s->c.mem, n * sizeof *by);
	const struct cost_row *r = cost_row(&s->c, s->size[0]);

	l.order = arena_alloc(&s->c.mem, n * sizeof(int));
	l.trial = arena_alloc(&s->c.mem, n * sizeof(int));
	l.hosts = arena_alloc(&s->c.mem, (size_t)s->p->hosts * sizeof(int));
	l.speed = arena_alloc(&s->c.mem, n * sizeof(double));
	if (!room || !memory || !by || !l.order || !l.trial || !l.hosts || !l.speed)
		return err_set(e, ERR_NOMEM, "out of memory for a plan's search");
	TRY(candidate_init(s, &l.k, e));
	TRY(candidate_init(s, &l.now, e));
	for (int i = 0; i < STARTS; i++)
		TRY(candidate_init(s, &l.start[i], e));
	for (int i = 0; i < s->p->devices; i++)
		l.speed[i] = 1 / (r->f[i] + r->b[i]);
	l.effort = s->c.instructions + effort / 2;
	TRY(starting_points(&l, room, memory, e));
	l.effort = s->c.instructions + effort / 2;
	/* the best plan so far (another planner's, perhaps), then the best starting points */
	for (int round = 0; round <= KEPT && !effort_spent(&l); round++) {
		struct candidate *pick = NULL;
		if (round == 0) {
			pick = isinf(s->best.step_s) ? NULL : &s->best;
		} else {
			for (int i = 0; i < STARTS; i++)
				if (l.start[i].step_s < (pick ? pick->step_s : INFINITY))
					pick = &l.start[i];
		}
		if (!pick)
			continue;
		candidate_copy(&l.now, pick);
		if (round > 0)
			pick->step_s = INFINITY;
		TRY(improve(&l, room, by, e));
	}
	return 0;
}
