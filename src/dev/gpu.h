/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - what all GPU backends share: the text of the kernels, and which entry points a launch
 * takes with how many work-groups.
 *
 * Pure: no device is touched here. Every entry point runs in work-groups of GPU_LANES lanes, in one
 * dimension. For each letter of the signature it takes: b a pointer and an i64 offset in bytes (-1:
 * no buffer, the pointer is not used), i an i64, f a float, u a u64. */
#ifndef HS_DEV_GPU_H
#define HS_DEV_GPU_H

#include "dev/dev_text.h"

struct buf;
struct err;

#define GPU_LANES 128
#define GPU_LOCAL_BYTES 32768 /* of local memory that no entry point exceeds */
#define GPU_STEPS 4           /* entry points a kernel takes, at most */
#define GPU_ARGS 24           /* arguments of a kernel, at most */
#define GPU_HEAD 512          /* widest attention head */

enum gpu_entry {
#define ENTRY(name) GPU_##name,
#include "dev/gpu_entry.def"
#undef ENTRY
	GPU_ENTRIES
};

struct gpu_step {
	enum gpu_entry entry;
	int64_t groups; /* above 0 */
	/* How often a lane passes through loops of the text, all of them together, at most; counted
	 * as a compiler does that unrolls nothing and looks at each loop's end once more. Some
	 * drivers end loops after a number of passes (opencl_check.c). */
	int64_t passes;
};

const char *gpu_entry_name(enum gpu_entry n);

/* The whole text for activations in `t` (DT_F32, DT_BF16, DT_F16), appended to `b`; the compiler's
 * own macros tell it the language. */
void gpu_text(enum dtype t, struct buf *b);

/* The same of somebody's own kernels: with what stands before them. `host`: for the C compiler of a
 * processor, whose work-groups are one lane. */
void gpu_user_text(enum dtype t, const struct dev_text *text, bool host, struct buf *b);
const char *gpu_user_entry(enum dev_text_entry n);
/* Work-groups of GPU_LANES lanes. */
int64_t gpu_user_groups(const struct dev_text_launch *l);

/* Which text a kernel is taken from: those that do not look at T from that for float32, which is
 * there in most runs. */
enum dtype gpu_program_of(enum dev_kernel k, enum dtype t);

/* The steps of a launch, in order; returns how many (0: there is nothing to do), or an error for
 * arguments no entry point serves. */
int gpu_steps(enum dev_kernel k, const union dev_arg *a, struct gpu_step steps[GPU_STEPS],
	      struct err *e);

/* Attention of long sequences is launched in pieces of some key heads each (dev_attn.h): how many
 * pieces a launch takes, 1 or more, and the arguments and steps (as gpu_steps()) of one of them.
 * They run in their order, as they share attn_bwd's delta. */
int64_t gpu_pieces(enum dev_kernel k, const union dev_arg *a);
int gpu_piece(enum dev_kernel k, enum dtype t, const union dev_arg *a, int64_t piece,
	      int64_t pieces, union dev_arg args[GPU_ARGS], struct gpu_step steps[GPU_STEPS],
	      struct err *e);

/* The portable matrix product over columns [k0, k1) of op(A), in one of GPU_SHAPES shapes of tiles:
 * its arguments (by GPU_GEMM_SIG) and its step. m and n are above 0. A product cut into several
 * pieces hands its sums from one to the next in `sums` (m,n) f32; the last piece writes C, and the
 * bits are those of one piece, in every shape. With k0 0 and k1 k, `sums` is DEV_NONE. */
#define GPU_GEMM_SIG "bbbbbiiiiiiiff"
#define GPU_SHAPES 6
#define GPU_LARGE 5 /* the first ones, from which large products choose */
struct gpu_step gpu_gemm(const struct dev_gemm *g, int shape, int64_t k0, int64_t k1,
			 struct dev_ref sums, union dev_arg args[GPU_ARGS]);
/* Which shape: `best` is the device's for large products, GPU_LARGE more where the last shape, for
 * few columns, is its quickest for these (with few rows it makes C transposed). */
int gpu_gemm_shape(const struct dev_gemm *g, int best);
/* The most columns of one piece for which a lane makes at most `passes`. */
int64_t gpu_gemm_depth(int shape, int64_t passes);

#endif
