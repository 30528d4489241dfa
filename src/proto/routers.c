/* SPDX-License-Identifier: Apache-2.0 */
/* routers.c - see routers.h. */
#include "proto/routers.h"

#include <string.h>

size_t routers_bytes(const struct model_config *c, const struct stage_options *o, bool train,
		     bool back)
{
	if (!train || !c->experts || !(o->router_loss > 0 || o->router_z > 0))
		return 0;
	return back ? 4 * (1 + (size_t)c->experts) : 8 * (2 + 2 * (size_t)c->experts);
}

void routers_put(const struct router_sums *s, bool back, unsigned char *p)
{
	const size_t n = s ? (size_t)s->experts : 0;
	if (s && back) {
		memcpy(p, &s->z, 4);
		memcpy(p + 4, s->balance, 4 * n);
	} else if (s) {
		memcpy(p, &s->rows, 8);
		memcpy(p + 8, &s->square, 8);
		memcpy(p + 16, s->picks, 8 * n);
		memcpy(p + 16 + 8 * n, s->probability, 8 * n);
	}
}

void routers_take(struct router_sums *s, bool back, const unsigned char *p)
{
	const size_t n = s ? (size_t)s->experts : 0;
	if (s && back) {
		memcpy(&s->z, p, 4);
		memcpy(s->balance, p + 4, 4 * n);
		s->known = true;
	} else if (s) {
		memcpy(&s->rows, p, 8);
		memcpy(&s->square, p + 8, 8);
		memcpy(s->picks, p + 16, 8 * n);
		memcpy(s->probability, p + 16 + 8 * n, 8 * n);
	}
}
