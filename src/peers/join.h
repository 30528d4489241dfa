/* SPDX-License-Identifier: Apache-2.0 */
/* join.h - an invitation on the wire: the new machine shows a proof (JOIN), the coordinator's side
 * answers with the name that it gives it (JOINED), or closes without a word. With a mesh JOIN holds
 * the machine's key of WireGuard, and JOINED its place in the mesh. */
#ifndef HS_PEERS_JOIN_H
#define HS_PEERS_JOIN_H

#include "base/buf.h"
#include "base/log.h"
#include "peers/peer_list.h"

#include <signal.h>

struct err;

enum { JOIN_PART = 30 << 10 }; /* most bytes of a place in a mesh */

/* What an invitation with a mesh needs on the new machine's side. */
struct join_mesh {
	const char *wg;  /* its public key of WireGuard */
	unsigned family; /* peer_list.h */
	struct buf part; /* its place, as it came: mesh/mesh_part.h reads it */
};

/* The new machine's side: asks the addresses of the token one after the other. `key`: of this
 * machine. `name`: the one that it asks for. *v_p: what to keep (served_write). `mesh` and `stop`
 * MAY be NULL. */
int invitation_accept(const struct invite_token *t, const struct key_pair *key, const char *name,
		      struct join_mesh *mesh, const volatile sig_atomic_t *stop, struct served *v_p,
		      struct err *e);

/* The coordinator's side: who asks, and how often an address was wrong. */
enum { ASKERS_MOST = 16, WRONG_MOST = 5, WRONG_ADDRESSES = 64 };

struct asker {
	struct link *link;
	int64_t until; /* when its link is closed */
	bool answered;
};

struct askers {
	const char *coordinator; /* the public key of this side */
	struct asker list[ASKERS_MOST];
	int n;
	struct {
		char from[NET_ADDRESS];
		int times;
	} wrong[WRONG_ADDRESSES];
	int nwrong;
	struct log_limit log;
	char joined[PEER_NAME]; /* the last one that was let in; "": none */
};

/* A link that is unproven (net_admit); owns it from here on. */
void askers_add(struct askers *a, struct link *l);
/* Reads what has come and answers, without waiting. */
void askers_hear(struct askers *a);
/* Items for net_poll, at most ASKERS_MOST. */
size_t askers_poll(const struct askers *a, struct net_poll *p);
void askers_close(struct askers *a);

#endif
