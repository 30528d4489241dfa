/* SPDX-License-Identifier: Apache-2.0 */
/* test_sched.c - every schedule for every small combination: complete, free of deadlock, within its
 * stated number of activations, backwards in the order of the microbatches; the player against
 * times known in closed form. Groups are in test_sched_groups.c. */
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
#include "support/playing.h"

enum { MAX_STAGES = 9, MAX_CHUNKS = 4 };

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
	int next_f[MAX_CHUNKS] = { 0 }, next_b[MAX_CHUNKS] = { 0 }, kept = 0, peak = 0, ends = 0;

	assert_int_equal(
		sched_build(s,
			    &(struct sched_shape){ stages, chunks, m, NULL, NULL, 0, false, false },
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
		if (next_f[chunks - 1] - next_b[chunks - 1] > ends)
			ends = next_f[chunks - 1] - next_b[chunks - 1];
		if (stages == 1)
			assert_true(in->peer == -1);
	}
	for (int c = 0; c < chunks; c++) {
		assert_int_equal(next_f[c], m);
		assert_int_equal(next_b[c], m);
	}
	assert_int_equal(peak, sched_in_flight_alone(s, stages, chunks, m, stage));
	if (stage == stages - 1)
		assert_true((chunks > 1 && !s->gathers) ||
			    ends == sched_at_end(s, stages, chunks, m));
	instr_list_release(&l);
}

/* The same with a tied embedding whose gradient and value travel 0.5 s each. */
static void play_tied(const struct sched *s, struct play p, const struct play_result *without)
{
	double step = without->step_s;

	p.tied = true;
	p.tied_s = 0.5;
	if (p.stages == 1) {
		playing_close(playing_run(s, &p).step_s, step);
		return;
	}
	struct play_result r = playing_run(s, &p);
	/* The value comes last. The gradient is on its way while the front still computes. */
	if (!(r.step_s >= step + 0.5 - 1e-9 && r.step_s <= step + 1 + 1e-9))
		fail_msg("%s, %d stages, %d microbatches: %.12g s, tied %.12g s", s->name, p.stages,
			 p.microbatches, step, r.step_s);
	for (int k = 0; k < p.stages; k++)
		playing_close(r.worker[k].busy_s + r.worker[k].copy_s + r.worker[k].wait_s +
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
					struct play p = playing_unit(stages, chunks, m);
					struct play_result r = playing_run(s, &p);
					for (int k = 0; k < stages; k++) {
						check_list(s, stages, chunks, m, k);
						assert_int_equal(r.worker[k].in_flight,
								 sched_in_flight_alone(
									 s, stages, chunks, m, k));
						playing_close(r.worker[k].busy_s, 3.0 * m * chunks);
						playing_close(r.worker[k].busy_s +
								      r.worker[k].copy_s +
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
			struct play p = playing_unit(stages, 1, m);
			playing_close(playing_run(sched_find("gpipe"), &p).step_s,
				      3.0 * (m + stages - 1));
			playing_close(playing_run(sched_find("1f1b"), &p).step_s,
				      3.0 * (m + stages - 1));
			playing_close(playing_run(sched_find("eager"), &p).step_s,
				      3.0 * (m + stages - 1));
			playing_close(playing_run(sched_find("sequential"), &p).step_s,
				      3.0 * m * stages);
			if (m % stages)
				continue;
			for (int v = 2; v <= 3; v++) {
				p = playing_unit(stages, v, m);
				playing_close(playing_run(sched_find("interleaved"), &p).step_s,
					      3.0 * (m * v + stages - 1));
			}
		}
	print_message("largest difference %.3g\n", playing_worst());
}

/* Two stages, a link: microbatch by microbatch the time is the sum of all parts. */
static void test_link(void **state)
{
	struct play_route route[4] = {
		{ 0.25, 10, -1, -1 }, { 0.5, 20, -1, -1 }, { 0, 1, -1, -1 }, { 0, 1, -1, -1 }
	};
	double reduce[2] = { 0.1, 0.2 }, step[2] = { 0.3, 0.1 }, send[2] = { 0.01, 0.02 },
	       recv[2] = { 0.04, 0.08 };
	struct play p = playing_unit(2, 1, 3);
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
	r = playing_run(sched_find("sequential"), &p);
	playing_close(r.step_s, 3 * once + 0.1 + 1 + 0.3);
	/* stage 0 waits for the link while the gradient travels, the rest of its idle time is
	 * bubble */
	playing_close(r.worker[0].busy_s, 9 + 0.4);
	playing_close(r.worker[0].copy_s, 3 * 0.05);
	playing_close(r.worker[0].wait_s, 3 * 2.5);
	/* A link slower than both stages sets the pace: m transmissions of 4 s in one direction. */
	p = playing_unit(2, 1, 50);
	route[0] = (struct play_route){ 0, 1, -1, -1 };
	route[1] = (struct play_route){ 0, 1, -1, -1 };
	p.route = route;
	p.act_bytes = 4;
	p.grad_bytes = 0;
	playing_close(playing_run(sched_find("gpipe"), &p).step_s, 1 + 50 * 4 + 1 + 50 * 2 + 2);
	/* Messages of 0.4 s each way: eager hides all but the first activation and the last
	 * gradient, 1f1b stands still for one message a microbatch. */
	p = playing_unit(2, 1, 20);
	route[0] = route[1] = (struct play_route){ 0, 10, -1, -1 };
	p.route = route;
	p.act_bytes = p.grad_bytes = 4;
	playing_close(playing_run(sched_find("eager"), &p).step_s, 1 + 0.4 + 20 * 3 + 0.4 + 2);
	assert_true(playing_run(sched_find("1f1b"), &p).step_s >
		    playing_run(sched_find("eager"), &p).step_s + 18 * 0.4 - 1e-6);
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
		struct play p = playing_unit(stages, chunks, 1 + (int)rng_below(key, at++, 12));
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
		flow = playing_run(s, &p).step_s;
		p.route = wired;
		p.wire = wire;
		p.wires = 2;
		events = playing_run(s, &p).step_s;
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
		struct play p = playing_unit(3, 1, 2);
		for (int i = 0; i < 6; i++)
			r3[i] = (struct play_route){ 0, i % 2 ? 1e300 : INFINITY, i % 2 ? -1 : 0,
						     -1 };
		p.backward_s = none;
		p.route = r3;
		p.wire = &one;
		p.wires = 1;
		p.act_bytes = 10;
		playing_close(playing_run(sched_find("gpipe"), &p).step_s, 42);
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
		struct play p = playing_unit(2, 1, 1);
		p.tied = true;
		p.tied_s = 5;
		p.norm_s = reduce;
		p.step_s = step;
		p.barrier_s = 1;
		p.route = events ? route : NULL;
		p.wire = &wire;
		p.wires = 1;
		struct play_result r = playing_run(sched_find("1f1b"), &p);
		playing_close(r.step_s, 4 + 5 + 0.25 + 1 + 2 + 5);
		playing_close(r.worker[0].wait_s, 3); /* of the gradient's 5 s it computes 2 */
		playing_close(r.worker[1].wait_s, 5);
		playing_close(r.worker[0].end_s, 4 + 5 + 0.25 + 1 + 2);
	}
}

/* Lists that are broken are refused, never played. */
static void broken(bool tied)
{
	struct instr_list l[2] = { 0 };
	struct err e = { 0 };
	struct play p = playing_unit(2, 1, 3);
	struct play_result r;
	int refused = 0, changed = 0;

	p.tied = tied;
	for (int s = 0; s < 2; s++) {
		assert_int_equal(
			sched_build(sched_find("1f1b"),
				    &(struct sched_shape){ 2, 1, 3, NULL, NULL, 0, false, false },
				    s, 0, &l[s], &e),
			0);
		if (tied)
			assert_int_equal(sched_add_tied(&(struct sched_shape){ 2, 1, 3, NULL, NULL,
									       0, false, false },
							s, 0, &l[s], &e),
					 0);
	}
	for (int s = 0; s < 2; s++)
		for (size_t i = 0; i < l[s].n; i++) {
			/* leave one out */
			struct instr keep = l[s].item[i];
			memmove(&l[s].item[i], &l[s].item[i + 1], (l[s].n - i - 1) * sizeof keep);
			l[s].n--;
			changed++;
			refused += sched_play_lists(playing, l, &p, false, &r, &e) == ERR_INTERNAL;
			memmove(&l[s].item[i + 1], &l[s].item[i], (l[s].n - i) * sizeof keep);
			l[s].n++;
			/* another microbatch, another chunk */
			l[s].item[i] = keep;
			l[s].item[i].microbatch += 1;
			if (keep.kind != INSTR_NORM && keep.kind != INSTR_STEP) {
				changed += 2;
				refused += sched_play_lists(playing, l, &p, false, &r, &e) ==
					   ERR_INTERNAL;
				l[s].item[i] = keep;
				l[s].item[i].chunk = 1;
				refused += sched_play_lists(playing, l, &p, false, &r, &e) ==
					   ERR_INTERNAL;
			}
			l[s].item[i] = keep;
		}
	assert_int_equal(refused, changed);
	assert_int_equal(sched_play_lists(playing, l, &p, false, &r, &e), 0);
	p.tied = !tied; /* messages too many, or too few */
	assert_int_equal(sched_play_lists(playing, l, &p, false, &r, &e), ERR_INTERNAL);
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
		assert_int_equal(sched_play_lists(playing, dead, &p, false, &r, &e), ERR_INTERNAL);
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
				     &(struct sched_shape){ 0, 1, 1, NULL, NULL, 0, false, false },
				     0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 2, 1, NULL, NULL, 0, false, false },
				     0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("interleaved"),
				     &(struct sched_shape){ 2, 256, SCHED_MAX_MICROBATCHES, NULL,
							    NULL, 0, false, false },
				     0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 1, 0, NULL, NULL, 0, false, false },
				     0, 0, &l, &e),
			 ERR_USAGE);
	assert_int_equal(sched_build(sched_find("1f1b"),
				     &(struct sched_shape){ 2, 1, 1, NULL, NULL, 0, false, false },
				     2, 0, &l, &e),
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
	struct play p = playing_unit(4, 2, 7);
	struct play_result r;
	struct err e = { 0 };
	double busy[4] = { 0 };
	size_t sends = 0;

	(void)state;
	for (int i = 0; i < 8; i++)
		route[i] = (struct play_route){ 0.1, 10, -1, -1 };
	p.route = route;
	p.act_bytes = p.grad_bytes = 3;
	assert_int_equal(sched_play(playing, sched_find("interleaved"), &p, true, &r, &e), 0);
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
		playing_close(busy[k], r.worker[k].busy_s);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_small), cmocka_unit_test(test_closed_form),
		cmocka_unit_test(test_link),      cmocka_unit_test(test_shared_wire),
		cmocka_unit_test(test_tied),      cmocka_unit_test(test_broken),
		cmocka_unit_test(test_arguments), cmocka_unit_test(test_timeline),
	};
	return cmocka_run_group_tests(tests, playing_begin, playing_end);
}
