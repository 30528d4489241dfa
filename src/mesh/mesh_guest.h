/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_guest.h - machines that came into a mesh by `heteroshard invite --mesh`. Their names and
 * addresses stand in DIR/hosts, their keys in the list of peers (peers/peer_list.h): who is removed
 * there is no machine of the mesh any more. */
#ifndef HS_MESH_MESH_GUEST_H
#define HS_MESH_MESH_GUEST_H

#include "config/config.h"

struct err;

/* Adds them to the workers of a configuration, before mesh_open(): peers with a key, and names
 * whose invitation is open, with the key "". */
int mesh_guests(struct config *c, struct err *e);
/* A machine that is to be invited. `endpoint` MAY be NULL. ERR_USAGE: there is one of this name. */
int mesh_guest_add(struct config *c, const char *name, const char *endpoint, struct err *e);

#endif
