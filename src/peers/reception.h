/* SPDX-License-Identifier: Apache-2.0 */
/* reception.h - the coordinator's own port: who connects there, and what becomes of it.
 *
 * A thread of its own accepts and reads the first frame of each connection. A peer of the list
 * (peer_list.h) that says HELLO as a worker waits until the session takes it; two that say HELLO as
 * a relay for each other become a pair, and the thread passes on what either says. An unknown key
 * is let in only while an invitation is open, as one that asks (join.h).
 *
 * Relayed links are links of their own beside the one of the coordinator, each with its window: a
 * message is taken from one side when the other has room. The header of each is held against who
 * the two sides are; anything else ends the pair. A link that waits, for the session or for the
 * other side, is read no further than NET_BEFORE_TAKE. */
#ifndef HS_PEERS_RECEPTION_H
#define HS_PEERS_RECEPTION_H

#include "net/net.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct reception;

enum { RECEPTION_WORKERS = 256, RECEPTION_PAIRS = 1024 };

/* Who may be relayed: ids and keys by member number; borrowed until reception_close(). */
struct reception_member {
	const char *id, *key;
};

/* `n`: listening already, borrowed; its key must be known. All peers are allowed there: one that no
 * job takes is connected and waits. `key`: this machine's, public. */
int reception_open(struct net *n, const char *key, struct reception **r_p, struct err *e);
/* The job whose members may be relayed; before that nobody is. */
void reception_job(struct reception *r, uint64_t job, const struct reception_member *v, int n);
/* The link of a worker with this key that waits; NULL: there is none now. The caller owns it. */
struct link *reception_take(struct reception *r, const char *key);
/* Whether a worker with this key waits, or has been taken. */
bool reception_has(struct reception *r, const char *key);
/* Pairs that are being relayed, for messages. */
int reception_pairs(struct reception *r);
/* Ends the thread and closes what nobody took. Before net_close(). NULL is allowed. */
void reception_close(struct reception *r);

#endif
