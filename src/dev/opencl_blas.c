/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_blas.c - matrix products by CLBlast (clblast_c.h 1.x), opened at run time when it is
 * there, for float32. Those of float16 stay with the portable kernel: CLBlast adds them up in half
 * precision, which is less than dev.h promises; bfloat16 it has not got. On processors the portable
 * kernel is several times quicker, so it is not used there. HS_CLBLAST=0 turns it off, 1 on; with
 * 2 (bench/products) it is used even where the driver ends its loops. */
#include "dev/opencl.h"

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

struct clblast {
	int (*CLBlastSgemm)(int layout, int ta, int tb, size_t m, size_t n, size_t k, float alpha,
			    cl_mem a, size_t a_at, size_t lda, cl_mem b, size_t b_at, size_t ldb,
			    float beta, cl_mem c, size_t c_at, size_t ldc, cl_queue *queue,
			    cl_event *event);
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct clblast the;
static bool there;

static void open_library(void)
{
	static const char *const names[] = { "libclblast.so.1", "libclblast.so", NULL };
	static const struct dl_symbol symbols[] = { { "CLBlastSgemm",
						      offsetof(struct clblast, CLBlastSgemm), 0 } };
	struct err e = { 0 };
	void *handle;
	const int rc = dl_open(names, symbols, ARRAY_LEN(symbols), &the, &handle, &e);
	there = rc == 0;
	if (rc < 0 && rc != ERR_UNSUPPORTED)
		log_warn("CLBlast is left out: %s", e.msg);
}

bool opencl_blas_use(bool cpu)
{
	const char *asked = getenv("HS_CLBLAST");
	if (asked && asked[0] ? !strcmp(asked, "0") : cpu)
		return false;
	pthread_once(&once, open_library);
	return there;
}

/* The elements of a matrix from the beginning of its buffer on. */
static double up_to(struct dev_ref r, int64_t rows, int64_t ld)
{
	return (double)(r.off / sizeof(float)) + (double)rows * (double)ld;
}

/* The library counts elements in 32 bits: those of each matrix, and those of copies of all three,
 * padded to whole tiles, that lie one behind the other. */
static bool few_elements(const struct dev_gemm *g)
{
	enum { PAD = 256 };
	const double m = (double)g->m + PAD, n = (double)g->n + PAD, k = (double)g->k + PAD,
		     most = INT32_MAX;
	return up_to(g->a, g->ta ? g->k : g->m, g->lda) <= most &&
	       up_to(g->b, g->tb ? g->n : g->k, g->ldb) <= most &&
	       up_to(g->c, g->m, g->ldc) <= most && m * k + n * k + m * n <= most;
}

bool opencl_blas_does(const struct dev_gemm *g)
{
	return g->ab_dtype == DT_F32 && g->c_dtype == DT_F32 && g->k && few_elements(g);
}

bool opencl_blas_gemm(struct opencl *c, const struct dev_gemm *g)
{
	const int rc = the.CLBlastSgemm(
		ROW_MAJOR, g->ta ? TRANSPOSED : PLAIN, g->tb ? TRANSPOSED : PLAIN, (size_t)g->m,
		(size_t)g->n, (size_t)g->k, g->alpha, opencl_mem(g->a.buf), g->a.off / 4,
		(size_t)g->lda, opencl_mem(g->b.buf), g->b.off / 4, (size_t)g->ldb, g->beta,
		opencl_mem(g->c.buf), g->c.off / 4, (size_t)g->ldc, &c->queue, NULL);
	if (rc)
		log_debug("%s: CLBlast refuses %lld x %lld x %lld with status %d: the portable "
			  "kernel does it",
			  c->who, (long long)g->m, (long long)g->n, (long long)g->k, rc);
	return rc == 0;
}
