/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_part.h - the place of an invited machine in a mesh: what it must know of the others, as text
 * that comes with the answer to its invitation (peers/join.h), and bringing it up there.
 *
 * Lines of words: interface NAME, port N, mtu N, keepalive SECONDS, hub NAME, encrypt mesh, range
 * RANGE, and a line for each machine, the coordinator first: machine NAME KEY FAMILY
 * listed|invited IPV4 IPV6 ENDPOINT ..., "-" for what there is not; its own key is "-". The text
 * holds no command: the files are made from it by the same code as on the coordinator, and the
 * private key is where `heteroshard mesh key` puts it. */
#ifndef HS_MESH_MESH_PART_H
#define HS_MESH_MESH_PART_H

#include "mesh/mesh.h"

#include <signal.h>

struct err;

/* After mesh_settle(). */
void mesh_part_write(const struct mesh *m, struct buf *out);

struct mesh_part {
	struct config c;
	struct config_worker *worker;
	const char **item; /* of lists */
	char *text;
	struct mesh m; /* the one machine that is `here` is this one */
};

/* `name`, `wg`: of this machine. What does not fit is ERR_PROTOCOL. */
int mesh_part_read(const char *text, const char *name, const char *wg, struct mesh_part *p_p,
		   struct err *e);
void mesh_part_close(struct mesh_part *p);

/* On the new machine, as root or by sudo that asks nothing. The key: made where there is none;
 * wg_p: the public one; *family_p: what the machine reaches others by, as bits. ERR_USAGE says what
 * is missing here. */
int mesh_part_key(const volatile sig_atomic_t *stop, char wg_p[MESH_KEY], unsigned *family_p,
		  struct err *e);
/* Brings it up; what is in the way, as a colliding route, is the error. */
int mesh_part_up(struct mesh_part *p, const volatile sig_atomic_t *stop, struct err *e);

#endif
