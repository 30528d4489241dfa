/* SPDX-License-Identifier: Apache-2.0 */
/* api_block.c - kinds of blocks that a program or a plugin adds: hs_block_register(). They live
 * until the process ends. */
#include "api/api.h"

#include "base/buf.h"
#include "base/mem.h"
#include "file/hash.h"
#include "model/own.h"
#include "tensor/op_host.h"
#include "tensor/op_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)HS_SETTINGS <= (int)OWN_NUMBERS && (int)HS_DIMS == (int)OWN_DIMS &&
		       (int)HS_PARAMS == (int)HOST_OP_PARAMS &&
		       (int)HS_PARAMS == (int)TEXT_OP_PARAMS &&
		       (int)HS_SETTINGS == (int)TEXT_OP_SETTINGS &&
		       (int)HS_PARAMS <= (int)OWN_PARAMS,
	       "the interface has the engine's limits");

struct custom {
	struct own_kind kind; /* first: a block knows its kind */
	hs_kind user;
	struct dev_text kernels; /* text NULL: none */
	char hash[HASH_HEX];
	struct arena text;
};

static const struct custom *custom_of(const struct own_block *b)
{
	return (const struct custom *)(const void *)b->kind;
}

/* ---- as a kind of the engine ---- */

static void widen(const struct own_shape *s, int64_t dim[OWN_DIMS])
{
	for (int i = 0; i < OWN_DIMS; i++)
		dim[i] = i < s->ndim ? s->dim[i] : 1;
}

static int list(const struct own_block *b, hs_kind_param p[HS_PARAMS])
{
	const struct custom *c = custom_of(b);
	int64_t in[OWN_DIMS];
	widen(&b->in, in);
	memset(p, 0, HS_PARAMS * sizeof *p);
	return c->user.params ? c->user.params(b->v, b->in.ndim, in, p) : 0;
}

static bool is_param(const hs_kind_param *p)
{
	return p->name && p->name[0] && strlen(p->name) < 32 && !strchr(p->name, '.') &&
	       p->rows > 0 && p->rows <= 1 << 24 && p->columns >= 0 && p->columns <= 1 << 24 &&
	       p->first >= FIRST_ZERO && p->first <= FIRST_NORMAL;
}

static const char *fit(struct own_block *b)
{
	const struct custom *c = custom_of(b);
	hs_kind_param p[HS_PARAMS];
	int64_t in[OWN_DIMS], out[OWN_DIMS] = { 0 };
	int ndim = 0;
	widen(&b->in, in);
	if (c->user.shape(b->v, b->in.ndim, in, &ndim, out))
		return "that its shape function takes";
	if (ndim < 1 || ndim > OWN_DIMS)
		return "of which its shape function makes 1 to 3 numbers";
	b->out.ndim = ndim;
	for (int i = 0; i < ndim; i++)
		b->out.dim[i] = out[i] > 0 && out[i] <= 1 << 24 ? (int32_t)out[i] : 0;
	const int n = list(b, p);
	for (int i = 0; i < n && i < HS_PARAMS; i++)
		if (!is_param(&p[i]))
			return "for which its parameters have names and shapes";
	return n >= 0 && n <= HS_PARAMS ? NULL : "for which it has 0 to 5 parameters";
}

static size_t params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	hs_kind_param u[HS_PARAMS];
	const int n = list(b, u);
	for (int i = 0; i < n; i++)
		p[i] = (struct own_param){ .name = u[i].name,
					   .ndim = u[i].columns ? 2 : 1,
					   .dim = { u[i].rows, u[i].columns ? u[i].columns : 1 },
					   .first = (enum own_first)u[i].first,
					   .fan = u[i].columns };
	return n > 0 ? (size_t)n : 0;
}

/* One run of a block; in memory of the tape. */
struct call {
	struct host_op op;
	struct text_op kernels;
	const struct own_block *b;
};

static int pass(void *ctx, const struct host_pass *h, bool back)
{
	const struct call *k = ctx;
	const hs_kind *user = &custom_of(k->b)->user;
	hs_pass p = { .set = k->b->v,
		      .rows = (uint64_t)h->rows,
		      .in = (uint64_t)h->in,
		      .out = (uint64_t)h->out,
		      .x = h->x,
		      .y = h->y,
		      .param = h->param,
		      .dy = h->dy,
		      .dx = h->dx,
		      .dparam = h->dparam,
		      .ndim = k->b->in.ndim };
	widen(&k->b->in, p.dim);
	return back ? user->backward(&p) : user->forward(&p);
}

static int pass_forward(void *ctx, const struct host_pass *h) { return pass(ctx, h, false); }
static int pass_backward(void *ctx, const struct host_pass *h) { return pass(ctx, h, true); }

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	struct own_param list_of[OWN_PARAMS];
	struct param *p[HOST_OP_PARAMS] = { NULL };
	const size_t n = params(b, list_of);
	struct call *k = arena_alloc(r->t->host, sizeof *k);
	if (!k)
		return err_nomem(e, sizeof *k, b->kind->name);
	for (size_t i = 0; i < n; i++)
		p[i] = own_take(r);
	const struct custom *c = custom_of(b);
	*k = (struct call){ .op = { b->kind->name, pass_forward, pass_backward, k },
			    .kernels = { &c->kernels, c->user.lanes == HS_ROWS, b->v },
			    .b = b };
	/* a processor runs the functions, where there are any */
	if (c->kernels.text && (!c->user.forward || strcmp(r->t->dev->be->name, "cpu")))
		return op_text_apply(r->t, &k->kernels, x, p, own_count(&b->out), y_p, e);
	return op_host_apply(r->t, &k->op, x, p, own_count(&b->out), y_p, e);
}

/* ---- adding ---- */

static bool is_name(const char *s)
{
	size_t n = 0;
	for (; s && s[n]; n++)
		if (!isalnum((unsigned char)s[n]) && s[n] != '_')
			return false;
	return n > 0 && n < OWN_NAME;
}

static int check(const hs_kind *k, struct err *e)
{
	if (!is_name(k->name))
		return err_set(e, ERR_USAGE,
			       "a kind of block needs a name of letters, digits and '_', shorter "
			       "than %d",
			       OWN_NAME);
	if (!k->shape || !k->version || !k->forward != !k->backward || (!k->forward && !k->text))
		return err_set(e, ERR_USAGE,
			       "the kind '%s' needs version, shape, and forward and backward, or a "
			       "text",
			       k->name);
	if (k->lanes != HS_LANES && k->lanes != HS_ROWS)
		return err_set(e, ERR_USAGE, "`lanes` of the kind '%s' is HS_LANES or HS_ROWS",
			       k->name);
	for (int i = 0; i < HS_SETTINGS && k->setting[i].name; i++)
		if (!is_name(k->setting[i].name))
			return err_set(e, ERR_USAGE, "setting %d of the kind '%s' has no name",
				       i + 1, k->name);
	return 0;
}

/* The text, with the words of messages about it; what it is goes into the hash. */
static bool take_text(struct custom *c, const hs_kind *k, struct buf *what)
{
	char name[OWN_NAME + 16];
	snprintf(name, sizeof name, "the block '%s'", k->name);
	c->kernels = (struct dev_text){ .name = arena_strdup(&c->text, name),
					.text = arena_strdup(&c->text, k->text),
					.params = k->params != NULL };
	buf_addf(what, "%d %d\n", k->lanes, k->params != NULL);
	buf_adds(what, k->text);
	return c->kernels.name && c->kernels.text;
}

/* Copies the texts, and makes the hash of what the kind is. */
static int fill(struct custom *c, const hs_kind *k, struct err *e)
{
	struct buf what = BUF_INIT;
	buf_addf(&what, "%s\n%.1000s\n", k->name, k->version);
	c->user = *k;
	c->kind = (struct own_kind){ .name = arena_strdup(&c->text, k->name),
				     .help = arena_strdup(&c->text, k->help ? k->help : ""),
				     .hash = c->hash,
				     .fit = fit,
				     .params = params,
				     .forward = forward };
	bool ok = c->kind.name && c->kind.help;
	for (int i = 0; i < HS_SETTINGS && k->setting[i].name; i++) {
		const hs_setting *s = &k->setting[i];
		c->kind.key[i] = (struct own_key){ .name = arena_strdup(&c->text, s->name),
						   .least = s->least,
						   .most = s->most,
						   .def = s->value };
		ok = ok && c->kind.key[i].name;
		buf_addf(&what, "%s %.17g %.17g %.17g\n", s->name, s->least, s->most, s->value);
	}
	if (k->text)
		ok = take_text(c, k, &what) && ok;
	if (!what.failed)
		hash_bytes(what.p, what.n, c->hash);
	ok = ok && !what.failed;
	buf_release(&what);
	return ok ? 0 : err_nomem(e, sizeof *c, k->name);
}

int hs_block_register(const hs_kind *kind, hs_error *out)
{
	struct err e = { 0 };
	hs_kind k;
	/* the struct of version 1 ended before `text` */
	if (!api_take(&k, sizeof k, kind, offsetof(hs_kind, text)))
		return api_refuse(out, ERR_USAGE, "the kind needs `size`: use hs_kind_init()");
	if (check(&k, &e) < 0)
		return api_error(&e, out);
	struct custom *c = mem_zalloc(sizeof *c);
	int rc = c ? fill(c, &k, &e) : err_nomem(&e, sizeof *c, k.name);
	const struct own_kind *there = rc < 0 ? NULL : own_kind_find(k.name, strlen(k.name));
	const bool again = there && there->hash && !strcmp(there->hash, c->hash);
	if (rc >= 0 && !again)
		rc = own_kind_register(&c->kind, &e);
	if ((rc < 0 || again) && c) {
		arena_release(&c->text);
		mem_free(c);
	}
	return rc < 0 ? api_error(&e, out) : 0;
}
