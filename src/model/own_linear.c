/* SPDX-License-Identifier: Apache-2.0 */
/* own_linear.c - y = x W^T + b. */
#include "model/own.h"

#include "base/err.h"

#include <math.h>

enum { OUT, BIAS }; /* v[] */

static const char *fit(struct own_block *b)
{
	b->out = (struct own_shape){ .ndim = 1, .dim = { (int32_t)b->v[OUT] } };
	return b->in.ndim == 1 ? NULL : "(width); put 'flatten' before it";
}

static size_t params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	const int64_t in = b->in.dim[0], out = b->out.dim[0];
	p[0] = (struct own_param){ "weight", 2, { out, in }, FIRST_UNIFORM, in };
	p[1] = (struct own_param){ "bias", 1, { out, 1 }, FIRST_UNIFORM, in };
	return b->v[BIAS] > 0 ? 2 : 1;
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	static const struct lora none = { 0 };
	struct param *w = own_take(r), *bias = b->v[BIAS] > 0 ? own_take(r) : NULL;
	return op_linear_apply(r->t, x, w, bias, &none, 0, NULL, y_p, e);
}

static double flops(const struct own_block *b) { return 2.0 * b->in.dim[0] * b->out.dim[0]; }

const struct own_kind own_linear = { .name = "linear",
				     .help = "x W^T + b: nn.Linear",
				     .key = { { "out", 1, 1 << 24, NAN, true },
					      { "bias", 0, 1, 1, true } },
				     .fit = fit,
				     .params = params,
				     .forward = forward,
				     .flops = flops };
