/* chat_chatml.c - ChatML: SmolLM2-Instruct, Qwen2 and Qwen2.5-Instruct, and many others.
 *
 * The variants differ in the system message that a conversation without one gets, and Qwen2.5 in how the answers of tools are shown. */
#include "data/chat_text.h"

#include <string.h>

enum { PLAIN, TOOL_RESPONSE };

static const struct chat_template *chatml_detect(const char *jinja, const struct tokenizer *tok);

static int chatml_render(const struct chat_template *t, const struct tokenizer *tok, const struct chat_message *msg, size_t n,
			 bool open, struct chat_text *o, struct err *e)
{
	(void)tok;
	(void)e;
	if (t->system && n && msg[0].role != CHAT_SYSTEM) {
		chat_put(o, "<|im_start|>system\n");
		chat_put(o, t->system);
		chat_put(o, "<|im_end|>\n");
	}
	for (size_t i = 0; i < n; i++) {
		bool tool = t->variant == TOOL_RESPONSE && msg[i].role == CHAT_TOOL;
		bool follows = tool && i && msg[i - 1].role == CHAT_TOOL,
		     goes_on = tool && i + 1 < n && msg[i + 1].role == CHAT_TOOL;
		if (!follows) {
			chat_put(o, "<|im_start|>");
			chat_put(o, tool ? "user" : chat_role_name(msg[i].role));
		}
		chat_put(o, tool ? "\n<tool_response>\n" : "\n");
		chat_put_message(o, &msg[i]);
		if (tool)
			chat_put(o, "\n</tool_response>");
		if (!goes_on) {
			chat_put_end(o, "<|im_end|>", msg[i].train);
			chat_put(o, "\n");
		}
	}
	if (open)
		chat_put(o, "<|im_start|>assistant\n");
	return 0;
}

#define ROW(variant_, system_)                                                                                                     \
	{                                                                                                                          \
		.name = "chatml", .variant = variant_, .system = system_, .needs = { "<|im_start|>", "<|im_end|>" },               \
		.stop = { "<|im_end|>" }, .detect = chatml_detect, .render = chatml_render                                         \
	}

const struct chat_template chat_template_chatml = ROW(PLAIN, NULL);

static const struct chat_template variants[] = {
	ROW(PLAIN, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
	ROW(TOOL_RESPONSE, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
	ROW(PLAIN, "You are a helpful assistant."),
};

/* What Jinja writes as a literal may have its line feeds escaped, so only single lines are looked for. */
static const struct chat_template *chatml_detect(const char *jinja, const struct tokenizer *tok)
{
	if (tokenizer_id(tok, "<|im_start|>") < 0 || tokenizer_id(tok, "<|im_end|>") < 0)
		return NULL;
	if (!jinja)
		return &chat_template_chatml;
	if (!strstr(jinja, "<|im_start|>"))
		return NULL;
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
		if (strstr(jinja, variants[i].system))
			return &variants[i];
	return &chat_template_chatml;
}
