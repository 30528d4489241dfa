/* SPDX-License-Identifier: Apache-2.0 */
/* The program on a terminal, with files whose names, keys and texts hold escape sequences, controls
 * of C1, marks of direction and bytes that are not UTF-8: none of them reaches the terminal, in
 * text, in JSON, in errors, and in what a model says. Without colours nothing that the program
 * prints begins with ESC, so a single one is somebody else's. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "support/scratch.h"

#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utf8proc.h>
#include <cmocka.h>

#define MODEL "tests/golden/models/smollm2"
/* in JSON: ESC, CSI of C1, an override of direction, an isolate, a carriage return, DEL */
#define NASTY "n\\u001b[31m\\u009b31m\\u202e\\u2066\\r\\u0007\\u007f"
#define TURNED "n?[31m?31m??"

/* What the program writes to a terminal; standard input holds `input`. */
static int on_terminal(const char *input, const char *const *words, struct buf *out)
{
	const char *bin = getenv("HS_BIN"), *argv[16] = { bin };
	int fd, in[2], status = 0;
	for (size_t i = 0; words[i] && i + 2 < ARRAY_LEN(argv); i++)
		argv[i + 1] = words[i];
	assert_int_equal(pipe(in), 0);
	assert_int_equal(write(in[1], input, strlen(input)), strlen(input));
	close(in[1]);
	fflush(NULL);
	pid_t pid = forkpty(&fd, NULL, NULL, NULL);
	assert_true(pid >= 0);
	if (!pid) {
		dup2(in[0], 0);
		setenv("NO_COLOR", "1", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		if (bin)
			execv(bin, (char *const *)argv);
		_exit(127);
	}
	close(in[0]);
	char part[4096];
	for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
		buf_add(out, part, (size_t)n);
	waitpid(pid, &status, 0);
	close(fd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The terminal itself writes CR before each newline. */
static void check_shown(const struct buf *b, const char *what)
{
	for (size_t at = 0; at < b->n;) {
		utf8proc_int32_t c;
		utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)b->p + at,
						      (utf8proc_ssize_t)(b->n - at), &c);
		bool newline = b->p[at] == '\n' || (b->p[at] == '\r' && b->p[at + 1] == '\n');
		if (k <= 0 || (c < 0x20 && !newline && c != '\t') || (c >= 0x7f && c < 0xa0) ||
		    c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
		    (c >= 0x2066 && c <= 0x2069))
			fail_msg("%s: byte 0x%02x at %zu of:\n%s", what, (unsigned char)b->p[at],
				 at, b->p);
		at += (size_t)k;
	}
}

#define SHOWN(want, status, input, ...)                                                            \
	do {                                                                                       \
		struct buf out_ = BUF_INIT;                                                        \
		const char *const words_[] = { __VA_ARGS__, NULL };                                \
		int rc_ = on_terminal(input, words_, &out_);                                       \
		check_shown(&out_, words_[0]);                                                     \
		if (rc_ != (status) || !strstr(out_.p ? out_.p : "", want))                        \
			fail_msg("%s: status %d, without '%s':\n%s", words_[0], rc_, want,         \
				 out_.p);                                                          \
		buf_release(&out_);                                                                \
	} while (0)

static void write_safetensors(const char *path, const char *header, size_t data)
{
	struct buf b = BUF_INIT;
	uint64_t n = strlen(header);
	buf_add(&b, &n, 8);
	buf_adds(&b, header);
	for (size_t i = 0; i < data; i++)
		buf_addc(&b, 0);
	scratch_write(path, b.p, b.n);
	buf_release(&b);
}

static void names_of_files(void **state)
{
	(void)state;
	char dir[256], path[512];
	snprintf(dir, sizeof dir, "%s", scratch("adapter"));
	snprintf(path, sizeof path, "%s/adapter_config.json", dir);
	scratch_text(path, "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"" NASTY "\", "
			   "\"r\": 1, \"lora_alpha\": 1, \"target_modules\": [\"q_proj\"]}");
	snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
	write_safetensors(
		path,
		"{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":"
		"\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},\"base_model.model.model.layers.0."
		"self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],"
		"\"data_offsets\":[8,16]}}",
		16);
	SHOWN(TURNED, 0, "", "info", dir);
	SHOWN("\\u001B", 0, "", "info", "--json", dir);

	const char *st = scratch("names.safetensors");
	write_safetensors(st,
			  "{\"" NASTY "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
			  ",\"__metadata__\":{\"" NASTY "\":\"" NASTY "\"}}",
			  4);
	SHOWN(TURNED, 0, "", "info", "--tensors", st);
	SHOWN("\\u009B", 0, "", "info", "--tensors", "--json", st);
	write_safetensors(st, "{\"" NASTY "\":{\"dtype\":\"" NASTY "\"}}", 0);
	SHOWN(TURNED, 1, "", "info", st);
}

static void plans_and_profiles(void **state)
{
	(void)state;
	const char *plan = scratch("plan.json"), *profile = scratch("profile.json");
	scratch_text(plan, "{\"planner\": \"" NASTY "\", \"schedule\": \"" NASTY "\", \"stages\": "
			   "[{\"layers\": [0, 1], \"devices\": [{\"id\": \"" NASTY
			   "\", \"host\": \"" NASTY "\"}]}]}");
	SHOWN(TURNED, 0, "", "info", plan);
	SHOWN("\\u202E", 0, "", "info", "--json", plan);
	scratch_text(profile,
		     "{\"version\":1,\"model\":{\"name\":\"" NASTY "\",\"layers\":6,\"hidden\":64,"
		     "\"parameters_per_layer\":1e6},\"sequence_len\":128,\"global_batch\":8,"
		     "\"devices\":[{\"id\":\"a" NASTY "\",\"kind\":\"" NASTY "\",\"host\":\"x" NASTY
		     "\",\"memory_gib\":8,\"forward_ms\":{\"linear\":[2,0]},\"backward_ms\":"
		     "{\"linear\":[4,0]}},{\"id\":\"b" NASTY "\",\"kind\":\"" NASTY
		     "\",\"host\":\"y" NASTY "\",\"memory_gib\":8,\"forward_ms\":{\"linear\":[1,0]}"
		     ",\"backward_ms\":{\"linear\":[2,0]}}],\"links\":[{\"hosts\":[\"x" NASTY
		     "\",\"y" NASTY "\"],\"bandwidth_gbytes_per_s\":0.1}]}");
	SHOWN(TURNED, 0, "", "info", profile);
	SHOWN(TURNED, 0, "", "plan", "--profile", profile);
	SHOWN("devices", 0, "", "plan", "--profile", profile, "--compare");
	SHOWN("\\u2066", 0, "", "plan", "--profile", profile, "--json");
	SHOWN("error:", 1, "", "plan", "--profile", plan);
}

static void configurations_and_data(void **state)
{
	(void)state;
	const char *yaml = scratch("a.yaml"), *data = scratch("a.jsonl");
	scratch_text(yaml, "\"" NASTY "\": 1\n");
	SHOWN(TURNED, 2, "", "train", yaml);
	scratch_text(data, "{\"" NASTY "\": \"x\"}\n");
	SHOWN(TURNED, 1, "", "eval", repository(MODEL), "--data", data);
	SHOWN("error:", 1, "", "info", "no\033[31msuch\xc2\x9b\xff");
}

/* The text of a model: at a high temperature the random weights of this one give any byte. */
/* The lines of a run name the model's folder. */
static void what_a_run_says(void **state)
{
	(void)state;
	char command[2048], part[4096];
	struct buf b = BUF_INIT;
	char *model = realpath(MODEL, NULL);
	assert_non_null(model);
	assert_int_equal(symlink(model, scratch("m\033[31m")), 0);
	free(model);
	scratch_text(scratch("run.jsonl"), "{\"text\":\"hello there, my friend\"}\n");
	scratch_text(scratch("run.yaml"),
		     "base_model: \"%s\\e[31m\"\noutput_dir: %s\nadapter: lora\nmax_steps: 1\n"
		     "sequence_len: 16\ndatasets:\n  - path: %s\n    type: completion\n",
		     scratch("m"), scratch("run"), scratch("run.jsonl"));
	snprintf(command, sizeof command, "XDG_CACHE_HOME=%s %s train %s 2>&1", scratch("cache"),
		 getenv("HS_BIN"), scratch("run.yaml"));
	FILE *f = popen(command, "r");
	assert_non_null(f);
	for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
		buf_add(&b, part, n);
	assert_int_equal(pclose(f), 0);
	buf_addc(&b, 0);
	check_shown(&(struct buf){ .p = b.p, .n = b.n - 1 }, "train");
	assert_non_null(strstr(b.p, "model   m?[31m: llama"));
	buf_release(&b);
}

static void what_a_model_says(void **state)
{
	(void)state;
	SHOWN("", 0, "", "generate", repository(MODEL), "--raw", "--prompt", "x", "--temperature",
	      "100", "--max-new-tokens", "60", "--top-p", "1");
	/* every token of it, one after the other */
	struct buf ids = BUF_INIT;
	for (int i = 0; i < 269; i++)
		buf_addf(&ids, "%d ", i);
	SHOWN("?", 0, ids.p, "tokenize", "--decode", repository(MODEL));
	SHOWN("", 0, ids.p, "tokenize", "--decode", "--json", repository(MODEL));
	buf_release(&ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_files),          cmocka_unit_test(plans_and_profiles),
		cmocka_unit_test(configurations_and_data), cmocka_unit_test(what_a_run_says),
		cmocka_unit_test(what_a_model_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
