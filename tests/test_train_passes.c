/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_passes.c - passes of sizes of their own (`passes`): groups of unlike members have the
 * bits of one process with the same list; stopped and resumed on another grouping; lists that
 * contradict a checkpoint or a plan are refused. */
#include "base/err.h"
#include "base/mem.h"
#include "file/hash.h"
#include "support/child.h"
#include "support/long.h"
#include "support/site.h"
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

enum { MEMBERS_MOST = 4, LAYERS = 3 };

/* The members of the only stage and their shares of the passes. */
struct crowd {
	int n, chunks;
	int share[MEMBERS_MOST];
	int state[MEMBERS_MOST]; /* millionths of values and state, layer by layer; 0: whole */
};

static int attempt(const struct tiny *t, const char *name, const struct crowd *m, int stages,
		   struct record *r, const char *const *more, struct err *e)
{
	struct config *c = tiny_config(t, name, more);
	struct train_result res = { 0 };
	const char *device[MEMBERS_MOST] = { "cpu", "cpu", "cpu", "cpu" };
	struct placement p = { .stages = stages, .chunks = 1, .device = device };
	const struct train_sink sink = record_sink(r);
	p.schedule = m && m->chunks > 1 ? "interleaved" : "1f1b";
	if (m) {
		p.members = &m->n;
		p.share = m->share;
		p.chunks = m->chunks;
	}
	if (m && m->state[0]) {
		p.schedule = "breadth_first";
		p.state_share = m->state;
		p.sharding = SHARD_PARAMETERS;
	}
	for (int i = 0; i <= stages * p.chunks; i++)
		p.first[i] = i * LAYERS / (stages * p.chunks);
	const struct train_options o = { .stop = &r->stop, .place = &p, .act = DT_F32 };
	int rc = train_run(c, &o, &sink, &res, e);
	config_free(c);
	return rc;
}

static void run(const struct tiny *t, const char *name, const struct crowd *m, struct record *r,
		const char *const *more)
{
	struct err e = { 0 };
	if (attempt(t, name, m, 1, r, more, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
}

static bool holds(const struct tiny *t, const char *name, const char *what)
{
	size_t n;
	char *text = tiny_read(t, name, &n);
	bool found = strstr(text, what);
	mem_free(text);
	return found;
}

#define BATCH "micro_batch_size=1", "gradient_accumulation_steps=11"

static const struct crowd few[] = {
	{ 2, 1, { 1, 1 }, { 0 } },
	{ 3, 1, { 2, 1, 1 }, { 0 } },
};

/* Cephalo's way: layers outside, passes inside, values and state stored by shares of their own. */
static const struct crowd shared[] = {
	{ 2, LAYERS, { 1, 1 }, { 300000, 700000 } },
	{ 3, LAYERS, { 1, 2, 1 }, { 500000, 100000, 400000 } },
};

static const struct crowd many[] = {
	{ 4, 1, { 1, 1, 1, 1 }, { 0 } }, { 4, 1, { 7, 1, 2, 3 }, { 0 } }, { 2, 3, { 3, 1 }, { 0 } },
	{ 2, 1, { 0, 1 }, { 0 } },       { 3, 2, { 1, 2, 1 }, { 0 } },
};

static void compare(const struct tiny *t, const struct record *one, const struct crowd *m, size_t n,
		    const char *kind, const char *const *more, const char *result)
{
	for (size_t i = 0; i < n; i++) {
		struct record r = { 0 };
		char name[96], file[160], of_one[160];
		snprintf(name, sizeof name, "%s-%zu", kind,
			 i + (m == many       ? 100
			      : m[i].state[0] ? 50
					      : 0));
		run(t, name, &m[i], &r, more);
		record_same(one, &r, name);
		snprintf(file, sizeof file, "%s/%s", name, result);
		snprintf(of_one, sizeof of_one, "%s/%s", kind, result);
		record_same_file(t, of_one, file);
		printf("%-6s %d members, shares %d %d %d %d: identical\n", kind, m[i].n,
		       m[i].share[0], m[i].share[1], m[i].share[2], m[i].share[3]);
	}
}

/* 60 rows less 4 to validate: the sixth batch of the epoch has one row, so the list is cut. */
static void lora_has_the_bits_of_one_process(void **state)
{
	(void)state;
	static const char *const more[] = { BATCH,
					    "passes=[4, 1, 1, 5]",
					    "lora_dropout=0.2",
					    "reduce_order=exact",
					    "max_steps=7",
					    NULL };
	static const char *const packed[] = { BATCH,
					      "passes=[4, 1, 1, 5]",
					      "lora_dropout=0.2",
					      "reduce_order=exact",
					      "max_steps=2",
					      "sample_packing=true",
					      NULL };
	struct tiny t;
	struct record one = { 0 }, two = { 0 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "lora", NULL, &one, more);
	assert_int_equal(one.n, 7);
	assert_true(one.trained[5] < one.trained[0] && one.trained[6] > one.trained[5]);
	assert_true(holds(&t, "lora/run.json", "\"passes\": [4, 1, 1, 5]") &&
		    holds(&t, "lora/checkpoints/step-000003/trainer_state.json",
			  "\"passes\": [4, 1, 1, 5]"));
	compare(&t, &one, few, ARRAY_LEN(few), "lora", more, "adapter_model.safetensors");
	run(&t, "packed", NULL, &two, packed);
	compare(&t, &two, few + 1, 1, "packed", packed, "adapter_model.safetensors");
	compare(&t, &one, shared, 1, "lora", more, "adapter_model.safetensors");
	if (test_is_long()) {
		compare(&t, &one, many, ARRAY_LEN(many), "lora", more, "adapter_model.safetensors");
		compare(&t, &two, many, ARRAY_LEN(many), "packed", packed,
			"adapter_model.safetensors");
	}
	tiny_remove(&t);
}

static void full_has_the_bits_of_one_process(void **state)
{
	(void)state;
	static const char *const more[] = { BATCH,
					    "passes=[2, 6, 3]",
					    "adapter=none",
					    "load_in_4bit=false",
					    "reduce_order=exact",
					    "max_steps=2",
					    NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make_tied(&t, LAYERS, 60);
	run(&t, "full", NULL, &one, more);
	compare(&t, &one, few, 1, "full", more, "model.safetensors");
	compare(&t, &one, shared + 1, 1, "full", more, "model.safetensors");
	if (test_is_long())
		compare(&t, &one, many, ARRAY_LEN(many), "full", more, "model.safetensors");
	tiny_remove(&t);
}

/* A step is weighted by trained tokens, and masks and noise are keyed by row: lists of other sizes
 * have the same loss and gradient, up to the rounding of sums. */
static void sizes_change_only_rounding(void **state)
{
	(void)state;
	static const char *const list[] = { "passes=[11]", "passes=[1, 10]", "passes=[3, 1, 7]",
					    "passes=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]" };
	struct tiny t;
	struct record r[ARRAY_LEN(list)] = { 0 };
	const char *more[] = { BATCH, "max_steps=3", "lora_dropout=0.3", "neftune_noise_alpha=5",
			       NULL,  NULL };
	double worst = 0;
	tiny_make(&t, LAYERS, 60);
	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		char name[32];
		snprintf(name, sizeof name, "size-%zu", i);
		more[5] = list[i];
		run(&t, name, i == 2 ? &few[1] : NULL, &r[i], more);
		for (size_t s = 0; s < r[i].n; s++)
			worst = fmax(worst, fmax(fabs(r[i].loss[s] / r[0].loss[s] - 1),
						 fabs(r[i].norm[s] / r[0].norm[s] - 1)));
	}
	printf("largest difference between lists %.1e\n", worst);
	assert_true(worst < 1e-4);
	tiny_remove(&t);
}

#define TRAIN "lora_dropout=0.1", "reduce_order=exact", "max_steps=4", BATCH
#define AGAIN "lora_dropout=0.1", "max_steps=4", "resume_from_checkpoint=latest", BATCH

static void resume_on_another_grouping(void **state)
{
	(void)state;
	static const char *const more[] = { TRAIN, "passes=[4, 1, 1, 5]", NULL };
	/* the second says nothing: it goes on with the checkpoint's */
	static const char *const again[] = { AGAIN, "passes=[4, 1, 1, 5]", NULL },
				 *const silent[] = { AGAIN, NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "whole", NULL, &one, more);
	for (size_t i = 0; i < ARRAY_LEN(few); i++) {
		struct record first = { .stop_after = 2 }, second = { 0 };
		char name[64], file[128];
		snprintf(name, sizeof name, "parts-%zu", i);
		run(&t, name, &few[i], &first, more);
		run(&t, name, i ? &few[0] : NULL, &second, i ? again : silent);
		assert_true(second.n == 2 && second.loss[1] == one.loss[3] &&
			    second.norm[1] == one.norm[3]);
		snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
		record_same_file(&t, "whole/adapter_model.safetensors", file);
	}
	tiny_remove(&t);
}

static void refused(const struct tiny *t, const char *name, int stages, const char *const *more,
		    const char *a, const char *b)
{
	struct record r = { 0 };
	struct err e = { 0 };
	assert_true(attempt(t, name, NULL, stages, &r, more, &e) < 0);
	printf("%s\n", e.msg);
	if (!strstr(e.msg, a) || !strstr(e.msg, b))
		fail_msg("'%s' has not '%s' and '%s'", e.msg, a, b);
}

static void contradictions_are_named(void **state)
{
	(void)state;
	static const char *const more[] = { TRAIN, "passes=[4, 1, 1, 5]", NULL },
				 *const even[] = { TRAIN, NULL },
				 *const other[] = { AGAIN, "passes=[5, 1, 1, 4]", NULL },
				 *const all_one[] = { AGAIN,
						      "passes=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
						      NULL };
	struct tiny t;
	struct record r = { .stop_after = 1 }, s = { .stop_after = 1 };
	tiny_make(&t, LAYERS, 60);
	run(&t, "own", NULL, &r, more);
	run(&t, "even", NULL, &s, even);
	refused(&t, "own", 1, other, "'passes' was [4, 1, 1, 5] and is [5, 1, 1, 4] now",
		"set it as it was");
	refused(&t, "own", 1, all_one, "'passes' was [4, 1, 1, 5]", "11 microbatches of 1 now");
	refused(&t, "even", 1, other, "'passes' was 11 microbatches of 1", "[5, 1, 1, 4] now");
	refused(&t, "two", 2, more, "[4, 1, 1, 5]", "need one stage, and the plan has 2");
	tiny_remove(&t);
}

/* Three workers, each a process: the sizes stand with the members, the order of the passes follows
 * from the shares; then by a list in one process, and by the plan that the first one wrote. */
static void processes_with_sizes_of_their_own(void **state)
{
	(void)state;
	static const char train[] = "reduce_order: exact\n";
	struct site s;
	char crew[400], text[1200];
	site_make(&s);
	snprintf(crew, sizeof crew,
		 "coordinator: {ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, ip: 127.0.0.2, port: %d, device: cpu}\n"
		 "- {id: b, ip: 127.0.0.3, port: %d, device: cpu}\n"
		 "- {id: c, ip: 127.0.0.4, port: %d, device: cpu}\n",
		 s.port, s.port + 1, s.port + 2, s.port + 3);
	snprintf(text, sizeof text,
		 "%sshard_plan: [{id: [a, b, c], share: [1, 2, 1], micro_batch_size: [1, 2, 1], "
		 "start: 0, end: 6}]\n%s",
		 train, crew);
	site_configuration(&s, "group", 0, text);
	snprintf(text, sizeof text, "%spasses: [2, 1, 1, 2]\n", train);
	site_configuration(&s, "one", 0, text);
	snprintf(text, sizeof text, "%splan: %s/group/plan.json\n%s", train, s.t.dir, crew);
	site_configuration(&s, "again", 0, text);
	static const char *const name[] = { "group", "one", "again" };
	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		char file[32];
		snprintf(file, sizeof file, "%s.yaml", name[i]);
		struct process p = site_start(&s, "train", file, NULL);
		must_succeed(&p);
		assert_true(says(&p, "microbatches of [2, 1, 1, 2]"));
		snprintf(file, sizeof file, "%s/plan.json", name[i]);
		assert_true(holds(&s.t, file, "\"passes\": [2, 1, 1, 2]"));
	}
	same_result(&s, "one", "group", true);
	same_result(&s, "one", "again", true);
	/* a plan whose passes are not those of the configuration */
	struct process p = site_start(&s, "train", "again.yaml", "passes=[2, 1, 2, 1]",
				      "overwrite_output_dir=true", NULL);
	must_fail(&p, 2, "has passes of [2, 1, 1, 2] rows and the job of [2, 1, 2, 1]");
	tiny_remove(&s.t);
}

/* ---- numbers that are none ---- */

static void put_file(const struct tiny *t, const char *name, const char *p, size_t n)
{
	char path[600];
	snprintf(path, sizeof path, "%s/%s", t->dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* Writes a number into the last tensor of a checkpoint's file and makes the hashes fit, as somebody
 * would who wants to. */
static void forge(const struct tiny *t, const char *dir, const char *file, const void *bytes)
{
	static const char seal[] = ",\n \"hash\": \"";
	char path[300], state[300], full[600], was[HASH_HEX], now[HASH_HEX];
	size_t n, len;
	struct err e;
	snprintf(path, sizeof path, "%s/%s", dir, file);
	snprintf(state, sizeof state, "%s/trainer_state.json", dir);
	snprintf(full, sizeof full, "%s/%s", t->dir, path);
	char *p = tiny_read(t, path, &n), *text = tiny_read(t, state, &len);
	assert_true(hash_file(full, was, NULL, &e) >= 0);
	memcpy(p + n - 8, bytes, 4);
	put_file(t, path, p, n);
	assert_true(hash_file(full, now, NULL, &e) >= 0);
	char *at = strstr(text, was);
	assert_non_null(at);
	memcpy(at, now, strlen(now));
	at = strstr(text, seal); /* of the text before it */
	assert_non_null(at);
	hash_bytes(text, (size_t)(at - text), now);
	memcpy(at + strlen(seal), now, strlen(now));
	put_file(t, state, text, len);
	mem_free(p);
	mem_free(text);
}

static void numbers_that_are_none(void **state)
{
	(void)state;
	static const char *const more[] = { TRAIN, NULL }, *const again[] = { AGAIN, NULL };
	static const char *const file[] = { "adapter_model.safetensors", "optimizer.safetensors" };
	const float one = 1, bad[] = { NAN, INFINITY };
	struct tiny t;
	tiny_make(&t, LAYERS, 60);
	for (size_t i = 0; i < 2 * ARRAY_LEN(bad); i++) {
		const size_t k = i / ARRAY_LEN(bad);
		struct record first = { .stop_after = 2 }, second = { 0 };
		struct err e = { 0 };
		char name[64], dir[128];
		snprintf(name, sizeof name, "forged-%zu", i);
		snprintf(dir, sizeof dir, "%s/checkpoints/step-000002", name);
		run(&t, name, NULL, &first, more);
		forge(&t, dir, file[k], &bad[i % ARRAY_LEN(bad)]);
		assert_int_equal(attempt(&t, name, NULL, 1, &second, again, &e), ERR_INPUT);
		if (!strstr(e.msg, file[k]) || !strstr(e.msg, "use an earlier checkpoint"))
			fail_msg("%s", e.msg);
		/* a number is taken: the forgery itself is not what was noticed */
		forge(&t, dir, file[k], &one);
		run(&t, name, NULL, &second, again);
	}
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lora_has_the_bits_of_one_process),
		cmocka_unit_test(full_has_the_bits_of_one_process),
		cmocka_unit_test(sizes_change_only_rounding),
		cmocka_unit_test(resume_on_another_grouping),
		cmocka_unit_test(numbers_that_are_none),
		cmocka_unit_test(contradictions_are_named),
		cmocka_unit_test(processes_with_sizes_of_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
