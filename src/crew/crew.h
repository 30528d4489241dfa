/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - the members of a job: for each its worker, its stage and its place in the group of that
 * stage; from this follow its neighbours.
 *
 * Only this code knows which member holds what. Coordinator and workers have the same crew: PLAN
 * carries the coordinator's. A member keeps its number for the whole job, also in frames; the
 * number does not depend on its stage. Members are added, lost and moved between steps only.
 * Schedules (sched/sched.h) do not use members: they get stages, chunks and the number of a stage.
 *
 * Pure: no clock, no link. Not safe for several threads. */
#ifndef HS_CREW_CREW_H
#define HS_CREW_CREW_H

#include "net/net.h"
#include "sched/sched.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum { CREW_MOST = 4096, MEMBER_ID = 128, MEMBER_NAME = 256 };

struct member {
	char id[MEMBER_ID];        /* of the worker: "local", "box2" */
	char device[MEMBER_ID];    /* that it drives: "cpu", "AMD Radeon RX 7900 XTX" */
	char machine[MEMBER_ID];   /* name of its host */
	char name[MEMBER_NAME];    /* for messages: "worker 'box2' (10.0.0.2)" */
	char address[NET_ADDRESS]; /* its listening address of the configuration */
	char best[NET_ADDRESS];    /* in PLAN: its fastest address, tried first; "": not known */
	char key[KEY_TEXT];        /* its public key; "": its links have none */
	int stage;                 /* -1: it holds nothing */
	int place;                 /* in the group of its stage, from 0; -1: in none */
	int share;                 /* of its group's microbatches (sched_deal) */
	int state_share;   /* of its group's training state, in millionths; 0 also: not shared */
	bool only_experts; /* of its stage it has some experts and nothing else (model/deal.h) */
	bool gone;         /* lost, or not needed: it holds nothing until crew_return() */
};

struct crew {
	int stages, chunks;    /* of the plan; 0 before there is one */
	int parts;             /* of a chunk's gradients (sched/sched.h) */
	bool tied;             /* front and end train one embedding, which is also the head */
	struct member *member; /* [n], by number */
	int n;
	size_t cap;
	uint32_t changes; /* the number of times that a member was added, lost or moved */
};

/* A crew of zeros is empty. */
void crew_release(struct crew *c);
int crew_copy(const struct crew *from, struct crew *c_p, struct err *e);

/* A new member that holds nothing yet; returns its number. */
int crew_add(struct crew *c, const struct member *m, struct err *e);
/* Marks it as gone; the members after it in its group move up by one place. */
void crew_lose(struct crew *c, int number);
/* Somebody works under this number again: the same worker, started anew. It holds nothing. */
void crew_return(struct crew *c, int number);
/* To the last place in the group of another stage, with a share of its work; stage -1: to none.
 * ERR_INTERNAL for a member that is gone and for a stage that does not exist. */
int crew_move(struct crew *c, int number, int stage, int share, struct err *e);
/* The shape of a new plan, with gradients in one part: no member holds a stage until
 * crew_move(). */
void crew_shape(struct crew *c, int stages, int chunks, bool tied);
/* Whether every stage has a member that computes; ERR_USAGE names the first that has none. */
int crew_check(const struct crew *c, struct err *e);

int crew_stage_of(const struct crew *c, int number); /* -1: none */
int crew_place_of(const struct crew *c, int number); /* -1: none */
/* The member at a place of a stage's group; -1: there is none. */
int crew_at(const struct crew *c, int stage, int place);
int crew_group_size(const struct crew *c, int stage);
/* How many of them run microbatches: the first ones. */
int crew_homes(const struct crew *c, int stage);
/* The members that hold a stage, by stage and then by place; number_p has room for c->n. Returns
 * how many there are. */
int crew_order(const struct crew *c, int *number_p);

/* The same as plain integers, for schedules. `room`: stages + n integers, to which the shape
 * refers. */
struct sched_shape crew_sched_shape(const struct crew *c, int microbatches, int *room);

/* Whether a member holds the front of the model (the embedding), or its end (the loss). */
bool crew_is_front(const struct crew *c, int number);
bool crew_is_end(const struct crew *c, int number);
/* The stages that a stage sends activations to and gets them from; -1: none. Stages with several
 * chunks form a ring. So do those of a tied model: the last one then has the first one behind it,
 * for the embedding's gradient and value. One stage alone has no neighbours. */
int crew_stage_behind(const struct crew *c, int stage);
int crew_stage_before(const struct crew *c, int stage);

#endif
