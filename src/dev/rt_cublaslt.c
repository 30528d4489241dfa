/* SPDX-License-Identifier: Apache-2.0 */
/* rt_cublaslt.c - matrix products by cuBLASLt on tensor cores; sums are float32 in all dtypes (no
 * TF32).
 *
 * The library counts columns first: a row-major C[m,n] is its C[n,m], so op(B) and op(A) change
 * places. Which of its kernels is best is asked once for each form of product (sizes, strides,
 * dtypes, alignment) and kept; a form that it does not do is left to the portable kernel. Numbers
 * of tokens differ from microbatch to microbatch, so where a size is such a number the kernel is
 * that of the next multiple of TOKENS: which one follows from the sizes alone, not from what was
 * computed before. Interface and numbers: NVIDIA, "cuBLAS library", versions 11 to 13,
 * cublasLt.h. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE ((size_t)32 << 20) /* what NVIDIA advises for Hopper */
#define FORMS 4096                   /* kept at once; a power of two */
#define TOKENS 64

enum {
	COMPUTE_32F = 68,
	R_32F = 0,
	R_16F = 2,
	R_16BF = 14,
	DESC_TRANSA = 3,
	DESC_TRANSB = 4,
	LAYOUT_COLUMNS = 3,
	PREF_WORKSPACE = 1,
	PREF_REDUCTIONS = 3,  /* how parts of a sum may be added up */
	PREF_ALIGNMENT_A = 5, /* B, C and D follow */
	IN_FLOAT32 = 2,       /* a reduction in the type that is computed in */
	/* answers */
	NO_MEMORY = 3,
	BAD_VALUE = 7,
	EXECUTION_FAILED = 13,
	INTERNAL_ERROR = 14,
	NOT_SUPPORTED = 15
};

struct algo {
	uint64_t data[8];
};

struct heuristic {
	struct algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

#define FUNCTIONS(F)                                                                               \
	F(create, "cublasLtCreate", (void **))                                                     \
	F(destroy, "cublasLtDestroy", (void *))                                                    \
	F(desc, "cublasLtMatmulDescCreate", (void **, int, int))                                   \
	F(desc_destroy, "cublasLtMatmulDescDestroy", (void *))                                     \
	F(desc_set, "cublasLtMatmulDescSetAttribute", (void *, int, const void *, size_t))         \
	F(layout, "cublasLtMatrixLayoutCreate", (void **, int, uint64_t, uint64_t, int64_t))       \
	F(layout_destroy, "cublasLtMatrixLayoutDestroy", (void *))                                 \
	F(layout_set, "cublasLtMatrixLayoutSetAttribute", (void *, int, const void *, size_t))     \
	F(pref, "cublasLtMatmulPreferenceCreate", (void **))                                       \
	F(pref_destroy, "cublasLtMatmulPreferenceDestroy", (void *))                               \
	F(pref_set, "cublasLtMatmulPreferenceSetAttribute", (void *, int, const void *, size_t))   \
	F(ask, "cublasLtMatmulAlgoGetHeuristic",                                                   \
	  (void *, void *, void *, void *, void *, void *, void *, int, struct heuristic *,        \
	   int *))                                                                                 \
	F(matmul, "cublasLtMatmul",                                                                \
	  (void *, void *, const void *, uint64_t, void *, uint64_t, void *, const void *,         \
	   uint64_t, void *, uint64_t, void *, const struct algo *, uint64_t, size_t, void *))

struct functions {
#define MEMBER(name, symbol, args) int(*name) args;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

/* What decides which kernel is best. Compared byte by byte, so it has no holes. */
struct form {
	int64_t m, n, k, lda, ldb, ldc;
	uint32_t align[4]; /* of a, b, c, d in bytes, 256 at most */
	uint16_t ta, tb, ab, c;
};

struct entry {
	struct form form;
	bool used, can; /* can: the library does it */
	bool exact;     /* its kernel does not serve fewer tokens: each number has its own */
	int64_t m, k;   /* what the layouts say */
	void *desc, *a, *b, *c;
	struct algo algo;
	size_t workspace;
};

struct cublaslt {
	struct rt_blas base;
	const struct functions *f;
	void *handle;
	bool captured; /* what is given now becomes a graph */
	struct rt_block *workspace;
	struct entry entry[FORMS];
};

/* Libraries that are open, by name: cards of one machine may need different ones. They stay. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct library {
	char name[512];
	struct functions f;
} libraries[8];
static size_t nlibraries;

static int open_library(const char *name, const struct functions **f_p, struct err *e)
{
#define SYMBOL(name, symbol, args) { symbol, offsetof(struct functions, name), 0 },
	static const struct dl_symbol symbols[] = { FUNCTIONS(SYMBOL) };
#undef SYMBOL
	const char *const names[] = { name, NULL };
	void *handle;
	int rc = 0;
	pthread_mutex_lock(&lock);
	struct library *l = libraries;
	while (l < libraries + nlibraries && strcmp(l->name, name) != 0)
		l++;
	if (l == libraries + nlibraries) {
		if (nlibraries == ARRAY_LEN(libraries) || strlen(name) >= sizeof l->name)
			rc = err_set(
				e, ERR_UNSUPPORTED,
				"%s: more libraries than this program keeps, or too long a name",
				name);
		else
			rc = dl_open(names, symbols, ARRAY_LEN(symbols), &l->f, &handle, e);
		if (rc == 0) {
			snprintf(l->name, sizeof l->name, "%s", name);
			nlibraries++;
		}
	}
	pthread_mutex_unlock(&lock);
	*f_p = &l->f;
	return rc;
}

static int type_of(enum dtype t) { return t == DT_F32 ? R_32F : t == DT_BF16 ? R_16BF : R_16F; }

static uint32_t alignment(uint64_t at) { return at % 256 ? (uint32_t)(at & -at) : 256; }

static size_t hash(const struct form *f)
{
	const unsigned char *p = (const unsigned char *)f;
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < sizeof *f; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

static void forget(struct cublaslt *b, struct entry *n)
{
	if (n->desc)
		b->f->desc_destroy(n->desc);
	void *const layouts[] = { n->a, n->b, n->c };
	for (size_t i = 0; i < ARRAY_LEN(layouts); i++)
		if (layouts[i])
			b->f->layout_destroy(layouts[i]);
	memset(n, 0, sizeof *n);
}

/* Describes the product to the library, whose first operand is our B, and asks for its best
 * kernel. */
static void learn(struct cublaslt *b, struct entry *n, const struct form *f)
{
	const struct functions *l = b->f;
	const int32_t first = f->tb, second = f->ta; /* 0: as it lies, 1: transposed */
	const size_t room = WORKSPACE;
	struct heuristic best[4];
	void *pref = NULL;
	int found = 0;
	bool ok = l->desc(&n->desc, COMPUTE_32F, R_32F) == 0 &&
		  l->desc_set(n->desc, DESC_TRANSA, &first, sizeof first) == 0 &&
		  l->desc_set(n->desc, DESC_TRANSB, &second, sizeof second) == 0 &&
		  l->layout(&n->b, type_of((enum dtype)f->ab), (uint64_t)(f->tb ? f->k : f->n),
			    (uint64_t)(f->tb ? f->n : f->k), f->ldb) == 0 &&
		  l->layout(&n->a, type_of((enum dtype)f->ab), (uint64_t)(f->ta ? f->m : f->k),
			    (uint64_t)(f->ta ? f->k : f->m), f->lda) == 0 &&
		  l->layout(&n->c, type_of((enum dtype)f->c), (uint64_t)f->n, (uint64_t)f->m,
			    f->ldc) == 0 &&
		  l->pref(&pref) == 0 && l->pref_set(pref, PREF_WORKSPACE, &room, sizeof room) == 0;
	/* the usual choice may add parts of a sum in C's type, or in C itself */
	const uint32_t reductions = IN_FLOAT32;
	if (ok && f->c != DT_F32)
		ok = l->pref_set(pref, PREF_REDUCTIONS, &reductions, sizeof reductions) == 0;
	const uint32_t align[4] = { f->align[1], f->align[0], f->align[3], f->align[2] };
	for (int i = 0; i < 4 && ok; i++)
		ok = l->pref_set(pref, PREF_ALIGNMENT_A + i, &align[i], sizeof align[i]) == 0;
	ok = ok && l->ask(b->handle, n->desc, n->b, n->a, n->c, n->c, pref, (int)ARRAY_LEN(best),
			  best, &found) == 0;
	for (int i = 0; i < found && ok && !n->can; i++)
		if (best[i].state == 0 && best[i].workspace <= WORKSPACE) {
			n->can = true;
			n->algo = best[i].algo;
			n->workspace = best[i].workspace;
		}
	if (pref)
		l->pref_destroy(pref);
	if (!n->can)
		log_debug("cuBLASLt has no kernel for %lldx%lldx%lld; the portable one computes it",
			  (long long)f->m, (long long)f->n, (long long)f->k);
}

/* NULL: it is not known, and the library cannot be asked while a graph is captured (that of CUDA
 * 13.3 answers with an internal error). */
static struct entry *entry_of(struct cublaslt *b, const struct form *f)
{
	const size_t at = hash(f);
	struct entry *n = NULL;
	for (size_t i = 0; i < 8; i++) {
		n = &b->entry[(at + i) % FORMS];
		if (!n->used || !memcmp(&n->form, f, sizeof *f))
			break;
	}
	const bool known = n->used && !memcmp(&n->form, f, sizeof *f);
	if (!known && b->captured)
		return NULL;
	if (n->used && !known)
		forget(b, n); /* all eight places are in use: replaces the last one */
	if (!n->used) {
		n->used = true;
		n->form = *f;
		n->m = f->m;
		n->k = f->k;
		learn(b, n, f);
	}
	return n;
}

static int64_t rounded(int64_t n) { return n > TOKENS ? (n + TOKENS - 1) / TOKENS * TOKENS : n; }

/* Tokens are the rows of C and A, or of A and B where both are gradients' (C = A^T B). These are
 * the sizes that no stride bounds. */
static struct form rounded_form(const struct form *f)
{
	struct form r = *f;
	if (!f->ta)
		r.m = rounded(f->m);
	else if (!f->tb)
		r.k = rounded(f->k);
	return r;
}

/* The layouts of a form for m and k as they are. */
static bool set_sizes(struct cublaslt *b, struct entry *n, int64_t m, int64_t k)
{
	const uint64_t rows = (uint64_t)m, depth = (uint64_t)k;
	int bad = 0;
	if (n->m != m) {
		bad |= b->f->layout_set(n->a, LAYOUT_COLUMNS, &rows, sizeof rows);
		bad |= b->f->layout_set(n->c, LAYOUT_COLUMNS, &rows, sizeof rows);
	}
	if (n->k != k) {
		bad |= b->f->layout_set(n->a, LAYOUT_COLUMNS, &depth, sizeof depth);
		bad |= b->f->layout_set(n->b, LAYOUT_COLUMNS, &depth, sizeof depth);
	}
	n->m = m;
	n->k = k;
	return !bad;
}

static struct form form_of(const struct dev_gemm *g)
{
	const uint64_t at[3] = { rt_address(g->a), rt_address(g->b), rt_address(g->c) },
		       from = g->d.buf && g->beta != 0 ? rt_address(g->d) : at[2];
	struct form f;
	memset(&f, 0, sizeof f); /* it is compared byte by byte */
	f.m = g->m;
	f.n = g->n;
	f.k = g->k;
	f.lda = g->lda;
	f.ldb = g->ldb;
	f.ldc = g->ldc;
	for (int i = 0; i < 3; i++)
		f.align[i] = alignment(at[i]);
	f.align[3] = alignment(from);
	f.ta = g->ta;
	f.tb = g->tb;
	f.ab = (uint8_t)g->ab_dtype;
	f.c = (uint8_t)g->c_dtype;
	return f;
}

static bool can(struct rt_blas *base, const struct dev_gemm *g)
{
	struct cublaslt *b = (struct cublaslt *)base;
	const struct form f = form_of(g), r = rounded_form(&f);
	const struct entry *n = entry_of(b, &r);
	return (n->exact ? entry_of(b, &f) : n)->can;
}

static bool use(struct rt_blas *base, void *stream, bool captured)
{
	(void)stream; /* each product names its own */
	((struct cublaslt *)base)->captured = captured;
	return true;
}

static int gemm(struct rt_blas *base, struct rt *c, const struct dev_gemm *g, void *stream,
		struct err *e)
{
	struct cublaslt *b = (struct cublaslt *)base;
	const uint64_t at[3] = { rt_address(g->a), rt_address(g->b), rt_address(g->c) },
		       from = g->d.buf && g->beta != 0 ? rt_address(g->d) : at[2];
	const struct form f = form_of(g);
	const struct form r = rounded_form(&f);
	struct entry *n = entry_of(b, &r);
	int code = 0;
	for (int again = 0; again < 2; again++) {
		if (n && n->exact)
			n = entry_of(b, &f);
		if (!n || !n->can)
			return 0;
		code = set_sizes(b, n, g->m, g->k)
			       ? b->f->matmul(b->handle, n->desc, &g->alpha, at[1], n->b, at[0],
					      n->a, &g->beta, from, n->c, at[2], n->c, &n->algo,
					      b->workspace->at, n->workspace, stream)
			       : BAD_VALUE;
		if ((code != BAD_VALUE && code != NOT_SUPPORTED) || b->captured ||
		    !memcmp(&n->form, &f, sizeof f))
			break;
		n->exact = true;
	}
	if (code == BAD_VALUE || code == NOT_SUPPORTED) {
		if (!b->captured) /* the library lacks the kernel it named: use the portable one */
			n->can = false;
		return 0;
	}
	/* its kernels are loaded when they are first used, and these are its answers, too, when the
	 * card is full then */
	const bool full = code == NO_MEMORY ||
			  ((code == EXECUTION_FAILED || code == INTERNAL_ERROR) && c->spare);
	if (code)
		return err_set(e, full ? ERR_NOMEM : ERR_DEVICE,
			       "%s: cuBLASLt refuses a product of %lldx%lldx%lld: status %d",
			       c->label, (long long)g->m, (long long)g->n, (long long)g->k, code);
	return 1;
}

static void release(struct rt_blas *base, struct rt *c)
{
	struct cublaslt *b = (struct cublaslt *)base;
	for (size_t i = 0; i < FORMS; i++)
		if (b->entry[i].used)
			forget(b, &b->entry[i]);
	if (b->workspace)
		rt_give(c, b->workspace);
	if (b->handle)
		b->f->destroy(b->handle);
	mem_free(b);
}

/* Whether it has a kernel for this card: a library may be newer than the card. */
static bool serves(struct cublaslt *b)
{
	enum { SIDE = 64 };
	struct entry n = { 0 };
	struct form f;
	memset(&f, 0, sizeof f);
	f.m = f.n = f.k = f.lda = f.ldb = f.ldc = SIDE;
	f.align[0] = f.align[1] = f.align[2] = f.align[3] = 256;
	f.tb = 1;
	f.ab = f.c = DT_F32;
	learn(b, &n, &f);
	const bool can = n.can;
	forget(b, &n);
	return can;
}

static int start(struct rt *c, const char *name, struct rt_blas **b_p, struct err *e)
{
	const struct functions *f;
	TRY(open_library(name, &f, e));
	struct cublaslt *b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "matrix products");
	*b = (struct cublaslt){ .base = { gemm, can, release, use }, .f = f };
	int rc = 0;
	int code = f->create(&b->handle);
	if (code == NO_MEMORY && rt_spare_back(c, e))
		code = f->create(&b->handle);
	if (code)
		rc = err_set(e, ERR_DEVICE, "%s cannot be used: it ended its start with status %d",
			     name, code);
	else if (!serves(b))
		rc = err_set(e, ERR_UNSUPPORTED, "%s has no kernels for %s", name, c->arch);
	if (rc == 0)
		rc = rt_take(c, WORKSPACE, &b->workspace, e);
	if (rc == 0)
		rc = rt_use_block(c, b->workspace, e);
	if (rc < 0) {
		release(&b->base, c);
		return rc;
	}
	*b_p = &b->base;
	return 0;
}

/* The newest library that the driver runs and that has kernels for the card: that of CUDA 13 has
 * none below sm_75. HS_CUBLASLT_LIBRARY names one, or several with colons between them. */
int rt_cublaslt(struct rt *c, struct rt_blas **b_p, struct err *e)
{
	static const char *const all[] = { "libcublasLt.so.13", "libcublasLt.so.12",
					   "libcublasLt.so.11",
					   "/usr/local/cuda/lib64/libcublasLt.so", NULL };
	const char *own = getenv("HS_CUBLASLT_LIBRARY");
	const int newest = c->major < 13 || strtol(c->arch + strlen("sm_"), NULL, 10) < 75;
	struct err worst = { 0 };
	char name[512];
	int rc = ERR_UNSUPPORTED;
	bool absent = true; /* all that were tried */
	if (own && own[0]) {
		for (const char *s = own; *s && rc < 0; s += strcspn(s, ":"), s += *s == ':') {
			snprintf(name, sizeof name, "%.*s", (int)strcspn(s, ":"), s);
			err_clear(e);
			rc = start(c, name, b_p, e);
		}
		return rc;
	}
	for (int i = newest + (c->major < 12); all[i]; i++) {
		err_clear(e);
		rc = start(c, all[i], b_p, e);
		if (rc == 0)
			return 0;
		/* the message is about an unsuitable library rather than a missing one */
		const bool missing = strstr(e->msg, "is not installed") != NULL;
		if (!worst.code || (absent && !missing))
			worst = *e;
		absent = absent && missing;
	}
	*e = worst;
	return e->code;
}
