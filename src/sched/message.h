/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - the messages of a play (play.h) by number: which one an instruction sends or
 * receives, and where it goes. Pure.
 *
 * First come the activations, then the gradients, each numbered as its receiver names it: (chunk,
 * stage, microbatch); then the two of a tied embedding, its gradient and its value. */
#ifndef HS_SCHED_MESSAGE_H
#define HS_SCHED_MESSAGE_H

#include "sched/play.h"

enum { NOTHING = -1 };

long message_count(const struct play *p);
/* The message of an instruction; NOTHING when no such message exists. */
long message_of(const struct play *p, int stage, const struct instr *in);
/* Of the kinds that sched_add_tied() adds: their messages have no route. */
bool message_is_tied(enum instr_kind k);
/* Not for those of a tied embedding. */
bool message_is_grad(const struct play *p, long id);
int message_to(const struct play *p, long id); /* a stage */
/* Index into play.route; not for those of a tied embedding. */
int message_route(const struct play *p, long id);

#endif
