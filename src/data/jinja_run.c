/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_run.c - executes a parsed template. Names are looked up in frames: a loop, a macro and a
 * block with a text of its own have one each, an `if` has none. */
#include "data/jinja_filter.h"
#include "data/jinja_method.h"
#include "data/jinja_tree.h"

#include "base/mem.h"

#include <string.h>

struct jframe {
	struct jframe *up;
	const char **name;
	struct jval *v;
	size_t n, cap;
	bool kept; /* a macro was defined in it or below it */
};

struct jmacro {
	const struct jnode *m;
	struct jframe *frame; /* where it was defined */
};

struct jloop {
	const struct jlist *l;
	size_t i;
};

struct run {
	struct jx x;
	struct js_build *out;
};

enum { GO = 0, LEAVE = 1, NEXT = 2 };

static int eval(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p);
static int exec(struct run *r, struct jframe *f, const struct jnode *n);

static int frame_new(struct run *r, struct jframe *up, struct jframe **f_p)
{
	*f_p = jx_alloc(&r->x, sizeof **f_p);
	if (!*f_p)
		return r->x.e->code;
	(*f_p)->up = up;
	return 0;
}

static int frame_set(struct run *r, struct jframe *f, const char *name, struct jval v)
{
	size_t i = 0;
	while (i < f->n && strcmp(f->name[i], name))
		i++;
	if (i == f->cap) {
		size_t cap = i ? 2 * i : 4;
		const char **names = jx_alloc(&r->x, cap * sizeof *names);
		struct jval *values = names ? jx_alloc(&r->x, cap * sizeof *values) : NULL;
		if (!values)
			return r->x.e->code;
		for (size_t k = 0; k < i; k++) {
			names[k] = f->name[k];
			values[k] = f->v[k];
		}
		f->name = names;
		f->v = values;
		f->cap = cap;
	}
	f->name[i] = name;
	f->v[i] = v;
	f->n += i == f->n;
	return 0;
}

static int method(struct run *r, const char *name, struct jval self, struct jval *v_p)
{
	struct jmethod *m = jx_alloc(&r->x, sizeof *m);
	if (!m)
		return r->x.e->code;
	*m = (struct jmethod){ name, self };
	*v_p = (struct jval){ .k = J_CALL, .p = m };
	return 0;
}

static int lookup(struct run *r, struct jframe *f, const char *name, struct jval *v_p)
{
	for (; f; f = f->up)
		for (size_t i = 0; i < f->n; i++)
			if (!strcmp(f->name[i], name)) {
				*v_p = f->v[i];
				return 0;
			}
	if (jinja_has_method(J_UNDEF, name))
		return method(r, name, J_UNDEFINED(NULL), v_p);
	*v_p = J_UNDEFINED(name);
	return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Runs `body` and gives what it writes as a string. */
static int capture(struct run *r, struct jframe *f, const struct jnode *body, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT }, *out = r->out;
	r->out = &b;
	int rc = exec(r, f, body);
	r->out = out;
	if (rc < 0)
		js_drop(&b);
	return rc < 0 ? rc : js_done(&r->x, &b, v_p);
}

static int call_macro(struct run *r, const struct jmacro *m, const struct jargs *a,
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
	TRY(frame_new(r, m->frame, &f));
	for (size_t i = 0; i < m->m->n; i++) {
		const char *name = m->m->name_of[i];
		bool given = jx_arg(a, i, name, &v);
		used += given && i >= position;
		if (!given && m->m->kid[i])
			TRY(eval(r, f, m->m->kid[i], &v));
		else if (!given)
			v = J_UNDEFINED(name);
		TRY(frame_set(r, f, name, v));
	}
	if (jx_arg(a, SIZE_MAX, "caller", &v)) {
		used++;
		TRY(frame_set(r, f, "caller", v));
	}
	if (position + used < a->n)
		return jx_fail(&r->x, "the macro '%s' has no argument '%s'", m->m->name,
			       a->name[a->n - 1]);
	return capture(r, f, m->m->a, v_p);
}

static int loop_cycle(struct run *r, const struct jloop *l, const struct jargs *a, struct jval *v_p)
{
	if (!a->n)
		return jx_fail(&r->x, "loop.cycle: needs values");
	*v_p = a->v[l->i % a->n];
	return 0;
}

static int call_value(struct run *r, struct jval callee, const struct jargs *a, struct jval *v_p)
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
static int add_arg(struct run *r, struct jargs *a, const char *name, struct jval v)
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
static int spread(struct run *r, struct jval v, bool named, struct jargs *a)
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
		const char *name =
			key.k == J_STR ? arena_strndup(&r->x.mem, key.s->p, key.s->n) : NULL;
		if (!name)
			return jx_fail(&r->x, "** needs a dict whose keys are strings");
		TRY(add_arg(r, a, name, v.d->v[i]));
	}
	return 0;
}

/* The arguments of a call, a filter or a test. */
static int arguments(struct run *r, struct jframe *f, const struct jnode *n, struct jargs *a)
{
	*a = (struct jargs){ .n = 0 };
	for (size_t i = 0; i < n->n; i++) {
		struct jval v;
		const char *name = n->name_of[i];
		TRY(eval(r, f, n->kid[i], &v));
		TRY(name && name[0] == '*' ? spread(r, v, name[1] == '*', a)
					   : add_arg(r, a, name, v));
	}
	return 0;
}

static int call(struct run *r, struct jframe *f, const struct jnode *n, const struct jval *caller,
		struct jval *v_p)
{
	struct jval callee;
	struct jargs a;
	TRY(eval(r, f, n->a, &callee));
	TRY(arguments(r, f, n, &a));
	if (caller)
		TRY(add_arg(r, &a, "caller", *caller));
	r->x.line = n->line;
	return call_value(r, callee, &a, v_p);
}

/* ---- expressions ---------------------------------------------------------------------------- */

static int loop_attr(struct run *r, const struct jloop *l, const char *name, struct jval *v_p)
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
			return 0;
		}
	if (!strcmp(name, "cycle"))
		return method(r, "cycle", (struct jval){ .k = J_LOOP, .p = l }, v_p);
	return jx_fail(&r->x, "loop.%s is not known", name);
}

static int attribute(struct run *r, struct jval v, const char *name, struct jval *v_p)
{
	struct jval key;
	if (v.k == J_LOOP)
		return loop_attr(r, v.p, name, v_p);
	if (v.k != J_UNDEF && jinja_has_method(v.k, name))
		return method(r, name, v, v_p);
	TRY(js_make(&r->x, name, strlen(name), 0, &key));
	return jx_item(&r->x, v, key, v_p);
}

static int item(struct run *r, struct jval v, struct jval key, struct jval *v_p)
{
	TRY(jx_item(&r->x, v, key, v_p));
	if (v_p->k == J_UNDEF && key.k == J_STR && jinja_has_method(v.k, v_p->p ? v_p->p : ""))
		return method(r, v_p->p, v, v_p);
	return 0;
}

/* Begin, end and step of a slice over n items, as Python's slice.indices() gives them. */
static int slice_bounds(struct run *r, struct jframe *f, const struct jnode *n, int64_t count,
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

static int slice(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval v;
	struct jlist *l;
	int64_t b[3];
	TRY(eval(r, f, n->a, &v));
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

static int compare_two(struct run *r, const char *op, struct jval a, struct jval b, bool *yes_p)
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

static int compare(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval left, right;
	bool yes = true;
	TRY(eval(r, f, n->kid[0], &left));
	for (size_t i = 1; i < n->n && yes; i++) {
		TRY(eval(r, f, n->kid[i], &right));
		TRY(compare_two(r, n->name_of[i], left, right, &yes));
		left = right;
	}
	*v_p = J_TRUTH(yes);
	return 0;
}

static int literal(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jval key, v;
	TRY(n->kind == JN_DICT ? jd_new(&r->x, v_p) : jl_new(&r->x, v_p));
	for (size_t i = 0; i < n->n; i++) {
		TRY(eval(r, f, n->kid[i], &v));
		if (n->kind != JN_DICT) {
			TRY(jl_add(&r->x, v_p->l, v));
			continue;
		}
		key = v;
		TRY(eval(r, f, n->kid[++i], &v));
		TRY(jd_set(&r->x, v_p->d, key, v));
	}
	if (n->kind == JN_TUPLE)
		v_p->k = J_TUPLE;
	return 0;
}

static int sign(struct run *r, struct jval v, bool minus, struct jval *v_p)
{
	if (!jx_is_number(v))
		return jx_fail(&r->x, "%s has no sign", jx_kind(v));
	return minus ? jinja_math(&r->x, OP_SUB, J_NUMBER(0), v, v_p)
		     : jinja_math(&r->x, OP_ADD, v, J_NUMBER(0), v_p);
}

static int test(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	struct jargs a;
	struct jval v;
	bool yes;
	TRY(eval(r, f, n->a, &v));
	TRY(arguments(r, f, n, &a));
	r->x.line = n->line;
	TRY(jinja_test(&r->x, n->name, v, &a, &yes));
	*v_p = J_TRUTH(yes);
	return 0;
}

static int filter(struct run *r, struct jframe *f, const struct jnode *n, struct jval v,
		  struct jval *v_p)
{
	struct jargs a;
	TRY(arguments(r, f, n, &a));
	r->x.line = n->line;
	return jinja_filter(&r->x, n->name, v, &a, v_p);
}

static int eval_node(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
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
		return jx_true(b) ? eval(r, f, n->a, v_p) : n->c ? eval(r, f, n->c, v_p) : 0;
	default:
		break;
	}
	TRY(eval(r, f, n->a, &a));
	r->x.line = n->line;
	switch (n->kind) {
	case JN_ATTR:
		return attribute(r, a, n->name, v_p);
	case JN_FILTER:
		return filter(r, f, n, a, v_p);
	case JN_NOT:
		*v_p = J_TRUTH(!jx_true(a));
		return 0;
	case JN_NEG:
	case JN_POS:
		return sign(r, a, n->kind == JN_NEG, v_p);
	case JN_AND:
	case JN_OR:
		*v_p = a;
		return jx_true(a) == (n->kind == JN_AND) ? eval(r, f, n->b, v_p) : 0;
	case JN_ITEM:
		TRY(eval(r, f, n->b, &b));
		return item(r, a, b, v_p);
	case JN_MATH:
		TRY(eval(r, f, n->b, &b));
		r->x.line = n->line;
		return jinja_math(&r->x, n->op, a, b, v_p);
	default:
		return err_set(r->x.e, ERR_INTERNAL, "chat template: line %u: a node of kind %d",
			       n->line, n->kind);
	}
}

static int eval(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v_p)
{
	TRY(jx_enter(&r->x));
	int rc = eval_node(r, f, n, v_p);
	jx_leave(&r->x);
	return rc;
}

/* ---- statements ----------------------------------------------------------------------------- */

static int assign(struct run *r, struct jframe *f, const struct jnode *t, struct jval v)
{
	struct jval space, key;
	if (t->kind == JN_NAME)
		return frame_set(r, f, t->name, v);
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
static int chosen(struct run *r, struct jframe *f, const struct jnode *n, struct jlist **l_p)
{
	struct jval list, yes;
	struct jframe *own;
	TRY(jl_new(&r->x, &list));
	for (size_t i = 0; i < (*l_p)->n; i++) {
		TRY(frame_new(r, f, &own));
		TRY(assign(r, own, n->a, (*l_p)->v[i]));
		TRY(eval(r, own, n->c, &yes));
		if (jx_true(yes))
			TRY(jl_add(&r->x, list.l, (*l_p)->v[i]));
	}
	*l_p = list.l;
	return 0;
}

static int loop(struct run *r, struct jframe *f, const struct jnode *n)
{
	struct jval over;
	struct jlist *l;
	struct jloop *state = jx_alloc(&r->x, sizeof *state);
	if (!state)
		return r->x.e->code;
	TRY(eval(r, f, n->b, &over));
	r->x.line = n->line;
	TRY(jx_items(&r->x, over, &l));
	if (n->c)
		TRY(chosen(r, f, n, &l));
	state->l = l;
	struct jframe *own = NULL;
	for (size_t i = 0; i < l->n; i++) {
		state->i = i;
		if (own && !own->kept)
			own->n = 0;
		else
			TRY(frame_new(r, f, &own));
		TRY(frame_set(r, own, "loop", (struct jval){ .k = J_LOOP, .p = state }));
		TRY(assign(r, own, n->a, l->v[i]));
		int rc = exec(r, own, n->kid[0]);
		if (rc < 0)
			return rc;
		if (rc == LEAVE)
			return GO;
	}
	if (!l->n && n->kid[1]) {
		TRY(frame_new(r, f, &own));
		return exec(r, own, n->kid[1]);
	}
	return GO;
}

/* Applies the filters of a block to its text; the innermost has no operand of its own. */
static int block_filters(struct run *r, struct jframe *f, const struct jnode *n, struct jval *v)
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

static int block(struct run *r, struct jframe *f, const struct jnode *n)
{
	struct jframe *own;
	struct jval v, w;
	struct jmacro *m;
	switch (n->kind) {
	case JN_SET_BLOCK:
		TRY(frame_new(r, f, &own));
		TRY(capture(r, own, n->kid[0], &v));
		if (n->b)
			TRY(block_filters(r, f, n->b, &v));
		return assign(r, f, n->a, v);
	case JN_FILTER_BLOCK:
		TRY(frame_new(r, f, &own));
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
			return frame_set(r, f, n->name, v);
		TRY(call(r, f, n->a, &v, &w));
		return jx_put(&r->x, r->out, w, false);
	default: /* JN_WITH */
		TRY(frame_new(r, f, &own));
		for (size_t i = 0; i < n->n; i += 2) {
			TRY(eval(r, f, n->kid[i + 1], &v));
			TRY(assign(r, own, n->kid[i], v));
		}
		return exec(r, own, n->a);
	}
}

static int exec_node(struct run *r, struct jframe *f, const struct jnode *n)
{
	struct jval v;
	int rc = GO;
	switch (n->kind) {
	case JN_DATA:
		return js_put(&r->x, r->out, &n->text);
	case JN_PRINT:
		TRY(eval(r, f, n->a, &v));
		r->x.line = n->line;
		return jx_put(&r->x, r->out, v, false);
	case JN_SEQ:
		for (size_t i = 0; i < n->n && rc == GO; i++)
			rc = exec(r, f, n->kid[i]);
		return rc;
	case JN_IF:
		for (; n && n->kind == JN_IF; n = n->c) {
			TRY(eval(r, f, n->a, &v));
			if (jx_true(v))
				return exec(r, f, n->b);
		}
		return n ? exec(r, f, n) : GO;
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

static int exec(struct run *r, struct jframe *f, const struct jnode *n)
{
	TRY(jx_enter(&r->x));
	r->x.line = n->line;
	int rc = exec_node(r, f, n);
	jx_leave(&r->x);
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int set_var(struct run *r, struct jframe *f, const struct jinja_var *var)
{
	struct jval v, item_of, text;
	json_t *part;
	size_t i;
	if (!var->v)
		return 0;
	if (!var->each) {
		TRY(jx_from_json(&r->x, var->v, var->source, &v));
		return frame_set(r, f, var->name, v);
	}
	TRY(jl_new(&r->x, &v));
	json_array_foreach(var->v, i, part)
	{
		TRY(jx_from_json(&r->x, part, (uint16_t)(var->source + i), &item_of));
		if (var->plain && item_of.k == J_DICT && jd_find(item_of.d, var->plain, &text) &&
		    text.k == J_STR)
			((struct jstr *)text.s)->all = 0;
		TRY(jl_add(&r->x, v.l, item_of));
	}
	return frame_set(r, f, var->name, v);
}

int jinja_render(const struct jinja *j, const struct jinja_var *var, size_t nvar,
		 struct jinja_text *out, struct err *e)
{
	struct js_build b = { .t = *out };
	struct run r = { .x = { .mem = ARENA_INIT, .line = 1, .e = e }, .out = &b };
	struct jframe *root;
	int rc;
	TRYOUT(frame_new(&r, NULL, &root));
	for (size_t i = 0; i < nvar; i++)
		TRYOUT(set_var(&r, root, &var[i]));
	TRYOUT(exec(&r, root, j->root));
	rc = 0;
out:
	*out = b.t;
	arena_release(&r.x.mem);
	return rc;
}
