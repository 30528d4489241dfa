/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the coordinator's record of a step: what a coordinator that is started anew must know,
 * beside parameters and optimizer states, to go on from that step without a checkpoint.
 *
 * It goes out with STEP, so every worker has it for the state that it then has, and in RECORD after
 * a state was sent to the workers. A worker reads the three numbers that name the state and keeps
 * the rest as bytes (worker/kept.h). */
#ifndef HS_PROTO_RECORD_H
#define HS_PROTO_RECORD_H

#include "file/hash.h"
#include "job/checkpoint.h"

struct err;

/* Two states with the same name are the same numbers, whoever holds which part of them. */
struct state_name {
	uint64_t run;  /* the run's folder has it (job/run_folder.h) */
	uint64_t step; /* steps done */
	/* the epoch in which it was computed or read: steps may be computed again */
	uint64_t origin;
};

/* What metrics.jsonl says of a step. */
struct record_line {
	double loss, learning_rate, grad_norm, accuracy, seconds, loss_scale;
	uint64_t tokens, trained;
	bool skipped, rewarded;
	double chosen, rejected, margin, right; /* rewarded */
};

enum { RECORD_FIELDS = 512 /* bytes at most, without passes */ };

struct run_record {
	uint64_t run;
	struct train_state st; /* its `timed` is not in it */
	enum dtype act;        /* of the job */
	char job[HASH_HEX];    /* checkpoint_identity() */
	/* what follows the step may not have been done: its line, evaluation, saving */
	bool owed;
	struct record_line line;
	const int *pass; /* [npass] of the job; when read: record_pass() */
	uint32_t npass;
	const unsigned char *passes; /* when read: in the payload */
};

int record_write(const struct run_record *r, void *out, size_t cap, size_t *n_p, struct err *e);
/* Everything is checked that can be checked without the job. */
int record_read(const void *p, size_t n, struct run_record *r_p, struct err *e);
int record_pass(const struct run_record *r, uint32_t i);
int record_name(const void *p, size_t n, struct state_name *name_p, struct err *e);

#endif
