/* SPDX-License-Identifier: Apache-2.0 */
/* text_part.c - see text_part.h. Sources: transformers 5.24, models/gemma3, gemma4, mistral3,
 * qwen2_vl, qwen2_5_vl, qwen3_vl and qwen3_vl_moe (configuration_*.py, defaults),
 * conversion_mapping.py (names). */
#include "file/text_part.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define QWEN2_VL                                                                                   \
	"{\"num_key_value_heads\": 8, \"max_position_embeddings\": 32768, "                        \
	"\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000}"

/* Of the same `whole` the first row holds for other kinds of `text`. `as`: the model_type that the
 * language model has alone. */
static const struct model {
	const char *whole, *text, *as, *architecture;
	bool flat; /* on the hub text_config's keys are beside those of the whole model */
	const char *defaults; /* what transformers takes where text_config lacks a key */
} models[] = {
	{ .whole = "gemma3",
	  .text = "gemma3_text",
	  .as = "gemma3_text",
	  .architecture = "Gemma3ForCausalLM",
	  .defaults =
		  "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
		  "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
		  "\"num_key_value_heads\": 4, \"head_dim\": 256, "
		  "\"max_position_embeddings\": 131072, \"query_pre_attn_scalar\": 256, "
		  "\"sliding_window\": 4096}" },
	{ .whole = "gemma4",
	  .text = "gemma4_text",
	  .as = "gemma4_text",
	  .architecture = "Gemma4ForCausalLM",
	  .defaults =
		  "{\"vocab_size\": 262144, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
		  "\"num_hidden_layers\": 30, \"num_attention_heads\": 8, "
		  "\"num_key_value_heads\": 4, \"max_position_embeddings\": 131072}" },
	{ .whole = "mistral3",
	  .text = "mistral",
	  .as = "mistral",
	  .architecture = "MistralForCausalLM",
	  .defaults = "{}" },
	{ .whole = "mistral3",
	  .text = "ministral3",
	  .as = "ministral3",
	  .architecture = "Ministral3ForCausalLM",
	  .defaults = "{}" },
	/* the three positions of a token of text are the same */
	{ .whole = "qwen2_vl",
	  .text = "qwen2_vl_text",
	  .as = "qwen2",
	  .architecture = "Qwen2ForCausalLM",
	  .flat = true,
	  .defaults = QWEN2_VL },
	{ .whole = "qwen2_5_vl",
	  .text = "qwen2_5_vl_text",
	  .as = "qwen2",
	  .architecture = "Qwen2ForCausalLM",
	  .flat = true,
	  .defaults = QWEN2_VL },
	{ .whole = "qwen3_vl",
	  .text = "qwen3_vl_text",
	  .as = "qwen3",
	  .architecture = "Qwen3ForCausalLM",
	  .defaults = "{\"head_dim\": 128, \"rope_theta\": 500000}" },
	{ .whole = "qwen3_vl_moe",
	  .text = "qwen3_vl_moe_text",
	  .as = "qwen3_moe",
	  .architecture = "Qwen3MoeForCausalLM",
	  .defaults = "{\"num_hidden_layers\": 24, \"num_attention_heads\": 16, "
		      "\"num_key_value_heads\": 16, \"max_position_embeddings\": 128000, "
		      "\"moe_intermediate_size\": 1408, \"num_experts_per_tok\": 4, "
		      "\"norm_topk_prob\": true, \"rope_theta\": 500000}" },
	{ .whole = "qwen3_5",
	  .text = "qwen3_5_text",
	  .as = "qwen3_5_text",
	  .architecture = "Qwen3_5ForCausalLM",
	  .defaults = "{}" },
	{ .whole = "qwen3_5_moe",
	  .text = "qwen3_5_moe_text",
	  .as = "qwen3_5_moe_text",
	  .architecture = "Qwen3_5MoeForCausalLM",
	  .defaults = "{}" },
};

/* Of the whole model, and not in the configuration of its language model, or better there. */
static const char *const outer[] = { "bos_token_id",
				     "eos_token_id",
				     "pad_token_id",
				     "dtype",
				     "torch_dtype",
				     "quantization_config",
				     NULL };

/* Which frequencies turn by which position of a piece of a picture. */
static void drop_sections(json_t *rope)
{
	const char *type = json_string_value(json_object_get(rope, "type"));
	json_object_del(rope, "mrope_section");
	json_object_del(rope, "mrope_interleaved");
	if (type && !strcmp(type, "mrope"))
		json_object_set_new(rope, "type", json_string("default"));
}

/* A language model's keys without those of the whole model. */
static void drop_outer(json_t *o)
{
	static const char *const keys[] = { "vision_config",         "image_token_id",
					    "video_token_id",        "vision_token_id",
					    "vision_start_token_id", "vision_end_token_id" };
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		json_object_del(o, keys[i]);
}

int text_part_config(const json_t *config, const char *where, json_t **text_p, struct err *e)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));
	const json_t *text = json_object_get(config, "text_config");
	const char *kind = json_string_value(json_object_get(text, "model_type"));
	const struct model *m = NULL;
	for (size_t i = 0; i < ARRAY_LEN(models) && type; i++)
		if (!strcmp(models[i].whole, type) &&
		    (!m || (kind && !strcmp(models[i].text, kind))))
			m = &models[i];
	if (!m)
		return 0;
	if (!text && m->flat) {
		text = config;
		kind = NULL;
	}
	if (!json_is_object(text))
		return err_set(e, ERR_INPUT,
			       "%s: 'text_config', the configuration of its language model, is "
			       "missing",
			       where);
	json_t *o = json_deep_copy(text);
	if (!o)
		return err_nomem(e, 4096, "a configuration");
	if (text == config)
		drop_outer(o);
	if (!kind || !strcmp(kind, m->text))
		json_object_set_new(o, "model_type", json_string(m->as));
	json_t *missing = json_loads(m->defaults, 0, NULL);
	json_object_update_missing(o, missing);
	json_decref(missing);
	drop_sections(json_object_get(o, "rope_scaling"));
	drop_sections(json_object_get(o, "rope_parameters"));
	for (const char *const *k = outer; *k; k++)
		if (json_object_get(config, *k))
			json_object_set(o, *k, json_object_get(config, *k));
	json_object_set_new(o, "architectures", json_pack("[s]", m->architecture));
	*text_p = o;
	return 1;
}

const char *text_part_name(const char *name, char *out, size_t cap)
{
	static const char *const others[] = { "vision_tower.",       "multi_modal_projector.",
					      "model.vision_tower.", "model.multi_modal_projector.",
					      "model.visual.",       "visual.",
					      "model.audio_tower.",  "model.embed_vision.",
					      "model.embed_audio." };
	static const struct {
		const char *from, *to;
	} rows[] = {
		{ "language_model.model.", "model." },
		{ "language_model.lm_head", "lm_head" },
		{ "model." TEXT_PART_INSIDE, "model." },
	};
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (!strncmp(name, others[i], strlen(others[i])))
			return NULL;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const size_t n = strlen(rows[i].from);
		if (strncmp(name, rows[i].from, n) != 0)
			continue;
		const int len = snprintf(out, cap, "%s%s", rows[i].to, name + n);
		return len > 0 && (size_t)len < cap ? out : name;
	}
	return name;
}
