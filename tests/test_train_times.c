/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time went where: STEPPED on the wire, clocks of other machines, what links carried, how a
 * worker divides its time. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "crew/clocks.h"
#include "survey/flows.h"
#include "engine/worker_times.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct stepped_message message(void)
{
	struct stepped_message m = { .busy = 700,
				     .copy = 20,
				     .wait = 300,
				     .mem_peak = 1u << 20,
				     .host_peak = 3u << 20,
				     .heard = 5000,
				     .said = 6000 };
	for (int k = 0; k < FLOWS; k++) {
		m.flow[k] = (struct flow){ .bytes = 100u * (unsigned)k,
					   .messages = (uint64_t)k,
					   .times = (uint32_t)k };
		for (int i = 0; i < k; i++)
			m.flow[k].at[i] = 1000 * k + i;
	}
	return m;
}

static const struct span spans[2] = { { 10, 20, 30, 7, 1, 2 }, { 40, 40, 90, 8, 3, 0 } };

static void stepped_there_and_back(void **state)
{
	(void)state;
	struct stepped_message m = message(), got;
	struct span v[2];
	struct err e = { 0 };
	unsigned char out[2048];
	size_t n, count;
	memset(&got, 0x55, sizeof got);
	for (size_t k = 0; k < FLOWS; k++) /* what is not sent does not count */
		memset(got.flow[k].at, 0, sizeof got.flow[k].at);
	assert_int_equal(stepped_write(&m, spans, 2, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, stepped_size(&m, 2));
	assert_int_equal(stepped_read(out, n, &got, v, 2, &count, &e), 0);
	assert_int_equal(count, 2);
	assert_memory_equal(v, spans, sizeof v);
	assert_int_equal(got.busy, m.busy);
	assert_int_equal(got.copy, m.copy);
	assert_int_equal(got.wait, m.wait);
	assert_int_equal(got.mem_peak, m.mem_peak);
	assert_int_equal(got.host_peak, m.host_peak);
	assert_int_equal(got.heard, m.heard);
	assert_int_equal(got.said, m.said);
	for (size_t k = 0; k < FLOWS; k++) {
		assert_int_equal(got.flow[k].bytes, m.flow[k].bytes);
		assert_int_equal(got.flow[k].messages, m.flow[k].messages);
		assert_int_equal(got.flow[k].times, m.flow[k].times);
		assert_memory_equal(got.flow[k].at, m.flow[k].at, sizeof m.flow[k].at);
	}
	/* no room: left out */
	assert_int_equal(stepped_read(out, n, &got, NULL, 0, &count, &e), 0);
	assert_int_equal(count, 0);
	assert_int_equal(stepped_write(&m, spans, 2, out, n - 1, &n, &e), ERR_INTERNAL);
}

/* Every length, and random bytes everywhere: refused or read, but nothing that later sums could
 * overflow with. */
static void stepped_from_an_enemy(void **state)
{
	(void)state;
	struct stepped_message m = message(), got;
	struct span v[2];
	struct err e = { 0 };
	unsigned char good[2048], out[2048];
	size_t n, count;
	assert_int_equal(stepped_write(&m, spans, 2, good, sizeof good, &n, &e), 0);
	for (size_t cut = 0; cut < n; cut++)
		assert_int_equal(stepped_read(good, cut, &got, v, 2, &count, &e), ERR_PROTOCOL);
	assert_int_equal(stepped_read(good, n + 1, &got, v, 2, &count, &e), ERR_PROTOCOL);
	const struct {
		size_t at;
		unsigned char value;
		const char *why;
	} bad[] = {
		{ 7, 0x7f, "busy beyond all time" },
		{ 15, 0x80, "a negative copy" },
		{ 63, 0x70, "heard" },
		{ 9 * 8 + 16 + 3, 0xff, "times without end" },
		{ 9 * 8 + 16, 1, "more times than messages" },
		{ n - 14 - 1, 0x40, "a span that ends beyond all time" },
		{ n - 14 - 8, 30, "a span that ends before it was ready" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		memcpy(out, good, n);
		out[bad[i].at] = bad[i].value;
		if (stepped_read(out, n, &got, v, 2, &count, &e) != ERR_PROTOCOL)
			fail_msg("%s was taken", bad[i].why);
	}
	struct rng_key key = rng_key(3);
	uint64_t at = 0;
	for (int turn = 0; turn < 20000; turn++) {
		memcpy(out, good, n);
		for (int k = 0; k < 3; k++) {
			uint32_t place = rng_below(key, at++, (uint32_t)n);
			out[place] = (unsigned char)rng_below(key, at++, 256);
		}
		if (stepped_read(out, n, &got, v, 2, &count, &e) < 0)
			continue;
		assert_true(count <= 2 && got.busy >= 0 && got.wait >= 0 && got.copy >= 0);
		for (size_t i = 0; i < count; i++)
			assert_true(v[i].begin >= 0 && v[i].begin <= v[i].ready &&
				    v[i].ready <= v[i].end && v[i].end <= INT64_MAX / 4);
		for (int k = 0; k < FLOWS; k++)
			assert_true(got.flow[k].times <= FLOW_TIMES &&
				    got.flow[k].times <= got.flow[k].messages);
	}
	struct clock_message c = { 5, 6 };
	assert_int_equal(clock_write(&c, out, sizeof out, &n, &e), 0);
	c = (struct clock_message){ 0 };
	assert_int_equal(clock_read(out, n, &c, &e), 0);
	assert_true(c.heard == 5 && c.said == 6);
	assert_int_equal(clock_read(out, n - 1, &c, &e), ERR_PROTOCOL);
	out[7] = 0xff;
	assert_int_equal(clock_read(out, n, &c, &e), ERR_PROTOCOL);
}

/* A clock that is `off` ahead; ways of random length: the offset is wrong by no more than it says,
 * and gets no worse. */
static void clocks(void **state)
{
	(void)state;
	struct rng_key key = rng_key(5);
	uint64_t at = 0;
	struct clock_pair c = { .known = false };
	int64_t off = 123456789012, worst = INT64_MAX;
	for (int i = 0; i < 200; i++) {
		int64_t sent = 1000000000ll * i, there = rng_below(key, at++, 900000),
			back = rng_below(key, at++, 900000), stay = rng_below(key, at++, 50000000);
		clock_pair_add(&c, sent, sent + there + off, sent + there + stay + off,
			       sent + there + stay + back);
		int64_t now = sent + there + stay + back, error = clock_pair_error(&c, now);
		if (llabs(c.offset + off) > error + 1)
			fail_msg("off by %lld, said %lld", (long long)llabs(c.offset + off),
				 (long long)error);
		assert_true(error <= worst || error <= 900000);
		worst = error;
	}
	assert_true(worst < 300000);
	/* what is old gives way, even to a worse answer */
	int64_t late = 3600 * 1000000000ll, before = c.offset;
	clock_pair_add(&c, late, late + 500000 + off + 40000000, late + 500000 + off + 40000000,
		       late + 1000000);
	assert_true(c.offset != before && llabs(c.offset + off + 40000000) <= 500000);
	clock_pair_same(&c); /* a claim of one common clock does not replace a measured offset */
	assert_true(!c.same && c.offset);
	c = (struct clock_pair){ .known = false };
	clock_pair_add(&c, 1000, 1700, 1700, 2000);
	assert_true(c.known && c.offset == -200);
	clock_pair_same(&c);
	clock_pair_add(&c, 3000, 3600, 3600, 4000);
	assert_true(c.same && c.offset == 0 && clock_pair_error(&c, late) == 0);
}

static struct flow flow(uint64_t bytes, uint32_t n, const int64_t *at)
{
	struct flow f = { .bytes = bytes, .messages = n, .times = n };
	memcpy(f.at, at, n * sizeof *at);
	return f;
}

static void links(void **state)
{
	(void)state;
	uint64_t bytes;
	/* three messages, the second queued behind the first; the clocks are 1000 apart; the link
	 * rested from 50 to 80 */
	struct flow out = flow(300, 3, (int64_t[]){ 0, 10, 80 }),
		    in = flow(300, 3, (int64_t[]){ 1030, 1050, 1090 });
	assert_int_equal(flow_carried(&out, 0, &in, -1000, &bytes), 30 + 20 + 10);
	assert_int_equal(bytes, 300);
	out.messages = 6; /* of which only three have times */
	out.bytes = 600;
	flow_carried(&out, 0, &in, -1000, &bytes);
	assert_int_equal(bytes, 300);
	assert_int_equal(flow_carried(&out, 0, &(struct flow){ 0 }, 0, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(flow_carried(&out, 5000, &in, 0, &bytes),
			 0); /* arrived before it was sent: wrong clocks count for nothing */

	struct stepped_message *m = calloc(2, sizeof *m);
	struct flow_rate rate[2] = { { 0 } };
	struct train_stage stage[2];
	m[0].busy = 500000000;
	m[0].wait = 250000000;
	m[0].flow[FLOW_TO_NEXT] = flow(2000, 1, (int64_t[]){ 0 });
	m[1].flow[FLOW_FROM_PREV] = flow(2000, 1, (int64_t[]){ 1000000 });
	m[1].flow[FLOW_TO_PREV] = flow(500, 1, (int64_t[]){ 0 });
	flows_of_round(m, (int64_t[]){ 0, 1000000 }, (int[]){ 1, -1 }, 2, false, rate, stage);
	assert_true(stage[0].busy == 0.5 && stage[0].wait == 0.25);
	assert_true(fabs(stage[0].rate - 1e6) < 1 && isnan(stage[1].rate));
	assert_int_equal(stage[1].received, 2000);
	assert_int_equal(stage[1].sent, 500);
	assert_true(stage[0].next_bytes == 2000 && fabs(stage[0].next_flight - 2e-3) < 1e-9);
	assert_true(stage[0].prev_bytes == 0 && stage[1].next_bytes == 0);
	m[0].flow[FLOW_FROM_NEXT] = flow(500, 1, (int64_t[]){ 4000000 });
	/* twice as fast: the mean lies between */
	flows_of_round(m, (int64_t[]){ 0, 0 }, (int[]){ 1, -1 }, 2, false, rate, stage);
	assert_true(stage[0].next_bytes == 2000 && fabs(stage[0].next_flight - 1e-3) < 1e-9);
	assert_true(stage[0].prev_bytes == 500 && fabs(stage[0].prev_flight - 4e-3) < 1e-9);
	assert_true(stage[0].rate > 1.2e6 && stage[0].rate < 1.9e6);
	assert_true(fabs(stage[0].best_rate - 2e6) < 1);
	flows_of_round(m, (int64_t[]){ 0, 0 }, (int[]){ 1, -1 }, 2, true, rate, stage);
	assert_true(isnan(stage[0].rate));
	free(m);
}

static void a_workers_time(void **state)
{
	(void)state;
	struct worker_times t = { .span = calloc(TIMES_SPANS, sizeof *t.span) };
	const enum instr_kind kind[] = { INSTR_RECV_ACT, INSTR_FORWARD, INSTR_SEND_ACT };
	times_round(&t);
	int64_t begin = clock_now();
	for (int i = 0; i < 3; i++) {
		times_begin(&t);
		if (i == 0) {
			while (clock_now() < begin + 2000000)
				;
			times_waited(&t, begin + 1000000);
			times_waited(&t, begin); /* an earlier one changes nothing */
		}
		times_end(&t, &(struct instr){ .kind = kind[i], .microbatch = 3, .chunk = 1 },
			  true);
	}
	int64_t all = t.span[2].end - t.span[0].begin;
	assert_int_equal(t.nspan, 3);
	assert_int_equal(t.span[0].ready, begin + 1000000);
	assert_true(t.span[1].ready == t.span[1].begin && t.span[0].microbatch == 3 &&
		    t.span[0].chunk == 1);
	assert_true(t.m.wait > 0 && t.m.wait <= 1000000);
	assert_true(t.m.copy >= 1000000);
	assert_true(t.m.wait + t.m.copy + t.m.busy <= all);
	times_begin(&t);
	times_waited(&t, INT64_MAX); /* nothing is ready after it ended */
	times_end(&t, &(struct instr){ .kind = INSTR_STEP }, true);
	assert_true(t.span[3].ready == t.span[3].end);
	for (int i = 0; i < FLOW_TIMES + 5; i++)
		times_flow(&t, FLOW_TO_NEXT, 10, i);
	assert_int_equal(t.m.flow[FLOW_TO_NEXT].times, FLOW_TIMES);
	assert_int_equal(t.m.flow[FLOW_TO_NEXT].messages, FLOW_TIMES + 5);
	assert_int_equal(t.m.flow[FLOW_TO_NEXT].bytes, 10 * (FLOW_TIMES + 5));
	times_round(&t);
	assert_true(t.m.busy == 0 && t.m.flow[FLOW_TO_NEXT].times == 0 && t.nspan == 0 && t.span);
	free(t.span);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stepped_there_and_back),
		cmocka_unit_test(stepped_from_an_enemy),
		cmocka_unit_test(clocks),
		cmocka_unit_test(links),
		cmocka_unit_test(a_workers_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
