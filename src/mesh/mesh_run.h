/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_run.h - a mesh (mesh.h) brought to its machines: by ssh to those that have `ssh`, directly
 * on this one, as root on each. All machines are worked on side by side; one that fails is named,
 * and the others go on. */
#ifndef HS_MESH_MESH_RUN_H
#define HS_MESH_MESH_RUN_H

#include "mesh/mesh.h"
#include "ops/ssh.h"

#include <signal.h>

struct err;

/* What was found or done on a machine. */
struct mesh_fact {
	bool left_out; /* neither here nor with ssh */
	bool failed;
	char text[SSH_WHY];
	bool up;
	char way[32]; /* the program that makes WireGuard; "": the kernel */
	int family;   /* bits, as they are now; 0: not asked */
	char key[MESH_KEY];
};

struct mesh_run {
	struct mesh *m;
	struct mesh_fact *fact; /* [m->n] */
	const volatile sig_atomic_t *stop;
	/* --dry-run: called with what would be done in place of doing it; NULL: it is done */
	void (*show)(void *ctx, const char *id, const char *where, const char *text);
	void *ctx;
};

int mesh_run_open(struct mesh *m, const volatile sig_atomic_t *stop, struct mesh_run *r_p,
		  struct err *e);
void mesh_run_close(struct mesh_run *r);
/* Asks each machine: its key goes into the mesh, its routes are held against the range. Keys that
 * are missing are made, unless `show` is set. */
int mesh_run_look(struct mesh_run *r, struct err *e);
/* After mesh_settle(). */
int mesh_run_apply(struct mesh_run *r, struct err *e);
int mesh_run_down(struct mesh_run *r, struct err *e);

/* A text of sh for machine `i`, to be written; at most one for each machine. `limit`: seconds. */
struct buf *mesh_run_text(struct mesh_run *r, struct ssh_batch *b, size_t i, const char *command,
			  double limit);
/* Machines whose text failed are marked, with what went wrong. */
int mesh_run_texts(struct mesh_run *r, struct ssh_batch *b, struct err *e);

/* From machine `a` to `b`. */
struct mesh_way {
	bool asked; /* machine a has answered */
	bool works;
	double handshake;  /* seconds since the last one with b, or with the hub; below 0: never */
	double ms;         /* round trip; 0: no answer */
	long mtu;          /* largest packet that passes whole; 0: none */
	double rate;       /* MB/s over a link of training; 0: not measured */
	char why[SSH_WHY]; /* what does not work, and the most likely cause; "": nothing */
};

/* way_p[n * n]. `rate`: measured too, one pair after the other, at this port and the next two. */
int mesh_run_check(struct mesh_run *r, bool rate, unsigned port, struct mesh_way *way_p,
		   struct err *e);

#endif
