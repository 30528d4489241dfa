/* SPDX-License-Identifier: Apache-2.0 */
/* dial_peer.c - see dial_peer.h. */
#include "worker/dial_peer.h"

#include "base/clock.h"
#include "base/err.h"

static int once(const struct dial_peer *d, const char *to, int64_t deadline, struct link **l_p,
		bool *refused_p, struct err *e)
{
	struct link *l;
	TRY(net_dial(d->net, to, d->key, deadline, &l, e));
	int rc = 0;
	while (rc >= 0 && link_state(l) == LINK_CONNECTING) {
		net_poll(d->net, &(struct net_poll){ l, NET_UP, 0 }, 1, net_in(0.3));
		rc = d->left(d->ctx, e);
		if (rc >= 0 && clock_now() > deadline)
			rc = err_set(e, ERR_NET, "no answer in time");
	}
	if (rc >= 0)
		rc = link_wait_up(l, NET_NOW, e);
	*refused_p = rc < 0 && link_was_refused(l);
	if (rc < 0)
		link_close(l);
	else
		*l_p = l;
	return rc;
}

int dial_peer(const struct dial_peer *d, const char *address, struct link **l_p, struct err *e)
{
	char to[NET_ADDRESS];
	TRY(ways_check(d->ways, d->key, address, to, e));
	for (int64_t deadline = net_in(d->seconds);;) {
		bool refused = false;
		int rc = once(d, to, deadline, l_p, &refused, e);
		if (rc >= 0 || !refused || !d->patient || clock_now() > deadline)
			return rc;
		err_clear(e);
		net_poll(d->net, NULL, 0, net_in(0.1));
		TRY(d->left(d->ctx, e));
	}
}
