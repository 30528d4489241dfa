/* SPDX-License-Identifier: Apache-2.0 */
/* merge_fused.c - see merge_fused.h. Of gpt-oss gate and up alternate, and matrices lie by columns;
 * of Gemma 4 they lie by rows, gate before up. */
#include "runtime/merge_fused.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

struct whole {
	int64_t layer, out, in; /* of one module */
	bool gate_up, bias, columns;
};

/* Models that transformers reads in this form only. */
static bool is_fused(const struct model_config *c)
{
	return c->expert_names == EXPERTS_OSS || c->expert_names == EXPERTS_SIDE;
}

static const char *block(bool columns) { return columns ? "mlp.experts" : "experts"; }

bool merge_is_fused(const struct model_config *c, const char *name)
{
	return is_fused(c) && strstr(name, ".experts.") != NULL;
}

int merge_fused_specs(const struct model_config *c, enum dtype t, struct arena *a,
		      struct st_spec *spec, size_t *n_p, struct err *e)
{
	const bool oss = c->expert_names == EXPERTS_OSS;
	const int each = oss ? 4 : 2; /* of a layer */
	for (int64_t i = 0; is_fused(c) && i < each * c->layers; i++) {
		char name[96];
		struct whole *w = arena_alloc(a, sizeof *w);
		int64_t dim[2];
		if (!w)
			return err_nomem(e, sizeof *w, "a tensor of experts");
		*w = (struct whole){
			.layer = i / each, .gate_up = i & 1, .bias = oss && i & 2, .columns = oss
		};
		linear_dims(c, w->layer,
			    w->gate_up ? (oss ? LIN_EXPERT_GATE : LIN_SIDE_GATE)
				       : (oss ? LIN_EXPERT_DOWN : LIN_SIDE_DOWN),
			    dim);
		w->out = dim[0];
		w->in = w->bias ? 1 : dim[1];
		snprintf(name, sizeof name, "model.layers.%lld.%s.%s%s", (long long)w->layer,
			 block(oss), w->gate_up ? "gate_up_proj" : "down_proj",
			 w->bias ? "_bias" : "");
		const int64_t wide = w->out * (w->gate_up ? 2 : 1);
		struct st_spec s = { .name = arena_strdup(a, name),
				     .dtype = t,
				     .ndim = w->bias ? 2 : 3,
				     .shape = { c->experts, w->bias ? wide : w->in, wide },
				     .user = w };
		if (!oss) {
			s.shape[1] = wide;
			s.shape[2] = w->in;
		}
		if (!s.name)
			return err_nomem(e, sizeof name, "a name");
		spec[(*n_p)++] = s;
	}
	return 0;
}

/* One expert, as float32: x (in, parts * out), or (parts * out, in) by rows. `module`: room for
 * (out, in). */
static int put_expert(const struct whole *w, int64_t expert, float *x, float *module,
		      merge_rows_fn rows, void *ctx, struct err *e)
{
	static const char *const part[] = { "gate_proj", "up_proj" };
	const int parts = w->gate_up ? 2 : 1;
	for (int p = 0; p < parts; p++) {
		char name[128];
		snprintf(name, sizeof name, "model.layers.%lld.%s.%lld.%s.%s", (long long)w->layer,
			 block(w->columns), (long long)expert, w->gate_up ? part[p] : "down_proj",
			 w->bias ? "bias" : "weight");
		if (!w->columns) {
			TRY(rows(ctx, name, 0, w->out, x + p * w->out * w->in, e));
			continue;
		}
		TRY(rows(ctx, name, 0, w->out, module, e));
		for (int64_t r = 0; r < w->out; r++)
			for (int64_t c = 0; c < w->in; c++)
				x[(c * w->out + r) * parts + p] = module[r * w->in + c];
	}
	return 0;
}

int merge_fused_bytes(const struct st_spec *s, uint64_t off, uint64_t n, void *dst,
		      merge_rows_fn rows, void *ctx, struct err *e)
{
	const struct whole *w = s->user;
	const uint64_t one = (uint64_t)(w->out * w->in), each = one * (w->gate_up ? 2 : 1),
		       bytes = each * dtype_size(s->dtype);
	float *x = mem_array(each + one, sizeof *x);
	int rc = x ? 0 : err_nomem(e, (each + one) * sizeof *x, s->name);
	for (uint64_t i = off / bytes; i < (off + n) / bytes && !rc; i++) {
		rc = put_expert(w, (int64_t)i, x, x + each, rows, ctx, e);
		if (!rc)
			dtype_from_f32(s->dtype, x, (char *)dst + (i * bytes - off), each);
	}
	mem_free(x);
	return rc;
}
