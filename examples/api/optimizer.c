/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - an optimizer of one's own: `signum`, a step against the sign of the momentum
 * (Bernstein et al., "signSGD", ICML 2018).
 *   optimizer                               trains a model with it
 *   optimizer CONFIG HETEROSHARD PLUGIN     over the machines of CONFIG; workers on this one are
 *                                           started as `HETEROSHARD worker --plugin PLUGIN CONFIG`
 * The same file is the plugin: cc -shared -fPIC -DPLUGIN optimizer.c -o signum.so */
#include <heteroshard.h>
#include <math.h>
#include <stdio.h>

static int update(const hs_update *u)
{
	float *m = u->state[0];
	for (uint64_t i = 0; i < u->count; i++) {
		m[i] = u->beta1 * m[i] + (1 - u->beta1) * u->grad[i] * u->scale;
		const float sign = m[i] > 0 ? 1.0f : m[i] < 0 ? -1.0f : 0.0f;
		u->value[i] -= u->learning_rate * (sign + u->weight_decay * u->value[i]);
	}
	return 0;
}

/* What `heteroshard worker --plugin` calls. */
int hs_plugin_optimizers(hs_register_optimizer_fn add, hs_error *e);
int hs_plugin_optimizers(hs_register_optimizer_fn add, hs_error *e)
{
	hs_optimizer o = hs_optimizer_init();
	o.name = "signum";
	o.help = "a step against the sign of the momentum";
	o.version = "1";
	o.cut = HS_CUT_BLOCK; /* an element needs no other one: its state can be divided */
	o.states = 1;
	o.state[0] = "momentum";
	o.update = update;
	return add(&o, e);
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
	const char *set[] = { "optimizer=signum", "learning_rate=0.002",  "max_steps=100",
			      "adam_beta1=0.8",   "micro_batch_size=16", "reduce_order=exact",
			      "gradient_accumulation_steps=2" };
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = 2048;
	d.get = wave;
	o.set = set;
	o.sets = 7;
	if (argc == 4) {
		o.config = worker[5] = argv[1];
		worker[0] = argv[2];
		worker[4] = argv[3];
		o.worker = worker;
	}
	if (hs_plugin_optimizers(hs_optimizer_register, &e) ||
	    hs_model_new("input 1; linear 128; tanh; linear 128; tanh; linear 1; mse", 1, &m, &e) ||
	    hs_train(m, &d, &o, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	printf("loss %.4f -> %.5f\nlast loss %.9g\n", r.first_loss, r.last_loss, r.last_loss);
	const int learned = r.last_loss < 0.3 * r.first_loss;
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return !learned;
}
#endif
