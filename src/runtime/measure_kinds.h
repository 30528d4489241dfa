/* SPDX-License-Identifier: Apache-2.0 */
/* measure_kinds.h - which layers are measured of a model that has two kinds of them, attention and
 * linear attention. What is measured of a layer is a mean: of those behind the first one, in which
 * each kind has the share that it has in the model. */
#ifndef HS_RUNTIME_MEASURE_KINDS_H
#define HS_RUNTIME_MEASURE_KINDS_H

#include "model/model.h"

/* n layers or a few more, where with up to `most` the shares are exact. */
int64_t measure_kinds_layers(const struct model_config *m, int64_t n, int64_t most);
/* Sets the kinds of n layers in `c`. The first is as the last, as parts of one layer with front or
 * end are compared. */
void measure_kinds_share(const struct model_config *m, int64_t n, struct model_config *c);
/* The layer in the middle that is measured alone: of the same kind as the first and the last. */
int64_t measure_kinds_one(const struct model_config *c, int64_t n);

#endif
