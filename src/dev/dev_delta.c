/* SPDX-License-Identifier: Apache-2.0 */
/* dev_delta.c - see dev_delta.h. */
#include "dev/dev_delta.h"

/* States of further parts take at most so many bytes. */
#define PARTS_BYTES (256ll << 20)

static int64_t over(int64_t n, int64_t d) { return (n + d - 1) / d; }

int64_t dev_delta_chunk(const struct dev_delta *d)
{
	int64_t chunk = 1;
	while (chunk * chunk < d->n)
		chunk++;
	return chunk;
}

/* Numbers that a group has for itself (delta_bwd in kernel/delta.k). */
static int64_t group_numbers(const struct dev_delta *d)
{
	const int64_t chunk = dev_delta_chunk(d);
	return DELTA_MOST * (DELTA_MOST * (over(d->n, chunk) + chunk + 1) + 2 * chunk);
}

int64_t dev_delta_parts(int units, const struct dev_delta *d)
{
	const int64_t most = PARTS_BYTES / (4 * d->h * group_numbers(d)),
		      wanted = over(units, d->h), parts = most < wanted ? most : wanted;
	return parts < 1 ? 1 : parts < d->s ? parts : d->s;
}

size_t dev_delta_bytes(const struct dev_delta *d, int64_t parts)
{
	return 4 * (size_t)(d->n * d->h * (2 * d->k + 1) + parts * d->h * group_numbers(d));
}
