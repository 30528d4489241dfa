/* SPDX-License-Identifier: Apache-2.0 */
/* optim_muon.c - Muon (Jordan et al. 2024): momentum, made orthogonal by five Newton-Schulz steps,
 * for the matrices inside the layers; AdamW for embedding, head and vectors. As torch.optim.Muon
 * with adjust_lr_fn "match_rms_adamw" (Liu et al. 2025, arXiv 2502.16982), so that one learning
 * rate serves both; the steps are computed in float32 here, in bfloat16 there. */
#include "optim/optim.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

enum { STEPS = 5 };
static const double coefficient[3] = { 3.4445, -4.7750, 2.0315 };
static const double least_norm = 1e-7, rms = 0.2;

static bool orthogonal(const char *name, int ndim)
{
	return ndim == 2 && !strstr(name, "embed_tokens") && !strstr(name, "lm_head") &&
	       strncmp(name, "embed.", 6);
}

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	uint64_t n = (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1));
	if (orthogonal(name, ndim)) {
		s[0] = optim_state_f32("momentum_buffer", n);
		return 1;
	}
	s[0] = optim_state_f32("exp_avg", n);
	s[1] = optim_state_f32("exp_avg_sq", n);
	return 2;
}

/* y = alpha x + beta y, n numbers */
static int mix(struct dev_ref y, struct dev_ref x, int64_t n, double alpha, double beta,
	       struct err *e)
{
	const union dev_arg a[] = {
		{ .b = y }, { .b = x }, { .i = n }, { .f = (float)alpha }, { .f = (float)beta }
	};
	return dev_launch(y.buf->dev, K_axpby, DT_F32, a, e);
}

/* C(m,n) = alpha op(A) op(B) + beta C, row-major and dense. */
static int product(struct dev *d, struct dev_ref c, struct dev_ref a, bool ta, struct dev_ref b,
		   bool tb, int64_t m, int64_t n, int64_t k, double alpha, float beta,
		   struct err *e)
{
	const struct dev_gemm g = { .m = m,
				    .n = n,
				    .k = k,
				    .ta = ta,
				    .tb = tb,
				    .a = a,
				    .b = b,
				    .c = c,
				    .lda = ta ? m : k,
				    .ldb = tb ? k : n,
				    .ldc = n,
				    .ab_dtype = DT_F32,
				    .c_dtype = DT_F32,
				    .alpha = (float)alpha,
				    .beta = beta };
	return dev_gemm(d, &g, e);
}

/* X(R,C), scaled to a norm of 1, comes nearer to the orthogonal matrix of its singular vectors:
 * X = a X + (b A + c A A) X with A = X X^T, or from the other side where R is above C. */
static int newton_schulz(struct param *p, struct dmem *scratch, struct err *e)
{
	struct dev *d = p->value->dev;
	const int64_t rows = p->dim[0], cols = p->dim[1], small = rows < cols ? rows : cols;
	const bool wide = rows <= cols;
	const size_t square = (size_t)(small * small) * 4, whole = (size_t)param_count(p) * 4;
	struct dev_ref x = param_grad(p), a, b, other;
	struct dmem_mark mark = dmem_mark(scratch);
	TRY(dmem_take(scratch, square, &a, e));
	TRY(dmem_take(scratch, square, &b, e));
	TRY(dmem_take(scratch, whole, &other, e));
	for (int i = 0; i < STEPS; i++) {
		TRY(product(d, a, x, !wide, x, wide, small, small, wide ? cols : rows, 1, 0, e));
		TRY(mix(b, a, small * small, coefficient[1], 0, e));
		TRY(product(d, b, a, false, a, false, small, small, small, coefficient[2], 1, e));
		TRY(mix(other, x, param_count(p), coefficient[0], 0, e));
		TRY(product(d, other, wide ? b : x, false, wide ? x : b, false, rows, cols,
			    wide ? rows : cols, 1, 1, e));
		TRY(dev_copy(x, other, whole, e));
	}
	dmem_back(scratch, mark);
	return 0;
}

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	const double mu = c->momentum, scale = (double)s->scale;
	const int64_t n = param_count(p);
	double squares;
	if (!orthogonal(p->name, p->ndim))
		return optim_adamw_step(p, c, s, e);
	/* m = mu m + (1-mu) g, then the direction of Nesterov: mu m + (1-mu) g */
	const struct dev_ref m = DEV_REF(p->state[0], 0), g = param_grad(p);
	TRY(mix(m, g, n, (1 - mu) * scale, mu, e));
	TRY(mix(g, m, n, mu, (1 - mu) * scale, e));
	TRY(grad_sqnorm(p, w->scratch, w->host, &squares, e));
	TRY(mix(g, g, n, 1 / fmax(sqrt(squares), least_norm), 0, e));
	TRY(newton_schulz(p, w->scratch, e));
	double longest = fmax((double)p->dim[0], (double)p->dim[1]);
	return optim_plain_step(p, s->lr, p->decay ? (float)c->weight_decay : 0,
				(float)(rms * sqrt(longest)), e);
}

static const char *const keys[] = { "adam_beta1", "adam_beta2", "adam_epsilon", "momentum", NULL };
static const struct optim_default defaults[] = { { "momentum", 0.95 }, { 0 } };

const struct optimizer optim_muon = {
	.name = "muon",
	.help = "Muon for matrices (momentum is 0.95 where not given), AdamW for embedding, head "
		"and "
		"vectors",
	.keys = keys,
	.defaults = defaults,
	.cut = CUT_MATRIX,
	.states = states,
	.update = update,
};
