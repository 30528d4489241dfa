/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.c - see clocks.h. */
#include "crew/clocks.h"

enum {
	DRIFT = 50 /* nanoseconds of every millisecond: the drift of two unadjusted quartz clocks */
};

void clock_pair_same(struct clock_pair *c)
{
	if (!c->known || (c->offset <= c->error && -c->offset <= c->error))
		*c = (struct clock_pair){ .known = true, .same = true };
}

int64_t clock_pair_error(const struct clock_pair *c, int64_t now)
{
	if (c->same)
		return 0;
	int64_t age = now > c->at ? now - c->at : 0;
	return c->known ? c->error + age / 1000000 * DRIFT : INT64_MAX;
}

void clock_pair_add(struct clock_pair *c, int64_t sent, int64_t heard, int64_t said, int64_t back)
{
	int64_t way = (back - sent) - (said - heard), error = (way > 0 ? way : 0) / 2;
	if (!c->same && error <= clock_pair_error(c, back))
		*c = (struct clock_pair){ (sent - heard) / 2 + (back - said) / 2, error, back, true,
					  false };
}
