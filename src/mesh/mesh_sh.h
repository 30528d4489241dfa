/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_sh.h - what `heteroshard mesh` does on a machine, as texts of sh that run there as root. */
#ifndef HS_MESH_MESH_SH_H
#define HS_MESH_MESH_SH_H

#include "mesh/mesh.h"

/* Runs a text from standard input as root: at once, or by sudo where that asks nothing. */
extern const char mesh_sh_root[];

/* What is there, in lines "WORD value": missing, way (how WireGuard is made), up, foreign, busy,
 * loose, key, family, route. `make`: the private key is made where there is none. */
void mesh_sh_look(struct buf *s, const struct mesh *m, bool make);
/* Its file and names in place, the interface up: "up", "changed" (links kept) or "same". `way`:
 * the program that makes WireGuard where the kernel does not; "": the kernel. */
void mesh_sh_apply(struct buf *s, const struct mesh *m, size_t i, const char *way);
void mesh_sh_down(struct buf *s, const struct mesh *m);
/* Lines "now SECONDS", "peer KEY HANDSHAKE ENDPOINT", "way ADDRESS MILLISECONDS MTU" ("-": no
 * answer), "none WORD". */
void mesh_sh_check(struct buf *s, const struct mesh *m, size_t i);
/* As the user: a key for a measurement ("dir PATH", "key KEY"); one side of it; the end. */
void mesh_sh_bench_key(struct buf *s, const char *program);
void mesh_sh_bench(struct buf *s, const char *program, const char *dir, const char *key,
		   const char *ip, unsigned port, bool serve);
void mesh_sh_bench_end(struct buf *s, const char *dir);

#endif
