/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations with tools and calls in Parquet files of pyarrow and in lines of JSON
 * (tests/golden/readers/tools*, made by scripts/golden/readers.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/err.h"
#include "data/axolotl_chat.h"
#include "data/chat.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

#define DIR "tests/golden/readers/"

/* Conversations with tools and calls in columns of Parquet give the ids and marks of the same
 * records in lines of JSON, whose turns have no key that is null. */
static void test_tools(void **state)
{
	static const char *const kinds[] = { "tools-text", "tools-nested" }, *const templates[] = {
		"qwen_25", "qwen3"
	};
	(void)state;
	for (size_t k = 0; k < 4; k++) {
		struct err e = { 0 };
		struct tokenizer *tok;
		struct dataset *d[2];
		const struct chat_template *chat;
		size_t trained = 0, ids = 0;
		if (tokenizer_from_file("tests/golden/tokenizer/qwen2.json", NULL, &tok, &e) < 0 ||
		    chat_from_jinja(axolotl_chat(templates[k / 2]), tok, &chat, &e) < 0)
			fail_msg("%s", e.msg);
		const struct dataset_options o = { .tok = tok, .chat = chat, .sequence_len = 4096 };
		for (int form = 0; form < 2; form++) {
			char path[128];
			snprintf(path, sizeof path, DIR "%s.%s", kinds[k % 2],
				 form ? "parquet" : "jsonl");
			const struct dataset_source s = { .path = path, .type = "messages" };
			if (dataset_load(&s, 1, &o, &d[form], &e) < 0)
				fail_msg("%s: %s", path, e.msg);
		}
		assert_int_equal(dataset_count(d[0]), 12);
		assert_int_equal(dataset_count(d[1]), 12);
		for (size_t i = 0; i < 12; i++) {
			const struct example a = dataset_get(d[0], i), b = dataset_get(d[1], i);
			assert_int_equal(a.n, b.n);
			assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
			assert_memory_equal(a.train, b.train, a.n * sizeof *a.train);
			ids += a.n;
			for (size_t t = 0; t < a.n; t++)
				trained += a.train[t] != 0;
		}
		assert_true(trained > 500 && trained < ids / 2);
		dataset_free(d[0]);
		dataset_free(d[1]);
		chat_free(chat);
		tokenizer_free(tok);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_tools) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
