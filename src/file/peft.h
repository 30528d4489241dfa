/* SPDX-License-Identifier: Apache-2.0 */
/* peft.h - a LoRA adapter on disk as Hugging Face PEFT stores it: adapter_config.json +
 * adapter_model.safetensors.
 *
 * Names: "base_model.model." + module + ".lora_A.weight" [r, in] and ".lora_B.weight" [out, r],
 * with module as "model.layers.0.self_attn.q_proj". Fields of adapter_config.json that change the
 * mathematics and are not supported (DoRA, bias other than "none", fan_in_fan_out, modules_to_save,
 * layers_to_transform, rank_pattern, alpha_pattern) are errors that name the field. */
#ifndef HS_FILE_PEFT_H
#define HS_FILE_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct arena;

struct peft_config {
	int r;
	double alpha, dropout;
	bool rslora;
	const char **target; /* names of modules: "q_proj" ..., sorted */
	size_t ntarget;
	const char *base_model; /* base_model_name_or_path, or NULL */
};

struct peft_pair {
	const char *module; /* "model.layers.0.self_attn.q_proj" */
	int64_t in, out;
	const float *a, *b; /* [r,in], [out,r] float32 */
};

struct peft_adapter {
	struct peft_config cfg;
	struct peft_pair *pair; /* in the order of the layers, then of the names */
	size_t npair;
};

/* scale = alpha/r, or alpha/sqrt(r) with rsLoRA (Kalajdzievski 2023). */
double peft_scale(const struct peft_config *c);

/* Everything is allocated in `a`. */
int peft_read(const char *dir, struct arena *a, struct peft_adapter *ad_p, struct err *e);
/* Writes both files into the existing folder `dir`, each atomically, the configuration last;
 * weights in float32. */
int peft_write(const char *dir, const struct peft_adapter *ad, struct err *e);

#endif
