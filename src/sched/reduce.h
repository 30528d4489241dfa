/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h - the sum of a chunk's gradients over the members of a group: what the instructions
 * SEND_SUMS and REDUCE do. One row in reduce.def and one file for each way.
 *
 * The array of gradients (grads.h) is cut into segments, whose messages follow each other, and the
 * work on a segment into phases: a phase may need messages of the others. Each member does the same
 * phases of the same segments in the same order, as soon as their messages are there
 * (reduce_advance) or at the end (reduce_finish). The second half of a segment's phases takes turns
 * with the first half of the next segment's, so that something is on the wire while a member works
 * on what came. What a row gets: the
 * terms of the sum with their places (sched/sum.h), its own terms' numbers, sending to a member
 * and receiving from it by number. What it leaves: the sum of all terms, the same bits on every
 * member.
 *
 * Where the members share the training state, each owns a piece of the array and needs only the sum
 * of that (reduce-scatter): `cut` says which.
 *
 * A message's number says what it is: each row numbers those of a segment from 0 on, and segment s
 * has the numbers from s * row->numbers() on. A member without microbatches contributes no term and
 * gets the sum. */
#ifndef HS_SCHED_REDUCE_H
#define HS_SCHED_REDUCE_H

#include "sched/sum.h"

#include <stdint.h>

struct err;
struct reduction;
struct reduce_there;

/* What a reduction works on and with; for tests it is not a worker. */
struct reduce_io {
	/* Numbers [first, first + count) of this member's k-th term. */
	int (*own)(void *ctx, size_t k, size_t first, size_t count, float *v, struct err *e);
	int (*result)(void *ctx, size_t first, size_t count, const float *v, struct err *e);
	int (*send)(void *ctx, int place, uint32_t number, const float *v, size_t count,
		    struct err *e);
	int (*receive)(void *ctx, int place, uint32_t number, float *v, size_t count,
		       struct err *e);
	/* Makes the numbers of a complete sum those that a message can carry. MAY be NULL. */
	void (*round)(void *ctx, float *v, size_t count);
	/* 1: receiving it will not wait; 0: it would */
	int (*has)(void *ctx, int place, uint32_t number, struct err *e);
	void *ctx;
	/* MAY be NULL: the sum of all members' numbers by the network's own collective, one at a
	 * time. The first takes a copy of `v`, the last waits and fills `v`. */
	int (*all_send)(void *ctx, const float *v, size_t count, struct err *e);
	int (*all_has)(void *ctx, struct err *e);
	int (*all_receive)(void *ctx, float *v, size_t count, struct err *e);
	/* MAY be NULL: rows add on the device, but for collective ones. */
	const struct reduce_there *there;
};

/* Where numbers are: the at-th number of a room and those behind it. Rooms have numbers from 0. */
struct reduce_at {
	int room;
	size_t at;
};

/* The rooms and the numbers of this member are on a device that adds, and that moves numbers to and
 * from links itself (dev/pin.h), between cards of one machine from card to card. Messages, their
 * order and bits are the same as without, so members with and without can be in one group. */
struct reduce_there {
	/* Makes a room for `count` numbers; what was in it may be lost. */
	int (*room)(void *ctx, int room, size_t count, struct err *e);
	int (*own)(void *ctx, size_t k, size_t first, size_t count, struct reduce_at to,
		   struct err *e);
	int (*result)(void *ctx, size_t first, size_t count, struct reduce_at from, struct err *e);
	int (*send)(void *ctx, int place, uint32_t number, struct reduce_at from, size_t count,
		    struct err *e);
	int (*receive)(void *ctx, int place, uint32_t number, struct reduce_at to, size_t count,
		       struct err *e);
	int (*add)(void *ctx, struct reduce_at to, struct reduce_at from, size_t count,
		   struct err *e);
	int (*clear)(void *ctx, struct reduce_at to, size_t count, struct err *e); /* zeros */
};

/* What a row needs to say how long it takes (plan/sum_time.h fills it in). Times are seconds, bytes
 * those on a link. */
struct reduce_links {
	int n; /* members */
	double bytes, segments;
	bool scatter; /* each gets the sum of its piece only */
	/* every member sends bytes / n to each other one at once; `terms`: once for each term */
	double (*all_to_all)(const void *ctx, bool terms);
	/* the slowest message of a member to any other one; of a member to the next one, in `parts`
	 * of which each is sent on when it has come */
	double (*slowest)(const void *ctx, double bytes);
	double (*around)(const void *ctx, double bytes, int parts);
	const void *ctx;
};

struct reducer {
	const char *name, *help;
	bool exact; /* it can keep the order SUM_EXACT */
	/* it needs the three all_* of reduce_io, in float32; segments one after the other */
	bool collective;
	size_t segment; /* numbers of a segment; 0: the default */
	/* How many message numbers a segment has, and how many messages a member gets in one. */
	uint32_t (*numbers)(const struct reduction *r);
	uint32_t (*receives)(const struct reduction *r);
	/* MAY: sends what needs nothing of the others. Called for a few segments ahead. */
	int (*begin)(struct reduction *r, size_t segment, struct err *e);
	uint32_t (*phases)(const struct reduction *r);
	/* 1: everything that the phase receives is there */
	int (*ready)(struct reduction *r, size_t segment, uint32_t phase, struct err *e);
	int (*phase)(struct reduction *r, size_t segment, uint32_t phase, struct err *e);
	/* On the links: what begin() sends, and the rest. */
	void (*time)(const struct reduce_links *l, double *begin_s_p, double *finish_s_p);
};

#define REDUCER(id) extern const struct reducer reducer_##id;
#include "sched/reduce.def"
#undef REDUCER

const struct reducer *reducer_at(size_t i); /* NULL past the end */
const struct reducer *reducer_find(const char *name);
/* For groups of at most `largest` members. `collective`: the network has one of its own, which
 * suits. */
const struct reducer *reducer_default(enum sum_order o, int largest, bool collective);

struct reduction {
	/* The caller's. */
	const struct reducer *how;
	struct reduce_io io;
	const struct sum_terms *terms;
	int me, n;      /* place and size of the group */
	size_t count;   /* of all numbers */
	size_t largest; /* numbers of a segment at most; 0: the default */
	/* [n+1] place p owns the numbers [cut[p], cut[p+1]), and gets their sum only; NULL: every
	 * place gets all sums */
	const size_t *cut;
	/* Private. */
	size_t begun, period; /* segments */
	uint32_t turn;        /* in this period */
	struct reduce_room {
		float *p;
		size_t cap;
	} * room; /* [rooms] of the host, kept from call to call */
	size_t rooms, room_cap;
};

/* The sums of a round, by array of gradients: the numbers of their messages are
 * [0, numbers[array]). */
struct sums_due {
	const uint32_t *numbers; /* [arrays], borrowed until the round ends */
	const size_t *most;      /* [arrays], likewise: bytes of a message; NULL: not known */
	int arrays;
	size_t messages; /* of other members, how many can wait at once */
};

size_t reduce_segments(const struct reduction *r);
/* A segment is a piece for each place, which adds it up: numbers [*first_p, *first_p + returned) of
 * the array. Without `cut` the pieces of a segment follow each other and are equal; with it they
 * are equal shares of what each place owns. */
size_t reduce_piece(const struct reduction *r, size_t segment, int place, size_t *first_p);
/* Where the piece of a place begins when the pieces of a segment follow each other; of place n: how
 * many numbers the segment has. */
size_t reduce_place_at(const struct reduction *r, size_t segment, int place);
/* How many messages of others there can be at once that this member has not received. */
size_t reduce_receives(const struct reduction *r);

/* SEND_SUMS; a member without terms does not call it. Without it the work begins with the first of
 * the two calls below. */
int reduce_begin(struct reduction *r, struct err *e);
/* Numbers of segments that were begun and are not done; with so many of all sums together no more
 * should be begun: others keep what they cannot use yet in memory. */
size_t reduce_under_way(const struct reduction *r);
#define REDUCE_MOST_UNDER_WAY ((size_t)1 << 24)
/* Does what it can without waiting; 1: the sum is complete. */
int reduce_advance(struct reduction *r, struct err *e);
/* REDUCE: all of it. The next SEND_SUMS comes after reduce_reset(). */
int reduce_finish(struct reduction *r, struct err *e);
void reduce_reset(struct reduction *r);
void reduce_release(struct reduction *r); /* its rooms */

/* The number of parts in which the gradients of the largest chunk of a group are summed: `layers`
 * layers with `bytes` of gradients each. */
int reduce_parts(double bytes, int64_t layers);

/* For rows: 1 where the message is there or empty. */
int reduce_has(struct reduction *r, int place, uint32_t number, size_t count, struct err *e);
/* At `to`: this member's numbers of the pieces [from, end) of a segment, piece after piece, its
 * terms added (0 without any), in rooms that were made. The room `other` is for the second term
 * and those behind it. */
int reduce_own_sum(struct reduction *r, size_t segment, int from, int end, struct reduce_at to,
		   int other, struct err *e);
/* The sum of pieces [from, end) of a segment is there, piece after piece: what this member needs of
 * it. */
int reduce_result(struct reduction *r, size_t segment, int from, int end, struct reduce_at v,
		  struct err *e);
/* The k-th own term in the order of the terms, or -1: term i belongs to another. */
int reduce_own_term(const struct reduction *r, int i);

/* For rows (sum_rooms.c): rooms of the host, or of the device that adds. */
int reduce_room(struct reduction *r, int room, size_t count, struct err *e);
int reduce_own(struct reduction *r, int k, size_t first, size_t count, struct reduce_at to,
	       struct err *e);
int reduce_take(struct reduction *r, size_t first, size_t count, struct reduce_at from,
		struct err *e);
int reduce_send(struct reduction *r, int place, uint32_t number, struct reduce_at from,
		size_t count, struct err *e);
int reduce_receive(struct reduction *r, int place, uint32_t number, struct reduce_at to,
		   size_t count, struct err *e);
int reduce_add(struct reduction *r, struct reduce_at to, struct reduce_at from, size_t count,
	       struct err *e);
int reduce_clear(struct reduction *r, struct reduce_at to, size_t count, struct err *e);
/* Of a complete sum, before it is sent or used. On a device there is nothing to round: float32. */
void reduce_round(const struct reduction *r, struct reduce_at v, size_t count);
/* Of a collective row, whose rooms are the host's. */
float *reduce_numbers(const struct reduction *r, struct reduce_at v);

#endif
