/* SPDX-License-Identifier: Apache-2.0 */
/* session_priv.h - the state of a session, for session*.c only. */
#ifndef HS_COORD_SESSION_PRIV_H
#define HS_COORD_SESSION_PRIV_H

#include "base/buf.h"
#include "base/err.h"
#include "crew/clocks.h"
#include "coord/session.h"
#include "coord/weights_out.h"
#include "crew/apart.h"
#include "crew/membership.h"

struct snapshot;

enum seat_state {
	SEAT_DIALLED,   /* its link is being connected */
	SEAT_GREETED,   /* HELLO was sent */
	SEAT_JOINED,    /* it has answered */
	SEAT_DISMISSED, /* it is not needed, and has ended */
	SEAT_ABORTED,   /* it gave up and sent the reason */
	SEAT_LOST,      /* its link is lost */
};

struct session_seat {
	enum seat_state state;
	struct seat seat;
	struct link *link; /* the coordinator's end */
	char name[600];    /* "worker 'b' (boxb, 10.0.0.2:9999, stage 1)" */
	struct err why;    /* of aborted or lost */
	bool told;         /* the loss was an event already */
	bool named;        /* and session_loss() has returned it */
	bool buried;       /* session_regroup() has closed it: its loss is no news any more */
	bool out;          /* it is to leave, and session_out() has not returned it */
	bool leaves;       /* it is to leave: no plan has it */
	bool back;         /* it is there again, and session_back() has not returned it */
	bool unwanted;     /* it came back and cannot take part: why was said */
	int64_t again;     /* of one that is gone: when it is tried again, or how long */
	bool answered;     /* HELLO */
	char tried[160];   /* why it did not come back, the last time; said: the user knows */
	bool said;
	unsigned starts; /* how often it was started again */
	bool broken;     /* it cannot finish the step, because of another one: why */
	int lost;        /* and the number of the other one, plus one; 0: not known */
	bool made;       /* its links had been made before */
	bool saved;      /* it has sent all of its state */
	bool loads;      /* it had a plan and was not ready when the members were to change */
	/* Of one that came back: whether no plan had it since; when the members changed for it, and
	 * its first step since; 0: not yet. And until when it is not taken back again */
	bool fresh;
	int64_t came, worked, hold;
	struct clock_pair clock;
	int64_t asked;            /* when STEP was sent to it */
	struct progress progress; /* its last state */
	int64_t advanced;         /* when it last advanced */
	int64_t heard;            /* when its last message came, but PROGRESS; of any epoch */
	struct weights_out *weights;
};

struct session {
	struct job *job;
	const struct session_options *o; /* during session_join */
	const struct placement *place;   /* from session_begin on */
	struct net *net;
	struct reception *reception;            /* NULL: no invited workers */
	struct reception_member *relay_members; /* [n] */
	struct crew crew;
	struct apart apart; /* that do not reach each other */
	struct membership members;
	struct membership_seat *state; /* [n] */
	bool began;                    /* the first plan was made, and is on its way */
	char *const *program;      /* argv of a worker process, for those that are started again */
	struct session_seat *seat; /* [n], by member number */
	struct welcome *caps;      /* [n] */
	int n, turn;               /* turn: whose link is looked at first by session_next() */
	uint64_t id, epoch;        /* epoch: of the members */
	uint64_t run;              /* 0: none */
	uint32_t term;
	uint64_t step; /* of the training, for messages */
	const char *leaving;
	char model[65];
	struct weight_source source;
	struct buf out;
	struct link_ends ends;
	struct link_table *links; /* measured or cached; NULL: none */
	struct patience patience;
	const volatile sig_atomic_t *stop;
	const char *doing;
	int64_t look_at; /* when `stop` is looked at again */
	bool idle;       /* nobody is at work: whoever comes is welcome */
	void (*tick)(void *ctx);
	void *tick_ctx;
};

/* Whether messages can still come from a member. */
bool session_is_live(const struct session *s, int member);
/* The error of the job after a member has failed. `cause` (MAY be NULL): the error in this process,
 * used when no worker caused it. */
int session_blame(struct session *s, const struct err *cause, struct err *e);
/* Those that are lost and had no work: nobody has to forget them before they are looked for. */
void session_bury_idle(struct session *s);
void session_mark_lost(struct session *s, int member, const struct err *why);
/* A frame of the current epoch that has only a kind, within so many seconds. */
int session_order(struct session *s, int member, enum frame_kind kind, double seconds,
		  struct err *e);
/* A frame whose kind, step, microbatch and payload are given; the payload is copied. */
int session_send_frame(struct session *s, int member, const struct frame *f, struct err *e);
void session_name_seat(struct session *s, int member);
/* A STATE frame of a member into the job's arrays or a snapshot. `kept` (MAY be NULL): of a state
 * before the first plan, from whoever has it, of whom so many more bytes are heard; what came
 * before is not taken again. */
int session_take_state(struct session *s, int member, const struct frame *f, struct snapshot *into,
		       uint64_t *kept, struct err *e);
void session_state_reset(struct session *s);
/* Whether all of it has come; otherwise what is missing. */
int session_state_whole(const struct session *s, struct err *e);
/* HELLO to a worker whose link is up; 1: its WELCOME has come, 0: not yet. */
int session_greet(struct session *s, int member, struct err *e);
int session_take_welcome(struct session *s, int member, struct err *e);
/* An error when the user has interrupted; also the tick. */
int session_interrupted(const struct session *s, struct err *e);

#endif
