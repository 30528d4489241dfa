/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_key.h - a machine's WireGuard key: 32 random bytes for X25519 in a file of its own, written
 * as wg(8) writes them (base64, one line). */
#ifndef HS_MESH_MESH_KEY_H
#define HS_MESH_MESH_KEY_H

#include "mesh/mesh.h"

/* Makes the file (mode 0600, with its folder) where there is none; one that is there stays as it
 * is, and ends in an error when others can read it. *made_p: it was made. */
int mesh_key(const char *path, char pub_p[MESH_KEY], bool *made_p, struct err *e);

#endif
