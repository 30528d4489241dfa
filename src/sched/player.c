/* SPDX-License-Identifier: Apache-2.0 */
/* player.c - the player's memory: lists, map, scratch, timeline. */
#include "sched/player.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct player *player_new(void) { return mem_zalloc(sizeof(struct player)); }

void player_free(struct player *pl)
{
	if (!pl)
		return;
	for (size_t i = 0; i < pl->list_cap; i++)
		instr_list_release(&pl->list[i]);
	mem_free(pl->list);
	mem_free(pl->worker);
	mem_free(pl->report);
	mem_free(pl->next_f);
	mem_free(pl->next_b);
	mem_free(pl->part);
	mem_free(pl->sums);
	mem_free(pl->sum);
	mem_free(pl->sum_free);
	mem_free(pl->gather);
	mem_free(pl->sent);
	mem_free(pl->arrive);
	mem_free(pl->taken);
	mem_free(pl->queue_next);
	mem_free(pl->route);
	mem_free(pl->wire_active);
	mem_free(pl->wire_first);
	mem_free(pl->wire_route);
	mem_free(pl->ready);
	mem_free(pl->span);
	mem_free(pl->shape.v);
	mem_free(pl->room.v);
	events_release(&pl->queue);
	mem_free(pl);
}

void player_span(struct player *pl, int who, const struct instr *in, double begin, double end)
{
	if (!pl->want_spans || !(end > begin))
		return;
	if (!mem_grow(&pl->span, &pl->span_cap, pl->spans + 1, sizeof *pl->span)) {
		pl->nomem = true;
		return;
	}
	pl->span[pl->spans++] = (struct play_span){ who, *in, begin, end };
}

int player_refuse(const struct player *pl, int who, const struct instr *in, const char *why,
		  struct err *e)
{
	return err_set(e, ERR_INTERNAL,
		       "schedule: stage %d, place %d, instruction %zu (%s, microbatch %d, chunk "
		       "%d): %s",
		       map_stage(&pl->map, who), map_place(&pl->map, who), pl->worker[who].pc,
		       instr_name(in->kind), in->microbatch, in->chunk, why);
}

int player_reserve(struct player *pl, const struct play *p, struct err *e)
{
	size_t n = (size_t)pl->map.members, all = n * (size_t)p->chunks,
	       msgs = (size_t)pl->map.messages, stages = (size_t)p->stages,
	       parts = p->parts ? (size_t)p->parts : 1,
	       sums = pl->map.first ? stages * (size_t)p->chunks * parts : 0,
	       gathers = p->gather ? 2 * stages * (size_t)p->chunks : 0,
	       routes = (size_t)pl->map.routes + 1;

	if (!mem_grow(&pl->worker, &pl->worker_cap, n, sizeof *pl->worker) ||
	    !mem_grow(&pl->report, &pl->report_cap, n, sizeof *pl->report) ||
	    !mem_grow(&pl->next_f, &pl->f_cap, all, sizeof *pl->next_f) ||
	    !mem_grow(&pl->next_b, &pl->b_cap, all, sizeof *pl->next_b) ||
	    !mem_grow(&pl->part, &pl->part_cap, all, sizeof *pl->part) ||
	    !mem_grow(&pl->sums, &pl->sums_cap, sums ? all * parts : 1, sizeof *pl->sums) ||
	    !mem_grow(&pl->sum, &pl->sum_cap, sums + 1, sizeof *pl->sum) ||
	    !mem_grow(&pl->gather, &pl->gather_cap, gathers + 1, sizeof *pl->gather) ||
	    !mem_grow(&pl->sum_free, &pl->free_cap, stages, sizeof *pl->sum_free) ||
	    !mem_grow(&pl->sent, &pl->sent_cap, msgs, sizeof *pl->sent) ||
	    !mem_grow(&pl->arrive, &pl->arrive_cap, msgs, sizeof *pl->arrive) ||
	    !mem_grow(&pl->taken, &pl->taken_cap, msgs, sizeof *pl->taken) ||
	    !mem_grow(&pl->queue_next, &pl->queue_cap, msgs, sizeof *pl->queue_next) ||
	    !mem_grow(&pl->route, &pl->route_cap, routes, sizeof *pl->route) ||
	    !mem_grow(&pl->wire_active, &pl->active_cap, p->wires + 1, sizeof *pl->wire_active) ||
	    !mem_grow(&pl->wire_first, &pl->first_cap, p->wires + 2, sizeof *pl->wire_first) ||
	    !mem_grow(&pl->wire_route, &pl->wroute_cap, 2 * routes, sizeof *pl->wire_route) ||
	    !mem_grow(&pl->ready, &pl->ready_cap, 2 * n + 1, sizeof *pl->ready))
		return err_nomem(e, msgs * sizeof(double), "the player");
	memset(pl->worker, 0, n * sizeof *pl->worker);
	memset(pl->report, 0, n * sizeof *pl->report);
	memset(pl->part, 0, all * sizeof *pl->part);
	memset(pl->sent, 0xff, msgs * sizeof *pl->sent); /* NaN */
	memset(pl->arrive, 0xff, msgs * sizeof *pl->arrive);
	memset(pl->taken, 0, msgs * sizeof *pl->taken);
	memset(pl->wire_active, 0, (p->wires + 1) * sizeof *pl->wire_active);
	memset(pl->wire_first, 0, (p->wires + 2) * sizeof *pl->wire_first);
	for (size_t k = 0; k < n; k++) {
		pl->worker[k].on = pl->worker[k].here = pl->worker[k].asked = NOTHING;
		pl->worker[k].reduced = NAN;
	}
	for (size_t i = 0; i < sums; i++)
		pl->sum[i] = (struct sum){ .end = NAN };
	for (size_t i = 0; i < gathers; i++)
		pl->gather[i] = (struct gathering){ .end = NAN };
	if (sums) {
		memset(pl->sums, SUM_OPEN, all * parts);
		memset(pl->sum_free, 0, stages * sizeof *pl->sum_free);
		for (size_t i = 0; i < all; i++)
			pl->next_f[i] = pl->next_b[i] = pl->map.begin[i % n];
	} else {
		memset(pl->next_f, 0, all * sizeof *pl->next_f);
		memset(pl->next_b, 0, all * sizeof *pl->next_b);
	}
	return 0;
}

static bool same_numbers(const int *a, const int *b, size_t n)
{
	return n == 0 || !memcmp(a, b, n * sizeof *a);
}

static bool same_shape(const struct shape *a, const struct play *p, size_t members)
{
	const size_t S = (size_t)p->stages;
	return a->stages == p->stages && a->chunks == p->chunks &&
	       a->microbatches == p->microbatches && a->parts == p->parts && a->tied == p->tied &&
	       a->gather == p->gather && a->alone == p->alone && a->groups == !!p->members &&
	       a->shares == (p->members && p->share) &&
	       (!a->groups || same_numbers(a->v, p->members, S)) &&
	       (!a->shares || same_numbers(a->v + S, p->share, members));
}

int player_shape(struct player *pl, const struct play *p, struct err *e)
{
	struct shape *s = &pl->shape;

	if (p->stages < 1 || p->stages > SCHED_MAX_STAGES || p->chunks < 1 ||
	    p->chunks > SCHED_MAX_CHUNKS || p->microbatches < 1 ||
	    p->microbatches > SCHED_MAX_MICROBATCHES / p->chunks || p->parts < 0 ||
	    p->parts > SCHED_MAX_PARTS)
		return err_set(e, ERR_INTERNAL, "player: %d stages, %d chunks, %d microbatches",
			       p->stages, p->chunks, p->microbatches);
	if (same_shape(s, p, (size_t)pl->map.members)) {
		pl->map.p = p;
		return 0;
	}
	pl->sched = NULL;
	s->stages = 0;
	TRY(play_map_make(&pl->map, p, &pl->room, e));
	const size_t S = (size_t)p->stages, n = (size_t)pl->map.members;
	if (p->members) {
		if (!mem_grow(&s->v, &s->cap, S + n, sizeof *s->v))
			return err_nomem(e, (S + n) * sizeof *s->v, "the player");
		memcpy(s->v, p->members, S * sizeof *s->v);
		if (p->share)
			memcpy(s->v + S, p->share, n * sizeof *s->v);
	}
	s->stages = p->stages;
	s->chunks = p->chunks;
	s->microbatches = p->microbatches;
	s->parts = p->parts;
	s->tied = p->tied;
	s->gather = p->gather;
	s->alone = p->alone;
	s->groups = p->members != NULL;
	s->shares = s->groups && p->share;
	return 0;
}

int player_lists(struct player *pl, const struct sched *s, const struct play *in, struct err *e)
{
	const struct sched_shape shape = { in->stages,
					   in->chunks,
					   in->microbatches,
					   in->members,
					   in->members ? in->share : NULL,
					   in->parts,
					   in->gather,
					   in->alone,
					   NULL };
	const size_t had = pl->list_cap, n = (size_t)pl->map.members;

	if (pl->sched == s)
		return 0;
	pl->sched = NULL;
	if (!mem_grow(&pl->list, &pl->list_cap, n, sizeof *pl->list))
		return err_nomem(e, n * sizeof *pl->list, "the player");
	for (size_t i = had; i < pl->list_cap; i++)
		pl->list[i] = (struct instr_list){ 0 };
	for (int i = 0; i < pl->map.members; i++) {
		const int stage = map_stage(&pl->map, i), place = map_place(&pl->map, i);
		TRY(sched_build(s, &shape, stage, place, &pl->list[i], e));
		if (in->tied)
			TRY(sched_add_tied(&shape, stage, place, &pl->list[i], e));
	}
	pl->sched = s;
	return 0;
}
