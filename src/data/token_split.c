/* SPDX-License-Identifier: Apache-2.0 */
/* token_split.c - pre-tokenizers of tokenizer.json: Split by a pattern, ByteLevel, Digits,
 * Metaspace, and sequences of these.
 *
 * The published patterns are written for Oniguruma (Ruby syntax); translate() rewrites the few
 * escapes that have another meaning in PCRE2 and refuses those that cannot be expressed. A pattern
 * is as untrusted as the rest of the file: PCRE2's limits on steps and memory are set, and where
 * the pattern is not one of the published ones, a callout counts the work of the whole text; to
 * exceed a limit is an error. */
#include "data/token.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <string.h>

/* Steps of the matcher for one match (PCRE2's own default), its memory in KiB, and for a pattern
 * that is not a published one the work for each byte of text: the published ones need about 30. */
enum { PATTERN_MAX = 16384, MATCH_STEPS = 10000000, MATCH_KIB = 65536, WORK_PER_BYTE = 2000 };

/* White_Space, and the inside of a class for \w, \d and \h, as Oniguruma has them. */
#define SPACE                                                                                      \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{"     \
	"202f}\\x{205f}\\x{3000}"
#define CIRCLED "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" CIRCLED
#define HEX "0-9A-Fa-f"

/* A number of times, at p: {3}, {1,3}. `x{1,3}+` repeats `x{1,3}` in Ruby's syntax and is
 * possessive in PCRE2's: `(?:x{1,3})+`. The item before it begins at `item` of `out`. Its length in
 * *n_p. */
static int times(const char *p, size_t item, size_t *n_p, struct buf *out, const char *where,
		 struct err *e)
{
	const size_t n = 1 + strspn(p + 1, "0123456789,");
	*n_p = 0;
	if (n < 2 || p[n] != '}')
		return 0;
	*n_p = n + 1;
	if (p[n + 1] != '+') {
		buf_add(out, p, n + 1);
		return 0;
	}
	if (item == SIZE_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: a group with {} and + in a Split pattern is not supported",
			       where);
	buf_adds(out, "(?:");
	TRY(buf_ok(out, e));
	memmove(out->p + item + 3, out->p + item, out->n - item - 3);
	memcpy(out->p + item, "(?:", 3);
	buf_add(out, p, n + 1);
	buf_addc(out, ')');
	return 0;
}

/* [:name:] of n bytes: letters are others in PCRE2, punctuation has symbols in Oniguruma. */
static int named_class(const char *name, size_t n, struct buf *out, const char *where,
		       struct err *e)
{
	static const char *const same[] = { "digit", "space", "xdigit", "cntrl" };
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		if (n == strlen(same[i]) && !memcmp(name, same[i], n)) {
			buf_addf(out, "[:%s:]", same[i]);
			return 0;
		}
	if (n != 5 || memcmp(name, "punct", n))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the class [:%.*s:] of a Split pattern is not supported", where,
			       n < 20 ? (int)n : 20, name);
	buf_adds(out, "\\p{P}\\p{S}");
	return 0;
}

static int translate(const char *p, struct buf *out, const char *where, struct err *e)
{
	bool in_class = false;
	size_t item = SIZE_MAX; /* where the last one begins; unknown for a group */
	for (; *p; p++) {
		size_t n = 0;
		if (!in_class && *p == '{')
			TRY(times(p, item, &n, out, where, e));
		if (n) {
			p += n - 1;
			continue;
		}
		if (!in_class && !strchr("*+?", *p))
			item = *p == ')' ? SIZE_MAX : out->n;
		if (*p == '\\' && p[1]) {
			char c = *++p;
			const char *set = c == 's' || c == 'S'   ? SPACE
					  : c == 'w' || c == 'W' ? WORD
					  : c == 'h' || c == 'H' ? HEX
								 : NULL;
			bool negated = c == 'S' || c == 'W' || c == 'H';
			if (c == 'u' && strspn(p + 1, "0123456789abcdefABCDEF") >= 4) {
				buf_addf(out, "\\x{%.4s}", p + 1);
				p += 4;
				continue;
			}
			if (set && in_class && !negated)
				buf_adds(out, set);
			else if (set && in_class && c != 'S')
				return err_set(
					e, ERR_UNSUPPORTED,
					"%s: \\%c inside [] of a Split pattern is not supported",
					where, c);
			else if (set && !in_class)
				buf_addf(out, negated ? "[^%s]" : "[%s]", set);
			else if (c == 'b' && !in_class)
				buf_adds(out, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD
					      "])(?=[" WORD "]))");
			else if (c == 'B' && !in_class)
				buf_adds(out, "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD
					      "])(?![" WORD "]))");
			else
				buf_addf(out, "\\%c", c);
			if ((c == 'p' || c == 'P') && p[1] == '{' && strchr(p, '}')) {
				n = strcspn(p, "}"); /* with its name */
				buf_add(out, p + 1, n);
				p += n;
			}
			continue;
		}
		if (in_class && ((*p == '[' && p[1] != ':') || (*p == '&' && p[1] == '&')))
			return err_set(
				e, ERR_UNSUPPORTED,
				"%s: a class inside a class of a Split pattern is not supported",
				where);
		if (in_class && *p == '[') { /* [:name:] */
			const char *end = strstr(p, ":]");
			if (!end)
				return err_set(e, ERR_INPUT,
					       "%s: the Split pattern has an unfinished class",
					       where);
			TRY(named_class(p + 2, (size_t)(end - p) - 2, out, where, e));
			p = end + 1;
			continue;
		}
		buf_addc(out, *p);
		if (in_class && *p == ']') {
			in_class = false;
		} else if (!in_class && *p == '[') {
			in_class = true;
			if (p[1] == '^')
				buf_addc(out, *++p);
			if (p[1] == ']')
				buf_addc(out, *++p);
		}
	}
	return buf_ok(out, e);
}

static int add_split_step(struct tokenizer *t, const struct split_step *s, const char *where,
			  struct err *e)
{
	if (t->nsplit == TOKEN_STEPS_MAX)
		return err_set(e, ERR_UNSUPPORTED, "%s: more than %d pre-tokenizers", where,
			       TOKEN_STEPS_MAX);
	t->split_step[t->nsplit++] = *s;
	return 0;
}

int token_split_regex(struct tokenizer *t, const char *pattern, enum split_how how, bool invert,
		      bool trusted, const char *where, struct err *e)
{
	struct split_step s = { .kind = SPLIT_REGEX, .how = how, .invert = invert };
	struct buf b = BUF_INIT;
	pcre2_compile_context *c = NULL;
	int code, rc = 0;
	PCRE2_SIZE at;
	if (strlen(pattern) > PATTERN_MAX) {
		rc = err_set(e, ERR_INPUT, "%s: the Split pattern is longer than %d bytes", where,
			     PATTERN_MAX);
		goto out;
	}
	TRYOUT(translate(pattern, &b, where, e));
	c = pcre2_compile_context_create(t->pcre);
	if (!c) {
		rc = err_nomem(e, b.n, "a pattern");
		goto out;
	}
	pcre2_set_newline(c, PCRE2_NEWLINE_LF);
	pcre2_set_parens_nest_limit(c, 50);
	uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
			   (trusted ? 0 : PCRE2_AUTO_CALLOUT);
	s.code = pcre2_compile((PCRE2_SPTR)b.p, b.n, options, &code, &at, c);
	if (!s.code && code == PCRE2_ERROR_HEAP_FAILED) {
		rc = err_nomem(e, b.n, "a pattern");
		goto out;
	}
	if (!s.code) {
		PCRE2_UCHAR text[128];
		pcre2_get_error_message(code, text, sizeof text);
		rc = err_set(e, ERR_INPUT,
			     "%s: the Split pattern '%.200s' is not valid at byte %zu: %s", where,
			     b.p, (size_t)at, (char *)text);
		goto out;
	}
	/* without a JIT compiler, PCRE2 interprets the pattern */
	pcre2_jit_compile(s.code, PCRE2_JIT_COMPLETE);
	rc = add_split_step(t, &s, where, e);
	if (rc < 0)
		pcre2_code_free(s.code);
out:
	pcre2_compile_context_free(c);
	buf_release(&b);
	return rc;
}

/* A string as a pattern that matches just it. */
static int quoted(const char *s, struct buf *out, struct err *e)
{
	for (; *s; s++) {
		if (strchr("\\^$.[]|()?*+{}-#&", *s))
			buf_addc(out, '\\');
		buf_addc(out, *s);
	}
	return buf_ok(out, e);
}

static int read_split(struct tokenizer *t, const json_t *o, const char *where, struct err *e)
{
	const char *behavior = NULL, *regex = NULL, *string = NULL;
	bool invert = false;
	const json_t *pattern = json_object_get(o, "pattern");
	TRY(json_need_str(o, where, "behavior", &behavior, e));
	TRY(json_opt_bool(o, where, "invert", &invert, e));
	TRY(json_opt_str(pattern, where, "Regex", &regex, e));
	TRY(json_opt_str(pattern, where, "String", &string, e));
	static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious",
					     "MergedWithNext", "Contiguous" };
	size_t how = 0;
	while (how < ARRAY_LEN(names) && strcmp(behavior, names[how]))
		how++;
	if (how == ARRAY_LEN(names))
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: the pre-tokenizer Split with the behavior '%.64s' is not supported",
			where, behavior);
	if (!regex == !string)
		return err_set(e, ERR_INPUT,
			       "%s: the pre-tokenizer Split needs a pattern (Regex or String)",
			       where);
	if (regex)
		return token_split_regex(t, regex, (enum split_how)how, invert,
					 token_pattern_known(regex), where, e);
	struct buf b = BUF_INIT;
	int rc = quoted(string, &b, e);
	if (rc == 0)
		rc = token_split_regex(t, b.p, (enum split_how)how, invert, true, where, e);
	buf_release(&b);
	return rc;
}

static int read_metaspace(struct tokenizer *t, const json_t *o, const char *where, struct err *e)
{
	const char *mark = NULL, *scheme = NULL;
	bool prefix = true;
	struct split_step s = { .kind = SPLIT_METASPACE, .split = true };
	TRY(json_need_str(o, where, "replacement", &mark, e));
	TRY(json_opt_str(o, where, "prepend_scheme", &scheme, e));
	TRY(json_opt_bool(o, where, "add_prefix_space", &prefix, e));
	TRY(json_opt_bool(o, where, "split", &s.split, e));
	size_t n = strlen(mark), one = 0;
	if (n && n <= 4)
		utf8_char(mark, &one);
	if (one != n || !n)
		return err_set(e, ERR_INPUT,
			       "%s: the replacement of Metaspace must be one character", where);
	memcpy(s.mark, mark, n);
	s.nmark = (uint32_t)n;
	if (!scheme)
		s.scheme = prefix ? METASPACE_ALWAYS : METASPACE_NEVER;
	else if (!strcmp(scheme, "always"))
		s.scheme = METASPACE_ALWAYS;
	else if (!strcmp(scheme, "first"))
		s.scheme = METASPACE_FIRST;
	else if (!strcmp(scheme, "never"))
		s.scheme = METASPACE_NEVER;
	else
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the prepend_scheme '%.64s' of Metaspace is not supported",
			       where, scheme);
	return add_split_step(t, &s, where, e);
}

static int read_pretokenizer(struct tokenizer *t, const json_t *o, const char *where, int depth,
			     struct err *e)
{
	const char *type = NULL;
	TRY(json_need_str(o, where, "type", &type, e));
	if (!strcmp(type, "Sequence")) {
		const json_t *list = json_object_get(o, "pretokenizers"), *item;
		size_t i;
		if (!json_is_array(list) || depth)
			return err_set(e, ERR_INPUT,
				       "%s: a Sequence needs a list 'pretokenizers', not nested",
				       where);
		json_array_foreach(list, i, item)
			TRY(read_pretokenizer(t, item, where, depth + 1, e));
		return 0;
	}
	if (t->byte_level) /* it would see the characters that stand for bytes */
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: a pre-tokenizer ('%.64s') behind ByteLevel is not supported",
			       where, type);
	if (!strcmp(type, "Split"))
		return read_split(t, o, where, e);
	if (!strcmp(type, "Metaspace"))
		return read_metaspace(t, o, where, e);
	if (!strcmp(type, "Digits")) {
		bool each = false;
		TRY(json_opt_bool(o, where, "individual_digits", &each, e));
		return token_split_regex(t, each ? "\\p{N}" : "\\p{N}+", SPLIT_ISOLATED, false,
					 true, where, e);
	}
	if (!strcmp(type, "ByteLevel")) {
		bool prefix = true, regex = true;
		t->byte_level = true;
		TRY(json_opt_bool(o, where, "add_prefix_space", &prefix, e));
		TRY(json_opt_bool(o, where, "use_regex", &regex, e));
		if (prefix)
			TRY(add_split_step(t, &(struct split_step){ .kind = SPLIT_PREFIX_SPACE },
					   where, e));
		return regex ? token_split_regex(t, token_gpt2_pattern, SPLIT_ISOLATED, false, true,
						 where, e)
			     : 0;
	}
	return err_set(e, ERR_UNSUPPORTED, "%s: the pre-tokenizer '%.64s' is not supported", where,
		       type);
}

int token_split_read(struct tokenizer *t, const json_t *pre_tokenizer, const char *where,
		     struct err *e)
{
	return !pre_tokenizer || json_is_null(pre_tokenizer)
		       ? 0
		       : read_pretokenizer(t, pre_tokenizer, where, 0, e);
}

/* Counts the items that were tried and the bytes that were skipped. */
static int count_work(pcre2_callout_block *b, void *ctx)
{
	struct token_run *s = ctx;
	size_t from = s->work_at, to = b->current_position;
	s->work_at = to;
	s->work += 1 + (to > from ? to - from : from - to);
	return s->work > s->work_most ? PCRE2_ERROR_CALLOUT : 0;
}

int token_limits(struct token_run *s, size_t n)
{
	s->match = pcre2_match_data_create(1, s->t->pcre);
	s->limits = pcre2_match_context_create(s->t->pcre);
	if (!s->match || !s->limits)
		return err_nomem(s->e, 1024, "a pattern");
	pcre2_set_match_limit(s->limits, MATCH_STEPS);
	pcre2_set_depth_limit(s->limits, MATCH_STEPS);
	pcre2_set_heap_limit(s->limits, MATCH_KIB);
	pcre2_set_callout(s->limits, count_work, s);
	s->work_most = ((uint64_t)n + 4096) * WORK_PER_BYTE;
	return 0;
}

/* 1 with [*begin_p, *end_p) for the next match at or after `from`, 0 when there is none. */
static int next_match(struct token_run *s, const struct split_step *st, const char *text, size_t n,
		      size_t from, uint32_t options, size_t *begin_p, size_t *end_p)
{
	int rc = pcre2_match(st->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | options,
			     s->match, s->limits);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(st->code, (PCRE2_SPTR)text, n, from,
				 PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT | options, s->match, s->limits);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc == PCRE2_ERROR_NOMEMORY)
		return err_nomem(s->e, n, "a pattern");
	if (rc == PCRE2_ERROR_CALLOUT)
		return err_set(s->e, ERR_INPUT,
			       "the tokenizer's pattern takes too long on a text of %zu bytes", n);
	if (rc < 0) {
		PCRE2_UCHAR why[128];
		pcre2_get_error_message(rc, why, sizeof why);
		return err_set(s->e, ERR_INPUT,
			       "the tokenizer's pattern cannot split a text of %zu bytes: %s", n,
			       (char *)why);
	}
	const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->match);
	*begin_p = v[0];
	*end_p = v[1];
	/* \K and look-behind can make a match begin before where the search did. */
	if (*begin_p < from || *end_p < *begin_p)
		return err_set(s->e, ERR_UNSUPPORTED,
			       "the tokenizer's pattern matches backwards, which is not supported");
	return 1;
}

/* What has been read and may still grow, as NormalizedString::split() of `tokenizers` has it. */
struct piece {
	size_t begin, end;
	bool match, any;
};

static int emit_piece(struct token_run *s, size_t k, const char *text, bool start,
		      const struct piece *p)
{
	if (!p->any || p->begin == p->end || (s->t->split_step[k].how == SPLIT_REMOVED && p->match))
		return 0;
	return token_split(s, k + 1, text + p->begin, p->end - p->begin, start && !p->begin);
}

/* The match or the gap behind piece *p: joined to it, or *p goes on and `next` takes its place. */
static int put_piece(struct token_run *s, size_t k, const char *text, bool start, struct piece *p,
		     struct piece next)
{
	const struct split_step *st = &s->t->split_step[k];
	next.match = next.match != st->invert;
	const bool join = st->how == SPLIT_WITH_PREVIOUS ? next.match && !p->match
			  : st->how == SPLIT_WITH_NEXT   ? p->match && !next.match
			  : st->how == SPLIT_CONTIGUOUS  ? p->match == next.match
							 : false;
	if (p->any && join) {
		p->end = next.end;
		p->match = next.match;
		return 0;
	}
	const struct piece old = *p;
	*p = next;
	return emit_piece(s, k, text, start, &old);
}

static int split_regex(struct token_run *s, size_t k, const char *text, size_t n, bool start)
{
	const struct split_step *st = &s->t->split_step[k];
	struct piece p = { 0 };
	size_t done = 0, from = 0; /* the text before `done` has been divided */
	uint32_t options = 0;
	while (from <= n) {
		size_t begin = 0, end = 0;
		int found = next_match(s, st, text, n, from, options, &begin, &end);
		if (found < 0)
			return found;
		if (!found) {
			if (!options)
				break;
			/* An empty match here, and no longer one: continue one character later. */
			if (from == n)
				break;
			size_t len;
			utf8_char(text + from, &len);
			from += len;
			options = 0;
			continue;
		}
		if (begin > done)
			TRY(put_piece(s, k, text, start, &p,
				      (struct piece){ done, begin, false, true }));
		TRY(put_piece(s, k, text, start, &p, (struct piece){ begin, end, true, true }));
		done = from = end;
		options = end == begin ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
	}
	if (n > done)
		TRY(put_piece(s, k, text, start, &p, (struct piece){ done, n, false, true }));
	return emit_piece(s, k, text, start, &p);
}

static int split_metaspace(struct token_run *s, size_t k, const char *text, size_t n, bool start)
{
	const struct split_step *st = &s->t->split_step[k];
	struct buf b = BUF_INIT;
	int rc = 0;
	bool marked = text[0] == ' ' || (n >= st->nmark && !memcmp(text, st->mark, st->nmark));
	if (!marked && (st->scheme == METASPACE_ALWAYS || (st->scheme == METASPACE_FIRST && start)))
		buf_add(&b, st->mark, st->nmark);
	for (size_t i = 0; i < n;) {
		const char *space = memchr(text + i, ' ', n - i);
		size_t len = space ? (size_t)(space - text) - i : n - i;
		buf_add(&b, text + i, len);
		i += len;
		if (space) {
			buf_add(&b, st->mark, st->nmark);
			i++;
		}
	}
	TRYOUT(buf_ok(&b, s->e));
	size_t begin = 0;
	while (begin < b.n) {
		size_t end = b.n;
		if (st->split && begin + st->nmark < b.n) {
			const char *next = memmem(b.p + begin + st->nmark, b.n - begin - st->nmark,
						  st->mark, st->nmark);
			if (!begin && memcmp(b.p, st->mark, st->nmark))
				next = memmem(b.p, b.n, st->mark, st->nmark);
			if (next)
				end = (size_t)(next - b.p);
		}
		TRYOUT(token_split(s, k + 1, b.p + begin, end - begin, start && !begin));
		begin = end;
	}
out:
	buf_release(&b);
	return rc;
}

int token_split(struct token_run *s, size_t k, const char *text, size_t n, bool start)
{
	const struct tokenizer *t = s->t;
	if (!n)
		return 0;
	if (k == t->nsplit)
		return t->kind->word(s, text, n);
	switch (t->split_step[k].kind) {
	case SPLIT_REGEX:
		return split_regex(s, k, text, n, start);
	case SPLIT_METASPACE:
		return split_metaspace(s, k, text, n, start);
	case SPLIT_PREFIX_SPACE:
		break;
	}
	if (text[0] == ' ')
		return token_split(s, k + 1, text, n, start);
	struct buf b = BUF_INIT;
	buf_addc(&b, ' ');
	buf_add(&b, text, n);
	int rc = buf_ok(&b, s->e);
	if (rc == 0)
		rc = token_split(s, k + 1, b.p, b.n, start);
	buf_release(&b);
	return rc;
}
