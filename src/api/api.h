/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - what the files of the public interface (include/heteroshard.h) share: errors to the
 * caller, and models with who uses them. */
#ifndef HS_API_API_H
#define HS_API_API_H

#include "base/arena.h"
#include "base/err.h"
#include <heteroshard.h>
#include "model/model.h"
#include "model/source.h"

struct api_param {
	const char *name;
	int ndim;
	int64_t dim[2];
	uint64_t count;
	float *value;
};

struct hs_model {
	bool busy; /* a call uses it */
	struct model_config cfg;
	char *text;
	uint64_t seed;
	struct api_param *param;
	size_t nparam;
	struct arena names;
	struct hs_model *next; /* of all that there are */
};

/* Hands an error to the caller, who may not want it; returns the code. */
int api_error(const struct err *from, hs_error *to);
int api_refuse(hs_error *to, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Copies a struct of the caller, whose first member is its size, into ours of `cap` bytes; what it
 * does not have is 0. False: it is NULL, or smaller than `least`, the first version. */
bool api_take(void *to, size_t cap, const void *from, size_t least);

/* Whether there is each of the n words. */
bool api_words(const char *const *word, size_t n);

/* The model is this caller's until api_leave(). An error where there is no such model, or another
 * call has it. */
int api_enter(const hs_model *m, hs_error *e);
void api_leave(const hs_model *m);

/* Where stages get its parameters from. */
struct weight_source api_source(hs_model *m);
/* Its folder, as hs_model_save() writes it, by one that has entered. */
int api_save(const hs_model *m, const char *dir, struct err *e);
/* The values of another folder of the same model. */
int api_take_values(hs_model *m, const char *dir, struct err *e);

#endif
