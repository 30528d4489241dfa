/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tree.h - a parsed template: what jinja_lex.c and jinja_parse.c make and jinja_run.c
 * executes. */
#ifndef HS_DATA_JINJA_TREE_H
#define HS_DATA_JINJA_TREE_H

#include "base/arena.h"
#include "data/jinja_value.h"

enum jtoken_kind {
	JT_DATA, /* text outside of tags */
	JT_VAR,  /* {{ */
	JT_VAR_END,
	JT_TAG, /* {% */
	JT_TAG_END,
	JT_NAME,
	JT_TEXT, /* a string, unescaped */
	JT_INT,
	JT_FLOAT,
	JT_OP,
	JT_END,
};

struct jtoken {
	enum jtoken_kind kind;
	unsigned line;
	const char *p; /* data, name (NUL-terminated), text, operator (NUL-terminated) */
	size_t n;
	int64_t i;
	double f;
};

/* The tokens of a template, the last one JT_END; *t_p is released with mem_free(), its texts with
 * the arena. */
int jinja_lex(const char *text, size_t n, struct arena *mem, struct jtoken **t_p, size_t *n_p,
	      struct err *e);

enum jnode_kind {
	/* expressions */
	JN_CONST,
	JN_NAME,
	JN_LIST, /* kid */
	JN_TUPLE,
	JN_DICT, /* kid: key, value, key, value */
	JN_MATH, /* op: + - * / % // ** ~; a, b */
	JN_NEG,
	JN_POS,
	JN_NOT,
	JN_AND,
	JN_OR,
	JN_COMPARE, /* kid: n + 1 operands; name_of: n operators, "in" and "not in" among them */
	JN_COND,    /* a if b else c (NULL: undefined) */
	JN_ATTR,    /* a.name */
	JN_ITEM,    /* a[b] */
	JN_SLICE,   /* a[kid 0:1:2], NULL where not given */
	JN_CALL,    /* a(kid), name_of: NULL or the name of each argument */
	JN_FILTER,  /* a|name(kid); a NULL: the text of a block */
	JN_TEST,    /* a is name(kid) */
	/* statements */
	JN_DATA,
	JN_PRINT,
	JN_SEQ,
	JN_IF,           /* a, then b, else c */
	JN_FOR,          /* target a in b if c: kid 0, else kid 1 (NULL) */
	JN_SET,          /* a = b */
	JN_SET_BLOCK,    /* a = the text of kid 0 through the filters b (NULL) */
	JN_MACRO,        /* name, parameters name_of, defaults kid (NULL), body a */
	JN_CALL_BLOCK,   /* a: the call; b: a JN_MACRO named caller */
	JN_FILTER_BLOCK, /* b: filters, a: body */
	JN_WITH,         /* kid: target, value, ...; a: body */
	JN_BREAK,
	JN_CONTINUE,
};

enum jop { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR, OP_MOD, OP_POW, OP_JOIN };

struct jnode {
	enum jnode_kind kind;
	enum jop op;
	unsigned line;
	const char *name;
	struct jnode *a, *b, *c;
	struct jnode **kid;
	const char **name_of;
	size_t n;
	struct jval v;
	struct jstr text;
};

struct jinja {
	struct arena mem;
	struct jnode *root;
};

/* The tree of a template from its tokens. */
int jinja_tree(struct jinja *j, const struct jtoken *tokens, struct err *e);

/* a OP b (jinja_math.c) */
int jinja_math(struct jx *x, enum jop op, struct jval a, struct jval b, struct jval *v_p);

#endif
