/* SPDX-License-Identifier: Apache-2.0 */
/* step_bench.h - the speed of a whole training step, on a model of random weights: no file,
 * no data.
 *
 * FLOP are counted for LoRA training: 4N FLOP per token (2N forward, 2N for the gradient of the
 * input), N being the parameters that take part in matrix products (model_matmul_parameters);
 * attention and adapters come on top and are not counted. */
#ifndef HS_RUNTIME_STEP_BENCH_H
#define HS_RUNTIME_STEP_BENCH_H

#include "model/stage.h"

struct err;

struct step_bench_shape {
	const char *name;
	struct model_config cfg;
};

/* The model shapes known by name ("smollm2-135m", "llama3.2-1b", "llama3-8b"); with `layers` > 0,
 * that many of its layers. ERR_USAGE for other names. */
int step_bench_shape(const char *name, int64_t layers, struct model_config *c_p, struct err *e);

struct step_bench_options {
	enum dtype act;
	bool nf4, double_quant, recompute;
	int64_t rows, length; /* sequences of a microbatch, tokens of each */
	int64_t lora_r;       /* on q, k, v, o */
	int repeat;           /* timed microbatches; the median counts */
	bool all_trained;     /* loss on every token, not only on half */
};

struct step_bench_result {
	double forward, backward, update; /* seconds, medians */
	double tokens_per_second, flops;  /* flops: 4N per token over the whole time */
	double attention_flops;           /* extra, not counted in flops */
	uint64_t mem_peak;                /* bytes on the device */
	double loss;
	/* host and device allocations of the last microbatch: must be 0 */
	uint64_t warm_allocs;
	/* what the last microbatch, without the update, asked of the null device: work that a GPU
	 * would be given, and bytes of products and of copies; 0 on others */
	uint64_t given, product_bytes, copy_bytes;
};

int step_bench(struct dev *d, const struct model_config *c, const struct step_bench_options *o,
	       struct step_bench_result *r_p, struct err *e);

#endif
