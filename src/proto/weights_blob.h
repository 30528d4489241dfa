/* SPDX-License-Identifier: Apache-2.0 */
/* weights_blob.h - one tensor as the bytes that are sent and cached; shared by the two sides
 * of weights_out.h.
 *
 * Plain: shape x dtype, row-major. NF4: float32 offset and 3 zeros, code (16), then absmax (nblk),
 * or when double-quantised code2 (256), absmax2 (ceil(nblk/256)) and absmax8 (nblk bytes); then the
 * packed nibbles ((count+1)/2). All float32 little-endian. */
#ifndef HS_PROTO_WEIGHTS_BLOB_H
#define HS_PROTO_WEIGHTS_BLOB_H

#include "file/model_file.h"
#include "model/source.h"
#include "net/wire.h"
#include "proto/protocol.h"

struct err;

/* BLOB_VERSION: raise it when blob_make gives other bytes than before for the same tensor and head,
 * or remembered hashes (hashes.h) will be wrong. */
enum { BLOB_VERSION = 1, BLOB_HASH = 32, BLOB_PART = 4 << 20, BLOB_TENSORS_MOST = 1 << 16 };

struct blob_head {
	char name[256];
	bool nf4, doubled; /* doubled: double-quantised */
	enum dtype dtype;  /* plain */
	uint32_t block;    /* NF4 */
	int ndim;
	int64_t shape[2];
	uint64_t bytes;
	unsigned char hash[BLOB_HASH];
};

struct blob {
	const unsigned char *p;
	size_t n;
	void *owned; /* mem_free; NULL where p points into the model file */
};

/* The form in which this tensor is sent to a stage with these options; everything but the hash. */
int blob_describe(struct model_file *f, const struct model_tensor *t, const struct stage_options *o,
		  struct blob_head *h_p, struct err *e);
/* Its bytes, made from the file. */
int blob_make(struct model_file *f, const struct blob_head *h, struct blob *b_p, struct err *e);
void blob_release(struct blob *b);
void blob_hash(const void *p, size_t n, unsigned char out[BLOB_HASH]);

/* Bytes that a tensor of this head must have; ERR_PROTOCOL for impossible shapes and storage. */
int blob_size(const struct blob_head *h, uint64_t *n_p, struct err *e);
void blob_head_put(struct wire_writer *w, const struct blob_head *h);
int blob_head_get(struct wire_reader *r, struct blob_head *h_p, struct err *e);

/* Reading: rows as float32, or the parts of NF4 (pointing into p). */
void blob_rows(const struct blob_head *h, const unsigned char *p, int64_t row0, int64_t rows,
	       float *dst);
void blob_nf4(const struct blob_head *h, const unsigned char *p, struct nf4_parts *q_p);

#endif
