/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_experts.c - mixtures of experts through whole runs: with the losses of routers the
 * same bits on one stage, on several, with several chunks, in groups, with shared state, with
 * activations in the memory of the host, and stopped and resumed; whatever share of the tokens an
 * expert gets. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/model_file.h"
#include "file/safetensors.h"
#include "model/source.h"
#include "support/long.h"
#include "support/record.h"
#include "support/tiny.h"
#include "train/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 4, MEMBERS_MOST = 4 };

struct split {
	const char *name;
	int stages, chunks;
	int members[2], share[MEMBERS_MOST];
	enum sharding sharding;
	unsigned offload;
};

static const struct split splits[] = {
	{ "two stages", 2, 1, { 1, 1 }, { 1, 1 }, SHARD_NONE, 0 },
	{ "a group", 1, 1, { 2 }, { 2, 1 }, SHARD_OPTIMIZER, 0 },
	{ "two by two chunks", 2, 2, { 1, 1 }, { 1, 1 }, SHARD_NONE, 0 },
	{ "chunks of one", 1, 3, { 1 }, { 1 }, SHARD_NONE, 0 },
	{ "chunks, offloaded", 1, 2, { 1 }, { 1 }, SHARD_NONE, OFFLOAD_ACTIVATIONS },
	{ "stages, offloaded", 2, 1, { 1, 1 }, { 1, 1 }, SHARD_NONE, OFFLOAD_ACTIVATIONS },
	{ "one to two", 2, 1, { 1, 2 }, { 1, 1, 2 }, SHARD_PARAMETERS, 0 },
};

static int attempt(const struct tiny *t, const char *run, const struct split *s, struct record *r,
		   const char *const *how, struct err *e)
{
	const char *device[MEMBERS_MOST] = { "cpu", "cpu", "cpu", "cpu" };
	struct config *c = tiny_config(t, run, how);
	struct train_result res = { 0 };
	struct placement p = { .stages = s ? s->stages : 1,
			       .chunks = s ? s->chunks : 1,
			       .members = s ? s->members : NULL,
			       .share = s ? s->share : NULL,
			       .device = device,
			       .schedule = s && s->sharding == SHARD_PARAMETERS ? "breadth_first"
					   : s && s->chunks > 1                 ? "interleaved"
										: "1f1b",
			       .reduce_order = SUM_EXACT,
			       .reducer = "direct" };
	static const int half[MEMBERS_MOST] = { STATE_WHOLE / 2, STATE_WHOLE / 2 },
			 behind[MEMBERS_MOST] = { STATE_WHOLE, STATE_WHOLE / 4,
						  STATE_WHOLE - STATE_WHOLE / 4 };
	if (s && s->sharding) {
		p.sharding = s->sharding;
		p.state_share = s->stages == 1 ? half : behind;
	}
	p.offload = s ? s->offload : 0;
	for (int i = 0; i <= p.stages * p.chunks; i++)
		p.first[i] = i * LAYERS / (p.stages * p.chunks);
	const struct train_sink sink = record_sink(r);
	const struct train_options o = { .stop = &r->stop, .place = &p, .act = DT_F32 };
	int rc = train_run(c, &o, &sink, &res, e);
	config_free(c);
	return rc;
}

static void run(const struct tiny *t, const char *name, const struct split *s, struct record *r,
		const char *const *how)
{
	struct err e = { 0 };
	if (attempt(t, name, s, r, how, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
}

#define QWEN                                                                                       \
	"{\"model_type\":\"qwen3_moe\"," TINY_COMMON                                               \
	",\"head_dim\":16,\"moe_intermediate_size\":24,\"num_experts\":6,"                         \
	"\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"             \
	"\"rms_norm_eps\":1e-6,\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"
#define MIXTRAL                                                                                    \
	"{\"model_type\":\"mixtral\"," TINY_COMMON                                                 \
	",\"num_local_experts\":3,\"num_experts_per_tok\":1,\"rms_norm_eps\":1e-5}"

#define GLM                                                                                        \
	"{\"model_type\":\"glm4_moe\"," TINY_COMMON                                                \
	",\"head_dim\":16,\"moe_intermediate_size\":24,\"n_routed_experts\":4,"                    \
	"\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,"          \
	"\"use_qk_norm\":true,\"first_k_dense_replace\":1,\"num_nextn_predict_layers\":1}"
#define ERNIE                                                                                      \
	"{\"model_type\":\"ernie4_5_moe\"," TINY_COMMON                                            \
	",\"head_dim\":16,\"moe_intermediate_size\":24,\"moe_num_experts\":4,\"moe_k\":2,"         \
	"\"moe_num_shared_experts\":1,\"moe_layer_start_index\":1}"
#define QWEN2                                                                                      \
	"{\"model_type\":\"qwen2_moe\"," TINY_COMMON                                               \
	",\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":20,\"num_experts\":4,"  \
	"\"num_experts_per_tok\":2,\"mlp_only_layers\":[2],\"use_sliding_window\":false,"          \
	"\"sliding_window\":0}"
#define QWEN35                                                                                     \
	"{\"model_type\":\"qwen3_5_moe_text\"," TINY_COMMON                                        \
	",\"head_dim\":16,\"full_attention_interval\":2,\"linear_num_key_heads\":1,"               \
	"\"linear_num_value_heads\":2,\"linear_key_head_dim\":8,\"linear_value_head_dim\":8,"      \
	"\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":20,\"num_experts\":4,"   \
	"\"num_experts_per_tok\":2,\"router_aux_loss_coef\":0.02,\"output_router_logits\":true}"
#define NEXT                                                                                       \
	"{\"model_type\":\"qwen3_next\"," TINY_COMMON                                              \
	",\"head_dim\":16,\"full_attention_interval\":2,\"linear_num_key_heads\":2,"               \
	"\"linear_num_value_heads\":4,\"linear_key_head_dim\":8,\"linear_value_head_dim\":6,"      \
	"\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":20,\"num_experts\":4,"   \
	"\"num_experts_per_tok\":2,\"mlp_only_layers\":[1]}"

#define LATENT                                                                                     \
	"{\"model_type\":\"glm4_moe_lite\",\"hidden_size\":32,\"intermediate_size\":40,"           \
	"\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4,"             \
	"\"vocab_size\":258,\"max_position_embeddings\":512"                                       \
	",\"q_lora_rank\":20,\"kv_lora_rank\":12,\"qk_nope_head_dim\":10,"                         \
	"\"qk_rope_head_dim\":6,\"v_head_dim\":12,\"moe_intermediate_size\":24,"                   \
	"\"n_routed_experts\":4,\"num_experts_per_tok\":2}"

#define OSS                                                                                        \
	"{\"model_type\":\"gpt_oss\"," TINY_COMMON                                                 \
	",\"head_dim\":16,\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":8}"

#define GEMMA4                                                                                     \
	"{\"model_type\":\"gemma4_text\"," TINY_COMMON                                             \
	",\"head_dim\":16,\"global_head_dim\":24,\"hidden_size_per_layer_input\":0,"               \
	"\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1,\"sliding_window\":8,"         \
	"\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","         \
	"\"full_attention\"],\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":2,"     \
	"\"moe_intermediate_size\":24}"

#define LFM2                                                                                       \
	"{\"model_type\":\"lfm2_moe\"," TINY_COMMON                                                \
	",\"moe_intermediate_size\":24,\"num_experts\":4,\"num_experts_per_tok\":2,"               \
	"\"num_dense_layers\":1,\"layer_types\":[\"conv\",\"full_attention\",\"conv\",\"conv\"]}"

static void splits_have_the_bits_of_one_process(void **state)
{
	(void)state;
	static const struct {
		const char *name, *config, *how[8], *result;
	} kind[] = {
		{ "lora",
		  QWEN,
		  { "reduce_order=exact", "lora_dropout=0.1", "router_z_loss_coef=0.01",
		    "max_steps=3" },
		  "adapter_model.safetensors" },
		{ "full",
		  MIXTRAL,
		  { "reduce_order=exact", "adapter=none", "router_aux_loss_coef=0.05",
		    "learning_rate=0.001", "max_steps=2", "gradient_checkpointing=true" },
		  "model.safetensors" },
		{ "sinks",
		  OSS,
		  { "reduce_order=exact", "adapter=none", "router_aux_loss_coef=0.05",
		    "learning_rate=0.001", "max_steps=2" },
		  "model.safetensors" },
		{ "glm",
		  GLM,
		  { "reduce_order=exact", "adapter=none", "router_z_loss_coef=0.01",
		    "learning_rate=0.001", "max_steps=2" },
		  "model.safetensors" },
		{ "short convolutions",
		  LFM2,
		  { "reduce_order=exact", "adapter=none", "learning_rate=0.001", "max_steps=2" },
		  "model.safetensors" },
		{ "linear attention",
		  QWEN35,
		  { "reduce_order=exact", "adapter=none", "learning_rate=0.001", "max_steps=2" },
		  "model.safetensors" },
		{ "linear attention, joined",
		  NEXT,
		  { "reduce_order=exact", "lora_target_linear=true", "max_steps=2" },
		  "adapter_model.safetensors" },
		{ "latent attention",
		  LATENT,
		  { "reduce_order=exact", "lora_target_linear=true", "lora_dropout=0.1",
		    "max_steps=2" },
		  "adapter_model.safetensors" },
		{ "beside an MLP",
		  GEMMA4,
		  { "reduce_order=exact", "lora_target_linear=true", "lora_dropout=0.1",
		    "learning_rate=0.02", "max_steps=3" },
		  "adapter_model.safetensors" },
		{ "shared",
		  QWEN2,
		  { "reduce_order=exact", "lora_target_linear=true", "router_aux_loss_coef=0.05",
		    "max_steps=2" },
		  "adapter_model.safetensors" },
	};
	for (size_t k = 0; k < ARRAY_LEN(kind); k++) {
		struct tiny t;
		struct record one = { 0 };
		tiny_make_model(&t, kind[k].config, 40);
		run(&t, kind[k].name, NULL, &one, kind[k].how);
		assert_true(one.loss[one.n - 1] < one.loss[0]);
		for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
			struct record r = { 0 };
			if (!test_is_long() && (k ? i != 1 : i != 0 && i != 4 && i != 6))
				continue;
			char name[64], file[160], of_one[160];
			snprintf(name, sizeof name, "%s-%zu", kind[k].name, i);
			run(&t, name, &splits[i], &r, kind[k].how);
			record_same(&one, &r, splits[i].name);
			snprintf(file, sizeof file, "%s/%s", name, kind[k].result);
			snprintf(of_one, sizeof of_one, "%s/%s", kind[k].name, kind[k].result);
			record_same_file(&t, of_one, file);
			printf("%s, %s: identical, loss %.4f to %.4f\n", kind[k].name,
			       splits[i].name, r.loss[0], r.loss[r.n - 1]);
		}
		tiny_remove(&t);
	}
}

/* The result has the experts of gpt-oss where transformers looks for them: in one tensor for all of
 * a layer, by columns, gate and up in turn. A checkpoint has them one by one. */
static void a_result_is_what_transformers_reads(void **state)
{
	(void)state;
	static const char *const how[] = { "adapter=none", "max_steps=2", NULL };
	struct tiny t;
	struct record r = { 0 };
	struct err e = { 0 };
	struct st_file *f = NULL, *c = NULL;
	char path[512];
	tiny_make_model(&t, OSS, 20);
	run(&t, "oss", NULL, &r, how);
	snprintf(path, sizeof path, "%s/oss/model.safetensors", t.dir);
	assert_int_equal(st_open(path, &f, &e), 0);
	snprintf(path, sizeof path, "%s/oss/checkpoints/step-000002/model.safetensors", t.dir);
	assert_int_equal(st_open(path, &c, &e), 0);
	assert_null(st_find(f, "model.layers.1.mlp.experts.2.up_proj.weight"));
	const struct st_tensor *all = st_find(f, "model.layers.1.mlp.experts.gate_up_proj"),
			       *bias = st_find(f, "model.layers.1.mlp.experts.gate_up_proj_bias"),
			       *up = st_find(c, "model.layers.1.mlp.experts.2.up_proj.weight"),
			       *ub = st_find(c, "model.layers.1.mlp.experts.2.up_proj.bias");
	assert_true(all && bias && up && ub);
	const int64_t out = up->shape[0], in = up->shape[1];
	assert_int_equal(all->shape[1], in);
	assert_int_equal(all->shape[2], 2 * out);
	const float *x = all->data, *y = up->data, *b = bias->data, *z = ub->data;
	for (int64_t i = 0; i < out; i++) {
		assert_true(b[2 * out * 2 + 2 * i + 1] == z[i]);
		for (int64_t k = 0; k < in; k++)
			assert_true(x[(2 * in + k) * 2 * out + 2 * i + 1] == y[i * in + k]);
	}
	st_close(f);
	st_close(c);
	tiny_remove(&t);
}

/* The loss of routers is part of the loss: about E P f of balanced experts, times its factor. */
static void a_loss_of_routers_counts(void **state)
{
	(void)state;
	static const char *const with[] = { "router_aux_loss_coef=0.5", "max_steps=2", NULL },
				 *const z[] = { "router_aux_loss_coef=0", "router_z_loss_coef=0.5",
						"max_steps=2", NULL },
				 *const none[] = { "router_aux_loss_coef=0", "max_steps=2", NULL },
				 *const own[] = { "max_steps=2", NULL };
	struct tiny t;
	struct record a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
	tiny_make_model(&t, QWEN, 40);
	run(&t, "none", NULL, &a, none);
	run(&t, "with", NULL, &b, with);
	run(&t, "z", NULL, &c, z);
	run(&t, "own", NULL, &d, own);
	const double balance = (b.loss[0] - a.loss[0]) / 0.5;
	printf("balance %.3f (2 when all experts are equally used), z %.3f\n", balance,
	       (c.loss[0] - a.loss[0]) / 0.5);
	assert_true(balance > 1.9 && balance < 6);
	assert_true(c.loss[0] > a.loss[0]);
	/* as the configuration of the model says */
	assert_true(fabs(d.loss[0] - a.loss[0] - 0.02 * balance) < 1e-6);
	tiny_remove(&t);
}

static void stopped_and_resumed(void **state)
{
	(void)state;
	static const char *const how[] = { "reduce_order=exact", "lora_dropout=0.1", "max_steps=4",
					   NULL },
				 *const again[] = { "lora_dropout=0.1", "max_steps=4",
						    "resume_from_checkpoint=latest", NULL };
	struct tiny t;
	struct record one = { 0 }, first = { .stop_after = 2 }, second = { 0 };
	tiny_make_model(&t, QWEN, 40);
	run(&t, "whole", NULL, &one, how);
	run(&t, "parts", &splits[0], &first, how);
	run(&t, "parts", &splits[1], &second, again);
	assert_true(second.n == 2 && second.loss[1] == one.loss[3]);
	record_same_file(&t, "whole/adapter_model.safetensors", "parts/adapter_model.safetensors");
	tiny_remove(&t);
}

static void refused(const struct tiny *t, const char *key, const char *says)
{
	struct record r = { 0 };
	struct err e = { 0 };
	const char *const how[] = { key, "max_steps=2", NULL };
	assert_true(attempt(t, "refused", NULL, &r, how, &e) < 0);
	printf("%s\n", e.msg);
	if (!strstr(e.msg, says))
		fail_msg("'%s' has not '%s'", e.msg, says);
}

static void keys_that_do_not_fit(void **state)
{
	(void)state;
	struct tiny t;
	tiny_make(&t, LAYERS, 40);
	refused(&t, "router_aux_loss_coef=0.1",
		"router_aux_loss_coef: a llama model has no router");
	refused(&t, "router_z_loss_coef=0.1", "router_z_loss_coef: a llama model has no router");
	tiny_remove(&t);
	tiny_make_model(&t, GLM, 40);
	refused(&t, "router_aux_loss_coef=0.1", "glm4_moe has no such loss");
	tiny_remove(&t);
	tiny_make_model(&t, ERNIE, 40);
	refused(&t, "router_aux_loss_coef=0.1", "ernie4_5_moe has no such loss");
	tiny_remove(&t);
}

/* Puts `now`, which is as long, in place of `was` behind `mark` in a file of the model. */
static void edit(const struct tiny *t, const char *name, const char *mark, const char *was,
		 const char *now)
{
	char path[400], inside[64];
	size_t n = 0;
	assert_int_equal(strlen(was), strlen(now));
	snprintf(inside, sizeof inside, "model/%s", name);
	char *all = tiny_read(t, inside, &n);
	char *at = memmem(all, n, mark, strlen(mark));
	assert_non_null(at);
	char *found = memmem(at, n - (size_t)(at - all), was, strlen(was));
	assert_non_null(found);
	memcpy(found, now, strlen(now));
	snprintf(path, sizeof path, "%s/%s", t->dir, inside);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(all, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	mem_free(all);
}

static void files_that_do_not_fit(void **state)
{
	(void)state;
	static const struct {
		const char *file, *mark, *was, *now, *says;
	} bad[] = {
		/* an expert that there is not, in place of another */
		{ "model.safetensors", "model.layers.1.mlp.experts.5.up_proj", "experts.5",
		  "experts.9", "model.layers.1.mlp.experts.9.up_proj" },
		{ "config.json", "num_experts_per_tok", "2", "9", "num_experts_per_tok" },
		{ "config.json", "num_experts", "6", "7", "model.layers.0.mlp.gate.weight" },
		{ "model.safetensors", "model.layers.1.mlp.gate.weight", "[6,32]", "[3,64]",
		  "model.layers.1.mlp.gate.weight" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct tiny t;
		tiny_make_model(&t, QWEN, 40);
		edit(&t, bad[i].file, bad[i].mark, bad[i].was, bad[i].now);
		refused(&t, "lora_r=4", bad[i].says);
		tiny_remove(&t);
	}
}

/* The experts of gpt-oss, one tensor a layer: blocks without their scales, of another number of
 * experts; and a layer that lacks one of its tensors. */
static void fused_files_that_do_not_fit(void **state)
{
	(void)state;
	static const struct {
		const char *mark, *was, *now, *says;
	} bad[] = {
		{ "model.layers.1.mlp.experts.down_proj_scales", "down_proj_scales",
		  "down_proj_sca1es", "down_proj_blocks' are missing" },
		{ "model.layers.0.mlp.experts.gate_up_proj_blocks", "[5,64,2,16]", "[5,64,1,32]",
		  "sizes that are not those of experts" },
		{ "model.layers.1.mlp.experts.gate_up_proj_bias", "gate_up_proj_bias",
		  "gate_up_proj_bits", "gate_up_proj_bits" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct tiny t;
		tiny_make_model(&t, OSS, 40);
		for (int k = 0; k < 2; k++) {
			char to[300];
			struct buf b = BUF_INIT;
			struct err e = { 0 };
			const char *name = k ? "config.json" : "model.safetensors";
			snprintf(to, sizeof to, "tests/golden/models/gpt-oss/%s", name);
			assert_int_equal(buf_read_file(&b, to, 1 << 24, &e), 0);
			snprintf(to, sizeof to, "%s/model/%s", t.dir, name);
			FILE *f = fopen(to, "wb");
			assert_non_null(f);
			assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
			assert_int_equal(fclose(f), 0);
			buf_release(&b);
		}
		edit(&t, "model.safetensors", bad[i].mark, bad[i].was, bad[i].now);
		char path[300];
		struct err e = { 0 };
		struct model_file *f = NULL;
		struct model_config *c = mem_zalloc(sizeof *c);
		snprintf(path, sizeof path, "%s/model", t.dir);
		int rc = model_file_open(path, &f, &e);
		if (rc >= 0)
			rc = model_config_read(model_file_config(f), path, c, &e);
		if (rc >= 0)
			rc = source_check_file(f, c, &e);
		printf("%s\n", e.msg);
		assert_true(rc < 0 && strstr(e.msg, bad[i].says));
		model_file_close(f);
		mem_free(c);
		tiny_remove(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splits_have_the_bits_of_one_process),
		cmocka_unit_test(a_result_is_what_transformers_reads),
		cmocka_unit_test(a_loss_of_routers_counts),
		cmocka_unit_test(stopped_and_resumed),
		cmocka_unit_test(keys_that_do_not_fit),
		cmocka_unit_test(files_that_do_not_fit),
		cmocka_unit_test(fused_files_that_do_not_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
