/* SPDX-License-Identifier: Apache-2.0 */
/* yaml.h - a YAML (or JSON, being YAML) document as a tree that remembers line numbers.
 *
 * Only what configuration needs: mappings with string keys, sequences, scalars; no anchors, tags or
 * several documents. Depth, node count and file size are limited. A duplicate key in a mapping is
 * an error. The tree owns everything. */
#ifndef HS_BASE_YAML_H
#define HS_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>

struct err;

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_node {
	enum yaml_kind kind;
	int line;         /* 1-based */
	bool quoted;      /* scalar written in quotes: "null" and "true" are then words */
	const char *key;  /* inside a mapping: this member's key, else NULL */
	const char *text; /* scalar: the text */
	size_t count;     /* list, map: number of children */
	struct yaml_node **child;
};

struct yaml;

int yaml_parse_file(const char *path, struct yaml **y_p, struct err *e);
int yaml_parse_text(const char *text, size_t n, const char *where, struct yaml **y_p,
		    struct err *e);
void yaml_doc_free(struct yaml *y); /* not yaml_free: libyaml exports a function of that name */
const struct yaml_node *yaml_root(const struct yaml *y);
/* NULL when there is none */
const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key);
/* null, ~, or nothing, unquoted */
bool yaml_is_null(const struct yaml_node *n);

#endif
