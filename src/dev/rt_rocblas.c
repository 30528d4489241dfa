/* SPDX-License-Identifier: Apache-2.0 */
/* rt_rocblas.c - matrix products by rocBLAS, which has kernels for more cards than hipBLASLt; sums
 * are float32 in all dtypes.
 *
 * The library counts columns first: a row-major C[m,n] is its C[n,m], so op(B) and op(A) change
 * places. Interface and numbers: AMD, "rocBLAS", ROCm 5.2 to 7, rocblas-types.h. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 111, TRANSPOSE = 112, R_16F = 150, R_32F = 151, R_16BF = 168 };

struct functions {
	int (*create)(void **);
	int (*destroy)(void *);
	int (*set_stream)(void *, void *);
	int (*set_atomics)(void *, int);
	int (*gemm)(void *, int, int, int32_t, int32_t, int32_t, const void *, uint64_t, int,
		    int32_t, uint64_t, int, int32_t, const void *, uint64_t, int, int32_t, uint64_t,
		    int, int32_t, int, int, int32_t, uint32_t);
};

struct rocblas {
	struct rt_blas base;
	const struct functions *f;
	void *handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct functions functions;
static bool opened;

static int open_library(struct err *e)
{
#define ROW(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct functions, member), 0                                        \
	}
	static const struct dl_symbol symbols[] = {
		ROW(create, "rocblas_create_handle"),
		ROW(destroy, "rocblas_destroy_handle"),
		ROW(set_stream, "rocblas_set_stream"),
		ROW(gemm, "rocblas_gemm_ex"),
		{ "rocblas_set_atomics_mode", offsetof(struct functions, set_atomics), 1 }
	};
#undef ROW
	static const char *const names[] = { "librocblas.so.5",
					     "librocblas.so.4",
					     "librocblas.so.3",
					     "librocblas.so.0",
					     "librocblas.so",
					     "/opt/rocm/lib/librocblas.so",
					     NULL };
	const char *own = getenv("HS_ROCBLAS_LIBRARY");
	const char *const one[] = { own, NULL };
	void *handle;
	return dl_open(own && own[0] ? one : names, symbols, ARRAY_LEN(symbols), &functions,
		       &handle, e);
}

/* rocBLAS ends the process when it finds no kernels for a card: so they are looked for before, in
 * the folders where they are installed. */
static bool has_kernels(const char *arch)
{
	static const char *const folders[] = { "rocblas/library", "rocblas/*/library" };
	const char *own = getenv("ROCBLAS_TENSILE_LIBPATH"), *slash;
	const int card = (int)strcspn(arch, ":");
	char pattern[4096];
	Dl_info where;
	bool found = false;
	if (getenv("HS_ROCBLAS_LIBRARY") || !dladdr((void *)(uintptr_t)functions.create, &where) ||
	    !(slash = strrchr(where.dli_fname, '/')))
		return true; /* whoever names a library knows */
	for (size_t i = 0; i < ARRAY_LEN(folders) && !found; i++) {
		glob_t g = { 0 };
		if (own && own[0])
			snprintf(pattern, sizeof pattern, "%s/*%.*s*", own, card, arch);
		else
			snprintf(pattern, sizeof pattern, "%.*s/%s/*%.*s*",
				 (int)(slash - where.dli_fname), where.dli_fname, folders[i], card,
				 arch);
		found = glob(pattern, GLOB_NOSORT, NULL, &g) == 0 && g.gl_pathc > 0;
		globfree(&g);
	}
	return found;
}

static int type_of(enum dtype t) { return t == DT_F32 ? R_32F : t == DT_BF16 ? R_16BF : R_16F; }

static int gemm(struct rt_blas *base, struct rt *c, const struct dev_gemm *g, struct err *e)
{
	struct rocblas *b = (struct rocblas *)base;
	const int64_t sizes[] = { g->m, g->n, g->k, g->lda, g->ldb, g->ldc };
	const int ab = type_of(g->ab_dtype), to = type_of(g->c_dtype);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		if (sizes[i] > INT32_MAX)
			return 0;
	const int code = b->f->gemm(
		b->handle, g->tb ? TRANSPOSE : NONE, g->ta ? TRANSPOSE : NONE, (int32_t)g->n,
		(int32_t)g->m, (int32_t)g->k, &g->alpha, rt_address(g->b), ab, (int32_t)g->ldb,
		rt_address(g->a), ab, (int32_t)g->lda, &g->beta, rt_address(g->c), to,
		(int32_t)g->ldc, rt_address(g->c), to, (int32_t)g->ldc, R_32F, 0, 0, 0);
	if (code)
		return err_set(e, ERR_DEVICE,
			       "%s: rocBLAS refuses a product of %lldx%lldx%lld: status %d",
			       c->label, (long long)g->m, (long long)g->n, (long long)g->k, code);
	return 1;
}

static void release(struct rt_blas *base, struct rt *c)
{
	struct rocblas *b = (struct rocblas *)base;
	(void)c;
	if (b->handle)
		b->f->destroy(b->handle);
	mem_free(b);
}

int rt_rocblas(struct rt *c, struct rt_blas **b_p, struct err *e)
{
	int rc = 0;
	pthread_mutex_lock(&lock);
	if (!opened)
		rc = open_library(e);
	opened = rc == 0;
	pthread_mutex_unlock(&lock);
	if (rc < 0)
		return rc;
	if (!has_kernels(c->arch))
		return err_set(e, ERR_UNSUPPORTED, "rocBLAS is installed without kernels for %s",
			       c->arch);
	struct rocblas *b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "matrix products");
	*b = (struct rocblas){ .base = { gemm, release }, .f = &functions };
	int code = b->f->create(&b->handle);
	if (!code)
		code = b->f->set_stream(b->handle, c->compute);
	if (!code && b->f->set_atomics)
		code = b->f->set_atomics(b->handle,
					 0); /* sums in one order: the same bits each time */
	if (code) {
		release(&b->base, c);
		return err_set(e, ERR_DEVICE, "rocBLAS does not start: status %d", code);
	}
	*b_p = &b->base;
	return 0;
}
