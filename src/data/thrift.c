/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.c - see thrift.h. */
#include "data/thrift.h"

static uint8_t byte(struct thrift *t)
{
	if (t->p < t->end)
		return *t->p++;
	t->bad = true;
	return 0;
}

uint64_t thrift_varint(struct thrift *t)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t b = byte(t);
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	t->bad = true;
	t->p = t->end;
	return 0;
}

int64_t thrift_int(struct thrift *t)
{
	uint64_t v = thrift_varint(t);
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

bool thrift_next(struct thrift *t, struct thrift_field *f)
{
	uint8_t b = byte(t);
	if (t->bad || !b)
		return false;
	f->type = (enum thrift_type)(b & 15);
	int64_t id = b >> 4 ? f->id + (b >> 4) : thrift_int(t);
	if (id < 0 || id > 32767)
		t->bad = true;
	f->id = (int)id;
	return !t->bad;
}

const uint8_t *thrift_binary(struct thrift *t, size_t *n_p)
{
	uint64_t n = thrift_varint(t);
	const uint8_t *p = t->p;
	if (n > (uint64_t)(t->end - t->p)) {
		t->bad = true;
		n = 0;
	}
	t->p += n;
	*n_p = (size_t)n;
	return p;
}

size_t thrift_list(struct thrift *t, enum thrift_type *item_p)
{
	uint8_t b = byte(t);
	uint64_t n = b >> 4 == 15 ? thrift_varint(t) : b >> 4;
	*item_p = (enum thrift_type)(b & 15);
	if (n > (uint64_t)(t->end - t->p)) {
		t->bad = true;
		n = 0;
	}
	return (size_t)n;
}

void thrift_skip(struct thrift *t, enum thrift_type type)
{
	struct thrift_field f = { 0, TH_STOP };
	enum thrift_type item;
	size_t n;
	if (t->bad || t->depth >= 32) {
		t->bad = true;
		return;
	}
	t->depth++;
	switch (type) {
	case TH_TRUE:
	case TH_FALSE:
		break;
	case TH_BYTE:
		byte(t);
		break;
	case TH_I16:
	case TH_I32:
	case TH_I64:
		thrift_varint(t);
		break;
	case TH_DOUBLE:
		for (int i = 0; i < 8; i++)
			byte(t);
		break;
	case TH_BINARY:
		thrift_binary(t, &n);
		break;
	case TH_LIST:
	case TH_SET:
		n = thrift_list(t, &item);
		/* true and false have a byte of their own in a list */
		for (size_t i = 0; i < n && !t->bad; i++)
			thrift_skip(t, item <= TH_FALSE ? TH_BYTE : item);
		break;
	case TH_STRUCT:
		while (thrift_next(t, &f))
			thrift_skip(t, f.type);
		break;
	default:
		t->bad = true;
	}
	t->depth--;
}
