/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tokenize.c - `heteroshard tokenize MODEL`: text on standard input to ids on standard output,
 * and back. */
#include "cli/cli.h"
#include "cli/hub_names.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer.h"
#include "file/model_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cmd_tokenize(int argc, char **argv);

enum { TEXT_MOST = 256 << 20 };

struct args {
	bool decode, special, lines, pieces, count, json;
};

#define AT(f) offsetof(struct args, f)
static const struct opt rows[] = {
	{ .key = "decode",
	  .kind = OPT_BOOL,
	  .offset = AT(decode),
	  .help = "the other way: ids on standard input, text on standard output" },
	{ .key = "special",
	  .kind = OPT_BOOL,
	  .offset = AT(special),
	  .help = "add what the model's tokenizer adds (BOS, EOS) and read special tokens written "
		  "in the text; with --decode: "
		  "print them too" },
	{ .key = "lines",
	  .kind = OPT_BOOL,
	  .offset = AT(lines),
	  .help = "each line by itself, without its newline: one line of output for each" },
	{ .key = "pieces",
	  .kind = OPT_BOOL,
	  .offset = AT(pieces),
	  .help = "one id a line, with the text of the token" },
	{ .key = "count", .kind = OPT_BOOL, .offset = AT(count), .help = "only the number of ids" },
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = AT(json),
	  .help = "ids as a JSON list (with --decode: the text as a JSON string)" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard tokenize [options] MODEL <FILE",
	.about = "Shows how a model's own tokenizer cuts a text. MODEL is a folder, a .gguf file "
		 "or a tokenizer.json.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  printf 'Hello world' | heteroshard tokenize models/SmolLM2\n"
		   "  echo 19556 905 | heteroshard tokenize --decode models/SmolLM2",
};

static int open_tokenizer(const char *path, struct tokenizer **t_p, struct err *e)
{
	size_t n = strlen(path);
	if (n > 5 && !strcmp(path + n - 5, ".json"))
		return tokenizer_from_file(path, NULL, t_p, e);
	struct model_file *f;
	TRY(model_file_open(path, &f, e));
	const char *json = model_file_tokenizer_path(f);
	int rc;
	if (json)
		rc = tokenizer_from_file(json, model_file_tokenizer_config(f), t_p, e);
	else if (model_file_gguf_vocab(f))
		rc = tokenizer_from_gguf(model_file_gguf_vocab(f), path, t_p, e);
	else
		rc = err_set(e, ERR_INPUT,
			     "%s: there is no tokenizer in it (tokenizer.json is missing)", path);
	model_file_close(f);
	return rc;
}

static int print_pieces(const struct tokenizer *t, const struct tokens *ids, struct err *e)
{
	for (size_t i = 0; i < ids->n; i++) {
		struct buf text = BUF_INIT, quoted = BUF_INIT;
		int rc = tokenizer_decode(t, &ids->id[i], 1, false, &text, e);
		if (rc >= 0) {
			json_quote(&quoted, text.p, text.n);
			fprintf(cli_out(), "%7d  %s%s\n", ids->id[i], quoted.p,
				tokenizer_is_special(t, ids->id[i]) ? "  special" : "");
		}
		buf_release(&text);
		buf_release(&quoted);
		TRY(rc);
	}
	return 0;
}

static int encode(const struct tokenizer *t, const struct args *o, const char *text, size_t n,
		  struct err *e)
{
	struct tokens ids = { 0 };
	int rc = tokenizer_encode(t, text, n, o->special, o->special, &ids, e);
	if (rc >= 0 && o->count) {
		fprintf(cli_out(), "%zu\n", ids.n);
	} else if (rc >= 0 && o->pieces) {
		rc = print_pieces(t, &ids, e);
	} else if (rc >= 0) {
		fputs(o->json ? "[" : "", cli_out());
		for (size_t i = 0; i < ids.n; i++)
			fprintf(cli_out(), "%s%d", !i ? "" : o->json ? ", " : " ", ids.id[i]);
		fputs(o->json ? "]\n" : "\n", cli_out());
	}
	tokens_release(&ids);
	return rc;
}

/* Ids apart by anything that is not part of a number, so that a JSON list is read as well. */
static int read_ids(const struct tokenizer *t, const char *s, size_t n, struct tokens *ids,
		    struct err *e)
{
	for (const char *end = s + n; s < end;) {
		if (isspace((unsigned char)*s) || strchr("[],;", *s)) {
			s++;
			continue;
		}
		char *stop;
		errno = 0;
		long v = strtol(s, &stop, 10);
		size_t word = stop > s ? (size_t)(stop - s) : strcspn(s, " \t\r\n");
		if (stop == s || errno || v < 0 || (size_t)v >= tokenizer_vocab_size(t))
			return err_set(
				e, ERR_INPUT,
				"standard input: '%.*s' is not an id of this tokenizer (0 to %zu)",
				(int)(word < 20 ? word : 20), s, tokenizer_vocab_size(t) - 1);
		TRY(tokens_add(ids, (int32_t)v, e));
		s = stop;
	}
	return 0;
}

static int decode(const struct tokenizer *t, const struct args *o, const char *s, size_t n,
		  struct err *e)
{
	struct tokens ids = { 0 };
	struct buf text = BUF_INIT, quoted = BUF_INIT;
	int rc = read_ids(t, s, n, &ids, e);
	if (rc >= 0)
		rc = tokenizer_decode(t, ids.id, ids.n, !o->special, &text, e);
	if (rc >= 0)
		rc = buf_ok(&text, e);
	if (rc >= 0 && o->json) {
		json_quote(&quoted, text.p, text.n);
		fprintf(cli_out(), "%s\n", quoted.p);
	} else if (rc >= 0) {
		cli_text(cli_out(), text.p, text.n);
		fputs(o->lines ? "\n" : "", cli_out());
	}
	tokens_release(&ids);
	buf_release(&text);
	buf_release(&quoted);
	return rc;
}

static int run(const struct args *o, const char *model, struct err *e)
{
	int (*work)(const struct tokenizer *, const struct args *, const char *, size_t,
		    struct err *) = o->decode ? decode : encode;
	struct tokenizer *t;
	struct buf in = BUF_INIT;
	TRY(open_tokenizer(model, &t, e));
	int rc = cli_read_stdin(&in, TEXT_MOST, e);
	if (rc >= 0 && !o->lines)
		rc = work(t, o, in.p, in.n, e);
	for (const char *p = in.p, *end = in.p + in.n; rc >= 0 && o->lines && p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = nl ? (size_t)(nl - p) : (size_t)(end - p);
		if (nl)
			in.p[nl - in.p] = 0; /* strtol must not read into the next line */
		rc = work(t, o, p, n, e);
		p += n + 1;
	}
	buf_release(&in);
	tokenizer_free(t);
	return rc;
}

int cmd_tokenize(int argc, char **argv)
{
	struct args args = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &args, 1, 1, &npos, &a, &status)) {
		const char *model = argv[1];
		int rc = cli_fetch_model(&model, &a, &e);
		status = rc < 0 || run(&args, model, &e) < 0 ? cli_fail(&e) : 0;
	}
	arena_release(&a);
	return status;
}
