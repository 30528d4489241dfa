/* SPDX-License-Identifier: Apache-2.0 */
/* group_there.c - see group_there.h. */
#include "engine/group_there.h"

#include "base/err.h"
#include "base/mem.h"
#include "dev/pin.h"

static int room(void *ctx, int k, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	struct group_sum *g = s->of;
	const size_t want = (size_t)k + 1, bytes = count * sizeof(float);
	if (!mem_grow(&g->room, &g->room_cap, want, sizeof(struct dev_buf *)))
		return err_nomem(e, want * sizeof(struct dev_buf *), "the sum of gradients");
	while (g->rooms < want)
		g->room[g->rooms++] = NULL;
	if (g->room[k] && g->room[k]->size >= bytes)
		return 0;
	dev_free(g->room[k]);
	g->room[k] = NULL;
	return dev_alloc(g->exchange->dev, bytes, &g->room[k], e);
}

static struct dev_ref at(const struct group_sum *g, struct reduce_at v)
{
	return DEV_REF(g->room[v.room], v.at * sizeof(float));
}

static int own(void *ctx, size_t k, size_t first, size_t count, struct reduce_at to, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_copy(&s->of->grads[s->array], k, first, count, at(s->of, to), e);
}

static int result(void *ctx, size_t first, size_t count, struct reduce_at from, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_take(&s->of->grads[s->array], first, count, at(s->of, from), e);
}

static int send(void *ctx, int place, uint32_t number, struct reduce_at from, size_t count,
		struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_send_sum_from(s->of->exchange, place, s->array, number, at(s->of, from),
				      count, e);
}

static int receive(void *ctx, int place, uint32_t number, struct reduce_at to, size_t count,
		   struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_receive_sum_to(s->of->exchange, place, s->array, number, at(s->of, to),
				       count, e);
}

static int add(void *ctx, struct reduce_at to, struct reduce_at from, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_add_to(at(s->of, to), at(s->of, from), count, e);
}

static int clear(void *ctx, struct reduce_at to, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return dev_zero(at(s->of, to), count * sizeof(float), e);
}

static const struct reduce_there on_the_card = { room, own, result, send, receive, add, clear };

const struct reduce_there *group_there(struct dev *d, const struct plan_message *p)
{
	return dev_pins(d) && p->reduce_dtype == DT_F32 ? &on_the_card : NULL;
}

void group_there_release(struct group_sum *g)
{
	for (size_t k = 0; k < g->rooms; k++)
		dev_free(g->room[k]);
	mem_free(g->room);
}
