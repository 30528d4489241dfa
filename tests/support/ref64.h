/* SPDX-License-Identifier: Apache-2.0 */
/* ref64.h - every kernel of kernel.def in float64, written as simply as possible: what all backends
 * are compared with.
 *
 * Arguments stand in the order of kernel.def; arrays hold the values (already rounded to their
 * dtype), strides count elements. */
#ifndef HS_TESTS_SUPPORT_REF64_H
#define HS_TESTS_SUPPORT_REF64_H

#include <stdbool.h>
#include <stdint.h>

struct ref_attn {
	const int32_t *qs, *ks; /* S+1 each */
	int64_t nq, nk, s, h, g, d, ldo, ldq, ldk, ldv, window;
	double scale, cap;
};

void ref_embed_fwd(double *y, const double *table, const int32_t *ids, int64_t n, int64_t c);
void ref_embed_bwd(double *dtable, const double *dy, const int32_t *ids, int64_t n, int64_t c);
void ref_rmsnorm_fwd(double *y, double *rstd, const double *x, const double *w, int64_t n,
		     int64_t c, double eps, double plus);
/* adds to dx and, unless NULL, dw */
void ref_rmsnorm_bwd(double *dx, double *dw, const double *dy, const double *x, const double *w,
		     const double *rstd, int64_t n, int64_t c, double plus);
/* The angle is the float32 product of position and frequency, as Hugging Face forms it. */
void ref_rope(double *x, const int32_t *pos, const double *freq, int64_t n, int64_t h, int64_t d,
	      int64_t ldx, int64_t dir, double scale, int64_t rot, bool near, const int32_t *table);
void ref_attn_fwd(double *o, double *lse, const double *q, const double *k, const double *v,
		  const struct ref_attn *a);
/* o: the output as backward gets it, rounded to its dtype; NULL: not rounded */
void ref_attn_bwd(double *dq, double *dk, double *dv, const double *dout, const double *q,
		  const double *k, const double *v, const double *o, const struct ref_attn *a);
void ref_swiglu_fwd(double *y, const double *gate, const double *up, int64_t n);
void ref_swiglu_bwd(double *dgate, double *dup, const double *dy, const double *gate,
		    const double *up, int64_t n);
void ref_swiglu_oss_fwd(double *y, const double *gate, const double *up, int64_t n, double alpha,
			double limit);
void ref_swiglu_oss_bwd(double *dgate, double *dup, const double *dy, const double *gate,
			const double *up, int64_t n, double alpha, double limit);
/* o and lse as they were before; both are changed */
void ref_sink_fwd(double *o, double *lse, const double *sink, int64_t n, int64_t h, int64_t d);
/* subtracts from dsink */
void ref_sink_bwd(double *dsink, const double *dout, const double *o, const double *lse,
		  const double *sink, int64_t n, int64_t h, int64_t d);
void ref_geglu_fwd(double *y, const double *gate, const double *up, int64_t n);
void ref_geglu_bwd(double *dgate, double *dup, const double *dy, const double *gate,
		   const double *up, int64_t n);
/* adds to y */
/* `at` (n,2) may be NULL, as in kernel.def */
void ref_dropout(double *y, const double *x, const int32_t *at, int64_t n, int64_t c, float p,
		 uint64_t key);
/* dlogits may be NULL */
/* adds to y */
void ref_noise(double *y, const double *a, const int32_t *at, int64_t n, int64_t c, uint64_t key);
/* `hit` and `weight` may be NULL */
void ref_xent(double *loss, double *dlogits, const double *logits, const int32_t *labels, int64_t n,
	      const double *weight, double *hit, int64_t v, int64_t ldl, int64_t ldd, double scale,
	      double cap);
/* `bias` may be NULL */
void ref_route_fwd(double *p, double *lse, double *w, double *chosen, const double *logits,
		   const double *bias, int64_t n, int64_t experts, int64_t k, int64_t whole,
		   int64_t sigmoid, double scale);
/* `balance` may be NULL */
void ref_route_bwd(double *dlogits, const double *dw, const double *p, const double *lse,
		   const double *w, const int32_t *chosen, const double *balance,
		   const double *logits, int64_t n, int64_t experts, int64_t k, int64_t whole,
		   int64_t sigmoid, double scale, double z);
/* adds to y; `w` may be NULL */
void ref_combine_fwd(double *y, const double *x, const double *w, const int32_t *place, int64_t n,
		     int64_t k, int64_t c);
void ref_combine_bwd(double *dx, double *dw, const double *dy, const double *x, const double *w,
		     const int32_t *place, int64_t n, int64_t k, int64_t c);
void ref_colsum(double *db, const double *dy, int64_t n, int64_t c);
void ref_nf4(double *dst, const uint8_t *packed, const double *absmax, const double *code,
	     int64_t in, int64_t row0, int64_t nr, int64_t col0, int64_t nc, int64_t ldd,
	     int64_t block);
/* Value of a code of the dynamic map of 8 bits, with or without sign (arXiv 2110.02861, section 2):
 * seven decades, the one below 1 in 2^6 (without sign 2^7) equal parts and each further one in half
 * as many, a code standing for the middle of its part; 0 and 1 have codes of their own. */
double ref_dynamic8(bool with_sign, uint8_t code);
void ref_lion(double *p, double *m, const double *g, int64_t n, double lr, double b1, double b2,
	      double wd, double gscale);
void ref_adamw(double *p, double *m, double *v, const double *g, int64_t n, double lr, double b1,
	       double b2, double eps, double wd, double bc1, double bc2, double gscale);
/* mom may be NULL */
void ref_sgd(double *p, double *mom, const double *g, int64_t n, double lr, double mu, double wd,
	     double gscale);
void ref_gemm(double *c, const double *a, const double *b, int64_t m, int64_t n, int64_t k, bool ta,
	      bool tb, int64_t lda, int64_t ldb, int64_t ldc, double alpha, double beta);

void ref_act_fwd(double *y, const double *x, int64_t n, int64_t kind);
void ref_act_bwd(double *dx, const double *dy, const double *x, int64_t n, int64_t kind);
void ref_layernorm_fwd(double *y, double *mean, double *rstd, const double *x, const double *w,
		       const double *b, int64_t n, int64_t c, double eps);
void ref_layernorm_bwd(double *dx, double *dw, double *db, const double *dy, const double *x,
		       const double *w, const double *mean, const double *rstd, int64_t n,
		       int64_t c);
void ref_mse(double *loss, double *dx, const double *x, const double *target, int64_t n, int64_t w,
	     double scale);

/* Windows of ky x kx every `s` pixels in images (n,c,y,x) with py, px zeros around them. */
struct ref_conv {
	int64_t n, c, y, x, ky, kx, s, py, px;
};
void ref_im2col(double *cols, const double *x, const struct ref_conv *k);
/* dx += */
void ref_col2im(double *dx, const double *dcols, const struct ref_conv *k);
/* Of n images of one channel; at: NULL with kind 1. */
void ref_pool_fwd(double *y, int32_t *at, const double *x, const struct ref_conv *k, int64_t kind);
void ref_pool_bwd(double *dx, const double *dy, const int32_t *at, const struct ref_conv *k,
		  int64_t kind);

#endif
