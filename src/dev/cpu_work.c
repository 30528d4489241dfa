/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_work.c - what the kernels of cpu/ ask for: scratch memory, and all threads. */
#include "dev/cpu/cpu.h"

#include "base/mem.h"

#include <omp.h>

void *cpu_scratch(struct cpu *c, size_t bytes)
{
	if (bytes > c->scratch_size) {
		void *p = mem_aligned(64, bytes);
		if (!p)
			return NULL;
		mem_free(c->scratch);
		c->scratch = p;
		c->scratch_size = bytes;
	}
	return c->scratch;
}

void cpu_par(struct cpu *c, int64_t n, cpu_chunk_fn fn, void *ctx)
{
	if (n <= 1 || c->threads <= 1) {
		for (int64_t i = 0; i < n; i++)
			fn(ctx, i, 0);
		return;
	}
#pragma omp parallel for schedule(dynamic) num_threads(c->threads)
	for (int64_t i = 0; i < n; i++)
		fn(ctx, i, omp_get_thread_num());
}
