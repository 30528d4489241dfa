/* SPDX-License-Identifier: Apache-2.0 */
/* token_merge.c - byte-pair merging: the lowest rank first, the leftmost of equals first.
 *
 * Short pre-tokens are merged by repeated search for the best pair, long ones with a queue in O(n
 * log n); both give the same ids. A queue entry is outdated when one of its symbols has grown
 * since; its position and length show that. */
#include "data/token.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { PROBES_MAX = 512, SHORT = 24 };

static uint64_t hash_pair(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185u;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44du;
	return x ^ x >> 33;
}

int merges_init(struct merges *m, size_t items, struct err *e)
{
	size_t n = 16;
	while (n < items + items / 2)
		n *= 2;
	m->pair = mem_alloc(n * sizeof *m->pair);
	if (!m->pair)
		return err_nomem(e, n * sizeof *m->pair, "the merges");
	for (size_t i = 0; i < n; i++)
		m->pair[i].pair = UINT64_MAX;
	m->mask = n - 1;
	return 0;
}

int merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id,
	       struct err *e)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	size_t i = hash_pair(key) & m->mask;
	for (int probes = 0; probes < PROBES_MAX; probes++, i = (i + 1) & m->mask) {
		if (m->pair[i].pair != UINT64_MAX && m->pair[i].pair != key)
			continue;
		m->pair[i] = (struct pair_entry){ key, rank, id };
		return 0;
	}
	return err_set(
		e, ERR_INPUT,
		"the merges have hash collisions that make them slow to look up; they are refused");
}

void merges_release(struct merges *m)
{
	mem_free(m->pair);
	mem_free(m->rank);
	*m = (struct merges){ 0 };
}

static int part_id(const struct tokenizer *t, const char *s, size_t n, size_t at, const char *where,
		   int32_t *id_p, struct err *e)
{
	*id_p = strmap_get(&t->by_text, s, n);
	if (*id_p < 0)
		return err_set(
			e, ERR_INPUT,
			"%s: merge %zu names the token '%.*s', which is not in the vocabulary",
			where, at, (int)(n < 64 ? n : 64), s);
	return 0;
}

int merges_read(struct tokenizer *t, const json_t *list, const char *where, struct err *e)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list))
		return err_set(e, ERR_INPUT, "%s: 'merges' must be a list", where);
	if (n > TOKEN_MERGES_MAX)
		return err_set(e, ERR_INPUT, "%s: %zu merges, more than %u", where, n,
			       TOKEN_MERGES_MAX);
	TRY(merges_init(&t->merges, n, e));
	struct buf both = BUF_INIT;
	int rc = 0;
	for (size_t i = 0; i < n; i++) {
		const json_t *m = json_array_get(list, i), *a = NULL, *b = NULL;
		const char *l, *r;
		size_t nl, nr;
		if (json_is_string(m)) {
			l = json_string_value(m);
			size_t len = json_string_length(m);
			const char *space = memchr(l, ' ', len);
			nl = space ? (size_t)(space - l) : 0;
			r = l + nl + 1;
			nr = len - nl - 1;
			if (!nl || len < nl + 2 || memchr(r, ' ', nr)) {
				rc = err_set(e, ERR_INPUT,
					     "%s: merge %zu ('%.64s') is not two tokens with a "
					     "space between",
					     where, i, l);
				goto out;
			}
		} else {
			a = json_array_get(m, 0);
			b = json_array_get(m, 1);
			if (json_array_size(m) != 2 || !json_is_string(a) || !json_is_string(b)) {
				rc = err_set(e, ERR_INPUT, "%s: merge %zu is not a pair of tokens",
					     where, i);
				goto out;
			}
			l = json_string_value(a);
			nl = json_string_length(a);
			r = json_string_value(b);
			nr = json_string_length(b);
		}
		int32_t left, right, id;
		TRYOUT(part_id(t, l, nl, i, where, &left, e));
		TRYOUT(part_id(t, r, nr, i, where, &right, e));
		buf_reset(&both);
		buf_add(&both, l, nl);
		buf_add(&both, r, nr);
		TRYOUT(buf_ok(&both, e));
		TRYOUT(part_id(t, both.p, both.n, i, where, &id, e));
		TRYOUT(merges_put(&t->merges, left, right, (uint32_t)i, id, e));
	}
out:
	buf_release(&both);
	return rc;
}

/* The rank of joining two neighbours, UINT32_MAX when they do not join. */
static inline uint32_t join(const struct tokenizer *t, const char *text, const struct symbol *l,
			    const struct symbol *r, int32_t *id_p)
{
	const struct merges *m = &t->merges;
	if (m->by_score) {
		*id_p = strmap_get(&t->by_text, text + l->start, l->len + r->len);
		return *id_p < 0 ? UINT32_MAX : m->rank[*id_p];
	}
	if (l->id < 0 || r->id < 0)
		return UINT32_MAX;
	uint64_t key = (uint64_t)(uint32_t)l->id << 32 | (uint32_t)r->id;
	for (size_t i = hash_pair(key) & m->mask;; i = (i + 1) & m->mask) {
		const struct pair_entry *p = &m->pair[i];
		if (p->pair == key) {
			*id_p = p->id;
			return p->rank;
		}
		if (p->pair == UINT64_MAX)
			return UINT32_MAX;
	}
}

int symbols_reserve(struct token_run *s, size_t n)
{
	if (n > INT32_MAX || !mem_grow(&s->sym, &s->capsym, n, sizeof *s->sym))
		return err_nomem(s->e, n * sizeof *s->sym, "merging a text");
	return 0;
}

static size_t merge_short(const struct tokenizer *t, const char *text, struct symbol *sym, size_t n)
{
	uint32_t rank[SHORT];
	int32_t id[SHORT];
	for (size_t i = 0; i + 1 < n; i++)
		rank[i] = join(t, text, &sym[i], &sym[i + 1], &id[i]);
	while (n > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < n; i++)
			if (rank[i] < rank[best])
				best = i;
		if (rank[best] == UINT32_MAX)
			break;
		sym[best].id = id[best];
		sym[best].len += sym[best + 1].len;
		n--;
		memmove(sym + best + 1, sym + best + 2, (n - best - 1) * sizeof *sym);
		if (best + 1 < n) {
			memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
			memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
			rank[best] = join(t, text, &sym[best], &sym[best + 1], &id[best]);
		}
		if (best)
			rank[best - 1] = join(t, text, &sym[best - 1], &sym[best], &id[best - 1]);
	}
	return n;
}

static inline bool comes_before(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static void sift_down(struct heap_entry *h, size_t n, size_t i)
{
	struct heap_entry x = h[i];
	for (;;) {
		size_t c = 2 * i + 1;
		if (c >= n)
			break;
		if (c + 1 < n && comes_before(&h[c + 1], &h[c]))
			c++;
		if (!comes_before(&h[c], &x))
			break;
		h[i] = h[c];
		i = c;
	}
	h[i] = x;
}

static void sift_up(struct heap_entry *h, size_t i)
{
	struct heap_entry x = h[i];
	while (i && comes_before(&x, &h[(i - 1) / 2])) {
		h[i] = h[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h[i] = x;
}

/* Adds the pair of `pos` and its right neighbour, if they join. */
static int heap_add(struct token_run *s, const char *text, int32_t pos, bool sift)
{
	const struct symbol *l = &s->sym[pos];
	int32_t id;
	if (l->next < 0)
		return 0;
	uint32_t rank = join(s->t, text, l, &s->sym[l->next], &id);
	if (rank == UINT32_MAX)
		return 0;
	if (!mem_grow(&s->heap, &s->capheap, s->nheap + 1, sizeof *s->heap))
		return err_nomem(s->e, s->nheap * sizeof *s->heap, "merging a text");
	s->heap[s->nheap++] = (struct heap_entry){ rank, pos, id, l->len + s->sym[l->next].len };
	if (sift)
		sift_up(s->heap, s->nheap - 1);
	return 0;
}

static int merge_long(struct token_run *s, const char *text, size_t n, size_t *n_p)
{
	struct symbol *sym = s->sym;
	s->nheap = 0;
	for (size_t i = 0; i < n; i++) {
		sym[i].prev = (int32_t)i - 1;
		sym[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
	}
	for (size_t i = 0; i + 1 < n; i++)
		TRY(heap_add(s, text, (int32_t)i, false));
	for (size_t i = s->nheap / 2; i-- > 0;)
		sift_down(s->heap, s->nheap, i);
	while (s->nheap) {
		struct heap_entry top = s->heap[0];
		s->heap[0] = s->heap[--s->nheap];
		if (s->nheap)
			sift_down(s->heap, s->nheap, 0);
		struct symbol *l = &sym[top.pos];
		if (!l->len || l->next < 0 || l->len + sym[l->next].len != top.len)
			continue;
		struct symbol *r = &sym[l->next];
		l->id = top.id;
		l->len = top.len;
		l->next = r->next;
		r->len = 0;
		if (l->next >= 0)
			sym[l->next].prev = top.pos;
		if (l->prev >= 0)
			TRY(heap_add(s, text, l->prev, true));
		TRY(heap_add(s, text, top.pos, true));
	}
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (sym[i].len)
			sym[k++] = sym[i];
	*n_p = k;
	return 0;
}

int merge_symbols(struct token_run *s, const char *text, size_t n, size_t *n_p)
{
	if (n > SHORT)
		return merge_long(s, text, n, n_p);
	*n_p = merge_short(s->t, text, s->sym, n);
	return 0;
}
