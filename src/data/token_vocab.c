/* SPDX-License-Identifier: Apache-2.0 */
/* token_vocab.c - the vocabulary: ids to text, text to ids, and the bytes that text stands for. */
#include "data/token.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { PROBES_MAX = 512 };

static uint64_t hash_bytes(const char *key, size_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15u ^ n;
	while (n >= 8) {
		uint64_t w;
		memcpy(&w, key, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
		key += 8;
		n -= 8;
	}
	uint64_t w = 0;
	memcpy(&w, key, n);
	h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
	h ^= h >> 29;
	h *= 0xff51afd7ed558ccdu;
	return h ^ h >> 32;
}

int strmap_init(struct strmap *m, size_t items, struct err *e)
{
	size_t n = 16;
	while (n < items * 2)
		n *= 2;
	struct strmap_slot *slot = mem_array(n, sizeof *slot);
	if (!slot)
		return err_nomem(e, n * sizeof *slot, "the vocabulary");
	for (size_t i = 0; i < n; i++)
		slot[i].value = -1;
	m->slot = slot;
	m->mask = n - 1;
	return 0;
}

void strmap_release(struct strmap *m)
{
	mem_free(m->slot);
	*m = (struct strmap){ 0 };
}

int32_t strmap_get(const struct strmap *m, const char *key, size_t n)
{
	if (!m->slot)
		return -1;
	for (size_t i = hash_bytes(key, n) & m->mask;; i = (i + 1) & m->mask) {
		const struct strmap_slot *s = &m->slot[i];
		if (s->value < 0 || (s->n == n && !memcmp(s->key, key, n)))
			return s->value;
	}
}

int strmap_put(struct strmap *m, const char *key, size_t n, int32_t value, int32_t *old_p,
	       struct err *e)
{
	size_t i = hash_bytes(key, n) & m->mask;
	for (int probes = 0; probes < PROBES_MAX; probes++, i = (i + 1) & m->mask) {
		struct strmap_slot *s = &m->slot[i];
		if (s->value >= 0 && (s->n != n || memcmp(s->key, key, n)))
			continue;
		*old_p = s->value;
		if (s->value < 0)
			*s = (struct strmap_slot){ key, (uint32_t)n, value };
		return 0;
	}
	return err_set(
		e, ERR_INPUT,
		"the vocabulary has hash collisions that make it slow to look up; it is refused");
}

char *token_copy(struct tokenizer *t, const char *p, size_t n)
{
	char *s = arena_alloc(&t->arena, n + 1);
	if (s && n)
		memcpy(s, p, n);
	return s;
}

int token_table_init(struct tokenizer *t, size_t n, const char *where, struct err *e)
{
	if (!n)
		return err_set(e, ERR_INPUT, "%s: the vocabulary is empty", where);
	if (n > TOKEN_IDS_MAX)
		return err_set(e, ERR_INPUT, "%s: the vocabulary has %zu tokens, more than %u",
			       where, n, TOKEN_IDS_MAX);
	t->tok = mem_array(n, sizeof *t->tok);
	if (!t->tok)
		return err_nomem(e, n * sizeof *t->tok, "the vocabulary");
	t->ntok = n;
	return strmap_init(&t->by_text, n, e);
}

int token_put(struct tokenizer *t, int64_t id, const char *text, size_t n, uint8_t flags,
	      const char *where, struct err *e)
{
	if (id < 0 || (uint64_t)id >= t->ntok)
		return err_set(e, ERR_INPUT,
			       "%s: token '%.64s' has the id %lld, outside the vocabulary", where,
			       text, (long long)id);
	if (n > TOKEN_BYTES_MAX)
		return err_set(e, ERR_INPUT, "%s: token %lld is %zu bytes long, more than %u",
			       where, (long long)id, n, TOKEN_BYTES_MAX);
	struct token *k = &t->tok[id];
	if (k->flags & TOKEN_EXISTS) {
		if (k->ntext != n || memcmp(k->text, text, n))
			return err_set(e, ERR_INPUT,
				       "%s: the tokens '%.64s' and '%.64s' have the same id %lld",
				       where, k->text, text, (long long)id);
		k->flags |= flags;
		return 0;
	}
	const char *copy = token_copy(t, text, n);
	if (!copy)
		return err_nomem(e, n, "the vocabulary");
	int32_t old;
	TRY(strmap_put(&t->by_text, copy, n, (int32_t)id, &old, e));
	if (old >= 0)
		return err_set(e, ERR_INPUT, "%s: the token '%.64s' has two ids, %d and %lld",
			       where, text, (int)old, (long long)id);
	*k = (struct token){ copy, copy, (uint32_t)n, (uint32_t)n,
			     (uint8_t)(flags | TOKEN_EXISTS) };
	return 0;
}

/* GPT-2 (encoder.py, bytes_to_unicode): printable bytes are themselves, the others follow from
 * U+0100 on in order. */
uint32_t token_byte_char(uint8_t byte)
{
	unsigned b = byte;
	if ((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad))
		return b;
	if (b <= 0x20)
		return 0x100 + b;
	return b == 0xad ? 0x143 : 0x121 + (b - 0x7f);
}

int token_char_byte(uint32_t c)
{
	if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad))
		return (int)c;
	if (c >= 0x100 && c <= 0x120)
		return (int)(c - 0x100);
	if (c >= 0x121 && c <= 0x142)
		return (int)(c - 0x121 + 0x7f);
	return c == 0x143 ? 0xad : -1;
}

static size_t utf8_len(const unsigned char *s, size_t n)
{
	unsigned c = s[0];
	if (c < 0x80)
		return 1;
	if (c < 0xc2 || c > 0xf4)
		return 0;
	size_t len = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	if (n < len)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) ||
	    (c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

size_t utf8_valid(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t i = 0;
	while (i < n) {
		uint64_t w;
		while (n - i >= 8 && (memcpy(&w, s + i, 8), !(w & 0x8080808080808080u)))
			i += 8;
		if (i == n)
			break;
		size_t len = utf8_len(s + i, n - i);
		if (!len)
			break;
		i += len;
	}
	return i;
}

uint32_t utf8_char(const char *text, size_t *len_p)
{
	const unsigned char *s = (const unsigned char *)text;
	if (s[0] < 0x80) {
		*len_p = 1;
		return s[0];
	}
	if (s[0] < 0xe0) {
		*len_p = 2;
		return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
	}
	if (s[0] < 0xf0) {
		*len_p = 3;
		return (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
	}
	*len_p = 4;
	return (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}

size_t utf8_put(uint32_t c, char *out)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}
