/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - see text.h. */
#include "report/text.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

/* Bytes of the character at `s`, or 0 when it cannot be shown. */
static size_t character(const char *s) { return text_char(s, strnlen(s, 4), TEXT_LINE); }

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
