/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.h - a WireGuard mesh between the machines of a configuration: who is in it, which address
 * each has inside, who reaches whom, and the files that follow from that. Nothing here asks another
 * machine (mesh_run.h does).
 *
 * Two machines are joined directly where one of them has an endpoint of a family that the other
 * has; the one that cannot be reached sends a keepalive. Two that cannot reach each other go
 * through a machine that is joined to both. Addresses are given once: they stand in DIR/hosts, are
 * read from there the next time, and a new machine gets the lowest free one. DIR/keys holds the
 * public keys that were collected over ssh, and which family a machine has where it has only one.
 * No private key is in any file.
 *
 * Invited machines (mesh_guest.h) have no ssh, so nobody changes their file later. One machine is
 * joined to all others and carries whatever an invited one is not joined to: in its file the whole
 * range leads there, so it reaches also those that come after it. */
#ifndef HS_MESH_MESH_H
#define HS_MESH_MESH_H

#include "config/config.h"
#include "net/range.h"
#include "peers/token.h"

struct err;
struct buf;

enum { MESH_MOST = 250, MESH_ID = 16, MESH_KEY = WG_KEY, MESH_IP = 46, MESH_END = 280 };
enum { MESH_IPV4 = 1, MESH_IPV6 = 2 }; /* families, as bits */

struct mesh_machine {
	char id[MESH_ID];
	const struct config_meshed *c;
	const char *ssh;     /* NULL: no ssh */
	bool here;           /* the one on which the command runs: the coordinator's */
	bool invited;        /* it came by an invitation (mesh_guest.h) */
	bool awaited;        /* its invitation is open: it has an address, and no key yet */
	char key[MESH_KEY];  /* public; "": not known */
	int family;          /* bits */
	char ip[2][MESH_IP]; /* inside, IPv4 and IPv6; "": the mesh has no such range */
};

struct mesh_range {
	bool given;
	char text[64];
	struct net_range r;
};

struct mesh {
	const struct config *c; /* borrowed */
	struct mesh_range range[2];
	struct mesh_machine *m;
	size_t n;
	int keepalive; /* seconds */
	int way_in;    /* the machine that carries for the invited ones; -1: none is invited */
	/* by two machines: the endpoint by which the first reaches the second, "": none; and the
	 * machine through which they go, -1: none */
	char (*endpoint)[MESH_END];
	int *through;
};

/* The machines of a configuration and what DIR holds about them. ERR_USAGE says what is wrong in
 * the configuration. */
int mesh_open(const struct config *c, struct mesh *m_p, struct err *e);
void mesh_close(struct mesh *m);
/* Gives addresses and finds the ways; all keys must be there. */
int mesh_settle(struct mesh *m, struct err *e);
/* Whether a route of machine i ("10.0.0.0/8", "default", "192.168.1.4") overlaps the range. */
int mesh_check_route(const struct mesh *m, size_t i, const char *route, struct err *e);
/* Sets a machine's public key as it was found there; another one than the configuration's is an
 * error. */
int mesh_set_key(struct mesh *m, size_t i, const char *key, struct err *e);

static inline const char *mesh_endpoint(const struct mesh *m, size_t from, size_t to)
{
	return m->endpoint[from * m->n + to];
}
static inline int mesh_through(const struct mesh *m, size_t a, size_t b)
{
	return m->through[a * m->n + b];
}
static inline bool mesh_direct(const struct mesh *m, size_t a, size_t b)
{
	return mesh_endpoint(m, a, b)[0] || mesh_endpoint(m, b, a)[0];
}

/* ---- texts (mesh_text.c) ---- */
void mesh_conf(const struct mesh *m, size_t i, struct buf *out);
/* net/inside.h of machine i: the peers with which `encrypt: mesh` leaves encryption to WireGuard,
 * those that no hub is before. Empty without that key. */
void mesh_inside(const struct mesh *m, size_t i, struct buf *out);
void mesh_hosts(const struct mesh *m, struct buf *out);
void mesh_dot(const struct mesh *m, const char *const *label, struct buf *out);
/* Writes ID.conf of each machine, with `encrypt: mesh` also ID.inside, hosts and keys into the
 * folder, removes those of machines that are gone, and leaves alone what is right already.
 * changed_p[n] */
int mesh_write(const struct mesh *m, bool *changed_p, size_t *removed_p, struct err *e);

#endif
