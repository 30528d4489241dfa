/* SPDX-License-Identifier: Apache-2.0 */
/* planner_zorse.c - Zorse (Guo et al., "Zorse: Optimizing LLM Training Efficiency on Heterogeneous
 * GPU Clusters"; planner of the authors' repository benson-guo/zorse, MIT, partition
 * min_k_cut_split with the communication model): groups of well-connected devices, each a stage,
 * sharded data parallelism inside, layers proportional to speed between.
 *
 * Corrected: collectives were computed in seconds and compared with milliseconds; microbatch 1 was
 * never tried; sizes that do not divide the batch dropped the rest; a device without microbatches
 * still set the pace of its group (here sizes that leave a device of a group without work are taken
 * only when there is no other, and it then does not count); a group without layers shifted the
 * speeds of those behind it; a message's time was scaled from one measurement at 10 MB, here it is
 * latency + bytes / bandwidth. Kept as published: embedding, head and optimizer are not modelled;
 * what the answer costs with them is the plan's simulated_ms. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "plan/plan.h"

#define GIB 1073741824.0
#define RESERVE_GIB 2.0
#define WORKING_BYTES 2.0 /* per parameter, the copy that computes */
#define STATE_BYTES 12.0  /* per parameter, master copy and two moments */
#define RING_FACTOR 1.15

struct group {
	int *device, n;
	int *microbatches;
	double ratio;      /* its speed over that of all groups */
	double ag, rs;     /* ms, one layer */
	double next, prev; /* ms, one microbatch's activations to the neighbours */
	int layers;
	int *chunk; /* [degree] */
};

struct zorse {
	const struct profile *p;
	struct group *g; /* in pipeline order */
	int groups;
	int m, M, degree;
	bool idle; /* devices without microbatches are allowed */
	int only;  /* microbatches of this size; 0: the search chooses */
	/* the best so far */
	struct group *best;
	int best_groups, best_m, best_degree;
	double best_ms;
	struct arena mem;
};

/* ---- partition: repeated lightest cuts ---- */

static double edge_weight(const struct profile *p, int a, int b)
{
	double w = fmin(profile_bandwidth(p, a, b), 1e9);
	return w > 1 ? floor(w) : 1;
}

/* Stoer and Wagner, "A Simple Min-Cut Algorithm" (1997), on the `n` devices in `dev`; in_s[i] marks
 * one side. Returns the weight. */
static double lightest_cut(const struct profile *p, const int *dev, int n, bool *in_s, double *w,
			   int *label, double *key, bool *used)
{
	double best = INFINITY;

	/* label[i] is the vertex that i has been merged into; merged vertices have label
	 * != themselves */
	for (int i = 0; i < n; i++) {
		label[i] = i;
		for (int k = 0; k < n; k++)
			w[(size_t)i * (size_t)n + (size_t)k] =
				i == k ? 0 : edge_weight(p, dev[i], dev[k]);
	}
	for (int left = n; left > 1; left--) {
		int last = -1, before = -1;
		for (int i = 0; i < n; i++) {
			key[i] = 0;
			used[i] = label[i] != i;
		}
		for (int step = 0; step < left; step++) {
			int pick = -1;
			for (int i = 0; i < n; i++)
				if (!used[i] && (pick < 0 || key[i] > key[pick]))
					pick = i;
			used[pick] = true;
			before = last;
			last = pick;
			if (step == left - 1)
				break;
			for (int i = 0; i < n; i++)
				if (!used[i])
					key[i] += w[(size_t)pick * (size_t)n + (size_t)i];
		}
		if (key[last] < best) {
			best = key[last];
			for (int i = 0; i < n; i++) {
				int root = i;
				while (label[root] != root)
					root = label[root];
				in_s[i] = root == last;
			}
		}
		for (int i = 0; i < n; i++) {
			w[(size_t)before * (size_t)n + (size_t)i] +=
				w[(size_t)last * (size_t)n + (size_t)i];
			w[(size_t)i * (size_t)n + (size_t)before] =
				w[(size_t)before * (size_t)n + (size_t)i];
		}
		w[(size_t)before * (size_t)n + (size_t)before] = 0;
		label[last] = before;
	}
	return best;
}

struct part {
	int *device, n;
	double cut; /* NaN: not known yet */
	bool *in_s;
};

/* ---- groups in the order of the pipeline ---- */

static double ring_ms(const struct profile *p, const struct group *g, double bytes)
{
	double slowest = INFINITY, latency = 0;

	for (int i = 0; i < g->n; i++) {
		int a = g->device[i], b = g->device[(i + 1) % g->n];
		slowest = fmin(slowest, profile_bandwidth(p, a, b));
		latency = fmax(latency, profile_latency_ms(p, a, b));
	}
	return g->n < 2 ? 0
			: RING_FACTOR * bytes / g->n * (g->n - 1) / (slowest * 1e9) * 1e3 +
				  (g->n - 1) * latency;
}

/* Average over pairs of hosts, as published. */
static double average_between(const struct profile *p, const struct group *a, const struct group *b)
{
	double sum = 0;
	long n = 0;

	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < b->n; k++) {
			bool first = true;
			for (int x = 0; x < i && first; x++)
				first = p->device[a->device[x]].host !=
					p->device[a->device[i]].host;
			for (int x = 0; x < k && first; x++)
				first = p->device[b->device[x]].host !=
					p->device[b->device[k]].host;
			if (!first)
				continue;
			sum += profile_bandwidth(p, a->device[i], b->device[k]);
			n++;
		}
	return n ? sum / (double)n : 0;
}

static void sort_groups(const struct profile *p, struct group *g, int n)
{
	for (int at = 0; at < n; at++) {
		int pick = at;
		double most = -1;
		for (int i = at; i < n; i++) {
			double bw = at == 0 ? -g[i].ag : average_between(p, &g[at - 1], &g[i]);
			if (i == at || bw > most) {
				most = bw;
				pick = i;
			}
		}
		struct group chosen = g[pick];
		memmove(&g[at + 1], &g[at], (size_t)(pick - at) * sizeof *g);
		g[at] = chosen;
	}
}

static double send_ms(const struct zorse *z, const struct group *a, const struct group *b)
{
	const struct profile *p = z->p;
	double bytes = (double)z->m * p->sequence_len * p->hidden * profile_dtype_bytes(p),
	       slowest = INFINITY, latency = 0;

	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < b->n; k++) {
			slowest = fmin(slowest, profile_bandwidth(p, a->device[i], b->device[k]));
			latency = fmax(latency, profile_latency_ms(p, a->device[i], b->device[k]));
		}
	return bytes / (slowest * 1e9) * 1e3 + latency;
}

static double f_ms(const struct zorse *z, int d)
{
	return curve_at(&z->p->device[d].forward_ms, z->m);
}
static double fb_ms(const struct zorse *z, int d)
{
	return f_ms(z, d) + curve_at(&z->p->device[d].backward_ms, z->m);
}

/* Microbatches inside a group proportional to 1 / (f + b): rounded down, the remainder one each to
 * the fastest. */
static void divide_microbatches(const struct zorse *z, struct group *g)
{
	double sum = 0;
	int left = z->M;

	for (int i = 0; i < g->n; i++)
		sum += 1 / fb_ms(z, g->device[i]);
	for (int i = 0; i < g->n; i++) {
		g->microbatches[i] = (int)(z->M * (1 / fb_ms(z, g->device[i]) / sum));
		left -= g->microbatches[i];
	}
	/* the remainder is smaller than the group: one each, fastest first */
	for (double below = INFINITY; left > 0;) {
		double fastest = -1;
		for (int i = 0; i < g->n; i++) {
			double speed = 1 / fb_ms(z, g->device[i]);
			if (speed < below && speed > fastest)
				fastest = speed;
		}
		if (fastest < 0) {
			below = INFINITY;
			continue;
		}
		for (int i = 0; i < g->n && left > 0; i++)
			if (1 / fb_ms(z, g->device[i]) == fastest) {
				g->microbatches[i]++;
				left--;
			}
		below = fastest;
	}
}

static double layer_time(const struct zorse *z, const struct group *g)
{
	double worst = 0;

	for (int i = 0; i < g->n; i++)
		worst = fmax(worst, fb_ms(z, g->device[i]) * g->microbatches[i]);
	return worst;
}

static void divide_layers(struct zorse *z)
{
	double sum = 0;
	int left = z->p->layers;

	for (int i = 0; i < z->groups; i++) {
		divide_microbatches(z, &z->g[i]);
		sum += 1 / layer_time(z, &z->g[i]);
	}
	for (int i = 0; i < z->groups; i++) {
		z->g[i].ratio = 1 / layer_time(z, &z->g[i]) / sum;
		z->g[i].layers = (int)(z->p->layers * z->g[i].ratio);
		left -= z->g[i].layers;
	}
	while (left > 0) {
		/* one each in the order of speed; `chunk[0]` marks the groups that already have one
		 * of this turn */
		for (int i = 0; i < z->groups; i++)
			z->g[i].chunk[0] = 0;
		for (int round = 0; round < z->groups && left > 0; round++, left--) {
			int pick = -1;
			for (int i = 0; i < z->groups; i++)
				if (!z->g[i].chunk[0] &&
				    (pick < 0 || z->g[i].ratio > z->g[pick].ratio))
					pick = i;
			z->g[pick].chunk[0] = 1;
			z->g[pick].layers++;
		}
	}
}

/* Each group's layers in `degree` chunks; the remainder goes to the groups whose time grows least.
 * False: some chunk is empty. */
static bool divide_chunks(struct zorse *z)
{
	int extra = 0;

	for (int i = 0; i < z->groups; i++) {
		struct group *g = &z->g[i];
		if (g->layers < z->degree)
			return false;
		for (int c = 0; c < z->degree; c++)
			g->chunk[c] = g->layers / z->degree;
		extra += g->layers % z->degree;
	}
	/* sorted once, as published; `layers` becomes the new sum */
	for (double above = -1; extra > 0;) {
		double least = INFINITY;
		for (int i = 0; i < z->groups; i++) {
			double t = (z->g[i].layers / z->degree + 1) / z->g[i].ratio;
			if (t > above && t < least)
				least = t;
		}
		if (isinf(least)) {
			above = -1;
			continue;
		}
		for (int i = 0; i < z->groups; i++)
			if ((z->g[i].layers / z->degree + 1) / z->g[i].ratio == least)
				for (int c = 0; c < z->degree && extra > 0; c++, extra--)
					z->g[i].chunk[c]++;
		above = least;
	}
	return true;
}

static bool memory_ok(const struct zorse *z)
{
	const struct profile *p = z->p;
	double edge_bytes = 3.0 * z->m * p->sequence_len * p->hidden * profile_dtype_bytes(p);

	for (int i = 0; i < z->groups; i++) {
		const struct group *g = &z->g[i];
		double least = INFINITY, ppl = p->parameters_per_layer, bytes;
		int whole = g->chunk[0], all = 0;

		for (int c = 0; c < z->degree; c++) {
			all += g->chunk[c];
			if (c + 1 < z->degree && g->chunk[c] + g->chunk[c + 1] > whole)
				whole = g->chunk[c] + g->chunk[c + 1];
		}
		for (int k = 0; k < g->n; k++)
			least = fmin(least, p->device[g->device[k]].memory_gib);
		bytes = whole * ppl * WORKING_BYTES + (all - whole) * ppl * WORKING_BYTES / g->n +
			all * ppl * STATE_BYTES / g->n + edge_bytes;
		if (!(bytes / GIB + RESERVE_GIB <= least))
			return false;
	}
	return true;
}

static double slowest(const struct zorse *z, const struct group *g, bool both)
{
	double worst = 0;

	for (int i = 0; i < g->n; i++)
		if (g->microbatches[i] > 0)
			worst = fmax(worst, both ? fb_ms(z, g->device[i]) : f_ms(z, g->device[i]));
	return worst;
}

static double group_core(const struct zorse *z, const struct group *g)
{
	double sum = 0, p2p = fmax(g->next, g->prev);

	for (int c = 0; c < z->degree; c++) {
		int n = g->chunk[c];
		double f = 0, b = 0;
		for (int i = 0; i < g->n; i++) {
			int count = g->microbatches[i];
			if (count == 0)
				continue;
			f = fmax(f, fmax(f_ms(z, g->device[i]) * n, p2p) *
					    (c == 0 ? count - 1 : count));
			b = fmax(b, fmax(fb_ms(z, g->device[i]) * n, p2p) * count);
		}
		sum += fmax(f, g->ag * n) + fmax(b, (g->ag + g->rs) * n);
	}
	return sum;
}

static double latency_ms(const struct zorse *z)
{
	int n = z->groups, all = n * z->degree;
	double start = 0, core = 0, end = 0;

	for (int v = 0; v < all && v <= n; v++) {
		const struct group *g = &z->g[v % n];
		double f = slowest(z, g, false);
		start += (v == 0 ? fmax(f, g->ag) : f) * g->chunk[v / n];
		if (v < n)
			start += g->next;
	}
	for (int i = 0; i < n; i++)
		core = fmax(core, group_core(z, &z->g[i]));
	for (int i = 0; i < all && i <= n; i++) {
		int v = all - 1 - i;
		const struct group *g = &z->g[v % n];
		double t = slowest(z, g, true);
		end += (i == 0 ? fmax(t, g->rs) : t) * g->chunk[v / n];
		if (i < n)
			end += g->prev;
	}
	return start + core + end;
}

static int keep(struct zorse *z, double ms, struct err *e)
{
	struct group *g = arena_alloc(&z->mem, (size_t)z->groups * sizeof *g);

	if (!g)
		return err_set(e, ERR_NOMEM, "out of memory for zorse's search");
	for (int i = 0; i < z->groups; i++) {
		g[i] = z->g[i];
		g[i].device = arena_alloc(&z->mem, (size_t)g[i].n * sizeof(int));
		g[i].microbatches = arena_alloc(&z->mem, (size_t)g[i].n * sizeof(int));
		g[i].chunk = arena_alloc(&z->mem, (size_t)z->degree * sizeof(int));
		if (!g[i].device || !g[i].microbatches || !g[i].chunk)
			return err_set(e, ERR_NOMEM, "out of memory for zorse's search");
		memcpy(g[i].device, z->g[i].device, (size_t)g[i].n * sizeof(int));
		memcpy(g[i].microbatches, z->g[i].microbatches, (size_t)g[i].n * sizeof(int));
		memcpy(g[i].chunk, z->g[i].chunk, (size_t)z->degree * sizeof(int));
	}
	z->best = g;
	z->best_groups = z->groups;
	z->best_m = z->m;
	z->best_degree = z->degree;
	z->best_ms = ms;
	return 0;
}

static bool has_idle_device(const struct zorse *z)
{
	for (int i = 0; i < z->groups; i++)
		for (int k = 0; k < z->g[i].n; k++)
			if (z->g[i].microbatches[k] == 0)
				return true;
	return false;
}

/* The groups of one partition: all microbatch sizes and interleave degrees. */
static int try_groups(struct zorse *z, struct err *e)
{
	const struct profile *p = z->p;
	struct group *all = z->g;
	int groups = z->groups;

	struct group *some = arena_alloc(&z->mem, (size_t)groups * sizeof *some);

	if (!some)
		return err_set(e, ERR_NOMEM, "out of memory for zorse's search");
	const int most_m = z->only ? z->only : p->global_batch > 1 ? p->global_batch / 2 : 1;
	for (z->m = z->only ? z->only : 1; z->m <= most_m; z->m *= 2) {
		int most, active = 0;
		if (p->global_batch % z->m)
			break;
		z->M = p->global_batch / z->m;
		z->g = all;
		z->groups = groups;
		divide_layers(z);
		if (!z->idle && has_idle_device(z))
			break;
		for (int i = 0; i < groups; i++) {
			all[i].next = all[i].prev = 0;
			if (all[i].layers > 0) /* the others are not used */
				some[active++] = all[i];
		}
		z->g = some;
		z->groups = active;
		for (int i = 0; i + 1 < active; i++)
			some[i].next = some[i + 1].prev = send_ms(z, &some[i], &some[i + 1]);
		z->degree = 1;
		if (!divide_chunks(z) || !memory_ok(z))
			break;
		most = active == 1 ? 1 : (p->layers / 2 < active ? p->layers / 2 : active) + 2;
		for (z->degree = 1; z->degree <= most; z->degree++) {
			double ms;
			if (!divide_chunks(z) || !memory_ok(z))
				continue;
			ms = latency_ms(z);
			if (ms < z->best_ms)
				TRY(keep(z, ms, e));
		}
	}
	return 0;
}

static int make_groups(struct zorse *z, const struct part *part, int n, struct err *e)
{
	const struct profile *p = z->p;

	z->groups = n;
	z->g = arena_alloc(&z->mem, (size_t)n * sizeof *z->g);
	if (!z->g)
		return err_set(e, ERR_NOMEM, "out of memory for zorse's search");
	for (int i = 0; i < n; i++) {
		struct group *g = &z->g[i];
		g->device = part[i].device;
		g->n = part[i].n;
		g->microbatches = arena_alloc(&z->mem, (size_t)g->n * sizeof(int));
		g->chunk = arena_alloc(&z->mem, ((size_t)n + 4) * sizeof(int));
		if (!g->microbatches || !g->chunk)
			return err_set(e, ERR_NOMEM, "out of memory for zorse's search");
		g->ag = ring_ms(p, g, p->parameters_per_layer * profile_dtype_bytes(p));
		g->rs = ring_ms(p, g, p->parameters_per_layer * 4);
	}
	sort_groups(p, z->g, n);
	return try_groups(z, e);
}

/* Splits the part with the lightest cut in two; the parts stay in the order of their
 * first device. */
static int split(struct zorse *z, struct part *part, int *n, struct err *e)
{
	int devices = z->p->devices, pick = -1;
	struct part a = { 0 }, b = { 0 };

	for (int i = 0; i < *n; i++) {
		struct part *x = &part[i];
		size_t k = (size_t)x->n;
		if (k < 2)
			continue;
		if (isnan(x->cut)) {
			double *w = mem_array(k * k, sizeof *w), *key = mem_array(k, sizeof *key);
			int *label = mem_array(k, sizeof *label);
			bool *used = mem_array(k, sizeof *used);
			x->in_s = arena_alloc(&z->mem, k * sizeof(bool));
			if (w && key && label && used && x->in_s)
				x->cut = lightest_cut(z->p, x->device, x->n, x->in_s, w, label, key,
						      used);
			mem_free(w);
			mem_free(key);
			mem_free(label);
			mem_free(used);
			if (isnan(x->cut))
				return err_set(e, ERR_NOMEM, "out of memory for zorse's partition");
		}
		if (pick < 0 || x->cut < part[pick].cut)
			pick = i;
	}
	if (pick < 0 || *n == devices)
		return 0;
	a.device = arena_alloc(&z->mem, (size_t)part[pick].n * sizeof(int));
	b.device = arena_alloc(&z->mem, (size_t)part[pick].n * sizeof(int));
	if (!a.device || !b.device)
		return err_set(e, ERR_NOMEM, "out of memory for zorse's partition");
	a.cut = b.cut = NAN;
	for (int i = 0; i < part[pick].n; i++) {
		/* `a` is the side of the first device */
		bool first = part[pick].in_s[i] == part[pick].in_s[0];
		if (first)
			a.device[a.n++] = part[pick].device[i];
		else
			b.device[b.n++] = part[pick].device[i];
	}
	part[pick] = a;
	part[(*n)++] = b;
	for (int i = *n - 1; i > 0 && part[i].device[0] < part[i - 1].device[0]; i--) {
		struct part t = part[i];
		part[i] = part[i - 1];
		part[i - 1] = t;
	}
	return 0;
}

/* As it is run: chunk after chunk with all microbatches, so that each chunk is gathered once per
 * pass as its formula has it; one stage layer by layer. */
static int shard_chunks(struct plan *out, struct err *e)
{
	bool groups = false, large = false;

	for (int k = 0; k < out->stages; k++) {
		groups = groups || out->stage[k].members > 1;
		large = large || out->stage[k].members > SCHED_MAX_GROUP;
	}
	if (!groups || large)
		return 0;
	out->sched = &sched_breadth_first;
	return out->stages == 1 ? plan_cut_layers(out, plan_most_chunks(out), true, e) : 0;
}

static int fill(const struct zorse *z, struct plan *out, struct err *e)
{
	int at = 0;

	TRY(plan_alloc(out, z->best_groups, z->best_degree, e));
	for (int i = 0; i < z->best_groups; i++) {
		const struct group *g = &z->best[i];
		TRY(plan_stage_members(out, i, g->n, e));
		for (int k = 0; k < g->n; k++) {
			struct plan_member *m = &out->stage[i].member[k];
			m->device = g->device[k];
			m->microbatch = z->best_m;
			m->microbatches = g->microbatches[k];
		}
		out->stage[i].sharded = out->stage[i].recompute = g->n > 1;
	}
	for (int v = 0; v < z->best_groups * z->best_degree; v++) {
		out->first[v] = at;
		at += z->best[v % z->best_groups].chunk[v / z->best_groups];
	}
	out->first[z->best_groups * z->best_degree] = at;
	out->sched = sched_find(z->best_degree > 1 ? "interleaved" : "gpipe");
	out->microbatch = z->best_m;
	out->microbatches = z->p->global_batch / z->best_m;
	out->predicted_ms = z->best_ms;
	return shard_chunks(out, e);
}

static int plan_zorse(const struct profile *p, const struct plan_options *o, struct plan *out,
		      struct err *e)
{
	struct zorse z = { .p = p, .best_ms = INFINITY, .mem = ARENA_INIT };
	size_t n = (size_t)p->devices;
	struct part **history, *part;
	int parts = 1, hosts = 0, rc = 0;
	int *sizes;

	if (o->keep_passes && o->microbatch > 0)
		z.only = o->microbatch;
	part = arena_alloc(&z.mem, n * sizeof *part);
	history = arena_alloc(&z.mem, (n + 1) * sizeof *history);
	sizes = arena_alloc(&z.mem, (n + 1) * sizeof *sizes);
	if (part)
		part[0] = (struct part){ arena_alloc(&z.mem, n * sizeof(int)), p->devices, NAN,
					 NULL };
	if (!part || !history || !sizes || !part[0].device) {
		rc = err_set(e, ERR_NOMEM, "out of memory for zorse's search");
		goto out;
	}
	for (int i = 0; i < p->devices; i++) {
		bool seen = false;
		part[0].device[i] = i;
		for (int k = 0; k < i && !seen; k++)
			seen = p->device[k].host == p->device[i].host;
		hosts += !seen;
	}
	/* Splitting is hierarchical: the partition into k + 1 groups splits a group of the one into
	 * k. They are tried from many groups to one. */
	for (int k = 1; k <= hosts; k++) {
		history[k] = arena_alloc(&z.mem, (size_t)parts * sizeof **history);
		if (!history[k]) {
			rc = err_set(e, ERR_NOMEM, "out of memory for zorse's search");
			goto out;
		}
		memcpy(history[k], part, (size_t)parts * sizeof *part);
		sizes[k] = parts;
		if (k < hosts)
			TRYOUT(split(&z, part, &parts, e));
	}
	for (int pass = 0; pass < 2 && !z.best; pass++)
		for (int k = hosts; k >= 1; k--) {
			z.idle = pass == 1;
			if (sizes[k] <= p->layers)
				TRYOUT(make_groups(&z, history[k], sizes[k], e));
		}
	if (!z.best) {
		rc = err_set(e, ERR_USAGE,
			     "zorse: no partition into groups fits into memory (2 + 12 bytes a "
			     "parameter, %.0f GiB reserve); use 'best'",
			     RESERVE_GIB);
		goto out;
	}
	rc = fill(&z, out, e);
out:
	arena_release(&z.mem);
	return rc;
}

const struct planner planner_zorse = {
	.name = "zorse",
	.help = "groups of well-connected devices, layers proportional to speed (Zorse)",
	.chooses_sizes = true,
	.plan = plan_zorse,
};
