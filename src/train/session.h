/* session.h - the coordinator's side of its workers: starting them, sending to them, hearing from them.
 *
 * Workers of this machine are threads over the `loop` transport; the rest of the coordinator does not know. A worker that fails says why
 * (ABORT); session_recv() turns that into the job's error. */
#ifndef HS_TRAIN_SESSION_H
#define HS_TRAIN_SESSION_H

#include "net/frame.h"
#include "net/net.h"
#include "train/job.h"

struct err;
struct session;

/* Starts one worker per stage, sends each its PLAN and waits until all are READY. `job` and `place` are borrowed until session_close(). */
int session_open(struct job *job, const struct placement *place, bool trace, struct session **s_p, struct err *e);
/* Tells the workers that the job is done (or, with `why`, that it is not), waits for them to end. NULL is allowed. */
void session_close(struct session *s, const char *why);

int session_workers(const struct session *s);
/* Sends one frame to a worker; the payload is copied. */
int session_send(struct session *s, int worker, enum frame_kind kind, uint64_t step, uint32_t microbatch, const void *payload,
		 size_t n, struct err *e);
int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload, size_t n, struct err *e);
/* A microbatch to every worker, each getting what its stage needs. `pass` is the step number of the frames, `step` that of the training. */
int session_send_batch(struct session *s, const struct microbatch *mb, bool train, uint64_t pass, uint64_t step, uint32_t m,
		       uint32_t microbatches, struct err *e);
/* The next message of a worker; it must be of this kind and step. Release `msg` afterwards. */
int session_recv(struct session *s, int worker, enum frame_kind kind, uint64_t step, struct net_msg *msg_p, struct frame *f_p,
		 struct err *e);

/* The job's values and optimizer states from the workers, and back to them. */
int session_gather(struct session *s, uint64_t step, struct err *e);
int session_scatter(struct session *s, uint64_t step, struct err *e);

#endif
