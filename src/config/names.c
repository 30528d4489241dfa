/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - see names.h. */
#include "config/names.h"

#include "base/mem.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "prefer/prefer.h"
#include "sched/reduce.h"
#include "sched/sched.h"

static const char *planner(size_t i, const char **help_p)
{
	const struct planner *p = planner_at(i);
	return p ? *help_p = p->help, p->name : NULL;
}

static const char *schedule(size_t i, const char **help_p)
{
	if (!i) {
		*help_p = "the one that the planner finds fastest";
		return "auto";
	}
	const struct sched *s = sched_at(i - 1);
	return s ? *help_p = s->help, s->name : NULL;
}

static const char *reduce(size_t i, const char **help_p)
{
	if (!i) {
		*help_p = "direct; with reduce_order: fast, mpi over MPI and ring for groups of "
			  "more than 4";
		return "auto";
	}
	const struct reducer *r = reducer_at(i - 1);
	return r ? *help_p = r->help, r->name : NULL;
}

/* Not from net/transport.def: one of its rows is for threads of one process, and mpi stays a name
 * where the program was built without it. */
static const char *transport(size_t i, const char **help_p)
{
	static const char *const all[][2] = {
		{ "auto", "mpi, shm or tls, as processes were started and where they are" },
		{ "tls", "TCP with TLS 1.3" },
		{ "shm", "shared memory, between processes of one machine and user" },
		{ "mpi", "under mpirun or srun" },
	};
	return i < ARRAY_LEN(all) ? *help_p = all[i][1], all[i][0] : NULL;
}

static const char *optimizer(size_t i, const char **help_p)
{
	const struct optimizer *o = optimizer_at(i);
	return o ? *help_p = o->help, o->name : NULL;
}

static const char *const *optimizer_aliases(size_t i) { return optimizer_at(i)->aliases; }
static const char *const *optimizer_keys(size_t i) { return optimizer_at(i)->keys; }

static const char *curve(size_t i, const char **help_p)
{
	const struct lr_curve *c = lr_curve_at(i);
	return c ? *help_p = c->help, c->name : NULL;
}

static const char *const *curve_aliases(size_t i) { return lr_curve_at(i)->aliases; }
static const char *const *curve_keys(size_t i) { return lr_curve_at(i)->keys; }

static const char *preference(size_t i, const char **help_p)
{
	if (!i) {
		*help_p = "no preferences: records of text and answers";
		return "none";
	}
	const struct prefer *p = prefer_at(i - 1);
	return p ? *help_p = p->help, p->name : NULL;
}

static const char *const *preference_keys(size_t i) { return i ? prefer_at(i - 1)->keys : NULL; }

static const char *family(size_t i, const char **help_p)
{
	const struct model_family *f = model_family_at(i);
	return f ? *help_p = f->help, f->name : NULL;
}

const struct opt_names names_planner = { .at = planner };
const struct opt_names names_schedule = { .at = schedule };
const struct opt_names names_reduce = { .at = reduce };
const struct opt_names names_transport = { .at = transport };
const struct opt_names names_optimizer = { .at = optimizer,
					   .aliases = optimizer_aliases,
					   .keys = optimizer_keys };
const struct opt_names names_curve = { .at = curve, .aliases = curve_aliases, .keys = curve_keys };
const struct opt_names names_prefer = { .at = preference, .keys = preference_keys };
const struct opt_names names_family = { .at = family };
