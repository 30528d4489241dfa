/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_sum.h - numbers between the members of a group, for the sum of their gradients
 * (reduce.h) and for new values, by an exchange (exchange.h). */
#ifndef HS_ENGINE_EXCHANGE_SUM_H
#define HS_ENGINE_EXCHANGE_SUM_H

#include "engine/exchange.h"

/* Numbers to and from a member of the same group (SUM). A message has a number of its own within
 * the sum of an array of gradients; the receiver knows how many numbers it has. */
int exchange_send_sum(struct exchange *x, int place, int array, uint32_t number, const float *v,
		      size_t count, struct err *e);
int exchange_receive_sum(struct exchange *x, int place, int array, uint32_t number, float *v,
			 size_t count, struct err *e);
/* The same in float32 between devices. */
int exchange_send_sum_from(struct exchange *x, int place, int array, uint32_t number,
			   struct dev_ref from, size_t count, struct err *e);
int exchange_receive_sum_to(struct exchange *x, int place, int array, uint32_t number,
			    struct dev_ref to, size_t count, struct err *e);
/* The same with bytes, at most SUM_PART in a message. */
int exchange_send_bytes(struct exchange *x, int place, int array, uint32_t number, const void *p,
			size_t bytes, struct err *e);
int exchange_receive_bytes(struct exchange *x, int place, int array, uint32_t number, void *p,
			   size_t bytes, struct err *e);
/* 1: the message is here, receiving it will not wait; 0: not yet. */
int exchange_has_sum(struct exchange *x, int place, int array, uint32_t number, struct err *e);
/* The same by the network's own collective. Before the first round, where the plan wants it: */
int exchange_collective(struct exchange *x, struct err *e);
int exchange_send_all(struct exchange *x, const float *v, size_t count, struct err *e);
int exchange_has_all(struct exchange *x, struct err *e);
int exchange_receive_all(struct exchange *x, float *v, size_t count, struct err *e);

#endif
