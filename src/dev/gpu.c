/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - see gpu.h. The text comes from kernel/ through the Makefile. */
#include "dev/gpu.h"

#include "base/buf.h"
#include "base/err.h"
#include "dev/kernel_text.h"

static const char *const entries[GPU_ENTRIES] = {
#define ENTRY(name) #name,
#include "dev/gpu_entry.def"
#undef ENTRY
};

const char *gpu_entry_name(enum gpu_entry n)
{
	return (unsigned)n < GPU_ENTRIES ? entries[n] : "?";
}

void gpu_text(enum dtype t, struct buf *b)
{
	static const int widths[] = { 64, 128, 256 };
	buf_addf(b, "#define HS_T %d\n", (int)t);
	buf_adds(b, kernel_prelude);
	buf_adds(b, kernel_elem);
	buf_adds(b, kernel_rows);
	buf_adds(b, kernel_xent);
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		buf_addf(b, "#define DT %d\n", widths[i]);
		buf_adds(b, kernel_attn);
		buf_adds(b, "#undef DT\n");
	}
	buf_adds(b, kernel_gemm);
}

enum dtype gpu_program_of(enum dev_kernel k, enum dtype t)
{
	return k == K_cast || k == K_sqnorm || k == K_adamw || k == K_sgd ? DT_F32 : t;
}

static int64_t over(int64_t n, int64_t d) { return n > 0 ? (n - 1) / d + 1 : 0; }

/* 0, 1, 2 for the variants of attention by head width. */
static int attn_width(int64_t d) { return d <= 64 ? 0 : d <= 128 ? 1 : 2; }

static int attn_check(int64_t h, int64_t g, int64_t d, struct err *e)
{
	if (d > GPU_HEAD)
		return err_set(e, ERR_UNSUPPORTED,
			       "attention heads %lld wide; the kernels go to %d", (long long)d,
			       GPU_HEAD);
	if (h < 1 || g < 1 || d < 1 || h % g)
		return err_set(e, ERR_INTERNAL,
			       "attention of %lld query and %lld key heads, %lld wide",
			       (long long)h, (long long)g, (long long)d);
	return 0;
}

int gpu_steps(enum dev_kernel k, const union dev_arg *a, struct gpu_step s[GPU_STEPS],
	      struct err *e)
{
	/* rows of the backward attention kernels by width, as in kernel/attn.k */
	static const int fwd_rows[] = { 32, 32, 16 }, bwd_rows[] = { 32, 16, 8 };
	int n = 0, w;
#define STEP(name, count)                                                                          \
	s[n++] = (struct gpu_step) { GPU_##name, count }
	switch (k) {
	case K_embed_fwd:
	case K_gather_rows:
		STEP(embed_fwd, a[3].i);
		break;
	case K_embed_bwd:
		STEP(embed_bwd, a[3].i);
		break;
	case K_scatter_rows:
		STEP(scatter_rows, a[3].i);
		break;
	case K_rmsnorm_fwd:
		STEP(rmsnorm_fwd, a[4].i);
		break;
	case K_rmsnorm_bwd:
		if (a[1].b.buf && a[6].i)
			STEP(rmsnorm_dw, over(a[7].i, 32));
		STEP(rmsnorm_dx, a[6].i);
		break;
	case K_rope:
		if (a[5].i % 2)
			return err_set(e, ERR_INTERNAL, "rope over an odd head width (%lld)",
				       (long long)a[5].i);
		STEP(rope, a[3].i);
		break;
	case K_attn_fwd:
		if (!a[7].i)
			break;
		TRY(attn_check(a[9].i, a[10].i, a[11].i, e));
		w = attn_width(a[11].i);
		s[n++] = (struct gpu_step){ GPU_attn_fwd_64 + (enum gpu_entry)w,
					    (over(a[7].i, fwd_rows[w]) + a[8].i) * a[9].i };
		break;
	case K_attn_bwd:
		if (!a[11].i)
			break;
		TRY(attn_check(a[13].i, a[14].i, a[15].i, e));
		w = attn_width(a[15].i);
		STEP(attn_delta, over(a[11].i * a[13].i, GPU_LANES));
		s[n++] = (struct gpu_step){ GPU_attn_dq_64 + (enum gpu_entry)w,
					    (over(a[11].i, bwd_rows[w]) + a[12].i) * a[13].i };
		s[n++] = (struct gpu_step){ GPU_attn_dkv_64 + (enum gpu_entry)w,
					    (over(a[11].i, bwd_rows[w]) + a[12].i) * a[14].i };
		break;
	case K_swiglu_fwd:
		STEP(swiglu_fwd, over(a[3].i, GPU_LANES));
		break;
	case K_swiglu_bwd:
		STEP(swiglu_bwd, over(a[5].i, GPU_LANES));
		break;
	case K_axpby:
		STEP(axpby, over(a[2].i, GPU_LANES));
		break;
	case K_cast:
		for (int i = 3; i < 5; i++)
			if (a[i].i != DT_F32 && a[i].i != DT_BF16 && a[i].i != DT_F16 &&
			    a[i].i != DT_F64)
				return err_set(e, ERR_INTERNAL, "cast between dtypes %lld and %lld",
					       (long long)a[4].i, (long long)a[3].i);
		STEP(cast, over(a[2].i, GPU_LANES));
		break;
	case K_dropout:
		if (!(a[4].f >= 0 && a[4].f < 1))
			return err_set(e, ERR_INTERNAL, "dropout of %g is outside [0, 1)",
				       (double)a[4].f);
		STEP(dropout, over(a[2].i, 4 * GPU_LANES));
		break;
	case K_xent:
		STEP(xent, a[4].i);
		break;
	case K_colsum:
		if (a[2].i)
			STEP(colsum, over(a[3].i, 32));
		break;
	case K_addbias:
		STEP(addbias, a[2].i);
		break;
	case K_nf4_dequant:
		if (a[12].i < 1 || (a[4].b.buf && !a[5].b.buf))
			return err_set(e, ERR_INTERNAL, "nf4_dequant: block %lld%s",
				       (long long)a[12].i, a[4].b.buf ? " without absmax2" : "");
		STEP(nf4_dequant, a[8].i);
		break;
	case K_sqnorm:
		STEP(sqnorm, over(a[2].i, 4096));
		break;
	case K_adamw:
		STEP(adamw, over(a[4].i, GPU_LANES));
		break;
	case K_sgd:
		STEP(sgd, over(a[3].i, GPU_LANES));
		break;
	case K_COUNT:
		return err_set(e, ERR_INTERNAL, "kernel number %d does not exist", (int)k);
	}
#undef STEP
	return n && s[n - 1].groups > 0 ? n : 0;
}

struct gpu_step gpu_gemm(const struct dev_gemm *g, union dev_arg a[GPU_ARGS])
{
	const int64_t flags = (g->ta ? 1 : 0) | (g->tb ? 2 : 0) | (g->c_dtype == DT_F32 ? 4 : 0);
	const int64_t ints[] = { g->m, g->n, g->k, g->lda, g->ldb, g->ldc, flags };
	a[0].b = g->c;
	a[1].b = g->a;
	a[2].b = g->b;
	for (int i = 0; i < 7; i++)
		a[3 + i].i = ints[i];
	a[10].f = g->alpha;
	a[11].f = g->beta;
	return (struct gpu_step){ GPU_gemm, over(g->m, 64) * over(g->n, 64) };
}
