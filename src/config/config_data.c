/* SPDX-License-Identifier: Apache-2.0 */
/* config_data.c - the key `datasets`: reading it, and writing it back as JSON. The names are those
 * of axolotl. */
#include "config/config_keys.h"
#include "config/config_parts.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "data/turns.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Keys whose value is one word or text. `in_type`: it stands in the mapping `type` as well. */
static const struct {
	const char *key;
	size_t offset;
	bool in_type;
} words[] = {
#define WORD(key, member, in_type)                                                                 \
	{                                                                                          \
		key, offsetof(struct dataset_source, member), in_type                              \
	}
	WORD("path", path, false),
	WORD("type", type, false),
	WORD("split", split, false),
	WORD("field_instruction", field[FIELD_INSTRUCTION], true),
	WORD("field_input", field[FIELD_INPUT], true),
	WORD("field_output", field[FIELD_OUTPUT], true),
	WORD("field_system", field[FIELD_SYSTEM], true),
	WORD("field_messages", field[FIELD_MESSAGES], true),
	WORD("field_tools", field[FIELD_TOOLS], true),
	WORD("field", field[FIELD_TEXT], true),
	WORD("field_prompt", field[FIELD_PROMPT], true),
	WORD("field_chosen", field[FIELD_CHOSEN], true),
	WORD("field_rejected", field[FIELD_REJECTED], true),
	WORD("field_completion", field[FIELD_COMPLETION], true),
	WORD("field_label", field[FIELD_LABEL], true),
	WORD("prompt_format", prompt_format, true),
	WORD("chosen_format", chosen_format, true),
	WORD("rejected_format", rejected_format, true),
	WORD("completion_format", completion_format, true),
	WORD("message_field_role", field[FIELD_ROLE], false),
	WORD("message_field_content", field[FIELD_CONTENT], false),
	WORD("message_field_training", field[FIELD_TRAIN], false),
	WORD("format", format, true),
	WORD("no_input_format", no_input_format, true),
	WORD("system_format", system_format, true),
	WORD("system_prompt", system_prompt, true),
#undef WORD
};

/* Keys of axolotl that say what is recognised here, or what is always so; and others with the only
 * value that is supported. */
static const struct {
	const char *key, *value; /* NULL: any */
} idle[] = { { "ds_type", NULL },
	     { "trust_remote_code", NULL },
	     { "shards", "1" }, /* of more, axolotl takes one */
	     { "preprocess_shards", NULL },
	     { "name", "default" },
	     { "train_on_eos", "turn" },
	     { "train_on_eot", "turn" },
	     { "message_field_training_detail", "train_detail" }, /* records with it are refused */
	     { "drop_system_message", "false" },
	     { "split_thinking", "false" },
	     { "field_thinking", "reasoning_content" },
	     { "template_thinking_key", "reasoning_content" },
	     { "chat_template", "tokenizer_default" } };

static int refuse(const struct yaml_node *v, const char *where, const char *why, struct err *e)
{
	return err_set(e, ERR_USAGE, "%s:%d: '%.60s' of a dataset %s", where, v->line, v->key, why);
}

static int copy_word(struct config *c, const struct yaml_node *v, const char *where,
		     const char **text_p, struct err *e)
{
	if (v->kind != YAML_SCALAR)
		return refuse(v, where, "must be one word or text", e);
	if (yaml_is_null(v))
		return 0;
	*text_p = arena_strdup(&c->arena, v->text);
	return *text_p ? 0 : err_nomem(e, strlen(v->text), "a dataset's name");
}

static int read_files(struct config *c, const struct yaml_node *v, const char *where,
		      struct dataset_source *d, struct err *e)
{
	size_t n = v->kind == YAML_LIST ? v->count : 1;
	const char **files = arena_alloc(&c->arena, (n + 1) * sizeof *files);
	if (!files)
		return err_nomem(e, n * sizeof *files, "a list of files");
	if (v->kind == YAML_MAP)
		return refuse(v, where, "must be a file or a list of files", e);
	for (size_t i = 0; i < n; i++) {
		struct yaml_node one = *(v->kind == YAML_LIST ? v->child[i] : v);
		one.key = v->key;
		TRY(copy_word(c, &one, where, &files[i], e));
		if (!files[i] || !files[i][0])
			return refuse(v, where, "has an empty name", e);
	}
	d->data_files = files;
	d->ndata_files = n;
	return 0;
}

/* [user, assistant], or one of them */
static int read_roles(struct config *c, const struct yaml_node *v, const char *where,
		      struct dataset_source *d, struct err *e)
{
	const size_t n = v->kind == YAML_LIST ? v->count : 1;
	struct buf b = BUF_INIT;
	unsigned roles;
	if (yaml_is_null(v))
		return 0;
	for (size_t i = 0; i < n; i++) {
		const struct yaml_node *word = v->kind == YAML_LIST ? v->child[i] : v;
		if (word->kind != YAML_SCALAR) {
			buf_release(&b);
			return refuse(v, where, "must be a list of roles: [assistant, user]", e);
		}
		buf_addf(&b, "%s%s", i ? "," : "", word->text);
	}
	int rc = buf_ok(&b, e);
	if (rc >= 0 && !(d->roles = arena_strdup(&c->arena, b.n ? b.p : "")))
		rc = err_nomem(e, b.n, "a list of roles");
	buf_release(&b);
	if (rc >= 0 && turns_roles(d->roles, &roles, e) < 0) {
		err_prefix(e, "%s:%d", where, v->line);
		rc = e->code = ERR_USAGE;
	}
	return rc;
}

/* {role: from, content: value} */
static int read_mappings(struct config *c, const struct yaml_node *v, const char *where,
			 struct dataset_source *d, struct err *e)
{
	if (v->kind != YAML_MAP)
		return refuse(v, where, "must be a mapping: {role: from, content: value}", e);
	for (size_t i = 0; i < v->count; i++) {
		const char *key = v->child[i]->key;
		bool role = !strcmp(key, "role");
		if (!role && strcmp(key, "content"))
			return refuse(v, where, "maps only role and content", e);
		TRY(copy_word(c, v->child[i], where, &d->field[role ? FIELD_ROLE : FIELD_CONTENT],
			      e));
	}
	return 0;
}

/* {user: [user, human], ...}: what a role is called; names that turns.c knows change nothing. */
static bool roles_are_usual(const struct yaml_node *v)
{
	for (size_t i = 0; i < v->count; i++) {
		const struct yaml_node *list = v->child[i];
		struct err e = { 0 };
		unsigned role, is;
		if (turns_roles(list->key, &role, &e) < 0)
			return false;
		for (size_t k = 0; k < (list->kind == YAML_LIST ? list->count : 1); k++) {
			const struct yaml_node *word =
				list->kind == YAML_LIST ? list->child[k] : list;
			if (word->kind != YAML_SCALAR || turns_roles(word->text, &is, &e) < 0 ||
			    is != role)
				return false;
		}
	}
	return true;
}

static bool is_idle(const struct yaml_node *v)
{
	if (!strcmp(v->key, "roles") && v->kind == YAML_MAP)
		return roles_are_usual(v);
	for (size_t i = 0; i < ARRAY_LEN(idle); i++)
		if (!strcmp(idle[i].key, v->key)) {
			const struct yaml_node *one =
				v->kind == YAML_LIST && v->count == 1 ? v->child[0] : v;
			return !idle[i].value || yaml_is_null(v) ||
			       (one->kind == YAML_SCALAR && !strcmp(one->text, idle[i].value));
		}
	return false;
}

static int unknown(const struct yaml_node *v, const char *where, struct err *e)
{
	const char *known[ARRAY_LEN(words) + 5] = { "weight", "data_files", "roles_to_train",
						    "message_property_mappings" };
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		known[4 + i] = words[i].key;
	const char *near = opt_nearest_word(known, v->key);
	if (!strcmp(v->key, "roles"))
		return refuse(v, where, "may name only aliases that are known (docs/datasets.md)",
			      e);
	for (size_t i = 0; i < ARRAY_LEN(idle); i++)
		if (!strcmp(idle[i].key, v->key))
			return err_set(e, ERR_USAGE,
				       "%s:%d: '%s' of a dataset is supported only as '%s'", where,
				       v->line, v->key, idle[i].value);
	if (near && !strcmp(near, v->key))
		return err_set(e, ERR_USAGE, "%s:%d: '%.60s' of a dataset does not stand in 'type'",
			       where, v->line, v->key);
	return err_set(e, ERR_USAGE, "%s:%d: unknown key '%.60s' of a dataset%s%s%s", where,
		       v->line, v->key, near ? ", did you mean '" : "", near ? near : "",
		       near ? "'?" : "");
}

static int read_map(struct config *c, const struct yaml_node *map, const char *where, bool in_type,
		    struct dataset_source *d, struct err *e);

static int read_key(struct config *c, const struct yaml_node *v, const char *where, bool in_type,
		    struct dataset_source *d, struct err *e)
{
	if (!in_type && !strcmp(v->key, "type") && v->kind == YAML_MAP) {
		/* records of these fields; without a format the model's template writes them */
		d->type = "alpaca";
		TRY(read_map(c, v, where, true, d, e));
		if (d->prompt_format || d->chosen_format || d->rejected_format ||
		    d->completion_format || d->field[FIELD_PROMPT] || d->field[FIELD_CHOSEN])
			d->type = "user_defined.default";
		return 0;
	}
	if (!in_type && !strcmp(v->key, "data_files"))
		return read_files(c, v, where, d, e);
	if (!in_type && !strcmp(v->key, "roles_to_train"))
		return read_roles(c, v, where, d, e);
	if (!in_type && !strcmp(v->key, "message_property_mappings"))
		return read_mappings(c, v, where, d, e);
	if (!in_type && !strcmp(v->key, "weight")) {
		char *end = "x";
		d->weight = v->kind == YAML_SCALAR ? strtod(v->text, &end) : 0;
		return *end || !(d->weight > 0 && d->weight <= 1e6)
			       ? refuse(v, where, "must be a number above 0, up to 1e6", e)
			       : 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(words[i].key, v->key) && (!in_type || words[i].in_type))
			return copy_word(c, v, where, (const char **)((char *)d + words[i].offset),
					 e);
	return !in_type && is_idle(v) ? 0 : unknown(v, where, e);
}

static int read_map(struct config *c, const struct yaml_node *map, const char *where, bool in_type,
		    struct dataset_source *d, struct err *e)
{
	for (size_t i = 0; i < map->count; i++)
		TRY(read_key(c, map->child[i], where, in_type, d, e));
	return 0;
}

static int one_dataset(struct config *c, const struct yaml_node *n, const char *where,
		       struct dataset_source *d, struct err *e)
{
	*d = (struct dataset_source){ .type = "auto" };
	if (n->kind == YAML_SCALAR)
		TRY(copy_word(c, n, where, &d->path, e));
	else if (n->kind == YAML_MAP)
		TRY(read_map(c, n, where, false, d, e));
	if (!d->path || !d->path[0])
		return err_set(e, ERR_USAGE, "%s:%d: a dataset needs a path: '- path: FILE'", where,
			       n->line);
	if (!d->format && (d->no_input_format || d->system_format || d->system_prompt))
		return err_set(
			e, ERR_USAGE,
			"%s:%d: no_input_format, system_format and system_prompt of a dataset "
			"belong to 'format'",
			where, n->line);
	d->path = opt_path(d->path, &c->arena);
	return d->path ? 0 : err_nomem(e, sizeof *d, "a dataset's name");
}

int config_data_read(struct config *c, const struct yaml_node *n, const char *where, bool test,
		     struct err *e)
{
	const size_t count = n->kind == YAML_LIST      ? n->count
			     : yaml_is_null(n) && test ? 0
						       : 1,
		     trained = c->ndatasets - c->ntest, others = test ? trained : c->ntest;
	struct dataset_source *all = arena_alloc(&c->arena, (count + others + 1) * sizeof *all);
	if (!all)
		return err_nomem(e, (count + others) * sizeof *all, "the list of datasets");
	/* the other list stays; those held out are the last */
	struct dataset_source *own = all + (test ? others : 0);
	if (others)
		memcpy(test ? all : all + count, c->datasets + (test ? 0 : trained),
		       others * sizeof *all);
	for (size_t i = 0; i < count; i++) {
		TRY(one_dataset(c, n->kind == YAML_LIST ? n->child[i] : n, where, &own[i], e));
		own[i].held_out = test;
	}
	c->datasets = all;
	c->ndatasets = count + others;
	c->ntest = test ? count : others;
	return 0;
}

static void member(struct buf *o, const char *key, const char *value, bool *first)
{
	buf_addf(o, "%s\"%s\": ", *first ? "" : ", ", key);
	json_quote(o, value, strlen(value));
	*first = false;
}

static void data_json(struct buf *o, const struct dataset_source *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct dataset_source *d = &all[i];
		bool first = true;
		buf_adds(o, i ? ",\n    {" : "\n    {");
		for (size_t k = 0; k < ARRAY_LEN(words); k++) {
			const char *v = *(const char *const *)((const char *)d + words[k].offset);
			if (v)
				member(o, words[k].key, v, &first);
		}
		if (d->roles)
			member(o, "roles_to_train", d->roles, &first);
		if (d->weight > 0) {
			buf_adds(o, ", \"weight\": ");
			json_number(o, d->weight);
		}
		if (d->ndata_files)
			buf_adds(o, ", \"data_files\": [");
		for (size_t k = 0; k < d->ndata_files; k++) {
			buf_adds(o, k ? ", " : "");
			json_quote(o, d->data_files[k], strlen(d->data_files[k]));
		}
		buf_adds(o, d->ndata_files ? "]}" : "}");
	}
	buf_addc(o, ']');
}

void config_data_json(struct buf *o, const struct config *c)
{
	const size_t trained = c->ndatasets - c->ntest;
	if (trained) {
		buf_adds(o, ",\n  \"datasets\": [");
		data_json(o, c->datasets, trained);
	}
	if (c->ntest) {
		buf_adds(o, ",\n  \"test_datasets\": [");
		data_json(o, c->datasets + trained, c->ntest);
	}
}
