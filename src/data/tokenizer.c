/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - see tokenizer.h: making and using a tokenizer of any kind; the differences are
 * in tokenizer_<name>.c. */
#include "data/tokenizer.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/token.h"

#include <string.h>

const struct tokenizer_kind *const tokenizer_kinds[] = {
#define TOKENIZER(name) &tokenizer_kind_##name,
#include "data/tokenizer.def"
#undef TOKENIZER
	NULL,
};

static void *pcre_alloc(PCRE2_SIZE n, void *ctx)
{
	(void)ctx;
	return mem_alloc(n);
}

static void pcre_free(void *p, void *ctx)
{
	(void)ctx;
	mem_free(p);
}

struct tokenizer *token_alloc(void)
{
	struct tokenizer *t = mem_zalloc(sizeof *t);
	if (!t)
		return NULL;
	t->bos = t->eos = t->pad = t->unk = -1;
	t->pcre = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
	if (!t->pcre) {
		mem_free(t);
		return NULL;
	}
	return t;
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->nsplit; i++)
		pcre2_code_free(t->split_step[i].code);
	pcre2_general_context_free(t->pcre);
	merges_release(&t->merges);
	strmap_release(&t->by_text);
	strmap_release(&t->by_bytes);
	mem_free(t->tok);
	mem_free(t->added);
	mem_free(t->raw.node);
	mem_free(t->normal.node);
	mem_free(t->head);
	mem_free(t->tail);
	arena_release(&t->arena);
	mem_free(t);
}

size_t tokenizer_vocab_size(const struct tokenizer *t) { return t->ntok; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
int32_t tokenizer_pad(const struct tokenizer *t) { return t->pad; }
int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
	return strmap_get(&t->by_text, token, strlen(token));
}

int tokenizer_set(struct tokenizer *t, const char *name, const char *token, struct err *e)
{
	const int32_t id = tokenizer_id(t, token);
	if (id < 0)
		return err_set(e, ERR_USAGE,
			       "special_tokens: %s '%.80s' is not in the model's vocabulary, and "
			       "tokens are not added to it",
			       name, token);
	*(!strcmp(name, "bos_token") ? &t->bos : &t->eos) = id;
	return 0;
}

static const struct token *token_of(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && (size_t)id < t->ntok && t->tok[id].flags & TOKEN_EXISTS ? &t->tok[id]
										  : NULL;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id)
{
	const struct token *k = token_of(t, id);
	return k ? k->text : NULL;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	const struct token *k = token_of(t, id);
	return k && k->flags & TOKEN_SPECIAL;
}

/* ---- encoding ------------------------------------------------------------------------------- */

struct walk {
	struct token_run s;
	bool parse_special;
	const struct token_range *literal;
	size_t nliteral;
	struct token_pieces *pieces;
};

static int add_piece(struct walk *w, size_t begin, size_t end)
{
	struct token_pieces *p = w->pieces;
	if (!p || begin == end)
		return 0;
	if (!mem_grow(&p->p, &p->cap, p->n + 1, sizeof *p->p))
		return err_nomem(w->s.e, p->n * sizeof *p->p, "token ids");
	p->p[p->n++] = (struct token_piece){ begin, end, w->s.out->n };
	return 0;
}

/* Normalised text, cut at the added tokens that are searched only there. */
static int encode_normal(struct walk *w, const char *text, size_t n, bool start)
{
	const struct tokenizer *t = w->s.t;
	size_t pos = 0, last = 0, begin, end;
	int32_t k;
	/* Places in the normalised text are not places in the text: in a message of a template,
	 * special tokens are not searched here. */
	bool special = w->parse_special && !w->nliteral;
	while (token_added_next(t, &t->normal, text, n, special, NULL, 0, last, &pos, &begin, &end,
				&k)) {
		TRY(token_split(&w->s, 0, text + last, begin - last, start && !last));
		TRY(tokens_add(w->s.out, t->added[k].id, w->s.e));
		last = end;
	}
	return token_split(&w->s, 0, text + last, n - last, start && !last);
}

/* Encodes the text between two added tokens. */
static int encode_stretch(struct walk *w, const char *text, size_t n, bool start)
{
	bool front = true;
	while (n) {
		size_t run = utf8_valid(text, n), len;
		if (run) {
			const char *p;
			TRY(token_normalize(&w->s, text, run, front, &p, &len));
			TRY(encode_normal(w, p, len, start));
		}
		text += run;
		n -= run;
		front = start = false;
		size_t bad = 0;
		while (bad < n && !utf8_valid(text + bad, n - bad < 4 ? n - bad : 4))
			bad++;
		if (bad)
			TRY(w->s.t->kind->bytes(&w->s, text, bad));
		text += bad;
		n -= bad;
	}
	return 0;
}

static int encode_text(struct walk *w, const char *text, size_t n)
{
	const struct tokenizer *t = w->s.t;
	size_t pos = 0, last = 0, begin, end;
	int32_t k;
	while (token_added_next(t, &t->raw, text, n, w->parse_special, w->literal, w->nliteral,
				last, &pos, &begin, &end, &k)) {
		TRY(add_piece(w, last, begin));
		TRY(encode_stretch(w, text + last, begin - last, !last));
		TRY(add_piece(w, begin, end));
		TRY(tokens_add(w->s.out, t->added[k].id, w->s.e));
		last = end;
	}
	TRY(add_piece(w, last, n));
	return encode_stretch(w, text + last, n - last, !last);
}

int token_encode(const struct tokenizer *t, const char *text, size_t n, bool parse_special,
		 const struct token_range *literal, size_t nliteral, struct tokens *out,
		 struct token_pieces *pieces, struct err *e)
{
	if (n > TOKEN_TEXT_MAX)
		return err_set(e, ERR_INPUT,
			       "a text of %zu bytes is longer than %u, the most that is tokenized "
			       "in one go",
			       n, TOKEN_TEXT_MAX);
	struct walk w = { .s = { .t = t, .out = out, .e = e, .normal = { BUF_INIT, BUF_INIT } },
			  .parse_special = parse_special,
			  .literal = literal,
			  .nliteral = nliteral,
			  .pieces = pieces };
	int rc = 0;
	if (t->nsplit)
		TRYOUT(token_limits(&w.s, n));
	rc = encode_text(&w, text, n);
out:
	pcre2_match_data_free(w.s.match);
	pcre2_match_context_free(w.s.limits);
	buf_release(&w.s.normal[0]);
	buf_release(&w.s.normal[1]);
	mem_free(w.s.sym);
	mem_free(w.s.heap);
	return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
		     bool parse_special, struct tokens *out, struct err *e)
{
	size_t before = out->n;
	int rc = 0;
	for (size_t i = 0; add_special && i < t->nhead; i++)
		TRYOUT(tokens_add(out, t->head[i], e));
	TRYOUT(token_encode(t, text, n, parse_special, NULL, 0, out, NULL, e));
	for (size_t i = 0; add_special && i < t->ntail; i++)
		TRYOUT(tokens_add(out, t->tail[i], e));
	return 0;
out:
	out->n = before;
	return rc;
}

/* ---- decoding ------------------------------------------------------------------------------- */

/* Metaspace: marks become spaces, except in the first token, which loses them. Token texts keep
 * their marks as spaces already. */
static void add_without_marks(const struct tokenizer *t, const struct token *k, struct buf *out)
{
	const struct split_step *st = &t->split_step[0];
	for (const char *p = k->text, *end = p + k->ntext; p < end;) {
		const char *mark = memmem(p, (size_t)(end - p), st->mark, st->nmark);
		size_t n = mark ? (size_t)(mark - p) : (size_t)(end - p);
		buf_add(out, p, n);
		p += n + (mark ? st->nmark : 0);
	}
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool skip_special,
		     struct buf *out, struct err *e)
{
	size_t before = out->n;
	bool first = true;
	for (size_t i = 0; i < n; i++) {
		const struct token *k = token_of(t, id[i]);
		/* a model's table may have more rows than there are tokens */
		if (!k && skip_special)
			continue;
		if (!k) {
			out->n = before;
			return err_set(e, ERR_INPUT, "the tokenizer has no token with the id %d",
				       (int)id[i]);
		}
		if (skip_special && k->flags & TOKEN_SPECIAL)
			continue;
		if (first && t->decode_metaspace)
			add_without_marks(t, k, out);
		else
			buf_add(out, k->bytes, k->nbytes);
		first = false;
	}
	size_t strip = 0;
	while (strip < t->decode_strip && before + strip < out->n && out->p[before + strip] == ' ')
		strip++;
	if (strip) {
		memmove(out->p + before, out->p + before + strip, out->n - before - strip + 1);
		out->n -= strip;
	}
	return buf_ok(out, e);
}
