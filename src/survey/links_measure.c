/* SPDX-License-Identifier: Apache-2.0 */
/* links_measure.c - see links_measure.h. */
#include "survey/links_measure.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "coord/links_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t usual(const struct links_options *o) { return o->message ? o->message : 1 << 20; }

/* ---- asking the workers ---- */

static int order(struct session *s, int worker, const struct probe_order *o, struct err *e)
{
	struct buf out = BUF_INIT;
	int rc = probe_order_write(o, &out, e);
	if (rc >= 0)
		rc = session_send(s, worker, FRAME_PROBE, 0, 0, out.p, out.n, e);
	buf_release(&out);
	return rc;
}

static int confirmed(struct session *s, int worker, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	TRY(session_recv(s, worker, FRAME_PROBED, 0, &msg, &f, e));
	net_msg_release(&msg);
	return 0;
}

static void other_side(const struct session *s, int i, struct probe_order *o)
{
	const struct seat_spec *p = session_spec(s, i);
	snprintf(o->id, sizeof o->id, "%s", p->id);
	snprintf(o->key, sizeof o->key, "%s", p->key ? p->key : "");
}

/* Rows [first, n) of the table, all between the same two workers. */
static int measure(struct session *s, struct link_table *t, size_t first, double seconds,
		   struct err *e)
{
	const struct link_ends *ends = session_ends(s);
	int a = t->row[first].from, b = t->row[first].to;
	uint32_t n = (uint32_t)(t->n - first);
	struct probe_order *o = mem_zalloc(sizeof *o);
	struct probe_way *v = mem_array(n, sizeof *v);
	struct net_msg msg;
	struct frame f;
	int rc = o && v ? 0 : err_nomem(e, n * sizeof *v, "links");
	if (rc < 0)
		goto out;
	o->mode = PROBE_ANSWER;
	o->seconds = seconds;
	other_side(s, a, o);
	o->member = (uint32_t)b;
	o->relayed = !strcmp(t->row[first].to_address, MEMBER_RELAY);
	TRYOUT(order(s, b, o, e));
	TRYOUT(confirmed(s, b, e));
	o->mode = PROBE_MEASURE;
	other_side(s, b, o);
	o->member = (uint32_t)a;
	for (o->n = 0; o->n < n; o->n++)
		links_dial_text(ends, &t->row[first + o->n], o->address[o->n]);
	TRYOUT(order(s, a, o, e));
	TRYOUT(session_recv(s, a, FRAME_PROBED, 0, &msg, &f, e));
	rc = probe_ways_read(&f, n, v, e);
	net_msg_release(&msg);
	TRYOUT(rc);
	*o = (struct probe_order){ .mode = PROBE_STOP, .seconds = seconds };
	TRYOUT(order(s, b, o, e));
	TRYOUT(confirmed(s, b, e));
	for (uint32_t i = 0; i < n; i++)
		t->row[first + i].way = v[i];
out:
	mem_free(o);
	mem_free(v);
	return rc;
}

/* Two workers that do not reach each other, at least one of them invited: the coordinator passes on
 * what they say. Measured as any other way. */
static int through_coordinator(struct session *s, struct link_table *t, int a, int b, size_t first,
			       const struct links_options *o, struct err *e)
{
	t->n = first;
	TRY(links_relay(t, a, b, e));
	TRY(measure(s, t, first, o->seconds > 0 ? o->seconds : 1, e));
	if (links_choose(session_ends(s), t, first, usual(o)))
		log_info("%s and %s do not reach each other: they go through this machine, at "
			 "%.3g MB/s",
			 session_name(s, a), session_name(s, b),
			 link_rate(&t->row[first], false, usual(o)) * 1e-6);
	else
		log_warn("%s and %s do not reach each other, and not through this machine either "
			 "(%s)",
			 session_name(s, a), session_name(s, b), t->row[first].way.why);
	return 0;
}

static int one_pair(struct session *s, struct link_table *t, int a, int b,
		    const struct links_options *o, struct err *e)
{
	const struct link_ends *ends = session_ends(s);
	size_t first = t->n;
	for (int turn = 0; turn < 2; turn++) {
		t->n = first;
		TRY(links_ways(ends, t, turn ? b : a, turn ? a : b, e));
		if (!o->refresh && links_cache_read(ends, t, first)) {
			if (links_choose(ends, t, first, usual(o)))
				return 0;
			continue;
		}
		double seconds = o->seconds > 0 ? o->seconds : 1, n = (double)(t->n - first);
		/* Machines with many addresses get less time for each. */
		TRY(measure(s, t, first, n > 4 ? fmax(seconds * 4 / n, 0.2 * seconds) : seconds,
			    e));
		links_cache_write(ends, t, first);
		if (links_choose(ends, t, first, usual(o)))
			return 0;
	}
	if (ends->relays)
		return through_coordinator(s, t, a, b, first, o, e);
	log_warn("%s and %s cannot reach each other (%s): the plan makes no neighbours of them; "
		 "when the way is open, 'heteroshard profile --refresh CONFIG' sees it at once, "
		 "any other command after %d minutes",
		 session_name(s, a), session_name(s, b), t->row[first].way.why,
		 LINKS_UNREACHABLE_MINUTES);
	return 0;
}

int links_measure(struct session *s, const struct links_options *o, const struct link_table **t_p,
		  struct err *e)
{
	struct link_table *t = NULL;
	const struct link_ends *ends = session_ends(s);
	TRY(links_new(ends, &t, e));
	uint64_t all = (uint64_t)t->machines * (uint64_t)(t->machines + 1) / 2, done = 0;
	int rc = 0;
	for (int x = 0; x < t->machines && rc >= 0; x++)
		for (int y = x; y < t->machines && rc >= 0; y++) {
			int a = links_speaker(ends, t, x, -1),
			    b = links_speaker(ends, t, y, x == y ? a : -1);
			if (o->part)
				o->part(o->ctx, "measuring links", done++, all);
			if (o->stop && *o->stop)
				rc = err_set(e, ERR_CANCELLED,
					     "interrupted while links were measured");
			else if (b >= 0)
				rc = one_pair(s, t, a, b, o, e);
		}
	if (rc < 0) {
		links_free(t);
		return rc;
	}
	if (o->part)
		o->part(o->ctx, "measuring links", all, all);
	session_set_links(s, t);
	*t_p = t;
	return 0;
}
