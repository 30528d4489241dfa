/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c - see gguf.h. Counts are compared with the bytes that are left before memory is allocated
 * for them. */
#include "file/gguf.h"

#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"
#include "file/ggml_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 1024, KEY_MAX_BYTES = 65535, ALIGN_MAX = 1 << 20 };

static const unsigned char kind_size[GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

/* The unread rest of the file. */
struct cursor {
	const uint8_t *p, *end;
	const char *path;
};

static uint64_t bytes_left(const struct cursor *c) { return (uint64_t)(c->end - c->p); }

static int truncated(const struct cursor *c, const char *what, struct err *e)
{
	return err_set(e, ERR_INPUT,
		       "%s: %s goes beyond the end of the file: it is truncated or damaged",
		       c->path, what);
}

static int take_number(struct cursor *c, unsigned n, const char *what, uint64_t *v_p, struct err *e)
{
	if (bytes_left(c) < n)
		return truncated(c, what, e);
	*v_p = le_get(c->p, n);
	c->p += n;
	return 0;
}

/* A string with a limit: where it begins and its length. */
static int take_text(struct cursor *c, uint64_t max, const char *what, const char **s_p,
		     uint64_t *n_p, struct err *e)
{
	uint64_t n = 0;
	TRY(take_number(c, 8, what, &n, e));
	if (n > bytes_left(c))
		return truncated(c, what, e);
	if (n > max)
		return err_set(e, ERR_INPUT, "%s: %s has %llu bytes, %llu are allowed", c->path,
			       what, (unsigned long long)n, (unsigned long long)max);
	*s_p = (const char *)c->p;
	*n_p = n;
	c->p += n;
	return 0;
}

static int take_name(struct gguf *g, struct cursor *c, uint64_t max, const char *what,
		     const char **s_p, struct err *e)
{
	const char *s = NULL;
	uint64_t n = 0;
	TRY(take_text(c, max, what, &s, &n, e));
	if (!n || memchr(s, 0, n))
		return err_set(e, ERR_INPUT, "%s: %s is empty or holds a NUL", c->path, what);
	char *copy = arena_strndup(&g->mem, s, n);
	if (!copy)
		return err_nomem(e, n, "a name");
	*s_p = copy;
	return 0;
}

/* Skips `count` values of a kind. */
static int skip_values(struct cursor *c, const struct gguf_kv *kv, struct err *e)
{
	uint64_t bytes, n;
	const char *s;
	if (kv->kind != GGUF_STR) {
		if (!mul_ok(kv->count, kind_size[kv->kind], &bytes) || bytes > bytes_left(c))
			return truncated(c, kv->key, e);
		c->p += bytes;
		return 0;
	}
	if (kv->count > bytes_left(c) / 8)
		return truncated(c, kv->key, e);
	for (uint64_t i = 0; i < kv->count; i++)
		TRY(take_text(c, UINT64_MAX, kv->key, &s, &n, e));
	return 0;
}

static int read_kv(struct gguf *g, struct cursor *c, struct gguf_kv *kv, struct err *e)
{
	uint64_t kind = 0;
	kv->raw = c->p;
	kv->count = 1;
	TRY(take_name(g, c, KEY_MAX_BYTES, "the key of a pair", &kv->key, e));
	TRY(take_number(c, 4, kv->key, &kind, e));
	if (kind == GGUF_ARRAY) {
		kv->array = true;
		TRY(take_number(c, 4, kv->key, &kind, e));
		TRY(take_number(c, 8, kv->key, &kv->count, e));
	}
	if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
		return err_set(e, ERR_INPUT, "%s: '%s' has a value of the unknown kind %llu",
			       c->path, kv->key, (unsigned long long)kind);
	kv->kind = (enum gguf_kind)kind;
	kv->value = c->p;
	TRY(skip_values(c, kv, e));
	kv->raw_bytes = (uint64_t)(c->p - kv->raw);
	return 0;
}

static int tensor_size(const char *path, struct gguf_tensor *t, struct err *e)
{
	int block = 0, size = 0;
	const char *name;
	t->count = 1;
	for (int i = 0; i < t->ndim; i++)
		if (t->ne[i] < 1 || !mul_ok(t->count, (uint64_t)t->ne[i], &t->count) ||
		    t->count > INT64_MAX)
			return err_set(e, ERR_INPUT, "%s: tensor '%s' has an impossible shape",
				       path, t->name);
	if (!ggml_type_info(t->type, &block, &size, &name))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor '%s' is stored as %s (ggml type %d); F32, F16, BF16, "
			       "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
			       "Q4_K, Q5_K and Q6_K are read",
			       path, t->name, ggml_type_name(t->type), t->type);
	if (t->ne[0] % block)
		return err_set(
			e, ERR_INPUT,
			"%s: tensor '%s' has rows of %lld numbers, not a multiple of a block of %s",
			path, t->name, (long long)t->ne[0], name);
	if (!mul_ok(t->count / (uint64_t)block, (uint64_t)size, &t->bytes))
		return err_set(e, ERR_INPUT, "%s: tensor '%s' has an impossible shape", path,
			       t->name);
	return 0;
}

/* The offset is kept in `data` until all headers are read. */
static int read_tensor(struct gguf *g, struct cursor *c, struct gguf_tensor *t, struct err *e)
{
	uint64_t v = 0;
	TRY(take_name(g, c, NAME_MAX_BYTES, "the name of a tensor", &t->name, e));
	TRY(take_number(c, 4, t->name, &v, e));
	if (v < 1 || v > ARRAY_LEN(t->ne))
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' has %llu dimensions, 1 to %zu are allowed", c->path,
			       t->name, (unsigned long long)v, ARRAY_LEN(t->ne));
	t->ndim = (int)v;
	for (int i = 0; i < t->ndim; i++) {
		TRY(take_number(c, 8, t->name, &v, e));
		t->ne[i] = v > INT64_MAX ? 0 : (int64_t)v;
	}
	TRY(take_number(c, 4, t->name, &v, e));
	t->type = v > INT32_MAX ? -1 : (int)v;
	TRY(take_number(c, 8, t->name, &v, e));
	t->data = (const uint8_t *)(uintptr_t)v;
	return tensor_size(c->path, t, e);
}

static uint64_t offset_of(const struct gguf_tensor *t) { return (uint64_t)(uintptr_t)t->data; }

static int by_offset(const void *a, const void *b)
{
	uint64_t x = offset_of(a), y = offset_of(b);
	return x < y ? -1 : x > y;
}

static int place_tensors(struct gguf *g, uint64_t data, uint64_t align, struct err *e)
{
	uint64_t at = 0, size = g->map.size - data;
	qsort(g->tensor, g->ntensor, sizeof *g->tensor, by_offset);
	for (size_t i = 0; i < g->ntensor; i++) {
		struct gguf_tensor *t = &g->tensor[i];
		uint64_t off = offset_of(t);
		if (off % align)
			return err_set(e, ERR_INPUT, "%s: tensor '%s' is not aligned to %llu bytes",
				       g->path, t->name, (unsigned long long)align);
		if (off < at)
			return err_set(e, ERR_INPUT, "%s: tensor '%s' overlaps '%s'", g->path,
				       t->name, t[-1].name);
		if (off > size || t->bytes > size - off)
			return err_set(e, ERR_INPUT,
				       "%s: truncated: tensor '%s' needs %llu bytes at %llu of the "
				       "data, the file has %llu of them",
				       g->path, t->name, (unsigned long long)t->bytes,
				       (unsigned long long)off, (unsigned long long)size);
		t->data = g->map.p + data + off;
		at = off + t->bytes;
	}
	return 0;
}

static int cmp_key(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of n items that lie `size` bytes apart, the name first in each, must differ. */
static int check_unique(struct gguf *g, const void *items, size_t n, size_t size, size_t offset,
			const char *what, struct err *e)
{
	const char **s = mem_array(n + 1, sizeof *s);
	int rc = 0;
	if (!s)
		return err_nomem(e, n * sizeof *s, "a table of names");
	for (size_t i = 0; i < n; i++)
		memcpy(&s[i], (const char *)items + i * size + offset, sizeof *s);
	qsort(s, n, sizeof *s, cmp_key);
	for (size_t i = 1; i < n && !rc; i++)
		if (!strcmp(s[i - 1], s[i]))
			rc = err_set(e, ERR_INPUT, "%s: duplicate %s '%s'", g->path, what, s[i]);
	mem_free(s);
	return rc;
}

static int read_alignment(const struct gguf *g, uint64_t *align_p, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, "general.alignment");
	uint64_t a = 32;
	if (kv && (kv->kind != GGUF_U32 || kv->array))
		return err_set(e, ERR_INPUT, "%s: 'general.alignment' must be a u32", g->path);
	if (kv)
		a = le_get(kv->value, 4);
	if (a < 8 || a > ALIGN_MAX || (a & (a - 1)))
		return err_set(
			e, ERR_INPUT,
			"%s: 'general.alignment' is %llu, a power of two from 8 to %d was expected",
			g->path, (unsigned long long)a, ALIGN_MAX);
	*align_p = a;
	return 0;
}

static int read_file(struct gguf *g, struct err *e)
{
	if (!g->map.size)
		return err_set(e, ERR_INPUT, "%s: is empty, not a GGUF file", g->path);
	struct cursor c = { g->map.p, g->map.p + g->map.size, g->path };
	uint64_t magic = 0, version = 0, ntensor = 0, nkv = 0, align = 0;
	TRY(take_number(&c, 4, "the header", &magic, e));
	TRY(take_number(&c, 4, "the header", &version, e));
	if (magic != 0x46554747)
		return err_set(e, ERR_INPUT, "%s: not a GGUF file", g->path);
	if (version != 2 && version != 3)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: GGUF version %llu%s; versions 2 and 3 are read, little-endian",
			       g->path, (unsigned long long)version,
			       version >> 16 ? " (a big-endian file)" : "");
	g->version = (uint32_t)version;
	TRY(take_number(&c, 8, "the header", &ntensor, e));
	TRY(take_number(&c, 8, "the header", &nkv, e));
	/* The smallest size of a pair: key length, one character, type, one byte of value; of a
	 * tensor: name, dimensions, type, offset. */
	if (nkv > bytes_left(&c) / 14 || ntensor > bytes_left(&c) / 33)
		return err_set(
			e, ERR_INPUT,
			"%s: %llu pairs and %llu tensors do not fit into a file of %llu bytes",
			g->path, (unsigned long long)nkv, (unsigned long long)ntensor,
			(unsigned long long)g->map.size);
	g->kv = arena_alloc(&g->mem, (nkv + 1) * sizeof *g->kv);
	g->tensor = arena_alloc(&g->mem, (ntensor + 1) * sizeof *g->tensor);
	if (!g->kv || !g->tensor)
		return err_nomem(e, (ntensor + nkv) * sizeof *g->tensor, "tables of a GGUF file");
	for (; g->nkv < nkv; g->nkv++)
		TRY(read_kv(g, &c, &g->kv[g->nkv], e));
	for (; g->ntensor < ntensor; g->ntensor++)
		TRY(read_tensor(g, &c, &g->tensor[g->ntensor], e));
	TRY(check_unique(g, g->kv, g->nkv, sizeof *g->kv, offsetof(struct gguf_kv, key), "key", e));
	TRY(check_unique(g, g->tensor, g->ntensor, sizeof *g->tensor,
			 offsetof(struct gguf_tensor, name), "tensor", e));
	TRY(read_alignment(g, &align, e));
	uint64_t data = ((uint64_t)(c.p - g->map.p) + align - 1) / align * align;
	if (data > g->map.size) {
		if (g->ntensor)
			return truncated(&c, "the header", e);
		data = g->map.size;
	}
	return place_tensors(g, data, align, e);
}

int gguf_open(const char *path, struct gguf *g_p, struct err *e)
{
	struct gguf g = { 0 };
	TRY(map_open(path, &g.map, e));
	g.path = arena_strdup(&g.mem, path);
	int rc = g.path ? read_file(&g, e) : err_nomem(e, strlen(path), "a path");
	if (rc < 0) {
		gguf_close(&g);
		return rc;
	}
	*g_p = g;
	return 0;
}

void gguf_close(struct gguf *g)
{
	arena_release(&g->mem);
	map_close(&g->map);
	*g = (struct gguf){ 0 };
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
	for (size_t i = 0; i < g->nkv; i++)
		if (!strcmp(g->kv[i].key, key))
			return &g->kv[i];
	return NULL;
}

/* 1e-05 rather than 9.99999974e-06: the same float32, and the number that was written in
 * the configuration. */
static double shortest(float f)
{
	char s[32];
	for (int digits = 1; digits <= 9; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, (double)f);
		if (strtof(s, NULL) == f)
			return strtod(s, NULL);
	}
	return (double)f;
}

/* NULL when JSON cannot hold the value: not UTF-8, not finite, beyond int64; or when memory
 * is out. */
static json_t *scalar_json(enum gguf_kind kind, const uint8_t **p_p)
{
	const uint8_t *p = *p_p;
	unsigned size = kind_size[kind];
	uint64_t u = kind == GGUF_STR ? le_get(p, 8) : le_get(p, size);
	float f;
	double d;
	*p_p = p + (kind == GGUF_STR ? 8 + u : size);
	switch (kind) {
	case GGUF_STR:
		return json_stringn((const char *)p + 8, u);
	case GGUF_BOOL:
		return json_boolean(u);
	case GGUF_I8:
		return json_integer((int8_t)u);
	case GGUF_I16:
		return json_integer((int16_t)u);
	case GGUF_I32:
		return json_integer((int32_t)u);
	case GGUF_F32:
		memcpy(&f, p, 4);
		return isfinite(f) ? json_real(shortest(f)) : NULL;
	case GGUF_F64:
		memcpy(&d, p, 8);
		return isfinite(d) ? json_real(d) : NULL;
	default:
		return u <= INT64_MAX || kind == GGUF_I64 ? json_integer((json_int_t)u) : NULL;
	}
}

uint64_t gguf_kv_memory(const struct gguf_kv *kv)
{
	enum { TEXT = 88, NUMBER = 40 }; /* as base/json.c, with a place in a list */
	uint64_t sum;
	return mul_ok(kv->count, kv->kind == GGUF_STR ? TEXT : NUMBER, &sum) ? sum + kv->raw_bytes
									     : UINT64_MAX;
}

int gguf_kv_one(const struct gguf *g, const struct gguf_kv *kv, json_t **v_p, struct err *e)
{
	return kv->array ? err_set(e, ERR_INPUT, "%s: '%s' must be one value, not a list", g->path,
				   kv->key)
			 : gguf_kv_json(g, kv, v_p, e);
}

int gguf_kv_json(const struct gguf *g, const struct gguf_kv *kv, json_t **v_p, struct err *e)
{
	const uint8_t *p = kv->value;
	json_t *list = kv->array ? json_array() : NULL, *v = NULL;
	if (kv->array && !list)
		return err_nomem(e, kv->raw_bytes, "a list");
	for (uint64_t i = 0; i < kv->count; i++) {
		v = scalar_json(kv->kind, &p);
		if (!v || (list && json_array_append_new(list, v) < 0)) {
			json_decref(list);
			return err_set(e, ERR_INPUT,
				       "%s: '%s': value %llu is not UTF-8 text or a number that "
				       "can be kept",
				       g->path, kv->key, (unsigned long long)i);
		}
	}
	*v_p = kv->array ? list : v;
	return 0;
}

bool gguf_is_adapter(const struct gguf *g)
{
	const struct gguf_kv *kv = gguf_find(g, "general.type");
	struct err ignored = { 0 };
	json_t *v;
	if (!kv || kv->kind != GGUF_STR || gguf_kv_one(g, kv, &v, &ignored) < 0)
		return false;
	const bool yes = json_is_string(v) && !strcmp(json_string_value(v), "adapter");
	json_decref(v);
	return yes;
}
