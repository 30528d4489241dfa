/* SPDX-License-Identifier: Apache-2.0 */
/* fake_events.h - streams and events of the stand-in in fake_rt.c, as strict as "CUDA Driver API",
 * Stream Management and Event Management. */
#ifndef HS_TESTS_DRIVERS_FAKE_EVENTS_H
#define HS_TESTS_DRIVERS_FAKE_EVENTS_H

static int x_stream(void **s, unsigned flags)
{
	struct stream *n = calloc(1, sizeof *n);
	if (device_now() < 0 ||
	    flags != 1) /* a stream that waits for the default stream would wait for others */
		return flags == 1 ? NO_CONTEXT : INVALID;
	if (api == HIP && fault("crowded", 0))
		return OUT_OF_MEMORY;
	n->owner = owner_now();
	n->last = &n->first;
	for (const struct stream *t = streams; t; t = t->next)
		n->later = n->later || (!t->gone && !owned(t->owner));
	n->next = streams;
	*s = streams = n;
	return OK;
}

static int x_stream_destroy(void *s)
{
	((struct stream *)s)->gone = true; /* but somebody may still wait for its work */
	return OK;
}

/* A stream that waits for an event of a capture becomes part of it. */
static int wait_in_capture(struct stream *s, const struct event *v)
{
	struct stream *of = v->stream;
	if (!v->capture || of->capture != v->capture || (s->capture && s->capture != v->capture))
		return ISOLATION;
	if (!s->captured) {
		s->captured = of->captured;
		s->relaxed = of->relaxed;
		s->capture = of->capture;
		s->kept = s->waited = 0;
		s->lane = graph_lane(s->captured);
	}
	if (of == s)
		return OK;
	struct op *o = put(s, WAIT);
	o->of = of->lane;
	o->at = v->at;
	if (of->waited < v->at)
		of->waited = v->at;
	return s->lane < GRAPH_LANES ? OK : INVALID;
}

static int x_stream_wait(void *s, void *event, unsigned flags)
{
	const struct event *v = event;
	const int rc = owned(v->owner);
	if (rc || flags)
		return rc ? rc : INVALID;
	if (((struct stream *)s)->capture || v->capture)
		return wait_in_capture(s, v);
	if (v->stream && v->stream != s) {
		struct op *o = put(s, WAIT);
		if (!o)
			return owned(((struct stream *)s)->owner);
		o->stream = v->stream;
		o->at = v->at;
	}
	return OK;
}

static int x_event(void **e, unsigned flags)
{
	struct event *n = calloc(1, sizeof *n);
	if (device_now() < 0 || flags != 2) /* an event that measures time costs more */
		return flags == 2 ? NO_CONTEXT : INVALID;
	n->owner = owner_now();
	*e = n;
	return OK;
}

static int x_event_destroy(void *e)
{
	free(e);
	return OK;
}

static int x_event_record(void *event, void *s)
{
	struct event *v = event;
	const int rc = owned(v->owner) ? owned(v->owner) : owned(((struct stream *)s)->owner);
	if (rc)
		return rc;
	const struct stream *of = s;
	*v = (struct event){ v->owner, s, of->capture ? of->kept : of->put, 0, of->capture };
	return OK;
}

static int x_event_query(void *event)
{
	struct event *v = event;
	const int rc = owned(v->owner);
	if (rc || !v->stream)
		return rc;
	if (v->capture || !meanwhile())
		return v->capture ? CAPTURED_EVENT : UNSUPPORTED;
	return v->asked++ < fault("asked", 3) ? NOT_READY : run_until(v->stream, v->at);
}

#endif
