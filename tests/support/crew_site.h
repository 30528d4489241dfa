/* SPDX-License-Identifier: Apache-2.0 */
/* crew_site.h - a site (site.h) with four workers that are started by hand, for jobs whose members
 * come and go: "one" is the job in one process, "two" the same over the workers 'a' to 'd'. */
#ifndef HS_TESTS_SUPPORT_CREW_SITE_H
#define HS_TESTS_SUPPORT_CREW_SITE_H

#include "support/site.h"

enum { WORKERS = 4, LIMIT = 90 /* seconds */ };

/* Where the layers are: stages of one, of groups, and of both. */
extern const char *const crew_plan[4];

/* Worker number i, which listens. */
struct process start_worker(const struct site *s, int i);
void start_workers(const struct site *s, struct process w[WORKERS]);
/* Until the log of a run says `what`; false: it has ended before. */
bool waits_for(const struct process *p, const char *what);
/* The same, or the test fails and shows the logs; `w` MAY be NULL. */
void says_or_fails(const struct process *p, const struct process *w, const char *what);
/* Every worker from number `first` on ends well. */
void workers_end(const struct process *w, int first);
void kill_now(const struct process *p); /* and waits for its end */
void same_samples(const struct site *s, const char *a, const char *b);

#endif
