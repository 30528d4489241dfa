/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - where a stage gets its parameters from: a file on this machine, or the coordinator
 * over a link.
 *
 * Tensors are requested by Hugging Face name, one at a time, so that a stage of any layer range
 * reads only its own. */
#ifndef HS_MODEL_SOURCE_H
#define HS_MODEL_SOURCE_H

#include "tensor/quant.h"

struct err;
struct model_file;
struct model_config;

struct source_tensor {
	bool nf4; /* already in 4 bits */
	int ndim;
	int64_t shape[2];
};

struct weight_source {
	void *ctx;
	/* 1: found; 0: no tensor of this name; negative: error. */
	int (*find)(void *ctx, const char *name, struct source_tensor *t_p, struct err *e);
	/* Rows [row0, row0+rows) as float32 (a vector has one element a row). */
	int (*read)(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		    struct err *e);
	/* The parts of a tensor that is in 4 bits; valid until drop(). */
	int (*nf4)(void *ctx, const char *name, struct nf4_parts *parts_p, struct err *e);
	/* The tensor will not be read again. */
	void (*drop)(void *ctx, const char *name);
};

/* The source that reads an open model file. */
struct weight_source source_from_file(struct model_file *f);
/* Random numbers as large as trained weights, the same for the same name; `c` is borrowed. */
struct weight_source source_random(const struct model_config *c);

/* Every tensor of the file must be explained by the configuration, and the embedding must have
 * its shape. */
int source_check_file(const struct model_file *f, const struct model_config *c, struct err *e);

#endif
