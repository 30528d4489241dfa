/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_experts.c - tokens that spread over experts evenly, unevenly or all go to one: when
 * all experts have the same weights, what comes out and every gradient is that of one expert for
 * all tokens, whichever way they went. On the CPU, and on the first OpenCL device. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/ok.h"
#include "tensor/routing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = 48, C = 33, OUT = 21, EXPERTS = 6, K = 2 };

struct bench {
	struct dev *dev;
	struct dmem mem, scratch;
	struct arena host;
	struct tape tape;
	struct param w[EXPERTS + 1]; /* the last: of the one for all tokens */
};

static void values(float *v, int64_t n, uint64_t key)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = rng_normal(rng_key(key), (uint64_t)i);
}

static struct tensor *upload(struct bench *b, const float *v, int64_t rows, int64_t cols)
{
	struct err err = { 0 };
	struct tensor *t;
	OK(tape_new(&b->tape, &b->mem, DT_F32, 2, (const int64_t[]){ rows, cols }, &t, &err));
	OK(dev_upload(t->at, v, tensor_bytes(t), &err));
	return t;
}

static void download(struct dev_ref at, float *v, int64_t n)
{
	struct err err = { 0 };
	OK(dev_download(v, at, (size_t)n * 4, &err));
}

static void zero_grads(struct bench *b)
{
	struct err err = { 0 };
	for (int x = 0; x <= EXPERTS; x++)
		OK(dev_zero(DEV_REF(b->w[x].grad, 0), OUT * C * 4, &err));
}

/* y (N,OUT) and dx (N,C), and the gradient of the weights summed over experts. */
struct result {
	float y[N * OUT], dx[N * C], dw[OUT * C];
};

/* logits (N,E), or NULL: one layer for all. */
static void run(struct bench *b, const float *logits, struct result *r)
{
	struct err err = { 0 };
	float x[N * C], dy[N * OUT], part[OUT * C];
	struct tensor *in, *y, *weight, *rows, *none;
	struct linear_part expert[EXPERTS];
	const float zeros[N * OUT] = { 0 };
	dmem_reset(&b->mem);
	dmem_reset(&b->scratch);
	tape_reset(&b->tape);
	arena_reset(&b->host);
	zero_grads(b);
	values(x, N * C, 1);
	values(dy, N * OUT, 2);
	in = upload(b, x, N, C);
	in->needs_grad = true;
	if (logits) {
		struct routing *route;
		for (int i = 0; i < EXPERTS; i++)
			expert[i] = (struct linear_part){ .w = &b->w[i] };
		none = upload(b, zeros, N, OUT);
		OK(op_route_apply(&b->tape, upload(b, logits, N, EXPERTS),
				  &(struct router){ .k = K, .whole = true }, &route, &weight,
				  &err));
		OK(op_permute_apply(&b->tape, in, route, &rows, &err));
		OK(op_grouped_apply(&b->tape, rows, route, &(struct grouped){ .expert = expert },
				    &rows, &err));
		OK(op_unpermute_apply(&b->tape, rows, weight, none, route, &y, &err));
	} else {
		OK(op_linear_apply(&b->tape, in, &b->w[EXPERTS], NULL, &(struct lora){ 0 }, 0, NULL,
				   &y, &err));
	}
	struct tensor *seed = upload(b, dy, N, OUT);
	OK(tape_seed(&b->tape, y, seed->at, &err));
	download(y->at, r->y, N * OUT);
	OK(tape_backward(&b->tape, &err));
	download(in->grad->at, r->dx, N * C);
	memset(r->dw, 0, sizeof r->dw);
	for (int i = 0; i <= EXPERTS; i++) {
		download(DEV_REF(b->w[i].grad, 0), part, OUT * C);
		for (int k = 0; k < OUT * C; k++)
			r->dw[k] += part[k];
	}
}

static double far(const float *a, const float *b, int n)
{
	double most = 0, size = 0;
	for (int i = 0; i < n; i++) {
		const double d = fabs((double)a[i] - (double)b[i]);
		most = d <= most ? most : d;
		size = fmax(size, fabs((double)b[i]));
	}
	return most / size;
}

static void spread(float *logits, int how)
{
	for (int i = 0; i < N; i++)
		for (int x = 0; x < EXPERTS; x++) {
			const bool first = how == 0   ? x == i % EXPERTS
					   : how == 1 ? x == (i % 4 ? 0 : i / 4 % EXPERTS)
						      : x == 0,
				   second = how == 0 ? x == (i + 1) % EXPERTS : x == EXPERTS - 1;
			logits[i * EXPERTS + x] = first ? 2 : second ? 1.5f : (float)-x / 8;
		}
}

static void check(const char *spec)
{
	static const char *const names[] = { "evenly", "three quarters to one", "all to one" };
	struct bench b = { 0 };
	struct err err = { 0 };
	struct result one, many;
	float w[OUT * C], logits[N * EXPERTS];
	if (dev_open(spec, &b.dev, &err) < 0) {
		printf("# %s: %s\n", spec, err.msg);
		return;
	}
	dmem_init(&b.mem, b.dev, 1 << 20);
	dmem_init(&b.scratch, b.dev, 1 << 20);
	b.tape = (struct tape){ .dev = b.dev,
				.act = DT_F32,
				.mem = &b.mem,
				.scratch = &b.scratch,
				.host = &b.host,
				.record = true };
	values(w, OUT * C, 3);
	for (int i = 0; i <= EXPERTS; i++) {
		OK(param_init_plain(&b.w[i], b.dev, "w", 2, (const int64_t[]){ OUT, C }, DT_F32,
				    true, &err));
		OK(param_upload_f32(&b.w[i], 0, OUT * C, w, &err));
	}
	run(&b, NULL, &one);
	for (int how = 0; how < 3; how++) {
		spread(logits, how);
		run(&b, logits, &many);
		const double y = far(many.y, one.y, N * OUT), dx = far(many.dx, one.dx, N * C),
			     dw = far(many.dw, one.dw, OUT * C);
		printf("# %s, %s: y %.1e, dx %.1e, dw %.1e\n", spec, names[how], y, dx, dw);
		assert_true(y <= 1e-5 && dx <= 1e-5 && dw <= 1e-5);
	}
	for (int i = 0; i <= EXPERTS; i++)
		param_release(&b.w[i]);
	dmem_release(&b.mem);
	dmem_release(&b.scratch);
	arena_release(&b.host);
	dev_close(b.dev);
}

static void any_load(void **state)
{
	(void)state;
	check("cpu");
	check("opencl:0");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(any_load) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
