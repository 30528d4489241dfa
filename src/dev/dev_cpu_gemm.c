/* SPDX-License-Identifier: Apache-2.0 */
/* dev_cpu_gemm.c - see dev_cpu_gemm.h. All that differs between oneDNN 2 and 3 is in this file.
 *
 * A product is cut into blocks of C, and a block is one oneDNN primitive that one thread runs: in a
 * training step that is quicker than to let the library share a product out among threads
 * (docs/kernels.md). Primitives are kept in a table keyed by everything that shaped them;
 * it holds MAX_KEPT and gives up the least recently used, so that a training step, which repeats
 * its shapes, creates nothing once it is warm. Each thread has one scratchpad for all of them.
 *
 * On processors without AVX-512 the library has no products of 16-bit numbers. There they are
 * expanded, multiplied in float32, and rounded once: run_wide(). */
#include "dev/dev_cpu_gemm.h"

#include "base/err.h"
#include "base/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

enum {
	FLAT_ROWS = 128, /* of A, and from so many bytes of B on: run_flat() */
	FLAT_BYTES = 1024 * 1024,
	FLAT_MOST = 8 << 20, /* bytes of C, which is written twice */
	FLAT_DEPTH = 256
};

/* What run_wide() expands at a time. */
enum {
	WIDE_ROWS = 256,
	WIDE_COLS = 1024,
	WIDE_LEAST = 64,       /* columns, */
	WIDE_NUMBERS = 8 << 20 /* or as many as have so many numbers of B */
};

/* Blocks of C: see shape_blocks(). */
enum {
	LEAST_ROWS = 64, /* of a block */
	MOST_ROWS = 256,
	LEAST_COLS = 96,
	MOST_COLS = 3072,
	ALIGN = 16,     /* rows and columns are a multiple of it, but at the ends */
	FEW_ROWS = 512, /* fewer of A may stay together */
	WIDE = 8        /* B is so many times larger than A, or longer than wide */
};

#define MAX_KEPT 512
#define BUCKETS 1024

/* Everything that shapes a primitive; compared as bytes, so it has no holes. */
struct key {
	int64_t m, n, k, lda, ldb, ldc;
	int32_t ta, tb, ab, c;
	float alpha, beta;
};

/* What a thread gives the library for a block. */
struct operands {
	dnnl_memory_t a, b, c, pad;
};

struct entry {
	struct key key;
	dnnl_primitive_t prim;
	struct operands *of; /* of each thread */
	int threads;
	size_t pad_size;
	struct entry *next;          /* of the bucket */
	struct entry *newer, *older; /* by last use */
};

struct cpu_gemm {
	dnnl_engine_t engine;
	dnnl_stream_t *stream; /* of each thread */
	int threads;
	struct entry *bucket[BUCKETS];
	struct entry *newest, *oldest;
	int count;
	char *pad; /* scratchpads, pad_size apart */
	size_t pad_size;
	bool missing;           /* the last product that was asked for is not in the library */
	bool wide[DT_COUNT][2]; /* nor are others of this dtype; [1]: into float32 */
};

static const char *status_text(dnnl_status_t s)
{
	return s == dnnl_out_of_memory       ? "out of memory"
	       : s == dnnl_unimplemented     ? "not implemented"
	       : s == dnnl_invalid_arguments ? "invalid arguments"
					     : "failed";
}

#define DNN(call)                                                                                  \
	do {                                                                                       \
		dnnl_status_t dnn_s_ = (call);                                                     \
		if (dnn_s_ != dnnl_success) {                                                      \
			rc = err_set(e, dnn_s_ == dnnl_out_of_memory ? ERR_NOMEM : ERR_DEVICE,     \
				     "oneDNN %s: %s", what, status_text(dnn_s_));                  \
			goto out;                                                                  \
		}                                                                                  \
	} while (0)

const char *cpu_gemm_version(void)
{
	static char text[48];
	const dnnl_version_t *v = dnnl_version();
	snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
	return text;
}

int cpu_gemm_new(struct cpu_gemm **g_p, int threads, struct err *e)
{
	int rc = 0;
	const char *what = "engine";
	const size_t bytes = (size_t)threads * sizeof(dnnl_stream_t);
	struct cpu_gemm *g = mem_zalloc(sizeof *g);
	if (!g)
		return err_nomem(e, sizeof *g, "matrix products");
	g->stream = mem_zalloc(bytes);
	if (!g->stream) {
		rc = err_nomem(e, bytes, "matrix products");
		goto out;
	}
	g->threads = threads;
	DNN(dnnl_engine_create(&g->engine, dnnl_cpu, 0));
	for (int i = 0; i < threads; i++)
		DNN(dnnl_stream_create(&g->stream[i], g->engine, dnnl_stream_default_flags));
	*g_p = g;
	return 0;
out:
	cpu_gemm_free(g);
	return rc;
}

static void entry_free(struct entry *x)
{
	if (x->prim)
		dnnl_primitive_destroy(x->prim);
	for (int t = 0; t < x->threads; t++) {
		dnnl_memory_t mem[] = { x->of[t].a, x->of[t].b, x->of[t].c, x->of[t].pad };
		for (size_t i = 0; i < ARRAY_LEN(mem); i++)
			if (mem[i])
				dnnl_memory_destroy(mem[i]);
	}
	mem_free(x->of);
	mem_free(x);
}

void cpu_gemm_free(struct cpu_gemm *g)
{
	if (!g)
		return;
	for (struct entry *x = g->newest, *older; x; x = older) {
		older = x->older;
		entry_free(x);
	}
	for (int i = 0; i < g->threads; i++)
		if (g->stream[i])
			dnnl_stream_destroy(g->stream[i]);
	mem_free(g->stream);
	if (g->engine)
		dnnl_engine_destroy(g->engine);
	mem_free(g->pad);
	mem_free(g);
}

static dnnl_data_type_t type_of(int32_t t)
{
	return t == DT_BF16 ? dnnl_bf16 : t == DT_F16 ? dnnl_f16 : dnnl_f32;
}

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t md;
typedef const_dnnl_memory_desc_t md_in;

static dnnl_status_t md_new(md *d, int64_t rows, int64_t cols, dnnl_data_type_t t, int64_t rs,
			    int64_t cs)
{
	dnnl_dims_t dims = { rows, cols }, strides = { rs, cs };
	return dnnl_memory_desc_create_with_strides(d, 2, dims, t, strides);
}

static void md_free(md *d)
{
	if (*d)
		dnnl_memory_desc_destroy(*d);
}

static size_t md_size(md_in d) { return dnnl_memory_desc_get_size(d); }
static dnnl_status_t memory_new_in(dnnl_memory_t *m, md_in d, dnnl_engine_t e)
{
	return dnnl_memory_create(m, d, e, DNNL_MEMORY_NONE);
}
/* alpha (AB + C / alpha): a scale before the sum has only the slow reference code where rows of C
 * or A lie apart (oneDNN 3.2: 176 ms instead of 0.16). */
static dnnl_status_t set_scales(dnnl_primitive_attr_t at, dnnl_post_ops_t po, float alpha, bool add)
{
	(void)at;
	dnnl_status_t s = dnnl_success;
	if (add)
		s = dnnl_post_ops_append_sum(po, 1.0f / alpha, 0, dnnl_data_type_undef);
	if (!s && alpha != 1.0f)
		s = dnnl_post_ops_append_eltwise(po, dnnl_eltwise_linear, alpha, 0.0f);
	return s;
}
static dnnl_status_t set_handle(dnnl_memory_t m, void *p)
{
	return dnnl_memory_set_data_handle(m, p);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t eng, const md *a,
				 const md *b, const md *c, dnnl_primitive_attr_t at)
{
	return dnnl_matmul_primitive_desc_create(pd, eng, *a, *b, NULL, *c, at);
}
#else
typedef dnnl_memory_desc_t md;
typedef const dnnl_memory_desc_t *md_in;

static dnnl_status_t md_new(md *d, int64_t rows, int64_t cols, dnnl_data_type_t t, int64_t rs,
			    int64_t cs)
{
	dnnl_dims_t dims = { rows, cols }, strides = { rs, cs };
	return dnnl_memory_desc_init_by_strides(d, 2, dims, t, strides);
}

static void md_free(md *d) { (void)d; }
static size_t md_size(md_in d) { return dnnl_memory_desc_get_size(d); }
static dnnl_status_t memory_new_in(dnnl_memory_t *m, md_in d, dnnl_engine_t e)
{
	return dnnl_memory_create(m, d, e, DNNL_MEMORY_NONE);
}
/* An output scale: as a post-op before a sum it would run in the slow reference code where rows of
 * C lie apart. */
static dnnl_status_t set_scales(dnnl_primitive_attr_t at, dnnl_post_ops_t po, float alpha, bool add)
{
	dnnl_status_t s = dnnl_success;
	if (alpha != 1.0f)
		s = dnnl_primitive_attr_set_output_scales(at, 1, 0, &alpha);
	if (!s && add)
		s = dnnl_post_ops_append_sum(po, 1.0f);
	return s;
}
static dnnl_status_t set_handle(dnnl_memory_t m, void *p)
{
	return dnnl_memory_set_data_handle(m, p);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t eng, const md *a,
				 const md *b, const md *c, dnnl_primitive_attr_t at)
{
	dnnl_matmul_desc_t d;
	dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, NULL, c);
	return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, at, eng, NULL);
}
#endif

static uint32_t hash(const struct key *k)
{
	const unsigned char *p = (const unsigned char *)k;
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < sizeof *k; i++)
		h = (h ^ p[i]) * 16777619u;
	return h % BUCKETS;
}

static int pd_new(struct cpu_gemm *g, const struct key *k, dnnl_primitive_desc_t *pd_p,
		  struct err *e)
{
	int rc = 0;
	const char *what = "matrix product";
	dnnl_primitive_attr_t at = NULL;
	dnnl_post_ops_t po = NULL;
	md a = { 0 }, b = { 0 }, c = { 0 };
	DNN(md_new(&a, k->m, k->k, type_of(k->ab), k->ta ? 1 : k->lda, k->ta ? k->lda : 1));
	DNN(md_new(&b, k->k, k->n, type_of(k->ab), k->tb ? 1 : k->ldb, k->tb ? k->ldb : 1));
	DNN(md_new(&c, k->m, k->n, type_of(k->c), k->ldc, 1));
	DNN(dnnl_primitive_attr_create(&at));
	DNN(dnnl_primitive_attr_set_scratchpad_mode(at, dnnl_scratchpad_mode_user));
	DNN(dnnl_post_ops_create(&po));
	DNN(set_scales(at, po, k->alpha, k->beta != 0.0f));
	DNN(dnnl_primitive_attr_set_post_ops(at, po));
	const dnnl_status_t made = matmul_desc(pd_p, g->engine, &a, &b, &c, at);
	g->missing = made == dnnl_unimplemented;
	DNN(made);
out:
	if (rc < 0)
		err_prefix(e, "%s x %s of %lldx%lldx%lld", dtype_name((enum dtype)k->ab),
			   dtype_name((enum dtype)k->c), (long long)k->m, (long long)k->n,
			   (long long)k->k);
	if (po)
		dnnl_post_ops_destroy(po);
	if (at)
		dnnl_primitive_attr_destroy(at);
	md_free(&a);
	md_free(&b);
	md_free(&c);
	return rc;
}

static md_in query_md(dnnl_primitive_desc_t pd, dnnl_query_t q)
{
	return dnnl_primitive_desc_query_md(pd, q, 0);
}

static int entry_new(struct cpu_gemm *g, const struct key *k, struct entry **x_p, struct err *e)
{
	int rc = 0;
	const char *what = "matrix product";
	dnnl_primitive_desc_t pd = NULL;
	const size_t bytes = (size_t)g->threads * sizeof(struct operands);
	struct entry *x = mem_zalloc(sizeof *x);
	if (!x)
		return err_nomem(e, sizeof *x, "matrix products");
	x->key = *k;
	x->of = mem_zalloc(bytes);
	if (!x->of) {
		rc = err_nomem(e, bytes, "matrix products");
		goto out;
	}
	x->threads = g->threads;
	TRYOUT(pd_new(g, k, &pd, e));
	DNN(dnnl_primitive_create(&x->prim, pd));
	md_in pad = query_md(pd, dnnl_query_scratchpad_md);
	x->pad_size = pad ? md_size(pad) : 0;
	for (int t = 0; t < x->threads; t++) {
		struct operands *o = &x->of[t];
		DNN(memory_new_in(&o->a, query_md(pd, dnnl_query_src_md), g->engine));
		DNN(memory_new_in(&o->b, query_md(pd, dnnl_query_weights_md), g->engine));
		DNN(memory_new_in(&o->c, query_md(pd, dnnl_query_dst_md), g->engine));
		if (x->pad_size)
			DNN(memory_new_in(&o->pad, pad, g->engine));
	}
	*x_p = x;
out:
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (rc < 0)
		entry_free(x);
	return rc;
}

static void list_remove(struct cpu_gemm *g, struct entry *x)
{
	*(x->newer ? &x->newer->older : &g->newest) = x->older;
	*(x->older ? &x->older->newer : &g->oldest) = x->newer;
	x->newer = x->older = NULL;
}

static void list_add(struct cpu_gemm *g, struct entry *x)
{
	x->older = g->newest;
	x->newer = NULL;
	*(g->newest ? &g->newest->newer : &g->oldest) = x;
	g->newest = x;
}

static void drop_oldest(struct cpu_gemm *g)
{
	struct entry *x = g->oldest;
	struct entry **at = &g->bucket[hash(&x->key)];
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	list_remove(g, x);
	entry_free(x);
	g->count--;
}

static int lookup(struct cpu_gemm *g, const struct key *k, struct entry **x_p, struct err *e)
{
	uint32_t h = hash(k);
	struct entry *x = g->bucket[h];
	while (x && memcmp(&x->key, k, sizeof *k))
		x = x->next;
	if (!x) {
		TRY(entry_new(g, k, &x, e));
		if (g->count == MAX_KEPT)
			drop_oldest(g);
		x->next = g->bucket[h];
		g->bucket[h] = x;
		g->count++;
		list_add(g, x);
	} else if (x != g->newest) {
		list_remove(g, x);
		list_add(g, x);
	}
	*x_p = x;
	return 0;
}

static struct key key_of(const struct dev_gemm *g)
{
	struct key k = { .m = g->m,
			 .n = g->n,
			 .k = g->k,
			 .lda = g->lda,
			 .ldb = g->ldb,
			 .ldc = g->ldc,
			 .ta = g->ta,
			 .tb = g->tb,
			 .ab = (int32_t)g->ab_dtype,
			 .c = (int32_t)g->c_dtype,
			 .alpha = g->alpha,
			 .beta = g->beta };
	return k;
}

static void *at(struct dev_ref r) { return (char *)r.buf->host + r.off; }

static void clear(const struct dev_gemm *g)
{
	const size_t size = dtype_size(g->c_dtype);
	for (int64_t i = 0; i < g->m; i++)
		memset((char *)at(g->c) + (size_t)(i * g->ldc) * size, 0, (size_t)g->n * size);
}

/* A product in blocks of C: rows by cols, fewer at the ends. */
struct cut {
	const struct dev_gemm *g;
	struct cpu_gemm *lib;
	char *to;
	int64_t rows, cols, down, across; /* of a block; blocks */
	struct entry *x[2][2];            /* of a block; [1]: of the last one, down and across */
	dnnl_status_t status;
};

static int64_t parts_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* How many of n go into a block: at most `most`, so that each thread has as many blocks, but not
 * fewer than `least`. */
static int64_t block_of(int64_t n, int64_t most, int64_t least, int64_t threads)
{
	const int64_t want = parts_of(parts_of(n, most), threads) * threads,
		      each = parts_of(n, want),
		      whole = parts_of(each < least ? least : each, ALIGN) * ALIGN;
	return whole < n ? whole : n;
}

/* Rows first: a block reads its rows of A once and writes whole rows of C, for which the library
 * has its best code. Few rows stay together where B is much the larger, long or wide: each block of
 * rows would bring all of it into another order. */
static void shape_blocks(struct cut *u, int threads)
{
	const struct dev_gemm *g = u->g;
	const bool few = g->m < FEW_ROWS && g->n >= threads * LEAST_COLS &&
			 (g->n >= WIDE * g->m || g->k >= WIDE * g->n);
	u->rows = few ? g->m : block_of(g->m, MOST_ROWS, LEAST_ROWS, threads);
	u->down = parts_of(g->m, u->rows);
	u->cols = u->down >= threads
			  ? g->n
			  : block_of(g->n, MOST_COLS, LEAST_COLS, parts_of(threads, u->down));
	u->across = parts_of(g->n, u->cols);
}

static int find_entries(struct cut *u, struct err *e)
{
	const struct dev_gemm *g = u->g;
	const int64_t m[2] = { u->rows, g->m - (u->down - 1) * u->rows },
		      n[2] = { u->cols, g->n - (u->across - 1) * u->cols };
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++) {
			struct key k = key_of(g);
			k.m = m[i];
			k.n = n[j];
			TRY(lookup(u->lib, &k, &u->x[i][j], e));
		}
	return 0;
}

static int pads(struct cut *u, struct err *e)
{
	struct cpu_gemm *lib = u->lib;
	size_t most = 0;
	for (int i = 0; i < 4; i++) {
		const size_t s = u->x[i / 2][i % 2]->pad_size;
		most = s > most ? s : most;
	}
	most = (most + 4095) / 4096 * 4096;
	if (most <= lib->pad_size)
		return 0;
	void *p = mem_aligned(64, most * (size_t)lib->threads);
	if (!p)
		return err_nomem(e, most * (size_t)lib->threads, "a matrix product");
	mem_free(lib->pad);
	lib->pad = p;
	lib->pad_size = most;
	return 0;
}

static dnnl_status_t run_block(const struct cut *u, int64_t i, int thread)
{
	const struct dev_gemm *g = u->g;
	const int64_t down = i % u->down, across = i / u->down, row = down * u->rows,
		      col = across * u->cols, size = (int64_t)dtype_size(g->ab_dtype);
	const struct entry *x = u->x[down == u->down - 1][across == u->across - 1];
	const struct operands *o = &x->of[thread];
	dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, o->a },
				   { DNNL_ARG_WEIGHTS, o->b },
				   { DNNL_ARG_DST, o->c },
				   { DNNL_ARG_SCRATCHPAD, o->pad } };
	dnnl_status_t s = set_handle(o->a, (char *)at(g->a) + row * (g->ta ? 1 : g->lda) * size);
	if (!s)
		s = set_handle(o->b, (char *)at(g->b) + col * (g->tb ? g->ldb : 1) * size);
	if (!s)
		s = set_handle(o->c,
			       u->to + (row * g->ldc + col) * (int64_t)dtype_size(g->c_dtype));
	if (!s && o->pad)
		s = set_handle(o->pad, u->lib->pad + u->lib->pad_size * (size_t)thread);
	if (!s)
		s = dnnl_primitive_execute(x->prim, u->lib->stream[thread], o->pad ? 4 : 3, args);
	return s ? s : dnnl_stream_wait(u->lib->stream[thread]);
}

static void block_chunk(void *ctx, int64_t i, int thread)
{
	struct cut *u = ctx;
	const dnnl_status_t s = run_block(u, i, thread);
	if (s)
		__atomic_store_n(&u->status, s, __ATOMIC_RELAXED);
}

/* By the library; its result goes to `to`. */
static int run(struct cpu *c, const struct dev_gemm *g, void *to, struct err *e)
{
	int rc = 0;
	const char *what = "matrix product";
	struct cut u = { .g = g, .lib = c->gemm, .to = to };
	shape_blocks(&u, c->threads);
	TRY(find_entries(&u, e));
	TRY(pads(&u, e));
	cpu_par(c, u.down * u.across, block_chunk, &u);
	DNN(u.status);
out:
	return rc;
}

/* A few rows of A and a large B, as experts have them. The library would bring B into another order
 * first, which takes long against such a product; with the sides exchanged it reads B row by row.
 * What it makes is then C transposed. */
static bool is_flat(const struct dev_gemm *g)
{
	return !g->ta && g->tb && g->beta == 0 && g->m <= FLAT_ROWS && g->n >= 4 * g->m &&
	       g->k >= FLAT_DEPTH &&
	       (size_t)(g->n * g->k) * dtype_size(g->ab_dtype) >= FLAT_BYTES &&
	       (size_t)(g->m * g->n) * dtype_size(g->c_dtype) <= FLAT_MOST;
}

static int run_flat(struct cpu *c, const struct dev_gemm *g, struct err *e)
{
	const size_t size = dtype_size(g->c_dtype);
	void *turned = cpu_scratch(c, (size_t)(g->m * g->n) * size);
	struct dev_gemm x = *g;
	if (!turned)
		return err_nomem(e, (unsigned long long)(g->m * g->n) * size, "a matrix product");
	x.m = g->n;
	x.n = g->m;
	x.a = g->b;
	x.b = g->a;
	x.lda = g->ldb;
	x.ldb = g->lda;
	x.ldc = g->m;
	TRY(run(c, &x, turned, e));
	c->isa->transpose(c, at(g->c), turned, g->n, g->m, g->m, g->ldc, (int)size);
	return 0;
}

/* A matrix between its dtype and float32, row by row. */
struct span {
	enum dtype t;
	char *narrow;
	float *wide;
	int64_t cols, ld; /* ld: of `narrow` */
	bool back;
};

static void span_chunk(void *ctx, int64_t i, int thread)
{
	const struct span *s = ctx;
	char *narrow = s->narrow + (size_t)(i * s->ld) * dtype_size(s->t);
	float *wide = s->wide + i * s->cols;
	(void)thread;
	if (s->back)
		dtype_from_f32(s->t, wide, narrow, (uint64_t)s->cols);
	else
		dtype_to_f32(s->t, narrow, wide, (uint64_t)s->cols);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A block of C, whose panel of B is expanded at x->b. */
static int wide_block(struct cpu *c, const struct dev_gemm *g, struct dev_gemm *x, int64_t row,
		      int64_t col, float *sums, struct err *e)
{
	const size_t size = dtype_size(g->ab_dtype);
	struct span a = {
		g->ab_dtype, (char *)at(g->a) + (size_t)(row * (g->ta ? 1 : g->lda)) * size,
		at(x->a),    g->ta ? x->m : g->k,
		g->lda,      false
	};
	x->lda = a.cols;
	cpu_par(c, g->ta ? g->k : x->m, span_chunk, &a);
	char *to = (char *)at(g->c) + (size_t)(row * g->ldc + col) * dtype_size(g->c_dtype);
	if (g->c_dtype == DT_F32) {
		x->ldc = g->ldc;
		return run(c, x, to, e);
	}
	struct span s = { g->c_dtype, to, sums, x->n, g->ldc, false };
	x->ldc = x->n;
	if (g->beta != 0)
		cpu_par(c, x->m, span_chunk, &s);
	TRY(run(c, x, sums, e));
	s.back = true;
	cpu_par(c, x->m, span_chunk, &s);
	return 0;
}

static int run_wide(struct cpu *c, const struct dev_gemm *g, struct err *e)
{
	const size_t size = dtype_size(g->ab_dtype);
	const int64_t most = WIDE_NUMBERS / g->k < WIDE_LEAST ? WIDE_LEAST : WIDE_NUMBERS / g->k,
		      rows = least(g->m, WIDE_ROWS), cols = least(g->n, least(most, WIDE_COLS));
	const size_t all = (size_t)(rows * g->k + cols * g->k + rows * cols) * sizeof(float);
	float *wide = cpu_scratch(c, all);
	if (!wide)
		return err_nomem(e, all, "a matrix product");
	struct dev_buf of_a = { .host = wide }, of_b = { .host = wide + rows * g->k };
	float *sums = wide + rows * g->k + cols * g->k;
	for (int64_t col = 0; col < g->n; col += cols) {
		struct dev_gemm x = *g;
		x.n = least(cols, g->n - col);
		x.a = DEV_REF(&of_a, 0);
		x.b = DEV_REF(&of_b, 0);
		x.ab_dtype = x.c_dtype = DT_F32;
		struct span b = {
			g->ab_dtype, (char *)at(g->b) + (size_t)(col * (g->tb ? g->ldb : 1)) * size,
			of_b.host,   g->tb ? g->k : x.n,
			g->ldb,      false
		};
		x.ldb = b.cols;
		cpu_par(c, g->tb ? x.n : g->k, span_chunk, &b);
		for (int64_t row = 0; row < g->m; row += rows) {
			x.m = least(rows, g->m - row);
			TRY(wide_block(c, g, &x, row, col, sums, e));
		}
	}
	return 0;
}

int cpu_gemm_run(struct cpu *c, const struct dev_gemm *g, struct err *e)
{
	bool *wide = &c->gemm->wide[g->ab_dtype][g->c_dtype == DT_F32];
	if (!g->k || g->alpha == 0) {
		if (g->beta == 0)
			clear(g);
		return 0;
	}
	if (g->m <= CPU_GEMV_ROWS && !g->ta && g->tb)
		return c->isa->gemv(c, g) ? 0
					  : err_nomem(e, (unsigned long long)(g->m * g->k * 4),
						      "a matrix product");
	c->gemm->missing = false;
	if (!*wide) {
		const int rc = is_flat(g) ? run_flat(c, g, e) : run(c, g, at(g->c), e);
		if (rc >= 0 || !c->gemm->missing || g->ab_dtype == DT_F32)
			return rc;
		err_clear(e);
		*wide = true;
	}
	return run_wide(c, g, e);
}

int cpu_gemm_name(struct cpu *c, const struct dev_gemm *g, const char **name_p, struct err *e)
{
	int rc = 0;
	const char *what = "query", *name = NULL;
	struct key k = key_of(g);
	dnnl_primitive_desc_t pd = NULL;
	rc = pd_new(c->gemm, &k, &pd, e);
	if (rc < 0 && c->gemm->missing && k.ab != DT_F32) { /* run_wide() */
		err_clear(e);
		k.ab = k.c = DT_F32;
		rc = pd_new(c->gemm, &k, &pd, e);
	}
	TRY(rc);
	DNN(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name));
	*name_p = name;
out:
	dnnl_primitive_desc_destroy(pd);
	return rc;
}
