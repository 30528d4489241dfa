/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - see frame.h. */
#include "net/frame.h"

#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"

struct kind_row {
	const char *name;
	enum frame_form form;
	uint64_t max;
};

static const struct kind_row kinds[] = {
#define FRAME(name, number, form, max) [number] = { #name, FRAME_FORM_##form, max },
#include "net/frame.def"
#undef FRAME
};

static const struct kind_row *find_kind(unsigned kind)
{
	return kind < ARRAY_LEN(kinds) && kinds[kind].name ? &kinds[kind] : NULL;
}

const char *frame_name(enum frame_kind kind)
{
	const struct kind_row *k = find_kind(kind);
	return k ? k->name : "?";
}

bool frame_is_tensor(enum frame_kind kind)
{
	const struct kind_row *k = find_kind(kind);
	return k && k->form == FRAME_FORM_TENSOR;
}

/* The checks that encoding and parsing share. `code`: the error class, which says whose fault it
 * is. */
static int check(const struct frame *f, const struct kind_row *k, int code, struct err *e)
{
	if ((unsigned)f->dtype >= DT_COUNT)
		return err_set(e, code, "%s frame: unknown dtype %u, at most %d", k->name,
			       (unsigned)f->dtype, DT_COUNT - 1);
	if (f->ndim > FRAME_MAX_DIM)
		return err_set(e, code, "%s frame: %u dimensions, at most %d", k->name, f->ndim,
			       FRAME_MAX_DIM);
	if (f->size > k->max)
		return err_set(e, code, "%s frame: payload of %llu bytes, at most %llu", k->name,
			       (unsigned long long)f->size, (unsigned long long)k->max);
	if (k->form != FRAME_FORM_TENSOR) {
		if (f->ndim || f->dtype)
			return err_set(
				e, code,
				"%s frame: has a shape or dtype, this kind carries no tensor",
				k->name);
		return 0;
	}
	if (!f->ndim)
		return err_set(e, code, "%s frame: no shape, this kind carries a tensor", k->name);
	uint64_t bytes = dtype_size(f->dtype);
	for (unsigned i = 0; i < f->ndim; i++)
		if (!mul_ok(bytes, f->dim[i], &bytes))
			return err_set(e, code, "%s frame: the shape overflows", k->name);
	if (bytes != f->size)
		return err_set(e, code, "%s frame: payload of %llu bytes, its shape needs %llu",
			       k->name, (unsigned long long)f->size, (unsigned long long)bytes);
	return 0;
}

int frame_encode(const struct frame *given, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct frame copy = *given, *f = &copy;
	const struct kind_row *k = find_kind(f->kind);
	if (!k)
		return err_set(e, ERR_INTERNAL, "frame: unknown kind %u", (unsigned)f->kind);
	if (k->form == FRAME_FORM_TENSOR && !f->size) {
		f->size = dtype_size(f->dtype);
		for (unsigned i = 0; i < f->ndim && i < FRAME_MAX_DIM; i++)
			if (!mul_ok(f->size, f->dim[i], &f->size))
				return err_set(e, ERR_INTERNAL, "%s frame: the shape overflows",
					       k->name);
	}
	TRY(check(f, k, ERR_INTERNAL, e));
	if (cap < FRAME_HEADER || cap - FRAME_HEADER < f->size)
		return err_set(e, ERR_INTERNAL, "%s frame: %zu bytes of room, needs %llu", k->name,
			       cap, (unsigned long long)f->size + FRAME_HEADER);
	unsigned char *p = out;
	memset(p, 0, FRAME_HEADER);
	le_put(p, FRAME_MAGIC, 4);
	le_put(p + 4, FRAME_VERSION, 2);
	le_put(p + 6, f->kind, 1);
	le_put(p + 7, f->dtype, 1);
	le_put(p + 8, f->job, 8);
	le_put(p + 16, f->step, 8);
	le_put(p + 24, f->microbatch, 4);
	le_put(p + 28, f->chunk, 2);
	le_put(p + 30, f->ndim, 1);
	le_put(p + 32, f->epoch, 8);
	le_put(p + 40, f->from, 4);
	le_put(p + 44, f->to, 4);
	for (unsigned i = 0; i < f->ndim; i++)
		le_put(p + 48 + 8 * i, f->dim[i], 8);
	le_put(p + 80, f->size, 8);
	if (f->size && f->payload != p + FRAME_HEADER)
		memcpy(p + FRAME_HEADER, f->payload, f->size);
	le_put(p + 92, crc32c(crc32c(0, p, 92), p + FRAME_HEADER, f->size), 4);
	*n_p = FRAME_HEADER + f->size;
	return 0;
}

static int parse(const unsigned char *p, size_t n, bool sum, struct frame *f_p, struct err *e)
{
	if (n < FRAME_HEADER)
		return err_set(e, ERR_PROTOCOL, "frame: %zu bytes, a header has %d", n,
			       FRAME_HEADER);
	if (le_get(p, 4) != FRAME_MAGIC)
		return err_set(e, ERR_PROTOCOL,
			       "frame: begins with 0x%08x, not with the magic 0x%08x",
			       (unsigned)le_get(p, 4), FRAME_MAGIC);
	if (le_get(p + 4, 2) != FRAME_VERSION)
		return err_set(e, ERR_PROTOCOL,
			       "frame: the peer speaks protocol version %u, this program version "
			       "%d: install the same "
			       "version on both machines",
			       (unsigned)le_get(p + 4, 2), FRAME_VERSION);
	const struct kind_row *k = find_kind(p[6]);
	if (!k)
		return err_set(e, ERR_PROTOCOL, "frame: unknown kind %u", p[6]);
	struct frame f = {
		.kind = p[6],
		.dtype = p[7],
		.job = le_get(p + 8, 8),
		.step = le_get(p + 16, 8),
		.microbatch = (uint32_t)le_get(p + 24, 4),
		.chunk = (uint16_t)le_get(p + 28, 2),
		.ndim = p[30],
		.epoch = le_get(p + 32, 8),
		.from = (uint32_t)le_get(p + 40, 4),
		.to = (uint32_t)le_get(p + 44, 4),
		.size = le_get(p + 80, 8),
		.payload = p + FRAME_HEADER,
	};
	for (unsigned i = 0; i < FRAME_MAX_DIM; i++)
		f.dim[i] = le_get(p + 48 + 8 * i, 8);
	TRY(check(&f, k, ERR_PROTOCOL, e));
	for (unsigned i = f.ndim; i < FRAME_MAX_DIM; i++)
		if (f.dim[i])
			return err_set(e, ERR_PROTOCOL, "%s frame: dimension %u is set, ndim is %u",
				       k->name, i, f.ndim);
	if (p[31] || le_get(p + 88, 4))
		return err_set(e, ERR_PROTOCOL, "%s frame: bytes that must be zero are not",
			       k->name);
	if (f.size != n - FRAME_HEADER)
		return err_set(e, ERR_PROTOCOL,
			       "%s frame: announces a payload of %llu bytes, has %zu", k->name,
			       (unsigned long long)f.size, n - FRAME_HEADER);
	if (sum) {
		uint32_t is = crc32c(crc32c(0, p, 92), p + FRAME_HEADER, f.size),
			 said = (uint32_t)le_get(p + 92, 4);
		if (is != said)
			return err_set(e, ERR_PROTOCOL,
				       "%s frame: checksum 0x%08x, the frame says 0x%08x", k->name,
				       is, said);
	}
	*f_p = f;
	return 0;
}

int frame_parse(const void *p, size_t n, struct frame *f_p, struct err *e)
{
	return parse(p, n, true, f_p, e);
}
int frame_parse_trusted(const void *p, size_t n, struct frame *f_p, struct err *e)
{
	return parse(p, n, false, f_p, e);
}
