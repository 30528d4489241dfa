/* SPDX-License-Identifier: Apache-2.0 */
/* fake_opencl.c - libOpenCL with faults, for tests: stands in front of the real one, which serves
 * every function that is not here. HS_OPENCL_LIBRARY names it, FAKE_CL says what goes wrong: words
 * separated by blanks.
 *
 *   platforms   the library has no answer when asked for platforms
 *   none        every platform is without a device
 *   devices     platforms have no answer when asked for devices
 *   closed      no device can be opened
 *   gpu         every device says that it is a GPU
 *   memory=N    every device has N MiB
 *   largest=N   a buffer has N MiB at most
 *   lost=N      the Nth launch and all later ones find the device gone
 *   refuse=N    the Nth buffer and all later ones are refused
 *   wrong=K     products over K columns come out wrong
 *   attention=N attention takes N times as long: the rest of the time the host sleeps
 *   early, late, deaf   when kernels run (fake_gates.h)
 *   intel=N     every device says that it has Intel's matrix units, with sub-groups from N lanes on
 *
 * Built without FAKE it is a library that lacks all functions. */
#ifdef FAKE
#include "dev/cl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CL_INVALID_PLATFORM = -32 };

/* -1: the word is not there. */
static long fault(const char *word)
{
	const char *s = getenv("FAKE_CL");
	const size_t n = strlen(word);
	for (; s && *s; s += strcspn(s, " "), s += strspn(s, " "))
		if (!strncmp(s, word, n) && (!s[n] || s[n] == ' ' || s[n] == '='))
			return s[n] == '=' ? atol(s + n + 1) : 0;
	return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CL_DECLARE(name, result, args) __attribute__((visibility("default"))) result name args;
CL_FUNCTIONS(CL_DECLARE)

#include "fake_gates.h"

int32_t clGetPlatformIDs(uint32_t most, cl_platform *p, uint32_t *n)
{
	return fault("platforms") >= 0 ? CL_OUT_OF_HOST_MEMORY : REAL(clGetPlatformIDs)(most, p, n);
}

int32_t clGetDeviceIDs(cl_platform p, uint64_t type, uint32_t most, cl_device *d, uint32_t *n)
{
	if (fault("devices") >= 0)
		return CL_INVALID_PLATFORM;
	return fault("none") >= 0 ? CL_DEVICE_NOT_FOUND : REAL(clGetDeviceIDs)(p, type, most, d, n);
}

int32_t clGetDeviceInfo(cl_device d, uint32_t what, size_t size, void *to, size_t *got)
{
	static const char matrix[] = " cl_intel_subgroup_matrix_multiply_accumulate";
	int32_t rc = REAL(clGetDeviceInfo)(d, what, size, to, got);
	const long lanes = fault("intel");
	if (lanes > 0 && what == CL_DEVICE_EXTENSIONS && to)
		strcat(to, matrix);
	if (lanes > 0 && what == CL_DEVICE_EXTENSIONS && got)
		*got += sizeof matrix;
	if (lanes > 0 && what == CL_DEVICE_SUB_GROUP_SIZES_INTEL && size >= 2 * sizeof(size_t)) {
		const size_t sizes[] = { 32, (size_t)lanes };
		memcpy(to, sizes, sizeof sizes);
		*got = sizeof sizes;
		rc = CL_SUCCESS;
	}
	const long mib = fault("memory");
	if (rc == CL_SUCCESS && to && what == CL_DEVICE_TYPE && fault("gpu") >= 0)
		*(uint64_t *)to = CL_DEVICE_TYPE_GPU;
	if (rc == CL_SUCCESS && to &&
	    (what == CL_DEVICE_GLOBAL_MEM_SIZE || what == CL_DEVICE_MAX_MEM_ALLOC_SIZE) && mib >= 0)
		*(uint64_t *)to = (uint64_t)mib << 20;
	if (rc == CL_SUCCESS && to && what == CL_DEVICE_MAX_MEM_ALLOC_SIZE && fault("largest") >= 0)
		*(uint64_t *)to = (uint64_t)fault("largest") << 20;
	return rc;
}

cl_context clCreateContext(const intptr_t *props, uint32_t n, const cl_device *d,
			   void (*f)(const char *, const void *, size_t, void *), void *arg,
			   int32_t *rc)
{
	if (fault("closed") < 0)
		return REAL(clCreateContext)(props, n, d, f, arg, rc);
	*rc = CL_OUT_OF_HOST_MEMORY;
	return NULL;
}

static long launches, buffers;

/* Argument 12 of gemm is k. For the products that are to be wrong, half of the columns are left
 * out. */
int32_t clSetKernelArg(cl_kernel k, uint32_t at, size_t size, const void *v)
{
	int64_t columns = 0;
	if (fault("wrong") < 0 || at != 12 || size != sizeof columns)
		return REAL(clSetKernelArg)(k, at, size, v);
	memcpy(&columns, v, size);
	if (columns == fault("wrong"))
		columns /= 2;
	return REAL(clSetKernelArg)(k, at, size, &columns);
}

enum { SLOW = 64 };
static cl_kernel slow[SLOW];
static int nslow;

cl_kernel clCreateKernel(cl_program p, const char *name, int32_t *rc)
{
	cl_kernel k = REAL(clCreateKernel)(p, name, rc);
	if (k && fault("attention") > 1 && !strncmp(name, "attn_", 5) && nslow < SLOW)
		slow[nslow++] = k;
	return k;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static bool is_slow(cl_kernel k)
{
	for (int i = 0; i < nslow; i++)
		if (slow[i] == k)
			return true;
	return false;
}

/* Waits for what is queued, then for it, and sleeps. */
static int32_t slowly(cl_queue q, cl_kernel k, uint32_t dim, const size_t *off,
		      const size_t *global, const size_t *local)
{
	REAL(clFinish)(q);
	const int64_t begin = now();
	const int32_t rc =
		REAL(clEnqueueNDRangeKernel)(q, k, dim, off, global, local, 0, NULL, NULL);
	REAL(clFinish)(q);
	const int64_t rest = (now() - begin) * (fault("attention") - 1);
	nanosleep(&(struct timespec){ rest / 1000000000, rest % 1000000000 }, NULL);
	return rc;
}

static bool gone(void) { return fault("lost") >= 0 && launches >= fault("lost"); }

int32_t clEnqueueNDRangeKernel(cl_queue q, cl_kernel k, uint32_t dim, const size_t *off,
			       const size_t *global, const size_t *local, uint32_t n,
			       const void *wait, void *event)
{
	if (!n && !event && is_slow(k))
		return slowly(q, k, dim, off, global, local);
	launches++;
	if (gone())
		return CL_INVALID_COMMAND_QUEUE;
	return early() || late() ? in_order(q, k, dim, off, global, local, n, wait, event)
				 : REAL(clEnqueueNDRangeKernel)(q, k, dim, off, global, local, n,
								wait, event);
}

int32_t clEnqueueReadBuffer(cl_queue q, cl_mem b, uint32_t block, size_t off, size_t n, void *to,
			    uint32_t nwait, const void *wait, void *event)
{
	if (block)
		open_all();
	return gone() ? CL_INVALID_COMMAND_QUEUE
		      : REAL(clEnqueueReadBuffer)(q, b, block, off, n, to, nwait, wait, event);
}

int32_t clWaitForEvents(uint32_t n, const cl_event *v)
{
	open_all();
	return gone() ? CL_INVALID_COMMAND_QUEUE : REAL(clWaitForEvents)(n, v);
}

int32_t clFinish(cl_queue q)
{
	open_all();
	return gone() ? CL_INVALID_COMMAND_QUEUE : REAL(clFinish)(q);
}

cl_mem clCreateBuffer(cl_context c, uint64_t flags, size_t n, void *host, int32_t *rc)
{
	if (fault("refuse") < 0 || ++buffers < fault("refuse"))
		return REAL(clCreateBuffer)(c, flags, n, host, rc);
	*rc = CL_MEM_OBJECT_ALLOCATION_FAILURE;
	return NULL;
}
#endif
