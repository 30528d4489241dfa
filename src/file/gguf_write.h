/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.h - writing GGUF v3: KV pairs, tensor table, aligned data, streamed so that a model
 * larger than memory can be written. */
#ifndef HS_FILE_GGUF_WRITE_H
#define HS_FILE_GGUF_WRITE_H

#include "file/gguf_types.h"

#include <stdint.h>

struct err;
struct model_file;
struct peft_adapter;

/* Supplies rows [row0, row0+rows) of the tensor with this Hugging Face name as float32. */
typedef int (*gguf_source_fn)(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
			      struct err *e);

/* Writes `path` from the configuration and vocabulary of `base` with the weights of `source`
 * (vectors stay F32; matrices in `type`; Q and K rows permuted, norms plus one where the
 * architecture has it so). When `base` is a
 * GGUF its KV pairs are copied; otherwise they are made from config.json and tokenizer.json. The
 * pair GGUF_MARK says that this program wrote it. */
#define GGUF_MARK "heteroshard.version"
int gguf_write_model(const char *path, struct model_file *base, enum gguf_out type,
		     gguf_source_fn source, void *ctx, struct err *e);

/* Writes a LoRA adapter for `base` as llama.cpp reads it (--lora): general.type adapter,
 * adapter.lora.alpha, and for each module NAME.lora_a [r, in] and NAME.lora_b [out, r] in F32. */
int gguf_write_adapter(const char *path, struct model_file *base, const struct peft_adapter *ad,
		       struct err *e);

#endif
