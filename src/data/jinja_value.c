/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.c - see jinja_value.h. Printing and JSON are in jinja_print.c. */
#include "data/jinja_value.h"

#include "base/mem.h"
#include "data/token.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int jx_fail(struct jx *x, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return err_set(x->e, ERR_INPUT, "chat template: line %u: %s", x->line, text);
}

int jx_tick(struct jx *x, uint64_t steps)
{
	x->steps += steps;
	if (x->steps > JINJA_STEPS)
		return jx_fail(x, "does not end (more than %u steps); is there a loop over a loop?",
			       JINJA_STEPS);
	return 0;
}

int jx_enter(struct jx *x)
{
	if (x->depth >= JINJA_DEPTH)
		return jx_fail(x,
			       "more than %d calls and expressions inside each other; does a macro "
			       "call itself?",
			       JINJA_DEPTH);
	x->depth++;
	return jx_tick(x, 1);
}

void jx_leave(struct jx *x) { x->depth--; }

void *jx_alloc(struct jx *x, size_t n)
{
	x->used += n + 16;
	if (x->used + x->built > JINJA_MEMORY || n > JINJA_MEMORY) {
		jx_fail(x, "needs more than %u MiB for its values", JINJA_MEMORY >> 20);
		return NULL;
	}
	if (jx_tick(x, n / 64) < 0)
		return NULL;
	void *p = arena_alloc(&x->mem, n ? n : 1);
	if (!p)
		err_nomem(x->e, n, "a chat template's values");
	return p;
}

/* ---- strings -------------------------------------------------------------------------------- */

int js_make(struct jx *x, const char *p, size_t n, uint16_t source, struct jval *v_p)
{
	struct jstr *s = jx_alloc(x, sizeof *s);
	if (!s)
		return x->e->code;
	*s = (struct jstr){ .p = p, .n = n, .all = source };
	*v_p = (struct jval){ .k = J_STR, .s = s };
	return 0;
}

int js_new(struct jx *x, size_t n, char **p, uint16_t **src, struct jval *v_p)
{
	struct jstr *s = jx_alloc(x, sizeof *s);
	char *text = s ? jx_alloc(x, n) : NULL;
	uint16_t *from = text && src ? jx_alloc(x, n * sizeof *from) : NULL;
	if (!text || (src && !from))
		return x->e->code;
	*s = (struct jstr){ .p = text, .src = from, .n = n };
	*p = text;
	if (src)
		*src = from;
	*v_p = (struct jval){ .k = J_STR, .s = s };
	return 0;
}

uint16_t js_source(const struct jstr *s, size_t i) { return s->src ? s->src[i] : s->all; }

int js_part(struct jx *x, const struct jstr *s, size_t begin, size_t end, struct jval *v_p)
{
	struct jstr *part = jx_alloc(x, sizeof *part);
	if (!part)
		return x->e->code;
	*part = (struct jstr){ .p = s->p + begin,
			       .src = s->src ? s->src + begin : NULL,
			       .n = end - begin,
			       .all = s->all };
	*v_p = (struct jval){ .k = J_STR, .s = part };
	return 0;
}

int js_add(struct jx *x, struct js_build *b, const char *p, size_t n, uint16_t source)
{
	struct jinja_text *t = &b->t;
	if (!n)
		return 0;
	const bool same = t->n && t->span[t->n - 1].source == source;
	const uint64_t more = n + (same ? 0 : sizeof *t->span);
	if (n > JINJA_MEMORY || x->used + x->built + more > JINJA_MEMORY)
		return jx_fail(x, "writes more than %u MiB", JINJA_MEMORY >> 20);
	int rc = jx_tick(x, 1 + n / 64);
	if (rc < 0)
		return rc;
	b->x = x;
	b->counted += more;
	x->built += more;
	buf_add(&t->text, p, n);
	if (same)
		t->span[t->n - 1].end = t->text.n;
	else if (mem_grow(&t->span, &t->cap, t->n + 1, sizeof *t->span))
		t->span[t->n++] = (struct jinja_span){ t->text.n, source };
	else
		return err_nomem(x->e, (t->n + 1) * sizeof *t->span, "a chat template's text");
	return buf_ok(&t->text, x->e);
}

int js_part_put(struct jx *x, struct js_build *b, const struct jstr *s, size_t begin, size_t end)
{
	if (!s->src)
		return js_add(x, b, s->p + begin, end - begin, s->all);
	for (size_t i = begin; i < end;) {
		size_t k = i + 1;
		while (k < end && s->src[k] == s->src[i])
			k++;
		int rc = js_add(x, b, s->p + i, k - i, s->src[i]);
		if (rc < 0)
			return rc;
		i = k;
	}
	return 0;
}

int js_put(struct jx *x, struct js_build *b, const struct jstr *s)
{
	return js_part_put(x, b, s, 0, s->n);
}

void js_drop(struct js_build *b)
{
	if (b->x)
		b->x->built -= b->counted;
	b->counted = 0;
	jinja_text_release(&b->t);
}

int js_done(struct jx *x, struct js_build *b, struct jval *v_p)
{
	char *p;
	uint16_t *src = NULL;
	const struct jinja_text *t = &b->t;
	int rc = js_new(x, t->text.n, &p, t->n > 1 ? &src : NULL, v_p);
	if (rc >= 0) {
		if (t->text.n)
			memcpy(p, t->text.p, t->text.n);
		if (t->n == 1)
			((struct jstr *)v_p->s)->all = t->span[0].source;
		for (size_t i = 0, at = 0; src && i < t->n; i++)
			for (; at < t->span[i].end; at++)
				src[at] = t->span[i].source;
	}
	js_drop(b);
	return rc;
}

void jinja_text_release(struct jinja_text *t)
{
	buf_release(&t->text);
	mem_free(t->span);
	*t = (struct jinja_text){ .text = BUF_INIT };
}

const char *jx_word(struct jx *x, const struct jstr *s, size_t most)
{
	const size_t n = s->n < most ? s->n : most;
	char *p = jx_alloc(x, n + 1);
	if (p && n)
		memcpy(p, s->p, n);
	return p;
}

bool js_is(const struct jstr *s, const char *text)
{
	return s->n == strlen(text) && !memcmp(s->p, text, s->n);
}

size_t js_length(const struct jstr *s)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++)
		n += ((uint8_t)s->p[i] & 0xc0) != 0x80;
	return n;
}

size_t js_offset(const struct jstr *s, size_t number)
{
	size_t i = 0;
	for (; i < s->n; i++)
		if (((uint8_t)s->p[i] & 0xc0) != 0x80 && !number--)
			break;
	return i;
}

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
	       c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t js_space(const char *p, size_t n, bool end)
{
	size_t len;
	if (!n)
		return 0;
	if (!end)
		return utf8_valid(p, n < 4 ? n : 4) && is_space(utf8_char(p, &len)) ? len : 0;
	for (size_t k = 1; k <= 3 && k <= n; k++)
		if (utf8_valid(p + n - k, k) == k)
			return is_space(utf8_char(p + n - k, &len)) && len == k ? k : 0;
	return 0;
}

/* ---- lists and dicts ------------------------------------------------------------------------ */

int jl_new(struct jx *x, struct jval *v_p)
{
	struct jlist *l = jx_alloc(x, sizeof *l);
	if (!l)
		return x->e->code;
	*v_p = (struct jval){ .k = J_LIST, .l = l };
	return 0;
}

/* Room for one more in an array of the arena. */
static int more(struct jx *x, struct jval **v, size_t n, size_t *cap)
{
	if (n < *cap)
		return 0;
	size_t want = *cap ? *cap * 2 : 4;
	struct jval *p = jx_alloc(x, want * sizeof *p);
	if (!p)
		return x->e->code;
	if (n)
		memcpy(p, *v, n * sizeof *p);
	*v = p;
	*cap = want;
	return 0;
}

int jl_add(struct jx *x, struct jlist *l, struct jval v)
{
	TRY(more(x, &l->v, l->n, &l->cap));
	x->odd = x->odd || v.k >= J_SPACE;
	l->v[l->n++] = v;
	return 0;
}

int jd_new(struct jx *x, struct jval *v_p)
{
	struct jdict *d = jx_alloc(x, sizeof *d);
	if (!d)
		return x->e->code;
	*v_p = (struct jval){ .k = J_DICT, .d = d };
	return 0;
}

static int find(struct jx *x, const struct jdict *d, struct jval key, size_t *i_p)
{
	if (key.k == J_LIST || key.k == J_DICT || key.k == J_SPACE)
		return jx_fail(x, "%s cannot be the key of a dict", jx_kind(key));
	TRY(jx_tick(x, d->n / 16));
	for (*i_p = 0; *i_p < d->n; ++*i_p) {
		bool same;
		TRY(jx_equal(x, d->key[*i_p], key, &same));
		if (same)
			return 1;
	}
	return 0;
}

int jd_set(struct jx *x, struct jdict *d, struct jval key, struct jval v)
{
	size_t i;
	int rc = find(x, d, key, &i);
	x->odd = x->odd || v.k >= J_SPACE;
	if (rc < 0)
		return rc;
	if (!rc) {
		TRY(more(x, &d->key, d->n, &d->cap));
		TRY(more(x, &d->v, d->n, &d->vcap));
		d->key[d->n++] = key;
	}
	d->v[i] = v;
	return 0;
}

int jd_get(struct jx *x, const struct jdict *d, struct jval key, struct jval *v_p)
{
	size_t i;
	int rc = find(x, d, key, &i);
	if (rc > 0)
		*v_p = d->v[i];
	return rc;
}

bool jd_find(const struct jdict *d, const char *key, struct jval *v_p)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->key[i].k == J_STR && js_is(d->key[i].s, key)) {
			*v_p = d->v[i];
			return true;
		}
	return false;
}

static int from_json(struct jx *x, const json_t *j, uint16_t source, struct jval *v_p)
{
	const char *key;
	json_t *v;
	size_t i;
	struct jval item, name;
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		TRY(jd_new(x, v_p));
		json_object_foreach((json_t *)j, key, v)
		{
			struct jdict *d = v_p->d;
			TRY(js_make(x, key, strlen(key), source, &name));
			TRY(jx_from_json(x, v, source, &item));
			/* keys of a JSON object are different: no search */
			TRY(more(x, &d->key, d->n, &d->cap));
			TRY(more(x, &d->v, d->n, &d->vcap));
			d->key[d->n] = name;
			d->v[d->n++] = item;
		}
		return 0;
	case JSON_ARRAY:
		TRY(jl_new(x, v_p));
		json_array_foreach(j, i, v)
		{
			TRY(jx_from_json(x, v, source, &item));
			TRY(jl_add(x, v_p->l, item));
		}
		return 0;
	case JSON_STRING:
		return js_make(x, json_string_value(j), json_string_length(j), source, v_p);
	case JSON_INTEGER:
		*v_p = J_NUMBER(json_integer_value(j));
		return 0;
	case JSON_REAL:
		*v_p = (struct jval){ .k = J_FLOAT, .f = json_real_value(j) };
		return 0;
	case JSON_NULL:
		*v_p = J_NOTHING;
		return 0;
	default:
		*v_p = J_TRUTH(json_is_true(j));
		return 0;
	}
}

int jx_from_json(struct jx *x, const json_t *j, uint16_t source, struct jval *v_p)
{
	TRY(jx_enter(x));
	int rc = from_json(x, j, source, v_p);
	jx_leave(x);
	return rc;
}

int jx_items(struct jx *x, struct jval v, struct jlist **l_p)
{
	struct jval list = J_NOTHING;
	if (v.k == J_LIST || v.k == J_TUPLE) {
		*l_p = v.l;
		return 0;
	}
	TRY(jl_new(x, &list));
	*l_p = list.l;
	if (v.k == J_UNDEF)
		return 0;
	if (v.k == J_DICT) {
		for (size_t i = 0; i < v.d->n; i++)
			TRY(jl_add(x, list.l, v.d->key[i]));
		return 0;
	}
	if (v.k != J_STR)
		return jx_fail(x, "%s is nothing to loop over", jx_kind(v));
	for (size_t i = 0; i < v.s->n;) {
		struct jval c;
		size_t k = i + 1;
		while (k < v.s->n && ((uint8_t)v.s->p[k] & 0xc0) == 0x80)
			k++;
		TRY(js_part(x, v.s, i, k, &c));
		TRY(jl_add(x, list.l, c));
		i = k;
	}
	return 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

const char *jx_kind(struct jval v)
{
	static const char *const names[] = { [J_UNDEF] = "what is not defined",
					     [J_NONE] = "none",
					     [J_BOOL] = "true or false",
					     [J_INT] = "a number",
					     [J_FLOAT] = "a number",
					     [J_STR] = "a string",
					     [J_LIST] = "a list",
					     [J_TUPLE] = "a tuple",
					     [J_DICT] = "a dict",
					     [J_SPACE] = "a namespace",
					     [J_MACRO] = "a macro",
					     [J_CALL] = "a function",
					     [J_LOOP] = "the loop",
					     [J_TURNS] = "a list" };
	return names[v.k];
}

bool jx_true(struct jval v)
{
	switch (v.k) {
	case J_UNDEF:
	case J_NONE:
		return false;
	case J_BOOL:
		return v.b;
	case J_INT:
		return v.i != 0;
	case J_FLOAT:
		return v.f != 0;
	case J_STR:
		return v.s->n != 0;
	case J_LIST:
	case J_TUPLE:
		return v.l->n != 0 || v.l->lazy;
	case J_DICT:
		return v.d->n != 0;
	default:
		return true;
	}
}

bool jx_is_number(struct jval v) { return v.k == J_INT || v.k == J_FLOAT || v.k == J_BOOL; }

double jx_float(struct jval v)
{
	return v.k == J_FLOAT ? v.f : v.k == J_BOOL ? (double)v.b : (double)v.i;
}

static int equal_dicts(struct jx *x, const struct jdict *a, const struct jdict *b, bool *same_p)
{
	*same_p = a->n == b->n;
	for (size_t i = 0; i < a->n && *same_p; i++) {
		struct jval other;
		int rc = jd_get(x, b, a->key[i], &other);
		if (rc < 0)
			return rc;
		*same_p = rc > 0;
		if (rc)
			TRY(jx_equal(x, a->v[i], other, same_p));
	}
	return 0;
}

static int equal_lists(struct jx *x, const struct jlist *a, const struct jlist *b, bool *same_p)
{
	*same_p = a->n == b->n;
	TRY(jx_tick(x, *same_p ? a->n / 4 : 0));
	for (size_t i = 0; i < a->n && *same_p; i++)
		TRY(jx_equal(x, a->v[i], b->v[i], same_p));
	return 0;
}

int jx_equal(struct jx *x, struct jval a, struct jval b, bool *same_p)
{
	if (jx_is_number(a) && jx_is_number(b)) {
		*same_p = a.k == J_FLOAT || b.k == J_FLOAT
				  ? jx_float(a) == jx_float(b)
				  : (a.k == J_BOOL ? a.b : a.i) == (b.k == J_BOOL ? b.b : b.i);
		return 0;
	}
	*same_p = a.k == b.k;
	if (a.k != b.k || a.k == J_UNDEF || a.k == J_NONE)
		return 0;
	if (a.k == J_STR) {
		*same_p = a.s->n == b.s->n && !memcmp(a.s->p, b.s->p, a.s->n);
		return a.s->n == b.s->n ? jx_tick(x, a.s->n / 256) : 0;
	}
	if (a.k != J_LIST && a.k != J_TUPLE && a.k != J_DICT) {
		*same_p = a.p == b.p;
		return 0;
	}
	TRY(jx_enter(x));
	int rc =
		a.k == J_DICT ? equal_dicts(x, a.d, b.d, same_p) : equal_lists(x, a.l, b.l, same_p);
	jx_leave(x);
	return rc;
}

int jx_order(struct jx *x, struct jval a, struct jval b, int *order_p)
{
	if (jx_is_number(a) && jx_is_number(b)) {
		if (a.k == J_FLOAT || b.k == J_FLOAT) {
			double p = jx_float(a), q = jx_float(b);
			*order_p = p < q ? -1 : p > q;
		} else {
			int64_t p = a.k == J_BOOL ? a.b : a.i, q = b.k == J_BOOL ? b.b : b.i;
			*order_p = p < q ? -1 : p > q;
		}
		return 0;
	}
	if (a.k == J_STR && b.k == J_STR) {
		size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
		int o = n ? memcmp(a.s->p, b.s->p, n) : 0;
		*order_p = o ? o : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
		return jx_tick(x, n / 256);
	}
	return jx_fail(x, "%s and %s cannot be compared", jx_kind(a), jx_kind(b));
}

int jx_in(struct jx *x, struct jval item, struct jval in, bool *found_p)
{
	*found_p = false;
	if (in.k == J_STR) {
		if (item.k != J_STR)
			return jx_fail(x, "'in' a string needs a string, not %s", jx_kind(item));
		*found_p = !item.s->n || memmem(in.s->p, in.s->n, item.s->p, item.s->n);
		return jx_tick(x, in.s->n / 64);
	}
	if (in.k == J_UNDEF)
		return 0;
	if (in.k == J_DICT) {
		struct jval v;
		int rc = jd_get(x, in.d, item, &v);
		*found_p = rc > 0;
		return rc < 0 ? rc : 0;
	}
	if (in.k != J_LIST && in.k != J_TUPLE)
		return jx_fail(x, "nothing is 'in' %s", jx_kind(in));
	TRY(jx_tick(x, in.l->n));
	for (size_t i = 0; i < in.l->n && !*found_p; i++)
		TRY(jx_equal(x, in.l->v[i], item, found_p));
	return 0;
}

/* What is not there, with its name. */
static int missing(struct jx *x, struct jval key, struct jval *v_p)
{
	*v_p = J_UNDEFINED(NULL);
	if (key.k == J_STR && !(v_p->p = jx_word(x, key.s, 60)))
		return x->e->code;
	return 0;
}

int jx_item(struct jx *x, struct jval v, struct jval key, struct jval *v_p)
{
	if (v.k == J_UNDEF) {
		TRY(missing(x, key, v_p));
		return jx_fail(x, "'%s' is not defined, so it has no '%s'",
			       v.p ? (const char *)v.p : "a value",
			       v_p->p ? (const char *)v_p->p : "item");
	}
	if (v.k == J_DICT || v.k == J_SPACE) {
		int rc = jd_get(x, v.d, key, v_p);
		return rc < 0 ? rc : rc > 0 ? 0 : missing(x, key, v_p);
	}
	int64_t at = key.k == J_INT ? key.i : key.k == J_BOOL ? key.b : 0;
	if (key.k != J_INT && key.k != J_BOOL)
		return missing(x, key, v_p);
	*v_p = J_UNDEFINED(NULL);
	if (v.k == J_LIST || v.k == J_TUPLE) {
		at += at < 0 ? (int64_t)v.l->n : 0;
		if (at >= 0 && at < (int64_t)v.l->n)
			*v_p = v.l->v[at];
	} else if (v.k == J_STR) {
		int64_t n = (int64_t)js_length(v.s);
		TRY(jx_tick(x, v.s->n / 64));
		at += at < 0 ? n : 0;
		if (at >= 0 && at < n)
			return js_part(x, v.s, js_offset(v.s, (size_t)at),
				       js_offset(v.s, (size_t)at + 1), v_p);
	}
	return 0;
}

int jx_path(struct jx *x, struct jval v, struct jval path, struct jval *v_p)
{
	if (path.k != J_STR)
		return jx_item(x, v, path, v_p);
	const struct jstr *s = path.s;
	for (size_t i = 0, k; i <= s->n; i = k + 1) {
		const char *dot = i < s->n ? memchr(s->p + i, '.', s->n - i) : NULL;
		struct jval key;
		int64_t number = 0;
		k = dot ? (size_t)(dot - s->p) : s->n;
		bool digits = k > i && k - i < 18;
		for (size_t c = i; c < k; c++) {
			digits = digits && s->p[c] >= '0' && s->p[c] <= '9';
			number = digits ? number * 10 + (s->p[c] - '0') : 0;
		}
		if (digits)
			key = J_NUMBER(number);
		else
			TRY(js_part(x, s, i, k, &key));
		TRY(jx_tick(x, 1));
		TRY(jx_item(x, v, key, &v));
	}
	*v_p = v;
	return 0;
}

/* ---- arguments ------------------------------------------------------------------------------ */

bool jx_arg(const struct jargs *a, size_t i, const char *name, struct jval *v_p)
{
	for (size_t k = 0; k < a->n; k++)
		if (a->name[k] ? !strcmp(a->name[k], name) : k == i) {
			*v_p = a->v[k];
			return true;
		}
	return false;
}

int jx_arg_int(struct jx *x, const struct jargs *a, size_t i, const char *name, int64_t *v_p)
{
	struct jval v;
	if (!jx_arg(a, i, name, &v) || v.k == J_NONE)
		return 0;
	if (v.k != J_INT && v.k != J_BOOL)
		return jx_fail(x, "'%s' must be a whole number, not %s", name, jx_kind(v));
	*v_p = v.k == J_INT ? v.i : v.b;
	return 0;
}

int jx_arg_str(struct jx *x, const struct jargs *a, size_t i, const char *name,
	       const struct jstr **s_p)
{
	struct jval v;
	if (!jx_arg(a, i, name, &v) || v.k == J_NONE)
		return 0;
	if (v.k != J_STR)
		return jx_fail(x, "'%s' must be a string, not %s", name, jx_kind(v));
	*s_p = v.s;
	return 0;
}

int jx_args_check(struct jx *x, const struct jargs *a, const char *what, size_t most,
		  const char *names)
{
	for (size_t i = 0; i < a->n; i++) {
		const char *p = names;
		size_t n = a->name[i] ? strlen(a->name[i]) : 0;
		if (!a->name[i] && i >= most)
			return jx_fail(x, "%s takes at most %zu arguments", what, most);
		while (n && p && !(strncmp(p, a->name[i], n) == 0 && (p[n] == ' ' || !p[n])))
			p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL;
		if (!p)
			return jx_fail(x, "%s has no argument '%s'", what, a->name[i]);
	}
	return 0;
}
