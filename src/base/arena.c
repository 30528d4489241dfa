/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - see arena.h. A chain of blocks; a block that is too small for a request is skipped
 * until the next reset. */
#include "base/arena.h"

#include "base/mem.h"

#include <string.h>

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	_Alignas(16) unsigned char data[];
};

enum { BLOCK_LEAST = 64 * 1024 };

void *arena_alloc(struct arena *a, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	struct arena_block *b = a->now ? a->now : a->first;
	while (b && b->size - b->used < bytes) {
		if (!b->next)
			break;
		b = b->next;
		b->used = 0;
	}
	if (!b || b->size - b->used < bytes) {
		size_t size = bytes > BLOCK_LEAST ? bytes : BLOCK_LEAST;
		struct arena_block *n = mem_alloc(sizeof *n + size);
		if (!n)
			return NULL;
		n->next = NULL;
		n->used = 0;
		n->size = size;
		if (b)
			b->next = n;
		else
			a->first = n;
		b = n;
	}
	a->now = b;
	void *p = b->data + b->used;
	b->used += bytes;
	memset(p, 0, bytes);
	return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *p = arena_alloc(a, len + 1);
	if (p)
		memcpy(p, s, len);
	return p;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

void arena_reset(struct arena *a)
{
	a->now = a->first;
	if (a->first)
		a->first->used = 0;
}

void arena_release(struct arena *a)
{
	for (struct arena_block *b = a->first, *next; b; b = next) {
		next = b->next;
		mem_free(b);
	}
	a->first = a->now = NULL;
}
