/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - the coordinator's side of its workers: starting them, sending to them, receiving
 * from them.
 *
 * Every worker is a member of the session's crew, by the number in which it was listed, and is
 * reached by one link; seat.h starts it (as a thread, a process, or on another machine). When
 * something fails, the error names the worker, its host, stage and step, and the cause: a worker
 * that only lost its neighbour is not blamed. Every wait ends: with an answer, with the loss of a
 * worker, when `stop` is set (session_until), or when no worker has advanced for as long as
 * patience.h allows. One thread uses it. */
#ifndef HS_COORD_SESSION_H
#define HS_COORD_SESSION_H

#include "coord/links.h"
#include "coord/seat.h"
#include "crew/crew.h"
#include "crew/patience.h"
#include "job/job.h"
#include "job/placement.h"
#include "net/frame.h"
#include "net/net.h"
#include "peers/reception.h"
#include "proto/hello.h"
#include "proto/protocol.h"

#include <signal.h>

struct err;
struct session;
struct snapshot;

struct session_options {
	const struct seat_spec *seat; /* by member number; borrowed until session_close() */
	int n;
	struct net *net;             /* becomes the session's; NULL: the loop transport */
	struct reception *reception; /* of invited workers; becomes the session's; or NULL */
	/* argv that starts a worker process, ended by NULL; borrowed until session_close() */
	char *const *program;
	double join_timeout; /* seconds */
	uint64_t run;        /* names the run for workers that keep its state; 0: there is none */
	uint32_t term;       /* of this coordinator */
	const volatile sig_atomic_t *stop; /* ends the wait; MAY be NULL */
};

/* Starts the workers and waits until all have said hello; messages name the missing ones while it
 * waits and when it gives up. */
int session_join(struct job *job, const struct session_options *o, struct session **s_p,
		 struct err *e);
/* Member member[k] gets row k of the placement. Before the first session_begin() the others are
 * dismissed; later they stay, without a stage. */
int session_assign(struct session *s, const struct placement *p, const int *member, struct err *e);
/* Sends each worker its PLAN and, unless it reads the file itself, its layers; waits until all are
 * READY. `place` is borrowed until session_close(). */
int session_begin(struct session *s, const struct placement *place, bool trace, struct err *e);
/* After a failure, or when the members are to change: everybody who is there forgets step and plan
 * (crew/membership.h), and who does not answer in time is lost. Then session_assign() and
 * session_begin() follow, with another plan. */
int session_regroup(struct session *s, struct err *e);
/* Whether a job that failed with `why` can go on like that: there was a plan, a worker is lost or
 * has lost another one, and that was no fault of the job. */
bool session_can_regroup(const struct session *s, const struct err *why);
/* The next member that was lost and has not been returned yet, and why; -1: no other. */
int session_loss(struct session *s, struct err *why_p);
/* Looks, without waiting, for workers that are gone: dials those with an address, starts those
 * again that this process started, takes those that have dialled in. */
void session_look_for_lost(struct session *s);
/* The next member that is there again and has not been returned yet; -1: none. It gets a part of
 * the job with session_regroup() and another plan. */
int session_back(struct session *s);
bool session_somebody_back(const struct session *s); /* whether there is one */
int session_there(const struct session *s);          /* how many members are there */
/* Whether two members reach this process but not each other (apart.h): no plan puts them beside
 * each other. */
bool session_apart(const struct session *s, int a, int b);
/* The next pair for which it is time to try again. */
bool session_pair_again(struct session *s, int *a_p, int *b_p);
/* Takes what comes for so long, and looks for those that are gone; returns early when one of them
 * is back, or another one is lost. Nobody may be at work. */
int session_idle(struct session *s, double seconds, struct err *e);
/* The next member that has asked to leave, or for whom session_ask_out() did, and has not been
 * returned yet; -1: none. */
int session_out(struct session *s);
/* ERR_USAGE: no member of this name is there. */
int session_ask_out(struct session *s, const char *id, struct err *e);
/* From now on session_has() is false for it; or, `leaves` false, true again. */
void session_set_leaving(struct session *s, int member, bool leaves);
/* It is to stay for now, and session_out() returns it again. */
void session_leave_later(struct session *s, int member);
/* Between two steps: it ends, with success. session_regroup() must follow. */
void session_let_go(struct session *s, int member);
/* Whether it is there, with a stage or without, and is to stay. */
bool session_has(const struct session *s, int member);
/* Sends the workers the end of the job (with `why`: its failure), waits for them to end.
 * NULL is allowed. */
void session_close(struct session *s, const struct err *why);

/* ---- members ---- */

int session_members(
	const struct session *s); /* all that joined, also those that were dismissed or lost */
const struct crew *session_crew(const struct session *s);
const struct job *session_job(const struct session *s);
const struct welcome *session_caps(const struct session *s); /* [members] */
const struct seat_spec *session_spec(const struct session *s, int member);
const char *session_name(const struct session *s, int member); /* for messages */
const char *session_model(const struct session *s);            /* the model's digest */
/* The measured links; a table that is set becomes the session's. */
const struct link_ends *session_ends(const struct session *s);
void session_set_links(struct session *s, struct link_table *t);
/* A worker has asked to leave (Ctrl-C there): its name, or NULL. */
const char *session_leaving(const struct session *s);

/* ---- clocks ---- */

/* What must be added to a worker's clock to get this process's. */
int64_t session_clock(const struct session *s, int member);
/* its largest error, nanoseconds */
int64_t session_clock_error(const struct session *s, int member);
/* STEPPED is the answer to STEP: when the worker got the one and sent the other (its clock), and
 * when that came `back` (ours). */
void session_stepped(struct session *s, int member, int64_t heard, int64_t said, int64_t back);

/* ---- messages ---- */

/* From now on every wait ends with ERR_CANCELLED when *stop is set: "interrupted while " + `doing`
 * (borrowed). NULL: waits are not interrupted, the caller checks between steps. */
void session_until(struct session *s, const volatile sig_atomic_t *stop, const char *doing);
/* Called about four times a second during waits, so that the user sees that time passes;
 * NULL: none. */
void session_set_tick(struct session *s, void (*tick)(void *ctx), void *ctx);
/* The time limits from now on. */
void session_set_patience(struct session *s, const struct patience *p);

/* Sends one frame to a worker; the payload is copied. */
int session_send(struct session *s, int member, enum frame_kind kind, uint64_t step,
		 uint32_t microbatch, const void *payload, size_t n, struct err *e);
/* To every member that holds a stage; before there are stages, to every member. */
int session_send_all(struct session *s, enum frame_kind kind, uint64_t step, const void *payload,
		     size_t n, struct err *e);
/* A microbatch to every worker, each getting what its stage needs. `round` is the step number of
 * the frames, `step` that of the training, `scale` that of the loss. */
int session_send_batch(struct session *s, const struct microbatch *mb, enum round kind,
		       uint64_t round, uint64_t step, uint32_t m, uint32_t microbatches,
		       float scale, const struct draw *draw, struct err *e);

enum session_event_kind {
	SESSION_NOTHING, /* nothing before the deadline */
	SESSION_MESSAGE, /* msg, f: release msg */
	SESSION_LOST,    /* its link is lost, or it gave up (ABORT): why */
	SESSION_BROKEN,  /* it has lost another worker, and waits for FORGET */
	SESSION_LEAVING, /* it has asked to leave */
};

struct session_event {
	enum session_event_kind kind;
	int member;
	struct net_msg msg;
	struct frame f;
	struct err why;
};

/* The next event of any member, in turn. Each loss and each request to leave is one event. */
void session_next(struct session *s, int64_t deadline, struct session_event *ev);
/* The next message of any member; losses and silence become the error of the job. */
int session_hear(struct session *s, struct session_event *ev, struct err *e);
/* The next message of one member; it must be of this kind and step. Release `msg` afterwards. */
int session_recv(struct session *s, int member, enum frame_kind kind, uint64_t step,
		 struct net_msg *msg_p, struct frame *f_p, struct err *e);

/* ---- what workers have kept of the run (worker/kept.h), before the first plan ---- */

/* The newest state that is offered and not older than `least` steps, with what the workers offer of
 * it, in a snapshot. 1: all of it is there; *record: the coordinator's record of it. 0: there
 * is none, or a part is missing (why in e, its code 0: nobody has any). */
int session_pull_kept(struct session *s, uint64_t least, struct snapshot *into, struct buf *record,
		      struct err *e);
/* The workers' state is now that of this record. */
int session_send_record(struct session *s, const void *record, size_t n, struct err *e);
uint64_t session_epoch(const struct session *s);

/* The job's values and optimizer states from the workers, into a snapshot (NULL: into the job's
 * arrays), and from these back to them (session_state.c). ERR_IO: the disk did not take them, and
 * nothing else has happened. */
int session_pull_state(struct session *s, uint64_t step, struct snapshot *into, struct err *e);
int session_push_state(struct session *s, uint64_t step, struct err *e);

#endif
