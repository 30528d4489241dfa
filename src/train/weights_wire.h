/* SPDX-License-Identifier: Apache-2.0 */
/* weights_wire.h - parameters from the coordinator to a worker that has no model: offered by
 * content hash, sent once, kept in a cache.
 *
 *   coordinator: WEIGHTS_OFFER (every tensor of this worker's stages: name, shape, storage,
 *     BLAKE2b-256 of its bytes)
 *   worker:      WEIGHTS_NEED (those it has neither in a model file of its own nor in its cache)
 *   coordinator: WEIGHTS, in pieces of at most 4 MiB, tensor after tensor in the order of NEED
 *
 * What travels: plain tensors as they lie in the file, in their own dtype; NF4 tensors in their
 * parts; everything else (GGUF blocks, rows that a GGUF keeps in another order) as the stage will
 * use it: in NF4 where it will be quantised, else in the activation dtype. So a worker computes
 * with the very bits it would have read from the file.
 *
 * The cache is CACHE_DIR/weights/ab/cdef...: one file per tensor, named by its hash, written beside
 * and renamed, verified when it is new or has changed (hashes.h); what does not match is removed
 * and fetched anew. */
#ifndef HS_TRAIN_WEIGHTS_WIRE_H
#define HS_TRAIN_WEIGHTS_WIRE_H

#include "file/model_file.h"
#include "model/source.h"
#include "net/net.h"
#include "train/protocol.h"

struct err;

/* ---- the coordinator's side ---- */

struct weights_out;

/* What worker `plan->stage` needs of the model, hashed. */
int weights_out_open(struct model_file *f, const struct worker_plan *plan, const char *cache_dir,
		     struct weights_out **w_p, struct err *e);
int weights_out_offer(struct weights_out *w, struct link *l, uint64_t job, struct err *e);
/* Answers a NEED; *bytes_p: what was sent. */
int weights_out_serve(struct weights_out *w, struct link *l, uint64_t job, const struct frame *need,
		      uint64_t *bytes_p, struct err *e);
uint64_t weights_out_bytes(const struct weights_out *w); /* of everything offered */
void weights_out_close(struct weights_out *w);           /* NULL is allowed */

/* A digest of a model's configuration and list of tensors, as 64 hexadecimal digits: tells models
 * apart without reading them. */
void weights_model_digest(const struct model_file *f, char out[65]);

/* ---- the worker's side ---- */

struct weights_in;

struct weights_in_options {
	struct link *coordinator;
	const struct worker_plan *plan;
	const char *model;     /* a path that may hold the same model; NULL: none */
	const char *cache_dir; /* NULL: $XDG_CACHE_HOME/heteroshard, else ~/.cache/heteroshard */
	uint64_t cache_limit;  /* bytes that may stay in the cache afterwards; 0: any number */
	uint64_t job;
};

/* Takes the OFFER and fetches what is missing. */
int weights_in_open(const struct weights_in_options *o, struct weights_in **w_p, struct err *e);
uint64_t weights_in_bytes(const struct weights_in *w);   /* of everything offered */
uint64_t weights_in_fetched(const struct weights_in *w); /* of what came over the link */
struct weight_source weights_in_source(struct weights_in *w);
void weights_in_close(struct weights_in *w); /* NULL is allowed */

#endif
