/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - any bytes as a safetensors file: opened or refused, every tensor that is
 * shown can be read to its last byte. */
#include "base/err.h"
#include "file/safetensors.h"
#include "fuzz/starve.h"
#include "support/memfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void once(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	struct st_file *f = NULL;
	const char *path = memfile(data, size);
	volatile uint8_t sum = 0;
	if (st_open(path, &f, &e) < 0)
		return;
	for (size_t i = 0; i < st_count(f); i++) {
		const struct st_tensor *t = st_get(f, i);
		if (st_find(f, t->name) != t)
			__builtin_trap();
		for (uint64_t k = 0; k < t->bytes; k++)
			sum ^= ((const uint8_t *)t->data)[k];
		st_drop(f, t);
	}
	st_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	starve(once, data, size);
	return 0;
}
