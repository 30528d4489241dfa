/* SPDX-License-Identifier: Apache-2.0 */
/* The program as people call it: exit status, one line on standard error for what went wrong,
 * results on standard output. HS_BIN names the program (scripts/run-tests.sh sets it). */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/peft.h"
#include "runtime/merge.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL "tests/golden/models/smollm2"

static const char *bin;
static char dir[64];

struct result {
	int status; /* -1: killed by a signal */
	struct buf out, err;
};

static void done(struct result *r)
{
	buf_release(&r->out);
	buf_release(&r->err);
}

static void slurp(const char *name, struct buf *b)
{
	char path[128];
	struct err e;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	buf_init(b);
	if (buf_read_file(b, path, 0, &e) < 0)
		fail_msg("%s", e.msg);
}

static int open_in(const char *name, int flags)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, flags, 0600);
	if (fd < 0)
		fail_msg("cannot open %s", path);
	return fd;
}

/* `stdout_to`: a path, or NULL to read it back. Words end with NULL. */
static struct result call_to(const char *stdout_to, const char *input, const char *const *words)
{
	struct result r = { .status = -1 };
	const char *argv[32] = { bin };
	for (size_t i = 0; words[i] && i + 2 < ARRAY_LEN(argv); i++)
		argv[i + 1] = words[i];
	int in = open_in("in", O_RDWR | O_CREAT | O_TRUNC),
	    err = open_in("err", O_RDWR | O_CREAT | O_TRUNC);
	int out =
		stdout_to ? open(stdout_to, O_WRONLY) : open_in("out", O_RDWR | O_CREAT | O_TRUNC);
	if (input && write(in, input, strlen(input)) < 0)
		fail_msg("cannot write the input");
	lseek(in, 0, SEEK_SET);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(in, 0);
		dup2(out, 1);
		dup2(err, 2);
		unsetenv("NO_COLOR");
		execv(bin, (char *const *)argv);
		_exit(127);
	}
	int st = 0;
	waitpid(pid, &st, 0);
	close(in);
	close(out);
	close(err);
	r.status = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
	slurp("err", &r.err);
	buf_init(&r.out);
	if (!stdout_to)
		slurp("out", &r.out);
	return r;
}

#define CALL(input, ...) call_to(NULL, input, (const char *const[]){ __VA_ARGS__, NULL })

static void expect(const struct result *r, int status)
{
	if (r->status != status)
		fail_msg("status %d instead of %d\n%s\n%s", r->status, status, r->out.p, r->err.p);
	assert_null(strstr(r->out.p, "\033"));
	assert_null(strstr(r->err.p, "\033"));
}

/* One line "error: ..." that holds `want`, nothing on standard output. */
static void refused(struct result r, int status, const char *want)
{
	expect(&r, status);
	if (strncmp(r.err.p, "error: ", 7) || !strstr(r.err.p, want) ||
	    strchr(r.err.p, '\n') != r.err.p + r.err.n - 1)
		fail_msg("wanted one line with '%s', got:\n%s", want, r.err.p);
	assert_int_equal(r.out.n, 0);
	done(&r);
}

static void overview(void **state)
{
	(void)state;
	static const char *const way[] = { "--help", "-h", "help" };
	for (size_t i = 0; i < ARRAY_LEN(way); i++) {
		struct result r = CALL(NULL, way[i]);
		expect(&r, 0);
		assert_non_null(strstr(r.out.p, "usage: heteroshard"));
		assert_non_null(strstr(r.out.p, "\n  train "));
		assert_int_equal(r.err.n, 0);
		done(&r);
	}
	struct result r = call_to(NULL, NULL, (const char *const[]){ NULL });
	expect(&r, 2);
	assert_int_equal(r.out.n, 0);
	assert_non_null(strstr(r.err.p, "usage: heteroshard"));
	done(&r);
	r = CALL(NULL, "--version");
	expect(&r, 0);
	assert_memory_equal(r.out.p, "heteroshard ", 12);
	done(&r);
}

static void wrong_use(void **state)
{
	(void)state;
	refused(CALL(NULL, "trian"), 2, "unknown command 'trian', did you mean 'train'?");
	refused(CALL(NULL, "qqqqqq"), 2, "unknown command 'qqqqqq'");
	refused(CALL(NULL, "--frobnicate"), 2, "unknown option '--frobnicate'");
	const char *threads = getenv("OMP_NUM_THREADS");
	setenv("OMP_NUM_THREADS", "100000", 1);
	refused(CALL(NULL, "devices"), 2, "OMP_NUM_THREADS asks for 100000 threads: at most 4096");
	threads ? setenv("OMP_NUM_THREADS", threads, 1) : unsetenv("OMP_NUM_THREADS");
	refused(CALL(NULL, "help", "tran"), 2, "did you mean 'train'?");
	refused(CALL(NULL, "devices", "--jsn"), 2, "did you mean '--json'?");
	refused(CALL(NULL, "devices", "extra"), 2, "one argument too many");
	refused(CALL(NULL, "info"), 2, "an argument is missing");
	refused(CALL(NULL, "info", "a", "b"), 2, "'b' is one argument too many");
	refused(CALL(NULL, "tokenize", "--decode=perhaps", MODEL), 2,
		"'decode' must be true or false");
}

/* No line of a paragraph ends while the next word has room: a text that was folded twice. */
static void expect_folded_once(const char *text)
{
	const char *line = strstr(text, "\n\n");
	for (line += 2; *line && strncmp(line, "options:", 8) != 0;) {
		const char *next = line + strcspn(line, "\n") + 1;
		const size_t n = (size_t)(next - line);
		if (*line != ' ' && n > 1 && *next != ' ' && *next != '\n' &&
		    n + strcspn(next, " \n") <= 100)
			fail_msg("folded twice: %.*s", (int)n, line);
		if (n == 1) /* sections of options have headings of their own */
			return;
		line = next;
	}
}

static void each_command_explains_itself(void **state)
{
	(void)state;
	static const char *const name[] = {
#define COMMAND(n, h) #n,
#include "cli/command.def"
#undef COMMAND
	};
	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		struct result a = CALL(NULL, name[i], "--help"), b = CALL(NULL, "help", name[i]);
		expect(&a, 0);
		expect(&b, 0);
		assert_string_equal(a.out.p, b.out.p);
		assert_memory_equal(a.out.p, "usage: heteroshard ", 19);
		expect_folded_once(a.out.p);
		done(&a);
		done(&b);
	}
}

static void configuration_reference(void **state)
{
	(void)state;
	struct result r = CALL(NULL, "help", "config");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "\n  learning_rate "));
	done(&r);
	r = CALL(NULL, "help", "config", "--markdown");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "| `learning_rate` |"));
	const char *data = strstr(r.out.p, "\n## Data\n");
	assert_null(strstr(data + 1, "\n## Data\n"));
	done(&r);
}

static void bad_configurations(void **state)
{
	(void)state;
	refused(CALL(NULL, "train"), 2, "an argument is missing");
	refused(CALL(NULL, "train", "/nowhere/job.yaml"), 1, "/nowhere/job.yaml");
	char path[128];
	snprintf(path, sizeof path, "%s/job.yaml", dir);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f,
		"base_model: " MODEL
		"\nadapter: lora\nlora_r: 4\ndatasets: [x.jsonl]\noutput_dir: %s/out\n",
		dir);
	fclose(f);
	refused(CALL(NULL, "train", path, "lora_r=0"), 2,
		"command line: 'lora_r' is 0, allowed is 1 to 4096");
	refused(CALL(NULL, "train", path, "learning_rate=nan"), 2,
		"'learning_rate' must be a number, not 'nan'");
	refused(CALL(NULL, "train", path, "learning_rate=-1"), 2, "it must be greater than 0");
	refused(CALL(NULL, "train", path, "learningrate=1"), 2, "did you mean 'learning_rate'?");
	refused(CALL(NULL, "train", path, "nonsense"), 2, "not of the form key=value");
	refused(CALL(NULL, "train", path, "base_model="), 2, "'base_model' is missing");
}

static json_t *as_json(const struct result *r)
{
	json_t *o = NULL;
	struct err e;
	if (json_parse_text(r->out.p, r->out.n, "output", &o, &e) < 0)
		fail_msg("%s\n%s", e.msg, r->out.p);
	return o;
}

static void info(void **state)
{
	(void)state;
	static const char *const model[] = { MODEL, "tests/golden/models/smollm2-f32.gguf" };
	for (size_t i = 0; i < ARRAY_LEN(model); i++) {
		struct result r = CALL(NULL, "info", "--json", model[i]);
		expect(&r, 0);
		json_t *o = as_json(&r);
		assert_string_equal(json_string_value(json_object_get(o, "kind")), "model");
		assert_int_equal(json_integer_value(json_object_get(o, "layers")), 3);
		assert_int_equal(json_integer_value(json_object_get(o, "parameters")), 48960);
		json_decref(o);
		done(&r);
		r = CALL(NULL, "info", "--tensors", model[i]);
		expect(&r, 0);
		assert_non_null(strstr(r.out.p, "49.0 thousand"));
		assert_non_null(strstr(r.out.p, "model.layers.2.self_attn.v_proj.weight"));
		done(&r);
	}
	struct result r = CALL(NULL, "info", "--json", "tests/golden/models/llama2-nf4");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "\"NF4\""));
	done(&r);
	r = CALL(NULL, "info", "--json", "tests/golden/models/train-lora/init");
	expect(&r, 0);
	json_t *o = as_json(&r);
	assert_int_equal(json_integer_value(json_object_get(o, "r")), 3);
	assert_int_equal(json_array_size(json_object_get(o, "target_modules")), 4);
	json_decref(o);
	done(&r);
	r = CALL(NULL, "info", "tests/golden/models/gemma3-vision");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "not read: the language model is"));
	assert_null(strstr(r.out.p, "not supported"));
	done(&r);
	/* values stand below each other, also beside the longest label */
	r = CALL(NULL, "info", "tests/golden/models/gemma4");
	expect(&r, 0);
	const char *family = strstr(r.out.p, "\n  family "),
		   *longest = strstr(r.out.p, "\n  key value heads without window ");
	assert_true(family && longest);
	assert_int_equal(strspn(family + 9, " "),
			 strlen("key value heads without window") - strlen("family") + 1);
	done(&r);
	r = CALL(NULL, "info", MODEL "/model-00001-of-00003.safetensors");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "safetensors file"));
	done(&r);
	/* what merge --adapter-only writes */
	char out[100];
	snprintf(out, sizeof out, "%s/adapter.gguf", dir);
	r = CALL(NULL, "merge", "tests/golden/models/smollm2",
		 "tests/golden/models/train-lora/init", out, "--adapter-only");
	expect(&r, 0);
	done(&r);
	r = CALL(NULL, "info", "--tensors", out);
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "LoRA adapter (GGUF, for llama.cpp)"));
	assert_non_null(strstr(r.out.p, "blk.0.attn_q.weight.lora_a"));
	done(&r);
	refused(CALL("x", "tokenize", out), 1, "is an adapter for llama.cpp (--lora), not a model");
	unlink(out);
	refused(CALL(NULL, "info", "/nowhere"), 1, "/nowhere: there is no such file or folder");
	refused(CALL(NULL, "info", "/dev/null"), 1, "/dev/null");
	refused(CALL(NULL, "info", "tests"), 1, "nothing known in this folder");
	refused(CALL(NULL, "info", MODEL "/config.json"), 1, "is not a plan, a profile");
}

/* Events, evaluations and damaged lines stand between the steps of a run, and around them. */
static void info_of_a_run(void **state)
{
	(void)state;
	static const char text[] =
		"{\"event\": \"lost\", \"step\": 0, \"text\": \"'b' is gone\"}\n"
		"{\"step\": 0, \"val_loss\": 5}\n{\"step\": 1, \"loss\": 4.5}\nnot JSON\n"
		"{\"step\": 2, \"loss\": 3.5}\n"
		"{\"event\": \"joined\", \"step\": 2, \"text\": \"'b' is back\"}\n";
	char run[100], path[128];
	snprintf(run, sizeof run, "%s/run", dir);
	snprintf(path, sizeof path, "%s/metrics.jsonl", run);
	assert_int_equal(mkdir(run, 0700), 0);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	struct result r = CALL(NULL, "info", "--json", run);
	expect(&r, 0);
	json_t *o = as_json(&r);
	assert_int_equal(json_integer_value(json_object_get(o, "steps")), 2);
	assert_true(json_real_value(json_object_get(o, "first_loss")) == 4.5);
	assert_true(json_real_value(json_object_get(o, "last_loss")) == 3.5);
	assert_int_equal(json_integer_value(json_object_get(o, "last_validation_loss")), 5);
	json_decref(o);
	done(&r);
	r = CALL(NULL, "info", path);
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "last loss              3.5\n"));
	done(&r);
	unlink(path);
	/* the files beside it */
	snprintf(path, sizeof path, "%s/prediction.json", run);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("{\"predicted_seconds\": 2.5, \"measured_seconds\": 3, \"stages\": [{\"id\": "
	      "\"box2\", \"stage\": 0, \"measured_gib\": 0.75}]}",
	      f);
	fclose(f);
	r = CALL(NULL, "info", path);
	expect(&r, 0);
	if (!strstr(r.out.p, "prediction of a run") || !strstr(r.out.p, "0.75"))
		fail_msg("%s", r.out.p);
	done(&r);
	unlink(path);
	assert_int_equal(rmdir(run), 0);
}

static void stop_after_a_tensor(void *ctx, uint64_t done, uint64_t all)
{
	(void)all;
	*(volatile sig_atomic_t *)ctx = done == 3;
}

/* What a folder cannot hold is said, and nothing is written: it was infinity in the folder. */
static void merged_numbers(void **state)
{
	(void)state;
	static const struct {
		float b;
		const char *says;
	} rows[] = { { 1e9f, "which float16 does not have: --type bf16" },
		     { NAN, "with the adapter has the number nan" } };
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = { 0 };
		struct arena a = ARENA_INIT;
		struct peft_adapter ad;
		char bad[100], out[100];
		snprintf(bad, sizeof bad, "%s/bad", dir);
		snprintf(out, sizeof out, "%s/merged", dir);
		assert_int_equal(peft_read("tests/golden/models/train-lora/init", &a, &ad, &e), 0);
		struct peft_pair *p = &ad.pair[ad.npair - 1];
		float *b = arena_alloc(&a, (size_t)(p->out * p->r) * sizeof *b);
		assert_non_null(b);
		for (int64_t k = 0; k < p->out * p->r; k++)
			b[k] = rows[i].b;
		p->b = b;
		assert_int_equal(mkdir(bad, 0700), 0);
		assert_int_equal(peft_write(bad, &ad, &e), 0);
		refused(CALL(NULL, "merge", "tests/golden/models/smollm2", bad, out, "--type",
			     "f16"),
			1, rows[i].says);
		assert_int_equal(access(out, F_OK), -1);
		assert_int_equal(dir_remove(bad, &e), 0);
		arena_release(&a);
	}
}

/* A pair on the embedding of a model whose head it is (PEFT's target_parameters) changes what goes
 * in, and not the head. */
static void pair_on_an_end(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	char adapter[100], out[100], gguf[100];
	float v[269 * 3] = { 0 };
	snprintf(adapter, sizeof adapter, "%s/ends", dir);
	snprintf(out, sizeof out, "%s/merged", dir);
	snprintf(gguf, sizeof gguf, "%s/alone.gguf", dir);
	assert_int_equal(peft_read("tests/golden/models/train-lora/init", &a, &ad, &e), 0);
	ad.pair[0].module = "model.embed_tokens";
	ad.pair[0].in = 48;
	ad.pair[0].out = 269;
	ad.pair[0].a = ad.pair[0].b = v;
	assert_int_equal(mkdir(adapter, 0700), 0);
	assert_int_equal(peft_write(adapter, &ad, &e), 0);
	struct result r = CALL(NULL, "merge", MODEL, adapter, out);
	expect(&r, 0);
	done(&r);
	r = CALL(NULL, "info", "--tensors", out);
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "lm_head.weight"));
	done(&r);
	refused(CALL(NULL, "merge", MODEL, adapter, gguf, "--adapter-only"), 1,
		"an adapter on model.embed_tokens cannot be written alone");
	assert_int_equal(dir_remove(out, &e), 0);
	assert_int_equal(dir_remove(adapter, &e), 0);
	arena_release(&a);
}

/* A merge that is stopped leaves nothing, neither of a file nor of a folder. */
static void stopped_merge(void **state)
{
	(void)state;
	static const char *const names[] = { "merged.gguf", "merged" };
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char out[100], beside[110];
		volatile sig_atomic_t stop = 0;
		struct err e = { 0 };
		snprintf(out, sizeof out, "%s/%s", dir, names[i]);
		snprintf(beside, sizeof beside, "%s.tmp", out);
		const struct merge_options o = { .model = MODEL,
						 .adapter = "tests/golden/models/train-lora/init",
						 .out = out,
						 .dtype = DT_F32,
						 .part = stop_after_a_tensor,
						 .ctx = (void *)&stop,
						 .stop = &stop };
		assert_int_equal(merge(&o, &e), ERR_CANCELLED);
		assert_int_equal(stop, 1);
		assert_int_not_equal(access(out, F_OK), 0);
		assert_int_not_equal(access(beside, F_OK), 0);
	}
}

static void devices(void **state)
{
	(void)state;
	struct result r = CALL(NULL, "devices", "--json", "--all");
	expect(&r, 0);
	json_t *o = as_json(&r);
	bool cpu = false, null = false;
	for (size_t i = 0; i < json_array_size(o); i++) {
		const char *name =
			json_string_value(json_object_get(json_array_get(o, i), "device"));
		cpu |= !strcmp(name, "cpu:0");
		null |= !strcmp(name, "null:0");
	}
	assert_true(cpu && null);
	json_decref(o);
	done(&r);
	r = CALL(NULL, "devices");
	expect(&r, 0);
	assert_non_null(strstr(r.out.p, "cpu:0"));
	assert_null(strstr(r.out.p, "null:0"));
	done(&r);
}

static void tokenize(void **state)
{
	(void)state;
	static const char text[] = "The server, the card\nand \xc3\xa4 second line";
	struct result r = CALL(text, "tokenize", MODEL);
	expect(&r, 0);
	assert_int_equal(r.err.n, 0);
	struct result back = CALL(r.out.p, "tokenize", "--decode", MODEL);
	expect(&back, 0);
	assert_string_equal(back.out.p, text);
	done(&back);
	struct result n = CALL(text, "tokenize", "--count", MODEL);
	long ids = 1;
	for (const char *p = r.out.p; *p; p++)
		ids += *p == ' ';
	assert_int_equal(strtol(n.out.p, NULL, 10), ids);
	done(&n);
	done(&r);
	r = CALL("one\ntwo", "tokenize", "--lines", "--json", MODEL);
	expect(&r, 0);
	assert_int_equal(r.out.p[0], '[');
	assert_non_null(strstr(r.out.p, "]\n["));
	back = CALL(r.out.p, "tokenize", "--lines", "--decode", MODEL);
	expect(&back, 0);
	assert_string_equal(back.out.p, "one\ntwo\n");
	done(&back);
	done(&r);
	r = CALL("", "tokenize", MODEL);
	expect(&r, 0);
	assert_string_equal(r.out.p, "\n");
	done(&r);
	refused(CALL("12 x", "tokenize", "--decode", MODEL), 1, "'x' is not an id");
	refused(CALL("-1", "tokenize", "--decode", MODEL), 1, "'-1' is not an id");
	refused(CALL("99999999999999999999", "tokenize", "--decode", MODEL), 1, "is not an id");
	refused(CALL("a", "tokenize", "tests/golden/models/llama2-nf4"), 1,
		"there is no tokenizer in it");
	refused(CALL("a", "tokenize", "/nowhere"), 1, "/nowhere");
}

static void output_that_cannot_be_written(void **state)
{
	(void)state;
	struct result r =
		call_to("/dev/full", NULL, (const char *const[]){ "help", "config", NULL });
	assert_int_equal(r.status, 1);
	assert_non_null(strstr(r.err.p, "error: cannot write to standard output"));
	done(&r);
}

static int setup(void **state)
{
	(void)state;
	bin = getenv("HS_BIN") ? getenv("HS_BIN") : "build/heteroshard";
	snprintf(dir, sizeof dir, "/tmp/hs-cli-XXXXXX");
	if (!mkdtemp(dir) || (getenv("HS_SOURCE") && chdir(getenv("HS_SOURCE")) != 0))
		return -1;
	return access(bin, X_OK);
}

static int teardown(void **state)
{
	(void)state;
	static const char *const name[] = { "in", "out", "err", "job.yaml" };
	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		char path[128];
		snprintf(path, sizeof path, "%s/%s", dir, name[i]);
		unlink(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overview),
		cmocka_unit_test(wrong_use),
		cmocka_unit_test(each_command_explains_itself),
		cmocka_unit_test(configuration_reference),
		cmocka_unit_test(bad_configurations),
		cmocka_unit_test(info),
		cmocka_unit_test(info_of_a_run),
		cmocka_unit_test(stopped_merge),
		cmocka_unit_test(merged_numbers),
		cmocka_unit_test(pair_on_an_end),
		cmocka_unit_test(devices),
		cmocka_unit_test(tokenize),
		cmocka_unit_test(output_that_cannot_be_written),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
