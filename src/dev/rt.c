/* SPDX-License-Identifier: Apache-2.0 */
/* rt.c - see rt.h: opening a driver and a device, what it can do. Each file uses those before it:
 * rt_queue.c waiting, rt_graph.c work and graphs of it, rt_far.c other processes' cards,
 * rt_memory.c memory and transfers, rt_program.c compiled kernels, rt_launch.c launches and
 * products, this one. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "dev/dev_watch.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;

/* HS_DEVICE_NODES replaces the list by one file. */
static int open_node(const struct rt_vendor *v, bool *there_p, struct err *e)
{
	const char *own = getenv("HS_DEVICE_NODES");
	const char *const one[] = { own, NULL };
	const char *closed = NULL;
	*there_p = false;
	for (const char *const *n = own && own[0] ? one : v->nodes; *n && !*there_p; n++)
		if (access(*n, R_OK | W_OK) == 0)
			*there_p = true;
		else if (errno == EACCES)
			closed = *n;
	if (*there_p || !closed)
		return 0;
	struct stat st;
	const struct group *g = stat(closed, &st) == 0 ? getgrgid(st.st_gid) : NULL;
	return err_set(e, ERR_DEVICE,
		       "this user may not open %s, so no %s device can be used: 'sudo usermod -aG "
		       "%s,video $USER' and a new login change that",
		       closed, v->title, g && st.st_gid ? g->gr_name : "render");
}

static int lib_open(const struct rt_vendor *v, struct err *e)
{
	struct rt_lib *l = v->lib;
	const char *own = getenv(v->env);
	const char *const one[] = { own, NULL };
	struct rt_functions f;
	void *handle;
	int n = 0;
	bool there = true;
	if (!(own && own[0]) && v->nodes)
		TRY(open_node(v, &there, e));
	if (!there)
		return 0;
	int rc = dl_open(own && own[0] ? one : v->names, v->symbols, v->nsymbols, &f, &handle, e);
	if (rc == ERR_UNSUPPORTED && !(own && own[0])) {
		err_clear(e); /* no driver here: a fact, not a failure */
		return 0;
	}
	if (rc < 0)
		return rc;
	char why[200];
	if (v->trial && !v->trial(&f, why, sizeof why)) {
		l->no_blas = true;
		log_warn("%s: %s; matrix products run without it, slowly", v->backend, why);
	}
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

const char *rt_host_root = "";

static bool is_integrated(const struct rt_vendor *v, int index)
{
	int device, yes = 0;
	return v->lib->f.device(&device, index) == RT_OK &&
	       v->lib->f.attribute(&yes, v->attr_unified, device) == RT_OK && yes;
}

int rt_rank(const struct rt_vendor *v, int index, int best)
{
	if (!is_integrated(v, index))
		return best;
	for (int i = 0; i < v->lib->count; i++)
		if (!is_integrated(v, i))
			return 0;
	return best;
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

static int make_queues(struct rt *c)
{
	const struct rt_functions *f = c->f;
	int code = f->stream(&c->compute, RT_NON_BLOCKING);
	if (code == RT_OK)
		code = f->stream(&c->copy, RT_NON_BLOCKING);
	if (code == RT_OK)
		code = rt_ahead_make(f, &c->ahead);
	void **const events[] = { &c->compute_event, &c->copy_event, &c->busy_event };
	for (size_t i = 0; i < ARRAY_LEN(events) && code == RT_OK; i++)
		code = f->event(events[i], RT_NO_TIMING);
	for (int i = 0; i < RT_MARKS && code == RT_OK; i++)
		code = f->event(&c->mark[i], RT_NO_TIMING);
	for (int i = 0; i < 2 * RT_SLOTS && code == RT_OK; i++) {
		struct rt_slot *s = i < RT_SLOTS ? &c->slot[i] : &c->back[i - RT_SLOTS];
		code = f->pinned((void **)&s->host, RT_PIECE, 0);
		if (code == RT_OK)
			code = f->event(&s->event, RT_NO_TIMING);
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

static int opened(struct rt *c, int code, int index, struct err *e)
{
	if (code == RT_TAKEN)
		return err_set(e, ERR_DEVICE,
			       "%s: another process uses it, and it admits one at a time: end "
			       "that process, or let several in (nvidia-smi -i %d -c DEFAULT)",
			       c->label, index);
	if (code == RT_OUT_OF_MEMORY)
		return err_set(e, ERR_NOMEM,
			       "%s: others have taken so much of its memory that it cannot even be "
			       "opened (%s shows which)",
			       c->label, c->v->rtc == RTC_NVRTC ? "nvidia-smi" : "amd-smi process");
	return rt_failed(c, code, "opening it", e);
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
	pthread_mutex_init(&c->pin_lock, NULL);
	c->limit = (int64_t)(dev_time_limit() * 1e9);
	const char *ipc = getenv("HS_DEVICE_IPC");
	c->far_off = ipc && !strcmp(ipc, "0");
	for (int t = 0; t < RT_TYPES; t++)
		c->shape[t] = -1;
	d->priv = c;
	snprintf(c->label, sizeof c->label, "%s:%d", v->backend, index);
	int rc = opened(c, describe(c, index, v->lib->version), index, e);
	/* without a compiler for it a card is of no use: so 'auto' goes on to the next one */
	if (rc == 0 && (rc = rtc_open(v->rtc, c->arch, v->rtc == RTC_NVRTC ? c->major : 0,
				      &c->compiler, e)) < 0)
		err_prefix(e, "%s", c->label);
	if (rc == 0)
		rc = rt_enter(c, e);
	if (rc == 0)
		rc = opened(c, make_queues(c), index, e);
	dev_work_add(c->label, &c->doing);
	d->units = c->units;
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
	log_debug("%s: %llu of %llu launches were made by graphs", c->label,
		  (unsigned long long)c->replayed, (unsigned long long)(c->launched + c->replayed));
	rt_graphs_release(c, well);
	if (well) {
		if (c->blas)
			c->blas->release(c->blas, c);
		rt_programs_release(c);
	}
	rt_pins_release(c, well);
	rt_memory_release(c);
	if (well) {
		void *const events[] = { c->compute_event, c->copy_event, c->busy_event };
		for (size_t i = 0; i < ARRAY_LEN(events); i++)
			if (events[i])
				f->event_destroy(events[i]);
		for (int i = 0; i < RT_MARKS; i++)
			if (c->mark[i])
				f->event_destroy(c->mark[i]);
		for (int i = 0; i < 2 * RT_SLOTS; i++) {
			const struct rt_slot *s =
				i < RT_SLOTS ? &c->slot[i] : &c->back[i - RT_SLOTS];
			if (s->event)
				f->event_destroy(s->event);
			if (s->host)
				f->pinned_free(s->host);
		}
		rt_ahead_free(f, &c->ahead);
		if (c->copy)
			f->stream_destroy(c->copy);
		if (c->compute)
			f->stream_destroy(c->compute);
	}
	dev_work_remove(c->label);
	log_debug("%s: %llu MiB taken from the driver at most", c->label,
		  (unsigned long long)c->held_peak >> 20);
	mem_free(c);
}

int rt_sync(struct dev *d, struct err *e)
{
	TRY(rt_enter(d->priv, e));
	return rt_idle(d->priv, e);
}

int rt_busy(struct dev *d, struct err *e)
{
	TRY(rt_enter(d->priv, e));
	TRY(rt_flush(d->priv, e));
	return rt_under_way(d->priv, e);
}

/* What a driver says is put between bounds. Some say more is free than there is; of a card that
 * shares the host's memory some know a part only, some all of it whatever others hold. */
static void memory_of(const struct rt *c, uint64_t told_free, uint64_t told, struct dev_caps *k)
{
	uint64_t total = c->mem_total > told ? c->mem_total : told, spare = 0;
	for (const struct rt_block *b = c->spare; b; b = b->next)
		spare += b->size;
	if (c->unified) {
		uint64_t host = 0, left = 0;
		os_memory(rt_host_root, &host, &left);
		if (told_free > total)
			total = told_free;
		if (host) {
			told_free = c->v->shared_free(told_free, left);
			total = total < host ? total : host;
		}
	}
	told_free += spare;
	k->mem_total = total;
	k->mem_free = told_free < total ? told_free : total;
}

int rt_caps(struct dev *d, struct dev_caps *k, struct err *e)
{
	struct rt *c = d->priv;
	size_t mem_free = 0, total = 0;
	TRY(rt_enter(c, e));
	if (!c->probed) {
		c->native[DT_BF16] = rt_probe(d, DT_BF16);
		c->native[DT_F16] = rt_probe(d, DT_F16);
		c->probed = true;
	}
	TRY(rt_failed(c, c->f->memory_info(&mem_free, &total), "asking for its memory", e));
	*k = (struct dev_caps){ .mem_seen = c->v->sees_others(c->v->lib->version),
				.units = c->units,
				.bf16 = c->native[DT_BF16],
				.f16 = c->native[DT_F16],
				.unified = c->unified };
	memory_of(c, mem_free, total, k);
	snprintf(k->name, sizeof k->name, "%s", c->name);
	snprintf(k->vendor, sizeof k->vendor, "%s", c->vendor);
	snprintf(k->driver, sizeof k->driver, "%s", c->driver);
	return 0;
}
