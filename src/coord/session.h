/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - the coordinator's side of its workers: starting them, sending to them, hearing from
 * them.
 *
 * Every worker is a seat that is reached by one link; how it came to be (thread, process, other
 * machine) is seat.h's business. When something fails, the error names the worker, its host, stage
 * and step, and the cause: a worker that only lost its neighbour is not blamed. */
#ifndef HS_COORD_SESSION_H
#define HS_COORD_SESSION_H

#include "net/frame.h"
#include "net/net.h"
#include "proto/hello.h"
#include "proto/protocol.h"
#include "job/job.h"
#include "job/placement.h"
#include "coord/seat.h"

#include <signal.h>

struct err;
struct session;

struct session_options {
	const struct seat_spec *seat; /* in the order of the pipeline; borrowed */
	int n;
	struct net *net;                   /* becomes the session's; NULL: the loop transport */
	char *const *program;              /* argv that starts a worker process, ended by NULL */
	double join_timeout;               /* seconds */
	const volatile sig_atomic_t *stop; /* leave while waiting; MAY be NULL */
};

/* Starts the workers and waits until all have said hello; those that are missing are named
 * meanwhile and at the end. */
int session_join(struct job *job, const struct session_options *o, struct session **s_p,
		 struct err *e);
const struct welcome *session_caps(const struct session *s); /* [workers] */
/* Stage i is the work of worker[i], for n stages; workers that are not named are told that they are
 * not needed. Before session_begin(), and not with workers that are threads of this process (their
 * seats must not move). */
int session_arrange(struct session *s, const int *worker, int n, struct err *e);
/* Sends each worker its PLAN and, unless it reads the file itself, its layers; waits until all are
 * READY. `place` is borrowed until session_close(). */
int session_begin(struct session *s, const struct placement *place, bool trace, struct err *e);
/* Tells the workers that the job is done (or, with `why`, that it is not), waits for them to end.
 * NULL is allowed. */
void session_close(struct session *s, const struct err *why);

int session_workers(const struct session *s);
/* A worker has asked to leave (Ctrl-C there): its name, or NULL. */
const char *session_leaving(const struct session *s);
/* What must be added to a worker's clock to get this process's. */
int64_t session_clock(const struct session *s, int worker);
/* how wrong that can be, nanoseconds */
int64_t session_clock_error(const struct session *s, int worker);
/* STEPPED is the answer to STEP: when the worker heard the one and said the other (its clock), and
 * when that came `back` (ours). */
void session_stepped(struct session *s, int worker, int64_t heard, int64_t said, int64_t back);
/* Sends one frame to a worker; the payload is copied. */
int session_send(struct session *s, int worker, enum frame_kind kind, uint64_t step,
		 uint32_t microbatch, const void *payload, size_t n, struct err *e);
int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload,
		     size_t n, struct err *e);
/* A microbatch to every worker, each getting what its stage needs. `round` is the step number of
 * the frames, `step` that of the training, `scale` that of the loss. */
int session_send_batch(struct session *s, const struct microbatch *mb, enum round kind,
		       uint64_t round, uint64_t step, uint32_t m, uint32_t microbatches,
		       float scale, struct err *e);
/* The next message of a worker; it must be of this kind and step. Release `msg` afterwards. */
int session_recv(struct session *s, int worker, enum frame_kind kind, uint64_t step,
		 struct net_msg *msg_p, struct frame *f_p, struct err *e);

/* The job's values and optimizer states from the workers, and back to them (session_state.c). */
int session_pull_state(struct session *s, uint64_t step, struct err *e);
int session_push_state(struct session *s, uint64_t step, struct err *e);

#endif
