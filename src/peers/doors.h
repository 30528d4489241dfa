/* SPDX-License-Identifier: Apache-2.0 */
/* doors.h - which of the workers that have an address are there. */
#ifndef HS_PEERS_DOORS_H
#define HS_PEERS_DOORS_H

#include <signal.h>
#include <stdbool.h>

#include "base/err.h"
#include "net/net.h"

struct door {
	const char *id, *address, *key; /* key: NULL without keys */
	struct link *link;              /* while it is knocked at; NULL: its name is not known */
	struct err unknown;             /* why */
	int64_t again;                  /* when its name is asked for again */
	/* the result; a connection that says nothing is closed in the end, so it stays true */
	bool answered;
};

/* Connects to each, and hangs up: until all have answered, or `grace` seconds are over and `least`
 * have. Names those that did not. ERR_NET where fewer than `least` answer within `most` seconds. */
int doors_knock(struct net *net, struct door *v, int n, int least, double grace, double most,
		const volatile sig_atomic_t *stop, struct err *e);

#endif
