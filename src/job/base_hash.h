/* SPDX-License-Identifier: Apache-2.0 */
/* base_hash.h - a hash of the base model, by which a checkpoint knows the model it was trained on.
 *
 * Of a GGUF file: the file's. Of a folder: over name and hash of config.json and of every
 * .safetensors file, in the order of their names. It is kept in cache_dir/base for as long as the
 * files' inodes, sizes and times are the same, since it takes a pass over all weights. */
#ifndef HS_JOB_BASE_HASH_H
#define HS_JOB_BASE_HASH_H

#include "file/hash.h"

struct err;

enum { BASE_HASH = HASH_HEX };

/* `cache_dir` as in the configuration; NULL: the default. */
int base_hash(const char *model, const char *cache_dir, char hex[BASE_HASH], struct err *e);

#endif
