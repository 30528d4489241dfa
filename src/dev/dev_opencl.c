/* SPDX-License-Identifier: Apache-2.0 */
/* dev_opencl.c - any device with an OpenCL 1.2 driver: opening it, what it can do. Each file uses
 * those before it: opencl_lib.c the library, opencl_queue.c waiting, opencl_program.c compiling,
 * opencl_memory.c buffers and transfers, opencl_blas.c CLBlast, opencl_launch.c kernels and
 * products, opencl_check.c whether the driver computes right.
 *
 * A buffer is a cl_mem; kernels get it with an offset, as sub-buffers must lie on coarse borders.
 * Launches run behind; what goes wrong there may show only in a later call. All dtypes are stored
 * by their bits and computed in float32, so no device lacks one. */
#include "dev/opencl.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int opencl_sync(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	TRY(opencl_download_end(d, e));
	return opencl_failed(c, opencl_finish(c, "a kernel"), "waiting for it", e);
}

static int opencl_busy(struct dev *d, struct err *e) { return opencl_under_way(d->priv, e); }

static void opencl_close(struct dev *d)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	if (c->copy && !c->lost)
		opencl_finish(c, "closing it");
	opencl_queue_release(c);
	opencl_sums_release(d);
	opencl_pieces_release(c);
	dev_watch_close(&c->watch);
	opencl_programs_release(c);
	if (c->none)
		f->clReleaseMemObject(c->none);
	if (c->side)
		f->clReleaseCommandQueue(c->side);
	if (c->copy && c->copy != c->queue)
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
	c->cpu = opencl_is_cpu(l, index);
	opencl_text(l, c->at.device, CL_DEVICE_NAME, c->name, sizeof c->name);
	opencl_text(l, c->at.device, CL_DEVICE_VENDOR, c->vendor, sizeof c->vendor);
	opencl_text(l, c->at.device, CL_DRIVER_VERSION, c->driver, sizeof c->driver);
	d->units = (int)opencl_number(l, c->at.device, CL_DEVICE_MAX_COMPUTE_UNITS, 4);
	c->mem_total = opencl_number(l, c->at.device, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
	c->mem_largest = opencl_number(l, c->at.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
	c->blas = opencl_blas_use(c->cpu);
	c->passes = INT64_MAX;
	d->priv = c;
	for (size_t t = 0; t < ARRAY_LEN(c->shape); t++)
		c->shape[t] = -1;
	c->subgroup = opencl_subgroup(l, c->at.device);
	const char *more = getenv("HS_OPENCL_OPTIONS");
	snprintf(c->options, sizeof c->options, "-cl-std=CL1.2%s%s", more ? " " : "",
		 more ? more : "");
	snprintf(c->tile_options, sizeof c->tile_options,
		 "%s -DHS_SUBGROUP=%d -cl-intel-256-GRF-per-thread", c->options, c->subgroup);
	snprintf(c->who, sizeof c->who, "opencl:%d (%s)", index, c->name);
	dev_watch_open(&c->watch, c->who);
	c->context = l->f.clCreateContext(NULL, 1, &c->at.device, NULL, NULL, &rc);
	if (rc == CL_SUCCESS)
		c->queue = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &rc);
	if (rc == CL_SUCCESS)
		c->copy = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &rc);
	int32_t ignored; /* without it nothing runs ahead */
	if (rc == CL_SUCCESS && opencl_wants_side(c->cpu))
		c->side = l->f.clCreateCommandQueue(c->context, c->at.device, 0, &ignored);
	if (rc == CL_SUCCESS)
		c->none = l->f.clCreateBuffer(c->context, CL_MEM_READ_WRITE, 64, NULL, &rc);
	int code = opencl_failed(c, rc, "opening it", e);
	if (code == 0)
		code = opencl_check(d, e);
	if (code < 0)
		opencl_close(d);
	return code;
}

static int opencl_caps(struct dev *d, struct dev_caps *k, struct err *e)
{
	struct opencl *c = d->priv;
	(void)e;
	if (!c->probed) {
		opencl_check_matrix(d);
		c->f16 = c->subgroup || opencl_probe_f16(c);
		c->probed = true;
	}
	*k = (struct dev_caps){ .mem_total = c->mem_total,
				.mem_free =
					c->mem_total > d->mem_used ? c->mem_total - d->mem_used : 0,
				.units = d->units,
				.bf16 = c->subgroup != 0,
				.f16 = c->f16,
				.unified = opencl_number(c->lib, c->at.device,
							 CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0 };
	k->mem_seen = opencl_free_memory(c->lib, c->at.device, &k->mem_free);
	snprintf(k->name, sizeof k->name, "%s", c->name);
	snprintf(k->vendor, sizeof k->vendor, "%s", c->vendor);
	snprintf(k->driver, sizeof k->driver, "OpenCL, %.44s%s", c->driver,
		 c->blas ? ", CLBlast" : "");
	return 0;
}

/* Matrix units are tried before the first 16-bit work. */
static int gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	if (g->ab_dtype != DT_F32)
		opencl_check_matrix(d);
	return opencl_gemm(d, g, e);
}

static int launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a,
		  struct err *e)
{
	if (t != DT_F32)
		opencl_check_matrix(d);
	return opencl_launch(d, k, t, a, e);
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
	.gemm = gemm,
	.launch = launch,
	.launch_text = opencl_launch_text,
	.sync = opencl_sync,
	.download_begin = opencl_download_begin,
	.download_end = opencl_download_end,
	.busy = opencl_busy,
	.meet = opencl_meet,
	.has = opencl_has,
};
