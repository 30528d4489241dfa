/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - activations and gradients between a worker's device and the workers of the previous
 * and the next stage; between the front and the end of a model whose embedding is also the head and
 * trained, the head's gradient and the embedding's value. Numbers between the members of a group:
 * exchange_sum.h.
 *
 * A message that arrives before its instruction waits in an inbox, so the result does not depend on
 * the speed of the workers. Only what an instruction of the round still needs gets there, in its
 * size; what is of a BATCH that has not come yet waits in front of its link. Where the device moves
 * data beside its kernels, the result of one instruction is sent, and the next input is uploaded,
 * while the next instruction computes. A worker that waits, for a message or for room to send one,
 * receives from all others meanwhile: so workers cannot wait for each other, whatever the size of
 * messages and of the links' windows. One thread uses it; once warm it allocates nothing. */
#ifndef HS_ENGINE_EXCHANGE_H
#define HS_ENGINE_EXCHANGE_H

#include "model/stage.h"
#include "sched/reduce.h"
#include "sched/sched.h"
#include "engine/orders.h"
#include "engine/worker_times.h"

struct err;

/* A message of a neighbour that is not needed yet. */
struct early {
	struct net_msg msg;
	struct frame f;
	bool used;
};

/* The links to the group of one stage. */
struct peer {
	int member; /* its number in the crew */
	struct link *link;
	struct early held; /* of a microbatch that is not known yet: its link is read no further */
};

struct peers {
	struct peer *peer; /* [n] */
	int n;
};

/* A tensor that is sent from the device while the next instruction computes. */
struct outgoing {
	bool used;
	const struct peer *to;
	enum flow_kind flow;
	struct frame f;
	unsigned char *p; /* net_buffer: FRAME_HEADER + bytes */
	uint64_t bytes;
	struct instr i;
	int64_t begin;
	int layers; /* layers queued on the device since */
};

/* A tensor that was uploaded while the device computed, and waits there for its instruction. */
struct ahead {
	bool used;
	struct instr i;
	struct dev_buf *buf[2]; /* used in turn: the previous one may still be read */
	int turn;
	unsigned char *routers; /* behind it (routers.h) */
	size_t routers_cap;
};

/* A tied embedding travels in parts of whole rows, numbered from 0 in the frame's
 * `microbatch`. */
enum { TIED_PART = 32 << 20, SUM_PART = 32 << 20 /* bytes of a message, at most */ };

struct exchange {
	/* The caller's; borrowed. */
	struct orders *orders;
	struct net *net;
	struct dev *dev;
	const struct plan_message *plan;
	struct worker_times *times;
	/* The members of the previous stage and of the next one, by place; and of the worker's own,
	 * where its own link is NULL. */
	struct peers before, behind, beside;
	/* The worker's group, where the network adds up (exchange_collective()). */
	struct net_group *group;
	/* Of the current round, set by exchange_round() and exchange_at(). */
	const struct instr_list *list;
	size_t at;
	/* Private. */
	struct early *early; /* [early_n] */
	size_t early_n, early_cap;
	struct sums_due sums;           /* of this round */
	uint32_t parts_due, parts_came; /* of a tied embedding, in this round */
	const struct peer *parts_from;
	struct outgoing out;
	struct ahead ahead;
	struct dev_buf *cast; /* a tensor in the wire's dtype, before it is sent */
};

/* Before a round: allocates room for every message of the round. `sums`: NULL: none. */
int exchange_round(struct exchange *x, const struct instr_list *list, const struct sums_due *sums,
		   struct err *e);
/* Behind it: sends what is not sent; no part of a sum may be left over. */
int exchange_round_end(struct exchange *x, struct err *e);
/* SEND_ACT, SEND_GRAD: moves `from` (N,C) from the device to the wire, through the wire's dtype.
 * Where transfers run beside kernels the second half, exchange_flush(), is called when the device
 * has other work, and before any wait for another worker. */
int exchange_send(struct exchange *x, const struct instr *i, struct slot *sl, struct dev_ref from,
		  struct err *e);
int exchange_flush(struct exchange *x, struct err *e); /* without a pending send it does nothing */
/* RECV_ACT, RECV_GRAD: waits for the tensor (N,C) and brings it to `to`. */
int exchange_receive(struct exchange *x, const struct instr *i, struct slot *sl, struct dev_ref to,
		     struct err *e);
/* SEND_TIED_GRAD: all of `from`, float32 (V,C), to the wire; SEND_TIED_VALUE: in the activation
 * dtype. */
int exchange_send_tied(struct exchange *x, const struct instr *i, struct dev_ref from,
		       struct err *e);
/* RECV_TIED_GRAD: adds what comes to the gradient of `p`; RECV_TIED_VALUE: makes it its value. */
int exchange_receive_tied(struct exchange *x, const struct instr *i, struct param *p,
			  struct dmem *scratch, struct err *e);
/* Whether the tensor that `i` needs is on the device already. */
bool exchange_is_ahead(const struct exchange *x, const struct instr *i);
/* Waits until the device has finished its queue; meanwhile the next input is uploaded, if
 * it arrives. */
int exchange_computed(struct exchange *x, struct err *e);
/* For stage.h; ctx is the exchange. */
int exchange_between_layers(void *ctx, bool last, struct err *e);
void exchange_release(struct exchange *x);

#endif
