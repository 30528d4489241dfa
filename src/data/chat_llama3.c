/* SPDX-License-Identifier: Apache-2.0 */
/* chat_llama3.c - Llama 3 Instruct, and Llama 3.1 and 3.2 Instruct, whose system turn begins
 * with dates.
 *
 * Llama 3.2's own template writes the current date; here it is the template's fixed default, so
 * that the same data gives the same ids on every day. */
#include "base/err.h"
#include "base/json.h"
#include "data/chat_text.h"

#include <string.h>

enum { PLAIN, DATES };

static void put_turn_head(struct chat_text *o, const char *role)
{
	chat_put(o, "<|start_header_id|>");
	chat_put(o, role);
	chat_put(o, "<|end_header_id|>\n\n");
}

/* The answer of a tool is written as a JSON string. */
static int put_tool_answer(struct chat_text *o, const struct chat_message *m, struct err *e)
{
	struct buf json = BUF_INIT;
	json_quote(&json, m->text, m->n);
	int rc = buf_ok(&json, e);
	if (rc == 0) {
		put_turn_head(o, "ipython");
		chat_put_message(o, &(struct chat_message){
					    .text = json.p, .n = json.n, .train = m->train });
		chat_put_end(o, "<|eot_id|>", m->train);
	}
	buf_release(&json);
	return rc;
}

static int llama3_render(const struct chat_template *t, const struct tokenizer *tok,
			 const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			 struct err *e)
{
	size_t i = 0;
	chat_put(o, chat_bos(tok));
	if (t->variant == DATES) {
		put_turn_head(o, "system");
		chat_put(o, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
		bool train = false;
		if (n && msg[0].role == CHAT_SYSTEM) {
			chat_put_trimmed(o, &msg[0]);
			train = msg[0].train;
			i = 1;
		}
		chat_put_end(o, "<|eot_id|>", train);
	}
	for (; i < n; i++) {
		if (t->variant == DATES && msg[i].role == CHAT_TOOL) {
			TRY(put_tool_answer(o, &msg[i], e));
			continue;
		}
		put_turn_head(o, chat_role_name(msg[i].role));
		chat_put_trimmed(o, &msg[i]);
		chat_put_end(o, "<|eot_id|>", msg[i].train);
	}
	if (open)
		put_turn_head(o, "assistant");
	return 0;
}

static const struct chat_template *llama3_detect(const char *jinja, const struct tokenizer *tok);

#define ROW(variant_)                                                                              \
	{                                                                                          \
		.name = "llama3", .variant = variant_,                                             \
		.needs = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },             \
		.stop = { "<|eot_id|>", "<|end_of_text|>" }, .detect = llama3_detect,              \
		.render = llama3_render                                                            \
	}

const struct chat_template chat_template_llama3 = ROW(PLAIN);
static const struct chat_template dates = ROW(DATES);

static const struct chat_template *llama3_detect(const char *jinja, const struct tokenizer *tok)
{
	if (tokenizer_id(tok, "<|start_header_id|>") < 0 || tokenizer_id(tok, "<|eot_id|>") < 0)
		return NULL;
	if (jinja && !strstr(jinja, "<|start_header_id|>"))
		return NULL;
	return jinja && strstr(jinja, "Cutting Knowledge Date") ? &dates : &chat_template_llama3;
}
