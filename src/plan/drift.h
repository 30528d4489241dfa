/* SPDX-License-Identifier: Apache-2.0 */
/* drift.h - which workers and links of a running job are slower or faster than its plan expects,
 * from the times of its steps alone.
 *
 * A worker's level is its measured computing time over the one that the running plan predicts,
 * times what the profile was corrected by already. It counts when the last DRIFT_STEADY steps agree
 * about it; when they do not for DRIFT_LONG steps (a worker that is slow and fast in turns), the
 * mean of these does. A link's pace is the time that a byte is in flight; a link is slow when
 * its pace is a multiple of its best one, that costs a part of the step, and neither of its ends
 * computes slowly: a worker that got little of its processor is late with its messages too.
 *
 * Pure: no clock, no link; the caller counts steps. */
#ifndef HS_PLAN_DRIFT_H
#define HS_PLAN_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

struct err;

enum { DRIFT_STEADY = 8, DRIFT_LONG = 24, DRIFT_CALM = 100 /* steps */ };

struct drift_series {
	double v[DRIFT_LONG]; /* ring */
	uint64_t n;           /* values since the plan began */
	uint64_t unsteady;    /* values in a row with which the last steps do not agree */
	double level;         /* 0: not known yet */
};

enum drift_way { DRIFT_TO_NEXT, DRIFT_FROM_NEXT, DRIFT_WAYS };

/* What was said of a link. One that is slow and fast in turns is named more and more rarely. */
struct drift_told {
	int next; /* the other end of the link that it is about */
	bool slow;
	unsigned changes;
	uint64_t step; /* of the last one */
};

struct drift_link {
	int next; /* the other member; -1: none */
	struct drift_series pace, share;
	double best; /* its lowest pace, seconds a byte; 0: none yet */
	bool slow;
	struct drift_told told;
};

struct drift_worker {
	struct drift_series ratio;
	double factor; /* of the running plan: its level when that was made */
	double asked;  /* its level when a plan was last looked for */
	uint64_t idle; /* steps without work */
	struct drift_link link[DRIFT_WAYS];
};

struct drift {
	struct drift_worker *worker; /* [n], by member number */
	double *scratch;             /* [n] */
	int n;
	uint64_t step, moved; /* the last ones; moved 0: never */
	unsigned moves;       /* in a row, each less than DRIFT_CALM steps after the one before */
	unsigned retries;     /* of workers without work */
};

/* One member in one step. */
struct drift_sample {
	int member, next;          /* next: who gets its activations; -1 */
	double expected, measured; /* seconds of computing; expected 0: it has no work */
	/* seconds in which messages were in flight, and their bytes; 0: not known */
	double flight[DRIFT_WAYS], bytes[DRIFT_WAYS];
};

int drift_init(struct drift *d, int members, struct err *e);
void drift_release(struct drift *d); /* zeros are allowed */
/* A plan begins that was made for the levels of now (drift_level). */
void drift_plan(struct drift *d);
/* The work of a step was moved: before drift_plan(). */
void drift_moved(struct drift *d);
/* Nothing is known of this member any more: it is another process. */
void drift_forget(struct drift *d, int member);
/* After each step, which took `seconds`. */
void drift_step(struct drift *d, double seconds, const struct drift_sample *v, int n);
/* How many times as long as in the profile a member computes; 1 where nothing is known. */
double drift_level(const struct drift *d, int member);
/* How many times as long as at best a link needs for a byte; 1: it is not slow. */
double drift_link_level(const struct drift *d, int member, enum drift_way way);
/* The next link that became slow (1), or is as before (-1), since it was last returned; 0: none.
 * Each change once, and after it none of that link for twice as many steps each time. */
int drift_link_news(struct drift *d, int *member_p, enum drift_way *way_p);
/* Whether another plan should be looked for now; at most once for the same levels. After moves that
 * followed each other closely it is false for twice as long each time. */
bool drift_due(struct drift *d);
/* The member whose level differs most from that of the running plan; -1: none does. */
int drift_most(const struct drift *d);
/* The median of what the members that have work now need, over what is expected: above 1 where all
 * of them are slow, as on a machine that is busy with something else; at least 1. */
double drift_middle(struct drift *d);

#endif
