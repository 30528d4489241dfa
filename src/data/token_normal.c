/* SPDX-License-Identifier: Apache-2.0 */
/* token_normal.c - normalisers of tokenizer.json: NFC, NFD, NFKC, NFKD, Prepend, Replace (of a
 * string), and sequences of these. */
#include "data/token.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int read_normalizer(struct tokenizer *t, const json_t *o, const char *where, int depth,
			   struct err *e)
{
	static const char *const forms[] = { "NFC", "NFD", "NFKC", "NFKD" };
	const char *type = NULL;
	TRY(json_need_str(o, where, "type", &type, e));
	if (!strcmp(type, "Sequence")) {
		const json_t *list = json_object_get(o, "normalizers"), *item;
		size_t i;
		if (!json_is_array(list) || depth)
			return err_set(e, ERR_INPUT,
				       "%s: a Sequence needs a list 'normalizers', not nested",
				       where);
		json_array_foreach(list, i, item)
			TRY(read_normalizer(t, item, where, depth + 1, e));
		return 0;
	}
	if (t->nstep == TOKEN_STEPS_MAX)
		return err_set(e, ERR_UNSUPPORTED, "%s: more than %d normalizers", where,
			       TOKEN_STEPS_MAX);
	struct normal_step s = { 0 };
	const char *to = NULL;
	bool known = false;
	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		if (!strcmp(type, forms[i])) {
			s.kind = NORMAL_NFC + (int)i;
			known = true;
		}
	if (!strcmp(type, "Prepend")) {
		s.kind = NORMAL_PREPEND;
		TRY(json_need_str(o, where, "prepend", &to, e));
	} else if (!strcmp(type, "Replace")) {
		const char *from = NULL;
		s.kind = NORMAL_REPLACE;
		const json_t *pattern = json_object_get(o, "pattern");
		if (json_object_get(pattern, "Regex"))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: the normalizer Replace with a Regex is not supported",
				       where);
		TRY(json_need_str(pattern, where, "String", &from, e));
		TRY(json_need_str(o, where, "content", &to, e));
		s.nfrom = strlen(from);
		if (!s.nfrom)
			return err_set(e, ERR_INPUT,
				       "%s: the normalizer Replace has an empty pattern", where);
		s.from = token_copy(t, from, s.nfrom);
	} else if (!known) {
		return err_set(e, ERR_UNSUPPORTED, "%s: the normalizer '%.64s' is not supported",
			       where, type);
	}
	if (to) {
		s.nto = strlen(to);
		if (s.nto > 64)
			return err_set(e, ERR_INPUT,
				       "%s: the normalizer %s inserts %zu bytes, more than 64",
				       where, type, s.nto);
		s.to = token_copy(t, to, s.nto);
	}
	if ((to && !s.to) || (s.nfrom && !s.from))
		return err_nomem(e, s.nto, "a normalizer");
	t->step[t->nstep++] = s;
	return 0;
}

int token_normal_read(struct tokenizer *t, const json_t *normalizer, const char *where,
		      struct err *e)
{
	return !normalizer || json_is_null(normalizer)
		       ? 0
		       : read_normalizer(t, normalizer, where, 0, e);
}

/* Below U+0300 everything is NFC, and ASCII is every form. */
static bool unchanged(enum normal_kind kind, const char *text, size_t n)
{
	unsigned char limit = kind == NORMAL_NFC ? 0xcc : 0x80;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] >= limit)
			return false;
	return true;
}

static int unicode_form(enum normal_kind kind, const char *text, size_t n, struct buf *out,
			struct err *e)
{
	static const utf8proc_option_t option[] = {
		[NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
		[NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
		[NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
		[NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
	};
	utf8proc_uint8_t *r = NULL;
	utf8proc_ssize_t len =
		utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &r, option[kind]);
	if (len < 0)
		return err_set(e, len == UTF8PROC_ERROR_NOMEM ? ERR_NOMEM : ERR_INPUT,
			       "cannot normalise a text of %zu bytes: %s", n, utf8proc_errmsg(len));
	buf_add(out, r, (size_t)len);
	free(r); /* utf8proc's own memory */
	return buf_ok(out, e);
}

/* A text may grow to GROWTH times its length; of the standard forms NFKD grows most, 11 times. */
enum { GROWTH = 64, GROWTH_LEAST = 4096, GROWN_MAX = 0x7fff0000 };

static int refuse_growth(struct token_run *s, size_t n)
{
	return err_set(s->e, ERR_INPUT,
		       "a text of %zu bytes grows too long in the tokenizer's normalizer", n);
}

int token_normalize(struct token_run *s, const char *text, size_t n, bool front, const char **out_p,
		    size_t *n_p)
{
	const struct tokenizer *t = s->t;
	unsigned into = 0;
	size_t n0 = n, most = GROWTH_LEAST + GROWTH * n;
	most = most < GROWN_MAX ? most : GROWN_MAX;
	for (size_t i = 0; i < t->nstep && n; i++) {
		const struct normal_step *st = &t->step[i];
		struct buf *b = &s->normal[into];
		buf_reset(b);
		if (st->kind == NORMAL_PREPEND) {
			if (!front)
				continue;
			buf_add(b, st->to, st->nto);
			buf_add(b, text, n);
		} else if (st->kind == NORMAL_REPLACE) {
			const char *at = memmem(text, n, st->from, st->nfrom);
			if (!at)
				continue;
			const char *end = text + n;
			size_t count = 0;
			for (const char *p = at; p;
			     p = memmem(p + st->nfrom, (size_t)(end - p) - st->nfrom, st->from,
					st->nfrom))
				count++;
			if (st->nto > st->nfrom && count > (most - n) / (st->nto - st->nfrom))
				return refuse_growth(s, n0);
			for (; at; at = memmem(text, (size_t)(end - text), st->from, st->nfrom)) {
				buf_add(b, text, (size_t)(at - text));
				buf_add(b, st->to, st->nto);
				text = at + st->nfrom;
			}
			buf_add(b, text, (size_t)(end - text));
		} else {
			if (unchanged(st->kind, text, n))
				continue;
			TRY(unicode_form(st->kind, text, n, b, s->e));
		}
		TRY(buf_ok(b, s->e));
		if (b->n > most)
			return refuse_growth(s, n0);
		text = b->p;
		n = b->n;
		into ^= 1;
	}
	*out_p = text;
	*n_p = n;
	return 0;
}

int token_normal_length(const struct tokenizer *t, const char *text, size_t n, size_t *n_p,
			struct err *e)
{
	struct token_run s = { .t = t, .e = e, .normal = { BUF_INIT, BUF_INIT } };
	size_t total = 0;
	int rc = 0;
	/* A replacement counts with the length of what it replaced. */
	bool forms = false;
	for (size_t i = 0; i < t->nstep; i++)
		forms |= t->step[i].kind <= NORMAL_NFKD;
	if (!forms) {
		*n_p = n;
		return 0;
	}
	for (size_t i = 0; i < n;) {
		size_t run = utf8_valid(text + i, n - i), len = 0;
		const char *out;
		TRYOUT(token_normalize(&s, text + i, run, false, &out, &len));
		total += len;
		i += run;
		if (i < n) {
			total++;
			i++;
		}
	}
	*n_p = total;
out:
	buf_release(&s.normal[0]);
	buf_release(&s.normal[1]);
	return rc;
}
