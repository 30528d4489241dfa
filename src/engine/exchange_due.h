/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_due.h - which messages of other workers a round still needs, from whom and in which
 * size; anything else is refused before it is kept. */
#ifndef HS_ENGINE_EXCHANGE_DUE_H
#define HS_ENGINE_EXCHANGE_DUE_H

#include "engine/exchange_parts.h"

/* What an instruction sends or receives: the kind of its frame, the other end, and the message. */
enum frame_kind exchange_frame(const struct instr *i);
struct peer *exchange_peer(const struct exchange *x, const struct instr *i);
struct exchange_want exchange_want_of(const struct exchange *x, const struct instr *i);
bool exchange_fits(const struct frame *f, const struct exchange *x, const struct exchange_want *w);
/* Whether a kind goes to the stage behind; whether a peer is of that stage, or of the own one. */
bool exchange_goes_behind(enum frame_kind k);
bool exchange_is_behind(const struct exchange *x, const struct peer *p);
bool exchange_is_beside(const struct exchange *x, const struct peer *p);
/* Parts of a tied embedding: how many, and the rows of one. */
uint32_t exchange_parts(const struct exchange *x);
int64_t exchange_part_rows(const struct exchange *x, uint32_t k);
enum dtype exchange_tied_dtype(const struct exchange *x, enum frame_kind k);
/* Of an activation or a gradient: numbers in a row; the rows behind those of its tokens
 * (routers.h). */
int64_t exchange_width(const struct exchange *x, const struct instr *i);
int64_t exchange_rows_behind(const struct exchange *x, const struct instr *i, bool train);
/* Whether it is the tensor of n tokens that the instruction waits for. */
int exchange_check_tensor(const struct exchange *x, const struct instr *i, const struct frame *f,
			  int64_t n, bool train, struct err *e);
/* 1: the message is due, once, and has its size; 0: that is not known yet, as its BATCH has not
 * come. An error that names who sent it: it is not. */
int exchange_check(const struct exchange *x, struct peer *from, const struct frame *f,
		   struct err *e);

#endif
