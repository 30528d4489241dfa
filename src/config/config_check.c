/* SPDX-License-Identifier: Apache-2.0 */
/* config_check.c - checks between the keys of a configuration; each failure is one line. */
#include "config/config_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "optim/optim.h"
#include "prefer/prefer.h"
#include "sched/sched.h"
#include "tensor/state_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool given(const bool *seen, const char *key)
{
	size_t n;
	const struct opt *rows = config_rows(&n), *r = opt_find(rows, n, key);
	return r && seen[r - rows];
}

static bool empty(const char *s) { return !s || !s[0]; }

/* Optimizers may have other defaults than the keys. */
static void settle_optimizer(struct config *c, const bool *seen)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	const struct optimizer *o = optimizer_find(c->optimizer);
	for (const struct optim_default *d = o ? o->defaults : NULL; d && d->key; d++) {
		const struct opt *r = opt_find(rows, n, d->key);
		if (r && r->kind == OPT_FLOAT && !seen[r - rows])
			memcpy((char *)c + r->offset, &d->value, sizeof d->value);
	}
}

static void settle(struct config *c, const bool *seen)
{
	settle_optimizer(c, seen);
	if (c->adapter == ADAPTER_QLORA && !given(seen, "load_in_4bit"))
		c->load_in_4bit = true;
	if (c->saves_per_epoch && !given(seen, "save_steps"))
		c->save_steps = 0;
	if (!given(seen, "data_seed"))
		c->data_seed = c->seed;
	if (c->lora_target_modules.n == 1 &&
	    !strcasecmp(c->lora_target_modules.item[0], "all-linear")) {
		c->lora_target_linear = true;
		c->lora_target_modules.n = 0;
	} else if (c->lora_target_linear && !given(seen, "lora_target_modules")) {
		c->lora_target_modules.n = 0;
	}
	if (c->resume_from_checkpoint) {
		if (!strcasecmp(c->resume_from_checkpoint, "true") ||
		    !strcasecmp(c->resume_from_checkpoint, "latest"))
			c->resume_from_checkpoint = "latest";
		else if (!strcasecmp(c->resume_from_checkpoint, "false") ||
			 !c->resume_from_checkpoint[0])
			c->resume_from_checkpoint = NULL;
	}
	/* An empty text on the command line removes an optional setting. */
	const char **optional[] = { &c->chat_template,
				    &c->chat_template_jinja,
				    &c->plan,
				    &c->dataset_prepared_path,
				    &c->profile,
				    &c->key_file,
				    &c->lora_model_dir,
				    &c->peft_init_lora_weights,
				    &c->mlflow_experiment_name,
				    &c->mlflow_run_name,
				    &c->wandb_project,
				    &c->wandb_entity,
				    &c->wandb_name,
				    &c->cache_dir };
	if (c->peft_init_lora_weights && !strcasecmp(c->peft_init_lora_weights, "true"))
		c->peft_init_lora_weights = NULL;
	/* PEFT's name for quicker, rougher values; here there is one way */
	if (c->peft_init_lora_weights && !strncmp(c->peft_init_lora_weights, "pissa_niter_", 12) &&
	    strspn(c->peft_init_lora_weights + 12, "0123456789") > 0)
		c->peft_init_lora_weights = "pissa";
	for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
		if (*optional[i] && !**optional[i])
			*optional[i] = NULL;
}

/* `chat_template: jinja` says only that the text is in the other key. */
static int settle_template(struct config *c, const char *where, struct err *e)
{
	bool jinja = c->chat_template && !strcmp(c->chat_template, "jinja");
	if (!c->chat_template_jinja)
		return jinja ? err_set(e, ERR_USAGE,
				       "%s: 'chat_template: jinja' needs 'chat_template_jinja': "
				       "the "
				       "text of the template, or its file",
				       where)
			     : 0;
	if (c->chat_template && !jinja && strcmp(c->chat_template, c->chat_template_jinja))
		return err_set(e, ERR_USAGE,
			       "%s: give either 'chat_template' or 'chat_template_jinja', not both",
			       where);
	c->chat_template = c->chat_template_jinja;
	return 0;
}

static int check_needed(const struct config *c, enum config_need need, const char *where,
			struct err *e)
{
	if (need == CONFIG_PART)
		return 0;
	if (empty(c->base_model))
		return err_set(e, ERR_USAGE,
			       "%s: 'base_model' is missing: the folder or .gguf file of the model "
			       "to start from",
			       where);
	if (need == CONFIG_MODEL)
		return 0;
	if (c->ndatasets == c->ntest)
		return err_set(
			e, ERR_USAGE,
			"%s: 'datasets' is missing: the files to learn from, as '- path: FILE'",
			where);
	if (empty(c->output_dir))
		return err_set(e, ERR_USAGE,
			       "%s: 'output_dir' is missing: the folder for the adapter, metrics "
			       "and checkpoints",
			       where);
	for (size_t i = 0; i < c->sample_prompts.n; i++)
		if (empty(c->sample_prompts.item[i]))
			return err_set(e, ERR_USAGE, "%s: prompt %zu of 'sample_prompts' is empty",
				       where, i + 1);
	return 0;
}

static int check_adapter(const struct config *c, const char *where, const bool *seen, struct err *e)
{
	static const char *const keys[] = { "lora_r",
					    "lora_alpha",
					    "lora_dropout",
					    "lora_target_modules",
					    "lora_target_linear",
					    "use_rslora",
					    "loraplus_lr_ratio",
					    "lora_model_dir",
					    "peft_init_lora_weights",
					    "peft_use_dora",
					    "lora_modules_to_save",
					    "peft_layers_to_transform",
					    "lora_rank_pattern",
					    "lora_alpha_pattern" };
	if (c->adapter == ADAPTER_NONE) {
		for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
			if (given(seen, keys[i]))
				return err_set(e, ERR_USAGE,
					       "%s: '%s' is given but no adapter: add 'adapter: "
					       "lora' or 'adapter: qlora', or "
					       "leave it out",
					       where, keys[i]);
		if (c->load_in_4bit)
			return err_set(e, ERR_USAGE,
				       "%s: 'load_in_4bit' needs 'adapter: qlora': weights of 4 "
				       "bits cannot be trained themselves",
				       where);
		return 0;
	}
	if (c->adapter == ADAPTER_QLORA && !c->load_in_4bit)
		return err_set(e, ERR_USAGE,
			       "%s: 'adapter: qlora' with 'load_in_4bit: false' contradict each "
			       "other; use 'adapter: lora'",
			       where);
	const bool first = c->peft_init_lora_weights;
	const bool pissa = first && !strcmp(c->peft_init_lora_weights, "pissa");
	if (first && !pissa && strcmp(c->peft_init_lora_weights, "loftq") != 0)
		return err_set(e, ERR_USAGE,
			       "%s: 'peft_init_lora_weights' is '%.60s'; true, loftq and pissa are "
			       "possible",
			       where, c->peft_init_lora_weights);
	if (pissa && (c->peft_use_dora || c->lora_model_dir || c->lora_modules_to_save.n))
		return err_set(e, ERR_USAGE,
			       "%s: 'peft_init_lora_weights: pissa' is not possible with "
			       "peft_use_dora, lora_model_dir or lora_modules_to_save",
			       where);
	if (first && !pissa &&
	    (!c->load_in_4bit || c->peft_use_dora || c->lora_model_dir ||
	     c->lora_modules_to_save.n))
		return err_set(e, ERR_USAGE,
			       "%s: 'peft_init_lora_weights: loftq' needs 'adapter: qlora', and "
			       "is not possible with peft_use_dora, lora_model_dir or "
			       "lora_modules_to_save",
			       where);
	if (!c->lora_target_linear && !c->lora_target_modules.n)
		return err_set(e, ERR_USAGE,
			       "%s: 'lora_target_modules' is empty: name linear layers such as "
			       "q_proj, or all-linear",
			       where);
	for (size_t i = 0; i < c->lora_target_modules.n; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(c->lora_target_modules.item[i], c->lora_target_modules.item[k]))
				return err_set(e, ERR_USAGE,
					       "%s: 'lora_target_modules' names '%.60s' twice",
					       where, c->lora_target_modules.item[i]);
	return 0;
}

bool config_interleaves(const struct config *c)
{
	const struct sched *s = sched_find(c->schedule); /* NULL: auto */
	return !s || s->chunked;
}

static bool in_list(const char *const *list, const char *word)
{
	for (; list && *list; list++)
		if (!strcmp(*list, word))
			return true;
	return false;
}

/* Refuses `key`, which the chosen row of a registry does not read and row `other` does. */
static int check_row_key(const struct config *c, const struct opt *r, const char *key,
			 const char *other, const char *where, struct err *e)
{
	size_t n;
	const struct opt *rows = config_rows(&n), *k = opt_find(rows, n, key);
	const char *chosen = *(const char *const *)((const char *)c + r->offset);
	if (!k || k->kind != OPT_FLOAT)
		return err_set(e, ERR_INTERNAL, "%s '%s' reads the unknown key '%s'", r->key, other,
			       key);
	if (*(const double *)((const char *)c + k->offset) == strtod(k->def, NULL))
		return 0;
	return err_set(e, ERR_USAGE, "%s: '%s' belongs to '%s: %s'; with '%s: %s' leave it out",
		       where, key, r->key, other, r->key, chosen);
}

/* Keys that only some rows of a registry read, given beside a row that does not. */
static int check_row_keys(const struct config *c, const char *where, struct err *e)
{
	size_t n;
	const struct opt *rows = config_rows(&n);
	for (const struct opt *r = rows; r < rows + n; r++) {
		if (r->kind != OPT_NAME || !r->names->keys)
			continue;
		const char *chosen = *(const char *const *)((const char *)c + r->offset), *help;
		const char *const *own = NULL, *name;
		for (size_t i = 0; (name = r->names->at(i, &help)); i++)
			if (!strcmp(name, chosen))
				own = r->names->keys(i);
		for (size_t i = 0; (name = r->names->at(i, &help)); i++) {
			const char *const *k = r->names->keys(i);
			for (; k && *k; k++)
				if (!in_list(own, *k))
					TRY(check_row_key(c, r, *k, name, where, e));
		}
	}
	return 0;
}

static int check_evaluation(struct config *c, const char *where, struct err *e)
{
	const char *key = c->eval_steps                ? "eval_steps"
			  : c->early_stopping_patience ? "early_stopping_patience"
			  : c->load_best_model_at_end  ? "load_best_model_at_end"
						       : NULL;
	const bool held_out = c->val_set_size > 0 || c->ntest;
	if (c->val_set_size > 0 && c->ntest)
		return err_set(e, ERR_USAGE,
			       "%s: give either 'val_set_size' or 'test_datasets', not both",
			       where);
	if (key && !held_out)
		return err_set(e, ERR_USAGE,
			       "%s: '%s' needs a validation split: set 'val_set_size' or "
			       "'test_datasets'",
			       where, key);
	if (c->eval_steps && c->evals_per_epoch)
		return err_set(e, ERR_USAGE,
			       "%s: give either 'evals_per_epoch' or 'eval_steps', not both",
			       where);
	if (c->evals_per_epoch && !held_out) {
		log_warn("%s: 'evals_per_epoch' without 'val_set_size': nothing is held out, so "
			 "nothing is evaluated",
			 where);
		c->evals_per_epoch = 0;
	}
	if (key && !c->eval_steps && !c->evals_per_epoch)
		return err_set(e, ERR_USAGE,
			       "%s: '%s' needs evaluations in training: set 'eval_steps' or "
			       "'evals_per_epoch'",
			       where, key);
	return 0;
}

static int read_offload(struct config *c, const char *where, struct err *e)
{
	static const struct {
		const char *name;
		unsigned bit;
	} row[] = { { "activations", OFFLOAD_ACTIVATIONS },
		    { "optimizer", OFFLOAD_OPTIMIZER },
		    { "parameters", OFFLOAD_PARAMETERS },
		    { "experts", OFFLOAD_EXPERTS } };
	const struct opt_list *l = &c->offload;
	c->offload_bits = 0;
	c->offload_auto = l->n == 1 && !strcmp(l->item[0], "auto");
	if (c->offload_auto || (l->n == 1 && !strcmp(l->item[0], "none")))
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		unsigned bit = 0;
		for (size_t k = 0; k < ARRAY_LEN(row); k++)
			bit |= strcmp(l->item[i], row[k].name) ? 0 : row[k].bit;
		if (!bit)
			return err_set(e, ERR_USAGE,
				       "%s: 'offload' is '%.60s': auto, none, or a list of "
				       "activations, optimizer, parameters and experts",
				       where, l->item[i]);
		c->offload_bits |= bit;
	}
	if ((c->offload_bits & OFFLOAD_EXPERTS) &&
	    (c->adapter == ADAPTER_NONE || (c->offload_bits & OFFLOAD_PARAMETERS)))
		return err_set(
			e, ERR_USAGE,
			"%s: 'offload: experts' is for frozen experts, with 'adapter: lora' or "
			"'qlora', and not beside 'parameters', which are all of them",
			where);
	return 0;
}

static int check_tokens(const struct config *c, const char *where, struct err *e)
{
	static const char *const known[] = { "bos_token=", "eos_token=", "unk_token=",
					     "pad_token=" };
	for (size_t i = 0; i < c->special_tokens.n; i++) {
		bool found = false;
		for (size_t k = 0; k < ARRAY_LEN(known); k++)
			found |= !strncmp(c->special_tokens.item[i], known[k], strlen(known[k]));
		if (!found)
			return err_set(e, ERR_USAGE,
				       "%s: 'special_tokens' has '%.80s'; bos_token, eos_token, "
				       "unk_token and pad_token are possible",
				       where, c->special_tokens.item[i]);
	}
	return 0;
}

bool config_refers_first(const struct config *c)
{
	const struct prefer *p = prefer_find(c->rl);
	return p && p->reference && (c->adapter == ADAPTER_NONE || c->lora_modules_to_save.n);
}

static int check_preferences(const struct config *c, const char *where, const bool *seen,
			     struct err *e)
{
	const struct prefer *p = prefer_find(c->rl);
	if (!p)
		return 0;
	if (c->orpo_alpha > 0 && given(seen, "rl_beta") && c->rl_beta != c->orpo_alpha)
		return err_set(e, ERR_USAGE, "%s: give either 'rl_beta' or 'orpo_alpha', not both",
			       where);
	if (p->data == PREFER_SINGLE && c->micro_batch_size < 2)
		return err_set(e, ERR_USAGE,
			       "%s: 'rl: %s' compares each answer with that of another row: "
			       "'micro_batch_size' must be at least 2",
			       where, c->rl);
	if (c->micro_batch_size > 4000)
		return err_set(e, ERR_USAGE,
			       "%s: with 'rl: %s' micro_batch_size can be at most 4000", where,
			       c->rl);
	if (c->sample_packing)
		return err_set(e, ERR_USAGE, "%s: 'sample_packing' is not possible with 'rl: %s'",
			       where, c->rl);
	if (given(seen, "train_on_inputs") && c->train_on_inputs)
		return err_set(e, ERR_USAGE, "%s: 'train_on_inputs' has no meaning with 'rl: %s'",
			       where, c->rl);
	return 0;
}

static int check_training(struct config *c, const char *where, const bool *seen, struct err *e)
{
	if (c->warmup_steps && c->warmup_ratio > 0)
		return err_set(e, ERR_USAGE,
			       "%s: give either 'warmup_steps' or 'warmup_ratio', not both", where);
	if (c->max_steps && c->warmup_steps > c->max_steps)
		return err_set(e, ERR_USAGE,
			       "%s: 'warmup_steps' (%lld) is more than 'max_steps' (%lld)", where,
			       (long long)c->warmup_steps, (long long)c->max_steps);
	TRY(check_row_keys(c, where, e));
	if (c->micro_batch_size * c->gradient_accumulation_steps > 65536)
		return err_set(e, ERR_USAGE,
			       "%s: a step has micro_batch_size x gradient_accumulation_steps = "
			       "%lld rows, at most 65536 are possible",
			       where,
			       (long long)(c->micro_batch_size * c->gradient_accumulation_steps));
	if (c->saves_per_epoch && c->save_steps)
		return err_set(e, ERR_USAGE,
			       "%s: give either 'saves_per_epoch' or 'save_steps', not both",
			       where);
	TRY(check_evaluation(c, where, e));
	char *end;
	double minutes = strtod(c->save_minutes, &end);
	if (strcmp(c->save_minutes, "auto") &&
	    (end == c->save_minutes || *end || !(minutes >= 0 && minutes <= 1e6)))
		return err_set(e, ERR_USAGE,
			       "%s: 'save_minutes' is '%.60s': a number of minutes, 0 for never, "
			       "or auto",
			       where, c->save_minutes);
	if (c->val_set_size >= 1 && c->val_set_size != (double)(int64_t)c->val_set_size)
		return err_set(
			e, ERR_USAGE,
			"%s: 'val_set_size' is %g: a share below 1 or a whole number of examples",
			where, c->val_set_size);
	if (c->interleave > 1 && given(seen, "interleave") && !config_interleaves(c))
		return err_set(e, ERR_USAGE,
			       "%s: 'interleave' needs a schedule that interleaves; '%s' does not",
			       where, c->schedule);
	const struct sched *s = sched_find(c->schedule); /* NULL: auto */
	if (c->shard == SHARD_VALUES && s && !s->gathers)
		return err_set(e, ERR_USAGE,
			       "%s: 'shard: parameters' needs 'schedule: breadth_first' (or auto); "
			       "'%s' does not work on one chunk at a time",
			       where, c->schedule);
	if (c->shard == SHARD_VALUES && c->peft_use_dora)
		return err_set(e, ERR_USAGE,
			       "%s: 'peft_use_dora' with 'shard: parameters' is not supported: "
			       "write 'shard: optimizer'",
			       where);
	if ((c->offload_bits & (OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS)) && s && !s->gathers)
		return err_set(e, ERR_USAGE,
			       "%s: 'offload' of parameters or activations needs 'schedule: "
			       "breadth_first' (or auto); '%s' does not work on one chunk at a "
			       "time",
			       where, c->schedule);
	if (c->resume_from_checkpoint && c->overwrite_output_dir)
		return err_set(e, ERR_USAGE,
			       "%s: 'resume_from_checkpoint' and 'overwrite_output_dir' contradict "
			       "each other",
			       where);
	return 0;
}

/* Settings that may not be empty; checked here, because later the message would be less clear. */
static int check_words(const struct config *c, const char *where, struct err *e)
{
	static const char *const formats[] = { "png", "svg", "pdf", "mmd", "dot", NULL };
	const struct {
		const char *key, *value;
	} word[] = { { "device", c->device },
		     { "save_minutes", c->save_minutes },
		     { "visualization_format", c->visualization_format } };
	for (size_t i = 0; i < sizeof word / sizeof word[0]; i++)
		if (empty(word[i].value))
			return err_set(e, ERR_USAGE, "%s: '%s' is empty", where, word[i].key);
	TRY(config_device_check(c->device, where, "'device'", e));
	if (c->notify && c->notify[0] && strncasecmp(c->notify, "http://", 7) &&
	    strncasecmp(c->notify, "https://", 8))
		return err_set(e, ERR_USAGE,
			       "%s: 'notify' is '%.60s': an address that begins with https:// or "
			       "http:// was expected",
			       where, c->notify);
	for (size_t i = 0; formats[i]; i++)
		if (!strcasecmp(c->visualization_format, formats[i]))
			return 0;
	return err_set(
		e, ERR_USAGE,
		"%s: 'visualization_format' is '%.60s', allowed are: png, svg, pdf, mmd, dot",
		where, c->visualization_format);
}

int config_complete(const struct config *c, enum config_need need, struct err *e)
{
	return check_needed(c, need, c->path[0] ? c->path : "command line", e);
}

int config_check(struct config *c, enum config_need need, const char *where, const bool *seen,
		 struct err *e)
{
	settle(c, seen);
	TRY(config_cluster_expand(c, where, e));
	if (c->nshards)
		c->shard_plan[c->nshards - 1].is_last = true;
	TRY(settle_template(c, where, e));
	TRY(check_needed(c, need, where, e));
	TRY(check_adapter(c, where, seen, e));
	TRY(check_tokens(c, where, e));
	TRY(read_offload(c, where, e));
	TRY(check_preferences(c, where, seen, e));
	TRY(check_training(c, where, seen, e));
	TRY(check_words(c, where, e));
	TRY(config_cluster_check(c, where, e));
	return config_passes_settle(c, where, e);
}

bool config_is_plain(const struct config *c)
{
	return c->adapter == ADAPTER_NONE && !c->load_in_4bit && !prefer_find(c->rl) &&
	       !c->sample_prompts.n &&
	       (!c->coordinator.given || !strcmp(config_profile(c), "none"));
}

const char *config_profile(const struct config *c)
{
	return c->profile ? c->profile : c->nshards ? "none" : "auto";
}
