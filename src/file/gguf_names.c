/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.c - see gguf_names.h. One table, read in both directions. */
#include "file/gguf_names.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const struct gguf_arch arch[] = {
	{ .name = "llama",
	  .model_type = "llama",
	  .architecture = "LlamaForCausalLM",
	  .permuted = true },
	/* converters call Mistral llama: the mathematics is the same */
	{ .name = "llama",
	  .model_type = "mistral",
	  .architecture = "MistralForCausalLM",
	  .permuted = true },
	{ .name = "llama",
	  .model_type = "mixtral",
	  .architecture = "MixtralForCausalLM",
	  .permuted = true,
	  .experts = GGUF_EXPERTS_SPARSE,
	  .whole = true,
	  .eps = 1e-5,
	  .theta = 1e6 },
	{ .name = "qwen2", .model_type = "qwen2", .architecture = "Qwen2ForCausalLM" },
	{ .name = "qwen3", .model_type = "qwen3", .architecture = "Qwen3ForCausalLM" },
	{ .name = "qwen3moe",
	  .model_type = "qwen3_moe",
	  .architecture = "Qwen3MoeForCausalLM",
	  .experts = GGUF_EXPERTS_MLP,
	  .whole = true },
	{ .name = "qwen2moe",
	  .model_type = "qwen2_moe",
	  .architecture = "Qwen2MoeForCausalLM",
	  .experts = GGUF_EXPERTS_QWEN2 },
	{ .name = "olmoe",
	  .model_type = "olmoe",
	  .architecture = "OlmoeForCausalLM",
	  .experts = GGUF_EXPERTS_MLP,
	  .eps = 1e-5 },
	{ .name = "gpt-oss",
	  .model_type = "gpt_oss",
	  .architecture = "GptOssForCausalLM",
	  .norms = GGUF_NORMS_OSS,
	  .experts = GGUF_EXPERTS_OSS,
	  .whole = true,
	  .with_bias = true,
	  .eps = 1e-5,
	  .theta = 150000,
	  .head_dim = 64 },
	{ .name = "granite",
	  .model_type = "granite",
	  .architecture = "GraniteForCausalLM",
	  .permuted = true },
	/* Granite 4, whose layers all have attention and no experts */
	{ .name = "granite",
	  .model_type = "granitemoehybrid",
	  .architecture = "GraniteMoeHybridForCausalLM",
	  .permuted = true,
	  .one_up = true },
	{ .name = "smollm3",
	  .model_type = "smollm3",
	  .architecture = "SmolLM3ForCausalLM",
	  .permuted = true,
	  .theta = 2e6,
	  .tied = true },
	{ .name = "olmo2",
	  .model_type = "olmo2",
	  .architecture = "Olmo2ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA,
	  .eps = 1e-5 },
	/* with a window */
	{ .name = "olmo2",
	  .model_type = "olmo3",
	  .architecture = "Olmo3ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA,
	  .eps = 1e-5,
	  .theta = 500000 },
	{ .name = "exaone4",
	  .model_type = "exaone4",
	  .architecture = "Exaone4ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA,
	  .eps = 1e-5 },
	{ .name = "ernie4_5",
	  .model_type = "ernie4_5",
	  .architecture = "Ernie4_5ForCausalLM",
	  .eps = 1e-5,
	  .theta = 500000,
	  .head_dim = 128,
	  .tied = true },
	{ .name = "ernie4_5-moe",
	  .model_type = "ernie4_5_moe",
	  .architecture = "Ernie4_5_MoeForCausalLM",
	  .experts = GGUF_EXPERTS_ERNIE,
	  .whole = true,
	  .eps = 1e-5,
	  .theta = 500000,
	  .head_dim = 128,
	  .tied = true },
	{ .name = "seed_oss",
	  .model_type = "seed_oss",
	  .architecture = "SeedOssForCausalLM",
	  .norms = GGUF_NORMS_OSS,
	  .with_bias = true,
	  .head_dim = 128 },
	{ .name = "gemma",
	  .model_type = "gemma",
	  .architecture = "GemmaForCausalLM",
	  .plus_one = true,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "gemma2",
	  .model_type = "gemma2",
	  .architecture = "Gemma2ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA,
	  .plus_one = true,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "gemma3",
	  .model_type = "gemma3_text",
	  .architecture = "Gemma3ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA,
	  .plus_one = true,
	  .theta = 1e6,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "gemma4",
	  .model_type = "gemma4_text",
	  .architecture = "Gemma4ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA4,
	  .two_kinds = true,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "gemma4",
	  .model_type = "gemma4_text",
	  .architecture = "Gemma4ForCausalLM",
	  .norms = GGUF_NORMS_GEMMA4,
	  .experts = GGUF_EXPERTS_SIDE,
	  .whole = true,
	  .two_kinds = true,
	  .head_dim = 256,
	  .tied = true },
	{ .name = "phi3",
	  .model_type = "phi3",
	  .architecture = "Phi3ForCausalLM",
	  .fused_up = true,
	  .partial = true,
	  .eps = 1e-5 },
	{ .name = "glm4",
	  .model_type = "glm4",
	  .architecture = "Glm4ForCausalLM",
	  .norms = GGUF_NORMS_GLM,
	  .fused_up = true,
	  .partial = true,
	  .with_bias = true,
	  .eps = 1.5625e-7,
	  .head_dim = 128,
	  .rotary = 0.5 },
	{ .name = "glm4moe",
	  .model_type = "glm4_moe",
	  .architecture = "Glm4MoeForCausalLM",
	  .norms = GGUF_NORMS_OSS,
	  .experts = GGUF_EXPERTS_GLM,
	  .partial = true,
	  .with_bias = true,
	  .eps = 1e-5,
	  .rotary = 0.5 },
	{ .name = "lfm2",
	  .model_type = "lfm2",
	  .architecture = "Lfm2ForCausalLM",
	  .norms = GGUF_NORMS_LFM2,
	  .eps = 1e-5,
	  .theta = 1e6,
	  .tied = true },
	{ .name = "lfm2moe",
	  .model_type = "lfm2_moe",
	  .architecture = "Lfm2MoeForCausalLM",
	  .norms = GGUF_NORMS_LFM2,
	  .experts = GGUF_EXPERTS_LFM2,
	  .whole = true,
	  .eps = 1e-5,
	  .theta = 1e6,
	  .tied = true },
	{ .name = "qwen35",
	  .model_type = "qwen3_5_text",
	  .architecture = "Qwen3_5ForCausalLM",
	  .norms = GGUF_NORMS_OSS,
	  .plus_one = true,
	  .partial = true,
	  .linear = true,
	  .head_dim = 256,
	  .rotary = 0.25 },
	{ .name = "qwen35moe",
	  .model_type = "qwen3_5_moe_text",
	  .architecture = "Qwen3_5MoeForCausalLM",
	  .norms = GGUF_NORMS_OSS,
	  .experts = GGUF_EXPERTS_QWEN2,
	  .whole = true,
	  .plus_one = true,
	  .partial = true,
	  .linear = true,
	  .no_mlp = true,
	  .head_dim = 256,
	  .rotary = 0.25 },
};

enum {
	LLAMA = 1 << GGUF_NORMS_LLAMA,
	GEMMA = 1 << GGUF_NORMS_GEMMA,
	GLM = 1 << GGUF_NORMS_GLM,
	GPT = 1 << GGUF_NORMS_OSS,
	LFM = 1 << GGUF_NORMS_LFM2,
	GEMMA4 = 1 << GGUF_NORMS_GEMMA4,
	GEMMAS = GEMMA | GEMMA4,
	ALL = LLAMA | GEMMAS | GLM | GPT,
	ANY = ALL | LFM
};
/* What an architecture has as an MLP or in its place. */
enum {
	WHOLE = 1,
	PARTS = 2,
	EXPERTS = 4,
	SPARSE = 8,
	OSS = 16,
	SHARED = 32,  /* an expert that every token has */
	SHARES = 64,  /* several as one */
	LINEAR = 128, /* attention beside the MLP */
	GATED = 256,  /* where a router has its correction: GLM, ERNIE */
	STATICS = 512,
	ONE = 1024,     /* gate and up as one in Hugging Face alone: Granite 4 */
	FORWARD = 2048, /* experts as LFM2 names them */
	SIDE = 4096,    /* and beside an MLP: Gemma 4 */
	EITHER = ~0
};

/* Their names in Hugging Face end without ".weight" or ".bias". */
static const char sinks[] = "blk.%.attn_sinks", correction[] = "blk.%.exp_probs_b",
		  decay[] = "blk.%.ssm_a", dt[] = "blk.%.ssm_dt",
		  layer_scale[] = "blk.%.layer_output_scale",
		  router_scale[] = "blk.%.ffn_gate_inp.scale",
		  expert_scale[] = "blk.%.ffn_down_exps.scale";

/* `%` stands for the number of the layer, `*` for that of the expert. A row holds for architectures
 * with these norms and one of these kinds of MLP. */
static const struct {
	const char *gguf, *hf;
	int norms;
	int up;
} names[] = {
	{ "token_embd", "model.embed_tokens", ANY, EITHER },
	{ "token_embd_norm", "model.embedding_norm", LFM, EITHER },
	{ "output_norm", "model.norm", ALL, EITHER },
	{ "output", "lm_head", ANY, EITHER },
	{ "blk.%.attn_norm", "model.layers.%.input_layernorm", ALL, EITHER },
	{ "blk.%.attn_q", "model.layers.%.self_attn.q_proj", ANY, EITHER },
	{ "blk.%.attn_k", "model.layers.%.self_attn.k_proj", ANY, EITHER },
	{ "blk.%.attn_v", "model.layers.%.self_attn.v_proj", ANY, EITHER },
	{ "blk.%.attn_qkv", "model.layers.%.self_attn.qkv_proj", ALL, WHOLE },
	{ "blk.%.attn_q_norm", "model.layers.%.self_attn.q_norm", ALL, EITHER },
	{ "blk.%.attn_k_norm", "model.layers.%.self_attn.k_norm", ALL, EITHER },
	{ "blk.%.attn_output", "model.layers.%.self_attn.o_proj", ALL, EITHER },
	{ "blk.%.ffn_norm", "model.layers.%.post_attention_layernorm", LLAMA | GLM, EITHER },
	{ "blk.%.ffn_norm", "model.layers.%.pre_feedforward_layernorm", GEMMAS, EITHER },
	{ "blk.%.post_attention_norm", "model.layers.%.post_attention_layernorm", GEMMAS | GPT,
	  EITHER },
	{ "blk.%.post_attention_norm", "model.layers.%.post_self_attn_layernorm", GLM, EITHER },
	{ "blk.%.post_ffw_norm", "model.layers.%.post_feedforward_layernorm", GEMMAS, EITHER },
	{ "blk.%.post_ffw_norm", "model.layers.%.post_mlp_layernorm", GLM, EITHER },
	{ "blk.%.ffn_gate", "model.layers.%.mlp.gate_proj", ALL, PARTS },
	{ "blk.%.ffn_up", "model.layers.%.mlp.up_proj", ALL, PARTS },
	{ "blk.%.ffn_up", "model.layers.%.mlp.gate_up_proj", ALL, WHOLE },
	{ "blk.%.ffn_down", "model.layers.%.mlp.down_proj", ALL, WHOLE },
	{ "blk.%.ffn_down", "model.layers.%.mlp.down_proj", ALL, PARTS },
	{ "blk.%.attn_norm", "model.layers.%.operator_norm", LFM, EITHER },
	{ "blk.%.attn_q_norm", "model.layers.%.self_attn.q_layernorm", LFM, EITHER },
	{ "blk.%.attn_k_norm", "model.layers.%.self_attn.k_layernorm", LFM, EITHER },
	{ "blk.%.attn_output", "model.layers.%.self_attn.out_proj", LFM, EITHER },
	{ "blk.%.shortconv.conv", "model.layers.%.conv.conv", LFM, EITHER },
	{ "blk.%.shortconv.in_proj", "model.layers.%.conv.in_proj", LFM, EITHER },
	{ "blk.%.shortconv.out_proj", "model.layers.%.conv.out_proj", LFM, EITHER },
	{ "blk.%.ffn_norm", "model.layers.%.ffn_norm", LFM, EITHER },
	{ "blk.%.ffn_gate", "model.layers.%.feed_forward.w1", LFM, EITHER },
	{ "blk.%.ffn_up", "model.layers.%.feed_forward.w3", LFM, EITHER },
	{ "blk.%.ffn_down", "model.layers.%.feed_forward.w2", LFM, EITHER },
	{ "blk.%.ffn_gate", "model.layers.%.shared_mlp.input_linear", ALL, ONE },
	{ "blk.%.ffn_up", "model.layers.%.shared_mlp.input_linear", ALL, ONE },
	{ "blk.%.ffn_down", "model.layers.%.shared_mlp.output_linear", ALL, ONE },
	{ correction, "model.layers.%.feed_forward.expert_bias", LFM, FORWARD },
	{ "blk.%.ffn_gate_inp", "model.layers.%.feed_forward.gate", LFM, FORWARD },
	{ "blk.%.ffn_gate_exps", "model.layers.%.feed_forward.experts.*.w1", LFM, FORWARD },
	{ "blk.%.ffn_up_exps", "model.layers.%.feed_forward.experts.*.w3", LFM, FORWARD },
	{ "blk.%.ffn_down_exps", "model.layers.%.feed_forward.experts.*.w2", LFM, FORWARD },
	{ layer_scale, "model.layers.%.layer_scalar", GEMMA4, EITHER },
	{ "blk.%.post_ffw_norm_1", "model.layers.%.post_feedforward_layernorm_1", GEMMA4, SIDE },
	{ "blk.%.pre_ffw_norm_2", "model.layers.%.pre_feedforward_layernorm_2", GEMMA4, SIDE },
	{ "blk.%.post_ffw_norm_2", "model.layers.%.post_feedforward_layernorm_2", GEMMA4, SIDE },
	{ router_scale, "model.layers.%.router.scale", GEMMA4, SIDE },
	{ expert_scale, "model.layers.%.router.per_expert_scale", GEMMA4, SIDE },
	{ "blk.%.ffn_gate_inp", "model.layers.%.router.proj", GEMMA4, SIDE },
	{ "blk.%.ffn_gate_up_exps", "model.layers.%.experts.*.gate_proj", GEMMA4, SIDE },
	{ "blk.%.ffn_gate_up_exps", "model.layers.%.experts.*.up_proj", GEMMA4, SIDE },
	{ "blk.%.ffn_down_exps", "model.layers.%.experts.*.down_proj", GEMMA4, SIDE },
	{ sinks, "model.layers.%.self_attn.sinks", GPT, EITHER },
	{ correction, "model.layers.%.mlp.gate.e_score_correction_bias", ALL, GATED },
	{ correction, "model.layers.%.mlp.moe_statics.e_score_correction_bias", ALL, STATICS },
	{ "blk.%.ffn_gate_inp", "model.layers.%.mlp.router", ALL, OSS },
	{ "blk.%.ffn_gate_exps", "model.layers.%.mlp.experts.*.gate_proj", ALL, OSS },
	{ "blk.%.ffn_up_exps", "model.layers.%.mlp.experts.*.up_proj", ALL, OSS },
	{ "blk.%.ffn_down_exps", "model.layers.%.mlp.experts.*.down_proj", ALL, OSS },
	{ "blk.%.ffn_gate_inp", "model.layers.%.mlp.gate", ALL, EXPERTS },
	{ "blk.%.ffn_gate_exps", "model.layers.%.mlp.experts.*.gate_proj", ALL, EXPERTS },
	{ "blk.%.ffn_up_exps", "model.layers.%.mlp.experts.*.up_proj", ALL, EXPERTS },
	{ "blk.%.ffn_down_exps", "model.layers.%.mlp.experts.*.down_proj", ALL, EXPERTS },
	{ "blk.%.ffn_gate_inp_shexp", "model.layers.%.mlp.shared_expert_gate", ALL, SHARED },
	{ "blk.%.ffn_gate_shexp", "model.layers.%.mlp.shared_expert.gate_proj", ALL, SHARED },
	{ "blk.%.ffn_up_shexp", "model.layers.%.mlp.shared_expert.up_proj", ALL, SHARED },
	{ "blk.%.ffn_down_shexp", "model.layers.%.mlp.shared_expert.down_proj", ALL, SHARED },
	{ "blk.%.ffn_gate_shexp", "model.layers.%.mlp.shared_experts.gate_proj", ALL, SHARES },
	{ "blk.%.ffn_up_shexp", "model.layers.%.mlp.shared_experts.up_proj", ALL, SHARES },
	{ "blk.%.ffn_down_shexp", "model.layers.%.mlp.shared_experts.down_proj", ALL, SHARES },
	{ "blk.%.ffn_gate_inp", "model.layers.%.block_sparse_moe.gate", ALL, SPARSE },
	{ "blk.%.ffn_gate_exps", "model.layers.%.block_sparse_moe.experts.*.w1", ALL, SPARSE },
	{ "blk.%.ffn_up_exps", "model.layers.%.block_sparse_moe.experts.*.w3", ALL, SPARSE },
	{ "blk.%.ffn_down_exps", "model.layers.%.block_sparse_moe.experts.*.w2", ALL, SPARSE },
	{ "blk.%.attn_qkv", "model.layers.%.linear_attn.in_proj_qkv", ALL, LINEAR },
	{ "blk.%.attn_gate", "model.layers.%.linear_attn.in_proj_z", ALL, LINEAR },
	{ "blk.%.ssm_alpha", "model.layers.%.linear_attn.in_proj_a", ALL, LINEAR },
	{ "blk.%.ssm_beta", "model.layers.%.linear_attn.in_proj_b", ALL, LINEAR },
	{ "blk.%.ssm_conv1d", "model.layers.%.linear_attn.conv1d", ALL, LINEAR },
	{ "blk.%.ssm_norm", "model.layers.%.linear_attn.norm", ALL, LINEAR },
	{ "blk.%.ssm_out", "model.layers.%.linear_attn.out_proj", ALL, LINEAR },
	{ decay, "model.layers.%.linear_attn.A_log", ALL, LINEAR },
	{ dt, "model.layers.%.linear_attn.dt_bias", ALL, LINEAR },
};

static bool holds(const struct gguf_arch *a, size_t i)
{
	static const int of[] = { [GGUF_EXPERTS_MLP] = EXPERTS,
				  [GGUF_EXPERTS_SPARSE] = SPARSE,
				  [GGUF_EXPERTS_OSS] = OSS,
				  [GGUF_EXPERTS_QWEN2] = EXPERTS | SHARED,
				  [GGUF_EXPERTS_GLM] = EXPERTS | SHARES | PARTS | GATED,
				  [GGUF_EXPERTS_ERNIE] = EXPERTS | SHARES | PARTS | STATICS,
				  [GGUF_EXPERTS_LFM2] = FORWARD,
				  [GGUF_EXPERTS_SIDE] = SIDE | PARTS };
	const int up = (a->experts    ? of[a->experts]
			: a->fused_up ? WHOLE
			: a->one_up   ? ONE
				      : PARTS) |
		       (a->linear ? LINEAR : 0);
	return (names[i].norms & 1 << a->norms) && (names[i].up & up);
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

/* The number at *name_p, which is moved behind it; false: there is none. */
static bool read_number(const char **name_p, int64_t *v_p)
{
	const char *name = *name_p;
	int digits = 0;
	for (*v_p = 0; *name >= '0' && *name <= '9' && digits < 7; digits++)
		*v_p = *v_p * 10 + (*name++ - '0');
	*name_p = name;
	return digits && (digits == 1 || name[-digits] != '0');
}

/* What was read in place of % and *, or -1, and the name from ".weight" or ".bias" on, or its
 * end. */
struct match {
	int64_t layer, expert;
	const char *tail;
};

static bool match(const char *name, const char *pattern, struct match *m)
{
	m->layer = m->expert = -1;
	for (; *pattern; pattern++) {
		if (*pattern == '%') {
			if (!read_number(&name, &m->layer))
				return false;
		} else if (*pattern == '*') {
			if (!read_number(&name, &m->expert))
				return false;
		} else if (*name++ != *pattern) {
			return false;
		}
	}
	m->tail = name;
	return !strcmp(name, ".weight") || !strcmp(name, ".bias") || !*name;
}

static void expand_pattern(const char *pattern, const struct match *m, struct buf *out)
{
	for (; *pattern; pattern++) {
		if (*pattern == '%')
			buf_addf(out, "%lld", (long long)m->layer);
		else
			buf_addc(out, *pattern);
	}
	buf_adds(out, m->tail);
}

/* How the name in a GGUF ends where that in Hugging Face has no such end; else NULL. */
static const char *bare_end(size_t i)
{
	static const struct {
		const char *name, *end;
	} rows[] = { { sinks, ".weight" }, { correction, ".bias" },    { decay, "" },
		     { dt, ".bias" },      { layer_scale, ".weight" }, { router_scale, "" },
		     { expert_scale, "" } };
	for (size_t k = 0; k < ARRAY_LEN(rows); k++)
		if (names[i].gguf == rows[k].name)
			return rows[k].end;
	return NULL;
}

const struct gguf_arch *gguf_arch_mixture(const struct gguf_arch *a)
{
	for (size_t i = 0; i < ARRAY_LEN(arch); i++)
		if (arch[i].experts && !strcmp(arch[i].model_type, a->model_type))
			return &arch[i];
	return NULL;
}

/* Row `nth` of those with this name in a GGUF. */
static bool to_hf(const struct gguf_arch *a, const char *name, int nth, struct buf *out,
		  int64_t *layer_p)
{
	struct match m;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *bare = bare_end(i);
		if (holds(a, i) && match(name, names[i].gguf, &m) &&
		    (bare ? !strcmp(m.tail, bare) : *m.tail != 0) && nth-- == 0) {
			m.tail = bare ? "" : m.tail;
			expand_pattern(names[i].hf, &m, out);
			*layer_p = m.layer;
			return true;
		}
	}
	return false;
}

bool gguf_name_to_hf(const struct gguf_arch *a, const char *name, struct buf *out, int64_t *layer_p)
{
	return to_hf(a, name, 0, out, layer_p);
}

bool gguf_name_up_to_hf(const struct gguf_arch *a, const char *name, struct buf *out)
{
	int64_t layer;
	return a->experts == GGUF_EXPERTS_SIDE && to_hf(a, name, 1, out, &layer);
}

/* Row `nth` of those with this name in Hugging Face. */
static bool from_hf(const struct gguf_arch *a, const char *name, int nth, struct buf *out,
		    int64_t *layer_p, int64_t *expert_p)
{
	struct match m;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *bare = bare_end(i);
		if (holds(a, i) && match(name, names[i].hf, &m) && (bare != NULL) == !*m.tail &&
		    nth-- == 0) {
			m.tail = bare ? bare : m.tail;
			expand_pattern(names[i].gguf, &m, out);
			*layer_p = m.layer;
			*expert_p = m.expert;
			return true;
		}
	}
	return false;
}

bool gguf_name_from_hf(const struct gguf_arch *a, const char *name, struct buf *out,
		       int64_t *layer_p, int64_t *expert_p)
{
	return from_hf(a, name, 0, out, layer_p, expert_p);
}

bool gguf_name_of_up(const struct gguf_arch *a, const char *name, struct buf *out)
{
	int64_t layer, expert;
	return from_hf(a, name, 1, out, &layer, &expert);
}

void gguf_expert_name(const char *starred, int64_t expert, struct buf *out)
{
	const char *star = strchr(starred, '*');
	buf_addf(out, "%.*s%lld%s", (int)(star - starred), starred, (long long)expert, star + 1);
}
