/* SPDX-License-Identifier: Apache-2.0 */
/* own_local.h - a model of one's own on one device, forwards only: its loss, its output. */
#ifndef HS_RUNTIME_OWN_LOCAL_H
#define HS_RUNTIME_OWN_LOCAL_H

#include "data/batch.h"
#include "model/stage.h"

struct err;

struct own_local {
	struct dev *dev;
	struct stage stage;
	struct slot slot;
	bool has_slot;
};

/* `device`: "cpu", NULL: the best there is. */
int own_local_open(struct own_local *l, const struct model_config *c,
		   const struct weight_source *src, const char *device, struct err *e);
void own_local_close(struct own_local *l);
/* Runs a microbatch. `y` (MAY be NULL): the output, (N, width), as float32. The sum of the losses
 * of rows with a target, how many these are, and of how many the likeliest class was right, are in
 * l->slot: loss, trained, hits. */
int own_local_run(struct own_local *l, const struct microbatch *mb, float *y, struct err *e);

#endif
