/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - a parameter server, synchronous, beside one process: server.yaml is its plan. Three
 * workers compute, one of them has the optimizer's state, adds up the gradients and sends the new
 * values. SGD with a rate of 0.01; the losses of each step are those of one process, bit for bit.
 *   server DIGITS CONFIG HETEROSHARD     server digits.u8 server.yaml build/heteroshard
 * Workers on this machine are started as `HETEROSHARD worker CONFIG`. */
#include <heteroshard.h>
#include <stdio.h>

enum { PIXELS = 64, COUNT = 1797 };

static unsigned char digits[COUNT][PIXELS + 1];

static int digit(void *ctx, uint64_t i, void *x, void *y)
{
	(void)ctx;
	for (int k = 0; k < PIXELS; k++)
		((float *)x)[k] = (float)digits[i][k] / 16.0f;
	*(int32_t *)y = digits[i][PIXELS];
	return 0;
}

/* The same model, data and settings, here (config NULL) or on the machines of a configuration. */
static int run(const char *config, char *const *worker, hs_result *r)
{
	const char *set[] = { "optimizer=sgd",
			      "learning_rate=0.01",
			      "lr_scheduler=constant",
			      "micro_batch_size=20",
			      "max_steps=300",
			      "reduce_order=exact",
			      "gradient_accumulation_steps=3" };
	hs_error e;
	hs_model *m = NULL;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = COUNT;
	d.get = digit;
	o.config = config;
	o.worker = worker;
	o.set = set;
	o.sets = sizeof set / sizeof *set;
	const int rc =
		hs_model_new("input 64; linear 32; relu; linear 10; cross_entropy", 1, &m, &e) ||
		hs_train(m, &d, &o, r, &e);
	if (rc)
		fprintf(stderr, "%s\n", e.text);
	hs_model_free(m, NULL);
	return rc;
}

int main(int argc, char **argv)
{
	hs_result one, three;
	FILE *f = argc == 4 ? fopen(argv[1], "rb") : NULL;
	if (!f || fread(digits, sizeof digits, 1, f) != 1) {
		fprintf(stderr,
			"server DIGITS CONFIG HETEROSHARD: a file of the digits is needed\n");
		return 1;
	}
	fclose(f);
	char *worker[] = { argv[3], (char *)"-q", (char *)"worker", argv[2], NULL };
	if (run(NULL, NULL, &one))
		return 1;
	if (run(argv[2], worker, &three))
		return 1;
	int same = one.steps == three.steps;
	printf("step  one process  server and two others\n");
	for (uint64_t i = 0; i < one.steps && same; i++) {
		same = one.loss[i] == three.loss[i];
		if (i % 50 == 49 || !same)
			printf("%4d  %.9f  %.9f\n", (int)i + 1, one.loss[i], three.loss[i]);
	}
	const int learned = one.last_loss < one.first_loss - 0.1;
	printf(same ? "the same losses\n" : "the losses differ\n");
	hs_result_release(&one);
	hs_result_release(&three);
	return !(same && learned);
}
