/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_lex.c - the tokens of a template, and which white space around tags goes: `-` and `+` in
 * tags, trim_blocks and lstrip_blocks (both on), a line feed at the end of the template (goes). */
#include "base/mem.h"
#include "data/jinja_tree.h"
#include "data/token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lex {
	const char *p;
	size_t n, at;
	unsigned line;
	bool line_start; /* the last token ended with a line feed */
	struct arena *mem;
	struct jtoken *t;
	size_t nt, cap;
	struct err *e;
};

static int fail(const struct lex *l, const char *what)
{
	return err_set(l->e, ERR_INPUT, "chat template: line %u: %s", l->line, what);
}

static int add(struct lex *l, struct jtoken t)
{
	t.line = l->line;
	if (!mem_grow(&l->t, &l->cap, l->nt + 1, sizeof *l->t))
		return err_nomem(l->e, (l->nt + 1) * sizeof *l->t, "a chat template");
	l->t[l->nt++] = t;
	return 0;
}

static bool at(const struct lex *l, size_t i, const char *what)
{
	size_t n = strlen(what);
	return l->n - i >= n && i <= l->n && !memcmp(l->p + i, what, n);
}

static size_t skip_space(const struct lex *l, size_t i)
{
	size_t k;
	while (i < l->n && (k = js_space(l->p + i, l->n - i, false)))
		i += k;
	return i;
}

/* Consumes up to `to`. */
static void move(struct lex *l, size_t to)
{
	for (size_t i = l->at; i < to; i++)
		l->line += l->p[i] == '\n';
	if (to > l->at)
		l->line_start = l->p[to - 1] == '\n';
	l->at = to;
}

/* The text before a tag at `end`, less the white space that the tag takes away. `sign`: what stands
 * in the tag; `strip`: lstrip_blocks is for this kind of tag. */
static int data(struct lex *l, size_t end, char sign, bool strip)
{
	size_t n = end - l->at, k;
	const char *p = l->p + l->at;
	if (sign == '-') {
		while (n && (k = js_space(p, n, true)))
			n -= k;
	} else if (sign != '+' && strip) {
		size_t from = n, i;
		while (from && p[from - 1] != '\n')
			from--;
		for (i = from; i < n && (k = js_space(p + i, n - i, false)); i += k)
			;
		if ((from || l->line_start) && i == n)
			n = from;
	}
	if (n)
		TRY(add(l, (struct jtoken){ .kind = JT_DATA, .p = p, .n = n }));
	move(l, end);
	return 0;
}

/* Where the end of a tag at `i` ends with the white space it takes, or 0. */
static size_t tag_end(const struct lex *l, size_t i, const char *mark, bool trim)
{
	size_t len = strlen(mark);
	if (at(l, i, "-") && at(l, i + 1, mark))
		return skip_space(l, i + 1 + len);
	if (trim && at(l, i, "+") && at(l, i + 1, mark))
		return i + 1 + len;
	if (at(l, i, mark))
		return i + len + (trim && at(l, i + len, "\n"));
	return 0;
}

static int comment(struct lex *l)
{
	size_t end, i = l->at + 2;
	for (i += at(l, i, "-") || at(l, i, "+"); i < l->n; i++)
		if ((end = tag_end(l, i, "#}", true))) {
			move(l, end);
			return 0;
		}
	return fail(l, "the comment that begins here does not end");
}

/* {% raw %}: where its tag ends, or 0. */
static size_t raw_tag(const struct lex *l, size_t i, const char *word, bool trim)
{
	if (!at(l, i, "{%"))
		return 0;
	i += 2;
	if (at(l, i, "-") || at(l, i, "+"))
		i++;
	i = skip_space(l, i);
	if (!at(l, i, word))
		return 0;
	return tag_end(l, skip_space(l, i + strlen(word)), "%}", trim);
}

static int raw(struct lex *l, size_t begin)
{
	move(l, begin);
	for (size_t i = l->at, end; i < l->n; i++)
		if ((end = raw_tag(l, i, "endraw", true))) {
			TRY(data(l, i, l->p[i + 2], true));
			move(l, end);
			return 0;
		}
	return fail(l, "{% raw %} without {% endraw %}");
}

static bool name_char(char c, bool first)
{
	return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (!first && c >= '0' && c <= '9');
}

static int hex(const char *p, size_t n, uint32_t *c_p)
{
	uint32_t c = 0;
	for (size_t i = 0; i < n; i++) {
		const char *digits = "0123456789abcdef", *d;
		char k = p[i] >= 'A' && p[i] <= 'F' ? (char)(p[i] + 32) : p[i];
		if (!k || !(d = strchr(digits, k)))
			return -1;
		c = c * 16 + (uint32_t)(d - digits);
	}
	*c_p = c;
	return 0;
}

/* A string in quotes, with Python's escapes. */
static int text(struct lex *l)
{
	char quote = l->p[l->at];
	size_t end = l->at + 1, n = 0;
	while (end < l->n && l->p[end] != quote)
		end += l->p[end] == '\\' ? 2 : 1;
	if (end >= l->n)
		return fail(l, "the string that begins here does not end");
	char *out = arena_alloc(l->mem, end - l->at);
	if (!out)
		return err_nomem(l->e, end - l->at, "a chat template");
	for (size_t i = l->at + 1; i < end;) {
		static const char names[] = "nrtabfv0'\"\\", values[] = "\n\r\t\a\b\f\v\0'\"\\";
		const char *k;
		char c = l->p[i++];
		uint32_t u;
		if (c != '\\') {
			out[n++] = c;
			continue;
		}
		c = l->p[i++];
		size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
		if (digits) {
			if (end - i < digits || hex(l->p + i, digits, &u) < 0 || u > 0x10ffff ||
			    (u >= 0xd800 && u < 0xe000))
				return fail(l, "a string has a wrong \\x or \\u");
			i += digits;
			n += utf8_put(u, out + n);
		} else if (c == '\n') {
			continue;
		} else if (c >= '1' && c <= '7') {
			return fail(l, "a string has an octal number behind a \\; write \\x");
		} else if (c && (k = memchr(names, c, sizeof names - 1))) {
			out[n++] = values[k - names];
		} else {
			out[n++] = '\\';
			out[n++] = c;
		}
	}
	TRY(add(l, (struct jtoken){ .kind = JT_TEXT, .p = out, .n = n }));
	move(l, end + 1);
	return 0;
}

static int number(struct lex *l)
{
	char s[48];
	size_t i = l->at, n = 0;
	bool real = false;
	for (; i < l->n && n < sizeof s - 2; i++) { /* an exponent takes two at once */
		char c = l->p[i];
		if (c == '_')
			continue;
		bool dot = c == '.' && !real && i + 1 < l->n && l->p[i + 1] >= '0' &&
			   l->p[i + 1] <= '9';
		bool exp =
			(c == 'e' || c == 'E') && i + 1 < l->n && n &&
			(strchr("+-", l->p[i + 1]) || (l->p[i + 1] >= '0' && l->p[i + 1] <= '9'));
		if (exp) {
			s[n++] = c;
			c = l->p[++i];
		}
		if (!dot && !exp && !(c >= '0' && c <= '9'))
			break;
		real = real || dot || exp;
		s[n++] = c;
	}
	s[n] = 0;
	struct jtoken t = { .kind = real ? JT_FLOAT : JT_INT };
	errno = 0;
	if (real)
		t.f = strtod(s, NULL);
	else
		t.i = strtoll(s, NULL, 10);
	if (errno || n >= sizeof s - 2)
		return fail(l, "a number is too large");
	TRY(add(l, t));
	move(l, i);
	return 0;
}

/* One token inside a tag. *open counts brackets. */
static int inside(struct lex *l, size_t *open)
{
	static const char *const ops[] = { "//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
					   "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
					   "<",  ">",  "=",  ".",  ":",  "|",  ",", ";" };
	char c = l->p[l->at];
	if (name_char(c, true)) {
		size_t end = l->at;
		while (end < l->n && name_char(l->p[end], false))
			end++;
		const char *name = arena_strndup(l->mem, l->p + l->at, end - l->at);
		if (!name)
			return err_nomem(l->e, end - l->at, "a chat template");
		TRY(add(l, (struct jtoken){ .kind = JT_NAME, .p = name, .n = end - l->at }));
		move(l, end);
		return 0;
	}
	if (c >= '0' && c <= '9')
		return number(l);
	if (c == '\'' || c == '"')
		return text(l);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		if (at(l, l->at, ops[i])) {
			if (strchr("([{", c))
				++*open;
			else if (strchr(")]}", c) && !(*open)--)
				return fail(l, "a bracket that was not opened");
			TRY(add(l, (struct jtoken){
					   .kind = JT_OP, .p = ops[i], .n = strlen(ops[i]) }));
			move(l, l->at + strlen(ops[i]));
			return 0;
		}
	return fail(l, "a character that has no meaning in a tag");
}

static int tag(struct lex *l, bool var)
{
	unsigned line = l->line;
	TRY(add(l, (struct jtoken){ .kind = var ? JT_VAR : JT_TAG }));
	size_t begin = l->at + 2, open = 0;
	if (at(l, begin, "-") || at(l, begin, "+"))
		begin++;
	move(l, begin);
	for (;;) {
		move(l, skip_space(l, l->at));
		if (l->at >= l->n) {
			l->line = line;
			return fail(l, "the tag that begins here does not end");
		}
		size_t end = open ? 0 : tag_end(l, l->at, var ? "}}" : "%}", !var);
		if (end) {
			TRY(add(l, (struct jtoken){ .kind = var ? JT_VAR_END : JT_TAG_END }));
			move(l, end);
			return 0;
		}
		TRY(inside(l, &open));
	}
}

static int all(struct lex *l)
{
	while (l->at < l->n) {
		size_t i = l->at, end;
		while (i < l->n && !at(l, i, "{{") && !at(l, i, "{%") && !at(l, i, "{#"))
			i++;
		char sign = i + 2 < l->n ? l->p[i + 2] : 0;
		if (i >= l->n)
			return data(l, l->n, '+', false);
		TRY(data(l, i, sign, l->p[i + 1] != '{'));
		if (l->p[i + 1] == '#')
			TRY(comment(l));
		else if ((end = raw_tag(l, i, "raw", false)))
			TRY(raw(l, end));
		else
			TRY(tag(l, l->p[i + 1] == '{'));
	}
	return 0;
}

int jinja_lex(const char *source, size_t n, struct arena *mem, struct jtoken **t_p, size_t *n_p,
	      struct err *e)
{
	/* \r\n and \r become \n; one at the end of the template goes. */
	char *clean = arena_alloc(mem, n + 1);
	size_t k = 0;
	if (!clean)
		return err_nomem(e, n, "a chat template");
	for (size_t i = 0; i < n; i++) {
		if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
			continue;
		clean[k++] = source[i] == '\r' ? '\n' : source[i];
	}
	if (k && clean[k - 1] == '\n')
		k--;
	struct lex l = { .p = clean, .n = k, .line = 1, .line_start = true, .mem = mem, .e = e };
	int rc = all(&l);
	if (rc >= 0)
		rc = add(&l, (struct jtoken){ .kind = JT_END });
	if (rc < 0) {
		mem_free(l.t);
		return rc;
	}
	*t_p = l.t;
	*n_p = l.nt;
	return 0;
}
