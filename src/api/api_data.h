/* SPDX-License-Identifier: Apache-2.0 */
/* api_data.h - a caller's data as the engine's. */
#ifndef HS_API_API_DATA_H
#define HS_API_API_DATA_H

#include "api/api.h"
#include "data/sample_set.h"

struct api_samples {
	hs_data data;
	struct sample_set set; /* its ctx is this struct */
};

/* `m` has been entered. */
int api_samples_init(struct api_samples *s, const hs_model *m, const hs_data *d, hs_error *e);

#endif
