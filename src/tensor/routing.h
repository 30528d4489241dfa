/* SPDX-License-Identifier: Apache-2.0 */
/* routing.h - which experts the tokens of a microbatch go to, and what auxiliary losses need to
 * know of it.
 *
 * Further letters: E experts, K experts a token has, M = N K rows: those of expert 0, then those of
 * expert 1 and so on, within an expert in the order of the tokens. No row is left out and none is
 * added: an expert has as many as there are. */
#ifndef HS_TENSOR_ROUTING_H
#define HS_TENSOR_ROUTING_H

#include "tensor/ops.h"

enum { EXPERTS_MOST = 1024 };

struct routing {
	int64_t n, experts, k;
	const int64_t *first;  /* (E+1) rows [first[i], first[i+1]) are those of expert i */
	const int32_t *token;  /* (M) on the host: the token of a row */
	struct dev_ref source; /* the same, (M) i32 */
	struct dev_ref place;  /* (N,K) i32: the row of a token's k-th expert */
	struct dev_ref chosen; /* (N,K) i32: that expert */
};

/* Of one pass, over the layers that it has gone through so far: the auxiliary losses are made of
 * these, and of what comes back their derivatives. */
struct router_sums {
	int64_t experts;
	double rows;                 /* tokens, counted in each layer */
	double square;               /* of the log-sum-exp of router logits, summed over rows */
	double *picks, *probability; /* (E): rows that chose an expert, and its probability */
	/* From the end of the model: the loss's derivative by a row's probability (E), and the
	 * factor on the derivative by the square of its log-sum-exp. */
	float *balance, z;
	bool known; /* both are here */
};

/* How experts are chosen (kernel.def, route_fwd). */
struct router {
	int64_t k;
	bool whole;   /* the weights of a token sum to 1, before they are multiplied by scale */
	bool sigmoid; /* of each logit, in place of the softmax of all */
	float scale;  /* 0: 1 */
	struct param *bias; /* MAY: (E) f32, frozen: takes part in the choice, not in the weights */
	/* MAY: with `count` the forward adds to them, backward takes its derivatives from there */
	struct router_sums *sums;
	bool count;
};
/* The op route, and the order that its result means. logits (N,E), weight (N,K) f32. */
int op_route_apply(struct tape *t, struct tensor *logits, const struct router *how,
		   struct routing **r_p, struct tensor **weight_p, struct err *e);
/* y (N,K) = weight (N,K) times the number (E) of each one's expert. */
int op_route_scale_apply(struct tape *t, struct tensor *weight, struct param *number,
			 const struct routing *r, struct tensor **y_p, struct err *e);
/* y (M,C) = the rows of x (N,C) in the order of the experts. */
int op_permute_apply(struct tape *t, struct tensor *x, const struct routing *r, struct tensor **y_p,
		     struct err *e);

/* y (M,out): each expert's rows of x (M,in) through its own linear layer. */
struct grouped {
	const struct linear_part *expert; /* (E), which live as long as the tape */
	bool adapters;
	float dropout;     /* of adapters, in place of theirs */
	uint64_t key;      /* of masks, together with the expert's number */
	struct dev_ref at; /* (N,2) i32 places of the tokens, or NONE */
};
int op_grouped_apply(struct tape *t, struct tensor *x, const struct routing *r,
		     const struct grouped *g, struct tensor **y_p, struct err *e);
/* y (N,C) = residual (N,C) + the sum over a token's rows of weight (N,K) f32 times x (M,C), in the
 * order of K. */
int op_unpermute_apply(struct tape *t, struct tensor *x, struct tensor *weight,
		       struct tensor *residual, const struct routing *r, struct tensor **y_p,
		       struct err *e);

#endif
