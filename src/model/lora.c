/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - see lora.h. */
#include "model/lora.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int lora_targets(const struct model_config *c, const char *const *name, size_t n,
		 struct lora_options *o, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		bool found = false, all = !strcmp(name[i], "all-linear");
		for (enum linear l = 0; l < LIN_COUNT; l++)
			if (model_has_linear(c, l) && (all || !strcmp(name[i], linear_name(l)) ||
						       !strcmp(name[i], linear_path(l))))
				o->target[l] = found = true;
		if (found)
			continue;
		char known[256] = "";
		size_t at = 0;
		for (enum linear l = 0; l < LIN_COUNT; l++)
			if (model_has_linear(c, l))
				at += (size_t)snprintf(known + at, sizeof known - at, "%s, ",
						       linear_name(l));
		return err_set(e, ERR_USAGE,
			       "lora_target_modules: this model has no module '%s' (it has %s"
			       "all-linear)",
			       name[i], known);
	}
	return 0;
}

float lora_scale(int64_t r, double alpha, bool rslora)
{
	return (float)(alpha / (rslora ? sqrt((double)r) : (double)r));
}

void lora_init_a(uint64_t seed, const char *name, int64_t in, float *dst, int64_t n)
{
	uint64_t k = rng_fold(seed, 0x6c6f7261); /* "lora" */
	for (; *name; name++)
		k = rng_fold(k, (unsigned char)*name);
	struct rng_key key = rng_key(k);
	float bound = 1.0f / sqrtf((float)in);
	for (int64_t i = 0; i < n; i++)
		dst[i] = rng_uniform(key, (uint64_t)i, -bound, bound);
}
