/* SPDX-License-Identifier: Apache-2.0 */
/* plan_worth.h - what `heteroshard plan` prints of energy and money, and of this cluster beside one
 * of equal cards. */
#ifndef HS_CLI_PLAN_WORTH_H
#define HS_CLI_PLAN_WORTH_H

#include "base/opt.h"
#include "plan/worth.h"
#include "survey/job_plan.h"

/* Tokens/s for 1,000 euro, and euro for a token/s, with three digits. */
void plan_worth_text(double euro, double tokens_per_s, char rate[24], char price[24]);
/* Facts of one plan. `euro` NaN: no prices. */
void plan_worth_print(const struct profile *p, const struct plan *plan, double euro);
/* One table: the cluster of `j`, and the uniform one that `text` describes (plan/uniform.h).
 * `prices` MAY be NULL; `path`: the description of the cluster, NULL: it was measured. */
int plan_worth_compare(const struct job_plan *j, const char *text, struct prices *prices,
		       const char *path, bool json, struct err *e);
/* Where the dtype of a description's job is what its oldest devices have: one line, what the others
 * would do without them in their own. `without`: what is left out already. */
int plan_worth_dtype(const struct job_plan *j, const struct plan *plan, const char *path,
		     const struct opt_list *without, struct err *e);

#endif
