/* SPDX-License-Identifier: Apache-2.0 */
/* block_order.h - the order of samples that lie in blocks: for data that is larger than memory, of
 * which a block is read at a time.
 *
 * An epoch visits the blocks in an order drawn from (seed, epoch). So many blocks that follow each
 * other in it are a window, whose samples are mixed. So a window is all that has to be in memory,
 * and (epoch, place) alone fixes the sample. A block that is cut short comes last. */
#ifndef HS_DATA_BLOCK_ORDER_H
#define HS_DATA_BLOCK_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct block_order;

struct block_shape {
	uint64_t samples; /* all of them */
	uint64_t train;   /* so many are trained on; the others are held out */
	uint64_t block;   /* samples of a block, at least 1 */
	uint64_t mixed;   /* blocks of a window, at least 1 */
	bool drawn;       /* blocks that are held out are drawn; false: they are the last */
};

int block_order_new(const struct block_shape *s, uint64_t seed, struct block_order **o_p,
		    struct err *e);
void block_order_free(struct block_order *o); /* NULL is allowed */
/* The sample at place k of an epoch, and the k-th of those held out. */
uint32_t block_order_train(struct block_order *o, uint64_t epoch, uint64_t k);
uint32_t block_order_held(const struct block_order *o, uint64_t k);

#endif
