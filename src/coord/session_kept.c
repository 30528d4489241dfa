/* SPDX-License-Identifier: Apache-2.0 */
/* session_kept.c - see session.h: the state that workers have kept of a run whose coordinator was
 * lost, to the coordinator that is started anew. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "crew/snapshot.h"
#include "proto/record.h"

#include <string.h>

static const double look_every = 0.25; /* seconds */

/* Which of the offers is taken: of those made last (of steps that are computed again, the second
 * time), the newest. */
static int find_newest(const struct session *s, const bool *tried, uint64_t least)
{
	int best = -1;
	for (int i = 0; i < s->n; i++) {
		const struct welcome *w = &s->caps[i], *b = best < 0 ? NULL : &s->caps[best];
		if (!session_is_live(s, i) || !w->keeps || tried[i] || w->kept_step < least)
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

/* The bytes of the state of all. */
static uint64_t whole_state(const struct job *j)
{
	uint64_t n = 0;
	for (size_t i = 0; i < j->nparam; i++) {
		const struct trained_param *p = &j->param[i];
		n += p->count * sizeof(float);
		for (int k = 0; k < p->states; k++)
			n += p->kind[k].count * dtype_size(p->kind[k].dtype);
	}
	return n;
}

/* Takes what one member sends, until it is done. Others, who were too late, are not heard. */
static int take_from(struct session *s, int member, struct snapshot *into, struct buf *record,
		     struct err *e)
{
	uint64_t room = whole_state(s->job);
	struct err full = { 0 }; /* the disk does not take it: it is sent to the end all the same */
	bool recorded = false;
	TRY(session_send(s, member, FRAME_SAVE, 0, 0, NULL, 0, e));
	for (int64_t until = net_in(s->patience.silent); clock_now() < until;) {
		struct session_event ev;
		TRY(session_interrupted(s, e));
		session_next(s, net_in(look_every), &ev);
		if (ev.kind == SESSION_LOST && ev.member == member) {
			*e = ev.why;
			return e->code;
		}
		if (ev.kind != SESSION_MESSAGE)
			continue;
		const bool done = ev.member == member && ev.f.kind == FRAME_SAVED;
		int rc = 0;
		if (ev.member == member && ev.f.kind == FRAME_STATE)
			rc = session_take_state(s, member, &ev.f, into, &room, e);
		else if (ev.member == member && ev.f.kind == FRAME_RECORD && !recorded)
			rc = take_record(s, &ev.f, &s->caps[member], record, e);
		else if (ev.member == member && !done)
			rc = err_set(e, ERR_PROTOCOL, "%s sent %s %s", session_name(s, member),
				     frame_name(ev.f.kind), recorded ? "again" : "before PLAN");
		recorded |= ev.f.kind == FRAME_RECORD;
		net_msg_release(&ev.msg);
		if (rc == ERR_IO)
			full = *e, rc = 0;
		if (done && full.code)
			*e = full, rc = full.code;
		if (rc < 0 || done)
			return rc;
		if (ev.member == member)
			until = net_in(s->patience.silent);
	}
	return err_set(e, ERR_NET, "%s does not send what it has kept", session_name(s, member));
}

static bool same_offer(const struct session *s, int a, int b)
{
	return s->caps[a].kept_step == s->caps[b].kept_step &&
	       s->caps[a].kept_origin == s->caps[b].kept_origin;
}

/* Of all who offer what this member does. 1: it is whole. */
static int pull_offer(struct session *s, int newest, bool *asked, struct snapshot *into,
		      struct buf *record, struct err *e)
{
	buf_reset(record);
	session_state_reset(s);
	memset(asked, 0, (size_t)s->n * sizeof *asked);
	for (int i = 0; i < s->n; i++) {
		if (!session_is_live(s, i) || !s->caps[i].keeps || !same_offer(s, i, newest) ||
		    is_known(s, asked, i))
			continue;
		int rc = take_from(s, i, into, record, e);
		asked[i] = rc >= 0;
		if (rc == ERR_NOMEM || rc == ERR_CANCELLED || rc == ERR_IO)
			return rc;
		if (rc < 0 && rc != ERR_NET)
			return 0;
		if (rc < 0) /* another one may have the same */
			err_clear(e);
	}
	return session_state_whole(s, e) >= 0 && record->n;
}

int session_pull_kept(struct session *s, uint64_t least, struct snapshot *into, struct buf *record,
		      struct err *e)
{
	bool *tried = mem_array(2 * (size_t)s->n + 1, sizeof *tried), *asked = tried + s->n;
	int rc = tried ? 0 : err_nomem(e, (size_t)s->n, "workers"), newest = 0;
	buf_reset(record);
	/* one that offers what nobody has costs the others nothing */
	while (rc == 0 && (newest = find_newest(s, tried, least)) >= 0) {
		err_clear(e);
		rc = snapshot_begin(into, e);
		if (rc >= 0)
			rc = pull_offer(s, newest, asked, into, record, e);
		for (int i = 0; i < s->n; i++)
			tried[i] |= same_offer(s, i, newest);
		if (rc == 0 && e->code)
			log_warn("what '%s' has kept of this run is not used: %s",
				 s->crew.member[newest].id, e->msg);
	}
	mem_free(tried);
	return rc;
}
