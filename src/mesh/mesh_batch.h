/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_batch.h - texts of sh for some machines of a mesh, run side by side. */
#ifndef HS_MESH_MESH_BATCH_H
#define HS_MESH_MESH_BATCH_H

#include "mesh/mesh_run.h"

struct mesh_batch {
	struct mesh_run *r;
	struct ssh_call *call;
	struct buf *text;
	size_t *of; /* the machine of each call */
	size_t n;
};
int mesh_batch_open(struct mesh_run *r, struct mesh_batch *b_p, struct err *e);
/* A text for machine `i`, to be written; at most one for each machine. `limit`: seconds. */
struct buf *mesh_batch_add(struct mesh_batch *b, size_t i, const char *command, double limit);
/* Machines whose text failed are marked, with what went wrong. */
int mesh_batch_run(struct mesh_batch *b, struct err *e);
void mesh_batch_close(struct mesh_batch *b);

#endif
