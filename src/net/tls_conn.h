/* SPDX-License-Identifier: Apache-2.0 */
/* tls_conn.h - one connection of the transports tls and shm: handshake, heads and messages in,
 * heads and messages out. It belongs to one thread (tls_hub.c), never blocks, and does what a
 * socket that is ready allows; the clock and the socket's readiness come from outside, so that a
 * test or a fuzzer can drive it over a socket pair.
 *
 * A connection over a Unix socket (`near`) says the same heads, without encryption; its handshake
 * is shm_proof.h, and larger messages lie in memory that both ends see (shm_memory.h). */
#ifndef HS_NET_TLS_CONN_H
#define HS_NET_TLS_CONN_H

#include <sys/socket.h>

#include "base/log.h"
#include "net/address.h"
#include "net/net_priv.h"
#include "net/shm_proof.h"
#include "net/tls_crypt.h"
#include "net/tls_head.h"
#include "net/tls_parallel.h"

/* What a peer that has not said hello may send and take. */
#define CONN_LIMIT (16 << 10)

/* `at` of a node that is no message: `size` bytes were taken by the user */
#define CONN_CREDIT PARALLEL_CREDIT
enum { CONN_FDS = 4 };

enum conn_state {
	CONN_WAITING,    /* dialled: no socket, until retry_at */
	CONN_CONNECTING, /* dialled: TCP */
	CONN_SHAKING,    /* TLS, or the proof */
	CONN_GREETING,   /* the peer's HELLO is due */
	CONN_UP,
	CONN_LEAVING,  /* the user closed the link: what was sent goes out, then BYE */
	CONN_DRAINING, /* accepted and refused: what it still sends is dropped, so that it can read
			* why */
	CONN_GONE
};

/* Why a dialled connection did not come up. */
enum conn_end {
	END_NONE,
	END_CLOSED,    /* by the peer, or broken */
	END_SILENT,    /* no answer in time */
	END_RESET,     /* by the peer, without a word: it may have too many at a time */
	END_STRANGE,   /* what it sent is not this protocol */
	END_KEYS,      /* one side has a key, the other none */
	END_WRONG_KEY, /* its key is not the expected one */
	END_REFUSED,   /* our key is not on its list */
	END_MEMORY
};

struct conn {
	struct net *net;
	struct crypt_ctx *keys; /* NULL: without encryption and identity */
	struct log_limit *log;  /* about strangers */
	/* accepted: the link of this id and of the key that the connection shows, for a connection
	 * that joins it; NULL: there is none */
	struct parallel *(*find)(struct conn *c, uint64_t id);
	struct link *link; /* NULL: accepted, no hello yet */
	enum conn_state state;
	enum conn_end end;
	bool accepted;
	char from[NET_ADDRESS]; /* accepted: the peer's address */
	char peer[KEY_TEXT];    /* the key that it shows; proven once the handshake is done */
	bool unproven;          /* accepted, and that key is on no list (net_admit) */
	bool said;              /* unproven: its one message has begun */
	struct crypt_io io;
	struct crypt *crypt;
	bool near;   /* a Unix socket */
	bool inside; /* bound to the mesh (inside.h) */
	bool agreed; /* both ends go without encryption once HELLO is said */
	struct proof proof;
	/* once it is up: for what is sent; users' threads ask for buffers there */
	struct shm_out *mem_out;
	struct shm_in *mem_in;
	int stage_fd;           /* goes with the stage's first byte; -1: none */
	int fd[CONN_FDS], nfds; /* received, and not used by a head yet */
	int64_t now, began, last_in, last_ping, left_at; /* left_at: when BYE was sent */
	struct head_count count;
	/* Several connections of one link. `place` 0: the first. */
	struct parallel *parallel;
	unsigned place;
	bool apart;       /* not the first, and the link does not end with it: it was not up yet,
			   * or its peer said BYE */
	uint64_t least;   /* not the first: the least number that its next piece may have */
	unsigned asked;   /* first: how many the dialling side asks for */
	bool was_asked;   /* first, accepted: by the peer */
	bool offer_due;   /* first: PARALLEL is to be said */
	bool dial_others; /* first: the peer has offered them */
	bool announced;   /* first: the others may go on */
	/* in: a head, then the bytes [in_n, in_end) of a message */
	unsigned char head[HEAD_BYTES];
	size_t head_n;
	struct net_node *in;
	size_t in_n, in_end;
	uint64_t skip;        /* of a message that nobody wants */
	bool waits;           /* dialled by the peer, and the user has not taken it yet */
	bool held;            /* `head` is not followed and nothing is read until then, or until
			       * the first connection has announced this piece's message */
	unsigned char *ahead; /* without encryption: bytes that were read and not asked for yet */
	size_t ahead_at, ahead_n;
	/* out: `stage` first, then the rest of the first message */
	unsigned char first[2 * HEAD_BYTES], *stage;
	size_t stage_cap, stage_n, stage_at;
	/* messages, and CONN_CREDIT nodes: a credit stays behind the messages that were sent before
	 * it, so that a peer gets the answer to its message no later than the credit for it */
	struct net_node *out, **out_end;
	bool direct; /* the first message is under way, `sent` bytes of it are staged or gone */
	size_t sent;
	bool hello_due, alive_due, ping_due, refusal_due, bye_due;
	bool blocked;           /* there is more to write than the socket takes */
	bool mute;              /* it takes nothing more */
	bool more_in, more_out; /* there was more to do than one turn allows */

	/* Who reads or writes holds it: the hub's thread, or over a Unix socket a user's thread
	 * that sends while the hub has nothing to do here. Taken before the hub's lock. */
	pthread_mutex_t own;

	/* ---- the hub's ---- */
	struct conn *next;
	struct hub *hub;
	unsigned watched;      /* for what (watch.h), */
	struct watch *watcher; /* by which set */
	bool guest;            /* watched among the strangers */
	/* dialled; `way`: all addresses of the name, `to` is the one of this attempt */
	struct sockaddr_storage to, source, way[ADDRESS_MOST];
	socklen_t to_n, source_n, way_n[ADDRESS_MOST];
	int nway, at, strangers; /* strangers: attempts at which another machine has answered */
	int64_t dial_deadline, retry_at, attempt; /* attempt: 0 or the time for one */
	int failures, resets;
	char meet[NET_ADDRESS]; /* dialled: where to meet on this machine; "": nowhere */
	bool counted;           /* not the first: parallel_up() knows that it is up */
	/* under the hub's lock */
	struct conn *next_told;
	bool told;                           /* the hub has to look at what follows */
	struct net_node *fresh, **fresh_end; /* sent by the user */
	uint64_t untold;                     /* taken by the user, the peer not told yet */
	uint64_t slack;                      /* of that, what the peer need not hear yet */
	bool tell_all;                       /* it hears that too this time */
	bool shut;                           /* the user gave the link back */
	bool taken;                          /* link_take() */
	bool closed; /* the hub is done with it: nothing is taken any more */
};

static inline bool conn_is_up(const struct conn *c)
{
	return c->state == CONN_UP || c->state == CONN_LEAVING;
}

/* NULL: memory is out. `keys` NULL: plain. */
struct conn *conn_new(struct net *n, struct crypt_ctx *keys, struct log_limit *log);
void conn_free(struct conn *c); /* closes the socket */

/* A socket that is connected: handshake and hello begin. */
void conn_begin(struct conn *c, int fd, int64_t now);
/* The same for a Unix socket with process `peer` at the other end. */
void conn_begin_near(struct conn *c, int fd, pid_t peer, int64_t now);
/* Closes the socket and forgets what was under way, so that a dialled connection can be tried
 * again. What the user sent stays. */
void conn_reset(struct conn *c);
/* Reads and writes what the socket allows, at most about a megabyte each way. Afterwards `state`,
 * `blocked`, `more_in` and `more_out` say what comes next. */
void conn_work(struct conn *c, bool readable, int64_t now);
/* From a user's thread, before it sends: over a Unix socket a large message is put where both ends
 * see it, unless it lies there. */
void conn_share(struct conn *c, struct net_node *node);
/* Sends a node on a connection that is up, as far as the socket takes it. The caller holds `own`.
 * false: it is not up, the node stays the caller's; *more_p: there is more to write. */
bool conn_push(struct conn *c, struct net_node *node, bool *more_p);
/* The user takes the link: what was held back is read, and with larger buffers. */
void conn_take(struct conn *c, int64_t now);
/* Not the first connection of its link: the first has announced a message. */
void conn_go_on(struct conn *c, int64_t now);
/* The user is done with the link. */
void conn_leave(struct conn *c, int64_t now);
/* The link is lost for this reason, the connection gone. */
void conn_break(struct conn *c, int code, const char *what);

#endif
