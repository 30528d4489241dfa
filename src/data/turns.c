/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - see turns.h. */
#include "data/turns.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/axolotl_chat.h"

#include <string.h>

static const struct {
	const char *name;
	enum chat_role role;
} roles[] = {
	{ "system", CHAT_SYSTEM },       { "developer", CHAT_SYSTEM },
	{ "user", CHAT_USER },           { "human", CHAT_USER },
	{ "assistant", CHAT_ASSISTANT }, { "gpt", CHAT_ASSISTANT },
	{ "model", CHAT_ASSISTANT },     { "function_call", CHAT_ASSISTANT },
	{ "tool", CHAT_TOOL },           { "observation", CHAT_TOOL },
	{ "function", CHAT_TOOL },       { "ipython", CHAT_TOOL },
};

static int add(struct encoding *x, struct chat_message m, struct err *e)
{
	if (!mem_grow(&x->msg, &x->msg_cap, x->nmsg + 1, sizeof *x->msg))
		return err_nomem(e, (x->nmsg + 1) * sizeof *x->msg, "a conversation");
	x->msg[x->nmsg++] = m;
	return 0;
}

int turns_add(struct encoding *x, enum chat_role role, const char *text, size_t n, struct err *e)
{
	const bool train = (x->roles >> role & 1) || x->o->train_on_inputs;
	return add(x, (struct chat_message){ .role = role, .text = text, .n = n, .train = train },
		   e);
}

static int find_role(const char *key, const char *name, size_t n, enum chat_role *role_p,
		     struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (n == strlen(roles[i].name) && !memcmp(name, roles[i].name, n)) {
			*role_p = roles[i].role;
			return 0;
		}
	return err_set(e, ERR_INPUT,
		       "%s: unknown role '%.*s'; known: system, user, assistant, tool and their "
		       "aliases (docs/datasets.md)",
		       key, n < 64 ? (int)n : 64, name);
}

int turns_roles(const char *names, unsigned *roles_p, struct err *e)
{
	unsigned found = names ? 0 : 1u << CHAT_ASSISTANT;
	for (const char *p = names ? names : ""; *p;) {
		const size_t n = strcspn(p, ",");
		enum chat_role role;
		TRY(find_role("roles_to_train", p, n, &role, e));
		found |= 1u << role;
		p += n + (p[n] == ',');
	}
	*roles_p = found;
	return 0;
}

/* A list of {"type": "text", "text": ...} as one text. */
static int join_parts(struct encoding *x, const json_t *list, const char *key, const char **text_p,
		      size_t *n_p, struct err *e)
{
	size_t total = 0, at = 0;
	char *joined = NULL;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < json_array_size(list); i++) {
			const json_t *part = json_array_get(list, i);
			const char *type = json_string_value(json_object_get(part, "type"));
			const json_t *text = json_object_get(part, "text");
			if (!type || strcmp(type, "text") || !json_is_string(text))
				return err_set(e, ERR_INPUT,
					       "%s[%zu]: only parts {\"type\": \"text\", \"text\": "
					       "...} are read%s%.32s%s",
					       key, i, type ? ", this one is of type '" : "",
					       type ? type : "", type ? "'" : "");
			size_t n = json_string_length(text);
			if (!pass) {
				total += n;
			} else {
				memcpy(joined + at, json_string_value(text), n);
				at += n;
			}
		}
		if (!pass && !(joined = arena_alloc(&x->scratch, total + 1)))
			return err_nomem(e, total + 1, "a message");
	}
	*text_p = joined;
	*n_p = total;
	return 0;
}

/* A turn's own mark: 1 trained, 0 not, -1 none. */
static int own_mark(const json_t *turn, int *mark_p, struct err *e)
{
	const json_t *train = json_object_get(turn, "train"),
		     *weight = json_object_get(turn, "weight");
	if (record_has(turn, "train_detail"))
		return err_set(e, ERR_UNSUPPORTED,
			       "train_detail: is not supported; use 'train' for whole turns");
	if (train && !json_is_null(train)) {
		if (!json_is_boolean(train))
			return err_set(e, ERR_INPUT, "train: must be true or false, not %s",
				       json_kind_name(train));
		*mark_p = json_is_true(train);
	} else if (weight && !json_is_null(weight)) {
		double w = json_number_value(weight);
		if (!json_is_number(weight) || !(w == 0.0 || w == 1.0))
			return err_set(e, ERR_INPUT, "weight: must be 0 or 1");
		*mark_p = w == 1.0;
	} else {
		*mark_p = -1;
	}
	return 0;
}

static int add_turn(struct encoding *x, const json_t *turn, struct err *e)
{
	if (!json_is_object(turn))
		return err_set(e, ERR_INPUT, "must be an object with a role and a text, not %s",
			       json_kind_name(turn));
	const char *role_key =
		json_object_get(turn, "role") || !json_object_get(turn, "from") ? "role" : "from";
	const char *text_key = json_object_get(turn, "content") || !json_object_get(turn, "value")
				       ? "content"
				       : "value";
	struct chat_message m = { .text = "" };
	const char *name = NULL;
	size_t n = 0;
	int mark = -1;
	TRY(record_text(turn, role_key, true, &name, &n, e));
	TRY(find_role(role_key, name, n, &m.role, e));
	const json_t *calls = json_object_get(turn, "tool_calls");
	bool tools = x->o->chat && chat_has_tools(x->o->chat), calling = json_array_size(calls) > 0;
	if (calling && !tools)
		return err_set(e, ERR_UNSUPPORTED,
			       "tool_calls: the chat template '%s' does not show them; use the "
			       "model's own template (chat_template: tokenizer_default), or write "
			       "the call into '%s'",
			       x->o->chat ? chat_name(x->o->chat) : "none", text_key);
	m.turn = tools ? turn : NULL;
	const json_t *content = json_object_get(turn, text_key);
	if (json_is_array(content))
		TRY(join_parts(x, content, text_key, &m.text, &m.n, e));
	else
		TRY(record_text(turn, text_key, !calling, &m.text, &m.n, e));
	TRY(own_mark(turn, &mark, e));
	if (mark >= 0)
		x->marked = true;
	m.train = mark < 0 ? (x->roles >> m.role & 1) || x->o->train_on_inputs : mark;
	if (m.role == CHAT_ASSISTANT && m.train && !calling && text_is_blank(m.text, m.n))
		return err_set(e, ERR_INPUT, "%s: the answer is empty", text_key);
	return add(x, m, e);
}

int turns_add_list(struct encoding *x, const json_t *rec, const char *key, struct err *e)
{
	const json_t *list = json_object_get(rec, key);
	if (!json_is_array(list))
		return err_set(e, ERR_INPUT, "%s: must be a list of turns, not %s", key,
			       json_kind_name(list));
	size_t before = x->nmsg; /* the record's own system turn, or nothing */
	for (size_t i = 0; i < json_array_size(list); i++) {
		int rc = add_turn(x, json_array_get(list, i), e);
		if (rc < 0)
			return err_prefix(e, "%s[%zu]", key, i);
	}
	if (before && x->nmsg > before && x->msg[before].role == CHAT_SYSTEM)
		return err_set(e, ERR_INPUT,
			       "system: the record has a system turn in '%s' too; keep one of them",
			       key);
	return 0;
}

/* The parameters of a tool are an object; a text is read as one. */
static int read_parameters(const json_t *tools, struct err *e)
{
	for (size_t i = 0; i < json_array_size(tools); i++) {
		json_t *t = json_array_get(tools, i), *f = json_object_get(t, "function"), *v;
		f = json_is_object(f) ? f : t;
		const json_t *p = json_object_get(f, "parameters");
		if (!json_is_string(p))
			continue;
		if (json_parse_text(json_string_value(p), json_string_length(p), "parameters", &v,
				    e) < 0)
			return err_prefix(e, "tools[%zu]", i);
		if (json_object_set_new(f, "parameters", v) < 0)
			return err_nomem(e, json_string_length(p), "a tool");
	}
	return 0;
}

static int tools_from_text(struct encoding *x, const json_t *text, struct err *e)
{
	json_decref(x->own_tools);
	x->own_tools = NULL;
	TRY(json_parse_text(json_string_value(text), json_string_length(text), "tools",
			    &x->own_tools, e));
	if (!json_is_array(x->own_tools))
		return err_set(e, ERR_INPUT, "tools: the text must be a list in JSON, not %s",
			       json_kind_name(x->own_tools));
	x->tools = x->own_tools;
	return read_parameters(x->tools, e);
}

/* TRL's column of variables for the template. */
static int read_args(struct encoding *x, const json_t *rec, struct err *e)
{
	const json_t *v = json_object_get(rec, "chat_template_kwargs");
	x->args = v && !json_is_null(v) ? v : NULL;
	if (x->args && !json_is_object(v))
		return err_set(e, ERR_INPUT, "chat_template_kwargs: must be an object, not %s",
			       json_kind_name(v));
	return 0;
}

int turns_begin(struct encoding *x, const json_t *rec, struct err *e)
{
	const char *text = "";
	size_t n = 0;
	TRY(read_args(x, rec, e));
	TRY(record_text(rec, "system", false, &text, &n, e));
	if (!text_is_blank(text, n))
		TRY(turns_add(x, CHAT_SYSTEM, text, n, e));
	const json_t *tools = json_object_get(rec, "tools");
	bool none =
		!tools || json_is_null(tools) || (json_is_array(tools) && !json_array_size(tools));
	if (json_is_string(tools)) {
		const char *s = json_string_value(tools);
		size_t len = json_string_length(tools);
		none = text_is_blank(s, len) || (len == 2 && !memcmp(s, "[]", 2));
	}
	if (none)
		return 0;
	if (!x->o->chat || !chat_has_tools(x->o->chat))
		return err_set(e, ERR_UNSUPPORTED,
			       "tools: the chat template '%s' does not show them; use the model's "
			       "own template (chat_template: tokenizer_default), or describe them "
			       "in the system message",
			       x->o->chat ? chat_name(x->o->chat) : "none");
	if (json_is_string(tools)) /* as columns of Parquet files hold them */
		return tools_from_text(x, tools, e);
	if (!json_is_array(tools))
		return err_set(e, ERR_INPUT, "tools: must be a list, not %s",
			       json_kind_name(tools));
	x->tools = tools;
	return read_parameters(tools, e);
}

int turns_encode(struct encoding *x, const char *answer, struct err *e)
{
	const struct dataset_options *o = x->o;
	bool answered = false;
	for (size_t i = 0; i < x->nmsg; i++)
		answered = answered || x->msg[i].role == CHAT_ASSISTANT;
	if (!answered)
		return err_set(e, ERR_INPUT,
			       "%s: the record has no answer (no turn of the assistant)", answer);
	if (!o->chat)
		return err_set(e, ERR_USAGE,
			       "conversations need a chat template, and none was recognised from "
			       "the model; set chat_template to "
			       "one of: %s, %s",
			       chat_names(), axolotl_chat_names());
	x->msg[0].tools = x->tools;
	x->msg[0].args = x->args;
	TRY(chat_encode(o->chat, o->tok, x->msg, x->nmsg, false, &x->ids, &x->train, e));
	if (x->ids.n != x->train.n)
		return err_set(e, ERR_INTERNAL, "chat template %s: %zu ids but %zu marks",
			       chat_name(o->chat), x->ids.n, x->train.n);
	if (o->train_on_inputs && !x->marked)
		for (size_t i = 0; i < x->train.n; i++)
			x->train.id[i] = 1;
	return 0;
}
