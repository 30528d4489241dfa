/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_launch.c - see opencl.h: launches of kernels, and matrix products. A launch whose loops
 * the driver would end too early is refused; a product is cut into pieces that it runs. */
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "dev/gpu_tune.h"
#include "dev/opencl.h"

static int check_passes(const struct opencl *c, const char *name, int64_t passes, struct err *e)
{
	return passes <= c->passes
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "%s: %s at this size makes up to %lld passes through loops, and "
				 "this driver (%s) ends loops after %lld: use shorter sequences or "
				 "smaller microbatches, or another device",
				 c->who, name, (long long)passes, c->driver, (long long)c->passes);
}

/* `expands`: weights, into its first argument; it may run beside the product before it. */
static int enqueue(struct opencl *c, cl_kernel k, const char *name, int64_t groups, const char *sig,
		   const union dev_arg *a, double flops, bool expands, struct err *e)
{
	const struct cl_functions *f = &c->lib->f;
	const size_t local = GPU_LANES, global = (size_t)groups * GPU_LANES;
	const bool ahead = expands && gpu_may_run_ahead(&c->may, sig, a);
	uint32_t at = 0;
	int32_t rc = CL_SUCCESS;
	if (!expands && gpu_reads_panel(sig, a))
		rc = opencl_fork(c);
	for (int i = 0; sig[i] && rc == CL_SUCCESS; i++) {
		if (sig[i] == 'b') {
			TRY(opencl_use(c, a[i].b.buf, e));
			const cl_mem m = a[i].b.buf ? opencl_mem(a[i].b.buf) : c->none;
			const int64_t off = a[i].b.buf ? (int64_t)a[i].b.off : -1;
			rc = f->clSetKernelArg(k, at++, sizeof m, &m);
			if (rc == CL_SUCCESS)
				rc = f->clSetKernelArg(k, at++, sizeof off, &off);
		} else {
			rc = f->clSetKernelArg(
				k, at++, sig[i] == 'f' ? sizeof a[i].f : sizeof a[i].i,
				sig[i] == 'f' ? (const void *)&a[i].f : (const void *)&a[i].i);
		}
	}
	if (rc == CL_SUCCESS)
		rc = ahead ? opencl_start_ahead(c, k, global)
			   : f->clEnqueueNDRangeKernel(c->queue, k, 1, NULL, &global, &local, 0,
						       NULL, NULL);
	if (rc == CL_SUCCESS && ahead)
		gpu_ran_ahead(&c->may, sig, a);
	if (rc == CL_SUCCESS && expands)
		opencl_buf_of(a[0].b.buf)->named.panel = true;
	if (rc == CL_SUCCESS)
		rc = opencl_launched(c, flops);
	return opencl_failed(c, rc, name, e);
}

static int run_step(struct opencl *c, const struct gpu_step *s, enum dtype t, const char *sig,
		    const union dev_arg *a, double flops, struct err *e)
{
	const char *name = gpu_entry_name(s->entry);
	cl_kernel k;
	TRY(check_passes(c, name, s->passes, e));
	TRY(opencl_kernel(c, s->entry, t, &k, e));
	return enqueue(c, k, name, s->groups, sig, a, flops, c->side && s->entry == GPU_nf4_dequant,
		       e);
}

int opencl_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e)
{
	struct opencl *c = d->priv;
	cl_kernel k;
	TRY(check_passes(c, l->text->name, l->passes, e));
	TRY(opencl_user_kernel(c, l, &k, e));
	return enqueue(c, k, l->text->name, gpu_user_groups(l), DEV_TEXT_SIG, l->arg, 0, false, e);
}

bool opencl_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16 || t == DT_F16);
}

int opencl_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a,
		  struct err *e)
{
	const int64_t pieces = gpu_pieces(k, a);
	if (!opencl_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no kernel %s for %s",
			       dev_kernel_name(k), dtype_name(t));
	for (int64_t p = 0; p < pieces; p++) {
		union dev_arg args[GPU_ARGS];
		struct gpu_step s[GPU_STEPS];
		const int n = gpu_piece(k, t, a, p, pieces, args, s, e);
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			TRY(run_step(d->priv, &s[i], gpu_program_of(k, t), dev_kernel_sig(k), args,
				     0, e));
	}
	return 0;
}

/* Room for the sums of a product that is cut, (m,n) float32: it stays for the next one. */
static int room_for_sums(struct dev *d, size_t bytes, struct err *e)
{
	struct opencl *c = d->priv;
	if (c->sums.size >= bytes)
		return 0;
	opencl_sums_release(d);
	c->sums = (struct dev_buf){ .dev = d, .size = bytes };
	int rc = opencl_alloc(d, &c->sums, e);
	if (rc < 0)
		c->sums = (struct dev_buf){ 0 };
	return rc;
}

void opencl_sums_release(struct dev *d)
{
	struct opencl *c = d->priv;
	if (c->sums.size)
		opencl_free(d, &c->sums);
	c->sums = (struct dev_buf){ 0 };
}

static int gemm_in(struct dev *d, const struct dev_gemm *g, int shape, struct err *e)
{
	struct opencl *c = d->priv;
	union dev_arg a[GPU_ARGS];
	const int64_t depth = gpu_gemm_depth(shape, c->passes);
	int64_t k0 = 0;
	if (g->k > depth)
		TRY(room_for_sums(d, (size_t)g->m * (size_t)g->n * sizeof(float), e));
	do {
		const int64_t k1 = g->k - k0 > depth ? k0 + depth : g->k;
		const struct gpu_step s = gpu_gemm(
			g, shape, k0, k1, g->k > depth ? DEV_REF(&c->sums, 0) : DEV_NONE, a);
		TRY(run_step(c, &s, g->ab_dtype, GPU_GEMM_SIG, a,
			     2.0 * (double)g->m * (double)g->n * (double)(k1 - k0), e));
		k0 = k1;
	} while (k0 < g->k);
	return 0;
}

static int portable_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct opencl *c = d->priv;
	int *best = &c->shape[g->ab_dtype];
	char key[GPU_KEY] = "";
	if (gpu_tune_asks(g, *best)) {
		struct buf text = BUF_INIT;
		gpu_text(g->ab_dtype, &text);
		opencl_key(c, opencl_options(c, g->ab_dtype), text.p, text.n, key);
		buf_release(&text);
	}
	return gemm_in(d, g, gpu_tune(d, g, key, gemm_in, best), e);
}

/* Said once of a 16-bit dtype on a card without matrix units, when a training computes in it: a
 * probe makes fewer products. */
static void say_slow(struct dev *d, enum dtype t)
{
	enum { PROBES = 256 };
	struct opencl *c = d->priv;
	if (t == DT_F32 || c->subgroup || c->cpu || c->products[t] > PROBES ||
	    ++c->products[t] <= PROBES)
		return;
	log_warn("%s (driver %s): the driver has no extension for matrix units that is known here "
		 "(cl_intel_subgroup_matrix_multiply_accumulate), so products of %s are no faster "
		 "than those of float32",
		 c->who, c->driver, dtype_name(t));
}

int opencl_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct opencl *c = d->priv;
	if (g->ab_dtype > DT_F16 || (g->c_dtype != g->ab_dtype && g->c_dtype != DT_F32))
		return err_set(e, ERR_UNSUPPORTED, "opencl has no matrix product of %s into %s",
			       dtype_name(g->ab_dtype), dtype_name(g->c_dtype));
	say_slow(d, g->ab_dtype);
	if (c->blas && opencl_blas_does(g)) {
		struct dev_gemm in_place;
		TRY(dev_gemm_in_place(d, g, &in_place, e));
		TRY(opencl_use(c, g->a.buf, e));
		TRY(opencl_use(c, g->b.buf, e));
		TRY(opencl_use(c, g->c.buf, e));
		if (opencl_buf_of(g->b.buf)->named.panel)
			TRY(opencl_failed(c, opencl_fork(c), "queueing", e));
		if (opencl_blas_gemm(c, &in_place))
			return opencl_failed(c,
					     opencl_launched(c, 2.0 * (double)g->m * (double)g->n *
									(double)g->k),
					     "a product", e);
	}
	return portable_gemm(d, g, e);
}
