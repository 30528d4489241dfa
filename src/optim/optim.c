/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - what all optimizers share; see optim.h. */
#include "optim/optim.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

#define OPTIM(name) extern const struct optimizer optim_##name;
#include "optim/optim.def"
#undef OPTIM

static const struct optimizer *const optimizers[] = {
#define OPTIM(name) &optim_##name,
#include "optim/optim.def"
#undef OPTIM
};

const struct optimizer *optimizer_at(size_t i)
{
	return i < ARRAY_LEN(optimizers) ? optimizers[i] : NULL;
}

const struct optimizer *optimizer_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(optimizers); i++)
		if (!strcmp(optimizers[i]->name, name))
			return optimizers[i];
	return NULL;
}

int optim_init(const struct optimizer *o, struct param *p, const struct optim_config *c,
	       struct err *e)
{
	(void)c;
	size_t bytes = (size_t)param_count(p) * 4;
	for (int i = 0; i < o->states; i++) {
		if (!p->state[i])
			TRY(dev_alloc(p->value->dev, bytes, &p->state[i], e));
		TRY(dev_zero(DEV_REF(p->state[i], 0), bytes, e));
	}
	return 0;
}

int optim_zero_grad(struct param *p, struct err *e)
{
	return dev_zero(DEV_REF(p->grad, 0), (size_t)param_count(p) * 4, e);
}

int optim_update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		 const struct optim_step *s, struct err *e)
{
	int rc = o->update(p, c, s, e);
	if (rc < 0)
		return err_prefix(e, "%s of %s", o->name, p->name);
	TRY(param_refresh(p, e));
	return optim_zero_grad(p, e);
}

int grad_sqnorm(const struct param *p, struct dmem *scratch, struct norm_buffer *b, double *sum_p,
		struct err *e)
{
	int64_t n = param_count(p), blocks = (n + 4095) / 4096;
	if (!mem_grow(&b->sum, &b->cap, (size_t)blocks, sizeof *b->sum))
		return err_nomem(e, (unsigned long long)blocks * 4, "block sums");
	struct dmem_mark k = dmem_mark(scratch);
	struct dev_ref out;
	TRY(dmem_take(scratch, (size_t)blocks * 4, &out, e));
	const union dev_arg a[] = { { .b = out }, { .b = DEV_REF(p->grad, 0) }, { .i = n } };
	TRY(dev_launch(scratch->dev, K_sqnorm, DT_F32, a, e));
	TRY(dev_download(b->sum, out, (size_t)blocks * 4, e));
	dmem_back(scratch, k);
	double sum = 0;
	for (int64_t i = 0; i < blocks; i++)
		sum += b->sum[i];
	*sum_p = sum;
	return 0;
}
