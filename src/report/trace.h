/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the trace of a run: spans of time of every worker, in a ring that is allocated once,
 * written as a Chrome trace (Perfetto, chrome://tracing).
 *
 * Format: the Trace Event Format's JSON object form, complete events ("ph":"X") with microseconds,
 * metadata events for the names of processes and threads. pid is the worker, tid one of its
 * streams. When the ring is full the oldest spans are overwritten, so the trace of a long run has
 * its last steps. Adding a span allocates nothing. What happened to the whole run (a worker was
 * lost) is a mark: an instant event ("ph":"i") with its text, the last TRACE_MARKS of them.
 * Thread-safe. */
#ifndef HS_REPORT_TRACE_H
#define HS_REPORT_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct trace;

/* Holds no pointers: workers send their spans to the coordinator as they are. */
struct trace_event {
	int64_t begin, end; /* nanoseconds of one clock, aligned by the code that merges workers */
	uint32_t worker, stream;  /* pid, tid */
	int32_t step, microbatch; /* -1: none */
	char name[24];            /* "forward", "send activation" */
};

int trace_new(size_t events, struct trace **t_p, struct err *e); /* 64 bytes each */
void trace_free(struct trace *t);                                /* NULL is allowed */
/* The streams of a worker, in the order in which they are shown. */
enum trace_stream { TRACE_COMPUTE, TRACE_SEND, TRACE_RECEIVE, TRACE_WAIT, TRACE_STREAMS };

/* A name on the time axis for a worker (a later one replaces an earlier one) and for its streams.
 * At most 200 workers have names, each cut at 63 characters. */
void trace_name_worker(struct trace *t, uint32_t worker, const char *name);
/* The uncertainty between the clocks of workers, nanoseconds: the largest is written with
 * the spans. */
void trace_clock_error(struct trace *t, int64_t error);
void trace_add(struct trace *t, const struct trace_event *ev);
/* The same from single values; `name` is copied, cut at 23 characters. */
void trace_span(struct trace *t, uint32_t worker, uint32_t stream, const char *name, int64_t begin,
		int64_t end, int32_t step, int32_t microbatch);
enum { TRACE_MARKS = 500, TRACE_TEXT = 400 };
/* `event` is cut at 23 characters, `text` at TRACE_TEXT - 1. */
void trace_mark(struct trace *t, int64_t at, const char *event, const char *text, int32_t step);
/* Removes up to `cap` of the oldest events into ev. */
size_t trace_take(struct trace *t, struct trace_event *ev, size_t cap);
uint64_t trace_dropped(struct trace *t); /* how many were overwritten */
/* Writes all spans, in the order of their begin, atomically; the time axis begins at the earliest
 * span. The spans stay. */
int trace_write(struct trace *t, const char *path, struct err *e);

#endif
