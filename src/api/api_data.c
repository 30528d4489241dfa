/* SPDX-License-Identifier: Apache-2.0 */
/* api_data.c - data that lies in memory. */
#include "api/api_data.h"

#include "base/mem.h"

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

void hs_data_release(hs_data *data)
{
	if (data && data->get == get)
		mem_free(data->ctx);
	if (data)
		*data = (hs_data){ .size = sizeof *data };
}

/* ---- for the engine ---- */

static int get_sample(void *ctx, uint64_t index, void *in, void *out, struct err *e)
{
	const struct api_samples *s = ctx;
	const int rc = s->data.get(s->data.ctx, index, in, out);
	return rc ? err_set(e, ERR_INPUT, "the data's function failed with %d", rc) : 0;
}

int api_samples_init(struct api_samples *s, const hs_model *m, const hs_data *d, hs_error *e)
{
	if (!d || d->size < sizeof *d || !d->get)
		return api_refuse(e, ERR_USAGE,
				  "the data needs `size` (sizeof(hs_data)) and a function `get`");
	if (!d->count)
		return api_refuse(e, ERR_USAGE, "the data has no sample");
	s->data = *d;
	s->set = (struct sample_set){ .count = d->count,
				      .held = d->held,
				      .length = d->length ? d->length : 1,
				      .in_words = (uint32_t)own_input_words(&m->cfg.own),
				      .out_words = (uint32_t)own_target_words(&m->cfg.own),
				      .get = get_sample,
				      .ctx = s };
	s->set.digest = d->version * 0x9e3779b97f4a7c15u ^ d->count * 31 ^ d->held * 17 ^ d->length;
	return 0;
}
