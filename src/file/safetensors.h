/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - reading and writing one safetensors file (huggingface/safetensors, format of
 * 2023).
 *
 * u64 little-endian header length N (at most 100,000,000), N bytes of JSON padded with spaces to a
 * multiple of 8, data. The tensors must cover the data without holes or overlaps; the file ends
 * where the last one ends. All of it is checked on opening. */
#ifndef HS_FILE_SAFETENSORS_H
#define HS_FILE_SAFETENSORS_H

#include "base/dtype.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct st_tensor {
	const char *name;
	enum dtype dtype;
	int ndim;
	int64_t shape[8];
	uint64_t count, bytes;
	const void *data; /* in the mapping; aligned to 1 byte only */
};

struct st_file;

int st_open(const char *path, struct st_file **f_p, struct err *e);
void st_close(struct st_file *f);
size_t st_count(const struct st_file *f);
const struct st_tensor *st_get(const struct st_file *f, size_t i); /* in order of the data */
const struct st_tensor *st_find(const struct st_file *f, const char *name);
const json_t *st_metadata(const struct st_file *f); /* string -> string, or NULL */
/* its pages leave the resident set */
void st_drop(const struct st_file *f, const struct st_tensor *t);
void st_drop_range(const struct st_file *f, const void *p, uint64_t n);

/* Writing: the header comes first, then the data of each tensor is streamed in the order of the
 * header, so that a model larger than memory can be written. */
struct st_spec {
	const char *name;
	enum dtype dtype;
	int ndim;
	int64_t shape[8];
	void *user; /* passed to the callback */
};

/* Fills `dst` with the bytes [off, off+n) of a tensor (row-major, little-endian). Both are whole
 * rows (of count/shape[0] elements), as many as fit into 4 MiB and at least one. */
typedef int (*st_source_fn)(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
			    struct err *e);

/* Writes a whole file: beside it as PATH.tmp, synced, then renamed (atomic.h). `metadata` may be
 * NULL; {"format":"pt"} is always written. Tensors are ordered as the reference writer does
 * (alignment descending, then name). */
int st_write(const char *path, const struct st_spec *specs, size_t n, const json_t *metadata,
	     st_source_fn source, void *ctx, struct err *e);

/* The same file, whose bytes come in any order and size: for a folder that is renamed when it is
 * complete. Nothing may be at `path`; what is never put is zero. */
struct st_out {
	int fd;
	char *path;
	uint64_t *at; /* [n] where each tensor begins in the file */
};
int st_out_begin(const char *path, const struct st_spec *specs, size_t n, struct st_out *o_p,
		 struct err *e);
/* Bytes [off, off+n) of tensor i. */
int st_out_put(struct st_out *o, size_t i, uint64_t off, const void *p, uint64_t n, struct err *e);
void st_out_end(struct st_out *o); /* the file stays, unsynced; {.fd = -1} is allowed */

#endif
