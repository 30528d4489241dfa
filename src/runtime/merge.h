/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - an adapter added to its model: W + s B A, written as a Hugging Face folder or a GGUF
 * file.
 *
 * `dequantized`: on the weights the adapter was trained on, that is after NF4; otherwise on the
 * weights as they are in the model's file. */
#ifndef HS_RUNTIME_MERGE_H
#define HS_RUNTIME_MERGE_H

#include "base/dtype.h"
#include "file/gguf_types.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

struct merge_options {
	/* out ending in .gguf is a GGUF file, otherwise a folder that must not exist */
	const char *model, *adapter, *out;
	bool dequantized, double_quant;
	enum dtype dtype;   /* of the tensors in a folder */
	bool as_base;       /* in a folder: each in its own instead */
	enum gguf_out gguf; /* of the matrices in a GGUF */
	bool adapter_only;  /* the adapter itself, as a GGUF; of experts also as a folder, fused */
	bool force;         /* replace what this program wrote there before */
	void (*part)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
	/* set: it ends with ERR_CANCELLED, and nothing of `out` is left; NULL: it is not asked */
	const volatile sig_atomic_t *stop;
};

int merge(const struct merge_options *o, struct err *e);

#endif
