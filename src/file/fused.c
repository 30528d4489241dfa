/* SPDX-License-Identifier: Apache-2.0 */
/* fused.c - see fused.h. */
#include "file/fused.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *tail;
	enum fused_kind kind;
	int parts;
} rows[] = {
	{ ".experts.gate_up_proj", FUSED_PLAIN, 2 },
	{ ".experts.gate_up_proj_bias", FUSED_BIAS, 2 },
	{ ".experts.gate_up_proj_blocks", FUSED_BLOCKS, 2 },
	{ ".experts.gate_up_proj_scales", FUSED_SCALES, 2 },
	{ ".experts.down_proj", FUSED_PLAIN, 1 },
	{ ".experts.down_proj_bias", FUSED_BIAS, 1 },
	{ ".experts.down_proj_blocks", FUSED_BLOCKS, 1 },
	{ ".experts.down_proj_scales", FUSED_SCALES, 1 },
};

bool fused_is_oss(const char *model_type) { return model_type && !strcmp(model_type, "gpt_oss"); }

enum fused_kind fused_find(const json_t *config, const char *name, int ndim, const int64_t *dim,
			   int *parts_p)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));
	const json_int_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
	const bool by_rows = type &&
			     (!strcmp(type, "qwen3_5_moe_text") || !strcmp(type, "gemma4_text")),
		   oss = fused_is_oss(type), by_either = type && !strcmp(type, "qwen3_moe");
	const size_t n = strlen(name);
	for (size_t i = 0; i < ARRAY_LEN(rows) && (by_rows || by_either || oss); i++) {
		const size_t k = strlen(rows[i].tail);
		if (n <= k || strcmp(name + n - k, rows[i].tail) != 0)
			continue;
		*parts_p = rows[i].parts;
		if (oss)
			return rows[i].kind;
		if (rows[i].kind != FUSED_PLAIN)
			return FUSED_NOT;
		return by_rows || ndim != 3 || dim[rows[i].parts] == hidden ? FUSED_ROWS
									    : FUSED_HALVES;
	}
	return FUSED_NOT;
}

void fused_name(const char *name, int64_t expert, int part, char *out, size_t room)
{
	static const char experts[] = ".experts.";
	const char *at = strstr(name, experts) + strlen(experts);
	const size_t n = strlen(at);
	const bool bias = n > 5 && !strcmp(at + n - 5, "_bias"), down = *at == 'd';
	snprintf(out, room, "%.*s%lld.%s.%s", (int)(at - name), name, (long long)expert,
		 down   ? "down_proj"
		 : part ? "up_proj"
			: "gate_proj",
		 bias ? "bias" : "weight");
}

int fused_shape(const char *where, const char *name, enum fused_kind k, int parts, int ndim,
		const int64_t *dim, int64_t *experts_p, int64_t shape_p[2], struct err *e)
{
	const bool columns = k == FUSED_PLAIN || k == FUSED_HALVES;
	const int want = k == FUSED_BIAS ? 2 : columns || k == FUSED_ROWS ? 3 : 4;
	bool ok = ndim == want && dim[0] > 0;
	for (int i = 0; ok && i < ndim; i++)
		ok = dim[i] > 0;
	const int64_t out = ok ? columns ? dim[2] : dim[1] : 0, in = !ok || k == FUSED_BIAS ? 1
								     : columns              ? dim[1]
								     : k == FUSED_ROWS
									     ? dim[2]
									     : dim[2] * MX_BLOCK;
	if (!ok || out % parts || (k == FUSED_BLOCKS && dim[3] != MX_BYTES))
		return err_set(e, ERR_INPUT,
			       "%s: the tensor '%s' has %d dimensions, or sizes that are not those "
			       "of experts",
			       where, name, ndim);
	*experts_p = dim[0];
	shape_p[0] = out / parts;
	shape_p[1] = in;
	return 0;
}

const float mx_code[16] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6 };
static float scale_table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_scales(void)
{
	for (int i = 0; i < 255; i++)
		scale_table[i] = ldexpf(1, i - 127);
	scale_table[255] = NAN;
}

const float *mx_scales(void)
{
	pthread_once(&once, make_scales);
	return scale_table;
}

void mx_expand(const uint8_t *blocks, const uint8_t *scales, float *dst, uint64_t n)
{
	const float *scale = mx_scales();
	for (uint64_t b = 0; b < n / MX_BLOCK; b++) {
		const float s = scale[scales[b]];
		for (int i = 0; i < MX_BYTES; i++, dst += 2) {
			const uint8_t v = blocks[b * MX_BYTES + (uint64_t)i];
			dst[0] = s * mx_code[v & 15];
			dst[1] = s * mx_code[v >> 4];
		}
	}
}

int mx_view(const uint8_t *blocks, uint64_t block_step, const uint8_t *scales, uint64_t scale_step,
	    int64_t nrows, int64_t columns, struct nf4_view *v_p, struct err *e)
{
	const uint64_t row = (uint64_t)columns / 2, each = (uint64_t)columns / MX_BLOCK,
		       n = (uint64_t)nrows, nblk = n * each, nested = (nblk + 255) / 256,
		       bytes = n * row + nblk + nested * 4 + 4;
	uint8_t *p = mem_alloc(bytes);
	if (!p)
		return err_nomem(e, bytes, "a matrix in MXFP4");
	uint8_t *packed = p + nested * 4;
	float *ones = (float *)(void *)p;
	for (uint64_t i = 0; i < nested; i++)
		ones[i] = 1;
	for (uint64_t r = 0; r < n; r++) {
		const uint8_t *from = blocks + r * block_step;
		for (uint64_t i = 0; i < row; i++)
			packed[r * row + i] = (uint8_t)(from[i] << 4 | from[i] >> 4);
		memcpy(packed + n * row + r * each, scales + r * scale_step, each);
	}
	*v_p = (struct nf4_view){ .packed = packed,
				  .absmax8 = packed + n * row,
				  .code = mx_code,
				  .code2 = mx_scales(),
				  .absmax2 = ones,
				  .blocksize = MX_BLOCK,
				  .blocksize2 = 256,
				  .memory = p };
	return 0;
}
