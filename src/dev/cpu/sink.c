/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c - the sinks of attention (kernel.def): what is left of a head's output beside one, and its
 * gradient, which one thread adds up from the first row to the last. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include <math.h>

struct sinks {
	void *o;
	const void *dout;
	float *lse, *dsink;
	const float *sink;
	int64_t n, h, d;
	bool bf;
};

INLINE void forward(const struct sinks *x, int64_t row, const bool bf)
{
	for (int64_t h = 0; h < x->h; h++) {
		float *lse = x->lse + h * x->n + row;
		const int64_t at = (row * x->h + h) * x->d;
		const float top = fmaxf(*lse, x->sink[h]), l = expf(*lse - top),
			    all = l + expf(x->sink[h] - top);
		const vf share = v_set(l / all);
		for (int64_t j = 0; j < x->d; j += VW)
			stm(x->o, at + j, share * ldm(x->o, at + j, x->d - j, bf), x->d - j, bf);
		*lse = top + logf(all);
	}
}

static void forward_row(void *ctx, int64_t row, int thread)
{
	const struct sinks *x = ctx;
	(void)thread;
	if (x->bf)
		forward(x, row, true);
	else
		forward(x, row, false);
}

INLINE void backward(const struct sinks *x, int64_t h, const bool bf)
{
	float sum = 0;
	for (int64_t row = 0; row < x->n; row++) {
		const int64_t at = (row * x->h + h) * x->d;
		vf dot = { 0 };
		for (int64_t j = 0; j < x->d; j += VW)
			dot += ldm(x->dout, at + j, x->d - j, bf) * ldm(x->o, at + j, x->d - j, bf);
		sum += expf(x->sink[h] - x->lse[h * x->n + row]) * v_sum(dot);
	}
	x->dsink[h] -= sum;
}

static void backward_head(void *ctx, int64_t h, int thread)
{
	const struct sinks *x = ctx;
	(void)thread;
	if (x->bf)
		backward(x, h, true);
	else
		backward(x, h, false);
}

int CPU_SYM(cpu_sink_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct sinks x = { .o = cpu_ptr(a[0]),
			   .lse = cpu_ptr(a[1]),
			   .sink = cpu_ptr(a[2]),
			   .n = a[3].i,
			   .h = a[4].i,
			   .d = a[5].i,
			   .bf = t == DT_BF16 };
	cpu_par(c, x.n, forward_row, &x);
	return 0;
}

int CPU_SYM(cpu_sink_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct sinks x = { .dsink = cpu_ptr(a[0]),
			   .dout = cpu_ptr(a[1]),
			   .o = cpu_ptr(a[2]),
			   .lse = cpu_ptr(a[3]),
			   .sink = cpu_ptr(a[4]),
			   .n = a[5].i,
			   .h = a[6].i,
			   .d = a[7].i,
			   .bf = t == DT_BF16 };
	cpu_par(c, x.h, backward_head, &x);
	return 0;
}
