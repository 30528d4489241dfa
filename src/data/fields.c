/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - see fields.h. */
#include "data/fields.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

const char *const dataset_field_key[FIELD_COUNT] = {
	[FIELD_INSTRUCTION] = "instruction",
	[FIELD_INPUT] = "input",
	[FIELD_OUTPUT] = "output",
	[FIELD_SYSTEM] = "system",
	[FIELD_MESSAGES] = "messages",
	[FIELD_TOOLS] = "tools",
	[FIELD_TEXT] = "text",
	[FIELD_PROMPT] = "prompt",
	[FIELD_CHOSEN] = "chosen",
	[FIELD_REJECTED] = "rejected",
	[FIELD_COMPLETION] = "completion",
	[FIELD_LABEL] = "label",
	[FIELD_ROLE] = "role",
	[FIELD_CONTENT] = "content",
	[FIELD_TRAIN] = "train",
};

int fields_parse(const char *text, size_t n, json_t **doc_p, uint64_t *line_p, struct err *e)
{
	json_error_t je;
	TRY(json_check_memory(text, n, "a record", JSON_MEMORY, e));
	*doc_p = json_load_python(text, n, JSON_DECODE_ANY, &je);
	if (*doc_p)
		return 0;
	*line_p = je.line > 0 ? (uint64_t)je.line : 1;
	return err_set(e, ERR_INPUT, "not valid JSON: %s (column %d)", je.text, je.column);
}

/* `need`: a record without the key is an error, because the file was said to have it. */
static int rename_key(json_t *o, const char *from, const char *to, bool need, struct err *e)
{
	if (!from || !strcmp(from, to))
		return 0;
	json_t *v = json_object_get(o, from);
	if (!v && need)
		return err_set(e, ERR_INPUT,
			       "%s: is missing; the dataset's configuration calls '%s' so", from,
			       to);
	if (!v)
		return 0;
	if (json_object_set(o, to, v) < 0)
		return err_nomem(e, strlen(to), "a record");
	json_object_del(o, from);
	return 0;
}

static int rename_turns(const struct dataset_source *src, json_t *list, struct err *e)
{
	json_t *turn;
	size_t i;
	json_array_foreach(list, i, turn)
	{
		if (!json_is_object(turn))
			continue;
		TRY(rename_key(turn, src->field[FIELD_ROLE], "role", true, e));
		TRY(rename_key(turn, src->field[FIELD_CONTENT], "content", false, e));
		TRY(rename_key(turn, src->field[FIELD_TRAIN], "train", false, e));
	}
	return 0;
}

/* A format with its {names} filled in. */
static int fill(struct buf *out, const char *format, const char *const name[3],
		const json_t *const v[3], struct err *e)
{
	while (*format) {
		size_t n = strcspn(format, "{");
		bool found = false;
		buf_add(out, format, n);
		format += n;
		for (int i = 0; i < 3 && *format; i++) {
			size_t len = strlen(name[i]);
			if (strncmp(format + 1, name[i], len) || format[1 + len] != '}')
				continue;
			if (v[i])
				buf_add(out, json_string_value(v[i]), json_string_length(v[i]));
			format += len + 2;
			found = true;
			break;
		}
		if (!found && *format)
			buf_addc(out, *format++);
	}
	return buf_ok(out, e);
}

static int text_of(const json_t *rec, const char *key, const json_t **v_p, struct err *e)
{
	const json_t *v = json_object_get(rec, key);
	if (v && !json_is_string(v) && !json_is_null(v))
		return err_set(e, ERR_INPUT, "%s: must be a string", key);
	*v_p = json_is_string(v) ? v : NULL;
	return 0;
}

static int format_record(const struct dataset_source *src, json_t *rec, struct err *e)
{
	static const char *const names[3] = { "instruction", "input", "system" };
	const char *no_input = src->no_input_format ? src->no_input_format : "{instruction} ";
	const json_t *v[3] = { NULL }, *output = NULL;
	json_t *own = NULL;
	struct buf prompt = BUF_INIT;
	int rc;
	for (int i = 0; i < 3; i++)
		TRY(text_of(rec, names[i], &v[i], e));
	TRY(text_of(rec, "output", &output, e));
	if (!v[0] || !output)
		return err_set(e, ERR_INPUT, "%s: is missing", v[0] ? "output" : "instruction");
	if (!v[2] && src->system_prompt)
		v[2] = own = json_string(src->system_prompt);
	bool has_input = v[1] && json_string_length(v[1]);
	if (v[2] && json_string_length(v[2]))
		TRYOUT(fill(&prompt, src->system_format ? src->system_format : "{system}", names, v,
			    e));
	TRYOUT(fill(&prompt, has_input ? src->format : no_input, names, v, e));
	rc = json_object_set_new(rec, "prompt", json_stringn(prompt.p, prompt.n));
	if (rc == 0)
		rc = json_object_set(rec, "completion", (json_t *)output);
	if (rc < 0)
		rc = err_nomem(e, prompt.n, "a record");
out:
	json_decref(own);
	buf_release(&prompt);
	return rc;
}

/* Of a preference: the text `key` in its format, which may also have {prompt} and {system}. */
static int format_key(json_t *rec, const char *key, const char *format, struct err *e)
{
	const char *const names[3] = { key, "prompt", "system" };
	const json_t *v[3] = { NULL };
	struct buf out = BUF_INIT;
	if (!format)
		return 0;
	for (int i = 0; i < 3; i++)
		TRY(text_of(rec, names[i], &v[i], e));
	if (!v[0])
		return err_set(e, ERR_INPUT, "%s: is missing", key);
	int rc = fill(&out, format, names, v, e);
	if (rc >= 0 && json_object_set_new(rec, key, json_stringn(out.p, out.n)) < 0)
		rc = err_nomem(e, out.n, "a record");
	buf_release(&out);
	return rc;
}

void fields_drop_nulls(json_t *v)
{
	const char *key;
	json_t *kid;
	void *next;
	size_t i;
	json_object_foreach_safe(v, next, key, kid)
	{
		if (json_is_null(kid))
			json_object_del(v, key);
		else
			fields_drop_nulls(kid);
	}
	json_array_foreach(v, i, kid) fields_drop_nulls(kid);
}

int fields_rename(const struct dataset_source *src, json_t *rec, struct err *e)
{
	for (int i = 0; i < FIELD_ROLE; i++) {
		bool need = i == FIELD_INSTRUCTION || i == FIELD_OUTPUT || i == FIELD_MESSAGES ||
			    i >= FIELD_TEXT;
		TRY(rename_key(rec, src->field[i], dataset_field_key[i], need, e));
	}
	if (src->field[FIELD_ROLE] || src->field[FIELD_CONTENT] || src->field[FIELD_TRAIN]) {
		TRY(rename_turns(src, json_object_get(rec, "messages"), e));
		TRY(rename_turns(src, json_object_get(rec, "conversations"), e));
		for (int i = FIELD_PROMPT; i <= FIELD_COMPLETION; i++)
			TRY(rename_turns(src, json_object_get(rec, dataset_field_key[i]), e));
	}
	TRY(format_key(rec, "chosen", src->chosen_format, e));
	TRY(format_key(rec, "rejected", src->rejected_format, e));
	TRY(format_key(rec, "completion", src->completion_format, e));
	TRY(format_key(rec, "prompt", src->prompt_format, e));
	return src->format ? format_record(src, rec, e) : 0;
}
