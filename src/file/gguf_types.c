/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_types.c - see gguf_types.h. The mixtures are those of llama.cpp (src/llama-quant.cpp): the
 * head in a larger format, and with _m some values and down projections too. */
#include "file/gguf_types.h"

#include "file/ggml_blocks.h"

#include <string.h>

static const struct {
	int file_type;
	int type; /* of most matrices */
	int head; /* of the head */
	int more; /* of the layers that count most; 0: none */
} rows[] = {
	[GGUF_OUT_F16] = { 1, GGML_F16, GGML_F16, 0 },
	[GGUF_OUT_BF16] = { 32, GGML_BF16, GGML_BF16, 0 },
	[GGUF_OUT_F32] = { 0, GGML_F32, GGML_F32, 0 },
	[GGUF_OUT_Q8_0] = { 7, GGML_Q8_0, GGML_Q8_0, 0 },
	[GGUF_OUT_Q4_0] = { 2, GGML_Q4_0, GGML_Q6_K, 0 },
	[GGUF_OUT_Q4_1] = { 3, GGML_Q4_1, GGML_Q6_K, 0 },
	[GGUF_OUT_Q5_0] = { 8, GGML_Q5_0, GGML_Q6_K, 0 },
	[GGUF_OUT_Q5_1] = { 9, GGML_Q5_1, GGML_Q6_K, 0 },
	[GGUF_OUT_Q4_K_M] = { 15, GGML_Q4_K, GGML_Q6_K, GGML_Q6_K },
	[GGUF_OUT_Q5_K_M] = { 17, GGML_Q5_K, GGML_Q6_K, GGML_Q6_K },
	[GGUF_OUT_Q6_K] = { 18, GGML_Q6_K, GGML_Q6_K, 0 },
};

int gguf_file_type(enum gguf_out out) { return out == GGUF_OUT_AS_BASE ? -1 : rows[out].file_type; }

/* The first and last eighth of the layers, and every third between them. */
static bool counts_more(int64_t layer, int64_t layers)
{
	return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static int fitting(int type, int64_t columns)
{
	int block, bytes;
	const char *name;
	while (ggml_type_info(type, &block, &bytes, &name) && columns % block)
		type = type == GGML_Q4_K   ? GGML_Q5_0
		       : type == GGML_Q5_K ? GGML_Q5_1
		       : type == GGML_Q6_K ? GGML_Q8_0
					   : GGML_F16;
	return type;
}

int gguf_matrix_type(enum gguf_out out, const struct gguf_place *p)
{
	if (out == GGUF_OUT_AS_BASE)
		return p->base;
	int type = rows[out].type;
	if (!strcmp(p->name, "output.weight") || (p->tied && !strcmp(p->name, "token_embd.weight")))
		type = rows[out].head;
	else if (rows[out].more && p->layer >= 0 && counts_more(p->layer, p->layers) &&
		 (strstr(p->name, ".attn_v.") || strstr(p->name, ".ffn_down")))
		type = rows[out].more;
	else if (rows[out].more && strstr(p->name, ".attn_qkv."))
		type = type == GGML_Q4_K ? GGML_Q5_K : GGML_Q6_K;
	return fitting(type, p->columns);
}
