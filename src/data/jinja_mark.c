/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_mark.c - see jinja_run.h: what an execution keeps to go on from. Values never change; what
 * does is the root's frame (only outside of loops) and namespaces. */
#include "data/jinja_run.h"

#include "base/mem.h"

#include <string.h>

/* Members of all namespaces at one mark, and at all of them; with more there are no marks. */
enum { SPACES_MAX = 1024, MARKED_MAX = 1 << 19 };

/* A frame or a namespace: its arrays and what was in them. */
struct jsaved {
	struct jsaved *next;
	struct jdict *d;
	struct jdict was;
	struct jframe frame;
	struct jval *key, *v;
	const char **name;
};

int jframe_new(struct jx *x, struct jframe *up, struct jframe **f_p)
{
	*f_p = jx_alloc(x, sizeof **f_p);
	if (!*f_p)
		return x->e->code;
	(*f_p)->up = up;
	return 0;
}

int jframe_set(struct jx *x, struct jframe *f, const char *name, struct jval v)
{
	size_t i = 0;
	while (i < f->n && strcmp(f->name[i], name))
		i++;
	TRY(jx_tick(x, i / 4));
	if (i == f->cap) {
		size_t cap = i ? 2 * i : 4;
		const char **names = jx_alloc(x, cap * sizeof *names);
		struct jval *values = names ? jx_alloc(x, cap * sizeof *values) : NULL;
		if (!values)
			return x->e->code;
		for (size_t k = 0; k < i; k++) {
			names[k] = f->name[k];
			values[k] = f->v[k];
		}
		f->name = names;
		f->v = values;
		f->cap = cap;
	}
	f->name[i] = name;
	f->v[i] = v;
	f->n += i == f->n;
	return 0;
}

static void *copy(struct jmarks *m, const void *p, size_t bytes)
{
	void *to = arena_alloc(&m->mem, bytes + 1);
	if (to && bytes)
		memcpy(to, p, bytes);
	return to;
}

static struct jsaved *save_space(struct jmarks *m, struct jdict *d)
{
	struct jsaved *s = arena_alloc(&m->mem, sizeof *s);
	if (!s)
		return NULL;
	s->d = d;
	s->was = *d;
	s->key = copy(m, d->key, d->n * sizeof *d->key);
	s->v = copy(m, d->v, d->n * sizeof *d->v);
	return s->key && s->v ? s : NULL;
}

static struct jsaved *save_frame(struct jmarks *m, const struct jframe *f)
{
	struct jsaved *s = arena_alloc(&m->mem, sizeof *s);
	if (!s)
		return NULL;
	s->frame = *f;
	s->name = copy(m, f->name, f->n * sizeof *f->name);
	s->v = copy(m, f->v, f->n * sizeof *f->v);
	return s->name && s->v ? s : NULL;
}

static int no_memory(const struct jrun *r)
{
	return err_nomem(r->x.e, sizeof(struct jmark), "a chat template's marks");
}

int jmarks_loop(struct jrun *r, const struct jnode *n, size_t first, struct jmark_loop **l_p)
{
	struct jmark_loop *l = arena_alloc(&r->marks->mem, sizeof *l);
	struct jsaved *s = save_frame(r->marks, r->root);
	if (!l || !s)
		return no_memory(r);
	*l = (struct jmark_loop){ .n = n, .first = first, .depth = r->x.depth, .root = s };
	const struct jpath **to = &l->path;
	for (const struct jpath *p = r->path; p; p = p->up) {
		struct jpath *own = copy(r->marks, p, sizeof *p);
		if (!own)
			return no_memory(r);
		*to = own;
		to = &own->up;
	}
	*l_p = l;
	return 0;
}

int jmarks_add(struct jrun *r, const struct jmark_loop *l, size_t i)
{
	struct jmarks *m = r->marks;
	struct jmark k = { .need = r->need,
			   .i = i,
			   .at = r->out->t.text.n,
			   .used = r->x.used,
			   .built = r->x.built,
			   .steps = r->x.steps,
			   .loop = l,
			   .spaces = r->x.spaces };
	size_t members = 0;
	if (r->x.odd)
		r->need = SIZE_MAX;
	if (r->need == SIZE_MAX)
		return 0;
	for (struct jdict *d = r->x.spaces; d; d = d->space) {
		m->members += 1 + d->n;
		if ((members += 1 + d->n) > SPACES_MAX || m->members > MARKED_MAX) {
			r->need = SIZE_MAX;
			return 0;
		}
		struct jsaved *s = save_space(m, d);
		if (!s)
			return no_memory(r);
		s->next = k.saved;
		k.saved = s;
	}
	if (!mem_grow(&m->mark, &m->cap, m->n + 1, sizeof *m->mark))
		return no_memory(r);
	m->mark[m->n++] = k;
	return 0;
}

const struct jmark *jmarks_find(const struct jmarks *m, size_t n)
{
	size_t lo = 0, hi = m->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->mark[mid].need <= n)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &m->mark[lo - 1] : NULL;
}

void jmarks_back(struct jrun *r, const struct jmark *m)
{
	const struct jsaved *root = m->loop->root;
	struct jframe *f = r->root;
	*f = root->frame;
	if (f->n) {
		memcpy(f->name, root->name, f->n * sizeof *f->name);
		memcpy(f->v, root->v, f->n * sizeof *f->v);
	}
	for (const struct jsaved *s = m->saved; s; s = s->next) {
		*s->d = s->was;
		if (s->was.n) {
			memcpy(s->d->key, s->key, s->was.n * sizeof *s->key);
			memcpy(s->d->v, s->v, s->was.n * sizeof *s->v);
		}
	}
	r->x.spaces = m->spaces;
	r->x.used = m->used;
	r->x.built = m->built;
	r->x.steps = m->steps;
	r->x.depth = m->loop->depth;
}

void jmarks_release(struct jmarks *m)
{
	arena_release(&m->mem);
	mem_free(m->mark);
	*m = (struct jmarks){ .mem = ARENA_INIT };
}
