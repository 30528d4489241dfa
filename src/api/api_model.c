/* SPDX-License-Identifier: Apache-2.0 */
/* api_model.c - models of the public interface: their text, their values, their folder. */
#include "api/api.h"

#include "base/mem.h"
#include "file/atomic.h"
#include "file/model_file.h"
#include "file/safetensors.h"
#include "model/own.h"
#include "model/own_text.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hs_model *all;

/* ---- who uses a model ---- */

/* Among those there are; the lock is held. */
static hs_model *known(const hs_model *m)
{
	hs_model *k = all;
	while (k && k != m)
		k = k->next;
	return k;
}

int api_enter(const hs_model *m, hs_error *e)
{
	pthread_mutex_lock(&lock);
	hs_model *k = m ? known(m) : NULL;
	const bool busy = k && k->busy;
	if (k)
		k->busy = true;
	pthread_mutex_unlock(&lock);
	if (!k)
		return api_refuse(e, ERR_USAGE, "there is no such model: it is NULL, or was freed");
	return busy ? api_refuse(e, ERR_USAGE,
				 "the model is in use by another call (as hs_train in this or "
				 "another thread)")
		    : 0;
}

void api_leave(const hs_model *m)
{
	pthread_mutex_lock(&lock);
	hs_model *k = known(m);
	if (k)
		k->busy = false;
	pthread_mutex_unlock(&lock);
}

/* ---- making and ending ---- */

static void release(hs_model *m)
{
	for (size_t i = 0; i < m->nparam; i++)
		mem_free(m->param[i].value);
	mem_free(m->param);
	mem_free(m->text);
	arena_release(&m->names);
	mem_free(m);
}

/* The hashes of blocks that are somebody's code. */
static void put_kind(json_t *kinds, const struct own_kind *k)
{
	if (k->hash)
		json_object_set_new(kinds, k->name, json_string(k->hash));
}

/* What config.json says of the model; NULL: memory is out. */
static json_t *describe(const hs_model *m)
{
	json_t *kinds = json_object();
	for (int i = 0; i < m->cfg.own.n; i++)
		put_kind(kinds, m->cfg.own.block[i].kind);
	put_kind(kinds, m->cfg.own.loss.kind);
	json_t *o = json_pack("{s:s, s:s}", "model_type", "heteroshard", "blocks", m->text);
	if (o && json_object_size(kinds))
		json_object_set(o, "kinds", kinds);
	json_decref(kinds);
	return o;
}

static int list_params(hs_model *m, struct err *e)
{
	struct own_param p;
	size_t n = 0, cap = 0;
	char name[256];
	int layer;
	for (; own_param_at(&m->cfg.own, n, &p, name, &layer); n++) {
		if (!mem_grow(&m->param, &cap, n + 1, sizeof *m->param))
			return err_nomem(e, (n + 1) * sizeof *m->param, "parameters");
		struct api_param *a = &m->param[n];
		*a = (struct api_param){ .name = arena_strdup(&m->names, name),
					 .ndim = p.ndim,
					 .dim = { p.dim[0], p.ndim == 2 ? p.dim[1] : 1 } };
		a->count = (uint64_t)(a->dim[0] * a->dim[1]);
		a->value = mem_array(a->count, sizeof *a->value);
		m->nparam = n + 1;
		if (!a->name || !a->value)
			return err_nomem(e, a->count * 4, name);
		own_first_values(&p, name, m->seed, 0, a->dim[0], a->value);
	}
	return 0;
}

static int make(hs_model *m, const char *where, struct err *e)
{
	TRY(own_read(m->text, strlen(m->text), where, &m->cfg.own, e));
	json_t *j = describe(m);
	if (!j)
		return err_set(e, ERR_USAGE, "%s: the text is not UTF-8", where);
	const int rc = model_config_read(j, where, &m->cfg, e);
	json_decref(j);
	return rc < 0 ? rc : list_params(m, e);
}

int hs_model_new(const char *text, uint64_t seed, hs_model **model_p, hs_error *out)
{
	struct err e = { 0 };
	hs_model *m = mem_zalloc(sizeof *m);
	if (!text || !model_p) {
		mem_free(m);
		return api_refuse(out, ERR_USAGE, "hs_model_new: an argument is NULL");
	}
	int rc = m && (m->text = mem_array(strlen(text) + 1, 1)) ? 0 : err_nomem(&e, 1, "a model");
	if (rc >= 0) {
		memcpy(m->text, text, strlen(text) + 1);
		m->seed = seed;
		rc = make(m, "the model", &e);
	}
	if (rc < 0) {
		if (m)
			release(m);
		return api_error(&e, out);
	}
	pthread_mutex_lock(&lock);
	m->next = all;
	all = m;
	pthread_mutex_unlock(&lock);
	*model_p = m;
	return 0;
}

int hs_model_free(hs_model *model, hs_error *e)
{
	if (!model)
		return 0;
	const int rc = api_enter(model, e);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&lock);
	for (hs_model **p = &all; *p; p = &(*p)->next)
		if (*p == model) {
			*p = model->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	release(model);
	return 0;
}

/* ---- its folder ---- */

static int from_memory(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		       struct err *e)
{
	(void)ctx;
	(void)e;
	memcpy(dst, (const char *)t->user + off, n);
	return 0;
}

int api_save(const hs_model *m, const char *dir, struct err *e)
{
	char path[4096];
	json_t *j = describe(m);
	char *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
	struct st_spec *spec = mem_array(m->nparam + 1, sizeof *spec);
	int rc = text && spec ? dir_make(dir, e) : err_nomem(e, 4096, "a model");
	for (size_t i = 0; rc >= 0 && i < m->nparam; i++)
		spec[i] = (struct st_spec){ .name = m->param[i].name,
					    .dtype = DT_F32,
					    .ndim = m->param[i].ndim,
					    .shape = { m->param[i].dim[0], m->param[i].dim[1] },
					    .user = m->param[i].value };
	if (rc >= 0 && snprintf(path, sizeof path, "%s/model.safetensors", dir) >= (int)sizeof path)
		rc = err_set(e, ERR_USAGE, "%.200s...: the path is too long", dir);
	if (rc >= 0)
		rc = st_write(path, spec, m->nparam, NULL, from_memory, NULL, e);
	if (rc >= 0)
		rc = atomic_write_in(dir, "config.json", text, strlen(text), e);
	free(text);
	json_decref(j);
	mem_free(spec);
	return rc;
}

int hs_model_save(const hs_model *model, const char *dir, hs_error *out)
{
	struct err e = { 0 };
	int rc = dir ? api_enter(model, out)
		     : api_refuse(out, ERR_USAGE, "hs_model_save: no folder");
	if (rc < 0)
		return rc;
	rc = api_save(model, dir, &e);
	api_leave(model);
	return rc < 0 ? api_error(&e, out) : 0;
}

static int find_one(const struct model_file *f, const char *name, int ndim, const int64_t dim[2],
		    const struct model_tensor **t_p, struct err *e)
{
	const struct model_tensor *t = *t_p = model_file_find(f, name);
	if (!t)
		return err_set(e, ERR_INPUT, "%s: has no tensor '%s'", model_file_path(f), name);
	if (t->ndim != ndim || t->shape[0] != dim[0] || (t->ndim == 2 && t->shape[1] != dim[1]))
		return err_set(e, ERR_INPUT, "%s: '%s' has another shape than the model's",
			       model_file_path(f), name);
	return 0;
}

static int take_one(struct model_file *f, struct api_param *p, struct err *e)
{
	const struct model_tensor *t;
	TRY(find_one(f, p->name, p->ndim, p->dim, &t, e));
	return model_file_read_f32(f, t, 0, p->dim[0], p->value, e);
}

/* Before there is memory for the values: a text of a few bytes may ask for all that there is. */
static int check_values(const struct model_file *f, const struct own_model *m, struct err *e)
{
	const struct model_tensor *t;
	struct own_param p;
	char name[256];
	int layer;
	for (size_t i = 0; own_param_at(m, i, &p, name, &layer); i++)
		TRY(find_one(f, name, p.ndim, p.dim, &t, e));
	return 0;
}

int api_take_values(hs_model *m, const char *dir, struct err *e)
{
	struct model_file *f;
	TRY(model_file_open(dir, &f, e));
	int rc = 0;
	for (size_t i = 0; rc >= 0 && i < m->nparam; i++)
		rc = take_one(f, &m->param[i], e);
	model_file_close(f);
	return rc;
}

int hs_model_load(const char *dir, hs_model **model_p, hs_error *out)
{
	struct err e = { 0 };
	struct model_file *f;
	if (!dir || !model_p)
		return api_refuse(out, ERR_USAGE, "hs_model_load: an argument is NULL");
	if (model_file_open(dir, &f, &e) < 0)
		return api_error(&e, out);
	const json_t *j = model_file_config(f);
	const char *text = json_string_value(json_object_get(j, "blocks"));
	struct model_config *cfg = mem_zalloc(sizeof *cfg);
	int rc = cfg ? model_config_read(j, dir, cfg, &e) : err_nomem(&e, sizeof *cfg, "a model");
	if (rc >= 0 && !cfg->own.n)
		rc = err_set(&e, ERR_UNSUPPORTED, "%s: is a '%s' model, not one of blocks", dir,
			     cfg->family);
	if (rc >= 0)
		rc = check_values(f, &cfg->own, &e);
	mem_free(cfg);
	hs_model *m = NULL;
	if (rc >= 0 && (rc = hs_model_new(text, 0, &m, out)) < 0) {
		model_file_close(f);
		return rc;
	}
	model_file_close(f);
	if (rc >= 0)
		rc = api_take_values(m, dir, &e);
	if (rc < 0) {
		hs_model_free(m, NULL);
		return api_error(&e, out);
	}
	*model_p = m;
	return 0;
}

/* ---- as a source of stages ---- */

static struct api_param *find(const hs_model *m, const char *name)
{
	for (size_t i = 0; i < m->nparam; i++)
		if (!strcmp(m->param[i].name, name))
			return &m->param[i];
	return NULL;
}

static int source_find(void *ctx, const char *name, struct source_tensor *t, struct err *e)
{
	const struct api_param *p = find(ctx, name);
	(void)e;
	if (p)
		*t = (struct source_tensor){ .ndim = p->ndim, .shape = { p->dim[0], p->dim[1] } };
	return p != NULL;
}

static int source_read(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		       struct err *e)
{
	const struct api_param *p = find(ctx, name);
	(void)e;
	memcpy(dst, p->value + row0 * p->dim[1], (size_t)(rows * p->dim[1]) * sizeof *dst);
	return 0;
}

static void source_drop(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
}

struct weight_source api_source(hs_model *m)
{
	return (struct weight_source){
		.ctx = m, .find = source_find, .read = source_read, .drop = source_drop
	};
}

/* ---- parameters and facts ---- */

size_t hs_model_params(const hs_model *model)
{
	if (api_enter(model, NULL) < 0)
		return 0;
	const size_t n = model->nparam;
	api_leave(model);
	return n;
}

int hs_model_param(const hs_model *model, size_t i, hs_param *param_p, hs_error *e)
{
	const int rc = api_enter(model, e);
	if (rc < 0)
		return rc;
	const bool there = i < model->nparam;
	if (there && param_p) {
		const struct api_param *p = &model->param[i];
		*param_p = (hs_param){ p->name, p->ndim, { p->dim[0], p->dim[1] }, p->count };
	}
	const size_t n = model->nparam;
	api_leave(model);
	if (there && !param_p)
		return api_refuse(e, ERR_USAGE, "hs_model_param: an argument is NULL");
	return there ? 0
		     : api_refuse(e, ERR_USAGE, "the model has %zu parameters; there is no %zu", n,
				  i);
}

static int move(const hs_model *model, const char *name, float *get, const float *set,
		uint64_t count, hs_error *e)
{
	int rc = name && (get || set) ? api_enter(model, e)
				      : api_refuse(e, ERR_USAGE, "an argument is NULL");
	if (rc < 0)
		return rc;
	struct api_param *p = find(model, name);
	if (!p)
		rc = api_refuse(e, ERR_USAGE, "the model has no parameter '%.100s'", name);
	else if (count != p->count)
		rc = api_refuse(e, ERR_USAGE, "'%s' has %llu values, not %llu", name,
				(unsigned long long)p->count, (unsigned long long)count);
	else if (get)
		memcpy(get, p->value, (size_t)count * sizeof *get);
	else
		memcpy(p->value, set, (size_t)count * sizeof *set);
	api_leave(model);
	return rc;
}

int hs_model_get(const hs_model *model, const char *name, float *value, uint64_t count, hs_error *e)
{
	return move(model, name, value, NULL, count, e);
}

int hs_model_set(hs_model *model, const char *name, const float *value, uint64_t count, hs_error *e)
{
	return move(model, name, NULL, value, count, e);
}

enum fact { INPUT, TARGET, OUTPUT };

static uint64_t fact(const hs_model *model, enum fact what)
{
	if (api_enter(model, NULL) < 0)
		return 0;
	const struct own_model *m = &model->cfg.own;
	const int64_t n = what == INPUT    ? own_input_words(m)
			  : what == TARGET ? own_target_words(m)
					   : own_count(&m->loss.in);
	api_leave(model);
	return (uint64_t)n;
}

uint64_t hs_model_input(const hs_model *model) { return fact(model, INPUT); }
uint64_t hs_model_target(const hs_model *model) { return fact(model, TARGET); }
uint64_t hs_model_output(const hs_model *model) { return fact(model, OUTPUT); }

int hs_model_ids(const hs_model *model)
{
	const int rc = api_enter(model, NULL);
	if (rc < 0)
		return rc;
	const struct own_model *m = &model->cfg.own;
	const int ids = (m->tokens ? HS_IDS_INPUT : 0) | (own_has_classes(m) ? HS_IDS_TARGET : 0);
	api_leave(model);
	return ids;
}

int hs_block_at(size_t i, const char **name_p, const char **help_p)
{
	const struct own_kind *k = own_kind_at(i);
	if (!k)
		return -1;
	if (name_p)
		*name_p = k->name;
	if (help_p)
		*help_p = k->help;
	return 0;
}
