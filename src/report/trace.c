/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. */
#include "report/trace.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MOST = 200 };

struct name {
	uint32_t worker;
	char text[64];
};

struct mark {
	int64_t at;
	int32_t step;
	char event[24], text[TRACE_TEXT];
};

struct trace {
	pthread_mutex_t lock;
	struct trace_event *ring;
	size_t cap, first, n;
	uint64_t dropped;
	struct name name[NAMES_MOST];
	size_t nnames;
	int64_t clock_error;
	struct mark *mark; /* ring of TRACE_MARKS, NULL before the first one */
	size_t marks;      /* all that there were */
};

int trace_new(size_t events, struct trace **t_p, struct err *e)
{
	struct trace *t = mem_zalloc(sizeof *t);
	if (events < 1)
		events = 1;
	if (t)
		t->ring = mem_array(events, sizeof *t->ring);
	if (!t || !t->ring) {
		mem_free(t);
		return err_nomem(e, events * sizeof *t->ring, "the trace");
	}
	t->cap = events;
	pthread_mutex_init(&t->lock, NULL);
	*t_p = t;
	return 0;
}

void trace_free(struct trace *t)
{
	if (!t)
		return;
	pthread_mutex_destroy(&t->lock);
	mem_free(t->ring);
	mem_free(t->mark);
	mem_free(t);
}

static void copy_text(char *dst, size_t cap, const char *src)
{
	size_t n = strnlen(src, cap - 1);
	memcpy(dst, src, n);
	dst[n] = 0;
}

void trace_name_worker(struct trace *t, uint32_t worker, const char *text)
{
	pthread_mutex_lock(&t->lock);
	size_t i = 0;
	while (i < t->nnames && t->name[i].worker != worker)
		i++;
	if (i < NAMES_MOST) {
		t->name[i].worker = worker;
		copy_text(t->name[i].text, sizeof t->name[i].text, text);
		t->nnames = i == t->nnames ? i + 1 : t->nnames;
	}
	pthread_mutex_unlock(&t->lock);
}

void trace_mark(struct trace *t, int64_t at, const char *event, const char *text, int32_t step)
{
	pthread_mutex_lock(&t->lock);
	if (!t->mark)
		t->mark = mem_array(TRACE_MARKS, sizeof *t->mark);
	if (t->mark) {
		struct mark *m = &t->mark[t->marks++ % TRACE_MARKS];
		*m = (struct mark){ .at = at, .step = step };
		copy_text(m->event, sizeof m->event, event);
		copy_text(m->text, sizeof m->text, text);
	}
	pthread_mutex_unlock(&t->lock);
}

void trace_clock_error(struct trace *t, int64_t error)
{
	pthread_mutex_lock(&t->lock);
	t->clock_error = error > t->clock_error ? error : t->clock_error;
	pthread_mutex_unlock(&t->lock);
}

void trace_add(struct trace *t, const struct trace_event *ev)
{
	pthread_mutex_lock(&t->lock);
	if (t->n == t->cap) {
		t->first = (t->first + 1) % t->cap;
		t->n--;
		t->dropped++;
	}
	struct trace_event *slot = &t->ring[(t->first + t->n++) % t->cap];
	*slot = *ev;
	slot->name[sizeof slot->name - 1] = 0;
	pthread_mutex_unlock(&t->lock);
}

void trace_span(struct trace *t, uint32_t worker, uint32_t stream, const char *name, int64_t begin,
		int64_t end, int32_t step, int32_t microbatch)
{
	struct trace_event ev = { begin, end, worker, stream, step, microbatch, "" };
	copy_text(ev.name, sizeof ev.name, name);
	trace_add(t, &ev);
}

size_t trace_take(struct trace *t, struct trace_event *ev, size_t cap)
{
	pthread_mutex_lock(&t->lock);
	size_t n = t->n < cap ? t->n : cap;
	for (size_t i = 0; i < n; i++)
		ev[i] = t->ring[(t->first + i) % t->cap];
	t->first = (t->first + n) % t->cap;
	t->n -= n;
	pthread_mutex_unlock(&t->lock);
	return n;
}

uint64_t trace_dropped(struct trace *t)
{
	pthread_mutex_lock(&t->lock);
	uint64_t n = t->dropped;
	pthread_mutex_unlock(&t->lock);
	return n;
}

static int by_begin(const void *a, const void *b)
{
	const struct trace_event *x = a, *y = b;
	return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
				    : (x->end < y->end) - (x->end > y->end);
}

static void put_micros(struct buf *b, int64_t ns)
{
	buf_addf(b, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
}

static void write_name(struct buf *b, const char *what, uint32_t worker, uint32_t stream,
		       const char *text, uint32_t order)
{
	buf_addf(b, "{\"ph\":\"M\",\"name\":\"%s_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":",
		 what, worker, stream);
	json_quote(b, text, strlen(text));
	buf_addf(b,
		 "}},\n{\"ph\":\"M\",\"name\":\"%s_sort_index\",\"pid\":%u,\"tid\":%u,\"args\":{"
		 "\"sort_index\":%u}},\n",
		 what, worker, stream, order);
}

static void write_names(const struct trace *t, struct buf *b)
{
	static const char *const streams[TRACE_STREAMS] = { [TRACE_COMPUTE] = "compute",
							    [TRACE_SEND] = "send",
							    [TRACE_RECEIVE] = "receive",
							    [TRACE_WAIT] = "wait" };
	for (size_t i = 0; i < t->nnames; i++) {
		const struct name *n = &t->name[i];
		write_name(b, "process", n->worker, 0, n->text, n->worker);
		for (uint32_t s = 0; s < TRACE_STREAMS; s++)
			write_name(b, "thread", n->worker, s, streams[s], s);
	}
}

static void write_event(const struct trace_event *ev, int64_t zero, struct buf *b)
{
	int64_t length = ev->end > ev->begin ? ev->end - ev->begin : 0;
	buf_adds(b, "{\"ph\":\"X\",\"name\":");
	json_quote(b, ev->name, strlen(ev->name));
	buf_addf(b, ",\"pid\":%u,\"tid\":%u,\"ts\":", ev->worker, ev->stream);
	put_micros(b, ev->begin - zero);
	buf_adds(b, ",\"dur\":");
	put_micros(b, length);
	if (ev->step >= 0 && ev->microbatch >= 0)
		buf_addf(b, ",\"args\":{\"step\":%d,\"microbatch\":%d}", ev->step, ev->microbatch);
	else if (ev->step >= 0)
		buf_addf(b, ",\"args\":{\"step\":%d}", ev->step);
	buf_adds(b, "},\n");
}

static void write_mark(const struct mark *m, int64_t zero, struct buf *b)
{
	buf_adds(b, "{\"ph\":\"i\",\"s\":\"g\",\"name\":");
	json_quote(b, m->event, strlen(m->event));
	buf_adds(b, ",\"pid\":0,\"tid\":0,\"ts\":");
	put_micros(b, m->at > zero ? m->at - zero : 0);
	buf_addf(b, ",\"args\":{\"step\":%d,\"text\":", m->step);
	json_quote(b, m->text, strlen(m->text));
	buf_adds(b, "}},\n");
}

/* With the lock held. Without spans the axis begins at the oldest mark. */
static void write_marks(const struct trace *t, int64_t zero, struct buf *b)
{
	const size_t first = t->marks > TRACE_MARKS ? t->marks - TRACE_MARKS : 0;
	if (first < t->marks && zero == INT64_MAX)
		zero = t->mark[first % TRACE_MARKS].at;
	for (size_t i = first; i < t->marks; i++)
		write_mark(&t->mark[i % TRACE_MARKS], zero, b);
}

int trace_write(struct trace *t, const char *path, struct err *e)
{
	struct buf b = BUF_INIT;
	pthread_mutex_lock(&t->lock);
	size_t n = t->n;
	struct trace_event *ev = mem_array(n ? n : 1, sizeof *ev);
	for (size_t i = 0; ev && i < n; i++)
		ev[i] = t->ring[(t->first + i) % t->cap];
	buf_adds(&b, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
	write_names(t, &b);
	int64_t zero = INT64_MAX;
	for (size_t i = 0; ev && i < n; i++)
		zero = ev[i].begin < zero ? ev[i].begin : zero;
	write_marks(t, zero, &b);
	unsigned long long dropped = t->dropped;
	long long error = t->clock_error;
	pthread_mutex_unlock(&t->lock);
	int rc;
	if (!ev) {
		rc = err_nomem(e, n * sizeof *ev, "the trace");
		goto out;
	}
	qsort(ev, n, sizeof *ev, by_begin);
	for (size_t i = 0; i < n; i++)
		write_event(&ev[i], zero, &b);
	if (b.n >= 2 && b.p[b.n - 2] == ',') { /* JSON allows no comma behind the last one */
		b.n -= 2;
		buf_addc(&b, '\n');
	}
	buf_addf(&b,
		 "],\"otherData\":{\"program\":\"heteroshard\",\"older spans left "
		 "out\":%llu,\"clocks apart at most, ns\":%lld}}\n",
		 dropped, error);
	TRYOUT(buf_ok(&b, e));
	rc = atomic_write_file(path, b.p, b.n, e);
out:
	mem_free(ev);
	buf_release(&b);
	return rc;
}
