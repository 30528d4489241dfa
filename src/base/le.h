/* SPDX-License-Identifier: Apache-2.0 */
/* le.h - whole numbers as little-endian bytes, in files and frames: the lowest byte first, on any
 * machine. `bytes` is at most 8. */
#ifndef HS_BASE_LE_H
#define HS_BASE_LE_H

#include <stddef.h>
#include <stdint.h>

static inline void le_put(void *to, uint64_t v, size_t bytes)
{
	uint8_t *p = to;
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t le_get(const void *from, size_t bytes)
{
	const uint8_t *p = from;
	uint64_t v = 0;
	for (size_t i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

#endif
