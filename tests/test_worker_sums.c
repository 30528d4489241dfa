/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_sums.c - parts of sums of gradients (SUM) that a member of the group, or another
 * neighbour, sends wrong: each ends in one line that says who sent what. */
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "net/frame.h"
#include "engine/exchange_sum.h"
#include "engine/group_sum.h"
#include "support/ok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { JOB = 7, STEP = 5, NUMBERS = 6, COUNT = 4, PATIENCE = 60 };

static struct err err;

/* Worker 'a', place 0 of a group of two, without the rest of it; and what 'b' would have. */
struct side {
	struct net *net, *outside;
	struct dev *dev;
	struct link *coordinator, *orders_from, *here, *there;
	struct peer self[2];
	struct beat beat;
	struct orders orders;
	struct plan_message plan;
	struct worker_times times;
	struct exchange x;
	struct instr_list list;
	uint32_t numbers[2];
	size_t most[2];
};

static void link_pair(struct side *s, struct link **here, struct link **there)
{
	OK(net_connect(s->outside, "sums", NULL, net_in(PATIENCE), there, &err));
	assert_int_equal(net_accept(s->net, net_in(PATIENCE), here, &err), 1);
}

/* `trains`: the round has sums, of chunk 0 and no others. `beside`: 'b' is in the group, else the
 * stage before. */
static void side_make(struct side *s, bool trains, bool beside)
{
	*s = (struct side){ 0 };
	OK(net_open("loop", &(struct net_options){ 0 }, &s->net, &err));
	OK(net_open("loop", &(struct net_options){ 0 }, &s->outside, &err));
	OK(net_listen(s->net, "sums", NULL, &err));
	link_pair(s, &s->coordinator, &s->orders_from);
	link_pair(s, &s->here, &s->there);
	OK(dev_open("cpu", &s->dev, &err));
	s->orders = (struct orders){ .link = s->coordinator,
				     .job = JOB,
				     .step = STEP,
				     .member = FRAME_MEMBER(0),
				     .timeout = PATIENCE,
				     .beat = &s->beat };
	OK(orders_init(&s->orders, &err));
	for (int i = 0; i < 2; i++) {
		struct member m = { 0 };
		snprintf(m.name, sizeof m.name, "worker '%c'", 'a' + i);
		OK(crew_add(&s->plan.crew, &m, &err));
	}
	crew_shape(&s->plan.crew, beside ? 1 : 2, 1, false);
	OK(crew_move(&s->plan.crew, 0, beside ? 0 : 1, 1, &err));
	OK(crew_move(&s->plan.crew, 1, 0, 1, &err));
	s->x = (struct exchange){ .orders = &s->orders,
				  .net = s->net,
				  .dev = s->dev,
				  .plan = &s->plan,
				  .times = &s->times };
	s->self[beside] = (struct peer){ .member = 1, .link = s->here };
	if (beside)
		s->x.beside = (struct peers){ s->self, 2 };
	else
		s->x.before = (struct peers){ s->self, 1 };
	s->numbers[0] = NUMBERS;
	s->most[0] = 2 * COUNT * sizeof(float);
	const struct sums_due due = {
		.numbers = s->numbers, .most = s->most, .arrays = 2, .messages = NUMBERS
	};
	OK(exchange_round(&s->x, &s->list, trains ? &due : NULL, &err));
}

static void side_release(struct side *s)
{
	exchange_release(&s->x);
	orders_release(&s->orders);
	plan_message_release(&s->plan);
	dev_close(s->dev);
	net_close(s->outside, 0);
	net_close(s->net, 0);
}

/* What 'b' says: part 1 of chunk 0 unless it says otherwise. */
static void say(struct side *s, const struct frame *odd)
{
	static const float v[16] = { 1, 2, 3, 4 };
	struct frame f = *odd;
	f.kind = f.kind ? f.kind : FRAME_SUM;
	f.job = JOB;
	f.step += STEP;
	f.from += FRAME_MEMBER(1);
	f.to = FRAME_MEMBER(0);
	f.microbatch += 1;
	f.ndim = f.ndim ? f.ndim : 1;
	f.dim[0] += COUNT;
	f.payload = v;
	OK(link_send_frame(s->there, &f, net_in(PATIENCE), &err));
}

static void must_say(const char *what)
{
	if (!strstr(err.msg, what) || strchr(err.msg, '\n'))
		fail_msg("'%s' does not say '%s'", err.msg, what);
	printf("  %s\n", err.msg);
}

static void parts_that_are_wrong(void **state)
{
	(void)state;
	static const struct {
		struct frame f;
		const char *says;
	} bad[] = {
		{ { .microbatch = NUMBERS - 1 },
		  "worker 'b' sent part 6 of sum 0 of gradients in step 5; in step 5 that sum "
		  "has 6" },
		{ { .microbatch = UINT32_MAX - 1 }, "sent part 4294967295 of sum 0" },
		{ { .chunk = 1 }, "of sum 1 of gradients in step 5; in step 5 that sum has 0" },
		{ { .chunk = 2 }, "of sum 2 of gradients in step 5; in step 5 that sum has 0" },
		{ { .step = 1 }, "of sum 0 of gradients in step 6; in step 5" },
		{ { .step = (uint64_t)-1 }, "of sum 0 of gradients in step 4; in step 5" },
		{ { .dim = { 1 } }, "sent 5 numbers (float32) as part 1" },
		{ { .dim = { (uint64_t)-COUNT } }, "sent 0 numbers (float32) as part 1" },
		{ { .dim = { COUNT } }, "sent 8 numbers (float32) as part 1" },
		{ { .dim = { COUNT + 1 } },
		  "sent 36 bytes as part 1 of sum 0 of gradients; at most 32 are due" },
		{ { .dtype = DT_BF16 }, "sent 4 numbers (bfloat16) as part 1" },
		{ { .ndim = 2, .dim = { -2, 2 } }, "4 numbers (float32) were expected" },
		{ { .from = 1 }, "as member 3, to member 1" },
		{ { .kind = FRAME_ACTIVATION, .ndim = 2, .dim = { 0, 1 } },
		  "worker 'b' sent ACTIVATION of job 0000000000000007; from it only SUM" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct side s;
		float v[COUNT];
		side_make(&s, true, true);
		say(&s, &bad[i].f);
		assert_int_equal(exchange_receive_sum(&s.x, 1, 0, 1, v, COUNT, &err), ERR_PROTOCOL);
		must_say(bad[i].says);
		side_release(&s);
	}
}

static void a_part_that_comes_twice(void **state)
{
	(void)state;
	struct side s;
	float v[COUNT];
	side_make(&s, true, true);
	say(&s, &(struct frame){ .microbatch = 1 });
	say(&s, &(struct frame){ .microbatch = 1 });
	assert_int_equal(exchange_receive_sum(&s.x, 1, 0, 1, v, COUNT, &err), ERR_PROTOCOL);
	must_say("worker 'b' sent part 2 of sum 0 of gradients twice");
	side_release(&s);

	/* the second one comes when the first has been used */
	side_make(&s, true, true);
	say(&s, &(struct frame){ 0 });
	OK(exchange_receive_sum(&s.x, 1, 0, 1, v, COUNT, &err));
	assert_true(v[0] == 1 && v[COUNT - 1] == 4);
	say(&s, &(struct frame){ 0 });
	say(&s, &(struct frame){ .microbatch = 1 });
	OK(exchange_receive_sum(&s.x, 1, 0, 2, v, COUNT, &err));
	assert_int_equal(exchange_round_end(&s.x, &err), ERR_PROTOCOL);
	must_say("member 2 sent SUM 1 of number 0 in step 5, which nobody needed");
	side_release(&s);
}

static void where_there_is_no_sum(void **state)
{
	(void)state;
	struct side s;
	float v[COUNT];
	/* a round that does not train */
	side_make(&s, false, true);
	say(&s, &(struct frame){ 0 });
	assert_int_equal(exchange_receive_sum(&s.x, 1, 0, 1, v, COUNT, &err), ERR_PROTOCOL);
	must_say("in step 5 that sum has 0");
	side_release(&s);
	/* a neighbour that is in another group */
	side_make(&s, true, false);
	say(&s, &(struct frame){ 0 });
	static struct stage stage;
	struct slot none = { .stage = &stage };
	const struct instr i = { .kind = INSTR_RECV_ACT };
	assert_int_equal(exchange_receive(&s.x, &i, &none, DEV_NONE, &err), ERR_PROTOCOL);
	must_say("worker 'b' sent SUM of job 0000000000000007; from it only ACTIVATION");
	side_release(&s);
}

/* Chunks and parts whose sums have more numbers than a frame can name. */
static void too_many_sums(void **state)
{
	static struct plan_message plan = { .crew = { .parts = 64 } };
	struct exchange x = { .plan = &plan };
	const struct worker_model m = { .chunks = 600 };
	struct group_sum g;
	(void)state;
	assert_int_equal(group_sum_begin(&g, &x, &m, &err), ERR_USAGE);
	assert_string_equal(err.msg, "600 chunks with gradients in 64 parts each are too many: "
				     "write a smaller 'reduce_parts'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_that_are_wrong),
		cmocka_unit_test(a_part_that_comes_twice),
		cmocka_unit_test(where_there_is_no_sum),
		cmocka_unit_test(too_many_sums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
