/* SPDX-License-Identifier: Apache-2.0 */
/* bnb.h - a 4-bit weight as bitsandbytes writes it into a safetensors file: several tensors whose
 * names begin with the weight's.
 *
 * bitsandbytes functional.py QuantState.as_dict(packed=True), nn/modules.py
 * Linear4bit._save_to_state_dict. For a weight P of `count` numbers in `nblk` blocks
 * of `blocksize`:
 *   P                                    (count+1)/2 bytes, mostly U8; element 2k in the high
 *                                        nibble of byte k
 *   P.absmax                             F32 [nblk], or U8 [nblk] when double-quantised
 *   P.quant_map                          F32 [16]
 *   P.nested_absmax, P.nested_quant_map  F32 [ceil(nblk/nested_blocksize)], F32 [256]:
 *                                        double-quantised only
 *   P.quant_state.bitsandbytes__nf4      U8: JSON text with quant_type, blocksize, dtype, shape,
 *                                        nested_* */
#ifndef HS_FILE_BNB_H
#define HS_FILE_BNB_H

#include "base/arena.h"
#include "file/model_file.h"
#include "file/safetensors.h"

#define BNB_STATE ".quant_state.bitsandbytes__"

/* The suffixes after P in the names of the parts. */
enum bnb_part { BNB_STATE_NF4, BNB_ABSMAX, BNB_MAP, BNB_ABSMAX2, BNB_MAP2, BNB_PARTS };
extern const char *const bnb_suffix[BNB_PARTS];

/* Checks the parts against each other and fills t (all but its name) and the view. part[i] is NULL
 * where there is none. Parts that are unaligned in the file are copied into `a`. */
int bnb_open(const char *path, const char *name, const struct st_tensor *weight,
	     const struct st_tensor *const part[BNB_PARTS], struct arena *a, struct model_tensor *t,
	     struct nf4_view *v_p, struct err *e);

/* Elements [first, first+n) of the flattened weight: code * absmax in float32, not rounded to the
 * dtype of the quantisation state. */
void bnb_expand(const struct nf4_view *v, uint64_t first, uint64_t n, float *dst);

#endif
