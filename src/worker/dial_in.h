/* SPDX-License-Identifier: Apache-2.0 */
/* dial_in.h - a worker without a configuration: it connects to the coordinator that invited it, and
 * serves one job after the other, for as long as it lives. */
#ifndef HS_WORKER_DIAL_IN_H
#define HS_WORKER_DIAL_IN_H

#include "peers/peer_list.h"

#include <signal.h>

struct err;

struct dial_in {
	const char *device;    /* "auto", "cuda:0" */
	const char *cache_dir; /* NULL: the default */
	double cache_limit;    /* GiB */
	/* for links from other workers; 0: DIAL_IN_PORT, or any one when that is taken */
	unsigned port;
	bool once;                         /* ends after one job */
	const volatile sig_atomic_t *stop; /* MAY be NULL */
};
#define DIAL_IN_PORT 9999

/* Reads the coordinator's place (served_read) before each attempt. Returns 0 when `stop` is set, or
 * after the one job. */
int dial_in_serve(const struct dial_in *o, struct err *e);

#endif
