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

uint64_t optim_owned(const struct param *p, const struct optim_state *s, uint64_t *first_p)
{
	int64_t first, count = param_owned(p, &first);
	*first_p = s->per ? (uint64_t)(first / s->per) : 0;
	if (!count || !s->per)
		return count ? s->count : 0;
	return (uint64_t)((first + count + s->per - 1) / s->per) - *first_p;
}

int optim_init(const struct optimizer *o, struct param *p, const struct optim_config *c,
	       struct err *e)
{
	(void)c;
	struct optim_state s[PARAM_STATES];
	int n = o->states(p->name, p->ndim, p->dim, s);
	for (int i = 0; i < n; i++) {
		uint64_t first, count = optim_owned(p, &s[i], &first);
		size_t bytes = (size_t)count * dtype_size(s[i].dtype);
		if (!count)
			continue;
		if (!p->state[i])
			TRY(dev_alloc(p->value->dev, bytes, &p->state[i], e));
		TRY(dev_zero(DEV_REF(p->state[i], 0), bytes, e));
	}
	return 0;
}

int optim_zero_grad(struct param *p, struct err *e)
{
	int64_t first;
	if (p->own_grad)
		TRY(dev_zero(DEV_REF(p->own_grad, 0), (size_t)param_owned(p, &first) * 4, e));
	if (p->gathered) /* the whole gradient is made from zero in every step */
		return 0;
	return dev_zero(DEV_REF(p->grad, 0), (size_t)param_count(p) * 4, e);
}

int optim_update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		 const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	struct optim_step own = *s;
	int64_t first;
	if (p->rate > 0)
		own.lr *= p->rate;
	int rc = param_owned(p, &first) ? o->update(p, c, &own, w, e) : 0;
	if (rc < 0)
		return err_prefix(e, "%s of %s", o->name, p->name);
	TRY(param_refresh(p, e));
	return optim_zero_grad(p, e);
}
