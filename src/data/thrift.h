/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.h - structs in Thrift's compact protocol, read field by field: what Parquet's metadata is
 * written in. A reader that met something wrong stays at its end and says so in `bad`. */
#ifndef HS_DATA_THRIFT_H
#define HS_DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thrift_type {
	TH_STOP,
	TH_TRUE,
	TH_FALSE,
	TH_BYTE,
	TH_I16,
	TH_I32,
	TH_I64,
	TH_DOUBLE,
	TH_BINARY,
	TH_LIST,
	TH_SET,
	TH_MAP,
	TH_STRUCT
};

struct thrift {
	const uint8_t *p, *end;
	bool bad;
	unsigned depth;
};

struct thrift_field {
	int id;
	enum thrift_type type;
};

/* The next field of a struct, *f begins as { 0 } ; false at its end. The caller reads or skips its
 * value. */
bool thrift_next(struct thrift *t, struct thrift_field *f);
uint64_t thrift_varint(struct thrift *t);
int64_t thrift_int(struct thrift *t); /* i16, i32, i64 */
/* Bytes of a string, in the buffer. */
const uint8_t *thrift_binary(struct thrift *t, size_t *n_p);
/* The items of a list; each takes at least one byte, so no count is above what is left. */
size_t thrift_list(struct thrift *t, enum thrift_type *item_p);
void thrift_skip(struct thrift *t, enum thrift_type type);

#endif
