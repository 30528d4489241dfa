/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c - see ranges.h. */
#include "base/ranges.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

static void remove_at(struct ranges *r, size_t k)
{
	memmove(r->range + k, r->range + k + 1, (r->n - k - 1) * sizeof *r->range);
	r->n--;
}

int ranges_add(struct ranges *r, uint64_t first, uint64_t end, struct err *e)
{
	size_t k = 0;
	if (first >= end)
		return 0;
	while (k < r->n && r->range[k].end < first)
		k++;
	/* the first that touches it or lies behind it */
	if (k < r->n && r->range[k].end > first && r->range[k].first < end)
		return err_set(e, ERR_PROTOCOL, "numbers [%llu, %llu) came twice",
			       (unsigned long long)first, (unsigned long long)end);
	const bool left = k < r->n && r->range[k].end == first;
	const size_t next = left ? k + 1 : k;
	if (next < r->n && r->range[next].first < end)
		return err_set(e, ERR_PROTOCOL, "numbers [%llu, %llu) came twice",
			       (unsigned long long)first, (unsigned long long)end);
	const bool right = next < r->n && r->range[next].first == end;
	if (left) {
		r->range[k].end = right ? r->range[next].end : end;
		if (right)
			remove_at(r, next);
		return 0;
	}
	if (right) {
		r->range[next].first = first;
		return 0;
	}
	if (r->n >= RANGES_MOST)
		return err_set(e, ERR_PROTOCOL, "numbers in more than %d pieces", RANGES_MOST);
	if (!mem_grow(&r->range, &r->cap, r->n + 1, sizeof *r->range))
		return err_nomem(e, (r->n + 1) * sizeof *r->range, "ranges of numbers");
	memmove(r->range + k + 1, r->range + k, (r->n - k) * sizeof *r->range);
	r->range[k] = (struct range){ first, end };
	r->n++;
	return 0;
}

bool ranges_next(const struct ranges *r, uint64_t at, uint64_t end, uint64_t *to_p)
{
	size_t k = 0;
	while (k < r->n && r->range[k].end <= at)
		k++;
	const bool there = k < r->n && r->range[k].first <= at;
	const uint64_t to = k == r->n ? end : there ? r->range[k].end : r->range[k].first;
	*to_p = to < end ? to : end;
	return there;
}

uint64_t ranges_sum(const struct ranges *r)
{
	uint64_t all = 0;
	for (size_t k = 0; k < r->n; k++)
		all += r->range[k].end - r->range[k].first;
	return all;
}

void ranges_reset(struct ranges *r) { r->n = 0; }

void ranges_release(struct ranges *r)
{
	mem_free(r->range);
	*r = (struct ranges){ 0 };
}
