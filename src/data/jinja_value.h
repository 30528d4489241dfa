/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.h - the values of Jinja: what Python's are in a sandbox, in an arena that lives as
 * long as one rendering.
 *
 * A string has a source for each byte (jinja.h): one for all of it, or an array beside it. Strings
 * are valid UTF-8 and not NUL-terminated; positions that a template sees count characters. Every
 * function that fails has written x->e; what takes long or much memory is counted by jx_alloc()
 * and jx_tick(). */
#ifndef HS_DATA_JINJA_VALUE_H
#define HS_DATA_JINJA_VALUE_H

#include "base/arena.h"
#include "base/err.h"
#include "data/jinja.h"

enum jkind {
	J_UNDEF, /* p: the name, for messages */
	J_NONE,
	J_BOOL,
	J_INT,
	J_FLOAT,
	J_STR,
	J_LIST,
	J_TUPLE,
	J_DICT,
	J_SPACE, /* a namespace: a dict whose members can be set */
	J_MACRO, /* p: struct jmacro of jinja_run.c */
	J_CALL,  /* p: struct jmethod: a function of this file's users, with its object */
	J_LOOP,  /* p: struct jloop of jinja_run.c */
	J_TURNS, /* i: the turns of a conversation from this one on (jinja_run.h) */
};

struct jstr {
	const char *p;
	const uint16_t *src; /* NULL: `all` for every byte */
	size_t n;
	uint16_t all;
};

struct jlist;
struct jdict;

struct jval {
	enum jkind k;
	union {
		bool b;
		int64_t i;
		double f;
		const struct jstr *s;
		struct jlist *l; /* also J_TUPLE */
		struct jdict *d; /* also J_SPACE */
		const void *p;
	};
};

struct jlist {
	struct jval *v;
	size_t n, cap;
	bool lazy; /* what select, map and others of jinja2 give counts as true, also when empty */
};

struct jdict {
	struct jval *key, *v;
	size_t n, cap, vcap;
	struct jdict *space; /* a namespace: the one made before it */
};

struct jmethod {
	const char *name;
	struct jval self;
};

/* The arguments of a call: name[i] is NULL where it is positional. */
struct jargs {
	const struct jval *v;
	const char *const *name;
	size_t n;
};

/* One rendering. */
struct jx {
	struct arena mem;
	uint64_t used, steps;
	uint64_t built; /* bytes of texts that are being put together */
	unsigned depth;
	unsigned line; /* of the template, for messages */
	bool odd;      /* a namespace, a macro, a function or a loop is in a list or a dict */
	struct jdict *spaces; /* the namespace made last */
	struct err *e;
};

int jx_fail(struct jx *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int jx_tick(struct jx *x, uint64_t steps);
int jx_enter(struct jx *x); /* one deeper; whoever succeeded calls jx_leave() */
void jx_leave(struct jx *x);
void *jx_alloc(struct jx *x, size_t n); /* cleared; NULL with x->e written */

#define J_UNDEFINED(name) ((struct jval){ .k = J_UNDEF, .p = (name) })
#define J_NOTHING ((struct jval){ .k = J_NONE })
#define J_TRUTH(x) ((struct jval){ .k = J_BOOL, .b = (x) })
#define J_NUMBER(x) ((struct jval){ .k = J_INT, .i = (x) })

/* strings */
/* the text is borrowed */
int js_make(struct jx *x, const char *p, size_t n, uint16_t source, struct jval *v_p);
int js_new(struct jx *x, size_t n, char **p, uint16_t **src, struct jval *v_p);
int js_part(struct jx *x, const struct jstr *s, size_t begin, size_t end, struct jval *v_p);
uint16_t js_source(const struct jstr *s, size_t i);
/* Text that is put together from parts. Released by js_done(), or by js_drop() after a failure. */
struct js_build {
	struct jinja_text t;
	struct jx *x; /* where `counted` bytes of it are counted; NULL: none yet */
	uint64_t counted;
};
int js_add(struct jx *x, struct js_build *b, const char *p, size_t n, uint16_t source);
int js_put(struct jx *x, struct js_build *b, const struct jstr *s);
int js_part_put(struct jx *x, struct js_build *b, const struct jstr *s, size_t begin, size_t end);
int js_done(struct jx *x, struct js_build *b, struct jval *v_p);
void js_drop(struct js_build *b);
/* At most `most` bytes of it as a string of C. */
const char *jx_word(struct jx *x, const struct jstr *s, size_t most);
bool js_is(const struct jstr *s, const char *text);
size_t js_length(const struct jstr *s);                /* characters */
size_t js_offset(const struct jstr *s, size_t number); /* bytes before character `number` */
/* White space, as Python's isspace(), at the beginning or end of text: its bytes, or 0. */
size_t js_space(const char *p, size_t n, bool end);

/* lists and dicts */
int jl_new(struct jx *x, struct jval *v_p);
int jl_add(struct jx *x, struct jlist *l, struct jval v);
int jd_new(struct jx *x, struct jval *v_p);
int jd_set(struct jx *x, struct jdict *d, struct jval key, struct jval v);
/* 1 found, 0 not there */
int jd_get(struct jx *x, const struct jdict *d, struct jval key, struct jval *v_p);
bool jd_find(const struct jdict *d, const char *key, struct jval *v_p);
int jx_from_json(struct jx *x, const json_t *j, uint16_t source, struct jval *v_p);
/* What a loop goes over: the items of a list, the keys of a dict, the characters of a string. */
int jx_items(struct jx *x, struct jval v, struct jlist **l_p);

/* all */
const char *jx_kind(struct jval v); /* "a string", for messages */
bool jx_true(struct jval v);
bool jx_is_number(struct jval v);
double jx_float(struct jval v);
int jx_equal(struct jx *x, struct jval a, struct jval b, bool *same_p);
int jx_order(struct jx *x, struct jval a, struct jval b, int *order_p); /* below, at or above 0 */
int jx_in(struct jx *x, struct jval item, struct jval in, bool *found_p);
int jx_text(struct jx *x, struct jval v, struct jval *s_p); /* Python's str() */
/* as {{ v }} writes it */
int jx_put(struct jx *x, struct js_build *b, struct jval v, bool quoted);
/* json.dumps; indent < 0: on one line */
int jx_json(struct jx *x, struct jval v, int indent, const char *item, const char *pair, bool sort,
	    bool ascii, struct jval *s_p);
/* v.name or v[name]: undefined when it is not there; not for methods */
int jx_item(struct jx *x, struct jval v, struct jval key, struct jval *v_p);
/* "a.b" of v */
int jx_path(struct jx *x, struct jval v, struct jval path, struct jval *v_p);

/* The argument number i, or by name; 0 when it is not given, and *v_p stays. */
bool jx_arg(const struct jargs *a, size_t i, const char *name, struct jval *v_p);
int jx_arg_int(struct jx *x, const struct jargs *a, size_t i, const char *name, int64_t *v_p);
int jx_arg_str(struct jx *x, const struct jargs *a, size_t i, const char *name,
	       const struct jstr **s_p);
/* Every argument is one of these: at most `most` without a name, names from the list. */
int jx_args_check(struct jx *x, const struct jargs *a, const char *what, size_t most,
		  const char *names);

#endif
