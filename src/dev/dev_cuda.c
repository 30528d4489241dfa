/* SPDX-License-Identifier: Apache-2.0 */
/* dev_cuda.c - NVIDIA cards through the CUDA driver: its symbols, its context, what its cards
 * multiply. All else is rt.h. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTR_UNITS = 16, ATTR_INTEGRATED = 18, ATTR_MAJOR = 75, ATTR_MINOR = 76 };

#define ROW(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct rt_functions, member), 0                                     \
	}
#define MAY(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct rt_functions, member), 1                                     \
	}
static const struct dl_symbol symbols[] = {
	ROW(init, "cuInit"),
	ROW(version, "cuDriverGetVersion"),
	ROW(count, "cuDeviceGetCount"),
	ROW(device, "cuDeviceGet"),
	ROW(device_name, "cuDeviceGetName"),
	ROW(device_memory, "cuDeviceTotalMem_v2"),
	ROW(attribute, "cuDeviceGetAttribute"),
	ROW(memory_info, "cuMemGetInfo_v2"),
	ROW(memory, "cuMemAlloc_v2"),
	ROW(memory_free, "cuMemFree_v2"),
	ROW(pinned, "cuMemHostAlloc"),
	ROW(pinned_free, "cuMemFreeHost"),
	ROW(host_register, "cuMemHostRegister_v2"),
	ROW(host_unregister, "cuMemHostUnregister"),
	ROW(upload, "cuMemcpyHtoDAsync_v2"),
	ROW(download, "cuMemcpyDtoHAsync_v2"),
	ROW(copy, "cuMemcpyDtoDAsync_v2"),
	ROW(fill8, "cuMemsetD8Async"),
	ROW(fill32, "cuMemsetD32Async"),
	ROW(stream, "cuStreamCreate"),
	ROW(stream_destroy, "cuStreamDestroy_v2"),
	ROW(stream_wait, "cuStreamWaitEvent"),
	ROW(event, "cuEventCreate"),
	ROW(event_destroy, "cuEventDestroy_v2"),
	ROW(event_record, "cuEventRecord"),
	ROW(event_query, "cuEventQuery"),
	ROW(module, "cuModuleLoadData"),
	ROW(module_unload, "cuModuleUnload"),
	ROW(module_function, "cuModuleGetFunction"),
	ROW(launch, "cuLaunchKernel"),
	MAY(capture_begin, "cuStreamBeginCapture_v2"),
	MAY(capture_end, "cuStreamEndCapture"),
	MAY(graph_make, "cuGraphInstantiateWithFlags"),
	MAY(graph_launch, "cuGraphLaunch"),
	MAY(graph_free, "cuGraphExecDestroy"),
	MAY(made_free, "cuGraphDestroy"),
	ROW(context, "cuDevicePrimaryCtxRetain"),
	ROW(context_set, "cuCtxSetCurrent"),
	ROW(error_name, "cuGetErrorName"),
	MAY(ipc_get, "cuIpcGetMemHandle"),
	MAY(ipc_open, "cuIpcOpenMemHandle_v2"),
	MAY(ipc_close, "cuIpcCloseMemHandle"),
};

static const char *error(const struct rt_functions *f, int code)
{
	static _Thread_local char number[32];
	const char *name = NULL;
	if (f->error_name(code, &name) == RT_OK && name)
		return name;
	snprintf(number, sizeof number, "CUDA error %d", code);
	return number;
}

static int enter(struct rt *c) { return c->f->context_set(c->context); }

static int describe(struct rt *c, int version)
{
	int major = 0, minor = 0;
	int code = c->f->attribute(&major, ATTR_MAJOR, c->device);
	if (code == RT_OK)
		code = c->f->attribute(&minor, ATTR_MINOR, c->device);
	/* the card's one context is never released: libraries keep things in it when a device is
	 * closed and opened again */
	if (code == RT_OK)
		code = c->f->context(&c->context, c->device);
	c->major = version / 1000;
	snprintf(c->arch, sizeof c->arch, "sm_%d%d", major, minor);
	snprintf(c->driver, sizeof c->driver, "CUDA %d.%d, %.16s", version / 1000,
		 version % 1000 / 10, c->arch);
	snprintf(c->vendor, sizeof c->vendor, "NVIDIA");
	return code;
}

/* Here the page cache, which reading the weights fills, counts as used; it can be reclaimed. */
static uint64_t shared_free(uint64_t told, uint64_t left) { return told > left ? told : left; }

static bool graphs(int version) { return version >= 12000; }

static bool sees_others(int version)
{
	(void)version;
	return true;
}

/* Tensor cores: float16 from Volta (7.0), bfloat16 from Ampere (8.0). */
static bool native(const char *arch, enum dtype t)
{
	const long cc = strtol(arch + strlen("sm_"), NULL, 10);
	return t == DT_BF16 ? cc >= 80 : cc >= 70;
}

static const char *const names[] = { "libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1",
				     NULL };
static struct rt_lib lib;
static const struct rt_vendor cuda = {
	.backend = "cuda",
	.title = "CUDA",
	.env = "HS_CUDA_LIBRARY",
	.names = names,
	.symbols = symbols,
	.nsymbols = ARRAY_LEN(symbols),
	.rtc = RTC_NVRTC,
	.attr_units = ATTR_UNITS,
	.attr_unified = ATTR_INTEGRATED,
	.most_groups = INT32_MAX,
	.lib = &lib,
	.error = error,
	.enter = enter,
	.describe = describe,
	.shared_free = shared_free,
	.sees_others = sees_others,
	.graphs = graphs,
	.native = native,
	.blas = rt_cublaslt,
};

static int cuda_count(struct err *e) { return rt_count(&cuda, e); }
static int cuda_open(struct dev *d, int index, struct err *e)
{
	return rt_open(&cuda, d, index, e);
}
static int cuda_rank(int index) { return rt_rank(&cuda, index, 40); }

const struct backend backend_cuda = {
	.name = "cuda",
	.count = cuda_count,
	.rank = cuda_rank,
	.open = cuda_open,
	.close = rt_close,
	.caps = rt_caps,
	.alloc = rt_alloc,
	.free = rt_free,
	.upload = rt_upload,
	.download = rt_download,
	.copy = rt_copy,
	.zero = rt_zero,
	.gemm = rt_gemm,
	.launch = rt_launch,
	.launch_text = rt_launch_text,
	.sync = rt_sync,
	.repeat_begin = rt_repeat_begin,
	.repeat_end = rt_repeat_end,
	.download_begin = rt_download_begin,
	.pin = rt_pin,
	.unpin = rt_unpin,
	.download_end = rt_download_end,
	.busy = rt_busy,
	.meet = rt_meet,
	.has = rt_has,
};
