/* SPDX-License-Identifier: Apache-2.0 */
/* fake_graph.h - graphs of the stand-in in fake_rt.c, as strict as the documents: "CUDA Driver
 * API", Stream Management and Graph Management; "CUDA C++ Programming Guide", 3.2.8.7.3 (what may
 * not be done while a stream is captured).
 *
 * What a captured stream gets is not run: it becomes the graph. Kernels keep the parameters that
 * they had then. While a stream is captured nobody may ask for it or for an event behind it, and it
 * waits for no event that was not captured with it. Another stream that waits for one that was
 * becomes part of the capture, and must be waited for by its end. What does not wait for each other
 * runs in any order, each stream's work as late as it may. A graph that is started names memory and
 * functions that still exist. */
#ifndef HS_TESTS_DRIVERS_FAKE_GRAPH_H
#define HS_TESTS_DRIVERS_FAKE_GRAPH_H

enum { STATE = 401, NOT_SUPPORTED = 801, INVALIDATED = 901 };

struct graph {
	struct owner owner;
	struct op *first, **last;
	size_t n;
	int lanes;                        /* streams but the first */
	struct stream *lane[GRAPH_LANES]; /* of what is started: these */
	/* where it was started last, and how much that stream has to do till it has run */
	const struct stream *on;
	uint64_t till;
};
static uint64_t captures;

EXPORT long fake_graphs, fake_replayed;
long fake_graphs;   /* how often a graph was started */
long fake_replayed; /* works of these */

static int x_capture_begin(void *stream, int mode)
{
	struct stream *s = stream;
	const int rc = owned(s->owner);
	if (rc || mode < 0 || mode > 2)
		return rc ? rc : INVALID;
	if (s->captured)
		return STATE;
	s->captured = calloc(1, sizeof *s->captured);
	s->captured->owner = owner_now();
	s->captured->last = &s->captured->first;
	s->relaxed = mode == 2;
	s->broken = false;
	s->capture = ++captures;
	s->kept = s->waited = 0;
	s->lane = 0;
	return OK;
}

static void free_ops(struct op *o)
{
	for (struct op *next; o; o = next) {
		next = o->next;
		free(o);
	}
}

static int x_made_free(void *graph)
{
	struct graph *g = graph;
	free_ops(g->first);
	free(g);
	return OK;
}

static int x_capture_end(void *stream, void **graph)
{
	struct stream *s = stream;
	const int rc = owned(s->owner);
	const uint64_t which = s->capture;
	bool joined = true;
	if (rc || !s->captured || s->lane)
		return rc ? rc : STATE;
	*graph = s->captured;
	bool broken = false;
	for (const struct stream *t = streams; t; t = t->next)
		if (t->capture == which) {
			joined = joined && (!t->lane || t->waited == t->kept);
			broken = broken || t->broken;
		}
	const bool ok = joined && !broken;
	/* HIP leaves the streams of a capture that failed as they are, and any value in *graph
	 * (clr, hip_graph.cpp, hipStreamEndCapture_common) */
	for (struct stream *t = streams; t; t = t->next)
		if (t->capture == which && (ok || api == CUDA)) {
			t->captured = NULL;
			t->capture = 0;
		}
	if (!ok && api == CUDA)
		x_made_free(*graph);
	if (!ok)
		*graph = api == CUDA ? NULL : (void *)1;
	return ok ? OK : broken ? INVALIDATED : UNJOINED;
}

/* What can be launched is a copy: the graph may go. */
static int x_graph_make(void **made, void *graph, unsigned long long flags)
{
	const struct graph *g = graph;
	if (owned(g->owner) || flags)
		return owned(g->owner) ? owned(g->owner) : INVALID;
	if (fault("nograph", 0))
		return NOT_SUPPORTED;
	struct graph *n = calloc(1, sizeof *n);
	*n = (struct graph){ .owner = g->owner, .n = g->n, .lanes = g->lanes };
	n->last = &n->first;
	for (const struct op *o = g->first; o; o = o->next) {
		struct op *copy = malloc(sizeof *copy);
		*copy = *o;
		copy->next = NULL;
		*n->last = copy;
		n->last = &copy->next;
	}
	*made = n;
	return OK;
}

static void must(bool so, const char *what)
{
	if (so)
		return;
	fprintf(stderr, "fake_rt: a graph was started with %s\n", what);
	abort();
}

static bool in_memory(const char *p, size_t n) { return !n || inside((uint64_t)(uintptr_t)p, n); }

static void check_memory(const struct op *o)
{
	const struct product *p = &o->product;
	bool ok = true;
	for (int i = 0, k = 0; o->kind == LAUNCH && o->function->sig[i]; i++) {
		const char c = o->function->sig[i];
		ok = ok && (c != 'p' || !o->ints[k] || inside(o->ints[k], 1));
		k += c != 'f';
	}
	if (o->kind == COPY)
		ok = in_memory(o->to, o->n) && in_memory(o->from, o->n);
	else if (o->kind == FILL8 || o->kind == FILL32)
		ok = in_memory(o->to, o->kind == FILL32 ? 4 * o->n : o->n);
	else if (o->kind == GEMM)
		ok = in_memory(p->a, 1) && in_memory(p->b, 1) && in_memory(p->to, 1) &&
		     in_memory(p->from, 1);
	must(ok, "memory that is gone");
}

/* Streams for the graph's own, behind what `s` has to do; from[]: works in front of it. */
static void begin_lanes(struct graph *g, struct stream *s, uint64_t *from)
{
	from[0] = s->put;
	for (int i = 1; i <= g->lanes; i++) {
		if (!g->lane[i])
			x_stream((void **)&g->lane[i], 1);
		struct op *o = put(g->lane[i], WAIT);
		o->stream = s;
		o->at = s->put;
		from[i] = g->lane[i]->put;
	}
}

static int x_graph_launch(void *made, void *stream)
{
	struct graph *g = made;
	struct stream *s = stream;
	uint64_t from[GRAPH_LANES];
	static bool was_full;
	if (owned(g->owner) || owned(s->owner))
		return BAD_HANDLE;
	if (s->captured)
		return UNSUPPORTED;
	if (once("graphfull", &was_full))
		return OUT_OF_MEMORY;
	fake_graphs++;
	fake_replayed += (long)g->n;
	begin_lanes(g, s, from);
	for (const struct op *o = g->first; o; o = o->next) {
		if (o->kind == LAUNCH)
			must(is_loaded(o->function), "a function of a module that is gone");
		check_memory(o);
		struct stream *const on = o->lane ? g->lane[o->lane] : s;
		struct op *n = put(on, o->kind);
		struct op *const link = n->next;
		*n = *o;
		n->next = link;
		n->begun = 0;
		if (n->kind == WAIT) {
			n->stream = o->of ? g->lane[o->of] : s;
			n->at += from[o->of];
		}
		if (n->kind == LAUNCH) {
			n->number = ++launches;
			if (o->lane)
				do_early(on);
		}
	}
	g->on = s;
	g->till = s->put;
	return OK;
}

/* CUDA frees a graph that runs when it has run. Older HIP deletes at once what its kernels
 * still read (clr, hip_graph.cpp, hipGraphExecDestroy). */
static int x_graph_free(void *made)
{
	struct graph *g = made;
	if (owned(g->owner))
		return BAD_HANDLE;
	if (api == HIP && g->on && g->on->done < g->till) {
		fprintf(stderr, "fake_rt: a graph is freed that still runs\n");
		abort();
	}
	for (int i = 1; i <= g->lanes; i++)
		if (g->lane[i])
			g->lane[i]->gone = true;
	return x_made_free(made);
}

#endif
