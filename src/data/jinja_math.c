/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_math.c - the operators + - * / // % ** ~, as Python has them. */
#include "data/jinja_method.h"
#include "data/jinja_tree.h"

#include <math.h>

static int join_two(struct jx *x, struct jval a, struct jval b, struct jval *v_p)
{
	struct js_build t = { .t.text = BUF_INIT };
	int rc;
	TRYOUT(jx_put(x, &t, a, false));
	TRYOUT(jx_put(x, &t, b, false));
	return js_done(x, &t, v_p);
out:
	js_drop(&t);
	return rc;
}

static int repeat(struct jx *x, struct jval a, int64_t times, struct jval *v_p)
{
	struct js_build t = { .t.text = BUF_INIT };
	struct jval list;
	if (a.k != J_STR) {
		TRY(jl_new(x, &list));
		for (int64_t i = 0; i < times && a.l->n; i++)
			for (size_t k = 0; k < a.l->n; k++)
				TRY(jl_add(x, list.l, a.l->v[k]));
		*v_p = list;
		return 0;
	}
	for (int64_t i = 0; i < times && a.s->n; i++) {
		int rc = js_put(x, &t, a.s);
		if (rc < 0) {
			js_drop(&t);
			return rc;
		}
	}
	return js_done(x, &t, v_p);
}

static int whole_math(struct jx *x, enum jop op, int64_t a, int64_t b, struct jval *v_p)
{
	int64_t out = 0;
	bool over = false;
	if ((op == OP_FLOOR || op == OP_MOD) && !b)
		return jx_fail(x, "a division by zero");
	switch (op) {
	case OP_ADD:
		over = __builtin_add_overflow(a, b, &out);
		break;
	case OP_SUB:
		over = __builtin_sub_overflow(a, b, &out);
		break;
	case OP_MUL:
		over = __builtin_mul_overflow(a, b, &out);
		break;
	case OP_FLOOR:
		over = a == INT64_MIN && b == -1;
		if (!over)
			out = a / b - (a % b && (a < 0) != (b < 0));
		break;
	case OP_MOD:
		out = b == -1 ? 0 : a % b;
		out += out && (out < 0) != (b < 0) ? b : 0;
		break;
	default: /* OP_POW, b >= 0 */
		for (out = 1; b > 0 && !over; b--) {
			over = __builtin_mul_overflow(out, a, &out);
			if (out == 0 || out == 1 || (a == -1 && b > 2))
				b = a == -1 && b % 2 ? 1 : a == -1 ? 2 : 1;
		}
	}
	if (over)
		return jx_fail(x, "a number is too large");
	*v_p = J_NUMBER(out);
	return 0;
}

static int real_math(struct jx *x, enum jop op, double a, double b, struct jval *v_p)
{
	if (op != OP_ADD && op != OP_SUB && op != OP_MUL && op != OP_POW && b == 0)
		return jx_fail(x, "a division by zero");
	double rest = op == OP_FLOOR || op == OP_MOD ? fmod(a, b) : 0, whole;
	if (rest != 0 && (rest < 0) != (b < 0))
		rest += b;
	else if (rest == 0)
		rest = copysign(0, b);
	whole = floor((a - rest) / b); /* may be one short, as float_divmod() of Python says */
	if ((a - rest) / b - whole > 0.5)
		whole += 1;
	double f = op == OP_ADD     ? a + b
		   : op == OP_SUB   ? a - b
		   : op == OP_MUL   ? a * b
		   : op == OP_DIV   ? a / b
		   : op == OP_FLOOR ? whole
		   : op == OP_POW   ? pow(a, b)
				    : rest;
	*v_p = (struct jval){ .k = J_FLOAT, .f = f };
	return 0;
}

static bool is_list(struct jval v) { return v.k == J_LIST || v.k == J_TUPLE; }

int jinja_math(struct jx *x, enum jop op, struct jval a, struct jval b, struct jval *v_p)
{
	static const char *const sign[] = { "+", "-", "*", "/", "//", "%", "**", "~" };
	if (op == OP_JOIN || (op == OP_ADD && a.k == J_STR && b.k == J_STR))
		return join_two(x, a, b, v_p);
	if (jx_is_number(a) && jx_is_number(b)) {
		int64_t i = a.k == J_BOOL ? a.b : a.i, k = b.k == J_BOOL ? b.b : b.i;
		if (a.k == J_FLOAT || b.k == J_FLOAT || op == OP_DIV || (op == OP_POW && k < 0))
			return real_math(x, op, jx_float(a), jx_float(b), v_p);
		return whole_math(x, op, i, k, v_p);
	}
	if (op == OP_ADD && is_list(a) && a.k == b.k) {
		TRY(jl_new(x, v_p));
		v_p->k = a.k;
		for (size_t i = 0; i < a.l->n + b.l->n; i++)
			TRY(jl_add(x, v_p->l, i < a.l->n ? a.l->v[i] : b.l->v[i - a.l->n]));
		return 0;
	}
	if (op == OP_MUL && (a.k == J_STR || is_list(a)) && b.k == J_INT)
		return repeat(x, a, b.i, v_p);
	if (op == OP_MOD && a.k == J_STR)
		return jinja_format(x, a.s, b.k == J_TUPLE ? b.l->v : &b,
				    b.k == J_TUPLE ? b.l->n : 1, v_p);
	if (a.k == J_UNDEF || b.k == J_UNDEF) {
		const char *name = a.k == J_UNDEF ? a.p : b.p;
		return jx_fail(x, "'%s' is not defined, and '%s' needs it", name ? name : "a value",
			       sign[op]);
	}
	return jx_fail(x, "%s '%s' %s: these do not go together", jx_kind(a), sign[op], jx_kind(b));
}
