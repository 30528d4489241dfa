/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - text from a model, token by token. */
#ifndef HS_RUNTIME_GENERATE_H
#define HS_RUNTIME_GENERATE_H

#include "runtime/runtime.h"

struct sampling {
	double temperature; /* 0: always the likeliest token */
	/* keep the likeliest tokens that together have this probability; 1: all */
	double top_p;
	int64_t top_k; /* keep this many; 0: all */
	uint64_t seed;
};

/* The token drawn from logits (v of them) at position `at`: a pure function of its arguments; -1
 * where one is NaN or the largest infinite. `order` is scratch for v numbers. Holtzman et al. 2020
 * (top-p), Fan et al. 2018 (top-k). */
int32_t sample_token(float *logits, int64_t v, const struct sampling *s, uint64_t at,
		     int32_t *order);

struct generate_stats {
	int64_t prompt, generated; /* tokens */
	double prompt_seconds, seconds;
	bool stopped; /* the model ended its turn */
};

/* Called with the text that is final (complete UTF-8); return non-zero to stop. */
typedef int (*generate_text_fn)(void *ctx, const char *text, size_t n);

/* Ids after which an answer is over: the tokenizer's end of text, the template's ends of turn
 * (`chat` MAY be NULL), and as in transformers the eos_token_id, a number or a list, of
 * generation_config.json beside the model or else of its configuration. Returns how many. */
enum { TURN_ENDS = 16, STOPS_MOST = TURN_ENDS + 17 };
size_t generate_stops(const struct model_file *f, const struct tokenizer *tok,
		      const struct chat_template *chat, int32_t id_p[STOPS_MOST]);
bool generate_is_stop(int32_t id, const int32_t *stop, size_t nstop);

/* Continues `prompt`. Stops at an end-of-turn token, after max_new tokens, or when the model's
 * positions are used up. */
int generate(struct runtime *r, const int32_t *prompt, size_t n, int64_t max_new,
	     const struct sampling *s, generate_text_fn text, void *ctx,
	     struct generate_stats *st_p, struct err *e);

#endif
