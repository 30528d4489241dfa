/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_model_folder.c - any bytes as the files of a model's folder or of an adapter's.
 *
 * The input: one byte of choices, then config.json and the index (or tokenizer_config.json,
 * tokenizer.json, chat_template.jinja or .json), each behind its length in two bytes, then the
 * safetensors file. What has no bytes is not there. A model that opens is read whole and written as
 * a GGUF; an adapter that opens is written, and reads back. */
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/gguf_write.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "fuzz/starve.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void leave(void)
{
	struct err e = { 0 };
	dir_remove(folder, &e);
}

static void put(const char *name, const uint8_t *p, size_t n)
{
	char path[128];
	if (!n)
		return; /* not there */
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, p, n) != (ssize_t)n)
		abort();
	close(fd);
}

static void gone(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	unlink(path);
}

/* Takes a part off the front. */
static size_t part(const uint8_t **p, size_t *left)
{
	if (*left < 2)
		return 0;
	size_t n = (size_t)((*p)[0] | (*p)[1] << 8);
	*p += 2;
	*left -= 2;
	return n < *left ? n : *left;
}

static int rows(void *ctx, const char *name, int64_t row0, int64_t n, float *dst, struct err *e)
{
	return model_file_read_f32(ctx, model_file_find(ctx, name), row0, n, dst, e);
}

static void read_model(struct model_file *f)
{
	struct err e = { 0 };
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		struct nf4_view v;
		const void *raw;
		float *x = malloc(t->count * sizeof *x);
		model_file_read_f32(f, t, 0, t->ndim ? t->shape[0] : 1, x, &e);
		if (model_file_nf4(f, t, &v, &e) >= 0)
			mem_free(v.memory);
		model_file_raw(f, t, &raw, &e);
		model_file_drop(f, t);
		free(x);
	}
	char out[128];
	snprintf(out, sizeof out, "%s/out.gguf", folder);
	gguf_write_model(out, f, GGUF_OUT_Q8_0, rows, f, &e);
	gone("out.gguf");
}

static void once(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	if (!size)
		return;
	uint8_t choice = *data++;
	size--;
	size_t n = part(&data, &size);
	bool adapter = choice & 1, index = choice & 2;
	put(adapter ? "adapter_config.json" : "config.json", data, n);
	data += n, size -= n;
	n = part(&data, &size);
	put(index         ? "model.safetensors.index.json"
	    : choice & 64 ? "chat_template.json"
	    : choice & 8  ? "chat_template.jinja"
	    : choice & 4  ? "tokenizer.json"
			  : "tokenizer_config.json",
	    data, n);
	data += n, size -= n;
	put(adapter ? "adapter_model.safetensors"
	    : index ? "x.safetensors"
		    : "model.safetensors",
	    data, size);
	if (adapter) {
		struct arena a = ARENA_INIT;
		struct peft_adapter ad;
		if (peft_read(folder, &a, &ad, &e) >= 0 && !(peft_scale(&ad.cfg) < 0) &&
		    peft_write(folder, &ad, &e) >= 0 && peft_read(folder, &a, &ad, &e) < 0 &&
		    e.code != ERR_NOMEM)
			abort();
		arena_release(&a);
	} else {
		struct model_file *f = NULL;
		char file[96];
		snprintf(file, sizeof file, "%s/%s", folder,
			 choice & 16 ? "model.safetensors" : "");
		if (model_file_open(choice & 32 ? "owner/no-such-model" : file, &f, &e) == 0) {
			read_model(f);
			model_file_close(f);
		}
	}
	static const char *const all[] = {
		"adapter_config.json",   "config.json",       "model.safetensors.index.json",
		"tokenizer_config.json", "tokenizer.json",    "adapter_model.safetensors",
		"x.safetensors",         "model.safetensors", "chat_template.jinja",
		"chat_template.json"
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		gone(all[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	if (!*folder) {
		snprintf(folder, sizeof folder, "/dev/shm/hs-fuzz-%d", (int)getpid());
		if (dir_make(folder, &e) < 0)
			abort();
		atexit(leave);
	}
	starve(once, data, size);
	return 0;
}
