/* SPDX-License-Identifier: Apache-2.0 */
/* weights_out.h - parameters from the coordinator to a worker that has no model: offered by
 * content hash, sent once, kept in a cache.
 *
 *   coordinator: WEIGHTS_OFFER (every tensor of this worker's stages: name, shape, storage,
 *     BLAKE2b-256 of its bytes)
 *   worker:      WEIGHTS_NEED (those that are neither in a model file of its own nor in its cache)
 *   coordinator: WEIGHTS, in parts of at most 4 MiB, tensor after tensor in the order of NEED
 *
 * What travels: plain tensors as they are in the file, in their own dtype; NF4 tensors in their
 * parts; everything else (GGUF blocks, rows that a GGUF keeps in another order) as the stage will
 * use it: in NF4 where it will be quantised, else in the activation dtype. So a worker computes
 * with the very bits it would have read from the file.
 *
 * The worker's side is worker/weights_in.h. Its cache is CACHE_DIR/weights/ab/cdef...: one file per
 * tensor, named by its hash, written beside and renamed, verified when it is new or has changed
 * (hashes.h); what does not match is removed and fetched anew. */
#ifndef HS_COORD_WEIGHTS_OUT_H
#define HS_COORD_WEIGHTS_OUT_H

#include "file/model_file.h"
#include "net/net.h"
#include "proto/protocol.h"

struct err;
struct weights_out;

/* What worker `plan->stage` needs of the model, hashed. */
int weights_out_open(struct model_file *f, const struct plan_message *plan, const char *cache_dir,
		     struct weights_out **w_p, struct err *e);
/* How frames of a kind and a payload get to the worker. */
struct weights_way {
	int (*send)(void *ctx, const struct frame *f, struct err *e);
	void *ctx;
};
int weights_out_offer(struct weights_out *w, const struct weights_way *to, struct err *e);
/* Answers NEED, which comes once and names each tensor once, in their order; *bytes_p: what was
 * sent. */
int weights_out_serve(struct weights_out *w, const struct weights_way *to, const struct frame *need,
		      uint64_t *bytes_p, struct err *e);
uint64_t weights_out_bytes(const struct weights_out *w); /* of everything offered */
void weights_out_close(struct weights_out *w);           /* NULL is allowed */

/* A digest of a model's configuration and list of tensors, as 64 hexadecimal digits: tells models
 * apart without reading them. */
void weights_model_digest(const struct model_file *f, char out[65]);

#endif
