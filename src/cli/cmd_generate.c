/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_generate.c - `heteroshard generate MODEL --prompt TEXT`: text from a model, streamed. */
#include "cli/chat_loop.h"
#include "cli/cli.h"
#include "cli/hub_names.h"
#include "cli/model_rows.h"

#include "base/buf.h"
#include "base/mem.h"
#include "runtime/generate.h"
#include "runtime/prompt.h"

#include <string.h>
#include <unistd.h>

int cmd_generate(int argc, char **argv);

struct args {
	const char *prompt, *system;
	struct runtime_options model;
	int64_t max_new_tokens, top_k, seed;
	double temperature, top_p;
	bool raw, stats;
};

#define AT(f) offsetof(struct args, f)
static const struct opt rows[] = {
	{ .key = "prompt",
	  .kind = OPT_STR,
	  .offset = AT(prompt),
	  .arg = "TEXT",
	  .help = "what to answer; without it a conversation on a terminal, else standard input",
	  .section = "Text" },
	{ .key = "system",
	  .kind = OPT_STR,
	  .offset = AT(system),
	  .arg = "TEXT",
	  .help = "system message" },
	{ .key = "raw",
	  .kind = OPT_BOOL,
	  .offset = AT(raw),
	  .help = "continue the text as it is, without a chat template" },
	MODEL_ROW_CHAT(AT(model)),
	{ .key = "max_new_tokens",
	  .kind = OPT_INT,
	  .offset = AT(max_new_tokens),
	  .def = "256",
	  .lo = 1,
	  .hi = 1 << 24,
	  .arg = "N",
	  .help = "stop after this many",
	  .section = "Sampling" },
	{ .key = "temperature",
	  .kind = OPT_FLOAT,
	  .offset = AT(temperature),
	  .def = "0.7",
	  .lo = 0,
	  .hi = 100,
	  .arg = "X",
	  .help = "0: always the likeliest token" },
	{ .key = "top_p",
	  .kind = OPT_FLOAT,
	  .offset = AT(top_p),
	  .def = "0.95",
	  .lo = 0,
	  .hi = 1,
	  .lo_open = true,
	  .arg = "X",
	  .help = "only the likeliest tokens that have this probability together" },
	{ .key = "top_k",
	  .kind = OPT_INT,
	  .offset = AT(top_k),
	  .def = "0",
	  .lo = 0,
	  .hi = 1 << 24,
	  .arg = "N",
	  .help = "only the N likeliest tokens; 0: all" },
	{ .key = "seed",
	  .kind = OPT_INT,
	  .offset = AT(seed),
	  .def = "0",
	  .lo = 0,
	  .hi = 9e18,
	  .arg = "N",
	  .help = "the same seed gives the same text" },
	MODEL_ROWS(AT(model)),
	{ .key = "stats",
	  .kind = OPT_BOOL,
	  .offset = AT(stats),
	  .help = "tokens per second, on standard error" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard generate [options] MODEL",
	.about =
		"Writes the model's answer to a prompt, token by token. MODEL is a folder or a "
		".gguf file. On a terminal without --prompt it is a conversation: /new forgets it, "
		"/exit ends it.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard generate model.gguf\n"
		   "  heteroshard generate model.gguf --prompt 'What is a gradient?'\n"
		   "  heteroshard generate model.gguf --adapter run --temperature 0 --prompt 'Why "
		   "is my GPU throttling?'",
};

static int print_text(void *ctx, const char *text, size_t n)
{
	(void)ctx;
	return !cli_text(cli_out(), text, n) || fflush(cli_out());
}

static int run(const struct args *o, struct err *e)
{
	struct runtime r;
	struct buf text = BUF_INIT;
	struct tokens ids = { 0 };
	struct generate_stats st;
	const struct sampling s = { .temperature = o->temperature,
				    .top_p = o->top_p,
				    .top_k = o->top_k,
				    .seed = (uint64_t)o->seed };
	TRY(runtime_open(&o->model, &r, e));
	int rc = 0;
	if (!o->prompt && !o->raw && !cli_is_inside() && isatty(STDIN_FILENO)) {
		const struct chat_options c = { .system = o->system,
						.max_new_tokens = o->max_new_tokens,
						.sampling = s,
						.stats = o->stats };
		rc = r.chat ? chat_loop(&r, &c, e) : prompt_no_template(e);
		goto out;
	}
	if (o->prompt)
		buf_adds(&text, o->prompt);
	else
		TRYOUT(cli_read_stdin(&text, 64 << 20, e));
	const struct prompt p = { .system = o->system, .text = text.p, .n = text.n, .raw = o->raw };
	TRYOUT(prompt_encode(&p, r.chat, r.tok, &ids, e));
	TRYOUT(generate(&r, ids.id, ids.n, o->max_new_tokens, &s, print_text, NULL, &st, e));
	fputc('\n', cli_out());
	if (o->stats)
		chat_stats(&st);
out:
	tokens_release(&ids);
	buf_release(&text);
	runtime_close(&r);
	return rc;
}

int cmd_generate(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status = 0;
	if (cli_args(&usage, argc, argv, &o, 1, 1, &npos, &a, &status)) {
		o.model.model = argv[1];
		o.model.need_tokenizer = true;
		int rc = cli_fetch_model(&o.model.model, &a, &e);
		status = rc < 0 || run(&o, &e) < 0 ? cli_fail(&e) : 0;
	}
	arena_release(&a);
	return status;
}
