/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_parse.c - from tokens to a tree, with the precedence that jinja2's parser has. */
#include "base/mem.h"
#include "data/jinja_tree.h"

#include <stdio.h>
#include <string.h>

struct parse {
	struct jinja *j;
	const struct jtoken *t;
	unsigned depth, loops, macros;
	struct err *e;
};

static int fail(const struct parse *p, const char *what)
{
	const struct jtoken *t = p->t;
	char near[80] = "";
	if (t->kind == JT_NAME || t->kind == JT_OP)
		snprintf(near, sizeof near, " at '%.60s'", t->p);
	return err_set(p->e, ERR_INPUT, "chat template: line %u: %s%s", t->line, what, near);
}

static bool is_op(const struct parse *p, const char *op)
{
	return p->t->kind == JT_OP && !strcmp(p->t->p, op);
}

static bool is_name(const struct parse *p, const char *name)
{
	return p->t->kind == JT_NAME && !strcmp(p->t->p, name);
}

static bool skip_op(struct parse *p, const char *op)
{
	bool yes = is_op(p, op);
	p->t += yes;
	return yes;
}

static bool skip_name(struct parse *p, const char *name)
{
	bool yes = is_name(p, name);
	p->t += yes;
	return yes;
}

static int need_op(struct parse *p, const char *op)
{
	char text[40];
	if (skip_op(p, op))
		return 0;
	snprintf(text, sizeof text, "a '%s' is missing", op);
	return fail(p, text);
}

static int need_name(struct parse *p, const char **name_p)
{
	if (p->t->kind != JT_NAME)
		return fail(p, "a name is missing");
	*name_p = (p->t++)->p;
	return 0;
}

static int need_end(struct parse *p)
{
	if (p->t->kind != JT_TAG_END)
		return fail(p, "the tag does not end here");
	p->t++;
	return 0;
}

static int node(struct parse *p, enum jnode_kind kind, struct jnode **n_p)
{
	struct jnode *n = arena_alloc(&p->j->mem, sizeof *n);
	if (!n)
		return err_nomem(p->e, sizeof *n, "a chat template");
	n->kind = kind;
	n->line = p->t->line;
	*n_p = n;
	return 0;
}

/* One more child, and its name beside it. */
static int add_kid(struct parse *p, struct jnode *n, const char *name, struct jnode *kid)
{
	if (!(n->n & (n->n - 1))) { /* 0, 1, 2, 4, ...: full */
		size_t cap = n->n ? 2 * n->n : 1;
		struct jnode **k = arena_alloc(&p->j->mem, cap * sizeof *k);
		const char **names = arena_alloc(&p->j->mem, cap * sizeof *names);
		if (!k || !names)
			return err_nomem(p->e, cap * sizeof *k, "a chat template");
		for (size_t i = 0; i < n->n; i++) {
			k[i] = n->kid[i];
			names[i] = n->name_of[i];
		}
		n->kid = k;
		n->name_of = names;
	}
	n->kid[n->n] = kid;
	n->name_of[n->n++] = name;
	return 0;
}

static int down(struct parse *p)
{
	if (p->depth >= JINJA_NEST)
		return fail(p, "expressions or blocks are nested too deeply");
	p->depth++;
	return 0;
}

/* ---- expressions ---------------------------------------------------------------------------- */

static int condexpr(struct parse *p, bool with_if, struct jnode **n_p);
static int unary(struct parse *p, bool filters, struct jnode **n_p);
static int postfix(struct parse *p, struct jnode **n_p);
static int primary(struct parse *p, struct jnode **n_p);

static int expression(struct parse *p, struct jnode **n_p) { return condexpr(p, true, n_p); }

static bool ends_tuple(const struct parse *p)
{
	return p->t->kind == JT_VAR_END || p->t->kind == JT_TAG_END || is_op(p, ")") ||
	       p->t->kind == JT_END || is_name(p, "in") || is_name(p, "recursive");
}

/* a, b, c without brackets: an expression, or a tuple where there is a comma. */
static int tuple(struct parse *p, bool with_if, struct jnode **n_p)
{
	struct jnode *list = NULL, *item = NULL;
	TRY(node(p, JN_TUPLE, &list));
	for (;;) {
		if (ends_tuple(p))
			break;
		TRY(condexpr(p, with_if, &item));
		TRY(add_kid(p, list, NULL, item));
		if (!skip_op(p, ",")) {
			*n_p = list->n == 1 ? item : list;
			return 0;
		}
	}
	if (!list->n)
		return fail(p, "an expression is missing");
	*n_p = list;
	return 0;
}

static int arguments(struct parse *p, struct jnode *call)
{
	TRY(need_op(p, "("));
	while (!skip_op(p, ")")) {
		struct jnode *v = NULL;
		const char *name = NULL;
		if (call->n)
			TRY(need_op(p, ","));
		if (call->n && skip_op(p, ")"))
			break;
		if (is_op(p, "*") || is_op(p, "**")) {
			name = (p->t++)->p;
		} else if (p->t->kind == JT_NAME && p->t[1].kind == JT_OP &&
			   !strcmp(p->t[1].p, "=")) {
			name = p->t->p;
			p->t += 2;
		} else if (call->n && call->name_of[call->n - 1]) {
			return fail(p, "an argument without a name stands behind one with a name");
		}
		TRY(expression(p, &v));
		TRY(add_kid(p, call, name, v));
	}
	return 0;
}

static int const_node(struct parse *p, struct jval v, struct jnode **n_p)
{
	TRY(node(p, JN_CONST, n_p));
	(*n_p)->v = v;
	p->t++;
	return 0;
}

static int text_node(struct parse *p, struct jnode **n_p)
{
	struct buf all = BUF_INIT;
	struct jnode *n = NULL;
	TRY(node(p, JN_CONST, &n));
	for (; p->t->kind == JT_TEXT; p->t++)
		buf_add(&all, p->t->p, p->t->n);
	char *copy = buf_ok(&all, p->e) < 0 ? NULL : arena_alloc(&p->j->mem, all.n + 1);
	if (copy && all.n)
		memcpy(copy, all.p, all.n);
	n->text = (struct jstr){ .p = copy, .n = all.n };
	n->v = (struct jval){ .k = J_STR, .s = &n->text };
	buf_release(&all);
	*n_p = n;
	return copy ? 0 : err_nomem(p->e, n->text.n, "a chat template");
}

static int bracket(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *v = NULL;
	if (skip_op(p, "(")) {
		if (skip_op(p, ")"))
			return node(p, JN_TUPLE, n_p);
		TRY(tuple(p, true, n_p));
		return need_op(p, ")");
	}
	bool dict = is_op(p, "{");
	TRY(node(p, dict ? JN_DICT : JN_LIST, &n));
	p->t++;
	while (!skip_op(p, dict ? "}" : "]")) {
		if (n->n)
			TRY(need_op(p, ","));
		if (n->n && skip_op(p, dict ? "}" : "]"))
			break;
		TRY(expression(p, &v));
		TRY(add_kid(p, n, NULL, v));
		if (!dict)
			continue;
		TRY(need_op(p, ":"));
		TRY(expression(p, &v));
		TRY(add_kid(p, n, NULL, v));
	}
	*n_p = n;
	return 0;
}

static int primary(struct parse *p, struct jnode **n_p)
{
	static const struct {
		const char *name;
		struct jval v;
	} words[] = { { "true", { .k = J_BOOL, .b = true } },
		      { "True", { .k = J_BOOL, .b = true } },
		      { "false", { .k = J_BOOL } },
		      { "False", { .k = J_BOOL } },
		      { "none", { .k = J_NONE } },
		      { "None", { .k = J_NONE } } };
	if (p->t->kind == JT_TEXT)
		return text_node(p, n_p);
	if (p->t->kind == JT_INT)
		return const_node(p, J_NUMBER(p->t->i), n_p);
	if (p->t->kind == JT_FLOAT)
		return const_node(p, (struct jval){ .k = J_FLOAT, .f = p->t->f }, n_p);
	if (is_op(p, "(") || is_op(p, "[") || is_op(p, "{"))
		return bracket(p, n_p);
	if (p->t->kind != JT_NAME)
		return fail(p, "an expression is missing");
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(p->t->p, words[i].name))
			return const_node(p, words[i].v, n_p);
	TRY(node(p, JN_NAME, n_p));
	(*n_p)->name = (p->t++)->p;
	return 0;
}

/* [b], [b:c:d] */
static int subscript(struct parse *p, struct jnode *a, struct jnode **n_p)
{
	struct jnode *n = NULL, *part = NULL;
	bool slice = false;
	TRY(node(p, JN_SLICE, &n));
	n->a = a;
	p->t++;
	for (int i = 0; i < 3; i++) {
		part = NULL;
		if (!is_op(p, ":") && !is_op(p, "]"))
			TRY(expression(p, &part));
		TRY(add_kid(p, n, NULL, part));
		if (!skip_op(p, ":"))
			break;
		slice = true;
	}
	if (is_op(p, ","))
		return fail(p, "an index of several parts is not supported");
	TRY(need_op(p, "]"));
	if (!slice) {
		if (!n->kid[0])
			return fail(p, "an index is missing");
		n->kind = JN_ITEM;
		n->b = n->kid[0];
	}
	while (slice && n->n < 3)
		TRY(add_kid(p, n, NULL, NULL));
	*n_p = n;
	return 0;
}

static int call(struct parse *p, struct jnode *a, struct jnode **n_p)
{
	struct jnode *n = NULL;
	TRY(node(p, JN_CALL, &n));
	n->a = a;
	TRY(arguments(p, n));
	*n_p = n;
	return 0;
}

static int postfix(struct parse *p, struct jnode **n_p)
{
	for (;;) {
		struct jnode *n = NULL;
		if (is_op(p, ".")) {
			p->t++;
			if (p->t->kind == JT_INT) { /* a.0 */
				TRY(node(p, JN_ITEM, &n));
				TRY(const_node(p, J_NUMBER(p->t->i), &n->b));
			} else {
				TRY(node(p, JN_ATTR, &n));
				TRY(need_name(p, &n->name));
			}
			n->a = *n_p;
			*n_p = n;
		} else if (is_op(p, "[")) {
			TRY(subscript(p, *n_p, n_p));
		} else if (is_op(p, "(")) {
			TRY(call(p, *n_p, n_p));
		} else {
			return 0;
		}
	}
}

static int dotted(struct parse *p, const char **name_p)
{
	TRY(need_name(p, name_p));
	return is_op(p, ".") ? fail(p, "names with a dot are not supported here") : 0;
}

static int filter(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL;
	TRY(node(p, JN_FILTER, &n));
	TRY(dotted(p, &n->name));
	if (is_op(p, "("))
		TRY(arguments(p, n));
	n->a = *n_p;
	*n_p = n;
	return 0;
}

static int test(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *arg = NULL;
	bool negated = skip_name(p, "not");
	TRY(node(p, JN_TEST, &n));
	TRY(dotted(p, &n->name));
	n->a = *n_p;
	const struct jtoken *t = p->t;
	bool word = t->kind == JT_NAME && strcmp(t->p, "else") && strcmp(t->p, "or") &&
		    strcmp(t->p, "and") && strcmp(t->p, "is") && strcmp(t->p, "if");
	if (is_op(p, "(")) {
		TRY(arguments(p, n));
	} else if (word || t->kind == JT_TEXT || t->kind == JT_INT || t->kind == JT_FLOAT ||
		   is_op(p, "[") || is_op(p, "{")) {
		TRY(primary(p, &arg));
		TRY(postfix(p, &arg));
		TRY(add_kid(p, n, NULL, arg));
	}
	*n_p = n;
	if (negated) {
		TRY(node(p, JN_NOT, n_p));
		(*n_p)->a = n;
	}
	return 0;
}

static int filters(struct parse *p, struct jnode **n_p)
{
	for (;;) {
		if (skip_op(p, "|"))
			TRY(filter(p, n_p));
		else if (skip_name(p, "is"))
			TRY(test(p, n_p));
		else if (is_op(p, "("))
			TRY(call(p, *n_p, n_p));
		else
			return 0;
	}
}

static int unary(struct parse *p, bool with_filters, struct jnode **n_p)
{
	struct jnode *n = NULL;
	TRY(down(p));
	if (is_op(p, "-") || is_op(p, "+")) {
		TRY(node(p, is_op(p, "-") ? JN_NEG : JN_POS, &n));
		p->t++;
		TRY(unary(p, false, &n->a));
	} else {
		TRY(primary(p, &n));
	}
	TRY(postfix(p, &n));
	if (with_filters)
		TRY(filters(p, &n));
	p->depth--;
	*n_p = n;
	return 0;
}

/* Operators of one level, from the left. */
struct level {
	const char *text[5];
	enum jop op[5];
};
static const struct level levels[] = {
	{ { "+", "-" }, { OP_ADD, OP_SUB } },
	{ { "~" }, { OP_JOIN } },
	{ { "*", "//", "/", "%" }, { OP_MUL, OP_FLOOR, OP_DIV, OP_MOD } },
	{ { "**" }, { OP_POW } },
};

static int math(struct parse *p, size_t level, struct jnode **n_p)
{
	struct jnode *left = NULL, *n = NULL;
	if (level == ARRAY_LEN(levels))
		return unary(p, true, n_p);
	TRY(math(p, level + 1, &left));
	for (size_t i = 0; i < 4 && levels[level].text[i];) {
		if (!is_op(p, levels[level].text[i])) {
			i++;
			continue;
		}
		TRY(node(p, JN_MATH, &n));
		p->t++;
		n->op = levels[level].op[i];
		n->a = left;
		TRY(math(p, level + 1, &n->b));
		left = n;
		i = 0;
	}
	*n_p = left;
	return 0;
}

static const char *compare_op(struct parse *p)
{
	static const char *const ops[] = { "==", "!=", "<", "<=", ">", ">=" };
	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		if (skip_op(p, ops[i]))
			return ops[i];
	if (skip_name(p, "in"))
		return "in";
	if (is_name(p, "not") && p->t[1].kind == JT_NAME && !strcmp(p->t[1].p, "in")) {
		p->t += 2;
		return "not in";
	}
	return NULL;
}

static int compare(struct parse *p, struct jnode **n_p)
{
	struct jnode *first = NULL, *n = NULL, *v = NULL;
	const char *op;
	TRY(math(p, 0, &first));
	while ((op = compare_op(p))) {
		if (!n) {
			TRY(node(p, JN_COMPARE, &n));
			TRY(add_kid(p, n, NULL, first));
		}
		TRY(math(p, 0, &v));
		TRY(add_kid(p, n, op, v));
	}
	*n_p = n ? n : first;
	return 0;
}

static int negation(struct parse *p, struct jnode **n_p)
{
	if (!is_name(p, "not") || (p->t[1].kind == JT_NAME && !strcmp(p->t[1].p, "in")))
		return compare(p, n_p);
	struct jnode *n = NULL;
	TRY(down(p));
	TRY(node(p, JN_NOT, &n));
	p->t++;
	TRY(negation(p, &n->a));
	p->depth--;
	*n_p = n;
	return 0;
}

static int logic(struct parse *p, bool either, struct jnode **n_p)
{
	struct jnode *n = NULL;
	TRY(either ? logic(p, false, n_p) : negation(p, n_p));
	while (skip_name(p, either ? "or" : "and")) {
		TRY(node(p, either ? JN_OR : JN_AND, &n));
		n->a = *n_p;
		TRY(either ? logic(p, false, &n->b) : negation(p, &n->b));
		*n_p = n;
	}
	return 0;
}

static int condexpr(struct parse *p, bool with_if, struct jnode **n_p)
{
	struct jnode *n = NULL;
	TRY(down(p));
	TRY(logic(p, true, n_p));
	while (with_if && skip_name(p, "if")) {
		TRY(node(p, JN_COND, &n));
		n->a = *n_p;
		TRY(logic(p, true, &n->b));
		if (skip_name(p, "else"))
			TRY(condexpr(p, true, &n->c));
		*n_p = n;
	}
	p->depth--;
	return 0;
}

/* ---- statements ----------------------------------------------------------------------------- */

static int statements(struct parse *p, const char *ends, const char **end_p, struct jnode **n_p);

/* The body up to {% END %}, which is consumed. */
static int body(struct parse *p, const char *end, struct jnode **n_p)
{
	const char *found;
	TRY(need_end(p));
	TRY(statements(p, end, &found, n_p));
	return need_end(p);
}

/* A name, names with commas or in brackets, or NAME.NAME for {% set %}. */
static int target(struct parse *p, bool member, struct jnode **n_p)
{
	struct jnode *list = NULL, *n = NULL;
	if (member && p->t->kind == JT_NAME && p->t[1].kind == JT_OP && !strcmp(p->t[1].p, ".")) {
		TRY(node(p, JN_ATTR, &n));
		TRY(primary(p, &n->a));
		p->t++;
		*n_p = n;
		return need_name(p, &n->name);
	}
	bool brackets = skip_op(p, "(");
	TRY(node(p, JN_TUPLE, &list));
	do {
		if (brackets && is_op(p, ")"))
			break;
		TRY(down(p));
		if (is_op(p, "(")) {
			TRY(target(p, false, &n));
		} else {
			TRY(node(p, JN_NAME, &n));
			TRY(need_name(p, &n->name));
		}
		p->depth--;
		TRY(add_kid(p, list, NULL, n));
	} while (skip_op(p, ","));
	if (brackets)
		TRY(need_op(p, ")"));
	*n_p = list->n == 1 ? n : list;
	return 0;
}

static int parse_if(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL;
	const char *end;
	TRY(node(p, JN_IF, &n));
	*n_p = n;
	for (;;) {
		TRY(tuple(p, false, &n->a));
		TRY(need_end(p));
		TRY(statements(p, "elif else endif", &end, &n->b));
		if (strcmp(end, "elif"))
			break;
		TRY(node(p, JN_IF, &n->c));
		n = n->c;
	}
	TRY(strcmp(end, "else") ? 0 : body(p, "endif", &n->c));
	return strcmp(end, "else") ? need_end(p) : 0;
}

static int parse_for(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *part = NULL;
	const char *end;
	TRY(node(p, JN_FOR, &n));
	TRY(target(p, false, &n->a));
	if (!skip_name(p, "in"))
		return fail(p, "'in' is missing");
	TRY(tuple(p, false, &n->b));
	if (skip_name(p, "if"))
		TRY(expression(p, &n->c));
	if (is_name(p, "recursive"))
		return fail(p, "recursive loops are not supported");
	TRY(need_end(p));
	p->loops++;
	TRY(statements(p, "else endfor", &end, &part));
	p->loops--;
	TRY(add_kid(p, n, NULL, part));
	part = NULL;
	if (!strcmp(end, "else"))
		TRY(body(p, "endfor", &part));
	else
		TRY(need_end(p));
	*n_p = n;
	return add_kid(p, n, NULL, part);
}

static int parse_set(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *part = NULL, *none = NULL;
	TRY(node(p, JN_SET, &n));
	*n_p = n;
	TRY(target(p, true, &n->a));
	if (skip_op(p, "=")) {
		TRY(tuple(p, true, &n->b));
		return need_end(p);
	}
	n->kind = JN_SET_BLOCK;
	if (is_op(p, "|")) {
		TRY(filters(p, &none));
		n->b = none;
	}
	TRY(body(p, "endset", &part));
	return add_kid(p, n, NULL, part);
}

/* (a, b=1) */
static int parameters(struct parse *p, struct jnode *m)
{
	TRY(need_op(p, "("));
	while (!skip_op(p, ")")) {
		const char *name = NULL;
		struct jnode *v = NULL;
		if (m->n)
			TRY(need_op(p, ","));
		TRY(need_name(p, &name));
		if (skip_op(p, "="))
			TRY(expression(p, &v));
		else if (m->n && m->kid[m->n - 1])
			return fail(p, "a parameter without a default behind one with a default");
		TRY(add_kid(p, m, name, v));
	}
	return 0;
}

static int macro_body(struct parse *p, struct jnode *m, const char *end)
{
	unsigned loops = p->loops;
	p->loops = 0;
	TRY(body(p, end, &m->a));
	p->loops = loops;
	return 0;
}

static int parse_macro(struct parse *p, struct jnode **n_p)
{
	struct jnode *m = NULL;
	TRY(node(p, JN_MACRO, &m));
	TRY(need_name(p, &m->name));
	TRY(parameters(p, m));
	*n_p = m;
	return macro_body(p, m, "endmacro");
}

static int parse_call(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *m = NULL;
	TRY(node(p, JN_CALL_BLOCK, &n));
	TRY(node(p, JN_MACRO, &m));
	m->name = "caller";
	if (is_op(p, "("))
		TRY(parameters(p, m));
	TRY(unary(p, false, &n->a));
	if (n->a->kind != JN_CALL)
		return fail(p, "{% call %} needs a call");
	n->b = m;
	*n_p = n;
	return macro_body(p, m, "endcall");
}

static int parse_filter(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *none = NULL;
	TRY(node(p, JN_FILTER_BLOCK, &n));
	TRY(filter(p, &none));
	TRY(filters(p, &none));
	n->b = none;
	*n_p = n;
	return body(p, "endfilter", &n->a);
}

static int parse_with(struct parse *p, struct jnode **n_p)
{
	struct jnode *n = NULL, *v = NULL;
	TRY(node(p, JN_WITH, &n));
	while (p->t->kind != JT_TAG_END) {
		if (n->n)
			TRY(need_op(p, ","));
		TRY(target(p, false, &v));
		TRY(add_kid(p, n, NULL, v));
		TRY(need_op(p, "="));
		TRY(expression(p, &v));
		TRY(add_kid(p, n, NULL, v));
	}
	*n_p = n;
	return body(p, "endwith", &n->a);
}

static int parse_jump(struct parse *p, bool leave, struct jnode **n_p)
{
	if (!p->loops)
		return fail(p, leave ? "{% break %} outside of a loop"
				     : "{% continue %} outside of a loop");
	TRY(node(p, leave ? JN_BREAK : JN_CONTINUE, n_p));
	return need_end(p);
}

static int statement(struct parse *p, struct jnode **n_p)
{
	if (skip_name(p, "if"))
		return parse_if(p, n_p);
	if (skip_name(p, "for"))
		return parse_for(p, n_p);
	if (skip_name(p, "set"))
		return parse_set(p, n_p);
	if (skip_name(p, "macro"))
		return parse_macro(p, n_p);
	if (skip_name(p, "call"))
		return parse_call(p, n_p);
	if (skip_name(p, "filter"))
		return parse_filter(p, n_p);
	if (skip_name(p, "with"))
		return parse_with(p, n_p);
	if (skip_name(p, "generation")) { /* only its scope */
		TRY(node(p, JN_WITH, n_p));
		return body(p, "endgeneration", &(*n_p)->a);
	}
	if (is_name(p, "break") || is_name(p, "continue"))
		return parse_jump(p, !strcmp((p->t++)->p, "break"), n_p);
	return fail(p, "a tag that is not known, or without its beginning,");
}

static bool one_of(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *s = words; (s = strstr(s, word)); s += n)
		if ((s == words || s[-1] == ' ') && (!s[n] || s[n] == ' '))
			return true;
	return false;
}

static int print(struct parse *p, struct jnode **n_p)
{
	TRY(node(p, JN_PRINT, n_p));
	p->t++;
	TRY(tuple(p, true, &(*n_p)->a));
	if (p->t->kind != JT_VAR_END)
		return fail(p, "the expression does not end here");
	p->t++;
	return 0;
}

/* Up to one of the tags `ends`, whose name is consumed; "" is the end of the template. */
static int statements(struct parse *p, const char *ends, const char **end_p, struct jnode **n_p)
{
	struct jnode *seq = NULL, *n = NULL;
	TRY(down(p));
	TRY(node(p, JN_SEQ, &seq));
	for (;;) {
		const struct jtoken *t = p->t;
		if (t->kind == JT_END) {
			char text[80];
			snprintf(text, sizeof text, "ends without '%.50s'", ends);
			if (*ends)
				return fail(p, text);
			break;
		} else if (t->kind == JT_DATA) {
			TRY(node(p, JN_DATA, &n));
			n->text = (struct jstr){ .p = t->p, .n = t->n };
			p->t++;
		} else if (t->kind == JT_VAR) {
			TRY(print(p, &n));
		} else {
			p->t++;
			if (p->t->kind == JT_NAME && one_of(ends, p->t->p)) {
				*end_p = (p->t++)->p;
				break;
			}
			TRY(statement(p, &n));
		}
		TRY(add_kid(p, seq, NULL, n));
	}
	p->depth--;
	*n_p = seq;
	return 0;
}

int jinja_tree(struct jinja *j, const struct jtoken *tokens, struct err *e)
{
	struct parse p = { .j = j, .t = tokens, .e = e };
	const char *end;
	return statements(&p, "", &end, &j->root);
}
