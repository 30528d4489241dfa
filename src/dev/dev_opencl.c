/* SPDX-License-Identifier: Apache-2.0 */
/* dev_opencl.c - any device with an OpenCL 1.2 driver: two queues in order, launches, waiting.
 * Memory and transfers are in opencl_memory.c, the library in opencl_lib.c, compiling in
 * opencl_program.c, the kernels and how they are launched in gpu.c and kernel/.
 *
 * A buffer is a cl_mem; kernels get it with an offset, as sub-buffers must lie on coarse borders.
 * Launches run behind; what goes wrong there may show only in a later call. All dtypes are stored
 * by their bits and computed in float32, so no device lacks one. */
#include "dev/opencl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* launches after which a mark is set, and a driver that waits for more is told to begin */
#define MARK_EVERY 16
#define MARK_FLOPS 2e10 /* or as much work in products */

static int opencl_count(struct err *e)
{
	const struct opencl_lib *l;
	int rc = opencl_lib_open(&l, e);
	return rc < 0 ? rc : l->count;
}

/* A device with memory of its own before one that shares the processor's. An OpenCL driver for the
 * processor itself is slower than cpu. */
static int opencl_rank(int index)
{
	const struct opencl_lib *l;
	struct err ignored = { 0 };
	if (opencl_lib_open(&l, &ignored) < 0 || index >= l->count || opencl_is_cpu(l, index))
		return 0;
	return opencl_number(l, l->place[index].device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) ? 20 : 21;
}

static bool is_lost(int32_t code)
{
	return code == CL_DEVICE_NOT_AVAILABLE || code == CL_EXEC_STATUS_ERROR ||
	       code == CL_INVALID_DEVICE || code == CL_INVALID_CONTEXT ||
	       code == CL_INVALID_COMMAND_QUEUE || code == CL_ILLEGAL_ACCESS_NV;
}

int opencl_failed(struct opencl *c, int32_t code, const char *what, struct err *e)
{
	if (code == CL_SUCCESS)
		return 0;
	if (is_lost(code)) {
		c->lost = true;
		return err_set(e, ERR_DEVICE,
			       "%s is lost (%s: %s): it was removed, reset, or its driver failed "
			       "(see the system's log); "
			       "'heteroshard devices' shows what is still there",
			       c->who, what, opencl_error(code));
	}
	const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
			    code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
	return err_set(e, memory ? ERR_NOMEM : ERR_DEVICE, "%s: %s: %s", c->who, what,
		       opencl_error(code));
}

/* ---- waiting ---- */

int32_t opencl_wait_event(struct opencl *c, cl_event v, const char *what)
{
	dev_watch_begin(&c->watch, what);
	const int32_t rc = c->lib->f.clWaitForEvents(1, &v);
	dev_watch_end(&c->watch);
	return rc;
}

static void drop_oldest(struct opencl *c)
{
	c->lib->f.clReleaseEvent(c->mark[c->first_mark]);
	c->first_mark = (c->first_mark + 1) % OPENCL_MARKS;
	c->marks--;
}

static int32_t wait_oldest(struct opencl *c, const char *what)
{
	const uint64_t at = c->mark_at[c->first_mark];
	const int32_t rc = opencl_wait_event(c, c->mark[c->first_mark], what);
	drop_oldest(c);
	if (rc == CL_SUCCESS && c->finished < at)
		c->finished = at;
	return rc;
}

/* When as many marks are under way as there is room for, the oldest has to come first. */
int32_t opencl_launched(struct opencl *c, double flops)
{
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	c->launched++;
	c->flops += flops;
	if (++c->queued < MARK_EVERY && c->flops < MARK_FLOPS)
		return CL_SUCCESS;
	c->queued = 0;
	c->flops = 0;
	if (c->marks == OPENCL_MARKS)
		rc = wait_oldest(c, "a kernel");
	const int last = (c->first_mark + c->marks) % OPENCL_MARKS;
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->mark[last]);
	if (rc != CL_SUCCESS)
		return rc;
	c->mark_at[last] = c->launched;
	c->marks++;
	return f->clFlush(c->queue);
}

int32_t opencl_wait_until(struct opencl *c, uint64_t at, const char *what)
{
	int32_t rc = CL_SUCCESS;
	while (c->marks && c->mark_at[c->first_mark] <= at && rc == CL_SUCCESS)
		rc = wait_oldest(c, what);
	return rc;
}

static void drop_tail(struct opencl *c)
{
	if (c->tail)
		c->lib->f.clReleaseEvent(c->tail);
	c->tail = NULL;
}

static int32_t finish(struct opencl *c, const char *what)
{
	int32_t rc = opencl_wait_until(c, UINT64_MAX, what);
	c->queued = 0;
	c->flops = 0;
	dev_watch_begin(&c->watch, what);
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFinish(c->queue);
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFinish(c->copy);
	dev_watch_end(&c->watch);
	if (rc == CL_SUCCESS) {
		c->finished = c->launched;
		c->seen = c->copies;
	}
	return rc;
}

static int opencl_sync(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	TRY(opencl_download_end(d, e));
	drop_tail(c);
	return opencl_failed(c, finish(c, "a kernel"), "waiting for it", e);
}

/* Whether an event has come; its error, if it is one. */
static int32_t look_at(struct opencl *c, cl_event v, bool *come_p)
{
	int32_t status = 1;
	const int32_t rc = c->lib->f.clGetEventInfo(v, CL_EVENT_COMMAND_EXECUTION_STATUS,
						    sizeof status, &status, NULL);
	*come_p = status <= 0;
	return rc != CL_SUCCESS ? rc : status < 0 ? status : CL_SUCCESS;
}

/* Between the first question and the last answer the watch looks on, from one mark to the next. */
static int opencl_busy(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	bool come = true, some = !atomic_load_explicit(&c->watch.since, memory_order_relaxed);
	if (c->finished == c->launched)
		return 0;
	if (c->tail && c->tail_at != c->launched)
		drop_tail(c);
	if (!c->tail) {
		rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->tail);
		c->tail_at = c->launched;
		if (rc == CL_SUCCESS)
			rc = f->clFlush(c->queue);
	}
	while (rc == CL_SUCCESS && c->marks &&
	       (rc = look_at(c, c->mark[c->first_mark], &come)) == CL_SUCCESS && come) {
		drop_oldest(c);
		some = true;
	}
	if (rc == CL_SUCCESS)
		rc = look_at(c, c->tail, &come);
	if (rc != CL_SUCCESS || come) {
		dev_watch_end(&c->watch);
		drop_tail(c);
		c->finished = c->launched;
		return opencl_failed(c, rc, "a kernel", e);
	}
	if (some)
		dev_watch_begin(&c->watch, "a kernel");
	return 1;
}

static void opencl_close(struct dev *d)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	if (c->copy && !c->lost)
		finish(c, "closing it");
	while (c->marks)
		drop_oldest(c);
	drop_tail(c);
	opencl_pieces_release(c);
	dev_watch_close(&c->watch);
	opencl_programs_release(c);
	if (c->none)
		f->clReleaseMemObject(c->none);
	if (c->copy)
		f->clReleaseCommandQueue(c->copy);
	if (c->queue)
		f->clReleaseCommandQueue(c->queue);
	if (c->context)
		f->clReleaseContext(c->context);
	mem_free(c);
}

static int opencl_open(struct dev *d, int index, struct err *e)
{
	const struct opencl_lib *l;
	int32_t rc;
	TRY(opencl_lib_open(&l, e));
	struct opencl *c = mem_zalloc(sizeof *c);
	if (!c)
		return err_nomem(e, sizeof *c, "a device");
	c->lib = l;
	c->at = l->place[index];
	opencl_text(l, c->at.device, CL_DEVICE_NAME, c->name, sizeof c->name);
	opencl_text(l, c->at.device, CL_DEVICE_VENDOR, c->vendor, sizeof c->vendor);
	opencl_text(l, c->at.device, CL_DRIVER_VERSION, c->driver, sizeof c->driver);
	c->mem_total = opencl_number(l, c->at.device, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
	c->mem_largest = opencl_number(l, c->at.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
	c->blas = opencl_blas_use();
	d->priv = c;
	const char *more = getenv("HS_OPENCL_OPTIONS");
	snprintf(c->options, sizeof c->options, "-cl-std=CL1.2%s%s", more ? " " : "",
		 more ? more : "");
	snprintf(c->who, sizeof c->who, "opencl:%d (%s)", index, c->name);
	dev_watch_open(&c->watch, c->who);
	c->context = l->f.clCreateContext(NULL, 1, &c->at.device, NULL, NULL, &rc);
	if (rc == CL_SUCCESS)
		c->queue = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &rc);
	if (rc == CL_SUCCESS)
		c->copy = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &rc);
	if (rc == CL_SUCCESS)
		c->none = l->f.clCreateBuffer(c->context, CL_MEM_READ_WRITE, 64, NULL, &rc);
	if (rc != CL_SUCCESS) {
		opencl_failed(c, rc, "opening it", e);
		opencl_close(d);
		return e->code;
	}
	return 0;
}

static bool has_extension(struct opencl *c, const char *name)
{
	const struct cl_functions *f = &c->lib->f;
	size_t n = 0;
	bool has = false;
	if (f->clGetDeviceInfo(c->at.device, CL_DEVICE_EXTENSIONS, 0, NULL, &n) != CL_SUCCESS || !n)
		return false;
	char *all = mem_zalloc(n + 1);
	if (all &&
	    f->clGetDeviceInfo(c->at.device, CL_DEVICE_EXTENSIONS, n, all, NULL) == CL_SUCCESS)
		has = strstr(all, name) != NULL;
	mem_free(all);
	return has;
}

/* Runs a chain of multiply-adds in one format on every compute unit: 3.75 has come out at its
 * beginning. Seconds of the best of 3. */
static bool time_chain(struct opencl *c, cl_program p, const char *entry, double *seconds_p)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES,
		     global = local * 8 *
			      (size_t)opencl_number(c->lib, c->at.device,
						    CL_DEVICE_MAX_COMPUTE_UNITS, 4);
	const float x = 1.5f;
	float y[2] = { 0 };
	int64_t least = INT64_MAX;
	int32_t rc = CL_SUCCESS;
	cl_kernel k = f->clCreateKernel(p, entry, &rc);
	if (rc == CL_SUCCESS)
		rc = f->clSetKernelArg(k, 0, sizeof c->none, &c->none);
	if (rc == CL_SUCCESS)
		rc = f->clSetKernelArg(k, 1, sizeof x, &x);
	for (int i = 0; i < 4 && rc == CL_SUCCESS; i++) {
		const int64_t begin = clock_now();
		rc = f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &global, &local, 0, NULL,
					       NULL);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueReadBuffer(c->queue, c->none, CL_TRUE, 0, sizeof y, y, 0,
						    NULL, NULL);
		const int64_t took = clock_now() - begin;
		if (i && took < least)
			least = took;
	}
	if (k)
		f->clReleaseKernel(k);
	*seconds_p = clock_seconds(least);
	return rc == CL_SUCCESS && y[0] == 3.75f;
}

/* Half precision counts where the driver names it, a kernel that computes in it gives the right
 * number, and takes at most twice as long as the same in float32: native units take as long or half
 * of it, cards that have them for compatibility only 64 times (GP102). */
static bool probe_f16(struct opencl *c)
{
	static const char text[] =
		"#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
		"#define CHAIN(name, T) __kernel void name(__global float *y, float x) { \\\n"
		"	T a = (T)x, b = a * a + a, c = b - b * a, p = b, q = b, r = b, s = b; \\\n"
		"	for (int i = 0; i < 2048; i++) { p = p * a + c; q = q * a + c; r = r * a + "
		"c; s = s * a + c; } \\\n"
		"	y[get_global_id(0) & 1] = (float)((p + q + r + s) * (T)0.25f); }\n"
		"CHAIN(full, float)\n"
		"CHAIN(part, half)\n";
	struct err ignored = { 0 };
	double full = 0, part = 0;
	cl_program p;
	if (!has_extension(c, "cl_khr_fp16") ||
	    opencl_build(c, text, strlen(text), &p, &ignored) < 0)
		return false;
	const bool ran = time_chain(c, p, "full", &full) && time_chain(c, p, "part", &part);
	c->lib->f.clReleaseProgram(p);
	return ran && part <= 2 * full;
}

bool opencl_free_memory(struct opencl *c, uint64_t *free_p)
{
	size_t kib[2] = { 0 };
	if (!has_extension(c, "cl_amd_device_attribute_query") ||
	    c->lib->f.clGetDeviceInfo(c->at.device, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib,
				      kib, NULL) != CL_SUCCESS)
		return false;
	*free_p = (uint64_t)kib[0] << 10;
	return true;
}

static int opencl_caps(struct dev *d, struct dev_caps *k, struct err *e)
{
	struct opencl *c = d->priv;
	(void)e;
	if (!c->probed) {
		c->f16 = probe_f16(c);
		c->probed = true;
	}
	*k = (struct dev_caps){
		.mem_total = c->mem_total,
		.mem_free = c->mem_total > d->mem_used ? c->mem_total - d->mem_used : 0,
		.units = (int)opencl_number(c->lib, c->at.device, CL_DEVICE_MAX_COMPUTE_UNITS, 4),
		.f16 = c->f16,
		.unified =
			opencl_number(c->lib, c->at.device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0
	};
	k->mem_seen = opencl_free_memory(c, &k->mem_free);
	snprintf(k->name, sizeof k->name, "%s", c->name);
	snprintf(k->vendor, sizeof k->vendor, "%s", c->vendor);
	snprintf(k->driver, sizeof k->driver, "OpenCL, %.44s%s", c->driver,
		 c->blas ? ", CLBlast" : "");
	return 0;
}

static int run_step(struct opencl *c, const struct gpu_step *s, enum dtype t, const char *sig,
		    const union dev_arg *a, double flops, struct err *e)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES, global = (size_t)s->groups * GPU_LANES;
	cl_kernel k;
	uint32_t at = 0;
	int32_t rc = CL_SUCCESS;
	TRY(opencl_kernel(c, s->entry, t, &k, e));
	for (int i = 0; sig[i] && rc == CL_SUCCESS; i++) {
		if (sig[i] == 'b') {
			TRY(opencl_use(c, a[i].b.buf, e));
			const cl_mem m = a[i].b.buf ? opencl_mem(a[i].b.buf) : c->none;
			const int64_t off = a[i].b.buf ? (int64_t)a[i].b.off : -1;
			rc = f->clSetKernelArg(k, at++, sizeof m, &m);
			if (rc == CL_SUCCESS)
				rc = f->clSetKernelArg(k, at++, sizeof off, &off);
		} else {
			rc = f->clSetKernelArg(
				k, at++, sig[i] == 'f' ? sizeof a[i].f : sizeof a[i].i,
				sig[i] == 'f' ? (const void *)&a[i].f : (const void *)&a[i].i);
		}
	}
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &global, &local, 0, NULL,
					       NULL);
	if (rc == CL_SUCCESS)
		rc = opencl_launched(c, flops);
	return opencl_failed(c, rc, gpu_entry_name(s->entry), e);
}

static bool opencl_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16 || t == DT_F16);
}

static int opencl_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a,
			 struct err *e)
{
	struct gpu_step s[GPU_STEPS];
	if (!opencl_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no kernel %s for %s",
			       dev_kernel_name(k), dtype_name(t));
	int n = gpu_steps(k, a, s, e);
	for (int i = 0; i < n; i++)
		TRY(run_step(d->priv, &s[i], gpu_program_of(k, t), dev_kernel_sig(k), a, 0, e));
	return n < 0 ? n : 0;
}

static int opencl_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	union dev_arg a[GPU_ARGS];
	if (g->ab_dtype > DT_F16 || (g->c_dtype != g->ab_dtype && g->c_dtype != DT_F32))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no matrix product of %s into %s",
			       dtype_name(g->ab_dtype), dtype_name(g->c_dtype));
	const double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
	TRY(opencl_use(d->priv, g->a.buf, e));
	TRY(opencl_use(d->priv, g->b.buf, e));
	TRY(opencl_use(d->priv, g->c.buf, e));
	if (opencl_blas_gemm(d->priv, g))
		return opencl_failed(d->priv, opencl_launched(d->priv, flops), "a product", e);
	const struct gpu_step s = gpu_gemm(g, a);
	return run_step(d->priv, &s, g->ab_dtype, GPU_GEMM_SIG, a, flops, e);
}

const struct backend backend_opencl = {
	.name = "opencl",
	.count = opencl_count,
	.rank = opencl_rank,
	.open = opencl_open,
	.close = opencl_close,
	.caps = opencl_caps,
	.alloc = opencl_alloc,
	.free = opencl_free,
	.upload = opencl_upload,
	.download = opencl_download,
	.copy = opencl_copy,
	.zero = opencl_zero,
	.gemm = opencl_gemm,
	.launch = opencl_launch,
	.sync = opencl_sync,
	.download_begin = opencl_download_begin,
	.download_end = opencl_download_end,
	.busy = opencl_busy,
	.has = opencl_has,
};
