/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - see job.h. */
#include "job/job.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/sample_set.h"
#include "file/atomic.h"
#include "file/safetensors.h"
#include "model/mixture.h"
#include "model/own.h"
#include "runtime/adapter_fused.h"
#include "runtime/data_identity.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what is trained ---- */

static int add_param(struct job *j, size_t *cap, const char *name, int ndim, const int64_t *dim,
		     struct err *e)
{
	if (!mem_grow(&j->param, cap, j->nparam + 1, sizeof *j->param))
		return err_nomem(e, (j->nparam + 1) * sizeof *j->param, "the list of parameters");
	struct trained_param *p = &j->param[j->nparam];
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "%s", name);
	p->ndim = ndim;
	p->dim[0] = dim[0];
	p->dim[1] = ndim == 2 ? dim[1] : 1;
	p->count = (uint64_t)(p->dim[0] * p->dim[1]);
	p->states = j->optimizer->states(j->optimizer, p->name, p->ndim, p->dim, p->kind);
	j->trained_numbers += p->count;
	j->nparam++;
	return 0;
}

/* What is trained beside a module of a layer. */
static int list_pair(struct job *j, size_t *cap, int64_t layer, enum linear l, int64_t expert,
		     struct err *e)
{
	const int64_t r = lora_rank(&j->opt.lora, layer, l);
	int64_t dim[2];
	char module[LINEAR_MODULE], name[256];
	if (!r)
		return 0;
	linear_dims(&j->model, layer, l, dim);
	linear_module(module, layer, l, expert);
	snprintf(name, sizeof name, "%s.lora_A.weight", module);
	TRY(add_param(j, cap, name, 2, (const int64_t[]){ r, dim[1] }, e));
	snprintf(name, sizeof name, "%s.lora_B.weight", module);
	TRY(add_param(j, cap, name, 2, (const int64_t[]){ dim[0], r }, e));
	snprintf(name, sizeof name, "%s.lora_magnitude_vector", module);
	return j->opt.lora.dora ? add_param(j, cap, name, 1, dim, e) : 0;
}

static int list_adapter(struct job *j, struct err *e)
{
	size_t cap = 0;
	const int64_t table[2] = { j->model.vocab, j->model.hidden };
	runtime_warn_of_rank(&j->model, &j->opt.lora);
	if (j->opt.lora.save_embed)
		TRY(add_param(j, &cap, "model.embed_tokens.weight", 2, table, e));
	for (int64_t i = 0; i < j->model.layers; i++)
		for (enum linear l = 0; l < LIN_COUNT; l++)
			for (int64_t x = 0; x < linear_copies(&j->model, i, l); x++)
				TRY(list_pair(j, &cap, i, l, x, e));
	if (j->opt.lora.save_head)
		TRY(add_param(j, &cap, "lm_head.weight", 2, table, e));
	return j->nparam ? 0
			 : err_set(e, ERR_USAGE,
				   "no module gets an adapter: see "
				   "peft_layers_to_transform");
}

static int list_all(struct job *j, struct err *e)
{
	size_t cap = 0;
	for (size_t i = 0; i < model_file_count(j->file); i++) {
		const struct model_tensor *t = model_file_tensor(j->file, i);
		if (model_knows_tensor(&j->model, t->name) == 1)
			TRY(add_param(j, &cap, t->name, t->ndim, t->shape, e));
	}
	return 0;
}

struct trained_param *job_param(struct job *j, const char *name)
{
	for (size_t i = 0; i < j->nparam; i++)
		if (!strcmp(j->param[i].name, name))
			return &j->param[i];
	return NULL;
}

void job_drop_state(struct job *j)
{
	const bool mapped = j->mapped[0];
	for (size_t i = 0; i < j->nparam; i++) {
		struct trained_param *p = &j->param[i];
		if (!mapped)
			mem_free(p->value);
		for (int k = 0; k < PARAM_STATES && !mapped; k++)
			mem_free(p->state[k]);
		p->value = NULL;
		memset(p->state, 0, sizeof p->state);
	}
	for (int k = 0; k < 2; k++) {
		st_close(j->mapped[k]);
		mem_free(j->incoming[k]);
		j->mapped[k] = NULL;
		j->incoming[k] = NULL;
	}
}

void job_drop_pages(const struct job *j, const void *p, uint64_t n)
{
	if (j->mapped[0])
		st_drop_range(j->mapped[0], p, n);
}

int job_alloc_state(struct job *j, struct err *e)
{
	if (j->mapped[0])
		job_drop_state(j);
	for (size_t i = 0; i < j->nparam; i++) {
		struct trained_param *p = &j->param[i];
		if (!p->value && !(p->value = mem_array(p->count, 4)))
			return err_nomem(e, p->count * 4, p->name);
		for (int k = 0; k < p->states; k++) {
			size_t size = dtype_size(p->kind[k].dtype);
			if (!p->state[k] && !(p->state[k] = mem_array(p->kind[k].count, size)))
				return err_nomem(e, p->kind[k].count * size, p->name);
		}
	}
	return 0;
}

double job_gradient_share(const struct job *j)
{
	double bytes = 0, numbers = (double)j->trained_numbers;
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k < j->param[i].states; k++)
			bytes += (double)j->param[i].kind[k].count *
				 dtype_size(j->param[i].kind[k].dtype);
	bytes += numbers * (j->opt.act == DT_F32 ? 4 : 8);
	return bytes > 0 ? numbers * 4 / bytes : 0;
}

bool job_kept(const struct trained_param *p, const char *what, struct optim_state *kind, int *got)
{
	*got = 0;
	*kind = optim_state_f32("value", p->count);
	if (!strcmp(what, kind->name))
		return true;
	for (int k = 0; k < p->states; k++)
		if (!strcmp(what, p->kind[k].name)) {
			*kind = p->kind[k];
			*got = k + 1;
			return true;
		}
	return false;
}

/* ---- opening ---- */

/* DoRA, modules trained whole, layers, and ranks by kinds of modules. */
static int read_adapter_options(struct job *j, struct err *e)
{
	const struct config *c = j->cfg;
	struct lora_options *l = &j->opt.lora;
	l->dora = c->peft_use_dora;
	TRY(lora_layer_names(&j->model, c->peft_layers_to_transform.item,
			     c->peft_layers_to_transform.n, l, e));
	TRY(lora_save(&j->model, c->lora_modules_to_save.item, c->lora_modules_to_save.n, l, e));
	const struct lora_patterns p = { c->lora_rank_pattern.item, c->lora_alpha_pattern.item,
					 c->lora_rank_pattern.n, c->lora_alpha_pattern.n };
	return lora_set_patterns(&j->model, &p, c->lora_alpha, c->use_rslora, l, e);
}

static void read_preferences(const struct config *c, struct prefer_options *o)
{
	const struct prefer *p = prefer_find(c->rl);
	if (!p)
		return;
	snprintf(o->name, sizeof o->name, "%s", p->name);
	o->beta = c->orpo_alpha > 0 ? c->orpo_alpha : c->rl_beta;
	o->smoothing = c->dpo_label_smoothing;
	o->gamma = c->simpo_gamma;
	o->good = c->kto_desirable_weight;
	o->bad = c->kto_undesirable_weight;
	if (p->likelihood)
		o->likelihood = strcmp(p->likelihood, "cpo_alpha") ? c->rpo_alpha : c->cpo_alpha;
}

static int read_options(struct job *j, enum dtype act, struct err *e)
{
	const struct config *c = j->cfg;
	j->opt = (struct stage_options){ .act = act,
					 .quantize = c->load_in_4bit,
					 .double_quant = c->bnb_4bit_use_double_quant,
					 .recompute = c->gradient_checkpointing,
					 .seed = (uint64_t)c->seed,
					 .neftune = (float)c->neftune_noise_alpha };
	read_preferences(c, &j->opt.prefer);
	TRY(mixture_losses(&j->model, c->router_aux_loss_coef, c->router_z_loss_coef,
			   &j->opt.router_loss, &j->opt.router_z, e));
	if (c->adapter == ADAPTER_NONE) {
		j->opt.train_all = true;
	} else {
		const char *all[] = { "all-linear" };
		struct lora_options *l = &j->opt.lora;
		l->r = c->lora_r;
		l->scale = lora_scale(c->lora_r, c->lora_alpha, c->use_rslora);
		l->dropout = (float)c->lora_dropout;
		l->seed = (uint64_t)c->seed;
		l->b_rate = (float)c->loraplus_lr_ratio;
		TRY(lora_targets(&j->model, (const char *const *)c->lora_target_modules.item,
				 c->lora_target_modules.n, l, e));
		if (c->lora_target_linear)
			TRY(lora_targets(&j->model, all, 1, l, e));
		TRY(read_adapter_options(j, e));
	}
	j->optimizer = optimizer_find(c->optimizer);
	j->curve = lr_curve_find(c->lr_scheduler);
	j->lr_shape = (struct lr_shape){ .cosine_min_lr_ratio = c->cosine_min_lr_ratio,
					 .min_lr_ratio = c->lr_min_ratio,
					 .num_cycles = c->lr_num_cycles,
					 .power = c->lr_power,
					 .decay_ratio = c->lr_decay_ratio };
	j->optim = (struct optim_config){ .beta1 = c->adam_beta1,
					  .beta2 = c->adam_beta2,
					  .epsilon = c->adam_epsilon,
					  .momentum = c->momentum,
					  .weight_decay = c->weight_decay };
	return 0;
}

/* Of all data, and of where those that are held out begin. */
static uint64_t digest_of(const struct job *j, size_t trained)
{
	const uint64_t all = dataset_digest(j->data);
	const size_t n = dataset_count(j->data);
	size_t first = 0;
	while (first < n && dataset_get(j->data, first).source < trained)
		first++;
	return first < n ? rng_fold(all, first) : all;
}

bool job_same_data(const struct job *j, const char *digest)
{
	char is[32], was[32] = "";
	snprintf(is, sizeof is, "%016llx", (unsigned long long)j->digest);
	if (j->data)
		snprintf(was, sizeof was, "%016llx", (unsigned long long)dataset_digest(j->data));
	return digest && (!strcmp(digest, is) || !strcmp(digest, was));
}

static int load_data(struct job *j, struct err *e)
{
	const struct config *c = j->cfg;
	const struct prefer *rl = prefer_find(c->rl);
	const struct batch_options b = { .seed = (uint64_t)c->data_seed,
					 .sequence_len = c->sequence_len,
					 .micro_batch_size = c->micro_batch_size,
					 .accumulation = c->gradient_accumulation_steps,
					 .sample_packing = c->sample_packing,
					 .prompt_labels = rl && rl->prompts,
					 .val_source = c->ntest ? c->ndatasets - c->ntest : 0,
					 .val_set_size = c->val_set_size };
	if (j->samples) {
		j->digest = j->samples->digest;
		TRY(batches_of_samples(j->samples, &b, &j->batches, e));
		return job_set_passes(j, c->pass, c->npass, e);
	}
	if (j->model.max_positions && c->sequence_len > j->model.max_positions)
		return err_set(e, ERR_USAGE,
			       "sequence_len %lld is longer than the model's limit of %lld "
			       "positions (max_position_embeddings)",
			       (long long)c->sequence_len, (long long)j->model.max_positions);
	struct dataset_source *src = mem_array(c->ndatasets, sizeof *src);
	if (!src)
		return err_nomem(e, c->ndatasets * sizeof *src, "the list of datasets");
	for (size_t i = 0; i < c->ndatasets; i++)
		src[i] = c->datasets[i];
	struct buf identity = BUF_INIT;
	int rc = 0;
	if (c->dataset_prepared_path) {
		rc = dir_make(c->dataset_prepared_path, e);
		for (size_t i = 0; i < c->special_tokens.n; i++)
			buf_addf(&identity, "%s\n", c->special_tokens.item[i]);
		if (rc >= 0)
			rc = data_identity(j->file, c->chat_template, &identity, e);
	}
	const struct dataset_options o = { .tok = j->tok,
					   .prepared = c->dataset_prepared_path,
					   .identity = identity.p,
					   .chat = j->chat,
					   .sequence_len = c->sequence_len,
					   .train_on_inputs = c->train_on_inputs,
					   .excess = (enum dataset_excess)c->excess_length_strategy,
					   .prefer = rl ? rl->data : PREFER_NONE,
					   .skip_bad_records = c->skip_bad_records };
	if (rc >= 0)
		rc = dataset_load(src, c->ndatasets, &o, &j->data, e);
	mem_free(src);
	buf_release(&identity);
	if (rc < 0)
		return rc;
	if (dataset_was_prepared(j->data))
		log_info("data: the tokens of an earlier run are in %s", c->dataset_prepared_path);
	j->digest = digest_of(j, c->ndatasets - c->ntest);
	TRY(batches_new(j->data, &b, &j->batches, e));
	return job_set_passes(j, c->pass, c->npass, e);
}

int job_set_passes(struct job *j, const int *pass, size_t n, struct err *e)
{
	const struct config *c = j->cfg;
	const int64_t batch = c->micro_batch_size * c->gradient_accumulation_steps;
	int64_t rows = 0;
	bool own = false;
	for (size_t i = 0; i < n; i++) {
		if (pass[i] < 1 || pass[i] > PASS_ROWS_MOST || n > PASSES_MOST)
			return err_set(e, ERR_INPUT, "pass %zu of %zu has %d rows", i + 1, n,
				       pass[i]);
		rows += pass[i];
		own = own || pass[i] != c->micro_batch_size;
	}
	if (n && rows != batch)
		return err_set(e, ERR_INPUT,
			       "the passes of a step have %lld rows in all, but micro_batch_size x "
			       "gradient_accumulation_steps is %lld",
			       (long long)rows, (long long)batch);
	if (!own)
		n = 0;
	int *copy = n ? mem_array(n, sizeof *copy) : NULL;
	if (n && !copy)
		return err_nomem(e, n * sizeof *copy, "passes");
	if (n)
		memcpy(copy, pass, n * sizeof *copy);
	const int rc = batches_set_passes(j->batches, copy, n, e);
	if (rc < 0) {
		mem_free(copy);
		return rc;
	}
	mem_free(j->pass);
	j->pass = copy;
	j->npass = n;
	return 0;
}

void job_passes_text(const struct job *j, char *out, size_t cap)
{
	if (j->pass)
		sched_passes_text(j->pass, j->npass, out, cap);
	else
		snprintf(out, cap, "%lld microbatch%s of %lld",
			 (long long)j->cfg->gradient_accumulation_steps,
			 j->cfg->gradient_accumulation_steps == 1 ? "" : "es",
			 (long long)j->cfg->micro_batch_size);
}

/* Steps between events of which there are `times` in an epoch, or one every `steps`. */
static uint64_t steps_between(const struct job *j, int64_t times, int64_t steps)
{
	if (times <= 0)
		return (uint64_t)steps;
	uint64_t all = batches_per_epoch(j->batches, 0), n = (uint64_t)times;
	return (all + n - 1) / n;
}

static int count_steps(struct job *j, struct err *e)
{
	const struct config *c = j->cfg;
	j->save_every = steps_between(j, c->saves_per_epoch, c->save_steps);
	j->eval_every = steps_between(j, c->evals_per_epoch, c->eval_steps);
	job_set_steps(j, c->max_steps > 0 ? (uint64_t)c->max_steps
					  : batches_left(j->batches, c->num_epochs, 0, 0));
	if (!j->total_steps)
		return err_set(e, ERR_USAGE,
			       "num_epochs %g and max_steps %lld leave no step to train",
			       c->num_epochs, (long long)c->max_steps);
	if (j->warmup_steps > j->total_steps) {
		log_warn("warmup_steps %llu is more than all %llu steps: the learning rate never "
			 "reaches its full value",
			 (unsigned long long)j->warmup_steps, (unsigned long long)j->total_steps);
	}
	return 0;
}

/* special_tokens. Files of the model are copied beside a result as they are. */
static int set_tokens(struct job *j, struct err *e)
{
	for (size_t i = 0; i < j->cfg->special_tokens.n; i++) {
		const char *item = j->cfg->special_tokens.item[i], *token = strchr(item, '=') + 1;
		char name[16];
		snprintf(name, sizeof name, "%.*s", (int)(token - 1 - item), item);
		const bool bos = !strcmp(name, "bos_token");
		const int32_t was = bos ? tokenizer_bos(j->tok) : tokenizer_eos(j->tok);
		if ((!bos && strcmp(name, "eos_token") != 0) || !strcmp(token, "null") || !*token)
			continue;
		TRY(tokenizer_set(j->tok, name, token, e));
		if (tokenizer_id(j->tok, token) != was)
			log_warn("special_tokens: %s is '%s' in training; the files of the model "
				 "beside the result keep their own",
				 name, token);
	}
	return 0;
}

/* What a model of text has. */
static int open_text(struct job *j, struct err *e)
{
	if (j->cfg->lora_modules_to_save.n)
		TRY(runtime_untie(j->file, &j->model, e));
	TRY(runtime_tokenizer(j->file, &j->model, &j->tok, e));
	TRY(set_tokens(j, e));
	return runtime_chat(j->file, j->tok, j->cfg->chat_template, &j->chat, e);
}

static int open_parts(struct job *j, enum dtype act, struct err *e)
{
	const struct config *c = j->cfg;
	TRY(model_file_open(c->base_model, &j->file, e));
	TRY(model_config_read(model_file_config(j->file), c->base_model, &j->model, e));
	TRY(source_check_file(j->file, &j->model, e));
	TRY(j->model.own.n ? own_check_data(&j->model.own, j->samples, c->base_model,
					    config_is_plain(c), e)
			   : open_text(j, e));
	TRY(read_options(j, act, e));
	TRY(c->adapter == ADAPTER_NONE ? list_all(j, e) : list_adapter(j, e));
	TRY(load_data(j, e));
	return count_steps(j, e);
}

int job_open(const struct config *c, enum dtype act, const struct sample_set *samples,
	     struct job *j_p, struct err *e)
{
	struct job j = { .cfg = c, .samples = samples };
	int rc = open_parts(&j, act, e);
	if (rc < 0) {
		job_close(&j);
		return rc;
	}
	*j_p = j;
	return 0;
}

void job_close(struct job *j)
{
	job_drop_state(j);
	for (size_t i = 0; i < j->nparam; i++)
		for (int k = 0; k <= PARAM_STATES; k++)
			ranges_release(&j->param[i].got[k]);
	mem_free(j->param);
	batches_free(j->batches);
	mem_free(j->pass);
	dataset_free(j->data);
	chat_free(j->chat);
	tokenizer_free(j->tok);
	model_file_close(j->file);
	*j = (struct job){ 0 };
}

int job_hash_base(struct job *j, struct err *e)
{
	return j->base_hash[0] ? 0
			       : base_hash(j->cfg->base_model, j->cfg->cache_dir, j->base_hash, e);
}

int job_adapter(struct job *j, struct arena *a, struct peft_adapter *ad, struct err *e)
{
	const struct config *c = j->cfg;
	*ad = (struct peft_adapter){ .cfg = { .r = (int)c->lora_r,
					      .alpha = c->lora_alpha,
					      .dropout = c->lora_dropout,
					      .rslora = c->use_rslora,
					      .base_model = c->base_model,
					      .inside = model_file_inside(j->file) } };
	ad->pair = arena_alloc(a, (j->nparam / 2 + 1) * sizeof *ad->pair);
	ad->saved = arena_alloc(a, 2 * sizeof *ad->saved);
	if (!ad->pair || !ad->saved)
		return err_nomem(e, j->nparam * sizeof *ad->pair, "the adapter");
	TRY(runtime_describe(&j->opt.lora, j->model.layers, a, &ad->cfg, e));
	for (size_t i = 0; i < j->nparam; i++) {
		const struct trained_param *p = &j->param[i];
		char *module = arena_strdup(a, p->name), *tail;
		if (!module)
			return err_nomem(e, sizeof p->name, "a name");
		if ((tail = strstr(module, ".lora_magnitude_vector"))) {
			ad->pair[ad->npair - 1].m = p->value;
		} else if ((tail = strstr(module, ".lora_A.weight"))) {
			ad->pair[ad->npair++] = (struct peft_pair){ .module = module,
								    .r = (int)p->dim[0],
								    .in = p->dim[1],
								    .a = p->value };
		} else if ((tail = strstr(module, ".lora_B.weight"))) {
			ad->pair[ad->npair - 1].out = p->dim[0];
			ad->pair[ad->npair - 1].b = p->value;
		} else if ((tail = strstr(module, ".weight"))) {
			ad->saved[ad->nsaved++] = (struct peft_saved){ .module = module,
								       .rows = p->dim[0],
								       .cols = p->dim[1],
								       .v = p->value };
		}
		if (tail)
			*tail = 0;
	}
	for (size_t i = 0; i < ad->npair; i++)
		ad->pair[i].scale = peft_scale_of(&ad->cfg, ad->pair[i].module);
	return 0;
}

/* ---- an adapter to begin with ---- */

static int same_adapter(const struct job *j, const struct peft_adapter *ad, const char *dir,
			struct err *e)
{
	float scale = (float)peft_scale(&ad->cfg);
	if (ad->cfg.r != j->opt.lora.r)
		return err_set(
			e, ERR_USAGE,
			"lora_model_dir %s: its rank is %d and lora_r is %lld: set lora_r to "
			"that",
			dir, ad->cfg.r, (long long)j->opt.lora.r);
	if (fabsf(scale - j->opt.lora.scale) > 1e-6f * fabsf(scale))
		return err_set(e, ERR_USAGE,
			       "lora_model_dir %s: its scale is %g and that of lora_alpha, lora_r "
			       "and use_rslora is %g: set them as its adapter_config.json has them",
			       dir, (double)scale, (double)j->opt.lora.scale);
	size_t pairs = 0;
	for (size_t i = 0; i < j->nparam; i++)
		pairs += strstr(j->param[i].name, ".lora_A.") != NULL;
	if (ad->npair != pairs)
		return err_set(e, ERR_USAGE,
			       "lora_model_dir %s: it has weights for %zu modules; the model and "
			       "lora_target_modules have %zu",
			       dir, ad->npair, pairs);
	if (ad->cfg.dora != j->opt.lora.dora ||
	    ad->nsaved != (size_t)j->opt.lora.save_embed + (size_t)j->opt.lora.save_head)
		return err_set(e, ERR_USAGE,
			       "lora_model_dir %s: it differs in peft_use_dora or "
			       "lora_modules_to_save",
			       dir);
	for (size_t i = 0; i < ad->npair; i++)
		TRY(runtime_same_scale(&j->opt.lora, &ad->pair[i], dir, e));
	return 0;
}

static int take_part(struct job *j, const char *module, const char *tail, const float *v,
		     int64_t rows, int64_t cols, const char *dir, struct err *e)
{
	char name[256];
	snprintf(name, sizeof name, "%s%s", module, tail);
	struct trained_param *t = job_param(j, name);
	if (!t)
		return err_set(e, ERR_USAGE,
			       "lora_model_dir %s: it has weights for '%s', which is not in "
			       "lora_target_modules",
			       dir, module);
	if (t->dim[0] != rows || t->dim[1] != cols)
		return err_set(e, ERR_INPUT,
			       "lora_model_dir %s: %s is [%lld, %lld]; this model needs [%lld, "
			       "%lld]",
			       dir, name, (long long)rows, (long long)cols, (long long)t->dim[0],
			       (long long)t->dim[1]);
	memcpy(t->value, v, (size_t)t->count * sizeof *v);
	return 0;
}

/* peft_init_lora_weights: loftq (runtime/loftq.h). */
static int begin_with_loftq(struct job *j, struct err *e)
{
	struct loftq l = { j->file, .double_quant = j->opt.double_quant, .stop = j->stop };
	double sum = 0, left;
	size_t n = 0;
	TRY(job_alloc_state(j, e));
	TRY(dev_open("cpu", &l.dev, e));
	log_info("adapters begin with what 4 bits take from the weights (loftq)");
	int rc = 0;
	for (size_t i = 0; rc >= 0 && i < j->nparam; i++) {
		const struct trained_param *a = &j->param[i], *b = a + 1;
		const char *tail = strstr(a->name, ".lora_A.weight");
		char weight[sizeof a->name];
		if (!tail)
			continue;
		snprintf(weight, sizeof weight, "%.*s.weight", (int)(tail - a->name), a->name);
		rc = loftq_begin(&l, weight, a->dim[0],
				 (double)lora_factor_of(&j->opt.lora, a->name), a->value, b->value,
				 &left, e);
		sum += left;
		n++;
	}
	dev_close(l.dev);
	if (rc >= 0)
		log_info("loftq: of that %.1f %% is left, in squares", 100 * sum / (double)n);
	return rc;
}

bool job_begins_with(const struct config *c)
{
	return c->lora_model_dir || c->peft_init_lora_weights;
}

static int begin_with_adapter(struct job *j, const char *dir, struct err *e)
{
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	int rc;
	TRYOUT(job_alloc_state(j, e));
	TRYOUT(adapter_read(dir, &j->model, &a, &ad, e));
	TRYOUT(adapter_check_base(dir, &ad, j->cfg->base_model, e));
	TRYOUT(same_adapter(j, &ad, dir, e));
	for (size_t i = 0; i < ad.npair; i++) {
		const struct peft_pair *p = &ad.pair[i];
		TRYOUT(take_part(j, p->module, ".lora_A.weight", p->a, p->r, p->in, dir, e));
		TRYOUT(take_part(j, p->module, ".lora_B.weight", p->b, p->out, p->r, dir, e));
		if (p->m)
			TRYOUT(take_part(j, p->module, ".lora_magnitude_vector", p->m, p->out, 1,
					 dir, e));
	}
	for (size_t i = 0; i < ad.nsaved; i++)
		TRYOUT(take_part(j, ad.saved[i].module, ".weight", ad.saved[i].v, ad.saved[i].rows,
				 ad.saved[i].cols, dir, e));
out:
	arena_release(&a);
	return rc;
}

int job_begin(struct job *j, struct err *e)
{
	const struct config *c = j->cfg;
	const char *dir = c->lora_model_dir ? c->lora_model_dir : c->pissa_first;
	return dir ? begin_with_adapter(j, dir, e) : begin_with_loftq(j, e);
}
