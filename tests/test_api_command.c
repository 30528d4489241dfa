/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_command.c - what the command line can do, a program can do: every command by
 * hs_command(), with the text that the program prints, and nothing on this process's streams; the
 * table in docs/api.md. */
#include "support/api.h"

#include "base/mem.h"
#include "support/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const commands[] = {
#define COMMAND(name, help) #name,
#include "cli/command.def"
#undef COMMAND
};

static const char *hs_bin(void)
{
	return getenv("HS_BIN") ? getenv("HS_BIN") : "build/heteroshard";
}

/* ---- running ---- */

struct said {
	char out[1 << 18], err[1 << 16];
	size_t n[2];
	int most;           /* calls until `out` fails; 0: never */
	volatile int *stop; /* set at the first loss; MAY be NULL */
};

static int add(struct said *s, int which, const char *text, size_t n)
{
	char *to = which ? s->err : s->out;
	const size_t cap = which ? sizeof s->err : sizeof s->out;
	assert_true(s->n[which] + n < cap);
	memcpy(to + s->n[which], text, n);
	s->n[which] += n;
	to[s->n[which]] = 0;
	return 0;
}

static int on_out(void *ctx, const char *text, size_t n)
{
	struct said *s = ctx;
	return s->most == 1 ? 5 : add(s, 0, text, n);
}

static int on_err(void *ctx, const char *text, size_t n)
{
	struct said *s = ctx;
	const int rc = add(s, 1, text, n);
	if (s->stop && strstr(s->err, "loss"))
		*s->stop = 1;
	return rc;
}

/* The words, split at blanks. */
static int run_io(hs_io *io, struct said *s, int *status, hs_error *e, const char *line)
{
	char copy[4096];
	const char *word[64];
	size_t n = 0;
	memset(s->n, 0, sizeof s->n);
	s->out[0] = s->err[0] = 0;
	io->out = on_out;
	io->err = on_err;
	io->ctx = s;
	snprintf(copy, sizeof copy, "%s", line);
	for (char *p = strtok(copy, " "); p; p = strtok(NULL, " "))
		word[n++] = p;
	return hs_command(word, n, io, status, e);
}

static int run(struct said *s, int *status, hs_error *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static int run(struct said *s, int *status, hs_error *e, const char *fmt, ...)
{
	char line[4096];
	va_list ap;
	hs_io io = hs_io_init();
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	return run_io(&io, s, status, e, line);
}

/* What the program prints with these words. */
static const char *by_program(const char *words, const char *input)
{
	static char text[1 << 18];
	char command[4096];
	snprintf(command, sizeof command, "%s '%s' %s 2>/dev/null", input, hs_bin(), words);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	pclose(f);
	return text;
}

/* This process's own streams go to files while something runs. */
struct streams {
	int kept[2];
};

static void divert(struct streams *s)
{
	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		s->kept[i] = dup(i + 1);
		const int fd = open(scratch("stream%d", i), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(fd, i + 1);
		close(fd);
	}
}

static void nothing_came(struct streams *s)
{
	long size[2];
	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		size[i] = (long)lseek(i + 1, 0, SEEK_END);
		dup2(s->kept[i], i + 1);
		close(s->kept[i]);
	}
	assert_int_equal(size[0], 0);
	assert_int_equal(size[1], 0);
}

static struct said said;

/* ---- tests ---- */

static void every_command_has_its_help(void **state)
{
	struct streams s;
	hs_error e;
	int status;
	(void)state;
	divert(&s);
	for (size_t i = 0; i < COUNT(commands); i++) {
		char begins[64], line[64];
		snprintf(line, sizeof line, "%s --help", commands[i]);
		snprintf(begins, sizeof begins, "usage: heteroshard %s", commands[i]);
		if (run(&said, &status, &e, "%s", line) < 0 || status ||
		    strncmp(said.out, begins, strlen(begins)) ||
		    strcmp(said.out, by_program(line, "")) || said.n[1]) {
			nothing_came(&s);
			fail_msg("%s: %s", line, said.out);
		}
	}
	nothing_came(&s);
}

/* But for the time that a search took. */
static bool same_text(const char *a, const char *b)
{
	const char *search = strstr(a, "  search ");
	return search ? !strncmp(a, b, (size_t)(search - a)) : !strcmp(a, b);
}

/* Commands that say the same each time. */
static void the_text_of_the_program(void **state)
{
	static const char model[] = "tests/golden/models/smollm2";
	struct streams s;
	hs_error e;
	int status;
	char line[4096];
	const char *lines[16];
	size_t n = 0;
	(void)state;
	setenv("XDG_CONFIG_HOME", scratch("config"), 1);
	setenv("XDG_RUNTIME_DIR", scratch("runtime"), 1); /* no job of another test */
	lines[n++] = "help";
	lines[n++] = "help config learning_rate";
	lines[n++] = "info tests/golden/models/smollm2";
	lines[n++] = "info --json tests/golden/models/smollm2";
	lines[n++] = "peers --json";
	lines[n++] = "status --json";
	lines[n++] = "doctor --list";
	lines[n++] = "plan --brief --profile "
		     "tests/golden/plan/zorse-llama1.3b-fp16-4gpu.profile.json";
	divert(&s);
	for (size_t i = 0; i < n; i++)
		if (run(&said, &status, &e, "%s", lines[i]) < 0 || !said.n[0] ||
		    !same_text(said.out, by_program(lines[i], ""))) {
			nothing_came(&s);
			fail_msg("%s: '%s', not '%s'", lines[i], said.out,
				 by_program(lines[i], ""));
		}
	nothing_came(&s);
	/* what it reads */
	hs_io io = hs_io_init();
	io.input = "Hello world";
	io.input_size = strlen(io.input);
	snprintf(line, sizeof line, "tokenize %s", model);
	MUST(run_io(&io, &said, &status, &e, line));
	assert_string_equal(said.out, by_program(line, "printf 'Hello world' |"));
	snprintf(line, sizeof line,
		 "generate %s --raw --temperature 0 --max-new-tokens 5 --device cpu", model);
	MUST(run_io(&io, &said, &status, &e, line));
	assert_string_equal(said.out, by_program(line, "printf 'Hello world' |"));
	MUST(run(&said, &status, &e, "keygen %s", scratch("key")));
	assert_true(said.n[0] > 20 && strstr(said.err, "stays on this machine"));
	snprintf(line, sizeof line, "keygen --show %s", scratch("key"));
	assert_string_equal(said.out, by_program(line, ""));
	MUST(run(&said, &status, &e, "devices --json"));
	assert_non_null(strstr(said.out, "\"device\": \"cpu:0\""));
}

static bool same_file(const char *a, const char *b)
{
	char command[4096];
	snprintf(command, sizeof command, "cmp -s '%s' '%s'", a, b);
	return system(command) == 0;
}

static const char *job_file(void)
{
	const char *job = scratch("job.yaml");
	scratch_text(scratch("data.jsonl"), "{\"text\": \"one two three four five six\"}\n");
	scratch_text(
		job,
		"base_model: tests/golden/models/smollm2\n"
		"datasets: [{path: %s, type: text}]\nadapter: lora\nsequence_len: 16\n"
		"max_steps: 3\nlearning_rate: 0.001\ndevice: cpu\nvisualize: false\nprofile: none\n"
		"cache_dir: %s\noutput_dir: %s\n",
		scratch("data.jsonl"), scratch("cache"), scratch("inside"));
	return job;
}

/* train, eval, merge: the program's results. */
static void a_run_by_its_words(void **state)
{
	struct streams s;
	hs_error e;
	int status;
	char line[4096];
	struct sigaction before, after;
	const char *job = job_file();
	(void)state;
	sigaction(SIGINT, NULL, &before);
	divert(&s);
	const int rc = run(&said, &status, &e, "train %s", job);
	nothing_came(&s);
	if (rc < 0)
		fail_msg("%s", e.text);
	assert_non_null(strstr(said.err, "loss"));
	sigaction(SIGINT, NULL, &after);
	assert_true(before.sa_handler == after.sa_handler);
	snprintf(line, sizeof line, "-q train %s output_dir=%s", job, scratch("outside"));
	by_program(line, "");
	assert_true(same_file(scratch("inside/adapter_model.safetensors"),
			      scratch("outside/adapter_model.safetensors")));
	snprintf(line, sizeof line,
		 "eval tests/golden/models/smollm2 --adapter %s --data %s --type text --device cpu "
		 "--json",
		 scratch("inside"), scratch("data.jsonl"));
	MUST(run(&said, &status, &e, "%s", line));
	const char *want = by_program(line, ""), *end = strstr(want, ", \"tokens_per_second\"");
	assert_true(end && !strncmp(said.out, want, (size_t)(end - want)));
	MUST(run(&said, &status, &e, "merge tests/golden/models/smollm2 %s %s", scratch("inside"),
		 scratch("merged1.gguf")));
	snprintf(line, sizeof line, "merge tests/golden/models/smollm2 %s %s", scratch("inside"),
		 scratch("merged2.gguf"));
	by_program(line, "");
	assert_true(same_file(scratch("merged1.gguf"), scratch("merged2.gguf")));
	/* Ctrl-C without a signal: the step is finished and saved */
	static volatile int stop;
	hs_io io = hs_io_init();
	io.stop = said.stop = &stop;
	snprintf(line, sizeof line, "train %s output_dir=%s max_steps=1000000", job,
		 scratch("stopped"));
	MUST(run_io(&io, &said, &status, &e, line));
	said.stop = NULL;
	assert_int_equal(status, 1);
	assert_non_null(strstr(said.err, "saved"));
	/* before there is anything to save it ends at once */
	snprintf(line, sizeof line, "train %s output_dir=%s", job, scratch("early"));
	assert_true(run_io(&io, &said, &status, &e, line) < 0);
	assert_non_null(strstr(e.text, "interrupted"));
}

static int use_inside(void *ctx, const hs_step *step, double *rate)
{
	int status;
	hs_error e;
	(void)ctx, (void)step, (void)rate;
	expect(run(&said, &status, &e, "help"), &e, "another run is going on");
	return HS_GO_ON;
}

static void mistakes(void **state)
{
	static const char *const set[] = { "max_steps=1" };
	const char *words[] = { "help", NULL };
	hs_error e;
	int status = 0;
	(void)state;
	expect(run(&said, &status, &e, "evl"), &e, "unknown command 'evl', did you mean 'eval'?");
	assert_int_equal(status, 2);
	assert_non_null(strstr(said.err, "error: unknown command 'evl'"));
	expect(run(&said, &status, &e, "eval model.gguf"), &e, "eval: --data FILE is missing");
	expect(run(&said, &status, &e, "info /nowhere"), &e, "/nowhere");
	assert_int_equal(status, 1);
	expect(run(&said, &status, &e, "train /nowhere.yaml"), &e, "/nowhere.yaml");
	expect(run(&said, &status, &e, "init --model m"), &e, "there is no file or folder m");
	said.most = 1;
	expect(run(&said, &status, &e, "help"), &e, "the function that takes its text failed");
	said.most = 0;
	expect(hs_command(NULL, 1, NULL, NULL, &e), &e, "there are no words");
	expect(hs_command(words, 0, NULL, NULL, &e), &e, "there are no words");
	expect(hs_command(words, 2, NULL, NULL, &e), &e, "a word is NULL");
	hs_io io = hs_io_init();
	io.size = 4;
	expect(hs_command(words, 1, &io, NULL, &e), &e, "use hs_io_init()");
	MUST(hs_command(words, 1, NULL, NULL, &e)); /* its text is dropped */
	hs_model *m;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = 20;
	d.get = small_sample;
	o.set = set;
	o.sets = 1;
	o.on.step = use_inside;
	MUST(hs_model_new(SMALL, 1, &m, &e));
	MUST(hs_train(m, &d, &o, NULL, &e));
	MUST(hs_model_free(m, &e));
}

/* ---- the table in docs/api.md ---- */

static char *read_all(const char *path)
{
	FILE *f = fopen(repository("%s", path), "r");
	char *text = mem_zalloc(1 << 18);
	assert_true(f && text);
	const size_t n = fread(text, 1, (1 << 18) - 1, f);
	assert_true(n > 0);
	fclose(f);
	return text;
}

/* Each command has a row, each row a function, and each function is one of the library. */
static void the_table_of_commands(void **state)
{
	char *doc = read_all("docs/api.md"), *symbols = read_all("tests/golden/own/symbols.txt");
	(void)state;
	for (size_t i = 0; i < COUNT(commands); i++) {
		char row[64], name[64];
		snprintf(row, sizeof row, "\n| `%s` |", commands[i]);
		const char *p = strstr(doc, row);
		if (!p)
			fail_msg("docs/api.md has no row for the command '%s'", commands[i]);
		p += strlen(row);
		const char *end = strchr(p, '|');
		int functions = 0;
		for (; (p = strstr(p, "`hs_")) && p < end; functions++) {
			snprintf(name, sizeof name, "%.*s\n", (int)strcspn(p + 1, "`"), p + 1);
			if (!strstr(symbols, name))
				fail_msg("'%s': the library has no %s", commands[i], name);
			p += 4;
		}
		if (!functions)
			fail_msg("docs/api.md names no function for '%s'", commands[i]);
	}
	mem_free(doc);
	mem_free(symbols);
}

int main(void)
{
	if (chdir(repository(".")))
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command_has_its_help),
		cmocka_unit_test(the_text_of_the_program),
		cmocka_unit_test(a_run_by_its_words),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(the_table_of_commands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
