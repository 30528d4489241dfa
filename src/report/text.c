/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - see text.h. */
#include "report/text.h"

#include "base/buf.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

/* Bytes of the character at `s`, or 0 when it cannot be shown. */
static size_t character(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	if (p[0] < 0x80)
		return p[0] >= 0x20 && p[0] != 0x7f;
	size_t n = p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
	uint32_t v = p[0] & (0xffu >> (n + 1));
	if (p[0] >= 0xf5)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3fu);
	}
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	bool control = v < 0xa0 || (v >= 0x200b && v <= 0x200f) || (v >= 0x2028 && v <= 0x202e) ||
		       (v >= 0x2060 && v <= 0x206f) || v == 0xfeff || (v & 0xfffe) == 0xfffe;
	return n && v >= least[n] && v <= 0x10ffff && !(v >= 0xd800 && v < 0xe000) && !control ? n
											       : 0;
}

static void clean(const char *s, size_t most, void (*put)(void *ctx, const char *p, size_t n),
		  void *ctx)
{
	size_t all = 0;
	for (const char *p = s; *p; all++) {
		size_t n = character(p);
		p += n ? n : 1;
	}
	size_t keep = most && all > most ? most - 1 : all;
	for (size_t i = 0; i < keep; i++) {
		size_t n = character(s);
		put(ctx, n ? s : "?", n ? n : 1);
		s += n ? n : 1;
	}
	if (keep < all)
		put(ctx, "…", strlen("…"));
}

static void put_markup(void *ctx, const char *p, size_t n)
{
	struct buf *b = ctx;
	switch (*p) {
	case '&':
		buf_adds(b, "&amp;");
		break;
	case '<':
		buf_adds(b, "&lt;");
		break;
	case '>':
		buf_adds(b, "&gt;");
		break;
	case '"':
		buf_adds(b, "&quot;");
		break;
	case '\'':
		buf_adds(b, "&#39;");
		break;
	default:
		buf_add(b, p, n);
	}
}

void text_markup(struct buf *out, const char *s, size_t most)
{
	clean(s ? s : "", most, put_markup, out);
}

struct place {
	char *p;
	size_t n, cap;
};

static void put_bytes(void *ctx, const char *p, size_t n)
{
	struct place *o = ctx;
	if (o->n + n + 1 > o->cap)
		return;
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

void text_clean(char *out, size_t cap, const char *s, size_t most)
{
	struct place o = { out, 0, cap };
	clean(s ? s : "", most, put_bytes, &o);
	out[o.n] = 0;
}

int text_width(const char *s)
{
	int width = 0;
	while (*s) {
		utf8proc_int32_t c;
		if (*s == 27) { /* ESC [ ... letter */
			s += strcspn(s, "mKJA");
			s += *s != 0;
			continue;
		}
		utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &c);
		width += n > 0 ? utf8proc_charwidth(c) : 1;
		s += n > 0 ? n : 1;
	}
	return width;
}
