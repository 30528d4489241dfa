/* SPDX-License-Identifier: Apache-2.0 */
/* dev_hip.c - AMD cards through HIP: its symbols, how a card is called, what cards multiply. All
 * else is rt.h. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTR_INTEGRATED = 16, ATTR_UNITS = 63, PROPERTIES = 8192 };

#define ROW(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct rt_functions, member), 0                                     \
	}
#define MAY(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct rt_functions, member), 1                                     \
	}
static const struct dl_symbol symbols[] = {
	ROW(init, "hipInit"),
	ROW(version, "hipDriverGetVersion"),
	ROW(count, "hipGetDeviceCount"),
	ROW(device, "hipDeviceGet"),
	ROW(device_name, "hipDeviceGetName"),
	ROW(device_memory, "hipDeviceTotalMem"),
	ROW(attribute, "hipDeviceGetAttribute"),
	ROW(memory_info, "hipMemGetInfo"),
	ROW(memory, "hipMalloc"),
	ROW(memory_free, "hipFree"),
	ROW(pinned, "hipHostMalloc"),
	ROW(pinned_free, "hipHostFree"),
	ROW(host_register, "hipHostRegister"),
	ROW(host_unregister, "hipHostUnregister"),
	ROW(upload, "hipMemcpyHtoDAsync"),
	ROW(download, "hipMemcpyDtoHAsync"),
	ROW(copy, "hipMemcpyDtoDAsync"),
	ROW(fill8, "hipMemsetD8Async"),
	ROW(fill32, "hipMemsetD32Async"),
	ROW(stream, "hipStreamCreateWithFlags"),
	ROW(stream_destroy, "hipStreamDestroy"),
	ROW(stream_wait, "hipStreamWaitEvent"),
	ROW(event, "hipEventCreateWithFlags"),
	ROW(event_destroy, "hipEventDestroy"),
	ROW(event_record, "hipEventRecord"),
	ROW(event_query, "hipEventQuery"),
	ROW(module, "hipModuleLoadData"),
	ROW(module_unload, "hipModuleUnload"),
	ROW(module_function, "hipModuleGetFunction"),
	ROW(launch, "hipModuleLaunchKernel"),
	MAY(capture_begin, "hipStreamBeginCapture"),
	MAY(capture_end, "hipStreamEndCapture"),
	MAY(graph_make, "hipGraphInstantiateWithFlags"),
	MAY(graph_launch, "hipGraphLaunch"),
	MAY(graph_free, "hipGraphExecDestroy"),
	MAY(made_free, "hipGraphDestroy"),
	ROW(device_set, "hipSetDevice"),
	ROW(error_text, "hipGetErrorName"),
	MAY(ipc_get, "hipIpcGetMemHandle"),
	MAY(ipc_open, "hipIpcOpenMemHandle"),
	MAY(ipc_close, "hipIpcCloseMemHandle"),
	MAY(properties_6, "hipGetDevicePropertiesR0600"),
	ROW(properties, "hipGetDeviceProperties"),
};

static const char *error(const struct rt_functions *f, int code)
{
	const char *name = f->error_text(code);
	return name ? name : "a HIP error";
}

static int enter(struct rt *c) { return c->f->device_set(c->device); }

/* The name of the architecture ("gfx90a:sramecc+:xnack-") lies in a structure whose layout changes
 * with releases, behind the card's name; no other field of it can look like this one. */
static int find_arch(struct rt *c)
{
	char *p = mem_zalloc(PROPERTIES), *found = NULL;
	if (!p)
		return RT_OUT_OF_MEMORY;
	int code = (c->f->properties_6 ? c->f->properties_6 : c->f->properties)(p, c->device);
	for (size_t i = 0; i + sizeof c->arch < PROPERTIES && code == RT_OK; i++)
		if (!memcmp(p + i, "gfx", 3) && p[i + 3] >= '0' && p[i + 3] <= '9')
			found = p + i;
	if (found)
		snprintf(c->arch, sizeof c->arch, "%.60s", found);
	else if (code == RT_OK)
		code = RT_NO_DEVICE;
	mem_free(p);
	return code;
}

static int describe(struct rt *c, int version)
{
	const int code = find_arch(c);
	c->major = version / 10000000;
	snprintf(c->driver, sizeof c->driver, "HIP %d.%d, %.40s", version / 10000000,
		 version / 100000 % 100, c->arch);
	snprintf(c->vendor, sizeof c->vendor, "AMD");
	return code;
}

/* Drivers count the whole memory as free, or no more than the part they manage. */
static uint64_t shared_free(uint64_t told, uint64_t left) { return told < left ? told : left; }

/* Before ROCm 5.6 free memory was all but what this program holds. */
static bool graphs(int version) { return version >= 60000000; }

static bool sees_others(int version) { return version >= 50600000; }

/* Matrix instructions (CDNA, RDNA 3 on) for both; packed float16 at twice the rate of float32 on
 * gfx906 and RDNA 1 and 2. gfx908 multiplies bfloat16 at half the rate of float16, which is still
 * several times that of float32. */
static bool native(const char *arch, enum dtype t)
{
	static const char *const both[] = {
		"gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12"
	};
	for (size_t i = 0; i < ARRAY_LEN(both); i++)
		if (!strncmp(arch, both[i], strlen(both[i])))
			return true;
	return t == DT_F16 && (!strncmp(arch, "gfx906", 6) || !strncmp(arch, "gfx10", 5));
}

static const char *const names[] = { "libamdhip64.so.8",
				     "libamdhip64.so.7",
				     "libamdhip64.so.6",
				     "libamdhip64.so.5",
				     "libamdhip64.so",
				     "/opt/rocm/lib/libamdhip64.so",
				     "/opt/rocm/core-10/lib/libamdhip64.so",
				     NULL };
/* Linux, Linux under Windows */
static const char *const nodes[] = { "/dev/kfd", "/dev/dxg", NULL };
static struct rt_lib lib;
static const struct rt_vendor hip = {
	.backend = "hip",
	.title = "HIP",
	.env = "HS_HIP_LIBRARY",
	.names = names,
	.nodes = nodes,
	.symbols = symbols,
	.nsymbols = ARRAY_LEN(symbols),
	.rtc = RTC_HIPRTC,
	.attr_units = ATTR_UNITS,
	.attr_unified = ATTR_INTEGRATED,
	.most_groups = UINT32_MAX / GPU_LANES, /* it counts lanes in 32 bits */
	.lib = &lib,
	.error = error,
	.enter = enter,
	.describe = describe,
	.shared_free = shared_free,
	.sees_others = sees_others,
	.graphs = graphs,
	.graph_must_end = true,
	.native = native,
	.trial = rt_rocblas_trial,
	.blas = rt_rocblas,
};

static int hip_count(struct err *e) { return rt_count(&hip, e); }
static int hip_open(struct dev *d, int index, struct err *e) { return rt_open(&hip, d, index, e); }
static int hip_rank(int index) { return rt_rank(&hip, index, 30); }

const struct backend backend_hip = {
	.name = "hip",
	.count = hip_count,
	.rank = hip_rank,
	.open = hip_open,
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
