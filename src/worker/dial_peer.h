/* SPDX-License-Identifier: Apache-2.0 */
/* dial_peer.h - a worker connects to another worker. */
#ifndef HS_WORKER_DIAL_PEER_H
#define HS_WORKER_DIAL_PEER_H

#include "proto/ways.h"

struct dial_peer {
	struct net *net;
	const struct ways *ways;
	const char *key; /* of the other worker; NULL without keys */
	double seconds;
	/* The other one learns from PLAN who may connect, and may not have it yet: it is tried
	 * again while it refuses. */
	bool patient;
	/* asked now and then: an error ends the attempt */
	int (*left)(void *ctx, struct err *e);
	void *ctx;
};

/* *l_p: an established link. */
int dial_peer(const struct dial_peer *d, const char *address, struct link **l_p, struct err *e);

#endif
