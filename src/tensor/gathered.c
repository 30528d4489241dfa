/* SPDX-License-Identifier: Apache-2.0 */
/* gathered.c - see gathered.h. */
#include "tensor/gathered.h"

#include "base/err.h"

int gathered_init(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		  enum dtype t, const int64_t *cut, int members, int place, struct err *e)
{
	int64_t first;
	*p = (struct param){ .name = name,
			     .ndim = 2,
			     .dim = { dim[0], dim[1] },
			     .trainable = true,
			     .decay = true,
			     .cut = cut,
			     .members = members,
			     .place = place,
			     .gathered = true };
	p->w = (struct weight){ .dtype = t, .rows = dim[0], .cols = dim[1] };
	const size_t bytes = (size_t)param_owned(p, &first) * 4;
	int rc;
	TRYOUT(dev_alloc(d, bytes, &p->value, e));
	TRYOUT(dev_zero(DEV_REF(p->value, 0), bytes, e));
	TRYOUT(dev_alloc(d, bytes, &p->own_grad, e));
	TRYOUT(dev_zero(DEV_REF(p->own_grad, 0), bytes, e));
	return 0;
out:
	param_release(p);
	return err_prefix(e, "%s", name);
}

/* ---- where the piece of a member is ---- */

static size_t scale_size(const struct weight *w)
{
	return w->kind == WEIGHT_PLAIN ? 0 : w->code2.buf ? 1 : 4;
}

/* Bytes of the first n elements. */
static size_t data_bytes(const struct weight *w, int64_t n)
{
	return w->kind == WEIGHT_PLAIN ? (size_t)n * dtype_size(w->dtype) : (size_t)(n + 1) / 2;
}

static size_t scale_bytes(const struct weight *w, int64_t n)
{
	return w->kind == WEIGHT_PLAIN ? 0
				       : (size_t)((n + w->block - 1) / w->block) * scale_size(w);
}

/* Of the piece of member k: where it begins in the data and in the scales, and how long it is. */
struct place {
	size_t data, data_n, scales, scales_n;
};

static struct place place_of(const struct param *p, int k)
{
	const struct weight *w = &p->w;
	const int64_t a = p->cut[k], b = p->cut[k + 1];
	struct place at = { data_bytes(w, a), 0, scale_bytes(w, a), 0 };
	if (a == b)
		return at;
	at.data_n = data_bytes(w, b) - at.data;
	at.scales_n = scale_bytes(w, b) - at.scales;
	return at;
}

static struct dev_ref behind(struct dev_ref r, size_t bytes)
{
	return DEV_REF(r.buf, r.off + bytes);
}

/* ---- */

/* The part [first, first + n) of a buffer as a buffer of its own; the old one is freed. */
static int keep_part(struct dev_buf **store, struct dev_ref from, size_t first, size_t n,
		     struct dev_buf **piece_p, struct err *e)
{
	TRY(dev_alloc(from.buf->dev, n, piece_p, e));
	if (n)
		TRY(dev_copy(DEV_REF(*piece_p, 0), behind(from, first), n, e));
	dev_free(*store);
	*store = NULL;
	return 0;
}

int gathered_cut(struct param *p, const int64_t *cut, int members, int place, struct err *e)
{
	struct weight *w = &p->w;
	p->cut = cut;
	p->members = members;
	p->place = place;
	p->gathered = true;
	const struct place own = place_of(p, place);
	TRY(keep_part(&p->store[0], w->data, own.data, own.data_n, &p->piece[0], e));
	if (w->kind == WEIGHT_NF4)
		TRY(keep_part(&p->store[2], w->absmax, own.scales, own.scales_n, &p->piece[1], e));
	gathered_close(p);
	return 0;
}

struct gathered_size gathered_size(const struct param *p)
{
	const int64_t n = param_count(p);
	return (struct gathered_size){ p->leader ? p->room : data_bytes(&p->w, n),
				       scale_bytes(&p->w, n) };
}

int gathered_open(struct param *p, struct dev_buf *data, struct dev_buf *scales, struct err *e)
{
	struct weight *w = &p->w;
	const struct place own = place_of(p, p->place);
	int64_t first;
	w->data = p->leader ? behind(DEV_REF(p == p->leader ? data : p->leader->w.data.buf, 0),
				     p->behind)
			    : DEV_REF(data, 0);
	w->absmax = scales ? DEV_REF(scales, 0) : DEV_NONE;
	if (!own.data_n || p->hosted)
		return 0;
	if (p->value) {
		const union dev_arg a[] = { { .b = behind(w->data, own.data) },
					    { .b = DEV_REF(p->value, 0) },
					    { .i = param_owned(p, &first) },
					    { .i = w->dtype },
					    { .i = DT_F32 } };
		return dev_launch(data->dev, K_cast, DT_F32, a, e);
	}
	TRY(dev_copy(behind(w->data, own.data), DEV_REF(p->piece[0], 0), own.data_n, e));
	return own.scales_n ? dev_copy(behind(w->absmax, own.scales), DEV_REF(p->piece[1], 0),
				       own.scales_n, e)
			    : 0;
}

void gathered_close(struct param *p) { p->w.data = p->w.absmax = DEV_NONE; }

size_t gathered_piece_size(const struct param *p, int k)
{
	const struct place at = place_of(p, k);
	return at.data_n + at.scales_n;
}

int gathered_get(const struct param *p, int k, void *bytes, struct err *e)
{
	const struct place at = place_of(p, k);
	if (at.data_n)
		TRY(dev_download(bytes, behind(p->w.data, at.data), at.data_n, e));
	return at.scales_n ? dev_download((char *)bytes + at.data_n, behind(p->w.absmax, at.scales),
					  at.scales_n, e)
			   : 0;
}

int gathered_put(struct param *p, int k, const void *bytes, struct err *e)
{
	const struct place at = place_of(p, k);
	if (at.data_n)
		TRY(dev_upload(behind(p->w.data, at.data), bytes, at.data_n, e));
	return at.scales_n ? dev_upload(behind(p->w.absmax, at.scales),
					(const char *)bytes + at.data_n, at.scales_n, e)
			   : 0;
}
