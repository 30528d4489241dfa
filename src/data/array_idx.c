/* SPDX-License-Identifier: Apache-2.0 */
/* array_idx.c - see array_idx.h. */
#include "data/array_idx.h"

#include "base/err.h"

#include <stddef.h>

enum { DIMS_MOST = 8 };

static bool type_of(unsigned code, enum raw_type *type_p)
{
	static const struct {
		unsigned code;
		enum raw_type type;
	} known[] = { { 0x08, RAW_U1 }, { 0x09, RAW_I1 }, { 0x0b, RAW_I2 },
		      { 0x0c, RAW_I4 }, { 0x0d, RAW_F4 }, { 0x0e, RAW_F8 } };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].code == code) {
			*type_p = known[i].type;
			return true;
		}
	return false;
}

bool idx_is(const struct array_raw *r)
{
	uint8_t head[4];
	enum raw_type type;
	struct err ignored;
	return r->b.size >= 4 && bytes_read(&r->b, 0, head, 4, &ignored) >= 0 && !head[0] &&
	       !head[1] && type_of(head[2], &type) && head[3] >= 1 && head[3] <= DIMS_MOST;
}

int idx_read_header(struct array_raw *r, struct err *e)
{
	uint8_t head[4 + 4 * DIMS_MOST] = { 0 };
	uint64_t dim[DIMS_MOST];
	TRY(bytes_read(&r->b, 0, head, 4, e));
	const unsigned n = head[3];
	TRY(bytes_read(&r->b, 0, head, 4 + 4 * (uint64_t)n, e));
	type_of(head[2], &r->type);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = head + 4 + 4 * (size_t)i;
		dim[i] = (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | p[3];
	}
	r->at = 4 + 4 * (uint64_t)n;
	r->swap = !raw_big_endian();
	return raw_shape(r, (int)n, dim, e);
}
