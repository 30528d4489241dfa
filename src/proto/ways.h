/* SPDX-License-Identifier: Apache-2.0 */
/* ways.h - where a worker may connect.
 *
 * The coordinator says to which address of another worker it shall connect (PLAN, PROBE). A worker
 * follows only to addresses that its own configuration gives for that machine, and to those that
 * the machine has signed with its key as its own (WELCOME): else a coordinator could use its
 * workers to try any address of their networks. */
#ifndef HS_PROTO_WAYS_H
#define HS_PROTO_WAYS_H

#include "net/net.h"

struct err;

/* A machine of the configuration. */
struct way {
	char address[NET_ADDRESS]; /* "host:port" */
	const char *key;           /* NULL: links without keys */
};

struct ways {
	const struct way *way; /* borrowed */
	bool signed_only;      /* only to what the machine has signed, and never to loopback */
	int n;                 /* 0: anywhere (threads of one process, ranks of MPI) */
};

/* `text`: "HOST:PORT", "OWN;HOST:PORT" (from that address of this machine), either with
 * "#SIGNATURE" behind it. `key`: of the machine that is meant, NULL without keys. *dial_p: for
 * net_dial(). ERR_PROTOCOL where the worker does not connect. */
int ways_check(const struct ways *w, const char *key, const char *text, char dial_p[NET_ADDRESS],
	       struct err *e);

#endif
