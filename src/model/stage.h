/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - a contiguous range of layers [first, last) on one device: its parameters, and running
 * microbatches through it forwards and backwards.
 *
 * The stage with layer 0 has the front (the embedding), the one with the last layer the end (final
 * norm, head and loss). A stage is built only from (layer range, parameters by name), anywhere. In
 * an interleaved schedule a worker has one struct stage for each of its chunks.
 *
 * A microbatch in flight occupies a slot. Life of a slot:
 *   stage_begin()    uploads the tokens' positions, and ids and labels where the stage needs them
 *   ... unless the stage is the front, the caller puts the incoming activation at slot->in ...
 *   stage_forward()  leaves the outgoing activation at slot->out, or the losses
 *   ... unless the stage is the end, the caller puts the incoming gradient at slot->grad, which
 *     with recomputation is the place of `out` ...
 *   stage_backward() adds to the parameters' gradients; leaves the gradient of `in` at slot->grad.
 *                    Or part by part, stage_backward_part(): part 0 has the end and the last layers
 *   stage_end()
 * Where the head is the embedding (cfg.tied) and trained, the end of the model has a replica of the
 * embedding (param.h): both gradients are sums of their own over all microbatches, added once at
 * the end of a step, whether front and end are one stage (stage_tie) or not. So their sum has the
 * same bits for every split.
 *
 * Activations (N,C) are in the stage's activation dtype. Backwards must come in microbatch order,
 * in which gradients are summed. Once a slot has seen the largest one nothing is allocated. */
#ifndef HS_MODEL_STAGE_H
#define HS_MODEL_STAGE_H

#include "model/deal.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/source.h"
#include "prefer/prefer.h"
#include "tensor/routing.h"

struct err;

struct stage_options {
	int64_t first, last; /* layers */
	enum dtype act;      /* dtype of activations and of frozen plain weights */
	bool quantize;       /* linear weights of layers that are not in 4 bits yet to NF4 */
	bool double_quant;
	bool train_all; /* full-parameter training */
	struct lora_options lora;
	bool recompute; /* gradient checkpointing: keep only each layer's input */
	uint64_t seed;  /* of dropout and noise */
	bool by_row;    /* dropout and noise are keyed by row, else by microbatch (checkpoint.h) */
	float neftune;  /* 0, or the noise on embeddings in training (stage.c) */
	struct prefer_options prefer; /* loss of microbatches of preferences */
	float router_loss, router_z;  /* factors on losses of routers (experts.h) */
	/* MAY: how a group shares the training state; must live until the stage is built */
	const struct state_cut *cut;
	/* MAY: the embedding of the stage that has the front, where that is on the same device and
	 * outlives this one: a head that is the embedding uses its numbers */
	struct param *embed;
	/* MAY: temporaries of several stages on one device, of which one works at a time */
	struct dmem *scratch;
	/* MAY: a CPU device that outlives the stage, whose memory has the training state of
	 * matrices (param.h: hosted); of those that are gathered, the pieces of frozen ones too */
	struct dev *host;
	bool host_values; /* matrices are gathered from there, also of a worker alone */
	bool host_state;  /* of trained matrices that are not gathered */
	/* MAY: experts are dealt to members of a group; must live as long as the stage. Here are
	 * those of `place`, and unless `only_experts` the rest */
	const struct expert_deal *deal;
	int place;
	bool only_experts;
	struct expert_cache *experts; /* MAY: takes frozen experts; outlives the stage */
};

struct layer {
	/* NULL: the family has none there; qnorm, knorm: those that linear_norm() names */
	struct param *norm[NORM_COUNT], *qnorm, *knorm, *sinks, *correction, *delta[DELTA_PARAMS];
	struct param *scalar, *router[ROUTER_PARAMS];
	float scale; /* what it is: it is not trained */
	struct linear_part lin[LIN_COUNT];
	struct linear_part *experts[LIN_COUNT]; /* of modules that each expert has; else NULL */
};

struct stage {
	struct dev *dev;
	struct model_config cfg;
	struct stage_options opt;
	const struct model_blocks *blocks; /* of which it has the layers of opt (model_block.h) */
	bool front, end;
	/* all, in the order front, layers, end; within a layer in the order of the computation */
	struct param *param;
	size_t nparam;
	struct param *embed, *norm, *head; /* tied: head is embed, or a replica of it */
	struct layer *layer;               /* opt.last - opt.first of them */
	/* [i]: the gradient of the input of the i-th layer here is needed; [n]: of the output */
	bool *needs;
	struct dev_buf *inv_freq;
	struct param ones;       /* of norms without weights; not one of `param` */
	struct dmem *scratch;    /* temporaries, shared by all slots */
	struct dmem own_scratch; /* what it is where opt.scratch is NULL */
	int64_t kept_rows;       /* of the last microbatch that was trained: its tokens */
	size_t kept_bytes;       /* and what its slot kept */
	/* MAY: the work of a layer has been queued on the device; last: of this pass */
	int (*between)(void *ctx, bool last, struct err *e);
	/* MAY: before a layer of the model is computed forward; -1: the front, INT_MAX: the end */
	int (*before)(void *ctx, int layer, struct err *e);
	void *between_ctx; /* of both */
	struct arena names;
};

/* mirrors data/batch.h */
struct stage_batch {
	uint64_t step, microbatch; /* key dropout and noise; by row: step, and where tokens stand */
	int64_t n, nseq;           /* tokens, sequences */
	int64_t first_row, nrows;
	const int32_t *row; /* (nrows+1) where rows begin; NULL: one row */
	/* (n), (n), (n), (nseq+1); id only at the front, label only at the end */
	const int32_t *id, *pos, *label, *start;
	const struct pairs *pairs; /* of preferences, only at the end; else NULL */
	bool base;                 /* without the adapters, for the reference of preferences */
	bool train;                /* false: no gradients, no dropout */
	float scale;               /* of the loss's gradient; 0: 1 */
};

struct prefer_score { /* sums of rewards over the chosen and the rejected answers, how many */
	double reward[2];
	uint64_t rewarded[2];
};

struct halves; /* model/halves.h */

struct rope_long {
	struct dev_ref freq, table; /* (K,rot/2) f32, (N) i32 */
};

struct slot {
	struct stage *stage;
	struct dmem mem;
	struct arena host;
	int32_t *rows; /* host staging of trained rows and their labels */
	float *losses; /* and behind them the hits */
	size_t rows_cap, losses_cap;
	struct stage_batch b;
	struct dev_ref places; /* (n,2) row in the global batch, offset in the row */
	struct dev_ref ids, pos, starts, trows, tlabels, thits;
	struct rope_long rope;
	struct router_sums *sums; /* MAY; with the derivatives before stage_backward() */
	float *noise;             /* (n) of each token; only with opt.neftune */
	int32_t *place;           /* (n,2) host staging of `places` */
	size_t place_cap, noise_cap;
	int64_t trained; /* rows with a label */
	struct dev_ref in, out, grad;
	struct halves *halves;   /* [layers] where experts are dealt */
	struct tensor **h;       /* input of each layer, and the last output */
	struct tape_node **tape; /* per layer; NULL when recomputed */
	struct dmem_mark *mark;  /* of mem before each layer */
	struct tape_node *front_tape, *end_tape;
	/* At the end, after stage_forward: sums of loss and of tokens that were the likeliest */
	double loss;
	int64_t hits;
	struct prefer_score score; /* then hits are rows */
	double *pair;              /* (nseq) log-probabilities of answers, and more behind */
	size_t pair_cap;
};

int stage_build(struct stage *s, struct dev *dev, const struct model_config *cfg,
		const struct stage_options *o, const struct weight_source *src, struct err *e);
void stage_release(struct stage *s);
struct param *stage_param(const struct stage *s, const char *name); /* NULL: not here */

/* Before the gradient norm, where `front` and `end` (maybe one stage) are on one device: adds the
 * gradient of a replica, if there is one, to the embedding's and clears it. */
int stage_tie(struct stage *front, struct stage *end, struct err *e);
/* After a step, where the replica has a value of its own: the embedding's new value. */
int stage_tie_value(const struct stage *front, struct stage *end, struct err *e);

/* Layers [first, last) of a stage, and its front and end where asked, as a stage of their own on
 * the same parameters. `s` must outlive it. */
int stage_part(const struct stage *s, int64_t first, int64_t last, bool front, bool end,
	       struct stage *part_p, struct err *e);
void stage_part_release(struct stage *part);

void slot_init(struct slot *sl, struct stage *s);
void slot_release(struct slot *sl);

int stage_begin(struct slot *sl, const struct stage_batch *b, struct err *e);
int stage_forward(struct slot *sl, struct err *e);
int stage_backward(struct slot *sl, struct err *e);
int stage_backward_part(struct slot *sl, int part, int parts, struct err *e);
/* The part that has the gradients of a layer of the model (param.layer). */
int stage_part_of(const struct stage *s, int layer, int parts);
void stage_end(struct slot *sl);
/* After stage_forward without training, at the end of the model: the logits (V) behind the
 * last token. */
int stage_logits(struct slot *sl, float *v, struct err *e);

#endif
