/* SPDX-License-Identifier: Apache-2.0 */
/* bnb.c - see bnb.h. Every size in the JSON text is compared with the tensors; a contradiction is
 * refused here, so that users of the view need not check again. */
#include "file/bnb.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <string.h>

const char *const bnb_suffix[BNB_PARTS] = { BNB_STATE "nf4", ".absmax", ".quant_map",
					    ".nested_absmax", ".nested_quant_map" };

static int read_shape(const json_t *o, const char *where, struct model_tensor *t, struct err *e)
{
	const json_t *s = json_object_get(o, "shape");
	size_t n = json_array_size(s);
	if (!n || n > ARRAY_LEN(t->shape))
		return err_set(e, ERR_INPUT, "%s: 'shape' must be a list of 1 to %zu numbers",
			       where, ARRAY_LEN(t->shape));
	t->ndim = (int)n;
	t->count = 1;
	for (size_t i = 0; i < n; i++) {
		const json_t *d = json_array_get(s, i);
		t->shape[i] = json_integer_value(d);
		if (!json_is_integer(d) || t->shape[i] < 1 ||
		    !mul_ok(t->count, (uint64_t)t->shape[i], &t->count) || t->count > INT64_MAX)
			return err_set(e, ERR_INPUT, "%s: 'shape' must be made of positive numbers",
				       where);
	}
	return 0;
}

static int read_blocksize(const json_t *o, const char *where, const char *key, int *v_p,
			  struct err *e)
{
	int64_t n = 0;
	TRY(json_need_int(o, where, key, 16, 1 << 20, &n, e));
	if (n & (n - 1))
		return err_set(e, ERR_INPUT, "%s: '%s' is %lld, which is no power of two", where,
			       key, (long long)n);
	*v_p = (int)n;
	return 0;
}

static int read_dtype(const json_t *o, const char *where, const char *key, bool f32_only,
		      enum dtype *t_p, struct err *e)
{
	static const enum dtype known[] = { DT_F32, DT_BF16, DT_F16 };
	const char *s = NULL;
	TRY(json_need_str(o, where, key, &s, e));
	for (size_t i = 0; i < (f32_only ? 1 : ARRAY_LEN(known)); i++) {
		if (!strcmp(s, dtype_name(known[i]))) {
			*t_p = known[i];
			return 0;
		}
	}
	return err_set(e, ERR_UNSUPPORTED, "%s: '%s' is '%s'", where, key, s);
}

/* The data of a part that must have `count` numbers of a dtype. */
static int take_part(const char *where, const struct st_tensor *t, const char *suffix,
		     enum dtype dtype, uint64_t count, struct arena *a, const void **p_p,
		     struct err *e)
{
	if (!t)
		return err_set(e, ERR_INPUT, "%s: the tensor '%s' is missing", where, suffix);
	if (t->dtype != dtype || t->count != count)
		return err_set(e, ERR_INPUT,
			       "%s: '%s' must be %llu numbers of %s, it is %llu of %s", where,
			       suffix, (unsigned long long)count, dtype_name(dtype),
			       (unsigned long long)t->count, dtype_name(t->dtype));
	const void *p = t->data;
	if ((uintptr_t)p % dtype_size(dtype)) {
		void *copy = arena_alloc(a, t->bytes);
		if (!copy)
			return err_nomem(e, t->bytes, "quantisation scales");
		p = memcpy(copy, p, t->bytes);
	}
	*p_p = p;
	return 0;
}

/* The second level: absmax = code2[absmax8] * absmax2 + offset. */
static int open_nested(const json_t *o, const char *where,
		       const struct st_tensor *const part[BNB_PARTS], uint64_t nblk,
		       struct arena *a, struct nf4_view *v, struct err *e)
{
	enum dtype dtype;
	double offset = 0;
	const void *p;
	TRY(read_blocksize(o, where, "nested_blocksize", &v->blocksize2, e));
	TRY(read_dtype(o, where, "nested_dtype", true, &dtype, e));
	TRY(json_need_num(o, where, "nested_offset", -3e38, 3e38, &offset, e));
	v->offset = (float)offset;
	TRY(take_part(where, part[BNB_ABSMAX], bnb_suffix[BNB_ABSMAX], DT_U8, nblk, a, &p, e));
	v->absmax8 = p;
	TRY(take_part(where, part[BNB_MAP2], bnb_suffix[BNB_MAP2], DT_F32, 256, a, &p, e));
	v->code2 = p;
	uint64_t n = nblk / (uint64_t)v->blocksize2 + (nblk % (uint64_t)v->blocksize2 != 0);
	TRY(take_part(where, part[BNB_ABSMAX2], bnb_suffix[BNB_ABSMAX2], DT_F32, n, a, &p, e));
	v->absmax2 = p;
	return 0;
}

static int open_state(const json_t *o, const char *where, const struct st_tensor *weight,
		      const struct st_tensor *const part[BNB_PARTS], struct arena *a,
		      struct model_tensor *t, struct nf4_view *v, struct err *e)
{
	const char *type = NULL;
	const void *p;
	TRY(json_need_str(o, where, "quant_type", &type, e));
	if (strcmp(type, "nf4") != 0)
		return err_set(e, ERR_UNSUPPORTED, "%s: 'quant_type' is '%s', only nf4 is read",
			       where, type);
	TRY(read_blocksize(o, where, "blocksize", &v->blocksize, e));
	TRY(read_dtype(o, where, "dtype", false, &t->dtype, e));
	TRY(read_shape(o, where, t, e));
	if (weight->bytes != t->count / 2 + t->count % 2)
		return err_set(e, ERR_INPUT, "%s: the weight has %llu bytes, its shape needs %llu",
			       where, (unsigned long long)weight->bytes,
			       (unsigned long long)(t->count / 2 + t->count % 2));
	uint64_t nblk =
		t->count / (uint64_t)v->blocksize + (t->count % (uint64_t)v->blocksize != 0);
	v->packed = weight->data;
	TRY(take_part(where, part[BNB_MAP], bnb_suffix[BNB_MAP], DT_F32, 16, a, &p, e));
	v->code = p;
	if (part[BNB_ABSMAX2] || part[BNB_MAP2])
		return open_nested(o, where, part, nblk, a, v, e);
	TRY(take_part(where, part[BNB_ABSMAX], bnb_suffix[BNB_ABSMAX], DT_F32, nblk, a, &p, e));
	v->absmax = p;
	return 0;
}

int bnb_open(const char *path, const char *name, const struct st_tensor *weight,
	     const struct st_tensor *const part[BNB_PARTS], struct arena *a, struct model_tensor *t,
	     struct nf4_view *v_p, struct err *e)
{
	struct buf where = BUF_INIT;
	const struct st_tensor *state = part[BNB_STATE_NF4];
	struct model_tensor out = { .kind = STORE_NF4, .bytes = weight->bytes };
	struct nf4_view v = { 0 };
	json_t *o = NULL;
	int rc;
	buf_addf(&where, "%s: quantisation state of '%s'", path, name);
	TRYOUT(buf_ok(&where, e));
	if (state->dtype != DT_U8 || state->bytes > 65536) {
		rc = err_set(e, ERR_INPUT, "%s: must be at most 65536 bytes of text", where.p);
		goto out;
	}
	TRYOUT(json_parse_text_in(state->data, state->bytes, where.p, JSON_MEMORY_LINE, &o, e));
	TRYOUT(open_state(o, where.p, weight, part, a, &out, &v, e));
	for (int i = 0; i < BNB_PARTS; i++)
		out.bytes += part[i] ? part[i]->bytes : 0;
	*t = out;
	*v_p = v;
out:
	json_decref(o);
	buf_release(&where);
	return rc;
}

void bnb_expand(const struct nf4_view *v, uint64_t first, uint64_t n, float *dst)
{
	uint64_t i = first, end = first + n, block = (uint64_t)v->blocksize;
	while (i < end) {
		uint64_t b = i / block, stop = (b + 1) * block < end ? (b + 1) * block : end;
		float w[16], scale;
		if (v->absmax)
			scale = v->absmax[b];
		else
			scale = v->code2[v->absmax8[b]] * v->absmax2[b / (uint64_t)v->blocksize2] +
				v->offset;
		for (int q = 0; q < 16; q++)
			w[q] = v->code[q] * scale;
		if (i % 2) {
			*dst++ = w[v->packed[i / 2] & 15];
			i++;
		}
		for (; i + 2 <= stop; i += 2, dst += 2) {
			uint8_t q = v->packed[i / 2];
			dst[0] = w[q >> 4];
			dst[1] = w[q & 15];
		}
		if (i < stop) {
			*dst++ = w[v->packed[i / 2] >> 4];
			i++;
		}
	}
}
