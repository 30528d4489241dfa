/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.h - the messages between coordinator and workers: each frame's payload as a struct, to
 * and from wire fields.
 *
 * A job as one worker sees it:
 *   coordinator: PLAN, [STATE ...], then one round after another:
 *     BATCH for each microbatch -> (neighbours: ACTIVATION, GRADIENT) -> LOSS per microbatch from
 *       the end of the model
 *     training rounds end with NORM from every worker, STEP to every worker (apply or skip),
 *       STEPPED from every worker
 *     where a tied embedding is trained, TIED_GRADIENT goes from the end to the front before NORM,
 *       TIED_VALUE from the front to the end before STEPPED
 *     a round for the reference of preferences (ROUND_REFER) is answered by REFERENCE instead
 *     sampling rounds have one microbatch of one sequence, answered by TOKEN instead of LOSS
 *   CLOCK, between rounds, is answered by CLOCK;
 *   SAVE is answered by STATE frames and SAVED; FINISH by the end of the worker; ABORT, from either
 *     side, by the end of both.
 *   FORGET, at any time, begins a new epoch (its frame has the number): the worker leaves the step
 *     where it is, closes the links to its neighbours, gives its stage back, and answers FORGOT. A
 *     new PLAN follows, or nothing: then the worker waits. A worker that cannot finish a step
 *     because it lost another worker says BROKEN (why, and which one) and waits too.
 * Everything is checked here, on reading: counts, ranges, lengths. docs/wire.md lists
 * the fields. */
#ifndef HS_PROTO_PROTOCOL_H
#define HS_PROTO_PROTOCOL_H

#include "data/batch.h"
#include "crew/crew.h"
#include "job/placement.h"
#include "model/stage.h"
#include "net/frame.h"
#include "net/net.h"
#include "net/wire.h"
#include "optim/optim.h"
#include "proto/work_wire.h"
#include "sched/sum.h"

struct err;
struct buf;

/* PLAN: everything that a worker must know, except the data. */
struct plan_message {
	struct crew crew; /* all members of the job, with its stages and chunks */
	int self;         /* the number of the member that gets this PLAN */
	/* chunk number v (chunk_number) holds the layers [first[v], first[v+1]) */
	int64_t first[CHUNKS_MOST + 1];
	char schedule[32];
	enum dtype wire;
	struct model_config cfg;
	struct stage_options opt;   /* first, last are set per chunk */
	char optimizer[OPTIM_NAME]; /* "" without training */
	struct optim_config optim;
	enum sum_order reduce_order; /* of gradients (sched/sum.h) */
	enum dtype reduce_dtype;     /* of their sums on the links of a group */
	char reducer[32];            /* how a group adds up (sched/reduce.def) */
	enum sharding sharding;      /* of the training state, by the members' state_share */
	unsigned offload;            /* bits of enum offload */
	uint64_t expert_cache;       /* bytes of slots for experts; 0: as worker_model.c says */
	bool trace;                  /* spans travel with STEPPED */
	bool offered;                /* WEIGHTS_OFFER follows: parameters come over the link */
	double progress;             /* seconds from one PROGRESS to the next; 0: none */
	char model[65];              /* the model's digest */
	/* who has which experts; `place` is NULL where none are dealt (model/deal.h) */
	struct expert_deal deal;
	uint8_t *dealt; /* what it points to: owned */
};

int plan_message_write(const struct plan_message *p, const char *config_json, struct buf *out,
		       struct err *e);
/* On success plan_message_release() gives the crew back. */
int plan_message_read(const void *payload, size_t n, struct plan_message *p_p, struct err *e);
void plan_message_release(struct plan_message *p);
double plan_host_bytes(const struct plan_message *p, double part); /* of what is offloaded */
/* The stage of the member that got the plan, and its place in the group. */
int plan_stage(const struct plan_message *p);
int plan_place(const struct plan_message *p);
bool plan_is_front(const struct plan_message *p);
bool plan_is_end(const struct plan_message *p);
/* Whether the member's layers have a parameter of this name in the model's files. */
bool plan_needs(const struct plan_message *p, const char *name);

/* A round: one run of a batch through all stages, to evaluate, to train, or to sample the token
 * that follows the last one; ROUND_REFER computes without the adapters. */
enum round { ROUND_EVAL, ROUND_TRAIN, ROUND_SAMPLE, ROUND_REFER };

/* How a sample round draws its token (generate.h, struct sampling). */
struct draw {
	double temperature, top_p; /* 0: the likeliest, and top_p says nothing */
	uint64_t seed;
};

/* BATCH. ids only for the worker with the front, labels only for the worker with the end. */
struct batch_head {
	enum round round;
	uint32_t microbatches;              /* in this round */
	uint32_t n, nseq, first_row, nrows; /* as in struct microbatch */
	bool pairs;                         /* only for the end */
	uint64_t step;                      /* of training, from 1: keys dropout and noise */
	float scale;                        /* of the loss's gradient (loss_scale.h) */
	struct draw draw;                   /* ROUND_SAMPLE; otherwise zeros */
};
/* Bytes of the payload at most, and writing it into `out`. `draw` is read in a sample round. */
size_t batch_size(const struct microbatch *mb, bool ids, bool labels);
int batch_write(const struct microbatch *mb, enum round round, uint64_t step, uint32_t microbatches,
		float scale, const struct draw *draw, bool ids, bool labels, void *out, size_t cap,
		size_t *n_p, struct err *e);
/* The arrays are copied into `mem` (grown, kept) because payloads are not aligned; pos follows from
 * start. `ids`, `labels`: numbers that a token has of each; 0: there are none. */
struct batch_store {
	struct batch_head head;
	int32_t *id, *pos, *label, *start, *row;
	struct pairs pairs; /* in `pair` */
	int32_t *mem;
	double *pair;
	size_t cap, pair_cap;
};
int batch_read(const void *payload, size_t n, size_t ids, size_t labels, struct batch_store *b,
	       struct err *e);

/* LOSS: of one microbatch. */
struct loss_message {
	double sum;
	uint64_t trained, hits; /* tokens; those that were the likeliest. Of preferences: rows */
	struct prefer_score score;
};

/* NORM: squared gradient norm of each layer that has trained parameters; -1 the front, INT_MAX
 * the end. */
struct norm_entry {
	int layer;
	double sqnorm;
};

struct step_message {
	bool apply; /* false: clear the gradients; the loss or the norm was not finite */
	struct optim_step s;
	double lr;
	/* the coordinator's record of the step (proto/record.h); when read: in the payload, or
	 * where the reader of the frame has copied it. None: nobody keeps the state */
	const void *record;
	size_t nrecord;
};

/* The messages that a worker sent to a neighbour or received from it in a round. The k-th time at
 * one end and the k-th at the other belong to one message: a link keeps the order. */
enum flow_kind {
	FLOW_TO_NEXT,
	FLOW_TO_PREV,
	FLOW_FROM_PREV,
	FLOW_FROM_NEXT,
	FLOW_TO_GROUP,
	FLOW_FROM_GROUP,
	FLOWS
};
enum { FLOW_TIMES = 256 };
struct flow {
	uint64_t bytes, messages;
	uint32_t times;         /* of the first messages, at most FLOW_TIMES */
	int64_t at[FLOW_TIMES]; /* by the worker's clock: handed to the link, or arrived */
};

/* Nanoseconds of this round: computing; moving messages between device and link; blocked because an
 * input had not arrived. */
struct stepped_message {
	int64_t busy, copy, wait;
	uint64_t mem_peak;  /* bytes on the device */
	uint64_t host_peak; /* and of what is offloaded, in the memory of its host */
	uint64_t expert_hits, expert_misses; /* of this round (tensor/expert_cache.h) */
	/* by the worker's clock: when STEP arrived (0: there was none), and when this
	 * was written */
	int64_t heard, said;
	struct flow flow[FLOWS];
};

/* One span of the worker's time, for the trace: until `ready` it waited. */
struct span {
	int64_t begin, ready, end; /* the worker's clock_now() */
	uint32_t microbatch;
	uint8_t kind, chunk; /* enum instr_kind */
};

/* PROGRESS: the state of a worker that has a plan. */
enum progress_state {
	PROGRESS_IDLE,    /* waits for the coordinator */
	PROGRESS_WORKING, /* has all its inputs */
	PROGRESS_WAITING, /* waits for another worker */
};
struct progress {
	uint32_t state;       /* enum progress_state */
	uint32_t instruction; /* of the round, from 0 */
	uint64_t step;        /* of the frames */
	uint64_t bytes;       /* sent and received since PLAN */
};
int progress_write(const struct progress *m, void *out, size_t cap, size_t *n_p, struct err *e);
int progress_read(const void *p, size_t n, struct progress *m_p, struct err *e);

/* STATE: a part of a parameter's value (float32) or of an optimizer state (as its row of optim.def
 * says), from number `first` on. The receiver knows the size of a number. */
struct state_message {
	char name[256], what[32]; /* "value", "exp_avg", ... */
	uint64_t first, bytes;
	const void *data; /* in the payload, not aligned */
};

/* ABORT: the reason and its kind (enum err_code), so that a lost neighbour can be distinguished
 * from a cause. */
int abort_write(const struct err *why, void *out, size_t cap, size_t *n_p);
void abort_read(const void *p, size_t n, struct err *why_p);
/* BROKEN: as ABORT; `lost`: the member whose link was lost or could not be made, -1: not known. */
int broken_write(const struct err *why, int lost, void *out, size_t cap, size_t *n_p);
void broken_read(const void *p, size_t n, struct err *why_p, int *lost_p);

int loss_write(const struct loss_message *m, void *out, size_t cap, size_t *n_p, struct err *e);
int loss_read(const void *p, size_t n, struct loss_message *m_p, struct err *e);
int norm_write(const struct norm_entry *v, size_t count, void *out, size_t cap, size_t *n_p,
	       struct err *e);
int norm_read(const void *p, size_t n, struct norm_entry *v, size_t most, size_t *count_p,
	      struct err *e);
int step_write(const struct step_message *m, void *out, size_t cap, size_t *n_p, struct err *e);
int step_read(const void *p, size_t n, struct step_message *m_p, struct err *e);
size_t stepped_size(const struct stepped_message *m, size_t spans);
int stepped_write(const struct stepped_message *m, const struct span *v, size_t count, void *out,
		  size_t cap, size_t *n_p, struct err *e);
int stepped_read(const void *p, size_t n, struct stepped_message *m_p, struct span *v, size_t most,
		 size_t *count_p, struct err *e);
/* CLOCK, the answer: the worker's clock when the question arrived and when the answer
 * was written. */
struct clock_message {
	int64_t heard, said;
};
/* TOKEN, of one microbatch of a sampling round. */
enum { TOKEN_NONE = INT32_MAX }; /* the scores are not finite */
int token_write(int32_t id, void *out, size_t cap, size_t *n_p, struct err *e);
int token_read(const void *p, size_t n, int32_t *id_p, struct err *e);
int clock_write(const struct clock_message *m, void *out, size_t cap, size_t *n_p, struct err *e);
int clock_read(const void *p, size_t n, struct clock_message *m_p, struct err *e);
int state_write(const struct state_message *m, void *out, size_t cap, size_t *n_p, struct err *e);
int state_read(const void *p, size_t n, struct state_message *m_p, struct err *e);

#endif
