/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_own.c - models of one's own: what their text may not say, the names of parameters, and
 * that a stage computes the same with and without recomputation and wherever it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/model_block.h"
#include "model/own.h"
#include "model/own_text.h"
#include "model/source.h"
#include "model/stage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void texts_that_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "begins with 'input SHAPE'" },
		{ "linear 3; mse", "begins with 'input SHAPE'" },
		{ "input; mse", "'input' needs one to three numbers" },
		{ "input 2 3 4 5; mse", "'input' needs one to three numbers" },
		{ "input 0; mse", "must be a whole number from 1" },
		{ "tokens 5; mse", "'tokens' needs two numbers" },
		{ "input 4", "has no block" },
		{ "input 4; mse", "has no block" },
		{ "input 4; linear 3", "no loss at its end" },
		{ "input 4; linear; mse", "'linear' needs 'out'" },
		{ "input 4; linear 3 1 5; mse", "'linear' has no setting '5'" },
		{ "input 4; linear out=3 out=4; mse", "'out' of 'linear' is given twice" },
		{ "input 4; linear x=3; mse", "'linear' has no setting 'x'" },
		{ "input 4; linear 2.5; mse", "must be a whole number" },
		{ "input 4; linear three; mse", "which is no number" },
		{ "input 4; lnear 3; mse", "no kind of block 'lnear' here" },
		{ "input 4; mse; linear 3", "'linear' stands behind the loss" },
		{ "input 4; linear 3; mse; mse", "'mse' stands behind the loss" },
		{ "input 3 8 8; linear 4; mse",
		  "'linear' needs rows of the shape (width); put 'flatten' before it, but 'input' "
		  "gives (3, 8, 8)" },
		{ "input 9; linear 8; attention 3; mse",
		  "'attention' needs rows of the shape (width), with width / heads an even number "
		  "up to 512, but 'linear' gives (8)" },
		{ "input 4; residual; mse", "'residual' needs blocks in braces" },
		{ "input 4; residual { }; mse", "no block inside of 'residual'" },
		{ "input 4; residual { relu; mse", "'mse' is a loss and stands inside" },
		{ "input 4; residual { relu", "a brace of 'residual' is not closed" },
		{ "input 4; residual { linear 3 }; mse",
		  "the blocks inside of 'residual' give rows of the shape (3); (4) is needed" },
		{ "input 4; relu }; mse", "'}; mse' is not understood" },
		{ "input 4; relu !; mse", "behind 'relu' is not understood" },
		{ "input 4; linear 16777216; mse; ", NULL },
		{ "input 4 # a comment; is ignored\n linear 2 # so\n mse", NULL },
	};
	(void)state;
	struct own_model *m = mem_zalloc(sizeof *m);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };
		const int rc = own_read(bad[i].text, strlen(bad[i].text), "m", m, &e);
		if ((rc < 0) != (bad[i].says != NULL) ||
		    (bad[i].says && !strstr(e.msg, bad[i].says)))
			fail_msg("'%s': %s", bad[i].text, rc < 0 ? e.msg : "was read");
		assert_null(strchr(e.msg, '\n'));
	}
	mem_free(m);
}

static void names_are_those_of_sequential(void **state)
{
	static const char text[] = "tokens 7 8\nresidual { layer_norm; residual { linear 8 } }\n"
				   "relu\nlinear 3 bias=0\ncross_entropy";
	static const struct {
		const char *name;
		int layer;
		int64_t rows, cols;
	} want[] = { { "embed.weight", -1, 7, 8 }, { "0.0.weight", 0, 8, 0 },
		     { "0.0.bias", 0, 8, 0 },      { "0.1.0.weight", 0, 8, 8 },
		     { "0.1.0.bias", 0, 8, 0 },    { "2.weight", 2, 3, 8 } };
	struct own_model *m = mem_zalloc(sizeof *m);
	struct err e = { 0 };
	struct own_param p;
	char name[256];
	int layer;
	(void)state;
	if (own_read(text, strlen(text), "m", m, &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		assert_true(own_param_at(m, i, &p, name, &layer));
		assert_string_equal(name, want[i].name);
		assert_int_equal(layer, want[i].layer);
		assert_int_equal(p.dim[0], want[i].rows);
		if (want[i].cols)
			assert_int_equal(p.dim[1], want[i].cols);
	}
	assert_false(own_param_at(m, ARRAY_LEN(want), &p, name, &layer));
	mem_free(m);
}

/* ---- stages ---- */

enum { N = 12, WIDE = 6, CLASSES = 5 };

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, e.msg);                                          \
	} while (0)

struct part {
	struct stage s;
	struct slot sl;
};

/* The gradients of all parameters, in the order of the model, and the loss. */
static double gradients(const char *text, const int64_t *border, int parts, bool recompute,
			float *out, size_t *n_p)
{
	struct err e = { 0 };
	struct dev *dev;
	struct part part[3] = { 0 };
	struct model_config *cfg = mem_zalloc(sizeof *cfg);
	float x[N * WIDE];
	int32_t label[N], pos[N], start[4] = { 0, 5, 6, N };
	json_t *j = json_pack("{s:s, s:s}", "model_type", "heteroshard", "blocks", text);
	MUST(model_config_read(j, "m", cfg, &e));
	json_decref(j);
	MUST(dev_open("cpu", &dev, &e));
	const struct weight_source src = source_random(cfg);
	for (int i = 0; i < N * WIDE; i++)
		x[i] = rng_normal(rng_key(5), (uint64_t)i);
	for (int i = 0; i < N; i++) {
		label[i] = i % 4 == 2 ? -100 : i % CLASSES;
		pos[i] = i < 5 ? i : i < 6 ? 0 : i - 6;
	}
	for (int k = 0; k < parts; k++) {
		const struct stage_options o = { .first = border[k],
						 .last = border[k + 1] < 0 ? cfg->layers
									   : border[k + 1],
						 .act = DT_F32,
						 .train_all = true,
						 .by_row = true,
						 .seed = 3,
						 .recompute = recompute };
		MUST(stage_build(&part[k].s, dev, cfg, &o, &src, &e));
		slot_init(&part[k].sl, &part[k].s);
		const struct stage_batch b = { .step = 2,
					       .n = N,
					       .nseq = 3,
					       .nrows = 3,
					       .row = start,
					       .id = (const int32_t *)(const void *)x,
					       .pos = pos,
					       .label = label,
					       .start = start,
					       .train = true };
		MUST(stage_begin(&part[k].sl, &b, &e));
		if (k)
			MUST(dev_copy(part[k].sl.in, part[k - 1].sl.out,
				      stage_bytes(&part[k].s, N, o.first), &e));
		MUST(stage_forward(&part[k].sl, &e));
	}
	*n_p = 0;
	for (int k = parts - 1; k >= 0; k--) {
		MUST(stage_backward(&part[k].sl, &e));
		if (k)
			MUST(dev_copy(part[k - 1].sl.grad, part[k].sl.grad,
				      stage_bytes(&part[k].s, N, part[k].s.opt.first), &e));
	}
	const double loss = part[parts - 1].sl.loss;
	for (int k = 0; k < parts; k++) {
		for (size_t i = 0; i < part[k].s.nparam; i++) {
			const struct param *p = &part[k].s.param[i];
			const size_t count = (size_t)param_count(p);
			MUST(dev_download(out + *n_p, DEV_REF(p->grad, 0), count * 4, &e));
			*n_p += count;
		}
		slot_release(&part[k].sl);
		stage_release(&part[k].s);
	}
	mem_free(cfg);
	dev_close(dev);
	return loss;
}

static void same_bits_wherever_it_is_cut(void **state)
{
	static const char text[] =
		"input 6; linear 24; gelu; dropout 0.25; residual { layer_norm; attention heads=3 "
		"kv_heads=1 bias=1; dropout 0.5 }; rms_norm; linear 9; tanh; silu; sigmoid; relu; "
		"gelu_tanh; reshape 3 3; flatten; linear 5; cross_entropy";
	static const int64_t whole[] = { 0, -1 }, two[] = { 0, 4, -1 }, three[] = { 0, 1, 6, -1 };
	static float a[8192], b[8192];
	size_t n, m;
	(void)state;
	const double loss = gradients(text, whole, 1, false, a, &n);
	double size = 0;
	for (size_t i = 0; i < n; i++)
		size += (double)(a[i] * a[i]);
	printf("loss %.6f of %d rows, %zu gradients of the size %.3g\n", loss, N, n, sqrt(size));
	assert_true(loss > 0 && size > 0);
	for (int how = 0; how < 6; how++) {
		const int parts = how / 2 + 1;
		const int64_t *border = parts == 1 ? whole : parts == 2 ? two : three;
		const double l = gradients(text, border, parts, how % 2, b, &m);
		assert_true(l == loss);
		assert_int_equal(n, m);
		assert_memory_equal(a, b, n * sizeof *a);
	}
}

/* A slot expects of a microbatch as much as of the one before, by its size. Tensors are rounded up,
 * so an estimate without room for that gives the last of them a block of its own. */
static void a_slot_takes_one_block(void **state)
{
	enum { LEAST = 100, MOST = 160 };
	static const char text[] = "input 600; linear 600; relu; linear 600; mse";
	static float x[MOST * 600];
	struct err e = { 0 };
	struct dev *dev;
	struct part part = { 0 };
	int32_t row[MOST + 1];
	(void)state;
	struct model_config *cfg = mem_zalloc(sizeof *cfg);
	json_t *j = json_pack("{s:s, s:s}", "model_type", "heteroshard", "blocks", text);
	MUST(model_config_read(j, "m", cfg, &e));
	json_decref(j);
	MUST(dev_open("cpu", &dev, &e));
	const struct weight_source src = source_random(cfg);
	/* the front and its blocks, without the end */
	const struct stage_options o = { .last = 2, .act = DT_F32, .recompute = true };
	MUST(stage_build(&part.s, dev, cfg, &o, &src, &e));
	slot_init(&part.sl, &part.s);
	for (int i = 0; i <= MOST; i++)
		row[i] = i;
	for (int n = LEAST; n <= MOST; n++) {
		const struct stage_batch b = { .n = n,
					       .nseq = n,
					       .nrows = n,
					       .row = row,
					       .start = row,
					       .id = (const int32_t *)(const void *)x,
					       .pos = row,
					       .label = row,
					       .train = true };
		MUST(stage_begin(&part.sl, &b, &e));
		MUST(stage_forward(&part.sl, &e));
		if (n > LEAST)
			assert_int_equal(part.sl.mem.nblock, 1);
		stage_end(&part.sl);
	}
	slot_release(&part.sl);
	stage_release(&part.s);
	mem_free(cfg);
	dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_that_are_refused),
		cmocka_unit_test(names_are_those_of_sequential),
		cmocka_unit_test(same_bits_wherever_it_is_cut),
		cmocka_unit_test(a_slot_takes_one_block),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
