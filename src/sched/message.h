/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - who does what in a play (play.h), and its messages by number: which one an
 * instruction sends or receives, and between whom it goes. Pure.
 *
 * First come the activations, then the gradients, each numbered as its receiver names it: (chunk,
 * stage, microbatch); then those of a tied embedding: its gradient to each member of the front, its
 * value to each member of the end. */
#ifndef HS_SCHED_MESSAGE_H
#define HS_SCHED_MESSAGE_H

#include "sched/play.h"

enum { NOTHING = -1 };

/* Members are numbered as in play.h. */
struct play_map {
	const struct play *p;
	int members, routes;
	long messages; /* with those of a tied embedding */
	/* NULL where every stage has one member: its number is that of its stage. */
	const int *first;     /* [stages + 1] the member at place 0 */
	const int *stage;     /* [members] */
	const int *begin;     /* [members] its first microbatch */
	const int *by, *next; /* [stages * microbatches] the member that runs it; its next one */
	const int *route;     /* [stages + 1] the first route between a stage and the next */
};

/* Where the arrays of a map are, kept from map to map. */
struct play_room {
	int *v;
	size_t cap;
};

int play_map_make(struct play_map *m, const struct play *p, struct play_room *room, struct err *e);

static inline int map_stage(const struct play_map *m, int member)
{
	return m->first ? m->stage[member] : member;
}

static inline int map_place(const struct play_map *m, int member)
{
	return m->first ? member - m->first[m->stage[member]] : 0;
}

static inline int map_first(const struct play_map *m, int stage)
{
	return m->first ? m->first[stage] : stage;
}

static inline int map_size(const struct play_map *m, int stage)
{
	return m->first ? m->first[stage + 1] - m->first[stage] : 1;
}

/* The member of `stage` that runs a microbatch. */
static inline int map_by(const struct play_map *m, int stage, int microbatch)
{
	return m->first ? m->by[(long)stage * m->p->microbatches + microbatch] : stage;
}

/* The microbatch that a member runs after this one; play.microbatches: none. */
static inline int map_next(const struct play_map *m, int stage, int microbatch)
{
	return m->first ? m->next[(long)stage * m->p->microbatches + microbatch] : microbatch + 1;
}

/* The message of a member's instruction; NOTHING when no such message exists. */
long message_of(const struct play_map *m, int member, const struct instr *in);
/* Of the kinds that sched_add_tied() adds: their messages have no route. */
bool message_is_tied(enum instr_kind k);
/* Not for those of a tied embedding. */
bool message_is_grad(const struct play_map *m, long id);
int message_to(const struct play_map *m, long id); /* a member */
/* Index into play.route; not for those of a tied embedding. */
int message_route(const struct play_map *m, long id);
/* How many messages a complete step has. */
long messages_due(const struct play_map *m);

#endif
