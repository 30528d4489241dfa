/* SPDX-License-Identifier: Apache-2.0 */
/* references.h - what the reference of a preference loss says of the answers of a round: the model
 * without its adapters computes the same microbatches first (ROUND_REFER), and its figures travel
 * with them in the round that trains or evaluates. So no second model is held anywhere, and the
 * figures do not depend on who computes a microbatch. */
#ifndef HS_PROTO_REFERENCES_H
#define HS_PROTO_REFERENCES_H

#include "data/batch.h"

struct err;

struct references {
	double *v;  /* of all sequences of the round, microbatch after microbatch */
	size_t *at; /* [n+1] where those of a microbatch are; n: those known */
	size_t n, cap, at_cap;
};

void references_release(struct references *r);
/* Before microbatch m is sent, in their order: makes room for its figures (`ask`), or gives it what
 * is known of it. Without pairs nothing is done. */
int references_place(struct references *r, bool ask, uint32_t m, const struct microbatch *mb,
		     struct err *e);
/* REFERENCE of microbatch m. */
int references_take(struct references *r, uint32_t m, const void *payload, size_t n, struct err *e);

#endif
