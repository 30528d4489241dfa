/* SPDX-License-Identifier: Apache-2.0 */
/* park.c - see park.h. */
#include "pass/park.h"

#include "base/err.h"
#include "base/mem.h"

enum { NO_SLOT = -1 };

void park_begin(struct park *p, bool on, struct dev *dev, struct slots *slots)
{
	*p = (struct park){ .on = on, .dev = dev, .slots = slots, .slot = NO_SLOT };
}

static struct parked *find(struct park *p, enum park_what what, int chunk, int mb)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->item[i].mb == mb && p->item[i].chunk == chunk && p->item[i].what == what)
			return &p->item[i];
	return NULL;
}

bool park_has(struct park *p, enum park_what what, int chunk, int mb)
{
	const struct parked *i = find(p, what, chunk, mb);
	return i && (p->slot == NO_SLOT || i != &p->item[p->coming]);
}

int park_settle(struct park *p, struct err *e)
{
	if (p->slot == NO_SLOT)
		return 0;
	TRY(dev_download_end(p->dev, e));
	slots_free(p->slots, &p->slots->slot[p->slot]);
	p->slot = NO_SLOT;
	return 0;
}

int park_put(struct park *p, enum park_what what, int chunk, int mb, struct slot *sl,
	     struct dev_ref from, size_t n, struct err *e)
{
	TRY(park_settle(p, e));
	struct parked *i = NULL;
	for (size_t k = 0; k < p->n && !i; k++)
		if (p->item[k].mb < 0)
			i = &p->item[k];
	if (!i) {
		if (!mem_grow(&p->item, &p->cap, p->n + 1, sizeof *p->item))
			return err_nomem(e, (p->n + 1) * sizeof *p->item, "offloaded activations");
		i = &p->item[p->n++];
		*i = (struct parked){ .mb = -1 };
	}
	if (i->cap < n) {
		mem_free(i->bytes);
		i->bytes = mem_array(n, 1);
		i->cap = i->bytes ? n : 0;
	}
	if (!i->bytes)
		return err_nomem(e, n, "offloaded activations");
	i->what = what;
	i->chunk = chunk;
	i->mb = mb;
	i->n = n;
	TRY(dev_download_begin(i->bytes, from, n, e));
	p->moved += n;
	p->beside += dev_beside(p->dev) ? n : 0;
	p->slot = sl - p->slots->slot;
	p->coming = i - p->item;
	return 0;
}

int park_take(struct park *p, enum park_what what, int chunk, int mb, struct dev_ref to, bool last,
	      struct err *e)
{
	struct parked *i = find(p, what, chunk, mb);
	if (!i)
		return 0;
	TRY(park_settle(p, e));
	const int busy = dev_busy(p->dev, e);
	if (busy < 0)
		return busy;
	TRY(dev_upload(to, i->bytes, i->n, e));
	p->moved += i->n;
	p->beside += busy ? i->n : 0;
	if (last)
		i->mb = -1;
	return 1;
}

uint64_t park_bytes(const struct park *p)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < p->n; i++)
		bytes += p->item[i].cap;
	return bytes;
}

void park_reset(struct park *p)
{
	for (size_t i = 0; i < p->n; i++)
		p->item[i].mb = -1;
	p->slot = NO_SLOT;
}

void park_release(struct park *p)
{
	for (size_t i = 0; i < p->n; i++)
		mem_free(p->item[i].bytes);
	mem_free(p->item);
	*p = (struct park){ .slot = NO_SLOT };
}
