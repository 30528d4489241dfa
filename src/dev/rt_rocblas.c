/* SPDX-License-Identifier: Apache-2.0 */
/* rt_rocblas.c - matrix products by rocBLAS, which has kernels for more cards than hipBLASLt; sums
 * are float32 in all dtypes.
 *
 * The library counts columns first: a row-major C[m,n] is its C[n,m], so op(B) and op(A) change
 * places. Interface and numbers: AMD, "rocBLAS", ROCm 5.2 to 7, rocblas-types.h. */
#include "dev/rt.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "dev/gpu_cache.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	NONE = 111,
	TRANSPOSE = 112,
	R_16F = 150,
	R_32F = 151,
	R_16BF = 168,
	FP16_ALT = 4, /* a flag: float16 through the range of bfloat16 */
	/* answers */
	NOT_IMPLEMENTED = 2,
	NO_MEMORY = 5,
	INTERNAL_ERROR = 6 /* also where the card is full when a kernel is loaded */
};
/* As much as the library takes by itself. Its newest releases take it from the driver for each
 * product anew, also while a graph is captured (rocm-libraries#1516). */
#define WORKSPACE ((size_t)32 << 20)
#define WORKSPACE_MI300 ((size_t)128 << 20)
#define REFUSED 64 /* forms that are remembered; a power of two */

struct functions {
	int (*create)(void **);
	int (*destroy)(void *);
	int (*set_stream)(void *, void *);
	int (*set_atomics)(void *, int);
	int (*set_workspace)(void *, uint64_t, size_t);
	int (*gemm)(void *, int, int, int32_t, int32_t, int32_t, const void *, uint64_t, int,
		    int32_t, uint64_t, int, int32_t, const void *, uint64_t, int, int32_t, uint64_t,
		    int, int32_t, int, int, int32_t, uint32_t);
};

/* A product that the library has not got. */
struct form {
	int64_t m, n, k;
	bool used, ta, tb;
	enum dtype ab, c;
};

struct rocblas {
	struct rt_blas base;
	const struct functions *f;
	void *handle, *stream;
	struct rt_block *workspace; /* NULL: the library's own */
	bool mi200, captured;
	struct form refused[REFUSED];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct functions functions;
static bool opened;
static void *library;

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
		{ "rocblas_set_atomics_mode", offsetof(struct functions, set_atomics), 1 },
		{ "rocblas_set_workspace", offsetof(struct functions, set_workspace), 1 }
	};
#undef ROW
	static const char *const names[] = { "librocblas.so.6",
					     "librocblas.so.5",
					     "librocblas.so.4",
					     "librocblas.so.3",
					     "librocblas.so.0",
					     "librocblas.so",
					     "/opt/rocm/lib/librocblas.so",
					     "/opt/rocm/core-10/lib/librocblas.so",
					     NULL };
	const char *own = getenv("HS_ROCBLAS_LIBRARY");
	const char *const one[] = { own, NULL };
	return dl_open(own && own[0] ? one : names, symbols, ARRAY_LEN(symbols), &functions,
		       &library, e);
}

static const char *file_of(void *function)
{
	Dl_info where;
	return dladdr(function, &where) && where.dli_fname ? where.dli_fname : "?";
}

/* Two HIP runtimes in one process do not work: each refuses the handles of the other. */
static int one_runtime(struct rt *c, struct err *e)
{
	void *const its = dlsym(library, "hipInit"), *const ours = (void *)(uintptr_t)c->f->init;
	if (!its || its == ours)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "rocBLAS (%s) uses the HIP runtime %s, this program %s: let HS_HIP_LIBRARY "
		       "name the one that rocBLAS uses",
		       file_of((void *)(uintptr_t)functions.create), file_of(its), file_of(ours));
}

/* rocBLAS ends the process when it finds none of these files for a card: so they are looked for
 * before, in the folders where they are installed. */
static bool has_kernels(const char *arch)
{
	static const char *const folders[] = { "rocblas/library", "rocblas/*/library" };
	static const char *const files[] = { "TensileLibrary_lazy_%.*s.dat",
					     "TensileLibrary_%.*s.dat", "TensileLibrary.dat" };
	const char *own = getenv("ROCBLAS_TENSILE_LIBPATH");
	const char *lib = file_of((void *)(uintptr_t)functions.create), *slash = strrchr(lib, '/');
	const int card = (int)strcspn(arch, ":");
	char folder[2048], name[128], pattern[4096];
	bool found = false;
	if (!(own && own[0]) && (getenv("HS_ROCBLAS_LIBRARY") || !slash))
		return true; /* whoever names a library knows */
	for (size_t i = 0; i < ARRAY_LEN(folders) * ARRAY_LEN(files) * 2 && !found; i++) {
		glob_t g = { 0 };
		if (own && own[0])
			snprintf(folder, sizeof folder, "%s", own);
		else
			snprintf(folder, sizeof folder, "%.*s/%s", (int)(slash - lib), lib,
				 folders[i / (ARRAY_LEN(files) * 2)]);
		snprintf(name, sizeof name, files[i / 2 % ARRAY_LEN(files)], card, arch);
		if (i % 2)
			snprintf(pattern, sizeof pattern, "%s/%.*s/%s", folder, card, arch, name);
		else
			snprintf(pattern, sizeof pattern, "%s/%s", folder, name);
		found = glob(pattern, GLOB_NOSORT, NULL, &g) == 0 && g.gl_pathc > 0;
		globfree(&g);
	}
	return found;
}

static int type_of(enum dtype t) { return t == DT_F32 ? R_32F : t == DT_BF16 ? R_16BF : R_16F; }

static struct form *place_of(struct rocblas *b, const struct form *f)
{
	const uint64_t h = ((uint64_t)f->m * 31 + (uint64_t)f->n) * 31 + (uint64_t)f->k;
	return &b->refused[(h ^ h >> 7) % REFUSED];
}

static bool same(const struct form *a, const struct form *b)
{
	return a->used && a->m == b->m && a->n == b->n && a->k == b->k && a->ta == b->ta &&
	       a->tb == b->tb && a->ab == b->ab && a->c == b->c;
}

/* MI200's matrix instructions take the smallest float16 numbers for 0, which gradients often are.
 * Products of forward are those with the second operand transposed: weights are stored
 * (out,in). */
static uint32_t flags_of(const struct rocblas *b, const struct dev_gemm *g)
{
	return b->mi200 && g->ab_dtype == DT_F16 && !(g->tb && !g->ta) ? FP16_ALT : 0;
}

static bool can(struct rt_blas *base, const struct dev_gemm *g)
{
	const struct form f = { g->m, g->n, g->k, true, g->ta, g->tb, g->ab_dtype, g->c_dtype };
	return !same(place_of((struct rocblas *)base, &f), &f);
}

static bool use(struct rt_blas *base, void *stream, bool captured)
{
	struct rocblas *b = (struct rocblas *)base;
	b->captured = captured;
	if (b->stream != stream && b->f->set_stream(b->handle, stream))
		return false;
	b->stream = stream;
	return true;
}

static int gemm(struct rt_blas *base, struct rt *c, const struct dev_gemm *g, void *stream,
		struct err *e)
{
	struct rocblas *b = (struct rocblas *)base;
	const int64_t sizes[] = { g->m, g->n, g->k, g->lda, g->ldb, g->ldc };
	const int ab = type_of(g->ab_dtype), to = type_of(g->c_dtype);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		if (sizes[i] > INT32_MAX)
			return 0;
	const struct form f = { g->m, g->n, g->k, true, g->ta, g->tb, g->ab_dtype, g->c_dtype };
	if (same(place_of(b, &f), &f))
		return 0;
	const uint64_t from = rt_address(g->d.buf && g->beta != 0 ? g->d : g->c);
	if (!use(base, stream, b->captured))
		return err_set(e, ERR_DEVICE, "%s: rocBLAS takes no stream", c->label);
	const int code = b->f->gemm(
		b->handle, g->tb ? TRANSPOSE : NONE, g->ta ? TRANSPOSE : NONE, (int32_t)g->n,
		(int32_t)g->m, (int32_t)g->k, &g->alpha, rt_address(g->b), ab, (int32_t)g->ldb,
		rt_address(g->a), ab, (int32_t)g->lda, &g->beta, from, to, (int32_t)g->ldc,
		rt_address(g->c), to, (int32_t)g->ldc, R_32F, 0, 0, flags_of(b, g));
	if (code == NOT_IMPLEMENTED) {
		if (!b->captured)
			*place_of(b, &f) = f; /* the portable kernel from now on */
		return 0;
	}
	const bool full = code == NO_MEMORY || (code == INTERNAL_ERROR && c->spare);
	if (code)
		return err_set(e, full ? ERR_NOMEM : ERR_DEVICE,
			       "%s: rocBLAS refuses a product of %lldx%lldx%lld: status %d",
			       c->label, (long long)g->m, (long long)g->n, (long long)g->k, code);
	return 1;
}

static void release(struct rt_blas *base, struct rt *c)
{
	struct rocblas *b = (struct rocblas *)base;
	if (b->handle)
		b->f->destroy(b->handle);
	if (b->workspace)
		rt_give(c, b->workspace);
	mem_free(b);
}

/* Without room for it the library keeps its own. */
static int give_workspace(struct rocblas *b, struct rt *c)
{
	const bool mi300 = !strncmp(c->arch, "gfx94", 5) || !strncmp(c->arch, "gfx95", 5);
	const size_t size = mi300 ? WORKSPACE_MI300 : WORKSPACE;
	struct err ignored = { 0 };
	if (!b->f->set_workspace || rt_take(c, size, &b->workspace, &ignored) < 0 ||
	    rt_use_block(c, b->workspace, &ignored) < 0)
		return 0;
	const int code = c->f->fill32(b->workspace->at, 0, size / 4, c->compute);
	return code ? code : b->f->set_workspace(b->handle, b->workspace->at, size);
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
	TRY(one_runtime(c, e));
	if (!has_kernels(c->arch))
		return err_set(e, ERR_UNSUPPORTED, "rocBLAS is installed without kernels for %s",
			       c->arch);
	struct rocblas *b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "matrix products");
	*b = (struct rocblas){ .base = { gemm, can, release, use },
			       .f = &functions,
			       .mi200 = !strncmp(c->arch, "gfx90a", 6) };
	int code = b->f->create(&b->handle);
	if (code == NO_MEMORY && rt_spare_back(c, e))
		code = b->f->create(&b->handle);
	if (!code)
		code = b->f->set_stream(b->handle, b->stream = c->compute);
	if (!code && b->f->set_atomics)
		code = b->f->set_atomics(b->handle,
					 0); /* sums in one order: the same bits each time */
	if (!code)
		code = give_workspace(b, c);
	if (code) {
		release(&b->base, c);
		return err_set(e, ERR_DEVICE,
			       "rocBLAS cannot be used: it ended its start with status %d", code);
	}
	*b_p = &b->base;
	return 0;
}

/* ---- the trial ---- */

#define TRIAL_SECONDS 120

/* A product of 4 x 4 on every card. Errors that do not end the process are found later. */
static void try_products(const struct rt_functions *f)
{
	enum { SIDE = 4 };
	const float one = 1, zero = 0;
	int n = 0;
	if (f->init(0) != RT_OK || f->count(&n) != RT_OK)
		return;
	for (int i = 0; i < n; i++) {
		uint64_t at[3] = { 0 };
		void *handle;
		if (f->device_set(i) != RT_OK || functions.create(&handle))
			continue;
		for (int k = 0; k < 3; k++)
			if (f->memory(&at[k], 4096) != RT_OK)
				return;
		functions.gemm(handle, NONE, NONE, SIDE, SIDE, SIDE, &one, at[0], R_32F, SIDE,
			       at[1], R_32F, SIDE, &zero, at[2], R_32F, SIDE, at[2], R_32F, SIDE,
			       R_32F, 0, 0, 0);
		for (int k = 0; k < 3; k++)
			f->memory_free(at[k]); /* waits for the product */
	}
}

/* What the library's file is, in a key: a trial that went well is not made again. */
static bool key_of_trial(char key[GPU_KEY])
{
	const char *file = file_of((void *)(uintptr_t)functions.create);
	const char *path = getenv("ROCBLAS_TENSILE_LIBPATH"),
		   *shown = getenv("HIP_VISIBLE_DEVICES");
	struct stat st;
	char text[128];
	if (stat(file, &st) < 0)
		return false;
	snprintf(text, sizeof text, "%lld %lld", (long long)st.st_size, (long long)st.st_mtime);
	const char *const part[] = { "rocblas trial", file, path ? path : "", shown ? shown : "" };
	gpu_cache_key(part, ARRAY_LEN(part), text, strlen(text), key);
	return true;
}

/* rocBLAS ends the process where files of a card are missing, in ways that no look into its folder
 * foresees: so the first product is made in a child, before this process has called the driver. */
bool rt_rocblas_trial(const struct rt_functions *f, char *why, size_t n)
{
	struct err ignored = { 0 };
	struct buf known = BUF_INIT;
	char key[GPU_KEY];
	int status = 0;
	pthread_mutex_lock(&lock);
	const int rc = opened ? 0 : open_library(&ignored);
	opened = opened || rc == 0;
	pthread_mutex_unlock(&lock);
	if (rc < 0 || !key_of_trial(key))
		return true; /* reported when a product needs it */
	const bool before = gpu_cache_get(key, "trial", &known);
	buf_release(&known);
	if (before)
		return true;
	const pid_t pid = fork();
	if (pid < 0)
		return true;
	if (pid == 0) {
		/* the signal that ends it is the answer: no handler of the program may change it */
		static const int fatal[] = { SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
		for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
			signal(fatal[i], SIG_DFL);
		try_products(f);
		kill(getpid(), SIGKILL); /* no handler and no destructor of ours runs in it */
	}
	const int64_t end = clock_now() + (int64_t)TRIAL_SECONDS * 1000000000;
	pid_t got;
	while ((got = waitpid(pid, &status, WNOHANG)) == 0 && clock_now() < end)
		usleep(5000);
	if (got == 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		snprintf(why, n, "a trial process with rocBLAS has not ended after %d s",
			 TRIAL_SECONDS);
		return false;
	}
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		gpu_cache_put(key, "trial", "ok", 2);
		return true;
	}
	snprintf(why, n,
		 "rocBLAS ended a trial process (%s %d), which it does when files of a card "
		 "are missing from its folder 'library'",
		 WIFSIGNALED(status) ? "signal" : "status",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return false;
}
