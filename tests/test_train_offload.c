/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_offload.c - parameters, optimizer and activations of a device in the memory of its
 * host: the same bits as on the device, where updates do not move to another processor, else the
 * same within rounding; alone, in groups and in pipelines; less memory; stopped and resumed. The
 * device is the stand-in for a card, or a real one, and OpenCL's. */
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "support/cards.h"
#include "support/long.h"
#include "support/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
	LAYERS = 4,
	ROWS_MOST = 3,
	PARAMETERS = OFFLOAD_PARAMETERS,
	OPTIMIZER = OFFLOAD_OPTIMIZER,
	ACTIVATIONS = OFFLOAD_ACTIVATIONS
};

/* "card" stands for the device that is tested. */
struct way {
	const char *name, *schedule;
	int stages, chunks, members[2];
	const char *device[ROWS_MOST];
	unsigned offload;
	enum sharding sharding;
};

static const struct way plain = { "alone", "breadth_first", 1, 4, { 1 }, { "card" }, 0, 0 };

static const struct way jobs[] = {
	{ "parameters", "breadth_first", 1, 4, { 1 }, { "card" }, PARAMETERS, 0 },
	{ "parameters, 2 chunks", "breadth_first", 1, 2, { 1 }, { "card" }, PARAMETERS, 0 },
	{ "activations", "breadth_first", 1, 4, { 1 }, { "card" }, ACTIVATIONS, 0 },
	{ "activations, interleaved", "interleaved", 1, 2, { 1 }, { "card" }, ACTIVATIONS, 0 },
	{ "optimizer", "1f1b", 1, 1, { 1 }, { "card" }, OPTIMIZER, 0 },
	{ "all",
	  "breadth_first",
	  1,
	  4,
	  { 1 },
	  { "card" },
	  PARAMETERS | OPTIMIZER | ACTIVATIONS,
	  0 },
};

static const struct way wider[] = {
	{ "two stages", "breadth_first", 2, 2, { 1, 1 }, { "card", "card" }, 0, 0 },
	{ "all in two stages",
	  "breadth_first",
	  2,
	  2,
	  { 1, 1 },
	  { "card", "card" },
	  PARAMETERS | OPTIMIZER | ACTIVATIONS,
	  0 },
	{ "cpu | card, activations", "1f1b", 2, 1, { 1, 1 }, { "cpu", "card" }, ACTIVATIONS, 0 },
	{ "card | cpu, activations", "1f1b", 2, 1, { 1, 1 }, { "card", "cpu" }, ACTIVATIONS, 0 },
	{ "a group, parameters",
	  "breadth_first",
	  1,
	  4,
	  { 2 },
	  { "card", "card" },
	  PARAMETERS,
	  SHARD_PARAMETERS },
	{ "a group, all",
	  "breadth_first",
	  1,
	  4,
	  { 2 },
	  { "card", "card" },
	  PARAMETERS | OPTIMIZER | ACTIVATIONS,
	  SHARD_PARAMETERS },
	{ "a group, optimizer", "1f1b", 1, 1, { 2 }, { "card", "card" }, OPTIMIZER, 0 },
	{ "a group, shared optimizer",
	  "1f1b",
	  1,
	  1,
	  { 2 },
	  { "card", "card" },
	  OPTIMIZER,
	  SHARD_OPTIMIZER },
};

static void run(const struct tiny *t, const char *name, const struct way *j, const char *card,
		const char *const *more, struct record *r, uint64_t *peak_p)
{
	static const int halves[ROWS_MOST] = { 600000, 400000, STATE_WHOLE };
	const char *device[ROWS_MOST];
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res = { 0 };
	const struct train_sink sink = record_sink(r);
	struct placement p = { .stages = j->stages,
			       .chunks = j->chunks,
			       .members = j->members,
			       .state_share = j->sharding ? halves : NULL,
			       .sharding = j->sharding,
			       .offload = j->offload,
			       .device = device,
			       .schedule = j->schedule };
	for (int i = 0; i < ROWS_MOST; i++)
		device[i] = j->device[i] && !strcmp(j->device[i], "card") ? card : j->device[i];
	for (int i = 0; i <= j->stages * j->chunks; i++)
		p.first[i] = (int64_t)i * LAYERS / (j->stages * j->chunks);
	const struct train_options o = { .stop = &r->stop, .place = &p, .act = DT_F32 };
	if (train_run(c, &o, &sink, &res, &e) < 0)
		fail_msg("%s: %s", j->name, e.msg);
	if (peak_p)
		*peak_p = res.mem_peak;
	config_free(c);
}

/* Losses, and norms to what the order of the sums in a norm leaves open. */
static void close_to(const struct record *a, const struct record *b, const char *what)
{
	assert_true(a->n == b->n && a->n > 0);
	for (size_t i = 0; i < a->n; i++)
		if (!(fabs(b->loss[i] / a->loss[i] - 1) < 1e-6) ||
		    !(fabs(b->norm[i] / a->norm[i] - 1) < 1e-5))
			fail_msg("%s: step %zu: loss %.9g and norm %.9g, without offload %.9g and "
				 "%.9g",
				 what, i + 1, b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
}

static void compare(const struct tiny *t, const char *kind, const char *card,
		    const char *const *more, const struct way *first, const struct way *v, size_t n)
{
	struct record whole = { 0 };
	char name[96];
	snprintf(name, sizeof name, "%s-%s-%s", kind, card, first->name);
	run(t, name, first, card, more, &whole, NULL);
	for (size_t i = 0; i < n; i++) {
		struct record r = { 0 };
		if (v == wider && !test_is_long() && !strstr(v[i].name, "all") &&
		    !strstr(v[i].name, "shared"))
			continue;
		snprintf(name, sizeof name, "%s-%s-%s", kind, card, v[i].name);
		run(t, name, &v[i], card, more, &r, NULL);
		const bool full = !strncmp(kind, "full", 4),
			   moved = (v[i].offload & OPTIMIZER) ||
				   (full && (v[i].offload & PARAMETERS)) ||
				   strstr(v[i].device[1] ? v[i].device[0] : "", "cpu") ||
				   (v[i].device[1] && strstr(v[i].device[1], "cpu"));
		if (moved)
			close_to(&whole, &r, v[i].name);
		else
			record_same(&whole, &r, v[i].name);
		printf("%-6s %-10s %-28s %s\n", kind, card, v[i].name,
		       moved ? "within rounding" : "identical");
	}
}

static const char *const lora[] = { "gradient_accumulation_steps=3",
				    "lora_dropout=0.1",
				    "reduce_order=exact",
				    "profile=none",
				    "max_steps=3",
				    NULL };
static const char *const qlora[] = { "gradient_accumulation_steps=3",
				     "adapter=qlora",
				     "load_in_4bit=true",
				     "reduce_order=fast",
				     "profile=none",
				     "max_steps=3",
				     NULL };
static const char *const full[] = { "gradient_accumulation_steps=3",
				    "adapter=none",
				    "load_in_4bit=false",
				    "reduce_order=exact",
				    "profile=none",
				    "max_steps=3",
				    NULL };
static const char *const fast[] = {
	"gradient_accumulation_steps=3", "adapter=none", "load_in_4bit=false", "reduce_order=fast",
	"optimizer=adamw_8bit",          "profile=none", "max_steps=3",        NULL
};

/* Sanitizer builds hide OpenCL's drivers, which are not instrumented (run-tests.sh): there the
 * stand-in does less of it. */
static bool stand_in;

static bool has_opencl(void)
{
	const char *vendors = getenv("OCL_ICD_VENDORS");
	return !vendors || strcmp(vendors, "/nonexistent") != 0;
}

static const char *card_for(size_t *jobs_p)
{
	if (has_opencl())
		return "opencl:0";
	if (!stand_in)
		skip();
	*jobs_p = 2;
	return "cuda:0";
}

static void as_without(void **state)
{
	static const char *const cards[] = { "cuda:0", "opencl:0" };
	struct tiny t, tied;
	(void)state;
	if (!has_opencl() && !stand_in)
		skip();
	tiny_make_wide(&t, LAYERS, 60);
	tiny_make_tied(&tied, LAYERS, 60);
	for (size_t i = 0; i < ARRAY_LEN(cards) - !has_opencl(); i++) {
		/* the stand-in is slow: everything at once */
		const size_t last = ARRAY_LEN(jobs) - 1, from = test_is_long() ? 0 : last,
			     some = i ? 0 : from;
		if (i || test_is_long())
			compare(&t, "lora", cards[i], lora, &plain, jobs, last + 1);
		compare(&t, "qlora", cards[i], qlora, &plain, jobs + from, last + 1 - from);
		compare(&tied, "full", cards[i], full, &plain, jobs + some, last + 1 - some);
		if (i)
			compare(&t, "full-untied", cards[i], fast, &plain, jobs + from,
				last + 1 - from);
	}
	tiny_remove(&t);
	tiny_remove(&tied);
}

static void groups_and_pipelines(void **state)
{
	struct tiny t;
	size_t n = ARRAY_LEN(wider);
	(void)state;
	const char *card = card_for(&n);
	tiny_make_tied(&t, LAYERS, 60);
	if (test_is_long())
		compare(&t, "lora", card, lora, &plain, wider, n);
	compare(&t, "full", card, full, &plain, wider, n);
	tiny_remove(&t);
}

/* Preferences: the pass without adapters gathers and parks as any other one. */
static void preferences(void **state)
{
	struct tiny t;
	char data[400];
	size_t n = ARRAY_LEN(wider);
	(void)state;
	const char *card = card_for(&n);
	tiny_make(&t, LAYERS, 60);
	tiny_preferences(&t, PREFER_PAIRS);
	snprintf(data, sizeof data,
		 "datasets=[{path: %s/preferences.jsonl, type: passthrough.default}]", t.dir);
	const char *dpo[] = { data,
			      "rl=dpo",
			      "rl_beta=0.5",
			      "gradient_accumulation_steps=3",
			      "lora_dropout=0.1",
			      "reduce_order=exact",
			      "profile=none",
			      "max_steps=3",
			      NULL },
		   *again[ARRAY_LEN(dpo) + 1];
	compare(&t, "dpo", card, dpo, &plain, wider, n);
	/* layers computed again */
	memcpy(again, dpo, sizeof dpo);
	again[ARRAY_LEN(dpo) - 1] = "gradient_checkpointing=true";
	again[ARRAY_LEN(dpo)] = NULL;
	struct record a = { 0 }, b = { 0 };
	run(&t, "kept", &plain, "cpu", dpo, &a, NULL);
	run(&t, "again", &plain, "cpu", again, &b, NULL);
	record_same(&a, &b, "recomputed");
	tiny_remove(&t);
}

int main(void)
{
	stand_in = fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_without),
					    cmocka_unit_test(groups_and_pipelines),
					    cmocka_unit_test(preferences) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
