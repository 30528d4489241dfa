/* SPDX-License-Identifier: Apache-2.0 */
/* sum_time.c - see sum_time.h. */
#include "plan/sum_time.h"

#include <math.h>

static int terms_of(const struct sum_group *g, int place)
{
	int n = 0;
	for (int i = 0; i < g->terms->n; i++)
		n += g->terms->term[i].place == place;
	return n;
}

static int host_of(const struct sum_group *g, int place)
{
	return g->p->device[g->device[place]].host;
}

static double on_wire(const struct sum_group *g, double bytes)
{
	return g->halved ? bytes / 2 : bytes;
}

/* Seconds of `bytes` on the wire from one member to another, alone. */
static double way(const struct sum_group *g, int from, int to, double bytes)
{
	const int a = g->device[from], b = g->device[to];
	double rate = profile_bandwidth(g->p, a, b) * 1e9, card = INFINITY;
	if (host_of(g, from) != host_of(g, to))
		card = 1e9 *
		       fmin(g->p->host[host_of(g, from)].card, g->p->host[host_of(g, to)].card);
	if (card > 0)
		rate = fmin(rate, card);
	return bytes > 0 ? profile_latency_ms(g->p, a, b) / 1e3 + bytes / rate : 0;
}

/* Of a machine that passes on what some of them say, if all send to all at once: what comes in and
 * goes out again there, piece[i] bytes from member i to each. */
static double passed_on(const struct sum_group *g, const double *piece)
{
	double longest = 0;
	for (int h = 0; g->p->relays && h < g->p->hosts; h++) {
		double bytes = 0;
		for (int a = 0; a < g->n; a++)
			for (int b = 0; b < g->n; b++)
				bytes += a != b && profile_relay(g->p, g->device[a],
								 g->device[b]) == h
						 ? piece[a]
						 : 0;
		if (g->p->host[h].card > 0)
			longest = fmax(longest, bytes / (g->p->host[h].card * 1e9));
	}
	return longest;
}

/* All members send to all others at once, member i terms[i] pieces to each. */
static double all_to_all(const void *ctx, bool terms)
{
	const struct sum_group *g = ctx;
	const double piece = on_wire(g, g->bytes) / g->n;
	double each[SCHED_MAX_GROUP];
	for (int a = 0; a < g->n; a++)
		each[a] = piece * (terms ? terms_of(g, a) : 1);
	double longest = passed_on(g, each);
	for (int i = 0; i < g->n; i++) {
		const double card = g->p->host[host_of(g, i)].card * 1e9;
		double out = 0, in = 0;
		for (int a = 0; a < g->n; a++) {
			const double bytes = each[a];
			for (int b = 0; b < g->n; b++) {
				if (a == b)
					continue;
				if (a == i)
					longest = fmax(longest, way(g, a, b, bytes));
				if (host_of(g, a) == host_of(g, b))
					continue;
				out += host_of(g, a) == host_of(g, i) ? bytes : 0;
				in += host_of(g, b) == host_of(g, i) ? bytes : 0;
			}
		}
		if (card > 0)
			longest = fmax(longest, fmax(out, in) / card);
	}
	return longest;
}

/* Whether what a member copies is counted as lost computing (cost_talk.c). */
static bool copies_in_passes(const struct sum_group *g, int place)
{
	return g->p->device[g->device[place]].on_host && terms_of(g, place) > 0;
}

double gather_time(const struct sum_group *g, const struct plan_member *m, double bytes,
		   bool in_passes)
{
	double each[SCHED_MAX_GROUP], up = 0, down = 0;
	for (int a = 0; a < g->n; a++)
		each[a] = bytes * m[a].state_share;
	double longest = passed_on(g, each);
	for (int i = 0; i < g->n; i++) {
		const double card = g->p->host[host_of(g, i)].card * 1e9;
		double out = 0, in = 0;
		if (!in_passes || !copies_in_passes(g, i)) {
			down = fmax(down, g->down[g->device[i]] * bytes * m[i].state_share);
			up = fmax(up, g->up[g->device[i]] * bytes * (1 - m[i].state_share));
		}
		for (int a = 0; a < g->n; a++)
			for (int b = 0; b < g->n; b++) {
				const double some = each[a];
				if (a == b)
					continue;
				if (a == i)
					longest = fmax(longest, way(g, a, b, some));
				if (host_of(g, a) == host_of(g, b))
					continue;
				out += host_of(g, a) == host_of(g, i) ? some : 0;
				in += host_of(g, b) == host_of(g, i) ? some : 0;
			}
		if (card > 0)
			longest = fmax(longest, fmax(out, in) / card);
	}
	return down + longest + up;
}

/* The slowest message of `bytes` from a member to any other one. */
static double slowest(const void *ctx, double bytes)
{
	const struct sum_group *g = ctx;
	double s = 0;
	for (int a = 0; a < g->n; a++)
		for (int b = 0; b < g->n; b++)
			if (a != b)
				s = fmax(s, way(g, a, b, bytes));
	return s;
}

/* The slowest step of `bytes` from a member to the next one: the parts follow each other, so it
 * takes the time of its bytes, or where that is longer the latency and the time of one part. */
static double around(const void *ctx, double bytes, int parts)
{
	const struct sum_group *g = ctx;
	double s = 0;
	for (int a = 0; a < g->n; a++) {
		const int b = (a + 1) % g->n;
		double all = way(g, a, b, bytes) -
			     profile_latency_ms(g->p, g->device[a], g->device[b]) / 1e3;
		s = fmax(s, fmax(all, way(g, a, b, bytes / parts)));
	}
	return s;
}

static double copying(const struct sum_group *g, bool down)
{
	double s = 0;
	for (int i = 0; i < g->n; i++)
		if (!copies_in_passes(g, i))
			s = fmax(s, down ? g->down[g->device[i]] * g->bytes * terms_of(g, i)
					 : g->up[g->device[i]] * g->bytes);
	return s;
}

void sum_time(const struct sum_group *g, double *scatter_s_p, double *reduce_s_p)
{
	const struct reduction r = {
		.how = g->how, .terms = g->terms, .n = g->n, .count = (size_t)(g->bytes / 4)
	};
	const double segments = (double)reduce_segments(&r);
	const struct reduce_links l = { .n = g->n,
					.bytes = on_wire(g, g->bytes),
					.segments = segments,
					.scatter = g->shared,
					.all_to_all = all_to_all,
					.slowest = slowest,
					.around = around,
					.ctx = g };
	*scatter_s_p = *reduce_s_p = 0;
	if (g->n < 2 || !(segments > 0))
		return;
	g->how->time(&l, scatter_s_p, reduce_s_p);
	*(g->how->begin ? scatter_s_p : reduce_s_p) += copying(g, true);
	*reduce_s_p += copying(g, false);
}
