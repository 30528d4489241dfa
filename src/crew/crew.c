/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c - see crew.h. */
#include "crew/crew.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

void crew_release(struct crew *c)
{
	mem_free(c->member);
	*c = (struct crew){ 0 };
}

int crew_copy(const struct crew *from, struct crew *c_p, struct err *e)
{
	struct crew c = *from;
	c.member = NULL;
	c.cap = 0;
	if (!mem_grow(&c.member, &c.cap, (size_t)(from->n ? from->n : 1), sizeof *c.member))
		return err_nomem(e, (size_t)from->n * sizeof *c.member, "the members of a job");
	if (from->n)
		memcpy(c.member, from->member, (size_t)from->n * sizeof *c.member);
	*c_p = c;
	return 0;
}

int crew_add(struct crew *c, const struct member *m, struct err *e)
{
	if (c->n >= CREW_MOST)
		return err_set(e, ERR_USAGE, "more than %d workers in one job", CREW_MOST);
	if (!mem_grow(&c->member, &c->cap, (size_t)c->n + 1, sizeof *c->member))
		return err_nomem(e, ((size_t)c->n + 1) * sizeof *c->member, "the members of a job");
	c->member[c->n] = *m;
	c->member[c->n].stage = c->member[c->n].place = -1;
	c->member[c->n].gone = false;
	c->changes++;
	return c->n++;
}

static void leave_group(struct crew *c, int number)
{
	struct member *m = &c->member[number];
	for (int i = 0; i < c->n && m->stage >= 0; i++)
		if (c->member[i].stage == m->stage && c->member[i].place > m->place)
			c->member[i].place--;
	m->stage = m->place = -1;
	m->share = m->state_share = 0;
	m->only_experts = false;
}

void crew_lose(struct crew *c, int number)
{
	leave_group(c, number);
	c->member[number].gone = true;
	c->changes++;
}

void crew_return(struct crew *c, int number)
{
	c->member[number].gone = false;
	c->changes++;
}

int crew_move(struct crew *c, int number, int stage, int share, struct err *e)
{
	if (number < 0 || number >= c->n || c->member[number].gone || stage < -1 ||
	    stage >= c->stages)
		return err_set(e, ERR_INTERNAL, "member %d cannot get stage %d of %d", number,
			       stage, c->stages);
	leave_group(c, number);
	c->member[number].place = stage < 0 ? -1 : crew_group_size(c, stage);
	c->member[number].stage = stage;
	c->member[number].share = stage < 0 ? 0 : share;
	c->changes++;
	return 0;
}

void crew_shape(struct crew *c, int stages, int chunks, bool tied)
{
	c->stages = stages;
	c->chunks = chunks;
	c->parts = 1;
	c->tied = tied;
	for (int i = 0; i < c->n; i++) {
		c->member[i].stage = c->member[i].place = -1;
		c->member[i].share = c->member[i].state_share = 0;
		c->member[i].only_experts = false;
	}
	c->changes++;
}

int crew_check(const struct crew *c, struct err *e)
{
	for (int s = 0; s < c->stages; s++) {
		int64_t sum = 0;
		if (!crew_group_size(c, s))
			return err_set(e, ERR_USAGE, "no worker holds stage %d of %d", s,
				       c->stages);
		for (int k = 0, m; (m = crew_at(c, s, k)) >= 0; k++)
			sum += c->member[m].share;
		if (!sum)
			return err_set(
				e, ERR_USAGE,
				"the shares of stage %d are all 0: no worker would compute it", s);
	}
	return 0;
}

int crew_stage_of(const struct crew *c, int number)
{
	return number >= 0 && number < c->n ? c->member[number].stage : -1;
}

int crew_place_of(const struct crew *c, int number)
{
	return number >= 0 && number < c->n ? c->member[number].place : -1;
}

int crew_at(const struct crew *c, int stage, int place)
{
	for (int i = 0; i < c->n && stage >= 0; i++)
		if (c->member[i].stage == stage && c->member[i].place == place)
			return i;
	return -1;
}

int crew_group_size(const struct crew *c, int stage)
{
	int n = 0;
	for (int i = 0; i < c->n && stage >= 0; i++)
		n += c->member[i].stage == stage;
	return n;
}

int crew_homes(const struct crew *c, int stage)
{
	int n = 0;
	for (int i = 0; i < c->n && stage >= 0; i++)
		n += c->member[i].stage == stage && !c->member[i].only_experts;
	return n;
}

int crew_order(const struct crew *c, int *number_p)
{
	int n = 0;
	for (int s = 0; s < c->stages; s++)
		for (int k = 0, m; (m = crew_at(c, s, k)) >= 0; k++)
			number_p[n++] = m;
	return n;
}

struct sched_shape crew_sched_shape(const struct crew *c, int microbatches, int *room)
{
	int n = 0, groups = 0, *share = room + c->stages;
	for (int s = 0; s < c->stages; s++) {
		room[s] = 0;
		for (int k = 0, m; (m = crew_at(c, s, k)) >= 0 && !c->member[m].only_experts;
		     k++, room[s]++)
			share[n++] = c->member[m].share;
		groups += room[s] > 1;
	}
	return (struct sched_shape){ .stages = c->stages,
				     .chunks = c->chunks,
				     .microbatches = microbatches,
				     .members = groups ? room : NULL,
				     .share = groups ? share : NULL,
				     .parts = c->parts };
}

bool crew_is_front(const struct crew *c, int number) { return crew_stage_of(c, number) == 0; }

bool crew_is_end(const struct crew *c, int number)
{
	int s = crew_stage_of(c, number);
	return s >= 0 && s == c->stages - 1;
}

static bool is_ring(const struct crew *c) { return (c->chunks > 1 || c->tied) && c->stages > 1; }

int crew_stage_behind(const struct crew *c, int stage)
{
	if (stage + 1 < c->stages)
		return stage + 1;
	return is_ring(c) ? 0 : -1;
}

int crew_stage_before(const struct crew *c, int stage)
{
	if (stage > 0)
		return stage - 1;
	return is_ring(c) ? c->stages - 1 : -1;
}
