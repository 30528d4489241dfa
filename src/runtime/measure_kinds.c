/* SPDX-License-Identifier: Apache-2.0 */
/* measure_kinds.c - see measure_kinds.h. */
#include "runtime/measure_kinds.h"

int64_t measure_kinds_layers(const struct model_config *m, int64_t n, int64_t most)
{
	int64_t common = m->layers;
	for (int64_t a = m->delta_layers; a;) {
		const int64_t rest = common % a;
		common = a;
		a = rest;
	}
	const int64_t period = m->layers / common, whole = (n - 2 + period) / period * period + 1;
	return m->delta_layers && whole <= most ? whole : n;
}

void measure_kinds_share(const struct model_config *m, int64_t n, struct model_config *c)
{
	const int64_t d = m->delta_layers;
	c->delta_layers = 0;
	for (int64_t k = n - 1; k >= 0; k--) {
		c->delta[k] = k       ? k * d / m->layers != (k - 1) * d / m->layers
			      : n > 1 ? c->delta[n - 1]
				      : d > 0;
		c->delta_layers += c->delta[k];
	}
}

int64_t measure_kinds_one(const struct model_config *c, int64_t n)
{
	int64_t one = n / 2;
	while (c->delta[one] != c->delta[n - 1])
		one--;
	return one;
}
