/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - reading one file and checking all of its header; safetensors_write.c writes.
 *
 * The checks are those of the reference (huggingface/safetensors, tensor.rs: Metadata::validate),
 * and three more: tensors have at most 8 dimensions, there are at most a million of them, and what
 * the values of each take in memory is limited (base/json.h). They are read one by one. */
#include "file/safetensors.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/le.h"
#include "base/mem.h"
#include "file/map.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 100000000ull
enum { TENSORS_MAX = 1000000 };

struct st_file {
	struct file_map map;
	struct arena mem; /* names */
	json_t *metadata;
	struct st_tensor *tensor; /* in order of the data */
	size_t n, cap;
	const struct st_tensor **name; /* in order of the names */
};

static const struct {
	const char *name;
	enum dtype dtype;
} dtypes[] = {
	{ "F32", DT_F32 }, { "BF16", DT_BF16 }, { "F16", DT_F16 }, { "I32", DT_I32 },
	{ "U8", DT_U8 },   { "I8", DT_I8 },     { "F64", DT_F64 }, { "I64", DT_I64 },
};

static int read_dtype(const char *where, const char *name, const char *s, enum dtype *t_p,
		      struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
		if (!strcmp(dtypes[i].name, s)) {
			*t_p = dtypes[i].dtype;
			return 0;
		}
	}
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: tensor '%s' has the dtype '%s'; F32, BF16, F16, F64, I64, I32, I8 and "
		       "U8 are read",
		       where, name, s);
}

static int read_shape(const char *where, const json_t *v, struct st_tensor *t, struct err *e)
{
	size_t n = json_array_size(v);
	if (!json_is_array(v))
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has no shape", where, t->name);
	if (n > ARRAY_LEN(t->shape))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor '%s' has %zu dimensions, at most %zu are read", where,
			       t->name, n, ARRAY_LEN(t->shape));
	t->ndim = (int)n;
	t->count = 1;
	for (size_t i = 0; i < n; i++) {
		const json_t *d = json_array_get(v, i);
		if (!json_is_integer(d) || json_integer_value(d) < 0)
			return err_set(
				e, ERR_INPUT,
				"%s: tensor '%s' has a shape that is not made of whole numbers",
				where, t->name);
		t->shape[i] = json_integer_value(d);
		if (!mul_ok(t->count, (uint64_t)t->shape[i], &t->count))
			return err_set(e, ERR_INPUT,
				       "%s: tensor '%s' has a shape too large for any file", where,
				       t->name);
	}
	if (!mul_ok(t->count, dtype_size(t->dtype), &t->bytes))
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has a shape too large for any file",
			       where, t->name);
	return 0;
}

static int read_tensor(const char *where, const char *name, const json_t *o, struct st_tensor *t,
		       uint64_t *begin_p, struct err *e)
{
	const char *dtype;
	t->name = name;
	if (!json_is_object(o) || !(dtype = json_string_value(json_object_get(o, "dtype"))))
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has no dtype", where, name);
	TRY(read_dtype(where, name, dtype, &t->dtype, e));
	TRY(read_shape(where, json_object_get(o, "shape"), t, e));
	const json_t *off = json_object_get(o, "data_offsets");
	const json_t *begin = json_array_get(off, 0), *end = json_array_get(off, 1);
	if (json_array_size(off) != 2 || !json_is_integer(begin) || !json_is_integer(end))
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has no data_offsets", where, name);
	int64_t b = json_integer_value(begin), z = json_integer_value(end);
	if (b < 0 || z < b)
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' is at [%lld, %lld), which is not a range", where,
			       name, (long long)b, (long long)z);
	if ((uint64_t)(z - b) != t->bytes)
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has %lld bytes, its shape needs %llu",
			       where, name, (long long)(z - b), (unsigned long long)t->bytes);
	*begin_p = (uint64_t)b;
	return 0;
}

/* While the header is read `data` holds the offset; it becomes an address when all offsets have
 * been checked. */
static uint64_t offset_of(const struct st_tensor *t) { return (uint64_t)(uintptr_t)t->data; }

static int by_offset(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	uint64_t p = offset_of(x), q = offset_of(y);
	return p != q                 ? (p < q ? -1 : 1)
	       : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
				      : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct st_tensor *const *)a)->name,
		      (*(const struct st_tensor *const *)b)->name);
}

static int check_metadata(const char *where, const json_t *m, struct err *e)
{
	const char *key;
	json_t *v;
	if (m && !json_is_object(m))
		return err_set(e, ERR_INPUT, "%s: __metadata__ must be an object of strings",
			       where);
	json_object_foreach((json_t *)m, key, v) if (!json_is_string(v)) return err_set(
		e, ERR_INPUT, "%s: __metadata__ '%s' must be a string", where, key);
	return 0;
}

/* One member of the header. */
struct header {
	struct st_file *f;
	const char *where;
};

static int take_member(void *ctx, const char *name, json_t *v, struct err *e)
{
	struct st_file *f = ((struct header *)ctx)->f;
	const char *where = ((struct header *)ctx)->where;
	uint64_t begin = 0;
	if (!strcmp(name, "__metadata__")) {
		if (f->metadata)
			return err_set(e, ERR_INPUT, "%s: duplicate __metadata__", where);
		TRY(check_metadata(where, v, e));
		f->metadata = json_incref(v);
		return 0;
	}
	if (f->n == TENSORS_MAX)
		return err_set(e, ERR_INPUT, "%s: more than %d tensors", where, TENSORS_MAX);
	if (!mem_grow(&f->tensor, &f->cap, f->n + 1, sizeof *f->tensor))
		return err_nomem(e, (unsigned long long)f->n * sizeof *f->tensor,
				 "a table of tensors");
	struct st_tensor *t = &f->tensor[f->n];
	memset(t, 0, sizeof *t);
	TRY(read_tensor(where, name, v, t, &begin, e));
	t->name = arena_strdup(&f->mem, name);
	if (!t->name)
		return err_nomem(e, strlen(name), "the name of a tensor");
	t->data = (const void *)(uintptr_t)begin;
	f->n++;
	return 0;
}

/* Fills the table from the header. `data` is the offset of the data in the file. */
static int read_table(struct st_file *f, const char *where, const char *text, uint64_t n,
		      uint64_t data, struct err *e)
{
	struct header h = { f, where };
	TRY(json_each(text, n, where, JSON_MEMORY, take_member, &h, e));
	f->name = mem_array(f->n + 1, sizeof *f->name);
	if (!f->name)
		return err_nomem(e, (unsigned long long)f->n * sizeof *f->name,
				 "a table of tensors");
	if (f->n)
		qsort(f->tensor, f->n, sizeof *f->tensor, by_offset);
	uint64_t at = 0, size = f->map.size - data;
	for (size_t i = 0; i < f->n; i++) {
		struct st_tensor *t = &f->tensor[i];
		uint64_t begin = offset_of(t);
		if (begin != at)
			return err_set(e, ERR_INPUT,
				       "%s: tensor '%s' begins at byte %llu of the data, %s", where,
				       t->name, (unsigned long long)begin,
				       begin < at ? "inside another tensor" : "after a gap");
		if (t->bytes > size - at)
			return err_set(e, ERR_INPUT,
				       "%s: truncated: tensor '%s' ends at byte %llu of the data, "
				       "the file has %llu of them",
				       where, t->name, (unsigned long long)(at + t->bytes),
				       (unsigned long long)size);
		t->data = f->map.p + data + at;
		at += t->bytes;
		f->name[i] = t;
	}
	if (at != size)
		return err_set(e, ERR_INPUT, "%s: %llu bytes after the last tensor", where,
			       (unsigned long long)(size - at));
	qsort(f->name, f->n, sizeof *f->name, by_name);
	for (size_t i = 1; i < f->n; i++)
		if (!strcmp(f->name[i - 1]->name, f->name[i]->name))
			return err_set(e, ERR_INPUT, "%s: duplicate tensor '%s'", where,
				       f->name[i]->name);
	return 0;
}

static int read_header(struct st_file *f, const char *where, struct err *e)
{
	if (f->map.size < 8)
		return err_set(e, ERR_INPUT, "%s: %llu bytes are too short for a safetensors file",
			       where, (unsigned long long)f->map.size);
	const uint64_t n = le_get(f->map.p, 8);
	if (n > HEADER_MAX)
		return err_set(e, ERR_INPUT,
			       "%s: not a safetensors file (its header would have %llu bytes, %llu "
			       "are allowed)",
			       where, (unsigned long long)n, HEADER_MAX);
	if (n > f->map.size - 8)
		return err_set(e, ERR_INPUT,
			       "%s: truncated: the header should have %llu bytes, the file has "
			       "%llu of them",
			       where, (unsigned long long)n, (unsigned long long)(f->map.size - 8));
	const char *text = (const char *)f->map.p + 8;
	return read_table(f, where, text, n, 8 + n, e);
}

int st_open(const char *path, struct st_file **f_p, struct err *e)
{
	struct st_file *f = mem_zalloc(sizeof *f);
	if (!f)
		return err_nomem(e, sizeof *f, "a file");
	int rc = map_open(path, &f->map, e);
	if (!rc)
		rc = read_header(f, path, e);
	if (rc < 0) {
		st_close(f);
		return rc;
	}
	*f_p = f;
	return 0;
}

void st_close(struct st_file *f)
{
	if (!f)
		return;
	json_decref(f->metadata);
	arena_release(&f->mem);
	mem_free(f->tensor);
	mem_free(f->name);
	map_close(&f->map);
	mem_free(f);
}

size_t st_count(const struct st_file *f) { return f->n; }
const struct st_tensor *st_get(const struct st_file *f, size_t i)
{
	return i < f->n ? &f->tensor[i] : NULL;
}
const json_t *st_metadata(const struct st_file *f) { return f->metadata; }
void st_drop(const struct st_file *f, const struct st_tensor *t)
{
	map_drop(&f->map, t->data, t->bytes);
}
void st_drop_range(const struct st_file *f, const void *p, uint64_t n) { map_drop(&f->map, p, n); }

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
	struct st_tensor key = { .name = name };
	const struct st_tensor *k = &key, *const *p = bsearch(&k, f->name, f->n, sizeof *f->name,
							      by_name);
	return p ? *p : NULL;
}
