/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_gguf.c - any bytes as a GGUF: opened or refused, every pair becomes JSON, every tensor,
 * by itself and as one of a model, can be read. */
#include "base/err.h"
#include "file/gguf.h"
#include "file/model_file.h"
#include "fuzz/starve.h"
#include "support/memfile.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_model(struct model_file *f)
{
	struct err e = { 0 };
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		float *x = malloc(t->count * sizeof *x);
		const void *p = NULL;
		model_file_read_f32(f, t, 0, t->shape[0], x, &e);
		model_file_raw(f, t, &p, &e);
		model_file_drop(f, t);
		free(x);
	}
}

static void once(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	struct gguf g;
	struct model_file *f = NULL;
	const char *path = memfile(data, size);
	if (gguf_open(path, &g, &e) == 0) {
		for (size_t i = 0; i < g.nkv; i++) {
			json_t *v = NULL;
			if (gguf_kv_json(&g, &g.kv[i], &v, &e) == 0)
				json_decref(v);
		}
		for (size_t i = 0; i < g.ntensor; i++) {
			const struct gguf_tensor *t = &g.tensor[i];
			float *x = malloc(t->count * sizeof *x);
			ggml_dequantize(t->type, t->data, x, t->count, &e);
			free(x);
		}
		gguf_close(&g);
	}
	if (size < 4 || memcmp(data, "GGUF", 4) != 0 || model_file_open(path, &f, &e) < 0)
		return;
	read_model(f);
	model_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	starve(once, data, size);
	return 0;
}
