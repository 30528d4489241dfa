/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - see wire.h. */
#include "net/wire.h"

#include <string.h>

#include "base/err.h"
#include "base/le.h"
#include "base/text.h"

struct wire_writer wire_write(void *p, size_t cap)
{
	return (struct wire_writer){ .p = p, .cap = p ? cap : SIZE_MAX };
}

/* Room for n more bytes: where they go, or NULL when only counting or when there is none. */
static unsigned char *room(struct wire_writer *w, size_t n)
{
	if (w->failed || n > w->cap - w->n) {
		w->failed = true;
		return NULL;
	}
	unsigned char *at = w->p ? w->p + w->n : NULL;
	w->n += n;
	return at;
}

static void put(struct wire_writer *w, uint64_t v, size_t bytes)
{
	unsigned char *p = room(w, bytes);
	if (p)
		le_put(p, v, bytes);
}

static void put_raw(struct wire_writer *w, const void *from, size_t n)
{
	unsigned char *p = room(w, n);
	if (p && n)
		memcpy(p, from, n);
}

void wire_put_u8(struct wire_writer *w, uint8_t v) { put(w, v, 1); }
void wire_put_u32(struct wire_writer *w, uint32_t v) { put(w, v, 4); }
void wire_put_u64(struct wire_writer *w, uint64_t v) { put(w, v, 8); }

void wire_put_f64(struct wire_writer *w, double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	put(w, u, 8);
}

void wire_put_str(struct wire_writer *w, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	if (n > UINT32_MAX)
		w->failed = true;
	put(w, n, 4);
	put_raw(w, s, n);
}

void wire_put_bytes(struct wire_writer *w, const void *p, size_t n)
{
	put(w, n, 8);
	put_raw(w, p, n);
}

void *wire_put_space(struct wire_writer *w, size_t n)
{
	put(w, n, 8);
	return room(w, n);
}

int wire_write_end(const struct wire_writer *w, size_t *n_p, struct err *e)
{
	if (w->failed)
		return err_set(e, ERR_INTERNAL,
			       "payload: the fields need more than the %zu bytes of room", w->cap);
	*n_p = w->n;
	return 0;
}

struct wire_reader wire_read(const void *p, size_t n)
{
	return (struct wire_reader){ .p = p, .n = n };
}

/* The first failure counts. */
static void fail(struct wire_reader *r, const char *what, uint64_t is, uint64_t most)
{
	if (r->failed)
		return;
	r->failed = what;
	r->is = is;
	r->most = most;
}

static const unsigned char *take(struct wire_reader *r, uint64_t n)
{
	if (r->failed)
		return NULL;
	if (n > r->n - r->at) {
		fail(r, "ends inside a field", n, r->n - r->at);
		return NULL;
	}
	const unsigned char *p = r->p + r->at;
	r->at += n;
	return p;
}

static uint64_t get(struct wire_reader *r, size_t bytes)
{
	const unsigned char *p = take(r, bytes);
	return p ? le_get(p, bytes) : 0;
}

uint8_t wire_get_u8(struct wire_reader *r) { return (uint8_t)get(r, 1); }
uint32_t wire_get_u32(struct wire_reader *r) { return (uint32_t)get(r, 4); }
uint64_t wire_get_u64(struct wire_reader *r) { return get(r, 8); }

double wire_get_f64(struct wire_reader *r)
{
	uint64_t u = get(r, 8);
	double v;
	memcpy(&v, &u, 8);
	return v;
}

uint32_t wire_get_count(struct wire_reader *r, size_t item_bytes, uint32_t limit)
{
	uint32_t count = wire_get_u32(r);
	if (r->failed)
		return 0;
	if (count > limit)
		fail(r, "has a count over its limit", count, limit);
	else if (item_bytes && count > (r->n - r->at) / item_bytes)
		fail(r, "announces more items than it has bytes for", count,
		     (r->n - r->at) / item_bytes);
	return r->failed ? 0 : count;
}

const char *wire_get_text(struct wire_reader *r, size_t *n_p)
{
	uint32_t n = wire_get_u32(r);
	const unsigned char *p = take(r, n);
	if (p && n && memchr(p, 0, n)) {
		fail(r, "has a string with a NUL inside", 0, 0);
		p = NULL;
	}
	*n_p = p ? n : 0;
	return (const char *)p;
}

void wire_get_str(struct wire_reader *r, char *out, size_t cap)
{
	size_t n;
	const char *s = wire_get_text(r, &n);
	if (s && n >= cap) {
		fail(r, "has a string that is too long", n, cap ? cap - 1 : 0);
		s = NULL;
	}
	if (!s)
		n = 0;
	if (n)
		memcpy(out, s, n);
	const size_t copied = n;
	n = text_safe(out, n, TEXT_LINE);
	if (cap) /* what was made shorter leaves nothing behind its end */
		memset(out + n, 0, copied - n + 1);
}

const void *wire_get_bytes(struct wire_reader *r, size_t *n_p)
{
	uint64_t n = wire_get_u64(r);
	const unsigned char *p = take(r, n);
	*n_p = p ? (size_t)n : 0;
	return p;
}

int wire_read_end(const struct wire_reader *r, const char *what, struct err *e)
{
	if (r->failed && r->is > r->most)
		return err_set(e, ERR_PROTOCOL,
			       "%s: the payload %s: %llu, at most %llu (byte %zu of %zu)", what,
			       r->failed, (unsigned long long)r->is, (unsigned long long)r->most,
			       r->at, r->n);
	if (r->failed)
		return err_set(e, ERR_PROTOCOL, "%s: the payload %s (byte %zu of %zu)", what,
			       r->failed, r->at, r->n);
	if (r->at != r->n)
		return err_set(e, ERR_PROTOCOL, "%s: the payload has %zu bytes too many", what,
			       r->n - r->at);
	return 0;
}
