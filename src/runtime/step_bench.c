/* SPDX-License-Identifier: Apache-2.0 */
/* step_bench.c - see step_bench.h. */
#include "runtime/step_bench.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stat.h"
#include "dev/dev_null.h"
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_MOST = 64 };

static const struct step_bench_shape shapes[] = {
	{ "smollm2-135m",
	  { .family = "llama",
	    .layers = 30,
	    .hidden = 576,
	    .intermediate = 1536,
	    .heads = 9,
	    .kv_heads = 3,
	    .head_dim = 64,
	    .vocab = 49152,
	    .tied = true } },
	{ "llama3.2-1b",
	  { .family = "llama",
	    .layers = 16,
	    .hidden = 2048,
	    .intermediate = 8192,
	    .heads = 32,
	    .kv_heads = 8,
	    .head_dim = 64,
	    .vocab = 128256,
	    .tied = true } },
	{ "llama3-8b",
	  { .family = "llama",
	    .layers = 32,
	    .hidden = 4096,
	    .intermediate = 14336,
	    .heads = 32,
	    .kv_heads = 8,
	    .head_dim = 128,
	    .vocab = 128256 } },
};

int step_bench_shape(const char *name, int64_t layers, struct model_config *c_p, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		if (strcmp(shapes[i].name, name))
			continue;
		struct model_config c = shapes[i].cfg;
		if (layers > 0 && layers < c.layers)
			c.layers = layers;
		c.norm_eps = 1e-5;
		c.rope_scale[0] = 1;
		c.rot = c.head_dim;
		for (int64_t k = 0; k < c.head_dim / 2; k++)
			c.inv_freq[0][k] = (float)pow(10000, -(double)(2 * k) / (double)c.head_dim);
		*c_p = c;
		return 0;
	}
	return err_set(e, ERR_USAGE,
		       "there is no model shape '%s' (smollm2-135m, llama3.2-1b, llama3-8b)", name);
}

/* ---- timing ---- */

struct bench_tokens {
	int32_t *id, *pos, *label, *start;
};

static int make_tokens(struct bench_tokens *t, const struct model_config *c,
		       const struct step_bench_options *o, struct err *e)
{
	int64_t n = o->rows * o->length;
	t->id = mem_array((size_t)(3 * n + o->rows + 1), sizeof *t->id);
	if (!t->id)
		return err_nomem(e, (unsigned long long)n * 12, "tokens");
	t->pos = t->id + n;
	t->label = t->pos + n;
	t->start = t->label + n;
	for (int64_t i = 0; i < n; i++) {
		t->id[i] = (int32_t)(rng_mix64((uint64_t)i) % (uint64_t)c->vocab);
		t->pos[i] = (int32_t)(i % o->length);
		t->label[i] = o->all_trained || i & 1
				      ? (int32_t)(rng_mix64((uint64_t)i + 7) % (uint64_t)c->vocab)
				      : -100;
	}
	for (int64_t i = 0; i <= o->rows; i++)
		t->start[i] = (int32_t)(i * o->length);
	return 0;
}

static int update(struct stage *s, uint64_t step, struct err *e)
{
	const struct optimizer *o = optimizer_find("adamw");
	const struct optim_config oc = { .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 };
	const struct optim_step os = { .step = step, .lr = 1e-4f, .scale = 1e-3f };
	const struct optim_work work = { .scratch =
						 s->scratch }; /* adamw takes nothing on the host */
	TRY(stage_tie(s, s, e));
	for (size_t i = 0; i < s->nparam; i++) {
		if (!param_is_trained(&s->param[i]))
			continue;
		if (step == 1)
			TRY(optim_init(o, &s->param[i], &oc, e));
		TRY(optim_update(o, &s->param[i], &oc, &os, &work, e));
	}
	return dev_sync(s->dev, e);
}

/* What the null device was asked for between two calls, with `before` and without. */
static void count_work(struct dev *d, struct step_bench_result *r, bool before)
{
	const struct dev_null_counts *c = dev_null_counts(d);
	if (!c)
		return;
	const uint64_t given = c->entries + c->gemms + c->copies,
		       copied = c->copy_bytes + c->zero_bytes;
	r->given = before ? given : given - r->given;
	r->product_bytes = before ? c->gemm_bytes : c->gemm_bytes - r->product_bytes;
	r->copy_bytes = before ? copied : copied - r->copy_bytes;
}

static int run(struct stage *s, struct slot *sl, const struct bench_tokens *t,
	       const struct step_bench_options *o, struct step_bench_result *r, struct err *e)
{
	double fwd[REPEAT_MOST], bwd[REPEAT_MOST], upd[REPEAT_MOST];
	int n = o->repeat < 1 ? 1 : o->repeat > REPEAT_MOST ? REPEAT_MOST : o->repeat;
	for (int i = -1; i < n; i++) { /* the first one warms up */
		const struct stage_batch b = { .step = (uint64_t)(i + 2),
					       .n = o->rows * o->length,
					       .nseq = o->rows,
					       .id = t->id,
					       .pos = t->pos,
					       .label = t->label,
					       .start = t->start,
					       .train = true };
		uint64_t before = mem_count() + s->dev->allocs;
		int64_t t0 = clock_now();
		count_work(s->dev, r, true);
		TRY(stage_begin(sl, &b, e));
		TRY(stage_forward(sl, e));
		TRY(dev_sync(s->dev, e));
		int64_t t1 = clock_now();
		r->loss = sl->loss / (double)sl->trained;
		TRY(stage_backward(sl, e));
		TRY(dev_sync(s->dev, e));
		int64_t t2 = clock_now();
		stage_end(sl);
		count_work(s->dev, r, false);
		TRY(update(s, (uint64_t)(i + 2), e));
		int64_t t3 = clock_now();
		r->warm_allocs = mem_count() + s->dev->allocs - before;
		if (i < 0)
			continue;
		fwd[i] = clock_seconds(t1 - t0);
		bwd[i] = clock_seconds(t2 - t1);
		upd[i] = clock_seconds(t3 - t2);
	}
	r->forward = stat_median(fwd, (size_t)n);
	r->backward = stat_median(bwd, (size_t)n);
	r->update = stat_median(upd, (size_t)n);
	return 0;
}

int step_bench(struct dev *d, const struct model_config *c, const struct step_bench_options *o,
	       struct step_bench_result *r_p, struct err *e)
{
	const struct weight_source src = source_random(c);
	struct stage_options so = { .last = c->layers,
				    .act = o->act,
				    .quantize = o->nf4,
				    .double_quant = o->double_quant,
				    .recompute = o->recompute };
	if (o->lora_r > 0) {
		so.lora = (struct lora_options){ .r = o->lora_r, .scale = 2 };
		so.lora.target[LIN_Q] = so.lora.target[LIN_K] = so.lora.target[LIN_V] =
			so.lora.target[linear_as(c, LIN_O)] = true;
	}
	struct stage s;
	struct slot sl;
	struct bench_tokens t = { 0 };
	struct step_bench_result r = { 0 };
	d->mem_peak = d->mem_used; /* of this step alone */
	TRY(stage_build(&s, d, c, &so, &src, e));
	slot_init(&sl, &s);
	int rc = make_tokens(&t, c, o, e);
	if (rc >= 0)
		rc = run(&s, &sl, &t, o, &r, e);
	if (rc >= 0) {
		double tokens = (double)(o->rows * o->length), seconds = r.forward + r.backward;
		r.tokens_per_second = tokens / seconds;
		r.flops = 4 * (double)model_matmul_parameters(c) * tokens / seconds;
		/* causal: 2 products forward, 5 backward, half of each square */
		r.attention_flops =
			7 * tokens * (double)(o->length * c->heads * c->head_dim * c->layers);
		r.mem_peak = d->mem_peak;
		*r_p = r;
	}
	mem_free(t.id);
	slot_release(&sl);
	stage_release(&s);
	return rc;
}
