/* SPDX-License-Identifier: Apache-2.0 */
/* orders.h - the link between a worker and its coordinator: the worker's answers, and the messages
 * that arrive while a round runs (BATCH, STEP, ABORT), kept until the round needs them.
 *
 * One thread uses it. */
#ifndef HS_ENGINE_ORDERS_H
#define HS_ENGINE_ORDERS_H

#include "base/buf.h"
#include "net/net.h"
#include "proto/protocol.h"
#include "proto/beat.h"

#include <signal.h>

struct err;

enum { ORDERS_PAYLOAD = 64 << 10 /* bytes of the largest payload that goes through orders_out */ };

struct orders {
	struct link *link; /* borrowed, up */
	uint64_t job;      /* as the coordinator numbered it */
	uint64_t epoch;    /* of the plan (net/frame.h) */
	/* Set when FORGET has come: its epoch. 0: it has not. Borrowed, MAY be NULL */
	uint64_t *forget;
	uint64_t step;                       /* of the frames: counts rounds */
	uint32_t member;                     /* this worker in frames; FRAME_NOBODY before PLAN */
	size_t ids, labels;                  /* numbers of each that its BATCH has for a token */
	const struct prefer_options *prefer; /* of PLAN; borrowed, NULL before */
	/* Seconds that the coordinator or a neighbour may take to answer within a round; 0:
	 * no limit. */
	double timeout;
	const volatile sig_atomic_t *stop; /* set by a signal handler: asks to leave. MAY be NULL */
	struct beat *beat;                 /* is told the state of the worker; borrowed */
	void (*visitors)(void *ctx, bool refuse); /* worker.h; refuse: false. MAY be NULL */
	void *ctx;
	bool asked_to_leave;
	struct batch_store *batch; /* [microbatch] of the round */
	bool *have;                /* [microbatch] */
	size_t batch_cap, have_cap;
	struct net_msg step_msg; /* STEP that came while computing */
	struct frame step_frame;
	bool have_step;
	unsigned char *payload; /* (ORDERS_PAYLOAD) of an answer that is being written */
	struct buf record;      /* that came with the last STEP */
};

/* The fields above `asked_to_leave` are the caller's. */
int orders_init(struct orders *o, struct err *e);
void orders_release(struct orders *o);

/* The deadline of any wait that begins now. */
int64_t orders_patience(const struct orders *o);
int orders_say(struct orders *o, enum frame_kind kind, uint32_t microbatch, const void *payload,
	       size_t n, struct err *e);
/* A STATE frame; its payload is written into memory of the link. */
int orders_state(const struct orders *o, struct net *net, const struct state_message *s,
		 struct err *e);
/* Asks the coordinator, once, to save and finish everywhere, when `stop` is set. */
int orders_ask_to_leave(struct orders *o, struct err *e);

/* Frames must have the job of HELLO and the epoch of the plan; ABORT and FINISH may have none, and
 * FORGET has a later one. */
int orders_check_job(const struct orders *o, const struct frame *f, struct err *e);
/* The error that an ABORT means: ERR_CANCELLED with the coordinator's reason. */
int orders_aborted(const struct frame *f, struct err *e);
/* Notes FORGET; ERR_CANCELLED, so that whoever waits gives up. */
int orders_forget(uint64_t *forget, const struct frame *f, struct err *e);
/* A new plan may follow: no microbatch, no STEP. */
void orders_reset(struct orders *o, uint64_t epoch);
int orders_take_batch(struct orders *o, const struct frame *f, struct err *e);
/* net_poll() for a round: visitors() is called when it takes long. */
int orders_poll(struct orders *o, struct net *net, struct net_poll *p, size_t n, int64_t deadline);
/* Takes one message while a round runs. 1: it was a STEP; 0: another, or none until
 * the deadline. */
int orders_listen(struct orders *o, int64_t deadline, struct err *e);
bool orders_has_batch(const struct orders *o, int m);
/* Waits for STEP, whose record is in o->record from then on; *arrived_p: when it came. */
int orders_wait_step(struct orders *o, struct step_message *m_p, int64_t *arrived_p, struct err *e);
/* Clears the round's microbatches; returns the number of their tokens. */
uint64_t orders_end_round(struct orders *o, uint32_t microbatches);

#endif
