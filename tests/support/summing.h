/* SPDX-License-Identifier: Apache-2.0 */
/* summing.h - members of a group as threads with links to each other, that add up by a row of
 * sched/reduce.def; sums travel in frames as between workers. From sum to sum others of them add up
 * as one with a card does, in rooms of its own (struct reduce_there). */
#ifndef HS_TESTS_SUPPORT_SUMMING_H
#define HS_TESTS_SUPPORT_SUMMING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "net/net.h"
#include "sched/reduce.h"
#include "support/ok.h"

enum { GROUP = 5, PASSES = 16 /* microbatches at most */, NEVER = -1 };
static const double patience = 60; /* seconds without a message: a hang */

extern struct err err;

struct sums {
	const char *name;
	enum sum_order order;
	int n, microbatches;
	int place[PASSES];
	size_t count, largest;
	bool shared; /* place k gets [cut[k], cut[k+1]) only */
	size_t cut[GROUP + 1];
};

struct early;

struct member {
	int me;
	struct net *net;
	struct link *link[GROUP];
	char at[NET_ADDRESS];
	struct early *early; /* [n] */
	size_t n, cap;
	/* Of a sum. */
	const struct sums *sums;
	const struct reducer *how;
	uint64_t step;
	struct sum_terms terms;
	float *result; /* [count] */
	float *room[PASSES];
	size_t made[PASSES]; /* numbers of each room */
	uint64_t turn;       /* who adds there */
	size_t results;
	bool delayed;
	int advances; /* before it finishes */
	struct rng_key delays;
	uint64_t delay_at;
	int ops, dies_at;      /* messages sent and waited for; NEVER */
	struct net_group *all; /* over MPI */
	int rc;
	struct err e;
};

struct group {
	const char *transport;
	int n;
	struct key_pair key;
	struct member m[GROUP];
};

/* Gradients of very different size, so that another order gives another sum; a test's set-up. */
int sums_gradients(void **state);
int sums_drop(void **state);
/* Number i of their tree. */
float sums_tree(int microbatches, size_t i);

void group_make(struct group *g, const char *transport, int n, uint64_t window);
void group_end(struct group *g);
/* All members at once; `delays`: a seed, 0: none. */
void group_sum_once(struct group *g, const struct sums *s, const struct reducer *how,
		    uint64_t delays);
void group_drop(struct group *g); /* the results */

void *member_run(void *member);
void member_leave(struct member *m);
/* The result of a member that ended well, which may be later than another's death: how far it is
 * from the sum in float64, as a share of the sum of sizes. */
double member_check(const struct member *m);

#endif
