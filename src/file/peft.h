/* SPDX-License-Identifier: Apache-2.0 */
/* peft.h - a LoRA adapter on disk as Hugging Face PEFT stores it: adapter_config.json +
 * adapter_model.safetensors.
 *
 * Names: "base_model.model." + module + ".lora_A.weight" [r, in] and ".lora_B.weight" [out, r],
 * with module as "model.layers.0.self_attn.q_proj", or "model.language_model.layers.0..." where the
 * base has a model for pictures too (text_part.h), which is read as the former; with DoRA also
 * ".lora_magnitude_vector" [out]; and ".weight" of modules that are saved whole (modules_to_save).
 * A pair on a parameter that has the matrices of all experts (target_parameters) is read as it is,
 * and marked. Fields of adapter_config.json that change the mathematics and are not supported (bias
 * other than "none", fan_in_fan_out, patterns that are regular expressions) are errors that name
 * the field. */
#ifndef HS_FILE_PEFT_H
#define HS_FILE_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct arena;

struct peft_number {
	const char *key;
	double value;
};

struct peft_config {
	int r;
	double alpha, dropout;
	bool rslora;
	const char **target; /* names of modules: "q_proj" ..., sorted */
	size_t ntarget;
	const char *base_model; /* base_model_name_or_path, or NULL */
	const char *inside;     /* written: model_file_inside() of the base; NULL: "" */
	bool dora;
	/* rank_pattern and alpha_pattern: of modules whose name ends so */
	struct peft_number *rank, *alphas;
	size_t nrank, nalpha;
	int64_t *layer; /* layers_to_transform; none: all */
	size_t nlayer;
	const char **save; /* modules_to_save */
	size_t nsave;
	const char **parameter; /* target_parameters (runtime/adapter_fused.h) */
	size_t nparameter;
};

struct peft_pair {
	const char *module; /* "model.layers.0.self_attn.q_proj" */
	int64_t in, out;
	int r;
	bool fused; /* of all experts of a layer: r is that of an expert times their number */
	double scale;
	const float *a, *b; /* [r,in], [out,r] float32 */
	const float *m;     /* [out]; NULL without DoRA */
};

struct peft_saved { /* a module that was trained whole */
	const char *module;
	int64_t rows, cols;
	const float *v;
};

struct peft_adapter {
	struct peft_config cfg;
	struct peft_pair *pair; /* in the order of the layers, then of the names */
	size_t npair;
	struct peft_saved *saved;
	size_t nsaved;
};

/* scale = alpha/r, or alpha/sqrt(r) with rsLoRA (Kalajdzievski 2023). */
double peft_scale(const struct peft_config *c);
/* Rank and scale of one module, by the patterns. */
int peft_rank_of(const struct peft_config *c, const char *module);
double peft_scale_of(const struct peft_config *c, const char *module);

/* The name of a tensor in adapter_model.safetensors; `inside` NULL: the name itself. */
void peft_name(char *out, size_t cap, const char *inside, const char *name);

/* Everything is allocated in `a`. */
int peft_read(const char *dir, struct arena *a, struct peft_adapter *ad_p, struct err *e);
/* Writes both files into the existing folder `dir`, each atomically, the configuration last;
 * weights in float32. */
int peft_write(const char *dir, const struct peft_adapter *ad, struct err *e);

#endif
