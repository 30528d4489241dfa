/* SPDX-License-Identifier: Apache-2.0 */
/* session_back.c - see session.h: workers of a running job that were lost and come back. Each is
 * brought in step by step between the steps of the job, without waiting. */
#include "coord/session_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { STARTS = 8 /* times that a process is started again */ };
static const double again_after = 2; /* seconds between two attempts */
static const double patience = 10;   /* seconds for connecting, and for WELCOME */
/* A name service that is gone too holds up the step for seconds when it is asked for a worker's
 * address: so many times as long it is left alone. */
static const int rests = 10;

/* Until the next attempt. */
static void give_up(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	if (w->link)
		link_close(w->link);
	w->link = NULL;
	w->state = SEAT_LOST;
	w->again = net_in(again_after);
}

/* A process that this one had started is started again, but not for ever; one that was started by
 * hand is not. */
static bool start(struct session *s, struct session_seat *w)
{
	char how[64];
	struct err why = { 0 };
	if (w->seat.spec->kind != SEAT_PROCESS || w->seat.pid <= 0)
		return true;
	seat_ended(&w->seat, how, sizeof how);
	if (w->seat.running)
		return true;
	if (w->starts++ >= STARTS)
		return false;
	if (seat_start(&w->seat, s->program, &why) < 0)
		log_debug("%s", why.msg);
	return why.code == 0;
}

static void dial(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	const struct seat_spec *p = w->seat.spec;
	struct err why = { 0 };
	if (p->kind == SEAT_INVITED) {
		w->link = reception_take(s->reception, p->key);
	} else if (p->kind != SEAT_THREAD && start(s, w)) {
		const int64_t began = clock_now();
		if (net_dial(s->net, p->address, p->key, net_in(patience), &w->link, &why) < 0)
			w->link = NULL;
		const int64_t rest = clock_now() + rests * (clock_now() - began);
		w->hold = w->hold > rest ? w->hold : rest;
	}
	if (!w->link)
		return give_up(s, i);
	w->state = SEAT_DIALLED;
	w->again = net_in(patience);
}

/* One that cannot take part in this job any more. */
static bool fits(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	if (s->caps[i].formats & 1u << s->job->opt.act)
		return true;
	log_warn("%s is back, but cannot compute in %s: it is not used", w->name,
		 dtype_name(s->job->opt.act));
	w->unwanted = true;
	return false;
}

static void welcome(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	w->buried = w->told = w->named = w->broken = false;
	w->progress = (struct progress){ 0 };
	w->advanced = clock_now();
	w->clock = (struct clock_pair){ 0 };
	w->why = (struct err){ 0 };
	w->tried[0] = 0;
	w->fresh = true;
	w->came = w->worked = 0;
	crew_return(&s->crew, i);
	session_name_seat(s, i);
	w->back = true;
}

/* Once for each reason that holds for two attempts: it may only be starting. */
static void say_why_not(struct session_seat *w, const struct err *why)
{
	log_debug("%s: %s", w->name, why->msg);
	if (strncmp(w->tried, why->msg, sizeof w->tried - 1)) {
		snprintf(w->tried, sizeof w->tried, "%.159s", why->msg);
		w->said = false;
	} else if (!w->said) {
		log_warn("%s does not come%s: %s. It is tried again and again", w->name,
			 w->seat.spec->late ? "" : " back", why->msg);
		w->said = true;
	}
}

static void advance(struct session *s, int i)
{
	struct session_seat *w = &s->seat[i];
	struct err why = { 0 };
	int rc = 0;
	if (!w->link && clock_now() >= w->again && (s->idle || clock_now() >= w->hold))
		dial(s, i);
	if (!w->link)
		return;
	if (w->state == SEAT_DIALLED && link_state(w->link) == LINK_UP)
		rc = session_greet(s, i, &why);
	if (rc >= 0 && w->state == SEAT_GREETED)
		rc = session_take_welcome(s, i, &why);
	if (rc > 0 && fits(s, i)) {
		welcome(s, i);
		return;
	}
	if (rc != 0 || link_state(w->link) == LINK_LOST || clock_now() > w->again) {
		if (!rc && link_state(w->link) == LINK_LOST)
			link_wait_up(w->link, NET_NOW, &why);
		if (why.code)
			say_why_not(w, &why);
		membership_gone(&s->members, i);
		give_up(s, i);
	}
}

void session_look_for_lost(struct session *s)
{
	if (s->began)
		session_bury_idle(s);
	for (int i = 0; s->began && i < s->n; i++)
		if (s->seat[i].buried && !s->seat[i].unwanted)
			advance(s, i);
}

int session_back(struct session *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].back) {
			s->seat[i].back = false;
			if (s->seat[i].state == SEAT_JOINED)
				return i;
		}
	return -1;
}

bool session_somebody_back(const struct session *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->seat[i].back && s->seat[i].state == SEAT_JOINED)
			return true;
	return false;
}

int session_there(const struct session *s) { return membership_count(&s->members); }

static int idle(struct session *s, double seconds, struct err *e)
{
	for (int64_t end = net_in(seconds); clock_now() < end && !session_somebody_back(s);) {
		struct session_event ev;
		session_next(s, net_in(0.2), &ev);
		if (ev.kind == SESSION_MESSAGE)
			net_msg_release(&ev.msg);
		if (ev.kind == SESSION_LOST)
			return 0;
		TRY(session_interrupted(s, e));
		session_look_for_lost(s);
	}
	return 0;
}

int session_idle(struct session *s, double seconds, struct err *e)
{
	s->idle = true;
	const int rc = idle(s, seconds, e);
	s->idle = false;
	return rc;
}
