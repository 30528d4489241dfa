/* SPDX-License-Identifier: Apache-2.0 */
/* relay.h - pairs of links whose messages are passed on, for reception.c. Used by one thread. */
#ifndef HS_PEERS_RELAY_H
#define HS_PEERS_RELAY_H

#include "net/net.h"

struct err;

struct relay_side {
	struct link *link; /* NULL: not there yet */
	uint32_t member;   /* its number as frames give it */
	char id[128];      /* of the worker */
	void *held;        /* its next message, for which the other side has no room yet */
	size_t held_n;
};

struct relay_pair {
	struct relay_side side[2];
	uint32_t front; /* two links of the same two differ in it */
	int64_t until;  /* while one side is missing */
};

struct relays {
	struct net *net; /* borrowed */
	struct relay_pair *pair;
	size_t n, cap, most;
};

/* A side of the pair (member, other, front) has come; takes the link. *ready_p: the pair, when it
 * is complete by that, else NULL. A pair that was complete ends, and a new one begins. A pair that
 * is not complete after `patience` seconds is closed. */
int relays_add(struct relays *r, struct link *l, uint32_t member, const char *id, uint32_t other,
	       const char *other_id, uint32_t front, double patience, struct relay_pair **ready_p,
	       struct err *e);
/* Passes on what there is, without waiting; ends pairs that are over. true: something moved. */
bool relays_work(struct relays *r);
/* Items for net_poll, at most 2 for each pair. *soon_p: a message waits for room, look again
 * soon. */
size_t relays_poll(const struct relays *r, struct net_poll *p, bool *soon_p);
void relays_close(struct relays *r);

#endif
