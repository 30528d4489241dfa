/* SPDX-License-Identifier: Apache-2.0 */
/* Options as rows: values from text, flags, the nearest word, help. YAML: shapes, lines, limits. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/arena.h"
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct thing {
	bool flag, on;
	int64_t count;
	double rate;
	const char *name;
	int colour;
	struct opt_list list;
};

#define AT(f) offsetof(struct thing, f)
static const struct opt rows[] = {
	{ .key = "flag",
	  .kind = OPT_BOOL,
	  .offset = AT(flag),
	  .help = "a flag",
	  .section = "First" },
	{ .key = "on",
	  .kind = OPT_BOOL,
	  .offset = AT(on),
	  .def = "true",
	  .help = "on unless told otherwise" },
	{ .key = "max_count",
	  .kind = OPT_INT,
	  .offset = AT(count),
	  .def = "7",
	  .lo = 1,
	  .hi = 99,
	  .help = "how many" },
	{ .key = "rate",
	  .kind = OPT_FLOAT,
	  .offset = AT(rate),
	  .lo = 0,
	  .lo_open = true,
	  .hi = OPT_MAX,
	  .help = "how fast",
	  .section = "Second" },
	{ .key = "name", .kind = OPT_STR, .offset = AT(name), .help = "what it is called | piped" },
	{ .key = "colour",
	  .kind = OPT_ENUM,
	  .offset = AT(colour),
	  .choices = "red|green|blue",
	  .def = "green",
	  .help = "its colour" },
	{ .key = "list", .kind = OPT_LIST, .offset = AT(list), .help = "several words" },
	{ .key = "special", .kind = OPT_CUSTOM, .help = "read by somebody else" },
};

static int parse(struct thing *t, struct arena *a, int argc, const char *const *words, char **argv,
		 int *npos, struct err *e)
{
	for (int i = 0; i < argc; i++)
		argv[i] = arena_strdup(a, words[i]);
	int rc = opt_defaults(rows, ARRAY_LEN(rows), t, a, e);
	return rc < 0 ? rc : opt_argv(rows, ARRAY_LEN(rows), t, argc, argv, npos, a, e);
}

static void flags(void **state)
{
	(void)state;
	static const char *const words[] = { "one",    "--flag",     "--no-on",  "--max-count",
					     "12",     "--rate=2.5", "two",      "--name",
					     "--odd",  "-",          "--colour", "BLUE",
					     "--list", "a, b,c",     "--",       "--x" };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	struct thing t = { 0 };
	char *argv[ARRAY_LEN(words)];
	int npos = 0;
	assert_int_equal(parse(&t, &a, ARRAY_LEN(words), words, argv, &npos, &e), 0);
	assert_int_equal(npos, 4);
	assert_string_equal(argv[0], "one");
	assert_string_equal(argv[1], "two");
	assert_string_equal(argv[2], "-");
	assert_string_equal(argv[3], "--x");
	assert_true(t.flag);
	assert_false(t.on);
	assert_int_equal(t.count, 12);
	assert_true(t.rate == 2.5);
	assert_string_equal(t.name, "--odd");
	assert_int_equal(t.colour, 2);
	assert_int_equal(t.list.n, 3);
	assert_string_equal(t.list.item[1], "b");
	arena_release(&a);
}

static void bad_flags(void **state)
{
	(void)state;
	static const struct {
		const char *word[2];
		const char *want;
	} bad[] = {
		{ { "--cuont", "3" }, "unknown option '--cuont'" },
		{ { "--max-cuont", "3" }, "did you mean '--max-count'?" },
		{ { "--count", "3" }, "did you mean '--max-count'?" },
		{ { "-f", "3" }, "unknown option '-f'" },
		{ { "--", "x" }, NULL },
		{ { "x", "--rate" }, "option '--rate' needs a value" },
		{ { "--rate", "-1" }, "command line: 'rate' is -1, it must be greater than 0" },
		{ { "--rate", "1,5" }, "'rate' must be a number" },
		{ { "--max-count", "100" }, "'max_count' is 100, allowed is 1 to 99" },
		{ { "--max-count", "" }, "'max_count' must be a whole number, not ''" },
		{ { "--flag=maybe", "x" }, "'flag' must be true or false" },
		{ { "--no-name", "x" }, "unknown option '--no-name'" },
		{ { "--colour", "re" }, "'colour' is 're', allowed are: red, green, blue" },
		{ { "--special", "x" }, "'special' cannot be given as one value" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct arena a = ARENA_INIT;
		struct err e = { 0 };
		struct thing t = { 0 };
		char *argv[2];
		int npos;
		int rc = parse(&t, &a, 2, bad[i].word, argv, &npos, &e);
		if (bad[i].want ? rc != ERR_USAGE || !strstr(e.msg, bad[i].want) : rc != 0)
			fail_msg("%s %s -> %d %s", bad[i].word[0], bad[i].word[1], rc, e.msg);
		arena_release(&a);
	}
}

static void nearest(void **state)
{
	(void)state;
	static const char *const words[] = { "train", "generate", "eval", "merge", NULL };
	assert_string_equal(opt_nearest_word(words, "trian"), "train");
	assert_string_equal(opt_nearest_word(words, "TRAIN"), "train");
	assert_string_equal(opt_nearest_word(words, "mrege"), "merge");
	assert_string_equal(opt_nearest_word(words, "evaluate"), "eval");
	assert_string_equal(opt_nearest_word(words, "generat"), "generate");
	assert_null(opt_nearest_word(words, "xyzzy"));
	assert_null(opt_nearest_word(words, "a"));
	assert_null(opt_nearest_word(words, ""));
	assert_string_equal(opt_nearest(rows, ARRAY_LEN(rows), "max-cnt"), "max_count");
}

static void help(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	opt_help(rows, ARRAY_LEN(rows), true, &b);
	assert_non_null(strstr(b.p, "First:\n  --flag "));
	assert_non_null(strstr(b.p, "  --[no-]on "));
	assert_non_null(strstr(b.p, "how many (1 to 99; default 7)\n"));
	assert_non_null(strstr(b.p, "--colour red|green|blue "));
	for (const char *p = b.p, *nl; (nl = strchr(p, '\n')); p = nl + 1)
		assert_true(nl - p <= 100);
	buf_reset(&b);
	opt_markdown(rows, ARRAY_LEN(rows), &b);
	assert_non_null(strstr(b.p, "## Second\n\n| key | value | default | meaning "
				    "|\n|---|---|---|---|\n| `rate` | above 0 |  | how fast |\n"));
	assert_non_null(strstr(b.p, "called \\| piped |"));
	buf_release(&b);
}

static void yaml_tree(void **state)
{
	(void)state;
	static const char text[] =
		"a: 1\nb:\n  - x\n  - {y: 'null', z: null}\nc: ~\n\"d e\": |\n  two\n  lines\n";
	struct err e = { 0 };
	struct yaml *y;
	assert_int_equal(yaml_parse_text(text, sizeof text - 1, "t", &y, &e), 0);
	const struct yaml_node *r = yaml_root(y), *b = yaml_find(r, "b");
	assert_int_equal(r->kind, YAML_MAP);
	assert_int_equal(r->count, 4);
	assert_int_equal(b->kind, YAML_LIST);
	assert_int_equal(b->line, 2);
	assert_int_equal(b->child[1]->line, 4);
	assert_false(yaml_is_null(yaml_find(b->child[1], "y")));
	assert_true(yaml_is_null(yaml_find(b->child[1], "z")));
	assert_true(yaml_is_null(yaml_find(r, "c")));
	assert_string_equal(yaml_find(r, "d e")->text, "two\nlines\n");
	assert_null(yaml_find(r, "nothing"));
	assert_null(yaml_find(yaml_find(r, "a"), "x"));
	yaml_doc_free(y);
}

static int parse_yaml(const char *text, size_t n, struct err *e)
{
	struct yaml *y = NULL;
	int rc = yaml_parse_text(text, n, "t", &y, e);
	if (rc == 0)
		yaml_doc_free(y);
	return rc;
}

static void yaml_limits(void **state)
{
	(void)state;
	struct err e = { 0 };
	char deep[256];
	struct buf b = BUF_INIT;
	memset(deep, '[', 40);
	memset(deep + 40, ']', 40);
	assert_int_equal(parse_yaml(deep, 80, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "nested too deep"));
	memset(deep + 20, ']', 20);
	assert_int_equal(parse_yaml(deep, 40, &e), 0);
	buf_adds(&b, "[");
	for (int i = 0; i < 100001; i++)
		buf_adds(&b, "1,");
	buf_adds(&b, "1]");
	assert_int_equal(parse_yaml(b.p, b.n, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "too many values"));
	buf_reset(&b);
	for (int i = 0; i < 2000; i++)
		buf_addf(&b, "k%d: 1\n", i);
	assert_int_equal(parse_yaml(b.p, b.n, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "too many keys"));
	buf_reset(&b);
	for (int i = 0; i < 200000; i++)
		buf_adds(&b, "#######\n");
	assert_int_equal(parse_yaml(b.p, b.n, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "1 MiB"));
	buf_release(&b);
	assert_int_equal(parse_yaml("a: \"\\0\"", 7, &e), ERR_USAGE);
	assert_int_equal(parse_yaml("a: \xff\xfe", 5, &e), ERR_USAGE);
	assert_int_equal(parse_yaml("? [a]\n: b", 9, &e), ERR_USAGE);
	assert_int_equal(parse_yaml("a: *b", 5, &e), ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags), cmocka_unit_test(bad_flags), cmocka_unit_test(nearest),
		cmocka_unit_test(help),  cmocka_unit_test(yaml_tree), cmocka_unit_test(yaml_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
