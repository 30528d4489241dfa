/* SPDX-License-Identifier: Apache-2.0 */
/* group_there.c - see group_there.h. */
#include "engine/group_there.h"

#include "base/err.h"
#include "base/mem.h"
#include "dev/pin.h"

/* Makes room number `k`, of `count` numbers at least; its contents may be lost. */
static int room(struct group_sum *g, int k, size_t count, struct dev_ref *at_p, struct err *e)
{
	const size_t want = (size_t)k + 1, bytes = count * sizeof(float);
	if (!mem_grow(&g->room, &g->room_cap, want, sizeof(struct dev_buf *)))
		return err_nomem(e, want * sizeof(struct dev_buf *), "the sum of gradients");
	while (g->rooms < want)
		g->room[g->rooms++] = NULL;
	if (!g->room[k] || g->room[k]->size < bytes) {
		dev_free(g->room[k]);
		g->room[k] = NULL;
		TRY(dev_alloc(g->exchange->dev, bytes, &g->room[k], e));
	}
	*at_p = DEV_REF(g->room[k], 0);
	return 0;
}

static struct dev_ref made(const struct group_sum *g, int k) { return DEV_REF(g->room[k], 0); }

static int own(void *ctx, size_t k, size_t first, size_t count, int to, struct err *e)
{
	const struct array_sum *s = ctx;
	struct dev_ref at;
	TRY(room(s->of, to, count, &at, e));
	return grads_copy(&s->of->grads[s->array], k, first, count, at, e);
}

static int result(void *ctx, size_t first, size_t count, int from, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_take(&s->of->grads[s->array], first, count, made(s->of, from), e);
}

static int send(void *ctx, int place, uint32_t number, int from, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return exchange_send_sum_from(s->of->exchange, place, s->array, number, made(s->of, from),
				      count, e);
}

static int receive(void *ctx, int place, uint32_t number, int to, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	struct dev_ref at;
	TRY(room(s->of, to, count, &at, e));
	return exchange_receive_sum_to(s->of->exchange, place, s->array, number, at, count, e);
}

static int add(void *ctx, int to, int from, size_t count, struct err *e)
{
	const struct array_sum *s = ctx;
	return grads_add_to(made(s->of, to), made(s->of, from), count, e);
}

static const struct reduce_there on_the_card = { own, result, send, receive, add };

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
