/* SPDX-License-Identifier: Apache-2.0 */
/* zmq_hub.h - the thread behind the zmq transport; shared by net_zmq.c (what users call), zmq_hub.c
 * (the thread), zmq_auth.c.
 *
 * ZeroMQ sockets belong to one thread, so one thread per net owns them all: it sends what users
 * queued, hands arrived messages to the core, answers authentication, and watches connections.
 * Encryption and TCP happen in libzmq's own threads.
 *
 * The side that dials has one DEALER socket per link, the side that listens one ROUTER for all of
 * them: one open port is enough, and a connection is a link by the routing id that the ROUTER gave
 * it. (A PAIR or a socket per link would need a port for each.)
 *
 * What travels: a message of the user is one part. Two parts are the transport's own: `struct` ctl
 * below, then an empty part.
 *   HELLO  first thing from either side: window and largest message
 *   CREDIT bytes that the receiver took: the window opens again
 *   BYE    last thing from either side; who gets one answers with one. The TCP connection is closed
 *          by the dialling side after both,
 *          so nothing that was sent before is lost to a reset
 * libzmq's pings keep the connection talking while both programs compute; silence is then judged by
 * the kernel's own figure of when the last data came (TCP_INFO), because libzmq's time-out does not
 * run while its output is blocked, and counts whole messages. */
#ifndef HS_NET_ZMQ_HUB_H
#define HS_NET_ZMQ_HUB_H

#include "net/net_priv.h"

#define CTL_MAGIC 0x314c5348u /* "HSL1" */
#define CTL_BYTES 24          /* magic u32, type u32, a u64, b u64; little-endian */
enum { CTL_HELLO = 1, CTL_CREDIT = 2, CTL_BYE = 3 };

enum zlink_state { Z_DIALING, Z_UP, Z_LEAVING /* we said BYE */, Z_GONE };

struct zlink {
	struct zlink *next; /* the hub's list */
	struct hub *hub;
	struct link *link;
	/* under the hub's lock: */
	bool shut;
	uint64_t untold; /* taken by the user, the peer not told yet */
	/* the hub's own: */
	enum zlink_state state;
	void *sock, *mon; /* dialled: its DEALER and the monitor of it; accepted: NULL */
	char endpoint[2 * NET_ADDRESS + 16];
	bool has_key;
	unsigned char id[256]; /* accepted: routing id */
	size_t id_n;
	/* of the TCP connection, owned by libzmq; -1 unknown */
	int fd;
	/* the kernel's name for that very socket: a number of an fd can be used again */
	uint64_t cookie;
	/* suspect: since when the connection may be broken; 0 not */
	int64_t dial_deadline, retry_at, suspect;
	bool shut_now; /* what the thread has seen of `shut` */
	uint64_t tell; /* and of `untold` */
	int failures;  /* handshakes in a row that the peer broke off */
	/* cost that came in; of it told to the peer as taken */
	uint64_t arrived, told;
	struct net_node *pending, **pending_end; /* sent while dialling */
};

struct hub {
	struct net *net;
	void *ctx;
	pthread_t thread;
	int wake_fd;
	/* under the lock: */
	pthread_mutex_t lock;
	struct net_node *out, **out_end; /* what users sent, in order */
	struct zlink *fresh;             /* dialled, not seen by the thread yet */
	bool asleep, busy;               /* busy: something for the thread to look at */
	bool quit;
	int64_t quit_by;
	void *new_router, *new_router_mon;
	/* the thread's own: */
	struct zlink *links;
	void *router, *router_mon, *zap;
	bool quitting; /* `quit` as the thread has seen it */
	int64_t next_check;
	unsigned refused; /* how many unknown peers were reported */
	void *items;      /* zmq_pollitem_t, grown */
	size_t items_cap;
};

/* What stands in net_node.room between the user's call and the thread. */
struct zsend {
	struct zlink *zl;
};

void hub_wake(struct hub *h); /* under the hub's lock */
void *hub_main(void *hub);

/* A ROUTER (server_key NULL) or DEALER with the options all of them share. */
int hub_socket(struct hub *h, int type, const char *endpoint, const char *server_key, void **sock_p,
	       struct err *e);
void *hub_monitor(struct hub *h, void *sock); /* a socket that gives its events, or NULL */

/* zmq_auth.c: CURVE's form of a machine's keys, in Z85 (ZeroMQ RFC 32), 40 characters and a NUL:
 * the same secret as in keys.h, on Curve25519. false: not a key. */
#define CURVE_TEXT 41
bool hub_curve_public(const char *pub, char out[CURVE_TEXT]);
bool hub_curve_secret(const char *sec, char out[CURVE_TEXT]);

/* zmq_auth.c: answers one request of libzmq's ZAP (RFC 27): only listed keys come in. */
void zmq_auth_answer(struct hub *h);

#endif
