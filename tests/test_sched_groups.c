/* SPDX-License-Identifier: Apache-2.0 */
/* test_sched_groups.c - every schedule for random groups of members: complete, free of deadlock,
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
#include "sched/chunks.h"
#include "sched/sum.h"
#include "support/playing.h"

enum { GROUP = 4, FEW = 5, ROWS = GROUP * FEW, MB = 25, CHUNKS = 3, PARTS = 3, SCHEDULES = 6 };

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
	x->shape.gather = s->gathers && rng_below(key, (*at)++, 4);
	x->shape.alone = x->shape.gather && rng_below(key, (*at)++, 2);
	for (int k = 0; k < x->shape.stages; k++) {
		int *share = x->share + x->rows, sum = 0;
		x->members[k] = 1 + (int)rng_below(key, (*at)++, GROUP);
		for (int i = 0; i < x->members[k]; i++)
			sum += share[i] = (int)rng_below(key, (*at)++, 8);
		share[0] += sum == 0;
		x->rows += x->members[k];
		for (int i = 0; i < x->shape.microbatches; i++)
			x->by[k][i] = dealt(share, x->members[k], x->by[k], i);
		int place[MB], count[GROUP], counted[GROUP] = { 0 };
		sched_deal(share, x->members[k], x->shape.microbatches, place);
		assert_memory_equal(place, x->by[k], (size_t)x->shape.microbatches * sizeof(int));
		for (int i = 0; i < x->shape.microbatches; i++)
			counted[x->by[k][i]]++;
		sched_dealt(share, x->members[k], x->shape.microbatches, count);
		assert_memory_equal(count, counted, (size_t)x->members[k] * sizeof(int));
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

/* What is gathered on a member, and for which chunks it has memory for whole gradients. */
struct gathered {
	int here, asked[CHUNKS][2], gathered[CHUNKS][2];
	bool lent[CHUNKS], alone;
};

/* One chunk at a time is here, and one more is asked for; gradients are there for two chunks, of
 * which one is even. */
static void check_gathered(struct gathered *g, const struct sched_shape *h, const struct instr *in)
{
	const int c = in->chunk, part = in->part;
	if (in->kind == INSTR_SEND_VALUES) {
		assert_int_equal(g->asked[c][part]++, 0);
		assert_true(g->here < 0 || (g->here - c) % 2);
	} else if (in->kind == INSTR_GATHER) {
		assert_int_equal(g->asked[c][part], 1);
		assert_int_equal(g->gathered[c][part]++, 0);
		assert_int_equal(g->here, -1);
		g->here = c;
		for (int k = c % 2; k < h->chunks; k += 2)
			assert_false(g->lent[k]);
		g->lent[c] = part == 1 || c == h->chunks - 1;
	} else {
		assert_int_equal(g->here, c);
		g->here = -1;
		g->lent[c] = g->lent[c] && !g->alone;
	}
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
	const bool gathers = h->gather && (h->alone || x->members[stage] > 1);
	struct gathered g = { .here = -1, .alone = x->members[stage] == 1 };

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
			if (gathers)
				assert_int_equal(g.here, in->chunk);
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
			g.lent[in->chunk] = in->part + 1 < parts;
		} else if (in->kind == INSTR_SEND_VALUES || in->kind == INSTR_GATHER ||
			   in->kind == INSTR_RELEASE) {
			assert_true(gathers);
			check_gathered(&g, h, in);
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
		assert_int_equal(g.gathered[c][0], gathers);
		assert_int_equal(g.gathered[c][1], gathers && c + 1 < h->chunks);
	}
	assert_int_equal(g.here, -1);
	assert_int_equal(peak, sched_in_flight(s, h, stage, place));
	instr_list_release(&l);
}

/* Times of everything at random; routes without wires, or all through one that limits nothing. */
struct times {
	double f[ROWS * CHUNKS], b[ROWS * CHUNKS], scatter[FEW * CHUNKS], reduce[FEW * CHUNKS],
		gather[FEW * CHUNKS], step[ROWS], send[ROWS], recv[ROWS];
	struct play_route route[2 * FEW * GROUP * GROUP];
};

static void random_times(struct times *t, struct play *p, struct rng_key key, uint64_t *at)
{
	double *const all[] = { t->f,      t->b,    t->scatter, t->reduce,
				t->gather, t->step, t->send,    t->recv };
	const size_t n[] = { ROWS * CHUNKS, ROWS * CHUNKS, FEW * CHUNKS, FEW * CHUNKS,
			     FEW * CHUNKS,  ROWS,          ROWS,         ROWS };
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
	p->gather_s = t->gather;
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
	struct play_result r = playing_run(s, p);
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
			playing_close(w->busy_s, busy);
			playing_close(w->busy_s + w->copy_s + w->wait_s + w->bubble_s, r.step_s);
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
		const struct sched *s = sched_at((size_t)round % SCHEDULES);
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
				  .gather = h->gather,
				  .alone = h->alone,
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
		const struct sched *s = sched_at((size_t)round % SCHEDULES);
		struct play p = playing_unit(1 + round % FEW, s->chunked ? 1 + round % CHUNKS : 1,
					     1 + round % MB);
		random_times(&t, &p, key, &at);
		double alone = playing_run(s, &p).step_s;
		p.members = members;
		p.share = share;
		assert_true(playing_run(s, &p).step_s == alone);
	}
}

/* Two equal members of one stage take half the time, and the sum: the member that has fewer
 * microbatches has handed over its part before, and stands still until the other has. */
static void test_group_times(void **state)
{
	const int two[2] = { 2, 1 };
	const double scatter[2] = { 0.5, 0.5 }, reduce[2] = { 0.25, 0.25 };
	struct play p = playing_unit(1, 1, 8);
	struct play_result r;

	(void)state;
	for (size_t i = 0; sched_at(i); i++) {
		p.members = NULL;
		double one = playing_run(sched_at(i), &p).step_s;
		p.members = two;
		playing_close(playing_run(sched_at(i), &p).step_s, one / 2);
	}
	p.scatter_s = scatter;
	p.reduce_s = reduce;
	p.microbatches = 3;
	r = playing_run(sched_find("1f1b"), &p);
	playing_close(r.step_s, 6 + 0.75);
	playing_close(r.worker[0].wait_s, 0.75);
	playing_close(r.worker[1].wait_s, 0.75);
	playing_close(r.worker[1].bubble_s, 3);
	playing_close(r.worker[0].bubble_s, 0);
	/* In four parts of 0.5 s of computing: the last is handed over at 6, all others are summed
	 * by then; of 0.75 s 0.1875 are left. */
	p.parts = 4;
	r = playing_run(sched_find("1f1b"), &p);
	playing_close(r.step_s, 6 + 0.75 / 4);
	playing_close(r.worker[1].wait_s, 0.75); /* it has nothing else to do */
	playing_close(r.worker[0].busy_s, 6);
	p.parts = 0;
	/* Two chunks of two members with a microbatch each: chunk 1 is handed over at 4, while
	 * chunk 0 runs backwards until 6; its sum has come together at 4.5, and ends at 6.25. Then
	 * the same for chunk 0. */
	p.chunks = 2;
	p.microbatches = 2;
	r = playing_run(sched_find("interleaved"), &p);
	playing_close(r.step_s, 6 + 0.25 + 0.5 + 0.25);
	playing_close(r.worker[0].wait_s, 1);
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
			struct play p = playing_unit(2, 1, m);
			p.members = members;
			p.forward_s = f;
			p.backward_s = b;
			struct play_result r = playing_run(sched_find(names[i]), &p);
			playing_close(r.step_s, 2 + 3 * m + 4);
			playing_close(r.worker[2].bubble_s, 2 + 4);
		}
}

/* Lists of groups that are broken are refused. */
static void break_lists(const char *schedule, bool gather)
{
	enum { N = 5 };
	const int members[2] = { 2, 3 }, share[N] = { 1, 2, 1, 0, 1 };
	const struct sched_shape h = { 2, 2, 4, members, share, 0, gather, false };
	struct play p = playing_unit(2, 2, 4);
	struct instr_list l[N] = { { 0 } };
	struct play_result r;
	struct err e = { 0 };
	int row = 0, refused = 0, changed = 0;

	p.gather = gather;
	p.members = members;
	p.share = share;
	p.tied = true;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < members[k]; i++, row++) {
			assert_int_equal(sched_build(sched_find(schedule), &h, k, i, &l[row], &e),
					 0);
			assert_int_equal(sched_add_tied(&h, k, i, &l[row], &e), 0);
		}
	for (int k = 0; k < N; k++)
		for (size_t i = 0; i < l[k].n; i++) {
			struct instr keep = l[k].item[i];
			memmove(&l[k].item[i], &l[k].item[i + 1], (l[k].n - i - 1) * sizeof keep);
			l[k].n--;
			changed++;
			refused += sched_play_lists(playing, l, &p, false, &r, &e) == ERR_INTERNAL;
			memmove(&l[k].item[i + 1], &l[k].item[i], (l[k].n - i) * sizeof keep);
			l[k].n++;
			l[k].item[i] = keep;
			if (keep.place < 0)
				continue;
			l[k].item[i].place++; /* another member */
			changed++;
			refused += sched_play_lists(playing, l, &p, false, &r, &e) == ERR_INTERNAL;
			l[k].item[i] = keep;
		}
	assert_int_equal(refused, changed);
	if (sched_play_lists(playing, l, &p, false, &r, &e) < 0)
		fail_msg("%s", e.msg);
	for (int k = 0; k < N; k++)
		instr_list_release(&l[k]);
	print_message("%s: %d broken lists refused\n", schedule, refused);
}

static void test_broken_groups(void **state)
{
	(void)state;
	break_lists("interleaved", false);
	break_lists("breadth_first", true);
}

/* Values can be gathered only by a schedule that works on one chunk at a time; in an evaluation
 * each chunk is gathered once. */
static void test_gathers(void **state)
{
	enum { C = 3, M = 2 };
	const int members[1] = { 2 };
	const struct sched_shape h = { 1, C, M, members, NULL, 1, true, false };
	struct instr_list l = { 0 };
	struct err e = { 0 };
	struct gathered g = { .here = -1 };
	int forwards = 0;
	(void)state;
	assert_int_equal(sched_build(sched_find("interleaved"), &h, 0, 0, &l, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "interleaved"));
	assert_int_equal(sched_build_forward(&h, 0, 1, &l, &e), 0);
	for (size_t i = 0; i < l.n; i++) {
		if (l.item[i].kind != INSTR_FORWARD) {
			check_gathered(&g, &h, &l.item[i]);
			continue;
		}
		assert_int_equal(g.here, l.item[i].chunk);
		forwards++;
	}
	assert_int_equal(forwards, C);
	for (int c = 0; c < C; c++)
		assert_int_equal(g.gathered[c][0], 1);
	assert_int_equal(g.here, -1);
	instr_list_release(&l);
}

/* Chunks that adjoin are one range. */
static void test_layers_text(void **state)
{
	const int64_t first[] = { 0, 3, 4, 9, 11 };
	char out[32], few[6];
	(void)state;
	chunk_layers_text(1, 4, first, 0, out, sizeof out);
	assert_string_equal(out, "0 to 10");
	chunk_layers_text(2, 2, first, 0, out, sizeof out);
	assert_string_equal(out, "0 to 2, 4 to 8");
	chunk_layers_text(2, 2, first, 1, out, sizeof out);
	assert_string_equal(out, "3, 9 to 10");
	chunk_layers_text(2, 2, first, 1, few, sizeof few);
	assert_string_equal(few, "3, 9 ");
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

static int add_numbers(void *ctx, int to, int from, struct err *e)
{
	float **part = ctx;
	(void)e;
	*part[to] += *part[from];
	return 0;
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
		assert_int_equal(sum_with(&t, add_numbers, part, &e), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups),        cmocka_unit_test(test_groups_of_one),
		cmocka_unit_test(test_group_times),   cmocka_unit_test(test_group_rate),
		cmocka_unit_test(test_broken_groups), cmocka_unit_test(test_sums),
		cmocka_unit_test(test_gathers),       cmocka_unit_test(test_layers_text),
	};
	return cmocka_run_group_tests(tests, playing_begin, playing_end);
}
