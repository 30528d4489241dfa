/* SPDX-License-Identifier: Apache-2.0 */
/* base_hash.h - a hash of the base model: a checkpoint records it, so that resuming with another
 * model is noticed.
 *
 * For a GGUF file it is the hash of the file; for a folder, a hash over name and hash of
 * config.json and of every .safetensors file, in the order of their names. It is kept in
 * cache_dir/base while the files' inodes, sizes and times stay the same, because computing it reads
 * all weights. */
#ifndef HS_JOB_BASE_HASH_H
#define HS_JOB_BASE_HASH_H

#include "file/hash.h"

struct err;

enum { BASE_HASH = HASH_HEX };

/* `cache_dir` as in the configuration; NULL: the default. */
int base_hash(const char *model, const char *cache_dir, char hex[BASE_HASH], struct err *e);

#endif
