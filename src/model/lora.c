/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - see lora.h. */
#include "model/lora.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lora_targets(const struct model_config *c, const char *const *name, size_t n,
		 struct lora_options *o, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		bool found = false, all = !strcmp(name[i], "all-linear");
		for (enum linear l = 0; l < LIN_COUNT; l++)
			if (model_has_linear(c, l) && (all || !strcmp(name[i], linear_name(l)) ||
						       !strcmp(name[i], linear_path(l))))
				o->target[l] = found = true;
		if (found)
			continue;
		char known[256] = "";
		size_t at = 0;
		for (enum linear l = 0; l < LIN_COUNT; l++)
			if (model_has_linear(c, l))
				at += (size_t)snprintf(known + at, sizeof known - at, "%s, ",
						       linear_name(l));
		return err_set(e, ERR_USAGE,
			       "lora_target_modules: this model has no module '%s' (it has %s"
			       "all-linear)",
			       name[i], known);
	}
	return 0;
}

int64_t lora_rank(const struct lora_options *o, int64_t layer, enum linear l)
{
	if (!o->r || !o->target[l] || o->skip[layer / 8] & 1 << layer % 8)
		return 0;
	return o->rank[l] ? o->rank[l] : o->r;
}

float lora_factor(const struct lora_options *o, enum linear l)
{
	return o->factor[l] != 0 ? o->factor[l] : o->scale;
}

static int read_pattern(const struct model_config *c, const char *key, const char *const *item,
			size_t n, double out[LIN_COUNT], struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		const char *is = strchr(item[i], '=');
		char name[64], *end = NULL;
		bool found = false;
		const double v = is ? strtod(is + 1, &end) : 0;
		snprintf(name, sizeof name, "%.*s", is ? (int)(is - item[i]) : 0, item[i]);
		for (enum linear l = 0; l < LIN_COUNT; l++)
			if (model_has_linear(c, l) &&
			    (!strcmp(name, linear_name(l)) || !strcmp(name, linear_path(l)))) {
				out[l] = v;
				found = true;
			}
		if (!found || !end || *end || !(v > 0 && v < 1e9))
			return err_set(e, ERR_USAGE,
				       "%s: '%.80s' is no module of this model with a number, as "
				       "q_proj=16",
				       key, item[i]);
	}
	return 0;
}

int lora_set_patterns(const struct model_config *c, const struct lora_patterns *p,
		      double whole_alpha, bool rslora, struct lora_options *o, struct err *e)
{
	double rank[LIN_COUNT] = { 0 }, alpha[LIN_COUNT] = { 0 };
	TRY(read_pattern(c, "lora_rank_pattern", p->rank, p->nrank, rank, e));
	TRY(read_pattern(c, "lora_alpha_pattern", p->alpha, p->nalpha, alpha, e));
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		const int64_t r = rank[l] > 0 ? (int64_t)rank[l] : o->r;
		if (!(rank[l] > 0) && !(alpha[l] > 0))
			continue;
		if (r < 1 || r > 65536)
			return err_set(e, ERR_USAGE, "lora_rank_pattern: %s=%g is no rank",
				       linear_name(l), rank[l]);
		o->rank[l] = r;
		o->factor[l] = lora_scale(r, alpha[l] > 0 ? alpha[l] : whole_alpha, rslora);
	}
	return 0;
}

int lora_layer_names(const struct model_config *c, const char *const *name, size_t n,
		     struct lora_options *o, struct err *e)
{
	int64_t layer[MODEL_LAYERS_MOST];
	for (size_t i = 0; i < n; i++) {
		char *end;
		layer[i < MODEL_LAYERS_MOST ? i : 0] = strtoll(name[i], &end, 10);
		if (*end || end == name[i] || i >= MODEL_LAYERS_MOST)
			return err_set(e, ERR_USAGE,
				       "peft_layers_to_transform: '%.40s' is no layer", name[i]);
	}
	return lora_layers(c, layer, n, o, e);
}

int lora_layers(const struct model_config *c, const int64_t *layer, size_t n,
		struct lora_options *o, struct err *e)
{
	if (!n)
		return 0;
	memset(o->skip, 0xff, sizeof o->skip);
	for (size_t i = 0; i < n; i++) {
		if (layer[i] < 0 || layer[i] >= c->layers)
			return err_set(e, ERR_USAGE,
				       "peft_layers_to_transform: there is no layer %lld in a "
				       "model of %lld",
				       (long long)layer[i], (long long)c->layers);
		o->skip[layer[i] / 8] &= (uint8_t) ~(1 << layer[i] % 8);
	}
	return 0;
}

int lora_save(const struct model_config *c, const char *const *name, size_t n,
	      struct lora_options *o, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		const char *dot = strrchr(name[i], '.'), *last = dot ? dot + 1 : name[i];
		if (!strcmp(last, "embed_tokens"))
			o->save_embed = true;
		else if (!strcmp(last, "lm_head"))
			o->save_head = true;
		else
			return err_set(e, ERR_USAGE,
				       "lora_modules_to_save: '%.80s' is not supported "
				       "(embed_tokens and lm_head are)",
				       name[i]);
	}
	if (n && c->tied)
		return err_set(e, ERR_INTERNAL,
			       "lora_modules_to_save: the head is still the embedding");
	return 0;
}

float lora_factor_of(const struct lora_options *o, const char *name)
{
	int at = 0;
	if (sscanf(name, "model.layers.%*d.%n", &at) < 0 || !at)
		return o->scale;
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		int64_t expert;
		const char *tail = linear_behind(l, name + at, &expert);
		if (tail && !strncmp(tail, ".lora_", 6))
			return lora_factor(o, l);
	}
	return o->scale;
}

float lora_scale(int64_t r, double alpha, bool rslora)
{
	return (float)(alpha / (rslora ? sqrt((double)r) : (double)r));
}

void lora_init_a(uint64_t seed, const char *name, int64_t in, float *dst, int64_t n)
{
	uint64_t k = rng_fold(seed, 0x6c6f7261); /* "lora" */
	for (; *name; name++)
		k = rng_fold(k, (unsigned char)*name);
	struct rng_key key = rng_key(k);
	float bound = 1.0f / sqrtf((float)in);
	for (int64_t i = 0; i < n; i++)
		dst[i] = rng_uniform(key, (uint64_t)i, -bound, bound);
}
