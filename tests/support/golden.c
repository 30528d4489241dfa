/* SPDX-License-Identifier: Apache-2.0 */
/* golden.c - see golden.h. */
#include "support/golden.h"

#include "base/buf.h"
#include "base/mem.h"
#include "file/model_file.h"
#include "file/safetensors.h"
#include "optim/optim.h"
#include "runtime/runtime.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void must(int rc, struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

void golden_open(struct golden *g, const char *path)
{
	struct err e;
	*g = (struct golden){ .path = path };
	must(st_open(path, &g->file, &e), &e);
}

void golden_close(struct golden *g)
{
	st_close(g->file);
	arena_release(&g->mem);
	*g = (struct golden){ 0 };
}

bool golden_has(struct golden *g, const char *name) { return st_find(g->file, name) != NULL; }

const void *golden_get(struct golden *g, const char *name, enum dtype dtype, uint64_t *n_p)
{
	const struct st_tensor *t = st_find(g->file, name);
	if (!t)
		fail_msg("%s has no tensor %s", g->path, name);
	if (t->dtype != dtype)
		fail_msg("%s: %s is %s, not %s", g->path, name, dtype_name(t->dtype),
			 dtype_name(dtype));
	void *p = arena_alloc(&g->mem, t->bytes);
	assert_non_null(p);
	memcpy(p, t->data, t->bytes);
	if (n_p)
		*n_p = t->count;
	return p;
}

const float *golden_f32(struct golden *g, const char *name, uint64_t *n_p)
{
	return golden_get(g, name, DT_F32, n_p);
}
const double *golden_f64(struct golden *g, const char *name, uint64_t *n_p)
{
	return golden_get(g, name, DT_F64, n_p);
}
const int32_t *golden_i32(struct golden *g, const char *name, uint64_t *n_p)
{
	return golden_get(g, name, DT_I32, n_p);
}

const char *golden_name(struct golden *g, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	assert_true(n > 0 && (size_t)n < sizeof text);
	const char *kept = arena_strdup(&g->mem, text);
	assert_non_null(kept);
	return kept;
}

struct stage_batch golden_batch(struct golden *g, const char *prefix, int64_t *trained_p)
{
	uint64_t n, npos, nlabel, nstart;
	struct stage_batch b = { .id = golden_i32(g, golden_name(g, "%sid", prefix), &n),
				 .pos = golden_i32(g, golden_name(g, "%spos", prefix), &npos),
				 .label = golden_i32(g, golden_name(g, "%slabel", prefix), &nlabel),
				 .start = golden_i32(g, golden_name(g, "%sstart", prefix),
						     &nstart) };
	assert_true(npos == n && nlabel == n && nstart >= 2 && (uint64_t)b.start[nstart - 1] == n);
	b.n = (int64_t)n;
	b.nseq = (int64_t)nstart - 1;
	*trained_p = 0;
	for (uint64_t i = 0; i < n; i++)
		*trained_p += b.label[i] >= 0;
	return b;
}

double golden_distance(const float *got, const float *want, uint64_t n)
{
	double worst = 0;
	for (uint64_t i = 0; i < n; i++) {
		double d = fabs((double)got[i] - (double)want[i]);
		if (!(d <= worst))
			worst = d;
		if (isnan(d))
			return d;
	}
	return worst;
}

double golden_relative(const float *got, const float *want, uint64_t n)
{
	double most = 1e-30;
	for (uint64_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)want[i]));
	return golden_distance(got, want, n) / most;
}

void golden_model_config(const char *path, struct model_config *c)
{
	struct err e;
	struct model_file *f;
	must(model_file_open(path, &f, &e), &e);
	must(model_config_read(model_file_config(f), path, c, &e), &e);
	model_file_close(f);
}

void golden_model_open(struct golden_model *m, const char *path, const struct stage_options *o)
{
	struct err e;
	*m = (struct golden_model){ 0 };
	must(dev_open("cpu", &m->dev, &e), &e);
	must(model_file_open(path, &m->file, &e), &e);
	must(model_config_read(model_file_config(m->file), path, &m->cfg, &e), &e);
	must(source_check_file(m->file, &m->cfg, &e), &e);
	if (o->lora.save_embed || o->lora.save_head)
		must(runtime_untie(m->file, &m->cfg, &e), &e);
	struct stage_options all = *o;
	all.first = 0;
	all.last = m->cfg.layers;
	struct weight_source src = source_from_file(m->file);
	must(stage_build(&m->stage, m->dev, &m->cfg, &all, &src, &e), &e);
	slot_init(&m->slot, &m->stage);
}

void golden_model_close(struct golden_model *m)
{
	slot_release(&m->slot);
	stage_release(&m->stage);
	model_file_close(m->file);
	dev_close(m->dev);
}

void golden_set(struct golden_model *m, const char *name, const float *v, uint64_t n)
{
	struct err e;
	struct param *p = stage_param(&m->stage, name);
	if (!p || !p->trainable)
		fail_msg("the stage has no trained parameter %s", name);
	assert_true((uint64_t)param_count(p) == n);
	must(param_upload_f32(p, 0, (int64_t)n, v, &e), &e);
	must(param_refresh(p, &e), &e);
}

double golden_sqnorm(struct golden_model *m)
{
	struct err e;
	struct norm_buffer b = { 0 };
	double sum = 0, one;
	for (size_t i = 0; i < m->stage.nparam; i++) {
		if (!param_is_trained(&m->stage.param[i]))
			continue;
		must(grad_sqnorm(&m->stage.param[i], m->stage.scratch, &b, &one, &e), &e);
		sum += one;
	}
	mem_free(b.sum);
	return sum;
}
