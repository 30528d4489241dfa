/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.h - one decoder layer, for training (stage.h) and for generation, where the same layers
 * run one sequence with keys and values kept. */
#ifndef HS_MODEL_DECODER_H
#define HS_MODEL_DECODER_H

#include "model/stage.h"

struct err;

struct kv_cache {
	struct stage *stage;
	int64_t cap, len; /* positions */
	/* Per layer k then v, each (cap, G, D); of linear attention what its convolution saw last
	 * (K-1, width), then the state (H,V,K) f32. at[]: where those of a layer here begin */
	struct dev_buf *kv;
	size_t *at;
	struct dmem mem;
	struct arena host;
	struct dev_ref out; /* (n,C) of the last call, when the stage is not the end */
	float *logits;      /* (V) of the last position, when it is */
};

int kv_init(struct kv_cache *c, struct stage *s, int64_t cap, struct err *e);
void kv_release(struct kv_cache *c);
/* n more positions: ids at the front, else the activation (n,C) is at `in`. */
int kv_step(struct kv_cache *c, const int32_t *id, struct dev_ref in, int64_t n, struct err *e);

/* For the layers of both: one decoder layer (decoder.c). */
struct layer_context {
	struct stage *stage;
	int64_t index; /* in the model */
	uint64_t step, microbatch;
	struct dev_ref pos, starts, kstarts, places;
	struct rope_long rope;
	int64_t nseq;
	bool train, base;         /* base: without the adapters */
	struct router_sums *sums; /* NULL: no loss of routers */
	bool count;               /* this pass adds to them */
	struct kv_cache *kv;      /* NULL while training */
};

/* Frequencies and tables for rope, where a sequence has frequencies of its own (rope.h); else NONE
 * and table 0 is used. The sequences are those of start (nseq+1); a row of text that will be longer
 * has the length `most`, or 0. Device memory is from `mem`, host memory from `host`. */
int rope_upload(const struct model_config *m, const int32_t *start, int64_t nseq, int64_t most,
		struct dmem *mem, struct arena *host, struct rope_long *r_p, struct err *e);
/* y (N,C): the embeddings of ids (N) i32, times embed_scale */
int stage_embed(struct tape *t, const struct stage *s, struct dev_ref ids, int64_t n,
		struct tensor **y_p, struct err *e);
struct expert_rows;
/* Its first half, up to the experts' rows (experts.h). */
int decoder_route(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct err *e);
int decoder_layer(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e);

#endif
