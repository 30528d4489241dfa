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

const char *exchange_peer_name(const struct exchange *x, const struct peer *p);
/* What one neighbour has sent, and is due, to the inbox. */
int exchange_take_in(struct exchange *x, struct peer *from, struct err *e);
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

/* ---- exchange_due.c: what a round still needs, from whom, in which size ---- */
/* What an instruction sends or receives: the kind of its frame, the other end, and the message. */
enum frame_kind exchange_frame(const struct instr *i);
struct peer *exchange_peer(const struct exchange *x, const struct instr *i);
struct exchange_want exchange_want_of(const struct exchange *x, const struct instr *i);
bool exchange_fits(const struct frame *f, const struct exchange *x, const struct exchange_want *w);
/* Whether a kind goes to the stage behind; whether a peer is of that stage, or of the own one. */
bool exchange_goes_behind(enum frame_kind k);
bool exchange_is_behind(const struct exchange *x, const struct peer *p);
bool exchange_is_beside(const struct exchange *x, const struct peer *p);
uint32_t exchange_parts(const struct exchange *x);
int64_t exchange_part_rows(const struct exchange *x, uint32_t k);
enum dtype exchange_tied_dtype(const struct exchange *x, enum frame_kind k);
/* Of an activation or a gradient: numbers in a row; rows behind its tokens' (routers.h). */
int64_t exchange_width(const struct exchange *x, const struct instr *i);
int64_t exchange_rows_behind(const struct exchange *x, const struct instr *i, bool train);
int exchange_check_tensor(const struct exchange *x, const struct instr *i, const struct frame *f,
			  int64_t n, bool train, struct err *e);
/* 1: it is due, once, in its size; 0: that is not known yet, as its BATCH has not come. */
int exchange_check(const struct exchange *x, struct peer *from, const struct frame *f,
		   struct err *e);

#endif
