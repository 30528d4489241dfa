/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h - waiting under a net's lock; for net.c and link.c. */
#ifndef HS_NET_WAIT_H
#define HS_NET_WAIT_H

#include "net/net_priv.h"

/* Sleeps until something changes, `next` (when something is known to change) or `deadline`; false
 * once the deadline has passed. */
bool net_wait(struct net *n, int64_t deadline, int64_t next);

/* NET_ bits that hold now; lowers *next_p to the moment at which they change by themselves. */
unsigned net_link_ready(struct link *l, int64_t *next_p);

#endif
