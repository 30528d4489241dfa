/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h - what the model under training answers to the configuration's sample_prompts.
 *
 * Greedy, so the same as `heteroshard generate --temperature 0` says with the adapter of that step.
 * Nothing is kept between tokens: every next one is a round over the whole sequence, through
 * whatever the caller trains with. Prompts are asked as `generate` asks them: in the model's chat
 * template, or, where it has none, as they stand. */
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
	const volatile sig_atomic_t *stop; /* leave the rest out; MAY be NULL */
};

/* Answers every prompt; adds a line {step, prompt, text, tokens, stopped} for each
 * to output_dir/samples.jsonl. */
int samples_make(const struct samples *s, struct err *e);

#endif
