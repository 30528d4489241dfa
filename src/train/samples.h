/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h - the answers of the model in training to the configuration's sample_prompts.
 *
 * The answer is that of `heteroshard generate` with the adapter of that step, and the temperature,
 * top_p and seed of the configuration: a token is a pure function of its logits, the seed and its
 * place (sample_token()), so it depends on no split. Nothing is kept between tokens: each one is a
 * round over the whole sequence, through the workers that train. Prompts are written as `generate`
 * writes them: in the model's chat template, or unchanged where it has none. */
#ifndef HS_TRAIN_SAMPLES_H
#define HS_TRAIN_SAMPLES_H

#include "job/job.h"

#include <signal.h>

struct err;

struct samples {
	const struct job *job;
	uint64_t step;
	/* The token that follows id[0..n). */
	int (*next)(void *ctx, const int32_t *id, size_t n, int32_t *next_p, struct err *e);
	void *ctx;
	/* MAY be NULL */
	int (*told)(void *sink, uint64_t step, const char *prompt, const char *text, struct err *e);
	void *sink;
	const volatile sig_atomic_t *stop; /* skip the rest; MAY be NULL */
};

/* Answers every prompt; adds a line {step, prompt, text, tokens, stopped} for each
 * to output_dir/samples.jsonl. */
int samples_make(const struct samples *s, struct err *e);
/* Steps after `step` are computed again: their lines go, and one that was cut off. What cannot be
 * written is said, and stays. */
void samples_go_back(const char *output_dir, uint64_t step);

#endif
