/* SPDX-License-Identifier: Apache-2.0 */
/* cl.h - the part of the OpenCL 1.2 interface that the backend uses, so that building needs no
 * vendor's headers.
 *
 * Types and numbers: Khronos, "The OpenCL Specification", version 1.2, and cl.h 1.2. The functions
 * are opened at run time. */
#ifndef HS_DEV_CL_H
#define HS_DEV_CL_H

#include <stddef.h>
#include <stdint.h>

typedef struct cl_platform_ *cl_platform;
typedef struct cl_device_ *cl_device;
typedef struct cl_context_ *cl_context;
typedef struct cl_queue_ *cl_queue;
typedef struct cl_mem_ *cl_mem;
typedef struct cl_program_ *cl_program;
typedef struct cl_kernel_ *cl_kernel;
typedef struct cl_event_ *cl_event;

enum {
	CL_SUCCESS = 0,
	CL_DEVICE_NOT_FOUND = -1,
	CL_DEVICE_NOT_AVAILABLE = -2,
	CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
	CL_OUT_OF_RESOURCES = -5,
	CL_OUT_OF_HOST_MEMORY = -6,
	CL_EXEC_STATUS_ERROR = -14, /* of events in a wait list */
	CL_INVALID_DEVICE = -33,
	CL_INVALID_CONTEXT = -34,
	CL_INVALID_COMMAND_QUEUE = -36,
	CL_PLATFORM_NOT_FOUND_KHR = -1001,
	CL_ILLEGAL_ACCESS_NV = -9999,
	CL_TRUE = 1,

	CL_PLATFORM_VERSION = 0x0901,
	CL_PLATFORM_NAME = 0x0902,

	CL_DEVICE_TYPE = 0x1000,
	CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
	CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
	CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
	CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
	CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
	CL_DEVICE_AVAILABLE = 0x1027,
	CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
	CL_DEVICE_NAME = 0x102B,
	CL_DEVICE_VENDOR = 0x102C,
	CL_DRIVER_VERSION = 0x102D,
	CL_DEVICE_VERSION = 0x102F,
	CL_DEVICE_EXTENSIONS = 0x1030,
	CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
	/* size_t[]: cl_intel_required_subgroup_size */
	CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108,
	/* size_t[2]: KiB free, KiB of the largest block */
	CL_DEVICE_GLOBAL_FREE_MEMORY_AMD = 0x4039,

	CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3, /* 0: it has run; negative: it failed */

	CL_PROGRAM_BINARY_SIZES = 0x1165,
	CL_PROGRAM_BINARIES = 0x1166,
	CL_PROGRAM_BUILD_LOG = 0x1183,
};

#define CL_DEVICE_TYPE_GPU 4ull
#define CL_DEVICE_TYPE_ACCELERATOR 8ull
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFull
#define CL_MEM_READ_WRITE 1ull
#define CL_MEM_ALLOC_HOST_PTR 16ull
#define CL_MAP_READ_WRITE 3ull

/* name, result, arguments */
#define CL_FUNCTIONS(F)                                                                            \
	F(clGetPlatformIDs, int32_t, (uint32_t, cl_platform *, uint32_t *))                        \
	F(clGetPlatformInfo, int32_t, (cl_platform, uint32_t, size_t, void *, size_t *))           \
	F(clGetDeviceIDs, int32_t, (cl_platform, uint64_t, uint32_t, cl_device *, uint32_t *))     \
	F(clGetDeviceInfo, int32_t, (cl_device, uint32_t, size_t, void *, size_t *))               \
	F(clCreateContext, cl_context,                                                             \
	  (const intptr_t *, uint32_t, const cl_device *,                                          \
	   void (*)(const char *, const void *, size_t, void *), void *, int32_t *))               \
	F(clReleaseContext, int32_t, (cl_context))                                                 \
	F(clCreateCommandQueue, cl_queue, (cl_context, cl_device, uint64_t, int32_t *))            \
	F(clReleaseCommandQueue, int32_t, (cl_queue))                                              \
	F(clCreateBuffer, cl_mem, (cl_context, uint64_t, size_t, void *, int32_t *))               \
	F(clReleaseMemObject, int32_t, (cl_mem))                                                   \
	F(clCreateProgramWithSource, cl_program,                                                   \
	  (cl_context, uint32_t, const char **, const size_t *, int32_t *))                        \
	F(clCreateProgramWithBinary, cl_program,                                                   \
	  (cl_context, uint32_t, const cl_device *, const size_t *, const unsigned char **,        \
	   int32_t *, int32_t *))                                                                  \
	F(clBuildProgram, int32_t,                                                                 \
	  (cl_program, uint32_t, const cl_device *, const char *, void (*)(cl_program, void *),    \
	   void *))                                                                                \
	F(clGetProgramInfo, int32_t, (cl_program, uint32_t, size_t, void *, size_t *))             \
	F(clGetProgramBuildInfo, int32_t,                                                          \
	  (cl_program, cl_device, uint32_t, size_t, void *, size_t *))                             \
	F(clReleaseProgram, int32_t, (cl_program))                                                 \
	F(clCreateKernel, cl_kernel, (cl_program, const char *, int32_t *))                        \
	F(clReleaseKernel, int32_t, (cl_kernel))                                                   \
	F(clSetKernelArg, int32_t, (cl_kernel, uint32_t, size_t, const void *))                    \
	F(clEnqueueNDRangeKernel, int32_t,                                                         \
	  (cl_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *,          \
	   uint32_t, const void *, void *))                                                        \
	F(clEnqueueReadBuffer, int32_t,                                                            \
	  (cl_queue, cl_mem, uint32_t, size_t, size_t, void *, uint32_t, const void *, void *))    \
	F(clEnqueueWriteBuffer, int32_t,                                                           \
	  (cl_queue, cl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const void *,       \
	   void *))                                                                                \
	F(clEnqueueCopyBuffer, int32_t,                                                            \
	  (cl_queue, cl_mem, cl_mem, size_t, size_t, size_t, uint32_t, const void *, void *))      \
	F(clEnqueueFillBuffer, int32_t,                                                            \
	  (cl_queue, cl_mem, const void *, size_t, size_t, size_t, uint32_t, const void *,         \
	   void *))                                                                                \
	F(clEnqueueMapBuffer, void *,                                                              \
	  (cl_queue, cl_mem, uint32_t, uint64_t, size_t, size_t, uint32_t, const void *, void *,   \
	   int32_t *))                                                                             \
	F(clEnqueueUnmapMemObject, int32_t,                                                        \
	  (cl_queue, cl_mem, void *, uint32_t, const void *, void *))                              \
	F(clEnqueueBarrierWithWaitList, int32_t, (cl_queue, uint32_t, const void *, cl_event *))   \
	F(clGetEventInfo, int32_t, (cl_event, uint32_t, size_t, void *, size_t *))                 \
	F(clEnqueueMarkerWithWaitList, int32_t, (cl_queue, uint32_t, const void *, cl_event *))    \
	F(clWaitForEvents, int32_t, (uint32_t, const cl_event *))                                  \
	F(clReleaseEvent, int32_t, (cl_event))                                                     \
	F(clFlush, int32_t, (cl_queue))                                                            \
	F(clFinish, int32_t, (cl_queue))

struct cl_functions {
#define CL_MEMBER(name, result, args) result(*name) args;
	CL_FUNCTIONS(CL_MEMBER)
#undef CL_MEMBER
};

#endif
