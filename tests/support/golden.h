/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h - files of expectations made by other programs (tests/golden), and models brought to a
 * device to be compared with them.
 *
 * Everything here fails the running cmocka test by itself when something is missing. Tests run in
 * the root of the repository. */
#ifndef HS_TESTS_SUPPORT_GOLDEN_H
#define HS_TESTS_SUPPORT_GOLDEN_H

#include "base/arena.h"
#include "base/err.h"
#include "model/stage.h"

#include <stdbool.h>
#include <stdint.h>

struct st_file;
struct model_file;

struct golden {
	const char *path;
	struct st_file *file;
	struct arena mem; /* aligned copies of what was asked for */
};

void must(int rc, struct err *e); /* fails with the message when rc is negative */

void golden_open(struct golden *g, const char *path);
void golden_close(struct golden *g);
bool golden_has(struct golden *g, const char *name);
/* The numbers of a tensor; *n_p may be NULL. */
const float *golden_f32(struct golden *g, const char *name, uint64_t *n_p);
const double *golden_f64(struct golden *g, const char *name, uint64_t *n_p);
const int32_t *golden_i32(struct golden *g, const char *name, uint64_t *n_p);
const void *golden_get(struct golden *g, const char *name, enum dtype dtype, uint64_t *n_p);
/* A text put together for a name; lives as long as the file is open. */
const char *golden_name(struct golden *g, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The microbatch whose tensors are PREFIXid, PREFIXpos, PREFIXlabel, PREFIXstart. *trained_p: the
 * number of labels that count. */
struct stage_batch golden_batch(struct golden *g, const char *prefix, int64_t *trained_p);

/* The largest |got - want|; NaN when one of them is NaN. The second: the same as a share of the
 * largest |want|. */
double golden_distance(const float *got, const float *want, uint64_t n);
double golden_relative(const float *got, const float *want, uint64_t n);

/* A model of tests/golden/models, whole, on the CPU. */
struct golden_model {
	struct model_file *file;
	struct dev *dev;
	struct model_config cfg;
	struct stage stage;
	struct slot slot;
};

/* fills in the layers */
void golden_model_config(const char *path, struct model_config *c);
void golden_model_open(struct golden_model *m, const char *path, const struct stage_options *o);
void golden_model_close(struct golden_model *m);
/* Sets a trained parameter. */
void golden_set(struct golden_model *m, const char *name, const float *v, uint64_t n);
/* Sum of the squares of all gradients. */
double golden_sqnorm(struct golden_model *m);

#endif
