/* SPDX-License-Identifier: Apache-2.0 */
/* hip_stub.h - what the kernels of src/dev/kernel use of HIP, for a bare clang: enough to make code
 * for an architecture that the installed hipRTC does not know yet. The mathematical functions stay
 * undefined: nothing is linked. Used by test_dev_compile.c only. */
#ifndef HS_TESTS_SUPPORT_HIP_STUB_H
#define HS_TESTS_SUPPORT_HIP_STUB_H
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
struct lane {
	unsigned x;
};
#define threadIdx (lane{ __builtin_amdgcn_workitem_id_x() })
#define blockIdx (lane{ __builtin_amdgcn_workgroup_id_x() })
extern "C" {
__device__ float expf(float);
__device__ float logf(float);
__device__ float sinf(float);
__device__ float cosf(float);
__device__ float tanhf(float);
__device__ float erff(float);
}
#define sqrtf __builtin_sqrtf
#define ceilf __builtin_ceilf
#define fmaxf __builtin_fmaxf
__device__ inline void __syncthreads()
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
__device__ inline float __uint_as_float(unsigned u) { return __builtin_bit_cast(float, u); }
__device__ inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)(((unsigned long long)a * b) >> 32);
}
#endif
