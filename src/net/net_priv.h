/* SPDX-License-Identifier: Apache-2.0 */
/* net_priv.h - what transports and the core of net (net.c, link.c, pool.c) share. Nobody else
 * includes this.
 *
 * The core keeps the state that users see: queues of arrived messages, states, counters, all under
 * the net's one lock with one condition for every wait. A transport moves bytes and tells the core
 * what happened through the net_link_* calls below.
 *
 * Locks: never two nets' locks at once, and no transport lock is taken while a net's lock is held.
 * Release functions are called with no lock held. */
#ifndef HS_NET_NET_PRIV_H
#define HS_NET_NET_PRIV_H

#include <pthread.h>

#include "base/err.h"
#include "net/net.h"

/* what a message counts against the window beside its bytes, about what it takes of memory, so that
 * small ones are bounded too */
#define NET_COST 256

/* ---- pool: nodes and buffers that are used again -------------------------------------------- */

struct net_pool;

/* A message on its way, in or out. `release` (may be NULL) gives the bytes back. */
struct net_node {
	struct net_node *next;
	struct net_pool *pool;
	int64_t at; /* not to be given out before this moment (loop with delays); else 0 */
	int64_t arrived;
	void *data;
	size_t size;
	net_release_fn release;
	void *ctx;
	void *room;  /* the transport's */
	bool shared; /* the bytes are in memory that the peer can change at any time */
	/* tls_parallel.h: of a message that goes in pieces its length and number; bytes that have
	 * not come, or pieces that have not gone */
	uint64_t whole, number, missing;
};

struct net_pool *net_pool_new(uint64_t keep); /* keeps at most that many bytes of unused buffers */
void net_pool_close(struct net_pool *p);      /* it goes when the last node and buffer came back */
struct net_node *net_node_new(struct net_pool *p);
void net_node_free(struct net_node *node);  /* the node only: the bytes were passed on */
void net_node_done(struct net_node *node);  /* releases the bytes, then the node */
void net_nodes_done(struct net_node *list); /* of all of a list */
void *net_pool_buffer(struct net_pool *p, size_t bytes);

/* Stands NET_BUFFER_HEAD bytes in front of the bytes of every buffer that net_buffer_release takes,
 * in memory of this process alone. */
#define NET_BUFFER_HEAD 64
struct net_buffer_head {
	void (*back)(struct net_buffer_head *h);
	void *owner; /* of the buffer's kind */
};

/* ---- the core's objects --------------------------------------------------------------------- */

struct net {
	const struct net_transport *t;
	void *priv;           /* the transport's */
	struct net_options o; /* with the defaults filled in; o.key points to `key` */
	struct key_pair key;
	struct net_pool *pool;
	struct pins *pins; /* pins.h */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under the lock: */
	struct link *links;
	struct link *accepted, **accepted_end; /* through next_accepted */
	char (*allowed)[KEY_TEXT];
	size_t nallowed, allowed_cap;
	bool wake, listening, closing;
	bool admits;          /* net_admit() */
	unsigned connections; /* as in struct net_options */
	/* the transport's: it was said that links within this machine go over TCP */
	bool near_said;
};

struct link {
	struct net *net;
	const struct net_transport *net_t; /* the net may be gone when the last reference goes */
	void *priv;                        /* the transport's */
	int refs;                          /* the user's, and those of the transport */
	bool refused;                      /* set before it is lost */
	bool unproven;                     /* its key is on no list; set before it is up */
	uint8_t binding[LINK_BINDING];     /* set before it is up */
	bool trusted;                      /* as in struct net_transport; set before it is up */
	const char *way;                   /* link_way(); set before it is up */
	char peer[KEY_TEXT];
	char address[NET_ADDRESS];
	/* under the net's lock: */
	struct link *next, **prev, *next_accepted;
	enum link_state state;
	struct err why;
	bool closed; /* the user gave it back */
	struct net_node *in, **in_end;
	int64_t dial_deadline;
	uint64_t in_flight, peer_window, peer_max;
	uint64_t slack; /* of peer_window: what the peer need not credit yet */
	unsigned connections;
	struct link_stats stats;
	void *user;
};

struct net_transport {
	const char *name;
	const char *way; /* what link_way() says unless the link says better */
	bool trusted;    /* bytes never leave the machine: checksums of frames need no checking */
	/* MUST. `open` fills net->priv. `close` returns when no thread of the transport touches the
	 * net any more; all links are closed by then as far as the user is concerned. */
	int (*open)(struct net *n, struct err *e);
	void (*close)(struct net *n, double linger);
	int (*listen)(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e);
	int (*dial)(struct link *l, const char *address, const char *peer_key, struct err *e);
	/* takes the node; on a lost link it is just done with */
	void (*send)(struct link *l, struct net_node *node);
	/* the user took a message out of the queue */
	void (*taken)(struct link *l, uint64_t cost);
	/* MAY. The user waits for room: the peer, which may wait for room too, is told all that was
	 * taken */
	void (*waits)(struct link *l);
	/* closed by the user, or failed; may come twice. Tells the peer, gives its reference
	 * back */
	void (*shut)(struct link *l);
	/* MAY. link_take(). */
	void (*take)(struct link *l);
	/* MAY. The link's memory goes: free what hangs on l->priv. */
	void (*freed)(struct link *l);
	/* MAY. A buffer for a message over this link, to be released with net_buffer_release; NULL:
	 * one of the pool will do. */
	void *(*buffer)(struct link *l, size_t bytes);
	/* MAY. The launcher's numbering of processes. */
	void (*world)(struct net *n, struct net_ranks *r_p);
	/* MAY, all or none: net_group_make() and what follows it. */
	int (*group)(struct net *n, const char *const *address, int members, struct net_group **g_p,
		     struct err *e);
	float *(*room)(struct net_group *g, size_t count);
	int (*sum)(struct net_group *g, size_t count, struct err *e);
	int (*summed)(struct net_group *g, struct err *e);
};

/* A transport's groups begin with their net. */
static inline struct net *net_group_net(struct net_group *g) { return *(struct net **)g; }

extern const struct net_transport *const net_transports[];

/* What a message of n bytes counts, and the part of a window below which the other side need not
 * hear what was taken. */
static inline uint64_t net_cost(uint64_t n) { return n + NET_COST; }
static inline uint64_t net_slack(uint64_t window)
{
	return window / 16 < 65536 ? window / 16 : 65536;
}
/* The same between processes of one machine, where a credit costs more than the memory that waits
 * for it. `window`: the smaller one of both sides. */
static inline uint64_t net_slack_near(uint64_t window) { return window / 2; }

/* A link in state CONNECTING with two references, the user's and the transport's; NULL when memory
 * is out. */
struct link *net_link_new(struct net *n, const char *address, const char *peer_key);
void net_link_ref(struct link *l);
void net_link_unref(struct link *l);
/* Up, with what the peer announced. `slack`: of the window. `accept`: it came from outside,
 * net_accept gives it out. */
void net_link_up(struct link *l, uint64_t peer_window, uint64_t slack, uint64_t peer_max,
		 bool accept);
void net_link_lost(struct link *l, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* false: not wanted any more, the node stays the caller's */
bool net_link_deliver(struct link *l, struct net_node *node);
/* the peer took messages of this cost */
void net_link_credit(struct link *l, uint64_t cost);
bool net_is_allowed(struct net *n, const char *public_key);
bool net_admits(struct net *n);
unsigned net_wanted_connections(struct net *n);
void net_want_connections(struct net *n, unsigned count);
/* so many connections carry the link from now on */
void net_link_connections(struct link *l, unsigned count);
/* how many links wait for net_accept */
unsigned net_waiting(struct net *n);

#endif
