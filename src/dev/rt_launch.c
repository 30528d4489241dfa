/* SPDX-License-Identifier: Apache-2.0 */
/* rt_launch.c - see rt.h: launches, matrix products. */
#include "dev/rt.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/gpu_tune.h"

#include <string.h>

static int start(struct rt *c, void *function, const char *name, int64_t groups, const char *sig,
		 const union dev_arg *a, double flops, bool expands, struct err *e)
{
	const bool ahead = expands && gpu_may_run_ahead(&c->may, sig, a);
	struct rt_work w = { .same = { .kind = ahead ? RT_AHEAD : RT_KERNEL,
				       .function = function,
				       .groups = groups },
			     .name = name,
			     .flops = flops,
			     .fork = !expands && gpu_reads_panel(sig, a) };
	uint64_t *value = w.same.value;
	int n = 0;
	if (groups > c->v->most_groups)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: %s of %lld groups is more than a launch can have", c->label,
			       name, (long long)groups);
	for (int i = 0; sig[i]; i++) {
		if (sig[i] == 'b') { /* a buffer takes two: its address, and the place in it */
			TRY(rt_use(c, a[i].b.buf, e));
			value[n++] = a[i].b.buf ? rt_block_of(a[i].b.buf)->at : 0;
			value[n++] = a[i].b.buf ? a[i].b.off : UINT64_MAX;
		} else if (sig[i] == 'f') {
			memcpy(&value[n++], &a[i].f, sizeof a[i].f);
		} else {
			value[n++] = a[i].u;
		}
	}
	w.same.n = n;
	int rc = rt_give_work(c, &w, e);
	if (rc == ERR_NOMEM)
		rc = rt_spare_back(c, e) ? rt_give_work(c, &w, e) : e->code;
	if (rc > 0 && ahead)
		gpu_ran_ahead(&c->may, sig, a);
	if (expands)
		rt_block_of(a[0].b.buf)->named.panel = true;
	return rc < 0 ? rc : 0;
}

static int run_step(struct rt *c, const struct gpu_step *s, enum dtype t, const char *sig,
		    const union dev_arg *a, double flops, struct err *e)
{
	void *function;
	TRY(rt_kernel(c, s->entry, t, &function, e));
	return start(c, function, gpu_entry_name(s->entry), s->groups, sig, a, flops,
		     s->entry == GPU_nf4_dequant, e);
}

int rt_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e)
{
	struct rt *c = d->priv;
	void *function;
	TRY(rt_enter(c, e));
	TRY(rt_user_kernel(c, l, &function, e));
	return start(c, function, l->text->name, gpu_user_groups(l), DEV_TEXT_SIG, l->arg, 0, false,
		     e);
}

bool rt_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	(void)d;
	return (unsigned)k < K_COUNT && (k == K_cast || t == DT_F32 || t == DT_BF16 || t == DT_F16);
}

int rt_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct rt *c = d->priv;
	const int64_t pieces = gpu_pieces(k, a);
	if (!rt_has(d, k, t))
		return err_set(e, ERR_UNSUPPORTED, "%s has no kernel %s for %s", c->v->backend,
			       dev_kernel_name(k), dtype_name(t));
	TRY(rt_enter(c, e));
	for (int64_t p = 0; p < pieces; p++) {
		union dev_arg args[GPU_ARGS];
		struct gpu_step s[GPU_STEPS];
		const int n = gpu_piece(k, t, a, p, pieces, args, s, e);
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			TRY(run_step(c, &s[i], gpu_program_of(k, t), dev_kernel_sig(k), args, 0,
				     e));
	}
	return 0;
}

static int gemm_in(struct dev *d, const struct dev_gemm *g, int shape, struct err *e)
{
	union dev_arg a[GPU_ARGS];
	const struct gpu_step s = gpu_gemm(g, shape, 0, g->k, DEV_NONE, a);
	return run_step(d->priv, &s, g->ab_dtype, GPU_GEMM_SIG, a,
			2.0 * (double)g->m * (double)g->n * (double)g->k, e);
}

static int portable_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct rt *c = d->priv;
	int *best = &c->shape[g->ab_dtype];
	char key[GPU_KEY] = "";
	const bool asks = gpu_tune_asks(g, *best);
	if (asks) {
		const char *const part[] = { c->v->backend, c->name, c->arch, c->driver,
					     rtc_name(c->compiler) };
		struct buf text = BUF_INIT;
		gpu_text(g->ab_dtype, &text);
		gpu_cache_key(part, ARRAY_LEN(part), text.p, text.n, key);
		buf_release(&text);
	}
	const int shape = gpu_tune(d, g, key, gemm_in, best);
	if (asks) /* what was measured with */
		rt_spare_back(c, e);
	return gemm_in(d, g, shape, e);
}

/* The vendor's library, tried once; without it the portable kernel computes. */
static void find_blas(struct rt *c)
{
	struct err why = { 0 };
	if (c->blas_tried)
		return;
	c->blas_tried = true;
	if (c->v->lib->no_blas)
		return;
	if (c->v->blas(c, &c->blas, &why) < 0) {
		c->blas = NULL;
		log_warn("%s: %s; matrix products run without it, slowly", c->label, why.msg);
	}
}

/* Said once of a dtype that the card has no units for, when a training computes in it: a probe
 * makes fewer products. */
static void say_slow(struct rt *c, enum dtype t)
{
	enum { PROBES = 256 };
	if (t == DT_F32 || c->products[t] > PROBES || ++c->products[t] <= PROBES ||
	    c->v->native(c->arch, t))
		return;
	log_warn("%s: %s has no units for %s, so it computes slowly; with compute_dtype: %s it "
		 "would not",
		 c->label, c->arch, dtype_name(t),
		 t == DT_BF16 && c->v->native(c->arch, DT_F16) ? "float16" : "float32");
}

static struct rt_work product_of(const struct dev_gemm *g)
{
	struct rt_work w = { .same = { .kind = RT_PRODUCT },
			     .product = *g,
			     .name = "a matrix product",
			     .flops = 2.0 * (double)g->m * (double)g->n * (double)g->k };
	const int64_t size[] = { g->m,      g->n,   g->k,
				 g->lda,    g->ldb, g->ldc,
				 g->ta,     g->tb,  (int64_t)g->ab_dtype,
				 g->c_dtype };
	const struct dev_ref at[] = { g->a, g->b, g->c, g->d.buf ? g->d : g->c };
	int n = 0;
	for (size_t i = 0; i < ARRAY_LEN(size); i++)
		w.same.value[n++] = (uint64_t)size[i];
	for (size_t i = 0; i < ARRAY_LEN(at); i++)
		w.same.value[n++] = rt_address(at[i]);
	memcpy(&w.same.value[n++], &g->alpha, sizeof g->alpha);
	memcpy(&w.same.value[n++], &g->beta, sizeof g->beta);
	w.same.n = n;
	return w;
}

int rt_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	struct rt *c = d->priv;
	if (g->ab_dtype > DT_F16 || (g->c_dtype != g->ab_dtype && g->c_dtype != DT_F32))
		return err_set(e, ERR_UNSUPPORTED, "%s has no matrix product of %s into %s",
			       c->v->backend, dtype_name(g->ab_dtype), dtype_name(g->c_dtype));
	TRY(rt_enter(c, e));
	say_slow(c, g->ab_dtype);
	find_blas(c);
	if (c->blas && g->k && c->blas->can(c->blas, g)) {
		struct rt_work w = product_of(g);
		w.fork = rt_block_of(g->b.buf)->named.panel;
		TRY(rt_use(c, g->a.buf, e));
		TRY(rt_use(c, g->b.buf, e));
		TRY(rt_use(c, g->c.buf, e));
		TRY(rt_use(c, g->d.buf, e));
		int done = rt_give_work(c, &w, e);
		if (done == ERR_NOMEM)
			done = rt_spare_back(c, e) ? rt_give_work(c, &w, e) : e->code;
		if (done)
			return done < 0 ? done : 0;
	}
	return portable_gemm(d, g, e);
}

/* A small product by the vendor's library, in whole numbers that every format holds. */
bool rt_probe(struct dev *d, enum dtype t)
{
	enum { SIDE = 32 };
	struct rt *c = d->priv;
	struct dev_buf *b[3] = { NULL };
	struct err ignored = { 0 };
	float x[SIDE * SIDE], got[SIDE * SIDE];
	uint16_t h[SIDE * SIDE];
	bool ok = true;
	find_blas(c);
	if (!c->blas || !c->v->native(c->arch, t))
		return false;
	for (int i = 0; i < SIDE * SIDE; i++)
		x[i] = (float)(i * 7 % 11 - 5);
	dtype_from_f32(t, x, h, SIDE * SIDE);
	for (int i = 0; i < 3 && ok; i++)
		ok = dev_alloc(d, i < 2 ? sizeof h : sizeof got, &b[i], &ignored) == 0 &&
		     (i == 2 || dev_upload(DEV_REF(b[i], 0), h, sizeof h, &ignored) == 0);
	if (ok) {
		const struct dev_gemm g = { .m = SIDE,
					    .n = SIDE,
					    .k = SIDE,
					    .tb = true,
					    .a = DEV_REF(b[0], 0),
					    .b = DEV_REF(b[1], 0),
					    .c = DEV_REF(b[2], 0),
					    .lda = SIDE,
					    .ldb = SIDE,
					    .ldc = SIDE,
					    .ab_dtype = t,
					    .c_dtype = DT_F32,
					    .alpha = 1 };
		ok = rt_use(c, b[0], &ignored) == 0 && rt_use(c, b[1], &ignored) == 0 &&
		     rt_use(c, b[2], &ignored) == 0 &&
		     c->blas->gemm(c->blas, c, &g, c->compute, &ignored) == 1 &&
		     rt_queued(c, 0, &ignored) == 0 &&
		     dev_download(got, DEV_REF(b[2], 0), sizeof got, &ignored) == 0;
	}
	for (int i = 0; i < SIDE && ok; i++)
		for (int j = 0; j < SIDE && ok; j++) {
			float want = 0;
			for (int l = 0; l < SIDE; l++)
				want += x[i * SIDE + l] * x[j * SIDE + l];
			ok = got[i * SIDE + j] == want;
		}
	for (int i = 0; i < 3; i++)
		dev_free(b[i]);
	return ok;
}
