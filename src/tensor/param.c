/* SPDX-License-Identifier: Apache-2.0 */
/* param.c - see param.h. */
#include "tensor/param.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

/* Bytes of expanded NF4 weights at a time: a processor's panel stays in the last-level cache, yet
 * gives the matrix product enough columns; a card wants few launches, and expands the next panel
 * while it multiplies by this one. */
enum {
	PANEL_BYTES = 8 << 20,
	PANEL_CARD = 32 << 20,
	STAGING = 1 << 16,
	ADDED = 1 << 20 /* numbers */
};

static int init_plain(struct param *p, struct dev *d, const char *name, int ndim,
		      const int64_t *dim, enum dtype t, bool trainable, struct err *e)
{
	int64_t first;
	p->name = name;
	p->ndim = ndim;
	p->trainable = trainable;
	p->decay = ndim == 2;
	p->dim[0] = dim[0];
	p->dim[1] = ndim == 2 ? dim[1] : 1;
	size_t n = (size_t)param_count(p);
	p->w.dtype = ndim == 2 ? t : DT_F32;
	p->w.rows = ndim == 2 ? dim[0] : 1;
	p->w.cols = ndim == 2 ? dim[1] : dim[0];
	int rc;
	TRYOUT(dev_alloc(d, n * dtype_size(p->w.dtype), &p->store[0], e));
	p->w.data = DEV_REF(p->store[0], 0);
	if (trainable) {
		if (p->w.dtype == DT_F32)
			p->value = p->store[0];
		else
			TRYOUT(dev_alloc(d, (size_t)param_owned(p, &first) * 4, &p->value, e));
		TRYOUT(dev_alloc(d, n * 4, &p->grad, e));
		TRYOUT(dev_zero(DEV_REF(p->grad, 0), n * 4, e));
	}
	return 0;
out:
	param_release(p);
	return err_prefix(e, "%s", name);
}

int param_init_plain(struct param *p, struct dev *d, const char *name, int ndim, const int64_t *dim,
		     enum dtype t, bool trainable, struct err *e)
{
	*p = (struct param){ 0 };
	return init_plain(p, d, name, ndim, dim, t, trainable, e);
}

int param_init_shared(struct param *p, struct dev *d, const char *name, int ndim,
		      const int64_t *dim, enum dtype t, const int64_t *cut, int members, int place,
		      struct err *e)
{
	*p = (struct param){ .cut = cut, .members = members, .place = place };
	return init_plain(p, d, name, ndim, dim, t, true, e);
}

int param_init_replica(struct param *p, const struct param *owner, struct err *e)
{
	struct dev_buf *grad;
	size_t bytes = (size_t)param_count(owner) * 4;
	TRY(dev_alloc(owner->grad->dev, bytes, &grad, e));
	int rc = dev_zero(DEV_REF(grad, 0), bytes, e);
	if (rc < 0) {
		dev_free(grad);
		return err_prefix(e, "%s", owner->name);
	}
	*p = (struct param){ .name = owner->name,
			     .ndim = owner->ndim,
			     .dim = { owner->dim[0], owner->dim[1] },
			     .trainable = true,
			     .decay = owner->decay,
			     .cut = owner->cut,
			     .members = owner->members,
			     .place = owner->place,
			     .replica = true,
			     .w = owner->w,
			     .grad = grad };
	return 0;
}

void param_to_replica(struct param *p)
{
	if (p->value != p->store[0])
		dev_free(p->value);
	dev_free(p->own_grad);
	dev_free(p->piece[0]);
	p->value = p->own_grad = p->piece[0] = NULL;
	p->cut = NULL;
	p->hosted = false;
	p->replica = true;
}

/* ---- in the memory of the host ---- */

static int clear_on(struct dev *host, size_t bytes, struct dev_buf **b_p, struct err *e)
{
	TRY(dev_alloc(host, bytes, b_p, e));
	return dev_zero(DEV_REF(*b_p, 0), bytes, e);
}

static int piece_to_host(struct param *p, struct dev *host, struct err *e)
{
	const size_t data = p->piece[0]->size, scales = p->piece[1] ? p->piece[1]->size : 0;
	struct dev_buf *both;
	TRY(dev_alloc(host, data + scales, &both, e));
	int rc = dev_download(both->host, DEV_REF(p->piece[0], 0), data, e);
	if (rc >= 0 && scales)
		rc = dev_download((char *)both->host + data, DEV_REF(p->piece[1], 0), scales, e);
	dev_free(p->piece[0]);
	dev_free(p->piece[1]);
	p->piece[0] = both;
	p->piece[1] = NULL;
	return rc;
}

int param_to_host(struct param *p, struct dev *host, struct err *e)
{
	int64_t first;
	const size_t n = (size_t)param_owned(p, &first);
	p->hosted = true;
	if (!p->trainable)
		return piece_to_host(p, host, e);
	if (p->value != p->store[0])
		dev_free(p->value);
	dev_free(p->own_grad);
	p->value = p->own_grad = NULL;
	TRY(clear_on(host, n * 4, &p->value, e));
	TRY(clear_on(host, n * 4, &p->own_grad, e));
	return p->w.dtype == DT_F32 ? 0
				    : clear_on(host, n * dtype_size(p->w.dtype), &p->piece[0], e);
}

const void *param_hosted(const struct param *p)
{
	return p->hosted ? (p->piece[0] ? p->piece[0] : p->value)->host : NULL;
}

/* The new value of what is owned. */
static int refresh_hosted(struct param *p, int64_t first, int64_t count, struct err *e)
{
	const size_t size = dtype_size(p->w.dtype);
	if (p->piece[0]) {
		const union dev_arg a[] = { { .b = DEV_REF(p->piece[0], 0) },
					    { .b = DEV_REF(p->value, 0) },
					    { .i = count },
					    { .i = p->w.dtype },
					    { .i = DT_F32 } };
		TRY(dev_launch(p->value->dev, K_cast, DT_F32, a, e));
		TRY(dev_sync(p->value->dev, e));
	}
	if (p->gathered)
		return 0;
	p->late = p->lazy;
	if (p->late)
		return dev_sync(p->value->dev, e);
	return dev_upload(DEV_REF(p->w.data.buf, p->w.data.off + (size_t)first * size),
			  param_hosted(p), (size_t)count * size, e);
}

int param_bring(struct param *p, struct err *e)
{
	int64_t first, count = param_owned(p, &first);
	if (!p->late)
		return 0;
	p->late = false;
	return dev_upload(p->w.data, param_hosted(p), (size_t)count * dtype_size(p->w.dtype), e);
}

/* Adds numbers of a device to a gradient in the memory of the host. */
static int add_to_hosted(struct param *p, size_t at, int64_t count, struct dev_ref from,
			 struct err *e)
{
	struct dev *host = p->own_grad->dev;
	struct dev_buf *part;
	int rc = 0;
	TRY(dev_alloc(host, ADDED * 4, &part, e));
	for (int64_t i = 0; i < count && rc >= 0; i += ADDED) {
		const int64_t n = count - i < ADDED ? count - i : ADDED;
		const union dev_arg a[] = { { .b = DEV_REF(p->own_grad, (at + (size_t)i) * 4) },
					    { .b = DEV_REF(part, 0) },
					    { .i = n },
					    { .f = 1 },
					    { .f = 1 } };
		rc = dev_download(part->host, DEV_REF(from.buf, from.off + (size_t)i * 4),
				  (size_t)n * 4, e);
		if (rc >= 0)
			rc = dev_launch(host, K_axpby, DT_F32, a, e);
		if (rc >= 0)
			rc = dev_sync(host, e);
	}
	dev_free(part);
	return rc;
}

/* ---- */

void param_release(struct param *p)
{
	if (p->value != p->store[0])
		dev_free(p->value);
	for (size_t i = 0; i < ARRAY_LEN(p->store); i++)
		dev_free(p->store[i]);
	if (!p->gathered)
		dev_free(p->grad);
	dev_free(p->own_grad);
	dev_free(p->piece[0]);
	dev_free(p->piece[1]);
	for (int i = 0; i < PARAM_STATES; i++)
		dev_free(p->state[i]);
	memset(p->store, 0, sizeof p->store);
	memset(p->state, 0, sizeof p->state);
	p->value = p->grad = p->own_grad = p->piece[0] = p->piece[1] = NULL;
}

int param_upload_f32(struct param *p, int64_t first, int64_t count, const float *src, struct err *e)
{
	int64_t own, from, end = param_owned(p, &own) + own;
	if (p->value == p->store[0])
		return dev_upload(DEV_REF(p->value, (size_t)first * 4), src, (size_t)count * 4, e);
	from = first > own ? first : own;
	end = first + count < end ? first + count : end;
	if (p->value && from < end)
		TRY(dev_upload(DEV_REF(p->value, (size_t)(from - own) * 4), src + (from - first),
			       (size_t)(end - from) * 4, e));
	if (p->gathered)
		return 0;
	uint16_t part[STAGING / 2];
	size_t size = dtype_size(p->w.dtype),
	       most = p->w.dtype == DT_F32 ? (size_t)count : ARRAY_LEN(part);
	for (int64_t i = 0; i < count; i += (int64_t)most) {
		size_t n = (size_t)(count - i) < most ? (size_t)(count - i) : most;
		const void *bytes = src + i;
		if (p->w.dtype != DT_F32) {
			dtype_from_f32(p->w.dtype, src + i, part, n);
			bytes = part;
		}
		TRY(dev_upload(DEV_REF(p->w.data.buf, p->w.data.off + (size_t)(first + i) * size),
			       bytes, n * size, e));
	}
	return 0;
}

int param_download_f32(const struct param *p, int64_t first, int64_t count, float *dst,
		       struct err *e)
{
	struct dev_ref from = param_value(p);
	int64_t own, end = param_owned(p, &own) + own;
	if (!p->value || first < own || first + count > end)
		return err_set(e, ERR_INTERNAL, "%s is %s: it has no float32 copy", p->name,
			       p->value ? "stored elsewhere" : "frozen");
	from.off += (size_t)(first - own) * 4;
	return dev_download(dst, from, (size_t)count * 4, e);
}

int param_refresh(struct param *p, struct err *e)
{
	int64_t first, count = param_owned(p, &first);
	if (!p->value || p->value == p->store[0] || !count)
		return 0;
	if (p->hosted)
		return refresh_hosted(p, first, count, e);
	if (p->gathered)
		return 0;
	struct dev_ref to = p->w.data;
	to.off += (size_t)first * dtype_size(p->w.dtype);
	const union dev_arg a[] = { { .b = to },
				    { .b = DEV_REF(p->value, 0) },
				    { .i = count },
				    { .i = p->w.dtype },
				    { .i = DT_F32 } };
	return dev_launch(p->value->dev, K_cast, DT_F32, a, e);
}

int param_add_grad(struct param *p, int64_t first, int64_t count, struct dev_ref from,
		   struct err *e)
{
	int64_t own;
	param_owned(p, &own);
	if (p->hosted)
		return add_to_hosted(p, (size_t)(first - own), count, from, e);
	const union dev_arg a[] = { { .b = DEV_REF(p->grad, (size_t)first * 4) },
				    { .b = from },
				    { .i = count },
				    { .f = 1 },
				    { .f = 1 } };
	return count ? dev_launch(p->grad->dev, K_axpby, DT_F32, a, e) : 0;
}

static int expand(const struct weight *w, struct dev *d, enum dtype t, struct dev_ref dst,
		  int64_t row, int64_t nr, int64_t col, int64_t nc, struct err *e)
{
	const union dev_arg a[] = { { .b = dst },      { .b = w->data },  { .b = w->absmax },
				    { .b = w->code },  { .b = w->code2 }, { .b = w->absmax2 },
				    { .i = w->cols },  { .i = row },      { .i = nr },
				    { .i = col },      { .i = nc },       { .i = nc },
				    { .i = w->block }, { .f = w->offset } };
	return dev_launch(d, K_nf4_dequant, t, a, e);
}

/* Columns [at, at+some) of all rows of n matrices one above the other (`back`), or their rows
 * [at, at+some), into `panel`. */
static int expand_panel(const struct weight *const *w, int n, struct dev *d, enum dtype t,
			struct dev_ref panel, bool back, int64_t at, int64_t some, struct err *e)
{
	int64_t row = 0; /* where w[i] begins */
	for (int i = 0; i < n; row += w[i++]->rows) {
		const int64_t end = row + w[i]->rows, lo = at > row ? at : row,
			      hi = at + some < end ? at + some : end;
		struct dev_ref to = panel;
		if (back) {
			to.off += (size_t)(row * some) * dtype_size(t);
			TRY(expand(w[i], d, t, to, 0, w[i]->rows, at, some, e));
		} else if (lo < hi) {
			to.off += (size_t)((lo - at) * w[i]->cols) * dtype_size(t);
			TRY(expand(w[i], d, t, to, lo - row, hi - lo, 0, w[i]->cols, e));
		}
	}
	return 0;
}

/* Forward takes panels of rows (outputs), backward panels of columns (inputs): in both a panel
 * yields complete sums, so that nothing is added up in the activation dtype. */
static int nf4_matmul(const struct weight *const *w, int n, int64_t rows, struct dmem *scratch,
		      enum dtype t, bool back, struct dev_gemm g, struct err *e)
{
	struct dev *d = scratch->dev;
	const struct dev_ref y = g.c, add = g.d;
	int64_t across = back ? rows : w[0]->cols, along = back ? w[0]->cols : rows;
	const bool card = dev_beside(d);
	int64_t step = (card ? PANEL_CARD : PANEL_BYTES) / (across * (int64_t)dtype_size(t));
	/* backward every panel reads all of dy */
	const int64_t least = back ? 256 : 64;
	step = step < least ? least : step / 64 * 64;
	if (step > along)
		step = along;
	struct dmem_mark k = dmem_mark(scratch);
	const size_t room = (size_t)(step * across) * dtype_size(t);
	int rc = card ? 0 : dmem_take(scratch, room, &g.b, e);
	for (int64_t at = 0; at < along && !rc; at += step) {
		const size_t off = (size_t)at * dtype_size(t);
		rc = card ? dmem_panel(scratch, room, &g.b, e) : 0;
		g.n = along - at < step ? along - at : step;
		g.ldb = back ? g.n : across;
		g.c.off = y.off + off;
		g.d.off = add.buf ? add.off + off : 0;
		rc = rc < 0 ? rc : expand_panel(w, n, d, t, g.b, back, at, g.n, e);
		if (rc >= 0)
			rc = dev_gemm(d, &g, e);
	}
	dmem_back(scratch, k);
	return rc;
}

static struct dev_ref behind(const struct weight *w)
{
	return DEV_REF(w->data.buf,
		       w->data.off + (size_t)(w->rows * w->cols) * dtype_size(w->dtype));
}

/* The numbers of n plain matrices one behind the other: where they lie so, or in `scratch`. */
static int numbers_of(const struct weight *const *w, int n, int64_t rows, struct dmem *scratch,
		      struct dev_ref *b_p, struct err *e)
{
	const size_t size = dtype_size(w[0]->dtype);
	struct dev_ref at = w[0]->data;
	int i = 1;
	while (i < n && w[i]->data.buf == at.buf && w[i]->data.off == behind(w[i - 1]).off)
		i++;
	*b_p = at;
	if (i == n)
		return 0;
	TRY(dmem_take(scratch, (size_t)(rows * w[0]->cols) * size, &at, e));
	*b_p = at;
	for (i = 0; i < n; i++) {
		const size_t bytes = (size_t)(w[i]->rows * w[i]->cols) * size;
		TRY(dev_copy(at, w[i]->data, bytes, e));
		at.off += bytes;
	}
	return 0;
}

int weights_matmul(const struct weight *const *w, int n, struct dmem *scratch, enum dtype t,
		   bool back, struct dev_ref y, struct dev_ref x, int64_t count, float alpha,
		   float beta, struct dev_ref d, struct err *e)
{
	int64_t rows = 0;
	for (int i = 0; i < n; i++)
		rows += w[i]->rows;
	const int64_t out = back ? w[0]->cols : rows, in = back ? rows : w[0]->cols;
	struct dev_gemm g = { .m = count,
			      .n = out,
			      .k = in,
			      .tb = !back,
			      .a = x,
			      .c = y,
			      .d = d,
			      .lda = in,
			      .ldb = w[0]->cols,
			      .ldc = out,
			      .ab_dtype = t,
			      .c_dtype = t,
			      .alpha = alpha,
			      .beta = beta };
	if (w[0]->kind == WEIGHT_NF4)
		return nf4_matmul(w, n, rows, scratch, t, back, g, e);
	struct dmem_mark k = dmem_mark(scratch);
	TRY(numbers_of(w, n, rows, scratch, &g.b, e));
	int rc = dev_gemm(scratch->dev, &g, e);
	dmem_back(scratch, k);
	return rc;
}

int weight_matmul(const struct weight *w, struct dmem *scratch, enum dtype t, bool back,
		  struct dev_ref y, struct dev_ref x, int64_t n, float beta, struct dev_ref d,
		  struct err *e)
{
	return weights_matmul(&w, 1, scratch, t, back, y, x, n, 1, beta, d, e);
}

/* A float32 copy that is trained is what kernels read: it stays where it is. */
static bool stays(const struct param *p)
{
	return p->w.kind != WEIGHT_PLAIN || (p->value && p->value == p->store[0]);
}

int param_join(struct param *const *p, int n, struct err *e)
{
	size_t all = 0;
	struct dev_buf *joint;
	for (int i = 0; i < n; i++) {
		if (stays(p[i]) || p[i]->gathered != p[0]->gathered)
			return 0;
		all += (size_t)param_count(p[i]) * dtype_size(p[i]->w.dtype);
	}
	if (!p[0]->gathered)
		TRY(dev_alloc(p[0]->store[0]->dev, all, &joint, e));
	size_t at = 0;
	for (int i = 0; i < n; i++) {
		const size_t bytes = (size_t)param_count(p[i]) * dtype_size(p[i]->w.dtype);
		if (p[0]->gathered) {
			p[i]->leader = p[0];
			p[i]->behind = at;
			p[i]->room = i ? 0 : all;
		} else {
			int rc = dev_copy(DEV_REF(joint, at), p[i]->w.data, bytes, e);
			if (rc < 0) {
				dev_free(joint);
				return rc;
			}
		}
		at += bytes;
	}
	at = 0;
	for (int i = 0; i < n && !p[0]->gathered; i++) {
		dev_free(p[i]->store[0]);
		p[i]->store[0] = i ? NULL : joint;
		p[i]->w.data = DEV_REF(joint, at);
		at += (size_t)param_count(p[i]) * dtype_size(p[i]->w.dtype);
	}
	return 0;
}

int weight_rows_f32(const struct weight *w, struct dev *d, int64_t row, int64_t n,
		    struct dev_ref dst, struct err *e)
{
	if (w->kind == WEIGHT_NF4)
		return expand(w, d, DT_F32, dst, row, n, 0, w->cols, e);
	struct dev_ref from = w->data;
	from.off += (size_t)(row * w->cols) * dtype_size(w->dtype);
	const union dev_arg a[] = { { .b = dst },
				    { .b = from },
				    { .i = n * w->cols },
				    { .i = DT_F32 },
				    { .i = w->dtype } };
	return dev_launch(d, K_cast, DT_F32, a, e);
}

static int add_product(struct dev *d, const struct param *a, const struct param *b, float s,
		       enum dtype t, struct dev_ref panel, int64_t row, int64_t n, struct err *e)
{
	const int64_t r = a->dim[0], in = a->dim[1];
	struct dev_ref rows = b->w.data;
	rows.off += (size_t)(row * r) * dtype_size(t);
	return dev_gemm(d,
			&(struct dev_gemm){ .m = n,
					    .n = in,
					    .k = r,
					    .a = rows,
					    .b = a->w.data,
					    .c = panel,
					    .lda = r,
					    .ldb = in,
					    .ldc = in,
					    .ab_dtype = t,
					    .c_dtype = DT_F32,
					    .alpha = s,
					    .beta = 1 },
			e);
}

int weight_row_norms(const struct weight *w, const struct param *a, const struct param *b, float s,
		     struct dmem *scratch, enum dtype t, struct dev_ref norm, struct err *e)
{
	struct dev *d = scratch->dev;
	int64_t step = PANEL_BYTES / (w->cols * 4);
	step = step < 64 ? 64 : step / 64 * 64;
	step = step > w->rows ? w->rows : step;
	struct dmem_mark k = dmem_mark(scratch);
	struct dev_ref panel;
	TRY(dmem_take(scratch, (size_t)(step * w->cols) * 4, &panel, e));
	for (int64_t row = 0; row < w->rows; row += step) {
		const int64_t n = w->rows - row < step ? w->rows - row : step;
		const union dev_arg arg[] = { { .b = DEV_REF(norm.buf,
							     norm.off + (size_t)row * 4) },
					      { .b = panel },
					      { .i = n },
					      { .i = w->cols } };
		TRY(weight_rows_f32(w, d, row, n, panel, e));
		if (a)
			TRY(add_product(d, a, b, s, t, panel, row, n, e));
		TRY(dev_launch(d, K_row_norms, DT_F32, arg, e));
	}
	dmem_back(scratch, k);
	return 0;
}
