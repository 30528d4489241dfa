/* SPDX-License-Identifier: Apache-2.0 */
/* model_file.h - a model on disk, whatever its format: named tensors, a configuration, a
 * vocabulary.
 *
 * Formats are rows of format.def (safetensors folder, GGUF). Tensors are presented under their
 * Hugging Face names and shapes with the row order of Hugging Face, also when they come from GGUF
 * (names mapped, Q/K rows of `llama` files put back); but the weights of a convolution by channel,
 * [channels, 1, size], are a vector. Files are memory-mapped: opening touches
 * headers only, reading touches one tensor. All offsets and counts are checked against the file
 * when it is opened.
 *
 * Threads: reading different tensors from several threads is safe. Ownership: everything belongs to
 * the model_file until it is closed. */
#ifndef HS_FILE_MODEL_FILE_H
#define HS_FILE_MODEL_FILE_H

#include "base/dtype.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

enum store_kind {
	STORE_PLAIN, /* dtype is F32, F16, BF16 (or an integer format for odd tensors) */
	STORE_NF4,   /* bitsandbytes 4-bit NF4 (FORMATS: keys P.weight, .absmax, .quant_map, ...) */
	STORE_BLOCK, /* GGUF block format, `ggml_type` */
};

struct model_tensor {
	const char *name; /* Hugging Face name: "model.layers.0.self_attn.q_proj.weight" */
	enum store_kind kind;
	enum dtype dtype; /* STORE_PLAIN; for STORE_NF4 the dtype named in its quant_state */
	int ggml_type;    /* STORE_BLOCK */
	int ndim;
	int64_t shape[4]; /* logical: [out, in] for a linear weight */
	uint64_t count;   /* product of shape */
	uint64_t bytes;   /* in the file */
};

/* The parts of a STORE_NF4 tensor, as they are in the file (double-quantised when absmax8
 * is set). */
struct nf4_view {
	const uint8_t *packed;  /* (count+1)/2 */
	const float *absmax;    /* nblk, or NULL when double-quantised */
	const uint8_t *absmax8; /* nblk, or NULL */
	const float *code;      /* 16 */
	const float *code2;     /* 256, or NULL */
	const float *absmax2;   /* ceil(nblk/256), or NULL */
	float offset;
	int blocksize;  /* elements: 64 as a rule */
	int blocksize2; /* 256 */
	void *memory;   /* NULL, or what was made for the view: the caller's, for mem_free() */
};

struct model_file;

/* Opens a folder (config.json + safetensors) or a .gguf file. */
int model_file_open(const char *path, struct model_file **f_p, struct err *e);
void model_file_close(struct model_file *f);
const char *model_file_path(const struct model_file *f);
const char *model_file_format(const struct model_file *f); /* "safetensors", "gguf" */

/* The configuration with the keys of Hugging Face's config.json; for GGUF it is made from the
 * KV pairs. */
const json_t *model_file_config(const struct model_file *f);
/* What the names of modules have behind "model." for PEFT, where this is the language model of a
 * folder that has other parts too (text_part.h): "language_model."; else "". */
const char *model_file_inside(const struct model_file *f);

/* Where the tokenizer comes from: the folder's files, or the GGUF's KV pairs (see
 * data/tokenizer.h). NULL where there is none. */
const char *model_file_tokenizer_path(const struct model_file *f); /* tokenizer.json, or NULL */
/* object: the tokenizer.* KV pairs, or NULL */
const json_t *model_file_gguf_vocab(const struct model_file *f);
const char *model_file_chat_template(const struct model_file *f); /* Jinja text, or NULL */
/* tokenizer_config.json, or NULL */
const json_t *model_file_tokenizer_config(const struct model_file *f);

size_t model_file_count(const struct model_file *f);
const struct model_tensor *model_file_tensor(const struct model_file *f, size_t i);
/* NULL: no such tensor */
const struct model_tensor *model_file_find(const struct model_file *f, const char *name);

/* Of a model whose head is its embedding: gives it a head of its own with the same numbers, and a
 * configuration that says so, as if it were in the file. Else nothing is done. */
int model_file_untie(struct model_file *f, struct err *e);

/* Rows [row0, row0+rows) of a tensor (first dimension; a vector is one row per element) as
 * float32, dequantised where needed, in the row order of Hugging Face. NF4 gives code * absmax,
 * not rounded to the dtype of its quantisation state. The pages that were read leave the resident
 * set at once. */
int model_file_read_f32(struct model_file *f, const struct model_tensor *t, int64_t row0,
			int64_t rows, float *dst, struct err *e);
/* The bytes of a STORE_PLAIN tensor as they are in the file, when they need no reordering and are
 * aligned to their dtype; ERR_UNSUPPORTED otherwise. */
int model_file_raw(struct model_file *f, const struct model_tensor *t, const void **p_p,
		   struct err *e);
/* One file serves several threads: what is made for a view belongs to its caller. */
int model_file_nf4(struct model_file *f, const struct model_tensor *t, struct nf4_view *v_p,
		   struct err *e);
/* Tells the kernel that this tensor's pages are not needed any more, so that they leave the
 * resident set. */
void model_file_drop(struct model_file *f, const struct model_tensor *t);

/* Bytes of one block and elements per block of a ggml type; false for types that are
 * not supported. */
bool ggml_type_info(int ggml_type, int *block_p, int *bytes_p, const char **name_p);
/* n elements (a multiple of the block) of a ggml type to float32. */
int ggml_dequantize(int ggml_type, const void *src, float *dst, uint64_t n, struct err *e);

#endif
