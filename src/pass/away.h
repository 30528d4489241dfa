/* SPDX-License-Identifier: Apache-2.0 */
/* away.h - experts on other members of a group (model/deal.h): what a member does for the
 * instructions ROUTE to RECV_ROW_GRADS of its list (sched/sched.h).
 *
 * Rows lie in the order of the experts, and within an expert in that of the tokens, so an expert
 * sees the same rows in the same order wherever it is, and the bits are those of one process.
 *
 * ROWS, from a home: for each expert of the layer that the receiver has, in their order, how many
 * rows it gets (u32); of each row its token (i32); the rows (C) in the wire's dtype. All other
 * messages are rows alone, in the same order. Everything is checked against the microbatch. */
#ifndef HS_PASS_AWAY_H
#define HS_PASS_AWAY_H

#include "engine/exchange.h"
#include "engine/group_sum.h"
#include "engine/worker_model.h"

struct err;
struct away_pass;

struct away {
	struct exchange *exchange; /* borrowed, as all three */
	struct group_sum *sum;
	struct stage *stage;
	struct sched_experts *shape; /* [stages]; NULL: no experts are dealt in this job */
	unsigned char *has;
	int place;              /* of this member */
	struct away_pass *pass; /* [n] microbatches whose rows are here */
	size_t n, cap;
	struct dev_buf *cast; /* rows in the wire's dtype */
};

/* For PLAN; the model may have no dealt experts. */
int away_begin(struct away *a, struct exchange *x, struct worker_model *m, struct group_sum *s,
	       struct err *e);
/* A round begins; that before it may have failed. */
void away_round(struct away *a);
/* An instruction. `sl`: the slot of its microbatch where this member is its home, else NULL; `b`:
 * what the microbatch is. */
int away_execute(struct away *a, const struct instr *i, struct slot *sl,
		 const struct stage_batch *b, struct err *e);
/* Whether this member runs the rest of a microbatch, of `place` in the deal (NULL: all of them). */
static inline bool away_is_home(const struct away *a, const int *place, int m)
{
	return place ? place[m] == a->place : a->place == 0;
}
void away_release(struct away *a);

#endif
