/* SPDX-License-Identifier: Apache-2.0 */
/* gathered.h - parameters whose values are stored in pieces by the members of a group
 * (SHARD_PARAMETERS): each has the piece of the elements that it owns, and for computing the pieces
 * are brought together in memory that the caller lends.
 *
 * The piece of a trained parameter is its float32 master copy, and is cast into the activation
 * dtype when it is gathered. That of a frozen one is stored as the kernels read it: plain numbers,
 * or NF4 nibbles and block scales; cuts lie behind blocks of STATE_BLOCK elements, so no NF4 block
 * is cut. The small tables of NF4 (code values, scales of scales) are whole on every member. */
#ifndef HS_TENSOR_GATHERED_H
#define HS_TENSOR_GATHERED_H

#include "tensor/param.h"

struct err;

/* A trained plain parameter whose piece is still zero: param_upload_f32() fills it in. `cut`
 * (members+1) is borrowed. */
int gathered_init(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		  enum dtype t, const int64_t *cut, int members, int place, struct err *e);
/* A frozen parameter that is complete keeps only its piece. */
int gathered_cut(struct param *p, const int64_t *cut, int members, int place, struct err *e);

/* Bytes of all its numbers in the activation dtype or NF4, and of its block scales. */
struct gathered_size {
	size_t data, scales;
};
struct gathered_size gathered_size(const struct param *p);

/* `w` refers to these buffers from now on, and has the own piece there, but for a hosted one, which
 * gathered_put() brings there (param_hosted()). `scales` MAY be NULL where there are none. */
int gathered_open(struct param *p, struct dev_buf *data, struct dev_buf *scales, struct err *e);
/* Bytes of the piece of member k. */
size_t gathered_piece_size(const struct param *p, int k);
/* The piece of member k of an open parameter, to the host and from it. */
int gathered_get(const struct param *p, int k, void *bytes, struct err *e);
int gathered_put(struct param *p, int k, const void *bytes, struct err *e);
/* `w` has no numbers any more. */
void gathered_close(struct param *p);

#endif
