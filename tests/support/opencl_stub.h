/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_stub.h - what OpenCL C 1.2 declares of what the kernels use, and sub-groups, so that a
 * clang without OpenCL's headers can check their text. */
#define __OPENCL_VERSION__ 120
#define OVERLOADED __attribute__((overloadable))
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
#define VECTOR(type, n) typedef type type##n __attribute__((ext_vector_type(n)))
VECTOR(uint, 2);
VECTOR(uint, 4);
VECTOR(uint, 8);
VECTOR(int, 8);
VECTOR(short, 8);
VECTOR(ushort, 8);
VECTOR(float, 4);
VECTOR(float, 8);
VECTOR(float, 16);
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
void OVERLOADED barrier(uint flags) __attribute__((convergent));
size_t OVERLOADED get_local_id(uint dim);
size_t OVERLOADED get_group_id(uint dim);
#define as_uint(x) __builtin_astype(x, uint)
#define as_float(x) __builtin_astype(x, float)
#define as_ushort(x) __builtin_astype(x, ushort)
#define ONE(name) float OVERLOADED name(float x);
ONE(exp)
ONE(log)
ONE(sqrt)
ONE(sin)
ONE(cos)
ONE(ceil)
ONE(tanh)
ONE(erf)
ONE(floor)
ONE(fabs)
ONE(rint)
ONE(native_exp2)
ONE(native_log2)
ONE(native_recip)
float OVERLOADED fmax(float x, float y);
float OVERLOADED fmin(float x, float y);
float OVERLOADED pow(float x, float y);
uint OVERLOADED mul_hi(uint x, uint y);
#define ROWS_OF(n)                                                                                 \
	float##n OVERLOADED vload##n(size_t i, const __local float *p);                            \
	float##n OVERLOADED vload##n(size_t i, const float *p);                                    \
	void OVERLOADED vstore##n(float##n v, size_t i, float *p);
ROWS_OF(4)
ROWS_OF(16)
uint OVERLOADED get_sub_group_local_id(void);
uint OVERLOADED get_sub_group_id(void);
