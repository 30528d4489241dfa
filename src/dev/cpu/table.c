/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the kernels of one instruction set. */
#include "dev/cpu/cpu.h"

#define CPU_STR_(x) #x
#define CPU_STR(x) CPU_STR_(x)

const struct cpu_isa CPU_SYM(cpu_isa) = {
	.name = CPU_STR(CPU_ISA),
	.kernel = {
#define KERNEL(name, sig) [K_##name] = CPU_SYM(cpu_##name),
#include "dev/kernel.def"
#undef KERNEL
	},
	.gemv = CPU_SYM(cpu_gemv),
	.transpose = CPU_SYM(cpu_transpose),
};
