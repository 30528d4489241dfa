/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_check.c - see opencl.h: what a driver is asked before it is trusted. How many passes
 * through loops it runs: Mesa's llvmpipe ends them after 65,535 in one run of a kernel, without a
 * word. Whether its queues wait for each other. Whether a long product comes out right. Whether
 * half precision is native. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/opencl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXT "check"
enum { PASSES = 1 << 20, LATER = 1 << 15, M = 3, N = 5, K = 49152 };

/* The steps are such that no compiler can work out their end. */
static const char loops_text[] =
	"__kernel void loops(__global uint *y, uint n) { uint x = n, i = 0;\n"
	"	for (; i < n; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; y[2 + (i & 1)] = x;\n"
	"		y[1] = i + 1; }\n"
	"	y[0] = x; }\n"
	"__kernel void later(__global uint *y, __global const uint *from, uint n) {\n"
	"	uint x = from[0];\n"
	"	for (uint i = 0; i < n; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5;\n"
	"		y[2 + (i & 1)] = x; }\n"
	"	y[0] = x; }\n";

/* Passes that a lane makes; PASSES or more count as no end. */
static int count_passes(struct opencl *c, cl_program p, struct err *e)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t one = 1;
	const uint32_t n = PASSES;
	uint32_t y[4] = { 0 };
	int32_t rc;
	cl_kernel k = f->clCreateKernel(p, "loops", &rc);
	if (rc == CL_SUCCESS)
		rc = f->clSetKernelArg(k, 0, sizeof c->none, &c->none);
	if (rc == CL_SUCCESS)
		rc = f->clSetKernelArg(k, 1, sizeof n, &n);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &one, &one, 0, NULL, NULL);
	dev_watch_begin(&c->watch, "the check of its loops");
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueReadBuffer(c->queue, c->none, CL_TRUE, 0, sizeof y, y, 0, NULL,
					    NULL);
	dev_watch_end(&c->watch);
	if (k)
		f->clReleaseKernel(k);
	c->passes = y[1] < n ? y[1] : INT64_MAX;
	return opencl_failed(c, rc, "checking its loops", e);
}

/* A slow kernel on one queue, on another one the next, which reads what the first wrote, on the
 * first queue the third. */
static int32_t relay(struct opencl *c, cl_kernel k, const cl_mem b[4], cl_event v[2])
{
	const struct cl_functions *f = &c->lib->f;
	const size_t one = 1;
	const uint32_t n = LATER;
	int32_t rc = CL_SUCCESS;
	for (int i = 0; i < 3 && rc == CL_SUCCESS; i++) {
		rc = f->clSetKernelArg(k, 0, sizeof b[i + 1], &b[i + 1]);
		if (rc == CL_SUCCESS)
			rc = f->clSetKernelArg(k, 1, sizeof b[i], &b[i]);
		if (rc == CL_SUCCESS)
			rc = f->clSetKernelArg(k, 2, sizeof n, &n);
		if (rc == CL_SUCCESS && i == 2)
			rc = f->clEnqueueBarrierWithWaitList(c->queue, 1, &v[1], NULL);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueNDRangeKernel(i == 1 ? c->copy : c->queue, k, 1, NULL,
						       &one, &one, i == 1, i == 1 ? v : NULL,
						       i == 1 ? &v[1] : NULL);
		if (rc == CL_SUCCESS && i == 0)
			rc = f->clEnqueueMarkerWithWaitList(c->queue, 0, NULL, &v[0]);
		if (rc == CL_SUCCESS)
			rc = f->clFlush(i == 1 ? c->copy : c->queue);
	}
	return rc;
}

/* Whether a queue waits for an event of another one, and sees what was written before it. */
static bool queues_wait(struct opencl *c, cl_program p)
{
	const struct cl_functions *f = &c->lib->f;
	const uint32_t first[4] = { 1 }, none[4] = { 0 };
	uint32_t want = 1, got[4] = { 0 };
	cl_mem b[4] = { NULL };
	cl_event v[2] = { NULL };
	int32_t rc;
	cl_kernel k = f->clCreateKernel(p, "later", &rc);
	for (int i = 0; i < 4 && rc == CL_SUCCESS; i++) {
		b[i] = f->clCreateBuffer(c->context, CL_MEM_READ_WRITE, sizeof none, NULL, &rc);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueWriteBuffer(c->queue, b[i], CL_TRUE, 0, sizeof none,
						     i ? none : first, 0, NULL, NULL);
	}
	dev_watch_begin(&c->watch, "the check of its queues");
	if (rc == CL_SUCCESS)
		rc = relay(c, k, b, v);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueReadBuffer(c->queue, b[3], CL_TRUE, 0, sizeof got, got, 0, NULL,
					    NULL);
	f->clFinish(c->copy);
	dev_watch_end(&c->watch);
	for (int i = 0; i < 2; i++)
		if (v[i])
			f->clReleaseEvent(v[i]);
	for (int i = 0; i < 4; i++)
		if (b[i])
			f->clReleaseMemObject(b[i]);
	if (k)
		f->clReleaseKernel(k);
	for (int i = 0; i < 3 * LATER; i++) {
		want ^= want << 13;
		want ^= want >> 17;
		want ^= want << 5;
	}
	return rc == CL_SUCCESS && got[0] == want;
}

/* All work goes to one queue, in the order of the calls. */
static void take_one_queue(struct opencl *c)
{
	log_warn("%s (driver %s): its queues do not wait for each other, so transfers do not run "
		 "beside kernels; another version of the driver may do it",
		 c->who, c->driver);
	c->lib->f.clReleaseCommandQueue(c->copy);
	c->copy = c->queue;
	if (c->side)
		c->lib->f.clReleaseCommandQueue(c->side);
	c->side = NULL;
}

/* C[m,n] = A[m,k] B[n,k]^T in whole numbers whose sums float32 holds exactly; *worst_p: how far it
 * is from that. `v` has room for A and B. */
static int product(struct dev *d, enum dtype t, float *v, int m, int n, int k, double *worst_p,
		   struct err *e)
{
	const size_t na = (size_t)m * (size_t)k, nb = (size_t)n * (size_t)k,
		     nc = (size_t)m * (size_t)n, size = dtype_size(t);
	float *const a = v, *const b = v + na, *const got = b + nb;
	void *const raw = got + nc;
	struct dev_buf buf[3] = { { .dev = d, .size = size * na },
				  { .dev = d, .size = size * nb },
				  { .dev = d, .size = sizeof(float) * nc } };
	int rc = 0, made = 0;
	*worst_p = 0;
	for (size_t i = 0; i < na; i++)
		a[i] = (float)(i % 7) - 2;
	for (size_t i = 0; i < nb; i++)
		b[i] = (float)(i % 11) - 4;
	for (; made < 3; made++)
		TRYOUT(opencl_alloc(d, &buf[made], e));
	dtype_from_f32(t, a, raw, na);
	TRYOUT(opencl_upload(d, DEV_REF(&buf[0], 0), raw, buf[0].size, e));
	dtype_from_f32(t, b, raw, nb);
	TRYOUT(opencl_upload(d, DEV_REF(&buf[1], 0), raw, buf[1].size, e));
	const struct dev_gemm g = { .m = m,
				    .n = n,
				    .k = k,
				    .tb = true,
				    .lda = k,
				    .ldb = k,
				    .ldc = n,
				    .alpha = 1,
				    .ab_dtype = t,
				    .c_dtype = DT_F32,
				    .a = DEV_REF(&buf[0], 0),
				    .b = DEV_REF(&buf[1], 0),
				    .c = DEV_REF(&buf[2], 0) };
	TRYOUT(opencl_gemm(d, &g, e));
	TRYOUT(opencl_download(d, got, g.c, sizeof(float) * nc, e));
	for (size_t i = 0; i < nc; i++) {
		const float *x = a + i / (size_t)n * (size_t)k, *y = b + i % (size_t)n * (size_t)k;
		double want = 0;
		for (int l = 0; l < k; l++)
			want += (double)x[l] * (double)y[l];
		const double off = fabs((double)got[i] - want) / fmax(fabs(want), 1);
		if (!(off <= *worst_p))
			*worst_p = off;
	}
out:
	while (made--)
		opencl_free(d, &buf[made]);
	return rc;
}

static float *room(int m, int n, int k)
{
	const size_t most = (size_t)(m > n ? m : n) * (size_t)k;
	return mem_array((size_t)m * (size_t)k + (size_t)n * (size_t)k + (size_t)m * (size_t)n +
				 most,
			 sizeof(float));
}

static int run(struct dev *d, int *queues_p, struct err *e)
{
	struct opencl *c = d->priv;
	cl_program p;
	TRY(opencl_build(c, c->options, loops_text, strlen(loops_text), &p, e));
	const int counted = count_passes(c, p, e);
	*queues_p = counted < 0 || queues_wait(c, p) ? 2 : 1;
	c->lib->f.clReleaseProgram(p);
	if (counted < 0)
		return counted;
	if (*queues_p == 1)
		take_one_queue(c);
	if (c->passes < INT64_MAX)
		c->blas = false; /* it does not cut its loops */
	float *v = room(M, N, K);
	double worst = 0;
	int rc = v ? product(d, DT_F32, v, M, N, K, &worst, e)
		   : err_nomem(e, sizeof *v * M * K, "a check");
	mem_free(v);
	if (rc == 0 && !(worst <= 1e-6))
		rc = err_set(e, ERR_DEVICE,
			     "%s (driver %s) computes a product of %dx%dx%d wrong, by %.2g of the "
			     "right number: it is not used; install another version of the driver",
			     c->who, c->driver, M, N, K, worst);
	return rc;
}

/* A product of every shape of tiles, at sizes that do not fill them. */
static int check_matrix(struct dev *d, struct err *e)
{
	enum { TM = 140, TN = 150, TK = 72 };
	struct opencl *c = d->priv;
	float *v = room(TM, TN, TK);
	int rc = v ? 0 : err_nomem(e, sizeof *v * TM * TK, "a check");
	for (enum dtype t = DT_BF16; t <= DT_F16 && rc == 0; t++) {
		double worst = 0;
		for (int i = 0; i < GPU_SHAPES && rc == 0 && worst <= 1e-6; i++) {
			c->shape[t] = i;
			/* few rows for the shapes for small sides, the first and the last */
			rc = product(d, t, v, i % GPU_LARGE ? TM : 24, TN, TK, &worst, e);
		}
		c->shape[t] = -1;
		if (rc == 0 && !(worst <= 1e-6))
			rc = err_set(e, ERR_DEVICE,
				     "a product of %s comes out wrong, by %.2g of the right number",
				     dtype_name(t), worst);
	}
	mem_free(v);
	return rc;
}

void opencl_check_matrix(struct dev *d)
{
	struct opencl *c = d->priv;
	struct err e = { 0 };
	if (!c->subgroup || c->matrix_tried)
		return;
	c->matrix_tried = true;
	if (check_matrix(d, &e) == 0 || c->lost)
		return;
	log_warn("%s (driver %s): its matrix units are not used, so 16-bit formats are slow "
		 "(another version of the driver may do it, HS_OPENCL_MATRIX=0 keeps this "
		 "quiet): %s",
		 c->who, c->driver, e.msg);
	opencl_programs_release(c);
	c->subgroup = 0;
}

int opencl_check(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	const char *own = getenv("HS_CLBLAST");
	const bool always = c->blas && own && !strcmp(own, "2");
	struct buf text = BUF_INIT, known = BUF_INIT;
	char key[GPU_KEY], line[64];
	long long passes = 0;
	int rc = 0, queues = 2;
	buf_adds(&text, loops_text);
	buf_addf(&text, "%d %d", c->blas, PASSES);
	gpu_text(DT_F32, &text);
	TRYOUT(buf_ok(&text, e));
	opencl_key(c, c->options, text.p, text.n, key);
	if (gpu_cache_get(key, EXT, &known) && known.n < sizeof line) {
		memcpy(line, known.p, known.n);
		line[known.n] = 0;
		if (sscanf(line, "right, %lld passes, %d queues", &passes, &queues) == 2 &&
		    passes > 0) {
			if (queues == 1)
				take_one_queue(c);
			c->passes = passes;
			c->blas = c->blas && passes == INT64_MAX;
			goto out;
		}
	}
	TRYOUT(run(d, &queues, e));
	const int n = snprintf(line, sizeof line, "right, %lld passes, %d queues",
			       (long long)c->passes, queues);
	gpu_cache_put(key, EXT, line, (size_t)n);
out:
	c->blas |= always && rc == 0;
	buf_release(&text);
	buf_release(&known);
	return rc;
}

/* Runs a chain of multiply-adds in one format on every compute unit. True when it ran and its first
 * result is 3.75; *seconds_p: of the best of 3. */
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
bool opencl_probe_f16(struct opencl *c)
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
	if (!opencl_has_extension(c->lib, c->at.device, "cl_khr_fp16") ||
	    opencl_build(c, c->options, text, strlen(text), &p, &ignored) < 0)
		return false;
	const bool ran = time_chain(c, p, "full", &full) && time_chain(c, p, "part", &part);
	c->lib->f.clReleaseProgram(p);
	return ran && part <= 2 * full;
}
