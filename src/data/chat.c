/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - see chat.h: choosing a template, and encoding its text with training marks. The text is
 * written by chat_<name>.c with chat_text.c. */
#include "data/chat.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/chat_text.h"
#include "data/token.h"

#include <string.h>

static const struct chat_template *const templates[] = {
#define CHAT(name) &chat_template_##name,
#include "data/chat.def"
#undef CHAT
};

const struct chat_template *chat_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(templates); i++)
		if (!strcmp(templates[i]->name, name))
			return templates[i];
	return NULL;
}

const char *chat_name(const struct chat_template *t) { return t->name; }
bool chat_has_tools(const struct chat_template *t) { return t->tools; }

void chat_free(const struct chat_template *t)
{
	if (t && t->release)
		t->release(t);
}

const char *chat_names(void)
{
	static const char names[] =
#define CHAT(name) ", " #name
#include "data/chat.def"
#undef CHAT
		;
	return names + 2;
}

const struct chat_template *chat_detect(const char *jinja, const struct tokenizer *tok)
{
	const struct chat_template *found = NULL;
	for (size_t i = 0; i < ARRAY_LEN(templates) && !found; i++)
		found = templates[i]->detect(jinja, tok);
	return found;
}

size_t chat_stops(const struct chat_template *t, const struct tokenizer *tok, int32_t *id,
		  size_t cap)
{
	size_t n = 0;
	for (size_t i = 0; i < ARRAY_LEN(t->stop) && t->stop[i] && n < cap; i++) {
		int32_t k = tokenizer_id(tok, t->stop[i]);
		if (k >= 0)
			id[n++] = k;
	}
	return n;
}

/* ---- ids and marks -------------------------------------------------------------------------- */

/* Marks the ids of one stretch of text. The place of each token follows from the lengths of the
 * tokens, counted from the end, because a normaliser may insert text at the front. A token is
 * trained when any part of it is: with SentencePiece the first word of an answer includes the
 * template's space. Unknown tokens decode to other lengths than they had; the first trained token
 * is then wrong by that difference. */
static int mark_stretch(const struct tokenizer *tok, const struct chat_text *x, size_t begin,
			size_t end, size_t *span, const int32_t *id, size_t n, uint8_t *train,
			struct err *e)
{
	/* The spans that touch the stretch, cut to it; lengths after normalising. */
	size_t from = *span;
	while (from < x->n && x->span[from].end <= begin)
		from++;
	*span = from;
	size_t to = from;
	while (to < x->n && x->span[to].begin < end)
		to++;
	size_t k = n;
	/* bytes of the next span that belong to a token which spans both */
	size_t used = 0;
	for (size_t s = to; s-- > from;) {
		size_t a = x->span[s].begin > begin ? x->span[s].begin : begin,
		       b = x->span[s].end < end ? x->span[s].end : end, len;
		TRY(token_normal_length(tok, x->text.p + a, b - a, &len, e));
		size_t sum = used;
		if (used && len)
			train[k] = train[k] || x->span[s].train;
		while (k && sum < len) {
			sum += tok->tok[id[k - 1]].nbytes;
			k--;
			train[k] = x->span[s].train;
		}
		used = sum > len ? sum - len : 0;
	}
	return 0;
}

static int mark_ids(const struct tokenizer *tok, const struct chat_text *x,
		    const struct token_pieces *p, const struct tokens *ids, uint8_t *train,
		    struct err *e)
{
	size_t span = 0;
	for (size_t i = 0; i < p->n; i++) {
		size_t first = p->p[i].first, last = i + 1 < p->n ? p->p[i + 1].first : ids->n;
		TRY(mark_stretch(tok, x, p->p[i].begin, p->p[i].end, &span, ids->id + first,
				 last - first, train + first, e));
	}
	return 0;
}

int chat_encode(const struct chat_template *t, const struct tokenizer *tok,
		const struct chat_message *msg, size_t n, bool open, struct tokens *ids,
		struct tokens *train, struct err *e)
{
	struct chat_text x = { .text = BUF_INIT };
	struct tokens own = { 0 };
	struct token_pieces pieces = { 0 };
	struct token_range *literal = NULL;
	uint8_t *marks = NULL;
	size_t nliteral = 0, ids0 = ids->n, train0 = train ? train->n : 0;
	int rc = 0;
	TRYOUT(chat_render(t, tok, msg, n, open, &x, e));
	literal = mem_array(x.n + 1, sizeof *literal);
	if (!literal) {
		rc = err_nomem(e, x.n * sizeof *literal, "a conversation");
		goto out;
	}
	for (size_t i = 0; i < x.n; i++)
		if (x.span[i].message)
			literal[nliteral++] =
				(struct token_range){ x.span[i].begin, x.span[i].end };
	TRYOUT(token_encode(tok, x.text.p, x.text.n, true, literal, nliteral, &own, &pieces, e));
	marks = mem_zalloc(own.n + 1);
	if (!marks) {
		rc = err_nomem(e, own.n, "a conversation");
		goto out;
	}
	TRYOUT(mark_ids(tok, &x, &pieces, &own, marks, e));
	for (size_t i = 0; x.head && i < tok->nhead; i++) {
		TRYOUT(tokens_add(ids, tok->head[i], e));
		if (train)
			TRYOUT(tokens_add(train, 0, e));
	}
	for (size_t i = 0; i < own.n; i++) {
		TRYOUT(tokens_add(ids, own.id[i], e));
		if (train)
			TRYOUT(tokens_add(train, marks[i], e));
	}
out:
	if (rc < 0) {
		ids->n = ids0;
		if (train)
			train->n = train0;
	}
	mem_free(marks);
	mem_free(literal);
	mem_free(pieces.p);
	tokens_release(&own);
	chat_text_release(&x);
	return rc;
}
