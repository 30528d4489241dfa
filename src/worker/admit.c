/* SPDX-License-Identifier: Apache-2.0 */
/* admit.c - see admit.h. */
#include "worker/admit.h"

#include "worker/kept.h"

#include <stdio.h>
#include <string.h>

static void wrong_key(const struct guest *g, const char *what, const char *key, char *why,
		      size_t cap)
{
	snprintf(why, cap, "the key of the connecting process, %s, is not that of the %s (%s)",
		 link_peer_key(g->link), what, key);
}

static void wrong_job(const struct admit *s, const struct guest *g, char *why, size_t cap)
{
	snprintf(why, cap, "the connecting process is in job %016llx, worker '%s' in job %016llx",
		 (unsigned long long)g->h.job, s->id, (unsigned long long)s->job);
}

void admit_coordinator(const void *who, const struct guest *g, const void *ctx, char *why,
		       size_t cap)
{
	const struct admit *s = who;
	(void)ctx;
	if (!guest_has_key(g->link, s->coordinator_key))
		wrong_key(g, "coordinator", s->coordinator_key, why, cap);
	else if (strcmp(g->h.to, s->id))
		snprintf(why, cap,
			 "worker '%s' is wanted, this is worker '%s' on %s: the ports or ids "
			 "differ between the configurations",
			 g->h.to, s->id, s->host);
	else
		kept_refuse(s->kept, g->h.run, g->h.epoch, g->h.job, why, cap);
}

bool admit_later(const struct admit *s, const struct guests *g)
{
	for (int k = 0; k < g->n; k++) {
		const struct guest *v = &g->list[k];
		char why[600] = "";
		if (!v->known || v->h.role != HELLO_COORDINATOR ||
		    !kept_precedes(s->kept, v->h.run, v->h.epoch))
			continue;
		admit_coordinator(s, v, NULL, why, sizeof why);
		if (!why[0])
			return true;
	}
	return false;
}

/* A member of the next stage, or a later one of the group, that PLAN lets connect to this
 * worker. */
static bool expected_back(const struct plan_message *p, int number)
{
	const struct crew *c = &p->crew;
	const struct member *m = &c->member[number];
	if (strcmp(m->best, MEMBER_WAIT))
		return false;
	return m->stage == plan_stage(p) ? m->place > plan_place(p)
					 : m->stage == crew_stage_behind(c, plan_stage(p));
}

/* ctx: the plan. A member of the previous stage, or one before this worker in its own group, by its
 * number and key. */
void admit_neighbour(const void *who, const struct guest *g, const void *ctx, char *why, size_t cap)
{
	const struct admit *s = who;
	const struct plan_message *p = ctx;
	const struct crew *c = &p->crew;
	int number = g->h.member < (uint32_t)c->n ? (int)g->h.member : -1;
	int stage = crew_stage_of(c, number), before = crew_stage_before(c, plan_stage(p));
	bool beside =
		stage >= 0 && stage == plan_stage(p) && c->member[number].place < plan_place(p);
	if (strcmp(g->h.to, s->id))
		snprintf(why, cap, "worker '%s' is wanted, this is '%s'", g->h.to, s->id);
	else if (stage < 0 || (g->h.role == HELLO_BEHIND ? !expected_back(p, number)
							 : stage != before && !beside))
		snprintf(why, cap,
			 "the connecting process is member %u, stage %d; worker '%s' is stage %d, "
			 "place %d, and has stage %d before it",
			 g->h.member, stage, s->id, plan_stage(p), plan_place(p), before);
	else if (!guest_has_key(g->link, c->member[number].key))
		wrong_key(g, c->member[number].name, c->member[number].key, why, cap);
	else if (strcmp(g->h.model, p->model))
		snprintf(why, cap, "%s has model %.16s, worker '%s' model %.16s",
			 c->member[number].name, g->h.model, s->id, p->model);
	else if (g->h.job != s->job)
		wrong_job(s, g, why, cap);
	else if (g->h.epoch != s->epoch)
		snprintf(why, cap, "the members of the job have changed since it connected");
}

/* ctx: the key of the worker that measures. */
void admit_probe(const void *who, const struct guest *g, const void *ctx, char *why, size_t cap)
{
	const struct admit *s = who;
	if (!guest_has_key(g->link, ctx))
		wrong_key(g, "worker that measures", ctx, why, cap);
	else if (strcmp(g->h.to, s->id))
		snprintf(why, cap, "worker '%s' is wanted, this is '%s'", g->h.to, s->id);
	else if (g->h.job != s->job)
		wrong_job(s, g, why, cap);
}
