/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_tied.c - a trained embedding that is also the head, between the two workers that have
 * it: its gradient and its value in parts over small windows, parts that are wrong, and a job over
 * several processes with the bits of one. */
#include "base/err.h"
#include "base/mem.h"
#include "support/site.h"
#include "engine/exchange.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V = 300007, C = 32, JOB = 7, STEP = 5, ROWS = TIED_PART / C / 4 };

static struct err err;
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

/* One of the two workers, without the rest of it. */
struct side {
	struct net *net;
	struct dev *dev;
	struct link *coordinator, *there; /* its end, and what a coordinator would have */
	struct link *other;               /* to the other side */
	struct peer peer;
	struct beat beat;
	struct orders orders;
	struct plan_message plan;
	struct worker_times times;
	struct exchange x;
	struct instr_list list;
	struct param param; /* (V,C) */
	struct dmem scratch;
};

static float number(uint32_t salt, int64_t i)
{
	return (float)((uint32_t)i * 2654435761u % 1000003u + salt) * 0.37f;
}

static void fill(struct dev_buf *b, uint32_t salt)
{
	float *v = mem_array((size_t)V * C, sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < (int64_t)V * C; i++)
		v[i] = number(salt, i);
	OK(dev_upload(DEV_REF(b, 0), v, (size_t)V * C * 4, &err));
	mem_free(v);
}

/* Number i of `b` is what `want` says. */
static void holds(struct dev_buf *b, float (*want)(int64_t i))
{
	float *v = mem_array((size_t)V * C, sizeof *v);
	assert_non_null(v);
	OK(dev_download(v, DEV_REF(b, 0), (size_t)V * C * 4, &err));
	for (int64_t i = 0; i < (int64_t)V * C; i++)
		if (v[i] != want(i))
			fail_msg("number %lld is %.9g, not %.9g", (long long)i, (double)v[i],
				 (double)want(i));
	mem_free(v);
}

static void side_make(struct side *s, struct net *coordinator, int stage, uint64_t window)
{
	const int64_t dim[2] = { V, C };
	const struct net_options o = { .window = window };
	char name[16];
	*s = (struct side){ 0 };
	snprintf(name, sizeof name, "stage %d", stage);
	OK(net_open("loop", &o, &s->net, &err));
	OK(net_listen(s->net, name, NULL, &err));
	OK(net_connect(coordinator, name, NULL, net_in(PATIENCE), &s->there, &err));
	assert_int_equal(net_accept(s->net, net_in(PATIENCE), &s->coordinator, &err), 1);
	OK(dev_open("cpu", &s->dev, &err));
	OK(param_init_plain(&s->param, s->dev, "model.embed_tokens.weight", 2, dim, DT_F32, true,
			    &err));
	dmem_init(&s->scratch, s->dev, 0);
	s->orders = (struct orders){ .link = s->coordinator,
				     .job = JOB,
				     .step = STEP,
				     .member = FRAME_MEMBER(stage),
				     .timeout = PATIENCE,
				     .beat = &s->beat };
	OK(orders_init(&s->orders, &err));
	s->plan.cfg.vocab = V;
	s->plan.cfg.hidden = C;
	s->plan.self = stage;
	for (int i = 0; i < 2; i++) {
		struct member m = { 0 };
		snprintf(m.name, sizeof m.name, "worker '%c'", 'a' + i);
		OK(crew_add(&s->plan.crew, &m, &err));
	}
	crew_shape(&s->plan.crew, 2, 1, true);
	for (int i = 0; i < 2; i++)
		OK(crew_move(&s->plan.crew, i, i, 1, &err));
	s->x = (struct exchange){ .orders = &s->orders,
				  .net = s->net,
				  .dev = s->dev,
				  .plan = &s->plan,
				  .times = &s->times };
	const struct sched_shape shape = { .stages = 2, .chunks = 1, .microbatches = 1 };
	OK(sched_build(sched_find("1f1b"), &shape, stage, 0, &s->list, &err));
	OK(sched_add_tied(&shape, stage, 0, &s->list, &err));
}

/* The front dials nobody; the end dials the front. */
static void connect_sides(struct side *front, struct side *end)
{
	OK(net_connect(end->net, "stage 0", NULL, net_in(PATIENCE), &end->other, &err));
	assert_int_equal(net_accept(front->net, net_in(PATIENCE), &front->other, &err), 1);
	front->peer = (struct peer){ .member = 1, .link = front->other };
	end->peer = (struct peer){ .member = 0, .link = end->other };
	front->x.before = (struct peers){ &front->peer, 1 };
	end->x.behind = (struct peers){ &end->peer, 1 };
	OK(exchange_round(&front->x, &front->list, NULL, &err));
	OK(exchange_round(&end->x, &end->list, NULL, &err));
}

static void side_release(struct side *s)
{
	exchange_release(&s->x);
	orders_release(&s->orders);
	instr_list_release(&s->list);
	plan_message_release(&s->plan);
	dmem_release(&s->scratch);
	param_release(&s->param);
	dev_close(s->dev);
	link_close(s->other);
	link_close(s->coordinator);
	link_close(s->there);
	net_close(s->net, 0);
}

static const struct instr send_grad = { INSTR_SEND_TIED_GRAD, -1, -1, 0, 0 },
			  recv_grad = { INSTR_RECV_TIED_GRAD, -1, -1, 1, 0 },
			  send_value = { INSTR_SEND_TIED_VALUE, -1, -1, 1, 0 },
			  recv_value = { INSTR_RECV_TIED_VALUE, -1, -1, 0, 0 };

static void *be_the_end(void *ctx)
{
	struct side *s = ctx;
	static struct err e;
	if (exchange_send_tied(&s->x, &send_grad, DEV_REF(s->param.grad, 0), &e) < 0 ||
	    exchange_receive_tied(&s->x, &recv_value, &s->param, &s->scratch, &e) < 0)
		return &e;
	return NULL;
}

static float both_sums(int64_t i) { return number(11, i) + number(22, i); }
static float new_value(int64_t i) { return number(33, i); }

/* Two parts, each 32 times as large as what a link carries at once. */
static void there_and_back_over_small_windows(void **state)
{
	(void)state;
	struct side front, end;
	struct net *coordinator;
	pthread_t thread;
	void *failed = NULL;
	OK(net_open("loop", &(struct net_options){ 0 }, &coordinator, &err));
	side_make(&front, coordinator, 0, 1 << 20);
	side_make(&end, coordinator, 1, 1 << 20);
	connect_sides(&front, &end);
	fill(front.param.grad, 11);
	fill(front.param.value, 33);
	fill(end.param.grad, 22);
	assert_int_equal(pthread_create(&thread, NULL, be_the_end, &end), 0);
	OK(exchange_receive_tied(&front.x, &recv_grad, &front.param, &front.scratch, &err));
	OK(exchange_send_tied(&front.x, &send_value, front.param.w.data, &err));
	pthread_join(thread, &failed);
	if (failed)
		fail_msg("the end: %s", ((struct err *)failed)->msg);
	holds(front.param.grad, both_sums);
	holds(end.param.value, new_value);
	/* what one side sent the other received */
	assert_int_equal(front.times.m.flow[FLOW_FROM_PREV].messages, 2);
	assert_int_equal(end.times.m.flow[FLOW_TO_NEXT].bytes,
			 front.times.m.flow[FLOW_FROM_PREV].bytes);
	assert_int_equal(end.times.m.flow[FLOW_FROM_NEXT].bytes,
			 front.times.m.flow[FLOW_TO_PREV].bytes);
	side_release(&front);
	side_release(&end);
	net_close(coordinator, 0);
}

/* Each ends the job with one line that names sender, part and what was due. */
static void wrong_parts_are_refused(void **state)
{
	(void)state;
	static const struct {
		struct frame f[2];
		const char *says;
	} bad[] = {
		{ { { .dim = { ROWS, C } }, { .dim = { ROWS, C } } },
		  "worker 'b' sent part 0 of TIED_GRADIENT in step 5, (262144, 32) float32; part 1 "
		  "of 2 in step 5, (37863, 32) float32, was due" },
		{ { { .dim = { ROWS - 1, C } } }, "(262143, 32) float32; part 0 of 2" },
		{ { { .dim = { V - ROWS, C }, .microbatch = 1 } }, "sent part 1 of TIED_GRADIENT" },
		{ { { .dim = { ROWS, 2 * C }, .dtype = DT_BF16 } }, "(262144, 64) bf" },
		{ { { .dim = { ROWS, C }, .step = 1 } }, "in step 6" },
		{ { { .dim = { ROWS, C }, .from = 1 } }, "as member 3" },
		{ { { .kind = FRAME_TIED_VALUE - FRAME_TIED_GRADIENT, .dim = { ROWS, C } } },
		  "sent TIED_VALUE of job 0000000000000007; from it only TIED_GRADIENT of job" },
		{ { { .kind = FRAME_ACTIVATION - FRAME_TIED_GRADIENT, .dim = { 1, C } } },
		  "sent ACTIVATION of job 0000000000000007; from it only TIED_GRADIENT of job" },
	};
	unsigned char *zeros = mem_zalloc(TIED_PART);
	assert_non_null(zeros);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct side front, end;
		struct net *coordinator;
		OK(net_open("loop", &(struct net_options){ 0 }, &coordinator, &err));
		side_make(&front, coordinator, 0, 128 << 20);
		side_make(&end, coordinator, 1, 0);
		connect_sides(&front, &end);
		for (int k = 0; k < 2 && bad[i].f[k].dim[0]; k++) {
			struct frame f = bad[i].f[k];
			f.kind += FRAME_TIED_GRADIENT;
			f.job = JOB;
			f.step += STEP;
			f.from += FRAME_MEMBER(1);
			f.to = FRAME_MEMBER(0);
			f.ndim = 2;
			f.payload = zeros;
			OK(link_send_frame(end.other, &f, net_in(PATIENCE), &err));
		}
		assert_int_equal(exchange_receive_tied(&front.x, &recv_grad, &front.param,
						       &front.scratch, &err),
				 ERR_PROTOCOL);
		if (!strstr(err.msg, bad[i].says) || strchr(err.msg, '\n'))
			fail_msg("'%s' does not say '%s'", err.msg, bad[i].says);
		side_release(&front);
		side_release(&end);
		net_close(coordinator, 0);
	}
	mem_free(zeros);
}

/* In a round that trains nothing no part is due. */
static void none_in_an_evaluation(void **state)
{
	(void)state;
	struct side front, end;
	struct net *coordinator;
	float row[C] = { 0 };
	OK(net_open("loop", &(struct net_options){ 0 }, &coordinator, &err));
	side_make(&front, coordinator, 0, 0);
	side_make(&end, coordinator, 1, 0);
	connect_sides(&front, &end);
	OK(sched_build_forward(&(struct sched_shape){ 2, 1, 1, NULL, NULL }, 0, 0, &front.list,
			       &err));
	OK(exchange_round(&front.x, &front.list, NULL, &err));
	const struct frame f = { .kind = FRAME_TIED_GRADIENT,
				 .job = JOB,
				 .step = STEP,
				 .from = FRAME_MEMBER(1),
				 .to = FRAME_MEMBER(0),
				 .ndim = 2,
				 .dim = { 1, C },
				 .payload = row };
	OK(link_send_frame(end.other, &f, net_in(PATIENCE), &err));
	assert_int_equal(
		exchange_receive_tied(&front.x, &recv_grad, &front.param, &front.scratch, &err),
		ERR_PROTOCOL);
	assert_non_null(strstr(err.msg, "part 0 of TIED_GRADIENT; none is due in step 5"));
	side_release(&front);
	side_release(&end);
	net_close(coordinator, 0);
}

/* All parameters, over two processes; and over three, which begin with what the two had after
 * step 1. */
static void processes_give_the_bits_of_one(void **state)
{
	(void)state;
	static const char *const file[] = { "model.safetensors",
					    "checkpoints/step-000003/optimizer.safetensors" };
	static const char all[] = "adapter: none\n";
	struct site s;
	site_make_tied(&s);
	site_configuration(&s, "one", 0, all);
	site_configuration(&s, "two", 2, all);
	site_configuration(&s, "three", 3, all);
	char from[600];
	snprintf(from, sizeof from, "resume_from_checkpoint=%s/two/checkpoints/step-000001",
		 s.t.dir);
	struct process p = site_start(&s, "train", "one.yaml", "max_steps=3", "save_steps=1", NULL);
	must_succeed(&p);
	p = site_start(&s, "train", "two.yaml", "max_steps=3", "save_steps=1", "schedule=gpipe",
		       NULL);
	must_succeed(&p);
	p = site_start(&s, "train", "three.yaml", "max_steps=3", "save_steps=1", from, NULL);
	must_succeed(&p);
	for (size_t i = 0; i < 2; i++) {
		size_t n[3];
		char name[3][128], *text[3];
		for (int k = 0; k < 3; k++) {
			static const char *const run[] = { "one", "two", "three" };
			snprintf(name[k], sizeof name[k], "%s/%s", run[k], file[i]);
			text[k] = tiny_read(&s.t, name[k], &n[k]);
		}
		for (int k = 1; k < 3; k++)
			if (n[k] != n[0] || memcmp(text[0], text[k], n[0]))
				fail_msg("%s and %s differ", name[0], name[k]);
		for (int k = 0; k < 3; k++)
			mem_free(text[k]);
	}
	printf("2 and 3 processes: model and optimizer state identical to one process\n");
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back_over_small_windows),
		cmocka_unit_test(wrong_parts_are_refused),
		cmocka_unit_test(none_in_an_evaluation),
		cmocka_unit_test(processes_give_the_bits_of_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
