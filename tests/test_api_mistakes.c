/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_mistakes.c - every mistake with the public interface is an error value with one line. */
#include "support/api.h"

#include "support/scratch.h"

#include <pthread.h>
#include <stdio.h>

struct told {
	uint64_t steps;
	int fails, save_fails;
};

static int on_step(void *ctx, const hs_step *s, double *rate)
{
	struct told *t = ctx;
	(void)rate;
	t->steps = s->step;
	return t->fails;
}

static int on_saved(void *ctx, uint64_t step, const char *path)
{
	(void)step, (void)path;
	return ((struct told *)ctx)->save_fails;
}

static int broken(void *ctx, uint64_t i, void *x, void *y)
{
	const int32_t how = *(const int32_t *)ctx;
	memset(x, 0, 24);
	*(int32_t *)y = how == -1 && i == 9 ? 77 : 0;
	return i == 9 && how != -1 ? how : 0;
}

static int use_inside(void *ctx, const hs_step *s, double *rate)
{
	hs_error e;
	hs_model *m = ctx;
	float v;
	(void)s;
	(void)rate;
	expect(hs_model_get(m, "0.bias", &v, 1, &e), &e, "in use by another call");
	expect(hs_model_free(m, &e), &e, "in use by another call");
	expect(hs_train(NULL, NULL, NULL, NULL, &e), &e, "another hs_train() runs");
	return HS_GO_ON;
}

static int no_update(const hs_update *u)
{
	(void)u;
	return 0;
}

static void *from_another_thread(void *ctx)
{
	use_inside(ctx, NULL, NULL);
	return NULL;
}

static int use_in_thread(void *ctx, const hs_step *s, double *rate)
{
	pthread_t t;
	use_inside(ctx, s, rate);
	pthread_create(&t, NULL, from_another_thread, ctx);
	pthread_join(t, NULL);
	return HS_GO_ON;
}

/* What depends on the other rows of a pass, where passes differ; what does not fit to be joined. */
static void batches_and_joins(void **state)
{
	static const char *const set[] = { "passes=12,4", "gradient_accumulation_steps=16" };
	hs_error e;
	hs_model *m;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	(void)state;
	d.count = 100;
	d.get = small_sample;
	o.set = set;
	o.sets = COUNT(set);
	MUST(hs_model_new("input 6; linear 8; batch_norm; linear 5; cross_entropy", 1, &m, &e));
	expect(hs_train(m, &d, &o, NULL, &e), &e,
	       "'batch_norm' is over the rows of a pass, and the run has passes of");
	MUST(hs_model_free(m, &e));
	expect(hs_model_new("input 2 4 4; concat { avg_pool2d 2 }; mse", 1, &m, &e), &e,
	       "the blocks inside of 'concat' give rows of the shape (2, 2, 2); it must be like");
}

static void mistakes_are_values(void **state)
{
	static const char *const set[] = { "max_steps=2", "micro_batch_size=40" };
	static const char *const cpu[] = { "cpu", "cpu", "cpu", "cpu", "cpu", "cpu", "cpu" };
	const char *two[] = { set[0], set[1], NULL };
	hs_error e;
	hs_model *m, *gone;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	float v[30];
	int32_t how = 0;
	(void)state;
	expect(hs_model_new("input 4; linear 3; conv 3; mse", 1, &m, &e), &e, "no kind of block");
	expect(hs_model_new("input 2 2; linear 3; mse", 1, &m, &e), &e,
	       "'linear' needs rows of the shape (width); put 'flatten' before it, but 'input' "
	       "gives (2, 2)");
	expect(hs_model_new(NULL, 1, &m, &e), &e, "an argument is NULL");
	expect(hs_model_load("/nowhere", &m, &e), &e, "there is no such file or folder");
	expect(hs_model_load(repository("tests/golden/models/llama2"), &m, &e), &e,
	       "is a 'llama' model, not one of blocks");
	/* a text that asks for 64 GiB, without a value beside it */
	scratch_text(scratch("tiny/config.json"), "{\"model_type\": \"heteroshard\", \"blocks\": "
						  "\"input 16384; linear 1048576; mse\"}");
	scratch_write(scratch("tiny/model.safetensors"), "\2\0\0\0\0\0\0\0{}", 10);
	expect(hs_model_load(scratch("tiny"), &m, &e), &e, "has no tensor '0.weight'");
	MUST(hs_model_new(SMALL, 1, &m, &e));
	MUST(hs_model_new(SMALL, 1, &gone, &e));
	MUST(hs_model_free(gone, &e));
	expect(hs_model_free(gone, &e), &e, "it is NULL, or was freed");
	expect(hs_model_get(gone, "0.bias", v, 24, &e), &e, "it is NULL, or was freed");
	expect(hs_train(gone, &d, &o, NULL, &e), &e, "it is NULL, or was freed");
	assert_int_equal(hs_model_params(gone), 0);
	expect(hs_model_get(m, "9.bias", v, 24, &e), &e, "no parameter '9.bias'");
	expect(hs_model_set(m, "0.bias", v, 23, &e), &e, "'0.bias' has 24 values, not 23");
	expect(hs_model_param(m, 100, NULL, &e), &e, "there is no 100");
	expect(hs_model_param(m, 0, NULL, &e), &e, "an argument is NULL");
	assert_int_equal(hs_block_at(0, NULL, NULL), 0);
	expect(hs_train(m, NULL, &o, NULL, &e), &e, "a model and data, or neither");
	expect(hs_train(m, &d, &o, NULL, &e), &e, "a function `get`");
	d.get = broken;
	d.ctx = &how;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "the data has no sample");
	d.count = 40;
	o.set = two;
	o.sets = 2;
	how = 3;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "sample 9: the data's function failed with 3");
	expect(hs_evaluate(m, &d, "cpu", 8, &(hs_evaluation){ 0 }, &e), &e,
	       "sample 9: the data's function failed with 3");
	how = HS_DATA_ENDS;
	expect(hs_train(m, &d, &o, NULL, &e), &e,
	       "sample 9: the data has no such sample: it ends early, after fewer than the 40");
	how = -1;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "a target is class 77; there are 5 classes");
	how = 0;
	o.device = cpu;
	o.devices = 7;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "7 devices for a model of 6 blocks");
	o.devices = 1;
	static const char *const none[] = { "gpu9" };
	o.device = none;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "gpu9");
	static const char *const nothing[] = { NULL };
	o.device = nothing;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "one of `set` or `device` is NULL");
	o.devices = 0;
	o.sets = 3; /* the third is NULL */
	expect(hs_train(m, &d, &o, NULL, &e), &e, "one of `set` or `device` is NULL");
	expect(hs_worker_run(NULL, NULL, 1, NULL, NULL, &e), &e, "one of `set` is NULL");
	hs_optimizer twice = hs_optimizer_init();
	twice.name = "twice";
	twice.version = "1";
	twice.states = 2;
	twice.state[0] = twice.state[1] = "m";
	twice.update = no_update;
	expect(hs_optimizer_register(&twice, &e), &e, "two states named 'm'");
	static const struct {
		const char *set, *says;
	} keys[] = {
		{ "learning_rte=1", "learning_rte" },
		{ "learning_rate=-1", "'learning_rate'" },
		{ "adapter=lora", "are not possible" },
		{ "rl=dpo", "are not possible with a model" },
		{ "optimizer=none", "optimizer" },
		{ "output_dir=/proc/nowhere", "/proc/nowhere" },
	};
	for (size_t i = 0; i < COUNT(keys); i++) {
		two[2] = keys[i].set;
		expect(hs_train(m, &d, &o, NULL, &e), &e, keys[i].says);
	}
	o.sets = 2;
	struct told t = { .fails = -4 };
	o.on = (hs_callbacks){ .ctx = &t, .step = on_step };
	expect(hs_train(m, &d, &o, NULL, &e), &e, "the callback 'step' failed with -4");
	assert_int_equal(t.steps, 1);
	/* the same of a checkpoint's, which is no save that failed */
	const char *saves[] = { "max_steps=4", set[1], "save_steps=1" };
	t = (struct told){ .save_fails = -5 };
	o.set = saves;
	o.sets = COUNT(saves);
	o.on = (hs_callbacks){ .ctx = &t, .step = on_step, .saved = on_saved };
	expect(hs_train(m, &d, &o, NULL, &e), &e, "the callback 'saved' failed with -5");
	assert_int_equal(t.steps, 1);
	o.set = two;
	o.sets = 2;
	o.on = (hs_callbacks){ .ctx = m, .step = use_in_thread };
	MUST(hs_train(m, &d, &o, NULL, &e));
	o.size = 8;
	expect(hs_train(m, &d, &o, NULL, &e), &e, "the options need `size`");
	expect(hs_predict(m, "cpu", NULL, 1, 1, v, &e), &e, "an array is NULL");
	expect(hs_predict(m, "gpu9", v, 1, 1, v, &e), &e, "gpu9");
	expect(hs_model_save(m, "/proc/nowhere/x", &e), &e, "/proc/nowhere");
	expect(hs_worker_run("/nowhere.yaml", NULL, 0, NULL, NULL, &e), &e, "/nowhere.yaml");
	MUST(hs_model_free(m, NULL));
	assert_int_equal(hs_model_free(NULL, NULL), 0);
}

/* A run is not resumed with other settings, unless the caller says so; a program of version 2,
 * whose options end before that, runs as it did. */
static void changes_are_allowed(void **state)
{
	char output[4200];
	const char *set[] = { "micro_batch_size=10", "max_steps=2", output, "learning_rate=0.01" };
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	(void)state;
	snprintf(output, sizeof output, "output_dir=%s", scratch("changed"));
	d.count = 40;
	d.get = small_sample;
	o.set = set;
	o.sets = COUNT(set);
	o.size = offsetof(hs_options, allow_changes);
	MUST(hs_model_new(SMALL, 1, &m, &e));
	MUST(hs_train(m, &d, &o, NULL, &e));
	const char *again[] = { set[0], "max_steps=4", output, "learning_rate=0.02",
				"resume_from_checkpoint=latest" };
	o.set = again;
	o.sets = COUNT(again);
	o.allow_changes = 1; /* is not there yet */
	expect(hs_train(m, &d, &o, NULL, &e), &e, "learning_rate");
	o.size = sizeof o;
	MUST(hs_train(m, &d, &o, &r, &e));
	assert_int_equal(r.first_step, 3);
	hs_result_release(&r);
	MUST(hs_model_free(m, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_allowed),
		cmocka_unit_test(batches_and_joins),
		cmocka_unit_test(mistakes_are_values),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
