/* SPDX-License-Identifier: Apache-2.0 */
/* membership.h - how the crew of a job changes: who is there, who has to forget an old plan, who
 * has got a new one. Joining, leaving, losing and moving are one and the same way through it:
 *
 *   runs -> gathers    FORGET to everybody who is there, with a new epoch
 *        -> plans      when all of them have answered, or are gone
 *        -> prepares   PLAN to those that the new plan uses
 *        -> runs       when all of these are ready
 *
 * A loss on the way begins it again with the next epoch; so does whoever comes. Answers of an older
 * epoch count for nothing. A new job begins in `plans`: nobody has anything to forget.
 *
 * Pure: events go in, actions come out (membership_next); no clock, no link, no memory of its own.
 * tests/test_crew_membership.c drives it through every order of messages. */
#ifndef HS_CREW_MEMBERSHIP_H
#define HS_CREW_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

enum crew_phase { CREW_PLANS, CREW_PREPARES, CREW_RUNS, CREW_GATHERS };

enum member_state {
	MEMBER_GONE,    /* not there: not yet, lost, or left */
	MEMBER_FREE,    /* there, without a plan */
	MEMBER_ASKED,   /* FORGET is on its way to it */
	MEMBER_PLANNED, /* PLAN is on its way to it */
	MEMBER_READY,   /* it has its layers */
};

/* The caller's, one for each member; zeros: it is gone. */
struct membership_seat {
	enum member_state state;
	bool due; /* an action for it is still to be taken by membership_next() */
};

struct membership {
	enum crew_phase phase;
	uint32_t epoch;               /* counts changes; the first plan has 0 */
	struct membership_seat *seat; /* [n]; borrowed */
	int n;
};

enum membership_act {
	MEMBERSHIP_NOTHING,
	MEMBERSHIP_FORGET, /* send FORGET of the current epoch to `member` */
	MEMBERSHIP_PLAN,   /* send it its PLAN */
};

struct membership_action {
	enum membership_act act;
	int member;
};

void membership_init(struct membership *m, struct membership_seat *seat, int n);

/* Somebody is there (again). Before the first plan it has nothing to forget; later it has to learn
 * the epoch, as everybody, from FORGET: at once where no plan runs, else with the next change,
 * which is the caller's decision. */
void membership_here(struct membership *m, int member);
/* Its link is lost, or it has left. While there is a plan that it has a part in, that plan is over:
 * true, and membership_change() is due. */
bool membership_gone(struct membership *m, int member);
/* A new plan is wanted, for whatever reason. In `plans` too: somebody may still measure. */
void membership_change(struct membership *m);
/* Its answer to FORGET. False: it was not asked in this epoch. */
bool membership_forgot(struct membership *m, int member, uint32_t epoch);
/* The new plan uses the members `used[n]`; only in `plans`, where nothing is due any more. False:
 * a member that it uses is not there, or it uses nobody: still in `plans`. */
bool membership_plan(struct membership *m, const bool *used);
/* It is ready for the plan of this epoch. False: that was not expected of it. */
bool membership_ready(struct membership *m, int member, uint32_t epoch);

/* The next action that is due; MEMBERSHIP_NOTHING: none. */
struct membership_action membership_next(struct membership *m);
int membership_count(const struct membership *m); /* members that are there */

#endif
