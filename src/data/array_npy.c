/* SPDX-License-Identifier: Apache-2.0 */
/* array_npy.c - the header of .npy: a Python dictionary of three keys, as text. */
#include "data/array_npy.h"

#include "base/err.h"
#include "base/le.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MOST = 64 << 10, DIMS_MOST = 8 };

static const char magic[] = "\x93NUMPY";

bool npy_is(const struct array_raw *r)
{
	char head[6];
	struct err ignored;
	return r->b.size >= 10 && bytes_read(&r->b, r->at, head, 6, &ignored) >= 0 &&
	       !memcmp(head, magic, 6);
}

/* What stands behind 'KEY': ; NULL: the key is not there. */
static const char *value_of(const char *text, const char *key)
{
	const size_t n = strlen(key);
	for (const char *p = text; (p = strstr(p, key)); p += n)
		if (p > text && (p[-1] == '\'' || p[-1] == '"') && p[n] == p[-1]) {
			p += n + 1;
			p += strspn(p, " ");
			return *p == ':' ? p + 1 + strspn(p + 1, " ") : NULL;
		}
	return NULL;
}

static bool type_of(struct array_raw *r, const char *d)
{
	static const struct {
		char text[3];
		enum raw_type type;
	} known[] = { { "i1", RAW_I1 }, { "u1", RAW_U1 }, { "b1", RAW_U1 }, { "i2", RAW_I2 },
		      { "u2", RAW_U2 }, { "i4", RAW_I4 }, { "u4", RAW_U4 }, { "i8", RAW_I8 },
		      { "u8", RAW_U8 }, { "f2", RAW_F2 }, { "f4", RAW_F4 }, { "f8", RAW_F8 } };
	if ((*d != '\'' && *d != '"') || !strchr("<>|=", d[1]) || !d[1])
		return false;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strncmp(d + 2, known[i].text, 2) && d[4] == d[0]) {
			r->type = known[i].type;
			r->swap = (d[1] == '>' && !raw_big_endian()) ||
				  (d[1] == '<' && raw_big_endian());
			return true;
		}
	return false;
}

/* "(3, 4)"; how many, negative: it is no shape. */
static int shape_of(const char *s, uint64_t dim[DIMS_MOST])
{
	int n = 0;
	if (*s++ != '(')
		return -1;
	for (;;) {
		char *end;
		s += strspn(s, " ,");
		if (*s == ')')
			return n;
		if (n == DIMS_MOST || *s < '0' || *s > '9')
			return -1;
		dim[n++] = strtoull(s, &end, 10);
		s = end + (*end == 'L');
	}
}

int npy_read_header(struct array_raw *r, struct err *e)
{
	uint8_t head[12] = { 0 };
	char text[HEADER_MOST + 1];
	uint64_t dim[DIMS_MOST] = { 0 };
	if (!npy_is(r))
		return err_set(e, ERR_INPUT, "%s: does not begin as a .npy does", r->a.path);
	TRY(bytes_read(&r->b, r->at, head, 10, e));
	const bool wide = head[6] > 1;
	if (wide)
		TRY(bytes_read(&r->b, r->at, head, 12, e));
	const uint64_t n = le_get(head + 8, 4);
	if (head[6] < 1 || head[6] > 3 || n > HEADER_MOST)
		return err_set(e, ERR_INPUT, "%s: .npy of version %u with a header of %llu bytes",
			       r->a.path, head[6], (unsigned long long)n);
	r->at += wide ? 12 : 10;
	TRY(bytes_read(&r->b, r->at, text, n, e));
	text[n] = 0;
	r->at += n;
	const char *order = value_of(text, "fortran_order"), *type = value_of(text, "descr"),
		   *shape = value_of(text, "shape");
	if (!order || !type || !shape)
		return err_set(e, ERR_INPUT, "%s: the header of its array is not NumPy's",
			       r->a.path);
	if (!type_of(r, type))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: an array of the type %.12s; integers and floats are read",
			       r->a.path, type);
	const int ndim = shape_of(shape, dim);
	if (ndim > 1 && *order == 'T')
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: lies column by column; save np.ascontiguousarray() of it",
			       r->a.path);
	return raw_shape(r, ndim < 0 ? 0 : ndim, dim, e);
}
