/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_samples.c - what the pipeline answers to sample prompts is what `generate` says with
 * the adapter that was trained, whatever the split. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/child.h"
#include "support/site.h"
#include "runtime/generate.h"
#include "file/atomic.h"
#include "train/samples.h"
#include "train/train.h"
#include <unistd.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXTS = 8 };
static const char *const prompts[] = { "Question 3: how many", "It has", "x" };

struct told {
	char text[TEXTS][512];
	uint64_t step[TEXTS];
	size_t n;
};

static int on_sample(void *ctx, uint64_t step, const char *prompt, const char *text, struct err *e)
{
	struct told *t = ctx;
	(void)e;
	assert_true(t->n < TEXTS);
	assert_string_equal(prompt, prompts[t->n % ARRAY_LEN(prompts)]);
	t->step[t->n] = step;
	snprintf(t->text[t->n++], sizeof t->text[0], "%s", text);
	return 0;
}

static int add_text(void *ctx, const char *text, size_t n)
{
	buf_add(ctx, text, n);
	return 0;
}

/* As `heteroshard generate --raw --adapter RUN` with this sampling. */
static void generated(const struct tiny *t, const char *run, const char *prompt,
		      const struct sampling *s, struct buf *out)
{
	char model[400], adapter[400];
	struct runtime r;
	struct err e = { 0 };
	struct tokens ids = { 0 };
	struct generate_stats st;
	snprintf(model, sizeof model, "%s/model", t->dir);
	snprintf(adapter, sizeof adapter, "%s/%s", t->dir, run);
	const struct runtime_options o = { .model = model,
					   .adapter = adapter,
					   .device = "cpu",
					   .compute_dtype = COMPUTE_FLOAT32,
					   .need_tokenizer = true };
	if (runtime_open(&o, &r, &e) < 0 ||
	    tokenizer_encode(r.tok, prompt, strlen(prompt), true, true, &ids, &e) < 0 ||
	    generate(&r, ids.id, ids.n, 20, s, add_text, out, &st, &e) < 0)
		fail_msg("%s", e.msg);
	buf_addc(out, 0);
	out->n--;
	tokens_release(&ids);
	runtime_close(&r);
}

/* The answers after the last step, for the caller to compare; of pipelines and groups. */
static void as_generate(const struct tiny *t, const struct sampling *s,
			char last_p[ARRAY_LEN(prompts)][512])
{
	static const char *cpus[] = { "cpu", "cpu", "cpu" };
	char temperature[60], top_p[60], seed[60];
	snprintf(temperature, sizeof temperature, "sample_temperature=%.17g", s->temperature);
	snprintf(top_p, sizeof top_p, "sample_top_p=%.17g", s->top_p);
	snprintf(seed, sizeof seed, "seed=%llu", (unsigned long long)s->seed);
	const char *const more[] = { "sample_prompts=['Question 3: how many', 'It has', x]",
				     "sample_max_tokens=20",
				     "sample_steps=4",
				     "learning_rate=0.02",
				     temperature,
				     top_p,
				     seed,
				     NULL };
	static const struct {
		int stages, chunks;
		const char *schedule;
		int members[3];
	} plan[] = { { 1, 1, "1f1b", { 1 } },        { 2, 1, "1f1b", { 1, 1 } },
		     { 3, 1, "gpipe", { 1, 1, 1 } }, { 2, 3, "interleaved", { 1, 1 } },
		     { 1, 2, "interleaved", { 1 } }, { 1, 1, "1f1b", { 3 } },
		     { 2, 1, "gpipe", { 1, 2 } },    { 2, 3, "interleaved", { 2, 1 } } };
	for (size_t i = 0; i < ARRAY_LEN(plan); i++) {
		struct placement *p = mem_zalloc(sizeof *p);
		struct told told = { .n = 0 };
		struct err e = { 0 };
		struct train_result res = { 0 };
		char name[64];
		snprintf(name, sizeof name, "run-%llu-%g-%zu", (unsigned long long)s->seed,
			 s->temperature, i);
		*p = (struct placement){ .stages = plan[i].stages,
					 .chunks = plan[i].chunks,
					 .members = plan[i].members,
					 .device = cpus,
					 .schedule = plan[i].schedule };
		for (int k = 0; k <= p->stages * p->chunks; k++)
			p->first[k] = (int64_t)k * 6 / (p->stages * p->chunks);
		struct config *c = tiny_config(t, name, more);
		const struct train_sink sink = { .ctx = &told, .sample = on_sample };
		const struct train_options o = { .place = p, .act = DT_F32 };
		if (train_run(c, &o, &sink, &res, &e) < 0)
			fail_msg("%s: %s", name, e.msg);
		assert_int_equal(told.n, 6); /* after step 4 and after step 6 */
		for (size_t k = 0; k < told.n; k++)
			assert_int_equal(told.step[k], k < 3 ? 4 : 6);
		for (size_t k = 0; k < ARRAY_LEN(prompts); k++) {
			struct buf b = BUF_INIT;
			generated(t, name, prompts[k], s, &b);
			assert_string_equal(told.text[3 + k], b.p);
			snprintf(last_p[k], 512, "%s", told.text[3 + k]);
			buf_release(&b);
		}
		config_free(c);
		mem_free(p);
	}
}

/* Greedy, and drawn in two ways with two seeds; every split gives the same text. */
static void what_generate_says(void **state)
{
	(void)state;
	static const struct sampling how[] = {
		{ .top_p = 1, .seed = 1 },
		{ .temperature = 1.2, .top_p = 1, .seed = 1 },
		{ .temperature = 0.9, .top_p = 0.9, .seed = 2 },
	};
	char said[ARRAY_LEN(how)][ARRAY_LEN(prompts)][512];
	struct tiny t;
	tiny_make(&t, 6, 40);
	for (size_t i = 0; i < ARRAY_LEN(how); i++)
		as_generate(&t, &how[i], said[i]);
	/* the same training, so only the drawing can differ */
	assert_string_not_equal(said[0][0], said[1][0]);
	tiny_remove(&t);
}

/* A model whose scores are not finite says nothing; with a temperature nothing was drawn from
 * them, and what lies before `order` was taken for a token. */
static void not_finite(void **state)
{
	(void)state;
	const struct sampling s[] = { { 0, 1, 0, 1 }, { 0.8, 1, 0, 1 }, { 0.8, 0.9, 3, 1 } };
	float *logits = malloc(8 * sizeof *logits);
	int32_t *order = malloc(8 * sizeof *order);
	static const float odd[] = { NAN, INFINITY, -INFINITY };
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		for (size_t k = 0; k < 4; k++) {
			for (int j = 0; j < 8; j++)
				logits[j] = k == 2 ? -INFINITY : (float)j;
			logits[k == 1 ? 5 : 0] = k < 3 ? odd[k] : -INFINITY;
			const int32_t id = sample_token(logits, 8, &s[i], 3, order);
			if (k < 3)
				assert_int_equal(id, -1);
			else /* one that is never drawn */
				assert_in_range(id, 1, 7);
		}
	free(logits), free(order);
}

/* Over processes, and from the folder. */
static void the_same_from_two_workers(void **state)
{
	(void)state;
	struct site s;
	size_t n[2];
	site_make(&s);
	static const char extra[] =
		"sample_prompts: ['Question 3: how many', 'a, b']\nsample_max_tokens: 9\n"
		"sample_temperature: 0.8\nsample_top_p: 0.9\n";
	site_configuration(&s, "one", 0, extra);
	site_configuration(&s, "two", 2, extra);
	struct process p = site_start(&s, "train", "one.yaml", NULL);
	must_succeed(&p);
	assert_true(says(&p, "sample after step 6: a, b -> "));
	p = site_start(&s, "train", "two.yaml", NULL);
	must_succeed(&p);
	char *a = tiny_read(&s.t, "one/samples.jsonl", &n[0]),
	     *b = tiny_read(&s.t, "two/samples.jsonl", &n[1]);
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(a, b, n[0]);
	assert_non_null(strstr(a, "{\"step\":6,\"prompt\":\"a, b\",\"text\":"));
	mem_free(a);
	mem_free(b);
	/* begun anew: the old answers go */
	p = site_start(&s, "train", "one.yaml", "overwrite_output_dir=true", "sample_prompts=[]",
		       NULL);
	must_succeed(&p);
	char path[300];
	snprintf(path, sizeof path, "%s/one/samples.jsonl", s.t.dir);
	a = site_text(path);
	assert_string_equal(a, "");
	mem_free(a);
	p = site_start(&s, "train", "one.yaml", "overwrite_output_dir=true",
		       "sample_prompts=[a, '']", NULL);
	must_fail(&p, 2, "prompt 2 of 'sample_prompts' is empty");
	tiny_remove(&s.t);
}

/* A prompt with a token whose scores are NaN is left out, in one process and by workers; the run
 * succeeds. `generate` says so. */
static void left_out(void **state)
{
	(void)state;
	static const char extra[] = "sample_prompts: ['a ~', 'a, b']\nsample_max_tokens: 9\n"
				    "sample_temperature: 0.8\n";
	struct site s;
	size_t n;
	site_make(&s);
	tiny_poison(&s.t, '~', NAN);
	site_configuration(&s, "one", 0, extra);
	site_configuration(&s, "two", 2, extra);
	for (int i = 0; i < 2; i++) {
		struct process p = site_start(&s, "train", i ? "two.yaml" : "one.yaml", NULL);
		must_succeed(&p);
		assert_true(says(&p, "after 'a ~' the model's scores are not finite"));
		assert_true(says(&p, "sample after step 6: a, b -> "));
		char *text = tiny_read(&s.t, i ? "two/samples.jsonl" : "one/samples.jsonl", &n);
		assert_null(strchr(text, '~'));
		mem_free(text);
	}
	char model[300];
	snprintf(model, sizeof model, "%s/model", s.t.dir);
	struct process p = site_start(&s, "generate", model, "--raw", "--prompt", "a ~",
				      "--temperature", "0.8", NULL);
	must_fail(&p, 1, "scores of token 4 are not finite");
	tiny_remove(&s.t);
}

/* Lines behind a step go, and one that was cut off; where there is none the file is not written. */
static void going_back(void **state)
{
	static const char *const was = "{\"step\":2,\"text\":\"a\"}\n{\"step\":4}\n{\"step\":6}\n"
				       "{\"step\":4}\nnonsense\n{\"step\":",
				 *const then = "{\"step\":2,\"text\":\"a\"}\n{\"step\":4}\n"
					       "{\"step\":4}\n";
	struct tiny t;
	char path[600];
	struct err e = { 0 };
	(void)state;
	tiny_make(&t, 1, 4);
	snprintf(path, sizeof path, "%s/samples.jsonl", t.dir);
	samples_go_back(t.dir, 4); /* there is none */
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(atomic_write_file(path, was, strlen(was), &e), 0);
	for (int i = 0; i < 2; i++) {
		samples_go_back(t.dir, 4);
		char *text = site_text(path);
		assert_string_equal(text, then);
		mem_free(text);
	}
	samples_go_back(t.dir, 0);
	char *text = site_text(path);
	assert_string_equal(text, "");
	mem_free(text);
	tiny_remove(&t);
}

struct back {
	const char *dir;
	bool later[2]; /* there is a line of step 6: when a resumed run begins, after its step */
};

static bool has_later(const char *dir)
{
	char path[600];
	snprintf(path, sizeof path, "%s/run/samples.jsonl", dir);
	char *text = site_text(path);
	const bool has = strstr(text, "{\"step\":6,");
	mem_free(text);
	return has;
}

static int on_begin(void *ctx, const struct train_info *i, struct err *e)
{
	struct back *b = ctx;
	(void)i, (void)e;
	b->later[0] = has_later(b->dir);
	return 0;
}

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct back *b = ctx;
	(void)s, (void)e;
	b->later[1] = has_later(b->dir);
	return 0;
}

/* Lines of steps that are computed again go with the first of these steps: a coordinator that is
 * killed before may go on from later steps, which its workers still have. */
static void going_back_and_killed(void **state)
{
	static const char *const more[] = { "sample_prompts=[a]",
					    "sample_max_tokens=2",
					    "sample_steps=2",
					    "save_steps=2",
					    "profile=none",
					    "max_steps=6",
					    NULL };
	struct tiny t;
	struct err e = { 0 };
	struct train_result r;
	char from[600];
	(void)state;
	tiny_make(&t, 1, 20);
	struct back b = { .dir = t.dir };
	for (int i = 0; i < 2; i++) {
		const struct train_sink none = { 0 },
					sink = { .ctx = &b, .begin = on_begin, .step = on_step };
		const char *again[ARRAY_LEN(more) + 2] = { NULL };
		memcpy(again, more, sizeof more);
		snprintf(from, sizeof from, "resume_from_checkpoint=%s/run/checkpoints/step-000004",
			 t.dir);
		if (i)
			again[ARRAY_LEN(more) - 1] = from, again[ARRAY_LEN(more)] = "max_steps=5";
		struct config *c = tiny_config(&t, "run", again);
		if (train_run(c, &(struct train_options){ .act = DT_F32 }, i ? &sink : &none, &r,
			      &e) < 0)
			fail_msg("%s", e.msg);
		config_free(c);
	}
	assert_true(b.later[0]);
	assert_false(b.later[1]);
	tiny_remove(&t);
}

static void put(const struct tiny *t, const char *name, const char *text)
{
	char path[400];
	struct err e = { 0 };
	snprintf(path, sizeof path, "%s/model/%s", t->dir, name);
	if (atomic_write_file(path, text, strlen(text), &e) < 0)
		fail_msg("%s", e.msg);
}

/* Further ends of text, as transformers has them: of generation_config.json, else of config.json;
 * what is no token is none. */
static void ends_of_text(void **state)
{
	(void)state;
	static const struct {
		const char *beside; /* generation_config.json */
		int32_t end[3];
	} rows[] = {
		{ NULL, { 5, 6, 0 } },
		{ "{\"eos_token_id\":7}", { 7, 0, 0 } },
		{ "{\"eos_token_id\":[7,100000,8,\"9\",-1]}", { 7, 8, 0 } },
		{ "{\"eos_token_id\":null}", { 5, 6, 0 } },
		{ "{\"eos_token_id\":", { 5, 6, 0 } }, /* a warning */
	};
	struct tiny t;
	char model[400];
	tiny_make(&t, 1, 4);
	snprintf(model, sizeof model, "%s/model", t.dir);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct model_file *f;
		struct model_config *c = mem_zalloc(sizeof *c);
		struct tokenizer *tok;
		struct err e = { 0 };
		int32_t id[STOPS_MOST];
		if (rows[i].beside)
			put(&t, "generation_config.json", rows[i].beside);
		if (model_file_open(model, &f, &e) < 0)
			fail_msg("%s", e.msg);
		json_object_set_new((json_t *)model_file_config(f), "eos_token_id",
				    json_pack("[i,i]", 5, 6));
		if (model_config_read(model_file_config(f), model, c, &e) < 0 ||
		    runtime_tokenizer(f, c, &tok, &e) < 0)
			fail_msg("%s", e.msg);
		const size_t n = generate_stops(f, tok, NULL, id);
		size_t k = 0;
		assert_int_equal(id[0], tokenizer_eos(tok));
		for (; rows[i].end[k]; k++)
			assert_true(1 + k < n && id[1 + k] == rows[i].end[k]);
		assert_int_equal(n, 1 + k);
		tokenizer_free(tok);
		model_file_close(f);
		mem_free(c);
	}
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_of_text),
		cmocka_unit_test(what_generate_says),
		cmocka_unit_test(not_finite),
		cmocka_unit_test(left_out),
		cmocka_unit_test(the_same_from_two_workers),
		cmocka_unit_test(going_back),
		cmocka_unit_test(going_back_and_killed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
