/* SPDX-License-Identifier: Apache-2.0 */
/* worker_model.h - the part of the model that a worker holds, with its optimizer state: building
 * it, its gradient norm, the optimizer step, and its parameters to the coordinator and back, part
 * by part and by name (STATE). A replica (param.h) has no optimizer state: of STATE it takes the
 * value, and it sends nothing. */
#ifndef HS_ENGINE_WORKER_MODEL_H
#define HS_ENGINE_WORKER_MODEL_H

#include "model/stage.h"
#include "optim/optim.h"
#include "engine/orders.h"
#include "tensor/expert_cache.h"

struct err;

struct worker_model {
	struct stage *chunk; /* [chunks] */
	int chunks;
	struct dmem scratch; /* of all chunks: one works at a time */
	/* where something is offloaded: a CPU device, and its temporaries; else NULL */
	struct dev *host;
	struct dmem host_scratch;
	struct expert_cache *experts;  /* NULL: none are in the memory of the host */
	const struct optimizer *optim; /* NULL: nothing is trained */
	const struct optim_config *config;
	struct norm_buffer norms;
	/* (blocks_cap) block sums of what is owned here, in the order of parameters */
	float *blocks;
	size_t nblocks, blocks_cap;
	struct state_cut cut; /* of the group's training state; n is 0 where it is not shared */
	int cut_share[STATE_MEMBERS];
	/* the experts of these layers are dealt to `group` members, of which this is `place`; NULL:
	 * they are not */
	const struct expert_deal *deal;
	int group, place;
	struct norm_entry *entry; /* [nentry] of the last step */
	size_t nentry, entry_cap;
	unsigned char *number; /* between device and link */
	size_t cap;
};

/* The chunks that `plan` gives its worker, with parameters from `src`. On failure
 * worker_model_release() releases what was built. */
int worker_model_build(struct worker_model *m, struct dev *dev, const struct plan_message *plan,
		       const struct weight_source *src, struct err *e);
/* Called by the chunks between layers, and before each (stage.h). */
void worker_model_between(struct worker_model *m,
			  int (*between)(void *ctx, bool last, struct err *e),
			  int (*before)(void *ctx, int layer, struct err *e), void *ctx);
/* The replica of a tied embedding, where this is the end of the model and there is one; else
 * NULL. */
struct param *worker_model_replica(const struct worker_model *m);
/* The gradient of a replica is added to the embedding's, where both are here. */
int worker_model_tie(struct worker_model *m, struct err *e);
/* NORM: block sums of the gradients that are owned here, into blocks[0..nblocks). */
int worker_model_blocks(struct worker_model *m, struct err *e);
/* The number of block sums that each of the group's members has, into count_p[members]. */
void worker_model_block_counts(const struct worker_model *m, size_t *count_p);
/* Squared gradient norms of the layers held here, into entry[0..nentry), from the block sums of all
 * members, member after member. */
int worker_model_norms(struct worker_model *m, const float *blocks, struct err *e);
/* STEP: updates what is owned of the trained parameters, or only clears their gradients. */
int worker_model_step(struct worker_model *m, const struct step_message *s, struct err *e);
/* When all new values are here: the replica of a tied embedding in another chunk gets its. */
int worker_model_tie_value(struct worker_model *m, struct err *e);

int worker_model_load(struct worker_model *m, const struct frame *f, struct err *e);
/* Gives what is owned of the trained parameters and of their states away, part by part. */
uint64_t worker_model_state_bytes(const struct worker_model *m);
typedef int (*worker_model_take)(void *ctx, const struct state_message *s, struct err *e);
/* Without `all`, of what several members of a group have only the first one's. */
int worker_model_give(struct worker_model *m, bool all, worker_model_take take, void *ctx,
		      struct err *e);
/* The same as STATE frames to the coordinator. */
int worker_model_send(struct worker_model *m, const struct orders *o, struct net *net,
		      struct err *e);
void worker_model_release(struct worker_model *m);

#endif
