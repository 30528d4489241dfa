/* SPDX-License-Identifier: Apache-2.0 */
/* weights_blob.c - see weights_blob.h. */
#include "proto/weights_blob.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/fused.h"
#include "file/ggml_blocks.h"
#include "tensor/quant.h"

#include <sodium.h>
#include <string.h>

enum { FLOATS_BEFORE = 4 + 16 }; /* offset, padding, code */

static uint64_t numbers(const struct blob_head *h)
{
	return (uint64_t)h->shape[0] * (uint64_t)h->shape[1];
}

static uint64_t blocks(const struct blob_head *h) { return (numbers(h) + h->block - 1) / h->block; }

static uint64_t blocks2(const struct blob_head *h)
{
	return (blocks(h) + NF4_BLOCK2 - 1) / NF4_BLOCK2;
}

int blob_size(const struct blob_head *h, uint64_t *n_p, struct err *e)
{
	uint64_t count, bytes;
	if (h->ndim < 1 || h->ndim > 2 || h->shape[0] < 1 || h->shape[1] < 1 ||
	    (h->ndim == 1 && h->shape[1] != 1) ||
	    !mul_ok((uint64_t)h->shape[0], (uint64_t)h->shape[1], &count) ||
	    !mul_ok(count, 8, &bytes) || bytes > (uint64_t)1 << 46)
		return err_set(e, ERR_PROTOCOL, "%s: a shape of [%lld, %lld]", h->name,
			       (long long)h->shape[0], (long long)h->shape[1]);
	if (!h->nf4) {
		if (h->dtype > DT_F16)
			return err_set(e, ERR_PROTOCOL, "%s: dtype %d is not a float format",
				       h->name, h->dtype);
		*n_p = count * dtype_size(h->dtype);
		return 0;
	}
	if (h->block < 2 || h->block > 65536)
		return err_set(e, ERR_PROTOCOL, "%s: blocks of %u numbers", h->name, h->block);
	*n_p = FLOATS_BEFORE * 4 +
	       (h->doubled ? (256 + blocks2(h)) * 4 + blocks(h) : blocks(h) * 4) + (count + 1) / 2;
	return 0;
}

int blob_describe(struct model_file *f, const struct model_tensor *t, const struct stage_options *o,
		  struct blob_head *h, struct err *e)
{
	if (t->ndim < 1 || t->ndim > 2 || strlen(t->name) >= sizeof h->name)
		return err_set(e, ERR_INPUT, "%s: %s has %d dimensions; 1 or 2 were expected",
			       model_file_path(f), t->name, t->ndim);
	*h = (struct blob_head){ .ndim = t->ndim,
				 .shape = { t->shape[0], t->ndim == 2 ? t->shape[1] : 1 } };
	memcpy(h->name, t->name, strlen(t->name) + 1);
	const void *raw;
	struct err ignored = { 0 };
	if (t->kind == STORE_NF4 && t->ggml_type == GGML_MXFP4) { /* its view is expensive */
		h->nf4 = h->doubled = true;
		h->block = MX_BLOCK;
	} else if (t->kind == STORE_NF4) {
		struct nf4_view v;
		TRY(model_file_nf4(f, t, &v, e));
		h->nf4 = true;
		h->doubled = v.absmax8 != NULL;
		h->block = (uint32_t)v.blocksize;
		mem_free(v.memory);
		if (h->doubled && v.blocksize2 != NF4_BLOCK2)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: %s: nested block size %d is not supported (%d is)",
				       model_file_path(f), t->name, v.blocksize2, NF4_BLOCK2);
	} else if (t->kind == STORE_PLAIN && t->dtype <= DT_F16 &&
		   model_file_raw(f, t, &raw, &ignored) >= 0) {
		h->dtype = t->dtype;
	} else if (o->quantize && linear_is_quantized(t->name)) {
		h->nf4 = true;
		h->doubled = o->double_quant;
		h->block = NF4_BLOCK;
	} else {
		const bool whole = o->train_all || o->lora.save_embed || o->lora.save_head;
		h->dtype = whole || t->ndim == 1 ? DT_F32 : o->act;
	}
	return blob_size(h, &h->bytes, e);
}

static int rows_f32(struct model_file *f, const struct model_tensor *t, const struct blob_head *h,
		    float **v_p, struct err *e)
{
	float *v = mem_array((size_t)numbers(h), 4);
	if (!v)
		return err_nomem(e, numbers(h) * 4, h->name);
	int rc = model_file_read_f32(f, t, 0, h->shape[0], v, e);
	if (rc < 0)
		mem_free(v);
	else
		*v_p = v;
	return rc < 0 ? rc : 0;
}

/* The offsets of the parts of NF4. */
struct places {
	float *offset, *code, *absmax, *code2, *absmax2;
	uint8_t *absmax8, *packed;
};

static struct places places(const struct blob_head *h, unsigned char *p)
{
	struct places a = { .offset = (float *)p, .code = (float *)p + 4 };
	float *rest = (float *)p + FLOATS_BEFORE;
	if (h->doubled) {
		a.code2 = rest;
		a.absmax2 = rest + 256;
		a.absmax8 = (uint8_t *)(a.absmax2 + blocks2(h));
		a.packed = a.absmax8 + blocks(h);
	} else {
		a.absmax = rest;
		a.packed = (uint8_t *)(rest + blocks(h));
	}
	return a;
}

static int make_nf4(struct model_file *f, const struct model_tensor *t, const struct blob_head *h,
		    unsigned char *p, struct err *e)
{
	struct places a = places(h, p);
	if (t->kind == STORE_NF4) {
		struct nf4_view v;
		TRY(model_file_nf4(f, t, &v, e));
		*a.offset = v.offset;
		memcpy(a.code, v.code, 16 * 4);
		if (h->doubled) {
			memcpy(a.code2, v.code2, 256 * 4);
			memcpy(a.absmax2, v.absmax2, blocks2(h) * 4);
			memcpy(a.absmax8, v.absmax8, blocks(h));
		} else {
			memcpy(a.absmax, v.absmax, blocks(h) * 4);
		}
		memcpy(a.packed, v.packed, (numbers(h) + 1) / 2);
		mem_free(v.memory);
		return 0;
	}
	float *w, *absmax = a.absmax;
	TRY(rows_f32(f, t, h, &w, e));
	if (h->doubled && !(absmax = mem_array((size_t)blocks(h), 4))) {
		mem_free(w);
		return err_nomem(e, blocks(h) * 4, h->name);
	}
	nf4_quantize(w, numbers(h), a.packed, absmax);
	memcpy(a.code, nf4_code, 16 * 4);
	if (h->doubled) {
		memcpy(a.code2, nf4_code2(), 256 * 4);
		nf4_quantize_absmax(absmax, blocks(h), a.absmax8, a.absmax2, a.offset);
		mem_free(absmax);
	}
	mem_free(w);
	return 0;
}

int blob_make(struct model_file *f, const struct blob_head *h, struct blob *b, struct err *e)
{
	const struct model_tensor *t = model_file_find(f, h->name);
	if (!t)
		return err_set(e, ERR_INPUT, "%s: there is no tensor '%s'", model_file_path(f),
			       h->name);
	*b = (struct blob){ .n = h->bytes };
	const void *raw;
	struct err ignored = { 0 };
	if (!h->nf4 && t->kind == STORE_PLAIN && t->dtype == h->dtype &&
	    model_file_raw(f, t, &raw, &ignored) >= 0) {
		if ((uintptr_t)raw % 4 == 0) {
			b->p = raw;
			return 0;
		}
		if (!(b->owned = mem_alloc(h->bytes)))
			return err_nomem(e, h->bytes, h->name);
		b->p = memcpy(b->owned, raw, h->bytes);
		return 0;
	}
	unsigned char *p = b->owned = mem_zalloc(h->bytes);
	if (!p)
		return err_nomem(e, h->bytes, h->name);
	b->p = p;
	int rc = 0;
	if (h->nf4) {
		rc = make_nf4(f, t, h, p, e);
	} else {
		float *w;
		rc = rows_f32(f, t, h, &w, e);
		if (rc >= 0) {
			dtype_from_f32(h->dtype, w, p, numbers(h));
			mem_free(w);
		}
	}
	if (rc < 0)
		blob_release(b);
	return rc;
}

void blob_release(struct blob *b)
{
	mem_free(b->owned);
	*b = (struct blob){ 0 };
}

void blob_hash(const void *p, size_t n, unsigned char out[BLOB_HASH])
{
	crypto_generichash(out, BLOB_HASH, p, n, NULL, 0);
}

void blob_head_put(struct wire_writer *w, const struct blob_head *h)
{
	wire_put_str(w, h->name);
	wire_put_u8(w, (uint8_t)(h->nf4 | h->doubled << 1));
	wire_put_u8(w, (uint8_t)h->dtype);
	wire_put_u32(w, h->block);
	wire_put_u8(w, (uint8_t)h->ndim);
	wire_put_u64(w, (uint64_t)h->shape[0]);
	wire_put_u64(w, (uint64_t)h->shape[1]);
	wire_put_u64(w, h->bytes);
	wire_put_bytes(w, h->hash, BLOB_HASH);
}

int blob_head_get(struct wire_reader *r, struct blob_head *h, struct err *e)
{
	*h = (struct blob_head){ 0 };
	wire_get_str(r, h->name, sizeof h->name);
	uint8_t storage = wire_get_u8(r);
	h->nf4 = storage & 1;
	h->doubled = storage >> 1 & 1;
	h->dtype = wire_get_u8(r);
	h->block = wire_get_u32(r);
	h->ndim = wire_get_u8(r);
	h->shape[0] = (int64_t)wire_get_u64(r);
	h->shape[1] = (int64_t)wire_get_u64(r);
	h->bytes = wire_get_u64(r);
	size_t n = 0;
	const void *hash = wire_get_bytes(r, &n);
	if (r->failed || storage > 3 || n != BLOB_HASH)
		return err_set(e, ERR_PROTOCOL, "WEIGHTS_OFFER: a broken entry%s%s",
			       r->failed ? ": " : "", r->failed ? r->failed : "");
	memcpy(h->hash, hash, BLOB_HASH);
	uint64_t must;
	TRY(blob_size(h, &must, e));
	if (must != h->bytes)
		return err_set(e, ERR_PROTOCOL,
			       "WEIGHTS_OFFER: %s has %llu bytes; its shape needs %llu", h->name,
			       (unsigned long long)h->bytes, (unsigned long long)must);
	return 0;
}

void blob_rows(const struct blob_head *h, const unsigned char *p, int64_t row0, int64_t rows,
	       float *dst)
{
	uint64_t cols = (uint64_t)h->shape[1];
	dtype_to_f32(h->dtype, p + (uint64_t)row0 * cols * dtype_size(h->dtype), dst,
		     (uint64_t)rows * cols);
}

void blob_nf4(const struct blob_head *h, const unsigned char *p, struct nf4_parts *q)
{
	struct places a = places(h, (unsigned char *)p);
	*q = (struct nf4_parts){ .packed = a.packed,
				 .absmax = a.absmax,
				 .absmax8 = a.absmax8,
				 .code = a.code,
				 .code2 = a.code2,
				 .absmax2 = a.absmax2,
				 .offset = *a.offset,
				 .block = (int)h->block };
}
