/* SPDX-License-Identifier: Apache-2.0 */
/* api_optimizer.c - optimizers that a program or a plugin adds: hs_optimizer_register(). They live
 * until the process ends. The engine's name of one is its name and a hash of what it is, so that
 * workers and checkpoints never mistake one version for another. */
#include "api/api.h"

#include "base/mem.h"
#include "file/hash.h"
#include "optim/optim.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)HS_CUT_BLOCK == (int)CUT_BLOCK && (int)HS_CUT_NONE == (int)CUT_NONE &&
		       (int)HS_STATES == (int)PARAM_STATES,
	       "the interface has the engine's cuts and limits");

enum { NAME_MOST = 20, MARK = 8 /* digits of the hash in a name */ };

struct custom {
	struct optimizer o; /* first: an update knows its optimizer */
	hs_optimizer user;
	char name[OPTIM_NAME];
	const char *called[2]; /* as a configuration names it */
	struct arena text;
};

static const struct custom *custom_of(const struct optimizer *o)
{
	return (const struct custom *)(const void *)o;
}

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	const hs_optimizer *user = &custom_of(o)->user;
	(void)name;
	for (int i = 0; i < user->states; i++)
		s[i] = optim_state_f32(user->state[i],
				       (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1)));
	return user->states;
}

/* The arrays of an update: value, gradient, states. */
enum { ARRAYS = 2 + PARAM_STATES };

static void *host(struct dev_ref r) { return (char *)r.buf->host + r.off; }

static int call(const struct custom *c, hs_update *u, float *const v[ARRAYS], struct err *e)
{
	u->value = v[0];
	u->grad = v[1];
	u->state = v + 2;
	const int rc = c->user.update(u);
	return rc ? err_set(e, ERR_INPUT, "the update function failed with %d", rc) : 0;
}

/* On another device: there and back. */
static int call_away(const struct custom *c, hs_update *u, const struct dev_ref at[ARRAYS],
		     struct err *e)
{
	const size_t bytes = (size_t)u->count * sizeof(float);
	const int n = 2 + c->user.states;
	float *v[ARRAYS] = { NULL };
	int rc = 0;
	for (int i = 0; rc >= 0 && i < n; i++) {
		v[i] = mem_alloc(bytes);
		rc = v[i] ? dev_download(v[i], at[i], bytes, e) : err_nomem(e, bytes, "an update");
	}
	if (rc >= 0)
		rc = call(c, u, v, e);
	for (int i = 0; rc >= 0 && i < n; i++)
		if (i != 1)
			rc = dev_upload(at[i], v[i], bytes, e);
	for (int i = 0; i < n; i++)
		mem_free(v[i]);
	return rc;
}

static int update(const struct optimizer *o, struct param *p, const struct optim_config *k,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	const struct custom *c = custom_of(o);
	int64_t first;
	const int64_t count = param_owned(p, &first);
	hs_update u = { .name = p->name,
			.ndim = p->ndim,
			.dim = { p->dim[0], p->ndim == 2 ? p->dim[1] : 1 },
			.first = (uint64_t)first,
			.count = (uint64_t)count,
			.step = s->step,
			.learning_rate = s->lr,
			.scale = s->scale,
			.weight_decay = p->decay ? (float)k->weight_decay : 0,
			.beta1 = (float)k->beta1,
			.beta2 = (float)k->beta2,
			.epsilon = (float)k->epsilon,
			.momentum = (float)k->momentum };
	struct dev_ref at[ARRAYS] = { param_value(p), param_grad(p) };
	float *v[ARRAYS] = { NULL };
	(void)w;
	for (int i = 0; i < c->user.states; i++)
		at[2 + i] = DEV_REF(p->state[i], 0);
	if (strcmp(p->value->dev->be->name, "cpu"))
		return call_away(c, &u, at, e);
	TRY(dev_sync(p->value->dev, e));
	for (int i = 0; i < 2 + c->user.states; i++)
		v[i] = host(at[i]);
	return call(c, &u, v, e);
}

/* ---- adding ---- */

static bool is_name(const char *s, size_t most)
{
	size_t n = 0;
	for (; s && s[n]; n++)
		if (!isalnum((unsigned char)s[n]) && s[n] != '_')
			return false;
	return n > 0 && n < most;
}

static int check(const hs_optimizer *o, struct err *e)
{
	if (!is_name(o->name, NAME_MOST))
		return err_set(e, ERR_USAGE,
			       "an optimizer needs a name of letters, digits and '_', shorter "
			       "than %d",
			       NAME_MOST);
	if (!o->update || !o->version)
		return err_set(e, ERR_USAGE, "the optimizer '%s' needs version and update",
			       o->name);
	if (o->cut < HS_CUT_BLOCK || o->cut > HS_CUT_NONE || o->states < 0 || o->states > HS_STATES)
		return err_set(e, ERR_USAGE,
			       "the optimizer '%s' needs a cut (HS_CUT_BLOCK, ...) and at most %d "
			       "states",
			       o->name, HS_STATES);
	for (int i = 0; i < o->states; i++) {
		if (!is_name(o->state[i], 32))
			return err_set(e, ERR_USAGE, "state %d of the optimizer '%s' has no name",
				       i + 1, o->name);
		for (int k = 0; k < i; k++)
			if (!strcmp(o->state[i], o->state[k]))
				return err_set(e, ERR_USAGE,
					       "the optimizer '%s' has two states named '%s'",
					       o->name, o->state[i]);
	}
	return 0;
}

static const char *const keys[] = { "adam_beta1", "adam_beta2", "adam_epsilon", "momentum", NULL };

static int fill(struct custom *c, const hs_optimizer *u, struct err *e)
{
	char text[2048], hash[HASH_HEX];
	int at = snprintf(text, sizeof text, "%s\n%.1000s\n%d\n", u->name, u->version, u->cut);
	c->user = *u;
	for (int i = 0; i < u->states; i++) {
		c->user.state[i] = arena_strdup(&c->text, u->state[i]);
		at += snprintf(text + at, sizeof text - (size_t)at, "%s\n", u->state[i]);
	}
	hash_bytes(text, (size_t)at, hash);
	snprintf(c->name, sizeof c->name, "%s-%.*s", u->name, MARK, hash);
	c->called[0] = arena_strdup(&c->text, u->name);
	c->o = (struct optimizer){ .name = c->name,
				   .help = arena_strdup(&c->text, u->help ? u->help : ""),
				   .aliases = c->called,
				   .keys = keys,
				   .cut = (enum optim_cut)u->cut,
				   .states = states,
				   .update = update };
	bool ok = c->called[0] && c->o.help;
	for (int i = 0; i < u->states; i++)
		ok = ok && c->user.state[i];
	return ok ? 0 : err_nomem(e, sizeof *c, u->name);
}

int hs_optimizer_register(const hs_optimizer *optimizer, hs_error *out)
{
	struct err e = { 0 };
	hs_optimizer u;
	if (!api_take(&u, sizeof u, optimizer, sizeof u))
		return api_refuse(out, ERR_USAGE,
				  "the optimizer needs `size`: use hs_optimizer_init()");
	if (check(&u, &e) < 0)
		return api_error(&e, out);
	struct custom *c = mem_zalloc(sizeof *c);
	int rc = c ? fill(c, &u, &e) : err_nomem(&e, sizeof *c, u.name);
	const bool again = rc >= 0 && optimizer_find(c->name);
	if (rc >= 0 && !again)
		rc = optimizer_register(&c->o, &e);
	if ((rc < 0 || again) && c) {
		arena_release(&c->text);
		mem_free(c);
	}
	return rc < 0 ? api_error(&e, out) : 0;
}
