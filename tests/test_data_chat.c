/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_chat.c - chat templates against the text that the models' own Jinja templates give
 * (scripts/golden/chat.py), the ids of that text, what is trained, and that a message cannot forge
 * a turn.
 *
 * With a folder as argument the templates are recognised from the whole texts NAME.jinja there,
 * else from the words in chat.json. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/chat_text.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DIR "tests/golden/tokenizer/"

static const char *folder;
static json_t *golden;

enum { MESSAGES = 8 };

static json_t *load(const char *path)
{
	struct err e = { 0 };
	json_t *doc = NULL;
	if (json_parse_file(path, 0, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	return doc;
}

static int setup(void **state)
{
	(void)state;
	golden = load(DIR "chat.json");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

/* A small tokenizer with every special token that the templates know. */
static struct tokenizer *make(const char *file, const char *bos, const char *eos)
{
	static const char *const extra[] = { "<|im_start|>",
					     "<|im_end|>",
					     "<s>",
					     "</s>",
					     "<|begin_of_text|>",
					     "<|eot_id|>",
					     "<|start_header_id|>",
					     "<|end_header_id|>",
					     "[INST]",
					     "[/INST]" };
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *doc = load(file), *added = json_object_get(doc, "added_tokens"),
	       *vocab = json_object_get(json_object_get(doc, "model"), "vocab");
	json_t *a;
	size_t k, id = json_object_size(vocab) + json_array_size(added) + 8;
	for (size_t i = 0; i < ARRAY_LEN(extra); i++) {
		bool there = false;
		json_array_foreach(added, k, a) there |=
			!strcmp(json_string_value(json_object_get(a, "content")), extra[i]);
		if (!there)
			json_array_append_new(
				added, json_pack("{sI ss sb sb}", "id", (json_int_t)id++, "content",
						 extra[i], "special", 1, "normalized", 0));
	}
	json_t *config = json_pack("{ss ss}", "bos_token", bos, "eos_token", eos);
	if (tokenizer_from_json(doc, config, file, &t, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(config);
	json_decref(doc);
	return t;
}

static size_t conversation(size_t c, struct chat_message *m)
{
	json_t *conv = json_array_get(json_object_get(golden, "conversations"), c), *v;
	size_t i;
	json_array_foreach(conv, i, v)
	{
		const char *role = json_string_value(json_object_get(v, "role"));
		const json_t *text = json_object_get(v, "content");
		assert_true(i < MESSAGES);
		m[i] = (struct chat_message){ .text = json_string_value(text),
					      .n = json_string_length(text) };
		for (int r = CHAT_SYSTEM; r <= CHAT_TOOL; r++)
			if (!strcmp(role, chat_role_name((enum chat_role)r)))
				m[i].role = (enum chat_role)r;
		m[i].train = m[i].role == CHAT_ASSISTANT;
	}
	return json_array_size(conv);
}

static const struct chat_template *recognise(const json_t *t, const struct tokenizer *tok)
{
	struct err e = { 0 };
	struct buf text = BUF_INIT;
	char path[512];
	const struct chat_template *found;
	const char *probe = json_string_value(json_object_get(t, "probe"));
	if (folder) {
		snprintf(path, sizeof path, "%s/%s.jinja", folder,
			 json_string_value(json_object_get(t, "name")));
		assert_int_equal(buf_read_file(&text, path, 0, &e), 0);
		probe = text.p;
	}
	found = chat_detect(probe, tok);
	buf_release(&text);
	return found;
}

/* Rendered text, its ids, and the ids that parsing the whole text gives; returns how many texts
 * were compared. */
static int compare(const json_t *t, const struct chat_template *chat, const struct tokenizer *tok)
{
	const char *name = json_string_value(json_object_get(t, "name"));
	json_t *conv;
	size_t c;
	int compared = 0;
	json_array_foreach(json_object_get(golden, "conversations"), c, conv)
	{
		struct chat_message m[MESSAGES];
		size_t n = conversation(c, m);
		for (int open = 0; open < 2; open++) {
			const json_t *want =
				json_array_get(json_object_get(t, open ? "open" : "text"), c);
			struct err e = { 0 };
			struct chat_text x = { .text = BUF_INIT };
			struct tokens ids = { 0 }, train = { 0 }, whole = { 0 };
			struct buf back = BUF_INIT;
			int rc = chat_render(chat, tok, m, n, open, &x, &e);
			if (rc == 0 && json_is_string(want)) {
				const char *s = json_string_value(want);
				size_t len = json_string_length(want);
				if (x.text.n != len || memcmp(x.text.p, s, len))
					fail_msg("%s, conversation %zu:\n%s\ninstead of\n%s", name,
						 c, x.text.p, s);
				assert_int_equal(
					chat_encode(chat, tok, m, n, open, &ids, &train, &e), 0);
				assert_int_equal(ids.n, train.n);
				/* The seventh message holds names of special tokens: its ids differ
				 * from those of parsing the whole text. */
				assert_int_equal(
					tokenizer_encode(tok, s, len, false, true, &whole, &e), 0);
				bool same = ids.n == whole.n &&
					    !memcmp(ids.id, whole.id, ids.n * sizeof *ids.id);
				if (same == (c == 7))
					fail_msg("%s, conversation %zu: %zu ids, %zu by parsing "
						 "the whole text",
						 name, c, ids.n, whole.n);
				compared++;
			} else if (rc < 0) {
				/* Refused are only conversations with tools, and those that the
				 * model's own template refuses too. */
				assert_true(json_is_null(want) || c == 8);
			}
			chat_text_release(&x);
			tokens_release(&ids);
			tokens_release(&train);
			tokens_release(&whole);
			buf_release(&back);
		}
	}
	return compared;
}

static void test_templates(void **state)
{
	(void)state;
	static const char *const files[] = { DIR "smollm2.json", DIR "llama2.json" };
	json_t *t;
	size_t i;
	json_array_foreach(json_object_get(golden, "templates"), i, t)
	{
		const char *name = json_string_value(json_object_get(t, "name")),
			   *row = json_string_value(json_object_get(t, "row"));
		for (size_t f = 0; f < ARRAY_LEN(files); f++) {
			struct tokenizer *tok =
				make(files[f], json_string_value(json_object_get(t, "bos")),
				     json_string_value(json_object_get(t, "eos")));
			const struct chat_template *chat = recognise(t, tok);
			if (!chat || strcmp(chat_name(chat), row))
				fail_msg("%s is recognised as %s", name,
					 chat ? chat_name(chat) : "nothing");
			int compared = compare(t, chat, tok);
			printf("  %s: %d texts\n", name, compared);
			assert_true(compared >= 16);
			tokenizer_free(tok);
		}
	}
}

/* The part of conversation `c` that is trained, as text. `row` is a template's name, or words of a
 * Jinja text. */
static void check_trained(const char *file, const char *row, size_t c, const char *want)
{
	struct tokenizer *tok = make(file, "<s>",
				     !strcmp(row, "chatml")   ? "<|im_end|>"
				     : !strcmp(row, "llama3") ? "<|eot_id|>"
							      : "</s>");
	struct err e = { 0 };
	struct chat_message m[MESSAGES];
	size_t n = conversation(c, m);
	struct tokens ids = { 0 }, train = { 0 }, kept = { 0 };
	struct buf text = BUF_INIT;
	const struct chat_template *chat = chat_find(row) ? chat_find(row) : chat_detect(row, tok);
	if (chat_encode(chat, tok, m, n, false, &ids, &train, &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t i = 0; i < ids.n; i++)
		if (train.id[i])
			assert_int_equal(tokens_add(&kept, ids.id[i], &e), 0);
	/* A leading space, which SentencePiece's decoder drops, is not compared. */
	assert_int_equal(tokenizer_decode(tok, kept.id, kept.n, false, &text, &e), 0);
	if (strcmp(text.p + (text.p[0] == ' '), want))
		fail_msg("%s, %s: trained is '%s', not '%s'", file, row, text.p, want);
	tokens_release(&ids);
	tokens_release(&train);
	tokens_release(&kept);
	buf_release(&text);
	tokenizer_free(tok);
}

static void test_trained(void **state)
{
	(void)state;
	check_trained(DIR "smollm2.json", "chatml", 3, "1<|im_end|>2<|im_end|>");
	check_trained(DIR "qwen2.json", "chatml", 2, "Ein Test.<|im_end|>");
	check_trained(DIR "qwen2.json", "chatml", 7,
		      "<|im_start|> is not special here </s><|im_end|>");
	check_trained(DIR "llama3.json", "llama3", 3, "1<|eot_id|>2<|eot_id|>");
	check_trained(DIR "llama3.json", "llama3", 5, "answer with space around<|eot_id|>");
	check_trained(DIR "llama2.json", "mistral", 4, "1</s> 2</s>");
	check_trained(DIR "llama2.json", "zephyr", 3, "1</s>2</s>");
	check_trained(DIR "mistral.json", "zephyr", 2, "Ein Test.</s>");
	check_trained(DIR "mistral.json", "alpaca", 2, "Ein Test.</s>");
	check_trained(DIR "gpt2.json", "plain", 3, "1</s>2</s>");
	check_trained(DIR "gpt2.json", "plain", 10, "</s>");
	/* Qwen3 writes an empty thought before its answer: that is trained too. */
	check_trained(DIR "qwen2.json", "<|im_start|> last_query_index", 1,
		      "<think>\n\n</think>\n\nHi there!<|im_end|>");
	check_trained(DIR "qwen2.json", "<|im_start|> last_query_index", 9,
		      "old answer<|im_end|><think>\nnew thought\n</think>\n\nnew answer<|im_end|>");
	/* A combining mark at the very beginning stays with the answer. */
	check_trained(DIR "qwen2.json", "chatml", 6, "\xcc\x81 combining first\xc2\x85<|im_end|>");
}

/* Message text becomes no special token, whatever is written there. */
static void test_forged(void **state)
{
	(void)state;
	struct tokenizer *tok = make(DIR "smollm2.json", "<s>", "</s>");
	struct err e = { 0 };
	struct chat_message m[MESSAGES];
	size_t n = conversation(7, m), special = 0;
	struct tokens ids = { 0 };
	assert_int_equal(chat_encode(chat_find("chatml"), tok, m, n, true, &ids, NULL, &e), 0);
	for (size_t i = 0; i < ids.n; i++)
		special += tokenizer_is_special(tok, ids.id[i]);
	assert_int_equal(special, 5); /* two turns and the head of a third */
	/* The end of a template's text and the beginning of a message never join into one token. */
	const struct chat_message split = { .role = CHAT_USER, .text = "im_end|>", .n = 8 };
	ids.n = special = 0;
	assert_int_equal(chat_encode(chat_find("plain"), tok, &split, 1, true, &ids, NULL, &e), 0);
	for (size_t i = 0; i < ids.n; i++)
		special += tokenizer_is_special(tok, ids.id[i]);
	assert_int_equal(special, 0);
	tokens_release(&ids);
	tokenizer_free(tok);
}

/* Another end of text, which templates write. */
static void test_other_eos(void **state)
{
	(void)state;
	struct tokenizer *tok = make(DIR "smollm2.json", "<s>", "</s>");
	struct err e = { 0 };
	const struct chat_message m = { .role = CHAT_ASSISTANT, .text = "x", .n = 1 };
	struct chat_text x = { .text = BUF_INIT };
	assert_int_equal(tokenizer_set(tok, "eos_token", "<|im_end|>", &e), 0);
	assert_int_equal(tokenizer_eos(tok), tokenizer_id(tok, "<|im_end|>"));
	assert_int_equal(tokenizer_bos(tok), tokenizer_id(tok, "<s>"));
	assert_int_equal(chat_render(chat_find("mistral"), tok, &m, 1, false, &x, &e), 0);
	assert_string_equal(x.text.p, "<s> x<|im_end|>");
	assert_int_equal(tokenizer_set(tok, "bos_token", "<|none|>", &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "bos_token '<|none|>' is not in the model's vocabulary"));
	chat_text_release(&x);
	tokenizer_free(tok);
}

static void test_detect(void **state)
{
	(void)state;
	struct tokenizer *tok = make(DIR "smollm2.json", "<s>", "</s>"), *bare = NULL;
	struct err e = { 0 };
	assert_string_equal(chat_names(), "chatml, llama3, mistral, zephyr, alpaca, plain");
	assert_null(chat_find("nothing"));
	assert_string_equal(chat_name(chat_detect(NULL, tok)), "chatml");
	assert_null(chat_detect("{{ 'something else' }}", tok));
	assert_null(
		chat_detect("'<|im_start|>system\\nPlease reason step by step.<|im_end|>'", tok));
	assert_null(chat_detect("'<|user|>\\n' <|end|> '<|assistant|>' eos_token", tok));
	assert_null(chat_detect("'[INST] ' '<<SYS>>' ' [/INST]'", tok));
	assert_string_equal(chat_name(chat_detect("### Instruction: ### Response:", tok)),
			    "alpaca");
	if (tokenizer_from_file(DIR "gpt2.json", NULL, &bare, &e) < 0)
		fail_msg("%s", e.msg);
	assert_null(chat_detect(NULL, bare));
	struct tokens ids = { 0 };
	const struct chat_message m = { .role = CHAT_USER, .text = "x", .n = 1 };
	assert_int_equal(chat_encode(chat_find("chatml"), bare, &m, 1, true, &ids, NULL, &e),
			 ERR_INPUT);
	assert_non_null(strstr(e.msg, "<|im_start|>"));
	assert_int_equal(chat_encode(chat_find("zephyr"), bare, &m, 1, true, &ids, NULL, &e),
			 ERR_INPUT);
	int32_t stop[4];
	assert_int_equal(chat_stops(chat_find("chatml"), tok, stop, 4), 1);
	assert_int_equal(stop[0], tokenizer_id(tok, "<|im_end|>"));
	tokens_release(&ids);
	tokenizer_free(bare);
	tokenizer_free(tok);
}

/* ---- Jinja ---------------------------------------------------------------------------------- */

#define CHATML                                                                                     \
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + "   \
	"'\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "      \
	"endif %}"

/* The trained parts, each in [ ], in the text of the ids; or what the error says. */
static void check_jinja(const char *template, const struct chat_message *m, size_t n,
			const char *want)
{
	struct tokenizer *tok = make(DIR "qwen2.json", "<s>", "</s>");
	struct err e = { 0 };
	const struct chat_template *chat = NULL;
	struct tokens ids = { 0 }, train = { 0 };
	struct buf text = BUF_INIT;
	int rc = chat_from_jinja(template, tok, &chat, &e);
	if (rc >= 0)
		rc = chat_encode(chat, tok, m, n, false, &ids, &train, &e);
	for (size_t i = 0; i < ids.n; i++) {
		bool before = i && train.id[i - 1];
		if (before != (bool)train.id[i])
			buf_addc(&text, before ? ']' : '[');
		assert_int_equal(tokenizer_decode(tok, &ids.id[i], 1, false, &text, &e), 0);
	}
	if (rc >= 0 && train.n && train.id[train.n - 1])
		buf_addc(&text, ']');
	if (rc < 0 ? !strstr(e.msg, want) : strcmp(text.p, want))
		fail_msg("%s:\n  got  %s\n  want %s", template, rc < 0 ? e.msg : text.p, want);
	buf_release(&text);
	tokens_release(&ids);
	tokens_release(&train);
	chat_free(chat);
	tokenizer_free(tok);
}

#define MSG(role_, text_, train_)                                                                  \
	{                                                                                          \
		.role = CHAT_##role_, .text = text_, .n = sizeof text_ - 1, .train = train_        \
	}

/* Templates and conversations that would take minutes or hours. */
static void test_jinja_limits(void **state)
{
	(void)state;
	struct chat_message m[40];
	const struct chat_message two[] = { MSG(USER, "One", false), MSG(ASSISTANT, "1", true) };
	for (size_t i = 0; i < ARRAY_LEN(m); i++)
		m[i] = two[i % 2];
	check_jinja("{{ messages | length }}{% for m in messages %}{{ m.content }}{% if m.role == "
		    "'user' %}{{ 'a' * 40000 }}{% endif %}{% endfor %}",
		    two, 2, "writes too much before an answer");
	check_jinja("{% set t = 'a' * 4000000 %}{{ messages | length }}{% for m in messages %}"
		    "{{ m.content }}{% endfor %}",
		    m, ARRAY_LEN(m), "more than 200 million steps for the beginnings of");
	/* each special token is looked for in the template */
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	const struct chat_template *chat = NULL;
	struct buf text = BUF_INIT;
	json_t *doc = load(DIR "qwen2.json"), *added = json_object_get(doc, "added_tokens");
	for (int i = 0; i < 1200; i++)
		json_array_append_new(added, json_pack("{si so sb}", "id", 5000 + i, "content",
						       json_sprintf("<|%d|>", i), "special", 1));
	for (int i = 0; i < 1000000; i++)
		buf_addc(&text, 'x');
	assert_int_equal(tokenizer_from_json(doc, NULL, "many", &t, &e), 0);
	assert_int_equal(chat_from_jinja(text.p, t, &chat, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "too long for a tokenizer of so many special tokens"));
	tokenizer_free(t);
	buf_release(&text);
	json_decref(doc);
}

static char said[2][160];
static size_t nsaid;
static void keep_said(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(said[nsaid++ % 2], sizeof said[0], "%s", line);
}

/* A turn that the template does not show is said, once. */
static void test_jinja_leaves_out(void **state)
{
	(void)state;
	const struct chat_message m[] = { MSG(SYSTEM, "S", false), MSG(USER, "One", false),
					  MSG(SYSTEM, "S", false), MSG(USER, "Two", false),
					  MSG(ASSISTANT, "2", true) };
	static const char text[] =
		"{% for m in messages %}{% if m.role != 'system' %}{{ '<|im_start|>' + m.content + "
		"'<|im_end|>' }}{% endif %}{% endfor %}{{ '<|im_start|>' if add_generation_prompt "
		"}}";
	nsaid = 0;
	log_set_sink(keep_said, NULL, LOG_WARN);
	check_jinja(text, m + 3, 2, "<|im_start|>Two<|im_end|><|im_start|>[2<|im_end|>]");
	assert_int_equal(nsaid, 0);
	check_jinja(text, m, 5,
		    "<|im_start|>One<|im_end|><|im_start|>Two<|im_end|><|im_start|>[2<|im_end|>]");
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_int_equal(nsaid, 1);
	assert_non_null(strstr(said[0], "leaves out turn 1 (system) of a conversation"));
}

static void test_jinja_trained(void **state)
{
	(void)state;
	const struct chat_message two[] = { MSG(SYSTEM, "S", false), MSG(USER, "One", false),
					    MSG(ASSISTANT, "1", true), MSG(USER, "Two", false),
					    MSG(ASSISTANT, " 2 ", true) },
				  last[] = { MSG(USER, "One", false), MSG(ASSISTANT, "1", false),
					     MSG(USER, "Two", true), MSG(ASSISTANT, "2", true) },
				  empty[] = { MSG(USER, "One", false), MSG(ASSISTANT, "", true) },
				  begins[] = { MSG(ASSISTANT, "first", true),
					       MSG(ASSISTANT, "second", true) };
	check_jinja(CHATML, two, 5,
		    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nOne<|im_end|>\n"
		    "<|im_start|>assistant\n[1<|im_end|>]\n<|im_start|>user\nTwo<|im_end|>\n"
		    "<|im_start|>assistant\n[ 2 <|im_end|>]\n");
	check_jinja(CHATML, last, 4,
		    "<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n"
		    "<|im_start|>user\n[Two<|im_end|>]\n<|im_start|>assistant\n[2<|im_end|>]\n");
	check_jinja(CHATML, empty, 2,
		    "<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
	/* the end of the conversation instead of an open answer */
	check_jinja(
		"{% for m in messages %}{{ '<|start_header_id|>' + m.role + m.content + "
		"'<|im_end|>\n' }}{% endfor %}{{ '<|start_header_id|>assistant' if "
		"add_generation_prompt else eos_token }}",
		last, 4,
		"<|start_header_id|>userOne<|im_end|>\n<|start_header_id|>assistant1<|im_end|>\n"
		"<|start_header_id|>user[Two<|im_end|>]\n<|start_header_id|>assistant[2<|im_end|>]"
		"\n</s>");
	/* no token ends a turn, so EOS ends the last; and the text of a message is cut and moved */
	check_jinja("{% for m in messages %}{{ '\n' + m.role + ': ' + m.content | trim | upper }}"
		    "{% endfor %}{% if add_generation_prompt %}{{ '\nassistant: ' }}{% endif %}",
		    two, 5,
		    "\nsystem: S\nuser: ONE\nassistant: [1]\nuser: TWO\nassistant: [2</s>]");
	/* then the token that opens the next turn, if that is no answer, ends one: GLM-4 */
	static const char bare[] = "{% for m in messages %}{{ '[INST]' if m.role == 'user' else "
				   "'<|im_start|>' }}{{ m.content + '\n' }}{% endfor %}"
				   "{{ '<|im_start|>' if add_generation_prompt }}";
	check_jinja(bare, two, 5,
		    "<|im_start|>S\n[INST]One\n<|im_start|>[1\n[INST]]Two\n<|im_start|>[ 2 \n"
		    "</s>]");
	struct tokenizer *tok = make(DIR "qwen2.json", "<s>", "</s>");
	const struct chat_template *chat = NULL;
	struct err e = { 0 };
	int32_t stop[4];
	assert_int_equal(chat_from_jinja(bare, tok, &chat, &e), 0);
	assert_int_equal(chat_stops(chat, tok, stop, 4), 1);
	assert_int_equal(stop[0], tokenizer_id(tok, "[INST]"));
	chat_free(chat);
	tokenizer_free(tok);
	check_jinja(bare, begins, 2, "<|im_start|>[first]\n<|im_start|>[second\n</s>]");
	check_jinja(bare, two, 4, "<|im_start|>S\n[INST]One\n<|im_start|>[1\n[INST]]Two\n");
	/* text that is no special token ends turns */
	check_jinja("{% for m in messages %}{{ '#' + m.role + '\n' + m.content + '\n<end>\n' }}"
		    "{% endfor %}{{ '#assistant\n' if add_generation_prompt }}",
		    two, 5,
		    "#system\nS\n<end>\n#user\nOne\n<end>\n#assistant\n[1\n<end>]\n#user\nTwo\n"
		    "<end>\n#assistant\n[ 2 \n<end>]\n");
	/* an opening that whole answers do not have */
	check_jinja(
		"{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}"
		"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<think>' }}"
		"{% endif %}",
		last, 4,
		"<|im_start|>userOne<|im_end|><|im_start|>assistant1<|im_end|><|im_start|>user["
		"Two<|im_end|>]<|im_start|>assistant[2<|im_end|>]");
	/* added to the last answer only: it is trained with it */
	check_jinja(
		"{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if loop.last and m.role "
		"== 'assistant' %}<think></think>{% endif %}{{ m.content + '<|im_end|>' }}"
		"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}"
		"{% endif %}",
		two, 5,
		"<|im_start|>systemS<|im_end|><|im_start|>userOne<|im_end|><|im_start|>assistant["
		"1<|im_end|>]<|im_start|>userTwo<|im_end|><|im_start|>assistant[<think></think> 2 "
		"<|im_end|>]");
	/* a conversation that begins with an answer, which the template cannot open */
	check_jinja(
		"{{ messages[0].role ~ '\n' }}{% for m in messages %}{{ m.content + '<|im_end|>' }}"
		"{% endfor %}",
		begins, 2, "assistant\n[first<|im_end|>second<|im_end|>]");
	/* or only behind a question */
	static const struct chat_message greets[] = { MSG(SYSTEM, "S", false),
						      MSG(ASSISTANT, "first", true),
						      MSG(USER, "One", false),
						      MSG(ASSISTANT, "1", true) };
	check_jinja("{% if messages | map(attribute='role') | list | join | replace('user', '') "
		    "== messages | map(attribute='role') | list | join %}{{ raise_exception('no "
		    "question') }}{% endif %}" CHATML,
		    greets, 4,
		    "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n[first<|im_end|>]\n"
		    "<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\n[1<|im_end|>]\n");
	/* one that it can open, in another way than it begins */
	check_jinja("{% for m in messages %}{{ (bos_token if loop.first else '') + "
		    "'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}{{ "
		    "'<|im_start|>assistant\n' if add_generation_prompt else '' }}",
		    begins, 2,
		    "<s><|im_start|>assistant\n[first<|im_end|>]<|im_start|>assistant\n"
		    "[second<|im_end|>]");
	/* the last turn ends in another way than earlier ones: gpt-oss */
	check_jinja("{% for m in messages %}{{ '<|im_start|>' + m.role + '<|start_header_id|>' + "
		    "m.content + ('<|eot_id|>' if loop.last and m.role == 'assistant' and not "
		    "add_generation_prompt else '<|im_end|>') }}{% endfor %}{{ "
		    "'<|im_start|>assistant' if add_generation_prompt else '' }}",
		    two, 5,
		    "<|im_start|>system<|start_header_id|>S<|im_end|><|im_start|>user"
		    "<|start_header_id|>One<|im_end|><|im_start|>assistant[<|start_header_id|>1"
		    "<|im_end|>]<|im_start|>user<|start_header_id|>Two<|im_end|><|im_start|>"
		    "assistant[<|start_header_id|> 2 <|eot_id|>]");
	/* and where only the last one has an end, the next turn's opening is none */
	check_jinja("{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_end|>' + m.content "
		    "}}{% endfor %}{{ '<|im_start|>assistant<|im_end|>' if add_generation_prompt "
		    "else '<|eot_id|>' }}",
		    two, 5,
		    "<|im_start|>system<|im_end|>S<|im_start|>user<|im_end|>One<|im_start|>"
		    "assistant<|im_end|>[1]<|im_start|>user<|im_end|>Two<|im_start|>assistant"
		    "<|im_end|>[ 2 <|eot_id|>]");
	/* a call has an end of its own before that of the turn: LFM2 */
	check_jinja("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + ('[INST]' + "
		    "m.content + '[/INST]' if m.content == '1' else m.content) + '<|im_end|>' }}"
		    "{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}",
		    two, 5,
		    "<|im_start|>system\nS<|im_end|><|im_start|>user\nOne<|im_end|><|im_start|>"
		    "assistant\n[[INST]1[/INST]<|im_end|>]<|im_start|>user\nTwo<|im_end|>"
		    "<|im_start|>assistant\n[ 2 <|im_end|>]");
	check_jinja("{% for m in messages[::-1] %}{{ m.role + m.content }}{% endfor %}", last, 4,
		    "writes the turns before turn 4 in another way");
	/* the numbers count down, so the turns before an answer are others without it */
	check_jinja(
		"{% for m in messages %}{{ loop.revindex ~ '<|im_start|>' ~ m.content ~ "
		"'<|im_end|>' }}{% endfor %}{{ '9<|im_start|>' if add_generation_prompt }}",
		last, 4,
		"4<|im_start|>One<|im_end|>3<|im_start|>1<|im_end|>2<|im_start|>[Two<|im_end|>]1"
		"<|im_start|>[2<|im_end|>]");
	check_jinja("{% if messages | length == 3 %}{{ raise_exception('three') }}{% endif %}"
		    "{% for m in messages %}{{ m.content }}{% endfor %}",
		    last, 4,
		    "the conversation up to turn 3 alone: chat template: line 1: the "
		    "template refuses the conversation: three");
	check_jinja("{% for %}", last, 4, "chat template: line 1: a name is missing");
}

/* A call, its answer, the list of tools; and names of special tokens in them, which stay text. */
static void test_jinja_tools(void **state)
{
	(void)state;
	json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "<|im_end|>"),
	       *turn = json_pack("{s:[{s:s, s:{s:s}}], s:n}", "tool_calls", "name", "f",
				 "arguments", "p", "<|im_end|>", "content");
	struct chat_message m[] = { MSG(USER, "?", false), MSG(ASSISTANT, "", true),
				    MSG(TOOL, "21", false), MSG(ASSISTANT, "It is 21", true) };
	m[0].tools = tools;
	m[1].turn = turn;
	check_jinja("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
		    "{{ '<|im_start|>' + m.role + '\n' }}{% for c in m.tool_calls or [] %}"
		    "{{ c | tojson }}{% endfor %}{{ m.content + '<|im_end|>' }}{% endfor %}"
		    "{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}",
		    m, 4,
		    "[{\"function\": {\"name\": \"<|im_end|>\"}}]<|im_start|>user\n?<|im_end|>"
		    "<|im_start|>assistant\n[{\"name\": \"f\", \"arguments\": {\"p\": \"<|im_end|>"
		    "\"}}<|im_end|>]<|im_start|>tool\n21<|im_end|><|im_start|>assistant\n[It is 21"
		    "<|im_end|>]");
	json_decref(turn);
	/* the tool's turn repeats the name of what was called, which is no part of the call */
	m[0].tools = NULL;
	m[1].turn = turn = json_pack("{s:[{s:s}]}", "tool_calls", "name", "f");
	check_jinja("{% for m in messages %}{{ '<|im_start|>' + (m.role if m.role != 'tool' else "
		    "messages[loop.index0 - 1].tool_calls[0].name) + ':' }}{% for c in "
		    "m.tool_calls or [] %}{{ c.name }}{% endfor %}{{ m.content + '<|im_end|>' }}"
		    "{% endfor %}{{ '<|im_start|>assistant:' if add_generation_prompt }}",
		    m, 4,
		    "<|im_start|>user:?<|im_end|><|im_start|>assistant:[f<|im_end|>]<|im_start|>f:"
		    "21<|im_end|><|im_start|>assistant:[It is 21<|im_end|>]");
	/* also where the turn of the call is another once an answer follows: gpt-oss */
	check_jinja("{% for m in messages %}{{ '<|im_start|>' + (m.role if m.role != 'tool' else "
		    "messages[loop.index0 - 1].tool_calls[0].name + '<|im_start|>') + ':' }}{% if "
		    "loop.last and m.tool_calls %}{{ '<think>' }}{% endif %}{% for c in "
		    "m.tool_calls or [] %}{{ c.name }}{% endfor %}{{ m.content + '<|im_end|>' }}"
		    "{% endfor %}{{ '<|im_start|>assistant:' if add_generation_prompt }}",
		    m, 4,
		    "<|im_start|>user:?<|im_end|><|im_start|>assistant:[f<|im_end|>]<|im_start|>f"
		    "<|im_start|>:21<|im_end|><|im_start|>assistant:[It is 21<|im_end|>]");
	/* and what closes a call is trained where no token ends turns: GLM-4 */
	check_jinja("{% for m in messages %}{{ '[INST]' if m.role == 'tool' else '<|im_start|>' }}"
		    "{% for c in m.tool_calls or [] %}{{ '<call>' + c.name + '</call>' }}"
		    "{% endfor %}{{ m.content }}{% endfor %}{{ '<|im_start|>' if "
		    "add_generation_prompt }}",
		    m, 4,
		    "<|im_start|>?<|im_start|>[<call>f</call>[INST]]21<|im_start|>[It is 21</s>]");
	json_decref(turn);
	/* a thought has several names; transformers gives templates these two */
	static const char *const thoughts[] = { "reasoning_content", "thinking", "reasoning" };
	for (size_t i = 0; i < ARRAY_LEN(thoughts); i++) {
		struct chat_message t[] = { MSG(USER, "?", false), MSG(ASSISTANT, "21", true) };
		t[1].turn = turn = json_pack("{s:s}", thoughts[i], "half of 42");
		check_jinja("{% for m in messages %}{{ '<|im_start|>' }}{% if m.thinking %}{{ "
			    "m.thinking + ', ' + m.reasoning_content + ': ' }}{% endif %}{{ "
			    "m.content + '<|im_end|>' }}{% endfor %}{{ '<|im_start|>' if "
			    "add_generation_prompt }}",
			    t, 2,
			    "<|im_start|>?<|im_end|><|im_start|>[half of 42, half of 42: 21"
			    "<|im_end|>]");
		json_decref(turn);
	}
	/* arguments in a text, as OpenAI has them, are the object that it holds; a template that
	 * joins them to a text (DeepSeek's) gets the text */
	static const char template[] =
		"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
		"{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | "
		"tojson }}{% endfor %}{{ m.content + '<|im_end|>' }}{% endfor %}"
		"{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}",
			  joins[] = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
				    "{% for c in m['tool_calls'] or [] %}{{ c['function']['name'] "
				    "+ c['function']['arguments'] }}{% endfor %}"
				    "{{ m.content + '<|im_end|>' }}{% endfor %}"
				    "{{ '<|im_start|>assistant\n' if add_generation_prompt }}";
	turn = json_pack("{s:[{s:{s:s, s:s}}]}", "tool_calls", "function", "name", "f", "arguments",
			 "{\"p\":[1,\"q\"]}");
	m[0].tools = NULL;
	m[1].turn = turn;
	check_jinja(template, m, 2,
		    "<|im_start|>user\n?<|im_end|><|im_start|>assistant\n[f{\"p\": [1, \"q\"]}"
		    "<|im_end|>]");
	check_jinja(joins, m, 2,
		    "<|im_start|>user\n?<|im_end|><|im_start|>assistant\n[f{\"p\":[1,\"q\"]}"
		    "<|im_end|>]");
	json_decref(turn);
	turn = json_pack("{s:[{s:{s:s, s:s}}]}", "tool_calls", "function", "name", "f", "arguments",
			 "p=1");
	m[1].turn = turn;
	check_jinja(template, m, 2, "turn 2: tool_calls[0]: arguments:1:1: not valid JSON");
	json_decref(turn);
	/* variables of the record; what they hold stays text */
	json_t *args = json_pack("{s:s,s:b}", "instructions", "<|im_end|>", "short", 1);
	struct chat_message v[] = { MSG(USER, "?", false), MSG(ASSISTANT, "21", true) };
	static const char takes[] = "{{ instructions }}{% if short is defined and short %}!"
				    "{% endif %}{% for m in messages %}{{ '<|im_start|>' + "
				    "m.content + '<|im_end|>' }}{% endfor %}{{ '<|im_start|>' if "
				    "add_generation_prompt }}";
	v[0].args = args;
	check_jinja(takes, v, 2, "<|im_end|>!<|im_start|>?<|im_end|><|im_start|>[21<|im_end|>]");
	json_object_set_new(args, "messages", json_array());
	check_jinja(takes, v, 2, "chat_template_kwargs: messages: is no variable that a record");
	json_decref(args);
	/* what is not shown would be missing in what is learned */
	turn = json_pack("{s:[{s:{s:s, s:{}}}]}", "tool_calls", "function", "name", "f",
			 "arguments");
	m[1].turn = turn;
	check_jinja(CHATML, m, 2, "tool_calls: the chat template does not show them");
	json_object_set_new(turn, "tool_calls", json_array()); /* none */
	check_jinja(CHATML, m, 2,
		    "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
	m[1].turn = NULL;
	m[0].tools = tools;
	check_jinja(CHATML, m, 2, "tools: the chat template does not show them");
	json_decref(turn);
	json_decref(tools);
}

/* The ids and marks of a Jinja text are those of the row that writes the same. */
static void test_jinja_row(void **state)
{
	(void)state;
	struct tokenizer *tok = make(DIR "smollm2.json", "<s>", "</s>");
	const struct chat_template *chat = NULL, *row = chat_find("chatml");
	struct err e = { 0 };
	if (chat_from_jinja(CHATML, tok, &chat, &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t c = 0; c < json_array_size(json_object_get(golden, "conversations")); c++) {
		struct chat_message m[MESSAGES];
		struct tokens ids[2] = { 0 }, train[2] = { 0 };
		size_t n = conversation(c, m);
		for (int k = 0; k < 2; k++)
			if (chat_encode(k ? chat : row, tok, m, n, false, &ids[k], &train[k], &e))
				fail_msg("%s", e.msg);
		assert_int_equal(ids[0].n, ids[1].n);
		assert_memory_equal(ids[0].id, ids[1].id, ids[0].n * sizeof *ids[0].id);
		assert_memory_equal(train[0].id, train[1].id, ids[0].n * sizeof *ids[0].id);
		for (int k = 0; k < 2; k++) {
			tokens_release(&ids[k]);
			tokens_release(&train[k]);
		}
	}
	int32_t stop[4];
	assert_int_equal(chat_stops(chat, tok, stop, 4), 1);
	assert_int_equal(stop[0], tokenizer_id(tok, "<|im_end|>"));
	assert_string_equal(chat_name(chat), CHAT_JINJA);
	chat_free(chat);
	chat_free(row);
	tokenizer_free(tok);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_templates),     cmocka_unit_test(test_trained),
		cmocka_unit_test(test_forged),        cmocka_unit_test(test_other_eos),
		cmocka_unit_test(test_detect),        cmocka_unit_test(test_jinja_limits),
		cmocka_unit_test(test_jinja_trained), cmocka_unit_test(test_jinja_tools),
		cmocka_unit_test(test_jinja_row),     cmocka_unit_test(test_jinja_leaves_out),
	};
	folder = argc > 1 ? argv[1] : NULL;
	return cmocka_run_group_tests(tests, setup, teardown);
}
