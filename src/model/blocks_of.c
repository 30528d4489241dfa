/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_of.c - which blocks a model consists of. */
#include "model/model_block.h"

extern const struct model_blocks decoder_blocks, own_blocks;

const struct model_blocks *model_blocks_of(const struct model_config *c)
{
	return c->own.n ? &own_blocks : &decoder_blocks;
}
