/* SPDX-License-Identifier: Apache-2.0 */
/* rt.c - see rt.h: opening a driver and a device, launches, products, waiting. */
#include "dev/rt.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/dev_watch.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 50000   /* a wait this short is spun away */
#define NO_TIMING 2u    /* flag of an event */
#define NON_BLOCKING 1u /* flag of a stream */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;

static bool any_there(const char *const *files)
{
	for (; *files; files++)
		if (access(*files, F_OK) == 0)
			return true;
	return false;
}

static int lib_open(const struct rt_vendor *v, struct err *e)
{
	struct rt_lib *l = v->lib;
	const char *own = getenv(v->env);
	const char *const one[] = { own, NULL };
	struct rt_functions f;
	void *handle;
	int n = 0;
	if (!(own && own[0]) && v->nodes && !any_there(v->nodes))
		return 0;
	int rc = dl_open(own && own[0] ? one : v->names, v->symbols, v->nsymbols, &f, &handle, e);
	if (rc == ERR_UNSUPPORTED && !(own && own[0])) {
		err_clear(e); /* no driver here: a fact, not a failure */
		return 0;
	}
	if (rc < 0)
		return rc;
	int code = f.init(0);
	if (code == RT_OK)
		code = f.count(&n);
	if (code == RT_NO_DEVICE || code == RT_INVALID_DEVICE)
		n = 0;
	else if (code != RT_OK)
		return err_set(e, ERR_DEVICE, "the %s driver answers %s when it is started",
			       v->title, v->error(&f, code));
	if (f.version(&l->version) != RT_OK)
		l->version = 0;
	l->f = f;
	l->count = n;
	return 0;
}

int rt_count(const struct rt_vendor *v, struct err *e)
{
	int rc = 0;
	pthread_mutex_lock(&lock);
	if (!v->lib->opened)
		rc = lib_open(v, e);
	v->lib->opened = rc == 0;
	pthread_mutex_unlock(&lock);
	return rc < 0 ? rc : v->lib->count;
}

int rt_failed(struct rt *c, int code, const char *what, struct err *e)
{
	if (code == RT_OK)
		return 0;
	if (code == RT_OUT_OF_MEMORY)
		return err_set(e, ERR_NOMEM, "%s: %s: %s", c->label, what, c->v->error(c->f, code));
	/* after a failed kernel every later call fails too: nothing of it can be trusted */
	c->lost = true;
	return err_set(e, ERR_DEVICE, "%s: %s: %s (last work: %s)", c->label, what,
		       c->v->error(c->f, code), c->doing ? c->doing : "none");
}

int rt_enter(struct rt *c, struct err *e)
{
	static _Thread_local uint64_t current;
	if (c->lost)
		return err_set(e, ERR_DEVICE, "%s failed before and is not used again", c->label);
	if (current != c->id) {
		TRY(rt_failed(c, c->v->enter(c), "choosing it", e));
		current = c->id;
	}
	return 0;
}

/* ERR_DEVICE when it has been waited for longer than the limit. */
static int in_time(struct rt *c, int64_t waited, struct err *e)
{
	if (!c->limit || waited <= c->limit)
		return 0;
	c->lost = true;
	return err_set(e, ERR_DEVICE,
		       "%s does not answer: nothing has come back for %.1f s (HS_DEVICE_TIMEOUT); "
		       "its last work was "
		       "%s; the device hangs, or is gone",
		       c->label, clock_seconds(waited), c->doing ? c->doing : "none");
}

int rt_wait(struct rt *c, void *event, struct err *e)
{
	const int64_t began = clock_now();
	for (long pause = 10000;;) {
		const int code = c->f->event_query(event);
		const int64_t waited = clock_now() - began;
		if (code != RT_NOT_READY)
			return rt_failed(c, code, "waiting for it", e);
		TRY(in_time(c, waited, e));
		if (waited < SPIN_NS) {
			sched_yield();
			continue;
		}
		nanosleep(&(struct timespec){ 0, pause }, NULL);
		if (pause < 200000)
			pause *= 2;
	}
}

static int make_queues(struct rt *c)
{
	const struct rt_functions *f = c->f;
	int code = f->stream(&c->compute, NON_BLOCKING);
	if (code == RT_OK)
		code = f->stream(&c->copy, NON_BLOCKING);
	void **const events[] = { &c->compute_event, &c->copy_event, &c->busy_event, &c->mark[0],
				  &c->mark[1] };
	for (size_t i = 0; i < ARRAY_LEN(events) && code == RT_OK; i++)
		code = f->event(events[i], NO_TIMING);
	for (int i = 0; i < 2 * RT_SLOTS && code == RT_OK; i++) {
		struct rt_slot *s = i < RT_SLOTS ? &c->slot[i] : &c->back[i - RT_SLOTS];
		code = f->pinned((void **)&s->host, RT_PIECE, 0);
		if (code == RT_OK)
			code = f->event(&s->event, NO_TIMING);
	}
	return code;
}

static int describe(struct rt *c, int index, int version)
{
	const struct rt_functions *f = c->f;
	size_t total = 0;
	int unified = 0;
	int code = f->device(&c->device, index);
	if (code == RT_OK)
		code = f->device_name(c->name, sizeof c->name - 1, c->device);
	if (code == RT_OK)
		code = f->device_memory(&total, c->device);
	if (code == RT_OK)
		code = f->attribute(&c->units, c->v->attr_units, c->device);
	if (code == RT_OK)
		code = f->attribute(&unified, c->v->attr_unified, c->device);
	if (code == RT_OK)
		code = c->v->describe(c, version);
	c->mem_total = total;
	c->unified = unified != 0;
	if (!c->name[0])
		memcpy(c->name, c->arch, sizeof c->arch);
	snprintf(c->label, sizeof c->label, "%s:%d (%s)", c->v->backend, index, c->name);
	return code;
}

int rt_open(const struct rt_vendor *v, struct dev *d, int index, struct err *e)
{
	struct rt *c = mem_zalloc(sizeof *c);
	if (!c)
		return err_nomem(e, sizeof *c, "a device");
	pthread_mutex_lock(&lock);
	c->id = ++ids;
	pthread_mutex_unlock(&lock);
	c->v = v;
	c->f = &v->lib->f;
	c->limit = (int64_t)(dev_time_limit() * 1e9);
	d->priv = c;
	snprintf(c->label, sizeof c->label, "%s:%d", v->backend, index);
	int rc = rt_failed(c, describe(c, index, v->lib->version), "opening it", e);
	/* without a compiler for it a card is of no use: so 'auto' goes on to the next one */
	if (rc == 0 && (rc = rtc_open(v->rtc, c->arch, v->rtc == RTC_NVRTC ? c->major : 0,
				      &c->compiler, e)) < 0)
		err_prefix(e, "%s", c->label);
	if (rc == 0)
		rc = rt_enter(c, e);
	if (rc == 0)
		rc = rt_failed(c, make_queues(c), "opening it", e);
	if (rc < 0)
		rt_close(d);
	return rc;
}

void rt_close(struct dev *d)
{
	struct rt *c = d->priv;
	struct err ignored = { 0 };
	const struct rt_functions *f = c->f;
	if (c->copy && !c->lost)
		rt_sync(d, &ignored);
	/* a driver that hangs would hang again: what it holds goes with the process */
	const bool well = !c->lost && rt_enter(c, &ignored) == 0;
	if (well) {
		if (c->blas)
			c->blas->release(c->blas, c);
		rt_programs_release(c);
	}
	rt_memory_release(c);
	if (well) {
		void *const events[] = { c->compute_event, c->copy_event, c->busy_event, c->mark[0],
					 c->mark[1] };
		for (size_t i = 0; i < ARRAY_LEN(events); i++)
			if (events[i])
				f->event_destroy(events[i]);
		for (int i = 0; i < 2 * RT_SLOTS; i++) {
			const struct rt_slot *s =
				i < RT_SLOTS ? &c->slot[i] : &c->back[i - RT_SLOTS];
			if (s->event)
				f->event_destroy(s->event);
			if (s->host)
				f->pinned_free(s->host);
		}
		if (c->copy)
			f->stream_destroy(c->copy);
		if (c->compute)
			f->stream_destroy(c->compute);
		c->v->leave(c);
	}
	log_debug("%s: %llu MiB taken from the driver at most", c->label,
		  (unsigned long long)c->held_peak >> 20);
	mem_free(c);
}

/* Work has been put on the compute stream. Drivers let calls wait inside them when too much is
 * queued, where no limit holds: so the work of the mark before the last one must have run. */
int rt_queued(struct rt *c, struct err *e)
{
	c->launched++;
	if (c->launched % RT_MARK)
		return 0;
	void *mark = c->mark[c->launched / RT_MARK % 2];
	if (c->launched > RT_MARK * 2) {
		TRY(rt_wait(c, mark, e));
		if (c->finished < c->launched - RT_MARK * 2)
			c->finished = c->launched - RT_MARK * 2;
	}
	return rt_failed(c, c->f->event_record(mark, c->compute), "queueing", e);
}

static int run_step(struct rt *c, const struct gpu_step *s, enum dtype t, const char *sig,
		    const union dev_arg *a, struct err *e)
{
	/* a buffer takes two: its address, and the place in it */
	union {
		uint64_t u;
		int64_t i;
		float f;
	} value[2 * GPU_ARGS];
	void *params[2 * GPU_ARGS], *function;
	int n = 0;
	if (s->groups > INT32_MAX / GPU_LANES)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: %s of %lld groups is more than a launch can have", c->label,
			       gpu_entry_name(s->entry), (long long)s->groups);
	TRY(rt_kernel(c, s->entry, t, &function, e));
	for (int i = 0; sig[i]; i++) {
		if (sig[i] == 'b') {
			TRY(rt_use(c, a[i].b.buf, e));
			value[n++].u = a[i].b.buf ? rt_block_of(a[i].b.buf)->at : 0;
			value[n++].i = a[i].b.buf ? (int64_t)a[i].b.off : -1;
		} else if (sig[i] == 'f') {
			value[n++].f = a[i].f;
		} else {
			value[n++].i = a[i].i;
		}
	}
	for (int i = 0; i < n; i++)
		params[i] = &value[i];
	c->doing = gpu_entry_name(s->entry);
	TRY(rt_failed(c,
		      c->f->launch(function, (unsigned)s->groups, 1, 1, GPU_LANES, 1, 1, 0,
				   c->compute, params, NULL),
		      "starting a kernel", e));
	return rt_queued(c, e);
}

bool rt_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16 || t == DT_F16);
}

int rt_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct gpu_step s[GPU_STEPS];
	struct rt *c = d->priv;
	if (!rt_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "%s has no kernel %s for %s", c->v->backend,
			       dev_kernel_name(k), dtype_name(t));
	TRY(rt_enter(c, e));
	int n = gpu_steps(k, a, s, e);
	for (int i = 0; i < n; i++)
		TRY(run_step(c, &s[i], gpu_program_of(k, t), dev_kernel_sig(k), a, e));
	return n < 0 ? n : 0;
}

static int portable_gemm(struct rt *c, const struct dev_gemm *g, struct err *e)
{
	union dev_arg a[GPU_ARGS];
	const struct gpu_step s = gpu_gemm(g, 0, g->k, DEV_NONE, a);
	return run_step(c, &s, g->ab_dtype, GPU_GEMM_SIG, a, e);
}

/* The vendor's library, tried once; without it the portable kernel computes. */
static void find_blas(struct rt *c)
{
	struct err why = { 0 };
	if (c->blas_tried)
		return;
	c->blas_tried = true;
	if (c->v->blas(c, &c->blas, &why) < 0) {
		c->blas = NULL;
		log_warn("%s: %s; matrix products run without it, slowly", c->label, why.msg);
	}
}

int rt_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct rt *c = d->priv;
	if (g->ab_dtype > DT_F16 || (g->c_dtype != g->ab_dtype && g->c_dtype != DT_F32))
		return err_set(e, ERR_UNSUPPORTED, "%s has no matrix product of %s into %s",
			       c->v->backend, dtype_name(g->ab_dtype), dtype_name(g->c_dtype));
	TRY(rt_enter(c, e));
	find_blas(c);
	if (c->blas && g->k) {
		TRY(rt_use(c, g->a.buf, e));
		TRY(rt_use(c, g->b.buf, e));
		TRY(rt_use(c, g->c.buf, e));
		c->doing = "a matrix product";
		const int done = c->blas->gemm(c->blas, c, g, e);
		if (done < 0)
			return done;
		if (done)
			return rt_queued(c, e);
	}
	return portable_gemm(c, g, e);
}

int rt_idle(struct rt *c, struct err *e)
{
	TRY(rt_downloaded(c, e));
	for (int i = 0; i < RT_SLOTS; i++)
		if (c->slot[i].busy) {
			TRY(rt_wait(c, c->slot[i].event, e));
			c->slot[i].busy = false;
		}
	c->seen = c->copies;
	if (c->finished == c->launched)
		return 0;
	TRY(rt_failed(c, c->f->event_record(c->compute_event, c->compute), "queueing", e));
	TRY(rt_wait(c, c->compute_event, e));
	c->finished = c->launched;
	return 0;
}

int rt_sync(struct dev *d, struct err *e)
{
	TRY(rt_enter(d->priv, e));
	return rt_idle(d->priv, e);
}

int rt_busy(struct dev *d, struct err *e)
{
	struct rt *c = d->priv;
	TRY(rt_enter(c, e));
	if (c->finished == c->launched)
		return 0;
	if (c->busy_at != c->launched) {
		TRY(rt_failed(c, c->f->event_record(c->busy_event, c->compute), "queueing", e));
		c->busy_at = c->launched;
		c->busy_since = clock_now();
	}
	const int code = c->f->event_query(c->busy_event);
	if (code != RT_NOT_READY) {
		TRY(rt_failed(c, code, "waiting for it", e));
		c->finished = c->busy_at;
		return 0;
	}
	TRY(in_time(c, clock_now() - c->busy_since, e));
	return 1;
}

/* A small product by the vendor's library, in whole numbers that every format holds. */
static bool probe(struct dev *d, enum dtype t)
{
	enum { SIDE = 32 };
	struct rt *c = d->priv;
	struct dev_buf *b[3] = { NULL };
	struct err ignored = { 0 };
	float x[SIDE * SIDE], got[SIDE * SIDE];
	uint16_t h[SIDE * SIDE];
	bool ok = true;
	find_blas(c);
	if (!c->blas || !c->v->native(c->arch, t))
		return false;
	for (int i = 0; i < SIDE * SIDE; i++)
		x[i] = (float)(i * 7 % 11 - 5);
	dtype_from_f32(t, x, h, SIDE * SIDE);
	for (int i = 0; i < 3 && ok; i++)
		ok = dev_alloc(d, i < 2 ? sizeof h : sizeof got, &b[i], &ignored) == 0 &&
		     (i == 2 || dev_upload(DEV_REF(b[i], 0), h, sizeof h, &ignored) == 0);
	if (ok) {
		const struct dev_gemm g = { .m = SIDE,
					    .n = SIDE,
					    .k = SIDE,
					    .tb = true,
					    .a = DEV_REF(b[0], 0),
					    .b = DEV_REF(b[1], 0),
					    .c = DEV_REF(b[2], 0),
					    .lda = SIDE,
					    .ldb = SIDE,
					    .ldc = SIDE,
					    .ab_dtype = t,
					    .c_dtype = DT_F32,
					    .alpha = 1 };
		ok = rt_use(c, b[0], &ignored) == 0 && rt_use(c, b[1], &ignored) == 0 &&
		     rt_use(c, b[2], &ignored) == 0 &&
		     c->blas->gemm(c->blas, c, &g, &ignored) == 1 && rt_queued(c, &ignored) == 0 &&
		     dev_download(got, DEV_REF(b[2], 0), sizeof got, &ignored) == 0;
	}
	for (int i = 0; i < SIDE && ok; i++)
		for (int j = 0; j < SIDE && ok; j++) {
			float want = 0;
			for (int l = 0; l < SIDE; l++)
				want += x[i * SIDE + l] * x[j * SIDE + l];
			ok = got[i * SIDE + j] == want;
		}
	for (int i = 0; i < 3; i++)
		dev_free(b[i]);
	return ok;
}

int rt_caps(struct dev *d, struct dev_caps *k, struct err *e)
{
	struct rt *c = d->priv;
	size_t mem_free = 0, total = 0;
	TRY(rt_enter(c, e));
	if (!c->probed) {
		c->native[DT_BF16] = probe(d, DT_BF16);
		c->native[DT_F16] = probe(d, DT_F16);
		c->probed = true;
	}
	TRY(rt_failed(c, c->f->memory_info(&mem_free, &total), "asking for its memory", e));
	for (const struct rt_block *b = c->spare; b; b = b->next)
		mem_free += b->size;
	*k = (struct dev_caps){ .mem_total = c->mem_total,
				.mem_free = mem_free,
				.mem_seen = true,
				.units = c->units,
				.bf16 = c->native[DT_BF16],
				.f16 = c->native[DT_F16],
				.unified = c->unified };
	snprintf(k->name, sizeof k->name, "%s", c->name);
	snprintf(k->vendor, sizeof k->vendor, "%s", c->vendor);
	snprintf(k->driver, sizeof k->driver, "%s", c->driver);
	return 0;
}
