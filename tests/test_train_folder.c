/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_folder.c - output_dir is safe: which checkpoint is the newest, what may be
 * replaced and when the old run goes, two runs in one folder, full disks, damaged checkpoints,
 * changed jobs. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/lock.h"
#include "job/checkpoint_list.h"
#include "support/tiny.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { RATES = 32 };

struct seen {
	double rate[RATES]; /* of step i+1 */
	size_t n;
	const char *fill; /* a file that is made as large as the disk allows at step `fill_at` */
	uint64_t fill_at;
	int blocked; /* how often the end could not be saved */
	const char *other;
	bool makes_room, lost;
	char newest[512];
	int saved;
};

static const char *at(const struct tiny *t, const char *fmt, ...)
{
	static char path[8][1024];
	static int k;
	char *p = path[k++ % 8];
	va_list ap;
	int n = snprintf(p, 512, "%s/", t->dir);
	va_start(ap, fmt);
	vsnprintf(p + n, 512, fmt, ap);
	va_end(ap);
	return p;
}

static void fill_disk(const char *path)
{
	static char block[4096];
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	setvbuf(f, NULL, _IONBF, 0);
	while (fwrite(block, 1, sizeof block, f) == sizeof block) {
	}
	fclose(f);
}

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct seen *v = ctx;
	(void)e;
	if (s->step <= RATES)
		v->rate[s->step - 1] = s->learning_rate;
	v->n++;
	if (v->fill && s->step == v->fill_at)
		fill_disk(v->fill);
	return 0;
}

static int on_blocked(void *ctx, const char *why, char *other, size_t cap)
{
	struct seen *v = ctx;
	printf("  %s\n", why);
	if (v->blocked++ > 3)
		return -1;
	if (v->makes_room)
		unlink(v->fill);
	if (v->other)
		snprintf(other, cap, "%s", v->other);
	return 0;
}

static void on_lost(void *ctx, const char *newest)
{
	struct seen *v = ctx;
	v->lost = true;
	snprintf(v->newest, sizeof v->newest, "%s", newest ? newest : "");
}

static int on_saved(void *ctx, uint64_t step, const char *path, struct err *e)
{
	struct seen *v = ctx;
	(void)step;
	(void)path;
	(void)e;
	v->saved++;
	return 0;
}

static int train(const struct tiny *t, const char *run, struct seen *v, bool allow,
		 const char *const *more, struct err *e)
{
	struct config *c = tiny_config(t, run, more);
	struct train_result res;
	struct seen none = { 0 };
	const struct train_sink sink = { .ctx = v ? v : &none,
					 .step = on_step,
					 .saved = on_saved,
					 .blocked = on_blocked,
					 .lost = on_lost };
	*e = (struct err){ 0 };
	int rc = train_run(c, &(struct train_options){ .allow_changes = allow }, &sink, &res, e);
	config_free(c);
	return rc;
}

#define WITH(...)                                                                                  \
	(const char *const[])                                                                      \
	{                                                                                          \
		"profile=none", "val_set_size=0", "warmup_steps=0", "micro_batch_size=1",          \
			"gradient_accumulation_steps=1", __VA_ARGS__, NULL                         \
	}

static void works(const struct tiny *t, const char *run, struct seen *v, const char *const *more)
{
	struct err e;
	if (train(t, run, v, false, more, &e) < 0)
		fail_msg("%s: %s", run, e.msg);
}

static void refused(const struct tiny *t, const char *run, const char *const *more,
		    const char *says)
{
	struct err e;
	if (train(t, run, NULL, false, more, &e) >= 0)
		fail_msg("'%s' was expected, and it went through", says);
	if (!strstr(e.msg, says) || strchr(e.msg, '\n'))
		fail_msg("'%s' was expected in: %s", says, e.msg);
	printf("  %s\n", e.msg);
}

static bool there(const char *path)
{
	struct stat st;
	return !lstat(path, &st);
}

static void put(const char *path, const char *text)
{
	struct err e;
	if (atomic_write_file(path, text, strlen(text), &e) < 0)
		fail_msg("%s", e.msg);
}

static void latest_is(const struct tiny *t, const char *run, const char *name)
{
	struct arena a = ARENA_INIT;
	const char *path;
	struct err e;
	if (checkpoint_latest(at(t, "%s", run), &a, &path, &e) < 0)
		fail_msg("%s", e.msg);
	if (!path || strcmp(strrchr(path, '/') + 1, name))
		fail_msg("latest is %s, not %s", path ? path : "none", name);
	arena_release(&a);
}

static void same(const char *a, const char *b)
{
	struct buf x = BUF_INIT, y = BUF_INIT;
	struct err e;
	if (buf_read_file(&x, a, 0, &e) < 0 || buf_read_file(&y, b, 0, &e) < 0)
		fail_msg("%s", e.msg);
	if (x.n != y.n || memcmp(x.p, y.p, x.n))
		fail_msg("%s and %s differ", a, b);
	buf_release(&x);
	buf_release(&y);
}

/* ---- which one is the newest ---- */

static void newest_is_what_was_written_last(void **state)
{
	(void)state;
	struct tiny t;
	struct err e;
	tiny_make(&t, 2, 30);
	works(&t, "run", NULL, WITH("save_steps=1", "max_steps=4", "num_epochs=1"));
	latest_is(&t, "run", "step-000004");
	char back[1024];
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "run/checkpoints/step-000001/"));
	/* the branch that was left is not the newest, also before anything was saved */
	size_t left;
	assert_true(checkpoint_resumed(at(&t, "run"), "step-000001", &left, &e) >= 0);
	assert_int_equal(left, 3);
	latest_is(&t, "run", "step-000001");
	works(&t, "run", NULL, WITH(back, "save_steps=1", "max_steps=2", "save_total_limit=3"));
	latest_is(&t, "run", "step-000002");
	/* of five, the abandoned 3 and 4 went first; the parent of 2 is still there */
	assert_true(there(at(&t, "run/checkpoints/step-000001")));
	assert_true(there(at(&t, "run/checkpoints/step-000002")));
	works(&t, "run", NULL,
	      WITH("resume_from_checkpoint=latest", "save_steps=1", "max_steps=3",
		   "save_total_limit=1"));
	latest_is(&t, "run", "step-000003");
	assert_false(there(at(&t, "run/checkpoints/step-000004")));
	assert_true(there(at(&t, "run/checkpoints/step-000003")));
	/* what is recorded as the newest and gone is not silently another one */
	works(&t, "run", NULL,
	      WITH("resume_from_checkpoint=latest", "save_steps=1", "max_steps=5"));
	assert_true(dir_remove(at(&t, "run/checkpoints/step-000005"), &e) >= 0);
	refused(&t, "run", WITH("resume_from_checkpoint=latest"), "but is missing");
	tiny_remove(&t);
}

/* A resumed run is the same whether it goes back in its own folder or not. */
static void going_back_gives_the_same_bits(void **state)
{
	(void)state;
	struct tiny t;
	tiny_make(&t, 2, 30);
	works(&t, "run", NULL, WITH("save_steps=2", "max_steps=6"));
	char back[1024];
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "run/checkpoints/step-000002"));
	works(&t, "other", NULL, WITH(back, "save_steps=2", "max_steps=6"));
	same(at(&t, "run/adapter_model.safetensors"), at(&t, "other/adapter_model.safetensors"));
	/* a checkpoint of another run is no reason to write into a folder that holds a third one */
	refused(&t, "other", WITH(back), "already holds a run");
	tiny_remove(&t);
}

static void a_timed_checkpoint_replaces_the_one_before(void **state)
{
	(void)state;
	struct tiny t;
	struct checkpoint_entry *v;
	struct seen seen = { 0 };
	size_t n;
	struct err e;
	tiny_make(&t, 2, 30);
	/* due after every step */
	works(&t, "run", &seen, WITH("save_steps=4", "save_minutes=1e-9", "max_steps=6"));
	assert_int_equal(seen.saved, 6);
	assert_true(checkpoint_list(at(&t, "run"), &v, &n, &e) >= 0);
	assert_int_equal(n, 2);
	assert_int_equal(v[0].step, 4);
	assert_int_equal(v[1].step, 6);
	assert_false(v[0].timed);
	mem_free(v);
	tiny_remove(&t);
}

/* A run that ended before its first step is no reason to ask; one that trained is, and what can be
 * done about it depends on whether it saved. */
static void what_did_nothing_is_begun_again(void **state)
{
	(void)state;
	struct tiny t;
	struct err e;
	static const char latest[] = "resume_from_checkpoint=latest";
	tiny_make(&t, 2, 20);
	refused(&t, "none", WITH(latest), "leave it out to begin a run");
	assert_true(dir_make(at(&t, "early"), &e) >= 0);
	put(at(&t, "early/run.json"), "{}");
	put(at(&t, "early/metrics.jsonl"), "{\"step\": 0, \"val_loss\": 3.5}\n");
	/* killed while a snapshot came, before the first checkpoint */
	assert_true(dir_make(at(&t, "early/checkpoints/incoming.tmp"), &e) >= 0);
	put(at(&t, "early/checkpoints/incoming.tmp/model.safetensors"), "begun");
	works(&t, "early", NULL, WITH("max_steps=1"));
	assert_true(dir_make(at(&t, "late"), &e) >= 0);
	put(at(&t, "late/run.json"), "{}");
	put(at(&t, "late/metrics.jsonl"), "{\"step\": 1, \"loss\": 3.5}\n");
	refused(&t, "late", NULL, "holds a run, which has no checkpoint: replace it");
	refused(&t, "late", WITH(latest), "overwrite_output_dir=true replaces the one");
	refused(&t, "early", NULL, "holds a run: resume it");
	tiny_remove(&t);
}

/* ---- what is replaced, and when ---- */

static void only_runs_are_replaced(void **state)
{
	(void)state;
	struct tiny t;
	tiny_make(&t, 2, 20);
	/* the model itself */
	refused(&t, "model", WITH("overwrite_output_dir=true"), "holds base_model");
	refused(&t, "model", NULL, "holds base_model");
	assert_true(there(at(&t, "model/model.safetensors")));
	/* the folder of everything */
	put(at(&t, "run.json"), "{}");
	refused(&t, "", WITH("overwrite_output_dir=true"), "holds base_model");
	unlink(at(&t, "run.json"));
	/* somebody's result that is not of a run */
	struct err e;
	assert_true(dir_make(at(&t, "mine"), &e) >= 0);
	put(at(&t, "mine/adapter_config.json"), "{}");
	refused(&t, "mine", NULL, "which is not of a run");
	refused(&t, "mine", WITH("overwrite_output_dir=true"), "which is not of a run");
	/* a run with a file of the user's in it, at any depth */
	works(&t, "run", NULL,
	      WITH("max_steps=2", "tensorboard=true", "trace=true", "visualize=true"));
	struct err made;
	assert_true(dir_make(at(&t, "run/tensorboard"), &made) >= 0);
	static const char *const stray[] = { "notes.txt", "checkpoints/README",
					     "checkpoints/step-000002/mine.bin", "tensorboard/x" };
	for (size_t i = 0; i < ARRAY_LEN(stray); i++) {
		put(at(&t, "run/%s", stray[i]), "mine");
		refused(&t, "run", WITH("overwrite_output_dir=true"), stray[i]);
		assert_true(there(at(&t, "run/adapter_model.safetensors")));
		unlink(at(&t, "run/%s", stray[i]));
	}
	/* everything that a run writes is known: without those it is replaced */
	put(at(&t, "run/prediction.json"), "{}");
	works(&t, "run", NULL, WITH("max_steps=1", "overwrite_output_dir=true"));
	assert_false(there(at(&t, "run/checkpoints/step-000002")));
	assert_false(there(at(&t, "run/prediction.json")));
	assert_false(there(at(&t, "run.old")));
	tiny_remove(&t);
}

static unsigned mode_of(const char *path)
{
	struct stat st;
	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

/* By the umask, and never by everybody; a folder that is there keeps what its owner chose. */
static void who_may_read_a_run(void **state)
{
	(void)state;
	struct tiny t;
	tiny_make(&t, 2, 20);
	mode_t old = umask(0);
	works(&t, "wide", NULL, WITH("max_steps=1"));
	umask(077);
	works(&t, "narrow", NULL, WITH("max_steps=1"));
	umask(022);
	works(&t, "shown", NULL, WITH("max_steps=1"));
	assert_int_equal(mode_of(at(&t, "wide")), 0750);
	assert_int_equal(mode_of(at(&t, "narrow")), 0700);
	assert_int_equal(mode_of(at(&t, "narrow/run.json")), 0600);
	assert_int_equal(mode_of(at(&t, "narrow/adapter_model.safetensors")), 0600);
	assert_int_equal(mode_of(at(&t, "shown")), 0750);
	assert_int_equal(mode_of(at(&t, "shown/run.json")), 0644);
	assert_int_equal(chmod(at(&t, "shown"), 0755), 0);
	works(&t, "shown", NULL, WITH("max_steps=1", "overwrite_output_dir=true"));
	assert_int_equal(mode_of(at(&t, "shown")), 0755);
	umask(old);
	tiny_remove(&t);
}

/* A log that leads elsewhere is not followed when a run goes on. */
static void logs_lead_nowhere(void **state)
{
	(void)state;
	struct tiny t;
	struct err e;
	struct buf b = BUF_INIT;
	tiny_make(&t, 2, 20);
	works(&t, "run", NULL, WITH("max_steps=1", "save_steps=1"));
	put(at(&t, "mine"), "mine\n");
	unlink(at(&t, "run/samples.jsonl"));
	assert_int_equal(symlink("../mine", at(&t, "run/samples.jsonl")), 0);
	works(&t, "run", NULL,
	      WITH("max_steps=2", "resume_from_checkpoint=latest", "sample_prompts=[x]",
		   "sample_steps=1", "sample_max_tokens=2"));
	assert_int_equal(buf_read_file(&b, at(&t, "mine"), 0, &e), 0);
	assert_string_equal(b.p, "mine\n");
	buf_release(&b);
	/* nor do folders of logs, in a run that somebody gave away */
	static const char *const folder[] = { "run/tensorboard", "run/mlruns", "run/wandb" };
	assert_true(dir_make(at(&t, "away"), &e) >= 0);
	for (size_t i = 0; i < ARRAY_LEN(folder); i++) {
		assert_true(dir_remove(at(&t, folder[i]), &e) >= 0);
		assert_int_equal(symlink("../away", at(&t, folder[i])), 0);
		refused(&t, "run", WITH("max_steps=3", "resume_from_checkpoint=latest"),
			"is a link and is not written through");
		refused(&t, "run", WITH("max_steps=3", "overwrite_output_dir=true"),
			"which is a link, so it is not replaced");
		unlink(at(&t, folder[i]));
	}
	tiny_remove(&t);
}

static void an_old_run_stays_until_the_new_one_runs(void **state)
{
	(void)state;
	struct tiny t;
	struct err e;
	tiny_make(&t, 2, 20);
	works(&t, "run", NULL, WITH("max_steps=2"));
	assert_true(rename(at(&t, "run/adapter_model.safetensors"), at(&t, "kept")) == 0);
	put(at(&t, "run/adapter_model.safetensors"), "old");
	/* before it begins: a device that is not there; data that is not there */
	refused(&t, "run", WITH("overwrite_output_dir=true", "device=cuda:99"), "cuda");
	assert_true(there(at(&t, "run/checkpoints/step-000002")));
	assert_false(there(at(&t, "run.old")));
	/* after it began, before its first checkpoint */
	struct seen v = { 0 };
	assert_true(train(&t, "run", &v, false,
			  WITH("overwrite_output_dir=true", "learning_rate=10", "weight_decay=10",
			       "max_grad_norm=0", "warmup_steps=0", "max_steps=60",
			       "max_nonfinite_steps=3", "adapter=none", "optimizer=sgd",
			       "save_steps=0"),
			  &e) < 0);
	printf("  %s\n", e.msg);
	assert_true(v.lost && !v.newest[0]);
	assert_true(there(at(&t, "run/checkpoints/step-000002")));
	assert_false(there(at(&t, "run/run.lock")));
	assert_false(there(at(&t, "run.old")));
	put(at(&t, "expected"), "old");
	same(at(&t, "run/adapter_model.safetensors"), at(&t, "expected"));
	/* a new run that was killed early leaves the old one beside; it counts, not the
	 * early one */
	assert_true(rename(at(&t, "run"), at(&t, "run.old")) == 0);
	assert_true(dir_make(at(&t, "run"), &e) >= 0);
	put(at(&t, "run/run.json"), "{}");
	put(at(&t, "run/metrics.jsonl"), "");
	assert_true(train(&t, "run", NULL, false,
			  WITH("overwrite_output_dir=true", "learning_rate=10", "weight_decay=10",
			       "max_grad_norm=0", "warmup_steps=0", "max_steps=60",
			       "max_nonfinite_steps=3", "adapter=none", "optimizer=sgd",
			       "save_steps=0"),
			  &e) < 0);
	assert_true(there(at(&t, "run/checkpoints/step-000002")));
	/* and a run that ends well takes its place */
	works(&t, "run", NULL, WITH("max_steps=1", "overwrite_output_dir=true"));
	assert_false(there(at(&t, "run/checkpoints/step-000002")));
	assert_false(there(at(&t, "run.old")));
	tiny_remove(&t);
}

static void one_run_in_a_folder(void **state)
{
	(void)state;
	struct tiny t;
	struct file_lock l = FILE_LOCK_INIT;
	char stale[256];
	struct err e;
	tiny_make(&t, 2, 20);
	works(&t, "run", NULL, WITH("max_steps=1"));
	assert_false(there(at(&t, "run/run.lock")));
	assert_true(file_lock_take(at(&t, "run/run.lock"), &l, stale, sizeof stale, &e) >= 0);
	assert_string_equal(stale, "");
	refused(&t, "run", WITH("overwrite_output_dir=true"), "in use by process");
	refused(&t, "run", WITH("resume_from_checkpoint=latest"), "in use by process");
	file_lock_release(&l);
	/* left by a process that was killed */
	put(at(&t, "run/run.lock"), "{\"host\": \"box\", \"pid\": 7, \"started\": 1700000000}");
	assert_true(file_lock_take(at(&t, "run/run.lock"), &l, stale, sizeof stale, &e) >= 0);
	assert_string_equal(stale, "process 7 on box, started 2023-11-14 22:13:20 UTC");
	file_lock_release(&l);
	put(at(&t, "run/run.lock"), "torn");
	works(&t, "run", NULL, WITH("max_steps=1", "overwrite_output_dir=true"));
	tiny_remove(&t);
}

/* What training all parameters gives is a model, with its tokenizer. */
static void a_full_result_can_be_opened(void **state)
{
	(void)state;
	static const char *const beside[] = { "tokenizer.json", "tokenizer_config.json" };
	struct tiny t;
	struct model_file *f;
	struct model_config c;
	struct tokenizer *tok;
	struct err e;
	tiny_make(&t, 2, 20);
	works(&t, "full", NULL, WITH("max_steps=1", "adapter=none"));
	assert_true(model_file_open(at(&t, "full"), &f, &e) >= 0);
	assert_true(model_config_read(model_file_config(f), "full", &c, &e) >= 0);
	if (runtime_tokenizer(f, &c, &tok, &e) < 0)
		fail_msg("%s", e.msg);
	tokenizer_free(tok);
	model_file_close(f);
	for (size_t i = 0; i < ARRAY_LEN(beside); i++)
		same(at(&t, "full/%s", beside[i]), at(&t, "model/%s", beside[i]));
	assert_true(there(at(&t, "full/generation_config.json")));
	assert_true(there(at(&t, "full/checkpoints/step-000001/tokenizer.json")));
	works(&t, "full", NULL, WITH("max_steps=1", "adapter=none", "overwrite_output_dir=true"));
	tiny_remove(&t);
}

/* ---- damaged and changed ---- */

static void flip(const char *path, long from_end)
{
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
	int c = fgetc(f);
	assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
	fputc(c ^ 1, f);
	fclose(f);
}

static void a_flipped_bit_is_noticed(void **state)
{
	(void)state;
	static const char *const file[] = { "optimizer.safetensors", "adapter_model.safetensors",
					    "trainer_state.json", "adapter_config.json" };
	struct tiny t;
	tiny_make(&t, 2, 20);
	works(&t, "run", NULL, WITH("max_steps=4", "save_steps=2"));
	for (size_t i = 0; i < ARRAY_LEN(file); i++) {
		const char *path = at(&t, "run/checkpoints/step-000004/%s", file[i]);
		flip(path, i == 2 ? 100 : 40);
		refused(&t, "run", WITH("resume_from_checkpoint=latest", "save_steps=2"), file[i]);
		refused(&t, "run", WITH("resume_from_checkpoint=latest", "save_steps=2"),
			"step-000002 is whole");
		flip(path, i == 2 ? 100 : 40);
	}
	/* what an earlier part of the run left and this one does not write is gone */
	put(at(&t, "run/prediction.json"), "{}");
	put(at(&t, "run/profile.json"), "{}");
	works(&t, "run", NULL, WITH("resume_from_checkpoint=latest", "max_steps=5"));
	assert_false(there(at(&t, "run/prediction.json")));
	assert_false(there(at(&t, "run/profile.json")));
	tiny_remove(&t);
}

static void what_changed_is_named(void **state)
{
	(void)state;
	struct tiny t, other;
	struct err e;
	tiny_make(&t, 2, 20);
	tiny_make(&other, 2, 20);
	works(&t, "run", NULL, WITH("max_steps=2"));
	refused(&t, "run",
		WITH("resume_from_checkpoint=latest", "learning_rate=1e-3", "lr_scheduler=linear"),
		"'learning_rate' was 0.005 and is 0.001 now");
	refused(&t, "run",
		WITH("resume_from_checkpoint=latest", "learning_rate=1e-3", "lr_scheduler=linear"),
		"'lr_scheduler'");
	/* the same weights in another place are the same model */
	char base[600];
	snprintf(base, sizeof base, "base_model=%s/model", other.dir);
	works(&t, "run", NULL, WITH("resume_from_checkpoint=latest", "max_steps=3", base));
	flip(at(&other, "model/model.safetensors"), 4);
	refused(&t, "run", WITH("resume_from_checkpoint=latest", base),
		"the base model is another one");
	refused(&t, "run", WITH("resume_from_checkpoint=latest", base), "--allow-changes");
	if (train(&t, "run", NULL, true,
		  WITH("resume_from_checkpoint=latest", "max_steps=4", base, "learning_rate=1e-3"),
		  &e) < 0)
		fail_msg("%s", e.msg);
	/* what the state cannot be used without stays an error */
	assert_true(train(&t, "run", NULL, true, WITH("resume_from_checkpoint=latest", "lora_r=8"),
			  &e) < 0);
	assert_non_null(strstr(e.msg, "lora_r"));
	tiny_remove(&t);
	tiny_remove(&other);
}

static struct train_result ends(const struct tiny *t, const char *run, const char *const *more)
{
	struct config *c = tiny_config(t, run, more);
	struct train_result r;
	struct seen none = { 0 };
	const struct train_sink sink = { .ctx = &none, .step = on_step };
	struct err e = { 0 };
	if (train_run(c, &(struct train_options){ .allow_changes = true }, &sink, &r, &e) < 0)
		fail_msg("%s: %s", run, e.msg);
	config_free(c);
	return r;
}

/* Other batches: the rest of the epoch follows, nothing of it is left out or comes twice. Less
 * data: the next epoch follows. */
static void changes_of_the_data_go_on(void **state)
{
	(void)state;
	struct tiny t;
	struct train_result r;
	tiny_make(&t, 2, 20);
	const uint64_t epoch = ends(&t, "whole", WITH("max_steps=20")).tokens;
	works(&t, "run", NULL, WITH("max_steps=6"));
	r = ends(&t, "run",
		 WITH("resume_from_checkpoint=latest", "max_steps=0", "num_epochs=1",
		      "gradient_accumulation_steps=2", "save_steps=2"));
	assert_int_equal(r.step, 6 + 14 / 2);
	assert_int_equal(r.total, r.step);
	assert_int_equal(r.tokens, epoch);
	char back[1024];
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "run/checkpoints/step-000008"));
	r = ends(&t, "run", WITH(back, "max_steps=0", "num_epochs=2"));
	assert_int_equal(r.step, 8 + 10 + 20);
	assert_int_equal(r.tokens, 2 * epoch);
	/* 4 of the 20 examples are left, and 8 steps of an epoch were done */
	works(&t, "less", NULL, WITH("max_steps=8"));
	size_t n = 0;
	char *text = tiny_read(&t, "data.jsonl", &n), *end = text;
	for (int i = 0; i < 4; i++)
		end = strchr(end, '\n') + 1;
	*end = 0;
	put(at(&t, "data.jsonl"), text);
	mem_free(text);
	refused(&t, "less", WITH("resume_from_checkpoint=latest", "max_steps=10"),
		"the training data has changed");
	r = ends(&t, "less", WITH("resume_from_checkpoint=latest", "max_steps=10"));
	assert_int_equal(r.step, 10);
	r = ends(&t, "less", WITH("resume_from_checkpoint=latest", "max_steps=0", "num_epochs=2"));
	assert_int_equal(r.step, 8 + 4);
	tiny_remove(&t);
}

/* The best model so far has no checkpoint where the run goes on. */
static void a_best_model_that_is_not_there(void **state)
{
	(void)state;
	struct tiny t;
	char back[1024];
	tiny_make(&t, 2, 20);
#define HELD_OUT(...) WITH("eval_steps=1", "val_set_size=4", __VA_ARGS__)
	works(&t, "run", NULL, HELD_OUT("max_steps=3"));
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "run/checkpoints/step-000003"));
	const struct train_result r =
		ends(&t, "other",
		     HELD_OUT(back, "max_steps=5", "learning_rate=10", "lr_scheduler=constant",
			      "load_best_model_at_end=true"));
	assert_in_range(r.best, 4, 5);
	tiny_remove(&t);
}

/* ---- the learning rate ---- */

static void first_and_last_step_have_the_rates_that_they_say(void **state)
{
	(void)state;
	struct tiny t;
	struct seen v = { 0 };
	tiny_make(&t, 2, 20);
	works(&t, "one", &v, WITH("max_steps=1", "warmup_steps=0"));
	assert_true(v.rate[0] == 0.005);
	works(&t, "run", &v, WITH("max_steps=4", "warmup_steps=2", "save_steps=2"));
	assert_true(v.rate[1] == 0.005 && v.rate[2] == 0.005);
	assert_true(fabs(v.rate[3] - 0.0025) < 1e-12);
	/* a checkpoint of version 1 keeps its rule: the last step has rate 0 */
	const char *state_file = at(&t, "run/checkpoints/step-000002/trainer_state.json");
	struct buf b = BUF_INIT;
	struct err e;
	assert_true(buf_read_file(&b, state_file, 0, &e) >= 0);
	char *version = strstr(b.p, "\"version\": 2"), *rules = strstr(b.p, "\"rules\"");
	assert_true(version && rules);
	version[strlen("\"version\": ")] = '1';
	memcpy(rules, "\"rulez\"", 7);
	put(state_file, b.p);
	buf_release(&b);
	char back[1024];
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "run/checkpoints/step-000002"));
	works(&t, "again", &v, WITH(back, "max_steps=4", "warmup_steps=2", "save_steps=1"));
	assert_true(fabs(v.rate[2] - 0.0025) < 1e-12 && fabs(v.rate[3]) < 1e-12);
	/* and so does a run that goes on from there */
	snprintf(back, sizeof back, "resume_from_checkpoint=%s",
		 at(&t, "again/checkpoints/step-000003"));
	works(&t, "third", &v, WITH(back, "max_steps=4", "warmup_steps=2"));
	assert_true(fabs(v.rate[3]) < 1e-12);
	tiny_remove(&t);
}

/* ---- full disks ---- */

/* A disk of its own at DIR/disk; false where that is not allowed. */
static bool mount_disk(const struct tiny *t, const char *size)
{
	struct err e;
	char options[64];
	snprintf(options, sizeof options, "size=%s", size);
	assert_true(dir_make(at(t, "disk"), &e) >= 0);
	return !mount("tmpfs", at(t, "disk"), "tmpfs", 0, options);
}

static void a_full_disk_loses_nothing(void **state)
{
	(void)state;
	struct tiny t;
	tiny_make(&t, 2, 20);
	if (!mount_disk(&t, "64k")) {
		tiny_remove(&t);
		skip();
	}
	/* not even one checkpoint fits: said before the first step */
	struct seen v = { 0 };
	struct err e;
	assert_true(train(&t, "disk/run", &v, false, WITH("max_steps=2"), &e) < 0);
	printf("  %s\n", e.msg);
	assert_non_null(strstr(e.msg, "make room or choose another folder"));
	assert_int_equal(v.n, 0);
	assert_false(there(at(&t, "disk/run")));
	assert_int_equal(umount(at(&t, "disk")), 0);

	/* it fills up on the way: training goes on, and the end waits for room */
	assert_true(mount_disk(&t, "4m"));
	static char fill[1024], other[1024];
	snprintf(fill, sizeof fill, "%s", at(&t, "disk/fill"));
	v = (struct seen){ .fill = fill, .fill_at = 3, .makes_room = true };
	works(&t, "plain", NULL, WITH("max_steps=6", "save_steps=2"));
	works(&t, "disk/run", &v, WITH("max_steps=6", "save_steps=2"));
	assert_true(v.n == 6 && v.blocked == 1);
	same(at(&t, "plain/adapter_model.safetensors"),
	     at(&t, "disk/run/adapter_model.safetensors"));
	latest_is(&t, "disk/run", "step-000006");

	/* or goes to another place */
	snprintf(other, sizeof other, "%s", at(&t, "elsewhere"));
	v = (struct seen){ .fill = fill, .fill_at = 3, .other = other };
	works(&t, "disk/two", &v, WITH("max_steps=6", "save_steps=2"));
	assert_true(v.blocked == 1);
	same(at(&t, "plain/adapter_model.safetensors"),
	     at(&t, "elsewhere/adapter_model.safetensors"));
	latest_is(&t, "elsewhere", "step-000006");
	latest_is(&t, "disk/two", "step-000002");
	assert_int_equal(umount(at(&t, "disk")), 0);
	tiny_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(newest_is_what_was_written_last),
		cmocka_unit_test(going_back_gives_the_same_bits),
		cmocka_unit_test(a_timed_checkpoint_replaces_the_one_before),
		cmocka_unit_test(what_did_nothing_is_begun_again),
		cmocka_unit_test(only_runs_are_replaced),
		cmocka_unit_test(who_may_read_a_run),
		cmocka_unit_test(logs_lead_nowhere),
		cmocka_unit_test(an_old_run_stays_until_the_new_one_runs),
		cmocka_unit_test(one_run_in_a_folder),
		cmocka_unit_test(a_full_result_can_be_opened),
		cmocka_unit_test(a_flipped_bit_is_noticed),
		cmocka_unit_test(what_changed_is_named),
		cmocka_unit_test(changes_of_the_data_go_on),
		cmocka_unit_test(a_best_model_that_is_not_there),
		cmocka_unit_test(first_and_last_step_have_the_rates_that_they_say),
		cmocka_unit_test(a_full_disk_loses_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
