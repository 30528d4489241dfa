/* SPDX-License-Identifier: Apache-2.0 */
/* delta.c - the gated delta rule on the CPU, token by token, and the short convolution before it
 * (kernel.def).
 *
 * Each row of a state (one of V, K numbers) changes by itself, so that some stay in the first-level
 * cache while some tokens pass, with their queries and keys. Backward, one thread has a query and
 * its value heads in a sequence: the states before every `each` tokens are kept, and those between
 * computed again. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"
#include "dev/dev_delta.h"

#include <math.h>

#define KV (DELTA_MOST / VW) /* vectors of a row of the state, at most */
#define SEGMENT 64           /* tokens at once forward */
#define COLS 4               /* rows of the state at once: one alone waits for its sums */

struct delta {
	void *y, *dx, *da, *db;
	float *own, *state, *ddecay, *ddt, *dg; /* own: `each` of kernel.def */
	const void *x, *a, *b, *dy;
	const float *decay, *dt;
	const int32_t *start;
	int64_t n, s, g, h, dk, dv, each, chunks;
	int64_t kv; /* vectors of a row of the state */
	bool bf;
	char *memory; /* of the threads, `bytes` each */
	size_t bytes;
};

static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }
static float sigmoid(float x) { return 1 / (1 + expf(-x)); }
static float *own_of(const struct delta *d, int64_t row)
{
	return d->own + row * 2 * (d->g + d->h);
}
static int64_t width(const struct delta *d) { return 2 * d->g * d->dk + d->h * d->dv; }

/* Some tokens of a sequence: divided queries and keys (count,kv), and of one value head alpha and
 * beta (count) and values (count,dv). */
struct tokens {
	int64_t row, count;
	vf *q, *k;
	float *alpha, *beta, *v;
};

INLINE void load_parts(const struct delta *d, struct tokens *t, int64_t g, const bool bf)
{
	const vf by = v_set(1 / sqrtf((float)d->dk));
	for (int64_t i = 0; i < t->count; i++) {
		const int64_t row = t->row + i, at = row * width(d) + g * d->dk;
		const float *norm = own_of(d, row) + g;
		const vf nq = v_set(norm[0]) * by, nk = v_set(norm[d->g]);
		for (int64_t j = 0; j < d->kv; j++) {
			const int64_t left = d->dk - j * VW;
			t->q[i * d->kv + j] = nq * ldm(d->x, at + j * VW, left, bf);
			t->k[i * d->kv + j] = nk * ldm(d->x, at + d->g * d->dk + j * VW, left, bf);
		}
	}
}

INLINE void load_values(const struct delta *d, struct tokens *t, int64_t h, const bool bf)
{
	const float rate = -expf(d->decay[h]);
	for (int64_t i = 0; i < t->count; i++) {
		const int64_t row = t->row + i, at = row * width(d) + 2 * d->g * d->dk + h * d->dv;
		t->alpha[i] = expf(rate * softplus(ld1(d->a, row * d->h + h, bf) + d->dt[h]));
		t->beta[i] = sigmoid(ld1(d->b, row * d->h + h, bf));
		for (int64_t j = 0; j < d->dv; j++)
			t->v[i * d->dv + j] = ld1(d->x, at + j, bf);
	}
}

/* `cols` rows of the state from row v on, s (cols,kv), pass the tokens. Unless they are NULL:
 * y[i*dv+v], what comes out; before (count,cols,kv), the rows times alpha; m and delta
 * (count,cols). */
INLINE void advance_by(const struct delta *d, const struct tokens *t, vf *s, int64_t v,
		       const int64_t cols, const int64_t kv, float *y, vf *before, float *m,
		       float *delta)
{
	for (int64_t i = 0; i < t->count; i++) {
		const vf *k = t->k + i * kv, *q = t->q + i * kv, alpha = v_set(t->alpha[i]);
		vf sum[COLS] = { { 0 } }, add[COLS], out[COLS] = { { 0 } };
		for (int64_t j = 0; j < kv; j++)
			for (int64_t c = 0; c < cols; c++) {
				s[c * kv + j] *= alpha;
				sum[c] += s[c * kv + j] * k[j];
				if (before)
					before[(i * cols + c) * kv + j] = s[c * kv + j];
			}
		for (int64_t c = 0; c < cols; c++) {
			const float seen = v_sum(sum[c]),
				    by = t->beta[i] * (t->v[i * d->dv + v + c] - seen);
			add[c] = v_set(by);
			if (m) {
				m[i * cols + c] = seen;
				delta[i * cols + c] = by;
			}
		}
		for (int64_t j = 0; j < kv; j++)
			for (int64_t c = 0; c < cols; c++) {
				s[c * kv + j] += add[c] * k[j];
				if (y)
					out[c] += s[c * kv + j] * q[j];
			}
		for (int64_t c = 0; c < cols && y; c++)
			y[i * d->dv + v + c] = v_sum(out[c]);
	}
}

static void advance(const struct delta *d, const struct tokens *t, vf *s, int64_t v, int64_t cols,
		    float *y, vf *before, float *m, float *delta)
{
	if (cols == COLS && d->kv == KV)
		advance_by(d, t, s, v, COLS, KV, y, before, m, delta);
	else if (cols == COLS)
		advance_by(d, t, s, v, COLS, d->kv, y, before, m, delta);
	else
		advance_by(d, t, s, v, cols, d->kv, y, before, m, delta);
}

/* Rows at once, from row v on. */
static int64_t some_rows(const struct delta *d, int64_t v)
{
	return d->dv - v < COLS ? d->dv - v : COLS;
}

/* Pieces of a thread's memory, one after the other. */
static void *piece(char **at, size_t bytes)
{
	void *p = *at;
	*at += (bytes + 63) / 64 * 64;
	return p;
}
static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t tokens_bytes(const struct delta *d, int64_t count)
{
	return 2 * padded((size_t)(count * d->kv) * sizeof(vf)) + 2 * padded((size_t)count * 4) +
	       padded((size_t)(count * d->dv) * 4);
}

static struct tokens tokens_at(const struct delta *d, char **at, int64_t count)
{
	struct tokens t = { .q = piece(at, (size_t)(count * d->kv) * sizeof(vf)) };
	t.k = piece(at, (size_t)(count * d->kv) * sizeof(vf));
	t.alpha = piece(at, (size_t)count * 4);
	t.beta = piece(at, (size_t)count * 4);
	t.v = piece(at, (size_t)(count * d->dv) * 4);
	return t;
}

/* What the heads of a token have each. */
INLINE void own(const struct delta *d, int64_t row, const bool bf)
{
	float *out = own_of(d, row);
	for (int64_t i = 0; i < 2 * d->g; i++) {
		const int64_t at = row * width(d) + i * d->dk;
		vf sum = { 0 };
		for (int64_t j = 0; j < d->dk; j += VW) {
			const vf v = ldm(d->x, at + j, d->dk - j, bf);
			sum += v * v;
		}
		*out++ = 1 / sqrtf(v_sum(sum) + 1e-6f);
	}
	for (int64_t h = 0; h < d->h; h++)
		*out++ = expf(-expf(d->decay[h]) *
			      softplus(ld1(d->a, row * d->h + h, bf) + d->dt[h]));
	for (int64_t h = 0; h < d->h; h++)
		*out++ = sigmoid(ld1(d->b, row * d->h + h, bf));
}

static void own_row(void *ctx, int64_t row, int thread)
{
	const struct delta *d = ctx;
	(void)thread;
	if (d->bf)
		own(d, row, true);
	else
		own(d, row, false);
}

/* Sequence i / h, value head i % h. */
INLINE void forward(const struct delta *d, int64_t i, char *at, const bool bf)
{
	const int64_t h = i % d->h, from = d->start[i / d->h], to = d->start[i / d->h + 1];
	struct tokens t = tokens_at(d, &at, SEGMENT);
	float *y = piece(&at, (size_t)(SEGMENT * d->dv) * 4);
	vf *s = piece(&at, (size_t)(d->dv * d->kv) * sizeof(vf));
	memset(s, 0, (size_t)(d->dv * d->kv) * sizeof(vf));
	float *state = d->state ? d->state + h * d->dv * d->dk : NULL;
	for (int64_t v = 0; state && v < d->dv; v++)
		for (int64_t j = 0; j < d->kv; j++)
			s[v * d->kv + j] = ldm(state, v * d->dk + j * VW, d->dk - j * VW, false);
	for (t.row = from; t.row < to; t.row += SEGMENT) {
		t.count = to - t.row < SEGMENT ? to - t.row : SEGMENT;
		load_parts(d, &t, h / (d->h / d->g), bf);
		load_values(d, &t, h, bf);
		for (int64_t v = 0; v < d->dv; v += COLS)
			advance(d, &t, s + v * d->kv, v, some_rows(d, v), y, NULL, NULL, NULL);
		for (int64_t r = 0; r < t.count; r++)
			for (int64_t j = 0; j < d->dv; j++)
				st1(d->y, ((t.row + r) * d->h + h) * d->dv + j, y[r * d->dv + j],
				    bf);
	}
	for (int64_t v = 0; state && v < d->dv; v++)
		for (int64_t j = 0; j < d->kv; j++)
			stm(state, v * d->dk + j * VW, s[v * d->kv + j], d->dk - j * VW, false);
}

static void forward_of(void *ctx, int64_t i, int thread)
{
	const struct delta *d = ctx;
	char *at = d->memory + d->bytes * (size_t)thread;
	if (d->bf)
		forward(d, i, at, true);
	else
		forward(d, i, at, false);
}

static int take(struct cpu *c, struct delta *d, size_t bytes, struct err *e)
{
	d->bytes = bytes;
	d->memory = cpu_scratch(c, bytes * (size_t)c->threads);
	return d->memory ? 0 : err_nomem(e, bytes * (size_t)c->threads, "linear attention");
}

int CPU_SYM(cpu_delta_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct delta d = { .y = cpu_ptr(a[0]),
			   .own = cpu_ptr(a[1]),
			   .x = cpu_ptr(a[2]),
			   .a = cpu_ptr(a[3]),
			   .b = cpu_ptr(a[4]),
			   .decay = cpu_ptr(a[5]),
			   .dt = cpu_ptr(a[6]),
			   .start = cpu_ptr(a[7]),
			   .state = cpu_ptr(a[8]),
			   .n = a[9].i,
			   .s = a[10].i,
			   .g = a[11].i,
			   .h = a[12].i,
			   .dk = a[13].i,
			   .dv = a[14].i,
			   .kv = (a[13].i + VW - 1) / VW,
			   .bf = t == DT_BF16 };
	TRY(take(c, &d,
		 tokens_bytes(&d, SEGMENT) + padded((size_t)(SEGMENT * d.dv) * 4) +
			 padded((size_t)(d.dv * d.kv) * sizeof(vf)),
		 e));
	cpu_par(c, d.n, own_row, &d);
	cpu_par(c, d.s * d.h, forward_of, &d);
	return 0;
}

/* What a thread has backward: of the value heads of one query the kept states and the gradients of
 * the states, and of `each` tokens the rest. */
struct back {
	struct tokens t;
	vf *kept, *ds;    /* (chunks,heads,dv,kv), (heads,dv,kv) */
	vf *dq, *dk;      /* (each,kv) */
	vf *before;       /* (each,kv) */
	float *dy, *out;  /* (each,dv) */
	float *m, *delta; /* (each,COLS) */
	float *db, *dg;   /* (each) */
};

static size_t back_bytes(const struct delta *d)
{
	const size_t state = (size_t)(d->h / d->g * d->dv * d->kv) * sizeof(vf),
		     some = padded((size_t)(d->each * d->kv) * sizeof(vf));
	return tokens_bytes(d, d->each) + padded(state * (size_t)d->chunks) + padded(state) +
	       (2 + COLS) * some + 2 * padded((size_t)(d->each * d->dv) * 4) +
	       (2 + 2 * COLS) * padded((size_t)d->each * 4);
}

static struct back back_at(const struct delta *d, char *at)
{
	const size_t state = (size_t)(d->h / d->g * d->dv * d->kv) * sizeof(vf),
		     some = (size_t)(d->each * d->kv) * sizeof(vf), one = (size_t)d->each * 4;
	struct back b = { .t = tokens_at(d, &at, d->each) };
	b.kept = piece(&at, state * (size_t)d->chunks);
	b.ds = piece(&at, state);
	b.dq = piece(&at, some);
	b.dk = piece(&at, some);
	b.before = piece(&at, COLS * some);
	b.dy = piece(&at, (size_t)(d->each * d->dv) * 4);
	b.out = piece(&at, (size_t)(d->each * d->dv) * 4);
	b.m = piece(&at, COLS * one);
	b.delta = piece(&at, COLS * one);
	b.db = piece(&at, one);
	b.dg = piece(&at, one);
	return b;
}

/* Some rows of the gradient of the state, from the last token of a chunk to its first. */
INLINE void back_by(const struct delta *d, const struct back *b, vf *ds, int64_t v,
		    const int64_t cols, const int64_t kv)
{
	const struct tokens *t = &b->t;
	for (int64_t i = t->count - 1; i >= 0; i--) {
		const vf *k = t->k + i * kv, *q = t->q + i * kv, *s = b->before + i * cols * kv,
			 alpha = v_set(t->alpha[i]);
		const float *m = b->m + i * cols, *delta = b->delta + i * cols;
		vf *dq = b->dq + i * kv, *dk = b->dk + i * kv, up[COLS] = { { 0 } }, dm[COLS],
		   along = { 0 };
		for (int64_t j = 0; j < kv; j++) {
			vf sum = dq[j];
			for (int64_t c = 0; c < cols; c++) {
				const vf dy = v_set(b->dy[i * d->dv + v + c]);
				ds[c * kv + j] += dy * q[j];
				up[c] += ds[c * kv + j] * k[j];
				sum += dy * (s[c * kv + j] + v_set(delta[c]) * k[j]);
			}
			dq[j] = sum;
		}
		for (int64_t c = 0; c < cols; c++) {
			const float ddelta = v_sum(up[c]), dv = t->beta[i] * ddelta;
			b->out[i * d->dv + v + c] = dv;
			b->db[i] += ddelta * (t->v[i * d->dv + v + c] - m[c]);
			dm[c] = v_set(-dv);
		}
		for (int64_t j = 0; j < kv; j++) {
			vf sum = dk[j];
			for (int64_t c = 0; c < cols; c++) {
				sum += ds[c * kv + j] * v_set(delta[c]) + s[c * kv + j] * dm[c];
				ds[c * kv + j] += k[j] * dm[c];
				along += ds[c * kv + j] * s[c * kv + j];
				ds[c * kv + j] *= alpha;
			}
			dk[j] = sum;
		}
		b->dg[i] += v_sum(along);
	}
}

static void back_rows(const struct delta *d, const struct back *b, vf *ds, int64_t v, int64_t cols)
{
	if (cols == COLS && d->kv == KV)
		back_by(d, b, ds, v, COLS, KV);
	else if (cols == COLS)
		back_by(d, b, ds, v, COLS, d->kv);
	else
		back_by(d, b, ds, v, cols, d->kv);
}

INLINE void back_head(const struct delta *d, struct back *b, const vf *kept, vf *ds, int64_t h,
		      const bool bf)
{
	struct tokens *t = &b->t;
	load_values(d, t, h, bf);
	for (int64_t i = 0; i < t->count; i++) {
		b->db[i] = b->dg[i] = 0;
		for (int64_t j = 0; j < d->dv; j++)
			b->dy[i * d->dv + j] =
				ld1(d->dy, ((t->row + i) * d->h + h) * d->dv + j, bf);
	}
	for (int64_t v = 0; v < d->dv; v += COLS) {
		const int64_t cols = some_rows(d, v);
		vf s[COLS * KV];
		memcpy(s, kept + v * d->kv, (size_t)(cols * d->kv) * sizeof(vf));
		advance(d, t, s, v, cols, NULL, b->before, b->m, b->delta);
		back_rows(d, b, ds + v * d->kv, v, cols);
	}
	for (int64_t i = 0; i < t->count; i++) {
		const int64_t row = t->row + i, at = row * width(d) + 2 * d->g * d->dk + h * d->dv;
		const float beta = t->beta[i];
		st1(d->db, row * d->h + h, b->db[i] * beta * (1 - beta), bf);
		d->dg[row * d->h + h] = b->dg[i];
		for (int64_t j = 0; j < d->dv; j++)
			st1(d->dx, at + j, b->out[i * d->dv + j], bf);
	}
}

/* With u = x*norm and du: dx = norm * (du - u * (u du)). The divided queries are also divided by
 * sqrt(K). */
INLINE void back_parts(const struct delta *d, const struct back *b, int64_t g, const bool bf)
{
	const struct tokens *t = &b->t;
	const float root = sqrtf((float)d->dk);
	for (int which = 0; which < 2; which++)
		for (int64_t i = 0; i < t->count; i++) {
			const int64_t row = t->row + i, part = which * d->g + g,
				      at = row * width(d) + part * d->dk;
			const vf *du = (which ? b->dk : b->dq) + i * d->kv,
				 *u = (which ? t->k : t->q) + i * d->kv;
			const float norm = own_of(d, row)[part];
			vf sum = { 0 };
			for (int64_t j = 0; j < d->kv; j++)
				sum += u[j] * du[j];
			/* queries are u/sqrt(K), and their gradient is du*sqrt(K) */
			const vf by = v_set(which ? norm : norm / root),
				 along = v_set(v_sum(sum) * (which ? norm : norm * root));
			for (int64_t j = 0; j < d->kv; j++)
				stm(d->dx, at + j * VW, by * du[j] - along * u[j], d->dk - j * VW,
				    bf);
		}
}

/* Sequence i / g, query i % g. */
INLINE void backward(const struct delta *d, int64_t i, char *at, const bool bf)
{
	const int64_t g = i % d->g, from = d->start[i / d->g], to = d->start[i / d->g + 1],
		      heads = d->h / d->g, state = d->dv * d->kv,
		      chunks = (to - from + d->each - 1) / d->each;
	struct back b = back_at(d, at);
	memset(b.ds, 0, (size_t)(heads * state) * sizeof(vf));
	for (int64_t c = 0; c < chunks; c++) {
		vf *kept = b.kept + c * heads * state;
		if (!c)
			memset(kept, 0, (size_t)(heads * state) * sizeof(vf));
		if (c + 1 == chunks)
			break;
		memcpy(kept + heads * state, kept, (size_t)(heads * state) * sizeof(vf));
		b.t.row = from + c * d->each;
		b.t.count = d->each;
		load_parts(d, &b.t, g, bf);
		for (int64_t x = 0; x < heads; x++) {
			load_values(d, &b.t, g * heads + x, bf);
			for (int64_t v = 0; v < d->dv; v += COLS)
				advance(d, &b.t, kept + (heads + x) * state + v * d->kv, v,
					some_rows(d, v), NULL, NULL, NULL, NULL);
		}
	}
	for (int64_t c = chunks - 1; c >= 0; c--) {
		b.t.row = from + c * d->each;
		b.t.count = to - b.t.row < d->each ? to - b.t.row : d->each;
		load_parts(d, &b.t, g, bf);
		memset(b.dq, 0, (size_t)(b.t.count * d->kv) * sizeof(vf));
		memset(b.dk, 0, (size_t)(b.t.count * d->kv) * sizeof(vf));
		for (int64_t x = 0; x < heads; x++)
			back_head(d, &b, b.kept + (c * heads + x) * state, b.ds + x * state,
				  g * heads + x, bf);
		back_parts(d, &b, g, bf);
	}
}

static void backward_of(void *ctx, int64_t i, int thread)
{
	const struct delta *d = ctx;
	char *at = d->memory + d->bytes * (size_t)thread;
	if (d->bf)
		backward(d, i, at, true);
	else
		backward(d, i, at, false);
}

/* From the gradient of alpha's exponent, -exp(decay) * softplus(a+dt). */
static void gates_of(void *ctx, int64_t h, int thread)
{
	const struct delta *d = ctx;
	const float rate = -expf(d->decay[h]);
	double by_decay = 0, by_dt = 0;
	(void)thread;
	for (int64_t row = 0; row < d->n; row++) {
		const int64_t at = row * d->h + h;
		const float v = ld1(d->a, at, d->bf) + d->dt[h], dv = d->dg[at] * rate * sigmoid(v);
		st1(d->da, at, dv, d->bf);
		by_dt += dv;
		by_decay += d->dg[at] * rate * softplus(v);
	}
	if (d->ddecay) {
		d->ddecay[h] += (float)by_decay;
		d->ddt[h] += (float)by_dt;
	}
}

int CPU_SYM(cpu_delta_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct delta d = { .dx = cpu_ptr(a[0]),
			   .da = cpu_ptr(a[1]),
			   .db = cpu_ptr(a[2]),
			   .ddecay = cpu_ptr(a[3]),
			   .ddt = cpu_ptr(a[4]),
			   .dy = cpu_ptr(a[5]),
			   .own = cpu_ptr(a[6]),
			   .x = cpu_ptr(a[7]),
			   .a = cpu_ptr(a[8]),
			   .b = cpu_ptr(a[9]),
			   .decay = cpu_ptr(a[10]),
			   .dt = cpu_ptr(a[11]),
			   .start = cpu_ptr(a[12]),
			   .n = a[14].i,
			   .s = a[15].i,
			   .g = a[16].i,
			   .h = a[17].i,
			   .dk = a[18].i,
			   .dv = a[19].i,
			   .each = a[21].i,
			   .kv = (a[18].i + VW - 1) / VW,
			   .bf = t == DT_BF16 };
	if (!d.n)
		return 0;
	d.chunks = (d.n + d.each - 1) / d.each;
	const size_t gates = padded((size_t)(d.n * d.h) * 4), each = back_bytes(&d);
	d.memory = cpu_scratch(c, gates + each * (size_t)c->threads);
	if (!d.memory)
		return err_nomem(e, gates + each * (size_t)c->threads, "linear attention");
	d.dg = (float *)(void *)d.memory;
	d.memory += gates;
	d.bytes = each;
	cpu_par(c, d.s * d.g, backward_of, &d);
	cpu_par(c, d.h, gates_of, &d);
	return 0;
}

struct conv1d {
	void *y; /* backward: dx */
	const void *x, *kept, *dy;
	float *dw;
	const float *w;
	const int32_t *pos;
	int64_t n, c, size;
	bool bf, acc;
};

enum { ROWS = 64 };

/* The weights of channels [j, j+VW) for the token so many places back. */
INLINE vf conv_weight(const struct conv1d *x, int64_t j, int64_t back)
{
	vf w = { 0 };
	for (int64_t l = 0; l < VW && j + l < x->c; l++)
		w[l] = x->w[(j + l) * x->size + x->size - 1 - back];
	return w;
}

/* Some rows of y, of VW channels one after the other; the token itself comes first. */
INLINE void conv_forward(const struct conv1d *x, int64_t chunk, const bool bf)
{
	vf sum[ROWS];
	const int64_t r0 = chunk * ROWS, r1 = r0 + ROWS < x->n ? r0 + ROWS : x->n;
	for (int64_t j = 0; j < x->c; j += VW)
		for (int64_t k = 0; k < x->size; k++) {
			const vf w = conv_weight(x, j, k);
			const int64_t left = x->c - j;
			for (int64_t r = r0; r < r1; r++) {
				const int64_t at = r * x->c + j, from = (r - k) * x->c + j;
				vf v = { 0 };
				if (k <= x->pos[r] && r >= k)
					v = w * ldm(x->x, from, left, bf);
				else if (k <= x->pos[r] && x->kept)
					v = w * ldm(x->kept, from + (x->size - 1) * x->c, left, bf);
				sum[r - r0] = k ? sum[r - r0] + v : v;
				if (k + 1 == x->size)
					stm(x->y, at, sum[r - r0], left, bf);
			}
		}
}

INLINE void conv_dx(const struct conv1d *x, int64_t chunk, const bool bf)
{
	vf sum[ROWS];
	const int64_t r0 = chunk * ROWS, r1 = r0 + ROWS < x->n ? r0 + ROWS : x->n;
	for (int64_t j = 0; j < x->c; j += VW)
		for (int64_t k = 0; k < x->size; k++) {
			const vf w = conv_weight(x, j, k);
			const int64_t left = x->c - j;
			for (int64_t r = r0; r < r1; r++) {
				const int64_t at = r * x->c + j;
				vf v = { 0 };
				if (r + k < x->n && x->pos[r + k] >= k)
					v = w * ldm(x->dy, at + k * x->c, left, bf);
				if (!k && x->acc)
					v += ldm(x->y, at, left, bf);
				sum[r - r0] = k ? sum[r - r0] + v : v;
				if (k + 1 == x->size)
					stm(x->y, at, sum[r - r0], left, bf);
			}
		}
}

/* Of VW channels. */
INLINE void conv_dw(const struct conv1d *x, int64_t chunk, const bool bf)
{
	const int64_t j = chunk * VW, left = x->c - j;
	for (int64_t k = 0; k < x->size; k++) {
		vf sum = { 0 };
		for (int64_t r = k; r < x->n; r++)
			if (x->pos[r] >= k)
				sum += ldm(x->dy, r * x->c + j, left, bf) *
				       ldm(x->x, (r - k) * x->c + j, left, bf);
		for (int64_t l = 0; l < VW && l < left; l++)
			x->dw[(j + l) * x->size + x->size - 1 - k] += sum[l];
	}
}

#define CONV_BY_DTYPE(body)                                                                        \
	static void body##_chunk(void *ctx, int64_t chunk, int thread)                             \
	{                                                                                          \
		const struct conv1d *x = ctx;                                                      \
		(void)thread;                                                                      \
		if (x->bf)                                                                         \
			body(x, chunk, true);                                                      \
		else                                                                               \
			body(x, chunk, false);                                                     \
	}
CONV_BY_DTYPE(conv_forward)
CONV_BY_DTYPE(conv_dx)
CONV_BY_DTYPE(conv_dw)

int CPU_SYM(cpu_conv1d_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv1d x = { .y = cpu_ptr(a[0]),
			    .x = cpu_ptr(a[1]),
			    .w = cpu_ptr(a[2]),
			    .pos = cpu_ptr(a[3]),
			    .kept = cpu_ptr(a[4]),
			    .n = a[5].i,
			    .c = a[6].i,
			    .size = a[7].i,
			    .bf = t == DT_BF16 };
	cpu_par(c, (x.n + ROWS - 1) / ROWS, conv_forward_chunk, &x);
	return 0;
}

int CPU_SYM(cpu_conv1d_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct conv1d x = { .y = cpu_ptr(a[0]),
			    .dw = cpu_ptr(a[1]),
			    .dy = cpu_ptr(a[2]),
			    .x = cpu_ptr(a[3]),
			    .w = cpu_ptr(a[4]),
			    .pos = cpu_ptr(a[5]),
			    .n = a[6].i,
			    .c = a[7].i,
			    .size = a[8].i,
			    .acc = a[9].i,
			    .bf = t == DT_BF16 };
	if (x.dw)
		cpu_par(c, (x.c + VW - 1) / VW, conv_dw_chunk, &x);
	cpu_par(c, (x.n + ROWS - 1) / ROWS, conv_dx_chunk, &x);
	return 0;
}
