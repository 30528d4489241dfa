/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the first turns of a conversation that jinja_starts_text() gives are those that
 * rendering these turns alone gives, byte for byte, and its errors are those; how much is written
 * anew, for templates written in the usual ways; and a chat of many turns is encoded the same. With
 * an argument: another file of scripts/golden/jinja.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/axolotl_chat.h"
#include "data/chat.h"
#include "data/jinja.h"
#include "data/tokenizer.h"

#define DIR "tests/golden/tokenizer/"

static const char *file = DIR "jinja.json";
static json_t *bos, *eos;

static int setup(void **state)
{
	(void)state;
	bos = json_string("<s>");
	eos = json_string("</s>");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(bos);
	json_decref(eos);
	return 0;
}

struct vars {
	struct jinja_var v[5];
};

static struct vars vars(const json_t *messages, const json_t *tools, bool open)
{
	return (struct vars){ { { "messages", messages, 1, true, "role" },
				{ .name = "tools", .v = tools, .source = 999 },
				{ .name = "add_generation_prompt", .v = json_boolean(open) },
				{ .name = "bos_token", .v = bos },
				{ .name = "eos_token", .v = eos } } };
}

static json_t *first(const json_t *list, size_t n)
{
	json_t *part = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append(part, json_array_get(list, i));
	return part;
}

/* Every beginning of a conversation, forwards and backwards; returns how many were known.
 * sum: bytes that were written for them, and bytes that they have; longest: for one of them. */
struct sum {
	size_t written, all, longest;
};

static size_t compare(const char *name, const char *text, const json_t *messages,
		      const json_t *tools, bool open, struct sum *sum)
{
	struct err e = { 0 };
	struct jinja *j;
	struct jinja_starts *s;
	size_t known = 0, n = json_array_size(messages);
	if (jinja_parse(text, strlen(text), &j, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	const struct vars all = vars(messages, tools, open);
	if (jinja_starts_new(j, all.v, ARRAY_LEN(all.v), &s, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	for (size_t k = 0; k <= 2 * n; k++) {
		const size_t i = k <= n ? k : 2 * n - k;
		struct jinja_text tail = { .text = BUF_INIT }, want = { .text = BUF_INIT };
		struct err own = { 0 }, other = { 0 };
		size_t head = 0;
		json_t *part = first(messages, i);
		const struct vars some = vars(part, tools, open);
		const int rc = jinja_starts_text(s, i, &head, &tail, &own),
			  alone = jinja_render(j, some.v, ARRAY_LEN(some.v), &want, &other);
		const struct buf *w = jinja_starts_whole(s);
		bool good = rc < 0    ? rc == alone && !strcmp(own.msg, other.msg)
			    : rc == 0 ? true
				      : alone >= 0 && head <= w->n &&
						want.text.n == head + tail.text.n &&
						!memcmp(want.text.p, w->p ? w->p : "", head) &&
						(!tail.text.n || !memcmp(want.text.p + head,
									 tail.text.p, tail.text.n));
		if (!good)
			fail_msg("%s, %zu of %zu turns, %s:\n  got  %.*s|%s\n  want %s", name, i, n,
				 open ? "open" : "whole", (int)head, w->p ? w->p : "",
				 rc < 0 ? own.msg : tail.text.p,
				 alone < 0 ? other.msg : want.text.p);
		known += k <= n && rc != 0;
		sum->longest = tail.text.n > sum->longest ? tail.text.n : sum->longest;
		sum->written += tail.text.n;
		sum->all += want.text.n;
		jinja_text_release(&tail);
		jinja_text_release(&want);
		json_decref(part);
	}
	jinja_starts_free(s);
	jinja_free(j);
	return known;
}

/* Turns of the user and the assistant in turn; `calls`: each pair has a call and its answer. */
static json_t *talk(size_t pairs, bool system, bool calls)
{
	json_t *list = json_array();
	if (system)
		json_array_append_new(
			list, json_pack("{ssss}", "role", "system", "content", "Be short."));
	for (size_t i = 0; i < pairs; i++) {
		char text[64];
		snprintf(text, sizeof text, " question %zu\n", i);
		json_array_append_new(list, json_pack("{ssss}", "role", "user", "content", text));
		if (calls) {
			json_array_append_new(
				list, json_pack("{sssss[{sss{sss{si}}}]}", "role", "assistant",
						"content", "", "tool_calls", "id", "call00001",
						"function", "name", "f", "arguments", "n", (int)i));
			json_array_append_new(list, json_pack("{ssssssss}", "role", "tool",
							      "content", "21", "name", "f",
							      "tool_call_id", "call00001"));
		}
		snprintf(text, sizeof text, "%sanswer %zu", i % 3 ? "" : "<think>\nx\n</think>\n",
			 i);
		json_array_append_new(list,
				      json_pack("{ssss}", "role", "assistant", "content", text));
	}
	return list;
}

static void compare_chats(const char *path)
{
	struct err e = { 0 };
	json_t *doc, *chat, *conv,
		*more[] = { talk(12, false, false), talk(12, true, false), talk(6, true, true) };
	size_t t, c, few = 0;
	if (json_parse_file_in(path, 0, JSON_MEMORY_TABLE, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	json_array_foreach(json_object_get(doc, "chats"), t, chat)
	{
		const char *name = json_string_value(json_object_get(chat, "name")),
			   *text = json_string_value(json_object_get(chat, "template"));
		struct sum sum = { 0 };
		text = text ? text : axolotl_chat(name);
		assert_non_null(text);
		for (int open = 0; open < 2; open++) {
			json_array_foreach(json_object_get(doc, "conversations"), c, conv)
			{
				const json_t *m = json_object_get(conv, "messages");
				assert_int_equal(compare(name, text, m,
							 json_object_get(conv, "tools"), open,
							 &sum),
						 json_array_size(m) + 1);
			}
			for (size_t i = 0; i < ARRAY_LEN(more); i++)
				compare(name, text, more[i], json_null(), open, &sum);
		}
		few += sum.written * 4 < sum.all;
		printf("  %s: %zu bytes, %zu written\n", name, sum.all, sum.written);
	}
	printf("  %zu templates, in %zu less than a quarter is written\n", t, few);
	assert_true(few >= t / 2);
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		json_decref(more[i]);
	json_decref(doc);
}

static void test_chats(void **state)
{
	(void)state;
	compare_chats(file);
}

static void test_axolotl(void **state)
{
	(void)state;
	compare_chats(DIR "axolotl.json");
}

/* Bytes that are written at most for a beginning of 31 turns. */
static void written(const char *text, size_t most)
{
	json_t *list = talk(15, true, false);
	struct sum sum = { 0 };
	for (int open = 0; open < 2; open++)
		if (compare(text, text, list, json_null(), open, &sum) != 32)
			fail_msg("%s: some beginnings are not known", text);
	if (sum.longest != most)
		fail_msg("%s:\n  %zu bytes, not %zu", text, sum.longest, most);
	json_decref(list);
}

#define BODY "{{ '<' ~ m.role ~ '>' ~ m.content }}"
#define OPEN "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"

/* A turn is written in at most 39 bytes by BODY, 31 of them in 677; OPEN is 11. */
static void test_written(void **state)
{
	(void)state;
	/* nothing but the turns */
	written("{% for m in messages %}" BODY "{% endfor %}" OPEN, 11);
	written("{% if not tools %}a{% for m in messages %}" BODY "{% endfor %}z{% endif %}" OPEN,
		12);
	/* the first turn apart */
	written("{% if messages[0].role == 'system' %}{{ messages[0].content }}"
		"{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
		"{% for m in rest %}" BODY "{% endfor %}" OPEN,
		11);
	written("{% if messages %}{% set rest = messages %}{% endif %}"
		"{% for m in rest %}" BODY "{% endfor %}" OPEN,
		11);
	/* one turn back or ahead, the last turn, in either order of the conditions */
	written("{% for m in messages %}" BODY "{% if loop.last and add_generation_prompt %}"
		"{{ '<assistant>' }}{% endif %}{% endfor %}",
		50);
	written("{% for m in messages %}" BODY "{% if add_generation_prompt and loop.last %}"
		"{{ '<assistant>' }}{% endif %}{% endfor %}",
		50);
	written("{% for m in messages %}{% if loop.first or messages[loop.index0 - 1].role != "
		"m.role %}" BODY "{% endif %}{{ loop.nextitem.role }}{% endfor %}" OPEN,
		39);
	written("{% for m in messages %}" BODY "{{ 'x' if loop.last or messages[loop.index0 + 1]"
		".role != m.role }}{% endfor %}" OPEN,
		51);
	/* what one turn leaves to the next */
	written("{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n "
		"+ 1 %}" BODY "{{ ns.n ~ ns.last }}{% set ns.last = m.role %}{% set ns.x = 1 %}"
		"{% set own = namespace(a=1) %}{% set own.a = own.a + 1 %}{{ own.a }}"
		"{% endfor %}{% set ns.end = ns.n %}{% set q = ns.end %}{{ q }}" OPEN,
		13);
	written("{% macro f(m) %}" BODY "{{ messages[0].role }}{% endmacro %}"
		"{% for m in messages %}{{ f(m) }}{% endfor %}" OPEN,
		11);
	/* a loop that ends early, and the rest after it */
	written("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% break %}"
		"{% endif %}{% endfor %}{% for m in messages %}" BODY "{% endfor %}" OPEN,
		28);
	/* read by a loop over all of them before: the second one is run from its beginning */
	written("{% for m in messages %}{% endfor %}{% for m in messages %}" BODY
		"{% endfor %}" OPEN,
		688);
	/* what depends on how many there are is written from the beginning */
	written("{{ messages | length }}{% for m in messages %}" BODY "{% endfor %}", 679);
	written("{{ messages[-1].role if messages }}{% for m in messages %}" BODY "{% endfor %}",
		686);
	written("{% for m in messages[::-1] %}" BODY "{% endfor %}", 677);
	written("{% for m in messages if m.role == 'user' %}" BODY "{% endfor %}", 275);
	written("{% for m in messages %}{{ loop.revindex }}{% endfor %}", 53);
	written("{% set a = [messages] %}{% for m in a[0] %}" BODY "{% endfor %}", 677);
	written("{% if messages == [] %}x{% endif %}{% for m in messages %}" BODY "{% endfor %}",
		677);
	/* the last turn refuses what the whole would be */
	written("{% for m in messages %}{% if m.content == 'answer 14' %}{{ raise_exception('no') "
		"}}{% endif %}" BODY "{% endfor %}" OPEN,
		11);
}

#define CHATML(end, last)                                                                          \
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + " end " + '\n' }}" \
	"{% endfor %}" last "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "     \
	"endif %}"

/* Ids and marks of a chat of 400 turns are those of the row that writes the same. */
static void long_chat(const char *template)
{
	enum { TURNS = 400 };
	static struct chat_message m[TURNS];
	static char text[TURNS][32];
	const struct chat_template *chat[2] = { chat_find("chatml"), NULL };
	struct tokenizer *tok = NULL;
	struct tokens ids[2] = { 0 }, train[2] = { 0 };
	struct err e = { 0 };
	size_t marked = 0;
	json_t *config = json_pack("{ss}", "eos_token", "<|im_end|>");
	if (tokenizer_from_file(DIR "smollm2.json", config, &tok, &e) < 0 ||
	    chat_from_jinja(template, tok, &chat[1], &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t i = 0; i < TURNS; i++) {
		const int n = snprintf(text[i], sizeof text[i], "text %zu%s", i,
				       i % 7 ? "" : " <|im_end|>");
		m[i] = (struct chat_message){ .role = !i      ? CHAT_SYSTEM
						      : i & 1 ? CHAT_USER
							      : CHAT_ASSISTANT,
					      .text = text[i],
					      .n = (size_t)n,
					      .train = i && !(i & 1) && i % 10 };
	}
	for (int k = 0; k < 2; k++)
		if (chat_encode(chat[k], tok, m, TURNS, false, &ids[k], &train[k], &e) < 0)
			fail_msg("%s: %s", template, e.msg);
	for (size_t i = 0; i < train[0].n; i++)
		marked += train[0].id[i] != 0;
	assert_true(marked > TURNS);
	assert_int_equal(ids[0].n, ids[1].n);
	assert_memory_equal(ids[0].id, ids[1].id, ids[0].n * sizeof *ids[0].id);
	assert_memory_equal(train[0].id, train[1].id, ids[0].n * sizeof *ids[0].id);
	for (int k = 0; k < 2; k++) {
		tokens_release(&ids[k]);
		tokens_release(&train[k]);
	}
	chat_free(chat[1]);
	tokenizer_free(tok);
	json_decref(config);
}

static void test_long_chat(void **state)
{
	(void)state;
	long_chat(CHATML("'<|im_end|>'", ""));
	long_chat(CHATML("(eos_token if loop.index else 0)", ""));
	/* rendered from the beginning, and with variables that are read again for every answer */
	long_chat("{% if messages | length == 0 %}x{% endif %}" CHATML("eos_token", ""));
	long_chat(CHATML("('<|im_end|>' if not loop.last else eos_token)",
			 "{% if eos_token != '<|im_end|>' %}x{% endif %}"));
}

/* Memory that is out is an error at every place, and nothing is lost. */
static void test_memory(void **state)
{
	(void)state;
	static const char text[] =
		"{% set ns = namespace(n=0) %}{% for m in messages %}" BODY
		"{% set ns.n = ns.n + 1 %}{% endfor %}{% set q = 'a' ~ ns.n %}{{ q }}" OPEN;
	json_t *list = talk(2, false, false);
	const struct vars all = vars(list, json_null(), true);
	struct err e = { 0 };
	struct jinja *j;
	if (jinja_parse(text, strlen(text), &j, &e) < 0)
		fail_msg("%s", e.msg);
	for (uint64_t k = 1;; k++) {
		struct jinja_text tail = { .text = BUF_INIT };
		struct jinja_starts *s = NULL;
		size_t head;
		err_clear(&e);
		mem_fail_after(k);
		int rc = jinja_starts_new(j, all.v, ARRAY_LEN(all.v), &s, &e);
		if (rc >= 0)
			rc = jinja_starts_text(s, 3, &head, &tail, &e);
		mem_fail_after(0);
		jinja_starts_free(s);
		if (rc > 0)
			assert_string_equal(tail.text.p, "a3<assistant>");
		jinja_text_release(&tail);
		if (rc > 0)
			break;
		if (rc != ERR_NOMEM)
			fail_msg("%d: %s", rc, e.msg);
		assert_true(k < 10000);
	}
	jinja_free(j);
	json_decref(list);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest own[] = {
		cmocka_unit_test(test_chats),   cmocka_unit_test(test_axolotl),
		cmocka_unit_test(test_written), cmocka_unit_test(test_long_chat),
		cmocka_unit_test(test_memory),
	};
	const struct CMUnitTest other[] = { cmocka_unit_test(test_chats) };
	if (argc > 1) {
		file = argv[1];
		return cmocka_run_group_tests(other, setup, teardown);
	}
	return cmocka_run_group_tests(own, setup, teardown);
}
