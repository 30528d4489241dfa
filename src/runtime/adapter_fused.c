/* SPDX-License-Identifier: Apache-2.0 */
/* adapter_fused.c - see adapter_fused.h. */
#include "runtime/adapter_fused.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The modules of a fused parameter: gate and up, or down. */
struct parts {
	const char *key; /* "mlp.experts.down_proj" */
	enum linear l[2];
	int n;
	bool alternate; /* their rows do */
};

static struct parts parts_of(const struct model_config *c, bool of_down)
{
	const bool sparse = c->expert_names == EXPERTS_SPARSE;
	if (c->expert_names == EXPERTS_FF)
		return of_down ? (struct parts){ .key = "feed_forward.experts.down_proj",
						 .l = { LIN_FF_EXPERT_DOWN },
						 .n = 1 }
			       : (struct parts){ .key = "feed_forward.experts.gate_up_proj",
						 .l = { LIN_FF_EXPERT_GATE, LIN_FF_EXPERT_UP },
						 .n = 2 };
	if (c->expert_names == EXPERTS_SIDE)
		return of_down ? (struct parts){ .key = "experts.down_proj",
						 .l = { LIN_SIDE_DOWN },
						 .n = 1 }
			       : (struct parts){ .key = "experts.gate_up_proj",
						 .l = { LIN_SIDE_GATE, LIN_SIDE_UP },
						 .n = 2 };
	return of_down ? (struct parts){ .key = "mlp.experts.down_proj",
					 .l = { sparse ? LIN_SPARSE_W2 : LIN_EXPERT_DOWN },
					 .n = 1 }
		       : (struct parts){ .key = "mlp.experts.gate_up_proj",
					 .l = { sparse ? LIN_SPARSE_W1 : LIN_EXPERT_GATE,
						sparse ? LIN_SPARSE_W3 : LIN_EXPERT_UP },
					 .n = 2,
					 .alternate = c->expert_names == EXPERTS_OSS };
}

static int64_t row_of(const struct parts *p, int part, int64_t row, int64_t rows)
{
	return p->alternate ? row * p->n + part : part * rows + row;
}

static int64_t layer_of(const char *module)
{
	const char *at = strstr(module, "layers.");
	return at ? strtoll(at + 7, NULL, 10) : INT64_MAX;
}

static int by_place(const void *x, const void *y)
{
	const struct peft_pair *a = x, *b = y;
	const int64_t i = layer_of(a->module), j = layer_of(b->module);
	return i != j ? (i < j ? -1 : 1) : strcmp(a->module, b->module);
}

static const char *named(struct arena *a, const char *layer, const char *path)
{
	char name[256];
	snprintf(name, sizeof name, "%.*s%s", (int)(strstr(layer, ".mlp.") + 1 - layer), layer,
		 path);
	return arena_strdup(a, name);
}

/* ---- apart ---- */

struct apart {
	const struct model_config *c;
	struct arena *a;
	struct peft_adapter *ad;
	struct peft_pair *pair; /* the new ones */
	size_t n, cap;
	bool target[LIN_COUNT];
	const char *dir;
};

/* B of a fused pair is zero where part `p` has columns of the other part. */
static bool own_columns(const struct peft_pair *f, const struct parts *q, int64_t experts,
			int64_t r)
{
	const int64_t rows = f->out / q->n, half = r / q->n;
	if (q->n < 2 || r % q->n)
		return false;
	for (int p = 0; p < q->n; p++)
		for (int64_t o = 0; o < rows; o++)
			for (int64_t i = 0; i < r; i++)
				for (int64_t x = 0; i / half != p && x < experts; x++)
					if (f->b[row_of(q, p, o, rows) * f->r + i * experts + x] !=
					    0)
						return false;
	return true;
}

static int take_part(struct apart *t, const struct peft_pair *f, const struct parts *q, int part,
		     int64_t expert, int64_t r, bool own, double scale, struct err *e)
{
	const int64_t E = t->c->experts, rows = f->out / q->n, k = own ? r / q->n : r,
		      first = own ? part * k : 0;
	char module[LINEAR_MODULE];
	float *a = arena_alloc(t->a, (size_t)(k * f->in) * sizeof *a),
	      *b = arena_alloc(t->a, (size_t)(rows * k) * sizeof *b);
	linear_module(module, layer_of(f->module), q->l[part], expert);
	const char *name = arena_strdup(t->a, module);
	if (!a || !b || !name)
		return err_nomem(e, (size_t)(k * (f->in + rows)) * sizeof *a, "an adapter");
	memcpy(a, f->a + (expert * r + first) * f->in, (size_t)(k * f->in) * sizeof *a);
	for (int64_t o = 0; o < rows; o++)
		for (int64_t i = 0; i < k; i++)
			b[o * k + i] =
				f->b[row_of(q, part, o, rows) * f->r + (first + i) * E + expert];
	t->target[q->l[part]] = true;
	t->pair[t->n++] = (struct peft_pair){ .module = name,
					      .in = f->in,
					      .out = rows,
					      .r = (int)k,
					      .scale = scale,
					      .a = a,
					      .b = b };
	return 0;
}

static int take_apart(struct apart *t, const struct peft_pair *f, struct err *e)
{
	const struct model_config *c = t->c;
	const int64_t layer = layer_of(f->module), E = c->experts, C = c->hidden,
		      F = c->intermediate;
	const bool up = f->in == C && f->out == 2 * F, of_down = f->in == F && f->out == C,
		   there = layer >= 0 && layer < c->layers && layer_is_mixture(c, layer);
	const struct parts q = parts_of(c, !up);
	char key[128];
	snprintf(key, sizeof key, "model.layers.%lld.%s", (long long)layer, q.key);
	const int64_t r = peft_rank_of(&t->ad->cfg, key);
	if (!there || (!up && !of_down) || f->r != E * r)
		return err_set(e, ERR_INPUT,
			       "%s: the adapter on all experts of '%s' [%lld, %lld] of rank %lld "
			       "does not fit %lld experts of [%lld, %lld]",
			       t->dir, f->module, (long long)f->out, (long long)f->in,
			       (long long)f->r, (long long)E, (long long)F, (long long)C);
	const bool own = own_columns(f, &q, E, r);
	const double scale = peft_scale_of(&t->ad->cfg, key);
	for (int64_t x = 0; x < E; x++)
		for (int p = 0; p < q.n; p++)
			TRY(take_part(t, f, &q, p, x, r, own, scale, e));
	return 0;
}

/* Names of modules here, where transformers has others: the block of Mixtral. */
static int rename_pair(struct apart *t, struct peft_pair *p, struct err *e)
{
	const char *at = strstr(p->module, ".mlp.gate");
	if (t->c->expert_names != EXPERTS_SPARSE || !at || at[9])
		return 0;
	p->module = named(t->a, p->module, "block_sparse_moe.gate");
	return p->module ? 0 : err_nomem(e, 64, "a name");
}

static bool is_pissa_base(const char *path)
{
	static const char end[] = "-pissa/base";
	size_t n = strlen(path);
	while (n && path[n - 1] == '/')
		n--;
	return n >= sizeof end - 1 && !memcmp(path + n - (sizeof end - 1), end, sizeof end - 1);
}

int adapter_check_base(const char *dir, const struct peft_adapter *ad, const char *model,
		       struct err *e)
{
	const char *base = ad->cfg.base_model;
	if (!base || !is_pissa_base(base) || is_pissa_base(model))
		return 0;
	char *real = realpath(model, NULL);
	const bool other = !real || !is_pissa_base(real);
	free(real);
	if (!other)
		return 0;
	return err_set(
		e, ERR_INPUT,
		"adapter %s belongs to %s (PiSSA took a part of the model into it), and not to "
		"%s: give that base as the model (is it elsewhere now, correct "
		"base_model_name_or_path in adapter_config.json)",
		dir, base, model);
}

int adapter_read(const char *dir, const struct model_config *c, struct arena *a,
		 struct peft_adapter *ad, struct err *e)
{
	struct apart t = { .c = c, .a = a, .ad = ad, .dir = dir };
	size_t fused = 0, n = 0;
	TRY(peft_read(dir, a, ad, e));
	for (size_t i = 0; i < ad->npair; i++)
		fused += ad->pair[i].fused;
	if (!fused)
		return 0;
	if (!c->experts)
		return err_set(e, ERR_INPUT,
			       "%s: is an adapter of experts, and a %s model has none", dir,
			       c->family);
	t.cap = ad->npair + 2 * fused * (size_t)c->experts;
	t.pair = arena_alloc(a, t.cap * sizeof *t.pair);
	const char **target = arena_alloc(a, (ad->cfg.ntarget + LIN_COUNT) * sizeof *target);
	if (!t.pair || !target)
		return err_nomem(e, t.cap * sizeof *t.pair, "an adapter");
	for (size_t i = 0; i < ad->npair; i++) {
		if (ad->pair[i].fused) {
			TRY(take_apart(&t, &ad->pair[i], e));
			continue;
		}
		t.pair[t.n] = ad->pair[i];
		TRY(rename_pair(&t, &t.pair[t.n++], e));
	}
	for (size_t i = 0; i < ad->cfg.ntarget; i++)
		target[n++] = ad->cfg.target[i];
	for (enum linear l = 0; l < LIN_COUNT; l++)
		if (t.target[l])
			target[n++] = linear_path(l);
	qsort(t.pair, t.n, sizeof *t.pair, by_place);
	ad->pair = t.pair;
	ad->npair = t.n;
	ad->cfg.target = target;
	ad->cfg.ntarget = n;
	ad->cfg.nparameter = 0;
	return 0;
}

/* ---- together ---- */

struct together {
	const struct peft_adapter *from;
	const struct model_config *c;
	struct arena *a;
	struct peft_adapter *out;
};

static const struct peft_pair *pair_of(const struct together *t, int64_t layer, enum linear l,
				       int64_t expert)
{
	char module[LINEAR_MODULE];
	linear_module(module, layer, l, expert);
	const struct peft_pair want = { .module = module };
	return bsearch(&want, t->from->pair, t->from->npair, sizeof want, by_place);
}

/* The ranks of the parts, which all experts of all layers share, and the scale. */
static int ranks(const struct together *t, const struct parts *q, int64_t layer, int r[2],
		 double *scale_p, struct err *e)
{
	*scale_p = 0;
	for (int p = 0; p < q->n; p++) {
		const struct peft_pair *first = pair_of(t, layer, q->l[p], 0);
		r[p] = first ? first->r : 0;
		for (int64_t x = 0; x < t->c->experts; x++) {
			const struct peft_pair *one = pair_of(t, layer, q->l[p], x);
			if (!one != !first || (one && (one->m || one->r != r[p] ||
						       (*scale_p > 0 && one->scale != *scale_p))))
				return err_set(e, ERR_UNSUPPORTED,
					       "the adapters on %s differ in rank or scale, are "
					       "missing or have magnitudes: they cannot be joined",
					       linear_path(q->l[p]));
			*scale_p = one ? one->scale : *scale_p;
		}
	}
	return 0;
}

/* `key` is a parameter with the rank and the scale of p. */
static void add_parameter(struct peft_config *c, const char *key, const struct peft_pair *p)
{
	for (size_t i = 0; i < c->nparameter; i++)
		if (!strcmp(c->parameter[i], key))
			return;
	c->parameter[c->nparameter++] = key;
	c->rank[c->nrank++] = (struct peft_number){ key, (double)p->r };
	c->alphas[c->nalpha++] =
		(struct peft_number){ key,
				      p->scale * (c->rslora ? sqrt((double)p->r) : (double)p->r) };
}

static int fuse(const struct together *t, int64_t layer, bool of_down, bool nested, struct err *e)
{
	const struct parts q = parts_of(t->c, of_down);
	const int64_t E = t->c->experts;
	int64_t dim[2];
	int r[2] = { 0, 0 };
	double scale;
	char module[LINEAR_MODULE];
	TRY(ranks(t, &q, layer, r, &scale, e));
	const int64_t k = r[0] + r[1];
	if (!k)
		return 0;
	linear_dims(t->c, layer, q.l[0], dim);
	const int64_t out = dim[0] * q.n;
	float *a = arena_alloc(t->a, (size_t)(E * k * dim[1]) * sizeof *a),
	      *b = arena_alloc(t->a, (size_t)(out * k * E) * sizeof *b);
	snprintf(module, sizeof module, "model.layers.%lld.%.*s%s", (long long)layer,
		 (int)(strrchr(q.key, '.') - q.key), q.key,
		 nested && !of_down ? ".base_layer" : "");
	const char *name = arena_strdup(t->a, module);
	if (!a || !b || !name)
		return err_nomem(e, (size_t)(E * k * (dim[1] + out)) * sizeof *a, "an adapter");
	for (int64_t x = 0; x < E; x++)
		for (int p = 0; p < q.n; p++) {
			const struct peft_pair *one = pair_of(t, layer, q.l[p], x);
			const int64_t first = p ? r[0] : 0;
			for (int64_t i = 0; one && i < r[p]; i++) {
				memcpy(a + (x * k + first + i) * dim[1], one->a + i * dim[1],
				       (size_t)dim[1] * sizeof *a);
				for (int64_t o = 0; o < dim[0]; o++)
					b[(row_of(&q, p, o, dim[0]) * k + first + i) * E + x] =
						one->b[o * r[p] + i];
			}
		}
	t->out->pair[t->out->npair++] = (struct peft_pair){ .module = name,
							    .in = dim[1],
							    .out = out,
							    .r = (int)(E * k),
							    .fused = true,
							    .a = a,
							    .b = b };
	add_parameter(&t->out->cfg, q.key, &(struct peft_pair){ .r = (int)k, .scale = scale });
	return 0;
}

static bool has_part(const struct together *t, int64_t layer, bool of_down)
{
	const struct parts q = parts_of(t->c, of_down);
	bool there = false;
	for (int p = 0; p < q.n; p++)
		there |= pair_of(t, layer, q.l[p], 0) != NULL;
	return there;
}

static bool is_of_experts(const struct model_config *c, const char *module, bool router)
{
	for (enum linear l = 0; l < LIN_COUNT; l++)
		if (linear_is_of(l, module) && model_has_linear(c, l) &&
		    (router ? linear_is_router(l) && l != LIN_SHARED_SCORE : linear_is_expert(l)))
			return true;
	return false;
}

/* Gate and up, down, a router; gate, up and down of an MLP and of a shared expert. */
enum { PARAMETERS = 9 };

/* A router is a parameter too: `mlp.gate.weight`, of gpt-oss `mlp.router.weight`, of Gemma 4
 * `router.proj.weight`, of LFM2 `feed_forward.gate.weight`. */
static int add_router(const struct together *t, const struct peft_pair *p, struct err *e)
{
	static const char *const keys[] = { [EXPERTS_MLP] = "mlp.gate.weight",
					    [EXPERTS_SPARSE] = "mlp.gate.weight",
					    [EXPERTS_OSS] = "mlp.router.weight",
					    [EXPERTS_SIDE] = "router.proj.weight",
					    [EXPERTS_FF] = "feed_forward.gate.weight" };
	const char *key = keys[t->c->expert_names];
	struct peft_config *c = &t->out->cfg;
	struct peft_pair *to = &t->out->pair[t->out->npair++];
	char name[128];
	*to = *p;
	snprintf(name, sizeof name, "model.layers.%lld.%.*s", (long long)layer_of(p->module),
		 (int)(strrchr(key, '.') - key), key);
	to->module = arena_strdup(t->a, name);
	if (!to->module)
		return err_nomem(e, sizeof name, "a name");
	add_parameter(c, key, p);
	return 0;
}

/* Of an MLP for all tokens, or of an expert that all have. */
static bool is_dense(const char *module)
{
	static const enum linear dense[] = { LIN_GATE,         LIN_UP,         LIN_DOWN,
					     LIN_SHARED_GATE,  LIN_SHARED_UP,  LIN_SHARED_DOWN,
					     LIN_SHARED_GATES, LIN_SHARED_UPS, LIN_SHARED_DOWNS,
					     LIN_FF_GATE,      LIN_FF_UP,      LIN_FF_DOWN };
	for (size_t i = 0; i < ARRAY_LEN(dense); i++)
		if (linear_is_of(dense[i], module))
			return true;
	return false;
}

/* `mlp.gate_proj.weight`, `shared_expert.gate_proj.weight`. As targets PEFT 0.21 takes these names
 * for those of experts, and then leaves such modules out. */
static int add_dense(const struct together *t, const struct peft_pair *p, struct err *e)
{
	if (!is_dense(p->module))
		return 0;
	const char *at = strrchr(p->module, '.');
	while (at[-1] != '.')
		at--;
	const size_t bytes = strlen(at) + sizeof ".weight";
	char *key = arena_alloc(t->a, bytes);
	if (!key)
		return err_nomem(e, bytes, "a name");
	snprintf(key, bytes, "%s.weight", at);
	add_parameter(&t->out->cfg, key, p);
	return 0;
}

static bool is_parameter(const struct peft_config *c, const char *module)
{
	for (size_t i = 0; i < c->nparameter; i++) {
		const char *end = strstr(c->parameter[i], ".weight");
		const size_t n = end ? (size_t)(end - c->parameter[i]) : 0, m = strlen(module);
		if (n && m > n && module[m - n - 1] == '.' &&
		    !strncmp(module + m - n, c->parameter[i], n))
			return true;
	}
	return false;
}

/* The names of the modules that keep their pairs. */
static void keep_targets(const struct together *t)
{
	struct peft_config *c = &t->out->cfg;
	c->ntarget = 0;
	for (size_t i = 0; i < t->out->npair; i++) {
		const struct peft_pair *p = &t->out->pair[i];
		const char *last = strrchr(p->module, '.');
		last = last ? last + 1 : p->module;
		bool known = p->fused || is_parameter(c, p->module);
		for (size_t k = 0; k < c->ntarget; k++)
			known |= !strcmp(c->target[k], last);
		if (!known)
			c->target[c->ntarget++] = last;
	}
}

/* Unless its key is there. */
static void add_number(struct peft_number *list, size_t *n_p, const struct peft_number *p)
{
	for (size_t i = 0; i < *n_p; i++)
		if (!strcmp(list[i].key, p->key))
			return;
	list[(*n_p)++] = *p;
}

int adapter_fuse(const struct peft_adapter *ad, const struct model_config *c, struct arena *a,
		 struct peft_adapter *out, struct err *e)
{
	const struct together t = { ad, c, a, out };
	*out = *ad;
	out->npair = 0;
	out->pair = arena_alloc(a, (ad->npair + 1) * sizeof *out->pair);
	out->cfg.target = arena_alloc(a, (ad->npair + 1) * sizeof *out->cfg.target);
	out->cfg.rank = arena_alloc(a, (ad->cfg.nrank + PARAMETERS) * sizeof *out->cfg.rank);
	out->cfg.alphas = arena_alloc(a, (ad->cfg.nalpha + PARAMETERS) * sizeof *out->cfg.alphas);
	out->cfg.parameter = arena_alloc(a, PARAMETERS * sizeof *out->cfg.parameter);
	if (!out->pair || !out->cfg.target || !out->cfg.rank || !out->cfg.alphas ||
	    !out->cfg.parameter)
		return err_nomem(e, ad->npair * sizeof *out->pair, "an adapter");
	/* what PEFT finds first holds: the keys of parameters are in front */
	out->cfg.nrank = out->cfg.nalpha = out->cfg.nparameter = 0;
	out->cfg.dropout = 0; /* PEFT has none for parameters */
	for (int64_t i = 0; i < c->layers; i++) {
		const bool nested = has_part(&t, i, false) && has_part(&t, i, true);
		TRY(fuse(&t, i, true, nested, e));
		TRY(fuse(&t, i, false, nested, e));
	}
	for (size_t i = 0; i < ad->npair; i++) {
		if (is_of_experts(c, ad->pair[i].module, false))
			continue;
		if (is_of_experts(c, ad->pair[i].module, true))
			TRY(add_router(&t, &ad->pair[i], e));
		else
			out->pair[out->npair++] = ad->pair[i];
	}
	if (!out->cfg.nparameter)
		return err_set(e, ERR_USAGE, "the adapter has no pair on experts or routers");
	for (size_t i = 0; i < out->npair; i++)
		if (!out->pair[i].fused)
			TRY(add_dense(&t, &out->pair[i], e));
	keep_targets(&t);
	for (size_t i = 0; i < ad->cfg.nrank; i++)
		add_number(out->cfg.rank, &out->cfg.nrank, &ad->cfg.rank[i]);
	for (size_t i = 0; i < ad->cfg.nalpha; i++)
		add_number(out->cfg.alphas, &out->cfg.nalpha, &ad->cfg.alphas[i]);
	return 0;
}
