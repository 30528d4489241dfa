/* SPDX-License-Identifier: Apache-2.0 */
/* adapter_fused.h - adapters on the experts of a layer as one: transformers 5 has the matrices of
 * all experts in one parameter each (`mlp.experts.gate_up_proj`, `.down_proj`), on which PEFT puts
 * one pair with `target_parameters` (PEFT 0.21, tuners/lora/layer.py, ParamWrapper):
 *
 *   <layer>.mlp.experts.lora_A.weight [E r, in]    row e r + i is row i of expert e
 *   <layer>.mlp.experts.lora_B.weight [out, r E]   column i E + e is column i of expert e
 *
 * With pairs on both parameters that of gate_up_proj is `<layer>.mlp.experts.base_layer`. Its rows
 * are those of gate, then those of up; of gpt-oss they alternate. Here a matrix of an expert has a
 * pair of its own: a pair of gate_up_proj is one of gate and one of up with equal A; and theirs are
 * one of twice the rank, each with zeros where the other has its columns. So what was joined here
 * comes apart as it was. Mixtral's block and modules have other names there; of Gemma 4 the block
 * is `experts` in place of `mlp.experts`. */
#ifndef HS_RUNTIME_ADAPTER_FUSED_H
#define HS_RUNTIME_ADAPTER_FUSED_H

#include "file/peft.h"
#include "model/model.h"

struct err;
struct arena;

/* Reads an adapter of a model: peft_read(), its fused pairs taken apart. */
int adapter_read(const char *dir, const struct model_config *c, struct arena *a,
		 struct peft_adapter *ad_p, struct err *e);
/* An adapter that began with the largest singular values of its base belongs to what is left of it,
 * OUTPUT_DIR-pissa/base: with another model it is refused. */
int adapter_check_base(const char *dir, const struct peft_adapter *ad, const char *model,
		       struct err *e);
/* The same adapter with the pairs of experts fused, as PEFT loads it with transformers 5. The
 * arrays of the other pairs are those of `ad`. */
int adapter_fuse(const struct peft_adapter *ad, const struct model_config *c, struct arena *a,
		 struct peft_adapter *out_p, struct err *e);

#endif
