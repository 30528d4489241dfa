/* SPDX-License-Identifier: Apache-2.0 */
/* model_format.c - see model_format.h: what the formats share. */
#include "file/model_format.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

int model_parts_check(const struct model_file *f, size_t n, size_t parts, struct err *e)
{
	return parts <= n || parts - n <= MODEL_PARTS_MOST
		       ? 0
		       : err_set(e, ERR_INPUT,
				 "%s: %zu tensors hold those of %zu experts, %d are allowed",
				 f->path, n, parts, MODEL_PARTS_MOST);
}

void model_plain_to_f32(enum dtype t, const void *src, float *dst, uint64_t n)
{
	double room[256];
	unsigned size = dtype_size(t);
	if ((uintptr_t)src % size == 0) {
		dtype_to_f32(t, src, dst, n);
		return;
	}
	for (const char *p = src; n;) {
		uint64_t k = n < ARRAY_LEN(room) ? n : ARRAY_LEN(room);
		memcpy(room, p, k * size);
		dtype_to_f32(t, room, dst, k);
		p += k * size;
		dst += k;
		n -= k;
	}
}

const char *chat_template_text(const json_t *v)
{
	if (json_is_string(v))
		return json_string_value(v);
	size_t i;
	json_t *item;
	json_array_foreach((json_t *)v, i, item)
	{
		const char *name = json_string_value(json_object_get(item, "name"));
		if (name && !strcmp(name, "default"))
			return json_string_value(json_object_get(item, "template"));
	}
	return NULL;
}
