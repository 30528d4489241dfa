/* dev_opencl.c - any device with an OpenCL 1.2 driver: memory, one queue in order, launches. The library is in opencl_lib.c, compiling in
 * opencl_program.c, the kernels and how they are launched in gpu.c and kernel/.
 *
 * A buffer is a cl_mem; kernels get it with an offset, as sub-buffers must lie on coarse borders. Launches run behind; what goes wrong
 * there may show only in a later call. All dtypes are stored by their bits and computed in float32, so no device lacks one. */
#include "dev/opencl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK_EVERY 16   /* launches after which a mark is set, and a driver that waits for more is told to begin */
#define MARK_FLOPS 2e10 /* or as much work in products */

static int opencl_count(struct err *e)
{
	const struct opencl_lib *l;
	int rc = opencl_lib_open(&l, e);
	return rc < 0 ? rc : l->count;
}

/* A device with memory of its own before one that shares the processor's. An OpenCL driver for the processor itself is slower than cpu. */
static int opencl_rank(int index)
{
	const struct opencl_lib *l;
	struct err ignored = { 0 };
	if (opencl_lib_open(&l, &ignored) < 0 || index >= l->count || opencl_is_cpu(l, index))
		return 0;
	return opencl_number(l, l->place[index].device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) ? 20 : 21;
}

static cl_mem mem_of(const struct dev_buf *b) { return (cl_mem)(uintptr_t)b->handle; }

static bool is_lost(int32_t code)
{
	return code == CL_DEVICE_NOT_AVAILABLE || code == CL_EXEC_STATUS_ERROR || code == CL_INVALID_DEVICE ||
	       code == CL_INVALID_CONTEXT || code == CL_INVALID_COMMAND_QUEUE || code == CL_ILLEGAL_ACCESS_NV;
}

static int failed(struct opencl *c, int32_t code, const char *what, struct err *e)
{
	if (code == CL_SUCCESS)
		return 0;
	if (is_lost(code)) {
		c->lost = true;
		return err_set(e, ERR_DEVICE,
			       "%s is lost (%s: %s): it was removed, reset, or its driver failed (see the system's log); "
			       "'heteroshard devices' shows what is still there",
			       c->who, what, opencl_error(code));
	}
	const bool memory =
		code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
	return err_set(e, memory ? ERR_NOMEM : ERR_DEVICE, "%s: %s: %s", c->who, what, opencl_error(code));
}

/* ---- waiting ---- */

static int32_t wait_oldest(struct opencl *c, const char *what)
{
	const struct cl_functions *f = &c->lib->f;
	cl_event v = c->mark[c->first_mark];
	c->first_mark = (c->first_mark + 1) % OPENCL_MARKS;
	c->marks--;
	dev_watch_begin(&c->watch, what);
	int32_t rc = f->clWaitForEvents(1, &v);
	dev_watch_end(&c->watch);
	f->clReleaseEvent(v);
	return rc;
}

/* Behind a launch. When as many marks are under way as there is room for, the oldest has to come first. */
static int32_t set_mark(struct opencl *c, double flops)
{
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	c->flops += flops;
	if (++c->queued < MARK_EVERY && c->flops < MARK_FLOPS)
		return CL_SUCCESS;
	c->queued = 0;
	c->flops = 0;
	if (c->marks == OPENCL_MARKS)
		rc = wait_oldest(c, "a kernel");
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &c->mark[(c->first_mark + c->marks) % OPENCL_MARKS]);
	if (rc == CL_SUCCESS)
		c->marks++;
	return rc == CL_SUCCESS ? f->clFlush(c->queue) : rc;
}

/* Waits for all marks; what was launched behind the last one is left to the call that follows. */
static int32_t wait_all(struct opencl *c, const char *what)
{
	int32_t rc = CL_SUCCESS;
	while (c->marks && rc == CL_SUCCESS)
		rc = wait_oldest(c, what);
	c->queued = 0;
	c->flops = 0;
	return rc;
}

static void release_pieces(struct opencl *c);

static void opencl_close(struct dev *d)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	if (c->queue && !c->lost && wait_all(c, "closing it") == CL_SUCCESS)
		f->clFinish(c->queue);
	for (; c->marks; c->marks--, c->first_mark = (c->first_mark + 1) % OPENCL_MARKS)
		f->clReleaseEvent(c->mark[c->first_mark]);
	release_pieces(c);
	dev_watch_close(&c->watch);
	opencl_programs_release(c);
	if (c->none)
		f->clReleaseMemObject(c->none);
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
	snprintf(c->options, sizeof c->options, "-cl-std=CL1.2%s%s", more ? " " : "", more ? more : "");
	snprintf(c->who, sizeof c->who, "opencl:%d (%s)", index, c->name);
	dev_watch_open(&c->watch, c->who);
	c->context = l->f.clCreateContext(NULL, 1, &c->at.device, NULL, NULL, &rc);
	if (rc == CL_SUCCESS)
		c->queue = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &rc);
	if (rc == CL_SUCCESS)
		c->none = l->f.clCreateBuffer(c->context, CL_MEM_READ_WRITE, 64, NULL, &rc);
	if (rc != CL_SUCCESS) {
		failed(c, rc, "opening it", e);
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
	if (all && f->clGetDeviceInfo(c->at.device, CL_DEVICE_EXTENSIONS, n, all, NULL) == CL_SUCCESS)
		has = strstr(all, name) != NULL;
	mem_free(all);
	return has;
}

/* Runs a chain of multiply-adds in one format on every compute unit: 3.75 has come out at its beginning. Seconds of the best of 3. */
static bool time_chain(struct opencl *c, cl_program p, const char *entry, double *seconds_p)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES,
		     global = local * 8 * (size_t)opencl_number(c->lib, c->at.device, CL_DEVICE_MAX_COMPUTE_UNITS, 4);
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
		rc = f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &global, &local, 0, NULL, NULL);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueReadBuffer(c->queue, c->none, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL);
		const int64_t took = clock_now() - begin;
		if (i && took < least)
			least = took;
	}
	if (k)
		f->clReleaseKernel(k);
	*seconds_p = clock_seconds(least);
	return rc == CL_SUCCESS && y[0] == 3.75f;
}

/* Half precision counts where the driver names it, a kernel that computes in it gives the right number, and takes at most twice as
 * long as the same in float32: native units take as long or half of it, cards that have them for compatibility only 64 times (GP102). */
static bool probe_f16(struct opencl *c)
{
	static const char text[] =
		"#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
		"#define CHAIN(name, T) __kernel void name(__global float *y, float x) { \\\n"
		"	T a = (T)x, b = a * a + a, c = b - b * a, p = b, q = b, r = b, s = b; \\\n"
		"	for (int i = 0; i < 2048; i++) { p = p * a + c; q = q * a + c; r = r * a + c; s = s * a + c; } \\\n"
		"	y[get_global_id(0) & 1] = (float)((p + q + r + s) * (T)0.25f); }\n"
		"CHAIN(full, float)\n"
		"CHAIN(part, half)\n";
	struct err ignored = { 0 };
	double full = 0, part = 0;
	cl_program p;
	if (!has_extension(c, "cl_khr_fp16") || opencl_build(c, text, strlen(text), &p, &ignored) < 0)
		return false;
	const bool ran = time_chain(c, p, "full", &full) && time_chain(c, p, "part", &part);
	c->lib->f.clReleaseProgram(p);
	return ran && part <= 2 * full;
}

/* What others hold is told by AMD's drivers only. */
static bool free_memory(struct opencl *c, uint64_t *free_p)
{
	size_t kib[2] = { 0 };
	if (!has_extension(c, "cl_amd_device_attribute_query") ||
	    c->lib->f.clGetDeviceInfo(c->at.device, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL) != CL_SUCCESS)
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
	*k = (struct dev_caps){ .mem_total = c->mem_total,
				.mem_free = c->mem_total > d->mem_used ? c->mem_total - d->mem_used : 0,
				.units = (int)opencl_number(c->lib, c->at.device, CL_DEVICE_MAX_COMPUTE_UNITS, 4),
				.f16 = c->f16,
				.unified = opencl_number(c->lib, c->at.device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0 };
	k->mem_seen = free_memory(c, &k->mem_free);
	snprintf(k->name, sizeof k->name, "%s", c->name);
	snprintf(k->vendor, sizeof k->vendor, "%s", c->vendor);
	snprintf(k->driver, sizeof k->driver, "OpenCL, %.44s%s", c->driver, c->blas ? ", CLBlast" : "");
	return 0;
}

static int opencl_alloc(struct dev *d, struct dev_buf *b, struct err *e)
{
	struct opencl *c = d->priv;
	int32_t rc = CL_MEM_OBJECT_ALLOCATION_FAILURE;
	cl_mem m = NULL;
	/* drivers may take memory only at the first use: what cannot fit is refused here */
	if (b->size <= c->mem_largest && (!c->mem_total || d->mem_used + b->size <= c->mem_total))
		m = c->lib->f.clCreateBuffer(c->context, CL_MEM_READ_WRITE, b->size, NULL, &rc);
	if (rc == CL_SUCCESS) {
		b->handle = (uint64_t)(uintptr_t)m;
		return 0;
	}
	char others[80] = "";
	uint64_t free = 0;
	if (free_memory(c, &free))
		snprintf(others, sizeof others, ", others hold %llu",
			 (unsigned long long)(c->mem_total > free + d->mem_used ? c->mem_total - free - d->mem_used : 0) >> 20);
	return err_set(
		e, ERR_NOMEM,
		"%s is out of memory: %zu MiB were asked for (%s); of its %llu MiB this program holds %llu%s, and one buffer may "
		"have %llu",
		c->who, b->size >> 20, opencl_error(rc), (unsigned long long)c->mem_total >> 20,
		(unsigned long long)d->mem_used >> 20, others, (unsigned long long)c->mem_largest >> 20);
}

static void opencl_free(struct dev *d, struct dev_buf *b)
{
	struct opencl *c = d->priv;
	c->lib->f.clReleaseMemObject(mem_of(b)); /* the driver keeps it until what is queued has run */
}

/* ---- transfers ---- */

static void release_pieces(struct opencl *c)
{
	const struct cl_functions *f = &c->lib->f;
	for (int i = 0; i < OPENCL_PIECES; i++) {
		struct opencl_piece *p = &c->piece[i];
		if (p->taken)
			f->clReleaseEvent(p->taken);
		if (p->host && !c->lost)
			f->clEnqueueUnmapMemObject(c->queue, p->mem, p->host, 0, NULL, NULL);
		if (p->mem)
			f->clReleaseMemObject(p->mem);
		*p = (struct opencl_piece){ 0 };
	}
}

/* The next piece, free to be filled; NULL with CL_SUCCESS: there are none. */
static struct opencl_piece *free_piece(struct opencl *c, int32_t *rc_p)
{
	const struct cl_functions *f = &c->lib->f;
	struct opencl_piece *p = &c->piece[c->next_piece];
	*rc_p = CL_SUCCESS;
	if (c->no_pieces)
		return NULL;
	if (!p->mem) {
		int32_t rc;
		p->mem = f->clCreateBuffer(c->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, OPENCL_PIECE, NULL, &rc);
		if (rc == CL_SUCCESS)
			p->host = f->clEnqueueMapBuffer(c->queue, p->mem, CL_TRUE, CL_MAP_READ_WRITE, 0, OPENCL_PIECE, 0, NULL,
							NULL, &rc);
		c->no_pieces = rc != CL_SUCCESS;
		if (c->no_pieces)
			return NULL;
	}
	if (p->taken) {
		dev_watch_begin(&c->watch, "an upload");
		*rc_p = f->clWaitForEvents(1, &p->taken);
		dev_watch_end(&c->watch);
		f->clReleaseEvent(p->taken);
		p->taken = NULL;
	}
	c->next_piece = (c->next_piece + 1) % OPENCL_PIECES;
	return p;
}

static int opencl_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	for (size_t at = 0; at < n && rc == CL_SUCCESS;) {
		struct opencl_piece *p = free_piece(c, &rc);
		const size_t some = p && n - at > OPENCL_PIECE ? OPENCL_PIECE : n - at;
		if (rc != CL_SUCCESS)
			break;
		if (p) {
			memcpy(p->host, (const char *)src + at, some);
			rc = f->clEnqueueWriteBuffer(c->queue, mem_of(dst.buf), 0, dst.off + at, some, p->host, 0, NULL, &p->taken);
		} else {
			rc = wait_all(c, "an upload");
			dev_watch_begin(&c->watch, "an upload");
			if (rc == CL_SUCCESS)
				rc = f->clEnqueueWriteBuffer(c->queue, mem_of(dst.buf), CL_TRUE, dst.off + at, some,
							     (const char *)src + at, 0, NULL, NULL);
			dev_watch_end(&c->watch);
		}
		at += some;
	}
	return failed(c, rc, "upload", e);
}

static int opencl_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	int32_t rc = wait_all(c, "a download");
	dev_watch_begin(&c->watch, "a download");
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clEnqueueReadBuffer(c->queue, mem_of(src.buf), CL_TRUE, src.off, n, dst, 0, NULL, NULL);
	dev_watch_end(&c->watch);
	return failed(c, rc, "download", e);
}

static int opencl_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	const cl_mem from = mem_of(src.buf), to = mem_of(dst.buf);
	if (from != to || dst.off >= src.off + n || src.off >= dst.off + n)
		return failed(c, f->clEnqueueCopyBuffer(c->queue, from, to, src.off, dst.off, n, 0, NULL, NULL), "copy", e);
	if (dst.off == src.off)
		return 0;
	/* OpenCL copies no range onto itself */
	int32_t rc;
	cl_mem tmp = f->clCreateBuffer(c->context, CL_MEM_READ_WRITE, n, NULL, &rc);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueCopyBuffer(c->queue, from, tmp, src.off, 0, n, 0, NULL, NULL);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueCopyBuffer(c->queue, tmp, to, 0, dst.off, n, 0, NULL, NULL);
	if (tmp)
		f->clReleaseMemObject(tmp);
	return failed(c, rc, "copy", e);
}

static int opencl_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e)
{
	static const uint8_t zeros[16];
	struct opencl *c = d->priv;
	const size_t width = (dst.off | n) % 16 == 0 ? 16 : (dst.off | n) % 4 == 0 ? 4 : 1;
	return failed(c, c->lib->f.clEnqueueFillBuffer(c->queue, mem_of(dst.buf), zeros, width, dst.off, n, 0, NULL, NULL),
		      "clearing", e);
}

static int run_step(struct opencl *c, const struct gpu_step *s, enum dtype t, const char *sig, const union dev_arg *a, double flops,
		    struct err *e)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES, global = (size_t)s->groups * GPU_LANES;
	cl_kernel k;
	uint32_t at = 0;
	int32_t rc = CL_SUCCESS;
	TRY(opencl_kernel(c, s->entry, t, &k, e));
	for (int i = 0; sig[i] && rc == CL_SUCCESS; i++) {
		if (sig[i] == 'b') {
			const cl_mem m = a[i].b.buf ? mem_of(a[i].b.buf) : c->none;
			const int64_t off = a[i].b.buf ? (int64_t)a[i].b.off : -1;
			rc = f->clSetKernelArg(k, at++, sizeof m, &m);
			if (rc == CL_SUCCESS)
				rc = f->clSetKernelArg(k, at++, sizeof off, &off);
		} else {
			rc = f->clSetKernelArg(k, at++, sig[i] == 'f' ? sizeof a[i].f : sizeof a[i].i,
					       sig[i] == 'f' ? (const void *)&a[i].f : (const void *)&a[i].i);
		}
	}
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &global, &local, 0, NULL, NULL);
	if (rc == CL_SUCCESS)
		rc = set_mark(c, flops);
	return failed(c, rc, gpu_entry_name(s->entry), e);
}

static bool opencl_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16 || t == DT_F16);
}

static int opencl_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct gpu_step s[GPU_STEPS];
	if (!opencl_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no kernel %s for %s", dev_kernel_name(k), dtype_name(t));
	int n = gpu_steps(k, a, s, e);
	for (int i = 0; i < n; i++)
		TRY(run_step(d->priv, &s[i], gpu_program_of(k, t), dev_kernel_sig(k), a, 0, e));
	return n < 0 ? n : 0;
}

static int opencl_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	union dev_arg a[GPU_ARGS];
	if (g->ab_dtype > DT_F16 || (g->c_dtype != g->ab_dtype && g->c_dtype != DT_F32))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no matrix product of %s into %s", dtype_name(g->ab_dtype),
			       dtype_name(g->c_dtype));
	const double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
	if (opencl_blas_gemm(d->priv, g))
		return failed(d->priv, set_mark(d->priv, flops), "a product", e);
	const struct gpu_step s = gpu_gemm(g, a);
	return run_step(d->priv, &s, g->ab_dtype, GPU_GEMM_SIG, a, flops, e);
}

static int opencl_sync(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	int32_t rc = wait_all(c, "a kernel");
	dev_watch_begin(&c->watch, "a kernel");
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFinish(c->queue);
	dev_watch_end(&c->watch);
	return failed(c, rc, "waiting for it", e);
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
	.has = opencl_has,
};
