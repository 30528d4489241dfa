/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.c - see config_keys.h. */
#include "config/config_keys.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *other, *ours;
} synonyms[] = {
	{ "alpha", "lora_alpha" },
	{ "adam_eps", "adam_epsilon" },
	{ "auto_resume_from_checkpoints", "auto_resume" },
	{ "batch_size", "micro_batch_size" },
	{ "context_length", "sequence_len" },
	{ "data", "datasets" },
	{ "dataset", "datasets" },
	{ "eval_size", "val_set_size" },
	{ "grad_accum", "gradient_accumulation_steps" },
	{ "lr", "learning_rate" },
	{ "lr_scheduler_type", "lr_scheduler" },
	{ "lora_plus_lr_ratio", "loraplus_lr_ratio" },
	{ "max_length", "sequence_len" },
	{ "max_seq_len", "sequence_len" },
	{ "max_seq_length", "sequence_len" },
	{ "min_lr_ratio", "lr_min_ratio" },
	{ "model", "base_model" },
	{ "model_name_or_path", "base_model" },
	{ "dpo_beta", "rl_beta" },
	{ "noise_alpha", "neftune_noise_alpha" },
	{ "noisy_embedding_alpha", "neftune_noise_alpha" },
	{ "layers_to_transform", "peft_layers_to_transform" },
	{ "modules_to_save", "lora_modules_to_save" },
	{ "num_cycles", "lr_num_cycles" },
	{ "optim", "optimizer" },
	{ "output", "output_dir" },
	{ "peft_use_rslora", "use_rslora" },
	{ "per_device_train_batch_size", "micro_batch_size" },
	{ "r", "lora_r" },
	{ "rank", "lora_r" },
	{ "seq_len", "sequence_len" },
	{ "target_modules", "lora_target_modules" },
	{ "train_file", "datasets" },
	{ "use_dora", "peft_use_dora" },
	{ "warmup", "warmup_steps" },
};

/* Which values change nothing. */
enum idle {
	IDLE_ANY,
	IDLE_EMPTY,
	IDLE_DTYPE,   /* "auto..." and the empty ones; true is a compute_dtype */
	IDLE_OFFLINE, /* "offline", "disabled" and the empty ones */
	IDLE_TRUE,    /* "true" and nothing */
	IDLE_PLUGINS, /* only plugins that change speed and memory */
};

/* Keys of axolotl. `instead`: what to write for the values that would change something. */
static const struct {
	const char *key; /* with a '*' at its end: what begins so */
	enum idle idle;
	const char *instead;
} foreign[] = {
	{ "flash_attention", IDLE_ANY, NULL },
	{ "xformers_attention", IDLE_ANY, NULL },
	{ "sdp_attention", IDLE_ANY, NULL },
	{ "eager_attention", IDLE_ANY, NULL },
	{ "tf32", IDLE_ANY, NULL },
	{ "strict", IDLE_ANY, NULL },
	{ "dataset_processes", IDLE_ANY, NULL },
	{ "pad_to_sequence_len", IDLE_ANY, NULL },
	{ "gradient_checkpointing_kwargs", IDLE_ANY, NULL },
	{ "bf16", IDLE_DTYPE, "compute_dtype: bfloat16" },
	{ "fp16", IDLE_DTYPE, "compute_dtype: float16" },
	{ "model_type", IDLE_ANY, NULL },     /* config.json says it */
	{ "tokenizer_type", IDLE_ANY, NULL }, /* tokenizer.json says it */
	{ "attn_implementation", IDLE_ANY, NULL },
	{ "flash_attn_*", IDLE_ANY, NULL },
	{ "lora_mlp_kernel", IDLE_ANY, NULL },
	{ "lora_qkv_kernel", IDLE_ANY, NULL },
	{ "lora_o_kernel", IDLE_ANY, NULL },
	{ "liger_*", IDLE_ANY, NULL },
	{ "cut_cross_entropy", IDLE_ANY, NULL },
	{ "plugins", IDLE_PLUGINS, NULL },
	{ "eval_sample_packing", IDLE_ANY, NULL },
	{ "loss_watchdog_*", IDLE_ANY, NULL },
	{ "trust_remote_code", IDLE_ANY, NULL },
	{ "ddp_*", IDLE_ANY, NULL },
	{ "remove_unused_columns", IDLE_ANY, NULL },
	{ "eot_tokens", IDLE_ANY, NULL },
	/* speed and memory */
	{ "activation_offloading", IDLE_ANY, NULL },
	{ "dataloader_num_workers", IDLE_ANY, NULL },
	{ "dataloader_pin_memory", IDLE_ANY, NULL },
	{ "dataloader_prefetch_factor", IDLE_ANY, NULL },
	{ "dataset_num_proc", IDLE_ANY, NULL },
	{ "device_map", IDLE_ANY, NULL },
	{ "eval_batch_size", IDLE_ANY, NULL },
	{ "experimental_skip_move_to_device", IDLE_ANY, NULL },
	{ "experts_implementation", IDLE_ANY, NULL },
	{ "flex_attn_compile_kwargs", IDLE_ANY, NULL },
	{ "fused_attn_kernel", IDLE_ANY, NULL },
	{ "gc_steps", IDLE_ANY, NULL },
	{ "include_tkps", IDLE_ANY, NULL },
	{ "lora_on_cpu", IDLE_ANY, NULL },
	{ "low_cpu_mem_usage", IDLE_ANY, NULL },
	{ "tiled_mlp", IDLE_ANY, NULL },
	{ "torch_compile*", IDLE_ANY, NULL },
	{ "use_kernels", IDLE_ANY, NULL },
	{ "use_scattermoe", IDLE_ANY, NULL },
	{ "use_sonicmoe", IDLE_ANY, NULL },
	/* what is so here in any case */
	{ "hf_use_auth_token", IDLE_ANY, NULL }, /* docs/hub.md */
	{ "is_llama_derived_model", IDLE_ANY, NULL },
	{ "is_mistral_derived_model", IDLE_ANY, NULL },
	{ "is_qwen_derived_model", IDLE_ANY, NULL },
	{ "sample_packing_bin_size", IDLE_ANY, NULL },
	{ "sample_packing_eff_est", IDLE_ANY, NULL },
	{ "sample_packing_group_size", IDLE_ANY, NULL },
	{ "sample_packing_seq_len_multiplier", IDLE_ANY, NULL },
	{ "save_first_step", IDLE_ANY, NULL },
	{ "save_safetensors", IDLE_ANY, NULL },
	{ "shuffle_merged_datasets", IDLE_TRUE, NULL },
	{ "tokenizer_use_fast", IDLE_ANY, NULL },
	{ "total_num_tokens", IDLE_ANY, NULL },
	{ "use_tensorboard", IDLE_ANY, NULL },
	{ "eval_max_new_tokens", IDLE_ANY, NULL }, /* of eval_table_size */
	{ "bfloat16", IDLE_DTYPE, "compute_dtype: bfloat16" },
	{ "float16", IDLE_DTYPE, "compute_dtype: float16" },
	{ "eval_strategy", IDLE_EMPTY, "eval_steps or evals_per_epoch" },
	{ "save_strategy", IDLE_EMPTY, "save_steps or saves_per_epoch" },
	{ "tokens", IDLE_EMPTY, "special_tokens, for tokens that the model has" },
	{ "eval_table_size", IDLE_EMPTY, "sample_prompts" },
	{ "flash_optimum", IDLE_EMPTY, NULL },
	{ "gptq*", IDLE_EMPTY, NULL },
	{ "hub_model_id", IDLE_EMPTY, NULL },
	{ "max_packed_sequence_len", IDLE_EMPTY, NULL },
	{ "push_dataset_to_hub", IDLE_EMPTY, NULL },
	{ "resize_token_embeddings_to_32x", IDLE_EMPTY, NULL },
	{ "s2_attention", IDLE_EMPTY, NULL },
	{ "torchdistx_path", IDLE_EMPTY, NULL },
	{ "trackio_*", IDLE_EMPTY, NULL },
	{ "peft", IDLE_EMPTY, "adapter: qlora and peft_init_lora_weights: loftq" },
	{ "load_in_8bit", IDLE_EMPTY, "load_in_4bit: true" },
	{ "wandb_mode", IDLE_OFFLINE, "wandb_project, which writes an offline run" },
	{ "wandb_*", IDLE_EMPTY, "wandb_project, wandb_entity, wandb_name; no other key of W&B" },
	{ "group_by_length", IDLE_EMPTY, NULL },
	{ "lora_fan_in_fan_out", IDLE_EMPTY, NULL },
	{ "local_rank", IDLE_EMPTY, NULL },
	{ "debug", IDLE_EMPTY, NULL },
	/* how to divide a job: here the plan does it */
	{ "deepspeed", IDLE_ANY, NULL },
	{ "fsdp", IDLE_ANY, NULL },
	{ "fsdp_*", IDLE_ANY, NULL },
	{ "context_parallel_size", IDLE_ANY, NULL },
	{ "dp_replicate_size", IDLE_ANY, NULL },
	{ "dp_shard_size", IDLE_ANY, NULL },
	{ "expert_parallel_size", IDLE_ANY, NULL },
	{ "sequence_parallel_degree", IDLE_ANY, NULL },
	{ "tensor_parallel_size", IDLE_ANY, NULL },
};

/* Index into foreign[], or -1. */
static int find_foreign(const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
		size_t n = strcspn(foreign[i].key, "*");
		if (foreign[i].key[n] ? !strncmp(foreign[i].key, key, n)
				      : !strcmp(foreign[i].key, key))
			return (int)i;
	}
	return -1;
}

static bool empty(const struct yaml_node *v)
{
	return yaml_is_null(v) ||
	       (v->kind == YAML_SCALAR ? !v->text[0] || !strcasecmp(v->text, "false")
				       : v->count == 0);
}

static bool only_fast(const struct yaml_node *list)
{
	static const char *const fast[] = { "liger.LigerPlugin",
					    "cut_cross_entropy.CutCrossEntropyPlugin",
					    "kernels.KernelsPlugin",
					    "expert_parallel.ExpertParallelPlugin" };
	for (size_t i = 0; i < list->count; i++) {
		const struct yaml_node *p = list->child[i];
		bool found = false;
		for (size_t k = 0; k < ARRAY_LEN(fast) && p->kind == YAML_SCALAR; k++)
			found = found || strstr(p->text, fast[k]);
		if (!found)
			return false;
	}
	return true;
}

bool config_key_idle(const char *key, const struct yaml_node *v)
{
	int i = find_foreign(key);
	if (i < 0)
		return false;
	if (foreign[i].idle == IDLE_PLUGINS && v->kind == YAML_LIST)
		return only_fast(v);
	if (foreign[i].idle == IDLE_OFFLINE && v->kind == YAML_SCALAR &&
	    (!strcmp(v->text, "offline") || !strcmp(v->text, "disabled")))
		return true;
	if (foreign[i].idle == IDLE_TRUE)
		return yaml_is_null(v) || (v->kind == YAML_SCALAR && !strcasecmp(v->text, "true"));
	return foreign[i].idle == IDLE_ANY || empty(v) ||
	       (foreign[i].idle == IDLE_DTYPE && v->kind == YAML_SCALAR &&
		!strncasecmp(v->text, "auto", 4));
}

const char *config_key_dtype(const char *key, const struct yaml_node *v)
{
	int i = find_foreign(key);
	const bool on = v->kind == YAML_SCALAR && v->text && !strcasecmp(v->text, "true");
	return i >= 0 && foreign[i].idle == IDLE_DTYPE && on ? strchr(foreign[i].instead, ' ') + 1
							     : NULL;
}

const char *config_key_near(const char *key)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	for (size_t i = 0; i < ARRAY_LEN(synonyms); i++)
		if (!strcasecmp(synonyms[i].other, key))
			return synonyms[i].ours;
	return opt_nearest(rows, n, key);
}

static const char *instead(const char *key, const struct yaml_node *v)
{
	int i = v ? find_foreign(key) : -1;
	return i < 0 ? NULL : foreign[i].instead;
}

int config_key_unknown(const char *key, const struct yaml_node *v, const char *where, int line,
		       struct err *e)
{
	const char *say = instead(key, v), *near = say ? NULL : config_key_near(key);
	char at[32] = "";
	if (line)
		snprintf(at, sizeof at, ":%d", line);
	if (say)
		return err_set(e, ERR_USAGE, "%s%s: the key '%.60s' is not supported; write %s",
			       where, at, key, say);
	return err_set(e, ERR_USAGE, "%s%s: unknown key '%.60s'%s%s%s", where, at, key,
		       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* One of several: "'lr' (line 3: learning_rate?)" */
static void list_unknown(struct buf *b, const struct yaml_node *v)
{
	const char *say = instead(v->key, v), *near = say ? NULL : config_key_near(v->key);
	buf_addf(b, "%s'%.60s' (line %d%s%s%s)", b->n ? ", " : "", v->key, v->line,
		 say    ? ": write "
		 : near ? ": "
			: "",
		 say    ? say
		 : near ? near
			: "",
		 near ? "?" : "");
}

/* `bf16: true` and the like as the key compute_dtype. All keys about it, of which *said is one that
 * was seen, must say the same. *own_p: NULL where that key is there already. */
static int read_dtype(const struct yaml_node *v, const char *where, struct arena *a,
		      const struct yaml_node **said, struct yaml_node **own_p, struct err *e)
{
	const char *mapped = config_key_dtype(v->key, v), *text = mapped ? mapped : v->text;
	const struct yaml_node *was = *said;
	*own_p = NULL;
	if (was) {
		const char *other = config_key_dtype(was->key, was);
		other = other ? other : was->text;
		if (!text || !other || strcmp(text, other) != 0)
			return err_set(e, ERR_USAGE,
				       "%s:%d: '%.60s: %.60s' contradicts '%.60s: %.60s' (line "
				       "%d); keep one of them",
				       where, v->line, v->key, v->text ? v->text : "", was->key,
				       was->text ? was->text : "", was->line);
		return 0;
	}
	*said = v;
	struct yaml_node *own = arena_alloc(a, sizeof *own);
	if (!own)
		return err_nomem(e, sizeof *own, "the configuration");
	*own = *v;
	own->key = arena_strdup(a, "compute_dtype");
	own->text = text ? arena_strdup(a, text) : NULL;
	if (!own->key || (text && !own->text))
		return err_nomem(e, sizeof *own, "the configuration");
	*own_p = own;
	return 0;
}

int config_keys_sort(const struct yaml_node *map, const char *where, struct arena *a,
		     struct yaml_node *map_p, const char **ignored_p, struct err *e)
{
	size_t nrows, kept = 0, unknown = 0, n = map->kind == YAML_MAP ? map->count : 0;
	const struct opt *rows = config_rows(&nrows);
	const struct yaml_node *first = NULL, *dtype = NULL;
	struct buf wrong = BUF_INIT, ignored = BUF_INIT;
	struct yaml_node **child = arena_alloc(a, (n + 1) * sizeof *child);
	int rc = 0;
	if (!child)
		return err_nomem(e, n * sizeof *child, "the configuration");
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct yaml_node *v = map->child[i], *own;
		if (config_key_dtype(v->key, v) ||
		    (!strcmp(v->key, "compute_dtype") && !yaml_is_null(v))) {
			rc = read_dtype(v, where, a, &dtype, &own, e);
			if (rc == 0 && own)
				child[kept++] = own;
		} else if (opt_find(rows, nrows, v->key)) {
			child[kept++] = v;
		} else if (config_key_idle(v->key, v)) {
			buf_addf(&ignored, "%s%.60s", ignored.n ? ", " : "", v->key);
		} else {
			first = first ? first : v;
			list_unknown(&wrong, v);
			unknown++;
		}
	}
	if (rc == 0 && unknown == 1)
		rc = config_key_unknown(first->key, first, where, first->line, e);
	else if (rc == 0 && unknown)
		rc = err_set(e, ERR_USAGE, "%s: %zu unknown keys: %s", where, unknown,
			     buf_ok(&wrong, e) < 0 ? "" : wrong.p);
	if (rc == 0 && ignored.n) {
		*ignored_p = ignored.failed ? NULL : arena_strdup(a, ignored.p);
		if (!*ignored_p)
			rc = err_nomem(e, ignored.n, "a list of keys");
	}
	buf_release(&wrong);
	buf_release(&ignored);
	*map_p = *map;
	map_p->child = child;
	map_p->count = kept;
	return rc;
}

/* What a key of axolotl does here, in the words of the page. */
static const char *effect(enum idle idle)
{
	switch (idle) {
	case IDLE_ANY:
		return "ignored";
	case IDLE_DTYPE:
		return "true: as the key at the right; ignored when empty, false or `auto`";
	case IDLE_OFFLINE:
		return "ignored when empty, `offline` or `disabled`; else not here";
	case IDLE_TRUE:
		return "ignored when empty or true; else not here";
	case IDLE_PLUGINS:
		return "those of Liger, Cut Cross Entropy, kernels and expert parallelism are "
		       "ignored, others are not here";
	default:
		return "ignored when empty or false; else not here";
	}
}

void config_keys_markdown(struct buf *out)
{
	buf_adds(out,
		 "\n## Keys of axolotl\n\n"
		 "Keys above that axolotl has too mean the same; [axolotl.md](axolotl.md) says "
		 "what differs and why.\nOf its other keys these are known. Any other key is an "
		 "error that names it.\n\n"
		 "| key | here | write |\n|---|---|---|\n");
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		buf_addf(out, "| `%s` | %s | %s |\n", foreign[i].key, effect(foreign[i].idle),
			 foreign[i].instead ? foreign[i].instead : "");
	buf_adds(out,
		 "\nKeys of other programs are errors that say what the key is called here:\n\n"
		 "| there | here |\n|---|---|\n");
	for (size_t i = 0; i < ARRAY_LEN(synonyms); i++)
		buf_addf(out, "| `%s` | `%s` |\n", synonyms[i].other, synonyms[i].ours);
}
