/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_build.h - the parameters and adapters of the blocks of a decoder (decoder_blocks.c). */
#ifndef HS_MODEL_DECODER_BUILD_H
#define HS_MODEL_DECODER_BUILD_H

#include "model/decoder.h"
#include "model/model_block.h"

struct err;

int decoder_build_front(struct stage_builder *b, int64_t index, struct err *e);
int decoder_build_layer(struct stage_builder *b, int64_t index, struct err *e);
int decoder_build_end(struct stage_builder *b, int64_t index, struct err *e);
size_t decoder_params(const struct model_config *c, bool layer);

#endif
