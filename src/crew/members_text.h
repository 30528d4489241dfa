/* SPDX-License-Identifier: Apache-2.0 */
/* members_text.h - in words: which layers went to whom when the members of a job changed, and which
 * steps are computed again. */
#ifndef HS_CREW_MEMBERS_TEXT_H
#define HS_CREW_MEMBERS_TEXT_H

#include "job/placement.h"
#include "plan/plan.h"

struct buf;
struct err;

/* Who holds which layer: for each the ids of its workers. */
struct holders {
	char **of; /* [layers] "a, b"; each row's own */
	int64_t layers;
};

int holders_of(const struct placement *p, int64_t layers, struct holders *h_p, struct err *e);
void holders_release(struct holders *h);
/* "Layers 20-27 go to 'box2' and 'box1'": to those that did not hold them before. */
void holders_text(const struct holders *before, const struct placement *now, int rows,
		  struct buf *out);
/* "'a' computes 6 of 8 microbatches, 'b' 2" */
void shares_text(const struct profile *p, const struct plan *plan, struct buf *out);
/* ". Going on after step 410; steps 411 and 412 are computed again" */
void again_text(uint64_t step, uint64_t reached, struct buf *out);

#endif
