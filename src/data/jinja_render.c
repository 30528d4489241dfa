/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_render.c - see jinja.h: what a template makes of variables, and of the first items of one.
 */
#include "data/jinja_run.h"

#include "base/mem.h"

static int set_var(struct jrun *r, struct jframe *f, const struct jinja_var *var)
{
	struct jval v, item_of, text;
	json_t *part;
	size_t i;
	if (!var->v)
		return 0;
	if (!var->each) {
		TRY(jx_from_json(&r->x, var->v, var->source, &v));
		return jframe_set(&r->x, f, var->name, v);
	}
	TRY(jl_new(&r->x, &v));
	json_array_foreach(var->v, i, part)
	{
		TRY(jx_from_json(&r->x, part, (uint16_t)(var->source + i), &item_of));
		if (var->plain && item_of.k == J_DICT && jd_find(item_of.d, var->plain, &text) &&
		    text.k == J_STR)
			((struct jstr *)text.s)->all = 0;
		TRY(jl_add(&r->x, v.l, item_of));
	}
	if (r->marks) {
		r->turns = *v.l;
		v = (struct jval){ .k = J_TURNS, .i = 0 };
	}
	return jframe_set(&r->x, f, var->name, v);
}

static int run_all(struct jrun *r, const struct jinja *j, const struct jinja_var *var, size_t nvar)
{
	TRY(jframe_new(&r->x, NULL, &r->root));
	for (size_t i = 0; i < nvar; i++)
		TRY(set_var(r, r->root, &var[i]));
	if (r->marks) {
		struct jmark_loop *all;
		TRY(jmarks_loop(r, j->root, 0, &all));
		TRY(jmarks_add(r, all, 0));
	}
	TRY(jrun_exec(r, r->root, j->root));
	return 0;
}

int jinja_render(const struct jinja *j, const struct jinja_var *var, size_t nvar,
		 struct jinja_text *out, struct err *e)
{
	struct js_build b = { .t = *out };
	struct jrun r = { .x = { .mem = ARENA_INIT, .line = 1, .e = e }, .out = &b };
	const int rc = run_all(&r, j, var, nvar);
	*out = b.t;
	out->steps += r.x.steps;
	arena_release(&r.x.mem);
	return rc;
}

/* ---- beginnings ----------------------------------------------------------------------------- */

struct jinja_starts {
	struct jrun r;
	struct js_build out;
	struct jmarks marks;
	size_t items;
};

int jinja_starts_new(const struct jinja *j, const struct jinja_var *var, size_t nvar,
		     struct jinja_starts **s_p, struct err *e)
{
	struct err own = { 0 };
	struct jinja_starts *s = mem_zalloc(sizeof *s);
	if (!s)
		return err_nomem(e, sizeof *s, "a chat template");
	s->out.t.text = (struct buf)BUF_INIT;
	s->marks.mem = (struct arena)ARENA_INIT;
	s->r = (struct jrun){ .x = { .mem = ARENA_INIT, .line = 1, .e = &own },
			      .out = &s->out,
			      .marks = &s->marks };
	const int rc = run_all(&s->r, j, var, nvar);
	s->r.marks = NULL;
	s->r.x.e = NULL;
	s->items = s->r.turns.n;
	if (rc == ERR_NOMEM) {
		*e = own;
		jinja_starts_free(s);
		return rc;
	}
	*s_p = s; /* what the template refuses later, it did not refuse up to the marks */
	return 0;
}

int jinja_starts_text(struct jinja_starts *s, size_t n, size_t *head, struct jinja_text *tail,
		      struct err *e)
{
	struct js_build out = { .t = *tail };
	struct jrun *r = &s->r;
	const struct jmark *m = jmarks_find(&s->marks, n);
	const struct arena mem = r->x.mem;
	if (!m || n > s->items)
		return 0;
	jmarks_back(r, m);
	r->x.mem = (struct arena)ARENA_INIT; /* what is made from here on lives until the end */
	r->x.e = e;
	r->out = &out;
	r->turns.n = n;
	const struct jnode *at = m->loop->n;
	int rc = at->kind == JN_FOR ? jrun_turns(r, at, m->loop->first, m->i)
				    : jrun_exec(r, r->root, at);
	for (const struct jpath *p = m->loop->path; p && rc >= 0; p = p->up)
		for (size_t i = p->i + 1; i < p->seq->n && rc >= 0; i++)
			rc = jrun_exec(r, r->root, p->seq->kid[i]);
	arena_release(&r->x.mem);
	r->x.mem = mem;
	*tail = out.t;
	tail->steps += r->x.steps - m->steps;
	*head = m->at;
	return rc < 0 ? rc : 1;
}

const struct buf *jinja_starts_whole(const struct jinja_starts *s) { return &s->out.t.text; }

void jinja_starts_free(struct jinja_starts *s)
{
	if (!s)
		return;
	arena_release(&s->r.x.mem);
	js_drop(&s->out);
	jmarks_release(&s->marks);
	mem_free(s);
}
