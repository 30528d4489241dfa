/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h - a GGUF file as it is: KV pairs and tensors under their own names (ggml:docs/gguf.md,
 * versions 2 and 3, little-endian).
 *
 * Everything points into the mapping and was checked against its end: strings and arrays are inside
 * the file, shapes do not overflow, data is aligned, inside the file and does not overlap. Names
 * are unique. format_gguf.c interprets them. */
#ifndef HS_FILE_GGUF_H
#define HS_FILE_GGUF_H

#include "base/arena.h"
#include "file/map.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct buf;

enum gguf_kind {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STR,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_KINDS
};

struct gguf_kv {
	const char *key;
	enum gguf_kind kind; /* of the value, or of the elements of an array */
	bool array;
	uint64_t count; /* elements; 1 when not an array */
	/* the bytes behind type (and array header), little-endian, unaligned */
	const uint8_t *value;
	const uint8_t *raw; /* the whole pair as it is in the file, from its key on */
	uint64_t raw_bytes;
};

struct gguf_tensor {
	const char *name;
	int type; /* ggml_type */
	int ndim;
	int64_t ne[4]; /* fastest first, as in the file */
	uint64_t count, bytes;
	const uint8_t *data;
};

struct gguf {
	struct file_map map;
	struct arena mem;
	const char *path;
	uint32_t version;
	struct gguf_kv *kv;
	size_t nkv;
	struct gguf_tensor *tensor; /* in order of the data */
	size_t ntensor;
};

int gguf_open(const char *path, struct gguf *g_p, struct err *e);
void gguf_close(struct gguf *g);

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL: no such key */
/* The value (or array) as JSON. Text must be UTF-8, numbers finite. A float32 becomes the shortest
 * decimal that reads back the same. */
int gguf_kv_json(const struct gguf *g, const struct gguf_kv *kv, json_t **v_p, struct err *e);
/* The same of a pair that is no array. */
int gguf_kv_one(const struct gguf *g, const struct gguf_kv *kv, json_t **v_p, struct err *e);
/* Whether it is what llama.cpp's --lora takes: `general.type` is "adapter". */
bool gguf_is_adapter(const struct gguf *g);
/* What it takes in memory: up to 88 bytes for each, and its text. */
uint64_t gguf_kv_memory(const struct gguf_kv *kv);

#endif
