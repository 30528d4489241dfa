/* SPDX-License-Identifier: Apache-2.0 */
/* optim_adafactor.c - Adafactor (Shazeer & Stern 2018, arXiv 1804.04235) as transformers sets it up
 * for a given learning rate: no relative step, no scale by the parameter, no first moment. The
 * second moment of a matrix is kept as one number a row and one a column. */
#include "optim/optim.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>

static const double decay_rate = 0.8, epsilon = 1e-30, clip = 1;

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	(void)name;
	if (ndim != 2) {
		s[0] = optim_state_f32("exp_avg_sq", (uint64_t)dim[0]);
		return 1;
	}
	s[0] = (struct optim_state){ "exp_avg_sq_row", DT_F32, dim[1], (uint64_t)dim[0] };
	s[1] = (struct optim_state){ "exp_avg_sq_col", DT_F32, 0, (uint64_t)dim[1] };
	return 2;
}

static int factor(struct param *p, enum dev_kernel k, struct dev_buf *to, int64_t rows,
		  int64_t cols, double b2, float scale, struct err *e)
{
	const union dev_arg a[] = { { .b = DEV_REF(to, 0) }, { .b = param_grad(p) },
				    { .i = rows },           { .i = cols },
				    { .f = (float)b2 },      { .f = (float)epsilon },
				    { .f = scale } };
	return dev_launch(p->value->dev, k, DT_F32, a, e);
}

/* The mean of n float32 numbers of the device, added in double in their order. */
static int mean_of(struct dev_buf *b, int64_t n, struct norm_buffer *host, double *mean_p,
		   struct err *e)
{
	if (!mem_grow(&host->sum, &host->cap, (size_t)n, sizeof *host->sum))
		return err_nomem(e, (size_t)n * sizeof *host->sum, "a mean");
	TRY(dev_download(host->sum, DEV_REF(b, 0), (size_t)n * sizeof *host->sum, e));
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)host->sum[i];
	*mean_p = sum / (double)n;
	return 0;
}

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	const bool matrix = p->ndim == 2;
	const int64_t rows = p->dim[0], cols = matrix ? p->dim[1] : 1;
	const double b2 = 1 - pow((double)s->step, -decay_rate);
	double mean = 1, squares;
	TRY(factor(p, K_factor_rows, p->state[0], rows, cols, b2, s->scale, e));
	if (matrix) {
		TRY(factor(p, K_factor_cols, p->state[1], rows, cols, b2, s->scale, e));
		TRY(mean_of(p->state[0], rows, w->host, &mean, e));
	}
	const union dev_arg a[] = {
		{ .b = param_grad(p) },
		{ .b = DEV_REF(p->state[0], 0) },
		{ .b = matrix ? DEV_REF(p->state[1], 0) : DEV_NONE },
		{ .i = rows },
		{ .i = cols },
		{ .f = (float)mean },
		{ .f = s->scale },
	};
	TRY(dev_launch(p->value->dev, K_factor_scale, DT_F32, a, e));
	TRY(grad_sqnorm(p, w->scratch, w->host, &squares, e));
	double rms = sqrt(squares / (double)param_count(p));
	return optim_plain_step(p, s->lr, p->decay ? (float)c->weight_decay : 0,
				(float)(1 / fmax(1, rms / clip)), e);
}

const struct optimizer optim_adafactor = {
	.name = "adafactor",
	.help = "Adafactor; one number kept for each row and column of a matrix",
	.cut = CUT_MATRIX,
	.states = states,
	.update = update,
};
