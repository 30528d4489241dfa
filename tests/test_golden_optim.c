/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_optim.c - five steps of every optimizer against its reference: values and states of
 * two matrices, a vector and a small embedding (tests/golden/optim, made by
 * scripts/golden/optim.py).
 *
 * Tolerances: 2e-5 of the largest number (1 - 0.999 is 1.3e-5 off in float32). Muon 1e-4, because
 * its five steps multiply rounding errors by up to 3.4 each. Codes of 8 bits may differ by one
 * where a moment lies between two codes, and with them what follows, in at most 1 of 1,000
 * numbers. */
#include "base/err.h"
#include "base/mem.h"
#include "optim/optim.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 5 };

static const struct {
	const char *name;
	int ndim;
	int64_t dim[2];
} params[] = { { "model.layers.0.mlp.up_proj.weight", 2, { 72, 60 } },
	       { "model.layers.0.mlp.down_proj.weight", 2, { 40, 104 } },
	       { "model.layers.0.input_layernorm.weight", 1, { 50, 1 } },
	       { "model.embed_tokens.weight", 2, { 70, 16 } } };

/* draw() of the script. */
static float *draw(uint64_t n, uint64_t salt)
{
	float *v = mem_array(n, sizeof *v);
	assert_non_null(v);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t x = (i * 2654435761u + salt * 805459861u) & 0xffffffffu;
		x ^= x >> 15;
		x = x * 2246822519u & 0xffffffffu;
		x ^= x >> 13;
		v[i] = (float)((double)x / 2147483648.0 - 1) * (i % 5 ? 1 : 0.0625f);
	}
	return v;
}

static void compare(struct golden *g, const struct param *p, const struct optim_state *kind,
		    struct dev_buf *b, double tolerance, bool coded, double *worst)
{
	struct err e;
	const char *name = golden_name(g, "%s.%s", p->name, kind->name);
	const size_t size = dtype_size(kind->dtype);
	uint64_t n;
	const void *want = golden_get(g, name, kind->dtype, &n);
	assert_int_equal(n, kind->count);
	void *got = mem_array(n, size);
	assert_non_null(got);
	must(dev_download(got, DEV_REF(b, 0), n * size, &e), &e);
	if (kind->dtype == DT_U8) {
		const uint8_t *x = got, *y = want;
		uint64_t differ = 0;
		for (uint64_t i = 0; i < n; i++) {
			assert_in_range(abs(x[i] - y[i]), 0, 1);
			differ += x[i] != y[i];
		}
		if (differ * 1000 > n)
			fail_msg("%s: %d of %d codes differ", name, (int)differ, (int)n);
	} else {
		const float *x = got, *y = want;
		double most = 0;
		uint64_t far = 0;
		for (uint64_t i = 0; i < n; i++)
			most = fmax(most, fabs((double)y[i]));
		for (uint64_t i = 0; i < n; i++) {
			double d = fabs((double)x[i] - (double)y[i]) / most;
			far += !(d <= tolerance);
			if (!(d <= (coded ? 100 : 1) * tolerance))
				fail_msg("%s: difference %g", name, d);
			*worst = fmax(*worst, d);
		}
		if (far * 1000 > n)
			fail_msg("%s: %d of %d numbers differ", name, (int)far, (int)n);
	}
	mem_free(got);
}

static void one(const struct optimizer *o, const struct optim_config *c, double tolerance)
{
	struct err e;
	struct dev *d;
	struct golden g;
	struct dmem scratch;
	struct norm_buffer host = { 0 };
	char path[128];
	double worst = 0;
	snprintf(path, sizeof path, "tests/golden/optim/%s.safetensors", o->name);
	golden_open(&g, path);
	must(dev_open("cpu", &d, &e), &e);
	dmem_init(&scratch, d, 0);
	const struct optim_work work = { &scratch, &host };
	for (size_t k = 0; k < ARRAY_LEN(params); k++) {
		struct param p;
		must(param_init_plain(&p, d, params[k].name, params[k].ndim, params[k].dim, DT_F32,
				      true, &e),
		     &e);
		const int64_t n = param_count(&p);
		float *v = draw((uint64_t)n, 1000 + k);
		must(param_upload_f32(&p, 0, n, v, &e), &e);
		mem_free(v);
		must(optim_init(o, &p, c, &e), &e);
		for (uint64_t s = 1; s <= STEPS; s++) {
			/* the script halves the gradient itself */
			const struct optim_step os = { .step = s, .lr = 0.01f, .scale = 0.5f };
			v = draw((uint64_t)n, 100 * s + k);
			must(dev_upload(DEV_REF(p.grad, 0), v, (size_t)n * 4, &e), &e);
			mem_free(v);
			must(optim_update(o, &p, c, &os, &work, &e), &e);
		}
		struct optim_state kind[PARAM_STATES], value = optim_state_f32("value", 0);
		value.count = (uint64_t)n;
		int states = o->states(o, p.name, p.ndim, p.dim, kind);
		const bool coded = kind[0].dtype == DT_U8;
		compare(&g, &p, &value, p.value, tolerance, coded, &worst);
		for (int i = 0; i < states; i++)
			compare(&g, &p, &kind[i], p.state[i], tolerance, coded, &worst);
		param_release(&p);
	}
	print_message("%s: largest difference %.1e\n", o->name, worst);
	mem_free(host.sum);
	dmem_release(&scratch);
	dev_close(d);
	golden_close(&g);
}

/* Every row has a file; a new row fails here until its reference is there. */
static void optimizers(void **state)
{
	(void)state;
	const struct optimizer *o;
	for (size_t i = 0; (o = optimizer_at(i)); i++) {
		struct optim_config c = { .beta1 = 0.9,
					  .beta2 = 0.999,
					  .epsilon = 1e-8,
					  .momentum = 0.9,
					  .weight_decay = 0.1 };
		for (const struct optim_default *k = o->defaults; k && k->key; k++)
			*(strcmp(k->key, "momentum") ? &c.beta2 : &c.momentum) = k->value;
		one(o, &c, strcmp(o->name, "muon") ? 2e-5 : 1e-4);
	}
}

/* A parameter's own factor on the learning rate: a sixteenth of the rate times 16 has the same
 * bits. */
static void own_rate(void **state)
{
	(void)state;
	struct err e;
	struct dev *d;
	struct dmem scratch;
	struct norm_buffer host = { 0 };
	const struct optimizer *o;
	must(dev_open("cpu", &d, &e), &e);
	dmem_init(&scratch, d, 0);
	const struct optim_work work = { &scratch, &host };
	for (size_t i = 0; (o = optimizer_at(i)); i++) {
		const struct optim_config c = {
			.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .momentum = 0.9
		};
		float *g = draw(72 * 60, 7), *got[2];
		for (int k = 0; k < 2; k++) {
			struct param p;
			must(param_init_plain(&p, d, params[0].name, 2, params[0].dim, DT_F32, true,
					      &e),
			     &e);
			p.rate = k ? 16 : 0;
			must(param_upload_f32(&p, 0, 72 * 60, g, &e), &e);
			must(optim_init(o, &p, &c, &e), &e);
			must(dev_upload(DEV_REF(p.grad, 0), g, 72 * 60 * 4, &e), &e);
			const struct optim_step os = { .step = 1,
						       .lr = k ? 0.01f / 16 : 0.01f,
						       .scale = 1 };
			must(optim_update(o, &p, &c, &os, &work, &e), &e);
			got[k] = mem_array(72 * 60, 4);
			assert_non_null(got[k]);
			must(param_download_f32(&p, 0, 72 * 60, got[k], &e), &e);
			param_release(&p);
		}
		assert_memory_equal(got[0], got[1], 72 * 60 * 4);
		assert_memory_not_equal(got[0], g, 72 * 60 * 4);
		mem_free(got[0]);
		mem_free(got[1]);
		mem_free(g);
	}
	mem_free(host.sum);
	dmem_release(&scratch);
	dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(optimizers),
					    cmocka_unit_test(own_rate) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
