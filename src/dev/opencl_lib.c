/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_lib.c - opens libOpenCL and lists the devices of all its platforms. A platform that fails
 * is skipped with a warning: a broken driver of one vendor does not hide the others. The library
 * stays open until the process ends, as drivers keep threads of their own. */
#include "dev/opencl.h"

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opencl_lib the;
static bool opened;

const char *opencl_error(int32_t code)
{
	static const struct {
		int32_t code;
		const char *name;
	} names[] = {
		{ -1, "CL_DEVICE_NOT_FOUND" },
		{ -2, "CL_DEVICE_NOT_AVAILABLE" },
		{ -3, "CL_COMPILER_NOT_AVAILABLE" },
		{ -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
		{ -5, "CL_OUT_OF_RESOURCES" },
		{ -6, "CL_OUT_OF_HOST_MEMORY" },
		{ -8, "CL_MEM_COPY_OVERLAP" },
		{ -11, "CL_BUILD_PROGRAM_FAILURE" },
		{ -14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST" },
		{ -30, "CL_INVALID_VALUE" },
		{ -32, "CL_INVALID_PLATFORM" },
		{ -33, "CL_INVALID_DEVICE" },
		{ -34, "CL_INVALID_CONTEXT" },
		{ -36, "CL_INVALID_COMMAND_QUEUE" },
		{ -38, "CL_INVALID_MEM_OBJECT" },
		{ -42, "CL_INVALID_BINARY" },
		{ -43, "CL_INVALID_BUILD_OPTIONS" },
		{ -45, "CL_INVALID_PROGRAM_EXECUTABLE" },
		{ -46, "CL_INVALID_KERNEL_NAME" },
		{ -48, "CL_INVALID_KERNEL" },
		{ -49, "CL_INVALID_ARG_INDEX" },
		{ -50, "CL_INVALID_ARG_VALUE" },
		{ -51, "CL_INVALID_ARG_SIZE" },
		{ -52, "CL_INVALID_KERNEL_ARGS" },
		{ -54, "CL_INVALID_WORK_GROUP_SIZE" },
		{ -55, "CL_INVALID_WORK_ITEM_SIZE" },
		{ -61, "CL_INVALID_BUFFER_SIZE" },
		{ -1001, "CL_PLATFORM_NOT_FOUND_KHR" },
		{ -9999, "illegal read or write of a buffer (NVIDIA)" },
	};
	static _Thread_local char number[32];
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i].code == code)
			return names[i].name;
	snprintf(number, sizeof number, "OpenCL error %d", (int)code);
	return number;
}

void opencl_text(const struct opencl_lib *l, cl_device d, uint32_t what, char *s, size_t n)
{
	char text[1024];
	size_t got = 0;
	s[0] = 0;
	if (l->f.clGetDeviceInfo(d, what, sizeof text - 1, text, &got) != CL_SUCCESS ||
	    got > sizeof text - 1)
		return;
	text[got] = 0;
	const char *from = text + strspn(text, " ");
	snprintf(s, n, "%s", from);
	for (size_t i = strlen(s); i && s[i - 1] == ' ';)
		s[--i] = 0;
}

uint64_t opencl_number(const struct opencl_lib *l, cl_device d, uint32_t what, size_t size)
{
	uint64_t v = 0; /* the smaller types lie in its first bytes */
	uint32_t u = 0;
	if (size == sizeof u)
		return l->f.clGetDeviceInfo(d, what, size, &u, NULL) == CL_SUCCESS ? u : 0;
	return l->f.clGetDeviceInfo(d, what, sizeof v, &v, NULL) == CL_SUCCESS ? v : 0;
}

int opencl_subgroup(const struct opencl_lib *l, cl_device d)
{
	size_t size[16] = { 0 }, got = 0, least = 0;
	const char *own = getenv("HS_OPENCL_MATRIX");
	if ((own && !strcmp(own, "0")) ||
	    !opencl_has_extension(l, d, "cl_intel_subgroup_matrix_multiply_accumulate") ||
	    opencl_number(l, d, CL_DEVICE_LOCAL_MEM_SIZE, 8) < OPENCL_TILES_LOCAL ||
	    l->f.clGetDeviceInfo(d, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof size, size, &got) !=
		    CL_SUCCESS)
		return 0;
	for (size_t i = 0; i < got / sizeof *size && i < ARRAY_LEN(size); i++)
		if (!least || size[i] < least)
			least = size[i];
	return least == 8 || least == 16 ? (int)least : 0;
}

bool opencl_is_cpu(const struct opencl_lib *l, int index)
{
	const uint64_t type = opencl_number(l, l->place[index].device, CL_DEVICE_TYPE, 8);
	return !(type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR));
}

bool opencl_wants_side(bool cpu)
{
	const char *asked = getenv("HS_OPENCL_AHEAD");
	return asked && asked[0] ? strcmp(asked, "0") != 0 : !cpu;
}

bool opencl_has_extension(const struct opencl_lib *l, cl_device d, const char *name)
{
	const struct cl_functions *f = &l->f;
	size_t n = 0;
	bool has = false;
	if (f->clGetDeviceInfo(d, CL_DEVICE_EXTENSIONS, 0, NULL, &n) != CL_SUCCESS || !n)
		return false;
	char *all = mem_zalloc(n + 1);
	if (all && f->clGetDeviceInfo(d, CL_DEVICE_EXTENSIONS, n, all, NULL) == CL_SUCCESS)
		has = strstr(all, name) != NULL;
	mem_free(all);
	return has;
}

bool opencl_free_memory(const struct opencl_lib *l, cl_device d, uint64_t *free_p)
{
	size_t kib[2] = { 0 };
	if (!opencl_has_extension(l, d, "cl_amd_device_attribute_query") ||
	    l->f.clGetDeviceInfo(d, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL) !=
		    CL_SUCCESS)
		return false;
	*free_p = (uint64_t)kib[0] << 10;
	return true;
}

static void list_platform(struct opencl_lib *l, cl_platform p)
{
	cl_device d[OPENCL_MOST];
	char name[128] = "";
	uint32_t n = 0;
	l->f.clGetPlatformInfo(p, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
	int32_t rc = l->f.clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, OPENCL_MOST, d, &n);
	if (rc == CL_DEVICE_NOT_FOUND)
		return;
	if (rc != CL_SUCCESS) {
		log_warn("OpenCL platform '%s' is left out: its driver answers %s when asked for "
			 "devices",
			 name, opencl_error(rc));
		return;
	}
	for (uint32_t i = 0; i < n && i < OPENCL_MOST && l->count < OPENCL_MOST; i++) {
		char text[128];
		opencl_text(l, d[i], CL_DEVICE_NAME, text, sizeof text);
		const uint64_t lanes = opencl_number(l, d[i], CL_DEVICE_MAX_WORK_GROUP_SIZE,
						     sizeof(size_t)),
			       local = opencl_number(l, d[i], CL_DEVICE_LOCAL_MEM_SIZE,
						     sizeof(uint64_t));
		if (!opencl_number(l, d[i], CL_DEVICE_AVAILABLE, 4) ||
		    !opencl_number(l, d[i], CL_DEVICE_COMPILER_AVAILABLE, 4))
			log_warn("OpenCL device '%s' is left out: it is not available, or has no "
				 "compiler",
				 text);
		else if (lanes < GPU_LANES || local < GPU_LOCAL_BYTES)
			log_warn("OpenCL device '%s' is left out: the kernels need work-groups of "
				 "%d and %d bytes of local memory, "
				 "it has "
				 "%llu and %llu",
				 text, GPU_LANES, GPU_LOCAL_BYTES, (unsigned long long)lanes,
				 (unsigned long long)local);
		else
			l->place[l->count++] = (struct opencl_place){ p, d[i] };
	}
}

static int open_all(struct opencl_lib *l, struct err *e)
{
	const char *own = getenv("HS_OPENCL_LIBRARY");
#ifdef __APPLE__
	const char *names[] = { own ? own : "/System/Library/Frameworks/OpenCL.framework/OpenCL",
				NULL };
#else
	const char *names[] = { own ? own : "libOpenCL.so.1", own ? NULL : "libOpenCL.so", NULL };
#endif
#define CL_ROW(name, result, args) { #name, offsetof(struct cl_functions, name), 0 },
	static const struct dl_symbol symbols[] = { CL_FUNCTIONS(CL_ROW) };
#undef CL_ROW
	cl_platform p[32];
	uint32_t n = 0;
	void *handle;
	int rc = dl_open(names, symbols, ARRAY_LEN(symbols), &l->f, &handle, e);
	if (rc == ERR_UNSUPPORTED && !own) {
		err_clear(e); /* no OpenCL here: a fact, not a failure */
		return 0;
	}
	if (rc < 0)
		return rc;
	int32_t cl = l->f.clGetPlatformIDs(ARRAY_LEN(p), p, &n);
	if (cl == CL_PLATFORM_NOT_FOUND_KHR)
		return 0;
	if (cl != CL_SUCCESS)
		return err_set(e, ERR_DEVICE, "libOpenCL answers %s when asked for its platforms",
			       opencl_error(cl));
	for (uint32_t i = 0; i < n && i < ARRAY_LEN(p); i++)
		list_platform(l, p[i]);
	return 0;
}

int opencl_lib_open(const struct opencl_lib **lib_p, struct err *e)
{
	int rc = 0;
	pthread_mutex_lock(&lock);
	if (!opened)
		rc = open_all(&the, e);
	if (rc == 0)
		opened = true;
	pthread_mutex_unlock(&lock);
	if (rc == 0)
		*lib_p = &the;
	return rc;
}
