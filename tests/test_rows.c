/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c - what every row of model.def, optim.def and lr.def must do, whichever rows there
 * are: a family reads a plain configuration and trains; an optimizer brings the loss down; a curve
 * stays between nothing and the full rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "model/model.h"
#include "model/source.h"
#include "model/stage.h"
#include "optim/optim.h"

enum { TOKENS = 12, STEPS = 6 };

struct trial {
	struct dev *dev;
	struct model_config cfg;
	struct stage stage;
	struct slot slot;
};

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

/* What latent attention has no meaning for where it is missing. */
static void add_latent(json_t *j)
{
	json_object_set_new(j, "num_key_value_heads", json_integer(4));
	json_object_set_new(j, "q_lora_rank", json_integer(6));
	json_object_set_new(j, "kv_lora_rank", json_integer(5));
	json_object_set_new(j, "qk_nope_head_dim", json_integer(4));
	json_object_set_new(j, "qk_rope_head_dim", json_integer(2));
	json_object_set_new(j, "v_head_dim", json_integer(3));
}

static void trial_open(struct trial *t, const struct model_family *f, const char *model_type)
{
	struct err e = { 0 };
	json_t *j = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", model_type,
			      "hidden_size", 16, "intermediate_size", 24, "num_hidden_layers", 2,
			      "num_attention_heads", 4, "num_key_value_heads", 2, "vocab_size", 32,
			      "tie_word_embeddings", 1);
	json_object_set_new(j, "blocks",
			    json_string("tokens 32 16; residual { attention heads=4 }; "
					"gelu; linear 32; cross_entropy"));
	if (strcmp(model_type, "heteroshard") != 0)
		json_object_del(j, "blocks");
	if (f->latent)
		add_latent(j);
	if (!strcmp(model_type, "gemma4_text"))
		json_object_set_new(j, "hidden_size_per_layer_input", json_integer(0));
	if (!strcmp(model_type, "granitemoehybrid")) {
		json_object_set_new(j, "num_local_experts", json_integer(0));
		json_object_set_new(j, "layer_types", json_pack("[s,s]", "attention", "attention"));
	}
	if (!strcmp(model_type, "lfm2_moe"))
		json_object_set_new(j, "num_dense_layers", json_integer(1));
	*t = (struct trial){ 0 };
	must(model_config_read(j, "config.json", &t->cfg, &e), &e);
	json_decref(j);
	must(dev_open("cpu", &t->dev, &e), &e);
	const struct stage_options o = { .act = DT_F32, .train_all = true, .last = t->cfg.layers };
	struct weight_source src = source_random(&t->cfg);
	must(stage_build(&t->stage, t->dev, &t->cfg, &o, &src, &e), &e);
	slot_init(&t->slot, &t->stage);
}

static void trial_close(struct trial *t)
{
	slot_release(&t->slot);
	stage_release(&t->stage);
	dev_close(t->dev);
}

/* Forward and backward over the same tokens every time; the mean loss. */
static double pass(struct trial *t)
{
	struct err e = { 0 };
	int32_t id[TOKENS], pos[TOKENS], label[TOKENS];
	const int32_t start[] = { 0, TOKENS };
	for (int32_t i = 0; i < TOKENS; i++) {
		id[i] = 7 * i % 31;
		pos[i] = i;
		label[i] = 7 * (i + 1) % 31;
	}
	const struct stage_batch b = { .step = 1,
				       .n = TOKENS,
				       .nseq = 1,
				       .id = id,
				       .pos = pos,
				       .label = label,
				       .start = start,
				       .train = true };
	must(stage_begin(&t->slot, &b, &e), &e);
	must(stage_forward(&t->slot, &e), &e);
	must(stage_backward(&t->slot, &e), &e);
	double loss = t->slot.loss / TOKENS;
	stage_end(&t->slot);
	return loss;
}

static void families(void **state)
{
	(void)state;
	const struct model_family *f;
	for (size_t i = 0; (f = model_family_at(i)); i++) {
		assert_non_null(f->help);
		for (const char *const *type = f->model_types; *type; type++) {
			struct trial t;
			trial_open(&t, f, *type);
			assert_string_equal(t.cfg.family, f->name);
			double loss = pass(&t);
			/* random weights know nothing: about log(32) */
			if (!(loss > 1 && loss < 12))
				fail_msg("%s (%s): loss %g", f->name, *type, loss);
			print_message("%s (%s): loss %.3f\n", f->name, *type, loss);
			trial_close(&t);
		}
	}
}

/* transformers takes a text for a list of its letters; here it was as if nothing was said. */
static void layer_types_are_a_list(void **state)
{
	(void)state;
	static const char *const type[] = { "qwen2", "gemma3_text", "qwen3_5_text" };
	for (size_t i = 0; i < ARRAY_LEN(type); i++) {
		struct model_config *c = mem_zalloc(sizeof *c);
		struct err e = { 0 };
		/* the second name is what transformers writes of a GGUF's */
		json_t *j = json_pack("{s:s, s:s, s:s, s:i}", "model_type", type[i],
				      "_model_name_or_path", "x", "layer_types",
				      "sliding_attention", "num_hidden_layers", 2);
		assert_non_null(c);
		assert_int_equal(model_config_read(j, "config.json", c, &e), ERR_INPUT);
		assert_string_equal(e.msg, "config.json: 'layer_types' must be a list with a name "
					   "for each layer");
		json_decref(j);
		mem_free(c);
	}
}

/* Parameters as transformers counts them (num_parameters()), and of GLM-4.7-Flash the corrections
 * of 46 routers over 64 experts, which are none there. */
static void counts_of_published_models(void **state)
{
	(void)state;
	static const struct {
		const char *config;
		int64_t count, head, rot;
	} is[] = {
		{ "{\"model_type\":\"glm4_moe_lite\",\"hidden_size\":2048,"
		  "\"intermediate_size\":10240,\"num_hidden_layers\":47,"
		  "\"num_attention_heads\":20,\"num_key_value_heads\":20,\"q_lora_rank\":768,"
		  "\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,\"qk_rope_head_dim\":64,"
		  "\"v_head_dim\":256,\"vocab_size\":154880,\"topk_method\":\"noaux_tc\","
		  "\"first_k_dense_replace\":1,\"num_nextn_predict_layers\":1,"
		  "\"partial_rotary_factor\":1.0}",
		  29943390976 + 46 * 64, 256, 64 },
		{ "{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,"
		  "\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
		  "\"num_hidden_layers\":27,\"num_attention_heads\":16,"
		  "\"num_key_value_heads\":16,\"q_lora_rank\":null,\"kv_lora_rank\":512,"
		  "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
		  "\"vocab_size\":102400,\"topk_method\":\"greedy\",\"n_group\":1,"
		  "\"topk_group\":1,\"scoring_func\":\"softmax\",\"moe_layer_freq\":1,"
		  "\"norm_topk_prob\":false,\"first_k_dense_replace\":1,\"seq_aux\":true,"
		  "\"aux_loss_alpha\":0.001,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,"
		  "\"factor\":40,\"mscale\":0.707,\"mscale_all_dim\":0.707,"
		  "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"}}",
		  15706484224, 192, 64 },
	};
	for (size_t i = 0; i < ARRAY_LEN(is); i++) {
		struct err e = { 0 };
		struct model_config *c = mem_zalloc(sizeof *c);
		json_t *j = json_loads(is[i].config, 0, NULL);
		must(model_config_read(j, "config.json", c, &e), &e);
		assert_int_equal(model_parameters(c), is[i].count);
		assert_int_equal(c->head_dim, is[i].head);
		assert_int_equal(c->rot, is[i].rot);
		assert_true(c->rope_near);
		assert_true(model_knows_tensor(c, "model.layers.1.self_attn.k_proj.weight") < 0);
		assert_int_equal(model_knows_tensor(c, "model.layers.47.eh_proj.weight"),
				 i ? -1 : 0);
		json_decref(j);
		mem_free(c);
	}
}

/* LFM2 as on the hub: parameters as transformers counts them, the width of MLPs, which layers have
 * attention; and what its configuration may not say. */
static void keys_of_lfm2(void **state)
{
	(void)state;
#define OF_HUB                                                                                     \
	"\"block_auto_adjust_ff_dim\":true,\"block_ffn_dim_multiplier\":1.0,"                      \
	"\"block_mlp_init_scale\":1.0,\"block_multiple_of\":256,\"block_norm_eps\":1e-05,"         \
	"\"block_out_init_scale\":1.0,\"block_use_swiglu\":true,\"conv_L_cache\":3,"               \
	"\"block_use_xavier_init\":true,\"conv_bias\":false,\"conv_use_xavier_init\":true,"        \
	"\"num_key_value_heads\":8,\"norm_eps\":1e-05,\"use_pos_enc\":true"
	static const char all[] = "\"num_hidden_layers\":2,\"hidden_size\":32,\"vocab_size\":64,"
				  "\"num_attention_heads\":4";
	static const struct {
		const char *more, *says; /* NULL: read */
		int64_t count, width, full;
	} rows[] = {
		{ OF_HUB ",\"num_hidden_layers\":16,\"hidden_size\":1024,\"block_dim\":1024,"
			 "\"conv_dim\":1024,\"conv_dim_out\":1024,\"block_ff_dim\":6656,"
			 "\"num_attention_heads\":16,\"num_heads\":16,\"vocab_size\":65536,"
			 "\"full_attn_idxs\":[2,5,8,10,12,14],\"rope_theta\":1000000.0",
		  NULL, 354483968, 4608, 6 },
		{ OF_HUB ",\"num_hidden_layers\":16,\"hidden_size\":2048,\"block_ff_dim\":12288,"
			 "\"intermediate_size\":8192,\"num_attention_heads\":32,"
			 "\"vocab_size\":65536,\"full_attn_idxs\":[2,5,8,10,12,14],"
			 "\"tie_embedding\":true",
		  NULL, 1170340608, 8192, 6 },
		{ "\"layer_types\":[\"conv\",\"full_attention\"],\"full_attn_idxs\":null,"
		  "\"block_auto_adjust_ff_dim\":false,\"intermediate_size\":40",
		  NULL, 0, 40, 1 },
		{ "\"block_ffn_dim_multiplier\":null,\"intermediate_size\":40", NULL, 0, 26, 2 },
		{ "\"block_ffn_dim_multiplier\":1.5,\"intermediate_size\":40,"
		  "\"block_multiple_of\":8",
		  NULL, 0, 40, 2 },
		{ "\"layer_types\":[\"conv\"]", "has 1 entries for 2 layers", 0, 0, 0 },
		{ "\"layer_types\":[\"conv\",\"linear\"]", "'linear' is not supported", 0, 0, 0 },
		{ "\"full_attn_idxs\":3", "must be a list of layers", 0, 0, 0 },
		{ "\"conv_bias\":true", "'conv_bias' is true; only false is supported", 0, 0, 0 },
		{ "\"conv_dim\":48", "'conv_dim' is 48; only 32 is supported", 0, 0, 0 },
		{ "\"use_pos_enc\":false", "'use_pos_enc' is false", 0, 0, 0 },
		{ "\"conv_L_cache\":1", "conv_L_cache", 0, 0, 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = { 0 };
		struct model_config *c = mem_zalloc(sizeof *c);
		char text[1024];
		const bool whole = strstr(rows[i].more, "hidden_size") != NULL;
		snprintf(text, sizeof text, "{\"model_type\":\"lfm2\",%s%s%s}", whole ? "" : all,
			 whole ? "" : ",", rows[i].more);
		json_t *j = json_loads(text, 0, NULL);
		assert_non_null(j);
		const int rc = model_config_read(j, "config.json", c, &e);
		if (rows[i].says ? rc >= 0 || !strstr(e.msg, rows[i].says) : rc < 0)
			fail_msg("%s: %s", rows[i].more, rc < 0 ? e.msg : "read");
		if (rc >= 0) {
			assert_true(!rows[i].count || model_parameters(c) == rows[i].count);
			assert_int_equal(c->intermediate, rows[i].width);
			assert_int_equal(c->layers - c->delta_layers, rows[i].full);
			assert_true(c->tied && c->norm_eps == 1e-5);
			assert_int_equal(model_knows_tensor(c, "model.embedding_norm.weight"), 1);
			assert_int_equal(model_knows_tensor(c, "model.norm.weight"), -1);
			assert_int_equal(model_knows_tensor(c, "model.layers.0.conv.conv.weight"),
					 c->delta[0] ? 1 : -1);
		}
		json_decref(j);
		mem_free(c);
	}
}

/* Granite 4 and LFM2 with experts: parameters of the published sizes as transformers counts them
 * (num_parameters(), and the corrections of 22 routers over 32 experts, which are none there), and
 * what their configurations may not say. */
static void layers_by_name(void **state)
{
	(void)state;
#define GRANITE                                                                                    \
	"granitemoehybrid\",\"vocab_size\":100352,\"num_experts_per_tok\":0,"                      \
	"\"position_embedding_type\":\"rope\",\"normalization_function\":\"rmsnorm\","             \
	"\"tie_word_embeddings\":true,\"num_key_value_heads\":4,\"init_method\":\"mup\","          \
	"\"mamba_n_heads\":80,\"num_attention_heads\":16,\"num_local_experts\":0,"
#define MICRO                                                                                      \
	"\"hidden_size\":2560,\"num_attention_heads\":40,\"num_key_value_heads\":8,"               \
	"\"shared_intermediate_size\":8192,\"num_hidden_layers\":40"
#define SPARSE                                                                                     \
	"lfm2_moe\",\"hidden_size\":2048,\"intermediate_size\":7168,\"vocab_size\":65536,"         \
	"\"num_attention_heads\":32,\"num_key_value_heads\":8,\"num_hidden_layers\":24"
	static const struct {
		const char *type, *more, *says; /* says: NULL: read */
		const char *layer;              /* all of them but these */
		int full[6];
		int64_t count;
	} rows[] = {
		{ GRANITE, MICRO, NULL, "attention", { 0 }, 3402836480 },
		{ GRANITE,
		  "\"hidden_size\":2048,\"shared_intermediate_size\":4096,\"num_hidden_layers\":40",
		  NULL,
		  "full_attention",
		  { 0 },
		  1631750144 },
		{ GRANITE,
		  "\"hidden_size\":1024,\"shared_intermediate_size\":2048,\"num_hidden_layers\":28",
		  NULL,
		  "attention",
		  { 0 },
		  352379904 },
		{ GRANITE, MICRO, "layer 0 is 'mamba'; of Granite 4 only", "mamba", { 3 }, 0 },
		{ GRANITE, MICRO, "layer 0 is 'linear_attention'", "linear_attention", { 3 }, 0 },
		{ GRANITE,
		  MICRO ",\"num_local_experts\":64",
		  "'num_local_experts' is 64; of Granite 4 only models without experts",
		  "attention",
		  { 0 },
		  0 },
		{ GRANITE,
		  MICRO ",\"layer_types\":[\"attention\"]",
		  "must have 40 entries",
		  NULL,
		  { 0 },
		  0 },
		{ GRANITE,
		  MICRO ",\"normalization_function\":\"layernorm\"",
		  "'normalization_function' is 'layernorm'",
		  "attention",
		  { 0 },
		  0 },
		{ SPARSE,
		  "\"conv_L_cache\":3",
		  NULL,
		  "conv",
		  { 2, 6, 10, 14, 18, 21 },
		  8339929856 + 22 * 32 },
		{ SPARSE,
		  "\"use_expert_bias\":false",
		  NULL,
		  "conv",
		  { 2, 6, 10, 14, 18, 21 },
		  8339929856 },
		{ SPARSE, "\"conv_bias\":true", "'conv_bias' is true", "conv", { 2 }, 0 },
		{ SPARSE, "\"num_dense_layers\":24", "no layer has experts", "conv", { 2 }, 0 },
		{ SPARSE, "\"num_experts_per_tok\":33", "and there are 32", "conv", { 2 }, 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = { 0 };
		struct model_config *c = mem_zalloc(sizeof *c);
		char text[1024];
		snprintf(text, sizeof text, "{\"model_type\":\"%s,%s}", rows[i].type, rows[i].more);
		for (char *p = text; (p = strstr(p, ",,"));)
			memmove(p, p + 1, strlen(p));
		json_t *j = json_loads(text, 0, NULL), *list = json_array();
		assert_non_null(j);
		const int64_t n = json_integer_value(json_object_get(j, "num_hidden_layers"));
		for (int64_t l = 0; rows[i].layer && l < n; l++) {
			bool full = false;
			for (size_t k = 0; k < ARRAY_LEN(rows[i].full) && rows[i].full[k]; k++)
				full |= rows[i].full[k] == l;
			json_array_append_new(list,
					      json_string(full ? "full_attention" : rows[i].layer));
		}
		if (rows[i].layer)
			json_object_set(j, "layer_types", list);
		const int rc = model_config_read(j, "config.json", c, &e);
		if (rows[i].says ? rc >= 0 || !strstr(e.msg, rows[i].says) : rc < 0)
			fail_msg("%s: %s", rows[i].more, rc < 0 ? e.msg : "read");
		if (rc >= 0)
			assert_int_equal(model_parameters(c), rows[i].count);
		json_decref(list);
		json_decref(j);
		mem_free(c);
	}
}

/* What a configuration with latent attention may not say, one line each. */
static void latent_keys(void **state)
{
	(void)state;
	static const struct {
		const char *more, *text;
	} bad[] = {
		{ "{}", NULL },
		{ "{\"q_lora_rank\":null,\"head_dim\":2,\"qk_head_dim\":6}", NULL },
		{ "{\"q_lora_rank\":\"x\"}", "'q_lora_rank' must be there, a number or null" },
		{ "{\"kv_lora_rank\":null}", "kv_lora_rank" },
		{ "{\"num_key_value_heads\":2}", "'num_key_value_heads' is 2" },
		{ "{\"v_head_dim\":7}", "4 + 2 numbers" },
		{ "{\"qk_rope_head_dim\":3}", "4 + 3 numbers" },
		{ "{\"head_dim\":6}", "'head_dim' is 6, and the other widths say 2" },
		{ "{\"qk_head_dim\":8}", "'qk_head_dim' is 8, and the other widths say 6" },
		{ "{\"n_group\":8}", "'n_group' is 8; only 1 is supported" },
		{ "{\"topk_method\":\"greedy\"}", "'topk_method' is 'greedy'" },
		{ "{\"scoring_func\":\"softmax\"}", "'scoring_func' 'softmax'" },
		{ "{\"moe_layer_freq\":2}", "'moe_layer_freq' is 2; only 1 is supported" },
		{ "{\"first_k_dense_replace\":0}", "without 'mlp_layer_types' only 1" },
		{ "{\"first_k_dense_replace\":1,\"mlp_layer_types\":[\"sparse\",\"sparse\"]}",
		  "'mlp_layer_types' says something else" },
		{ "{\"mlp_layer_types\":[\"dense\"]}", "has 1 layers, the model 2" },
		{ "{\"mlp_layer_types\":[\"dense\",\"dense\"]}", "no layer has experts" },
		{ "{\"mlp_layer_types\":[\"dense\",3]}", "layer 1 is neither" },
		{ "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"mscale_all_dim\":1}}", "factor" },
		{ "{\"model_type\":\"deepseek_v2\"}", NULL },
		{ "{\"model_type\":\"deepseek_v2\",\"topk_method\":\"group_limited_greedy\"}",
		  "'topk_method' is 'group_limited_greedy'" },
		{ "{\"model_type\":\"deepseek_v2\",\"norm_topk_prob\":true}",
		  "'norm_topk_prob' is true" },
		{ "{\"model_type\":\"deepseek_v2\",\"mlp_bias\":true}", "'mlp_bias' is true" },
		{ "{\"sliding_window\":8}", "'sliding_window' is not known" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };
		struct model_config *c = mem_zalloc(sizeof *c);
		json_t *more = json_loads(bad[i].more, 0, NULL);
		json_t *j =
			json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "glm4_moe_lite",
				  "hidden_size", 16, "intermediate_size", 24, "num_hidden_layers",
				  2, "num_attention_heads", 4, "vocab_size", 32);
		assert_non_null(more);
		add_latent(j);
		json_object_update(j, more);
		const int rc = model_config_read(j, "config.json", c, &e);
		if (rc < 0 ? !bad[i].text || !strstr(e.msg, bad[i].text) : bad[i].text != NULL)
			fail_msg("%s: %s", bad[i].more, rc < 0 ? e.msg : "is taken");
		json_decref(j);
		json_decref(more);
		mem_free(c);
	}
}

/* Kinds of Gemma 4 that are not read, and what is said of its layers one by one. */
static void kinds_of_gemma4(void **state)
{
	(void)state;
	static const struct {
		const char *more, *says; /* NULL: read */
		int64_t parameters;      /* of transformers' num_parameters(); 0: not asked */
	} rows[] = {
		{ "{}", NULL, 0 },
		{ "{\"hidden_size\":5376,\"intermediate_size\":21504,\"num_hidden_layers\":60,"
		  "\"num_attention_heads\":32,\"num_key_value_heads\":16,\"vocab_size\":262144,"
		  "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":4}",
		  NULL, 30697345280 },
		{ "{\"hidden_size_per_layer_input\":256}", "embeddings for each layer", 0 },
		{ "{\"num_kv_shared_layers\":2}", "'num_kv_shared_layers' 2", 0 },
		{ "{\"enable_moe_block\":true}", "moe_intermediate_size", 0 },
		{ "{\"enable_moe_block\":true,\"moe_intermediate_size\":8,\"num_experts\":4,"
		  "\"top_k_experts\":5}",
		  "top_k_experts", 0 },
		{ "{\"hidden_size\":2816,\"intermediate_size\":2112,\"num_hidden_layers\":30,"
		  "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"vocab_size\":262144,"
		  "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2,\"num_experts\":128,"
		  "\"enable_moe_block\":true,\"moe_intermediate_size\":704,\"top_k_experts\":8}",
		  NULL, 25233141760 },
		{ "{\"use_bidirectional_attention\":\"all\"}", "only null and 'vision'", 0 },
		{ "{\"use_bidirectional_attention\":\"vision\"}", NULL, 0 },
		{ "{\"global_head_dim\":7}", "heads of 7 numbers", 0 },
		{ "{\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}", "3 of keys for 4",
		  0 },
		{ "{\"per_layer_config\":{\"1\":{\"head_dim\":64,\"num_key_value_heads\":1}}}",
		  NULL, 0 },
		{ "{\"per_layer_config\":{\"0\":{\"head_dim\":64}}}", "layer 0 differs", 0 },
		{ "{\"per_layer_config\":{\"1\":{\"sliding_window\":64}}}", "layer 1 differs", 0 },
		{ "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\",\"factor\":2,"
		  "\"rope_theta\":1e6}}}",
		  "'full_attention': 'rope_type' 'yarn'", 0 },
		{ "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","
		  "\"rope_theta\":1e6}}}",
		  "'sliding_attention' is missing", 0 },
		{ "{\"unknown\":1}", "'unknown' is not known", 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = { 0 };
		struct model_config c;
		json_t *j = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type",
				      "gemma4_text", "hidden_size", 16, "intermediate_size", 24,
				      "num_hidden_layers", 2, "num_attention_heads", 4,
				      "num_key_value_heads", 2, "vocab_size", 32,
				      "hidden_size_per_layer_input", 0),
		       *more = json_loads(rows[i].more, 0, NULL);
		assert_int_equal(json_object_update(j, more), 0);
		const int rc = model_config_read(j, "config.json", &c, &e);
		if (rows[i].parameters && rc >= 0)
			assert_true(model_parameters(&c) == rows[i].parameters);
		if (rows[i].says ? rc >= 0 || !strstr(e.msg, rows[i].says) : rc < 0)
			fail_msg("%s: %s", rows[i].more, rc < 0 ? e.msg : "read");
		json_decref(more);
		json_decref(j);
	}
}

/* The loss after a few steps, as a share of the first. */
static double descend(const struct optimizer *o, float rate)
{
	struct err e = { 0 };
	struct trial t;
	const struct optim_config c = {
		.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .momentum = 0.5
	};
	struct norm_buffer host = { 0 };
	trial_open(&t, model_family_at(0), model_family_at(0)->model_types[0]);
	const struct optim_work work = { t.stage.scratch, &host };
	double first = 0;
	for (uint64_t s = 1; s <= STEPS; s++) {
		double loss = pass(&t);
		first = s == 1 ? loss : first;
		const struct optim_step os = { .step = s, .lr = rate, .scale = 1.0f / TOKENS };
		must(stage_tie(&t.stage, &t.stage, &e), &e);
		for (size_t i = 0; i < t.stage.nparam; i++) {
			if (!param_is_trained(&t.stage.param[i]))
				continue;
			if (s == 1)
				must(optim_init(o, &t.stage.param[i], &c, &e), &e);
			must(optim_update(o, &t.stage.param[i], &c, &os, &work, &e), &e);
		}
	}
	double share = pass(&t) / first;
	mem_free(host.sum);
	trial_close(&t);
	return share;
}

/* The states of parameters of several shapes: names differ, and where the optimizer says that it
 * can be cut, they can. */
static void states_of(const struct optimizer *o)
{
	static const struct {
		const char *name;
		int ndim;
		int64_t dim[2];
	} shape[] = { { "model.norm.weight", 1, { 7, 1 } },
		      { "model.norm.weight", 1, { 8192, 1 } },
		      { "model.layers.0.mlp.up_proj.weight", 2, { 3, 5 } },
		      { "model.layers.0.mlp.up_proj.weight", 2, { 64, 4099 } },
		      { "model.embed_tokens.weight", 2, { 4096, 64 } } };
	assert_in_range(o->cut, CUT_BLOCK, CUT_NONE);
	for (size_t i = 0; i < ARRAY_LEN(shape); i++) {
		struct optim_state s[PARAM_STATES];
		const uint64_t all = (uint64_t)(shape[i].dim[0] * shape[i].dim[1]);
		int n = o->states(o, shape[i].name, shape[i].ndim, shape[i].dim, s);
		assert_in_range(n, 0, PARAM_STATES);
		for (int k = 0; k < n; k++) {
			assert_non_null(s[k].name);
			assert_true(s[k].count > 0 && dtype_size(s[k].dtype) > 0);
			for (int j = 0; j < k; j++)
				assert_string_not_equal(s[j].name, s[k].name);
			if (o->cut == CUT_BLOCK)
				assert_true(s[k].per > 0 && STATE_BLOCK % s[k].per == 0);
			if (s[k].per > 0)
				assert_int_equal(s[k].count, (all + (uint64_t)s[k].per - 1) /
								     (uint64_t)s[k].per);
		}
	}
}

static void optimizers(void **state)
{
	(void)state;
	static const float rates[] = { 1e-4f, 1e-3f, 1e-2f, 1e-1f };
	const struct optimizer *o;
	for (size_t i = 0; (o = optimizer_at(i)); i++) {
		double least = INFINITY;
		assert_non_null(o->help);
		assert_ptr_equal(optimizer_find(o->name), o);
		assert_true(strlen(o->name) < OPTIM_NAME);
		states_of(o);
		for (size_t k = 0; k < ARRAY_LEN(rates); k++)
			least = fmin(least, descend(o, rates[k]));
		if (!(least < 0.95))
			fail_msg("%s: the loss after %d steps is %g of the first", o->name, STEPS,
				 least);
		print_message("%s: loss after %d steps %.2f of the first\n", o->name, STEPS, least);
	}
}

static void curves(void **state)
{
	(void)state;
	const struct lr_curve *c;
	for (size_t i = 0; (c = lr_curve_at(i)); i++) {
		assert_non_null(c->help);
		assert_ptr_equal(lr_curve_find(c->name), c);
		for (uint64_t total = 1; total <= 20; total++)
			for (uint64_t warmup = 0; warmup <= total; warmup++)
				for (uint64_t s = 1; s <= total; s++) {
					const struct lr_shape at = { .cosine_min_lr_ratio = 0.25,
								     .min_lr_ratio = 0.25,
								     .num_cycles = 3,
								     .power = 2,
								     .decay_ratio = 0.3 };
					double v = lr_at(c, 2, 2, s, total, warmup, &at);
					if (!(v >= 0 && v <= 2 * (1 + 1e-12)))
						fail_msg("%s: %g in step %d of %d", c->name, v,
							 (int)s, (int)total);
				}
	}
}

/* Rule 2 against transformers' schedules, from the first step after the warm-up on; and what rule 1
 * was: the cosine ended in its last step, linear one step behind. */
static void curves_of_transformers(void **state)
{
	(void)state;
	struct err e = { 0 };
	json_t *doc, *row, *v;
	size_t i, k;
	double worst = 0;
	const struct lr_shape quarter = { .cosine_min_lr_ratio = 0.25 };
	assert_int_equal(json_parse_file("tests/golden/optim/lr.json", 1 << 20, &doc, &e), 0);
	assert_true(json_array_size(doc) > 20);
	json_array_foreach(doc, i, row)
	{
		const struct lr_curve *c =
			lr_curve_find(json_string_value(json_object_get(row, "curve")));
		uint64_t steps = (uint64_t)json_integer_value(json_object_get(row, "steps")),
			 warmup = (uint64_t)json_integer_value(json_object_get(row, "warmup"));
		double ratio = json_number_value(json_object_get(row, "min_ratio"));
		const struct lr_shape at = {
			.cosine_min_lr_ratio = ratio,
			.min_lr_ratio = ratio,
			.num_cycles = json_number_value(json_object_get(row, "cycles")),
			.power = json_number_value(json_object_get(row, "power")),
			.decay_ratio = json_number_value(json_object_get(row, "decay_ratio"))
		};
		assert_non_null(c);
		json_array_foreach(json_object_get(row, "share"), k, v) if (json_is_number(v))
		{
			double got = lr_at(c, 2, 3, k + 1, steps, warmup, &at);
			worst = fmax(worst, fabs(got - 3 * json_number_value(v)));
		}
		if (warmup)
			assert_true(fabs(lr_at(c, 2, 3, 1, steps, warmup, &at) -
					 3.0 / (double)warmup) < 1e-12);
		assert_true(lr_at(c, 2, 3, steps, steps, warmup, &at) > 3 * ratio);
	}
	json_decref(doc);
	print_message("largest difference from transformers %.2e\n", worst);
	assert_true(worst < 1e-12);
	assert_true(fabs(lr_at(lr_curve_find("cosine"), 1, 1, 10, 10, 2, &quarter) - 0.25) < 1e-12);
	assert_true(fabs(lr_at(lr_curve_find("linear"), 1, 1, 3, 10, 2, &quarter) - 8.0 / 9) <
		    1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(families),
		cmocka_unit_test(layer_types_are_a_list),
		cmocka_unit_test(counts_of_published_models),
		cmocka_unit_test(latent_keys),
		cmocka_unit_test(keys_of_lfm2),
		cmocka_unit_test(layers_by_name),
		cmocka_unit_test(kinds_of_gemma4),
		cmocka_unit_test(optimizers),
		cmocka_unit_test(curves),
		cmocka_unit_test(curves_of_transformers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
