/* SPDX-License-Identifier: Apache-2.0 */
/* llama3_rope.c - see llama3_rope.h. */
#include "file/llama3_rope.h"

#include <math.h>
#include <stdbool.h>

/* llama.cpp's converter computes in float32, and a blend multiplies errors by up to `factor`. */
static const double most_apart = 1e-4;
static const double longest = 1 << 20;

double llama3_rope_divisor(const struct llama3_rope *r, double theta, int64_t i, int64_t rot)
{
	const double wave = 2 * M_PI * pow(theta, 2.0 * (double)i / (double)rot);
	const double smooth = (r->context / wave - r->low) / (r->high - r->low);
	return wave < r->context / r->high  ? 1
	       : wave > r->context / r->low ? r->factor
					    : 1 / ((1 - smooth) / r->factor + smooth);
}

static bool gives(const struct llama3_rope *r, double theta, const json_t *divisors)
{
	const size_t n = json_array_size(divisors);
	for (size_t i = 0; i < n; i++) {
		const double is = json_number_value(json_array_get(divisors, i)),
			     want = llama3_rope_divisor(r, theta, (int64_t)i, 2 * (int64_t)n);
		if (!(fabs(is - want) <= most_apart * want))
			return false;
	}
	return n > 0;
}

json_t *llama3_rope_recover(const json_t *divisors, double theta)
{
	const size_t n = json_array_size(divisors);
	struct llama3_rope r = { .low = 1, .high = 4 };
	r.factor = n ? json_number_value(json_array_get(divisors, n - 1)) : 0;
	if (fabs(r.factor - nearbyint(r.factor)) <= most_apart * r.factor)
		r.factor = nearbyint(r.factor);
	if (!(r.factor > 1))
		return NULL;
	/* the published length first, where several give the same numbers */
	r.context = 8192;
	bool found = gives(&r, theta, divisors);
	for (double at = 1; !found && at <= longest; at *= 2) {
		r.context = at;
		found = gives(&r, theta, divisors);
	}
	return found ? json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor", r.factor,
				 "low_freq_factor", r.low, "high_freq_factor", r.high,
				 "original_max_position_embeddings", (json_int_t)r.context)
		     : NULL;
}
