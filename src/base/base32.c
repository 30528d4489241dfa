/* SPDX-License-Identifier: Apache-2.0 */
/* base32.c - see base32.h. */
#include "base/base32.h"

#include <string.h>

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

void base32_write(const uint8_t *p, size_t n, char *out)
{
	unsigned bits = 0, have = 0;
	for (size_t i = 0; i < n; i++) {
		bits = bits << 8 | p[i];
		for (have += 8; have >= 5; have -= 5)
			*out++ = alphabet[bits >> (have - 5) & 31];
	}
	if (have)
		*out++ = alphabet[bits << (5 - have) & 31];
	*out = 0;
}

bool base32_read(const char *text, uint8_t *out, size_t n)
{
	unsigned bits = 0, have = 0;
	size_t k = 0;
	if (strlen(text) != BASE32_CHARS(n))
		return false;
	for (; *text; text++) {
		const char *at = strchr(alphabet, *text);
		if (!at)
			return false;
		bits = bits << 5 | (unsigned)(at - alphabet);
		have += 5;
		if (have >= 8) {
			have -= 8;
			out[k++] = (uint8_t)(bits >> have);
		}
	}
	return !(bits & ((1u << have) - 1));
}
