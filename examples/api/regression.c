/* SPDX-License-Identifier: Apache-2.0 */
/* regression.c - the shortest program: it learns y = sin(3 a) + b^2 from points. */
#include <heteroshard.h>
#include <math.h>
#include <stdio.h>

static int point(void *ctx, uint64_t i, void *x, void *y)
{
	float *in = (float *)x, *out = (float *)y;
	(void)ctx;
	in[0] = (float)sin(12.9898 * (double)i); /* anywhere in -1..1 */
	in[1] = (float)sin(78.233 * (double)i);
	out[0] = (float)(sin(3.0 * (double)in[0]) + (double)in[1] * (double)in[1]);
	return 0;
}

int main(void)
{
	const char *set[] = { "learning_rate=0.02", "max_steps=600", "micro_batch_size=64" };
	hs_options o = hs_options_init();
	hs_data data = hs_data_init();
	hs_result r;
	hs_error e;
	hs_model *m;
	o.set = set;
	o.sets = 3;
	data.count = 4096;
	data.held = 512; /* 512 more, only to evaluate */
	data.get = point;
	if (hs_model_new("input 2; linear 32; tanh; linear 32; tanh; linear 1; mse", 1, &m, &e) ||
	    hs_train(m, &data, &o, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	printf("loss %.4f -> %.5f; of points that it never saw %.5f\n", r.first_loss, r.last_loss,
	       r.held_after);
	const float ask[2] = { 0.5f, -0.5f };
	float y;
	if (hs_predict(m, "cpu", ask, 1, 1, &y, &e))
		fprintf(stderr, "%s\n", e.text);
	printf("f(0.5, -0.5) is %.3f, the model says %.3f\n", sin(1.5) + 0.25, (double)y);
	const int bad = !(r.held_after < 0.01);
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return bad;
}
