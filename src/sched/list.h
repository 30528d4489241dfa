/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - writing instruction lists; for sched.c and list_experts.c. */
#ifndef HS_SCHED_LIST_H
#define HS_SCHED_LIST_H

#include "sched/sched.h"

/* Who runs which microbatch on a stage and on the two beside it. NULL: one member each. */
struct list_deal {
	const int *here, *before, *behind; /* [microbatches] */
	int place;
};

static inline bool list_is_ours(const struct list_deal *d, int m)
{
	return d->here ? d->here[m] == d->place : d->place == 0;
}

void list_put(struct instr_list *l, enum instr_kind kind, int microbatch, int chunk, int peer,
	      int place);
/* Of a chunk, part `part` of `parts`. */
void list_put_part(struct instr_list *l, enum instr_kind kind, int microbatch, int chunk, int part,
		   int parts);
/* A message of computation `in`, if there is one: its input, or its result. */
void list_put_message(struct instr_list *l, const struct sched_shape *h, const struct list_deal *d,
		      int stage, const struct instr *in, bool result);

/* list_experts.c: the computations order[n] of a stage whose experts are elsewhere, for one member
 * of its group. `most`: microbatches that are computed in turns, 0: as many as follow each other.
 * `sums`: the gradients are summed over several homes; last: the member's last backward. */
int list_put_experts(struct instr_list *l, const struct sched_shape *h, const struct list_deal *d,
		     int stage, const struct instr *order, size_t n, int most, bool sums, int last,
		     struct err *e);

#endif
