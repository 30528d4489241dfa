/* SPDX-License-Identifier: Apache-2.0 */
/* dev_cpu.c - the CPU of this machine as a device: memory, capabilities, and which compilation of
 * the kernels it runs. Matrix products are in dev_cpu_gemm.c, kernels in cpu/.
 *
 * Everything is finished when a call returns. Large buffers are mapped by themselves, so that freed
 * memory goes back to the system. */
#include "dev/cpu/cpu.h"
#include "dev/dev_cpu_gemm.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAP_FROM ((size_t)1 << 20)  /* buffers of this size or more are mapped */
#define HUGE_FROM ((size_t)4 << 20) /* of these on, with huge pages where there are any */
/* Of these on, only when the memory is there: better an error than the out-of-memory killer. */
#define CHECK_FROM ((size_t)64 << 20)

static int cpu_count(struct err *e)
{
	(void)e;
	return 1;
}

static int cpu_rank(int index)
{
	(void)index;
	return 10;
}

static const struct cpu_isa *best_isa(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		  __builtin_cpu_supports("bmi2");
	bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		  __builtin_cpu_supports("avx512cd");
	const struct cpu_isa *best = v4 && __builtin_cpu_supports("avx512bf16") ? &cpu_isa_v4bf16
				     : v4                                       ? &cpu_isa_v4
				     : v3                                       ? &cpu_isa_v3
										: &cpu_isa_base;
	/* HS_CPU_ISA asks for a lesser one, for tests and comparisons; one that this processor
	 * cannot run is not taken */
	const struct cpu_isa *all[] = { &cpu_isa_base, &cpu_isa_v3, &cpu_isa_v4, &cpu_isa_v4bf16 };
	const char *want = getenv("HS_CPU_ISA");
	for (size_t i = 0; want && i < ARRAY_LEN(all) && all[i] != best; i++)
		if (!strcmp(all[i]->name, want))
			return all[i];
	return best;
#else
	return &cpu_isa_base;
#endif
}

static void cpu_close(struct dev *d)
{
	struct cpu *c = d->priv;
	cpu_gemm_free(c->gemm);
	cpu_texts_release(c);
	/* Ends this thread's team. OpenMP counts idle teams too; with more threads than cores it
	 * makes those that compute sleep at every barrier instead of busy waiting. */
	omp_pause_resource(omp_pause_soft, omp_get_initial_device());
	mem_free(c->scratch);
	mem_free(c);
}

static int cpu_open(struct dev *d, int index, struct err *e)
{
	(void)index;
	if (omp_get_max_threads() > OS_THREADS_MOST)
		return err_set(e, ERR_USAGE,
			       "%d threads (OMP_NUM_THREADS): at most %d are possible",
			       omp_get_max_threads(), OS_THREADS_MOST);
	struct cpu *c = mem_zalloc(sizeof *c);
	if (!c)
		return err_nomem(e, sizeof *c, "a device");
	c->isa = best_isa();
	c->threads = os_cores("", omp_get_max_threads());
	d->priv = c;
	int rc = cpu_gemm_new(&c->gemm, c->threads, e);
	if (rc < 0)
		cpu_close(d);
	return rc;
}

static int cpu_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct cpu *c = d->priv;
	struct dev_gemm in_place;
	TRY(dev_gemm_in_place(d, g, &in_place, e));
	/* oneDNN shapes a primitive for as many threads as the calling thread may have: one. */
	const int threads = omp_get_max_threads();
	omp_set_num_threads(1);
	const int rc = cpu_gemm_run(c, &in_place, e);
	omp_set_num_threads(threads);
	return rc;
}

#if defined(__x86_64__)
/* CPUID leaf 7, EDX bit 22 (Intel's manual, volume 2A). */
static bool has_amx_bf16(void)
{
	unsigned a, b, c, d = 0;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1);
}
#endif

/* bf16 counts when the library runs it with code made for it on a processor that has it. Its speed
 * is not asked for: a busy machine would answer differently from one run to the next, and with it
 * the numbers of a training. */
static int probe_bf16(struct dev *d, bool *yes_p, struct err *e)
{
	enum { SIDE = 384 };
	struct cpu *c = d->priv;
	struct dev_buf *b = NULL;
	const char *name;
	int rc = 0;
	*yes_p = false;
#if defined(__x86_64__)
	__builtin_cpu_init();
	/* Intel's vector units run bf16 at half the rate of float32's; only AMX is faster. */
	if (!__builtin_cpu_supports("avx512bf16") || (__builtin_cpu_is("intel") && !has_amx_bf16()))
		return 0;
#endif
	TRY(dev_alloc(d, (size_t)SIDE * SIDE * 4 * 3, &b, e));
	memset(b->host, 0, b->size);
	struct dev_gemm g = { .m = SIDE,
			      .n = SIDE,
			      .k = SIDE,
			      .tb = true,
			      .lda = SIDE,
			      .ldb = SIDE,
			      .ldc = SIDE,
			      .alpha = 1,
			      .a = { b, 0 },
			      .b = { b, (size_t)SIDE * SIDE * 4 },
			      .c = { b, (size_t)SIDE * SIDE * 8 },
			      .ab_dtype = DT_BF16,
			      .c_dtype = DT_BF16 };
	if (cpu_gemm(d, &g, e) < 0) {
		err_clear(e); /* no bf16 in this library: a fact, not a failure */
		goto out;
	}
	TRYOUT(cpu_gemm_name(c, &g, &name, e));
	*yes_p = strstr(name, "bf16") || strstr(name, "amx") || strstr(name, "acl");
out:
	dev_free(b);
	return rc;
}

static int cpu_caps(struct dev *d, struct dev_caps *caps_p, struct err *e)
{
	struct cpu *c = d->priv;
	struct dev_caps *k = &c->caps;
	if (!c->probed) {
		bool bf16 = false;
		TRY(probe_bf16(d, &bf16, e));
		k->bf16 = bf16;
		k->unified = k->mem_seen = true;
		k->units = c->threads;
		snprintf(k->name, sizeof k->name, "CPU");
		os_processor(k->name, sizeof k->name, k->vendor, sizeof k->vendor);
		snprintf(k->driver, sizeof k->driver, "%s, %s kernels", cpu_gemm_version(),
			 c->isa->name);
		c->probed = true;
	}
	os_memory("", &k->mem_total, &k->mem_free);
	*caps_p = *k;
	return 0;
}

static int cpu_alloc(struct dev *d, struct dev_buf *b, struct err *e)
{
	(void)d;
	if (b->size < MAP_FROM) {
		b->host = mem_aligned(64, b->size);
		return b->host ? 0 : err_nomem(e, b->size, "a buffer");
	}
	if (b->size >= CHECK_FROM) {
		uint64_t total, avail;
		os_memory("", &total, &avail);
		if (total && b->size > avail)
			return err_set(
				e, ERR_NOMEM,
				"a buffer of %zu MiB does not fit: %llu MiB of memory are free",
				b->size >> 20, (unsigned long long)(avail >> 20));
	}
	void *p = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return err_nomem(e, b->size, "a buffer");
	if (b->size >= HUGE_FROM)
		os_huge_pages(p, b->size);
	b->host = p;
	b->handle = 1;
	return 0;
}

static void cpu_free(struct dev *d, struct dev_buf *b)
{
	(void)d;
	if (b->handle)
		munmap(b->host, b->size);
	else
		mem_free(b->host);
}

/* Copies and clears in pieces, by all threads where there is more than one piece. */
#define PIECE ((size_t)1 << 18)

struct bytes {
	char *dst;
	const char *src; /* NULL: clear */
	size_t n;
};

static void bytes_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct bytes *b = ctx;
	size_t at = (size_t)i * PIECE, n = b->n - at < PIECE ? b->n - at : PIECE;
	if (b->src)
		memcpy(b->dst + at, b->src + at, n);
	else
		memset(b->dst + at, 0, n);
}

static void bytes_move(struct cpu *c, void *dst, const void *src, size_t n)
{
	struct bytes b = { dst, src, n };
	const char *d = dst, *s = src;
	if (s && d < s + n && s < d + n)
		memmove(dst, src, n);
	else
		cpu_par(c, (int64_t)((n + PIECE - 1) / PIECE), bytes_chunk, &b);
}

static void *at(struct dev_ref r) { return (char *)r.buf->host + r.off; }

static int cpu_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	(void)e;
	bytes_move(d->priv, at(dst), src, n);
	return 0;
}

static int cpu_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	(void)e;
	bytes_move(d->priv, dst, at(src), n);
	return 0;
}

static int cpu_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	(void)e;
	bytes_move(d->priv, at(dst), at(src), n);
	return 0;
}

static int cpu_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e)
{
	(void)e;
	bytes_move(d->priv, at(dst), NULL, n);
	return 0;
}

static bool cpu_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16);
}

static int cpu_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
		      struct err *e)
{
	struct cpu *c = d->priv;
	if (!cpu_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "cpu has no kernel %s for %s",
			       dev_kernel_name(k), dtype_name(t));
	return c->isa->kernel[k](c, t, args, e);
}

const struct backend backend_cpu = {
	.name = "cpu",
	.count = cpu_count,
	.rank = cpu_rank,
	.open = cpu_open,
	.close = cpu_close,
	.caps = cpu_caps,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.upload = cpu_upload,
	.download = cpu_download,
	.copy = cpu_copy,
	.zero = cpu_zero,
	.gemm = cpu_gemm,
	.launch = cpu_launch,
	.launch_text = cpu_launch_text,
	.has = cpu_has,
};
