/* SPDX-License-Identifier: Apache-2.0 */
/* What JSON takes in memory is known before it is parsed: json_memory() is compared with what
 * jansson allocates, and texts that would take too much are refused before anything is. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- the most memory that jansson holds ---- */

static size_t now, most, calls;

static void *count(size_t n)
{
	void *p = malloc(n);
	calls++;
	now += p ? malloc_usable_size(p) + sizeof(size_t) : 0;
	most = now > most ? now : most;
	return p;
}

static void uncount(void *p)
{
	now -= p ? malloc_usable_size(p) + sizeof(size_t) : 0;
	free(p);
}

/* The text `head`, `n` times `item` with commas between, `tail`; "%zu" in an item is its number. */
static void repeat(struct buf *b, const char *head, const char *item, size_t n, const char *tail)
{
	const char *number = strstr(item, "%zu");
	buf_adds(b, head);
	for (size_t i = 0; i < n; i++) {
		buf_adds(b, i ? "," : "");
		buf_add(b, item, number ? (size_t)(number - item) : strlen(item));
		if (number)
			buf_addf(b, "%zu%s", i, number + 3);
	}
	buf_adds(b, tail);
}

/* Whatever the values are, the figure of json_memory() is not below what is allocated. `least` says
 * how close the two must be. */
static void the_figure_is_an_upper_bound(void **state)
{
	(void)state;
	static const struct {
		const char *head, *item, *tail;
		double least; /* share of the figure that is allocated, at least */
	} row[] = {
		{ "{\"x\":[", "{}", "]}", 0.7 },
		{ "[", "[]", "]", 0.6 },
		{ "[", "[1]", "]", 0.4 },
		{ "[", "1", "]", 0.4 },
		{ "[", "-1.5e-5", "]", 0.4 },
		{ "[", "\"\"", "]", 0.4 },
		{ "[", "\"a\"", "]", 0.4 },
		{ "[", "true", "]", 0.2 },
		{ "{", "\"%zu\":1", "}", 0.4 },
		{ "{", "\"%zu\":{}", "}", 0.4 },
		{ "{", "\"a rather long key of a tensor %zu\":\"model-00001.safetensors\"", "}",
		  0.4 },
		{ "{\"merges\":[", "[\"ab\",\"cd\"]", "]}", 0.4 },
		{ "[", "[[[[[[]]]]]]", "]", 0.6 },
		{ "[", "{\"dtype\":\"F32\",\"shape\":[%zu,1],\"data_offsets\":[0,4]}", "]", 0.4 },
	};
	static const size_t sizes[] = { 1, 8, 9, 1000, 1025, 20000, 65537 };
	json_set_alloc_funcs(count, uncount);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			struct buf b = BUF_INIT;
			struct err e = { 0 };
			json_t *doc;
			repeat(&b, row[i].head, row[i].item, sizes[k], row[i].tail);
			now = most = 0;
			if (json_parse_text_in(b.p, b.n, "test", 1ull << 40, &doc, &e) < 0)
				fail_msg("%s", e.msg);
			size_t took = most;
			json_decref(doc);
			assert_int_equal(now, 0);
			uint64_t figure = json_memory(b.p, b.n);
			if (took > figure + 2 * b.n)
				fail_msg("%zu times %s: %zu bytes, the figure is %llu", sizes[k],
					 row[i].item, took, (unsigned long long)figure);
			if (sizes[k] >= 1000 && !((double)took >= row[i].least * (double)figure))
				fail_msg("%zu times %s: only %zu bytes, the figure is %llu",
					 sizes[k], row[i].item, took, (unsigned long long)figure);
			buf_release(&b);
		}
	json_set_alloc_funcs(malloc, free);
}

static void too_many_values_are_refused_before_any_is_made(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	json_t *doc = NULL;
	repeat(&b, "{\"x\":[", "{}", 1000000, "]}");
	json_set_alloc_funcs(count, uncount);
	calls = 0;
	assert_int_equal(json_parse_text(b.p, b.n, "some.json", &doc, &e), ERR_INPUT);
	assert_int_equal(calls, 0);
	json_set_alloc_funcs(malloc, free);
	assert_string_equal(e.msg, "some.json: too many JSON values: they would take 259 MiB of "
				   "memory, 64 are allowed here");
	assert_null(doc);
	buf_release(&b);
}

/* Brackets and commas inside strings are not counted as values. */
static void texts_are_not_values(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	json_t *doc;
	buf_adds(&b, "[\"");
	for (int i = 0; i < 1000000; i++)
		buf_adds(&b, "{,[\\\"");
	buf_adds(&b, "\"]");
	if (json_parse_text_in(b.p, b.n, "test", JSON_MEMORY_LINE, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(doc);
	buf_release(&b);
}

/* transformers writes model_max_length so into tokenizer_config.json, pandas NaN into records. */
static void what_python_writes_is_read(void **state)
{
	(void)state;
	struct err e = { 0 };
	json_t *doc, *list;
	static const char text[] = "{\"model_max_length\": 1000000000000000019884624838656,"
				   "\"l\":[NaN,-Infinity,Infinity,7,-12345678901234567890,1.5e2],"
				   "\"s\":\"NaN \\\" 12345678901234567890 \\\\\"}";
	if (json_parse_text(text, sizeof text - 1, "test", &doc, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(json_real_value(json_object_get(doc, "model_max_length")) == 1e30);
	list = json_object_get(doc, "l");
	assert_int_equal(json_array_size(list), 6);
	for (size_t i = 0; i < 3; i++)
		assert_true(json_is_null(json_array_get(list, i)));
	assert_int_equal(json_integer_value(json_array_get(list, 3)), 7);
	assert_true(json_real_value(json_array_get(list, 4)) == -12345678901234567890.0);
	assert_true(json_real_value(json_array_get(list, 5)) == 150);
	assert_string_equal(json_string_value(json_object_get(doc, "s")),
			    "NaN \" 12345678901234567890 \\");
	json_decref(doc);
	static const char *const bad[] = {
		"[nan]", "[NaNa]", "[1e400]", "[12a]", "[+1]", "[NaN", "[9999999999999999999 9]"
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(json_parse_text(bad[i], strlen(bad[i]), "test", &doc, &e),
				 ERR_INPUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_figure_is_an_upper_bound),
		cmocka_unit_test(too_many_values_are_refused_before_any_is_made),
		cmocka_unit_test(texts_are_not_values),
		cmocka_unit_test(what_python_writes_is_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
