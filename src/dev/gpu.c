/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - see gpu.h. The text comes from kernel/ through the Makefile. */
#include "dev/gpu.h"

#include "base/buf.h"
#include "base/err.h"
#include "dev/dev_attn.h"
#include "dev/dev_delta.h"
#include "dev/kernel_text.h"

#include <string.h>

static const char *const entries[GPU_ENTRIES] = {
#define ENTRY(name) #name,
#include "dev/gpu_entry.def"
#undef ENTRY
};

const char *gpu_entry_name(enum gpu_entry n)
{
	return (unsigned)n < GPU_ENTRIES ? entries[n] : "?";
}

/* The shapes of kernel/gemm.k: a tile's rows and columns, the depth of a step, vectors a lane owns
 * and their width. */
static const struct {
	int name, m, n, k, rows, vectors, wide;
} shapes[GPU_SHAPES] = { { 32, 32, 32, 32, 2, 1, 4 },     { 64, 64, 64, 16, 8, 1, 4 },
			 { 128, 128, 64, 16, 8, 2, 4 },   { 256, 128, 128, 16, 16, 2, 4 },
			 { 512, 128, 128, 32, 8, 1, 16 }, { 16, 64, 16, 64, 8, 1, 16 } };
enum { SMALL, MEDIUM, PROCESSOR = GPU_LARGE - 1, FEW };
/* A smaller side of at most so many takes FEW where that is the quickest for few columns: beside
 * the large shape for processors, which does well from 128 on, and beside the others. FEW reads
 * FEW_DEEP columns of the sum at a time: on processors SMALL is quicker where there are fewer, as
 * in the product of an adapter's B. */
enum { FEW_MOST = 96, FEW_LEAST = 32, FEW_DEEP = 64 };

void gpu_text(enum dtype t, struct buf *b)
{
	static const int widths[] = { 64, 128, 256 };
	buf_addf(b, "#define HS_T %d\n", (int)t);
	buf_adds(b, kernel_prelude);
	buf_adds(b, kernel_elem);
	buf_adds(b, kernel_dynamic8);
	buf_adds(b, kernel_optim);
	buf_adds(b, kernel_rows);
	buf_adds(b, kernel_nn);
	buf_adds(b, kernel_conv);
	buf_adds(b, kernel_xent);
	buf_adds(b, kernel_experts);
	buf_adds(b, kernel_delta);
	buf_adds(b, kernel_tile);
	buf_adds(b, kernel_tile_nvidia);
	buf_adds(b, kernel_tile_amd);
	buf_adds(b, kernel_tile_intel);
	buf_adds(b, kernel_tile_common);
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		buf_addf(b, "#define DT %d\n", widths[i]);
		buf_adds(b, kernel_attn);
		buf_adds(b, kernel_attn_tile);
		buf_adds(b, "#undef DT\n");
	}
	buf_adds(b, kernel_attn_wide);
	for (int i = 0; i < GPU_SHAPES; i++) {
		buf_addf(b, "#define DT %d\n", shapes[i].name);
		buf_adds(b, kernel_gemm);
		buf_adds(b, "#undef DT\n");
	}
}

static int64_t over(int64_t n, int64_t d) { return n > 0 ? (n - 1) / d + 1 : 0; }

void gpu_user_text(enum dtype t, const struct dev_text *text, bool host, struct buf *b)
{
	buf_addf(b, "#define HS_T %d\n%s", (int)t, text->params ? "#define USER_PARAMS\n" : "");
	buf_adds(b, host ? kernel_host : "");
	buf_adds(b, kernel_prelude);
	buf_adds(b, kernel_user);
	buf_adds(b, text->text);
	buf_adds(b, "\n");
	buf_adds(b, host ? kernel_host_end : "");
}

const char *gpu_user_entry(enum dev_text_entry n)
{
	static const char *const names[TEXT_ENTRIES] = { "user_forward", "user_backward",
							 "user_params" };
	return (unsigned)n < TEXT_ENTRIES ? names[n] : "?";
}

int64_t gpu_user_groups(const struct dev_text_launch *l)
{
	return l->groups > 0 ? l->groups : over(l->lanes, GPU_LANES);
}

enum dtype gpu_program_of(enum dev_kernel k, enum dtype t)
{
	switch (k) {
	case K_cast:
	case K_sqnorm:
	case K_adamw:
	case K_sgd:
	case K_adamw8:
	case K_lion:
	case K_factor_rows:
	case K_factor_cols:
	case K_factor_scale:
		return DT_F32;
	default:
		return t;
	}
}

/* 0 to 3 for the variants of attention by head width. */
enum { ATTN_WIDE = 3 }; /* kernel/attn_wide.k */
static int attn_width(int64_t d) { return d <= 64 ? 0 : d <= 128 ? 1 : d <= 256 ? 2 : ATTN_WIDE; }

static int attn_check(int64_t h, int64_t g, int64_t d, struct err *e)
{
	if (d > GPU_HEAD)
		return err_set(e, ERR_UNSUPPORTED,
			       "attention heads of %lld numbers: at most %d are supported",
			       (long long)d, GPU_HEAD);
	if (h < 1 || g < 1 || d < 1 || h % g)
		return err_set(e, ERR_INTERNAL,
			       "attention of %lld query and %lld key heads, %lld wide",
			       (long long)h, (long long)g, (long long)d);
	return 0;
}

static int route_check(int64_t experts, int64_t chosen, struct err *e)
{
	return chosen >= 1 && chosen <= experts && experts <= 1024
		       ? 0
		       : err_set(e, ERR_INTERNAL, "a choice of %lld among %lld experts",
				 (long long)chosen, (long long)experts);
}

/* Passes of a loop of n: the end is looked at once more. */
static int64_t loop(int64_t n) { return (n > 0 ? n : 0) + 1; }
/* Passes of a loop over n things that the lanes share out. */
/* Items of dropout and noise, from their arguments at, N, C: four numbers each. */
static int64_t fours(const union dev_arg *a)
{
	return a[0].b.buf ? a[1].i * over(a[2].i, 4) : over(a[1].i * a[2].i, 4);
}

static int64_t lanes(int64_t n) { return loop(over(n, GPU_LANES)); }
/* What moves SOME numbers a lane: ld_some(), st_some() and loops over those numbers, so many of
 * them. */
enum { SOME = 8, SUMMED = 16 };
static int64_t somes(int64_t n) { return n * loop(SOME); }
/* Of gated activations: rows of a[1] numbers, a[0] in all. */
static int64_t gated_groups(const union dev_arg *a)
{
	return a[1].i > 0 ? over(a[0].i / a[1].i * over(a[1].i, SOME), GPU_LANES) : 0;
}
/* Over a row of c, SOME a lane, with so many of these in it. */
static int64_t some_lanes(int64_t c, int64_t n)
{
	return over(c, SOME * GPU_LANES) * (1 + somes(n)) + 1;
}
/* Sums over n rows, SUMMED columns a group. */
static int64_t rows_of(int64_t n)
{
	return loop(over(n, GPU_LANES / SUMMED)) + loop(GPU_LANES / SUMMED - 1);
}
/* Of group_sum() and group_max(). */
#define GROUPED loop(7)

/* Groups are counted for the text without tiles (attn.k). On a card with matrix units a group works
 * on more rows (attn_tile.k), and those that are too many end at once.
 *
 * The loops of kernel/attn.k for n queries or keys at most in a sequence: `rows` by `cols` a block,
 * heads `d` wide. */
struct attn_sizes {
	int64_t fwd_rows, fwd_cols, bwd_rows, bwd_cols, wide;
};
static const struct attn_sizes attn_sizes[] = {
	{ 32, 32, 32, 16, 64 }, { 32, 16, 16, 8, 128 }, { 16, 8, 8, 4, 256 }, { 4, 8, 4, 4, 512 }
};

static int64_t attn_passes(enum gpu_entry base, const struct attn_sizes *z, int64_t n, int64_t s,
			   int64_t h, int64_t d, int64_t parts)
{
	const bool fwd = base == GPU_attn_fwd_64, dkv = base == GPU_attn_dkv_64;
	const int64_t rows = fwd ? z->fwd_rows : z->bwd_rows,
		      cols = fwd ? z->fwd_cols : z->bwd_cols, nc = z->wide / 16,
		      per = loop(rows / 8), tile = lanes(cols * z->wide),
		      each = over(rows * cols, GPU_LANES), dot = loop(over(d, 16)),
		      /* a lane's scores all at once, or one after the other */
		scores = each >= 4 ? dot + 2 * loop(each) : loop(each) + each * dot,
		      top = fwd ? 2 * loop(over(cols, 4)) : 0,
		      add = per + rows / 8 * ((fwd ? loop(nc) : 0) + loop(cols)),
		      block = 2 * tile + scores + top + add,
		      ends = loop(s) + 2 * lanes(rows * z->wide) + 2 * (per + rows / 8 * loop(nc));
	return ends + (dkv ? loop(h) + h + over(h * over(n, cols), parts) * (block + 1)
			   : loop(0) + over(n, cols) * (block + 1));
}

/* The same of kernel/attn_wide.k, where `lanes_` lanes have a row. */
static int64_t wide_passes(enum gpu_entry base, const struct attn_sizes *z, int64_t n, int64_t s,
			   int64_t h, int64_t parts)
{
	const bool fwd = base == GPU_attn_fwd_64, dkv = base == GPU_attn_dkv_64;
	const int64_t lanes_ = GPU_LANES / (fwd ? z->fwd_rows : z->bwd_rows),
		      own = loop(z->wide / lanes_), eight = loop(z->wide / lanes_ / 8),
		      cols = fwd ? z->fwd_cols : z->bwd_cols, tile = lanes(cols * z->wide),
		      each = fwd ? 1 : 2, /* dots of a score */
		dots = loop(cols) + cols * each * eight,
		      adds = loop(cols) + cols * (dkv ? 2 : 1) * eight,
		      block = 2 * tile + dots + loop(lanes_) + adds +
			      (fwd ? 2 * loop(cols) + own : 0),
		      ends = loop(s) + 4 * own;
	return ends + (dkv ? loop(h) + h + over(h * over(n, cols), parts) * (block + 1)
			   : loop(0) + over(n, cols) * (block + 1));
}

/* The most keys that a sequence can have: where it has as many as queries, n of these; else as many
 * as the buffer holds. */
static int64_t attn_keys(const union dev_arg *a)
{
	const struct dev_ref k = a[3].b, qs = a[5].b, ks = a[6].b;
	const bool same = qs.buf == ks.buf && qs.off == ks.off;
	return same || !k.buf ? a[7].i
			      : (int64_t)((k.buf->size - k.off) / 2) / (a[14].i > 0 ? a[14].i : 1);
}

/* `n` begins with N, S, H, G, D of kernel.def; `keys` a sequence has at most; a group works for one
 * of `heads`, through one of `parts` of `each` of the others. */
static struct gpu_step attn_step(enum gpu_entry base, const union dev_arg *n, int64_t keys,
				 int64_t heads, int64_t each, int64_t parts)
{
	const int w = attn_width(n[4].i);
	const struct attn_sizes *z = &attn_sizes[w];
	const bool wide = w == ATTN_WIDE;
	const int64_t rows = base == GPU_attn_fwd_64 ? z->fwd_rows : z->bwd_rows;
	return (struct gpu_step){ (enum gpu_entry)((int)base + w),
				  (over(n[0].i, rows) + n[1].i) * heads * parts,
				  wide ? wide_passes(base, z, keys, n[1].i, each, parts)
				       : attn_passes(base, z, keys, n[1].i, each, n[4].i, parts) };
}

/* Windows along an axis of n pixels; k: K, S. */
static int64_t pooled(int64_t n, const union dev_arg *k) { return (n - k[0].i) / k[1].i + 1; }
/* Windows of an image; size: Y, X; k: KY, KX, S, PY, PX. */
static int64_t windows(const union dev_arg *size, const union dev_arg *k)
{
	return ((size[0].i + 2 * k[3].i - k[0].i) / k[2].i + 1) *
	       ((size[1].i + 2 * k[4].i - k[1].i) / k[2].i + 1);
}

/* `a` begins with N, S, G, H, K, V of kernel.def. */
static int delta_check(const union dev_arg *a, struct err *e)
{
	if (a[2].i < 1 || a[3].i < 1 || a[3].i % a[2].i || a[4].i < 1 || a[4].i > DELTA_MOST ||
	    a[5].i < 1 || a[5].i > DELTA_MOST)
		return err_set(e, ERR_UNSUPPORTED,
			       "linear attention with %lld keys of %lld numbers and %lld values of "
			       "%lld: at most %d numbers are supported",
			       (long long)a[2].i, (long long)a[4].i, (long long)a[3].i,
			       (long long)a[5].i, DELTA_MOST);
	return 0;
}

/* A loop over the numbers of a state's row (kernel/delta.k). */
static int64_t state_row(int64_t k) { return loop(over(k, 16)) + over(k, 16) * loop(16); }

/* Of delta_bwd in kernel/delta.k; behind those are the parts and the tokens of a chunk. */
static int64_t delta_passes(const union dev_arg *a)
{
	const int64_t row = state_row(a[4].i), slab = loop(16) + loop(GPU_LANES / 4),
		      chunks = a[1].i + over(a[0].i, a[7].i),
		      token = 1 + 2 * row /* kept */ + 1 + 2 * row /* again */ + 1 +
			      row /* back */ + loop(over(a[4].i, 16)) * (1 + slab) +
			      loop(GPU_LANES / 4);
	return loop(a[1].i) * (1 + 2 * row) + loop(chunks) * (5 + 4 * row) + a[0].i * token;
}

int gpu_steps(enum dev_kernel k, const union dev_arg *a, struct gpu_step s[GPU_STEPS],
	      struct err *e)
{
	int n = 0;
#define STEP(name, count, loops)                                                                   \
	s[n++] = (struct gpu_step) { GPU_##name, count, loops }
	switch (k) {
	case K_embed_fwd:
	case K_gather_rows:
		STEP(embed_fwd, a[3].i, lanes(a[4].i));
		break;
	case K_embed_bwd:
		STEP(embed_bwd, a[3].i, lanes(a[3].i) + loop(a[3].i) + a[3].i * lanes(a[4].i));
		break;
	case K_scatter_rows:
		STEP(scatter_rows, a[3].i, lanes(a[4].i));
		break;
	case K_copy_columns:
		STEP(copy_columns, a[2].i, lanes(a[3].i));
		break;
	case K_spread:
		STEP(spread, a[2].i, lanes(a[3].i * a[4].i));
		break;
	case K_fold:
		STEP(fold, a[2].i, lanes(a[4].i) + over(a[4].i, GPU_LANES) * loop(a[3].i));
		break;
	case K_rmsnorm_fwd:
		STEP(rmsnorm_fwd, a[5].i, some_lanes(a[6].i, 8) + 1 + GROUPED);
		break;
	case K_rmsnorm_bwd:
		if (a[1].b.buf && a[6].i)
			STEP(rmsnorm_dw, over(a[7].i, SUMMED), rows_of(a[6].i));
		STEP(rmsnorm_dx, a[6].i, some_lanes(a[7].i, 11) + 1 + GROUPED);
		break;
	case K_rope:
		if (a[5].i % 2)
			return err_set(e, ERR_INTERNAL, "rope over an odd head width (%lld)",
				       (long long)a[5].i);
		STEP(rope, a[3].i,
		     lanes(a[5].i / 2) + over(a[5].i / 2, GPU_LANES) * lanes(a[4].i * GPU_LANES));
		break;
	case K_attn_fwd:
		if (!a[7].i)
			break;
		TRY(attn_check(a[9].i, a[10].i, a[11].i, e));
		s[n++] = attn_step(GPU_attn_fwd_64, a + 7, attn_keys(a), a[9].i, 1, 1);
		break;
	case K_attn_bwd:
		if (!a[11].i)
			break;
		TRY(attn_check(a[13].i, a[14].i, a[15].i, e));
		if (a[23].i < 1)
			return err_set(e, ERR_INTERNAL, "attention in %lld parts",
				       (long long)a[23].i);
		STEP(attn_delta, over(a[11].i * a[13].i, GPU_LANES),
		     over(a[15].i, SOME) * (1 + somes(3)) + 1);
		s[n++] = attn_step(GPU_attn_dq_64, a + 11, a[11].i, a[13].i, 1, 1);
		s[n++] = attn_step(GPU_attn_dkv_64, a + 11, a[11].i, a[14].i, a[13].i / a[14].i,
				   a[23].i);
		if (a[23].i > 1)
			STEP(attn_sum, over(2 * a[11].i * over(a[14].i * a[15].i, SOME), GPU_LANES),
			     somes(2) + a[23].i * (1 + somes(2)));
		break;
	case K_swiglu_fwd:
		STEP(swiglu_fwd, gated_groups(a + 3), somes(4));
		break;
	case K_swiglu_bwd:
		STEP(swiglu_bwd, gated_groups(a + 5), somes(6));
		break;
	case K_sink_fwd:
		STEP(sink_fwd, a[3].i * a[4].i, lanes(a[5].i));
		break;
	case K_sink_bwd:
		if (a[5].i)
			STEP(sink_bwd, a[6].i, lanes(a[5].i * a[7].i) + GROUPED);
		break;
	case K_swiglu_oss_fwd:
		STEP(swiglu_oss_fwd, over(a[3].i, GPU_LANES), 0);
		break;
	case K_swiglu_oss_bwd:
		STEP(swiglu_oss_bwd, over(a[5].i, GPU_LANES), 0);
		break;
	case K_geglu_fwd:
		STEP(geglu_fwd, gated_groups(a + 3), somes(4));
		break;
	case K_geglu_bwd:
		STEP(geglu_bwd, gated_groups(a + 5), somes(6));
		break;
	case K_glu_fwd:
		STEP(glu_fwd, gated_groups(a + 3), somes(4));
		break;
	case K_glu_bwd:
		STEP(glu_bwd, gated_groups(a + 5), somes(6));
		break;
	case K_head_glu_fwd:
		STEP(head_glu_fwd, a[3].i, lanes(a[4].i));
		break;
	case K_head_glu_bwd:
		STEP(head_glu_bwd, a[5].i, lanes(a[6].i) + GROUPED);
		break;
	case K_mul_fwd:
		STEP(mul_fwd, gated_groups(a + 3), somes(4));
		break;
	case K_mul_bwd:
		STEP(mul_bwd, gated_groups(a + 5), somes(6));
		break;
	case K_conv1d_fwd:
		STEP(conv1d_fwd, over(a[5].i * a[6].i, GPU_LANES), loop(a[7].i));
		break;
	case K_conv1d_bwd:
		if (a[1].b.buf && a[6].i)
			STEP(conv1d_dw, over(a[7].i, SUMMED), loop(a[8].i) * (1 + rows_of(a[6].i)));
		STEP(conv1d_dx, over(a[6].i * a[7].i, GPU_LANES), loop(a[8].i));
		break;
	case K_delta_fwd:
		TRY(delta_check(a + 9, e));
		STEP(delta_each, over(a[9].i * 2 * (a[11].i + a[12].i), GPU_LANES), loop(a[13].i));
		STEP(delta_fwd, a[10].i * a[12].i,
		     2 * state_row(a[13].i) + loop(a[9].i) * (1 + 2 * state_row(a[13].i)));
		break;
	case K_delta_bwd:
		TRY(delta_check(a + 14, e));
		if (!a[14].i)
			break;
		STEP(delta_bwd, a[20].i * a[17].i, delta_passes(a + 14));
		STEP(delta_qk, a[14].i * 2 * a[16].i, loop(a[17].i / a[16].i) + GROUPED);
		STEP(delta_gates, a[17].i, lanes(a[14].i) + 2 * GROUPED);
		break;
	case K_axpby:
		STEP(axpby, over(a[2].i, SOME * GPU_LANES), somes(4));
		break;
	case K_cast:
		for (int i = 3; i < 5; i++)
			if (a[i].i != DT_F32 && a[i].i != DT_BF16 && a[i].i != DT_F16 &&
			    a[i].i != DT_F64)
				return err_set(e, ERR_INTERNAL,
					       "cast: dtype %lld or %lld is not a float format",
					       (long long)a[4].i, (long long)a[3].i);
		STEP(cast, over(a[2].i, GPU_LANES), loop(23));
		break;
	case K_dropout:
		if (!(a[6].f >= 0 && a[6].f < 1))
			return err_set(e, ERR_INTERNAL, "dropout of %g is outside [0, 1)",
				       (double)a[6].f);
		STEP(dropout, over(fours(a + 2), GPU_LANES), loop(10) + loop(4));
		break;
	case K_noise:
		STEP(noise, over(fours(a + 2), GPU_LANES), loop(10) + loop(4));
		break;
	case K_xent:
		STEP(xent, a[6].i, 2 * lanes(a[7].i) + 2 * GROUPED);
		break;
	case K_route_fwd:
		TRY(route_check(a[7].i, a[8].i, e));
		STEP(route_fwd, a[6].i,
		     3 * lanes(a[7].i) + 3 * GROUPED + lanes(a[8].i) +
			     loop(a[8].i) * (loop(over(a[7].i, GPU_LANES) * (1 + loop(a[8].i))) +
					     GROUPED));
		break;
	case K_route_bwd:
		TRY(route_check(a[9].i, a[10].i, e));
		STEP(route_bwd, a[8].i,
		     loop(a[10].i) + 2 * over(a[9].i, GPU_LANES) * loop(a[10].i) +
			     2 * lanes(a[9].i) + GROUPED);
		break;
	case K_combine_fwd:
		STEP(combine_fwd, a[4].i, lanes(a[6].i) + over(a[6].i, GPU_LANES) * loop(a[5].i));
		break;
	case K_combine_bwd:
		STEP(combine_bwd, a[6].i, loop(a[7].i) * (lanes(a[8].i) + GROUPED));
		break;
	case K_row_norms:
		STEP(row_norms, a[2].i, lanes(a[3].i) + GROUPED);
		break;
	case K_scale_columns:
		STEP(scale_columns, a[4].i, lanes(a[5].i));
		break;
	case K_dot_columns:
		if (a[4].i)
			STEP(dot_columns, over(a[5].i, SUMMED), rows_of(a[4].i));
		break;
	case K_colsum:
		if (a[2].i)
			STEP(colsum, over(a[3].i, SUMMED), rows_of(a[2].i));
		break;
	case K_addbias:
		STEP(addbias, a[2].i, lanes(a[3].i));
		break;
	case K_act_fwd:
		STEP(act_fwd, over(a[2].i, SOME * GPU_LANES), somes(3));
		break;
	case K_act_bwd:
		STEP(act_bwd, over(a[3].i, SOME * GPU_LANES), somes(5));
		break;
	case K_layernorm_fwd:
		STEP(layernorm_fwd, a[6].i, 3 * lanes(a[7].i) + 2 * GROUPED);
		break;
	case K_layernorm_bwd:
		if ((a[1].b.buf || a[2].b.buf) && a[8].i)
			STEP(layernorm_dw, over(a[9].i, SUMMED), rows_of(a[8].i));
		STEP(layernorm_dx, a[8].i, 2 * lanes(a[9].i) + 2 * GROUPED);
		break;
	case K_mse:
		STEP(mse, a[4].i, lanes(a[5].i) + GROUPED);
		break;
	case K_im2col:
		STEP(im2col,
		     over(a[2].i * windows(a + 4, a + 6) * a[3].i * a[6].i * a[7].i, GPU_LANES), 0);
		break;
	case K_col2im:
		STEP(col2im, over(a[2].i * a[3].i * a[4].i * a[5].i, GPU_LANES),
		     loop(a[6].i) * loop(a[7].i));
		break;
	case K_swap_axes:
		STEP(swap_axes, over(a[2].i * a[3].i * a[4].i, GPU_LANES), 0);
		break;
	case K_pool_fwd:
		STEP(pool_fwd,
		     over(a[3].i * pooled(a[4].i, a + 6) * pooled(a[5].i, a + 6), GPU_LANES),
		     loop(a[6].i) * loop(a[6].i));
		break;
	case K_pool_bwd:
		STEP(pool_bwd, over(a[3].i * a[4].i * a[5].i, GPU_LANES),
		     loop(over(a[6].i, a[7].i) + 1) * loop(over(a[6].i, a[7].i) + 1));
		break;
	case K_nf4_dequant:
		if (a[12].i < 1 || (a[4].b.buf && !a[5].b.buf))
			return err_set(e, ERR_INTERNAL, "nf4_dequant: block %lld%s",
				       (long long)a[12].i, a[4].b.buf ? " without absmax2" : "");
		STEP(nf4_dequant, a[8].i, lanes(a[10].i) + some_lanes(a[10].i, 2));
		break;
	case K_sqnorm:
		STEP(sqnorm, over(a[2].i, 4096), lanes(4096) + GROUPED);
		break;
	case K_adamw:
		STEP(adamw, over(a[4].i, GPU_LANES), 0);
		break;
	case K_sgd:
		STEP(sgd, over(a[3].i, GPU_LANES), 0);
		break;
	case K_adamw8:
		STEP(adamw8, over(a[6].i, 256), 4 * loop(2) + 2 * GROUPED + 4 * loop(8));
		break;
	case K_lion:
		STEP(lion, over(a[3].i, GPU_LANES), 0);
		break;
	case K_factor_rows:
		STEP(factor_rows, a[2].i, lanes(a[3].i) + GROUPED);
		break;
	case K_factor_cols:
		STEP(factor_cols, over(a[3].i, SUMMED), rows_of(a[2].i));
		break;
	case K_factor_scale:
		STEP(factor_scale, over(a[3].i * a[4].i, GPU_LANES), 0);
		break;
	case K_COUNT:
		return err_set(e, ERR_INTERNAL, "kernel number %d does not exist", (int)k);
	}
#undef STEP
	return n && s[n - 1].groups > 0 ? n : 0;
}

/* Where the arguments of attention are. */
enum { FWD_N = 7, BWD_N = 11 }; /* N, S, H, G, D, four distances of rows, window */
enum { ATTN_S = 1, ATTN_H, ATTN_G, ATTN_D, ATTN_WINDOW = 9 };
static const int fwd_heads[] = { 0, 2, -1 }, fwd_keys[] = { 3, 4, -1 };
static const int bwd_heads[] = { 0, 3, 4, 7, -1 }, bwd_keys[] = { 1, 2, 5, 6, -1 };

int64_t gpu_pieces(enum dev_kernel k, const union dev_arg *a)
{
	if (k != K_attn_fwd && k != K_attn_bwd)
		return 1;
	const union dev_arg *n = a + (k == K_attn_fwd ? FWD_N : BWD_N);
	const struct dev_attn shape = { n[0].i,      n[ATTN_S].i, n[ATTN_H].i,
					n[ATTN_G].i, n[ATTN_D].i, n[ATTN_WINDOW].i };
	return dev_attn_pieces(&shape, k == K_attn_bwd);
}

/* Heads from `head` on of the matrices whose places `at` names. */
static void from_head(union dev_arg *a, const int *at, int64_t head, int64_t d, enum dtype t)
{
	for (; *at >= 0; at++)
		a[*at].b.off += (size_t)(head * d) * dtype_size(t);
}

int gpu_piece(enum dev_kernel k, enum dtype t, const union dev_arg *a, int64_t piece,
	      int64_t pieces, union dev_arg args[GPU_ARGS], struct gpu_step steps[GPU_STEPS],
	      struct err *e)
{
	const bool fwd = k == K_attn_fwd;
	memcpy(args, a, strlen(dev_kernel_sig(k)) * sizeof *a);
	if (pieces == 1)
		return gpu_steps(k, args, steps, e);
	union dev_arg *n = args + (fwd ? FWD_N : BWD_N), *lse = args + (fwd ? 1 : 8);
	const int64_t from = n[ATTN_G].i * piece / pieces, end = n[ATTN_G].i * (piece + 1) / pieces,
		      each = n[ATTN_H].i / n[ATTN_G].i;
	from_head(args, fwd ? fwd_heads : bwd_heads, from * each, n[ATTN_D].i, t);
	from_head(args, fwd ? fwd_keys : bwd_keys, from, n[ATTN_D].i, t);
	lse->b.off += (size_t)(from * each * n[0].i) * 4;
	n[ATTN_H].i = (end - from) * each;
	n[ATTN_G].i = end - from;
	return gpu_steps(k, args, steps, e);
}

/* kernel/gemm.k: passes before and behind the steps, and of one of them. */
static int64_t gemm_ends(int i)
{
	return 2 * shapes[i].rows *
	       (loop(shapes[i].vectors) + shapes[i].vectors * loop(shapes[i].wide));
}

static int64_t gemm_step(int i)
{
	const int64_t pieces = (shapes[i].m + shapes[i].n) * shapes[i].k / SOME / GPU_LANES;
	return 1 + 2 * pieces * (1 + somes(1)) + 4 + loop(shapes[i].k);
}

int64_t gpu_gemm_depth(int shape, int64_t passes)
{
	const int64_t steps = (passes - gemm_ends(shape)) / gemm_step(shape);
	return steps < 1           ? shapes[shape].k
	       : steps > INT32_MAX ? INT64_MAX
				   : steps * shapes[shape].k;
}

int gpu_gemm_shape(const struct dev_gemm *g, int best)
{
	const int64_t least = g->m < g->n ? g->m : g->n;
	const int large = best % GPU_LARGE;
	const bool processor = large == PROCESSOR, shallow = processor && g->k < FEW_DEEP,
		   half = 2 * g->m <= shapes[large].m || 2 * g->n <= shapes[large].n;
	if (best >= GPU_LARGE && !shallow && least <= (processor ? FEW_MOST : FEW_LEAST))
		return FEW;
	if (processor ? shallow && half : least <= shapes[SMALL].m)
		return SMALL;
	return half && !processor ? MEDIUM : large;
}

static struct dev_ref shifted(struct dev_ref r, int64_t elements, enum dtype t)
{
	return (struct dev_ref){ r.buf, r.off + (size_t)elements * dtype_size(t) };
}

/* C^T = op(B)^T op(A)^T */
static struct dev_gemm transposed(const struct dev_gemm *g)
{
	struct dev_gemm t = *g;
	t.m = g->n;
	t.n = g->m;
	t.a = g->b;
	t.b = g->a;
	t.ta = !g->tb;
	t.tb = !g->ta;
	t.lda = g->ldb;
	t.ldb = g->lda;
	return t;
}

struct gpu_step gpu_gemm(const struct dev_gemm *whole, int shape, int64_t k0, int64_t k1,
			 struct dev_ref sums, union dev_arg a[GPU_ARGS])
{
	const bool turned = shape == FEW && whole->m < whole->n;
	const struct dev_gemm t = turned ? transposed(whole) : *whole, *const g = &t;
	const int64_t flags = (g->ta ? 1 : 0) | (g->tb ? 2 : 0) | (g->c_dtype == DT_F32 ? 4 : 0) |
			      (k0 > 0 ? 8 : 0) | (k1 < g->k ? 16 : 0) | (turned ? 32 : 0);
	const int64_t ints[] = { g->m, g->n, k1 - k0, g->lda, g->ldb, g->ldc, flags };
	a[0].b = g->c;
	a[1].b = shifted(g->a, g->ta ? k0 * g->lda : k0, g->ab_dtype);
	a[2].b = shifted(g->b, g->tb ? k0 : k0 * g->ldb, g->ab_dtype);
	a[3].b = sums;
	a[4].b = g->d.buf ? g->d : g->c;
	for (int i = 0; i < 7; i++)
		a[5 + i].i = ints[i];
	a[12].f = g->alpha;
	a[13].f = g->beta;
	return (struct gpu_step){ (enum gpu_entry)(GPU_gemm_32 + shape),
				  over(g->m, shapes[shape].m) * over(g->n, shapes[shape].n),
				  gemm_ends(shape) +
					  over(k1 - k0, shapes[shape].k) * gemm_step(shape) };
}
