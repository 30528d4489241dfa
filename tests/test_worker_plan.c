/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_plan.c - PLANs with invalid groups: a worker that gets one says in one line what is
 * wrong with it, and ends. And the first inputs of the fuzzers of PLAN and PROFILE are still read:
 * where a field was added and tests/fuzz/make_seeds.py does not write it, no input would get behind
 * that field. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "fuzz/small.h"
#include "net/frame.h"
#include "net/net.h"
#include "proto/measure_wire.h"
#include "support/scratch.h"
#include "worker/worker.h"

enum { JOB = 7, MEMBERS = 4, PATIENCE = 60 };

static struct err err;
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

/* A stage of three, and a second one of one. */
static void plan_make(struct plan_message *p)
{
	*p = (struct plan_message){ .opt = { .act = DT_F32, .train_all = true },
				    .optimizer = "adamw",
				    .schedule = "1f1b",
				    .reducer = "direct",
				    .reduce_order = SUM_EXACT };
	small_model(&p->cfg);
	for (int i = 0; i < MEMBERS; i++) {
		struct member m = { 0 };
		snprintf(m.id, sizeof m.id, "w%d", i);
		OK(crew_add(&p->crew, &m, &err));
	}
	crew_shape(&p->crew, 2, 1, false);
	for (int i = 0; i < MEMBERS; i++)
		OK(crew_move(&p->crew, i, i == MEMBERS - 1, 1 + i, &err));
	p->first[1] = 1;
	p->first[2] = SMALL_LAYERS;
}

static void places_begin_at_1(struct plan_message *p)
{
	for (int i = 0; i < 3; i++)
		p->crew.member[i].place++;
}
static void a_place_is_missing(struct plan_message *p) { p->crew.member[2].place = 7; }
static void a_place_comes_twice(struct plan_message *p) { p->crew.member[2].place = 1; }
static void a_place_beyond_the_most(struct plan_message *p)
{
	p->crew.member[2].place = SCHED_MAX_GROUP;
}
static void shares_of_nothing(struct plan_message *p)
{
	for (int i = 0; i < 3; i++)
		p->crew.member[i].share = 0;
}
static void a_negative_share(struct plan_message *p) { p->crew.member[1].share = -1; }
static void a_huge_share(struct plan_message *p) { p->crew.member[1].share = SCHED_MAX_SHARE + 1; }
static void a_stage_without_members(struct plan_message *p)
{
	p->crew.member[3].stage = p->crew.member[3].place = -1;
	p->crew.member[3].share = 0;
}
static void a_share_of_no_stage(struct plan_message *p)
{
	p->crew.member[2].stage = p->crew.member[2].place = -1;
}
static void a_stage_that_is_none(struct plan_message *p) { p->crew.member[2].stage = 2; }
static void for_somebody_else(struct plan_message *p)
{
	p->crew.member[2].stage = p->crew.member[2].place = -1;
	p->crew.member[2].share = 0;
	p->self = 2;
}
static void an_order_that_is_none(struct plan_message *p) { p->reduce_order = 3; }
static void a_way_that_is_none(struct plan_message *p)
{
	snprintf(p->reducer, sizeof p->reducer, "star");
}
static void exact_around_a_ring(struct plan_message *p)
{
	snprintf(p->reducer, sizeof p->reducer, "ring");
}
static void exact_in_a_tree(struct plan_message *p)
{
	snprintf(p->reducer, sizeof p->reducer, "tree");
}

static const struct {
	void (*spoil)(struct plan_message *p);
	const char *says;
} bad[] = {
	{ places_begin_at_1, "PLAN: members whose places in their groups are not 0, 1, ..." },
	{ a_place_is_missing, "PLAN: members whose places in their groups are not 0, 1, ..." },
	{ a_place_comes_twice, "PLAN: members whose places in their groups are not 0, 1, ..." },
	{ a_place_beyond_the_most, "PLAN: member 2 has place 256 of stage 0" },
	{ shares_of_nothing, "the shares of stage 0 are all 0" },
	{ a_negative_share, "PLAN: member 1 has a share of 4294967295 of stage 0" },
	{ a_huge_share, "PLAN: member 1 has a share of 1000001 of stage 0" },
	{ a_stage_without_members, "PLAN: stage 1 has no member" },
	{ a_share_of_no_stage, "PLAN: member 2 has a share of 3 of stage -1" },
	{ a_stage_that_is_none, "PLAN: member 2 has place 2 of stage 2" },
	{ for_somebody_else, "PLAN: for member 2, which holds no stage" },
	{ an_order_that_is_none, "PLAN: gradients in order 3" },
	{ a_way_that_is_none, "PLAN: there is no way 'star' of adding up gradients" },
	{ exact_around_a_ring, "PLAN: 'ring' cannot add gradients in the order 'exact'" },
	{ exact_in_a_tree, "PLAN: 'tree' cannot add gradients in the order 'exact'" },
};

static void *work(void *env)
{
	static struct err e;
	worker_run(env, &e);
	return NULL;
}

/* What a worker answers to the plan: the reason of its ABORT. */
static void answer_to(const struct plan_message *p, struct err *why)
{
	struct buf out = BUF_INIT;
	struct net *here, *there;
	struct link *l, *m;
	struct net_msg msg;
	struct frame f;
	pthread_t thread;
	OK(plan_message_write(p, small_config, &out, &err));
	OK(net_open("loop", &(struct net_options){ 0 }, &here, &err));
	OK(net_open("loop", &(struct net_options){ 0 }, &there, &err));
	OK(net_listen(there, "plan", NULL, &err));
	OK(net_connect(here, "plan", NULL, net_in(PATIENCE), &l, &err));
	assert_int_equal(net_accept(there, net_in(PATIENCE), &m, &err), 1);
	struct worker_env env = {
		.net = there, .coordinator = m, .job = JOB, .device = "cpu", .timeout = PATIENCE
	};
	OK(link_send_frame(l,
			   &(struct frame){ .kind = FRAME_PLAN,
					    .job = JOB,
					    .from = FRAME_COORDINATOR,
					    .size = out.n,
					    .payload = out.p },
			   net_in(PATIENCE), &err));
	assert_int_equal(pthread_create(&thread, NULL, work, &env), 0);
	assert_int_equal(link_recv_frame(l, net_in(PATIENCE), &msg, &f, &err), 1);
	assert_int_equal(f.kind, FRAME_ABORT);
	abort_read(f.payload, f.size, why);
	net_msg_release(&msg);
	pthread_join(thread, NULL);
	link_close(l);
	link_close(m);
	net_close(here, 0);
	net_close(there, 0);
	buf_release(&out);
}

static void groups_that_are_none(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct plan_message p;
		struct err why = { 0 };
		plan_make(&p);
		bad[i].spoil(&p);
		answer_to(&p, &why);
		printf("  %s\n", why.msg);
		if (!strstr(why.msg, bad[i].says) || strchr(why.msg, '\n'))
			fail_msg("'%s' does not say '%s'", why.msg, bad[i].says);
		plan_message_release(&p);
	}
}

/* Without a mistake the plan is read. */
static void a_group_that_is_one(void **state)
{
	struct plan_message p, q;
	struct buf out = BUF_INIT;
	(void)state;
	plan_make(&p);
	OK(plan_message_write(&p, small_config, &out, &err));
	OK(plan_message_read(out.p, out.n, &q, &err));
	assert_int_equal(crew_group_size(&q.crew, 0), 3);
	assert_int_equal(q.crew.member[2].share, 3);
	plan_message_release(&p);
	plan_message_release(&q);
	buf_release(&out);
}

/* A seed without its first byte, which says what it is. */
static const unsigned char *seed(const char *name, struct buf *b)
{
	buf_reset(b);
	OK(buf_read_file(b, repository("tests/fuzz/seeds/%s", name), 1 << 20, &err));
	assert_true(b->n > 1);
	return (const unsigned char *)b->p + 1;
}

static void seeds_are_read(void **state)
{
	static const char *const plans[] = { "plan",         "plan-group",
					     "plan-tied",    "plan-shared-group",
					     "plan-experts", "plan-prefer" };
	static struct plan_message p;
	static struct measure_request q;
	static struct measure_result r;
	struct buf b = BUF_INIT;
	char name[64];
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
		snprintf(name, sizeof name, "protocol/gen-%s", plans[i]);
		const unsigned char *payload = seed(name, &b);
		if (plan_message_read(payload, b.n - 1, &p, &err) < 0)
			fail_msg("%s: %s: is tests/fuzz/make_seeds.py as it should be, and run?",
				 name, err.msg);
		plan_message_release(&p);
	}
	const unsigned char *payload = seed("measure/gen-request-read", &b);
	OK(measure_request_read(payload, b.n - 1, &q, &err));
	payload = seed("measure/gen-result-read", &b);
	OK(measure_result_read(payload, b.n - 1, &r, &err));
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(groups_that_are_none),
					    cmocka_unit_test(a_group_that_is_one),
					    cmocka_unit_test(seeds_are_read) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
