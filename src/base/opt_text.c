/* SPDX-License-Identifier: Apache-2.0 */
/* opt_text.c - what is made from option rows besides values: --help, the Markdown reference, and
 * the nearest known word. */
#include "base/opt.h"

#include "base/buf.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MOST = 63, HELP_COLUMN = 36, WIDTH = 100 };

static char fold(char c) { return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Damerau-Levenshtein (optimal string alignment): insertions, deletions, substitutions, swaps
 * of neighbours. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned row[3][WORD_MOST + 2];
	for (size_t j = 0; j <= nb; j++)
		row[0][j] = (unsigned)j;
	unsigned *last2 = row[2], *last = row[0], *now = row[1];
	for (size_t i = 1; i <= na; i++) {
		now[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			char ca = fold(a[i - 1]), cb = fold(b[j - 1]);
			unsigned d = last[j - 1] + (ca != cb);
			d = last[j] + 1 < d ? last[j] + 1 : d;
			d = now[j - 1] + 1 < d ? now[j - 1] + 1 : d;
			if (i > 1 && j > 1 && ca == fold(b[j - 2]) && cb == fold(a[i - 2]) &&
			    last2[j - 2] + 1 < d)
				d = last2[j - 2] + 1;
			now[j] = d;
		}
		unsigned *t = last2;
		last2 = last;
		last = now;
		now = t;
	}
	return last[nb];
}

struct near {
	const char *word;
	unsigned d;
	const char *within; /* contains the wanted word or is contained in it */
};

unsigned opt_distance(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	return na > WORD_MOST || nb > WORD_MOST ? UINT_MAX : distance(a, na, b, nb);
}

static void near_try(struct near *b, const char *want, const char *word)
{
	size_t nw = strlen(want), n = strlen(word);
	if (nw > WORD_MOST || n > WORD_MOST)
		return;
	unsigned d = distance(want, nw, word, n);
	if (d <= 3 && 2 * (size_t)d < nw + 1 && d < b->d)
		b->d = d, b->word = word;
	if (!b->within && nw >= 4 && n >= 4 && (strstr(word, want) || strstr(want, word)))
		b->within = word;
}

const char *opt_nearest(const struct opt *rows, size_t n, const char *key)
{
	struct near b = { NULL, 4, NULL };
	for (size_t i = 0; i < n; i++)
		near_try(&b, key, rows[i].key);
	return b.word ? b.word : b.within;
}

const char *opt_nearest_word(const char *const *words, const char *word)
{
	struct near b = { NULL, 4, NULL };
	for (; *words; words++)
		near_try(&b, word, *words);
	return b.word ? b.word : b.within;
}

const char *opt_names_text(const struct opt_names *n, const char *between, char *s, size_t cap)
{
	const char *name, *help;
	size_t at = 0;
	s[0] = 0;
	for (size_t i = 0; (name = n->at(i, &help)) && at < cap; i++)
		at += (size_t)snprintf(s + at, cap - at, "%s%s", i ? between : "", name);
	return s;
}

/* The names as help shows them: with their other names. */
static void names_in_full(const struct opt_names *n, char *s, size_t cap)
{
	const char *name, *help;
	size_t at = 0;
	s[0] = 0;
	for (size_t i = 0; (name = n->at(i, &help)) && at < cap; i++) {
		const char *const *other = n->aliases ? n->aliases(i) : NULL;
		at += (size_t)snprintf(s + at, cap - at, "%s%s", i ? ", " : "", name);
		for (; other && *other && at < cap; other++)
			at += (size_t)snprintf(s + at, cap - at, " (or %s)", *other);
	}
}

/* The word for the value in --help; `s` is its memory where it has to be composed. */
static const char *kind_word(const struct opt *r, char *s, size_t cap)
{
	if (r->arg)
		return r->arg;
	switch (r->kind) {
	case OPT_NAME:
		return opt_names_text(r->names, "|", s, cap);
	case OPT_BOOL:
		return "true|false";
	case OPT_INT:
		return "N";
	case OPT_FLOAT:
		return "X";
	case OPT_ENUM:
		return r->choices;
	case OPT_LIST:
		return "A,B,...";
	default:
		return "TEXT";
	}
}

/* "1 to 64", "at least 1", "" when any value is allowed. An upper end of a million or more is only
 * a safety limit and is not shown. */
static void range_text(const struct opt *r, char *s, size_t cap)
{
	s[0] = 0;
	if ((r->kind != OPT_INT && r->kind != OPT_FLOAT) || r->lo == r->hi)
		return;
	if (r->hi >= 1e6)
		snprintf(s, cap, "%s %.15g", r->lo_open ? "above" : "at least", r->lo);
	else
		snprintf(s, cap, r->lo_open ? "above %.15g, up to %.15g" : "%.15g to %.15g", r->lo,
			 r->hi);
}

static bool default_worth_saying(const struct opt *r)
{
	return r->def && *r->def && !(r->kind == OPT_BOOL && !strcmp(r->def, "false"));
}

/* Prints the words of `text` from the help column on; `at` is the current column. */
static void wrap(struct buf *out, const char *text, size_t at)
{
	bool first = true;
	while (*text) {
		size_t n = strcspn(text, " ");
		if (at + n + !first > WIDTH && !first) {
			buf_addf(out, "\n%*s", HELP_COLUMN, "");
			at = HELP_COLUMN;
			first = true;
		}
		if (!first)
			buf_addc(out, ' '), at++;
		buf_add(out, text, n);
		at += n;
		first = false;
		text += n + (text[n] == ' ');
	}
	buf_addc(out, '\n');
}

static void head_text(const struct opt *r, bool flag, char *s, size_t cap)
{
	if (!flag) {
		snprintf(s, cap, "  %s", r->key);
		return;
	}
	char key[64], word[256];
	size_t i = 0;
	for (; r->key[i] && i + 1 < sizeof key; i++)
		key[i] = r->key[i] == '_' ? '-' : r->key[i];
	key[i] = 0;
	if (r->kind == OPT_BOOL)
		snprintf(s, cap, "  --%s%s", r->def && !strcmp(r->def, "true") ? "[no-]" : "", key);
	else
		snprintf(s, cap, "  --%s %s", key, kind_word(r, word, sizeof word));
}

/* What an option means, its words, range and default. */
static void meaning(const struct opt *r, bool as_flag, char *text, size_t cap)
{
	char range[80], words[512];
	range_text(r, range, sizeof range);
	int t = snprintf(text, cap, "%s", r->help);
	if (r->kind == OPT_ENUM && (!as_flag || r->arg))
		t += snprintf(text + t, cap - (size_t)t, ": %s", r->choices);
	if (r->names && (!as_flag || r->arg)) {
		names_in_full(r->names, words, sizeof words);
		t += snprintf(text + t, cap - (size_t)t, ": %s", words);
	}
	bool def = default_worth_saying(r);
	if (def || range[0])
		snprintf(text + t, cap - (size_t)t, " (%s%s%s%s)", range,
			 def && range[0] ? "; " : "", def ? "default " : "", def ? r->def : "");
}

void opt_help(const struct opt *rows, size_t n, bool as_flags, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		const struct opt *r = &rows[i];
		if (r->section)
			buf_addf(out, "%s%s:\n", i ? "\n" : "", r->section);
		char head[384], text[1024];
		head_text(r, as_flags, head, sizeof head);
		meaning(r, as_flags, text, sizeof text);
		size_t at = strlen(head);
		buf_adds(out, head);
		if (at + 2 > HELP_COLUMN) {
			buf_addc(out, '\n');
			at = 0;
		}
		buf_addf(out, "%*s", (int)(HELP_COLUMN - at), "");
		wrap(out, text, HELP_COLUMN);
	}
}

void opt_roff(struct buf *out, const char *text)
{
	for (bool begins = true; *text; begins = *text++ == '\n') {
		if (begins && (*text == '.' || *text == '\''))
			buf_adds(out, "\\&");
		if (*text == '\\')
			buf_adds(out, "\\e");
		else if (*text == '-')
			buf_adds(out, "\\-");
		else
			buf_addc(out, *text);
	}
}

void opt_man(const struct opt *rows, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		const struct opt *r = &rows[i];
		char head[384], text[1024];
		if (r->section) {
			buf_adds(out, ".SS ");
			opt_roff(out, r->section);
			buf_addc(out, '\n');
		}
		head_text(r, true, head, sizeof head);
		meaning(r, true, text, sizeof text);
		buf_adds(out, ".TP\n.B ");
		opt_roff(out, head + strspn(head, " "));
		buf_addc(out, '\n');
		opt_roff(out, text);
		buf_addc(out, '\n');
	}
}

void opt_flags(const struct opt *rows, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		buf_adds(out, " --");
		for (const char *p = rows[i].key; *p; p++)
			buf_addc(out, *p == '_' ? '-' : *p);
	}
}

static void cell(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (*s == '|')
			buf_addc(out, '\\');
		buf_addc(out, *s);
	}
}

void opt_markdown(const struct opt *rows, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		const struct opt *r = &rows[i];
		if (r->section || !i)
			buf_addf(out,
				 "%s## %s\n\n| key | value | default | meaning "
				 "|\n|---|---|---|---|\n",
				 i ? "\n" : "", r->section ? r->section : "Options");
		char range[80], word[512];
		range_text(r, range, sizeof range);
		buf_addf(out, "| `%s` | ", r->key);
		if (range[0])
			buf_adds(out, range);
		else
			cell(out, kind_word(r, word, sizeof word));
		buf_adds(out, " | ");
		if (r->def && *r->def)
			buf_addf(out, "`%s`", r->def);
		buf_adds(out, " | ");
		cell(out, r->help);
		if (r->names) {
			names_in_full(r->names, word, sizeof word);
			buf_addf(out, ": %s", word);
		}
		buf_adds(out, " |\n");
	}
}
