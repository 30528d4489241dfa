/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_sh.h - what is done on a machine of the fleet, as texts of sh; and running one on each
 * machine. Every word that comes from the configuration is quoted. */
#ifndef HS_OPS_FLEET_SH_H
#define HS_OPS_FLEET_SH_H

#include "ops/fleet.h"

/* A text for member `i`. `limit`: seconds. */
struct buf *fleet_add(struct fleet *f, struct ssh_batch *b, size_t i, double limit);
/* Runs them; members whose text failed are marked, with what went wrong. */
int fleet_run(struct fleet *f, struct ssh_batch *b, struct err *e);

/* Finds the program of this version there: $want, $share, $hs ("": none), $other. */
void fleet_sh_find(struct buf *s);
/* The beginning of each: $id, $dir, the program $hs, the number of the worker's process $pid, ""
 * where there is none. */
void fleet_sh_head(struct buf *s, const struct fleet_member *m);
void fleet_sh_look(struct buf *s, bool devices);
/* Unpacks new-ID.tar.xz, which was sent before. */
void fleet_sh_unpack(struct buf *s);
/* Joins with `token` first where that is not NULL. `key`: where the worker's key is: in its own
 * folder (1), in the user's (2). */
void fleet_sh_serve(struct buf *s, const struct config_worker *w, int key, const char *token);
/* With a copy of the configuration. */
void fleet_sh_work(struct buf *s, const struct config_worker *w, const char *config);
void fleet_sh_stop(struct buf *s, int wait, bool now);
void fleet_sh_log(struct buf *s, int lines, bool follow);

#define FLEET_END "heteroshard-end-of-text" /* of a text within a text */

#endif
