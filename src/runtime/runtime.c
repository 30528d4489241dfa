/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c - see runtime.h. */
#include "runtime/runtime.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/axolotl_chat.h"
#include "data/batch.h"
#include "runtime/adapter_fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define JINJA_FILE (1u << 20)

struct stage_batch runtime_batch(const struct microbatch *mb, uint64_t index)
{
	return (struct stage_batch){ .microbatch = index,
				     .n = mb->n,
				     .nseq = mb->nseq,
				     .first_row = mb->first_row,
				     .nrows = mb->nrows,
				     .row = mb->row,
				     .id = mb->id,
				     .pos = mb->pos,
				     .label = mb->label,
				     .start = mb->start };
}

int runtime_device(const char *spec, struct dev **d_p, struct err *e)
{
	return dev_open(spec ? spec : "auto", d_p, e);
}

int runtime_dtype(struct dev *d, int compute_dtype, enum dtype *t_p, struct err *e)
{
	struct dev_caps caps;
	TRY(dev_caps(d, &caps, e));
	enum dtype t = compute_dtype == COMPUTE_FLOAT32                ? DT_F32
		       : compute_dtype == COMPUTE_BFLOAT16             ? DT_BF16
		       : compute_dtype == COMPUTE_FLOAT16              ? DT_F16
		       : caps.bf16                                     ? DT_BF16
		       : caps.f16 && dev_has(d, K_rmsnorm_fwd, DT_F16) ? DT_F16
								       : DT_F32;
	if (!dev_has(d, K_rmsnorm_fwd, t))
		return err_set(e, ERR_UNSUPPORTED, "compute_dtype %s is not available on %s (%s)",
			       dtype_name(t), d->be->name, caps.name);
	*t_p = t;
	return 0;
}

int runtime_tokenizer(struct model_file *f, const struct model_config *c, struct tokenizer **t_p,
		      struct err *e)
{
	struct tokenizer *t = NULL;
	const char *path = model_file_tokenizer_path(f);
	if (path)
		TRY(tokenizer_from_file(path, model_file_tokenizer_config(f), &t, e));
	else if (model_file_gguf_vocab(f))
		TRY(tokenizer_from_gguf(model_file_gguf_vocab(f), model_file_path(f), &t, e));
	else
		return err_set(e, ERR_INPUT,
			       "%s: the model has no tokenizer (tokenizer.json, or the tokenizer "
			       "of a GGUF)",
			       model_file_path(f));
	if ((int64_t)tokenizer_vocab_size(t) > c->vocab) {
		int rc = err_set(e, ERR_INPUT,
				 "%s: the tokenizer has %zu tokens, the embedding only %lld: they "
				 "do not belong together",
				 model_file_path(f), tokenizer_vocab_size(t), (long long)c->vocab);
		tokenizer_free(t);
		return rc;
	}
	*t_p = t;
	return 0;
}

/* A template that is given: its text, or the name of its file. */
static int given_jinja(const char *name, const struct tokenizer *tok,
		       const struct chat_template **t_p, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = 0;
	if (strstr(name, "{{") || strstr(name, "{%"))
		return chat_from_jinja(name, tok, t_p, e);
	rc = buf_read_file(&text, name, JINJA_FILE, e);
	if (rc >= 0)
		rc = chat_from_jinja(text.p, tok, t_p, e);
	if (rc < 0)
		err_prefix(e, "chat_template %.200s", name);
	buf_release(&text);
	return rc;
}

/* The model's own template; one that cannot be read is no reason not to train on plain text. */
static int own_jinja(struct model_file *f, const struct tokenizer *tok, bool must,
		     const struct chat_template **t_p, struct err *e)
{
	const char *jinja = model_file_chat_template(f);
	int rc = jinja ? chat_from_jinja(jinja, tok, t_p, e) : 0;
	if (rc < 0 && must)
		return err_prefix(e, "%s", model_file_path(f));
	if (rc < 0) {
		log_warn("%s: %s; another one is looked for by the model's tokens",
			 model_file_path(f), e->msg);
		err_clear(e);
	}
	if (rc < 0 || !jinja)
		*t_p = chat_detect(jinja, tok);
	return 0;
}

int runtime_chat(struct model_file *f, const struct tokenizer *tok, const char *name,
		 const struct chat_template **t_p, struct err *e)
{
	static const char fallback[] = CHAT_JINJA "_fallback_";
	size_t n = name ? strlen(name) : 0;
	const struct chat_template *t;
	if (!name)
		return own_jinja(f, tok, false, t_p, e);
	if (strchr(name, '{') || (n > 6 && !strcmp(name + n - 6, ".jinja")))
		return given_jinja(name, tok, t_p, e);
	/* as axolotl: the model's own, else a row */
	bool either = !strncmp(name, fallback, sizeof fallback - 1);
	if ((either || !strcmp(name, CHAT_JINJA)) && model_file_chat_template(f))
		return own_jinja(f, tok, true, t_p, e);
	if (!strcmp(name, CHAT_JINJA))
		return err_set(e, ERR_USAGE,
			       "chat_template: %s has no template of its own; name one of: %s, %s",
			       model_file_path(f), chat_names(), axolotl_chat_names());
	t = chat_find(either ? name + sizeof fallback - 1 : name);
	const char *text = t ? NULL : axolotl_chat(either ? name + sizeof fallback - 1 : name);
	if (text)
		return chat_from_jinja(text, tok, t_p, e);
	if (!t)
		return err_set(e, ERR_USAGE,
			       "chat_template: there is no template '%.60s' (" CHAT_JINJA
			       ", a file NAME.jinja, %s, %s)",
			       name, chat_names(), axolotl_chat_names());
	*t_p = t;
	return 0;
}

int runtime_untie(struct model_file *f, struct model_config *c, struct err *e)
{
	if (!c->tied)
		return 0;
	TRY(model_file_untie(f, e));
	return model_config_read(model_file_config(f), model_file_path(f), c, e);
}

/* Rank and scale may differ between kinds of modules, not between layers. */
static int set_ranks(const struct peft_adapter *ad, struct lora_options *o, struct err *e)
{
	for (size_t i = 0; i < ad->npair; i++) {
		const struct peft_pair *p = &ad->pair[i];
		for (enum linear l = 0; l < LIN_COUNT; l++) {
			if (!linear_is_of(l, p->module))
				continue;
			if (o->rank[l] && (o->rank[l] != p->r || o->factor[l] != (float)p->scale))
				return err_set(e, ERR_UNSUPPORTED,
					       "the adapter's %s differs from that of other layers "
					       "in rank or alpha, which is not supported",
					       p->module);
			o->rank[l] = p->r;
			o->factor[l] = (float)p->scale;
		}
	}
	return 0;
}

int runtime_lora(const struct peft_adapter *ad, const struct model_config *m,
		 struct lora_options *o_p, struct err *e)
{
	const struct peft_config *c = &ad->cfg;
	struct lora_options o = { .r = c->r,
				  .scale = (float)peft_scale(c),
				  .dropout = (float)c->dropout,
				  .dora = c->dora };
	TRY(lora_targets(m, c->target, c->ntarget, &o, e));
	TRY(lora_layers(m, c->layer, c->nlayer, &o, e));
	TRY(lora_save(m, c->save, c->nsave, &o, e));
	TRY(set_ranks(ad, &o, e));
	*o_p = o;
	return 0;
}

/* An adapter of a rank above the width of a matrix holds more numbers than the matrix. */
void runtime_warn_of_rank(const struct model_config *c, const struct lora_options *o)
{
	enum linear at = LIN_COUNT;
	int64_t least = o->r, dim[2], of = 0;
	for (enum linear l = 0; l < LIN_COUNT; l++)
		for (int64_t i = 0; i < c->layers && o->target[l]; i++) {
			linear_dims(c, i, l, dim);
			int64_t width = dim[0] < dim[1] ? dim[0] : dim[1];
			if (width && width < least)
				at = l, least = width, of = i;
		}
	if (at == LIN_COUNT)
		return;
	linear_dims(c, of, at, dim);
	log_warn("lora_r %lld is above the width of %s (%lld x %lld): a rank above %lld adds "
		 "parameters and no freedom there",
		 (long long)o->r, linear_name(at), (long long)dim[0], (long long)dim[1],
		 (long long)least);
}

static void sort_by_name(enum linear sorted[LIN_COUNT])
{
	for (int i = 0; i < LIN_COUNT; i++) {
		int at = i;
		for (; at && strcmp(linear_name(sorted[at - 1]), linear_name((enum linear)i)) > 0;
		     at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = (enum linear)i;
	}
}

int runtime_describe(const struct lora_options *o, int64_t layers, struct arena *a,
		     struct peft_config *c, struct err *e)
{
	enum linear sorted[LIN_COUNT];
	static const char *whole[] = { "embed_tokens", "lm_head" };
	bool all = true;
	sort_by_name(sorted);
	c->dora = o->dora;
	c->target = arena_alloc(a, LIN_COUNT * sizeof *c->target);
	c->rank = arena_alloc(a, LIN_COUNT * sizeof *c->rank);
	c->alphas = arena_alloc(a, LIN_COUNT * sizeof *c->alphas);
	c->layer = arena_alloc(a, (size_t)layers * sizeof *c->layer);
	if (!c->target || !c->rank || !c->alphas || !c->layer)
		return err_nomem(e, (size_t)layers * sizeof *c->layer, "an adapter");
	for (size_t i = 0; i < LIN_COUNT; i++) {
		const enum linear l = sorted[i];
		if (!o->target[l])
			continue;
		/* MLPs, experts and the one that every token has have modules of one name */
		if (c->ntarget && !strcmp(c->target[c->ntarget - 1], linear_name(l)))
			continue;
		c->target[c->ntarget++] = linear_name(l);
		if (!o->rank[l])
			continue;
		const double factor = o->factor[l], r = (double)o->rank[l];
		c->rank[c->nrank++] = (struct peft_number){ linear_name(l), r };
		c->alphas[c->nalpha++] =
			(struct peft_number){ linear_name(l), factor * (c->rslora ? sqrt(r) : r) };
	}
	for (int64_t i = 0; i < layers; i++)
		if (!(o->skip[i / 8] & 1 << i % 8))
			c->layer[c->nlayer++] = i;
		else
			all = false;
	c->nlayer = all ? 0 : c->nlayer;
	c->save = whole + !o->save_embed;
	c->nsave = (size_t)o->save_embed + (size_t)o->save_head;
	return 0;
}

int runtime_same_scale(const struct lora_options *o, const struct peft_pair *p, const char *dir,
		       struct err *e)
{
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		const double here = (double)lora_factor(o, l);
		if (linear_is_of(l, p->module) && o->target[l] &&
		    fabs(p->scale - here) > 1e-6 * fabs(p->scale))
			return err_set(e, ERR_USAGE,
				       "lora_model_dir %s: the scale of %s is %g, here %g: set "
				       "lora_rank_pattern and lora_alpha_pattern",
				       dir, p->module, p->scale, here);
	}
	return 0;
}

static int load_part(struct stage *s, const char *module, const char *tail, const float *v,
		     int64_t rows, int64_t cols, const char *dir, struct err *e)
{
	char name[256];
	snprintf(name, sizeof name, "%s%s", module, tail);
	struct param *p = stage_param(s, name);
	if (!p)
		return err_set(
			e, ERR_INPUT,
			"%s: the adapter has weights for '%s', which this model does not have", dir,
			module);
	if (p->dim[0] != rows || p->dim[1] != cols)
		return err_set(e, ERR_INPUT,
			       "%s: %s is [%lld, %lld]; this model needs [%lld, %lld]", dir, name,
			       (long long)rows, (long long)cols, (long long)p->dim[0],
			       (long long)p->dim[1]);
	TRY(param_upload_f32(p, 0, rows * cols, v, e));
	return param_refresh(p, e);
}

int runtime_load_adapter(struct stage *s, const struct peft_adapter *ad, const char *dir,
			 struct err *e)
{
	size_t wanted = 0;
	for (size_t i = 0; i < s->nparam; i++)
		wanted += strstr(s->param[i].name, ".lora_A.") != NULL;
	if (ad->npair != wanted)
		return err_set(e, ERR_INPUT,
			       "%s: the adapter has weights for %zu modules; this model and its "
			       "target_modules need %zu",
			       dir, ad->npair, wanted);
	for (size_t i = 0; i < ad->npair; i++) {
		const struct peft_pair *p = &ad->pair[i];
		TRY(load_part(s, p->module, ".lora_A.weight", p->a, p->r, p->in, dir, e));
		TRY(load_part(s, p->module, ".lora_B.weight", p->b, p->out, p->r, dir, e));
		if (p->m)
			TRY(load_part(s, p->module, ".lora_magnitude_vector", p->m, p->out, 1, dir,
				      e));
	}
	for (size_t i = 0; i < ad->nsaved; i++) {
		const struct peft_saved *p = &ad->saved[i];
		TRY(load_part(s, p->module, ".weight", p->v, p->rows, p->cols, dir, e));
	}
	return 0;
}

int runtime_open(const struct runtime_options *o, struct runtime *r, struct err *e)
{
	/* in its place: the stage has pointers into itself */
	*r = (struct runtime){ 0 };
	struct stage_options so = { 0 };
	int rc;
	TRYOUT(model_file_open(o->model, &r->file, e));
	TRYOUT(model_config_read(model_file_config(r->file), o->model, &r->cfg, e));
	TRYOUT(source_check_file(r->file, &r->cfg, e));
	if (o->need_tokenizer) {
		TRYOUT(runtime_tokenizer(r->file, &r->cfg, &r->tok, e));
		TRYOUT(runtime_chat(r->file, r->tok, o->chat_template, &r->chat, e));
	}
	TRYOUT(runtime_device(o->device, &r->dev, e));
	TRYOUT(runtime_dtype(r->dev, o->compute_dtype, &so.act, e));
	so.last = r->cfg.layers;
	so.quantize = o->load_in_4bit;
	so.prefer = o->prefer;
	so.double_quant = o->double_quant;
	if (o->adapter) {
		TRYOUT(adapter_read(o->adapter, &r->cfg, &r->arena, &r->adapter, e));
		TRYOUT(adapter_check_base(o->adapter, &r->adapter, o->model, e));
		if (r->adapter.nsaved)
			TRYOUT(runtime_untie(r->file, &r->cfg, e));
		TRYOUT(runtime_lora(&r->adapter, &r->cfg, &so.lora, e));
		r->has_adapter = true;
	}
	struct weight_source src = source_from_file(r->file);
	TRYOUT(stage_build(&r->stage, r->dev, &r->cfg, &so, &src, e));
	if (o->adapter)
		TRYOUT(runtime_load_adapter(&r->stage, &r->adapter, o->adapter, e));
	return 0;
out:
	runtime_close(r);
	return rc;
}

void runtime_close(struct runtime *r)
{
	stage_release(&r->stage);
	dev_close(r->dev);
	chat_free(r->chat);
	tokenizer_free(r->tok);
	model_file_close(r->file);
	arena_release(&r->arena);
	*r = (struct runtime){ 0 };
}
