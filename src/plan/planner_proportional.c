/* SPDX-License-Identifier: Apache-2.0 */
/* planner_proportional.c - layers in proportion to measured speed, 1 / (f + b), in the order of the
 * profile: largest remainders, at least one layer each. With more devices than layers the slowest
 * ones are left out. */
#include <math.h>

#include "base/err.h"
#include "plan/search.h"

/* The `n` fastest of the devices, in the order of the profile. */
static void choose_fastest(const struct cost_row *r, int devices, int n, int *out)
{
	int at = 0;

	for (int i = 0; i < devices; i++) {
		int faster = 0;
		for (int k = 0; k < devices; k++)
			faster += r->f[k] + r->b[k] < r->f[i] + r->b[i] ||
				  (r->f[k] + r->b[k] == r->f[i] + r->b[i] && k < i);
		if (faster < n)
			out[at++] = i;
	}
}

static void divide_layers(const struct cost_row *r, struct candidate *k, int layers)
{
	double speed = 0;
	int left = layers;

	for (int i = 0; i < k->stages; i++)
		speed += 1 / (r->f[k->device[i]] + r->b[k->device[i]]);
	for (int i = 0; i < k->stages; i++) {
		double share = layers / (r->f[k->device[i]] + r->b[k->device[i]]) / speed;
		k->layers[i] = share < 1 ? 1 : (int)share;
		left -= k->layers[i];
	}
	for (; left != 0; left += left < 0 ? 1 : -1) {
		int pick = -1, by = left < 0 ? -1 : 1;
		double most = -INFINITY;
		for (int i = 0; i < k->stages; i++) {
			double share = layers / (r->f[k->device[i]] + r->b[k->device[i]]) / speed;
			double lack = (share - k->layers[i]) * by;
			if (lack > most && k->layers[i] + by >= 1) {
				most = lack;
				pick = i;
			}
		}
		k->layers[pick] += by;
	}
}

static int plan_proportional(const struct profile *p, const struct plan_options *o,
			     struct plan *out, struct err *e)
{
	struct search s;
	struct candidate k;
	int rc;

	TRY(search_init(&s, p, o, e));
	TRYOUT(candidate_init(&s, &k, e));
	k.stages = p->devices < p->layers ? p->devices : p->layers;
	k.sched = s.kind[0].sched;
	for (int i = s.sizes - 1; i >= 0; i--) {
		const struct cost_row *r = cost_row(&s.c, s.size[i]);
		k.m = s.size[i];
		choose_fastest(r, p->devices, k.stages, k.device);
		divide_layers(r, &k, p->layers);
		k.chunks = s.kind[0].chunks;
		for (int x = 0; x < k.stages; x++)
			if (k.layers[x] < k.chunks || k.stages == 1)
				k.chunks = 1;
		TRYOUT(search_offer(&s, &k, e));
	}
	rc = search_plan(&s, isinf(s.best.step_s) ? &k : &s.best, out, e);
out:
	search_release(&s);
	return rc;
}

const struct planner planner_proportional = {
	.name = "proportional",
	.help = "layers in proportion to measured speed",
	.plan = plan_proportional,
};
