/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writing one file, tensor by tensor, in the order and spelling of the
 * reference writer. */
#include "file/safetensors.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (4ull << 20)

/* Names in the file, and the rank by which the reference sorts (the order of its enum Dtype; the
 * higher comes first). */
static const struct {
	const char *name;
	int rank;
} dtypes[DT_COUNT] = {
	[DT_U8] = { "U8", 1 },     [DT_I8] = { "I8", 2 },   [DT_F16] = { "F16", 3 },
	[DT_BF16] = { "BF16", 4 }, [DT_I32] = { "I32", 5 }, [DT_F32] = { "F32", 6 },
	[DT_F64] = { "F64", 7 },   [DT_I64] = { "I64", 8 },
};

static int by_rank(const void *a, const void *b)
{
	const struct st_spec *x = *(const struct st_spec *const *)a,
			     *y = *(const struct st_spec *const *)b;
	int d = dtypes[y->dtype].rank - dtypes[x->dtype].rank;
	return d ? d : strcmp(x->name, y->name);
}

static int spec_bytes(const char *path, const struct st_spec *t, uint64_t *bytes_p, struct err *e)
{
	if ((unsigned)t->dtype >= DT_COUNT || t->ndim < 0 || t->ndim > (int)ARRAY_LEN(t->shape))
		return err_set(e, ERR_INTERNAL,
			       "%s: tensor '%s' has no dtype or shape that can be written", path,
			       t->name);
	uint64_t n = dtype_size(t->dtype);
	for (int i = 0; i < t->ndim; i++)
		if (t->shape[i] < 0 || !mul_ok(n, (uint64_t)t->shape[i], &n))
			return err_set(e, ERR_INTERNAL,
				       "%s: tensor '%s' has no shape that can be written", path,
				       t->name);
	*bytes_p = n;
	return 0;
}

static void add_metadata(struct buf *b, const json_t *metadata)
{
	const char *key;
	json_t *v;
	buf_adds(b, "{\"__metadata__\":{\"format\":\"pt\"");
	json_object_foreach((json_t *)metadata, key, v)
	{
		if (!json_is_string(v) || !strcmp(key, "format"))
			continue;
		buf_addc(b, ',');
		json_quote(b, key, strlen(key));
		buf_addc(b, ':');
		json_quote(b, json_string_value(v), json_string_length(v));
	}
	buf_addc(b, '}');
}

/* end_p: bytes of all the data */
static int make_header(const char *path, const struct st_spec **order, size_t n,
		       const json_t *metadata, struct buf *b, uint64_t *end_p, struct err *e)
{
	static const char zero[8];
	uint64_t at = 0, bytes = 0;
	buf_add(b, zero, 8); /* the length, filled in below */
	add_metadata(b, metadata);
	for (size_t i = 0; i < n; i++) {
		const struct st_spec *t = order[i];
		TRY(spec_bytes(path, t, &bytes, e));
		if (i && !strcmp(order[i - 1]->name, t->name))
			return err_set(e, ERR_INTERNAL, "%s: tensor '%s' would be written twice",
				       path, t->name);
		buf_addc(b, ',');
		json_quote(b, t->name, strlen(t->name));
		buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[t->dtype].name);
		for (int d = 0; d < t->ndim; d++)
			buf_addf(b, "%s%lld", d ? "," : "", (long long)t->shape[d]);
		buf_addf(b, "],\"data_offsets\":[%llu,", (unsigned long long)at);
		if (!add_ok(at, bytes, &at) || at > INT64_MAX)
			return err_set(e, ERR_INTERNAL, "%s: more data than a file can hold", path);
		buf_addf(b, "%llu]}", (unsigned long long)at);
	}
	buf_addc(b, '}');
	while (b->n % 8 && !b->failed)
		buf_addc(b, ' ');
	TRY(buf_ok(b, e));
	le_put(b->p, b->n - 8, 8);
	*end_p = at;
	return 0;
}

/* The tensors as the file has them: mem_free(). */
static int in_order(const char *path, const struct st_spec *specs, size_t n,
		    const struct st_spec ***order_p, struct err *e)
{
	uint64_t bytes;
	const struct st_spec **order = mem_array(n + 1, sizeof *order);
	int rc = order ? 0 : err_nomem(e, (n + 1) * sizeof *order, "a table of tensors");
	for (size_t i = 0; i < n && !rc; i++) {
		order[i] = &specs[i];
		rc = spec_bytes(path, order[i], &bytes, e);
	}
	if (rc < 0) {
		mem_free(order);
		return rc;
	}
	qsort(order, n, sizeof *order, by_rank);
	*order_p = order;
	return 0;
}

static int write_tensor(struct atomic_file *f, const struct st_spec *t, uint64_t bytes,
			struct buf *b, st_source_fn source, void *ctx, struct err *e)
{
	uint64_t row = t->ndim && t->shape[0] ? bytes / (uint64_t)t->shape[0] : bytes,
		 step = row && row < CHUNK ? CHUNK / row * row : row;
	for (uint64_t at = 0; at < bytes; at += step) {
		uint64_t n = bytes - at < step ? bytes - at : step;
		buf_reset(b);
		buf_reserve(b, n);
		TRY(buf_ok(b, e));
		TRY(source(ctx, t, at, n, b->p, e));
		TRY(atomic_write(f, b->p, n, e));
	}
	return 0;
}

int st_write(const char *path, const struct st_spec *specs, size_t n, const json_t *metadata,
	     st_source_fn source, void *ctx, struct err *e)
{
	struct buf b = BUF_INIT;
	struct atomic_file f = { -1, NULL, NULL };
	const struct st_spec **order;
	uint64_t bytes = 0;
	int rc;
	TRY(in_order(path, specs, n, &order, e));
	TRYOUT(make_header(path, order, n, metadata, &b, &bytes, e));
	TRYOUT(atomic_begin(path, &f, e));
	rc = atomic_write(&f, b.p, b.n, e);
	for (size_t i = 0; i < n && !rc; i++) {
		rc = spec_bytes(path, order[i], &bytes, e);
		if (!rc)
			rc = write_tensor(&f, order[i], bytes, &b, source, ctx, e);
	}
	if (rc < 0)
		atomic_abort(&f);
	else
		rc = atomic_commit(&f, e);
out:
	buf_release(&b);
	mem_free(order);
	return rc;
}

/* ---- in any order ---- */

static int put_at(struct st_out *o, const char *p, uint64_t n, uint64_t at, struct err *e)
{
	while (n) {
		const ssize_t k = pwrite(o->fd, p, n < (1u << 30) ? n : (1u << 30), (off_t)at);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return err_sys(e, k ? errno : ENOSPC, "%s: could not be written whole",
				       o->path);
		p += k;
		at += (uint64_t)k;
		n -= (uint64_t)k;
	}
	return 0;
}

static int begin_file(struct st_out *o, const struct st_spec *specs, const struct st_spec **order,
		      size_t n, struct buf *b, struct err *e)
{
	uint64_t end, bytes = 0;
	TRY(make_header(o->path, order, n, NULL, b, &end, e));
	uint64_t at = b->n;
	for (size_t i = 0; i < n; i++, at += bytes) {
		TRY(spec_bytes(o->path, order[i], &bytes, e));
		o->at[order[i] - specs] = at;
	}
	o->fd = open_write(o->path, OPEN_NEW, 0666);
	if (o->fd < 0 || ftruncate(o->fd, (off_t)at) < 0)
		return err_sys(e, errno, "%s", o->path);
	return put_at(o, b->p, b->n, 0, e);
}

int st_out_begin(const char *path, const struct st_spec *specs, size_t n, struct st_out *o_p,
		 struct err *e)
{
	struct buf b = BUF_INIT;
	const struct st_spec **order;
	TRY(in_order(path, specs, n, &order, e));
	struct st_out o = { -1, mem_strdup(path), mem_array(n + 1, sizeof *o.at) };
	int rc = o.path && o.at ? begin_file(&o, specs, order, n, &b, e)
				: err_nomem(e, (n + 1) * sizeof *o.at, "a table of tensors");
	buf_release(&b);
	mem_free(order);
	if (rc < 0)
		st_out_end(&o);
	else
		*o_p = o;
	return rc;
}

int st_out_put(struct st_out *o, size_t i, uint64_t off, const void *p, uint64_t n, struct err *e)
{
	return put_at(o, p, n, o->at[i] + off, e);
}

void st_out_end(struct st_out *o)
{
	if (o->fd >= 0)
		close(o->fd);
	mem_free(o->path);
	mem_free(o->at);
	*o = (struct st_out){ .fd = -1 };
}
