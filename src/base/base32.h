/* SPDX-License-Identifier: Apache-2.0 */
/* base32.h - bytes as text that a double click selects: RFC 4648 base 32 in small letters, without
 * padding. Pure. Whoever encodes a secret wipes what it is encoded from and into. */
#ifndef HS_BASE_BASE32_H
#define HS_BASE_BASE32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters of n bytes, without the NUL. */
#define BASE32_CHARS(n) (((n)*8 + 4) / 5)

/* Writes BASE32_CHARS(n) characters and a NUL. */
void base32_write(const uint8_t *p, size_t n, char *out);
/* The n bytes of a text that is exactly BASE32_CHARS(n) characters long. Every text but the one
 * that base32_write makes is refused: other characters, capitals, bits behind the last byte. */
bool base32_read(const char *text, uint8_t *out, size_t n);

#endif
