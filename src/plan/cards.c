/* SPDX-License-Identifier: Apache-2.0 */
/* cards.c - the library of cards: finding one by what people call it, and what it computes. Adding
 * one to a profile is card_add.c. */
#include "plan/cards.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opt.h"

enum family {
#define FAMILY(id, fp32, fp16) id,
#define CARD(...)
#include "plan/cards.def"
#undef FAMILY
#undef CARD
};

static const struct {
	double fp32, fp16;
} families[] = {
#define FAMILY(id, fp32, fp16) { fp32, fp16 },
#define CARD(...)
#include "plan/cards.def"
#undef FAMILY
#undef CARD
};

#define MEASURED(rate, peak)                                                                       \
	{                                                                                          \
		rate, peak                                                                         \
	}
#define SHEET(peak)                                                                                \
	{                                                                                          \
		0, peak                                                                            \
	}
#define WHERE_CARD false
#define WHERE_HOST true

static const struct card cards[] = {
#define FAMILY(id, fp32, fp16)
#define CARD(name, also, family, memory, gbytes, fp32, fp16, native, where, watts)                 \
	{ name, also, family, memory, gbytes, fp32, fp16, CARD_##native, WHERE_##where, watts },
#include "plan/cards.def"
#undef FAMILY
#undef CARD
};

const struct card *card_at(size_t i) { return i < ARRAY_LEN(cards) ? &cards[i] : NULL; }

/* ---- names ---- */

enum { WORDS_MOST = 12, WORD_MOST = 24, NAME_MOST = 128 };

struct words {
	char word[WORDS_MOST][WORD_MOST];
	int n;
};

/* What makers put before or behind the name of a card. */
static bool is_noise(const char *word)
{
	static const char *const noise[] = { "nvidia", "geforce",  "tesla", "amd", "intel",
					     "radeon", "instinct", "tm",    "r",   "graphics",
					     "apple",  "gb",       "gib",   "" };
	for (size_t i = 0; i < ARRAY_LEN(noise); i++)
		if (!strcmp(word, noise[i]))
			return true;
	return false;
}

/* "rtx" of "rtx3090" is a word of its own. */
static bool is_series(const char *word, size_t n)
{
	return (n == 3 && (!memcmp(word, "rtx", 3) || !memcmp(word, "gtx", 3))) ||
	       (n == 2 && !memcmp(word, "rx", 2));
}

/* The words of a name in small letters, each once: runs of letters and digits, without noise, and
 * "24gb" as "24". */
static void split(const char *s, size_t n, struct words *w)
{
	w->n = 0;
	for (size_t i = 0; i < n;) {
		char word[WORD_MOST];
		size_t k = 0;
		bool known = false;

		while (i < n && !isalnum((unsigned char)s[i]))
			i++;
		for (; i < n && isalnum((unsigned char)s[i]); i++) {
			if (isdigit((unsigned char)s[i]) && is_series(word, k))
				break;
			if (k + 1 < sizeof word)
				word[k++] = (char)tolower((unsigned char)s[i]);
		}
		word[k] = 0;
		if (k > 2 && isdigit((unsigned char)word[0]) && !strcmp(word + k - 2, "gb"))
			word[k - 2] = 0;
		for (int j = 0; j < w->n; j++)
			known = known || !strcmp(w->word[j], word);
		if (!known && !is_noise(word) && w->n < WORDS_MOST)
			memcpy(w->word[w->n++], word, sizeof word);
	}
}

static bool within(const struct words *a, const struct words *b)
{
	for (int i = 0; i < a->n; i++) {
		bool found = false;
		for (int j = 0; j < b->n; j++)
			found = found || !strcmp(a->word[i], b->word[j]);
		if (!found)
			return false;
	}
	return a->n > 0;
}

/* The name after `*at` of a card: its own, then the others. */
static bool next_name(const struct card *c, const char **at, const char **name, size_t *n)
{
	if (!*at) {
		*name = c->name;
		*n = strlen(c->name);
		*at = c->also;
		return true;
	}
	if (!**at)
		return false;
	*name = *at;
	*n = strcspn(*at, "|");
	*at += *n + ((*at)[*n] == '|');
	return true;
}

/* 2: it is one of the card's names; 1: all its words are in one; 0: neither. */
static int fits(const struct card *c, const struct words *want)
{
	const char *at = NULL, *name;
	struct words w;
	size_t n;
	int best = 0;

	while (next_name(c, &at, &name, &n)) {
		split(name, n, &w);
		if (within(want, &w)) {
			int how = w.n == want->n ? 2 : 1;
			best = how > best ? how : best;
		}
	}
	return best;
}

/* Those that fit best; returns how many, and lists them. */
static int candidates(const char *kind, const struct card **first, char *list, size_t cap)
{
	struct words want;
	int best = 1, n = 0;
	size_t at = 0;

	split(kind, strlen(kind), &want);
	*first = NULL;
	for (size_t i = 0; i < ARRAY_LEN(cards); i++)
		if (fits(&cards[i], &want) == 2)
			best = 2;
	if (cap)
		list[0] = 0;
	for (size_t i = 0; i < ARRAY_LEN(cards); i++)
		if (fits(&cards[i], &want) >= best) {
			if (!n++)
				*first = &cards[i];
			if (at < cap)
				at += (size_t)snprintf(list + at, cap - at, "%s%s",
						       n > 1 ? ", " : "", cards[i].name);
		}
	return n;
}

const struct card *card_find(const char *kind)
{
	const struct card *c;
	return candidates(kind, &c, NULL, 0) == 1 ? c : NULL;
}

/* Edits from one name to the other, both without blanks, marks and noise. */
static unsigned far(const char *name, size_t n, const struct words *want)
{
	struct words w;
	char a[NAME_MOST], b[NAME_MOST];
	size_t na = 0, nb = 0;

	split(name, n, &w);
	a[0] = b[0] = 0;
	for (int i = 0; i < w.n && na < sizeof a; i++)
		na += (size_t)snprintf(a + na, sizeof a - na, "%s", w.word[i]);
	for (int i = 0; i < want->n && nb < sizeof b; i++)
		nb += (size_t)snprintf(b + nb, sizeof b - nb, "%s", want->word[i]);
	return opt_distance(a, b);
}

enum { NEAREST = 3 };

static void nearest(const char *kind, char *list, size_t cap)
{
	const struct card *near[NEAREST] = { NULL };
	unsigned d[NEAREST] = { UINT_MAX, UINT_MAX, UINT_MAX };
	struct words want;
	size_t at = 0;

	split(kind, strlen(kind), &want);
	for (size_t i = 0; i < ARRAY_LEN(cards); i++) {
		const char *from = NULL, *name;
		unsigned least = UINT_MAX;
		size_t n;
		int k = NEAREST;
		while (next_name(&cards[i], &from, &name, &n)) {
			unsigned x = far(name, n, &want);
			least = x < least ? x : least;
		}
		while (k > 0 && least < d[k - 1])
			k--;
		if (k == NEAREST)
			continue;
		for (int j = NEAREST - 1; j > k; j--) {
			d[j] = d[j - 1];
			near[j] = near[j - 1];
		}
		d[k] = least;
		near[k] = &cards[i];
	}
	list[0] = 0;
	for (int k = 0; k < NEAREST && near[k] && at < cap; k++)
		at += (size_t)snprintf(list + at, cap - at, "%s%s", k ? ", " : "", near[k]->name);
}

int card_need(const char *kind, const char *where, const char *hint, const struct card **card_p,
	      struct err *e)
{
	char list[400];
	int n = candidates(kind, card_p, list, sizeof list);

	if (n == 1)
		return 0;
	*card_p = NULL;
	if (n > 1)
		return err_set(e, ERR_USAGE,
			       "%s: '%s' can be several cards: %s; write the one "
			       "that is meant",
			       where, kind, list);
	nearest(kind, list, sizeof list);
	return err_set(e, ERR_USAGE, "%s: no card '%s' in the library; the nearest are %s%s%s",
		       where, kind, list, hint ? "; " : "", hint ? hint : "");
}

/* ---- rates ---- */

static const struct card_rate *rate_of(const struct card *c, bool fp32)
{
	return fp32 ? &c->fp32 : &c->fp16;
}

struct card_speed card_speed(const struct card *c, const char *dtype)
{
	const bool fp32 = !strcmp(dtype, "float32");
	const struct card_rate *r = rate_of(c, fp32);
	struct card_speed s = { .peak = r->peak, .measured = r->measured > 0 };
	double sum = 0;
	int n = 0;

	s.share = fp32 ? families[c->family].fp32 : families[c->family].fp16;
	s.assumed = s.share > 0;
	for (size_t i = 0; i < ARRAY_LEN(cards) && !s.assumed; i++) {
		const struct card_rate *o = rate_of(&cards[i], fp32);
		if (cards[i].family != c->family || !(o->measured > 0))
			continue;
		sum += o->measured / o->peak;
		n++;
	}
	if (n)
		s.share = sum / n;
	if (s.measured) {
		s.share = r->measured / r->peak;
		s.assumed = false;
	}
	s.tflops = s.measured ? r->measured : s.share * s.peak;
	return s;
}

void card_speed_text(const struct card_speed *s, struct buf *b)
{
	if (s->measured)
		buf_addf(b, "%.3g TFLOP/s, measured by others", s->tflops);
	else
		buf_addf(b, "%.3g TFLOP/s, %.0f %% of the data sheet's %.4g, %s", s->tflops,
			 100 * s->share, s->peak,
			 s->assumed ? "assumed: no card of its kind was measured"
				    : "as measured cards of its kind reach");
}
