/* SPDX-License-Identifier: Apache-2.0 */
/* yaml.c - see yaml.h. libyaml's event parser feeds a tree in one arena.
 *
 * Limits: 1 MiB of text, 32 levels, 100,000 nodes. They are far above what a configuration needs
 * and keep a hostile file from costing memory or stack. Aliases would allow exponential growth, so
 * they are refused rather than counted. */
#include "base/yaml.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <string.h>
#include <yaml.h>

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_NODES = 100000 };

struct yaml {
	struct arena arena;
	struct yaml_node *root;
};

struct reader {
	struct yaml *y;
	yaml_parser_t parser;
	yaml_event_t ev;
	bool have; /* ev holds an event that has not been deleted */
	const char *where;
	size_t nodes;
	struct err *e;
};

static int line_of(const struct reader *r) { return (int)r->ev.start_mark.line + 1; }

static int next_event(struct reader *r)
{
	if (r->have)
		yaml_event_delete(&r->ev);
	r->have = false;
	if (yaml_parser_parse(&r->parser, &r->ev)) {
		r->have = true;
		return 0;
	}
	const yaml_parser_t *p = &r->parser;
	if (p->error == YAML_MEMORY_ERROR)
		return err_nomem(r->e, 0, "the YAML parser");
	if (p->error == YAML_READER_ERROR)
		return err_set(r->e, ERR_USAGE, "%s: not a text file: %s at byte %zu", r->where,
			       p->problem ? p->problem : "unreadable", p->problem_offset);
	return err_set(r->e, ERR_USAGE, "%s:%zu: not valid YAML: %s%s%s", r->where,
		       p->problem_mark.line + 1, p->problem ? p->problem : "unreadable",
		       p->context ? " " : "", p->context ? p->context : "");
}

static int refuse(struct reader *r, const char *what)
{
	return err_set(r->e, ERR_USAGE, "%s:%d: %s", r->where, line_of(r), what);
}

static bool has_text(const unsigned char *s) { return s && *s; }

static int check_plain(struct reader *r)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;
	switch (r->ev.type) {
	case YAML_SCALAR_EVENT:
		anchor = r->ev.data.scalar.anchor, tag = r->ev.data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = r->ev.data.sequence_start.anchor, tag = r->ev.data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = r->ev.data.mapping_start.anchor, tag = r->ev.data.mapping_start.tag;
		break;
	case YAML_ALIAS_EVENT:
		return refuse(r, "YAML aliases (*name) are not supported: write the value out");
	default:
		return refuse(r, "not valid YAML");
	}
	if (has_text(anchor))
		return refuse(r, "YAML anchors (&name) are not supported: write the value out");
	if (has_text(tag))
		return refuse(r, "YAML tags (!name) are not supported");
	return 0;
}

static char *text_of(struct reader *r)
{
	if (memchr(r->ev.data.scalar.value, 0, r->ev.data.scalar.length)) {
		refuse(r, "a text with a NUL character");
		return NULL;
	}
	char *s = arena_strndup(&r->y->arena, (const char *)r->ev.data.scalar.value,
				r->ev.data.scalar.length);
	if (!s)
		err_nomem(r->e, r->ev.data.scalar.length, "a YAML text");
	return s;
}

static int read_node(struct reader *r, int depth, struct yaml_node **n_p);

static int duplicate(struct reader *r, struct yaml_node *const *child, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(child[i]->key, key))
			return err_set(r->e, ERR_USAGE,
				       "%s:%d: the key '%s' stands twice (first on line %d)",
				       r->where, line_of(r), key, child[i]->line);
	return 0;
}

/* A mapping is searched linearly for each of its keys. Real ones are small; this limit bounds the
 * time that a hostile one takes. */
enum { MAX_KEYS = 500 };

static int read_children(struct reader *r, int depth, struct yaml_node *n)
{
	struct yaml_node **child = NULL;
	size_t cap = 0;
	yaml_event_type_t end =
		n->kind == YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
	int rc;
	for (;;) {
		const char *key = NULL;
		int line = 0;
		TRYOUT(next_event(r));
		if (r->ev.type == end)
			break;
		if (n->kind == YAML_MAP) {
			TRYOUT(check_plain(r));
			if (r->ev.type != YAML_SCALAR_EVENT) {
				rc = refuse(r, "a key must be a word");
				goto out;
			}
			key = text_of(r);
			if (!key) {
				rc = r->e->code;
				goto out;
			}
			if (n->count >= MAX_KEYS) {
				rc = refuse(r, "too many keys in one mapping");
				goto out;
			}
			TRYOUT(duplicate(r, child, n->count, key));
			line = line_of(r);
			TRYOUT(next_event(r));
		}
		struct yaml_node *c;
		TRYOUT(read_node(r, depth + 1, &c));
		c->key = key;
		if (key)
			c->line = line;
		if (!mem_grow(&child, &cap, n->count + 1, sizeof *child)) {
			rc = err_nomem(r->e, sizeof *child, "a YAML list");
			goto out;
		}
		child[n->count++] = c;
	}
	n->child = arena_alloc(&r->y->arena, (n->count ? n->count : 1) * sizeof *child);
	if (!n->child) {
		rc = err_nomem(r->e, n->count * sizeof *child, "a YAML list");
		goto out;
	}
	if (n->count)
		memcpy(n->child, child, n->count * sizeof *child);
	rc = 0;
out:
	mem_free(child);
	return rc;
}

/* Reads the node whose first event is in r->ev. */
static int read_node(struct reader *r, int depth, struct yaml_node **n_p)
{
	TRY(check_plain(r));
	if (depth > MAX_DEPTH)
		return refuse(r, "nested too deep (32 levels at most)");
	if (++r->nodes > MAX_NODES)
		return refuse(r, "too many values (100,000 at most)");
	struct yaml_node *n = arena_alloc(&r->y->arena, sizeof *n);
	if (!n)
		return err_nomem(r->e, sizeof *n, "a YAML value");
	n->line = line_of(r);
	if (r->ev.type == YAML_SCALAR_EVENT) {
		n->kind = YAML_SCALAR;
		n->quoted = r->ev.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
		n->text = text_of(r);
		if (!n->text)
			return r->e->code;
	} else {
		n->kind = r->ev.type == YAML_MAPPING_START_EVENT ? YAML_MAP : YAML_LIST;
		TRY(read_children(r, depth, n));
	}
	*n_p = n;
	return 0;
}

static int read_document(struct reader *r)
{
	TRY(next_event(r)); /* stream start */
	TRY(next_event(r));
	if (r->ev.type == YAML_STREAM_END_EVENT)
		return err_set(r->e, ERR_USAGE, "%s: the file is empty", r->where);
	TRY(next_event(r)); /* behind the document's start */
	TRY(read_node(r, 0, &r->y->root));
	TRY(next_event(r)); /* document end */
	TRY(next_event(r));
	if (r->ev.type != YAML_STREAM_END_EVENT)
		return refuse(r, "a second YAML document begins here; one is expected");
	return 0;
}

int yaml_parse_text(const char *text, size_t n, const char *where, struct yaml **y_p, struct err *e)
{
	if (n > MAX_BYTES)
		return err_set(e, ERR_USAGE, "%s: larger than 1 MiB, which no configuration is",
			       where);
	struct yaml *y = mem_zalloc(sizeof *y);
	struct reader r = { .y = y, .where = where, .e = e };
	if (!y || !yaml_parser_initialize(&r.parser)) {
		mem_free(y);
		return err_nomem(e, sizeof *y, "the YAML parser");
	}
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
	int rc = read_document(&r);
	if (r.have)
		yaml_event_delete(&r.ev);
	yaml_parser_delete(&r.parser);
	if (rc < 0) {
		yaml_doc_free(y);
		return rc;
	}
	*y_p = y;
	return 0;
}

int yaml_parse_file(const char *path, struct yaml **y_p, struct err *e)
{
	struct buf b = BUF_INIT;
	TRY(buf_read_file(&b, path, MAX_BYTES, e));
	int rc = yaml_parse_text(b.p, b.n, path, y_p, e);
	buf_release(&b);
	return rc;
}

void yaml_doc_free(struct yaml *y)
{
	if (!y)
		return;
	arena_release(&y->arena);
	mem_free(y);
}

const struct yaml_node *yaml_root(const struct yaml *y) { return y->root; }

const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key)
{
	if (map && map->kind == YAML_MAP)
		for (size_t i = 0; i < map->count; i++)
			if (!strcmp(map->child[i]->key, key))
				return map->child[i];
	return NULL;
}

bool yaml_is_null(const struct yaml_node *n)
{
	if (!n || n->kind != YAML_SCALAR || n->quoted)
		return false;
	return !n->text[0] || !strcmp(n->text, "~") || !strcmp(n->text, "null") ||
	       !strcmp(n->text, "Null") || !strcmp(n->text, "NULL");
}
