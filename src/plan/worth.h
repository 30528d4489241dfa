/* SPDX-License-Identifier: Apache-2.0 */
/* worth.h - what a plan gives for energy and for money: tokens per watt-hour from the watts of the
 * devices, tokens per second from prices that the user typed in. */
#ifndef HS_PLAN_WORTH_H
#define HS_PLAN_WORTH_H

#include <stdbool.h>

#include "plan/plan.h"

/* The watts of the devices in use, each times the share of the step in which it computes. What they
 * draw while they wait, and the rest of their machines, is not in it. */
struct plan_energy {
	int used, known; /* devices; those with known watts, which alone are counted */
	double watts, tokens_per_wh;
	char unknown[160]; /* the ids of the others */
};

struct plan_energy plan_energy(const struct profile *p, const struct plan *plan);

struct price {
	char name[64]; /* id of a device, or a kind */
	double euro;
	bool used;
};

struct prices {
	struct price *item;
	int n;
	char where[200]; /* "--price", or the file */
};

/* `text` is "NAME=EUROS,...", or a file with a line "NAME = EUROS" (or "NAME: EUROS") for each,
 * '#' for comments. */
int prices_read(struct prices *l, const char *text, struct err *e);
void prices_release(struct prices *l);
/* The price of all devices of a profile, also of those that a plan does not use. ERR_USAGE where
 * one has no price. The price of an id counts before that of a kind. */
int prices_sum(struct prices *l, const struct profile *p, double *euro_p, struct err *e);
/* The price of one card of a kind; ERR_USAGE where there is none. */
int prices_kind(struct prices *l, const char *kind, double *euro_p, struct err *e);
/* ERR_USAGE for a price that nothing asked for: `p` says what there is. */
int prices_all_used(const struct prices *l, const struct profile *p, struct err *e);

#endif
