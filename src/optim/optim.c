/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - what all optimizers share; see optim.h. */
#include "optim/optim.h"

#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <strings.h>

#define OPTIM(name) extern const struct optimizer optim_##name;
#include "optim/optim.def"
#undef OPTIM

static const struct optimizer *const optimizers[] = {
#define OPTIM(name) &optim_##name,
#include "optim/optim.def"
#undef OPTIM
};

enum { ADDED_MOST = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct optimizer *added[ADDED_MOST];
static size_t nadded;

const struct optimizer *optimizer_at(size_t i)
{
	const struct optimizer *o = NULL;
	if (i < ARRAY_LEN(optimizers))
		return optimizers[i];
	pthread_mutex_lock(&lock);
	if (i - ARRAY_LEN(optimizers) < nadded)
		o = added[i - ARRAY_LEN(optimizers)];
	pthread_mutex_unlock(&lock);
	return o;
}

const struct optimizer *optimizer_find(const char *name)
{
	const struct optimizer *o;
	for (size_t i = 0; (o = optimizer_at(i)); i++)
		if (!strcmp(o->name, name))
			return o;
	return NULL;
}

static bool is_called(const struct optimizer *o, const char *name)
{
	const char *const *other = o->aliases;
	bool is = !strcasecmp(o->name, name);
	for (; other && *other; other++)
		is = is || !strcasecmp(*other, name);
	return is;
}

int optimizer_register(const struct optimizer *o, struct err *e)
{
	const struct optimizer *there;
	int rc = 0;
	for (size_t i = 0; (there = optimizer_at(i)); i++)
		for (const char *const *name = o->aliases; name && *name; name++)
			if (is_called(there, *name) || is_called(there, o->name))
				return err_set(e, ERR_USAGE, "there is an optimizer '%s' already",
					       *name);
	pthread_mutex_lock(&lock);
	if (nadded < ADDED_MOST)
		added[nadded++] = o;
	else
		rc = err_set(e, ERR_USAGE, "more than %d optimizers were added", ADDED_MOST);
	pthread_mutex_unlock(&lock);
	return rc;
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
	int n = o->states(o, p->name, p->ndim, p->dim, s);
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
	int rc = param_owned(p, &first) ? o->update(o, p, c, &own, w, e) : 0;
	if (rc < 0)
		return err_prefix(e, "%s of %s", o->name, p->name);
	TRY(param_refresh(p, e));
	return optim_zero_grad(p, e);
}
