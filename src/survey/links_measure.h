/* SPDX-License-Identifier: Apache-2.0 */
/* links_measure.h - measures the ways between machines, after the workers have joined and
 * before PLAN.
 *
 * For each pair of machines one worker of the first is ordered to measure (PROBE), one of the
 * second to answer, over every pair of their addresses, one pair of machines at a time; when no
 * address is reached, in the other direction. Workers of one machine are measured once, at their
 * configured address. PLAN names the best way. Results are kept (links_cache.h). */
#ifndef HS_SURVEY_LINKS_MEASURE_H
#define HS_SURVEY_LINKS_MEASURE_H

#include "coord/links.h"
#include "coord/session.h"

struct links_options {
	bool refresh; /* measure again what the cache has */
	/* bytes of a typical message of the job, for which the best way is chosen; 0: 1 MiB */
	uint64_t message;
	double seconds;                    /* for one direction of one address; 0: 1 */
	const volatile sig_atomic_t *stop; /* MAY be NULL */
	void (*part)(void *ctx, const char *what, uint64_t done, uint64_t all); /* MAY be NULL */
	void *ctx;
};

/* After session_join, before session_begin. The table belongs to the session. For machines that
 * cannot reach each other the table has a row with the reason, and a warning is logged; this is no
 * error, because a plan may need no link between them. */
int links_measure(struct session *s, const struct links_options *o, const struct link_table **t_p,
		  struct err *e);

#endif
