/* SPDX-License-Identifier: Apache-2.0 */
/* fake_blas.h - the libraries of matrix products of the stand-in in fake_rt.c: cuBLASLt and
 * rocBLAS by their names. */
#ifndef HS_TESTS_DRIVERS_FAKE_BLAS_H
#define HS_TESTS_DRIVERS_FAKE_BLAS_H

/* ---- product libraries ---- */
static char handle;
EXPORT long fake_products;
long fake_products; /* how often a library was asked for a product */
EXPORT long fake_choices;
long fake_choices; /* how often it was asked which kernel is best */

/* Whether the library has no code for the card; its file's name decides. */
static bool no_kernels(void)
{
	const char *s = getenv("FAKE_RT"), *word = s ? strstr(s, "nokernels=") : NULL;
	Dl_info me;
	if (!word || !dladdr((void *)(uintptr_t)no_kernels, &me))
		return false;
	word += strlen("nokernels=");
	const size_t n = strcspn(word, " "), have = strlen(me.dli_fname);
	return have >= n && !strncmp(me.dli_fname + have - n, word, n);
}

/* The library's answer to a product that it refuses; 0: it computes it. */
static int refused(int out_of_memory)
{
	const long status = fault("status", 0);
	fake_products++;
	static bool was_full, was_late;
	if (once("blaslate", &was_late))
		return api == CUDA ? 14 : 6;
	return once("blasfull", &was_full) ? out_of_memory : (int)status;
}

struct desc {
	int32_t op[8];
};
struct layout {
	int type;
	int64_t rows, cols, ld;
};

/* What is added must be the output itself, or share no byte with it, and be on the device. */
static bool apart(const void *c, const void *to, const struct layout *l)
{
	const size_t n = l->rows && l->cols ? (size_t)((l->cols - 1) * l->ld + l->rows) *
						      dtype_size(dtype_of(l->type))
					    : 0;
	const uintptr_t a = (uintptr_t)c, b = (uintptr_t)to;
	return a == b || ((a + n <= b || b + n <= a) && inside(a, n));
}

static int enqueue(const struct product *p, void *s)
{
	static void *usual; /* the stream of a caller that names none */
	if (!s && !usual && x_stream(&usual, 1))
		return 13;
	struct op *o = put(s ? s : usual, GEMM);
	if (!o)
		return 13;
	o->product = *p;
	return OK;
}

static int l_layout(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	struct layout *n = malloc(sizeof *n);
	*n = (struct layout){ type, (int64_t)rows, (int64_t)cols, ld };
	*l = n;
	return ld >= (int64_t)rows ? OK : 7;
}

struct preference {
	uint32_t schemes; /* how the parts of a sum may be added up */
};
enum { IN_PLACE = 1, COMPUTE_TYPE = 2, OUTPUT_TYPE = 4 };

static int l_ask(const struct desc *d, const struct layout *a, const struct layout *b,
		 const struct layout *c, const struct preference *p, char *results, int *found)
{
	const int64_t m = d->op[3] ? a->cols : a->rows, k = d->op[3] ? a->rows : a->cols;
	const int64_t k2 = d->op[4] ? b->cols : b->rows, n = d->op[4] ? b->rows : b->cols;
	*found = 0;
	if (m != c->rows || n != c->cols || k != k2)
		return 7;
	/* that of CUDA 13.3: "Could not obtain green context information" */
	for (const struct stream *s = streams; s; s = s->next)
		if (s->captured && s->owner.api == CUDA)
			return 14;
	if (fault("noalgo", 0) || no_kernels())
		return no_kernels() ? 8 : 15;
	memset(results, 0, 96);
	fake_choices++;
	memcpy(results + 8, &n, 8);
	memcpy(results + 16, &k, 8);
	/* the scheme, where a real library stores the algorithm */
	results[0] = (p->schemes & (IN_PLACE | OUTPUT_TYPE)) != 0;
	*found = 1;
	return OK;
}

static int l_matmul(const char *algo, const struct desc *d, const float *alpha, const char *a,
		    const struct layout *la, const char *b, const struct layout *lb,
		    const float *beta, const char *from, char *c, const struct layout *lc, void *s)
{
	const struct product p = { .ta = d->op[3],
				   .tb = d->op[4],
				   .ab = la->type,
				   .c = lc->type,
				   .m = lc->rows,
				   .n = lc->cols,
				   .k = d->op[3] ? la->rows : la->cols,
				   .lda = la->ld,
				   .ldb = lb->ld,
				   .ldc = lc->ld,
				   .a = a,
				   .b = b,
				   .from = from,
				   .to = c,
				   .alpha = *alpha,
				   .beta = *beta,
				   .split = algo[0] && lc->type != 0 };
	int64_t n, k;
	memcpy(&n, algo + 8, 8);
	memcpy(&k, algo + 16, 8);
	if (p.n > n || p.k > k || (fault("sizes", 0) && (p.n != n || p.k != k)))
		return 15;
	if (lc->cols != (d->op[4] ? lb->rows : lb->cols) || p.k != (d->op[4] ? lb->cols : lb->rows))
		return 7;
	const int rc = refused(3);
	return rc ? rc : enqueue(&p, s);
}

static int l_set(struct preference *p, int what, const void *v, size_t n)
{
	if (what == 3 && n == 4)
		memcpy(&p->schemes, v, 4);
	return p && v && (what == 1 ? n == 8 : (what == 3 || (what >= 5 && what <= 8)) && n == 4)
		       ? OK
		       : INVALID;
}

ONE(cublasLtCreate, (void **h), (*h = &handle, fault("noblas", 0) ? 1 : OK))
ONE(cublasLtDestroy, (void *h), (h ? OK : INVALID))
ONE(cublasLtMatmulDescCreate, (void **d, int compute, int scale),
    (*d = calloc(1, sizeof(struct desc)), compute == 68 && scale == 0 ? OK : INVALID))
ONE(cublasLtMatmulDescDestroy, (void *d), (free(d), OK))
ONE(cublasLtMatmulDescSetAttribute, (void *d, int what, const void *v, size_t n),
    (memcpy(&((struct desc *)d)->op[what & 7], v, n),
     n == 4 && (what == 3 || what == 4) ? OK : INVALID))
ONE(cublasLtMatrixLayoutCreate, (void **l, int t, uint64_t r, uint64_t c, int64_t ld),
    l_layout(l, t, r, c, ld))
ONE(cublasLtMatrixLayoutSetAttribute, (void *l, int what, const void *v, size_t n),
    (what == 3 && n == 8 ? (memcpy(&((struct layout *)l)->cols, v, 8), OK) : INVALID))
ONE(cublasLtMatrixLayoutDestroy, (void *l), (free(l), OK))
ONE(cublasLtMatmulPreferenceCreate, (void **p),
    (*p = calloc(1, sizeof(struct preference)), ((struct preference *)*p)->schemes = 7, OK))
ONE(cublasLtMatmulPreferenceDestroy, (void *p), (free(p), OK))
ONE(cublasLtMatmulPreferenceSetAttribute, (void *p, int what, const void *v, size_t n),
    l_set(p, what, v, n))
ONE(cublasLtMatmulAlgoGetHeuristic,
    (void *h, void *d, void *a, void *b, void *c, void *o, void *p, int n, void *results,
     int *found),
    (h && p && n > 0 && c == o ? l_ask(d, a, b, c, p, results, found) : INVALID))
ONE(cublasLtMatmul,
    (void *h, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb,
     const void *beta, const void *c, void *lc, void *to, void *lo, const void *algo, void *work,
     size_t nwork, void *s),
    (h && algo && lc == lo && apart(c, to, lc) && inside((uint64_t)(uintptr_t)work, nwork)
	     ? l_matmul(algo, d, alpha, a, la, b, lb, beta, c, to, lc, s)
	     : INVALID))

static void *rocblas_stream;
static int roc_type(int t) { return t == 151 ? 0 : t == 168 ? 14 : 2; }
static int r_gemm(int ta, int tb, int m, int n, int k, const float *alpha, const char *a, int ab,
		  int lda, const char *b, int ldb, const float *beta, const char *from, char *c,
		  int ct, int ldc)
{
	const struct product p = { .ta = ta == 112,
				   .tb = tb == 112,
				   .ab = roc_type(ab),
				   .c = roc_type(ct),
				   .m = m,
				   .n = n,
				   .k = k,
				   .lda = lda,
				   .ldb = ldb,
				   .ldc = ldc,
				   .a = a,
				   .b = b,
				   .from = from,
				   .to = c,
				   .alpha = *alpha,
				   .beta = *beta };
	const int rc = refused(5);
	return rc ? rc : enqueue(&p, rocblas_stream);
}
ONE(rocblas_create_handle, (void **h),
    (fault("rocabort", 0) ? abort() : (void)0, *h = &handle, fault("noblas", 0) ? 1 : OK))
ONE(rocblas_destroy_handle, (void *h), (h ? OK : INVALID))
ONE(rocblas_set_atomics_mode, (void *h, int mode), (h && !mode ? OK : INVALID))
/* That of ROCm 6.0 and 6.1 asks the driver for the stream (rocBLAS#1432), which may not be done
 * while it is captured. */
static int r_stream(struct stream *s)
{
	if (s && s->captured)
		return 1;
	rocblas_stream = s;
	return OK;
}

EXPORT long fake_workspace;
long fake_workspace; /* bytes of the card's that it was given to work in */
static int r_workspace(uint64_t at, size_t n)
{
	if (at && !inside(at, n))
		return 11;
	fake_workspace = at ? (long)n : 0;
	return OK;
}
ONE(rocblas_set_stream, (void *h, void *s), (h ? r_stream(s) : INVALID))
ONE(rocblas_set_workspace, (void *h, void *at, size_t n),
    (h ? r_workspace((uint64_t)(uintptr_t)at, n) : INVALID))
ONE(rocblas_gemm_ex,
    (void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at,
     int lda, const void *b, int bt, int ldb, const void *beta, const void *c, int ct, int ldc,
     void *d, int dt, int ldd, int compute, int algo, int solution, unsigned flags),
    (h && at == bt &&
		     apart(c, d,
			   &(struct layout){
				   .type = roc_type(ct), .rows = m, .cols = n, .ld = ldc }) &&
		     ct == dt && ldc == ldd && compute == 151 && !algo && !solution &&
		     flags == (at == 150 && !(ta == 112 && tb == 111) ? 4 : 0)
	     ? r_gemm(ta, tb, m, n, k, alpha, a, at, lda, b, ldb, beta, c, d, ct, ldc)
	     : INVALID))

#endif
