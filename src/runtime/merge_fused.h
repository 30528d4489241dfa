/* SPDX-License-Identifier: Apache-2.0 */
/* merge_fused.h - the experts of gpt-oss and Gemma 4 in a folder that transformers reads: one
 * tensor for all of a layer (file/fused.h), put together from the modules of each expert. */
#ifndef HS_RUNTIME_MERGE_FUSED_H
#define HS_RUNTIME_MERGE_FUSED_H

#include "base/arena.h"
#include "file/safetensors.h"
#include "model/model.h"

struct err;

/* Rows [row0, row0+rows) of a tensor of the model. */
typedef int (*merge_rows_fn)(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
			     struct err *e);

/* Whether a tensor of the model is part of such a one. */
bool merge_is_fused(const struct model_config *c, const char *name);
/* At most 4 of each layer, behind spec[*n_p]; their names and what merge_fused_bytes() needs to
 * know are in `a`. */
int merge_fused_specs(const struct model_config *c, enum dtype t, struct arena *a,
		      struct st_spec *spec, size_t *n_p, struct err *e);
/* Bytes [off, off+n), those of whole experts, of one of them. */
int merge_fused_bytes(const struct st_spec *s, uint64_t off, uint64_t n, void *dst,
		      merge_rows_fn rows, void *ctx, struct err *e);

#endif
