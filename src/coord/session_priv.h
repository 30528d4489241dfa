/* SPDX-License-Identifier: Apache-2.0 */
/* session_priv.h - what session.c and session_state.c share. */
#ifndef HS_COORD_SESSION_PRIV_H
#define HS_COORD_SESSION_PRIV_H

#include "base/buf.h"
#include "base/err.h"
#include "coord/clocks.h"
#include "coord/session.h"
#include "coord/weights_out.h"

struct worker_seat {
	struct seat seat;
	struct link *link; /* the coordinator's end */
	char name[600];    /* "worker 'b' (boxb, 10.0.0.2:9999, stage 1)" */
	struct clock_pair clock;
	int64_t asked; /* when STEP was sent to it */
	bool greeted, welcome;
	bool aborted, lost;
	struct err why; /* of aborted or lost */
	struct weights_out *weights;
	bool ready;
};

struct session {
	struct job *job;
	const struct session_options *o; /* during session_join */
	const struct placement *place;
	struct net *net;
	struct worker_seat *seat;
	struct welcome *caps;
	int n;
	uint64_t id, step; /* step: of the training, for messages */
	const char *leaving;
	char model[65];
	struct weight_source source;
	struct buf out;
	struct link_table *links; /* measured, or remembered; NULL: nothing is known */
};

/* The next message of a worker that is news to the caller (not ABORT, not a wish to leave). */
int session_next(struct session *s, int worker, struct net_msg *msg_p, struct frame *f_p,
		 struct err *e);

#endif
