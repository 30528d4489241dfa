/* SPDX-License-Identifier: Apache-2.0 */
/* From a record to what the model sees: dataset kinds, chat templates and tokenizers together,
 * shown as text with the trained parts in [ ]; and the examples of this repository, which have to
 * load with every template. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "data/batch.h"
#include "data/chat.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const struct model {
	const char *name, *path, *config;
} models[] = {
	{ "qwen2", "tests/golden/tokenizer/qwen2.json", "{\"eos_token\":\"<|im_end|>\"}" },
	{ "llama3", "tests/golden/tokenizer/llama3.json",
	  "{\"bos_token\":\"<|begin_of_text|>\",\"eos_token\":\"<|eot_id|>\"}" },
	{ "llama2", "tests/golden/tokenizer/llama2.json",
	  "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}" },
	{ "mistral", "tests/golden/tokenizer/mistral.json",
	  "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}" },
};
enum { NMODELS = sizeof models / sizeof *models };
static struct tokenizer *tok[NMODELS];

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODELS; i++) {
		struct err e = { 0 };
		json_t *config = NULL;
		if (json_parse_text(models[i].config, strlen(models[i].config), models[i].name,
				    &config, &e) < 0 ||
		    tokenizer_from_file(models[i].path, config, &tok[i], &e) < 0)
			fail_msg("%s", e.msg);
		json_decref(config);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODELS; i++)
		tokenizer_free(tok[i]);
	return 0;
}

static const struct tokenizer *model(const char *name)
{
	for (size_t i = 0; i < NMODELS; i++)
		if (!strcmp(models[i].name, name))
			return tok[i];
	fail_msg("no model %s", name);
	return NULL;
}

static struct dataset *load(const char *json, const struct dataset_options *o)
{
	char path[] = "/tmp/hs-render-XXXXXX";
	int fd = mkstemp(path);
	struct err e = { 0 };
	struct dataset *d = NULL;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, json, strlen(json)), strlen(json));
	close(fd);
	struct dataset_source src = { .path = path, .type = "auto" };
	int rc = dataset_load(&src, 1, o, &d, &e);
	unlink(path);
	if (rc)
		fail_msg("%s", e.msg);
	return d;
}

/* The text of each id is what the decoded text grows by when that id is added. */
static void show(const struct tokenizer *t, struct example x, struct buf *out)
{
	struct err e = { 0 };
	struct buf text = BUF_INIT;
	size_t before = 0;
	buf_reset(out);
	for (uint32_t i = 0; i < x.n; i++) {
		if (x.train[i] && !x.train[i - 1])
			buf_addc(out, '[');
		buf_reset(&text);
		assert_int_equal(tokenizer_decode(t, x.id, i + 1, false, &text, &e), 0);
		assert_true(text.n >= before);
		buf_add(out, text.p + before, text.n - before);
		before = text.n;
		if (x.train[i] && (i + 1 == x.n || !x.train[i + 1]))
			buf_addc(out, ']');
	}
	buf_release(&text);
}

#define ALPACA "{'instruction':'Add the numbers.','input':'2 and 3','output':'They make 5.'}"
#define ALPACA_SHORT "{'instruction':'Say hi.','output':'Hi!'}"
#define SHAREGPT                                                                                   \
	"{'system':'Be "                                                                           \
	"brief.','conversations':[{'from':'human','value':'Hi'},{'from':'gpt','value':'Hello.'},"  \
	"{'from':'human','value':'Bye'},{'from':'gpt','value':'See you.'}]}"
#define MESSAGES                                                                                   \
	"{'messages':[{'role':'system','content':'Be brief.'},{'role':'user','content':'Hi "       \
	"<|im_end|></s>'},"                                                                        \
	"{'role':'assistant','content':'No.','train':false},{'role':'user','content':[{'type':'"   \
	"text','text':'Well'}]},"                                                                  \
	"{'role':'assistant','content':'Yes.'}]}"
#define STANFORD_INPUT                                                                             \
	"Below is an instruction that describes a task, paired with an input that provides "       \
	"further context. Write a response "                                                       \
	"that "                                                                                    \
	"appropriately completes the request.\n\n### Instruction:\nAdd the numbers.\n\n### "       \
	"Input:\n2 and 3\n\n### Response:\n"
#define STANFORD                                                                                   \
	"Below is an instruction that describes a task. Write a response that appropriately "      \
	"completes the request.\n\n"                                                               \
	"### Instruction:\nSay hi.\n\n### Response:\n"

static void rendered(void **state)
{
	(void)state;
	static const struct {
		const char *model, *chat, *record, *want;
	} row[] = {
		{ "qwen2", "chatml", ALPACA,
		  "<|im_start|>user\nAdd the numbers.\n2 and "
		  "3<|im_end|>\n<|im_start|>assistant\n[They make 5.<|im_end|>]\n" },
		{ "qwen2", "chatml", SHAREGPT,
		  "<|im_start|>system\nBe "
		  "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Hello."
		  "<|im_end|>]\n"
		  "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n[See "
		  "you.<|im_end|>]\n" },
		{ "qwen2", "chatml", MESSAGES,
		  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi "
		  "<|im_end|></s><|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n"
		  "<|im_start|>user\nWell<|im_end|>\n<|im_start|>assistant\n[Yes.<|im_end|>]\n" },
		{ "llama3", "llama3", ALPACA,
		  "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nAdd the "
		  "numbers.\n2 and 3<|eot_id|>"
		  "<|start_header_id|>assistant<|end_header_id|>\n\n[They make 5.<|eot_id|>]" },
		{ "llama3", "llama3", MESSAGES,
		  "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe "
		  "brief.<|eot_id|>"
		  "<|start_header_id|>user<|end_header_id|>\n\nHi "
		  "<|im_end|></"
		  "s><|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nNo.<|eot_id|>"
		  "<|start_header_id|>user<|end_header_id|>\n\nWell<|eot_id|><|start_header_id|>"
		  "assistant<|end_header_id|>\n\n[Yes."
		  "<|eot_id|>]" },
		{ "mistral", "mistral", SHAREGPT,
		  "<s>[INST] Hi[/INST] [Hello.</s>][INST] Be brief.\n\nBye[/INST][ See you.</s>]" },
		{ "llama2", "zephyr", SHAREGPT,
		  "<|system|>\nBe "
		  "brief.</s> \n<|user|>\nHi</s> \n<|assistant|>\n[Hello.</s>] \n<|user|>\nBye</s> "
		  "\n<|assistant|>\n[See you.</s>] "
		  "\n" },
		{ "llama2", "zephyr", ALPACA,
		  "<|user|>\nAdd the numbers.\n2 and 3</s> \n<|assistant|>\n[They make 5.</s>] "
		  "\n" },
		{ "llama2", "alpaca", ALPACA, "<s> " STANFORD_INPUT "[They make 5.</s>]" },
		{ "llama2", "alpaca", ALPACA_SHORT, "<s> " STANFORD "[Hi!</s>]" },
		{ "llama3", "alpaca", ALPACA,
		  "<|begin_of_text|>" STANFORD_INPUT "[They make 5.<|eot_id|>]" },
		{ "qwen2", "alpaca", ALPACA_SHORT, STANFORD "[Hi!<|im_end|>]" },
		{ "llama3", "plain", ALPACA_SHORT,
		  "<|begin_of_text|><|user|>\nSay hi.\n<|assistant|>\n[Hi!<|eot_id|>]\n" },
		{ "qwen2", NULL, "{'prompt':'2 + 2 =','completion':' 4'}",
		  "2 + 2 =[ 4<|im_end|>]" },
		{ "llama2", NULL, "{'prompt':'The sum is','completion':' four.'}",
		  "<s> The sum is[ four.</s>]" },
		{ "llama2", NULL, "{'text':'A line.'}", "<s>[ A line.</s>]" },
		{ "llama3", NULL, "{'text':'A line.'}", "<|begin_of_text|>[A line.<|eot_id|>]" },
		{ "qwen2", NULL, "{'text':'A line.'}", "A[ line.<|im_end|>]" },
	};
	struct buf got = BUF_INIT;
	int bad = 0;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct tokenizer *t = model(row[i].model);
		struct dataset_options o = { .tok = t,
					     .chat = row[i].chat ? chat_find(row[i].chat) : NULL,
					     .sequence_len = 4096 };
		char json[1024];
		snprintf(json, sizeof json, "%s\n", row[i].record);
		for (char *p = json; *p; p++)
			*p = *p == '\'' ? '"' : *p;
		struct dataset *d = load(json, &o);
		show(t, dataset_get(d, 0), &got);
		if (strcmp(got.p, row[i].want)) {
			print_error("%s %s:\n  got  %s\n  want %s\n", row[i].model,
				    row[i].chat ? row[i].chat : "-", got.p, row[i].want);
			bad++;
		}
		dataset_free(d);
	}
	buf_release(&got);
	assert_int_equal(bad, 0);
}

/* The prompt that generation begins with is the front of what was trained, id for id. */
static void prompts(void **state)
{
	(void)state;
	static const char *const row[][2] = { { "qwen2", "chatml" },    { "llama3", "llama3" },
					      { "mistral", "mistral" }, { "llama2", "zephyr" },
					      { "llama2", "alpaca" },   { "llama3", "plain" } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct tokenizer *t = model(row[i][0]);
		const struct chat_template *chat = chat_find(row[i][1]);
		struct dataset_options o = { .tok = t, .chat = chat, .sequence_len = 4096 };
		struct dataset *d = load("{\"instruction\":\"Say hi.\",\"output\":\"Hi!\"}", &o);
		struct example x = dataset_get(d, 0);
		struct chat_message ask = { .role = CHAT_USER, .text = "Say hi.", .n = 7 };
		struct tokens ids = { 0 };
		struct err e = { 0 };
		uint32_t first = 0;
		assert_int_equal(chat_encode(chat, t, &ask, 1, true, &ids, NULL, &e), 0);
		while (!x.train[first])
			first++;
		/* Mistral's answer follows a space that SentencePiece makes part of its first
		 * token. */
		assert_true(ids.n == first || !strcmp(row[i][1], "mistral"));
		for (size_t k = 0; k < ids.n; k++)
			assert_int_equal(ids.id[k], x.id[k]);
		tokens_release(&ids);
		dataset_free(d);
	}
}

static void examples(void **state)
{
	(void)state;
	static const char *const row[][2] = { { "qwen2", "chatml" },    { "llama3", "llama3" },
					      { "mistral", "mistral" }, { "llama2", "zephyr" },
					      { "llama2", "alpaca" },   { "llama3", "plain" } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct dataset_source src = { .path = "examples/homelab.jsonl", .type = "alpaca" };
		struct dataset_options o = { .tok = model(row[i][0]),
					     .chat = chat_find(row[i][1]),
					     .sequence_len = 4096 };
		struct dataset *d = NULL;
		struct err e = { 0 };
		if (dataset_load(&src, 1, &o, &d, &e))
			fail_msg("%s", e.msg);
		assert_int_equal(dataset_count(d), 112);
		assert_int_equal(dataset_stats(d)->truncated, 0);
		dataset_free(d);
	}
	struct dataset_source src = { .path = "examples/primer.txt", .type = "text" };
	struct dataset_options o = { .tok = model("llama3"), .sequence_len = 256 };
	struct dataset *d = NULL;
	struct err e = { 0 };
	if (dataset_load(&src, 1, &o, &d, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(dataset_stats(d)->records, 1);
	assert_true(dataset_count(d) > 10);
	assert_int_equal(dataset_stats(d)->tokens - dataset_stats(d)->trained, dataset_count(d));
	dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(rendered), cmocka_unit_test(prompts),
					    cmocka_unit_test(examples) };
	return cmocka_run_group_tests_name("data_render", tests, setup, teardown);
}
