/* SPDX-License-Identifier: Apache-2.0 */
/* own.h - kinds of blocks for models of one's own: rows of own.def, and kinds that a program adds
 * at run time (own_register).
 *
 * A kind says which shape comes out of which, which parameters it has with their first values, and
 * its forward pass as ops on the tape. Backward is the tape's. */
#ifndef HS_MODEL_OWN_H
#define HS_MODEL_OWN_H

#include "model/own_spec.h"
#include "model/stage.h"

#include <stddef.h>

struct err;

struct own_key {
	const char *name;
	double least, most;
	double def; /* NaN: it must be given */
	bool whole; /* an integer */
};

/* First values: zeros; ones; uniform in +-1/sqrt(fan); normal (0, 1). As PyTorch's modules of the
 * same names begin. */
enum own_first { FIRST_ZERO, FIRST_ONE, FIRST_UNIFORM, FIRST_NORMAL };

struct own_param {
	const char *name; /* "weight" */
	int ndim;
	int64_t dim[2];
	enum own_first first;
	int64_t fan;
};

enum { OWN_PARAMS = 8 /* of a block, at most */ };

struct own_run;

struct own_kind {
	const char *name, *help;
	struct own_key key[OWN_NUMBERS]; /* a name NULL ends them; the first may be given alone */
	bool holds;                      /* other blocks, in braces */
	bool loss;                       /* ends a model; `out` is the shape of its target */
	bool noise;                      /* draws random numbers in training */
	bool batch;                      /* a row depends on the others of its pass */
	const char *hash;                /* of what it does; NULL: a row of own.def */
	/* Sets `out`, from `in` and the settings. Not NULL: what it needs for an input. */
	const char *(*fit)(struct own_block *b);
	/* MAY, of one that holds others: sets `out` from the shape that they give. Not NULL: what
	 * that must be. Without it it must be `out` */
	const char *(*join)(struct own_block *b, const struct own_shape *inside);
	/* MAY: its parameters; how many */
	size_t (*params)(const struct own_block *b, struct own_param p[OWN_PARAMS]);
	/* y = the block of x, whose shape is (N, in). Of a loss: (N) f32. Parameters come from
	 * own_take(), in the order of params(). */
	int (*forward)(struct own_run *r, const struct own_block *b, struct tensor *x,
		       struct tensor **y_p, struct err *e);
	/* Of the forward pass of a row; NULL: next to nothing */
	double (*flops)(const struct own_block *b);
};

/* A forward pass through blocks. */
struct own_run {
	struct slot *sl;
	struct tape *t;
	const struct own_model *m;
	struct param *next; /* of the block that runs */
	int at;             /* its place in m->block: the site of its noise */
};

static inline struct param *own_take(struct own_run *r) { return r->next++; }
/* The blocks [first, end) of r->m, one after the other. */
int own_run_blocks(struct own_run *r, int first, int end, struct tensor *x, struct tensor **y_p,
		   struct err *e);
/* Makes x (N, shape), which has as many numbers. */
void own_view(struct tensor *x, const struct own_shape *s);
/* The key of the noise that the running block draws. */
uint64_t own_noise_key(const struct own_run *r);

/* ---- the kinds ---- */

const struct own_kind *own_kind_at(size_t i); /* NULL past the end */
const struct own_kind *own_kind_find(const char *name, size_t n);
/* Adds a kind, which must stay where it is. A name that is there already is an error, unless it is
 * the same kind. */
int own_kind_register(const struct own_kind *k, struct err *e);

/* ---- the parameters of a model ---- */

/* Parameter i of a model, with its whole name ("2.weight", and "3.0.weight" of a block inside of
 * block 3) and its layer (-1: the front). False: there are not so many. */
bool own_param_at(const struct own_model *m, size_t i, struct own_param *p_p, char name[256],
		  int *layer_p);
/* By its whole name; false: there is none. */
bool own_param_find(const struct own_model *m, const char *name, struct own_param *p_p);
/* How many a layer has; of the front -1. */
size_t own_params(const struct own_model *m, int64_t layer);
/* Whether the loss compares with the number of a class; false: with floats. */
bool own_has_classes(const struct own_model *m);
/* A block whose rows depend on the others of their pass; NULL: there is none. */
const struct own_kind *own_of_batches(const struct own_model *m);
/* Whether data fits: samples of as many numbers as the model reads and compares with. `where`: the
 * model, for messages; `plain`: nothing is asked for that only a language model has. */
struct sample_set;
int own_check_data(const struct own_model *m, const struct sample_set *s, const char *where,
		   bool plain, struct err *e);
/* The first values of rows [row0, row0+rows) of a parameter, drawn by its name from the seed. */
void own_first_values(const struct own_param *p, const char *name, uint64_t seed, int64_t row0,
		      int64_t rows, float *dst);

#endif
