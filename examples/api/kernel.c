/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kind of block as a text of kernels, which every device compiles: `clip LIMIT`, y = w
 * LIMIT tanh(x / LIMIT) with a learned w for each number.
 *   kernel [DEVICE ...]                  trains a model with it, over these: kernel cpu opencl:0
 *   kernel CONFIG HETEROSHARD PLUGIN     over the machines of CONFIG, as block.c
 * The same file is the plugin: cc -shared -fPIC -DPLUGIN kernel.c -o clip.so */
#include <heteroshard.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* docs/kernels.md explains the dialect. s0 is LIMIT, p0 is w, T the dtype of activations. */
static const char text[] =
	"FORWARD {\n"
	"	AT(T, y); AT(T, x); AT(f32, p0);\n"
	"	i64 i = ITEM;\n"
	"	if (i < rows * out)\n"
	"		st(y, i, p0[i % in] * s0 * TANH(ld(x, i) / s0));\n"
	"}\n"
	"BACKWARD {\n"
	"	AT(T, dx); AT(T, dy); AT(T, x); AT(f32, p0);\n"
	"	i64 i = ITEM;\n"
	"	if (i < rows * in) {\n"
	"		f32 t = TANH(ld(x, i) / s0);\n"
	"		st(dx, i, ld(dy, i) * p0[i % in] * (1.0f - t * t));\n"
	"	}\n"
	"}\n"
	"PARAMS {\n" /* a work-group for each number of w */
	"	AT(f32, d); AT(T, dy); AT(T, x);\n"
	"	LOCAL f32 s[WG];\n"
	"	f32 sum = 0;\n"
	"	for (i64 r = LID; r < rows; r += WG)\n"
	"		sum += ld(dy, r * in + GROUP) * s0 * TANH(ld(x, r * in + GROUP) / s0);\n"
	"	sum = group_sum(s, sum);\n"
	"	if (LID == 0)\n"
	"		d[GROUP] += sum;\n"
	"}\n";

static int shape(const double *set, int ndim, const int64_t *in, int *ndim_p, int64_t *out)
{
	(void)set;
	*ndim_p = ndim; /* as it came */
	memcpy(out, in, (size_t)ndim * sizeof *in);
	return 0;
}

static int params(const double *set, int ndim, const int64_t *in, hs_kind_param *param)
{
	(void)set;
	param[0].name = "weight";
	param[0].rows = 1;
	for (int i = 0; i < ndim; i++)
		param[0].rows *= in[i];
	param[0].first = 1; /* ones */
	return 1;
}

/* What `heteroshard worker --plugin` calls. */
int hs_plugin(hs_register_fn add, hs_error *e);
int hs_plugin(hs_register_fn add, hs_error *e)
{
	hs_kind k = hs_kind_init();
	k.name = "clip";
	k.help = "w LIMIT tanh(x / LIMIT)";
	k.version = "1";
	k.setting[0].name = "limit";
	k.setting[0].least = 0.01;
	k.setting[0].most = 1000;
	k.setting[0].value = 1;
	k.shape = shape;
	k.params = params;
	k.text = text;
	k.lanes = HS_LANES;
	return add(&k, e);
}

#ifndef PLUGIN
static int bump(void *ctx, uint64_t i, void *x, void *y)
{
	const float a = (float)(3.0 * sin(12.9898 * (double)i));
	(void)ctx;
	*(float *)x = a;
	*(float *)y = expf(-a * a);
	return 0;
}

int main(int argc, char **argv)
{
	char *worker[7] = { NULL, (char *)"-q", (char *)"worker", (char *)"--plugin" };
	const char *set[] = { "learning_rate=0.03", "max_steps=200", "micro_batch_size=32",
			      "reduce_order=exact" };
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = 2048;
	d.get = bump;
	o.set = set;
	o.sets = 4;
	if (argc == 4 && strchr(argv[1], '.')) {
		o.config = worker[5] = argv[1];
		worker[0] = argv[2];
		worker[4] = argv[3];
		o.worker = worker;
	} else {
		o.device = (const char *const *)(argv + 1);
		o.devices = (size_t)(argc - 1);
	}
	if (hs_plugin(hs_block_register, &e) ||
	    hs_model_new("input 1; linear 16; clip 2; linear 16; clip; linear 1; mse", 1, &m, &e) ||
	    hs_train(m, &d, &o, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	printf("loss %.4f -> %.5f\nlast loss %.9g\n", r.first_loss, r.last_loss, r.last_loss);
	const int learned = r.last_loss < 0.1 * r.first_loss;
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return !learned;
}
#endif
