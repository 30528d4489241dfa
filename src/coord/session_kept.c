/* SPDX-License-Identifier: Apache-2.0 */
/* session_kept.c - see session.h: the state that workers have kept of a run whose coordinator was
 * lost, to the coordinator that is started anew. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "crew/snapshot.h"
#include "proto/record.h"

#include <string.h>

static const double look_every = 0.25; /* seconds */

/* Which of the offers is taken: of those made last (of steps that are computed again, the second
 * time), the newest. */
static int find_newest(const struct session *s, uint64_t least)
{
	int best = -1;
	for (int i = 0; i < s->n; i++) {
		const struct welcome *w = &s->caps[i], *b = best < 0 ? NULL : &s->caps[best];
		if (!session_is_live(s, i) || !w->keeps || w->kept_step < least)
			continue;
		if (!b || w->kept_origin > b->kept_origin ||
		    (w->kept_origin == b->kept_origin && w->kept_step > b->kept_step))
			best = i;
	}
	return best;
}

/* Whether somebody else, who was asked, has the same part: another member of its group. */
static bool is_known(const struct session *s, const bool *asked, int member)
{
	const struct welcome *w = &s->caps[member];
	for (int i = 0; i < s->n && !w->kept_part; i++)
		if (asked[i] && s->caps[i].kept_plan == w->kept_plan &&
		    s->caps[i].kept_stage == w->kept_stage)
			return true;
	return false;
}

/* A record that says that what follows the step is done is the better one. */
static int take_record(const struct session *s, const struct frame *f, const struct welcome *w,
		       struct buf *record, struct err *e)
{
	struct run_record r, had;
	TRY(record_read(f->payload, f->size, &r, e));
	if (r.run != s->run || r.st.step != w->kept_step || r.st.origin != w->kept_origin)
		return err_set(e, ERR_PROTOCOL, "RECORD of another state than that of WELCOME");
	if (record->n && record_read(record->p, record->n, &had, e) >= 0 && !had.owed)
		return 0;
	buf_reset(record);
	buf_add(record, f->payload, f->size);
	return buf_ok(record, e);
}

/* Takes what one member sends, until it is done. */
static int take_from(struct session *s, int member, struct snapshot *into, struct buf *record,
		     struct err *e)
{
	TRY(session_send(s, member, FRAME_SAVE, 0, 0, NULL, 0, e));
	for (int64_t until = net_in(s->patience.silent); clock_now() < until;) {
		struct session_event ev;
		session_next(s, net_in(look_every), &ev);
		if (ev.kind == SESSION_LOST && ev.member == member) {
			*e = ev.why;
			return e->code;
		}
		TRY(session_interrupted(s, e));
		if (ev.kind != SESSION_MESSAGE)
			continue;
		const bool done = ev.f.kind == FRAME_SAVED;
		int rc = 0;
		if (ev.f.kind == FRAME_STATE)
			rc = session_take_state(s, ev.member, &ev.f, into, true, e);
		else if (ev.f.kind == FRAME_RECORD)
			rc = take_record(s, &ev.f, &s->caps[ev.member], record, e);
		else if (!done)
			rc = err_set(e, ERR_PROTOCOL, "%s sent %s before PLAN",
				     session_name(s, ev.member), frame_name(ev.f.kind));
		net_msg_release(&ev.msg);
		if (rc < 0 || done)
			return rc;
		until = net_in(s->patience.silent);
	}
	return err_set(e, ERR_NET, "%s does not send what it has kept", session_name(s, member));
}

int session_pull_kept(struct session *s, uint64_t least, struct snapshot *into, struct buf *record,
		      struct err *e)
{
	const int newest = find_newest(s, least);
	buf_reset(record);
	if (newest < 0)
		return 0;
	bool *asked = mem_array((size_t)s->n, sizeof *asked);
	int rc = asked ? snapshot_begin(into, e) : err_nomem(e, (size_t)s->n, "workers");
	session_state_reset(s);
	for (int i = 0; i < s->n && rc >= 0; i++) {
		if (!session_is_live(s, i) || !s->caps[i].keeps ||
		    s->caps[i].kept_step != s->caps[newest].kept_step ||
		    s->caps[i].kept_origin != s->caps[newest].kept_origin || is_known(s, asked, i))
			continue;
		rc = take_from(s, i, into, record, e);
		asked[i] = rc >= 0;
		if (rc == ERR_NET) { /* another one may have the same */
			err_clear(e);
			rc = 0;
		}
	}
	mem_free(asked);
	if (rc < 0)
		return rc == ERR_NOMEM || rc == ERR_CANCELLED ? rc : 0;
	if (session_state_whole(s, e) < 0 || !record->n)
		return 0;
	return 1;
}
