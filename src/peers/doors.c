/* SPDX-License-Identifier: Apache-2.0 */
/* doors.c - see doors.h. */
#include "peers/doors.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

/* How many have answered by now; *waits_p: whether another one still may. */
static int look(struct door *v, int n, int64_t deadline, bool *waits_p)
{
	const enum link_state unknown = clock_now() < deadline ? LINK_CONNECTING : LINK_LOST;
	int up = 0;
	*waits_p = false;
	for (int i = 0; i < n; i++) {
		const enum link_state s = v[i].link ? link_state(v[i].link) : unknown;
		v[i].answered |= s == LINK_UP;
		*waits_p |= s == LINK_CONNECTING;
		up += v[i].answered;
	}
	return up;
}

static void name_absent(const struct door *d)
{
	struct err why = d->unknown;
	if (d->link && link_state(d->link) == LINK_LOST)
		link_why(d->link, &why);
	log_warn("worker '%s' is not there: the job begins without it%s%.300s", d->id,
		 why.code ? ": " : "", why.msg);
}

/* The name of a machine that is off may be unknown: a router or the machine itself says it. */
static int knock(struct net *net, struct door *d, int64_t deadline, struct err *e)
{
	int rc = net_dial(net, d->address, d->key, deadline, &d->link, e);
	d->again = net_in(2);
	if (rc != ERR_NET)
		return rc;
	if (!d->unknown.code)
		log_warn("worker '%s': %s. It is asked for again", d->id, e->msg);
	d->link = NULL;
	d->unknown = *e;
	err_clear(e);
	return 0;
}

int doors_knock(struct net *net, struct door *v, int n, int least, double grace, double most,
		const volatile sig_atomic_t *stop, struct err *e)
{
	const int64_t late = net_in(grace), deadline = net_in(most);
	int rc = 0, open = 0, up = 0;
	bool waits = true;
	for (; open < n && rc >= 0; open += rc >= 0)
		rc = knock(net, &v[open], deadline, e);
	while (rc >= 0) {
		for (int i = 0; i < n && rc >= 0; i++)
			if (!v[i].link && clock_now() > v[i].again)
				rc = knock(net, &v[i], deadline, e);
		if (rc < 0)
			break;
		up = look(v, n, deadline, &waits);
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
		link_close(v[i].link); /* NULL is allowed */
	}
	return rc < 0 ? rc : 0;
}
