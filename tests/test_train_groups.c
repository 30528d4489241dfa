/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_groups.c - several workers share a stage: the same bits as one process, whatever the
 * groups, shares and schedules; stopped and resumed on another grouping. */
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "support/child.h"
#include "support/long.h"
#include "support/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROWS_MOST = 16, STAGES_MOST = 6 };

/* A mixture: the size of each stage's group, and the shares of all members. */
struct mixture {
	const char *name, *schedule;
	int stages, chunks;
	int members[STAGES_MOST], share[ROWS_MOST];
};

struct placed {
	struct placement place;
	const char *device[ROWS_MOST];
};

static void place(const struct mixture *m, int layers, struct placed *p)
{
	memset(p, 0, sizeof *p);
	p->place = (struct placement){ .stages = m->stages,
				       .chunks = m->chunks,
				       .members = m->members,
				       .share = m->share,
				       .device = p->device,
				       .schedule = m->schedule };
	for (int i = 0; i < ROWS_MOST; i++)
		p->device[i] = "cpu";
	for (int i = 0; i <= m->stages * m->chunks; i++)
		p->place.first[i] = (int64_t)i * layers / (m->stages * m->chunks);
}

static uint64_t window; /* of the links between members; 0: the default */

static int attempt(const struct tiny *t, const char *name, const struct mixture *m, int layers,
		   struct record *r, const char *const *more, bool allow_changes, struct err *e)
{
	struct config *c = tiny_config(t, name, more);
	struct train_result res = { 0 };
	struct placed p;
	const struct train_sink sink = record_sink(r);
	if (m)
		place(m, layers, &p);
	const struct train_options o = { .stop = &r->stop,
					 .place = m ? &p.place : NULL,
					 .allow_changes = allow_changes,
					 .window = window,
					 .act = DT_F32 };
	int rc = train_run(c, &o, &sink, &res, e);
	config_free(c);
	return rc;
}

static void run(const struct tiny *t, const char *name, const struct mixture *m, int layers,
		struct record *r, const char *const *more)
{
	struct err e = { 0 };
	if (attempt(t, name, m, layers, r, more, false, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
}

/* The largest relative difference of losses and norms. */
static double difference(const struct record *a, const struct record *b)
{
	double worst = 0;
	assert_int_equal(a->n, b->n);
	for (size_t i = 0; i < a->n; i++)
		worst = fmax(worst, fmax(fabs(b->loss[i] / a->loss[i] - 1),
					 fabs(b->norm[i] / a->norm[i] - 1)));
	return worst;
}

enum { LAYERS = 6 };

static const struct mixture few[] = {
	{ "data parallel, 2", "1f1b", 1, 1, { 2 }, { 1, 1 } },
	{ "data parallel, 3 unlike", "1f1b", 1, 1, { 3 }, { 5, 2, 1 } },
	{ "2 to 1", "1f1b", 2, 1, { 2, 1 }, { 3, 1, 1 } },
	{ "1 to 3", "gpipe", 2, 1, { 1, 3 }, { 1, 1, 2, 3 } },
	{ "2 to 3, interleaved", "interleaved", 2, 2, { 2, 3 }, { 1, 2, 2, 1, 1 } },
	{ "one without work", "1f1b", 2, 1, { 2, 2 }, { 1, 0, 0, 7 } },
};

static const struct mixture many[] = {
	{ "4 members", "1f1b", 1, 1, { 4 }, { 7, 1, 1, 2 } },
	{ "3 chunks in one stage", "interleaved", 1, 3, { 2 }, { 2, 1 } },
	{ "sequential", "sequential", 2, 1, { 2, 1 }, { 1, 1, 1 } },
	{ "eager", "eager", 3, 1, { 2, 1, 3 }, { 1, 1, 1, 3, 2, 1 } },
	{ "gpipe, 3 to 2", "gpipe", 2, 1, { 3, 2 }, { 1, 1, 1, 1, 1 } },
	{ "1 to 4 to 1", "1f1b", 3, 1, { 1, 4, 1 }, { 1, 2, 3, 1, 1, 1 } },
	{ "3 to 1", "1f1b", 2, 1, { 3, 1 }, { 1, 4, 1, 1 } },
	{ "3 to 1, interleaved", "interleaved", 2, 3, { 3, 1 }, { 1, 1, 1, 1 } },
	{ "1 to 2, interleaved", "interleaved", 2, 2, { 1, 2 }, { 1, 5, 1 } },
	{ "2 to 2 to 2", "1f1b", 3, 1, { 2, 2, 2 }, { 1, 1, 2, 1, 1, 3 } },
	{ "3 stages, interleaved", "interleaved", 3, 2, { 2, 1, 2 }, { 1, 1, 1, 1, 2 } },
	{ "shares beyond the batch", "1f1b", 2, 1, { 3, 2 }, { 100, 1, 60, 7, 0 } },
	{ "6 stages", "1f1b", 6, 1, { 1, 2, 1, 2, 1, 2 }, { 1, 1, 1, 1, 2, 1, 1, 1, 1 } },
	{ "eager, 4 to 2", "eager", 2, 1, { 4, 2 }, { 1, 1, 1, 1, 1, 1 } },
};

static void compare(const struct tiny *t, const struct record *one, const struct mixture *m,
		    size_t n, const char *kind, const char *const *more, const char *result)
{
	for (size_t i = 0; i < n; i++) {
		struct record r = { 0 };
		char name[96], file[160], of_one[160];
		snprintf(name, sizeof name, "%s-%zu", kind, i + (m == many ? 100 : 0));
		run(t, name, &m[i], LAYERS, &r, more);
		record_same(one, &r, m[i].name);
		snprintf(file, sizeof file, "%s/%s", name, result);
		snprintf(of_one, sizeof of_one, "%s/%s", kind, result);
		record_same_file(t, of_one, file);
		printf("%-8s %-26s losses, norms and result identical\n", kind, m[i].name);
	}
}

static void lora_has_the_bits_of_one_process(void **state)
{
	(void)state;
	static const char *const more[] = { "lora_dropout=0.2",
					    "sample_packing=true",
					    "gradient_accumulation_steps=7",
					    "reduce_order=exact",
					    "reduce_parts=3",
					    "max_steps=3",
					    NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "lora", NULL, LAYERS, &one, more);
	assert_int_equal(one.n, 3);
	compare(&t, &one, few, ARRAY_LEN(few), "lora", more, "adapter_model.safetensors");
	if (test_is_long())
		compare(&t, &one, many, ARRAY_LEN(many), "lora", more, "adapter_model.safetensors");
	tiny_remove(&t);
}

static void full_on(void (*make)(struct tiny *, int, int), const char *kind, size_t nfew, bool all)
{
	static const char *const more[] = { "adapter=none",
					    "load_in_4bit=false",
					    "gradient_accumulation_steps=5",
					    "reduce_order=exact",
					    "reduce_parts=2",
					    "max_steps=2",
					    NULL };
	struct tiny t;
	struct record one = { 0 };
	make(&t, LAYERS, 60);
	run(&t, kind, NULL, LAYERS, &one, more);
	assert_int_equal(one.n, 2);
	compare(&t, &one, few, nfew, kind, more, "model.safetensors");
	if (all)
		compare(&t, &one, many, ARRAY_LEN(many), kind, more, "model.safetensors");
	tiny_remove(&t);
}

/* All parameters; with an embedding that is also the head, and with a head of its own. */
static void full_has_the_bits_of_one_process(void **state)
{
	(void)state;
	full_on(tiny_make_tied, "full", ARRAY_LEN(few), test_is_long());
	full_on(tiny_make, "untied", test_is_long() ? ARRAY_LEN(few) : 3, test_is_long());
}

/* Links whose window is smaller than one message between stages or one part of a sum: groups of
 * different size in adjacent stages, interleaved too. */
static void windows_smaller_than_one_message(void **state)
{
	enum { SMALL = 1000 };
	static const char *const more[] = {
		"lora_dropout=0.2",   "lora_r=8",    "gradient_accumulation_steps=5",
		"reduce_order=exact", "max_steps=2", NULL
	};
	static const struct mixture narrow[] = {
		{ "2 to 3", "1f1b", 2, 1, { 2, 3 }, { 1, 2, 2, 1, 1 } },
		{ "3 to 1", "eager", 2, 1, { 3, 1 }, { 1, 4, 1, 1 } },
		{ "2 to 3, interleaved", "interleaved", 2, 2, { 2, 3 }, { 1, 2, 2, 1, 1 } },
		{ "3 to 1, interleaved", "interleaved", 2, 3, { 3, 1 }, { 1, 1, 1, 1 } },
	};
	struct tiny t;
	struct record one = { 0 };
	(void)state;
	tiny_make(&t, LAYERS, 60);
	run(&t, "narrow", NULL, LAYERS, &one, more);
	window = SMALL;
	compare(&t, &one, narrow, ARRAY_LEN(narrow), "narrow", more, "adapter_model.safetensors");
	window = 0;
	tiny_remove(&t);
}

/* Adapters on a model whose embedding is also the head: two copies of a frozen table. */
static void lora_on_a_tied_model(void **state)
{
	(void)state;
	static const char *const more[] = { "gradient_accumulation_steps=5", "reduce_order=exact",
					    "reduce_parts=2", "max_steps=2", NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make_tied(&t, LAYERS, 60);
	run(&t, "tied", NULL, LAYERS, &one, more);
	compare(&t, &one, few + 2, test_is_long() ? ARRAY_LEN(few) - 2 : 2, "tied", more,
		"adapter_model.safetensors");
	tiny_remove(&t);
}

/* Stopped after step 2 on one grouping, resumed on the next. */
static void resume_on_another_grouping(void **state)
{
	(void)state;
	static const char *const more[] = { "lora_dropout=0.1", "gradient_accumulation_steps=6",
					    "reduce_order=exact", "max_steps=3", NULL };
	static const char *const again[] = { "lora_dropout=0.1", "gradient_accumulation_steps=6",
					     "max_steps=3", "resume_from_checkpoint=latest", NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "whole", NULL, LAYERS, &one, more);
	for (size_t i = 0; i < ARRAY_LEN(few); i++) {
		const size_t k = (i + 1) % ARRAY_LEN(few);
		struct record first = { .stop_after = 2 }, second = { 0 };
		char name[64], file[128];
		snprintf(name, sizeof name, "parts-%zu", i);
		run(&t, name, &few[i], LAYERS, &first, more);
		run(&t, name, i % 2 ? &few[k] : NULL, LAYERS, &second, again);
		assert_true(second.n == 1 && second.loss[0] == one.loss[2] &&
			    second.norm[0] == one.norm[2]);
		snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
		record_same_file(&t, "whole/adapter_model.safetensors", file);
		printf("%s, resumed %s%s: identical\n", few[i].name, i % 2 ? "on " : "alone",
		       i % 2 ? few[k].name : "");
	}
	tiny_remove(&t);
}

/* Makes the checkpoint of step 1 one of version 1, which does not name its rules. */
static void make_old(const struct tiny *t, const char *name)
{
	struct err e = { 0 };
	char path[600], file[128];
	size_t n;
	snprintf(file, sizeof file, "%s/checkpoints/step-000001/trainer_state.json", name);
	snprintf(path, sizeof path, "%s/%s", t->dir, file);
	char *text = tiny_read(t, file, &n), *version = memmem(text, n, "\"version\": 2", 12),
	     *rules = memmem(text, n, "\"rules\"", 7);
	assert_true(version && rules);
	version[strlen("\"version\": ")] = '1';
	memcpy(rules, "\"rulez\"", 7);
	if (atomic_write_file(path, text, n, &e) < 0)
		fail_msg("%s", e.msg);
	mem_free(text);
}

/* A checkpoint of version 1 goes on under its own rules, also for dropout: the same bits in one
 * process and on a pipeline, others than under today's rule. Groups it had none. */
static void a_run_without_groups_keeps_its_rules(void **state)
{
	(void)state;
	static const struct mixture pipeline = { "a pipeline", "1f1b",     3, 1,
						 { 1, 1, 1 },  { 1, 1, 1 } };
	static const char *const more[] = { "lora_dropout=0.3", "micro_batch_size=2", "max_steps=3",
					    NULL };
	static const char *const again[] = { "lora_dropout=0.3", "micro_batch_size=2",
					     "max_steps=3", "resume_from_checkpoint=latest", NULL };
	struct tiny t;
	struct record whole = { 0 }, one = { 0 }, split = { 0 }, none = { 0 }, group = { 0 };
	static const char *const name[] = { "old-one", "old-many", "old-group" };
	struct err e = { 0 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "whole", NULL, LAYERS, &whole, more);
	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		struct record first = { .stop_after = 1 };
		run(&t, name[i], NULL, LAYERS, &first, more);
		make_old(&t, name[i]);
	}
	run(&t, name[0], NULL, LAYERS, &one, again);
	run(&t, name[1], &pipeline, LAYERS, &split, again);
	record_same(&one, &split, "resumed on a pipeline");
	assert_true(one.n == 2 && one.loss[0] != whole.loss[1]);
	assert_int_equal(attempt(&t, name[2], &few[0], LAYERS, &none, again, false, &e), ERR_USAGE);
	printf("%s\n", e.msg);
	assert_true(strstr(e.msg, "that had no groups: give each stage one worker, or resume with "
				  "--allow-changes") &&
		    !none.n);
	if (attempt(&t, name[2], &few[0], LAYERS, &group, again, true, &e) < 0)
		fail_msg("%s", e.msg);
	printf("on a group with --allow-changes: largest difference %.1e\n",
	       difference(&one, &group));
	assert_true(difference(&one, &group) < 1e-4);
	tiny_remove(&t);
}

/* In the order `fast` every way of adding up is within rounding of one process, and the same from
 * run to run. */
static void fast_is_within_rounding(void **state)
{
	(void)state;
	enum { RING_WHOLE = 1, RING_PARTS = 2 };
	static const char *const way[][2] = { { "reduce=direct", "reduce_parts=1" },
					      { "reduce=ring", "reduce_parts=1" },
					      { "reduce=ring", "reduce_parts=4" },
					      { "reduce=tree", "reduce_parts=1" },
					      { "reduce=tree", "reduce_parts=6" },
					      { "reduce=direct", "reduce_dtype=bfloat16" },
					      { "reduce=ring", "reduce_dtype=bfloat16" } };
	struct tiny t;
	struct record one = { 0 }, ring[2] = { 0 };
	const char *more[] = { "gradient_accumulation_steps=7",
			       "reduce_order=fast",
			       "max_steps=3",
			       NULL,
			       NULL,
			       NULL };
	tiny_make(&t, LAYERS, 60);
	run(&t, "one", NULL, LAYERS, &one, more);
	for (size_t k = 0; k < ARRAY_LEN(way); k++) {
		static const size_t which[] = { 1, 3, 5 };
		const bool half = strstr(way[k][1], "bfloat16");
		more[3] = way[k][0];
		more[4] = way[k][1];
		for (size_t i = 0; i < ARRAY_LEN(which); i++) {
			struct record a = { 0 }, b = { 0 };
			char name[64];
			snprintf(name, sizeof name, "fast-%zu-%zu-a", k, i);
			run(&t, name, &few[which[i]], LAYERS, &a, more);
			snprintf(name, sizeof name, "fast-%zu-%zu-b", k, i);
			run(&t, name, &few[which[i]], LAYERS, &b, more);
			record_same(&a, &b, few[which[i]].name);
			if (which[i] == 1 && (k == RING_WHOLE || k == RING_PARTS))
				ring[k == RING_PARTS] = a;
			double d = difference(&one, &a);
			printf("%-14s %-22s %-26s largest difference %.1e\n", way[k][0], way[k][1],
			       few[which[i]].name, d);
			assert_true(half ? d > 0 && d < 0.02 : d < 1e-4);
		}
	}
	/* the parts decide where a number's way around the ring begins */
	assert_true(difference(&ring[0], &ring[1]) > 0);
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lora_has_the_bits_of_one_process),
		cmocka_unit_test(full_has_the_bits_of_one_process),
		cmocka_unit_test(windows_smaller_than_one_message),
		cmocka_unit_test(lora_on_a_tied_model),
		cmocka_unit_test(resume_on_another_grouping),
		cmocka_unit_test(a_run_without_groups_keeps_its_rules),
		cmocka_unit_test(fast_is_within_rounding),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
