/* SPDX-License-Identifier: Apache-2.0 */
/* api_config.h - the configuration of a call: a file, the caller's keys, and what goes without
 * saying for a model of one's own. */
#ifndef HS_API_API_CONFIG_H
#define HS_API_API_CONFIG_H

#include "api/api.h"
#include "config/config.h"

/* The bytes of hs_options in version 1. */
#define API_OPTIONS_LEAST offsetof(hs_options, allow_changes)

struct api_config {
	struct config *c;
	char *own_dir;   /* of a run without an output_dir, removed at the end; else NULL */
	char *model_dir; /* with the model's first values; NULL: a job of the configuration's own */
};

/* `m`: has been entered; NULL: a job of the configuration's own. `held`: samples to evaluate on. */
int api_config_open(struct api_config *a, const hs_model *m, const hs_options *o, uint64_t held,
		    struct err *e);
void api_config_close(struct api_config *a);
/* This process coordinates the job, or is alone: peers and addresses are resolved. */
int api_check_role(struct config *c, struct err *e);
/* One run at a time; false: another one is going on. */
bool api_run_begin(void);
void api_run_end(void);

#endif
