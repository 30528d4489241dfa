/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.c - see gguf_names.h. One table, read in both directions. */
#include "file/gguf_names.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const struct gguf_arch arch[] = {
	{ "llama", "llama", true },
	/* converters call Mistral llama: the mathematics is the same */
	{ "llama", "mistral", true },
	{ "qwen2", "qwen2", false },
	{ "qwen3", "qwen3", false },
};

/* `%` stands for the number of the layer. */
static const struct {
	const char *gguf, *hf;
} names[] = {
	{ "token_embd", "model.embed_tokens" },
	{ "output_norm", "model.norm" },
	{ "output", "lm_head" },
	{ "blk.%.attn_norm", "model.layers.%.input_layernorm" },
	{ "blk.%.attn_q", "model.layers.%.self_attn.q_proj" },
	{ "blk.%.attn_k", "model.layers.%.self_attn.k_proj" },
	{ "blk.%.attn_v", "model.layers.%.self_attn.v_proj" },
	{ "blk.%.attn_q_norm", "model.layers.%.self_attn.q_norm" },
	{ "blk.%.attn_k_norm", "model.layers.%.self_attn.k_norm" },
	{ "blk.%.attn_output", "model.layers.%.self_attn.o_proj" },
	{ "blk.%.ffn_norm", "model.layers.%.post_attention_layernorm" },
	{ "blk.%.ffn_gate", "model.layers.%.mlp.gate_proj" },
	{ "blk.%.ffn_up", "model.layers.%.mlp.up_proj" },
	{ "blk.%.ffn_down", "model.layers.%.mlp.down_proj" },
};

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

bool gguf_name_to_hf(const char *name, struct buf *out, int64_t *layer_p)
{
	const char *tail;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (match(name, names[i].gguf, layer_p, &tail)) {
			expand_pattern(names[i].hf, *layer_p, tail, out);
			return true;
		}
	}
	return false;
}

bool gguf_name_from_hf(const char *name, struct buf *out, int64_t *layer_p)
{
	const char *tail;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (match(name, names[i].hf, layer_p, &tail)) {
			expand_pattern(names[i].gguf, *layer_p, tail, out);
			return true;
		}
	}
	return false;
}
