/* SPDX-License-Identifier: Apache-2.0 */
/* source_random.c - random parameters in the shapes of a model, for measuring without a
 * model file. */
#include "model/model.h"
#include "model/own.h"
#include "model/source.h"

#include "base/rng.h"

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
	if (strstr(name, ".q_norm.") || strstr(name, ".k_norm."))
		t->shape[0] = qk_norm_width(c, strstr(name, ".q_norm.") ? LIN_Q : LIN_K);
	int at = 0;
	if (sscanf(name, "model.layers.%*d.%n", &at) < 0)
		return 0;
	for (enum linear l = 0; at && l < LIN_COUNT; l++) {
		int64_t expert;
		if (!linear_behind(l, name + at, &expert) || expert >= linear_copies(c, l))
			continue;
		linear_dims(c, l, t->shape);
		if (!strstr(name, ".bias"))
			t->ndim = 2;
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
		float v = strstr(name, ".bias") ? 0 : 1 - c->norm_plus;
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

static void drop_tensor(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
}

struct weight_source source_random(const struct model_config *c)
{
	return (struct weight_source){
		.ctx = (void *)c, .find = find_tensor, .read = read_random, .drop = drop_tensor
	};
}
