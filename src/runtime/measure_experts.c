/* SPDX-License-Identifier: Apache-2.0 */
/* measure_experts.c - see measure_experts.h. */
#include "runtime/measure_experts.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/stat.h"
#include "model/model_block.h"

enum { RUNS = 5 };

struct rows {
	struct stage *stage;
	struct dmem mem;
	struct arena host;
	struct routing r;
	int64_t layer, tokens;
	struct dev_ref x;
};

/* (M,C): those of the tokens, one after the other. */
static int fill(const struct rows *v, struct dev_ref to, struct err *e)
{
	const size_t row = (size_t)v->stage->cfg.hidden * dtype_size(v->stage->opt.act);
	for (int64_t at = 0; at < v->r.n; at += v->tokens) {
		const int64_t some = v->r.n - at < v->tokens ? v->r.n - at : v->tokens;
		TRY(dev_copy(DEV_REF(to.buf, to.off + (size_t)at * row), v->x, (size_t)some * row,
			     e));
	}
	return 0;
}

static int run(struct rows *v, double *forward_p, double *backward_p, struct err *e)
{
	const struct stage *s = v->stage;
	const int64_t dim[2] = { v->r.n, s->cfg.hidden };
	struct tape t = { .dev = s->dev,
			  .act = s->opt.act,
			  .mem = &v->mem,
			  .scratch = s->scratch,
			  .host = &v->host,
			  .record = true };
	struct slot view = { .stage = v->stage,
			     .b = { .step = 1, .n = v->tokens, .nseq = 1, .train = true } };
	struct dmem_mark k = dmem_mark(s->scratch);
	struct tensor *x, *y, *dy;
	TRY(tape_new(&t, &v->mem, s->opt.act, 2, dim, &x, e));
	TRY(fill(v, x->at, e));
	x->needs_grad = true;
	TRY(dev_sync(s->dev, e));
	const int64_t t0 = clock_now();
	TRY(s->blocks->experts(&view, &t, v->layer, x, &v->r, &y, e));
	TRY(dev_sync(s->dev, e));
	const int64_t t1 = clock_now();
	TRY(tape_new(&t, &v->mem, s->opt.act, 2, dim, &dy, e));
	TRY(fill(v, dy->at, e));
	TRY(dev_sync(s->dev, e));
	const int64_t t2 = clock_now();
	TRY(tape_seed(&t, y, dy->at, e));
	t.mem = s->scratch;
	TRY(tape_backward(&t, e));
	TRY(dev_sync(s->dev, e));
	*backward_p = clock_seconds(clock_now() - t2);
	*forward_p = clock_seconds(t1 - t0);
	dmem_back(s->scratch, k);
	dmem_reset(&v->mem);
	return 0;
}

int measure_experts(struct stage *s, int64_t layer, int64_t n, struct dev_ref x, double *forward_p,
		    double *backward_p, struct err *e)
{
	const int64_t experts = s->cfg.experts;
	struct rows v = { .stage = s, .layer = layer, .tokens = n, .x = x };
	struct arena a = ARENA_INIT;
	int64_t *first = arena_alloc(&a, (size_t)(experts + 1) * sizeof *first);
	double f[RUNS + 1], b[RUNS + 1];
	int rc = first ? 0 : err_nomem(e, (size_t)experts * 8, "the rows of experts");
	v.r = (struct routing){ .n = n * s->cfg.top_k, .experts = experts, .k = 1, .first = first };
	for (int64_t i = 0; first && i <= experts; i++)
		first[i] = v.r.n * i / experts;
	dmem_init(&v.mem, s->dev, 64 << 10);
	for (int i = 0; i <= RUNS && rc >= 0; i++) { /* the first one warms up */
		rc = run(&v, &f[i], &b[i], e);
		arena_reset(&v.host);
	}
	if (rc >= 0) {
		*forward_p = stat_median(f + 1, RUNS);
		*backward_p = stat_median(b + 1, RUNS);
	}
	dmem_release(&v.mem);
	arena_release(&v.host);
	arena_release(&a);
	return rc;
}
