/* SPDX-License-Identifier: Apache-2.0 */
/* inviter.h - making invitations: tokens with this machine's key and addresses, and the port at
 * which they are used while no coordinator has it. */
#ifndef HS_PEERS_INVITER_H
#define HS_PEERS_INVITER_H

#include "peers/peer_list.h"

struct err;
struct inviter;

/* `address[n]`: where others find this machine; n 0: all of its addresses. */
int inviter_open(unsigned port, const char *const *address, size_t n, struct inviter **i_p,
		 struct err *e);
/* An open invitation for `name` ("": the name that is asked for): its token, and what
 * invitation_find() and invitation_close() know it by. `mesh`: it carries a place in a mesh, which
 * invitation_part_write() has put there. */
int inviter_token(struct inviter *i, const char *name, bool mesh, int64_t minutes,
		  struct invitation *v_p, char text_p[TOKEN_TEXT], struct err *e);
/* With the first invitation open. *busy_p: somebody listens at the port already; if that is a job,
 * it knows of the invitation when this returns. "": this process listens now. */
int inviter_listen(struct inviter *i, char busy_p[256], struct err *e);
/* After that, now and then: where the job that had the port has ended, this process listens. */
int inviter_again(struct inviter *i, struct err *e);
void inviter_close(struct inviter *i); /* NULL is allowed */

#endif
