/* SPDX-License-Identifier: Apache-2.0 */
/* cnn.c - a convolutional network, with checkpoints: digits of 8 x 8 pixels, moved by up to a
 * pixel.
 *   cnn DIGITS OUTPUT_DIR [DEVICE ...]      DIGITS: examples/api/digits.u8, as mlp.c says
 * OUTPUT_DIR then has the checkpoints and the result (hs_model_load() reads it). */
#include <heteroshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1797, TRAIN = 1500, SIDE = 8, PIXELS = SIDE * SIDE, MOVES = 9 };

static unsigned char record[COUNT][PIXELS + 1];

/* Sample i is digit i % TRAIN, moved in one of nine ways. */
static int moved(void *ctx, uint64_t i, void *x, void *y)
{
	const unsigned char *r = record[i % TRAIN];
	const int way = (int)(i / TRAIN), dx = way % 3 - 1, dy = way / 3 - 1;
	(void)ctx;
	for (int k = 0; k < PIXELS; k++) {
		const int from_x = k % SIDE - dx, from_y = k / SIDE - dy;
		const int in = from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
		((float *)x)[k] = in ? (float)r[from_y * SIDE + from_x] / 16.0f : 0.0f;
	}
	*(int32_t *)y = r[PIXELS];
	return 0;
}

/* The others, as they are. */
static int unseen(void *ctx, uint64_t i, void *x, void *y)
{
	const unsigned char *r = record[TRAIN + i];
	(void)ctx;
	for (int k = 0; k < PIXELS; k++)
		((float *)x)[k] = (float)r[k] / 16.0f;
	*(int32_t *)y = r[PIXELS];
	return 0;
}

static int told(void *ctx, const hs_step *s, double *rate)
{
	(void)ctx;
	if (s->step % 100 == 0)
		printf("epoch %.2f  loss %.4f  right %.1f %%\n", s->epoch, s->loss,
		       100 * s->accuracy);
	*rate = 0.01 * (s->step < 400 ? 1 : 0.3); /* of the next step: a schedule of one's own */
	return HS_GO_ON;
}

static int kept(void *ctx, uint64_t step, const char *path)
{
	(void)ctx;
	printf("step %llu is in %s\n", (unsigned long long)step, path);
	return HS_GO_ON;
}

static void message(void *ctx, int level, const char *line)
{
	(void)ctx;
	fprintf(stderr, "%s%s\n", level > 1 ? "warning: " : "", line);
}

int main(int argc, char **argv)
{
	char output[1000];
	const char *set[] = { output, "learning_rate=0.01", "max_steps=600", "save_steps=300",
			      "micro_batch_size=32", "gradient_accumulation_steps=2" };
	FILE *f = argc > 2 ? fopen(argv[1], "rb") : NULL;
	if (!f || fread(record, sizeof record, 1, f) != 1) {
		fprintf(stderr, "usage: cnn examples/api/digits.u8 OUTPUT_DIR [DEVICE ...]\n");
		return EXIT_FAILURE;
	}
	fclose(f);
	snprintf(output, sizeof output, "output_dir=%s", argv[2]);
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_evaluation v;
	hs_data data = hs_data_init();
	hs_options o = hs_options_init();
	data.count = (uint64_t)TRAIN * MOVES;
	data.get = moved;
	o.set = set;
	o.sets = sizeof set / sizeof set[0];
	o.device = (const char *const *)(argv + 3);
	o.devices = (size_t)(argc - 3);
	o.on.step = told;
	o.on.saved = kept;
	hs_set_log(message, NULL, 2);
	if (hs_model_new("input 1 8 8\n"
			 "conv2d 16 3 pad=1; relu; max_pool2d 2\n"
			 "conv2d 32 3 pad=1; relu; avg_pool2d 2\n"
			 "flatten; dropout 0.2; linear 10; cross_entropy\n",
			 1, &m, &e) ||
	    hs_train(m, &data, &o, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return EXIT_FAILURE;
	}
	data.count = COUNT - TRAIN;
	data.get = unseen;
	if (hs_evaluate(m, &data, NULL, 0, &v, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return EXIT_FAILURE;
	}
	printf("loss %.4f -> %.4f; of %llu digits that it never saw %.1f %% are right\n",
	       r.first_loss, r.last_loss, (unsigned long long)v.rows, 100 * v.accuracy);
	printf("last loss %.9g\n", r.last_loss);
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return v.accuracy > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
