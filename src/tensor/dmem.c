/* dmem.c - the stack of device memory of tensor.h. */
#include "tensor/tensor.h"

#include "base/err.h"
#include "base/mem.h"

enum { ALIGN = 64 };

void dmem_init(struct dmem *m, struct dev *dev, size_t block_bytes)
{
	*m = (struct dmem){ .dev = dev, .block_bytes = block_bytes };
}

void dmem_release(struct dmem *m)
{
	for (size_t i = 0; i < m->nblock; i++)
		dev_free(m->block[i]);
	mem_free(m->block);
	dmem_init(m, m->dev, m->block_bytes);
}

static int add_block(struct dmem *m, size_t bytes, struct err *e)
{
	if (!mem_grow(&m->block, &m->cap, m->nblock + 1, sizeof *m->block))
		return err_nomem(e, (m->nblock + 1) * sizeof *m->block, "the list of memory blocks");
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
		m->below += m->block[m->now]->size;
		m->now++;
		m->used = 0;
	}
	if (m->now == m->nblock)
		TRY(add_block(m, bytes > m->block_bytes ? bytes : m->block_bytes, e));
	*r_p = DEV_REF(m->block[m->now], m->used);
	m->used += bytes;
	if (m->below + m->used > m->peak)
		m->peak = m->below + m->used;
	return 0;
}

struct dmem_mark dmem_mark(const struct dmem *m) { return (struct dmem_mark){ m->now, m->used, m->below }; }

void dmem_back(struct dmem *m, struct dmem_mark k)
{
	m->now = k.now;
	m->used = k.used;
	m->below = k.below;
}

void dmem_reset(struct dmem *m) { m->now = m->used = m->below = 0; }

int dmem_reserve(struct dmem *m, size_t bytes, struct err *e)
{
	for (size_t i = 0; i < m->nblock; i++)
		if (m->block[i]->size >= bytes)
			return 0;
	return add_block(m, bytes, e);
}
