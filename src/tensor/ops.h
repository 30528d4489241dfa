/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the ops with named arguments; the results are in the tape's dtype. */
#ifndef HS_TENSOR_OPS_H
#define HS_TENSOR_OPS_H

#include "dev/act.h"
#include "tensor/delta_heads.h"
#include "tensor/tape.h"

/* y (N,C) = rows ids (N) i32 of table (V,C). */
int op_embed_apply(struct tape *t, struct param *table, struct dev_ref ids, int64_t n,
		   struct tensor **y_p, struct err *e);
/* y = x normalised over its last dimension, times w (width) + plus [+ residual]: x (N,C) with width
 * C, or x (N,H,D) with width D for the per-head norms of Qwen3. */
int op_rmsnorm_apply(struct tape *t, struct tensor *x, struct param *w, int64_t width, float eps,
		     float plus, struct tensor *residual, struct tensor **y_p, struct err *e);

struct rope { /* as in kernel.def */
	struct dev_ref pos /* (N) i32 */, freq /* (K,R/2) f32 */, table /* (N) i32 or NONE */;
	float scale;
	int64_t rot; /* R; 0: the whole head */
	bool near;
	int64_t from; /* the first of a head's numbers that rotate */
};

/* In place on x (N,H,D). */
int op_rope_apply(struct tape *t, struct tensor *x, const struct rope *r, struct tensor **y_p,
		  struct err *e);

struct lora {                /* Hu et al. 2021: y += scale * drop(x) A^T B^T */
	struct param *a, *b; /* A (R,in), B (out,R) */
	struct param *m;     /* DoRA (op_linear.c): magnitudes (out); or NULL */
	float scale, dropout;
	struct dev_ref at; /* (N,2) i32 places of the tokens, for the mask (kernel.def); or NONE */
};

struct linear_part { /* a linear layer */
	struct param *w, *bias;
	struct lora lora; /* a is NULL without adapter */
};

/* y (N,out) = x (N,in) w^T [+ bias (out)] [+ residual (N,out)] [+ LoRA], w (out,in). `key`
 * determines the dropout mask. */
int op_linear_apply(struct tape *t, struct tensor *x, struct param *w, struct param *bias,
		    const struct lora *lora, uint64_t key, struct tensor *residual,
		    struct tensor **y_p, struct err *e);
/* The arguments of the op linear, for ops that are made of several. */
struct op_args op_linear_args(struct tensor *x, struct param *w, struct param *bias,
			      const struct lora *lora, uint64_t key, struct tensor *residual);
enum { JOINED_MOST = 3 };

/* Linear layers without bias and magnitudes that read one x. Their weights are frozen, all plain or
 * all NF4, and in the first case lie one behind the other (param_join). */
struct joined_linear {
	int n;
	struct linear_part part[JOINED_MOST];
	uint64_t key[JOINED_MOST]; /* of the dropout masks */
};

/* y (N, sum of out): what each layer makes of x (N,in), side by side. */
int op_joined_apply(struct tape *t, struct tensor *x, const struct joined_linear *j,
		    struct tensor **y_p, struct err *e);
/* y (n,c) = drop(x) for an adapter, with the mask of `key`; with acc 1, y += drop(x). */
int adapter_dropout(struct tape *t, const struct lora *l, uint64_t key, struct dev_ref y,
		    struct dev_ref x, int64_t n, int64_t c, int acc, struct err *e);
/* q (N,H,D), k and v (Nk,G,D) -> y (N,H*D). starts, kstarts (S+1) i32, S = nseq (kernel.def,
 * attn_fwd); backward needs them equal. sinks (H): one more score of each head without a value
 * (sink_fwd), or NULL. cap: soft cap on scores, or 0. */
int op_attention_apply(struct tape *t, struct tensor *q, struct tensor *k, struct tensor *v,
		       struct param *sinks, struct dev_ref starts, struct dev_ref kstarts,
		       int64_t nseq, int64_t window, float scale, float cap, struct tensor **y_p,
		       struct err *e);
/* y (N,F) = silu(gate (N,F)) * up (N,F) */
int op_swiglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		    struct err *e);
/* The same with gate and up clamped at limit, a gain in the sigmoid, and up + 1 (gpt-oss). */
int op_swiglu_oss_apply(struct tape *t, struct tensor *gate, struct tensor *up, float alpha,
			float limit, struct tensor **y_p, struct err *e);
/* y (N,F) = gelu(gate (N,F)) * up (N,F), gelu by tanh */
int op_geglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		   struct err *e);
/* y (N,F) = sigmoid(gate (N,F)) * up (N,F) */
int op_glu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		 struct err *e);
/* y (N,H*D) = sigmoid(gate (N,H)) * up (N,H,D) or (N,H*D), one gate for each head */
int op_head_glu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		      struct err *e);
/* y (N,F) = a (N,F) * b (N,F), number by number. Their gradients take their places: no op may read
 * them behind it, in its backward neither. */
int op_mul_apply(struct tape *t, struct tensor *a, struct tensor *b, struct tensor **y_p,
		 struct err *e);
/* y (N,C): each channel of x (N,C) convolved with its row of w (C*K) over the last K tokens; pos
 * (N) i32 and kept (K-1,C) or DEV_NONE as in conv1d_fwd. */
int op_conv1d_apply(struct tape *t, struct tensor *x, struct param *w, struct dev_ref pos,
		    struct dev_ref kept, struct tensor **y_p, struct err *e);

/* Linear attention by the gated delta rule: y (N,H,V) of x (N, 2*G*K+H*V), a and b (N,H), decay and
 * dt (H), start (S+1) i32; state (H,V,K) f32 of a single sequence, or DEV_NONE (delta_fwd). */
int op_delta_apply(struct tape *t, struct tensor *x, struct tensor *a, struct tensor *b,
		   struct param *decay, struct param *dt, const struct delta_heads *h,
		   struct dev_ref start, int64_t nseq, struct dev_ref state, struct tensor **y_p,
		   struct err *e);
/* y (N, C/every*W) = columns [from, from+W) of each `every` columns of x (N,C), one behind the
 * other. The parts that are taken of x must be all of x, and no two may overlap: each writes its
 * part of dx. */
int op_columns_apply(struct tape *t, struct tensor *x, int64_t every, int64_t from, int64_t width,
		     struct tensor **y_p, struct err *e);
/* y (N, C/every*W): the first W of each `every` columns of x (N,C), whose other columns nothing
 * reads: their gradient is 0. */
int op_cut_apply(struct tape *t, struct tensor *x, int64_t every, int64_t width,
		 struct tensor **y_p, struct err *e);
/* y (N,H,wide): columns [from, from+W) of each `every` columns of x (N,H*every), as op_columns
 * takes them, and behind those of each head z (N,B), and zeros where W+B is less than `wide`. z may
 * be NULL, B is then 0. */
int op_widen_apply(struct tape *t, struct tensor *x, int64_t every, int64_t from, int64_t width,
		   struct tensor *z, int64_t wide, struct tensor **y_p, struct err *e);
/* The same columns where they lie in x: rows are as far apart as those of x. rope, attention and
 * gated activations and products take such tensors. */
int op_slice_apply(struct tape *t, struct tensor *x, int64_t from, int64_t width,
		   struct tensor **y_p, struct err *e);
/* y = alpha x [+ residual], all of one shape */
int op_add_apply(struct tape *t, struct tensor *x, float alpha, struct tensor *residual,
		 struct tensor **y_p, struct err *e);
/* Cross-entropy of the rows `rows` (n i32) of x (N,C) against `labels` (n i32) through head (V,C):
 * the losses, (n) f32; in `hits` (n f32, or DEV_NONE) 1 where the label is the likeliest. The (n,V)
 * logits exist only in blocks of rows; on a recording tape dx is computed in the forward, for the
 * sum of the losses, each times its `weight` (n f32, or DEV_NONE). The logits are multiplied by
 * `factor`, then softly capped by `cap`, unless it is 0. */
int op_loss_apply(struct tape *t, struct tensor *x, struct param *head, struct dev_ref rows,
		  struct dev_ref labels, struct dev_ref hits, struct dev_ref weight, int64_t n,
		  float factor, float cap, float scale, struct tensor **y_p, struct err *e);
/* The rows of such a block, where n is larger. */
int64_t op_loss_rows(int64_t vocab);

/* y = f(x) of x's shape. */
int op_act_apply(struct tape *t, struct tensor *x, enum activation kind, struct tensor **y_p,
		 struct err *e);
/* y = (x - mean)/deviation * w + b over each `width` numbers of x; w, b (width). */
int op_layernorm_apply(struct tape *t, struct tensor *x, struct param *w, struct param *b,
		       int64_t width, float eps, struct tensor **y_p, struct err *e);
/* The same for each channel c of x (N,C,...), over all rows and places; w, b (C). */
int op_batchnorm_apply(struct tape *t, struct tensor *x, struct param *w, struct param *b,
		       float eps, struct tensor **y_p, struct err *e);
/* y (N,A+B): the rows of x (N,A), each with that of z (N,B) behind it. */
int op_concat_apply(struct tape *t, struct tensor *x, struct tensor *z, struct tensor **y_p,
		    struct err *e);
/* y (N,C) = x (N,C) with a share p of it 0 and the rest times 1/(1-p); `at` (N,2) i32 or DEV_NONE
 * and `key` as in kernel.def. */
int op_dropout_apply(struct tape *t, struct tensor *x, float p, struct dev_ref at, uint64_t key,
		     struct tensor **y_p, struct err *e);
/* y (N) f32: the mean square of x (N,W) - target (N,W) f32. */
int op_mse_apply(struct tape *t, struct tensor *x, struct dev_ref target, float scale,
		 struct tensor **y_p, struct err *e);
/* y (N) f32: the cross-entropy of the logits x (N,V) against labels (N) i32; of rows with the label
 * -100 it is 0. `hits` (N) f32 or DEV_NONE: 1 where the label is the likeliest. */
int op_xent_apply(struct tape *t, struct tensor *x, struct dev_ref labels, struct dev_ref hits,
		  float scale, struct tensor **y_p, struct err *e);

struct conv2d {
	int64_t ky, kx, stride, py, px; /* as in kernel.def */
};
/* y (N,O,OY,OX) of x (N,C,Y,X) with w (O, C*ky*kx) and bias (O) or NULL. */
int op_conv2d_apply(struct tape *t, struct tensor *x, struct param *w, struct param *bias,
		    const struct conv2d *c, struct tensor **y_p, struct err *e);
/* y (N,C,OY,OX): the largest number of each window of k x k every `stride` pixels of x (N,C,Y,X),
 * or the mean. */
int op_pool_apply(struct tape *t, struct tensor *x, int64_t k, int64_t stride, bool mean,
		  struct tensor **y_p, struct err *e);

#endif
