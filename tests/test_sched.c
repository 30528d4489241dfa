/* SPDX-License-Identifier: Apache-2.0 */
/* test_sched.c - every schedule for every small combination and for random groups: complete, free
 * of deadlock, within its stated number of activations, backwards in the order of the microbatches;
 * the player against times known in closed form; the deal of microbatches and the order of sums
 * against their definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "sched/play.h"
#include "sched/sum.h"

enum { MAX_STAGES = 9, MAX_CHUNKS = 4 };

static struct player *pl;
static double ones[64], twos[64];

static double worst;

static void close_to(double got, double want)
{
	double d = fabs(got - want);
	if (!(d <= worst))
		worst = d;
	if (!(d <= 1e-9 * (1 + fabs(want))))
		fail_msg("got %.12g, expected %.12g", got, want);
}

static struct play unit(int stages, int chunks, int microbatches)
{
	return (struct play){ .stages = stages,
			      .chunks = chunks,
			      .microbatches = microbatches,
			      .forward_s = ones,
			      .backward_s = twos };
}

static struct play_result play(const struct sched *s, const struct play *p)
{
	struct err e = { 0 };
	struct play_result r;
	if (sched_play(pl, s, p, false, &r, &e) < 0)
		fail_msg("%s, %d stages, %d chunks, %d microbatches: %s", s->name, p->stages,
			 p->chunks, p->microbatches, e.msg);
	return r;
}

/* The gradient before NORM, the value behind STEP; everything else stays as it was. */
static void check_tied(struct instr_list *l, int stages, int stage)
{
	struct instr_list was = { 0 };
	struct err e = { 0 };
	const bool front = stage == 0, end = stage == stages - 1;
	size_t n = l->n;

	was.item = malloc(n * sizeof *was.item);
	assert_non_null(was.item);
	memcpy(was.item, l->item, n * sizeof *was.item);
	assert_int_equal(
		sched_add_tied(
			&(struct sched_shape){ .stages = stages, .chunks = 1, .microbatches = 1 },
			stage, 0, l, &e),
		0);
	assert_memory_equal(l->item, was.item, (n - 2) * sizeof *was.item);
	if (stages == 1 || (!front && !end)) {
		assert_int_equal(l->n, n);
		assert_memory_equal(l->item, was.item, n * sizeof *was.item);
	} else {
		const struct instr *last = &l->item[n - 2];
		assert_int_equal(l->n, n + 2);
		assert_int_equal(last[0].kind, front ? INSTR_RECV_TIED_GRAD : INSTR_SEND_TIED_GRAD);
		assert_int_equal(last[1].kind, INSTR_NORM);
		assert_int_equal(last[2].kind, INSTR_STEP);
		assert_int_equal(last[3].kind,
				 front ? INSTR_SEND_TIED_VALUE : INSTR_RECV_TIED_VALUE);
		assert_true(last[0].peer == (front ? stages - 1 : 0) &&
			    last[3].peer == last[0].peer);
	}
	free(was.item);
}

/* Independent of the player: each forward and backward once, the backwards of a chunk ascending, in
 * flight as stated. */
static void check_list(const struct sched *s, int stages, int chunks, int m, int stage)
{
	struct instr_list l = { 0 };
	struct err e = { 0 };
	int next_f[MAX_CHUNKS] = { 0 }, next_b[MAX_CHUNKS] = { 0 }, kept = 0, peak = 0;

	assert_int_equal(sched_build(s, &(struct sched_shape){ stages, chunks, m, NULL, NULL, 0 },
				     stage, 0, &l, &e),
			 0);
	assert_true(l.n >= 2 && l.item[l.n - 2].kind == INSTR_NORM &&
		    l.item[l.n - 1].kind == INSTR_STEP);
	check_tied(&l, stages, stage);
	for (size_t i = 0; i < l.n; i++) {
		const struct instr *in = &l.item[i];
		if (in->kind == INSTR_FORWARD) {
			assert_int_equal(in->microbatch, next_f[in->chunk]++);
			kept++;
		} else if (in->kind == INSTR_BACKWARD) {
			assert_int_equal(in->microbatch, next_b[in->chunk]++);
			assert_true(next_b[in->chunk] <= next_f[in->chunk]);
			kept--;
		}
		if (kept > peak)
			peak = kept;
		if (stages == 1)
			assert_true(in->peer == -1);
	}
	for (int c = 0; c < chunks; c++) {
		assert_int_equal(next_f[c], m);
		assert_int_equal(next_b[c], m);
	}
	assert_int_equal(peak, sched_in_flight_alone(s, stages, chunks, m, stage));
	instr_list_release(&l);
}

/* The same with a tied embedding whose gradient and value travel 0.5 s each. */
static void play_tied(const struct sched *s, struct play p, const struct play_result *without)
{
	double step = without->step_s;

	p.tied = true;
	p.tied_s = 0.5;
	if (p.stages == 1) {
		close_to(play(s, &p).step_s, step);
		return;
	}
	struct play_result r = play(s, &p);
	/* The value comes last. The gradient is on its way while the front still computes. */
	if (!(r.step_s >= step + 0.5 - 1e-9 && r.step_s <= step + 1 + 1e-9))
		fail_msg("%s, %d stages, %d microbatches: %.12g s, tied %.12g s", s->name, p.stages,
			 p.microbatches, step, r.step_s);
	for (int k = 0; k < p.stages; k++)
		close_to(r.worker[k].busy_s + r.worker[k].copy_s + r.worker[k].wait_s +
				 r.worker[k].bubble_s,
			 r.step_s);
}

static void test_all_small(void **state)
{
	int n = 0;
	(void)state;
	for (size_t i = 0; sched_at(i); i++) {
		const struct sched *s = sched_at(i);
		for (int chunks = 1; chunks <= (s->chunked ? MAX_CHUNKS : 1); chunks++)
			for (int stages = 1; stages <= MAX_STAGES; stages++)
				for (int m = 1; m <= 25; m++, n++) {
					struct play p = unit(stages, chunks, m);
					struct play_result r = play(s, &p);
					for (int k = 0; k < stages; k++) {
						check_list(s, stages, chunks, m, k);
						assert_int_equal(r.worker[k].in_flight,
								 sched_in_flight_alone(
									 s, stages, chunks, m, k));
						close_to(r.worker[k].busy_s, 3.0 * m * chunks);
						close_to(r.worker[k].busy_s + r.worker[k].copy_s +
								 r.worker[k].wait_s +
								 r.worker[k].bubble_s,
							 r.step_s);
					}
					play_tied(s, p, &r);
				}
	}
	print_message("%d combinations\n", n);
}

/* Equal stages, no communication: (m + p - 1) (f + b) for gpipe, 1f1b and eager, m p (f + b) for
 * sequential, and with v chunks whose times are f / v each, (m + (p - 1) / v) (f + b) for
 * interleaved when p divides m. */
static void test_closed_form(void **state)
{
	(void)state;
	for (int stages = 1; stages <= 6; stages++)
		for (int m = 1; m <= 12; m++) {
			struct play p = unit(stages, 1, m);
			close_to(play(sched_find("gpipe"), &p).step_s, 3.0 * (m + stages - 1));
			close_to(play(sched_find("1f1b"), &p).step_s, 3.0 * (m + stages - 1));
			close_to(play(sched_find("eager"), &p).step_s, 3.0 * (m + stages - 1));
			close_to(play(sched_find("sequential"), &p).step_s, 3.0 * m * stages);
			if (m % stages)
				continue;
			for (int v = 2; v <= 3; v++) {
				p = unit(stages, v, m);
				close_to(play(sched_find("interleaved"), &p).step_s,
					 3.0 * (m * v + stages - 1));
			}
		}
	print_message("largest difference %.3g\n", worst);
}

/* Two stages, a link: microbatch by microbatch the time is the sum of all parts. */
static void test_link(void **state)
{
	struct play_route route[4] = {
		{ 0.25, 10, -1, -1 }, { 0.5, 20, -1, -1 }, { 0, 1, -1, -1 }, { 0, 1, -1, -1 }
	};
	double reduce[2] = { 0.1, 0.2 }, step[2] = { 0.3, 0.1 }, send[2] = { 0.01, 0.02 },
	       recv[2] = { 0.04, 0.08 };
	struct play p = unit(2, 1, 3);
	struct play_result r;
	double once;

	(void)state;
	p.route = route;
	p.act_bytes = 5;
	p.grad_bytes = 40;
	p.send_s = send;
	p.recv_s = recv;
	p.norm_s = reduce;
	p.step_s = step;
	p.barrier_s = 1;
	/* forward, send, 5/10, 0.25, receive, forward and backward, send, 40/20, 0.5, receive,
	 * backward */
	once = 1 + 0.01 + 0.5 + 0.25 + 0.08 + 3 + 0.02 + 2 + 0.5 + 0.04 + 2;
	r = play(sched_find("sequential"), &p);
	close_to(r.step_s, 3 * once + 0.1 + 1 + 0.3);
	/* stage 0 waits for the link while the gradient travels, the rest of its idle time is
	 * bubble */
	close_to(r.worker[0].busy_s, 9 + 0.4);
	close_to(r.worker[0].copy_s, 3 * 0.05);
	close_to(r.worker[0].wait_s, 3 * 2.5);
	/* A link slower than both stages sets the pace: m transmissions of 4 s in one direction. */
	p = unit(2, 1, 50);
	route[0] = (struct play_route){ 0, 1, -1, -1 };
	route[1] = (struct play_route){ 0, 1, -1, -1 };
	p.route = route;
	p.act_bytes = 4;
	p.grad_bytes = 0;
	close_to(play(sched_find("gpipe"), &p).step_s, 1 + 50 * 4 + 1 + 50 * 2 + 2);
	/* Messages of 0.4 s each way: eager hides all but the first activation and the last
	 * gradient, 1f1b stands still for one message a microbatch. */
	p = unit(2, 1, 20);
	route[0] = route[1] = (struct play_route){ 0, 10, -1, -1 };
	p.route = route;
	p.act_bytes = p.grad_bytes = 4;
	close_to(play(sched_find("eager"), &p).step_s, 1 + 0.4 + 20 * 3 + 0.4 + 2);
	assert_true(play(sched_find("1f1b"), &p).step_s >
		    play(sched_find("eager"), &p).step_s + 18 * 0.4 - 1e-6);
}

/* A wire that limits nothing gives the same times through the event path; one that two flows share
 * halves them. */
static void test_shared_wire(void **state)
{
	struct play_route route[12], wired[12];
	struct play_wire wire[2] = { { 1e12 }, { 1e12 } };
	struct rng_key key = rng_key(7);
	uint64_t at = 0;
	double f[18], b[18], largest = 0;

	(void)state;
	for (int round = 0; round < 300; round++) {
		const struct sched *s = sched_at((size_t)round % 4);
		int stages = 2 + (int)rng_below(key, at++, 5),
		    chunks = s->chunked ? 1 + (int)rng_below(key, at++, 3) : 1;
		struct play p = unit(stages, chunks, 1 + (int)rng_below(key, at++, 12));
		double flow, events;

		for (int i = 0; i < 18; i++) {
			f[i] = rng_uniform(key, at++, 0.1f, 3);
			b[i] = rng_uniform(key, at++, 0.1f, 3);
		}
		for (int i = 0; i < 12; i++) {
			route[i] = (struct play_route){ rng_uniform(key, at++, 0, 1),
							rng_uniform(key, at++, 1, 5), -1, -1 };
			wired[i] = route[i];
			wired[i].wire_out = 0;
			wired[i].wire_in = i % 3 == 0 ? 1 : -1;
		}
		p.forward_s = f;
		p.backward_s = b;
		p.act_bytes = 3;
		p.grad_bytes = 2;
		p.route = route;
		flow = play(s, &p).step_s;
		p.route = wired;
		p.wire = wire;
		p.wires = 2;
		events = play(s, &p).step_s;
		if (!(fabs(flow - events) <= largest))
			largest = fabs(flow - events);
		if (!(fabs(flow - events) <= 1e-9 * flow))
			fail_msg("%s: %.12g by flow, %.12g by events", s->name, flow, events);
	}
	print_message("flow against events: largest difference %.3g s\n", largest);

	/* Three stages on one host's card: 0 -> 1 and 1 -> 2 go out of the same wire of 1 byte/s.
	 * Microbatch 0 travels 1 -> 2 while microbatch 1 travels 0 -> 1 (10 bytes each): stage 0
	 * sends at 1 and 2 (queued till 11); stage 1 has 0 at 11, sends at 12. From 11 to 12
	 * microbatch 1 has the wire alone (1 byte), then both share: 9 bytes take 18 s, until 30,
	 * when the other has 1 byte left: it arrives at 31. Stage 1 computes from 30 to 31 and
	 * sends at 31, alone: there at 41. Stage 2 ends at 42. */
	{
		double none[3] = { 0 };
		struct play_route r3[6];
		struct play_wire one = { 1 };
		struct play p = unit(3, 1, 2);
		for (int i = 0; i < 6; i++)
			r3[i] = (struct play_route){ 0, i % 2 ? 1e300 : INFINITY, i % 2 ? -1 : 0,
						     -1 };
		p.backward_s = none;
		p.route = r3;
		p.wire = &one;
		p.wires = 1;
		p.act_bytes = 10;
		close_to(play(sched_find("gpipe"), &p).step_s, 42);
	}
}

/* Two stages, one microbatch, known times: the gradient of the head is ready at 1 + 3 s, the front
 * goes on at 4 + 2 s and has it at 4 + 5 s; STEP on all 1 s later, then the value. The same through
 * events. */
static void test_tied(void **state)
{
	struct play_route route[4] = {
		{ 0, 1e300, 0, -1 }, { 0, 1e300, 0, -1 }, { 0, 1, -1, -1 }, { 0, 1, -1, -1 }
	};
	const struct play_wire wire = { 1e300 };
	double reduce[2] = { 0.25, 0.5 }, step[2] = { 2, 0.125 };

	(void)state;
	for (int events = 0; events < 2; events++) {
		struct play p = unit(2, 1, 1);
		p.tied = true;
		p.tied_s = 5;
		p.norm_s = reduce;
		p.step_s = step;
		p.barrier_s = 1;
		p.route = events ? route : NULL;
		p.wire = &wire;
		p.wires = 1;
		struct play_result r = play(sched_find("1f1b"), &p);
		close_to(r.step_s, 4 + 5 + 0.25 + 1 + 2 + 5);
		close_to(r.worker[0].wait_s, 3); /* of the gradient's 5 s it computes 2 */
		close_to(r.worker[1].wait_s, 5);
		close_to(r.worker[0].end_s, 4 + 5 + 0.25 + 1 + 2);
	}
}

/* Lists that are broken are refused, never played. */
static void broken(bool tied)
{
	struct instr_list l[2] = { 0 };
	struct err e = { 0 };
	struct play p = unit(2, 1, 3);
	struct play_result r;
	int refused = 0, changed = 0;

	p.tied = tied;
	for (int s = 0; s < 2; s++) {
		assert_int_equal(sched_build(sched_find("1f1b"),
					     &(struct sched_shape){ 2, 1, 3, NULL, NULL, 0 }, s, 0,
					     &l[s], &e),
				 0);
		if (tied)
			assert_int_equal(
				sched_add_tied(&(struct sched_shape){ 2, 1, 3, NULL, NULL, 0 }, s,
					       0, &l[s], &e),
				0);
	}
	for (int s = 0; s < 2; s++)
		for (size_t i = 0; i < l[s].n; i++) {
			/* leave one out */
			struct instr keep = l[s].item[i];
			memmove(&l[s].item[i], &l[s].item[i + 1], (l[s].n - i - 1) * sizeof keep);
			l[s].n--;
			changed++;
			refused += sched_play_lists(pl, l, &p, false, &r, &e) == ERR_INTERNAL;
			memmove(&l[s].item[i + 1], &l[s].item[i], (l[s].n - i) * sizeof keep);
			l[s].n++;
			/* another microbatch, another chunk */
			l[s].item[i] = keep;
			l[s].item[i].microbatch += 1;
			if (keep.kind != INSTR_NORM && keep.kind != INSTR_STEP) {
				changed += 2;
				refused +=
					sched_play_lists(pl, l, &p, false, &r, &e) == ERR_INTERNAL;
				l[s].item[i] = keep;
				l[s].item[i].chunk = 1;
				refused +=
					sched_play_lists(pl, l, &p, false, &r, &e) == ERR_INTERNAL;
			}
			l[s].item[i] = keep;
		}
	assert_int_equal(refused, changed);
	assert_int_equal(sched_play_lists(pl, l, &p, false, &r, &e), 0);
	p.tied = !tied; /* messages too many, or too few */
	assert_int_equal(sched_play_lists(pl, l, &p, false, &r, &e), ERR_INTERNAL);
	p.tied = false;
	/* a deadlock: stage 1 wants the second microbatch first, and only then sends what stage 0
	 * waits for */
	{
		struct instr a[] = { { INSTR_FORWARD, 0, 0, -1 },  { INSTR_SEND_ACT, 0, 0, 1 },
				     { INSTR_RECV_GRAD, 0, 0, 1 }, { INSTR_BACKWARD, 0, 0, -1 },
				     { INSTR_FORWARD, 1, 0, -1 },  { INSTR_SEND_ACT, 1, 0, 1 },
				     { INSTR_RECV_GRAD, 1, 0, 1 }, { INSTR_BACKWARD, 1, 0, -1 },
				     { INSTR_NORM, -1, -1, -1 },   { INSTR_STEP, -1, -1, -1 } };
		struct instr b[] = { { INSTR_RECV_ACT, 0, 0, 0 },  { INSTR_FORWARD, 0, 0, -1 },
				     { INSTR_RECV_ACT, 1, 0, 0 },  { INSTR_FORWARD, 1, 0, -1 },
				     { INSTR_BACKWARD, 0, 0, -1 }, { INSTR_SEND_GRAD, 0, 0, 0 },
				     { INSTR_BACKWARD, 1, 0, -1 }, { INSTR_SEND_GRAD, 1, 0, 0 },
				     { INSTR_NORM, -1, -1, -1 },   { INSTR_STEP, -1, -1, -1 } };
		struct instr_list dead[2] = { { a, 10, 10 }, { b, 10, 10 } };
		p.microbatches = 2;
		assert_int_equal(sched_play_lists(pl, dead, &p, false, &r, &e), ERR_INTERNAL);
		assert_non_null(strstr(e.msg, "its input never arrives"));
	}
	for (int s = 0; s < 2; s++)
		instr_list_release(&l[s]);
}

static void test_broken(void **state)
{
	(void)state;
	broken(false);
	broken(true);
}

static void test_arguments(void **state)
{
	struct instr_list l = { 0 };
	struct err e = { 0 };

	(void)state;
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 0, 1, 1, NULL, NULL }, 0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 2, 1, NULL, NULL }, 0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(
		sched_build(sched_find("interleaved"),
			    &(struct sched_shape){ 2, 256, SCHED_MAX_MICROBATCHES, NULL, NULL }, 0,
			    0, &l, &e),
		ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 1, 0, NULL, NULL }, 0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 1, 1, NULL, NULL }, 2, 0, &l, &e),
			 ERR_INTERNAL);
	assert_null(sched_find("no such"));
	assert_ptr_equal(sched_default(), sched_find("1f1b"));
	instr_list_release(&l);
}

/* The timeline covers exactly the busy time, and no worker does two things at once. */
static int by_begin(const void *a, const void *b)
{
	const struct play_span *x = a, *y = b;
	if (x->member != y->member)
		return x->member - y->member;
	return x->begin_s < y->begin_s ? -1 : x->begin_s > y->begin_s;
}

static void test_timeline(void **state)
{
	struct play_route route[8];
	struct play p = unit(4, 2, 7);
	struct play_result r;
	struct err e = { 0 };
	double busy[4] = { 0 };
	size_t sends = 0;

	(void)state;
	for (int i = 0; i < 8; i++)
		route[i] = (struct play_route){ 0.1, 10, -1, -1 };
	p.route = route;
	p.act_bytes = p.grad_bytes = 3;
	assert_int_equal(sched_play(pl, sched_find("interleaved"), &p, true, &r, &e), 0);
	qsort(r.span, r.spans, sizeof *r.span, by_begin);
	for (size_t i = 0; i < r.spans; i++) {
		const struct play_span *s = &r.span[i];
		assert_true(s->end_s > s->begin_s && s->end_s <= r.step_s + 1e-9);
		if (s->instr.kind == INSTR_FORWARD || s->instr.kind == INSTR_BACKWARD)
			busy[s->member] += s->end_s - s->begin_s;
		sends += s->instr.kind == INSTR_SEND_ACT || s->instr.kind == INSTR_SEND_GRAD;
	}
	assert_int_equal(sends, 2 * 7 * 7);
	for (int k = 0; k < 4; k++)
		close_to(busy[k], r.worker[k].busy_s);
	for (size_t i = 1, last = 0; i < r.spans; i++) {
		const struct play_span *s = &r.span[i];
		if (s->instr.kind == INSTR_SEND_ACT || s->instr.kind == INSTR_SEND_GRAD)
			continue;
		if (r.span[last].member == s->member && r.span[last].instr.kind != INSTR_SEND_ACT &&
		    r.span[last].instr.kind != INSTR_SEND_GRAD)
			assert_true(r.span[last].end_s <= s->begin_s + 1e-9);
		last = i;
	}
}

/* ---- groups ---- */

enum { GROUP = 4, FEW = 5, ROWS = GROUP * FEW, MB = 25, CHUNKS = 3, PARTS = 3 };

struct mixture {
	int members[FEW], share[ROWS], rows;
	struct sched_shape shape;
	int by[FEW][MB]; /* the place that runs a microbatch */
};

/* MEMBERS.md: pass i goes to the member with the largest share (i + 1) / sum less what it already
 * has, ties to the lower place. As fractions of the sum, counted anew for each. */
static int dealt(const int *share, int n, const int *by, int i)
{
	int sum = 0, who = -1, most = 0;
	for (int k = 0; k < n; k++)
		sum += share[k];
	for (int k = 0; k < n; k++) {
		int had = 0;
		for (int j = 0; j < i; j++)
			had += by[j] == k;
		int due = share[k] * (i + 1) - had * sum;
		if (share[k] && (who < 0 || due > most)) {
			who = k;
			most = due;
		}
	}
	return who;
}

static void random_mixture(struct mixture *x, const struct sched *s, struct rng_key key,
			   uint64_t *at)
{
	*x = (struct mixture){ .shape = { .members = x->members, .share = x->share } };
	x->shape.stages = 1 + (int)rng_below(key, (*at)++, FEW);
	x->shape.chunks = s->chunked ? 1 + (int)rng_below(key, (*at)++, CHUNKS) : 1;
	x->shape.microbatches = 1 + (int)rng_below(key, (*at)++, MB);
	x->shape.parts = (int)rng_below(key, (*at)++, PARTS + 1);
	for (int k = 0; k < x->shape.stages; k++) {
		int *share = x->share + x->rows, sum = 0;
		x->members[k] = 1 + (int)rng_below(key, (*at)++, GROUP);
		for (int i = 0; i < x->members[k]; i++)
			sum += share[i] = (int)rng_below(key, (*at)++, 8);
		share[0] += sum == 0;
		x->rows += x->members[k];
		for (int i = 0; i < x->shape.microbatches; i++)
			x->by[k][i] = dealt(share, x->members[k], x->by[k], i);
		int place[MB];
		sched_deal(share, x->members[k], x->shape.microbatches, place);
		assert_memory_equal(place, x->by[k], (size_t)x->shape.microbatches * sizeof(int));
	}
}

/* Messages that were sent and not received: +1 for the receiver at the SEND, -1 at its RECV. */
static int open_messages[2][FEW][CHUNKS][MB];

static void count_message(const struct mixture *x, int stage, int place, const struct instr *in)
{
	const bool act = in->kind == INSTR_SEND_ACT || in->kind == INSTR_RECV_ACT,
		   send = instr_sends(in->kind);
	int to = stage, chunk = in->chunk, peer, other;
	/* the other end is where the model goes on, and the member to which it was dealt */
	assert_true(sched_target(x->shape.stages, x->shape.chunks, stage, in->chunk, send == act,
				 &peer, &other));
	assert_int_equal(in->peer, peer);
	assert_int_equal(in->place, x->by[peer][in->microbatch]);
	assert_int_equal(place, x->by[stage][in->microbatch]);
	if (send) {
		to = peer;
		chunk = other;
	}
	open_messages[act][to][chunk][in->microbatch] += send ? 1 : -1;
}

/* Independent of the player: a member's list has its microbatches, each once a chunk, backwards
 * ascending; the last of a group's in parts; its sums once a part, behind it; in flight as
 * stated. */
static void check_member(const struct sched *s, const struct mixture *x, int stage, int place)
{
	const struct sched_shape *h = &x->shape;
	struct instr_list l = { 0 };
	struct err e = { 0 };
	int did[2][CHUNKS][MB] = { 0 }, last[CHUNKS], part[CHUNKS] = { 0 }, sent[CHUNKS] = { 0 },
	    summed[CHUNKS] = { 0 }, kept = 0, peak = 0, own = 0;
	const int parts = h->parts ? h->parts : 1;

	if (sched_build(s, h, stage, place, &l, &e) < 0)
		fail_msg("%s", e.msg);
	for (int c = 0; c < CHUNKS; c++)
		last[c] = -1;
	for (int i = 0; i < h->microbatches; i++)
		own += x->by[stage][i] == place;
	for (size_t i = 0; i < l.n; i++) {
		const struct instr *in = &l.item[i];
		if (in->kind == INSTR_FORWARD || in->kind == INSTR_BACKWARD) {
			const bool back = in->kind == INSTR_BACKWARD;
			assert_int_equal(x->by[stage][in->microbatch], place);
			if (in->parts) { /* of the last one, of several */
				assert_true(back && in->parts == parts && parts > 1);
				assert_int_equal(in->part, part[in->chunk]++);
				if (in->part + 1 < parts)
					continue;
			}
			did[back][in->chunk][in->microbatch]++;
			if (back) {
				assert_int_equal(did[0][in->chunk][in->microbatch], 1);
				assert_true(in->microbatch > last[in->chunk]);
				last[in->chunk] = in->microbatch;
			}
			kept += back ? -1 : 1;
			peak = kept > peak ? kept : peak;
		} else if (in->kind == INSTR_SEND_SUMS) {
			assert_int_equal(in->part, sent[in->chunk]++);
			assert_true(parts == 1 || part[in->chunk] == in->part + 1);
			for (int m = 0; m < h->microbatches && in->part + 1 == parts; m++)
				assert_int_equal(did[1][in->chunk][m], x->by[stage][m] == place);
		} else if (in->kind == INSTR_REDUCE) {
			assert_int_equal(in->part, summed[in->chunk]++);
			assert_int_equal(sent[in->chunk], own > 0 ? parts : 0);
		} else if (in->kind != INSTR_NORM && in->kind != INSTR_STEP) {
			count_message(x, stage, place, in);
		}
	}
	for (int c = 0; c < h->chunks; c++) {
		for (int m = 0; m < h->microbatches; m++) {
			assert_int_equal(did[0][c][m], x->by[stage][m] == place);
			assert_int_equal(did[1][c][m], x->by[stage][m] == place);
		}
		assert_int_equal(summed[c], x->members[stage] > 1 ? parts : 0);
	}
	assert_int_equal(peak, sched_in_flight(s, h, stage, place));
	instr_list_release(&l);
}

/* Times of everything at random; routes without wires, or all through one that limits nothing. */
struct times {
	double f[ROWS * CHUNKS], b[ROWS * CHUNKS], scatter[FEW * CHUNKS], reduce[FEW * CHUNKS],
		step[ROWS], send[ROWS], recv[ROWS];
	struct play_route route[2 * FEW * GROUP * GROUP];
};

static void random_times(struct times *t, struct play *p, struct rng_key key, uint64_t *at)
{
	double *const all[] = { t->f, t->b, t->scatter, t->reduce, t->step, t->send, t->recv };
	const size_t n[] = { ROWS * CHUNKS, ROWS * CHUNKS, FEW * CHUNKS, FEW * CHUNKS,
			     ROWS,          ROWS,          ROWS };
	for (size_t k = 0; k < sizeof n / sizeof *n; k++)
		for (size_t i = 0; i < n[k]; i++)
			all[k][i] = rng_uniform(key, (*at)++, 0.1f, k < 2 ? 3 : 0.5f);
	for (size_t i = 0; i < sizeof t->route / sizeof *t->route; i++)
		t->route[i] = (struct play_route){ rng_uniform(key, (*at)++, 0, 1),
						   rng_uniform(key, (*at)++, 1, 5), -1, -1 };
	p->forward_s = t->f;
	p->backward_s = t->b;
	p->scatter_s = t->scatter;
	p->reduce_s = t->reduce;
	p->step_s = t->step;
	p->send_s = t->send;
	p->recv_s = t->recv;
	p->act_bytes = 3;
	p->grad_bytes = 2;
	p->tied_s = 0.5;
	p->route = t->route;
}

static double check_played(const struct sched *s, const struct mixture *x, const struct play *p)
{
	struct play_result r = play(s, p);
	int row = 0;
	assert_int_equal(r.members, x->rows);
	for (int k = 0; k < x->shape.stages; k++)
		for (int i = 0; i < x->members[k]; i++, row++) {
			const struct play_worker *w = &r.worker[row];
			double busy = p->step_s[row];
			assert_int_equal(w->in_flight, sched_in_flight(s, &x->shape, k, i));
			for (int c = 0; c < x->shape.chunks; c++)
				for (int m = 0; m < x->shape.microbatches; m++)
					if (x->by[k][m] == i)
						busy += p->forward_s[row * x->shape.chunks + c] +
							p->backward_s[row * x->shape.chunks + c];
			close_to(w->busy_s, busy);
			close_to(w->busy_s + w->copy_s + w->wait_s + w->bubble_s, r.step_s);
		}
	return r.step_s;
}

static void test_groups(void **state)
{
	static struct times t;
	const struct play_wire wire = { 1e12 };
	struct rng_key key = rng_key(14);
	uint64_t at = 0;
	int grouped = 0;
	(void)state;
	for (int round = 0; round < 600; round++) {
		struct mixture x;
		const struct sched *s = sched_at((size_t)round % 5);
		random_mixture(&x, s, key, &at);
		const struct sched_shape *h = &x.shape;
		grouped += x.rows > h->stages;
		memset(open_messages, 0, sizeof open_messages);
		for (int k = 0; k < h->stages; k++)
			for (int i = 0; i < x.members[k]; i++)
				check_member(s, &x, k, i);
		static const int none[2][FEW][CHUNKS][MB];
		assert_memory_equal(open_messages, none, sizeof none);
		struct play p = { .stages = h->stages,
				  .chunks = h->chunks,
				  .microbatches = h->microbatches,
				  .members = x.members,
				  .share = x.share,
				  .parts = h->parts,
				  .tied = round & 1 };
		random_times(&t, &p, key, &at);
		double flow = check_played(s, &x, &p);
		for (size_t i = 0; i < sizeof t.route / sizeof *t.route; i++)
			t.route[i].wire_out = 0;
		p.wire = &wire;
		p.wires = 1;
		double events = check_played(s, &x, &p);
		if (!(fabs(flow - events) <= 1e-9 * flow))
			fail_msg("%s: %.12g by flow, %.12g by events", s->name, flow, events);
	}
	print_message("%d mixtures with groups\n", grouped);
}

/* Groups of one are a plain pipeline, whatever their shares. */
static void test_groups_of_one(void **state)
{
	static struct times t;
	struct rng_key key = rng_key(15);
	uint64_t at = 0;
	const int members[FEW] = { 1, 1, 1, 1, 1 }, share[FEW] = { 3, 1, 7, 2, 1 };
	(void)state;
	for (int round = 0; round < 50; round++) {
		const struct sched *s = sched_at((size_t)round % 5);
		struct play p =
			unit(1 + round % FEW, s->chunked ? 1 + round % CHUNKS : 1, 1 + round % MB);
		random_times(&t, &p, key, &at);
		double alone = play(s, &p).step_s;
		p.members = members;
		p.share = share;
		assert_true(play(s, &p).step_s == alone);
	}
}

/* Two equal members of one stage take half the time, and the sum: the member that has fewer
 * microbatches has handed over its part before, and stands still until the other has. */
static void test_group_times(void **state)
{
	const int two[2] = { 2, 1 };
	const double scatter[2] = { 0.5, 0.5 }, reduce[2] = { 0.25, 0.25 };
	struct play p = unit(1, 1, 8);
	struct play_result r;

	(void)state;
	for (size_t i = 0; sched_at(i); i++) {
		p.members = NULL;
		double one = play(sched_at(i), &p).step_s;
		p.members = two;
		close_to(play(sched_at(i), &p).step_s, one / 2);
	}
	p.scatter_s = scatter;
	p.reduce_s = reduce;
	p.microbatches = 3;
	r = play(sched_find("1f1b"), &p);
	close_to(r.step_s, 6 + 0.75);
	close_to(r.worker[0].wait_s, 0.75);
	close_to(r.worker[1].wait_s, 0.75);
	close_to(r.worker[1].bubble_s, 3);
	close_to(r.worker[0].bubble_s, 0);
	/* In four parts of 0.5 s of computing: the last is handed over at 6, all others are summed
	 * by then; of 0.75 s 0.1875 are left. */
	p.parts = 4;
	r = play(sched_find("1f1b"), &p);
	close_to(r.step_s, 6 + 0.75 / 4);
	close_to(r.worker[1].wait_s, 0.75); /* it has nothing else to do */
	close_to(r.worker[0].busy_s, 6);
	p.parts = 0;
	/* Two chunks of two members with a microbatch each: chunk 1 is handed over at 4, while
	 * chunk 0 runs backwards until 6; its sum has come together at 4.5, and ends at 6.25. Then
	 * the same for chunk 0. */
	p.chunks = 2;
	p.microbatches = 2;
	r = play(sched_find("interleaved"), &p);
	close_to(r.step_s, 6 + 0.25 + 0.5 + 0.25);
	close_to(r.worker[0].wait_s, 1);
}

/* A stage of two before a stage of one that is twice as fast: once the first microbatch is there,
 * the fast one computes without a pause, until only the last microbatch's backward is left. */
static void test_group_rate(void **state)
{
	const int members[2] = { 2, 1 };
	const double f[3] = { 2, 2, 1 }, b[3] = { 4, 4, 2 };
	const char *const names[] = { "1f1b", "gpipe", "eager" };
	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (int m = 4; m <= 24; m += 2) {
			struct play p = unit(2, 1, m);
			p.members = members;
			p.forward_s = f;
			p.backward_s = b;
			struct play_result r = play(sched_find(names[i]), &p);
			close_to(r.step_s, 2 + 3 * m + 4);
			close_to(r.worker[2].bubble_s, 2 + 4);
		}
}

/* Lists of groups that are broken are refused. */
static void test_broken_groups(void **state)
{
	enum { N = 5 };
	const int members[2] = { 2, 3 }, share[N] = { 1, 2, 1, 0, 1 };
	const struct sched_shape h = { 2, 2, 4, members, share, 0 };
	struct play p = unit(2, 2, 4);
	struct instr_list l[N] = { { 0 } };
	struct play_result r;
	struct err e = { 0 };
	int row = 0, refused = 0, changed = 0;

	(void)state;
	p.members = members;
	p.share = share;
	p.tied = true;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < members[k]; i++, row++) {
			assert_int_equal(
				sched_build(sched_find("interleaved"), &h, k, i, &l[row], &e), 0);
			assert_int_equal(sched_add_tied(&h, k, i, &l[row], &e), 0);
		}
	for (int k = 0; k < N; k++)
		for (size_t i = 0; i < l[k].n; i++) {
			struct instr keep = l[k].item[i];
			memmove(&l[k].item[i], &l[k].item[i + 1], (l[k].n - i - 1) * sizeof keep);
			l[k].n--;
			changed++;
			refused += sched_play_lists(pl, l, &p, false, &r, &e) == ERR_INTERNAL;
			memmove(&l[k].item[i + 1], &l[k].item[i], (l[k].n - i) * sizeof keep);
			l[k].n++;
			l[k].item[i] = keep;
			if (keep.place < 0)
				continue;
			l[k].item[i].place++; /* another member */
			changed++;
			refused += sched_play_lists(pl, l, &p, false, &r, &e) == ERR_INTERNAL;
			l[k].item[i] = keep;
		}
	assert_int_equal(refused, changed);
	if (sched_play_lists(pl, l, &p, false, &r, &e) < 0)
		fail_msg("%s", e.msg);
	for (int k = 0; k < N; k++)
		instr_list_release(&l[k]);
	print_message("%d broken lists refused\n", refused);
}

/* ---- the order of sums ---- */

/* What a worker does: each of its microbatches is one more sum, added to the one before when that
 * is the pair's first; two neighbours that make a node become one. */
static int naive_held(const int *place, int m, int me)
{
	int first[MB], last[MB], n = 0, most = 0;
	for (int i = 0; i < m; i++) {
		if (place && place[i] != me)
			continue;
		if (n && i % 2 && first[n - 1] == i - 1 && last[n - 1] == i) {
			last[n - 1] = i + 1;
		} else {
			first[n] = i;
			last[n++] = i + 1;
		}
		most = n > most ? n : most;
		for (int size;
		     n > 1 && (size = last[n - 1] - first[n - 1]) == last[n - 2] - first[n - 2] &&
		     last[n - 2] == first[n - 1] && first[n - 2] % (2 * size) == 0;
		     n--)
			last[n - 2] = last[n - 1];
	}
	return most;
}

/* node(k,j) = node(k-1,2j) + node(k-1,2j+1), or node(k-1,2j) alone: level by level. */
static float naive_tree(const float *v, int n)
{
	float level[MB];
	memcpy(level, v, (size_t)n * sizeof *level);
	for (; n > 1; n = (n + 1) / 2)
		for (int j = 0; 2 * j < n; j++)
			level[j] = 2 * j + 1 < n ? level[2 * j] + level[2 * j + 1] : level[2 * j];
	return level[0];
}

static void test_sums(void **state)
{
	struct rng_key key = rng_key(16);
	uint64_t at = 0;
	struct sum_terms t = { 0 };
	struct err e = { 0 };
	int several = 0;
	(void)state;
	for (int round = 0; round < 2000; round++) {
		int place[MB], m = 1 + (int)rng_below(key, at++, MB),
			       n = 1 + (int)rng_below(key, at++, GROUP), share[GROUP];
		float v[MB], term[MB], *part[MB], want = 0;
		const bool exact = round & 1;
		for (int k = 0; k < n; k++)
			share[k] = 1 + (int)rng_below(key, at++, 7);
		sched_deal(share, n, m, place);
		for (int i = 0; i < m; i++) {
			if (round & 2) /* anyhow */
				place[i] = (int)rng_below(key, at++, (uint64_t)n);
			v[i] = rng_uniform(key, at++, -1, 1);
		}
		assert_int_equal(sum_terms_find(&t, exact ? SUM_EXACT : SUM_FAST, place, m, &e), 0);
		assert_true(t.n >= 1 && t.n <= m);
		for (int k = 0; k < n; k++)
			assert_int_equal(sum_held(place, m, k), naive_held(place, m, k));
		assert_int_equal(sum_held(NULL, m, 0), naive_held(NULL, m, 0));
		several += t.n > 1;
		for (int i = 0; i < t.n; i++) {
			const struct sum_term *x = &t.term[i];
			part[i] = &term[i];
			term[i] = 0;
			for (int k = x->first; k < x->last; k++) {
				if (exact)
					assert_int_equal(place[k], x->place);
				else if (place[k] == x->place)
					term[i] += v[k];
			}
			if (exact)
				term[i] = naive_tree(v + x->first, x->last - x->first);
			if (!exact)
				want = i ? want + term[i] : term[i];
		}
		if (exact)
			want = naive_tree(v, m);
		sum_add(&t, part, 1);
		if (memcmp(&want, part[0], sizeof want))
			fail_msg("%s sum of %d microbatches in %d terms: %.9g, should be %.9g",
				 sum_order_name(t.order), m, t.n, (double)*part[0], (double)want);
	}
	/* many more microbatches: the numbers dealt follow the shares within one */
	for (int round = 0; round < 200; round++) {
		int share[GROUP], count[GROUP] = { 0 }, place[1000], sum = 0,
				  n = 1 + (int)rng_below(key, at++, GROUP);
		for (int k = 0; k < n; k++)
			sum += share[k] = 1 + (int)rng_below(key, at++, 1000);
		sched_deal(share, n, 1000, place);
		for (int i = 0; i < 1000; i++)
			count[place[i]]++;
		for (int k = 0; k < n; k++)
			assert_true(fabs(count[k] - 1000.0 * share[k] / sum) < n);
	}
	sum_terms_release(&t);
	print_message("%d sums of several terms\n", several);
}

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < 64; i++) {
		ones[i] = 1;
		twos[i] = 2;
	}
	pl = player_new();
	return pl ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	player_free(pl);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_small),     cmocka_unit_test(test_closed_form),
		cmocka_unit_test(test_link),          cmocka_unit_test(test_shared_wire),
		cmocka_unit_test(test_tied),          cmocka_unit_test(test_broken),
		cmocka_unit_test(test_arguments),     cmocka_unit_test(test_timeline),
		cmocka_unit_test(test_groups),        cmocka_unit_test(test_groups_of_one),
		cmocka_unit_test(test_group_times),   cmocka_unit_test(test_group_rate),
		cmocka_unit_test(test_broken_groups), cmocka_unit_test(test_sums),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
