/* SPDX-License-Identifier: Apache-2.0 */
/* session_change.c - see session.h: the members of a running job change. Everybody who is there
 * forgets the plan, so that another one can follow over the same links. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

static const double look_every = 0.25; /* seconds between two checks of time and `stop` */

bool session_has(const struct session *s, int member)
{
	return s->seat[member].state == SEAT_JOINED && !s->seat[member].leaves;
}

int session_out(struct session *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].out) {
			s->seat[i].out = false;
			if (s->seat[i].state == SEAT_JOINED)
				return i;
		}
	return -1;
}

int session_ask_out(struct session *s, const char *id, struct err *e)
{
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].state == SEAT_JOINED && !strcmp(s->crew.member[i].id, id)) {
			s->seat[i].out = s->seat[i].unwanted = true;
			return 0;
		}
	return err_set(e, ERR_USAGE, "no worker '%.100s' is in this job", id);
}

void session_set_leaving(struct session *s, int member, bool leaves)
{
	s->seat[member].leaves = leaves;
	if (!leaves)
		s->seat[member].unwanted = false;
}

void session_leave_later(struct session *s, int member)
{
	s->seat[member].leaves = false;
	s->seat[member].out = true;
}

static bool is_news(const struct session_seat *w)
{
	return (w->state == SEAT_LOST || w->state == SEAT_ABORTED) && !w->buried;
}

bool session_can_regroup(const struct session *s, const struct err *why)
{
	bool any = false;
	if (why->code != ERR_NET && why->code != ERR_DEVICE)
		return false;
	for (int i = 0; i < s->n; i++) {
		const struct session_seat *w = &s->seat[i];
		if (w->state == SEAT_ABORTED && !w->buried && w->why.code != ERR_NET &&
		    w->why.code != ERR_DEVICE)
			return false;
		any |= is_news(w) || w->broken;
	}
	return any;
}

int session_loss(struct session *s, struct err *why_p)
{
	for (int i = 0; i < s->n; i++) {
		struct session_seat *w = &s->seat[i];
		if ((w->state != SEAT_LOST && w->state != SEAT_ABORTED) || w->named)
			continue;
		w->named = true;
		*why_p = w->why;
		return i;
	}
	return -1;
}

/* One that comes and goes must not keep the others from their work: it is taken back when they have
 * worked HOLD times as long as its coming has cost them, with it or without. */
static void hold(struct session *s, int i)
{
	enum { HOLD = 5 };
	struct session_seat *w = &s->seat[i];
	const int64_t now = clock_now(), came = w->came, until = w->worked ? w->worked : now;
	w->came = 0;
	if (!came)
		return;
	w->hold = until + HOLD * (until - came);
	if (w->hold > now)
		log_info("%s came %.3g s ago and has gone again: the others go on without it for "
			 "%.3g s",
			 w->name, clock_seconds(now - came), clock_seconds(w->hold - now));
}

/* `patience`: seconds for its process to end. A worker that was lost gets no second chance on the
 * same link, also when it only hangs. */
static void bury(struct session *s, int i, double patience)
{
	struct session_seat *w = &s->seat[i];
	if (w->link)
		link_close(w->link);
	w->link = NULL;
	w->buried = true;
	w->broken = false;
	hold(s, i);
	if (w->seat.spec->kind != SEAT_THREAD)
		seat_stop(&w->seat, patience, true);
	crew_lose(&s->crew, i);
}

void session_bury_idle(struct session *s)
{
	for (int i = 0; i < s->n; i++)
		if (is_news(&s->seat[i]) && (s->idle || crew_stage_of(&s->crew, i) < 0))
			bury(s, i, s->seat[i].state == SEAT_ABORTED ? 3 : 0);
}

int session_order(struct session *s, int i, enum frame_kind kind, double seconds, struct err *e)
{
	const struct frame f = { .kind = kind,
				 .job = s->id,
				 .epoch = s->epoch,
				 .from = FRAME_COORDINATOR,
				 .to = FRAME_MEMBER(i) };
	return link_send_frame(s->seat[i].link, &f, net_in(seconds), e);
}

void session_let_go(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	struct err ignored = { 0 };
	session_order(s, i, FRAME_FINISH, 2, &ignored);
	w->state = SEAT_LOST;
	w->told = w->named = true;
	w->leaves = false;
	if (w->seat.pid > 0) /* it is not started again */
		w->unwanted = true;
	membership_gone(&s->members, i);
	bury(s, i, 10);
}

/* One that takes nothing is lost after a while; a stop does not wait for that. */
static int send_forget(struct session *s, int i, struct err *e)
{
	const int64_t until = net_in(s->patience.stall);
	struct err why = { 0 };
	while (session_order(s, i, FRAME_FORGET, look_every, &why) < 0) {
		TRY(session_interrupted(s, e));
		if (why.code != ERR_NET || link_state(s->seat[i].link) == LINK_LOST ||
		    clock_now() > until) {
			session_mark_lost(s, i, &why);
			return 0;
		}
		err_clear(&why);
	}
	return 0;
}

/* Who has not answered FORGET until now is not asked again; but one that still sends what it was
 * asked for before, such as its part of the state, is waited for. One that loads its layers has as
 * long as it would have had without a change. */
static void give_up_on_silent(struct session *s, int64_t began)
{
	const int64_t now = clock_now();
	const bool late = clock_seconds(now - began) > s->patience.silent;
	for (int i = 0; i < s->n; i++) {
		const struct session_seat *w = &s->seat[i];
		const double limit = w->loads ? s->patience.silent : s->patience.stall;
		const int64_t last = w->heard > began ? w->heard : began;
		struct err why = { 0 };
		if (s->state[i].state != MEMBER_ASKED ||
		    (!late && clock_seconds(now - last) <= limit))
			continue;
		err_set(&why, ERR_NET,
			"it is connected but did not answer for %.3g s (stall_timeout)", limit);
		session_mark_lost(s, i, &why);
	}
}

static int await_forgot(struct session *s, struct err *e)
{
	const int64_t began = clock_now();
	while (s->members.phase == CREW_GATHERS) {
		struct session_event ev;
		session_next(s, net_in(look_every), &ev);
		if (ev.kind == SESSION_MESSAGE) {
			if (ev.f.kind == FRAME_FORGOT)
				membership_forgot(&s->members, ev.member, (uint32_t)ev.f.epoch);
			net_msg_release(&ev.msg);
		}
		TRY(session_interrupted(s, e));
		give_up_on_silent(s, began);
	}
	return 0;
}

/* Who has lost whom since the last change; only those who are there now count. */
static void note_pairs(struct session *s)
{
	for (int i = 0; i < s->n; i++) {
		const int other = s->seat[i].lost - 1;
		if (other < 0 || other >= s->n || other == i || s->seat[i].state != SEAT_JOINED ||
		    s->seat[other].state != SEAT_JOINED || apart_is(&s->apart, i, other) ||
		    (other < i && s->seat[other].lost == i + 1)) /* both said it */
			continue;
		if (apart_broke(&s->apart, i, other, s->seat[i].made, clock_now()))
			log_warn("'%s' and '%s' do not reach each other: they are planned around",
				 s->crew.member[i].id, s->crew.member[other].id);
	}
	for (int i = 0; i < s->n; i++)
		s->seat[i].lost = 0;
}

bool session_apart(const struct session *s, int a, int b) { return apart_is(&s->apart, a, b); }

bool session_pair_again(struct session *s, int *a_p, int *b_p)
{
	while (apart_again(&s->apart, clock_now(), a_p, b_p))
		if (s->seat[*a_p].state == SEAT_JOINED && s->seat[*b_p].state == SEAT_JOINED)
			return true;
	return false;
}

int session_regroup(struct session *s, struct err *e)
{
	struct membership_action a;
	for (int i = 0; i < s->n; i++) {
		s->seat[i].loads =
			s->members.phase == CREW_PREPARES && s->state[i].state == MEMBER_PLANNED;
		s->seat[i].broken = false;
		weights_out_close(s->seat[i].weights);
		s->seat[i].weights = NULL;
		if (is_news(&s->seat[i]))
			bury(s, i, s->seat[i].state == SEAT_ABORTED ? 3 : 0);
		else if (s->seat[i].fresh && s->seat[i].state == SEAT_JOINED) {
			s->seat[i].fresh = false;
			s->seat[i].came = clock_now();
		}
	}
	membership_change(&s->members);
	s->epoch = FRAME_EPOCH(s->term, s->members.epoch);
	s->step = 0;
	while ((a = membership_next(&s->members)).act == MEMBERSHIP_FORGET)
		TRY(send_forget(s, a.member, e));
	TRY(await_forgot(s, e));
	for (int i = 0; i < s->n; i++) {
		s->seat[i].broken = false;
		s->seat[i].progress = (struct progress){ 0 };
		if (is_news(&s->seat[i]))
			bury(s, i, s->seat[i].state == SEAT_ABORTED ? 3 : 0);
	}
	note_pairs(s);
	return 0;
}
