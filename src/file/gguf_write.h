/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.h - writing GGUF v3: KV pairs, tensor table, aligned data, streamed so that a model
 * larger than memory can be written. */
#ifndef HS_FILE_GGUF_WRITE_H
#define HS_FILE_GGUF_WRITE_H

#include <jansson.h>
#include <stdint.h>

struct err;
struct model_file;

enum gguf_out { GGUF_F16, GGUF_Q8_0 };

/* Supplies rows [row0, row0+rows) of the tensor with this Hugging Face name as float32. */
typedef int (*gguf_source_fn)(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
			      struct err *e);

/* Writes `path` from the configuration and vocabulary of `base` with the weights of `source`
 * (vectors stay F32; matrices in `type`; Q and K rows permuted for arch llama). When `base` is a
 * GGUF its KV pairs are copied; otherwise they are made from config.json and tokenizer.json. */
int gguf_write_model(const char *path, struct model_file *base, enum gguf_out type,
		     gguf_source_fn source, void *ctx, struct err *e);

#endif
