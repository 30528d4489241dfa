/* SPDX-License-Identifier: Apache-2.0 */
/* array_raw.c - see array_raw.h. */
#include "data/array_raw.h"

#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { PART = 4096 /* numbers at once */ };

bool raw_big_endian(void)
{
	const uint16_t one = 1;
	return *(const uint8_t *)&one == 0;
}

unsigned raw_size(enum raw_type t)
{
	static const unsigned size[] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8 };
	return size[t];
}

static double number(enum raw_type t, uint64_t v)
{
	const uint32_t w = (uint32_t)v;
	float f;
	double d;
	switch (t) {
	case RAW_I1:
		return (int8_t)v;
	case RAW_I2:
		return (int16_t)v;
	case RAW_I4:
		return (int32_t)v;
	case RAW_I8:
		return (double)(int64_t)v;
	case RAW_F2:
		return f16_to_f32((uint16_t)v);
	case RAW_F4:
		memcpy(&f, &w, sizeof f);
		return f;
	case RAW_F8:
		memcpy(&d, &v, sizeof d);
		return d;
	default:
		return (double)v;
	}
}

static uint64_t word(const uint8_t *p, unsigned size, bool big)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < size; i++)
		v |= (uint64_t)p[i] << 8 * (big ? size - 1 - i : i);
	return v;
}

static int read_raw(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e)
{
	const struct array_raw *r = (const struct array_raw *)(const void *)a;
	const unsigned size = raw_size(r->type);
	const bool big = raw_big_endian() != r->swap;
	const uint64_t all = n * a->each;
	uint64_t at = r->at + first * a->each * size;
	uint8_t part[PART * 8];
	if (!r->swap && r->type == (a->whole ? RAW_I4 : RAW_F4))
		return bytes_read(&r->b, at, dst, all * 4, e);
	for (uint64_t done = 0; done < all;) {
		const uint64_t k = all - done < PART ? all - done : PART;
		TRY(bytes_read(&r->b, at, part, k * size, e));
		for (uint64_t i = 0; i < k; i++)
			TRY(array_put(a, dst, done + i,
				      number(r->type, word(part + i * size, size, big)), e));
		at += k * size;
		done += k;
	}
	return 0;
}

static void close_raw(struct array *a) { bytes_close(&((struct array_raw *)(void *)a)->b); }

const struct array_kind array_raw_kind = { .name = "raw", .read = read_raw, .close = close_raw };

int raw_new(const char *path, const struct array_wish *w, struct array_raw **r_p, struct err *e)
{
	struct array_raw *r = mem_zalloc(sizeof *r);
	if (!r)
		return err_nomem(e, sizeof *r, path);
	r->b.fd = -1;
	int rc = array_init(&r->a, &array_raw_kind, path, w, e);
	if (rc >= 0)
		rc = bytes_open(&r->b, r->a.path, ARRAY_UNPACKED_MOST, e);
	if (rc < 0)
		array_close(&r->a);
	else
		*r_p = r;
	return rc;
}

int raw_shape(struct array_raw *r, int ndim, const uint64_t *dim, struct err *e)
{
	uint64_t all = ndim ? dim[0] : 0, bytes = 0, each = 1;
	bool ok = ndim > 0;
	for (int i = 1; i < ndim; i++) {
		ok = ok && dim[i] && mul_ok(each, dim[i], &each) && each <= ARRAY_WORDS_MOST;
		if (!ok)
			break;
	}
	if (!ok || !mul_ok(all, each, &all) || !mul_ok(all, raw_size(r->type), &bytes))
		return err_set(e, ERR_INPUT,
			       "%s: its shape is not one of rows of 1 to %d numbers each",
			       r->a.path, ARRAY_WORDS_MOST);
	if (r->at > r->b.size || bytes > r->b.size - r->at)
		return err_set(e, ERR_INPUT,
			       "%s: ends early: its %llu rows need %llu bytes, and %llu are there",
			       r->a.path, (unsigned long long)dim[0], (unsigned long long)bytes,
			       (unsigned long long)(r->b.size > r->at ? r->b.size - r->at : 0));
	r->a.rows = dim[0];
	r->a.each = each;
	r->a.bytes = r->type == RAW_U1;
	return 0;
}
