/* SPDX-License-Identifier: Apache-2.0 */
/* tls_hub_priv.h - what tls_hub.c, the thread, and tls_calls.c, the calls of users' threads,
 * share. */
#ifndef HS_NET_TLS_HUB_PRIV_H
#define HS_NET_TLS_HUB_PRIV_H

#include "net/shm_meet.h"
#include "net/tls_conn.h"
#include "net/tls_hub.h"

struct hub {
	struct net *net;
	struct crypt_ctx *keys; /* NULL: without encryption */
	pthread_t thread;
	struct watch *all, *guests; /* everything; strangers, inside the first */
	/* under the lock: */
	pthread_mutex_t lock;
	struct conn *told;  /* something for the thread to look at */
	struct conn *fresh; /* dialled, not seen by the thread yet */
	bool asleep, busy, quit;
	int64_t quit_by;
	struct listeners {
		int tcp, near; /* -1: none */
		char path[MEET_PATH];
	} fresh_listeners;
	/* the thread's own: */
	struct conn *conns;
	struct listeners listeners;
	bool quitting, more, guests_wait;
	unsigned strangers;
	int64_t now, next_timer, guests_time, guests_at;
	struct log_limit log;
	/* Several connections of a link: the first ones belong to the first thread, which makes
	 * others when they are needed, one for each place. */
	struct hub *first; /* NULL: this is it */
	struct hub *other[PARALLEL_MOST];
};

/* Under the hub's lock: ends the thread's sleep. */
void hub_wake(struct hub *h);
/* Under the hub's lock: the thread has something to look at. */
void hub_tell(struct conn *c);

#endif
