/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_run.c - whole runs: the same bits whatever the split and the schedule, with and
 * without recomputation, stopped and resumed. */
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "support/child.h"
#include "support/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* `member`: who gets which stage; NULL: member i stage i. */
static struct train_result run_as(const struct tiny *t, const char *name, const struct placement *p,
				  const int *member, struct record *r, const char *const *more)
{
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res = { 0 };
	const struct train_sink sink = record_sink(r);
	const struct train_options o = {
		.stop = &r->stop, .place = p, .member = member, .act = DT_F32
	};
	if (train_run(c, &o, &sink, &res, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	config_free(c);
	return res;
}

static struct train_result run(const struct tiny *t, const char *name, const struct placement *p,
			       struct record *r, const char *const *more)
{
	return run_as(t, name, p, NULL, r, more);
}

static const char *const cpus[] = { "cpu", "cpu", "cpu", "cpu", "cpu", "cpu" };

static struct placement *even(int stages, int chunks, int layers, const char *schedule)
{
	struct placement *p = mem_zalloc(sizeof *p);
	*p = (struct placement){ .stages = stages,
				 .chunks = chunks,
				 .device = (const char **)cpus,
				 .schedule = schedule };
	for (int i = 0; i <= stages * chunks; i++)
		p->first[i] = (int64_t)i * layers / (stages * chunks);
	return p;
}

static void every_split_and_schedule_gives_the_same_bits(void **state)
{
	(void)state;
	static const struct {
		int stages, chunks;
		const char *schedule;
	} plan[] = { { 1, 1, "gpipe" },       { 2, 1, "sequential" },  { 2, 1, "gpipe" },
		     { 2, 1, "1f1b" },        { 3, 1, "1f1b" },        { 5, 1, "1f1b" },
		     { 5, 1, "gpipe" },       { 2, 2, "interleaved" }, { 3, 2, "interleaved" },
		     { 1, 3, "interleaved" }, { 2, 1, "eager" },       { 5, 1, "eager" } };
	static const char *const more[] = { "lora_dropout=0.2", "sample_packing=true", NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make(&t, 6, 40);
	run(&t, "one", NULL, &one, more);
	assert_int_equal(one.n, 6);
	assert_true(one.loss[5] < one.loss[0]);
	for (size_t i = 0; i < ARRAY_LEN(plan); i++) {
		struct placement *p = even(plan[i].stages, plan[i].chunks, 6, plan[i].schedule);
		struct record r = { 0 };
		char name[64], file[128];
		snprintf(name, sizeof name, "%s-%d-%d", plan[i].schedule, plan[i].stages,
			 plan[i].chunks);
		run(&t, name, p, &r, more);
		record_same(&one, &r, name);
		snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
		record_same_file(&t, "one/adapter_model.safetensors", file);
		printf("%-16s losses, norms and adapter identical\n", name);
		mem_free(p);
	}
	tiny_remove(&t);
}

/* All parameters of a model whose head is its embedding: front and end are on two stages, the sum
 * of both gradients has the bits of one process. Stopped on one split after step 2, resumed on the
 * next. */
static void a_trained_tied_embedding_is_one_parameter(void **state)
{
	(void)state;
	static const struct {
		int stages, chunks;
		const char *schedule;
	} plan[] = { { 2, 1, "1f1b" },        { 3, 1, "gpipe" },       { 5, 1, "1f1b" },
		     { 2, 2, "interleaved" }, { 3, 2, "interleaved" }, { 1, 3, "interleaved" },
		     { 2, 1, "gpipe" },       { 5, 1, "eager" } };
	static const char *const more[] = { "adapter=none", "load_in_4bit=false", "max_steps=3",
					    "save_steps=2", "reduce_order=fast",  NULL };
	static const char *const again[] = { "adapter=none",
					     "load_in_4bit=false",
					     "max_steps=3",
					     "save_steps=2",
					     "resume_from_checkpoint=latest",
					     NULL };
	static const char *const file[] = { "model.safetensors",
					    "checkpoints/step-000003/optimizer.safetensors" };
	struct tiny t;
	struct record one = { 0 };
	tiny_make_tied(&t, 6, 40);
	run(&t, "one", NULL, &one, more);
	assert_int_equal(one.n, 3);
	for (size_t i = 0; i < ARRAY_LEN(plan); i++) {
		size_t k = (i + 1) % ARRAY_LEN(plan);
		struct placement *p = even(plan[i].stages, plan[i].chunks, 6, plan[i].schedule),
				 *q = even(plan[k].stages, plan[k].chunks, 6, plan[k].schedule);
		struct record r = { 0 }, first = { .stop_after = 2 }, second = { 0 };
		char name[64], a[128], b[128];
		snprintf(name, sizeof name, "%s-%d-%d", plan[i].schedule, plan[i].stages,
			 plan[i].chunks);
		run(&t, name, p, &r, more);
		record_same(&one, &r, name);
		snprintf(b, sizeof b, "%s-parts", name);
		run(&t, b, p, &first, more);
		run(&t, b, q, &second, again);
		assert_true(second.n == 1 && second.loss[0] == one.loss[2] &&
			    second.norm[0] == one.norm[2]);
		for (size_t f = 0; f < ARRAY_LEN(file); f++) {
			snprintf(a, sizeof a, "one/%s", file[f]);
			snprintf(b, sizeof b, "%s/%s", name, file[f]);
			record_same_file(&t, a, b);
			snprintf(b, sizeof b, "%s-parts/%s", name, file[f]);
			record_same_file(&t, a, b);
		}
		printf("%-16s losses, norms and model identical; resumed as %s-%d-%d too\n", name,
		       plan[k].schedule, plan[k].stages, plan[k].chunks);
		mem_free(p);
		mem_free(q);
	}
	tiny_remove(&t);
}

/* Four members whose numbers are not in the order of the stages. */
static void members_in_any_order_give_the_same_bits(void **state)
{
	(void)state;
	static const int order[][4] = { { 2, 0, 3, 1 }, { 3, 2, 1, 0 } };
	static const char *const more[] = { "max_steps=3", "lora_dropout=0.2", NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make(&t, 8, 40);
	run(&t, "one", NULL, &one, more);
	assert_int_equal(one.n, 3);
	for (size_t i = 0; i < 2; i++) {
		struct placement *p = even(4, i ? 2 : 1, 8, i ? "interleaved" : "1f1b");
		struct record r = { 0 };
		char name[32], file[128];
		snprintf(name, sizeof name, "order-%zu", i);
		run_as(&t, name, p, order[i], &r, more);
		record_same(&one, &r, name);
		snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
		record_same_file(&t, "one/adapter_model.safetensors", file);
		mem_free(p);
	}
	tiny_remove(&t);
}

static void bfloat16_on_the_wire_stays_close(void **state)
{
	(void)state;
	static const char *const more[] = { "wire_dtype=bfloat16", NULL };
	struct tiny t;
	struct record one = { 0 }, two = { 0 };
	struct placement *p = even(3, 1, 6, "1f1b");
	tiny_make(&t, 6, 40);
	run(&t, "one", NULL, &one, NULL);
	run(&t, "two", p, &two, more);
	double worst = 0;
	for (size_t i = 0; i < one.n; i++)
		worst = fmax(worst, fabs(two.loss[i] / one.loss[i] - 1));
	printf("3 stages, bfloat16 wire: largest relative difference of the loss %.2e\n", worst);
	assert_true(worst > 0 && worst < 5e-3);
	mem_free(p);
	tiny_remove(&t);
}

static void recomputation_changes_no_bit(void **state)
{
	(void)state;
	static const char *const with[] = { "lora_dropout=0.2", "gradient_checkpointing=true",
					    NULL };
	static const char *const without[] = { "lora_dropout=0.2", "gradient_checkpointing=false",
					       NULL };
	struct tiny t;
	struct record a = { 0 }, b = { 0 };
	tiny_make(&t, 3, 30);
	run(&t, "a", NULL, &a, without);
	run(&t, "b", NULL, &b, with);
	record_same(&a, &b, "gradient_checkpointing");
	record_same_file(&t, "a/adapter_model.safetensors", "b/adapter_model.safetensors");
	tiny_remove(&t);
}

/* Stopped by a signal after step 4 (so it saves there), resumed to the end, on another split
 * too. */
static void stopped_and_resumed_equals_uninterrupted(void **state)
{
	(void)state;
	static const char *const full[] = { "adapter=none", "load_in_4bit=false", "optimizer=sgd",
					    "momentum=0.9", NULL };
	static const char *const lora[] = { "lora_dropout=0.1", NULL };
	const char *const *const kinds[] = { lora, full };
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		struct tiny t;
		struct record whole = { 0 }, first = { .stop_after = 4 }, second = { 0 };
		const char *again[8] = { "resume_from_checkpoint=latest" };
		for (size_t i = 0; kinds[k][i]; i++)
			again[i + 1] = kinds[k][i];
		const char *file = k ? "model.safetensors" : "adapter_model.safetensors";
		char a[64], b[64];
		struct placement *p = even(2, 1, 4, "1f1b");
		tiny_make(&t, 4, 40);
		run(&t, "whole", NULL, &whole, kinds[k]);
		struct train_result r = run(&t, "parts", NULL, &first, kinds[k]);
		assert_true(r.interrupted && r.step == 4);
		r = run(&t, "parts", k ? NULL : p, &second, again);
		assert_true(!r.interrupted && r.step == 6);
		assert_int_equal(second.n, 2);
		for (size_t i = 0; i < 2; i++)
			if (!(second.loss[i] == whole.loss[4 + i] &&
			      second.norm[i] == whole.norm[4 + i]))
				fail_msg("resumed step %zu: loss %.17g, uninterrupted %.17g", i + 5,
					 second.loss[i], whole.loss[4 + i]);
		snprintf(a, sizeof a, "whole/%s", file);
		snprintf(b, sizeof b, "parts/%s", file);
		record_same_file(&t, a, b);
		snprintf(a, sizeof a, "whole/checkpoints/step-000006/optimizer.safetensors");
		snprintf(b, sizeof b, "parts/checkpoints/step-000006/optimizer.safetensors");
		record_same_file(&t, a, b);
		mem_free(p);
		tiny_remove(&t);
	}
}

static void fails(const struct tiny *t, const char *name, const char *const *more, const char *says)
{
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res;
	const struct train_sink sink = { 0 };
	int rc = train_run(c, &(struct train_options){ 0 }, &sink, &res, &e);
	config_free(c);
	if (rc >= 0)
		fail_msg("%s: went through", says);
	if (!strstr(e.msg, says))
		fail_msg("'%s' was expected in: %s", says, e.msg);
	printf("  %s\n", e.msg);
}

static void what_cannot_work_is_one_line(void **state)
{
	(void)state;
	struct tiny t;
	struct record r = { 0 };
	tiny_make(&t, 2, 20);
	run(&t, "run", NULL, &r, NULL);
	fails(&t, "run", NULL, "already holds a run");
	fails(&t, "none", (const char *const[]){ "resume_from_checkpoint=latest", NULL },
	      "no checkpoint");
	fails(&t, "run", (const char *const[]){ "resume_from_checkpoint=latest", "lora_r=8", NULL },
	      "lora_r");
	fails(&t, "run", (const char *const[]){ "resume_from_checkpoint=latest", "seed=5", NULL },
	      "seed");
	fails(&t, "x", (const char *const[]){ "sequence_len=4096", NULL }, "sequence_len");
	fails(&t, "x",
	      (const char *const[]){ "lora_target_modules=[q_proj, qq_proj]",
				     "lora_target_linear=false", NULL },
	      "qq_proj");
	fails(&t, "x", (const char *const[]){ "device=opencl:93", NULL }, "opencl:93");
	fails(&t, "x", (const char *const[]){ "base_model=/nonexistent/model", NULL },
	      "/nonexistent/model");
	tiny_remove(&t);
}

/* A learning rate that blows everything up: steps are skipped and counted, then the run ends and
 * says where it began. */
static void numbers_that_are_not_finite_skip_and_then_stop(void **state)
{
	(void)state;
	static const char *const more[] = {
		"learning_rate=10", "weight_decay=10", "max_grad_norm=0",
		"warmup_steps=0",   "max_steps=60",    "max_nonfinite_steps=3",
		"adapter=none",     "optimizer=sgd",   NULL
	};
	struct tiny t;
	tiny_make(&t, 2, 40);
	fails(&t, "x", more, "3 steps in a row were not finite, beginning with");
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_split_and_schedule_gives_the_same_bits),
		cmocka_unit_test(a_trained_tied_embedding_is_one_parameter),
		cmocka_unit_test(members_in_any_order_give_the_same_bits),
		cmocka_unit_test(bfloat16_on_the_wire_stays_close),
		cmocka_unit_test(recomputation_changes_no_bit),
		cmocka_unit_test(stopped_and_resumed_equals_uninterrupted),
		cmocka_unit_test(what_cannot_work_is_one_line),
		cmocka_unit_test(numbers_that_are_not_finite_skip_and_then_stop),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
