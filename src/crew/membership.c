/* SPDX-License-Identifier: Apache-2.0 */
/* membership.c - see membership.h. */
#include "crew/membership.h"

void membership_init(struct membership *m, struct membership_seat *seat, int n)
{
	*m = (struct membership){ .phase = CREW_PLANS, .seat = seat, .n = n };
	for (int i = 0; i < n; i++)
		seat[i] = (struct membership_seat){ .state = MEMBER_GONE };
}

static bool any(const struct membership *m, enum member_state s)
{
	for (int i = 0; i < m->n; i++)
		if (m->seat[i].state == s)
			return true;
	return false;
}

/* What follows from the states of all. */
static void settle(struct membership *m)
{
	if (m->phase == CREW_GATHERS && !any(m, MEMBER_ASKED))
		m->phase = CREW_PLANS;
	else if (m->phase == CREW_PREPARES && !any(m, MEMBER_PLANNED))
		m->phase = CREW_RUNS;
}

void membership_here(struct membership *m, int member)
{
	bool learns = m->epoch && (m->phase == CREW_PLANS || m->phase == CREW_GATHERS);
	m->seat[member] = learns ? (struct membership_seat){ MEMBER_ASKED, true }
				 : (struct membership_seat){ MEMBER_FREE, false };
	if (learns)
		m->phase = CREW_GATHERS;
}

bool membership_gone(struct membership *m, int member)
{
	struct membership_seat *s = &m->seat[member];
	bool had = s->state == MEMBER_PLANNED || s->state == MEMBER_READY;
	*s = (struct membership_seat){ .state = MEMBER_GONE };
	if (!had)
		settle(m);
	return had;
}

void membership_change(struct membership *m)
{
	m->epoch++;
	m->phase = CREW_GATHERS;
	for (int i = 0; i < m->n; i++)
		if (m->seat[i].state != MEMBER_GONE)
			m->seat[i] = (struct membership_seat){ MEMBER_ASKED, true };
	settle(m);
}

bool membership_forgot(struct membership *m, int member, uint32_t epoch)
{
	struct membership_seat *s = &m->seat[member];
	if (m->phase != CREW_GATHERS || s->state != MEMBER_ASKED || s->due || epoch != m->epoch)
		return false;
	s->state = MEMBER_FREE;
	settle(m);
	return true;
}

bool membership_plan(struct membership *m, const bool *used)
{
	bool one = false;
	if (m->phase != CREW_PLANS)
		return false;
	for (int i = 0; i < m->n; i++) {
		if (used[i] && m->seat[i].state != MEMBER_FREE)
			return false;
		one |= used[i];
	}
	if (!one)
		return false;
	for (int i = 0; i < m->n; i++)
		if (used[i])
			m->seat[i] = (struct membership_seat){ MEMBER_PLANNED, true };
	m->phase = CREW_PREPARES;
	return true;
}

bool membership_ready(struct membership *m, int member, uint32_t epoch)
{
	struct membership_seat *s = &m->seat[member];
	if (m->phase != CREW_PREPARES || s->state != MEMBER_PLANNED || s->due || epoch != m->epoch)
		return false;
	s->state = MEMBER_READY;
	settle(m);
	return true;
}

struct membership_action membership_next(struct membership *m)
{
	for (int i = 0; i < m->n; i++) {
		struct membership_seat *s = &m->seat[i];
		if (!s->due)
			continue;
		s->due = false;
		return (struct membership_action){ s->state == MEMBER_ASKED ? MEMBERSHIP_FORGET
									    : MEMBERSHIP_PLAN,
						   i };
	}
	return (struct membership_action){ MEMBERSHIP_NOTHING, -1 };
}

int membership_count(const struct membership *m)
{
	int n = 0;
	for (int i = 0; i < m->n; i++)
		n += m->seat[i].state != MEMBER_GONE;
	return n;
}
