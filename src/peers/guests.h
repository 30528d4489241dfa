/* SPDX-License-Identifier: Apache-2.0 */
/* guests.h - the connections that reached a worker, or the coordinator, and are not in use yet.
 *
 * At most GUESTS_MOST are kept, the oldest first. A guest says HELLO within GUESTS_PATIENCE, or its
 * connection is closed. A new connection to a full list takes the place of the oldest guest that
 * has not said HELLO, so that connections which say nothing cannot keep others out. A guest with
 * the coordinator's key gives its place only to another one with that key, and takes the place of
 * any other guest. */
#ifndef HS_PEERS_GUESTS_H
#define HS_PEERS_GUESTS_H

#include "base/log.h"
#include "net/net.h"
#include "proto/hello.h"

#define GUESTS_MOST 16
#define GUESTS_PATIENCE 5.0 /* seconds */

/* A connection: its HELLO has come (known) or not yet. */
struct guest {
	struct link *link;
	struct hello h;
	bool known;
	int64_t hello_by;
};

struct guests {
	struct net *net;             /* listening; borrowed */
	const char *coordinator_key; /* NULL or "": links without keys */
	struct guest list[GUESTS_MOST];
	int n;
	/* takes what is unproven (net_admit); NULL: such links are closed */
	void (*unproven)(void *ctx, struct link *l);
	void *ctx;
	bool hold; /* whoever gets a link from guests_take() calls link_take() when it is used */
	bool called_off; /* the coordinator said ABORT where HELLO was due */
	struct log_limit log;
};

/* Accepts what has connected and reads the HELLOs that have come, without waiting. */
void guests_let_in(struct guests *g);

/* Whether the peer of a link has proven this key; a key that is NULL or "" is everybody's. */
bool guest_has_key(const struct link *l, const char *key);

/* Takes out the first guest of a role whose HELLO is accepted, and refuses those of this role
 * before it. `check` writes the reason into `why`, and leaves it empty for a guest that is
 * accepted. NULL: there is none. The link is in use from then on (but see `hold`). */
typedef void (*guest_check_fn)(const void *who, const struct guest *g, const void *ctx, char *why,
			       size_t cap);
struct link *guests_take(struct guests *g, enum hello_role role, guest_check_fn check,
			 const void *who, const void *ctx, struct hello *h_p);

/* Refuses the guests that said HELLO: those of one role, or with GUESTS_ALL every one. `why` NULL:
 * without a word. */
#define GUESTS_ALL (-1)
void guests_refuse(struct guests *g, int role, const char *why);

/* What to wait for: a new connection, and the HELLOs that are due. Returns how many items it wrote,
 * at most GUESTS_POLLS. */
#define GUESTS_POLLS (GUESTS_MOST + 1)
size_t guests_poll(const struct guests *g, struct net_poll p[GUESTS_POLLS]);

/* Closes all of them. */
void guests_close(struct guests *g);

#endif
