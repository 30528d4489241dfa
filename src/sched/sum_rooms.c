/* SPDX-License-Identifier: Apache-2.0 */
/* sum_rooms.c - see reduce.h: rooms for the numbers of a sum, and what a row does with them, on
 * the host or on the device that adds. */
#include "sched/reduce.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

static const struct reduce_there *there(const struct reduction *r)
{
	return r->how->collective ? NULL : r->io.there;
}

static int no_memory(size_t bytes, struct err *e)
{
	return err_nomem(e, bytes, "the sum of gradients");
}

int reduce_room(struct reduction *r, int room, size_t count, struct err *e)
{
	const size_t want = (size_t)room + 1;
	if (there(r))
		return there(r)->room(r->io.ctx, room, count, e);
	if (!mem_grow(&r->room, &r->room_cap, want, sizeof *r->room))
		return no_memory(want * sizeof *r->room, e);
	while (r->rooms < want)
		r->room[r->rooms++] = (struct reduce_room){ 0 };
	struct reduce_room *k = &r->room[room];
	return mem_grow(&k->p, &k->cap, count ? count : 1, sizeof *k->p)
		       ? 0
		       : no_memory(count * sizeof *k->p, e);
}

float *reduce_numbers(const struct reduction *r, struct reduce_at v)
{
	return r->room[v.room].p + v.at;
}

int reduce_own(struct reduction *r, int k, size_t first, size_t count, struct reduce_at to,
	       struct err *e)
{
	return there(r) ? there(r)->own(r->io.ctx, (size_t)k, first, count, to, e)
			: r->io.own(r->io.ctx, (size_t)k, first, count, reduce_numbers(r, to), e);
}

int reduce_take(struct reduction *r, size_t first, size_t count, struct reduce_at from,
		struct err *e)
{
	return there(r) ? there(r)->result(r->io.ctx, first, count, from, e)
			: r->io.result(r->io.ctx, first, count, reduce_numbers(r, from), e);
}

int reduce_send(struct reduction *r, int place, uint32_t number, struct reduce_at from,
		size_t count, struct err *e)
{
	return there(r) ? there(r)->send(r->io.ctx, place, number, from, count, e)
			: r->io.send(r->io.ctx, place, number, reduce_numbers(r, from), count, e);
}

int reduce_receive(struct reduction *r, int place, uint32_t number, struct reduce_at to,
		   size_t count, struct err *e)
{
	return there(r) ? there(r)->receive(r->io.ctx, place, number, to, count, e)
			: r->io.receive(r->io.ctx, place, number, reduce_numbers(r, to), count, e);
}

int reduce_add(struct reduction *r, struct reduce_at to, struct reduce_at from, size_t count,
	       struct err *e)
{
	if (there(r))
		return there(r)->add(r->io.ctx, to, from, count, e);
	float *const sum = reduce_numbers(r, to);
	const float *const other = reduce_numbers(r, from);
	for (size_t i = 0; i < count; i++)
		sum[i] += other[i];
	return 0;
}

int reduce_clear(struct reduction *r, struct reduce_at to, size_t count, struct err *e)
{
	if (there(r))
		return there(r)->clear(r->io.ctx, to, count, e);
	memset(reduce_numbers(r, to), 0, count * sizeof(float));
	return 0;
}

void reduce_round(const struct reduction *r, struct reduce_at v, size_t count)
{
	if (r->io.round && !there(r))
		r->io.round(r->io.ctx, reduce_numbers(r, v), count);
}

void reduce_release(struct reduction *r)
{
	for (size_t k = 0; k < r->rooms; k++)
		mem_free(r->room[k].p);
	mem_free(r->room);
	r->room = NULL;
	r->rooms = r->room_cap = 0;
}
