/* SPDX-License-Identifier: Apache-2.0 */
/* fake_kernels.c - the CUDA and HIP side of the kernels as plain C, for the stand-in of a card in
 * fake_rt.c. HS_T is the dtype. A work-group is 128 fibers on one thread. They switch at barriers
 * and where the lanes of a wave wait for each other, so what __shared__ holds can be static.
 * FAKE_TEXT names a file with a text that is not the program's own: then this is that text alone.
 * FAKE_CARD: a card with matrix units, named by its compiler's macro, or by the host's:
 * then this is attention and products alone, as the text has them for that card (fake_tiles.h). */
#include <math.h>
#include <stdbool.h>

struct lane {
	unsigned x;
};

struct lane fake_thread, fake_block;
void (*fake_barrier)(void);
void (*fake_wave)(int lanes);

#define threadIdx fake_thread
#define blockIdx fake_block
#define __syncthreads() fake_barrier()
#define __global__
#define __device__
#define __forceinline__ inline
/* in a section of its own, so that the stand-in can fill it */
#define __shared__ static __attribute__((section("shared_memory")))
extern char __start_shared_memory[], __stop_shared_memory[];
char *fake_shared_begin(void) { return __start_shared_memory; }
char *fake_shared_end(void) { return __stop_shared_memory; }

static inline unsigned __float_as_uint(float f)
{
	unsigned u;
	__builtin_memcpy(&u, &f, 4);
	return u;
}

static inline float __uint_as_float(unsigned u)
{
	float f;
	__builtin_memcpy(&f, &u, 4);
	return f;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)(((unsigned long long)a * b) >> 32);
}

#ifdef FAKE_TEXT /* one that the stand-in's compiler was given */
#include FAKE_TEXT
#else
/* clang-format off: the order of gpu_text() */
#include "dev/kernel/prelude.k"
#ifndef FAKE_CARD
#include "dev/kernel/elem.k"
#include "dev/kernel/dynamic8.k"
#include "dev/kernel/optim.k"
#include "dev/kernel/rows.k"
#include "dev/kernel/nn.k"
#include "dev/kernel/conv.k"
#include "dev/kernel/xent.k"
#include "dev/kernel/experts.k"
#include "dev/kernel/delta.k"
#endif
#include "dev/kernel/tile.k"
#ifdef TILE
#include "fake_tiles.h"
#endif
#include "dev/kernel/tile_nvidia.k"
#include "dev/kernel/tile_amd.k"
#include "dev/kernel/tile_intel.k"
#include "dev/kernel/tile_common.k"
#define DT 64
#include "dev/kernel/attn.k"
#include "dev/kernel/attn_tile.k"
#undef DT
#define DT 128
#include "dev/kernel/attn.k"
#include "dev/kernel/attn_tile.k"
#undef DT
#define DT 256
#include "dev/kernel/attn.k"
#include "dev/kernel/attn_tile.k"
#undef DT
#include "dev/kernel/attn_wide.k"
#define DT 32
#include "dev/kernel/gemm.k"
#undef DT
#define DT 64
#include "dev/kernel/gemm.k"
#undef DT
#define DT 128
#include "dev/kernel/gemm.k"
#undef DT
#define DT 256
#include "dev/kernel/gemm.k"
#undef DT
#define DT 512
#include "dev/kernel/gemm.k"
#undef DT
#define DT 16
#include "dev/kernel/gemm.k"
#undef DT
#endif
