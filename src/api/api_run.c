/* SPDX-License-Identifier: Apache-2.0 */
/* api_run.c - a model forwards, on one device: hs_evaluate(), hs_predict(). */
#include "api/api_data.h"

#include "base/mem.h"
#include "model/own.h"
#include "runtime/own_local.h"

#include <math.h>
#include <string.h>

enum { AT_ONCE = 256 };

static int evaluate(hs_model *m, const struct api_samples *s, const char *device, uint32_t batch,
		    hs_evaluation *v, struct err *e)
{
	const struct batch_options o = { .micro_batch_size = batch, .accumulation = 1 };
	const struct weight_source src = api_source(m);
	struct sample_set all = s->set;
	struct batches *b;
	struct own_local l;
	double loss = 0, right = 0, rows = 0;
	all.count += all.held;
	all.held = 0;
	TRY(batches_of_samples(&all, &o, &b, e));
	int rc = own_local_open(&l, &m->cfg, &src, device, e);
	for (uint64_t i = 0, n = batches_per_epoch(b, 0); rc >= 0 && i < n; i++) {
		const struct microbatch *mb;
		size_t count;
		rc = batches_get(b, 0, i, &mb, &count, e);
		if (rc >= 0)
			rc = own_local_run(&l, mb, NULL, e);
		loss += l.slot.loss;
		right += (double)l.slot.hits;
		rows += (double)l.slot.trained;
	}
	own_local_close(&l);
	batches_free(b);
	if (rc >= 0)
		*v = (hs_evaluation){ .loss = rows > 0 ? loss / rows : NAN,
				      .accuracy = rows > 0 ? right / rows : NAN,
				      .rows = (uint64_t)rows };
	return rc;
}

int hs_evaluate(hs_model *model, const hs_data *data, const char *device, uint32_t batch,
		hs_evaluation *v_p, hs_error *out)
{
	struct err e = { 0 };
	struct api_samples s;
	if (!v_p)
		return api_refuse(out, ERR_USAGE, "hs_evaluate: an argument is NULL");
	int rc = api_enter(model, out);
	if (rc < 0)
		return rc;
	rc = api_samples_init(&s, model, data, out);
	if (rc >= 0) {
		rc = evaluate(model, &s, device, batch ? batch : AT_ONCE, v_p, &e);
		if (rc < 0)
			api_error(&e, out);
	}
	api_leave(model);
	return rc < 0 ? rc : 0;
}

/* Samples in parts of so many, all without a target. */
struct pass {
	int32_t *pos, *start, *none;
};

static int make_pass(struct pass *p, const struct own_model *m, int64_t samples, int64_t length,
		     struct err *e)
{
	const int64_t rows = samples * length, targets = rows * own_target_words(m);
	p->pos = mem_array((size_t)rows, sizeof *p->pos);
	p->start = mem_array((size_t)samples + 1, sizeof *p->start);
	p->none = mem_array((size_t)targets, sizeof *p->none);
	if (!p->pos || !p->start || !p->none)
		return err_nomem(e, (unsigned long long)(rows + targets) * 4, "a prediction");
	for (int64_t i = 0; i < rows; i++)
		p->pos[i] = (int32_t)(i % length);
	for (int64_t i = 0; i <= samples; i++)
		p->start[i] = (int32_t)(i * length);
	for (int64_t i = 0; i < targets; i++)
		p->none[i] = own_has_classes(m) ? -100 : 0;
	return 0;
}

static int predict(hs_model *m, const char *device, const void *x, uint64_t count, uint32_t length,
		   float *y, struct err *e)
{
	const struct own_model *own = &m->cfg.own;
	const struct weight_source src = api_source(m);
	const int64_t in = own_input_words(own) * length, out = own_count(&own->loss.in) * length,
		      most = count < AT_ONCE ? (int64_t)count : AT_ONCE;
	struct pass p = { 0 };
	struct own_local l = { 0 };
	int rc = make_pass(&p, own, most, length, e);
	if (rc >= 0)
		rc = own_local_open(&l, &m->cfg, &src, device, e);
	for (uint64_t at = 0; rc >= 0 && at < count; at += AT_ONCE) {
		const uint64_t n = count - at < AT_ONCE ? count - at : AT_ONCE;
		const struct microbatch mb = { .n = (uint32_t)(n * length),
					       .nseq = (uint32_t)n,
					       .nrows = (uint32_t)n,
					       .id = (const int32_t *)x + (int64_t)at * in,
					       .pos = p.pos,
					       .label = p.none,
					       .start = p.start,
					       .row = p.start };
		rc = own_local_run(&l, &mb, y + (int64_t)at * out, e);
	}
	own_local_close(&l);
	mem_free(p.pos);
	mem_free(p.start);
	mem_free(p.none);
	return rc;
}

int hs_predict(hs_model *model, const char *device, const void *x, uint64_t count, uint32_t length,
	       float *y, hs_error *out)
{
	struct err e = { 0 };
	length = length ? length : 1;
	if (!x || !y || !count || count > INT32_MAX || length > SAMPLE_ROWS_MOST)
		return api_refuse(out, ERR_USAGE,
				  "hs_predict: an array is NULL, or there are no samples, or too "
				  "many");
	int rc = api_enter(model, out);
	if (rc < 0)
		return rc;
	rc = predict(model, device, x, count, length, y, &e);
	if (rc < 0)
		api_error(&e, out);
	api_leave(model);
	return rc < 0 ? rc : 0;
}
