/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - host memory. Nothing else calls malloc, so that tests can count allocations and make each
 * one fail once.
 *
 * All return NULL when memory is out (or the test hook says so); callers turn that into
 * err_nomem(). mem_free(NULL) is allowed. Sizes are overflow-checked where two numbers
 * are multiplied. */
#ifndef HS_BASE_MEM_H
#define HS_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t bytes);                 /* not cleared */
void *mem_zalloc(size_t bytes);                /* cleared */
void *mem_array(size_t count, size_t size);    /* cleared; NULL on overflow */
void *mem_realloc(void *p, size_t bytes);      /* p stays valid when NULL comes back */
void *mem_aligned(size_t align, size_t bytes); /* not cleared; release with mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p);

/* Grows an array to hold at least `need` items of `size` bytes (doubling); false when memory is
 * out, array untouched. */
bool mem_grow(void *array_p, size_t *cap_p, size_t need, size_t size);

/* Allocations made by this process so far; and a hook for tests: fail the n-th allocation from now
 * (0: never). */
uint64_t mem_count(void);
void mem_fail_after(uint64_t n);

/* Overflow-checked arithmetic for sizes from outside: false when the result does not fit. */
static inline bool mul_ok(uint64_t a, uint64_t b, uint64_t *r_p)
{
	return !__builtin_mul_overflow(a, b, r_p);
}
static inline bool add_ok(uint64_t a, uint64_t b, uint64_t *r_p)
{
	return !__builtin_add_overflow(a, b, r_p);
}

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
