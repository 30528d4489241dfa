/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - see mem.h. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_ullong count;
static atomic_ullong fail_in;

static bool refused(void)
{
	atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
	unsigned long long left = atomic_load_explicit(&fail_in, memory_order_relaxed);
	if (!left)
		return false;
	return atomic_fetch_sub(&fail_in, 1) == 1;
}

uint64_t mem_count(void) { return atomic_load(&count); }
void mem_fail_after(uint64_t n) { atomic_store(&fail_in, n); }

void *mem_alloc(size_t bytes) { return refused() ? NULL : malloc(bytes ? bytes : 1); }
void *mem_zalloc(size_t bytes) { return refused() ? NULL : calloc(1, bytes ? bytes : 1); }

void *mem_array(size_t n, size_t size)
{
	uint64_t total;
	if (!mul_ok(n, size, &total) || total > PTRDIFF_MAX)
		return NULL;
	return mem_zalloc(total);
}

void *mem_realloc(void *p, size_t bytes)
{
	return refused() ? NULL : realloc(p, bytes ? bytes : 1);
}

void *mem_aligned(size_t align, size_t bytes)
{
	void *p = NULL;
	if (refused() || bytes > PTRDIFF_MAX)
		return NULL;
	return posix_memalign(&p, align, bytes ? bytes : 1) ? NULL : p;
}

char *mem_strndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *p = mem_alloc(len + 1);
	if (p) {
		memcpy(p, s, len);
		p[len] = 0;
	}
	return p;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }

void mem_free(void *p) { free(p); }

bool mem_grow(void *array_p, size_t *cap_p, size_t need, size_t size)
{
	if (need <= *cap_p)
		return true;
	size_t cap = *cap_p ? *cap_p : 8;
	while (cap < need) {
		if (cap > SIZE_MAX / 2)
			return false;
		cap *= 2;
	}
	uint64_t bytes;
	if (!mul_ok(cap, size, &bytes) || bytes > PTRDIFF_MAX)
		return false;
	void *old;
	memcpy(&old, array_p, sizeof old);
	void *p = mem_realloc(old, bytes);
	if (!p)
		return false;
	memcpy(array_p, &p, sizeof p);
	*cap_p = cap;
	return true;
}
