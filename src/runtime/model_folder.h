/* SPDX-License-Identifier: Apache-2.0 */
/* model_folder.h - the files beside the weights in a model's folder, so that this program and
 * transformers open what was trained or merged: config.json, the tokenizer with its chat template,
 * generation_config.json.
 *
 * From a folder the files are copied. From a GGUF they are made: tokenizer.json gives the same
 * ids. */
#ifndef HS_RUNTIME_MODEL_FOLDER_H
#define HS_RUNTIME_MODEL_FOLDER_H

#include "base/dtype.h"
#include "file/model_file.h"

#include <stdbool.h>

struct err;

/* Into the existing folder `dir`; `dtype`: of the weights there. */
int model_folder_write(struct model_file *base, const char *dir, enum dtype dtype, struct err *e);
/* Its config.json alone: of a model without a tokenizer. */
int model_folder_config(const struct model_file *base, const char *dir, enum dtype dtype,
			struct err *e);
/* ERR_UNSUPPORTED for what config.json has no words for; asked before the work. */
int model_folder_check(const struct model_file *base, struct err *e);
/* Whether a model's folder has files of these names beside its weights. */
bool model_folder_has(const char *name);

#endif
