/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h - a mixture of experts in place of an MLP (Shazeer et al. 2017, arXiv 1701.06538), and
 * the losses of its routers.
 *
 *   p = softmax(m Wrouter)             of each token; its experts are the K likeliest
 *   h = h + sum over these of weight * (act(m Wgate) * m Wup) Wdown, each with its own matrices
 *   h = h + [sigmoid(m wscore) *] the expert that every token has (Qwen2-MoE, GLM-4)
 *
 * Side by side with an MLP (Gemma 4), with norms of their own and s a number of each expert:
 *
 *   p = softmax(norm(h) Wrouter / sqrt(C)), weights of the K likeliest divided by their sum, * s
 *   h = h + norm(norm(MLP(norm(h))) + norm(sum over these of weight * expert(norm(h))))
 *
 * GLM-4 has p = sigmoid(m Wrouter), chooses by p + a correction, and multiplies the weights by a
 * number (DeepSeek-V3, arXiv 2412.19437, equations 12 to 16).
 *
 * Balance (Fedus et al. 2022, arXiv 2101.03961, equations 4 to 6, as transformers joins it over all
 * layers): E * sum over experts of f P, f being the picks of an expert divided by the R rows
 * (tokens times layers) of the pass, P its mean probability. z (Zoph et al. 2022, arXiv 2202.08906,
 * equation 5): the mean over the rows of the squared log-sum-exp of the logits. Both are evaluated
 * for each pass and weigh as many units as the pass has (trained tokens, or rows of preferences),
 * so that the loss of a step stays a mean over its units. */
#ifndef HS_MODEL_EXPERTS_H
#define HS_MODEL_EXPERTS_H

#include "model/block.h"

/* A layer on its way through its experts. Between its halves other microbatches may be computed;
 * what backward has to know of the tensors here is in the slot's memory then (halves.c). */
struct expert_rows {
	struct routing *r;
	struct tensor *h /* (N,C) */, *weight /* (N,K) */, *rows /* (M,C) */;
	struct tensor *mlp; /* (N,C) what the MLP beside them gave, normed; NULL: there is none */
};
/* The router on what attention left, h (N,C): rows in the order of the experts. */
int experts_route(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct err *e);
/* y (M,C): the rows (M,C), each through its expert; c->places are those of r's tokens. */
int experts_compute(struct tape *t, const struct layer *l, const struct layer_context *c,
		    struct tensor *rows, const struct routing *r, struct tensor **y_p,
		    struct err *e);
/* y (N,C) from what the experts made of the rows. */
int experts_combine(struct tape *t, const struct layer *l, const struct layer_context *c,
		    const struct expert_rows *w, struct tensor *rows, struct tensor **y_p,
		    struct err *e);
/* All of it: y (N,C) from h (N,C). */
int experts_apply(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e);
/* A slot that begins: room for the sums, where a loss of routers is asked for. */
int experts_begin(struct slot *sl, struct err *e);
/* At the end of the model: adds the losses to that of the slot, and makes their derivatives. */
void experts_end(struct slot *sl);

#endif
