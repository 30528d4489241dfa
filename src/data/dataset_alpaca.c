/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_alpaca.c - the kind `alpaca`: {"instruction": ..., "input": ..., "output": ...}, with
 * `system` and `history` ([[question, answer], ...]) where the record has them.
 *
 * With the chat template `alpaca` an input gets the prompt of Stanford Alpaca
 * (tatsu-lab/stanford_alpaca: train.py, PROMPT_DICT); with any other template the user's turn is
 * instruction, newline, input. The answers in `history` are trained like the last one. */
#include "base/err.h"
#include "data/turns.h"

#include <string.h>

static const char with_input[] = "Below is an instruction that describes a task, paired with an "
				 "input that provides further context. "
				 "Write a response that appropriately completes the request.";

static bool match(const json_t *rec)
{
	return json_object_get(rec, "instruction") && !json_object_get(rec, "chosen");
}

static int add_history(struct encoding *x, const json_t *rec, struct err *e)
{
	const json_t *list = json_object_get(rec, "history");
	if (!record_has(rec, "history"))
		return 0;
	if (!json_is_array(list))
		return err_set(e, ERR_INPUT,
			       "history: must be a list of [question, answer] pairs, not %s",
			       json_kind_name(list));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *pair = json_array_get(list, i), *q = json_array_get(pair, 0),
			     *a = json_array_get(pair, 1);
		if (json_array_size(pair) != 2 || !json_is_string(q) || !json_is_string(a))
			return err_set(
				e, ERR_INPUT,
				"history[%zu]: must be a pair of strings, [question, answer]", i);
		if (text_is_blank(json_string_value(a), json_string_length(a)))
			return err_set(e, ERR_INPUT, "history[%zu]: the answer is empty", i);
		TRY(turns_add(x, CHAT_USER, json_string_value(q), json_string_length(q), e));
		TRY(turns_add(x, CHAT_ASSISTANT, json_string_value(a), json_string_length(a), e));
	}
	return 0;
}

static int encode(struct encoding *x, const json_t *rec, struct err *e)
{
	const char *instruction = "", *input = "", *output = "";
	size_t ninstruction = 0, ninput = 0, noutput = 0;
	TRY(record_text(rec, "instruction", true, &instruction, &ninstruction, e));
	TRY(record_text(rec, "input", false, &input, &ninput, e));
	TRY(record_text(rec, "output", true, &output, &noutput, e));
	bool stanford = x->o->chat && !strcmp(chat_name(x->o->chat), "alpaca");
	bool has_input = !text_is_blank(input, ninput);
	if (!has_input && text_is_blank(instruction, ninstruction))
		return err_set(e, ERR_INPUT, "instruction: is empty, and so is the input");
	if (text_is_blank(output, noutput))
		return err_set(e, ERR_INPUT, "output: the answer is empty");

	TRY(turns_begin(x, rec, e));
	if (stanford && has_input && !x->nmsg)
		TRY(turns_add(x, CHAT_SYSTEM, with_input, sizeof with_input - 1, e));
	TRY(add_history(x, rec, e));
	if (has_input) {
		const char *between = stanford ? "\n\n### Input:\n" : ninstruction ? "\n" : "";
		size_t nbetween = strlen(between);
		char *joined = arena_alloc(&x->scratch, ninstruction + nbetween + ninput + 1);
		if (!joined)
			return err_nomem(e, ninstruction + nbetween + ninput + 1, "a message");
		memcpy(joined, instruction, ninstruction);
		memcpy(joined + ninstruction, between, nbetween);
		memcpy(joined + ninstruction + nbetween, input, ninput);
		TRY(turns_add(x, CHAT_USER, joined, ninstruction + nbetween + ninput, e));
	} else {
		TRY(turns_add(x, CHAT_USER, instruction, ninstruction, e));
	}
	TRY(turns_add(x, CHAT_ASSISTANT, output, noutput, e));
	return turns_encode(x, "output", e);
}

const struct dataset_kind dataset_kind_alpaca = {
	.name = "alpaca", .keys = "instruction, output", .match = match, .encode = encode
};
