/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - the order of the data and its division into microbatches: seeded, resumable,
 * independent of any plan.
 *
 * A microbatch is `micro_batch_size` rows (batches_set_passes: sizes of their own); a row is one
 * example or, with sample packing, several examples that together fit in sequence_len. There is no
 * padding: a microbatch is the token streams of its sequences one after the other, with the place
 * where each begins. Every example is a sequence of its own for attention and positions.
 *
 * Labels are shifted: label[i] is the id that follows token i in its sequence, or -100 where that
 * id is not trained (the last token of a sequence always). A global batch is accumulation *
 * micro_batch_size rows, dealt to its microbatches in their order; the leftover rows of an epoch
 * form a smaller last batch, in which the list of microbatches is cut where the rows end.
 *
 * Order: epoch k visits the training examples in a permutation drawn from (seed, k) by Fisher-Yates
 * over rng.h; packing is first-fit in that order with a bounded number of open rows. So (epoch,
 * batch) alone fix what comes next, and resuming needs nothing else. The validation split is the
 * last examples of one permutation drawn from the seed, or the sources from `val_source` on. */
#ifndef HS_DATA_BATCH_H
#define HS_DATA_BATCH_H

#include "data/dataset.h"

/* Of preferences (dataset.h): row r of a microbatch has the sequences 2r (chosen) and 2r+1
 * (rejected). With PREFER_SINGLE the second is the row's prompt with the answer of the row before
 * it, of the first row with that of the last, as TRL's KTO makes them. */
struct pairs {
	int32_t *answer; /* (S) the token whose label is the first of the answer */
	int32_t *good;   /* (R) whether a single answer is wanted */
	double *ref; /* (S) the answers' log-probabilities by the reference; from round to round */
};

struct microbatch {
	uint32_t n;           /* tokens N */
	uint32_t nseq;        /* sequences S */
	const int32_t *id;    /* (N) */
	const int32_t *pos;   /* (N) position within its sequence, from 0 */
	const int32_t *label; /* (N) */
	const int32_t *start; /* (S+1) where each sequence begins; start[S] == n */
	uint32_t trained;     /* labels that are not -100 */
	uint32_t first_row;   /* its first row in the global batch */
	uint32_t nrows;       /* rows R */
	const int32_t *row;   /* (R+1) where each row begins; row[R] == n. NULL: one row */
	uint32_t id_words, label_words; /* 0: 1. Of samples the numbers in a row (sample_set.h) */
	const struct pairs *pairs;      /* NULL: no preferences */
};

struct batch_options {
	uint64_t seed;
	int64_t sequence_len;
	int64_t micro_batch_size; /* rows */
	int64_t accumulation;     /* microbatches in a global batch */
	bool sample_packing;
	bool in_order;       /* as the examples lie in the data: of an evaluation */
	bool prompt_labels;  /* of chosen sequences the prompt has labels too */
	double val_set_size; /* below 1: a share of the examples; 1 and more: that many */
	size_t val_source;   /* 0: none */
};

struct batches;

/* `d` is borrowed and must outlive the batches. Fails when nothing is left to train. */
int batches_new(const struct dataset *d, const struct batch_options *o, struct batches **b_p,
		struct err *e);
void batches_free(struct batches *b);
/* From now on the n microbatches of a global batch have pass[i] rows (each at least 1), whose sum
 * is accumulation * micro_batch_size; copied. n 0: all have micro_batch_size. */
int batches_set_passes(struct batches *b, const int *pass, size_t n, struct err *e);

/* global batches; depends on the epoch with packing */
uint64_t batches_per_epoch(struct batches *b, uint64_t epoch);
/* The global batches of so many epochs, the last of them a part of one, from (epoch, batch) on. */
uint64_t batches_left(struct batches *b, double epochs, uint64_t epoch, uint64_t batch);
/* The microbatches of global batch `batch` of `epoch`: *n_p of them, valid until the next call of
 * this or the next function. Once warm, nothing is allocated. */
int batches_get(struct batches *b, uint64_t epoch, uint64_t batch, const struct microbatch **mb_p,
		size_t *n_p, struct err *e);
/* What the microbatches of epoch 0 look like. */
struct batch_shape {
	double tokens; /* of a row, mean */
	/* of a row: the number of equally long sequences for which attention costs as much as for
	 * the real ones (T^2 of the row over the sum of T^2 of its sequences) */
	double sequences;
	double trained; /* share of the tokens that are trained */
};
struct batch_shape batches_shape(struct batches *b);
/* Tokens a row, of the fullest so many rows that follow each other in a global batch: passes of
 * several sizes begin anywhere. */
double batches_fullest(struct batches *b, size_t rows);
/* Examples of the validation split. */
size_t batches_val_examples(const struct batches *b);
/* The validation split, source after source, each in microbatches of micro_batch_size rows. */
size_t batches_val_count(const struct batches *b);
size_t batches_val_source(const struct batches *b, size_t i); /* of microbatch i */
int batches_val(struct batches *b, size_t i, struct microbatch *mb_p, struct err *e);

#endif
