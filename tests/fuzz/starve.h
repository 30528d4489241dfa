/* SPDX-License-Identifier: Apache-2.0 */
/* starve.h - an input is read twice: as it is, and with one allocation that fails, which one the
 * input itself chooses. Memory that is out is an error like any other. */
#ifndef HS_TESTS_FUZZ_STARVE_H
#define HS_TESTS_FUZZ_STARVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

static inline void starve(void (*once)(const uint8_t *p, size_t n), const uint8_t *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ull;
	once(p, n);
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	h >>= 32;
	mem_fail_after(1 + h % (h & 1 << 20 ? 8 : 200));
	once(p, n);
	mem_fail_after(0);
}

#endif
