/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_info.c - `heteroshard info PATH`: what a model, adapter, checkpoint, run, safetensors file or
 * plan contains.
 *
 * Every kind is first described as a JSON object; --json prints it, otherwise its members become
 * lines and its lists tables. So both always have the same content. */
#include "cli/cli.h"
#include "cli/info.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int cmd_info(int argc, char **argv);

struct args {
	bool json, tensors;
};

static const struct opt rows[] = {
	{ .key = "json",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, json),
	  .help = "print JSON" },
	{ .key = "tensors",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, tensors),
	  .help = "list every tensor" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard info [--json] [--tensors] PATH",
	.about = "Shows what PATH contains: a model (folder or .gguf), an adapter, a checkpoint, a "
		 "run (its folder or metrics.jsonl), a .safetensors file, a plan.json, a "
		 "profile.json or a prediction.json.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
};

static bool exists(const char *dir, const char *name)
{
	char path[4096];
	struct stat st;
	int n = snprintf(path, sizeof path, "%s/%s", dir, name);
	return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n > k && !strcmp(s + n - k, end);
}

/* The run whose metrics.jsonl it is. */
static int run_of(const char *metrics, json_t **o_p, struct err *e)
{
	char dir[4096] = ".";
	const char *slash = strrchr(metrics, '/');
	if (slash)
		snprintf(dir, sizeof dir, "%.*s", slash == metrics ? 1 : (int)(slash - metrics),
			 metrics);
	return info_run(dir, o_p, e);
}

static int describe(const char *path, struct info_rows *list, json_t **o_p, struct err *e)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return err_set(e, ERR_INPUT, "%s: there is no such file or folder", path);
	if (!S_ISDIR(st.st_mode)) {
		if (ends_with(path, ".safetensors"))
			return info_safetensors(path, list, o_p, e);
		if (ends_with(path, ".json"))
			return info_json(path, o_p, e);
		if (!strcmp(path, "metrics.jsonl") || ends_with(path, "/metrics.jsonl"))
			return run_of(path, o_p, e);
		return info_gguf_adapter(path, list, o_p) ? 0 : info_model(path, list, o_p, e);
	}
	if (exists(path, "trainer_state.json"))
		return info_checkpoint(path, o_p, e);
	if (exists(path, "metrics.jsonl") || exists(path, "checkpoints"))
		return info_run(path, o_p, e);
	if (exists(path, "adapter_config.json"))
		return info_adapter(path, list, o_p, e);
	if (exists(path, "config.json"))
		return info_model(path, list, o_p, e);
	return err_set(e, ERR_INPUT,
		       "%s: nothing known in this folder (no config.json, adapter_config.json, "
		       "trainer_state.json or metrics.jsonl)",
		       path);
}

/* Members that end in "bytes" are sizes, those called "parameters" are counts: the text output
 * gives them units. */
static void value_text(const char *key, const json_t *v, char *s, size_t cap)
{
	size_t n = strlen(key);
	if (json_is_integer(v) && n >= 5 && !strcmp(key + n - 5, "bytes"))
		cli_bytes((uint64_t)json_integer_value(v), s, cap);
	else if (json_is_integer(v) && n >= 10 && !strcmp(key + n - 10, "parameters"))
		cli_count((uint64_t)json_integer_value(v), s, cap);
	else if (json_is_integer(v))
		snprintf(s, cap, "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		snprintf(s, cap, "%.6g", json_real_value(v));
	else if (json_is_string(v))
		snprintf(s, cap, "%s", json_string_value(v));
	else if (json_is_boolean(v))
		snprintf(s, cap, "%s", json_is_true(v) ? "yes" : "no");
	else
		snprintf(s, cap, "-");
}

static void label_text(const char *key, char *s, size_t cap)
{
	size_t n = strlen(key);
	if (n > 6 && !strcmp(key + n - 6, "_bytes"))
		n -= 6;
	n = n < cap ? n : cap - 1;
	for (size_t i = 0; i < n; i++)
		s[i] = key[i] == '_' ? ' ' : key[i];
	s[n] = 0;
}

/* A list of numbers or words on one line, cut when it is long. */
static void list_text(const json_t *v, char *s, size_t cap)
{
	size_t at = 0, i;
	const json_t *item;
	s[0] = 0;
	json_array_foreach(v, i, item)
	{
		char one[128];
		value_text("", item, one, sizeof one);
		int n = snprintf(s + at, cap - at, "%s%s", i ? ", " : "", one);
		if (n < 0 || (size_t)n >= cap - at)
			break;
		at += (size_t)n;
	}
}

static void print_table(const json_t *list)
{
	const char *keys[8], *cells[8];
	char text[8][256];
	size_t n = 0, i;
	const char *key;
	json_t *v;
	json_object_foreach(json_array_get(list, 0), key, v)
	{
		if (n < ARRAY_LEN(keys))
			keys[n++] = key;
	}
	for (size_t c = 0; c < n; c++) {
		label_text(keys[c], text[c], sizeof text[c]);
		cells[c] = text[c];
	}
	struct cli_table *t = cli_table_new(cells, n);
	json_array_foreach(list, i, v)
	{
		for (size_t c = 0; c < n; c++) {
			const json_t *x = json_object_get(v, keys[c]);
			if (json_is_array(x))
				list_text(x, text[c], sizeof text[c]);
			else
				value_text(keys[c], x, text[c], sizeof text[c]);
		}
		cli_table_add(t, cells);
	}
	fputc('\n', cli_out());
	cli_table_print(t, cli_out());
}

static bool is_table(const json_t *v)
{
	return json_is_object(v) || (json_is_array(v) && json_is_object(json_array_get(v, 0)));
}

static void print(const json_t *o)
{
	const char *key;
	char name[64], text[512];
	json_t *v;
	int wide = 0;
	json_object_foreach((json_t *)o, key, v)
	{
		label_text(key, name, sizeof name);
		if (!is_table(v) && !json_is_null(v) && (int)strlen(name) > wide)
			wide = (int)strlen(name);
	}
	json_object_foreach((json_t *)o, key, v)
	{
		char label[sizeof name];
		if (is_table(v))
			continue;
		label_text(key, name, sizeof name);
		snprintf(label, sizeof label, "%-*s", wide, name);
		if (json_is_array(v))
			list_text(v, text, sizeof text);
		else
			value_text(key, v, text, sizeof text);
		if (!json_is_null(v) && text[0])
			cli_fact(label, "%s", text);
	}
	json_object_foreach((json_t *)o, key, v)
	{
		if (json_is_array(v) && json_is_object(json_array_get(v, 0)))
			print_table(v);
	}
}

/* The list of tensors, as a table. */
struct listing {
	const struct info_rows *list;
	const char *key[8];
	size_t columns;
	char text[8][256];
};

static void listing_cells(void *ctx, size_t row, const char **cells)
{
	struct listing *l = ctx;
	json_t *v = row ? l->list->row(l->list->ctx, row - 1) : NULL;
	for (size_t c = 0; c < l->columns; c++) {
		const json_t *x = json_object_get(v, l->key[c]);
		if (!row)
			label_text(l->key[c], l->text[c], sizeof l->text[c]);
		else if (json_is_array(x))
			list_text(x, l->text[c], sizeof l->text[c]);
		else
			value_text(l->key[c], x, l->text[c], sizeof l->text[c]);
		text_safe_str(l->text[c], TEXT_LINE);
		cells[c] = l->text[c];
	}
	json_decref(v);
}

static void print_listing(const struct info_rows *list)
{
	struct listing l = { .list = list };
	json_t *first = list->n ? list->row(list->ctx, 0) : NULL, *v;
	const char *key;
	if (!first)
		return;
	json_object_foreach(first, key, v)
	{
		if (l.columns < ARRAY_LEN(l.key))
			l.key[l.columns++] = key;
	}
	fputc('\n', cli_out());
	cli_table_stream(cli_out(), l.columns, list->n + 1, listing_cells, &l);
	json_decref(first);
}

/* One JSON object; the list is added to its end row by row. On a terminal all but ASCII is
 * escaped, as some of it would be obeyed there. */
static int print_json(const json_t *o, const struct info_rows *list, struct err *e)
{
	size_t flags = JSON_PRESERVE_ORDER | (cli_is_terminal(cli_out()) ? JSON_ENSURE_ASCII : 0);
	char *text = json_dumps(o, JSON_INDENT(1) | flags);
	if (!text)
		return err_nomem(e, 4096, "JSON");
	size_t n = strlen(text);
	if (!list->name) {
		cli_json(cli_out(), text, n);
		fputc('\n', cli_out());
	} else {
		/* without "\n}" */
		cli_json(cli_out(), text, n - 2);
		fprintf(cli_out(), ",\n \"%s\": [", list->name);
		for (size_t i = 0; i < list->n; i++) {
			json_t *row = list->row(list->ctx, i);
			char *cells = json_dumps(row, flags);
			fputs(i ? ",\n  " : "\n  ", cli_out());
			cli_json(cli_out(), cells ? cells : "null", cells ? strlen(cells) : 4);
			free(cells);
			json_decref(row);
		}
		fputs("\n ]\n}\n", cli_out());
	}
	free(text);
	return 0;
}

int cmd_info(int argc, char **argv)
{
	struct args args = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	struct info_rows list = { 0 };
	json_t *o = NULL;
	int npos, status, rc = 0;
	bool go = cli_args(&usage, argc, argv, &args, 1, 1, &npos, &a, &status);
	/* the path may be in the arena */
	if (go)
		rc = describe(argv[1], args.tensors ? &list : NULL, &o, &e);
	arena_release(&a);
	if (!go)
		return status;
	if (rc < 0)
		return cli_fail(&e);
	if (args.json) {
		rc = print_json(o, &list, &e);
	} else {
		print(o);
		if (list.name)
			print_listing(&list);
	}
	if (list.close)
		list.close(list.ctx);
	json_decref(o);
	return rc < 0 ? cli_fail(&e) : 0;
}
