/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_delta.c - cases of the kernels of linear attention: its gate, its convolution, the gated
 * delta rule. */
#include "support/kernel_case.h"

#include "dev/dev_delta.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void case_glu_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *g = tensor_normal(ts, t, n, s & 1 ? 50 : 2),
				*u = tensor_normal(ts, t, n, 1), *y = tensor_nan(ts, t, n);
		double *want = nans(n);
		LAUNCH(ts, K_glu_fwd, t, AB(y), AB(g), AB(u), AI(n), AI(n), AI(n));
		for (int64_t i = 0; i < n; i++)
			want[i] = sigmoid(g->v[i]) * u->v[i];
		tensor_check(ts, y, want, rel_of(t), fmax(small_of(t), 1e-30), "glu_fwd %lld",
			     (long long)n);
		mem_free(want);
	}
}

void case_glu_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 3; s++) {
		const int64_t n = case_lengths[s / 3];
		const int alias = s % 3;
		struct tensor64 *dy = tensor_normal(ts, t, n, 1), *g = tensor_normal(ts, t, n, 2),
				*u = tensor_normal(ts, t, n, 1),
				*dg = alias == 1   ? dy
				      : alias == 2 ? g
						   : tensor_nan(ts, t, n),
				*du = alias ? u : tensor_nan(ts, t, n);
		double *wg = nans(n), *wu = nans(n);
		for (int64_t i = 0; i < n; i++) {
			const double p = sigmoid(g->v[i]);
			wg[i] = dy->v[i] * u->v[i] * p * (1 - p);
			wu[i] = dy->v[i] * p;
		}
		LAUNCH(ts, K_glu_bwd, t, AB(dg), AB(du), AB(dy), AB(g), AB(u), AI(n), AI(n), AI(n));
		tensor_check(ts, dg, wg, rel_of(t), 1e-6, "glu_bwd dgate %lld alias %d",
			     (long long)n, alias);
		tensor_check(ts, du, wu, rel_of(t), 1e-6, "glu_bwd dup %lld alias %d", (long long)n,
			     alias);
		mem_free(wg);
		mem_free(wu);
	}
}

/* Rows and their width. */
static const int64_t head_glus[][2] = {
	{ 1, 1 }, { 5, 33 }, { 12, 128 }, { 3, 5000 }, { 700, 64 }
};

void case_head_glu_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(head_glus); s++) {
		const int64_t r = head_glus[s][0], d = head_glus[s][1];
		struct tensor64 *g = tensor_normal(ts, t, r, s & 1 ? 50 : 2),
				*u = tensor_normal(ts, t, r * d, 1), *y = tensor_nan(ts, t, r * d);
		double *want = nans(r * d);
		LAUNCH(ts, K_head_glu_fwd, t, AB(y), AB(g), AB(u), AI(r), AI(d));
		for (int64_t i = 0; i < r * d; i++)
			want[i] = sigmoid(g->v[i / d]) * u->v[i];
		tensor_check(ts, y, want, rel_of(t), fmax(small_of(t), 1e-30),
			     "head_glu_fwd %lld by %lld", (long long)r, (long long)d);
		mem_free(want);
	}
}

void case_head_glu_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(head_glus) * 2; s++) {
		const int64_t r = head_glus[s / 2][0], d = head_glus[s / 2][1];
		const bool over = s & 1;
		struct tensor64 *dy = tensor_normal(ts, t, r * d, 1),
				*g = tensor_normal(ts, t, r, 2),
				*u = tensor_normal(ts, t, r * d, 1),
				*dg = over ? g : tensor_nan(ts, t, r),
				*du = over ? dy : tensor_nan(ts, t, r * d);
		double *wg = nans(r), *wu = nans(r * d), most = 0;
		for (int64_t i = 0; i < r; i++) {
			const double p = sigmoid(g->v[i]);
			double sum = 0, size = 0;
			for (int64_t j = i * d; j < (i + 1) * d; j++) {
				sum += dy->v[j] * u->v[j];
				size += fabs(dy->v[j] * u->v[j]);
				wu[j] = dy->v[j] * p;
			}
			wg[i] = sum * p * (1 - p);
			most = fmax(most, size * p * (1 - p));
		}
		LAUNCH(ts, K_head_glu_bwd, t, AB(dg), AB(du), AB(dy), AB(g), AB(u), AI(r), AI(d));
		tensor_check(ts, dg, wg, rel_of(t), 1e-6 + 1e-6 * most,
			     "head_glu_bwd dgate %lld by %lld in place %d", (long long)r,
			     (long long)d, (int)over);
		tensor_check(ts, du, wu, rel_of(t), 1e-6,
			     "head_glu_bwd dup %lld by %lld in place %d", (long long)r,
			     (long long)d, (int)over);
		mem_free(wg);
		mem_free(wu);
	}
}

/* Rows, their width, and how far they are apart in a and in b. */
static const struct {
	int64_t rows, f, lda, ldb;
} muls[] = { { 1, 1, 1, 1 },
	     { 1, 5000, 5000, 5000 },
	     { 7, 33, 99, 33 },
	     { 3, 64, 64, 192 },
	     { 5, 2100, 2101, 6300 } };

void case_mul_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(muls); s++) {
		const int64_t r = muls[s].rows, f = muls[s].f, n = r * f;
		struct tensor64 *a = tensor_normal(ts, t, r * muls[s].lda, 2),
				*b = tensor_normal(ts, t, r * muls[s].ldb, 1),
				*y = tensor_nan(ts, t, n);
		double *want = nans(n);
		LAUNCH(ts, K_mul_fwd, t, AB(y), AB(a), AB(b), AI(n), AI(f), AI(muls[s].lda),
		       AI(muls[s].ldb));
		for (int64_t i = 0; i < n; i++)
			want[i] = a->v[i / f * muls[s].lda + i % f] *
				  b->v[i / f * muls[s].ldb + i % f];
		tensor_check(ts, y, want, rel_of(t), 1e-30, "mul_fwd %lld by %lld", (long long)r,
			     (long long)f);
		mem_free(want);
	}
}

/* What is beside a and b stays. */
void case_mul_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(muls) * 2; s++) {
		const int64_t r = muls[s / 2].rows, f = muls[s / 2].f, n = r * f,
			      ld[2] = { muls[s / 2].lda, muls[s / 2].ldb };
		struct tensor64 *dy = tensor_normal(ts, t, n, 1), *x[2], *dx[2];
		double *want[2];
		for (int i = 0; i < 2; i++) {
			x[i] = tensor_normal(ts, t, r * ld[i], 2);
			dx[i] = s & 1 ? x[i] : tensor_normal(ts, t, r * ld[i], 1);
			want[i] = copy(dx[i]);
		}
		for (int64_t i = 0; i < n; i++) {
			const int64_t a = i / f * ld[0] + i % f, b = i / f * ld[1] + i % f;
			const double v = x[0]->v[a], w = x[1]->v[b];
			want[0][a] = dy->v[i] * w;
			want[1][b] = dy->v[i] * v;
		}
		LAUNCH(ts, K_mul_bwd, t, AB(dx[0]), AB(dx[1]), AB(dy), AB(x[0]), AB(x[1]), AI(n),
		       AI(f), AI(ld[0]), AI(ld[1]));
		for (int i = 0; i < 2; i++) {
			tensor_check(ts, dx[i], want[i], rel_of(t), 1e-30,
				     "mul_bwd d%c %lld by %lld in place %d", "ab"[i], (long long)r,
				     (long long)f, (int)(s & 1));
			mem_free(want[i]);
		}
	}
}

/* Sequences in a row, 0 ends; channels, and how far back a convolution sees. */
static const struct {
	int32_t len[4];
	int64_t c, size;
} convs[] = { { { 1 }, 3, 4 }, { { 5, 1, 2 }, 33, 4 }, { { 70, 3 }, 130, 2 }, { { 90 }, 64, 5 } };

static int64_t positions(const int32_t *len, int32_t *pos, int32_t *start)
{
	int64_t n = 0;
	start[0] = 0;
	for (int s = 0; s < 4; s++) {
		for (int32_t i = 0; i < len[s]; i++)
			pos[n++] = i;
		start[s + 1] = (int32_t)n;
	}
	return n;
}

void case_conv1d_fwd(struct tensors *ts, enum dtype t)
{
	int32_t pos[128], start[5];
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(convs) * 2; s++) {
		const int64_t n = positions(convs[s / 2].len, pos, start), c = convs[s / 2].c,
			      size = convs[s / 2].size;
		const bool more = s & 1; /* of one sequence, whose rows before are there */
		for (int32_t i = 0; more && i < n; i++)
			pos[i] = i + 2;
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1),
				*w = tensor_normal(ts, DT_F32, c * size, 1),
				*p = tensor_i32(ts, pos, n),
				*kept = tensor_normal(ts, t, (size - 1) * c, 1),
				*y = tensor_nan(ts, t, n * c);
		double *want = nans(n * c);
		for (int64_t i = 0; i < n * c; i++) {
			want[i] = 0;
			for (int64_t k = 0; k < size && k <= pos[i / c]; k++) {
				const int64_t row = i / c - k;
				want[i] += w->v[i % c * size + size - 1 - k] *
					   (row >= 0 ? x->v[row * c + i % c]
						     : kept->v[(size - 1 + row) * c + i % c]);
			}
		}
		if (more)
			LAUNCH(ts, K_conv1d_fwd, t, AB(y), AB(x), AB(w), AB(p), AB(kept), AI(n),
			       AI(c), AI(size));
		else
			LAUNCH(ts, K_conv1d_fwd, t, AB(y), AB(x), AB(w), AB(p), ANONE, AI(n), AI(c),
			       AI(size));
		tensor_check(ts, y, want, rel_of(t), abs_of(t), "conv1d_fwd %lldx%lldx%lld more %d",
			     (long long)n, (long long)c, (long long)size, more);
		mem_free(want);
	}
}

void case_conv1d_bwd(struct tensors *ts, enum dtype t)
{
	int32_t pos[128], start[5];
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(convs) * 2; s++) {
		const int64_t n = positions(convs[s / 2].len, pos, start), c = convs[s / 2].c,
			      size = convs[s / 2].size;
		const bool acc = s & 1;
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1),
				*w = tensor_normal(ts, DT_F32, c * size, 1),
				*p = tensor_i32(ts, pos, n), *dy = tensor_normal(ts, t, n * c, 1),
				*dx = acc ? tensor_normal(ts, t, n * c, 1)
					  : tensor_nan(ts, t, n * c),
				*dw = tensor_normal(ts, DT_F32, c * size, 1);
		double *want = acc ? copy(dx) : nans(n * c), *wantw = copy(dw);
		for (int64_t i = 0; !acc && i < n * c; i++)
			want[i] = 0;
		for (int64_t i = 0; i < n * c; i++)
			for (int64_t k = 0; k < size && k <= pos[i / c]; k++) {
				const int64_t at = i % c * size + size - 1 - k, from = i - k * c;
				want[from] += w->v[at] * dy->v[i];
				wantw[at] += x->v[from] * dy->v[i];
			}
		if (acc)
			LAUNCH(ts, K_conv1d_bwd, t, AB(dx), ANONE, AB(dy), AB(x), AB(w), AB(p),
			       AI(n), AI(c), AI(size), AI(1));
		else
			LAUNCH(ts, K_conv1d_bwd, t, AB(dx), AB(dw), AB(dy), AB(x), AB(w), AB(p),
			       AI(n), AI(c), AI(size), AI(0));
		tensor_check(ts, dx, want, rel_of(t), abs_of(t), "conv1d_bwd dx %lldx%lldx%lld",
			     (long long)n, (long long)c, (long long)size);
		if (!acc)
			tensor_check(ts, dw, wantw, 1e-5, 1e-5, "conv1d_bwd dw %lldx%lldx%lld",
				     (long long)n, (long long)c, (long long)size);
		mem_free(want);
		mem_free(wantw);
	}
}

/* Key heads, value heads, their numbers. */
struct delta_shape {
	int32_t len[4];
	int64_t g, h, k, v;
};
static const struct delta_shape shapes[] = { { { 1 }, 1, 1, 4, 4 },
					     { { 9, 1, 5 }, 2, 4, 16, 8 },
					     { { 17 }, 1, 3, 20, 33 },
					     { { 3, 10 }, 2, 2, 128, 128 },
					     { { 40 }, 1, 2, 32, 32 } };

/* What the rule computes in float64; states (N+1,H,K,V) of each sequence, S' (N,H,K,V). */
struct delta64 {
	const struct delta_shape *z;
	int64_t n, wide;
	int32_t start[5];
	const double *x, *a, *b, *decay, *dt;
	double *y, *own, *state, *was;
};

static double *own_of(const struct delta64 *d, int64_t row)
{
	return d->own + row * 2 * (d->z->g + d->z->h);
}

static const double *part(const struct delta64 *d, int64_t row, int64_t which, int64_t h,
			  double out[128])
{
	const struct delta_shape *z = d->z;
	const int64_t g = which * z->g + h / (z->h / z->g);
	for (int64_t r = 0; r < z->k; r++)
		out[r] = d->x[row * d->wide + g * z->k + r] * own_of(d, row)[g] *
			 (which ? 1 : 1 / sqrt((double)z->k));
	return out;
}

static double alpha_of(const struct delta64 *d, int64_t row, int64_t h)
{
	return exp(-exp(d->decay[h]) * log1p(exp(d->a[row * d->z->h + h] + d->dt[h])));
}

static void delta_forward(struct delta64 *d)
{
	const struct delta_shape *z = d->z;
	const int64_t size = z->k * z->v;
	double q[128], k[128];
	for (int64_t i = 0; i < d->n * 2 * z->g; i++) {
		double sum = 1e-6;
		for (int64_t r = 0; r < z->k; r++)
			sum += pow(d->x[i / (2 * z->g) * d->wide + i % (2 * z->g) * z->k + r], 2);
		own_of(d, i / (2 * z->g))[i % (2 * z->g)] = 1 / sqrt(sum);
	}
	for (int64_t i = 0; i < d->n * z->h; i++) {
		double *own = own_of(d, i / z->h) + 2 * z->g + i % z->h;
		own[0] = alpha_of(d, i / z->h, i % z->h);
		own[z->h] = sigmoid(d->b[i]);
	}
	for (int s = 0; s < 4; s++)
		for (int64_t row = d->start[s]; row < d->start[s + 1]; row++)
			for (int64_t h = 0; h < z->h; h++) {
				double *now = d->state + ((row + 1) * z->h + h) * size,
				       *was = d->was + (row * z->h + h) * size;
				const double *old = d->state + (row * z->h + h) * size;
				part(d, row, 0, h, q);
				part(d, row, 1, h, k);
				for (int64_t i = 0; i < size; i++)
					was[i] = row == d->start[s] ? 0
								    : alpha_of(d, row, h) * old[i];
				for (int64_t v = 0; v < z->v; v++) {
					double m = 0, o = 0;
					for (int64_t r = 0; r < z->k; r++)
						m += was[r * z->v + v] * k[r];
					m = sigmoid(d->b[row * z->h + h]) *
					    (d->x[row * d->wide + 2 * z->g * z->k + h * z->v + v] -
					     m);
					for (int64_t r = 0; r < z->k; r++) {
						now[r * z->v + v] = was[r * z->v + v] + k[r] * m;
						o += now[r * z->v + v] * q[r];
					}
					d->y[(row * z->h + h) * z->v + v] = o;
				}
			}
}

/* Numbers of a case, on the device and beside it. */
struct delta_case {
	struct delta64 d;
	struct tensor64 *x, *a, *b, *decay, *dt, *start, *own;
};

static struct delta_case make(struct tensors *ts, enum dtype t, const struct delta_shape *z)
{
	int32_t pos[128];
	struct delta_case c = { .d = { .z = z } };
	c.d.n = positions(z->len, pos, c.d.start);
	c.d.wide = 2 * z->g * z->k + z->h * z->v;
	int64_t seqs = 0;
	while (seqs < 4 && z->len[seqs])
		seqs++;
	c.x = tensor_normal(ts, t, c.d.n * c.d.wide, 1);
	c.a = tensor_normal(ts, t, c.d.n * z->h, 2);
	c.b = tensor_normal(ts, t, c.d.n * z->h, 2);
	c.decay = tensor_normal(ts, DT_F32, z->h, 1);
	c.dt = tensor_normal(ts, DT_F32, z->h, 1);
	c.start = tensor_i32(ts, c.d.start, seqs + 1);
	c.own = tensor_nan(ts, DT_F32, c.d.n * 2 * (z->g + z->h));
	c.d.x = c.x->v;
	c.d.a = c.a->v;
	c.d.b = c.b->v;
	c.d.decay = c.decay->v;
	c.d.dt = c.dt->v;
	c.d.y = nans(c.d.n * z->h * z->v);
	c.d.own = nans(c.d.n * 2 * (z->g + z->h));
	c.d.state = nans((c.d.n + 1) * z->h * z->k * z->v);
	c.d.was = nans(c.d.n * z->h * z->k * z->v);
	delta_forward(&c.d);
	return c;
}

static void release(struct delta_case *c)
{
	mem_free(c->d.y);
	mem_free(c->d.own);
	mem_free(c->d.state);
	mem_free(c->d.was);
}

#define SHAPE AI(z->g), AI(z->h), AI(z->k), AI(z->v)
#define NAME(z) (long long)(z)->g, (long long)(z)->h, (long long)(z)->k, (long long)(z)->v

void case_delta_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const struct delta_shape *z = &shapes[s];
		struct delta_case c = make(ts, t, z);
		const int64_t n = c.d.n, seqs = c.start->n - 1, size = z->h * z->v * z->k;
		struct tensor64 *y = tensor_nan(ts, t, n * z->h * z->v);
		LAUNCH(ts, K_delta_fwd, t, AB(y), AB(c.own), AB(c.x), AB(c.a), AB(c.b), AB(c.decay),
		       AB(c.dt), AB(c.start), ANONE, AI(n), AI(seqs), SHAPE);
		tensor_check(ts, y, c.d.y, rel_of(t), abs_of(t), "delta_fwd %lldx%lldx%lldx%lld",
			     NAME(z));
		tensor_check(ts, c.own, c.d.own, 1e-5, 0, "delta_fwd each %lldx%lldx%lldx%lld",
			     NAME(z));
		if (seqs == 1 && n > 1) { /* in two pieces, the state handed on */
			struct tensor64 *state = tensor_const(ts, DT_F32, size, 0),
					*two = tensor_nan(ts, t, n * z->h * z->v);
			for (int k = 0; k < 2; k++) {
				const int64_t from = k ? n / 2 : 0, rows = k ? n - n / 2 : n / 2;
				const int32_t start[2] = { 0, (int32_t)rows };
				const size_t bytes = dtype_size(t);
				union dev_arg a[] = { AB(two),   AB(c.own),
						      AB(c.x),   AB(c.a),
						      AB(c.b),   AB(c.decay),
						      AB(c.dt),  AB(tensor_i32(ts, start, 2)),
						      AB(state), AI(rows),
						      AI(1),     SHAPE };
				a[0].b.off = (size_t)(from * z->h * z->v) * bytes;
				a[2].b.off = (size_t)(from * c.d.wide) * bytes;
				a[3].b.off = a[4].b.off = (size_t)(from * z->h) * bytes;
				tensor_launch(ts, K_delta_fwd, t, a);
			}
			tensor_check(ts, two, c.d.y, rel_of(t), abs_of(t),
				     "delta_fwd in two pieces %lldx%lldx%lldx%lld", NAME(z));
			double *last = nans(size);
			for (int64_t i = 0; i < size; i++) {
				const int64_t h = i / (z->v * z->k), v = i / z->k % z->v;
				last[i] = c.d.state[((n * z->h + h) * z->k + i % z->k) * z->v + v];
			}
			tensor_check(ts, state, last, 2e-5, 4e-6,
				     "delta_fwd state %lldx%lldx%lldx%lld", NAME(z));
			mem_free(last);
		}
		release(&c);
	}
}

/* The gradients of one value head of one sequence, in float64. */
static void delta_backward(const struct delta64 *d, int s, int64_t h, const double *dy, double *dx,
			   double *da, double *db, double *ddecay, double *ddt)
{
	const struct delta_shape *z = d->z;
	const int64_t size = z->k * z->v, e = z->h / z->g;
	double *ds = mem_array((size_t)size + 1, sizeof *ds), q[128], k[128], du[2][128];
	assert_non_null(ds);
	memset(ds, 0, (size_t)size * sizeof *ds);
	for (int64_t row = d->start[s + 1] - 1; row >= d->start[s]; row--) {
		const double beta = sigmoid(d->b[row * z->h + h]), alpha = alpha_of(d, row, h),
			     *was = d->was + (row * z->h + h) * size,
			     *now = d->state + ((row + 1) * z->h + h) * size;
		double along = 0, dbeta = 0;
		part(d, row, 0, h, q);
		part(d, row, 1, h, k);
		memset(du, 0, sizeof du);
		for (int64_t v = 0; v < z->v; v++) {
			const int64_t at = row * d->wide + 2 * z->g * z->k + h * z->v + v;
			const double out = dy[(row * z->h + h) * z->v + v];
			double m = 0, up = 0;
			for (int64_t r = 0; r < z->k; r++) {
				ds[r * z->v + v] += q[r] * out;
				du[0][r] += now[r * z->v + v] * out;
				m += was[r * z->v + v] * k[r];
				up += ds[r * z->v + v] * k[r];
			}
			const double diff = d->x[at] - m;
			for (int64_t r = 0; r < z->k; r++) {
				du[1][r] += ds[r * z->v + v] * beta * diff -
					    was[r * z->v + v] * beta * up;
				ds[r * z->v + v] -= k[r] * beta * up;
				along += ds[r * z->v + v] * was[r * z->v + v];
				ds[r * z->v + v] *= alpha;
			}
			dx[at] = beta * up;
			dbeta += up * diff;
		}
		db[row * z->h + h] = dbeta * beta * (1 - beta);
		const double in = d->a[row * z->h + h] + d->dt[h], rate = -exp(d->decay[h]);
		da[row * z->h + h] = along * rate * sigmoid(in);
		*ddt += along * rate * sigmoid(in);
		*ddecay += along * rate * log1p(exp(in));
		for (int64_t w = 0; w < 2; w++) {
			const int64_t g = w * z->g + h / e, at = row * d->wide + g * z->k;
			const double norm = own_of(d, row)[g], by = w ? 1 : 1 / sqrt((double)z->k);
			double dot = 0;
			for (int64_t r = 0; r < z->k; r++)
				dot += d->x[at + r] * norm * du[w][r] * by;
			for (int64_t r = 0; r < z->k; r++)
				dx[at + r] += norm * (du[w][r] * by - d->x[at + r] * norm * dot);
		}
	}
	mem_free(ds);
}

void case_delta_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t i = 0; i < ARRAY_LEN(shapes) * 3; i++) {
		const struct delta_shape *z = &shapes[i / 3];
		struct delta_case c = make(ts, t, z);
		const int64_t n = c.d.n, seqs = c.start->n - 1;
		const struct dev_delta at = { n, seqs, z->h, z->k, z->v };
		const int64_t parts = i % 3 == 1 ? seqs : 1;
		struct tensor64 *dy = tensor_normal(ts, t, n * z->h * z->v, 1),
				*dx = tensor_nan(ts, t, n * c.d.wide),
				*da = tensor_nan(ts, t, n * z->h),
				*db = tensor_nan(ts, t, n * z->h),
				*ddecay = tensor_normal(ts, DT_F32, z->h, 1),
				*ddt = tensor_normal(ts, DT_F32, z->h, 1),
				*y = tensor_nan(ts, t, n * z->h * z->v),
				*sums = tensor_nan(ts, DT_F32,
						   (int64_t)dev_delta_bytes(&at, parts) / 4);
		double *wx = nans(n * c.d.wide), *wa = nans(n * z->h), *wb = nans(n * z->h),
		       *wdecay = copy(ddecay), *wdt = copy(ddt);
		memset(wx, 0, (size_t)(n * c.d.wide) * sizeof *wx);
		for (int64_t s = 0; s < seqs; s++)
			for (int64_t h = 0; h < z->h; h++)
				delta_backward(&c.d, (int)s, h, dy->v, wx, wa, wb, &wdecay[h],
					       &wdt[h]);
		LAUNCH(ts, K_delta_fwd, t, AB(y), AB(c.own), AB(c.x), AB(c.a), AB(c.b), AB(c.decay),
		       AB(c.dt), AB(c.start), ANONE, AI(n), AI(seqs), SHAPE);
		const bool trained = i % 3 != 2;
		const union dev_arg a[] = { AB(dx),
					    AB(da),
					    AB(db),
					    trained ? AB(ddecay) : ANONE,
					    trained ? AB(ddt) : ANONE,
					    AB(dy),
					    AB(c.own),
					    AB(c.x),
					    AB(c.a),
					    AB(c.b),
					    AB(c.decay),
					    AB(c.dt),
					    AB(c.start),
					    AB(sums),
					    AI(n),
					    AI(seqs),
					    SHAPE,
					    AI(parts),
					    AI(dev_delta_chunk(&at)) };
		tensor_launch(ts, K_delta_bwd, t, a);
		tensor_check(ts, dx, wx, rel_of(t), 4 * abs_of(t),
			     "delta_bwd dx %lldx%lldx%lldx%lld", NAME(z));
		tensor_check(ts, da, wa, rel_of(t), 4 * abs_of(t),
			     "delta_bwd da %lldx%lldx%lldx%lld", NAME(z));
		tensor_check(ts, db, wb, rel_of(t), 4 * abs_of(t),
			     "delta_bwd db %lldx%lldx%lldx%lld", NAME(z));
		if (trained) {
			tensor_check(ts, ddecay, wdecay, 4e-5, 2e-5,
				     "delta_bwd ddecay %lldx%lldx%lldx%lld", NAME(z));
			tensor_check(ts, ddt, wdt, 4e-5, 2e-5, "delta_bwd ddt %lldx%lldx%lldx%lld",
				     NAME(z));
		}
		mem_free(wx);
		mem_free(wa);
		mem_free(wb);
		mem_free(wdecay);
		mem_free(wdt);
		release(&c);
	}
}
