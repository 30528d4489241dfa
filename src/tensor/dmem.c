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
		dev_free(m->block[i]);
	m->nblock = 0;
}

void dmem_release(struct dmem *m)
{
	free_blocks(m);
	for (size_t i = 0; i < ARRAY_LEN(m->panel); i++)
		dev_free(m->panel[i]);
	mem_free(m->block);
	dmem_init(m, m->dev, m->block_bytes);
}

static int add_block(struct dmem *m, size_t bytes, struct err *e)
{
	if (!mem_grow(&m->block, &m->cap, m->nblock + 1, sizeof *m->block))
		return err_nomem(e, (m->nblock + 1) * sizeof *m->block,
				 "the list of memory blocks");
	TRY(dev_alloc(m->dev, bytes, &m->block[m->nblock], e));
	m->nblock++;
	return 0;
}

int dmem_take(struct dmem *m, size_t bytes, struct dev_ref *r_p, struct err *e)
{
	if (bytes > SIZE_MAX - ALIGN)
		return err_nomem(e, bytes, "a tensor");
	bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	while (m->now < m->nblock && m->block[m->now]->size - m->used < bytes) {
		m->now++;
		m->used = 0;
	}
	if (m->now == m->nblock && !m->bytes) { /* none was large enough, and none is in use */
		free_blocks(m);
		m->now = 0;
	}
	if (m->now == m->nblock)
		TRY(add_block(m, bytes > m->block_bytes ? bytes : m->block_bytes, e));
	*r_p = DEV_REF(m->block[m->now], m->used);
	m->used += bytes;
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
	return (struct dmem_mark){ m->now, m->used, m->bytes };
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
	for (size_t i = m->now; i < m->nblock; i++)
		room += m->block[i]->size - (i == m->now ? m->used : 0);
	if (room >= bytes || m->divided)
		return;
	if (!m->bytes)
		join_blocks(m, bytes);
	else
		m->divided = add_block(m, bytes - room, &ignored) < 0;
}

void dmem_back(struct dmem *m, struct dmem_mark k)
{
	m->now = k.now;
	m->used = k.used;
	m->bytes = k.bytes;
	if (!m->bytes)
		m->now = m->used = 0;
	/* one that had to grow: no gaps at the ends of blocks, and none too small for the next
	 * microbatch */
	if (!m->bytes && m->nblock > 1 && !m->divided)
		join_blocks(m, m->peak);
}

void dmem_reset(struct dmem *m) { dmem_back(m, (struct dmem_mark){ 0, 0, 0 }); }
