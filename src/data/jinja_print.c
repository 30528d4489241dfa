/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_print.c - values as text: str() and repr() of Python, and json.dumps(). See
 * jinja_value.h. */
#include "data/jinja_value.h"

#include "base/mem.h"
#include "data/token.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int add(struct jx *x, struct js_build *b, const char *text)
{
	return js_add(x, b, text, strlen(text), 0);
}

/* repr() of a float: the shortest digits that read back the same. */
static void float_text(double f, bool json, char *out, size_t cap)
{
	if (!isfinite(f)) {
		snprintf(out, cap, "%s%s", signbit(f) && !isnan(f) ? "-" : "",
			 isnan(f) ? (json ? "NaN" : "nan")
			 : json   ? "Infinity"
				  : "inf");
		return;
	}
	char s[40];
	int digits = 0;
	do
		snprintf(s, sizeof s, "%.*e", digits, f);
	while (strtod(s, NULL) != f && ++digits < 17);
	int exp = (int)strtol(strchr(s, 'e') + 1, NULL, 10);
	if (exp < -4 || exp >= 16)
		snprintf(out, cap, "%.*se%c%02d", (int)(strchr(s, 'e') - s), s, exp < 0 ? '-' : '+',
			 abs(exp));
	else
		snprintf(out, cap, "%.*f", digits - exp > 1 ? digits - exp : 1, f);
}

static bool printable(uint32_t c)
{
	utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
	return c == ' ' || !(k == UTF8PROC_CATEGORY_CN || (k >= UTF8PROC_CATEGORY_ZS));
}

static int quote(struct jx *x, struct js_build *b, const struct jstr *s)
{
	char mark = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
	TRY(js_add(x, b, &mark, 1, 0));
	for (size_t i = 0, len; i < s->n; i += len) {
		uint32_t c = utf8_char(s->p + i, &len);
		char esc[12];
		static const char plain[] = "\n\r\t", letter[] = "nrt";
		const char *at = c && c < 128 ? strchr(plain, (int)c) : NULL;
		if (at)
			snprintf(esc, sizeof esc, "\\%c", letter[at - plain]);
		else if (c == '\\' || c == (uint32_t)mark)
			snprintf(esc, sizeof esc, "\\%c", (char)c);
		else if (printable(c))
			snprintf(esc, sizeof esc, "%.*s", (int)len, s->p + i);
		else
			snprintf(esc, sizeof esc,
				 c < 0x100     ? "\\x%02x"
				 : c < 0x10000 ? "\\u%04x"
					       : "\\U%08x",
				 c);
		TRY(js_add(x, b, esc, strlen(esc), js_source(s, i)));
	}
	return js_add(x, b, &mark, 1, 0);
}

static int put_list(struct jx *x, struct js_build *b, struct jval v)
{
	TRY(add(x, b, v.k == J_LIST ? "[" : "("));
	for (size_t i = 0; i < v.l->n; i++) {
		if (i)
			TRY(add(x, b, ", "));
		TRY(jx_put(x, b, v.l->v[i], true));
	}
	return add(x, b, v.k == J_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
}

static int put_dict(struct jx *x, struct js_build *b, const struct jdict *d)
{
	TRY(add(x, b, "{"));
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			TRY(add(x, b, ", "));
		TRY(jx_put(x, b, d->key[i], true));
		TRY(add(x, b, ": "));
		TRY(jx_put(x, b, d->v[i], true));
	}
	return add(x, b, "}");
}

int jx_put(struct jx *x, struct js_build *b, struct jval v, bool quoted)
{
	char text[64];
	int rc;
	switch (v.k) {
	case J_UNDEF:
		return quoted ? add(x, b, "Undefined") : 0;
	case J_NONE:
		return add(x, b, "None");
	case J_BOOL:
		return add(x, b, v.b ? "True" : "False");
	case J_INT:
		snprintf(text, sizeof text, "%lld", (long long)v.i);
		return add(x, b, text);
	case J_FLOAT:
		float_text(v.f, false, text, sizeof text);
		return add(x, b, text);
	case J_STR:
		return quoted ? quote(x, b, v.s) : js_put(x, b, v.s);
	case J_LIST:
	case J_TUPLE:
	case J_DICT:
		TRY(jx_enter(x));
		rc = v.k == J_DICT ? put_dict(x, b, v.d) : put_list(x, b, v);
		jx_leave(x);
		return rc;
	default:
		return jx_fail(x, "%s cannot be written as text", jx_kind(v));
	}
}

int jx_text(struct jx *x, struct jval v, struct jval *s_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	if (v.k == J_STR) {
		*s_p = v;
		return 0;
	}
	int rc = jx_put(x, &b, v, false);
	if (rc < 0)
		js_drop(&b);
	return rc < 0 ? rc : js_done(x, &b, s_p);
}

struct json_style {
	int indent;
	const char *item, *pair;
	bool sort, ascii;
};

static int json_text(struct jx *x, struct js_build *b, const struct jstr *s, bool ascii)
{
	TRY(add(x, b, "\""));
	for (size_t i = 0, len; i < s->n; i += len) {
		static const char plain[] = "\"\\\n\r\t\f\b", code[] = "\"\\nrtfb";
		uint32_t c = utf8_char(s->p + i, &len);
		const char *at = c ? strchr(plain, c < 128 ? (int)c : 'x') : NULL;
		char esc[16];
		if (at)
			snprintf(esc, sizeof esc, "\\%c", code[at - plain]);
		else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f))
			snprintf(esc, sizeof esc, "\\u%04x", c);
		else if (ascii && c >= 0x10000)
			snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
				 0xdc00 + (c & 0x3ff));
		else
			snprintf(esc, sizeof esc, "%.*s", (int)len, s->p + i);
		TRY(js_add(x, b, esc, strlen(esc), js_source(s, i)));
	}
	return add(x, b, "\"");
}

static int json_line(struct jx *x, struct js_build *b, const struct json_style *st, unsigned depth)
{
	if (st->indent < 0)
		return 0;
	TRY(add(x, b, "\n"));
	for (unsigned i = 0; i < depth * (unsigned)st->indent; i++)
		TRY(add(x, b, " "));
	return 0;
}

static int json_value(struct jx *x, struct js_build *b, struct jval v, const struct json_style *st,
		      unsigned depth);

static int json_key(struct jx *x, struct js_build *b, struct jval key, const struct json_style *st)
{
	char text[64];
	if (key.k == J_STR)
		return json_text(x, b, key.s, st->ascii);
	if (key.k == J_FLOAT)
		float_text(key.f, true, text, sizeof text);
	else if (key.k == J_INT)
		snprintf(text, sizeof text, "%lld", (long long)key.i);
	else if (key.k == J_BOOL || key.k == J_NONE)
		snprintf(text, sizeof text, "%s",
			 key.k == J_NONE ? "null"
			 : key.b         ? "true"
					 : "false");
	else
		return jx_fail(x, "tojson: %s cannot be a key", jx_kind(key));
	TRY(add(x, b, "\""));
	TRY(add(x, b, text));
	return add(x, b, "\"");
}

static int json_dict(struct jx *x, struct js_build *b, const struct jdict *d,
		     const struct json_style *st, unsigned depth)
{
	size_t *order = jx_alloc(x, d->n * sizeof *order);
	if (!order)
		return x->e->code;
	for (size_t i = 0; i < d->n; i++) {
		size_t k = i;
		for (; st->sort && k; k--) {
			int o;
			TRY(jx_tick(x, 1));
			TRY(jx_order(x, d->key[order[k - 1]], d->key[i], &o));
			if (o <= 0)
				break;
			order[k] = order[k - 1];
		}
		order[k] = i;
	}
	TRY(add(x, b, "{"));
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			TRY(add(x, b, st->item));
		TRY(json_line(x, b, st, depth + 1));
		TRY(json_key(x, b, d->key[order[i]], st));
		TRY(add(x, b, st->pair));
		TRY(json_value(x, b, d->v[order[i]], st, depth + 1));
	}
	if (d->n)
		TRY(json_line(x, b, st, depth));
	return add(x, b, "}");
}

static int json_list(struct jx *x, struct js_build *b, const struct jlist *l,
		     const struct json_style *st, unsigned depth)
{
	TRY(add(x, b, "["));
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			TRY(add(x, b, st->item));
		TRY(json_line(x, b, st, depth + 1));
		TRY(json_value(x, b, l->v[i], st, depth + 1));
	}
	if (l->n)
		TRY(json_line(x, b, st, depth));
	return add(x, b, "]");
}

static int json_value(struct jx *x, struct js_build *b, struct jval v, const struct json_style *st,
		      unsigned depth)
{
	char text[64];
	int rc;
	switch (v.k) {
	case J_NONE:
		return add(x, b, "null");
	case J_BOOL:
		return add(x, b, v.b ? "true" : "false");
	case J_INT:
		return jx_put(x, b, v, false);
	case J_FLOAT:
		float_text(v.f, true, text, sizeof text);
		return add(x, b, text);
	case J_STR:
		return json_text(x, b, v.s, st->ascii);
	case J_LIST:
	case J_TUPLE:
	case J_DICT:
		TRY(jx_enter(x));
		rc = v.k == J_DICT ? json_dict(x, b, v.d, st, depth)
				   : json_list(x, b, v.l, st, depth);
		jx_leave(x);
		return rc;
	default:
		return jx_fail(x, "tojson: %s has no JSON", jx_kind(v));
	}
}

int jx_json(struct jx *x, struct jval v, int indent, const char *item, const char *pair, bool sort,
	    bool ascii, struct jval *s_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	struct json_style st = { indent, item, pair, sort, ascii };
	int rc = json_value(x, &b, v, &st, 0);
	if (rc < 0)
		js_drop(&b);
	return rc < 0 ? rc : js_done(x, &b, s_p);
}
