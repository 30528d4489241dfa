/* SPDX-License-Identifier: Apache-2.0 */
/* llama3_rope.h - Llama 3.1's rope scaling as the numbers that divide rotary frequencies, and back.
 *
 * config.json has four parameters, a GGUF has rope_freqs.weight with the numbers that follow from
 * them (transformers modeling_rope_utils.py, _compute_llama3_parameters): long wavelengths are
 * stretched by `factor`, short ones are not, those between are blended. */
#ifndef HS_FILE_LLAMA3_ROPE_H
#define HS_FILE_LLAMA3_ROPE_H

#include <jansson.h>
#include <stdint.h>

struct llama3_rope {
	double factor, low, high, context;
};

/* Number i of rot / 2. */
double llama3_rope_divisor(const struct llama3_rope *r, double theta, int64_t i, int64_t rot);

/* The `rope_scaling` of kind llama3 that gives these numbers, or NULL. As in every published model
 * low_freq_factor is 1 and high_freq_factor 4; the original length is a power of two. */
json_t *llama3_rope_recover(const json_t *divisors, double theta);

#endif
