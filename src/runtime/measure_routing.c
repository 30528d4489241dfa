/* SPDX-License-Identifier: Apache-2.0 */
/* measure_routing.c - see measure_routing.h. */
#include "runtime/measure_routing.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/source.h"
#include "runtime/runtime.h"

#include <string.h>

struct routing_run {
	const struct routing_ask *ask;
	struct dev *dev;
	struct stage_options opt;
	unsigned char **h; /* [n] what goes from layer to layer */
	/* [experts] of each; nobody asks for them */
	double *probability;
	float *balance;
};

/* The tokens of one microbatch through the layer of the stage. */
static int pass(struct routing_run *r, struct slot *sl, size_t k, double *picks, struct err *e)
{
	const struct microbatch *mb = &r->ask->mb[k];
	const struct stage *s = sl->stage;
	const size_t bytes = (size_t)mb->n * (size_t)r->ask->cfg->hidden * dtype_size(s->opt.act);
	struct router_sums sums = { .experts = r->ask->cfg->experts,
				    .picks = picks,
				    .probability = r->probability,
				    .balance = r->balance };
	const struct stage_batch b = runtime_batch(mb, k);
	TRY(stage_begin(sl, &b, e));
	sl->sums = &sums;
	if (!s->front)
		TRY(dev_upload(sl->in, r->h[k], bytes, e));
	TRY(stage_forward(sl, e));
	if (!s->end)
		TRY(dev_download(r->h[k], sl->out, bytes, e));
	stage_end(sl);
	return 0;
}

static int layer(struct routing_run *r, int64_t l, double *picks, struct err *e)
{
	struct stage s;
	struct slot sl;
	const struct weight_source src = source_from_file(r->ask->file);
	r->opt.first = l;
	r->opt.last = l + 1;
	TRY(stage_build(&s, r->dev, r->ask->cfg, &r->opt, &src, e));
	slot_init(&sl, &s);
	int rc = 0;
	for (size_t k = 0; k < r->ask->n && rc >= 0; k++)
		rc = pass(r, &sl, k, picks, e);
	slot_release(&sl);
	stage_release(&s);
	return rc;
}

static int open_run(struct routing_run *r, struct err *e)
{
	const struct routing_ask *a = r->ask;
	r->opt = (struct stage_options){ .act = a->opt->act == DT_BF16 ? DT_BF16 : DT_F32,
					 .quantize = a->opt->quantize,
					 .double_quant = a->opt->double_quant };
	r->h = mem_array(a->n, sizeof *r->h);
	r->probability = mem_array((size_t)a->cfg->experts, sizeof *r->probability);
	r->balance = mem_array((size_t)a->cfg->experts, sizeof *r->balance);
	if (!r->h || !r->probability || !r->balance)
		return err_nomem(e, a->n * sizeof *r->h, "tokens");
	for (size_t k = 0; k < a->n; k++) {
		const size_t bytes = (size_t)a->mb[k].n * (size_t)a->cfg->hidden * 4;
		r->h[k] = mem_alloc(bytes);
		if (!r->h[k])
			return err_nomem(e, bytes, "tokens");
	}
	return dev_open("cpu", &r->dev, e);
}

int measure_routing(const struct routing_ask *a, double *picks, struct err *e)
{
	struct routing_run r = { .ask = a };
	const int64_t begin = clock_now(), experts = a->cfg->experts;
	memset(picks, 0, (size_t)(a->cfg->layers * experts) * sizeof *picks);
	int rc = open_run(&r, e);
	for (int64_t l = 0; l < a->cfg->layers && rc >= 0; l++) {
		if (clock_seconds(clock_now() - begin) > a->seconds)
			break;
		rc = layer(&r, l, picks + l * experts, e);
	}
	for (size_t k = 0; r.h && k < a->n; k++)
		mem_free(r.h[k]);
	mem_free(r.h);
	mem_free(r.probability);
	mem_free(r.balance);
	dev_close(r.dev);
	return rc;
}
