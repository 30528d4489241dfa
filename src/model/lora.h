/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - low-rank adapters: which modules get one, its first values, its parameter names.
 *
 * Hu et al. 2021: y = W x + s B A x with A (R,in), B (out,R); s = alpha/R, or alpha/sqrt(R)
 * with rsLoRA (Kalajdzievski 2023). A begins uniform in +-1/sqrt(in) (Kaiming uniform with a
 * = sqrt 5, as PEFT does), drawn by name from the seed, so that no split changes it; B
 * begins at zero. Parameter names: MODULE.lora_A.weight, MODULE.lora_B.weight and with DoRA
 * MODULE.lora_magnitude_vector, with MODULE as "model.layers.0.self_attn.q_proj". */
#ifndef HS_MODEL_LORA_H
#define HS_MODEL_LORA_H

#include "model/model.h"

#include <stdbool.h>

struct lora_options {
	int64_t r;   /* 0: no adapter */
	float scale; /* s above */
	float dropout;
	bool target[LIN_COUNT];
	/* Of one kind of module where they are not r and scale; 0: they are */
	int64_t rank[LIN_COUNT];
	float factor[LIN_COUNT];
	uint8_t skip[MODEL_LAYERS_MOST / 8]; /* bits: these layers get no adapters */
	bool dora;                           /* magnitudes too (tensor/op_linear.c) */
	/* Trained whole beside the adapters: the embedding, the head (PEFT's modules_to_save) */
	bool save_embed, save_head;
	/* LoRA+ (Hayou et al. 2024, arXiv 2402.12354): factor on the learning rate of B; 0: 1 */
	float b_rate;
	uint64_t seed;
};

/* Sets target[] from module names ("q_proj", "self_attn.q_proj", "all-linear"); one that the model
 * does not have is an error that lists those it has. */
int lora_targets(const struct model_config *c, const char *const *name, size_t n,
		 struct lora_options *o, struct err *e);
/* Numbers of kinds of modules, "q_proj=16". */
struct lora_patterns {
	const char *const *rank, *const *alpha;
	size_t nrank, nalpha;
};
/* Sets ranks and scales of these kinds; `alpha` is that of the others. */
int lora_set_patterns(const struct model_config *c, const struct lora_patterns *p, double alpha,
		      bool rslora, struct lora_options *o, struct err *e);
/* Only these layers get adapters; no list: all. */
int lora_layers(const struct model_config *c, const int64_t *layer, size_t n,
		struct lora_options *o, struct err *e);
int lora_layer_names(const struct model_config *c, const char *const *name, size_t n,
		     struct lora_options *o, struct err *e);
/* Names of whole modules: embed_tokens, lm_head. A head that is the embedding must have become one
 * of its own (runtime_untie), of which PEFT trains a copy too. */
int lora_save(const struct model_config *c, const char *const *name, size_t n,
	      struct lora_options *o, struct err *e);
/* Rank of the adapter of a module, 0 where it has none; and its scale. */
int64_t lora_rank(const struct lora_options *o, int64_t layer, enum linear l);
float lora_factor(const struct lora_options *o, enum linear l);
/* Of the module of an adapter's parameter, "model.layers.0.self_attn.q_proj.lora_A.weight". */
float lora_factor_of(const struct lora_options *o, const char *name);
float lora_scale(int64_t r, double alpha, bool rslora);
/* The first value of A: element i of the parameter called `name`. */
void lora_init_a(uint64_t seed, const char *name, int64_t in, float *dst, int64_t n);

#endif
