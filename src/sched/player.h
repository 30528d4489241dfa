/* SPDX-License-Identifier: Apache-2.0 */
/* player.h - what the parts of the player share; for play*.c alone. play.c has the rules and
 * advances the workers, play_link.c carries messages, player.c has memory and lists. */
#ifndef HS_SCHED_PLAYER_H
#define HS_SCHED_PLAYER_H

#include "sched/event.h"
#include "sched/message.h"

struct worker {
	size_t pc;
	double now;     /* free from this time on */
	double since;   /* blocked since this time (when `on` is set) */
	long on;        /* message it is blocked on, or NOTHING */
	long sends;     /* message of its SEND */
	bool at_step;   /* blocked at STEP */
	bool at_sum;    /* at REDUCE */
	bool at_gather; /* at GATHER */
	bool ready;     /* in the list of those that may go on */
	int here;       /* chunk whose values are gathered, or NOTHING */
	int asked;      /* twice the chunk, and the part, of the last SEND_VALUES, or NOTHING */
	int sums;       /* of which REDUCE has ended */
	bool stepped;   /* STEP has ended */
	bool delivered; /* event mode: the instruction's time has passed, only its effect is left */
	int kept;
	double reduced; /* end of NORM; NaN before */
};

struct route {
	double free_s;      /* flow mode: the wire is free from this time on */
	double rate;        /* flow mode: constant; event mode: of the current transmission */
	long head, tail;    /* event mode: queue of messages; head is being transmitted */
	double left, stamp; /* event mode: bytes left at time `stamp` */
	unsigned version;
};

/* The sum of a part of a chunk's gradients over a group. */
struct sum {
	double handed, reached; /* the last member at SEND_SUMS; at REDUCE */
	int sent, there;        /* members that have sent theirs; that are at REDUCE */
	double from, end;       /* its transfers begin, or the last one was waited for; NaN: open */
};

/* The values of a chunk, gathered over a group. */
struct gathering {
	double handed;    /* the last member at SEND_VALUES */
	int there;        /* members that have sent theirs */
	double from, end; /* NaN: not all have */
};

/* What the lists of sched_play() and a map were made for. */
struct shape {
	int stages, chunks, microbatches, parts;
	bool tied, groups, shares, gather, alone;
	int *v; /* members, then shares */
	size_t cap;
};

struct player {
	/* lists of the last sched_play(), built again only when the schedule or shape changes */
	struct instr_list *list;
	size_t list_cap;
	const struct sched *sched; /* NULL: the lists are of another shape */
	struct shape shape;
	struct play_map map;
	struct play_room room;

	struct worker *worker;
	struct play_worker *report;
	/* [chunks * members] the microbatch that is due; with one member: how many were computed */
	int *next_f, *next_b;
	int *part;                /* [chunks * members] of the backward that is due */
	unsigned char *sums;      /* [chunks * parts * members] of a group: enum below */
	struct sum *sum;          /* [stages * chunks * parts] */
	double *sum_free;         /* [stages] the last sum or gather ended */
	struct gathering *gather; /* [stages * chunks * 2] before forwards, before backwards */
	double *sent, *arrive;    /* [messages], NaN: not yet */
	bool *taken;
	long *queue_next;
	struct route *route;
	int *wire_active, *wire_first, *wire_route;
	struct events queue; /* of members, and behind them routes */
	int *ready;
	struct play_span *span;
	size_t gather_cap, worker_cap, report_cap, f_cap, b_cap, part_cap, sums_cap, sum_cap,
		free_cap, sent_cap, arrive_cap, taken_cap, queue_cap, route_cap, active_cap,
		first_cap, wroute_cap, ready_cap, span_cap;
	size_t ready_n, spans;

	/* the current play */
	const struct play *in;
	const struct instr_list *now_list;
	bool want_spans, events, nomem;
	long messages, taken_n, sent_n;
	int reduced_n;
	double reduced_s;
};

enum { SUM_OPEN, SUM_SENT, SUM_DONE };

/* ---- player.c ---- */

/* Makes the map; forgets the lists when they are of another shape. */
int player_shape(struct player *pl, const struct play *p, struct err *e);
/* The lists of all members, unless they are there. */
int player_lists(struct player *pl, const struct sched *s, const struct play *p, struct err *e);
/* Memory for a play of this shape, as at its begin. */
int player_reserve(struct player *pl, const struct play *p, struct err *e);
void player_span(struct player *pl, int who, const struct instr *in, double begin, double end);
/* ERR_INTERNAL, naming stage, place and instruction. */
int player_refuse(const struct player *pl, int who, const struct instr *in, const char *why,
		  struct err *e);
static inline void player_ready(struct player *pl, int who)
{
	if (!pl->worker[who].ready)
		pl->ready[pl->ready_n++] = who;
	pl->worker[who].ready = true;
}

/* ---- play_link.c ---- */

/* Assigns routes to wires; event mode when several routes share a wire. */
int play_link_lay(struct player *pl, const struct play *p, struct err *e);
/* A SEND whose time has passed. */
int play_link_transmit(struct player *pl, int who, const struct instr *in, struct err *e);
/* Event mode: the transmission of a route has ended. */
void play_link_end(struct player *pl, int route, double now);

#endif
