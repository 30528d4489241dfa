/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c - what HeteroShard reads, for the check-*.py that compare it with the libraries of the
 * field on random inputs. One request a line on standard input, a JSON object; one answer a line:
 * {"out": ...} or {"error": TEXT}. Built by common.py's reader(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/yaml.h"
#include "data/jinja.h"
#include "data/records.h"
#include "data/tokenizer.h"
#include "file/model_file.h"

static const char *text_of(const json_t *r, const char *key, size_t *n_p)
{
	const json_t *v = json_object_get(r, key);
	*n_p = json_string_length(v);
	return json_is_string(v) ? json_string_value(v) : "";
}

static json_t *bytes_text(const char *p, size_t n)
{
	json_t *s = json_stringn(p, n);
	if (s) /* not UTF-8: as numbers */
		return s;
	s = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(s, json_integer((unsigned char)p[i]));
	return s;
}

static int do_jinja(const json_t *r, json_t **out, struct err *e)
{
	static struct jinja_var var[128];
	size_t n, nvar = 0;
	const char *text = text_of(r, "text", &n), *key;
	json_t *v;
	struct jinja *j;
	json_object_foreach(json_object_get(r, "vars"), key, v) var[nvar++] =
		(struct jinja_var){ .name = key, .v = v };
	TRY(jinja_parse(text, n, &j, e));
	struct jinja_text t = { .text = BUF_INIT };
	int rc = jinja_render(j, var, nvar, &t, e);
	if (rc >= 0)
		*out = bytes_text(t.text.p, t.text.n);
	jinja_text_release(&t);
	jinja_free(j);
	return rc;
}

static int do_records(const json_t *r, json_t **out, struct err *e)
{
	size_t n;
	struct records *rs;
	struct record rec;
	int rc;
	TRY(records_open(text_of(r, "path", &n), json_is_true(json_object_get(r, "plain")), &rs,
			 e));
	*out = json_array();
	while ((rc = records_next(rs, &rec, e)) > 0) {
		json_t *doc = NULL;
		if (records_form(rs) == RECORDS_PLAIN) {
			json_array_append_new(*out, bytes_text(rec.text, rec.n));
			continue;
		}
		rc = json_parse_text_in(rec.text, rec.n, "record", JSON_MEMORY_TABLE, &doc, e);
		if (rc < 0)
			break;
		json_array_append_new(*out, doc);
	}
	records_close(rs);
	return rc;
}

static struct tokenizer *tok;

static int do_tokenizer(const json_t *r, json_t **out, struct err *e)
{
	tokenizer_free(tok);
	tok = NULL;
	*out = json_true();
	return tokenizer_from_json(json_object_get(r, "doc"), json_object_get(r, "config"), "doc",
				   &tok, e);
}

static int do_encode(const json_t *r, json_t **out, struct err *e)
{
	size_t n;
	const char *text = text_of(r, "text", &n);
	struct tokens t = { 0 };
	struct buf b = BUF_INIT;
	int rc = !tok ? err_set(e, ERR_INPUT, "no tokenizer")
		      : tokenizer_encode(tok, text, n, json_is_true(json_object_get(r, "add")),
					 json_is_true(json_object_get(r, "parse")), &t, e);
	if (rc >= 0)
		rc = tokenizer_decode(tok, t.id, t.n, json_is_true(json_object_get(r, "skip")), &b,
				      e);
	if (rc >= 0) {
		json_t *ids = json_array();
		for (size_t i = 0; i < t.n; i++)
			json_array_append_new(ids, json_integer(t.id[i]));
		*out = json_pack("{s:o,s:o}", "ids", ids, "text", bytes_text(b.p, b.n));
	}
	tokens_release(&t);
	buf_release(&b);
	return rc;
}

static json_t *yaml_json(const struct yaml_node *n)
{
	if (n->kind == YAML_SCALAR)
		return json_pack("[s,b]", n->text, n->quoted);
	json_t *v = json_object(), *items = json_array();
	for (size_t i = 0; i < n->count; i++)
		n->kind == YAML_MAP
			? json_object_set_new(v, n->child[i]->key, yaml_json(n->child[i]))
			: json_array_append_new(items, yaml_json(n->child[i]));
	if (n->kind == YAML_MAP) {
		json_decref(items);
		return v;
	}
	json_decref(v);
	return json_pack("{s:o}", "", items);
}

static int do_yaml(const json_t *r, json_t **out, struct err *e)
{
	size_t n;
	const char *text = text_of(r, "text", &n);
	struct yaml *y;
	TRY(yaml_parse_text(text, n, "yaml", &y, e));
	*out = yaml_json(yaml_root(y));
	yaml_doc_free(y);
	return 0;
}

/* The tensors as float32 into FILE, one after the other. */
static int do_model(const json_t *r, json_t **out, struct err *e)
{
	size_t n;
	struct model_file *f;
	int rc = 0;
	TRY(model_file_open(text_of(r, "path", &n), &f, e));
	FILE *to = fopen(text_of(r, "to", &n), "wb");
	*out = json_array();
	for (size_t i = 0; i < model_file_count(f) && rc >= 0; i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		float *p = malloc(t->count * sizeof *p + 1);
		rc = model_file_read_f32(f, t, 0, t->shape[0], p, e);
		fwrite(p, sizeof *p, t->count, to);
		free(p);
		json_array_append_new(*out, json_pack("[s,I]", t->name, (json_int_t)t->count));
	}
	if (to)
		fclose(to);
	model_file_close(f);
	return rc;
}

/* The blocks of the file FROM as float32 into the file TO. */
static int do_blocks(const json_t *r, json_t **out, struct err *e)
{
	size_t n;
	int type = (int)json_integer_value(json_object_get(r, "type")), block, bytes;
	const char *name;
	struct buf b = BUF_INIT;
	if (!ggml_type_info(type, &block, &bytes, &name))
		return err_set(e, ERR_UNSUPPORTED, "no such type");
	TRY(buf_read_file(&b, text_of(r, "from", &n), 0, e));
	uint64_t count = b.n / (size_t)bytes * (size_t)block;
	float *p = malloc(count * sizeof *p + 1);
	int rc = ggml_dequantize(type, b.p, p, count, e);
	FILE *to = fopen(text_of(r, "to", &n), "wb");
	fwrite(p, sizeof *p, count, to);
	fclose(to);
	free(p);
	buf_release(&b);
	*out = json_string(name);
	return rc;
}

static const struct {
	const char *name;
	int (*run)(const json_t *r, json_t **out, struct err *e);
} kinds[] = { { "jinja", do_jinja },   { "records", do_records }, { "tokenizer", do_tokenizer },
	      { "encode", do_encode }, { "yaml", do_yaml },       { "model", do_model },
	      { "blocks", do_blocks } };

int main(void)
{
	char *line = NULL;
	size_t cap = 0, n;
	ssize_t len;
	while ((len = getline(&line, &cap, stdin)) > 0) {
		json_t *r = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL), *out = NULL;
		struct err e = { 0 };
		int rc = err_set(&e, ERR_INPUT, "reader: no such request");
		const char *what = text_of(r, "what", &n);
		for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
			if (!strcmp(kinds[i].name, what)) {
				e = (struct err){ 0 };
				rc = kinds[i].run(r, &out, &e);
			}
		json_t *a = rc < 0 ? json_pack("{s:o,s:i}", "error",
					       bytes_text(e.msg, strlen(e.msg)), "code", rc)
				   : json_pack("{s:O}", "out", out);
		json_dumpf(a, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
		putchar('\n');
		fflush(stdout);
		json_decref(a);
		json_decref(r);
	}
	free(line);
	return 0;
}
