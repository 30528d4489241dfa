/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_shard.c - the members of a group share their training state: the same bits as one
 * process, whatever the shares; stopped and resumed on other shares; what does not go is
 * refused. */
#include "base/err.h"
#include "base/mem.h"
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

#include <cmocka.h>

enum { ROWS_MOST = 8, STAGES_MOST = 3, LAYERS = 4 };

/* Sizes of the groups; shares of the microbatches, and of the state in tenths. */
struct mixture {
	const char *name, *schedule;
	int stages, chunks;
	int members[STAGES_MOST], share[ROWS_MOST], state[ROWS_MOST];
};

static const struct mixture mixtures[] = {
	{ "2 members", "1f1b", 1, 1, { 2 }, { 1, 1 }, { 5, 5 } },
	{ "0.9 and 0.1", "1f1b", 1, 1, { 2 }, { 1, 3 }, { 9, 1 } },
	{ "1 and 0", "1f1b", 1, 1, { 2 }, { 1, 1 }, { 10, 0 } },
	{ "0 and 1", "1f1b", 1, 1, { 2 }, { 2, 1 }, { 0, 10 } },
	{ "3 members, one computes nothing", "gpipe", 1, 1, { 3 }, { 1, 0, 2 }, { 2, 5, 3 } },
	{ "4 members", "1f1b", 1, 1, { 4 }, { 3, 1, 1, 2 }, { 1, 2, 3, 4 } },
	{ "2 to 1", "1f1b", 2, 1, { 2, 1 }, { 1, 1, 1 }, { 7, 3, 10 } },
	{ "1 to 3", "1f1b", 2, 1, { 1, 3 }, { 1, 1, 2, 1 }, { 10, 2, 2, 6 } },
	{ "2 to 2, interleaved", "interleaved", 2, 2, { 2, 2 }, { 1, 1, 2, 1 }, { 4, 6, 9, 1 } },
	{ "2 chunks in one stage", "interleaved", 1, 2, { 2 }, { 1, 1 }, { 3, 7 } },
	{ "values, 2 members", "breadth_first", 1, 4, { 2 }, { 1, 1 }, { 5, 5 } },
	{ "values, 0.9 and 0.1", "breadth_first", 1, 2, { 2 }, { 1, 3 }, { 9, 1 } },
	{ "values, 1 and 0", "breadth_first", 1, 4, { 2 }, { 1, 1 }, { 10, 0 } },
	{ "values, 3 members", "breadth_first", 1, 3, { 3 }, { 1, 0, 2 }, { 2, 5, 3 } },
	{ "values, 4 members", "breadth_first", 1, 4, { 4 }, { 3, 1, 1, 2 }, { 1, 2, 3, 4 } },
	{ "values, one chunk", "breadth_first", 1, 1, { 2 }, { 1, 1 }, { 6, 4 } },
	{ "values, 2 to 1", "breadth_first", 2, 2, { 2, 1 }, { 1, 1, 1 }, { 7, 3, 10 } },
	{ "values, 2 to 3", "breadth_first", 2, 2, { 2, 3 }, { 1, 1, 2, 1, 1 }, { 4, 6, 3, 3, 4 } },
};

struct placed {
	struct placement place;
	const char *device[ROWS_MOST];
	int state[ROWS_MOST];
};

static void place(const struct mixture *m, bool shared, struct placed *p)
{
	memset(p, 0, sizeof *p);
	p->place = (struct placement){ .stages = m->stages,
				       .chunks = m->chunks,
				       .members = m->members,
				       .share = m->share,
				       .state_share = shared ? p->state : NULL,
				       .sharding = !shared ? SHARD_NONE
						   : !strcmp(m->schedule, "breadth_first")
							   ? SHARD_PARAMETERS
							   : SHARD_OPTIMIZER,
				       .device = p->device,
				       .schedule = m->schedule };
	for (int i = 0; i < ROWS_MOST; i++) {
		p->device[i] = "cpu";
		p->state[i] = m->state[i] * (STATE_WHOLE / 10);
	}
	for (int i = 0; i <= m->stages * m->chunks; i++)
		p->place.first[i] = (int64_t)i * LAYERS / (m->stages * m->chunks);
}

static int attempt(const struct tiny *t, const char *name, const struct mixture *m, bool shared,
		   struct record *r, const char *const *more, struct err *e)
{
	struct config *c = tiny_config(t, name, more);
	struct train_result res = { 0 };
	struct placed p;
	const struct train_sink sink = record_sink(r);
	if (m)
		place(m, shared, &p);
	const struct train_options o = { .stop = &r->stop,
					 .place = m ? &p.place : NULL,
					 .act = DT_F32 };
	const int rc = train_run(c, &o, &sink, &res, e);
	config_free(c);
	return rc;
}

static void run(const struct tiny *t, const char *name, const struct mixture *m, bool shared,
		struct record *r, const char *const *more)
{
	struct err e = { 0 };
	if (attempt(t, name, m, shared, r, more, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
}

/* Of the mixtures: */
enum { ALL = -1, FIRST_OF_VALUES = 10, A_FEW = -2 };

static bool is_chosen(int which, size_t i)
{
	return which == ALL || (int)i == which ||
	       (which == A_FEW && (i == 7 || i == FIRST_OF_VALUES + 3));
}

/* Mixtures against one process. */
static void compare(const struct tiny *t, const char *kind, const char *const *more,
		    const char *result, int which)
{
	struct record one = { 0 };
	run(t, kind, NULL, false, &one, more);
	assert_true(one.n > 0);
	for (size_t i = 0; i < ARRAY_LEN(mixtures); i++) {
		if (!is_chosen(which, i))
			continue;
		struct record r = { 0 };
		char name[96], file[160], of_one[160];
		snprintf(name, sizeof name, "%s-%zu", kind, i);
		run(t, name, &mixtures[i], true, &r, more);
		record_same(&one, &r, mixtures[i].name);
		snprintf(file, sizeof file, "%s/%s", name, result);
		snprintf(of_one, sizeof of_one, "%s/%s", kind, result);
		record_same_file(t, of_one, file);
		printf("%-10s %-32s losses, norms and result identical\n", kind, mixtures[i].name);
	}
}

static void lora_has_the_bits_of_one_process(void **state)
{
	(void)state;
	static const char *const more[] = { "lora_r=300",
					    "lora_dropout=0.1",
					    "gradient_accumulation_steps=5",
					    "reduce_order=exact",
					    "reduce_parts=2",
					    "max_steps=2",
					    NULL };
	struct tiny t;
	tiny_make(&t, LAYERS, 60);
	compare(&t, "lora", more, "adapter_model.safetensors", ALL);
	tiny_remove(&t);
}

/* Frozen matrices in 4 bits, with and without scales of scales; a model whose head is a matrix of
 * its own. */
static void other_values_have_the_bits_of_one_process(void **state)
{
	(void)state;
	const char *more[] = { "lora_r=8",
			       "gradient_accumulation_steps=3",
			       "reduce_order=exact",
			       "max_steps=2",
			       "adapter=qlora",
			       "load_in_4bit=true",
			       "bnb_4bit_use_double_quant=true",
			       NULL };
	const char *full[] = {
		"adapter=none",       "load_in_4bit=false", "gradient_accumulation_steps=3",
		"reduce_order=exact", "max_steps=2",        NULL
	};
	struct tiny t;
	tiny_make_wide(&t, LAYERS, 60);
	compare(&t, "double", more, "adapter_model.safetensors", FIRST_OF_VALUES + 1);
	more[6] = "bnb_4bit_use_double_quant=false";
	compare(&t, "nf4", more, "adapter_model.safetensors", FIRST_OF_VALUES + 7);
	compare(&t, "untied", full, "model.safetensors", FIRST_OF_VALUES + 3);
	if (test_is_long())
		compare(&t, "untied-all", full, "model.safetensors", ALL);
	tiny_remove(&t);
}

/* Adapters beside an embedding and a head that are trained whole, each a matrix of its own or one
 * for both: values that are gathered, of which some are trained. */
static void whole_modules_have_the_bits_of_one_process(void **state)
{
	static const char *const more[] = { "lora_r=8",
					    "lora_modules_to_save=embed_tokens,lm_head",
					    "gradient_accumulation_steps=4",
					    "reduce_order=exact",
					    "max_steps=2",
					    NULL };
	static const char *const kind[] = { "saved", "saved-tied" };
	static const int values[] = { 1, 4, 6, 7 };
	(void)state;
	for (int tied = 0; tied < 2; tied++) {
		struct tiny t;
		(tied ? tiny_make_tied : tiny_make_wide)(&t, LAYERS, 60);
		for (size_t i = 0; i < ARRAY_LEN(values); i++) {
			char name[64];
			snprintf(name, sizeof name, "%s-%zu", kind[tied], i);
			compare(&t, name, more, "adapter_model.safetensors",
				FIRST_OF_VALUES + values[i]);
		}
		compare(&t, kind[tied], more, "adapter_model.safetensors", 5);
		tiny_remove(&t);
	}
}

static void full_has_the_bits_of_one_process(void **state)
{
	(void)state;
	static const char *const rows[] = { "optimizer=adamw",     "optimizer=adamw_8bit",
					    "optimizer=sgd",       "optimizer=lion",
					    "optimizer=adafactor", "optimizer=muon" };
	struct tiny t;
	const char *more[] = { "adapter=none",
			       "load_in_4bit=false",
			       "gradient_accumulation_steps=4",
			       "reduce_order=exact",
			       "reduce_parts=2",
			       "max_steps=2",
			       NULL,
			       NULL };
	tiny_make_tied(&t, LAYERS, 60);
	/* every kind of cut; with TEST_LONG every optimizer with all mixtures */
	for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
		if (!test_is_long() && k > 1 && k + 1 < ARRAY_LEN(rows))
			continue;
		more[6] = rows[k];
		compare(&t, rows[k] + strlen("optimizer="), more, "model.safetensors",
			test_is_long() || k == 0 ? ALL : A_FEW);
	}
	tiny_remove(&t);
}

/* Stopped after step 2 on one grouping and shares, resumed on the next, or alone. */
static void resume_on_other_shares(void **state)
{
	(void)state;
	static const char *const begin[] = { "adapter=none",
					     "load_in_4bit=false",
					     "gradient_accumulation_steps=4",
					     "optimizer=adamw_8bit",
					     "reduce_order=exact",
					     "max_steps=3",
					     NULL };
	static const char *const again[] = { "adapter=none",
					     "load_in_4bit=false",
					     "gradient_accumulation_steps=4",
					     "optimizer=adamw_8bit",
					     "max_steps=3",
					     "resume_from_checkpoint=latest",
					     NULL };
	struct tiny t;
	struct record one = { 0 };
	tiny_make_tied(&t, LAYERS, 60);
	run(&t, "whole", NULL, false, &one, begin);
	for (size_t i = 0; i < ARRAY_LEN(mixtures); i += 3) {
		const struct mixture *next = &mixtures[(i + 4) % ARRAY_LEN(mixtures)];
		struct record first = { .stop_after = 2 }, second = { 0 };
		char name[64], file[128];
		snprintf(name, sizeof name, "parts-%zu", i);
		run(&t, name, &mixtures[i], true, &first, begin);
		run(&t, name, i % 2 ? NULL : next, i % 4 == 0, &second, again);
		assert_true(second.n == 1 && second.loss[0] == one.loss[2] &&
			    second.norm[0] == one.norm[2]);
		snprintf(file, sizeof file, "%s/model.safetensors", name);
		record_same_file(&t, "whole/model.safetensors", file);
		printf("%s, resumed %s%s: identical\n", mixtures[i].name, i % 2 ? "alone" : "on ",
		       i % 2 ? "" : next->name);
	}
	tiny_remove(&t);
}

/* Every way of adding up, in the order `fast`: the same as where nothing is shared, bit for bit
 * where the ways add the same terms in the same order, else within rounding. */
static void every_way_of_adding_up(void **state)
{
	(void)state;
	static const struct {
		const char *way;
		bool same;
	} row[] = { { "direct", true }, { "tree", true }, { "ring", false } };
	struct tiny t;
	const char *more[] = { "gradient_accumulation_steps=5",
			       "lora_r=300",
			       "reduce_order=fast",
			       "max_steps=3",
			       NULL,
			       NULL };
	tiny_make(&t, LAYERS, 60);
	for (size_t k = 0; k < ARRAY_LEN(row); k++) {
		const struct mixture *m = &mixtures[5];
		struct record whole = { 0 }, shared = { 0 };
		char way[32], name[64];
		snprintf(way, sizeof way, "reduce=%s", row[k].way);
		more[4] = way;
		snprintf(name, sizeof name, "%s-whole", row[k].way);
		run(&t, name, m, false, &whole, more);
		snprintf(name, sizeof name, "%s-shared", row[k].way);
		run(&t, name, m, true, &shared, more);
		if (row[k].same)
			record_same(&whole, &shared, row[k].way);
		for (size_t i = 0; i < whole.n; i++)
			assert_true(fabs(shared.norm[i] / whole.norm[i] - 1) < 1e-4);
		printf("%s: as without sharing\n", row[k].way);
	}
	tiny_remove(&t);
}

/* What needs a whole matrix when the model is built. */
static void what_cannot_be_gathered(void **state)
{
	(void)state;
	static const char *const dora[] = { "lora_r=4", "peft_use_dora=true",
					    "gradient_accumulation_steps=3", "max_steps=2", NULL };
	struct tiny t;
	struct record r = { 0 };
	struct err e = { 0 };
	tiny_make(&t, LAYERS, 20);
	assert_true(attempt(&t, "dora", &mixtures[FIRST_OF_VALUES], true, &r, dora, &e) < 0);
	printf("  %s\n", e.msg);
	assert_non_null(strstr(e.msg, "peft_use_dora with 'shard: parameters' is not supported"));
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lora_has_the_bits_of_one_process),
		cmocka_unit_test(other_values_have_the_bits_of_one_process),
		cmocka_unit_test(whole_modules_have_the_bits_of_one_process),
		cmocka_unit_test(full_has_the_bits_of_one_process),
		cmocka_unit_test(resume_on_other_shares),
		cmocka_unit_test(every_way_of_adding_up),
		cmocka_unit_test(what_cannot_be_gathered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
