/* SPDX-License-Identifier: Apache-2.0 */
/* routers.h - what the losses of routers join over the layers of a model (model/experts.h), on its
 * way between stages: behind an activation the counts and sums so far, behind a gradient the
 * derivatives. They are exact, so a job has the same bits however it is divided.
 *
 * Bytes, little-endian. Activation: f64 rows, squares; picks, probabilities (E each). Gradient:
 * f32 z; balance (E). In a frame they are further rows of the tensor, as many as hold them; what is
 * left of the last one is 0. */
#ifndef HS_PROTO_ROUTERS_H
#define HS_PROTO_ROUTERS_H

#include "model/stage.h"

/* Bytes behind an activation (back: a gradient) of a pass; 0: this job has no such losses. */
size_t routers_bytes(const struct model_config *c, const struct stage_options *o, bool train,
		     bool back);
/* sums may be NULL: then nothing is done. */
void routers_put(const struct router_sums *s, bool back, unsigned char *p);
void routers_take(struct router_sums *s, bool back, const unsigned char *p);

#endif
