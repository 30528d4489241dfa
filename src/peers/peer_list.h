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

enum { PEERS_MOST = 1000, INVITATIONS_MOST = 32 };

struct peer {
	char name[PEER_NAME];
	char key[KEY_TEXT];
	int64_t since; /* seconds since 1970 */
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

struct invitation {
	uint8_t secret[TOKEN_SECRET];
	int64_t until;        /* seconds since 1970 */
	char name[PEER_NAME]; /* that the new peer gets; "": the one it asks for */
	char used[PEER_NAME]; /* "": not yet; else the name of who used it */
};

int invitation_open(const struct invitation *v, struct err *e);
/* Takes it back; one that was used or is gone already is no error. */
int invitation_close(const uint8_t secret[TOKEN_SECRET], struct err *e);
/* *v_p: how it stands now. 1, or 0: there is none with this secret. */
int invitation_find(const uint8_t secret[TOKEN_SECRET], struct invitation *v_p, struct err *e);
/* Whether one is open now. */
bool invitations_any(void);
/* A machine shows a proof (token.h): when it fits an open invitation, that one becomes used, the
 * machine a peer, both synced, and *name_p its name. 1; 0: no open invitation fits; ERR_USAGE: it
 * fits, but the name is taken or no name (the invitation stays open). A key that is a peer already
 * keeps its place and gets the new name. */
int invitation_use(const uint8_t binding[LINK_BINDING], const char *key, const char *coordinator,
		   const char *name, const uint8_t proof[TOKEN_PROOF], char name_p[PEER_NAME],
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
