/* SPDX-License-Identifier: Apache-2.0 */
/* dev_cpu_gemm.h - matrix products of the CPU backend by oneDNN. */
#ifndef HS_DEV_DEV_CPU_GEMM_H
#define HS_DEV_DEV_CPU_GEMM_H

#include "dev/cpu/cpu.h"

struct cpu_gemm;

int cpu_gemm_new(struct cpu_gemm **g_p, int threads, struct err *e);
void cpu_gemm_free(struct cpu_gemm *g); /* NULL is allowed */
/* As dev_gemm() of dev.h; m and n are at least 1. */
int cpu_gemm_run(struct cpu *c, const struct dev_gemm *g, struct err *e);
/* The library's name for the code it would run for this product ("brg:avx512_core_bf16"); a static
 * text of oneDNN. */
int cpu_gemm_name(struct cpu *c, const struct dev_gemm *g, const char **name_p, struct err *e);
const char *cpu_gemm_version(void);

#endif
