/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_parts.h - what the files of the exchange share; other code includes exchange.h. */
#ifndef HS_ENGINE_EXCHANGE_PARTS_H
#define HS_ENGINE_EXCHANGE_PARTS_H

#include "engine/exchange.h"

/* A message that is waited for. */
struct exchange_want {
	enum frame_kind kind;
	uint32_t microbatch;
	uint16_t chunk;
	struct peer *from;
};

/* The peer's name, for messages. */
const char *exchange_peer_name(const struct exchange *x, const struct peer *p);
/* Moves everything that one neighbour has sent, and that is due, to the inbox. */
int exchange_take_in(struct exchange *x, struct peer *from, struct err *e);
/* Whether it is in the inbox. */
bool exchange_has_early(const struct exchange *x, const struct exchange_want *w);
/* Waits for it; reads the coordinator's messages meanwhile, so that an ABORT is noticed. */
int exchange_wait_for(struct exchange *x, const struct exchange_want *w, struct net_msg *msg_p,
		      struct frame *f_p, struct err *e);
/* Hands `n` bytes to a link, which releases them; meanwhile takes messages in. */
int exchange_hand_over(struct exchange *x, const struct peer *to, unsigned char *p, size_t n,
		       enum flow_kind flow, struct err *e);
/* Waits for `first` (MAY be NULL), or until net_wake(), and receives messages from all peers. 0:
 * nothing came until the deadline. */
int exchange_listen(struct exchange *x, const struct net_poll *first, int64_t deadline,
		    struct err *e);

#endif
