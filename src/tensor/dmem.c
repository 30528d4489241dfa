/* SPDX-License-Identifier: Apache-2.0 */
/* dmem.c - the stack of device memory of tensor.h. */
#include "tensor/tensor.h"

#include "base/err.h"
#include "base/mem.h"

enum { ALIGN = 64 };

void dmem_init(struct dmem *m, struct dev *dev, size_t block_bytes)
{
	*m = (struct dmem){ .dev = dev, .block_bytes = block_bytes };
}

static void free_blocks(struct dmem *m)
{
	for (size_t i = 0; i < m->nblock; i++)
		dev_free(m->block[i].buf);
	m->nblock = 0;
}

void dmem_release(struct dmem *m)
{
	free_blocks(m);
	for (size_t i = 0; i < ARRAY_LEN(m->panel); i++)
		dev_free(m->panel[i]);
	mem_free(m->block);
	mem_free(m->piece);
	dmem_init(m, m->dev, m->block_bytes);
}

static int add_block(struct dmem *m, size_t bytes, struct err *e)
{
	if (!mem_grow(&m->block, &m->block_cap, m->nblock + 1, sizeof *m->block))
		return err_nomem(e, (m->nblock + 1) * sizeof *m->block,
				 "the list of memory blocks");
	m->block[m->nblock].used = 0;
	TRY(dev_alloc(m->dev, bytes, &m->block[m->nblock].buf, e));
	m->nblock++;
	return 0;
}

static size_t room_in(const struct dmem_block *b) { return b->buf->size - b->used; }

/* The block that `bytes` fill best; nblock: none has so much room. */
static size_t best_block(const struct dmem *m, size_t bytes)
{
	size_t best = m->nblock;
	for (size_t i = 0; i < m->nblock; i++)
		if (room_in(&m->block[i]) >= bytes &&
		    (best == m->nblock || room_in(&m->block[i]) < room_in(&m->block[best])))
			best = i;
	return best;
}

int dmem_take(struct dmem *m, size_t bytes, struct dev_ref *r_p, struct err *e)
{
	if (bytes > SIZE_MAX - ALIGN)
		return err_nomem(e, bytes, "a tensor");
	bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!mem_grow(&m->piece, &m->piece_cap, m->pieces + 1, sizeof *m->piece))
		return err_nomem(e, (m->pieces + 1) * sizeof *m->piece, "the list of tensors");
	size_t i = best_block(m, bytes);
	if (i == m->nblock) {
		if (!m->pieces) { /* none was large enough, and none is in use */
			free_blocks(m);
			i = 0;
		}
		TRY(add_block(m, bytes > m->block_bytes ? bytes : m->block_bytes, e));
	}
	struct dmem_block *b = &m->block[i];
	m->piece[m->pieces++] = (struct dmem_piece){ i, b->used };
	*r_p = DEV_REF(b->buf, b->used);
	b->used += bytes;
	m->bytes += bytes;
	if (m->bytes > m->peak)
		m->peak = m->bytes;
	return 0;
}

/* Both grow at once: what a step needs is known when it has run. */
int dmem_panel(struct dmem *m, size_t bytes, struct dev_ref *r_p, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(m->panel); i++) {
		if (m->panel[i] && m->panel[i]->size >= bytes)
			continue;
		dev_free(m->panel[i]);
		m->panel[i] = NULL;
		TRY(dev_alloc(m->dev, bytes, &m->panel[i], e));
	}
	*r_p = DEV_REF(m->panel[m->dev->panel++ % ARRAY_LEN(m->panel)], 0);
	return 0;
}

size_t dmem_most(const struct dmem *m)
{
	return m->peak + (m->panel[0] ? m->panel[0]->size : 0) +
	       (m->panel[1] ? m->panel[1]->size : 0);
}

struct dmem_mark dmem_mark(const struct dmem *m)
{
	return (struct dmem_mark){ m->pieces, m->bytes };
}

/* The blocks of an empty stack give way to one. When the device has no block of that size, the
 * stack stays divided. */
static void join_blocks(struct dmem *m, size_t bytes)
{
	struct err ignored = { 0 };
	free_blocks(m);
	m->divided = add_block(m, bytes, &ignored) < 0;
}

void dmem_expect(struct dmem *m, size_t bytes)
{
	struct err ignored = { 0 };
	size_t room = 0;
	for (size_t i = 0; i < m->nblock; i++)
		room += room_in(&m->block[i]);
	if (room >= bytes || m->divided)
		return;
	if (!m->pieces)
		join_blocks(m, bytes);
	else
		m->divided = add_block(m, bytes - room, &ignored) < 0;
}

void dmem_back(struct dmem *m, struct dmem_mark k)
{
	while (m->pieces > k.pieces) {
		const struct dmem_piece *p = &m->piece[--m->pieces];
		m->block[p->block].used = p->at;
	}
	m->bytes = k.bytes;
	/* one that had to grow: no gaps at the ends of blocks, and none too small for the next
	 * microbatch */
	if (!m->pieces && m->nblock > 1 && !m->divided)
		join_blocks(m, m->peak);
}

void dmem_reset(struct dmem *m) { dmem_back(m, (struct dmem_mark){ 0, 0 }); }
