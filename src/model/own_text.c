/* SPDX-License-Identifier: Apache-2.0 */
/* own_text.c - see own_text.h. */
#include "model/own_text.h"

#include "base/err.h"
#include "model/own.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64, DEEP = 8, WIDEST = 1 << 24 };

struct reader {
	const char *p, *end, *where;
	struct own_model *m;
	int layers;
	bool ended; /* by its loss */
};

void own_shape_text(const struct own_shape *s, char *out, size_t cap)
{
	size_t at = (size_t)snprintf(out, cap, "(");
	for (int i = 0; i < s->ndim && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%d", i ? ", " : "", (int)s->dim[i]);
	if (at < cap)
		snprintf(out + at, cap - at, ")");
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '=' || c == '-' ||
	       c == '+';
}

/* Blanks and comments; `lines`: the ends of statements too. */
static void skip(struct reader *r, bool lines)
{
	while (r->p < r->end) {
		if (*r->p == '#')
			while (r->p < r->end && *r->p != '\n')
				r->p++;
		else if (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' ||
			 (lines && (*r->p == '\n' || *r->p == ';')))
			r->p++;
		else
			return;
	}
}

/* The next word of a statement; false: the statement has ended. */
static bool next_word(struct reader *r, char word[WORD])
{
	size_t n = 0;
	skip(r, false);
	while (r->p < r->end && is_word(*r->p) && n + 1 < WORD)
		word[n++] = *r->p++;
	word[n] = 0;
	return n > 0;
}

/* What stands here, for messages: a few bytes of this line. */
static const char *rest(const struct reader *r, char out[24])
{
	size_t n = 0;
	while (n < 20 && r->p + n < r->end && r->p[n] && r->p[n] != '\n')
		n++;
	memcpy(out, r->p, n);
	out[n] = 0;
	return out;
}

/* A statement ends here. */
static int need_end(struct reader *r, const char *what, struct err *e)
{
	skip(r, false);
	if (r->p == r->end || *r->p == ';' || *r->p == '\n' || *r->p == '}')
		return 0;
	char text[24];
	return err_set(e, ERR_USAGE, "%s: '%s' behind '%s' is not understood", r->where,
		       rest(r, text), what);
}

static int read_number(const struct reader *r, const char *kind, const struct own_key *k,
		       const char *text, double *v_p, struct err *e)
{
	char *end;
	const double v = strtod(text, &end);
	if (end == text || *end)
		return err_set(e, ERR_USAGE, "%s: '%s' of '%s' is '%s', which is no number",
			       r->where, k->name, kind, text);
	if (!(v >= k->least && v <= k->most) || (k->whole && v != floor(v)))
		return err_set(e, ERR_USAGE, "%s: '%s' of '%s' is %s; it must be %s from %g to %g",
			       r->where, k->name, kind, text,
			       k->whole ? "a whole number" : "a number", k->least, k->most);
	*v_p = v;
	return 0;
}

/* The settings behind a kind. */
static int read_settings(struct reader *r, struct own_block *b, struct err *e)
{
	const struct own_kind *k = b->kind;
	char word[WORD];
	bool given[OWN_NUMBERS] = { false };
	int next = 0;
	while (next_word(r, word)) {
		char *eq = strchr(word, '=');
		int i = eq ? 0 : next++;
		if (eq)
			*eq = 0;
		while (eq && i < OWN_NUMBERS && k->key[i].name && strcmp(k->key[i].name, word))
			i++;
		if (i >= OWN_NUMBERS || !k->key[i].name)
			return err_set(e, ERR_USAGE, "%s: '%s' has no setting '%s'", r->where,
				       k->name, word);
		if (given[i])
			return err_set(e, ERR_USAGE, "%s: '%s' of '%s' is given twice", r->where,
				       k->key[i].name, k->name);
		given[i] = true;
		TRY(read_number(r, k->name, &k->key[i], eq ? eq + 1 : word, &b->v[i], e));
	}
	for (int i = 0; i < OWN_NUMBERS && k->key[i].name; i++) {
		if (given[i])
			continue;
		if (isnan(k->key[i].def))
			return err_set(e, ERR_USAGE, "%s: '%s' needs '%s'", r->where, k->name,
				       k->key[i].name);
		b->v[i] = k->key[i].def;
	}
	return 0;
}

static int refuse_kind(const struct reader *r, const char *word, struct err *e)
{
	char known[512] = "";
	size_t at = 0;
	const struct own_kind *k;
	for (size_t i = 0; (k = own_kind_at(i)) && at < sizeof known; i++)
		at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
				       k->name);
	return err_set(e, ERR_USAGE,
		       "%s: there is no kind of block '%.40s' here (one's own: --plugin, "
		       "hs_block_register); these are: %s",
		       r->where, word, known);
}

static int check_size(const struct reader *r, const struct own_block *b, struct err *e)
{
	const long long n = (long long)own_count(&b->out);
	return n >= 1 && n <= WIDEST
		       ? 0
		       : err_set(e, ERR_USAGE,
				 "%s: '%s' gives rows of %lld numbers; at most %d are possible",
				 r->where, b->kind->name, n, WIDEST);
}

/* Names of parameters are names in checkpoints. */
static int check_params(const struct reader *r, const struct own_block *b, struct err *e)
{
	struct own_param p[OWN_PARAMS];
	const size_t n = b->kind->params ? b->kind->params(b, p) : 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(p[i].name, p[k].name))
				return err_set(e, ERR_USAGE,
					       "%s: '%s' has the parameter '%s' twice", r->where,
					       b->kind->name, p[i].name);
	return 0;
}

/* Sets the output of a block behind `before`, whose output `in` is. */
static int fit(const struct reader *r, struct own_block *b, const char *before,
	       const struct own_shape *in, struct err *e)
{
	char is[64];
	b->in = *in;
	const char *need = b->kind->fit(b);
	own_shape_text(in, is, sizeof is);
	if (need)
		return err_set(e, ERR_USAGE,
			       "%s: '%s' needs rows of the shape %s, but '%s' gives %s", r->where,
			       b->kind->name, need, before, is);
	TRY(check_size(r, b, e));
	return check_params(r, b, e);
}

static int read_blocks(struct reader *r, const char *before, struct own_shape *at, int depth,
		       struct err *e);

/* Sets the output of a block from what those inside of it give. */
static int join(const struct reader *r, struct own_block *b, const struct own_shape *inside,
		const char *gives, struct err *e)
{
	const char *need = b->kind->join(b, inside);
	if (need)
		return err_set(e, ERR_USAGE,
			       "%s: the blocks inside of '%s' give rows of the shape %s; it must "
			       "be %s",
			       r->where, b->kind->name, gives, need);
	return check_size(r, b, e);
}

/* { ... } behind b, which is block `place`. */
static int read_inside(struct reader *r, int place, int depth, struct err *e)
{
	struct own_model *m = r->m;
	char gives[64], needs[64];
	skip(r, true);
	if (r->p == r->end || *r->p != '{')
		return err_set(e, ERR_USAGE, "%s: '%s' needs blocks in braces", r->where,
			       m->block[place].kind->name);
	if (depth == DEEP)
		return err_set(e, ERR_USAGE, "%s: more than %d braces are inside of each other",
			       r->where, DEEP);
	r->p++;
	struct own_shape at = m->block[place].in;
	TRY(read_blocks(r, m->block[place].kind->name, &at, depth + 1, e));
	if (r->p == r->end)
		return err_set(e, ERR_USAGE, "%s: a brace of '%s' is not closed", r->where,
			       m->block[place].kind->name);
	r->p++;
	m->block[place].inside = (uint16_t)(m->n - place - 1);
	if (!m->block[place].inside)
		return err_set(e, ERR_USAGE, "%s: there is no block inside of '%s'", r->where,
			       m->block[place].kind->name);
	own_shape_text(&at, gives, sizeof gives);
	own_shape_text(&m->block[place].out, needs, sizeof needs);
	if (m->block[place].kind->join)
		return join(r, &m->block[place], &at, gives, e);
	if (strcmp(gives, needs))
		return err_set(e, ERR_USAGE,
			       "%s: the blocks inside of '%s' give rows of the shape %s; %s is "
			       "needed",
			       r->where, m->block[place].kind->name, gives, needs);
	return 0;
}

/* Until a closing brace, or at depth 0 the end. */
static int read_blocks(struct reader *r, const char *before, struct own_shape *at, int depth,
		       struct err *e)
{
	struct own_model *m = r->m;
	char word[WORD], text[24];
	for (uint16_t number = 0;; number++) {
		skip(r, true);
		if (r->p == r->end || (depth && *r->p == '}'))
			return 0;
		if (!next_word(r, word))
			return err_set(e, ERR_USAGE, "%s: '%s' is not understood", r->where,
				       rest(r, text));
		struct own_block b = { .kind = own_kind_find(word, strlen(word)),
				       .number = number };
		if (!b.kind)
			return refuse_kind(r, word, e);
		if (r->ended)
			return err_set(e, ERR_USAGE, "%s: '%s' stands behind the loss", r->where,
				       word);
		if (b.kind->loss && depth)
			return err_set(e, ERR_USAGE, "%s: '%s' is a loss and stands inside of '%s'",
				       r->where, word, before);
		TRY(read_settings(r, &b, e));
		TRY(fit(r, &b, before, at, e));
		if (b.kind->loss) {
			TRY(need_end(r, word, e));
			m->loss = b;
			r->ended = true;
			continue;
		}
		if (m->n == OWN_BLOCKS_MOST)
			return err_set(e, ERR_USAGE, "%s: more than %d blocks", r->where,
				       OWN_BLOCKS_MOST);
		const int place = m->n++;
		m->block[place] = b;
		if (!depth)
			m->first[r->layers++] = (uint16_t)place;
		if (b.kind->holds)
			TRY(read_inside(r, place, depth, e));
		TRY(need_end(r, b.kind->name, e));
		*at = m->block[place].out;
		before = b.kind->name;
	}
}

static int read_input(struct reader *r, struct err *e)
{
	static const struct own_key size = { "size", 1, 1 << 24, NAN, true };
	struct own_model *m = r->m;
	double v[OWN_DIMS + 1];
	char word[WORD];
	int n = 0;
	skip(r, true);
	const bool any = next_word(r, word), tokens = !strcmp(word, "tokens");
	if (!any || (!tokens && strcmp(word, "input")))
		return err_set(e, ERR_USAGE,
			       "%s: a model begins with 'input SHAPE' or 'tokens VOCABULARY WIDTH'",
			       r->where);
	char what[WORD];
	snprintf(what, sizeof what, "%s", word);
	while (n <= OWN_DIMS && next_word(r, word))
		TRY(read_number(r, what, &size, word, &v[n++], e));
	if (n < 1 || n > OWN_DIMS || (tokens && n != 2))
		return err_set(e, ERR_USAGE, "%s: '%s' needs %s", r->where, what,
			       tokens ? "two numbers: how many ids there are, and the width of the "
					"embedding"
				      : "one to three numbers: the shape of a row");
	m->input.ndim = tokens ? 1 : n;
	m->tokens = tokens ? (int64_t)v[0] : 0;
	for (int i = 0; i < m->input.ndim; i++)
		m->input.dim[i] = (int32_t)v[tokens ? 1 : i];
	if (own_count(&m->input) > WIDEST)
		return err_set(e, ERR_USAGE, "%s: a row of the input has more than %d numbers",
			       r->where, WIDEST);
	return need_end(r, what, e);
}

int own_read(const char *text, size_t n, const char *where, struct own_model *m_p, struct err *e)
{
	struct reader r = { .p = text, .end = text + n, .where = where, .m = m_p };
	memset(m_p, 0, sizeof *m_p);
	TRY(read_input(&r, e));
	struct own_shape at = m_p->input;
	TRY(read_blocks(&r, m_p->tokens ? "tokens" : "input", &at, 0, e));
	if (!m_p->n)
		return err_set(e, ERR_USAGE, "%s: the model has no block", where);
	return r.ended ? 0
		       : err_set(e, ERR_USAGE,
				 "%s: the model has no loss at its end (as "
				 "'cross_entropy' or 'mse')",
				 where);
}
