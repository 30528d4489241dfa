/* SPDX-License-Identifier: Apache-2.0 */
/* block.h - the steps of which decoder.c makes a layer, with what only some families have in
 * them. */
#ifndef HS_MODEL_BLOCK_H
#define HS_MODEL_BLOCK_H

#include "model/decoder.h"

/* The key of the dropout masks of a module here. */
uint64_t block_mask_key(const struct layer_context *c, enum linear site);
/* y (N,out) = x (N,in) Wi^T [+ bias] [+ residual (N,out)] [+ adapter]. */
int block_linear(struct tape *t, const struct layer *l, const struct layer_context *c,
		 enum linear i, struct tensor *x, struct tensor *residual, struct tensor **y_p,
		 struct err *e);
/* y (N,C) = x normed with w; without w x itself. */
int block_norm(struct tape *t, const struct layer_context *c, struct param *w, struct tensor *x,
	       struct tensor **y_p, struct err *e);
/* y (N,C) = [h +] what linear layer i makes of x, normed and multiplied where the family does
 * so. */
int block_add(struct tape *t, const struct layer *l, const struct layer_context *c, enum linear i,
	      struct tensor *x, enum layer_norm n, struct tensor *h, struct tensor **y_p,
	      struct err *e);
/* Whether the products of these linear layers with one input are made as one (op_joined.c): frozen,
 * of one kind, without bias and magnitudes. It follows from model and configuration alone, so that
 * every split computes the same. */
bool block_joins(const struct layer *l, const enum linear *i, int n);
/* Views x (N,n*d) as (N,n,d). */
void block_view_heads(struct tensor *x, int64_t n, int64_t d);
/* Rotates, in place, the numbers of each head of x (N,H,D) that begin at `from`. */
int block_rotate(struct tape *t, const struct layer_context *c, struct tensor *x, int64_t from,
		 struct tensor **y_p, struct err *e);
/* q (N,H,D), k and v (N,G,D) of x (N,C), normed where the family does so, q and k rotated; and the
 * gate of the output (N,H*D), or NULL. Without kept keys they may be columns of one tensor. */
int block_qkv(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *x, struct tensor *part[3], struct tensor **gate_p, struct err *e);
/* y (N,C) = [residual (N,C) +] what the MLP makes of h (N,C), normed by n where the family has that
 * norm. What no backward reads is not kept: the norm's output under frozen gate and up, and the
 * input of a frozen down (N,F). */
int block_mlp(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *h, enum layer_norm n, struct tensor *residual, struct tensor **y_p,
	      struct err *e);
/* y (N,C) = x (N,C) times the layer's number; where it has none, x itself. */
int block_scale(struct tape *t, const struct layer *l, struct tensor *x, struct tensor **y_p,
		struct err *e);
/* Appends the new keys (which 0) or values (1) of the layer, x (N,G,D), to the kept ones: all of
 * them are y (Nk,G,D). */
int block_append_kv(struct tape *t, const struct layer_context *c, int which, struct tensor *x,
		    struct tensor **y_p, struct err *e);

#endif
