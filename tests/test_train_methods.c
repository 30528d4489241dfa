/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_methods.c - every configuration of examples/methods on a tiny model: the same bits on
 * one stage, on two, with groups, and stopped and resumed; what a run does that watches its
 * evaluations; an adapter to begin with.
 *
 * Model, data and sizes are those of the tiny model (support/tiny.h); everything else is the
 * example's. */
#include "base/err.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/lock.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "job/checkpoint_check.h"
#include "support/child.h"
#include "support/long.h"
#include "support/tiny.h"
#include "train/train.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAYERS = 4, STEPS = 6, STEPS_MOST = 64 };

struct record {
	double loss[STEPS_MOST], eval[STEPS_MOST];
	struct train_rewards rewards[STEPS_MOST], val[STEPS_MOST];
	size_t n, neval;
	struct train_part part[4]; /* of the last evaluation; names are gone */
	size_t parts;
	uint64_t tokens;
	uint64_t stop_after;
	volatile sig_atomic_t stop;
	struct train_result res;
};

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(r->n < STEPS_MOST);
	r->rewards[r->n] = s->rewards;
	r->loss[r->n++] = s->loss;
	if (r->stop_after && s->step >= r->stop_after)
		r->stop = 1;
	return 0;
}

static int on_eval(void *ctx, const struct train_eval *v, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(r->neval < STEPS_MOST);
	r->val[r->neval] = v->rewards;
	r->parts = v->parts;
	for (size_t i = 0; i < v->parts && i < ARRAY_LEN(r->part); i++)
		r->part[i] = v->part[i];
	r->tokens = v->tokens;
	r->eval[r->neval++] = v->loss;
	return 0;
}

struct split {
	const char *name;
	int stages;
	int members[2], share[3];
};

static const struct split splits[] = { { "two stages", 2, { 1, 1 }, { 1, 1 } },
				       { "a group", 1, { 2 }, { 2, 1 } },
				       { "one to two", 2, { 1, 2 }, { 1, 1, 2 } } };

static void train(const struct config *c, const struct split *s, struct record *r)
{
	struct err e = { 0 };
	const char *device[4] = { "cpu", "cpu", "cpu", "cpu" };
	struct placement p = { .stages = s ? s->stages : 1,
			       .chunks = 1,
			       .members = s ? s->members : NULL,
			       .share = s ? s->share : NULL,
			       .device = device,
			       .schedule = "1f1b",
			       .reduce_order = SUM_EXACT,
			       .reducer = "direct" };
	for (int i = 0; i <= p.stages; i++)
		p.first[i] = i * LAYERS / p.stages;
	const struct train_sink sink = { .ctx = r, .step = on_step, .eval = on_eval };
	const struct train_options o = { .stop = &r->stop, .place = &p, .act = DT_F32 };
	if (train_run(c, &o, &sink, &r->res, &e) < 0)
		fail_msg("%s: %s", c->output_dir, e.msg);
}

/* The loss of preferences that an example is named after; NULL: none. */
static const struct prefer *method(const char *file)
{
	char name[PREFER_NAME];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(file, ".-"), file);
	return prefer_find(name);
}

static struct config *load(const struct tiny *t, const char *file, const char *run,
			   const char *from)
{
	char path[300], word[12][600];
	char *over[12];
	struct config *c;
	struct err e = { 0 };
	const char *fixed[] = { "sequence_len=128",   "micro_batch_size=2", "compute_dtype=float32",
				"wire_dtype=float32", "visualize=false",    "reduce_order=exact" };
	int n = 0;
	snprintf(path, sizeof path, "examples/methods/%s", file);
	snprintf(word[n++], sizeof *word, "base_model=%s/model", t->dir);
	const struct prefer *rl = method(file);
	if (rl)
		tiny_preferences(t, rl->data);
	snprintf(word[n++], sizeof *word, "datasets=[{path: %s/%s}]", t->dir,
		 rl ? "preferences.jsonl, type: passthrough.default"
		    : "data.jsonl, type: completion");
	snprintf(word[n++], sizeof *word, "output_dir=%s/%s", t->dir, run);
	snprintf(word[n++], sizeof *word, "cache_dir=%s/cache", t->dir);
	snprintf(word[n++], sizeof *word, "max_steps=%d", STEPS);
	if (from)
		snprintf(word[n++], sizeof *word, "resume_from_checkpoint=%s/%s", t->dir, from);
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		snprintf(word[n++], sizeof *word, "%s", fixed[i]);
	for (int i = 0; i < n; i++)
		over[i] = word[i];
	if (config_load(path, n, over, &c, &e) < 0)
		fail_msg("%s", e.msg);
	return c;
}

static void same_file(const struct tiny *t, const char *a, const char *b, const char *file)
{
	char pa[256], pb[256];
	size_t na, nb;
	snprintf(pa, sizeof pa, "%s/%s", a, file);
	snprintf(pb, sizeof pb, "%s/%s", b, file);
	char *xa = tiny_read(t, pa, &na), *xb = tiny_read(t, pb, &nb);
	if (na != nb || memcmp(xa, xb, na))
		fail_msg("%s and %s differ", pa, pb);
	mem_free(xa);
	mem_free(xb);
}

static void same(const struct tiny *t, const struct config *c, const char *a, const char *b)
{
	char ca[64], cb[64];
	const char *values =
		c->adapter == ADAPTER_NONE ? "model.safetensors" : "adapter_model.safetensors";
	same_file(t, a, b, values);
	snprintf(ca, sizeof ca, "%s/checkpoints/step-%06d", a, STEPS);
	snprintf(cb, sizeof cb, "%s/checkpoints/step-%06d", b, STEPS);
	same_file(t, ca, cb, values);
	same_file(t, ca, cb, "optimizer.safetensors");
}

/* Before the first step a reference says what the model says; training widens the margin. */
static void check_rewards(const char *file, const struct record *r)
{
	assert_true(r->neval >= 2);
	const struct train_rewards *before = &r->val[0], *after = &r->val[r->neval - 1];
	for (size_t i = 0; i < r->n; i++)
		assert_true(r->rewards[i].given && r->rewards[i].accuracy <= 1);
	assert_true(before->given && after->given);
	if (method(file)->reference)
		assert_true(before->chosen == 0 && before->rejected == 0);
	if (!(after->margin > before->margin))
		fail_msg("%s: margin %g before, %g after", file, before->margin, after->margin);
	print_message("%s: held-out margin %.4f to %.4f, right %.2f to %.2f\n", file,
		      before->margin, after->margin, before->accuracy, after->accuracy);
}

/* `heteroshard eval --rl` says what the run said of the same records, also where a loss depends on
 * what else is in a microbatch. */
static void evaluated_with(const char *rl, enum prefer_data kind)
{
	struct tiny t;
	struct record r = { 0 };
	char test[500], model[300], run[300], file[300], out[300], line[2000], word[20];
	float loss = 0, chosen = 0, rejected = 0;
	tiny_make(&t, LAYERS, 40);
	tiny_preferences(&t, kind);
	snprintf(word, sizeof word, "rl=%s", rl);
	snprintf(file, sizeof file, "%s/preferences.jsonl", t.dir);
	snprintf(test, sizeof test, "{path: %s, type: passthrough.default}]", file);
	char data[600], held[600];
	snprintf(data, sizeof data, "datasets=[%s", test);
	snprintf(held, sizeof held, "test_datasets=[%s", test);
	const char *const how[] = { word, "max_steps=3", "val_set_size=0",   "eval_steps=3",
				    data, held,          "sequence_len=128", NULL };
	struct config *c = tiny_config(&t, "run", how);
	train(c, NULL, &r);
	config_free(c);
	snprintf(model, sizeof model, "%s/model", t.dir);
	snprintf(run, sizeof run, "%s/run", t.dir);
	snprintf(out, sizeof out, "%s/eval.txt", t.dir);
	snprintf(line, sizeof line,
		 "'%s' eval '%s' --adapter '%s' --data '%s' --type passthrough.default --rl %s "
		 "--micro-batch-size 2 --compute-dtype float32 > '%s' 2>&1",
		 getenv("HS_BIN"), model, run, file, rl, out);
	if (system(line) != 0)
		fail_msg("%s", line);
	FILE *f = fopen(out, "r");
	assert_true(f && fgets(line, sizeof line, f));
	fclose(f);
	if (sscanf(line, "loss %f chosen %f rejected %f", &loss, &chosen, &rejected) != 3)
		fail_msg("%s", line);
	const struct train_rewards *want = &r.val[r.neval - 1];
	print_message("%s", line);
	if (!(fabs((double)loss - r.res.val_after) < 1e-5))
		fail_msg("%s: eval says %.6f, the run %.6f", rl, (double)loss, r.res.val_after);
	assert_true(fabs((double)chosen - want->chosen) < 1e-5);
	assert_true(fabs((double)rejected - want->rejected) < 1e-5);
	assert_true(want->chosen != 0);
	tiny_remove(&t);
}

static void evaluated_apart(void **state)
{
	(void)state;
	evaluated_with("dpo", PREFER_PAIRS);
	evaluated_with("orpo", PREFER_PAIRS);
	evaluated_with("kto", PREFER_SINGLE);
}

/* The reference of an answer is no number: the job ends, and says what overflows. */
static void a_reference_that_is_not_finite(void **state)
{
	(void)state;
	struct tiny t;
	char data[500];
	struct err e = { 0 };
	struct train_result res;
	tiny_make(&t, 2, 20);
	tiny_preferences(&t, PREFER_PAIRS);
	tiny_poison(&t, '7', NAN);
	snprintf(data, sizeof data,
		 "datasets=[{path: %s/preferences.jsonl, type: passthrough.default}]", t.dir);
	struct config *c = tiny_config(&t, "run",
				       (const char *const[]){ "rl=dpo", "val_set_size=0", data,
							      "sequence_len=128", NULL });
	assert_int_equal(
		train_run(c, &(struct train_options){ 0 }, &(struct train_sink){ 0 }, &res, &e),
		ERR_INPUT);
	if (!strstr(e.msg, "the model without its adapter gives sequence "))
		fail_msg("%s", e.msg);
	config_free(c);
	tiny_remove(&t);
}

/* As in TRL, the adapter's inputs are not dropped where preferences are learned. A run that began
 * when they were goes on so. */
static void preferences_drop_nothing(void **state)
{
	(void)state;
	struct tiny t;
	struct record plain = { 0 }, drop = { 0 }, first = { .stop_after = 2 }, rest = { 0 };
	struct err e = { 0 };
	char data[500], path[600];
	size_t n;
	tiny_make(&t, LAYERS, 40);
	tiny_preferences(&t, PREFER_PAIRS);
	snprintf(data, sizeof data,
		 "datasets=[{path: %s/preferences.jsonl, type: "
		 "passthrough.default}]",
		 t.dir);
	const char *how[] = {
		"rl=dpo", "max_steps=4", "val_set_size=0", data, "sequence_len=128", NULL,
		NULL,     NULL
	};
	struct config *c = tiny_config(&t, "plain", how);
	train(c, NULL, &plain);
	config_free(c);
	how[5] = "lora_dropout=0.5";
	c = tiny_config(&t, "drop", how);
	train(c, NULL, &drop);
	config_free(c);
	for (size_t i = 0; i < 4; i++)
		assert_true(drop.loss[i] == plain.loss[i]);
	c = tiny_config(&t, "old", how);
	train(c, NULL, &first);
	config_free(c);
	char *text = tiny_read(&t, "old/checkpoints/step-000002/trainer_state.json", &n),
	     *rule = memmem(text, n, "\"dropout\": 3", 12),
	     *seal = memmem(text, n, ",\n \"hash\"", 9);
	assert_true(rule && seal);
	rule[strlen("\"dropout\": ")] = '2';
	struct buf b = BUF_INIT;
	buf_add(&b, text, (size_t)(seal - text));
	checkpoint_seal(&b);
	snprintf(path, sizeof path, "%s/old/checkpoints/step-000002/trainer_state.json", t.dir);
	assert_true(atomic_write_file(path, b.p, b.n, &e) >= 0);
	buf_release(&b);
	mem_free(text);
	how[6] = "resume_from_checkpoint=latest";
	c = tiny_config(&t, "old", how);
	train(c, NULL, &rest);
	config_free(c);
	assert_true(rest.n == 2 && rest.loss[0] != plain.loss[2]);
	tiny_remove(&t);
}

/* Resumed with fewer steps than it has done, a run has nothing to do: no reference either. */
static void no_reference_of_nothing(void **state)
{
	(void)state;
	struct tiny t;
	struct record whole = { 0 }, rest = { 0 };
	tiny_make(&t, LAYERS, 40);
	for (int i = 0; i < 2; i++) {
		struct config *c =
			load(&t, "dpo-all.yaml", "one", i ? "one/checkpoints/step-000002" : NULL);
		c->max_steps = 2 - i;
		train(c, NULL, i ? &rest : &whole);
		config_free(c);
	}
	assert_true(whole.n == 2 && rest.n == 0 && rest.res.step == 2);
	tiny_remove(&t);
}

static void run_example(const char *file)
{
	struct tiny t;
	struct record whole = { 0 }, part = { .stop_after = 3 }, rest = { 0 };
	tiny_make(&t, LAYERS, 40);
	struct config *c = load(&t, file, "one", NULL);
	train(c, NULL, &whole);
	assert_int_equal(whole.n, STEPS);
	for (size_t i = 0; i < whole.n; i++)
		assert_true(isfinite(whole.loss[i]));
	assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
	if (method(file))
		check_rewards(file, &whole);
	/* the other two are those of the run that is stopped and resumed */
	for (size_t k = 0; k < ARRAY_LEN(splits); k++) {
		struct record r = { 0 };
		if (k != 1 && !test_is_long())
			continue;
		struct config *other = load(&t, file, splits[k].name, NULL);
		train(other, &splits[k], &r);
		assert_int_equal(r.n, whole.n);
		for (size_t i = 0; i < r.n; i++)
			if (r.loss[i] != whole.loss[i])
				fail_msg("%s, %s: step %d: loss %.17g, on one stage %.17g", file,
					 splits[k].name, (int)i + 1, r.loss[i], whole.loss[i]);
		for (size_t i = 0; method(file) && i < r.n; i++)
			assert_true(r.rewards[i].accuracy == whole.rewards[i].accuracy &&
				    r.rewards[i].chosen == whole.rewards[i].chosen);
		same(&t, c, "one", splits[k].name);
		config_free(other);
	}
	struct config *other = load(&t, file, "stopped", NULL);
	train(other, &splits[0], &part);
	config_free(other);
	assert_true(part.res.interrupted);
	other = load(&t, file, "resumed", "stopped/checkpoints/step-000003");
	train(other, &splits[2], &rest);
	same(&t, c, "one", "resumed");
	config_free(other);
	config_free(c);
	print_message("%s: loss %.4f to %.4f, the same bits in a group and resumed\n", file,
		      whole.loss[0], whole.loss[STEPS - 1]);
	tiny_remove(&t);
}

static int is_yaml(const struct dirent *f)
{
	size_t n = strlen(f->d_name);
	return n > 5 && !strcmp(f->d_name + n - 5, ".yaml");
}

static void examples(void **state)
{
	(void)state;
	struct dirent **f;
	int n = scandir("examples/methods", &f, is_yaml, alphasort);
	assert_true(n >= 5);
	for (int i = 0; i < n; i++) {
		run_example(f[i]->d_name);
		free(f[i]);
	}
	free(f);
}

#define WITH(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void watch(const struct tiny *t, const char *run, struct record *r, const char *const *more)
{
	struct config *c = tiny_config(t, run, more);
	train(c, NULL, r);
	config_free(c);
}

/* Steps so long that the model becomes worse: training stops early, and the result is the best
 * model; also when it was stopped and resumed in between. */
static void early_stopping(void **state)
{
	(void)state;
	struct tiny t;
	struct record r = { 0 }, part = { .stop_after = 3 }, rest = { 0 };
	tiny_make(&t, LAYERS, 40);
#define WATCH                                                                                      \
	"max_steps=40", "learning_rate=0.2", "lr_scheduler=constant", "warmup_steps=0",            \
		"evals_per_epoch=6", "early_stopping_patience=3", "load_best_model_at_end=true",   \
		"save_steps=0", "save_total_limit=1"
	watch(&t, "run", &r, WITH(WATCH));
	assert_true(r.res.stopped_early && !r.res.interrupted && r.res.best);
	print_message("best step %d, stopped after %d\n", (int)r.res.best, (int)r.res.step);
	assert_int_equal(r.res.step, r.res.best + 3);
	/* the first evaluation is that before training */
	size_t best = 1;
	for (size_t i = 1; i < r.neval; i++)
		best = r.eval[i] < r.eval[best] ? i : best;
	assert_int_equal(best, r.res.best);
	assert_true(r.res.val_after == r.eval[best]);
	char kept[64], last[512];
	snprintf(kept, sizeof kept, "run/checkpoints/step-%06d", (int)r.res.best);
	same_file(&t, "run", kept, "adapter_model.safetensors");
	snprintf(last, sizeof last, "%s/run/checkpoints/step-%06d", t.dir, (int)r.res.step);
	assert_int_equal(access(last, F_OK), 0);
	watch(&t, "part", &part, WITH(WATCH));
	assert_true(part.res.interrupted);
	snprintf(last, sizeof last, "resume_from_checkpoint=%s/part/checkpoints/step-000003",
		 t.dir);
	watch(&t, "part", &rest, WITH(WATCH, last));
	assert_true(rest.res.stopped_early && rest.res.best == r.res.best);
	assert_int_equal(rest.res.step, r.res.step);
	same_file(&t, "run", "part", "adapter_model.safetensors");
	/* the evaluation after the last step counts too */
	struct record last_is_best = { 0 };
	watch(&t, "end", &last_is_best,
	      WITH("max_steps=4", "eval_steps=3", "load_best_model_at_end=true"));
	assert_true(last_is_best.res.best == 4);
	same_file(&t, "end", "end/checkpoints/step-000004", "adapter_model.safetensors");
	tiny_remove(&t);
}

/* Of several datasets each has a loss of its own; the whole is their mean over the tokens. */
static void evaluated_by_dataset(void **state)
{
	(void)state;
	struct tiny t;
	struct record one = { 0 }, two = { 0 };
	char path[400], word[1000];
	size_t n;
	tiny_make(&t, LAYERS, 40);
	char *text = tiny_read(&t, "data.jsonl", &n);
	snprintf(path, sizeof path, "%s/other.jsonl", t.dir);
	FILE *f = fopen(path, "w");
	assert_true(f && fwrite(text, 1, n / 2, f) == n / 2);
	mem_free(text);
	fclose(f);
	snprintf(word, sizeof word,
		 "datasets=[{path: %s/data.jsonl, type: completion}, {path: %s, type: completion}]",
		 t.dir, path);
#define BY_DATASET "max_steps=2", "val_set_size=17", "skip_bad_records=true", "micro_batch_size=3"
	watch(&t, "one", &one, WITH(word, BY_DATASET));
	assert_int_equal(one.parts, 2);
	assert_int_equal(one.part[0].tokens + one.part[1].tokens, one.tokens);
	const double whole = (one.part[0].loss * (double)one.part[0].tokens +
			      one.part[1].loss * (double)one.part[1].tokens) /
			     (double)one.tokens;
	assert_true(fabs(whole / one.res.val_after - 1) < 1e-12);
	assert_true(one.part[0].loss != one.part[1].loss);
	/* packed rows are of one dataset too */
	watch(&t, "packed", &two, WITH(word, BY_DATASET, "sample_packing=true"));
	assert_int_equal(two.parts, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(two.part[i].tokens, one.part[i].tokens);
	tiny_remove(&t);
}

/* Data sets that are held out as a whole: training is that without them, and all of them counts. */
static void evaluated_on_other_data(void **state)
{
	(void)state;
	struct tiny t;
	struct record without = { 0 }, with = { 0 }, split = { 0 };
	char test[900], kept[420];
	tiny_make(&t, LAYERS, 40);
	snprintf(test, sizeof test,
		 "test_datasets=[{path: %s/data.jsonl, type: completion, split: 'train[:10]'}, "
		 "{path: %s/data.jsonl, type: completion, split: 'train[10:]'}]",
		 t.dir, t.dir);
	watch(&t, "without", &without, WITH("max_steps=3", "val_set_size=0"));
	watch(&t, "with", &with, WITH("max_steps=3", "val_set_size=0", "eval_steps=3", test));
	assert_true(without.n == 3 && with.n == 3 && with.neval == 2);
	for (int i = 0; i < 3; i++)
		assert_true(with.loss[i] == without.loss[i]);
	same_file(&t, "without", "with", "adapter_model.safetensors");
	assert_int_equal(with.parts, 2);
	assert_int_equal(with.part[0].tokens + with.part[1].tokens, with.tokens);
	/* kept tokens, and used again, change nothing */
	snprintf(kept, sizeof kept, "dataset_prepared_path=%s/prepared", t.dir);
	for (int i = 0; i < 2; i++) {
		split = (struct record){ 0 };
		watch(&t, i ? "again" : "kept", &split,
		      WITH("max_steps=3", "val_set_size=0", "eval_steps=3", test, kept));
		assert_true(split.eval[1] == with.eval[1] && split.loss[2] == with.loss[2]);
	}
	same_file(&t, "with", "again", "adapter_model.safetensors");
	tiny_remove(&t);
}

/* The same records, of which others are held out, are other data. */
static void others_are_held_out(void **state)
{
	(void)state;
	struct tiny t;
	char test[900];
	tiny_make(&t, 2, 40);
	static const char *const from[] = { "30", "20" };
	for (int i = 0; i < 2; i++) {
		struct err e = { 0 };
		struct train_result res;
		char data[600];
		snprintf(data, sizeof data,
			 "datasets=[{path: %s/data.jsonl, type: completion, split: 'train[:%s]'}]",
			 t.dir, from[i]);
		snprintf(test, sizeof test,
			 "test_datasets=[{path: %s/data.jsonl, type: completion, split: "
			 "'train[%s:]'}]",
			 t.dir, from[i]);
		struct config *c = tiny_config(
			&t, "moved",
			WITH(i ? "max_steps=4" : "max_steps=3", data, test, "val_set_size=0",
			     i ? "resume_from_checkpoint=latest" : "save_steps=1"));
		const int rc = train_run(c, &(struct train_options){ 0 }, &(struct train_sink){ 0 },
					 &res, &e);
		config_free(c);
		if (i ? rc >= 0 || !strstr(e.msg, "the training data has changed") : rc < 0)
			fail_msg("%d: %s", i, e.msg);
	}
	tiny_remove(&t);
}

/* As pictures and messages say them. */
static void microbatches_in_words(void **state)
{
	struct config c = { .gradient_accumulation_steps = 1, .micro_batch_size = 2 };
	const struct job j = { .cfg = &c };
	char text[60];
	(void)state;
	job_passes_text(&j, text, sizeof text);
	assert_string_equal(text, "1 microbatch of 2");
	c.gradient_accumulation_steps = 11;
	job_passes_text(&j, text, sizeof text);
	assert_string_equal(text, "11 microbatches of 2");
}

/* Evaluations and checkpoints so many times in a pass over the data. */
static void times_in_an_epoch(void **state)
{
	(void)state;
	struct tiny t;
	struct record r = { 0 };
	char path[400];
	tiny_make(&t, 2, 40);
	struct config *c = tiny_config(
		&t, "run",
		WITH("max_steps=7", "saves_per_epoch=2", "save_steps=0", "evals_per_epoch=3"));
	c->num_epochs = 1;
	struct record *p = &r;
	const char *device[1] = { "cpu" };
	const struct placement one = {
		.stages = 1, .chunks = 1, .first = { 0, 2 }, .device = device, .schedule = "1f1b"
	};
	const struct train_sink sink = { .ctx = p, .step = on_step, .eval = on_eval };
	const struct train_options o = { .stop = &p->stop, .place = &one, .act = DT_F32 };
	struct err e = { 0 };
	if (train_run(c, &o, &sink, &p->res, &e) < 0)
		fail_msg("%s", e.msg);
	config_free(c);
	/* 36 examples, 6 a step: 6 steps an epoch; evaluations before, after 2, 4, 6 and 7 */
	assert_int_equal(r.neval, 5);
	for (int s = 1; s <= 7; s++) {
		snprintf(path, sizeof path, "%s/run/checkpoints/step-%06d", t.dir, s);
		assert_int_equal(access(path, F_OK) == 0, s == 3 || s == 6 || s == 7);
	}
	tiny_remove(&t);
}

/* A run that begins with the adapter of another one begins with its loss; an adapter of another
 * shape is refused. */
static void an_adapter_to_begin_with(void **state)
{
	(void)state;
	struct tiny t;
	struct record a = { 0 }, b = { 0 }, none = { 0 };
	char from[300];
	tiny_make(&t, LAYERS, 40);
	watch(&t, "first", &a, WITH("max_steps=3"));
	snprintf(from, sizeof from, "lora_model_dir=%s/first", t.dir);
	watch(&t, "second", &b, WITH("max_steps=2", from));
	assert_true(b.res.val_before == a.res.val_after);
	assert_true(b.res.val_after < b.res.val_before);
	static const struct {
		const char *key, *says;
	} wrong[] = { { "lora_r=8", "its rank is 4 and lora_r is 8" },
		      { "lora_alpha=4", "its scale is 2 and that of lora_alpha" },
		      { "lora_target_linear=false", "it has weights for 28 modules" } };
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct err e = { 0 };
		struct config *c = tiny_config(&t, "refused", WITH(from, wrong[i].key));
		const char *device[1] = { "cpu" };
		const struct placement one = { .stages = 1,
					       .chunks = 1,
					       .first = { 0, LAYERS },
					       .device = device,
					       .schedule = "1f1b" };
		const struct train_sink sink = { .ctx = &none };
		const struct train_options o = { .place = &one, .act = DT_F32 };
		assert_true(train_run(c, &o, &sink, &none.res, &e) < 0);
		if (!strstr(e.msg, wrong[i].says))
			fail_msg("%s: %s", wrong[i].key, e.msg);
		config_free(c);
	}
	tiny_remove(&t);
}

/* Of a model whose head is its embedding, copies of both are trained, as PEFT does. */
static void copies_of_a_tied_head(void **state)
{
	(void)state;
	struct tiny t;
	struct record whole = { 0 }, none = { 0 };
	tiny_make_tied(&t, LAYERS, 40);
	const char *const how[] = { "reduce_order=exact",
				    "lora_modules_to_save=embed_tokens,lm_head", NULL };
	struct config *c = tiny_config(&t, "one", how);
	train(c, NULL, &whole);
	assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
	struct config *plain = tiny_config(&t, "plain", how + 2);
	train(plain, NULL, &none);
	assert_true(none.loss[0] == whole.loss[0] && none.loss[3] != whole.loss[3]);
	for (size_t k = 0; k < ARRAY_LEN(splits); k += 2) {
		struct record r = { 0 };
		struct config *other = tiny_config(&t, splits[k].name, how);
		train(other, &splits[k], &r);
		same(&t, c, "one", splits[k].name);
		config_free(other);
	}
	config_free(plain);
	config_free(c);
	tiny_remove(&t);
}

/* One configuration of each kind of layer: adapters and all parameters give the same bits on every
 * split. */
static void families(void **state)
{
	(void)state;
	static const char *const config[] = {
		"{\"model_type\":\"gemma2\"," TINY_COMMON
		",\"head_dim\":16,\"sliding_window\":20,\"query_pre_attn_scalar\":16,"
		"\"attn_logit_softcapping\":5.0}",
		"{\"model_type\":\"gemma3_text\"," TINY_COMMON
		",\"head_dim\":16,\"sliding_window\":20,\"sliding_window_pattern\":2}",
		"{\"model_type\":\"gemma4_text\"," TINY_COMMON
		",\"head_dim\":16,\"global_head_dim\":24,\"num_global_key_value_heads\":1,"
		"\"attention_k_eq_v\":true,\"sliding_window\":20,"
		"\"hidden_size_per_layer_input\":0,\"layer_types\":[\"sliding_attention\","
		"\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
		"{\"model_type\":\"phi3\"," TINY_COMMON
		",\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":40,"
		"\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1.5],"
		"\"long_factor\":[2,5]}}",
		"{\"model_type\":\"glm4\"," TINY_COMMON ",\"head_dim\":8}",
		"{\"model_type\":\"lfm2\"," TINY_COMMON
		",\"block_multiple_of\":4,\"full_attn_idxs\":[1,2]}",
		"{\"model_type\":\"lfm3\"," TINY_COMMON
		",\"head_dim\":16,\"sliding_window\":20,\"layer_types\":[\"conv\","
		"\"full_attention\",\"sliding_attention\",\"conv\"]}",
		"{\"model_type\":\"granitemoehybrid\"," TINY_COMMON
		",\"num_local_experts\":0,\"shared_intermediate_size\":28,"
		"\"position_embedding_type\":\"rope\",\"layer_types\":[\"attention\","
		"\"attention\",\"attention\",\"attention\"]}",
	};
	for (size_t i = 0; i < ARRAY_LEN(config) * 2; i++) {
		struct tiny t;
		struct record whole = { 0 };
		const bool full = i % 2;
		tiny_make_model(&t, config[i / 2], 40);
		assert_int_equal(t.layers, LAYERS);
		const char *const how[] = { "reduce_order=exact",
					    full ? "adapter=none" : "lora_dropout=0.1",
					    full ? "learning_rate=0.001" : "lora_r=3", NULL };
		struct config *c = tiny_config(&t, "one", how);
		train(c, NULL, &whole);
		assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
		for (size_t k = 0; k < ARRAY_LEN(splits); k += 2) {
			struct record r = { 0 };
			struct config *other = tiny_config(&t, splits[k].name, how);
			train(other, &splits[k], &r);
			for (size_t s = 0; s < STEPS; s++)
				assert_true(r.loss[s] == whole.loss[s]);
			same(&t, c, "one", splits[k].name);
			config_free(other);
		}
		print_message("%.40s: loss %.4f to %.4f\n", config[i / 2] + 2, whole.loss[0],
			      whole.loss[STEPS - 1]);
		config_free(c);
		tiny_remove(&t);
	}
}

static int count_in(const struct tiny *t, const char *file, const char *what)
{
	size_t n, seen = 0;
	char *text = tiny_read(t, file, &n);
	for (size_t i = 0, k = strlen(what); i + k <= n; i++)
		seen += !memcmp(text + i, what, k);
	mem_free(text);
	return (int)seen;
}

/* The language model of a folder that has a model for pictures too: it is trained as if it were
 * alone, and its adapter has the names that the whole model has in PEFT, also when it is resumed
 * and when another run begins with it. */
static void a_language_model_inside(void **state)
{
	(void)state;
	static const char text[] =
		"{\"model_type\":\"gemma3_text\"," TINY_COMMON
		",\"head_dim\":16,\"sliding_window\":20,\"sliding_window_pattern\":2}";
	static const char *const how[] = { "reduce_order=exact",
					   "lora_modules_to_save=embed_tokens", "save_steps=3" };
	struct tiny t;
	struct record alone = { 0 }, inside = { .stop_after = 3 }, rest = { 0 }, on[2] = { 0 };
	char path[300], begin[300];
	tiny_make_model(&t, text, 40);
	watch(&t, "alone", &alone, WITH(how[0], how[1], how[2]));
	snprintf(begin, sizeof begin, "lora_model_dir=%s/alone", t.dir);
	watch(&t, "on alone", &on[0], WITH(how[0], how[1], begin));
	snprintf(path, sizeof path, "%s/model/config.json", t.dir);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "{\"model_type\":\"gemma3\",\"text_config\":%s}", text);
	assert_int_equal(fclose(f), 0);
	watch(&t, "inside", &inside, WITH(how[0], how[1], how[2]));
	assert_true(inside.res.interrupted);
	watch(&t, "inside", &rest, WITH(how[0], how[1], how[2], "resume_from_checkpoint=latest"));
	same_file(&t, "alone/checkpoints/step-000006", "inside/checkpoints/step-000006",
		  "optimizer.safetensors");
	assert_int_equal(count_in(&t, "alone/adapter_model.safetensors", "language_model."), 0);
	assert_int_equal(count_in(&t, "inside/adapter_model.safetensors",
				  "\"base_model.model.model.language_model."),
			 2 * 7 * LAYERS + 1);
	assert_int_equal(count_in(&t, "inside/adapter_config.json", "exclude_modules"), 1);
	snprintf(begin, sizeof begin, "lora_model_dir=%s/inside", t.dir);
	watch(&t, "on inside", &on[1], WITH(how[0], how[1], begin));
	assert_memory_equal(on[0].loss, on[1].loss, STEPS * sizeof *on[0].loss);
	tiny_remove(&t);
}

/* Base and first adapter of PiSSA: together they are the model as it was; a second run of the same
 * configuration uses them again; another rank, and a base in 4 bits, are refused. */
static void pissa(void **state)
{
	(void)state;
	struct tiny t;
	struct record r = { 0 };
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	struct model_file *was, *now;
	struct stat one, two;
	char path[300];
	tiny_make(&t, LAYERS, 40);
#define PISSA(rank)                                                                                \
	"max_steps=2", "adapter=lora", "lora_r=" rank, "lora_alpha=6",                             \
		"peft_init_lora_weights=pissa_niter_4", "lora_target_linear=true"
	watch(&t, "run", &r, WITH(PISSA("3")));
	snprintf(path, sizeof path, "%s/run-pissa/base", t.dir);
	assert_int_equal(model_file_open(path, &now, &e), 0);
	snprintf(path, sizeof path, "%s/model", t.dir);
	assert_int_equal(model_file_open(path, &was, &e), 0);
	snprintf(path, sizeof path, "%s/run-pissa/first", t.dir);
	assert_int_equal(peft_read(path, &a, &ad, &e), 0);
	assert_int_equal(ad.npair, 7 * LAYERS);
	for (size_t i = 0; i < ad.npair; i++) {
		const struct peft_pair *p = &ad.pair[i];
		snprintf(path, sizeof path, "%s.weight", p->module);
		const struct model_tensor *x = model_file_find(was, path),
					  *y = model_file_find(now, path);
		float *w = mem_array(x->count, 4), *v = mem_array(x->count, 4);
		double off = 0, most = 0, less = 0;
		assert_int_equal(model_file_read_f32(was, x, 0, p->out, w, &e), 0);
		assert_int_equal(model_file_read_f32(now, y, 0, p->out, v, &e), 0);
		for (int64_t k = 0; k < p->out * p->in; k++) {
			double sum = (double)v[k];
			for (int q = 0; q < p->r; q++)
				sum += p->scale * (double)p->b[k / p->in * p->r + q] *
				       (double)p->a[q * p->in + k % p->in];
			off = fmax(off, fabs(sum - (double)w[k]));
			most = fmax(most, fabs((double)w[k]));
			less += (double)w[k] * (double)w[k] - (double)v[k] * (double)v[k];
		}
		if (!(off <= most / 128) || !(less > 0))
			fail_msg("%s: differs by %g, largest %g", p->module, off, most);
		mem_free(w);
		mem_free(v);
	}
	model_file_close(was);
	model_file_close(now);
	arena_release(&a);
	snprintf(path, sizeof path, "%s/run-pissa/base/model.safetensors", t.dir);
	assert_int_equal(stat(path, &one), 0);
	const char *const again[] = { PISSA("3"), "overwrite_output_dir=true", NULL };
	struct config *c = tiny_config(&t, "run", again);
	struct record r2 = { 0 };
	train(c, NULL, &r2);
	assert_true(r2.loss[1] == r.loss[1]);
	assert_int_equal(stat(path, &two), 0);
	assert_true(one.st_ino == two.st_ino && one.st_mtime == two.st_mtime);
	config_free(c);
	const char *const other[] = { PISSA("2"), "overwrite_output_dir=true", NULL };
	const struct train_options o = { .act = DT_F32 };
	const struct train_sink sink = { 0 };
	c = tiny_config(&t, "run", other);
	assert_int_equal(train_run(c, &o, &sink, &r.res, &e), ERR_USAGE);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "was made of another model, rank or modules"));
	config_free(c);
	/* Ctrl-C; another process at the same time; what one left that was killed */
	static const char *const three[] = { PISSA("3"), NULL };
	const volatile sig_atomic_t stop = 1;
	const struct train_options stopped = { .act = DT_F32, .stop = &stop };
	c = tiny_config(&t, "two", three);
	assert_int_equal(train_run(c, &stopped, &sink, &r.res, &e), ERR_CANCELLED);
	assert_non_null(strstr(e.msg, "interrupted"));
	snprintf(path, sizeof path, "%s/two-pissa", t.dir);
	assert_int_not_equal(stat(path, &two), 0);
	static const char *const loftq[] = { "adapter=qlora", "peft_init_lora_weights=loftq",
					     NULL };
	struct config *l = tiny_config(&t, "loftq", loftq);
	assert_int_equal(train_run(l, &stopped, &sink, &r.res, &e), ERR_CANCELLED);
	assert_non_null(strstr(e.msg, "interrupted before the adapters"));
	config_free(l);
	struct file_lock lock = FILE_LOCK_INIT;
	char stale[200];
	snprintf(path, sizeof path, "%s/two-pissa/minus", t.dir);
	assert_int_equal(dir_make(path, &e), 0);
	snprintf(path, sizeof path, "%s/two-pissa/base", t.dir);
	assert_int_equal(dir_make(path, &e), 0);
	snprintf(path, sizeof path, "%s/two-pissa/minus/lock", t.dir);
	assert_int_equal(file_lock_take(path, &lock, stale, sizeof stale, &e), 0);
	assert_int_equal(train_run(c, &o, &sink, &r.res, &e), ERR_USAGE);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "another run makes the base"));
	assert_int_equal(stat(path, &two), 0);
	file_lock_release(&lock);
	config_free(c);
	struct record r3 = { 0 };
	watch(&t, "two", &r3, WITH(PISSA("3")));
	assert_true(r3.loss[1] == r.loss[1]);
	assert_int_not_equal(stat(path, &two), 0);
	tiny_remove(&t);
	/* a base in 4 bits */
	char line[900];
	tiny_make(&t, LAYERS, 40);
	snprintf(line, sizeof line,
		 "cp -r tests/golden/models/smollm2-nf4-dq '%.200s/four' && cp "
		 "tests/golden/models/smollm2/tokenizer*.json '%.200s/four'",
		 t.dir, t.dir);
	assert_int_equal(system(line), 0);
	snprintf(line, sizeof line, "base_model=%.200s/four", t.dir);
	const char *const four[] = { line, PISSA("3"), "adapter=qlora", NULL };
	c = tiny_config(&t, "run", four);
	assert_true(train_run(c, &o, &sink, &r.res, &e) < 0);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "changes the base"));
	snprintf(path, sizeof path, "%s/run-pissa", t.dir);
	assert_int_not_equal(stat(path, &one), 0);
	config_free(c);
	tiny_remove(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	one_thread_each(argv);
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_reference_that_is_not_finite),
					    cmocka_unit_test(families),
					    cmocka_unit_test(a_language_model_inside),
					    cmocka_unit_test(examples),
					    cmocka_unit_test(pissa),
					    cmocka_unit_test(early_stopping),
					    cmocka_unit_test(evaluated_by_dataset),
					    cmocka_unit_test(copies_of_a_tied_head),
					    cmocka_unit_test(evaluated_apart),
					    cmocka_unit_test(preferences_drop_nothing),
					    cmocka_unit_test(no_reference_of_nothing),
					    cmocka_unit_test(evaluated_on_other_data),
					    cmocka_unit_test(others_are_held_out),
					    cmocka_unit_test(microbatches_in_words),
					    cmocka_unit_test(times_in_an_epoch),
					    cmocka_unit_test(an_adapter_to_begin_with) };
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
