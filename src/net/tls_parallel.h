/* SPDX-License-Identifier: Apache-2.0 */
/* tls_parallel.h - several connections of one link, each with a thread of its own at both ends, for
 * machines where one core encrypts less than the network carries.
 *
 * The link comes up with its first connection, which says everything that it says without others:
 * heads, credits, small messages, in order. A message of PARALLEL_LEAST bytes or more is cut: the
 * first connection carries the head PIECE with its length and its number and the first piece, each
 * other one the same head and a piece. Who receives makes room when the first connection announces
 * the message, by the window's rules; a connection that is ahead of it is not read until then. So a
 * peer can make this end keep no more than over one connection. Messages are given out in the order
 * in which the first connection named them, and so are the credits and the farewell between them.
 *
 * A lock of its own, below the net's and beside those of the hubs. */
#ifndef HS_NET_TLS_PARALLEL_H
#define HS_NET_TLS_PARALLEL_H

#include "net/net_priv.h"

#define PARALLEL_MOST NET_CONNECTIONS
#define PARALLEL_LEAST (32 << 10) /* bytes of a message that is cut */

struct conn;

struct parallel {
	uint64_t id;             /* says to which link a further connection belongs */
	unsigned n;              /* connections, the first one counted */
	pthread_mutex_t sending; /* the order of pieces is the same on all of them */
	uint64_t sent;           /* messages that were cut */
	/* under the lock: */
	pthread_mutex_t lock;
	struct conn *conn[PARALLEL_MOST];
	unsigned up; /* of the others */
	bool shut;   /* no more of them */
	/* what was received and not given out: messages of which pieces are missing, and what came
	 * behind them */
	struct net_node *in, **in_end;
	uint64_t announced; /* messages that came in pieces */
	bool over;          /* the peer's farewell was its turn */
};

struct parallel *parallel_new(unsigned n, uint64_t id); /* NULL: memory is out */
/* Nobody uses the link any more. The connections are the caller's. */
void parallel_free(struct parallel *p);
/* A further connection takes its place; false: there is none. */
bool parallel_join(struct parallel *p, unsigned place, struct conn *c);
/* One more of them is up; true: now all are. */
bool parallel_up(struct parallel *p);
/* No more of them from now on; false: it was said before. */
bool parallel_shut(struct parallel *p);
/* Whether all are up, so that messages may be cut. */
bool parallel_ready(struct parallel *p);

/* The bytes [begin, end) of message `number` that belong on the connection at `place`. */
struct parallel_part {
	uint64_t begin, end;
};
struct parallel_part parallel_part(const struct parallel *p, uint64_t whole, uint64_t number,
				   unsigned place);

/* Sending, under `sending`: a node for each connection that has a part of the message, else NULL;
 * the first always has one. The message is done with when all of them are. false: memory is out,
 * and nothing has happened. */
bool parallel_cut(struct parallel *p, struct net_node *message,
		  struct net_node *piece[PARALLEL_MOST]);

/* Receiving. The first connection has announced a message; `node` has room for all of it. */
void parallel_announce(struct parallel *p, struct net_node *node);
/* Message `number`: *node_p, of which pieces are missing. 0: it is not announced yet; -1: nothing
 * of it is missing. */
int parallel_find(struct parallel *p, uint64_t number, struct net_node **node_p);
/* So many bytes of it have come. What is complete is given to the link. */
void parallel_filled(struct parallel *p, struct link *l, struct net_node *node, uint64_t bytes);
/* Takes its turn behind what was announced before: a whole message; with `at` PARALLEL_CREDIT the
 * peer's credit of `size` bytes, with PARALLEL_BYE its farewell. */
#define PARALLEL_CREDIT ((int64_t)-1)
#define PARALLEL_BYE ((int64_t)-2)
void parallel_follows(struct parallel *p, struct link *l, struct net_node *node);
bool parallel_over(struct parallel *p);

#endif
