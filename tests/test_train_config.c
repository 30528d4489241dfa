/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: defaults, the file, overrides, every kind of bad input (one line, wrong use),
 * and the way back through JSON. */
#include "base/buf.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "config/config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define LEAST "base_model: m\ndatasets: [{path: a.jsonl, type: alpaca}]\noutput_dir: out\n"
#define LORA LEAST "adapter: lora\n"

static struct config *must(const char *text, int n, char **over)
{
	struct err e = { 0 };
	struct config *c = NULL;
	int rc = config_parse(CONFIG_TRAIN, text, strlen(text), "t.yaml", n, over, &c, &e);
	if (rc)
		fail_msg("%s", e.msg);
	return c;
}

static void defaults(void **state)
{
	(void)state;
	struct config *c = must(LEAST, 0, NULL);
	assert_int_equal(c->adapter, ADAPTER_NONE);
	assert_int_equal(c->sequence_len, 2048);
	assert_int_equal(c->micro_batch_size, 1);
	assert_true(c->adam_beta2 == 0.999);
	assert_int_equal(c->max_nonfinite_steps, 5);
	assert_true(c->peer_timeout == 20);
	assert_int_equal(c->seed, 42);
	assert_int_equal(c->data_seed, 42);
	assert_int_equal(c->ndatasets, 1);
	assert_string_equal(c->datasets[0].path, "a.jsonl");
	assert_string_equal(c->datasets[0].type, "alpaca");
	assert_false(c->load_in_4bit);
	assert_false(c->coordinator.given);
	assert_null(c->plan);
	config_free(c);
}

static void file_and_overrides(void **state)
{
	(void)state;
	char *over[] = { "learning_rate=3e-5",   "lora_target_modules=q_proj, o_proj",
			 "datasets=b.jsonl",     "seed=7",
			 "adapter=qlora",        "resume_from_checkpoint=true",
			 "optimizer=adamw_torch" };
	struct config *c =
		must(LORA "learning_rate: 1e-3\nlora_r: 16\nlora_dropout: null\nsave_steps: ~\n", 7,
		     over);
	assert_true(c->learning_rate == 3e-5);
	assert_int_equal(c->lora_r, 16);
	assert_int_equal(c->save_steps, 500);
	assert_int_equal(c->lora_target_modules.n, 2);
	assert_string_equal(c->lora_target_modules.item[1], "o_proj");
	assert_string_equal(c->datasets[0].path, "b.jsonl");
	assert_string_equal(c->datasets[0].type, "auto");
	assert_int_equal(c->data_seed, 7);
	assert_true(c->load_in_4bit);
	assert_string_equal(c->resume_from_checkpoint, "latest");
	assert_string_equal(c->optimizer, "adamw");
	config_free(c);
	char *list[] = { "datasets=[{path: x, type: text}, y]", "lora_target_modules=all-linear" };
	c = must(LORA, 2, list);
	assert_int_equal(c->ndatasets, 2);
	assert_string_equal(c->datasets[0].type, "text");
	assert_string_equal(c->datasets[1].path, "y");
	assert_true(c->lora_target_linear);
	assert_int_equal(c->lora_target_modules.n, 0);
	config_free(c);
	/* as in files of axolotl: both lists of modules; nothing held out; roles by their usual
	 * names */
	char *held[] = { "test_datasets=[{path: t, split: test}]", "datasets=[a, b]",
			 "eval_steps=5" };
	c = must(LEAST, 3, held);
	assert_true(c->ndatasets == 3 && c->ntest == 1);
	assert_string_equal(c->datasets[1].path, "b");
	assert_string_equal(c->datasets[2].path, "t");
	assert_true(c->datasets[2].held_out && !c->datasets[1].held_out);
	config_free(c);
	char *axolotl[] = { "datasets=[{path: x, roles: {user: [user, human], assistant: gpt}}]",
			    "lora_target_modules=[q_proj]", "lora_target_linear=true",
			    "evals_per_epoch=4" };
	c = must(LORA, 4, axolotl);
	assert_true(c->lora_target_linear && c->lora_target_modules.n == 1);
	assert_int_equal(c->evals_per_epoch, 0);
	config_free(c);
}

/* As HeteroShard's own generator writes it. */
static const char hetero[] =
	"{\n  \"version\": \"0.1.0\",\n  \"coordinator\": {\n    \"hostname\": \"mac\",\n    "
	"\"ip\": \"192.168.1.10\",\n    "
	"\"device\": \"auto\"\n  },\n"
	"  \"workers\": [\n    {\"id\": 1, \"hostname\": \"box\", \"ip\": \"192.168.1.150\", "
	"\"port\": 9999, \"device\": \"cuda\", "
	"\"num_gpus\": 1},\n"
	"    {\"id\": 2, \"hostname\": \"box\", \"ip\": \"192.168.1.150\", \"port\": 10000, "
	"\"device\": \"cuda:1\", \"num_gpus\": "
	"1}\n  ],\n"
	"  \"training\": {\"visualize\": true, \"visualization_format\": \"svg\", \"log_level\": "
	"\"INFO\"},\n"
	"  \"shard_plan\": [\n    {\"id\": \"local\", \"start\": 0, \"end\": 12},\n    {\"id\": 1, "
	"\"start\": 12, \"end\": 20},\n"
	"    {\"id\": 2, \"start\": 20, \"end\": 32, \"is_last\": true}\n  ]\n}\n";

static void hetero_config(void **state)
{
	(void)state;
	char *over[] = { "base_model=m", "datasets=d.json", "output_dir=o" };
	struct config *c = must(hetero, 3, over);
	assert_true(c->coordinator.given);
	assert_string_equal(c->coordinator.hostname, "mac");
	assert_int_equal(c->coordinator.port, 9998);
	assert_int_equal(c->nworkers, 2);
	assert_string_equal(c->workers[1].id, "2");
	assert_int_equal(c->workers[1].port, 10000);
	assert_string_equal(c->workers[1].device, "cuda:1");
	assert_int_equal(c->nshards, 3);
	assert_string_equal(c->shard_plan[0].id.item[0], "local");
	assert_int_equal(c->shard_plan[2].end, 32);
	assert_true(c->shard_plan[2].is_last);
	assert_string_equal(c->visualization_format, "svg");
	config_free(c);
	/* what the file says of the layers does not count */
	static char *const none[] = { "shard_plan=", "shard_plan=null", "shard_plan=[]" };
	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		char *without[] = { "base_model=m", "datasets=d.json", "output_dir=o", none[i] };
		c = must(hetero, 4, without);
		assert_int_equal(c->nshards, 0);
		assert_int_equal(c->nworkers, 2);
		config_free(c);
	}
}

static void is_last_may_be_left_out(void **state)
{
	(void)state;
	struct config *c = must(
		LEAST "coordinator: {ip: 10.0.0.1}\nworkers: [{id: 1, ip: 10.0.0.2}]\n"
		      "shard_plan: [{id: local, start: 0, end: 4}, {id: 1, start: 4, end: 8}]\n",
		0, NULL);
	assert_int_equal(c->nshards, 2);
	assert_false(c->shard_plan[0].is_last);
	assert_true(c->shard_plan[1].is_last);
	config_free(c);
}

static void keys_of_axolotl(void **state)
{
	(void)state;
	char *over[] = { "flash_attention=false" };
	struct config *c = must(LEAST "flash_attention: true\ntf32: false\nbf16: auto\nfp16:\n"
				      "wandb_project:\nwandb_entity: ''\nwandb_watch:\n"
				      "wandb_mode: offline\nstrict: false\n"
				      "dataset_prepared_path: last_run\nlearning_rate: 0.5\n"
				      "special_tokens: {}\nmodel_type: AutoModelForCausalLM\n",
				1, over);
	assert_true(c->learning_rate == 0.5);
	assert_null(c->wandb_project);
	assert_string_equal(c->dataset_prepared_path, "last_run");
	assert_string_equal(c->ignored, "flash_attention, tf32, bf16, fp16, wandb_watch, "
					"wandb_mode, strict, model_type");
	config_free(c);
}

/* bf16, fp16 and their long names are compute_dtype. */
static void dtypes_of_axolotl(void **state)
{
	(void)state;
	static const struct {
		const char *text, *over, *ignored;
		int want;
	} rows[] = {
		{ "bf16: true\nfp16: false\ntf32: true\n", NULL, "fp16, tf32", COMPUTE_BFLOAT16 },
		{ "bf16: auto\nfp16:\n", NULL, "bf16, fp16", COMPUTE_AUTO },
		{ "bf16: false\nfp16: true\n", NULL, "bf16", COMPUTE_FLOAT16 },
		{ "bf16: null\nfloat16: True\n", NULL, "bf16", COMPUTE_FLOAT16 },
		{ "bfloat16: true\n", NULL, NULL, COMPUTE_BFLOAT16 },
		{ "fp16: false\ncompute_dtype: float32\n", NULL, "fp16", COMPUTE_FLOAT32 },
		/* said twice, the same */
		{ "bf16: true\ncompute_dtype: bfloat16\n", NULL, NULL, COMPUTE_BFLOAT16 },
		{ "float16: true\nfp16: true\n", NULL, NULL, COMPUTE_FLOAT16 },
		/* the command line overrides the file */
		{ "bf16: true\n", "fp16=true", NULL, COMPUTE_FLOAT16 },
		{ "fp16: true\n", "compute_dtype=float32", NULL, COMPUTE_FLOAT32 },
		{ "fp16: true\n", "bf16=auto", "bf16", COMPUTE_FLOAT16 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[256], *over[] = { (char *)rows[i].over };
		snprintf(text, sizeof text, LEAST "%s", rows[i].text);
		struct config *c = must(text, rows[i].over != NULL, over);
		if (c->compute_dtype != rows[i].want)
			fail_msg("%s%s: %d", rows[i].text, rows[i].over ? rows[i].over : "",
				 c->compute_dtype);
		assert_string_equal(c->ignored ? c->ignored : "",
				    rows[i].ignored ? rows[i].ignored : "");
		config_free(c);
	}
}

/* What the files of axolotl have beside the keys that are here, and a data set in its words. */
static void files_of_axolotl(void **state)
{
	(void)state;
	struct config *c =
		must("base_model: m\noutput_dir: o\nmodel_type: LlamaForCausalLM\n"
		     "attn_implementation: flash_attention_2\nlora_qkv_kernel: true\n"
		     "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
		     "  - axolotl.integrations.kernels.KernelsPlugin\nliger_rope: true\n"
		     "fsdp_config: {fsdp_version: 2}\nactivation_offloading: legacy\n"
		     "shuffle_merged_datasets: true\ngptq_groupsize:\ndp_shard_size: 4\n"
		     "optimizer: adamw_torch_8bit\nspecial_tokens: {pad_token: x}\n"
		     "datasets:\n  - path: d\n    type: chat_template\n    split: 'train[:5%]'\n"
		     "    field_messages: talk\n    message_property_mappings: {role: from, "
		     "content: value}\n"
		     "    roles_to_train: [assistant, user]\n    data_files: [a.jsonl, b.jsonl]\n"
		     "    weight: 0.5\n    message_field_training: learn\n    shards: 1\n"
		     "    roles: {user: [human, user], assistant: [gpt, model], tool: [function]}\n"
		     "  - {path: f, roles_to_train: []}\n"
		     "  - path: e\n    type: {field_instruction: q, format: '{instruction}'}\n",
		     0, NULL);
	assert_string_equal(
		c->ignored,
		"model_type, attn_implementation, lora_qkv_kernel, plugins, liger_rope, "
		"fsdp_config, activation_offloading, shuffle_merged_datasets, gptq_groupsize, "
		"dp_shard_size");
	assert_string_equal(c->optimizer, "adamw_8bit");
	const struct dataset_source *d = c->datasets;
	assert_string_equal(d[0].split, "train[:5%]");
	assert_string_equal(d[0].field[FIELD_MESSAGES], "talk");
	assert_string_equal(d[0].field[FIELD_ROLE], "from");
	assert_string_equal(d[0].field[FIELD_CONTENT], "value");
	assert_int_equal(d[0].ndata_files, 2);
	assert_true(d[0].weight == 0.5);
	assert_string_equal(d[0].roles, "assistant,user");
	assert_string_equal(d[0].field[FIELD_TRAIN], "learn");
	assert_string_equal(d[1].roles, "");
	assert_string_equal(d[2].type, "alpaca");
	assert_string_equal(d[2].field[FIELD_INSTRUCTION], "q");
	assert_string_equal(d[2].format, "{instruction}");
	assert_null(d[2].roles);
	/* written as JSON and read back it is the same */
	struct buf one = BUF_INIT, two = BUF_INIT;
	struct config *again = NULL;
	struct err e = { 0 };
	config_to_json(c, &one);
	if (config_parse(CONFIG_TRAIN, one.p, one.n, "json", 0, NULL, &again, &e) < 0)
		fail_msg("%s", e.msg);
	config_to_json(again, &two);
	assert_string_equal(one.p, two.p);
	buf_release(&one);
	buf_release(&two);
	config_free(again);
	config_free(c);
}

static void several_cards(void **state)
{
	(void)state;
	struct config *c =
		must(LEAST
		     "coordinator: {ip: 10.0.0.1}\nworkers: [{id: 1, ip: 10.0.0.2, port: 9990, "
		     "device: cuda, num_gpus: 3}, {id: b, ip: 10.0.0.3, num_gpus: 2}, "
		     "{id: c, ip: 10.0.0.4, device: hip:2, num_gpus: 2}]\n"
		     "shard_plan: [{id: local, start: 0, end: 4}, {id: 1, start: 4, end: 12}, "
		     "{id: b.1, start: 12, end: 13}, {id: c, start: 13, end: 16, is_last: true}]\n",
		     0, NULL);
	static const struct {
		const char *id, *device;
		int port;
	} w[] = { { "1.0", "cuda:0", 9990 }, { "1.1", "cuda:1", 9991 },  { "1.2", "cuda:2", 9992 },
		  { "b.0", "auto:0", 9999 }, { "b.1", "auto:1", 10000 }, { "c.0", "hip:2", 9999 },
		  { "c.1", "hip:3", 10000 } };
	static const struct {
		const char *id;
		int start, end;
	} s[] = { { "local", 0, 4 }, { "1.0", 4, 7 },   { "1.1", 7, 10 }, { "1.2", 10, 12 },
		  { "b.1", 12, 13 }, { "c.0", 13, 15 }, { "c.1", 15, 16 } };
	assert_int_equal(c->nworkers, ARRAY_LEN(w));
	assert_int_equal(c->nshards, ARRAY_LEN(s));
	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		assert_string_equal(c->workers[i].id, w[i].id);
		assert_string_equal(c->workers[i].device, w[i].device);
		assert_int_equal(c->workers[i].port, w[i].port);
		assert_int_equal(c->workers[i].num_gpus, 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		assert_string_equal(c->shard_plan[i].id.item[0], s[i].id);
		assert_int_equal(c->shard_plan[i].start, s[i].start);
		assert_int_equal(c->shard_plan[i].end, s[i].end);
		assert_int_equal(c->shard_plan[i].is_last, i + 1 == ARRAY_LEN(s));
	}
	config_free(c);
}

#define CLUSTER(workers, shards)                                                                   \
	LEAST "coordinator: {ip: 10.0.0.1}\nworkers: [" workers "]\nshard_plan: [" shards "]\n"
#define W1 "{id: 1, ip: 10.0.0.2}"
#define KEY "hs1-xkdfyk4hc6anyjlwjuzls5leu7l5rjp22j5vh34crbsgsm7ns4kvaqmj"

static const struct {
	const char *text, *want; /* a piece of the message */
} bad[] = {
	{ "", "t.yaml: the file is empty" },
	{ "- a\n- b\n", "t.yaml:1: 'key: value' lines were expected" },
	{ "base_model: [m\n", "t.yaml:2: not valid YAML" },
	{ "base_model: m\nbase_model: n\n",
	  "t.yaml:2: the key 'base_model' stands twice (first on line 1)" },
	{ "a: &x 1\n", "anchors" },
	{ "a: *x\n", "aliases" },
	{ "a: !!str 1\n", "tags" },
	{ LEAST "---\nb: 1\n", "second YAML document" },
	{ "datasets: [a]\noutput_dir: o\n", "t.yaml: 'base_model' is missing" },
	{ "base_model: ''\ndatasets: [a]\noutput_dir: o\n", "'base_model' is missing" },
	{ "base_model: m\noutput_dir: o\n", "'datasets' is missing" },
	{ "base_model: m\ndatasets: []\noutput_dir: o\n", "'datasets' is missing" },
	{ LEAST "adapter: qlora\npeft_init_lora_weights: olora\n",
	  "'peft_init_lora_weights' is 'olora'; true, loftq and pissa are possible" },
	{ LEAST "adapter: lora\npeft_use_dora: true\npeft_init_lora_weights: pissa_niter_4\n",
	  "'peft_init_lora_weights: pissa' is not possible with peft_use_dora" },
	{ LEAST "adapter: lora\npeft_init_lora_weights: loftq\n", "needs 'adapter: qlora'" },
	{ LEAST "special_tokens: {cls_token: x}\n", "'special_tokens' has 'cls_token=x'" },
	{ LEAST "special_tokens: {eos_token: [x]}\n", "'eos_token' of 'special_tokens'" },
	{ LEAST "adapter: lora\npeft:\n  loftq_config: {loftq_bits: 4}\n",
	  "write adapter: qlora and peft_init_lora_weights: loftq" },
	{ "base_model: m\ntest_datasets: [a]\noutput_dir: o\n", "'datasets' is missing" },
	{ LEAST "test_datasets: [a]\nval_set_size: 3\n",
	  "give either 'val_set_size' or 'test_datasets', not both" },
	{ "base_model: m\ndatasets: [a]\n", "'output_dir' is missing" },
	{ LEAST "learning_rat: 1\n",
	  "t.yaml:4: unknown key 'learning_rat', did you mean 'learning_rate'?" },
	{ LEAST "lora_rank: 1\n", "did you mean" },
	{ LEAST "epochs: 1\n", "did you mean 'num_epochs'?" },
	{ LEAST "lr: 1e-4\n", "t.yaml:4: unknown key 'lr', did you mean 'learning_rate'?" },
	{ LEAST "max_seq_len: 64\nlr: 1\nload_in_8bit: true\nbf16: full\nquux: 1\n",
	  "t.yaml: 5 unknown keys: 'max_seq_len' (line 4: sequence_len?), 'lr' (line 5: "
	  "learning_rate?), 'load_in_8bit' (line 6: write load_in_4bit: true), 'bf16' (line 7: "
	  "write compute_dtype: bfloat16), "
	  "'quux' (line 8)" },
	{ LEAST "bf16: true\nfp16: true\n",
	  "t.yaml:5: 'fp16: true' contradicts 'bf16: true' (line 4); keep one of them" },
	{ LEAST "compute_dtype: float32\nbfloat16: true\n",
	  "t.yaml:5: 'bfloat16: true' contradicts 'compute_dtype: float32' (line 4)" },
	{ LEAST "fp16: true\ncompute_dtype: auto\n",
	  "t.yaml:5: 'compute_dtype: auto' contradicts 'fp16: true' (line 4)" },
	{ LEAST "fp16: [a]\n", "'fp16' is not supported; write compute_dtype: float16" },
	{ LEAST "wandb_watch: all\n",
	  "'wandb_watch' is not supported; write wandb_project, wandb_entity, wandb_name" },
	{ LEAST "wandb_mode: online\n", "'wandb_mode' is not supported; write wandb_project" },
	{ LEAST "zzzzz: 1\n", "t.yaml:4: unknown key 'zzzzz'" },
	{ LORA "lora_r: 0\n", "t.yaml:5: 'lora_r' is 0, allowed is 1 to 4096" },
	{ LORA "lora_r: 8.5\n", "'lora_r' must be a whole number, not '8.5'" },
	{ LORA "lora_r: 99999999999999999999\n", "'lora_r' must be a whole number" },
	{ LORA "lora_alpha: -1\n", "'lora_alpha' is -1, it must be greater than 0" },
	{ LORA "lora_dropout: 1\n", "'lora_dropout' is 1, allowed is 0 to 0.95" },
	{ LORA "lora_target_modules: []\n", "'lora_target_modules' is empty" },
	{ LORA "lora_target_modules: [q_proj, q_proj]\n", "names 'q_proj' twice" },
	{ LORA "lora_target_modules: {a: 1}\n",
	  "must be a word or a list of words, not a mapping" },
	{ LORA "lora_target_modules: [[a]]\n", "must be a list of words" },
	{ LEAST "shard_plan: [{id: {a: 1}, start: 0}]\n",
	  "'id' must be a word or a list of words, not a mapping" },
	{ LEAST "learning_rate: 0\n", "'learning_rate' is 0, it must be greater than 0" },
	{ LEAST "learning_rate: -1e-4\n", "t.yaml:4: 'learning_rate' is -1e-4" },
	{ LEAST "learning_rate: nan\n", "'learning_rate' must be a number, not 'nan'" },
	{ LEAST "learning_rate: .nan\n", "'learning_rate' must be a number" },
	{ LEAST "learning_rate: inf\n", "'learning_rate' must be a number" },
	{ LEAST "learning_rate: 1e999\n", "'learning_rate' must be a number" },
	{ LEAST "learning_rate: 0x10\n", "'learning_rate' must be a number" },
	{ LEAST "learning_rate: [1]\n", "must be one value, not a list" },
	{ LEAST "learning_rate: fast\n", "'learning_rate' must be a number, not 'fast'" },
	{ LEAST "lora_r: 8\n", "'lora_r' is given but no adapter" },
	{ LEAST "adapter: none\nuse_rslora: true\n", "'use_rslora' is given but no adapter" },
	{ LEAST "adapter: dora\n", "'adapter' is 'dora', allowed are: none, lora, qlora" },
	{ LEAST "load_in_4bit: true\n", "'load_in_4bit' needs 'adapter: qlora'" },
	{ LEAST "adapter: qlora\nload_in_4bit: false\n", "contradict" },
	{ LEAST "rl: ppo\n", "'rl' is 'ppo', allowed are: none, dpo, ipo, orpo, kto, simpo" },
	{ LEAST "rl: kto\nadapter: lora\nmicro_batch_size: 1\n",
	  "'micro_batch_size' must be at least 2" },
	{ LEAST "rl: orpo\nsample_packing: true\n",
	  "'sample_packing' is not possible with 'rl: orpo'" },
	{ LEAST "rl: orpo\ntrain_on_inputs: true\n",
	  "'train_on_inputs' has no meaning with 'rl: orpo'" },
	{ LEAST "rl: orpo\nmicro_batch_size: 5000\n", "micro_batch_size can be at most 4000" },
	{ LEAST "rl_beta: 0.2\n", "'rl_beta' belongs to 'rl: dpo'; with 'rl: none' leave it out" },
	{ LEAST "rl: orpo\nsimpo_gamma: 1\n", "'simpo_gamma' belongs to 'rl: simpo'" },
	{ LEAST "rl: simpo\norpo_alpha: 1\n", "'orpo_alpha' belongs to 'rl: orpo'" },
	{ LEAST "rl: orpo\norpo_alpha: 1\nrl_beta: 2\n", "either 'rl_beta' or 'orpo_alpha'" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: x, roles: {user: [boss]}}]\n",
	  "t.yaml:3: 'roles' of a dataset may name only aliases that are known" },
	{ "base_model: m\noutput_dir: o\ndatasets:\n  - path: x\n    roles_to_train: [user, "
	  "boss]\n",
	  "t.yaml:5: roles_to_train: unknown role 'boss'" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: x, roles_to_train: {user: 1}}]\n",
	  "'roles_to_train' of a dataset must be a list of roles" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: x, shards: 4}]\n",
	  "'shards' of a dataset is supported only as '1'" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: x, drop_system_message: true}]\n",
	  "'drop_system_message' of a dataset is supported only as 'false'" },
	{ LEAST "shuffle_merged_datasets: false\n", "unknown key 'shuffle_merged_datasets'" },
	{ LEAST "save_strategy: epoch\n",
	  "t.yaml:4: the key 'save_strategy' is not supported; write save_steps or" },
	{ LEAST "gptq: true\n", "unknown key 'gptq'" },
	{ LEAST "peft_use_rslora: true\n", "did you mean 'use_rslora'?" },
	{ LEAST "excess_length_strategy: keep\n", "'excess_length_strategy' is 'keep'" },
	{ LEAST "sequence_len: 1\n", "'sequence_len' is 1, allowed is 2 to 1048576" },
	{ LEAST "micro_batch_size: 0\n", "'micro_batch_size' is 0" },
	{ LEAST "gradient_accumulation_steps: -4\n", "'gradient_accumulation_steps' is -4" },
	{ LEAST "passes: [3, 4]\n",
	  "the passes of a step have 7 rows in all, but micro_batch_size x "
	  "gradient_accumulation_steps is 1 x 1: write 'micro_batch_size: 1' and "
	  "'gradient_accumulation_steps: 7'" },
	{ LEAST "gradient_accumulation_steps: 7\npasses: [3, 0, 4]\n",
	  "number 2 of 'passes' is '0': a whole number from 1 to 65536 was expected" },
	{ LEAST "passes: [x]\n", "number 1 of 'passes' is 'x'" },
	{ LEAST "gradient_accumulation_steps: 7\npasses: [3, 4.5]\n", "'passes' is '4.5'" },
	{ LEAST "num_epochs: 0\n", "'num_epochs' is 0" },
	{ LEAST "max_grad_norm: -1\n", "'max_grad_norm' is -1, it must be at least 0" },
	{ LEAST "warmup_steps: 3\nwarmup_ratio: 0.1\n", "not both" },
	{ LEAST "warmup_steps: 30\nmax_steps: 20\n",
	  "'warmup_steps' (30) is more than 'max_steps' (20)" },
	{ LEAST "lr_scheduler: linear\ncosine_min_lr_ratio: 0.1\n",
	  "'cosine_min_lr_ratio' belongs to 'lr_scheduler: cosine'; with 'lr_scheduler: linear' "
	  "leave it out" },
	{ LEAST "momentum: 0.9\n", "'momentum' belongs to 'optimizer: sgd'" },
	{ LEAST "optimizer: sgd\nadam_beta1: 0.8\n", "'adam_beta1' belongs to 'optimizer: adamw'" },
	{ LEAST "optimizer: soap\n", "t.yaml:4: 'optimizer' is 'soap', allowed are: adamw, sgd" },
	{ LEAST "optimizer: lion\nadam_epsilon: 1e-6\n",
	  "'adam_epsilon' belongs to 'optimizer: adamw'; with 'optimizer: lion' leave it out" },
	{ LEAST "lr_power: 2\n", "'lr_power' belongs to 'lr_scheduler: polynomial'" },
	{ LEAST "lr_scheduler: wsd\nlr_decay_ratio: 0\n", "'lr_decay_ratio' is 0" },
	{ LEAST "saves_per_epoch: 2\nsave_steps: 5\n",
	  "give either 'saves_per_epoch' or 'save_steps', not both" },
	{ LEAST "val_set_size: 4\nevals_per_epoch: 2\neval_steps: 5\n",
	  "give either 'evals_per_epoch' or 'eval_steps', not both" },
	{ LEAST "val_set_size: 4\nearly_stopping_patience: 2\n",
	  "'early_stopping_patience' needs evaluations in training: set 'eval_steps' or "
	  "'evals_per_epoch'" },
	{ LEAST "planner: quick\n", "'planner' is 'quick', allowed are: even, proportional," },
	{ LEAST "schedule: ''\n", "'schedule' is '', allowed are: auto, sequential, gpipe" },
	{ LEAST "eval_steps: 5\n", "'eval_steps' needs a validation split" },
	{ LEAST "val_set_size: 1.5\n", "'val_set_size' is 1.5" },
	{ LEAST "sample_packing: maybe\n", "'sample_packing' must be true or false, not 'maybe'" },
	{ LEAST "schedule: gpipe\ninterleave: 3\n",
	  "'interleave' needs a schedule that interleaves; 'gpipe' does not" },
	{ LEAST "resume_from_checkpoint: latest\noverwrite_output_dir: true\n", "contradict" },
	{ LEAST "notify: example.org/hook\n", "an address that begins with https:// or http://" },
	{ LEAST "micro_batch_size: 1024\ngradient_accumulation_steps: 65\n",
	  "= 66560 rows, at most 65536" },
	{ LEAST "visualization_format: gif\n", "'visualization_format' is 'gif'" },
	{ LEAST "device: ''\n", "'device' is empty" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{type: alpaca}]\n",
	  "t.yaml:3: a dataset needs a path" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: a, typ: alpaca}]\n",
	  "unknown key 'typ' of a dataset, did you mean 'type'?" },
	{ "base_model: m\noutput_dir: o\ndatasets: [{path: [a]}]\n",
	  "'path' of a dataset must be one word" },
	{ "base_model: m\noutput_dir: o\ndatasets: [[a]]\n", "a dataset needs a path" },
	{ LEAST "training: {epochs: 3}\n", "'training' holds only" },
	{ LEAST "training: 3\n", "'training' must be a mapping" },
	{ LEAST "workers: [" W1 "]\n", "'workers' are given but no 'coordinator'" },
	{ LEAST "coordinator: here\n", "'coordinator' must be a mapping" },
	{ LEAST "coordinator: {}\n", "'coordinator' has neither 'ip' nor 'hostname'" },
	{ LEAST "coordinator: {ip: a, prt: 1}\n", "unknown key 'prt', did you mean 'port'?" },
	{ LEAST "coordinator: {ip: a, port: 70000}\n", "'port' is 70000, allowed is 1 to 65535" },
	{ LEAST "coordinator: {ip: a, listen: some}\n", "'listen' is 'some'" },
	{ LEAST "coordinator: {ip: a, public_key: abc}\n",
	  "'public_key' of the coordinator: a public key is hs1-" },
	{ LEAST "coordinator: {ip: a, public_key: '" KEY "'}\nworkers: [" W1 "]\n",
	  "worker '1' has no public_key but the coordinator has one" },
	{ CLUSTER("{ip: b}", ""), "entry 1 of 'workers' has no 'id'" },
	{ CLUSTER("{id: local, ip: b}", ""), "cannot have the id 'local'" },
	{ CLUSTER("{id: 1}", ""), "worker '1' has neither 'ip' nor 'hostname'" },
	{ CLUSTER("{id: 1, ip: c, num_gpus: 2, port: 65535}", ""), "no port above 65535" },
	{ CLUSTER("{id: 1, ip: c, num_gpus: 3}", "{id: local, start: 0, end: 2}, "
						 "{id: 1, start: 2, end: 4, is_last: true}"),
	  "'shard_plan' gives 2 layers to '1', which has 3 cards" },
	{ CLUSTER("{id: 1, ip: c, num_gpus: 2}", "{id: 1, is_last: true}"),
	  "'shard_plan' of '1.0' needs 'start' and 'end'" },
	{ CLUSTER("{id: 1, ip: c, num_gpus: 2}, {id: '1.1', ip: d}", ""),
	  "two workers have the id '1.1'" },
	{ CLUSTER("{id: 1, ip: c, device: mps}", ""),
	  "t.yaml: 'device' of worker '1' is 'mps', allowed are: auto, cpu, opencl, cuda, hip; "
	  "Apple's Metal is not supported; on a Mac write opencl or cpu; 'heteroshard devices'" },
	{ LEAST "coordinator: {ip: a, device: rocm}\n",
	  "'device' of the coordinator is 'rocm', allowed are" },
	{ LEAST "transport: rdma\n", "'transport' is 'rdma', allowed are: auto, tls, shm, mpi" },
	{ LEAST "transport: loop\n", "'transport' is 'loop', allowed are: auto, tls, shm, mpi" },
	{ LEAST "device: quantum\n", "t.yaml: 'device' is 'quantum', allowed are: auto, cpu" },
	{ CLUSTER(W1 ", {id: 1, ip: c}", ""), "two workers have the id '1'" },
	{ CLUSTER(W1 ", {id: 2, ip: 10.0.0.2}", ""), "have the same address 10.0.0.2:9999" },
	{ CLUSTER("[3]", ""), "an entry of 'workers' must be a mapping" },
	{ CLUSTER(W1 ", 3", ""), "'workers' has names and mappings" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4}, {id: 3, start: 4, end: 8, is_last: true}"),
	  "names '3', which is no worker's id" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4}, {id: 1, start: 5, end: 8, is_last: true}"),
	  "a gap" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4}, {id: 1, start: 3, end: 8, is_last: true}"),
	  "an overlap" },
	{ CLUSTER(W1, "{id: local, start: 1, end: 4}, {id: 1, start: 4, end: 8, is_last: true}"),
	  "a gap" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 0}"), "is empty" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4, is_last: true}, {id: 1, start: 4, end: 8, "
		      "is_last: true}"),
	  "is not the last" },
	{ CLUSTER(W1,
		  "{id: local, start: 0, end: 4}, {id: local, start: 4, end: 8, is_last: true}"),
	  "names 'local' twice" },
	{ CLUSTER(W1, "{id: [local, 1], start: 0, end: 4}, {id: [1], start: 4, end: 8}"),
	  "'shard_plan' names '1' twice: a worker holds one stage" },
	{ CLUSTER(W1, "{id: [1, local, 1], start: 0, end: 4}"), "'shard_plan' names '1' twice" },
	{ CLUSTER(W1, "{id: [local, 1], share: [0, 0], start: 0, end: 4}"),
	  "the numbers of 'share' are all 0: no worker would compute these layers" },
	{ CLUSTER(W1, "{id: [local, 1], share: [1], start: 0, end: 4}"),
	  "'share' lists 1 and 'id' lists 2: a number for each worker" },
	{ CLUSTER(W1, "{id: [local, 1], share: [1, -1], start: 0, end: 4}"),
	  "'share' of '1' is '-1': a whole number from 0 to 1000000 was expected" },
	{ CLUSTER(W1, "{id: [], start: 0, end: 4}"), "entry 1 of 'shard_plan' has no 'id'" },
	{ CLUSTER(W1,
		  "{id: local, start: 0, end: 4}, {id: 1, start: 4, end: 8}") "gradient_"
									      "accumulation_steps: "
									      "3\npasses: [1, 2]\n",
	  "'passes' of sizes of their own need one stage, and 'shard_plan' has 2" },
	{ CLUSTER(W1, "{id: [local, 1], micro_batch_size: [1, 2], start: 0, end: 4}"),
	  "the passes of a step have 3 rows in all" },
	{ CLUSTER(W1, "{id: [local, 1], micro_batch_size: [1], start: 0, end: 4}"),
	  "'micro_batch_size' lists 1 and 'id' lists 2: a number for each worker" },
	{ CLUSTER(W1, "{id: [local, 1], micro_batch_size: [1, 0], start: 0, end: 4}"),
	  "'micro_batch_size' of '1' is '0': a whole number from 1 to 65536 was expected" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4}, "
		      "{id: 1, micro_batch_size: 2, start: 4, end: 8}"),
	  "'micro_batch_size' in 'shard_plan' needs a plan of one stage, and this one has 2" },
	{ CLUSTER(W1, "{id: [local, 1], share: [1000000, 1], micro_batch_size: [1, 2], start: 0, "
		      "end: 4}"),
	  "'share' counts passes: 1000001 of them, 16384 are allowed" },
	{ CLUSTER(W1, "{id: [local, 1], share: [2, 1], micro_batch_size: [1, 5], start: 0, "
		      "end: 4}") "gradient_accumulation_steps: 7\npasses: [1, 1, 5]\n",
	  "'passes' is [1, 1, 5], but 'shard_plan' deals the passes [1, 5, 1]: leave one" },
	{ CLUSTER(W1, "{id: [local, 1], state_share: [0.5], start: 0, end: 4}"),
	  "'state_share' lists 1 and 'id' lists 2" },
	{ CLUSTER(W1, "{id: [local, 1], state_share: [0.5, 1.5], start: 0, end: 4}"),
	  "'state_share' of '1' is '1.5': a number from 0 to 1 was expected" },
	{ CLUSTER(W1, "{id: [local, 1], state_share: [0.5, x], start: 0, end: 4}"),
	  "'state_share' of '1' is 'x'" },
	{ CLUSTER(W1, "{id: [local, 1], state_share: [0.5, 0.4], start: 0, end: 4}"),
	  "have the sum 0.9: it must be 1" },
	{ CLUSTER(W1,
		  "{id: [local, 1], state_share: [0.5, 0.5], start: 0, end: 4}") "shard: none\n",
	  "with 'shard: none' every worker stores all" },
	{ CLUSTER(W1,
		  "{id: [local, 1], start: 0, end: 4}") "offload: [parameters]\nschedule: gpipe\n",
	  "'offload' of parameters or activations needs 'schedule: breadth_first' (or auto); "
	  "'gpipe'" },
	{ CLUSTER(W1, "{id: [local, 1], start: 0, end: 4}") "offload: [weights]\n",
	  "'offload' is 'weights': auto, none, or a list of activations, optimizer, "
	  "parameters and experts" },
	{ CLUSTER(W1, "{id: [local, 1], start: 0, end: 4}") "shard: parameters\nschedule: 1f1b\n",
	  "'shard: parameters' needs 'schedule: breadth_first' (or auto); '1f1b'" },
	{ CLUSTER(W1, "{id: [local, 1], start: 0, end: 4}") "adapter: lora\nshard: "
							    "parameters\npeft_use_dora: "
							    "true\n",
	  "'peft_use_dora' with 'shard: parameters' is not supported: write 'shard: optimizer'" },
	{ CLUSTER(W1, "{id: local, end: 4}"), "needs 'start' and 'end'" },
	{ CLUSTER(W1, "{id: local, start: 0, end: 4, is_last: true}") "plan: p.json\n",
	  "either 'plan' or 'shard_plan'" },
};

static void bad_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };
		struct config *c = (struct config *)&e;
		int rc = config_parse(CONFIG_TRAIN, bad[i].text, strlen(bad[i].text), "t.yaml", 0,
				      NULL, &c, &e);
		if (rc != ERR_USAGE || !strstr(e.msg, bad[i].want))
			fail_msg("%s\n-> %d %s\nwanted: %s", bad[i].text, rc, e.msg, bad[i].want);
		assert_ptr_equal(c, &e);
		assert_null(strchr(e.msg, '\n'));
	}
}

static void bad_overrides(void **state)
{
	(void)state;
	static const struct {
		char *over;
		const char *want;
	} t[] = {
		{ "learning_rate", "'learning_rate' is not of the form key=value" },
		{ "=3", "not of the form key=value" },
		{ "lr=3", "command line: unknown key 'lr', did you mean 'learning_rate'?" },
		{ "learning_rate=", "command line: 'learning_rate' must be a number, not ''" },
		{ "max_step=3", "did you mean 'max_steps'?" },
		{ "datasets=[", "command line:" },
		{ "lora_r=4", "no adapter" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct err e = { 0 };
		struct config *c;
		char *over[] = { t[i].over };
		int rc =
			config_parse(CONFIG_TRAIN, LEAST, strlen(LEAST), "t.yaml", 1, over, &c, &e);
		if (rc != ERR_USAGE || !strstr(e.msg, t[i].want))
			fail_msg("%s -> %d %s", t[i].over, rc, e.msg);
	}
	struct err e = { 0 };
	struct config *c;
	assert_int_not_equal(config_load("/nowhere/job.yaml", 0, NULL, &c, &e), 0);
	assert_non_null(strstr(e.msg, "/nowhere/job.yaml"));
}

static void json_round_trip(void **state)
{
	(void)state;
	static const char *const text[] = {
		LEAST,
		LORA "lora_r: 3\nlearning_rate: 0.1\nlora_target_modules: [a, \"b\\\"c\"]\n",
		LORA "lora_target_linear: true\nval_set_size: 0.25\neval_steps: 3\nschedule: "
		     "interleaved\ninterleave: 4\n",
		LEAST "adapter: qlora\nresume_from_checkpoint: latest\nchat_template: chatml\n",
		CLUSTER(W1,
			"{id: local, start: 0, end: 4}, {id: 1, start: 4, end: 8, is_last: true}"),
		CLUSTER("{id: 1, ip: 10.0.0.2, listen: ip}", ""),
	};
	for (size_t i = 0; i < ARRAY_LEN(text); i++) {
		struct config *c = must(text[i], 0, NULL), *d;
		struct buf a = BUF_INIT, b = BUF_INIT;
		config_to_json(c, &a);
		d = must(a.p, 0, NULL);
		config_to_json(d, &b);
		assert_string_equal(a.p, b.p);
		assert_int_equal(c->lora_target_modules.n, d->lora_target_modules.n);
		for (size_t k = 0; k < c->nworkers; k++)
			assert_int_equal(d->workers[k].listen,
					 i == ARRAY_LEN(text) - 1 ? LISTEN_IP : LISTEN_ALL);
		config_free(c);
		config_free(d);
		buf_release(&a);
		buf_release(&b);
	}
}

static void memory_runs_out(void **state)
{
	(void)state;
	char *over[] = { "base_model=m", "datasets=d.json", "output_dir=o" };
	for (uint64_t n = 1;; n++) {
		struct err e = { 0 };
		struct config *c = NULL;
		mem_fail_after(n);
		int rc =
			config_parse(CONFIG_TRAIN, hetero, sizeof hetero - 1, "t", 3, over, &c, &e);
		mem_fail_after(0);
		if (!rc) {
			assert_true(n > 2);
			config_free(c);
			break;
		}
		assert_int_equal(rc, ERR_NOMEM);
		assert_null(c);
	}
}

static void every_row_has_a_help_line(void **state)
{
	(void)state;
	size_t n;
	const struct opt *rows = config_rows(&n);
	for (size_t i = 0; i < n; i++) {
		assert_non_null(rows[i].help);
		assert_null(strchr(rows[i].help, '\n'));
		assert_ptr_equal(opt_find(rows, n, rows[i].key), &rows[i]);
	}
	struct buf text = BUF_INIT;
	config_reference(false, &text);
	config_reference(true, &text);
	struct err e;
	assert_int_equal(buf_ok(&text, &e), 0);
	assert_non_null(strstr(text.p, "gradient_accumulation_steps"));
	buf_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(file_and_overrides),
		cmocka_unit_test(hetero_config),
		cmocka_unit_test(several_cards),
		cmocka_unit_test(is_last_may_be_left_out),
		cmocka_unit_test(keys_of_axolotl),
		cmocka_unit_test(dtypes_of_axolotl),
		cmocka_unit_test(files_of_axolotl),
		cmocka_unit_test(bad_files),
		cmocka_unit_test(bad_overrides),
		cmocka_unit_test(json_round_trip),
		cmocka_unit_test(memory_runs_out),
		cmocka_unit_test(every_row_has_a_help_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
