/* SPDX-License-Identifier: Apache-2.0 */
/* preference.c - see preference.h. */
#include "data/preference.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/turns.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { KEYS = 6 };

/* Where a record has its prompt: the first of these keys that it has (text, or a list of turns), or
 * with `head` the turns before the last one of the chosen answer, where that is a list. */
struct preference_kind {
	const char *name;
	const char *prompt[KEYS];
	bool head;
};

static const struct preference_kind kinds[] = {
	{ "default", { "messages" }, false },
	{ "argilla", { "prompt", "input", "question", "instruction" }, true },
	{ "argilla_chat", { NULL }, true },
	{ "chat_template", { "prompt" }, true },
	{ "icr", { "input" }, false },
	{ "intel", { "question" }, false },
	{ "prompt_pairs", { "prompt" }, false },
	{ "ultra", { "prompt" }, false },
};
static const struct preference_kind any = {
	"auto", { "messages", "prompt", "question", "input", "instruction" }, true
};
static const struct preference_kind text = { "text", { "prompt" }, false };

static int unknown(const struct dataset_source *src, struct err *e)
{
	char known[160] = "";
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t n = strlen(known);
		snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i].name);
	}
	return err_set(e, ERR_USAGE,
		       "%s: '%.64s' is no type of preference data (rl): auto, "
		       "passthrough.default, user_defined.default, or TEMPLATE.KIND, of a template "
		       "(chat_template, %s) and a kind (%s)",
		       src->path, src->type, chat_names(), known);
}

int preference_type(const struct dataset_source *src, struct preference_type *t, struct err *e)
{
	char head[32];
	const char *type = src->type, *dot;
	*t = (struct preference_type){ .kind = &any };
	if (!type || !strcmp(type, "auto"))
		return 0;
	if (!(dot = strchr(type, '.')) || (size_t)(dot - type) >= sizeof head)
		return unknown(src, e);
	snprintf(head, sizeof head, "%.*s", (int)(dot - type), type);
	if (!strcmp(head, "passthrough") || !strcmp(head, "user_defined")) {
		t->kind = &text;
		t->raw = true;
		return strcmp(dot, ".default") ? unknown(src, e) : 0;
	}
	t->kind = NULL;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (!strcmp(dot + 1, kinds[i].name))
			t->kind = &kinds[i];
	if (strcmp(head, "chat_template") && strcmp(head, "orpo"))
		t->chat = chat_find(head);
	else
		return t->kind ? 0 : unknown(src, e);
	return t->kind && t->chat ? 0 : unknown(src, e);
}

/* ---- a record ---- */

static const json_t *last_of(const json_t *list)
{
	size_t n = json_array_size(list);
	return n ? json_array_get(list, n - 1) : NULL;
}

static const char *role_of(const json_t *turn)
{
	const json_t *role = json_object_get(turn, "role");
	return json_string_value(role ? role : json_object_get(turn, "from"));
}

static bool has_role(const json_t *turn, unsigned roles)
{
	struct err none = { 0 };
	unsigned found = 0;
	const char *name = role_of(turn);
	return name && turns_roles(name, &found, &none) >= 0 && found & roles;
}

static int is_answer(const json_t *turn, const char *key, struct err *e)
{
	return has_role(turn, ~(1u << CHAT_ASSISTANT))
		       ? err_set(e, ERR_INPUT,
				 "%s: the answer is a turn of '%.32s'; one of the assistant was "
				 "expected",
				 key, role_of(turn))
		       : 0;
}

/* The text of an answer: a text, a turn, or a list of turns whose last one is it. */
static int answer_text(const json_t *rec, const char *key, const char **text_p, size_t *n_p,
		       const json_t **turn_p, struct err *e)
{
	const json_t *v = json_object_get(rec, key), *turn = json_is_array(v) ? last_of(v) : v;
	bool calls = false;
	if (json_is_object(turn)) {
		const char *word = json_object_get(turn, "value") ? "value" : "content";
		TRY(is_answer(turn, key, e));
		calls = json_array_size(json_object_get(turn, "tool_calls")) > 0;
		if (record_text(turn, word, !calls, text_p, n_p, e) < 0)
			return err_prefix(e, "%s", key);
		*turn_p = turn;
	} else if (json_is_array(v)) {
		return err_set(e, ERR_INPUT, "%s: must be a text or a list of turns", key);
	} else {
		TRY(record_text(rec, key, true, text_p, n_p, e));
	}
	return !calls && text_is_blank(*text_p, *n_p)
		       ? err_set(e, ERR_INPUT, "%s: the answer is empty", key)
		       : 0;
}

/* Whether an answer is several turns that follow a prompt, as TRL has them: calls of tools, what
 * these give, and a text. */
static bool follows(const struct preference_kind *k, const json_t *rec, const char *answer)
{
	const json_t *v = json_object_get(rec, answer);
	bool prompt = false;
	for (size_t i = 0; i < KEYS && k->prompt[i]; i++)
		prompt = prompt || record_has(rec, k->prompt[i]);
	return prompt && json_array_size(v) > 1 &&
	       has_role(json_array_get(v, 0), 1u << CHAT_ASSISTANT | 1u << CHAT_TOOL);
}

static const char *prompt_key(const struct preference_kind *k, const struct dataset_source *src,
			      const json_t *rec, const char *answer)
{
	if (src->field[FIELD_PROMPT])
		return "prompt";
	if (src->field[FIELD_MESSAGES])
		return "messages";
	if (k->head && json_array_size(json_object_get(rec, answer)) > 1 &&
	    !follows(k, rec, answer))
		return answer;
	for (size_t i = 0; i < KEYS && k->prompt[i]; i++)
		if (record_has(rec, k->prompt[i]))
			return k->prompt[i];
	return k->prompt[0] ? k->prompt[0] : answer;
}

static int add_prompt(struct encoding *x, const json_t *rec, const char *key, bool head,
		      struct err *e)
{
	const json_t *v = json_object_get(rec, key);
	if (json_is_array(v)) {
		TRY(turns_add_list(x, rec, key, e));
		if (head && x->nmsg)
			x->nmsg--; /* the answer */
	} else {
		const char *s = "";
		size_t n = 0;
		TRY(record_text(rec, key, true, &s, &n, e));
		TRY(turns_add(x, CHAT_USER, s, n, e));
	}
	return x->nmsg ? 0 : err_set(e, ERR_INPUT, "%s: holds no prompt", key);
}

static int encode_turns(struct encoding *x, const struct dataset_source *src,
			const struct preference_type *t, const json_t *rec, const char *key,
			const char *prompt_from, struct err *e)
{
	struct dataset_options own = *x->o;
	const struct dataset_options *was = x->o;
	const char *s = "", *from = prompt_key(t->kind, src, rec, prompt_from);
	const json_t *turn = NULL;
	size_t n = 0, prompt = 0;
	const bool several = follows(t->kind, rec, key) && strcmp(from, prompt_from) != 0;
	if (!several)
		TRY(answer_text(rec, key, &s, &n, &turn, e));
	own.chat = t->chat ? t->chat : own.chat;
	const bool tools = own.chat && chat_has_tools(own.chat);
	if (!tools && json_array_size(json_object_get(turn, "tool_calls")))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tool_calls: the chat template '%s' does not show them", key,
			       own.chat ? chat_name(own.chat) : "none");
	x->o = &own;
	int rc = turns_begin(x, rec, e);
	if (rc >= 0)
		rc = add_prompt(x, rec, from, !strcmp(from, prompt_from), e);
	prompt = x->nmsg;
	if (rc >= 0)
		rc = several ? turns_add_list(x, rec, key, e)
			     : turns_add(x, CHAT_ASSISTANT, s, n, e);
	for (size_t i = 0; rc >= 0 && i < x->nmsg; i++)
		x->msg[i].train = i >= prompt && x->msg[i].role == CHAT_ASSISTANT;
	if (rc >= 0 && tools && turn)
		x->msg[x->nmsg - 1].turn = turn;
	if (rc >= 0)
		rc = turns_encode(x, key, e);
	x->o = was;
	return rc;
}

static int encode_text(struct encoding *x, const json_t *rec, const char *key, struct err *e)
{
	const json_t *v = json_object_get(rec, key), *prompt = json_object_get(rec, "prompt");
	if (!json_is_string(v) || !json_is_string(prompt))
		return err_set(e, ERR_INPUT, "%s: is %s; a string was expected",
			       json_is_string(prompt) ? key : "prompt",
			       json_kind_name(json_is_string(prompt) ? v : prompt));
	json_t *one = json_pack("{s:O, s:O}", "prompt", prompt, "completion", v);
	if (!one)
		return err_nomem(e, json_string_length(v), "a record");
	int rc = dataset_kind_completion.encode(x, one, e);
	json_decref(one);
	return rc;
}

/* The answer begins with the first trained id; behind the last one nothing is needed. */
static int find_answer(struct encoding *x, const char *key, uint32_t *answer_p, struct err *e)
{
	size_t first = 1, n = x->ids.n;
	while (n > 1 && !x->train.id[n - 1])
		n--;
	while (first < n && !x->train.id[first])
		first++;
	if (n < 2 || first >= n || n > INT32_MAX)
		return err_set(e, ERR_INPUT, "%s: has no token that can be trained", key);
	x->ids.n = x->train.n = n;
	for (size_t i = 0; i < n; i++)
		x->train.id[i] = i >= first;
	*answer_p = (uint32_t)first;
	return 0;
}

static int encode_one(struct encoding *x, const struct dataset_source *src,
		      const struct preference_type *t, const json_t *rec, const char *key,
		      const char *prompt_from, uint32_t *answer_p, struct err *e)
{
	x->ids.n = x->train.n = x->nmsg = 0;
	x->marked = false;
	TRY(t->raw ? encode_text(x, rec, key, e)
		   : encode_turns(x, src, t, rec, key, prompt_from, e));
	return find_answer(x, key, answer_p, e);
}

static int read_label(const json_t *rec, bool *good_p, struct err *e)
{
	const json_t *v = json_object_get(rec, "label");
	if (json_is_boolean(v))
		*good_p = json_is_true(v);
	else if (json_is_number(v) && (json_number_value(v) == 0 || json_number_value(v) == 1))
		*good_p = json_number_value(v) == 1;
	else if (json_is_string(v) && !strcasecmp(json_string_value(v), "true"))
		*good_p = true;
	else if (json_is_string(v) && !strcasecmp(json_string_value(v), "false"))
		*good_p = false;
	else
		return err_set(e, ERR_INPUT, "label: is %s; true or false was expected",
			       json_kind_name(v));
	return 0;
}

static const char *either(const json_t *rec, const char *key, const char *other)
{
	return !record_has(rec, key) && record_has(rec, other) ? other : key;
}

/* Whether two turns say the same; what else they hold (a score) does not count. */
static bool same_turn(const json_t *a, const json_t *b)
{
	static const char *const keys[] = { "role", "from", "content", "value", "tool_calls" };
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const bool has = record_has(a, keys[i]);
		if (has != record_has(b, keys[i]) ||
		    (has && !json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))))
			return false;
	}
	return true;
}

/* Of a pair without a prompt of its own the turns with which both lists begin are the prompt, as in
 * TRL. *own_p: NULL, or where they part before their last turns the record with that prompt. */
static int part_lists(const struct dataset_source *src, const struct preference_type *t,
		      const json_t *rec, const char *chosen, const char *rejected, json_t **own_p,
		      struct err *e)
{
	const json_t *c = json_object_get(rec, chosen), *r = json_object_get(rec, rejected);
	const size_t nc = json_array_size(c), nr = json_array_size(r), most = nc < nr ? nc : nr;
	size_t n = 0;
	*own_p = NULL;
	if (t->kind != &any || most < 2 || strcmp(prompt_key(t->kind, src, rec, chosen), chosen))
		return 0;
	while (n + 1 < most && same_turn(json_array_get(c, n), json_array_get(r, n)))
		n++;
	if (nc == nr && n + 1 == nc)
		return 0;
	const unsigned roles = 1u << CHAT_ASSISTANT | 1u << CHAT_TOOL;
	if (!n || !has_role(json_array_get(c, n), roles) || !has_role(json_array_get(r, n), roles))
		return err_set(e, ERR_INPUT,
			       "%s[%zu]: is not as in '%s'; a pair has one prompt, and only turns "
			       "behind it may differ",
			       rejected, n, chosen);
	json_t *own = json_copy((json_t *)rec), *prompt = json_array(), *x = json_array(),
	       *y = json_array();
	int rc = own && prompt && x && y ? 0 : -1;
	for (size_t i = 0; !rc && i < nc; i++)
		rc = json_array_append(i < n ? prompt : x, json_array_get(c, i));
	for (size_t i = n; !rc && i < nr; i++)
		rc = json_array_append(y, json_array_get(r, i));
	rc = rc || json_object_set(own, any.prompt[0], prompt) || json_object_set(own, chosen, x) ||
	     json_object_set(own, rejected, y);
	json_decref(prompt);
	json_decref(x);
	json_decref(y);
	if (rc) {
		json_decref(own);
		return err_nomem(e, nc + nr, "a pair");
	}
	*own_p = own;
	return 0;
}

int preference_encode(struct encoding *x, const struct dataset_source *src,
		      const struct preference_type *t, const json_t *rec, struct err *e)
{
	struct tokens first = { 0 };
	json_t *own = NULL;
	int rc;
	if (x->o->prefer == PREFER_SINGLE) {
		TRY(read_label(rec, &x->good, e));
		TRY(encode_one(x, src, t, rec, "completion", "completion", &x->answer[0], e));
		x->cut = (uint32_t)x->ids.n;
		return 0;
	}
	const char *chosen = either(rec, "chosen", "chosen_response"),
		   *rejected = either(rec, "rejected", "rejected_response");
	TRY(part_lists(src, t, rec, chosen, rejected, &own, e));
	rec = own ? own : rec;
	TRYOUT(encode_one(x, src, t, rec, chosen, chosen, &x->answer[0], e));
	for (size_t i = 0; i < x->ids.n; i++)
		TRYOUT(tokens_add(&first, x->ids.id[i], e));
	TRYOUT(encode_one(x, src, t, rec, rejected, chosen, &x->answer[1], e));
	x->cut = (uint32_t)first.n;
	/* where a token spans the border to one answer, both begin with it: the same text */
	if (x->answer[0] > x->answer[1])
		x->answer[0] = x->answer[1];
	x->answer[1] = x->answer[0];
	/* the first goes before the second; every mark follows from answer[] */
	for (size_t i = 0; i < x->ids.n; i++)
		TRYOUT(tokens_add(&first, x->ids.id[i], e));
	const struct tokens swap = x->ids;
	x->ids = first;
	first = swap;
	x->train.n = 0;
	for (size_t i = 0; i < x->ids.n; i++)
		TRYOUT(tokens_add(&x->train,
				  i < x->cut ? i >= x->answer[0] : i - x->cut >= x->answer[1], e));
out:
	tokens_release(&first);
	json_decref(own);
	return rc;
}
