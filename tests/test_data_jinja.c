/* SPDX-License-Identifier: Apache-2.0 */
/* Templates against jinja2 (tests/golden/tokenizer/jinja.json, made by scripts/golden/jinja.py):
 * the same text, byte for byte, or an error where jinja2 gives one. Whose text is what in the
 * output; limits; messages. With an argument: another file of that script, for templates of
 * published models. */
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
#include "data/jinja.h"

static const char *file = "tests/golden/tokenizer/jinja.json";
static json_t *golden;

static int setup(void **state)
{
	struct err e = { 0 };
	(void)state;
	if (json_parse_file_in(file, 0, JSON_MEMORY_TABLE, &golden, &e) < 0)
		fail_msg("%s", e.msg);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

static int render(const char *text, size_t n, const struct jinja_var *var, size_t nvar,
		  struct jinja_text *out, struct err *e)
{
	struct jinja *j;
	*out = (struct jinja_text){ .text = BUF_INIT };
	int rc = jinja_parse(text, n, &j, e);
	if (rc < 0)
		return rc;
	rc = jinja_render(j, var, nvar, out, e);
	jinja_free(j);
	return rc;
}

/* 1 when it is what jinja2 wrote, or an error where jinja2 had one; what differs is printed. */
static int same(const char *name, const char *text, size_t n, const json_t *want,
		const struct jinja_var *var, size_t nvar)
{
	struct jinja_text out;
	struct err e = { 0 };
	int rc = render(text, n, var, nvar, &out, &e);
	bool good = json_is_null(want)
			    ? rc < 0 && rc != ERR_INTERNAL && e.msg[0] && !strchr(e.msg, '\n')
			    : rc >= 0 && out.text.n == json_string_length(want) &&
				      !memcmp(out.text.p, json_string_value(want), out.text.n);
	if (!good)
		print_error("%s:\n  got  %s\n  want %s\n", name, rc < 0 ? e.msg : out.text.p,
			    json_is_null(want) ? "an error" : json_string_value(want));
	jinja_text_release(&out);
	return good;
}

static void test_snippets(void **state)
{
	(void)state;
	struct jinja_var var[64];
	size_t nvar = 0, i, bad = 0;
	const char *key;
	json_t *v, *snippets = json_object_get(golden, "snippets");
	json_object_foreach(json_object_get(golden, "data"), key, v)
	{
		assert_true(nvar < ARRAY_LEN(var));
		var[nvar++] = (struct jinja_var){ .name = key, .v = v };
	}
	json_array_foreach(snippets, i, v)
	{
		const json_t *text = json_array_get(v, 0);
		bad += !same(json_string_value(text), json_string_value(text),
			     json_string_length(text), json_array_get(v, 1), var, nvar);
	}
	printf("  %zu snippets\n", json_array_size(snippets));
	assert_int_equal(bad, 0);
}

/* All texts of all templates; those without a text are axolotl's, by name. */
static void compare_chats(const json_t *doc)
{
	json_t *chat, *conv, *bos = json_string("<s>"), *eos = json_string("</s>");
	size_t t, c, texts = 0, bad = 0;
	json_array_foreach(json_object_get(doc, "chats"), t, chat)
	{
		const char *known = json_string_value(json_object_get(chat, "name")),
			   *text = json_string_value(json_object_get(chat, "template"));
		text = text ? text : axolotl_chat(known);
		assert_non_null(text);
		json_array_foreach(json_object_get(doc, "conversations"), c, conv)
		{
			for (int open = 0; open < 2; open++) {
				const struct jinja_var var[] = {
					{ "messages", json_object_get(conv, "messages"), 1, true,
					  "role" },
					{ .name = "tools",
					  .v = json_object_get(conv, "tools"),
					  .source = 999 },
					{ .name = "documents", .v = json_null() },
					{ .name = "add_generation_prompt",
					  .v = json_boolean(open) },
					{ .name = "bos_token", .v = bos },
					{ .name = "eos_token", .v = eos },
				};
				char name[128];
				snprintf(name, sizeof name, "%.60s, conversation %zu, %s", known, c,
					 open ? "open" : "whole");
				bad += !same(name, text, strlen(text),
					     json_array_get(json_object_get(chat, "texts"),
							    2 * c + (size_t)open),
					     var, ARRAY_LEN(var));
				texts++;
			}
		}
	}
	json_decref(bos);
	json_decref(eos);
	printf("  %zu texts of %zu templates\n", texts, t);
	assert_true(texts >= 24);
	assert_int_equal(bad, 0);
}

static void test_chats(void **state)
{
	(void)state;
	compare_chats(golden);
}

static void test_axolotl(void **state)
{
	(void)state;
	struct err e = { 0 };
	json_t *doc;
	if (json_parse_file("tests/golden/tokenizer/axolotl.json", 0, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	compare_chats(doc);
	/* every name that messages list */
	size_t n = json_array_size(json_object_get(doc, "chats"));
	for (const char *p = axolotl_chat_names(); p; p = strchr(p, ','), p = p ? p + 2 : NULL) {
		char name[32];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
		assert_non_null(axolotl_chat(name));
		n--;
	}
	assert_int_equal(n, 0);
	assert_null(axolotl_chat("gemm"));
	json_decref(doc);
}

/* The source of each byte, as a digit. */
static void sources(const char *text, const char *want)
{
	struct err e = { 0 };
	struct jinja_text out;
	char got[200] = "";
	json_t *m = json_pack("[{s:s, s:{s:s}}, {s:s}]", "c", "ab\u00e9", "call", "k", "v\"", "c",
			      " xyx ");
	const struct jinja_var var[] = { { "m", m, 1, true, NULL } };
	if (render(text, strlen(text), var, 1, &out, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
	for (size_t i = 0, at = 0; i < out.n; i++)
		for (; at < out.span[i].end; at++)
			got[at] = (char)('0' + out.span[i].source);
	if (strcmp(got, want) || out.text.n != strlen(want))
		fail_msg("%s: '%s' has the sources %s, not %s", text, out.text.p, got, want);
	jinja_text_release(&out);
	json_decref(m);
}

static void test_sources(void **state)
{
	(void)state;
	sources("<{{ m[0].c }}>", "011110");
	sources("{{ '<' + m[0].c + m[1]['c'] ~ '>' }}", "01111222220");
	sources("{{ m[1].c | trim }}{{ m[1].c.replace('x', '--') }}", "2222002002");
	sources("{{ m[0].c[::-1] }}{{ m[0].c | upper }}", "11111111");
	sources("{{ m[0].call | tojson }}", "00100001110"
					    "0");
	sources("{% set q %}<{{ m[0].c }}{% endset %}{{ q }}{{ q[1:2] }}", "011111");
	sources("{{ m | map(attribute='c') | join('|') }}", "1111022222");
	sources("{% macro f(t) %}({{ t.split('y')[1] }}){% endmacro %}{{ f(m[1].c) }}", "0220");
	sources("{{ m[0].c | indent(1, true) }}{{ '%s!' % m[0].c }}", "0111111110");
}

/* Each is refused with one line that has this in it. */
static void refused(const char *text, const char *why)
{
	struct err e = { 0 };
	struct jinja_text out;
	json_t *s = json_string("0123456789abcdef");
	const struct jinja_var var[] = { { .name = "s", .v = s, .source = 1 } };
	int rc = render(text, strlen(text), var, 1, &out, &e);
	if (rc >= 0 || !strstr(e.msg, why) || strncmp(e.msg, "chat template: ", 15) ||
	    strchr(e.msg, '\n'))
		fail_msg("%.80s: %s", text, rc < 0 ? e.msg : "no error");
	jinja_text_release(&out);
	json_decref(s);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* 20 million steps, many times over, take minutes */
#else
enum { SANITIZED = 0 };
#endif

/* One step that looks at much is many. */
static void looks_at_much(void)
{
	refused("{% set t = '1' * 8000000 %}{% for i in range(99999) %}{% if t is string %}"
		"{% endif %}{% endfor %}{{ raise_exception('quick') }}",
		"refuses the conversation: quick");
	refused("{% set t = '1' * 8000000 %}{% for i in range(99) %}{% if t is lower %}{% endif %}"
		"{% endfor %}",
		"does not end");
	refused("{% set t = 'a' * 4000000 %}{% set u = t ~ '' %}{% for i in range(9000) %}"
		"{% if t is sameas u %}{% endif %}{% endfor %}",
		"does not end");
	refused("{% set t = 'a' * 4000000 %}{% for i in range(9) %}{% set u = t.replace('a', '') %}"
		"{% endfor %}",
		"does not end");
	refused("{% set t = 'a' * 4000000 %}{% for i in range(9) %}{% set u = t.count('a') %}"
		"{% endfor %}",
		"does not end");
	refused("{% set t = '{2999}' * 200000 %}{{ t.format(*range(3000)) }}", "does not end");
	static const char *const each[] = { "r | sum",    "r | max",  "r | reject('defined')",
					    "r | select", "r | join", "r == q" };
	for (size_t i = 0; i < ARRAY_LEN(each); i++) {
		char text[300];
		snprintf(text, sizeof text,
			 "{%% set r = %s * 90000 %%}{%% set q = r + [] %%}{%% for i in range(9000) "
			 "%%}{%% set x = %s %%}{%% endfor %%}",
			 i == 3 || i == 4 ? "['']" : "[0]", each[i]);
		refused(text, "does not end");
	}
	struct buf names = BUF_INIT;
	for (int i = 0; i < 60000; i++)
		buf_addf(&names, "{%%set a%d=1%%}", i);
	buf_addc(&names, 0);
	refused(names.p, "does not end");
	buf_release(&names);
}

static void test_refused(void **state)
{
	(void)state;
	refused("a\n{{ b.c }}", "line 2: 'b' is not defined, so it has no 'c'");
	refused("{% set r = range(9000) %}{% for i in r %}{% for k in r %}{% endfor %}{% endfor %}",
		"does not end");
	refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "does a macro call itself");
	refused("{% set n = namespace(x=s) %}{% for i in range(40) %}{% set n.x = n.x + n.x %}"
		"{% endfor %}",
		"MiB");
	refused("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}"
		"{% endfor %}",
		"MiB");
	refused("{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}"
		"{% endfor %}{{ n.l }}",
		"inside each other");
	refused("{{ 'a' * 1000000000 }}", "");
	/* one call that compares millions of characters with millions */
	refused("{% set t = 'a' * 4000000 %}{{ t.rfind(t[:2000000] ~ 'b') }}", "does not end");
	refused("{% set t = 'a' * 4000000 %}{{ t.rsplit(t[:2000000] ~ 'b') }}", "does not end");
	refused("{% set t = 'b' * 2000000 %}{{ t.strip('a' * 1000000 ~ 'b') }}", "does not end");
	refused("{% set t = 'a' * 2000000 %}{% set u = t ~ 'b' %}{% set v = t ~ 'c' %}"
		"{% for i in range(9000) %}{% if u == v %}{% endif %}{% endfor %}",
		"does not end");
	if (!SANITIZED)
		looks_at_much();
	/* copies beside the values */
	refused("{% set t = 'a' * 4000000 %}{% for i in range(9000) %}{% set x = dict(**{t: 1}) %}"
		"{% endfor %}",
		"MiB");
	refused("{% set t = 'a' * 4000000 %}{% for i in range(9000) %}"
		"{% set x = 1 | tojson(separators=(t, t)) %}{% endfor %}",
		"MiB");
	refused("{% set n = namespace(t=s) %}{% for i in range(21) %}{% set n.t = n.t + n.t %}"
		"{% endfor %}{% set a %}{{ n.t ~ n.t }}{% set b %}{{ n.t ~ n.t }}"
		"{{ raise_exception('late') }}{% endset %}{% endset %}",
		"MiB");
	refused("{{ 1111111111111111111111111111111111111111111111e5 }}", "too large");
	refused("{{ '%d' % 1e300 }}", "too large");
	refused("{{ s | frobnicate }}", "there is no filter 'frobnicate'");
	refused("{{ s is frobnicated }}", "there is no test 'frobnicated'");
	refused("{% include 'x' %}", "a tag that is not known");
	refused("{% for x in s recursive %}{% endfor %}", "recursive");
	refused("{% if s %}", "ends without 'elif else endif'");
	refused("{{ raise_exception('no\\nway') }}", "refuses the conversation: no way");
	refused("{{ s.format_map() }}", "cannot be called");
	refused("{{ s.__class__ }}{{ s.__class__.__mro__ }}", "is not defined");
	refused("\xff", "is not UTF-8 at byte 1");
	refused("{{ '\\ud800' }}", "wrong \\x or \\u");
	refused("{{ 99999999999999999999 }}", "too large");
	refused("{{ 9223372036854775807 + 1 }}", "too large");
	char deep[2000] = "{{ ";
	memset(deep + 3, '(', 900);
	memcpy(deep + 903, "1 }}", 5);
	memset(deep + 904, ')', 900);
	memcpy(deep + 1804, " }}", 4);
	refused(deep, "nested too deeply");
	struct buf long_chain = BUF_INIT;
	buf_adds(&long_chain, "{{ 1");
	for (int i = 0; i < 5000; i++)
		buf_adds(&long_chain, "+1");
	buf_adds(&long_chain, " }}");
	refused(long_chain.p, "inside each other");
	buf_release(&long_chain);
}

/* Memory that is out is an error at every place, and nothing is lost. */
static void test_memory(void **state)
{
	(void)state;
	json_t *chat = json_array_get(json_object_get(golden, "chats"), 0),
	       *conv = json_array_get(json_object_get(golden, "conversations"), 1);
	const char *text = json_string_value(json_object_get(chat, "template"));
	json_t *eos = json_string("</s>");
	const struct jinja_var var[] = { { .name = "messages",
					   .v = json_object_get(conv, "messages") },
					 { .name = "bos_token", .v = eos },
					 { .name = "eos_token", .v = eos } };
	for (uint64_t k = 1;; k++) {
		struct err e = { 0 };
		struct jinja_text out;
		mem_fail_after(k);
		int rc = render(text, strlen(text), var, ARRAY_LEN(var), &out, &e);
		mem_fail_after(0);
		jinja_text_release(&out);
		if (rc >= 0)
			break;
		if (rc != ERR_NOMEM)
			fail_msg("%s", e.msg);
		assert_true(k < 10000);
	}
	json_decref(eos);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest own[] = {
		cmocka_unit_test(test_snippets), cmocka_unit_test(test_chats),
		cmocka_unit_test(test_axolotl),  cmocka_unit_test(test_sources),
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_memory),
	};
	const struct CMUnitTest other[] = { cmocka_unit_test(test_chats) };
	if (argc > 1) {
		file = argv[1];
		return cmocka_run_group_tests(other, setup, teardown);
	}
	return cmocka_run_group_tests(own, setup, teardown);
}
