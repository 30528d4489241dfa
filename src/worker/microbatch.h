/* SPDX-License-Identifier: Apache-2.0 */
/* microbatch.h - the microbatches of a worker's round: their data, their slots, and the way of a
 * result from chunk to chunk of the same worker. Where activations are offloaded (pass/park.h),
 * nothing of a microbatch stays on the device between the passes of a chunk. */
#ifndef HS_WORKER_MICROBATCH_H
#define HS_WORKER_MICROBATCH_H

#include "sched/sched.h"

struct err;
struct slot;
struct worker;

int worker_need_batch(struct worker *w, int m, struct err *e); /* waits for the BATCH of m */
/* ROUTE to RECV_ROW_GRADS (pass/away.h). */
int worker_experts(struct worker *w, const struct instr *i, struct err *e);
/* The slot of (chunk, microbatch), begun when it is new, with an input that was offloaded. */
int worker_open_slot(struct worker *w, const struct instr *i, struct slot **sl_p, struct err *e);
/* BACKWARD, or a part of it; the last one's gradients go to the memory of the host where the
 * optimizer is there. */
int worker_backward(struct worker *w, const struct instr *i, struct slot *sl, struct err *e);
/* Before a backward pass: of a chunk that kept nothing the forward pass once more. */
int worker_repeat_forward(struct worker *w, const struct instr *i, struct slot *sl, struct err *e);
/* The offloaded input of the next pass comes to the device while this one computes. Pointers to
 * slots are invalid afterwards. */
int worker_fetch_next(struct worker *w, struct err *e);
/* With several chunks on a single worker: a result to the next slot, or to the host. */
int worker_pass_on(struct worker *w, const struct instr *i, bool forward, struct err *e);
/* Before a pass of a chunk behind another one of the same worker: what that has for routers. */
void worker_take_routers(struct worker *w, const struct instr *i, struct slot *sl, bool forward);
/* A result has been sent: of its microbatch the input is enough, or nothing. */
int worker_keep_input(struct worker *w, const struct instr *i, struct slot *sl, struct err *e);
/* The answers' log-probabilities without the adapters. */
int worker_send_reference(struct worker *w, const struct instr *i, struct slot *sl, struct err *e);
/* Of a sampling round: the token after the last one. */
int worker_send_token(struct worker *w, const struct instr *i, struct slot *sl, struct err *e);
/* The gradient or value of a tied embedding, between the front and the end of the model. */
int worker_exchange_tied(struct worker *w, const struct instr *i, struct err *e);

#endif
