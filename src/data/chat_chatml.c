/* SPDX-License-Identifier: Apache-2.0 */
/* chat_chatml.c - ChatML: SmolLM2-Instruct, Qwen2 and Qwen2.5-Instruct, Qwen3, and many others.
 *
 * The variants differ in the system message that a conversation without one gets, in how the
 * answers of tools are shown, and in Qwen3's thoughts: earlier answers are written without them,
 * the last answer with them, or with an empty pair of marks. */
#include "data/chat_text.h"

#include <string.h>

enum { PLAIN, TOOL_RESPONSE, THINK };

static const char close_think[] = "</think>";

static struct chat_message part_of_message(const struct chat_message *m, const char *p,
					   const char *end)
{
	return (struct chat_message){
		.role = m->role, .text = p, .n = (size_t)(end - p), .train = m->train
	};
}

/* Without the line feeds around it. */
static struct chat_message strip(struct chat_message m, bool end)
{
	for (; m.n && *m.text == '\n'; m.n--)
		m.text++;
	while (end && m.n && m.text[m.n - 1] == '\n')
		m.n--;
	return m;
}

static const char *find_last(const char *p, const char *end, const char *what)
{
	size_t n = strlen(what);
	const char *found = NULL;
	for (; (p = memmem(p, (size_t)(end - p), what, n)); p += n)
		found = p;
	return found;
}

/* Splits an answer at its thoughts, as the template does: <think>thought</think>rest. */
static bool split_thought(const struct chat_message *m, struct chat_message *thought_p,
			  struct chat_message *rest_p)
{
	const char *end = m->text + m->n,
		   *first = memmem(m->text, m->n, close_think, strlen(close_think));
	if (!first) {
		*thought_p = part_of_message(m, m->text, m->text);
		*rest_p = *m;
		return false;
	}
	const char *begin = find_last(m->text, first, "<think>");
	*thought_p =
		strip(part_of_message(m, begin ? begin + strlen("<think>") : m->text, first), true);
	*rest_p = strip(
		part_of_message(m, find_last(first, end, close_think) + strlen(close_think), end),
		false);
	return true;
}

static bool is_tool_response(const struct chat_message *m)
{
	static const char a[] = "<tool_response>", b[] = "</tool_response>";
	return m->n >= strlen(b) && !memcmp(m->text, a, strlen(a)) &&
	       !memcmp(m->text + m->n - strlen(b), b, strlen(b));
}

static void put_answer(struct chat_text *o, const struct chat_message *msg, size_t n, size_t i)
{
	struct chat_message thought, rest;
	bool thinks = split_thought(&msg[i], &thought, &rest);
	/* the last question; the answer after it is the current one */
	size_t query = n;
	for (size_t k = n; k-- > 0 && query == n;)
		if (msg[k].role == CHAT_USER && !is_tool_response(&msg[k]))
			query = k;
	if (query < n ? i > query && (i + 1 == n || (thinks && thought.n)) : false) {
		chat_put_end(o, "<think>\n", msg[i].train);
		chat_put_message(o, &thought);
		chat_put_end(o, "\n</think>\n\n", msg[i].train);
		rest = strip(rest, false);
	}
	chat_put_message(o, &rest);
}

static int chatml_render(const struct chat_template *t, const struct tokenizer *tok,
			 const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			 struct err *e)
{
	(void)tok;
	(void)e;
	if (t->system && n && msg[0].role != CHAT_SYSTEM) {
		chat_put(o, "<|im_start|>system\n");
		chat_put(o, t->system);
		chat_put(o, "<|im_end|>\n");
	}
	for (size_t i = 0; i < n; i++) {
		bool tool = t->variant != PLAIN && msg[i].role == CHAT_TOOL;
		bool follows = tool && i && msg[i - 1].role == CHAT_TOOL,
		     goes_on = tool && i + 1 < n && msg[i + 1].role == CHAT_TOOL;
		if (!follows) {
			chat_put(o, "<|im_start|>");
			chat_put(o, tool ? "user" : chat_role_name(msg[i].role));
		}
		chat_put(o, tool ? "\n<tool_response>\n" : "\n");
		if (t->variant == THINK && msg[i].role == CHAT_ASSISTANT)
			put_answer(o, msg, n, i);
		else
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

static const struct chat_template *chatml_detect(const char *jinja, const struct tokenizer *tok);

#define ROW(variant_, system_)                                                                     \
	{                                                                                          \
		.name = "chatml", .variant = variant_, .system = system_,                          \
		.needs = { "<|im_start|>", "<|im_end|>" }, .stop = { "<|im_end|>" },               \
		.detect = chatml_detect, .render = chatml_render                                   \
	}

const struct chat_template chat_template_chatml = ROW(PLAIN, NULL);
static const struct chat_template tool_response = ROW(TOOL_RESPONSE, NULL),
				  think = ROW(THINK, NULL);

static const struct chat_template with_system[] = {
	ROW(PLAIN, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
	ROW(TOOL_RESPONSE, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
	ROW(PLAIN, "You are a helpful assistant."),
};

/* Whether the Jinja text writes a system message of its own: then a literal continues after the
 * head of the turn. Line feeds may be escaped or literal. */
static bool has_system(const char *jinja)
{
	static const char head[] = "<|im_start|>system";
	for (const char *p = jinja; (p = strstr(p, head));) {
		p += strlen(head);
		size_t feed = p[0] == '\n' ? 1 : p[0] == '\\' && p[1] == 'n' ? 2 : 0;
		if (feed && p[feed] && !strchr("'\"{<", p[feed]))
			return true;
	}
	return false;
}

static const struct chat_template *chatml_detect(const char *jinja, const struct tokenizer *tok)
{
	if (tokenizer_id(tok, "<|im_start|>") < 0 || tokenizer_id(tok, "<|im_end|>") < 0)
		return NULL;
	if (!jinja)
		return &chat_template_chatml;
	if (!strstr(jinja, "<|im_start|>"))
		return NULL;
	for (size_t i = 0; has_system(jinja) && i < sizeof with_system / sizeof *with_system; i++)
		if (strstr(jinja, with_system[i].system))
			return &with_system[i];
	/* A system message that is not known here would be missing from every conversation. */
	if (has_system(jinja))
		return NULL;
	return strstr(jinja, "last_query_index")  ? &think
	       : strstr(jinja, "<tool_response>") ? &tool_response
						  : &chat_template_chatml;
}
