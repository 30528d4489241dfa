/* SPDX-License-Identifier: Apache-2.0 */
/* peer_list.h - what a machine keeps beside its key (keys.h): on the coordinator's side the
 * machines that were invited and the invitations that are open, on a worker's side the coordinator
 * that it serves.
 *
 * Three files of text, a row a line, mode 0600, refused when others may change them; each change is
 * made under a lock and written whole, synced and renamed, so that an invitation that was used is
 * used also after a crash. Processes share nothing else: a coordinator that runs sees an invitation
 * that was opened beside it, and `invite` sees that one was used. */
#ifndef HS_PEERS_PEER_LIST_H
#define HS_PEERS_PEER_LIST_H

#include "peers/token.h"

#include <limits.h>

struct err;
struct buf;

enum { PEER_IPV4 = 1, PEER_IPV6 = 2 };
enum { PEERS_MOST = 1000, INVITATIONS_MOST = 32, INVITATION_MINUTES = 1440 /* the longest */ };

struct peer {
	char name[PEER_NAME];
	char key[KEY_TEXT];
	int64_t since;   /* seconds since 1970 */
	char wg[WG_KEY]; /* public, of its place in a mesh; "": it has none */
	unsigned family; /* PEER_IPV4, PEER_IPV6 or both: by which it reaches others there */
};

struct peer_list {
	struct peer *peer;
	size_t n;
};

/* The path of a file of this program beside the default key. */
int peers_path(const char *name, char path_p[PATH_MAX], struct err *e);

/* A list that is missing is empty. */
int peer_list_read(struct peer_list *l_p, struct err *e);
void peer_list_release(struct peer_list *l);
const struct peer *peer_list_find(const struct peer_list *l, const char *name);
const struct peer *peer_list_by_key(const struct peer_list *l, const char *key);
/* ERR_USAGE names what stands against it: no such name, or one that is taken. */
int peer_list_rename(const char *from, const char *to, struct err *e);
int peer_list_remove(const char *name, struct err *e);

/* One that is good for longer than INVITATION_MINUTES from now was made by another clock: it does
 * not count. */
struct invitation {
	uint8_t secret[TOKEN_SECRET];
	int64_t until;        /* seconds since 1970 */
	char name[PEER_NAME]; /* that the new peer gets; "": the one it asks for */
	char used[PEER_NAME]; /* "": not yet; else the name of who used it */
	bool mesh;            /* it carries a place in a mesh; `name` is given then */
};

int invitation_open(const struct invitation *v, struct err *e);
/* Takes it back; one that was used or is gone already is no error. */
int invitation_close(const uint8_t secret[TOKEN_SECRET], struct err *e);
/* *v_p: how it stands now. 1, or 0: there is none with this secret. */
int invitation_find(const uint8_t secret[TOKEN_SECRET], struct invitation *v_p, struct err *e);
/* Until when the last one that is open now is good; 0: none is open. */
int64_t invitations_until(void);
/* Whether one with a place in a mesh is open for this name. */
bool invitations_mesh(const char *name);
/* That place, as text (mesh/mesh_part.h), kept under the name while the invitation is open. An
 * empty text removes it; reading one that is not there is ERR_USAGE. */
int invitation_part_write(const char *name, struct buf *text, struct err *e);
int invitation_part_read(const char *name, struct buf *text, struct err *e);
/* A machine shows a proof (token.h): when it fits an open invitation, that one becomes used, the
 * machine a peer, both synced, and *name_p its name. 1; 0: no open invitation fits; ERR_USAGE: it
 * fits, but the name is taken or no name (the invitation stays open). A key that is a peer already
 * keeps its place and gets the new name. `wg`, `family`: the machine's public key of WireGuard
 * and bits, which an invitation with a mesh needs ("", 0: none). *mesh_p: it was one. */
int invitation_use(const uint8_t binding[LINK_BINDING], const char *key, const char *coordinator,
		   const char *name, const char *wg, unsigned family,
		   const uint8_t proof[TOKEN_PROOF], char name_p[PEER_NAME], bool *mesh_p,
		   struct err *e);

/* The coordinator that this machine serves. */
struct served {
	char name[PEER_NAME]; /* of this machine, there */
	char key[KEY_TEXT];   /* the coordinator's */
	unsigned port;
	int naddress;
	char address[TOKEN_ADDRESSES][TOKEN_ADDRESS];
};

int served_write(const struct served *v, struct err *e);
/* ERR_USAGE, with what to do: it was not invited. */
int served_read(struct served *v_p, struct err *e);

#endif
