/* SPDX-License-Identifier: Apache-2.0 */
/* measure_routing.h - how many tokens choose each expert of a mixture: for plans that deal
 * experts to devices. The model is run forward on some tokens layer by layer, of which one is in
 * memory at a time. */
#ifndef HS_RUNTIME_MEASURE_ROUTING_H
#define HS_RUNTIME_MEASURE_ROUTING_H

#include "data/batch.h"
#include "model/stage.h"

struct err;
struct model_file;

struct routing_ask {
	struct model_file *file;
	const struct model_config *cfg;
	const struct stage_options *opt; /* how weights are held; adapters are left out */
	const struct microbatch *mb;     /* [n] */
	size_t n;
	double seconds; /* no further layer is begun after as many */
};

/* picks_p[layers * experts]: tokens that chose each; zeros in a layer without experts, or that was
 * not reached. */
int measure_routing(const struct routing_ask *a, double *picks_p, struct err *e);

#endif
