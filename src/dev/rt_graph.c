/* SPDX-License-Identifier: Apache-2.0 */
/* rt_graph.c - see rt_graph.h. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
	RELAXED = 2,     /* mode of a capture: this thread may ask for events meanwhile */
	LEAST = 2,       /* works of a graph */
	STRETCHES = 512, /* that are remembered */
	TRIES = 8        /* passes that differ before a stretch is given up */
};

struct run { /* works [first, end) that are the same each time */
	size_t first, end;
	void *graph; /* executable; NULL: not made yet */
	bool failed; /* the driver makes none of it */
};

enum { VARIES = 1, APART = 2 }; /* APART: the host waited, or may have, in front of it */

struct stretch {
	uint64_t key, used;
	struct rt_work *work;
	uint8_t *how; /* of each work */
	size_t n, cap, how_cap;
	struct run *run;
	size_t nruns, runs_cap;
	int tries;  /* passes that differed */
	bool ready; /* runs are known */
};

struct rt_graphs {
	struct stretch stretch[STRETCHES];
	size_t n;
	uint64_t passes;
	void *stream;          /* what is captured goes there */
	struct rt_ahead ahead; /* and what runs beside it */
	bool off;
	/* the stretch under way; NULL: none */
	struct stretch *now;
	/* works so far; the last `held` of them are not with the stream yet; `owed` is the work of
	 * those for which rt_queued() has not been called yet */
	size_t at, held;
	double owed;
	bool changed; /* this pass differs: its rest is noted anew */
	bool apart;   /* the next work is */
};

/* ---- the driver ---- */

static int kernel(struct rt *c, const struct rt_work *w, void *stream)
{
	void *params[2 * GPU_ARGS];
	for (int i = 0; i < w->same.n; i++)
		params[i] = (void *)(uintptr_t)&w->same.value[i];
	return c->f->launch(w->same.function, (unsigned)w->same.groups, 1, 1, GPU_LANES, 1, 1, 0,
			    stream, params, NULL);
}

static int kernel_ahead(struct rt *c, const struct rt_work *w, const struct rt_ahead *h,
			void *stream)
{
	int code = c->f->stream_wait(h->stream, h->fork, 0);
	if (code == RT_OK)
		code = kernel(c, w, h->stream);
	if (code == RT_OK)
		code = c->f->event_record(h->join, h->stream);
	return code == RT_OK ? c->f->stream_wait(stream, h->join, 0) : code;
}

/* A code of the driver or, for products, 1 - done - or 0 and below as rt_blas.gemm. */
static int start(struct rt *c, const struct rt_work *w, void *stream, const struct rt_ahead *h,
		 int *code_p, struct err *e)
{
	const uint64_t *v = w->same.value;
	*code_p = w->fork ? c->f->event_record(h->fork, stream) : RT_OK;
	if (*code_p != RT_OK)
		return 1;
	if (w->same.kind == RT_KERNEL) {
		*code_p = kernel(c, w, stream);
	} else if (w->same.kind == RT_AHEAD) {
		*code_p = kernel_ahead(c, w, h, stream);
	} else if (w->same.kind == RT_PRODUCT) {
		return c->blas->gemm(c->blas, c, &w->product, stream, e);
	} else if (w->same.kind == RT_COPY) {
		*code_p = c->f->copy(v[0], v[1], v[2], stream);
	} else {
		*code_p = (v[0] | v[1]) % 4 == 0 ? c->f->fill32(v[0], 0, v[1] / 4, stream)
						 : c->f->fill8(v[0], 0, v[1], stream);
	}
	return 1;
}

/* 1: done; 0: a product that the library does not do; or an error */
static int at_once(struct rt *c, const struct rt_work *w, struct err *e)
{
	int code;
	c->doing = w->name;
	const int done = start(c, w, c->compute, &c->ahead, &code, e);
	if (done <= 0)
		return done;
	const bool launch = w->same.kind == RT_KERNEL || w->same.kind == RT_AHEAD;
	TRY(rt_failed(c, code, launch ? "starting a kernel" : w->name, e));
	return 1;
}

static bool can(const struct rt *c)
{
	const struct rt_functions *f = c->f;
	return f->capture_begin && f->capture_end && f->graph_make && f->graph_launch &&
	       f->graph_free && f->made_free;
}

static bool wanted(const struct rt *c)
{
	const char *asked = getenv("HS_GRAPHS");
	return asked && asked[0] ? strcmp(asked, "0") != 0 : c->v->graphs(c->v->lib->version);
}

static bool capture_streams(struct rt *c)
{
	struct rt_graphs *g = c->graphs;
	return (g->stream || c->f->stream(&g->stream, 1) == RT_OK) &&
	       (g->ahead.join || rt_ahead_make(c->f, &g->ahead) == RT_OK);
}

static bool products_on(struct rt *c, void *stream)
{
	return !c->blas || c->blas->use(c->blas, stream, stream != c->compute);
}

/* A graph of works, or NULL: the driver makes none. */
static void *captured(struct rt *c, const struct stretch *s, const struct run *r)
{
	struct rt_graphs *g = c->graphs;
	struct err ignored = { 0 };
	void *made = NULL;
	if (!capture_streams(c) || !products_on(c, g->stream) ||
	    c->f->capture_begin(g->stream, RELAXED) != RT_OK)
		return NULL;
	bool ok = c->f->event_record(g->ahead.fork, g->stream) == RT_OK;
	for (size_t i = r->first; i < r->end && ok; i++) {
		int code;
		ok = start(c, &s->work[i], g->stream, &g->ahead, &code, &ignored) == 1 &&
		     code == RT_OK;
	}
	if (c->f->capture_end(g->stream, &made) != RT_OK) /* HIP leaves any value in `made` */
		return NULL;
	if (!ok && made)
		c->f->made_free(made);
	return ok ? made : NULL;
}

static void drop_streams(struct rt *c)
{
	struct rt_graphs *g = c->graphs;
	rt_ahead_free(c->f, &g->ahead);
	if (g->stream)
		c->f->stream_destroy(g->stream);
	g->stream = NULL;
}

/* The graph of a run that can be launched, or false. */
static bool capture(struct rt *c, const struct stretch *s, struct run *r)
{
	void *made = captured(c, s, r);
	products_on(c, c->compute);
	if (!made) /* with HIP a capture that fails leaves its streams captured for ever */
		drop_streams(c);
	if (!made || c->f->graph_make(&r->graph, made, 0) != RT_OK)
		r->graph = NULL;
	if (made)
		c->f->made_free(made);
	return r->graph != NULL;
}

/* ---- runs ---- */

/* Older HIP frees what a graph that runs still reads; an error shows again. */
static void free_graph(struct rt *c, struct run *r)
{
	struct err ignored = { 0 };
	if (r->graph && c->v->graph_must_end && c->finished != c->launched &&
	    c->f->event_record(c->compute_event, c->compute) == RT_OK &&
	    rt_wait(c, c->compute_event, &ignored) == 0)
		c->finished = c->launched;
	if (r->graph && !c->lost)
		c->f->graph_free(r->graph);
	r->graph = NULL;
}

static void forget_runs(struct rt *c, struct stretch *s)
{
	for (size_t i = 0; i < s->nruns; i++)
		free_graph(c, &s->run[i]);
	s->nruns = 0;
	s->ready = false;
}

/* false: no memory, so there are no graphs */
static bool find_runs(struct rt *c, struct stretch *s)
{
	forget_runs(c, s);
	for (size_t i = 0; i < s->n;) {
		const size_t first = i++;
		if (s->how[first] & VARIES)
			continue;
		while (i < s->n && !s->how[i])
			i++;
		if (i - first < LEAST)
			continue;
		if (!mem_grow(&s->run, &s->runs_cap, s->nruns + 1, sizeof *s->run))
			return false;
		s->run[s->nruns++] = (struct run){ .first = first, .end = i };
	}
	s->ready = true;
	return true;
}

static struct run *run_of(const struct stretch *s, size_t at)
{
	for (size_t i = 0; i < s->nruns; i++)
		if (at >= s->run[i].first && at < s->run[i].end)
			return &s->run[i];
	return NULL;
}

static double flops_of(const struct stretch *s, size_t first, size_t end)
{
	double sum = 0;
	for (size_t i = first; i < end; i++)
		sum += s->work[i].flops;
	return sum;
}

/* What is held goes to the stream, one by one. */
static int let_go(struct rt *c, struct err *e)
{
	struct rt_graphs *g = c->graphs;
	for (; g->held; g->held--) {
		const struct rt_work *w = &g->now->work[g->at - g->held];
		const int done = at_once(c, w, e);
		if (done < 0)
			return done;
		if (!done)
			return err_set(e, ERR_INTERNAL, "%s: a product is refused that was done",
				       c->label);
		g->owed += w->flops;
	}
	return 0;
}

/* Buffers that works name count as used by the work number `launched` + 1: one number for all that
 * have been held, and what follows in the same call. */
static int number(struct rt *c, double flops, struct err *e)
{
	struct rt_graphs *g = c->graphs;
	if (g) {
		flops += g->owed;
		g->owed = 0;
	}
	return rt_queued(c, flops, e);
}

int rt_flush(struct rt *c, struct err *e)
{
	struct rt_graphs *g = c->graphs;
	if (!g || !g->now)
		return 0;
	g->apart = true;
	if (!g->held)
		return 0;
	forget_runs(c, g->now);
	g->now->tries++;
	TRY(let_go(c, e));
	return number(c, 0, e);
}

/* All works of the run are held: the graph starts, or they do one by one. */
static int start_run(struct rt *c, struct run *r, struct err *e)
{
	struct rt_graphs *g = c->graphs;
	struct stretch *s = g->now;
	int code = RT_OK;
	if (!r->graph && !r->failed && !capture(c, s, r)) {
		log_debug("%s: the driver makes no graph of %zu launches", c->label,
			  r->end - r->first);
		r->failed = true;
	}
	if (r->graph) {
		c->doing = s->work[r->end - 1].name;
		code = c->f->graph_launch(r->graph, c->compute);
	}
	if (r->graph && code == RT_OUT_OF_MEMORY) {
		free_graph(c, r);
		r->failed = true;
	}
	if (!r->graph) {
		TRY(let_go(c, e));
		return number(c, 0, e);
	}
	TRY(rt_failed(c, code, "starting a graph", e));
	/* forks inside it are none for what comes now: it has one behind it */
	TRY(rt_failed(c, c->f->event_record(c->ahead.fork, c->compute), "queueing", e));
	g->held = 0;
	c->replayed += r->end - r->first;
	return number(c, flops_of(s, r->first, r->end), e);
}

/* ---- a stretch ---- */

static bool alike(const struct rt_work *a, const struct rt_work *b)
{
	return a->same.kind == b->same.kind && a->same.function == b->same.function &&
	       a->same.groups == b->same.groups && a->same.n == b->same.n;
}

static bool equal(const struct rt_work *a, const struct rt_work *b)
{
	return alike(a, b) &&
	       !memcmp(a->same.value, b->same.value, (size_t)a->same.n * sizeof *a->same.value);
}

/* Notes a work; false: no memory for it, so this stretch is not remembered. */
static bool note(struct stretch *s, size_t at, const struct rt_work *w)
{
	if (!mem_grow(&s->work, &s->cap, at + 1, sizeof *s->work) ||
	    !mem_grow(&s->how, &s->how_cap, at + 1, sizeof *s->how))
		return false;
	s->work[at] = *w;
	s->how[at] = 0;
	s->n = at + 1;
	return true;
}

/* A work that has gone to the stream, against the note. */
static void compare(struct rt *c, const struct rt_work *w)
{
	struct rt_graphs *g = c->graphs;
	struct stretch *s = g->now;
	const size_t at = g->at++;
	if (!g->changed && at < s->n && alike(&s->work[at], w)) {
		if (!equal(&s->work[at], w))
			s->how[at] |= VARIES;
		s->work[at] = *w;
	} else {
		if (!g->changed)
			forget_runs(c, s);
		s->tries += !g->changed;
		g->changed = true;
		if (!note(s, at, w)) {
			s->n = 0;
			g->now = NULL;
			return;
		}
	}
	if (g->apart)
		s->how[at] |= APART;
	g->apart = false;
}

static int give(struct rt *c, const struct rt_work *w, struct err *e)
{
	const int done = at_once(c, w, e);
	if (done <= 0)
		return done;
	TRY(number(c, w->flops, e));
	return 1;
}

static int give_work(struct rt *c, const struct rt_work *w, struct err *e)
{
	struct rt_graphs *g = c->graphs;
	struct stretch *s = g ? g->now : NULL;
	struct run *r = s && s->ready && !g->changed ? run_of(s, g->at) : NULL;
	const bool goes_on = r && (g->at == r->first) == !g->held;
	if (goes_on && equal(&s->work[g->at], w)) {
		s->work[g->at] = *w; /* its buffers are those of now */
		g->at++;
		g->held++;
		g->apart = false;
		if (g->at == r->end)
			TRY(start_run(c, r, e));
		return 1;
	}
	if (r) { /* it is not as before: no graphs until this pass has been looked at */
		TRY(let_go(c, e));
		forget_runs(c, s);
		s->tries++;
	}
	const int done = give(c, w, e);
	if (done > 0 && s)
		compare(c, w);
	return done;
}

int rt_give_work(struct rt *c, const struct rt_work *w, struct err *e)
{
	if (w->fork)
		gpu_forked(&c->may, c->order, c->seen);
	const int done = give_work(c, w, e);
	if (done > 0) /* a work that is tried again keeps its number */
		c->order++;
	return done;
}

int rt_fork(struct rt *c, struct err *e)
{
	TRY(rt_failed(c, c->f->event_record(c->ahead.fork, c->compute), "queueing", e));
	gpu_forked(&c->may, c->order, c->seen);
	return 0;
}

static struct stretch *find(struct rt *c, uint64_t key)
{
	struct rt_graphs *g = c->graphs;
	struct stretch *oldest = NULL;
	for (size_t i = 0; i < g->n; i++) {
		struct stretch *s = &g->stretch[i];
		if (s->key == key)
			return s;
		oldest = !oldest || s->used < oldest->used ? s : oldest;
	}
	if (g->n < STRETCHES)
		oldest = &g->stretch[g->n++];
	forget_runs(c, oldest);
	oldest->key = key;
	oldest->n = 0;
	oldest->tries = 0;
	return oldest;
}

int rt_repeat_end(struct dev *d, struct err *e)
{
	struct rt *c = d->priv;
	struct rt_graphs *g = c->graphs;
	struct stretch *s = g ? g->now : NULL;
	int rc = 0;
	if (!s)
		return 0;
	if (g->held) {
		rc = let_go(c, e);
		rc = rc < 0 ? rc : number(c, 0, e);
	}
	if (g->at < s->n && !g->changed) { /* it was shorter than before */
		forget_runs(c, s);
		s->tries++;
		g->changed = true;
	}
	s->n = g->at;
	g->now = NULL;
	g->held = 0;
	if (rc < 0 || g->changed)
		return rc;
	if (s->ready) {
		s->tries = 0;
		return 0;
	}
	/* now it is known which numbers vary; where most do, buffers have moved */
	size_t varies = 0;
	for (size_t i = 0; i < s->n; i++)
		varies += s->how[i] & VARIES;
	if (2 * varies > s->n) {
		for (size_t i = 0; i < s->n; i++)
			s->how[i] &= (uint8_t)~VARIES;
		s->tries++;
	} else if (!find_runs(c, s)) {
		s->tries = TRIES + 1;
	}
	return 0;
}

int rt_repeat_begin(struct dev *d, uint64_t key, struct err *e)
{
	struct rt *c = d->priv;
	TRY(rt_enter(c, e));
	if (!c->graphs) {
		c->graphs = mem_zalloc(sizeof *c->graphs);
		if (!c->graphs)
			return err_nomem(e, sizeof *c->graphs, "graphs");
		c->graphs->off = !can(c) || !wanted(c);
	}
	struct rt_graphs *g = c->graphs;
	TRY(rt_repeat_end(d, e)); /* where an error has ended a stretch */
	if (g->off)
		return 0;
	struct stretch *s = find(c, key);
	s->used = ++g->passes;
	if (s->tries > TRIES)
		return 0;
	g->now = s;
	g->at = g->held = 0;
	g->changed = g->apart = false;
	/* what may run ahead in it then follows from its own work alone */
	return rt_fork(c, e);
}

void rt_graphs_release(struct rt *c, bool well)
{
	struct rt_graphs *g = c->graphs;
	if (!g)
		return;
	for (size_t i = 0; i < g->n; i++) {
		struct stretch *s = &g->stretch[i];
		if (well)
			forget_runs(c, s);
		mem_free(s->work);
		mem_free(s->how);
		mem_free(s->run);
	}
	if (well)
		drop_streams(c);
	mem_free(g);
	c->graphs = NULL;
}
