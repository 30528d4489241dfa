/* SPDX-License-Identifier: Apache-2.0 */
/* charlm.c - a small language model of characters, a transformer from scratch.
 *   charlm TEXT STEPS [DEVICE ...]      TEXT: any file; a worker for each device
 * A sample is 64 characters at some place of the text; the target of each is the one behind it. */
#include <heteroshard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 64, MOST = 1 << 20 };

static unsigned char text[MOST];
static uint64_t size;
static int32_t id_of[256];
static unsigned char char_of[256];

static int sample(void *ctx, uint64_t i, void *x, void *y)
{
	const uint64_t at = i * 37 % (size - LENGTH - 1);
	(void)ctx;
	for (int k = 0; k < LENGTH; k++) {
		((int32_t *)x)[k] = id_of[text[at + (uint64_t)k]];
		((int32_t *)y)[k] = id_of[text[at + (uint64_t)k + 1]];
	}
	return 0;
}

static int told(void *ctx, const hs_step *s, double *rate)
{
	(void)ctx;
	(void)rate;
	if (s->step % 20 == 1 || s->step == s->total)
		printf("step %3llu  loss %.3f  %.0f characters/s\n", (unsigned long long)s->step,
		       s->loss, (double)s->rows / s->seconds);
	return HS_GO_ON;
}

/* Goes on from the text's beginning, always with the likeliest character. */
static int go_on(hs_model *m, int n, hs_error *e)
{
	const int vocab = (int)hs_model_output(m);
	float *out = (float *)malloc(sizeof(float) * LENGTH * (size_t)vocab);
	int32_t in[LENGTH];
	for (int k = 0; k < LENGTH; k++)
		in[k] = id_of[text[k]];
	for (int i = 0; out && i < n; i++) {
		if (hs_predict(m, "cpu", in, 1, LENGTH, out, e)) {
			free(out);
			return -1;
		}
		const float *last = out + (LENGTH - 1) * vocab;
		int best = 0;
		for (int k = 1; k < vocab; k++)
			best = last[k] > last[best] ? k : best;
		putchar(char_of[best]);
		memmove(in, in + 1, sizeof in - sizeof *in);
		in[LENGTH - 1] = best;
	}
	printf("\n");
	free(out);
	return 0;
}

int main(int argc, char **argv)
{
	FILE *f = argc > 2 ? fopen(argv[1], "rb") : NULL;
	if (!f || (size = fread(text, 1, MOST, f)) < 10 * LENGTH) {
		fprintf(stderr, "usage: charlm TEXT STEPS [DEVICE ...]\n");
		return EXIT_FAILURE;
	}
	fclose(f);
	int vocab = 0;
	for (int c = 0; c < 256; c++)
		if (memchr(text, c, size)) {
			char_of[vocab] = (unsigned char)c;
			id_of[c] = vocab++;
		}
	static const char layer[] = "residual { rms_norm; attention heads=4 }\n"
				    "residual { rms_norm; linear 256; gelu; linear 64 }\n";
	char model[1000], steps[64];
	snprintf(model, sizeof model, "tokens %d 64\n%s%srms_norm; linear %d; cross_entropy\n",
		 vocab, layer, layer, vocab);
	snprintf(steps, sizeof steps, "max_steps=%s", argv[2]);
	const char *set[] = { steps, "learning_rate=0.003", "micro_batch_size=8",
			      "gradient_accumulation_steps=2", "warmup_steps=10" };
	hs_data data = hs_data_init();
	hs_options o = hs_options_init();
	data.count = size;
	data.length = LENGTH;
	data.get = sample;
	o.set = set;
	o.sets = 5;
	o.on.step = told;
	o.device = (const char *const *)(argv + 3);
	o.devices = (size_t)(argc - 3);
	hs_error e;
	hs_model *m;
	hs_result r;
	if (hs_model_new(model, 1, &m, &e) || hs_train(m, &data, &o, &r, &e) || go_on(m, 200, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return EXIT_FAILURE;
	}
	printf("last loss %.9g\n", r.last_loss);
	const int learned = r.last_loss < 0.9 * r.first_loss;
	hs_result_release(&r);
	hs_model_free(m, NULL);
	return learned ? EXIT_SUCCESS : EXIT_FAILURE;
}
