/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - see list.h. */
#include "sched/list.h"

bool sched_target(int stages, int chunks, int stage, int chunk, bool forward, int *stage_p,
		  int *chunk_p)
{
	int s = stage, c = chunk;

	if (stages == 1)
		return false;
	if (forward) {
		if (++s == stages) {
			s = 0;
			c++;
		}
	} else if (--s < 0) {
		s = stages - 1;
		c--;
	}
	if (c < 0 || c >= chunks)
		return false;
	*stage_p = s;
	*chunk_p = c;
	return true;
}

void list_put(struct instr_list *l, enum instr_kind kind, int microbatch, int chunk, int peer,
	      int place)
{
	l->item[l->n++] = (struct instr){ kind, microbatch, chunk, peer, place, 0, 0 };
}

void list_put_part(struct instr_list *l, enum instr_kind kind, int microbatch, int chunk, int part,
		   int parts)
{
	l->item[l->n++] =
		(struct instr){ kind, microbatch, chunk, -1, -1, (short)part, (short)parts };
}

void list_put_message(struct instr_list *l, const struct sched_shape *h, const struct list_deal *d,
		      int stage, const struct instr *in, bool result)
{
	const bool act = in->kind == INSTR_FORWARD, from_before = act != result;
	int peer, chunk;
	if (!sched_target(h->stages, h->chunks, stage, in->chunk, !from_before, &peer, &chunk))
		return;
	const int *deal = from_before ? d->before : d->behind;
	list_put(l,
		 result ? (act ? INSTR_SEND_ACT : INSTR_SEND_GRAD)
			: (act ? INSTR_RECV_ACT : INSTR_RECV_GRAD),
		 in->microbatch, in->chunk, peer, deal ? deal[in->microbatch] : 0);
}
