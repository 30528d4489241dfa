/* SPDX-License-Identifier: Apache-2.0 */
/* link_probe.h - measures the link between two workers, over the links that training uses: same
 * transport, keys, frames, checksums.
 *
 * One side measures: it connects to the other at each of several addresses and exchanges messages.
 * The other side answers. Both do so before PLAN, on the coordinator's order
 * (survey/links_measure.h). A slow link is measured with small messages only: nothing here takes
 * longer than about three times `seconds` for each direction of an address. */
#ifndef HS_WORKER_LINK_PROBE_H
#define HS_WORKER_LINK_PROBE_H

#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"
#include "proto/link_probe_wire.h"

struct err;

/* Measures o->n ways; `hello` is sent to the other side. `stop` (MAY be NULL) is checked between
 * rounds. An address that cannot be reached is a result, not an error. */
int probe_measure(struct net *n, const struct probe_order *o, const struct hello *hello,
		  bool (*stop)(void *ctx), void *ctx, struct probe_way *v_p, struct err *e);

/* The other side: handles one frame of a probing link. `left_p` is kept by the caller, 0 at
 * first. An error ends the link. */
int probe_answer(struct link *l, const struct frame *f, uint32_t *left_p, struct err *e);
/* All that have come; the first one is WELCOME where the link has a user. False: the link has
 * ended. */
bool probe_answer_all(struct link *l, uint32_t *left_p);

#endif
