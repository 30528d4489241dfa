/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.h - the offset between another process's clock and ours, from questions and answers.
 *
 * As in NTP (RFC 5905, section 8): a question leaves at `sent` (our clock) and arrives at `heard`
 * (theirs), the answer leaves at `said` (theirs) and arrives at `back` (ours); the offset is ((sent
 * - heard) + (back - said)) / 2, wrong by at most half of the time in flight. Clocks run at
 * slightly different rates, so the uncertainty of an old answer grows, and a newer one replaces
 * it. Pure. */
#ifndef HS_CREW_CLOCKS_H
#define HS_CREW_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct clock_pair {
	int64_t offset;   /* add to their clock to get ours */
	int64_t error;    /* at most, when it was found; nanoseconds */
	int64_t at;       /* our clock when it was found */
	bool known, same; /* same: it is the same clock, answers are ignored */
};

/* Uses the answer if it is more exact than the known offset. */
void clock_pair_add(struct clock_pair *c, int64_t sent, int64_t heard, int64_t said, int64_t back);
/* The two are one clock of one kernel, unless an answer says otherwise. */
void clock_pair_same(struct clock_pair *c);
/* The largest error of the offset now. */
int64_t clock_pair_error(const struct clock_pair *c, int64_t now);

#endif
