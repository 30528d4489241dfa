/* SPDX-License-Identifier: Apache-2.0 */
/* own_conv.c - convolutions over images (C,Y,X) and over lines (C,X), and pooling. */
#include "model/own.h"

#include "base/err.h"

#include <math.h>

enum { OUT, KERNEL, STRIDE, PAD, BIAS }; /* v[] */

static int32_t windows(int64_t n, int64_t k, int64_t stride, int64_t pad)
{
	return n + 2 * pad < k ? 0 : (int32_t)((n + 2 * pad - k) / stride + 1);
}

enum { SEEN_MOST = 1 << 24 };

/* Numbers that a window sees. */
static int64_t each(const struct own_block *b)
{
	const int64_t k = (int64_t)b->v[KERNEL];
	return b->in.dim[0] * k * (b->in.ndim == 3 ? k : 1);
}

static const char *fit_image(struct own_block *b)
{
	const int64_t k = (int64_t)b->v[KERNEL], s = (int64_t)b->v[STRIDE], p = (int64_t)b->v[PAD];
	if (b->in.ndim != 3)
		return "(channels, height, width)";
	b->out = (struct own_shape){ 3,
				     { (int32_t)b->v[OUT], windows(b->in.dim[1], k, s, p),
				       windows(b->in.dim[2], k, s, p) } };
	if (each(b) > SEEN_MOST)
		return "(channels, height, width), of which a window sees at most 2^24 numbers";
	return b->out.dim[1] && b->out.dim[2] ? NULL
					      : "(channels, height, width), not smaller than "
						"the kernel";
}

static const char *fit_line(struct own_block *b)
{
	const int64_t k = (int64_t)b->v[KERNEL], s = (int64_t)b->v[STRIDE], p = (int64_t)b->v[PAD];
	if (b->in.ndim != 2)
		return "(channels, length)";
	b->out = (struct own_shape){ 2, { (int32_t)b->v[OUT], windows(b->in.dim[1], k, s, p) } };
	if (each(b) > SEEN_MOST)
		return "(channels, length), of which a window sees at most 2^24 numbers";
	return b->out.dim[1] ? NULL : "(channels, length), not shorter than the kernel";
}

static size_t params(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	p[0] = (struct own_param){
		"weight", 2, { b->out.dim[0], each(b) }, FIRST_UNIFORM, each(b)
	};
	p[1] = (struct own_param){ "bias", 1, { b->out.dim[0], 1 }, FIRST_UNIFORM, each(b) };
	return b->v[BIAS] > 0 ? 2 : 1;
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	const bool line = b->in.ndim == 2;
	const int64_t k = (int64_t)b->v[KERNEL], pad = (int64_t)b->v[PAD];
	const struct conv2d c = { .ky = line ? 1 : k,
				  .kx = k,
				  .stride = (int64_t)b->v[STRIDE],
				  .py = line ? 0 : pad,
				  .px = pad };
	struct param *w = own_take(r), *bias = b->v[BIAS] > 0 ? own_take(r) : NULL;
	if (line) { /* an image of one line */
		const struct own_shape image = { 3, { b->in.dim[0], 1, b->in.dim[1] } };
		own_view(x, &image);
	}
	return op_conv2d_apply(r->t, x, w, bias, &c, y_p, e);
}

static double flops(const struct own_block *b)
{
	return 2.0 * (double)own_count(&b->out) * (double)each(b);
}

#define KEYS                                                                                       \
	{                                                                                          \
		{ "out", 1, 1 << 20, NAN, true }, { "kernel", 1, 1 << 10, NAN, true },             \
			{ "stride", 1, 1 << 10, 1, true }, { "pad", 0, 1 << 10, 0, true },         \
		{                                                                                  \
			"bias", 0, 1, 1, true                                                      \
		}                                                                                  \
	}

const struct own_kind own_conv2d = { .name = "conv2d",
				     .help = "nn.Conv2d with a square kernel; its weight is (out, "
					     "in * kernel * kernel)",
				     .key = KEYS,
				     .fit = fit_image,
				     .params = params,
				     .forward = forward,
				     .flops = flops };

const struct own_kind own_conv1d = { .name = "conv1d",
				     .help = "nn.Conv1d; its weight is (out, in * kernel)",
				     .key = KEYS,
				     .fit = fit_line,
				     .params = params,
				     .forward = forward,
				     .flops = flops };

/* ---- pooling ---- */

enum { SIZE, EVERY }; /* v[] */

static int64_t every(const struct own_block *b)
{
	return (int64_t)(b->v[EVERY] > 0 ? b->v[EVERY] : b->v[SIZE]);
}

static const char *fit_pool(struct own_block *b)
{
	const int64_t k = (int64_t)b->v[SIZE];
	if (b->in.ndim != 3 || b->in.dim[1] < k || b->in.dim[2] < k)
		return "(channels, height, width), not smaller than the window";
	b->out = (struct own_shape){ 3,
				     { b->in.dim[0], windows(b->in.dim[1], k, every(b), 0),
				       windows(b->in.dim[2], k, every(b), 0) } };
	return NULL;
}

static int forward_max(struct own_run *r, const struct own_block *b, struct tensor *x,
		       struct tensor **y_p, struct err *e)
{
	return op_pool_apply(r->t, x, (int64_t)b->v[SIZE], every(b), false, y_p, e);
}

static int forward_mean(struct own_run *r, const struct own_block *b, struct tensor *x,
			struct tensor **y_p, struct err *e)
{
	return op_pool_apply(r->t, x, (int64_t)b->v[SIZE], every(b), true, y_p, e);
}

#define POOL_KEYS                                                                                  \
	{                                                                                          \
		{ "size", 1, 1 << 10, NAN, true }, { "stride", 0, 1 << 10, 0, true }               \
	}

const struct own_kind own_max_pool2d = { .name = "max_pool2d",
					 .help = "the largest of each window: nn.MaxPool2d",
					 .key = POOL_KEYS,
					 .fit = fit_pool,
					 .forward = forward_max };

const struct own_kind own_avg_pool2d = { .name = "avg_pool2d",
					 .help = "the mean of each window: nn.AvgPool2d",
					 .key = POOL_KEYS,
					 .fit = fit_pool,
					 .forward = forward_mean };
