/* SPDX-License-Identifier: Apache-2.0 */
/* role.h - the machine of the configuration on which this process runs, and its role.
 *
 * Every machine has the same configuration; each process finds its role from its own addresses and
 * host name. */
#ifndef HS_JOB_ROLE_H
#define HS_JOB_ROLE_H

#include "config/config.h"

struct err;

enum role_kind { ROLE_SINGLE /* no cluster part */, ROLE_COORDINATOR, ROLE_WORKER };

enum { ROLE_CANDIDATES = 64, ROLE_LOCAL = -1 };

struct role {
	enum role_kind kind;
	/* ROLE_WORKER: entries of config.workers this process may be (the first whose port is
	 * free), or ROLE_LOCAL, the coordinator's own device. */
	int candidate[ROLE_CANDIDATES];
	int ncandidate;
	bool stays; /* the caller's: a worker for one job after the other, until it is stopped */
};

/* `forced`: "coordinator", "worker" or NULL; `worker`: an id ("local" too) or NULL. ERR_USAGE when
 * this machine is none of them. */
int role_find(const struct config *c, const char *forced, const char *worker, struct role *r_p,
	      struct err *e);

/* Whether an entry is this machine, by its address, or by its name where it has none. */
bool role_is_here(const char *ip, const char *hostname);

#endif
