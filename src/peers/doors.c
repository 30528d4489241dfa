/* SPDX-License-Identifier: Apache-2.0 */
/* doors.c - see doors.h. */
#include "peers/doors.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

/* How many have answered by now; *waits_p: whether another one still may. */
static int look(struct door *v, int n, bool *waits_p)
{
	int up = 0;
	*waits_p = false;
	for (int i = 0; i < n; i++) {
		const enum link_state s = link_state(v[i].link);
		v[i].answered |= s == LINK_UP;
		*waits_p |= s == LINK_CONNECTING;
		up += v[i].answered;
	}
	return up;
}

static void name_absent(const struct door *d)
{
	struct err why = { 0 };
	if (link_state(d->link) == LINK_LOST)
		link_why(d->link, &why);
	log_warn("worker '%s' is not there: the job begins without it%s%.300s", d->id,
		 why.code ? ": " : "", why.msg);
}

int doors_knock(struct net *net, struct door *v, int n, int least, double grace, double most,
		const volatile sig_atomic_t *stop, struct err *e)
{
	const int64_t late = net_in(grace), deadline = net_in(most);
	int rc = 0, open = 0, up = 0;
	bool waits = true;
	for (; open < n && rc >= 0; open += rc >= 0)
		rc = net_dial(net, v[open].address, v[open].key, deadline, &v[open].link, e);
	while (rc >= 0) {
		up = look(v, n, &waits);
		if (!waits || (clock_now() > late && up >= least))
			break;
		if (stop && *stop)
			rc = err_set(e, ERR_CANCELLED, "interrupted while waiting for workers");
		else
			usleep(50000);
	}
	if (rc >= 0 && up < least)
		rc = err_set(e, ERR_NET,
			     "%d of %d workers answered within %g s (join_timeout), and "
			     "min_workers needs %d: does 'heteroshard worker' run on the others?",
			     up, n, most, least);
	for (int i = 0; i < open; i++) {
		if (rc >= 0 && !v[i].answered)
			name_absent(&v[i]);
		link_close(v[i].link);
	}
	return rc < 0 ? rc : 0;
}
