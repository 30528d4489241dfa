/* SPDX-License-Identifier: Apache-2.0 */
/* worker_priv.h - what the files of a worker share: its state; taking orders (worker.c), tensors
 * between device, wire and neighbours (worker_wire.c). */
#ifndef HS_WORKER_WORKER_PRIV_H
#define HS_WORKER_WORKER_PRIV_H

#include "sched/sched.h"
#include "runtime/runtime.h"
#include "worker/worker.h"
#include "worker/worker_state.h"
#include "worker/worker_times.h"

enum { INBOX = 64, SMALL = 64 << 10 };

/* A message from a neighbour that is not needed yet. */
struct early {
	struct net_msg msg;
	struct frame f;
	bool used;
};

/* A tensor on its way from the device to the wire while the next instruction computes. */
struct outgoing {
	bool used;
	struct link *to;
	struct frame f;
	unsigned char *p; /* net_buffer: FRAME_HEADER + bytes */
	uint64_t bytes;
	struct instr i;
	int64_t begin;
	int layers; /* given to the device since */
};

/* A tensor that came while the device computed and waits on it for its instruction. */
struct ahead {
	bool used;
	struct instr i;
	struct dev_buf *buf[2]; /* by turns: what the last one went to may still be read */
	int turn;
};

struct worker {
	const struct worker_env *env;
	struct dev *dev;
	struct plan_message plan;
	struct link *prev, *next;
	struct stage *chunk;       /* [chunks] */
	struct slot *slot;         /* pool */
	int *slot_chunk, *slot_mb; /* whose; -1: free */
	size_t nslot, slot_cap, chunk_cap, mb_cap;
	struct batch_store *batch; /* [microbatch] of the round */
	bool *have;                /* [microbatch] */
	size_t nbatch, batch_cap, have_cap;
	struct early early[INBOX];
	struct net_msg step_msg; /* STEP that came while computing */
	struct frame step_frame;
	bool have_step;
	struct instr_list list;
	size_t at; /* the instruction under way */
	struct outgoing out;
	struct ahead ahead;
	struct dev_buf *cast; /* a tensor in the wire's dtype, before it goes */
	const struct optimizer *optim;
	struct norm_buffer norms;
	struct norm_entry *entry;
	size_t nentry, entry_cap;
	uint64_t job, step;            /* step: of the frames, counts rounds */
	uint64_t trained;              /* the last step of training, for messages */
	uint64_t parameters;           /* bytes on the device once all of the stage is there */
	bool train, finished, leaving; /* leaving: has asked the coordinator to finish */
	struct worker_times times;
	unsigned char *small; /* a frame's payload under way */
	struct worker_state state;
	float *logits; /* (V), of a sampling round */
	size_t logits_cap;
};

/* worker.c */
int64_t worker_patience(const struct worker *w); /* a deadline: as long as anything is waited for */
uint32_t worker_member(const struct worker *w);  /* its number in frames */
/* Takes one message of the coordinator while a round runs. 1: it was a STEP; 0: another, or none
 * until the deadline. */
int worker_listen(struct worker *w, int64_t deadline, struct err *e);
bool worker_has_batch(const struct worker *w, int m);

/* worker_wire.c */
/* the tensor that `i` needs is on the device already */
bool worker_is_ahead(const struct worker *w, const struct instr *i);
/* Moves (N,C) from the device to the wire, through the wire's dtype. Where transfers run beside
 * kernels the second half, worker_send_end(), comes when the device has something else to do;
 * anything that waits for others calls it before. */
int worker_send_begin(struct worker *w, struct link *to, enum frame_kind kind,
		      const struct instr *i, struct slot *sl, struct dev_ref from, int target_chunk,
		      struct err *e);
int worker_send_end(struct worker *w, struct err *e); /* nothing under way: nothing is done */
int worker_receive(struct worker *w, struct link *from, enum frame_kind kind, const struct instr *i,
		   struct slot *sl, struct dev_ref to, struct err *e);
/* Until the device has done what it was given; meanwhile the next tensor that is due is brought to
 * it, if it comes. */
int worker_computed(struct worker *w, struct err *e);
int worker_between_layers(void *ctx, bool last, struct err *e); /* for stage.h */

#endif
