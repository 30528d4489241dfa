/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - host memory that is released all at once.
 *
 * Allocations are 16-byte aligned and cleared. arena_reset() keeps the memory, so a loop that needs
 * the same amount every time allocates nothing once it is warm. */
#ifndef HS_BASE_ARENA_H
#define HS_BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
	struct arena_block *first, *now;
};

#define ARENA_INIT                                                                                 \
	{                                                                                          \
		NULL, NULL                                                                         \
	}

void *arena_alloc(struct arena *a, size_t bytes); /* NULL when memory is out */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_reset(struct arena *a);
void arena_release(struct arena *a);

#endif
