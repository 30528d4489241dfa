/* SPDX-License-Identifier: Apache-2.0 */
/* mlp.c - classifies handwritten digits of 8 x 8 pixels.
 *   mlp DIGITS [DEVICE ...]     DIGITS: examples/api/digits.u8; a worker for each device
 * The file has 1,797 records of 65 bytes: 64 pixels from 0 to 16 and the digit (scripts/digits.py
 * writes it). The last 297 are only for the accuracy at the end. */
#include <heteroshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1797, TRAIN = 1500, PIXELS = 64 };

static unsigned char record[COUNT][PIXELS + 1];

static int digit(void *ctx, uint64_t i, void *x, void *y)
{
	float *in = (float *)x;
	const unsigned char *r = record[i + *(const uint64_t *)ctx];
	for (int k = 0; k < PIXELS; k++)
		in[k] = (float)r[k] / 16.0f;
	*(int32_t *)y = r[PIXELS];
	return 0;
}

static int told(void *ctx, const hs_step *s, double *rate)
{
	(void)ctx;
	(void)rate;
	if (s->step % 50 == 1 || s->step == s->total)
		printf("step %3llu  loss %.4f  right %.1f %%\n", (unsigned long long)s->step,
		       s->loss, 100 * s->accuracy);
	return HS_GO_ON; /* HS_STOP: save and end */
}

static int fail(const hs_error *e)
{
	fprintf(stderr, "%s\n", e->text);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static const uint64_t begin = 0, test = TRAIN;
	const char *set[] = { "learning_rate=0.003", "num_epochs=20", "micro_batch_size=16",
			      "gradient_accumulation_steps=4" };
	FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
	if (!f || fread(record, sizeof record, 1, f) != 1) {
		fprintf(stderr, "usage: mlp examples/api/digits.u8 [DEVICE ...]\n");
		return EXIT_FAILURE;
	}
	fclose(f);
	hs_error e;
	hs_model *m;
	if (hs_model_new("input 64\n"
			 "linear 128; relu\n"
			 "linear 64;  relu\n"
			 "linear 10\n"
			 "cross_entropy\n",
			 1, &m, &e))
		return fail(&e);
	char table[2000];
	hs_model_summary(m, table, sizeof table);
	printf("%s\n", table);

	hs_data data = hs_data_init();
	hs_options o = hs_options_init();
	data.count = TRAIN;
	data.get = digit;
	data.ctx = (void *)&begin;
	o.set = set;
	o.sets = 4;
	o.on.step = told;
	o.device = (const char *const *)(argv + 2);
	o.devices = (size_t)(argc - 2);
	hs_result r;
	if (hs_train(m, &data, &o, &r, &e))
		return fail(&e);
	hs_evaluation v;
	data.count = COUNT - TRAIN;
	data.ctx = (void *)&test;
	if (hs_evaluate(m, &data, "cpu", 0, &v, &e))
		return fail(&e);
	printf("%llu steps; of %llu digits that it never saw %.1f %% are right; last loss %.9g\n",
	       (unsigned long long)r.step, (unsigned long long)v.rows, 100 * v.accuracy,
	       r.last_loss);
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return v.accuracy > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
