/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - a kind of block of one's own, with its backward pass: `bend SCALE`, y = x + w sin(SCALE
 * x) with a learned w for each number.
 *   block                               trains a model with it
 *   block CONFIG HETEROSHARD PLUGIN     over the machines of CONFIG; workers on this one are
 *                                       started as `HETEROSHARD worker --plugin PLUGIN CONFIG`
 * The same file is the plugin: cc -shared -fPIC -DPLUGIN block.c -o bend.so */
#include <heteroshard.h>
#include <math.h>
#include <stdio.h>

static int shape(const double *set, int ndim, const int64_t *in, int *ndim_p, int64_t *out)
{
	(void)set;
	*ndim_p = ndim; /* as it came */
	for (int i = 0; i < ndim; i++)
		out[i] = in[i];
	return 0;
}

static int params(const double *set, int ndim, const int64_t *in, hs_kind_param *param)
{
	(void)set;
	param[0].name = "weight";
	param[0].rows = 1;
	for (int i = 0; i < ndim; i++)
		param[0].rows *= in[i];
	param[0].first = 0; /* zeros: at first y is x */
	return 1;
}

static int forward(const hs_pass *p)
{
	const float scale = (float)p->set[0];
	for (uint64_t i = 0; i < p->rows * p->in; i++)
		p->y[i] = p->x[i] + p->param[0][i % p->in] * sinf(scale * p->x[i]);
	return 0;
}

static int backward(const hs_pass *p)
{
	const float scale = (float)p->set[0];
	for (uint64_t i = 0; i < p->rows * p->in; i++) {
		const float w = p->param[0][i % p->in];
		if (p->dx)
			p->dx[i] = p->dy[i] * (1 + w * scale * cosf(scale * p->x[i]));
		if (p->dparam[0])
			p->dparam[0][i % p->in] += p->dy[i] * sinf(scale * p->x[i]);
	}
	return 0;
}

/* What `heteroshard worker --plugin` calls. */
int hs_plugin(hs_register_fn add, hs_error *e);
int hs_plugin(hs_register_fn add, hs_error *e)
{
	hs_kind k = hs_kind_init();
	k.name = "bend";
	k.help = "x + w sin(SCALE x)";
	k.version = "1";
	k.setting[0].name = "scale";
	k.setting[0].least = 0.01;
	k.setting[0].most = 100;
	k.setting[0].value = 1;
	k.shape = shape;
	k.params = params;
	k.forward = forward;
	k.backward = backward;
	return add(&k, e);
}

#ifndef PLUGIN
static int wave(void *ctx, uint64_t i, void *x, void *y)
{
	const float a = (float)(3.0 * sin(12.9898 * (double)i));
	(void)ctx;
	*(float *)x = a;
	*(float *)y = 0.5f * a + sinf(3 * a);
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
	d.get = wave;
	o.set = set;
	o.sets = 4;
	if (argc == 4) {
		o.config = worker[5] = argv[1];
		worker[0] = argv[2];
		worker[4] = argv[3];
		o.worker = worker;
	}
	if (hs_plugin(hs_block_register, &e) ||
	    hs_model_new("input 1; linear 4; bend 2; linear 4; bend; linear 1; mse", 1, &m, &e) ||
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
