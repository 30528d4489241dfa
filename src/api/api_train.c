/* SPDX-License-Identifier: Apache-2.0 */
/* api_train.c - hs_train(): a run of the engine, with the caller's data and callbacks. */
#include "api/api_config.h"
#include "api/api_data.h"
#include "api/run_metrics.h"

#include "base/mem.h"
#include "model/own.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

enum { DEVICES_MOST = 64 };

struct run {
	const hs_callbacks *on;
	const char *dir;         /* where metrics.jsonl is; NULL: the run leaves nothing */
	struct metrics *metrics; /* of it */
	volatile sig_atomic_t stop, *stop_p; /* the caller's, or that here */
	double rate;                         /* of the next step; NaN: the schedule's */
	uint64_t first;
	double *loss, *learning_rate, *grad_norm;
	size_t n, cap[3];
};

/* ---- what the engine tells ---- */

/* What a callback gave back. */
static int answer(struct run *r, int rc, const char *what, struct err *e)
{
	if (rc == HS_STOP)
		*r->stop_p = 1;
	return rc == HS_GO_ON || rc == HS_STOP
		       ? 0
		       : err_set(e, ERR_CANCELLED, "the callback '%s' failed with %d", what, rc);
}

static int begin(void *ctx, const struct train_info *i, struct err *e)
{
	struct run *r = ctx;
	r->first = i->first_step + 1;
	return r->dir ? run_metrics_open(r->dir, i, &r->metrics, e) : 0;
}

static int step(void *ctx, const struct train_step *s, struct err *e)
{
	struct run *r = ctx;
	const size_t n = r->n + 1;
	if (!mem_grow(&r->loss, &r->cap[0], n, sizeof *r->loss) ||
	    !mem_grow(&r->learning_rate, &r->cap[1], n, sizeof *r->learning_rate) ||
	    !mem_grow(&r->grad_norm, &r->cap[2], n, sizeof *r->grad_norm))
		return err_nomem(e, n * 24, "the history");
	r->loss[r->n] = s->loss;
	r->learning_rate[r->n] = s->learning_rate;
	r->grad_norm[r->n] = s->grad_norm;
	r->n = n;
	r->rate = NAN;
	if (r->metrics) {
		struct metrics_rewards w;
		const struct metrics_step m = run_metrics_of(s, &w);
		TRY(metrics_add(r->metrics, &m, e));
	}
	if (!r->on->step)
		return 0;
	const hs_step v = { .step = s->step,
			    .total = s->total,
			    .epoch = s->epoch,
			    .loss = s->loss,
			    .accuracy = s->accuracy,
			    .learning_rate = s->learning_rate,
			    .grad_norm = s->grad_norm,
			    .seconds = s->seconds,
			    .rows = s->trained,
			    .skipped = s->skipped };
	return answer(r, r->on->step(r->on->ctx, &v, &r->rate), "step", e);
}

static double rate(void *ctx, uint64_t step, double scheduled)
{
	const struct run *r = ctx;
	(void)step;
	return isnan(r->rate) ? scheduled : r->rate;
}

static int eval(void *ctx, const struct train_eval *v, struct err *e)
{
	struct run *r = ctx;
	const hs_evaluation u = { v->step, v->loss, v->accuracy, v->tokens };
	if (r->metrics)
		TRY(run_metrics_eval(r->metrics, v, e));
	return r->on->evaluated ? answer(r, r->on->evaluated(r->on->ctx, &u), "evaluated", e) : 0;
}

static int saved(void *ctx, uint64_t step, const char *path, struct err *e)
{
	struct run *r = ctx;
	return r->on->saved ? answer(r, r->on->saved(r->on->ctx, step, path), "saved", e) : 0;
}

static int change(void *ctx, const struct train_change *c, struct err *e)
{
	struct run *r = ctx;
	const hs_change u = { c->event, c->text, c->step };
	const uint64_t left = c->step + 1 > r->first ? c->step + 1 - r->first : 0;
	r->n = left < r->n ? (size_t)left : r->n; /* later steps are computed again */
	if (r->metrics)
		TRY(run_metrics_change(r->metrics, c, e));
	return r->on->changed ? answer(r, r->on->changed(r->on->ctx, &u), "changed", e) : 0;
}

/* ---- who computes ---- */

/* Blocks for each device, by their FLOP: device k gets blocks until its part of the sum. */
static void cut(const struct own_model *m, int64_t layers, int n, int64_t *first)
{
	double sum = 0, so_far = 0;
	double *cost = mem_array((size_t)layers, sizeof *cost);
	for (int64_t i = 0; cost && i < layers; i++) {
		const int at = m->first[i];
		cost[i] = 1;
		for (int k = at; k <= at + m->block[at].inside; k++)
			cost[i] += m->block[k].kind->flops ? m->block[k].kind->flops(&m->block[k])
							   : (double)own_count(&m->block[k].out);
		sum += cost[i];
	}
	first[0] = 0;
	first[n] = layers;
	int64_t at = 0;
	for (int k = 1; k < n; k++) {
		/* one block at least, and one for each device behind it */
		do
			so_far += cost ? cost[at] : 1;
		while (++at < layers - (n - k) && cost && so_far < sum * k / n);
		first[k] = at;
	}
	mem_free(cost);
}

static int place_on(const hs_model *m, const hs_options *o, struct placement *p, struct err *e)
{
	const int64_t layers = m->cfg.layers;
	if (o->devices > DEVICES_MOST || (int64_t)o->devices > layers)
		return err_set(e, ERR_USAGE,
			       "%zu devices for a model of %lld blocks: each needs one block at "
			       "least",
			       o->devices, (long long)layers);
	placement_single(&m->cfg, (const char **)(uintptr_t)o->device, p);
	p->stages = (int)o->devices;
	cut(&m->cfg.own, layers, p->stages, p->first);
	return 0;
}

static enum dtype dtype_of(const struct config *c)
{
	return c->compute_dtype == COMPUTE_BFLOAT16  ? DT_BF16
	       : c->compute_dtype == COMPUTE_FLOAT16 ? DT_F16
						     : DT_F32;
}

/* ---- the call ---- */

static void give_result(struct run *r, const struct train_result *t, hs_result *out)
{
	*out = (hs_result){ .step = t->step,
			    .total = t->total,
			    .stopped = t->interrupted || t->stopped_early || t->timed_out,
			    .first_loss = t->first_loss,
			    .last_loss = t->last_loss,
			    .held_before = t->val_before,
			    .held_after = t->val_after,
			    .seconds = t->seconds,
			    .first_step = r->first,
			    .steps = r->n,
			    .loss = r->loss,
			    .learning_rate = r->learning_rate,
			    .grad_norm = r->grad_norm };
	r->loss = r->learning_rate = r->grad_norm = NULL;
}

void hs_result_release(hs_result *r)
{
	if (!r)
		return;
	mem_free(r->loss);
	mem_free(r->learning_rate);
	mem_free(r->grad_norm);
	*r = (hs_result){ 0 };
}

static int run_it(hs_model *m, const struct api_samples *s, const hs_options *o, struct run *r,
		  struct train_result *t, struct err *e)
{
	struct api_config a;
	TRY(api_config_open(&a, m, o, s ? s->set.held : 0, e));
	struct placement *place = mem_zalloc(sizeof *place);
	struct train_options opts = { .stop = r->stop_p,
				      .act = dtype_of(a.c),
				      .allow_changes = o->allow_changes != 0,
				      .program = o->worker,
				      .samples = s ? &s->set : NULL };
	const struct train_sink sink = { .ctx = r,
					 .begin = begin,
					 .step = step,
					 .rate = rate,
					 .eval = eval,
					 .saved = saved,
					 .change = change };
	int rc = place ? api_check_role(a.c, e) : err_nomem(e, sizeof *place, "a run");
	if (rc >= 0 && o->devices && !m)
		rc = err_set(e, ERR_USAGE,
			     "`device` is for a model of one's own: write 'device' "
			     "or a cluster part into the configuration");
	if (rc >= 0 && o->devices)
		rc = place_on(m, o, place, e);
	opts.place = o->devices ? place : NULL;
	r->dir = a.own_dir ? NULL : a.c->output_dir;
	if (rc >= 0)
		rc = train_run(a.c, &opts, &sink, t, e);
	if (rc >= 0 && m)
		rc = api_take_values(m, t->dir, e);
	mem_free(place);
	metrics_close(r->metrics);
	api_config_close(&a);
	return rc;
}

int hs_train(hs_model *model, const hs_data *data, const hs_options *options, hs_result *result_p,
	     hs_error *out)
{
	hs_options o = hs_options_init();
	struct err e = { 0 };
	struct api_samples samples;
	struct train_result t = { 0 };
	if (options && !api_take(&o, sizeof o, options, API_OPTIONS_LEAST))
		return api_refuse(out, ERR_USAGE, "the options need `size`: sizeof(hs_options)");
	if (!model != !data)
		return api_refuse(out, ERR_USAGE, "hs_train needs a model and data, or neither");
	int rc = model ? api_enter(model, out) : 0;
	if (rc < 0)
		return rc;
	if (!api_run_begin()) {
		if (model)
			api_leave(model);
		return api_refuse(out, ERR_USAGE, "another hs_train() runs in this process");
	}
	struct run r = { .on = &o.on, .rate = NAN };
	r.stop_p = o.stop ? o.stop : &r.stop;
	if (model)
		rc = api_samples_init(&samples, model, data, out);
	if (rc >= 0) {
		rc = run_it(model, model ? &samples : NULL, &o, &r, &t, &e);
		if (rc < 0)
			api_error(&e, out);
	}
	if (rc >= 0 && result_p)
		give_result(&r, &t, result_p);
	mem_free(r.loss);
	mem_free(r.learning_rate);
	mem_free(r.grad_norm);
	api_run_end();
	if (model)
		api_leave(model);
	return rc < 0 ? rc : 0;
}
