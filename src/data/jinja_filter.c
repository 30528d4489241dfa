/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filter.c - see jinja_filter.h. Names of filters that chat templates do not use are errors
 * when a template comes to them. */
#include "data/jinja_filter.h"

#include "base/mem.h"
#include "data/jinja_method.h"
#include "data/token.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const struct jstr nothing = { .p = "" };

/* The arguments behind the first `skip`. */
static struct jargs rest(const struct jargs *a, size_t skip)
{
	if (skip > a->n)
		skip = a->n;
	if (!skip) /* there may be no list at all */
		return *a;
	return (struct jargs){ a->v + skip, a->name + skip, a->n - skip };
}

/* ---- tests ---------------------------------------------------------------------------------- */

static int compare_test(struct jx *x, const char *op, struct jval v, struct jval w, bool *yes_p)
{
	int o;
	bool eq = !strcmp(op, "eq") || !strcmp(op, "==") || !strcmp(op, "equalto");
	if (eq || !strcmp(op, "ne") || !strcmp(op, "!=")) {
		TRY(jx_equal(x, v, w, yes_p));
		*yes_p = *yes_p == eq;
		return 0;
	}
	TRY(jx_order(x, v, w, &o));
	bool greater = op[0] == 'g' || op[0] == '>',
	     equal = (op[1] == 'e' && op[0] != '>' && op[0] != '<') || op[1] == '=';
	*yes_p = (greater ? o > 0 : o < 0) || (equal && !o);
	return 0;
}

static int same_as(struct jx *x, struct jval v, struct jval w, bool *yes_p)
{
	const bool texts = v.k == J_STR && w.k == J_STR && v.s->n == w.s->n;
	TRY(jx_tick(x, texts ? v.s->n / 256 : 0));
	*yes_p = v.k == w.k && (v.k == J_NONE   ? true
				: v.k == J_BOOL ? v.b == w.b
				: v.k == J_INT  ? v.i == w.i
				: v.k == J_STR ? v.s->n == w.s->n && !memcmp(v.s->p, w.s->p, v.s->n)
					       : v.p == w.p);
	return 0;
}

static int binary_test(struct jx *x, const char *name, struct jval v, struct jval w, bool *yes_p)
{
	if (!strcmp(name, "in"))
		return jx_in(x, v, w, yes_p);
	if (!strcmp(name, "sameas"))
		return same_as(x, v, w, yes_p);
	if (strcmp(name, "divisibleby"))
		return compare_test(x, name, v, w, yes_p);
	if (v.k != J_INT || w.k != J_INT || !w.i)
		return jx_fail(x, "divisibleby: needs whole numbers");
	*yes_p = w.i == -1 || v.i % w.i == 0;
	return 0;
}

static bool is_iterable(struct jval v)
{
	return v.k == J_STR || v.k == J_LIST || v.k == J_TUPLE || v.k == J_DICT || v.k == J_UNDEF;
}

static bool is_case(struct jval v, bool upper)
{
	bool letters = false;
	for (size_t i = 0, len; i < v.s->n; i += len) {
		utf8proc_category_t k =
			utf8proc_category((utf8proc_int32_t)utf8_char(v.s->p + i, &len));
		if (k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
			return false;
		letters = letters || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LU;
	}
	return letters;
}

/* What divided by two leaves, of numbers; true is 1. */
static double rest_of_two(struct jval v)
{
	return v.k == J_FLOAT ? fabs(fmod(v.f, 2)) : v.k == J_BOOL ? v.b : (double)llabs(v.i % 2);
}

static const char *const unary_tests[] = { "defined", "undefined", "none",     "boolean",  "true",
					   "false",   "integer",   "float",    "number",   "string",
					   "mapping", "sequence",  "iterable", "callable", "odd",
					   "even",    "lower",     "upper" };
static const char *const binary_tests[] = {
	"eq", "==", "equalto", "ne",       "!=", "gt", ">",  "greaterthan", "ge",
	">=", "lt", "<",       "lessthan", "le", "<=", "in", "sameas",      "divisibleby"
};

int jinja_test(struct jx *x, const char *name, struct jval v, const struct jargs *a, bool *yes_p)
{
	for (size_t i = 0; i < ARRAY_LEN(binary_tests); i++)
		if (!strcmp(binary_tests[i], name)) {
			if (a->n != 1 || a->name[0])
				return jx_fail(x, "the test '%s' needs one value", name);
			return binary_test(x, name, v, a->v[0], yes_p);
		}
	size_t t = 0;
	while (t < ARRAY_LEN(unary_tests) && strcmp(unary_tests[t], name))
		t++;
	if (t == ARRAY_LEN(unary_tests))
		return jx_fail(x, "there is no test '%s'", name);
	if (a->n)
		return jx_fail(x, "the test '%s' takes no value", name);
	const double rest = jx_is_number(v) ? rest_of_two(v) : -1;
	if (rest < 0 && (!strcmp(name, "odd") || !strcmp(name, "even")))
		return jx_fail(x, "the test '%s' needs a number", name);
	const bool cased = v.k == J_STR && (!strcmp(name, "lower") || !strcmp(name, "upper"));
	TRY(jx_tick(x, cased ? v.s->n / 4 : 0));
	const bool yes[] = { v.k != J_UNDEF,
			     v.k == J_UNDEF,
			     v.k == J_NONE,
			     v.k == J_BOOL,
			     v.k == J_BOOL && v.b,
			     v.k == J_BOOL && !v.b,
			     v.k == J_INT,
			     v.k == J_FLOAT,
			     jx_is_number(v),
			     v.k == J_STR,
			     v.k == J_DICT,
			     is_iterable(v),
			     is_iterable(v),
			     v.k == J_MACRO || v.k == J_CALL,
			     rest == 1,
			     rest == 0,
			     cased && is_case(v, false),
			     cased && is_case(v, true) };
	*yes_p = yes[t];
	return 0;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* The value that sorting and comparing look at: an attribute, in lower case unless told. */
static int look_at(struct jx *x, struct jval v, const struct jval *path, bool as_is,
		   struct jval *v_p)
{
	if (path)
		TRY(jx_path(x, v, *path, &v));
	*v_p = v;
	return v.k == J_STR && !as_is ? jinja_case(x, v.s, CASE_LOWER, v_p) : 0;
}

struct order {
	bool reverse, as_is;
	const struct jval *path;
};

static int sort_list(struct jx *x, const struct jlist *l, const struct order *o, struct jval *v_p)
{
	struct jval *key = jx_alloc(x, l->n * sizeof *key);
	if (!key)
		return x->e->code;
	TRY(jl_new(x, v_p));
	for (size_t i = 0; i < l->n; i++) {
		struct jval k;
		size_t at = i;
		TRY(look_at(x, l->v[i], o->path, o->as_is, &k));
		TRY(jl_add(x, v_p->l, l->v[i]));
		for (; at; at--) { /* equal ones stay in order */
			int order;
			TRY(jx_tick(x, 1));
			TRY(jx_order(x, key[at - 1], k, &order));
			if (o->reverse ? order >= 0 : order <= 0)
				break;
			key[at] = key[at - 1];
			v_p->l->v[at] = v_p->l->v[at - 1];
		}
		key[at] = k;
		v_p->l->v[at] = l->v[i];
	}
	return 0;
}

static int f_sort(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct order o = { 0 };
	struct jval k, path;
	struct jlist *l;
	TRY(jx_args_check(x, a, "sort", 3, "reverse case_sensitive attribute"));
	o.reverse = jx_arg(a, 0, "reverse", &k) && jx_true(k);
	o.as_is = jx_arg(a, 1, "case_sensitive", &k) && jx_true(k);
	o.path = jx_arg(a, 2, "attribute", &path) && path.k != J_NONE ? &path : NULL;
	TRY(jx_items(x, v, &l));
	return sort_list(x, l, &o, v_p);
}

static int f_dictsort(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct jval k, items, path = J_NUMBER(0);
	const struct jstr *by = NULL;
	struct order o = { .path = &path };
	TRY(jx_args_check(x, a, "dictsort", 3, "case_sensitive by reverse"));
	o.as_is = jx_arg(a, 0, "case_sensitive", &k) && jx_true(k);
	o.reverse = jx_arg(a, 2, "reverse", &k) && jx_true(k);
	TRY(jx_arg_str(x, a, 1, "by", &by));
	path.i = by && js_is(by, "value");
	if (v.k != J_DICT)
		return jx_fail(x, "dictsort: needs a dict, not %s", jx_kind(v));
	TRY(jinja_dict_items(x, v.d, &items));
	return sort_list(x, items.l, &o, v_p);
}

static int f_unique(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct jval seen, k, path;
	struct jlist *l;
	TRY(jx_args_check(x, a, "unique", 2, "case_sensitive attribute"));
	bool as_is = jx_arg(a, 0, "case_sensitive", &k) && jx_true(k),
	     has_path = jx_arg(a, 1, "attribute", &path) && path.k != J_NONE;
	TRY(jl_new(x, &seen));
	TRY(jl_new(x, v_p));
	v_p->l->lazy = true;
	TRY(jx_items(x, v, &l));
	for (size_t i = 0; i < l->n; i++) {
		bool found;
		TRY(look_at(x, l->v[i], has_path ? &path : NULL, as_is, &k));
		TRY(jx_in(x, k, seen, &found));
		if (found)
			continue;
		TRY(jl_add(x, seen.l, k));
		TRY(jl_add(x, v_p->l, l->v[i]));
	}
	return 0;
}

static int f_extreme(struct jx *x, struct jval v, const struct jargs *a, bool most,
		     struct jval *v_p)
{
	struct jval k, best = J_NOTHING, path;
	struct jlist *l;
	TRY(jx_args_check(x, a, "min and max", 2, "case_sensitive attribute"));
	bool as_is = jx_arg(a, 0, "case_sensitive", &k) && jx_true(k),
	     has_path = jx_arg(a, 1, "attribute", &path) && path.k != J_NONE;
	*v_p = J_UNDEFINED("the smallest of nothing");
	TRY(jx_items(x, v, &l));
	TRY(jx_tick(x, l->n));
	for (size_t i = 0; i < l->n; i++) {
		int o = -1;
		TRY(look_at(x, l->v[i], has_path ? &path : NULL, as_is, &k));
		if (i)
			TRY(jx_order(x, best, k, &o));
		if (i && (most ? o >= 0 : o <= 0))
			continue;
		best = k;
		*v_p = l->v[i];
	}
	return 0;
}

static int f_sum(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct jval path, start = J_NUMBER(0);
	struct jlist *l;
	TRY(jx_args_check(x, a, "sum", 2, "attribute start"));
	bool has_path = jx_arg(a, 0, "attribute", &path) && path.k != J_NONE;
	jx_arg(a, 1, "start", &start);
	TRY(jx_items(x, v, &l));
	TRY(jx_tick(x, l->n / 4));
	*v_p = start;
	for (size_t i = 0; i < l->n; i++) {
		struct jval k = l->v[i];
		if (has_path)
			TRY(jx_path(x, k, path, &k));
		if (!jx_is_number(k) || !jx_is_number(*v_p))
			return jx_fail(x, "sum: needs numbers, not %s", jx_kind(k));
		if (k.k == J_FLOAT || v_p->k == J_FLOAT)
			*v_p = (struct jval){ .k = J_FLOAT, .f = jx_float(*v_p) + jx_float(k) };
		else if (__builtin_add_overflow(v_p->i, k.k == J_BOOL ? k.b : k.i, &v_p->i))
			return jx_fail(x, "sum: the number is too large");
	}
	return 0;
}

/* What map and select go over: nothing where the value counts as false, as jinja2's `if seq:`. */
static int items_if_any(struct jx *x, struct jval v, struct jlist **l_p)
{
	return jx_items(x, jx_true(v) ? v : (struct jval){ .k = J_UNDEF }, l_p);
}

static int f_map(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct jval path, other = J_NOTHING, k;
	const struct jstr *name = NULL;
	const char *filter = NULL;
	struct jlist *l;
	bool has_other = jx_arg(a, SIZE_MAX, "default", &other),
	     has_path = jx_arg(a, SIZE_MAX, "attribute", &path);
	struct jargs more = rest(a, 1);
	if (!has_path) {
		TRY(jx_arg_str(x, a, 0, "", &name));
		if (!name)
			return jx_fail(x, "map: needs the name of a filter, or attribute=");
		if (!(filter = jx_word(x, name, 60)))
			return x->e->code;
	} else {
		TRY(jx_args_check(x, a, "map", 0, "attribute default"));
	}
	TRY(jl_new(x, v_p));
	v_p->l->lazy = true;
	TRY(items_if_any(x, v, &l));
	for (size_t i = 0; i < l->n; i++) {
		if (has_path) {
			TRY(jx_path(x, l->v[i], path, &k));
			if (k.k == J_UNDEF && has_other)
				k = other;
		} else {
			TRY(jx_enter(x));
			TRY(jinja_filter(x, filter, l->v[i], &more, &k));
			jx_leave(x);
		}
		TRY(jl_add(x, v_p->l, k));
	}
	return 0;
}

/* select, reject, selectattr, rejectattr */
static int f_select(struct jx *x, struct jval v, const struct jargs *a, bool keep, bool attr,
		    struct jval *v_p)
{
	struct jval path, k;
	const struct jstr *name = NULL;
	struct jlist *l;
	const char *test = NULL;
	if (attr && !jx_arg(a, 0, "", &path))
		return jx_fail(x, "selectattr and rejectattr need a name");
	TRY(jx_arg_str(x, a, attr, "", &name));
	if (name && !(test = jx_word(x, name, 60)))
		return x->e->code;
	struct jargs more = rest(a, attr + 1u);
	TRY(jl_new(x, v_p));
	v_p->l->lazy = true;
	TRY(items_if_any(x, v, &l));
	TRY(jx_tick(x, test ? 2 * l->n : l->n / 4));
	for (size_t i = 0; i < l->n; i++) {
		bool yes;
		k = l->v[i];
		if (attr)
			TRY(jx_path(x, k, path, &k));
		yes = jx_true(k);
		if (test)
			TRY(jinja_test(x, test, k, &more, &yes));
		if (yes == keep)
			TRY(jl_add(x, v_p->l, l->v[i]));
	}
	return 0;
}

static int f_reverse(struct jx *x, struct jval v, struct jval *v_p)
{
	struct jlist *l;
	struct jval list;
	TRY(jx_items(x, v, &l));
	TRY(jl_new(x, &list));
	list.l->lazy = true;
	for (size_t i = l->n; i-- > 0;)
		TRY(jl_add(x, list.l, l->v[i]));
	*v_p = list;
	return v.k == J_STR ? jinja_join(x, list.l, &nothing, v_p) : 0;
}

static int f_join(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	const struct jstr *between = &nothing;
	struct jval path, k, list;
	struct jlist *l;
	TRY(jx_args_check(x, a, "join", 2, "d attribute"));
	TRY(jx_arg_str(x, a, 0, "d", &between));
	TRY(jx_items(x, v, &l));
	if (jx_arg(a, 1, "attribute", &path) && path.k != J_NONE) {
		TRY(jl_new(x, &list));
		for (size_t i = 0; i < l->n; i++) {
			TRY(jx_path(x, l->v[i], path, &k));
			TRY(jl_add(x, list.l, k));
		}
		l = list.l;
	}
	return jinja_join(x, l, between, v_p);
}

static int f_length(struct jx *x, struct jval v, struct jval *v_p)
{
	size_t n = v.k == J_STR                      ? js_length(v.s)
		   : v.k == J_LIST || v.k == J_TUPLE ? v.l->n
		   : v.k == J_DICT                   ? v.d->n
						     : 0;
	if (v.k != J_UNDEF && !is_iterable(v))
		return jx_fail(x, "length: %s has none", jx_kind(v));
	*v_p = J_NUMBER((int64_t)n);
	return jx_tick(x, v.k == J_STR ? n / 64 : 1);
}

static int f_end(struct jx *x, struct jval v, bool last, struct jval *v_p)
{
	struct jlist *l;
	TRY(jx_items(x, v, &l));
	*v_p = l->n ? l->v[last ? l->n - 1 : 0] : J_UNDEFINED("an item of an empty list");
	return 0;
}

/* ---- numbers and text ----------------------------------------------------------------------- */

static int f_number(struct jx *x, struct jval v, const struct jargs *a, bool real, struct jval *v_p)
{
	char text[64], *end = text;
	double f = 0;
	bool good = jx_is_number(v);
	TRY(jx_args_check(x, a, real ? "float" : "int", 1, "default"));
	struct jval other = real ? (struct jval){ .k = J_FLOAT } : J_NUMBER(0);
	jx_arg(a, 0, "default", &other);
	if (good) {
		f = jx_float(v);
	} else if (v.k == J_STR && v.s->n < sizeof text) {
		struct jval s;
		TRY(jinja_strip(x, v.s, NULL, true, true, &s));
		memcpy(text, s.s->p, s.s->n);
		text[s.s->n] = 0;
		f = strtod(text, &end);
		good = end != text && !*end && !strpbrk(text, "xXpP(");
	}
	if (good && !real && v.k != J_FLOAT) {
		long long i = v.k == J_STR ? strtoll(text, &end, 10) : v.k == J_BOOL ? v.b : v.i;
		*v_p = J_NUMBER(i);
		if (v.k != J_STR || !*end)
			return 0;
	}
	if (good && !real && fabs(f) < 9e18)
		*v_p = J_NUMBER((int64_t)f);
	else if (good && real)
		*v_p = (struct jval){ .k = J_FLOAT, .f = f };
	else
		*v_p = other;
	return 0;
}

static int f_round(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	int64_t digits = 0;
	const struct jstr *how = NULL;
	TRY(jx_args_check(x, a, "round", 2, "precision method"));
	TRY(jx_arg_int(x, a, 0, "precision", &digits));
	TRY(jx_arg_str(x, a, 1, "method", &how));
	if (!jx_is_number(v) || digits < 0 || digits > 15)
		return jx_fail(x, "round: needs a number, and at most 15 digits");
	double f = jx_float(v), unit = pow(10, (double)digits);
	char text[400];
	snprintf(text, sizeof text, "%.*f", (int)digits, f);
	f = !how || js_is(how, "common") ? strtod(text, NULL)
	    : js_is(how, "ceil")         ? ceil(f * unit) / unit
					 : floor(f * unit) / unit;
	*v_p = v.k == J_FLOAT || how ? (struct jval){ .k = J_FLOAT, .f = f } : v;
	return 0;
}

static int f_abs(struct jx *x, struct jval v, struct jval *v_p)
{
	if (!jx_is_number(v))
		return jx_fail(x, "abs: needs a number, not %s", jx_kind(v));
	*v_p = v.k == J_FLOAT ? (struct jval){ .k = J_FLOAT, .f = fabs(v.f) }
			      : J_NUMBER(v.k == J_BOOL ? v.b
					 : v.i < 0     ? (int64_t)(0 - (uint64_t)v.i)
						       : v.i);
	return 0;
}

static int f_indent(struct jx *x, const struct jstr *s, const struct jargs *a, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	struct jval w = J_NUMBER(4), k, lines;
	static const char blanks[] = "                                                ";
	struct jstr spaces = { .p = blanks };
	int rc = 0;
	TRY(jx_args_check(x, a, "indent", 3, "width first blank"));
	jx_arg(a, 0, "width", &w);
	bool first = jx_arg(a, 1, "first", &k) && jx_true(k),
	     blank = jx_arg(a, 2, "blank", &k) && jx_true(k);
	if (w.k == J_INT && w.i >= 0 && w.i < (int64_t)sizeof blanks)
		spaces.n = (size_t)w.i;
	else if (w.k == J_STR)
		spaces = *w.s;
	else
		return jx_fail(x, "indent: the width must be a text or a number up to %zu",
			       sizeof blanks - 1);
	TRY(jinja_lines(x, s, false, &lines));
	size_t n = lines.l->n;
	/* a line feed at the end begins one more line */
	bool ends = s->n && strchr("\n\r", s->p[s->n - 1]);
	for (size_t i = 0; i < n + ends || !i; i++) {
		const struct jstr *line = i < n ? lines.l->v[i].s : &nothing;
		if (i)
			TRYOUT(js_add(x, &b, "\n", 1, 0));
		if (i ? line->n || blank : first)
			TRYOUT(js_put(x, &b, &spaces));
		TRYOUT(js_put(x, &b, line));
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

static int f_escape(struct jx *x, const struct jstr *s, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	int rc = 0;
	for (size_t i = 0; i < s->n; i++) {
		char c = s->p[i];
		const char *t = c == '&'    ? "&amp;"
				: c == '<'  ? "&lt;"
				: c == '>'  ? "&gt;"
				: c == '"'  ? "&#34;"
				: c == '\'' ? "&#39;"
					    : NULL;
		TRYOUT(js_add(x, &b, t ? t : &c, t ? strlen(t) : 1, js_source(s, i)));
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

static int f_title(struct jx *x, const struct jstr *s, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	bool begin = true;
	int rc = 0;
	for (size_t i = 0, len; i < s->n; i += len) {
		uint32_t c = utf8_char(s->p + i, &len);
		char out[4];
		bool between = (c < 128 && c && strchr("-({[<", (int)c)) ||
			       js_space(s->p + i, s->n - i, false);
		c = (uint32_t)(begin ? utf8proc_toupper((utf8proc_int32_t)c)
				     : utf8proc_tolower((utf8proc_int32_t)c));
		begin = between;
		TRYOUT(js_add(x, &b, out, utf8_put(c, out), js_source(s, i)));
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

static int separator(struct jx *x, struct jval v, size_t i, const char **s_p)
{
	if ((v.k != J_LIST && v.k != J_TUPLE) || v.l->n != 2 || v.l->v[i].k != J_STR)
		return jx_fail(x, "tojson: separators must be two texts");
	*s_p = jx_word(x, v.l->v[i].s, SIZE_MAX);
	return *s_p ? 0 : x->e->code;
}

static int f_tojson(struct jx *x, struct jval v, const struct jargs *a, struct jval *v_p)
{
	struct jval k;
	int64_t indent = -1;
	TRY(jx_args_check(x, a, "tojson", 4, "ensure_ascii indent separators sort_keys"));
	bool ascii = jx_arg(a, 0, "ensure_ascii", &k) && jx_true(k),
	     sort = jx_arg(a, 3, "sort_keys", &k) && jx_true(k);
	TRY(jx_arg_int(x, a, 1, "indent", &indent));
	if (indent > 32)
		return jx_fail(x, "tojson: indent is more than 32");
	const char *item = indent < 0 ? ", " : ",", *pair = ": ";
	if (jx_arg(a, 2, "separators", &k) && k.k != J_NONE) {
		TRY(separator(x, k, 0, &item));
		TRY(separator(x, k, 1, &pair));
	}
	return jx_json(x, v, (int)indent, item, pair, sort, ascii, v_p);
}

/* Filters of any value but text. 1: the name is not one of them. */
static int value_filter(struct jx *x, const char *name, struct jval v, const struct jargs *a,
			struct jval *v_p)
{
	struct jval k;
	if (!strcmp(name, "default") || !strcmp(name, "d")) {
		TRY(jx_args_check(x, a, "default", 2, "default_value boolean"));
		bool empty = jx_arg(a, 1, "boolean", &k) && jx_true(k) && !jx_true(v);
		*v_p = v;
		if (v.k != J_UNDEF && !empty)
			return 0;
		*v_p = (struct jval){ .k = J_STR, .s = &nothing };
		jx_arg(a, 0, "default_value", v_p);
		return 0;
	}
	if (!strcmp(name, "tojson"))
		return f_tojson(x, v, a, v_p);
	if (!strcmp(name, "length") || !strcmp(name, "count"))
		return f_length(x, v, v_p);
	if (!strcmp(name, "first") || !strcmp(name, "last"))
		return f_end(x, v, name[0] == 'l', v_p);
	if (!strcmp(name, "map"))
		return f_map(x, v, a, v_p);
	if (!strcmp(name, "select") || !strcmp(name, "reject"))
		return f_select(x, v, a, name[0] == 's', false, v_p);
	if (!strcmp(name, "selectattr") || !strcmp(name, "rejectattr"))
		return f_select(x, v, a, name[0] == 's', true, v_p);
	if (!strcmp(name, "join"))
		return f_join(x, v, a, v_p);
	if (!strcmp(name, "sort"))
		return f_sort(x, v, a, v_p);
	if (!strcmp(name, "dictsort"))
		return f_dictsort(x, v, a, v_p);
	if (!strcmp(name, "unique"))
		return f_unique(x, v, a, v_p);
	if (!strcmp(name, "min") || !strcmp(name, "max"))
		return f_extreme(x, v, a, name[1] == 'a', v_p);
	if (!strcmp(name, "sum"))
		return f_sum(x, v, a, v_p);
	if (!strcmp(name, "reverse"))
		return f_reverse(x, v, v_p);
	if (!strcmp(name, "int") || !strcmp(name, "float"))
		return f_number(x, v, a, name[0] == 'f', v_p);
	if (!strcmp(name, "round"))
		return f_round(x, v, a, v_p);
	if (!strcmp(name, "abs"))
		return f_abs(x, v, v_p);
	if (!strcmp(name, "attr"))
		return jx_arg(a, 0, "name", &k) ? jx_item(x, v, k, v_p)
						: jx_fail(x, "attr: needs a name");
	if (!strcmp(name, "list")) {
		struct jlist *l;
		TRY(jx_items(x, v, &l));
		*v_p = (struct jval){ .k = J_LIST, .l = l };
		if (!l->lazy)
			return 0;
		TRY(jl_new(x, v_p));
		*v_p->l = *l;
		v_p->l->lazy = false;
		v_p->l->cap = l->n; /* the items are shared */
		return 0;
	}
	if (!strcmp(name, "items")) {
		if (v.k != J_UNDEF && v.k != J_DICT)
			return jx_fail(x, "items: needs a dict, not %s", jx_kind(v));
		TRY(v.k == J_DICT ? jinja_dict_items(x, v.d, v_p) : jl_new(x, v_p));
		v_p->l->lazy = true;
		return 0;
	}
	return 1;
}

int jinja_filter(struct jx *x, const char *name, struct jval v, const struct jargs *a,
		 struct jval *v_p)
{
	static const char *const names[] = { "trim",  "upper",   "lower",  "capitalize",
					     "title", "replace", "indent", "string",
					     "safe",  "escape",  "e",      "forceescape",
					     "format" };
	const struct jstr *text = NULL, *with = NULL;
	int64_t n = -1;
	size_t i = 0;
	int rc = value_filter(x, name, v, a, v_p);
	if (rc <= 0)
		return rc;
	while (i < ARRAY_LEN(names) && strcmp(names[i], name))
		i++;
	if (i == ARRAY_LEN(names))
		return jx_fail(x, "there is no filter '%s'", name);
	TRY(jx_text(x, v, &v));
	TRY(jx_tick(x, v.s->n / 64));
	if (!strcmp(name, "trim")) {
		TRY(jx_arg_str(x, a, 0, "chars", &text));
		return jinja_strip(x, v.s, text, true, true, v_p);
	}
	if (!strcmp(name, "replace")) {
		TRY(jx_arg_str(x, a, 0, "old", &text));
		TRY(jx_arg_str(x, a, 1, "new", &with));
		TRY(jx_arg_int(x, a, 2, "count", &n));
		return text && with ? jinja_replace(x, v.s, text, with, n, v_p)
				    : jx_fail(x, "replace: needs two texts");
	}
	if (!strcmp(name, "format"))
		return jinja_format(x, v.s, a->v, a->n, v_p);
	if (!strcmp(name, "indent"))
		return f_indent(x, v.s, a, v_p);
	if (!strcmp(name, "title"))
		return f_title(x, v.s, v_p);
	if (!strcmp(name, "upper") || !strcmp(name, "lower") || !strcmp(name, "capitalize"))
		return jinja_case(x, v.s,
				  name[0] == 'u'   ? CASE_UPPER
				  : name[0] == 'l' ? CASE_LOWER
						   : CASE_CAPITAL,
				  v_p);
	if (!strcmp(name, "string") || !strcmp(name, "safe")) {
		*v_p = v;
		return 0;
	}
	return f_escape(x, v.s, v_p);
}
