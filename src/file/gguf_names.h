/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.h - the names of GGUF and of Hugging Face for the same architectures and tensors.
 *
 * Source: llama.cpp gguf-py/gguf/tensor_mapping.py. */
#ifndef HS_FILE_GGUF_NAMES_H
#define HS_FILE_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/* Which names of Hugging Face the norms of a layer have. */
enum gguf_norms {
	GGUF_NORMS_LLAMA,
	GGUF_NORMS_GEMMA, /* and OLMo, EXAONE */
	GGUF_NORMS_GLM,
	GGUF_NORMS_OSS,
	GGUF_NORMS_LFM2,  /* whose modules have names of their own too */
	GGUF_NORMS_GEMMA4 /* Gemma's, those of experts beside the MLP, and a factor of each layer */
};
/* Which names router and experts have. */
enum gguf_experts {
	GGUF_DENSE,
	GGUF_EXPERTS_MLP,
	GGUF_EXPERTS_SPARSE /* Mixtral */,
	GGUF_EXPERTS_OSS,
	GGUF_EXPERTS_QWEN2, /* as MLP, and one that every token has */
	GGUF_EXPERTS_GLM,   /* the same, and layers without experts */
	GGUF_EXPERTS_ERNIE, /* as GLM under other keys */
	GGUF_EXPERTS_LFM2,  /* none that every token has; names of its own */
	GGUF_EXPERTS_SIDE   /* Gemma 4: beside an MLP; gate and up are one tensor in the file */
};

/* GGUF_LINEAR_MOST: of heads of linear attention and their widths. */
enum { GGUF_EXPERTS_MOST = 1024, GGUF_LINEAR_MOST = 1 << 16 };
struct gguf_arch {
	const char *name;         /* general.architecture, and the prefix of its keys */
	const char *model_type;   /* of config.json */
	const char *architecture; /* the class there, by which converters know a model */
	bool permuted;            /* rows of Q and K are interleaved (gguf_layout.h) */
	enum gguf_norms norms;
	enum gguf_experts experts;
	/* The weights of a token's experts are divided by their sum: llama.cpp knows it by the
	 * family alone. */
	bool whole;
	bool fused_up;  /* ffn_up is gate and up */
	bool one_up;    /* gate and up are one matrix in Hugging Face, and two in the file */
	bool plus_one;  /* the weights of norms are stored plus one */
	bool partial;   /* part of a head may rotate */
	bool with_bias; /* attention_bias is said by the tensors */
	bool linear;    /* some layers have linear attention in place of attention */
	bool no_mlp;    /* every layer has experts, and none the width of an MLP */
	bool two_kinds; /* of layers, whose heads have keys of their own (gemma4_keys.h) */
	/* What config.json means when it does not say; 0: 1e-6, 10000, hidden / heads, 1. */
	double eps, theta;
	int64_t head_dim;
	double rotary;
	bool tied;
};

/* What config.json calls the number of experts. */
static inline const char *gguf_experts_key(enum gguf_experts kind)
{
	return kind == GGUF_EXPERTS_GLM                                  ? "n_routed_experts"
	       : kind == GGUF_EXPERTS_ERNIE                              ? "moe_num_experts"
	       : kind == GGUF_EXPERTS_SPARSE || kind == GGUF_EXPERTS_OSS ? "num_local_experts"
									 : "num_experts";
}

/* NULL: not supported. Of `llama` the one without experts. */
const struct gguf_arch *gguf_arch_find(const char *name);
const struct gguf_arch *gguf_arch_for(const char *model_type); /* the same */
/* The row with experts of the same `model_type`; NULL: there is none. */
const struct gguf_arch *gguf_arch_mixture(const struct gguf_arch *a);
const char *gguf_arch_names(char *s, size_t cap); /* "llama, qwen2, ..." in s */

/* Translates a tensor's name; false when it belongs to none of these families. *layer_p: its layer,
 * or -1. A GGUF has one tensor for all experts of a layer, whose name in Hugging Face has a star in
 * place of the number; from there *expert_p is the number, or -1. */
bool gguf_name_to_hf(const struct gguf_arch *a, const char *gguf_name, struct buf *out,
		     int64_t *layer_p);
bool gguf_name_from_hf(const struct gguf_arch *a, const char *hf_name, struct buf *out,
		       int64_t *layer_p, int64_t *expert_p);
/* Where the tensor is two in a GGUF, gate and up: the name of the second. */
bool gguf_name_of_up(const struct gguf_arch *a, const char *hf_name, struct buf *out);
/* Where a tensor of a GGUF is two in Hugging Face, gate and up of each expert: the second. */
bool gguf_name_up_to_hf(const struct gguf_arch *a, const char *gguf_name, struct buf *out);
/* The name of one expert's tensor. */
void gguf_expert_name(const char *starred, int64_t expert, struct buf *out);

#endif
