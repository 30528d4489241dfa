/* SPDX-License-Identifier: Apache-2.0 */
/* bench_together.h - `heteroshard bench --together CONFIG`: what the devices of a job reach
 * together, beside the sum of what each reaches alone. */
#ifndef HS_CLI_BENCH_TOGETHER_H
#define HS_CLI_BENCH_TOGETHER_H

#include "cli/run.h"

struct bench_together {
	struct cli_role role;
	int64_t steps;
	bool json;
};

/* On every machine of the job, with CONFIG and key=value in pos[npos]; the exit status. */
int bench_together(struct bench_together *o, int npos, char **pos);

#endif
