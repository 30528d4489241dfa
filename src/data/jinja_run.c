/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_run.c - see jinja_run.h: executes a parsed template. Names are looked up in frames: a loop,
 * a macro and a block with a text of its own have one each, an `if` has none. */
#include "data/jinja_run.h"

#include "data/jinja_filter.h"
#include "data/jinja_method.h"

#include "base/mem.h"

#include <string.h>

struct jmacro {
	const struct jnode *m;
	struct jframe *frame; /* where it was defined */
};

struct jloop {
	const struct jlist *l;
	size_t i;
	size_t first; /* of the turns, in a loop with marks */
	bool marks;
};

enum { GO = 0, LEAVE = 1, NEXT = 2 };

static int eval(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p);
static int eval_list(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p);

/* What was read is the same with `turns` turns or more. */
static void needs(struct jrun *r, size_t turns) { r->need = turns > r->need ? turns : r->need; }

/* The turns as any other list. */
static int list_of(struct jrun *r, struct jval *v)
{
	if (v->k != J_TURNS)
		return 0;
	struct jlist *l = jx_alloc(&r->x, sizeof *l);
	if (!l)
		return r->x.e->code;
	l->v = r->turns.v + v->i;
	l->n = l->cap = r->turns.n - (size_t)v->i;
	*v = (struct jval){ .k = J_LIST, .l = l };
	return 0;
}

/* The same where what comes of it may depend on all of them. */
static int as_list(struct jrun *r, struct jval *v)
{
	if (v->k == J_TURNS)
		needs(r, SIZE_MAX);
	return list_of(r, v);
}

static bool truth(struct jrun *r, struct jval v)
{
	if (v.k != J_TURNS)
		return jx_true(v);
	needs(r, (size_t)v.i + 1); /* where there is none: more than there are */
	return (size_t)v.i < r->turns.n;
}

static int method(struct jrun *r, const char *name, struct jval self, struct jval *v_p)
{
	struct jmethod *m = jx_alloc(&r->x, sizeof *m);
	if (!m)
		return r->x.e->code;
	*m = (struct jmethod){ name, self };
	*v_p = (struct jval){ .k = J_CALL, .p = m };
	return 0;
}

static int lookup(struct jrun *r, struct jframe *f, const char *name, struct jval *v_p)
{
	size_t seen = 0;
	for (; f; f = f->up) {
		seen += 1 + f->n;
		for (size_t i = 0; i < f->n; i++)
			if (!strcmp(f->name[i], name)) {
				*v_p = f->v[i];
				return jx_tick(&r->x, seen / 4);
			}
	}
	TRY(jx_tick(&r->x, seen / 4));
	if (jinja_has_method(J_UNDEF, name))
		return method(r, name, J_UNDEFINED(NULL), v_p);
	*v_p = J_UNDEFINED(name);
	return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Runs `body` and gives what it writes as a string. */
static int capture(struct jrun *r, struct jframe *f, const struct jnode *body, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT }, *out = r->out;
	r->out = &b;
	int rc = jrun_exec(r, f, body);
	r->out = out;
	if (rc < 0)
		js_drop(&b);
	return rc < 0 ? rc : js_done(&r->x, &b, v_p);
}

static int call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *a,
		      struct jval *v_p)
{
	struct jframe *f;
	size_t used = 0, position = 0;
	struct jval v;
	while (position < a->n && !a->name[position])
		position++;
	if (position > m->m->n)
		return jx_fail(&r->x, "the macro '%s' takes %zu values, not %zu", m->m->name,
			       m->m->n, position);
	TRY(jx_tick(&r->x, m->m->n * (1 + a->n / 16)));
	TRY(jframe_new(&r->x, m->frame, &f));
	for (size_t i = 0; i < m->m->n; i++) {
		const char *name = m->m->name_of[i];
		bool given = jx_arg(a, i, name, &v);
		used += given && i >= position;
		if (!given && m->m->kid[i])
			TRY(eval(r, f, m->m->kid[i], &v));
		else if (!given)
			v = J_UNDEFINED(name);
		TRY(jframe_set(&r->x, f, name, v));
	}
	if (jx_arg(a, SIZE_MAX, "caller", &v)) {
		used++;
		TRY(jframe_set(&r->x, f, "caller", v));
	}
	if (position + used < a->n)
		return jx_fail(&r->x, "the macro '%s' has no argument '%s'", m->m->name,
			       a->name[a->n - 1]);
	return capture(r, f, m->m->a, v_p);
}

static int loop_cycle(struct jrun *r, const struct jloop *l, const struct jargs *a,
		      struct jval *v_p)
{
	if (!a->n)
		return jx_fail(&r->x, "loop.cycle: needs values");
	*v_p = a->v[l->i % a->n];
	return 0;
}

static int call_value(struct jrun *r, struct jval callee, const struct jargs *a, struct jval *v_p)
{
	if (callee.k == J_MACRO)
		return call_macro(r, callee.p, a, v_p);
	if (callee.k == J_UNDEF)
		return jx_fail(&r->x, "'%s' is not defined, so it cannot be called",
			       callee.p ? (const char *)callee.p : "a value");
	if (callee.k != J_CALL)
		return jx_fail(&r->x, "%s cannot be called", jx_kind(callee));
	const struct jmethod *m = callee.p;
	if (m->self.k == J_LOOP)
		return loop_cycle(r, m->self.p, a, v_p);
	return jinja_method(&r->x, m, a, v_p);
}

/* One more argument; names are few, so the arrays are made anew. */
static int add_arg(struct jrun *r, struct jargs *a, const char *name, struct jval v)
{
	struct jval *values = jx_alloc(&r->x, (a->n + 1) * sizeof *values);
	const char **names = values ? jx_alloc(&r->x, (a->n + 1) * sizeof *names) : NULL;
	if (!names)
		return r->x.e->code;
	for (size_t i = 0; i < a->n; i++) {
		values[i] = a->v[i];
		names[i] = a->name[i];
	}
	values[a->n] = v;
	names[a->n] = name;
	*a = (struct jargs){ values, names, a->n + 1 };
	return 0;
}

/* f(*list), f(**dict) */
static int spread(struct jrun *r, struct jval v, bool named, struct jargs *a)
{
	struct jlist *l;
	if (!named) {
		TRY(jx_items(&r->x, v, &l));
		for (size_t i = 0; i < l->n; i++)
			TRY(add_arg(r, a, NULL, l->v[i]));
		return 0;
	}
	if (v.k != J_DICT)
		return jx_fail(&r->x, "** needs a dict, not %s", jx_kind(v));
	for (size_t i = 0; i < v.d->n; i++) {
		const struct jval key = v.d->key[i];
		if (key.k != J_STR)
			return jx_fail(&r->x, "** needs a dict whose keys are strings");
		const char *name = jx_word(&r->x, key.s, SIZE_MAX);
		if (!name)
			return r->x.e->code;
		TRY(add_arg(r, a, name, v.d->v[i]));
	}
	return 0;
}

/* The arguments of a call, a filter or a test. */
static int arguments(struct jrun *r, struct jframe *f, const struct jnode *n, struct jargs *a)
{
	*a = (struct jargs){ .n = 0 };
	for (size_t i = 0; i < n->n; i++) {
		struct jval v;
		const char *name = n->name_of[i];
		TRY(eval_list(r, f, n->kid[i], &v));
		TRY(name && name[0] == '*' ? spread(r, v, name[1] == '*', a)
					   : add_arg(r, a, name, v));
	}
	return 0;
}

static int call(struct jrun *r, struct jframe *f, const struct jnode *n, const struct jval *caller,
		struct jval *v_p)
{
	struct jval callee;
	struct jargs a;
	TRY(eval_list(r, f, n->a, &callee));
	TRY(arguments(r, f, n, &a));
	if (caller)
		TRY(add_arg(r, &a, "caller", *caller));
	r->x.line = n->line;
	return call_value(r, callee, &a, v_p);
}

/* ---- expressions ---------------------------------------------------------------------------- */

/* How many turns there must be for loop.`name` to be what it is. */
static size_t loop_needs(const struct jloop *l, const char *name)
{
	static const char *const fixed[] = { "index", "index0", "first",
					     "depth", "depth0", "previtem" };
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		if (!strcmp(name, fixed[i]))
			return 0;
	const bool next =
		(!strcmp(name, "last") || !strcmp(name, "nextitem")) && l->i + 1 < l->l->n;
	return next ? l->first + l->i + 2 : SIZE_MAX;
}

static int loop_attr(struct jrun *r, const struct jloop *l, const char *name, struct jval *v_p)
{
	int64_t i = (int64_t)l->i, n = (int64_t)l->l->n;
	const struct {
		const char *name;
		struct jval v;
	} attr[] = { { "index", J_NUMBER(i + 1) },
		     { "index0", J_NUMBER(i) },
		     { "revindex", J_NUMBER(n - i) },
		     { "revindex0", J_NUMBER(n - i - 1) },
		     { "first", J_TRUTH(i == 0) },
		     { "last", J_TRUTH(i == n - 1) },
		     { "length", J_NUMBER(n) },
		     { "depth", J_NUMBER(1) },
		     { "depth0", J_NUMBER(0) },
		     { "previtem", i ? l->l->v[i - 1] : J_UNDEFINED("loop.previtem") },
		     { "nextitem", i + 1 < n ? l->l->v[i + 1] : J_UNDEFINED("loop.nextitem") } };
	for (size_t k = 0; k < ARRAY_LEN(attr); k++)
		if (!strcmp(attr[k].name, name)) {
			*v_p = attr[k].v;
			if (l->marks)
				needs(r, loop_needs(l, name));
			return 0;
		}
	if (!strcmp(name, "cycle"))
		return method(r, "cycle", (struct jval){ .k = J_LOOP, .p = l }, v_p);
	return jx_fail(&r->x, "loop.%s is not known", name);
}

static int attribute(struct jrun *r, struct jval v, const char *name, struct jval *v_p)
{
	struct jval key;
	if (v.k == J_LOOP)
		return loop_attr(r, v.p, name, v_p);
	if (v.k != J_UNDEF && jinja_has_method(v.k, name))
		return method(r, name, v, v_p);
	TRY(js_make(&r->x, name, strlen(name), 0, &key));
	return jx_item(&r->x, v, key, v_p);
}

static int item(struct jrun *r, struct jval v, struct jval key, struct jval *v_p)
{
	if (v.k == J_TURNS && key.k == J_INT && key.i >= 0) {
		const size_t left = r->turns.n - (size_t)v.i, i = (size_t)key.i;
		/* one that is not there is not there with fewer turns either */
		needs(r, i < left ? (size_t)v.i + i + 1 : 0);
		TRY(list_of(r, &v));
	}
	TRY(as_list(r, &v));
	TRY(jx_item(&r->x, v, key, v_p));
	if (v_p->k == J_UNDEF && key.k == J_STR && jinja_has_method(v.k, v_p->p ? v_p->p : ""))
		return method(r, v_p->p, v, v_p);
	return 0;
}

/* Begin, end and step of a slice over n items, as Python's slice.indices() gives them. */
static int slice_bounds(struct jrun *r, struct jframe *f, const struct jnode *n, int64_t count,
			int64_t b[3])
{
	bool given[3];
	for (int i = 0; i < 3; i++) {
		struct jval v = J_NOTHING;
		if (n->kid[i])
			TRY(eval(r, f, n->kid[i], &v));
		given[i] = v.k != J_NONE;
		if (given[i] && v.k != J_INT)
			return jx_fail(&r->x, "a slice needs whole numbers, not %s", jx_kind(v));
		b[i] = given[i] ? v.i : 0;
	}
	b[2] = given[2] ? b[2] : 1;
	if (!b[2] || b[2] == INT64_MIN)
		return jx_fail(&r->x, "the step of a slice is 0");
	int64_t low = b[2] > 0 ? 0 : -1, high = b[2] > 0 ? count : count - 1;
	for (int i = 0; i < 2; i++) {
		if (!given[i])
			b[i] = (b[2] > 0) == (i == 0) ? low : high;
		else if (b[i] < 0)
			b[i] += count;
		b[i] = b[i] < low ? low : b[i] > high ? high : b[i];
	}
	return 0;
}

static int slice(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval v;
	struct jlist *l;
	int64_t b[3];
	TRY(eval(r, f, n->a, &v));
	if (v.k == J_TURNS && n->kid[0] && n->kid[0]->kind == JN_CONST && !n->kid[1] &&
	    !n->kid[2] && n->kid[0]->v.k == J_INT && n->kid[0]->v.i >= 0 &&
	    (size_t)n->kid[0]->v.i <= r->turns.n - (size_t)v.i) {
		*v_p = (struct jval){ .k = J_TURNS, .i = v.i + n->kid[0]->v.i };
		needs(r, (size_t)v_p->i);
		return 0;
	}
	TRY(as_list(r, &v));
	if (v.k == J_DICT || v.k == J_UNDEF)
		return jx_fail(&r->x, "%s has no slices", jx_kind(v));
	if (v.k == J_STR) {
		int64_t count = (int64_t)js_length(v.s);
		TRY(jx_tick(&r->x, v.s->n / 64));
		TRY(slice_bounds(r, f, n, count, b));
		if (b[2] == 1) {
			size_t from = js_offset(v.s, (size_t)b[0]);
			size_t to = b[1] > b[0] ? js_offset(v.s, (size_t)b[1]) : from;
			return js_part(&r->x, v.s, from, to, v_p);
		}
		TRY(jx_items(&r->x, v, &l));
	} else {
		TRY(jx_items(&r->x, v, &l));
		TRY(slice_bounds(r, f, n, (int64_t)l->n, b));
	}
	TRY(jl_new(&r->x, v_p));
	for (int64_t i = b[0]; b[2] > 0 ? i < b[1] : i > b[1];) {
		TRY(jl_add(&r->x, v_p->l, l->v[i]));
		if (__builtin_add_overflow(i, b[2], &i))
			break;
	}
	if (v.k == J_STR)
		return jinja_join(&r->x, v_p->l, &(const struct jstr){ .p = "" }, v_p);
	v_p->k = v.k;
	return 0;
}

static int compare_two(struct jrun *r, const char *op, struct jval a, struct jval b, bool *yes_p)
{
	int o;
	if (op[0] == 'i' || op[0] == 'n') {
		TRY(jx_in(&r->x, a, b, yes_p));
		*yes_p = *yes_p == (op[0] == 'i');
		return 0;
	}
	if (op[0] == '=' || op[0] == '!') {
		TRY(jx_equal(&r->x, a, b, yes_p));
		*yes_p = *yes_p == (op[0] == '=');
		return 0;
	}
	TRY(jx_order(&r->x, a, b, &o));
	*yes_p = (op[0] == '<' ? o < 0 : o > 0) || (op[1] == '=' && !o);
	return 0;
}

static int compare(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval left, right;
	bool yes = true;
	TRY(eval_list(r, f, n->kid[0], &left));
	for (size_t i = 1; i < n->n && yes; i++) {
		TRY(eval_list(r, f, n->kid[i], &right));
		TRY(compare_two(r, n->name_of[i], left, right, &yes));
		left = right;
	}
	*v_p = J_TRUTH(yes);
	return 0;
}

static int literal(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval key, v;
	TRY(n->kind == JN_DICT ? jd_new(&r->x, v_p) : jl_new(&r->x, v_p));
	for (size_t i = 0; i < n->n; i++) {
		TRY(eval_list(r, f, n->kid[i], &v));
		if (n->kind != JN_DICT) {
			TRY(jl_add(&r->x, v_p->l, v));
			continue;
		}
		key = v;
		TRY(eval_list(r, f, n->kid[++i], &v));
		TRY(jd_set(&r->x, v_p->d, key, v));
	}
	if (n->kind == JN_TUPLE)
		v_p->k = J_TUPLE;
	return 0;
}

static int sign(struct jrun *r, struct jval v, bool minus, struct jval *v_p)
{
	if (!jx_is_number(v))
		return jx_fail(&r->x, "%s has no sign", jx_kind(v));
	return minus ? jinja_math(&r->x, OP_SUB, J_NUMBER(0), v, v_p)
		     : jinja_math(&r->x, OP_ADD, v, J_NUMBER(0), v_p);
}

static int test(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jargs a;
	struct jval v;
	bool yes;
	TRY(eval(r, f, n->a, &v));
	if (!strcmp(n->name, "defined") || !strcmp(n->name, "undefined") ||
	    !strcmp(n->name, "none") || !strcmp(n->name, "string"))
		TRY(list_of(r, &v)); /* a list is a list */
	TRY(as_list(r, &v));
	TRY(arguments(r, f, n, &a));
	r->x.line = n->line;
	TRY(jinja_test(&r->x, n->name, v, &a, &yes));
	*v_p = J_TRUTH(yes);
	return 0;
}

static int filter(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval v,
		  struct jval *v_p)
{
	struct jargs a;
	TRY(arguments(r, f, n, &a));
	r->x.line = n->line;
	return jinja_filter(&r->x, n->name, v, &a, v_p);
}

static int eval_node(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval a, b;
	switch (n->kind) {
	case JN_CONST:
		*v_p = n->v;
		return 0;
	case JN_NAME:
		return lookup(r, f, n->name, v_p);
	case JN_LIST:
	case JN_TUPLE:
	case JN_DICT:
		return literal(r, f, n, v_p);
	case JN_COMPARE:
		return compare(r, f, n, v_p);
	case JN_CALL:
		return call(r, f, n, NULL, v_p);
	case JN_SLICE:
		return slice(r, f, n, v_p);
	case JN_TEST:
		return test(r, f, n, v_p);
	case JN_COND:
		TRY(eval(r, f, n->b, &b));
		*v_p = J_UNDEFINED(NULL);
		return truth(r, b) ? eval(r, f, n->a, v_p) : n->c ? eval(r, f, n->c, v_p) : 0;
	default:
		break;
	}
	TRY(eval(r, f, n->a, &a));
	if (n->kind == JN_ATTR || n->kind == JN_FILTER || n->kind == JN_NEG || n->kind == JN_POS ||
	    n->kind == JN_MATH)
		TRY(as_list(r, &a));
	r->x.line = n->line;
	switch (n->kind) {
	case JN_ATTR:
		return attribute(r, a, n->name, v_p);
	case JN_FILTER:
		return filter(r, f, n, a, v_p);
	case JN_NOT:
		*v_p = J_TRUTH(!truth(r, a));
		return 0;
	case JN_NEG:
	case JN_POS:
		return sign(r, a, n->kind == JN_NEG, v_p);
	case JN_AND:
	case JN_OR:
		*v_p = a;
		return truth(r, a) == (n->kind == JN_AND) ? eval(r, f, n->b, v_p) : 0;
	case JN_ITEM:
		TRY(eval_list(r, f, n->b, &b));
		return item(r, a, b, v_p);
	case JN_MATH:
		TRY(eval_list(r, f, n->b, &b));
		r->x.line = n->line;
		return jinja_math(&r->x, n->op, a, b, v_p);
	default:
		return err_set(r->x.e, ERR_INTERNAL, "chat template: line %u: a node of kind %d",
			       n->line, n->kind);
	}
}

static int eval(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	TRY(jx_enter(&r->x));
	int rc = eval_node(r, f, n, v_p);
	jx_leave(&r->x);
	return rc;
}

static int eval_list(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	TRY(eval(r, f, n, v_p));
	return as_list(r, v_p);
}

/* ---- statements ----------------------------------------------------------------------------- */

static int assign(struct jrun *r, struct jframe *f, const struct jnode *t, struct jval v)
{
	struct jval space, key;
	if (t->kind == JN_NAME)
		return jframe_set(&r->x, f, t->name, v);
	TRY(as_list(r, &v));
	if (t->kind == JN_ATTR) {
		TRY(eval(r, f, t->a, &space));
		if (space.k != J_SPACE)
			return jx_fail(&r->x, "only a member of a namespace can be set, not of %s",
				       jx_kind(space));
		TRY(js_make(&r->x, t->name, strlen(t->name), 0, &key));
		return jd_set(&r->x, space.d, key, v);
	}
	struct jlist *l;
	TRY(jx_items(&r->x, v, &l));
	if (l->n != t->n)
		return jx_fail(&r->x, "%zu values for %zu names", l->n, t->n);
	for (size_t i = 0; i < t->n; i++)
		TRY(assign(r, f, t->kid[i], l->v[i]));
	return 0;
}

/* The items that pass the loop's condition. */
static int chosen(struct jrun *r, struct jframe *f, const struct jnode *n, struct jlist **l_p)
{
	struct jval list, yes;
	struct jframe *own;
	TRY(jl_new(&r->x, &list));
	for (size_t i = 0; i < (*l_p)->n; i++) {
		TRY(jframe_new(&r->x, f, &own));
		TRY(assign(r, own, n->a, (*l_p)->v[i]));
		TRY(eval(r, own, n->c, &yes));
		if (truth(r, yes))
			TRY(jl_add(&r->x, list.l, (*l_p)->v[i]));
	}
	*l_p = list.l;
	return 0;
}

/* The loop over `l` from number i on, whose items are in `state` too. */
static int loop_items(struct jrun *r, struct jframe *f, const struct jnode *n, struct jloop *state,
		      size_t i, const struct jmark_loop *marks)
{
	const struct jlist *l = state->l;
	struct jframe *own = NULL;
	struct jdict *spaces = r->x.spaces;
	for (; i < l->n; i++) {
		state->i = i;
		if (marks) {
			r->x.spaces = spaces; /* those of a turn end with it */
			TRY(jmarks_add(r, marks, i));
			needs(r, marks->first + i + 1);
		}
		if (own && !own->kept)
			own->n = 0;
		else
			TRY(jframe_new(&r->x, f, &own));
		TRY(jframe_set(&r->x, own, "loop", (struct jval){ .k = J_LOOP, .p = state }));
		TRY(assign(r, own, n->a, l->v[i]));
		int rc = jrun_exec(r, own, n->kid[0]);
		if (rc < 0)
			return rc;
		if (rc == LEAVE)
			return GO;
	}
	if (marks) {
		TRY(jmarks_add(r, marks, l->n));
		needs(r, SIZE_MAX);
	}
	if (!l->n && n->kid[1]) {
		TRY(jframe_new(&r->x, f, &own));
		return jrun_exec(r, own, n->kid[1]);
	}
	return GO;
}

static int loop(struct jrun *r, struct jframe *f, const struct jnode *n)
{
	struct jval over;
	struct jlist *l;
	struct jmark_loop *marks = NULL;
	struct jloop *state = jx_alloc(&r->x, sizeof *state);
	if (!state)
		return r->x.e->code;
	TRY(eval(r, f, n->b, &over));
	r->x.line = n->line;
	if (over.k == J_TURNS && r->marks && f == r->root && !n->c) {
		state->marks = true;
		state->first = (size_t)over.i;
		TRY(jmarks_loop(r, n, state->first, &marks));
		TRY(list_of(r, &over));
	}
	TRY(as_list(r, &over));
	TRY(jx_items(&r->x, over, &l));
	if (n->c)
		TRY(chosen(r, f, n, &l));
	state->l = l;
	return loop_items(r, f, n, state, 0, marks);
}

int jrun_turns(struct jrun *r, const struct jnode *n, size_t first, size_t i)
{
	struct jval over = { .k = J_TURNS, .i = (int64_t)first };
	struct jloop *state = jx_alloc(&r->x, sizeof *state);
	if (!state)
		return r->x.e->code;
	TRY(list_of(r, &over));
	state->l = over.l;
	return loop_items(r, r->root, n, state, i, NULL);
}

/* Applies the filters of a block to its text; the innermost has no operand of its own. */
static int block_filters(struct jrun *r, struct jframe *f, const struct jnode *n, struct jval *v)
{
	struct jval in = *v;
	TRY(jx_enter(&r->x));
	if (n->a)
		TRY(block_filters(r, f, n->a, &in));
	jx_leave(&r->x);
	if (n->kind != JN_FILTER)
		return jx_fail(&r->x, "only filters can follow here");
	return filter(r, f, n, in, v);
}

static int block(struct jrun *r, struct jframe *f, const struct jnode *n)
{
	struct jframe *own;
	struct jval v, w;
	struct jmacro *m;
	switch (n->kind) {
	case JN_SET_BLOCK:
		TRY(jframe_new(&r->x, f, &own));
		TRY(capture(r, own, n->kid[0], &v));
		if (n->b)
			TRY(block_filters(r, f, n->b, &v));
		return assign(r, f, n->a, v);
	case JN_FILTER_BLOCK:
		TRY(jframe_new(&r->x, f, &own));
		TRY(capture(r, own, n->a, &v));
		TRY(block_filters(r, f, n->b, &v));
		return jx_put(&r->x, r->out, v, false);
	case JN_MACRO:
	case JN_CALL_BLOCK:
		m = jx_alloc(&r->x, sizeof *m);
		if (!m)
			return r->x.e->code;
		*m = (struct jmacro){ n->kind == JN_MACRO ? n : n->b, f };
		for (own = f; own; own = own->up)
			own->kept = true;
		v = (struct jval){ .k = J_MACRO, .p = m };
		if (n->kind == JN_MACRO)
			return jframe_set(&r->x, f, n->name, v);
		TRY(call(r, f, n->a, &v, &w));
		return jx_put(&r->x, r->out, w, false);
	default: /* JN_WITH */
		TRY(jframe_new(&r->x, f, &own));
		for (size_t i = 0; i < n->n; i += 2) {
			TRY(eval(r, f, n->kid[i + 1], &v));
			TRY(assign(r, own, n->kid[i], v));
		}
		return jrun_exec(r, own, n->a);
	}
}

static int sequence(struct jrun *r, struct jframe *f, const struct jnode *n)
{
	struct jpath here = { r->path, n, 0 };
	int rc = GO;
	for (; here.i < n->n && rc == GO; here.i++) {
		if (f == r->root)
			r->path = &here;
		rc = jrun_exec(r, f, n->kid[here.i]);
	}
	if (f == r->root)
		r->path = here.up;
	return rc;
}

static int exec_node(struct jrun *r, struct jframe *f, const struct jnode *n)
{
	struct jval v;
	switch (n->kind) {
	case JN_DATA:
		return js_put(&r->x, r->out, &n->text);
	case JN_PRINT:
		TRY(eval_list(r, f, n->a, &v));
		r->x.line = n->line;
		return jx_put(&r->x, r->out, v, false);
	case JN_SEQ:
		return sequence(r, f, n);
	case JN_IF:
		for (; n && n->kind == JN_IF; n = n->c) {
			TRY(eval(r, f, n->a, &v));
			if (truth(r, v))
				return jrun_exec(r, f, n->b);
		}
		return n ? jrun_exec(r, f, n) : GO;
	case JN_FOR:
		return loop(r, f, n);
	case JN_SET:
		TRY(eval(r, f, n->b, &v));
		r->x.line = n->line;
		return assign(r, f, n->a, v);
	case JN_BREAK:
		return LEAVE;
	case JN_CONTINUE:
		return NEXT;
	default:
		return block(r, f, n);
	}
}

int jrun_exec(struct jrun *r, struct jframe *f, const struct jnode *n)
{
	TRY(jx_enter(&r->x));
	r->x.line = n->line;
	int rc = exec_node(r, f, n);
	jx_leave(&r->x);
	return rc;
}
