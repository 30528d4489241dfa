/* SPDX-License-Identifier: Apache-2.0 */
/* own_norm.c - norms over the last dimension of a row, and over the rows of a pass. */
#include "model/own.h"

#include "base/err.h"

enum { EPS }; /* v[] */

static const char *fit(struct own_block *b)
{
	b->out = b->in;
	return 0;
}

static int64_t width(const struct own_block *b) { return b->in.dim[b->in.ndim - 1]; }

static size_t layer_params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	p[0] = (struct own_param){ "weight", 1, { width(b), 1 }, FIRST_ONE, 0 };
	p[1] = (struct own_param){ "bias", 1, { width(b), 1 }, FIRST_ZERO, 0 };
	return 2;
}

static int layer_forward(struct own_run *r, const struct own_block *b, struct tensor *x,
			 struct tensor **y_p, struct err *e)
{
	struct param *w = own_take(r), *bias = own_take(r);
	return op_layernorm_apply(r->t, x, w, bias, width(b), (float)b->v[EPS], y_p, e);
}

const struct own_kind own_layer_norm = { .name = "layer_norm",
					 .help = "nn.LayerNorm over the last dimension",
					 .key = { { "eps", 0, 1, 1e-5, false } },
					 .fit = fit,
					 .params = layer_params,
					 .forward = layer_forward };

static size_t rms_params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	p[0] = (struct own_param){ "weight", 1, { width(b), 1 }, FIRST_ONE, 0 };
	return 1;
}

static int rms_forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		       struct tensor **y_p, struct err *e)
{
	return op_rmsnorm_apply(r->t, x, own_take(r), width(b), (float)b->v[EPS], 0, NULL, y_p, e);
}

const struct own_kind own_rms_norm = { .name = "rms_norm",
				       .help = "nn.RMSNorm over the last dimension",
				       .key = { { "eps", 0, 1, 1e-6, false } },
				       .fit = fit,
				       .params = rms_params,
				       .forward = rms_forward };

/* ---- over the pass ---- */

static size_t batch_params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	p[0] = (struct own_param){ "weight", 1, { b->in.dim[0], 1 }, FIRST_ONE, 0 };
	p[1] = (struct own_param){ "bias", 1, { b->in.dim[0], 1 }, FIRST_ZERO, 0 };
	return 2;
}

static int batch_forward(struct own_run *r, const struct own_block *b, struct tensor *x,
			 struct tensor **y_p, struct err *e)
{
	struct param *w = own_take(r), *bias = own_take(r);
	return op_batchnorm_apply(r->t, x, w, bias, (float)b->v[EPS], y_p, e);
}

const struct own_kind own_batch_norm = { .name = "batch_norm",
					 .help = "over the rows of a pass, for each number of the "
						 "first dimension: nn.BatchNorm with "
						 "track_running_stats=False",
					 .key = { { "eps", 0, 1, 1e-5, false } },
					 .batch = true,
					 .fit = fit,
					 .params = batch_params,
					 .forward = batch_forward };
