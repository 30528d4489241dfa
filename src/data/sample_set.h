/* SPDX-License-Identifier: Apache-2.0 */
/* sample_set.h - data that somebody's own code gives, sample by sample, by index: for models that
 * are not trained on text. Order, division into microbatches and resuming are those of all data
 * (batch.h).
 *
 * A sample is `length` rows (1, or the positions of a sequence). A row has `in_words` numbers of 4
 * bytes that the model reads (floats, or an id), and `out_words` that its loss compares with
 * (floats, or the number of a class). */
#ifndef HS_DATA_SAMPLE_SET_H
#define HS_DATA_SAMPLE_SET_H

#include <stdint.h>

struct err;

enum { SAMPLE_ROWS_MOST = 1 << 20, SAMPLE_WORDS_MOST = 1 << 24 };

struct sample_set {
	uint64_t count; /* to train and to hold out, as val_set_size says */
	uint64_t held;  /* behind these, only to evaluate; 0: none */
	uint32_t length, in_words, out_words;
	/* 0: every epoch has an order of all samples. Else they are visited in blocks of so many
	 * that follow each other, `mixed` of which are mixed (block_order.h). */
	uint64_t block, mixed;
	uint64_t digest; /* tells data sets apart when a run is resumed */
	/* Writes sample `index` below count + held: length * in_words and length * out_words
	 * numbers. Called by the thread that trains. */
	int (*get)(void *ctx, uint64_t index, void *in, void *out, struct err *e);
	void *ctx;
};

struct batch_options;
struct batches;
/* As batches_new() of a dataset: a row is one sample, sequence_len its length; `s` is borrowed and
 * must outlive the batches. */
int batches_of_samples(const struct sample_set *s, const struct batch_options *o,
		       struct batches **b_p, struct err *e);

#endif
