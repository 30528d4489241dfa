/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - see text.h. */
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Controls of C1, marks of direction, separators of lines; and, unless they pass, marks without
 * width. */
static bool hidden(uint32_t c, enum text_pass pass)
{
	if (c < 0xa0 || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x206f) || (c & 0xfffe) == 0xfffe)
		return true;
	return pass != TEXT_PROSE &&
	       ((c >= 0x200b && c <= 0x200d) || (c >= 0x2060 && c <= 0x2065) || c == 0xfeff);
}

size_t text_char(const char *s, size_t n, enum text_pass pass)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *p = (const unsigned char *)s;
	if (p[0] < 0x80)
		return (p[0] >= 0x20 && p[0] != 0x7f) ||
		       (pass != TEXT_LINE && (p[0] == '\n' || p[0] == '\t'));
	size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t c = p[0] & (0xffu >> (len + 1));
	if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || hidden(c, pass))
		return 0;
	return len;
}

/* Bytes that one '?' stands for: a whole character that is hidden, or one byte of what is none. */
static size_t unshown(const char *s, size_t n)
{
	size_t len = 1;
	if ((unsigned char)*s < 0xc2)
		return 1;
	while (len < n && len < 4 && ((unsigned char)s[len] & 0xc0) == 0x80)
		len++;
	return len;
}

size_t text_safe(char *s, size_t n, enum text_pass pass)
{
	size_t to = 0;
	for (size_t i = 0; i < n;) {
		size_t len = text_char(s + i, n - i, pass);
		if (len) {
			memmove(s + to, s + i, len);
			to += len;
		} else {
			len = unshown(s + i, n - i);
			s[to++] = s[i] >= '\t' && s[i] <= '\r' ? ' ' : '?';
		}
		i += len;
	}
	if (to < n)
		s[to] = 0;
	return to;
}

void text_safe_str(char *s, enum text_pass pass) { text_safe(s, strlen(s), pass); }

const char *text_word(const char *word, char *out, size_t cap)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_@%+=:,./-";
	const bool quoted = !word[0] || word[strspn(word, plain)];
	size_t n = 0;
	if (quoted && n < cap)
		out[n++] = '\'';
	for (const char *p = word; *p && n + 4 < cap; p++) {
		if (*p == '\'') {
			memcpy(out + n, "'\\'", 3);
			n += 3;
		}
		out[n++] = *p;
		word = p + 1;
	}
	if (quoted && n < cap)
		out[n++] = '\'';
	if (*word || n >= cap)
		snprintf(out, cap, "...");
	else
		out[n] = 0;
	return out;
}
