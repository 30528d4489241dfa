/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - which numbers of an array have come, as ranges that neither touch nor overlap, in
 * order. A set of zeros is empty. */
#ifndef HS_BASE_RANGES_H
#define HS_BASE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum { RANGES_MOST = 1024 };

struct range {
	uint64_t first, end;
};

struct ranges {
	struct range *range; /* [n] */
	size_t n, cap;
};

/* Adds [first, end). ERR_PROTOCOL where some of it is there already, or where there would be more
 * than RANGES_MOST ranges; ERR_NOMEM. */
int ranges_add(struct ranges *r, uint64_t first, uint64_t end, struct err *e);
/* Of the numbers from `at` on, before `end`: whether `at` is there; *to_p: up to where the answer
 * is the same. */
bool ranges_next(const struct ranges *r, uint64_t at, uint64_t end, uint64_t *to_p);
uint64_t ranges_sum(const struct ranges *r);
void ranges_reset(struct ranges *r); /* empty; the memory is kept */
void ranges_release(struct ranges *r);

#endif
