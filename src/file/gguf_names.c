/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.c - see gguf_names.h. One table, read in both directions. */
#include "file/gguf_names.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const struct gguf_arch arch[] = {
	{ .name = "llama", .model_type = "llama", .permuted = true },
	/* converters call Mistral llama: the mathematics is the same */
	{ .name = "llama", .model_type = "mistral", .permuted = true },
	{ .name = "qwen2", .model_type = "qwen2" },
	{ .name = "qwen3", .model_type = "qwen3" },
	{ .name = "granite", .model_type = "granite", .permuted = true },
	{ .name = "smollm3",
	  .model_type = "smollm3",
	  .permuted = true,
	  .theta = 2e6,
	  .tied = true },
	{ .name = "olmo2", .model_type = "olmo2", .norms = GGUF_NORMS_GEMMA, .eps = 1e-5 },
	{ .name = "gemma", .model_type = "gemma", .plus_one = true, .head_dim = 256, .tied = true },
	{ .name = "gemma2",
	  .model_type = "gemma2",
	  .norms = GGUF_NORMS_GEMMA,
	  .plus_one = true,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "gemma3",
	  .model_type = "gemma3_text",
	  .norms = GGUF_NORMS_GEMMA,
	  .plus_one = true,
	  .theta = 1e6,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "phi3", .model_type = "phi3", .fused_up = true, .partial = true, .eps = 1e-5 },
	{ .name = "glm4",
	  .model_type = "glm4",
	  .norms = GGUF_NORMS_GLM,
	  .fused_up = true,
	  .partial = true,
	  .with_bias = true,
	  .eps = 1.5625e-7,
	  .head_dim = 128,
	  .rotary = 0.5 },
};

enum {
	LLAMA = 1 << GGUF_NORMS_LLAMA,
	GEMMA = 1 << GGUF_NORMS_GEMMA,
	GLM = 1 << GGUF_NORMS_GLM,
	ALL = LLAMA | GEMMA | GLM
};
enum fused { EITHER, WHOLE, PARTS };

/* `%` stands for the number of the layer. A row holds for architectures with these norms, and with
 * gate and up as one matrix, as two, or either way. */
static const struct {
	const char *gguf, *hf;
	int norms;
	enum fused up;
} names[] = {
	{ "token_embd", "model.embed_tokens", ALL, EITHER },
	{ "output_norm", "model.norm", ALL, EITHER },
	{ "output", "lm_head", ALL, EITHER },
	{ "blk.%.attn_norm", "model.layers.%.input_layernorm", ALL, EITHER },
	{ "blk.%.attn_q", "model.layers.%.self_attn.q_proj", ALL, EITHER },
	{ "blk.%.attn_k", "model.layers.%.self_attn.k_proj", ALL, EITHER },
	{ "blk.%.attn_v", "model.layers.%.self_attn.v_proj", ALL, EITHER },
	{ "blk.%.attn_qkv", "model.layers.%.self_attn.qkv_proj", ALL, WHOLE },
	{ "blk.%.attn_q_norm", "model.layers.%.self_attn.q_norm", ALL, EITHER },
	{ "blk.%.attn_k_norm", "model.layers.%.self_attn.k_norm", ALL, EITHER },
	{ "blk.%.attn_output", "model.layers.%.self_attn.o_proj", ALL, EITHER },
	{ "blk.%.ffn_norm", "model.layers.%.post_attention_layernorm", LLAMA | GLM, EITHER },
	{ "blk.%.ffn_norm", "model.layers.%.pre_feedforward_layernorm", GEMMA, EITHER },
	{ "blk.%.post_attention_norm", "model.layers.%.post_attention_layernorm", GEMMA, EITHER },
	{ "blk.%.post_attention_norm", "model.layers.%.post_self_attn_layernorm", GLM, EITHER },
	{ "blk.%.post_ffw_norm", "model.layers.%.post_feedforward_layernorm", GEMMA, EITHER },
	{ "blk.%.post_ffw_norm", "model.layers.%.post_mlp_layernorm", GLM, EITHER },
	{ "blk.%.ffn_gate", "model.layers.%.mlp.gate_proj", ALL, PARTS },
	{ "blk.%.ffn_up", "model.layers.%.mlp.up_proj", ALL, PARTS },
	{ "blk.%.ffn_up", "model.layers.%.mlp.gate_up_proj", ALL, WHOLE },
	{ "blk.%.ffn_down", "model.layers.%.mlp.down_proj", ALL, EITHER },
};

static bool holds(const struct gguf_arch *a, size_t i)
{
	return (names[i].norms & 1 << a->norms) &&
	       (names[i].up == EITHER || (names[i].up == WHOLE) == a->fused_up);
}

const struct gguf_arch *gguf_arch_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(arch); i++)
		if (!strcmp(arch[i].name, name))
			return &arch[i];
	return NULL;
}

const char *gguf_arch_names(char *s, size_t cap)
{
	size_t at = 0;
	s[0] = 0;
	for (size_t i = 0; i < ARRAY_LEN(arch) && at < cap; i++)
		if (gguf_arch_find(arch[i].name) == &arch[i])
			at += (size_t)snprintf(s + at, cap - at, "%s%s", at ? ", " : "",
					       arch[i].name);
	return s;
}

const struct gguf_arch *gguf_arch_for(const char *model_type)
{
	for (size_t i = 0; i < ARRAY_LEN(arch); i++)
		if (!strcmp(arch[i].model_type, model_type))
			return &arch[i];
	return NULL;
}

/* Whether `name` matches the pattern, followed by ".weight" or ".bias". *tail_p: from that
 * dot on. */
static bool match(const char *name, const char *pattern, int64_t *layer_p, const char **tail_p)
{
	int64_t layer = -1;
	for (; *pattern; pattern++) {
		if (*pattern != '%') {
			if (*name++ != *pattern)
				return false;
			continue;
		}
		int digits = 0;
		for (layer = 0; *name >= '0' && *name <= '9' && digits < 7; digits++)
			layer = layer * 10 + (*name++ - '0');
		if (!digits || (digits > 1 && name[-digits] == '0'))
			return false;
	}
	if (strcmp(name, ".weight") != 0 && strcmp(name, ".bias") != 0)
		return false;
	*layer_p = layer;
	*tail_p = name;
	return true;
}

static void expand_pattern(const char *pattern, int64_t layer, const char *tail, struct buf *out)
{
	for (; *pattern; pattern++) {
		if (*pattern == '%')
			buf_addf(out, "%lld", (long long)layer);
		else
			buf_addc(out, *pattern);
	}
	buf_adds(out, tail);
}

bool gguf_name_to_hf(const struct gguf_arch *a, const char *name, struct buf *out, int64_t *layer_p)
{
	const char *tail;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (holds(a, i) && match(name, names[i].gguf, layer_p, &tail)) {
			expand_pattern(names[i].hf, *layer_p, tail, out);
			return true;
		}
	}
	return false;
}

bool gguf_name_from_hf(const struct gguf_arch *a, const char *name, struct buf *out,
		       int64_t *layer_p)
{
	const char *tail;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (holds(a, i) && match(name, names[i].hf, layer_p, &tail)) {
			expand_pattern(names[i].gguf, *layer_p, tail, out);
			return true;
		}
	}
	return false;
}
