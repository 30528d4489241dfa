/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_linear.c - linear layers in two forms that must be the same: joined or one by one,
 * weights in NF4 or expanded. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/quant.h"
#include "tensor/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_bench.h"

/* The parts of a joined op, as linear layers of their own, give the same numbers and gradients:
 * with dropout and without; plain, NF4, and plain weights that do not lie one behind the other. */
static void joined_layers_are_the_layers(void **state)
{
	enum { ROWS = 20, IN = 32 };
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct err err = { 0 };
		struct bench b;
		struct param q[2], *both[2] = { &q[0], &q[1] };
		struct joined_linear j = { .n = 2, .key = { 11, 12 } };
		struct tensor *x, *y, *z[2];
		struct dev_ref seed;
		float w[ROWS * IN], kept[4][ROWS * IN], dx[N * IN];
		bench_open(&b);
		x = bench_input(&b, 2, (const int64_t[]){ N, IN });
		for (int i = 0; i < 2; i++) {
			const int64_t dim[2] = { ROWS, IN };
			uint8_t packed[ROWS * IN / 2];
			float absmax[ROWS * IN / 64];
			bench_fill(&b, w, ROWS * IN, 1);
			nf4_quantize(w, ROWS * IN, packed, absmax);
			const struct nf4_parts parts = {
				.packed = packed, .absmax = absmax, .code = nf4_code, .block = 64
			};
			if (how / 2 == 1)
				OK(param_init_nf4(&q[i], b.dev, "q", dim, &parts, &err));
			else
				OK(param_init_plain(&q[i], b.dev, "q", 2, dim, DT_F32, false,
						    &err));
			if (how / 2 != 1)
				OK(param_upload_f32(&q[i], 0, ROWS * IN, w, &err));
			bench_param(&b, 2, R + i, IN);
			bench_param(&b, 2, ROWS, R + i);
			j.part[i] =
				(struct linear_part){ .w = &q[i],
						      .lora = { .a = b.par[2 * i],
								.b = b.par[2 * i + 1],
								.scale = 1.5f,
								.dropout = how % 2 ? 0.25f : 0 } };
		}
		if (how / 2 == 2)
			OK(param_join(both, 2, &err));
		OK(dmem_take(&b.mem, N * 2 * ROWS * 4, &seed, &err));
		bench_fill(&b, bench_host(seed), N * 2 * ROWS, 1);
		OK(op_joined_apply(&b.tape, x, &j, &y, &err));
		OK(tape_seed(&b.tape, y, seed, &err));
		OK(tape_backward(&b.tape, &err));
		memcpy(dx, bench_host(x->grad->at), sizeof dx);
		for (int k = 0; k < 4; k++) {
			const size_t bytes = (size_t)param_count(b.par[k]) * 4;
			memcpy(kept[k], b.par[k]->grad->host, bytes);
			OK(dev_zero(DEV_REF(b.par[k]->grad, 0), bytes, &err));
		}
		tape_reset(&b.tape);
		x->grad = NULL;
		x->grad_written = false;
		double worst = 0;
		for (int i = 0; i < 2; i++) {
			OK(op_linear_apply(&b.tape, x, &q[i], NULL, &j.part[i].lora, j.key[i], NULL,
					   &z[i], &err));
			struct dev_ref part;
			OK(dmem_take(&b.mem, N * ROWS * 4, &part, &err));
			for (int64_t r = 0; r < N; r++)
				for (int64_t c = 0; c < ROWS; c++) {
					const int64_t at = r * 2 * ROWS + i * ROWS + c;
					bench_host(part)[r * ROWS + c] = bench_host(seed)[at];
					worst = fmax(worst, fabs((double)bench_host(y->at)[at] -
								 (double)bench_host(
									 z[i]->at)[r * ROWS + c]));
				}
			OK(tape_seed(&b.tape, z[i], part, &err));
		}
		OK(tape_backward(&b.tape, &err));
		for (int i = 0; i < N * IN; i++)
			worst = fmax(worst,
				     fabs((double)dx[i] - (double)bench_host(x->grad->at)[i]));
		for (int k = 0; k < 4; k++)
			for (int64_t i = 0; i < param_count(b.par[k]); i++)
				worst = fmax(worst,
					     fabs((double)kept[k][i] -
						  (double)((float *)b.par[k]->grad->host)[i]));
		printf("joined %d: largest difference %.2e\n", how, worst);
		if (!(worst <= 1e-4))
			fail_msg("joined %d: differs by %.3g", how, worst);
		for (int i = 0; i < 2; i++)
			param_release(&q[i]);
		bench_close(&b);
	}
}

/* A weight in NF4 gives the very product of its expanded numbers, both ways, whatever the panel
 * size. */
static void nf4_weight_is_its_expansion(void **state)
{
	(void)state;
	struct err err = { 0 };
	struct bench b;
	bench_open(&b);
	for (int dq = 0; dq < 2; dq++) {
		enum { ROWS = 130, COLS = 96 };
		const int64_t dim[2] = { ROWS, COLS };
		static float w[ROWS * COLS], x[N * ROWS];
		uint8_t packed[ROWS * COLS / 2];
		float absmax[ROWS * COLS / 64], absmax2[1], offset;
		uint8_t absmax8[ROWS * COLS / 64];
		struct param q, plain;
		bench_fill(&b, w, ROWS * COLS, 1);
		bench_fill(&b, x, N * ROWS, 1);
		nf4_quantize(w, ROWS * COLS, packed, absmax);
		nf4_quantize_absmax(absmax, ARRAY_LEN(absmax), absmax8, absmax2, &offset);
		const struct nf4_parts parts = { .packed = packed,
						 .absmax = dq ? NULL : absmax,
						 .absmax8 = absmax8,
						 .code = nf4_code,
						 .code2 = nf4_code2(),
						 .absmax2 = absmax2,
						 .offset = offset,
						 .block = NF4_BLOCK };
		OK(param_init_nf4(&q, b.dev, "q", dim, &parts, &err));
		OK(nf4_expand_host(&q, 0, ROWS, w, &err));
		OK(param_init_plain(&plain, b.dev, "plain", 2, dim, DT_F32, false, &err));
		OK(param_upload_f32(&plain, 0, ROWS * COLS, w, &err));
		for (int back = 0; back < 2; back++) {
			int64_t in = back ? ROWS : COLS, out = back ? COLS : ROWS;
			struct dev_ref xr, y[2];
			OK(dmem_take(&b.mem, N * ROWS * 4, &xr, &err));
			OK(dev_upload(xr, x, (size_t)(N * in) * 4, &err));
			for (int k = 0; k < 2; k++) {
				OK(dmem_take(&b.mem, N * ROWS * 4, &y[k], &err));
				OK(weight_matmul(k ? &q.w : &plain.w, &b.scratch, DT_F32, back,
						 y[k], xr, N, 0, DEV_NONE, &err));
			}
			double worst = 0;
			for (int64_t i = 0; i < N * out; i++)
				worst = fmax(worst, fabs((double)bench_host(y[0])[i] -
							 (double)bench_host(y[1])[i]));
			printf("double_quant %d back %d: largest difference %.2e\n", dq, back,
			       worst);
			assert_true(worst <= 1e-4);
		}
		param_release(&q);
		param_release(&plain);
	}
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joined_layers_are_the_layers),
		cmocka_unit_test(nf4_weight_is_its_expansion),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
