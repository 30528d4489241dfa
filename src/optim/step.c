/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - updates that several optimizers make; see optim.h. */
#include "optim/optim.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>

int optim_adamw_step(struct param *p, const struct optim_config *c, const struct optim_step *s,
		     struct err *e)
{
	int64_t first, count = param_owned(p, &first);
	double bc1 = 1 - pow(c->beta1, (double)s->step), bc2 = 1 - pow(c->beta2, (double)s->step);
	const union dev_arg a[] = { { .b = param_value(p) },
				    { .b = DEV_REF(p->state[0], 0) },
				    { .b = DEV_REF(p->state[1], 0) },
				    { .b = param_grad(p) },
				    { .i = count },
				    { .f = s->lr },
				    { .f = (float)c->beta1 },
				    { .f = (float)c->beta2 },
				    { .f = (float)c->epsilon },
				    { .f = p->decay ? (float)c->weight_decay : 0 },
				    { .f = (float)bc1 },
				    { .f = (float)bc2 },
				    { .f = s->scale } };
	return dev_launch(p->value->dev, K_adamw, DT_F32, a, e);
}

int optim_plain_step(struct param *p, float lr, float decay, float scale, struct err *e)
{
	int64_t first, count = param_owned(p, &first);
	const union dev_arg a[] = {
		{ .b = param_value(p) }, { .b = DEV_NONE }, { .b = param_grad(p) },
		{ .i = count },          { .f = lr },       { .f = 0 },
		{ .f = decay },          { .f = scale }
	};
	return dev_launch(p->value->dev, K_sgd, DT_F32, a, e);
}

int grad_blocks(const struct param *p, struct dmem *scratch, struct norm_buffer *b,
		int64_t *blocks_p, struct err *e)
{
	int64_t first, n = param_owned(p, &first), blocks = (n + STATE_BLOCK - 1) / STATE_BLOCK;
	*blocks_p = blocks;
	if (!blocks)
		return 0;
	if (!mem_grow(&b->sum, &b->cap, (size_t)blocks, sizeof *b->sum))
		return err_nomem(e, (unsigned long long)blocks * 4, "block sums");
	struct dmem_mark k = dmem_mark(scratch);
	struct dev_ref out;
	TRY(dmem_take(scratch, (size_t)blocks * 4, &out, e));
	const union dev_arg a[] = { { .b = out }, { .b = param_grad(p) }, { .i = n } };
	TRY(dev_launch(scratch->dev, K_sqnorm, DT_F32, a, e));
	TRY(dev_download(b->sum, out, (size_t)blocks * 4, e));
	dmem_back(scratch, k);
	return 0;
}

int grad_sqnorm(const struct param *p, struct dmem *scratch, struct norm_buffer *b, double *sum_p,
		struct err *e)
{
	int64_t blocks;
	TRY(grad_blocks(p, scratch, b, &blocks, e));
	double sum = 0;
	for (int64_t i = 0; i < blocks; i++)
		sum += b->sum[i];
	*sum_p = sum;
	return 0;
}
