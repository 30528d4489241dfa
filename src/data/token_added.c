/* SPDX-License-Identifier: Apache-2.0 */
/* token_added.c - added tokens: found in the text before everything else: the leftmost match, and
 * of several there the longest. */
#include "data/token.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>
#include <utf8proc.h>

int token_added_put(struct tokenizer *t, const struct added *a, struct err *e)
{
	size_t cap = t->nadded;
	/* Grown by powers of two: the capacity follows from the count. */
	if (!(t->nadded & (t->nadded - 1))) {
		cap = t->nadded ? t->nadded * 2 : 1;
		struct added *p = mem_realloc(t->added, cap * sizeof *p);
		if (!p)
			return err_nomem(e, cap * sizeof *p, "the added tokens");
		t->added = p;
	}
	t->added[t->nadded++] = *a;
	t->tok[a->id].flags |= (uint8_t)(TOKEN_ADDED | (a->special ? TOKEN_SPECIAL : 0));
	return 0;
}

static int tree_put(struct added_tree *tree, const char *text, size_t n, int32_t token,
		    struct err *e)
{
	int32_t *link = &tree->first[(unsigned char)text[0]];
	size_t depth = 0;
	for (;;) {
		uint8_t byte = (uint8_t)text[depth];
		while (*link >= 0 && tree->node[*link].byte != byte)
			link = &tree->node[*link].next;
		if (*link < 0) {
			/* The array may move: remember the link as an offset where it
			 * lies inside. */
			bool inside = link < tree->first || link >= tree->first + 256;
			size_t at = inside ? (size_t)((char *)link - (char *)tree->node) : 0;
			if (tree->n >= INT32_MAX ||
			    !mem_grow(&tree->node, &tree->cap, tree->n + 1, sizeof *tree->node))
				return err_nomem(e, tree->n * sizeof *tree->node,
						 "the added tokens");
			if (inside)
				link = (int32_t *)(void *)((char *)tree->node + at);
			*link = (int32_t)tree->n;
			tree->node[tree->n++] = (struct added_node){ -1, -1, -1, byte };
		}
		struct added_node *node = &tree->node[*link];
		if (++depth == n) {
			if (node->token < 0)
				node->token = token;
			return 0;
		}
		link = &node->child;
	}
}

static int put_normal(struct tokenizer *t, int32_t token, struct err *e)
{
	const struct token *k = &t->tok[t->added[token].id];
	struct token_run s = { .t = t, .e = e, .normal = { BUF_INIT, BUF_INIT } };
	const char *text;
	size_t n;
	int rc = token_normalize(&s, k->text, k->ntext, true, &text, &n);
	if (rc == 0 && n)
		rc = tree_put(&t->normal, text, n, token, e);
	buf_release(&s.normal[0]);
	buf_release(&s.normal[1]);
	return rc;
}

int token_added_done(struct tokenizer *t, struct err *e)
{
	for (int i = 0; i < 256; i++)
		t->raw.first[i] = t->normal.first[i] = -1;
	for (size_t i = 0; i < t->nadded; i++) {
		const struct token *k = &t->tok[t->added[i].id];
		if (k->ntext > TOKEN_ADDED_BYTES_MAX)
			return err_set(e, ERR_INPUT,
				       "the added token %d is %u bytes long, more than %d",
				       (int)t->added[i].id, k->ntext, TOKEN_ADDED_BYTES_MAX);
		if (utf8_valid(k->text, k->ntext) != k->ntext)
			return err_set(e, ERR_INPUT, "the added token %d is not UTF-8",
				       (int)t->added[i].id);
		if (t->added[i].normalized)
			TRY(put_normal(t, (int32_t)i, e));
		else
			TRY(tree_put(&t->raw, k->text, k->ntext, (int32_t)i, e));
	}
	return 0;
}

static int32_t longest(const struct added_tree *tree, const char *text, size_t n, size_t *len_p)
{
	int32_t found = -1, at = tree->first[(unsigned char)text[0]];
	size_t depth = 0;
	while (at >= 0) {
		const struct added_node *node = &tree->node[at];
		if (node->byte != (uint8_t)text[depth]) {
			at = node->next;
			continue;
		}
		depth++;
		if (node->token >= 0) {
			found = node->token;
			*len_p = depth;
		}
		if (depth == n)
			break;
		at = node->child;
	}
	return found;
}

/* The character before / at a place; 0 at the text's ends and in bytes that are not UTF-8. */
static uint32_t char_before(const char *text, size_t at)
{
	size_t k = 1;
	while (k < 4 && k < at && ((unsigned char)text[at - k] & 0xc0) == 0x80)
		k++;
	size_t len;
	return at && utf8_valid(text + at - k, k) == k ? utf8_char(text + at - k, &len) : 0;
}

static uint32_t char_at(const char *text, size_t n, size_t at, size_t *len_p)
{
	size_t most = n - at < 4 ? n - at : 4;
	*len_p = 1;
	for (size_t k = 1; k <= most; k++)
		if (utf8_valid(text + at, k) == k)
			return utf8_char(text + at, len_p);
	return 0;
}

/* \w and \s as the Rust regex crate has them. */
static bool is_word(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		return c == 0x200c || c == 0x200d;
	}
}

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}

static bool in_literal(const struct token_range *r, size_t n, size_t begin, size_t end)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (r[mid].end <= begin)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && r[lo].begin < end;
}

bool token_added_next(const struct tokenizer *t, const struct added_tree *tree, const char *text,
		      size_t n, bool parse_special, const struct token_range *literal,
		      size_t nliteral, size_t last, size_t *pos, size_t *begin_p, size_t *end_p,
		      int32_t *token_p)
{
	if (!tree->n)
		return false;
	for (size_t i = *pos; i < n;) {
		size_t len = 0;
		int32_t k = tree->first[(unsigned char)text[i]] < 0
				    ? -1
				    : longest(tree, text + i, n - i, &len);
		if (k < 0) {
			i++;
			continue;
		}
		const struct added *a = &t->added[k];
		size_t begin = i, end = i + len, width;
		i = end; /* a match that is refused is skipped as a whole */
		if (a->special && (!parse_special || in_literal(literal, nliteral, begin, end)))
			continue;
		if (a->single_word && (is_word(char_before(text, begin)) ||
				       (end < n && is_word(char_at(text, n, end, &width)))))
			continue;
		if (a->lstrip)
			for (uint32_t c; begin > last && is_space(c = char_before(text, begin));) {
				char bytes[4];
				begin -= utf8_put(c, bytes);
			}
		if (a->rstrip)
			while (end < n && is_space(char_at(text, n, end, &width)))
				end += width;
		*pos = end;
		*begin_p = begin;
		*end_p = end;
		*token_p = k;
		return true;
	}
	*pos = n;
	return false;
}
