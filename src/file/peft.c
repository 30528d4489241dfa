/* SPDX-License-Identifier: Apache-2.0 */
/* peft.c - see peft.h. Written as PEFT 0.21 writes it (config.py, utils/save_and_load.py); read
 * strictly: an unknown key of adapter_config.json must have an empty value (null, false, empty),
 * because an adapter that is read only in part gives wrong answers without an error. */
#include "file/peft.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/model_format.h"
#include "file/safetensors.h"
#include "file/text_part.h"

#include <limits.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_MAX (16ull << 20)
#define R_MAX 65536
#define FUSED_MOST (1 << 26) /* R_MAX for each of 1,024 experts */
#define PREFIX "base_model.model."

double peft_scale(const struct peft_config *c)
{
	return c->rslora ? c->alpha / sqrt((double)c->r) : c->alpha / c->r;
}

/* Whether it is the module, or what follows a dot of it. */
static bool is_name_of(const char *name, const char *module, size_t n)
{
	const size_t k = strlen(name);
	return n >= k && !strncmp(module + n - k, name, k) && (n == k || module[n - k - 1] == '.');
}

/* As PEFT's get_pattern_key: the key is the name, or what follows a dot of it; a dot in the key,
 * which is a regular expression there, is any character. */
static const struct peft_number *pattern_of(const struct peft_number *p, size_t n,
					    const char *module)
{
	const size_t len = strlen(module);
	for (size_t i = 0; i < n; i++) {
		const bool whole = p[i].key[0] == '^';
		const char *key = p[i].key + whole;
		const size_t k = strlen(key);
		if (k > len || (k < len && (whole || module[len - k - 1] != '.')))
			continue;
		size_t same = 0;
		while (same < k && (key[same] == '.' || key[same] == module[len - k + same]))
			same++;
		if (same == k)
			return &p[i];
	}
	return NULL;
}

/* A module whose parameter ("mlp.gate.weight") is one of target_parameters has the number of that
 * name. A router is a module here, and a parameter there. */
static const struct peft_number *number_of(const struct peft_config *c, const struct peft_number *p,
					   size_t n, const char *module)
{
	char name[512];
	bool parameter = false;
	if (snprintf(name, sizeof name, "%s.weight", module) >= (int)sizeof name)
		return pattern_of(p, n, module);
	for (size_t i = 0; i < c->nparameter && !parameter; i++)
		parameter = is_name_of(c->parameter[i], name, strlen(name));
	const struct peft_number *found = parameter ? NULL : pattern_of(p, n, module);
	return found ? found : pattern_of(p, n, name);
}

int peft_rank_of(const struct peft_config *c, const char *module)
{
	const struct peft_number *p = number_of(c, c->rank, c->nrank, module);
	return p ? (int)p->value : c->r;
}

double peft_scale_of(const struct peft_config *c, const char *module)
{
	const struct peft_number *p = number_of(c, c->alphas, c->nalpha, module);
	const struct peft_config one = { .r = peft_rank_of(c, module),
					 .alpha = p ? p->value : c->alpha,
					 .rslora = c->rslora };
	return peft_scale(&one);
}

/* ---- adapter_config.json ---- */

/* Keys with any value: they describe the origin of the adapter, or how it was initialised
 * or trained. */
static const char *const free_keys[] = {
	"alpha_pattern",
	"arrow_config",
	"auto_mapping",
	"base_model_name_or_path",
	"bias",
	"corda_config",
	"eva_config",
	"exclude_modules",
	"inference_mode",
	"init_lora_weights",
	"layers_pattern",
	"layers_to_transform",
	"loftq_config",
	"lora_alpha",
	"lora_dropout",
	"lora_ga_config",
	"megatron_core",
	"modules_to_save",
	"peft_type",
	"peft_version",
	"qalora_group_size",
	"r",
	"rank_pattern",
	"revision",
	"target_modules",
	"target_parameters",
	"task_type",
	"use_dora",
	"use_rslora",
	"ensure_weight_tying",
};

/* Whether the value is null, false or empty. */
static bool is_empty(const json_t *v)
{
	return json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v)) ||
	       (json_is_string(v) && !json_string_length(v));
}

static bool is_free(const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(free_keys); i++)
		if (!strcmp(free_keys[i], key))
			return true;
	return false;
}

static int unsupported(const char *where, const char *key, const json_t *v, struct err *e)
{
	char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	int rc = err_set(e, ERR_UNSUPPORTED, "%s: '%s' is %.200s, which is not supported", where,
			 key, s ? s : "set");
	free(s);
	return rc;
}

static int check_keys(const json_t *o, const char *where, struct err *e)
{
	/* Initialisations that also change the base model's weights: such an adapter belongs to
	 * other weights than those of the model it names. */
	static const char *const changes_base[] = { "pissa", "olora", "corda", "loftq", "lora_ga" };
	static const char *const must_be_silent[] = { "arrow_config" };
	const char *key, *s = NULL;
	json_t *v;
	json_object_foreach((json_t *)o, key,
			    v) if (!is_free(key) && !is_empty(v)) return unsupported(where, key, v,
										     e);
	for (size_t i = 0; i < ARRAY_LEN(must_be_silent); i++)
		if ((v = json_object_get(o, must_be_silent[i])) && !is_empty(v))
			return unsupported(where, must_be_silent[i], v, e);
	TRY(json_opt_str(o, where, "bias", &s, e));
	if (s && strcmp(s, "none") != 0)
		return unsupported(where, "bias", json_object_get(o, "bias"), e);
	v = json_object_get(o, "init_lora_weights");
	for (size_t i = 0; i < ARRAY_LEN(changes_base); i++)
		if (json_is_string(v) &&
		    !strncmp(json_string_value(v), changes_base[i], strlen(changes_base[i])))
			return unsupported(where, "init_lora_weights", v, e);
	return 0;
}

static int read_pattern(const json_t *o, const char *where, const char *key, bool whole,
			double most, struct arena *a, struct peft_number **list_p, size_t *n_p,
			struct err *e)
{
	const json_t *map = json_object_get(o, key);
	const char *name;
	json_t *v;
	if (is_empty(map) || !map)
		return 0;
	if (!json_is_object(map))
		return unsupported(where, key, map, e);
	struct peft_number *list = arena_alloc(a, json_object_size(map) * sizeof *list);
	if (!list)
		return err_nomem(e, json_object_size(map) * sizeof *list, key);
	json_object_foreach((json_t *)map, name, v)
	{
		const double d = json_number_value(v);
		if (strpbrk(name, "*+?()[]{}|\\$") || strrchr(name, '^') > name)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s': '%.80s' is a regular expression, only names of "
				       "modules are read",
				       where, key, name);
		if (!json_is_number(v) || !(d > 0 && d <= most))
			return err_set(e, ERR_INPUT, "%s: '%s': '%.80s' must be a number up to %g",
				       where, key, name, most);
		if (whole && d != floor(d))
			return err_set(e, ERR_INPUT, "%s: '%s': '%.80s' must be a whole number",
				       where, key, name);
		list[*n_p].key = arena_strdup(a, name);
		list[*n_p].value = d;
		if (!list[(*n_p)++].key)
			return err_nomem(e, strlen(name), "a name");
	}
	*list_p = list;
	return 0;
}

/* A whole number, or a list of them. */
static int read_layers(const json_t *o, const char *where, struct arena *a, struct peft_config *c,
		       struct err *e)
{
	const json_t *v = json_object_get(o, "layers_to_transform");
	if (!v || is_empty(v))
		return 0;
	const size_t n = json_is_array(v) ? json_array_size(v) : 1;
	c->layer = arena_alloc(a, n * sizeof *c->layer);
	if (!c->layer)
		return err_nomem(e, n * sizeof *c->layer, "a list of layers");
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
		if (!json_is_integer(x) || json_integer_value(x) < 0)
			return unsupported(where, "layers_to_transform", v, e);
		c->layer[i] = json_integer_value(x);
	}
	c->nlayer = n;
	return 0;
}

static int read_names(const json_t *o, const char *where, const char *key, struct arena *a,
		      const char ***list_p, size_t *n_p, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	if (!v || is_empty(v))
		return 0;
	if (!json_is_array(v))
		return unsupported(where, key, v, e);
	const char **list = arena_alloc(a, json_array_size(v) * sizeof *list);
	if (!list)
		return err_nomem(e, json_array_size(v) * sizeof *list, key);
	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *s = json_string_value(json_array_get(v, i));
		if (!s)
			return unsupported(where, key, v, e);
		if (!(list[(*n_p)++] = arena_strdup(a, s)))
			return err_nomem(e, strlen(s), "a name");
	}
	*list_p = list;
	return 0;
}

static int read_config(const char *path, struct arena *a, struct peft_config *c, struct err *e)
{
	json_t *o = NULL;
	const char *type = NULL, *base = NULL;
	int64_t r = 0;
	TRY(json_parse_file(path, CONFIG_MAX, &o, e));
	int rc;
	TRYOUT(json_need_str(o, path, "peft_type", &type, e));
	if (strcmp(type, "LORA") != 0) {
		rc = err_set(e, ERR_UNSUPPORTED, "%s: 'peft_type' is '%s', only LORA is read", path,
			     type);
		goto out;
	}
	TRYOUT(check_keys(o, path, e));
	c->alpha = 8; /* PEFT's defaults */
	r = 8;
	TRYOUT(json_opt_int(o, path, "r", 1, R_MAX, &r, e));
	c->r = (int)r;
	TRYOUT(json_opt_num(o, path, "lora_alpha", -1e9, 1e9, &c->alpha, e));
	TRYOUT(json_opt_num(o, path, "lora_dropout", 0, 1, &c->dropout, e));
	TRYOUT(json_opt_bool(o, path, "use_rslora", &c->rslora, e));
	TRYOUT(json_opt_bool(o, path, "use_dora", &c->dora, e));
	TRYOUT(read_pattern(o, path, "rank_pattern", true, R_MAX, a, &c->rank, &c->nrank, e));
	TRYOUT(read_pattern(o, path, "alpha_pattern", false, 1e9, a, &c->alphas, &c->nalpha, e));
	TRYOUT(read_layers(o, path, a, c, e));
	TRYOUT(read_names(o, path, "modules_to_save", a, &c->save, &c->nsave, e));
	TRYOUT(read_names(o, path, "target_parameters", a, &c->parameter, &c->nparameter, e));
	/* then a head that is not in the file is the trained embedding */
	if (c->nsave && json_is_true(json_object_get(o, "ensure_weight_tying"))) {
		rc = unsupported(path, "ensure_weight_tying", json_true(), e);
		goto out;
	}
	TRYOUT(json_opt_str(o, path, "base_model_name_or_path", &base, e));
	if (base && !(c->base_model = arena_strdup(a, base)))
		rc = err_nomem(e, strlen(base), "a name");
out:
	json_decref(o);
	return rc;
}

/* ---- adapter_model.safetensors ---- */

/* The number behind "layers.", or a large one: modules outside the layers come last. */
static long layer_of(const char *module)
{
	const char *s = strstr(module, "layers.");
	return s && s[7] >= '0' && s[7] <= '9' ? strtol(s + 7, NULL, 10) : LONG_MAX;
}

static int by_module(const void *x, const void *y)
{
	const struct peft_pair *a = x, *b = y;
	long i = layer_of(a->module), j = layer_of(b->module);
	return i != j ? (i < j ? -1 : 1) : strcmp(a->module, b->module);
}

static int by_text(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Splits PREFIX module ".lora_A.weight": *n_p is the length of the module, *b_p whether it is B. */
static bool split(const char *name, const char **module_p, size_t *n_p, bool *b_p)
{
	static const size_t tail = sizeof ".lora_A.weight" - 1, head = sizeof PREFIX - 1;
	size_t n = strlen(name);
	if (n <= head + tail || strncmp(name, PREFIX, head) != 0)
		return false;
	*b_p = !strcmp(name + n - tail, ".lora_B.weight");
	*module_p = name + head;
	*n_p = n - head - tail;
	return *b_p || !strcmp(name + n - tail, ".lora_A.weight");
}

static int load(const char *path, const struct st_tensor *t, struct arena *a, const float **x_p,
		struct err *e)
{
	if (t->dtype != DT_F32 && t->dtype != DT_F16 && t->dtype != DT_BF16 && t->dtype != DT_F64)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: '%s' is stored as %s, weights must be float32, float16 or bfloat16",
			path, t->name, dtype_name(t->dtype));
	float *x = arena_alloc(a, t->count * sizeof *x);
	if (!x)
		return err_nomem(e, t->count * sizeof *x, "an adapter");
	model_plain_to_f32(t->dtype, t->data, x, t->count);
	*x_p = x;
	return 0;
}

static const struct st_tensor *find(const struct st_file *f, const char *module, size_t n,
				    const char *tail)
{
	char name[512];
	const int len = snprintf(name, sizeof name, PREFIX "%.*s%s", (int)n, module, tail);
	return len > 0 && (size_t)len < sizeof name ? st_find(f, name) : NULL;
}

/* "model.layers.3.mlp.experts" (of Gemma 4 "model.layers.3.experts"), or that of the parameter
 * within: ".base_layer". */
static bool is_fused(const char *module)
{
	static const char *const tail[] = { ".experts", ".experts.base_layer" };
	const size_t n = strlen(module);
	for (size_t i = 0; i < ARRAY_LEN(tail); i++)
		if (n > strlen(tail[i]) && !strcmp(module + n - strlen(tail[i]), tail[i]))
			return true;
	return false;
}

/* As the language model alone names it. */
static int plain_module(const char *module, size_t n, struct arena *a, const char **plain_p,
			struct err *e)
{
	char out[512];
	const char *s = arena_strndup(a, module, n),
		   *plain = s ? text_part_name(s, out, 512) : NULL;
	*plain_p = plain == out ? arena_strdup(a, out) : s;
	return *plain_p ? 0 : err_nomem(e, n, "a name");
}

static int read_pair(const char *path, const struct st_file *f, const struct st_tensor *ta,
		     const char *module, size_t n, const struct peft_config *c, struct arena *a,
		     struct peft_pair *p, struct err *e)
{
	const struct st_tensor *tb = find(f, module, n, ".lora_B.weight"),
			       *tm = find(f, module, n, ".lora_magnitude_vector");
	if (!tb)
		return err_set(e, ERR_INPUT, "%s: '%s' has no lora_B", path, ta->name);
	TRY(plain_module(module, n, a, &p->module, e));
	p->fused = is_fused(p->module);
	const int r = p->r = p->fused && ta->shape[0] > 0 && ta->shape[0] <= FUSED_MOST
				     ? (int)ta->shape[0]
				     : peft_rank_of(c, p->module);
	p->scale = peft_scale_of(c, p->module);
	if (ta->ndim != 2 || tb->ndim != 2 || ta->shape[0] != r || tb->shape[1] != r ||
	    ta->shape[1] < 1 || tb->shape[0] < 1)
		return err_set(e, ERR_INPUT,
			       "%s: '%s' and its lora_B must have the shapes [%d,in] and [out,%d], "
			       "as 'r' is %d",
			       path, ta->name, r, r, r);
	p->in = ta->shape[1];
	p->out = tb->shape[0];
	if (c->dora != (tm != NULL) || (tm && tm->count != (uint64_t)p->out))
		return err_set(e, ERR_INPUT,
			       "%s: '%s' %s as 'use_dora' of adapter_config.json says", path,
			       ta->name,
			       c->dora ? "must have a lora_magnitude_vector of its rows"
				       : "must have no lora_magnitude_vector");
	if (tm)
		TRY(load(path, tm, a, &p->m, e));
	TRY(load(path, ta, a, &p->a, e));
	return load(path, tb, a, &p->b, e);
}

/* PREFIX module ".weight" of a module of modules_to_save; or ".base_layer.weight" of one that has a
 * pair too: so PEFT saves a head that is a target. */
static bool is_saved(const struct st_file *f, const struct peft_config *c, const char *name,
		     const char **module_p, size_t *n_p)
{
	static const char base[] = ".base_layer";
	const size_t head = sizeof PREFIX - 1, tail = sizeof ".weight" - 1, n = strlen(name),
		     more = sizeof base - 1;
	if (n <= head + tail || strncmp(name, PREFIX, head) != 0 ||
	    strcmp(name + n - tail, ".weight") != 0)
		return false;
	*module_p = name + head;
	*n_p = n - head - tail;
	if (*n_p > more && !strncmp(*module_p + *n_p - more, base, more) &&
	    find(f, *module_p, *n_p - more, ".lora_A.weight")) {
		*n_p -= more;
		return true;
	}
	for (size_t i = 0; i < c->nsave; i++)
		if (is_name_of(c->save[i], *module_p, *n_p))
			return true;
	return false;
}

/* Each of modules_to_save is in the file. */
static int check_saved(const char *path, const struct peft_adapter *ad, struct err *e)
{
	for (size_t i = 0; i < ad->cfg.nsave; i++) {
		bool found = false;
		for (size_t k = 0; k < ad->nsaved && !found; k++) {
			const char *module = ad->saved[k].module;
			found = is_name_of(ad->cfg.save[i], module, strlen(module));
		}
		if (!found)
			return err_set(e, ERR_INPUT,
				       "%s: has no weights of '%.80s', which 'modules_to_save' of "
				       "adapter_config.json names",
				       path, ad->cfg.save[i]);
	}
	return 0;
}

static int read_saved(const char *path, const struct st_tensor *t, const char *module, size_t n,
		      struct arena *a, struct peft_saved *s, struct err *e)
{
	if (t->ndim != 2)
		return err_set(e, ERR_INPUT, "%s: '%s' must be a matrix", path, t->name);
	TRY(plain_module(module, n, a, &s->module, e));
	s->rows = t->shape[0];
	s->cols = t->shape[1];
	return load(path, t, a, &s->v, e);
}

static int read_pairs(const char *path, const struct st_file *f, struct arena *a,
		      struct peft_adapter *ad, struct err *e)
{
	size_t n = st_count(f), na = 0, other = 0;
	ad->pair = arena_alloc(a, (n + 1) * sizeof *ad->pair);
	ad->saved = arena_alloc(a, (n + 1) * sizeof *ad->saved);
	ad->cfg.target = arena_alloc(a, (n + 1) * sizeof *ad->cfg.target);
	if (!ad->pair || !ad->cfg.target || !ad->saved)
		return err_nomem(e, (n + 1) * sizeof *ad->pair, "an adapter");
	for (size_t i = 0; i < n; i++) {
		const struct st_tensor *t = st_get(f, i);
		const char *module;
		size_t len;
		bool is_b;
		const char *m = strstr(t->name, ".lora_magnitude_vector");
		if (is_saved(f, &ad->cfg, t->name, &module, &len)) {
			TRY(read_saved(path, t, module, len, a, &ad->saved[ad->nsaved++], e));
			other++;
			continue;
		}
		if (m && ad->cfg.dora && !m[sizeof ".lora_magnitude_vector" - 1]) {
			other++; /* read with its pair */
			continue;
		}
		if (!split(t->name, &module, &len, &is_b))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s' is not part of a LoRA pair ('" PREFIX
				       "<module>.lora_A.weight')",
				       path, t->name);
		na += !is_b;
		if (!is_b)
			TRY(read_pair(path, f, t, module, len, &ad->cfg, a, &ad->pair[ad->npair++],
				      e));
	}
	n -= other;
	if (!na || n != 2 * na)
		return err_set(e, ERR_INPUT, "%s: %zu matrices A and %zu matrices B", path, na,
			       n - na);
	if (other != ad->nsaved + (ad->cfg.dora ? na : 0))
		return err_set(e, ERR_INPUT, "%s: %zu magnitude vectors for %zu modules", path,
			       other - ad->nsaved, na);
	TRY(check_saved(path, ad, e));
	qsort(ad->pair, ad->npair, sizeof *ad->pair, by_module);
	size_t named = 0;
	for (size_t i = 0; i < ad->npair; i++) {
		const char *dot = strrchr(ad->pair[i].module, '.');
		if (!ad->pair[i].fused)
			ad->cfg.target[named++] = dot ? dot + 1 : ad->pair[i].module;
	}
	qsort(ad->cfg.target, named, sizeof *ad->cfg.target, by_text);
	for (size_t i = 0; i < named; i++)
		if (!i || strcmp(ad->cfg.target[i], ad->cfg.target[ad->cfg.ntarget - 1]) != 0)
			ad->cfg.target[ad->cfg.ntarget++] = ad->cfg.target[i];
	return 0;
}

static int join(struct buf *b, const char *dir, const char *name, struct err *e)
{
	buf_reset(b);
	buf_addf(b, "%s/%s", dir, name);
	return buf_ok(b, e);
}

int peft_read(const char *dir, struct arena *a, struct peft_adapter *ad_p, struct err *e)
{
	struct peft_adapter ad = { 0 };
	struct buf path = BUF_INIT;
	struct st_file *f = NULL;
	int rc;
	TRYOUT(join(&path, dir, "adapter_config.json", e));
	if (access(path.p, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		rc = err_set(e, ERR_IO,
			     "adapter %s: %s; an adapter is a folder with adapter_config.json: the "
			     "output_dir of a run with 'adapter: lora', or what PEFT saved",
			     dir,
			     access(dir, F_OK) < 0 ? "there is no such folder"
						   : "it has no adapter_config.json");
		goto out;
	}
	TRYOUT(read_config(path.p, a, &ad.cfg, e));
	TRYOUT(join(&path, dir, "adapter_model.safetensors", e));
	TRYOUT(st_open(path.p, &f, e));
	TRYOUT(read_pairs(path.p, f, a, &ad, e));
	*ad_p = ad;
out:
	st_close(f);
	buf_release(&path);
	return rc;
}

/* ---- writing ---- */

static int read_from_memory(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
			    struct err *e)
{
	(void)ctx, (void)e;
	memcpy(dst, (const char *)t->user + off, n);
	return 0;
}

struct spec_list {
	struct st_spec *spec;
	size_t n;
	struct arena mem;
	const char *inside;
};

void peft_name(char *out, size_t cap, const char *inside, const char *name)
{
	const bool model = inside && !strncmp(name, "model.", 6);
	snprintf(out, cap, "%s%s%s%s", inside ? PREFIX : "", model ? "model." : "",
		 model ? inside : "", model ? name + 6 : name);
}

static int add_spec(struct spec_list *l, const char *module, const char *tail, int ndim,
		    int64_t rows, int64_t cols, const float *v, struct err *e)
{
	const size_t n = sizeof PREFIX + strlen(l->inside) + strlen(module) + strlen(tail);
	char *name = arena_alloc(&l->mem, n);
	if (!name)
		return err_nomem(e, n, "a name");
	peft_name(name, n, l->inside, module);
	snprintf(name + strlen(name), n - strlen(name), "%s", tail);
	l->spec[l->n++] = (struct st_spec){ name, DT_F32, ndim, { rows, cols }, (void *)v };
	return 0;
}

static int write_weights(const char *path, const struct peft_adapter *ad, struct err *e)
{
	const size_t most = 3 * ad->npair + ad->nsaved + 1;
	struct spec_list l = { .spec = mem_array(most, sizeof *l.spec),
			       .mem = ARENA_INIT,
			       .inside = ad->cfg.inside ? ad->cfg.inside : "" };
	int rc = l.spec ? 0 : err_nomem(e, most * sizeof *l.spec, "an adapter");
	for (size_t i = 0; i < ad->npair && !rc; i++) {
		const struct peft_pair *p = &ad->pair[i];
		TRYOUT(add_spec(&l, p->module, ".lora_A.weight", 2, p->r, p->in, p->a, e));
		TRYOUT(add_spec(&l, p->module, ".lora_B.weight", 2, p->out, p->r, p->b, e));
		if (p->m)
			TRYOUT(add_spec(&l, p->module, ".lora_magnitude_vector", 1, p->out, 0, p->m,
					e));
	}
	for (size_t i = 0; i < ad->nsaved && !rc; i++)
		TRYOUT(add_spec(&l, ad->saved[i].module, ".weight", 2, ad->saved[i].rows,
				ad->saved[i].cols, ad->saved[i].v, e));
	if (!rc)
		rc = st_write(path, l.spec, l.n, NULL, read_from_memory, NULL, e);
out:
	mem_free(l.spec);
	arena_release(&l.mem);
	return rc;
}

static void put_pattern(struct buf *b, const char *key, const struct peft_number *p, size_t n)
{
	buf_addf(b, "  \"%s\": {", key);
	for (size_t i = 0; i < n; i++) {
		buf_adds(b, i ? ", " : "");
		json_quote(b, p[i].key, strlen(p[i].key));
		buf_adds(b, ": ");
		json_number(b, p[i].value);
	}
	buf_adds(b, "},\n");
}

static void put_names(struct buf *b, const char *const *name, size_t n)
{
	buf_adds(b, n ? "[" : "null");
	for (size_t i = 0; i < n; i++) {
		buf_adds(b, i ? ", " : "");
		json_quote(b, name[i], strlen(name[i]));
	}
	buf_adds(b, n ? "]" : "");
}

static int write_config(const char *path, const struct peft_config *c, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_adds(&b, "{\n");
	put_pattern(&b, "alpha_pattern", c->alphas, c->nalpha);
	buf_adds(&b, "  \"auto_mapping\": null,\n  \"base_model_name_or_path\": ");
	if (c->base_model)
		json_quote(&b, c->base_model, strlen(c->base_model));
	else
		buf_adds(&b, "null");
	buf_adds(&b, ",\n  \"bias\": \"none\",\n");
	if (c->inside && *c->inside) /* a model for pictures has modules of the same names */
		buf_adds(&b, "  \"exclude_modules\": "
			     "\".*(vision_tower|multi_modal_projector|visual).*\",\n");
	buf_adds(&b, "  \"fan_in_fan_out\": false,\n  "
		     "\"inference_mode\": true,\n  "
		     "\"init_lora_weights\": true,\n"
		     "  \"layers_pattern\": null,\n  \"layers_to_transform\": ");
	buf_adds(&b, c->nlayer ? "[" : "null");
	for (size_t i = 0; i < c->nlayer; i++)
		buf_addf(&b, "%s%lld", i ? ", " : "", (long long)c->layer[i]);
	buf_addf(&b, "%s,\n  \"lora_alpha\": ", c->nlayer ? "]" : "");
	json_number(&b, c->alpha);
	buf_adds(&b, ",\n  \"lora_dropout\": ");
	json_number(&b, c->dropout);
	buf_adds(&b, ",\n  \"modules_to_save\": ");
	put_names(&b, c->save, c->nsave);
	buf_addf(&b, ",\n  \"peft_type\": \"LORA\",\n  \"r\": %d,\n", c->r);
	put_pattern(&b, "rank_pattern", c->rank, c->nrank);
	buf_adds(&b, "  \"revision\": null,\n  \"target_modules\": [");
	for (size_t i = 0; i < c->ntarget; i++) {
		buf_adds(&b, i ? ",\n    " : "\n    ");
		json_quote(&b, c->target[i], strlen(c->target[i]));
	}
	buf_addf(&b,
		 "\n  ],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": %s,\n  "
		 "\"use_rslora\": %s\n}\n",
		 c->dora ? "true" : "false", c->rslora ? "true" : "false");
	if (c->nparameter) {
		b.n -= 3; /* the last brace and what is around it */
		buf_adds(&b, ",\n  \"target_parameters\": ");
		put_names(&b, c->parameter, c->nparameter);
		buf_adds(&b, "\n}\n");
	}
	int rc = buf_ok(&b, e);
	if (!rc)
		rc = atomic_write_file(path, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

int peft_write(const char *dir, const struct peft_adapter *ad, struct err *e)
{
	struct buf path = BUF_INIT;
	int rc;
	TRYOUT(join(&path, dir, "adapter_model.safetensors", e));
	TRYOUT(write_weights(path.p, ad, e));
	TRYOUT(join(&path, dir, "adapter_config.json", e));
	TRYOUT(write_config(path.p, &ad->cfg, e));
out:
	buf_release(&path);
	return rc;
}
