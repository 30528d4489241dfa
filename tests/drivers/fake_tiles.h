/* SPDX-License-Identifier: Apache-2.0 */
/* fake_tiles.h - the instructions of the kernels' tile_*.k as C, for fake_kernels.c. All
 * lanes of a wave hand over their registers and wait for each other; then the first that goes on
 * computes the product, and each lane takes its own part of it, all by the tables below, which are
 * written from the vendors' documents and not from the kernels:
 *   PTX ISA 9.2, section 9.7.14.5 "Matrix Fragments" (m8n8k4 with .f16: 9.7.14.5.1, m16n8k8:
 *   9.7.14.5.7, m16n8k16: 9.7.14.5.8) and 9.7.14.5.15 "ldmatrix"
 *   AMD's matrix instruction calculator, "register to matrix element mapping": CDNA1 to CDNA3 MFMA,
 *   RDNA3 and RDNA4 WMMA with waves of 32
 *   cl_intel_subgroup_matrix_multiply_accumulate 1.1.0, section 6.13.X, and its coding sample;
 *   cl_intel_subgroup_local_block_io
 * What cp.async copies arrives when it is waited for, not before. A wave whose lanes are not at the
 * same instruction ends the process. */
#ifndef HS_TESTS_DRIVERS_FAKE_TILES_H
#define HS_TESTS_DRIVERS_FAKE_TILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REGS 24

/* What the lanes of a wave handed over. Two of each: a lane may be at the next instruction while
 * another still reads. */
static struct handed {
	const char *what;
	u32 r[MOST_REGS];
	const u16 *at;
} handed[2][WG];
static unsigned char turn[WG];
/* A wave's product at each of the two instructions, whether it is still to be computed, and whether
 * its lanes have been compared */
static struct product {
	bool due, compared;
	f32 p[16][16];
} products[2][WG];
#define PRODUCT(wave) (&products[turn[LID]][LID / (wave) * (wave)])

/* Returns what the wave's lanes handed over at this instruction, its first lane first. */
static const struct handed *hand(const char *what, int wave, const void *r, int n, const u16 *at)
{
	const int lane = LID, mine = turn[lane] ^= 1;
	struct handed *h = &handed[mine][lane];
	h->what = what;
	h->at = at;
	if (n)
		memcpy(h->r, r, (size_t)n * 4);
	struct product *p = &products[mine][lane / wave * wave];
	p->due = true;
	p->compared = false;
	fake_wave(wave);
	const struct handed *all = handed[mine] + lane / wave * wave;
	for (int i = 0; i < wave && !p->compared; i++)
		if (all[i].what != what) {
			fprintf(stderr, "fake_tiles: lane %d is at %s, lane %d of its wave at %s\n",
				lane, what, i, all[i].what);
			abort();
		}
	p->compared = true;
	return all;
}

/* The first lane that goes on computes (rows,depth) (depth,cols). */
static inline void multiply(struct product *p, int rows, int cols, int depth, f32 A[16][16],
			    f32 B[16][16])
{
	for (int i = 0; i < rows && p->due; i++) {
		f32 sum[16] = { 0 };
		for (int k = 0; k < depth; k++)
			for (int j = 0; j < cols; j++)
				sum[j] += A[i][k] * B[k][j];
		memcpy(p->p[i], sum, sizeof sum);
	}
	p->due = false;
}

/* bfloat16 (1) or float16 (2), by a table: most of the time goes into this */
static inline f32 half_value(u16 h, int format)
{
	static f32 of[1 << 16];
	static bool filled;
	if (format == 1)
		return bf16_f32(h);
	for (int i = 0; i < 1 << 16 && !filled; i++)
		of[i] = f16_f32((u16)i);
	filled = true;
	return of[h];
}

/* Number i of a lane's registers, two in each, the lower half first */
static inline f32 half_in(const u32 *r, int i, int format)
{
	return half_value((u16)(r[i / 2] >> (16 * (i % 2))), format);
}
/* in the kernel's own format */
static inline f32 half_of(const u32 *r, int i) { return half_in(r, i, HS_T); }

static inline u32 nv_shuffle_xor(u32 v, i32 mask)
{
	const int lane = LID % 32;
	return hand("shfl.xor", 32, &v, 1, NULL)[lane ^ mask].r[0];
}
static inline f32 nv_ex2(f32 x) { return x < -126 ? 0 : exp2f(x); }
static inline f32 nv_lg2(f32 x) { return log2f(x); }
static inline f32 nv_rcp(f32 x) { return 1 / x; }
static inline u32 nv_cvt_pair(f32 a, f32 b) { return FROM_F32(a) | (u32)FROM_F32(b) << 16; }

static void nv_ldmatrix_any(u32 *r, const u16 *p, bool trans)
{
	const int lane = LID % 32;
	if ((size_t)p % 16) {
		fprintf(stderr, "fake_tiles: ldmatrix at an odd address\n");
		abort();
	}
	const struct handed *h = hand(trans ? "ldmatrix.trans" : "ldmatrix", 32, NULL, 0, p);
	for (int m = 0; m < 4; m++) {
		u16 e[2];
		for (int i = 0; i < 2; i++) {
			const int row = trans ? lane % 4 * 2 + i : lane / 4,
				  col = trans ? lane / 4 : lane % 4 * 2 + i;
			e[i] = h[8 * m + row].at[col];
		}
		r[m] = e[0] | (u32)e[1] << 16;
	}
}
static void nv_ldmatrix(u32 *r, const u16 *p) { nv_ldmatrix_any(r, p, false); }
static void nv_ldmatrix_trans(u32 *r, const u16 *p) { nv_ldmatrix_any(r, p, true); }

/* m16n8k16 and m16n8k8, by the tables for A, B and C: where each element lies */
static void nv_mma(f32 *d, const u32 *a, const u32 *b, int depth)
{
	const int lane = LID % 32, na = depth / 4, nb = depth / 8;
	u32 r[MOST_REGS];
	f32 A[16][16], B[16][16];
	memcpy(r, a, (size_t)na * 4);
	memcpy(r + na, b, (size_t)nb * 4);
	const struct handed *h = hand("mma", 32, r, na + nb, NULL);
	struct product *p = PRODUCT(32);
	for (int l = 0; l < 32 && p->due; l++) {
		for (int i = 0; i < 2 * na; i++) {
			const int group = l >> 2, t = l % 4, row = i % 4 < 2 ? group : group + 8,
				  col = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
			A[row][col] = half_of(h[l].r, i);
		}
		for (int i = 0; i < 2 * nb; i++)
			B[l % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0)][l >> 2] = half_of(h[l].r + na, i);
	}
	multiply(p, 16, 8, depth, A, B);
	for (int i = 0; i < 4; i++)
		d[i] += p->p[(lane >> 2) + (i < 2 ? 0 : 8)][lane % 4 * 2 + (i & 1)];
}
static inline void nv_mma_k16(f32 *d, const u32 *a, const u32 *b) { nv_mma(d, a, b, 16); }
static inline void nv_mma_k8(f32 *d, const u32 *a, u32 b) { nv_mma(d, a, &b, 8); }

/* m8n8k4: lanes 4g .. 4g + 3 and 16 + 4g .. of group g make a product of their own */
static void nv_mma_k4(f32 *d, const u32 *a, const u32 *b)
{
	const int lane = LID % 32, group = lane % 16 / 4;
	const u32 r[] = { a[0], a[1], b[0], b[1] };
	f32 A[8][4], B[4][8];
	const struct handed *h = hand("mma.m8n8k4", 32, r, 4, NULL);
	for (int l = 0; l < 32; l++)
		for (int i = 0; i < 4 && l % 16 / 4 == group; i++) {
			const int at = l < 16 ? l % 4 : l % 4 + 4;
			A[at][i] = half_of(h[l].r, i);
			B[i][at] = half_of(h[l].r + 2, i);
		}
	for (int i = 0; i < 8; i++) {
		const int x = (lane & 1) + (i & 2), row = lane < 16 ? x : x + 4,
			  col = (i & 4) + (lane & 2) + (i & 1);
		for (int k = 0; k < 4; k++)
			d[i] += A[row][k] * B[k][col];
	}
}

/* cp.async: each lane's copies, in order, and how many of them each commit closed */
static struct copies {
	struct {
		u16 *to;
		const u16 *from;
		u32 n;
	} copy[256];
	int n, closed[8], groups;
} copies[WG];

static void nv_copy(u16 *to, const u16 *from, u32 n)
{
	struct copies *c = &copies[LID];
	if ((size_t)to % 16 || (n && (size_t)from % 16) || c->n == 256) {
		fprintf(stderr, "fake_tiles: cp.async at an odd address, or too many\n");
		abort();
	}
	memset(to, 0xff, 16);
	c->copy[c->n].to = to;
	c->copy[c->n].from = from;
	c->copy[c->n++].n = n;
}
static void nv_copy_sent(void)
{
	struct copies *c = &copies[LID];
	if (c->groups == 8)
		abort();
	c->closed[c->groups++] = c->n;
}
static void nv_copy_arrived(int but)
{
	struct copies *c = &copies[LID];
	if (c->groups <= but)
		return;
	const int done = c->closed[c->groups - 1 - but];
	for (int i = 0; i < done; i++) {
		memset(c->copy[i].to, 0, 16);
		if (c->copy[i].n)
			memcpy(c->copy[i].to, c->copy[i].from, c->copy[i].n);
	}
	memmove(c->copy, c->copy + done, (size_t)(c->n - done) * sizeof *c->copy);
	c->n -= done;
	for (int i = 0; i < but; i++)
		c->closed[i] = c->closed[c->groups - but + i] - done;
	c->groups = but;
}
static inline void nv_copy_arrived_all(void) { nv_copy_arrived(0); }
static inline void nv_copy_arrived_but_one(void) { nv_copy_arrived(1); }

/* ---- AMD ---- */
#if defined(TILE) && TILE >= 900
/* Element k of a lane's A or B, and row of C: as the calculator gives them */
enum amd_kind { MFMA_K16, MFMA_K8, WMMA_GFX11, WMMA_GFX12 };
static int amd_k(enum amd_kind kind, int lane, int i)
{
	const int reg = i / 2, bits = i % 2;
	switch (kind) {
	case MFMA_K16:
		return 4 * (lane / 16) + 2 * reg + bits;
	case MFMA_K8:
		return 2 * (lane / 16) + bits;
	case WMMA_GFX11:
		return 2 * reg + bits;
	default:
		return 8 * (reg / 2) + 4 * (lane / 16) + 2 * (reg % 2) + bits;
	}
}
static int amd_i(enum amd_kind kind, int lane, int reg)
{
	return kind == WMMA_GFX11   ? 2 * reg + lane / 16
	       : kind == WMMA_GFX12 ? 8 * (lane / 16) + reg
				    : 4 * (lane / 16) + reg % 4;
}
/* MI200 takes float16 numbers below 2^-14 for 0: "AMD Instinct MI200 ISA", denormals of MFMA. */
static void amd_flush(u32 *r, int n)
{
	for (int i = 0; i < n; i++)
		for (int s = 0; s < 32; s += 16)
			if (!(r[i] >> s & 0x7c00))
				r[i] &= ~(0x7fffu << s);
}
static void amd_product(enum amd_kind kind, const void *a, const void *b, f32 *d, int format)
{
	static const int regs[] = { 2, 1, 8, 4 };
	const int lane = LID % WAVE, n = regs[kind], depth = kind == MFMA_K8 ? 8 : 16;
	u32 r[MOST_REGS];
	f32 A[16][16], B[16][16];
	memcpy(r, a, (size_t)n * 4);
	memcpy(r + n, b, (size_t)n * 4);
#ifdef __gfx90a__
	if (format == 2)
		amd_flush(r, 2 * n);
#endif
	const struct handed *h = hand("a matrix instruction", WAVE, r, 2 * n, NULL);
	struct product *p = PRODUCT(WAVE);
	for (int l = 0; l < WAVE && p->due; l++)
		for (int i = 0; i < 2 * n; i++) {
			const int k = amd_k(kind, l, i);
			const f32 x = half_in(h[l].r, i, format),
				  y = half_in(h[l].r + n, i, format);
			/* gfx11: the lanes 16 further must hold the same */
			if (kind == WMMA_GFX11 && l >= 16 &&
			    (memcmp(&A[l % 16][k], &x, 4) || memcmp(&B[k][l % 16], &y, 4))) {
				fprintf(stderr, "fake_tiles: lanes %d and %d differ\n", l - 16, l);
				abort();
			}
			A[l % 16][k] = x;
			B[k][l % 16] = y;
		}
	multiply(p, 16, 16, depth, A, B);
	for (int reg = 0; reg < (WAVE == 64 ? 4 : 8); reg++)
		d[reg] += p->p[amd_i(kind, lane, reg)][lane % 16];
}
#define AMD_PRODUCT(kind, a, b, c, format)                                                         \
	({                                                                                         \
		__typeof__(a) a_ = a, b_ = b;                                                      \
		__typeof__(c) c_ = c;                                                              \
		amd_product(kind, &a_, &b_, (f32 *)&c_, format);                                   \
		c_;                                                                                \
	})
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) AMD_PRODUCT(MFMA_K16, a, b, c, 2)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z)                                \
	AMD_PRODUCT(MFMA_K16, a, b, c, 1)
#define __builtin_amdgcn_mfma_f32_16x16x8bf16(a, b, c, x, y, z) AMD_PRODUCT(MFMA_K8, a, b, c, 1)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) AMD_PRODUCT(WMMA_GFX11, a, b, c, 1)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) AMD_PRODUCT(WMMA_GFX11, a, b, c, 2)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c)                                 \
	AMD_PRODUCT(WMMA_GFX12, a, b, c, 1)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)                                  \
	AMD_PRODUCT(WMMA_GFX12, a, b, c, 2)

static inline i32 amd_bpermute(i32 bytes, i32 v)
{
	return (i32)hand("ds_bpermute", 64, &v, 1, NULL)[bytes / 4 % 64].r[0];
}
#define __builtin_amdgcn_ds_bpermute amd_bpermute
/* lane i of each row of 16 gets, of the other row, what the selectors name: 4 bits a lane */
static inline u32 amd_permlanex16(u32 v, u32 low, u32 high)
{
	const int lane = LID % 32, i = lane % 16,
		  from = (int)((i < 8 ? low : high) >> (4 * (i % 8)) & 15);
	return hand("permlanex16", 32, &v, 1, NULL)[(lane < 16 ? 16 : 0) + from].r[0];
}
#define __builtin_amdgcn_permlanex16(old, v, low, high, fi, bc) amd_permlanex16(v, low, high)
#endif

/* ---- Intel ---- */
#if defined(TILE) && TILE <= 16
typedef int int8 __attribute__((vector_size(32)));
typedef short short8 __attribute__((vector_size(16)));
typedef float float8 __attribute__((vector_size(32)));
typedef u32 uint8 __attribute__((vector_size(32)));
typedef u16 ushort8 __attribute__((vector_size(16)));
/* a: 8 rows, each lane's part of them (na bytes); b: the lane's column; acc: the lane's column */
static void intel_product(const void *a, size_t na, const void *b, f32 *acc, int format)
{
	const int lane = LID % WAVE;
	u32 r[MOST_REGS];
	f32 A[16][16], B[16][16];
	memcpy(r, b, 32);
	memcpy(r + 8, a, na);
	const struct handed *h = hand("matrix_mad_k16", WAVE, r, 8 + (int)na / 4, NULL);
	struct product *p = PRODUCT(WAVE);
	for (int l = 0; l < WAVE && p->due; l++) {
		const int each = 16 / WAVE; /* numbers of a row that a lane contributes */
		for (int m = 0; m < 8; m++)
			for (int i = 0; i < each; i++)
				A[m][each * l + i] = half_in(h[l].r + 8, each * m + i, format);
		for (int k = 0; k < 16; k++)
			B[k][l] = half_in(h[l].r, k, format);
	}
	multiply(p, 8, WAVE, 16, A, B);
	for (int m = 0; m < 8; m++)
		acc[m] += p->p[m][lane];
}
#define INTEL_PRODUCT(a, b, c, format)                                                             \
	({                                                                                         \
		__typeof__(a) a_ = a;                                                              \
		__typeof__(b) b_ = b;                                                              \
		__typeof__(c) c_ = c;                                                              \
		intel_product(&a_, sizeof a_, &b_, (f32 *)&c_, format);                            \
		c_;                                                                                \
	})
#define intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, c) INTEL_PRODUCT(a, b, c, 1)
#define intel_sub_group_f16_f16_matrix_mad_k16(a, b, c) INTEL_PRODUCT(a, b, c, 2)

/* Component c of lane l is number l + c * WAVE behind an address that all lanes give. */
#define cl_intel_subgroup_local_block_io 1
static void intel_block(void *to, const void *at, size_t size)
{
	const struct handed *h = hand("block_read", WAVE, NULL, 0, at);
	for (int i = 0; i < WAVE; i++)
		if (h[i].at != at || (size_t)at % 16) {
			fprintf(stderr,
				"fake_tiles: a block is read at odd or several addresses\n");
			abort();
		}
	for (int c = 0; c < 8; c++)
		memcpy((char *)to + (size_t)c * size,
		       (const char *)at + (size_t)(LID % WAVE + c * WAVE) * size, size);
}
static inline uint8 intel_sub_group_block_read8(const u32 *at)
{
	uint8 v;
	intel_block(&v, at, 4);
	return v;
}
static inline ushort8 intel_sub_group_block_read_us8(const u16 *at)
{
	ushort8 v;
	intel_block(&v, at, 2);
	return v;
}
#endif
#endif
