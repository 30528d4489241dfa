/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_method.c - see jinja_method.h. */
#include "data/jinja_method.h"

#include "base/mem.h"
#include "data/token.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

static bool starts(const struct jstr *s, size_t at, const struct jstr *with)
{
	return s->n - at >= with->n && !memcmp(s->p + at, with->p, with->n);
}

/* The first `what` in [from, to) of s, or -1. */
static int64_t find(const struct jstr *s, size_t from, size_t to, const struct jstr *what)
{
	if (!what->n || from > to)
		return from <= to ? (int64_t)from : -1;
	const char *p = memmem(s->p + from, to - from, what->p, what->n);
	return p ? p - s->p : -1;
}

/* The last one that ends at or before `to`. Each place that is compared costs up to the length of
 * `what`, so it counts as steps. */
static int find_last(struct jx *x, const struct jstr *s, size_t to, const struct jstr *what,
		     int64_t *at_p)
{
	*at_p = -1;
	if (what->n > to)
		return 0;
	for (size_t i = to - what->n + 1; i-- > 0;) {
		size_t same = 0;
		while (same < what->n && s->p[i + same] == what->p[same])
			same++;
		if (same == what->n) {
			*at_p = (int64_t)i;
			return 0;
		}
		if (same >= 64)
			TRY(jx_tick(x, same / 64));
	}
	return 0;
}

static bool has_char(const struct jstr *set, const char *p, size_t n)
{
	return n <= set->n && memmem(set->p, set->n, p, n);
}

/* Bytes of the character at one end of [begin, end) of s, where it goes; else 0. */
static size_t strippable(const struct jstr *s, size_t begin, size_t end, const struct jstr *chars,
			 bool right)
{
	size_t n = 1;
	if (!chars)
		return js_space(s->p + begin, end - begin, right);
	if (begin == end)
		return 0;
	if (right)
		while (((uint8_t)s->p[end - n] & 0xc0) == 0x80)
			n++;
	else
		while (begin + n < end && ((uint8_t)s->p[begin + n] & 0xc0) == 0x80)
			n++;
	return has_char(chars, right ? s->p + end - n : s->p + begin, n) ? n : 0;
}

int jinja_strip(struct jx *x, const struct jstr *s, const struct jstr *chars, bool left, bool right,
		struct jval *v_p)
{
	size_t begin = 0, end = s->n, k;
	/* each character of s is looked for in all of chars */
	TRY(jx_tick(x, chars ? s->n / 8 * (1 + chars->n / 8) : 1));
	while (left && (k = strippable(s, begin, end, chars, false)))
		begin += k;
	while (right && (k = strippable(s, begin, end, chars, true)))
		end -= k;
	return js_part(x, s, begin, end, v_p);
}

int jinja_replace(struct jx *x, const struct jstr *s, const struct jstr *old,
		  const struct jstr *with, int64_t count, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	size_t at = 0;
	int64_t k;
	int rc = 0;
	if (!old->n)
		return jx_fail(x, "replace: the text to replace is empty");
	while (count-- != 0 && (k = find(s, at, s->n, old)) >= 0) {
		TRYOUT(jx_tick(x, 1));
		TRYOUT(js_part_put(x, &b, s, at, (size_t)k));
		TRYOUT(js_put(x, &b, with));
		at = (size_t)k + old->n;
	}
	TRYOUT(js_part_put(x, &b, s, at, s->n));
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

/* Bytes of a line's end at `i`, as Python's splitlines() counts them. */
static size_t line_end(const struct jstr *s, size_t i)
{
	uint8_t c = (uint8_t)s->p[i];
	if (c == '\r')
		return i + 1 < s->n && s->p[i + 1] == '\n' ? 2 : 1;
	if ((c >= 0x0a && c <= 0x0c) || (c >= 0x1c && c <= 0x1e))
		return 1;
	if (c == 0xc2 && s->n - i > 1 && (uint8_t)s->p[i + 1] == 0x85)
		return 2;
	return s->n - i > 2 && (!memcmp(s->p + i, "\xe2\x80\xa8", 3) ||
				!memcmp(s->p + i, "\xe2\x80\xa9", 3))
		       ? 3
		       : 0;
}

int jinja_lines(struct jx *x, const struct jstr *s, bool ends, struct jval *v_p)
{
	struct jval part;
	TRY(jl_new(x, v_p));
	for (size_t i = 0, from = 0; i < s->n || from < s->n;) {
		size_t k = i < s->n ? line_end(s, i) : 0;
		if (i < s->n && !k) {
			i++;
			continue;
		}
		TRY(js_part(x, s, from, ends ? i + k : i, &part));
		TRY(jl_add(x, v_p->l, part));
		from = i += k;
	}
	return 0;
}

int jinja_join(struct jx *x, const struct jlist *l, const struct jstr *between, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	int rc = 0;
	TRY(jx_tick(x, l->n / 2));
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			TRYOUT(js_put(x, &b, between));
		TRYOUT(jx_put(x, &b, l->v[i], false));
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

static bool is_letter(uint32_t c)
{
	utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
	return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT;
}

int jinja_case(struct jx *x, const struct jstr *s, enum jcase how, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	bool begin = true;
	int rc = 0;
	for (size_t i = 0, len; i < s->n; i += len) {
		uint32_t c = utf8_char(s->p + i, &len);
		char out[4];
		bool up = how == CASE_UPPER || (how >= CASE_CAPITAL && begin);
		begin = how == CASE_TITLE && !is_letter(c);
		c = (uint32_t)(up ? utf8proc_toupper((utf8proc_int32_t)c)
				  : utf8proc_tolower((utf8proc_int32_t)c));
		TRYOUT(js_add(x, &b, out, utf8_put(c, out), js_source(s, i)));
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

int jinja_dict_items(struct jx *x, const struct jdict *d, struct jval *v_p)
{
	TRY(jl_new(x, v_p));
	for (size_t i = 0; i < d->n; i++) {
		struct jval pair;
		TRY(jl_new(x, &pair));
		pair.k = J_TUPLE;
		TRY(jl_add(x, pair.l, d->key[i]));
		TRY(jl_add(x, pair.l, d->v[i]));
		TRY(jl_add(x, v_p->l, pair));
	}
	return 0;
}

static int format_number(struct jx *x, struct js_build *b, const char *spec, struct jval v)
{
	char text[400];
	if (!jx_is_number(v))
		return jx_fail(x, "%%%c needs a number, not %s", spec[strlen(spec) - 1],
			       jx_kind(v));
	if (spec[strlen(spec) - 1] != 'f' && !(fabs(jx_float(v)) < 9e18))
		return jx_fail(x, "%%d: the number is too large");
	if (spec[strlen(spec) - 1] == 'f') {
		const char *dot = strchr(spec, '.');
		int digits = dot ? (int)strtol(dot + 1, NULL, 10) : 6;
		snprintf(text, sizeof text, "%.*f", digits, jx_float(v));
	} else {
		snprintf(text, sizeof text, "%lld",
			 v.k == J_FLOAT ? (long long)v.f : (long long)(v.k == J_BOOL ? v.b : v.i));
	}
	return js_add(x, b, text, strlen(text), 0);
}

int jinja_format(struct jx *x, const struct jstr *f, const struct jval *v, size_t n,
		 struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	size_t at = 0, next = 0;
	int rc = 0;
	while (at < f->n) {
		const char *p = memchr(f->p + at, '%', f->n - at);
		size_t k = p ? (size_t)(p - f->p) : f->n;
		TRYOUT(js_part_put(x, &b, f, at, k));
		if (!p)
			break;
		char spec[8] = "";
		size_t len = 0;
		do
			spec[len++] = ++k < f->n ? f->p[k] : 0;
		while (len < sizeof spec - 1 && spec[len - 1] &&
		       strchr(".0123456789", spec[len - 1]));
		char kind = spec[len - 1];
		at = k + 1;
		if (kind == '%' && len == 1) {
			TRYOUT(js_add(x, &b, "%", 1, 0));
			continue;
		}
		bool text = (kind == 's' || kind == 'r') && len == 1,
		     number = ((kind == 'd' || kind == 'i') && len == 1) ||
			      (kind == 'f' && (len == 1 || (len == 3 && spec[0] == '.')));
		if (!kind || (!text && !number))
			rc = jx_fail(x, "format: only %%s, %%r, %%d, %%f and %%.Nf are known");
		else if (next >= n)
			rc = jx_fail(x, "format: has too few values");
		else
			rc = text ? jx_put(x, &b, v[next++], kind == 'r')
				  : format_number(x, &b, spec, v[next++]);
		if (rc < 0)
			goto out;
	}
	if (next < n) {
		rc = jx_fail(x, "format: has too many values");
		goto out;
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

/* ---- strings -------------------------------------------------------------------------------- */

enum {
	S_STRIP,
	S_LSTRIP,
	S_RSTRIP,
	S_SPLIT,
	S_RSPLIT,
	S_LINES,
	S_STARTS,
	S_ENDS,
	S_REPLACE,
	S_UPPER,
	S_LOWER,
	S_TITLE,
	S_CAPITAL,
	S_FIND,
	S_RFIND,
	S_COUNT,
	S_JOIN,
	S_DIGIT,
	S_ALPHA,
	S_SPACE,
	S_NO_PREFIX,
	S_NO_SUFFIX,
	S_PARTITION,
	S_RPARTITION,
	S_FORMAT
};

static const char *const string_methods[] = {
	"strip",        "lstrip",       "rstrip",     "split",      "rsplit",
	"splitlines",   "startswith",   "endswith",   "replace",    "upper",
	"lower",        "title",        "capitalize", "find",       "rfind",
	"count",        "join",         "isdigit",    "isalpha",    "isspace",
	"removeprefix", "removesuffix", "partition",  "rpartition", "format",
};

/* Between white space. */
static int split_space(struct jx *x, const struct jstr *s, int64_t most, struct jlist *l)
{
	struct jval part;
	for (size_t i = 0, k;;) {
		while ((k = js_space(s->p + i, s->n - i, false)))
			i += k;
		if (i >= s->n)
			return 0;
		size_t from = i;
		bool last = most >= 0 && (int64_t)l->n >= most;
		while (i < s->n && (last || !js_space(s->p + i, s->n - i, false)))
			i++;
		TRY(js_part(x, s, from, i, &part));
		TRY(jl_add(x, l, part));
	}
}

static int split(struct jx *x, const struct jstr *s, const struct jargs *a, bool right,
		 struct jval *v_p)
{
	const struct jstr *sep = NULL;
	int64_t most = -1;
	struct jval part;
	TRY(jx_args_check(x, a, "split", 2, "sep maxsplit"));
	TRY(jx_arg_str(x, a, 0, "sep", &sep));
	TRY(jx_arg_int(x, a, 1, "maxsplit", &most));
	TRY(jl_new(x, v_p));
	if (!sep && right && most >= 0)
		return jx_fail(x, "rsplit: needs a separator");
	if (!sep)
		return split_space(x, s, most, v_p->l);
	if (!sep->n)
		return jx_fail(x, "split: the separator is empty");
	size_t begin = 0, end = s->n;
	while (most-- != 0) {
		int64_t k = right ? -1 : find(s, begin, s->n, sep);
		if (right)
			TRY(find_last(x, s, end, sep, &k));
		if (k < 0)
			break;
		TRY(js_part(x, s, right ? (size_t)k + sep->n : begin, right ? end : (size_t)k,
			    &part));
		TRY(jl_add(x, v_p->l, part));
		TRY(jx_tick(x, right ? s->n / 64 : 1));
		if (right)
			end = (size_t)k;
		else
			begin = (size_t)k + sep->n;
	}
	TRY(js_part(x, s, begin, end, &part));
	TRY(jl_add(x, v_p->l, part));
	for (size_t i = 0, n = v_p->l->n; right && i < n / 2; i++) {
		part = v_p->l->v[i];
		v_p->l->v[i] = v_p->l->v[n - 1 - i];
		v_p->l->v[n - 1 - i] = part;
	}
	return 0;
}

static int affix(struct jx *x, const struct jstr *s, const struct jargs *a, bool end,
		 struct jval *v_p)
{
	struct jval what;
	TRY(jx_args_check(x, a, end ? "endswith" : "startswith", 1, ""));
	if (!jx_arg(a, 0, "", &what))
		return jx_fail(x, "%s: needs a text", end ? "endswith" : "startswith");
	struct jlist one = { .v = &what, .n = 1 }, *l = what.k == J_TUPLE ? what.l : &one;
	*v_p = J_TRUTH(false);
	for (size_t i = 0; i < l->n && !v_p->b; i++) {
		if (l->v[i].k != J_STR)
			return jx_fail(x, "%s: needs a text, not %s",
				       end ? "endswith" : "startswith", jx_kind(l->v[i]));
		const struct jstr *w = l->v[i].s;
		TRY(jx_tick(x, w->n / 64));
		v_p->b = w->n <= s->n && starts(s, end ? s->n - w->n : 0, w);
	}
	return 0;
}

static int partition(struct jx *x, const struct jstr *s, const struct jstr *sep, bool right,
		     struct jval *v_p)
{
	if (!sep->n)
		return jx_fail(x, "partition: the separator is empty");
	int64_t k = right ? -1 : find(s, 0, s->n, sep);
	if (right)
		TRY(find_last(x, s, s->n, sep, &k));
	size_t a = k >= 0 ? (size_t)k : right ? 0 : s->n, b = k >= 0 ? a + sep->n : a;
	const size_t cut[4] = { 0, a, b, s->n };
	TRY(jl_new(x, v_p));
	v_p->k = J_TUPLE;
	for (int i = 0; i < 3; i++) {
		struct jval part;
		TRY(js_part(x, s, cut[i], cut[i + 1], &part));
		TRY(jl_add(x, v_p->l, part));
	}
	return 0;
}

static bool all_of(const struct jstr *s, int what)
{
	for (size_t i = 0, len; i < s->n; i += len) {
		uint32_t c = utf8_char(s->p + i, &len);
		utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
		if (what == S_SPACE   ? !js_space(s->p + i, s->n - i, false)
		    : what == S_DIGIT ? k != UTF8PROC_CATEGORY_ND
				      : !(k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO))
			return false;
	}
	return s->n > 0;
}

/* '{} {0} {name}'.format(...) */
static int braces(struct jx *x, const struct jstr *s, const struct jargs *a, struct jval *v_p)
{
	struct js_build b = { .t.text = BUF_INIT };
	size_t next = 0;
	int rc = 0;
	for (size_t i = 0; i < s->n; i++) {
		char c = s->p[i], name[32] = "";
		struct jval v;
		bool twice = i + 1 < s->n && s->p[i + 1] == c;
		if ((c != '{' && c != '}') || twice) {
			TRYOUT(js_part_put(x, &b, s, i, i + 1));
			i += c == '{' || c == '}';
			continue;
		}
		const char *end = memchr(s->p + i, '}', s->n - i);
		size_t n = end ? (size_t)(end - s->p) - i - 1 : sizeof name;
		if (c == '}' || n >= sizeof name || memchr(s->p + i + 1, ':', n)) {
			rc = jx_fail(x, "format: only {}, {0} and {name} are known");
			goto out;
		}
		memcpy(name, s->p + i + 1, n);
		char *digits_end;
		TRYOUT(jx_tick(x, a->n / 16));
		size_t at = n ? strtoul(name, &digits_end, 10) : next++;
		bool found = !n || (!*digits_end && name[0] != '-') ? jx_arg(a, at, "", &v)
								    : jx_arg(a, SIZE_MAX, name, &v);
		if (!found) {
			rc = jx_fail(x, "format: there is no value for {%s}", name);
			goto out;
		}
		TRYOUT(jx_put(x, &b, v, false));
		i += n + 1;
	}
	return js_done(x, &b, v_p);
out:
	js_drop(&b);
	return rc;
}

static int count(struct jx *x, const struct jstr *s, const struct jstr *what, struct jval *v_p)
{
	int64_t n = 0, k = 0;
	if (!what->n)
		return jx_fail(x, "count: the text is empty");
	for (; (k = find(s, (size_t)k, s->n, what)) >= 0; k += (int64_t)what->n, n++)
		TRY(jx_tick(x, 1));
	*v_p = J_NUMBER(n);
	return 0;
}

static int string_method(struct jx *x, const struct jstr *s, int m, const struct jargs *a,
			 struct jval *v_p)
{
	const struct jstr *text = NULL, *with = NULL;
	int64_t n = -1;
	bool keep = false;
	struct jval v;
	TRY(jx_tick(x, s->n / 64));
	switch (m) {
	case S_STRIP:
	case S_LSTRIP:
	case S_RSTRIP:
		TRY(jx_args_check(x, a, "strip", 1, ""));
		TRY(jx_arg_str(x, a, 0, "", &text));
		return jinja_strip(x, s, text, m != S_RSTRIP, m != S_LSTRIP, v_p);
	case S_SPLIT:
	case S_RSPLIT:
		return split(x, s, a, m == S_RSPLIT, v_p);
	case S_LINES:
		TRY(jx_args_check(x, a, "splitlines", 1, "keepends"));
		keep = jx_arg(a, 0, "keepends", &v) && jx_true(v);
		return jinja_lines(x, s, keep, v_p);
	case S_STARTS:
	case S_ENDS:
		return affix(x, s, a, m == S_ENDS, v_p);
	case S_UPPER:
	case S_LOWER:
	case S_CAPITAL:
	case S_TITLE:
		TRY(jx_args_check(x, a, string_methods[m], 0, ""));
		return jinja_case(x, s,
				  m == S_UPPER     ? CASE_UPPER
				  : m == S_LOWER   ? CASE_LOWER
				  : m == S_CAPITAL ? CASE_CAPITAL
						   : CASE_TITLE,
				  v_p);
	case S_DIGIT:
	case S_ALPHA:
	case S_SPACE:
		*v_p = J_TRUTH(all_of(s, m));
		return jx_args_check(x, a, string_methods[m], 0, "");
	case S_FORMAT:
		return braces(x, s, a, v_p);
	case S_JOIN:
		TRY(jx_args_check(x, a, "join", 1, ""));
		if (!jx_arg(a, 0, "", &v))
			return jx_fail(x, "join: needs a list");
		struct jlist *l;
		TRY(jx_items(x, v, &l));
		return jinja_join(x, l, s, v_p);
	default:
		break;
	}
	TRY(jx_args_check(x, a, string_methods[m], m == S_REPLACE ? 3 : 1, "count"));
	TRY(jx_arg_str(x, a, 0, "", &text));
	if (!text)
		return jx_fail(x, "%s: needs a text", string_methods[m]);
	switch (m) {
	case S_REPLACE:
		TRY(jx_arg_str(x, a, 1, "", &with));
		TRY(jx_arg_int(x, a, 2, "count", &n));
		return with ? jinja_replace(x, s, text, with, n, v_p)
			    : jx_fail(x, "replace: needs two texts");
	case S_FIND:
	case S_RFIND:
		n = m == S_FIND ? find(s, 0, s->n, text) : -1;
		if (m == S_RFIND)
			TRY(find_last(x, s, s->n, text, &n));
		if (n > 0) /* bytes to characters */
			n = (int64_t)js_length(&(struct jstr){ .p = s->p, .n = (size_t)n });
		*v_p = J_NUMBER(n);
		return 0;
	case S_COUNT:
		return count(x, s, text, v_p);
	case S_NO_PREFIX:
		n = text->n <= s->n && starts(s, 0, text) ? (int64_t)text->n : 0;
		return js_part(x, s, (size_t)n, s->n, v_p);
	case S_NO_SUFFIX:
		n = text->n <= s->n && starts(s, s->n - text->n, text) ? (int64_t)text->n : 0;
		return js_part(x, s, 0, s->n - (size_t)n, v_p);
	default:
		return partition(x, s, text, m == S_RPARTITION, v_p);
	}
}

/* ---- dicts, lists, functions ---------------------------------------------------------------- */

static int dict_method(struct jx *x, const struct jdict *d, const char *name, const struct jargs *a,
		       struct jval *v_p)
{
	struct jval key;
	if (!strcmp(name, "get")) {
		TRY(jx_args_check(x, a, "get", 2, "default"));
		*v_p = J_NOTHING;
		jx_arg(a, 1, "default", v_p);
		if (!jx_arg(a, 0, "", &key))
			return jx_fail(x, "get: needs a key");
		int rc = jd_get(x, d, key, v_p);
		return rc < 0 ? rc : 0;
	}
	TRY(jx_args_check(x, a, name, 0, ""));
	if (!strcmp(name, "items"))
		return jinja_dict_items(x, d, v_p);
	if (!strcmp(name, "copy")) {
		TRY(jd_new(x, v_p));
		for (size_t i = 0; i < d->n; i++)
			TRY(jd_set(x, v_p->d, d->key[i], d->v[i]));
		return 0;
	}
	TRY(jl_new(x, v_p));
	for (size_t i = 0; i < d->n; i++)
		TRY(jl_add(x, v_p->l, name[0] == 'k' ? d->key[i] : d->v[i]));
	return 0;
}

static int list_method(struct jx *x, const struct jlist *l, const char *name, const struct jargs *a,
		       struct jval *v_p)
{
	struct jval what;
	int64_t n = 0;
	TRY(jx_args_check(x, a, name, 1, ""));
	if (!jx_arg(a, 0, "", &what))
		return jx_fail(x, "%s: needs a value", name);
	TRY(jx_tick(x, l->n));
	for (size_t i = 0; i < l->n; i++) {
		bool same;
		TRY(jx_equal(x, l->v[i], what, &same));
		if (same && !strcmp(name, "index")) {
			*v_p = J_NUMBER((int64_t)i);
			return 0;
		}
		n += same;
	}
	*v_p = J_NUMBER(n);
	return !strcmp(name, "index") ? jx_fail(x, "index: the value is not in the list") : 0;
}

static int range(struct jx *x, const struct jargs *a, struct jval *v_p)
{
	int64_t v[3] = { 0, 0, 1 };
	TRY(jx_args_check(x, a, "range", 3, ""));
	if (!a->n)
		return jx_fail(x, "range: needs a number");
	for (size_t i = 0; i < a->n; i++)
		TRY(jx_arg_int(x, a, i, "", &v[a->n == 1 ? 1 : i]));
	if (!v[2])
		return jx_fail(x, "range: the step is 0");
	TRY(jl_new(x, v_p));
	for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
		if (v_p->l->n >= 100000) /* as jinja2's sandbox */
			return jx_fail(x, "range: more than 100000 numbers");
		TRY(jl_add(x, v_p->l, J_NUMBER(i)));
		if (__builtin_add_overflow(i, v[2], &i))
			break;
	}
	return 0;
}

/* namespace(...) and dict(...) */
static int make_dict(struct jx *x, const struct jargs *a, enum jkind k, struct jval *v_p)
{
	struct jval from, key;
	TRY(jd_new(x, v_p));
	for (size_t i = 0; i < a->n; i++) {
		if (a->name[i]) {
			TRY(js_make(x, a->name[i], strlen(a->name[i]), 0, &key));
			TRY(jd_set(x, v_p->d, key, a->v[i]));
			continue;
		}
		from = a->v[i];
		if (i || from.k != J_DICT)
			return jx_fail(x, "namespace and dict take a dict, or names with values");
		for (size_t m = 0; m < from.d->n; m++)
			TRY(jd_set(x, v_p->d, from.d->key[m], from.d->v[m]));
	}
	v_p->k = k;
	if (k == J_SPACE) {
		v_p->d->space = x->spaces;
		x->spaces = v_p->d;
	}
	return 0;
}

static int now(struct jx *x, const struct jargs *a, struct jval *v_p)
{
	const struct jstr *f = NULL;
	char format[128] = "", out[512], *copy;
	struct tm day = { 0 };
	TRY(jx_args_check(x, a, "strftime_now", 1, "format"));
	TRY(jx_arg_str(x, a, 0, "format", &f));
	if (!f || f->n >= sizeof format)
		return jx_fail(x, "strftime_now: needs a format of less than 128 bytes");
	memcpy(format, f->p, f->n);
	strptime(JINJA_DATE, "%Y-%m-%d", &day);
	size_t n = strftime(out, sizeof out, format, &day);
	TRY(js_new(x, n, &copy, NULL, v_p));
	memcpy(copy, out, n);
	return 0;
}

static int refuse(struct jx *x, const struct jargs *a)
{
	struct jval v, text;
	if (!jx_arg(a, 0, "message", &v))
		return jx_fail(x, "raise_exception: needs a message");
	TRY(jx_text(x, v, &text));
	char out[400];
	size_t n = 0;
	for (size_t i = 0; i < text.s->n && n + 1 < sizeof out; i++)
		out[n++] = (uint8_t)text.s->p[i] < ' ' ? ' ' : text.s->p[i];
	while (n && utf8_valid(out, n) != n) /* cut between characters */
		n--;
	out[n] = 0;
	return jx_fail(x, "the template refuses the conversation: %s", out);
}

static int function(struct jx *x, const char *name, const struct jargs *a, struct jval *v_p)
{
	if (!strcmp(name, "range"))
		return range(x, a, v_p);
	if (!strcmp(name, "strftime_now"))
		return now(x, a, v_p);
	if (!strcmp(name, "raise_exception"))
		return refuse(x, a);
	return make_dict(x, a, name[0] == 'd' ? J_DICT : J_SPACE, v_p);
}

static int lookup(enum jkind k, const char *name)
{
	static const char *const dicts[] = { "items", "keys", "values", "get", "copy" },
				 *const lists[] = { "index", "count" },
				 *const functions[] = { "range", "strftime_now", "raise_exception",
							"namespace", "dict" };
	const char *const *words = k == J_STR     ? string_methods
				   : k == J_DICT  ? dicts
				   : k == J_UNDEF ? functions
						  : lists;
	size_t n = k == J_STR                    ? ARRAY_LEN(string_methods)
		   : k == J_DICT                 ? ARRAY_LEN(dicts)
		   : k == J_UNDEF                ? ARRAY_LEN(functions)
		   : k == J_LIST || k == J_TUPLE ? ARRAY_LEN(lists)
						 : 0;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(words[i], name))
			return (int)i;
	return -1;
}

bool jinja_has_method(enum jkind k, const char *name) { return lookup(k, name) >= 0; }

int jinja_method(struct jx *x, const struct jmethod *m, const struct jargs *a, struct jval *v_p)
{
	switch (m->self.k) {
	case J_STR:
		return string_method(x, m->self.s, lookup(J_STR, m->name), a, v_p);
	case J_DICT:
		return dict_method(x, m->self.d, m->name, a, v_p);
	case J_UNDEF:
		return function(x, m->name, a, v_p);
	default:
		return list_method(x, m->self.l, m->name, a, v_p);
	}
}
