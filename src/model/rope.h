/* SPDX-License-Identifier: Apache-2.0 */
/* rope.h - rotary frequencies: from the configuration, and for sequences whose length changes
 * them.
 *
 * Where frequencies depend on the length (longrope, dynamic), each sequence has those of its own
 * length, whatever lies beside it in a microbatch: so no packing, pass or split changes them.
 * transformers takes the longest sequence of the batch. */
#ifndef HS_MODEL_ROPE_H
#define HS_MODEL_ROPE_H

#include "model/model.h"

struct err;

/* Reads the share that rotates and the frequencies of table 0. max_positions has been read. */
int rope_read(const json_t *j, const struct model_family *f, const char *where,
	      struct model_config *c, struct err *e);
/* A table: frequencies of base theta, scaled as s says (rope_scaling; NULL: not), and the factor on
 * sin and cos. `j` is the whole configuration. */
int rope_scale(const json_t *j, const json_t *s, const char *where, double theta,
	       struct model_config *c, int table, struct err *e);
/* The factor on scores that a scaling with mscale_all_dim asks for in latent attention
 * (transformers' yarn_apply_mscale). */
int rope_score_scale(const json_t *j, const char *where, double *scale_p, struct err *e);
/* Layers with a window get table 1: base theta, unless rope_parameters has one for
 * "sliding_attention", and its scaling. Which layers have one, and table 0, have been read. */
int rope_read_windowed(const json_t *j, const char *where, double theta, struct model_config *c,
		       struct err *e);
/* A table for heads of d numbers in layers of a kind ("full_attention"), from its part of
 * rope_parameters. Without any: base theta, the first `share` of the frequencies. */
int rope_read_kind(const json_t *j, const char *where, const char *kind, int table, int64_t d,
		   double theta, double share, struct model_config *c, struct err *e);
/* inv (rot/2): those of table 0 for a sequence of `length` tokens, above rope_limit. */
void rope_long(const struct model_config *c, int64_t length, float *inv);

#endif
