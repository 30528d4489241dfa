/* SPDX-License-Identifier: Apache-2.0 */
/* source_random.c - random parameters in the shapes of a model, for measuring without a
 * model file. */
#include "model/model.h"
#include "model/own.h"
#include "model/source.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int find_tensor(void *ctx, const char *name, struct source_tensor *t, struct err *e)
{
	(void)e;
	const struct model_config *c = ctx;
	struct own_param p;
	if (c->own.n && own_param_find(&c->own, name, &p)) {
		*t = (struct source_tensor){ .ndim = p.ndim, .shape = { p.dim[0], p.dim[1] } };
		return 1;
	}
	*t = (struct source_tensor){ .ndim = 1, .shape = { c->hidden, 1 } };
	if (strstr(name, "embed_tokens") || strstr(name, "lm_head")) {
		*t = (struct source_tensor){ .ndim = 2, .shape = { c->vocab, c->hidden } };
		return 1;
	}
	if (strstr(name, ".sinks"))
		t->shape[0] = c->heads;
	for (enum delta_param k = 0; k < DELTA_PARAMS && delta_param_name(c, k); k++)
		if (strstr(name, delta_param_name(c, k)))
			t->shape[0] = delta_param_count(c, k);
	for (enum router_param k = 0; k < ROUTER_PARAMS; k++)
		if (strstr(name, router_param_name(k)))
			t->shape[0] = router_param_count(c, k);
	int at = 0;
	long long layer = 0;
	if (sscanf(name, "model.layers.%lld.%n", &layer, &at) < 0)
		return 0;
	if (at && !strcmp(name + at, MODEL_LAYER_SCALAR))
		t->shape[0] = 1;
	if (at && name_is_correction(name + at))
		t->shape[0] = c->experts;
	for (enum linear l = 0; at && layer < c->layers && l < LIN_COUNT; l++) {
		int64_t expert, width;
		const char *tail = linear_behind(l, name + at, &expert),
			   *norm = linear_norm(c, layer, l, &width);
		if (norm && !strcmp(name + at, norm))
			t->shape[0] = width;
		if (!tail || (strcmp(tail, ".weight") && strcmp(tail, ".bias")) ||
		    layer >= c->layers || expert >= linear_copies(c, layer, l))
			continue;
		linear_dims(c, layer, l, t->shape);
		t->ndim = tail[1] == 'w' ? 2 : 1;
		t->shape[1] = t->ndim == 2 ? t->shape[1] : 1;
		t->nf4 = t->ndim == 2 && c->experts_mx && linear_is_expert(l);
	}
	return 1;
}

static int read_random(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		       struct err *e)
{
	const struct model_config *c = ctx;
	struct source_tensor t;
	struct own_param p;
	if (c->own.n && own_param_find(&c->own, name, &p)) {
		own_first_values(&p, name, 1, row0, rows, dst);
		return 0;
	}
	find_tensor(ctx, name, &t, e);
	if (t.ndim == 1) {
		float v = strstr(name, "bias")            ? 0
			  : strstr(name, ".linear_attn.") ? 1
							  : 1 - c->norm_plus;
		for (int64_t i = 0; i < rows; i++)
			dst[i] = v;
		return 0;
	}
	float bound = 1.7f / sqrtf((float)t.shape[1]);
	uint64_t key = rng_fold((uint64_t)(unsigned char)name[strlen(name) / 2], (uint64_t)row0);
	int64_t n = rows * t.shape[1];
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < n; i++)
		dst[i] = bound * (float)(int32_t)rng_mix64(key ^ (uint64_t)i) * 0x1p-31f;
	return 0;
}

/* Of the tensor that is being read: one at a time. */
static _Thread_local uint8_t *parts;

static void drop_tensor(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
	mem_free(parts);
	parts = NULL;
}

/* A matrix in MXFP4 (file/fused.h). */
static int random_nf4(void *ctx, const char *name, struct nf4_parts *q, struct err *e)
{
	enum { SCALE = 121 }; /* 2^-6 */
	struct source_tensor t;
	find_tensor(ctx, name, &t, e);
	const uint64_t n = (uint64_t)(t.shape[0] * t.shape[1]), blocks = n / MX_BLOCK,
		       nested = (blocks + NF4_BLOCK2 - 1) / NF4_BLOCK2;
	drop_tensor(ctx, name);
	parts = mem_alloc(nested * 4 + n / 2 + blocks);
	if (!parts)
		return err_nomem(e, nested * 4 + n / 2 + blocks, name);
	float *ones = (float *)(void *)parts;
	uint8_t *packed = parts + nested * 4;
	for (uint64_t i = 0; i < nested; i++)
		ones[i] = 1;
	const uint64_t key = (unsigned char)name[strlen(name) / 2];
#pragma omp parallel for schedule(static)
	for (uint64_t i = 0; i < n / 2; i++)
		packed[i] = (uint8_t)rng_mix64(key ^ i);
	memset(packed + n / 2, SCALE, blocks);
	*q = (struct nf4_parts){ .packed = packed,
				 .absmax8 = packed + n / 2,
				 .code = mx_code,
				 .code2 = mx_scales(),
				 .absmax2 = ones,
				 .block = MX_BLOCK };
	return 0;
}

struct weight_source source_random(const struct model_config *c)
{
	return (struct weight_source){ .ctx = (void *)c,
				       .find = find_tensor,
				       .read = read_random,
				       .nf4 = random_nf4,
				       .drop = drop_tensor };
}
