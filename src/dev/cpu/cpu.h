/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what the CPU backend (dev_cpu.c) and its kernels (this folder) share.
 *
 * The .c files of this folder are compiled once per instruction set: CPU_ISA is the suffix of every
 * symbol they export, and struct cpu_isa is the table of one such compilation. dev_cpu.c picks the
 * best table the processor can run.
 *
 * Work is cut into chunks whose borders depend on the shapes alone, never on the number of threads;
 * who runs a chunk does not change its bits. That makes every kernel deterministic. */
#ifndef HS_DEV_CPU_CPU_H
#define HS_DEV_CPU_CPU_H

#include "dev/dev_text.h"

struct cpu {
	const struct cpu_isa *isa;
	int threads;
	void *scratch; /* grown on demand, kept: a warm step allocates nothing */
	size_t scratch_size;
	struct cpu_gemm *gemm;
	struct cpu_text *texts; /* compiled ones (cpu_text.c) */
	struct dev_caps caps;   /* what does not change; filled at the first question */
	bool probed;
};

/* Runs fn(ctx, i, thread) for i in [0, n). `thread` is in [0, c->threads). Chunks go to threads as
 * they become free. (cpu_work.c) */
typedef void (*cpu_chunk_fn)(void *ctx, int64_t i, int thread);
void cpu_par(struct cpu *c, int64_t n, cpu_chunk_fn fn, void *ctx);

int cpu_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e);
void cpu_texts_release(struct cpu *c);

/* 64-byte aligned memory, valid until the next call; NULL when memory is out. Not cleared. */
void *cpu_scratch(struct cpu *c, size_t bytes);

typedef int (*cpu_kernel_fn)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e);

struct cpu_isa {
	const char *name;
	cpu_kernel_fn kernel[K_COUNT];
	/* C = alpha * A B^T (+ C) for m <= CPU_GEMV_ROWS rows of A (ta unset, tb set): each weight
	 * is read once. False: memory is out. */
	bool (*gemv)(struct cpu *c, const struct dev_gemm *g);
	/* dst[cols,rows] (ldd) = src[rows,cols] (lds) transposed; `size` is 2 or 4 bytes an
	 * element */
	void (*transpose)(struct cpu *c, void *dst, const void *src, int64_t rows, int64_t cols,
			  int64_t lds, int64_t ldd, int size);
};

#define CPU_GEMV_ROWS 4

extern const struct cpu_isa cpu_isa_base;
#if defined(__x86_64__)
extern const struct cpu_isa cpu_isa_v3, cpu_isa_v4, cpu_isa_v4bf16;
#endif

#ifdef CPU_ISA
#define CPU_CAT_(a, b) a##_##b
#define CPU_CAT(a, b) CPU_CAT_(a, b)
#define CPU_SYM(name) CPU_CAT(name, CPU_ISA)

#define KERNEL(name, sig)                                                                          \
	int CPU_SYM(cpu_##name)(struct cpu * c, enum dtype t, const union dev_arg *a,              \
				struct err *e);
#include "dev/kernel.def"
#undef KERNEL
bool CPU_SYM(cpu_gemv)(struct cpu *c, const struct dev_gemm *g);
void CPU_SYM(cpu_transpose)(struct cpu *c, void *dst, const void *src, int64_t rows, int64_t cols,
			    int64_t lds, int64_t ldd, int size);
#endif

/* The address of a buffer argument, NULL for DEV_NONE. */
static inline void *cpu_ptr(union dev_arg a)
{
	return a.b.buf ? (char *)a.b.buf->host + a.b.off : NULL;
}

#endif
