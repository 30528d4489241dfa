/* SPDX-License-Identifier: Apache-2.0 */
/* pairs_wire.h - preference training in the payloads of PLAN, BATCH and REFERENCE; the rest of
 * those is in protocol.c. */
#ifndef HS_PROTO_PAIRS_WIRE_H
#define HS_PROTO_PAIRS_WIRE_H

#include "proto/protocol.h"

enum { PAIRS_MOST = 4000 /* rows of a microbatch: their REFERENCE is one frame */ };

void prefer_put(struct wire_writer *w, const struct prefer_options *o);
void prefer_get(struct wire_reader *r, struct prefer_options *o);
int prefer_check(const char *what, const struct prefer_options *o, struct err *e);

/* Of BATCH: nothing of each where `p` is NULL. */
void pairs_put(struct wire_writer *w, const struct pairs *p, uint32_t nseq, uint32_t nrows);
struct pairs_fields {
	const void *answer, *good, *ref;
	size_t nanswer, ngood, nref;
};
void pairs_get(struct wire_reader *r, struct pairs_fields *f);
/* After the other arrays of b are there: copies, checks, and sets b->head.pairs. */
int pairs_take(const struct pairs_fields *f, bool labels, struct batch_store *b, struct err *e);
/* Whether the end of the model got what a round of this job needs. */
int pairs_expect(const struct prefer_options *o, const struct batch_head *h, struct err *e);

int reference_write(const double *v, size_t count, void *out, size_t cap, size_t *n_p,
		    struct err *e);
/* `count` numbers into v. */
int reference_read(const void *p, size_t n, double *v, size_t count, struct err *e);

#endif
