/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - the order in which the gradients of a step's microbatches are added, so that a sum has
 * the same bits wherever its terms were computed.
 *
 * Float32 addition is not associative: an order has to be fixed. Two of them:
 *   fast    every member adds its own microbatches one after the other, in their order; then the
 *           members' sums are added in the order of their places. The bits depend on the groups and
 *           shares, not on stages and schedules.
 *   exact   a binary tree over the microbatches. node(0,i) is the gradient of microbatch i, made
 *           from zero; node(k,j) = node(k-1,2j) + node(k-1,2j+1), or node(k-1,2j) alone where the
 *           right one does not exist. The bits depend on nothing but the microbatches. A member
 *           contributes the largest nodes that it can compute alone.
 *
 * Pure. */
#ifndef HS_SCHED_SUM_H
#define HS_SCHED_SUM_H

#include <stdbool.h>
#include <stddef.h>

struct err;

enum sum_order { SUM_FAST = 1, SUM_EXACT = 2 }; /* also the numbers in PLAN and in checkpoints */

const char *sum_order_name(enum sum_order o); /* "fast", "exact" */

/* What a member contributes to the sum: all its microbatches (fast; first is the first of them), or
 * those of a node, [first, last). */
struct sum_term {
	int place;
	int first, last;
};

struct sum_terms {
	enum sum_order order;
	int microbatches;
	struct sum_term *term; /* [n] in the order of the sum */
	int n;
	size_t cap;
};

/* The terms when place[i] runs microbatch i. The memory is kept from call to call. */
int sum_terms_find(struct sum_terms *t, enum sum_order o, const int *place, int microbatches,
		   struct err *e);
void sum_terms_release(struct sum_terms *t);

/* How many sums of its own microbatches a member holds at once, at most, in the order SUM_EXACT:
 * place[i] runs microbatch i; NULL: this member runs all. */
int sum_held(const int *place, int microbatches, int me);

/* Leaves the sum of all terms with term 0, and changes the others: `add` adds the numbers of term
 * `from` to those of term `to`. */
int sum_with(const struct sum_terms *t, int (*add)(void *ctx, int to, int from, struct err *e),
	     void *ctx, struct err *e);

#endif
