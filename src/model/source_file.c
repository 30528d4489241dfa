/* SPDX-License-Identifier: Apache-2.0 */
/* source_file.c - the weight source that reads an open model file. */
#include "model/source.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/model_file.h"
#include "model/model.h"

static int find_tensor(void *ctx, const char *name, struct source_tensor *t_p, struct err *e)
{
	const struct model_tensor *t = model_file_find(ctx, name);
	if (!t)
		return 0;
	if (t->ndim < 1 || t->ndim > 2)
		return err_set(e, ERR_INPUT, "%s: %s has %d dimensions; 1 or 2 were expected",
			       model_file_path(ctx), name, t->ndim);
	*t_p = (struct source_tensor){ .nf4 = t->kind == STORE_NF4,
				       .ndim = t->ndim,
				       .shape = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 } };
	return 1;
}

static int read_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		     struct err *e)
{
	return model_file_read_f32(ctx, model_file_find(ctx, name), row0, rows, dst, e);
}

static int get_nf4(void *ctx, const char *name, struct nf4_parts *q, struct err *e)
{
	struct nf4_view v;
	TRY(model_file_nf4(ctx, model_file_find(ctx, name), &v, e));
	if (v.absmax8 && v.blocksize2 != NF4_BLOCK2) {
		mem_free(v.memory);
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: %s: nested block size %d is not supported (%d is)",
			       model_file_path(ctx), name, v.blocksize2, NF4_BLOCK2);
	}
	*q = (struct nf4_parts){ .packed = v.packed,
				 .absmax = v.absmax,
				 .absmax8 = v.absmax8,
				 .code = v.code,
				 .code2 = v.code2,
				 .absmax2 = v.absmax2,
				 .offset = v.offset,
				 .block = v.blocksize,
				 .memory = v.memory };
	return 0;
}

static void drop_tensor(void *ctx, const char *name)
{
	const struct model_tensor *t = model_file_find(ctx, name);
	if (t)
		model_file_drop(ctx, t);
}

struct weight_source source_from_file(struct model_file *f)
{
	return (struct weight_source){ .ctx = f,
				       .find = find_tensor,
				       .read = read_rows,
				       .nf4 = get_nf4,
				       .drop = drop_tensor };
}

int source_check_file(const struct model_file *f, const struct model_config *c, struct err *e)
{
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		if (model_knows_tensor(c, t->name) < 0)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: the tensor '%s' does not belong to a %s model with "
				       "this configuration",
				       model_file_path(f), t->name, c->family);
	}
	return 0;
}
