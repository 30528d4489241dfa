/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_due.c - a neighbour that sends tensors and rows which the round does not need, in
 * another size or ahead of everybody, to take memory or to have another worker blamed: what is not
 * due is refused in a line that names who sent it, and of what is not known yet one message is
 * taken. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "engine/exchange_parts.h"
#include "net/frame.h"
#include "proto/protocol.h"
#include "support/ok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { JOB = 7, STEP = 5, TOKENS = 4, WIDE = 8, PATIENCE = 60, WINDOW = 64 << 10 };

static struct err err;

/* Worker 'a' of the second stage; 'b' and 'c' are the first one, and run microbatches in turn. Or
 * `beside`: all are one group that deals experts. */
struct side {
	struct net *net, *outside;
	struct dev *dev;
	struct link *coordinator, *orders_from, *there[3];
	struct peer peer[3];
	struct beat beat;
	struct orders orders;
	struct plan_message plan;
	struct worker_times times;
	struct exchange x;
	struct instr_list list;
};

static struct instr item[4];

static void link_pair(struct side *s, struct link **here, struct link **there)
{
	OK(net_connect(s->outside, "due", NULL, net_in(PATIENCE), there, &err));
	assert_int_equal(net_accept(s->net, net_in(PATIENCE), here, &err), 1);
}

static void side_make(struct side *s, bool beside)
{
	*s = (struct side){ 0 };
	OK(net_open("loop", &(struct net_options){ .window = WINDOW }, &s->net, &err));
	OK(net_open("loop", &(struct net_options){ .window = WINDOW }, &s->outside, &err));
	OK(net_listen(s->net, "due", NULL, &err));
	link_pair(s, &s->coordinator, &s->orders_from);
	OK(dev_open("cpu", &s->dev, &err));
	s->orders = (struct orders){ .link = s->coordinator,
				     .job = JOB,
				     .step = STEP,
				     .member = FRAME_MEMBER(0),
				     .timeout = PATIENCE,
				     .beat = &s->beat };
	OK(orders_init(&s->orders, &err));
	for (int i = 0; i < 3; i++) {
		struct member m = { 0 };
		snprintf(m.name, sizeof m.name, "worker '%c'", 'a' + i);
		OK(crew_add(&s->plan.crew, &m, &err));
	}
	crew_shape(&s->plan.crew, beside ? 1 : 2, 1, false);
	for (int i = 0; i < 3; i++)
		OK(crew_move(&s->plan.crew, i, !beside && !i, 1, &err));
	s->plan.cfg.hidden = WIDE;
	s->plan.cfg.layers = 2;
	s->plan.cfg.experts = 4;
	s->plan.cfg.top_k = 2;
	static const uint8_t place[8];
	if (beside)
		s->plan.deal = (struct expert_deal){ 2, 4, place };
	s->plan.wire = DT_F32;
	s->x = (struct exchange){ .orders = &s->orders,
				  .net = s->net,
				  .dev = s->dev,
				  .plan = &s->plan,
				  .times = &s->times };
	for (int i = 0; i < 3; i++) {
		s->peer[i].member = i;
		if (i)
			link_pair(s, &s->peer[i].link, &s->there[i]);
	}
	if (beside)
		s->x.beside = (struct peers){ s->peer, 3 };
	else
		s->x.before = (struct peers){ s->peer + 1, 2 };
	for (int m = 0; m < 4; m++)
		item[m] = (struct instr){ .kind = beside ? INSTR_RECV_ROWS : INSTR_RECV_ACT,
					  .microbatch = m,
					  .part = beside,
					  .place = beside + m % 2 };
	s->list = (struct instr_list){ .item = item, .n = ARRAY_LEN(item) };
	OK(exchange_round(&s->x, &s->list, NULL, &err));
}

static void side_release(struct side *s)
{
	exchange_release(&s->x);
	orders_release(&s->orders);
	s->plan.deal = (struct expert_deal){ 0 };
	plan_message_release(&s->plan);
	dev_close(s->dev);
	net_close(s->outside, 0);
	net_close(s->net, 0);
}

/* BATCH of a microbatch has come. */
static void batch(struct side *s, uint32_t m)
{
	unsigned char out[512];
	static const int32_t start[2] = { 0, TOKENS };
	const struct microbatch mb = { .n = TOKENS, .nseq = 1, .start = start, .nrows = 1 };
	struct frame f = { .kind = FRAME_BATCH, .step = s->orders.step, .microbatch = m };
	size_t n = 0;
	OK(batch_write(&mb, ROUND_EVAL, 1, 4, 1, NULL, false, false, out, sizeof out, &n, &err));
	f.payload = out;
	f.size = n;
	OK(orders_take_batch(&s->orders, &f, &err));
}

/* What 'b' (1) or 'c' (2) says: the activation of microbatch m, where `odd` says nothing else. */
static int say(struct side *s, int who, uint32_t m, const struct frame *odd)
{
	static const float v[4096];
	struct frame f = *odd;
	f.kind = f.kind ? f.kind : FRAME_ACTIVATION;
	f.job = JOB;
	f.step += STEP;
	f.from = FRAME_MEMBER(who);
	f.to = FRAME_MEMBER(0);
	f.microbatch = m;
	f.ndim = f.size ? 0 : 2;
	f.dim[0] = f.size ? 0 : f.dim[0] + TOKENS;
	f.dim[1] = f.size ? 0 : f.dim[1] + WIDE;
	f.payload = v;
	return link_send_frame(s->there[who], &f, net_in(0.1), &err);
}

static void must_say(const char *what)
{
	if (!strstr(err.msg, what) || strchr(err.msg, '\n'))
		fail_msg("'%s' does not say '%s'", err.msg, what);
	printf("  %s\n", err.msg);
}

static uint64_t taken(struct side *s, int who)
{
	struct link_stats st;
	link_stats(s->peer[who].link, &st);
	return st.messages_in;
}

static void what_is_not_due(void **state)
{
	(void)state;
	static const struct {
		uint32_t m;
		struct frame f;
		const char *says;
	} bad[] = {
		/* of another member, of no microbatch, of an earlier step */
		{ 1, { 0 }, "worker 'b' sent ACTIVATION of microbatch 1" },
		{ 4, { 0 }, "sent ACTIVATION of microbatch 4, chunk 0, in step 5; it is not due" },
		{ UINT32_MAX, { 0 }, "it is not due" },
		{ 0, { .chunk = 1 }, "chunk 1, in step 5; it is not due" },
		{ 0, { .step = (uint64_t)-1 }, "in step 4; it is not due" },
		/* of another size */
		{ 0, { .dim = { 1 } }, "sent ACTIVATION (5, 8) float32; (4, 8) float32 was" },
		{ 0, { .dim = { 500 } }, "sent ACTIVATION (504, 8) float32" },
		{ 0, { .dtype = DT_BF16 }, "sent ACTIVATION (4, 8) bfloat16" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct side s;
		side_make(&s, false);
		for (uint32_t m = 0; m < 4; m++)
			batch(&s, m);
		OK(say(&s, 1, bad[i].m, &bad[i].f));
		assert_int_equal(exchange_take_in(&s.x, &s.peer[1], &err), ERR_PROTOCOL);
		must_say(bad[i].says);
		side_release(&s);
	}
	struct side s;
	side_make(&s, false);
	batch(&s, 0);
	OK(say(&s, 1, 0, &(struct frame){ 0 }));
	OK(say(&s, 1, 0, &(struct frame){ 0 }));
	assert_int_equal(exchange_take_in(&s.x, &s.peer[1], &err), ERR_PROTOCOL);
	must_say("worker 'b' sent ACTIVATION of microbatch 0, chunk 0, in step 5; it is not due "
		 "twice");
	side_release(&s);
}

static void rows_of_another_size(void **state)
{
	(void)state;
	/* 4 experts, and 2 of 4 tokens' rows with their numbers */
	const uint64_t most = 4 * 4 + 2 * TOKENS * (WIDE * 4 + 4);
	struct side s;
	side_make(&s, true);
	for (uint32_t m = 0; m < 4; m++)
		batch(&s, m);
	OK(say(&s, 1, 0, &(struct frame){ .kind = FRAME_ROWS, .chunk = 1, .size = most }));
	OK(say(&s, 2, 1, &(struct frame){ .kind = FRAME_ROWS, .chunk = 1, .size = most + 1 }));
	OK(exchange_take_in(&s.x, &s.peer[1], &err));
	assert_int_equal(exchange_take_in(&s.x, &s.peer[2], &err), ERR_PROTOCOL);
	must_say("worker 'c' sent 305 bytes as ROWS of microbatch 1; at most 304 are due");
	side_release(&s);
	side_make(&s, true);
	OK(say(&s, 1, 0, &(struct frame){ .kind = FRAME_ROWS, .chunk = 0, .size = 16 }));
	assert_int_equal(exchange_take_in(&s.x, &s.peer[1], &err), ERR_PROTOCOL);
	must_say("worker 'b' sent ROWS of microbatch 0, chunk 0, in step 5; it is not due");
	side_release(&s);
}

/* Of a round that has not begun, or a microbatch whose BATCH is on its way, one message leaves the
 * link; the others stay in its window. Nothing of it is in the way of another neighbour. */
static void ahead_of_everybody(void **state)
{
	(void)state;
	struct side s;
	struct net_msg msg;
	struct frame f;
	int sent = 0;
	side_make(&s, false);
	batch(&s, 0);
	batch(&s, 1);
	OK(say(&s, 1, 0, &(struct frame){ 0 }));
	while (say(&s, 1, 0, &(struct frame){ .step = 1, .dim = { 200 } }) == 0) {
		sent++;
		for (int i = 0; i < 3; i++)
			OK(exchange_take_in(&s.x, &s.peer[1], &err));
		assert_true(sent < 1000);
	}
	assert_true(sent > 2);
	assert_int_equal(taken(&s, 1), 2);
	OK(say(&s, 2, 1, &(struct frame){ 0 }));
	for (uint32_t m = 0; m < 2; m++) {
		const struct exchange_want w = { FRAME_ACTIVATION, m, 0, &s.peer[1 + m] };
		s.x.at = m;
		OK(exchange_wait_for(&s.x, &w, &msg, &f, &err));
		net_msg_release(&msg);
	}
	/* the next step, in which its size is known */
	orders_end_round(&s.orders, 2);
	s.orders.step++;
	OK(exchange_round(&s.x, &s.list, NULL, &err));
	OK(exchange_take_in(&s.x, &s.peer[1], &err));
	batch(&s, 0);
	assert_int_equal(exchange_take_in(&s.x, &s.peer[1], &err), ERR_PROTOCOL);
	must_say("worker 'b' sent ACTIVATION (204, 8)");
	side_release(&s);
	/* one that waits and is right is used */
	side_make(&s, false);
	OK(say(&s, 1, 2, &(struct frame){ 0 }));
	OK(say(&s, 1, 0, &(struct frame){ 0 }));
	OK(exchange_take_in(&s.x, &s.peer[1], &err));
	assert_int_equal(taken(&s, 1), 1);
	batch(&s, 2);
	batch(&s, 0);
	const struct exchange_want w = { FRAME_ACTIVATION, 0, 0, &s.peer[1] };
	OK(exchange_wait_for(&s.x, &w, &msg, &f, &err));
	net_msg_release(&msg);
	assert_int_equal(exchange_round_end(&s.x, &err), ERR_PROTOCOL);
	must_say("member 2 sent ACTIVATION 2 of number 0 in step 5, which nobody needed");
	side_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_due),
		cmocka_unit_test(rows_of_another_size),
		cmocka_unit_test(ahead_of_everybody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
