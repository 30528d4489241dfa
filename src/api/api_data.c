/* SPDX-License-Identifier: Apache-2.0 */
/* api_data.c - data that lies in memory, or in files. */
#include "api/api_data.h"

#include "base/mem.h"
#include "data/sample_files.h"
#include "model/own.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct arrays {
	const char *x, *y;
	size_t in, out; /* bytes of a sample */
};

static int get(void *ctx, uint64_t index, void *x, void *y)
{
	const struct arrays *a = ctx;
	memcpy(x, a->x + index * a->in, a->in);
	memcpy(y, a->y + index * a->out, a->out);
	return 0;
}

int hs_data_arrays(const hs_model *model, const void *x, const void *y, uint64_t count,
		   uint32_t length, hs_data *data_p, hs_error *e)
{
	const uint64_t in = hs_model_input(model), out = hs_model_target(model),
		       rows = length ? length : 1;
	if (!in)
		return api_refuse(e, ERR_USAGE, "hs_data_arrays: there is no such model");
	if (!x || !y || !data_p || !count)
		return api_refuse(e, ERR_USAGE, "hs_data_arrays: an array is NULL, or empty");
	struct arrays *a = mem_zalloc(sizeof *a);
	if (!a)
		return api_refuse(e, ERR_NOMEM, "memory is out");
	*a = (struct arrays){ x, y, (size_t)(rows * in * 4), (size_t)(rows * out * 4) };
	*data_p = (hs_data){ .size = sizeof *data_p,
			     .count = count,
			     .length = (uint32_t)rows,
			     .get = get,
			     .ctx = a };
	return 0;
}

/* ---- files ---- */

static int get_file(void *ctx, uint64_t index, void *x, void *y)
{
	const struct sample_set *s = sample_files_set(ctx);
	struct err ignored;
	return s->get(s->ctx, index, x, y, &ignored);
}

static bool same(const char *a, const char *b) { return !b || !strcmp(a, b); }

static int open_files(const hs_model *m, const hs_files *h, struct sample_files **f_p,
		      struct err *e)
{
	const struct own_model *own = &m->cfg.own;
	const bool image = own->input.ndim == 3 && !own->tokens, ids = own->tokens > 0,
		   classes = own_has_classes(own);
	char but[1024];
	struct sample_files_options o = {
		.x = h->x,
		.y = h->y,
		.x_wish = { .columns = h->x_columns, .channels = -1, .whole = ids },
		.y_wish = { .columns = h->y_columns, .whole = classes },
		.in_words = (uint64_t)own_input_words(own),
		.out_words = (uint64_t)own_target_words(own),
		.length = h->length,
		.held = h->held,
		.scale = h->scale,
		.shift = h->shift,
		.block = h->block,
		.mixed = h->mixed
	};
	if (image) {
		o.x_wish.channels = own->input.dim[0];
		o.x_wish.height = own->input.dim[1];
		o.x_wish.width = own->input.dim[2];
	}
	if (!h->x_columns && h->y_columns && same(h->x, h->y) && array_has_columns(h->x)) {
		if (snprintf(but, sizeof but, "!%s", h->y_columns) >= (int)sizeof but)
			return err_set(e, ERR_USAGE, "y_columns is too long");
		o.x_wish.columns = but;
	}
	return sample_files_open(&o, f_p, e);
}

int hs_data_files(const hs_model *model, const hs_files *files, hs_data *data_p, hs_error *out)
{
	struct err e = { 0 };
	struct sample_files *f;
	hs_files h;
	if (!api_take(&h, sizeof h, files, sizeof h) || !h.x || !data_p)
		return api_refuse(out, ERR_USAGE,
				  "hs_data_files: an argument or `x` is NULL, or `size` is not "
				  "sizeof(hs_files)");
	int rc = api_enter(model, out);
	if (rc < 0)
		return rc;
	rc = open_files(model, &h, &f, &e);
	api_leave(model);
	if (rc < 0)
		return api_error(&e, out);
	const struct sample_set *s = sample_files_set(f);
	*data_p = (hs_data){ .size = sizeof *data_p,
			     .count = s->count,
			     .held = s->held,
			     .length = s->length,
			     .version = s->digest,
			     .get = get_file,
			     .ctx = f,
			     .block = s->block,
			     .mixed = s->mixed };
	return 0;
}

void hs_data_release(hs_data *data)
{
	if (data && data->get == get)
		mem_free(data->ctx);
	if (data && data->get == get_file)
		sample_files_close(data->ctx);
	if (data)
		*data = (hs_data){ .size = sizeof *data };
}

/* ---- for the engine ---- */

static int get_sample(void *ctx, uint64_t index, void *in, void *out, struct err *e)
{
	const struct api_samples *s = ctx;
	const int rc = s->data.get(s->data.ctx, index, in, out);
	if (rc == HS_DATA_ENDS)
		return err_set(e, ERR_INPUT,
			       "the data has no such sample: it ends early, after fewer than the "
			       "%llu of `count` and `held`",
			       (unsigned long long)(s->data.count + s->data.held));
	return rc ? err_set(e, ERR_INPUT, "the data's function failed with %d", rc) : 0;
}

/* As get_sample(), with what was wrong in the file. */
static int get_from_file(void *ctx, uint64_t index, void *in, void *out, struct err *e)
{
	const struct api_samples *s = ctx;
	const struct sample_set *f = sample_files_set(s->data.ctx);
	return f->get(f->ctx, index, in, out, e);
}

int api_samples_init(struct api_samples *s, const hs_model *m, const hs_data *d, hs_error *e)
{
	if (!api_take(&s->data, sizeof s->data, d, offsetof(hs_data, block)) || !s->data.get)
		return api_refuse(e, ERR_USAGE,
				  "the data needs `size` (sizeof(hs_data)) and a function `get`");
	d = &s->data;
	if (!d->count)
		return api_refuse(e, ERR_USAGE, "the data has no sample");
	s->set = (struct sample_set){ .count = d->count,
				      .held = d->held,
				      .length = d->length ? d->length : 1,
				      .in_words = (uint32_t)own_input_words(&m->cfg.own),
				      .out_words = (uint32_t)own_target_words(&m->cfg.own),
				      .block = d->block,
				      .mixed = d->mixed,
				      .get = d->get == get_file ? get_from_file : get_sample,
				      .ctx = s };
	s->set.digest = d->version * 0x9e3779b97f4a7c15u ^ d->count * 31 ^ d->held * 17 ^
			d->length ^ d->block * 13 ^ d->mixed * 7;
	return 0;
}
