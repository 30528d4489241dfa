/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - see slots.h. */
#include "pass/slots.h"

#include "base/err.h"
#include "base/mem.h"

int slots_open(struct slots *p, struct stage *stage, int chunk, int mb, struct slot **sl_p,
	       struct err *e)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->chunk[i] == chunk && p->mb[i] == mb) {
			*sl_p = &p->slot[i];
			return 0;
		}
	/* A free slot that was used for this chunk, else any free one. */
	size_t k = p->n;
	for (size_t i = 0; i < p->n; i++)
		if (p->mb[i] < 0 && (k == p->n || p->slot[i].stage == stage))
			k = i;
	if (k == p->n) {
		if (!mem_grow(&p->slot, &p->slot_cap, p->n + 1, sizeof *p->slot) ||
		    !mem_grow(&p->chunk, &p->chunk_cap, p->n + 1, sizeof(int)) ||
		    !mem_grow(&p->mb, &p->mb_cap, p->n + 1, sizeof(int)))
			return err_nomem(e, (p->n + 1) * sizeof *p->slot, "microbatches in flight");
		slot_init(&p->slot[p->n++], stage);
	}
	p->slot[k].stage = stage;
	p->chunk[k] = chunk;
	p->mb[k] = mb;
	*sl_p = &p->slot[k];
	return 1;
}

void slots_free(struct slots *p, struct slot *sl)
{
	stage_end(sl);
	p->mb[sl - p->slot] = -1;
}

void slots_release(struct slots *p)
{
	for (size_t i = 0; i < p->n; i++)
		slot_release(&p->slot[i]);
	mem_free(p->slot);
	mem_free(p->chunk);
	mem_free(p->mb);
	*p = (struct slots){ 0 };
}
